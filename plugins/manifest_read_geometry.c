/* Reads the second half of a manifest: buffers, launches, reference and checks. */
#include "manifest_read.h"

#include "client/proto.h"
#include "plugins/sparse_shape.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Index of `word` in a NULL-ended list, or -1. */
static int find_word(const char *const *words, const char *word)
{
    for (int i = 0; words[i] != NULL; i++)
        if (strcmp(words[i], word) == 0)
            return i;
    return -1;
}

/* null counts as absent, as everywhere in the protocol. */
static bool has_field(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return value != NULL && !json_is_null(value);
}

/* --- buffers ---------------------------------------------------------------------------------- */

static size_t find_buffer(const struct manifest *manifest, const char *name)
{
    size_t count = manifest->buffer_count + manifest->reference_buffer_count;
    for (size_t i = 0; i < count; i++)
        if (manifest->buffers[i].name != NULL && strcmp(manifest->buffers[i].name, name) == 0)
            return i;
    return SIZE_MAX;
}

/* {"value": x} or {"below": EXPR} */
static int read_fill_object(
    struct reader *reader, const json_t *fill, unsigned allowed, struct manifest_buffer *buffer)
{
    static const char *const known[] = {"value", "below", NULL};
    struct tune_error cause = {0};
    if (reader_known(reader, fill, known))
        return -1;
    if (has_field(fill, "value") == has_field(fill, "below"))
        return reader_fail(reader, TUNE_EINVAL, "\"fill\" takes either a \"value\" or a \"below\"");
    buffer->fill = has_field(fill, "value") ? FILL_VALUE : FILL_BELOW;
    if (buffer->fill == FILL_BELOW)
        return reader_expr(reader, fill, "below", allowed, false, &buffer->fill_below);
    return proto_number_opt(fill, "value", &buffer->fill_value, &cause)
               ? reader_wrap(reader, &cause)
               : 0;
}

/* The parts of a matrix: what stands in a buffer, and whether it is as wide as that needs. */
static int check_csr(struct reader *reader, const char *word, const struct manifest_buffer *buffer)
{
    const struct manifest *manifest = reader->manifest;
    if (buffer->role != BUFFER_IN && buffer->role != BUFFER_INOUT)
        return reader_fail(reader, TUNE_EINVAL, "\"fill\": only an input can be %s", word);
    if (!sparse_shape_is_one(manifest))
        return reader_fail(reader, TUNE_EINVAL,
            "\"fill\" is %s, but the dims describe no matrix: ROWS and NONZEROS are missing", word);
    for (size_t i = 0; i < manifest->dtype_count; i++) {
        const char *dtype = manifest_buffer_dtype(manifest, buffer, manifest->dtypes[i]);
        bool is_narrow = strcmp(dtype, "i32") == 0, is_wide = strcmp(dtype, "i64") == 0;
        if ((buffer->fill == FILL_CSR_COLUMNS && !is_narrow) ||
            (buffer->fill == FILL_CSR_LONGEST_ROW && !is_wide) || (!is_narrow && !is_wide))
            return reader_fail(reader, TUNE_EINVAL, "\"fill\" %s needs the dtype %s, not %s", word,
                buffer->fill == FILL_CSR_COLUMNS       ? "i32"
                : buffer->fill == FILL_CSR_LONGEST_ROW ? "i64"
                                                       : "i32 or i64",
                dtype);
    }
    return 0;
}

