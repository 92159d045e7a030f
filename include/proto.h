/* SPDX-License-Identifier: MIT */
/*
 * proto: one JSON line <-> a request or a reply: the whole wire format (doc/protocol.md).
 *
 * The scanner validates the line and yields the raw members; jansson decodes text that has escapes.
 * fields and meta stay the client's own bytes.
 */
#ifndef FOLDD_PROTO_H
#define FOLDD_PROTO_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"
#include "mem.h"
#include "op.h"

enum {
    PROTO_VERSION = 1,
    PROTO_TIMEOUT_DEFAULT_MS = 30000,
    PROTO_TIMEOUT_MAX_MS = 3600000,
    PROTO_LIST_DEFAULT = 100, /* entries of a list */
    PROTO_LIST_MAX = 1000,
    PROTO_REASON_MAX = 1024, /* bytes */
};

enum request_kind {
    REQUEST_OPERATION, /* a line with "action": op is set */
    REQUEST_PING,
    REQUEST_STATUS,
    REQUEST_GET,
    REQUEST_LOOK, /* "request":"operation" */
    REQUEST_AWAIT,
    REQUEST_BARRIER,
    REQUEST_PARKED,
    REQUEST_RETRY,
    REQUEST_SKIP,
    REQUEST_PAUSE,
    REQUEST_RESUME,
    REQUEST_DRAIN,
    REQUEST_KINDS,
};

struct request {
    enum request_kind kind;
    struct op *op;   /* owned until taken */
    struct buf text; /* holds the spans below */
    struct span collection;
    struct span document; /* data NULL when absent, as id */
    struct span id;
    struct span reason; /* of an operator; empty when absent */
    struct span what;   /* of a pause: "ingest" or "folding" */
    int64_t seq;        /* 0 when absent */
    int64_t timeout_ms;
    int64_t limit; /* of a list, which goes on behind collection and document */
};

/* Error codes of the protocol. */
enum reply_code {
    REPLY_INVALID,
    REPLY_TOO_LARGE,
    REPLY_CONFLICT,
    REPLY_NOT_FOUND,
    REPLY_FORBIDDEN,
    REPLY_STANDBY,
    REPLY_UNAVAILABLE,
};

/* Parse one line (without its line end). On success fills out, which request_fini frees. On failure
 * err says what is wrong and where, in valid UTF-8, and out needs no freeing. */
bool proto_parse(struct span line, struct request *out, struct err *err) MUST_CHECK;

/* Frees what the request still owns. */
void request_fini(struct request *request);

/* The parts of replies. Each ends with the line's LF. */
void proto_error(struct buf *out, enum reply_code code, const char *message, int64_t line);
void proto_conflict(struct buf *out, int64_t seq, struct span id, int64_t line);
void proto_unavailable(struct buf *out, const char *stored, int64_t line);

/* The place behind an entry of a list, as text that comes back in "after". */
void proto_list_key(struct buf *out, struct span collection, struct span document);

enum receipt_kind { RECEIPT_NEW, RECEIPT_DUPLICATE };
/* {"ok":true,"seq":..,"id":..[,"duplicate":true]} without the end, for more members to follow. */
void proto_receipt(struct buf *out, int64_t seq, struct span id, enum receipt_kind kind);
void proto_end(struct buf *out);

#endif
