/* SPDX-License-Identifier: MIT */
#include "conninfo.h"

#include <arpa/inet.h>
#include <libpq-fe.h>
#include <stdlib.h>
#include <string.h>

enum { PARTS_MAX = 96 };

struct conninfo {
    char *keywords[PARTS_MAX + 1];
    char *values[PARTS_MAX + 1];
    size_t count;
};

bool conninfo_check(const char *text, struct err *err)
{
    char *message = NULL;
    PQconninfoOption *options = PQconninfoParse(text, &message);
    PQconninfoFree(options);
    if (options == NULL) {
        char *end = message == NULL ? NULL : strchr(message, '\n');
        if (end != NULL)
            *end = '\0';
        err_set(err, ERR_CLIENT, "%s", message == NULL ? "not a connection string" : message);
    }
    PQfreemem(message);
    return options != NULL;
}

void conninfo_set(struct conninfo *conninfo, const char *keyword, const char *value)
{
    size_t at = 0;
    while (at < conninfo->count && strcmp(conninfo->keywords[at], keyword) != 0)
        at++;
    if (at == PARTS_MAX)
        return;
    if (at == conninfo->count) {
        conninfo->keywords[at] = mem_strdup(keyword);
        conninfo->count++;
    }
    free(conninfo->values[at]);
    conninfo->values[at] = mem_strdup(value);
}

static void take(struct conninfo *conninfo, const PQconninfoOption *options)
{
    for (; options != NULL && options->keyword != NULL; options++)
        if (options->val != NULL && options->val[0] != '\0')
            conninfo_set(conninfo, options->keyword, options->val);
}

/* libpq reads a service only on its way to a connection or from the environment: ask it the second
 * way, so that a host in the service file can be looked up, too. */
static void take_service(struct conninfo *conninfo, const char *service)
{
    setenv("PGSERVICE", service, 1);
    PQconninfoOption *defaults = PQconndefaults();
    take(conninfo, defaults);
    PQconninfoFree(defaults);
    unsetenv("PGSERVICE");
}

struct conninfo *conninfo_new(const char *text)
{
    struct conninfo *conninfo = mem_zalloc(sizeof(*conninfo));
    PQconninfoOption *options = PQconninfoParse(text, NULL);
    for (const PQconninfoOption *o = options; o != NULL && o->keyword != NULL; o++)
        if (strcmp(o->keyword, "service") == 0 && o->val != NULL)
            take_service(conninfo, o->val);
    take(conninfo, options);
    PQconninfoFree(options);
    if (conninfo_get(conninfo, "host") == NULL && getenv("PGHOST") != NULL)
        conninfo_set(conninfo, "host", getenv("PGHOST"));
    return conninfo;
}

void conninfo_free(struct conninfo *conninfo)
{
    if (conninfo == NULL)
        return;
    for (size_t i = 0; i < conninfo->count; i++) {
        free(conninfo->keywords[i]);
        free(conninfo->values[i]);
    }
    free(conninfo);
}

const char *conninfo_get(const struct conninfo *conninfo, const char *keyword)
{
    for (size_t i = 0; i < conninfo->count; i++)
        if (strcmp(conninfo->keywords[i], keyword) == 0)
            return conninfo->values[i];
    return NULL;
}

const char *conninfo_needs_lookup(const struct conninfo *conninfo)
{
    const char *host = conninfo_get(conninfo, "host");
    unsigned char address[sizeof(struct in6_addr)];
    if (host == NULL || host[0] == '/' || host[0] == '@' || strchr(host, ',') != NULL ||
        conninfo_get(conninfo, "hostaddr") != NULL || inet_pton(AF_INET, host, address) == 1 ||
        inet_pton(AF_INET6, host, address) == 1)
        return NULL;
    return host;
}

const char *const *conninfo_keywords(const struct conninfo *conninfo)
{
    return (const char *const *)conninfo->keywords;
}

const char *const *conninfo_values(const struct conninfo *conninfo)
{
    return (const char *const *)conninfo->values;
}
