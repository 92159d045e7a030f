/* SPDX-License-Identifier: MIT */
/*
 * ctl_progress: one line on a terminal that shows how far a long run has come.
 */
#ifndef FOLDD_CTL_PROGRESS_H
#define FOLDD_CTL_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct ctl_progress {
    bool shown; /* stderr is a terminal */
    int64_t started_ms;
    uint64_t total_bytes; /* 0 = not known */
};

void ctl_progress_init(struct ctl_progress *progress, int input_fd);

/* Draw the line over the one before it. */
void ctl_progress_draw(const struct ctl_progress *progress, uint64_t bytes, uint64_t lines);

/* Wipe the line, so that other text can follow. */
void ctl_progress_clear(const struct ctl_progress *progress);

/* Seconds since init. */
double ctl_progress_seconds(const struct ctl_progress *progress);

#endif
