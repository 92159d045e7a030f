/* SPDX-License-Identifier: MIT */
/* The log and the cursor over it: readers, holes, restores, numbers far up (design.md 5, 8; R6, R7,
 * R15). */
#include "suites.h"

#include "hang.h"
#include "load.h"
#include "model.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* A reader of the log that keeps to foldd.head(): takes what is new and notes how much. */
static void read_on(struct env *env, int64_t *last, int *count)
{
    PGresult *rows = sql_rows(env,
                              "select seq from foldd.operations where seq > %lld and"
                              " seq <= (select foldd.head()) order by seq",
                              (long long)*last);
    *count += PQntuples(rows);
    if (PQntuples(rows) > 0)
        *last = strtoll(PQgetvalue(rows, PQntuples(rows) - 1, 0), NULL, 10);
    PQclear(rows);
}

/* B1: whoever has read up to a seq has read everything up to it, whoever writes meanwhile; foldd
 * alone gives the numbers, on one connection, in the order of commit */
START_TEST(reader_of_the_log_finds_no_hole)
{
    enum { CONNS = 4, EACH = 4000 };
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, "batch_ops=50", NULL);
    struct conn *conns[CONNS];
    int replies = 0;
    int64_t last = 0;
    int count = 0;
    for (int c = 0; c < CONNS; c++) {
        conns[c] = conn_open(daemon);
        for (int i = 0; i < EACH; i++)
            conn_line(conns[c], "{'document':'d%d','id':'%d-%d','action':'update','fields':{}}",
                      i % 30, c, i);
    }
    while (replies < CONNS * EACH) {
        ck_assert_msg(conn_pump(conns, CONNS, TEST_WAIT_MS), "nothing moves");
        read_on(env, &last, &count);
        for (int c = 0; c < CONNS; c++)
            for (; conn_has_reply(conns[c]); replies++)
                ck_assert_ptr_nonnull(conn_read_raw(conns[c], TEST_WAIT_MS));
    }
    read_on(env, &last, &count);
    ck_assert_int_eq(count, CONNS * EACH);
    expect_sql(env, env_printf(env, "%lld", (long long)last),
               "select max(seq) from foldd.operations");
    env_free(env);
}
END_TEST

/* B2: a commit may take as long as it likes: head and cursor stay below it, and what comes of it is
 * found; _i: foldd goes on, foldd is killed meanwhile */
START_TEST(commit_that_hangs_is_not_passed)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    struct load *load = load_new(env, "b", 10, 100);
    load_send(load, conn, 0, 50);
    barrier(conn);
    sql_wait(env, "50", "select seq from foldd.cursor");
    PGconn *admin = hang_commits(env);
    load_queue(load, conn, 50, 50);
    conn_flush(conn);
    hang_wait(env, 1);
    if (_i == 1)
        daemon_kill(daemon);
    sql_stays(env, 1500, "50|50", "select foldd.head() || '|' || seq from foldd.cursor");
    hang_release(admin);
    if (_i == 1) {
        daemon_again(daemon);
        conn = conn_open(daemon);
        load_send(load, conn, 50, 50);
    } else {
        ck_assert_int_eq(load_replies(load, conn, 50, 50), 50);
    }
    barrier(conn);
    sql_wait(env, "100|100", "select foldd.head() || '|' || seq from foldd.cursor");
    expect_load(load, 0);
    expect_model(env);
    load_free(load);
    env_free(env);
}
END_TEST

static void run_tool(struct env *env, const char *command)
{
    const char *argv[] = {"sh", "-c", command, NULL};
    const char *output = env_path(env, "tool.log");
    ck_assert_msg(run_program(output, argv) == 0, "failed: %s", command);
}

/* B8, R6: pg_dump, a thousand operations, and the dump restored under the running foldd: what it
 * knew is forgotten. Nothing of the dump is left unfolded, retries are stored again, no number is
 * given twice; _i: the cursor was saved before, or its saving meets the restored database */
