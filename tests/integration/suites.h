/* SPDX-License-Identifier: MIT */
/* The suites, one for each test file. */
#ifndef FOLDD_TEST_SUITES_H
#define FOLDD_TEST_SUITES_H

#include <check.h>

Suite *model_suite(void);
Suite *protocol_suite(void);
Suite *lines_suite(void);
Suite *ids_suite(void);
Suite *wait_suite(void);
Suite *exact_suite(void);
Suite *fold_suite(void);
Suite *requeue_suite(void);
Suite *trouble_suite(void);
Suite *operate_suite(void);
Suite *restart_suite(void);
Suite *restored_suite(void);
Suite *database_suite(void);
Suite *start_suite(void);
Suite *standalone_suite(void);
Suite *import_suite(void);
Suite *idle_suite(void);
Suite *sql_suite(void);
Suite *tasks_suite(void);
Suite *faults_suite(void);
Suite *log_suite(void);
Suite *pooler_suite(void);
Suite *disk_suite(void);
Suite *life_suite(void);
Suite *plans_suite(void);
Suite *json_suite(void);
Suite *clients_suite(void);
Suite *reload_suite(void);
Suite *soak_suite(void);
Suite *takeover_suite(void);

#endif
