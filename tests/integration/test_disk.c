/* SPDX-License-Identifier: MIT */
/* A full disk under PostgreSQL (design.md 3, 5; F15). Needs root and the right to mount. */
#include "suites.h"

#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

/* A small file system of this test's own: it goes with the process and its children. False, having
 * said why, where that cannot be. */
static bool mount_small(const char *path, const char *options)
{
    ck_assert(mkdir(path, 0755) == 0);
    if (unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
        mount("foldd-test", path, "tmpfs", 0, options) == 0)
        return true;
    fprintf(stderr, "skipped: cannot mount a small file system here: %s\n", strerror(errno));
    return false;
}

/* Write zeros to the file until nothing more goes in. */
static void fill(const char *path)
{
    static const char zeros[4096];
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ck_assert(fd >= 0);
    while (write(fd, zeros, sizeof zeros) > 0)
        continue;
    ck_assert_int_eq(errno, ENOSPC);
    close(fd);
}

static json_t *append(struct conn *conn, int i, const char *pad)
{
    return ask(conn, "{'document':'d%d','id':'i%d','action':'update','fields':{'n':%d,'p':'%s'}}",
               i % 10, i, i, pad);
}

/* F15: the disk fills while operations come, which are refused then and not lost; with room again
 * foldd goes on by itself, whatever PostgreSQL went through, and its log is short */
START_TEST(full_disk_loses_nothing)
{
    enum { PAD = 2000, MOST = 50000, REFUSED = 3, AFTER = 50 };
    struct env *env = ENV();
    const char *small = env_path(env, "small");
    if (!mount_small(small, "size=120m,mode=755")) {
        env_free(env);
        return;
    }
    const char *dir = env_printf(env, "%s/data", small);
    const char *args[] = {"--standalone", dir, "--set", "db_timeout=1s", NULL};
    struct daemon *daemon = daemon_spawn(env, env_printf(env, "%s/foldd.sock", dir), args);
    daemon_wait_ready(daemon);
    struct conn *conn = conn_open(daemon);
    char *pad = mem_alloc(PAD + 1);
    uint64_t state = 5;
    for (int i = 0; i < PAD; i++)
        pad[i] = (char)('a' + next_random(&state) % 26);
    pad[PAD] = '\0';
    static bool stored[MOST];
    int sent = 0;
    int refused = 0;
    expect(append(conn, sent, pad), "{'ok':true}");
    stored[sent++] = true;
    const char *filler = env_printf(env, "%s/filler", small);
    fill(filler);
    while (refused < REFUSED && sent < MOST) {
        const json_t *reply = append(conn, sent, pad);
        stored[sent++] = json_is_true(json_object_get(reply, "ok"));
        if (stored[sent - 1])
            continue;
        expect(reply, "{'ok':false,'error':'unavailable'}");
        refused++;
    }
    ck_assert_msg(refused == REFUSED, "the disk takes no end");
    expect(ask(conn, "{'request':'ping'}"), "{'ok':true}");
    ck_assert(unlink(filler) == 0);
    /* Sent again, and some more: PostgreSQL may be starting, so the first answers may still be
     * refusals. */
    for (int i = sent - 1; i < sent + AFTER; i++) {
        const json_t *reply = append(conn, i, pad);
        for (int64_t end = now_ms() + TEST_WAIT_MS; !json_is_true(json_object_get(reply, "ok"));
             reply = append(conn, i, pad)) {
            ck_assert_msg(now_ms() < end, "still refused: %s", conn->raw);
            expect(reply, "{'ok':false,'error':'unavailable'}");
        }
        stored[i] = true;
    }
    sent += AFTER;
    barrier(conn);
    for (int i = 0; i < sent; i++) {
        const json_t *reply =
            ask(conn, "{'request':'operation','document':'d%d','id':'i%d'}", i % 10, i);
        if (stored[i])
            expect(reply, "{'ok':true,'outcome':'folded'}");
    }
    expect(ask(conn, "{'request':'status'}"), "{'lag':0,'parked':0,'database':'up'}");
    char *log = file_read(daemon->log);
    int lines = 0;
    for (const char *c = log; *c != '\0'; c++)
        lines += *c == '\n';
    ck_assert_msg(lines < 60, "%d lines in the log", lines);
    free(log);
    free(pad);
    daemon_stop(daemon);
    ck_assert(umount2(small, MNT_DETACH) == 0);
    env_free(env);
}
END_TEST

Suite *disk_suite(void)
{
    Suite *suite = suite_create("disk");
    TCase *tcase = tcase_create("disk");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, full_disk_loses_nothing);
    suite_add_tcase(suite, tcase);
    return suite;
}
