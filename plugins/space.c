/* The space of valid configurations: a depth-first walk over the params that leaves rows of value
 * indices, one byte for each param, in lexicographic order. A row is found again by bisection. */
#include "space.h"

#include "client/proto.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- filters ---------------------------------------------------------------------------------- */

void space_filter_init(struct space_filter *filter, const struct manifest *manifest)
{
    memset(filter, 0, sizeof *filter);
    for (size_t i = 0; i < manifest->param_count; i++)
        filter->allowed[i] = UINT64_MAX >> (64 - manifest->params[i].value_count);
}

static size_t value_index(const struct manifest_param *param, int64_t value)
{
    for (size_t i = 0; i < param->value_count; i++)
        if (param->values[i] == value)
            return i;
    return SIZE_MAX;
}

static int allow_value(const struct manifest_param *param, const json_t *json, uint64_t *allowed,
    struct tune_error *err)
{
    int64_t value;
    if (manifest_param_value(param, json, &value, err))
        return -1;
    *allowed |= UINT64_C(1) << value_index(param, value);
    return 0;
}

int space_filter_from_json(struct space_filter *filter, const struct manifest *manifest,
    const json_t *json, struct tune_error *err)
{
    space_filter_init(filter, manifest);
    if (!json_is_object(json))
        return tune_fail(err, TUNE_EINVAL, "\"params\" must be an object of param: value or list");
    const char *key;
    json_t *given;
    json_object_foreach ((json_t *)json, key, given) {
        size_t i = manifest_find_param(manifest, key);
        if (i == SIZE_MAX)
            return tune_fail(err, TUNE_EINVAL, "%s has no param \"%.60s\"", manifest->name, key);
        filter->allowed[i] = 0;
        if (!json_is_array(given)) {
            if (allow_value(&manifest->params[i], given, &filter->allowed[i], err))
                return -1;
            continue;
        }
        for (size_t j = 0; j < json_array_size(given); j++)
            if (allow_value(
                    &manifest->params[i], json_array_get(given, j), &filter->allowed[i], err))
                return -1;
        if (filter->allowed[i] == 0)
            return tune_fail(err, TUNE_EINVAL, "param %s is given an empty list of values", key);
    }
    return 0;
}

/* --- what is checked at which level ----------------------------------------------------------- */

/* Level 0 is before any param is bound, level p + 1 right after param p. */
static size_t level_of(size_t last_param)
{
    return last_param == SIZE_MAX ? 0 : last_param + 1;
}

struct step {
    const struct expr *when; /* requirements only: NULL or 0 lets the configuration pass */
    const struct expr *expr;
    size_t slot;       /* where a derived value goes; SIZE_MAX for a constraint */
    size_t constraint; /* index for space_removed */
};

#define MAX_LEVELS (MANIFEST_MAX_PARAMS + 1)
#define MAX_STEPS (MANIFEST_MAX_DERIVED + 2 * MANIFEST_MAX_ITEMS)

struct program {
    size_t start[MAX_LEVELS + 1]; /* level l: steps[start[l]] up to steps[start[l + 1]] */
    struct step steps[MAX_STEPS];
};

static void program_init(struct program *program, const struct manifest *manifest)
{
    size_t used = 0;
    for (size_t level = 0; level <= manifest->param_count; level++) {
        program->start[level] = used;
        for (size_t i = 0; i < manifest->derived_count; i++)
            if (level_of(manifest->derived[i].last_param) == level)
                program->steps[used++] = (struct step){
                    .expr = manifest->derived[i].expr, .slot = manifest_derived_slot(manifest, i)};
        for (size_t i = 0; i < manifest->constraint_count; i++)
            if (level_of(manifest->constraints[i].last_param) == level)
                program->steps[used++] = (struct step){
                    .expr = manifest->constraints[i].expr, .slot = SIZE_MAX, .constraint = i};
        for (size_t i = 0; i < manifest->requirement_count; i++)
            if (level_of(manifest->requirements[i].last_param) == level)
                program->steps[used++] = (struct step){.when = manifest->requirements[i].when,
                    .expr = manifest->requirements[i].sm,
                    .slot = SIZE_MAX,
                    .constraint = manifest->constraint_count + i};
    }
    program->start[manifest->param_count + 1] = used;
}

