/* See levers.h. */
#include "levers.h"

#include "plugins/space.h"
#include "weigh.h"

#include <math.h>
#include <string.h>

#define WORSE 1.02 /* an estimate that is longer by more counts as slower */

/* --- the configuration as it is --------------------------------------------------------------- */

/* The limits of the architecture, and as many multiprocessors as the explanation's waves tell. The
 * emulated device has the rules of a data-centre GPU. */
static int take_device(struct levers *levers, const json_t *explanation)
{
    const char *arch = explain_text(explanation, "arch");
    if (device_generic(strcmp(arch, "cpu") == 0 ? "sm_80" : arch, &levers->device, NULL))
        return -1;
    struct weighed weighed;
    explain_weigh(explanation, &weighed);
    if (weighed.sms > 0)
        levers->device.attributes[DEVICE_sms] = (int64_t)weighed.sms;
    return 0;
}

/* A guess of the manifest, for the values that the slots hold; 0: none. */
static double guess_registers(const struct manifest *manifest, const int64_t *slots)
{
    int64_t guess = 0;
    if (manifest->registers == NULL || expr_eval(manifest->registers, slots, &guess, NULL))
        return 0;
    return (double)guess;
}

static int run_estimate(
    const struct levers *levers, const int64_t *values, struct estimate *estimate, int64_t *slots)
{
    struct estimator estimator = levers->estimator;
    const struct manifest *manifest = estimator.manifest;
    if (space_check(manifest, values, estimator.slots, NULL))
        return -1;
    double guess = guess_registers(manifest, estimator.slots);
    double registers = (double)levers->registers;
    /* Another configuration takes more registers or less as the manifest guesses. */
    if (levers->guessed_registers > 0 && guess > 0)
        registers *= guess / levers->guessed_registers;
    int64_t known = (int64_t)fmin(255, ceil(registers));
    if (estimator_run(&estimator, values, known, estimate, NULL))
        return -1;
    memcpy(slots, estimator.slots, sizeof estimator.slots);
    return 0;
}

int levers_init(struct levers *levers, const struct manifest *manifest, const json_t *explanation)
{
    *levers = (struct levers){0};
    int64_t dims[MANIFEST_MAX_DIMS], slots[MANIFEST_MAX_SLOTS];
    struct estimate estimate;
    const char *dtype = explain_text(explanation, "dtype");
    if (!manifest_has_dtype(manifest, dtype) || take_device(levers, explanation) ||
        manifest_shape_from_json(manifest, json_object_get(explanation, "shape"), dims, NULL) ||
        manifest_config_from_json(
            manifest, json_object_get(explanation, "config"), levers->values, NULL) ||
        estimator_init(&levers->estimator, manifest, &levers->device, dims, dtype, NULL))
        return -1;
    levers->registers = (int64_t)explain_number(explanation, "registers");
    levers->estimator.static_shared_bytes =
        (int64_t)explain_number(explanation, "static_shared_bytes");
    if (run_estimate(levers, levers->values, &estimate, slots))
        return -1;
    levers->guessed_registers = guess_registers(manifest, slots);
    levers->time_ns = estimate.time_ns;
    return 0;
}

/* --- another one ------------------------------------------------------------------------------ */

static const struct expr *expression_of(
    const struct manifest *manifest, enum lever_quantity quantity)
{
    switch (quantity) {
    case LEVER_REGISTERS:
        return manifest->registers;
    case LEVER_TRAFFIC:
        return manifest->traffic_global;
    case LEVER_SHARED_TRAFFIC:
        return manifest->traffic_shared;
    case LEVER_ROUND_TRIPS:
        return manifest->round_trips;
    case LEVER_WARPS:
    case LEVER_BLOCKS:
        break;
    }
    return NULL;
}

/* The quantity and the estimated time at these values; -1 where they are not valid. */
static int measure(const struct levers *levers, enum lever_quantity quantity, const int64_t *values,
    double *amount, double *time_ns)
{
    struct estimate estimate;
    int64_t slots[MANIFEST_MAX_SLOTS], result;
    if (run_estimate(levers, values, &estimate, slots))
        return -1;
    *time_ns = estimate.time_ns;
    if (quantity == LEVER_WARPS || quantity == LEVER_BLOCKS) {
        *amount =
            (double)(quantity == LEVER_WARPS ? estimate.occupancy.warps_per_sm : estimate.blocks);
        return 0;
    }
    const struct expr *expr = expression_of(levers->estimator.manifest, quantity);
    if (expr == NULL || expr_eval(expr, slots, &result, NULL))
        return -1;
    *amount = (double)result;
    return 0;
}

