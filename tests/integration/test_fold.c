/* SPDX-License-Identifier: MIT */
/* What a fold makes of a history (design.md 7; R20). */
#include "suites.h"

#include "model.h"

#include <stdlib.h>
#include <string.h>

/* C7, H2: every sequence of create, update and delete up to length 5, each in one write */
START_TEST(every_short_history_equals_the_model)
{
    struct env *env = ENV();
    struct conn *conn = conn_open(daemon_start(env, NULL));
    int sent = 0;
    for (int len = 1, count = 3; len <= 5; len++, count *= 3) {
        for (int history = 0; history < count; history++) {
            for (int i = 0, rest = history; i < len; i++, rest /= 3) {
                const char *action = rest % 3 == 0 ? "create" : rest % 3 == 1 ? "update" : "delete";
                const char *fields = env_printf(env, ",'fields':{'n':%d,'k%d':%d,'gone':%s}", i,
                                                i % 2, i, i % 2 == 0 ? "1" : "null");
                conn_line(conn, "{'document':'h%d-%d','action':'%s'%s}", len, history, action,
                          rest % 3 == 2 ? "" : fields);
                sent++;
            }
            conn_flush(conn);
        }
    }
    for (int i = 0; i < sent; i++)
        expect(conn_read(conn), "{'ok':true}");
    barrier(conn);
    expect_model(env);
    expect_sql(env, "363", "select count(*) from foldd.documents");
    env_free(env);
}
END_TEST

/* The same histories when each operation is folded by itself */
START_TEST(histories_fold_alike_one_by_one)
{
    struct env *env = ENV();
    struct conn *conn = conn_open(daemon_start(env, NULL));
    for (int history = 0; history < 81; history++) {
        for (int i = 0, rest = history; i < 4; i++, rest /= 3) {
            const char *action = rest % 3 == 0 ? "create" : rest % 3 == 1 ? "update" : "delete";
            expect(ask(conn, "{'document':'h%d','action':'%s'%s,'ack':'folded'}", history, action,
                       rest % 3 == 2 ? "" : env_printf(env, ",'fields':{'n':%d,'k%d':1}", i, i)),
                   "{'ok':true}");
        }
    }
    expect_model(env);
    env_free(env);
}
END_TEST

START_TEST(row_tells_version_revision_and_times)
{
    struct env *env = ENV();
    struct conn *conn = conn_open(daemon_start(env, NULL));
    static const char *const actions[] = {"create", "update", "delete", "update", "create"};
    static const char *const expected[] = {"t|t|0|1|f", "t|t|1|2|f", "t|t|2|3|t", "t|t|3|3|t",
                                           "t|t|4|4|f"};
    for (int i = 0; i < 5; i++) {
        expect(ask(conn, "{'document':'d','id':'o%d','action':'%s'%s,'ack':'folded'}", i,
                   actions[i], i == 2 ? "" : ",'fields':{'a':1}"),
               "{'ok':true}");
        /* The ignored update leaves the time of the delete. */
        expect_sql(env, expected[i],
                   "select concat_ws('|', d.created_at = o1.received_at,"
                   " d.updated_at = o2.received_at, d.version - o1.seq, d.revision, d.deleted)"
                   " from foldd.documents d, foldd.operations o1, foldd.operations o2"
                   " where d.id = 'd' and o1.id = 'o0' and o2.id = 'o%d'",
                   i == 3 ? 2 : i);
    }
    expect_sql(env, "t",
               "select bool_and(next is null or received_at <= next) from (select received_at,"
               " lead(received_at) over (order by seq) as next from foldd.operations) o");
    env_free(env);
}
END_TEST

START_TEST(collections_are_apart)
{
    struct env *env = ENV();
    struct conn *conn = conn_open(daemon_start(env, NULL));
    for (int i = 0; i < 30; i++)
        expect(ask(conn, "{'collection':'c%d','document':'d','action':'update','fields':{'k%d':1}}",
                   i % 3, i),
               "{'ok':true}");
    barrier(conn);
    expect_model(env);
    expect_sql(env, "3|30", "select count(*) || '|' || sum(revision) from foldd.documents");
    env_free(env);
}
END_TEST