static int read_fill(
    struct reader *reader, const json_t *object, unsigned allowed, struct manifest_buffer *buffer)
{
    static const char *const words[] = {"uniform", "small_int", "index", "zero", "sorted",
        "csr_offsets", "csr_columns", "csr_longest_row", NULL};
    const json_t *fill = json_object_get(object, "fill");
    buffer->fill = FILL_ZERO;
    if (fill == NULL)
        return buffer->role == BUFFER_IN || buffer->role == BUFFER_INOUT
                   ? reader_fail(reader, TUNE_EINVAL,
                         "field \"fill\" is missing: uniform, small_int, index, zero, sorted, "
                         "{\"value\": x}, {\"below\": n} or a part of a sparse matrix")
                   : 0;
    if (json_is_object(fill))
        return read_fill_object(reader, fill, allowed, buffer);
    int word = json_is_string(fill) ? find_word(words, json_string_value(fill)) : -1;
    if (word < 0)
        return reader_fail(reader, TUNE_EINVAL,
            "\"fill\" must be uniform, small_int, index, zero, sorted, csr_offsets, csr_columns, "
            "csr_longest_row, {\"value\": x} or {\"below\": n}");
    buffer->fill = (enum buffer_fill)word;
    return buffer->fill < FILL_CSR_OFFSETS ? 0 : check_csr(reader, words[word], buffer);
}

static int read_buffer_name(struct reader *reader, const json_t *object, size_t index)
{
    struct manifest_buffer *buffer = &reader->manifest->buffers[index];
    if (reader_text(reader, object, "name", MANIFEST_MAX_NAME, false, &buffer->name))
        return -1;
    if (!reader_is_identifier(buffer->name))
        return reader_fail(reader, TUNE_EINVAL,
            "\"%s\" is no name: a letter, then letters, digits and _", buffer->name);
    if (find_buffer(reader->manifest, buffer->name) != index)
        return reader_fail(reader, TUNE_EINVAL, "a buffer \"%s\" stands above", buffer->name);
    return 0;
}

static int check_dtype(struct reader *reader, const char *dtype)
{
    if (strcmp(dtype, "T") == 0 || dtype_bytes(dtype) > 0)
        return 0;
    return reader_fail(reader, TUNE_EINVAL,
        "\"dtype\" is \"%s\"; it must be T or one of f64 f32 f16 bf16 tf32 i64 i32 i16 i8 u64 u32 "
        "u16 u8",
        dtype);
}

/* Every swept dtype has its own, so that none is forgotten when one is added. */
static int read_dtype_map(struct reader *reader, const json_t *map, struct manifest_buffer *buffer)
{
    const struct manifest *manifest = reader->manifest;
    const char *key;
    json_t *value;
    buffer->dtypes = reader_calloc(reader, manifest->dtype_count, sizeof *buffer->dtypes);
    if (buffer->dtypes == NULL)
        return -1;
    json_object_foreach ((json_t *)map, key, value) {
        if (!manifest_has_dtype(manifest, key))
            return reader_fail(
                reader, TUNE_EINVAL, "\"dtype\" has \"%.20s\", which is not swept", key);
    }
    for (size_t i = 0; i < manifest->dtype_count; i++) {
        if (reader_text(
                reader, map, manifest->dtypes[i], MANIFEST_MAX_NAME, false, &buffer->dtypes[i]) ||
            check_dtype(reader, buffer->dtypes[i]))
            return -1;
        if (strcmp(buffer->dtypes[i], "T") == 0)
            return reader_fail(reader, TUNE_EINVAL, "\"dtype\" has T in its map");
    }
    return 0;
}

static int read_buffer_dtype(
    struct reader *reader, const json_t *object, struct manifest_buffer *buffer)
{
    const json_t *dtype = json_object_get(object, "dtype");
    if (json_is_object(dtype))
        return read_dtype_map(reader, dtype, buffer);
    return reader_text(reader, object, "dtype", MANIFEST_MAX_NAME, false, &buffer->dtype) ||
                   check_dtype(reader, buffer->dtype)
               ? -1
               : 0;
}