struct hunt {
    const struct levers *levers;
    enum lever_quantity quantity;
    int direction;
    double now;
    struct lever *found;
    size_t count, room;
};

/* Keeps the room best, in order; of one parameter only the better value. */
static void keep(struct hunt *hunt, struct lever lever)
{
    for (size_t i = 0; i < hunt->count; i++) {
        if (hunt->found[i].param != lever.param)
            continue;
        if (hunt->found[i].time_ns <= lever.time_ns)
            return;
        memmove(&hunt->found[i], &hunt->found[i + 1], (--hunt->count - i) * sizeof lever);
        break;
    }
    size_t at = 0;
    while (at < hunt->count && hunt->found[at].time_ns <= lever.time_ns)
        at++;
    if (at == hunt->room)
        return;
    if (hunt->count == hunt->room)
        hunt->count--;
    memmove(&hunt->found[at + 1], &hunt->found[at], (hunt->count - at) * sizeof lever);
    hunt->found[at] = lever;
    hunt->count++;
}

/* True when the value is valid; it is kept if it helps. */
static bool try_value(struct hunt *hunt, size_t param, size_t index)
{
    const struct levers *levers = hunt->levers;
    struct lever lever = {.param = &levers->estimator.manifest->params[param]};
    int64_t values[MANIFEST_MAX_PARAMS];
    double amount;
    memcpy(values, levers->values, sizeof values);
    values[param] = lever.to = lever.param->values[index];
    if (measure(levers, hunt->quantity, values, &amount, &lever.time_ns))
        return false;
    /* The estimate knows nothing of spills: it would keep every register in use. */
    bool is_slower = hunt->quantity != LEVER_REGISTERS && lever.time_ns > levers->time_ns * WORSE;
    if ((amount - hunt->now) * hunt->direction > 0 && !is_slower)
        keep(hunt, lever);
    return true;
}

static void try_param(struct hunt *hunt, size_t index)
{
    const struct manifest_param *param = &hunt->levers->estimator.manifest->params[index];
    size_t at = 0;
    while (at < param->value_count && param->values[at] != hunt->levers->values[index])
        at++;
    bool is_named = param->value_names[at] != NULL;
    for (size_t i = at; i-- > 0;)
        if (try_value(hunt, index, i) && !is_named)
            break;
    for (size_t i = at + 1; i < param->value_count; i++)
        if (try_value(hunt, index, i) && !is_named)
            break;
}

size_t levers_find(const struct levers *levers, enum lever_quantity quantity, int direction,
    struct lever *found, size_t room)
{
    struct hunt hunt = {
        .levers = levers,
        .quantity = quantity,
        .direction = direction,
        .found = found,
        .room = room,
    };
    double time_ns;
    if (measure(levers, quantity, levers->values, &hunt.now, &time_ns))
        return 0;
    for (size_t i = 0; i < levers->estimator.manifest->param_count; i++)
        try_param(&hunt, i);
    return hunt.count;
}

bool levers_lower(
    const struct levers *levers, const struct manifest_param *param, struct lever *lever)
{
    const struct manifest *manifest = levers->estimator.manifest;
    size_t index = (size_t)(param - manifest->params);
    int64_t values[MANIFEST_MAX_PARAMS];
    bool is_found = false;
    memcpy(values, levers->values, sizeof values);
    for (size_t i = 0; i < param->value_count; i++) {
        struct estimate estimate;
        int64_t slots[MANIFEST_MAX_SLOTS];
        int64_t value = values[index] = param->values[i];
        bool is_nearer = value < levers->values[index] && (!is_found || value > lever->to);
        if (!is_nearer || run_estimate(levers, values, &estimate, slots))
            continue;
        *lever = (struct lever){param, value, estimate.time_ns};
        is_found = true;
    }
    return is_found;
}
