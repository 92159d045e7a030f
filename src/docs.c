/* SPDX-License-Identifier: MIT */
#include "docs.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "mem.h"

struct docs {
    struct docs_limits limits;
    struct doc *table;
    struct doc_list queue;
    struct heap aside;
    struct heap parked;
    struct docs_counts counts;
};

struct docs *docs_new(const struct docs_limits *limits)
{
    struct docs *docs = mem_zalloc(sizeof(*docs));
    docs->limits = *limits;
    TAILQ_INIT(&docs->queue);
    return docs;
}

static void doc_free(struct docs *docs, struct doc *doc)
{
    HASH_DELETE(hh, docs->table, doc); /* NOLINT: the analyzer loses uthash's links */
    if (doc->seqs != doc->own_seqs)
        free(doc->seqs);
    free(doc);
}

void docs_free(struct docs *docs)
{
    if (docs == NULL)
        return;
    while (docs->table != NULL)
        doc_free(docs, docs->table);
    heap_fini(&docs->aside);
    heap_fini(&docs->parked);
    free(docs);
}

static struct doc *find(struct docs *docs, struct span key, unsigned hash)
{
    struct doc *doc;
    HASH_FIND_BYHASHVALUE(hh, docs->table, key.data, key.len, hash, doc);
    return doc;
}

struct doc *docs_find(struct docs *docs, struct span key)
{
    unsigned hash;
    HASH_VALUE(key.data, key.len, hash);
    return find(docs, key, hash);
}

static struct doc *make(struct docs *docs, struct span key, unsigned hash)
{
    struct doc *doc = mem_alloc(sizeof(*doc) + key.len);
    *doc = (struct doc){.key_len = key.len, .room = DOC_INLINE_SEQS};
    doc->seqs = doc->own_seqs;
    memcpy(doc->key, key.data, key.len);
    HASH_ADD_KEYPTR_BYHASHVALUE(hh, docs->table, doc->key, doc->key_len, hash, doc);
    return doc;
}

static void push_seq(struct doc *doc, int64_t seq)
{
    if (doc->first + doc->count == doc->room) {
        /* Move to the front when that frees half: each number moves O(1) times. */
        if (doc->first >= doc->room / 2 && doc->first > 0) {
            memmove(doc->seqs, doc->seqs + doc->first, doc->count * sizeof(int64_t));
            doc->first = 0;
        } else {
            doc->room *= 2;
            if (doc->seqs == doc->own_seqs) {
                doc->seqs = mem_resize(NULL, doc->room, sizeof(int64_t));
                memcpy(doc->seqs, doc->own_seqs, sizeof(doc->own_seqs));
            } else {
                doc->seqs = mem_resize(doc->seqs, doc->room, sizeof(int64_t));
            }
        }
    }
    doc->seqs[doc->first + doc->count++] = seq;
}

static void drop_seqs(struct doc *doc, size_t count)
{
    doc->first += count;
    doc->count -= count;
    if (doc->count > 0)
        return;
    doc->first = 0;
    if (doc->seqs != doc->own_seqs) {
        free(doc->seqs);
        doc->seqs = doc->own_seqs;
        doc->room = DOC_INLINE_SEQS;
    }
}

static bool has_requeue(const struct doc *doc)
{
    return doc->state == DOC_RETRYING ? doc->count > 0 : doc->count > doc->task;
}

/* The one place where a document changes state; it is in no list when it gets here. */
static void enter(struct docs *docs, struct doc *doc, enum doc_state state)
{
    doc->state = state;
    if (state == DOC_QUEUED)
        docs->counts.queued++;
    else if (state == DOC_ASIDE)
        docs->counts.aside++;
    else if (state == DOC_PARKED)
        docs->counts.parked++;
    else
        docs->counts.running++;
}

/* Undoes enter; lists of running documents are the caller's. */
static void leave(struct docs *docs, struct doc *doc)
{
    switch (doc->state) {
    case DOC_QUEUED:
        TAILQ_REMOVE(&docs->queue, doc, link);
        docs->counts.queued--;
        break;
    case DOC_ASIDE:
        heap_remove(&docs->aside, &doc->due);
        docs->counts.aside--;
        break;
    case DOC_PARKED:
        heap_remove(&docs->parked, &doc->due);
        docs->counts.parked--;
        break;
    case DOC_RUNNING:
    case DOC_RETRYING:
        docs->counts.running--;
        if (has_requeue(doc))
            docs->counts.requeue--;
        break;
    }
}

static void to_queue(struct docs *docs, struct doc *doc)
{
    enter(docs, doc, DOC_QUEUED);
    TAILQ_INSERT_TAIL(&docs->queue, doc, link);
}

static struct doc *first_due(const struct heap *heap)
{
    struct heap_node *node = heap_first(heap);
    return node == NULL ? NULL : CONTAINER_OF(node, struct doc, due);
}

