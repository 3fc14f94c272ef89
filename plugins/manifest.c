/* What a manifest answers once it is read: names, slots, values and their texts. Reading it is
 * manifest_read.c's. */
#include "manifest.h"

#include "client/proto.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- dtypes ----------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    int bytes;
    double unit_roundoff;
    const char *c_type;
} dtypes[] = {
    {"f64", 8, 0x1p-53, "double"},
    {"f32", 4, 0x1p-24, "float"},
    {"f16", 2, 0x1p-11, "__half"},
    {"bf16", 2, 0x1p-8, "__nv_bfloat16"},
    {"tf32", 4, 0x1p-11, "float"},
    {"i64", 8, 0, "long long"},
    {"i32", 4, 0, "int"},
    {"i16", 2, 0, "short"},
    {"i8", 1, 0, "signed char"},
    {"u64", 8, 0, "unsigned long long"},
    {"u32", 4, 0, "unsigned"},
    {"u16", 2, 0, "unsigned short"},
    {"u8", 1, 0, "unsigned char"},
};

/* SIZE_MAX when unknown. */
static size_t find_dtype(const char *name)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
        if (strcmp(dtypes[i].name, name) == 0)
            return i;
    return SIZE_MAX;
}

int64_t dtype_bytes(const char *dtype)
{
    size_t i = find_dtype(dtype);
    return i == SIZE_MAX ? 0 : dtypes[i].bytes;
}

double dtype_unit_roundoff(const char *dtype)
{
    size_t i = find_dtype(dtype);
    return i == SIZE_MAX ? 0 : dtypes[i].unit_roundoff;
}

const char *dtype_c_type(const char *dtype)
{
    size_t i = find_dtype(dtype);
    return i == SIZE_MAX ? NULL : dtypes[i].c_type;
}

const char *manifest_buffer_dtype(
    const struct manifest *manifest, const struct manifest_buffer *buffer, const char *swept)
{
    for (size_t i = 0; buffer->dtypes != NULL && i < manifest->dtype_count; i++)
        if (strcmp(manifest->dtypes[i], swept) == 0)
            return buffer->dtypes[i];
    return buffer->dtype == NULL || strcmp(buffer->dtype, "T") == 0 ? swept : buffer->dtype;
}

const char *dtype_stored(const char *dtype)
{
    return strcmp(dtype, "tf32") == 0 ? "f32" : dtype;
}

/* --- slots ------------------------------------------------------------------------------------ */

size_t manifest_dim_slot(const struct manifest *manifest, size_t dim)
{
    (void)manifest;
    return DEVICE_ATTRIBUTE_COUNT + dim;
}

size_t manifest_param_slot(const struct manifest *manifest, size_t param)
{
    return manifest_dim_slot(manifest, manifest->dim_count) + param;
}

size_t manifest_derived_slot(const struct manifest *manifest, size_t derived)
{
    return manifest_param_slot(manifest, manifest->param_count) + derived;
}

size_t manifest_dtype_bytes_slot(const struct manifest *manifest)
{
    return manifest_derived_slot(manifest, manifest->derived_count);
}

size_t manifest_turn_slot(const struct manifest *manifest)
{
    return manifest_dtype_bytes_slot(manifest) + 1;
}

size_t manifest_slot_count(const struct manifest *manifest)
{
    return manifest_turn_slot(manifest) + 1;
}

size_t manifest_last_param(const struct manifest *manifest, const struct expr *expr)
{
    size_t last = SIZE_MAX;
    for (size_t i = 0; i < manifest->param_count; i++)
        if (expr_uses(expr, manifest_param_slot(manifest, i)))
            last = i;
    for (size_t i = 0; i < manifest->derived_count; i++) {
        size_t through = manifest->derived[i].last_param;
        if (expr_uses(expr, manifest_derived_slot(manifest, i)) && through != SIZE_MAX &&
            (last == SIZE_MAX || through > last))
            last = through;
    }
    return last;
}

