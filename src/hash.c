/* SPDX-License-Identifier: MIT */
#include "hash.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

/* One compression round for each 8 bytes and three at the end (SipHash-1-3): enough for a hash
 * table whose hashes nobody outside gets to see. */
enum { FINAL_ROUNDS = 3 };

static uint8_t process_key[16];

static inline uint64_t rotate(uint64_t x, unsigned bits)
{
    return x << bits | x >> (64 - bits);
}

static inline uint64_t read_le64(const uint8_t *bytes)
{
    uint64_t word;
    memcpy(&word, bytes, sizeof(word));
    return le64toh(word);
}

static inline void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[2] += v[3];
    v[1] = rotate(v[1], 13) ^ v[0];
    v[3] = rotate(v[3], 16) ^ v[2];
    v[0] = rotate(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = rotate(v[1], 17) ^ v[2];
    v[3] = rotate(v[3], 21) ^ v[0];
    v[2] = rotate(v[2], 32);
}

static inline void absorb(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    sip_round(v);
    v[0] ^= word;
}

void hash_seed(void)
{
    ssize_t got;
    do
        got = getrandom(process_key, sizeof(process_key), 0);
    while (got < 0 && errno == EINTR);
    /* A request of up to 256 bytes is answered whole (getrandom(2)), and a kernel without the call
     * is older than anything foldd runs on. */
    if (got != (ssize_t)sizeof(process_key)) {
        fputs("foldd: no random bytes from the system\n", stderr);
        abort();
    }
}

uint64_t hash_siphash13(const void *bytes, size_t len, const uint8_t key[16])
{
    const uint8_t *in = bytes;
    uint64_t k0 = read_le64(key);
    uint64_t k1 = read_le64(key + 8);
    uint64_t v[4] = {k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261,
                     k1 ^ 0x7465646279746573};
    size_t whole = len & ~(size_t)7;
    for (size_t i = 0; i < whole; i += 8)
        absorb(v, read_le64(in + i));
    uint64_t last = (uint64_t)len << 56;
    for (size_t i = whole; i < len; i++)
        last |= (uint64_t)in[i] << (8 * (i - whole));
    absorb(v, last);
    v[2] ^= 0xff;
    for (int i = 0; i < FINAL_ROUNDS; i++)
        sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

uint64_t hash_bytes(const void *bytes, size_t len)
{
    return hash_siphash13(bytes, len, process_key);
}
