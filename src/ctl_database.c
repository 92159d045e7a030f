/* SPDX-License-Identifier: MIT */
#include "ctl.h"

#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CONNINFO_MAX_BYTES = 8192 };

/* Given: DIRNAME(socket)/conninfo. */
static char *conninfo_path(const char *socket_path)
{
    const char *slash = strrchr(socket_path, '/');
    int len = slash == NULL ? 0 : (int)(slash - socket_path + 1);
    return mem_printf("%.*sconninfo", len, socket_path);
}

/* Given: the file's text without the line end; NULL and err, or NULL alone when there is no file.
 */
static char *read_conninfo(const char *path, struct err *err)
{
    char bytes[CONNINFO_MAX_BYTES];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return NULL;
    ssize_t got = fd < 0 ? -1 : read(fd, bytes, sizeof(bytes) - 1);
    if (got < 0)
        err_set(err, ERR_CLIENT, "cannot read %s: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    if (got < 0)
        return NULL;
    bytes[got] = '\0';
    bytes[strcspn(bytes, "\r\n")] = '\0';
    if (bytes[0] == '\0')
        err_set(err, ERR_CLIENT, "%s is empty", path);
    return bytes[0] == '\0' ? NULL : mem_strdup(bytes);
}

static int on_option(void *arg, const char *section, const char *name, const char *value)
{
    char **database = arg;
    (void)section;
    if (strcmp(name, "database") != 0)
        return 1;
    free(*database);
    *database = *value == '\0' ? NULL : mem_strdup(value);
    return 1;
}

static char *read_config(const char *path, struct err *err)
{
    char *database = NULL;
    int line_no = ini_parse(path, on_option, &database);
    if (line_no < 0)
        err_set(err, ERR_CLIENT, "cannot read %s: %s", path, strerror(errno));
    else if (line_no > 0)
        err_set(err, ERR_CLIENT, "%s: line %d is not understood", path, line_no);
    else if (database == NULL)
        err_set(err, ERR_CLIENT, "%s has no option database", path);
    if (line_no == 0)
        return database;
    free(database);
    return NULL;
}

char *ctl_database(const struct ctl *ctl, struct err *err)
{
    char *path = conninfo_path(ctl->socket_path);
    struct err local = {0};
    char *database = read_conninfo(path, &local);
    if (database == NULL && local.class == ERR_NONE) {
        database = read_config(ctl->config_path, &local);
        if (database == NULL)
            err_wrap(&local, "there is no %s, so the configuration must name the database", path);
    }
    if (database == NULL)
        *err = local;
    free(path);
    return database;
}
