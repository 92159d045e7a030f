/* SPDX-License-Identifier: MIT */
/*
 * err: what went wrong, in which of four classes, and the words for it.
 *
 * The class decides what a caller does; the message is for a person. An err is a plain value: copy
 * it, keep it, drop it. A function fills it only when it returns false.
 */
#ifndef FOLDD_ERR_H
#define FOLDD_ERR_H

#include <stdbool.h>

enum err_class {
    ERR_NONE,
    ERR_CLIENT,    /* the client's fault: reply and carry on */
    ERR_TRANSIENT, /* the database's state: try again later */
    ERR_DATA,      /* this operation or this document: isolate it */
    ERR_FATAL,     /* wrong schema, broken invariant: stop cleanly */
};

struct err {
    enum err_class class;
    char sqlstate[6]; /* "" when it did not come from PostgreSQL */
    char message[512];
};

/* Fill err (which may be NULL) with a class and a message. Always returns false, so that a failing
 * function can `return err_set(...)`. A longer message is cut at a character boundary. */
bool err_set(struct err *err, enum err_class class, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Put context in front of the message: "context: message". Returns false. */
bool err_wrap(struct err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The class of an SQLSTATE (PostgreSQL documentation, appendix A). A state that is in no list
 * counts as data; whoever isolates data errors decides whether it was the database after all (R16).
 */
enum err_class err_class_of_sqlstate(const char *sqlstate);

/* Fill err from an SQLSTATE and a message. Returns false. */
bool err_set_sql(struct err *err, const char *sqlstate, const char *message);

#endif
