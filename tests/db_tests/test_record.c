#include "tuning_db/record.h"

#include "rows.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define HEADER_BYTES 20

static const float some_ns[] = {1.5f, 2.25f, 1e9f};

static struct sample full_sample(void)
{
    struct sample sample = full_row();
    sample.key = (struct record_key){"gemm", "fp", "M=1", "f32", "sm_90", "cold"};
    sample.config = "BM=64";
    sample.outcome = OUTCOME_WRONG_RESULT;
    sample.hi_ns = 10.75;
    sample.samples_ns = some_ns;
    sample.same_as = "BM=32";
    sample.detail = "12 of 64 values differ, Zeile \xC3\xBC";
    sample.max_error = 0.125;
    sample.extra = "{\"later\":1}";
    return sample;
}

static struct best full_best(void)
{
    static const char *ties[] = {"BM=32", ""};
    return (struct best){.key = {"gemm", "fp", "M=1", "f32", "sm_90", "cold"},
        .config = "BM=64",
        .gpu_name = "NVIDIA H200",
        .gpu_uuid = "GPU-1",
        .host = "node-1",
        .nvrtc = "13.0",
        .run = "7/confirm",
        .method = "event",
        .driver = 13000,
        .sms = 132,
        .is_confirmed = true,
        .median_ns = 10.5,
        .lo_ns = 10.25,
        .hi_ns = 10.75,
        .default_median_ns = 12,
        .sample_count = 25,
        .time_unix_ms = 1700000000000,
        .tie_count = 2,
        .ties = ties};
}

/* Makes the header fit a changed payload, as a writer of another version would have. */
static void reseal(uint8_t *bytes, size_t length)
{
    uint32_t payload_bytes = (uint32_t)(length - HEADER_BYTES);
    uint64_t hash = XXH3_64bits(bytes + HEADER_BYTES, payload_bytes);
    for (int i = 0; i < 4; i++)
        bytes[8 + i] = (uint8_t)(payload_bytes >> (8 * i));
    for (int i = 0; i < 8; i++)
        bytes[12 + i] = (uint8_t)(hash >> (8 * i));
}

static void a_sample_comes_back_in_every_field(void **state)
{
    (void)state;
    struct sample in = full_sample(), out;
    size_t length;
    void *bytes = sample_encode(&in, &length);
    assert_int_equal(sample_decode(bytes, length, &out, NULL), 0);
    free(bytes); /* the decoded sample stands alone */
    assert_true(record_key_equal(&in.key, &out.key));
    assert_string_equal(out.config, in.config);
    assert_string_equal(out.gpu_uuid, in.gpu_uuid);
    assert_string_equal(out.run, in.run);
    assert_int_equal(out.outcome, in.outcome);
    assert_true(out.is_final && out.is_confirmed && out.is_default && out.is_refused);
    assert_true(out.via_ptx);
    assert_int_equal(out.attempts, 2);
    assert_string_equal(out.method, "graph");
    assert_true(out.median_ns == 10.5 && out.lo_ns == 10.25 && out.hi_ns == 10.75);
    assert_int_equal(out.sample_count, 3);
    assert_memory_equal(out.samples_ns, some_ns, sizeof some_ns);
    assert_int_equal((uintptr_t)out.samples_ns % _Alignof(float), 0);
    assert_int_equal(out.registers, 128);
    assert_int_equal(out.spill_bytes, 16);
    assert_int_equal(out.static_shared_bytes, 1024);
    assert_int_equal(out.dynamic_shared_bytes, 49152);
    assert_string_equal(out.same_as, in.same_as);
    assert_string_equal(out.detail, in.detail);
    assert_string_equal(out.log_id, in.log_id);
    assert_string_equal(out.gpu_name, in.gpu_name);
    assert_string_equal(out.host, in.host);
    assert_string_equal(out.nvrtc, in.nvrtc);
    assert_string_equal(out.method_note, in.method_note);
    assert_int_equal(out.driver, 13000);
    assert_int_equal(out.sms, 132);
    assert_int_equal(out.time_unix_ms, -5);
    assert_int_equal(out.sm_clock_mhz, 1980);
    assert_int_equal(out.memory_clock_mhz, 3201);
    assert_int_equal(out.temperature_c, 40);
    assert_true(out.throttle_reasons == UINT64_MAX);
    assert_true(out.seed == in.seed);
    assert_true(out.max_error == 0.125);
    sample_finish(&out);
    sample_finish(&out); /* harmless */
}

