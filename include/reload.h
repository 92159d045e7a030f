/* SPDX-License-Identifier: MIT */
/*
 * reload: the options are read again, and those that can change while foldd runs do, all or none.
 */
#ifndef FOLDD_RELOAD_H
#define FOLDD_RELOAD_H

#include <stdbool.h>

#include "config.h"
#include "err.h"
#include "mem.h"
#include "peer.h"

/* Where the options come from: fill in an initialised config, command line included. Errors name
 * the file, the line and the key. */
struct reload_source {
    bool (*read)(void *arg, struct config *config, struct err *err);
    void *arg;
};

/* Look up the users and groups that the options name; as peer_rules_init. */
bool reload_make_rules(const struct config *config, struct peer_rules *rules,
                       struct err *err) MUST_CHECK;

/* Read again and change config and rules; what has changed and what cannot without a restart is
 * logged. On failure nothing changes. */
bool reload_config(const struct reload_source *source, struct config *config,
                   struct peer_rules *rules, struct err *err) MUST_CHECK;

#endif
