/* What the database keeps, finds and forgets. */
#include "fixture.h"

#include <lmdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int count_sample(const struct sample *sample, void *context)
{
    (void)sample;
    ++*(size_t *)context;
    return 0;
}

static size_t count_samples(struct tuning_db *db, const struct record_key *key)
{
    size_t count = 0;
    assert_int_equal(tuning_db_walk_samples(db, key, count_sample, &count, NULL), 0);
    return count;
}

/* The config of the best row, or "none". */
static const char *best_config(
    struct tuning_db *db, const struct record_key *key, const char *gpu_name)
{
    static char text[64];
    struct best best;
    int status = tuning_db_best(db, key, gpu_name, 0, &best, NULL);
    assert_true(status >= 0);
    if (status == 1)
        return "none";
    snprintf(text, sizeof text, "%s", best.config);
    best_finish(&best);
    return text;
}

static struct tuning_db_stats stats_of(struct tuning_db *db)
{
    struct tuning_db_stats stats;
    assert_int_equal(tuning_db_stats(db, &stats, NULL), 0);
    return stats;
}

/* Changes stored bytes behind the database's back, while it is closed. With `count` 0 halves the
 * value. */
static void spoil(const char *table, size_t index, const void *bytes, size_t count)
{
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi dbi;
    MDB_cursor *cursor;
    MDB_val key, value;
    assert_int_equal(mdb_env_create(&env), 0);
    mdb_env_set_maxdbs(env, 8);
    assert_int_equal(mdb_env_open(env, path_in("db"), 0, 0600), 0);
    assert_int_equal(mdb_txn_begin(env, NULL, 0, &txn), 0);
    assert_int_equal(mdb_dbi_open(txn, table, 0, &dbi), 0);
    assert_int_equal(mdb_cursor_open(txn, dbi, &cursor), 0);
    for (size_t i = 0; i <= index; i++)
        assert_int_equal(mdb_cursor_get(cursor, &key, &value, MDB_NEXT), 0);
    char key_copy[511];
    memcpy(key_copy, key.mv_data, key.mv_size);
    key.mv_data = key_copy;
    char *half = malloc(value.mv_size);
    memcpy(half, value.mv_data, value.mv_size);
    MDB_val new = {
        count > 0 ? count : value.mv_size / 2, count > 0 ? (void *)(uintptr_t)bytes : half};
    assert_int_equal(mdb_put(txn, dbi, &key, &new, 0), 0);
    free(half);
    mdb_cursor_close(cursor);
    assert_int_equal(mdb_txn_commit(txn), 0);
    mdb_env_close(env);
}

static unsigned damage_calls;

static void on_damage(const char *what, void *context)
{
    (void)context;
    assert_non_null(strstr(what, "damaged entry"));
    damage_calls++;
}

/* --- samples and best ------------------------------------------------------------------------- */

static void what_was_stored_is_found_after_a_restart(void **state)
{
    (void)state;
    struct tuning_db *db = open_db(NULL);
    struct sample sample = make_sample(1, "1/search", 10);
    put_sample_now(db, &sample);
    tuning_db_close(db);
    db = open_db(NULL);
    assert_string_equal(best_config(db, &gemm_key, NULL), "BM=1");
    assert_string_equal(best_config(db, &gemm_key, "H200"), "BM=1");
    assert_string_equal(best_config(db, &gemm_key, "H100"), "none");
    assert_int_equal(count_samples(db, &gemm_key), 1);
    tuning_db_close(db);
}

static void each_field_of_a_key_tells_keys_apart(void **state)
{
    (void)state;
    struct tuning_db *db = open_db(NULL);
    struct sample sample = make_sample(1, "1/search", 10);
    put_sample_now(db, &sample);
    for (int field = 0; field < 6; field++) {
        struct record_key other = gemm_key;
        const char **fields[] = {&other.kernel, &other.fingerprint, &other.shape, &other.dtype,
            &other.arch, &other.mode};
        *fields[field] = "other";
        assert_string_equal(best_config(db, &other, NULL), "none");
        assert_int_equal(count_samples(db, &other), 0);
    }
    tuning_db_close(db);
}

