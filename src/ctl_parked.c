/* SPDX-License-Identifier: MIT */
/* parked: the list of parked documents, page after page, as a table. */
#include "ctl.h"

#include <string.h>

/* What may be long comes last. */
static const struct column {
    const char *key;
    const char *title;
} columns[] = {
    {"seq", "SEQ"},         {"attempts", "TRIES"},        {"next_try", "NEXT TRY"},
    {"sqlstate", "STATE"},  {"collection", "COLLECTION"}, {"document", "DOCUMENT"},
    {"message", "MESSAGE"},
};

enum { COLUMNS = sizeof(columns) / sizeof(columns[0]) };

/* Widths grow from page to page, so that the rows of a page are in line. */
struct table {
    size_t widths[COLUMNS];
    bool begun; /* the titles are printed */
};

static struct span cell(struct span entry, size_t column)
{
    struct span value = {0};
    if (!ctl_member(entry, columns[column].key, &value))
        return (struct span){"", 0};
    return ctl_plain_value(value);
}

static void widen(struct table *table, size_t column, size_t len)
{
    if (len > table->widths[column])
        table->widths[column] = len;
}

static void measure(struct table *table, struct span list)
{
    struct ctl_walk walk;
    struct span key = {0};
    struct span entry = {0};
    for (size_t i = 0; i < COLUMNS; i++)
        widen(table, i, strlen(columns[i].title));
    ctl_walk_init(&walk, list);
    while (ctl_walk_next(&walk, &key, &entry))
        for (size_t i = 0; i < COLUMNS; i++)
            widen(table, i, cell(entry, i).len);
}

static void print_cell(const struct table *table, size_t column, struct span text)
{
    bool last = column + 1 == COLUMNS;
    fwrite(text.data, 1, text.len, stdout);
    if (last)
        putchar('\n');
    else
        printf("%*s", (int)(table->widths[column] - text.len) + 2, "");
}

static void print_titles(struct table *table)
{
    for (size_t i = 0; i < COLUMNS; i++)
        print_cell(table, i, (struct span){columns[i].title, strlen(columns[i].title)});
    table->begun = true;
}

static void print_page(struct table *table, struct span list)
{
    struct ctl_walk walk;
    struct span key = {0};
    struct span entry = {0};
    measure(table, list);
    ctl_walk_init(&walk, list);
    while (ctl_walk_next(&walk, &key, &entry)) {
        if (!table->begun)
            print_titles(table);
        for (size_t i = 0; i < COLUMNS; i++)
            print_cell(table, i, cell(entry, i));
    }
}

/* The request for the page behind this reply; false when it was the last. */
static bool next_request(const struct ctl_reply *reply, struct buf *line)
{
    struct span next = {0};
    if (!json_is_string(json_object_get(reply->root, "next")) ||
        !ctl_member(reply->raw, "next", &next))
        return false;
    line->len = 0;
    buf_printf(line, "{\"request\":\"parked\",\"after\":%.*s}", (int)next.len, next.data);
    return true;
}

/* Ask with line, print the page, and put the next question into line. */
static int show_pages(const struct ctl *ctl, struct ctl_client *client, struct buf *line)
{
    struct table table = {0};
    struct err err = {0};
    int code = CTL_OK;
    for (bool more = true; more && code == CTL_OK;) {
        struct ctl_reply reply;
        struct span list = {0};
        if (!ctl_client_call(client, line->data, line->len, &reply, &err))
            return ctl_fail(CTL_UNREACHABLE, "%s", err.message);
        more = next_request(&reply, line);
        if (!reply.ok)
            code = ctl_show_error(ctl, &reply);
        else if (ctl->json)
            ctl_reply_print_line(ctl, &reply, "");
        else if (ctl_member(reply.raw, "parked", &list))
            print_page(&table, list);
        ctl_reply_fini(&reply);
    }
    return code;
}

int ctl_parked(const struct ctl *ctl)
{
    struct err err = {0};
    struct ctl_client client;
    struct buf line = {0};
    int code = CTL_UNREACHABLE;
    buf_add_str(&line, "{\"request\":\"parked\"}");
    if (ctl_client_open(&client, ctl->socket_path, &err))
        code = show_pages(ctl, &client, &line);
    else
        ctl_fail(code, "%s", err.message);
    ctl_client_close(&client);
    buf_fini(&line);
    return code;
}