static int read_buffer(struct reader *reader, const json_t *object, size_t index, bool of_reference)
{
    static const char *const known[] = {
        "name", "dtype", "count", "fill", "role", "zero_before", NULL};
    static const char *const roles[] = {"in", "out", "inout", "scratch", NULL};
    struct manifest_buffer *buffer = &reader->manifest->buffers[index];
    struct tune_error cause = {0};
    const char *role;
    if (reader_known(reader, object, known) || read_buffer_name(reader, object, index) ||
        read_buffer_dtype(reader, object, buffer))
        return -1;
    if (proto_string(object, "role", &role, &cause) ||
        proto_bool_opt(object, "zero_before", &buffer->zero_before, &cause))
        return reader_wrap(reader, &cause);
    int word = find_word(roles, role);
    if (word < 0 || (of_reference && word != BUFFER_OUT && word != BUFFER_SCRATCH))
        return reader_fail(reader, TUNE_EINVAL, "\"role\" is \"%.20s\"; it must be %s", role,
            of_reference ? "out or scratch for a buffer of the reference"
                         : "in, out, inout or scratch");
    buffer->role = (enum buffer_role)word;
    if (buffer->zero_before && (buffer->role == BUFFER_IN || buffer->role == BUFFER_INOUT))
        return reader_fail(reader, TUNE_EINVAL, "\"zero_before\" would wipe an input");
    unsigned allowed = of_reference                     ? READS_DEVICE | READS_DIMS
                       : buffer->role == BUFFER_SCRATCH ? READS_ANY
                                                        : READS_DIMS;
    return reader_expr(reader, object, "count", allowed, false, &buffer->count) ||
                   read_fill(reader, object, allowed, buffer)
               ? -1
               : 0;
}

static int read_buffers(
    struct reader *reader, json_t *array, size_t count, const char *place, bool of_reference)
{
    struct manifest *manifest = reader->manifest;
    size_t total = manifest->buffer_count + count;
    struct manifest_buffer *buffers = realloc(manifest->buffers, (total + 1) * sizeof *buffers);
    if (buffers == NULL)
        return reader_no_memory(reader);
    memset(buffers + manifest->buffer_count, 0, count * sizeof *buffers);
    manifest->buffers = buffers;
    size_t *used = of_reference ? &manifest->reference_buffer_count : &manifest->buffer_count;
    for (size_t i = 0; i < count; i++) {
        size_t index = manifest->buffer_count + manifest->reference_buffer_count;
        (*used)++;
        reader_at(reader, "%s[%zu]", place, i);
        if (read_buffer(reader, json_array_get(array, i), index, of_reference))
            return -1;
    }
    reader_at(reader, "%s", "");
    return 0;
}

/* --- launches --------------------------------------------------------------------------------- */

/* A buffer by name, from those that are in scope: the kernel's own launches see no reference
 * buffers because these are read later. */
static int read_buffer_index(
    struct reader *reader, const json_t *object, const char *key, size_t *index)
{
    struct tune_error cause = {0};
    const char *name;
    if (proto_string(object, key, &name, &cause))
        return reader_wrap(reader, &cause);
    *index = find_buffer(reader->manifest, name);
    return *index != SIZE_MAX
               ? 0
               : reader_fail(reader, TUNE_EINVAL, "there is no buffer \"%.60s\" here", name);
}

static int read_scalar(
    struct reader *reader, const json_t *object, unsigned allowed, struct manifest_arg *arg)
{
    static const char *const types[] = {
        "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f32", "f64", NULL};
    struct tune_error cause = {0};
    if (reader_text(reader, object, "scalar", MANIFEST_MAX_NAME, false, &arg->scalar))
        return -1;
    if (find_word(types, arg->scalar) < 0)
        return reader_fail(reader, TUNE_EINVAL,
            "\"scalar\" is \"%s\"; it must be one of i8 u8 i16 "
            "u16 i32 u32 i64 u64 f32 f64",
            arg->scalar);
    bool has_number = has_field(object, "number");
    bool has_value = has_field(object, "value");
    if (has_number == has_value || (has_number && arg->scalar[0] != 'f'))
        return reader_fail(reader, TUNE_EINVAL,
            "a scalar has either \"value\" (an expression) or, "
            "for f32 and f64, \"number\"");
    if (has_value)
        return reader_expr(reader, object, "value", allowed, false, &arg->value);
    return proto_number_opt(object, "number", &arg->number, &cause) ? reader_wrap(reader, &cause)
                                                                    : 0;
}

