/* SPDX-License-Identifier: MIT */
/*
 * Lines are written with ' for " where that reads better; json() puts the quotes in.
 */
#include "proto.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "unit.h"

/* Borrowed until the next call: the text with its single quotes doubled. */
static const char *json(const char *text)
{
    static char out[8192];
    ck_assert_uint_lt(strlen(text), sizeof(out));
    size_t i = 0;
    for (; text[i] != '\0'; i++)
        out[i] = text[i] == '\'' ? '"' : text[i];
    out[i] = '\0';
    return out;
}

/* The line is a copy of the exact size, which is gone when the request is looked at. */
static bool parse_bytes(const char *bytes, size_t len, struct request *out, struct err *err)
{
    char *copy = mem_alloc(len);
    memcpy(copy, bytes, len);
    *err = (struct err){0};
    bool ok = proto_parse((struct span){copy, len}, out, err);
    memset(copy, '#', len);
    free(copy);
    return ok;
}

static bool parse(const char *text, struct request *out, struct err *err)
{
    return parse_bytes(text, strlen(text), out, err);
}

/* The error reply is one line of JSON that says what the error says. */
static void check_error_reply(const struct err *err)
{
    struct buf out = {0};
    proto_error(&out, REPLY_INVALID, err->message, 3);
    json_error_t why;
    json_t *reply = json_loadb(out.data, out.len, JSON_REJECT_DUPLICATES, &why);
    if (reply == NULL)
        ck_abort_msg("%s in %.*s", why.text, (int)out.len, out.data);
    const char *message = json_string_value(json_object_get(reply, "message"));
    if (out.data[out.len - 1] != '\n' || memchr(out.data, '\n', out.len - 1) != NULL ||
        message == NULL || strcmp(message, err->message) != 0)
        ck_abort_msg("%.*s", (int)out.len, out.data);
    json_decref(reply);
    buf_fini(&out);
}

static void refuse(const char *text, const char *message)
{
    struct request request;
    struct err err;
    char expected[512];
    memcpy(expected, json(message), strlen(message) + 1);
    ck_assert_msg(!parse(json(text), &request, &err), "%s", text);
    ck_assert_str_eq(err.message, expected);
    ck_assert_int_eq(err.class, ERR_CLIENT);
    check_error_reply(&err);
}

static void accept(const char *text, struct request *request)
{
    struct err err;
    ck_assert_msg(parse(json(text), request, &err), "%s: %s", text, err.message);
}

static void accept_only(const char *text)
{
    struct request request;
    accept(text, &request);
    request_fini(&request);
}

static void expect_span(struct span span, const char *text)
{
    if (text == NULL) {
        ck_assert_ptr_null(span.data);
        return;
    }
    ck_assert_uint_eq(span.len, strlen(text));
    ck_assert_mem_eq(span.data, text, span.len);
}

/* Every kind of request */

START_TEST(an_operation_has_its_parts)
{
    struct request request;
    accept("{'collection':'note','document':'n1','action':'create','id':'c-1',"
           "'fields':{'title':'Hello','price':19.99},'meta':{'who':'me'},'ack':'folded'}",
           &request);
    ck_assert_int_eq(request.kind, REQUEST_OPERATION);
    const struct op *op = request.op;
    expect_span(op->collection, "note");
    expect_span(op->document, "n1");
    expect_span(op->id, "c-1");
    expect_span(op->action, "create");
    expect_span(op->fields, "{\"title\":\"Hello\",\"price\":19.99}");
    expect_span(op->meta, "{\"who\":\"me\"}");
    ck_assert_int_eq(op->ack, OP_ACK_FOLDED);
    request_fini(&request);
    ck_assert_ptr_null(request.op);
}
END_TEST

START_TEST(an_operation_has_defaults)
{
    struct request request;
    accept("{'document':'n1','action':'delete'}", &request);
    expect_span(request.op->collection, "default");
    expect_span(request.op->fields, NULL);
    expect_span(request.op->meta, NULL);
    ck_assert_uint_eq(request.op->id.len, 36);
    ck_assert_int_eq(request.op->ack, OP_ACK_STORED);
    request_fini(&request);
}
END_TEST

