/* SPDX-License-Identifier: MIT */
/*
 * conninfo: a libpq connection string taken apart, with its service and the environment filled in,
 * so that host names can be looked up without blocking.
 */
#ifndef FOLDD_CONNINFO_H
#define FOLDD_CONNINFO_H

#include <stdbool.h>

#include "err.h"
#include "mem.h"

struct conninfo;

/* Whether libpq can read the text and find its service. */
bool conninfo_check(const char *text, struct err *err) MUST_CHECK;

/* Given: the parts of a text that conninfo_check takes. */
struct conninfo *conninfo_new(const char *text);
void conninfo_free(struct conninfo *conninfo);

/* Borrowed: a part, or NULL. */
const char *conninfo_get(const struct conninfo *conninfo, const char *keyword);
void conninfo_set(struct conninfo *conninfo, const char *keyword, const char *value);

/* Borrowed: the one host that libpq would have to look up; NULL when there is none, or a list
 * (libpq looks each of a list up itself). */
const char *conninfo_needs_lookup(const struct conninfo *conninfo);

/* Borrowed, NULL-terminated, for PQconnectStartParams. */
const char *const *conninfo_keywords(const struct conninfo *conninfo);
const char *const *conninfo_values(const struct conninfo *conninfo);

#endif
