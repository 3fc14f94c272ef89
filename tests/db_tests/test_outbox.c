/* What is still to be sent, what is set aside, and how two sets of rows are compared. */
#include "fixture.h"
#include "tuning_db/record_line.h"

#include <lmdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct tuning_db_options with_outbox = {.has_outbox = true};

/* A row of a GPU. */
static struct sample make_row(unsigned config, const char *run)
{
    struct sample sample = make_sample(config, run, 1000 + config);
    sample.key.arch = "sm_90";
    return sample;
}

static void replicate_now(struct tuning_db *db, const struct sample *sample)
{
    struct tuning_db_batch *batch = tuning_db_batch_create();
    assert_int_equal(tuning_db_batch_replica(batch, sample), 0);
    commit_now(db, batch);
}

static void merge_now(struct tuning_db *db, const struct sample *sample)
{
    struct tuning_db_batch *batch = tuning_db_batch_create();
    assert_int_equal(tuning_db_batch_merge(batch, sample), 0);
    commit_now(db, batch);
}

static void sent_now(struct tuning_db *db, const struct sample *sample, uint64_t hash)
{
    struct tuning_db_batch *batch = tuning_db_batch_create();
    uint8_t id[TUNING_DB_ID_BYTES];
    tuning_db_id(sample, id);
    assert_int_equal(tuning_db_batch_sent(batch, id, hash), 0);
    commit_now(db, batch);
}

static void unsent_now(struct tuning_db *db, const struct sample *sample)
{
    struct tuning_db_batch *batch = tuning_db_batch_create();
    uint8_t id[TUNING_DB_ID_BYTES];
    tuning_db_id(sample, id);
    assert_int_equal(tuning_db_batch_unsent(batch, id, record_line_hash(sample)), 0);
    commit_now(db, batch);
}

static void aside_now(struct tuning_db *db, const struct sample *sample, uint64_t hash)
{
    struct tuning_db_batch *batch = tuning_db_batch_create();
    uint8_t id[TUNING_DB_ID_BYTES];
    tuning_db_id(sample, id);
    assert_int_equal(tuning_db_batch_aside(batch, id, hash, "of another kernel"), 0);
    commit_now(db, batch);
}

/* --- the outbox ------------------------------------------------------------------------------- */

struct list {
    char configs[256]; /* in the order of the walk */
    size_t count, limit;
    uint8_t last[TUNING_DB_ID_BYTES];
};

static int list_entry(const struct sample *sample, const uint8_t *id, uint64_t hash, void *context)
{
    struct list *list = context;
    uint8_t own[TUNING_DB_ID_BYTES];
    tuning_db_id(sample, own);
    assert_memory_equal(own, id, sizeof own);
    assert_true(hash == record_line_hash(sample));
    if (list->count > 0)
        assert_true(memcmp(list->last, id, sizeof list->last) < 0);
    memcpy(list->last, id, sizeof list->last);
    size_t used = strlen(list->configs);
    snprintf(list->configs + used, sizeof list->configs - used, "%s ", sample->config);
    return ++list->count == list->limit;
}

static size_t count_outbox(struct tuning_db *db)
{
    struct list list = {.count = 0};
    size_t count;
    assert_int_equal(tuning_db_walk_outbox(db, NULL, list_entry, &list, NULL), 0);
    assert_int_equal(tuning_db_outbox_count(db, &count, NULL), 0);
    assert_int_equal(count, list.count);
    return count;
}

