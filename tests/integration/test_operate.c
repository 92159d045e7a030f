/* SPDX-License-Identifier: MIT */
/* What operators ask for: parked, retry, skip, pause, resume, drain; and foldctl's commands for it
 * (design.md 7, 9; R12, R19). */
#include "suites.h"

#include "model.h"

#include <grp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NOBODY = 65534 };

/* Folds fail as long as the fields have "bad". poison_heal drops the trigger. */
static void refuse_bad(struct env *env)
{
    sql(env, "create function public.poison() returns trigger language plpgsql as"
             " $$ begin raise exception 'bad fields'; end $$;"
             "create trigger poison before insert or update on foldd.documents for each row"
             " when (new.fields ? 'bad') execute function public.poison()");
}

/* Five operations o1 to o5 of a document, the third of them bad; returns the seq of the first. */
static int64_t write_five(struct conn *conn, const char *document)
{
    int64_t first = 0;
    for (int i = 1; i <= 5; i++)
        conn_line(conn, "{'document':'%s','id':'o%d','action':'update','fields':{'n':%d%s}}",
                  document, i, i, i == 3 ? ",'bad':1" : "");
    conn_flush(conn);
    for (int i = 1; i <= 5; i++) {
        const json_t *reply = conn_read(conn);
        expect(reply, "{'ok':true}");
        first = i == 1 ? reply_int(reply, "seq") : first;
    }
    return first;
}

/* The document is parked at its third operation, with the first two folded. */
static void expect_parked_at_third(struct env *env, struct conn *conn, const char *document,
                                   int64_t first)
{
    sql_wait(env, env_printf(env, "%lld", (long long)first + 2),
             "select seq from foldd.parked where document = '%s'", document);
    status_wait(conn, "lag", 0);
    expect(ask(conn, "{'request':'get','document':'%s'}", document),
           "{'ok':true,'version':%lld,'revision':2,'fields':{'n':2}}", (long long)first + 1);
}

static void expect_outcome(struct conn *conn, const char *document, int number, const char *outcome)
{
    expect(ask(conn, "{'request':'await','document':'%s','id':'o%d'}", document, number),
           "{'ok':true,'outcome':'%s'}", outcome);
    expect(ask(conn, "{'request':'operation','document':'%s','id':'o%d'}", document, number),
           "{'ok':true,'state':'settled','outcome':'%s'}", outcome);
}

/* All but the third are folded, which was skipped. */
static void expect_skipped(struct env *env, struct conn *conn, int64_t first)
{
    sql_wait(env, "0", "select count(*) from foldd.parked");
    for (int i = 1; i <= 5; i++)
        expect_outcome(conn, "d", i, i == 3 ? "skipped" : "folded");
    expect(ask(conn, "{'request':'get','document':'d'}"),
           "{'version':%lld,'revision':4,'deleted':false,'fields':{'n':5}}", (long long)first + 4);
    expect_sql(env,
               env_printf(env, "%lld|default|d|it is bad|uid:%u|t", (long long)first + 2,
                          (unsigned)getuid()),
               "select concat_ws('|', seq, collection, document, reason, actor,"
               " skipped_at between now() - interval '5 min' and now()) from foldd.skipped");
    expect_sql(env, "skipped", "select outcome from foldd.outcomes where seq = %lld",
               (long long)first + 2);
}

static json_t *skip_third(struct conn *conn, int64_t first)
{
    return ask(conn, "{'request':'skip','document':'d','seq':%lld,'reason':'it is bad'}",
               (long long)first + 2);
}

START_TEST(parked_document_is_listed)
{
    struct env *env = ENV();
    struct conn *conn = conn_open(daemon_start(env, NULL));
    expect(ask(conn, "{'request':'parked'}"), "{'ok':true,'parked':[],'next':null}");
    refuse_bad(env);
    int64_t first = write_five(conn, "d");
    expect_parked_at_third(env, conn, "d", first);
    const json_t *list = json_object_get(ask(conn, "{'request':'parked'}"), "parked");
    ck_assert_uint_eq(json_array_size(list), 1);
    const json_t *entry = json_array_get(list, 0);
    expect(entry, "{'collection':'default','document':'d','seq':%lld,'sqlstate':'P0001'}",
           (long long)first + 2);
    ck_assert_ptr_nonnull(strstr(json_string_value(json_object_get(entry, "message")), "bad"));
    ck_assert_int_ge(reply_int(entry, "attempts"), 1);
    ck_assert_uint_eq(strlen(json_string_value(json_object_get(entry, "parked_at"))), 27);
    ck_assert_uint_eq(strlen(json_string_value(json_object_get(entry, "next_try"))), 27);
    expect(conn->json, "{'ok':true,'next':null}");
    env_free(env);
}
END_TEST

