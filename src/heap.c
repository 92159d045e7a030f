/* SPDX-License-Identifier: MIT */
#include "heap.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>

#include "mem.h"

void heap_fini(struct heap *heap)
{
    free(heap->nodes);
    *heap = (struct heap){0};
}

static bool comes_before(const struct heap_node *a, const struct heap_node *b)
{
    return a->key != b->key ? a->key < b->key : a->order < b->order;
}

static void put(struct heap *heap, size_t at, struct heap_node *node)
{
    heap->nodes[at] = node;
    node->at = at;
}

static void rise(struct heap *heap, size_t at, struct heap_node *node)
{
    while (at > 0 && comes_before(node, heap->nodes[(at - 1) / 2])) {
        put(heap, at, heap->nodes[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    put(heap, at, node);
}

static void sink(struct heap *heap, size_t at, struct heap_node *node)
{
    for (size_t child; (child = 2 * at + 1) < heap->count; at = child) {
        if (child + 1 < heap->count && comes_before(heap->nodes[child + 1], heap->nodes[child]))
            child++;
        if (comes_before(node, heap->nodes[child]))
            break;
        put(heap, at, heap->nodes[child]);
    }
    put(heap, at, node);
}

void heap_add(struct heap *heap, struct heap_node *node, int64_t key)
{
    if (heap->count == heap->room) {
        heap->room = heap->room == 0 ? 16 : heap->room * 2;
        heap->nodes = mem_resize(heap->nodes, heap->room, sizeof(heap->nodes[0]));
    }
    node->key = key;
    node->order = ++heap->last_order;
    rise(heap, heap->count++, node);
}

void heap_remove(struct heap *heap, struct heap_node *node)
{
    assert(node->at < heap->count && heap->nodes[node->at] == node);
    size_t at = node->at;
    struct heap_node *last = heap->nodes[--heap->count];
    if (last == node)
        return;
    sink(heap, at, last);
    rise(heap, last->at, last);
}

void heap_move(struct heap *heap, struct heap_node *node, int64_t key)
{
    node->key = key;
    node->order = ++heap->last_order;
    sink(heap, node->at, node);
    rise(heap, node->at, node);
}

struct heap_node *heap_first(const struct heap *heap)
{
    return heap->count == 0 ? NULL : heap->nodes[0];
}
