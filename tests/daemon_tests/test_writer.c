#include "daemon/writer.h"
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct tuning_db *db;
static struct writer *writer;
static bool is_stopped;

/* A completion: what had become of the job that it stands for when it was called. */
struct told {
    bool is_called, was_stored;
    enum tune_code code;
    unsigned order;
    char name[16];
    struct told *forgets, *adds; /* in the callback */
};

static unsigned calls;

static void open_all(const struct tuning_db_options *options)
{
    struct tune_error err = {0};
    db = tuning_db_open(path_in("db"), options, &err);
    if (db == NULL)
        fail_msg("%s", err.text);
    writer = writer_create(test_loop(), db, &err);
    assert_non_null(writer);
    calls = 0;
}

static void on_stopped(void *context)
{
    (void)context;
    is_stopped = true;
}

static void close_all(void)
{
    is_stopped = false;
    writer_stop(writer, on_stopped, NULL);
    run_until_true(&is_stopped);
    tuning_db_close(db);
}

static bool is_stored(const char *name)
{
    void *bytes = NULL;
    size_t length = 0;
    int status = tuning_db_job(db, name, &bytes, &length, NULL);
    free(bytes);
    return status == 0;
}

static void add(struct told *told, const char *name, size_t bytes);

static void on_commit(const struct tune_error *err, void *context)
{
    struct told *told = context;
    assert_false(told->is_called);
    told->is_called = true;
    told->code = err ? err->code : TUNE_OK;
    told->order = calls++;
    told->was_stored = is_stored(told->name);
    if (told->forgets != NULL)
        writer_forget(writer, told->forgets);
    if (told->adds != NULL)
        add(told->adds, "added", 1);
}

static void add(struct told *told, const char *name, size_t bytes)
{
    char *value = calloc(bytes, 1);
    snprintf(told->name, sizeof told->name, "%s", name);
    assert_int_equal(tuning_db_batch_job(writer_batch(writer), name, value, bytes), 0);
    writer_after_commit(writer, on_commit, told);
    assert_false(told->is_called); /* never from inside the call */
    free(value);
}

static void a_completion_comes_when_its_record_is_stored(void **state)
{
    (void)state;
    open_all(NULL);
    struct told told = {0};
    add(&told, "one", 100);
    run_until_true(&told.is_called);
    assert_int_equal(told.code, TUNE_OK);
    assert_true(told.was_stored);
    close_all();
}

static void completions_keep_their_order_over_many_groups(void **state)
{
    (void)state;
    open_all(NULL);
    static struct told many[300];
    memset(many, 0, sizeof many);
    for (unsigned i = 0; i < 300; i++) {
        char name[16];
        snprintf(name, sizeof name, "job-%u", i);
        add(&many[i], name, 10);
        if (i % 7 == 0)
            run_turns(1);
    }
    run_until_true(&many[299].is_called);
    for (unsigned i = 0; i < 300; i++) {
        assert_int_equal(many[i].order, i);
        assert_true(many[i].was_stored);
    }
    close_all();
}

static void a_completion_without_records_is_called_too(void **state)
{
    (void)state;
    open_all(NULL);
    struct told told = {.name = "none"};
    writer_after_commit(writer, on_commit, &told);
    run_until_true(&told.is_called);
    assert_int_equal(told.code, TUNE_OK);
    close_all();
}

static void a_full_database_is_told_and_the_next_record_works(void **state)
{
    (void)state;
    struct tuning_db_options options = {.map_start_bytes = 1 << 20, .map_limit_bytes = 2 << 20};
    open_all(&options);
    struct told large = {0}, together = {0}, later = {0};
    add(&large, "large", 8 << 20);
    add(&together, "together", 10);
    run_until_true(&together.is_called);
    assert_int_equal(large.code, TUNE_EFULL);
    assert_int_equal(together.code, TUNE_EFULL);
    assert_false(large.was_stored || together.was_stored);
    add(&later, "later", 10);
    run_until_true(&later.is_called);
    assert_int_equal(later.code, TUNE_OK);
    assert_true(later.was_stored);
    close_all();
}

static void who_is_forgotten_hears_nothing_but_its_record_stays(void **state)
{
    (void)state;
    open_all(NULL);
    struct told gone = {0}, stays = {0};
    add(&gone, "gone", 10);
    add(&stays, "stays", 10);
    writer_forget(writer, &gone);
    run_until_true(&stays.is_called);
    assert_false(gone.is_called);
    assert_true(is_stored("gone"));
    close_all();
}

static void one_can_be_forgotten_while_its_group_is_told(void **state)
{
    (void)state;
    open_all(NULL);
    struct told third = {0}, second = {0}, first = {.forgets = &second};
    add(&first, "first", 10);
    add(&second, "second", 10);
    add(&third, "third", 10);
    run_until_true(&third.is_called);
    assert_true(first.is_called);
    assert_false(second.is_called);
    assert_true(is_stored("second"));
    close_all();
}

static void one_can_be_forgotten_while_its_group_is_committed(void **state)
{
    (void)state;
    open_all(NULL);
    struct told gone = {0}, stays = {0};
    add(&gone, "gone", 10);
    run_turns(1); /* handed over */
    writer_forget(writer, &gone);
    add(&stays, "stays", 10);
    run_until_true(&stays.is_called);
    assert_false(gone.is_called);
    assert_true(is_stored("gone"));
    close_all();
}

static void a_completion_may_add_records(void **state)
{
    (void)state;
    open_all(NULL);
    struct told added = {0}, first = {.adds = &added};
    add(&first, "first", 10);
    run_until_true(&added.is_called);
    assert_true(added.was_stored);
    assert_true(added.order > first.order);
    close_all();
}

static void stopping_commits_all_that_is_queued(void **state)
{
    (void)state;
    open_all(NULL);
    struct told under_way = {0}, added = {0}, queued = {.adds = &added};
    add(&under_way, "under-way", 10);
    run_turns(1);
    add(&queued, "queued", 10);
    is_stopped = false;
    writer_stop(writer, on_stopped, NULL);
    assert_false(is_stopped);
    run_until_true(&is_stopped);
    assert_true(under_way.is_called && queued.is_called && added.is_called);
    assert_true(is_stored("under-way") && is_stored("queued") && is_stored("added"));
    tuning_db_close(db);
}

static void stopping_with_nothing_to_do_ends_at_once(void **state)
{
    (void)state;
    open_all(NULL);
    close_all();
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, support_start, support_finish)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_completion_comes_when_its_record_is_stored),
        TEST(completions_keep_their_order_over_many_groups),
        TEST(a_completion_without_records_is_called_too),
        TEST(a_full_database_is_told_and_the_next_record_works),
        TEST(who_is_forgotten_hears_nothing_but_its_record_stays),
        TEST(one_can_be_forgotten_while_its_group_is_told),
        TEST(one_can_be_forgotten_while_its_group_is_committed),
        TEST(a_completion_may_add_records),
        TEST(stopping_commits_all_that_is_queued),
        TEST(stopping_with_nothing_to_do_ends_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