START_TEST(fields_and_meta_stay_the_bytes_of_the_client)
{
    struct request request;
    accept(" { 'meta' : { 'a' : [ 1 , 2 ] } , 'fields' : {'n':12345678901234567890123, 'z':1.10,"
           " 'u':'\\u00e9\\/','d':1,'d':2 } ,'action':'update','document':'d' } ",
           &request);
    expect_span(request.op->fields, "{\"n\":12345678901234567890123, \"z\":1.10,"
                                    " \"u\":\"\\u00e9\\/\",\"d\":1,\"d\":2 }");
    expect_span(request.op->meta, "{ \"a\" : [ 1 , 2 ] }");
    request_fini(&request);
}
END_TEST

START_TEST(every_request_is_known_by_its_name)
{
    static const struct {
        const char *line;
        enum request_kind kind;
    } rows[] = {
        {"{'request':'ping'}", REQUEST_PING},
        {"{'request':'status'}", REQUEST_STATUS},
        {"{'request':'get','document':'d'}", REQUEST_GET},
        {"{'request':'operation','document':'d','id':'i'}", REQUEST_LOOK},
        {"{'request':'await','seq':1}", REQUEST_AWAIT},
        {"{'request':'barrier'}", REQUEST_BARRIER},
        {"{'request':'parked'}", REQUEST_PARKED},
        {"{'request':'retry'}", REQUEST_RETRY},
        {"{'request':'skip','document':'d','seq':3,'reason':'r'}", REQUEST_SKIP},
        {"{'request':'pause','what':'folding'}", REQUEST_PAUSE},
        {"{'request':'resume','what':'ingest'}", REQUEST_RESUME},
        {"{'request':'drain'}", REQUEST_DRAIN},
        {"{'action':'delete','document':'d'}", REQUEST_OPERATION},
    };
    ck_assert_uint_eq(sizeof(rows) / sizeof(rows[0]), REQUEST_KINDS);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct request request;
        accept(rows[i].line, &request);
        ck_assert_int_eq(request.kind, rows[i].kind);
        ck_assert((request.op != NULL) == (rows[i].kind == REQUEST_OPERATION));
        request_fini(&request);
    }
}
END_TEST

START_TEST(a_request_has_its_parts)
{
    struct request request;
    accept("{'request':'operation','collection':'note','document':'n1','id':'c-1'}", &request);
    expect_span(request.collection, "note");
    expect_span(request.document, "n1");
    expect_span(request.id, "c-1");
    request_fini(&request);
    accept("{'request':'get','document':'n1'}", &request);
    expect_span(request.collection, "default");
    expect_span(request.document, "n1");
    expect_span(request.id, NULL);
    request_fini(&request);
    accept("{'request':'barrier','timeout_ms':5}", &request);
    ck_assert_int_eq(request.timeout_ms, 5);
    expect_span(request.document, NULL);
    request_fini(&request);
}
END_TEST

START_TEST(an_operator_gives_reasons)
{
    struct request request;
    accept("{'request':'skip','document':'d','seq':3,'reason':'a b'}", &request);
    expect_span(request.reason, "a b");
    ck_assert_int_eq(request.seq, 3);
    request_fini(&request);
    accept("{'request':'drain'}", &request);
    expect_span(request.reason, "");
    request_fini(&request);
    refuse("{'request':'skip','document':'d','seq':3}", "the key 'reason' is missing");
    refuse("{'request':'pause','what':'all'}", "'what' must be 'ingest' or 'folding'");
    refuse("{'request':'retry','collection':'c'}", "the key 'document' is missing");
}
END_TEST

/* A list goes on behind what proto_list_key wrote, whatever characters the names have. */
START_TEST(a_list_goes_on_behind_its_next)
{
    struct request request;
    struct buf key = {0};
    proto_list_key(&key, (struct span){"3:x", 3}, (struct span){"9:y", 3});
    ck_assert_str_eq(buf_cstr(&key), "3:3:x9:y");
    accept("{'request':'parked','after':'3:3:x9:y','limit':7}", &request);
    expect_span(request.collection, "3:x");
    expect_span(request.document, "9:y");
    ck_assert_int_eq(request.limit, 7);
    request_fini(&request);
    accept("{'request':'parked','after':null}", &request);
    expect_span(request.document, NULL);
    ck_assert_int_eq(request.limit, PROTO_LIST_DEFAULT);
    request_fini(&request);
    static const char *const wrong[] = {"x", "3:abc", "9:abc", ":abc", "1234:a", "3"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        char line[100];
        snprintf(line, sizeof(line), "{'request':'parked','after':'%s'}", wrong[i]);
        refuse(line, "'after' must be the 'next' of an earlier reply");
    }
    refuse("{'request':'parked','limit':1001}", "'limit' must be a whole number from 1 to 1000");
    buf_fini(&key);
}
END_TEST

