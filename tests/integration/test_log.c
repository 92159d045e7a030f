/* SPDX-License-Identifier: MIT */
#include "suites.h"
Suite *log_suite(void)
{
    return suite_create("log");
}
