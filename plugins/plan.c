/* See plan.h. Everything is evaluated into a `struct plan` of slots first; a launch, buffer or
 * check then becomes JSON in one function each. */
#include "plan.h"

#include "sparse_shape.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPEAT_LIMIT 1000000
#define CLUSTER_LIMIT 8 /* blocks per cluster that every device with clusters takes */

struct plan {
    const struct manifest *manifest;
    const struct device_info *device;
    const int64_t *dims;
    const char *dtype;
    const int64_t *values; /* NULL for the reference and for inputs */
    int64_t slots[MANIFEST_MAX_SLOTS];
    struct tune_error *err;
};

static int plan_init(struct plan *plan, const struct manifest *manifest,
    const struct device_info *device, const int64_t *dims, const char *dtype, const int64_t *values,
    struct tune_error *err)
{
    *plan = (struct plan){manifest, device, dims, dtype, values, {0}, err};
    manifest_bind(manifest, device, dims, dtype, plan->slots);
    if (values != NULL)
        memcpy(plan->slots + manifest_param_slot(manifest, 0), values,
            manifest->param_count * sizeof *values);
    for (size_t i = 0; i < manifest->derived_count; i++) {
        const struct manifest_derived *derived = &manifest->derived[i];
        if (values == NULL && derived->last_param != SIZE_MAX)
            continue;
        if (expr_eval(
                derived->expr, plan->slots, &plan->slots[manifest_derived_slot(manifest, i)], err))
            return -1;
    }
    return 0;
}

/* `what` says whose value it is, for errors; an absent expression is `absent`. */
static int evaluate(
    struct plan *plan, const struct expr *expr, int64_t absent, const char *what, int64_t *result)
{
    struct tune_error cause = {0};
    *result = absent;
    if (expr == NULL || expr_eval(expr, plan->slots, result, &cause) == 0)
        return 0;
    return tune_fail(plan->err, cause.code, "%s: %s", what, cause.text);
}

static json_t *no_memory(struct tune_error *err)
{
    tune_fail(err, TUNE_ENOMEM, "no memory for a launch plan");
    return NULL;
}

/* Appends what `item` made; -1 when it is NULL or there is no memory. */
static int append(struct plan *plan, json_t *array, json_t *item)
{
    if (item == NULL)
        return -1; /* its maker has said why, or it had no memory */
    if (json_array_append_new(array, item) == 0)
        return 0;
    no_memory(plan->err);
    return -1;
}

/* A json_pack that failed had no memory: everything packed is valid UTF-8 and finite. */
static json_t *packed(struct plan *plan, json_t *json)
{
    return json ? json : no_memory(plan->err);
}

/* --- macros ----------------------------------------------------------------------------------- */

/* "TUNE_DTYPE_F32" */
static void dtype_macro(const char *dtype, char out[32])
{
    size_t used = (size_t)snprintf(out, 32, "TUNE_DTYPE_%.16s", dtype);
    for (size_t i = 0; i < used; i++)
        if (out[i] >= 'a' && out[i] <= 'z')
            out[i] = (char)(out[i] - 'a' + 'A');
}

/* What a param's macro says: in a launch's description its integer, to the compiler the text that
 * stands for it where there is one. */
static json_t *macro_new(const struct manifest_param *param, int64_t value, bool is_compiled)
{
    const char *define = is_compiled ? manifest_param_define(param, value) : NULL;
    return define ? json_string(define) : json_integer(value);
}

/* Macros in canonical order (jansson keeps the order of insertion). */
static json_t *defines_new(const struct manifest *manifest, const int64_t *dims, const char *dtype,
    const int64_t *values, bool is_compiled)
{
    char macro[32];
    int failed = 0;
    json_t *json = values ? json_object() : json_deep_copy(manifest->reference_defines);
    for (size_t i = 0; values != NULL && i < manifest->param_count; i++)
        failed |= json_object_set_new(json, manifest->params[i].name,
            macro_new(&manifest->params[i], values[i], is_compiled));
    for (size_t i = 0; i < manifest->compile_dim_count; i++) {
        size_t dim = manifest->compile_dims[i];
        failed |= json_object_set_new(json, manifest->dims[dim].name, json_integer(dims[dim]));
    }
    dtype_macro(dtype, macro);
    failed |= json_object_set_new(json, "TUNE_T", json_string(dtype_c_type(dtype)));
    failed |= json_object_set_new(json, macro, json_integer(1));
    if (!failed)
        return json;
    json_decref(json);
    return NULL;
}

