/* SPDX-License-Identifier: MIT */
/*
 * child: start a program of another user's, cut off from foldd.
 *
 * The child has a session of its own, no descriptor of foldd's but the three standard ones, default
 * signal actions, and the umask 077.
 */
#ifndef FOLDD_CHILD_H
#define FOLDD_CHILD_H

#include <sys/types.h>

/* What becomes of the child when foldd is killed. */
enum child_bond { CHILD_STAYS, CHILD_DIES };

struct child_options {
    char *const *argv; /* argv[0] is the program's path; ends with NULL */
    const char *input; /* text for its standard input */
    const char *log;   /* file that its output is appended to (0600) */
    const char *dir;   /* its working folder */
    const char *user;  /* NULL: foldd's own; else uid and gid are that user's */
    uid_t uid;
    gid_t gid;
    enum child_bond bond;
};

/* Start it. Returns its process id, or -1 with errno set. The caller reaps it. */
pid_t child_start(const struct child_options *options);

#endif
