/* kernels_src/harness.cu on the emulator: what it fills, and what it calls equal. */
#include "daemon/worker/harness.h"
#include "worker_driver.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define N 5000

static struct gpu gpu;
static struct harness harness;
static struct verdict verdict;

static struct buffer make(const char *name, const char *dtype, const char *fill, uint64_t count)
{
    struct buffer buffer = {.name = (char *)name, .count = count, .role = KIND_IN};
    unsigned long long base = 0;
    assert_int_equal(harness_dtype(dtype, &buffer.dtype), 0);
    assert_int_equal(harness_fill_kind(fill, &buffer.fill), 0);
    buffer.bytes = count * (uint64_t)harness_dtype_bytes(buffer.dtype);
    assert_int_equal(gpu.api.cuMemAlloc(&base, buffer.bytes + 4 * BUFFER_GUARD_BYTES), 0);
    buffer.pointer = base + BUFFER_GUARD_BYTES;
    return buffer;
}

static void drop(struct buffer *buffer)
{
    gpu.api.cuMemFree(buffer->pointer - BUFFER_GUARD_BYTES);
}

static void fill(struct buffer *buffer, uint64_t seed, uint64_t stream)
{
    assert_int_equal(harness_fill_buffer(&harness, &gpu, buffer, seed, stream, &verdict), 0);
    assert_int_equal(gpu_wait(&gpu, "filling", &verdict), 0);
}

static double at(const struct buffer *buffer, uint64_t index)
{
    unsigned char element[8];
    size_t bytes = (size_t)harness_dtype_bytes(buffer->dtype);
    gpu.api.cuMemcpyDtoH(element, buffer->pointer + index * bytes, bytes);
    return harness_value(buffer->dtype, element);
}

static void uniform_floats_lie_in_their_range_in_every_type(void **state)
{
    (void)state;
    static const char *const dtypes[] = {"f64", "f32", "f16", "bf16", "tf32"};
    for (size_t d = 0; d < 5; d++) {
        struct buffer buffer = make("x", dtypes[d], "uniform", N);
        double sum = 0, squares = 0;
        fill(&buffer, 7, 1);
        for (uint64_t i = 0; i < N; i++) {
            double x = at(&buffer, i);
            assert_true(x > -1 && x < 1); /* -1 without 1 would shift the mean */
            sum += x;
            squares += x * x;
        }
        assert_true(fabs(sum / N) < 0.05); /* six sigma of the mean: 0.049 */
        assert_true(fabs(squares / N - 1.0 / 3) < 0.03);
        drop(&buffer);
    }
}

static void seeds_and_streams_give_other_values_and_repeat(void **state)
{
    (void)state;
    struct buffer buffer = make("x", "f32", "uniform", N);
    uint64_t sums[4], seeds[4][2] = {{1, 1}, {2, 1}, {1, 2}, {1, 1}};
    for (int i = 0; i < 4; i++) {
        fill(&buffer, seeds[i][0], seeds[i][1]);
        assert_int_equal(harness_checksum(&harness, &gpu, &buffer, &sums[i], &verdict), 0);
    }
    assert_true(sums[0] != sums[1] && sums[0] != sums[2] && sums[1] != sums[2]);
    assert_true(sums[0] == sums[3]);
    drop(&buffer);
}

static void small_integers_and_counting_are_exact(void **state)
{
    (void)state;
    static const char *const dtypes[] = {
        "f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8"};
    for (size_t d = 0; d < sizeof(dtypes) / sizeof(*dtypes); d++) {
        struct buffer small = make("x", dtypes[d], "small_int", N);
        struct buffer index = make("i", dtypes[d], "index", 100);
        bool is_unsigned = dtypes[d][0] == 'u';
        fill(&small, 3, 1);
        fill(&index, 3, 1);
        for (uint64_t i = 0; i < 300; i++) {
            double x = at(&small, i);
            assert_true(
                x == floor(x) && x >= (is_unsigned ? 0 : -8) && x <= (is_unsigned ? 15 : 7));
        }
        for (uint64_t i = 0; i < 100; i++)
            assert_true(at(&index, i) == (double)i);
        drop(&small);
        drop(&index);
    }
}