static json_t *option_new(const char *key, const json_t *value)
{
    char text[2 * MANIFEST_MAX_NAME + 8];
    if (json_is_string(value))
        snprintf(text, sizeof text, "-D%s=%s", key, json_string_value(value));
    else
        snprintf(text, sizeof text, "-D%s=%" PRId64, key, (int64_t)json_integer_value(value));
    return json_string(text);
}

json_t *plan_defines(const struct manifest *manifest, const int64_t *dims, const char *dtype,
    const int64_t *values, struct tune_error *err)
{
    json_t *defines = defines_new(manifest, dims, dtype, values, true);
    json_t *options = json_array();
    const char *key;
    json_t *value;
    int failed = defines == NULL || options == NULL;
    json_object_foreach (defines, key, value) {
        failed |= json_array_append_new(options, option_new(key, value));
    }
    json_decref(defines);
    if (!failed)
        return options;
    json_decref(options);
    return no_memory(err);
}

/* --- launches --------------------------------------------------------------------------------- */

/* One dimension of a grid, block or cluster; `what` is "launch gemm: grid y". */
static int evaluate_size(
    struct plan *plan, const struct expr *expr, int64_t limit, const char *what, int64_t *size)
{
    if (evaluate(plan, expr, 1, what, size))
        return -1;
    if (*size < 1)
        return tune_fail(
            plan->err, TUNE_EINVAL, "%s is %" PRId64 "; it must be at least 1", what, *size);
    if (*size > limit)
        return tune_fail(plan->err, TUNE_ELIMIT,
            "%s is %" PRId64 "; the device's limit is %" PRId64, what, *size, limit);
    return 0;
}

/* Three dimensions; limits[] has theirs. */
static int evaluate_triple(struct plan *plan, const struct manifest_launch *launch,
    struct expr *const exprs[3], const char *kind, const int64_t limits[3], int64_t out[3])
{
    char what[128];
    for (int i = 0; i < 3; i++) {
        snprintf(what, sizeof what, "launch %.80s: %s %c", launch->entry, kind, "xyz"[i]);
        if (evaluate_size(plan, exprs[i], limits[i], what, &out[i]))
            return -1;
    }
    return 0;
}

struct geometry {
    int64_t grid[3], block[3], cluster[3], shared_bytes, repeat;
};

static int evaluate_shared(
    struct plan *plan, const struct manifest_launch *launch, int64_t *shared_bytes)
{
    int64_t limit = plan->device->attributes[DEVICE_smem_optin];
    char what[128];
    snprintf(what, sizeof what, "launch %.80s: shared_bytes", launch->entry);
    if (evaluate(plan, launch->shared_bytes, 0, what, shared_bytes))
        return -1;
    if (*shared_bytes < 0)
        return tune_fail(plan->err, TUNE_EINVAL, "%s is %" PRId64, what, *shared_bytes);
    if (*shared_bytes > limit)
        return tune_fail(plan->err, TUNE_ELIMIT,
            "%s is %" PRId64 "; the device's limit is %" PRId64, what, *shared_bytes, limit);
    return 0;
}

/* The sizes are within the limits of their own; these hold for them together. */
static int check_together(
    struct plan *plan, const struct manifest_launch *launch, const struct geometry *geometry)
{
    const int64_t *block = geometry->block, *cluster = geometry->cluster;
    int64_t limit = plan->device->attributes[DEVICE_max_threads];
    int64_t threads = block[0] * block[1] * block[2];
    if (threads > limit)
        return tune_fail(plan->err, TUNE_ELIMIT,
            "launch %.80s: a block of %" PRId64 "x%" PRId64 "x%" PRId64 " has %" PRId64
            " threads; the device's limit is %" PRId64,
            launch->entry, block[0], block[1], block[2], threads, limit);
    int64_t blocks = cluster[0] * cluster[1] * cluster[2];
    if (blocks > CLUSTER_LIMIT)
        return tune_fail(plan->err, TUNE_ELIMIT,
            "launch %.80s: a cluster of %" PRId64 " blocks; the limit is %d", launch->entry, blocks,
            CLUSTER_LIMIT);
    for (int i = 0; i < 3; i++)
        if (geometry->grid[i] % cluster[i] != 0)
            return tune_fail(plan->err, TUNE_EINVAL,
                "launch %.80s: grid %c is %" PRId64 ", no multiple of its cluster's %" PRId64,
                launch->entry, "xyz"[i], geometry -> grid[i], cluster[i]);
    return 0;
}

