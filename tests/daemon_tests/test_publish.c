/* Publishing: what is committed is soon readable in the snapshot, under every question that it
 * answers, and what is not right any more is not there. */
#include "daemon/publish.h"

#include "client/snapshot.h"
#include "daemon/publish_view.h"
#include "daemon/search/rng.h"
#include "support.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GPU "NVIDIA H200"
#define OTHER_GPU "NVIDIA H100 80GB HBM3"
#define TICK_MS 5 /* how often the loop looks at a condition */

static struct tuning_db *db;
static struct registry *registry;
static struct publish *publish;
static struct snapshot *snapshot;
static struct device_info devices[2];
static uv_timer_t tick;

/* --- the parts -------------------------------------------------------------------------------- */

static void on_tick(uv_timer_t *timer)
{
    (void)timer;
}

static void open_database(void)
{
    struct tune_error err = {0};
    db = tuning_db_open(path_in("db"), NULL, &err);
    if (db == NULL)
        fail_msg("%s", err.text);
}

static void make_device(struct device_info *device, const char *arch, const char *name)
{
    assert_int_equal(device_generic(arch, device, NULL), 0);
    snprintf(device->name, sizeof device->name, "%s", name);
    snprintf(device->uuid, sizeof device->uuid, "GPU-%s", name);
}

/* A kernel of one size and two choices, whose configuration is its BLOCK. */
static const char manifest[] =
    "{\"tunerd\":1,\"name\":\"blocks\",\"summary\":\"-\",\"dims\":[{\"name\":\"N\",\"meaning\":\"-"
    "\"},"
    "{\"name\":\"OP\",\"meaning\":\"-\",\"values\":[{\"value\":1,\"name\":\"sum\"},2]},"
    "{\"name\":\"WAY\",\"meaning\":\"-\",\"values\":[4,3]}],"
    "\"shapes\":[{\"N\":1}],\"dtypes\":[\"f32\",\"f64\"],"
    "\"params\":[{\"name\":\"BLOCK\",\"meaning\":\"-\",\"values\":[64,128,256,512,1024]}],"
    "\"buffers\":[{\"name\":\"y\",\"dtype\":\"T\",\"count\":\"N\",\"role\":\"out\"}],"
    "\"launches\":[{\"entry\":\"k\",\"args\":[{\"buffer\":\"y\"}]}],"
    "\"reference\":{\"buffers\":[{\"name\":\"r\",\"dtype\":\"f64\",\"count\":\"N\",\"role\":"
    "\"out\"}],"
    "\"launches\":[{\"entry\":\"r\",\"args\":[{\"buffer\":\"r\"}]}]},"
    "\"checks\":[{\"buffer\":\"y\",\"reference\":\"r\",\"derivation\":\"-\","
    "\"tolerance\":{\"unit\":\"f32\"}}],\"default\":{\"BLOCK\":64}}";