static void own_and_imported_rows_are_to_be_sent_and_replicas_are_not(void **state)
{
    (void)state;
    struct tuning_db *db = open_db(&with_outbox);
    struct sample rows[3] = {make_row(1, "1/a"), make_row(2, "1/a"), make_row(3, "1/a")};
    assert_int_equal(count_outbox(db), 0);
    put_sample_now(db, &rows[0]);
    merge_now(db, &rows[1]);
    replicate_now(db, &rows[2]);
    assert_int_equal(count_outbox(db), 2);
    put_sample_now(db, &rows[0]); /* nothing new */
    merge_now(db, &rows[1]);
    assert_int_equal(count_outbox(db), 2);
    sent_now(db, &rows[0], record_line_hash(&rows[0]));
    sent_now(db, &rows[1], record_line_hash(&rows[1]));
    assert_int_equal(count_outbox(db), 0);
    put_sample_now(db, &rows[0]);
    merge_now(db, &rows[1]);
    assert_int_equal(count_outbox(db), 0);
    tuning_db_close(db);
}

static void what_was_not_told_to_be_sent_is_there_after_a_restart(void **state)
{
    (void)state;
    struct tuning_db *db = open_db(&with_outbox);
    struct sample row = make_row(1, "1/a");
    put_sample_now(db, &row);
    tuning_db_close(db);
    for (int round = 0; round < 2; round++) {
        db = open_db(&with_outbox);
        assert_int_equal(count_outbox(db), 1);
        tuning_db_close(db);
    }
    db = open_db(NULL); /* without a fleet it waits */
    assert_int_equal(count_outbox(db), 1);
    tuning_db_close(db);
}

static void a_row_that_changed_while_it_was_sent_is_sent_again(void **state)
{
    (void)state;
    struct tuning_db *db = open_db(&with_outbox);
    struct sample row = make_row(1, "1/a");
    row.is_final = false;
    put_sample_now(db, &row);
    uint64_t first = record_line_hash(&row);
    row.is_final = true;
    put_sample_now(db, &row);
    assert_int_equal(count_outbox(db), 1);
    sent_now(db, &row, first);
    assert_int_equal(count_outbox(db), 1);
    sent_now(db, &row, record_line_hash(&row));
    assert_int_equal(count_outbox(db), 0);
    tuning_db_close(db);
}

/* The entry is older than the row, because it changed while there was no outbox. */
static void a_row_that_changed_without_an_outbox_can_be_sent(void **state)
{
    (void)state;
    struct tuning_db *db = open_db(&with_outbox);
    struct sample row = make_row(1, "1/a");
    row.is_final = false;
    put_sample_now(db, &row);
    uint64_t first = record_line_hash(&row);
    tuning_db_close(db);
    db = open_db(NULL);
    row.is_final = true;
    put_sample_now(db, &row);
    tuning_db_close(db);
    db = open_db(&with_outbox);
    assert_int_equal(count_outbox(db), 1); /* list_entry looks at the hash */
    assert_true(first != record_line_hash(&row));
    sent_now(db, &row, record_line_hash(&row));
    assert_int_equal(count_outbox(db), 0);
    tuning_db_close(db);
}

static void what_the_fleet_has_needs_no_sending(void **state)
{
    (void)state;
    struct tuning_db *db = open_db(&with_outbox);
    struct sample own = make_row(1, "1/a"), older = own, newer = own;
    own.attempts = 2;
    newer.attempts = 3;
    put_sample_now(db, &own);
    replicate_now(db, &older); /* ours stands before it: the fleet still lacks ours */
    assert_int_equal(count_outbox(db), 1);
    replicate_now(db, &own);
    assert_int_equal(count_outbox(db), 0);
    unsent_now(db, &own);
    assert_int_equal(count_outbox(db), 1);
    replicate_now(db, &newer); /* it stands before ours: ours is of no use there */
    assert_int_equal(count_outbox(db), 0);
    newer.is_refused = true; /* what is done to a replica here is news there */
    merge_now(db, &newer);
    assert_int_equal(count_outbox(db), 1);
    tuning_db_close(db);
}

