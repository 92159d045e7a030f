/* SPDX-License-Identifier: MIT */
#include "batch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "unit.h"

static const struct batch_limits no_limits = {SIZE_MAX, SIZE_MAX};

/* An operation named "document id", or "document id collection". */
static struct op *make(const char *name)
{
    char document[32] = "";
    char id[32] = "";
    char collection[32] = "c";
    sscanf(name, "%31s %31s %31s", document, id, collection);
    struct op_parts parts = {
        .collection = {collection, strlen(collection)},
        .document = {document, strlen(document)},
        .id = {id, strlen(id)},
        .action = {"delete", 6},
    };
    return op_new(&parts);
}

static void add(struct batch *batch, const char *name)
{
    ck_assert_msg(batch_add(batch, make(name), &no_limits), "%s", name);
}

static void refuse(struct batch *batch, const char *name, const struct batch_limits *limits)
{
    size_t count = batch->count;
    size_t bytes = batch->bytes;
    struct op *op = make(name);
    ck_assert_msg(!batch_add(batch, op, limits), "%s", name);
    ck_assert_uint_eq(batch->count, count);
    ck_assert_uint_eq(batch->bytes, bytes);
    op_free(op);
}

/* The ids in order, and the sums that the batch keeps. */
static void expect(const struct batch *batch, const char *ids)
{
    struct buf text = {0};
    size_t count = 0;
    size_t bytes = 0;
    const struct op *op;
    TAILQ_FOREACH(op, &batch->ops, link) {
        buf_printf(&text, "%s%s", count > 0 ? " " : "", op->id.data);
        count++;
        bytes += op->size;
    }
    ck_assert_str_eq(buf_cstr(&text), ids);
    ck_assert_uint_eq(batch->count, count);
    ck_assert_uint_eq(batch->bytes, bytes);
    ck_assert_uint_eq(HASH_COUNT(batch->ids), count);
    buf_fini(&text);
}

START_TEST(operations_keep_their_order)
{
    struct batch *batch = batch_new();
    expect(batch, "");
    ck_assert_int_eq(batch->number, 0);
    ck_assert_int_eq(batch->base, 0);
    add(batch, "d2 z");
    add(batch, "d1 y");
    add(batch, "d2 a");
    expect(batch, "z y a");
    batch_free(batch);
    batch_free(NULL);
}
END_TEST

START_TEST(a_batch_is_full_at_its_cap_of_operations)
{
    const struct batch_limits limits = {2, SIZE_MAX};
    struct batch *batch = batch_new();
    ck_assert(batch_add(batch, make("d 1"), &limits));
    ck_assert(batch_add(batch, make("d 2"), &limits));
    refuse(batch, "d 3", &limits);
    expect(batch, "1 2");
    struct op *op = TAILQ_FIRST(&batch->ops);
    batch_remove(batch, op);
    op_free(op);
    ck_assert(batch_add(batch, make("d 3"), &limits));
    expect(batch, "2 3");
    batch_free(batch);
}
END_TEST

START_TEST(a_batch_is_full_at_its_cap_of_bytes)
{
    struct op *first = make("d 1");
    const struct batch_limits exact = {SIZE_MAX, 2 * first->size};
    const struct batch_limits less = {SIZE_MAX, 2 * first->size - 1};
    struct batch *batch = batch_new();
    ck_assert(batch_add(batch, first, &less));
    refuse(batch, "d 2", &less);
    ck_assert(batch_add(batch, make("d 2"), &exact));
    refuse(batch, "d 3", &exact);
    expect(batch, "1 2");
    batch_free(batch);
}
END_TEST

START_TEST(a_large_operation_makes_a_batch_of_its_own)
{
    const struct batch_limits tiny = {SIZE_MAX, 1};
    struct batch *batch = batch_new();
    ck_assert(batch_add(batch, make("d 1"), &tiny));
    refuse(batch, "d 2", &tiny);
    expect(batch, "1");
    batch_free(batch);
}
END_TEST