void manifest_bind(const struct manifest *manifest, const struct device_info *device,
    const int64_t *dims, const char *dtype, int64_t *slots)
{
    memset(slots, 0, manifest_slot_count(manifest) * sizeof *slots);
    memcpy(slots, device->attributes, sizeof device->attributes);
    memcpy(slots + manifest_dim_slot(manifest, 0), dims, manifest->dim_count * sizeof *dims);
    slots[manifest_dtype_bytes_slot(manifest)] = dtype_bytes(dtype);
}

/* --- names and values ------------------------------------------------------------------------- */

size_t manifest_find_dim(const struct manifest *manifest, const char *name)
{
    for (size_t i = 0; i < manifest->dim_count; i++)
        if (strcmp(manifest->dims[i].name, name) == 0)
            return i;
    return SIZE_MAX;
}

size_t manifest_find_param(const struct manifest *manifest, const char *name)
{
    for (size_t i = 0; i < manifest->param_count; i++)
        if (strcmp(manifest->params[i].name, name) == 0)
            return i;
    return SIZE_MAX;
}

bool manifest_has_dtype(const struct manifest *manifest, const char *dtype)
{
    for (size_t i = 0; i < manifest->dtype_count; i++)
        if (strcmp(manifest->dtypes[i], dtype) == 0)
            return true;
    return false;
}

/* The listed values of a param or of a choice. */
struct values {
    const char *kind, *owner;
    size_t count;
    const int64_t *values;
    char *const *names;
};

static struct values values_of_param(const struct manifest_param *param)
{
    return (struct values){
        "param", param->name, param->value_count, param->values, param->value_names};
}

static struct values values_of_dim(const struct manifest_dim *dim)
{
    return (struct values){"dimension", dim->name, dim->value_count, dim->values, dim->value_names};
}

static size_t find_value(const struct values *values, int64_t value)
{
    for (size_t i = 0; i < values->count; i++)
        if (values->values[i] == value)
            return i;
    return SIZE_MAX;
}

const char *manifest_param_define(const struct manifest_param *param, int64_t value)
{
    struct values values = values_of_param(param);
    size_t index = find_value(&values, value);
    return index == SIZE_MAX ? NULL : param->value_defines[index];
}

static size_t find_value_name(const struct values *values, const char *name)
{
    for (size_t i = 0; i < values->count; i++)
        if (values->names[i] != NULL && strcmp(values->names[i], name) == 0)
            return i;
    return SIZE_MAX;
}

static int no_such_value(const struct values *values, const char *given, struct tune_error *err)
{
    char list[120] = "";
    size_t used = 0;
    for (size_t i = 0; i < values->count; i++) {
        char one[MANIFEST_MAX_NAME + 24];
        int length = values->names[i] ? snprintf(one, sizeof one, "%s", values->names[i])
                                      : snprintf(one, sizeof one, "%" PRId64, values->values[i]);
        if (used + (size_t)length + 8 > sizeof list) {
            strcpy(list + used, ", ...");
            break;
        }
        used += (size_t)sprintf(list + used, "%s%s", used ? ", " : "", one);
    }
    return tune_fail(err, TUNE_EINVAL, "\"%.40s\" is not a value of %s %.40s; it takes %s", given,
        values->kind, values->owner, list);
}

/* An integer or a name, of those listed. */
static int value_from_json(
    const struct values *values, const json_t *json, int64_t *value, struct tune_error *err)
{
    if (json_is_integer(json)) {
        if (find_value(values, json_integer_value(json)) == SIZE_MAX) {
            char given[24];
            snprintf(given, sizeof given, "%" PRId64, (int64_t)json_integer_value(json));
            return no_such_value(values, given, err);
        }
        *value = json_integer_value(json);
        return 0;
    }
    if (!json_is_string(json))
        return tune_fail(err, TUNE_EINVAL,
            "the value of %s %s must be an integer (without point or exponent) or a value's name",
            values->kind, values->owner);
    size_t i = find_value_name(values, json_string_value(json));
    if (i == SIZE_MAX)
        return no_such_value(values, json_string_value(json), err);
    *value = values->values[i];
    return 0;
}

