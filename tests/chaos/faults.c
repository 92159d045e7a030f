/* SPDX-License-Identifier: MIT */
/* The faults, and the schedule that a seed makes of them. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "chaos.h"

struct fault {
    const char *name;
    int count;      /* in a short run */
    int long_count; /* in a long one */
    void (*make)(struct chaos *chaos, uint64_t *random);
};

static void kill_daemon(struct chaos *chaos)
{
    daemon_kill(chaos->daemon);
    chaos->counts.kills++;
}

static void kill_foldd(struct chaos *chaos, uint64_t *random)
{
    kill_daemon(chaos);
    pause_ms(chaos_draw(random, 0, 150));
    daemon_again(chaos->daemon);
}

/* The first half leaves foldd alone; else it dies with the server, and one of them is back first.
 */
static void kill_server(struct chaos *chaos, uint64_t *random)
{
    static const int signals[] = {SIGKILL, SIGQUIT, SIGKILL, SIGINT};
    int how = chaos_draw(random, 0, 5);
    int sig = signals[chaos_draw(random, 0, 3)];
    chaos_trace(chaos, "signal %d, variant %d", sig, how);
    chaos->server_life++;
    if (how == 3)
        kill_daemon(chaos);
    cluster_stop(sig);
    chaos->counts.server_kills++;
    if (how >= 4)
        kill_daemon(chaos);
    pause_ms(chaos_draw(random, 0, 700));
    if (how == 4)
        daemon_again(chaos->daemon);
    cluster_start();
    chaos->server_life++;
    if (how == 3 || how == 5)
        daemon_again(chaos->daemon);
}

static void stop_foldd(struct chaos *chaos, uint64_t *random)
{
    daemon_signal(chaos->daemon, SIGSTOP);
    pause_ms(chaos_draw(random, 20, 800));
    daemon_signal(chaos->daemon, SIGCONT);
}

/* One of foldd's backends; 0 if there is none just now. */
static pid_t choose_backend(struct chaos *chaos, uint64_t *random)
{
    PGresult *rows = sql_rows(chaos->env,
                              "select pid from pg_stat_activity where datname = '%s'"
                              " and application_name like 'foldd%%' order by pid",
                              chaos->env->database);
    int count = PQntuples(rows);
    int row = count == 0 ? 0 : chaos_draw(random, 0, count - 1);
    pid_t pid = count == 0 ? 0 : (pid_t)strtol(PQgetvalue(rows, row, 0), NULL, 10);
    PQclear(rows);
    return pid;
}

static void stop_backend(struct chaos *chaos, uint64_t *random)
{
    pid_t pid = choose_backend(chaos, random);
    if (pid == 0 || kill(pid, SIGSTOP) != 0)
        return;
    pause_ms(chaos_draw(random, 20, 800));
    kill(pid, SIGCONT);
}

static void terminate_backend(struct chaos *chaos, uint64_t *random)
{
    pid_t pid = choose_backend(chaos, random);
    if (pid == 0)
        return;
    PQclear(sql_rows(chaos->env, "select pg_terminate_backend(%d)", (int)pid));
}

/* A session that is not foldd's does this and holds its locks for a moment. */
static void hold(struct chaos *chaos, const char *statement, int ms)
{
    PGconn *db = PQconnectdb(chaos->env->conninfo);
    ck_assert_msg(PQstatus(db) == CONNECTION_OK, "%s", PQerrorMessage(db));
    sql_in(db, "begin");
    sql_in(db, "%s", statement);
    pause_ms(ms);
    sql_in(db, "rollback");
    PQfinish(db);
}

static void hold_rows(struct chaos *chaos, uint64_t *random)
{
    char statement[160];
    snprintf(statement, sizeof statement,
             "select from foldd.documents where hashtext(id) %% 20 = %d"
             " order by id, collection for update",
             chaos_draw(random, 0, 9));
    hold(chaos, statement, chaos_draw(random, 50, 1200));
}

static void hold_table(struct chaos *chaos, uint64_t *random)
{
    static const char *const modes[] = {"share", "exclusive", "access exclusive"};
    char statement[80];
    snprintf(statement, sizeof statement, "lock table foldd.documents in %s mode",
             modes[chaos_draw(random, 0, 2)]);
    hold(chaos, statement, chaos_draw(random, 50, 800));
}

static void cut_clients(struct chaos *chaos, uint64_t *random)
{
    chaos->cuts += (unsigned)chaos_draw(random, 1, 10);
}

static const struct fault faults[] = {
    {"kill_foldd", 10, 200, kill_foldd},
    {"kill_server", 3, 50, kill_server},
    {"stop_foldd", 3, 30, stop_foldd},
    {"stop_backend", 4, 50, stop_backend},
    {"terminate_backend", 4, 60, terminate_backend},
    {"hold_rows", 4, 60, hold_rows},
    {"hold_table", 2, 20, hold_table},
    {"cut_clients", 6, 80, cut_clients},
};

enum { KINDS = sizeof faults / sizeof faults[0] };

static int count_of(const struct chaos *chaos, const struct fault *fault)
{
    return chaos->is_long ? fault->long_count : fault->count;
}

/* Given: each fault as often as it shall be made, shuffled. */
static const struct fault **make_schedule(const struct chaos *chaos, int *count, uint64_t *random)
{
    int total = 0;
    for (int i = 0; i < KINDS; i++)
        total += count_of(chaos, &faults[i]);
    const struct fault **schedule = mem_resize(NULL, (size_t)total, sizeof *schedule);
    int at = 0;
    for (int i = 0; i < KINDS; i++)
        for (int n = count_of(chaos, &faults[i]); n > 0; n--)
            schedule[at++] = &faults[i];
    for (int i = total - 1; i > 0; i--) {
        int other = chaos_draw(random, 0, i);
        const struct fault *fault = schedule[i];
        schedule[i] = schedule[other];
        schedule[other] = fault;
    }
    *count = total;
    return schedule;
}

void faults_run(struct chaos *chaos)
{
    int count;
    uint64_t random = chaos_random(chaos, 3);
    const struct fault **schedule = make_schedule(chaos, &count, &random);
    for (int i = 0; i < count; i++) {
        pause_ms(chaos_draw(&random, 0, 1) == 0 ? chaos_draw(&random, 0, 60)
                                                : chaos_draw(&random, 100, 900));
        chaos_trace(chaos, "fault %d of %d: %s", i + 1, count, schedule[i]->name);
        schedule[i]->make(chaos, &random);
    }
    free(schedule);
}
