/* Merging rows of many machines: whatever way they come together, the same rows stand and the same
 * best ones follow. */
#include "fixture.h"
#include "tuning_db/record_line.h"
#include "tuning_db/tuning_db_internal.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the plain model: a set of lines ---------------------------------------------------------- */

#define SET_LIMIT 16

struct member {
    struct sample sample;
    uint8_t id[TUNING_DB_ID_BYTES];
    char *line;
};

struct set {
    struct member members[SET_LIMIT]; /* by id */
    size_t count;
};

/* Written without sample_precedence: refused, final, attempts, then the line that sorts last. */
static bool stands_before(const struct member *a, const struct member *b)
{
    if (a->sample.is_refused != b->sample.is_refused)
        return a->sample.is_refused;
    if (a->sample.is_final != b->sample.is_final)
        return a->sample.is_final;
    if (a->sample.attempts != b->sample.attempts)
        return a->sample.attempts > b->sample.attempts;
    return strcmp(a->line, b->line) > 0;
}

static void set_add(struct set *set, const struct sample *sample)
{
    struct member new = {.sample = *sample};
    size_t length, at = 0;
    tuning_db_id(sample, new.id);
    new.line = record_line_format(sample, &length, NULL);
    assert_non_null(new.line);
    while (at < set->count && memcmp(set->members[at].id, new.id, sizeof new.id) < 0)
        at++;
    bool is_known = at < set->count && memcmp(set->members[at].id, new.id, sizeof new.id) == 0;
    if (is_known && !stands_before(&new, &set->members[at])) {
        free(new.line);
        return;
    }
    if (is_known)
        free(set->members[at].line);
    else
        memmove(
            &set->members[at + 1], &set->members[at], (set->count++ - at) * sizeof set->members[0]);
    set->members[at] = new;
}

static void set_clear(struct set *set)
{
    for (size_t i = 0; i < set->count; i++)
        free(set->members[i].line);
    set->count = 0;
}

/* --- random rows ------------------------------------------------------------------------------ */

/* Few identities and few values, so that rows meet, tie, and differ in one field. */
static struct sample random_row(uint64_t *seed)
{
    static const char *const shapes[] = {"M=1", "M=2"}, *const archs[] = {"sm_90", "sm_90", "cpu"};
    static const char *const configs[] = {"BM=1", "BM=2", "BM=3"}, *const runs[] = {"1/a", "2/a"};
    static const char *const uuids[] = {"gpu-0", "gpu-1", "gpu-2"}, *const hosts[] = {"a", "b"};
    static const char *const names[] = {"H200", "H200", "H100"};
    static const int64_t times[] = {1000, 1001, 9000000000000000}; /* of another clock */
    static const double medians[] = {1000, 1000, 1001, 2000, 100};
    struct sample sample = {.key = gemm_key, .attempts = 1};
#define PICK(list) list[next_random(seed) % (sizeof(list) / sizeof(list)[0])]
#define ONE_IN(n) (next_random(seed) % (n) == 0)
    size_t gpu = next_random(seed) % 3;
    sample.key.shape = PICK(shapes);
    sample.key.arch = PICK(archs);
    sample.config = PICK(configs);
    sample.run = PICK(runs);
    sample.gpu_uuid = uuids[gpu];
    sample.gpu_name = names[gpu];
    sample.sms = ONE_IN(8) ? 132 : 0;
    sample.host = PICK(hosts);
    sample.method = ONE_IN(5) ? "event" : "graph";
    sample.outcome = ONE_IN(5) ? OUTCOME_CRASHED : OUTCOME_OK;
    sample.is_final = !ONE_IN(6);
    sample.is_refused = ONE_IN(10);
    sample.is_confirmed = ONE_IN(2);
    sample.is_default = ONE_IN(4);
    sample.attempts += ONE_IN(4);
    sample.time_unix_ms = PICK(times);
    if (sample.outcome == OUTCOME_OK) {
        sample.median_ns = PICK(medians);
        sample.lo_ns = sample.median_ns - (double)(next_random(seed) % 3);
        sample.hi_ns = sample.median_ns + (double)(next_random(seed) % 3);
    }
    return sample;
}

/* --- all ways to merge ------------------------------------------------------------------------ */

