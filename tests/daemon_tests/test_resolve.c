/* Which configuration is served, and what is said about it: on a transpose and on a kernel with
 * choices, with samples put into the database by hand. */
#include "daemon/resolve.h"
#include "parts.h"
#include "plugins/space.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define CONFIGS 6

static struct plugin *plugin;
static struct registry *choices_registry; /* of the kernel with choices; NULL: not in use */
static struct nearest *nearest;
static char *configs[CONFIGS]; /* canonical texts, valid for every shape here */
static int runs;
static uint32_t attached_sms; /* of the device that is asked for; 0: it is not attached */

static void find_configs(void)
{
    struct device_info device;
    int64_t dims[MANIFEST_MAX_DIMS] = {61, 67}, values[MANIFEST_MAX_PARAMS]; /* fits all, if odd */
    assert_int_equal(device_generic("sm_80", &device, NULL), 0);
    struct space *space =
        space_create(plugin->manifest, &device, dims, plugin->manifest->dtypes[0], NULL, NULL);
    assert_true(space_count(space) > CONFIGS);
    for (size_t i = 0; i < CONFIGS; i++) {
        space_config(space, i, values);
        configs[i] = manifest_config_text(plugin->manifest, values);
    }
    space_destroy(space);
}

static int start(void **state)
{
    if (open_parts(state))
        return -1;
    plugin = registry_find(parts_registry, "transpose", NULL);
    assert_non_null(plugin);
    nearest = nearest_create(parts.db);
    runs = 0;
    attached_sms = 0;
    find_configs();
    return 0;
}

static int finish(void **state)
{
    nearest_destroy(nearest);
    for (size_t i = 0; i < CONFIGS; i++)
        free(configs[i]);
    registry_destroy(choices_registry);
    choices_registry = NULL;
    return close_parts(state);
}

/* --- samples ---------------------------------------------------------------------------------- */

/* What most samples here are; changed where a test needs another. */
struct row {
    const char *kernel, *gpu, *arch, *fingerprint, *config;
    const char *shape; /* NULL: of m and n */
    int m, n;
    double median_us;
    bool is_unconfirmed, is_default;
    uint32_t sms;
};

/* One run with these samples, committed, and best chosen anew. */
static void store_run(const struct row *rows, size_t count)
{
    struct tuning_db_batch *batch = tuning_db_batch_create();
    struct tune_error err = {0};
    float times[3];
    char run[32];
    snprintf(run, sizeof run, "job-%d/confirm", ++runs);
    for (size_t i = 0; i < count; i++) {
        const struct row *row = &rows[i];
        char shape[64];
        double median_ns = 1000 * row->median_us;
        if (row->shape == NULL)
            snprintf(shape, sizeof shape, "M=%d,N=%d", row->m, row->n);
        for (size_t j = 0; j < 3; j++)
            times[j] = (float)median_ns;
        struct sample sample = {
            .key = {.kernel = row->kernel ? row->kernel : plugin->manifest->name,
                .fingerprint = row->fingerprint ? row->fingerprint : plugin->fingerprint,
                .shape = row->shape ? row->shape : shape,
                .dtype = plugin->manifest->dtypes[0],
                .arch = row->arch ? row->arch : "sm_90",
                .mode = "cold"},
            .config = row->config,
            .gpu_uuid = row->gpu ? row->gpu : "NVIDIA H200",
            .gpu_name = row->gpu ? row->gpu : "NVIDIA H200",
            .run = run,
            .is_final = true,
            .is_confirmed = !row->is_unconfirmed,
            .is_default = row->is_default,
            .method = "event",
            .median_ns = median_ns,
            .lo_ns = median_ns * 0.99,
            .hi_ns = median_ns * 1.01,
            .sample_count = 3,
            .samples_ns = times,
            .host = "here",
            .nvrtc = "13.0",
            .time_unix_ms = 1000 + runs,
            .sms = row->sms,
        };
        assert_int_equal(tuning_db_batch_sample(batch, &sample), 0);
        assert_int_equal(tuning_db_batch_refresh(batch, &sample.key), 0);
    }
    assert_int_equal(tuning_db_commit(parts.db, batch, &err), 0);
    tuning_db_batch_destroy(batch);
}

