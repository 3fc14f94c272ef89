#include "daemon/search/rng.h"
#include "daemon/search/search.h"
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct manifest *manifest;
static struct space *space;
static size_t count;

static int make_space(void **state)
{
    (void)state;
    const char *root = getenv("TUNE_SOURCE_DIR");
    assert_non_null(root);
    char path[4096];
    snprintf(path, sizeof path, "%s/tests/data/manifests/valid/tiled/manifest.json", root);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    static char text[1 << 16];
    size_t length = fread(text, 1, sizeof text, file);
    fclose(file);
    struct tune_error err = {0};
    manifest = manifest_create(text, length, "tiled", &err);
    if (manifest == NULL)
        fail_msg("%s", err.text);
    struct device_info device;
    assert_int_equal(device_generic("sm_90", &device, NULL), 0);
    space = space_create(manifest, &device, manifest->shapes[0], manifest->dtypes[0], NULL, &err);
    if (space == NULL)
        fail_msg("%s", err.text);
    count = space_count(space);
    return count < 10; /* too few to show anything */
}

static int drop_space(void **state)
{
    (void)state;
    space_destroy(space);
    manifest_destroy(manifest);
    return 0;
}

static struct search *create(const char *strategy, uint64_t seed, size_t budget)
{
    struct tune_error err = {0};
    struct search *search = search_create(strategy, space, seed, budget, &err);
    if (search == NULL)
        fail_msg("%s", err.text);
    return search;
}

/* Runs a search to its end: how many were proposed, and in which order; each at most once. */
static size_t drain(struct search *search, size_t *order)
{
    char *seen = calloc(count, 1);
    size_t proposed = 0, index = SIZE_MAX;
    while (search_next(search, &index) == SEARCH_PROPOSED) {
        assert_true(index < count);
        assert_int_equal(seen[index], 0);
        seen[index] = 1;
        if (order != NULL)
            order[proposed] = index;
        proposed++;
        search_report(search, index, OUTCOME_OK, (double)index);
    }
    assert_int_equal(search_next(search, &index), SEARCH_DONE); /* and it stays so */
    free(seen);
    search_destroy(search);
    return proposed;
}

static void every_strategy_covers_all_once(void **state)
{
    (void)state;
    for (size_t i = 0; search_strategies[i] != NULL; i++) {
        const char *name = search_strategies[i]->name;
        assert_int_equal(search_check_name(name, NULL), 0);
        assert_int_equal(drain(create(name, 1, SIZE_MAX), NULL), count);
    }
}

static void exhaustive_goes_in_order(void **state)
{
    (void)state;
    size_t *order = calloc(count, sizeof *order);
    drain(create("exhaustive", 9, SIZE_MAX), order);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(order[i], i);
    free(order);
}

static void a_seed_decides_the_random_order(void **state)
{
    (void)state;
    size_t *orders[3];
    static const uint64_t seeds[] = {7, 7, 8};
    for (size_t i = 0; i < 3; i++) {
        orders[i] = calloc(count, sizeof **orders);
        drain(create("random", seeds[i], SIZE_MAX), orders[i]);
    }
    assert_memory_equal(orders[0], orders[1], count * sizeof **orders);
    assert_memory_not_equal(orders[0], orders[2], count * sizeof **orders);
    for (size_t i = 0; i < 3; i++)
        free(orders[i]);
}

static void the_budget_bounds_the_evaluations(void **state)
{
    (void)state;
    static const size_t budgets[] = {0, 1, 5};
    for (size_t i = 0; search_strategies[i] != NULL; i++)
        for (size_t j = 0; j < 3; j++) {
            struct search *search = create(search_strategies[i]->name, 3, budgets[j]);
            assert_int_equal(search_total(search), budgets[j]);
            assert_int_equal(drain(search, NULL), budgets[j]);
        }
    struct search *search = create("random", 3, count + 100);
    assert_int_equal(search_total(search), count);
    search_destroy(search);
}

static void a_smaller_budget_is_the_beginning_of_a_larger_one(void **state)
{
    (void)state;
    size_t *all = calloc(count, sizeof *all), some[5];
    drain(create("random", 11, SIZE_MAX), all);
    drain(create("random", 11, 5), some);
    assert_memory_equal(all, some, sizeof some);
    free(all);
}

static void what_was_tried_is_not_proposed_and_counts(void **state)
{
    (void)state;
    for (size_t i = 0; search_strategies[i] != NULL; i++) {
        struct search *search = create(search_strategies[i]->name, 5, 6);
        search_mark_tried(search, 0);
        search_mark_tried(search, 0); /* counts once */
        search_mark_tried(search, count - 1);
        size_t order[6];
        assert_int_equal(drain(search, order), 4);
        for (size_t j = 0; j < 4; j++) {
            assert_int_not_equal(order[j], 0);
            assert_int_not_equal(order[j], count - 1);
        }
    }
}

static void all_tried_is_the_end(void **state)
{
    (void)state;
    struct search *search = create("random", 5, SIZE_MAX);
    for (size_t i = 0; i < count; i++)
        search_mark_tried(search, i);
    assert_int_equal(drain(search, NULL), 0);
}

static void an_unknown_strategy_is_told_which_there_are(void **state)
{
    (void)state;
    struct tune_error err = {0};
    assert_null(search_create("magic", space, 1, 1, &err));
    assert_int_equal(err.code, TUNE_EINVAL);
    assert_non_null(strstr(err.text, "\"magic\""));
    assert_non_null(strstr(err.text, "exhaustive, random"));
    assert_int_equal(search_check_name("magic", NULL), -1);
    search_destroy(NULL);
}

static void random_numbers_are_those_of_the_paper(void **state)
{
    (void)state;
    struct rng rng = {1234567}; /* the reference implementation's first values for this seed */
    assert_true(rng_next(&rng) == UINT64_C(6457827717110365317));
    assert_true(rng_next(&rng) == UINT64_C(3203168211198807973));
    assert_true(rng_next(&rng) == UINT64_C(9817491932198370423));
}

static void bounded_numbers_stay_in_bounds_and_reach_all(void **state)
{
    (void)state;
    struct rng rng = {1};
    unsigned seen[7] = {0};
    for (int i = 0; i < 7000; i++) {
        uint64_t value = rng_below(&rng, 7);
        assert_true(value < 7);
        seen[value]++;
    }
    for (size_t i = 0; i < 7; i++)
        assert_in_range(seen[i], 850, 1150);
    for (int i = 0; i < 100; i++)
        assert_int_equal(rng_below(&rng, 1), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_space, drop_space)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_strategy_covers_all_once),
        TEST(exhaustive_goes_in_order),
        TEST(a_seed_decides_the_random_order),
        TEST(the_budget_bounds_the_evaluations),
        TEST(a_smaller_budget_is_the_beginning_of_a_larger_one),
        TEST(what_was_tried_is_not_proposed_and_counts),
        TEST(all_tried_is_the_end),
        TEST(an_unknown_strategy_is_told_which_there_are),
        cmocka_unit_test(random_numbers_are_those_of_the_paper),
        cmocka_unit_test(bounded_numbers_stay_in_bounds_and_reach_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
