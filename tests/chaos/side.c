/* SPDX-License-Identifier: MIT */
/* What a thread besides the first has of its own. */
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "chaos.h"

void chaos_side_init(struct env *side, const struct env *env)
{
    *side = *env;
    side->db = NULL;
    TAILQ_INIT(&side->daemons);
    TAILQ_INIT(&side->conns);
    SLIST_INIT(&side->sessions);
    SLIST_INIT(&side->kept);
}

void chaos_side_fini(struct env *side)
{
    while (!TAILQ_EMPTY(&side->conns))
        conn_close(TAILQ_FIRST(&side->conns));
    PQfinish(side->db);
}

struct conn *chaos_connect(struct env *env, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    ck_assert(fd >= 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        close(fd);
        return NULL;
    }
    struct conn *conn = mem_zalloc(sizeof *conn);
    conn->env = env;
    conn->fd = fd;
    TAILQ_INSERT_TAIL(&env->conns, conn, link);
    return conn;
}