#define CASES 10000
#define BLOCK 500 /* cases that share their commits */
#define ROWS 12
#define GROUPS 3
#define STEPS 4 /* commits, one after the other */

/* A way has a kernel name of its own in each case, so that one database serves all. */
enum way {
    WAY_AT_ONCE,
    WAY_REVERSED,   /* at once, the last row first, as a replica */
    WAY_BY_GROUPS,  /* A, then B, then C, then A once more */
    WAY_BACKWARDS,  /* C, then B, then A */
    WAY_PAIR,       /* B and C, which WAY_PAIR_LATER takes up */
    WAY_PAIR_LATER, /* A, then what the database holds of WAY_PAIR */
    WAY_COUNT
};

/* Each case is merged at once and in half of the other ways. */
static bool is_taken(size_t number, enum way way)
{
    return way == WAY_AT_ONCE || (number % 2 == 0) == (way < WAY_BACKWARDS);
}

struct merging {
    struct sample rows[ROWS];
    size_t group[ROWS];
};

static const char *kernel_of(size_t number, enum way way)
{
    static char texts[8][32];
    static unsigned next;
    char *text = texts[next++ % 8];
    snprintf(text, sizeof texts[0], "k%06zu.%d", number, (int)way);
    return text;
}

static void add_row(
    struct tuning_db_batch *batch, struct sample sample, size_t number, enum way way)
{
    sample.key.kernel = kernel_of(number, way);
    int status = way == WAY_REVERSED ? tuning_db_batch_replica(batch, &sample)
                                     : tuning_db_batch_merge(batch, &sample);
    assert_int_equal(status, 0);
}

/* Whether a row of this group goes in at this step. */
static bool is_its_turn(enum way way, size_t step, size_t group)
{
    static const int turns[WAY_COUNT][STEPS] = {/* bits of groups */
        {7, 0, 0, 0}, {7, 0, 0, 0}, {1, 2, 4, 1}, {4, 2, 1, 0}, {6, 0, 0, 0}, {1, 0, 0, 0}};
    return turns[way][step] >> group & 1;
}

/* A walk gives the database's own rows on to a batch. */
struct taking_up {
    struct tuning_db_batch *batch;
    size_t number;
};

static int take_up(const struct sample *sample, void *context)
{
    struct taking_up *taking = context;
    add_row(taking->batch, *sample, taking->number, WAY_PAIR_LATER);
    return 0;
}

/* The keys of random rows. */
static void each_key(void (*body)(struct record_key *key, void *context), void *context)
{
    static const char *const shapes[] = {"M=1", "M=2"}, *const archs[] = {"sm_90", "cpu"};
    for (size_t i = 0; i < 4; i++) {
        struct record_key key = gemm_key;
        key.shape = shapes[i % 2];
        key.arch = archs[i / 2];
        body(&key, context);
    }
}

struct taking_pair {
    struct tuning_db *db;
    struct taking_up taking;
};

static void take_key(struct record_key *key, void *context)
{
    struct taking_pair *pair = context;
    key->kernel = kernel_of(pair->taking.number, WAY_PAIR);
    assert_int_equal(tuning_db_walk_samples(pair->db, key, take_up, &pair->taking, NULL), 0);
}

static void run_step(struct tuning_db *db, const struct merging *cases, size_t first, size_t step)
{
    struct tuning_db_batch *batch = tuning_db_batch_create();
    for (size_t i = 0; i < BLOCK; i++) {
        for (int way = 0; way < WAY_COUNT; way++)
            for (size_t row = 0; row < ROWS && is_taken(first + i, (enum way)way); row++) {
                size_t at = way == WAY_REVERSED ? ROWS - 1 - row : row;
                if (is_its_turn((enum way)way, step, cases[i].group[at]))
                    add_row(batch, cases[i].rows[at], first + i, (enum way)way);
            }
        struct taking_pair pair = {db, {batch, first + i}};
        if (step == 1 && is_taken(first + i, WAY_PAIR))
            each_key(take_key, &pair);
    }
    commit_now(db, batch);
}

/* --- comparing -------------------------------------------------------------------------------- */

#define KEYS 4

/* What a case must come to, and how much of it was met in each way. */
struct wanted {
    struct set set;
    struct record_key keys[KEYS];
    struct best_rows best[KEYS];
    size_t best_count;
    size_t samples_met[WAY_COUNT], best_met[WAY_COUNT];
    struct sample reduced[SET_LIMIT]; /* that the best rows of WAY_AT_ONCE rest on */
    size_t reduced_count;
};

