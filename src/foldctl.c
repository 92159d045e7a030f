/* SPDX-License-Identifier: MIT */
/* foldctl: from the command line to one of the commands. */
#include "ctl_commands.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "version.h"

enum { DEFAULT_RECONNECT_S = 30, MAX_RECONNECT_S = 86400 };

/* What getopt_long returns for the options that have no letter. */
enum option_char {
    OPT_SOCKET = 1000,
    OPT_JSON,
    OPT_CONFIG,
    OPT_VERSION,
    OPT_ID,
    OPT_META,
    OPT_ACK,
    OPT_ID_PREFIX,
    OPT_RECONNECT,
    OPT_WAIT,
    OPT_SEQ,
    OPT_TIMEOUT,
    OPT_FROM,
    OPT_TO,
    OPT_ALL,
};

static const struct option long_options[] = {
    {"socket", required_argument, NULL, OPT_SOCKET},
    {"json", no_argument, NULL, OPT_JSON},
    {"config", required_argument, NULL, OPT_CONFIG},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, OPT_VERSION},
    {"collection", required_argument, NULL, 'c'},
    {"id", required_argument, NULL, OPT_ID},
    {"meta", required_argument, NULL, OPT_META},
    {"ack", required_argument, NULL, OPT_ACK},
    {"id-prefix", required_argument, NULL, OPT_ID_PREFIX},
    {"reconnect", required_argument, NULL, OPT_RECONNECT},
    {"wait", no_argument, NULL, OPT_WAIT},
    {"seq", required_argument, NULL, OPT_SEQ},
    {"timeout", required_argument, NULL, OPT_TIMEOUT},
    {"from", required_argument, NULL, OPT_FROM},
    {"to", required_argument, NULL, OPT_TO},
    {"all", no_argument, NULL, OPT_ALL},
    {NULL, 0, NULL, 0},
};

/* What the command line said, before it is known to fit together. */
struct parse {
    struct ctl ctl;
    const struct command *command;
    bool help;
    bool version;
    bool failed;
    const char *own_options[sizeof(long_options) / sizeof(long_options[0])];
    size_t own_count; /* the options given that are not global */
};

static void fail_usage(struct parse *parse, const char *problem, const char *what)
{
    parse->failed = true;
    ctl_fail(CTL_USAGE, "%s%s; see foldctl%s%s --help", problem, what,
             parse->command == NULL ? "" : " ", parse->command == NULL ? "" : parse->command->name);
}

static void take_number(struct parse *parse, const char *name, int64_t max, int64_t *out)
{
    char *end = NULL;
    errno = 0;
    long long value = strtoll(optarg, &end, 10);
    if (errno != 0 || end == optarg || *end != '\0' || value < 0 || value > max)
        fail_usage(parse, "not a number in range: ", name);
    else
        *out = value;
}

/* Returns false when the option is not a global one. */
static bool take_global_option(struct parse *parse, int option)
{
    switch (option) {
    case OPT_SOCKET:
        parse->ctl.socket_path = optarg;
        return true;
    case OPT_CONFIG:
        parse->ctl.config_path = optarg;
        return true;
    case OPT_JSON:
        parse->ctl.json = true;
        return true;
    case 'h':
        parse->help = true;
        return true;
    case OPT_VERSION:
        parse->version = true;
        return true;
    default:
        return false;
    }
}

static void note_own_option(struct parse *parse, int option)
{
    const struct option *row = long_options;
    while (row->val != option)
        row++;
    if (parse->own_count < sizeof(parse->own_options) / sizeof(parse->own_options[0]))
        parse->own_options[parse->own_count++] = row->name;
}

static void take_own_option(struct parse *parse, int option)
{
    struct ctl *ctl = &parse->ctl;
    switch (option) {
    case 'c':
        ctl->collection = optarg;
        break;
    case OPT_ID:
        ctl->id = optarg;
        break;
    case OPT_META:
        ctl->meta = optarg;
        break;
    case OPT_ACK:
        ctl->ack = optarg;
        break;
    case OPT_ID_PREFIX:
        ctl->id_prefix = optarg;
        break;
    case OPT_WAIT:
        ctl->wait = true;
        break;
    case OPT_ALL:
        ctl->all = true;
        break;
    case OPT_RECONNECT:
        take_number(parse, "--reconnect", MAX_RECONNECT_S, &ctl->reconnect_s);
        break;
    case OPT_SEQ:
        take_number(parse, "--seq", INT64_MAX, &ctl->seq);
        break;
    case OPT_TIMEOUT:
        take_number(parse, "--timeout", INT64_MAX, &ctl->timeout_ms);
        break;
    case OPT_FROM:
        take_number(parse, "--from", INT64_MAX, &ctl->from_seq);
        break;
    case OPT_TO:
        take_number(parse, "--to", INT64_MAX, &ctl->to_seq);
        break;
    default:
        break;
    }
}