static int read_arg(
    struct reader *reader, const json_t *object, unsigned allowed, struct manifest_arg *arg)
{
    static const char *const buffer_keys[] = {"buffer", NULL};
    static const char *const scalar_keys[] = {"scalar", "value", "number", NULL};
    bool is_scalar = has_field(object, "scalar");
    arg->buffer = SIZE_MAX;
    if (reader_known(reader, object, is_scalar ? scalar_keys : buffer_keys))
        return -1;
    return is_scalar ? read_scalar(reader, object, allowed, arg)
                     : read_buffer_index(reader, object, "buffer", &arg->buffer);
}

/* 1 to 3 expressions; those not given stay NULL. */
static int read_triple(struct reader *reader, const json_t *object, const char *key,
    unsigned allowed, struct expr *out[3])
{
    json_t *array;
    size_t count;
    if (!has_field(object, key))
        return 0;
    if (reader_array(reader, object, key, 1, 3, &array, &count))
        return -1;
    for (size_t i = 0; i < count; i++)
        if (reader_expr_value(reader, json_array_get(array, i), key, allowed, &out[i]))
            return -1;
    return 0;
}

/* A plain name, a qualified one, or a template's instance: what NVRTC takes as a name expression.
 */
static int check_entry(struct reader *reader, const char *entry)
{
    int depth = 0;
    bool is_good = isalpha((unsigned char)entry[0]) || entry[0] == '_';
    for (const char *at = entry; *at != '\0'; at++) {
        is_good = is_good && (isalnum((unsigned char)*at) || strchr("_:<>, ", *at) != NULL);
        depth += (*at == '<') - (*at == '>');
        is_good = is_good && depth >= 0;
    }
    return is_good && depth == 0
               ? 0
               : reader_fail(reader, TUNE_EINVAL,
                     "\"entry\" is \"%.60s\"; it must be a function's name, or an "
                     "instance such as k<float,16>",
                     entry);
}

static int read_memset(
    struct reader *reader, const json_t *object, unsigned allowed, struct manifest_launch *launch)
{
    static const char *const known[] = {"memset", "byte", "when", "once", NULL};
    struct tune_error cause = {0};
    int64_t byte = 0;
    launch->kind = LAUNCH_MEMSET;
    if (reader_known(reader, object, known) ||
        read_buffer_index(reader, object, "memset", &launch->buffer) ||
        reader_expr(reader, object, "when", allowed, true, &launch->when))
        return -1;
    if (proto_int_opt(object, "byte", 0, 255, &byte, &cause) ||
        proto_bool_opt(object, "once", &launch->is_once, &cause))
        return reader_wrap(reader, &cause);
    launch->memset_byte = (int)byte;
    return 0;
}

static int read_constant(
    struct reader *reader, const json_t *object, unsigned allowed, struct manifest_launch *launch)
{
    static const char *const known[] = {"constant", "buffer", "when", NULL};
    launch->kind = LAUNCH_CONSTANT;
    if (reader_known(reader, object, known) ||
        reader_text(reader, object, "constant", MANIFEST_MAX_NAME, false, &launch->constant) ||
        read_buffer_index(reader, object, "buffer", &launch->buffer) ||
        reader_expr(reader, object, "when", allowed, true, &launch->when))
        return -1;
    return reader_is_identifier(launch->constant)
               ? 0
               : reader_fail(reader, TUNE_EINVAL, "\"%s\" cannot be the name of a variable",
                     launch->constant);
}

/* What the geometry and the arguments of a launch may read. */
static unsigned allowed_in(const struct manifest_launch *launch, unsigned allowed)
{
    return launch->turns != NULL ? allowed | READS_TURN : allowed;
}

