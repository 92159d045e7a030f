/* SPDX-License-Identifier: MIT */
/* Documents that do not fold, and tables and rows that others hold (design.md 7; R12, R16, R17). */
#include "suites.h"

#include "model.h"

#include <stdlib.h>
#include <string.h>

enum { OTHERS = 20 };

/* One more update of d7 and of the others around it, all acknowledged. */
static void write_round(struct conn *conn, int round)
{
    for (int i = 0; i < OTHERS; i++)
        conn_line(conn, "{'document':'d%d','id':'r%d','action':'update','fields':{'n':%d}}", i,
                  round, round);
    conn_flush(conn);
    for (int i = 0; i < OTHERS; i++)
        expect(conn_read(conn), "{'ok':true}");
}

/* The others have the round, and the cursor passed everything. */
static void expect_others_go_on(struct env *env, struct conn *conn, int round)
{
    sql_wait(env, env_printf(env, "%d", OTHERS - 1),
             "select count(*) from foldd.documents where id <> 'd7' and fields ->> 'n' = '%d'",
             round);
    status_wait(conn, "lag", 0);
}

/* B5, B6, scenarios 43 and 45 */
START_TEST(poisoned_document_is_parked_alone)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    write_round(conn, 0);
    barrier(conn);
    poison_make(env, "d7");
    write_round(conn, 1);
    expect_others_go_on(env, conn, 1);
    sql_wait(env, "default|d7|P0001|t|t",
             "select concat_ws('|', p.collection, p.document, sqlstate, message like '%%poisoned"
             " d7%%', p.seq = o.seq) from foldd.parked p, foldd.operations o"
             " where o.document = 'd7' and o.id = 'r1'");
    expect(ask(conn, "{'request':'status'}"), "{'parked':1,'queued':0,'running':0}");
    for (int round = 2; round < 5; round++) {
        write_round(conn, round);
        expect_others_go_on(env, conn, round);
    }
    for (int round = 1; round < 5; round++) {
        const json_t *reply = ask(conn, "{'request':'await','document':'d7','id':'r%d'}", round);
        expect(reply, "{'ok':true,'outcome':'parked','sqlstate':'P0001'}");
        ck_assert(json_is_string(json_object_get(reply, "reason")));
    }
    expect(ask(conn, "{'document':'d7','id':'r5','action':'update','fields':{'n':5},"
                     "'ack':'folded'}"),
           "{'ok':true,'outcome':'parked','sqlstate':'P0001'}");
    expect(ask(conn, "{'request':'operation','document':'d7','id':'r5'}"), "{'outcome':'parked'}");
    expect_sql(env, "0", "select fields ->> 'n' from foldd.documents where id = 'd7'");
    expect_sql(env, "1", "select count(*) from foldd.parked");
    poison_heal(env);
    sql_wait(env, "0", "select count(*) from foldd.parked");
    expect(ask(conn, "{'request':'await','document':'d7','id':'r5'}"), "{'outcome':'folded'}");
    barrier(conn);
    status_wait(conn, "parked", 0);
    expect_model(env);
    env_free(env);
}
END_TEST

/* B5, R11: parked, then more operations, a restart, more operations: none is folded over the gap */
START_TEST(parked_document_survives_restarts)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    write_round(conn, 0);
    barrier(conn);
    poison_make(env, "d7");
    for (int round = 1; round < 7; round++) {
        write_round(conn, round);
        if (round < 6) /* later it is healed, and may be folded already */
            sql_wait(env, "1", "select count(*) from foldd.parked");
        expect_others_go_on(env, conn, round);
        if (round % 2 == 0)
            daemon_stop(daemon);
        else
            daemon_kill(daemon);
        if (round == 5)
            poison_heal(env);
        daemon_again(daemon);
        conn = conn_open(daemon);
        if (round < 5)
            expect_sql(env, "0", "select fields ->> 'n' from foldd.documents where id = 'd7'");
    }
    sql_wait(env, "0", "select count(*) from foldd.parked");
    barrier(conn);
    expect_model(env);
    env_free(env);
}
END_TEST

