/* See explain.h: the parts put together. */
#include "parts.h"

#include "client/proto.h"
#include "plugins/plan.h"
#include "sass.h"
#include "weigh.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the launch that does the work ------------------------------------------------------------ */

static const json_t *find_launch(const json_t *launches)
{
    size_t i;
    json_t *launch;
    json_array_foreach ((json_t *)launches, i, launch)
        if (json_object_get(launch, "entry") != NULL && json_object_get(launch, "once") == NULL)
            return launch;
    return NULL;
}

static int64_t product(const json_t *sizes)
{
    int64_t result = 1;
    for (size_t i = 0; i < json_array_size(sizes); i++)
        result *= json_integer_value(json_array_get(sizes, i));
    return result;
}

/* What the compiled code calls the launch's entry. */
static const char *lowered_name(const struct explained *explained)
{
    const char *entry = explain_text(explained->launch, "entry");
    const json_t *name = json_object_get(explained->facts->names, entry);
    return json_is_string(name) ? json_string_value(name) : entry;
}

static int64_t resource(const struct explained *explained, const char *key)
{
    return (int64_t)explain_number(explained->resources, key);
}

/* --- occupancy and estimate ------------------------------------------------------------------- */

/* The manifest says nothing of its work: the launch alone tells how the device is filled. */
static int fill_by_launch(struct explained *explained, struct tune_error *err)
{
    const struct device_info *device = explained->facts->device;
    struct estimate *estimate = &explained->estimate;
    *estimate = (struct estimate){
        .blocks = product(json_object_get(explained->launch, "grid")),
        .threads = product(json_object_get(explained->launch, "block")),
        .registers = resource(explained, "registers"),
        .shared_bytes = (int64_t)explain_number(explained->launch, "shared_bytes") +
                        resource(explained, "static_shared_bytes"),
    };
    struct occupancy_use use = {estimate->threads, estimate->registers, estimate->shared_bytes};
    if (occupancy(device, &use, &estimate->occupancy, err))
        return -1;
    if (estimate->occupancy.blocks_per_sm == 0)
        return tune_fail(err, TUNE_ELIMIT, "a block does not fit on a multiprocessor: %s",
            occupancy_resource_word(estimate->occupancy.limited_by));
    int64_t sms = device->attributes[DEVICE_sms];
    estimate_waves(sms > 0 ? sms : 1, estimate);
    return 0;
}

static int take_estimate(struct explained *explained, struct tune_error *err)
{
    const struct explain_facts *facts = explained->facts;
    struct tune_error cause = {0};
    if (estimator_init(&explained->estimator, facts->manifest, facts->device, facts->dims,
            facts->dtype, &cause))
        return cause.code == TUNE_ENOTFOUND ? fill_by_launch(explained, err)
                                            : tune_fail(err, cause.code, "%s", cause.text);
    explained->estimator.static_shared_bytes = resource(explained, "static_shared_bytes");
    explained->has_estimate = true;
    return estimator_run(&explained->estimator, facts->values, resource(explained, "registers"),
        &explained->estimate, err);
}

/* Once more, with what the trace tells of the traffic: the manifest may state none. */
static void refine_estimate(struct explained *explained)
{
    const struct explain_facts *facts = explained->facts;
    const struct explain_traffic *traffic = &explained->traffic;
    struct estimate refined;
    explained->estimator.traced_global_bytes = traffic->sector_bytes;
    explained->estimator.traced_shared_bytes = traffic->pass_bytes;
    if (explained->has_estimate && traffic->is_known &&
        estimator_run(&explained->estimator, facts->values, resource(explained, "registers"),
            &refined, NULL) == 0)
        explained->estimate = refined;
}

static json_t *estimate_json(const struct explained *explained)
{
    const struct estimate *estimate = &explained->estimate;
    if (!explained->has_estimate)
        return json_null();
    json_t *ceilings = json_object();
    for (int i = 0; i < ESTIMATE_CEILING_COUNT; i++)
        json_object_set_new(ceilings, estimate_ceiling_word((enum estimate_ceiling)i),
            json_real(estimate->ceiling_ns[i]));
    return json_pack("{s:f, s:s, s:o, s:f, s:f}", "time_ns", estimate->time_ns, "limited_by",
        estimate_ceiling_word(estimate->limited_by), "ceilings_ns", ceilings, "wait_ns",
        estimate->wait_ns, "launch_ns", estimate->launch_ns);
}

static void set_filling(const struct explained *explained, json_t *form)
{
    const struct estimate *estimate = &explained->estimate;
    bool has_device = !explain_is_architecture(explained->facts->device);
    struct occupancy_use use = {estimate->threads, estimate->registers, estimate->shared_bytes};
    json_object_set_new(form, "occupancy", explain_occupancy(&estimate->occupancy, &use));
    json_object_set_new(form, "blocks", json_integer(estimate->blocks));
    json_object_set_new(form, "waves", has_device ? json_real(estimate->waves) : json_null());
    json_object_set_new(
        form, "tail_fill", has_device ? json_real(estimate->tail_fill) : json_null());
}

/* --- code ------------------------------------------------------------------------------------- */

static json_t *integer_or_null(const json_t *value)
{
    return json_is_integer(value) ? json_incref((json_t *)value) : json_null();
}

static const char *registers_from(const struct explained *explained)
{
    if (explained->estimate.registers <= 0)
        return NULL;
    if (resource(explained, "registers") == 0)
        return "manifest";
    return explained->facts->is_emulated ? "emulator" : "compiler";
}

