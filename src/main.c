/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "buf.h"
#include "config.h"
#include "log.h"
#include "mem.h"
#include "server.h"
#include "version.h"

enum { EXIT_USAGE = 2, CONFIG_MAX_BYTES = 1024 * 1024 };

enum mode { MODE_RUN, MODE_MIGRATE, MODE_CHECK_CONFIG, MODE_HELP, MODE_VERSION };

struct arguments {
    int argc;
    char **argv;
    enum mode mode;
    const char *standalone;
    const char *config_path;
};

static const char usage[] =
    "foldd: operations in over a unix socket, documents out in SQL\n\n"
    "  foldd --standalone DIR          run with a private PostgreSQL in DIR\n"
    "  foldd --config FILE             run on the database that FILE names\n"
    "  foldd --migrate --config FILE   bring its schema to this version, and exit\n"
    "  foldd --check-config --config FILE\n"
    "  foldd --help | --version\n\n"
    "  --set KEY=VALUE                 set an option, also over FILE; may be repeated\n\n"
    "Options, with their defaults; SIGHUP reads FILE again and changes those with a *:\n";

static void print_help(void)
{
    fputs(usage, stdout);
    for (const struct config_option *option = config_options; option->key != NULL; option++)
        printf("%c %-20s %-22s %s\n", option->change == CONFIG_RELOAD ? '*' : ' ', option->key,
               option->standard[0] == '\0' ? "(none)" : option->standard, option->text);
}

static bool read_file(const char *path, struct buf *out, struct err *err)
{
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return err_set(err, ERR_CLIENT, "cannot open %s: %s", path, strerror(errno));
    char block[4096];
    size_t count;
    while ((count = fread(block, 1, sizeof(block), file)) > 0 && out->len < CONFIG_MAX_BYTES)
        buf_add(out, block, count);
    bool ok = !ferror(file) && out->len < CONFIG_MAX_BYTES;
    fclose(file);
    return ok || err_set(err, ERR_CLIENT, "cannot read %s as a configuration file", path);
}

static bool load_file(struct config *config, const char *path, struct err *err)
{
    struct buf text = {0};
    bool ok = read_file(path, &text, err);
    if (ok && !config_parse(config, buf_cstr(&text), err))
        ok = err_wrap(err, "%s", path);
    buf_fini(&text);
    return ok;
}

static bool check_level(const struct config *config, struct err *err)
{
    enum log_level level;
    return log_find_level(config->log_level, &level) ||
           err_set(err, ERR_CLIENT, "log_level: \"%.100s\" is not error, warning, info or debug",
                   config->log_level);
}

static const struct option long_options[] = {
    {"standalone", required_argument, NULL, 'S'}, {"config", required_argument, NULL, 'c'},
    {"set", required_argument, NULL, 's'},        {"migrate", no_argument, NULL, 'm'},
    {"check-config", no_argument, NULL, 'k'},     {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'V'},          {NULL, 0, NULL, 0}};

static bool parse_arguments(int argc, char **argv, struct arguments *out)
{
    int option;
    while ((option = getopt_long(argc, argv, "c:s:hV", long_options, NULL)) != -1) {
        switch (option) {
        case 'S':
            out->standalone = optarg;
            break;
        case 'c':
            out->config_path = optarg;
            break;
        case 's':
            break; /* set_options, after the file */
        case 'm':
            out->mode = MODE_MIGRATE;
            break;
        case 'k':
            out->mode = MODE_CHECK_CONFIG;
            break;
        case 'h':
            out->mode = MODE_HELP;
            break;
        case 'V':
            out->mode = MODE_VERSION;
            break;
        default:
            return false;
        }
    }
    if (optind < argc)
        fprintf(stderr, "foldd: unexpected argument \"%s\"\n", argv[optind]);
    return optind == argc;
}

static bool set_options(const struct arguments *arguments, struct config *config, struct err *err)
{
    int option;
    optind = 0; /* begin anew */
    while ((option = getopt_long(arguments->argc, arguments->argv, "c:s:hV", long_options, NULL)) !=
           -1)
        if (option == 's' && !config_set_pair(config, optarg, err))
            return err_wrap(err, "--set");
    return true;
}

static bool load(const struct arguments *arguments, struct config *config, struct err *err)
{
    if (arguments->config_path != NULL && !load_file(config, arguments->config_path, err))
        return false;
    if (!set_options(arguments, config, err) || !check_level(config, err))
        return false;
    if (arguments->standalone != NULL && config->database[0] != '\0')
        return err_set(err, ERR_CLIENT, "--standalone and the option database exclude each other");
    if (arguments->standalone == NULL && config->database[0] == '\0')
        return err_set(err, ERR_CLIENT,
                       "no database: use --standalone DIR, or set the option "
                       "database in a file (--config FILE) or with --set");
    return true;
}

/* The loop waits for this: the path must not be a pipe by now. */
static bool reload(void *arg, struct config *config, struct err *err)
{
    const struct arguments *arguments = arg;
    const char *path = arguments->config_path;
    struct stat found;
    if (path != NULL && stat(path, &found) == 0 && !S_ISREG(found.st_mode))
        return err_set(err, ERR_CLIENT, "%s is no regular file", path);
    return load(arguments, config, err);
}

int main(int argc, char **argv)
{
    struct arguments arguments = {.argc = argc, .argv = argv, .mode = MODE_RUN};
    if (!parse_arguments(argc, argv, &arguments)) {
        fputs("foldd: see foldd --help\n", stderr);
        return EXIT_USAGE;
    }
    if (arguments.mode == MODE_HELP) {
        print_help();
        return 0;
    }
    if (arguments.mode == MODE_VERSION) {
        puts("foldd " FOLDD_VERSION);
        return 0;
    }
    struct config config;
    struct err err;
    config_init(&config);
    int code = EXIT_USAGE;
    const struct server_options options = {
        .config = &config, .standalone = arguments.standalone, .source = {reload, &arguments}};
    if (!load(&arguments, &config, &err))
        fprintf(stderr, "foldd: %s\n", err.message);
    else if (arguments.mode == MODE_CHECK_CONFIG)
        code = 0;
    else
        code = arguments.mode == MODE_MIGRATE ? server_migrate(&config) : server_run(&options);
    config_fini(&config);
    return code;
}
