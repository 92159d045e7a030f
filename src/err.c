/* SPDX-License-Identifier: MIT */
#include "err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { CONTEXT_MAX = 200 }; /* bytes that err_wrap puts in front */

/* Drop a UTF-8 sequence that the buffer's end has cut in two, so that messages stay valid JSON. */
static void trim_partial(char *text)
{
    size_t len = strlen(text);
    size_t start = len;
    while (start > 0 && ((unsigned char)text[start - 1] & 0xc0) == 0x80)
        start--;
    if (start == 0)
        return;
    unsigned char lead = (unsigned char)text[start - 1];
    size_t want = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
    if (len - (start - 1) < want)
        text[start - 1] = '\0';
}

bool err_set(struct err *err, enum err_class class, const char *format, ...)
{
    if (err == NULL)
        return false;
    err->class = class;
    err->sqlstate[0] = '\0';
    va_list args;
    va_start(args, format);
    vsnprintf(err->message, sizeof(err->message), format, args);
    va_end(args);
    trim_partial(err->message);
    return false;
}

bool err_wrap(struct err *err, const char *format, ...)
{
    if (err == NULL)
        return false;
    char context[CONTEXT_MAX + 1];
    va_list args;
    va_start(args, format);
    vsnprintf(context, sizeof(context), format, args);
    va_end(args);
    trim_partial(context);
    char inner[sizeof(err->message)];
    memcpy(inner, err->message, sizeof(inner));
    /* Cut by precision, not by overflow: the context is what a reader needs first. */
    snprintf(err->message, sizeof(err->message), "%s: %.300s", context, inner);
    trim_partial(err->message);
    return false;
}

enum err_class err_class_of_sqlstate(const char *sqlstate)
{
    static const char *const transient[] = {"08",    "40001", "40P01", "53",
                                            "55P03", "57",    "25006", "25P03"};
    static const char *const fatal[] = {"3F000", "42P01", "42883", "42703",
                                        "28",    "3D000", "42501", "FD0"};
    for (size_t i = 0; i < sizeof(transient) / sizeof(transient[0]); i++)
        if (strncmp(sqlstate, transient[i], strlen(transient[i])) == 0)
            return ERR_TRANSIENT;
    for (size_t i = 0; i < sizeof(fatal) / sizeof(fatal[0]); i++)
        if (strncmp(sqlstate, fatal[i], strlen(fatal[i])) == 0)
            return ERR_FATAL;
    return ERR_DATA;
}

bool err_set_sql(struct err *err, const char *sqlstate, const char *message)
{
    if (err == NULL)
        return false;
    err_set(err, err_class_of_sqlstate(sqlstate), "%s", message);
    snprintf(err->sqlstate, sizeof(err->sqlstate), "%s", sqlstate);
    return false;
}
