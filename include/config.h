/* SPDX-License-Identifier: MIT */
/*
 * config: the table of options; text in, struct config out, with the bad key named.
 *
 * One option is one row of config_options: everything that lists options derives from it.
 */
#ifndef FOLDD_CONFIG_H
#define FOLDD_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "mem.h"

struct config {
    char *database;
    char *socket;
    int64_t socket_mode;
    char *socket_group;
    char *admin_groups;
    char *allow_users;
    char *allow_groups;
    int64_t workers;
    int64_t max_line_bytes;
    int64_t max_pending_bytes;
    int64_t max_client_pending_bytes;
    int64_t max_clients_pending_bytes;
    int64_t max_input_bytes;
    int64_t max_waits;
    int64_t max_clients;
    int64_t batch_ops;
    int64_t batch_bytes;
    int64_t window_ops;
    int64_t fold_docs;
    int64_t fold_ops;
    int64_t fold_chunk_ops;
    int64_t db_timeout_ms;
    int64_t lock_timeout_ms;
    int64_t fold_timeout_ms;
    int64_t lease_timeout_ms;
    int64_t takeover_timeout_ms;
    int64_t safety_poll_ms;
    int64_t line_timeout_ms;
    int64_t write_timeout_ms;
    int64_t drain_timeout_ms;
    char *pg_bindir;
    char *log_level;
};

enum config_type { CONFIG_TEXT, CONFIG_COUNT, CONFIG_SIZE, CONFIG_TIME, CONFIG_MODE };

/* What it takes for a change to take effect: SIGHUP is enough, or a restart is needed. */
enum config_change { CONFIG_RESTART, CONFIG_RELOAD };

struct config_option {
    const char *key;
    enum config_type type;
    const char *standard; /* the default, as one would write it */
    int64_t min;          /* of numbers: counts, bytes, milliseconds */
    int64_t max;
    enum config_change change;
    const char *text; /* one line for --help, the sample file and the manual */
    size_t offset;    /* in struct config */
};

/* Ends with a NULL key. */
extern const struct config_option config_options[];

/* Fill in the defaults; config_fini frees. */
void config_init(struct config *config);
void config_fini(struct config *config);

/* Set one option from text. Sizes take KiB, MiB, GiB; times take ms, s, min. Unknown keys and
 * values out of range are errors that name the key. */
bool config_set(struct config *config, const char *key, const char *value,
                struct err *err) MUST_CHECK;

/* Set one option from "KEY=VALUE". */
bool config_set_pair(struct config *config, const char *pair, struct err *err) MUST_CHECK;

/* Whether the option has the same value in both. */
bool config_same(const struct config *a, const struct config *b,
                 const struct config_option *option);

/* Exchange the option's values: to gets the one of from. */
void config_swap(struct config *to, struct config *from, const struct config_option *option);

/* Read an INI text (sections are allowed and ignored, lines have at most 198 bytes: longer
 * connection strings go into a libpq service file); errors name the line and the key. */
bool config_parse(struct config *config, const char *text, struct err *err) MUST_CHECK;

#endif
