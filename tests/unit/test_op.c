/* SPDX-License-Identifier: MIT */
#include "op.h"

#include <string.h>

#include "clock.h"
#include "unit.h"

static struct span text(const char *literal)
{
    return (struct span){literal, strlen(literal)};
}

static void expect_span(struct span span, const char *bytes, size_t len)
{
    ck_assert_uint_eq(span.len, len);
    ck_assert_mem_eq(span.data, bytes, len);
}

static void expect_text(struct span span, const char *literal)
{
    expect_span(span, literal, strlen(literal));
    ck_assert_int_eq(span.data[span.len], '\0');
}

static bool inside(const struct op *op, struct span span)
{
    return span.data >= op->bytes && span.data + span.len < (const char *)op + op->size;
}

START_TEST(an_op_owns_copies_of_its_parts)
{
    char source[] = "noten1c-1update{\"a\":1}{\"who\":2}";
    struct op_parts parts = {
        .collection = {source, 4},
        .document = {source + 4, 2},
        .id = {source + 6, 3},
        .action = {source + 9, 6},
        .fields = {source + 15, 7},
        .meta = {source + 22, 9},
        .ack = OP_ACK_FOLDED,
    };
    struct op *op = op_new(&parts);
    memset(source, '#', sizeof(source));
    expect_text(op->collection, "note");
    expect_text(op->document, "n1");
    expect_text(op->id, "c-1");
    expect_text(op->action, "update");
    expect_text(op->fields, "{\"a\":1}");
    expect_text(op->meta, "{\"who\":2}");
    ck_assert_int_eq(op->ack, OP_ACK_FOLDED);
    ck_assert(inside(op, op->collection) && inside(op, op->meta));
    ck_assert_ptr_null(op->slot);
    ck_assert_int_eq(op->sent_seq, 0);
    ck_assert_str_eq(op->actor, "");
    op_free(op);
    op_free(NULL);
}
END_TEST

START_TEST(absent_parts_stay_absent)
{
    struct op_parts parts = {
        .collection = text("c"), .document = text("d"), .id = text("i"), .action = text("delete")};
    struct op *op = op_new(&parts);
    ck_assert_ptr_null(op->fields.data);
    ck_assert_ptr_null(op->meta.data);
    ck_assert_uint_eq(op->fields.len, 0);
    ck_assert_int_eq(op->ack, OP_ACK_STORED);
    op_free(op);
}
END_TEST

START_TEST(the_size_covers_every_byte)
{
    struct op_parts parts = {
        .collection = text("c"), .document = text("d"), .id = text("i"), .action = text("create")};
    struct op *bare = op_new(&parts);
    parts.fields = text("{\"a\":\"0123456789\"}");
    struct op *full = op_new(&parts);
    ck_assert_uint_ge(bare->size, sizeof(*bare) + 9);
    ck_assert_uint_eq(full->size, bare->size + parts.fields.len);
    op_free(bare);
    op_free(full);
}
END_TEST

START_TEST(keys_are_parts_behind_one_another)
{
    struct op_parts parts = {.collection = text("col"),
                             .document = text("doc"),
                             .id = text("id-1"),
                             .action = text("delete")};
    struct op *op = op_new(&parts);
    expect_span(op_key(op), "col\0doc", 7);
    expect_span(op_id_key(op), "col\0doc\0id-1", 12);
    op_free(op);
}
END_TEST

START_TEST(keys_cannot_be_confused)
{
    static const char *const pairs[][2] = {{"ab", "c"}, {"a", "bc"}, {"abc", "d"}, {"ab", "cd"}};
    char keys[4][OP_KEY_MAX];
    size_t lens[4];
    for (size_t i = 0; i < 4; i++) {
        lens[i] = op_make_key(text(pairs[i][0]), text(pairs[i][1]), keys[i]);
        for (size_t j = 0; j < i; j++)
            ck_assert(lens[i] != lens[j] || memcmp(keys[i], keys[j], lens[i]) != 0);
    }
}
END_TEST

START_TEST(a_key_comes_apart_again)
{
    static char longest[OP_DOCUMENT_MAX];
    memset(longest, 'x', sizeof(longest));
    static const size_t lens[][2] = {
        {1, 1}, {7, 2}, {1, OP_DOCUMENT_MAX}, {OP_COLLECTION_MAX, OP_DOCUMENT_MAX}};
    for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
        struct op_parts parts = {.collection = {longest, lens[i][0]},
                                 .document = {longest, lens[i][1]},
                                 .id = text("i"),
                                 .action = text("a")};
        struct op *op = op_new(&parts);
        char key[OP_KEY_MAX];
        struct span whole = {key, op_make_key(parts.collection, parts.document, key)};
        expect_span(op_key(op), whole.data, whole.len);
        struct span collection;
        struct span document;
        op_split_key(whole, &collection, &document);
        expect_span(collection, longest, lens[i][0]);
        expect_span(document, longest, lens[i][1]);
        ck_assert_ptr_eq(collection.data, key);
        op_free(op);
    }
}
END_TEST

static struct op *op_without_id(void)
{
    struct op_parts parts = {
        .collection = text("c"), .document = text("d"), .action = text("delete")};
    return op_new(&parts);
}

START_TEST(a_made_id_is_a_uuid_of_version_7)
{
    /* The time of the example in RFC 9562, appendix A.6. */
    clock_set_for_test(-1, INT64_C(0x017f22e279b0) * 1000 + 999);
    bool variants[256] = {false};
    for (int i = 0; i < 500; i++) {
        struct op *op = op_without_id();
        ck_assert_uint_eq(op->id.len, 36);
        ck_assert_mem_eq(op->id.data, "017f22e2-79b0-7", 15);
        if (strspn(op->id.data, "0123456789abcdef-") != 36 || op->id.data[18] != '-' ||
            op->id.data[23] != '-' || strchr("89ab", op->id.data[19]) == NULL)
            ck_abort_msg("%s", op->id.data);
        variants[(unsigned char)op->id.data[19]] = true;
        op_free(op);
    }
    ck_assert(variants['8'] && variants['9'] && variants['a'] && variants['b']);
    clock_set_for_test(-1, -1);
}
END_TEST

START_TEST(made_ids_differ_and_ascend_in_time)
{
    char last[37] = "";
    for (int64_t ms = 1; ms < INT64_C(1) << 47; ms *= 2) {
        clock_set_for_test(-1, ms * 1000);
        struct op *op = op_without_id();
        struct op *twin = op_without_id();
        ck_assert_str_gt(op->id.data, last);
        ck_assert_str_ne(op->id.data, twin->id.data);
        memcpy(last, op->id.data, sizeof(last));
        op_free(op);
        op_free(twin);
    }
    clock_set_for_test(-1, -1);
}
END_TEST

Suite *op_suite(void)
{
    Suite *suite = suite_create("op");
    TCase *tcase = tcase_create("op");
    tcase_add_test(tcase, an_op_owns_copies_of_its_parts);
    tcase_add_test(tcase, absent_parts_stay_absent);
    tcase_add_test(tcase, the_size_covers_every_byte);
    tcase_add_test(tcase, keys_are_parts_behind_one_another);
    tcase_add_test(tcase, keys_cannot_be_confused);
    tcase_add_test(tcase, a_key_comes_apart_again);
    tcase_add_test(tcase, a_made_id_is_a_uuid_of_version_7);
    tcase_add_test(tcase, made_ids_differ_and_ascend_in_time);
    suite_add_tcase(suite, tcase);
    return suite;
}