struct comparison {
    struct wanted *wanted; /* of each case of a block */
    size_t first;          /* the number of its first case */
};

static void note_key(struct record_key *key, void *context)
{
    struct wanted *wanted = context;
    const struct sample *samples[SET_LIMIT];
    size_t count = 0, at = 0;
    while (wanted->keys[at].kernel != NULL)
        at++;
    wanted->keys[at] = *key;
    for (size_t i = 0; i < wanted->set.count; i++)
        if (record_key_equal(&wanted->set.members[i].sample.key, key))
            samples[count++] = &wanted->set.members[i].sample;
    assert_int_equal(best_rows_pick(&wanted->best[at], samples, count), 0);
    wanted->best_count += wanted->best[at].count;
}

static void wanted_init(struct wanted *wanted, const struct merging *merging)
{
    memset(wanted, 0, sizeof *wanted);
    for (size_t i = 0; i < ROWS; i++)
        set_add(&wanted->set, &merging->rows[i]);
    each_key(note_key, wanted);
}

static void wanted_finish(struct wanted *wanted)
{
    for (size_t i = 0; i < KEYS; i++)
        best_rows_finish(&wanted->best[i]);
    set_clear(&wanted->set);
}

/* The case and the way that a row's kernel names. */
static struct wanted *case_of(const struct comparison *comparison, const char *kernel, int *way)
{
    size_t number;
    assert_int_equal(sscanf(kernel, "k%zu.%d", &number, way), 2);
    return &comparison->wanted[number - comparison->first];
}

/* The model's row of this one's identity; the sample is given the model's kernel. */
static const struct member *find_member(const struct set *set, struct sample *sample)
{
    uint8_t id[TUNING_DB_ID_BYTES];
    sample->key.kernel = gemm_key.kernel;
    tuning_db_id(sample, id);
    for (size_t i = 0; i < set->count; i++)
        if (memcmp(set->members[i].id, id, sizeof id) == 0)
            return &set->members[i];
    fail_msg("the model has no %s of %s on %s", sample->config, sample->run, sample->gpu_uuid);
    return NULL;
}

static int compare_sample(const struct sample *sample, void *context)
{
    struct sample own = *sample;
    size_t length;
    int way;
    struct wanted *wanted = case_of(context, sample->key.kernel, &way);
    wanted->samples_met[way]++;
    if (way == WAY_PAIR)
        return 0;
    const struct member *member = find_member(&wanted->set, &own);
    char *line = record_line_format(&own, &length, NULL);
    assert_string_equal(line, member->line);
    free(line);
    return 0;
}

static void assert_equal_best(const struct best *best, const struct best *wanted)
{
    struct best own = *best;
    size_t length, wanted_length;
    own.key.kernel = wanted->key.kernel;
    void *bytes = best_encode(&own, &length), *other = best_encode(wanted, &wanted_length);
    assert_int_equal(length, wanted_length);
    assert_memory_equal(bytes, other, length);
    free(bytes);
    free(other);
}

static int compare_best(const struct best *best, void *context)
{
    int way;
    struct wanted *wanted = case_of(context, best->key.kernel, &way);
    struct record_key key = best->key;
    key.kernel = gemm_key.kernel;
    wanted->best_met[way]++;
    for (size_t i = 0; i < KEYS && way != WAY_PAIR; i++)
        for (size_t j = 0; j < wanted->best[i].count; j++) {
            const struct best *row = &wanted->best[i].rows[j];
            if (record_key_equal(&row->key, &key) && strcmp(row->gpu_name, best->gpu_name) == 0 &&
                row->sms == best->sms) {
                assert_equal_best(best, row);
                return 0;
            }
        }
    if (way != WAY_PAIR)
        fail_msg("no best row of %s follows from the samples", best->gpu_name);
    return 0;
}

/* The texts of what is collected are the model's, which stay. */
static int collect_reduced(const struct sample *sample, void *context)
{
    struct sample own = *sample;
    int way;
    struct wanted *wanted = case_of(context, sample->key.kernel, &way);
    if (way == WAY_AT_ONCE)
        wanted->reduced[wanted->reduced_count++] = find_member(&wanted->set, &own)->sample;
    return 0;
}

