/* SPDX-License-Identifier: MIT */
#include "stream.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "clock.h"
#include "mem.h"

enum { STALL_MS = 60000, READ_BYTES = 256 * 1024 };

static const char BARRIER[] = "{\"request\":\"barrier\",\"timeout_ms\":600000}\n";

struct stream {
    struct streams *all;
    struct conn *conn; /* for its socket only */
    struct buf lines;
    size_t sent;
    size_t *ops; /* the operations it sends, in order */
    size_t op_count;
    size_t acked;
    int64_t last_seq;
    struct buf in;
    bool done;
};

struct streams {
    const struct workload *workload;
    enum stream_end end;
    size_t count;
    struct stream *streams;
    int64_t *seqs;
};

static void prepare(struct stream *stream, size_t client)
{
    const struct workload *workload = stream->all->workload;
    stream->ops = mem_alloc(workload->op_count * sizeof stream->ops[0]);
    for (size_t i = 0; i < workload->op_count; i++) {
        if (workload_client(workload, i, stream->all->count) != client)
            continue;
        stream->ops[stream->op_count++] = i;
        workload_line(workload, i, WORK_ACK_STORED, &stream->lines);
    }
    if (stream->all->end == STREAM_END_FOLDED)
        buf_add_str(&stream->lines, BARRIER);
    buf_reserve(&stream->in, READ_BYTES);
}

struct streams *streams_new(const struct workload *workload, struct daemon *daemon,
                            size_t client_count, enum stream_end end)
{
    struct streams *streams = mem_zalloc(sizeof *streams);
    streams->workload = workload;
    streams->end = end;
    streams->count = client_count;
    streams->streams = mem_zalloc(client_count * sizeof streams->streams[0]);
    streams->seqs = mem_zalloc(workload->op_count * sizeof streams->seqs[0]);
    for (size_t i = 0; i < client_count; i++) {
        streams->streams[i].all = streams;
        streams->streams[i].conn = conn_open(daemon);
        prepare(&streams->streams[i], i);
    }
    return streams;
}

void streams_free(struct streams *streams)
{
    for (size_t i = 0; i < streams->count; i++) {
        struct stream *stream = &streams->streams[i];
        conn_close(stream->conn);
        buf_fini(&stream->lines);
        buf_fini(&stream->in);
        free(stream->ops);
    }
    free(streams->streams);
    free(streams->seqs);
    free(streams);
}

/* Take the text off the front of the reply; false if it is not there. */
static bool take(const char **at, const char *end, const char *text)
{
    size_t len = strlen(text);
    if ((size_t)(end - *at) < len || memcmp(*at, text, len) != 0)
        return false;
    *at += len;
    return true;
}

static int64_t take_number(const char **at, const char *end)
{
    int64_t number = 0;
    while (*at < end && **at >= '0' && **at <= '9')
        number = number * 10 + (*(*at)++ - '0');
    return number;
}

/* {"ok":true,"seq":N,"id":"ID"} and nothing else: a duplicate would have more. */
static void check_receipt(struct stream *stream, const char *line, const char *end)
{
    const char *at = line;
    char id[WORK_ID_MAX];
    size_t op = stream->ops[stream->acked];
    workload_op_id(op, id);
    bool ok = take(&at, end, "{\"ok\":true,\"seq\":");
    int64_t seq = take_number(&at, end);
    ok = ok && take(&at, end, ",\"id\":\"") && take(&at, end, id) && take(&at, end, "\"}") &&
         at == end && seq > stream->last_seq;
    ck_assert_msg(ok, "operation %s, after seq %lld, was answered %.*s", id,
                  (long long)stream->last_seq, (int)(end - line), line);
    stream->all->seqs[op] = seq;
    stream->last_seq = seq;
    stream->acked++;
}

static void check_barrier(struct stream *stream, const char *line, const char *end)
{
    const char *at = line;
    bool ok = take(&at, end, "{\"ok\":true,\"seq\":");
    int64_t seq = take_number(&at, end);
    ck_assert_msg(ok && seq >= stream->last_seq && take(&at, end, "}") && at == end,
                  "the barrier was answered %.*s", (int)(end - line), line);
    stream->done = true;
}

static void on_reply(struct stream *stream, const char *line, const char *end)
{
    ck_assert_msg(!stream->done, "more replies than requests");
    if (stream->acked == stream->op_count)
        check_barrier(stream, line, end);
    else
        check_receipt(stream, line, end);
    if (stream->acked == stream->op_count && stream->all->end == STREAM_END_STORED)
        stream->done = true;
}

static void receive(struct stream *stream)
{
    struct buf *in = &stream->in;
    buf_reserve(in, READ_BYTES);
    ssize_t got = recv(stream->conn->fd, in->data + in->len, READ_BYTES, 0);
    ck_assert_msg(got > 0 || (got < 0 && errno == EAGAIN), "foldd has closed the connection");
    if (got < 0)
        return;
    in->len += (size_t)got;
    const char *line = in->data;
    const char *end = in->data + in->len;
    for (const char *lf; (lf = memchr(line, '\n', (size_t)(end - line))) != NULL; line = lf + 1)
        on_reply(stream, line, lf);
    in->len = (size_t)(end - line);
    memmove(in->data, line, in->len);
}

static void transmit(struct stream *stream)
{
    ssize_t sent = send(stream->conn->fd, stream->lines.data + stream->sent,
                        stream->lines.len - stream->sent, MSG_NOSIGNAL);
    ck_assert_msg(sent > 0 || (sent < 0 && errno == EAGAIN), "foldd reads no more: %s",
                  strerror(errno));
    if (sent > 0)
        stream->sent += (size_t)sent;
}

/* One look at all sockets; returns how many clients are not done. */
static size_t turn(struct streams *streams)
{
    struct pollfd fds[64];
    size_t open = 0;
    ck_assert(streams->count <= sizeof fds / sizeof fds[0]);
    for (size_t i = 0; i < streams->count; i++) {
        struct stream *stream = &streams->streams[i];
        short out = stream->sent < stream->lines.len ? POLLOUT : 0;
        fds[i] = (struct pollfd){stream->done ? -1 : stream->conn->fd, (short)(POLLIN | out), 0};
    }
    ck_assert_msg(poll(fds, streams->count, STALL_MS) > 0, "foldd stands still");
    for (size_t i = 0; i < streams->count; i++) {
        if ((fds[i].revents & POLLOUT) != 0)
            transmit(&streams->streams[i]);
        if ((fds[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0)
            receive(&streams->streams[i]);
        open += !streams->streams[i].done;
    }
    return open;
}

double streams_run(struct streams *streams)
{
    int64_t start_us = clock_mono_us();
    while (turn(streams) > 0)
        continue;
    return (double)(clock_mono_us() - start_us) / 1e6;
}

static int by_value(const void *a, const void *b)
{
    const int64_t *x = a;
    const int64_t *y = b;
    return *x < *y ? -1 : *x > *y;
}

const int64_t *streams_seqs(const struct streams *streams)
{
    size_t count = streams->workload->op_count;
    int64_t *sorted = mem_alloc(count * sizeof *sorted);
    memcpy(sorted, streams->seqs, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, by_value);
    for (size_t i = 1; i < count; i++)
        ck_assert_msg(sorted[i] > sorted[i - 1], "two receipts have the seq %lld",
                      (long long)sorted[i]);
    free(sorted);
    return streams->seqs;
}
