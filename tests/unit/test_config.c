/* SPDX-License-Identifier: MIT */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "unit.h"

static void accept(struct config *config, const char *key, const char *value)
{
    struct err err = {0};
    ck_assert_msg(config_set(config, key, value, &err), "%s = %s: %s", key, value, err.message);
}

static void refuse(const char *key, const char *value, const char *message)
{
    struct config config;
    struct err err = {0};
    config_init(&config);
    ck_assert_msg(!config_set(&config, key, value, &err), "%s = %s", key, value);
    ck_assert_int_eq(err.class, ERR_CLIENT);
    ck_assert_str_eq(err.message, message);
    config_fini(&config);
}

/* The whole text is refused with this message. */
static void refuse_text(const char *text, const char *message)
{
    struct config config;
    struct err err = {0};
    config_init(&config);
    ck_assert_msg(!config_parse(&config, text, &err), "%s", text);
    ck_assert_int_eq(err.class, ERR_CLIENT);
    ck_assert_str_eq(err.message, message);
    config_fini(&config);
}

static int64_t number(const struct config *config, const struct config_option *option)
{
    int64_t value;
    memcpy(&value, (const char *)config + option->offset, sizeof(value));
    return value;
}

START_TEST(defaults_are_those_of_the_contract)
{
    struct config config;
    config_init(&config);
    ck_assert_str_eq(config.database, "");
    ck_assert_str_eq(config.socket, "/run/foldd/foldd.sock");
    ck_assert_int_eq(config.socket_mode, 0660);
    ck_assert_str_eq(config.socket_group, "");
    ck_assert_int_eq(config.workers, 4);
    ck_assert_int_eq(config.max_line_bytes, 1024 * 1024);
    ck_assert_int_eq(config.max_pending_bytes, 32 * 1024 * 1024);
    ck_assert_int_eq(config.db_timeout_ms, 60000);
    ck_assert_int_eq(config.lock_timeout_ms, 5000);
    ck_assert_int_eq(config.fold_timeout_ms, 60000);
    ck_assert_int_eq(config.safety_poll_ms, 60000);
    ck_assert_int_eq(config.drain_timeout_ms, 20000);
    ck_assert_str_eq(config.log_level, "info");
    config_fini(&config);
    ck_assert_ptr_null(config.socket);
}
END_TEST

START_TEST(every_option_is_a_whole_row)
{
    for (const struct config_option *a = config_options; a->key != NULL; a++) {
        ck_assert_msg(a->standard != NULL && a->text != NULL && a->text[0] != '\0', "%s", a->key);
        ck_assert_msg(a->type == CONFIG_TEXT || a->min < a->max, "%s", a->key);
        for (const struct config_option *b = config_options; b < a; b++)
            ck_assert_msg(strcmp(a->key, b->key) != 0 && a->offset != b->offset, "%s", a->key);
    }
}
END_TEST

START_TEST(sizes_take_units)
{
    static const struct {
        const char *value;
        int64_t bytes;
    } rows[] = {{"1048576", 1048576},
                {"1024KiB", 1048576},
                {"64 KiB", 65536},
                {"2MiB", 2 * 1048576},
                {"2097152B", 2 * 1048576},
                {"16MiB", 16 * 1048576},
                {"1KiB", 1024},
                {"1024", 1024},
                {"3\tMiB", 3 * 1048576},
                {"16777216", 16 * 1048576}};
    struct config config;
    config_init(&config);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        accept(&config, "max_line", rows[i].value);
        ck_assert_int_eq(config.max_line_bytes, rows[i].bytes);
    }
    accept(&config, "max_pending", "1GiB");
    ck_assert_int_eq(config.max_pending_bytes, INT64_C(1) << 30);
    config_fini(&config);
}
END_TEST

START_TEST(times_take_units)
{
    static const struct {
        const char *value;
        int64_t ms;
    } rows[] = {{"100ms", 100}, {"250 ms", 250}, {"7s", 7000}, {"2min", 120000}, {"1h", 3600000}};
    struct config config;
    config_init(&config);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        accept(&config, "db_timeout", rows[i].value);
        ck_assert_int_eq(config.db_timeout_ms, rows[i].ms);
    }
    accept(&config, "drain_timeout", "0s");
    ck_assert_int_eq(config.drain_timeout_ms, 0);
    config_fini(&config);
}
END_TEST

