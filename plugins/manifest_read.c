/* Reads a manifest: the tools of the reader, and the part that spans the space of configurations.
 * Buffers, launches, reference and checks are manifest_read_geometry.c's. */
#include "manifest_read.h"

#include "client/proto.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- tools ------------------------------------------------------------------------------------ */

void reader_at(struct reader *reader, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(reader->where, sizeof reader->where, format, args);
    va_end(args);
}

int reader_wrap(struct reader *reader, const struct tune_error *cause)
{
    return tune_fail(reader->err, cause->code, "%s: %s%s%s", reader->file, reader->where,
        reader->where[0] ? ": " : "", cause->text);
}

int reader_fail(struct reader *reader, enum tune_code code, const char *format, ...)
{
    struct tune_error cause = {.code = code};
    va_list args;
    va_start(args, format);
    vsnprintf(cause.text, sizeof cause.text, format, args);
    va_end(args);
    return reader_wrap(reader, &cause);
}

int reader_no_memory(struct reader *reader)
{
    return reader_fail(reader, TUNE_ENOMEM, "no memory for the manifest");
}

void *reader_calloc(struct reader *reader, size_t count, size_t size)
{
    void *room = calloc(count ? count : 1, size);
    if (room == NULL)
        reader_no_memory(reader);
    return room;
}

int reader_known(struct reader *reader, const json_t *object, const char *const *known)
{
    struct tune_error cause = {0};
    if (!json_is_object(object))
        return reader_fail(reader, TUNE_EINVAL, "this must be an object");
    return proto_known_keys(object, known, "a manifest here", &cause) ? reader_wrap(reader, &cause)
                                                                      : 0;
}

int reader_text(struct reader *reader, const json_t *object, const char *key, size_t limit,
    bool is_optional, char **out)
{
    struct tune_error cause = {0};
    const char *text = NULL;
    *out = NULL;
    if (is_optional ? proto_string_opt(object, key, &text, &cause)
                    : proto_string(object, key, &text, &cause))
        return reader_wrap(reader, &cause);
    if (text == NULL)
        return 0;
    if (text[0] == '\0')
        return reader_fail(reader, TUNE_EINVAL, "field \"%s\" is empty", key);
    if (strlen(text) > limit)
        return reader_fail(reader, TUNE_ELIMIT, "field \"%s\" has %zu bytes; the limit is %zu", key,
            strlen(text), limit);
    *out = strdup(text);
    return *out ? 0 : reader_no_memory(reader);
}

int reader_array(struct reader *reader, const json_t *object, const char *key, size_t min,
    size_t max, json_t **out, size_t *count)
{
    struct tune_error cause = {0};
    *count = 0;
    if (proto_array_opt(object, key, out, &cause))
        return reader_wrap(reader, &cause);
    if (*out == NULL && min > 0)
        return reader_fail(reader, TUNE_EINVAL, "field \"%s\" is missing", key);
    *count = json_array_size(*out);
    if (*out != NULL && *count < min)
        return reader_fail(
            reader, TUNE_EINVAL, "field \"%s\" needs at least %zu element", key, min);
    if (*count > max)
        return reader_fail(reader, TUNE_ELIMIT, "field \"%s\" has %zu elements; the limit is %zu",
            key, *count, max);
    return 0;
}

unsigned reader_reads(const struct reader *reader, const struct expr *expr)
{
    const struct manifest *manifest = reader->manifest;
    unsigned reads = 0;
    for (size_t i = 0; i < DEVICE_ATTRIBUTE_COUNT; i++)
        if (expr_uses(expr, i))
            reads |= READS_DEVICE;
    for (size_t i = 0; i < manifest->dim_count; i++)
        if (expr_uses(expr, manifest_dim_slot(manifest, i)))
            reads |= READS_DIMS;
    for (size_t i = 0; i < manifest->param_count; i++)
        if (expr_uses(expr, manifest_param_slot(manifest, i)))
            reads |= READS_PARAMS;
    for (size_t i = 0; i < manifest->derived_count; i++)
        if (expr_uses(expr, manifest_derived_slot(manifest, i)))
            reads |= reader->derived_reads[i];
    return reads;
}

