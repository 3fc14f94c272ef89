/* How a T1's kernel is launched: dims, grid and block, arguments, and the kernel itself as its own
 * reference. What does not fit together is written as well as it can be, with a warning. */
#include "t1_internal.h"
#include "t1_signature.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARGUMENTS_MAX 64

static const char *const dim_names[T1_DIMS] = {
    "problem_size_x", "problem_size_y", "problem_size_z"};

/* One argument as the description has it, and how it is passed. */
struct argument {
    const json_t *json;
    char name[MANIFEST_MAX_NAME + 1];
    const char *dtype;
    int64_t per_element;                 /* 4 for a float4 */
    bool is_vector, is_output, is_fixed; /* fixed: a size that does not follow the problem's */
    bool is_passed;
    char *count;
};

/* --- dims ------------------------------------------------------------------------------------- */

static int add_dims(struct t1_reader *reader)
{
    const json_t *size = json_object_get(reader->kernel, "ProblemSize");
    size_t count = json_is_array(size) ? json_array_size(size) : json_is_integer(size);
    json_t *dims = json_array(), *shape = json_object();
    if (count == 0)
        t1_warn(reader, "the description has no ProblemSize of integers; 1 is written");
    reader->dim_count = count == 0 ? 1 : count > T1_DIMS ? T1_DIMS : count;
    for (size_t i = 0; i < reader->dim_count; i++) {
        const json_t *json = json_is_array(size) ? json_array_get(size, i) : size;
        reader->problem[i] =
            json_is_integer(json) && json_integer_value(json) > 0 ? json_integer_value(json) : 1;
        if (count > 0 && reader->problem[i] != json_integer_value(json))
            t1_warn(reader, "number %zu of the ProblemSize is no positive integer; 1 is written",
                i + 1);
        json_array_append_new(dims, json_pack("{s:s, s:s}", "name", dim_names[i], "meaning",
                                        "element of the description's ProblemSize"));
        json_object_set_new(shape, dim_names[i], json_integer(reader->problem[i]));
    }
    json_object_set_new(reader->manifest, "dims", dims);
    json_object_set_new(reader->manifest, "shapes", json_pack("[o]", shape));
    return 0;
}

/* --- sizes ------------------------------------------------------------------------------------ */

/* Names for sizes: the problem's, and the parameters, as themselves or (for the reference) as the
 * values of the default. */
struct names {
    struct python_symbol symbols[MANIFEST_MAX_PARAMS + 2 * T1_DIMS];
    size_t symbol_count;
    struct python_name constants[MANIFEST_MAX_PARAMS];
    size_t constant_count;
};

static void add_symbol(
    struct names *names, const char *name, int64_t index, const char *text, int64_t lo, int64_t hi)
{
    names->symbols[names->symbol_count++] = (struct python_symbol){name, index, text, lo, hi};
}

static void name_problem(const struct t1_reader *reader, struct names *names)
{
    bool is_list = json_is_array(json_object_get(reader->kernel, "ProblemSize"));
    for (size_t i = 0; i < reader->dim_count; i++) {
        add_symbol(names, "ProblemSize", is_list ? (int64_t)i : -1, dim_names[i], 1, INT64_MAX);
        add_symbol(names, dim_names[i], -1, dim_names[i], 1, INT64_MAX);
    }
}

enum { PARAMS_VARY, PARAMS_DEFAULT, PARAMS_LISTS };

static void name_params(const struct t1_reader *reader, int as, struct names *names)
{
    for (size_t i = 0; i < reader->param_count; i++) {
        const struct t1_param *param = &reader->params[i];
        struct python_name constant = {param->name, param->values[param->fallback]};
        int64_t lo = param->numbers[0], hi = lo;
        for (size_t j = 1; j < param->count; j++) {
            lo = param->numbers[j] < lo ? param->numbers[j] : lo;
            hi = param->numbers[j] > hi ? param->numbers[j] : hi;
        }
        if (as == PARAMS_VARY && param->is_integer)
            add_symbol(names, param->name, -1, param->name, lo, hi);
        if (as == PARAMS_LISTS)
            constant.value = (struct python_value){
                .type = PYTHON_LIST, .integer = (int64_t)param->count, .items = param->values};
        if (as != PARAMS_VARY)
            names->constants[names->constant_count++] = constant;
    }
}