static int read_kernel(
    struct reader *reader, const json_t *object, unsigned allowed, struct manifest_launch *launch)
{
    static const char *const known[] = {"entry", "when", "grid", "block", "shared_bytes", "cluster",
        "cooperative", "repeat", "turns", "once", "args", NULL};
    struct tune_error cause = {0};
    if (reader_known(reader, object, known) ||
        reader_text(reader, object, "entry", MANIFEST_MAX_ENTRY, false, &launch->entry) ||
        check_entry(reader, launch->entry) ||
        reader_expr(reader, object, "when", allowed, true, &launch->when) ||
        reader_expr(reader, object, "turns", allowed, true, &launch->turns))
        return -1;
    allowed = allowed_in(launch, allowed);
    if (read_triple(reader, object, "grid", allowed, launch->grid) ||
        read_triple(reader, object, "block", allowed, launch->block) ||
        read_triple(reader, object, "cluster", allowed, launch->cluster) ||
        reader_expr(reader, object, "shared_bytes", allowed, true, &launch->shared_bytes) ||
        reader_expr(reader, object, "repeat", allowed, true, &launch->repeat))
        return -1;
    return proto_bool_opt(object, "cooperative", &launch->cooperative, &cause) ||
                   proto_bool_opt(object, "once", &launch->is_once, &cause)
               ? reader_wrap(reader, &cause)
               : 0;
}

static int read_args(struct reader *reader, const json_t *object, const char *place,
    unsigned allowed, struct manifest_launch *launch)
{
    json_t *array;
    size_t count;
    if (reader_array(reader, object, "args", 0, MANIFEST_MAX_ITEMS, &array, &count))
        return -1;
    launch->args = reader_calloc(reader, count, sizeof *launch->args);
    if (launch->args == NULL)
        return -1;
    for (size_t i = 0; i < count; i++) {
        struct manifest_arg *arg = &launch->args[launch->arg_count++];
        reader_at(reader, "%s.args[%zu]", place, i);
        if (read_arg(reader, json_array_get(array, i), allowed, arg))
            return -1;
    }
    return 0;
}

/* What is done once stands first, so that whoever launches can leave it out by leaving off the
 * beginning; the reference runs once in any case. */
static int check_once(
    struct reader *reader, const char *prefix, const struct manifest_launch *launches, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (launches[i].is_once && prefix[0] != '\0')
            return reader_fail(reader, TUNE_EINVAL, "the reference has no \"once\"");
        if (i > 0 && launches[i].is_once && !launches[i - 1].is_once)
            return reader_fail(
                reader, TUNE_EINVAL, "launches[%zu] is \"once\": these stand before all others", i);
    }
    return 0;
}

static int read_launches(struct reader *reader, const json_t *object, const char *prefix,
    unsigned allowed, struct manifest_launch **launches, size_t *launch_count)
{
    json_t *array;
    size_t count, kernels = 0, last_kernel = 0;
    if (reader_array(reader, object, "launches", 1, MANIFEST_MAX_ITEMS, &array, &count))
        return -1;
    *launches = reader_calloc(reader, count, sizeof **launches);
    if (*launches == NULL)
        return -1;
    for (size_t i = 0; i < count; i++) {
        struct manifest_launch *launch = &(*launches)[(*launch_count)++];
        const json_t *item = json_array_get(array, i);
        char place[64];
        snprintf(place, sizeof place, "%slaunches[%zu]", prefix, i);
        reader_at(reader, "%s", place);
        if (has_field(item, "memset")) {
            if (read_memset(reader, item, allowed, launch))
                return -1;
        } else if (has_field(item, "constant")) {
            if (read_constant(reader, item, allowed, launch))
                return -1;
        } else {
            if (read_kernel(reader, item, allowed, launch) ||
                read_args(reader, item, place, allowed_in(launch, allowed), launch))
                return -1;
            kernels += !launch->is_once;
            last_kernel = i;
        }
    }
    reader_at(reader, "%s", prefix);
    if (check_once(reader, prefix, *launches, count))
        return -1;
    if (kernels == 0)
        return reader_fail(reader, TUNE_EINVAL, "\"launches\" has no kernel that is not \"once\"");
    for (size_t i = last_kernel; i < count; i++)
        if ((*launches)[i].kind == LAUNCH_CONSTANT)
            return reader_fail(reader, TUNE_EINVAL,
                "the constant \"%s\" is set after the last kernel, so that none can read it",
                (*launches)[i].constant);
    reader_at(reader, "%s", "");
    return 0;
}

/* --- reference and checks --------------------------------------------------------------------- */

