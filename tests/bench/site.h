/* SPDX-License-Identifier: MIT */
/*
 * site: where a run takes place: a private cluster, and a database for each side of each round.
 *
 * The cluster is the one that `foldd --standalone` makes, with its settings: the foldd that made it
 * keeps it during the run and is otherwise idle. The foldd that is measured is another process on a
 * database of its own.
 */
#ifndef FOLDD_BENCH_SITE_H
#define FOLDD_BENCH_SITE_H

#include <stdbool.h>
#include <sys/types.h>

#include "integration/harness.h"

struct site {
    char *root;
    char *conninfo; /* of the cluster, naming no database of ours */
    pid_t keeper;
};

/* Make the cluster below $TMPDIR or /tmp, and the database SITE_EMPTY, which has the schema. False,
 * with the reason on stderr, if that cannot be done; site_stop is due in any case. These three do
 * not need a running test, all the others do. */
#define SITE_EMPTY "bench_empty"
bool site_start(struct site *site);

/* Stop the cluster and remove it. */
void site_stop(struct site *site);

/* Given: a connection string for a database of the cluster. */
char *site_conninfo(const struct site *site, const char *database);

/* Given: execute on the database postgres: the first value, or ""; NULL, with the reason on stderr,
 * if it fails. */
char *site_query(const struct site *site, const char *query);

/* Given: an env of the harness on a copy of the source database. A checkpoint is done before this
 * returns. To be given back with site_env_free, never with env_free. */
struct env *site_env_new(const struct site *site, const char *source);

/* Stop its daemons, close its connections, and drop the database. */
void site_env_free(const struct site *site, struct env *env);

/* The same, but the database stays: it may be the source of others now. */
void site_env_leave(struct env *env);

/* Start foldd on the env's database. site_wait_leading waits until it leads. */
struct daemon *site_spawn_foldd(struct env *env);
void site_wait_leading(struct conn *conn);

#endif