int manifest_param_value(
    const struct manifest_param *param, const json_t *json, int64_t *value, struct tune_error *err)
{
    struct values values = values_of_param(param);
    return value_from_json(&values, json, value, err);
}

int manifest_param_value_text(
    const struct manifest_param *param, const char *text, int64_t *value, struct tune_error *err)
{
    struct values values = values_of_param(param);
    size_t named = find_value_name(&values, text);
    for (size_t i = 0; i < param->value_count; i++) {
        char
            plain[24]; /* compared as text, so only the one canonical spelling of a number passes */
        snprintf(plain, sizeof plain, "%" PRId64, param->values[i]);
        if (i == named || (named == SIZE_MAX && strcmp(plain, text) == 0)) {
            *value = param->values[i];
            return 0;
        }
    }
    return no_such_value(&values, text, err);
}

/* --- shapes and configurations ---------------------------------------------------------------- */

/* `given` NULL: the shape leaves the dim out. */
static int dim_from_json(
    const struct manifest_dim *dim, const json_t *given, int64_t *value, struct tune_error *err)
{
    struct values values = values_of_dim(dim);
    if (given == NULL && dim->value_count > 0) {
        *value = dim->values[0];
        return 0;
    }
    if (given == NULL)
        return tune_fail(
            err, TUNE_EINVAL, "the shape lacks dimension %s (%.100s)", dim->name, dim->meaning);
    if (dim->value_count > 0)
        return value_from_json(&values, given, value, err);
    if (!json_is_integer(given))
        return tune_fail(err, TUNE_EINVAL,
            "dimension %s must be an integer, without point or exponent", dim->name);
    *value = json_integer_value(given);
    if (*value >= 1 && *value <= MANIFEST_MAX_DIM)
        return 0;
    return tune_fail(err, TUNE_EINVAL, "dimension %s is %" PRId64 "; it must be 1 to 2^62%s",
        dim->name, *value, *value == 0 ? " (an empty problem has nothing to tune)" : "");
}

int manifest_shape_from_json(
    const struct manifest *manifest, const json_t *json, int64_t *dims, struct tune_error *err)
{
    if (!json_is_object(json))
        return tune_fail(err, TUNE_EINVAL, "a shape must be an object such as {\"%s\": 1024}",
            manifest->dims[0].name);
    const char *key;
    json_t *value;
    json_object_foreach ((json_t *)json, key, value) {
        if (manifest_find_dim(manifest, key) == SIZE_MAX)
            return tune_fail(
                err, TUNE_EINVAL, "%s has no dimension \"%.60s\"", manifest->name, key);
    }
    for (size_t i = 0; i < manifest->dim_count; i++) {
        const struct manifest_dim *dim = &manifest->dims[i];
        if (dim_from_json(dim, json_object_get(json, dim->name), &dims[i], err))
            return -1;
    }
    return 0;
}

json_t *manifest_shape_to_json(const struct manifest *manifest, const int64_t *dims)
{
    json_t *json = json_object();
    for (size_t i = 0; i < manifest->dim_count; i++) {
        if (json_object_set_new(json, manifest->dims[i].name, json_integer(dims[i]))) {
            json_decref(json);
            return NULL;
        }
    }
    return json;
}

int manifest_config_from_json(
    const struct manifest *manifest, const json_t *json, int64_t *values, struct tune_error *err)
{
    if (!json_is_object(json))
        return tune_fail(err, TUNE_EINVAL, "a configuration must be an object of param: value");
    const char *key;
    json_t *value;
    json_object_foreach ((json_t *)json, key, value) {
        if (manifest_find_param(manifest, key) == SIZE_MAX)
            return tune_fail(err, TUNE_EINVAL, "%s has no param \"%.60s\"", manifest->name, key);
    }
    for (size_t i = 0; i < manifest->param_count; i++) {
        json_t *given = json_object_get(json, manifest->params[i].name);
        if (given == NULL)
            return tune_fail(
                err, TUNE_EINVAL, "the configuration lacks param %s", manifest->params[i].name);
        if (manifest_param_value(&manifest->params[i], given, &values[i], err))
            return -1;
    }
    return 0;
}

