/* SPDX-License-Identifier: MIT */
/*
 * version: foldd's own.
 */
#ifndef FOLDD_VERSION_H
#define FOLDD_VERSION_H

#define FOLDD_VERSION "0.1.0"

#endif