/* _i: by name, or all */
START_TEST(retry_does_not_wait_for_the_next_try)
{
    struct env *env = ENV();
    struct conn *conn = conn_open(daemon_start(env, NULL));
    refuse_bad(env);
    int64_t first = write_five(conn, "d");
    expect_parked_at_third(env, conn, "d", first);
    expect_error(ask(conn, "{'request':'retry','document':'e'}"), "not_found", "not parked");
    expect_error(ask(conn, "{'request':'retry','collection':'c','document':'d'}"), "not_found", "");
    sql_wait(env, "t", "select attempts >= 4 from foldd.parked");
    expect_sql(env, "t", "select next_try - clock_timestamp() > interval '3 s' from foldd.parked");
    int64_t start = now_ms();
    poison_heal(env);
    expect(ask(conn, "{'request':'retry'%s}", _i == 0 ? ",'document':'d'" : ""),
           "{'ok':true,'retried':1}");
    sql_wait(env, "0", "select count(*) from foldd.parked");
    ck_assert_int_lt(now_ms() - start, 3000);
    for (int i = 1; i <= 5; i++)
        expect_outcome(conn, "d", i, "folded");
    expect(ask(conn, "{'request':'retry'}"), "{'ok':true,'retried':0}");
    barrier(conn);
    expect_model(env);
    env_free(env);
}
END_TEST

/* A retry that fails again counts, and the document stays parked */
START_TEST(retry_of_what_is_still_bad)
{
    struct env *env = ENV();
    struct conn *conn = conn_open(daemon_start(env, NULL));
    refuse_bad(env);
    int64_t first = write_five(conn, "d");
    expect_parked_at_third(env, conn, "d", first);
    for (int i = 0; i < 5; i++) {
        int64_t before = sql_int(env, "select attempts from foldd.parked");
        expect(ask(conn, "{'request':'retry'}"), "{'ok':true,'retried':1}");
        sql_wait(env, "t", "select attempts > %lld from foldd.parked", (long long)before);
    }
    expect_parked_at_third(env, conn, "d", first);
    env_free(env);
}
END_TEST

START_TEST(skip_lets_the_rest_fold)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    refuse_bad(env);
    int64_t first = write_five(conn, "d");
    expect_parked_at_third(env, conn, "d", first);
    expect(skip_third(conn, first), "{'ok':true,'seq':%lld}", (long long)first + 2);
    expect_skipped(env, conn, first);
    /* A repeat, whose first answer may have been lost, is no error. */
    expect(skip_third(conn, first), "{'ok':true}");
    expect(ask(conn, "{'document':'d','action':'update','fields':{'m':1},'ack':'folded'}"),
           "{'outcome':'folded'}");
    daemon_stop(daemon);
    daemon_again(daemon);
    conn = conn_open(daemon);
    expect_outcome(conn, "d", 3, "skipped");
    env_free(env);
}
END_TEST

/* Nothing but skipped operations make no document */
START_TEST(skip_of_the_only_operation)
{
    struct env *env = ENV();
    struct conn *conn = conn_open(daemon_start(env, NULL));
    refuse_bad(env);
    long long seq = reply_int(
        ask(conn, "{'document':'d','id':'o1','action':'create','fields':{'bad':1}}"), "seq");
    expect_outcome(conn, "d", 1, "parked");
    expect(ask(conn, "{'request':'skip','document':'d','seq':%lld,'reason':'r'}", seq),
           "{'ok':true,'seq':%lld}", seq);
    sql_wait(env, "0", "select count(*) from foldd.parked");
    expect_outcome(conn, "d", 1, "skipped");
    expect_error(ask(conn, "{'request':'get','document':'d'}"), "not_found", "");
    expect(ask(conn, "{'document':'d','action':'update','fields':{'a':1},'ack':'folded'}"),
           "{'outcome':'folded'}");
    expect(ask(conn, "{'request':'get','document':'d'}"), "{'revision':1,'fields':{'a':1}}");
    env_free(env);
}
END_TEST

