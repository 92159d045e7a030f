/* SPDX-License-Identifier: MIT */
/* foldd killed and stopped at any moment (design.md 5, 8; R1, R7, R11, R15). */
#include "suites.h"

#include "load.h"
#include "model.h"

#include <signal.h>

static int64_t cursor(struct env *env)
{
    return sql_int(env, "select seq from foldd.cursor");
}

static void expect_cursor_sane(struct env *env, int64_t *last)
{
    int64_t now = cursor(env);
    ck_assert_msg(now >= *last, "the cursor went back from %lld to %lld", (long long)*last,
                  (long long)now);
    ck_assert_int_le(now, sql_int(env, "select foldd.head()"));
    *last = now;
}

/* Scenarios 20, 27, 34: kill -9 under load, at another point each round */
START_TEST(kill_under_load)
{
    enum { ROUNDS = 20, EACH = 1500 };
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct load *load = load_new(env, "k", 100, ROUNDS * EACH);
    uint64_t state = 42;
    int64_t last_cursor = 0;
    for (int round = 0; round < ROUNDS; round++) {
        struct conn *conn = conn_open(daemon);
        load_queue(load, conn, round * EACH, EACH);
        conn_flush(conn);
        int taken = load_replies(load, conn, round * EACH, (int)(next_random(&state) % EACH));
        daemon_kill(daemon);
        load_replies(load, conn, round * EACH + taken, EACH - taken);
        expect_cursor_sane(env, &last_cursor);
        daemon_again(daemon);
        conn = conn_open(daemon);
        load_send(load, conn, round * EACH, EACH);
        expect_cursor_sane(env, &last_cursor);
    }
    barrier(conn_open(daemon));
    expect_load(load, 0);
    expect_model(env);
    load_free(load);
    env_free(env);
}
END_TEST

/* What was acknowledged and never sent again is there; the rest is there once or not at all. */
START_TEST(kill_and_no_retry)
{
    enum { ROUNDS = 10, EACH = 3000 };
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct load *load = load_new(env, "k", 50, ROUNDS * EACH);
    uint64_t state = 43;
    for (int round = 0; round < ROUNDS; round++) {
        struct conn *conn = conn_open(daemon);
        load_queue(load, conn, round * EACH, EACH);
        conn_flush(conn);
        int taken = load_replies(load, conn, round * EACH, (int)(next_random(&state) % EACH));
        daemon_kill(daemon);
        load_replies(load, conn, round * EACH + taken, EACH - taken);
        daemon_again(daemon);
    }
    barrier(conn_open(daemon));
    expect_load(load, ROUNDS * EACH);
    expect_sql(env, "t",
               "select count(*) = count(distinct (document, id)) and"
               " count(*) = count(distinct seq) from foldd.operations");
    expect_model(env);
    load_free(load);
    env_free(env);
}
END_TEST

/* B11, scenario 28: what is in the log and not folded when foldd starts is folded without being
 * asked */
START_TEST(backlog_is_folded_at_start)
{
    enum { OPS = 20000 };
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct load *load = load_new(env, "b", 500, OPS);
    PGconn *session = sql_session(env);
    sql_in(session, "begin; lock table foldd.documents in share mode");
    load_send(load, conn_open(daemon), 0, OPS);
    daemon_kill(daemon);
    sql_in(session, "rollback");
    expect_sql(env, "0|0",
               "select count(*) || '|' || (select seq from foldd.cursor)"
               " from foldd.documents");
    daemon_again(daemon);
    sql_wait(env, env_printf(env, "%d", OPS), "select seq from foldd.cursor");
    expect_load(load, 0);
    expect_model(env);
    load_free(load);
    env_free(env);
}
END_TEST

/* J6, B11, scenario 31, R15: new operations while foldd catches up with a backlog: each is folded
 * once, the seam included, and status and await answer within 100 ms */
START_TEST(live_operations_during_catch_up)
{
    enum { OPS = 60000, LIVE = 20000 };
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct load *load = load_new(env, "b", 5000, OPS + LIVE);
    PGconn *session = sql_session(env);
    sql_in(session, "begin; lock table foldd.documents in share mode");
    load_send(load, conn_open(daemon), 0, OPS);
    daemon_kill(daemon);
    sql_in(session, "rollback");
    daemon_again(daemon);
    struct conn *conn = conn_open(daemon);
    struct conn *watcher = conn_open(daemon);
    for (int at = OPS; at < OPS + LIVE; at += 500) {
        load_send(load, conn, at, 500);
        int64_t asked = now_ms();
        expect(ask(watcher, "{'request':'status'}"), "{'ok':true}");
        expect(ask(watcher, "{'request':'await','seq':1,'timeout_ms':0}"), "{'ok':true}");
        ck_assert_int_le(now_ms() - asked, 200);
    }
    barrier(conn);
    /* A barrier passes what was carried while folding stood still. */
    sql_wait(env, "0", "select count(*) from foldd.parked");
    expect_load(load, 0);
    expect_model(env);
    ck_assert_int_le(daemon_proc_status(daemon, "VmHWM"), TEST_RSS_MAX_KIB);
    load_free(load);
    env_free(env);
}
END_TEST

