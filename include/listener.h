/* SPDX-License-Identifier: MIT */
/*
 * listener: the unix socket: bind or systemd activation, permissions, stale-socket check, accept.
 *
 * Who owns the path is decided by a lock on PATH.lock, held as long as the process lives, never by
 * asking a daemon that may be slow to answer. A socket file that nobody holds the lock for is stale
 * and replaced; anything else at the path is left alone. The socket is never wider open than
 * configured, not even between bind and chmod.
 */
#ifndef FOLDD_LISTENER_H
#define FOLDD_LISTENER_H

#include <stdbool.h>

#include "err.h"
#include "mem.h"

struct event_base;
struct listener;

struct listener_options {
    const char *path;
    unsigned mode;
    const char *group; /* "" leaves it */
};

/* Take a connection over. False: no more until listener_resume. */
typedef bool (*listener_accept_fn)(void *arg, int fd);

/* Given: a listener that holds the path, but does not accept yet. */
struct listener *listener_new(struct event_base *base, const struct listener_options *options,
                              listener_accept_fn on_accept, void *arg, struct err *err);

/* Bind (or take over what systemd handed us) and accept from now on. */
bool listener_start(struct listener *listener, struct err *err) MUST_CHECK;

/* Accept no more; unlink the socket, unless systemd owns it. */
void listener_stop(struct listener *listener);

/* There is room again, after on_accept has said that there is none. */
void listener_resume(struct listener *listener);

void listener_free(struct listener *listener);

#endif