START_TEST(skip_refuses_what_is_not_held_up)
{
    struct env *env = ENV();
    struct conn *conn = conn_open(daemon_start(env, NULL));
    refuse_bad(env);
    int64_t first = write_five(conn, "d");
    expect_parked_at_third(env, conn, "d", first);
    long long other = reply_int(
        ask(conn, "{'document':'e','action':'create','fields':{},'ack':'folded'}"), "seq");
    const struct {
        const char *document;
        long long seq;
        const char *code;
        const char *text;
    } rows[] = {
        {"d", first, "conflict", "folded already"},
        {"d", first + 1, "conflict", "folded already"},
        {"d", first + 1000, "not_found", "no such operation"},
        {"d", other, "not_found", "no such operation"},
        {"nope", first, "not_found", "no such operation"},
        {"e", other, "conflict", "not parked"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        expect_error(ask(conn, "{'request':'skip','document':'%s','seq':%lld,'reason':'r'}",
                         rows[i].document, rows[i].seq),
                     rows[i].code, rows[i].text);
    expect_error(ask(conn, "{'request':'skip','document':'d','seq':%lld}", (long long)first + 2),
                 "invalid", "reason");
    expect_sql(env, "0", "select count(*) from foldd.skipped");
    expect_parked_at_third(env, conn, "d", first);
    env_free(env);
}
END_TEST

/* Answered is durable, and every fold honours it; _i: killed before the fold, or around it */
START_TEST(skip_survives_kill)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    refuse_bad(env);
    int64_t first = write_five(conn, "d");
    expect_parked_at_third(env, conn, "d", first);
    if (_i == 0)
        expect(ask(conn, "{'request':'pause','what':'folding'}"), "{'ok':true}");
    expect(skip_third(conn, first), "{'ok':true}");
    daemon_kill(daemon);
    daemon_again(daemon);
    conn = conn_open(daemon);
    if (_i == 0) {
        expect_parked_at_third(env, conn, "d", first);
        expect(ask(conn, "{'request':'resume','what':'folding'}"), "{'ok':true}");
    }
    expect_skipped(env, conn, first);
    env_free(env);
}
END_TEST

/* One bad operation in each document, of the collections a and b. */
static void park_three(struct env *env, struct conn *conn)
{
    refuse_bad(env);
    static const char *const names[][2] = {{"b", "x"}, {"a", "y:1"}, {"a", "x"}};
    for (int i = 0; i < 3; i++)
        expect(ask(conn,
                   "{'collection':'%s','document':'%s','action':'create',"
                   "'fields':{'bad':1},'ack':'folded'}",
                   names[i][0], names[i][1]),
               "{'outcome':'parked'}");
    sql_wait(env, "3", "select count(*) from foldd.parked");
}

START_TEST(parked_list_goes_page_by_page)
{
    static const char *const pages[][2] = {{"a", "x"}, {"b", "x"}, {"a", "y:1"}};
    struct env *env = ENV();
    struct conn *conn = conn_open(daemon_start(env, NULL));
    park_three(env, conn);
    const char *after = "null";
    for (int i = 0; i < 3; i++) {
        const json_t *reply = ask(conn, "{'request':'parked','limit':1,'after':%s}", after);
        ck_assert_uint_eq(json_array_size(json_object_get(reply, "parked")), 1);
        expect(json_array_get(json_object_get(reply, "parked"), 0),
               "{'collection':'%s','document':'%s'}", pages[i][0], pages[i][1]);
        after = env_printf(env, "\"%s\"", json_string_value(json_object_get(reply, "next")));
    }
    expect(ask(conn, "{'request':'parked','limit':1,'after':%s}", after),
           "{'ok':true,'parked':[],'next':null}");
    const json_t *reply = ask(conn, "{'request':'parked','limit':3}");
    ck_assert_uint_eq(json_array_size(json_object_get(reply, "parked")), 3);
    expect(ask(conn, "{'request':'parked'}"), "{'next':null}");
    expect_error(ask(conn, "{'request':'parked','after':'x'}"), "invalid", "after");
    expect_error(ask(conn, "{'request':'parked','limit':0}"), "invalid", "limit");
    expect_error(ask(conn, "{'request':'parked','limit':1001}"), "invalid", "limit");
    expect(ask(conn, "{'request':'retry'}"), "{'retried':3}");
    env_free(env);
}
END_TEST

/* _i: the daemon is stopped or killed */
START_TEST(pause_of_folding_lasts)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    expect(ask(conn, "{'request':'pause','what':'folding','reason':'an upgrade'}"), "{'ok':true}");
    expect(ask(conn, "{'request':'pause','what':'folding','reason':'another'}"), "{'ok':true}");
    expect(ask(conn, "{'document':'d','id':'o1','action':'create','fields':{}}"), "{'ok':true}");
    for (int round = 0; round < 2; round++) {
        expect(ask(conn, "{'request':'await','document':'d','id':'o1','timeout_ms':500}"),
               "{'ok':true,'outcome':'timeout','state':'queued'}");
        expect(ask(conn, "{'request':'status'}"), "{'folding':'paused','ingest':'live'}");
        expect_sql(env, env_printf(env, "folding|an upgrade|uid:%u|t", (unsigned)getuid()),
                   "select concat_ws('|', what, reason, actor, since <= now()) from foldd.pauses");
        if (round == 1)
            break;
        if (_i == 0)
            daemon_stop(daemon);
        else
            daemon_kill(daemon);
        daemon_again(daemon);
        conn = conn_open(daemon);
    }
    expect_sql(env, "0", "select count(*) from foldd.documents");
    expect(ask(conn, "{'request':'resume','what':'folding'}"), "{'ok':true}");
    expect_outcome(conn, "d", 1, "folded");
    expect(ask(conn, "{'request':'status'}"), "{'folding':'live'}");
    expect_sql(env, "0", "select count(*) from foldd.pauses");
    expect(ask(conn, "{'request':'resume','what':'folding'}"), "{'ok':true}");
    daemon_stop(daemon);
    daemon_again(daemon);
    expect(ask(conn_open(daemon), "{'request':'status'}"), "{'folding':'live'}");
    env_free(env);
}
END_TEST

