/* SPDX-License-Identifier: MIT */
/* Idempotency: the same id again, in every way it can come (design.md 3 and 5; R8). */
#include "suites.h"

#include "harness.h"

#include <signal.h>
#include <string.h>

#define CREATE "{'document':'d','id':'x','action':'create','fields':{'a':1,'b':[1,2]}}"

static void expect_one_row(struct env *env)
{
    expect_sql(env, "1", "select count(*) from foldd.operations");
}

/* Scenario 17, C3 */
START_TEST(same_line_again_gets_the_first_receipt)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    long long seq = reply_int(ask(conn, CREATE), "seq");
    ck_assert_ptr_null(json_object_get(conn->json, "duplicate"));
    for (int i = 0; i < 3; i++)
        expect(ask(conn, CREATE), "{'ok':true,'seq':%lld,'id':'x','duplicate':true}", seq);
    expect(ask(conn_open(daemon), CREATE), "{'ok':true,'seq':%lld,'duplicate':true}", seq);
    daemon_stop(daemon);
    daemon_again(daemon);
    expect(ask(conn_open(daemon), CREATE), "{'ok':true,'seq':%lld,'duplicate':true}", seq);
    daemon_kill(daemon);
    daemon_again(daemon);
    conn = conn_open(daemon);
    expect(ask(conn, CREATE), "{'ok':true,'seq':%lld,'duplicate':true}", seq);
    barrier(conn);
    expect_one_row(env);
    expect_sql(env, "1", "select revision from foldd.documents");
    env_free(env);
}
END_TEST

/* R8, C7: the same id twice in one write never shares a batch with itself */
START_TEST(same_line_pipelined_in_one_write)
{
    struct env *env = ENV();
    struct conn *conn = conn_open(daemon_start(env, NULL));
    for (int round = 0; round < 100; round++) {
        for (int i = 0; i < 5; i++)
            conn_line(conn, "{'document':'d%d','id':'x','action':'create','fields':{'a':1}}",
                      round);
        conn_flush(conn);
        const json_t *first = conn_read(conn);
        long long seq = reply_int(first, "seq");
        ck_assert_ptr_null(json_object_get(first, "duplicate"));
        for (int i = 1; i < 5; i++)
            expect(conn_read(conn), "{'ok':true,'seq':%lld,'duplicate':true}", seq);
    }
    expect_sql(env, "100", "select count(*) from foldd.operations");
    env_free(env);
}
END_TEST

/* Scenario 17, C6: one of 16 is first, and all get its receipt */
START_TEST(same_line_on_16_connections)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conns[16];
    for (int i = 0; i < 16; i++)
        conns[i] = conn_open(daemon);
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < 16; i++) {
            conn_line(conns[i], "{'document':'d%d','id':'x','action':'create','fields':{'a':1}}",
                      round);
            conn_flush(conns[i]);
        }
        int64_t seq = 0;
        int firsts = 0;
        for (int i = 0; i < 16; i++) {
            const json_t *reply = conn_read(conns[i]);
            expect(reply, "{'ok':true,'id':'x'}");
            firsts += json_object_get(reply, "duplicate") == NULL;
            ck_assert(seq == 0 || seq == reply_int(reply, "seq"));
            seq = reply_int(reply, "seq");
        }
        ck_assert_int_eq(firsts, 1);
    }
    expect_sql(env, "50", "select count(*) from foldd.operations");
    env_free(env);
}
END_TEST

/* C6: the same id with 16 contents: one is stored, the others conflict */
START_TEST(same_id_with_other_content_on_16_connections)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conns[16];
    for (int i = 0; i < 16; i++)
        conns[i] = conn_open(daemon);
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < 16; i++) {
            conn_line(conns[i], "{'document':'d%d','id':'x','action':'create','fields':{'a':%d}}",
                      round, i);
            conn_flush(conns[i]);
        }
        int winner = -1;
        for (int i = 0; i < 16; i++) {
            const json_t *reply = conn_read(conns[i]);
            if (json_is_true(json_object_get(reply, "ok"))) {
                ck_assert_int_eq(winner, -1);
                winner = i;
            } else {
                expect(reply, "{'ok':false,'error':'conflict'}");
            }
        }
        expect_sql(env, env_printf(env, "%d", winner),
                   "select fields ->> 'a' from foldd.operations where document = 'd%d'", round);
    }
    env_free(env);
}
END_TEST

