/* Makes a database of N tuned shapes: bench_fill PLUGINS_FOLDER DB_FOLDER N
 *
 * For each shape of asked.h one confirmed measurement of a configuration that is valid for it in
 * today's manifest of gemm, so that every answer is exact. The configurations differ: the default
 * with one param changed. Prints the seconds it took. */
#include "asked.h"

#include "plugins/registry.h"
#include "plugins/space.h"
#include "tuning_db/tuning_db.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BATCH_ROWS 8000 /* few commits, each is synced; but a batch looks through its keys */

struct filler {
    struct plugin *plugin;
    struct device_info device;
    struct tuning_db *db;
    struct tuning_db_batch *batch;
    size_t count;
};

static bool is_valid(const struct filler *filler, const int64_t *dims, const int64_t *values)
{
    int64_t slots[MANIFEST_MAX_SLOTS];
    manifest_bind(filler->plugin->manifest, &filler->device, dims, ASKED_DTYPE, slots);
    return space_check(filler->plugin->manifest, values, slots, NULL) == 0;
}

/* The default for the shape, and where that is still valid with a param changed. */
static int pick_config(const struct filler *filler, size_t i, const int64_t *dims, int64_t *values)
{
    const struct manifest *manifest = filler->plugin->manifest;
    size_t d = 0;
    while (d < manifest->default_count && !is_valid(filler, dims, manifest->defaults[d]))
        d++;
    if (d == manifest->default_count)
        return -1;
    memcpy(values, manifest->defaults[d], sizeof manifest->defaults[d]);
    const struct manifest_param *param = &manifest->params[i % manifest->param_count];
    int64_t *changed = &values[i % manifest->param_count], before = *changed;
    *changed = param->values[i / manifest->param_count % param->value_count];
    if (!is_valid(filler, dims, values))
        *changed = before;
    return 0;
}

static int add_row(struct filler *filler, size_t i, struct tune_error *err)
{
    int64_t dims[MANIFEST_MAX_DIMS] = {0}, values[MANIFEST_MAX_PARAMS] = {0};
    asked_shape(i, filler->count, dims);
    if (pick_config(filler, i, dims, values))
        return tune_fail(err, TUNE_EINVAL, "no default is valid for shape %zu", i);
    char *shape = manifest_shape_text(filler->plugin->manifest, dims);
    char *config = manifest_config_text(filler->plugin->manifest, values);
    float times_ns[15];
    for (size_t k = 0; k < 15; k++)
        times_ns[k] = 20000.0f + (float)(i % 1000) + (float)k;
    struct sample sample = {
        .key = {ASKED_KERNEL, filler->plugin->fingerprint, shape, ASKED_DTYPE, ASKED_ARCH,
            ASKED_MODE},
        .config = config,
        .gpu_uuid = "GPU-00000000-0000-0000-0000-000000000001",
        .run = "bench/confirm",
        .outcome = OUTCOME_OK,
        .is_final = true,
        .is_confirmed = true,
        .attempts = 1,
        .method = "graph",
        .median_ns = times_ns[7],
        .lo_ns = times_ns[4],
        .hi_ns = times_ns[10],
        .sample_count = 15,
        .samples_ns = times_ns,
        .registers = 96,
        .gpu_name = "NVIDIA H200",
        .host = "bench",
        .nvrtc = "13.0",
        .driver = 13000,
        .time_unix_ms = 1700000000000 + (int64_t)i,
    };
    int status = shape == NULL || config == NULL ||
                 tuning_db_batch_sample(filler->batch, &sample) ||
                 tuning_db_batch_refresh(filler->batch, &sample.key);
    free(shape);
    free(config);
    return status ? tune_fail(err, TUNE_ENOMEM, "no memory for a row") : 0;
}

static int fill(struct filler *filler, struct tune_error *err)
{
    for (size_t i = 0; i < filler->count;) {
        filler->batch = tuning_db_batch_create();
        if (filler->batch == NULL)
            return tune_fail(err, TUNE_ENOMEM, "no memory for a batch");
        size_t end = i + BATCH_ROWS < filler->count ? i + BATCH_ROWS : filler->count;
        int status = 0;
        while (status == 0 && i < end)
            status = add_row(filler, i++, err);
        if (status == 0)
            status = tuning_db_commit(filler->db, filler->batch, err);
        tuning_db_batch_destroy(filler->batch);
        if (status != 0)
            return -1;
    }
    return 0;
}

static int run(const char *plugins, const char *folder, size_t count, struct tune_error *err)
{
    struct filler filler = {.count = count};
    char manifest[4096], sources[4096];
    snprintf(manifest, sizeof manifest, "%s/%s/%s.json", plugins, ASKED_KERNEL, ASKED_KERNEL);
    snprintf(sources, sizeof sources, "%s/../kernels_src", plugins);
    if (device_generic(ASKED_ARCH, &filler.device, err) ||
        (filler.plugin = plugin_load(manifest, sources, err)) == NULL)
        return -1;
    int status = -1;
    if ((filler.db = tuning_db_open(folder, NULL, err)) != NULL)
        status = fill(&filler, err);
    tuning_db_close(filler.db);
    plugin_unref(filler.plugin);
    return status;
}

int main(int argc, char **argv)
{
    struct tune_error err = {0};
    long count = argc == 4 ? atol(argv[3]) : 0;
    if (count <= 0) {
        fprintf(stderr, "usage: bench_fill PLUGINS_FOLDER DB_FOLDER N\n");
        return 2;
    }
    struct timespec begun, ended;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    if (run(argv[1], argv[2], (size_t)count, &err)) {
        fprintf(stderr, "bench_fill: %s\n", err.text);
        return 1;
    }
    clock_gettime(CLOCK_MONOTONIC, &ended);
    printf("%.1f\n",
        (double)(ended.tv_sec - begun.tv_sec) + (double)(ended.tv_nsec - begun.tv_nsec) / 1e9);
    return 0;
}