static void write_file(const char *name, const char *text)
{
    FILE *file = fopen(path_in(name), "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void open_registry(void)
{
    char folder[256];
    assert_int_equal(mkdir(path_in("plugins"), 0700), 0);
    assert_int_equal(mkdir(path_in("plugins/blocks"), 0700), 0);
    write_file("plugins/blocks/blocks.json", manifest);
    write_file("plugins/blocks/blocks.cu", "");
    snprintf(folder, sizeof folder, "%s", path_in("plugins"));
    registry = registry_create((const char *const[]){folder, NULL});
    registry_reload(registry);
}

static int open_all(void **state)
{
    if (support_start(state))
        return -1;
    open_registry();
    make_device(&devices[0], "sm_90", GPU);
    make_device(&devices[1], "sm_80", "NVIDIA A100");
    open_database();
    uv_timer_init(test_loop(), &tick);
    uv_timer_start(&tick, on_tick, TICK_MS, TICK_MS);
    uv_unref((uv_handle_t *)&tick);
    return 0;
}

static void on_stopped(void *context)
{
    *(bool *)context = true;
}

static void stop(void)
{
    bool is_stopped = false;
    publish_stop(publish, on_stopped, &is_stopped);
    run_until_true(&is_stopped);
    publish = NULL;
}

static int close_all(void **state)
{
    snapshot_close(snapshot);
    snapshot = NULL;
    stop();
    uv_close((uv_handle_t *)&tick, NULL);
    tuning_db_close(db);
    registry_destroy(registry);
    return support_finish(state);
}

static void start_with(struct publish_options options)
{
    options.check_ms = TICK_MS;
    options.db = db;
    options.db_dir = path_in("db");
    options.folder = path_in("db/served");
    options.link = path_in("socket.served");
    publish = publish_start(test_loop(), &options);
}

/* Bases may follow each other without a pause. */
static void start(void)
{
    start_with((struct publish_options){.base_period_ms = 1});
    publish_set_view(publish, registry, devices, 1);
}

/* The disk as these tests want it. */
static atomic_bool is_disk_full;

int __real_snapshot_writer_finish(struct snapshot_writer *writer, const char *kind, uint64_t number,
    char name[32], struct tune_error *err);
int __wrap_snapshot_writer_finish(struct snapshot_writer *writer, const char *kind, uint64_t number,
    char name[32], struct tune_error *err);

int __wrap_snapshot_writer_finish(struct snapshot_writer *writer, const char *kind, uint64_t number,
    char name[32], struct tune_error *err)
{
    if (!atomic_load(&is_disk_full))
        return __real_snapshot_writer_finish(writer, kind, number, name, err);
    snapshot_writer_abandon(writer);
    return tune_fail(err, TUNE_EFULL, "no room");
}

/* --- records ---------------------------------------------------------------------------------- */

static const struct plugin *plugin(void)
{
    return registry_find(registry, "blocks", NULL);
}

struct row {
    int64_t n;
    int64_t block;          /* the config's BLOCK, by which it is known */
    double median_ns;       /* above the least that a GPU can do */
    const char *gpu, *arch; /* NULL: the first device's */
};

/* The choices of rows that are put, and of what is asked; 0: left out. */
static int row_op = 1, asked_op, asked_way;

static void put(struct tuning_db_batch *batch, const struct row *row)
{
    static unsigned runs;
    char shape[64], config[128], run[32];
    double median_ns = RECORD_MIN_NS + row->median_ns;
    float time_ns = (float)median_ns;
    snprintf(shape, sizeof shape, "N=%lld,OP=%d,WAY=4", (long long)row->n, row_op);
    snprintf(config, sizeof config, "BLOCK=%lld", (long long)row->block);
    snprintf(run, sizeof run, "j-%u/confirm", runs++);
    struct sample sample = {
        .key = {"blocks", plugin()->fingerprint, shape, "f32", row->arch ? row->arch : "sm_90",
            "cold"},
        .config = config,
        .gpu_uuid = "GPU-1",
        .run = run,
        .outcome = OUTCOME_OK,
        .is_final = true,
        .is_confirmed = true,
        .attempts = 1,
        .method = "event",
        .median_ns = median_ns,
        .lo_ns = median_ns - 1,
        .hi_ns = median_ns + 1,
        .sample_count = 1,
        .samples_ns = &time_ns,
        .gpu_name = row->gpu ? row->gpu : GPU,
        .host = "here",
        .nvrtc = "13.0",
    };
    assert_int_equal(tuning_db_batch_sample(batch, &sample), 0);
    assert_int_equal(tuning_db_batch_refresh(batch, &sample.key), 0);
}

static void commit(const struct row *rows, size_t count)
{
    struct tune_error err = {0};
    struct tuning_db_batch *batch = tuning_db_batch_create();
    for (size_t i = 0; i < count; i++)
        put(batch, &rows[i]);
    if (tuning_db_commit(db, batch, &err))
        fail_msg("%s", err.text);
    tuning_db_batch_destroy(batch);
}

static void commit_one(int64_t n, int64_t block, double median_ns)
{
    commit(&(struct row){n, block, median_ns, NULL, NULL}, 1);
}

/* --- asking ----------------------------------------------------------------------------------- */

struct asked {
    int64_t n;
    const char *dtype, *gpu, *arch;
    int64_t block; /* to wait for; 0: no answer */
};

static int64_t block_of(const struct asked *asked)
{
    char key[SNAPSHOT_KEY_BYTES];
    struct tune_dim dims[3] = {{"N", asked->n}};
    size_t dim_count = 1;
    if (asked_op != 0)
        dims[dim_count++] = (struct tune_dim){"OP", asked_op};
    if (asked_way != 0)
        dims[dim_count++] = (struct tune_dim){"WAY", asked_way};
    struct tune_query query = {.kernel = "blocks",
        .dims = dims,
        .dim_count = dim_count,
        .dtype = asked->dtype,
        .gpu = asked->gpu,
        .arch = asked->arch};
    struct tune_answer answer;
    int64_t block = 0;
    if (snapshot == NULL && snapshot_open(path_in("socket.served"), &snapshot, NULL) != 0)
        return 0;
    if (snapshot_get(snapshot, key, snapshot_key(&query, key), &answer) == 0)
        assert_int_equal(tune_answer_param(&answer, "BLOCK", &block, NULL), 0);
    return block;
}

static bool is_answered(void *context)
{
    const struct asked *asked = context;
    return block_of(asked) == asked->block;
}

static void wait_for(struct asked asked)
{
    run_until(is_answered, &asked);
}

static struct snapshot_page page_now(void)
{
    struct snapshot_page page = {0};
    snapshot_read_page(path_in("db/served"), &page, NULL);
    return page;
}

/* Whether the page is up to date, and has (or has no) base and delta. */
struct files {
    bool has_base, has_delta;
};

static bool has_files(void *context)
{
    const struct files *files = context;
    struct snapshot_page page = page_now();
    return page.generation == tuning_db_generation(db) && page.published_unix_ms > 0 &&
           (page.base[0] != '\0') == files->has_base && (page.delta[0] != '\0') == files->has_delta;
}

static void wait_for_files(bool has_base, bool has_delta)
{
    run_until(has_files, &(struct files){has_base, has_delta});
}

/* --- what is published ------------------------------------------------------------------------ */

static void every_question_that_a_row_answers_is_answered(void **state)
{
    (void)state;
    commit_one(1000, 512, 50);
    start();
    static const char *const dtypes[] = {NULL, "f32"};
    for (size_t i = 0; i < 2; i++) {
        wait_for((struct asked){1000, dtypes[i], NULL, NULL, 512});
        wait_for((struct asked){1000, dtypes[i], GPU, NULL, 512});
        wait_for((struct asked){1000, dtypes[i], NULL, "sm_90", 512});
    }
    assert_int_equal(block_of(&(struct asked){1001, NULL, NULL, NULL, 0}), 0);
    assert_int_equal(block_of(&(struct asked){1000, "f64", NULL, NULL, 0}), 0);
    assert_int_equal(block_of(&(struct asked){1000, NULL, OTHER_GPU, NULL, 0}), 0);
    assert_int_equal(block_of(&(struct asked){1000, NULL, NULL, "sm_80", 0}), 0);
}

/* 0 for `block`: the daemon is to be asked. */
static void expect_choices(int op, int way, int64_t block)
{
    struct asked asked = {1000, NULL, NULL, NULL, block};
    asked_op = op;
    asked_way = way;
    if (block != 0)
        wait_for(asked);
    else
        assert_int_equal(block_of(&asked), 0);
    asked_op = asked_way = 0;
}

static void choices_may_be_left_out_where_they_are_the_first(void **state)
{
    (void)state;
    commit_one(1000, 512, 50);
    row_op = 2;
    commit_one(1000, 256, 50);
    row_op = 1;
    start();
    expect_choices(0, 0, 512);
    expect_choices(1, 4, 512);
    expect_choices(2, 0, 256);
    expect_choices(2, 4, 256);
    expect_choices(1, 0, 0); /* one of two that may be */
    expect_choices(1, 3, 0);
    commit_one(1000, 128, 40);
    expect_choices(0, 0, 128);
    expect_choices(1, 4, 128);
    expect_choices(2, 0, 256);
}

static void each_target_has_its_own_best(void **state)
{
    (void)state;
    commit((struct row[]){{1000, 256, 80, GPU, NULL}, {1000, 512, 50, OTHER_GPU, NULL},
               {1000, 128, 20, "NVIDIA A100", "sm_80"}, {1000, 1024, 20, "NVIDIA L4", "sm_89"}},
        4);
    start();
    publish_set_view(publish, registry, devices, 2);
    wait_for((struct asked){1000, NULL, NULL, NULL, 256}); /* the own model before the arch */
    wait_for((struct asked){1000, NULL, GPU, NULL, 256});
    wait_for((struct asked){1000, NULL, NULL, "sm_90", 256}); /* the attached one is of it */
    wait_for((struct asked){1000, NULL, "NVIDIA A100", NULL, 128});
    wait_for((struct asked){1000, NULL, NULL, "sm_80", 128});
    wait_for((struct asked){1000, NULL, NULL, "sm_89", 1024}); /* not attached */
    assert_int_equal(block_of(&(struct asked){1000, NULL, "NVIDIA L4", NULL, 0}), 0);
}

static void a_new_best_is_seen_by_an_open_handle(void **state)
{
    (void)state;
    commit_one(1000, 512, 50);
    start();
    wait_for((struct asked){1000, NULL, NULL, NULL, 512});
    commit_one(1000, 128, 40);
    wait_for((struct asked){1000, NULL, NULL, NULL, 128});
    commit_one(2000, 256, 40);
    wait_for((struct asked){2000, NULL, NULL, NULL, 256});
    assert_int_equal(block_of(&(struct asked){1000, NULL, NULL, NULL, 128}), 128);
}

/* The new best of the key cannot be launched here: what the base says is not right any more. */
static void what_is_not_exact_any_more_is_asked_of_the_daemon(void **state)
{
    (void)state;
    commit_one(1000, 512, 50);
    commit_one(2000, 512, 50);
    start();
    wait_for((struct asked){1000, NULL, NULL, NULL, 512});
    commit_one(1000, 96, 10); /* the kernel has no such BLOCK */
    wait_for((struct asked){1000, NULL, NULL, NULL, 0});
    wait_for_files(true, true);
    assert_int_equal(block_of(&(struct asked){2000, NULL, NULL, NULL, 512}), 512);
}

static void rows_of_other_kernels_and_texts_are_left_out(void **state)
{
    (void)state;
    struct row row = {1000, 512, 50, NULL, NULL};
    struct tuning_db_batch *batch = tuning_db_batch_create();
    char fingerprint[33];
    struct plugin *changed = registry_find(registry, "blocks", NULL);
    strcpy(fingerprint, changed->fingerprint);
    changed->fingerprint[0] ^= 1; /* a row of the kernel's text before */
    put(batch, &row);
    strcpy(changed->fingerprint, fingerprint);
    row.n = 2000;
    put(batch, &row);
    assert_int_equal(tuning_db_commit(db, batch, NULL), 0);
    tuning_db_batch_destroy(batch);
    start();
    wait_for((struct asked){2000, NULL, NULL, NULL, 512});
    assert_int_equal(block_of(&(struct asked){1000, NULL, NULL, NULL, 0}), 0);
}

/* What the database says; 0: nothing. */
static int64_t stored_block(int64_t n)
{
    char shape[64];
    struct best best;
    snprintf(shape, sizeof shape, "N=%lld,OP=1,WAY=4", (long long)n);
    struct record_key key = {"blocks", plugin()->fingerprint, shape, "f32", "sm_90", "cold"};
    if (tuning_db_best(db, &key, GPU, 0, &best, NULL) != 0)
        return 0;
    int64_t block = atoll(strstr(best.config, "BLOCK=") + strlen("BLOCK="));
    best_finish(&best);
    return block;
}

/* After any commits, what is read is what the database says. */
static void random_commits_are_followed(void **state)
{
    (void)state;
    enum { SHAPES = 6, STEPS = 60 };
    static const int64_t blocks[] = {64, 128, 256, 512, 1024};
    struct rng rng = {7};
    start_with((struct publish_options){.base_period_ms = 1, .delta_keys = 2, .delta_keys_max = 4});
    publish_set_view(publish, registry, devices, 1);
    for (size_t step = 0; step < STEPS; step++) {
        struct row rows[SHAPES];
        size_t count = 1 + rng_below(&rng, SHAPES);
        for (size_t i = 0; i < count; i++) {
            size_t shape = rng_below(&rng, SHAPES);
            rows[i] = (struct row){1000 + (int64_t)shape, blocks[rng_below(&rng, 5)],
                1000 - (double)(step * SHAPES + i), NULL, NULL};
        }
        commit(rows, count);
        for (int64_t n = 1000; n < 1000 + SHAPES; n++)
            wait_for((struct asked){n, NULL, NULL, NULL, stored_block(n)});
    }
}

/* --- bases and deltas ------------------------------------------------------------------------- */

static void a_base_is_not_renewed_before_its_time(void **state)
{
    (void)state;
    start_with((struct publish_options){.delta_keys = 1});
    publish_set_view(publish, registry, devices, 1);
    wait_for_files(true, false);
    struct snapshot_page page = page_now();
    for (int64_t n = 1; n < 5; n++) {
        commit_one(n, 512, 50);
        wait_for((struct asked){n, NULL, NULL, NULL, 512});
    }
    assert_string_equal(page_now().base, page.base);
}

static void a_large_delta_becomes_a_base(void **state)
{
    (void)state;
    start_with((struct publish_options){.base_period_ms = 1, .delta_keys = 2});
    publish_set_view(publish, registry, devices, 1);
    wait_for_files(true, false);
    commit((struct row[]){{1, 512, 50, NULL, NULL}, {2, 512, 50, NULL, NULL}}, 2);
    wait_for_files(true, true);
    commit_one(3, 512, 50);
    wait_for_files(true, false);
    for (int64_t n = 1; n < 4; n++)
        assert_int_equal(block_of(&(struct asked){n, NULL, NULL, NULL, 512}), 512);
}

/* A better one for the first key that a base takes up, right after it has been taken up. */
static atomic_bool has_news_in_build;
static _Atomic int64_t news_n;

int __real_view_add_answers(const struct view *view, struct tuning_db *database,
    const struct record_key *key, bool with_asks, struct snapshot_writer *writer,
    struct tune_error *err);
int __wrap_view_add_answers(const struct view *view, struct tuning_db *database,
    const struct record_key *key, bool with_asks, struct snapshot_writer *writer,
    struct tune_error *err);

int __wrap_view_add_answers(const struct view *view, struct tuning_db *database,
    const struct record_key *key, bool with_asks, struct snapshot_writer *writer,
    struct tune_error *err)
{
    int status = __real_view_add_answers(view, database, key, with_asks, writer, err);
    if (with_asks || !atomic_exchange(&has_news_in_build, false))
        return status;
    uint64_t begun_ns = uv_hrtime();
    commit_one(atoll(strchr(key->shape, '=') + 1), 128, 40);
    atomic_store(&news_n, atoll(strchr(key->shape, '=') + 1));
    while (uv_hrtime() - begun_ns < 2 * (uint64_t)TICK_MS * 1000000) /* a round is due */
        continue;
    return status;
}

static void what_changes_while_a_base_is_built_is_not_lost(void **state)
{
    (void)state;
    commit((struct row[]){{1, 512, 50, NULL, NULL}, {2, 512, 50, NULL, NULL}}, 2);
    atomic_store(&news_n, 0);
    atomic_store(&has_news_in_build, true);
    start();
    wait_for_files(true, true);
    int64_t n = atomic_load(&news_n);
    assert_int_equal(block_of(&(struct asked){n, NULL, NULL, NULL, 128}), 128);
    assert_int_equal(block_of(&(struct asked){3 - n, NULL, NULL, NULL, 512}), 512);
}

static void an_old_delta_becomes_a_base(void **state)
{
    (void)state;
    start_with((struct publish_options){.base_period_ms = 1, .delta_age_ms = 1});
    publish_set_view(publish, registry, devices, 1);
    wait_for_files(true, false);
    commit_one(1, 512, 50);
    wait_for((struct asked){1, NULL, NULL, NULL, 512});
    wait_for_files(true, false);
    assert_int_equal(block_of(&(struct asked){1, NULL, NULL, NULL, 512}), 512);
}

static void more_changes_than_are_told_withdraw_all_until_the_next_base(void **state)
{
    (void)state;
    enum { MANY = 5 };
    struct row rows[MANY];
    commit_one(1, 512, 50);
    start_with((struct publish_options){.delta_keys_max = MANY - 1});
    publish_set_view(publish, registry, devices, 1);
    wait_for((struct asked){1, NULL, NULL, NULL, 512});
    for (int64_t i = 0; i < MANY; i++)
        rows[i] = (struct row){10 + i, 512, 50, NULL, NULL};
    commit(rows, MANY);
    wait_for((struct asked){1, NULL, NULL, NULL, 0}); /* the next base is a minute away */
    wait_for_files(false, false);
    uint64_t sequence = snapshot_sequence(snapshot);
    commit_one(2, 512, 50); /* is news all the same, for those who keep answers */
    wait_for_files(false, false);
    assert_true(snapshot_sequence(snapshot) != sequence);
}

/* --- one daemon after another ----------------------------------------------------------------- */

static ino_t page_inode(void)
{
    struct stat status;
    assert_int_equal(stat(path_in("db/served/page"), &status), 0);
    return status.st_ino;
}

static void restart(void)
{
    stop();
    tuning_db_close(db);
    open_database();
    start();
}

static void the_next_daemon_goes_on_with_the_same_page_and_base(void **state)
{
    (void)state;
    commit_one(1000, 512, 50);
    start();
    wait_for((struct asked){1000, NULL, NULL, NULL, 512});
    wait_for_files(true, false);
    struct snapshot_page page = page_now();
    ino_t inode = page_inode();
    stop();
    assert_int_equal(block_of(&(struct asked){1000, NULL, NULL, NULL, 512}), 512); /* while away */
    tuning_db_close(db);
    open_database();
    start();
    commit_one(1000, 128, 40);
    wait_for((struct asked){1000, NULL, NULL, NULL, 128});
    assert_int_equal(page_inode(), inode);
    assert_string_equal(page_now().base, page.base);
}

static void what_was_committed_last_is_published_before_the_end(void **state)
{
    (void)state;
    start();
    wait_for_files(true, false);
    commit_one(1000, 512, 50);
    stop();
    assert_int_equal(block_of(&(struct asked){1000, NULL, NULL, NULL, 512}), 512);
    assert_int_equal(page_now().generation, tuning_db_generation(db));
}

static void a_delta_of_the_daemon_before_becomes_a_base(void **state)
{
    (void)state;
    start();
    wait_for_files(true, false);
    commit_one(1000, 512, 50);
    wait_for_files(true, true);
    restart();
    wait_for_files(true, false);
    assert_int_equal(block_of(&(struct asked){1000, NULL, NULL, NULL, 512}), 512);
}

/* A daemon that was killed between a commit and its publication. */
static void what_a_killed_daemon_did_not_publish_withdraws_the_rest(void **state)
{
    (void)state;
    commit_one(1000, 512, 50);
    start();
    wait_for((struct asked){1000, NULL, NULL, NULL, 512});
    struct snapshot_page page = page_now();
    stop();
    commit_one(1000, 128, 40);
    tuning_db_close(db);
    open_database();
    start();
    wait_for((struct asked){1000, NULL, NULL, NULL, 128});
    assert_string_not_equal(page_now().base, page.base);
}

static void a_damaged_base_is_made_anew(void **state)
{
    (void)state;
    commit_one(1000, 512, 50);
    start();
    wait_for((struct asked){1000, NULL, NULL, NULL, 512});
    struct snapshot_page page = page_now();
    stop();
    char path[512];
    snprintf(path, sizeof path, "%s/%s", path_in("db/served"), page.base);
    assert_int_equal(truncate(path, 100), 0);
    snapshot_close(snapshot);
    snapshot = NULL;
    start();
    wait_for((struct asked){1000, NULL, NULL, NULL, 512});
    assert_string_not_equal(page_now().base, page.base);
}

/* --- kernels and devices ---------------------------------------------------------------------- */

static void other_devices_withdraw_what_was_for_the_old_ones(void **state)
{
    (void)state;
    commit((struct row[]){{1000, 512, 50, GPU, NULL}, {1000, 128, 20, "NVIDIA A100", "sm_80"}}, 2);
    start();
    wait_for((struct asked){1000, NULL, NULL, NULL, 512});
    publish_set_view(publish, registry, devices + 1, 1);
    wait_for((struct asked){1000, NULL, NULL, NULL, 128});
    wait_for((struct asked){1000, NULL, GPU, NULL, 0});
    publish_set_view(publish, registry, NULL, 0);
    wait_for((struct asked){1000, NULL, NULL, NULL, 0});
    wait_for((struct asked){1000, NULL, NULL, "sm_80", 128});
    wait_for_files(true, false);
    struct snapshot_page page = page_now();
    publish_set_view(publish, registry, NULL, 0); /* the same again */
    commit((struct row[]){{2000, 128, 20, "NVIDIA A100", "sm_80"}}, 1);
    wait_for((struct asked){2000, NULL, NULL, "sm_80", 128});
    assert_string_equal(page_now().base, page.base);
}

static void the_next_daemon_looks_whether_the_devices_are_the_same(void **state)
{
    (void)state;
    commit((struct row[]){{1000, 512, 50, GPU, NULL}, {1000, 128, 20, "NVIDIA A100", "sm_80"}}, 2);
    start();
    wait_for((struct asked){1000, NULL, NULL, NULL, 512});
    stop();
    start_with((struct publish_options){.base_period_ms = 1});
    publish_set_view(publish, registry, devices + 1, 1);
    wait_for((struct asked){1000, NULL, NULL, NULL, 128});
    wait_for((struct asked){1000, NULL, GPU, NULL, 0});
}

static void the_same_kernels_read_again_change_nothing(void **state)
{
    (void)state;
    commit_one(1000, 512, 50);
    start();
    wait_for((struct asked){1000, NULL, NULL, NULL, 512});
    wait_for_files(true, false);
    struct snapshot_page page = page_now();
    registry_reload(registry);
    publish_set_view(publish, registry, devices, 1);
    commit_one(2000, 512, 50);
    wait_for((struct asked){2000, NULL, NULL, NULL, 512});
    assert_string_equal(page_now().base, page.base);
}

static void a_changed_kernel_withdraws_its_answers(void **state)
{
    (void)state;
    commit_one(1000, 512, 50);
    start();
    wait_for((struct asked){1000, NULL, NULL, NULL, 512});
    registry_reload(registry);
    registry_find(registry, "blocks", NULL)->fingerprint[0] ^= 1;
    publish_set_view(publish, registry, devices, 1);
    wait_for((struct asked){1000, NULL, NULL, NULL, 0});
    wait_for_files(true, false);
    assert_int_equal(block_of(&(struct asked){1000, NULL, NULL, NULL, 0}), 0);
}

/* --- what goes wrong -------------------------------------------------------------------------- */

static void write_empty(const char *path)
{
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fclose(file);
}

static void a_folder_that_cannot_be_made_is_done_without(void **state)
{
    (void)state;
    write_empty(path_in("db/served"));
    start();
    assert_null(publish_folder(publish));
    commit_one(1000, 512, 50);
    assert_int_equal(block_of(&(struct asked){1000, NULL, NULL, NULL, 0}), 0);
}

static void a_link_is_replaced_and_nothing_else(void **state)
{
    (void)state;
    char target[512];
    assert_int_equal(symlink("/nowhere", path_in("socket.served")), 0);
    start();
    ssize_t length = readlink(path_in("socket.served"), target, sizeof target - 1);
    assert_true(length > 0);
    target[length] = '\0';
    assert_string_equal(target, path_in("db/served"));
    stop();
    unlink(path_in("socket.served"));
    write_empty(path_in("socket.served"));
    start();
    assert_null(publish_folder(publish));
    assert_int_equal(access(path_in("socket.served"), F_OK), 0);
}

/* And comes back with the room on the disk. */
static void a_delta_that_cannot_be_written_withdraws_the_base(void **state)
{
    (void)state;
    commit_one(1000, 512, 50);
    start();
    wait_for((struct asked){1000, NULL, NULL, NULL, 512});
    wait_for_files(true, false);
    atomic_store(&is_disk_full, true);
    commit_one(1000, 128, 40);
    wait_for((struct asked){1000, NULL, NULL, NULL, 0});
    wait_for_files(false, false);
    atomic_store(&is_disk_full, false);
    wait_for((struct asked){1000, NULL, NULL, NULL, 128});
}

static bool is_counted_down(void *context)
{
    return --*(int *)context == 0;
}

/* A page that could not be written goes on naming what is out of date: it is written as soon as it
 * can be, not with the next news or base. */
static void a_page_that_could_not_be_written_is_written_later(void **state)
{
    (void)state;
    commit_one(1000, 512, 50);
    start_with((struct publish_options){0});
    publish_set_view(publish, registry, devices, 1);
    wait_for((struct asked){1000, NULL, NULL, NULL, 512});
    wait_for_files(true, false);
    assert_int_equal(rename(path_in("db/served"), path_in("db/away")), 0);
    commit_one(1000, 128, 40);
    int ticks = 40; /* of which it needs one */
    run_until(is_counted_down, &ticks);
    assert_int_equal(rename(path_in("db/away"), path_in("db/served")), 0);
    wait_for((struct asked){1000, NULL, NULL, NULL, 0});
    wait_for_files(false, false);
}

static void without_a_view_nothing_is_published(void **state)
{
    (void)state;
    commit_one(1000, 512, 50);
    start_with((struct publish_options){.base_period_ms = 1});
    assert_string_equal(publish_folder(publish), path_in("db/served"));
    stop();
    assert_int_equal(access(path_in("db/served/page"), F_OK), -1);
}

#define test(name) cmocka_unit_test_setup_teardown(name, open_all, close_all)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(every_question_that_a_row_answers_is_answered),
        test(choices_may_be_left_out_where_they_are_the_first),
        test(each_target_has_its_own_best),
        test(a_new_best_is_seen_by_an_open_handle),
        test(what_is_not_exact_any_more_is_asked_of_the_daemon),
        test(rows_of_other_kernels_and_texts_are_left_out),
        test(random_commits_are_followed),
        test(a_base_is_not_renewed_before_its_time),
        test(a_large_delta_becomes_a_base),
        test(what_changes_while_a_base_is_built_is_not_lost),
        test(an_old_delta_becomes_a_base),
        test(more_changes_than_are_told_withdraw_all_until_the_next_base),
        test(the_next_daemon_goes_on_with_the_same_page_and_base),
        test(what_was_committed_last_is_published_before_the_end),
        test(a_delta_of_the_daemon_before_becomes_a_base),
        test(what_a_killed_daemon_did_not_publish_withdraws_the_rest),
        test(a_damaged_base_is_made_anew),
        test(other_devices_withdraw_what_was_for_the_old_ones),
        test(the_next_daemon_looks_whether_the_devices_are_the_same),
        test(the_same_kernels_read_again_change_nothing),
        test(a_changed_kernel_withdraws_its_answers),
        test(a_folder_that_cannot_be_made_is_done_without),
        test(a_link_is_replaced_and_nothing_else),
        test(a_delta_that_cannot_be_written_withdraws_the_base),
        test(a_page_that_could_not_be_written_is_written_later),
        test(without_a_view_nothing_is_published),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
