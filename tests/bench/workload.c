/* SPDX-License-Identifier: MIT */
#include "workload.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "integration/harness.h"
#include "mem.h"

enum { FILLER_MAX = 160, FILLER_CREATE = 90, FILLER_UPDATE = 124, MIX = 16 };

static const uint64_t SEED = 0x666f6c6464;

void workload_op_id(size_t op, char id[WORK_ID_MAX])
{
    snprintf(id, WORK_ID_MAX, "op-%07zu", op);
}

void workload_document_id(size_t document, char id[WORK_ID_MAX])
{
    snprintf(id, WORK_ID_MAX, "doc-%06zu", document);
}

/* Text that compresses about as well as what people write. */
static const char *filler(uint64_t *random, size_t len, char text[FILLER_MAX])
{
    static const char letters[] = "etaoin shrdlu cm";
    for (size_t i = 0; i < len; i++)
        text[i] = letters[next_random(random) % (sizeof letters - 1)];
    text[len] = '\0';
    return text;
}

static void make_create(struct buf *out, size_t i, uint64_t *random)
{
    char text[FILLER_MAX];
    uint32_t number = next_random(random);
    buf_printf(out,
               "{\"title\":\"Item %zu\",\"owner\":\"user-%" PRIu32 "\",\"state\":\"new\","
               "\"price\":%" PRIu32 ".%02" PRIu32 ",\"count\":%zu,\"open\":true,\"note\":\"%s\"}",
               i, number % 500, number % 1000, number % 100, i,
               filler(random, FILLER_CREATE, text));
}

static void make_update(struct buf *out, size_t i, uint64_t *random)
{
    char text[FILLER_MAX];
    uint32_t number = next_random(random);
    uint32_t kind = number % MIX;
    uint32_t key = (number >> 8) % 4;
    buf_printf(out, "{\"state\":\"s%" PRIu32 "\",\"count\":%zu,", (number >> 12) % 8, i);
    if (kind == 0)
        buf_printf(out, "\"k%" PRIu32 "\":null,\"note\":\"%s\"}", key,
                   filler(random, FILLER_UPDATE, text));
    else if (kind == 1)
        buf_printf(out, "\"place\":{\"city\":\"c%" PRIu32 "\",\"zip\":%s},\"note\":\"%s\"}", key,
                   key == 0 ? "null" : "12345", filler(random, FILLER_UPDATE - 27, text));
    else
        buf_printf(out, "\"price\":%" PRIu32 ".%02" PRIu32 ",\"k%" PRIu32 "\":\"%s\"}",
                   number % 1000, number % 100, key, filler(random, FILLER_UPDATE, text));
}

/* RFC 7396. Given: the patched target; the target is taken. */
static json_t *merge_patch(json_t *target, const json_t *patch)
{
    if (!json_is_object(patch)) {
        json_decref(target);
        return json_deep_copy(patch);
    }
    if (!json_is_object(target)) {
        json_decref(target);
        target = json_object();
    }
    void *iter = json_object_iter((json_t *)(uintptr_t)patch);
    for (; iter != NULL; iter = json_object_iter_next((json_t *)(uintptr_t)patch, iter)) {
        const char *key = json_object_iter_key(iter);
        const json_t *value = json_object_iter_value(iter);
        if (json_is_null(value))
            json_object_del(target, key);
        else
            json_object_set_new(target, key,
                                merge_patch(json_incref(json_object_get(target, key)), value));
    }
    return target;
}

static void fold(struct work_document *document, size_t op, struct span fields)
{
    json_error_t error;
    json_t *patch = json_loadb(fields.data, fields.len, JSON_REJECT_DUPLICATES, &error);
    ck_assert_msg(patch != NULL, "operation %zu: %s", op, error.text);
    document->fields = merge_patch(document->fields, patch);
    document->op_count++;
    document->last_op = op;
    json_decref(patch);
}

static void make_op(struct workload *workload, size_t i, uint64_t *random)
{
    struct work_op *op = &workload->ops[i];
    op->document = next_random(random) % (uint32_t)workload->document_count;
    struct work_document *document = &workload->documents[op->document];
    op->creates = document->op_count == 0;
    op->fields_at = workload->fields.len;
    if (op->creates)
        make_create(&workload->fields, i, random);
    else
        make_update(&workload->fields, i, random);
    op->fields_len = workload->fields.len - op->fields_at;
    fold(document, i, workload_fields(workload, i));
}

struct workload *workload_new(size_t op_count, size_t document_count)
{
    struct workload *workload = mem_zalloc(sizeof *workload);
    uint64_t random = SEED;
    workload->op_count = op_count;
    workload->document_count = document_count;
    workload->ops = mem_zalloc(op_count * sizeof workload->ops[0]);
    workload->documents = mem_zalloc(document_count * sizeof workload->documents[0]);
    for (size_t i = 0; i < op_count; i++)
        make_op(workload, i, &random);
    return workload;
}

void workload_free(struct workload *workload)
{
    for (size_t i = 0; i < workload->document_count; i++)
        json_decref(workload->documents[i].fields);
    free(workload->documents);
    free(workload->ops);
    buf_fini(&workload->fields);
    free(workload);
}

struct span workload_fields(const struct workload *workload, size_t op)
{
    return (struct span){workload->fields.data + workload->ops[op].fields_at,
                         workload->ops[op].fields_len};
}

size_t workload_client(const struct workload *workload, size_t op, size_t client_count)
{
    return workload->ops[op].document % client_count;
}

void workload_line(const struct workload *workload, size_t op, enum work_ack ack, struct buf *line)
{
    char id[WORK_ID_MAX];
    char document[WORK_ID_MAX];
    struct span fields = workload_fields(workload, op);
    workload_op_id(op, id);
    workload_document_id(workload->ops[op].document, document);
    buf_printf(line, "{\"document\":\"%s\",\"id\":\"%s\",\"action\":\"%s\",%s\"fields\":", document,
               id, workload->ops[op].creates ? "create" : "update",
               ack == WORK_ACK_FOLDED ? "\"ack\":\"folded\"," : "");
    buf_add(line, fields.data, fields.len);
    buf_add_str(line, "}\n");
}

size_t workload_line_bytes(const struct workload *workload)
{
    struct buf lines = {0};
    for (size_t i = 0; i < workload->op_count; i++)
        workload_line(workload, i, WORK_ACK_STORED, &lines);
    size_t mean = lines.len / workload->op_count;
    buf_fini(&lines);
    return mean;
}