static void make_names(const struct t1_reader *reader, int as, struct names *names)
{
    *names = (struct names){0};
    name_problem(reader, names);
    name_params(reader, as, names);
}

/* A member that is a text or an integer, as an expression; NULL when it is absent or cannot be
 * said, which is warned of. */
static char *size_of(
    struct t1_reader *reader, const struct names *names, const json_t *json, const char *what)
{
    struct tune_error why = {0};
    char text[32], *size = NULL;
    if (json_is_integer(json)) {
        snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, json_integer_value(json));
        return strdup(text);
    }
    if (!json_is_string(json) || json_string_length(json) == 0)
        return NULL;
    size = python_size(json_string_value(json), names->symbols, names->symbol_count,
        names->constants, names->constant_count, &why);
    if (size == NULL)
        t1_warn(reader, "%s \"%.60s\": %s; 1 is written: correct it before a sweep", what,
            json_string_value(json), why.text);
    return size ? size : strdup("1");
}

/* --- grid and block --------------------------------------------------------------------------- */

static const json_t *axis_of(const struct t1_reader *reader, const char *key, int axis)
{
    static const char *const axes[] = {"X", "Y", "Z"};
    return json_object_get(json_object_get(reader->kernel, key), axes[axis]);
}

/* The product of the divisors of an axis as Python, "" when there are none. Without any the tuner
 * divides by the parameter block_size_x, _y or _z where there is one. */
static char *divisors(const struct t1_reader *reader, int axis)
{
    static const char *const keys[] = {"GridDivX", "GridDivY", "GridDivZ"};
    static const char *const blocks[] = {"block_size_x", "block_size_y", "block_size_z"};
    const json_t *list = json_object_get(reader->kernel, keys[axis]), *item;
    char *text = NULL;
    size_t length, i;
    FILE *out = open_memstream(&text, &length);
    if (out == NULL)
        return NULL;
    json_array_foreach ((json_t *)list, i, item) {
        if (json_is_string(item))
            fprintf(out, "%s(%s)", i > 0 ? " * " : "", json_string_value(item));
        else if (json_is_integer(item))
            fprintf(out, "%s%" JSON_INTEGER_FORMAT, i > 0 ? " * " : "", json_integer_value(item));
    }
    for (size_t j = 0; json_array_size(list) == 0 && j < reader->param_count; j++)
        if (strcmp(reader->params[j].name, blocks[axis]) == 0)
            fputs(blocks[axis], out);
    return fclose(out) == 0 ? text : NULL;
}

static bool has_divisors(const struct t1_reader *reader)
{
    return json_array_size(json_object_get(reader->kernel, "GridDivX")) > 0 ||
           json_array_size(json_object_get(reader->kernel, "GridDivY")) > 0 ||
           json_array_size(json_object_get(reader->kernel, "GridDivZ")) > 0;
}

/* ceildiv(what, divisor), both taken. */
static char *ceiling(char *what, char *divisor)
{
    char *text = NULL;
    if (what != NULL && divisor != NULL && strcmp(divisor, "1") != 0)
        text = asprintf(&text, "ceildiv(%s, %s)", what, divisor) < 0 ? NULL : text;
    else if (what != NULL)
        text = strdup(what);
    free(what);
    free(divisor);
    return text;
}

/* Blocks along an axis, from the problem and its divisors. */
static char *divided_grid(struct t1_reader *reader, const struct names *names, int axis)
{
    if ((size_t)axis >= reader->dim_count)
        return strdup("1");
    char *python = divisors(reader, axis);
    json_t *json = python && python[0] != '\0' ? json_string(python) : json_integer(1);
    char *grid =
        ceiling(strdup(dim_names[axis]), size_of(reader, names, json, "the divisors of the grid"));
    json_decref(json);
    free(python);
    return grid;
}

/* The same from GlobalSize, which counts blocks (CUDA) or threads (OpenCL, Vulkan). */
static char *global_grid(
    struct t1_reader *reader, const struct names *names, int axis, const char *block)
{
    char *size = size_of(reader, names, axis_of(reader, "GlobalSize", axis), "GlobalSize");
    bool is_blocks = strcmp(told_text(reader->kernel, "GlobalSizeType"), "CUDA") == 0;
    return ceiling(size ? size : strdup("1"), is_blocks ? NULL : strdup(block));
}

