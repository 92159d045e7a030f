/* SPDX-License-Identifier: MIT */
#include "emit.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void emit_begin(struct buf *out)
{
    buf_add_char(out, '{');
}

void emit_end(struct buf *out)
{
    buf_add_char(out, '}');
}

static void put_key(struct buf *out, const char *key)
{
    if (out->data[out->len - 1] != '{')
        buf_add_char(out, ',');
    buf_add_char(out, '"');
    buf_add_str(out, key);
    buf_add(out, "\":", 2);
}

static void put_text(struct buf *out, struct span text)
{
    size_t start = 0;
    buf_add_char(out, '"');
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.data[i];
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        buf_add(out, text.data + start, i - start);
        start = i + 1;
        if (c < 0x20)
            buf_printf(out, "\\u%04x", c);
        else
            buf_printf(out, "\\%c", c);
    }
    buf_add(out, text.data + start, text.len - start);
    buf_add_char(out, '"');
}

void emit_span(struct buf *out, const char *key, struct span text)
{
    put_key(out, key);
    put_text(out, text);
}

void emit_optional(struct buf *out, const char *key, struct span text)
{
    if (text.data != NULL)
        emit_span(out, key, text);
}

void emit_str(struct buf *out, const char *key, const char *text)
{
    emit_span(out, key, (struct span){text, strlen(text)});
}

void emit_int(struct buf *out, const char *key, int64_t value)
{
    char digits[24];
    int len = snprintf(digits, sizeof(digits), "%" PRId64, value);
    put_key(out, key);
    buf_add(out, digits, (size_t)len);
}

void emit_bool(struct buf *out, const char *key, bool value)
{
    put_key(out, key);
    buf_add_str(out, value ? "true" : "false");
}

void emit_raw(struct buf *out, const char *key, struct span json)
{
    put_key(out, key);
    buf_add(out, json.data, json.len);
}
