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
    struct device_info device; /* that launches are planned for */
    char *shape;
    struct record_key key;
    enum resolve_origin origin;
    int64_t values[MANIFEST_MAX_PARAMS];
    bool same_arch, same_name, same_shape, same_fingerprint;
    bool has_invalid;                /* an exact row's configuration is not valid here */
    bool is_shipped;                 /* of the records that came with the program */
    bool is_own;                     /* measured by a tunerd, which compares outputs first */
    uint32_t sms;                    /* of the GPU that it was measured on; 0: not known */
    double median_ns, expected_loss; /* expected_loss below 0: not known */
    char *measured_on, *measured_shape, *nvrtc;
    json_t *launches, *buffers;
};

static void search_init(struct search *search, const struct question *question)
{
    *search = (struct search){.question = question,
        .manifest = question->plugin->manifest,
        .device = question->device,
        .origin = RESOLVE_NONE,
        .expected_loss = -1};
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

/* A device that is not attached has no number of multiprocessors of its own: grids that follow it
 * are planned for the GPU that the row was measured on, if that is of the asked model. Another of
 * its architecture may have fewer, and not hold a cooperative grid. sms 0: not known. */
static void plan_for(struct search *search, const char *gpu, uint32_t sms)
{
    const struct device_info *asked = &search->question->device;
    bool is_of_row = asked->uuid[0] == '\0' && sms != 0 && strcmp(asked->name, gpu) == 0;
    search->device.attributes[DEVICE_sms] =
        is_of_row ? (int64_t)sms : asked->attributes[DEVICE_sms];
}

/* Whether these values may be launched for the asked shape on the asked device; fills the launches.
 */
static bool take_values(struct search *search, const int64_t *values)
{
    int64_t slots[MANIFEST_MAX_SLOTS];
    const struct question *asked = search->question;
    manifest_bind(search->manifest, &search->device, asked->dims, asked->dtype, slots);
    if (space_check(search->manifest, values, slots, NULL))
        return false;
    json_t *launches =
        plan_launches(search->manifest, &search->device, asked->dims, asked->dtype, values, NULL);
    json_t *buffers =
        plan_buffers(search->manifest, &search->device, asked->dims, asked->dtype, values, NULL);
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

/* A stored row is served only if it is valid in today's space: the manifest may have changed, or
 * the row may come from elsewhere. */
static bool take_config(const char *config, void *context)
{
    struct search *search = context;
    int64_t values[MANIFEST_MAX_PARAMS] = {0};
    if (manifest_config_from_text(search->manifest, config, values, NULL) == 0 &&
        take_values(search, values))
        return true;
    log_debug("a stored %s configuration is not valid here: %s", search->manifest->name, config);
    return false;
}

static bool is_same_gpu(const struct search *search)
{
    return search->same_arch && search->same_name &&
           nearest_same_sms(search->sms, &search->question->device);
}

static void take_exact(struct search *search, const struct best *best)
{
    const struct device_info *device = &search->question->device;
    plan_for(search, best->gpu_name, best->sms);
    if (!take_config(best->config, search)) {
        plan_for(search, "", 0);
        search->has_invalid = true;
        return;
    }
    search->origin = RESOLVE_EXACT;
    search->same_arch = search->same_shape = search->same_fingerprint = true;
    search->same_name = strcmp(best->gpu_name, device->name) == 0;
    search->is_shipped = best->is_shipped;
    search->is_own = method_is_own(best->method);
    search->sms = best->sms;
    search->median_ns = best->median_ns;
    if (is_same_gpu(search))
        search->expected_loss =
            best->is_confirmed ? 0 : (best->hi_ns - best->lo_ns) / (2 * best->median_ns);
    search->measured_on = xstrdup(best->gpu_name);
    search->measured_shape = xstrdup(best->key.shape);
    search->nvrtc = xstrdup(best->nvrtc);
}

/* Whose rows are taken: those of which it is known that they are of the asked model, those of which
 * it may be, any. */
enum whose { WHOSE_MODEL, WHOSE_PERHAPS, WHOSE_ANY };

struct model_search {
    struct search *search;
    enum whose whose;
};

static int on_exact(const struct best *best, void *context)
{
    struct model_search *model = context;
    const struct device_info *device = &model->search->question->device;
    bool is_of_model =
        strcmp(best->gpu_name, device->name) == 0 && nearest_same_sms(best->sms, device);
    if (record_key_equal(&best->key, &model->search->key) &&
        (model->whose == WHOSE_ANY ||
            (is_of_model && (best->sms != 0 || model->whose == WHOSE_PERHAPS))))
        take_exact(model->search, best);
    return model->search->origin != RESOLVE_NONE;
}

static enum whose first_whose(const struct search *search)
{
    return search->question->device.name[0] != '\0' ? WHOSE_MODEL : WHOSE_ANY;
}

/* By the stored rows. A row of the asked model that is not valid here is not passed over for
 * another model's. */
static int look_exact(struct search *search, struct tuning_db *db, struct tune_error *err)
{
    struct model_search model = {search, first_whose(search)};
    for (; model.whose < WHOSE_ANY && search->origin == RESOLVE_NONE && !search->has_invalid;
         model.whose++)
        if (tuning_db_walk_best_of(db, &search->key, on_exact, &model, err))
            return -1;
    if (search->origin != RESOLVE_NONE || search->has_invalid)
        return 0;
    struct best best;
    int status = tuning_db_best(db, &search->key, NULL, 0, &best, err);
    if (status != 0)
        return status < 0 ? -1 : 0;
    take_exact(search, &best);
    best_finish(&best);
    return 0;
}

static bool is_valid_here(const char *config, void *context)
{
    const struct model_search *model = context;
    return take_config(config, model->search);
}

/* By the samples that are valid here. */
static int look_among(struct search *search, struct tuning_db *db, struct tune_error *err)
{
    struct model_search model = {search, first_whose(search)};
    for (; model.whose <= WHOSE_ANY && search->origin == RESOLVE_NONE; model.whose++)
        if (tuning_db_walk_best_among(db, &search->key, is_valid_here, on_exact, &model, err))
            return -1;
    return 0;
}

static void take_neighbour(struct search *search, const struct neighbour *found)
{
    search->origin = found->same_arch ? RESOLVE_NEAREST : RESOLVE_TRANSFERRED;
    search->same_arch = found->same_arch;
    search->same_name = found->same_name;
    search->is_shipped = found->is_shipped;
    search->is_own = found->is_own;
    search->sms = found->sms;
    search->same_shape = strcmp(found->shape, search->shape) == 0;
    search->same_fingerprint = found->same_fingerprint;
    search->median_ns = found->median_ns;
    search->expected_loss = found->expected_loss;
    search->measured_on = xstrdup(found->gpu);
    search->measured_shape = xstrdup(found->shape);
    search->nvrtc = xstrdup(found->nvrtc);
}

static bool take_default(struct search *search)
{
    const struct manifest *manifest = search->manifest;
    for (size_t i = 0; i < manifest->default_count; i++)
        if (take_values(search, manifest->defaults[i])) {
            search->origin = RESOLVE_DEFAULT;
            return true;
        }
    return false;
}

static int look_around(struct search *search, struct tune_error *err)
{
    const struct question *asked = search->question;
    struct nearest_question question = {
        .plugin = asked->plugin,
        .dims = asked->dims,
        .dtype = asked->dtype,
        .mode = asked->mode,
        .device = &asked->device,
        .is_valid = take_config,
        .context = search,
    };
    struct neighbour found;
    int status = nearest_find(asked->nearest, &question, &found, err);
    if (status < 0)
        return -1;
    if (status > 0 && !take_default(search))
        return 0;
    if (status > 0)
        return nearest_default_loss(asked->nearest, &question, &search->expected_loss, err);
    /* Again, since others may have been tried after the one that was found. It was found to be
     * valid with the asked device's multiprocessors; with the row's it need not be. */
    plan_for(search, found.gpu, found.sms);
    bool is_taken = take_config(found.config, search);
    if (!is_taken) {
        plan_for(search, "", 0);
        is_taken = take_config(found.config, search);
    }
    if (is_taken)
        take_neighbour(search, &found);
    neighbour_finish(&found);
    return 0;
}

/* --- answering -------------------------------------------------------------------------------- */

static json_t *match_json(const struct search *search)
{
    const struct device_info *device = &search->question->device;
    json_t *list = json_array();
    if (search->same_arch)
        json_array_append_new(list, json_string("arch"));
    if (search->same_name)
        json_array_append_new(list, json_string("gpu"));
    if (search->sms != 0 && device->uuid[0] != '\0' && nearest_same_sms(search->sms, device))
        json_array_append_new(list, json_string("sms"));
    if (search->same_shape)
        json_array_append_new(list, json_string("shape"));
    if (search->same_fingerprint)
        json_array_append_new(list, json_string("fingerprint"));
    return list;
}

static json_t *answer_json(const struct search *search, uint64_t generation)
{
    const struct question *asked = search->question;
    json_t *json = json_pack(
        "{s:s, s:s, s:s, s:o, s:s, s:s, s:s?, s:s?, s:b, s:b, s:o, s:o, s:O, s:O, s:o, s:I, s:b, "
        "s:I, s:s?, s:o, s:n}",
        "kernel", search->manifest->name, "dtype", asked->dtype, "arch", asked->device.arch,
        "shape", manifest_shape_to_json(search->manifest, asked->dims), "mode", asked->mode,
        "origin", origin_words[search->origin], "measured_on", search->measured_on,
        "measured_shape", search->measured_shape, "same_gpu", is_same_gpu(search), "shipped",
        search->is_shipped, "match", match_json(search), "config",
        manifest_config_to_json(search->manifest, search->values), "launches", search->launches,
        "buffers", search->buffers, "median_ns",
        search->median_ns > 0 ? json_real(search->median_ns) : json_null(), "generation",
        (json_int_t)generation, "verified", search->origin != RESOLVE_DEFAULT && search->is_own,
        "sm", (json_int_t)asked->device.attributes[DEVICE_sm], "nvrtc", search->nvrtc,
        "expected_loss",
        search->expected_loss >= 0 ? json_real(search->expected_loss) : json_null(), "min_driver");
    manifest_name_choices(search->manifest, asked->dims, json);
    return json;
}

int resolve(struct tuning_db *db, const struct question *question, struct resolved *resolved,
    struct tune_error *err)
{
    struct search search;
    uint64_t generation = tuning_db_generation(db); /* of what is read below, or an older one */
    *resolved = (struct resolved){.origin = RESOLVE_NONE};
    search_init(&search, question);
    int status = look_exact(&search, db, err);
    if (status == 0 && search.origin == RESOLVE_NONE && search.has_invalid && !question->is_quick)
        status = look_among(&search, db, err);
    if (status == 0 && search.origin == RESOLVE_NONE && !question->only_exact)
        status = look_around(&search, err);
    if (status == 0 && search.origin != RESOLVE_NONE) {
        resolved->origin = search.origin;
        memcpy(resolved->values, search.values, sizeof resolved->values);
        resolved->json = answer_json(&search, generation);
    }
    resolved->is_unsure = search.has_invalid;
    search_finish(&search);
    return status;
}

void resolved_finish(struct resolved *resolved)
{
    json_decref(resolved->json);
    *resolved = (struct resolved){.origin = RESOLVE_NONE};
}