START_TEST(an_await_names_an_operation)
{
    struct request request;
    accept("{'request':'await','seq':9223372036854775807}", &request);
    ck_assert_int_eq(request.seq, INT64_MAX);
    ck_assert_int_eq(request.timeout_ms, PROTO_TIMEOUT_DEFAULT_MS);
    request_fini(&request);
    accept("{'request':'await','document':'d','seq':9007199254740993,'timeout_ms':0}", &request);
    ck_assert_int_eq(request.seq, INT64_C(9007199254740993));
    ck_assert_int_eq(request.timeout_ms, 0);
    expect_span(request.document, "d");
    request_fini(&request);
    accept("{'request':'await','collection':'c','document':'d','id':'i','timeout_ms':3600000}",
           &request);
    ck_assert_int_eq(request.seq, 0);
    ck_assert_int_eq(request.timeout_ms, 3600000);
    expect_span(request.id, "i");
    request_fini(&request);

    static const char *const needs = "an await needs 'seq', or 'document' and 'id'";
    refuse("{'request':'await'}", needs);
    refuse("{'request':'await','document':'d'}", needs);
    refuse("{'request':'await','id':'i'}", "the key 'document' is missing");
    refuse("{'request':'await','document':'d','id':'i','seq':1}",
           "'id' and 'seq' exclude each other");
    refuse("{'request':'await','document':'d','id':'i','seq':0}",
           "'seq' must be a whole number from 1 to 9223372036854775807");
    refuse("{'request':'await','id':'i','seq':1}", "'id' and 'seq' exclude each other");
}
END_TEST

/* Numbers */

START_TEST(a_timeout_is_a_whole_number_in_its_range)
{
    static const char *const bad[] = {
        "-1",
        "-0",
        "1.0",
        "0.5",
        "1e3",
        "3600001",
        "9223372036854775808",
        "18446744073709551617",
        "''",
        "'5'",
        "null",
        "true",
        "[]",
        "{}",
    };
    static const char *const good[] = {"0", "1", "3600000"};
    struct buf line = {0};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        line.len = 0;
        buf_printf(&line, "{'request':'barrier','timeout_ms':%s}", bad[i]);
        refuse(buf_cstr(&line), "'timeout_ms' must be a whole number from 0 to 3600000");
        line.len = 0;
        buf_printf(&line, "{'timeout_ms':%s,'seq':1,'request':'await'}", bad[i]);
        refuse(buf_cstr(&line), "'timeout_ms' must be a whole number from 0 to 3600000");
    }
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        line.len = 0;
        buf_printf(&line, "{'request':'barrier','timeout_ms':%s}", good[i]);
        accept_only(buf_cstr(&line));
    }
    buf_fini(&line);
}
END_TEST

START_TEST(a_seq_is_a_whole_number)
{
    static const char *const bad[] = {"0",   "-1",  "1.0", "1e3", "9223372036854775808",
                                      "'1'", "null"};
    struct buf line = {0};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        line.len = 0;
        buf_printf(&line, "{'request':'await','seq':%s}", bad[i]);
        refuse(buf_cstr(&line), "'seq' must be a whole number from 1 to 9223372036854775807");
    }
    buf_fini(&line);
}
END_TEST

/* Keys */

START_TEST(every_line_is_one_kind_of_thing)
{
    refuse("{}", "a line needs 'action' or 'request'");
    refuse("{'document':'d','fields':{}}", "a line needs 'action' or 'request'");
    refuse("{'action':'delete','request':'ping','document':'d'}",
           "'action' and 'request' exclude each other");
    refuse("{'request':'pong'}", "unknown request 'pong'");
    refuse("{'request':''}", "unknown request ''");
    refuse("{'request':'Ping'}", "unknown request 'Ping'");
    refuse("{'request':'pingping'}", "unknown request 'pingping'");
    refuse("{'request':1}", "'request' must be a string");
    refuse("{'request':null}", "'request' must be a string");
    refuse("{'request':['ping']}", "'request' must be a string");
}
END_TEST

START_TEST(unknown_keys_are_named)
{
    refuse("{'request':'ping','x':1}", "unknown key 'x'");
    refuse("{'':1}", "unknown key ''");
    refuse("{'document':'d','action':'delete','Fields':{}}", "unknown key 'Fields'");
    refuse("{'request':'ping','doc\\u0075m\\u00e9nt':1}", "unknown key 'docum\xc3\xa9nt'");
    refuse("{'request':'ping','a\\nb':1}", "unknown key 'a\nb'");
}
END_TEST