static void a_row_once_written_is_kept(void **state)
{
    (void)state;
    struct tuning_db *db = open_db(NULL);
    struct sample first = make_sample(1, "1/search", 10), again = make_sample(1, "1/search", 5);
    put_sample_now(db, &first);
    struct tuning_db_batch *batch = tuning_db_batch_create();
    struct sample second = make_sample(2, "1/search", 11);
    tuning_db_batch_sample(batch, &again);
    tuning_db_batch_sample(batch, &second);
    tuning_db_batch_sample(batch, &second); /* within one batch too */
    tuning_db_batch_refresh(batch, &gemm_key);
    assert_int_equal(tuning_db_commit(db, batch, NULL), 0);
    assert_int_equal(tuning_db_batch_duplicates(batch), 2);
    tuning_db_batch_destroy(batch);
    struct best best;
    assert_int_equal(tuning_db_best(db, &gemm_key, NULL, 0, &best, NULL), 0);
    assert_true(best.median_ns == 10);
    best_finish(&best);
    assert_int_equal(count_samples(db, NULL), 2);
    tuning_db_close(db);
}

static void a_first_crash_may_be_replaced_by_the_second_try(void **state)
{
    (void)state;
    struct tuning_db *db = open_db(NULL);
    struct sample sample = make_sample(1, "1/search", 10);
    sample.outcome = OUTCOME_CRASHED;
    sample.is_final = false;
    put_sample_now(db, &sample);
    assert_string_equal(best_config(db, &gemm_key, NULL), "none");
    sample.outcome = OUTCOME_OK;
    sample.is_final = true;
    put_sample_now(db, &sample);
    assert_string_equal(best_config(db, &gemm_key, NULL), "BM=1");
    assert_int_equal(count_samples(db, NULL), 1);
    tuning_db_close(db);
}

static void a_measurement_can_depose_and_erase_a_best(void **state)
{
    (void)state;
    struct tuning_db *db = open_db(NULL);
    struct sample sample = make_sample(1, "1/search", 10);
    put_sample_now(db, &sample);
    uint64_t generation = stats_of(db).generation;
    struct sample other = make_sample(2, "1/search", 20); /* slower: nothing changes */
    put_sample_now(db, &other);
    assert_int_equal(stats_of(db).generation, generation);
    struct sample failed = make_sample(1, "2/search", 0);
    failed.outcome = OUTCOME_WRONG_RESULT;
    failed.time_unix_ms = 2000;
    put_sample_now(db, &failed);
    assert_string_equal(best_config(db, &gemm_key, "H200"), "BM=2");
    assert_int_equal(stats_of(db).generation, generation + 1);
    failed = make_sample(2, "2/search", 0);
    failed.outcome = OUTCOME_TIMEOUT;
    failed.time_unix_ms = 2000;
    put_sample_now(db, &failed);
    assert_string_equal(best_config(db, &gemm_key, "H200"), "none");
    assert_string_equal(best_config(db, &gemm_key, NULL), "none");
    assert_int_equal(stats_of(db).best, 0);
    tuning_db_close(db);
    db = open_db(NULL);
    assert_int_equal(stats_of(db).generation, generation + 2);
    tuning_db_close(db);
}

struct best_list {
    char text[512];
    struct tuning_db *db;
};

static int list_best(const struct best *best, void *context)
{
    struct best_list *list = context;
    size_t used = strlen(list->text);
    snprintf(list->text + used, sizeof list->text - used, "[%s %s %s]", best->key.shape,
        best->gpu_name, best->config);
    if (list->db != NULL) { /* a callback may use the database, and write to it */
        assert_string_equal(best_config(list->db, &best->key, best->gpu_name), best->config);
        struct sample sample = make_sample(9, "9/search", 500);
        sample.key.kernel = "other";
        put_sample_now(list->db, &sample);
    }
    return 0;
}

