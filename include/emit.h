/* SPDX-License-Identifier: MIT */
/*
 * emit: writes one JSON object into a buf, member by member.
 *
 * Ours and not jansson's because replies carry JSON from PostgreSQL that must arrive digit for
 * digit.
 */
#ifndef FOLDD_EMIT_H
#define FOLDD_EMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "scan.h"

/* "{" */
void emit_begin(struct buf *out);
/* "}" */
void emit_end(struct buf *out);

/* ,"key":value; key is plain ASCII. Text must be valid UTF-8 and is escaped as RFC 8259 asks. */
void emit_span(struct buf *out, const char *key, struct span text);
/* Nothing when text.data is NULL. */
void emit_optional(struct buf *out, const char *key, struct span text);
void emit_str(struct buf *out, const char *key, const char *text);
void emit_int(struct buf *out, const char *key, int64_t value);
void emit_bool(struct buf *out, const char *key, bool value);
/* The text goes in as it is: JSON already. */
void emit_raw(struct buf *out, const char *key, struct span json);

#endif
