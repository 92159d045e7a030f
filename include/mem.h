/* SPDX-License-Identifier: MIT */
/*
 * mem: allocation that aborts instead of returning NULL, with overflow checks.
 *
 * Running out of memory ends the process: recovery after a kill is foldd's normal path, so no
 * caller carries code for it. Every size that a client controls is bounded before it gets here.
 */
#ifndef FOLDD_MEM_H
#define FOLDD_MEM_H

#include <stddef.h>

/* Every function that can fail returns bool and fills a struct err; its result must be looked at.
 */
#define MUST_CHECK __attribute__((warn_unused_result))

/* The object that holds MEMBER, from a pointer to that member. */
#define CONTAINER_OF(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

/* Given: size zeroed bytes (at least one). The caller frees with free(). */
void *mem_zalloc(size_t size);

/* Given: size uninitialised bytes. */
void *mem_alloc(size_t size);

/* Taken and given: like reallocarray(3); aborts when count * size overflows. */
void *mem_resize(void *ptr, size_t count, size_t size);

/* Given: a copy of len bytes with a NUL after them, which is not counted. */
char *mem_dup(const void *bytes, size_t len);

/* Given: a copy of the string; NULL for NULL. */
char *mem_strdup(const char *text);

/* Given: printf into a new string. */
char *mem_printf(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
