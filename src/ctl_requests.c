/* SPDX-License-Identifier: MIT */
/* The commands that are one request and one reply. */
#include "ctl.h"

#include <errno.h>
#include <stdlib.h>
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

/* The word of each request that answers with little more than ok. */
static int show_retried(const struct ctl *ctl, const struct ctl_reply *reply)
{
    ctl_reply_print_line(ctl, reply, "due");
    return CTL_OK;
}

static int show_skipped(const struct ctl *ctl, const struct ctl_reply *reply)
{
    ctl_reply_print_line(ctl, reply, "skipped");
    return CTL_OK;
}

static int show_paused(const struct ctl *ctl, const struct ctl_reply *reply)
{
    ctl_reply_print_line(ctl, reply, "paused");
    return CTL_OK;
}

static int show_resumed(const struct ctl *ctl, const struct ctl_reply *reply)
{
    ctl_reply_print_line(ctl, reply, "resumed");
    return CTL_OK;
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

int ctl_retry(const struct ctl *ctl)
{
    if (ctl->all == (ctl->arg_count > 0))
        return ctl_fail(CTL_USAGE, "retry needs one of DOCUMENT and --all");
    if (ctl->all && ctl->collection != NULL)
        return ctl_fail(CTL_USAGE, "retry --all takes no --collection");
    struct buf line = begin_request("retry");
    ctl_add_text_member(&line, "collection", ctl->collection);
    ctl_add_text_member(&line, "document", ctl->args[0]);
    return finish_request(ctl, &line, show_retried);
}

/* -1 when the text is no number that could be a seq. */
static int64_t parse_seq(const char *text)
{
    char *end = NULL;
    errno = 0;
    long long seq = strtoll(text, &end, 10);
    return errno == 0 && end != text && *end == '\0' && seq > 0 ? seq : -1;
}

int ctl_skip(const struct ctl *ctl)
{
    int64_t seq = parse_seq(ctl->args[1]);
    if (seq < 0)
        return ctl_fail(CTL_USAGE, "SEQ is not an operation's number: %s", ctl->args[1]);
    struct buf line = begin_request("skip");
    ctl_add_text_member(&line, "collection", ctl->collection);
    ctl_add_text_member(&line, "document", ctl->args[0]);
    ctl_add_int_member(&line, "seq", seq);
    ctl_add_text_member(&line, "reason", ctl->args[2]);
    return finish_request(ctl, &line, show_skipped);
}

int ctl_pause(const struct ctl *ctl)
{
    struct buf line = begin_request("pause");
    ctl_add_text_member(&line, "what", ctl->args[0]);
    ctl_add_text_member(&line, "reason", ctl->args[1]);
    return finish_request(ctl, &line, show_paused);
}

int ctl_resume(const struct ctl *ctl)
{
    struct buf line = begin_request("resume");
    ctl_add_text_member(&line, "what", ctl->args[0]);
    return finish_request(ctl, &line, show_resumed);
}

int ctl_drain(const struct ctl *ctl)
{
    struct buf line = begin_request("drain");
    ctl_add_text_member(&line, "reason", ctl->args[0]);
    ctl_add_int_member(&line, "timeout_ms", ctl->timeout_ms);
    return finish_request(ctl, &line, show_outcome);
}
