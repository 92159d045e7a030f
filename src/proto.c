/* SPDX-License-Identifier: MIT */
#include "proto.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "emit.h"

/* Every key that a line can have. */
enum key {
    KEY_COLLECTION,
    KEY_DOCUMENT,
    KEY_ID,
    KEY_ACTION,
    KEY_FIELDS,
    KEY_META,
    KEY_ACK,
    KEY_REQUEST,
    KEY_SEQ,
    KEY_TIMEOUT,
    KEY_REASON,
    KEY_WHAT,
    KEY_AFTER,
    KEY_LIMIT,
    KEYS,
};

static const char *const key_names[KEYS] = {
    [KEY_COLLECTION] = "collection",
    [KEY_DOCUMENT] = "document",
    [KEY_ID] = "id",
    [KEY_ACTION] = "action",
    [KEY_FIELDS] = "fields",
    [KEY_META] = "meta",
    [KEY_ACK] = "ack",
    [KEY_REQUEST] = "request",
    [KEY_SEQ] = "seq",
    [KEY_TIMEOUT] = "timeout_ms",
    [KEY_REASON] = "reason",
    [KEY_WHAT] = "what",
    [KEY_AFTER] = "after",
    [KEY_LIMIT] = "limit",
};

#define BIT(key) (1u << (key))

struct shape {
    const char *name;
    enum request_kind kind;
    unsigned allowed;
    unsigned required;
};

static const struct shape operation_shape = {"operation", REQUEST_OPERATION,
                                             BIT(KEY_COLLECTION) | BIT(KEY_DOCUMENT) | BIT(KEY_ID) |
                                                 BIT(KEY_ACTION) | BIT(KEY_FIELDS) | BIT(KEY_META) |
                                                 BIT(KEY_ACK),
                                             BIT(KEY_DOCUMENT) | BIT(KEY_ACTION)};

static const struct shape request_shapes[] = {
    {"ping", REQUEST_PING, BIT(KEY_REQUEST), 0},
    {"status", REQUEST_STATUS, BIT(KEY_REQUEST), 0},
    {"get", REQUEST_GET, BIT(KEY_REQUEST) | BIT(KEY_COLLECTION) | BIT(KEY_DOCUMENT),
     BIT(KEY_DOCUMENT)},
    {"operation", REQUEST_LOOK,
     BIT(KEY_REQUEST) | BIT(KEY_COLLECTION) | BIT(KEY_DOCUMENT) | BIT(KEY_ID),
     BIT(KEY_DOCUMENT) | BIT(KEY_ID)},
    {"await", REQUEST_AWAIT,
     BIT(KEY_REQUEST) | BIT(KEY_COLLECTION) | BIT(KEY_DOCUMENT) | BIT(KEY_ID) | BIT(KEY_SEQ) |
         BIT(KEY_TIMEOUT),
     0},
    {"barrier", REQUEST_BARRIER, BIT(KEY_REQUEST) | BIT(KEY_TIMEOUT), 0},
    {"parked", REQUEST_PARKED, BIT(KEY_REQUEST) | BIT(KEY_AFTER) | BIT(KEY_LIMIT), 0},
    {"retry", REQUEST_RETRY, BIT(KEY_REQUEST) | BIT(KEY_COLLECTION) | BIT(KEY_DOCUMENT), 0},
    {"skip", REQUEST_SKIP,
     BIT(KEY_REQUEST) | BIT(KEY_COLLECTION) | BIT(KEY_DOCUMENT) | BIT(KEY_SEQ) | BIT(KEY_REASON),
     BIT(KEY_DOCUMENT) | BIT(KEY_SEQ) | BIT(KEY_REASON)},
    {"pause", REQUEST_PAUSE, BIT(KEY_REQUEST) | BIT(KEY_WHAT) | BIT(KEY_REASON), BIT(KEY_WHAT)},
    {"resume", REQUEST_RESUME, BIT(KEY_REQUEST) | BIT(KEY_WHAT), BIT(KEY_WHAT)},
    {"drain", REQUEST_DRAIN, BIT(KEY_REQUEST) | BIT(KEY_REASON) | BIT(KEY_TIMEOUT), 0},
};

struct actions {
    const char *name;
    bool fields;
};

