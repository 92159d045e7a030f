/* SPDX-License-Identifier: MIT */
/* Bytes, lines and connections: framing, half close, limits, slow and vanished readers (design.md
 * 3). */
#include "suites.h"

#include "harness.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define UPDATE "{\"document\":\"d\",\"action\":\"update\",\"fields\":{\"a\":1}}"

static int64_t stored(struct env *env)
{
    return sql_int(env, "select count(*) from foldd.operations");
}

START_TEST(blank_lines_and_crlf)
{
    struct env *env = ENV();
    struct conn *conn = conn_open(daemon_start(env, NULL));
    const char *text = "\n\r\n\n" UPDATE "\r\n\n\r\n" UPDATE "\n{}\n";
    conn_bytes(conn, text, strlen(text));
    conn_flush(conn);
    expect(conn_read(conn), "{'ok':true}");
    expect(conn_read(conn), "{'ok':true}");
    expect_error(conn_read(conn), "invalid", "");
    conn_shutdown(conn);
    expect_end(conn);
    ck_assert_int_eq(stored(env), 2);
    env_free(env);
}
END_TEST

/* E4 */
START_TEST(half_closed_client_gets_all_replies)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    PGconn *session = sql_session(env);
    sql_in(session, "begin; lock table foldd.operations in share mode");
    for (int i = 0; i < 1000; i++)
        conn_line(conn, "{'document':'d%d','id':'i%d','action':'update','fields':{'n':%d}}", i % 7,
                  i, i);
    conn_line(conn, "{'request':'await','document':'d5','id':'i999'}");
    conn_flush(conn);
    conn_shutdown(conn);
    sql_wait(env, "t",
             "select count(*) > 0 from pg_locks where not granted and"
             " relation = 'foldd.operations'::regclass");
    sql_in(session, "rollback");
    int64_t last = 0;
    for (int i = 0; i < 1000; i++) {
        const json_t *reply = conn_read(conn);
        expect(reply, "{'ok':true,'id':'i%d'}", i);
        ck_assert_int_gt(reply_int(reply, "seq"), last);
        last = reply_int(reply, "seq");
    }
    expect(conn_read(conn), "{'ok':true,'outcome':'folded'}");
    expect_end(conn);
    env_free(env);
}
END_TEST

/* D22 */
START_TEST(last_line_without_lf_is_executed)
{
    struct env *env = ENV();
    struct conn *conn = conn_open(daemon_start(env, NULL));
    conn_bytes(conn, UPDATE "\n" UPDATE, 2 * strlen(UPDATE) + 1);
    conn_flush(conn);
    conn_shutdown(conn);
    expect(conn_read(conn), "{'ok':true}");
    expect(conn_read(conn), "{'ok':true}");
    expect_end(conn);
    ck_assert_int_eq(stored(env), 2);
    env_free(env);
}
END_TEST

/* D22: cut off anywhere, it is answered and not executed */
START_TEST(cut_off_line_is_invalid)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    for (size_t len = 1; len < strlen(UPDATE); len++) {
        struct conn *conn = conn_open(daemon);
        conn_bytes(conn, UPDATE, len);
        conn_flush(conn);
        conn_shutdown(conn);
        expect(conn_read(conn), "{'ok':false,'error':'invalid','line':1}");
        expect_end(conn);
        conn_close(conn);
    }
    struct conn *gone = conn_open(daemon);
    conn_bytes(gone, UPDATE, strlen(UPDATE) / 2);
    conn_flush(gone);
    conn_reset(gone);
    struct conn *conn = conn_open(daemon);
    barrier(conn);
    ck_assert_int_eq(stored(env), 0);
    env_free(env);
}
END_TEST

/* E1, E15: earlier replies, then the error, then the end; nothing of the rest is taken for a line
 */
START_TEST(line_over_the_limit_ends_the_connection)
{
    struct env *env = ENV();
    struct conn *conn = conn_open(daemon_start(env, "max_line=4096", NULL));
    char *pad = mem_zalloc(8192);
    memset(pad, ' ', 8191);
    for (int i = 0; i < 100; i++)
        conn_line(conn, "%s", UPDATE);
    conn_line(conn, "%.*s%s", (int)(4096 - strlen(UPDATE)), pad, UPDATE);
    conn_line(conn, "%.*s%s", (int)(4097 - strlen(UPDATE)), pad, UPDATE);
    for (int i = 0; i < 100; i++)
        conn_line(conn, "%s", UPDATE);
    conn_flush(conn);
    for (int i = 0; i < 101; i++)
        expect(conn_read(conn), "{'ok':true}");
    expect(conn_read(conn), "{'ok':false,'error':'too_large','line':102}");
    expect_end(conn);
    ck_assert_int_eq(stored(env), 101);
    free(pad);
    env_free(env);
}
END_TEST

