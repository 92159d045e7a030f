/* SPDX-License-Identifier: MIT */
#include "waiters.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "hash.h"
#include "mem.h"
#include "op.h"

/* The table's key: one byte for the kind of topic, then the seq or the operation's key. */
struct topic {
    UT_hash_handle hh;
    struct wait_list waits;
    size_t key_len;
    char key[];
};

enum { TOPIC_KEY_MAX = 1 + OP_KEY_MAX + 1 + OP_ID_MAX };

struct waiters {
    struct topic *topics;
    struct wait_list tickets;
    struct wait_list cursors;
    struct heap deadlines;
};

struct waiters *waiters_new(void)
{
    struct waiters *waiters = mem_zalloc(sizeof(*waiters));
    TAILQ_INIT(&waiters->tickets);
    TAILQ_INIT(&waiters->cursors);
    return waiters;
}

static struct wait *by_deadline(struct heap_node *node)
{
    return node == NULL ? NULL : CONTAINER_OF(node, struct wait, deadline);
}

void waiters_free(struct waiters *waiters)
{
    if (waiters == NULL)
        return;
    struct wait *wait;
    while ((wait = waiters_next_deadline(waiters)) != NULL)
        waiters_remove(waiters, wait);
    heap_fini(&waiters->deadlines);
    free(waiters);
}

struct wait *waiters_add(struct waiters *waiters, enum wait_kind kind, int64_t deadline_ms)
{
    struct wait *wait = mem_zalloc(sizeof(*wait));
    wait->kind = kind;
    wait->deadline_ms = deadline_ms;
    heap_add(&waiters->deadlines, &wait->deadline, deadline_ms);
    return wait;
}

static struct wait_list *barriers(struct waiters *waiters, enum wait_kind kind)
{
    return kind == WAIT_TICKET ? &waiters->tickets : &waiters->cursors;
}

void waiters_unfile(struct waiters *waiters, struct wait *wait)
{
    if (wait->kind == WAIT_TICKET || wait->kind == WAIT_CURSOR) {
        if (wait->link.tqe_prev != NULL)
            TAILQ_REMOVE(barriers(waiters, wait->kind), wait, link);
        wait->link.tqe_prev = NULL;
        return;
    }
    struct topic *topic = wait->topic;
    if (topic == NULL)
        return;
    wait->topic = NULL;
    TAILQ_REMOVE(&topic->waits, wait, link);
    if (TAILQ_EMPTY(&topic->waits)) {
        HASH_DELETE(hh, waiters->topics, topic); /* NOLINT: as in batch_remove */
        free(topic);
    }
}

void waiters_detach(struct waiters *waiters, struct wait *wait)
{
    waiters_unfile(waiters, wait);
    heap_remove(&waiters->deadlines, &wait->deadline);
}

void waiters_remove(struct waiters *waiters, struct wait *wait)
{
    waiters_detach(waiters, wait);
    free(wait);
}

static struct topic *find(struct waiters *waiters, const char *key, size_t len)
{
    struct topic *topic;
    HASH_FIND(hh, waiters->topics, key, len, topic);
    return topic;
}

static void file(struct waiters *waiters, struct wait *wait, const char *key, size_t len)
{
    struct topic *topic = find(waiters, key, len);
    if (topic == NULL) {
        topic = mem_alloc(sizeof(*topic) + len);
        *topic = (struct topic){.key_len = len};
        TAILQ_INIT(&topic->waits);
        memcpy(topic->key, key, len);
        HASH_ADD_KEYPTR(hh, waiters->topics, topic->key, len, topic);
    }
    TAILQ_INSERT_TAIL(&topic->waits, wait, link);
    wait->topic = topic;
}

static size_t seq_topic(int64_t seq, char *out)
{
    out[0] = 's';
    memcpy(out + 1, &seq, sizeof(seq));
    return 1 + sizeof(seq);
}

static size_t key_topic(struct span id_key, char *out)
{
    assert(id_key.len < TOPIC_KEY_MAX);
    out[0] = 'k';
    memcpy(out + 1, id_key.data, id_key.len);
    return 1 + id_key.len;
}

void waiters_file_seq(struct waiters *waiters, struct wait *wait, int64_t seq)
{
    char key[TOPIC_KEY_MAX];
    waiters_unfile(waiters, wait);
    wait->number = seq;
    file(waiters, wait, key, seq_topic(seq, key));
}

void waiters_file_key(struct waiters *waiters, struct wait *wait, struct span id_key)
{
    char key[TOPIC_KEY_MAX];
    waiters_unfile(waiters, wait);
    file(waiters, wait, key, key_topic(id_key, key));
}

void waiters_file_barrier(struct waiters *waiters, struct wait *wait)
{
    struct wait_list *list = barriers(waiters, wait->kind);
    struct wait *before = TAILQ_LAST(list, wait_list);
    while (before != NULL && before->number > wait->number)
        before = TAILQ_PREV(before, wait_list, link);
    if (before == NULL)
        TAILQ_INSERT_HEAD(list, wait, link);
    else
        TAILQ_INSERT_AFTER(list, before, wait, link);
}

struct wait_list *waiters_of_seq(struct waiters *waiters, int64_t seq)
{
    char key[TOPIC_KEY_MAX];
    struct topic *topic = find(waiters, key, seq_topic(seq, key));
    return topic == NULL ? NULL : &topic->waits;
}

struct wait_list *waiters_of_key(struct waiters *waiters, struct span id_key)
{
    char key[TOPIC_KEY_MAX];
    struct topic *topic = find(waiters, key, key_topic(id_key, key));
    return topic == NULL ? NULL : &topic->waits;
}

struct wait *waiters_next_barrier(struct waiters *waiters, enum wait_kind kind, int64_t upto)
{
    struct wait *wait = TAILQ_FIRST(barriers(waiters, kind));
    return wait != NULL && wait->number <= upto ? wait : NULL;
}

struct wait *waiters_next_deadline(struct waiters *waiters)
{
    return by_deadline(heap_first(&waiters->deadlines));
}

struct wait *waiters_get(struct waiters *waiters, size_t index)
{
    assert(index < waiters->deadlines.count);
    return by_deadline(waiters->deadlines.nodes[index]);
}

void waiters_postpone(struct waiters *waiters, struct wait *wait, int64_t deadline_ms)
{
    wait->deadline_ms = deadline_ms;
    heap_move(&waiters->deadlines, &wait->deadline, deadline_ms);
}

bool waiters_any(const struct waiters *waiters)
{
    return waiters->topics != NULL;
}

size_t waiters_count(const struct waiters *waiters)
{
    return waiters->deadlines.count;
}
