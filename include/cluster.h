/* SPDX-License-Identifier: MIT */
/*
 * cluster: the private PostgreSQL of --standalone: made on first use, supervised, stopped with
 * foldd.
 *
 * DIR/pg is the data folder (0700, of the user that PostgreSQL runs as) and holds its socket, too,
 * so that nobody but that user and root can connect; DIR/postgres.log is the server's log;
 * DIR/conninfo (0600) says how to connect. A data folder without our mark is somebody else's and
 * left alone.
 */
#ifndef FOLDD_CLUSTER_H
#define FOLDD_CLUSTER_H

#include <stdbool.h>

#include "err.h"
#include "mem.h"

struct event_base;
struct cluster;

struct cluster_events {
    /* The server was started; it accepts connections in a moment. */
    void (*on_started)(void *arg, const char *conninfo);
    void (*on_fatal)(void *arg, const struct err *err);
    /* After cluster_stop. */
    void (*on_stopped)(void *arg);
    void *arg;
};

/* Given: checks DIR and makes what is missing of it. bindir "" is searched for. NULL on errors. */
struct cluster *cluster_new(struct event_base *base, const char *dir, const char *bindir,
                            const struct cluster_events *events, struct err *err);

/* Borrowed: the absolute path of DIR. */
const char *cluster_dir(const struct cluster *cluster);

/* Make the cluster if it is not there, and start (or adopt) the server. */
void cluster_start(struct cluster *cluster);

/* Stop the server: fast first, at once if that takes too long. */
void cluster_stop(struct cluster *cluster);

/* Tell the server to stop at once, and do not wait: it recovers from its log when it is started
 * again. */
void cluster_abandon(struct cluster *cluster);

void cluster_free(struct cluster *cluster);

#endif