/* A filling as an integer; what is none, or has no 64 bits, is 0. */
static json_int_t integer_of(const json_t *fill)
{
    double real = json_real_value(fill);
    return json_is_integer(fill) ? json_integer_value(fill)
           : fabs(real) < 9e18   ? (json_int_t)real
                                 : 0;
}

static json_t *launch_json(
    struct t1_reader *reader, const struct argument *args, size_t count, bool of_reference)
{
    struct names names;
    json_t *grid = json_array(), *block = json_array(), *list = json_array();
    make_names(reader, of_reference ? PARAMS_DEFAULT : PARAMS_VARY, &names);
    for (int axis = 0; axis < T1_DIMS; axis++) {
        char *threads = size_of(reader, &names, axis_of(reader, "LocalSize", axis), "LocalSize");
        if (threads == NULL)
            threads = strdup("1");
        char *blocks = has_divisors(reader) ? divided_grid(reader, &names, axis)
                                            : global_grid(reader, &names, axis, threads);
        json_array_append_new(grid, json_string(blocks));
        json_array_append_new(block, json_string(threads));
        free(blocks);
        free(threads);
    }
    for (size_t i = 0; i < count; i++) {
        const json_t *fill = json_object_get(args[i].json, "FillValue");
        char reference[MANIFEST_MAX_NAME + 8];
        snprintf(reference, sizeof reference, "%s_ref", args[i].name);
        if (!args[i].is_passed)
            continue;
        json_array_append_new(list,
            args[i].is_vector ? json_pack("{s:s}", "buffer",
                                    of_reference && args[i].is_output ? reference : args[i].name)
            : args[i].dtype[0] == 'f'
                ? json_pack(
                      "{s:s, s:f}", "scalar", args[i].dtype, "number", json_number_value(fill))
                : json_pack("{s:s, s:I}", "scalar", args[i].dtype, "value", integer_of(fill)));
    }
    json_int_t shared = json_integer_value(json_object_get(reader->kernel, "SharedMemory"));
    return json_pack("{s:s, s:o, s:o, s:I, s:o}", "entry", told_text(reader->kernel, "KernelName"),
        "grid", grid, "block", block, "shared_bytes", shared > 0 ? shared : (json_int_t)0, "args",
        list);
}

/* --- arguments -------------------------------------------------------------------------------- */

/* "float4" -> f32 and 4. */
static const char *dtype_of(const char *type, int64_t *per_element)
{
    static const struct {
        const char *type, *dtype;
    } types[] = {{"bool", "u8"}, {"int8", "i8"}, {"uint8", "u8"}, {"int16", "i16"},
        {"uint16", "u16"}, {"int32", "i32"}, {"uint32", "u32"}, {"int64", "i64"}, {"uint64", "u64"},
        {"half", "f16"}, {"float", "f32"}, {"double", "f64"}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        size_t length = strlen(types[i].type);
        if (strcmp(type, types[i].type) == 0) {
            *per_element = 1;
            return types[i].dtype;
        }
        if (types[i].dtype[0] == 'f' && strncmp(type, types[i].type, length) == 0) {
            *per_element = strtol(type + length, NULL, 10);
            return *per_element > 0 && *per_element <= 16 ? types[i].dtype : NULL;
        }
    }
    return NULL;
}

static bool is_true(const json_t *json)
{
    return json_is_true(json) || (json_is_integer(json) && json_integer_value(json) != 0);
}