static void a_kernels_best_rows_are_listed_once_for_each_gpu(void **state)
{
    (void)state;
    struct tuning_db *db = open_db(NULL);
    struct sample sample = make_sample(1, "1/search", 10);
    put_sample_now(db, &sample);
    sample.gpu_name = "H100";
    sample.gpu_uuid = "gpu-1";
    put_sample_now(db, &sample);
    sample.key.kernel = "gemv"; /* another kernel does not show */
    put_sample_now(db, &sample);
    struct best_list list = {.db = db};
    assert_int_equal(tuning_db_walk_best(db, "gemm", list_best, &list, NULL), 0);
    assert_non_null(strstr(list.text, "[M=1024,N=1024,K=1024 H200 BM=1]"));
    assert_non_null(strstr(list.text, "[M=1024,N=1024,K=1024 H100 BM=1]"));
    assert_int_equal(strlen(list.text), 2 * strlen("[M=1024,N=1024,K=1024 H200 BM=1]"));
    list = (struct best_list){.text = ""};
    assert_int_equal(tuning_db_walk_best(db, NULL, list_best, &list, NULL), 0);
    assert_int_equal(strlen(list.text), 3 * strlen("[M=1024,N=1024,K=1024 H200 BM=1]") +
                                            strlen("[M=1024,N=1024,K=1024 H200 BM=9]"));
    tuning_db_close(db);
}

static void long_and_odd_names_are_kept_apart(void **state)
{
    (void)state;
    static const size_t lengths[] = {1, 255, 400, 511, 512, 600, 4000};
    static const char *const odd[] = {"a|b", "..", "../x", "\xC3\xBC", "a\nb", ""};
    struct tuning_db *db = open_db(NULL);
    char name[4001], twin[4001];
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        memset(name, 'k', lengths[i]);
        name[lengths[i]] = '\0';
        memcpy(twin, name, sizeof name);
        twin[lengths[i] - 1] = 'j';
        struct sample sample = make_sample((unsigned)i, "1/search", 10);
        sample.key.kernel = name;
        put_sample_now(db, &sample);
        struct record_key other = sample.key;
        other.kernel = twin;
        assert_string_equal(best_config(db, &other, NULL), "none");
        assert_string_equal(best_config(db, &sample.key, NULL), sample.config);
    }
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        struct sample sample = make_sample((unsigned)i, "1/search", 10);
        sample.key.shape = odd[i];
        put_sample_now(db, &sample);
        assert_string_equal(best_config(db, &sample.key, NULL), sample.config);
    }
    tuning_db_close(db);
}

static int stop_at_once(const struct sample *sample, void *context)
{
    (void)sample;
    ++*(size_t *)context;
    return 1;
}

static void a_walk_ends_where_its_callback_says(void **state)
{
    (void)state;
    struct tuning_db *db = open_db(NULL);
    for (unsigned i = 0; i < 3; i++) {
        struct sample sample = make_sample(i, "1/search", 10);
        put_sample_now(db, &sample);
    }
    size_t count = 0;
    assert_int_equal(tuning_db_walk_samples(db, NULL, stop_at_once, &count, NULL), 0);
    assert_int_equal(count, 1);
    tuning_db_close(db);
}

/* More than a page of the walk, so that it goes on from its last key. */
static void a_long_listing_has_each_row_once(void **state)
{
    (void)state;
    struct tuning_db *db = open_db(NULL);
    static float samples_ns[200 * 1024];
    for (unsigned i = 0; i < 60; i++) {
        struct sample sample = make_sample(i, "1/search", 10);
        sample.samples_ns = samples_ns;
        sample.sample_count = sizeof samples_ns / sizeof samples_ns[0];
        put_sample_now(db, &sample);
    }
    assert_int_equal(count_samples(db, &gemm_key), 60);
    assert_int_equal(count_samples(db, NULL), 60);
    tuning_db_close(db);
}

/* --- damage ----------------------------------------------------------------------------------- */

