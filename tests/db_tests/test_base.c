/* The lower layer: records that came with the program answer where nothing was measured here. */
#include "fixture.h"

#include <stdio.h>
#include <string.h>

/* Rows of the layer: of two GPU models at one shape, and one at another. */
static void set_base(struct tuning_db *db)
{
    struct sample rows[3] = {
        make_sample(101, "s/a", 50), make_sample(102, "s/a", 40), make_sample(103, "s/a", 30)};
    rows[1].gpu_name = "H100";
    rows[1].gpu_uuid = "gpu-1";
    rows[2].key.shape = "M=64,N=64,K=64";
    assert_int_equal(tuning_db_set_base(db, rows, 3, NULL), 0);
}

/* "BM=1", with a star when it is shipped; "none". */
static const char *best_of(struct tuning_db *db, const struct record_key *key, const char *gpu_name)
{
    static char texts[4][32];
    static unsigned next;
    char *text = texts[next++ % 4];
    struct best best;
    int status = tuning_db_best(db, key, gpu_name, 0, &best, NULL);
    assert_in_range(status, 0, 1);
    if (status == 1)
        return "none";
    snprintf(text, sizeof texts[0], "%s%s", best.config, best.is_shipped ? "*" : "");
    best_finish(&best);
    return text;
}

static void the_layer_answers_where_the_database_does_not(void **state)
{
    (void)state;
    struct tuning_db *db = open_db(NULL);
    assert_string_equal(best_of(db, &gemm_key, NULL), "none");
    set_base(db);
    assert_string_equal(best_of(db, &gemm_key, NULL), "BM=102*");
    assert_string_equal(best_of(db, &gemm_key, "H200"), "BM=101*");
    assert_string_equal(best_of(db, &gemm_key, "H100"), "BM=102*");
    assert_string_equal(best_of(db, &gemm_key, "L4"), "none");
    struct sample own = make_sample(1, "1/a", 90); /* slower, but measured here */
    put_sample_now(db, &own);
    assert_string_equal(best_of(db, &gemm_key, NULL), "BM=1");
    assert_string_equal(best_of(db, &gemm_key, "H200"), "BM=1");
    assert_string_equal(best_of(db, &gemm_key, "H100"), "BM=102*");
    struct record_key other = gemm_key;
    other.fingerprint = "fedcba9876543210fedcba9876543210";
    assert_string_equal(best_of(db, &other, NULL), "none");
    tuning_db_close(db);
}

struct list {
    char text[512];
    size_t limit, count;
};

static int list_best(const struct best *best, void *context)
{
    struct list *list = context;
    size_t used = strlen(list->text);
    snprintf(list->text + used, sizeof list->text - used, "[%s %s %s%s]", best->key.shape,
        best->gpu_name, best->config, best->is_shipped ? "*" : "");
    return ++list->count == list->limit;
}

static size_t parts_of(const char *text, const char *part)
{
    size_t count = 0;
    for (const char *at = strstr(text, part); at != NULL; at = strstr(at + 1, part))
        count++;
    return count;
}

