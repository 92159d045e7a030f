/* SPDX-License-Identifier: MIT */
#include "ctl_progress.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"

enum { BAR_WIDTH = 30 };

void ctl_progress_init(struct ctl_progress *progress, int input_fd)
{
    struct stat info;
    *progress =
        (struct ctl_progress){.shown = isatty(STDERR_FILENO) == 1, .started_ms = clock_mono_ms()};
    if (fstat(input_fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0)
        progress->total_bytes = (uint64_t)info.st_size;
}

double ctl_progress_seconds(const struct ctl_progress *progress)
{
    return (double)(clock_mono_ms() - progress->started_ms) / 1000.0;
}

void ctl_progress_draw(const struct ctl_progress *progress, uint64_t bytes, uint64_t lines)
{
    static const char full[BAR_WIDTH + 1] = "##############################";
    static const char empty[BAR_WIDTH + 1] = "..............................";
    if (!progress->shown)
        return;
    double seconds = ctl_progress_seconds(progress);
    double rate = seconds > 0 ? (double)lines / seconds : 0;
    fputs("\r\033[K", stderr);
    if (progress->total_bytes > 0) {
        /* A file that grows while it is read stays at 100 %. */
        double part = (double)bytes / (double)progress->total_bytes;
        part = part > 1 ? 1 : part;
        int done = (int)(part * BAR_WIDTH);
        fprintf(stderr, "[%.*s%.*s] %3.0f %%  ", done, full, BAR_WIDTH - done, empty, part * 100);
    }
    fprintf(stderr, "%llu lines  %.0f/s", (unsigned long long)lines, rate);
    fflush(stderr);
}

void ctl_progress_clear(const struct ctl_progress *progress)
{
    if (progress->shown)
        fputs("\r\033[K", stderr);
}
