/* SPDX-License-Identifier: MIT */
#include "config.h"

#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <stdlib.h>
#include <string.h>

#define AT(field) offsetof(struct config, field)

enum {
    CONFIG_LINE_MAX = 198, /* what inih's line buffer holds */
    KIB = 1024,
    MIB = 1024 * 1024,
    SECOND = 1000,
    MINUTE = 60 * SECOND,
    HOUR = 60 * MINUTE,
};

const struct config_option config_options[] = {
    {"database", CONFIG_TEXT, "", 0, 0, CONFIG_RESTART, "libpq connection string, or service=NAME",
     AT(database)},
    {"socket", CONFIG_TEXT, "/run/foldd/foldd.sock", 0, 0, CONFIG_RESTART,
     "path of the socket that clients use", AT(socket)},
    {"socket_mode", CONFIG_MODE, "0660", 0, 0777, CONFIG_RESTART, "its permissions, octal",
     AT(socket_mode)},
    {"socket_group", CONFIG_TEXT, "", 0, 0, CONFIG_RESTART, "its group; empty: foldd's own",
     AT(socket_group)},
    {"admin_groups", CONFIG_TEXT, "", 0, 0, CONFIG_RELOAD,
     "groups, divided by commas, whose members may retry, skip, pause, resume and drain",
     AT(admin_groups)},
    {"allow_users", CONFIG_TEXT, "", 0, 0, CONFIG_RELOAD,
     "users, divided by commas, who may connect besides root and foldd's own user",
     AT(allow_users)},
    {"allow_groups", CONFIG_TEXT, "", 0, 0, CONFIG_RELOAD,
     "groups whose members may connect; both empty: whoever socket_mode lets in", AT(allow_groups)},
    {"workers", CONFIG_COUNT, "4", 1, 256, CONFIG_RESTART, "connections that fold", AT(workers)},
    {"max_line", CONFIG_SIZE, "1MiB", KIB, 16 * MIB, CONFIG_RESTART, "longest request line",
     AT(max_line_bytes)},
    {"max_pending", CONFIG_SIZE, "32MiB", MIB, 1024LL * MIB, CONFIG_RELOAD,
     "accepted and not yet committed, all clients together", AT(max_pending_bytes)},
    {"max_client_pending", CONFIG_SIZE, "8MiB", 64 * KIB, 1024LL * MIB, CONFIG_RELOAD,
     "requests and replies under way of one client", AT(max_client_pending_bytes)},
    {"max_clients_pending", CONFIG_SIZE, "32MiB", MIB, 16384LL * MIB, CONFIG_RELOAD,
     "the same of all clients together; beyond that each may have 64KiB",
     AT(max_clients_pending_bytes)},
    {"max_input", CONFIG_SIZE, "32MiB", MIB, 16384LL * MIB, CONFIG_RELOAD,
     "memory for lines over 16KiB that are not whole yet; others wait for their turn",
     AT(max_input_bytes)},
    {"max_waits", CONFIG_COUNT, "1000", 1, 100000, CONFIG_RELOAD,
     "open waits of one client: await, barrier, operations with ack folded", AT(max_waits)},
    {"max_clients", CONFIG_COUNT, "1000", 1, 100000, CONFIG_RELOAD, "connections at a time",
     AT(max_clients)},
    {"batch_ops", CONFIG_COUNT, "2000", 1, 20000, CONFIG_RELOAD,
     "operations in one ingest transaction", AT(batch_ops)},
    {"batch_bytes", CONFIG_SIZE, "4MiB", 64 * KIB, 64 * MIB, CONFIG_RELOAD,
     "bytes in one ingest transaction", AT(batch_bytes)},
    {"window", CONFIG_COUNT, "50000", 1000, 10000000, CONFIG_RESTART,
     "operations between the cursor and the newest one handed out to fold", AT(window_ops)},
    {"fold_docs", CONFIG_COUNT, "2000", 1, 20000, CONFIG_RESTART, "documents in one fold statement",
     AT(fold_docs)},
    {"fold_ops", CONFIG_COUNT, "4000", 1, 50000, CONFIG_RESTART, "operations in one fold statement",
     AT(fold_ops)},
    {"fold_chunk", CONFIG_COUNT, "1000", 1, 50000, CONFIG_RESTART,
     "operations of one document in one fold statement", AT(fold_chunk_ops)},
    {"db_timeout", CONFIG_TIME, "60s", 100, HOUR, CONFIG_RELOAD,
     "how long an operation waits for the database before it is answered unavailable",
     AT(db_timeout_ms)},
    {"lock_timeout", CONFIG_TIME, "5s", 100, HOUR, CONFIG_RESTART,
     "how long a document's row may be locked by others before it is parked", AT(lock_timeout_ms)},
    {"fold_timeout", CONFIG_TIME, "60s", 100, 24LL * HOUR, CONFIG_RESTART, "longest fold statement",
     AT(fold_timeout_ms)},
    {"lease_timeout", CONFIG_TIME, "5s", 100, HOUR, CONFIG_RESTART,
     "how long a leading foldd may take to answer a standby before its sessions are ended",
     AT(lease_timeout_ms)},
    {"takeover_timeout", CONFIG_TIME, "10s", 100, HOUR, CONFIG_RESTART,
     "how long sessions of the term before may keep a new leader waiting before they are ended",
     AT(takeover_timeout_ms)},
    {"safety_poll", CONFIG_TIME, "60s", 100, 24LL * HOUR, CONFIG_RESTART,
     "how often an idle foldd looks whether it missed anything", AT(safety_poll_ms)},
    {"line_timeout", CONFIG_TIME, "60s", 100, 24LL * HOUR, CONFIG_RELOAD,
     "how long a client may take to send the rest of a line", AT(line_timeout_ms)},
    {"write_timeout", CONFIG_TIME, "5min", 100, 24LL * HOUR, CONFIG_RELOAD,
     "how long a client may leave its replies unread before it is dropped", AT(write_timeout_ms)},
    {"drain_timeout", CONFIG_TIME, "20s", 0, HOUR, CONFIG_RELOAD, "how long a stop may take",
     AT(drain_timeout_ms)},
    {"pg_bindir", CONFIG_TEXT, "", 0, 0, CONFIG_RESTART,
     "folder of initdb and postgres, for --standalone; empty: found by itself", AT(pg_bindir)},
    {"log_level", CONFIG_TEXT, "info", 0, 0, CONFIG_RELOAD, "error, warning, info or debug",
     AT(log_level)},
    {NULL, CONFIG_TEXT, NULL, 0, 0, CONFIG_RESTART, NULL, 0},
};

