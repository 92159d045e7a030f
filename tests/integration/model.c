/* SPDX-License-Identifier: MIT */
#include "model.h"

#include <stdlib.h>
#include <string.h>

struct model {
    json_t *documents; /* "collection\ndocument" -> the object of model_document */
    json_t *ignored;   /* array of seq */
};

struct model *model_new(void)
{
    struct model *model = mem_zalloc(sizeof *model);
    model->documents = json_object();
    model->ignored = json_array();
    return model;
}

void model_free(struct model *model)
{
    if (model == NULL)
        return;
    json_decref(model->documents);
    json_decref(model->ignored);
    free(model);
}

/* Given: RFC 7396, section 2, word for word. */
static json_t *merge_patch(const json_t *target, const json_t *patch)
{
    if (!json_is_object(patch))
        return json_deep_copy(patch);
    json_t *result = json_is_object(target) ? json_deep_copy(target) : json_object();
    const char *name;
    json_t *value;
    json_t *members = json_deep_copy(patch);
    json_object_foreach(members, name, value)
    {
        if (json_is_null(value))
            json_object_del(result, name);
        else
            json_object_set_new(result, name, merge_patch(json_object_get(result, name), value));
    }
    json_decref(members);
    return result;
}

static char *document_key(const char *collection, const char *document)
{
    return mem_printf("%s\n%s", collection, document);
}

const json_t *model_document(const struct model *model, const char *collection,
                             const char *document)
{
    char *key = document_key(collection, document);
    const json_t *found = json_object_get(model->documents, key);
    free(key);
    return found;
}

static json_t *find_or_add(struct model *model, const struct model_op *op)
{
    char *key = document_key(op->collection, op->document);
    json_t *document = json_object_get(model->documents, key);
    if (document == NULL) {
        document =
            json_pack("{s:i, s:i, s:b, s:{}}", "version", 0, "revision", 0, "deleted", 0, "fields");
        json_object_set_new(model->documents, key, document);
    }
    free(key);
    return document;
}

const char *model_fold(struct model *model, const struct model_op *op)
{
    json_t *document = find_or_add(model, op);
    json_object_set_new(document, "version", json_integer(op->seq));
    bool deleted = json_is_true(json_object_get(document, "deleted"));
    bool is_create = strcmp(op->action, "create") == 0;
    bool is_delete = strcmp(op->action, "delete") == 0;
    if (deleted && !is_create && !is_delete) {
        json_array_append_new(model->ignored, json_integer(op->seq));
        return "ignored";
    }
    json_t *fields = is_delete   ? json_object()
                     : is_create ? json_deep_copy(op->fields)
                                 : merge_patch(json_object_get(document, "fields"), op->fields);
    json_object_set_new(document, "fields", fields);
    json_object_set_new(document, "deleted", json_boolean(is_delete));
    json_int_t revision = json_integer_value(json_object_get(document, "revision"));
    json_object_set_new(document, "revision", json_integer(revision + 1));
    if (revision == 0)
        json_object_set_new(document, "created_at", json_string(op->received_at));
    json_object_set_new(document, "updated_at", json_string(op->received_at));
    return "folded";
}

static int64_t value_int(const PGresult *rows, int row, int column)
{
    return strtoll(PQgetvalue(rows, row, column), NULL, 10);
}

static json_t *value_json(const PGresult *rows, int row, int column)
{
    json_t *value = json_loads(PQgetvalue(rows, row, column), JSON_DECODE_ANY, NULL);
    ck_assert_msg(value != NULL, "not JSON: %s", PQgetvalue(rows, row, column));
    return value;
}

static void fold_log(struct env *env, struct model *model)
{
    PGresult *rows = sql_rows(env, "select seq, collection, document, action, fields, received_at"
                                   " from foldd.operations order by seq");
    for (int i = 0; i < PQntuples(rows); i++) {
        json_t *fields = PQgetisnull(rows, i, 4) ? NULL : value_json(rows, i, 4);
        struct model_op op = {value_int(rows, i, 0),
                              PQgetvalue(rows, i, 1),
                              PQgetvalue(rows, i, 2),
                              PQgetvalue(rows, i, 3),
                              fields,
                              PQgetvalue(rows, i, 5)};
        model_fold(model, &op);
        json_decref(fields);
    }
    PQclear(rows);
}

/* The row as the object of model_document. */
static json_t *row_object(const PGresult *rows, int row)
{
    return json_pack(
        "{s:I, s:I, s:b, s:o, s:s, s:s}", "version", (json_int_t)value_int(rows, row, 2),
        "revision", (json_int_t)value_int(rows, row, 3), "deleted",
        PQgetvalue(rows, row, 4)[0] == 't', "fields", value_json(rows, row, 5), "created_at",
        PQgetvalue(rows, row, 6), "updated_at", PQgetvalue(rows, row, 7));
}

static void compare_documents(struct env *env, const struct model *model)
{
    PGresult *rows = sql_rows(env, "select collection, id, version, revision, deleted, fields,"
                                   " created_at, updated_at from foldd.documents");
    for (int i = 0; i < PQntuples(rows); i++) {
        json_t *actual = row_object(rows, i);
        const json_t *expected =
            model_document(model, PQgetvalue(rows, i, 0), PQgetvalue(rows, i, 1));
        if (expected == NULL || !json_equal(expected, actual)) {
            char *want = json_dumps(expected, JSON_SORT_KEYS);
            char *have = json_dumps(actual, JSON_SORT_KEYS);
            ck_abort_msg("document %s of %s is\n%s\nand must be\n%s", PQgetvalue(rows, i, 1),
                         PQgetvalue(rows, i, 0), have, want == NULL ? "absent" : want);
        }
        json_decref(actual);
    }
    ck_assert_msg((size_t)PQntuples(rows) == json_object_size(model->documents),
                  "%d documents instead of %zu", PQntuples(rows),
                  json_object_size(model->documents));
    PQclear(rows);
}

static void compare_outcomes(struct env *env, const struct model *model)
{
    PGresult *rows = sql_rows(env, "select seq from foldd.outcomes where outcome = 'ignored'"
                                   " and reason <> '' order by seq");
    json_t *actual = json_array();
    for (int i = 0; i < PQntuples(rows); i++)
        json_array_append_new(actual, json_integer(value_int(rows, i, 0)));
    PQclear(rows);
    ck_assert_msg(json_equal(actual, model->ignored), "ignored: %s\nand must be %s",
                  json_dumps(actual, 0), json_dumps(model->ignored, 0));
    json_decref(actual);
}

void expect_model(struct env *env)
{
    struct model *model = model_new();
    fold_log(env, model);
    compare_documents(env, model);
    compare_outcomes(env, model);
    model_free(model);
}
