/* SPDX-License-Identifier: MIT */
/*
 * log: one line of key=value pairs for each event, on stderr, with a priority prefix for journald
 * (sd-daemon(3)) when stderr is the journal.
 *
 * A line that equals the one before it is counted instead of printed; the count comes out with the
 * next different line. Of one event at most 20 lines in 10 seconds are printed, the rest is
 * counted. Lines carry ids (conn= doc= seq= batch= attempt=), never payloads.
 */
#ifndef FOLDD_LOG_H
#define FOLDD_LOG_H

#include <stdbool.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* Lines above this level are dropped. The start is LOG_LEVEL_INFO. */
void log_set_level(enum log_level level);

/* The level of that name ("error", "warning", "info", "debug"); false when there is none. */
bool log_find_level(const char *name, enum log_level *out);

/* One line: event=EVENT followed by the formatted key=value pairs. Put text that may hold spaces
 * through log_text. */
void log_write(enum log_level level, const char *event, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#define log_error(event, ...) log_write(LOG_LEVEL_ERROR, event, __VA_ARGS__)
#define log_warning(event, ...) log_write(LOG_LEVEL_WARNING, event, __VA_ARGS__)
#define log_info(event, ...) log_write(LOG_LEVEL_INFO, event, __VA_ARGS__)
#define log_debug(event, ...) log_write(LOG_LEVEL_DEBUG, event, __VA_ARGS__)

/* Borrowed: text as one quoted logfmt value, control characters replaced, cut at 400 bytes. Four
 * results are alive at a time. */
const char *log_text(const char *text);

#endif