static int evaluate_geometry(
    struct plan *plan, const struct manifest_launch *launch, struct geometry *geometry)
{
    const int64_t *attributes = plan->device->attributes;
    static const int64_t cluster_limits[3] = {CLUSTER_LIMIT, CLUSTER_LIMIT, CLUSTER_LIMIT};
    char what[128];
    snprintf(what, sizeof what, "launch %.80s: repeat", launch->entry);
    if (evaluate_triple(
            plan, launch, launch->grid, "grid", attributes + DEVICE_max_grid_x, geometry->grid) ||
        evaluate_triple(plan, launch, launch->block, "block", attributes + DEVICE_max_block_x,
            geometry->block) ||
        evaluate_triple(
            plan, launch, launch->cluster, "cluster", cluster_limits, geometry->cluster) ||
        evaluate_shared(plan, launch, &geometry->shared_bytes) ||
        evaluate_size(plan, launch->repeat, INT64_MAX, what, &geometry->repeat))
        return -1;
    if (geometry->repeat > REPEAT_LIMIT)
        return tune_fail(plan->err, TUNE_EINVAL, "%s is %" PRId64 "; at most %d is sensible", what,
            geometry->repeat, REPEAT_LIMIT);
    return check_together(plan, launch, geometry);
}

/* Whether an integer fits the C type that the kernel takes: a size_t passed as an i32 would
 * otherwise be cut in silence. */
static bool fits_scalar(const char *scalar, int64_t value)
{
    int bits = 8 * (int)dtype_bytes(scalar);
    if (scalar[0] == 'u')
        return value >= 0 && (bits == 64 || value >> bits == 0);
    return bits == 64 || (value >= -(INT64_C(1) << (bits - 1)) && value < INT64_C(1) << (bits - 1));
}

static json_t *scalar_new(struct plan *plan, const struct manifest_launch *launch, size_t index)
{
    const struct manifest_arg *arg = &launch->args[index];
    char what[128];
    int64_t value;
    bool is_real = arg->scalar[0] == 'f';
    snprintf(what, sizeof what, "launch %.80s: argument %zu", launch->entry, index + 1);
    if (evaluate(plan, arg->value, 0, what, &value))
        return NULL;
    if (!is_real && !fits_scalar(arg->scalar, value)) {
        tune_fail(plan->err, TUNE_EINVAL, "%s is %" PRId64 ", which does not fit its type %s", what,
            value, arg->scalar);
        return NULL;
    }
    json_t *number = arg->value == NULL ? json_real(arg->number)
                     : is_real          ? json_real((double)value)
                                        : json_integer(value);
    return packed(
        plan, json_pack("{s:s, s:s, s:o}", "kind", "scalar", "type", arg->scalar, "value", number));
}

static json_t *args_new(struct plan *plan, const struct manifest_launch *launch)
{
    json_t *array = json_array();
    for (size_t i = 0; i < launch->arg_count; i++) {
        const struct manifest_arg *arg = &launch->args[i];
        json_t *item = arg->buffer == SIZE_MAX
                           ? scalar_new(plan, launch, i)
                           : packed(plan, json_pack("{s:s, s:s}", "kind", "buffer", "name",
                                              plan->manifest->buffers[arg->buffer].name));
        if (append(plan, array, item)) {
            json_decref(array);
            return NULL;
        }
    }
    return packed(plan, array);
}

static json_t *triple_new(const int64_t triple[3])
{
    return json_pack(
        "[I,I,I]", (json_int_t)triple[0], (json_int_t)triple[1], (json_int_t)triple[2]);
}

static bool has_cluster(const struct manifest_launch *launch)
{
    return launch->cluster[0] != NULL;
}