/* R8: its answer depends on the first one's. */
START_TEST(the_same_operation_again_waits_for_the_next_batch)
{
    struct batch *batch = batch_new();
    add(batch, "d 1");
    refuse(batch, "d 1", &no_limits);
    add(batch, "d 2");
    add(batch, "e 1");
    add(batch, "d 1 other");
    refuse(batch, "d 1", &no_limits);
    refuse(batch, "d 1 other", &no_limits);
    expect(batch, "1 2 1 1");
    batch_free(batch);
}
END_TEST

START_TEST(what_was_removed_may_come_again)
{
    struct batch *batch = batch_new();
    add(batch, "d 1");
    add(batch, "d 2");
    add(batch, "d 3");
    struct op *op = TAILQ_NEXT(TAILQ_FIRST(&batch->ops), link);
    batch_remove(batch, op);
    expect(batch, "1 3");
    ck_assert_str_eq(op->id.data, "2");
    ck_assert(batch_add(batch, op, &no_limits));
    expect(batch, "1 3 2");
    refuse(batch, "d 2", &no_limits);
    batch_free(batch);
}
END_TEST

START_TEST(a_split_keeps_the_order)
{
    struct batch *batch = batch_new();
    static const char *const names[] = {"d 1", "d 2", "e 3", "d 4", "e 5"};
    for (size_t i = 0; i < 5; i++)
        add(batch, names[i]);
    batch->number = 9;
    batch->base = 100;
    struct batch *second = batch_split(batch);
    expect(batch, "1 2");
    expect(second, "3 4 5");
    ck_assert_int_eq(second->number, 0);
    ck_assert_int_eq(second->base, 0);
    struct batch *third = batch_split(second);
    expect(second, "3");
    expect(third, "4 5");
    /* Each half knows its own ids, and only those. */
    refuse(second, "e 3", &no_limits);
    refuse(third, "d 4", &no_limits);
    add(batch, "e 3");
    expect(batch, "1 2 3");
    batch_free(batch);
    batch_free(second);
    batch_free(third);
}
END_TEST

START_TEST(splitting_ends_at_single_operations)
{
    for (size_t count = 2; count <= 33; count++) {
        struct batch_list list = TAILQ_HEAD_INITIALIZER(list);
        struct batch *batch = batch_new();
        TAILQ_INSERT_TAIL(&list, batch, link);
        for (size_t i = 0; i < count; i++) {
            char name[32];
            snprintf(name, sizeof(name), "d %zu", i);
            add(batch, name);
        }
        for (batch = TAILQ_FIRST(&list); batch != NULL;) {
            struct batch *second = batch->count > 1 ? batch_split(batch) : NULL;
            if (second != NULL)
                TAILQ_INSERT_AFTER(&list, batch, second, link);
            else
                batch = TAILQ_NEXT(batch, link);
        }
        size_t at = 0;
        while ((batch = TAILQ_FIRST(&list)) != NULL) {
            ck_assert_uint_eq(batch->count, 1);
            ck_assert_uint_eq(strtoul(TAILQ_FIRST(&batch->ops)->id.data, NULL, 10), at++);
            TAILQ_REMOVE(&list, batch, link);
            batch_free(batch);
        }
        ck_assert_uint_eq(at, count);
    }
}
END_TEST

Suite *batch_suite(void)
{
    Suite *suite = suite_create("batch");
    TCase *tcase = tcase_create("batch");
    tcase_add_test(tcase, operations_keep_their_order);
    tcase_add_test(tcase, a_batch_is_full_at_its_cap_of_operations);
    tcase_add_test(tcase, a_batch_is_full_at_its_cap_of_bytes);
    tcase_add_test(tcase, a_large_operation_makes_a_batch_of_its_own);
    tcase_add_test(tcase, the_same_operation_again_waits_for_the_next_batch);
    tcase_add_test(tcase, what_was_removed_may_come_again);
    tcase_add_test(tcase, a_split_keeps_the_order);
    tcase_add_test(tcase, splitting_ends_at_single_operations);
    suite_add_tcase(suite, tcase);
    return suite;
}
