/* SPDX-License-Identifier: MIT */
/*
 * migrate: brings the schema to what this binary needs, in one transaction.
 *
 * Files of sql/ whose names begin with a digit are migrations: each is applied once, in order. The
 * others are code (functions, views): applied anew whenever their text differs from what the
 * database has. A lock makes it safe for several daemons to start at once; when there is nothing to
 * do, nothing is locked and no right to change the schema is needed.
 */
#ifndef FOLDD_MIGRATE_H
#define FOLDD_MIGRATE_H

#include "err.h"

struct pg;

enum migrate_outcome {
    MIGRATE_NOTHING, /* the schema was right */
    MIGRATE_DONE,
    MIGRATE_FAILED, /* err says why; ERR_FATAL if trying again cannot help */
};

typedef void (*migrate_fn)(void *arg, enum migrate_outcome outcome, const struct err *err);

/* What to do when the schema is not there at all. */
enum migrate_mode { MIGRATE_CREATE, MIGRATE_EXPECT };

/* Check the server and the database (PostgreSQL 15 or later, UTF8) and migrate. on_done is called
 * once, unless the connection closes first: give the memory back with migrate_cancel then. */
struct migrate *migrate_start(struct pg *pg, enum migrate_mode mode, migrate_fn on_done, void *arg);

/* The connection is gone. Accepts NULL. */
void migrate_cancel(struct migrate *migrate);

#endif
