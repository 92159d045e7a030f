/* SPDX-License-Identifier: MIT */
/*
 * harness: what an integration test stands on.
 *
 * A run has one private PostgreSQL cluster (cluster.c). The first process of the run keeps it: it
 * makes it, runs the tests in a child, starts it again when a test asks for that, reaps what tests
 * leave behind and, however the run ends, stops the cluster and removes its folder.
 *
 * A test has an env: a folder, a fresh database, and the daemons, sockets, SQL sessions and strings
 * that it makes. env_free takes all of it back and fails the test if a daemon does not stop well or
 * leaves a process. A test that fails never gets there: its folder stays, and the logs in it are
 * printed before the next test begins, with the server's log of that time.
 *
 * In the formats of JSON text (conn_line, ask, expect) a single quote stands for a double quote.
 * Everything here fails the test instead of returning an error. Pointers are borrowed from the env
 * unless a line says otherwise.
 */
#ifndef FOLDD_TEST_HARNESS_H
#define FOLDD_TEST_HARNESS_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include <check.h>
#include <jansson.h>
#include <libpq-fe.h>

#include "buf.h"
#include "mem.h"

#if defined(__SANITIZE_ADDRESS__)
enum { TEST_RSS_MAX_KIB = 1024 * 1024 };
#else
enum { TEST_RSS_MAX_KIB = 100 * 1024 };
#endif

enum { TEST_WAIT_MS = 30000 }; /* how long a condition may take to come true */

#define PRINTF(at, args) __attribute__((format(printf, at, args)))

/* ---- the run (cluster.c) ---- */

/* Make and start the cluster, call run in a child process, clean up. Returns run's result, which is
 * the exit code of the program; not 0 when the child died or the cluster could not be made. */
int cluster_run(int (*run)(void));

/* Whether the cluster accepts connections. */
bool cluster_is_up(void);

/* Stop the postmaster with a signal (SIGINT: fast, SIGQUIT: immediate, SIGKILL) and wait until
 * every process of the cluster is gone. */
void cluster_stop(int sig);

/* Start it and wait until it accepts connections. */
void cluster_start(void);

/* Borrowed: the folder of the run; PostgreSQL's programs. */
const char *cluster_root(void);
const char *cluster_bindir(void);

/* Given: a libpq connection string for a database of the cluster, as its superuser. */
char *cluster_conninfo(const char *database);

/* Be the user that PostgreSQL runs as, if this process is root. For a child before exec. */
void cluster_become_user(void);

/* Size of the server's log now, in bytes; print it from there on. */
off_t cluster_log_size(void);
void cluster_log_print(off_t from);

/* ---- one test (env.c) ---- */

struct daemon;
struct conn;
struct session;

struct env {
    char *name;
    char *dir;
    char *database;
    char *conninfo;
    PGconn *db; /* for the sql functions; made again when it breaks */
    TAILQ_HEAD(, daemon) daemons;
    TAILQ_HEAD(, conn) conns;
    SLIST_HEAD(, session) sessions;
    SLIST_HEAD(, kept) kept;
    unsigned daemon_count;
};

/* A fresh UTF8 database and folder, named for the test function. */
#define ENV() env_new(__func__)
struct env *env_new(const char *function);

/* Stop the daemons (SIGTERM, exit code 0), close everything, drop the database, and fail if a
 * process is left whose working folder is in the env's folder. */
void env_free(struct env *env);

/* The path of a file in the env's folder. */
const char *env_path(struct env *env, const char *name);

/* A string that lives as long as the env. */
const char *env_printf(struct env *env, const char *format, ...) PRINTF(2, 3);
const char *env_keep(struct env *env, char *taken);

/* Print and remove the folders that failed tests left; called between tests and at the end. */
void env_print_failed(void);

/* Monotonic milliseconds, and a short pause between two looks at a condition. */
int64_t now_ms(void);
void pause_ms(int ms);

/* Processes whose working folder is dir or below: PostgreSQL's live in their data folder. */
int processes_under(const char *dir);

/* Given: a whole file, or an empty string if there is none. */
char *file_read(const char *path);
void file_write(const char *path, const char *text);

