/* SPDX-License-Identifier: MIT */
/* Tasks and the requeue flag (design.md 6; R11; issue 2). */
#include "suites.h"

#include "model.h"

#include <stdlib.h>

static const char *const five[] = {
    "{'document':'D1','id':'C1','action':'create','fields':{'c':1}}",
    "{'document':'D1','id':'U2','action':'update','fields':{'u':2}}",
    "{'document':'D2','id':'C1','action':'create','fields':{'c':1}}",
    "{'document':'D1','id':'U3','action':'update','fields':{'u':3}}",
    "{'document':'D2','id':'U2','action':'update','fields':{'u':2}}",
};

static void expect_both_complete(struct env *env)
{
    expect_sql(env, "{\"c\": 1, \"u\": 3}", "select fields from foldd.documents where id = 'D1'");
    expect_sql(env, "{\"c\": 1, \"u\": 2}", "select fields from foldd.documents where id = 'D2'");
    expect_sql(env, "0", "select count(*) from foldd.parked");
    expect_model(env);
}

/* A daemon whose D1 and D2 have one operation each, and a running task each that stands still. */
static void begin_paused(struct conn *conn)
{
    for (int i = 1; i <= 2; i++)
        expect(ask(conn, "{'document':'D%d','id':'first','action':'create','fields':{}}", i),
               "{'ok':true}");
}

/* A1, R11, scenario 2: the rows are held by FOR UPDATE while the five arrive */
START_TEST(five_operations_behind_held_rows_are_two_tasks)
{
    struct env *env = ENV();
    struct conn *conn = conn_open(daemon_start(env, "lock_timeout=60s", NULL));
    for (int i = 1; i <= 2; i++)
        expect(ask(conn, "{'document':'D%d','action':'create','fields':{}}", i), "{'ok':true}");
    barrier(conn);
    int64_t before = status_int(conn, "tasks");
    PGconn *session = lock_rows(env, "'D1','D2'");
    begin_paused(conn);
    status_wait(conn, "tasks", before + 2);
    for (int i = 0; i < 5; i++)
        expect(ask(conn, "%s", five[i]), "{'ok':true}");
    status_wait(conn, "requeue", 2);
    ck_assert_int_eq(status_int(conn, "tasks"), before + 2);
    sql_in(session, "rollback");
    barrier(conn);
    ck_assert_int_eq(status_int(conn, "tasks"), before + 4);
    ck_assert_int_eq(status_int(conn, "requeue"), 0);
    expect_both_complete(env);
    env_free(env);
}
END_TEST

/* The same with rows that somebody else inserted and has not committed */
START_TEST(five_operations_behind_uncommitted_rows_are_two_tasks)
{
    struct env *env = ENV();
    struct conn *conn = conn_open(daemon_start(env, "lock_timeout=60s", NULL));
    expect(ask(conn, "{'document':'other','action':'create','fields':{}}"), "{'ok':true}");
    barrier(conn);
    int64_t before = status_int(conn, "tasks");
    PGconn *session = lock_absent_rows(env, "'D1','D2'");
    begin_paused(conn);
    status_wait(conn, "tasks", before + 2);
    for (int i = 0; i < 5; i++)
        expect(ask(conn, "%s", five[i]), "{'ok':true}");
    status_wait(conn, "requeue", 2);
    ck_assert_int_eq(status_int(conn, "tasks"), before + 2);
    sql_in(session, "rollback");
    barrier(conn);
    ck_assert_int_eq(status_int(conn, "tasks"), before + 4);
    expect_both_complete(env);
    env_free(env);
}
END_TEST

/* Scenario 2 as it is written: four runs in all, when the first two stand inside the fold itself */
START_TEST(five_operations_into_standing_folds_are_four_runs)
{
    struct env *env = ENV();
    struct conn *conn = conn_open(daemon_start(env, NULL));
    expect(ask(conn, "{'document':'other','action':'create','fields':{}}"), "{'ok':true}");
    barrier(conn);
    gate_make(env, "^D");
    int64_t before = status_int(conn, "tasks");
    expect(ask(conn, "%s", five[0]), "{'ok':true}");
    status_wait(conn, "running", 1);
    expect(ask(conn, "%s", five[1]), "{'ok':true}");
    expect(ask(conn, "%s", five[2]), "{'ok':true}");
    status_wait(conn, "running", 2);
    expect(ask(conn, "%s", five[3]), "{'ok':true}");
    expect(ask(conn, "%s", five[4]), "{'ok':true}");
    status_wait(conn, "requeue", 2);
    ck_assert_int_eq(status_int(conn, "tasks"), before + 2);
    gate_open(env);
    barrier(conn);
    ck_assert_int_eq(status_int(conn, "tasks"), before + 4);
    expect_both_complete(env);
    env_free(env);
}
END_TEST

