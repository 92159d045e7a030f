/* SPDX-License-Identifier: MIT */
/* Starting: refusals that say why, sockets, and more than one daemon (design.md 4, 10; E10, E11,
 * F21). */
#include "suites.h"

#include "load.h"
#include "model.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* foldd with a database and a socket of its own, and up to two more settings (NULL: none). */
static struct daemon *spawn(struct env *env, const char *conninfo, const char *socket,
                            const char *setting)
{
    const char *args[] = {"--set",
                          env_printf(env, "database=%s", conninfo),
                          "--set",
                          env_printf(env, "socket=%s", socket),
                          setting == NULL ? NULL : "--set",
                          setting,
                          NULL};
    return daemon_spawn(env, socket, args);
}

static bool exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

/* E11, scenario 57: the first one keeps its socket and its clients */
START_TEST(second_on_the_same_socket_refuses)
{
    struct env *env = ENV();
    struct daemon *first = daemon_start(env, NULL);
    struct conn *conn = conn_open(first);
    for (int stopped = 0; stopped < 2; stopped++) {
        if (stopped == 1)
            daemon_signal(first, SIGSTOP);
        daemon_expect_refusal(spawn(env, env->conninfo, first->socket, NULL), first->socket);
        if (stopped == 1)
            daemon_signal(first, SIGCONT);
        expect(ask(conn, "{'document':'d','action':'update','fields':{},'ack':'folded'}"),
               "{'outcome':'folded'}");
        expect(ask(conn_open(first), "{'request':'ping'}"), "{'ok':true}");
    }
    env_free(env);
}
END_TEST

/* E11: of many that start at once on one socket, one runs */
START_TEST(many_start_on_one_socket)
{
    enum { DAEMONS = 6 };
    struct env *env = ENV();
    daemon_stop(daemon_start(env, NULL));
    const char *socket = env_path(env, "foldd.sock");
    struct daemon *daemons[DAEMONS];
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < DAEMONS; i++)
            daemons[i] = spawn(env, env->conninfo, socket, NULL);
        int running = DAEMONS;
        for (int64_t end = now_ms() + TEST_WAIT_MS; running > 1 && now_ms() < end; pause_ms(5)) {
            running = 0;
            for (int i = 0; i < DAEMONS; i++)
                running += daemon_runs(daemons[i]);
        }
        ck_assert_int_eq(running, 1);
        for (int i = 0; i < DAEMONS; i++) {
            if (!daemon_runs(daemons[i]))
                continue;
            daemon_wait_ready(daemons[i]);
            expect(ask(conn_open(daemons[i]),
                       "{'document':'d','action':'update','fields':{},'ack':'folded'}"),
                   "{'outcome':'folded'}");
            daemon_stop(daemons[i]);
        }
    }
    env_free(env);
}
END_TEST

/* F8: another socket, the same database: it refuses or stands by, and the first goes on unharmed */
START_TEST(second_on_the_same_database_does_no_harm)
{
    struct env *env = ENV();
    struct daemon *first = daemon_start(env, NULL);
    struct conn *conn = conn_open(first);
    struct load *load = load_new(env, "s", 50, 6000);
    load_send(load, conn, 0, 1000);
    struct daemon *second = spawn(env, env->conninfo, env_path(env, "second.sock"), NULL);
    for (int at = 1000; at < 6000; at += 100) {
        load_send(load, conn, at, 100);
        expect(ask(conn, "{'request':'status'}"), "{'role':'leader'}");
        pause_ms(20);
    }
    barrier(conn);
    if (daemon_runs(second)) {
        struct conn *other = conn_open(second);
        expect(ask(other, "{'request':'ping'}"), "{'ok':true}");
        expect(ask(other, "{'document':'d','action':'update','fields':{}}"),
               "{'ok':false,'error':'standby'}");
    } else {
        char *log = file_read(second->log);
        ck_assert_msg(strstr(log, "lead") != NULL, "the refusal does not say who leads: %s", log);
        free(log);
    }
    expect_load(load, 0);
    expect_model(env);
    expect_sql(env, "1", "select epoch from foldd.leader");
    load_free(load);
    env_free(env);
}
END_TEST