/* Scenario 43: of the culprit's own operations, those before the failing one stay folded */
START_TEST(operations_before_the_failing_one_stay)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    expect(ask(conn, "{'document':'d7','action':'create','fields':{}}"), "{'ok':true}");
    barrier(conn);
    sql(env, "create function public.poison() returns trigger language plpgsql as"
             " $$ begin raise exception 'no threes' using errcode = '22012'; end $$;"
             "create trigger poison before insert or update on foldd.documents for each row"
             " when ((new.fields ->> 'n')::int >= 3) execute function public.poison()");
    PGconn *session = sql_session(env);
    sql_in(session, "begin; lock table foldd.documents in share mode");
    for (int i = 1; i <= 5; i++)
        expect(ask(conn, "{'document':'d7','id':'i%d','action':'update','fields':{'n':%d}}", i, i),
               "{'ok':true}");
    sql_in(session, "rollback");
    sql_wait(env, "t",
             "select p.seq = o.seq and sqlstate = '22012' from foldd.parked p, foldd.operations o"
             " where o.id = 'i3'");
    expect_sql(env, "{\"n\": 2}", "select fields from foldd.documents");
    for (int i = 1; i <= 5; i++)
        expect(ask(conn, "{'request':'await','document':'d7','id':'i%d'}", i), "{'outcome':'%s'}",
               i < 3 ? "folded" : "parked");
    poison_heal(env);
    sql_wait(env, "0", "select count(*) from foldd.parked");
    barrier(conn);
    expect_model(env);
    env_free(env);
}
END_TEST

/* Scenario 36: waiters that were there before the failure are told, all at once */
START_TEST(waiters_are_told_of_parking)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    expect(ask(conn, "{'document':'other','action':'create','fields':{}}"), "{'ok':true}");
    barrier(conn);
    poison_make(env, "d7");
    struct conn *waiters[10];
    for (int i = 0; i < 10; i++) {
        waiters[i] = conn_open(daemon);
        conn_line(waiters[i], "{'request':'await','document':'d7','id':'x'}");
        conn_flush(waiters[i]);
    }
    expect(ask(conn, "{'document':'d7','id':'x','action':'create','fields':{},'ack':'folded'}"),
           "{'ok':true,'outcome':'parked','sqlstate':'P0001'}");
    for (int i = 0; i < 10; i++)
        expect(conn_read(waiters[i]), "{'ok':true,'outcome':'parked','sqlstate':'P0001'}");
    env_free(env);
}
END_TEST

/* B6, scenario 47: a poison does not fill the log; attempts show in SQL with growing pauses */
START_TEST(parked_document_backs_off)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    write_round(conn, 0);
    barrier(conn);
    poison_make(env, "d7");
    write_round(conn, 1);
    sql_wait(env, "t", "select attempts >= 3 from foldd.parked");
    expect_sql(env, "t", "select next_try > now() from foldd.parked");
    write_round(conn, 2);
    expect_others_go_on(env, conn, 2);
    char *log = file_read(daemon->log);
    int lines = 0;
    for (const char *c = log; *c != '\0'; c++)
        lines += *c == '\n';
    ck_assert_int_lt(lines, 50);
    free(log);
    env_free(env);
}
END_TEST