struct unit {
    const char *name;
    int64_t factor;
};

static const struct unit sizes[] = {
    {"", 1}, {"B", 1}, {"KiB", KIB}, {"MiB", MIB}, {"GiB", 1024LL * MIB}, {NULL, 0}};
static const struct unit times[] = {
    {"ms", 1}, {"s", SECOND}, {"min", MINUTE}, {"h", HOUR}, {NULL, 0}};
static const struct unit counts[] = {{"", 1}, {NULL, 0}};

static const struct unit *units_of(enum config_type type)
{
    return type == CONFIG_SIZE ? sizes : type == CONFIG_TIME ? times : counts;
}

static const char *units_text(enum config_type type)
{
    switch (type) {
    case CONFIG_SIZE:
        return " bytes (KiB, MiB, GiB)";
    case CONFIG_TIME:
        return " ms (ms, s, min, h)";
    case CONFIG_MODE:
        return " (octal)";
    default:
        return "";
    }
}

static bool parse_number(const struct config_option *option, const char *value, int64_t *out)
{
    char *end;
    errno = 0;
    long long number = strtoll(value, &end, option->type == CONFIG_MODE ? 8 : 10);
    if (end == value || errno != 0)
        return false;
    while (isspace((unsigned char)*end))
        end++;
    for (const struct unit *unit = units_of(option->type); unit->name != NULL; unit++)
        if (strcmp(end, unit->name) == 0)
            return !__builtin_mul_overflow(number, unit->factor, out);
    return false;
}

static void *field(struct config *config, const struct config_option *option)
{
    return (char *)config + option->offset;
}

