/* Makes a file of records as another machine could have exported it, on standard output:
 *
 *     fleet_rows PLUGINS_FOLDER KERNEL ROWS ROWS_PER_KEY SEED [NS]
 *
 * Rows of sm_90, each of a configuration that is valid for its shape in the kernel's manifest as it
 * is now, so that all of them are taken in. ROWS_PER_KEY of them share a shape. The seed decides
 * everything: another one gives rows of another machine and other runs, the same one the same
 * bytes. Times are NS or a little more; without it each row has its own. */
#include "plugins/registry.h"
#include "plugins/space.h"
#include "tuning_db/record_line.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHAPE_STEP 16 /* of each dim, so that vector accesses are valid */
#define SAMPLES 16

struct maker {
    struct plugin *plugin;
    struct device_info device;
    struct space *space; /* of the largest shape: where configurations are drawn from */
    size_t rows, rows_per_key;
    uint64_t seed, random;
    double time_ns; /* 0: chosen for each row */
    char uuid[64], host[64];
};

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u; /* splitmix64 */
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* The smallest cube of shapes that has one for each key; key number `i` of it. */
static void pick_shape(const struct maker *maker, size_t i, int64_t *dims)
{
    size_t keys = maker->rows / maker->rows_per_key + 1, values = 1;
    size_t dim_count = maker->plugin->manifest->dim_count;
    for (size_t cube = 0; cube < keys; values++) {
        cube = 1;
        for (size_t d = 0; d < dim_count; d++)
            cube *= values + 1;
    }
    for (size_t d = 0; d < dim_count; d++) {
        dims[d] = SHAPE_STEP * (int64_t)(1 + i % values);
        i /= values;
    }
}

static bool is_valid(const struct maker *maker, const int64_t *dims, const int64_t *values)
{
    int64_t slots[MANIFEST_MAX_SLOTS];
    const struct manifest *manifest = maker->plugin->manifest;
    manifest_bind(manifest, &maker->device, dims, manifest->dtypes[0], slots);
    return space_check(manifest, values, slots, NULL) == 0;
}

/* One of the space that is valid for this shape too; else the default. */
static int pick_config(struct maker *maker, const int64_t *dims, int64_t *values)
{
    const struct manifest *manifest = maker->plugin->manifest;
    for (int i = 0; i < 100; i++) {
        space_config(maker->space, next_random(&maker->random) % space_count(maker->space), values);
        if (is_valid(maker, dims, values))
            return 0;
    }
    for (size_t i = 0; i < manifest->default_count; i++) {
        memcpy(values, manifest->defaults[i], sizeof manifest->defaults[i]);
        if (is_valid(maker, dims, values))
            return 0;
    }
    return -1;
}

/* From 20 us to 1 ms when nothing else is asked, each a little apart from the others. */
static void pick_times(struct maker *maker, struct sample *sample, float *times_ns)
{
    float base = 20000.0f + (float)(next_random(&maker->random) % 980000);
    if (maker->time_ns != 0)
        base = (float)maker->time_ns;
    for (size_t i = 0; i < SAMPLES; i++)
        times_ns[i] = base * (1.0f + (float)i / 1000.0f);
    sample->samples_ns = times_ns;
    sample->sample_count = SAMPLES;
    sample->median_ns = times_ns[SAMPLES / 2];
    sample->lo_ns = times_ns[SAMPLES / 4];
    sample->hi_ns = times_ns[SAMPLES * 3 / 4];
}

