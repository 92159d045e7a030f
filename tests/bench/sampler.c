/* SPDX-License-Identifier: MIT */
#include "sampler.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "clock.h"

enum { PAUSE_MS = 20 };

struct sampler {
    struct conn *conn;
    pthread_t thread;
    atomic_bool stop;
    int64_t longest_us;
    int count;
};

static void *run(void *arg)
{
    struct sampler *sampler = arg;
    while (!atomic_load(&sampler->stop)) {
        int64_t start_us = clock_mono_us();
        expect(ask(sampler->conn, "{'request':'status'}"), "{'ok':true,'database':'up'}");
        int64_t took_us = clock_mono_us() - start_us;
        if (took_us > sampler->longest_us)
            sampler->longest_us = took_us;
        sampler->count++;
        pause_ms(PAUSE_MS);
    }
    return NULL;
}

struct sampler *sampler_start(struct daemon *daemon)
{
    struct sampler *sampler = mem_zalloc(sizeof *sampler);
    sampler->conn = conn_open(daemon);
    ck_assert(pthread_create(&sampler->thread, NULL, run, sampler) == 0);
    return sampler;
}

double sampler_stop(struct sampler *sampler)
{
    atomic_store(&sampler->stop, true);
    ck_assert(pthread_join(sampler->thread, NULL) == 0);
    ck_assert_msg(sampler->count > 0, "no status was asked for");
    double longest_ms = (double)sampler->longest_us / 1000;
    conn_close(sampler->conn);
    free(sampler);
    return longest_ms;
}
