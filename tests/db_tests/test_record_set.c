/* Joining sets of record lines against a plain model: the same for every order and grouping, to the
 * byte; nothing lost, nothing compared that is of another key. */
#include "rows.h"
#include "tuning_db/record_set.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CASES 10000
#define POOL 256   /* rows of few identities */
#define PART_MAX 3 /* rows of one set */

static struct {
    struct sample rows[POOL];
    struct row_room rooms[POOL];
    char *lines[POOL];
} pool;

static int make_pool(void **state)
{
    (void)state;
    struct rng rng = {4};
    for (size_t i = 0; i < POOL; i++) {
        size_t length;
        struct sample row = random_row(&rng, &pool.rooms[i]);
        pool.rows[i] = (struct sample){.key = row.key, /* short lines make many cases */
            .config = row.config,
            .gpu_uuid = row.gpu_uuid,
            .run = row.run,
            .outcome = row.outcome,
            .is_final = row.is_final,
            .is_refused = row.is_refused,
            .attempts = row.attempts,
            .median_ns = row.median_ns,
            .lo_ns = row.lo_ns,
            .hi_ns = row.hi_ns,
            .time_unix_ms = row.time_unix_ms,
            .extra = row.extra};
        pool.rows[i].key.shape = "M=1";
        pool.rows[i].key.mode = "cold";
        pool.lines[i] = record_line_format(&pool.rows[i], &length, NULL);
        if (pool.lines[i] == NULL || length >= 4096)
            return -1;
    }
    return 0;
}

static int free_pool(void **state)
{
    (void)state;
    for (size_t i = 0; i < POOL; i++)
        free(pool.lines[i]);
    return 0;
}

/* --- the model -------------------------------------------------------------------------------- */

static bool is_same_identity(const struct sample *a, const struct sample *b)
{
    return record_key_equal(&a->key, &b->key) && strcmp(a->config, b->config) == 0 &&
           strcmp(a->gpu_uuid, b->gpu_uuid) == 0 && strcmp(a->run, b->run) == 0;
}

/* The rule as record_line.h has it, in its own words. */
static bool stands_before(size_t a, size_t b)
{
    const struct sample *left = &pool.rows[a], *right = &pool.rows[b];
    if (left->is_refused != right->is_refused)
        return left->is_refused;
    if (left->is_final != right->is_final)
        return left->is_final;
    if (left->attempts != right->attempts)
        return left->attempts > right->attempts;
    return strcmp(pool.lines[a], pool.lines[b]) > 0;
}

/* The text of the file that rows of the pool make; malloc'ed. */
static char *model(const size_t *rows, size_t count)
{
    const char *standing[3 * PART_MAX];
    size_t standing_count = 0;
    for (size_t i = 0; i < count; i++) {
        bool is_beaten = false;
        for (size_t j = 0; j < count; j++) {
            if (is_same_identity(&pool.rows[rows[i]], &pool.rows[rows[j]]))
                is_beaten |= stands_before(rows[j], rows[i]) || (rows[j] == rows[i] && j < i);
        }
        if (is_beaten)
            continue;
        size_t at = standing_count++;
        for (; at > 0 && strcmp(standing[at - 1], pool.lines[rows[i]]) > 0; at--)
            standing[at] = standing[at - 1];
        standing[at] = pool.lines[rows[i]];
    }
    char *text = malloc(3 * PART_MAX * 4096);
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < standing_count; i++)
        used += (size_t)sprintf(text + used, "%s\n", standing[i]);
    return text;
}

/* --- what is tested --------------------------------------------------------------------------- */

static void add(struct record_set *set, const char *line, size_t length)
{
    struct tune_error err = {0};
    if (record_set_add(set, line, length, &err))
        fail_msg("%s", err.text);
}

static char *text_of(struct record_set *set)
{
    struct record_set_counts counts;
    const char *const *lines = record_set_join(set, &counts);
    assert_non_null(lines);
    assert_int_equal(counts.rows, counts.equal + counts.superseded + counts.standing);
    char *text = malloc(counts.standing * 4096 + 1);
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < counts.standing; i++)
        used += (size_t)sprintf(text + used, "%s\n", lines[i]);
    record_set_destroy(set);
    return text;
}

static char *join_rows(const size_t *rows, size_t count)
{
    struct record_set *set = record_set_create();
    for (size_t i = 0; i < count; i++)
        add(set, pool.lines[rows[i]], strlen(pool.lines[rows[i]]));
    return text_of(set);
}