static void store(struct row row)
{
    if (row.config == NULL)
        row.config = configs[0];
    if (row.median_us == 0)
        row.median_us = 100;
    store_run(&row, 1);
}

/* --- asking ----------------------------------------------------------------------------------- */

static struct resolved ask_on(const char *gpu, const char *arch, int m, int n)
{
    struct question question = {.plugin = plugin,
        .dims = {m, n},
        .dtype = plugin->manifest->dtypes[0],
        .mode = "cold",
        .nearest = nearest};
    struct resolved resolved;
    struct tune_error err = {0};
    bool is_cpu = strcmp(arch, "cpu") == 0;
    assert_int_equal(device_generic(is_cpu ? "sm_80" : arch, &question.device, NULL), 0);
    if (is_cpu)
        question.device.attributes[DEVICE_sm] = 0;
    snprintf(question.device.arch, sizeof question.device.arch, "%s", arch);
    snprintf(question.device.name, sizeof question.device.name, "%s", gpu);
    question.device.uuid[0] = '\0';
    if (attached_sms != 0) {
        question.device.attributes[DEVICE_sms] = attached_sms;
        strcpy(question.device.uuid, "GPU-0");
    }
    if (resolve(parts.db, &question, &resolved, &err))
        fail_msg("%s", err.text);
    return resolved;
}

static struct resolved ask(int m, int n)
{
    return ask_on("NVIDIA H200", "sm_90", m, n);
}

static const char *text(const struct resolved *resolved, const char *field)
{
    const char *value = json_string_value(json_object_get(resolved->json, field));
    return value ? value : "";
}

static void expect(struct resolved resolved, const char *origin, const char *shape, const char *gpu)
{
    if (strcmp(text(&resolved, "origin"), origin) != 0 ||
        strcmp(text(&resolved, "measured_shape"), shape) != 0 ||
        strcmp(text(&resolved, "measured_on"), gpu) != 0)
        fail_msg("not %s from %s on %s, but %s from %s on %s", origin, shape, gpu,
            text(&resolved, "origin"), text(&resolved, "measured_shape"),
            text(&resolved, "measured_on"));
    resolved_finish(&resolved);
}

static void expect_match(struct resolved resolved, const char *words)
{
    char *match = json_dumps(json_object_get(resolved.json, "match"), JSON_COMPACT);
    assert_string_equal(match, words);
    free(match);
    resolved_finish(&resolved);
}

/* `percent` below 0: null. */
static void expect_loss(struct resolved resolved, double percent)
{
    const json_t *loss = json_object_get(resolved.json, "expected_loss");
    if (percent < 0)
        assert_true(json_is_null(loss));
    else if (!json_is_number(loss) || json_number_value(loss) * 100 < percent - 0.01 ||
             json_number_value(loss) * 100 > percent + 0.01)
        fail_msg("the loss is not %g %% but %g", percent, json_number_value(loss));
    resolved_finish(&resolved);
}

/* --- order ------------------------------------------------------------------------------------ */

static void each_nearer_row_is_preferred_to_the_one_before(void **state)
{
    (void)state;
    expect(ask(1024, 1024), "default", "", "");
    store((struct row){.arch = "sm_80", .gpu = "NVIDIA A100", .m = 1024, .n = 1024});
    expect(ask(1024, 1024), "transferred", "M=1024,N=1024", "NVIDIA A100");
    store((struct row){.gpu = "NVIDIA H20", .m = 64, .n = 64});
    expect(ask(1024, 1024), "nearest", "M=64,N=64", "NVIDIA H20");
    store((struct row){.m = 32, .n = 32});
    expect(ask(1024, 1024), "nearest", "M=32,N=32", "NVIDIA H200");
    store((struct row){.m = 512, .n = 1024});
    expect(ask(1024, 1024), "nearest", "M=512,N=1024", "NVIDIA H200");
    store((struct row){.gpu = "NVIDIA H20", .m = 1024, .n = 1024});
    expect(ask(1024, 1024), "exact", "M=1024,N=1024", "NVIDIA H20");
    store((struct row){.m = 1024, .n = 1024, .median_us = 900});
    expect(ask(1024, 1024), "exact", "M=1024,N=1024", "NVIDIA H200");
}