static bool set(struct config *config, const struct config_option *option, const char *value,
                struct err *err)
{
    if (option->type == CONFIG_TEXT) {
        char **text = field(config, option);
        free(*text);
        *text = mem_strdup(value);
        return true;
    }
    int64_t number;
    if (!parse_number(option, value, &number) || number < option->min || number > option->max) {
        const char *format = option->type == CONFIG_MODE
                                 ? "%s: \"%.100s\" is not a number from %04llo to %04llo%s"
                                 : "%s: \"%.100s\" is not a number from %lld to %lld%s";
        /* Both formats take the same arguments. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        return err_set(err, ERR_CLIENT, format, option->key, value, (long long)option->min,
                       (long long)option->max, units_text(option->type));
#pragma GCC diagnostic pop
    }
    *(int64_t *)field(config, option) = number;
    return true;
}

void config_init(struct config *config)
{
    *config = (struct config){0};
    for (const struct config_option *option = config_options; option->key != NULL; option++)
        if (!set(config, option, option->standard, NULL))
            abort(); /* a default of ours that is out of its range */
}

void config_fini(struct config *config)
{
    for (const struct config_option *option = config_options; option->key != NULL; option++)
        if (option->type == CONFIG_TEXT)
            free(*(char **)field(config, option));
    *config = (struct config){0};
}

bool config_same(const struct config *a, const struct config *b, const struct config_option *option)
{
    const char *in_a = (const char *)a + option->offset;
    const char *in_b = (const char *)b + option->offset;
    if (option->type == CONFIG_TEXT)
        return strcmp(*(char *const *)(const void *)in_a, *(char *const *)(const void *)in_b) == 0;
    return memcmp(in_a, in_b, sizeof(int64_t)) == 0;
}

void config_swap(struct config *to, struct config *from, const struct config_option *option)
{
    char value[sizeof(int64_t)];
    size_t size = option->type == CONFIG_TEXT ? sizeof(char *) : sizeof(int64_t);
    memcpy(value, field(to, option), size);
    memcpy(field(to, option), field(from, option), size);
    memcpy(field(from, option), value, size);
}

bool config_set(struct config *config, const char *key, const char *value, struct err *err)
{
    for (const struct config_option *option = config_options; option->key != NULL; option++)
        if (strcmp(option->key, key) == 0)
            return set(config, option, value, err);
    return err_set(err, ERR_CLIENT, "unknown option \"%.100s\"", key);
}

bool config_set_pair(struct config *config, const char *pair, struct err *err)
{
    const char *equals = strchr(pair, '=');
    if (equals == NULL)
        return err_set(err, ERR_CLIENT, "\"%.100s\" is not KEY=VALUE", pair);
    char *key = mem_dup(pair, (size_t)(equals - pair));
    bool ok = config_set(config, key, equals + 1, err);
    free(key);
    return ok;
}

struct parse_state {
    struct config *config;
    struct err err;
    bool failed;
};

static int on_pair(void *arg, const char *section, const char *key, const char *value)
{
    struct parse_state *state = arg;
    (void)section;
    state->failed = !config_set(state->config, key, value, &state->err);
    return !state->failed;
}

/* One line at a time, so that its number is known; and so that a line which begins with white space
 * is not taken for the continuation of a value. */
static bool parse_line(struct config *config, const char *line, struct err *err)
{
    struct parse_state state = {.config = config};
    if (strlen(line) > CONFIG_LINE_MAX)
        return err_set(err, ERR_CLIENT, "longer than %d bytes", CONFIG_LINE_MAX);
    if (ini_parse_string(line, on_pair, &state) == 0)
        return true;
    if (!state.failed)
        return err_set(err, ERR_CLIENT, "not KEY = VALUE");
    if (err != NULL)
        *err = state.err;
    return false;
}

bool config_parse(struct config *config, const char *text, struct err *err)
{
    bool ok = true;
    for (int number = 1; ok && *text != '\0'; number++) {
        size_t len = strcspn(text, "\n");
        char *line = mem_dup(text, len);
        ok = parse_line(config, line, err) || err_wrap(err, "line %d", number);
        free(line);
        text += len + (text[len] == '\n');
    }
    return ok;
}
