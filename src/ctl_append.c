/* SPDX-License-Identifier: MIT */
/* append: one operation from the arguments, or lines from standard input as they are. */
#include "ctl.h"

#include <string.h>
#include <unistd.h>

#include "ctl_pipe.h"

/* What became of the operation, as the first word of its line. */
static const char *receipt_word(const struct ctl_reply *reply)
{
    const char *outcome = ctl_reply_text(reply, "outcome");
    if (*outcome != '\0')
        return outcome;
    if (json_is_true(json_object_get(reply->root, "duplicate")))
        return "duplicate";
    /* Other requests come this way too, when lines are read from standard input. */
    return json_object_get(reply->root, "seq") != NULL ||
                   json_object_get(reply->root, "first") != NULL
               ? "stored"
               : "ok";
}

static int show_receipt(const struct ctl *ctl, const struct ctl_reply *reply)
{
    ctl_reply_print_line(ctl, reply, receipt_word(reply));
    return ctl_reply_is_success(reply) ? CTL_OK : CTL_REFUSED;
}

/* A JSON argument that foldd would refuse is refused here, with its place in the argument. */
static bool check_json(const char *name, const char *text)
{
    struct scan_error error;
    if (text == NULL || scan_value(text, strlen(text), &error))
        return true;
    ctl_fail(CTL_USAGE, "%s is not usable JSON: %s at byte %zu", name, error.reason, error.offset);
    return false;
}

static void add_raw_member(struct buf *line, const char *key, const char *json)
{
    if (json == NULL)
        return;
    buf_printf(line, ",\"%s\":", key);
    ctl_add_raw(line, json);
}

static int append_arguments(const struct ctl *ctl)
{
    const char *fields = ctl->arg_count > 2 ? ctl->args[2] : NULL;
    if (!check_json("FIELDS", fields) || !check_json("--meta", ctl->meta))
        return CTL_USAGE;
    struct buf line = {0};
    buf_add_str(&line, "{\"document\":");
    ctl_add_string(&line, ctl->args[0]);
    ctl_add_text_member(&line, "collection", ctl->collection);
    ctl_add_text_member(&line, "id", ctl->id);
    ctl_add_text_member(&line, "action", ctl->args[1]);
    add_raw_member(&line, "fields", fields);
    add_raw_member(&line, "meta", ctl->meta);
    ctl_add_text_member(&line, "ack", ctl->ack);
    buf_add_char(&line, '}');
    return ctl_request(ctl, &line, show_receipt);
}

struct append {
    const struct ctl *ctl;
    bool failed;
};

static void copy_line(void *arg, uint64_t line_no, struct span line, struct buf *out)
{
    (void)arg;
    (void)line_no;
    buf_add(out, line.data, line.len);
}

static void on_append_reply(void *arg, uint64_t line_no, const struct ctl_reply *reply)
{
    struct append *append = arg;
    append->failed = append->failed || !ctl_reply_is_success(reply);
    if (reply->ok || append->ctl->json) {
        show_receipt(append->ctl, reply);
        return;
    }
    struct buf text = {0};
    ctl_reply_add_error(reply, &text);
    printf("error line=%llu %s\n", (unsigned long long)line_no, buf_cstr(&text));
    buf_fini(&text);
}

/* The lines are not ours to change, so they may have no ids: nothing is ever sent twice. */
static int append_stdin(const struct ctl *ctl)
{
    if (ctl->collection != NULL || ctl->id != NULL || ctl->meta != NULL || ctl->ack != NULL)
        return ctl_fail(CTL_USAGE, "append - sends lines as they are; it takes no other options");
    struct append append = {.ctl = ctl};
    struct ctl_pipe_options options = {
        .socket_path = ctl->socket_path,
        .input_fd = STDIN_FILENO,
        .prepare = copy_line,
        .on_reply = on_append_reply,
        .arg = &append,
    };
    struct err err = {0};
    struct ctl_pipe *pipe = ctl_pipe_new(&options, &err);
    if (pipe == NULL)
        return ctl_fail(CTL_UNREACHABLE, "%s", err.message);
    /* Whoever reads our output line by line sees each reply when it comes. */
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    int code = CTL_OK;
    if (!ctl_pipe_run(pipe, &err)) {
        code = err.class == ERR_CLIENT ? CTL_LOCAL : CTL_UNREACHABLE;
        ctl_fail(code, "%s", err.message);
        if (ctl_pipe_unanswered(pipe) > 0)
            ctl_fail(code, "%zu lines have no reply: they may or may not be stored",
                     ctl_pipe_unanswered(pipe));
    } else if (append.failed)
        code = CTL_REFUSED;
    ctl_pipe_free(pipe);
    return code;
}

int ctl_append(const struct ctl *ctl)
{
    if (ctl->arg_count == 1 && strcmp(ctl->args[0], "-") == 0)
        return append_stdin(ctl);
    if (ctl->arg_count < 2)
        return ctl_fail(CTL_USAGE, "append needs DOCUMENT and ACTION, or -");
    return append_arguments(ctl);
}
