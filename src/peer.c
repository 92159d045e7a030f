/* SPDX-License-Identifier: MIT */
#include "peer.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PEER_GROUPS_MAX = 1024 };

static bool parse_id(const char *text, unsigned *out)
{
    char *end;
    errno = 0;
    unsigned long id = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || errno != 0 || id >= (unsigned)-1)
        return false;
    *out = (unsigned)id;
    return true;
}

static bool find_user(const char *name, unsigned *out)
{
    const struct passwd *user = getpwnam(name);
    if (user != NULL)
        *out = user->pw_uid;
    return user != NULL || parse_id(name, out);
}

static bool find_group(const char *name, unsigned *out)
{
    const struct group *group = getgrnam(name);
    if (group != NULL)
        *out = group->gr_gid;
    return group != NULL || parse_id(name, out);
}

static bool read_list(struct peer_ids *list, const char *text,
                      bool (*find)(const char *name, unsigned *out), const char *option,
                      const char *kind, struct err *err)
{
    char *names = mem_strdup(text);
    char *rest = NULL;
    bool ok = true;
    for (char *name = strtok_r(names, ", ", &rest); ok && name != NULL;
         name = strtok_r(NULL, ", ", &rest)) {
        list->ids = mem_resize(list->ids, list->count + 1, sizeof(list->ids[0]));
        ok = find(name, &list->ids[list->count++]) ||
             err_set(err, ERR_FATAL, "%s: there is no %s \"%s\"", option, kind, name);
    }
    free(names);
    return ok;
}

bool peer_rules_init(struct peer_rules *rules, const struct peer_rules_text *text, struct err *err)
{
    *rules = (struct peer_rules){0};
    return read_list(&rules->admin_groups, text->admin_groups, find_group, "admin_groups", "group",
                     err) &&
           read_list(&rules->allow_users, text->allow_users, find_user, "allow_users", "user",
                     err) &&
           read_list(&rules->allow_groups, text->allow_groups, find_group, "allow_groups", "group",
                     err);
}

void peer_rules_fini(struct peer_rules *rules)
{
    free(rules->admin_groups.ids);
    free(rules->allow_users.ids);
    free(rules->allow_groups.ids);
    *rules = (struct peer_rules){0};
}

static bool has(const struct peer_ids *list, unsigned id)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->ids[i] == id)
            return true;
    return false;
}

struct groups {
    gid_t ids[PEER_GROUPS_MAX + 1];
    size_t count;
};

static void read_groups(int fd, gid_t own, struct groups *out)
{
    socklen_t len = PEER_GROUPS_MAX * sizeof(gid_t);
    out->ids[0] = own;
    out->count = 1;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, out->ids + 1, &len) == 0)
        out->count += len / sizeof(gid_t);
}

static bool has_any(const struct peer_ids *list, const struct groups *groups)
{
    for (size_t i = 0; i < groups->count; i++)
        if (has(list, groups->ids[i]))
            return true;
    return false;
}

static bool read_peer(int fd, struct ucred *out)
{
    socklen_t len = sizeof(*out);
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, out, &len) == 0;
}

enum peer_rank peer_rank(int fd, const struct peer_rules *rules)
{
    struct ucred peer;
    struct groups groups;
    bool open = rules->allow_users.count == 0 && rules->allow_groups.count == 0;
    if (!read_peer(fd, &peer))
        return open ? PEER_ORDINARY : PEER_REFUSED;
    if (peer.uid == 0 || peer.uid == geteuid())
        return PEER_ADMIN;
    read_groups(fd, peer.gid, &groups);
    if (!open && !has(&rules->allow_users, peer.uid) && !has_any(&rules->allow_groups, &groups))
        return PEER_REFUSED;
    return has_any(&rules->admin_groups, &groups) ? PEER_ADMIN : PEER_ORDINARY;
}

void peer_name(int fd, char out[PEER_NAME_MAX])
{
    struct ucred peer;
    out[0] = '\0';
    if (read_peer(fd, &peer))
        snprintf(out, PEER_NAME_MAX, "uid:%u", (unsigned)peer.uid);
}