/* D4; _i chooses the encoding */
START_TEST(other_encodings_are_refused)
{
    static const char *const encodings[] = {"LATIN1", "SQL_ASCII"};
    struct env *env = ENV();
    const char *name = env_printf(env, "%s_other", env->database);
    sql(env, "create database \"%s\" template template0 encoding '%s' lc_collate 'C' lc_ctype 'C'",
        name, encodings[_i]);
    char *conninfo = cluster_conninfo(name);
    struct daemon *daemon = spawn(env, conninfo, env_path(env, "foldd.sock"), NULL);
    daemon_expect_refusal(daemon, "UTF8");
    daemon_expect_log(daemon, encodings[_i]);
    ck_assert(!exists(env_path(env, "foldd.sock")));
    free(conninfo);
    sql(env, "drop database \"%s\"", name);
    env_free(env);
}
END_TEST

/* F21 */
START_TEST(missing_rights_are_named)
{
    struct env *env = ENV();
    const char *role = env_printf(env, "r_%s", env->name);
    sql(env, "create role %s login", role);
    struct daemon *daemon = spawn(
        env, env_printf(env, "host=%s user=%s dbname=%s", PQhost(env->db), role, env->database),
        env_path(env, "foldd.sock"), NULL);
    daemon_expect_refusal(daemon, "GRANT CREATE ON DATABASE");
    expect_sql(env, "0", "select count(*) from pg_namespace where nspname = 'foldd'");
    sql(env, "drop role %s", role);
    env_free(env);
}
END_TEST

/* F21: an empty database and many daemons at once */
START_TEST(many_migrate_at_once)
{
    enum { DAEMONS = 5 };
    struct env *env = ENV();
    struct daemon *daemons[DAEMONS];
    for (int round = 0; round < 10; round++) {
        sql(env, "drop schema if exists foldd cascade");
        for (int i = 0; i < DAEMONS; i++)
            daemons[i] =
                spawn(env, env->conninfo, env_path(env, env_printf(env, "foldd-%d.sock", i)), NULL);
        struct daemon *leader = NULL;
        for (int64_t end = now_ms() + TEST_WAIT_MS; leader == NULL; pause_ms(10)) {
            ck_assert_msg(now_ms() < end, "nobody leads");
            for (int i = 0; i < DAEMONS && leader == NULL; i++) {
                if (!daemon_runs(daemons[i]) || !exists(daemons[i]->socket))
                    continue;
                daemon_wait_ready(daemons[i]);
                struct conn *conn = conn_open(daemons[i]);
                const char *role =
                    json_string_value(json_object_get(ask(conn, "{'request':'status'}"), "role"));
                leader = strcmp(role, "leader") == 0 ? daemons[i] : NULL;
                conn_close(conn);
            }
        }
        expect(
            ask(conn_open(leader), "{'document':'d','action':'update','fields':{},'ack':'folded'}"),
            "{'outcome':'folded'}");
        for (int i = 0; i < DAEMONS; i++) {
            if (daemon_runs(daemons[i]) && daemons[i] != leader)
                daemon_kill(daemons[i]);
        }
        daemon_stop(leader);
        expect_sql(env, "1", "select count(*) from foldd.documents");
    }
    env_free(env);
}
END_TEST

/* foldd --migrate by itself, several at once, and again: exit code 0 each time */
START_TEST(migrate_alone)
{
    enum { DAEMONS = 5 };
    struct env *env = ENV();
    const char *args[] = {"--migrate", "--set", env_printf(env, "database=%s", env->conninfo),
                          NULL};
    for (int round = 0; round < 4; round++) {
        struct daemon *daemons[DAEMONS];
        for (int i = 0; i < DAEMONS; i++)
            daemons[i] = daemon_spawn(env, NULL, args);
        for (int i = 0; i < DAEMONS; i++)
            ck_assert_int_eq(daemon_wait_exit(daemons[i], TEST_WAIT_MS), 0);
        expect_sql(env, "0", "select count(*) from foldd.operations");
        if (round == 1)
            sql(env, "drop schema foldd cascade");
    }
    struct conn *conn = conn_open(daemon_start(env, NULL));
    expect(ask(conn, "{'document':'d','action':'update','fields':{},'ack':'folded'}"),
           "{'outcome':'folded'}");
    env_free(env);
}
END_TEST

/* F22: the table of applied migrations says more than this program knows */
START_TEST(newer_schema_is_refused)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    daemon_stop(daemon);
    sql(env, "insert into foldd.migrations select (jsonb_populate_record(m, jsonb_build_object("
             "'version', version + 1000))).* from foldd.migrations m"
             " order by version desc limit 1");
    daemon = spawn(env, env->conninfo, env_path(env, "foldd.sock"), NULL);
    daemon_expect_refusal(daemon, "newer");
    env_free(env);
}
END_TEST

