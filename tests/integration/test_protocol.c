/* SPDX-License-Identifier: MIT */
/* Requests, replies and the place of every error (design.md 3). */
#include "suites.h"

#include "harness.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

START_TEST(first_operation_is_stored_folded_and_read)
{
    struct env *env = ENV();
    struct conn *conn = conn_open(daemon_start(env, NULL));
    const json_t *reply = ask(conn, "{'collection':'note','document':'n1','action':'create',"
                                    "'id':'c-1','fields':{'title':'Hello','price':19.99}}");
    expect(reply, "{'ok':true,'id':'c-1'}");
    int64_t seq = reply_int(reply, "seq");
    ck_assert_ptr_null(json_object_get(reply, "duplicate"));
    expect(ask(conn, "{'request':'await','collection':'note','document':'n1','seq':%lld}",
               (long long)seq),
           "{'ok':true,'outcome':'folded','seq':%lld,'version':%lld}", (long long)seq,
           (long long)seq);
    expect(ask(conn, "{'request':'get','collection':'note','document':'n1'}"),
           "{'ok':true,'collection':'note','document':'n1','version':%lld,'revision':1,"
           "'deleted':false}",
           (long long)seq);
    expect_raw(conn, "price", "19.99");
    expect_raw(conn, "title", "\"Hello\"");
    expect_sql(env, "{\"price\": 19.99, \"title\": \"Hello\"}",
               "select fields from foldd.documents where collection = 'note' and id = 'n1'");
    env_free(env);
}
END_TEST

START_TEST(log_row_tells_who_when_and_what)
{
    struct env *env = ENV();
    struct conn *conn = conn_open(daemon_start(env, NULL));
    expect(ask(conn, "{'document':'d','action':'update','fields':{'a':1},"
                     "'meta':{'trace':'t-1','n':1.50}}"),
           "{'ok':true}");
    barrier(conn);
    expect_sql(env, "default|d|update|{\"a\": 1}|{\"n\": 1.50, \"trace\": \"t-1\"}|t|t",
               "select concat_ws('|', collection, document, action, fields, meta,"
               " received_at between now() - interval '1 minute' and now(),"
               " octet_length(digest) > 0) from foldd.operations");
    expect_sql(env, "t", "select actor like '%%%d' from foldd.operations", (int)getuid());
    expect_sql(env, "{\"a\": 1}", "select fields from foldd.documents where id = 'd'");
    env_free(env);
}
END_TEST

START_TEST(missing_id_is_made)
{
    struct env *env = ENV();
    struct conn *conn = conn_open(daemon_start(env, NULL));
    const char *line = "{'document':'d','action':'update','fields':{'a':1}}";
    const char *first =
        env_printf(env, "%s", json_string_value(json_object_get(ask(conn, "%s", line), "id")));
    const json_t *reply = ask(conn, "%s", line);
    expect(reply, "{'ok':true}");
    ck_assert_str_ne(json_string_value(json_object_get(reply, "id")), first);
    expect_sql(env, "2", "select count(distinct id) from foldd.operations");
    env_free(env);
}
END_TEST

START_TEST(ping_and_status_answer)
{
    struct env *env = ENV();
    struct conn *conn = conn_open(daemon_start(env, "workers=3", NULL));
    ck_assert_uint_ge(json_object_size(ask(conn, "{'request':'ping'}")), 3);
    expect(ask(conn, "{'document':'d','action':'update','fields':{}}"), "{'ok':true}");
    barrier(conn);
    status_wait(conn, "workers", 3);
    const json_t *status = ask(conn, "{'request':'status'}");
    expect(status, "{'ok':true,'role':'leader','lag':0,'tasks':1,'queued':0,'running':0,"
                   "'requeue':0,'parked':0,'staged':0,'clients':1,'database':'up','workers':3}");
    ck_assert_int_eq(reply_int(status, "head"), sql_int(env, "select foldd.head()"));
    ck_assert_int_eq(reply_int(status, "head"), reply_int(status, "cursor"));
    ck_assert_int_ge(reply_int(status, "pending_bytes"), 0);
    ck_assert_int_ge(reply_int(status, "uptime_s"), 0);
    env_free(env);
}
END_TEST

