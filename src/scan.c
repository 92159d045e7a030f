/* SPDX-License-Identifier: MIT */
/*
 * The grammar is a loop over what is wanted next. Open containers are one bit each, so depth costs
 * no stack. Most bytes of a request are plain bytes inside strings: for those the loop in
 * skip_string looks up one table entry and does nothing else.
 *
 * An error is reported at the first byte that no valid text has at that place. What is refused as a
 * whole (ill-formed UTF-8, a lone surrogate, \u0000, a number with too many digits) is reported at
 * its own first byte, and text that ends too early at its length.
 */
#include "scan.h"

#include <stdint.h>
#include <string.h>

/* An exponent is counted up to here: beyond it every number has too many digits. */
enum { EXPONENT_ENOUGH = 1000000 };

enum want {
    WANT_VALUE,
    WANT_VALUE_OR_CLOSE,
    WANT_KEY,
    WANT_KEY_OR_CLOSE,
    WANT_COLON,
    WANT_COMMA_OR_CLOSE,
    WANT_NOTHING,
};

struct scanner {
    const unsigned char *text;
    const unsigned char *pos;
    const unsigned char *end;
    unsigned depth;                          /* open containers */
    size_t growth;                           /* digits that numbers so far have more written out */
    uint64_t is_object[SCAN_MAX_DEPTH / 64]; /* a bit for each, the outermost first */
    struct span member;                      /* the top-level key that pos is inside */
    struct scan_object *out;                 /* NULL: nobody wants the members */
    struct scan_error *error;
};

/* What stands for itself inside a string: ASCII but control characters, quote and backslash. */
static const bool plain[256] = {
    [0x20 ... 0x21] = true,
    [0x23 ... 0x5b] = true,
    [0x5d ... 0x7f] = true,
};

static bool fail(struct scanner *s, const unsigned char *at, const char *reason)
{
    s->error->offset = (size_t)(at - s->text);
    s->error->reason = reason;
    s->error->member = s->member;
    return false;
}

static bool fail_at_end(struct scanner *s)
{
    return fail(s, s->end, "unexpected end");
}

