/* SPDX-License-Identifier: MIT */
/*
 * ctl: what the files of foldctl share: the options, the commands, and one connection to foldd.
 *
 * foldctl never decodes fields or meta: on the way in and on the way out they are the raw bytes
 * that the user or foldd wrote, so that 19.99 stays 19.99. What it reads of a reply with jansson is
 * the envelope around them.
 */
#ifndef FOLDD_CTL_H
#define FOLDD_CTL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jansson.h>

#include "buf.h"
#include "err.h"
#include "line.h"
#include "mem.h"
#include "scan.h"

#define CTL_DEFAULT_SOCKET "/run/foldd/foldd.sock"
#define CTL_DEFAULT_CONFIG "/etc/foldd/foldd.conf"

/* Exit codes; foldctl --help and the man page list them. */
enum ctl_exit {
    CTL_OK = 0,
    CTL_REFUSED = 1,     /* the request failed, or some operation was refused */
    CTL_USAGE = 2,       /* the command line is wrong */
    CTL_UNREACHABLE = 3, /* no connection to foldd or its database, or it was lost */
    CTL_LOCAL = 4,       /* a file could not be read, or standard output not written */
};

enum {
    CTL_MAX_REPLY_BYTES = 256 * 1024 * 1024,
    CTL_MAX_INPUT_BYTES = 64 * 1024 * 1024,
    CTL_READ_BYTES = 256 * 1024,
};

/* The command line, parsed. Strings are borrowed from argv; NULL and -1 mean "not given". */
struct ctl {
    const char *socket_path;
    const char *config_path;
    bool json;
    bool wait;
    bool all;
    const char *collection;
    const char *id;
    const char *meta;
    const char *ack;
    const char *id_prefix;
    int64_t reconnect_s;
    int64_t seq;
    int64_t timeout_ms;
    int64_t from_seq;
    int64_t to_seq;
    char **args; /* behind the command's name; ends with NULL */
    int arg_count;
};

/* The commands. Each prints its result or its error and returns an exit code. */
int ctl_append(const struct ctl *ctl);
int ctl_import(const struct ctl *ctl);
int ctl_get(const struct ctl *ctl);
int ctl_status(const struct ctl *ctl);
int ctl_await(const struct ctl *ctl);
int ctl_barrier(const struct ctl *ctl);
int ctl_operation(const struct ctl *ctl);
int ctl_ping(const struct ctl *ctl);
int ctl_parked(const struct ctl *ctl);
int ctl_retry(const struct ctl *ctl);
int ctl_skip(const struct ctl *ctl);
int ctl_pause(const struct ctl *ctl);
int ctl_resume(const struct ctl *ctl);
int ctl_drain(const struct ctl *ctl);
int ctl_export(const struct ctl *ctl);
int ctl_psql(const struct ctl *ctl);

/* "foldctl: MESSAGE" on stderr, control characters replaced. Returns code. */
int ctl_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* --- JSON as text (ctl_json.c) --- */

/* A walk over the members of an object or the elements of an array. It is lenient: it finds spans
 * and leaves judging them to foldd. */
struct ctl_walk {
    const char *at; /* at the closing bracket once ctl_walk_next has returned false */
    const char *end;
    char close;
    bool broken; /* the text is not JSON; at means nothing */
};

/* Begin at an object or array; broken if the text is neither. */
void ctl_walk_init(struct ctl_walk *walk, struct span text);

/* The next member. key is the raw string with its quotes; it is left alone in an array. */
bool ctl_walk_next(struct ctl_walk *walk, struct span *key, struct span *value);

/* Whether a raw key, as ctl_walk_next gives it, spells name. */
bool ctl_key_is(struct span key, const char *name);

/* The raw value of an object's member; false when it has none of that name. */
bool ctl_member(struct span object, const char *name, struct span *value);

/* Add text as a JSON string. Bytes above 0x7f go as they are. */
void ctl_add_string(struct buf *out, const char *text);

/* Add raw JSON, each line end outside of strings made a space, so that it stays one line. */
void ctl_add_raw(struct buf *out, const char *text);

/* Add ,"key":"text" or ,"key":number; nothing when the value was not given (NULL, -1). */
void ctl_add_text_member(struct buf *out, const char *key, const char *text);
void ctl_add_int_member(struct buf *out, const char *key, int64_t value);

/* --- Replies (ctl_reply.c) --- */

struct ctl_reply {
    struct span raw; /* borrowed from the caller's line */
    json_t *root;    /* the envelope; fields, meta and evidence are null in it */
    bool ok;
};

/* Decode a reply line. reply_fini takes NULL-filled ones too. */
bool ctl_reply_init(struct ctl_reply *reply, struct span raw, struct err *err) MUST_CHECK;
void ctl_reply_fini(struct ctl_reply *reply);

/* Borrowed: a string of the envelope, or "" when it has none of that name. */
const char *ctl_reply_text(const struct ctl_reply *reply, const char *key);

/* "CODE: MESSAGE" of a refusal; a reply without them gets words too. Valid until the reply ends. */
void ctl_reply_add_error(const struct ctl_reply *reply, struct buf *out);

/* Whether an operation has reached the end that its sender wants: stored, folded or ignored. */
bool ctl_reply_is_success(const struct ctl_reply *reply);

/* A value as a person reads it: a string that needs no quotes without them, everything else as
 * foldd wrote it, so that control characters stay escaped and numbers exact. */
struct span ctl_plain_value(struct span value);

/* One line: the raw reply (--json), or a word for what happened and the other keys as key=value. */
void ctl_reply_print_line(const struct ctl *ctl, const struct ctl_reply *reply, const char *word);

/* One line a key; with --json the raw reply. */
void ctl_reply_print_table(const struct ctl *ctl, const struct ctl_reply *reply);

/* --- One request, one reply (ctl_client.c) --- */

/* Connect a blocking stream socket; -1 and err when nobody listens there. */
int ctl_connect(const char *socket_path, struct err *err) MUST_CHECK;

struct ctl_client {
    int fd;
    struct line input;
};

bool ctl_client_open(struct ctl_client *client, const char *socket_path,
                     struct err *err) MUST_CHECK;
void ctl_client_close(struct ctl_client *client);

/* Send a line (without its LF) and wait for the reply, which borrows from the client until the next
 * call; the caller ends it with ctl_reply_fini. */
bool ctl_client_call(struct ctl_client *client, const char *line, size_t len,
                     struct ctl_reply *reply, struct err *err) MUST_CHECK;

/* Print a reply that is an error: the raw reply on stdout (--json) or its words on stderr. Returns
 * CTL_REFUSED. */
int ctl_show_error(const struct ctl *ctl, const struct ctl_reply *reply);

/* What is printed for a reply that is not an error; returns the exit code. */
typedef int (*ctl_show_fn)(const struct ctl *ctl, const struct ctl_reply *reply);

/* A whole command: connect, send, and show the reply, or print what went wrong. With --json an
 * error reply is printed as it is, too. Takes the content of line. Returns an exit code. */
int ctl_request(const struct ctl *ctl, struct buf *line, ctl_show_fn show);

/* --- The database beside foldd (ctl_database.c) --- */

/* Given: the libpq connection string of the database that this foldd uses: the file conninfo beside
 * the socket, else the option database of the configuration file. NULL and err when neither says.
 */
char *ctl_database(const struct ctl *ctl, struct err *err) MUST_CHECK;

#endif
