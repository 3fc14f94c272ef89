/* See parts.h. */
#include "parts.h"

#include <stdio.h>
#include <stdlib.h>

struct tuning_deps parts;
struct registry *parts_registry;

static const struct image_source harness = {.name = "harness.cu",
    .text = "harness",
    .content = "0123",
    .toolkit_headers = (char *[]){NULL}};
static bool flag;

static void on_flag(void *context)
{
    (void)context;
    flag = true;
}

static void open_database(size_t limit_bytes)
{
    struct tuning_db_options options = {.cubin_limit_bytes = limit_bytes};
    struct tune_error err = {0};
    parts.db = tuning_db_open(path_in("db"), &options, &err);
    if (parts.db == NULL)
        fail_msg("%s", err.text);
    parts.writer = writer_create(parts.loop, parts.db, &err);
    assert_non_null(parts.writer);
}

static void close_database(void)
{
    flag = false;
    writer_stop(parts.writer, on_flag, NULL);
    run_until_true(&flag);
    tuning_db_close(parts.db);
}

int open_parts(void **state)
{
    if (support_start(state))
        return -1;
    char own[4096], shipped[4096];
    snprintf(own, sizeof own, "%s/tests/daemon_tests/plugins", getenv("TUNE_SOURCE_DIR"));
    snprintf(shipped, sizeof shipped, "%s/plugins", getenv("TUNE_SOURCE_DIR"));
    parts_registry = registry_create((const char *const[]){own, shipped, NULL});
    registry_reload(parts_registry);
    parts = (struct tuning_deps){
        .loop = test_loop(), .harness = &harness, .compile_workers = 1, .host = "here"};
    open_database(0);
    return 0;
}

void limit_images(size_t limit_bytes)
{
    close_database();
    open_database(limit_bytes);
}

void start_parts(void)
{
    struct sched_options options = {.worker_path = fake_worker(),
        .env = fake_env(),
        .compile_workers = 1,
        .compile_deadline_ms = 5000};
    flag = false;
    parts.sched = sched_create(parts.loop, &options, on_flag, NULL);
    parts.images = images_create(parts.loop, parts.sched, parts.db, parts.writer);
    run_until_true(&flag);
}

int close_parts(void **state)
{
    flag = parts.sched == NULL;
    if (parts.sched != NULL)
        sched_stop(parts.sched, on_flag, NULL);
    run_until_true(&flag);
    images_destroy(parts.images);
    close_database();
    registry_destroy(parts_registry);
    return support_finish(state);
}
