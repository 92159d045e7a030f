/* SPDX-License-Identifier: MIT */
#include "suites.h"
Suite *disk_suite(void)
{
    return suite_create("disk");
}