/* Macros of the reference: integers only, so that nothing else gets into the source. */
static int read_defines(struct reader *reader, const json_t *reference)
{
    struct tune_error cause = {0};
    json_t *defines;
    if (proto_object_opt(reference, "defines", &defines, &cause))
        return reader_wrap(reader, &cause);
    const char *key;
    json_t *value;
    json_object_foreach (defines, key, value) {
        if (!reader_is_identifier(key) || !json_is_integer(value))
            return reader_fail(
                reader, TUNE_EINVAL, "\"defines\": \"%.60s\" must be a name with an integer", key);
    }
    reader->manifest->reference_defines = defines ? json_deep_copy(defines) : json_object();
    return reader->manifest->reference_defines ? 0 : reader_no_memory(reader);
}

static int read_reference(struct reader *reader, const json_t *root)
{
    static const char *const known[] = {"defines", "buffers", "launches", NULL};
    struct manifest *manifest = reader->manifest;
    const json_t *reference = json_object_get(root, "reference");
    json_t *array;
    size_t count;
    if (reference == NULL)
        return reader_fail(reader, TUNE_EINVAL,
            "\"reference\" is missing: without a reference no "
            "candidate can be told right from wrong, so none would be run");
    reader_at(reader, "reference");
    if (reader_known(reader, reference, known) || read_defines(reader, reference) ||
        reader_array(reader, reference, "buffers", 1, MANIFEST_MAX_ITEMS, &array, &count) ||
        read_buffers(reader, array, count, "reference.buffers", true))
        return -1;
    return read_launches(reader, reference, "reference.", READS_DEVICE | READS_DIMS,
        &manifest->reference_launches, &manifest->reference_launch_count);
}

static int read_unit(struct reader *reader, const json_t *tolerance, struct manifest_check *check)
{
    struct tune_error cause = {0};
    const char *unit;
    if (proto_string(tolerance, "unit", &unit, &cause))
        return reader_wrap(reader, &cause);
    check->unit_roundoff = dtype_unit_roundoff(unit);
    check->unit_is_swept = strcmp(unit, "T") == 0;
    if (check->unit_roundoff == 0 && !check->unit_is_swept && strcmp(unit, "exact") != 0)
        return reader_fail(reader, TUNE_EINVAL,
            "\"unit\" is \"%.20s\"; it must be f64, f32, tf32, f16, bf16, T or exact", unit);
    return 0;
}

static int read_tolerance(struct reader *reader, const json_t *object, struct manifest_check *check)
{
    static const char *const known[] = {"factor", "unit", "growth", "terms", "absolute", NULL};
    static const char *const growths[] = {"none", "sqrt", "linear", NULL};
    struct tune_error cause = {0};
    json_t *tolerance;
    const char *growth = "none";
    check->factor = 1;
    if (proto_object_opt(object, "tolerance", &tolerance, &cause))
        return reader_wrap(reader, &cause);
    if (tolerance == NULL)
        return reader_fail(reader, TUNE_EINVAL, "field \"tolerance\" is missing");
    if (reader_known(reader, tolerance, known) || read_unit(reader, tolerance, check) ||
        reader_expr(reader, tolerance, "terms", READS_DIMS, true, &check->terms))
        return -1;
    if (proto_string_opt(tolerance, "growth", &growth, &cause) ||
        proto_number_opt(tolerance, "factor", &check->factor, &cause) ||
        proto_number_opt(tolerance, "absolute", &check->absolute, &cause))
        return reader_wrap(reader, &cause);
    int word = find_word(growths, growth);
    if (word < 0)
        return reader_fail(reader, TUNE_EINVAL, "\"growth\" must be none, sqrt or linear");
    check->growth = (enum tolerance_growth)word;
    if (check->growth != GROWTH_NONE && check->terms == NULL)
        return reader_fail(reader, TUNE_EINVAL, "\"growth\" needs \"terms\" to grow with");
    if (check->factor < 0 || check->absolute < 0)
        return reader_fail(reader, TUNE_EINVAL, "a tolerance cannot be negative");
    return 0;
}

