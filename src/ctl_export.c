/* SPDX-License-Identifier: MIT */
/*
 * export: the log as lines that import takes.
 *
 * PostgreSQL writes the JSON, so numbers are exact. Pages by seq keep each transaction short, and
 * rows are taken one by one, so memory holds one operation however large the log is. The head is
 * asked for once: what is committed later does not belong to this export.
 */
#include "ctl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <libpq-fe.h>

#define PAGE_ROWS "5000"

static const char page_sql[] = "SELECT seq,\n"
                               "       '{\"collection\":' || to_json(collection)::text\n"
                               "       || ',\"document\":' || to_json(document)::text\n"
                               "       || coalesce(',\"id\":' || to_json(id)::text, '')\n"
                               "       || ',\"action\":' || to_json(action)::text\n"
                               "       || coalesce(',\"fields\":' || fields::text, '')\n"
                               "       || coalesce(',\"meta\":' || meta::text, '')\n"
                               "       || '}'\n"
                               "FROM foldd.operations\n"
                               "WHERE seq >= $1::bigint AND seq <= $2::bigint\n"
                               "ORDER BY seq\n"
                               "LIMIT " PAGE_ROWS;

static bool fail_sql(PGconn *conn, struct err *err)
{
    const char *message = PQerrorMessage(conn);
    size_t len = strcspn(message, "\n");
    return err_set(err, ERR_TRANSIENT, "the database: %.*s", (int)len, message);
}

static bool read_head(PGconn *conn, int64_t *head, struct err *err)
{
    PGresult *result = PQexec(conn, "SELECT coalesce(foldd.head(), 0)");
    bool ok = PQresultStatus(result) == PGRES_TUPLES_OK || fail_sql(conn, err);
    if (ok)
        *head = strtoll(PQgetvalue(result, 0, 0), NULL, 10);
    PQclear(result);
    return ok;
}

static bool send_page(PGconn *conn, int64_t from_seq, int64_t to_seq, struct err *err)
{
    char from[24];
    char to[24];
    snprintf(from, sizeof(from), "%" PRId64, from_seq);
    snprintf(to, sizeof(to), "%" PRId64, to_seq);
    const char *values[] = {from, to};
    return (PQsendQueryParams(conn, page_sql, 2, NULL, values, NULL, NULL, 0) == 1 &&
            PQsetSingleRowMode(conn) == 1) ||
           fail_sql(conn, err);
}

/* Print a page; *from_seq moves behind its last row, or beyond to_seq when the page was empty. */
static bool print_page(PGconn *conn, int64_t *from_seq, int64_t to_seq, struct err *err)
{
    if (!send_page(conn, *from_seq, to_seq, err))
        return false;
    bool ok = true;
    int64_t last = to_seq;
    PGresult *result = NULL;
    while ((result = PQgetResult(conn)) != NULL) {
        ExecStatusType status = PQresultStatus(result);
        if (status == PGRES_SINGLE_TUPLE) {
            last = strtoll(PQgetvalue(result, 0, 0), NULL, 10);
            fwrite(PQgetvalue(result, 0, 1), 1, (size_t)PQgetlength(result, 0, 1), stdout);
            putchar('\n');
        } else if (status != PGRES_TUPLES_OK)
            ok = fail_sql(conn, err);
        PQclear(result);
    }
    *from_seq = last + 1;
    return ok;
}

static bool print_log(const struct ctl *ctl, PGconn *conn, struct err *err)
{
    int64_t to_seq = 0;
    if (!read_head(conn, &to_seq, err))
        return false;
    if (ctl->to_seq >= 0 && ctl->to_seq < to_seq)
        to_seq = ctl->to_seq;
    int64_t from_seq = ctl->from_seq < 0 ? 0 : ctl->from_seq;
    /* A reader that has gone (export | head) is noticed at the end of a page; main reports it. */
    while (from_seq <= to_seq && ferror(stdout) == 0)
        if (!print_page(conn, &from_seq, to_seq, err))
            return false;
    return true;
}

static PGconn *connect_database(const char *conninfo)
{
    const char *keywords[] = {"dbname", "client_encoding", "fallback_application_name", NULL};
    const char *values[] = {conninfo, "UTF8", "foldctl export", NULL};
    return PQconnectdbParams(keywords, values, 1);
}

int ctl_export(const struct ctl *ctl)
{
    struct err err = {0};
    char *conninfo = ctl_database(ctl, &err);
    if (conninfo == NULL)
        return ctl_fail(CTL_LOCAL, "%s", err.message);
    PGconn *conn = connect_database(conninfo);
    bool ok = PQstatus(conn) == CONNECTION_OK ? print_log(ctl, conn, &err) : fail_sql(conn, &err);
    PQfinish(conn);
    free(conninfo);
    return ok ? CTL_OK : ctl_fail(CTL_UNREACHABLE, "%s", err.message);
}
