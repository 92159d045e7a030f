/* SPDX-License-Identifier: MIT */
/* The commands that are one request and one reply. */
#include "ctl.h"

#include <string.h>

static struct buf begin_request(const char *name)
{
    struct buf line = {0};
    buf_printf(&line, "{\"request\":\"%s\"", name);
    return line;
}

static int finish_request(const struct ctl *ctl, struct buf *line, ctl_show_fn show)
{
    buf_add_char(line, '}');
    return ctl_request(ctl, line, show);
}

static int show_table(const struct ctl *ctl, const struct ctl_reply *reply)
{
    ctl_reply_print_table(ctl, reply);
    return CTL_OK;
}

static int show_pong(const struct ctl *ctl, const struct ctl_reply *reply)
{
    ctl_reply_print_line(ctl, reply, "pong");
    return CTL_OK;
}

/* A document's fields exactly as foldd wrote them. */
static int show_fields(const struct ctl *ctl, const struct ctl_reply *reply)
{
    bool deleted = json_is_true(json_object_get(reply->root, "deleted"));
    struct span fields = {0};
    if (ctl->json)
        ctl_reply_print_line(ctl, reply, "");
    else if (deleted)
        ctl_fail(CTL_REFUSED, "the document is deleted");
    else if (!ctl_member(reply->raw, "fields", &fields))
        return ctl_fail(CTL_UNREACHABLE, "the reply has no fields; is this socket foldd's?");
    else
        printf("%.*s\n", (int)fields.len, fields.data);
    return deleted ? CTL_REFUSED : CTL_OK;
}

static int show_outcome(const struct ctl *ctl, const struct ctl_reply *reply)
{
    const char *outcome = ctl_reply_text(reply, "outcome");
    ctl_reply_print_line(ctl, reply, *outcome == '\0' ? "settled" : outcome);
    return ctl_reply_is_success(reply) ? CTL_OK : CTL_REFUSED;
}

int ctl_ping(const struct ctl *ctl)
{
    struct buf line = begin_request("ping");
    return finish_request(ctl, &line, show_pong);
}

int ctl_status(const struct ctl *ctl)
{
    struct buf line = begin_request("status");
    return finish_request(ctl, &line, show_table);
}

int ctl_get(const struct ctl *ctl)
{
    struct buf line = begin_request("get");
    ctl_add_text_member(&line, "collection", ctl->collection);
    ctl_add_text_member(&line, "document", ctl->args[0]);
    return finish_request(ctl, &line, show_fields);
}

int ctl_operation(const struct ctl *ctl)
{
    struct buf line = begin_request("operation");
    ctl_add_text_member(&line, "collection", ctl->collection);
    ctl_add_text_member(&line, "document", ctl->args[0]);
    ctl_add_text_member(&line, "id", ctl->args[1]);
    return finish_request(ctl, &line, show_table);
}

int ctl_barrier(const struct ctl *ctl)
{
    struct buf line = begin_request("barrier");
    ctl_add_int_member(&line, "timeout_ms", ctl->timeout_ms);
    return finish_request(ctl, &line, show_outcome);
}

int ctl_await(const struct ctl *ctl)
{
    const char *document = ctl->arg_count > 0 ? ctl->args[0] : NULL;
    if ((ctl->seq >= 0) == (ctl->id != NULL))
        return ctl_fail(CTL_USAGE, "await needs one of --seq and --id");
    if (document == NULL && (ctl->id != NULL || ctl->collection != NULL))
        return ctl_fail(CTL_USAGE, "await needs DOCUMENT with --id or --collection");
    struct buf line = begin_request("await");
    ctl_add_text_member(&line, "collection", ctl->collection);
    ctl_add_text_member(&line, "document", document);
    ctl_add_text_member(&line, "id", ctl->id);
    ctl_add_int_member(&line, "seq", ctl->seq);
    ctl_add_int_member(&line, "timeout_ms", ctl->timeout_ms);
    return finish_request(ctl, &line, show_outcome);
}