static void damaged_entries_are_misses_reported_once_and_can_be_rewritten(void **state)
{
    (void)state;
    struct tuning_db_options options = {.on_damage = on_damage};
    struct tuning_db *db = open_db(&options);
    struct record_key keys[3] = {gemm_key, gemm_key, gemm_key};
    keys[1].shape = "M=1";
    keys[2].shape = "M=2";
    for (int i = 0; i < 3; i++) {
        struct sample sample = make_sample(1, "1/search", 10);
        sample.key = keys[i];
        put_sample_now(db, &sample);
    }
    tuning_db_close(db);
    char noise[200];
    memset(noise, 0x5A, sizeof noise);
    spoil("samples", 0, noise, sizeof noise);
    spoil("samples", 1, NULL, 0);
    spoil("best", 0, noise, sizeof noise); /* one key's two rows, of GPU and arch */
    spoil("best", 1, NULL, 0);

    damage_calls = 0;
    db = open_db(&options);
    unsigned found = 0;
    for (int round = 0; round < 3; round++) {
        found = 0;
        for (int i = 0; i < 3; i++) {
            found += strcmp(best_config(db, &keys[i], NULL), "BM=1") == 0;
            found += strcmp(best_config(db, &keys[i], "H200"), "BM=1") == 0;
        }
        assert_int_equal(found, 4);
        assert_int_equal(count_samples(db, NULL), 1);
    }
    assert_int_equal(damage_calls, 4); /* one for each entry, not for each lookup */
    assert_int_equal(stats_of(db).damaged, 4);
    size_t damaged = 0;
    assert_int_equal(tuning_db_check(db, &damaged, NULL), 0);
    assert_int_equal(damaged, 4);
    for (int i = 0; i < 3; i++) {
        struct sample sample = make_sample(1, "1/search", 10);
        sample.key = keys[i];
        put_sample_now(db, &sample); /* the same rows: only the damaged ones are written */
        assert_string_equal(best_config(db, &keys[i], NULL), "BM=1");
    }
    tuning_db_close(db);

    damage_calls = 0;
    db = open_db(&options);
    assert_int_equal(tuning_db_check(db, &damaged, NULL), 0);
    assert_int_equal(damaged, 0);
    assert_int_equal(count_samples(db, NULL), 3);
    assert_int_equal(damage_calls, 0);
    tuning_db_close(db);
}

static void a_sound_value_under_a_wrong_key_is_damage(void **state)
{
    (void)state;
    struct tuning_db *db = open_db(NULL);
    struct sample sample = make_sample(1, "1/search", 10);
    put_sample_now(db, &sample);
    sample.key.shape = "M=1";
    put_sample_now(db, &sample);
    tuning_db_close(db);
    size_t length;
    sample.key.shape = "M=2"; /* neither of the two */
    void *bytes = sample_encode(&sample, &length);
    spoil("samples", 0, bytes, length);
    free(bytes);
    db = open_db(NULL);
    size_t damaged;
    assert_int_equal(tuning_db_check(db, &damaged, NULL), 0);
    assert_int_equal(damaged, 1);
    assert_int_equal(count_samples(db, NULL), 1);
    tuning_db_close(db);
}

static void a_damaged_generation_does_not_go_back(void **state)
{
    (void)state;
    struct tuning_db *db = open_db(NULL);
    for (unsigned i = 0; i < 5; i++) {
        struct sample sample = make_sample(9 - i, "1/search", 10 - i);
        put_sample_now(db, &sample);
    }
    assert_int_equal(stats_of(db).generation, 5);
    tuning_db_close(db);
    spoil("meta", 1, "bad", 3);
    db = open_db(NULL);
    struct sample sample = make_sample(1, "1/search", 1);
    put_sample_now(db, &sample);
    assert_true(stats_of(db).generation > 5);
    tuning_db_close(db);
}

/* --- cubins, logs, jobs ----------------------------------------------------------------------- */

static struct record_hash cubin_key(unsigned number)
{
    return record_bytes_hash(&number, sizeof number);
}