static void a_walk_goes_on_after_a_row_and_ends_when_it_is_told(void **state)
{
    (void)state;
    struct tuning_db *db = open_db(&with_outbox);
    struct list all = {.count = 0}, first = {.limit = 2}, rest = {.count = 0};
    char both[512];
    for (unsigned i = 0; i < 5; i++) {
        struct sample row = make_row(i, "1/a");
        put_sample_now(db, &row);
    }
    assert_int_equal(tuning_db_walk_outbox(db, NULL, list_entry, &all, NULL), 0);
    assert_int_equal(tuning_db_walk_outbox(db, NULL, list_entry, &first, NULL), 0);
    assert_int_equal(tuning_db_walk_outbox(db, first.last, list_entry, &rest, NULL), 0);
    assert_int_equal(first.count, 2);
    assert_int_equal(rest.count, 3);
    snprintf(both, sizeof both, "%s%s", first.configs, rest.configs);
    assert_string_equal(both, all.configs);
    tuning_db_close(db);
}

static void a_row_that_no_line_can_say_is_not_to_be_sent(void **state)
{
    (void)state;
    struct tuning_db *db = open_db(&with_outbox);
    struct sample row = make_row(1, "1/a");
    row.config = ""; /* as no tuning writes it */
    put_sample_now(db, &row);
    assert_int_equal(count_outbox(db), 0);
    tuning_db_close(db);
}

/* Opens the file with LMDB alone. */
static MDB_txn *begin_raw(MDB_env **env)
{
    MDB_txn *txn;
    assert_int_equal(mdb_env_create(env), 0);
    mdb_env_set_maxdbs(*env, 16);
    assert_int_equal(mdb_env_open(*env, path_in("db"), 0, 0600), 0);
    assert_int_equal(mdb_txn_begin(*env, NULL, 0, &txn), 0);
    return txn;
}

static void end_raw(MDB_env *env, MDB_txn *txn)
{
    assert_int_equal(mdb_txn_commit(txn), 0);
    mdb_env_close(env);
}

static void an_entry_whose_row_is_lost_is_passed_over_and_taken_out(void **state)
{
    (void)state;
    struct tuning_db *db = open_db(&with_outbox);
    struct sample rows[3] = {make_row(1, "1/a"), make_row(2, "1/a"), make_row(3, "1/a")};
    for (size_t i = 0; i < 3; i++)
        put_sample_now(db, &rows[i]);
    tuning_db_close(db);
    MDB_env *env;
    MDB_dbi dbi;
    MDB_txn *txn = begin_raw(&env);
    uint8_t lost[TUNING_DB_ID_BYTES], damaged[TUNING_DB_ID_BYTES];
    tuning_db_id(&rows[0], lost);
    tuning_db_id(&rows[1], damaged);
    MDB_val key = {sizeof lost, lost}, value = {5, (char[]){"noise"}};
    assert_int_equal(mdb_dbi_open(txn, "samples", 0, &dbi), 0);
    assert_int_equal(mdb_del(txn, dbi, &key, NULL), 0);
    key.mv_data = damaged;
    assert_int_equal(mdb_put(txn, dbi, &key, &value, 0), 0);
    end_raw(env, txn);
    db = open_db(&with_outbox);
    struct list list = {.count = 0};
    size_t count;
    assert_int_equal(tuning_db_walk_outbox(db, NULL, list_entry, &list, NULL), 0);
    assert_string_equal(list.configs, "BM=3 ");
    assert_int_equal(tuning_db_outbox_count(db, &count, NULL), 0);
    assert_int_equal(count, 1);
    unsent_now(db, &rows[0]); /* there is nothing to send */
    assert_int_equal(count_outbox(db), 1);
    tuning_db_close(db);
}

static uint64_t stored_format(MDB_txn *txn)
{
    MDB_dbi dbi;
    MDB_val key = {6, (char[]){"format"}}, value;
    const void *payload;
    size_t count;
    assert_int_equal(mdb_dbi_open(txn, "meta", 0, &dbi), 0);
    assert_int_equal(mdb_get(txn, dbi, &key, &value), 0);
    assert_int_equal(blob_decode(value.mv_data, value.mv_size, &payload, &count, NULL), 0);
    return ((const uint8_t *)payload)[0];
}