START_TEST(keys_that_belong_elsewhere_are_named)
{
    static const char *const keys[] = {"'collection':'c'", "'document':'d'", "'id':'i'",
                                       "'fields':{}",      "'meta':{}",      "'ack':'stored'",
                                       "'seq':1",          "'timeout_ms':1"};
    static const char *const names[] = {"collection", "document", "id",  "fields",
                                        "meta",       "ack",      "seq", "timeout_ms"};
    static const struct {
        const char *begin;
        const char *name;
        const char *allowed; /* one letter for each key; ! where it is there already */
    } rows[] = {
        {"{'request':'ping'", "the request 'ping'", "--------"},
        {"{'request':'status'", "the request 'status'", "--------"},
        {"{'request':'get','document':'d'", "the request 'get'", "c!------"},
        {"{'request':'operation','document':'d','id':'i'", "the request 'operation'", "c!!-----"},
        {"{'request':'await','seq':1", "the request 'await'", "cdx---!t"},
        {"{'request':'barrier'", "the request 'barrier'", "-------t"},
        {"{'action':'delete','document':'d'", "an 'operation'", "c!ixma--"},
    };
    for (size_t row = 0; row < sizeof(rows) / sizeof(rows[0]); row++)
        for (size_t key = 0; key < 8; key++) {
            struct buf line = {0};
            struct buf message = {0};
            buf_printf(&line, "%s,%s}", rows[row].begin, keys[key]);
            buf_printf(&message, "the key '%s' does not belong in %s", names[key], rows[row].name);
            /* What x stands for is told by other words, in other tests. */
            if (rows[row].allowed[key] == '-')
                refuse(buf_cstr(&line), buf_cstr(&message));
            else if (rows[row].allowed[key] != '!' && rows[row].allowed[key] != 'x')
                accept_only(buf_cstr(&line));
            buf_fini(&line);
            buf_fini(&message);
        }
}
END_TEST

START_TEST(a_key_is_there_once)
{
    refuse("{'document':'d','document':'d','action':'delete'}",
           "the key 'document' is there twice");
    refuse("{'request':'ping','request':'ping'}", "the key 'request' is there twice");
    refuse("{'document':'d','action':'update','fields':{},'fields':{}}",
           "the key 'fields' is there twice");
    refuse("{'document':'d','action':'delete','\\u0064ocument':'d'}",
           "the key 'document' is there twice");
    refuse("{'\\u0061ction':'delete','act\\u0069on':'delete','document':'d'}",
           "the key 'action' is there twice");
}
END_TEST

START_TEST(missing_keys_are_named)
{
    refuse("{'action':'delete'}", "the key 'document' is missing");
    refuse("{'request':'get'}", "the key 'document' is missing");
    refuse("{'request':'operation','id':'i'}", "the key 'document' is missing");
    refuse("{'request':'operation','document':'d'}", "the key 'id' is missing");
}
END_TEST

START_TEST(keys_may_be_escaped)
{
    struct request request;
    accept("{'\\u0064ocument':'d','\\u0061\\u0063\\u0074\\u0069\\u006f\\u006e':'update',"
           "'field\\u0073':{'a':1}}",
           &request);
    expect_span(request.op->document, "d");
    expect_span(request.op->action, "update");
    expect_span(request.op->fields, "{\"a\":1}");
    request_fini(&request);
}
END_TEST

/* Values */

START_TEST(values_of_other_types_are_refused)
{
    static const char *const texts[] = {"collection", "document", "id", "action"};
    static const char *const no_text[] = {"null", "true", "false", "1", "[]", "{}", "['x']"};
    static const char *const no_object[] = {"null", "true", "1", "'x'", "[]", "[{}]"};
    struct buf line = {0};
    struct buf message = {0};
    for (size_t i = 0; i < 4; i++)
        for (size_t n = 0; n < sizeof(no_text) / sizeof(no_text[0]); n++) {
            line.len = message.len = 0;
            buf_printf(&line, "{%s%s'%s':%s}", i == 1 ? "" : "'document':'d',",
                       i == 3 ? "" : "'action':'delete',", texts[i], no_text[n]);
            buf_printf(&message, "'%s' must be a string", texts[i]);
            refuse(buf_cstr(&line), buf_cstr(&message));
        }
    for (size_t n = 0; n < sizeof(no_object) / sizeof(no_object[0]); n++) {
        line.len = 0;
        buf_printf(&line, "{'document':'d','action':'create','fields':%s}", no_object[n]);
        refuse(buf_cstr(&line), "'fields' must be an object");
        line.len = 0;
        buf_printf(&line, "{'document':'d','action':'delete','meta':%s}", no_object[n]);
        refuse(buf_cstr(&line), "'meta' must be an object");
    }
    buf_fini(&line);
    buf_fini(&message);
}
END_TEST