/* Every one of the numbers comes, about as often as the others, and none outside; the same whatever
 * the type. */
static void numbers_below_a_bound_are_even_and_within(void **state)
{
    (void)state;
    static const char *const dtypes[] = {
        "f64", "f32", "f16", "bf16", "tf32", "i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8"};
    static const unsigned bounds[] = {1, 2, 7, 100};
    for (size_t d = 0; d < sizeof(dtypes) / sizeof(*dtypes); d++)
        for (size_t b = 0; b < 4; b++) {
            struct buffer buffer = make("x", dtypes[d], "below", N);
            struct buffer doubles = make("y", "f64", "below", N);
            unsigned counts[100] = {0}, bound = bounds[b];
            buffer.fill_value = doubles.fill_value = bound;
            fill(&buffer, 11, 2);
            fill(&doubles, 11, 2);
            for (uint64_t i = 0; i < N; i++) {
                double x = at(&buffer, i);
                assert_true(x == floor(x) && x >= 0 && x < bound && x == at(&doubles, i));
                counts[(unsigned)x]++;
            }
            for (unsigned v = 0; v < bound; v++) /* six standard deviations */
                assert_true(fabs(counts[v] - (double)N / bound) <= 6 * sqrt((double)N / bound));
            drop(&buffer);
            drop(&doubles);
        }
}

static void a_value_is_rounded_to_nearest_even(void **state)
{
    (void)state;
    static const struct {
        const char *dtype;
        double value, stored;
    } cases[] = {{"f16", 1.0 + 1.0 / 2048, 1.0}, {"f16", 1.0 + 3.0 / 2048, 1.0 + 2.0 / 1024},
        {"f16", 65504, 65504}, {"f16", 65520, INFINITY}, {"f16", -0.25, -0.25},
        {"f16", 0x1p-24, 0x1p-24}, {"f16", 0x3p-25, 0x1p-23}, {"f16", 0x1p-26, 0},
        {"bf16", 1.0 + 1.0 / 256, 1.0}, {"bf16", 1.0 + 3.0 / 256, 1.0 + 2.0 / 128},
        {"bf16", 3e38, 0x1.c4p127}, {"i32", -5, -5}, {"u8", 200, 200}, {"i64", -1, -1},
        {"f32", 0.1, (double)0.1f}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct buffer buffer = make("x", cases[i].dtype, "value", 3);
        buffer.fill_value = cases[i].value;
        fill(&buffer, 0, 0);
        if (at(&buffer, 2) != cases[i].stored)
            fail_msg(
                "%s: %.10g is stored as %.10g", cases[i].dtype, cases[i].value, at(&buffer, 2));
        drop(&buffer);
    }
}

/* One element against one. */
static struct comparison compare_one(const char *x_dtype, const void *x, const char *ref_dtype,
    const void *ref, double relative, double absolute)
{
    struct comparison comparison;
    struct buffer a = make("x", x_dtype, "zero", 1), b = make("r", ref_dtype, "zero", 1);
    gpu.api.cuMemcpyHtoD(a.pointer, x, a.bytes);
    gpu.api.cuMemcpyHtoD(b.pointer, ref, b.bytes);
    assert_int_equal(harness_compare(&harness, &gpu, &a, &b, NULL, relative, absolute, 0xFF,
                         &comparison, &verdict),
        0);
    drop(&a);
    drop(&b);
    return comparison;
}

static void nan_and_infinity_equal_themselves_only(void **state)
{
    (void)state;
    static const float values[] = {NAN, INFINITY, -INFINITY, 1.0f, 3e38f};
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 5; j++) {
            double ref = (double)values[j];
            struct comparison got = compare_one("f32", &values[i], "f64", &ref, 0.5, 10);
            bool is_same = i == j;
            assert_int_equal(got.bad, is_same ? 0 : 1);
            if (!is_same && (i < 3 || j < 3))
                assert_true(got.worst >= HARNESS_WORST);
        }
}