/* An older program opens what never belonged to a fleet, and refuses the other by its number. */
static void the_tables_of_a_fleet_are_made_when_they_are_needed(void **state)
{
    (void)state;
    MDB_env *env;
    MDB_dbi dbi;
    struct sample row = make_row(1, "1/a");
    struct tuning_db *db = open_db(&with_outbox);
    tuning_db_close(db);
    db = open_db(NULL);
    put_sample_now(db, &row);
    sent_now(db, &row, 1);
    tuning_db_close(db);
    MDB_txn *txn = begin_raw(&env);
    assert_int_equal(mdb_dbi_open(txn, "outbox", 0, &dbi), MDB_NOTFOUND);
    assert_int_equal(mdb_dbi_open(txn, "aside", 0, &dbi), MDB_NOTFOUND);
    assert_int_equal(stored_format(txn), 2);
    end_raw(env, txn);
    db = open_db(&(struct tuning_db_options){.read_only = true});
    assert_int_equal(count_outbox(db), 0);
    tuning_db_close(db);
    db = open_db(&with_outbox);
    row.run = "2/a";
    put_sample_now(db, &row);
    assert_int_equal(count_outbox(db), 1);
    tuning_db_close(db);
    txn = begin_raw(&env);
    assert_int_equal(stored_format(txn), 3);
    end_raw(env, txn);
    db = open_db(NULL); /* its later new bests leave the format as it is */
    row.run = "3/a";
    row.median_ns = row.lo_ns = 500;
    put_sample_now(db, &row);
    tuning_db_close(db);
    txn = begin_raw(&env);
    assert_int_equal(stored_format(txn), 3);
    end_raw(env, txn);
}

static void a_row_set_aside_alone_raises_the_format(void **state)
{
    (void)state;
    MDB_env *env;
    struct sample row = make_row(1, "1/a");
    struct tuning_db *db = open_db(&with_outbox);
    aside_now(db, &row, 1);
    tuning_db_close(db);
    MDB_txn *txn = begin_raw(&env);
    assert_int_equal(stored_format(txn), 3);
    end_raw(env, txn);
}

/* Of a batch that fails nothing is to be sent, and a full database can be told what was. */
static void a_full_database_notes_nothing_and_forgets_what_was_sent(void **state)
{
    (void)state;
    struct tuning_db_options options = {.has_outbox = true, .map_limit_bytes = 1 << 20};
    struct tuning_db *db = open_db(&options);
    struct tune_error err = {.code = TUNE_OK};
    size_t stored = 0;
    for (unsigned i = 0; err.code == TUNE_OK; i++) {
        struct tuning_db_batch *batch = tuning_db_batch_create();
        for (unsigned j = 0; j < 100; j++) {
            struct sample row = make_row(100 * i + j, "1/a");
            assert_int_equal(tuning_db_batch_merge(batch, &row), 0);
        }
        if (tuning_db_commit(db, batch, &err) == 0)
            stored += 100;
        tuning_db_batch_destroy(batch);
    }
    assert_int_equal(err.code, TUNE_EFULL);
    assert_true(stored > 0);
    assert_int_equal(count_outbox(db), stored);
    struct sample first = make_row(0, "1/a");
    sent_now(db, &first, record_line_hash(&first));
    assert_int_equal(count_outbox(db), stored - 1);
    tuning_db_close(db);
}

/* --- readers while the tables are made -------------------------------------------------------- */

struct reading {
    struct tuning_db *db;
    atomic_bool is_over;
    atomic_int failures;
};

static int pass(const struct sample *sample, const uint8_t *id, uint64_t hash, void *context)
{
    (void)sample, (void)id, (void)hash, (void)context;
    return 0;
}

