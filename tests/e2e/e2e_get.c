/* What `get` answers: each policy, one sweep for many askers, and rows that must not be served. */
#include "harness.h"

#include <lmdb.h>
#include <unistd.h>

static json_t *get_params(int n, const char *policy)
{
    return json_pack("{s:s, s:{s:i}, s:s*}", "kernel", "tiny", "shape", "N", n, "policy", policy);
}

static json_t *get(struct harness *harness, int n, const char *policy)
{
    return ask(harness, "get", get_params(n, policy));
}

static json_t *shape_params(const char *kernel, int n)
{
    json_t *params = sweep_params(kernel);
    json_object_set_new(params, "shapes", json_pack("[{s:i}]", "N", n));
    return params;
}

static void cached_serves_what_was_measured_and_nothing_else(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 4}, TAG_WINS(2));
    const char *sentence = ask_fail(harness, "get", get_params(64, "cached"), TUNE_ENOTFOUND);
    assert_non_null(strstr(sentence, "tunectl sweep tiny"));
    json_decref(sweep_result(harness, shape_params("tiny", 64)));
    json_t *answer = get(harness, 64, "cached");
    assert_string_equal(text_at(answer, "origin"), "exact");
    assert_int_equal(number_at(answer, "config.TAG"), 2);
    assert_true(json_is_true(at(answer, "same_gpu")));
    assert_true(json_is_true(at(answer, "verified")));
    json_t *launch = json_array_get(json_object_get(answer, "launches"), 0);
    assert_string_equal(text_at(launch, "entry"), "tiny");
    assert_int_equal(json_integer_value(json_array_get(json_object_get(launch, "grid"), 0)), 2);
    json_decref(answer);
    ask_fail(harness, "get", get_params(96, "cached"), TUNE_ENOTFOUND);
}

static void nearest_serves_the_default_then_the_closest_shape(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 4}, TAG_WINS(2));
    json_t *answer = get(harness, 64, NULL);
    assert_string_equal(text_at(answer, "origin"), "default");
    assert_int_equal(number_at(answer, "config.TAG"), 0);
    json_decref(answer);
    json_decref(sweep_result(harness, shape_params("tiny", 64)));
    answer = get(harness, 4096, "nearest");
    assert_string_equal(text_at(answer, "origin"), "nearest");
    assert_int_equal(number_at(answer, "config.TAG"), 2);
    assert_string_equal(text_at(answer, "measured_shape"), "N=64");
    json_t *launch =
        json_array_get(json_object_get(answer, "launches"), 0); /* for the asked shape */
    assert_int_equal(json_integer_value(json_array_get(json_object_get(launch, "grid"), 0)), 128);
    json_decref(answer);
}

static void another_gpu_is_told_from_none(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 2}, "{}");
    json_t *params = get_params(64, "nearest");
    json_object_set_new(params, "gpu", json_string("NVIDIA H200"));
    const char *sentence = ask_fail(harness, "get", params, TUNE_ENODEVICE);
    assert_non_null(strstr(sentence, "no \"NVIDIA H200\" is attached"));
}

static void tune_answers_at_once_and_the_sweep_follows(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 4}, TAG_WINS(2));
    struct job_name job;
    json_t *answer = get(harness, 64, "tune");
    assert_string_equal(text_at(answer, "origin"), "default");
    snprintf(job.text, sizeof job.text, "%s", text_at(answer, "job"));
    json_decref(answer);
    json_decref(wait_job(harness, job));
    answer = get(harness, 64, "tune");
    assert_string_equal(text_at(answer, "origin"), "exact");
    assert_null(at(answer, "job"));
    json_decref(answer);
}

static void wait_answers_when_the_sweep_has_ended(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 4}, TAG_WINS(2));
    json_t *answer = get(harness, 64, "wait");
    assert_string_equal(text_at(answer, "origin"), "exact");
    assert_int_equal(number_at(answer, "config.TAG"), 2);
    json_decref(answer);
}

/* Twenty clients ask for one untuned key at the same time, half of them waiting, half not. */
static void any_number_of_askers_get_one_sweep(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 4}, TAG_WINS(2));
    char request[256];
    int clients[20];
    for (int i = 0; i < 20; i++) {
        clients[i] = raw_connect(harness);
        int length = snprintf(request, sizeof request,
            "{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"get\",\"params\":{\"kernel\":\"tiny\","
            "\"shape\":{\"N\":64},\"policy\":\"%s\"}}\n",
            i, i % 2 ? "wait" : "tune");
        raw_send(clients[i], request, (size_t)length);
    }
    for (int i = 0; i < 20; i++) {
        json_t *answer = raw_receive(clients[i]);
        assert_int_equal(number_at(answer, "id"), i);
        if (i % 2)
            assert_string_equal(text_at(answer, "result.origin"), "exact");
        else
            assert_string_not_equal(text_at(answer, "result.origin"), "");
        json_decref(answer);
        close(clients[i]);
    }
    json_t *jobs = ask(harness, "jobs", NULL);
    assert_int_equal(json_array_size(jobs), 1);
    json_decref(jobs);
}