static void listings_have_each_model_once_and_a_keys_rows_together(void **state)
{
    (void)state;
    struct tuning_db *db = open_db(NULL);
    set_base(db);
    for (unsigned i = 0; i < 20; i++) { /* keys on both sides of the layer's */
        static char shapes[20][16];
        struct sample own = make_sample(i, "1/a", 90);
        snprintf(shapes[i], sizeof shapes[i], "M=%u", i);
        own.key.shape = shapes[i];
        put_sample_now(db, &own);
    }
    struct sample own = make_sample(1, "1/a", 90);
    put_sample_now(db, &own);
    own.gpu_name = "L4";
    own.gpu_uuid = "gpu-2";
    put_sample_now(db, &own);
    struct list list = {.limit = 0}, of_key = {.limit = 0}, none = {.limit = 0};
    assert_int_equal(tuning_db_walk_best(db, "gemm", list_best, &list, NULL), 0);
    assert_int_equal(list.count, 20 + 2 + 2);
    const char *rows[] = {"[M=1024,N=1024,K=1024 H200 BM=1]", "[M=1024,N=1024,K=1024 L4 BM=1]",
        "[M=1024,N=1024,K=1024 H100 BM=102*]", "[M=64,N=64,K=64 H200 BM=103*]"};
    size_t together = 0;
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(parts_of(list.text, rows[i]), 1);
    for (size_t i = 0; i < 3; i++) /* a row of the key follows another of it, twice */
        together +=
            strncmp(strstr(list.text, rows[i]) + strlen(rows[i]), "[M=1024,N=1024,K=1024", 21) == 0;
    assert_int_equal(together, 2);
    struct list all = {.limit = 0};
    assert_int_equal(tuning_db_walk_best(db, NULL, list_best, &all, NULL), 0);
    assert_string_equal(all.text, list.text);
    assert_int_equal(tuning_db_walk_best_of(db, &gemm_key, list_best, &of_key, NULL), 0);
    assert_int_equal(of_key.count, 3);
    assert_int_equal(tuning_db_walk_best(db, "gemv", list_best, &none, NULL), 0);
    assert_int_equal(none.count, 0);
    tuning_db_close(db);
}

static void a_listing_ends_where_its_callback_says(void **state)
{
    (void)state;
    struct tuning_db *db = open_db(NULL);
    set_base(db);
    struct sample own = make_sample(1, "1/a", 90);
    put_sample_now(db, &own);
    for (size_t limit = 1; limit <= 3; limit++) {
        struct list list = {.limit = limit};
        assert_int_equal(tuning_db_walk_best(db, NULL, list_best, &list, NULL), 0);
        assert_int_equal(list.count, limit);
    }
    tuning_db_close(db);
}

static void note_key(const struct record_key *key, void *context)
{
    assert_true(record_key_equal(key, &gemm_key));
    ++*(size_t *)context;
}

/* Whoever keeps best rows learns of the change and then reads what lies under the row that fell. */
static void a_row_that_falls_uncovers_the_layer(void **state)
{
    (void)state;
    struct tuning_db *db = open_db(NULL);
    set_base(db);
    struct sample own = make_sample(1, "1/a", 90);
    put_sample_now(db, &own);
    uint64_t since = tuning_db_generation(db), now;
    size_t changes = 0;
    own.is_refused = true;
    struct tuning_db_batch *batch = tuning_db_batch_create();
    tuning_db_batch_merge(batch, &own);
    commit_now(db, batch);
    assert_string_equal(best_of(db, &gemm_key, "H200"), "BM=101*");
    assert_string_equal(best_of(db, &gemm_key, NULL), "BM=102*");
    assert_int_equal(tuning_db_changes(db, since, note_key, &changes, &now), 0);
    assert_int_equal(changes, 1);
    struct list list = {.limit = 0};
    assert_int_equal(tuning_db_walk_best_of(db, &gemm_key, list_best, &list, NULL), 0);
    assert_int_equal(list.count, 2);
    tuning_db_close(db);
}

static int count_sample(const struct sample *sample, void *context)
{
    (void)sample;
    ++*(size_t *)context;
    return 0;
}

static bool is_not_bm_1(const char *config, void *context)
{
    (void)context;
    return strcmp(config, "BM=1") != 0;
}

static void among_valid_configurations_the_stored_come_before_the_layer(void **state)
{
    (void)state;
    struct tuning_db *db = open_db(NULL);
    struct list list = {.limit = 0}, first = {.limit = 1};
    set_base(db);
    for (unsigned i = 1; i <= 3; i++) { /* the first one is the best */
        struct sample own = make_sample(i, "1/a", 90 + i);
        put_sample_now(db, &own);
    }
    struct sample other = make_sample(4, "1/a", 10);
    other.gpu_name = "L4";
    other.gpu_uuid = "gpu-2";
    put_sample_now(db, &other);
    assert_int_equal(
        tuning_db_walk_best_among(db, &gemm_key, is_not_bm_1, list_best, &list, NULL), 0);
    char *rest = strstr(list.text, "[M=1024,N=1024,K=1024 H200 BM=2]");
    assert_int_equal(parts_of(list.text, "BM=1]") + parts_of(list.text, "K=64"), 0);
    assert_true(strncmp(list.text, "[M=1024,N=1024,K=1024 L4 BM=4]", 30) == 0);
    assert_non_null(rest);
    assert_non_null(strstr(rest, "H200 BM=101*")); /* not hidden */
    assert_non_null(strstr(rest, "H100 BM=102*"));
    assert_int_equal(
        tuning_db_walk_best_among(db, &gemm_key, is_not_bm_1, list_best, &first, NULL), 0);
    assert_string_equal(first.text, "[M=1024,N=1024,K=1024 L4 BM=4]");
    tuning_db_close(db);
}