START_TEST(pause_of_ingest_stores_nothing)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, "db_timeout=1s", NULL);
    struct conn *admin = conn_open(daemon);
    expect(ask(admin, "{'request':'pause','what':'ingest'}"), "{'ok':true}");
    expect(ask(admin, "{'request':'status'}"), "{'ingest':'paused','folding':'live'}");
    struct conn *late = conn_open(daemon);
    int64_t start = now_ms();
    conn_line(late, "{'document':'d','id':'late','action':'create','fields':{}}");
    conn_flush(late);
    status_wait(admin, "pending_ops", 1);
    expect(conn_read(late), "{'ok':false,'error':'unavailable','stored':'no'}");
    ck_assert_int_ge(now_ms() - start, 900);
    daemon_kill(daemon);
    daemon_again(daemon);
    admin = conn_open(daemon);
    expect(ask(admin, "{'request':'status'}"), "{'ingest':'paused'}");
    struct conn *waiting = conn_open(daemon);
    conn_line(waiting, "{'document':'d','id':'waiting','action':'create','fields':{}}");
    conn_flush(waiting);
    status_wait(admin, "pending_ops", 1);
    expect_sql(env, "0", "select count(*) from foldd.operations");
    expect(ask(admin, "{'request':'resume','what':'ingest'}"), "{'ok':true}");
    expect(conn_read(waiting), "{'ok':true}");
    expect(ask(admin, "{'document':'d','id':'new','action':'update','fields':{},'ack':'folded'}"),
           "{'outcome':'folded'}");
    expect_sql(env, "waiting new", "select string_agg(id, ' ' order by seq) from foldd.operations");
    expect(ask(admin, "{'request':'status'}"), "{'ingest':'live'}");
    env_free(env);
}
END_TEST

