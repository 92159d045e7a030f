/* SPDX-License-Identifier: MIT */
/*
 * scan: one pass over the text of a JSON object: valid or where not, and the raw span of each
 * member.
 *
 * What passes is valid by RFC 8259 and also something that PostgreSQL's jsonb can hold, so that the
 * client's own bytes can travel to the database untouched (19.99 stays 19.99). Refused on top of
 * RFC 8259: the escape \u0000, lone surrogate escapes, invalid UTF-8 (also overlong forms, encoded
 * surrogates and code points above U+10FFFF), nesting deeper than SCAN_MAX_DEPTH, and numbers whose
 * plain decimal expansion has more than SCAN_MAX_DIGITS digits (1e400 has 401; 1e-3 has 4; the
 * digits before and after the point count together), or whose expansions together add more than
 * SCAN_MAX_GROWTH digits to the text.
 *
 * No allocation, no recursion: time and stack are bounded by the length of the text.
 */
#ifndef FOLDD_SCAN_H
#define FOLDD_SCAN_H

#include <stdbool.h>
#include <stddef.h>

enum {
    SCAN_MAX_DEPTH = 128, /* the outermost value has depth 1 */
    SCAN_MAX_DIGITS = 1000,
    SCAN_MAX_GROWTH = 4 * 1024 * 1024,
    SCAN_MAX_MEMBERS = 32, /* more than any request has keys */
};

struct span {
    const char *data;
    size_t len;
};

/* Whether the text is this word. */
bool span_is(struct span text, const char *word);

enum scan_kind {
    SCAN_NULL,
    SCAN_FALSE,
    SCAN_TRUE,
    SCAN_NUMBER,
    SCAN_STRING,
    SCAN_ARRAY,
    SCAN_OBJECT,
};

struct scan_member {
    struct span key; /* between the quotes, still escaped */
    bool key_escaped;
    enum scan_kind kind;
    struct span value; /* the raw text; of a string with its quotes */
    bool escaped;      /* the value is a string that has escapes */
};

struct scan_object {
    size_t count;
    struct scan_member members[SCAN_MAX_MEMBERS]; /* borrowed from the text */
};

struct scan_error {
    size_t offset;      /* of the first offending byte, from 0 */
    const char *reason; /* static text, for a person: "control character in a string" */
    struct span member; /* the key of the top-level member it is inside; data NULL if outside */
};

/* Scan the text of one JSON object, with nothing but white space around it. On success fills out.
 * On failure fills error and returns false; out is then meaningless. Equal keys are not looked for.
 */
bool scan_object(const char *text, size_t len, struct scan_object *out, struct scan_error *error);

/* The same check for any JSON value, without members (for tests and for values by themselves). */
bool scan_value(const char *text, size_t len, struct scan_error *error);

#endif