/* Scenario 18, C4 */
START_TEST(other_content_is_a_conflict)
{
    static const char *const others[] = {
        "{'document':'d','id':'x','action':'create','fields':{'a':2,'b':[1,2]}}",
        "{'document':'d','id':'x','action':'create','fields':{'a':1,'b':[2,1]}}",
        "{'document':'d','id':'x','action':'create','fields':{'a':1}}",
        "{'document':'d','id':'x','action':'create','fields':{}}",
        "{'document':'d','id':'x','action':'create','fields':{'a':'1','b':[1,2]}}",
        "{'document':'d','id':'x','action':'create','fields':{'a':1,'b':[1,2],'c':null}}",
        "{'document':'d','id':'x','action':'update','fields':{'a':1,'b':[1,2]}}",
        "{'document':'d','id':'x','action':'delete'}",
        "{'document':'d','id':'x','action':'create','fields':{'a':1,'b':[1,2]},'meta':{'m':1}}",
    };
    struct env *env = ENV();
    struct conn *conn = conn_open(daemon_start(env, NULL));
    long long seq = reply_int(ask(conn, CREATE), "seq");
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        expect(ask(conn, "%s", others[i]), "{'ok':false,'error':'conflict','line':%d}", 2 + (int)i);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        conn_line(conn, "%s", others[i]);
    conn_line(conn, CREATE);
    conn_flush(conn);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        expect(conn_read(conn), "{'ok':false,'error':'conflict'}");
    expect(conn_read(conn), "{'ok':true,'seq':%lld,'duplicate':true}", seq);
    expect_one_row(env);
    expect_sql(env, "{\"a\": 1, \"b\": [1, 2]}", "select fields from foldd.operations");
    env_free(env);
}
END_TEST

START_TEST(equal_values_in_other_spelling_are_the_same_content)
{
    static const char *const spellings[] = {
        "{'document':'d','id':'x','action':'create','fields':{'p':1.1,'t':'\\u0061b','k':{'x':1,"
        "'y':2}},'meta':{'u':'\\u00e9','v':100}}",
        "{ 'meta' : {'v':1e2,'u':'\xc3\xa9'} , 'fields' : {'k':{'y':2,'x':1},\t'p':1.10,'t':'ab'},"
        " 'action':'create', 'id':'x', 'document':'d' }",
        "{'document':'\\u0064','\\u0069d':'\\u0078','action':'cr\\u0065ate','collection':'default',"
        "'fields':{'p':11e-1,'t':'zz','t':'ab','k':{'x':1.0,'y':2}},'meta':{'u':'\\u00e9',"
        "'v':100}}",
    };
    struct env *env = ENV();
    struct conn *conn = conn_open(daemon_start(env, NULL));
    long long seq = reply_int(ask(conn, "%s", spellings[0]), "seq");
    expect(ask(conn, "%s", spellings[1]), "{'ok':true,'duplicate':true,'seq':%lld}", seq);
    expect(ask(conn, "%s", spellings[2]), "{'ok':true,'duplicate':true,'seq':%lld}", seq);
    expect_one_row(env);
    env_free(env);
}
END_TEST

START_TEST(ids_belong_to_their_document)
{
    struct env *env = ENV();
    struct conn *conn = conn_open(daemon_start(env, NULL));
    for (int i = 0; i < 3; i++) {
        conn_line(conn, "{'document':'d%d','id':'x','action':'create','fields':{'a':%d}}", i, i);
        conn_line(conn,
                  "{'collection':'c','document':'d%d','id':'x','action':'create','fields':{}}", i);
    }
    conn_flush(conn);
    for (int i = 0; i < 6; i++) {
        expect(conn_read(conn), "{'ok':true}");
        ck_assert_ptr_null(json_object_get(conn->json, "duplicate"));
    }
    expect_sql(env, "6", "select count(*) from foldd.operations");
    env_free(env);
}
END_TEST