START_TEST(ack_is_one_of_two_words)
{
    static const char *const bad[] = {"'Stored'", "''", "'folded '", "null", "true", "1", "stored"};
    for (size_t i = 0; i < 6; i++) {
        struct buf line = {0};
        buf_printf(&line, "{'document':'d','action':'delete','ack':%s}", bad[i]);
        refuse(buf_cstr(&line), "'ack' must be 'stored' or 'folded'");
        buf_fini(&line);
    }
    struct request request;
    accept("{'document':'d','action':'delete','ack':'stored'}", &request);
    ck_assert_int_eq(request.op->ack, OP_ACK_STORED);
    request_fini(&request);
}
END_TEST

START_TEST(fields_belong_to_some_actions)
{
    accept_only("{'document':'d','action':'create','fields':{}}");
    accept_only("{'document':'d','action':'update','fields':{}}");
    accept_only("{'document':'d','action':'delete'}");
    refuse("{'document':'d','action':'create'}", "the key 'fields' is missing: 'create' needs it");
    refuse("{'document':'d','action':'update','meta':{}}",
           "the key 'fields' is missing: 'update' needs it");
    refuse("{'document':'d','action':'delete','fields':{}}",
           "the key 'fields' does not belong in a 'delete'");
    refuse("{'document':'d','action':'creat','fields':{}}", "unknown action 'creat'");
    refuse("{'document':'d','action':'created','fields':{}}", "unknown action 'created'");
    refuse("{'document':'d','action':'sn\\u00f6r\\u000a'}", "unknown action 'sn\xc3\xb6r\n'");
}
END_TEST

START_TEST(text_may_be_escaped)
{
    struct request request;
    accept("{'document':'a\\u00e9\\n\\\"\\\\\\/\\ud83d\\ude00','collection':'\\u0063\\t',"
           "'id':'caf\xc3\xa9','action':'d\\u0065lete'}",
           &request);
    expect_span(request.op->document, "a\xc3\xa9\n\"\\/\xf0\x9f\x98\x80");
    expect_span(request.op->collection, "c\t");
    expect_span(request.op->id, "caf\xc3\xa9");
    expect_span(request.op->action, "delete");
    request_fini(&request);
    accept("{'request':'operation','document':'\\u0064','id':'\\u0069','collection':'\\u0063'}",
           &request);
    expect_span(request.collection, "c");
    expect_span(request.document, "d");
    expect_span(request.id, "i");
    request_fini(&request);
}
END_TEST

START_TEST(words_may_be_escaped)
{
    struct request request;
    accept("{'request':'p\\u0069ng'}", &request);
    ck_assert_int_eq(request.kind, REQUEST_PING);
    request_fini(&request);
    accept("{'document':'d','action':'delete','ack':'fold\\u0065d'}", &request);
    ck_assert_int_eq(request.op->ack, OP_ACK_FOLDED);
    request_fini(&request);
}
END_TEST

/* How a byte of text may be written: bytes of JSON, and what they decode to. */
static const struct {
    const char *json;
    size_t bytes;
} forms[] = {
    {"x", 1},       {"\xc3\xa9", 2}, {"\xf0\x9f\x98\x80", 4}, {"\\n", 1},
    {"\\u0041", 1}, {"\\u00e9", 2},  {"\\ud83d\\ude00", 4},
};

/* A line in which the text of a key decodes to that many bytes, as far as its form allows. */
static size_t long_line(struct buf *line, const char *begin, const char *key, size_t form,
                        size_t bytes)
{
    size_t count = 0;
    line->len = 0;
    buf_printf(line, "{%s,'%s':'", begin, key);
    for (; count + forms[form].bytes <= bytes; count += forms[form].bytes)
        buf_add_str(line, forms[form].json);
    for (; count < bytes; count++)
        buf_add_char(line, 'y');
    buf_add_str(line, "'}");
    return count;
}