/* Run a program and return its exit code (128 + signal if killed); its output goes to the file. */
int run_program(const char *output, const char *const argv[]);

/* Remove a folder and what is in it. */
void remove_tree(const char *path);

/* The next number of a fixed pseudo-random sequence; state is any number but 0. */
uint32_t next_random(uint64_t *state);

/* ---- SQL (sql.c) ---- */

/* Execute; must succeed. */
void sql(struct env *env, const char *format, ...) PRINTF(2, 3);

/* The first column of the first row; "" when there is no row or it is null. */
const char *sql_text(struct env *env, const char *format, ...) PRINTF(2, 3);
int64_t sql_int(struct env *env, const char *format, ...) PRINTF(2, 3);

/* The query must yield the text: now; within TEST_WAIT_MS; at every look for so long. */
#define expect_sql(env, ...) expect_sql_at(__FILE__, __LINE__, env, __VA_ARGS__)
#define sql_wait(env, ...) sql_wait_at(__FILE__, __LINE__, env, __VA_ARGS__)
#define sql_stays(env, ...) sql_stays_at(__FILE__, __LINE__, env, __VA_ARGS__)
void expect_sql_at(const char *file, int line, struct env *env, const char *expected,
                   const char *format, ...) PRINTF(5, 6);
void sql_wait_at(const char *file, int line, struct env *env, const char *expected,
                 const char *format, ...) PRINTF(5, 6);
void sql_stays_at(const char *file, int line, struct env *env, int ms, const char *expected,
                  const char *format, ...) PRINTF(6, 7);

/* Given: the whole result, rows present. */
PGresult *sql_rows(struct env *env, const char *format, ...) PRINTF(2, 3);

/* Another session on the env's database, closed by env_free; execute there. */
PGconn *sql_session(struct env *env);
void sql_in(PGconn *session, const char *format, ...) PRINTF(2, 3);

/* A row trigger "gate" on foldd.documents: folds of documents whose id matches the regular
 * expression stand still, without waiting for a lock, until gate_open. Needs the schema. */
void gate_make(struct env *env, const char *id_regex);
void gate_open(struct env *env);

/* A row trigger "poison" on foldd.documents: folds of the document fail with P0001; heal drops it.
 */
void poison_make(struct env *env, const char *id);
void poison_heal(struct env *env);

/* Lock the rows of documents that exist, or of some that do not exist yet, in a session of its own,
 * until sql_in(session, "rollback"). The list is SQL: "'d1','d2'". */
PGconn *lock_rows(struct env *env, const char *id_list);
PGconn *lock_absent_rows(struct env *env, const char *id_list);

/* ---- foldd (daemon.c) ---- */

struct daemon {
    TAILQ_ENTRY(daemon) link;
    struct env *env;
    pid_t pid; /* 0 when it does not run */
    char **argv;
    const char *socket;
    const char *log; /* a file: what the program printed, all its runs together */
};

/* foldd on the env's database and socket, with more "key=value" for --set up to NULL; waits until
 * it answers a ping. */
struct daemon *daemon_start(struct env *env, ...) __attribute__((sentinel));

/* foldd --standalone dir, likewise. */
struct daemon *daemon_start_standalone(struct env *env, const char *dir);

/* The same program with any arguments (up to NULL), not waited for; socket may be NULL. */
struct daemon *daemon_spawn(struct env *env, const char *socket, const char *const args[]);

/* Any program that becomes foldd, by its whole command line. */
struct daemon *daemon_run(struct env *env, const char *socket, const char *const argv[]);

/* Wait until it answers a ping. */
void daemon_wait_ready(struct daemon *daemon);

/* And, if the cluster is up, until it leads. */
void daemon_wait_leading(struct daemon *daemon);

void daemon_signal(struct daemon *daemon, int sig);

/* Wait for its end: the exit code, or 128 + the signal. */
int daemon_wait_exit(struct daemon *daemon, int ms);

/* SIGTERM and exit code 0; SIGKILL. */
void daemon_stop(struct daemon *daemon);
void daemon_kill(struct daemon *daemon);

/* After its end: run it again with the same arguments, and wait as daemon_start does. */
void daemon_again(struct daemon *daemon);