static void put_cubin_now(struct tuning_db *db, unsigned number, size_t count)
{
    char *bytes = calloc(1, count);
    memset(bytes, (int)number, count);
    struct record_hash key = cubin_key(number);
    struct tuning_db_batch *batch = tuning_db_batch_create();
    assert_int_equal(tuning_db_batch_cubin(batch, &key, bytes, count), 0);
    commit_now(db, batch);
    free(bytes);
}

static bool has_cubin(struct tuning_db *db, unsigned number, size_t wanted_count)
{
    struct record_hash key = cubin_key(number);
    unsigned char *bytes;
    size_t count;
    int status = tuning_db_cubin(db, &key, (void **)&bytes, &count, NULL);
    assert_true(status >= 0);
    if (status == 0) {
        assert_int_equal(count, wanted_count);
        assert_int_equal(bytes[0], (unsigned char)number);
        assert_int_equal(bytes[count - 1], (unsigned char)number);
        free(bytes);
    }
    return status == 0;
}

static void the_oldest_cubins_go_first_and_the_size_is_held(void **state)
{
    (void)state;
    struct tuning_db_options options = {.cubin_limit_bytes = 100 << 10};
    struct tuning_db *db = open_db(&options);
    for (unsigned i = 0; i < 30; i++) {
        put_cubin_now(db, i, 10 << 10);
        put_cubin_now(db, i, 10 << 10); /* the same content counts once */
        assert_true(stats_of(db).cubin_bytes <= 100 << 10);
    }
    for (unsigned i = 0; i < 30; i++)
        assert_int_equal(has_cubin(db, i, 10 << 10), i >= 21);
    tuning_db_close(db);
    db = open_db(&options);
    assert_int_equal(stats_of(db).cubins, 9);
    put_cubin_now(db, 30, 10 << 10);
    assert_false(has_cubin(db, 21, 10 << 10));
    assert_true(has_cubin(db, 22, 10 << 10));
    put_cubin_now(db, 31, 200 << 10); /* above the limit by itself: not kept */
    assert_false(has_cubin(db, 31, 200 << 10));
    assert_int_equal(stats_of(db).cubin_bytes, 0);
    tuning_db_close(db);
}

static void cubins_survive_damage_to_their_bookkeeping(void **state)
{
    (void)state;
    struct tuning_db_options options = {.cubin_limit_bytes = 100 << 10};
    struct tuning_db *db = open_db(&options);
    for (unsigned i = 0; i < 9; i++)
        put_cubin_now(db, i, 10 << 10);
    tuning_db_close(db);
    spoil("meta", 0, "bad", 3); /* "cubins" */
    for (size_t i = 0; i < 5; i++)
        spoil("cubin_order", i, "bad", 3);
    spoil("cubin", 0, "bad", 3);
    db = open_db(&options);
    for (unsigned i = 0; i < 60; i++) {
        put_cubin_now(db, i, 10 << 10);
        assert_true(has_cubin(db, i, 10 << 10));
        assert_true(stats_of(db).cubin_bytes <= 100 << 10);
        assert_true(stats_of(db).cubins <= 10);
    }
    tuning_db_close(db);
}

static void logs_are_found_by_the_id_of_their_text(void **state)
{
    (void)state;
    struct tuning_db *db = open_db(NULL);
    struct tuning_db_batch *batch = tuning_db_batch_create();
    char id[33], same[33], *text;
    size_t length;
    assert_int_equal(tuning_db_batch_log(batch, "error: x\n", 9, id), 0);
    assert_int_equal(tuning_db_batch_log(batch, "error: x\n", 9, same), 0);
    assert_string_equal(id, same);
    static char huge[65537];
    assert_int_equal(tuning_db_batch_log(batch, huge, sizeof huge, same), -1);
    commit_now(db, batch);
    assert_int_equal(tuning_db_log(db, id, &text, &length, NULL), 0);
    assert_int_equal(length, 9);
    assert_string_equal(text, "error: x\n");
    free(text);
    assert_int_equal(tuning_db_log(db, "", &text, &length, NULL), 1);
    assert_int_equal(
        tuning_db_log(db, "00112233445566778899aabbccddeeff", &text, &length, NULL), 1);
    assert_int_equal(
        tuning_db_log(db, "XX112233445566778899aabbccddeeff", &text, &length, NULL), 1);
    assert_int_equal(stats_of(db).logs, 1);
    tuning_db_close(db);
}