static void the_tolerance_is_absolute_plus_relative_times_scale(void **state)
{
    (void)state;
    const float x = 103.0f;
    const double ref = 100;
    assert_int_equal(compare_one("f32", &x, "f64", &ref, 0.02, 1.0).bad, 0);
    assert_int_equal(compare_one("f32", &x, "f64", &ref, 0.02, 0.9).bad, 1);
    assert_float_equal(compare_one("f32", &x, "f64", &ref, 0.01, 0.5).worst, 2.0, 1e-12);
    const float negative = -103.0f;
    const double negative_ref = -100;
    assert_int_equal(compare_one("f32", &negative, "f64", &negative_ref, 0.03, 1e-9).bad, 0);
    const float zero = 0.0f, minus_zero = -0.0f;
    assert_int_equal(compare_one("f32", &zero, "f32", &minus_zero, 0, 0).bad, 0);
}

static void large_integers_are_compared_exactly(void **state)
{
    (void)state;
    const int64_t x = INT64_MAX, ref = INT64_MAX - 1, low = INT64_MIN;
    assert_int_equal(compare_one("i64", &x, "i64", &ref, 0, 0).bad, 1);
    assert_int_equal(compare_one("i64", &x, "i64", &x, 0, 0).bad, 0);
    assert_int_equal(compare_one("i64", &x, "i64", &ref, 0, 1).bad, 0);
    assert_int_equal(compare_one("i64", &x, "i64", &low, 0, 1e10).bad, 1);
    const uint64_t most = UINT64_MAX, less = UINT64_MAX - 1;
    assert_int_equal(compare_one("u64", &most, "u64", &less, 0, 0).bad, 1);
}

static void right_elements_that_look_like_the_poison_are_counted(void **state)
{
    (void)state;
    const int32_t minus_one = -1;
    assert_int_equal(compare_one("i32", &minus_one, "i32", &minus_one, 0, 0).shadowed, 1);
    const uint8_t most = 255, other = 254;
    assert_int_equal(compare_one("u8", &most, "u8", &most, 0, 0).shadowed, 1);
    assert_int_equal(compare_one("u8", &other, "u8", &other, 0, 0).shadowed, 0);
}

static void the_first_wrong_element_and_the_last_are_found(void **state)
{
    (void)state;
    struct buffer x = make("x", "f32", "index", N), ref = make("r", "f64", "index", N);
    struct comparison comparison;
    const float wrong = -1.0f;
    fill(&x, 0, 0);
    fill(&ref, 0, 0);
    gpu.api.cuMemcpyHtoD(x.pointer + 4 * (N - 1), &wrong, 4);
    harness_compare(&harness, &gpu, &x, &ref, NULL, 0, 0, 0xFF, &comparison, &verdict);
    assert_int_equal(comparison.bad, 1);
    assert_int_equal(comparison.first, N - 1);
    gpu.api.cuMemcpyHtoD(x.pointer + 4 * 17, &wrong, 4);
    harness_compare(&harness, &gpu, &x, &ref, NULL, 0, 0, 0xFF, &comparison, &verdict);
    assert_int_equal(comparison.bad, 2);
    assert_int_equal(comparison.first, 17);
    drop(&x);
    drop(&ref);
}

static void a_checksum_sees_one_changed_byte_at_any_place(void **state)
{
    (void)state;
    struct buffer buffer = make("x", "u8", "uniform", 1003);
    uint64_t before, after;
    fill(&buffer, 1, 1);
    harness_checksum(&harness, &gpu, &buffer, &before, &verdict);
    for (uint64_t place = 0; place < 1003; place += 167) {
        unsigned char byte, other;
        gpu.api.cuMemcpyDtoH(&byte, buffer.pointer + place, 1);
        other = byte ^ 1;
        gpu.api.cuMemcpyHtoD(buffer.pointer + place, &other, 1);
        harness_checksum(&harness, &gpu, &buffer, &after, &verdict);
        assert_true(before != after);
        gpu.api.cuMemcpyHtoD(buffer.pointer + place, &byte, 1);
    }
    harness_checksum(&harness, &gpu, &buffer, &after, &verdict);
    assert_true(before == after);
    drop(&buffer);
}

