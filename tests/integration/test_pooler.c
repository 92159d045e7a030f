/* SPDX-License-Identifier: MIT */
#include "suites.h"
Suite *pooler_suite(void)
{
    return suite_create("pooler");
}