static void skip_space(struct scanner *s)
{
    const unsigned char *p = s->pos;
    while (p < s->end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t'))
        p++;
    s->pos = p;
}

static bool is_digit(const struct scanner *s, const unsigned char *p)
{
    return p < s->end && *p >= '0' && *p <= '9';
}

/* One non-ASCII character at pos; the ranges are table 3-7 of the Unicode standard. */
static bool skip_utf8(struct scanner *s)
{
    const unsigned char *p = s->pos;
    unsigned char lead = *p++;
    unsigned char low = 0x80;
    unsigned char high = 0xbf;
    int more = 0;
    if (lead >= 0xc2 && lead <= 0xdf) {
        more = 1;
    } else if (lead >= 0xe0 && lead <= 0xef) {
        more = 2;
        low = lead == 0xe0 ? 0xa0 : low;   /* below is overlong */
        high = lead == 0xed ? 0x9f : high; /* above are surrogates */
    } else if (lead >= 0xf0 && lead <= 0xf4) {
        more = 3;
        low = lead == 0xf0 ? 0x90 : low;   /* below is overlong */
        high = lead == 0xf4 ? 0x8f : high; /* above is over U+10FFFF */
    } else {
        return fail(s, s->pos, "invalid UTF-8");
    }
    for (; more > 0; more--, p++) {
        if (p == s->end)
            return fail_at_end(s);
        if (*p < low || *p > high)
            return fail(s, s->pos, "invalid UTF-8");
        low = 0x80;
        high = 0xbf;
    }
    s->pos = p;
    return true;
}

/* The four digits of a \u escape at p. */
static bool read_hex4(struct scanner *s, const unsigned char *p, unsigned *unit)
{
    *unit = 0;
    for (int i = 0; i < 4; i++, p++) {
        if (p == s->end)
            return fail_at_end(s);
        unsigned char lower = *p | 0x20;
        if (is_digit(s, p))
            *unit = *unit << 4 | (unsigned)(*p - '0');
        else if (lower >= 'a' && lower <= 'f')
            *unit = *unit << 4 | (unsigned)(lower - 'a' + 10);
        else
            return fail(s, p, "not a hexadecimal digit in an escape");
    }
    return true;
}

/* The \u escape at pos; both escapes of a surrogate pair. */
static bool skip_unicode_escape(struct scanner *s)
{
    static const char lone[] = "lone surrogate in an escape";
    const unsigned char *p = s->pos + 2;
    unsigned unit;
    if (!read_hex4(s, p, &unit))
        return false;
    if (unit == 0)
        return fail(s, s->pos, "\\u0000 in a string");
    p += 4;
    if ((unit & 0xfc00) == 0xd800) {
        for (const char *c = "\\u"; *c != '\0'; c++, p++) {
            if (p == s->end)
                return fail_at_end(s);
            if (*p != (unsigned char)*c)
                return fail(s, s->pos, lone);
        }
        if (!read_hex4(s, p, &unit))
            return false;
        if ((unit & 0xfc00) != 0xdc00)
            return fail(s, s->pos, lone);
        p += 4;
    } else if ((unit & 0xfc00) == 0xdc00) {
        return fail(s, s->pos, lone);
    }
    s->pos = p;
    return true;
}

static bool skip_escape(struct scanner *s)
{
    const unsigned char *p = s->pos + 1;
    if (p == s->end)
        return fail_at_end(s);
    if (*p == 'u')
        return skip_unicode_escape(s);
    if (*p == '\0' || strchr("\"\\/bfnrt", *p) == NULL)
        return fail(s, p, "unknown escape in a string");
    s->pos = p + 1;
    return true;
}

/* The string whose quote is at pos. */
static bool skip_string(struct scanner *s, bool *escaped)
{
    const unsigned char *p = s->pos + 1;
    const unsigned char *end = s->end;
    *escaped = false;
    for (;;) {
        while (p < end && plain[*p])
            p++;
        s->pos = p;
        if (p == end)
            return fail_at_end(s);
        if (*p == '"')
            break;
        if (*p < 0x20)
            return fail(s, p, "control character in a string");
        if (*p == '\\') {
            *escaped = true;
            if (!skip_escape(s))
                return false;
        } else if (!skip_utf8(s)) {
            return false;
        }
        p = s->pos;
    }
    s->pos = p + 1;
    return true;
}

/* At least one digit at *p. */
static bool skip_digits(struct scanner *s, const unsigned char **p)
{
    if (*p == s->end)
        return fail_at_end(s);
    if (!is_digit(s, *p))
        return fail(s, *p, "expected a digit");
    while (is_digit(s, *p))
        (*p)++;
    return true;
}

static bool read_exponent(struct scanner *s, const unsigned char **p, long *exponent)
{
    bool negative = *p < s->end && **p == '-';
    if (negative || (*p < s->end && **p == '+'))
        (*p)++;
    const unsigned char *digit = *p;
    if (!skip_digits(s, p))
        return false;
    for (*exponent = 0; digit < *p && *exponent < EXPONENT_ENOUGH; digit++)
        *exponent = *exponent * 10 + (*digit - '0');
    if (negative)
        *exponent = -*exponent;
    return true;
}

/* How many digits the number has when it is written out without an exponent. Zeros count like other
 * digits: numeric keeps the scale of 0e-999, too. */
static size_t written_out(size_t integer, size_t fraction, long exponent)
{
    long before = (long)integer + exponent;
    long after = (long)fraction - exponent;
    return (size_t)(before > 1 ? before : 1) + (size_t)(after > 0 ? after : 0);
}

static bool skip_number(struct scanner *s)
{
    const unsigned char *p = s->pos;
    size_t fraction = 0;
    long exponent = 0;
    if (*p == '-')
        p++;
    const unsigned char *digits = p;
    if (!skip_digits(s, &p))
        return false;
    size_t integer = (size_t)(p - digits);
    if (*digits == '0' && integer > 1)
        return fail(s, digits + 1, "leading zero in a number");
    if (p < s->end && *p == '.') {
        digits = ++p;
        if (!skip_digits(s, &p))
            return false;
        fraction = (size_t)(p - digits);
    }
    if (p < s->end && (*p == 'e' || *p == 'E')) {
        p++;
        if (!read_exponent(s, &p, &exponent))
            return false;
    }
    size_t count = written_out(integer, fraction, exponent);
    if (count > SCAN_MAX_DIGITS)
        return fail(s, s->pos, "number of over 1000 digits");
    if (count > integer + fraction)
        s->growth += count - integer - fraction;
    if (s->growth > SCAN_MAX_GROWTH)
        return fail(s, s->pos, "numbers that add over 4 MiB when they are written out");
    s->pos = p;
    return true;
}

static bool skip_word(struct scanner *s, const char *word)
{
    for (; *word != '\0'; word++, s->pos++) {
        if (s->pos == s->end)
            return fail_at_end(s);
        if (*s->pos != (unsigned char)*word)
            return fail(s, s->pos, "expected true, false or null");
    }
    return true;
}

/* The value of a top-level member begins at pos or ends before it; others are nobody's concern. */
static void value_begins(struct scanner *s, enum scan_kind kind)
{
    if (s->out == NULL || s->depth != 1)
        return;
    struct scan_member *member = &s->out->members[s->out->count - 1];
    member->kind = kind;
    member->value.data = (const char *)s->pos;
}

static void value_ends(struct scanner *s, bool escaped)
{
    if (s->out == NULL || s->depth != 1)
        return;
    struct scan_member *member = &s->out->members[s->out->count - 1];
    member->value.len = (size_t)((const char *)s->pos - member->value.data);
    member->escaped = escaped;
}

static bool in_object(const struct scanner *s)
{
    return (s->is_object[(s->depth - 1) / 64] >> ((s->depth - 1) % 64) & 1) != 0;
}

static bool open_container(struct scanner *s, enum scan_kind kind)
{
    if (s->depth == SCAN_MAX_DEPTH)
        return fail(s, s->pos, "nesting deeper than 128");
    uint64_t bit = UINT64_C(1) << (s->depth % 64);
    if (kind == SCAN_OBJECT)
        s->is_object[s->depth / 64] |= bit;
    else
        s->is_object[s->depth / 64] &= ~bit;
    s->depth++;
    s->pos++;
    return true;
}

static enum want close_container(struct scanner *s)
{
    s->depth--;
    s->pos++;
    value_ends(s, false);
    if (s->depth > 0)
        return WANT_COMMA_OR_CLOSE;
    s->member = (struct span){NULL, 0};
    return WANT_NOTHING;
}

static bool kind_of(unsigned char first, enum scan_kind *kind)
{
    switch (first) {
    case '{':
        *kind = SCAN_OBJECT;
        return true;
    case '[':
        *kind = SCAN_ARRAY;
        return true;
    case '"':
        *kind = SCAN_STRING;
        return true;
    case 't':
        *kind = SCAN_TRUE;
        return true;
    case 'f':
        *kind = SCAN_FALSE;
        return true;
    case 'n':
        *kind = SCAN_NULL;
        return true;
    case '-':
    case '0' ... '9':
        *kind = SCAN_NUMBER;
        return true;
    default:
        return false;
    }
}

static bool skip_scalar(struct scanner *s, enum scan_kind kind, bool *escaped)
{
    switch (kind) {
    case SCAN_STRING:
        return skip_string(s, escaped);
    case SCAN_NUMBER:
        return skip_number(s);
    case SCAN_TRUE:
        return skip_word(s, "true");
    case SCAN_FALSE:
        return skip_word(s, "false");
    default:
        return skip_word(s, "null");
    }
}

/* A scalar, or the opening of a container. */
static bool skip_value(struct scanner *s, enum want *want)
{
    enum scan_kind kind;
    bool escaped = false;
    if (!kind_of(*s->pos, &kind))
        return fail(s, s->pos, "expected a value");
    value_begins(s, kind);
    if (kind == SCAN_OBJECT || kind == SCAN_ARRAY) {
        *want = kind == SCAN_OBJECT ? WANT_KEY_OR_CLOSE : WANT_VALUE_OR_CLOSE;
        return open_container(s, kind);
    }
    if (!skip_scalar(s, kind, &escaped))
        return false;
    value_ends(s, escaped);
    *want = s->depth > 0 ? WANT_COMMA_OR_CLOSE : WANT_NOTHING;
    return true;
}

static bool skip_key(struct scanner *s)
{
    const unsigned char *start = s->pos;
    bool escaped;
    bool is_member = s->depth == 1;
    if (*start != '"')
        return fail(s, start, "expected a key in double quotes");
    if (is_member && s->out != NULL && s->out->count == SCAN_MAX_MEMBERS)
        return fail(s, start, "more than 32 keys");
    if (!skip_string(s, &escaped))
        return false;
    if (!is_member)
        return true;
    s->member = (struct span){(const char *)start + 1, (size_t)(s->pos - start) - 2};
    if (s->out != NULL)
        s->out->members[s->out->count++] =
            (struct scan_member){.key = s->member, .key_escaped = escaped};
    return true;
}

static bool skip_comma_or_close(struct scanner *s, enum want *want)
{
    bool object = in_object(s);
    if (*s->pos == (object ? '}' : ']')) {
        *want = close_container(s);
        return true;
    }
    if (*s->pos != ',')
        return fail(s, s->pos, object ? "expected ',' or '}'" : "expected ',' or ']'");
    s->pos++;
    *want = object ? WANT_KEY : WANT_VALUE;
    if (s->depth == 1)
        s->member = (struct span){NULL, 0};
    return true;
}

/* One token at pos, which is neither white space nor the end. */
static bool step(struct scanner *s, enum want *want)
{
    switch (*want) {
    case WANT_VALUE:
    case WANT_VALUE_OR_CLOSE:
        if (*want == WANT_VALUE || *s->pos != ']')
            return skip_value(s, want);
        *want = close_container(s);
        return true;
    case WANT_KEY:
    case WANT_KEY_OR_CLOSE:
        if (*want == WANT_KEY || *s->pos != '}') {
            *want = WANT_COLON;
            return skip_key(s);
        }
        *want = close_container(s);
        return true;
    case WANT_COLON:
        if (*s->pos != ':')
            return fail(s, s->pos, "expected ':'");
        s->pos++;
        *want = WANT_VALUE;
        return true;
    case WANT_COMMA_OR_CLOSE:
        return skip_comma_or_close(s, want);
    default:
        return fail(s, s->pos, s->out ? "text after the object" : "text after the value");
    }
}

static bool scan(struct scanner *s)
{
    static const char byte_order_mark[] = "\xef\xbb\xbf";
    enum want want = WANT_VALUE;
    if (s->end - s->pos >= 3 && memcmp(s->pos, byte_order_mark, 3) == 0)
        return fail(s, s->pos, "byte order mark");
    skip_space(s);
    if (s->out != NULL && s->pos < s->end && *s->pos != '{')
        return fail(s, s->pos, "expected an object");
    while (s->pos < s->end) {
        if (!step(s, &want))
            return false;
        skip_space(s);
    }
    return want == WANT_NOTHING || fail_at_end(s);
}

bool scan_object(const char *text, size_t len, struct scan_object *out, struct scan_error *error)
{
    const unsigned char *bytes = (const unsigned char *)text;
    struct scanner s = {
        .text = bytes, .pos = bytes, .end = bytes + len, .out = out, .error = error};
    out->count = 0;
    return scan(&s);
}

bool scan_value(const char *text, size_t len, struct scan_error *error)
{
    const unsigned char *bytes = (const unsigned char *)text;
    struct scanner s = {.text = bytes, .pos = bytes, .end = bytes + len, .error = error};
    return scan(&s);
}

bool span_is(struct span text, const char *word)
{
    return text.len == strlen(word) && memcmp(text.data, word, text.len) == 0;
}
