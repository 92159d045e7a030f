/* SPDX-License-Identifier: MIT */
#include "log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"

enum {
    LINE_MAX_BYTES = 2048,
    TEXT_MAX_BYTES = 400,
    TEXT_SLOTS = 4,
    RATE_EVENTS = 64, /* kinds of events that are counted */
    RATE_LINES = 20,  /* of one kind in a row of RATE_MS */
    RATE_MS = 10000,
};

static const char *const level_names[] = {"error", "warning", "info", "debug"};
static enum log_level max_level = LOG_LEVEL_INFO;
static char last_line[LINE_MAX_BYTES];
static unsigned repeats;

void log_set_level(enum log_level level)
{
    max_level = level;
}

bool log_find_level(const char *name, enum log_level *out)
{
    for (int level = LOG_LEVEL_ERROR; level <= LOG_LEVEL_DEBUG; level++)
        if (strcmp(name, level_names[level]) == 0) {
            *out = (enum log_level)level;
            return true;
        }
    return false;
}

/* A log line must never end the process: a broken stderr is the supervisor's problem, not ours. */
static void put(enum log_level level, const char *line)
{
    static const char *const priorities[] = {"<3>", "<4>", "<6>", "<7>"};
    char out[LINE_MAX_BYTES + 64];
    int len;
    if (getenv("JOURNAL_STREAM") != NULL) {
        len = snprintf(out, sizeof(out), "%slevel=%s %s\n", priorities[level], level_names[level],
                       line);
    } else {
        struct timespec now;
        struct tm utc;
        char stamp[32];
        clock_gettime(CLOCK_REALTIME, &now);
        gmtime_r(&now.tv_sec, &utc);
        strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &utc);
        len = snprintf(out, sizeof(out), "time=%s.%03ldZ level=%s %s\n", stamp,
                       now.tv_nsec / 1000000, level_names[level], line);
    }
    if (len > 0 && write(STDERR_FILENO, out, (size_t)len) < 0)
        return;
}

/* A thousand documents that fail are a thousand events of one kind: after RATE_LINES the rest is
 * counted, and the count comes with the first line after RATE_MS. */
struct rate {
    const char *event; /* a literal of the caller's: compared by its text */
    int64_t since_ms;
    unsigned lines;
    unsigned dropped;
};

static struct rate rates[RATE_EVENTS];

static struct rate *find_rate(const char *event)
{
    size_t i = 0;
    while (i < RATE_EVENTS - 1 && rates[i].event != NULL && strcmp(rates[i].event, event) != 0)
        i++;
    rates[i].event = event;
    return &rates[i];
}

static bool is_too_much(const char *event)
{
    struct rate *rate = find_rate(event);
    int64_t now_ms = clock_mono_ms();
    if (rate->lines == 0 || now_ms - rate->since_ms >= RATE_MS) {
        if (rate->dropped > 0) {
            char note[128];
            snprintf(note, sizeof(note), "event=more of=%s times=%u", event, rate->dropped);
            put(LOG_LEVEL_INFO, note);
        }
        *rate = (struct rate){.event = event, .since_ms = now_ms};
    }
    if (rate->lines < RATE_LINES) {
        rate->lines++;
        return false;
    }
    rate->dropped++;
    return true;
}

void log_write(enum log_level level, const char *event, const char *format, ...)
{
    if (level > max_level)
        return;
    char line[LINE_MAX_BYTES];
    int used = snprintf(line, sizeof(line), "event=%s ", event);
    va_list args;
    va_start(args, format);
    vsnprintf(line + used, sizeof(line) - (size_t)used, format, args);
    va_end(args);
    if (strcmp(line, last_line) == 0) {
        repeats++;
        return;
    }
    if (is_too_much(event))
        return;
    if (repeats > 0) {
        char note[64];
        snprintf(note, sizeof(note), "event=repeated times=%u", repeats);
        put(LOG_LEVEL_INFO, note);
        repeats = 0;
    }
    memcpy(last_line, line, sizeof(line));
    put(level, line);
}

static bool is_continuation(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

const char *log_text(const char *text)
{
    static char slots[TEXT_SLOTS][TEXT_MAX_BYTES + 4];
    static unsigned next;
    char *out = slots[next++ % TEXT_SLOTS];
    size_t len = 0;
    out[len++] = '"';
    for (; *text != '\0' && len < TEXT_MAX_BYTES; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            out[len++] = '\\';
        out[len++] = c < 0x20 ? ' ' : (char)c;
    }
    /* Where the limit has cut a character in two, its first bytes go, too. */
    if (is_continuation(*text)) {
        while (is_continuation(out[len - 1]))
            len--;
        if ((unsigned char)out[len - 1] >= 0xc0)
            len--;
    }
    out[len++] = '"';
    out[len] = '\0';
    return out;
}