START_TEST(dump_restored_under_a_running_daemon)
{
    enum { BEFORE = 200, UNFOLDED = 20, AFTER = 1000, RETRIED = 200 };
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    struct load *load = load_new(env, "r", 50, BEFORE + UNFOLDED + AFTER);
    load_send(load, conn, 0, BEFORE);
    barrier(conn);
    PGconn *session = sql_session(env);
    sql_in(session, "begin; lock table foldd.documents in share mode");
    load_send(load, conn, BEFORE, UNFOLDED);
    const char *dump = env_path(env, "dump.sql");
    run_tool(env, env_printf(env, "%s/pg_dump --clean --if-exists -n foldd -f %s '%s'",
                             cluster_bindir(), dump, env->conninfo));
    sql_in(session, "rollback");
    load_send(load, conn, BEFORE + UNFOLDED, AFTER);
    barrier(conn);
    if (_i == 1)
        daemon_signal(daemon, SIGSTOP);
    int64_t highest = sql_int(env, "select foldd.head()");
    if (_i == 0)
        sql_wait(env, "t", "select seq = foldd.head() from foldd.cursor");
    bool saved = sql_int(env, "select seq from foldd.cursor") == highest;
    run_tool(env, env_printf(env, "%s/psql -X -q -1 -v ON_ERROR_STOP=1 -f %s '%s'",
                             cluster_bindir(), dump, env->conninfo));
    if (_i == 1)
        daemon_signal(daemon, SIGCONT);
    if (!saved) {
        sql_wait(env, "t", "select epoch > 1 or seq > %d from foldd.leader, foldd.cursor",
                 BEFORE + UNFOLDED);
        expect_sql(env, "t", "select seq <= foldd.head() from foldd.cursor");
    }
    const json_t *reply =
        ask(conn, "{'document':'new','id':'new','action':'update','fields':{'n':1}}");
    ck_assert_int_gt(reply_int(reply, "seq"), highest);
    for (int i = BEFORE + UNFOLDED + AFTER - RETRIED; i < load->count; i++)
        load->seqs[i] = 0;
    load_send(load, conn, BEFORE + UNFOLDED + AFTER - RETRIED, RETRIED);
    barrier(conn);
    expect_sql(env, env_printf(env, "%d", BEFORE + UNFOLDED + RETRIED + 1),
               "select count(*) from foldd.operations");
    expect_model(env);
    daemon_stop(daemon);
    daemon_again(daemon);
    barrier(conn_open(daemon));
    expect_model(env);
    load_free(load);
    env_free(env);
}
END_TEST

/* B8: somebody deletes the oldest rows of the log, folded ones and ones that wait: the first that
 * is left is folded next, and nothing waits for what is gone; _i: running, or restarted */
START_TEST(oldest_rows_deleted)
{
    enum { EACH = 200 };
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    for (int i = 0; i < 2 * EACH; i++) {
        if (i == EACH)
            expect(ask(conn, "{'request':'pause','what':'folding'}"), "{'ok':true}");
        expect(ask(conn, "{'document':'d%d','id':'i%d','action':'update','fields':{'k%d':1}}",
                   i % 20, i, i),
               "{'ok':true}");
        if (i == EACH - 1)
            barrier(conn);
    }
    sql(env, "delete from foldd.operations where seq <= %d", EACH + 50);
    if (_i == 1) {
        daemon_kill(daemon);
        daemon_again(daemon);
        conn = conn_open(daemon);
    }
    expect(ask(conn, "{'request':'resume','what':'folding'}"), "{'ok':true}");
    barrier(conn);
    expect(ask(conn, "{'request':'status'}"), "{'lag':0,'parked':0,'queued':0,'running':0}");
    expect_sql(env, "t",
               "select bool_and(d.fields ? ('k' || (o.seq - 1)) and d.version >= o.seq)"
               " from foldd.operations o left join foldd.documents d on d.id = o.document");
    expect_sql(env, env_printf(env, "%d", 2 * EACH - 50),
               "select sum(revision) from foldd.documents");
    env_free(env);
}
END_TEST

/* B9: the cursor on disk keeps up under load with many workers, and what a restart does again is
 * little and harmless */
START_TEST(cursor_keeps_up)
{
    enum { OPS = 60000, STEP = 2000, LAG_MAX = 30000 };
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, "workers=16", NULL);
    struct load *load = load_new(env, "c", 2000, OPS);
    struct conn *conn = conn_open(daemon);
    int64_t last = 0;
    int rises = 0;
    for (int at = 0; at < OPS; at += STEP) {
        load_send(load, conn, at, STEP);
        int64_t now = sql_int(env, "select seq from foldd.cursor");
        ck_assert_int_ge(now, last);
        ck_assert_msg(at + STEP - now <= LAG_MAX, "the cursor is %lld at %d", (long long)now, at);
        rises += now > last;
        last = now;
    }
    ck_assert_int_ge(rises, 3);
    daemon_kill(daemon);
    int64_t left = OPS - sql_int(env, "select seq from foldd.cursor");
    daemon_again(daemon);
    conn = conn_open(daemon);
    barrier(conn);
    ck_assert_int_le(status_int(conn, "tasks"), left);
    expect_load(load, 0);
    expect_model(env);
    load_free(load);
    env_free(env);
}
END_TEST