enum verdict { PASSES, FAILS, CANNOT_SAY };

static enum verdict run_step(const struct step *step, int64_t *slots, struct tune_error *err)
{
    int64_t result = 1;
    if (step->when != NULL && expr_eval(step->when, slots, &result, err))
        return CANNOT_SAY;
    if (result == 0)
        return PASSES;
    if (expr_eval(step->expr, slots, &result, err))
        return CANNOT_SAY;
    if (step->slot != SIZE_MAX)
        slots[step->slot] = result;
    else if (result == 0)
        return FAILS;
    return PASSES;
}

/* --- building --------------------------------------------------------------------------------- */

struct space {
    const struct manifest *manifest;
    size_t width; /* bytes of a row: one for each param */
    uint8_t *rows;
    size_t count, room;
    size_t *removed;
    size_t errors;
    struct tune_error first_error;
    size_t default_index;
    bool has_outsider; /* rows[count] is the default, which the filter leaves out */
};

struct builder {
    struct space *space;
    struct program program;
    size_t allowed_count[MANIFEST_MAX_PARAMS];
    uint8_t allowed[MANIFEST_MAX_PARAMS][MANIFEST_MAX_VALUES];
    size_t leaves[MAX_LEVELS]; /* configurations below a node of this level, before constraints */
    size_t visited;
    uint8_t row[MANIFEST_MAX_PARAMS];
    int64_t slots[MANIFEST_MAX_SLOTS];
    struct tune_error *err;
};

static size_t add_up_to_max(size_t a, size_t b)
{
    return __builtin_add_overflow(a, b, &a) ? SIZE_MAX : a;
}

static size_t multiply_up_to_max(size_t a, size_t b)
{
    return __builtin_mul_overflow(a, b, &a) ? SIZE_MAX : a;
}

static bool passes_level(struct builder *builder, size_t level)
{
    struct space *space = builder->space;
    const struct program *program = &builder->program;
    for (size_t i = program->start[level]; i < program->start[level + 1]; i++) {
        const struct step *step = &program->steps[i];
        /* Composing a sentence costs far more than a step, and one is enough. */
        struct tune_error *why = space->errors == 0 ? &space->first_error : NULL;
        enum verdict verdict = run_step(step, builder->slots, why);
        if (verdict == PASSES)
            continue;
        size_t *counter = verdict == FAILS ? &space->removed[step->constraint] : &space->errors;
        *counter = add_up_to_max(*counter, builder->leaves[level]);
        return false;
    }
    return true;
}

static int append_row(struct builder *builder)
{
    struct space *space = builder->space;
    if (space->count == SPACE_CONFIG_LIMIT)
        return tune_fail(builder->err, TUNE_ELIMIT,
            "%s has more than %d valid configurations for this shape; restrict its params",
            space->manifest->name, SPACE_CONFIG_LIMIT);
    if (space->count == space->room) {
        size_t room = space->room ? space->room * 2 : 1024;
        uint8_t *rows = realloc(space->rows, room * space->width);
        if (rows == NULL)
            return tune_fail(
                builder->err, TUNE_ENOMEM, "no memory for the space of %s", space->manifest->name);
        space->rows = rows;
        space->room = room;
    }
    memcpy(space->rows + space->count++ * space->width, builder->row, space->width);
    return 0;
}

static int walk(struct builder *builder, size_t param)
{
    const struct manifest *manifest = builder->space->manifest;
    if (param == manifest->param_count)
        return append_row(builder);
    int64_t *slot = &builder->slots[manifest_param_slot(manifest, param)];
    for (size_t i = 0; i < builder->allowed_count[param]; i++) {
        if (++builder->visited > SPACE_VISIT_LIMIT)
            return tune_fail(builder->err, TUNE_ELIMIT,
                "the space of %s is too large: %d nodes walked; restrict its params or state "
                "constraints over earlier params",
                manifest->name, SPACE_VISIT_LIMIT);
        builder->row[param] = builder->allowed[param][i];
        *slot = manifest->params[param].values[builder->row[param]];
        if (passes_level(builder, param + 1) && walk(builder, param + 1))
            return -1;
    }
    return 0;
}

