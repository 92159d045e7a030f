/* SPDX-License-Identifier: MIT */
/*
 * peer: who is at the other end of a socket, and what he may do.
 *
 * The kernel's word counts (unix(7), SO_PEERCRED and SO_PEERGROUPS): the credentials of the process
 * that connected, at the moment when it did. Names are looked up when the rules are made, never for
 * a connection: a name service may take its time (R26).
 */
#ifndef FOLDD_PEER_H
#define FOLDD_PEER_H

#include <stdbool.h>
#include <stddef.h>

#include "err.h"
#include "mem.h"

/* Ids of users or groups. */
struct peer_ids {
    unsigned *ids;
    size_t count;
};

struct peer_rules {
    struct peer_ids admin_groups; /* their members may do what changes others' operations */
    struct peer_ids allow_users;  /* who may connect; with both empty, everyone */
    struct peer_ids allow_groups;
};

/* Lists of names or numeric ids, divided by commas. */
struct peer_rules_text {
    const char *admin_groups;
    const char *allow_users;
    const char *allow_groups;
};

/* Look the names up, which may block; peer_rules_fini frees, also after a failure. The error names
 * the option. */
bool peer_rules_init(struct peer_rules *rules, const struct peer_rules_text *text,
                     struct err *err) MUST_CHECK;
void peer_rules_fini(struct peer_rules *rules);

/* Root and foldd's own user are always admins. */
enum peer_rank { PEER_REFUSED, PEER_ORDINARY, PEER_ADMIN };

enum peer_rank peer_rank(int fd, const struct peer_rules *rules);

enum { PEER_NAME_MAX = 24 };

/* Who it is, as the log calls it ("uid:1000"); "" if that cannot be told. */
void peer_name(int fd, char out[PEER_NAME_MAX]);

#endif