/* The samples that best rows rest on give the same best rows by themselves. */
static void compare_reduced(const struct wanted *wanted, size_t key)
{
    const struct best_rows *full = &wanted->best[key];
    const struct sample *samples[SET_LIMIT];
    struct best_rows rows;
    size_t count = 0;
    for (size_t i = 0; i < wanted->reduced_count; i++)
        if (record_key_equal(&wanted->reduced[i].key, &wanted->keys[key]))
            samples[count++] = &wanted->reduced[i];
    assert_int_equal(best_rows_pick(&rows, samples, count), 0);
    assert_int_equal(rows.count, full->count);
    for (size_t i = 0; i < rows.count; i++)
        assert_equal_best(&rows.rows[i], &full->rows[i]);
    assert_int_equal(rows.arch, full->arch);
    best_rows_finish(&rows);
}

static void compare_arch(
    struct tuning_db *db, const struct wanted *wanted, size_t key, const char *kernel)
{
    struct best best;
    struct record_key own = wanted->keys[key];
    const struct best_rows *full = &wanted->best[key];
    own.kernel = kernel;
    int status = tuning_db_best(db, &own, NULL, 0, &best, NULL);
    assert_int_equal(status, full->count > 0 ? 0 : 1);
    if (status == 0) {
        assert_equal_best(&best, &full->rows[full->arch]);
        best_finish(&best);
    }
}

static void compare_case(struct tuning_db *db, const struct wanted *wanted, size_t number)
{
    for (int way = 0; way < WAY_COUNT; way++) {
        if (way == WAY_PAIR || !is_taken(number, (enum way)way))
            continue;
        assert_int_equal(wanted->samples_met[way], wanted->set.count);
        assert_int_equal(wanted->best_met[way], wanted->best_count);
    }
    compare_arch(db, wanted, number % KEYS, kernel_of(number, WAY_AT_ONCE));
    for (size_t key = 0; key < KEYS; key++)
        compare_reduced(wanted, key);
}

static void compare_block(struct tuning_db *db, const struct merging *cases, size_t first)
{
    struct comparison comparison = {calloc(BLOCK, sizeof *comparison.wanted), first};
    struct wanted *wanted = comparison.wanted;
    for (size_t i = 0; i < BLOCK; i++)
        wanted_init(&wanted[i], &cases[i]);
    assert_int_equal(tuning_db_walk_samples(db, NULL, compare_sample, &comparison, NULL), 0);
    assert_int_equal(tuning_db_walk_best(db, NULL, compare_best, &comparison, NULL), 0);
    assert_int_equal(tuning_db_walk_best_samples(db, NULL, collect_reduced, &comparison, NULL), 0);
    for (size_t i = 0; i < BLOCK; i++) {
        compare_case(db, &wanted[i], first + i);
        wanted_finish(&wanted[i]);
    }
    free(wanted);
}

static void however_rows_come_together_the_same_ones_stand(void **state)
{
    (void)state;
    static struct merging cases[BLOCK];
    uint64_t seed = 9;
    for (size_t first = 0; first < CASES; first += BLOCK) {
        struct tuning_db *db = open_db(NULL);
        for (size_t i = 0; i < BLOCK; i++)
            for (size_t row = 0; row < ROWS; row++) {
                cases[i].rows[row] = random_row(&seed);
                cases[i].group[row] = next_random(&seed) % GROUPS;
            }
        for (size_t step = 0; step < STEPS; step++)
            run_step(db, cases, first, step);
        compare_block(db, cases, first);
        tuning_db_close(db);
        fixture_remove();
        fixture_make();
    }
}

/* --- what a batch tells ----------------------------------------------------------------------- */

static struct tuning_db_merged merge_rows(
    struct tuning_db *db, const struct sample *samples, size_t count)
{
    struct tuning_db_batch *batch = tuning_db_batch_create();
    struct tuning_db_merged tried, merged;
    struct tune_error err = {.code = TUNE_OK};
    for (size_t i = 0; i < count; i++)
        assert_int_equal(tuning_db_batch_merge(batch, &samples[i]), 0);
    assert_int_equal(tuning_db_try(db, batch, &err), 0);
    tuning_db_batch_merged(batch, &tried);
    assert_int_equal(tuning_db_commit(db, batch, &err), 0);
    tuning_db_batch_merged(batch, &merged);
    assert_memory_equal(&tried, &merged, sizeof merged);
    tuning_db_batch_destroy(batch);
    return merged;
}