static void the_fields_that_match_are_told(void **state)
{
    (void)state;
    expect_match(ask(64, 64), "[]");
    store((struct row){.arch = "sm_80", .gpu = "NVIDIA A100", .m = 64, .n = 64});
    expect_match(ask(64, 64), "[\"shape\",\"fingerprint\"]");
    store((struct row){.gpu = "NVIDIA H20", .m = 64, .n = 64});
    expect_match(ask(64, 64), "[\"arch\",\"shape\",\"fingerprint\"]");
    expect_match(ask(64, 128), "[\"arch\",\"fingerprint\"]");
    store((struct row){.m = 64, .n = 64});
    expect_match(ask(64, 64), "[\"arch\",\"gpu\",\"shape\",\"fingerprint\"]");
}

/* F14: one name, other multiprocessors. */
static void a_gpu_of_the_same_name_with_other_multiprocessors_is_another_model(void **state)
{
    (void)state;
    static const char elsewhere[] = "[\"arch\",\"gpu\",\"shape\",\"fingerprint\"]";
    static const char here[] = "[\"arch\",\"gpu\",\"sms\",\"shape\",\"fingerprint\"]";
    attached_sms = 114;
    store((struct row){.m = 64, .n = 64, .sms = 132, .median_us = 50});
    expect_match(ask(64, 64), elsewhere);
    expect_loss(ask(64, 64), -1);
    store((struct row){.m = 4096, .n = 64, .sms = 114, .config = configs[1]});
    expect(ask(64, 65), "nearest", "M=4096,N=64", "NVIDIA H200");
    store((struct row){.m = 64, .n = 64, .sms = 114, .median_us = 90}); /* its own, if slower */
    expect_match(ask(64, 64), here);
    attached_sms = 132;
    struct resolved other = ask(64, 64);
    assert_true(json_number_value(json_object_get(other.json, "median_ns")) == 50000);
    expect_match(other, here);
    attached_sms = 0; /* a stand-in knows no number: any row of the name is its model's */
    other = ask(64, 64);
    assert_true(json_is_true(json_object_get(other.json, "same_gpu")));
    expect_match(other, elsewhere);
}

static json_int_t blocks_of(struct resolved resolved)
{
    json_t *launches = json_object_get(resolved.json, "launches");
    const json_t *last = json_array_get(launches, json_array_size(launches) - 1);
    json_int_t blocks = json_integer_value(json_array_get(json_object_get(last, "grid"), 0));
    resolved_finish(&resolved);
    return blocks;
}

static void a_grid_that_follows_the_multiprocessors_is_planned_for_the_gpu_of_the_row(void **state)
{
    (void)state;
    static const char persistent[] =
        "VARIANT=6,BLOCK=1024,ITEMS=24,LOAD=2,LOOK=4,REST=0,MIN_BLOCKS=1";
    static const int n = 1 << 28, exclusive = 1;
    plugin = registry_find(parts_registry, "scan", NULL);
    store((struct row){
        .shape = "N=268435456,MODE=1", .config = persistent, .sms = 132, .median_us = 560});
    assert_int_equal(blocks_of(ask_on("NVIDIA H200", "sm_90", n, exclusive)), 132);
    assert_int_equal(blocks_of(ask_on("NVIDIA H200", "sm_90", n / 2, exclusive)), 132);
    /* Too few tiles of that size for 132, which the configuration is valid with no more. */
    assert_int_equal(blocks_of(ask_on("NVIDIA H200", "sm_90", 1 << 20, exclusive)), 1);
    assert_int_equal(blocks_of(ask_on("", "sm_90", n, exclusive)), 1); /* any of the arch */
    attached_sms = 114; /* this one is there, and has its own number */
    assert_int_equal(blocks_of(ask_on("NVIDIA H100 PCIe", "sm_90", n, exclusive)), 114);
}

static void rows_of_an_older_kernel_serve_as_nearest_only(void **state)
{
    (void)state;
    store((struct row){.fingerprint = "0123456789abcdef0123456789abcdef", .m = 64, .n = 64});
    store((struct row){.m = 64, .n = 128});
    expect_match(ask(64, 64), "[\"arch\",\"gpu\",\"shape\"]");
    expect(ask(64, 64), "nearest", "M=64,N=64", "NVIDIA H200");
    store((struct row){.m = 64, .n = 64});
    expect(ask(64, 64), "exact", "M=64,N=64", "NVIDIA H200");
}

