/* SPDX-License-Identifier: MIT */
/* The binary formats of pg.h: parameters out, values in (PostgreSQL documentation, chapter 55; the
 * layouts are those of the types' send and receive functions). */
#include <assert.h>
#include <endian.h>
#include <string.h>

#include "pg.h"

/* PostgreSQL counts microseconds from 2000-01-01. */
static const int64_t PG_EPOCH_US = 946684800LL * 1000000;

void pg_params_reset(struct pg_params *params)
{
    params->bytes.len = 0;
    params->count = 0;
}

void pg_params_fini(struct pg_params *params)
{
    buf_fini(&params->bytes);
    *params = (struct pg_params){0};
}

static void begin(struct pg_params *params)
{
    assert(params->count < PG_MAX_PARAMS);
    params->at[params->count] = params->bytes.len;
}

static void end(struct pg_params *params)
{
    params->len[params->count] = (int)(params->bytes.len - params->at[params->count]);
    params->count++;
}

void pg_param_int8(struct pg_params *params, int64_t value)
{
    begin(params);
    buf_add_be64(&params->bytes, value);
    end(params);
}

void pg_param_int4(struct pg_params *params, int32_t value)
{
    begin(params);
    buf_add_be32(&params->bytes, value);
    end(params);
}

void pg_param_bool(struct pg_params *params, bool value)
{
    begin(params);
    buf_add_char(&params->bytes, value ? 1 : 0);
    end(params);
}

void pg_param_text(struct pg_params *params, struct span text)
{
    begin(params);
    buf_add(&params->bytes, text.data, text.len);
    end(params);
    if (text.data == NULL)
        params->len[params->count - 1] = -1;
}

void pg_array_begin(struct pg_params *params, enum pg_type element)
{
    begin(params);
    params->array_at = params->bytes.len;
    params->array_count = 0;
    buf_add_be32(&params->bytes, 1); /* dimensions */
    buf_add_be32(&params->bytes, 1); /* may hold NULLs */
    buf_add_be32(&params->bytes, (int32_t)element);
    buf_add_be32(&params->bytes, 0); /* length, set by pg_array_end */
    buf_add_be32(&params->bytes, 1); /* lower bound */
}

void pg_array_int8(struct pg_params *params, int64_t value)
{
    buf_add_be32(&params->bytes, 8);
    buf_add_be64(&params->bytes, value);
    params->array_count++;
}

void pg_array_text(struct pg_params *params, struct span text)
{
    buf_add_be32(&params->bytes, (int32_t)text.len);
    buf_add(&params->bytes, text.data, text.len);
    params->array_count++;
}

void pg_array_jsonb(struct pg_params *params, struct span json)
{
    params->array_count++;
    if (json.data == NULL) {
        buf_add_be32(&params->bytes, -1);
        return;
    }
    buf_add_be32(&params->bytes, (int32_t)json.len + 1);
    buf_add_char(&params->bytes, 1); /* version of jsonb's format */
    buf_add(&params->bytes, json.data, json.len);
}

void pg_array_time(struct pg_params *params, int64_t unix_us)
{
    pg_array_int8(params, unix_us - PG_EPOCH_US);
}

void pg_array_end(struct pg_params *params)
{
    uint32_t count = htobe32((uint32_t)params->array_count);
    memcpy(params->bytes.data + params->array_at + 12, &count, sizeof(count));
    end(params);
}

int64_t pg_get_int8(const PGresult *result, int row, int column)
{
    uint64_t be;
    assert(PQgetlength(result, row, column) == sizeof(be));
    memcpy(&be, PQgetvalue(result, row, column), sizeof(be));
    return (int64_t)be64toh(be);
}

int32_t pg_get_int4(const PGresult *result, int row, int column)
{
    uint32_t be;
    assert(PQgetlength(result, row, column) == sizeof(be));
    memcpy(&be, PQgetvalue(result, row, column), sizeof(be));
    return (int32_t)be32toh(be);
}

bool pg_get_bool(const PGresult *result, int row, int column)
{
    assert(PQgetlength(result, row, column) == 1);
    return PQgetvalue(result, row, column)[0] != 0;
}

struct span pg_get_text(const PGresult *result, int row, int column)
{
    if (PQgetisnull(result, row, column))
        return (struct span){NULL, 0};
    return (struct span){PQgetvalue(result, row, column), (size_t)PQgetlength(result, row, column)};
}