static int list_job(const char *name, const void *bytes, size_t count, void *context)
{
    char *text = context;
    size_t used = strlen(text);
    snprintf(text + used, 256 - used, "%s=%.*s ", name, (int)count, (const char *)bytes);
    return 0;
}

static void jobs_are_put_listed_by_prefix_and_deleted(void **state)
{
    (void)state;
    struct tuning_db *db = open_db(NULL);
    struct tuning_db_batch *batch = tuning_db_batch_create();
    char long_name[202], text[256] = "";
    memset(long_name, 'n', sizeof long_name - 1);
    long_name[201] = '\0';
    assert_int_equal(tuning_db_batch_job(batch, long_name, "x", 1), -1);
    assert_int_equal(tuning_db_batch_job(batch, "", "x", 1), -1);
    assert_int_equal(tuning_db_batch_job(batch, long_name + 1, "", 0), 0);
    assert_int_equal(tuning_db_batch_job(batch, "job/1", "one", 3), 0);
    assert_int_equal(tuning_db_batch_job(batch, "job/2", "two", 3), 0);
    assert_int_equal(tuning_db_batch_job(batch, "jobs", "no", 2), 0);
    assert_int_equal(tuning_db_batch_count(batch), 4);
    commit_now(db, batch);
    assert_int_equal(tuning_db_walk_jobs(db, "job/", list_job, text, NULL), 0);
    assert_string_equal(text, "job/1=one job/2=two ");
    batch = tuning_db_batch_create();
    tuning_db_batch_job(batch, "job/1", NULL, 0);
    tuning_db_batch_job(batch, "job/none", NULL, 0);
    tuning_db_batch_job(batch, "job/2", "zwei", 4);
    commit_now(db, batch);
    text[0] = '\0';
    assert_int_equal(tuning_db_walk_jobs(db, "job/", list_job, text, NULL), 0);
    assert_string_equal(text, "job/2=zwei ");
    void *bytes;
    size_t count;
    assert_int_equal(tuning_db_job(db, long_name + 1, &bytes, &count, NULL), 0);
    assert_int_equal(count, 0);
    free(bytes);
    assert_int_equal(tuning_db_job(db, "job/1", &bytes, &count, NULL), 1);
    tuning_db_close(db);
}

/* --- growth and the limit --------------------------------------------------------------------- */

static int put_jobs(struct tuning_db *db, unsigned first, unsigned count, struct tune_error *err)
{
    static char bytes[1000];
    struct tuning_db_batch *batch = tuning_db_batch_create();
    for (unsigned i = first; i < first + count; i++) {
        char name[32];
        snprintf(name, sizeof name, "job/%06u", i);
        assert_int_equal(tuning_db_batch_job(batch, name, bytes, sizeof bytes), 0);
    }
    int status = tuning_db_commit(db, batch, err);
    tuning_db_batch_destroy(batch);
    return status;
}

static void a_batch_larger_than_the_map_makes_it_grow(void **state)
{
    (void)state;
    struct tuning_db_options options = {.map_start_bytes = 1 << 20, .map_limit_bytes = 64 << 20};
    struct tuning_db *db = open_db(&options);
    assert_int_equal(put_jobs(db, 0, 20000, NULL), 0);
    assert_int_equal(stats_of(db).jobs, 20000);
    assert_true(stats_of(db).map_bytes > 20 << 20);
    tuning_db_close(db);
}