START_TEST(get_and_operation_look_up)
{
    struct env *env = ENV();
    struct conn *conn = conn_open(daemon_start(env, NULL));
    expect_error(ask(conn, "{'request':'get','document':'none'}"), "not_found", "");
    expect_error(ask(conn, "{'request':'operation','document':'none','id':'x'}"), "not_found", "");
    int64_t seq =
        reply_int(ask(conn, "{'document':'d','id':'x','action':'create','fields':{'a':1}}"), "seq");
    barrier(conn);
    expect(ask(conn, "{'request':'operation','document':'d','id':'x'}"),
           "{'ok':true,'document':'d','id':'x','seq':%lld,'action':'create','outcome':'folded'}",
           (long long)seq);
    expect_error(ask(conn, "{'request':'operation','document':'d','id':'y'}"), "not_found", "");
    expect(ask(conn, "{'document':'d','action':'delete'}"), "{'ok':true}");
    barrier(conn);
    expect(ask(conn, "{'request':'get','document':'d'}"),
           "{'ok':true,'deleted':true,'revision':2,'fields':{}}");
    env_free(env);
}
END_TEST

/* Line, and a text that the message must have: the key or the place. */
struct wrong {
    const char *line;
    const char *names;
};

static const struct wrong wrong_lines[] = {
    {"[]", ""},
    {"1", ""},
    {"null", ""},
    {"'text'", ""},
    {"{", "1"},
    {"{'document':'d','action':'update','fields':{'a':tru}}", "fields"},
    {"{'document':'d','action':'update','fields':{'a':1}", "50"},
    {"{}", "action"},
    {"{'document':'d'}", "action"},
    {"{'request':'nothing'}", "nothing"},
    {"{'request':5}", "request"},
    {"{'request':'ping','action':'create'}", "request"},
    {"{'request':'ping','document':'d'}", "document"},
    {"{'document':'d','action':'create','fields':{},'colour':1}", "colour"},
    {"{'document':'d','action':'create','fields':{},'c\\u00f6lour':1}", "c\xc3\xb6lour"},
    {"{'action':'create','fields':{}}", "document"},
    {"{'document':'','action':'create','fields':{}}", "document"},
    {"{'document':null,'action':'create','fields':{}}", "document"},
    {"{'document':1,'action':'create','fields':{}}", "document"},
    {"{'document':true,'action':'create','fields':{}}", "document"},
    {"{'document':['d'],'action':'create','fields':{}}", "document"},
    {"{'document':'d','collection':'','action':'create','fields':{}}", "collection"},
    {"{'document':'d','collection':null,'action':'create','fields':{}}", "collection"},
    {"{'document':'d','id':'','action':'create','fields':{}}", "id"},
    {"{'document':'d','id':null,'action':'create','fields':{}}", "id"},
    {"{'document':'d','id':1,'action':'create','fields':{}}", "id"},
    {"{'document':'d','id':{},'action':'create','fields':{}}", "id"},
    {"{'document':'d','action':'','fields':{}}", "action"},
    {"{'document':'d','action':null,'fields':{}}", "action"},
    {"{'document':'d','action':7,'fields':{}}", "action"},
    {"{'document':'d','action':'explode','fields':{}}", "explode"},
    {"{'document':'d','action':'Create','fields':{}}", "Create"},
    {"{'document':'d','action':'create'}", "fields"},
    {"{'document':'d','action':'update'}", "fields"},
    {"{'document':'d','action':'create','fields':null}", "fields"},
    {"{'document':'d','action':'create','fields':5}", "fields"},
    {"{'document':'d','action':'create','fields':[]}", "fields"},
    {"{'document':'d','action':'create','fields':'{}'}", "fields"},
    {"{'document':'d','action':'update','fields':null}", "fields"},
    {"{'document':'d','action':'update','fields':5}", "fields"},
    {"{'document':'d','action':'update','fields':[]}", "fields"},
    {"{'document':'d','action':'update','fields':true}", "fields"},
    {"{'document':'d','action':'delete','fields':{}}", "fields"},
    {"{'document':'d','action':'delete','fields':null}", "fields"},
    {"{'document':'d','action':'create','fields':{},'meta':5}", "meta"},
    {"{'document':'d','action':'create','fields':{},'meta':null}", "meta"},
    {"{'document':'d','action':'create','fields':{},'meta':[]}", "meta"},
    {"{'document':'d','action':'create','fields':{},'ack':'maybe'}", "ack"},
    {"{'document':'d','action':'create','fields':{},'ack':true}", "ack"},
    {"{'document':'d','action':'create','fields':{},'timeout_ms':1}", "timeout_ms"},
    /* D10: the same key twice, plain and escaped */
    {"{'document':'d','document':'e','action':'create','fields':{}}", "document"},
    {"{'document':'d','action':'create','fields':{},'action':'delete'}", "action"},
    {"{'document':'d','docum\\u0065nt':'e','action':'create','fields':{}}", "document"},
    {"{'document':'d','id':'a','\\u0069d':'b','action':'create','fields':{}}", "id"},
    /* D19, D21 */
    {"\xef\xbb\xbf{'document':'d','action':'create','fields':{}}", "0"},
    {"\xff\xfe{", "0"},
    {"{'document':'d','action':'create','fields':{}}{'document':'e','action':'create',"
     "'fields':{}}",
     "46"},
    {"{'document':'d','action':'create','fields':{}} {'document':'e','action':'create',"
     "'fields':{}}",
     "47"},
    {"{'document':'d','action':'create','fields':{}} garbage", "47"},
    {"[{'document':'d','action':'create','fields':{}}]", ""},
    {"{'document':'d','action':'create','fields':{},}", "46"},
    {"{'request':'get'}", "document"},
    {"{'request':'get','document':5}", "document"},
    {"{'request':'get','document':''}", "document"},
    {"{'request':'operation','document':'d'}", "id"},
    {"{'request':'operation','id':'d'}", "document"},
    {"{'request':'await','timeout_ms':1}", "seq"},
    {"{'request':'await','document':'d','timeout_ms':1}", "id"},
    {"{'request':'await','id':'d','timeout_ms':1}", "document"},
    {"{'request':'await','seq':1,'timeout_ms':-1}", "timeout_ms"},
    {"{'request':'await','seq':1,'timeout_ms':1.5}", "timeout_ms"},
    {"{'request':'await','seq':1,'timeout_ms':'1'}", "timeout_ms"},
    {"{'request':'await','seq':1,'timeout_ms':null}", "timeout_ms"},
    {"{'request':'await','seq':-1,'timeout_ms':1}", "seq"},
    {"{'request':'await','seq':1.0,'timeout_ms':1}", "seq"},
    {"{'request':'await','seq':'1','timeout_ms':1}", "seq"},
    {"{'request':'await','seq':9223372036854775808,'timeout_ms':1}", "seq"},
    {"{'request':'barrier','timeout_ms':-1}", "timeout_ms"},
};