static void a_best_comes_back_in_every_field(void **state)
{
    (void)state;
    struct best in = full_best(), out;
    size_t length;
    void *bytes = best_encode(&in, &length);
    assert_int_equal(best_decode(bytes, length, &out, NULL), 0);
    free(bytes);
    assert_true(record_key_equal(&in.key, &out.key));
    assert_string_equal(out.config, in.config);
    assert_string_equal(out.gpu_name, in.gpu_name);
    assert_string_equal(out.gpu_uuid, in.gpu_uuid);
    assert_string_equal(out.host, in.host);
    assert_string_equal(out.nvrtc, in.nvrtc);
    assert_string_equal(out.run, in.run);
    assert_string_equal(out.method, in.method);
    assert_int_equal(out.driver, 13000);
    assert_int_equal(out.sms, 132);
    assert_true(out.is_confirmed);
    assert_true(out.median_ns == 10.5 && out.lo_ns == 10.25 && out.hi_ns == 10.75);
    assert_true(out.default_median_ns == 12);
    assert_int_equal(out.sample_count, 25);
    assert_int_equal(out.time_unix_ms, 1700000000000);
    assert_int_equal(out.tie_count, 2);
    assert_string_equal(out.ties[0], "BM=32");
    assert_string_equal(out.ties[1], "");
    best_finish(&out);
    best_finish(&out);
}

static void absent_texts_are_stored_as_empty_ones(void **state)
{
    (void)state;
    struct sample in = {.outcome = OUTCOME_INVALID}, out;
    size_t length;
    void *bytes = sample_encode(&in, &length);
    assert_int_equal(sample_decode(bytes, length, &out, NULL), 0);
    assert_string_equal(out.key.kernel, "");
    assert_string_equal(out.detail, "");
    assert_int_equal(out.sample_count, 0);
    free(bytes);
    sample_finish(&out);
}

/* If this fails the format has changed: raise RECORD_VERSION, or old databases are lost; but not
 * for fields added at the end. */
static void the_bytes_of_a_record_stay_what_they_were(void **state)
{
    (void)state;
    struct sample sample = full_sample();
    struct best best = full_best();
    size_t length;
    void *bytes = sample_encode(&sample, &length);
    assert_int_equal(length, 380);
    assert_true(XXH3_64bits(bytes, length) == 0x2415a63c822c1024u);
    free(bytes);
    bytes = best_encode(&best, &length);
    assert_int_equal(length, 223);
    assert_true(XXH3_64bits(bytes, length) == 0x75b9e39b85b28da6u);
    free(bytes);
    static const uint8_t pinned[16] = {0x0f, 0xe3, 0xe3, 0x2b, 0x51, 0x11, 0xac, 0x5b, 0xb2, 0xfe,
        0x05, 0x6e, 0xe1, 0x0d, 0x50, 0x03};
    struct record_hash hash = record_key_hash(&sample.key);
    assert_memory_equal(hash.bytes, pinned, sizeof pinned);
}

static void every_cut_of_a_record_is_seen(void **state)
{
    (void)state;
    struct sample in = full_sample(), out;
    size_t length;
    uint8_t *bytes = sample_encode(&in, &length);
    for (size_t cut = 0; cut < length; cut++) {
        struct tune_error err = {.code = TUNE_OK};
        uint8_t *part = malloc(cut + 1); /* its own block, so that a read too far is seen */
        memcpy(part, bytes, cut);
        assert_int_equal(sample_decode(part, cut, &out, &err), -1);
        assert_int_equal(err.code, TUNE_EDAMAGED);
        free(part);
    }
    free(bytes);
}

static void every_flipped_bit_of_a_record_is_seen(void **state)
{
    (void)state;
    struct sample sample = full_sample(), sample_out;
    struct best best = full_best(), best_out;
    size_t length;
    uint8_t *bytes = sample_encode(&sample, &length);
    for (size_t bit = 0; bit < 8 * length; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        assert_int_equal(sample_decode(bytes, length, &sample_out, NULL), -1);
        bytes[bit / 8] ^= (uint8_t)(1u << (bit % 8));
    }
    free(bytes);
    bytes = best_encode(&best, &length);
    for (size_t bit = 0; bit < 8 * length; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        assert_int_equal(best_decode(bytes, length, &best_out, NULL), -1);
        bytes[bit / 8] ^= (uint8_t)(1u << (bit % 8));
    }
    free(bytes);
}