bool docs_add(struct docs *docs, struct span key, int64_t seq)
{
    unsigned hash;
    HASH_VALUE(key.data, key.len, hash);
    struct doc *doc = find(docs, key, hash);
    if (doc == NULL) {
        doc = make(docs, key, hash);
        to_queue(docs, doc);
    } else if (doc->state == DOC_PARKED || doc->carried) {
        return false;
    }
    bool running = doc->state == DOC_RUNNING || doc->state == DOC_RETRYING;
    if (running && !has_requeue(doc))
        docs->counts.requeue++;
    push_seq(doc, seq);
    return true;
}

/* A document that is queued for the first time takes everything that waits as its task. */
static void begin_task(struct docs *docs, struct doc *doc, int64_t now_ms)
{
    if (doc->task > 0)
        return;
    doc->taken_ms = now_ms;
    doc->task = doc->count;
    docs->counts.tasks++;
}

static size_t chunk_of(const struct docs *docs, const struct doc *doc)
{
    size_t task = doc->task > 0 ? doc->task : doc->count;
    size_t chunk = task < docs->limits.chunk_ops ? task : docs->limits.chunk_ops;
    if (chunk > docs->limits.max_ops)
        chunk = docs->limits.max_ops;
    return doc->op_cap > 0 && doc->op_cap < chunk ? doc->op_cap : chunk;
}

size_t docs_take(struct docs *docs, struct doc_list *out, int64_t now_ms)
{
    size_t count = 0;
    size_t ops = 0;
    size_t cap = 0;
    struct doc *doc;
    while ((doc = TAILQ_FIRST(&docs->queue)) != NULL) {
        if (count == 0)
            cap = doc->cap;
        size_t chunk = chunk_of(docs, doc);
        if (count > 0 && (doc->cap != cap || ops + chunk > docs->limits.max_ops))
            break;
        leave(docs, doc);
        begin_task(docs, doc, now_ms);
        doc->chunk = chunk;
        enter(docs, doc, DOC_RUNNING);
        if (has_requeue(doc))
            docs->counts.requeue++;
        TAILQ_INSERT_TAIL(out, doc, link);
        count++;
        ops += chunk;
        if (count == docs->limits.max_docs || count == cap)
            break;
    }
    return count;
}

const int64_t *doc_chunk(const struct doc *doc)
{
    return doc->seqs + doc->first;
}

const int64_t *doc_waiting(const struct doc *doc)
{
    return doc->seqs + doc->first;
}

static void clear_failures(struct doc *doc)
{
    doc->failures = 0;
    doc->cap = 0;
    doc->op_cap = 0;
}

void docs_pin(struct docs *docs, struct doc *doc)
{
    doc->pinned = true;
    doc->released = doc->state != DOC_RUNNING || doc->chunk == 0;
    if (doc->state == DOC_ASIDE) {
        leave(docs, doc);
        enter(docs, doc, DOC_RUNNING);
        if (has_requeue(doc))
            docs->counts.requeue++;
    }
}

void docs_carry(struct docs *docs, struct doc *doc, unsigned attempts)
{
    (void)docs;
    doc->attempts = attempts;
    assert(doc->pinned && !doc->released);
    doc->pinned = false;
    doc->carried = true;
}

/* A worker is done with the document. If it is being parked, or is parked in the database already,
 * it does not go back to the queue. */
static bool goes_to_parked(struct docs *docs, struct doc *doc)
{
    if (doc->carried) {
        docs_park(docs, doc, 0, doc->attempts);
        return true;
    }
    doc->released = doc->pinned;
    if (doc->pinned)
        doc->chunk = 0;
    return doc->pinned;
}

/* Given: the nodes as they are now, since what is done with them moves others. */
static struct heap_node **snapshot(const struct heap *heap)
{
    struct heap_node **nodes = mem_alloc(heap->count * sizeof(struct heap_node *));
    for (size_t i = 0; i < heap->count; i++)
        nodes[i] = heap->nodes[i];
    return nodes;
}

void docs_each_aside(struct docs *docs, void (*fn)(void *arg, struct doc *doc), void *arg)
{
    size_t count = docs->aside.count;
    struct heap_node **nodes = snapshot(&docs->aside);
    for (size_t i = 0; i < count; i++)
        fn(arg, CONTAINER_OF(nodes[i], struct doc, due));
    free(nodes);
}

