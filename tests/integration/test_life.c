/* SPDX-License-Identifier: MIT */
#include "suites.h"
Suite *life_suite(void)
{
    return suite_create("life");
}
