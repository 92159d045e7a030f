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
    struct wait **heap; /* by deadline_ms, a binary heap */
    size_t heap_count;
    size_t heap_room;
};

struct waiters *waiters_new(void)
{
    struct waiters *waiters = mem_zalloc(sizeof(*waiters));
    TAILQ_INIT(&waiters->tickets);
    TAILQ_INIT(&waiters->cursors);
    return waiters;
}

void waiters_free(struct waiters *waiters)
{
    if (waiters == NULL)
        return;
    while (waiters->heap_count > 0)
        waiters_remove(waiters, waiters->heap[0]);
    free(waiters->heap);
    free(waiters);
}

static void heap_put(struct waiters *waiters, size_t at, struct wait *wait)
{
    waiters->heap[at] = wait;
    wait->heap_at = at;
}

static void heap_up(struct waiters *waiters, size_t at, struct wait *wait)
{
    while (at > 0 && waiters->heap[(at - 1) / 2]->deadline_ms > wait->deadline_ms) {
        heap_put(waiters, at, waiters->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    heap_put(waiters, at, wait);
}

static void heap_down(struct waiters *waiters, size_t at, struct wait *wait)
{
    for (size_t child; (child = 2 * at + 1) < waiters->heap_count; at = child) {
        if (child + 1 < waiters->heap_count &&
            waiters->heap[child + 1]->deadline_ms < waiters->heap[child]->deadline_ms)
            child++;
        if (waiters->heap[child]->deadline_ms >= wait->deadline_ms)
            break;
        heap_put(waiters, at, waiters->heap[child]);
    }
    heap_put(waiters, at, wait);
}

struct wait *waiters_add(struct waiters *waiters, enum wait_kind kind, int64_t deadline_ms)
{
    struct wait *wait = mem_zalloc(sizeof(*wait));
    wait->kind = kind;
    wait->deadline_ms = deadline_ms;
    if (waiters->heap_count == waiters->heap_room) {
        waiters->heap_room = waiters->heap_room == 0 ? 16 : waiters->heap_room * 2;
        waiters->heap = mem_resize(waiters->heap, waiters->heap_room, sizeof(waiters->heap[0]));
    }
    heap_up(waiters, waiters->heap_count++, wait);
    return wait;
}

static void heap_remove(struct waiters *waiters, size_t at)
{
    struct wait *last = waiters->heap[--waiters->heap_count];
    if (at == waiters->heap_count)
        return;
    heap_down(waiters, at, last);
    heap_up(waiters, last->heap_at, last);
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
    heap_remove(waiters, wait->heap_at);
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
    return waiters->heap_count == 0 ? NULL : waiters->heap[0];
}

struct wait *waiters_get(struct waiters *waiters, size_t index)
{
    assert(index < waiters->heap_count);
    return waiters->heap[index];
}

void waiters_postpone(struct waiters *waiters, struct wait *wait, int64_t deadline_ms)
{
    wait->deadline_ms = deadline_ms;
    heap_down(waiters, wait->heap_at, wait);
    heap_up(waiters, wait->heap_at, wait);
}

bool waiters_any(const struct waiters *waiters)
{
    return waiters->topics != NULL;
}

size_t waiters_count(const struct waiters *waiters)
{
    return waiters->heap_count;
}