/* Every object has a comment, every key is COLLATE "C", as design.md 4 and 10 want it */
START_TEST(schema_explains_itself)
{
    struct env *env = ENV();
    daemon_start(env, NULL);
    expect_sql(env, "",
               "select string_agg(c.relname, ' ') from pg_class c where c.relnamespace ="
               " 'foldd'::regnamespace and c.relkind in ('r', 'v', 'S') and"
               " obj_description(c.oid, 'pg_class') is null");
    expect_sql(env, "",
               "select string_agg(p.proname, ' ') from pg_proc p where p.pronamespace ="
               " 'foldd'::regnamespace and obj_description(p.oid, 'pg_proc') is null");
    expect_sql(
        env, "",
        "select string_agg(a.attrelid::regclass || '.' || a.attname, ' ') from pg_attribute a"
        " join pg_class c on c.oid = a.attrelid and c.relkind = 'r' and c.relnamespace ="
        " 'foldd'::regnamespace where a.atttypid = 'text'::regtype and a.attname in"
        " ('collection', 'document', 'id') and a.attcollation <>"
        " (select oid from pg_collation where collname = 'C')");
    expect_sql(env, "0",
               "select count(*) from pg_attrdef d join pg_attribute a on a.attrelid = d.adrelid and"
               " a.attnum = d.adnum where d.adrelid in ('foldd.operations'::regclass,"
               " 'foldd.documents'::regclass, 'foldd.outcomes'::regclass) and a.attname = 'seq'");
    env_free(env);
}
END_TEST

enum thing { THING_FILE, THING_FOLDER, THING_LINK, THING_DANGLING, THING_FIFO, THINGS };

static void make_thing(struct env *env, enum thing thing, const char *path)
{
    const char *target = env_path(env, "target");
    switch (thing) {
    case THING_FILE:
        file_write(path, "precious");
        break;
    case THING_FOLDER:
        ck_assert(mkdir(path, 0755) == 0);
        break;
    case THING_LINK:
        file_write(target, "precious");
        ck_assert(symlink(target, path) == 0);
        break;
    case THING_DANGLING:
        ck_assert(symlink("/nonexistent/target", path) == 0);
        break;
    default:
        ck_assert(mkfifo(path, 0644) == 0);
    }
}

/* E10: what is no socket is left alone */
START_TEST(something_else_at_the_socket_path)
{
    struct env *env = ENV();
    const char *path = env_path(env, "foldd.sock");
    make_thing(env, (enum thing)_i, path);
    struct stat before;
    struct stat after;
    ck_assert(lstat(path, &before) == 0);
    daemon_expect_refusal(spawn(env, env->conninfo, path, NULL), path);
    ck_assert(lstat(path, &after) == 0);
    ck_assert(before.st_ino == after.st_ino && before.st_mode == after.st_mode &&
              before.st_mtime == after.st_mtime);
    if (_i == THING_LINK)
        ck_assert(exists(env_path(env, "target")));
    env_free(env);
}
END_TEST

/* E10: a socket that nobody listens on is replaced */
START_TEST(stale_socket_is_replaced)
{
    struct env *env = ENV();
    const char *path = env_path(env, "foldd.sock");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    ck_assert(bind(fd, (struct sockaddr *)&address, sizeof address) == 0);
    close(fd);
    struct daemon *daemon = daemon_start(env, NULL);
    for (int i = 0; i < 3; i++) {
        daemon_kill(daemon);
        ck_assert(exists(path));
        daemon_again(daemon);
    }
    daemon_stop(daemon);
    ck_assert_msg(!exists(path), "the socket stays after a clean stop");
    env_free(env);
}
END_TEST

/* E10 */
START_TEST(impossible_socket_paths)
{
    struct env *env = ENV();
    const char *missing = env_path(env, "missing/foldd.sock");
    daemon_expect_refusal(spawn(env, env->conninfo, missing, NULL), missing);
    char name[200];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    const char *too_long = env_path(env, name);
    daemon_expect_refusal(spawn(env, env->conninfo, too_long, NULL), "long");
    env_free(env);
}
END_TEST

static int socket_mode(const char *path)
{
    struct stat st;
    ck_assert(lstat(path, &st) == 0 && S_ISSOCK(st.st_mode));
    return (int)(st.st_mode & 07777);
}