static const struct actions builtin_actions[] = {
    {"create", true}, {"update", true}, {"delete", false}};

/* The members of one line by key; NULL where the key is absent. */
struct members {
    const struct scan_member *by_key[KEYS];
    struct span action; /* decoded, for choosing the shape */
};

/* Text of a client's in a message: at most so much of it, cut between characters. */
enum { QUOTED_MAX = 100 };

static int quoted(struct span text)
{
    if (text.len <= QUOTED_MAX)
        return (int)text.len;
    int len = QUOTED_MAX;
    while (len > 0 && ((unsigned char)text.data[len] & 0xc0) == 0x80)
        len--;
    return len;
}

#define INVALID(err, ...) err_set(err, ERR_CLIENT, __VA_ARGS__)

/* Room for every decoded text of a valid line, so that text does not move while spans point at it.
 */
enum {
    DECODED_MAX =
        OP_COLLECTION_MAX + OP_DOCUMENT_MAX + OP_ID_MAX + OP_ACTION_MAX + 2 * PROTO_REASON_MAX
};

/* The text of a JSON string member: its own bytes, or what jansson makes of its escapes, in text.
 */
static bool decode(const struct scan_member *member, struct buf *text, struct span *out)
{
    if (!member->escaped) {
        *out = (struct span){member->value.data + 1, member->value.len - 2};
        return true;
    }
    json_t *string = json_loadb(member->value.data, member->value.len, JSON_DECODE_ANY, NULL);
    if (string == NULL)
        return false;
    size_t at = text->len;
    if (text->cap == 0)
        buf_reserve(text, DECODED_MAX);
    buf_add(text, json_string_value(string), json_string_length(string));
    *out = (struct span){text->data + at, text->len - at};
    json_decref(string);
    return true;
}

/* A key as its decoded text, for comparing and for error messages. */
static void decode_key(const struct scan_member *member, struct buf *text)
{
    text->len = 0;
    if (member->key_escaped) {
        struct scan_member quoted = {.value = {member->key.data - 1, member->key.len + 2},
                                     .escaped = true};
        struct span out;
        if (decode(&quoted, text, &out))
            return;
    }
    buf_add(text, member->key.data, member->key.len);
}

static int find_key(const struct buf *name)
{
    for (int key = 0; key < KEYS; key++)
        if (strlen(key_names[key]) == name->len &&
            memcmp(key_names[key], name->data, name->len) == 0)
            return key;
    return -1;
}

static bool collect(const struct scan_object *object, struct members *members, struct err *err)
{
    struct buf name = {0};
    bool ok = true;
    for (size_t i = 0; ok && i < object->count; i++) {
        const struct scan_member *member = &object->members[i];
        decode_key(member, &name);
        int key = find_key(&name);
        if (key < 0)
            ok = INVALID(err, "unknown key \"%.*s\"", quoted((struct span){name.data, name.len}),
                         name.data);
        else if (members->by_key[key] != NULL)
            ok = INVALID(err, "the key \"%s\" is there twice", key_names[key]);
        else
            members->by_key[key] = member;
    }
    buf_fini(&name);
    return ok;
}

static bool check_keys(const struct members *members, const struct shape *shape, struct err *err)
{
    for (int key = 0; key < KEYS; key++)
        if (members->by_key[key] != NULL && !(shape->allowed & BIT(key)))
            return INVALID(err, "the key \"%s\" does not belong in %s \"%s\"", key_names[key],
                           shape->kind == REQUEST_OPERATION ? "an" : "the request", shape->name);
    for (int key = 0; key < KEYS; key++)
        if (members->by_key[key] == NULL && (shape->required & BIT(key)))
            return INVALID(err, "the key \"%s\" is missing", key_names[key]);
    return true;
}

/* A text member of 1 to max bytes; absent leaves out as it is. */
static bool get_text(const struct members *members, enum key key, size_t max, struct buf *text,
                     struct span *out, struct err *err)
{
    const struct scan_member *member = members->by_key[key];
    if (member == NULL)
        return true;
    if (member->kind != SCAN_STRING)
        return INVALID(err, "\"%s\" must be a string", key_names[key]);
    /* An escape is at most six bytes for one: a longer text is too long whatever it decodes to. */
    if (member->value.len > 6 * max + 2)
        return INVALID(err, "\"%s\" is longer than %zu bytes", key_names[key], max);
    if (!decode(member, text, out))
        return INVALID(err, "\"%s\" must be a string", key_names[key]);
    if (out->len == 0)
        return INVALID(err, "\"%s\" must not be empty", key_names[key]);
    if (out->len > max)
        return INVALID(err, "\"%s\" is longer than %zu bytes", key_names[key], max);
    return true;
}

