/* SPDX-License-Identifier: MIT */
/*
 * Looks at the cursor all along: as saved, in SQL, and in memory, by status.
 *
 * A server that crashes may take back the last saves, so that cursors are compared within a life of
 * the server; and foldd then begins a new term from what the database has, so that the cursor of
 * status is compared within a term.
 */
#include <stdlib.h>
#include <string.h>

#include "chaos.h"

enum { LOOK_MS = 10, REPLY_MS = 500, SETTLED_EVERY = 4 };

struct watch {
    struct chaos *chaos;
    struct env env;
    PGconn *db;
    struct conn *conn;
    unsigned life;
    int64_t saved; /* the last one of this life */
    int64_t epoch;
    int64_t cursor; /* of status, the last one of this epoch */
};

struct look {
    int64_t cursor;
    int64_t head;
    int64_t epoch;
};

/* One statement, so one snapshot: a fold has committed before the cursor that counts it. */
static const char query[] =
    "select c.seq, foldd.head(), l.epoch from foldd.cursor c, foldd.leader l";

/* Of the latest operations that the cursor has passed: documents that neither have theirs nor are
 * parked. By document, since the row of a busy one is slow to look up. */
static const char unsettled_query[] =
    "with passed as materialized ("
    "  select o.document, max(o.seq) as seq from foldd.operations o"
    "  where o.seq <= (select seq from foldd.cursor)"
    "  and o.seq > (select seq - 3000 from foldd.cursor) group by o.document)"
    " select o.document, o.seq from passed o"
    " left join foldd.documents d on d.id = o.document and d.collection = 'default'"
    " where o.seq > coalesce(d.version, 0)"
    " and not exists (select from foldd.parked p where p.document = o.document)";

/* The server's last words are in its log. */
static void on_notice(void *arg, const char *message)
{
    (void)arg;
    (void)message;
}

/* Given: the rows, or NULL while the server is not there. */
static PGresult *look_sql(struct watch *watch, const char *text)
{
    if (PQstatus(watch->db) != CONNECTION_OK) {
        PQfinish(watch->db);
        watch->db = PQconnectdb(watch->env.conninfo);
        PQsetNoticeProcessor(watch->db, on_notice, NULL);
    }
    PGresult *rows = PQexec(watch->db, text);
    if (PQresultStatus(rows) == PGRES_TUPLES_OK)
        return rows;
    PQclear(rows);
    return NULL;
}

static bool look_cursor(struct watch *watch, struct look *out)
{
    PGresult *rows = look_sql(watch, query);
    bool ok = rows != NULL && PQntuples(rows) == 1;
    if (ok)
        *out = (struct look){strtoll(PQgetvalue(rows, 0, 0), NULL, 10),
                             strtoll(PQgetvalue(rows, 0, 1), NULL, 10),
                             strtoll(PQgetvalue(rows, 0, 2), NULL, 10)};
    PQclear(rows);
    return ok;
}

static void check_settled(struct watch *watch)
{
    PGresult *rows = look_sql(watch, unsettled_query);
    if (rows != NULL && PQntuples(rows) > 0)
        chaos_fail(watch->chaos, SETTLED, "%d documents, the first is %s with %s", PQntuples(rows),
                   PQgetvalue(rows, 0, 0), PQgetvalue(rows, 0, 1));
    PQclear(rows);
}

static void check_saved(struct watch *watch, const struct look *look, unsigned life)
{
    struct chaos *chaos = watch->chaos;
    if (life == watch->life && look->cursor < watch->saved)
        chaos_fail(chaos, CURSOR_ON_DISK, "from %lld to %lld", (long long)watch->saved,
                   (long long)look->cursor);
    if (look->cursor > look->head)
        chaos_fail(chaos, CURSOR_ON_DISK, "%lld, and the head is %lld", (long long)look->cursor,
                   (long long)look->head);
    watch->life = life;
    watch->saved = look->cursor;
    chaos->counts.samples++;
}

/* Borrowed: the reply to a status request, or NULL when none comes soon. */
static const json_t *look_status(struct watch *watch)
{
    if (watch->conn == NULL)
        watch->conn = chaos_connect(&watch->env, watch->chaos->daemon->socket);
    if (watch->conn == NULL)
        return NULL;
    conn_line(watch->conn, "{'request':'status'}");
    for (int64_t end = now_ms() + REPLY_MS; now_ms() < end && !watch->conn->eof;) {
        conn_pump(&watch->conn, 1, 10);
        if (conn_has_reply(watch->conn))
            return conn_read(watch->conn);
    }
    conn_close(watch->conn);
    watch->conn = NULL;
    return NULL;
}

static void check_status(struct watch *watch, const json_t *reply, int64_t epoch)
{
    int64_t cursor = reply_int(reply, "cursor");
    int64_t head = reply_int(reply, "head");
    if (epoch == watch->epoch && cursor < watch->cursor)
        chaos_fail(watch->chaos, CURSOR_IN_STATUS, "from %lld to %lld in term %lld",
                   (long long)watch->cursor, (long long)cursor, (long long)epoch);
    if (cursor > head)
        chaos_fail(watch->chaos, CURSOR_IN_STATUS, "%lld, and the head is %lld", (long long)cursor,
                   (long long)head);
    watch->epoch = epoch;
    watch->cursor = cursor;
}

static bool leads(const json_t *reply)
{
    const char *role = json_string_value(json_object_get(reply, "role"));
    return role != NULL && strcmp(role, "leader") == 0;
}

/* The status lies between two looks into the database: of one term, if they show the same. */
static void look_around(struct watch *watch)
{
    struct look before;
    struct look after;
    unsigned life = watch->chaos->server_life;
    if (life % 2 != 0 || !look_cursor(watch, &before) || watch->chaos->server_life != life)
        return;
    check_saved(watch, &before, life);
    if (watch->chaos->counts.samples % SETTLED_EVERY == 0)
        check_settled(watch);
    const json_t *reply = look_status(watch);
    if (reply == NULL || !leads(reply) || !look_cursor(watch, &after) ||
        watch->chaos->server_life != life)
        return;
    check_saved(watch, &after, life);
    if (before.epoch == after.epoch)
        check_status(watch, reply, after.epoch);
}

void *watch_run(void *arg)
{
    struct chaos *chaos = arg;
    struct watch watch = {.chaos = chaos};
    chaos_side_init(&watch.env, chaos->env);
    while (chaos->phase != PHASE_END) {
        look_around(&watch);
        pause_ms(LOOK_MS);
    }
    PQfinish(watch.db);
    chaos_side_fini(&watch.env);
    return NULL;
}
