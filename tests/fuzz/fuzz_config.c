/* SPDX-License-Identifier: MIT */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "config.h"

static void *field(struct config *config, const struct config_option *option)
{
    return (char *)config + option->offset;
}

/* Given: the number as one would write it. */
static char *write_number(const struct config_option *option, int64_t number)
{
    const char *unit = option->type == CONFIG_TIME ? "ms" : "";
    if (option->type == CONFIG_MODE)
        return mem_printf("%llo", (unsigned long long)number);
    return mem_printf("%lld%s", (long long)number, unit);
}

static void check_number(struct config *config, const struct config_option *option)
{
    struct err err;
    int64_t number = *(int64_t *)field(config, option);
    fuzz_require(number >= option->min && number <= option->max, "a number is within its range");
    char *text = write_number(option, number);
    fuzz_require(config_set(config, option->key, text, &err), "a number can be written again");
    fuzz_require(*(int64_t *)field(config, option) == number, "and is the same then");
    free(text);
}

static void check_options(struct config *config)
{
    for (const struct config_option *option = config_options; option->key != NULL; option++) {
        if (option->type == CONFIG_TEXT)
            fuzz_require(*(char **)field(config, option) != NULL, "a text is never absent");
        else
            check_number(config, option);
    }
}

/* Refused: which line, and why. */
static void check_refusal(const struct err *err, const char *text)
{
    char *end;
    long lines = 1;
    fuzz_require(err->class == ERR_CLIENT, "a bad option is its writer's fault");
    fuzz_require(strncmp(err->message, "line ", 5) == 0, "a refusal names the line");
    long line = strtol(err->message + 5, &end, 10);
    fuzz_require(end[0] == ':' && end[1] == ' ' && end[2] != '\0', "and says why");
    for (const char *c = text; *c != '\0'; c++)
        lines += *c == '\n';
    fuzz_require(line >= 1 && line <= lines, "the line is one of the file");
}

static bool parse(const char *text, struct config *config, struct err *err)
{
    config_init(config);
    *err = (struct err){0};
    return config_parse(config, text, err);
}

/* The same without a place for the reason; and the text as an argument of --set. */
static void check_without_reason(const char *text, bool accepted)
{
    struct config config;
    config_init(&config);
    fuzz_require(config_parse(&config, text, NULL) == accepted, "the reason decides nothing");
    struct err err = {0};
    if (!config_set_pair(&config, text, &err))
        fuzz_require(err.message[0] != '\0', "a refused KEY=VALUE has a reason");
    check_options(&config);
    config_fini(&config);
}

void fuzz_config(const uint8_t *data, size_t size)
{
    struct config config;
    struct err err;
    char *text = mem_dup((const char *)data, size);
    bool accepted = parse(text, &config, &err);
    if (accepted)
        check_options(&config);
    else
        check_refusal(&err, text);
    config_fini(&config);
    check_without_reason(text, accepted);
    free(text);
}