/* A reference or scale buffer, of dtype f64 or that of the checked one. */
static int read_compared(struct reader *reader, const json_t *object, const char *key,
    const struct manifest_buffer *checked, size_t *index)
{
    struct manifest *manifest = reader->manifest;
    if (read_buffer_index(reader, object, key, index))
        return -1;
    const struct manifest_buffer *buffer = &manifest->buffers[*index];
    if (*index < manifest->buffer_count)
        return reader_fail(reader, TUNE_EINVAL,
            "\"%s\" must name a buffer of the reference; \"%s\" is the kernel's", key,
            buffer->name);
    for (size_t i = 0; i < manifest->dtype_count; i++) {
        const char *own = manifest_buffer_dtype(manifest, buffer, manifest->dtypes[i]);
        const char *wanted = manifest_buffer_dtype(manifest, checked, manifest->dtypes[i]);
        if (strcmp(own, "f64") != 0 && strcmp(own, wanted) != 0)
            return reader_fail(reader, TUNE_EINVAL,
                "buffer \"%s\" is %s; it must be f64 or %s like %s", buffer->name, own, wanted,
                checked->name);
    }
    return 0;
}

static int read_check(struct reader *reader, const json_t *object, struct manifest_check *check)
{
    static const char *const known[] = {
        "buffer", "reference", "scale", "derivation", "tolerance", NULL};
    struct manifest *manifest = reader->manifest;
    check->scale = SIZE_MAX;
    if (reader_known(reader, object, known) ||
        read_buffer_index(reader, object, "buffer", &check->buffer))
        return -1;
    const struct manifest_buffer *buffer = &manifest->buffers[check->buffer];
    if (check->buffer >= manifest->buffer_count ||
        (buffer->role != BUFFER_OUT && buffer->role != BUFFER_INOUT))
        return reader_fail(reader, TUNE_EINVAL,
            "\"buffer\" must name an out or inout buffer of the kernel; \"%s\" is none",
            buffer->name);
    if (read_compared(reader, object, "reference", buffer, &check->reference) ||
        (has_field(object, "scale") &&
            read_compared(reader, object, "scale", buffer, &check->scale)) ||
        reader_text(reader, object, "derivation", MANIFEST_MAX_TEXT, false, &check->derivation))
        return -1;
    return read_tolerance(reader, object, check);
}

static bool is_checked(const struct manifest *manifest, size_t buffer)
{
    for (size_t i = 0; i < manifest->check_count; i++)
        if (manifest->checks[i].buffer == buffer)
            return true;
    return false;
}

static int read_checks(struct reader *reader, const json_t *root)
{
    struct manifest *manifest = reader->manifest;
    json_t *array;
    size_t count;
    if (reader_array(reader, root, "checks", 1, MANIFEST_MAX_ITEMS, &array, &count))
        return -1;
    manifest->checks = reader_calloc(reader, count, sizeof *manifest->checks);
    if (manifest->checks == NULL)
        return -1;
    for (size_t i = 0; i < count; i++) {
        struct manifest_check *check = &manifest->checks[manifest->check_count++];
        reader_at(reader, "checks[%zu]", i);
        if (read_check(reader, json_array_get(array, i), check))
            return -1;
    }
    reader_at(reader, "checks");
    for (size_t i = 0; i < manifest->buffer_count; i++) {
        enum buffer_role role = manifest->buffers[i].role;
        if ((role == BUFFER_OUT || role == BUFFER_INOUT) && !is_checked(manifest, i))
            return reader_fail(reader, TUNE_EINVAL, "no check compares the output \"%s\"",
                manifest->buffers[i].name);
    }
    reader_at(reader, "%s", "");
    return 0;
}

int reader_geometry(struct reader *reader, const json_t *root)
{
    struct manifest *manifest = reader->manifest;
    json_t *array;
    size_t count;
    if (reader_array(reader, root, "buffers", 1, MANIFEST_MAX_ITEMS, &array, &count) ||
        read_buffers(reader, array, count, "buffers", false) ||
        read_launches(reader, root, "", READS_ANY, &manifest->launches, &manifest->launch_count) ||
        read_reference(reader, root))
        return -1;
    return read_checks(reader, root);
}