static int read_argument(struct t1_reader *reader, const json_t *json, size_t number,
    const struct names *names, struct argument *argument)
{
    char fallback[32];
    const char *name = told_text(json, "Name"), *access = told_text(json, "AccessType");
    const char *memory = told_text(json, "MemoryType");
    snprintf(fallback, sizeof fallback, "arg%zu", number + 1);
    *argument = (struct argument){.json = json, .is_passed = true};
    t1_identifier(name[0] != '\0' ? name : fallback, "arg_", argument->name);
    argument->dtype = dtype_of(told_text(json, "Type"), &argument->per_element);
    argument->is_vector = strcmp(memory, "Scalar") != 0;
    if (argument->dtype == NULL || (!argument->is_vector && strcmp(argument->dtype, "f16") == 0)) {
        t1_warn(reader, "argument %s: its type \"%s\" is none that can be passed; int32 is written",
            argument->name, told_text(json, "Type"));
        argument->dtype = "i32";
        argument->per_element = 1;
    }
    if (argument->is_vector && memory[0] != '\0' && strcmp(memory, "Vector") != 0)
        t1_warn(reader, "argument %s: memory of the type %s is written as a vector", argument->name,
            memory);
    argument->is_output = argument->is_vector &&
                          (strncmp(access, "Write", 5) == 0 || strncmp(access, "ReadW", 5) == 0 ||
                              is_true(json_object_get(json, "Output")));
    if (!argument->is_vector)
        return 0;
    char what[MANIFEST_MAX_NAME + 32];
    snprintf(what, sizeof what, "argument %s: its Size", argument->name);
    argument->count = size_of(reader, names, json_object_get(json, "Size"), what);
    if (argument->count == NULL) {
        t1_warn(reader, "argument %s has no Size; one element is written", argument->name);
        argument->count = strdup("1");
    }
    argument->is_fixed = argument->count != NULL && strstr(argument->count, "problem_size") == NULL;
    return argument->count ? 0 : tune_fail(reader->err, TUNE_ENOMEM, "no memory for an argument");
}

/* What it is filled with, as a manifest says it. */
static json_t *fill_json(struct t1_reader *reader, const struct argument *argument)
{
    const char *type = told_text(argument->json, "FillType");
    const json_t *value = json_object_get(argument->json, "FillValue");
    if (strcmp(type, "Random") == 0)
        return json_string(argument->dtype[0] == 'f' ? "uniform" : "small_int");
    if (type[0] != '\0' && strcmp(type, "Constant") != 0)
        t1_warn(reader, "argument %s: a filling by %s is not carried over; zeros are written",
            argument->name, type);
    double number = type[0] == '\0' || strcmp(type, "Constant") == 0 ? json_number_value(value) : 0;
    return number == 0 ? json_string("zero") : json_pack("{s:f}", "value", number);
}

static json_t *buffer_json(
    struct t1_reader *reader, const struct argument *argument, bool of_reference)
{
    char name[MANIFEST_MAX_NAME + 8];
    char count[EXPR_TEXT_LIMIT + 32];
    snprintf(name, sizeof name, "%s%s", argument->name, of_reference ? "_ref" : "");
    snprintf(count, sizeof count, argument->per_element > 1 ? "(%s) * %d" : "%s", argument->count,
        (int)argument->per_element);
    json_t *buffer =
        json_pack("{s:s, s:s, s:s}", "name", name, "dtype", argument->dtype, "count", count);
    json_object_set_new(buffer, "role", json_string(argument->is_output ? "out" : "in"));
    if (!argument->is_output)
        json_object_set_new(buffer, "fill", fill_json(reader, argument));
    else if (strncmp(told_text(argument->json, "AccessType"), "ReadW", 5) == 0)
        json_object_set_new(buffer, "zero_before", json_true());
    return buffer;
}

static void warn_of_content(struct t1_reader *reader, const struct argument *argument)
{
    const char *fill = told_text(argument->json, "FillType");
    bool is_zero = json_number_value(json_object_get(argument->json, "FillValue")) == 0 &&
                   strcmp(fill, "Random") != 0;
    if (strncmp(told_text(argument->json, "AccessType"), "ReadW", 5) == 0 && !is_zero)
        t1_warn(reader,
            "argument %s is read and written: it starts at 0 here, not as the description fills it",
            argument->name);
}

/* --- checks ----------------------------------------------------------------------------------- */

#define RELATIVE_DEFAULT                                                                           \
    1e-4 /* the threshold that the format's readers take when none is given                        \
          */

static const json_t *validation_of(const struct t1_reader *reader, const char *name)
{
    const json_t *list = json_object_get(reader->kernel, "ReferenceArguments"), *item;
    size_t i;
    json_array_foreach ((json_t *)list, i, item) {
        if (strcmp(told_text(item, "TargetName"), name) == 0)
            return item;
    }
    return NULL;
}

