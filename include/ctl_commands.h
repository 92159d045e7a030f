/* SPDX-License-Identifier: MIT */
/*
 * ctl_commands: the table of foldctl's commands and the help that is made from it.
 */
#ifndef FOLDD_CTL_COMMANDS_H
#define FOLDD_CTL_COMMANDS_H

#include "ctl.h"

struct command {
    const char *name;
    int (*handler)(const struct ctl *ctl);
    int min_args;
    int max_args; /* -1 = any number */
    const char
        *options; /* the long options it takes besides the global ones, each between spaces */
    const char *synopsis;
    const char *summary;
    const char *help;
};

/* Borrowed, static: NULL when there is no such command. */
const struct command *command_find(const char *name);

/* The help of one command, or with NULL that of foldctl, on standard output. */
void command_print_help(const struct command *command);

#endif