static void *read_on(void *argument)
{
    struct reading *reading = argument;
    struct tuning_db_bucket buckets[TUNING_DB_BUCKETS];
    while (!atomic_load(&reading->is_over)) {
        size_t count;
        if (tuning_db_walk_outbox(reading->db, NULL, pass, NULL, NULL) != 0 ||
            tuning_db_outbox_count(reading->db, &count, NULL) != 0 ||
            tuning_db_digest(reading->db, true, buckets, NULL) != 0)
            atomic_fetch_add(&reading->failures, 1);
    }
    return NULL;
}

static void readers_go_on_while_the_tables_are_made(void **state)
{
    (void)state;
    for (int round = 0; round < 10; round++) {
        struct reading reading = {.db = open_db(&with_outbox)};
        pthread_t threads[2];
        for (size_t i = 0; i < 2; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, read_on, &reading), 0);
        for (unsigned i = 0; i < 10; i++) {
            struct sample row = make_row(i, "1/a");
            put_sample_now(reading.db, &row);
            aside_now(reading.db, &row, i);
        }
        atomic_store(&reading.is_over, true);
        for (size_t i = 0; i < 2; i++)
            pthread_join(threads[i], NULL);
        assert_int_equal(atomic_load(&reading.failures), 0);
        assert_int_equal(count_outbox(reading.db), 10);
        tuning_db_close(reading.db);
        fixture_remove();
        fixture_make();
    }
}

/* --- digests ---------------------------------------------------------------------------------- */

struct bucket_list {
    struct tuning_db_bucket sum;
    size_t asides;
    unsigned bucket;
    uint8_t last[TUNING_DB_ID_BYTES];
    uint64_t aside_hash;
};

static int list_bucket_row(const uint8_t *id, uint64_t hash, bool is_aside, void *context)
{
    struct bucket_list *list = context;
    assert_int_equal(id[0], list->bucket);
    if (list->sum.rows > 0)
        assert_true(memcmp(list->last, id, sizeof list->last) < 0);
    memcpy(list->last, id, sizeof list->last);
    list->sum.rows++;
    list->sum.digest ^= hash;
    list->asides += is_aside;
    if (is_aside)
        list->aside_hash = hash;
    return 0;
}

/* The whole digest, after a look at whether the listings of all buckets agree with it. */
static struct tuning_db_bucket digest_of(struct tuning_db *db, bool with_cpu, size_t *asides)
{
    struct tuning_db_bucket buckets[TUNING_DB_BUCKETS], sum = {0};
    *asides = 0;
    assert_int_equal(tuning_db_digest(db, with_cpu, buckets, NULL), 0);
    for (unsigned i = 0; i < TUNING_DB_BUCKETS; i++) {
        struct bucket_list list = {.bucket = i};
        assert_int_equal(tuning_db_walk_bucket(db, with_cpu, i, list_bucket_row, &list, NULL), 0);
        assert_memory_equal(&list.sum, &buckets[i], sizeof list.sum);
        sum.rows += buckets[i].rows;
        sum.digest ^= buckets[i].digest;
        *asides += list.asides;
    }
    return sum;
}

/* Rows of many keys, so that they fall into many buckets; every fifth of the emulated device. */
static struct sample spread_row(unsigned i)
{
    static char shapes[400][16];
    struct sample row = make_row(i, "1/a");
    snprintf(shapes[i], sizeof shapes[i], "M=%u", i + 1);
    row.key.shape = shapes[i];
    row.key.arch = i % 5 == 0 ? "cpu" : "sm_90";
    return row;
}