/* A1: a wait made before the release returns only when its operation is there */
START_TEST(wait_made_during_the_pause_is_not_early)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, "lock_timeout=60s", NULL);
    struct conn *conn = conn_open(daemon);
    struct conn *waiter = conn_open(daemon);
    expect(ask(conn, "{'document':'d','action':'create','fields':{}}"), "{'ok':true}");
    barrier(conn);
    PGconn *session = lock_rows(env, "'d'");
    for (int i = 1; i <= 3; i++)
        expect(ask(conn, "{'document':'d','id':'u%d','action':'update','fields':{'n':%d}}", i, i),
               "{'ok':true}");
    conn_line(waiter, "{'request':'await','document':'d','id':'u3'}");
    conn_flush(waiter);
    for (int i = 0; i < 20; i++)
        expect(ask(conn, "{'document':'o','action':'update','fields':{'n':%d},'ack':'folded'}", i),
               "{'outcome':'folded'}");
    ck_assert(!conn_has_reply(waiter));
    sql_in(session, "rollback");
    expect(conn_read(waiter), "{'outcome':'folded'}");
    expect_sql(env, "3", "select fields ->> 'n' from foldd.documents where id = 'd'");
    env_free(env);
}
END_TEST

/* A3, scenario 3: however many arrive during one run, there is one more; _i: held row or gate */
START_TEST(ten_thousand_updates_during_one_run_are_one_task)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, "lock_timeout=60s", NULL);
    struct conn *conn = conn_open(daemon);
    expect(ask(conn, "{'document':'d','action':'create','fields':{}}"), "{'ok':true}");
    barrier(conn);
    int64_t before = status_int(conn, "tasks");
    PGconn *session = _i == 0 ? lock_rows(env, "'d'") : NULL;
    if (_i == 1)
        gate_make(env, "^d$");
    expect(ask(conn, "{'document':'d','action':'update','fields':{'n':0}}"), "{'ok':true}");
    status_wait(conn, "tasks", before + 1);
    for (int i = 1; i <= 10000; i++)
        conn_line(conn, "{'document':'d','action':'update','fields':{'n':%d}}", i);
    conn_flush(conn);
    for (int i = 1; i <= 10000; i++)
        expect(conn_read(conn), "{'ok':true}");
    ck_assert_int_eq(status_int(conn, "tasks"), before + 1);
    if (_i == 0)
        sql_in(session, "rollback");
    else
        gate_open(env);
    barrier(conn);
    ck_assert_int_eq(status_int(conn, "tasks"), before + 2);
    expect_sql(env, "10000|10002",
               "select (fields ->> 'n') || '|' || revision"
               " from foldd.documents");
    env_free(env);
}
END_TEST

/* Scenario 7: with one worker, what was queued first is folded no later than what was requeued */
START_TEST(requeued_document_goes_behind)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, "workers=1", NULL);
    struct conn *conn = conn_open(daemon);
    expect(ask(conn, "{'document':'a','action':'create','fields':{}}"), "{'ok':true}");
    barrier(conn);
    gate_make(env, "^a$");
    expect(ask(conn, "{'document':'a','action':'update','fields':{'n':1}}"), "{'ok':true}");
    status_wait(conn, "running", 1);
    enum { QUEUED = 20000 };
    for (int i = 0; i < QUEUED; i++)
        conn_line(conn, "{'document':'q%d','action':'create','fields':{}}", i);
    conn_line(conn, "{'document':'a','action':'update','fields':{'n':2}}");
    conn_flush(conn);
    for (int i = 0; i <= QUEUED; i++)
        expect(conn_read(conn), "{'ok':true}");
    gate_open(env);
    barrier(conn);
    expect_sql(env, "t",
               "select max(xmin::text::bigint) filter (where id <> 'a')"
               " <= max(xmin::text::bigint) filter (where id = 'a') from foldd.documents");
    expect_sql(env, "{\"n\": 2}", "select fields from foldd.documents where id = 'a'");
    env_free(env);
}
END_TEST

/* Scenario 4: an update that arrives just as a task ends is folded, ten thousand times */
START_TEST(update_between_commit_and_completion)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *a = conn_open(daemon);
    struct conn *b = conn_open(daemon);
    for (int i = 0; i < 10000; i++) {
        conn_line(a, "{'document':'d','action':'update','fields':{'n':%d},'ack':'folded'}", i);
        conn_flush(a);
        if (i % 2 == 0)
            conn_line(b, "{'document':'d','action':'update','fields':{'m':%d}}", i);
        conn_flush(b);
        expect(conn_read(a), "{'outcome':'folded'}");
        if (i % 2 == 0)
            expect(conn_read(b), "{'ok':true}");
    }
    barrier(a);
    expect_sql(env, "15000", "select revision from foldd.documents");
    env_free(env);
}
END_TEST

