/* Sectors and bank conflicts of one warp's access: the figures of the lessons. */
#include "explain/access.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "h200_wavefronts.h"

#define BASE 0x10000

static struct access strided(uint64_t base, uint64_t stride_bytes, uint32_t bytes)
{
    struct access access = {.active = UINT32_MAX, .bytes = bytes};
    for (uint32_t lane = 0; lane < ACCESS_LANES; lane++)
        access.address[lane] = base + lane * stride_bytes;
    return access;
}

static uint32_t sectors(uint64_t base, uint64_t stride_bytes, uint32_t bytes)
{
    struct access access = strided(base, stride_bytes, bytes);
    return access_sectors(&access);
}

static struct access_banks banks(uint64_t stride_bytes, uint32_t bytes)
{
    struct access access = strided(BASE, stride_bytes, bytes);
    return access_banks(&access);
}

static void neighbouring_floats_take_four_sectors_and_five_when_shifted(void **state)
{
    (void)state;
    assert_int_equal(sectors(BASE, 4, 4), 4);
    assert_int_equal(sectors(BASE + 4, 4, 4), 5);
    assert_int_equal(sectors(BASE, 1, 1), 1);
    assert_int_equal(sectors(BASE, 2, 2), 2);
    assert_int_equal(sectors(BASE, 8, 8), 8);
    assert_int_equal(sectors(BASE, 16, 16), 16);
}

static void far_lanes_take_a_sector_each_and_one_address_takes_one(void **state)
{
    (void)state;
    assert_int_equal(sectors(BASE, 8, 4), 8);
    assert_int_equal(sectors(BASE, 16, 4), 16);
    assert_int_equal(sectors(BASE, 32, 4), 32);
    assert_int_equal(sectors(BASE, 4096, 4), 32);
    assert_int_equal(sectors(BASE, 0, 4), 1);
}

static void only_active_lanes_count(void **state)
{
    (void)state;
    struct access access = strided(BASE, 32, 4);
    access.active = 0x0000FF01;
    assert_int_equal(access_sectors(&access), 9);
    assert_int_equal(access_banks(&access).degree, 3); /* of lanes 0, 8, 12 in bank 0, say */
    access.active = 0;
    assert_int_equal(access_sectors(&access), 0);
    assert_int_equal(access_banks(&access).degree, 0);
    assert_int_equal(access_banks(&access).parts, 0);
}

static uint32_t gcd(uint32_t a, uint32_t b)
{
    return b == 0 ? a : gcd(b, a % b);
}

static void a_stride_of_words_conflicts_by_its_divisor_of_32(void **state)
{
    (void)state;
    for (uint32_t stride = 1; stride <= 256; stride++)
        assert_int_equal(banks(4 * stride, 4).degree, gcd(stride, 32));
    assert_int_equal(banks(4 * 33, 4).degree, 1);
}

static void one_word_for_all_is_a_broadcast_and_no_conflict(void **state)
{
    (void)state;
    assert_int_equal(banks(0, 4).degree, 1);
    struct access access = strided(BASE, 0, 4);
    for (uint32_t lane = 16; lane < 32; lane++)
        access.address[lane] = BASE + 128; /* the same bank, another word */
    assert_int_equal(access_banks(&access).degree, 2);
    access = strided(BASE, 1, 1); /* four lanes per word */
    assert_int_equal(access_banks(&access).degree, 1);
}

static void wide_accesses_are_counted_per_half_and_quarter_warp(void **state)
{
    (void)state;
    struct access_banks eight = banks(8, 8), sixteen = banks(16, 16);
    assert_int_equal(eight.degree, 1);
    assert_int_equal(eight.parts, 2);
    assert_int_equal(eight.wavefronts, 2);
    assert_int_equal(sixteen.degree, 1);
    assert_int_equal(sixteen.parts, 4);
    assert_int_equal(sixteen.wavefronts, 4);
    /* Rows of 32 words: 8 lanes of a quarter all begin in bank 0. */
    assert_int_equal(banks(128, 16).degree, 8);
    assert_int_equal(banks(128, 8).degree, 16);
    /* Padded by 4 words they do not meet. */
    assert_int_equal(banks(128 + 16, 16).degree, 1);
}

/* Pairs of lanes with one address, and what a store makes of the same. */
static void loads_of_paired_lanes_are_served_together(void **state)
{
    (void)state;
    struct access access = strided(BASE, 0, 16);
    assert_int_equal(access_banks(&access).wavefronts, 2);
    assert_int_equal(access_banks(&access).degree, 1);
    access.is_store = true;
    assert_int_equal(access_banks(&access).wavefronts, 4);
}

static void passes_are_those_that_were_counted_on_an_h200(void **state)
{
    (void)state;
    size_t count = sizeof h200_wavefronts / sizeof h200_wavefronts[0];
    for (size_t i = 0; i < count; i++) {
        struct access access = {.active = UINT32_MAX, .bytes = h200_wavefronts[i].bytes};
        for (uint32_t lane = 0; lane < ACCESS_LANES; lane++)
            access.address[lane] = BASE + 4u * h200_wavefronts[i].word[lane];
        assert_int_equal(access_banks(&access).wavefronts, h200_wavefronts[i].load);
        access.is_store = true;
        assert_int_equal(access_banks(&access).wavefronts, h200_wavefronts[i].store);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(neighbouring_floats_take_four_sectors_and_five_when_shifted),
        cmocka_unit_test(far_lanes_take_a_sector_each_and_one_address_takes_one),
        cmocka_unit_test(only_active_lanes_count),
        cmocka_unit_test(a_stride_of_words_conflicts_by_its_divisor_of_32),
        cmocka_unit_test(one_word_for_all_is_a_broadcast_and_no_conflict),
        cmocka_unit_test(wide_accesses_are_counted_per_half_and_quarter_warp),
        cmocka_unit_test(loads_of_paired_lanes_are_served_together),
        cmocka_unit_test(passes_are_those_that_were_counted_on_an_h200),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
