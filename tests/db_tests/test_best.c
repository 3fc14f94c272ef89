/* The rule of best.c: a pure function of the set of samples. */
#include "fixture.h"
#include "tuning_db/best.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct sample confirmed(unsigned config, const char *run, double median_ns)
{
    struct sample sample = make_sample(config, run, median_ns);
    sample.is_confirmed = true;
    return sample;
}

/* Picks among the samples and describes the arch's row: "BM=1 default 30 ties BM=2 BM=3". */
static const char *pick(const struct sample *samples, size_t count)
{
    static char text[512];
    const struct sample *pointers[64];
    struct best_rows rows;
    for (size_t i = 0; i < count; i++)
        pointers[i] = &samples[i];
    assert_int_equal(best_rows_pick(&rows, pointers, count), 0);
    snprintf(text, sizeof text, "none");
    if (rows.count > 0) {
        const struct best *best = &rows.rows[rows.arch];
        size_t used = (size_t)snprintf(
            text, sizeof text, "%s default %.0f ties", best->config, best->default_median_ns);
        for (size_t i = 0; i < best->tie_count; i++)
            used += (size_t)snprintf(text + used, sizeof text - used, " %s", best->ties[i]);
    }
    best_rows_finish(&rows);
    return text;
}

#define PICK(...)                                                                                  \
    pick((struct sample[]){__VA_ARGS__},                                                           \
        sizeof((struct sample[]){__VA_ARGS__}) / sizeof(struct sample))

static void no_samples_make_no_best(void **state)
{
    (void)state;
    assert_string_equal(pick(NULL, 0), "none");
}

static void a_failure_is_never_best_however_fast(void **state)
{
    (void)state;
    struct sample bad = make_sample(1, "1/search", 1);
    for (int outcome = OUTCOME_OK + 1; outcome < OUTCOME_COUNT; outcome++) {
        bad.outcome = (enum outcome)outcome;
        assert_string_equal(PICK(bad), "none");
        assert_string_equal(PICK(bad, make_sample(2, "1/search", 100)), "BM=2 default 0 ties");
    }
}

static void a_confirmed_one_goes_before_a_faster_unconfirmed_one(void **state)
{
    (void)state;
    assert_string_equal(
        PICK(make_sample(1, "1/search", 10), confirmed(2, "1/confirm", 20)), "BM=2 default 0 ties");
}

static void the_newest_confirmation_of_a_configuration_counts(void **state)
{
    (void)state;
    struct sample old = confirmed(1, "1/confirm", 10), other = confirmed(2, "1/confirm", 20);
    struct sample new = confirmed(1, "2/confirm", 30);
    new.time_unix_ms = 2000;
    assert_string_equal(PICK(old, other), "BM=1 default 0 ties");
    assert_string_equal(PICK(old, other, new), "BM=2 default 0 ties");
    new.is_confirmed = false; /* a search's sample does not stand against a confirmation */
    assert_string_equal(PICK(old, other, new), "BM=1 default 0 ties");
    new.is_confirmed = true;
    new.is_refused = true; /* as if it were not there */
    assert_string_equal(PICK(old, other, new), "BM=1 default 0 ties");
}

static void a_later_failure_deposes_a_winner_on_its_gpu_only(void **state)
{
    (void)state;
    struct sample winner = confirmed(1, "1/confirm", 10), second = confirmed(2, "1/confirm", 20);
    struct sample failure = make_sample(1, "2/search", 0);
    failure.outcome = OUTCOME_WRONG_RESULT;
    failure.time_unix_ms = 2000;
    assert_string_equal(PICK(winner, second, failure), "BM=2 default 0 ties");
    failure.is_final = false; /* a first crash is no verdict */
    assert_string_equal(PICK(winner, second, failure), "BM=1 default 0 ties");
    failure.is_final = true;
    failure.gpu_uuid = "gpu-1";
    assert_string_equal(PICK(winner, second, failure), "BM=1 default 0 ties");
    failure.gpu_uuid = "gpu-0";
    failure.time_unix_ms = 500; /* an older failure has been measured away */
    assert_string_equal(PICK(winner, second, failure), "BM=1 default 0 ties");
}

static void ties_are_the_overlapping_confirmed_ones_of_the_run(void **state)
{
    (void)state;
    struct sample winner = confirmed(1, "1/confirm", 100), near = confirmed(2, "1/confirm", 101);
    struct sample nearer = confirmed(3, "1/confirm", 100.5), far = confirmed(4, "1/confirm", 110);
    struct sample elsewhere = confirmed(5, "2/confirm", 100.5);
    struct sample searched = make_sample(6, "1/search", 100.5);
    elsewhere.time_unix_ms = 500;
    struct sample other_gpu = confirmed(7, "1/confirm", 100.5);
    other_gpu.gpu_uuid = "gpu-1";
    assert_string_equal(PICK(near, winner, nearer, far, elsewhere, searched, other_gpu),
        "BM=1 default 0 ties BM=3 BM=2");
}

static void an_unconfirmed_winner_claims_no_ties(void **state)
{
    (void)state;
    assert_string_equal(PICK(make_sample(1, "1/search", 100), make_sample(2, "1/search", 100)),
        "BM=1 default 0 ties");
}

static void the_default_of_the_same_run_is_told(void **state)
{
    (void)state;
    struct sample winner = confirmed(1, "1/confirm", 100), own = confirmed(2, "1/confirm", 130);
    struct sample other = confirmed(2, "2/confirm", 150);
    own.is_default = other.is_default = true;
    assert_string_equal(PICK(winner, other), "BM=1 default 0 ties");
    assert_string_equal(PICK(winner, own, other), "BM=1 default 130 ties");
}