static json_t *kernel_new(struct plan *plan, const struct manifest_launch *launch)
{
    struct geometry geometry;
    if (evaluate_geometry(plan, launch, &geometry))
        return NULL;
    json_t *args = args_new(plan, launch);
    if (args == NULL)
        return NULL;
    json_t *defines = defines_new(plan->manifest, plan->dims, plan->dtype, plan->values, false);
    return packed(
        plan, json_pack("{s:s, s:o, s:o, s:I, s:o, s:o, s:o, s:b, s:I}", "entry", launch->entry,
                  "grid", triple_new(geometry.grid), "block", triple_new(geometry.block),
                  "shared_bytes", (json_int_t)geometry.shared_bytes, "defines", defines, "args",
                  args, "cluster", has_cluster(launch) ? triple_new(geometry.cluster) : json_null(),
                  "cooperative", launch->cooperative, "repeat", (json_int_t)geometry.repeat));
}

static int buffer_count(struct plan *plan, const struct manifest_buffer *buffer, int64_t *count)
{
    char what[96];
    snprintf(what, sizeof what, "buffer %s", buffer->name);
    if (evaluate(plan, buffer->count, 0, what, count))
        return -1;
    return *count >= 0
               ? 0
               : tune_fail(plan->err, TUNE_EINVAL, "%s has a count of %" PRId64, what, *count);
}

/* A memset or a copy of an empty buffer is left out: the driver refuses a size of 0. */
static int append_memset(struct plan *plan, json_t *array, size_t buffer, int byte)
{
    const struct manifest_buffer *target = &plan->manifest->buffers[buffer];
    int64_t count;
    if (buffer_count(plan, target, &count))
        return -1;
    if (count == 0)
        return 0;
    return append(
        plan, array, packed(plan, json_pack("{s:s, s:i}", "memset", target->name, "byte", byte)));
}

static int append_constant(struct plan *plan, json_t *array, const struct manifest_launch *launch)
{
    const struct manifest_buffer *source = &plan->manifest->buffers[launch->buffer];
    int64_t count;
    if (buffer_count(plan, source, &count))
        return -1;
    if (count == 0)
        return 0;
    return append(plan, array,
        packed(
            plan, json_pack("{s:s, s:s}", "constant", launch->constant, "buffer", source->name)));
}

/* The last step, where there is one, is done once. */
static int mark_once(struct plan *plan, json_t *array, size_t count_before)
{
    size_t count = json_array_size(array);
    return count > count_before &&
                   json_object_set_new(json_array_get(array, count - 1), "once", json_true()) < 0
               ? (no_memory(plan->err), -1)
               : 0;
}

static int append_step(struct plan *plan, json_t *array, const struct manifest_launch *launch)
{
    if (launch->kind == LAUNCH_MEMSET)
        return append_memset(plan, array, launch->buffer, launch->memset_byte);
    if (launch->kind == LAUNCH_CONSTANT)
        return append_constant(plan, array, launch);
    return append(plan, array, kernel_new(plan, launch));
}

/* The launches that one with "turns" stands for; any other is one turn. */
static int append_turns(struct plan *plan, json_t *array, const struct manifest_launch *launch)
{
    int64_t turns, *turn = &plan->slots[manifest_turn_slot(plan->manifest)];
    char what[128];
    snprintf(what, sizeof what, "launch %.80s: turns", launch->entry ? launch->entry : "");
    if (evaluate(plan, launch->turns, 1, what, &turns))
        return -1;
    if (turns < 0 || turns > MANIFEST_MAX_TURNS)
        return tune_fail(plan->err, TUNE_EINVAL, "%s is %" PRId64 "; it must be 0 to %d", what,
            turns, MANIFEST_MAX_TURNS);
    for (*turn = 0; *turn < turns; (*turn)++) {
        size_t count_before = json_array_size(array);
        if (append_step(plan, array, launch) ||
            (launch->is_once && mark_once(plan, array, count_before)))
            return -1;
    }
    return 0;
}

static int append_launch(struct plan *plan, json_t *array, const struct manifest_launch *launch)
{
    int64_t is_wanted;
    char what[128];
    snprintf(what, sizeof what, "launch %.80s: when",
        launch->kind == LAUNCH_KERNEL   ? launch->entry
        : launch->kind == LAUNCH_MEMSET ? "memset"
                                        : launch->constant);
    if (evaluate(plan, launch->when, 1, what, &is_wanted))
        return -1;
    return is_wanted ? append_turns(plan, array, launch) : 0;
}