#define ASSERT_MERGED(merged, a, e, r, k)                                                          \
    do {                                                                                           \
        struct tuning_db_merged got_ = (merged);                                                   \
        assert_int_equal(got_.added, a);                                                           \
        assert_int_equal(got_.equal, e);                                                           \
        assert_int_equal(got_.replaced, r);                                                        \
        assert_int_equal(got_.kept, k);                                                            \
    } while (0)

static int count_row(const struct sample *sample, void *context)
{
    (void)sample;
    ++*(size_t *)context;
    return 0;
}

static size_t count_rows(struct tuning_db *db, const struct record_key *key)
{
    size_t count = 0;
    assert_int_equal(tuning_db_walk_samples(db, key, count_row, &count, NULL), 0);
    return count;
}

static void what_became_of_each_row_is_told(void **state)
{
    (void)state;
    struct tuning_db *db = open_db(NULL);
    struct sample rows[3] = {
        make_sample(1, "1/a", 10), make_sample(2, "1/a", 20), make_sample(2, "1/a", 20)};
    rows[2].attempts = 2; /* two of one identity in one batch */
    ASSERT_MERGED(merge_rows(db, rows, 3), 2, 0, 1, 0);
    ASSERT_MERGED(merge_rows(db, rows, 3), 0, 2, 0, 1);
    rows[0].is_refused = true;
    ASSERT_MERGED(merge_rows(db, rows, 1), 0, 0, 1, 0);
    rows[0].is_refused = false;
    ASSERT_MERGED(merge_rows(db, rows, 1), 0, 0, 0, 1);
    assert_int_equal(count_rows(db, NULL), 2);
    tuning_db_close(db);
}

static void count_change(const struct record_key *key, void *context)
{
    (void)key;
    ++*(size_t *)context;
}

static void only_keys_with_a_new_row_are_chosen_anew(void **state)
{
    (void)state;
    struct tuning_db *db = open_db(NULL);
    struct sample rows[2] = {make_sample(1, "1/a", 10), make_sample(1, "1/a", 10)};
    rows[1].key.shape = "M=2";
    uint64_t start = tuning_db_generation(db), now;
    merge_rows(db, rows, 2);
    assert_int_equal(tuning_db_generation(db), start + 1);
    merge_rows(db, rows, 2); /* nothing new */
    assert_int_equal(tuning_db_generation(db), start + 1);
    rows[0] = make_sample(2, "1/a", 5);
    merge_rows(db, rows, 2);
    size_t changes = 0;
    assert_int_equal(tuning_db_changes(db, start + 1, count_change, &changes, &now), 0);
    assert_int_equal(changes, 1);
    assert_int_equal(now, start + 2);
    tuning_db_close(db);
}

static void a_key_is_chosen_anew_once_however_often_it_is_named(void **state)
{
    (void)state;
    struct tuning_db_batch *batch = tuning_db_batch_create();
    for (unsigned i = 0; i < 3000; i++) {
        struct record_key key = gemm_key;
        char shape[32];
        snprintf(shape, sizeof shape, "M=%u", i % 1000);
        key.shape = shape;
        assert_int_equal(tuning_db_batch_refresh(batch, &key), 0);
    }
    assert_int_equal(tuning_db_batch_count(batch), 1000);
    tuning_db_batch_destroy(batch);
}

static void a_refused_row_is_never_best_again(void **state)
{
    (void)state;
    struct tuning_db *db = open_db(NULL);
    struct sample fast = make_sample(1, "1/a", 10), slow = make_sample(2, "1/a", 20);
    struct best best;
    put_sample_now(db, &fast);
    put_sample_now(db, &slow);
    fast.is_refused = true;
    merge_rows(db, &fast, 1);
    fast.is_refused = false;
    merge_rows(db, &fast, 1);
    put_sample_now(db, &fast);
    assert_int_equal(tuning_db_best(db, &gemm_key, NULL, 0, &best, NULL), 0);
    assert_string_equal(best.config, "BM=2");
    best_finish(&best);
    tuning_db_close(db);
}

