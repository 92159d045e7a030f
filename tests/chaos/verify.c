/* SPDX-License-Identifier: MIT */
/*
 * What must be true when the load is over: the log is what was acknowledged, and the documents are
 * what the independent model makes of the log.
 */
#include <stdlib.h>
#include <string.h>

#include "chaos.h"
#include "integration/model.h"

enum { QUIET_MS = 60000, PAGE = 20000 };

enum fate { ABSENT, FOLDED, IGNORED };

struct verify {
    struct chaos *chaos;
    struct model *model;
    char *fates; /* of each operation: what the model made of it */
    int64_t last_seq;
};

static int64_t column_int(const PGresult *rows, int row, int column)
{
    return strtoll(PQgetvalue(rows, row, column), NULL, 10);
}

/* --- quiescence */

static bool is_quiet(struct chaos *chaos, char **state)
{
    PGresult *rows = sql_rows(chaos->env, "select c.seq, foldd.head(), (select count(*) from "
                                          "foldd.parked) from foldd.cursor c");
    int64_t cursor = column_int(rows, 0, 0);
    int64_t head = column_int(rows, 0, 1);
    int64_t parked = column_int(rows, 0, 2);
    PQclear(rows);
    free(*state);
    *state = mem_printf("cursor %lld, head %lld, %lld parked", (long long)cursor, (long long)head,
                        (long long)parked);
    return cursor == head && parked == 0;
}

static void wait_quiet(struct chaos *chaos)
{
    char *state = NULL;
    int64_t end = now_ms() + QUIET_MS;
    struct conn *conn = conn_open(chaos->daemon);
    const json_t *reply = ask(conn, "{'request':'barrier','timeout_ms':25000}");
    if (!json_is_true(json_object_get(reply, "ok")) || json_object_get(reply, "outcome") != NULL)
        chaos_fail(chaos, QUIET, "the barrier said %s", conn->raw);
    while (!is_quiet(chaos, &state) && now_ms() < end)
        pause_ms(20);
    if (!is_quiet(chaos, &state))
        chaos_fail(chaos, QUIET, "%s after %d ms", state, QUIET_MS);
    reply = ask(conn, "{'request':'status'}");
    if (reply_int(reply, "cursor") != reply_int(reply, "head") || reply_int(reply, "parked") != 0)
        chaos_fail(chaos, QUIET, "the status is %s", conn->raw);
    conn_close(conn);
    free(state);
}

/* --- the log */

static json_t *expected_fields(const struct spec *spec)
{
    char text[sizeof spec->fields];
    memcpy(text, spec->fields, sizeof text);
    for (char *c = text; *c != '\0'; c++)
        if (*c == '\'')
            *c = '"';
    return text[0] == '\0' ? NULL : json_loads(text, 0, NULL);
}

/* Columns: seq, document, id, action, fields, received_at, and collection and meta, which are
 * "default" and null. */
static bool is_content(const struct chaos *chaos, const PGresult *rows, int row, size_t i,
                       const json_t *fields)
{
    struct spec spec;
    chaos_spec(chaos, i, &spec);
    json_t *expected = expected_fields(&spec);
    char *document = mem_printf("d%u", spec.document);
    bool same = strcmp(PQgetvalue(rows, row, 1), document) == 0 &&
                strcmp(PQgetvalue(rows, row, 3), spec.action) == 0 &&
                strcmp(PQgetvalue(rows, row, 6), "default") == 0 && PQgetisnull(rows, row, 7) &&
                (expected == NULL ? fields == NULL : json_equal(expected, fields));
    free(document);
    json_decref(expected);
    return same;
}

/* Whether the row is an operation of ours, its number then. */
static bool number_of(const struct chaos *chaos, const char *id, size_t *out)
{
    char *end;
    if (strncmp(id, "c-", 2) != 0)
        return false;
    *out = strtoull(id + 2, &end, 10);
    return *end == '\0' && *out < chaos->record_count;
}

static void check_row(struct verify *verify, const PGresult *rows, int row, size_t i,
                      const json_t *fields)
{
    struct chaos *chaos = verify->chaos;
    const struct record *record = &chaos->records[i];
    int64_t seq = column_int(rows, row, 0);
    bool acknowledged = record->seq != 0;
    if (seq <= verify->last_seq)
        chaos_fail(chaos, STORED, "seq %lld is there twice", (long long)seq);
    verify->last_seq = seq;
    if (verify->fates[i] != ABSENT)
        chaos_fail(chaos, acknowledged ? STORED : AT_MOST_ONCE, "c-%zu is there twice", i);
    if (acknowledged && record->seq != seq)
        chaos_fail(chaos, STORED, "c-%zu is there as %lld and was acknowledged as %lld", i,
                   (long long)seq, (long long)record->seq);
    if (!is_content(chaos, rows, row, i, fields))
        chaos_fail(chaos, acknowledged ? STORED : AT_MOST_ONCE, "c-%zu has other content", i);
    if (!acknowledged && record->sent == record->refused)
        chaos_fail(chaos, AT_MOST_ONCE, "c-%zu is there and was answered as not stored", i);
}