static void a_batch_that_meets_the_limit_leaves_nothing(void **state)
{
    (void)state;
    struct tuning_db_options options = {.map_start_bytes = 1 << 20, .map_limit_bytes = 16 << 20};
    struct tuning_db *db = open_db(&options);
    assert_int_equal(put_jobs(db, 0, 100, NULL), 0);
    struct tune_error err = {.code = TUNE_OK};
    assert_int_equal(put_jobs(db, 100, 20000, &err), -1);
    assert_int_equal(err.code, TUNE_EFULL);
    assert_non_null(strstr(err.text, "16 MiB"));
    assert_int_equal(stats_of(db).jobs, 100);
    assert_int_equal(put_jobs(db, 100, 100, NULL), 0); /* a smaller one fits */
    tuning_db_close(db);
    options.map_limit_bytes = 64 << 20; /* raised, the same batch completes */
    db = open_db(&options);
    assert_int_equal(put_jobs(db, 100, 20000, NULL), 0);
    assert_int_equal(stats_of(db).jobs, 20100);
    tuning_db_close(db);
}

static void delete_jobs(struct tuning_db *db, unsigned first, unsigned count)
{
    struct tuning_db_batch *batch = tuning_db_batch_create();
    for (unsigned i = first; i < first + count; i++) {
        char name[32];
        snprintf(name, sizeof name, "job/%06u", i);
        assert_int_equal(tuning_db_batch_job(batch, name, NULL, 0), 0);
    }
    commit_now(db, batch);
}

static void a_full_database_reads_deletes_and_takes_up_again(void **state)
{
    (void)state;
    struct tuning_db_options options = {.map_start_bytes = 1 << 20, .map_limit_bytes = 2 << 20};
    struct tuning_db *db = open_db(&options);
    unsigned stored = 0;
    while (put_jobs(db, stored, 1, NULL) == 0)
        stored++;
    assert_true(stored > 500);
    assert_int_equal(stats_of(db).jobs, stored);
    for (int round = 0; round < 3; round++) {
        delete_jobs(db, 0, 1);   /* one by one, again and again, */
        delete_jobs(db, 1, 399); /* and many at once */
        assert_int_equal(stats_of(db).jobs, stored - 400);
        struct tune_error err = {.code = TUNE_OK};
        for (unsigned i = 0; i < 400 && err.code == TUNE_OK; i++)
            put_jobs(db, i, 1, &err);
        for (unsigned i = stored; err.code == TUNE_OK; i++)
            put_jobs(db, i, 1, &err);
        assert_int_equal(err.code, TUNE_EFULL);
        assert_true(stats_of(db).jobs + 200 > stored);
        delete_jobs(db, stored, 200);
        for (unsigned i = 0; i < 400; i++)
            put_jobs(db, i, 1, NULL);
        stored = (unsigned)stats_of(db).jobs;
    }
    assert_true(stats_of(db).used_bytes <= 2 << 20);
    tuning_db_close(db);
    db = open_db(&options);
    assert_int_equal(stats_of(db).jobs, stored);
    tuning_db_close(db);
}

static void killed_readers_do_not_fill_the_map(void **state)
{
    (void)state;
    struct tuning_db_options options = {.map_start_bytes = 4 << 20, .map_limit_bytes = 8 << 20};
    struct tuning_db *db = open_db(&options);
    assert_int_equal(put_jobs(db, 0, 10, NULL), 0);
    pid_t pid = fork();
    if (pid == 0) { /* a reader of its own, that dies in its transaction */
        MDB_env *env;
        MDB_txn *txn;
        if (mdb_env_create(&env) == 0 && mdb_env_open(env, path_in("db"), MDB_RDONLY, 0600) == 0 &&
            mdb_txn_begin(env, NULL, MDB_RDONLY, &txn) == 0)
            raise(SIGKILL);
        _exit(1);
    }
    int status;
    waitpid(pid, &status, 0);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(stats_of(db).readers_used, 1);
    for (unsigned i = 0; i < 1200; i++)
        assert_int_equal(put_jobs(db, 0, 10, NULL), 0);
    assert_int_equal(stats_of(db).readers_used, 0);
    tuning_db_close(db);
}

/* --- changes ---------------------------------------------------------------------------------- */

static void note_change(const struct record_key *key, void *context)
{
    char *shapes = context;
    size_t used = strlen(shapes);
    snprintf(shapes + used, 200 - used, "%s;", key->shape);
}

