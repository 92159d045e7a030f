/* SPDX-License-Identifier: MIT */
#include "ctl_ids.h"

#include <stdlib.h>

#include "ctl.h"
#include "mem.h"

/* What of an object's members decides about its id. */
struct shape {
    bool has_action;
    bool has_id;
    bool has_operations;
    struct span operations;
    const char *close; /* its closing brace; NULL when it is no whole object */
};

static struct shape look_at(struct span object)
{
    struct shape shape = {0};
    struct ctl_walk walk;
    ctl_walk_init(&walk, object);
    if (walk.close != '}')
        return shape;
    struct span key = {0};
    struct span value = {0};
    while (ctl_walk_next(&walk, &key, &value)) {
        shape.has_action = shape.has_action || ctl_key_is(key, "action");
        shape.has_id = shape.has_id || ctl_key_is(key, "id");
        if (ctl_key_is(key, "operations")) {
            shape.has_operations = true;
            shape.operations = value;
        }
    }
    shape.close = walk.broken ? NULL : walk.at;
    return shape;
}

static void add_until(struct buf *out, const char **from, const char *to)
{
    buf_add(out, *from, (size_t)(to - *from));
    *from = to;
}

static void add_id(struct buf *out, char *id)
{
    ctl_add_text_member(out, "id", id);
    free(id);
}

/* The members of a group, up to the end of the last one that gets an id; *from moves there. */
static bool add_group(struct buf *out, const char **from, struct span operations,
                      const char *prefix, uint64_t line_no)
{
    bool added = false;
    struct ctl_walk walk;
    ctl_walk_init(&walk, operations);
    struct span key = {0};
    struct span member = {0};
    for (unsigned index = 0; ctl_walk_next(&walk, &key, &member); index++) {
        struct shape shape = look_at(member);
        if (shape.close == NULL || !shape.has_action || shape.has_id)
            continue;
        add_until(out, from, shape.close);
        add_id(out, mem_printf("%s-%llu-%u", prefix, (unsigned long long)line_no, index));
        added = true;
    }
    return added;
}

bool ctl_ids_add(struct buf *out, struct span line, const char *prefix, uint64_t line_no)
{
    bool added = false;
    const char *from = line.data;
    struct shape shape = look_at(line);
    if (shape.close != NULL && shape.has_operations) {
        added = add_group(out, &from, shape.operations, prefix, line_no);
    } else if (shape.close != NULL && shape.has_action && !shape.has_id) {
        add_until(out, &from, shape.close);
        add_id(out, mem_printf("%s-%llu", prefix, (unsigned long long)line_no));
        added = true;
    }
    add_until(out, &from, line.data + line.len);
    return added;
}
