/* SPDX-License-Identifier: MIT */
/*
 * server: owns every object; the loop; signals; the stop sequence.
 */
#ifndef FOLDD_SERVER_H
#define FOLDD_SERVER_H

#include "config.h"
#include "reload.h"

struct server_options {
    struct config *config;  /* borrowed; a reload changes it */
    const char *standalone; /* folder of the private cluster; NULL: config->database */
    struct reload_source source;
};

/* Run foldd until it is told to stop. Returns the exit code: 0 after a stop, 1 when it could not
 * work, with the reason logged. */
int server_run(const struct server_options *options);

/* Bring the schema of config->database to this binary's version, and return: foldd --migrate. */
int server_migrate(struct config *config);

#endif