static bool has_kernel(const json_t *launches)
{
    for (size_t i = 0; i < json_array_size(launches); i++) {
        const json_t *launch = json_array_get(launches, i);
        if (json_object_get(launch, "entry") != NULL && json_object_get(launch, "once") == NULL)
            return true;
    }
    return false;
}

/* What is done once, memsets for the zero_before ones of buffers [first, first + count), then the
 * other launches. */
static json_t *launches_new(struct plan *plan, size_t first, size_t count,
    const struct manifest_launch *launches, size_t launch_count)
{
    json_t *array = json_array();
    int failed = array == NULL;
    size_t next = 0;
    for (; !failed && next < launch_count && launches[next].is_once; next++)
        failed = append_launch(plan, array, &launches[next]);
    for (size_t i = first; !failed && i < first + count; i++)
        if (plan->manifest->buffers[i].zero_before)
            failed = append_memset(plan, array, i, 0);
    for (; !failed && next < launch_count; next++)
        failed = append_launch(plan, array, &launches[next]);
    if (!failed && !has_kernel(array))
        failed = tune_fail(plan->err, TUNE_EINVAL, "no launch of %s has a \"when\" that holds",
            plan->manifest->name);
    if (!failed)
        return array;
    json_decref(array);
    return no_memory(plan->err); /* says so only if nothing else was said */
}

json_t *plan_launches(const struct manifest *manifest, const struct device_info *device,
    const int64_t *dims, const char *dtype, const int64_t *values, struct tune_error *err)
{
    struct plan plan;
    if (plan_init(&plan, manifest, device, dims, dtype, values, err))
        return NULL;
    return launches_new(
        &plan, 0, manifest->buffer_count, manifest->launches, manifest->launch_count);
}

/* --- buffers ---------------------------------------------------------------------------------- */

/* How many of 0, 1, 2, ... a dtype holds exactly, one after the other; 2^53 for the 64-bit ones,
 * since the number goes to the worker as a double. */
static int64_t exact_integers(const char *dtype)
{
    static const int64_t most = INT64_C(1) << 53;
    double roundoff = dtype_unit_roundoff(dtype);
    int bits = 8 * (int)dtype_bytes(dtype);
    if (roundoff > 0)
        return (int64_t)(1 / roundoff) + 1 < most ? (int64_t)(1 / roundoff) + 1 : most;
    return bits == 64 ? most : INT64_C(1) << (dtype[0] == 'u' ? bits : bits - 1);
}

/* "fill_value": the value, or the number that the random ones stay below. */
static int fill_value(struct plan *plan, const struct manifest_buffer *buffer, double *value)
{
    char what[96];
    const char *dtype = manifest_buffer_dtype(plan->manifest, buffer, plan->dtype);
    int64_t below, most = exact_integers(dtype);
    *value = buffer->fill_value;
    if (buffer->fill != FILL_BELOW)
        return 0;
    snprintf(what, sizeof what, "buffer %s: fill below", buffer->name);
    if (evaluate(plan, buffer->fill_below, 1, what, &below))
        return -1;
    if (below < 1 || below > most)
        return tune_fail(plan->err, TUNE_EINVAL,
            "%s %" PRId64 ": it must be 1 to %" PRId64 " in %s", what, below, most, dtype);
    *value = (double)below;
    return 0;
}

static bool is_of_matrix(enum buffer_fill fill)
{
    return fill == FILL_CSR_OFFSETS || fill == FILL_CSR_COLUMNS || fill == FILL_CSR_LONGEST_ROW;
}

/* "matrix": what whoever fills the buffer must know. */
static int add_matrix(
    struct plan *plan, const struct manifest_buffer *buffer, int64_t count, json_t *json)
{
    struct sparse_description description;
    sparse_shape_describe(plan->manifest, plan->dims, &description);
    int64_t wanted = buffer->fill == FILL_CSR_OFFSETS   ? description.dims[SPARSE_ROWS] + 1
                     : buffer->fill == FILL_CSR_COLUMNS ? description.dims[SPARSE_NONZEROS]
                                                        : 1;
    if (count != wanted)
        return tune_fail(plan->err, TUNE_EINVAL,
            "buffer %s has %" PRId64 " elements; of this matrix there are %" PRId64, buffer->name,
            count, wanted);
    return json_object_set_new(json, "matrix", sparse_description_to_json(&description));
}

