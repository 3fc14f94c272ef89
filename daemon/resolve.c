/* See resolve.h. */
#include "daemon/resolve.h"

#include "daemon/log.h"
#include "daemon/xmalloc.h"
#include "plugins/plan.h"
#include "plugins/space.h"

#include <stdlib.h>
#include <string.h>

static const char *const origin_words[] = {"exact", "nearest", "transferred", "default"};

/* An answer under construction. */
struct search {
    const struct question *question;
    const struct manifest *manifest;
    char *shape;
    struct record_key key;
    enum resolve_origin origin;
    double distance;
    int64_t values[MANIFEST_MAX_PARAMS];
    bool same_gpu, is_confirmed;
    double median_ns;
    char *measured_on, *measured_shape, *nvrtc;
    json_t *launches, *buffers;
};

static void search_init(struct search *search, const struct question *question)
{
    *search = (struct search){
        .question = question, .manifest = question->plugin->manifest, .origin = RESOLVE_NONE};
    search->shape = manifest_shape_text(search->manifest, question->dims);
    search->key = (struct record_key){
        .kernel = search->manifest->name,
        .fingerprint = question->plugin->fingerprint,
        .shape = search->shape,
        .dtype = question->dtype,
        .arch = question->device.arch,
        .mode = question->mode,
    };
}

static void search_finish(struct search *search)
{
    free(search->shape);
    free(search->measured_on);
    free(search->measured_shape);
    free(search->nvrtc);
    json_decref(search->launches);
    json_decref(search->buffers);
}

/* --- looking ---------------------------------------------------------------------------------- */

/* Whether these values may be launched for the asked shape on the asked device; fills the launches.
 */
static bool take_values(struct search *search, const int64_t *values)
{
    int64_t slots[MANIFEST_MAX_SLOTS];
    const struct question *asked = search->question;
    manifest_bind(search->manifest, &asked->device, asked->dims, asked->dtype, slots);
    if (space_check(search->manifest, values, slots, NULL))
        return false;
    json_t *launches =
        plan_launches(search->manifest, &asked->device, asked->dims, asked->dtype, values, NULL);
    json_t *buffers =
        plan_buffers(search->manifest, &asked->device, asked->dims, asked->dtype, values, NULL);
    if (launches == NULL || buffers == NULL) {
        json_decref(launches);
        json_decref(buffers);
        return false;
    }
    json_decref(search->launches);
    json_decref(search->buffers);
    search->launches = launches;
    search->buffers = buffers;
    memcpy(search->values, values, sizeof search->values);
    return true;
}

static void set_text(char **to, const char *text)
{
    free(*to);
    *to = xstrdup(text);
}

/* A stored row is served only if it is valid in today's space: the manifest may have changed, or
 * the row may come from elsewhere. */
static bool take_best(
    struct search *search, const struct best *best, enum resolve_origin origin, double distance)
{
    int64_t values[MANIFEST_MAX_PARAMS] = {0};
    if (manifest_config_from_text(search->manifest, best->config, values, NULL) ||
        !take_values(search, values)) {
        log_debug(
            "a stored %s configuration is not valid here: %s", best->key.kernel, best->config);
        return false;
    }
    search->origin = origin;
    search->distance = distance;
    search->same_gpu = strcmp(best->gpu_name, search->question->device.name) == 0;
    search->is_confirmed = best->is_confirmed;
    search->median_ns = best->median_ns;
    set_text(&search->measured_on, best->gpu_name);
    set_text(&search->measured_shape, best->key.shape);
    set_text(&search->nvrtc, best->nvrtc);
    return true;
}

static int look_exact(struct search *search, struct tuning_db *db, struct tune_error *err)
{
    const char *names[] = {search->question->device.name, NULL};
    for (size_t i = 0; i < 2 && search->origin == RESOLVE_NONE; i++) {
        struct best best;
        if (i == 0 && names[0][0] == '\0')
            continue;
        int status = tuning_db_best(db, &search->key, names[i], &best, err);
        if (status < 0)
            return -1;
        if (status > 0)
            continue;
        take_best(search, &best, RESOLVE_EXACT, 0);
        best_finish(&best);
    }
    return 0;
}