/* A whole number of min to max; absent leaves out as it is. */
static bool get_int(const struct members *members, enum key key, int64_t min, int64_t max,
                    int64_t *out, struct err *err)
{
    const struct scan_member *member = members->by_key[key];
    if (member == NULL)
        return true;
    int64_t value = 0;
    bool ok = member->kind == SCAN_NUMBER;
    for (size_t i = 0; ok && i < member->value.len; i++) {
        char c = member->value.data[i];
        ok = c >= '0' && c <= '9' && !__builtin_mul_overflow(value, 10, &value) &&
             !__builtin_add_overflow(value, c - '0', &value);
    }
    if (!ok || value < min || value > max)
        return INVALID(err, "\"%s\" must be a whole number from %lld to %lld", key_names[key],
                       (long long)min, (long long)max);
    *out = value;
    return true;
}

static bool get_object(const struct members *members, enum key key, struct span *out,
                       struct err *err)
{
    const struct scan_member *member = members->by_key[key];
    if (member == NULL)
        return true;
    if (member->kind != SCAN_OBJECT)
        return INVALID(err, "\"%s\" must be an object", key_names[key]);
    *out = member->value;
    return true;
}

static bool check_action(struct span action, bool has_fields, struct err *err)
{
    for (size_t i = 0; i < sizeof(builtin_actions) / sizeof(builtin_actions[0]); i++) {
        const struct actions *known = &builtin_actions[i];
        if (!span_is(action, known->name))
            continue;
        if (known->fields && !has_fields)
            return INVALID(err, "the key \"fields\" is missing: \"%s\" needs it", known->name);
        if (!known->fields && has_fields)
            return INVALID(err, "the key \"fields\" does not belong in a \"%s\"", known->name);
        return true;
    }
    return INVALID(err, "unknown action \"%.*s\"", quoted(action), action.data);
}

static bool get_ack(const struct members *members, struct buf *text, enum op_ack *out,
                    struct err *err)
{
    const struct scan_member *member = members->by_key[KEY_ACK];
    struct span word;
    if (member == NULL)
        return true;
    bool known = member->kind == SCAN_STRING && member->value.len < QUOTED_MAX &&
                 decode(member, text, &word);
    if (known && span_is(word, "folded"))
        *out = OP_ACK_FOLDED;
    else if (!known || !span_is(word, "stored"))
        return INVALID(err, "\"ack\" must be \"stored\" or \"folded\"");
    return true;
}

static bool parse_operation(const struct members *members, struct request *out, struct err *err)
{
    struct op_parts parts = {.collection = {"default", 7}};
    if (!get_text(members, KEY_COLLECTION, OP_COLLECTION_MAX, &out->text, &parts.collection, err) ||
        !get_text(members, KEY_DOCUMENT, OP_DOCUMENT_MAX, &out->text, &parts.document, err) ||
        !get_text(members, KEY_ID, OP_ID_MAX, &out->text, &parts.id, err) ||
        !get_text(members, KEY_ACTION, OP_ACTION_MAX, &out->text, &parts.action, err) ||
        !get_object(members, KEY_FIELDS, &parts.fields, err) ||
        !get_object(members, KEY_META, &parts.meta, err) ||
        !get_ack(members, &out->text, &parts.ack, err) ||
        !check_action(parts.action, parts.fields.data != NULL, err))
        return false;
    out->op = op_new(&parts);
    return true;
}

