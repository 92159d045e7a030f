/* SPDX-License-Identifier: MIT */
/* import: a file of lines, pipelined; safe to interrupt and to run again. */
#include "ctl.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "ctl_ids.h"
#include "ctl_pipe.h"
#include "ctl_progress.h"

enum { SHOWN_ERRORS = 20 };

struct import {
    const struct ctl *ctl;
    const char *name;  /* of the input, for messages */
    char prefix[256];  /* of the ids that are added */
    bool prefix_drawn; /* at random, so that a second run makes other ids */
    bool ids_added;
    struct ctl_pipe *pipe;
    struct ctl_progress progress;
    uint64_t stored;
    uint64_t duplicates;
    uint64_t errors;
    char *messages[SHOWN_ERRORS]; /* of the first errors */
    bool wait_again;              /* the barrier ran into foldd's time limit */
};

static void add_ids(void *arg, uint64_t line_no, struct span line, struct buf *out)
{
    struct import *import = arg;
    if (ctl_ids_add(out, line, import->prefix, line_no))
        import->ids_added = true;
}

static void note_error(struct import *import, uint64_t line_no, const struct ctl_reply *reply)
{
    if (import->errors++ >= SHOWN_ERRORS)
        return;
    struct buf text = {0};
    if (line_no == 0)
        buf_printf(&text, "%s: waiting for the folds: ", import->name);
    else
        buf_printf(&text, "%s:%" PRIu64 ": ", import->name, line_no);
    if (reply->ok)
        buf_printf(&text, "%s: %s", ctl_reply_text(reply, "outcome"),
                   ctl_reply_text(reply, "reason"));
    else
        ctl_reply_add_error(reply, &text);
    import->messages[import->errors - 1] = buf_take(&text);
}

static void on_import_reply(void *arg, uint64_t line_no, const struct ctl_reply *reply)
{
    struct import *import = arg;
    bool timeout = strcmp(ctl_reply_text(reply, "outcome"), "timeout") == 0;
    if (line_no == 0 && timeout)
        import->wait_again = true;
    else if (!ctl_reply_is_success(reply))
        note_error(import, line_no, reply);
    else if (line_no != 0 && json_is_true(json_object_get(reply->root, "duplicate")))
        import->duplicates++;
    else if (line_no != 0)
        import->stored++;
}

static void on_import_tick(void *arg)
{
    struct import *import = arg;
    ctl_progress_draw(&import->progress, ctl_pipe_counts(import->pipe).bytes_read,
                      import->stored + import->duplicates + import->errors);
}

static void print_json_summary(const struct import *import, double seconds, double rate)
{
    struct ctl_pipe_counts counts = ctl_pipe_counts(import->pipe);
    printf("{\"lines\":%" PRIu64 ",\"stored\":%" PRIu64 ",\"duplicates\":%" PRIu64
           ",\"errors\":%" PRIu64 ",\"unanswered\":%zu,\"reconnects\":%" PRIu64
           ",\"seconds\":%.3f,\"rate\":%.0f}\n",
           counts.lines_read, import->stored, import->duplicates, import->errors,
           ctl_pipe_unanswered(import->pipe), counts.reconnects, seconds, rate);
}

static void print_summary(const struct import *import)
{
    for (size_t i = 0; i < SHOWN_ERRORS && import->messages[i] != NULL; i++)
        ctl_fail(CTL_REFUSED, "%s", import->messages[i]);
    if (import->errors > SHOWN_ERRORS)
        ctl_fail(CTL_REFUSED, "%" PRIu64 " more errors", import->errors - SHOWN_ERRORS);
    double seconds = ctl_progress_seconds(&import->progress);
    uint64_t answered = import->stored + import->duplicates + import->errors;
    double rate = seconds > 0 ? (double)answered / seconds : 0;
    if (import->ctl->json) {
        print_json_summary(import, seconds, rate);
        return;
    }
    printf("%" PRIu64 " lines: %" PRIu64 " stored, %" PRIu64 " duplicates, %" PRIu64
           " errors in %.1f s (%.0f/s)\n",
           ctl_pipe_counts(import->pipe).lines_read, import->stored, import->duplicates,
           import->errors, seconds, rate);
}

/* Behind the last reply, so that the barrier covers every line. foldd may limit how long one
 * barrier waits; then the next one goes on. */
static bool wait_for_folds(struct import *import, struct err *err)
{
    do {
        import->wait_again = false;
        ctl_pipe_push(import->pipe, "{\"request\":\"barrier\"}");
        if (!ctl_pipe_run(import->pipe, err))
            return false;
    } while (import->wait_again);
    return true;
}

static int report_failure(const struct import *import, const struct err *err)
{
    int code = err->class == ERR_CLIENT ? CTL_LOCAL : CTL_UNREACHABLE;
    size_t unanswered = ctl_pipe_unanswered(import->pipe);
    ctl_fail(code, "%s", err->message);
    if (unanswered > 0)
        ctl_fail(code, "%zu lines have no reply; foldd may have stored some of them", unanswered);
    if (code == CTL_LOCAL)
        return code;
    if (import->ids_added && import->prefix_drawn)
        ctl_fail(code, "lines without \"id\" were given ids; to go on, repeat with --id-prefix %s",
                 import->prefix);
    else
        ctl_fail(code, "to go on, repeat the import: what is stored is not stored twice");
    return code;
}

static int run_import(struct import *import, int input_fd)
{
    struct ctl_pipe_options options = {
        .socket_path = import->ctl->socket_path,
        .input_fd = input_fd,
        .reconnect_ms = import->ctl->reconnect_s * 1000,
        .prepare = add_ids,
        .on_reply = on_import_reply,
        .on_tick = on_import_tick,
        .arg = import,
    };
    struct err err = {0};
    import->pipe = ctl_pipe_new(&options, &err);
    if (import->pipe == NULL)
        return ctl_fail(CTL_UNREACHABLE, "%s", err.message);
    ctl_progress_init(&import->progress, input_fd);
    bool done = ctl_pipe_run(import->pipe, &err);
    if (done && import->ctl->wait)
        done = wait_for_folds(import, &err);
    ctl_progress_clear(&import->progress);
    print_summary(import);
    int code = import->errors > 0 ? CTL_REFUSED : CTL_OK;
    if (!done)
        code = report_failure(import, &err);
    ctl_pipe_free(import->pipe);
    return code;
}

static void choose_prefix(struct import *import)
{
    uint64_t random = 0;
    if (import->ctl->id_prefix != NULL) {
        snprintf(import->prefix, sizeof(import->prefix), "%s", import->ctl->id_prefix);
        return;
    }
    if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random))
        abort();
    snprintf(import->prefix, sizeof(import->prefix), "import-%016" PRIx64, random);
    import->prefix_drawn = true;
}

int ctl_import(const struct ctl *ctl)
{
    const char *path = ctl->args[0];
    bool is_stdin = strcmp(path, "-") == 0;
    int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return ctl_fail(CTL_LOCAL, "cannot open %s: %s", path, strerror(errno));
    struct import import = {.ctl = ctl, .name = is_stdin ? "stdin" : path};
    choose_prefix(&import);
    int code = run_import(&import, fd);
    for (size_t i = 0; i < SHOWN_ERRORS; i++)
        free(import.messages[i]);
    if (!is_stdin)
        close(fd);
    return code;
}
