/* SPDX-License-Identifier: MIT */
/* psql: become psql on foldd's database. */
#include "ctl.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <libpq-fe.h>

static void add_setting(struct buf *out, const char *keyword, const char *value)
{
    buf_printf(out, "%s%s='", out->len == 0 ? "" : " ", keyword);
    for (; *value != '\0'; value++) {
        if (*value == '\'' || *value == '\\')
            buf_add_char(out, '\\');
        buf_add_char(out, *value);
    }
    buf_add_char(out, '\'');
}

/* Everybody can read a process's arguments: passwords go into the environment, the rest into
 * dbname. */
static bool split_conninfo(const char *conninfo, struct buf *dbname, struct err *err)
{
    char *message = NULL;
    PQconninfoOption *options = PQconninfoParse(conninfo, &message);
    if (options == NULL) {
        size_t len = message == NULL ? 0 : strcspn(message, "\n");
        err_set(err, ERR_CLIENT, "bad connection string: %.*s", (int)len, message);
        PQfreemem(message);
        return false;
    }
    for (PQconninfoOption *option = options; option->keyword != NULL; option++) {
        if (option->val == NULL)
            continue;
        if (option->dispchar[0] == '*' && option->envvar != NULL)
            setenv(option->envvar, option->val, 1);
        else
            add_setting(dbname, option->keyword, option->val);
    }
    PQconninfoFree(options);
    return true;
}

int ctl_psql(const struct ctl *ctl)
{
    struct err err = {0};
    struct buf dbname = {0};
    char *conninfo = ctl_database(ctl, &err);
    if (conninfo == NULL || !split_conninfo(conninfo, &dbname, &err)) {
        free(conninfo);
        return ctl_fail(CTL_LOCAL, "%s", err.message);
    }
    free(conninfo);
    char **argv = mem_resize(NULL, (size_t)ctl->arg_count + 4, sizeof(*argv));
    size_t count = 0;
    argv[count++] = mem_strdup("psql");
    argv[count++] = mem_strdup("--dbname");
    argv[count++] = buf_take(&dbname);
    memcpy(argv + count, ctl->args, ((size_t)ctl->arg_count + 1) * sizeof(*argv));
    signal(SIGPIPE, SIG_DFL);
    execvp("psql", argv);
    int code = ctl_fail(CTL_LOCAL, "cannot run psql: %s", strerror(errno));
    for (size_t i = 0; i < count; i++)
        free(argv[i]);
    free(argv);
    return code;
}