START_TEST(modes_are_octal)
{
    struct config config;
    config_init(&config);
    accept(&config, "socket_mode", "0600");
    ck_assert_int_eq(config.socket_mode, 0600);
    accept(&config, "socket_mode", "777");
    ck_assert_int_eq(config.socket_mode, 0777);
    accept(&config, "socket_mode", "0");
    ck_assert_int_eq(config.socket_mode, 0);
    config_fini(&config);
    refuse("socket_mode", "0680",
           "socket_mode: \"0680\" is not a number from 0000 to 0777 (octal)");
    refuse("socket_mode", "1777",
           "socket_mode: \"1777\" is not a number from 0000 to 0777 (octal)");
    refuse("socket_mode", "-1", "socket_mode: \"-1\" is not a number from 0000 to 0777 (octal)");
}
END_TEST

START_TEST(ranges_are_inclusive)
{
    struct config config;
    config_init(&config);
    for (const struct config_option *option = config_options; option->key != NULL; option++) {
        if (option->type != CONFIG_COUNT && option->type != CONFIG_SIZE &&
            option->type != CONFIG_TIME)
            continue;
        const int64_t values[] = {option->min, option->max, option->min - 1, option->max + 1};
        for (size_t i = 0; i < 4; i++) {
            struct buf text = {0};
            struct err err;
            buf_printf(&text, "%lld%s", (long long)values[i],
                       option->type == CONFIG_TIME ? "ms" : "");
            bool ok = config_set(&config, option->key, buf_cstr(&text), &err);
            ck_assert_msg(ok == (i < 2), "%s = %s", option->key, text.data);
            /* What is refused changes nothing. */
            ck_assert_int_eq(number(&config, option), i == 0 ? option->min : option->max);
            buf_fini(&text);
        }
    }
    config_fini(&config);
}
END_TEST

START_TEST(what_is_no_number_is_refused_by_name)
{
    static const char *const counts[] = {"",
                                         "four",
                                         "0",
                                         "257",
                                         "-4",
                                         "4.0",
                                         "4x",
                                         "4s",
                                         "4KiB",
                                         "0x4",
                                         "4 4",
                                         "1e1",
                                         "99999999999999999999"};
    struct buf message = {0};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        message.len = 0;
        buf_printf(&message, "workers: \"%s\" is not a number from 1 to 256", counts[i]);
        refuse("workers", counts[i], buf_cstr(&message));
    }
    buf_fini(&message);
    refuse("max_line", "1MB",
           "max_line: \"1MB\" is not a number from 1024 to 16777216 bytes (KiB, MiB, GiB)");
    refuse("max_line", "1.5MiB",
           "max_line: \"1.5MiB\" is not a number from 1024 to 16777216 bytes (KiB, MiB, GiB)");
    refuse("max_line", "9223372036854775807GiB",
           "max_line: \"9223372036854775807GiB\" is not a number from 1024 to 16777216 bytes "
           "(KiB, MiB, GiB)");
    /* 2^54 + 1 KiB are 1 KiB in 64 bits. */
    refuse("max_line", "18014398509481985KiB",
           "max_line: \"18014398509481985KiB\" is not a number from 1024 to 16777216 bytes "
           "(KiB, MiB, GiB)");
    refuse("db_timeout", "6000",
           "db_timeout: \"6000\" is not a number from 100 to 3600000 ms (ms, s, min, h)");
    refuse("db_timeout", "99ms",
           "db_timeout: \"99ms\" is not a number from 100 to 3600000 ms (ms, s, min, h)");
}
END_TEST

START_TEST(text_is_taken_as_it_is)
{
    struct config config;
    config_init(&config);
    accept(&config, "database", "host=/tmp dbname='a b' options=-csearch_path=x");
    ck_assert_str_eq(config.database, "host=/tmp dbname='a b' options=-csearch_path=x");
    accept(&config, "database", "");
    ck_assert_str_eq(config.database, "");
    config_fini(&config);
}
END_TEST

START_TEST(an_unknown_key_is_named)
{
    refuse("wrokers", "4", "unknown option \"wrokers\"");
    refuse("Workers", "4", "unknown option \"Workers\"");
    refuse("", "4", "unknown option \"\"");
    refuse("worker", "4", "unknown option \"worker\"");
}
END_TEST