static void wait_for_a_sweep_that_finds_nothing_answers_all_the_same(void)
{
    struct harness *harness = harness_new();
    write_tiny(harness, &(struct tiny){.body = "if (i < n) y[i] += 1.0f;"});
    harness_start(harness);
    json_t *answer = get(harness, 64, "wait");
    assert_string_equal(text_at(answer, "origin"), "default");
    assert_true(json_is_false(at(answer, "verified")));
    json_decref(answer);
}

static bool has_a_job(void *context)
{
    json_t *jobs = ask(context, "jobs", NULL);
    bool has_one = json_array_size(jobs) == 1;
    json_decref(jobs);
    return has_one;
}

static void waiting_askers_are_told_when_the_daemon_stops(void)
{
    static const char request[] =
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"get\",\"params\":{\"kernel\":"
        "\"tiny\",\"shape\":{\"N\":64},\"policy\":\"wait\"}}\n";
    struct harness *harness = start_tiny(&(struct tiny){.tags = 40},
        "{\"rules\": [{\"call\": \"cuModuleLoadData\", \"do\": \"delay_ms\", \"value\": 100}]}");
    int client = raw_connect(harness);
    raw_send(client, request, sizeof request - 1);
    wait_for(has_a_job, harness, LIMIT_MS);
    harness_stop(harness);
    json_t *answer = raw_receive(client);
    assert_string_equal(text_at(answer, "error.data.code"), "busy");
    json_decref(answer);
    close(client);
}

static void the_cubin_comes_with_the_answer(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 4}, TAG_WINS(2));
    json_decref(sweep_result(harness, shape_params("tiny", 64)));
    json_t *params = get_params(64, "cached");
    json_object_set_new(params, "cubin", json_true());
    json_t *answer = ask(harness, "get", params);
    assert_true(strlen(text_at(answer, "cubin")) > 1000);
    assert_string_equal(text_at(answer, "names.tiny"), "tiny");
    json_decref(answer);
}

/* F10 */
static bool knows_the_other_kernel(void *context)
{
    json_t *kernels = ask(context, "kernels", NULL), *kernel;
    size_t i;
    bool is_there = false;
    json_array_foreach (kernels, i, kernel)
        is_there = is_there || strcmp(text_at(kernel, "name"), "other") == 0;
    json_decref(kernels);
    return is_there;
}

static void records_of_other_kernels_do_not_change_the_answer(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 4}, TAG_WINS(2));
    write_tiny(harness, &(struct tiny){.name = "other", .tags = 4});
    kill(harness->daemon, SIGHUP);
    wait_for(knows_the_other_kernel, harness, LIMIT_MS);
    json_t *before = get(harness, 4096, NULL);
    json_t *params = sweep_params("other");
    json_t *shapes = json_array();
    for (int n = 1; n <= 10; n++)
        json_array_append_new(shapes, json_pack("{s:i}", "N", 32 * n));
    json_object_set_new(params, "shapes", shapes);
    json_decref(sweep_result(harness, params));
    json_t *after = get(harness, 4096, NULL);
    json_object_del(before, "generation");
    json_object_del(after, "generation");
    assert_true(json_equal(before, after));
    assert_string_equal(text_at(after, "origin"), "default");
    json_decref(before);
    json_decref(after);
}

/* F13: the space of today's manifest ends before the stored winner. */
static void a_stored_row_outside_of_todays_space_is_not_served(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 4}, TAG_WINS(2));
    json_decref(sweep_result(harness, shape_params("tiny", 64)));
    harness_stop(harness);
    write_tiny(harness, &(struct tiny){.tags = 2});
    harness_start(harness);
    json_t *answer = get(harness, 64, NULL);
    assert_string_equal(text_at(answer, "origin"), "default");
    assert_int_equal(number_at(answer, "config.TAG"), 0);
    json_decref(answer);
}

/* --- damage (F03, F04, F45) ------------------------------------------------------------------- */

enum damage { DAMAGE_NOISE, DAMAGE_HALF, DAMAGE_EMPTY };