START_TEST(drain_ends_when_all_is_settled)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    struct conn *drain = conn_open(daemon);
    struct conn *late = conn_open(daemon);
    gate_make(env, "^d");
    for (int i = 0; i < 20; i++)
        expect(ask(conn, "{'document':'d%d','action':'create','fields':{}}", i), "{'ok':true}");
    expect(ask(drain, "{'request':'drain','timeout_ms':100}"),
           "{'ok':true,'outcome':'timeout','state':'queued'}");
    conn_line(drain, "{'request':'drain','reason':'a move'}");
    conn_flush(drain);
    expect(ask(conn, "{'request':'status'}"), "{'ingest':'paused','head':20}");
    conn_line(late, "{'document':'late','action':'create','fields':{}}");
    conn_flush(late);
    status_wait(conn, "pending_ops", 1);
    ck_assert(!conn_has_reply(drain));
    gate_open(env);
    const json_t *reply = conn_read(drain);
    expect(reply, "{'ok':true}");
    ck_assert_msg(json_object_get(reply, "outcome") == NULL, "%s", drain->raw);
    expect_sql(env, "20", "select count(*) from foldd.documents");
    expect(ask(conn, "{'request':'status'}"), "{'lag':0,'head':20,'ingest':'paused'}");
    sql_stays(env, 500, "20", "select count(*) from foldd.operations");
    ck_assert(!conn_has_reply(late));
    expect(ask(drain, "{'request':'drain'}"), "{'ok':true}");
    expect(ask(drain, "{'request':'resume','what':'ingest'}"), "{'ok':true}");
    expect(conn_read(late), "{'ok':true}");
    barrier(conn);
    expect_model(env);
    env_free(env);
}
END_TEST

static const char *const operator_requests[] = {
    "{'request':'retry'}",
    "{'request':'retry','document':'d'}",
    "{'request':'skip','document':'d','seq':1,'reason':'r'}",
    "{'request':'pause','what':'ingest'}",
    "{'request':'pause','what':'folding'}",
    "{'request':'resume','what':'ingest'}",
    "{'request':'resume','what':'folding'}",
    "{'request':'drain'}",
};

enum { OPERATOR_REQUESTS = sizeof operator_requests / sizeof operator_requests[0] };

static gid_t group_id(const char *name)
{
    const struct group *group = getgrnam(name);
    ck_assert_msg(group != NULL, "no group %s", name);
    return group->gr_gid;
}

START_TEST(ordinary_users_are_refused)
{
    if (geteuid() != 0)
        return;
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, "socket_mode=0666", "admin_groups=adm, games", NULL);
    struct conn *conn = conn_open_as(daemon, NOBODY, NOBODY, NOBODY);
    refuse_bad(env);
    expect(ask(conn, "{'document':'d','id':'o1','action':'create','fields':{'bad':1},"
                     "'ack':'folded'}"),
           "{'outcome':'parked'}");
    for (int i = 0; i < OPERATOR_REQUESTS; i++)
        expect_error(ask(conn, "%s", operator_requests[i]), "forbidden", "admin_groups");
    expect_sql(env, "0|0",
               "select (select count(*) from foldd.pauses) || '|' ||"
               " (select count(*) from foldd.skipped)");
    expect(ask(conn, "{'request':'status'}"), "{'ok':true,'ingest':'live','folding':'live'}");
    expect(ask(conn, "{'request':'parked'}"), "{'ok':true}");
    ck_assert_uint_eq(json_array_size(json_object_get(conn->json, "parked")), 1);
    env_free(env);
}
END_TEST

/* _i: it is the user's own group, or one of the others */
START_TEST(admin_groups_may_operate)
{
    if (geteuid() != 0)
        return;
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, "socket_mode=0666", "admin_groups=adm, games", NULL);
    struct conn *conn = conn_open_as(daemon, NOBODY, _i == 0 ? group_id("games") : NOBODY,
                                     _i == 0 ? NOBODY : group_id("games"));
    refuse_bad(env);
    expect(ask(conn, "{'document':'d','id':'o1','action':'create','fields':{'bad':1},"
                     "'ack':'folded'}"),
           "{'outcome':'parked'}");
    for (int i = 0; i < OPERATOR_REQUESTS; i++)
        expect(ask(conn, "%s", operator_requests[i]), "{'ok':true}");
    expect_sql(env, "uid:65534", "select actor from foldd.skipped");
    expect_sql(env, "uid:65534", "select actor from foldd.pauses");
    env_free(env);
}
END_TEST

