/* SPDX-License-Identifier: MIT */
#include "op.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "mem.h"

enum { UUID_LEN = 36 };

/* RFC 9562, version 7: 48 bits of milliseconds, then random bits. The order in time keeps the ids
 * of one document close together in the index. */
static void make_uuid(char *out)
{
    uint8_t b[16];
    arc4random_buf(b, sizeof(b));
    uint64_t ms = (uint64_t)(clock_wall_us() / 1000);
    for (int i = 0; i < 6; i++)
        b[i] = (uint8_t)(ms >> (40 - 8 * i));
    b[6] = (uint8_t)((b[6] & 0x0f) | 0x70);
    b[8] = (uint8_t)((b[8] & 0x3f) | 0x80);
    static const char hex[] = "0123456789abcdef";
    for (int i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *out++ = '-';
        *out++ = hex[b[i] >> 4];
        *out++ = hex[b[i] & 15];
    }
}

static struct span put(char **at, struct span text)
{
    struct span copy = {*at, text.len};
    memcpy(*at, text.data, text.len);
    (*at)[text.len] = '\0';
    *at += text.len + 1;
    return copy;
}

static struct span put_optional(char **at, struct span text)
{
    return text.data == NULL ? (struct span){NULL, 0} : put(at, text);
}

struct op *op_new(const struct op_parts *parts)
{
    char uuid[UUID_LEN];
    struct span id = parts->id;
    if (id.data == NULL) {
        make_uuid(uuid);
        id = (struct span){uuid, UUID_LEN};
    }
    size_t bytes = parts->collection.len + parts->document.len + id.len + parts->action.len +
                   parts->fields.len + parts->meta.len + 6;
    struct op *op = mem_alloc(sizeof(*op) + bytes);
    *op = (struct op){.ack = parts->ack, .size = sizeof(*op) + bytes};
    char *at = op->bytes;
    op->collection = put(&at, parts->collection);
    op->document = put(&at, parts->document);
    op->id = put(&at, id);
    op->action = put(&at, parts->action);
    op->fields = put_optional(&at, parts->fields);
    op->meta = put_optional(&at, parts->meta);
    return op;
}

void op_free(struct op *op)
{
    free(op);
}

struct span op_key(const struct op *op)
{
    return (struct span){op->bytes, op->collection.len + 1 + op->document.len};
}

struct span op_id_key(const struct op *op)
{
    return (struct span){op->bytes, op->collection.len + 1 + op->document.len + 1 + op->id.len};
}

size_t op_make_key(struct span collection, struct span document, char *out)
{
    memcpy(out, collection.data, collection.len);
    out[collection.len] = '\0';
    memcpy(out + collection.len + 1, document.data, document.len);
    return collection.len + 1 + document.len;
}

void op_split_key(struct span key, struct span *collection, struct span *document)
{
    size_t len = strnlen(key.data, key.len);
    *collection = (struct span){key.data, len};
    *document = (struct span){key.data + len + 1, key.len - len - 1};
}
