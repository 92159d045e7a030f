/* SPDX-License-Identifier: MIT */
#include "suites.h"
Suite *plans_suite(void)
{
    return suite_create("plans");
}