int reader_expr_value(struct reader *reader, const json_t *value, const char *key, unsigned allowed,
    struct expr **out)
{
    const struct manifest *manifest = reader->manifest;
    char number[24];
    struct tune_error cause = {0};
    const char *text = json_string_value(value);
    if (json_is_integer(value)) {
        snprintf(number, sizeof number, "%" PRId64, (int64_t)json_integer_value(value));
        text = number;
    }
    if (text == NULL)
        return reader_fail(reader, TUNE_EINVAL,
            "field \"%s\" must be an expression (a string) or an integer", key);
    *out = expr_create(text, reader->names,
        allowed & READS_TURN ? manifest_slot_count(manifest) : manifest_turn_slot(manifest),
        &cause);
    if (*out == NULL)
        return reader_wrap(reader, &cause);
    unsigned surplus = reader_reads(reader, *out) & ~allowed;
    if (surplus != 0)
        return reader_fail(reader, TUNE_EINVAL,
            "field \"%s\" may not depend on %s, but is \"%.80s\"", key,
            surplus & READS_PARAMS   ? "params"
            : surplus & READS_DEVICE ? "device attributes"
                                     : "dims",
            expr_text(*out));
    return 0;
}

int reader_expr(struct reader *reader, const json_t *object, const char *key, unsigned allowed,
    bool is_optional, struct expr **out)
{
    const json_t *value = json_object_get(object, key);
    *out = NULL;
    if (value == NULL || json_is_null(value))
        return is_optional ? 0 : reader_fail(reader, TUNE_EINVAL, "field \"%s\" is missing", key);
    return reader_expr_value(reader, value, key, allowed, out);
}

bool reader_is_identifier(const char *text)
{
    if (!isalpha((unsigned char)text[0]) || strlen(text) > MANIFEST_MAX_NAME)
        return false;
    for (const char *at = text; *at != '\0'; at++)
        if (!isalnum((unsigned char)*at) && *at != '_')
            return false;
    return true;
}

/* A new name for expressions (and, but for derived values, a macro); it takes slot `slot`. */
static int read_name(struct reader *reader, const json_t *object, size_t slot, char **out)
{
    static const char *const functions[] = {"ceildiv", "min", "max", "pow2", "dtype_bytes", "turn"};
    if (reader_text(reader, object, "name", MANIFEST_MAX_NAME, false, out))
        return -1;
    const char *name = *out;
    if (!reader_is_identifier(name) || strncmp(name, "TUNE_", 5) == 0)
        return reader_fail(reader, TUNE_EINVAL,
            "\"%s\" is no name: a letter, then letters, digits and _; TUNE_ is reserved", name);
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++)
        if (strcmp(functions[i], name) == 0)
            return reader_fail(reader, TUNE_EINVAL, "the name \"%s\" is a built-in one", name);
    for (size_t i = 0; i < slot; i++)
        if (reader->names[i] != NULL && strcmp(reader->names[i], name) == 0)
            return reader_fail(reader, TUNE_EINVAL, "the name \"%s\" is taken already (%s)", name,
                i < DEVICE_ATTRIBUTE_COUNT ? "a device attribute" : "above");
    reader->names[slot] = name;
    return 0;
}

/* --- name, dims, params ----------------------------------------------------------------------- */

static bool is_kernel_name(const char *name)
{
    if (name[0] < 'a' || name[0] > 'z')
        return false;
    return strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == strlen(name);
}

static bool is_source_name(const char *name)
{
    size_t length = strlen(name);
    for (size_t i = 0; i < length; i++)
        if (!isalnum((unsigned char)name[i]) && strchr("_-.", name[i]) == NULL)
            return false;
    return name[0] != '.' && length > 3 && strcmp(name + length - 3, ".cu") == 0;
}