static void the_layer_is_not_stored_and_not_counted(void **state)
{
    (void)state;
    struct tuning_db *db = open_db(NULL);
    struct tuning_db_stats before, after;
    size_t samples = 0;
    assert_int_equal(tuning_db_stats(db, &before, NULL), 0);
    set_base(db);
    assert_int_equal(tuning_db_stats(db, &after, NULL), 0);
    assert_memory_equal(&before, &after, sizeof before);
    assert_int_equal(tuning_db_walk_samples(db, NULL, count_sample, &samples, NULL), 0);
    assert_int_equal(tuning_db_walk_best_samples(db, NULL, count_sample, &samples, NULL), 0);
    assert_int_equal(samples, 0);
    tuning_db_close(db);
    db = open_db(NULL);
    assert_string_equal(best_of(db, &gemm_key, NULL), "none");
    tuning_db_close(db);
}

static void its_hash_tells_what_it_holds(void **state)
{
    (void)state;
    struct tuning_db *db = open_db(NULL);
    struct sample rows[3] = {
        make_sample(1, "s/a", 50), make_sample(2, "s/a", 60), make_sample(3, "s/a", 30)};
    rows[2].key.shape = "M=64,N=64,K=64";
    assert_true(tuning_db_base_hash(db) == 0);
    assert_int_equal(tuning_db_set_base(db, rows, 3, NULL), 0);
    uint64_t hash = tuning_db_base_hash(db);
    assert_true(hash != 0);
    struct sample swap = rows[0];
    rows[0] = rows[2];
    rows[2] = swap;
    assert_int_equal(tuning_db_set_base(db, rows, 3, NULL), 0);
    assert_true(tuning_db_base_hash(db) == hash);
    rows[0].median_ns += 0.001;
    assert_int_equal(tuning_db_set_base(db, rows, 3, NULL), 0);
    assert_true(tuning_db_base_hash(db) != hash);
    assert_int_equal(tuning_db_set_base(db, NULL, 0, NULL), 0); /* none any more */
    assert_true(tuning_db_base_hash(db) == 0);
    assert_string_equal(best_of(db, &gemm_key, NULL), "none");
    tuning_db_close(db);
}

static void rows_that_cannot_be_best_make_no_layer(void **state)
{
    (void)state;
    struct tuning_db *db = open_db(NULL);
    struct sample row = make_sample(1, "s/a", 50);
    row.is_refused = true;
    assert_int_equal(tuning_db_set_base(db, &row, 1, NULL), 0);
    assert_string_equal(best_of(db, &gemm_key, NULL), "none");
    struct list list = {.limit = 0};
    assert_int_equal(tuning_db_walk_best(db, NULL, list_best, &list, NULL), 0);
    assert_int_equal(list.count, 0);
    tuning_db_close(db);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_layer_answers_where_the_database_does_not),
        TEST(listings_have_each_model_once_and_a_keys_rows_together),
        TEST(a_listing_ends_where_its_callback_says),
        TEST(a_row_that_falls_uncovers_the_layer),
        TEST(among_valid_configurations_the_stored_come_before_the_layer),
        TEST(the_layer_is_not_stored_and_not_counted),
        TEST(its_hash_tells_what_it_holds),
        TEST(rows_that_cannot_be_best_make_no_layer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