static void builder_init(struct builder *builder, const struct space_filter *filter)
{
    const struct manifest *manifest = builder->space->manifest;
    for (size_t i = 0; i < manifest->param_count; i++)
        for (size_t j = 0; j < manifest->params[i].value_count; j++)
            if (filter == NULL || (filter->allowed[i] >> j & 1))
                builder->allowed[i][builder->allowed_count[i]++] = (uint8_t)j;
    builder->leaves[manifest->param_count] = 1;
    for (size_t i = manifest->param_count; i-- > 0;)
        builder->leaves[i] = multiply_up_to_max(builder->leaves[i + 1], builder->allowed_count[i]);
    program_init(&builder->program, manifest);
}

static int fail_empty(const struct builder *builder, struct tune_error *err)
{
    const struct space *space = builder->space;
    const struct manifest *manifest = space->manifest;
    size_t worst = 0, total = builder->leaves[0];
    for (size_t i = 1; i < manifest->constraint_count + manifest->requirement_count; i++)
        if (space->removed[i] > space->removed[worst])
            worst = i;
    if (space->errors > space->removed[worst])
        return tune_fail(err, TUNE_EEMPTY,
            "no valid configuration of %s: %zu of %zu could not be evaluated: %.120s",
            manifest->name, space->errors, total, space->first_error.text);
    bool is_constraint = worst < manifest->constraint_count;
    const struct expr *expr = is_constraint
                                  ? manifest->constraints[worst].expr
                                  : manifest->requirements[worst - manifest->constraint_count].sm;
    return tune_fail(err, TUNE_EEMPTY,
        "no valid configuration of %s: %zu of %zu removed by \"%.70s\" (%.70s)", manifest->name,
        space->removed[worst], total, expr_text(expr),
        is_constraint ? manifest->constraints[worst].message : "required of the device");
}

/* The manifest's default: its first valid one. Where a filter leaves it out it becomes a row behind
 * the others, so that whoever restricts the search can still compare with it. */
static int place_default(struct builder *builder)
{
    struct space *space = builder->space;
    const struct manifest *manifest = space->manifest;
    for (size_t i = 0; i < manifest->default_count; i++) {
        const int64_t *values = manifest->defaults[i];
        if (space_check(manifest, values, builder->slots, NULL))
            continue;
        space->default_index = space_find(space, values);
        if (space->default_index != SIZE_MAX)
            return 0;
        for (size_t p = 0; p < space->width; p++)
            builder->row[p] = (uint8_t)value_index(&manifest->params[p], values[p]);
        if (append_row(builder))
            return -1;
        space->default_index = --space->count;
        space->has_outsider = true;
        return 0;
    }
    return 0;
}

static struct space *space_alloc(const struct manifest *manifest)
{
    struct space *space = calloc(1, sizeof *space);
    if (space == NULL)
        return NULL;
    space->manifest = manifest;
    space->default_index = SIZE_MAX;
    space->width = manifest->param_count;
    /* One more, so that a manifest without constraints has a 0 to compare with. */
    space->removed = calloc(
        manifest->constraint_count + manifest->requirement_count + 1, sizeof *space->removed);
    if (space->removed != NULL)
        return space;
    free(space);
    return NULL;
}

struct space *space_create(const struct manifest *manifest, const struct device_info *device,
    const int64_t *dims, const char *dtype, const struct space_filter *filter,
    struct tune_error *err)
{
    struct builder *builder = calloc(1, sizeof *builder);
    struct space *space = space_alloc(manifest);
    int failed = -1;
    if (builder == NULL || space == NULL) {
        tune_fail(err, TUNE_ENOMEM, "no memory for the space of %s", manifest->name);
        goto out;
    }
    builder->space = space;
    builder->err = err;
    builder_init(builder, filter);
    manifest_bind(manifest, device, dims, dtype, builder->slots);
    failed = passes_level(builder, 0) ? walk(builder, 0) : 0;
    if (!failed && space->count == 0)
        failed = fail_empty(builder, err);
    if (!failed)
        failed = place_default(builder);
out:
    free(builder);
    if (!failed)
        return space;
    space_destroy(space);
    return NULL;
}

