/* Occupancy in the form of explain.h, for an explanation and for bare numbers. */
#include "parts.h"

#include <inttypes.h>
#include <stdio.h>
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
bool explain_is_architecture(const struct device_info *device)
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

/* --- words for bare numbers ------------------------------------------------------------------- */

static int64_t blocks_with(const struct device_info *device, const struct occupancy_use *use)
{
    struct occupancy result;
    return occupancy(device, use, &result, NULL) ? 0 : result.blocks_per_sm;
}

/* The most of the limiting resource that lets one more block in, all else being equal; -1: none. */
static int64_t amount_for_more(
    const struct device_info *device, const struct occupancy_use *use, const struct occupancy *now)
{
    bool is_shared = now->limited_by == OCCUPANCY_SHARED;
    struct occupancy_use less = *use;
    int64_t *amount = is_shared ? &less.shared_bytes : &less.registers;
    /* 0 registers mean an unknown number. */
    int64_t enough = is_shared ? 0 : 1, too_much = *amount;
    *amount = enough;
    if (too_much <= enough || blocks_with(device, &less) <= now->blocks_per_sm)
        return -1;
    while (too_much - enough > 1) {
        int64_t middle = *amount = enough + (too_much - enough) / 2;
        if (blocks_with(device, &less) > now->blocks_per_sm)
            enough = middle;
        else
            too_much = middle;
    }
    return enough;
}

static void say_what_to_move(const struct device_info *device, const struct occupancy_use *use,
    const struct occupancy *now, FILE *text)
{
    if (now->limited_by == OCCUPANCY_THREADS) {
        if (now->fraction < 1)
            fputs(" Blocks of another size leave fewer warps unused.", text);
        return;
    }
    if (now->limited_by == OCCUPANCY_BLOCKS) {
        fputs(" Larger blocks would bring more warps.", text);
        return;
    }
    int64_t amount = amount_for_more(device, use, now);
    bool is_shared = now->limited_by == OCCUPANCY_SHARED;
    if (amount >= 0)
        fprintf(text, " With at most %" PRId64 " %s %s fits.", amount,
            is_shared ? "bytes per block" : "registers per thread",
            now->blocks_per_sm == 0 ? "it"
            : is_shared             ? "another one"
                                    : "another block");
    else
        fprintf(text, " Less of it alone lets no%s block in.", now->blocks_per_sm ? " other" : "");
}

/* New string, or NULL. */
static char *words_for_numbers(
    const struct device_info *device, const struct occupancy_use *use, const struct occupancy *now)
{
    static const char *const limits[] = {
        [OCCUPANCY_THREADS] = "the threads that a multiprocessor holds",
        [OCCUPANCY_BLOCKS] = "the number of blocks that a multiprocessor holds",
        [OCCUPANCY_REGISTERS] = "registers",
        [OCCUPANCY_SHARED] = "shared memory",
    };
    char *words = NULL;
    size_t length;
    FILE *text = open_memstream(&words, &length);
    if (text == NULL)
        return NULL;
    if (now->blocks_per_sm == 0)
        fprintf(text,
            "Such a block does not fit on a multiprocessor of %s: it takes too much of %s.",
            device->arch, limits[now->limited_by]);
    else
        fprintf(text,
            "A multiprocessor of %s holds %" PRId64 " such block%s, which is %" PRId64
            " of %" PRId64 " warps (%.1f %%); the limit is %s.",
            device->arch, now->blocks_per_sm, now->blocks_per_sm == 1 ? "" : "s", now->warps_per_sm,
            now->warps_max, now->fraction * 100, limits[now->limited_by]);
    say_what_to_move(device, use, now, text);
    if (use->registers == 0)
        fputs(" Registers were not given and are not counted.", text);
    fclose(text);
    return words;
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
        form, "device", explain_is_architecture(device) ? json_null() : json_string(device->name));
    json_object_set_new(form, "occupancy", explain_occupancy(&result, use));
    json_object_set_new(
        form, "registers", has_registers ? json_integer(use->registers) : json_null());
    json_object_set_new(form, "registers_from", has_registers ? json_string("given") : json_null());
    char *words = words_for_numbers(device, use, &result);
    json_object_set_new(form, "words", json_string(words ? words : ""));
    free(words);
    return form;
}