static json_t *check_json(struct t1_reader *reader, const struct argument *argument)
{
    const json_t *validation = validation_of(reader, told_text(argument->json, "Name"));
    const json_t *given = json_object_get(validation, "ValidationThreshold");
    const char *method = told_text(validation, "ValidationMethod");
    double threshold = json_is_number(given) ? json_number_value(given) : RELATIVE_DEFAULT;
    bool is_relative = method[0] == '\0' || strcmp(method, "SideBySideRelativeComparison") == 0;
    char reference[MANIFEST_MAX_NAME + 8], derivation[256];
    snprintf(reference, sizeof reference, "%s_ref", argument->name);
    json_t *tolerance;
    if (argument->dtype[0] != 'f') {
        tolerance = json_pack("{s:i, s:s}", "factor", 0, "unit", "exact");
        snprintf(derivation, sizeof derivation, "Integers: each must be equal.");
    } else {
        bool is_half = strcmp(argument->dtype, "f16") == 0;
        double unit = is_half ? 0x1p-11 : 0x1p-24;
        double factor = is_relative ? threshold / unit : 0;
        if (is_half && factor < 4)
            factor = 4; /* two results that were each rounded to half */
        tolerance = json_pack("{s:f, s:s, s:f}", "factor", factor, "unit", is_half ? "f16" : "f32",
            "absolute", is_relative ? 0.0 : threshold);
        snprintf(derivation, sizeof derivation,
            "%s %g %s: no derivation from the operations, since the description tells none.",
            is_relative ? "Relative to the default's result," : "Absolute,", threshold,
            json_is_number(given) ? "as the description demands" : "for want of a threshold in it");
    }
    return json_pack("{s:s, s:s, s:s, s:o}", "buffer", argument->name, "reference", reference,
        "derivation", derivation, "tolerance", tolerance);
}

/* --- the kernel's signature ------------------------------------------------------------------- */

static bool is_constant(const struct argument *argument)
{
    return strcmp(told_text(argument->json, "MemType"), "Constant") == 0 ||
           strcmp(told_text(argument->json, "MemoryType"), "Symbol") == 0;
}

/* Arguments that the kernel reads from constant memory are not passed. */
static void leave_constants(struct t1_reader *reader, struct argument *args, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!is_constant(&args[i]))
            continue;
        args[i].is_passed = false;
        t1_warn(reader,
            "argument %s goes to constant memory, which tunerd does not fill: it is not passed",
            args[i].name);
    }
}

static bool fits(const struct signature *signature, const struct argument *args, size_t count)
{
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        if (!args[i].is_passed)
            continue;
        if (at == signature->count || signature->is_pointer[at] != args[i].is_vector)
            return false;
        at++;
    }
    return at == signature->count;
}

/* Two names for one benchmark are a sign that the arguments were copied from another. */
void t1_compare_names(struct t1_reader *reader, const json_t *general)
{
    const char *a = told_text(general, "BenchmarkName");
    const char *b = told_text(reader->kernel, "BenchmarkName");
    size_t length = strlen(a) < strlen(b) ? strlen(a) : strlen(b);
    if (a[0] != '\0' && b[0] != '\0' && strncasecmp(a, b, length) != 0)
        t1_warn(reader,
            "the description is of \"%s\", but its KernelSpecification is of \"%s\": the argument "
            "list may be another kernel's",
            a, b);
}

static void match_signature(struct t1_reader *reader, struct argument *args, size_t count)
{
    const char *name = told_text(reader->kernel, "KernelName");
    struct signature signature;
    if (reader->options->source == NULL) {
        leave_constants(reader, args, count);
        t1_warn(reader,
            "the kernel's source is not at hand: whether the arguments match it is not known");
        return;
    }
    if (!signature_find(reader->options->source, name, &signature)) {
        leave_constants(reader, args, count);
        t1_warn(reader,
            "the source has no __global__ function \"%s\" with parameters to compare with", name);
        return;
    }
    if (!fits(&signature, args, count))
        leave_constants(reader, args, count);
    if (!fits(&signature, args, count))
        t1_warn(reader,
            "the arguments of the description do not match %s(%s): the space can be used, but the "
            "kernel cannot be launched before buffers and args are corrected",
            name, signature.text);
}

/* --- the whole -------------------------------------------------------------------------------- */

static size_t read_arguments(struct t1_reader *reader, struct argument *args, int *status)
{
    const json_t *list = json_object_get(reader->kernel, "Arguments");
    size_t count = json_array_size(list);
    struct names names;
    make_names(reader, PARAMS_LISTS, &names);
    if (count > ARGUMENTS_MAX) {
        *status = tune_fail(reader->err, TUNE_ELIMIT,
            "the description has %zu arguments; the limit is %d", count, ARGUMENTS_MAX);
        return 0;
    }
    for (size_t i = 0; *status == 0 && i < count; i++)
        *status = read_argument(reader, json_array_get(list, i), i, &names, &args[i]);
    return count;
}