static json_t *buffer_new(struct plan *plan, const struct manifest_buffer *buffer, int64_t *total)
{
    static const char *const roles[] = {"in", "out", "inout", "scratch"};
    static const char *const fills[] = {"uniform", "small_int", "index", "zero", "sorted",
        "csr_offsets", "csr_columns", "csr_longest_row", "value", "below"};
    const char *dtype = dtype_stored(manifest_buffer_dtype(plan->manifest, buffer, plan->dtype));
    int64_t count, bytes;
    double value;
    if (buffer_count(plan, buffer, &count) || fill_value(plan, buffer, &value))
        return NULL;
    if (__builtin_mul_overflow(count, dtype_bytes(dtype), &bytes) ||
        __builtin_add_overflow(*total, bytes, total)) {
        tune_fail(plan->err, TUNE_EMATH, "buffer %s of %" PRId64 " elements: its bytes overflow",
            buffer->name, count);
        return NULL;
    }
    json_t *json = packed(plan,
        json_pack("{s:s, s:s, s:I, s:I, s:s, s:b, s:s, s:f}", "name", buffer->name, "dtype", dtype,
            "bytes", (json_int_t)bytes, "count", (json_int_t)count, "role", roles[buffer->role],
            "zero_before", buffer->zero_before, "fill", fills[buffer->fill], "fill_value", value));
    if (json == NULL || !is_of_matrix(buffer->fill) || add_matrix(plan, buffer, count, json) == 0)
        return json;
    json_decref(json);
    return NULL;
}

static json_t *buffers_new(struct plan *plan, size_t first, size_t count, bool with_scratch)
{
    int64_t memory = plan->device->attributes[DEVICE_memory_bytes];
    int64_t total = 0;
    json_t *array = json_array();
    int failed = array == NULL;
    for (size_t i = first; !failed && i < first + count; i++)
        if (with_scratch || plan->manifest->buffers[i].role != BUFFER_SCRATCH)
            failed = append(plan, array, buffer_new(plan, &plan->manifest->buffers[i], &total));
    if (!failed && memory > 0 && total > memory)
        failed = tune_fail(plan->err, TUNE_ELIMIT,
            "the buffers of %s take %" PRId64 " bytes; the device has %" PRId64,
            plan->manifest->name, total, memory);
    if (!failed)
        return array;
    json_decref(array);
    return no_memory(plan->err);
}

json_t *plan_buffers(const struct manifest *manifest, const struct device_info *device,
    const int64_t *dims, const char *dtype, const int64_t *values, struct tune_error *err)
{
    struct plan plan;
    if (plan_init(&plan, manifest, device, dims, dtype, values, err))
        return NULL;
    return buffers_new(&plan, 0, manifest->buffer_count, values != NULL);
}

/* --- reference -------------------------------------------------------------------------------- */

static int relative_tolerance(
    struct plan *plan, const struct manifest_check *check, double *relative)
{
    int64_t terms;
    if (evaluate(plan, check->terms, 1, "tolerance: terms", &terms))
        return -1;
    if (terms < 1)
        return tune_fail(plan->err, TUNE_EINVAL, "tolerance: terms is %" PRId64, terms);
    double growth = check->growth == GROWTH_SQRT     ? sqrt((double)terms)
                    : check->growth == GROWTH_LINEAR ? (double)terms
                                                     : 1;
    double unit = check->unit_is_swept ? dtype_unit_roundoff(plan->dtype) : check->unit_roundoff;
    *relative = check->factor * unit * growth;
    return 0;
}

/* Compared buffers have as many elements as the checked one. */
static int check_counts(struct plan *plan, const struct manifest_check *check)
{
    const struct manifest_buffer *buffers = plan->manifest->buffers;
    int64_t checked, reference, scale;
    if (buffer_count(plan, &buffers[check->buffer], &checked) ||
        buffer_count(plan, &buffers[check->reference], &reference))
        return -1;
    scale = checked;
    if (check->scale != SIZE_MAX && buffer_count(plan, &buffers[check->scale], &scale))
        return -1;
    if (checked == reference && checked == scale)
        return 0;
    return tune_fail(plan->err, TUNE_EINVAL,
        "%s has %" PRId64 " elements, but %s of its check has %" PRId64,
        buffers[check->buffer].name, checked,
        buffers[checked != reference ? check->reference : check->scale].name,
        checked != reference ? reference : scale);
}