START_TEST(text_has_limits_after_decoding)
{
    static const struct {
        const char *begin;
        const char *key;
        size_t max;
        const char *at_max; /* NULL: accepted */
    } rows[] = {
        {"'action':'delete','document':'d'", "collection", 255, NULL},
        {"'action':'delete'", "document", 1024, NULL},
        {"'action':'delete','document':'d'", "id", 255, NULL},
        {"'request':'get','document':'d'", "collection", 255, NULL},
        {"'request':'get'", "document", 1024, NULL},
        {"'request':'operation','document':'d'", "id", 255, NULL},
        {"'document':'d'", "action", 63, "unknown action"},
    };
    struct buf line = {0};
    struct buf message = {0};
    struct request request;
    struct err err;
    for (size_t row = 0; row < sizeof(rows) / sizeof(rows[0]); row++)
        for (size_t form = 0; form < sizeof(forms) / sizeof(forms[0]); form++) {
            message.len = 0;
            buf_printf(&message, "'%s' is longer than %zu bytes", rows[row].key, rows[row].max);
            for (size_t more = 1; more < 5; more++) {
                long_line(&line, rows[row].begin, rows[row].key, form, rows[row].max + more);
                refuse(buf_cstr(&line), buf_cstr(&message));
            }
            long_line(&line, rows[row].begin, rows[row].key, form, rows[row].max);
            bool ok = parse(json(buf_cstr(&line)), &request, &err);
            ck_assert_msg(ok == (rows[row].at_max == NULL), "%s", line.data);
            if (ok)
                request_fini(&request);
            else
                ck_assert(strncmp(err.message, rows[row].at_max, strlen(rows[row].at_max)) == 0);
        }
    refuse("{'action':'delete','document':''}", "'document' must not be empty");
    refuse("{'action':'delete','document':'d','id':''}", "'id' must not be empty");
    refuse("{'action':'delete','document':'d','collection':''}", "'collection' must not be empty");
    refuse("{'action':'','document':'d'}", "'action' must not be empty");
    buf_fini(&line);
    buf_fini(&message);
}
END_TEST

static void add_long(struct buf *line, const char *key, size_t max)
{
    buf_printf(line, "\"%s\":\"", key);
    for (size_t i = 0; i < max; i++)
        buf_add_str(line, "\\u0061");
    buf_add_str(line, "\",");
}

/* The decoded texts do not move while later ones are added. */
START_TEST(all_texts_may_be_as_long_as_they_may_be)
{
    static const char *const begins[] = {"{", "{\"request\":\"operation\","};
    for (size_t i = 0; i < 2; i++) {
        struct buf line = {0};
        struct request request;
        struct err err;
        buf_add_str(&line, begins[i]);
        add_long(&line, "id", OP_ID_MAX);
        add_long(&line, "document", OP_DOCUMENT_MAX);
        add_long(&line, "collection", OP_COLLECTION_MAX);
        if (i == 0)
            buf_add_str(&line, "\"action\":\"d\\u0065lete\",");
        line.data[line.len - 1] = '}';
        ck_assert_msg(parse_bytes(line.data, line.len, &request, &err), "%s", err.message);
        struct span parts[] = {request.collection, request.document, request.id};
        if (i == 0) {
            parts[0] = request.op->collection;
            parts[1] = request.op->document;
            parts[2] = request.op->id;
        }
        static const size_t lens[] = {OP_COLLECTION_MAX, OP_DOCUMENT_MAX, OP_ID_MAX};
        for (size_t n = 0; n < 3; n++) {
            ck_assert_uint_eq(parts[n].len, lens[n]);
            for (size_t at = 0; at < lens[n]; at++)
                if (parts[n].data[at] != 'a')
                    ck_abort_msg("part %zu, byte %zu", n, at);
        }
        request_fini(&request);
        buf_fini(&line);
    }
}
END_TEST

/* Broken lines */

START_TEST(broken_lines_name_the_offset)
{
    refuse("", "unexpected end at byte 0");
    refuse("hello", "expected an object at byte 0");
    refuse("[1]", "expected an object at byte 0");
    refuse("{'request':'ping'", "unexpected end at byte 17, in 'request'");
    refuse("{'request':'ping'}}", "text after the object at byte 18");
    refuse("{'document':'d','fields':{'a':1,}}",
           "expected a key in double quotes at byte 32, in 'fields'");
    refuse("{'document':'\\u0000'}", "\\u0000 in a string at byte 13, in 'document'");
    refuse("{'fields':{'a':'\\ud800'}}", "lone surrogate in an escape at byte 16, in 'fields'");
    refuse("{'fields':{'a':'\xff'}}", "invalid UTF-8 at byte 16, in 'fields'");
    refuse("{'\xff':1}", "invalid UTF-8 at byte 2");
    refuse("{'fields':{'n':1e1000}}", "number of over 1000 digits at byte 15, in 'fields'");
    refuse("{'f\\u0069':01}", "leading zero in a number at byte 12, in 'f\\u0069'");
}
END_TEST