static int read_head(struct reader *reader, const json_t *root)
{
    struct manifest *manifest = reader->manifest;
    struct tune_error cause = {0};
    int64_t version;
    if (proto_int(root, "tunerd", INT64_MIN, INT64_MAX, &version, &cause))
        return reader_wrap(reader, &cause);
    if (version != MANIFEST_VERSION)
        return reader_fail(reader, TUNE_EVERSION,
            "the manifest is of form %" PRId64 "; this tunerd reads form %d", version,
            MANIFEST_VERSION);
    if (reader_text(reader, root, "name", MANIFEST_MAX_NAME, false, &manifest->name) ||
        reader_text(reader, root, "summary", MANIFEST_MAX_TEXT, false, &manifest->summary) ||
        reader_text(reader, root, "source", 2 * MANIFEST_MAX_NAME, true, &manifest->source))
        return -1;
    if (!is_kernel_name(manifest->name))
        return reader_fail(reader, TUNE_EINVAL,
            "\"%s\" is no kernel name: a small letter, then small letters, digits and _",
            manifest->name);
    if (manifest->source == NULL && asprintf(&manifest->source, "%s.cu", manifest->name) < 0) {
        manifest->source = NULL;
        return reader_no_memory(reader);
    }
    if (!is_source_name(manifest->source))
        return reader_fail(reader, TUNE_EINVAL,
            "\"source\" must be a plain file name that ends in .cu, not \"%s\"", manifest->source);
    return 0;
}

/* What the source gets for a value. It cannot end the macro, nor the line, nor call anything. */
static int read_define(struct reader *reader, const json_t *json, char **define)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "_.+-:<>,\"' ";
    if (reader_text(reader, json, "define", MANIFEST_MAX_NAME, true, define))
        return -1;
    return *define == NULL || (*define)[strspn(*define, allowed)] == '\0'
               ? 0
               : reader_fail(reader, TUNE_EINVAL,
                     "\"define\" has \"%.20s\"; letters, digits, blanks and _ . + - : < > , \" ' "
                     "may "
                     "stand in it",
                     *define + strspn(*define, allowed));
}

/* Where the values of a param or of a choice go to. */
struct values {
    size_t *count;
    int64_t *values;
    char **names, **defines; /* defines NULL: none may be given */
};

/* An integer, or one with a name. */
static int read_value(struct reader *reader, const json_t *json, const struct values *list)
{
    static const char *const known[] = {"value", "name", "define", NULL};
    static const char *const known_plain[] = {"value", "name", NULL};
    size_t index = (*list->count)++;
    char **name = &list->names[index];
    struct tune_error cause = {0};
    if (json_is_integer(json)) {
        list->values[index] = json_integer_value(json);
        return 0;
    }
    if (!json_is_object(json))
        return reader_fail(reader, TUNE_EINVAL,
            "a value must be an integer (without point or exponent) or {\"value\", \"name\"}");
    if (reader_known(reader, json, list->defines ? known : known_plain) ||
        reader_text(reader, json, "name", MANIFEST_MAX_NAME, false, name) ||
        (list->defines != NULL && read_define(reader, json, &list->defines[index])))
        return -1;
    if (!reader_is_identifier(*name))
        return reader_fail(reader, TUNE_EINVAL,
            "\"%s\" cannot name a value: a letter, then letters, digits and _", *name);
    return proto_int(json, "value", INT64_MIN, INT64_MAX, &list->values[index], &cause)
               ? reader_wrap(reader, &cause)
               : 0;
}

static int check_unique(struct reader *reader, const struct values *list)
{
    size_t last = *list->count - 1;
    for (size_t i = 0; i < last; i++) {
        bool same_name = list->names[i] != NULL && list->names[last] != NULL &&
                         strcmp(list->names[i], list->names[last]) == 0;
        if (list->values[i] == list->values[last] || same_name)
            return reader_fail(reader, TUNE_EINVAL, "the same value or name as values[%zu]", i);
    }
    return 0;
}