START_TEST(unknown_admin_group_is_refused)
{
    struct env *env = ENV();
    const char *socket = env_path(env, "foldd.sock");
    const char *args[] = {"--set", env_printf(env, "database=%s", env->conninfo),
                          "--set", env_printf(env, "socket=%s", socket),
                          "--set", "admin_groups=root,no-such-group",
                          NULL};
    daemon_expect_refusal(daemon_spawn(env, socket, args), "no-such-group");
    env_free(env);
}
END_TEST

/* Run foldctl with the words up to NULL; it must end with the code. Returns what it printed. */
static const char *foldctl(struct daemon *daemon, int code, ...) __attribute__((sentinel));

static const char *foldctl(struct daemon *daemon, int code, ...)
{
    const char *argv[16] = {foldctl_program(), "--socket", daemon->socket};
    va_list list;
    va_start(list, code);
    for (size_t i = 3; i < 15 && (argv[i] = va_arg(list, const char *)) != NULL; i++)
        continue;
    va_end(list);
    const char *path = env_path(daemon->env, "foldctl.log");
    int actual = run_program(path, argv);
    const char *output = env_keep(daemon->env, file_read(path));
    ck_assert_msg(actual == code, "foldctl %s: %d and not %d: %s", argv[3], actual, code, output);
    return output;
}

static void expect_text(const char *output, const char *text)
{
    ck_assert_msg(strstr(output, text) != NULL, "no '%s' in: %s", text, output);
}

START_TEST(foldctl_retries_and_skips)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    ck_assert_str_eq(foldctl(daemon, 0, "parked", NULL), "");
    refuse_bad(env);
    int64_t first = write_five(conn, "d");
    expect_parked_at_third(env, conn, "d", first);
    const char *list = foldctl(daemon, 0, "parked", NULL);
    expect_text(list, "SEQ  TRIES");
    expect_text(list, "P0001  default");
    expect_text(list, "\"bad fields\"");
    expect_text(foldctl(daemon, 0, "--json", "parked", NULL), "\"next\":null}\n");
    ck_assert_str_eq(foldctl(daemon, 0, "retry", "d", NULL), "due retried=1\n");
    ck_assert_str_eq(foldctl(daemon, 0, "retry", "--all", NULL), "due retried=1\n");
    expect_text(foldctl(daemon, 1, "retry", "-c", "other", "d", NULL), "not_found");
    foldctl(daemon, 2, "retry", NULL);
    foldctl(daemon, 2, "retry", "--all", "d", NULL);
    foldctl(daemon, 2, "retry", "--all", "-c", "default", NULL);
    const char *third = env_printf(env, "%lld", (long long)first + 2);
    foldctl(daemon, 2, "skip", "d", third, NULL);
    foldctl(daemon, 2, "skip", "d", "3x", "it is bad", NULL);
    foldctl(daemon, 2, "skip", "d", "0", "it is bad", NULL);
    expect_text(foldctl(daemon, 1, "skip", "d", "1000", "it is bad", NULL), "not_found");
    expect_text(
        foldctl(daemon, 1, "skip", "d", env_printf(env, "%lld", (long long)first), "it", NULL),
        "conflict");
    ck_assert_str_eq(foldctl(daemon, 0, "skip", "-c", "default", "d", third, "it is bad", NULL),
                     env_printf(env, "skipped seq=%s\n", third));
    expect_skipped(env, conn, first);
    expect_text(foldctl(daemon, 1, "await", "d", "--id", "o3", NULL), "skipped");
    env_free(env);
}
END_TEST