START_TEST(a_line_may_hold_no_nul)
{
    struct request request;
    struct err err;
    ck_assert(!parse_bytes("{\"a\0b\":1}", 9, &request, &err));
    ck_assert_str_eq(err.message, "control character in a string at byte 3");
    ck_assert(!parse_bytes("\0", 1, &request, &err));
    ck_assert_str_eq(err.message, "expected an object at byte 0");
}
END_TEST

static void add_many(struct buf *line, const char *text, size_t count)
{
    for (size_t i = 0; i < count; i++)
        buf_add_str(line, text);
}

/* What a message quotes is cut; the cut must not fall into a character. */
START_TEST(errors_are_utf8_whatever_they_quote)
{
    static const char *const lines[][2] = {
        {"{\"", "\":1}"},                             /* an unknown key */
        {"{\"\\u0041", "\":1}"},                      /* one with escapes */
        {"{\"", "\":01}"},                            /* broken inside it */
        {"{\"request\":\"", "\"}"},                   /* an unknown request */
        {"{\"document\":\"d\",\"action\":\"", "\"}"}, /* an unknown action */
    };
    static const char *const characters[] = {"x", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        for (size_t c = 0; c < 4; c++)
            for (size_t len = 0; len < 130; len++) {
                struct buf line = {0};
                struct request request;
                struct err err;
                buf_add_str(&line, lines[i][0]);
                add_many(&line, "x", len % 4);
                add_many(&line, characters[c], len);
                buf_add_str(&line, lines[i][1]);
                if (parse_bytes(line.data, line.len, &request, &err))
                    ck_abort_msg("%s", buf_cstr(&line));
                check_error_reply(&err);
                buf_fini(&line);
            }
}
END_TEST

/* Bytes changed at random: the line is either good, or its error is a good reply. */
START_TEST(damaged_lines_get_good_errors)
{
    static const char operation[] =
        "{'collection':'n\xc3\xb6te','document':'n1','action':'create','id':'c-\\u00e9',"
        "'fields':{'title':'\xf0\x9f\x98\x80','price':19.99},'meta':{},'ack':'folded'}";
    static const char *const lines[] = {
        operation,
        "{'request':'await','collection':'c','document':'d','id':'i','timeout_ms':5000}",
        "{'request':'operation','document':'\\ud83d\\ude00','id':'\xe2\x82\xac'}",
    };
    uint32_t random = (uint32_t)_i + 1;
    for (int n = 0; n < 20000; n++) {
        char line[256];
        size_t len = strlen(lines[n % 3]);
        memcpy(line, json(lines[n % 3]), len);
        for (uint32_t left = 1 + unit_random(&random) % 3; left > 0; left--) {
            size_t at = unit_random(&random) % len;
            if (unit_random(&random) % 2 == 0)
                line[at] = (char)unit_random(&random);
            else
                line[at] = line[unit_random(&random) % len];
        }
        if (unit_random(&random) % 8 == 0)
            len = unit_random(&random) % len;
        struct request request;
        struct err err;
        if (parse_bytes(line, len, &request, &err))
            request_fini(&request);
        else
            check_error_reply(&err);
    }
}
END_TEST

/* Replies */

static void expect_reply(struct buf *out, const char *text)
{
    ck_assert_str_eq(buf_cstr(out), json(text));
    json_t *reply = json_loadb(out->data, out->len, JSON_REJECT_DUPLICATES, NULL);
    ck_assert_ptr_nonnull(reply);
    json_decref(reply);
    buf_fini(out);
}

START_TEST(receipts_are_exact)
{
    struct buf out = {0};
    proto_receipt(&out, 1, (struct span){"c-1", 3}, RECEIPT_NEW);
    proto_end(&out);
    expect_reply(&out, "{'ok':true,'seq':1,'id':'c-1'}\n");
    proto_receipt(&out, INT64_MAX, (struct span){"a\"\n\xc3\xa9", 5}, RECEIPT_DUPLICATE);
    proto_end(&out);
    expect_reply(&out, "{'ok':true,'seq':9223372036854775807,'id':'a\\'\\u000a\xc3\xa9',"
                       "'duplicate':true}\n");
}
END_TEST

START_TEST(error_replies_are_exact)
{
    static const struct {
        enum reply_code code;
        const char *name;
    } rows[] = {
        {REPLY_INVALID, "invalid"},         {REPLY_TOO_LARGE, "too_large"},
        {REPLY_CONFLICT, "conflict"},       {REPLY_NOT_FOUND, "not_found"},
        {REPLY_FORBIDDEN, "forbidden"},     {REPLY_STANDBY, "standby"},
        {REPLY_UNAVAILABLE, "unavailable"},
    };
    struct buf expected = {0};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct buf out = {0};
        expected.len = 0;
        buf_printf(&expected, "{'ok':false,'error':'%s','message':'a \\'key\\'','line':%zu}\n",
                   rows[i].name, i);
        proto_error(&out, rows[i].code, "a \"key\"", (int64_t)i);
        expect_reply(&out, buf_cstr(&expected));
    }
    buf_fini(&expected);
    struct buf out = {0};
    proto_conflict(&out, 42, (struct span){"c-1", 3}, 7);
    expect_reply(&out, "{'ok':false,'error':'conflict','message':'this id is taken by an operation "
                       "with other content','line':7,'seq':42,'id':'c-1'}\n");
    proto_unavailable(&out, "unknown", 8);
    expect_reply(&out, "{'ok':false,'error':'unavailable','message':'the database cannot be "
                       "reached','line':8,'stored':'unknown'}\n");
}
END_TEST