/* `place` is "params[0] (BM)". */
static int read_values(struct reader *reader, const json_t *object, const char *place,
    int64_t smallest, const struct values *list)
{
    json_t *array;
    size_t count;
    if (reader_array(reader, object, "values", 1, MANIFEST_MAX_VALUES, &array, &count))
        return -1;
    for (size_t i = 0; i < count; i++) {
        reader_at(reader, "%s, values[%zu]", place, i);
        if (read_value(reader, json_array_get(array, i), list) || check_unique(reader, list))
            return -1;
        if (list->values[i] < smallest)
            return reader_fail(
                reader, TUNE_EINVAL, "%" PRId64 " is below %" PRId64, list->values[i], smallest);
    }
    return 0;
}

static int read_dim(struct reader *reader, const json_t *object, size_t i)
{
    static const char *const known[] = {"name", "meaning", "values", NULL};
    struct manifest *manifest = reader->manifest;
    struct manifest_dim *dim = &manifest->dims[manifest->dim_count++];
    const struct values list = {&dim->value_count, dim->values, dim->value_names, NULL};
    char place[MANIFEST_MAX_NAME + 32];
    reader_at(reader, "dims[%zu]", i);
    if (reader_known(reader, object, known) ||
        read_name(reader, object, manifest_dim_slot(manifest, i), &dim->name) ||
        reader_text(reader, object, "meaning", MANIFEST_MAX_TEXT, false, &dim->meaning))
        return -1;
    if (json_object_get(object, "values") == NULL ||
        json_is_null(json_object_get(object, "values")))
        return 0;
    snprintf(place, sizeof place, "dims[%zu] (%s)", i, dim->name);
    return read_values(reader, object, place, 1, &list);
}

static int read_dims(struct reader *reader, const json_t *root)
{
    json_t *array;
    size_t count;
    if (reader_array(reader, root, "dims", 1, MANIFEST_MAX_DIMS, &array, &count))
        return -1;
    for (size_t i = 0; i < count; i++)
        if (read_dim(reader, json_array_get(array, i), i))
            return -1;
    reader_at(reader, "%s", "");
    return 0;
}

static int read_param(struct reader *reader, const json_t *object, size_t i)
{
    static const char *const known[] = {"name", "meaning", "values", NULL};
    struct manifest *manifest = reader->manifest;
    struct manifest_param *param = &manifest->params[manifest->param_count++];
    const struct values list = {
        &param->value_count, param->values, param->value_names, param->value_defines};
    char place[MANIFEST_MAX_NAME + 32];
    reader_at(reader, "params[%zu]", i);
    if (reader_known(reader, object, known) ||
        read_name(reader, object, manifest_param_slot(manifest, i), &param->name))
        return -1;
    snprintf(place, sizeof place, "params[%zu] (%s)", i, param->name);
    reader_at(reader, "%s", place);
    if (reader_text(reader, object, "meaning", MANIFEST_MAX_TEXT, false, &param->meaning))
        return -1;
    return read_values(reader, object, place, INT64_MIN, &list);
}

static int read_params(struct reader *reader, const json_t *root)
{
    json_t *array;
    size_t count;
    if (reader_array(reader, root, "params", 1, MANIFEST_MAX_PARAMS, &array, &count))
        return -1;
    for (size_t i = 0; i < count; i++)
        if (read_param(reader, json_array_get(array, i), i))
            return -1;
    reader_at(reader, "%s", "");
    return 0;
}

/* --- derived values, constraints, requirements ------------------------------------------------ */