json_t *manifest_config_to_json(const struct manifest *manifest, const int64_t *values)
{
    json_t *json = json_object();
    for (size_t i = 0; i < manifest->param_count; i++) {
        const struct manifest_param *param = &manifest->params[i];
        struct values listed = values_of_param(param);
        size_t index = find_value(&listed, values[i]);
        const char *name = index == SIZE_MAX ? NULL : param->value_names[index];
        json_t *value = name ? json_string(name) : json_integer(values[i]);
        if (json_object_set_new(json, param->name, value)) {
            json_decref(json);
            return NULL;
        }
    }
    return json;
}

/* "A=1,B=2"; names come `stride` bytes apart, as first members of the structs that hold them. */
static char *pairs_text(const void *first_name, size_t stride, const int64_t *values, size_t count)
{
    char *text = malloc(count * (MANIFEST_MAX_NAME + 24) + 1);
    if (text == NULL)
        return NULL;
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        const char *name = *(char *const *)((const char *)first_name + i * stride);
        used += (size_t)sprintf(text + used, "%s%s=%" PRId64, i > 0 ? "," : "", name, values[i]);
    }
    return text;
}

char *manifest_shape_text(const struct manifest *manifest, const int64_t *dims)
{
    static_assert(offsetof(struct manifest_dim, name) == 0, "pairs_text reads the first member");
    return pairs_text(&manifest->dims[0].name, sizeof manifest->dims[0], dims, manifest->dim_count);
}

char *manifest_config_text(const struct manifest *manifest, const int64_t *values)
{
    static_assert(offsetof(struct manifest_param, name) == 0, "pairs_text reads the first member");
    return pairs_text(
        &manifest->params[0].name, sizeof manifest->params[0], values, manifest->param_count);
}

int manifest_shape_from_text(const struct manifest *manifest, const char *text, int64_t *dims)
{
    for (size_t i = 0; i < manifest->dim_count; i++) {
        size_t length = strlen(manifest->dims[i].name);
        if (strncmp(text, manifest->dims[i].name, length) != 0 || text[length] != '=')
            return -1;
        char *end;
        long long value = strtoll(text + length + 1, &end, 10);
        struct values listed = values_of_dim(&manifest->dims[i]);
        if (value < 1 || (*end != (i + 1 < manifest->dim_count ? ',' : '\0')) ||
            (listed.count > 0 && find_value(&listed, value) == SIZE_MAX))
            return -1;
        dims[i] = value;
        text = end + 1;
    }
    return 0;
}

bool manifest_same_choices(const struct manifest *manifest, const int64_t *a, const int64_t *b)
{
    for (size_t i = 0; i < manifest->dim_count; i++)
        if (manifest->dims[i].value_count > 0 && a[i] != b[i])
            return false;
    return true;
}

/* The name of a choice's value, or NULL. */
static const char *choice_name(const struct manifest_dim *dim, int64_t value)
{
    struct values listed = values_of_dim(dim);
    size_t index = find_value(&listed, value);
    return index == SIZE_MAX ? NULL : dim->value_names[index];
}

void manifest_name_choices(const struct manifest *manifest, const int64_t *dims, json_t *json)
{
    json_t *names = json_object();
    for (size_t i = 0; i < manifest->dim_count; i++) {
        const char *name = choice_name(&manifest->dims[i], dims[i]);
        if (name != NULL)
            json_object_set_new(names, manifest->dims[i].name, json_string(name));
    }
    if (json_object_size(names) > 0)
        json_object_set(json, "choices", names);
    json_decref(names);
}