/* D10, D15, D17, D19, D21: each costs its line, names the place, and stores nothing */
START_TEST(wrong_lines_cost_only_themselves)
{
    struct env *env = ENV();
    struct conn *conn = conn_open(daemon_start(env, NULL));
    int line = 0;
    for (size_t i = 0; i < sizeof wrong_lines / sizeof wrong_lines[0]; i++) {
        const json_t *reply = ask(conn, "%s", wrong_lines[i].line);
        mark_point();
        expect_error(reply, "invalid", wrong_lines[i].names);
        expect(reply, "{'line':%d}", ++line);
    }
    expect(ask(conn, "{'document':'ok','action':'create','fields':{'':1}}"), "{'ok':true}");
    expect_sql(env, "ok", "select string_agg(document, ' ') from foldd.operations");
    env_free(env);
}
END_TEST

/* Given: a text of len bytes. */
static const char *long_text(struct env *env, size_t len, char fill)
{
    char *text = mem_alloc(len + 1);
    memset(text, fill, len);
    text[len] = '\0';
    return env_keep(env, text);
}

static const json_t *ask_create(struct conn *conn, const char *collection, const char *document,
                                const char *id)
{
    return ask(conn,
               "{'collection':'%s','document':'%s','id':'%s','action':'create','fields':{'a':1}}",
               collection, document, id);
}

/* D14: limits are in bytes, and the same for what compresses and what does not */
START_TEST(names_have_limits_in_bytes)
{
    struct env *env = ENV();
    struct conn *conn = conn_open(daemon_start(env, NULL));
    expect(ask_create(conn, long_text(env, 255, 'c'), long_text(env, 1024, 'd'),
                      long_text(env, 255, 'i')),
           "{'ok':true}");
    expect_error(ask_create(conn, long_text(env, 256, 'c'), "d", "i"), "invalid", "collection");
    expect_error(ask_create(conn, "c", long_text(env, 1025, 'd'), "i"), "invalid", "document");
    expect_error(ask_create(conn, "c", long_text(env, 100000, 'x'), "i"), "invalid", "document");
    expect_error(ask_create(conn, "c", "d", long_text(env, 256, 'i')), "invalid", "id");
    expect_error(ask_create(conn, "c", "d", long_text(env, 100000, 'i')), "invalid", "id");
    struct buf wide = {0};
    for (int i = 0; i < 512; i++)
        buf_add_str(&wide, "\xc3\xa9");
    expect(ask_create(conn, "c", buf_cstr(&wide), "i"), "{'ok':true}");
    buf_add_str(&wide, "d");
    expect_error(ask_create(conn, "c", buf_cstr(&wide), "i"), "invalid", "document");
    wide.len = 0;
    for (int i = 0; i < 512; i++)
        buf_add_str(&wide, "\\u00e9");
    expect(ask_create(conn, "c", buf_cstr(&wide), "i"), "{'ok':true,'duplicate':true}");
    buf_fini(&wide);
    uint64_t state = 7;
    struct buf random = {0};
    while (random.len < 1024)
        buf_printf(&random, "%08x", next_random(&state));
    expect(ask_create(conn, "c", buf_cstr(&random), "i"), "{'ok':true}");
    buf_fini(&random);
    barrier(conn);
    expect_sql(env, "3", "select count(*) from foldd.documents where not deleted");
    env_free(env);
}
END_TEST