static void guards_are_seen_to_their_outermost_bytes(void **state)
{
    (void)state;
    struct buffer_list list = {.count = 2};
    list.items[0] = make("first", "f32", "zero", 64);
    list.items[1] = make("second", "u8", "zero", 13);
    struct buffer *second = &list.items[1];
    const uint64_t places[] = {second->pointer - 1, second->pointer - BUFFER_GUARD_BYTES,
        second->pointer + 13, second->pointer + 256 + BUFFER_GUARD_BYTES - 1};
    for (size_t i = 0; i < 4; i++) {
        const unsigned char byte = 1;
        struct verdict found = {.outcome = NULL};
        assert_int_equal(harness_set_guards(&gpu, &list, &found), 0);
        assert_int_equal(harness_check_guards(&harness, &gpu, &list, &found), 0);
        gpu.api.cuMemcpyHtoD(places[i], &byte, 1);
        assert_int_equal(harness_check_guards(&harness, &gpu, &list, &found), -1);
        assert_non_null(strstr(found.text, "second"));
        assert_non_null(strstr(found.text, i < 2 ? "before its start" : "past its end"));
    }
    drop(&list.items[0]);
    drop(&list.items[1]);
}

/* 0; 77 where there is no emulator; 1 when it is there and does not take harness.cu. */
static int load(void)
{
    struct worker_process compiler;
    worker_start(&compiler, "compile", NULL);
    json_t *hello = worker_read(&compiler);
    if (!hello || !json_is_true(json_object_get(hello, "emulated")))
        return 77;
    char *source = read_text(TUNE_KERNELS_SRC "/harness.cu");
    json_t *answer = compile_text(&compiler, source, "cpu", NULL, NULL);
    worker_end(&compiler);
    struct libraries libraries;
    struct tune_error err = {.code = TUNE_OK};
    unsigned code;
    libraries_init(&libraries, NULL);
    int result = gpu_load(&gpu, &libraries, &code, &err);
    result = result == 0 ? gpu_select(&gpu, "0", &err) : result;
    result = result == 0 ? gpu_start(&gpu, &code, &err) : result;
    result =
        result == 0 ? harness_load(&harness, &gpu, text_of(answer, "image"), &verdict) : result;
    libraries_finish(&libraries);
    free(source);
    json_decref(hello);
    json_decref(answer);
    return result == 0 ? 0 : 1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(uniform_floats_lie_in_their_range_in_every_type),
        cmocka_unit_test(seeds_and_streams_give_other_values_and_repeat),
        cmocka_unit_test(small_integers_and_counting_are_exact),
        cmocka_unit_test(numbers_below_a_bound_are_even_and_within),
        cmocka_unit_test(a_value_is_rounded_to_nearest_even),
        cmocka_unit_test(nan_and_infinity_equal_themselves_only),
        cmocka_unit_test(the_tolerance_is_absolute_plus_relative_times_scale),
        cmocka_unit_test(large_integers_are_compared_exactly),
        cmocka_unit_test(right_elements_that_look_like_the_poison_are_counted),
        cmocka_unit_test(the_first_wrong_element_and_the_last_are_found),
        cmocka_unit_test(a_checksum_sees_one_changed_byte_at_any_place),
        cmocka_unit_test(guards_are_seen_to_their_outermost_bytes),
    };
    use_emulator(true);
    int status = load();
    if (status != 0) {
        puts(status == 77 ? "skipped: the emulator does not run" : "harness.cu does not load");
        return status;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    harness_unload(&harness, &gpu);
    gpu_stop(&gpu);
    return failed;
}