/* R16: what stops every fold is nobody's fault. _i: how the table is held */
START_TEST(locked_table_parks_nobody)
{
    static const char *const holds[] = {
        "begin; lock table foldd.documents in share mode",
        "begin; create index on foldd.documents ((fields ->> 'n'))",
        "begin; lock table foldd.documents in access exclusive mode",
    };
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, "lock_timeout=300ms", NULL);
    struct conn *conn = conn_open(daemon);
    write_round(conn, 0);
    barrier(conn);
    PGconn *session = sql_session(env);
    sql_in(session, "%s", holds[_i]);
    write_round(conn, 1);
    sql_stays(env, 2500, "0", "select count(*) from foldd.parked");
    expect(ask(conn, "{'request':'status'}"), "{'parked':0}");
    if (_i < 2) /* the third keeps out readers as well */
        expect(ask(conn, "{'request':'await','document':'d3','id':'r1','timeout_ms':0}"),
               "{'outcome':'timeout','state':'queued'}");
    write_round(conn, 2);
    sql_in(session, "commit");
    barrier(conn);
    expect_sql(env, "0", "select count(*) from foldd.parked");
    expect_model(env);
    env_free(env);
}
END_TEST

/* R16: dropped rights on the table are the database's state too */
START_TEST(lost_rights_park_nobody)
{
    struct env *env = ENV();
    const char *role = env_printf(env, "r_%s", env->name);
    sql(env, "create role %s login; grant create on database \"%s\" to %s", role, env->database,
        role);
    struct daemon *daemon = daemon_start(
        env,
        env_printf(env, "database=host=%s user=%s dbname=%s", PQhost(env->db), role, env->database),
        NULL);
    struct conn *conn = conn_open(daemon);
    write_round(conn, 0);
    barrier(conn);
    sql(env,
        "alter table foldd.documents owner to postgres;"
        "revoke all on foldd.documents from %s",
        role);
    write_round(conn, 1);
    sql_stays(env, 2000, "0", "select count(*) from foldd.parked");
    sql(env, "alter table foldd.documents owner to %s", role);
    barrier(conn);
    expect_model(env);
    daemon_stop(daemon);
    sql(env, "reassign owned by %s to postgres; drop owned by %s; drop role %s", role, role, role);
    env_free(env);
}
END_TEST

/* R17: a locked row is the same task until lock_timeout, then it alone is parked; _i: held or
 * uncommitted row */
START_TEST(locked_row_is_parked_after_lock_timeout)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, "lock_timeout=1s", NULL);
    struct conn *conn = conn_open(daemon);
    write_round(conn, 0);
    expect(ask(conn, "{'document':'x','action':'create','fields':{}}"), "{'ok':true}");
    barrier(conn);
    PGconn *session = _i == 0 ? lock_rows(env, "'d7'") : lock_absent_rows(env, "'d7b'");
    const char *locked = _i == 0 ? "d7" : "d7b";
    int64_t start = now_ms();
    expect(ask(conn, "{'document':'%s','id':'r1','action':'update','fields':{'n':1}}", locked),
           "{'ok':true}");
    for (int i = 0; i < OTHERS; i++)
        expect(ask(conn, "{'document':'o%d','action':'update','fields':{'n':1},'ack':'folded'}", i),
               "{'outcome':'folded'}");
    ck_assert_msg(now_ms() - start < 900, "the others waited for the locked row");
    expect_sql(env, "0", "select count(*) from foldd.parked");
    expect(ask(conn, "{'request':'await','document':'%s','id':'r1'}", locked),
           "{'outcome':'parked','sqlstate':'55P03'}");
    ck_assert_int_ge(now_ms() - start, 900);
    expect_sql(env, env_printf(env, "%s|55P03", locked),
               "select document || '|' || sqlstate from foldd.parked");
    status_wait(conn, "lag", 0);
    sql_in(session, "rollback");
    sql_wait(env, "0", "select count(*) from foldd.parked");
    barrier(conn);
    expect_model(env);
    env_free(env);
}
END_TEST