static char *make_line(struct maker *maker, size_t i, struct tune_error *err)
{
    const struct manifest *manifest = maker->plugin->manifest;
    int64_t dims[MANIFEST_MAX_DIMS] = {0}, values[MANIFEST_MAX_PARAMS] = {0};
    float times_ns[SAMPLES];
    char run[64];
    size_t length;
    pick_shape(maker, i / maker->rows_per_key, dims);
    if (pick_config(maker, dims, values)) {
        tune_fail(
            err, TUNE_EINVAL, "no configuration is valid for shape %zu", i / maker->rows_per_key);
        return NULL;
    }
    char *shape = manifest_shape_text(manifest, dims);
    char *config = manifest_config_text(manifest, values);
    snprintf(run, sizeof run, "rows-%llx-%zu/search", (unsigned long long)maker->seed, i);
    struct sample sample = {
        .key = {manifest->name, maker->plugin->fingerprint, shape, manifest->dtypes[0], "sm_90",
            "cold"},
        .config = config,
        .gpu_uuid = maker->uuid,
        .run = run,
        .outcome = OUTCOME_OK,
        .is_final = true,
        .attempts = 1,
        .method = "graph",
        .registers = 96,
        .gpu_name = "Lab GPU",
        .sms = 132,
        .host = maker->host,
        .nvrtc = "13.0",
        .driver = 13000,
        .time_unix_ms = 1700000000000 + (int64_t)i,
        .seed = maker->seed,
    };
    pick_times(maker, &sample, times_ns);
    char *line = record_line_format(&sample, &length, err);
    free(shape);
    free(config);
    return line;
}

static int compare_lines(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

static int write_rows(struct maker *maker, struct tune_error *err)
{
    char **lines = calloc(maker->rows, sizeof *lines), *header = record_header_format();
    int status = lines == NULL || header == NULL ? tune_fail(err, TUNE_ENOMEM, "no memory") : 0;
    for (size_t i = 0; status == 0 && i < maker->rows; i++)
        status = (lines[i] = make_line(maker, i, err)) == NULL ? -1 : 0;
    if (status == 0) {
        qsort(lines, maker->rows, sizeof *lines, compare_lines);
        puts(header);
    }
    for (size_t i = 0; lines != NULL && i < maker->rows; i++) {
        if (status == 0)
            puts(lines[i]);
        free(lines[i]);
    }
    free(lines);
    free(header);
    if (status == 0 && (fflush(stdout) != 0 || ferror(stdout)))
        status = tune_fail_errno(err, TUNE_EIO, "standard output cannot be written");
    return status;
}

static int prepare(
    struct maker *maker, const char *plugins, const char *kernel, struct tune_error *err)
{
    char manifest[4096], sources[4096];
    int64_t dims[MANIFEST_MAX_DIMS] = {0};
    snprintf(manifest, sizeof manifest, "%s/%s/%s.json", plugins, kernel, kernel);
    snprintf(sources, sizeof sources, "%s/../kernels_src", plugins);
    snprintf(maker->uuid, sizeof maker->uuid, "GPU-4011a000-0000-4000-8000-%012llx",
        (unsigned long long)maker->seed & 0xFFFFFFFFFFFF);
    snprintf(maker->host, sizeof maker->host, "rows-%llx", (unsigned long long)maker->seed);
    maker->random = maker->seed;
    if (device_generic("sm_90", &maker->device, err) ||
        (maker->plugin = plugin_load(manifest, sources, err)) == NULL)
        return -1;
    pick_shape(maker, maker->rows / maker->rows_per_key, dims);
    maker->space = space_create(maker->plugin->manifest, &maker->device, dims,
        maker->plugin->manifest->dtypes[0], NULL, err);
    return maker->space == NULL ? -1 : 0;
}

int main(int argc, char **argv)
{
    struct tune_error err = {0};
    struct maker maker = {0};
    if (argc == 6 || argc == 7) {
        maker.rows = strtoul(argv[3], NULL, 10);
        maker.rows_per_key = strtoul(argv[4], NULL, 10);
        maker.seed = strtoull(argv[5], NULL, 10);
        maker.time_ns = argc == 7 ? strtod(argv[6], NULL) : 0;
    }
    if (maker.rows == 0 || maker.rows_per_key == 0) {
        fprintf(stderr, "usage: fleet_rows PLUGINS_FOLDER KERNEL ROWS ROWS_PER_KEY SEED [NS]\n");
        return 2;
    }
    int status = prepare(&maker, argv[1], argv[2], &err) || write_rows(&maker, &err);
    space_destroy(maker.space);
    plugin_unref(maker.plugin);
    if (status != 0)
        fprintf(stderr, "fleet_rows: %s\n", err.text);
    return status;
}