/* Slots of derived values not read yet have the name "": an expression can only look back. */
static int read_derived(struct reader *reader, const json_t *root)
{
    static const char *const known[] = {"name", "expr", "meaning", NULL};
    struct manifest *manifest = reader->manifest;
    json_t *array;
    size_t count;
    if (reader_array(reader, root, "derived", 0, MANIFEST_MAX_DERIVED, &array, &count))
        return -1;
    manifest->derived_count = count;
    for (size_t i = 0; i < count; i++)
        reader->names[manifest_derived_slot(manifest, i)] = "";
    reader->names[manifest_dtype_bytes_slot(manifest)] = "dtype_bytes";
    reader->names[manifest_turn_slot(manifest)] = "turn";
    for (size_t i = 0; i < count; i++) {
        struct manifest_derived *derived = &manifest->derived[i];
        const json_t *object = json_array_get(array, i);
        reader_at(reader, "derived[%zu]", i);
        if (reader_known(reader, object, known) ||
            reader_expr(reader, object, "expr", READS_ANY, false, &derived->expr) ||
            read_name(reader, object, manifest_derived_slot(manifest, i), &derived->name) ||
            reader_text(reader, object, "meaning", MANIFEST_MAX_TEXT, true, &derived->meaning))
            return -1;
        derived->last_param = manifest_last_param(manifest, derived->expr);
        reader->derived_reads[i] = reader_reads(reader, derived->expr);
    }
    reader_at(reader, "%s", "");
    return 0;
}

static int read_constraints(struct reader *reader, const json_t *root)
{
    static const char *const known[] = {"expr", "message", NULL};
    struct manifest *manifest = reader->manifest;
    json_t *array;
    size_t count;
    if (reader_array(reader, root, "constraints", 0, MANIFEST_MAX_ITEMS, &array, &count))
        return -1;
    manifest->constraints = reader_calloc(reader, count, sizeof *manifest->constraints);
    if (manifest->constraints == NULL)
        return -1;
    for (size_t i = 0; i < count; i++) {
        struct manifest_constraint *constraint =
            &manifest->constraints[manifest->constraint_count++];
        const json_t *object = json_array_get(array, i);
        reader_at(reader, "constraints[%zu]", i);
        if (reader_known(reader, object, known) ||
            reader_expr(reader, object, "expr", READS_ANY, false, &constraint->expr) ||
            reader_text(reader, object, "message", MANIFEST_MAX_TEXT, false, &constraint->message))
            return -1;
        constraint->last_param = manifest_last_param(manifest, constraint->expr);
        constraint->params_only = reader_reads(reader, constraint->expr) == READS_PARAMS;
    }
    reader_at(reader, "%s", "");
    return 0;
}

static size_t later_param(size_t a, size_t b)
{
    return a == SIZE_MAX ? b : b == SIZE_MAX ? a : a > b ? a : b;
}

static int read_requirements(struct reader *reader, const json_t *root)
{
    static const char *const known[] = {"when", "sm", "arch_suffix", NULL};
    struct manifest *manifest = reader->manifest;
    json_t *array;
    size_t count;
    if (reader_array(reader, root, "requires", 0, MANIFEST_MAX_ITEMS, &array, &count))
        return -1;
    manifest->requirements = reader_calloc(reader, count, sizeof *manifest->requirements);
    if (manifest->requirements == NULL)
        return -1;
    for (size_t i = 0; i < count; i++) {
        struct manifest_requirement *requirement =
            &manifest->requirements[manifest->requirement_count++];
        const json_t *object = json_array_get(array, i);
        reader_at(reader, "requires[%zu]", i);
        if (reader_known(reader, object, known) ||
            reader_expr(reader, object, "when", READS_ANY, true, &requirement->when) ||
            reader_expr(reader, object, "sm", READS_ANY, false, &requirement->sm) ||
            reader_text(reader, object, "arch_suffix", 1, true, &requirement->arch_suffix))
            return -1;
        const char *suffix = requirement->arch_suffix;
        if (suffix != NULL && strcmp(suffix, "a") != 0 && strcmp(suffix, "f") != 0)
            return reader_fail(reader, TUNE_EINVAL, "\"arch_suffix\" must be \"a\" or \"f\"");
        requirement->last_param = manifest_last_param(manifest, requirement->sm);
        if (requirement->when != NULL)
            requirement->last_param = later_param(
                requirement->last_param, manifest_last_param(manifest, requirement->when));
    }
    reader_at(reader, "%s", "");
    return 0;
}