/* A request may wait longer than its line lives. */
static void own_text(struct request *request)
{
    struct span *const spans[] = {&request->collection, &request->document, &request->id,
                                  &request->reason, &request->what};
    struct buf text = {0};
    size_t len = 0;
    for (size_t i = 0; i < sizeof(spans) / sizeof(spans[0]); i++)
        len += spans[i]->len;
    text.data = mem_alloc(len);
    text.cap = len;
    for (size_t i = 0; i < sizeof(spans) / sizeof(spans[0]); i++) {
        if (spans[i]->data == NULL)
            continue;
        buf_add(&text, spans[i]->data, spans[i]->len);
        spans[i]->data = text.data + text.len - spans[i]->len;
    }
    buf_fini(&request->text);
    request->text = text;
}

static bool check_await(const struct request *request, struct err *err)
{
    bool document = request->document.data != NULL;
    bool id = request->id.data != NULL;
    bool seq = request->seq != 0;
    if (id && seq)
        return INVALID(err, "\"id\" and \"seq\" exclude each other");
    if (!seq && !id)
        return INVALID(err, "an await needs \"seq\", or \"document\" and \"id\"");
    if (id && !document)
        return INVALID(err, "the key \"document\" is missing");
    return true;
}

static bool check_pause(const struct request *request, struct err *err)
{
    if (span_is(request->what, "ingest") || span_is(request->what, "folding"))
        return true;
    return INVALID(err, "\"what\" must be \"ingest\" or \"folding\"");
}

/* What proto_list_key has written: the collection's length, a colon, both. null and absent: from
 * the first. */
static bool get_after(const struct members *members, struct request *out, struct err *err)
{
    const struct scan_member *member = members->by_key[KEY_AFTER];
    struct span after = {NULL, 0};
    if (member == NULL || member->kind == SCAN_NULL)
        return true;
    if (!get_text(members, KEY_AFTER, OP_KEY_MAX + 4, &out->text, &after, err))
        return false;
    size_t at = 0;
    size_t len = 0;
    while (at < after.len && at < 3 && after.data[at] >= '0' && after.data[at] <= '9')
        len = len * 10 + (size_t)(after.data[at++] - '0');
    if (at == 0 || at >= after.len || after.data[at] != ':' || len == 0 ||
        after.len - at - 1 <= len || ((unsigned char)after.data[at + 1 + len] & 0xc0) == 0x80)
        return INVALID(err, "\"after\" must be the \"next\" of an earlier reply");
    out->collection = (struct span){after.data + at + 1, len};
    out->document = (struct span){after.data + at + 1 + len, after.len - at - 1 - len};
    return true;
}

static bool parse_request(const struct members *members, const struct shape *shape,
                          struct request *out, struct err *err)
{
    out->collection = (struct span){"default", 7};
    out->timeout_ms = PROTO_TIMEOUT_DEFAULT_MS;
    out->limit = PROTO_LIST_DEFAULT;
    out->reason = (struct span){"", 0};
    if (!get_text(members, KEY_COLLECTION, OP_COLLECTION_MAX, &out->text, &out->collection, err) ||
        !get_text(members, KEY_DOCUMENT, OP_DOCUMENT_MAX, &out->text, &out->document, err) ||
        !get_text(members, KEY_ID, OP_ID_MAX, &out->text, &out->id, err) ||
        !get_int(members, KEY_SEQ, 1, INT64_MAX, &out->seq, err) ||
        !get_int(members, KEY_TIMEOUT, 0, PROTO_TIMEOUT_MAX_MS, &out->timeout_ms, err) ||
        !get_int(members, KEY_LIMIT, 1, PROTO_LIST_MAX, &out->limit, err) ||
        !get_text(members, KEY_REASON, PROTO_REASON_MAX, &out->text, &out->reason, err) ||
        !get_text(members, KEY_WHAT, OP_ACTION_MAX, &out->text, &out->what, err) ||
        !get_after(members, out, err))
        return false;
    if (shape->kind == REQUEST_RETRY && out->document.data == NULL &&
        members->by_key[KEY_COLLECTION] != NULL)
        return INVALID(err, "the key \"document\" is missing");
    if (out->what.data != NULL && !check_pause(out, err))
        return false;
    if (shape->kind == REQUEST_AWAIT && !check_await(out, err))
        return false;
    own_text(out);
    return true;
}

