/* SPDX-License-Identifier: MIT */
/*
 * fuzz: what must hold for any input, one function a target.
 *
 * Each takes any bytes and aborts, with the reason on stderr, when the code under test breaks a
 * promise. libFuzzer calls them through entry.c; the unit tests replay the corpus through the same
 * functions (tests/unit/test_corpus.c).
 */
#ifndef FOLDD_FUZZ_H
#define FOLDD_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "scan.h"

/* The first byte is the cap less one, the second draws the pieces, the rest is the stream: the
 * lines that come out of line, piece by piece, are those of a naive reader of the whole. */
void fuzz_line(const uint8_t *data, size_t size);

/* The input is one line: proto_parse refuses it with a message that makes a good reply, or its
 * parts are within their limits, valid and no longer in the line. */
void fuzz_proto(const uint8_t *data, size_t size);

/* The input is a configuration file: refused with the line's number, or every option is in its
 * range and can be written as it was read. */
void fuzz_config(const uint8_t *data, size_t size);

/* What a broken promise names as its input; borrowed until the next call. */
void fuzz_name(const char *name);

/* Abort with the text unless the promise holds. */
void fuzz_require(bool holds, const char *promise);

/* Whether the bytes are UTF-8 (RFC 3629), without the scanner's help. */
bool fuzz_is_utf8(struct span text);

#endif