static void the_aspect_ratio_counts(void **state)
{
    (void)state;
    store((struct row){.m = 1024, .n = 4096}); /* two doublings of one dim: 2 + 2 */
    store((struct row){.m = 512, .n = 512});   /* one of each: 2 + 0 */
    expect(ask(1024, 1024), "nearest", "M=512,N=512", "NVIDIA H200");
}

static void ties_do_not_depend_on_the_order_of_rows(void **state)
{
    (void)state;
    static const struct row rows[] = {{.m = 256, .n = 256}, {.m = 1024, .n = 1024}};
    for (int first = 0; first < 2; first++) {
        store(rows[first]);
        store(rows[1 - first]);
        expect(ask(512, 512), "nearest", "M=256,N=256", "NVIDIA H200");
        nearest_destroy(nearest);
        nearest = nearest_create(parts.db);
        expect(ask(512, 512), "nearest", "M=256,N=256", "NVIDIA H200");
    }
}

static void of_two_as_near_the_confirmed_one_is_served(void **state)
{
    (void)state;
    store((struct row){.m = 256, .n = 256, .is_unconfirmed = true});
    expect(ask(512, 512), "nearest", "M=256,N=256", "NVIDIA H200");
    store((struct row){.m = 1024, .n = 1024, .median_us = 900});
    expect(ask(512, 512), "nearest", "M=1024,N=1024", "NVIDIA H200");
}

static void emulated_times_say_nothing_about_a_gpu(void **state)
{
    (void)state;
    store((struct row){.arch = "cpu", .gpu = "CPU emulator", .m = 64, .n = 64});
    expect(ask(64, 64), "default", "", "");
    expect(ask_on("CPU emulator", "cpu", 64, 65), "nearest", "M=64,N=64", "CPU emulator");
}

static void rows_of_other_kernels_change_nothing(void **state)
{
    (void)state;
    store((struct row){.m = 4096, .n = 64});
    struct resolved before = ask(64, 64);
    for (int i = 0; i < 50; i++)
        store((struct row){.kernel = "reduce", .m = 64, .n = 64 + i});
    struct resolved after = ask(64, 64);
    json_object_del(before.json, "generation");
    json_object_del(after.json, "generation");
    assert_true(json_equal(before.json, after.json));
    resolved_finish(&before);
    resolved_finish(&after);
}

static void what_is_not_valid_for_the_asked_shape_is_passed_over(void **state)
{
    (void)state;
    store((struct row){.m = 64, .n = 64, .config = "TILE=7"});
    store((struct row){.m = 64, .n = 65, .config = "TILE=7"});
    store((struct row){.m = 4096, .n = 4096, .config = configs[2]});
    expect(ask(64, 64), "nearest", "M=4096,N=4096", "NVIDIA H200");
}

/* --- choices ---------------------------------------------------------------------------------- */

static void copy_into(const char *folder, const char *name, const char *from)
{
    char path[4200];
    int byte;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *in = from ? fopen(from, "r") : NULL, *out = fopen(path, "w");
    assert_non_null(out);
    while (in != NULL && (byte = fgetc(in)) != EOF)
        fputc(byte, out);
    if (in != NULL)
        fclose(in);
    fclose(out);
}

/* From here on the kernel is tests/data/manifests/valid/choices. */
static void use_choices(void)
{
    char from[4200], base[256], folder[300];
    snprintf(base, sizeof base, "%s", path_in("choosing"));
    snprintf(folder, sizeof folder, "%s/choices", base);
    assert_int_equal(mkdir(base, 0700) | mkdir(folder, 0700), 0);
    snprintf(from, sizeof from, "%s/tests/data/manifests/valid/choices/manifest.json",
        getenv("TUNE_SOURCE_DIR"));
    copy_into(folder, "choices.json", from);
    copy_into(folder, "choices.cu", NULL);
    choices_registry = registry_create((const char *const[]){base, NULL});
    registry_reload(choices_registry);
    plugin = registry_find(choices_registry, "choices", NULL);
    assert_non_null(plugin);
}