static void take_row(struct verify *verify, const PGresult *rows, int row)
{
    size_t i;
    if (!number_of(verify->chaos, PQgetvalue(rows, row, 2), &i)) {
        chaos_fail(verify->chaos, STORED, "%s was never sent", PQgetvalue(rows, row, 2));
        return;
    }
    json_t *fields =
        PQgetisnull(rows, row, 4) ? NULL : json_loads(PQgetvalue(rows, row, 4), 0, NULL);
    check_row(verify, rows, row, i, fields);
    struct model_op op = {column_int(rows, row, 0),
                          PQgetvalue(rows, row, 6),
                          PQgetvalue(rows, row, 1),
                          PQgetvalue(rows, row, 3),
                          fields,
                          PQgetvalue(rows, row, 5)};
    const char *outcome = model_fold(verify->model, &op);
    verify->fates[i] = strcmp(outcome, "folded") == 0 ? FOLDED : IGNORED;
    json_decref(fields);
}

static void take_log(struct verify *verify)
{
    int64_t after = -1;
    for (int count = PAGE; count == PAGE;) {
        PGresult *rows = sql_rows(verify->chaos->env,
                                  "select seq, document, id, action, fields, received_at,"
                                  " collection, meta from foldd.operations where seq > %lld"
                                  " order by seq limit %d",
                                  (long long)after, PAGE);
        count = PQntuples(rows);
        for (int row = 0; row < count; row++)
            take_row(verify, rows, row);
        after = count == 0 ? after : column_int(rows, count - 1, 0);
        PQclear(rows);
    }
}

static void check_missing(const struct verify *verify)
{
    for (size_t i = 0; i < verify->chaos->record_count; i++)
        if (verify->fates[i] == ABSENT && verify->chaos->records[i].seq != 0)
            chaos_fail(verify->chaos, STORED, "c-%zu was acknowledged as %lld and is not there", i,
                       (long long)verify->chaos->records[i].seq);
}

/* --- documents and outcomes */

/* Given: the row as the object of model_document. */
static json_t *row_object(const PGresult *rows, int row)
{
    return json_pack(
        "{s:I, s:I, s:b, s:o, s:s, s:s}", "version", (json_int_t)column_int(rows, row, 1),
        "revision", (json_int_t)column_int(rows, row, 2), "deleted",
        PQgetvalue(rows, row, 3)[0] == 't', "fields", json_loads(PQgetvalue(rows, row, 4), 0, NULL),
        "created_at", PQgetvalue(rows, row, 5), "updated_at", PQgetvalue(rows, row, 6));
}

static void check_document(const struct verify *verify, const PGresult *rows, int row)
{
    const char *id = PQgetvalue(rows, row, 0);
    json_t *actual = row_object(rows, row);
    const json_t *expected = model_document(verify->model, "default", id);
    if (expected == NULL || !json_equal(expected, actual)) {
        char *want = expected == NULL ? mem_strdup("absent") : json_dumps(expected, JSON_SORT_KEYS);
        char *have = json_dumps(actual, JSON_SORT_KEYS);
        chaos_fail(verify->chaos, DOCUMENTS, "%s is\n%s\nand must be\n%s", id, have, want);
        free(want);
        free(have);
    }
    json_decref(actual);
}

static void check_documents(const struct verify *verify)
{
    PGresult *rows =
        sql_rows(verify->chaos->env, "select id, version, revision, deleted, fields, created_at,"
                                     " updated_at from foldd.documents");
    for (int row = 0; row < PQntuples(rows); row++)
        check_document(verify, rows, row);
    int expected = 0;
    for (unsigned n = 0; n < CHAOS_DOCUMENTS; n++) {
        char *id = mem_printf("d%u", n);
        expected += model_document(verify->model, "default", id) != NULL;
        free(id);
    }
    if (PQntuples(rows) != expected)
        chaos_fail(verify->chaos, DOCUMENTS, "there are %d instead of %d", PQntuples(rows),
                   expected);
    PQclear(rows);
}

/* What clients were told; a fold that was parked or waited for too long has no outcome yet. */
static void check_told(const struct verify *verify, size_t i)
{
    const char *told = verify->chaos->records[i].outcome;
    const char *made = verify->fates[i] == FOLDED ? "folded" : "ignored";
    if (told[0] == '\0' || strcmp(told, "parked") == 0 || strcmp(told, "timeout") == 0)
        return;
    if (strcmp(told, made) != 0)
        chaos_fail(verify->chaos, OUTCOMES, "c-%zu was said to be %s and is %s", i, told, made);
}

static void check_outcomes(const struct verify *verify)
{
    struct chaos *chaos = verify->chaos;
    int ignored = 0;
    for (size_t i = 0; i < chaos->record_count; i++) {
        ignored += verify->fates[i] == IGNORED;
        check_told(verify, i);
    }
    PGresult *rows = sql_rows(chaos->env, "select o.id, t.outcome from foldd.outcomes t"
                                          " left join foldd.operations o using (seq)");
    for (int row = 0; row < PQntuples(rows); row++) {
        size_t i;
        if (strcmp(PQgetvalue(rows, row, 1), "ignored") != 0 ||
            !number_of(chaos, PQgetvalue(rows, row, 0), &i) || verify->fates[i] != IGNORED)
            chaos_fail(chaos, OUTCOMES, "%s has the outcome %s", PQgetvalue(rows, row, 0),
                       PQgetvalue(rows, row, 1));
    }
    if (PQntuples(rows) != ignored)
        chaos_fail(chaos, OUTCOMES, "%d rows instead of %d", PQntuples(rows), ignored);
    PQclear(rows);
}

void verify_run(struct chaos *chaos)
{
    struct verify verify = {.chaos = chaos, .model = model_new(), .last_seq = -1};
    verify.fates = mem_zalloc(chaos->record_count + 1);
    wait_quiet(chaos);
    take_log(&verify);
    check_missing(&verify);
    check_documents(&verify);
    check_outcomes(&verify);
    free(verify.fates);
    model_free(verify.model);
}