void space_destroy(struct space *space)
{
    if (space == NULL)
        return;
    free(space->rows);
    free(space->removed);
    free(space);
}

/* --- asking ----------------------------------------------------------------------------------- */

size_t space_count(const struct space *space)
{
    return space->count;
}

const struct manifest *space_manifest(const struct space *space)
{
    return space->manifest;
}

void space_config(const struct space *space, size_t index, int64_t *values)
{
    const uint8_t *row = space->rows + index * space->width;
    for (size_t i = 0; i < space->width; i++)
        values[i] = space->manifest->params[i].values[row[i]];
}

static size_t find_row(const struct space *space, const uint8_t *row)
{
    size_t low = 0, high = space->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = memcmp(space->rows + middle * space->width, row, space->width);
        if (order == 0)
            return middle;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return SIZE_MAX;
}

size_t space_find(const struct space *space, const int64_t *values)
{
    uint8_t row[MANIFEST_MAX_PARAMS];
    for (size_t i = 0; i < space->width; i++) {
        size_t index = value_index(&space->manifest->params[i], values[i]);
        if (index == SIZE_MAX)
            return SIZE_MAX;
        row[i] = (uint8_t)index;
    }
    size_t found = find_row(space, row);
    const uint8_t *outsider = space->rows + space->count * space->width;
    if (found == SIZE_MAX && space->has_outsider && memcmp(outsider, row, space->width) == 0)
        return space->count;
    return found;
}

size_t space_default(const struct space *space)
{
    return space->default_index;
}

size_t space_neighbours(const struct space *space, size_t index, size_t *out, size_t room)
{
    uint8_t row[MANIFEST_MAX_PARAMS];
    size_t count = 0;
    memcpy(row, space->rows + index * space->width, space->width);
    for (int distance = 1; distance < MANIFEST_MAX_VALUES; distance++) {
        for (size_t i = 0; i < space->width; i++) {
            uint8_t own = row[i];
            for (int step = -distance; step <= distance; step += 2 * distance) {
                int other = own + step;
                if (other < 0 || other >= (int)space->manifest->params[i].value_count)
                    continue;
                row[i] = (uint8_t)other;
                size_t found = find_row(space, row);
                if (found != SIZE_MAX && count < room)
                    out[count++] = found;
            }
            row[i] = own;
        }
    }
    return count;
}

size_t space_removed(const struct space *space, size_t constraint)
{
    return space->removed[constraint];
}

size_t space_errors(const struct space *space, const char **first)
{
    *first = space->errors > 0 ? space->first_error.text : NULL;
    return space->errors;
}

/* --- one configuration ------------------------------------------------------------------------ */

static int check_failed(
    const struct manifest *manifest, const struct step *step, struct tune_error *err)
{
    if (step->constraint < manifest->constraint_count)
        return tune_fail(err, TUNE_EINVAL, "%.120s (\"%.80s\" does not hold)",
            manifest->constraints[step->constraint].message, expr_text(step->expr));
    return tune_fail(err, TUNE_EINVAL, "this configuration of %s needs a device with \"%.80s\"",
        manifest->name, expr_text(step->expr));
}

int space_check(
    const struct manifest *manifest, const int64_t *values, int64_t *slots, struct tune_error *err)
{
    struct program program;
    for (size_t i = 0; i < manifest->param_count; i++) {
        const struct manifest_param *param = &manifest->params[i];
        if (value_index(param, values[i]) == SIZE_MAX)
            return tune_fail(err, TUNE_EINVAL, "%lld is not one of the values of param %s",
                (long long)values[i], param->name);
        slots[manifest_param_slot(manifest, i)] = values[i];
    }
    program_init(&program, manifest);
    for (size_t i = 0; i < program.start[manifest->param_count + 1]; i++) {
        enum verdict verdict = run_step(&program.steps[i], slots, err);
        if (verdict == FAILS)
            return check_failed(manifest, &program.steps[i], err);
        if (verdict == CANNOT_SAY)
            return -1;
    }
    return 0;
}
