/* SPDX-License-Identifier: MIT */
/* The SQL by itself. */
#include "suites.h"

#include "harness.h"

/* Migrations create functions unchecked, since one may call what comes later: a function that does
 * not compile would show only when it is called. */
START_TEST(every_function_compiles)
{
    struct env *env = ENV();
    daemon_stop(daemon_start(env, NULL));
    PGresult *functions = sql_rows(env, "select pg_get_functiondef(oid) from pg_proc"
                                        " where pronamespace = 'foldd'::regnamespace"
                                        " and prokind in ('f', 'p') order by proname");
    PGconn *session = sql_session(env);
    sql_in(session, "set check_function_bodies = on");
    ck_assert_int_gt(PQntuples(functions), 10);
    for (int i = 0; i < PQntuples(functions); i++)
        sql_in(session, "%s", PQgetvalue(functions, i, 0));
    PQclear(functions);
    env_free(env);
}
END_TEST

Suite *sql_suite(void)
{
    Suite *suite = suite_create("sql");
    TCase *tcase = tcase_create("sql");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, every_function_compiles);
    suite_add_tcase(suite, tcase);
    return suite;
}