/* D17 */
START_TEST(merge_patch_of_nested_objects)
{
    struct env *env = ENV();
    struct conn *conn = conn_open(daemon_start(env, NULL));
    static const char *const patches[] = {
        "{'a':{'b':{'c':1,'d':2}},'list':[1,{'x':null}],'s':'t'}",
        "{'a':{'b':{'c':null,'e':{'f':null,'g':1}}}}",
        "{'a':{'b':5}}",
        "{'a':{'b':{'h':1}}}",
        "{'a':null,'list':{'k':{'n':null}},'s':{'t':{}}}",
        "{'list':[]}",
        "{}",
        "{'':{'':{'':null}}}",
        "{'':{'':1}}",
    };
    for (size_t i = 0; i < sizeof patches / sizeof patches[0]; i++) {
        expect(ask(conn, "{'document':'one','action':'update','fields':%s,'ack':'folded'}",
                   patches[i]),
               "{'ok':true}");
        expect(ask(conn, "{'document':'all','action':'update','fields':%s}", patches[i]),
               "{'ok':true}");
    }
    barrier(conn);
    expect_model(env);
    env_free(env);
}
END_TEST

/* R20: over 16 MiB an operation is rejected, whatever batch it is folded in, and says so */
START_TEST(document_size_is_limited)
{
    struct env *env = ENV();
    struct conn *conn = conn_open(daemon_start(env, NULL));
    enum { PIECE = 1000000, PIECES = 20, FIT = 16 };
    char *piece = mem_alloc(PIECE + 1);
    uint64_t state = 11;
    for (int i = 0; i < PIECE; i++)
        piece[i] = (char)('0' + next_random(&state) % 64);
    for (int i = 0; i < PIECE; i++)
        piece[i] = piece[i] == '\'' || piece[i] == '\\' || piece[i] == '"' ? '.' : piece[i];
    piece[PIECE] = '\0';
    for (int i = 0; i < PIECES; i++) {
        conn_line(conn, "{'document':'d','id':'i%d','action':'update','fields':{'p%d':'%s'}}", i, i,
                  piece);
        conn_flush(conn);
    }
    for (int i = 0; i < PIECES; i++)
        expect(conn_read(conn), "{'ok':true}");
    for (int i = 0; i < PIECES; i++) {
        expect(ask(conn, "{'request':'await','document':'d','id':'i%d'}", i), "{'outcome':'%s'}",
               i < FIT ? "folded" : "rejected");
        ck_assert(i < FIT || json_is_string(json_object_get(conn->json, "reason")));
    }
    expect(ask(conn, "{'document':'d','action':'update','fields':{'n':1},'ack':'folded'}"),
           "{'outcome':'folded'}");
    expect(ask(conn, "{'document':'d','action':'update','fields':{'p0':null},'ack':'folded'}"),
           "{'outcome':'folded'}");
    expect(
        ask(conn, "{'document':'d','action':'update','fields':{'q':'%s'},'ack':'folded'}", piece),
        "{'outcome':'folded'}");
    expect(
        ask(conn, "{'document':'d','action':'update','fields':{'r':'%s'},'ack':'folded'}", piece),
        "{'outcome':'rejected'}");
    expect_sql(env, "5|true",
               "select count(*) || '|' || bool_and(reason <> '') from foldd.outcomes"
               " where outcome = 'rejected'");
    expect_sql(env, env_printf(env, "%d|0", FIT + 3),
               "select revision || '|' || (select count(*) from foldd.parked)"
               " from foldd.documents");
    free(piece);
    env_free(env);
}
END_TEST

/* Scenario 59: a fold costs what is new, not the history; chunks of one long history */
START_TEST(long_history_of_one_document)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    struct conn *other = conn_open(daemon);
    enum { OPS = 40000 };
    for (int i = 0; i < OPS; i++)
        conn_line(conn, "{'document':'d','action':'update','fields':{'n':%d,'k%d':%d}}", i, i % 50,
                  i);
    conn_flush(conn);
    for (int i = 0; i < OPS; i++) {
        expect(conn_read(conn), "{'ok':true}");
        if (i % 4000 == 0)
            expect(ask(other,
                       "{'document':'o','action':'update','fields':{'i':%d},"
                       "'ack':'folded'}",
                       i),
                   "{'outcome':'folded'}");
    }
    barrier(conn);
    expect_model(env);
    expect_sql(env, env_printf(env, "%d", OPS),
               "select revision from foldd.documents where id = 'd'");
    env_free(env);
}
END_TEST

Suite *fold_suite(void)
{
    Suite *suite = suite_create("fold");
    TCase *tcase = tcase_create("fold");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, every_short_history_equals_the_model);
    tcase_add_test(tcase, histories_fold_alike_one_by_one);
    tcase_add_test(tcase, row_tells_version_revision_and_times);
    tcase_add_test(tcase, collections_are_apart);
    tcase_add_test(tcase, merge_patch_of_nested_objects);
    tcase_add_test(tcase, document_size_is_limited);
    tcase_add_test(tcase, long_history_of_one_document);
    suite_add_tcase(suite, tcase);
    return suite;
}