static const struct shape *find_request(const struct scan_member *request, struct err *err)
{
    struct buf text = {0};
    struct span name = {NULL, 0};
    const struct shape *found = NULL;
    if (request->kind != SCAN_STRING || !decode(request, &text, &name)) {
        INVALID(err, "\"request\" must be a string");
    } else {
        for (size_t i = 0; i < sizeof(request_shapes) / sizeof(request_shapes[0]); i++)
            if (span_is(name, request_shapes[i].name))
                found = &request_shapes[i];
        if (found == NULL)
            INVALID(err, "unknown request \"%.*s\"", quoted(name), name.data);
    }
    buf_fini(&text);
    return found;
}

static const struct shape *find_shape(const struct members *members, struct err *err)
{
    const struct scan_member *request = members->by_key[KEY_REQUEST];
    bool action = members->by_key[KEY_ACTION] != NULL;
    if (request != NULL && !action)
        return find_request(request, err);
    if (request == NULL && action)
        return &operation_shape;
    if (action)
        INVALID(err, "\"action\" and \"request\" exclude each other");
    else
        INVALID(err, "a line needs \"action\" or \"request\"");
    return NULL;
}

static bool scan_failed(const struct scan_error *error, struct err *err)
{
    if (error->member.data == NULL)
        return INVALID(err, "%s at byte %zu", error->reason, error->offset);
    return INVALID(err, "%s at byte %zu, in \"%.*s\"", error->reason, error->offset,
                   quoted(error->member), error->member.data);
}

bool proto_parse(struct span line, struct request *out, struct err *err)
{
    struct scan_object object;
    struct scan_error error;
    struct members members = {0};
    *out = (struct request){0};
    if (!scan_object(line.data, line.len, &object, &error))
        return scan_failed(&error, err);
    if (!collect(&object, &members, err))
        return false;
    const struct shape *shape = find_shape(&members, err);
    if (shape == NULL || !check_keys(&members, shape, err))
        return false;
    out->kind = shape->kind;
    bool ok = shape->kind == REQUEST_OPERATION ? parse_operation(&members, out, err)
                                               : parse_request(&members, shape, out, err);
    if (!ok || shape->kind == REQUEST_OPERATION)
        buf_fini(&out->text);
    return ok;
}

void request_fini(struct request *request)
{
    op_free(request->op);
    buf_fini(&request->text);
    *request = (struct request){0};
}

static const char *const code_names[] = {
    [REPLY_INVALID] = "invalid",         [REPLY_TOO_LARGE] = "too_large",
    [REPLY_CONFLICT] = "conflict",       [REPLY_NOT_FOUND] = "not_found",
    [REPLY_FORBIDDEN] = "forbidden",     [REPLY_STANDBY] = "standby",
    [REPLY_UNAVAILABLE] = "unavailable",
};

static void begin_error(struct buf *out, enum reply_code code, const char *message, int64_t line)
{
    emit_begin(out);
    emit_bool(out, "ok", false);
    emit_str(out, "error", code_names[code]);
    emit_str(out, "message", message);
    emit_int(out, "line", line);
}

void proto_list_key(struct buf *out, struct span collection, struct span document)
{
    buf_printf(out, "%zu:", collection.len);
    buf_add(out, collection.data, collection.len);
    buf_add(out, document.data, document.len);
}

void proto_end(struct buf *out)
{
    emit_end(out);
    buf_add_char(out, '\n');
}

void proto_error(struct buf *out, enum reply_code code, const char *message, int64_t line)
{
    begin_error(out, code, message, line);
    proto_end(out);
}

void proto_conflict(struct buf *out, int64_t seq, struct span id, int64_t line)
{
    begin_error(out, REPLY_CONFLICT, "this id is taken by an operation with other content", line);
    emit_int(out, "seq", seq);
    emit_span(out, "id", id);
    proto_end(out);
}

void proto_unavailable(struct buf *out, const char *stored, int64_t line)
{
    begin_error(out, REPLY_UNAVAILABLE, "the database cannot be reached", line);
    emit_str(out, "stored", stored);
    proto_end(out);
}

void proto_receipt(struct buf *out, int64_t seq, struct span id, enum receipt_kind kind)
{
    emit_begin(out);
    emit_bool(out, "ok", true);
    emit_int(out, "seq", seq);
    emit_span(out, "id", id);
    if (kind == RECEIPT_DUPLICATE)
        emit_bool(out, "duplicate", true);
}
