/* SPDX-License-Identifier: MIT */
/* An idle foldd costs nothing (design.md 6; G3, scenario 54). */
#include "suites.h"

#include "harness.h"

enum { WATCH_MS = 3000, WAKE_UPS_MAX = 3 };

/* What foldd's sessions have done: their last queries and states, and the database's transactions
 * but for this session's. */
static const char *const sessions = "select string_agg(concat_ws(' ', pid, query_start, state,"
                                    " xact_start, backend_xmin), '; ' order by pid)"
                                    " from pg_stat_activity where datname = current_database()"
                                    " and pid <> pg_backend_pid()";

static void expect_idle(struct env *env, struct daemon *daemon, struct conn *conn)
{
    barrier(conn);
    sql_wait(env, "t", "select seq = foldd.head() from foldd.cursor");
    sql_wait(env, "0",
             "select count(*) from pg_stat_activity where datname = current_database()"
             " and pid <> pg_backend_pid() and (state <> 'idle' or xact_start is not null)");
    /* The last thing before the rest may still be on its way through the loop. */
    const char *before = sql_text(env, "%s", sessions);
    int64_t wake_ups = daemon_proc_status(daemon, "voluntary_ctxt_switches");
    pause_ms(WATCH_MS);
    int64_t woken = daemon_proc_status(daemon, "voluntary_ctxt_switches") - wake_ups;
    ck_assert_str_eq(sql_text(env, "%s", sessions), before);
    ck_assert_msg(woken <= WAKE_UPS_MAX, "%lld wake-ups in %d ms", (long long)woken, WATCH_MS);
}

/* G3 */
START_TEST(idle_after_start)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    expect_idle(env, daemon, conn_open(daemon));
    env_free(env);
}
END_TEST

/* G3 */
START_TEST(idle_after_work)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, "workers=16", NULL);
    struct conn *conn = conn_open(daemon);
    for (int i = 0; i < 5000; i++)
        conn_line(conn, "{'document':'d%d','action':'update','fields':{'n':%d}}", i % 100, i);
    conn_flush(conn);
    for (int i = 0; i < 5000; i++)
        expect(conn_read(conn), "{'ok':true}");
    expect_idle(env, daemon, conn);
    env_free(env);
}
END_TEST

/* G3: open waits and silent clients cost nothing either */
START_TEST(idle_with_waiting_clients)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    for (int i = 0; i < 50; i++) {
        struct conn *waiter = conn_open(daemon);
        conn_line(waiter, "{'request':'await','document':'never','id':'x'}");
        conn_bytes(waiter, "{\"half", 6);
        conn_flush(waiter);
    }
    expect_idle(env, daemon, conn_open(daemon));
    env_free(env);
}
END_TEST

Suite *idle_suite(void)
{
    Suite *suite = suite_create("idle");
    TCase *tcase = tcase_create("idle");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, idle_after_start);
    tcase_add_test(tcase, idle_after_work);
    tcase_add_test(tcase, idle_with_waiting_clients);
    suite_add_tcase(suite, tcase);
    return suite;
}
