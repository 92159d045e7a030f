/* SPDX-License-Identifier: MIT */
#include "hang.h"

#define HANGING                                                                                    \
    " from pg_stat_activity where wait_event = 'SyncRep' and application_name like 'foldd%%'"

PGconn *hang_commits(struct env *env)
{
    PGconn *admin = sql_session(env);
    sql_in(admin, "set synchronous_commit = local");
    sql_in(admin, "alter system set synchronous_standby_names = 'nobody'");
    sql_in(admin, "select pg_reload_conf()");
    ck_assert(PQsendQuery(sql_session(env), "create table if not exists public.canary ();"
                                            " drop table public.canary") == 1);
    sql_wait(env, "t",
             "select count(*) > 0 from pg_stat_activity where wait_event = 'SyncRep'"
             " and application_name = ''");
    return admin;
}

void hang_wait(struct env *env, int count)
{
    sql_wait(env, env_printf(env, "%d", count), "select count(*)" HANGING);
}

void hang_lose_answers(PGconn *admin)
{
    sql_in(admin, "alter system reset synchronous_standby_names");
    sql_in(admin, "select pg_terminate_backend(pid) from pg_stat_activity"
                  " where wait_event = 'SyncRep'");
    sql_in(admin, "select pg_reload_conf()");
}

void hang_release(PGconn *admin)
{
    sql_in(admin, "alter system reset synchronous_standby_names");
    sql_in(admin, "select pg_reload_conf()");
}
