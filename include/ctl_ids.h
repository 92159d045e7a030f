/* SPDX-License-Identifier: MIT */
/*
 * ctl_ids: give operations that have no id one, so that their line can be sent twice.
 */
#ifndef FOLDD_CTL_IDS_H
#define FOLDD_CTL_IDS_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "scan.h"

/* Append line to out. An operation without "id" gets "PREFIX-LINE_NO" as its last member, each such
 * member of a group "PREFIX-LINE_NO-INDEX"; all other bytes stay as they are. Lines that are no
 * JSON object are copied: foldd says what is wrong with them. Returns whether an id was added. */
bool ctl_ids_add(struct buf *out, struct span line, const char *prefix, uint64_t line_no);

#endif