/* A first crash that was set aside stays set aside when the machine tries again. */
static void an_own_row_does_not_replace_one_that_stands_before_it(void **state)
{
    (void)state;
    struct tuning_db *db = open_db(NULL);
    struct sample row = make_sample(1, "1/a", 10);
    row.is_final = false;
    row.is_refused = true;
    put_sample_now(db, &row);
    row.is_final = true;
    row.is_refused = false;
    struct tuning_db_batch *batch = tuning_db_batch_create();
    tuning_db_batch_sample(batch, &row);
    assert_int_equal(tuning_db_commit(db, batch, NULL), 0);
    assert_int_equal(tuning_db_batch_duplicates(batch), 1);
    tuning_db_batch_destroy(batch);
    row.is_refused = true;
    row.is_final = false;
    ASSERT_MERGED(merge_rows(db, &row, 1), 0, 1, 0, 0);
    tuning_db_close(db);
}

/* --- unlike things ---------------------------------------------------------------------------- */

static void unlike_things_are_kept_apart(void **state)
{
    (void)state;
    struct tuning_db *db = open_db(NULL);
    struct sample rows[4];
    for (unsigned i = 0; i < 4; i++)
        rows[i] = make_sample(1, "1/a", 10 + i);
    rows[1].key.shape = "M=64,N=64,K=64";
    rows[2].key.fingerprint = "fedcba9876543210fedcba9876543210"; /* of another source text */
    rows[3].config = "BM=1,BN=2";                                 /* of another space */
    ASSERT_MERGED(merge_rows(db, rows, 4), 4, 0, 0, 0);
    for (size_t i = 0; i < 3; i++) {
        struct best best;
        assert_int_equal(tuning_db_best(db, &rows[i].key, NULL, 0, &best, NULL), 0);
        assert_true(best.median_ns == rows[i].median_ns);
        assert_int_equal(best.tie_count, 0);
        best_finish(&best);
        assert_int_equal(count_rows(db, &rows[i].key), i == 0 ? 2 : 1);
    }
    tuning_db_close(db);
}

/* --- trials and limits ------------------------------------------------------------------------ */

static void a_trial_changes_not_one_byte(void **state)
{
    (void)state;
    struct tuning_db *db = open_db(&(struct tuning_db_options){.has_outbox = true});
    struct sample rows[3] = {
        make_sample(1, "1/a", 10), make_sample(2, "1/a", 20), make_sample(1, "1/a", 10)};
    put_sample_now(db, &rows[0]);
    rows[2].attempts = 7;
    uint64_t generation = tuning_db_generation(db);
    size_t count, after_count;
    char *bytes = read_file(path_in("db/data.mdb"), &count);
    struct tuning_db_batch *batch = tuning_db_batch_create();
    struct tuning_db_merged merged;
    uint8_t id[TUNING_DB_ID_BYTES];
    for (size_t i = 0; i < 3; i++)
        tuning_db_batch_merge(batch, &rows[i]);
    tuning_db_id(&rows[0], id);
    tuning_db_batch_aside(batch, id, 1, "of another kernel");
    tuning_db_batch_refresh(batch, &gemm_key);
    assert_int_equal(tuning_db_try(db, batch, NULL), 0);
    tuning_db_batch_merged(batch, &merged);
    ASSERT_MERGED(merged, 1, 1, 1, 0);
    tuning_db_batch_destroy(batch);
    char *after = read_file(path_in("db/data.mdb"), &after_count);
    assert_int_equal(after_count, count);
    assert_memory_equal(bytes, after, count);
    assert_int_equal(tuning_db_generation(db), generation);
    assert_int_equal(count_rows(db, NULL), 1);
    free(bytes);
    free(after);
    tuning_db_close(db);
}

#define MANY 20000

static struct tuning_db_batch *batch_of_many(void)
{
    static const float samples_ns[200];
    struct tuning_db_batch *batch = tuning_db_batch_create();
    char shape[32];
    for (unsigned i = 0; i < MANY; i++) {
        struct sample sample = make_sample(i, "1/a", 10);
        sample.samples_ns = samples_ns;
        sample.sample_count = 200;
        snprintf(shape, sizeof shape, "M=%u", i / 4 + 1);
        sample.key.shape = shape;
        assert_int_equal(tuning_db_batch_merge(batch, &sample), 0);
    }
    return batch;
}

