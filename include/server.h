/* SPDX-License-Identifier: MIT */
/*
 * server: owns every object; the loop; signals; the stop sequence.
 */
#ifndef FOLDD_SERVER_H
#define FOLDD_SERVER_H

#include "config.h"

struct server_options {
    const struct config *config;
    const char *standalone; /* folder of the private cluster; NULL: config->database */
};

/* Run foldd until it is told to stop. Returns the exit code: 0 after a stop, 1 when it could not
 * work, with the reason logged. */
int server_run(const struct server_options *options);

/* Bring the schema of config->database to this binary's version, and return: foldd --migrate. */
int server_migrate(const struct config *config);

#endif