/* --- shapes, dtypes, defaults ----------------------------------------------------------------- */

static int read_shapes(struct reader *reader, const json_t *root, const char *key, size_t min,
    int64_t (**shapes)[MANIFEST_MAX_DIMS], size_t *shape_count)
{
    json_t *array;
    size_t count;
    if (reader_array(reader, root, key, min, MANIFEST_MAX_ITEMS, &array, &count))
        return -1;
    *shapes = reader_calloc(reader, count, sizeof **shapes);
    if (*shapes == NULL)
        return -1;
    for (size_t i = 0; i < count; i++) {
        struct tune_error cause = {0};
        reader_at(reader, "%s[%zu]", key, i);
        if (manifest_shape_from_json(
                reader->manifest, json_array_get(array, i), (*shapes)[i], &cause))
            return reader_wrap(reader, &cause);
    }
    *shape_count = count;
    reader_at(reader, "%s", "");
    return 0;
}

static int read_dtypes(struct reader *reader, const json_t *root)
{
    struct manifest *manifest = reader->manifest;
    json_t *array;
    size_t count;
    if (reader_array(reader, root, "dtypes", 1, MANIFEST_MAX_ITEMS, &array, &count))
        return -1;
    manifest->dtypes = reader_calloc(reader, count, sizeof *manifest->dtypes);
    if (manifest->dtypes == NULL)
        return -1;
    for (size_t i = 0; i < count; i++) {
        const char *dtype = json_string_value(json_array_get(array, i));
        reader_at(reader, "dtypes[%zu]", i);
        if (dtype == NULL || dtype_bytes(dtype) == 0)
            return reader_fail(reader, TUNE_EINVAL,
                "\"%.20s\" is not one of f64 f32 f16 bf16 tf32 "
                "i64 i32 i16 i8 u64 u32 u16 u8",
                dtype ? dtype : "(not a string)");
        if (manifest_has_dtype(manifest, dtype))
            return reader_fail(reader, TUNE_EINVAL, "\"%s\" stands twice", dtype);
        manifest->dtypes[i] = strdup(dtype);
        if (manifest->dtypes[i] == NULL)
            return reader_no_memory(reader);
        manifest->dtype_count++;
    }
    reader_at(reader, "%s", "");
    return 0;
}

static int read_defaults(struct reader *reader, const json_t *root)
{
    struct manifest *manifest = reader->manifest;
    const json_t *json = json_object_get(root, "default");
    size_t count = json_is_array(json) ? json_array_size(json) : 1;
    if (json == NULL || count == 0)
        return reader_fail(reader, TUNE_EINVAL,
            "field \"default\" is missing: a configuration, or a list of which the first valid one "
            "is taken");
    if (count > MANIFEST_MAX_ITEMS)
        return reader_fail(reader, TUNE_ELIMIT,
            "field \"default\" has %zu elements; the limit is %d", count, MANIFEST_MAX_ITEMS);
    manifest->defaults = reader_calloc(reader, count, sizeof *manifest->defaults);
    if (manifest->defaults == NULL)
        return -1;
    for (size_t i = 0; i < count; i++) {
        struct tune_error cause = {0};
        reader_at(reader, "default[%zu]", i);
        if (manifest_config_from_json(manifest,
                json_is_array(json) ? json_array_get(json, i) : json, manifest->defaults[i],
                &cause))
            return reader_wrap(reader, &cause);
    }
    manifest->default_count = count;
    reader_at(reader, "%s", "");
    return 0;
}