START_TEST(replies_follow_one_another)
{
    struct buf out = {0};
    proto_error(&out, REPLY_INVALID, "x", 1);
    proto_receipt(&out, 2, (struct span){"i", 1}, RECEIPT_NEW);
    proto_end(&out);
    ck_assert_str_eq(buf_cstr(&out), json("{'ok':false,'error':'invalid','message':'x','line':1}\n"
                                          "{'ok':true,'seq':2,'id':'i'}\n"));
    buf_fini(&out);
}
END_TEST

static TCase *request_case(void)
{
    TCase *tcase = tcase_create("requests");
    tcase_add_test(tcase, an_operation_has_its_parts);
    tcase_add_test(tcase, an_operation_has_defaults);
    tcase_add_test(tcase, fields_and_meta_stay_the_bytes_of_the_client);
    tcase_add_test(tcase, every_request_is_known_by_its_name);
    tcase_add_test(tcase, a_request_has_its_parts);
    tcase_add_test(tcase, an_operator_gives_reasons);
    tcase_add_test(tcase, a_list_goes_on_behind_its_next);
    tcase_add_test(tcase, an_await_names_an_operation);
    tcase_add_test(tcase, a_timeout_is_a_whole_number_in_its_range);
    tcase_add_test(tcase, a_seq_is_a_whole_number);
    tcase_add_test(tcase, every_line_is_one_kind_of_thing);
    tcase_add_test(tcase, unknown_keys_are_named);
    tcase_add_test(tcase, keys_that_belong_elsewhere_are_named);
    tcase_add_test(tcase, a_key_is_there_once);
    tcase_add_test(tcase, missing_keys_are_named);
    tcase_add_test(tcase, keys_may_be_escaped);
    tcase_add_test(tcase, values_of_other_types_are_refused);
    tcase_add_test(tcase, ack_is_one_of_two_words);
    tcase_add_test(tcase, fields_belong_to_some_actions);
    tcase_add_test(tcase, text_may_be_escaped);
    tcase_add_test(tcase, words_may_be_escaped);
    tcase_add_test(tcase, text_has_limits_after_decoding);
    tcase_add_test(tcase, all_texts_may_be_as_long_as_they_may_be);
    return tcase;
}

Suite *proto_suite(void)
{
    Suite *suite = suite_create("proto");
    suite_add_tcase(suite, request_case());
    TCase *tcase = tcase_create("errors");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, broken_lines_name_the_offset);
    tcase_add_test(tcase, a_line_may_hold_no_nul);
    tcase_add_test(tcase, errors_are_utf8_whatever_they_quote);
    tcase_add_loop_test(tcase, damaged_lines_get_good_errors, 0, 4);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("replies");
    tcase_add_test(tcase, receipts_are_exact);
    tcase_add_test(tcase, error_replies_are_exact);
    tcase_add_test(tcase, replies_follow_one_another);
    suite_add_tcase(suite, tcase);
    return suite;
}
