/* See publish_view.h. */
#include "daemon/publish_view.h"

#include "client/answer.h"
#include "daemon/resolve.h"
#include "daemon/xmalloc.h"

#include <stdlib.h>
#include <string.h>

/* --- the view --------------------------------------------------------------------------------- */

static uint64_t hash_of(const struct view *view)
{
    json_t *json = json_array();
    for (size_t i = 0; i < view->plugin_count; i++)
        json_array_append_new(json,
            json_pack("[s, s]", view->plugins[i]->manifest->name, view->plugins[i]->fingerprint));
    for (size_t i = 0; i < view->device_count; i++)
        json_array_append_new(json, device_to_json(&view->devices[i]));
    char *text = json_dumps(json, JSON_COMPACT);
    struct record_hash hash = record_text_hash(text);
    uint64_t word;
    memcpy(&word, hash.bytes, sizeof word);
    free(text);
    json_decref(json);
    return word;
}

struct view *view_create(
    const struct registry *registry, const struct device_info *devices, size_t device_count)
{
    struct view *view = xcalloc(1, sizeof *view);
    view->plugin_count = registry_count(registry);
    view->plugins = xcalloc(view->plugin_count, sizeof(struct plugin *));
    for (size_t i = 0; i < view->plugin_count; i++)
        view->plugins[i] = plugin_ref(registry_at(registry, i));
    view->device_count = device_count;
    view->devices = xcalloc(device_count, sizeof *devices);
    for (size_t i = 0; i < device_count; i++)
        view->devices[i] = devices[i];
    view->hash = hash_of(view);
    return view;
}

void view_destroy(struct view *view)
{
    if (view == NULL)
        return;
    for (size_t i = 0; i < view->plugin_count; i++)
        plugin_unref(view->plugins[i]);
    free(view->plugins);
    free(view->devices);
    free(view);
}

/* --- one key ---------------------------------------------------------------------------------- */

struct entries {
    const struct view *view;
    struct tuning_db *db;
    struct question question;
    bool with_asks;
    struct snapshot_writer *writer;
    struct tune_error *err;
};

static const struct plugin *find_plugin_of(const struct view *view, const struct record_key *key)
{
    for (size_t i = 0; i < view->plugin_count; i++)
        if (strcmp(view->plugins[i]->manifest->name, key->kernel) == 0)
            return strcmp(view->plugins[i]->fingerprint, key->fingerprint) == 0 ? view->plugins[i]
                                                                                : NULL;
    return NULL;
}

/* The dims as asked, or without the choices that are the first of their values: who leaves them out
 * asks the same. */
static size_t take_dims(
    const struct question *question, bool is_short, struct tune_dim dims[MANIFEST_MAX_DIMS])
{
    const struct manifest *manifest = question->plugin->manifest;
    size_t count = 0;
    for (size_t i = 0; i < manifest->dim_count; i++) {
        const struct manifest_dim *dim = &manifest->dims[i];
        bool is_usual = dim->value_count > 0 && question->dims[i] == dim->values[0];
        if (!is_short || !is_usual)
            dims[count++] = (struct tune_dim){dim->name, question->dims[i]};
    }
    return count;
}

/* One question, its target being a GPU's name, an arch, or neither. */
static int add_form(struct entries *entries, bool is_short, const char *dtype, const char *gpu,
    const char *arch, const struct tune_answer *answer)
{
    struct tune_dim dims[MANIFEST_MAX_DIMS];
    char key[SNAPSHOT_KEY_BYTES];
    size_t count = take_dims(&entries->question, is_short, dims);
    if (is_short && count == entries->question.plugin->manifest->dim_count)
        return 0;
    struct tune_query query = {.kernel = entries->question.plugin->manifest->name,
        .dims = dims,
        .dim_count = count,
        .dtype = dtype,
        .mode = entries->question.mode,
        .gpu = gpu,
        .arch = arch};
    size_t length = snapshot_key(&query, key);
    if (length == 0 || (answer == NULL && !entries->with_asks))
        return 0;
    return snapshot_writer_add(entries->writer, key, length, answer, entries->err);
}