/* Scenario 26: the cursor behind the folds has no double effect */
START_TEST(cursor_behind_the_folds)
{
    enum { OPS = 5000 };
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct load *load = load_new(env, "c", 70, OPS);
    struct conn *conn = conn_open(daemon);
    load_send(load, conn, 0, OPS);
    barrier(conn);
    daemon_stop(daemon);
    const char *rows = "select md5(string_agg(d::text || d.xmin::text, ',' order by d.id))"
                       " from foldd.documents d";
    const char *before = sql_text(env, "%s", rows);
    for (int back = 0; back < 3; back++) {
        sql(env, "update foldd.cursor set seq = %d", back * 1700);
        daemon_again(daemon);
        barrier(conn_open(daemon));
        expect_sql(env, before, "%s", rows);
        daemon_stop(daemon);
        expect_sql(env, env_printf(env, "%d", OPS), "select seq from foldd.cursor");
    }
    expect_model(env);
    load_free(load);
    env_free(env);
}
END_TEST

/* J3, scenario 55: SIGTERM under load: exit 0, what was acknowledged stays, the rest can be retried
 */
START_TEST(terminate_under_load)
{
    enum { ROUNDS = 8, EACH = 10000 };
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct load *load = load_new(env, "t", 200, ROUNDS * EACH);
    uint64_t state = 44;
    int64_t last_cursor = 0;
    for (int round = 0; round < ROUNDS; round++) {
        struct conn *conn = conn_open(daemon);
        load_queue(load, conn, round * EACH, EACH);
        conn_flush_part(conn, (round + 1) * 10);
        int taken = load_replies(load, conn, round * EACH, (int)(next_random(&state) % 100));
        daemon_signal(daemon, round % 2 == 0 ? SIGTERM : SIGINT);
        load_replies(load, conn, round * EACH + taken, EACH - taken);
        ck_assert_int_eq(daemon_wait_exit(daemon, 25000), 0);
        expect_load(load, 0);
        expect_cursor_sane(env, &last_cursor);
        daemon_again(daemon);
        load_send(load, conn_open(daemon), round * EACH, EACH);
    }
    barrier(conn_open(daemon));
    expect_load(load, 0);
    expect_model(env);
    load_free(load);
    env_free(env);
}
END_TEST

/* J3: a fold that stands still for ever delays the end by drain_timeout and no more; a second
 * signal ends it at once; _i: one signal or two */
START_TEST(terminate_with_a_standing_fold)
{
    struct env *env = ENV();
    struct daemon *daemon =
        daemon_start(env, _i == 0 ? "drain_timeout=1s" : "drain_timeout=60s", NULL);
    struct conn *conn = conn_open(daemon);
    expect(ask(conn, "{'document':'d','action':'create','fields':{},'ack':'folded'}"),
           "{'ok':true}");
    gate_make(env, "^d$");
    expect(ask(conn, "{'document':'d','action':'update','fields':{'n':1}}"), "{'ok':true}");
    status_wait(conn, "running", 1);
    conn_line(conn, "{'request':'await','document':'d','id':'never'}");
    conn_flush(conn);
    daemon_signal(daemon, SIGTERM);
    if (_i == 1)
        daemon_signal(daemon, SIGINT);
    int code = daemon_wait_exit(daemon, 10000);
    ck_assert_msg(_i == 1 || code == 0, "code %d", code);
    gate_open(env);
    daemon_again(daemon);
    barrier(conn_open(daemon));
    expect_sql(env, "{\"n\": 1}", "select fields from foldd.documents");
    expect_model(env);
    env_free(env);
}
END_TEST

START_TEST(terminate_idle_is_quick)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    expect(ask(conn, "{'request':'ping'}"), "{'ok':true}");
    for (int i = 0; i < 3; i++) {
        daemon_signal(daemon, SIGTERM);
        ck_assert_int_eq(daemon_wait_exit(daemon, 2000), 0);
        daemon_again(daemon);
    }
    expect_end(conn);
    env_free(env);
}
END_TEST

/* Scenario 25: the cursor stays below one standing document, and it is folded after a kill */
START_TEST(cursor_waits_for_the_slowest)
{
    enum { OPS = 10000 };
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    expect(ask(conn, "{'document':'slow','action':'create','fields':{},'ack':'folded'}"),
           "{'ok':true}");
    gate_make(env, "^slow$");
    int64_t seq =
        reply_int(ask(conn, "{'document':'slow','action':'update','fields':{'n':1}}"), "seq");
    status_wait(conn, "running", 1);
    struct load *load = load_new(env, "f", 1000, OPS);
    load_send(load, conn, 0, OPS);
    sql_wait(env, "1000", "select count(*) from foldd.documents where id like 'L%%'");
    ck_assert_int_eq(status_int(conn, "cursor"), seq - 1);
    ck_assert_int_lt(cursor(env), seq);
    daemon_kill(daemon);
    gate_open(env);
    ck_assert_int_lt(cursor(env), seq);
    daemon_again(daemon);
    barrier(conn_open(daemon));
    expect_load(load, 0);
    expect_model(env);
    load_free(load);
    env_free(env);
}
END_TEST

Suite *restart_suite(void)
{
    Suite *suite = suite_create("restart");
    TCase *kill = tcase_create("kill");
    tcase_set_timeout(kill, 300);
    tcase_add_test(kill, kill_under_load);
    tcase_add_test(kill, kill_and_no_retry);
    tcase_add_test(kill, backlog_is_folded_at_start);
    tcase_add_test(kill, live_operations_during_catch_up);
    tcase_add_test(kill, cursor_behind_the_folds);
    tcase_add_test(kill, cursor_waits_for_the_slowest);
    suite_add_tcase(suite, kill);
    TCase *stop = tcase_create("stop");
    tcase_set_timeout(stop, 300);
    tcase_add_test(stop, terminate_under_load);
    tcase_add_loop_test(stop, terminate_with_a_standing_fold, 0, 2);
    tcase_add_test(stop, terminate_idle_is_quick);
    suite_add_tcase(suite, stop);
    return suite;
}