/* The limit is met somewhere past the middle. */
static void of_a_batch_that_meets_the_limit_nothing_is_stored(void **state)
{
    (void)state;
    struct tuning_db_options options = {.map_limit_bytes = 24 << 20};
    struct tuning_db *db = open_db(&options);
    struct tuning_db_batch *batch = batch_of_many();
    struct tuning_db_merged merged;
    struct tune_error err = {.code = TUNE_OK};
    uint64_t generation = tuning_db_generation(db);
    assert_int_equal(tuning_db_try(db, batch, &err), -1);
    assert_int_equal(err.code, TUNE_EFULL);
    assert_int_equal(tuning_db_commit(db, batch, NULL), -1);
    tuning_db_batch_merged(batch, &merged);
    assert_in_range(merged.added, MANY / 4, MANY);
    assert_int_equal(count_rows(db, NULL), 0);
    assert_int_equal(tuning_db_generation(db), generation);
    struct sample sample = make_sample(1, "1/a", 10);
    put_sample_now(db, &sample); /* it goes on */
    tuning_db_close(db);
    db = open_db(NULL);
    size_t in_use = mallinfo2().uordblks;
    assert_int_equal(tuning_db_commit(db, batch, NULL), 0);
    /* LMDB would keep each page that was written. */
    assert_true(mallinfo2().uordblks < in_use + ((size_t)8 << 20));
    tuning_db_batch_merged(batch, &merged);
    ASSERT_MERGED(merged, MANY, 0, 0, 0);
    assert_int_equal(count_rows(db, NULL), MANY + 1);
    struct tuning_db_stats stats;
    assert_int_equal(tuning_db_stats(db, &stats, NULL), 0);
    assert_int_equal(stats.best, 2 * (MANY / 4 + 1));
    tuning_db_batch_destroy(batch);
    tuning_db_close(db);
}

/* --- many models ------------------------------------------------------------------------------ */

#define MODELS 3000

/* A row of each model, refused where is_refused says so. */
static void put_models(struct tuning_db *db, bool (*is_refused)(unsigned model))
{
    struct tuning_db_batch *batch = tuning_db_batch_create();
    for (unsigned i = 0; i < MODELS; i++) {
        char name[32];
        struct sample sample = make_sample(1, "1/a", 1000);
        snprintf(name, sizeof name, "model %u", i);
        sample.gpu_name = sample.gpu_uuid = name;
        sample.is_refused = is_refused(i);
        assert_int_equal(tuning_db_batch_merge(batch, &sample), 0);
    }
    assert_int_equal(tuning_db_commit(db, batch, NULL), 0);
    tuning_db_batch_destroy(batch);
}

static size_t count_best(struct tuning_db *db)
{
    struct tuning_db_stats stats;
    assert_int_equal(tuning_db_stats(db, &stats, NULL), 0);
    return stats.best;
}

static bool is_none(unsigned model)
{
    (void)model;
    return false;
}

static bool is_every_second(unsigned model)
{
    return model % 2 == 0;
}

static bool is_any(unsigned model)
{
    (void)model;
    return true;
}

/* A file may name any number of models: what goes away must not cost all the others each time. */
static void models_of_one_key_come_and_go_by_thousands(void **state)
{
    (void)state;
    struct tuning_db *db = open_db(NULL);
    put_models(db, is_none);
    assert_int_equal(count_best(db), MODELS + 1);
    put_models(db, is_every_second);
    assert_int_equal(count_best(db), MODELS / 2 + 1);
    put_models(db, is_any);
    assert_int_equal(count_best(db), 0);
    tuning_db_close(db);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(however_rows_come_together_the_same_ones_stand),
        TEST(what_became_of_each_row_is_told),
        TEST(only_keys_with_a_new_row_are_chosen_anew),
        TEST(a_key_is_chosen_anew_once_however_often_it_is_named),
        TEST(a_refused_row_is_never_best_again),
        TEST(an_own_row_does_not_replace_one_that_stands_before_it),
        TEST(unlike_things_are_kept_apart),
        TEST(a_trial_changes_not_one_byte),
        TEST(of_a_batch_that_meets_the_limit_nothing_is_stored),
        TEST(models_of_one_key_come_and_go_by_thousands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
