/* SPDX-License-Identifier: MIT */
#include "heap.h"

#include <stdbool.h>
#include <stdlib.h>

#include "mem.h"
#include "unit.h"

enum { NODES = 64 };

struct thing {
    struct heap_node node;
    bool in;
    int64_t turn; /* when it was added or moved last */
};

/* The thing that must come first, by looking at all of them. */
static struct thing *lowest(struct thing *things)
{
    struct thing *best = NULL;
    for (size_t i = 0; i < NODES; i++) {
        struct thing *thing = &things[i];
        if (thing->in && (best == NULL || thing->node.key < best->node.key ||
                          (thing->node.key == best->node.key && thing->turn < best->turn)))
            best = thing;
    }
    return best;
}

/* Adds, removes and moves at random, with many equal keys (_i seeds). */
START_TEST(agrees_with_a_naive_list)
{
    struct heap heap = {0};
    struct thing things[NODES] = {0};
    size_t count = 0;
    srandom((unsigned)_i + 1);
    for (int64_t turn = 1; turn <= 20000; turn++) {
        struct thing *thing = &things[random() % NODES];
        int64_t key = random() % 20 - 10;
        if (thing->in && random() % 2 == 0) {
            heap_remove(&heap, &thing->node);
            thing->in = false;
            count--;
        } else if (thing->in) {
            heap_move(&heap, &thing->node, key);
            thing->turn = turn;
        } else {
            heap_add(&heap, &thing->node, key);
            *thing = (struct thing){.node = thing->node, .in = true, .turn = turn};
            count++;
        }
        struct thing *first = lowest(things);
        ck_assert_ptr_eq(heap_first(&heap), first == NULL ? NULL : &first->node);
        ck_assert_uint_eq(heap.count, count);
    }
    heap_fini(&heap);
}
END_TEST

Suite *heap_suite(void)
{
    Suite *suite = suite_create("heap");
    TCase *tcase = tcase_create("heap");
    tcase_add_loop_test(tcase, agrees_with_a_naive_list, 0, 5);
    suite_add_tcase(suite, tcase);
    return suite;
}
