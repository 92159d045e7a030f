/* SPDX-License-Identifier: MIT */
/*
 * heap: what comes first? A binary heap of nodes that live inside the objects that they order.
 *
 * Zero-initialise a heap; heap_fini frees its memory, not the objects. A node is in at most one
 * heap.
 */
#ifndef FOLDD_HEAP_H
#define FOLDD_HEAP_H

#include <stddef.h>
#include <stdint.h>

struct heap_node {
    int64_t key;    /* the lowest comes first; of equals the one that was added or moved first */
    uint64_t order; /* the heap's own, as at */
    size_t at;
};

struct heap {
    struct heap_node **nodes;
    size_t count;
    size_t room;
    uint64_t last_order;
};

void heap_fini(struct heap *heap);

/* O(log n) each. */
void heap_add(struct heap *heap, struct heap_node *node, int64_t key);
void heap_remove(struct heap *heap, struct heap_node *node);
void heap_move(struct heap *heap, struct heap_node *node, int64_t key);

/* Borrowed: the node with the lowest key, or NULL. */
struct heap_node *heap_first(const struct heap *heap);

#endif
