/* SPDX-License-Identifier: MIT */
/*
 * sql_text: the files of sql/, built into the program (the Makefile makes the table), so that it
 * runs from any folder without being installed.
 */
#ifndef FOLDD_SQL_TEXT_H
#define FOLDD_SQL_TEXT_H

struct sql_text {
    const char *name; /* "0001_tables.sql" */
    const char *text;
};

/* In the order of their names; ends with a NULL name. */
extern const struct sql_text sql_texts[];

#endif
