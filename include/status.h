/* SPDX-License-Identifier: MIT */
/*
 * status: the reply that says where foldd stands, from memory alone.
 */
#ifndef FOLDD_STATUS_H
#define FOLDD_STATUS_H

#include <stddef.h>
#include <stdint.h>

#include "await.h"
#include "client.h"
#include "dispatch.h"
#include "ingest.h"
#include "leader.h"

struct status {
    const struct leader *leader;
    const struct ingest *ingest;
    const struct dispatch *dispatch;
    const struct await *await;
    const struct clients *clients;
    size_t workers;
    int64_t started_ms;
};

/* Append the whole reply line. */
void status_reply(const struct status *status, struct buf *out);

#endif