static char *join_texts(const char *a, const char *b)
{
    struct record_set *set = record_set_create();
    const char *const texts[] = {a, b};
    for (size_t i = 0; i < 2; i++) {
        for (const char *at = texts[i]; *at != '\0'; at += strcspn(at, "\n") + 1)
            add(set, at, strcspn(at, "\n"));
    }
    return text_of(set);
}

static void assert_join(const char *a, const char *b, const char *wanted)
{
    char *joined = join_texts(a, b);
    assert_string_equal(joined, wanted);
    free(joined);
}

static void joining_is_commutative_associative_and_idempotent(void **state)
{
    (void)state;
    struct rng rng = {5};
    for (int i = 0; i < CASES; i++) {
        size_t rows[3 * PART_MAX], ends[4] = {0};
        for (size_t part = 0; part < 3; part++) {
            ends[part + 1] = ends[part] + rng_below(&rng, PART_MAX + 1);
            for (size_t j = ends[part]; j < ends[part + 1]; j++) /* doubled ones among them */
                rows[j] = j > 0 && rng_below(&rng, 4) == 0 ? rows[rng_below(&rng, j)]
                                                           : rng_below(&rng, POOL);
        }
        char *all = model(rows, ends[3]), *parts[3];
        for (size_t part = 0; part < 3; part++)
            parts[part] = join_rows(rows + ends[part], ends[part + 1] - ends[part]);
        char *ab = join_texts(parts[0], parts[1]), *bc = join_texts(parts[1], parts[2]);
        assert_join(parts[1], parts[0], ab);
        assert_join(ab, parts[2], all);
        assert_join(parts[0], bc, all);
        size_t again = rng_below(&rng, 4);
        assert_join(all, again == 3 ? all : parts[again], all);
        free(ab);
        free(bc);
        free(all);
        for (size_t part = 0; part < 3; part++)
            free(parts[part]);
    }
}

static void each_row_is_counted_once(void **state)
{
    (void)state;
    struct sample sample = full_row();
    struct record_set *set = record_set_create();
    const uint32_t attempts[] = {1, 2, 1, 3, 2};
    for (size_t i = 0; i < 5; i++) {
        size_t length;
        sample.attempts = attempts[i];
        char *line = record_line_format(&sample, &length, NULL);
        add(set, line, length);
        free(line);
    }
    struct tune_error err = {0};
    assert_int_equal(record_set_add(set, "{}", 2, &err), -1);
    assert_int_equal(err.code, TUNE_EDAMAGED);
    struct record_set_counts counts;
    const char *const *lines = record_set_join(set, &counts);
    assert_int_equal(counts.rows, 5);
    assert_int_equal(counts.equal, 2);
    assert_int_equal(counts.superseded, 2);
    assert_int_equal(counts.standing, 1);
    assert_non_null(strstr(lines[0], "\"attempts\":3,"));
    record_set_destroy(set);
}

static void rows_of_unlike_keys_stay_side_by_side(void **state)
{
    (void)state;
    struct sample base = full_row();
    struct record_set *set = record_set_create();
    for (size_t i = 0; i < 10; i++) {
        struct sample sample = base;
        const char **const fields[] = {&sample.key.kernel, &sample.key.dtype, &sample.key.arch,
            &sample.key.fingerprint, &sample.key.shape, &sample.key.mode, &sample.config,
            &sample.gpu_uuid, &sample.run};
        const char *const others[] = {
            "other", "f16", "sm_75", "ff", "M=2", "warm", "BM=1", "GPU-2", "8/search"};
        size_t length;
        if (i < 9)
            *fields[i] = others[i];
        char *line = record_line_format(&sample, &length, NULL);
        add(set, line, length);
        free(line);
    }
    struct record_set_counts counts;
    const char *const *lines = record_set_join(set, &counts);
    assert_int_equal(counts.standing, 10);
    for (size_t i = 1; i < 10; i++)
        assert_true(strcmp(lines[i - 1], lines[i]) < 0);
    record_set_destroy(set);
}

static void a_set_of_nothing_joins_to_nothing(void **state)
{
    (void)state;
    struct record_set *set = record_set_create();
    struct record_set_counts counts;
    assert_non_null(record_set_join(set, &counts));
    assert_int_equal(counts.standing, 0);
    record_set_destroy(set);
    record_set_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joining_is_commutative_associative_and_idempotent),
        cmocka_unit_test(each_row_is_counted_once),
        cmocka_unit_test(rows_of_unlike_keys_stay_side_by_side),
        cmocka_unit_test(a_set_of_nothing_joins_to_nothing),
    };
    return cmocka_run_group_tests_name("record_set", tests, make_pool, free_pool);
}