/* E1 */
START_TEST(line_without_end_is_bounded)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, "max_line=65536", NULL);
    struct conn *conn = conn_open(daemon);
    size_t len = (size_t)32 << 20;
    char *bytes = mem_alloc(len);
    memset(bytes, 'a', len);
    conn_bytes(conn, bytes, len);
    conn_flush(conn);
    expect(conn_read(conn), "{'ok':false,'error':'too_large','line':1}");
    expect_end(conn);
    ck_assert_int_le(daemon_proc_status(daemon, "VmHWM"), TEST_RSS_MAX_KIB);
    free(bytes);
    env_free(env);
}
END_TEST

/* E2: each byte is looked at once, however small the pieces are */
START_TEST(long_line_in_small_pieces)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    struct conn *other = conn_open(daemon);
    struct buf line = {0};
    buf_add_str(&line, "{\"document\":\"d\",\"action\":\"update\",\"fields\":{\"a\":\"");
    while (line.len < (1 << 20) - 64)
        buf_add_char(&line, 'x');
    buf_add_str(&line, "\"}}\n");
    int64_t start = now_ms();
    for (size_t at = 0; at < line.len; at += 64) {
        conn_bytes(conn, line.data + at, line.len - at < 64 ? line.len - at : 64);
        conn_flush(conn);
        if (at % 65536 != 0)
            continue;
        int64_t asked = now_ms();
        expect(ask(other, "{'request':'ping'}"), "{'ok':true}");
        ck_assert_int_le(now_ms() - asked, 100);
    }
    expect(conn_read(conn), "{'ok':true}");
    ck_assert_int_le(now_ms() - start, 10000);
    buf_fini(&line);
    env_free(env);
}
END_TEST

/* E3: a client that does not read is not read from, costs bounded memory and nobody else's time */
START_TEST(slow_readers_hold_up_only_themselves)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, "max_client_pending=1MiB", NULL);
    enum { SLOW = 20, LINES = 60000 };
    struct conn *slow[SLOW];
    for (int i = 0; i < SLOW; i++) {
        slow[i] = conn_open(daemon);
        for (int line = 0; line < LINES; line++)
            conn_line(slow[i], "{'request':'ping'}");
        conn_push_only(slow[i]);
    }
    struct conn *other = conn_open(daemon);
    for (int round = 0; round < 200; round++) {
        for (int i = 0; i < SLOW; i++)
            conn_push_only(slow[i]);
        int64_t asked = now_ms();
        expect(ask(other, "{'document':'d','action':'update','fields':{'n':%d}}", round),
               "{'ok':true}");
        expect(ask(other, "{'request':'status'}"), "{'ok':true}");
        ck_assert_int_le(now_ms() - asked, 1000);
    }
    ck_assert_msg(slow[0]->out_pos < slow[0]->out.len, "foldd went on reading from a slow reader");
    ck_assert_int_le(daemon_proc_status(daemon, "VmRSS"), TEST_RSS_MAX_KIB);
    for (int i = 1; i < SLOW; i++)
        conn_close(slow[i]);
    conn_flush(slow[0]);
    for (int line = 0; line < LINES; line++)
        expect(conn_read(slow[0]), "{'ok':true}");
    env_free(env);
}
END_TEST

/* The same with operations: what was read is stored and, in the end, answered in order. */
START_TEST(slow_writer_of_operations_loses_nothing)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *slow = conn_open(daemon);
    enum { LINES = 50000 };
    for (int i = 0; i < LINES; i++)
        conn_line(slow, "{'document':'d%d','id':'i%d','action':'update','fields':{'n':%d}}", i % 50,
                  i, i);
    conn_push_only(slow);
    struct conn *other = conn_open(daemon);
    for (int round = 0; round < 50; round++) {
        conn_push_only(slow);
        expect(ask(other, "{'document':'o','action':'update','fields':{'n':%d},'ack':'folded'}",
                   round),
               "{'ok':true,'outcome':'folded'}");
    }
    conn_flush(slow);
    for (int i = 0; i < LINES; i++)
        expect(conn_read(slow), "{'ok':true,'id':'i%d'}", i);
    ck_assert_int_eq(stored(env), LINES + 50);
    env_free(env);
}
END_TEST