static void times_of_another_method_are_not_compared(void **state)
{
    (void)state;
    struct sample by_event = confirmed(1, "1/confirm", 5);
    struct sample by_graph = confirmed(2, "2/confirm", 100);
    by_graph.method = "graph";
    by_graph.time_unix_ms = 2000; /* the key has been measured anew by graphs */
    assert_string_equal(PICK(by_event, by_graph), "BM=2 default 0 ties");
}

static void each_gpu_model_has_its_row_and_the_arch_the_best_of_them(void **state)
{
    (void)state;
    struct sample samples[3] = {confirmed(1, "1/confirm", 100), confirmed(2, "1/confirm", 50),
        confirmed(3, "1/confirm", 60)};
    samples[1].gpu_name = samples[2].gpu_name = "H100";
    samples[1].gpu_uuid = samples[2].gpu_uuid = "gpu-1";
    const struct sample *pointers[3] = {&samples[0], &samples[1], &samples[2]};
    struct best_rows rows;
    assert_int_equal(best_rows_pick(&rows, pointers, 3), 0);
    assert_int_equal(rows.count, 2);
    assert_string_equal(rows.rows[rows.arch].gpu_name, "H100");
    assert_string_equal(rows.rows[rows.arch].config, "BM=2");
    assert_string_equal(rows.rows[1 - rows.arch].gpu_name, "H200");
    assert_string_equal(rows.rows[1 - rows.arch].config, "BM=1");
    best_rows_finish(&rows);
}

static void what_stands_is_one_sample_for_each_configuration_on_each_gpu(void **state)
{
    (void)state;
    struct sample samples[6] = {make_sample(1, "1/search", 90), confirmed(1, "1/confirm", 100),
        make_sample(2, "1/search", 50), make_sample(2, "2/search", 0),
        make_sample(3, "1/search", 40), make_sample(1, "3/search", 70)};
    samples[3].outcome = OUTCOME_CRASHED; /* later than the run in which it went well */
    samples[3].time_unix_ms = samples[2].time_unix_ms + 1;
    samples[4].method = "graph";
    samples[5].gpu_uuid = "gpu-1";
    const struct sample *pointers[6];
    for (size_t i = 0; i < 6; i++)
        pointers[i] = &samples[i];
    assert_int_equal(best_standing(pointers, 6), 2);
    assert_ptr_equal(pointers[0], &samples[1]);
    assert_ptr_equal(pointers[1], &samples[5]);
}

/* A random set with many equal fields, so that every tie-breaker is needed. */
static void random_samples(struct sample *samples, size_t count, uint64_t *seed)
{
    static const char *const runs[] = {"1/search", "1/confirm", "2/search", "2/confirm"};
    static const char *const uuids[] = {"gpu-0", "gpu-1"}, *const names[] = {"H100", "H200"};
    for (size_t i = 0; i < count; i++) {
        unsigned run = (unsigned)(next_random(seed) % 4), gpu = (unsigned)(next_random(seed) % 2);
        samples[i] = make_sample(
            (unsigned)(next_random(seed) % 6), runs[run], 100 + (double)(next_random(seed) % 4));
        samples[i].is_confirmed = run % 2;
        samples[i].gpu_uuid = uuids[gpu];
        samples[i].gpu_name = names[gpu];
        samples[i].is_default = next_random(seed) % 6 == 0;
        samples[i].outcome = next_random(seed) % 8 == 0 ? OUTCOME_CRASHED : OUTCOME_OK;
        samples[i].method = next_random(seed) % 8 == 0 ? "graph" : "event";
        samples[i].time_unix_ms = 1000 + (int64_t)(next_random(seed) % 3);
        /* One row for a (config, GPU, run): drop repeats by renaming their run apart. */
        for (size_t j = 0; j < i; j++) {
            if (strcmp(samples[j].config, samples[i].config) == 0 &&
                strcmp(samples[j].gpu_uuid, samples[i].gpu_uuid) == 0 &&
                strcmp(samples[j].run, samples[i].run) == 0)
                samples[i].is_refused = true;
        }
    }
}

static void the_order_of_arrival_changes_nothing(void **state)
{
    (void)state;
    uint64_t seed = 7;
    for (int round = 0; round < 2000; round++) {
        struct sample samples[24];
        char first[512];
        random_samples(samples, 24, &seed);
        snprintf(first, sizeof first, "%s", pick(samples, 24));
        for (int shuffle = 0; shuffle < 4; shuffle++) {
            for (size_t i = 23; i > 0; i--) {
                size_t j = next_random(&seed) % (i + 1);
                struct sample swap = samples[i];
                samples[i] = samples[j];
                samples[j] = swap;
            }
            assert_string_equal(pick(samples, 24), first);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_samples_make_no_best),
        cmocka_unit_test(a_failure_is_never_best_however_fast),
        cmocka_unit_test(a_confirmed_one_goes_before_a_faster_unconfirmed_one),
        cmocka_unit_test(the_newest_confirmation_of_a_configuration_counts),
        cmocka_unit_test(a_later_failure_deposes_a_winner_on_its_gpu_only),
        cmocka_unit_test(ties_are_the_overlapping_confirmed_ones_of_the_run),
        cmocka_unit_test(an_unconfirmed_winner_claims_no_ties),
        cmocka_unit_test(the_default_of_the_same_run_is_told),
        cmocka_unit_test(times_of_another_method_are_not_compared),
        cmocka_unit_test(each_gpu_model_has_its_row_and_the_arch_the_best_of_them),
        cmocka_unit_test(what_stands_is_one_sample_for_each_configuration_on_each_gpu),
        cmocka_unit_test(the_order_of_arrival_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
