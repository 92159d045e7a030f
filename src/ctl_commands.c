/* SPDX-License-Identifier: MIT */
#include "ctl_commands.h"

#include <string.h>

static const struct command commands[] = {
    {"append", ctl_append, 1, 3, " collection id meta ack ",
     "[-c COLLECTION] DOCUMENT ACTION [FIELDS] [--id ID] [--meta JSON] [--ack folded] | -",
     "append one operation, or the lines of standard input",
     "ACTION is create, update, patch, delete, or one that the collection's reducer takes. FIELDS\n"
     "and JSON travel byte for byte. Prints what became of the operation: stored, duplicate, or\n"
     "with --ack folded its outcome.\n"
     "With - each line of standard input is sent as it is, and one line printed for each reply.\n"
     "\n"
     "  -c, --collection NAME   collection of the document (\"default\")\n"
     "  --id ID                 idempotency key: the same id again stores nothing new\n"
     "  --meta JSON             object stored with the operation, never folded\n"
     "  --ack stored|folded     answer when it is durable (stored) or visible in SQL (folded)\n"},
    {"import", ctl_import, 1, 1, " reconnect wait id-prefix ",
     "[--wait] [--reconnect SECONDS] [--id-prefix TEXT] FILE | -",
     "send a file of lines, many at a time",
     "Safe to run again: operations that are stored already count as duplicates. Operations\n"
     "without an id are given one, so that a line can be sent again after a lost connection.\n"
     "Prints a summary, and the first 20 errors with their line numbers.\n"
     "\n"
     "  --wait                  wait until everything is folded (a barrier after the last reply)\n"
     "  --reconnect SECONDS     go on trying that long when foldd is away (30; 0 = give up)\n"
     "  --id-prefix TEXT        give ids TEXT-LINE instead of random ones; a second run of the\n"
     "                          same file with the same TEXT finds duplicates\n"},
    {"get", ctl_get, 1, 1, " collection ", "[-c COLLECTION] DOCUMENT", "print a document's fields",
     "Prints the fields as foldd sent them, digit for digit. Exit code 1 when there is no such\n"
     "document or it is deleted. --json prints the whole reply with version and revision.\n"
     "\n"
     "  -c, --collection NAME   collection of the document (\"default\")\n"},
    {"await", ctl_await, 0, 1, " collection id seq timeout ",
     "[-c COLLECTION] DOCUMENT (--seq N | --id ID) [--timeout MS] | --seq N [--timeout MS]",
     "wait for the outcome of an operation",
     "Prints the outcome. Exit code 0 when it is folded or ignored (or everything up to N is\n"
     "settled); 1 when it is rejected, skipped, parked, or the time is over.\n"
     "\n"
     "  -c, --collection NAME   collection of the document (\"default\")\n"
     "  --seq N                 the operation's sequence number\n"
     "  --id ID                 the operation's id\n"
     "  --timeout MS            how long to wait (30000; 0 = look now)\n"},
    {"barrier", ctl_barrier, 0, 0, " timeout ", "[--timeout MS]",
     "wait until everything sent so far is folded", "  --timeout MS            how long to wait\n"},
    {"operation", ctl_operation, 2, 2, " collection ", "[-c COLLECTION] DOCUMENT ID",
     "show the state of one operation",
     "  -c, --collection NAME   collection of the document (\"default\")\n"},
    {"status", ctl_status, 0, 0, "", "", "show what foldd is doing",
     "Prints one line for each key of the reply.\n"},
    {"ping", ctl_ping, 0, 0, "", "", "see whether foldd answers",
     "Prints pong with the server's and the protocol's version.\n"},
    {"parked", ctl_parked, 0, 0, "", "", "list the documents that cannot be folded",
     "Prints a table, or nothing when there are none: the operation that does not fold, how often\n"
     "it was tried, when it is tried again, and what PostgreSQL said.\n"},
    {"retry", ctl_retry, 0, 1, " collection all ", "[-c COLLECTION] DOCUMENT | --all",
     "fold parked documents now",
     "Does not wait for the fold. Prints how many documents are tried; exit code 1 when DOCUMENT\n"
     "is not parked.\n"
     "\n"
     "  -c, --collection NAME   collection of the document (\"default\")\n"
     "  --all                   all that are parked\n"},
    {"skip", ctl_skip, 3, 3, " collection ", "[-c COLLECTION] DOCUMENT SEQ REASON",
     "leave an operation of a parked document out of every fold",
     "For good: there is no way back. REASON is kept in foldd.skipped. The document is then tried\n"
     "at once.\n"
     "\n"
     "  -c, --collection NAME   collection of the document (\"default\")\n"},
    {"pause", ctl_pause, 1, 2, "", "ingest|folding [REASON]", "stop storing or folding operations",
     "Until resumed, also over restarts. While ingest is paused, operations wait and are answered\n"
     "unavailable after db_timeout. REASON is kept in foldd.pauses.\n"},
    {"resume", ctl_resume, 1, 1, "", "ingest|folding", "go on after a pause or a drain",
     "A drain is ended by resume ingest.\n"},
    {"drain", ctl_drain, 0, 1, " timeout ", "[REASON] [--timeout MS]",
     "stop storing operations, and wait until what is stored is folded",
     "A pause of ingest, and a wait. When the time is over (exit code 1), ingest stays paused.\n"
     "\n"
     "  --timeout MS            how long to wait (30000)\n"},
    {"export", ctl_export, 0, 0, " from to ", "[--from SEQ] [--to SEQ]",
     "print the log as lines that import takes",
     "Reads the database directly, in order of seq, up to what is committed when it starts.\n"
     "Both ends are included.\n"
     "\n"
     "  --from SEQ              begin here\n"
     "  --to SEQ                end here\n"},
    {"psql", ctl_psql, 0, -1, "", "[ARGS...]", "open psql on foldd's database",
     "ARGS go to psql; --socket and --config are foldctl's when they come first. The database is\n"
     "the one in the file conninfo beside the socket, else the option database of the\n"
     "configuration file.\n"},
};

