/* SPDX-License-Identifier: MIT */
/*
 * hash: SipHash-1-3 with a key drawn at start, as uthash's HASH_FUNCTION.
 *
 * Keys of our tables come from clients; with a secret key nobody can choose keys that collide.
 * Include this file instead of <uthash.h>.
 */
#ifndef FOLDD_HASH_H
#define FOLDD_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* Draw the key from the system's random source. Before this call the key is all zeros. */
void hash_seed(void);

/* SipHash-1-3 of the bytes under a given key (for the test vectors). */
uint64_t hash_siphash13(const void *bytes, size_t len, const uint8_t key[16]);

/* The same under the process's key. */
uint64_t hash_bytes(const void *bytes, size_t len);

#define HASH_FUNCTION(keyptr, keylen, hashv)                                                       \
    ((hashv) = (unsigned)hash_bytes((keyptr), (size_t)(keylen)))
#define uthash_fatal(msg) abort()
#include <uthash.h>

#endif
