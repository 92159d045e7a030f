/* SPDX-License-Identifier: MIT */
/*
 * Look; if the schema is right, done. Otherwise begin, take the lock, look again (somebody else may
 * have been faster), apply what is missing, commit. An error leaves the transaction to the end of
 * the connection.
 */
#include "migrate.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "hash.h"
#include "log.h"
#include "mem.h"
#include "sql_text.h"
#include "store.h"

enum { OLDEST_SERVER = 150000 };

enum phase { PHASE_LOOK, PHASE_LOCK, PHASE_LOOK_AGAIN, PHASE_APPLY, PHASE_LEAVE };

struct migrate {
    struct pg *pg;
    enum phase phase;
    enum migrate_mode mode;
    migrate_fn on_done;
    void *arg;
    int64_t version; /* of the schema in the database; 0: none */
    char digest[20]; /* of the code in the binary */
};

static bool is_migration(const struct sql_text *file)
{
    return isdigit((unsigned char)file->name[0]);
}

static int64_t newest_version(void)
{
    int64_t version = 0;
    for (const struct sql_text *file = sql_texts; file->name != NULL; file++)
        if (is_migration(file))
            version = strtol(file->name, NULL, 10);
    return version;
}

static void code_digest(char *out, size_t size)
{
    static const uint8_t key[16] = {0};
    uint64_t digest = 0;
    for (const struct sql_text *file = sql_texts; file->name != NULL; file++)
        digest = digest * 31 + hash_siphash13(file->text, strlen(file->text), key);
    snprintf(out, size, "%016llx", (unsigned long long)digest);
}

static void finish(struct migrate *migrate, enum migrate_outcome outcome, const struct err *err)
{
    migrate_fn on_done = migrate->on_done;
    void *arg = migrate->arg;
    free(migrate);
    on_done(arg, outcome, err);
}

static void fail(struct migrate *migrate, struct err *err)
{
    finish(migrate, MIGRATE_FAILED, err);
}

static void refuse_rights(struct migrate *migrate, const struct err *err)
{
    struct err refused;
    err_set(
        &refused, ERR_FATAL,
        "%s; this role may not create or change the schema foldd: as the database's owner, GRANT "
        "CREATE ON DATABASE to it, or run foldd --migrate as the owner of the schema",
        err->message);
    fail(migrate, &refused);
}

static void build_script(const struct migrate *migrate, struct buf *script)
{
    if (migrate->version == 0)
        buf_add_str(
            script,
            "CREATE SCHEMA IF NOT EXISTS foldd;"
            "COMMENT ON SCHEMA foldd IS 'foldd: operations in, documents out.';"
            "CREATE TABLE foldd.migrations (version bigint PRIMARY KEY, code text NOT NULL,"
            " applied_at timestamptz NOT NULL);"
            "COMMENT ON TABLE foldd.migrations IS"
            " 'The versions that this schema went through; code identifies the functions.';");
    buf_add_str(script, "SET LOCAL check_function_bodies = off;");
    for (const struct sql_text *file = sql_texts; file->name != NULL; file++)
        if (!is_migration(file) || strtol(file->name, NULL, 10) > migrate->version)
            buf_add_str(script, file->text);
    buf_printf(script,
               "INSERT INTO foldd.migrations VALUES (%lld, '%s', clock_timestamp())"
               " ON CONFLICT (version) DO UPDATE SET code = excluded.code,"
               " applied_at = excluded.applied_at; COMMIT",
               (long long)newest_version(), migrate->digest);
}

static void on_result(void *arg, const PGresult *result, const struct err *err);

static void step(struct migrate *migrate, enum phase phase)
{
    migrate->phase = phase;
    struct buf script = {0};
    switch (phase) {
    case PHASE_LOOK:
    case PHASE_LOOK_AGAIN:
        store_schema(migrate->pg, on_result, migrate);
        return;
    case PHASE_LOCK:
        pg_submit_text(migrate->pg, "BEGIN; SELECT pg_advisory_xact_lock(1718578276, 3)", on_result,
                       migrate);
        return;
    case PHASE_APPLY:
        build_script(migrate, &script);
        pg_submit_text(migrate->pg, buf_cstr(&script), on_result, migrate);
        buf_fini(&script);
        return;
    case PHASE_LEAVE:
        pg_submit_text(migrate->pg, "COMMIT", on_result, migrate);
        return;
    }
}