/* The checksum holds and the content is nonsense: lengths and counts are not to be trusted. */
static void nonsense_under_a_right_checksum_is_refused_or_read_safely(void **state)
{
    (void)state;
    struct sample sample = full_sample(), sample_out;
    struct best best = full_best(), best_out;
    size_t length;
    unsigned seed = 1;
    for (int round = 0; round < 20000; round++) {
        uint8_t *bytes = round % 2 ? sample_encode(&sample, &length) : best_encode(&best, &length);
        for (int i = 0; i < 1 + round % 4; i++)
            bytes[HEADER_BYTES + (size_t)rand_r(&seed) % (length - HEADER_BYTES)] =
                (uint8_t)rand_r(&seed);
        reseal(bytes, length);
        if (round % 2 && sample_decode(bytes, length, &sample_out, NULL) == 0) {
            assert_true(strlen(sample_out.detail) < length);
            sample_finish(&sample_out);
        } else if (!(round % 2) && best_decode(bytes, length, &best_out, NULL) == 0) {
            assert_true(best_out.tie_count < length);
            best_finish(&best_out);
        }
        free(bytes);
    }
}

static void fields_of_a_newer_program_are_passed_over(void **state)
{
    (void)state;
    struct sample in = full_sample(), out;
    size_t length;
    uint8_t *bytes = sample_encode(&in, &length);
    bytes = realloc(bytes, length + 5);
    memcpy(bytes + length, "later", 5);
    reseal(bytes, length + 5);
    assert_int_equal(sample_decode(bytes, length + 5, &out, NULL), 0);
    assert_true(out.max_error == 0.125);
    sample_finish(&out);
    free(bytes);
}

static void fields_that_an_older_program_did_not_write_are_zero(void **state)
{
    (void)state;
    struct sample in = full_sample(), out;
    size_t length;
    uint8_t *bytes = sample_encode(&in, &length);
    length -= 4 + strlen(in.extra) + 1;
    reseal(bytes, length);
    assert_int_equal(sample_decode(bytes, length, &out, NULL), 0);
    assert_string_equal(out.extra, "");
    assert_int_equal(out.sms, in.sms);
    sample_finish(&out);
    reseal(bytes, length - 4); /* without sms too */
    assert_int_equal(sample_decode(bytes, length - 4, &out, NULL), 0);
    assert_int_equal(out.sms, 0);
    assert_true(out.max_error == in.max_error);
    sample_finish(&out);
    reseal(bytes, length - 5); /* half of max_error: that was no version */
    assert_int_equal(sample_decode(bytes, length - 5, &out, NULL), -1);
    free(bytes);
    struct best best = full_best(), best_out;
    for (best.tie_count = 2; best.tie_count != SIZE_MAX; best.tie_count--) {
        bytes = best_encode(&best, &length);
        reseal(bytes, length - 4);
        assert_int_equal(best_decode(bytes, length - 4, &best_out, NULL), 0);
        assert_int_equal(best_out.sms, 0);
        assert_int_equal(best_out.tie_count, best.tie_count);
        best_finish(&best_out);
        free(bytes);
    }
}

static void another_version_is_called_so(void **state)
{
    (void)state;
    struct sample in = full_sample(), out;
    struct tune_error err = {.code = TUNE_OK};
    size_t length;
    uint8_t *bytes = sample_encode(&in, &length);
    bytes[4] = RECORD_VERSION + 1;
    assert_int_equal(sample_decode(bytes, length, &out, &err), -1);
    assert_int_equal(err.code, TUNE_EVERSION);
    free(bytes);
}

static void a_record_of_one_kind_is_not_read_as_another(void **state)
{
    (void)state;
    struct sample in = full_sample();
    struct best out;
    struct tune_error err = {.code = TUNE_OK};
    size_t length;
    void *bytes = sample_encode(&in, &length);
    assert_int_equal(best_decode(bytes, length, &out, &err), -1);
    assert_int_equal(err.code, TUNE_EDAMAGED);
    free(bytes);
}

static void a_blob_comes_back_and_may_be_empty(void **state)
{
    (void)state;
    size_t length, count;
    const void *payload;
    void *bytes = blob_encode("cubin\0more", 10, &length);
    assert_int_equal(blob_decode(bytes, length, &payload, &count, NULL), 0);
    assert_int_equal(count, 10);
    assert_memory_equal(payload, "cubin\0more", 10);
    free(bytes);
    bytes = blob_encode(NULL, 0, &length);
    assert_int_equal(blob_decode(bytes, length, &payload, &count, NULL), 0);
    assert_int_equal(count, 0);
    free(bytes);
}

static void keys_that_run_together_hash_apart(void **state)
{
    (void)state;
    struct record_key a = {"ab", "c", "", "", "", ""}, b = {"a", "bc", "", "", "", ""};
    struct record_hash first = record_key_hash(&a), second = record_key_hash(&b);
    assert_memory_not_equal(first.bytes, second.bytes, sizeof first.bytes);
    assert_false(record_key_equal(&a, &b));
}

