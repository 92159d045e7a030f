/* SPDX-License-Identifier: MIT */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>

/* libFuzzer's function takes no context. */
static const char *input_name = "";

void fuzz_name(const char *name)
{
    input_name = name;
}

void fuzz_require(bool holds, const char *promise)
{
    if (holds)
        return;
    fprintf(stderr, "fuzz: this does not hold: %s %s\n", promise, input_name);
    abort();
}

/* How many bytes follow the first one of a character, and the lowest code point of that length. */
static bool lead_byte(unsigned char byte, size_t *more, uint32_t *code, uint32_t *lowest)
{
    static const struct {
        unsigned char mask;
        unsigned char bits;
        uint32_t lowest;
    } forms[] = {{0x80, 0x00, 0}, {0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        if ((byte & forms[i].mask) != forms[i].bits)
            continue;
        *more = i;
        *code = byte & (unsigned char)~forms[i].mask;
        *lowest = forms[i].lowest;
        return true;
    }
    return false;
}

bool fuzz_is_utf8(struct span text)
{
    size_t at = 0;
    while (at < text.len) {
        size_t more;
        uint32_t code;
        uint32_t lowest;
        if (!lead_byte((unsigned char)text.data[at++], &more, &code, &lowest) ||
            more > text.len - at)
            return false;
        for (; more > 0; more--, at++) {
            unsigned char byte = (unsigned char)text.data[at];
            if ((byte & 0xc0) != 0x80)
                return false;
            code = code << 6 | (byte & 0x3f);
        }
        if (code < lowest || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
            return false;
    }
    return true;
}