static void set_code(const struct explained *explained, json_t *form)
{
    const char *from = registers_from(explained);
    const json_t *resources = explained->resources;
    json_object_set_new(
        form, "registers", from ? json_integer(explained->estimate.registers) : json_null());
    json_object_set_new(form, "registers_from", from ? json_string(from) : json_null());
    json_object_set_new(
        form, "spill_bytes", integer_or_null(json_object_get(resources, "spill_bytes")));
    json_object_set_new(form, "static_shared_bytes",
        integer_or_null(json_object_get(resources, "static_shared_bytes")));
}

static json_t *mix_json(const struct sass_kernel *kernel)
{
    json_t *by_class = json_object();
    for (int i = 0; i < SASS_CLASS_COUNT; i++)
        json_object_set_new(
            by_class, sass_class_word((enum sass_class)i), json_integer(kernel->by_class[i]));
    return json_pack("{s:I, s:o}", "total", (json_int_t)kernel->instructions, "by_class", by_class);
}

/* Null without code, or when it cannot be read, which the notes say. */
static json_t *instructions_json(const struct explained *explained, json_t *notes)
{
    const struct explain_facts *facts = explained->facts;
    struct tune_error err = {0};
    struct sass sass = {0};
    json_t *mix = json_null();
    if (facts->cubin == NULL)
        return mix;
    if (sass_read(facts->cubin, facts->cubin_bytes, &sass, &err) == 0) {
        const struct sass_kernel *kernel = sass_kernel(&sass, lowered_name(explained));
        if (kernel != NULL)
            mix = mix_json(kernel);
        else
            tune_fail(&err, TUNE_ENOTFOUND, "the code has no %.120s", lowered_name(explained));
    }
    sass_finish(&sass);
    if (err.code != TUNE_OK)
        json_array_append_new(
            notes, json_sprintf("the mix of instructions is not known: %s", err.text));
    return mix;
}

/* --- the whole -------------------------------------------------------------------------------- */

static json_t *intensity_json(struct explained *explained)
{
    double bytes = explained->traffic.load_bytes;
    if (!explained->traffic.is_known &&
        (!explained->has_estimate ||
            estimator_traffic(&explained->estimator, explained->facts->values, &bytes, NULL)))
        return json_null();
    return explained->flops > 0 && bytes > 0 ? json_real(explained->flops / bytes) : json_null();
}

static void set_measured(const struct explain_facts *facts, json_t *form)
{
    bool is_measured = facts->median_ns > 0;
    json_object_set_new(form, "median_ns", is_measured ? json_real(facts->median_ns) : json_null());
    json_object_set_new(form, "interval_ns",
        is_measured ? json_pack("[f,f]", facts->lo_ns, facts->hi_ns) : json_null());
    json_object_set_new(form, "measured_on",
        is_measured && facts->measured_on ? json_string(facts->measured_on) : json_null());
}

/* What was asked for. */
static json_t *form_new(const struct explain_facts *facts)
{
    const struct device_info *device = facts->device;
    json_t *form = json_pack("{s:s, s:s, s:s, s:o, s:s, s:o, s:s, s:s?}", "kernel",
        facts->manifest->name, "dtype", facts->dtype, "arch", device->arch, "shape",
        manifest_shape_to_json(facts->manifest, facts->dims), "mode", facts->mode, "config",
        manifest_config_to_json(facts->manifest, facts->values), "origin", facts->origin, "device",
        explain_is_architecture(device) ? NULL : device->name);
    manifest_name_choices(facts->manifest, facts->dims, form);
    return form;
}

static json_t *notes_new(const struct explain_facts *facts)
{
    json_t *notes = json_array();
    for (const char *const *note = facts->notes; note != NULL && *note != NULL; note++)
        json_array_append_new(notes, proto_text(*note));
    return notes;
}

static json_t *assemble(struct explained *explained, json_t *buffers)
{
    const struct explain_facts *facts = explained->facts;
    json_t *form = form_new(facts), *notes = notes_new(facts);
    set_filling(explained, form);
    json_object_set(form, "launches", explained->launches);
    json_object_set(form, "buffers", buffers);
    explain_traced(explained, form);
    refine_estimate(explained);
    json_object_set_new(form, "intensity", intensity_json(explained));
    json_object_set_new(form, "roofline", explain_roofline(explained));
    set_code(explained, form);
    json_object_set_new(form, "instructions", instructions_json(explained, notes));
    json_object_set_new(form, "estimate", estimate_json(explained));
    set_measured(facts, form);
    json_object_set_new(form, "notes", notes);
    char *words = explain_words(form, facts->manifest);
    json_object_set_new(form, "words", json_string(words ? words : ""));
    free(words);
    return form;
}

json_t *explain(const struct explain_facts *facts, struct tune_error *err)
{
    struct explained explained = {.facts = facts};
    json_t *buffers = NULL, *form = NULL;
    const struct manifest *manifest = facts->manifest;
    explained.launches =
        plan_launches(manifest, facts->device, facts->dims, facts->dtype, facts->values, err);
    if (explained.launches == NULL)
        return NULL;
    explained.launch = find_launch(explained.launches);
    explained.resources = json_object_get(facts->resources, lowered_name(&explained));
    buffers = plan_buffers(manifest, facts->device, facts->dims, facts->dtype, facts->values, err);
    if (buffers != NULL && take_estimate(&explained, err) == 0 &&
        plan_work(manifest, facts->device, facts->dims, facts->dtype, &explained.flops,
            &explained.bytes, err) == 0)
        form = assemble(&explained, buffers);
    json_decref(buffers);
    json_decref(explained.launches);
    return form;
}