static json_t *check_new(struct plan *plan, const struct manifest_check *check)
{
    const struct manifest_buffer *buffers = plan->manifest->buffers;
    double relative = 0;
    if (check_counts(plan, check) || relative_tolerance(plan, check, &relative))
        return NULL;
    json_t *scale =
        check->scale == SIZE_MAX ? json_null() : json_string(buffers[check->scale].name);
    return packed(
        plan, json_pack("{s:s, s:s, s:o, s:f, s:f}", "buffer", buffers[check->buffer].name,
                  "reference", buffers[check->reference].name, "scale", scale, "relative", relative,
                  "absolute", check->absolute));
}

static json_t *checks_new(struct plan *plan)
{
    json_t *array = json_array();
    for (size_t i = 0; i < plan->manifest->check_count; i++) {
        if (append(plan, array, check_new(plan, &plan->manifest->checks[i]))) {
            json_decref(array);
            return NULL;
        }
    }
    return packed(plan, array);
}

json_t *plan_reference(const struct manifest *manifest, const struct device_info *device,
    const int64_t *dims, const char *dtype, struct tune_error *err)
{
    struct plan plan;
    size_t first = manifest->buffer_count, count = manifest->reference_buffer_count;
    if (plan_init(&plan, manifest, device, dims, dtype, NULL, err))
        return NULL;
    json_t *buffers = buffers_new(&plan, first, count, true);
    json_t *launches = buffers == NULL
                           ? NULL
                           : launches_new(&plan, first, count, manifest->reference_launches,
                                 manifest->reference_launch_count);
    json_t *checks = launches == NULL ? NULL : checks_new(&plan);
    if (checks != NULL)
        return packed(&plan, json_pack("{s:o, s:o, s:o}", "buffers", buffers, "launches", launches,
                                 "checks", checks));
    json_decref(buffers);
    json_decref(launches);
    return NULL;
}

/* --- the rest --------------------------------------------------------------------------------- */

static bool has_text(const json_t *array, const char *text)
{
    for (size_t i = 0; i < json_array_size(array); i++)
        if (strcmp(json_string_value(json_array_get(array, i)), text) == 0)
            return true;
    return false;
}

json_t *plan_entries(const struct manifest *manifest, bool of_reference)
{
    const struct manifest_launch *launches =
        of_reference ? manifest->reference_launches : manifest->launches;
    size_t count = of_reference ? manifest->reference_launch_count : manifest->launch_count;
    json_t *array = json_array();
    int failed = array == NULL;
    for (size_t i = 0; i < count; i++)
        if (launches[i].kind == LAUNCH_KERNEL && !has_text(array, launches[i].entry))
            failed |= json_array_append_new(array, json_string(launches[i].entry));
    if (!failed)
        return array;
    json_decref(array);
    return NULL;
}

const char *plan_arch_suffix(const struct manifest *manifest, const struct device_info *device,
    const int64_t *dims, const char *dtype, const int64_t *values)
{
    struct plan plan;
    if (device->attributes[DEVICE_sm] == 0 /* "cpu" has no variants */
        || plan_init(&plan, manifest, device, dims, dtype, values, NULL))
        return "";
    for (size_t i = 0; i < manifest->requirement_count; i++) {
        const struct manifest_requirement *requirement = &manifest->requirements[i];
        int64_t holds;
        if (requirement->arch_suffix != NULL &&
            evaluate(&plan, requirement->when, 1, "requires", &holds) == 0 && holds)
            return requirement->arch_suffix;
    }
    return "";
}

int plan_work(const struct manifest *manifest, const struct device_info *device,
    const int64_t *dims, const char *dtype, double *flops, double *bytes, struct tune_error *err)
{
    struct plan plan;
    int64_t flop_count, byte_count;
    if (plan_init(&plan, manifest, device, dims, dtype, NULL, err) ||
        evaluate(&plan, manifest->flops, 0, "flops", &flop_count) ||
        evaluate(&plan, manifest->bytes, 0, "bytes", &byte_count))
        return -1;
    *flops = (double)flop_count;
    *bytes = (double)byte_count;
    return 0;
}