static struct resolved ask_choice(int n, int op, int way)
{
    struct question question = {
        .plugin = plugin, .dims = {n, op, way}, .dtype = "f32", .mode = "cold", .nearest = nearest};
    struct resolved resolved;
    struct tune_error err = {0};
    assert_int_equal(device_generic("sm_90", &question.device, NULL), 0);
    snprintf(question.device.name, sizeof question.device.name, "NVIDIA H200");
    if (resolve(parts.db, &question, &resolved, &err))
        fail_msg("%s", err.text);
    return resolved;
}

static void a_record_never_serves_another_choice(void **state)
{
    (void)state;
    use_choices();
    store((struct row){.shape = "N=1024,OP=2,WAY=3", .config = "BLOCK=64"});
    expect(ask_choice(1024, 1, 3), "default", "", "");
    expect(ask_choice(1024, 2, 1), "default", "", "");
    expect(ask_choice(1024, 2, 3), "exact", "N=1024,OP=2,WAY=3", "NVIDIA H200");
    expect(ask_choice(1000, 2, 3), "nearest", "N=1024,OP=2,WAY=3", "NVIDIA H200");
    store((struct row){.shape = "N=4,OP=1,WAY=3", .config = "BLOCK=64"});
    expect(ask_choice(1024, 1, 3), "nearest", "N=4,OP=1,WAY=3", "NVIDIA H200");
    expect(ask_choice(1000, 2, 3), "nearest", "N=1024,OP=2,WAY=3", "NVIDIA H200");
}

/* On whatever is stored: what serves is of the asked choices, and nothing of them is nearer. */
static void the_nearest_of_the_choices_serves(void **state)
{
    (void)state;
    static const int ops[] = {1, 2, 5}, ways[] = {3, 1};
    bool is_stored[3][2][24] = {{{false}}};
    unsigned random = 7;
    use_choices();
    for (int round = 0; round < 150; round++) {
        random = random * 1103515245 + 12345;
        unsigned bits = random >> 8, op = bits % 3, way = bits / 3 % 2, power = bits / 6 % 24;
        char shape[64];
        snprintf(shape, sizeof shape, "N=%d,OP=%d,WAY=%d", 1 << power, ops[op], ways[way]);
        store((struct row){.shape = shape, .config = bits / 200 % 2 ? "BLOCK=64" : "BLOCK=128"});
        is_stored[op][way][power] = true;
        op = bits / 400 % 3, way = bits / 1200 % 2, power = bits / 2400 % 24;
        int nearest_power = -1;
        for (int i = 0; i < 24; i++)
            if (is_stored[op][way][i] &&
                (nearest_power < 0 || abs(i - (int)power) < abs(nearest_power - (int)power)))
                nearest_power = i;
        struct resolved answer = ask_choice(1 << power, ops[op], ways[way]);
        if (nearest_power < 0) {
            expect(answer, "default", "", "");
            continue;
        }
        snprintf(shape, sizeof shape, "N=%d,OP=%d,WAY=%d", 1 << nearest_power, ops[op], ways[way]);
        expect(answer, nearest_power == (int)power ? "exact" : "nearest", shape, "NVIDIA H200");
    }
}

static void the_loss_of_a_default_is_of_its_own_choice(void **state)
{
    (void)state;
    use_choices();
    const struct row slow[] = {{.shape = "N=8,OP=2,WAY=3", .config = "BLOCK=64", .median_us = 100},
        {.shape = "N=8,OP=2,WAY=3", .config = "BLOCK=128", .median_us = 150, .is_default = true}};
    store_run(slow, 2);
    store((struct row){.shape = "N=16,OP=2,WAY=3", .config = "TILE=7"}); /* serves nobody */
    expect_loss(ask_choice(8, 1, 3), -1);
}

/* --- what is expected of it ------------------------------------------------------------------- */

static void an_exact_answer_loses_what_its_interval_leaves_open(void **state)
{
    (void)state;
    store((struct row){.m = 64, .n = 64, .is_unconfirmed = true});
    expect_loss(ask(64, 64), 1); /* 0.99 to 1.01 */
    store((struct row){.m = 64, .n = 64});
    expect_loss(ask(64, 64), 0);
    expect_loss(ask_on("NVIDIA H20", "sm_90", 64, 64), -1);
}