static int read_compile_dims(struct reader *reader, const json_t *root)
{
    struct manifest *manifest = reader->manifest;
    json_t *array;
    size_t count;
    if (reader_array(reader, root, "compile_dims", 0, MANIFEST_MAX_DIMS, &array, &count))
        return -1;
    for (size_t i = 0; i < count; i++) {
        const char *name = json_string_value(json_array_get(array, i));
        size_t dim = name ? manifest_find_dim(manifest, name) : SIZE_MAX;
        reader_at(reader, "compile_dims[%zu]", i);
        if (dim == SIZE_MAX)
            return reader_fail(reader, TUNE_EINVAL, "this must be the name of a dim");
        for (size_t j = 0; j < i; j++)
            if (manifest->compile_dims[j] == dim)
                return reader_fail(reader, TUNE_EINVAL, "\"%s\" stands twice", name);
        manifest->compile_dims[manifest->compile_dim_count++] = dim;
    }
    reader_at(reader, "%s", "");
    return 0;
}

/* What only the static estimate uses. */
static int read_estimate(struct reader *reader, const json_t *root)
{
    struct manifest *manifest = reader->manifest;
    return reader_expr(
               reader, root, "traffic_global", READS_ANY, true, &manifest->traffic_global) ||
                   reader_expr(reader, root, "traffic_shared", READS_ANY, true,
                       &manifest->traffic_shared) ||
                   reader_expr(
                       reader, root, "flops_done", READS_ANY, true, &manifest->flops_done) ||
                   reader_expr(
                       reader, root, "round_trips", READS_ANY, true, &manifest->round_trips) ||
                   reader_expr(reader, root, "registers", READS_ANY, true, &manifest->registers)
               ? -1
               : 0;
}

/* --- the whole -------------------------------------------------------------------------------- */

static int read_root(struct reader *reader, const json_t *root)
{
    static const char *const known[] = {"tunerd", "name", "summary", "source", "dims", "shapes",
        "shapes_cpu", "dtypes", "params", "derived", "constraints", "requires", "buffers",
        "launches", "reference", "checks", "default", "flops", "bytes", "compile_dims",
        "traffic_global", "traffic_shared", "flops_done", "round_trips", "registers", NULL};
    struct manifest *manifest = reader->manifest;
    for (size_t i = 0; i < DEVICE_ATTRIBUTE_COUNT; i++)
        reader->names[i] = device_attribute_names[i];
    if (reader_known(reader, root, known) || read_head(reader, root) || read_dims(reader, root) ||
        read_params(reader, root) || read_derived(reader, root) || read_constraints(reader, root) ||
        read_requirements(reader, root) || read_dtypes(reader, root) ||
        read_shapes(reader, root, "shapes", 1, &manifest->shapes, &manifest->shape_count) ||
        read_shapes(
            reader, root, "shapes_cpu", 0, &manifest->shapes_cpu, &manifest->shape_cpu_count) ||
        read_defaults(reader, root) || read_compile_dims(reader, root) ||
        reader_geometry(reader, root) ||
        reader_expr(reader, root, "flops", READS_DIMS, true, &manifest->flops) ||
        reader_expr(reader, root, "bytes", READS_DIMS, true, &manifest->bytes) ||
        read_estimate(reader, root))
        return -1;
    manifest->canonical = json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS);
    return manifest->canonical ? 0 : reader_no_memory(reader);
}

struct manifest *manifest_create(
    const char *text, size_t length, const char *file, struct tune_error *err)
{
    struct tune_error cause = {0};
    struct reader reader = {.file = file, .err = err};
    if (length > MANIFEST_MAX_BYTES) {
        reader_fail(&reader, TUNE_ELIMIT, "the manifest has %zu bytes; the limit is %zu", length,
            MANIFEST_MAX_BYTES);
        return NULL;
    }
    json_t *root = proto_parse(text, length, &cause);
    if (root == NULL) {
        reader_wrap(&reader, &cause);
        return NULL;
    }
    reader.manifest = reader_calloc(&reader, 1, sizeof *reader.manifest);
    if (reader.manifest != NULL && read_root(&reader, root)) {
        manifest_destroy(reader.manifest);
        reader.manifest = NULL;
    }
    json_decref(root);
    return reader.manifest;
}