/* A word that is no option: the command first, then its arguments. */
static void take_word(struct parse *parse, char *word)
{
    if (parse->command != NULL) {
        parse->ctl.args[parse->ctl.arg_count++] = word;
        return;
    }
    parse->command = command_find(word);
    if (parse->command == NULL)
        fail_usage(parse, "no such command: ", word);
}

/* Whether the option that comes next is foldctl's although it stands behind psql. */
static bool is_for_foldctl(const char *word)
{
    return strncmp(word, "--socket", 8) == 0 || strncmp(word, "--config", 8) == 0 ||
           strcmp(word, "--help") == 0;
}

static void parse_line(struct parse *parse, int argc, char **argv)
{
    opterr = 0;
    while (!parse->failed) {
        bool pass_on = parse->command != NULL && parse->command->handler == ctl_psql;
        if (pass_on && (optind >= argc || !is_for_foldctl(argv[optind])))
            break;
        int at = optind;
        /* The leading - hands over words in their place, whatever POSIXLY_CORRECT says. */
        int option = getopt_long(argc, argv, "-:c:h", long_options, NULL);
        if (option == -1)
            break;
        if (option == 1)
            take_word(parse, optarg);
        else if (option == '?')
            fail_usage(parse, "unknown option: ", argv[at]);
        else if (option == ':')
            fail_usage(parse, "a value is missing behind ", argv[at]);
        else if (!take_global_option(parse, option)) {
            note_own_option(parse, option);
            take_own_option(parse, option);
        }
    }
    for (; optind < argc && !parse->failed; optind++)
        take_word(parse, argv[optind]);
}

static void check_options(struct parse *parse)
{
    for (size_t i = 0; i < parse->own_count && !parse->failed; i++) {
        char *word = mem_printf(" %s ", parse->own_options[i]);
        if (strstr(parse->command->options, word) == NULL)
            fail_usage(parse, "this command takes no --", parse->own_options[i]);
        free(word);
    }
}

static void check_line(struct parse *parse)
{
    const struct command *command = parse->command;
    if (command == NULL) {
        fail_usage(parse, "a command is missing", "");
        return;
    }
    check_options(parse);
    if (parse->failed)
        return;
    if (parse->ctl.arg_count < command->min_args)
        fail_usage(parse, "an argument is missing: ", command->synopsis);
    else if (command->max_args >= 0 && parse->ctl.arg_count > command->max_args)
        fail_usage(parse, "too many arguments: ", parse->ctl.args[command->max_args]);
}

static int run_command(struct parse *parse)
{
    if (parse->version) {
        puts("foldctl " FOLDD_VERSION);
        return CTL_OK;
    }
    if (!parse->failed && parse->help) {
        command_print_help(parse->command);
        return CTL_OK;
    }
    if (!parse->failed)
        check_line(parse);
    return parse->failed ? CTL_USAGE : parse->command->handler(&parse->ctl);
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    const char *socket_path = getenv("FOLDD_SOCKET");
    struct parse parse = {
        .ctl = {.socket_path =
                    socket_path == NULL || *socket_path == '\0' ? CTL_DEFAULT_SOCKET : socket_path,
                .config_path = CTL_DEFAULT_CONFIG,
                .reconnect_s = DEFAULT_RECONNECT_S,
                .seq = -1,
                .timeout_ms = -1,
                .from_seq = -1,
                .to_seq = -1},
    };
    parse.ctl.args = mem_zalloc(((size_t)argc + 1) * sizeof(*parse.ctl.args));
    parse_line(&parse, argc, argv);
    int code = run_command(&parse);
    free(parse.ctl.args);
    if (fflush(stdout) != 0 || ferror(stdout))
        return ctl_fail(CTL_LOCAL, "cannot write to standard output: %s", strerror(errno));
    return code;
}
