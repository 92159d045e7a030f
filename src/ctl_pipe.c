/* SPDX-License-Identifier: MIT */
/*
 * One poll loop over the input and the socket.
 *
 * Usually: input lines go into the window, the window is written as the socket takes it, each reply
 * drops the oldest line. When the socket fails, writing stops but reading goes on to its end: foldd
 * may have answered some lines, or said why, before it closed. Only then comes the next connection,
 * and the window is sent from its start. "unavailable" and "standby" count as such a break: the
 * line was not stored, and going on behind it would change the order. The time limit runs from the
 * first break to the next useful reply, so a line that always breaks the connection cannot loop for
 * ever.
 */
#include "ctl_pipe.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"
#include "ctl_window.h"
#include "retry.h"

enum { TICK_MS = 200, RETRY_BASE_MS = 50, RETRY_CAP_MS = 2000 };

struct ctl_pipe {
    struct ctl_pipe_options options;
    struct ctl_pipe_counts counts;
    struct ctl_window window;
    struct line input;
    bool input_ended;  /* at end of file */
    bool input_wanted; /* every line that has come is in the window */
    bool input_done;   /* no further line will come */
    struct err input_err;
    int fd;            /* -1 while there is no connection */
    bool write_failed; /* the connection is only read to its end */
    struct line replies;
    int64_t broken_ms; /* when reconnecting began after the last useful reply; 0 = not */
    unsigned attempts; /* connections since then */
    int64_t ticked_ms;
};

struct ctl_pipe *ctl_pipe_new(const struct ctl_pipe_options *options, struct err *err)
{
    int fd = ctl_connect(options->socket_path, err);
    if (fd < 0)
        return NULL;
    struct ctl_pipe *pipe = mem_zalloc(sizeof(*pipe));
    pipe->options = *options;
    pipe->fd = fd;
    pipe->input_wanted = true;
    line_init(&pipe->input, CTL_MAX_INPUT_BYTES);
    line_init(&pipe->replies, CTL_MAX_REPLY_BYTES);
    return pipe;
}

void ctl_pipe_free(struct ctl_pipe *pipe)
{
    if (pipe == NULL)
        return;
    if (pipe->fd >= 0)
        close(pipe->fd);
    line_fini(&pipe->input);
    line_fini(&pipe->replies);
    ctl_window_fini(&pipe->window);
    free(pipe);
}

struct ctl_pipe_counts ctl_pipe_counts(const struct ctl_pipe *pipe)
{
    return pipe->counts;
}

size_t ctl_pipe_unanswered(const struct ctl_pipe *pipe)
{
    return pipe->window.count;
}

void ctl_pipe_push(struct ctl_pipe *pipe, const char *line)
{
    buf_add_str(ctl_window_begin(&pipe->window), line);
    ctl_window_end(&pipe->window, 0);
}

/* --- the connection --- */

static void hang_up(struct ctl_pipe *pipe)
{
    if (pipe->fd >= 0)
        close(pipe->fd);
    pipe->fd = -1;
    pipe->write_failed = false;
    line_fini(&pipe->replies);
    line_init(&pipe->replies, CTL_MAX_REPLY_BYTES);
    ctl_window_rewind(&pipe->window);
}

static bool may_retry(const struct ctl_pipe *pipe)
{
    return pipe->broken_ms == 0 ? pipe->options.reconnect_ms > 0
                                : clock_mono_ms() - pipe->broken_ms < pipe->options.reconnect_ms;
}

static void tick(struct ctl_pipe *pipe)
{
    int64_t now_ms = clock_mono_ms();
    if (pipe->options.on_tick == NULL || now_ms - pipe->ticked_ms < TICK_MS)
        return;
    pipe->ticked_ms = now_ms;
    pipe->options.on_tick(pipe->options.arg);
}

/* Try until connected, or the time is over. */
static bool reconnect(struct ctl_pipe *pipe, struct err *err)
{
    struct err why = {0};
    err_set(&why, ERR_TRANSIENT, "foldd closed the connection");
    if (pipe->broken_ms == 0)
        pipe->broken_ms = clock_mono_ms();
    while (pipe->fd < 0) {
        if (!may_retry(pipe)) {
            *err = why;
            return false;
        }
        uint32_t random = 0;
        if (getrandom(&random, sizeof(random), GRND_NONBLOCK) < 0)
            random = 0;
        pipe->attempts++;
        poll(NULL, 0, (int)retry_delay_ms(RETRY_BASE_MS, RETRY_CAP_MS, pipe->attempts, random));
        tick(pipe);
        pipe->fd = ctl_connect(pipe->options.socket_path, &why);
    }
    pipe->counts.reconnects++;
    return true;
}

/* --- the input --- */

static bool is_blank(struct span line)
{
    for (size_t i = 0; i < line.len; i++)
        if (strchr(" \t\r", line.data[i]) == NULL || line.data[i] == '\0')
            return false;
    return true;
}

/* foldd answers no blank line, so none is sent. */
static void accept_line(struct ctl_pipe *pipe, struct span line)
{
    pipe->counts.lines_read++;
    if (is_blank(line))
        return;
    struct buf *out = ctl_window_begin(&pipe->window);
    pipe->options.prepare(pipe->options.arg, pipe->counts.lines_read, line, out);
    ctl_window_end(&pipe->window, pipe->counts.lines_read);
}

/* What the input failed with is told at the end: the lines before it still get their replies. */
static void fail_input(struct ctl_pipe *pipe, const char *problem)
{
    err_set(&pipe->input_err, ERR_CLIENT, "input line %llu: %s",
            (unsigned long long)pipe->counts.lines_read + 1, problem);
    pipe->input_done = true;
}