/* Returns whether the schema may be used or migrated; fails the migration otherwise. */
static bool check(struct migrate *migrate, const struct store_schema_row *row)
{
    struct err err;
    bool ok = true;
    if (pg_server_version(migrate->pg) < OLDEST_SERVER)
        ok =
            err_set(&err, ERR_FATAL, "PostgreSQL 15 or later is needed; the server's version is %s",
                    pg_server_parameter(migrate->pg, "server_version"));
    else if (strcmp(pg_server_parameter(migrate->pg, "server_encoding"), "UTF8") != 0)
        ok = err_set(&err, ERR_FATAL,
                     "the database's encoding is %s; foldd needs UTF8: CREATE "
                     "DATABASE ... ENCODING 'UTF8' TEMPLATE template0",
                     pg_server_parameter(migrate->pg, "server_encoding"));
    else if (row->version > newest_version())
        ok = err_set(
            &err, ERR_FATAL,
            "the schema's version %lld is newer than this foldd knows (%lld): upgrade foldd",
            (long long)row->version, (long long)newest_version());
    else if (row->version == 0 && migrate->mode == MIGRATE_EXPECT)
        ok = err_set(&err, ERR_FATAL, "the schema foldd is gone from the database");
    if (!ok)
        fail(migrate, &err);
    return ok;
}

static void on_schema(struct migrate *migrate, const PGresult *result)
{
    struct store_schema_row row = store_schema_row(result);
    if (!check(migrate, &row))
        return;
    migrate->version = row.version;
    bool right = row.version == newest_version() && row.code.data != NULL &&
                 strlen(migrate->digest) == row.code.len &&
                 memcmp(migrate->digest, row.code.data, row.code.len) == 0;
    if (migrate->phase == PHASE_LOOK) {
        if (right)
            finish(migrate, MIGRATE_NOTHING, NULL);
        else
            step(migrate, PHASE_LOCK);
    } else {
        step(migrate, right ? PHASE_LEAVE : PHASE_APPLY);
    }
}

static void on_result(void *arg, const PGresult *result, const struct err *err)
{
    struct migrate *migrate = arg;
    if (result == NULL) {
        struct err copy = *err;
        if (copy.class != ERR_TRANSIENT)
            copy.class = ERR_FATAL; /* the same script would fail the same way */
        if (strcmp(err->sqlstate, "42501") == 0)
            refuse_rights(migrate, err);
        else
            fail(migrate, &copy);
        return;
    }
    switch (migrate->phase) {
    case PHASE_LOOK:
    case PHASE_LOOK_AGAIN:
        on_schema(migrate, result);
        return;
    case PHASE_LOCK:
        step(migrate, PHASE_LOOK_AGAIN);
        return;
    case PHASE_APPLY:
        log_info("migrated", "from=%lld to=%lld code=%s", (long long)migrate->version,
                 (long long)newest_version(), migrate->digest);
        finish(migrate, MIGRATE_DONE, NULL);
        return;
    case PHASE_LEAVE:
        finish(migrate, MIGRATE_NOTHING, NULL);
        return;
    }
}

struct migrate *migrate_start(struct pg *pg, enum migrate_mode mode, migrate_fn on_done, void *arg)
{
    struct migrate *migrate = mem_zalloc(sizeof(*migrate));
    migrate->pg = pg;
    migrate->mode = mode;
    migrate->on_done = on_done;
    migrate->arg = arg;
    code_digest(migrate->digest, sizeof(migrate->digest));
    step(migrate, PHASE_LOOK);
    return migrate;
}

void migrate_cancel(struct migrate *migrate)
{
    free(migrate);
}