/* C11: wherever the numbers are, every request takes and gives them exactly */
START_TEST(numbers_far_up)
{
    static const long long bases[] = {2147483640, 3000000000, 9007199254740992};
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    expect(ask(conn_open(daemon), "{'document':'low','action':'update','fields':{}}"),
           "{'ok':true}");
    daemon_stop(daemon);
    sql(env, "update foldd.ledger set head = %lld; update foldd.cursor set seq = %lld", bases[_i],
        bases[_i]);
    daemon_again(daemon);
    struct conn *conn = conn_open(daemon);
    struct load *load = load_new(env, "n", 5, 40);
    load_send(load, conn, 0, 20);
    barrier(conn);
    sql(env, "create function public.poison() returns trigger language plpgsql as"
             " $$ begin raise exception 'poisoned'; end $$;"
             "create trigger poison before insert or update on foldd.documents for each row"
             " when (new.fields ? 'bad') execute function public.poison()");
    long long bad = reply_int(
        ask(conn, "{'document':'bad','id':'x','action':'update','fields':{'bad':1}}"), "seq");
    ck_assert_int_eq(bad, bases[_i] + 21);
    expect(ask(conn, "{'document':'L1','action':'update','fields':{},'ack':'folded'}"),
           "{'outcome':'folded','seq':%lld}", bad + 1);
    expect(ask(conn, "{'request':'await','seq':%lld}", bad), "{'outcome':'parked','seq':%lld}",
           bad);
    const json_t *parked = json_object_get(ask(conn, "{'request':'parked'}"), "parked");
    expect(json_array_get(parked, 0), "{'document':'bad','seq':%lld}", bad);
    expect(ask(conn, "{'request':'status'}"), "{'head':%lld,'cursor':%lld,'lag':0}", bad + 1,
           bad + 1);
    expect(ask(conn, "{'request':'skip','document':'bad','seq':%lld,'reason':'r'}", bad),
           "{'ok':true}");
    sql_wait(env, "0", "select count(*) from foldd.parked");
    expect(ask(conn, "{'request':'operation','document':'bad','id':'x'}"),
           "{'seq':%lld,'outcome':'skipped'}", bad);
    expect(ask(conn, "{'request':'get','document':'L1'}"), "{'version':%lld}", bad + 1);
    expect(ask(conn, "{'request':'barrier'}"), "{'seq':%lld}", bad + 1);
    poison_heal(env);
    for (int round = 0; round < 2; round++) {
        if (round == 0)
            daemon_stop(daemon);
        else
            daemon_kill(daemon);
        daemon_again(daemon);
        conn = conn_open(daemon);
        load_send(load, conn, round * 10, 20);
        barrier(conn);
        expect(ask(conn, "{'request':'status'}"), "{'lag':0,'parked':0}");
    }
    env_free(env);
    load_free(load);
}
END_TEST

/* C11: an operation repeated any number of times takes no number */
START_TEST(repeats_burn_no_numbers)
{
    enum { REPEATS = 20000 };
    struct env *env = ENV();
    struct conn *conn = conn_open(daemon_start(env, NULL));
    const char *line = "{'document':'d','id':'x','action':'update','fields':{'n':1}}";
    expect(ask(conn, "%s", line), "{'ok':true,'seq':1}");
    for (int i = 0; i < REPEATS; i++)
        conn_line(conn, "%s", line);
    conn_flush(conn);
    for (int i = 0; i < REPEATS; i++)
        expect(conn_read(conn), "{'ok':true,'seq':1,'duplicate':true}");
    expect(ask(conn, "{'document':'d','id':'y','action':'update','fields':{'n':1}}"),
           "{'ok':true,'seq':2}");
    env_free(env);
}
END_TEST

Suite *log_suite(void)
{
    Suite *suite = suite_create("log");
    TCase *holes = tcase_create("holes");
    tcase_set_timeout(holes, 120);
    tcase_add_test(holes, reader_of_the_log_finds_no_hole);
    tcase_add_loop_test(holes, commit_that_hangs_is_not_passed, 0, 2);
    tcase_add_loop_test(holes, dump_restored_under_a_running_daemon, 0, 2);
    tcase_add_loop_test(holes, oldest_rows_deleted, 0, 2);
    suite_add_tcase(suite, holes);
    TCase *numbers = tcase_create("numbers");
    tcase_set_timeout(numbers, 120);
    tcase_add_test(numbers, cursor_keeps_up);
    tcase_add_loop_test(numbers, numbers_far_up, 0, 3);
    tcase_add_test(numbers, repeats_burn_no_numbers);
    suite_add_tcase(suite, numbers);
    return suite;
}