START_TEST(pairs_split_at_the_first_equals_sign)
{
    struct config config;
    struct err err = {0};
    config_init(&config);
    ck_assert(config_set_pair(&config, "workers=16", &err));
    ck_assert_int_eq(config.workers, 16);
    ck_assert(config_set_pair(&config, "database=host=/tmp port=5433", &err));
    ck_assert_str_eq(config.database, "host=/tmp port=5433");
    ck_assert(config_set_pair(&config, "database=", &err));
    ck_assert_str_eq(config.database, "");
    static const struct {
        const char *pair;
        const char *message;
    } rows[] = {
        {"workers", "\"workers\" is not KEY=VALUE"},
        {"", "\"\" is not KEY=VALUE"},
        {"=4", "unknown option \"\""},
        {"nope=4", "unknown option \"nope\""},
        {"workers=", "workers: \"\" is not a number from 1 to 256"},
        {"workers=0", "workers: \"0\" is not a number from 1 to 256"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        ck_assert_msg(!config_set_pair(&config, rows[i].pair, &err), "%s", rows[i].pair);
        ck_assert_str_eq(err.message, rows[i].message);
    }
    ck_assert_int_eq(config.workers, 16);
    config_fini(&config);
}
END_TEST

START_TEST(a_file_is_read)
{
    struct config config;
    struct err err = {0};
    config_init(&config);
    ck_assert_msg(config_parse(&config,
                               "# a comment\n"
                               "; another\n"
                               "\n"
                               "[foldd]\n"
                               "database = service=foldd\n"
                               "workers=8\n"
                               "max_line = 2 MiB\r\n"
                               "db_timeout: 5s\n"
                               "socket_mode = 0600",
                               &err),
                  "%s", err.message);
    ck_assert_str_eq(config.database, "service=foldd");
    ck_assert_int_eq(config.workers, 8);
    ck_assert_int_eq(config.max_line_bytes, 2 * 1024 * 1024);
    ck_assert_int_eq(config.db_timeout_ms, 5000);
    ck_assert_int_eq(config.socket_mode, 0600);
    ck_assert(config_parse(&config, "", &err));
    ck_assert(config_parse(&config, "[only a section]\n", &err));
    ck_assert_int_eq(config.workers, 8);
    config_fini(&config);
}
END_TEST

START_TEST(errors_name_the_line)
{
    refuse_text("nope = 1\n", "line 1: unknown option \"nope\"");
    refuse_text("# c\n\n[s]\nworkers = 0\n",
                "line 4: workers: \"0\" is not a number from 1 to 256");
    refuse_text("workers = 4\nworkers\n", "line 2: not KEY = VALUE");
    refuse_text("[section\n", "line 1: not KEY = VALUE");
    refuse_text("workers =\n", "line 1: workers: \"\" is not a number from 1 to 256");
    /* The first one, whatever kinds follow. */
    refuse_text("workers = 4\nnope = 1\nworkers = 0\n", "line 2: unknown option \"nope\"");
    refuse_text("workers = 0\nrubbish\n", "line 1: workers: \"0\" is not a number from 1 to 256");
}
END_TEST

START_TEST(an_error_behind_rubbish_does_not_take_its_line)
{
    refuse_text("rubbish\nnope = 1\n", "line 1: not KEY = VALUE");
}
END_TEST

START_TEST(a_line_has_at_most_198_bytes)
{
    struct buf text = {0};
    struct err err = {0};
    struct config config;
    config_init(&config);
    buf_add_str(&text, "database = ");
    while (text.len < 198)
        buf_add_char(&text, 'x');
    ck_assert_msg(config_parse(&config, buf_cstr(&text), &err), "%s", err.message);
    ck_assert_uint_eq(strlen(config.database), 198 - strlen("database = "));
    buf_add_char(&text, 'x');
    refuse_text(buf_cstr(&text), "line 1: longer than 198 bytes");
    buf_fini(&text);
    config_fini(&config);
}
END_TEST

START_TEST(an_indented_line_does_not_replace_the_one_above)
{
    struct config config;
    struct err err = {0};
    config_init(&config);
    bool ok = config_parse(&config, "database = service=foldd\n  workers = 8\n", &err);
    ck_assert_msg(!ok || strcmp(config.database, "service=foldd") == 0, "%s", config.database);
    config_fini(&config);
}
END_TEST

START_TEST(refused_text_leaves_the_rest_as_it_was)
{
    struct config config;
    struct err err = {0};
    config_init(&config);
    ck_assert(!config_parse(&config, "workers = 1000\n", &err));
    ck_assert_int_eq(config.workers, 4);
    /* Nobody has to want the words. */
    ck_assert(!config_set(&config, "nope", "1", NULL));
    ck_assert(!config_set_pair(&config, "workers=x", NULL));
    ck_assert_int_eq(config.workers, 4);
    config_fini(&config);
}
END_TEST

/* Given: the sample configuration. */
static char *sample_text(void)
{
    struct buf text = {0};
    char block[4096];
    FILE *file = fopen("config/foldd.conf", "re");
    ck_assert_msg(file != NULL, "config/foldd.conf cannot be read");
    for (size_t got; (got = fread(block, 1, sizeof(block), file)) > 0;)
        buf_add(&text, block, got);
    fclose(file);
    buf_cstr(&text);
    return buf_take(&text);
}

/* Whether the line is the option's, commented out with its default. */
static bool is_sample_of(const char *line, const struct config_option *option)
{
    char *expected = mem_printf("; %s = %s", option->key, option->standard);
    bool same = strcmp(line, expected) == 0;
    free(expected);
    return same;
}

START_TEST(sample_has_every_option_and_nothing_else)
{
    char *text = sample_text();
    char *rest = text;
    const struct config_option *option = config_options;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        if (*line == '\0' || *line == '#')
            continue;
        ck_assert_msg(option->key != NULL, "one too many: %s", line);
        ck_assert_msg(is_sample_of(line, option), "%s in the place of %s = %s", line, option->key,
                      option->standard);
        option++;
    }
    ck_assert_msg(option->key == NULL, "%s is missing", option->key);
    free(text);
}
END_TEST