/* Queue operation i of the random schedule: any kind on any of the documents. */
static void queue_random(struct conn *conn, uint64_t *state, int i, int documents)
{
    uint32_t r = next_random(state);
    const char *action = r % 10 == 0 ? "create" : r % 10 == 1 ? "delete" : "update";
    uint32_t key = next_random(state) % 5;
    char *fields = mem_printf(",'fields':{'n':%d,'k%u':%s}", i, key,
                              next_random(state) % 4 == 0 ? "null" : "{'x':1,'y':[2]}");
    conn_line(conn, "{'collection':'c%u','document':'d%u','id':'r%d','action':'%s'%s}",
              next_random(state) % 3, next_random(state) % (uint32_t)documents, i, action,
              r % 10 == 1 ? "" : fields);
    free(fields);
}

/* Note in the sequence probe every fold of a document that runs beside another of the same one: the
 * trigger fires before the row is locked, and tries a lock that the other transaction holds. */
static void probe_make(struct env *env)
{
    sql(env, "create sequence public.probe;"
             "create function public.probe() returns trigger language plpgsql as $$ begin"
             "  if not pg_try_advisory_xact_lock(substr(new.collection, 2)::int,"
             "                                   substr(new.id, 2)::int) then"
             "    perform nextval('public.probe'); end if;"
             "  return new; end $$;"
             "create trigger probe before insert on foldd.documents for each row"
             "  execute function public.probe()");
}

/* Scenario 5, issue 2: a random schedule on several connections ends equal to the model, no
 * document is folded twice at once, and status answers within 100 ms all along */
START_TEST(random_schedule_equals_the_model)
{
    struct env *env = ENV();
    enum { CONNS = 6, OPS = 100000, DOCUMENTS = 334, STEP = 500 };
    struct daemon *daemon = daemon_start(env, "workers=8", NULL);
    struct conn *conns[CONNS];
    int replies[CONNS] = {0};
    int queued[CONNS] = {0};
    for (int i = 0; i < CONNS; i++)
        conns[i] = conn_open(daemon);
    struct conn *watcher = conn_open(daemon);
    probe_make(env);
    uint64_t state = 20260101;
    for (int i = 0; i < OPS; i++) {
        int c = (int)(next_random(&state) % CONNS);
        queue_random(conns[c], &state, i, DOCUMENTS);
        queued[c]++;
        if (i % STEP != STEP - 1)
            continue;
        for (int k = 0; k < CONNS; k++)
            conn_flush(conns[k]);
        int64_t asked = now_ms();
        expect(ask(watcher, "{'request':'status'}"), "{'ok':true,'parked':0}");
        ck_assert_int_le(now_ms() - asked, 100);
        for (int k = 0; k < CONNS; k++) {
            for (; conn_has_reply(conns[k]); replies[k]++)
                expect(conn_read(conns[k]), "{'ok':true}");
        }
    }
    for (int k = 0; k < CONNS; k++) {
        conn_flush(conns[k]);
        for (; replies[k] < queued[k]; replies[k]++)
            expect(conn_read(conns[k]), "{'ok':true}");
    }
    barrier(watcher);
    expect_sql(env, env_printf(env, "%d|%d", OPS, OPS),
               "select count(*) || '|' || count(distinct id) from foldd.operations");
    expect_sql(env, "f", "select is_called from public.probe");
    expect_model(env);
    ck_assert_int_le(daemon_proc_status(daemon, "VmHWM"), TEST_RSS_MAX_KIB);
    env_free(env);
}
END_TEST

Suite *requeue_suite(void)
{
    Suite *suite = suite_create("requeue");
    TCase *tasks = tcase_create("tasks");
    tcase_set_timeout(tasks, 120);
    tcase_add_test(tasks, five_operations_behind_held_rows_are_two_tasks);
    tcase_add_test(tasks, five_operations_behind_uncommitted_rows_are_two_tasks);
    tcase_add_test(tasks, five_operations_into_standing_folds_are_four_runs);
    tcase_add_test(tasks, wait_made_during_the_pause_is_not_early);
    tcase_add_loop_test(tasks, ten_thousand_updates_during_one_run_are_one_task, 0, 2);
    tcase_add_test(tasks, requeued_document_goes_behind);
    suite_add_tcase(suite, tasks);
    TCase *random = tcase_create("random");
    tcase_set_timeout(random, 300);
    tcase_add_test(random, update_between_commit_and_completion);
    tcase_add_test(random, random_schedule_equals_the_model);
    suite_add_tcase(suite, random);
    return suite;
}