/* E13: the mode is the configured one, whatever the umask */
START_TEST(socket_mode_is_as_configured)
{
    struct env *env = ENV();
    mode_t before = umask(0);
    struct daemon *daemon = daemon_start(env, NULL);
    ck_assert_int_eq(socket_mode(daemon->socket), 0660);
    daemon_stop(daemon);
    daemon = daemon_start(env, "socket_mode=0600", NULL);
    ck_assert_int_eq(socket_mode(daemon->socket), 0600);
    daemon_stop(daemon);
    umask(0777);
    daemon = daemon_start(env, "socket_mode=0666", NULL);
    ck_assert_int_eq(socket_mode(daemon->socket), 0666);
    umask(before);
    env_free(env);
}
END_TEST

/* Scenario 58: a setting that cannot be is refused by name */
START_TEST(wrong_settings_are_named)
{
    static const char *const settings[][2] = {
        {"colour=blue", "colour"},        {"workers=0", "workers"},
        {"workers=-1", "workers"},        {"workers=many", "workers"},
        {"workers=", "workers"},          {"workers=1e3", "workers"},
        {"workers=100000", "workers"},    {"max_line=0", "max_line"},
        {"max_line=5x", "max_line"},      {"lock_timeout=5", "lock_timeout"},
        {"db_timeout=-5s", "db_timeout"}, {"socket_mode=999", "socket_mode"},
        {"nonsense", "nonsense"},
    };
    struct env *env = ENV();
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        mark_point();
        daemon_expect_refusal(
            spawn(env, env->conninfo, env_path(env, "foldd.sock"), settings[i][0]), settings[i][1]);
    }
    ck_assert(!exists(env_path(env, "foldd.sock")));
    env_free(env);
}
END_TEST

/* --config reads the same settings; --set wins over the file */
START_TEST(configuration_file)
{
    struct env *env = ENV();
    const char *path = env_path(env, "foldd.conf");
    const char *socket = env_path(env, "from-file.sock");
    file_write(path, env_printf(env,
                                "# comment\n\ndatabase = %s\nsocket = %s\nworkers = 2\n"
                                "max_line = 64KiB\nlock_timeout = 500 ms\n",
                                env->conninfo, socket));
    const char *args[] = {"--config", path, "--set", "workers=3", NULL};
    struct daemon *daemon = daemon_spawn(env, socket, args);
    daemon_wait_ready(daemon);
    status_wait(conn_open(daemon), "workers", 3);
    daemon_stop(daemon);
    file_write(path, env_printf(env, "database = %s\nsocket = %s\ncolour = blue\n", env->conninfo,
                                socket));
    daemon_expect_refusal(daemon_spawn(env, socket, args), "colour");
    const char *nowhere[] = {"--config", env_path(env, "nowhere.conf"), NULL};
    daemon_expect_refusal(daemon_spawn(env, socket, nowhere), "nowhere.conf");
    env_free(env);
}
END_TEST

Suite *start_suite(void)
{
    Suite *suite = suite_create("start");
    TCase *sockets = tcase_create("sockets");
    tcase_set_timeout(sockets, 120);
    tcase_add_test(sockets, second_on_the_same_socket_refuses);
    tcase_add_test(sockets, many_start_on_one_socket);
    tcase_add_loop_test(sockets, something_else_at_the_socket_path, 0, THINGS);
    tcase_add_test(sockets, stale_socket_is_replaced);
    tcase_add_test(sockets, impossible_socket_paths);
    tcase_add_test(sockets, socket_mode_is_as_configured);
    suite_add_tcase(suite, sockets);
    TCase *schema = tcase_create("schema");
    tcase_set_timeout(schema, 120);
    tcase_add_test(schema, second_on_the_same_database_does_no_harm);
    tcase_add_loop_test(schema, other_encodings_are_refused, 0, 2);
    tcase_add_test(schema, missing_rights_are_named);
    tcase_add_test(schema, many_migrate_at_once);
    tcase_add_test(schema, migrate_alone);
    tcase_add_test(schema, newer_schema_is_refused);
    tcase_add_test(schema, schema_explains_itself);
    suite_add_tcase(suite, schema);
    TCase *settings = tcase_create("settings");
    tcase_set_timeout(settings, 120);
    tcase_add_test(settings, wrong_settings_are_named);
    tcase_add_test(settings, configuration_file);
    suite_add_tcase(suite, settings);
    return suite;
}
