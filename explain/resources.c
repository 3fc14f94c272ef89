/* Occupancy in the form of explain.h, for an explanation and for bare numbers. */
#include "explain.h"

#include <stdlib.h>
#include <string.h>

static json_t *blocks_by(const struct occupancy *occupancy)
{
    json_t *by = json_object();
    for (int i = 0; i < OCCUPANCY_RESOURCE_COUNT; i++) {
        int64_t blocks = occupancy->blocks_by[i];
        json_object_set_new(by, occupancy_resource_word((enum occupancy_resource)i),
            blocks == OCCUPANCY_UNLIMITED ? json_null() : json_integer(blocks));
    }
    return by;
}

json_t *explain_occupancy(const struct occupancy *occupancy, const struct occupancy_use *use)
{
    return json_pack("{s:I, s:I, s:I, s:f, s:s, s:o, s:I, s:I, s:I}", "blocks_per_sm",
        (json_int_t)occupancy->blocks_per_sm, "warps_per_sm", (json_int_t)occupancy->warps_per_sm,
        "warps_max", (json_int_t)occupancy->warps_max, "fraction", occupancy->fraction,
        "limited_by", occupancy_resource_word(occupancy->limited_by), "blocks_by",
        blocks_by(occupancy), "threads", (json_int_t)use->threads, "registers",
        (json_int_t)use->registers, "shared_bytes", (json_int_t)use->shared_bytes);
}

/* device_generic names no device: its uuid says so. */
static bool is_of_architecture(const struct device_info *device)
{
    return device->uuid[0] == '\0' || strncmp(device->uuid, "none-", 5) == 0;
}

/* Every field that bare numbers leave open. */
static json_t *open_form(void)
{
    return json_pack("{s:n, s:n, s:n, s:n, s:n, s:n, s:[], s:[], s:n, s:n, s:n, s:[], s:[], s:n,"
                     " s:n, s:n, s:n, s:n, s:n, s:n, s:n, s:n, s:n, s:[]}",
        "kernel", "dtype", "shape", "mode", "config", "origin", "launches", "buffers", "blocks",
        "waves", "tail_fill", "accesses", "branches", "traced", "intensity", "roofline",
        "spill_bytes", "static_shared_bytes", "instructions", "estimate", "median_ns",
        "interval_ns", "measured_on", "notes");
}

json_t *explain_resources(
    const struct device_info *device, const struct occupancy_use *use, struct tune_error *err)
{
    struct occupancy result;
    if (occupancy(device, use, &result, err))
        return NULL;
    json_t *form = open_form();
    bool has_registers = use->registers > 0;
    json_object_set_new(form, "arch", json_string(device->arch));
    json_object_set_new(
        form, "device", is_of_architecture(device) ? json_null() : json_string(device->name));
    json_object_set_new(form, "occupancy", explain_occupancy(&result, use));
    json_object_set_new(
        form, "registers", has_registers ? json_integer(use->registers) : json_null());
    json_object_set_new(form, "registers_from", has_registers ? json_string("given") : json_null());
    char *words = explain_words(form, NULL);
    json_object_set_new(form, "words", json_string(words ? words : ""));
    free(words);
    return form;
}