static void changed_keys_are_told_in_order_and_only_changed_ones(void **state)
{
    (void)state;
    struct tuning_db *db = open_db(NULL);
    struct sample fast = make_sample(1, "a", 100), slow = make_sample(2, "a", 200);
    uint64_t now, start = tuning_db_generation(db);
    put_sample_now(db, &fast);
    put_sample_now(db, &slow); /* no news: not better */
    struct sample other = make_sample(1, "a", 100);
    other.key.shape = "M=2,N=2,K=2";
    uint64_t between = tuning_db_generation(db);
    put_sample_now(db, &other);
    char all[200] = "", late[200] = "";
    assert_int_equal(tuning_db_changes(db, start, note_change, all, &now), 0);
    assert_int_equal(now, start + 2);
    assert_int_equal(now, stats_of(db).generation);
    char expected[200];
    snprintf(expected, sizeof expected, "%s;%s;", gemm_key.shape, other.key.shape);
    assert_string_equal(all, expected);
    assert_int_equal(tuning_db_changes(db, between, note_change, late, &now), 0);
    assert_string_equal(late, "M=2,N=2,K=2;");
    tuning_db_close(db);
    db = open_db(NULL);
    assert_int_equal(tuning_db_generation(db), now);
    assert_int_equal(tuning_db_changes(db, now, note_change, late, &now), 0);
    assert_int_equal(tuning_db_changes(db, between, note_change, late, &now), 1);
    tuning_db_close(db);
}

static void too_many_changes_are_not_told_one_by_one(void **state)
{
    (void)state;
    struct tuning_db *db = open_db(NULL);
    uint64_t now, start = tuning_db_generation(db), first = 0;
    struct sample sample = make_sample(1, "a", 100);
    char shape[64];
    sample.key.shape = shape;
    for (int round = 0; round < 2; round++) {
        struct tuning_db_batch *batch = tuning_db_batch_create();
        for (int i = 0; i < 3000; i++) {
            snprintf(shape, sizeof shape, "M=%d,N=%d,K=1", round + 1, i + 1);
            assert_int_equal(tuning_db_batch_sample(batch, &sample), 0);
            assert_int_equal(tuning_db_batch_refresh(batch, &sample.key), 0);
        }
        commit_now(db, batch);
        if (round == 0)
            first = tuning_db_generation(db);
    }
    char shapes[200] = "";
    assert_int_equal(tuning_db_changes(db, start, note_change, shapes, &now), 1);
    assert_string_equal(shapes, "");
    assert_int_equal(tuning_db_changes(db, first, note_change, shapes, &now), 0);
    assert_string_not_equal(shapes, "");
    tuning_db_close(db);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
        TEST(what_was_stored_is_found_after_a_restart),
        TEST(each_field_of_a_key_tells_keys_apart),
        TEST(a_row_once_written_is_kept),
        TEST(a_first_crash_may_be_replaced_by_the_second_try),
        TEST(a_measurement_can_depose_and_erase_a_best),
        TEST(a_kernels_best_rows_are_listed_once_for_each_gpu),
        TEST(long_and_odd_names_are_kept_apart),
        TEST(a_walk_ends_where_its_callback_says),
        TEST(a_long_listing_has_each_row_once),
        TEST(damaged_entries_are_misses_reported_once_and_can_be_rewritten),
        TEST(a_sound_value_under_a_wrong_key_is_damage),
        TEST(a_damaged_generation_does_not_go_back),
        TEST(the_oldest_cubins_go_first_and_the_size_is_held),
        TEST(cubins_survive_damage_to_their_bookkeeping),
        TEST(logs_are_found_by_the_id_of_their_text),
        TEST(jobs_are_put_listed_by_prefix_and_deleted),
        TEST(a_batch_larger_than_the_map_makes_it_grow),
        TEST(a_batch_that_meets_the_limit_leaves_nothing),
        TEST(a_full_database_reads_deletes_and_takes_up_again),
        TEST(killed_readers_do_not_fill_the_map),
        TEST(changed_keys_are_told_in_order_and_only_changed_ones),
        TEST(too_many_changes_are_not_told_one_by_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