/* C15, scenario 19: the client dies before the answers and sends all of it again, shuffled with new
 */
START_TEST(client_dies_before_the_answers)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    for (int i = 0; i < 100; i++)
        conn_line(conn, "{'document':'d%d','id':'i%d','action':'update','fields':{'n':%d}}", i % 9,
                  i, i);
    conn_flush(conn);
    conn_reset(conn);
    conn = conn_open(daemon);
    for (int i = 0; i < 200; i++) {
        int n = i * 7 % 200;
        conn_line(conn, "{'document':'d%d','id':'i%d','action':'update','fields':{'n':%d}}", n % 9,
                  n, n);
    }
    conn_flush(conn);
    for (int i = 0; i < 200; i++)
        expect(conn_read(conn), "{'ok':true,'id':'i%d'}", i * 7 % 200);
    expect_sql(env, "200|200",
               "select count(*) || '|' || count(distinct (document, id))"
               " from foldd.operations");
    env_free(env);
}
END_TEST

/* C2: the retry arrives while the first is still in flight */
START_TEST(retry_while_the_first_is_in_flight)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *first = conn_open(daemon);
    struct conn *second = conn_open(daemon);
    PGconn *session = sql_session(env);
    sql_in(session, "begin; lock table foldd.operations in share mode");
    conn_line(first, CREATE);
    conn_flush(first);
    sql_wait(env, "1",
             "select count(*) from pg_locks where not granted and"
             " relation = 'foldd.operations'::regclass");
    conn_line(second, CREATE);
    conn_line(second, "{'document':'d','id':'x','action':'delete'}");
    conn_flush(second);
    expect(ask(conn_open(daemon), "{'request':'ping'}"), "{'ok':true}");
    sql_in(session, "rollback");
    long long seq = reply_int(conn_read(first), "seq");
    expect(conn_read(second), "{'ok':true,'seq':%lld,'duplicate':true}", seq);
    expect(conn_read(second), "{'ok':false,'error':'conflict'}");
    expect_one_row(env);
    env_free(env);
}
END_TEST

/* A duplicate is answered with the outcome of the first, however long ago it was (R18). */
START_TEST(duplicate_with_ack_folded_gets_the_outcome)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    const char *create = "{'document':'d','id':'c','action':'create','fields':{},'ack':'folded'}";
    const char *late = "{'document':'d','id':'u','action':'update','fields':{},'ack':'folded'}";
    expect(ask(conn, "%s", create), "{'ok':true,'outcome':'folded'}");
    expect(ask(conn, "{'document':'d','action':'delete'}"), "{'ok':true}");
    expect(ask(conn, "%s", late), "{'ok':true,'outcome':'ignored'}");
    for (int round = 0; round < 2; round++) {
        expect(ask(conn, "%s", create), "{'ok':true,'duplicate':true,'outcome':'folded'}");
        expect(ask(conn, "%s", late), "{'ok':true,'duplicate':true,'outcome':'ignored'}");
        ck_assert(json_is_string(json_object_get(conn->json, "reason")));
        if (round == 0) {
            daemon_stop(daemon);
            daemon_again(daemon);
            conn = conn_open(daemon);
        }
    }
    env_free(env);
}
END_TEST

Suite *ids_suite(void)
{
    Suite *suite = suite_create("ids");
    TCase *tcase = tcase_create("ids");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, same_line_again_gets_the_first_receipt);
    tcase_add_test(tcase, same_line_pipelined_in_one_write);
    tcase_add_test(tcase, same_line_on_16_connections);
    tcase_add_test(tcase, same_id_with_other_content_on_16_connections);
    tcase_add_test(tcase, other_content_is_a_conflict);
    tcase_add_test(tcase, equal_values_in_other_spelling_are_the_same_content);
    tcase_add_test(tcase, ids_belong_to_their_document);
    tcase_add_test(tcase, client_dies_before_the_answers);
    tcase_add_test(tcase, retry_while_the_first_is_in_flight);
    tcase_add_test(tcase, duplicate_with_ack_folded_gets_the_outcome);
    suite_add_tcase(suite, tcase);
    return suite;
}
