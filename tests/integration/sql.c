/* SPDX-License-Identifier: MIT */
/* Looking into the database under test, and holding things still in it. */
#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *format_text(const char *format, va_list args) PRINTF(1, 0);

static char *format_text(const char *format, va_list args)
{
    char *text = NULL;
    ck_assert(vasprintf(&text, format, args) >= 0);
    return text;
}

/* The server may just have been restarted by the test: connect until it takes us. */
static PGconn *connected(struct env *env)
{
    for (int64_t end = now_ms() + TEST_WAIT_MS; PQstatus(env->db) != CONNECTION_OK; pause_ms(10)) {
        PQfinish(env->db);
        env->db = PQconnectdb(env->conninfo);
        ck_assert_msg(PQstatus(env->db) == CONNECTION_OK || now_ms() < end, "%s",
                      PQerrorMessage(env->db));
    }
    return env->db;
}

/* The status alone does not tell: libpq may learn of the loss from a failed write only. */
static bool lost(const PGconn *db, const PGresult *result)
{
    return PQstatus(db) != CONNECTION_OK || (PQresultStatus(result) == PGRES_FATAL_ERROR &&
                                             PQresultErrorField(result, PG_DIAG_SQLSTATE) == NULL);
}

/* Given. A query that met the end of a killed session is asked again on a new one; only the
 * harness's own connection is meant, and its queries change nothing that a repeat would double. */
static PGresult *run_query(struct env *env, const char *query)
{
    PGresult *result = PQexec(connected(env), query);
    if (lost(env->db, result)) {
        PQclear(result);
        PQfinish(env->db);
        env->db = NULL;
        result = PQexec(connected(env), query);
    }
    ExecStatusType status = PQresultStatus(result);
    ck_assert_msg(status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK, "%s\nin: %s",
                  PQerrorMessage(env->db), query);
    return result;
}

static const char *first_value(struct env *env, const char *query)
{
    PGresult *result = run_query(env, query);
    const char *value =
        PQntuples(result) > 0 && PQnfields(result) > 0 ? PQgetvalue(result, 0, 0) : "";
    const char *kept = env_keep(env, mem_strdup(value));
    PQclear(result);
    return kept;
}

/* Whether the query's first value is the expected text; frees it, since a poll asks often. */
static bool yields(struct env *env, const char *query, const char *expected, char **actual)
{
    PGresult *result = run_query(env, query);
    const char *value =
        PQntuples(result) > 0 && PQnfields(result) > 0 ? PQgetvalue(result, 0, 0) : "";
    bool equal = strcmp(value, expected) == 0;
    free(*actual);
    *actual = mem_strdup(value);
    PQclear(result);
    return equal;
}

void sql(struct env *env, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *query = format_text(format, args);
    va_end(args);
    PQclear(run_query(env, query));
    free(query);
}

PGresult *sql_rows(struct env *env, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *query = format_text(format, args);
    va_end(args);
    PGresult *result = run_query(env, query);
    free(query);
    return result;
}

const char *sql_text(struct env *env, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *query = format_text(format, args);
    va_end(args);
    const char *value = first_value(env, query);
    free(query);
    return value;
}

int64_t sql_int(struct env *env, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *query = format_text(format, args);
    va_end(args);
    int64_t value = strtoll(first_value(env, query), NULL, 10);
    free(query);
    return value;
}

void expect_sql_at(const char *file, int line, struct env *env, const char *expected,
                   const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *query = format_text(format, args);
    va_end(args);
    char *actual = NULL;
    ck_assert_msg(yields(env, query, expected, &actual), "%s:%d: '%s' expected, '%s' found by: %s",
                  file, line, expected, actual, query);
    free(actual);
    free(query);
}

void sql_wait_at(const char *file, int line, struct env *env, const char *expected,
                 const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *query = format_text(format, args);
    va_end(args);
    char *actual = NULL;
    for (int64_t end = now_ms() + TEST_WAIT_MS; !yields(env, query, expected, &actual); pause_ms(5))
        ck_assert_msg(now_ms() < end, "%s:%d: still '%s' and not '%s': %s", file, line, actual,
                      expected, query);
    free(actual);
    free(query);
}

void sql_stays_at(const char *file, int line, struct env *env, int ms, const char *expected,
                  const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *query = format_text(format, args);
    va_end(args);
    char *actual = NULL;
    for (int64_t end = now_ms() + ms; now_ms() < end; pause_ms(20))
        ck_assert_msg(yields(env, query, expected, &actual), "%s:%d: '%s' and not '%s': %s", file,
                      line, actual, expected, query);
    free(actual);
    free(query);
}

void sql_in(PGconn *session, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *query = format_text(format, args);
    va_end(args);
    PGresult *result = PQexec(session, query);
    ExecStatusType status = PQresultStatus(result);
    ck_assert_msg(status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK, "%s\nin: %s",
                  PQerrorMessage(session), query);
    PQclear(result);
    free(query);
}

void gate_make(struct env *env, const char *id_regex)
{
    sql(env,
        "create sequence public.gate;"
        "create function public.gate() returns trigger language plpgsql as $$ begin"
        "  while not (select is_called from public.gate) loop perform pg_sleep(0.002); end loop;"
        "  return new; end $$;"
        "create trigger gate before insert or update on foldd.documents for each row"
        "  when (new.id ~ '%s') execute function public.gate()",
        id_regex);
}

void gate_open(struct env *env)
{
    sql(env, "select nextval('public.gate')");
}

void poison_make(struct env *env, const char *id)
{
    sql(env,
        "create function public.poison() returns trigger language plpgsql as"
        " $$ begin raise exception 'poisoned %%', new.id; end $$;"
        "create trigger poison before insert or update on foldd.documents for each row"
        " when (new.id = '%s') execute function public.poison()",
        id);
}

void poison_heal(struct env *env)
{
    sql(env, "drop function public.poison() cascade");
}

PGconn *lock_rows(struct env *env, const char *id_list)
{
    PGconn *session = sql_session(env);
    sql_in(session, "begin; select from foldd.documents where id in (%s) for update", id_list);
    return session;
}

PGconn *lock_absent_rows(struct env *env, const char *id_list)
{
    PGconn *session = sql_session(env);
    sql_in(session,
           "begin;"
           "insert into foldd.documents"
           " select (jsonb_populate_record(t.d, jsonb_build_object('id', name))).*"
           " from (select d from foldd.documents d limit 1) t, unnest(array[%s]) name",
           id_list);
    return session;
}
