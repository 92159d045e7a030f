/* SPDX-License-Identifier: MIT */
#include "child.h"

#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { EXIT_NOT_READY = 126, EXIT_NOT_FOUND = 127 };

/* In the child. Signals come in blocked: with foldd's handlers they would be written into the pipe
 * that foldd's loop reads. */
static void become(const struct child_options *options, pid_t parent, int input, int log)
{
    sigset_t none;
    sigemptyset(&none);
    signal(SIGTERM, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setsid(); /* a terminal's interrupt is foldd's to handle */
    dup2(input, STDIN_FILENO);
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    closefrom(STDERR_FILENO + 1);
    umask(077);
    if (chdir(options->dir) != 0)
        _exit(EXIT_NOT_READY);
    if (options->user != NULL && (initgroups(options->user, options->gid) != 0 ||
                                  setgid(options->gid) != 0 || setuid(options->uid) != 0))
        _exit(EXIT_NOT_READY);
    /* After the change of user, which would clear it. */
    if (options->bond == CHILD_DIES &&
        (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent))
        _exit(EXIT_NOT_READY);
    execv(options->argv[0], options->argv);
    _exit(EXIT_NOT_FOUND);
}

pid_t child_start(const struct child_options *options)
{
    int log = open(options->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    int input = memfd_create("input", MFD_CLOEXEC);
    size_t len = strlen(options->input);
    pid_t pid = -1;
    if (log >= 0 && input >= 0 && write(input, options->input, len) == (ssize_t)len &&
        lseek(input, 0, SEEK_SET) == 0) {
        sigset_t all;
        sigset_t before;
        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, &before);
        pid_t parent = getpid();
        pid = fork();
        if (pid == 0)
            become(options, parent, input, log);
        sigprocmask(SIG_SETMASK, &before, NULL);
    }
    if (log >= 0)
        close(log);
    if (input >= 0)
        close(input);
    return pid;
}