void docs_done(struct docs *docs, struct doc *doc, size_t count)
{
    assert(doc->state == DOC_RUNNING && count <= doc->chunk);
    if (doc->carried || doc->pinned) {
        /* The requeue flag compares count and task, which sink together. */
        drop_seqs(doc, count);
        doc->task -= count;
        goes_to_parked(docs, doc);
        return;
    }
    leave(docs, doc);
    drop_seqs(doc, count);
    doc->task -= count;
    bool whole = count == doc->chunk;
    doc->chunk = 0;
    doc->failures = 0;
    doc->cap = 0;
    if (doc->task == 0)
        clear_failures(doc);
    if (doc->count == 0) {
        doc_free(docs, doc);
        return;
    }
    enter(docs, doc, DOC_QUEUED);
    if (whole)
        TAILQ_INSERT_TAIL(&docs->queue, doc, link);
    else
        TAILQ_INSERT_HEAD(&docs->queue, doc, link);
}

void docs_requeue(struct docs *docs, struct doc *doc)
{
    if (goes_to_parked(docs, doc))
        return;
    leave(docs, doc);
    doc->chunk = 0;
    enter(docs, doc, DOC_QUEUED);
    TAILQ_INSERT_HEAD(&docs->queue, doc, link);
}

void docs_split(struct docs *docs, struct doc *doc, size_t batch_docs)
{
    if (batch_docs > 1)
        doc->cap = (batch_docs + 1) / 2;
    else
        doc->op_cap = (doc->chunk + 1) / 2;
    docs_requeue(docs, doc);
}

void docs_split_whole(struct docs *docs, struct doc *doc, size_t batch_docs)
{
    if (batch_docs > 1)
        doc->cap = 1;
    else
        doc->op_cap = 1;
    docs_requeue(docs, doc);
}

void docs_set_aside(struct docs *docs, struct doc *doc, int64_t due_ms)
{
    if (goes_to_parked(docs, doc))
        return;
    leave(docs, doc);
    doc->chunk = 0;
    doc->due_ms = due_ms;
    enter(docs, doc, DOC_ASIDE);
    heap_add(&docs->aside, &doc->due, doc->due_ms);
}

void docs_park(struct docs *docs, struct doc *doc, int64_t due_ms, unsigned attempts)
{
    leave(docs, doc);
    drop_seqs(doc, doc->count);
    doc->task = 0;
    doc->chunk = 0;
    doc->pinned = false;
    doc->released = false;
    doc->carried = false;
    clear_failures(doc);
    doc->due_ms = due_ms;
    doc->attempts = attempts;
    enter(docs, doc, DOC_PARKED);
    heap_add(&docs->parked, &doc->due, doc->due_ms);
}

void docs_hurry(struct docs *docs, struct doc *doc)
{
    if (doc->state != DOC_PARKED)
        return;
    doc->due_ms = 0;
    heap_move(&docs->parked, &doc->due, 0);
}

void docs_hurry_all(struct docs *docs)
{
    size_t count = docs->parked.count;
    struct heap_node **nodes = snapshot(&docs->parked);
    for (size_t i = 0; i < count; i++)
        docs_hurry(docs, CONTAINER_OF(nodes[i], struct doc, due));
    free(nodes);
}

struct doc *docs_add_parked(struct docs *docs, struct span key, int64_t due_ms, unsigned attempts)
{
    unsigned hash;
    HASH_VALUE(key.data, key.len, hash);
    struct doc *doc = make(docs, key, hash);
    doc->due_ms = due_ms;
    doc->attempts = attempts;
    enter(docs, doc, DOC_PARKED);
    heap_add(&docs->parked, &doc->due, doc->due_ms);
    return doc;
}

void docs_retry(struct docs *docs, struct doc *doc, int64_t upto)
{
    assert(doc->state == DOC_PARKED);
    leave(docs, doc);
    doc->upto = upto;
    enter(docs, doc, DOC_RETRYING);
}

void docs_unpark(struct docs *docs, struct doc *doc)
{
    assert(doc->state == DOC_RETRYING);
    leave(docs, doc);
    clear_failures(doc);
    if (doc->count == 0)
        doc_free(docs, doc);
    else
        to_queue(docs, doc);
}

size_t docs_wake(struct docs *docs, int64_t now_ms)
{
    size_t count = 0;
    struct doc *doc;
    while ((doc = first_due(&docs->aside)) != NULL && doc->due_ms <= now_ms) {
        leave(docs, doc);
        to_queue(docs, doc);
        count++;
    }
    return count;
}

struct doc *docs_next_parked(struct docs *docs)
{
    return first_due(&docs->parked);
}

int64_t docs_next_aside_due(const struct docs *docs)
{
    const struct doc *aside = first_due(&docs->aside);
    return aside == NULL ? -1 : aside->due_ms;
}

int64_t docs_next_due(const struct docs *docs)
{
    const struct doc *parked = first_due(&docs->parked);
    int64_t aside_ms = docs_next_aside_due(docs);
    if (parked == NULL)
        return aside_ms;
    return aside_ms < 0 || parked->due_ms < aside_ms ? parked->due_ms : aside_ms;
}

struct docs_counts docs_counts(const struct docs *docs)
{
    return docs->counts;
}