static int add_question(struct entries *entries, const char *dtype, const char *gpu,
    const char *arch, const struct tune_answer *answer)
{
    return add_form(entries, false, dtype, gpu, arch, answer) ||
                   add_form(entries, true, dtype, gpu, arch, answer)
               ? -1
               : 0;
}

/* With the dtype spelled, and without where it is the usual one. */
static int add_target(
    struct entries *entries, const char *gpu, const char *arch, const struct tune_answer *answer)
{
    const char *dtype = entries->question.dtype;
    if (add_question(entries, dtype, gpu, arch, answer))
        return -1;
    bool is_usual = strcmp(dtype, entries->question.plugin->manifest->dtypes[0]) == 0;
    return is_usual ? add_question(entries, NULL, gpu, arch, answer) : 0;
}

/* The exact answer on the question's device; false where there is none, or none that stands until
 * the generation is another. */
static bool find_answer(struct entries *entries, struct tune_answer *answer)
{
    struct resolved resolved;
    if (resolve(entries->db, &entries->question, &resolved, NULL))
        return false;
    bool is_found = resolved.origin == RESOLVE_EXACT && !resolved.is_unsure &&
                    answer_from_json(resolved.json, answer, NULL) == 0;
    resolved_finish(&resolved);
    return is_found;
}

/* Whether no device before it has the same name, or arch: `get` takes the first. */
static bool is_first_named(const struct view *view, size_t device)
{
    for (size_t i = 0; i < device; i++)
        if (strcmp(view->devices[i].name, view->devices[device].name) == 0)
            return false;
    return true;
}

static bool is_first_of_arch(const struct view *view, size_t device)
{
    for (size_t i = 0; i < device; i++)
        if (strcmp(view->devices[i].arch, view->devices[device].arch) == 0)
            return false;
    return true;
}

/* The targets that mean this attached device: they share an answer. */
static int add_device(struct entries *entries, size_t index)
{
    const struct view *view = entries->view;
    const struct device_info *device = &view->devices[index];
    bool is_named = is_first_named(view, index), is_of_arch = is_first_of_arch(view, index);
    if (!is_named && !is_of_arch)
        return 0;
    struct tune_answer storage, *answer = NULL;
    entries->question.device = *device;
    if (find_answer(entries, &storage))
        answer = &storage;
    if ((is_named && add_target(entries, device->name, NULL, answer)) ||
        (is_of_arch && add_target(entries, NULL, device->arch, answer)) ||
        (index == 0 && add_target(entries, NULL, NULL, answer)))
        return -1;
    return 0;
}

/* The arch is not attached here: answered as for any GPU of it. */
static int add_generic(struct entries *entries, const char *arch)
{
    struct tune_answer answer;
    if (device_generic(arch, &entries->question.device, NULL))
        return 0;
    entries->question.device.name[0] = entries->question.device.uuid[0] = '\0';
    return add_target(entries, NULL, arch, find_answer(entries, &answer) ? &answer : NULL);
}

int view_add_answers(const struct view *view, struct tuning_db *db, const struct record_key *key,
    bool with_asks, struct snapshot_writer *writer, struct tune_error *err)
{
    struct entries entries = {
        .view = view, .db = db, .with_asks = with_asks, .writer = writer, .err = err};
    struct question *question = &entries.question;
    question->plugin = find_plugin_of(view, key);
    question->dtype = key->dtype;
    question->mode = key->mode;
    question->only_exact = question->is_quick = true;
    if (question->plugin == NULL || !manifest_has_dtype(question->plugin->manifest, key->dtype) ||
        manifest_shape_from_text(question->plugin->manifest, key->shape, question->dims))
        return 0;
    bool is_attached = false;
    for (size_t i = 0; i < view->device_count; i++) {
        if (strcmp(view->devices[i].arch, key->arch) != 0)
            continue;
        is_attached = true;
        if (add_device(&entries, i))
            return -1;
    }
    return is_attached ? 0 : add_generic(&entries, key->arch);
}