/* R17: released in time, nothing is parked, and many locked rows among many more cost little */
START_TEST(locked_rows_released_in_time)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, "lock_timeout=60s", NULL);
    struct conn *conn = conn_open(daemon);
    enum { DOCUMENTS = 2000 };
    for (int round = 0; round < 2; round++) {
        PGconn *session = round == 0 ? NULL : lock_rows(env, "'d3','d500','d501','d777','d1999'");
        int64_t start = now_ms();
        for (int i = 0; i < DOCUMENTS; i++)
            conn_line(conn, "{'document':'d%d','action':'update','fields':{'n%d':%d}}", i, round,
                      i);
        conn_flush(conn);
        for (int i = 0; i < DOCUMENTS; i++)
            expect(conn_read(conn), "{'ok':true}");
        sql_wait(env, env_printf(env, "%d", round == 0 ? DOCUMENTS : DOCUMENTS - 5),
                 "select count(*) from foldd.documents where revision = %d", round + 1);
        ck_assert_int_lt(now_ms() - start, 5000);
        if (session != NULL)
            sql_in(session, "rollback");
        barrier(conn);
    }
    expect_sql(env, "0", "select count(*) from foldd.parked");
    expect_model(env);
    env_free(env);
}
END_TEST

/* R12: the parked row goes only with the last operation, whenever kill -9 comes */
START_TEST(kill_while_a_parked_document_heals)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    write_round(conn, 0);
    barrier(conn);
    for (int round = 1; round <= 8; round++) {
        poison_make(env, "d7");
        write_round(conn, round * 10);
        sql_wait(env, "1", "select count(*) from foldd.parked");
        poison_heal(env);
        write_round(conn, round * 10 + 1);
        if (round % 2 == 0)
            sql_wait(env, "0", "select count(*) from foldd.parked");
        daemon_kill(daemon);
        daemon_again(daemon);
        conn = conn_open(daemon);
        sql_wait(env, "0", "select count(*) from foldd.parked");
        barrier(conn);
        expect_model(env);
    }
    env_free(env);
}
END_TEST

/* R13: a row that another changed under a fold keeps the truth: the fold reads again */
START_TEST(row_changed_by_hand_is_folded_onto)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    expect(ask(conn, "{'document':'d','action':'create','fields':{'a':1},'ack':'folded'}"),
           "{'ok':true}");
    PGconn *session = sql_session(env);
    sql_in(session, "begin; update foldd.documents set gen = gen + 1,"
                    " fields = fields || '{\"b\":2}'");
    expect(ask(conn, "{'document':'d','id':'u','action':'update','fields':{'c':3}}"),
           "{'ok':true}");
    sql_wait(env, "t", "select count(*) > 0 from pg_locks where not granted");
    sql_in(session, "commit");
    expect(ask(conn, "{'request':'await','document':'d','id':'u'}"), "{'outcome':'folded'}");
    expect_sql(env, "{\"a\": 1, \"b\": 2, \"c\": 3}|2",
               "select concat_ws('|', fields, revision) from foldd.documents");
    env_free(env);
}
END_TEST

Suite *trouble_suite(void)
{
    Suite *suite = suite_create("trouble");
    TCase *poison = tcase_create("poison");
    tcase_set_timeout(poison, 120);
    tcase_add_test(poison, poisoned_document_is_parked_alone);
    tcase_add_test(poison, parked_document_survives_restarts);
    tcase_add_test(poison, operations_before_the_failing_one_stay);
    tcase_add_test(poison, waiters_are_told_of_parking);
    tcase_add_test(poison, parked_document_backs_off);
    tcase_add_test(poison, kill_while_a_parked_document_heals);
    suite_add_tcase(suite, poison);
    TCase *locks = tcase_create("locks");
    tcase_set_timeout(locks, 120);
    tcase_add_loop_test(locks, locked_table_parks_nobody, 0, 3);
    tcase_add_test(locks, lost_rights_park_nobody);
    tcase_add_loop_test(locks, locked_row_is_parked_after_lock_timeout, 0, 2);
    tcase_add_test(locks, locked_rows_released_in_time);
    tcase_add_test(locks, row_changed_by_hand_is_folded_onto);
    suite_add_tcase(suite, locks);
    return suite;
}