/* Above the explanation, so that one sees what SIGHUP changes. */
START_TEST(sample_marks_what_can_be_reloaded)
{
    char *text = sample_text();
    for (const struct config_option *option = config_options; option->key != NULL; option++) {
        char *marked = mem_printf("\n# [SIGHUP]\n# %s\n; %s = ", option->text, option->key);
        bool is_marked = strstr(text, marked) != NULL;
        ck_assert_msg(is_marked == (option->change == CONFIG_RELOAD), "%s", option->key);
        free(marked);
    }
    free(text);
}
END_TEST

START_TEST(options_are_compared_and_exchanged)
{
    struct config a;
    struct config b;
    struct err err = {0};
    config_init(&a);
    config_init(&b);
    for (const struct config_option *option = config_options; option->key != NULL; option++) {
        const char *other = option->type == CONFIG_TEXT   ? "other"
                            : option->type == CONFIG_TIME ? "123456ms"
                            : option->type == CONFIG_SIZE ? "1234567"
                            : option->type == CONFIG_MODE ? "0601"
                                                          : "250";
        if (option->type == CONFIG_COUNT && option->min > 250)
            other = "1001";
        ck_assert_msg(config_same(&a, &b, option), "%s", option->key);
        ck_assert_msg(config_set(&b, option->key, other, &err), "%s", err.message);
        ck_assert_msg(!config_same(&a, &b, option), "%s", option->key);
        config_swap(&a, &b, option);
        ck_assert_msg(!config_same(&a, &b, option), "%s", option->key);
        ck_assert_msg(config_set(&b, option->key, other, &err), "%s", err.message);
        ck_assert_msg(config_same(&a, &b, option), "%s", option->key);
    }
    config_fini(&a);
    config_fini(&b);
}
END_TEST

START_TEST(sample_explains_each_option_in_the_words_of_help)
{
    char *text = sample_text();
    for (const struct config_option *option = config_options; option->key != NULL; option++) {
        char *entry =
            mem_printf("\n# %s\n; %s = %s\n", option->text, option->key, option->standard);
        ck_assert_msg(strstr(text, entry) != NULL, "no %s", entry);
        free(entry);
    }
    free(text);
}
END_TEST

START_TEST(sample_changes_nothing)
{
    char *text = sample_text();
    struct config config;
    struct err err = {0};
    config_init(&config);
    ck_assert_msg(config_parse(&config, text, &err), "%s", err.message);
    ck_assert_str_eq(config.socket, "/run/foldd/foldd.sock");
    config_fini(&config);
    free(text);
}
END_TEST

Suite *config_suite(void)
{
    Suite *suite = suite_create("config");
    TCase *tcase = tcase_create("config");
    tcase_add_test(tcase, defaults_are_those_of_the_contract);
    tcase_add_test(tcase, every_option_is_a_whole_row);
    tcase_add_test(tcase, sizes_take_units);
    tcase_add_test(tcase, times_take_units);
    tcase_add_test(tcase, modes_are_octal);
    tcase_add_test(tcase, ranges_are_inclusive);
    tcase_add_test(tcase, what_is_no_number_is_refused_by_name);
    tcase_add_test(tcase, text_is_taken_as_it_is);
    tcase_add_test(tcase, an_unknown_key_is_named);
    tcase_add_test(tcase, pairs_split_at_the_first_equals_sign);
    tcase_add_test(tcase, a_file_is_read);
    tcase_add_test(tcase, errors_name_the_line);
    tcase_add_test(tcase, an_error_behind_rubbish_does_not_take_its_line);
    tcase_add_test(tcase, a_line_has_at_most_198_bytes);
    tcase_add_test(tcase, an_indented_line_does_not_replace_the_one_above);
    tcase_add_test(tcase, refused_text_leaves_the_rest_as_it_was);
    tcase_add_test(tcase, sample_has_every_option_and_nothing_else);
    tcase_add_test(tcase, sample_marks_what_can_be_reloaded);
    tcase_add_test(tcase, options_are_compared_and_exchanged);
    tcase_add_test(tcase, sample_explains_each_option_in_the_words_of_help);
    tcase_add_test(tcase, sample_changes_nothing);
    suite_add_tcase(suite, tcase);
    return suite;
}
