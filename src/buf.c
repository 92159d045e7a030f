/* SPDX-License-Identifier: MIT */
#include "buf.h"

#include <endian.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mem.h"

void buf_init(struct buf *buf)
{
    *buf = (struct buf){0};
}

void buf_fini(struct buf *buf)
{
    free(buf->data);
    *buf = (struct buf){0};
}

void buf_reserve(struct buf *buf, size_t extra)
{
    if (buf->cap - buf->len >= extra)
        return;
    size_t want = buf->len + extra;
    size_t cap = buf->cap < 64 ? 64 : buf->cap;
    while (cap < want)
        cap = cap > SIZE_MAX / 2 ? want : cap * 2;
    buf->data = mem_resize(buf->data, cap, 1);
    buf->cap = cap;
}

void buf_add(struct buf *buf, const void *bytes, size_t len)
{
    if (len == 0)
        return;
    buf_reserve(buf, len);
    memcpy(buf->data + buf->len, bytes, len);
    buf->len += len;
}

void buf_add_char(struct buf *buf, char c)
{
    buf_add(buf, &c, 1);
}

void buf_add_str(struct buf *buf, const char *text)
{
    buf_add(buf, text, strlen(text));
}

void buf_printf(struct buf *buf, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    va_list again;
    va_copy(again, args);
    buf_reserve(buf, 1);
    size_t room = buf->cap - buf->len;
    int len = vsnprintf(buf->data + buf->len, room, format, args);
    va_end(args);
    if (len > 0) {
        if ((size_t)len >= room) {
            buf_reserve(buf, (size_t)len + 1);
            vsnprintf(buf->data + buf->len, (size_t)len + 1, format, again);
        }
        buf->len += (size_t)len;
    }
    va_end(again);
}

void buf_add_be16(struct buf *buf, int16_t value)
{
    uint16_t be = htobe16((uint16_t)value);
    buf_add(buf, &be, sizeof(be));
}

void buf_add_be32(struct buf *buf, int32_t value)
{
    uint32_t be = htobe32((uint32_t)value);
    buf_add(buf, &be, sizeof(be));
}

void buf_add_be64(struct buf *buf, int64_t value)
{
    uint64_t be = htobe64((uint64_t)value);
    buf_add(buf, &be, sizeof(be));
}

const char *buf_cstr(struct buf *buf)
{
    buf_reserve(buf, 1);
    buf->data[buf->len] = '\0';
    return buf->data;
}

char *buf_take(struct buf *buf)
{
    buf_cstr(buf);
    char *data = buf->data;
    *buf = (struct buf){0};
    return data;
}
