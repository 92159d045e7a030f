/* SPDX-License-Identifier: MIT */
#include "load.h"

#include <stdlib.h>
#include <string.h>

struct load *load_new(struct env *env, const char *prefix, int documents, int count)
{
    struct load *load = mem_zalloc(sizeof *load);
    load->env = env;
    load->prefix = prefix;
    load->documents = documents;
    load->count = count;
    load->seqs = mem_zalloc((size_t)count * sizeof *load->seqs);
    return load;
}

void load_free(struct load *load)
{
    free(load->seqs);
    free(load);
}

void load_queue(const struct load *load, struct conn *conn, int from, int count)
{
    for (int i = from; i < from + count; i++) {
        const char *action = i % 23 == 22 ? "delete" : i % 17 == 0 ? "create" : "update";
        conn_line(conn, "{'document':'L%d','id':'%s-%d','action':'%s'%s%s}", i % load->documents,
                  load->prefix, i, action, i % 23 == 22 ? "" : ",'fields':",
                  i % 23 == 22 ? "" : env_printf(load->env, "{'n':%d,'k%d':'v'}", i, i % 7));
    }
}

int load_replies(struct load *load, struct conn *conn, int from, int count)
{
    for (int i = from; i < from + count; i++) {
        const json_t *reply = conn_read(conn);
        if (reply == NULL)
            return i - from;
        expect(reply, "{'ok':true,'id':'%s-%d'}", load->prefix, i);
        int64_t seq = reply_int(reply, "seq");
        ck_assert_msg(load->seqs[i] == 0 || load->seqs[i] == seq,
                      "%s-%d had the receipt %lld and now has %lld", load->prefix, i,
                      (long long)load->seqs[i], (long long)seq);
        load->seqs[i] = seq;
    }
    return count;
}

void load_send(struct load *load, struct conn *conn, int from, int count)
{
    load_queue(load, conn, from, count);
    conn_flush(conn);
    ck_assert_int_eq(load_replies(load, conn, from, count), count);
}

void expect_load(struct load *load, int at_most_unacknowledged)
{
    size_t prefix_len = strlen(load->prefix) + 1;
    int acknowledged = 0;
    int found = 0;
    int extra = 0;
    for (int i = 0; i < load->count; i++)
        acknowledged += load->seqs[i] != 0;
    PGresult *rows = sql_rows(
        load->env, "select id, seq from foldd.operations where id like '%s-%%'", load->prefix);
    for (int row = 0; row < PQntuples(rows); row++) {
        long i = strtol(PQgetvalue(rows, row, 0) + prefix_len, NULL, 10);
        long long seq = strtoll(PQgetvalue(rows, row, 1), NULL, 10);
        ck_assert(i >= 0 && i < load->count);
        ck_assert_msg(load->seqs[i] == 0 || load->seqs[i] == seq,
                      "%s-%ld is in the log as %lld and was acknowledged as %lld", load->prefix, i,
                      seq, (long long)load->seqs[i]);
        found += load->seqs[i] != 0;
        extra += load->seqs[i] == 0;
    }
    PQclear(rows);
    ck_assert_msg(found == acknowledged, "%d acknowledged, %d of them in the log", acknowledged,
                  found);
    ck_assert_msg(extra <= at_most_unacknowledged, "%d in the log were not acknowledged", extra);
}
