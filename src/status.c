/* SPDX-License-Identifier: MIT */
#include "status.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "emit.h"
#include "proto.h"

static const char *role_of(enum leader_state state)
{
    return state == LEADER_LEADING ? "leader" : state == LEADER_STANDBY ? "standby" : "starting";
}

static int64_t resident_bytes(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file == NULL)
        return 0;
    if (fscanf(file, "%*s %ld", &pages) != 1)
        pages = 0;
    fclose(file);
    return (int64_t)pages * sysconf(_SC_PAGESIZE);
}

static void emit_time(struct buf *out, const char *key, int64_t unix_us)
{
    time_t seconds = (time_t)(unix_us / 1000000);
    struct tm utc;
    char text[32];
    gmtime_r(&seconds, &utc);
    strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
    emit_str(out, key, text);
}

static void emit_database(const struct status *status, struct buf *out)
{
    enum leader_state state = leader_state(status->leader);
    bool up = state == LEADER_LEADING || state == LEADER_STANDBY;
    emit_str(out, "database", up ? "up" : "down");
    emit_time(out, "database_since", leader_since_us(status->leader));
    if (leader_error(status->leader)[0] != '\0')
        emit_str(out, "database_error", leader_error(status->leader));
}

void status_reply(const struct status *status, struct buf *out)
{
    struct dispatch_counts counts = dispatch_counts(status->dispatch);
    int64_t head = ingest_head(status->ingest);
    int64_t cursor = dispatch_cursor(status->dispatch);
    emit_begin(out);
    emit_bool(out, "ok", true);
    emit_str(out, "role", role_of(leader_state(status->leader)));
    emit_int(out, "head", head);
    emit_int(out, "cursor", cursor);
    emit_int(out, "lag", head - cursor);
    emit_int(out, "tasks", (int64_t)counts.docs.tasks);
    emit_int(out, "queued", (int64_t)counts.docs.queued);
    emit_int(out, "running", (int64_t)counts.docs.running);
    emit_int(out, "requeue", (int64_t)counts.docs.requeue);
    emit_int(out, "aside", (int64_t)counts.docs.aside);
    emit_int(out, "parked", (int64_t)counts.docs.parked);
    emit_int(out, "staged", 0);
    emit_int(out, "clients", (int64_t)clients_count(status->clients));
    emit_int(out, "waits", (int64_t)await_count(status->await));
    emit_int(out, "pending_ops", (int64_t)ingest_pending_ops(status->ingest));
    emit_int(out, "pending_bytes", (int64_t)ingest_pending_bytes(status->ingest));
    emit_database(status, out);
    emit_str(out, "folding",
             dispatch_is_paused(status->dispatch) ? "paused"
             : counts.backing_off                 ? "backing off"
             : counts.catching_up                 ? "catching up"
                                                  : "live");
    emit_str(out, "ingest", ingest_is_paused(status->ingest) ? "paused" : "live");
    emit_int(out, "window", (int64_t)counts.window);
    emit_int(out, "workers", (int64_t)counts.workers);
    emit_int(out, "workers_wanted", (int64_t)status->workers);
    emit_int(out, "memory_bytes", resident_bytes());
    emit_int(out, "uptime_s", (clock_mono_ms() - status->started_ms) / 1000);
    proto_end(out);
}
