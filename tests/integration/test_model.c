/* SPDX-License-Identifier: MIT */
/* The model that the other tests trust, against RFC 7396's own cases and design.md 7. */
#include "suites.h"

#include "model.h"

#include <stdlib.h>
#include <string.h>

/* Fold "create" of original and "update" by patch; the fields must be result. */
static void check_merge(const json_t *test)
{
    struct model *model = model_new();
    struct model_op op = {1, "c", "d", "create", json_object_get(test, "original"), "t1"};
    model_fold(model, &op);
    op = (struct model_op){2, "c", "d", "update", json_object_get(test, "patch"), "t2"};
    ck_assert_str_eq(model_fold(model, &op), "folded");
    const json_t *document = model_document(model, "c", "d");
    ck_assert_msg(json_equal(json_object_get(document, "fields"), json_object_get(test, "result")),
                  "%s", json_dumps(test, 0));
    model_free(model);
}

START_TEST(model_merges_as_rfc_7396_says)
{
    json_t *tests = json_load_file("tests/data/merge-patch.json", 0, NULL);
    ck_assert_uint_gt(json_array_size(tests), 5);
    for (size_t i = 0; i < json_array_size(tests); i++)
        check_merge(json_array_get(tests, i));
    json_decref(tests);
}
END_TEST

static void check_history(const char *actions, int revision, bool deleted, const char *fields)
{
    struct model *model = model_new();
    json_t *patch = json_pack("{s:i}", "n", 0);
    for (int i = 0; actions[i] != '\0'; i++) {
        const char *action = actions[i] == 'c' ? "create" : actions[i] == 'u' ? "update" : "delete";
        json_object_set_new(patch, "n", json_integer(i));
        struct model_op op = {i + 1, "c", "d", action, patch, "t"};
        model_fold(model, &op);
    }
    const json_t *document = model_document(model, "c", "d");
    json_t *expected = json_loads(fields, 0, NULL);
    ck_assert_int_eq(json_integer_value(json_object_get(document, "version")),
                     (int)strlen(actions));
    ck_assert_int_eq(json_integer_value(json_object_get(document, "revision")), revision);
    ck_assert(json_is_true(json_object_get(document, "deleted")) == deleted);
    ck_assert(json_equal(json_object_get(document, "fields"), expected));
    json_decref(expected);
    json_decref(patch);
    model_free(model);
}

START_TEST(model_folds_as_design_7_says)
{
    check_history("c", 1, false, "{\"n\":0}");
    check_history("u", 1, false, "{\"n\":0}");
    check_history("d", 1, true, "{}");
    check_history("cdu", 2, true, "{}");
    check_history("cduc", 3, false, "{\"n\":3}");
    check_history("du", 1, true, "{}");
}
END_TEST

Suite *model_suite(void)
{
    Suite *suite = suite_create("model");
    TCase *tcase = tcase_create("model");
    tcase_add_test(tcase, model_merges_as_rfc_7396_says);
    tcase_add_test(tcase, model_folds_as_design_7_says);
    suite_add_tcase(suite, tcase);
    return suite;
}
