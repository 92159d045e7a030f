/* SPDX-License-Identifier: MIT */
#include "mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *checked(void *ptr)
{
    if (ptr == NULL) {
        fputs("foldd: out of memory\n", stderr);
        abort();
    }
    return ptr;
}

void *mem_zalloc(size_t size)
{
    return checked(calloc(1, size == 0 ? 1 : size));
}

void *mem_alloc(size_t size)
{
    return checked(malloc(size == 0 ? 1 : size));
}

void *mem_resize(void *ptr, size_t count, size_t size)
{
    return checked(reallocarray(ptr, count == 0 ? 1 : count, size));
}

char *mem_dup(const void *bytes, size_t len)
{
    char *copy = mem_alloc(len + 1);
    if (len > 0)
        memcpy(copy, bytes, len);
    copy[len] = '\0';
    return copy;
}

char *mem_strdup(const char *text)
{
    return text == NULL ? NULL : mem_dup(text, strlen(text));
}

char *mem_printf(const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    int len = vasprintf(&text, format, args);
    va_end(args);
    return checked(len < 0 ? NULL : text);
}
