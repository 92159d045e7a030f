/* SPDX-License-Identifier: MIT */
/*
 * buf: a growable run of bytes. Zero-initialise it ({0}) or buf_init; buf_fini frees.
 */
#ifndef FOLDD_BUF_H
#define FOLDD_BUF_H

#include <stddef.h>
#include <stdint.h>

struct buf {
    char *data; /* NULL while cap is 0; not NUL-terminated unless buf_cstr was called */
    size_t len;
    size_t cap;
};

void buf_init(struct buf *buf);
void buf_fini(struct buf *buf);

/* Make room for extra more bytes behind len. */
void buf_reserve(struct buf *buf, size_t extra);

void buf_add(struct buf *buf, const void *bytes, size_t len);
void buf_add_char(struct buf *buf, char c);
void buf_add_str(struct buf *buf, const char *text);
void buf_printf(struct buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Network byte order, for PostgreSQL's binary formats. */
void buf_add_be16(struct buf *buf, int16_t value);
void buf_add_be32(struct buf *buf, int32_t value);
void buf_add_be64(struct buf *buf, int64_t value);

/* Borrowed: the bytes with a NUL behind them, valid until the next change. */
const char *buf_cstr(struct buf *buf);

/* Given: the bytes as a string of their own; buf is empty afterwards. */
char *buf_take(struct buf *buf);

#endif