/* Rewrites the value at `position` of a table, with the daemon stopped. */
static void damage(
    const struct harness *harness, const char *table, size_t position, enum damage kind)
{
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi dbi;
    MDB_cursor *cursor;
    MDB_val key, value;
    assert_int_equal(mdb_env_create(&env), 0);
    mdb_env_set_maxdbs(env, 16);
    assert_int_equal(mdb_env_open(env, harness->db, 0, 0600), 0);
    assert_int_equal(mdb_txn_begin(env, NULL, 0, &txn), 0);
    assert_int_equal(mdb_dbi_open(txn, table, 0, &dbi), 0);
    assert_int_equal(mdb_cursor_open(txn, dbi, &cursor), 0);
    for (size_t i = 0; i <= position; i++)
        assert_int_equal(mdb_cursor_get(cursor, &key, &value, i ? MDB_NEXT : MDB_FIRST), 0);
    size_t count = kind == DAMAGE_NOISE ? 200 : kind == DAMAGE_HALF ? value.mv_size / 2 : 0;
    char *bytes = malloc(value.mv_size + 200), *kept = malloc(key.mv_size);
    uint64_t random = test_seed();
    memcpy(bytes, value.mv_data, value.mv_size);
    memcpy(kept, key.mv_data, key.mv_size);
    for (size_t i = 0; kind == DAMAGE_NOISE && i < count; i++)
        bytes[i] = (char)next_random(&random);
    MDB_val same = {key.mv_size, kept}, damaged = {count, bytes};
    mdb_cursor_close(cursor);
    assert_int_equal(mdb_put(txn, dbi, &same, &damaged, 0), 0);
    assert_int_equal(mdb_txn_commit(txn), 0);
    mdb_env_close(env);
    free(bytes);
    free(kept);
}

static size_t log_lines_with(const struct harness *harness, const char *text)
{
    char line[1024];
    size_t count = 0;
    FILE *file = fopen(harness->log, "re");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL)
        count += strstr(line, text) != NULL;
    fclose(file);
    return count;
}

static size_t exact_answers(struct harness *harness)
{
    size_t exact = 0;
    for (int n = 32; n <= 96; n += 32) {
        json_t *answer = get(harness, n, NULL);
        exact += strcmp(text_at(answer, "origin"), "exact") == 0;
        json_decref(answer);
    }
    return exact;
}

static void damaged_rows_are_misses_with_one_line_each_and_can_be_stored_anew(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 2}, "{}");
    for (int n = 32; n <= 96; n += 32)
        json_decref(sweep_result(harness, shape_params("tiny", n)));
    assert_int_equal(exact_answers(harness), 3);
    harness_stop(harness);
    /* Two rows per shape, by GPU and by arch: all four of two shapes. */
    for (size_t i = 0; i < 4; i++)
        damage(harness, "best", i, i % 2 ? DAMAGE_HALF : DAMAGE_NOISE);
    harness_start(harness);
    for (int i = 0; i < 3; i++)
        assert_in_range(exact_answers(harness), 1, 2);
    assert_in_range(log_lines_with(harness, "damaged entry"), 1, 4);
    for (int n = 32; n <= 96; n += 32)
        json_decref(sweep_result(harness, shape_params("tiny", n)));
    assert_int_equal(exact_answers(harness), 3);
    harness_stop(harness);
    size_t lines = log_lines_with(harness, "damaged entry");
    harness_start(harness);
    assert_int_equal(exact_answers(harness), 3);
    assert_int_equal(log_lines_with(harness, "damaged entry"), lines);
}

static void damaged_images_are_compiled_again_and_only_they(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 24}, "{}");
    json_decref(sweep_result(harness, shape_params("tiny", 64)));
    harness_stop(harness);
    for (size_t i = 0; i < 10; i++)
        damage(harness, "cubin", 2 * i, i % 2 ? DAMAGE_HALF : DAMAGE_EMPTY);
    harness_start(harness);
    json_decref(sweep_result(harness, shape_params("tiny", 96)));
    json_t *stats = ask(harness, "stats", NULL);
    assert_int_equal(number_at(stats, "images.compiles"), 10);
    json_decref(stats);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HARNESS_TEST(cached_serves_what_was_measured_and_nothing_else),
        HARNESS_TEST(nearest_serves_the_default_then_the_closest_shape),
        HARNESS_TEST(another_gpu_is_told_from_none),
        HARNESS_TEST(tune_answers_at_once_and_the_sweep_follows),
        HARNESS_TEST(wait_answers_when_the_sweep_has_ended),
        HARNESS_TEST(any_number_of_askers_get_one_sweep),
        HARNESS_TEST(wait_for_a_sweep_that_finds_nothing_answers_all_the_same),
        HARNESS_TEST(waiting_askers_are_told_when_the_daemon_stops),
        HARNESS_TEST(the_cubin_comes_with_the_answer),
        HARNESS_TEST(records_of_other_kernels_do_not_change_the_answer),
        HARNESS_TEST(a_stored_row_outside_of_todays_space_is_not_served),
        HARNESS_TEST(damaged_rows_are_misses_with_one_line_each_and_can_be_stored_anew),
        HARNESS_TEST(damaged_images_are_compiled_again_and_only_they),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