/* Move lines from the input's buffer into the window while it has room. */
static void take_lines(struct ctl_pipe *pipe)
{
    struct span line = {0};
    enum line_status status = LINE_READY;
    while (ctl_window_has_room(&pipe->window) && !pipe->input_done) {
        status = line_next(&pipe->input, &line);
        if (status == LINE_TOO_LONG)
            fail_input(pipe, "longer than 64 MiB");
        if (status != LINE_READY)
            break;
        accept_line(pipe, line);
    }
    if (status == LINE_MORE && pipe->input_ended && !pipe->input_done) {
        pipe->input_done = true;
        if (line_rest(&pipe->input, &line))
            accept_line(pipe, line);
    }
    pipe->input_wanted = status == LINE_MORE && !pipe->input_done;
}

static void read_input(struct ctl_pipe *pipe)
{
    size_t room = 0;
    char *space = line_space(&pipe->input, CTL_READ_BYTES, &room);
    ssize_t got = read(pipe->options.input_fd, space, room);
    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (got < 0)
        fail_input(pipe, strerror(errno));
    if (got == 0)
        pipe->input_ended = true;
    if (got <= 0)
        return;
    line_filled(&pipe->input, (size_t)got);
    pipe->counts.bytes_read += (uint64_t)got;
}

/* --- the socket --- */

static void write_lines(struct ctl_pipe *pipe)
{
    struct span unsent = ctl_window_unsent(&pipe->window);
    if (unsent.len == 0)
        return;
    ssize_t sent = send(pipe->fd, unsent.data, unsent.len, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0)
        ctl_window_sent(&pipe->window, (size_t)sent);
    else if (errno != EINTR && errno != EAGAIN)
        pipe->write_failed = true;
}

static bool is_passing_trouble(const struct ctl_reply *reply)
{
    const char *code = ctl_reply_text(reply, "error");
    return !reply->ok && (strcmp(code, "unavailable") == 0 || strcmp(code, "standby") == 0);
}

static void settle(struct ctl_pipe *pipe, const struct ctl_reply *reply)
{
    bool passing = is_passing_trouble(reply);
    if (passing && may_retry(pipe)) {
        hang_up(pipe);
        return;
    }
    uint64_t line_no = 0;
    bool in_step = ctl_window_pop(&pipe->window, &line_no);
    if (!passing) {
        pipe->broken_ms = 0;
        pipe->attempts = 0;
    }
    pipe->options.on_reply(pipe->options.arg, line_no, reply);
    if (!in_step)
        hang_up(pipe);
}

static bool take_replies(struct ctl_pipe *pipe, struct err *err)
{
    struct span raw = {0};
    enum line_status status = LINE_MORE;
    while (pipe->fd >= 0 && (status = line_next(&pipe->replies, &raw)) == LINE_READY) {
        struct ctl_reply reply = {0};
        if (pipe->window.count == 0)
            return err_set(err, ERR_FATAL, "got a reply that no line asked for");
        if (!ctl_reply_init(&reply, raw, err))
            return false;
        settle(pipe, &reply);
        ctl_reply_fini(&reply);
    }
    return status != LINE_TOO_LONG || err_set(err, ERR_FATAL, "a reply is too long");
}

static bool read_replies(struct ctl_pipe *pipe, struct err *err)
{
    size_t room = 0;
    char *space = line_space(&pipe->replies, CTL_READ_BYTES, &room);
    ssize_t got = recv(pipe->fd, space, room, MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return true;
    if (got <= 0) {
        hang_up(pipe);
        return true;
    }
    line_filled(&pipe->replies, (size_t)got);
    return take_replies(pipe, err);
}

/* --- the loop --- */

/* While nothing waits for a reply, foldd may be away for as long as it likes. */
static bool needs_connection(const struct ctl_pipe *pipe)
{
    return pipe->fd < 0 && (pipe->window.count > 0 || pipe->options.reconnect_ms == 0);
}

static bool turn(struct ctl_pipe *pipe, struct err *err)
{
    bool unsent = ctl_window_unsent(&pipe->window).len > 0 && !pipe->write_failed;
    bool input = pipe->input_wanted && ctl_window_has_room(&pipe->window);
    struct pollfd fds[2] = {
        {.fd = pipe->fd, .events = (short)(unsent ? POLLIN | POLLOUT : POLLIN)},
        {.fd = input ? pipe->options.input_fd : -1, .events = POLLIN},
    };
    if (poll(fds, 2, pipe->options.on_tick == NULL ? -1 : TICK_MS) < 0)
        return errno == EINTR || err_set(err, ERR_FATAL, "poll: %s", strerror(errno));
    tick(pipe);
    if (fds[1].revents != 0)
        read_input(pipe);
    if (unsent && (fds[0].revents & POLLOUT) != 0)
        write_lines(pipe);
    return (fds[0].revents & (POLLIN | POLLHUP | POLLERR)) == 0 || read_replies(pipe, err);
}

bool ctl_pipe_run(struct ctl_pipe *pipe, struct err *err)
{
    for (;;) {
        take_lines(pipe);
        if (pipe->input_done && pipe->window.count == 0)
            break;
        if (needs_connection(pipe) && !reconnect(pipe, err))
            return false;
        if (!turn(pipe, err))
            return false;
    }
    if (pipe->input_err.class != ERR_NONE)
        *err = pipe->input_err;
    return pipe->input_err.class == ERR_NONE;
}
