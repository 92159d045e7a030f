/* SPDX-License-Identifier: MIT */
#include "listener.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <grp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "log.h"

enum {
    BACKLOG = 512,
    ACCEPTS_PER_TURN = 64,
    PAUSE_S = 1, /* when the system has no descriptors: look again after this */
};

struct listener {
    struct event_base *base;
    struct sockaddr_un address;
    unsigned mode;
    char *group;
    listener_accept_fn on_accept;
    void *arg;
    int lock_fd;
    int fd;
    bool activated; /* the socket is systemd's */
    bool full;      /* on_accept wants no more; who connects waits in the backlog */
    struct event *event;
    struct event *pause_timer;
};

static bool take_lock(struct listener *listener, struct err *err)
{
    const char *path = listener->address.sun_path;
    char *lock_path = mem_printf("%s.lock", path);
    listener->lock_fd = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    bool ok = true;
    if (listener->lock_fd < 0)
        ok = err_set(err, ERR_FATAL, "cannot open %s: %s", lock_path, strerror(errno));
    else if (flock(listener->lock_fd, LOCK_EX | LOCK_NB) != 0)
        ok = err_set(err, ERR_FATAL, "another foldd is using the socket %s (%s is locked)", path,
                     lock_path);
    free(lock_path);
    return ok;
}

struct listener *listener_new(struct event_base *base, const struct listener_options *options,
                              listener_accept_fn on_accept, void *arg, struct err *err)
{
    struct listener *listener = mem_zalloc(sizeof(*listener));
    listener->base = base;
    listener->mode = options->mode;
    listener->group = mem_strdup(options->group);
    listener->on_accept = on_accept;
    listener->arg = arg;
    listener->lock_fd = -1;
    listener->fd = -1;
    listener->address.sun_family = AF_UNIX;
    size_t len = strlen(options->path);
    if (len >= sizeof(listener->address.sun_path)) {
        err_set(err, ERR_FATAL, "the socket's path is %zu bytes long, more than %zu: %s", len,
                sizeof(listener->address.sun_path) - 1, options->path);
        listener_free(listener);
        return NULL;
    }
    memcpy(listener->address.sun_path, options->path, len);
    if (sd_listen_fds(0) <= 0 && !take_lock(listener, err)) {
        listener_free(listener);
        return NULL;
    }
    return listener;
}

static bool clear_path(const char *path, struct err *err)
{
    struct stat found;
    if (lstat(path, &found) != 0) {
        if (errno == ENOENT)
            return true;
        return err_set(err, ERR_FATAL, "cannot look at %s: %s", path, strerror(errno));
    }
    if (!S_ISSOCK(found.st_mode))
        return err_set(err, ERR_FATAL, "%s exists and is not a socket: it is left alone", path);
    if (unlink(path) != 0)
        return err_set(err, ERR_FATAL, "cannot remove the stale socket %s: %s", path,
                       strerror(errno));
    return true;
}

static bool set_access(struct listener *listener, struct err *err)
{
    const char *path = listener->address.sun_path;
    if (listener->group[0] != '\0') {
        const struct group *group = getgrnam(listener->group);
        if (group == NULL)
            return err_set(err, ERR_FATAL, "socket_group: there is no group \"%s\"",
                           listener->group);
        if (chown(path, (uid_t)-1, group->gr_gid) != 0)
            return err_set(err, ERR_FATAL, "cannot give %s to group %s: %s", path, listener->group,
                           strerror(errno));
    }
    if (chmod(path, listener->mode) != 0)
        return err_set(err, ERR_FATAL, "cannot set the mode of %s: %s", path, strerror(errno));
    return true;
}

static bool bind_path(struct listener *listener, struct err *err)
{
    const char *path = listener->address.sun_path;
    if (!clear_path(path, err))
        return false;
    listener->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener->fd < 0)
        return err_set(err, ERR_FATAL, "cannot make a socket: %s", strerror(errno));
    mode_t before = umask(0777);
    int bound =
        bind(listener->fd, (const struct sockaddr *)&listener->address, sizeof(listener->address));
    umask(before);
    if (bound != 0)
        return err_set(err, ERR_FATAL, "cannot bind %s: %s", path, strerror(errno));
    if (!set_access(listener, err))
        return false;
    if (listen(listener->fd, BACKLOG) != 0)
        return err_set(err, ERR_FATAL, "cannot listen on %s: %s", path, strerror(errno));
    return true;
}

static bool take_activated(struct listener *listener, int count, struct err *err)
{
    if (count != 1 || sd_is_socket(SD_LISTEN_FDS_START, AF_UNIX, SOCK_STREAM, 1) <= 0)
        return err_set(err, ERR_FATAL,
                       "systemd handed over %d descriptors; foldd takes one "
                       "listening unix stream socket",
                       count);
    listener->fd = SD_LISTEN_FDS_START;
    listener->activated = true;
    evutil_make_socket_nonblocking(listener->fd);
    return true;
}

static void pause_accepting(struct listener *listener, int error)
{
    const struct timeval later = {PAUSE_S, 0};
    log_warning("accept_paused", "error=%s", log_text(strerror(error)));
    event_del(listener->event);
    evtimer_add(listener->pause_timer, &later);
}

static void on_pause_over(evutil_socket_t fd, short what, void *arg)
{
    struct listener *listener = arg;
    (void)fd;
    (void)what;
    event_add(listener->event, NULL);
}

static void on_acceptable(evutil_socket_t fd, short what, void *arg)
{
    struct listener *listener = arg;
    (void)what;
    for (int i = 0; i < ACCEPTS_PER_TURN && !listener->full; i++) {
        int client = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (client >= 0)
            listener->full = !listener->on_accept(listener->arg, client);
        else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
            return pause_accepting(listener, errno);
        else if (errno != EINTR && errno != ECONNABORTED)
            return;
    }
    if (listener->full)
        event_del(listener->event);
}

bool listener_start(struct listener *listener, struct err *err)
{
    int activated = sd_listen_fds(1);
    bool ok = activated > 0 ? take_activated(listener, activated, err) : bind_path(listener, err);
    if (!ok)
        return false;
    listener->event =
        event_new(listener->base, listener->fd, EV_READ | EV_PERSIST, on_acceptable, listener);
    listener->pause_timer = evtimer_new(listener->base, on_pause_over, listener);
    event_add(listener->event, NULL);
    log_info("listening", "socket=%s mode=%04o", listener->address.sun_path, listener->mode);
    return true;
}

void listener_resume(struct listener *listener)
{
    if (!listener->full)
        return;
    listener->full = false;
    if (listener->event != NULL)
        event_add(listener->event, NULL);
}

void listener_stop(struct listener *listener)
{
    if (listener->event != NULL)
        event_free(listener->event);
    if (listener->pause_timer != NULL)
        event_free(listener->pause_timer);
    listener->event = NULL;
    listener->pause_timer = NULL;
    if (listener->fd < 0)
        return;
    if (!listener->activated)
        unlink(listener->address.sun_path);
    close(listener->fd);
    listener->fd = -1;
}

void listener_free(struct listener *listener)
{
    if (listener == NULL)
        return;
    listener_stop(listener);
    if (listener->lock_fd >= 0)
        close(listener->lock_fd);
    free(listener->group);
    free(listener);
}
