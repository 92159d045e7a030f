/* SPDX-License-Identifier: MIT */
#include "ctl.h"

#include <string.h>

/* What jansson cannot carry (large integers, 1e400) and foldctl has no need to decode. */
static bool is_document_data(struct span key)
{
    return ctl_key_is(key, "fields") || ctl_key_is(key, "meta") || ctl_key_is(key, "evidence");
}

/* Copy a reply with null in the place of document data. */
static void add_envelope(struct buf *out, struct span raw)
{
    struct ctl_walk walk;
    ctl_walk_init(&walk, raw);
    struct span key = {0};
    struct span value = {0};
    const char *copied = raw.data;
    while (ctl_walk_next(&walk, &key, &value)) {
        if (walk.close != '}' || !is_document_data(key))
            continue;
        buf_add(out, copied, (size_t)(value.data - copied));
        buf_add_str(out, "null");
        copied = value.data + value.len;
    }
    buf_add(out, copied, (size_t)(raw.data + raw.len - copied));
}

bool ctl_reply_init(struct ctl_reply *reply, struct span raw, struct err *err)
{
    *reply = (struct ctl_reply){.raw = raw};
    struct buf envelope = {0};
    add_envelope(&envelope, raw);
    json_error_t error;
    reply->root = json_loadb(buf_cstr(&envelope), envelope.len, 0, &error);
    buf_fini(&envelope);
    if (!json_is_object(reply->root)) {
        ctl_reply_fini(reply);
        return err_set(err, ERR_FATAL, "the reply is no JSON object; is this socket foldd's?");
    }
    reply->ok = json_is_true(json_object_get(reply->root, "ok"));
    return true;
}

void ctl_reply_fini(struct ctl_reply *reply)
{
    json_decref(reply->root);
    *reply = (struct ctl_reply){0};
}

const char *ctl_reply_text(const struct ctl_reply *reply, const char *key)
{
    const char *text = json_string_value(json_object_get(reply->root, key));
    return text == NULL ? "" : text;
}

void ctl_reply_add_error(const struct ctl_reply *reply, struct buf *out)
{
    const char *code = ctl_reply_text(reply, "error");
    const char *message = ctl_reply_text(reply, "message");
    buf_add_str(out, *code == '\0' ? "refused" : code);
    if (*message != '\0')
        buf_printf(out, ": %s", message);
    const char *stored = ctl_reply_text(reply, "stored");
    if (*stored != '\0')
        buf_printf(out, " (stored: %s)", stored);
}

bool ctl_reply_is_success(const struct ctl_reply *reply)
{
    const char *outcome = ctl_reply_text(reply, "outcome");
    return reply->ok &&
           (*outcome == '\0' || strcmp(outcome, "folded") == 0 || strcmp(outcome, "ignored") == 0);
}

struct span ctl_plain_value(struct span value)
{
    bool plain = value.len > 2 && value.data[0] == '"' &&
                 memchr(value.data, '\\', value.len) == NULL &&
                 memchr(value.data, ' ', value.len) == NULL;
    return plain ? (struct span){value.data + 1, value.len - 2} : value;
}

static void print_value(struct span value)
{
    struct span plain = ctl_plain_value(value);
    fwrite(plain.data, 1, plain.len, stdout);
}

static void print_raw(const struct ctl_reply *reply)
{
    fwrite(reply->raw.data, 1, reply->raw.len, stdout);
    putchar('\n');
}

/* The keys that the word in front has said already. */
static bool is_said(struct span key)
{
    return ctl_key_is(key, "ok") || ctl_key_is(key, "outcome") || ctl_key_is(key, "duplicate");
}

void ctl_reply_print_line(const struct ctl *ctl, const struct ctl_reply *reply, const char *word)
{
    if (ctl->json) {
        print_raw(reply);
        return;
    }
    fputs(word, stdout);
    struct ctl_walk walk;
    ctl_walk_init(&walk, reply->raw);
    struct span key = {0};
    struct span value = {0};
    while (ctl_walk_next(&walk, &key, &value)) {
        if (is_said(key))
            continue;
        printf(" %.*s=", (int)(key.len - 2), key.data + 1);
        print_value(value);
    }
    putchar('\n');
}

static int widest_key(struct span object)
{
    struct ctl_walk walk;
    ctl_walk_init(&walk, object);
    struct span key = {0};
    struct span value = {0};
    int widest = 0;
    while (ctl_walk_next(&walk, &key, &value))
        if (key.len < 64 && (int)key.len > widest)
            widest = (int)key.len;
    return widest;
}

void ctl_reply_print_table(const struct ctl *ctl, const struct ctl_reply *reply)
{
    if (ctl->json) {
        print_raw(reply);
        return;
    }
    int width = widest_key(reply->raw);
    struct ctl_walk walk;
    ctl_walk_init(&walk, reply->raw);
    struct span key = {0};
    struct span value = {0};
    while (ctl_walk_next(&walk, &key, &value)) {
        if (ctl_key_is(key, "ok"))
            continue;
        int len = (int)(key.len - 2);
        printf("%.*s%*s", len, key.data + 1, width > len ? width - len : 1, "");
        print_value(value);
        putchar('\n');
    }
}