/* E5, E7: clients that vanish with replies and waits on the way; scenario 19 */
START_TEST(vanished_clients_hurt_nobody)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    enum { CLIENTS = 300 };
    for (int i = 0; i < CLIENTS; i++) {
        struct conn *conn = conn_open(daemon);
        conn_line(conn, "{'document':'d%d','id':'x','action':'update','fields':{'n':1}}", i);
        if (i % 3 == 0)
            conn_line(conn, "{'request':'await','document':'never','id':'x'}");
        if (i % 3 == 1)
            conn_line(conn, "{'request':'status'}");
        conn_flush(conn);
        conn_reset(conn);
    }
    struct conn *conn = conn_open(daemon);
    sql_wait(env, env_printf(env, "%d", CLIENTS), "select count(*) from foldd.operations");
    expect(ask(conn, "{'document':'never','id':'x','action':'update','fields':{}}"), "{'ok':true}");
    barrier(conn);
    status_wait(conn, "clients", 1);
    expect_sql(env, env_printf(env, "%d", CLIENTS + 1), "select count(*) from foldd.documents");
    env_free(env);
}
END_TEST

START_TEST(many_connections)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    enum { CLIENTS = 500 };
    static struct conn *conns[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) {
        conns[i] = conn_open(daemon);
        conn_line(conns[i], "{'document':'d','id':'x%d','action':'update','fields':{'n%d':1}}", i,
                  i);
        conn_flush(conns[i]);
    }
    for (int i = 0; i < CLIENTS; i++)
        expect(conn_read(conns[i]), "{'ok':true,'id':'x%d'}", i);
    barrier(conns[0]);
    expect_sql(env, "500", "select revision from foldd.documents");
    env_free(env);
}
END_TEST

/* E8: out of descriptors, foldd serves whom it has, keeps quiet, and takes up accepting again */
START_TEST(out_of_descriptors)
{
    struct env *env = ENV();
    struct rlimit before;
    struct rlimit few = {64, 64};
    ck_assert(getrlimit(RLIMIT_NOFILE, &before) == 0);
    few.rlim_max = before.rlim_max;
    ck_assert(setrlimit(RLIMIT_NOFILE, &few) == 0);
    struct daemon *daemon = daemon_start(env, NULL);
    ck_assert(setrlimit(RLIMIT_NOFILE, &before) == 0);
    struct conn *first = conn_open(daemon);
    expect(ask(first, "{'request':'ping'}"), "{'ok':true}");
    struct conn *conns[100];
    for (int i = 0; i < 100; i++) {
        conns[i] = conn_open(daemon);
        conn_line(conns[i], "{'request':'ping'}");
        conn_push_only(conns[i]);
    }
    for (int i = 0; i < 50; i++)
        expect(ask(first, "{'document':'d','action':'update','fields':{'n':%d},'ack':'folded'}", i),
               "{'ok':true}");
    char *log = file_read(daemon->log);
    ck_assert_msg(strlen(log) < 20000, "foldd logs in a loop");
    free(log);
    for (int i = 0; i < 50; i++)
        conn_close(conns[i]);
    for (int i = 50; i < 100; i++)
        conn_close(conns[i]);
    struct conn *late = conn_open(daemon);
    expect(ask(late, "{'request':'ping'}"), "{'ok':true}");
    env_free(env);
}
END_TEST

Suite *lines_suite(void)
{
    Suite *suite = suite_create("lines");
    TCase *framing = tcase_create("framing");
    tcase_set_timeout(framing, 60);
    tcase_add_test(framing, blank_lines_and_crlf);
    tcase_add_test(framing, half_closed_client_gets_all_replies);
    tcase_add_test(framing, last_line_without_lf_is_executed);
    tcase_add_test(framing, cut_off_line_is_invalid);
    tcase_add_test(framing, line_over_the_limit_ends_the_connection);
    tcase_add_test(framing, line_without_end_is_bounded);
    tcase_add_test(framing, long_line_in_small_pieces);
    suite_add_tcase(suite, framing);
    TCase *clients = tcase_create("clients");
    tcase_set_timeout(clients, 120);
    tcase_add_test(clients, slow_readers_hold_up_only_themselves);
    tcase_add_test(clients, slow_writer_of_operations_loses_nothing);
    tcase_add_test(clients, vanished_clients_hurt_nobody);
    tcase_add_test(clients, many_connections);
    tcase_add_test(clients, out_of_descriptors);
    suite_add_tcase(suite, clients);
    return suite;
}