static void the_order_is_confirmed_then_upper_bound_then_text(void **state)
{
    (void)state;
    struct sample a = full_sample(), b = full_sample();
    assert_int_equal(sample_compare(&a, &b), 0);
    b.run = "8/search";
    assert_true(sample_compare(&a, &b) < 0);
    b.config = "BM=128"; /* before "BM=64" as a text, and that outweighs the run */
    assert_true(sample_compare(&a, &b) > 0);
    b.hi_ns = a.hi_ns + 1;
    assert_true(sample_compare(&a, &b) < 0);
    b.hi_ns = a.hi_ns - 1;
    assert_true(sample_compare(&a, &b) > 0);
    b.is_confirmed = false;
    assert_true(sample_compare(&a, &b) < 0);
    assert_true(sample_compare(&b, &a) > 0);
}

static void only_a_sound_success_is_eligible(void **state)
{
    (void)state;
    struct sample good = full_sample(), bad;
    good.outcome = OUTCOME_OK;
    good.is_refused = false;
    good.lo_ns = 1025, good.median_ns = 1050, good.hi_ns = 1075;
    assert_true(sample_is_eligible(&good));
    for (int outcome = 0; outcome < OUTCOME_COUNT; outcome++) {
        bad = good; /* a failure that carries a fine time */
        bad.outcome = (enum outcome)outcome;
        assert_int_equal(sample_is_eligible(&bad), outcome == OUTCOME_OK);
    }
    bad = good, bad.is_final = false;
    assert_false(sample_is_eligible(&bad));
    bad = good, bad.is_refused = true;
    assert_false(sample_is_eligible(&bad));
    bad = good, bad.median_ns = NAN;
    assert_false(sample_is_eligible(&bad));
    bad = good, bad.hi_ns = INFINITY;
    assert_false(sample_is_eligible(&bad));
    bad = good, bad.lo_ns = bad.median_ns = bad.hi_ns = 0;
    assert_false(sample_is_eligible(&bad));
    bad = good, bad.lo_ns = -1;
    assert_false(sample_is_eligible(&bad));
    bad = good, bad.lo_ns = bad.median_ns + 1;
    assert_false(sample_is_eligible(&bad));
}

static void a_time_that_no_gpu_reaches_is_not_eligible(void **state)
{
    (void)state;
    struct sample sample = full_sample();
    sample.outcome = OUTCOME_OK;
    sample.is_refused = false;
    static const double times_ns[] = {1e-9, 1, 199.9, RECORD_MIN_NS};
    for (size_t i = 0; i < 4; i++) {
        sample.key.arch = "sm_90";
        sample.lo_ns = sample.median_ns = sample.hi_ns = times_ns[i];
        assert_int_equal(sample_is_eligible(&sample), i == 3);
        sample.key.arch = "cpu"; /* the emulator's clock is its own */
        assert_true(sample_is_eligible(&sample));
    }
}

static void each_outcome_has_its_word(void **state)
{
    (void)state;
    enum outcome outcome;
    for (int i = 0; i < OUTCOME_COUNT; i++) {
        assert_int_equal(outcome_from_word(outcome_word((enum outcome)i), &outcome), 0);
        assert_int_equal(outcome, i);
    }
    assert_int_equal(outcome_from_word("fine", &outcome), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sample_comes_back_in_every_field),
        cmocka_unit_test(a_best_comes_back_in_every_field),
        cmocka_unit_test(absent_texts_are_stored_as_empty_ones),
        cmocka_unit_test(the_bytes_of_a_record_stay_what_they_were),
        cmocka_unit_test(every_cut_of_a_record_is_seen),
        cmocka_unit_test(every_flipped_bit_of_a_record_is_seen),
        cmocka_unit_test(nonsense_under_a_right_checksum_is_refused_or_read_safely),
        cmocka_unit_test(fields_of_a_newer_program_are_passed_over),
        cmocka_unit_test(fields_that_an_older_program_did_not_write_are_zero),
        cmocka_unit_test(another_version_is_called_so),
        cmocka_unit_test(a_record_of_one_kind_is_not_read_as_another),
        cmocka_unit_test(a_blob_comes_back_and_may_be_empty),
        cmocka_unit_test(keys_that_run_together_hash_apart),
        cmocka_unit_test(the_order_is_confirmed_then_upper_bound_then_text),
        cmocka_unit_test(only_a_sound_success_is_eligible),
        cmocka_unit_test(a_time_that_no_gpu_reaches_is_not_eligible),
        cmocka_unit_test(each_outcome_has_its_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
