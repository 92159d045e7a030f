/* SPDX-License-Identifier: MIT */
#include "fuzz.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "proto.h"

static struct span text_span(const char *text)
{
    return (struct span){text, strlen(text)};
}

/* A member of the reply is this text. */
static bool has_text(const json_t *reply, const char *key, struct span text)
{
    const json_t *value = json_object_get(reply, key);
    return json_is_string(value) && json_string_length(value) == text.len &&
           memcmp(json_string_value(value), text.data, text.len) == 0;
}

/* Given: the reply, which is one line of JSON. */
static json_t *decode_reply(const struct buf *out)
{
    fuzz_require(fuzz_is_utf8((struct span){out->data, out->len}), "a reply is UTF-8");
    fuzz_require(memchr(out->data, '\n', out->len) == out->data + out->len - 1,
                 "a reply is one line");
    json_t *reply = json_loadb(out->data, out->len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    fuzz_require(json_is_object(reply), "a reply is a JSON object");
    return reply;
}

static void check_refusal(const struct err *err)
{
    fuzz_require(err->class == ERR_CLIENT, "a line that is refused is the client's fault");
    fuzz_require(err->message[0] != '\0', "a refusal has a message");
    fuzz_require(fuzz_is_utf8(text_span(err->message)), "the message is UTF-8");
    struct buf out = {0};
    proto_error(&out, REPLY_INVALID, err->message, 1);
    json_t *reply = decode_reply(&out);
    fuzz_require(has_text(reply, "message", text_span(err->message)), "the reply has the message");
    json_decref(reply);
    buf_fini(&out);
}

static void check_text(struct span text, size_t min, size_t max)
{
    fuzz_require(text.len >= min && text.len <= max, "a text is within its limits");
    fuzz_require(memchr(text.data, '\0', text.len) == NULL, "a text has no NUL");
    fuzz_require(fuzz_is_utf8(text), "a text is UTF-8");
}

static void check_raw(struct span raw)
{
    struct scan_error error;
    if (raw.data == NULL)
        return;
    fuzz_require(raw.len >= 2 && raw.data[0] == '{' && raw.data[raw.len - 1] == '}',
                 "fields and meta are objects, from brace to brace");
    fuzz_require(scan_value(raw.data, raw.len, &error), "fields and meta are valid by themselves");
}

static void check_receipt(const struct op *op)
{
    struct buf out = {0};
    proto_receipt(&out, INT64_MAX, op->id, RECEIPT_DUPLICATE);
    proto_end(&out);
    json_t *reply = decode_reply(&out);
    fuzz_require(has_text(reply, "id", op->id), "the receipt has the id");
    fuzz_require(json_integer_value(json_object_get(reply, "seq")) == INT64_MAX,
                 "the receipt has the seq");
    json_decref(reply);
    buf_fini(&out);
}

static void check_operation(const struct op *op)
{
    struct span collection;
    struct span document;
    check_text(op->collection, 1, OP_COLLECTION_MAX);
    check_text(op->document, 1, OP_DOCUMENT_MAX);
    check_text(op->id, 1, OP_ID_MAX);
    check_text(op->action, 1, OP_ACTION_MAX);
    check_raw(op->fields);
    check_raw(op->meta);
    op_split_key(op_key(op), &collection, &document);
    fuzz_require(collection.len == op->collection.len && document.len == op->document.len,
                 "the key has both parts");
    check_receipt(op);
}

static void check_request(const struct request *request)
{
    fuzz_require(request->op == NULL, "a request is no operation");
    fuzz_require(request->kind < REQUEST_KINDS, "a request is of a known kind");
    fuzz_require(request->seq >= 0, "a seq is not negative");
    fuzz_require(request->timeout_ms >= 0 && request->timeout_ms <= PROTO_TIMEOUT_MAX_MS,
                 "a timeout is within its limits");
    fuzz_require(request->limit >= 1 && request->limit <= PROTO_LIST_MAX,
                 "a list's limit is within its limits");
    check_text(request->collection, 0, OP_KEY_MAX);
    check_text(request->reason, 0, PROTO_REASON_MAX);
    if (request->document.data != NULL)
        check_text(request->document, 1, OP_KEY_MAX);
    if (request->id.data != NULL)
        check_text(request->id, 1, OP_ID_MAX);
}

/* The line is a copy of its exact size, and gone when the request is looked at. */
void fuzz_proto(const uint8_t *data, size_t size)
{
    struct request request;
    struct err err = {0};
    char *line = malloc(size);
    fuzz_require(line != NULL || size == 0, "there is memory");
    if (size > 0)
        memcpy(line, data, size);
    bool accepted = proto_parse((struct span){line, size}, &request, &err);
    free(line);
    if (!accepted) {
        check_refusal(&err);
        return;
    }
    if (request.kind == REQUEST_OPERATION)
        check_operation(request.op);
    else
        check_request(&request);
    request_fini(&request);
}