/* Whether it still runs. */
bool daemon_runs(struct daemon *daemon);

/* What it printed must have the text; within TEST_WAIT_MS. */
void daemon_expect_log(const struct daemon *daemon, const char *text);
void daemon_wait_log(const struct daemon *daemon, const char *text);

/* It must end by itself, with another code than 0, having said the text. */
void daemon_expect_refusal(struct daemon *daemon, const char *text);

/* A number from /proc/PID/status: "VmRSS" (KiB), "voluntary_ctxt_switches". */
int64_t daemon_proc_status(const struct daemon *daemon, const char *key);

/* Borrowed for good: the path of foldd or foldctl (environment FOLDD, FOLDCTL). */
const char *foldd_program(void);
const char *foldctl_program(void);

/* ---- one connection (conn.c) ---- */

struct conn {
    TAILQ_ENTRY(conn) link;
    struct env *env;
    int fd;
    struct buf out;
    size_t out_pos;
    struct buf in;
    size_t in_pos;
    bool eof;
    char *raw;    /* the last reply's line, until the next one */
    json_t *json; /* the same decoded */
};

struct conn *conn_open(struct daemon *daemon);
struct conn *conn_open_path(struct env *env, const char *path);
/* As another user, which takes root: foldd sees the credentials of the moment of connecting. */
struct conn *conn_open_as(struct daemon *daemon, uid_t uid, gid_t gid, gid_t extra);
void conn_close(struct conn *conn);

/* Close with RST instead of a clean end. */
void conn_reset(struct conn *conn);

/* Queue a line (the LF is added) or bytes; conn_flush sends what is queued, taking in what comes.
 */
void conn_line(struct conn *conn, const char *format, ...) PRINTF(2, 3);
void conn_bytes(struct conn *conn, const void *bytes, size_t len);
void conn_flush(struct conn *conn);

/* Send at least that part of what is queued, and leave the rest queued. */
void conn_flush_part(struct conn *conn, int percent);

/* One round of sending and taking in on several connections; false when nothing moved for ms. */
bool conn_pump(struct conn *const *conns, size_t count, int ms);

/* Send as much of the queue as the socket takes, reading nothing. */
void conn_push_only(struct conn *conn);

/* No more will be sent. */
void conn_shutdown(struct conn *conn);

/* The next reply, decoded; NULL at the end of file. Borrowed until the next reply. */
json_t *conn_read(struct conn *conn);

/* The next reply's text without decoding; NULL at the end of file, also when a part of a reply is
 * before it (a killed daemon). Waits ms for it and fails after that. */
const char *conn_read_raw(struct conn *conn, int ms);

/* The end of file must come now, with nothing before it. */
void expect_end(struct conn *conn);

/* Whether a whole reply is there without waiting for more. */
bool conn_has_reply(struct conn *conn);

/* Queue a line, flush, read its reply. */
json_t *ask(struct conn *conn, const char *format, ...) PRINTF(2, 3);

/* Every member of the expected object must be in the reply and equal. */
#define expect(reply, ...) expect_at(__FILE__, __LINE__, reply, __VA_ARGS__)
void expect_at(const char *file, int line, const json_t *reply, const char *format, ...)
    PRINTF(4, 5);

/* The reply must be an error with this code, and its message must have the text. */
#define expect_error(reply, code, text) expect_error_at(__FILE__, __LINE__, reply, code, text)
void expect_error_at(const char *file, int line, const json_t *reply, const char *code,
                     const char *text);

/* The last reply's text must have "key": and then exactly this text of a value. */
#define expect_raw(conn, key, value) expect_raw_at(__FILE__, __LINE__, conn, key, value)
void expect_raw_at(const char *file, int line, const struct conn *conn, const char *key,
                   const char *value);

/* Everything read so far is folded when this returns. */
void barrier(struct conn *conn);

/* A member of the status reply. */
int64_t status_int(struct conn *conn, const char *key);

/* Wait until it has the value. */
#define status_wait(conn, key, value) status_wait_at(__FILE__, __LINE__, conn, key, value)
void status_wait_at(const char *file, int line, struct conn *conn, const char *key, int64_t value);

int64_t reply_int(const json_t *reply, const char *key);

#endif