char *manifest_shape_words(const struct manifest *manifest, const int64_t *dims)
{
    char *text = malloc(manifest->dim_count * (2 * MANIFEST_MAX_NAME + 24) + 1);
    size_t used = 0;
    for (size_t i = 0; text != NULL && i < manifest->dim_count; i++) {
        const char *name = choice_name(&manifest->dims[i], dims[i]);
        used += (size_t)sprintf(text + used, "%s%s=", i > 0 ? " " : "", manifest->dims[i].name);
        used += (size_t)(name ? sprintf(text + used, "%s", name)
                              : sprintf(text + used, "%" PRId64, dims[i]));
    }
    return text;
}

size_t manifest_shape_logs(const struct manifest *manifest, const int64_t *dims, double *logs)
{
    size_t count = 0;
    for (size_t i = 0; i < manifest->dim_count; i++)
        if (manifest->dims[i].value_count == 0)
            logs[count++] = log2((double)dims[i]);
    return count;
}

double manifest_log_distance(size_t count, const double *a, const double *b)
{
    double sizes = 0, ratios = 0;
    for (size_t i = 0; i < count; i++) {
        sizes += fabs(a[i] - b[i]);
        for (size_t j = 0; j < i; j++)
            ratios += fabs((a[i] - a[j]) - (b[i] - b[j]));
    }
    return count > 1 ? sizes + ratios / (double)(count - 1) : sizes;
}

double manifest_shape_distance(
    const struct manifest *manifest, const int64_t *dims, const char *shape)
{
    int64_t other[MANIFEST_MAX_DIMS];
    double a[MANIFEST_MAX_DIMS], b[MANIFEST_MAX_DIMS];
    if (manifest_shape_from_text(manifest, shape, other) ||
        !manifest_same_choices(manifest, dims, other))
        return -1;
    manifest_shape_logs(manifest, dims, a);
    return manifest_log_distance(manifest_shape_logs(manifest, other, b), a, b);
}

/* Takes "NAME=VALUE" of this param from *at; the value's text must be its one canonical spelling.
 */
static int take_pair(
    const struct manifest_param *param, const char **at, int64_t *value, struct tune_error *err)
{
    char given[64];
    size_t name = strlen(param->name), length = strcspn(*at, ",");
    if (length <= name || strncmp(*at, param->name, name) != 0 || (*at)[name] != '=')
        return tune_fail(err, TUNE_EINVAL,
            "the configuration lacks param %s where it should stand, at \"%.40s\"", param->name,
            *at);
    snprintf(given, sizeof given, "%.*s", (int)(length - name - 1), *at + name + 1);
    for (size_t i = 0; i < param->value_count; i++) {
        char plain[24];
        snprintf(plain, sizeof plain, "%" PRId64, param->values[i]);
        if (strcmp(plain, given) == 0) {
            *value = param->values[i];
            *at += length;
            return 0;
        }
    }
    struct values values = values_of_param(param);
    return no_such_value(&values, given, err);
}

int manifest_config_from_text(
    const struct manifest *manifest, const char *text, int64_t *values, struct tune_error *err)
{
    const char *at = text;
    for (size_t i = 0; i < manifest->param_count; i++) {
        if (take_pair(&manifest->params[i], &at, &values[i], err))
            return -1;
        if (*at == ',')
            at++;
    }
    if (*at == '\0' && (at == text || at[-1] != ','))
        return 0;
    return tune_fail(err, TUNE_EINVAL, "the configuration goes on after its last param: \"%.40s\"",
        *at ? at : ",");
}

/* --- describe --------------------------------------------------------------------------------- */

json_t *manifest_to_json(const struct manifest *manifest)
{
    json_t *json = json_loads(manifest->canonical, 0, NULL);
    json_t *constraints = json_object_get(json, "constraints");
    json_t *defaults = json_object_get(json, "default");
    int failed = json_object_set_new(json, "source", json_string(manifest->source));
    for (size_t i = 0; i < manifest->constraint_count; i++)
        failed |= json_object_set_new(json_array_get(constraints, i), "params_only",
            json_boolean(manifest->constraints[i].params_only));
    if (json_is_object(defaults))
        failed |= json_object_set_new(json, "default", json_pack("[O]", defaults));
    if (!failed)
        return json;
    json_decref(json);
    return NULL;
}