/* A manifest needs an output to compare; one that nothing writes says that there is none. */
static size_t add_stand_in(struct t1_reader *reader, struct argument *args, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (args[i].is_output)
            return count;
    if (count == ARGUMENTS_MAX)
        free(args[--count].count);
    t1_warn(reader,
        "the description has no output: nothing can be checked before buffers, args and "
        "reference are completed");
    args[count] = (struct argument){.name = "no_output",
        .dtype = "i32",
        .per_element = 1,
        .is_vector = true,
        .is_output = true,
        .count = strdup("1")};
    return args[count].count ? count + 1 : count;
}

/* Buffers of a size that is a number are right for one problem size only. */
static void fix_problem(struct t1_reader *reader, const struct argument *args, size_t count)
{
    bool is_fixed = false;
    for (size_t i = 0; i < count; i++)
        is_fixed |= args[i].is_passed && args[i].is_vector && args[i].is_fixed &&
                    strcmp(args[i].count, "1") != 0;
    json_t *constraints = json_object_get(reader->manifest, "constraints");
    for (size_t i = 0; is_fixed && !reader->is_quiet && i < reader->dim_count; i++) {
        char expr[96];
        snprintf(expr, sizeof expr, "%s == %" PRId64, dim_names[i], reader->problem[i]);
        json_array_append_new(constraints,
            json_pack("{s:s, s:s}", "expr", expr, "message",
                "the description gives its arguments fixed sizes, for this problem size alone"));
    }
}

static void warn_of_options(struct t1_reader *reader)
{
    const json_t *list = json_object_get(reader->kernel, "CompilerOptions"), *item;
    const char *language = told_text(reader->kernel, "Language");
    size_t i;
    json_array_foreach ((json_t *)list, i, item) {
        const char *option = json_is_string(item) ? json_string_value(item) : "";
        if (strncmp(option, "-std=", 5) != 0)
            t1_warn(reader, "the compiler option \"%.80s\" is not carried over", option);
    }
    if (strcmp(language, "CUDA") != 0)
        t1_warn(reader,
            "the kernel is written in %s, which is not compiled here: its space can be used, for "
            "records of other tuners say",
            language[0] != '\0' ? language : "no stated language");
}

static void assemble(struct t1_reader *reader, const struct argument *args, size_t count)
{
    json_t *buffers = json_array(), *references = json_array(), *checks = json_array();
    const char *dtype = reader->options->dtype;
    for (size_t i = 0; i < count; i++) {
        if (!args[i].is_vector || (!args[i].is_passed && !args[i].is_output))
            continue;
        if (dtype == NULL)
            dtype = args[i].dtype;
        json_array_append_new(buffers, buffer_json(reader, &args[i], false));
        if (!args[i].is_output)
            continue;
        warn_of_content(reader, &args[i]);
        json_array_append_new(references, buffer_json(reader, &args[i], true));
        json_array_append_new(checks, check_json(reader, &args[i]));
    }
    json_object_set_new(reader->manifest, "dtypes", json_pack("[s]", dtype ? dtype : "f32"));
    json_object_set_new(reader->manifest, "buffers", buffers);
    json_object_set_new(
        reader->manifest, "launches", json_pack("[o]", launch_json(reader, args, count, false)));
    reader->is_quiet = true; /* the reference's launch would repeat what was said */
    json_object_set_new(reader->manifest, "reference",
        json_pack("{s:{s:i}, s:o, s:[o]}", "defines", "TUNE_REFERENCE", 1, "buffers", references,
            "launches", launch_json(reader, args, count, true)));
    json_object_set_new(reader->manifest, "checks", checks);
}

int t1_add_launch(struct t1_reader *reader)
{
    struct argument args[ARGUMENTS_MAX] = {0};
    bool was_quiet = reader->is_quiet;
    int status = add_dims(reader);
    warn_of_options(reader);
    size_t count = read_arguments(reader, args, &status);
    if (status == 0) {
        match_signature(reader, args, count);
        count = add_stand_in(reader, args, count);
        fix_problem(reader, args, count);
        assemble(reader, args, count);
        reader->is_quiet = was_quiet;
    }
    for (size_t i = 0; i < count; i++)
        free(args[i].count);
    return status;
}
