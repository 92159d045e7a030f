/* SPDX-License-Identifier: MIT */
#include "suites.h"
Suite *json_suite(void)
{
    return suite_create("json");
}