static int on_near(const struct best *best, void *context)
{
    struct search *search = context;
    const struct question *asked = search->question;
    if (strcmp(best->key.dtype, asked->dtype) != 0 || strcmp(best->key.mode, asked->mode) != 0)
        return 0;
    bool is_cpu = strcmp(best->key.arch, "cpu") == 0;
    bool same_arch = strcmp(best->key.arch, asked->device.arch) == 0;
    double distance = manifest_shape_distance(search->manifest, asked->dims, best->key.shape);
    if (distance < 0 || (is_cpu && !same_arch))
        return 0; /* emulated times say nothing about a GPU */
    enum resolve_origin origin = same_arch ? RESOLVE_NEAREST : RESOLVE_TRANSFERRED;
    if (origin < search->origin || (origin == search->origin && distance < search->distance))
        take_best(search, best, origin, distance);
    return 0;
}

static void look_default(struct search *search)
{
    const struct manifest *manifest = search->manifest;
    for (size_t i = 0; i < manifest->default_count && search->origin == RESOLVE_NONE; i++)
        if (take_values(search, manifest->defaults[i]))
            search->origin = RESOLVE_DEFAULT;
}

/* --- answering -------------------------------------------------------------------------------- */

static json_t *answer_json(const struct search *search, uint64_t generation)
{
    const struct question *asked = search->question;
    bool is_exact = search->origin == RESOLVE_EXACT;
    json_t *json =
        json_pack("{s:s, s:s, s:s, s:o, s:s, s:s, s:s?, s:s?, s:b, s:o, s:O, s:O, s:o, s:I, "
                  "s:b, s:I, s:s?}",
            "kernel", search->manifest->name, "dtype", asked->dtype, "arch", asked->device.arch,
            "shape", manifest_shape_to_json(search->manifest, asked->dims), "mode", asked->mode,
            "origin", origin_words[search->origin], "measured_on", search->measured_on,
            "measured_shape", search->measured_shape, "same_gpu", search->same_gpu, "config",
            manifest_config_to_json(search->manifest, search->values), "launches", search->launches,
            "buffers", search->buffers, "median_ns",
            search->median_ns > 0 ? json_real(search->median_ns) : json_null(), "generation",
            (json_int_t)generation, "verified", search->origin != RESOLVE_DEFAULT, "sm",
            (json_int_t)asked->device.attributes[DEVICE_sm], "nvrtc", search->nvrtc);
    /* The loss of an exact, confirmed answer is none by its own measurement; nothing is known of
     * others. */
    json_object_set_new(
        json, "expected_loss", is_exact && search->is_confirmed ? json_real(0.0) : json_null());
    json_object_set_new(json, "min_driver", json_null());
    return json;
}

int resolve(struct tuning_db *db, const struct question *question, struct resolved *resolved,
    struct tune_error *err)
{
    struct tuning_db_stats stats = {0};
    struct search search;
    *resolved = (struct resolved){.origin = RESOLVE_NONE};
    search_init(&search, question);
    int status = tuning_db_stats(db, &stats, err);
    if (status == 0)
        status = look_exact(&search, db, err);
    if (status == 0 && search.origin == RESOLVE_NONE && !question->only_exact) {
        status = tuning_db_walk_best(db, search.manifest->name, on_near, &search, err);
        look_default(&search);
    }
    if (status == 0 && search.origin != RESOLVE_NONE) {
        resolved->origin = search.origin;
        memcpy(resolved->values, search.values, sizeof resolved->values);
        resolved->json = answer_json(&search, stats.generation);
    }
    search_finish(&search);
    return status;
}

void resolved_finish(struct resolved *resolved)
{
    json_decref(resolved->json);
    *resolved = (struct resolved){.origin = RESOLVE_NONE};
}
