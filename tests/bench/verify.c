/* SPDX-License-Identifier: MIT */
#include "verify.h"

#include <stdlib.h>
#include <string.h>

/* A number behind a prefix of the workload's ids, below count. */
static size_t index_of(const char *id, const char *prefix, size_t count)
{
    size_t len = strlen(prefix);
    char *end = NULL;
    ck_assert_msg(strncmp(id, prefix, len) == 0, "%s is not of this workload", id);
    unsigned long long number = strtoull(id + len, &end, 10);
    ck_assert_msg(*end == '\0' && number < count, "%s is not of this workload", id);
    return (size_t)number;
}

void verify_log(struct env *env, const struct workload *workload, const int64_t *seqs)
{
    PGresult *rows = sql_rows(env, "SELECT id, seq, document FROM foldd.operations");
    ck_assert_msg((size_t)PQntuples(rows) == workload->op_count,
                  "%d operations are in the log and %zu were sent", PQntuples(rows),
                  workload->op_count);
    /* The ids are unique within a document, and the document follows from the id. */
    for (int row = 0; row < PQntuples(rows); row++) {
        size_t op = index_of(PQgetvalue(rows, row, 0), "op-", workload->op_count);
        size_t document = index_of(PQgetvalue(rows, row, 2), "doc-", workload->document_count);
        ck_assert_msg(document == workload->ops[op].document &&
                          strtoll(PQgetvalue(rows, row, 1), NULL, 10) == seqs[op],
                      "operation %zu is in the log as seq %s of document %zu", op,
                      PQgetvalue(rows, row, 1), document);
    }
    PQclear(rows);
}

static void verify_row(const struct workload *workload, const int64_t *seqs, const PGresult *rows,
                       int row)
{
    const char *id = PQgetvalue(rows, row, 0);
    size_t index = index_of(id, "doc-", workload->document_count);
    const struct work_document *document = &workload->documents[index];
    ck_assert_msg(document->op_count > 0, "document %s has no operations", id);
    int64_t version = strtoll(PQgetvalue(rows, row, 1), NULL, 10);
    size_t revision = strtoull(PQgetvalue(rows, row, 2), NULL, 10);
    ck_assert_msg(version == seqs[document->last_op] && revision == document->op_count,
                  "document %s has version %lld and revision %zu, and not %lld and %zu", id,
                  (long long)version, revision, (long long)seqs[document->last_op],
                  document->op_count);
    json_t *fields = json_loads(PQgetvalue(rows, row, 3), JSON_REJECT_DUPLICATES, NULL);
    ck_assert_msg(json_equal(fields, document->fields), "document %s is not what it should be: %s",
                  id, PQgetvalue(rows, row, 3));
    json_decref(fields);
}

static size_t touched(const struct workload *workload)
{
    size_t count = 0;
    for (size_t i = 0; i < workload->document_count; i++)
        count += workload->documents[i].op_count > 0;
    return count;
}

void verify_documents(struct env *env, const struct workload *workload, const int64_t *seqs)
{
    PGresult *rows = sql_rows(env, "SELECT id, version, revision, fields FROM foldd.documents"
                                   " WHERE collection = 'default' AND NOT deleted");
    ck_assert_msg((size_t)PQntuples(rows) == touched(workload),
                  "there are %d documents and not %zu", PQntuples(rows), touched(workload));
    for (int row = 0; row < PQntuples(rows); row++)
        verify_row(workload, seqs, rows, row);
    PQclear(rows);
    expect_sql(env, "0",
               "SELECT (SELECT count(*) FROM foldd.documents WHERE deleted"
               " OR collection <> 'default') + (SELECT count(*) FROM foldd.parked)"
               " + (SELECT count(*) FROM foldd.outcomes)");
}