static void a_neighbour_loses_what_neighbours_have_lost(void **state)
{
    (void)state;
    store((struct row){.m = 1024, .n = 1024, .config = configs[0]});
    expect_loss(ask(4096, 4096), -1); /* one shape tells nothing */
    const struct row small[] = {
        {.m = 1024, .n = 1024, .config = configs[0], .median_us = 100},
        {.m = 1024, .n = 1024, .config = configs[1], .median_us = 120, .is_unconfirmed = true},
    };
    const struct row large[] = {
        {.m = 2048, .n = 2048, .config = configs[1], .median_us = 400},
        {.m = 2048, .n = 2048, .config = configs[2], .median_us = 404},
    };
    store_run(large, 2);
    expect_loss(ask(4096, 4096), -1); /* no winner was measured at the other's shape */
    store_run(small, 2);
    expect_loss(ask(4096, 4096), 20);
    /* Far away from all that was measured, losses between near shapes say nothing. */
    expect(ask(1 << 16, 1 << 16), "nearest", "M=2048,N=2048", "NVIDIA H200");
    expect_loss(ask(1 << 16, 1 << 16), -1);
    /* Other architectures: never measured. */
    expect_loss(ask_on("NVIDIA A100", "sm_80", 4096, 4096), -1);
}

static void a_default_loses_what_defaults_have_lost(void **state)
{
    (void)state;
    const struct row rows[] = {
        {.m = 64, .n = 64, .config = "TILE=7", .median_us = 100},
        {.m = 64, .n = 64, .config = "TILE=8", .median_us = 150, .is_default = true},
    };
    store_run(rows, 2);
    expect_loss(ask(64, 64), 50);
}

/* --- the tables ------------------------------------------------------------------------------- */

static void expect_equal_answers(struct nearest *fresh, int m, int n)
{
    struct nearest *kept = nearest;
    struct resolved one = ask(m, n);
    nearest = fresh;
    struct resolved other = ask(m, n);
    nearest = kept;
    /* Samples that change no best row are not read again for the loss. */
    json_object_del(one.json, "expected_loss");
    json_object_del(other.json, "expected_loss");
    if (!json_equal(one.json, other.json))
        fail_msg("a table that was brought up to date differs from a new one");
    resolved_finish(&one);
    resolved_finish(&other);
}

static void a_table_brought_up_to_date_is_like_a_new_one(void **state)
{
    (void)state;
    unsigned random = 1;
    static const char *const gpus[] = {"NVIDIA H200", "NVIDIA H20"};
    static const char *const archs[] = {"sm_90", "sm_80"};
    for (int round = 0; round < 200; round++) {
        random = random * 1103515245 + 12345;
        unsigned bits = random >> 8;
        store((struct row){.m = 32 << bits % 5,
            .n = 32 << bits / 5 % 5,
            .gpu = gpus[bits / 25 % 2],
            .arch = archs[bits / 50 % 2],
            .config = bits / 100 % 7 == 0 ? "TILE=7" : configs[bits / 100 % CONFIGS],
            .median_us = 100 + bits % 13,
            .is_unconfirmed = bits / 700 % 2 == 0});
        struct nearest *fresh = nearest_create(parts.db);
        expect_equal_answers(fresh, 33 << bits % 7, 1 + (int)(bits % 3000));
        nearest_destroy(fresh);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, finish)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(each_nearer_row_is_preferred_to_the_one_before),
        TEST(the_fields_that_match_are_told),
        TEST(a_gpu_of_the_same_name_with_other_multiprocessors_is_another_model),
        TEST(a_grid_that_follows_the_multiprocessors_is_planned_for_the_gpu_of_the_row),
        TEST(rows_of_an_older_kernel_serve_as_nearest_only),
        TEST(the_aspect_ratio_counts),
        TEST(ties_do_not_depend_on_the_order_of_rows),
        TEST(of_two_as_near_the_confirmed_one_is_served),
        TEST(emulated_times_say_nothing_about_a_gpu),
        TEST(rows_of_other_kernels_change_nothing),
        TEST(what_is_not_valid_for_the_asked_shape_is_passed_over),
        TEST(a_record_never_serves_another_choice),
        TEST(the_nearest_of_the_choices_serves),
        TEST(the_loss_of_a_default_is_of_its_own_choice),
        TEST(an_exact_answer_loses_what_its_interval_leaves_open),
        TEST(a_neighbour_loses_what_neighbours_have_lost),
        TEST(a_default_loses_what_defaults_have_lost),
        TEST(a_table_brought_up_to_date_is_like_a_new_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
