/* SPDX-License-Identifier: MIT */
#include "ctl.h"

#include <string.h>

static const char *skip_space(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\r' || *at == '\n'))
        at++;
    return at;
}

/* Behind the string that opens at at; NULL when it does not end. */
static const char *skip_string(const char *at, const char *end)
{
    for (at++; at < end; at++) {
        if (*at == '\\')
            at++;
        else if (*at == '"')
            return at + 1;
    }
    return NULL;
}

static const char *skip_container(const char *at, const char *end)
{
    size_t depth = 0;
    while (at != NULL && at < end) {
        if (*at == '"') {
            at = skip_string(at, end);
            continue;
        }
        if (*at == '{' || *at == '[')
            depth++;
        else if (*at == '}' || *at == ']')
            depth--;
        at++;
        if (depth == 0)
            return at;
    }
    return NULL;
}

/* Behind the value at at; NULL when there is none. */
static const char *skip_value(const char *at, const char *end)
{
    if (at == end)
        return NULL;
    if (*at == '"')
        return skip_string(at, end);
    if (*at == '{' || *at == '[')
        return skip_container(at, end);
    const char *start = at;
    while (at < end && strchr(",]} \t\r\n", *at) == NULL)
        at++;
    return at == start ? NULL : at;
}

void ctl_walk_init(struct ctl_walk *walk, struct span text)
{
    *walk = (struct ctl_walk){.end = text.data + text.len};
    walk->at = skip_space(text.data, walk->end);
    if (walk->at == walk->end || (*walk->at != '{' && *walk->at != '[')) {
        walk->broken = true;
        return;
    }
    walk->close = *walk->at == '{' ? '}' : ']';
    walk->at++;
}

static bool stop_broken(struct ctl_walk *walk)
{
    walk->broken = true;
    return false;
}

static bool take_key(struct ctl_walk *walk, struct span *key)
{
    const char *start = walk->at;
    const char *behind = *start == '"' ? skip_string(start, walk->end) : NULL;
    if (behind == NULL)
        return stop_broken(walk);
    *key = (struct span){.data = start, .len = (size_t)(behind - start)};
    walk->at = skip_space(behind, walk->end);
    if (walk->at == walk->end || *walk->at != ':')
        return stop_broken(walk);
    walk->at = skip_space(walk->at + 1, walk->end);
    return true;
}

bool ctl_walk_next(struct ctl_walk *walk, struct span *key, struct span *value)
{
    if (walk->broken)
        return false;
    walk->at = skip_space(walk->at, walk->end);
    if (walk->at < walk->end && *walk->at == ',')
        walk->at = skip_space(walk->at + 1, walk->end);
    if (walk->at == walk->end)
        return stop_broken(walk);
    if (*walk->at == walk->close)
        return false;
    if (walk->close == '}' && !take_key(walk, key))
        return false;
    const char *behind = skip_value(walk->at, walk->end);
    if (behind == NULL)
        return stop_broken(walk);
    *value = (struct span){.data = walk->at, .len = (size_t)(behind - walk->at)};
    walk->at = behind;
    return true;
}

bool ctl_key_is(struct span key, const char *name)
{
    size_t len = strlen(name);
    if (memchr(key.data, '\\', key.len) == NULL)
        return key.len == len + 2 && memcmp(key.data + 1, name, len) == 0;
    json_t *decoded = json_loadb(key.data, key.len, JSON_DECODE_ANY, NULL);
    bool equal = decoded != NULL && strcmp(json_string_value(decoded), name) == 0;
    json_decref(decoded);
    return equal;
}

bool ctl_member(struct span object, const char *name, struct span *value)
{
    struct ctl_walk walk;
    ctl_walk_init(&walk, object);
    struct span key = {0};
    while (ctl_walk_next(&walk, &key, value))
        if (walk.close == '}' && ctl_key_is(key, name))
            return true;
    return false;
}

void ctl_add_string(struct buf *out, const char *text)
{
    buf_add_char(out, '"');
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\')
            buf_add_char(out, '\\');
        if ((unsigned char)*text < 0x20)
            buf_printf(out, "\\u%04x", (unsigned)*text);
        else
            buf_add_char(out, *text);
    }
    buf_add_char(out, '"');
}

void ctl_add_raw(struct buf *out, const char *text)
{
    for (; *text != '\0'; text++)
        buf_add_char(out, *text == '\n' || *text == '\r' ? ' ' : *text);
}

void ctl_add_text_member(struct buf *out, const char *key, const char *text)
{
    if (text == NULL)
        return;
    buf_printf(out, ",\"%s\":", key);
    ctl_add_string(out, text);
}

void ctl_add_int_member(struct buf *out, const char *key, int64_t value)
{
    if (value >= 0)
        buf_printf(out, ",\"%s\":%lld", key, (long long)value);
}