static void equal_sets_have_equal_digests_however_they_came(void **state)
{
    (void)state;
    struct tuning_db_bucket plain[2] = {{0, 0}, {0, 0}}, own;
    size_t asides;
    struct tuning_db *db = open_db(&with_outbox);
    struct tuning_db_batch *batch = tuning_db_batch_create();
    for (unsigned i = 0; i < 400; i++) {
        struct sample row = spread_row(i);
        for (int with_cpu = 0; with_cpu < 2; with_cpu++) {
            if (with_cpu == 0 && i % 5 == 0)
                continue;
            plain[with_cpu].rows++;
            plain[with_cpu].digest ^= record_line_hash(&row);
        }
        tuning_db_batch_merge(batch, &row);
    }
    commit_now(db, batch);
    for (int round = 0; round < 2; round++) {
        for (int with_cpu = 0; with_cpu < 2; with_cpu++) {
            own = digest_of(db, with_cpu, &asides);
            assert_memory_equal(&own, &plain[with_cpu], sizeof own);
            assert_int_equal(asides, 0);
        }
        tuning_db_close(db);
        fixture_remove();
        fixture_make();
        db = open_db(NULL);
        for (unsigned i = 400; round == 0 && i-- > 0;) {
            struct sample row = spread_row(i);
            batch = tuning_db_batch_create();
            tuning_db_batch_sample(batch, &row);
            commit_now(db, batch);
        }
    }
    tuning_db_close(db);
}

static void a_row_set_aside_stands_for_the_stored_one_until_that_changes(void **state)
{
    (void)state;
    struct tuning_db *db = open_db(&with_outbox);
    struct sample row = make_row(1, "1/a"), other = make_row(2, "1/a");
    size_t asides;
    put_sample_now(db, &other);
    aside_now(db, &row, 77); /* not stored at all */
    struct tuning_db_bucket sum = digest_of(db, false, &asides);
    assert_int_equal(sum.rows, 2);
    assert_int_equal(asides, 1);
    assert_true(sum.digest == (record_line_hash(&other) ^ 77));
    aside_now(db, &row, 78);  /* another row of its id */
    aside_now(db, &other, 5); /* the fleet has another row than this one */
    sum = digest_of(db, false, &asides);
    assert_int_equal(sum.rows, 2);
    assert_int_equal(asides, 2);
    assert_true(sum.digest == (78 ^ 5));
    tuning_db_close(db);
    db = open_db(&with_outbox);
    replicate_now(db, &row); /* now it is taken in */
    other.attempts++;
    merge_now(db, &other);
    sum = digest_of(db, false, &asides);
    assert_int_equal(asides, 0);
    assert_true(sum.digest == (record_line_hash(&row) ^ record_line_hash(&other)));
    aside_now(db, &row, 79); /* what is stored anew without a change ends nothing */
    replicate_now(db, &row);
    digest_of(db, false, &asides);
    assert_int_equal(asides, 1);
    tuning_db_close(db);
}

static void a_bucket_that_is_not_there_is_refused(void **state)
{
    (void)state;
    struct tuning_db *db = open_db(NULL);
    struct tune_error err = {.code = TUNE_OK};
    assert_int_equal(tuning_db_walk_bucket(db, true, 256, list_bucket_row, NULL, &err), -1);
    assert_int_equal(err.code, TUNE_EINVAL);
    tuning_db_close(db);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(own_and_imported_rows_are_to_be_sent_and_replicas_are_not),
        TEST(what_was_not_told_to_be_sent_is_there_after_a_restart),
        TEST(a_row_that_changed_while_it_was_sent_is_sent_again),
        TEST(a_row_that_changed_without_an_outbox_can_be_sent),
        TEST(what_the_fleet_has_needs_no_sending),
        TEST(a_walk_goes_on_after_a_row_and_ends_when_it_is_told),
        TEST(a_row_that_no_line_can_say_is_not_to_be_sent),
        TEST(an_entry_whose_row_is_lost_is_passed_over_and_taken_out),
        TEST(the_tables_of_a_fleet_are_made_when_they_are_needed),
        TEST(a_row_set_aside_alone_raises_the_format),
        TEST(a_full_database_notes_nothing_and_forgets_what_was_sent),
        TEST(readers_go_on_while_the_tables_are_made),
        TEST(equal_sets_have_equal_digests_however_they_came),
        TEST(a_row_set_aside_stands_for_the_stored_one_until_that_changes),
        TEST(a_bucket_that_is_not_there_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