/* --- destroying ------------------------------------------------------------------------------- */

static void finish_launch(struct manifest_launch *launch)
{
    free(launch->entry);
    free(launch->constant);
    expr_destroy(launch->when);
    for (size_t i = 0; i < 3; i++) {
        expr_destroy(launch->grid[i]);
        expr_destroy(launch->block[i]);
        expr_destroy(launch->cluster[i]);
    }
    expr_destroy(launch->shared_bytes);
    expr_destroy(launch->repeat);
    expr_destroy(launch->turns);
    for (size_t i = 0; i < launch->arg_count; i++) {
        free(launch->args[i].scalar);
        expr_destroy(launch->args[i].value);
    }
    free(launch->args);
}

static void finish_space(struct manifest *manifest)
{
    for (size_t i = 0; i < manifest->dim_count; i++) {
        struct manifest_dim *dim = &manifest->dims[i];
        free(dim->name);
        free(dim->meaning);
        for (size_t j = 0; j < dim->value_count; j++)
            free(dim->value_names[j]);
    }
    for (size_t i = 0; i < manifest->param_count; i++) {
        struct manifest_param *param = &manifest->params[i];
        free(param->name);
        free(param->meaning);
        for (size_t j = 0; j < param->value_count; j++) {
            free(param->value_names[j]);
            free(param->value_defines[j]);
        }
    }
    for (size_t i = 0; i < manifest->derived_count; i++) {
        free(manifest->derived[i].name);
        free(manifest->derived[i].meaning);
        expr_destroy(manifest->derived[i].expr);
    }
    for (size_t i = 0; i < manifest->constraint_count; i++) {
        free(manifest->constraints[i].message);
        expr_destroy(manifest->constraints[i].expr);
    }
    for (size_t i = 0; i < manifest->requirement_count; i++) {
        expr_destroy(manifest->requirements[i].when);
        expr_destroy(manifest->requirements[i].sm);
        free(manifest->requirements[i].arch_suffix);
    }
}

static void finish_geometry(struct manifest *manifest)
{
    for (size_t i = 0; i < manifest->buffer_count + manifest->reference_buffer_count; i++) {
        free(manifest->buffers[i].name);
        free(manifest->buffers[i].dtype);
        for (size_t j = 0; manifest->buffers[i].dtypes != NULL && j < manifest->dtype_count; j++)
            free(manifest->buffers[i].dtypes[j]);
        free(manifest->buffers[i].dtypes);
        expr_destroy(manifest->buffers[i].count);
        expr_destroy(manifest->buffers[i].fill_below);
    }
    for (size_t i = 0; i < manifest->launch_count; i++)
        finish_launch(&manifest->launches[i]);
    for (size_t i = 0; i < manifest->reference_launch_count; i++)
        finish_launch(&manifest->reference_launches[i]);
    for (size_t i = 0; i < manifest->check_count; i++) {
        free(manifest->checks[i].derivation);
        expr_destroy(manifest->checks[i].terms);
    }
}

void manifest_destroy(struct manifest *manifest)
{
    if (manifest == NULL)
        return;
    finish_space(manifest);
    finish_geometry(manifest);
    for (size_t i = 0; i < manifest->dtype_count; i++)
        free(manifest->dtypes[i]);
    free(manifest->name);
    free(manifest->summary);
    free(manifest->source);
    free(manifest->constraints);
    free(manifest->requirements);
    free(manifest->shapes);
    free(manifest->shapes_cpu);
    free(manifest->dtypes);
    free(manifest->buffers);
    free(manifest->launches);
    free(manifest->reference_launches);
    json_decref(manifest->reference_defines);
    free(manifest->checks);
    free(manifest->defaults);
    expr_destroy(manifest->flops);
    expr_destroy(manifest->bytes);
    expr_destroy(manifest->traffic_global);
    expr_destroy(manifest->traffic_shared);
    expr_destroy(manifest->flops_done);
    expr_destroy(manifest->round_trips);
    expr_destroy(manifest->registers);
    free(manifest->canonical);
    free(manifest);
}
