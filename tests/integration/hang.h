/* SPDX-License-Identifier: MIT */
/*
 * hang: commits that are in and not answered. The server waits for a standby that does not exist,
 * in the state that pg_stat_activity calls SyncRep, until it is released.
 */
#ifndef FOLDD_TEST_HANG_H
#define FOLDD_TEST_HANG_H

#include "harness.h"

/* From now on commits hang: when a canary's does, so will foldd's. Returns a session that can
 * commit all the same. */
PGconn *hang_commits(struct env *env);

/* So many of foldd's sessions stand in their commits; within TEST_WAIT_MS. */
void hang_wait(struct env *env, int count);

/* What hangs is in, and its answer is lost with its session. */
void hang_lose_answers(PGconn *admin);

/* What hangs is in and answered, and so is everything from now on. */
void hang_release(PGconn *admin);

#endif