/* C8, D1: the neighbours of a refused line in a pipeline, and those of another client, are stored
 */
START_TEST(bad_line_in_a_pipeline_fails_alone)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    struct conn *conn = conn_open(daemon);
    struct conn *other = conn_open(daemon);
    for (int i = 0; i < 501; i++)
        conn_line(conn, "{'document':'d%d','action':'update','fields':{'a':%s}}", i,
                  i == 250 ? "'\\u0000'" : "1");
    for (int i = 0; i < 100; i++)
        conn_line(other, "{'document':'o%d','action':'update','fields':{'a':1}}", i);
    conn_flush(conn);
    conn_flush(other);
    for (int i = 0; i < 501; i++) {
        const json_t *reply = conn_read(conn);
        if (i == 250)
            expect_error(reply, "invalid", "fields");
        else
            expect(reply, "{'ok':true}");
    }
    for (int i = 0; i < 100; i++)
        expect(conn_read(other), "{'ok':true}");
    expect_sql(env, "600", "select count(*) from foldd.operations");
    env_free(env);
}
END_TEST

/* C11: numbers above 2^53 are exact in the replies */
START_TEST(seq_is_exact_above_2_53)
{
    struct env *env = ENV();
    struct daemon *daemon = daemon_start(env, NULL);
    expect(ask(conn_open(daemon), "{'document':'low','action':'update','fields':{}}"),
           "{'ok':true}");
    daemon_stop(daemon);
    sql(env, "update foldd.ledger set head = 9007199254740992;"
             "update foldd.cursor set seq = 9007199254740992");
    daemon_again(daemon);
    struct conn *conn = conn_open(daemon);
    expect(ask(conn, "{'document':'d','id':'x','action':'update','fields':{'a':1},"
                     "'ack':'folded'}"),
           "{'ok':true,'outcome':'folded','seq':9007199254740993}");
    barrier(conn);
    expect(ask(conn, "{'request':'await','seq':9007199254740993}"), "{'outcome':'folded'}");
    expect(ask(conn, "{'request':'get','document':'d'}"), "{'version':9007199254740993}");
    daemon_kill(daemon);
    daemon_again(daemon);
    conn = conn_open(daemon);
    expect(ask(conn, "{'document':'d','id':'x','action':'update','fields':{'a':1}}"),
           "{'duplicate':true,'seq':9007199254740993}");
    expect(ask(conn, "{'document':'d','id':'y','action':'update','fields':{'a':1}}"),
           "{'ok':true,'seq':9007199254740994}");
    env_free(env);
}
END_TEST

Suite *protocol_suite(void)
{
    Suite *suite = suite_create("protocol");
    TCase *replies = tcase_create("replies");
    tcase_set_timeout(replies, 60);
    tcase_add_test(replies, first_operation_is_stored_folded_and_read);
    tcase_add_test(replies, log_row_tells_who_when_and_what);
    tcase_add_test(replies, missing_id_is_made);
    tcase_add_test(replies, ping_and_status_answer);
    tcase_add_test(replies, get_and_operation_look_up);
    tcase_add_test(replies, seq_is_exact_above_2_53);
    suite_add_tcase(suite, replies);
    TCase *errors = tcase_create("errors");
    tcase_set_timeout(errors, 60);
    tcase_add_test(errors, wrong_lines_cost_only_themselves);
    tcase_add_test(errors, names_have_limits_in_bytes);
    tcase_add_test(errors, bad_line_in_a_pipeline_fails_alone);
    suite_add_tcase(suite, errors);
    return suite;
}