START_TEST(foldctl_pauses_and_drains)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    ck_assert_str_eq(foldctl(daemon, 0, "pause", "folding", "a \"quoted\" reason", NULL),
                     "paused\n");
    expect_sql(env, "a \"quoted\" reason", "select reason from foldd.pauses");
    expect(ask(conn, "{'document':'d','action':'create','fields':{}}"), "{'ok':true}");
    expect_text(foldctl(daemon, 1, "drain", "--timeout", "100", NULL), "timeout");
    expect(ask(conn, "{'request':'status'}"), "{'folding':'paused','ingest':'paused'}");
    ck_assert_str_eq(foldctl(daemon, 0, "resume", "folding", NULL), "resumed\n");
    expect_text(foldctl(daemon, 0, "drain", "a move", NULL), "settled");
    expect_sql(env, "1", "select count(*) from foldd.documents");
    foldctl(daemon, 0, "resume", "ingest", NULL);
    foldctl(daemon, 0, "pause", "ingest", NULL);
    foldctl(daemon, 0, "resume", "ingest", NULL);
    expect_sql(env, "0", "select count(*) from foldd.pauses");
    expect_text(foldctl(daemon, 1, "pause", "everything", NULL), "invalid");
    foldctl(daemon, 2, "pause", NULL);
    foldctl(daemon, 2, "resume", NULL);
    foldctl(daemon, 2, "resume", "ingest", "now", NULL);
    daemon_stop(daemon);
    foldctl(daemon, 3, "parked", NULL);
    foldctl(daemon, 3, "drain", NULL);
    env_free(env);
}
END_TEST

/* More than one page; the list shows what the table has, however it came there */
START_TEST(foldctl_lists_all_that_is_parked)
{
    enum { DOCUMENTS = 230 };
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    sql(env,
        "insert into foldd.parked (collection, document, seq, sqlstate, message, attempts,"
        " parked_at, next_try) select 'c', 'd' || n, n, 'P0001', E'two\\nlines', 1, now(), now()"
        " from generate_series(1, %d) n",
        DOCUMENTS);
    const char *list = foldctl(daemon, 0, "parked", NULL);
    int lines = 0;
    for (const char *c = list; *c != '\0'; c++)
        lines += *c == '\n';
    ck_assert_int_eq(lines, DOCUMENTS + 1);
    for (int i = 1; i <= DOCUMENTS; i++)
        expect_text(list, env_printf(env, "  d%d ", i));
    const char *json = foldctl(daemon, 0, "parked", "--json", NULL);
    for (int page = 0; page < 3; page++) {
        expect_text(json, "{\"ok\":true,\"parked\":[{");
        json = strchr(json, '\n') + 1;
    }
    ck_assert_str_eq(json, "");
    env_free(env);
}
END_TEST

static void add_parked_tests(TCase *tcase)
{
    tcase_add_test(tcase, parked_document_is_listed);
    tcase_add_loop_test(tcase, retry_does_not_wait_for_the_next_try, 0, 2);
    tcase_add_test(tcase, retry_of_what_is_still_bad);
    tcase_add_test(tcase, skip_lets_the_rest_fold);
    tcase_add_test(tcase, skip_of_the_only_operation);
    tcase_add_test(tcase, skip_refuses_what_is_not_held_up);
    tcase_add_loop_test(tcase, skip_survives_kill, 0, 2);
    tcase_add_test(tcase, parked_list_goes_page_by_page);
}

static void add_pause_tests(TCase *tcase)
{
    tcase_add_loop_test(tcase, pause_of_folding_lasts, 0, 2);
    tcase_add_test(tcase, pause_of_ingest_stores_nothing);
    tcase_add_test(tcase, drain_ends_when_all_is_settled);
}

static void add_access_tests(TCase *tcase)
{
    tcase_add_test(tcase, ordinary_users_are_refused);
    tcase_add_loop_test(tcase, admin_groups_may_operate, 0, 2);
    tcase_add_test(tcase, unknown_admin_group_is_refused);
}

static void add_foldctl_tests(TCase *tcase)
{
    tcase_add_test(tcase, foldctl_retries_and_skips);
    tcase_add_test(tcase, foldctl_pauses_and_drains);
    tcase_add_test(tcase, foldctl_lists_all_that_is_parked);
}

Suite *operate_suite(void)
{
    static const struct {
        const char *name;
        void (*add)(TCase *tcase);
    } cases[] = {{"parked", add_parked_tests},
                 {"pause", add_pause_tests},
                 {"access", add_access_tests},
                 {"foldctl", add_foldctl_tests}};
    Suite *suite = suite_create("operate");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        TCase *tcase = tcase_create(cases[i].name);
        tcase_set_timeout(tcase, 120);
        cases[i].add(tcase);
        suite_add_tcase(suite, tcase);
    }
    return suite;
}
