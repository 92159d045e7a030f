/* SPDX-License-Identifier: MIT */
#include "hash.h"

#include <stdio.h>
#include <string.h>

#include "mem.h"
#include "unit.h"

/* SipHash-1-3 of the bytes 0, 1, ..., len - 1 under the key 0, 1, ..., 15, for len 0 to 63. They
 * come from a separate implementation that agrees with CPython's hash() of bytes for three keys. */
static const uint64_t vectors[64] = {
    0xabac0158050fc4dc, 0xc9f49bf37d57ca93, 0x82cb9b024dc7d44d, 0x8bf80ab8e7ddf7fb,
    0xcf75576088d38328, 0xdef9d52f49533b67, 0xc50d2b50c59f22a7, 0xd3927d989bb11140,
    0x369095118d299a8e, 0x25a48eb36c063de4, 0x79de85ee92ff097f, 0x70c118c1f94dc352,
    0x78a384b157b4d9a2, 0x306f760c1229ffa7, 0x605aa111c0f95d34, 0xd320d86d2a519956,
    0xcc4fdd1a7d908b66, 0x9cf2689063dbd80c, 0x8ffc389cb473e63e, 0xf21f9de58d297d1c,
    0xc0dc2f46a6cce040, 0xb992abfe2b45f844, 0x7ffe7b9ba320872e, 0x525a0e7fdae6c123,
    0xf464aeb267349c8c, 0x45cd5928705b0979, 0x3a3e35e3ca9913a5, 0xa91dc74e4ade3b35,
    0xfb0bed02ef6cd00d, 0x88d93cb44ab1e1f4, 0x540f11d643c5e663, 0x2370dd1f8c21d1bc,
    0x81157b6c16a7b60d, 0x4d54b9e57a8ff9bf, 0x759f12781f2a753e, 0xcea1a3bebf186b91,
    0x2cf508d3ada26206, 0xb6101c2da3c33057, 0xb3f47496ae3a36a1, 0x626b57547b108392,
    0xc1d2363299e41531, 0x667cc1923f1ad944, 0x65704ffec8138825, 0x24f280d1c28949a6,
    0xc2ca1cedfaf8876b, 0xc2164bfc9f042196, 0xa16e9c9368b1d623, 0x49fb169c8b5114fd,
    0x9f3143f8df074c46, 0xc6fdaf2412cc86b3, 0x7eaf49d10a52098f, 0x1cf313559d292f9a,
    0xc44a30dda2f41f12, 0x36fae98943a71ed0, 0x318fb34c73f0bce6, 0xa27abf3670a7e980,
    0xb4bcc0db243c6d75, 0x23f8d852fdb71513, 0x8f035f4da67d8a08, 0xd89cd0e5b7e8f148,
    0xf6f4e6bcf7a644ee, 0xaec59ad80f1837f2, 0xc3b2f6154b6694e0, 0x9d199062b7bbb3a8,
};

START_TEST(agrees_with_the_vectors)
{
    uint8_t key[16];
    for (size_t i = 0; i < sizeof(key); i++)
        key[i] = (uint8_t)i;
    for (size_t len = 0; len < 64; len++) {
        /* Of the exact size and at every alignment, for the sanitizers. */
        size_t shift = len % 8;
        uint8_t *bytes = mem_alloc(shift + len);
        for (size_t i = 0; i < len; i++)
            bytes[shift + i] = (uint8_t)i;
        ck_assert_uint_eq(hash_siphash13(bytes + shift, len, key), vectors[len]);
        free(bytes);
    }
}
END_TEST

START_TEST(the_key_is_zero_until_it_is_drawn)
{
    static const uint8_t zero[16];
    ck_assert_uint_eq(hash_bytes("", 0), UINT64_C(0xd1fba762150c532c));
    ck_assert_uint_eq(hash_bytes("document", 8), hash_siphash13("document", 8, zero));
    hash_seed();
    uint64_t first = hash_bytes("document", 8);
    ck_assert_uint_ne(first, hash_siphash13("document", 8, zero));
    ck_assert_uint_eq(first, hash_bytes("document", 8));
    hash_seed();
    ck_assert_uint_ne(first, hash_bytes("document", 8));
}
END_TEST

struct item {
    UT_hash_handle hh;
    int value;
    char key[16];
};

START_TEST(carries_a_uthash_table)
{
    struct item *table = NULL;
    hash_seed();
    for (int i = 0; i < 1000; i++) {
        struct item *item = mem_zalloc(sizeof(*item));
        item->value = i;
        snprintf(item->key, sizeof(item->key), "document-%d", i);
        HASH_ADD_STR(table, key, item);
        ck_assert_uint_eq(item->hh.hashv, (unsigned)hash_bytes(item->key, strlen(item->key)));
    }
    struct item *found;
    HASH_FIND_STR(table, "document-617", found);
    ck_assert_ptr_nonnull(found);
    ck_assert_int_eq(found->value, 617);
    HASH_FIND_STR(table, "document-1000", found);
    ck_assert_ptr_null(found);
    struct item *next;
    HASH_ITER(hh, table, found, next) {
        HASH_DEL(table, found);
        free(found);
    }
    ck_assert_ptr_null(table);
}
END_TEST

Suite *hash_suite(void)
{
    Suite *suite = suite_create("hash");
    TCase *tcase = tcase_create("hash");
    tcase_add_test(tcase, the_key_is_zero_until_it_is_drawn);
    tcase_add_test(tcase, agrees_with_the_vectors);
    tcase_add_test(tcase, carries_a_uthash_table);
    suite_add_tcase(suite, tcase);
    return suite;
}