enum { COMMAND_COUNT = sizeof(commands) / sizeof(commands[0]) };

static const char global_help[] =
    "Options, before or after the command:\n"
    "  --socket PATH   foldd's socket ($FOLDD_SOCKET, else " CTL_DEFAULT_SOCKET ")\n"
    "  --config FILE   foldd's configuration file, to find the database of export and psql\n"
    "                  (" CTL_DEFAULT_CONFIG "); the file conninfo beside the socket goes first\n"
    "  --json          print replies as the JSON that foldd sent\n"
    "  -h, --help      show this, or the help of a command\n"
    "  --version       show the version\n";

static const char exit_help[] =
    "Exit codes:\n"
    "  0  done\n"
    "  1  the request failed, or some operation was refused or did not fold\n"
    "  2  wrong usage\n"
    "  3  foldd (for export: the database) cannot be reached, or the connection was lost\n"
    "  4  a file or the name of the database could not be read, or the output not be written\n";

static void print_overview(void)
{
    fputs("Usage: foldctl [OPTIONS] COMMAND [ARGS]\n\nCommands:\n", stdout);
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        printf("  %-11s%s\n", commands[i].name, commands[i].summary);
    printf("\n%s\n%s\nfoldctl COMMAND --help tells more; so does foldctl(1).\n", global_help,
           exit_help);
}

static void print_one(const struct command *command)
{
    printf("Usage: foldctl %s%s%s\n\nfoldctl %s: %s.\n\n%s\n%s", command->name,
           *command->synopsis == '\0' ? "" : " ", command->synopsis, command->name,
           command->summary, command->help, global_help);
}

const struct command *command_find(const char *name)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

void command_print_help(const struct command *command)
{
    if (command == NULL)
        print_overview();
    else
        print_one(command);
}
