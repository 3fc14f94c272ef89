/* A kernel's manifest: what there is to tune, how to launch it, and how to know that it is right.
 *
 * The file is JSON (strict: see client/proto.h), `plugins/NAME/NAME.json`. Unknown fields are
 * refused by name. Where EXPR or E stands, a JSON integer may stand too. Names of dims, params,
 * derived values and buffers are C identifiers of at most 64 bytes, begin with a letter, and are
 * distinct from each other (buffers apart), from device attributes and from functions; TUNE_ is
 * reserved. Every expression is one of plugins/expr.h over, in this order of slots:
 * device attributes (plugins/device.h), dims, params, derived values, `dtype_bytes` (size of the
 * swept dtype), and `turn`, which only a launch with "turns" may read.
 *
 *   "tunerd": 1                       version of this form
 *   "name", "summary"                 name: [a-z][a-z0-9_]{0,63}
 *   "source": "NAME.cu"               optional; looked for in the plugin's folder, then kernels_src
 *   "dims":    [{"name","meaning","values"}]   1..16
 *         values: [{"value":1,"name":"sum"},2,...], 1..64, optional: the dim is a choice, a
 *         property of the problem that takes these values (>= 1, with names or without) only. It
 *         is a part of the shape and so of every key, as its integer; who asks may give the name,
 *         and a shape that leaves it out means the first value. Shapes of different choices are
 *         different problems: none serves, or is near to, another
 *   "shapes":  [{"M":1024,...}]       swept when none is given, >= 1
 *   "shapes_cpu": [...]               optional: used instead of "shapes" on the emulated device
 *   "dtypes":  ["f32",...]            of f64 f32 f16 bf16 tf32 i64 i32 i16 i8 u64 u32 u16 u8
 *   "params":  [{"name","meaning","values":[16,32,{"value":2,"name":"xor"}]}]    1..32
 *         values: 1..64; {"value":0,"name":"half","define":"0.5"} hands the source a text instead
 *         of the integer: a number or a word, of letters, digits, blanks and any of _ . + - : < >
 *         , " '
 *   "derived": [{"name","expr","meaning"}]       may use what stands before it
 *   "constraints": [{"expr","message"}]
 *   "requires": [{"when":EXPR,"sm":EXPR,"arch_suffix":"a"}]    optional
 *         where `when` holds the configuration is valid only where `sm` (e.g. "sm >= 80") holds
 *   "buffers": [{"name","dtype","count":EXPR,"fill","role","zero_before"}]
 *         dtype: as above, or "T" for the swept dtype, or a map over all swept ones:
 *         {"f32":"f32","f16":"f32"}; count: elements, 0 for "not needed";
 *         fill: "uniform" (-1,1), mean 0 | "small_int" -8..7 | "index" 0,1,2,... | "zero" |
 * {"value":3} |
 *         {"below":EXPR}, random integers 0..EXPR-1, all of which the dtype must hold exactly |
 *         "sorted", ascending random numbers, in floats of [-1,1) | of a sparse matrix, which all
 *         buffers of a set share: "csr_offsets" (i32 or i64, ROWS + 1 of them: where each row
 *         begins), "csr_columns" (i32, NONZEROS: of each row, ascending), "csr_longest_row" (i64,
 *         1: the first of the rows with the most entries). The dims ROWS, COLUMNS, NONZEROS,
 *         SPREAD, LONGEST, BANDWIDTH and SKEW describe the matrix (plugins/sparse.h); ROWS and
 *         NONZEROS must be there, and without COLUMNS it is a graph, whose edges stand both ways.
 *         It is the sweep's input, or made from its description;
 *         role: in | out | inout | scratch; counts of "in", "out", "inout" and "below" use dims
 *         only (and dtype_bytes); "zero_before": true for a memset to 0 before the launches,
 *         inside the timed span
 *   "launches": [KERNEL | MEMSET | CONSTANT]     at least one kernel
 *         KERNEL: {"entry","when":EXPR,"grid":[E,E,E],"block":[E,E,E],"shared_bytes":E,
 *         "cluster":[E,E,E],"cooperative":bool,"repeat":E,"turns":E,"once":bool,
 *         "args":[{"buffer":"A"} | {"scalar":"i64","value":EXPR} | {"scalar":"f32","number":0.5}]};
 *         missing entries of grid and block are 1; "repeat" makes one launch so many times in a
 *         row, "turns" (0 to 256) stands for so many launches, one after the other, in whose other
 *         expressions (but "when") `turn` is 0, 1, 2, ...: the steps of a simulation, the passes
 *         of a sort
 *         MEMSET: {"memset":"C","byte":0,"when":EXPR,"once":bool}
 *         "once": what is done when an input changes, not at each call: putting a matrix into
 *         another format. It is not timed, stands before all that is not once, and what it leaves
 *         in scratch stays as it is between calls
 *         CONSTANT: {"constant":"taps","buffer":"filter","when":EXPR} copies the buffer to the
 *         beginning of the source's variable `extern "C" __constant__ ... taps[...]` for the
 *         kernels that follow, inside the timed span
 *   "reference": {"defines":{"TUNE_REFERENCE":1},    passed instead of the params
 *         "buffers":[... role scratch or out ...],
 *         "launches":[...]}                          exprs: device, dims
 *   "checks":  [{"buffer":"C","reference":"C_ref","scale":"C_scale","derivation":"...",
 *         "tolerance":{"factor":2,"unit":"f32","growth":"sqrt","terms":EXPR,"absolute":0}}]
 *         |C - C_ref| <= absolute + factor * u * g(terms) * s, u = unit roundoff of `unit` (f32:
 *         2^-24, f16 and tf32: 2^-11, bf16: 2^-8, f64: 2^-53; "T": that of the swept dtype, 0 for
 *         an integer) or 0 for "exact"; g = 1 ("none", the default), sqrt or linear; s = the scale
 *         buffer's element (f64), or |C_ref| without one. NaN equals NaN only; an infinity equals
 *         the same infinity only. Reference and scale buffers: f64, or C's dtype
 *   "default": {"BM":64,...} or a list; the first valid one is the default
 *   "flops", "bytes": EXPR            per call, over dims and dtype_bytes
 *   "compile_dims": ["K"]             dims passed as macros too, also to the reference (then the
 *         cubin depends on them)
 *   "traffic_global", "traffic_shared", "flops_done", "round_trips", "registers": EXPR over
 *         everything, optional: what the static estimate (plugins/estimate.h) knows of a
 *         configuration beside its launches:
 *         traffic_global: bytes that a call moves between L2 and the multiprocessors (default:
 *         bytes); traffic_shared: bytes that its threads read and write in shared memory, each
 *         thread's own (a broadcast saves none), times the degree of their bank conflicts (default:
 *         0); flops_done: operations carried out, those on padding included (default: flops);
 *         round_trips: how many times, one after the other, a block waits for global memory and has
 *         nothing else to do, as a tiled loop does that loads a tile, waits, and computes (default:
 *         0); registers: per thread, about (default: unknown). Rough is enough: they order
 *         candidates before any compile, no more.
 *
 * Every out or inout buffer needs a check: an output that nothing compares would be "right" always.
 *
 * The source gets every param (its value, or that value's "define") and compile dim as a macro
 * NAME=value, and for the swept dtype TUNE_T=<C type> and TUNE_DTYPE_<F32>=1. */
#ifndef TUNE_MANIFEST_H
#define TUNE_MANIFEST_H

#include "device.h"
#include "client/error.h"
#include "expr.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MANIFEST_VERSION 1
#define MANIFEST_MAX_DIMS 16
#define MANIFEST_MAX_PARAMS 32
#define MANIFEST_MAX_VALUES 64
#define MANIFEST_MAX_DERIVED 32
#define MANIFEST_MAX_SLOTS                                                                         \
    (DEVICE_ATTRIBUTE_COUNT + MANIFEST_MAX_DIMS + MANIFEST_MAX_PARAMS + MANIFEST_MAX_DERIVED + 2)
#define MANIFEST_MAX_BYTES ((size_t)1 << 20)
#define MANIFEST_MAX_NAME 64   /* bytes of a name */
#define MANIFEST_MAX_ENTRY 256 /* bytes of an entry, which may be a name expression */
#define MANIFEST_MAX_TEXT 4096 /* bytes of a meaning, message, summary or derivation */
#define MANIFEST_MAX_ITEMS                                                                         \
    256 /* constraints, buffers, launches, args, checks, shapes, defaults: each */
#define MANIFEST_MAX_TURNS 256 /* launches that one stands for */
#define MANIFEST_MAX_DIM (INT64_C(1) << 62)

struct manifest_dim {
    char *name, *meaning;
    size_t value_count; /* 0: any size >= 1; else a choice of these */
    int64_t values[MANIFEST_MAX_VALUES];
    char *value_names[MANIFEST_MAX_VALUES]; /* NULL where the value is a plain integer */
};

struct manifest_param {
    char *name, *meaning;
    size_t value_count;
    int64_t values[MANIFEST_MAX_VALUES];
    char *value_names[MANIFEST_MAX_VALUES];   /* NULL where the value is a plain integer */
    char *value_defines[MANIFEST_MAX_VALUES]; /* what the macro says instead of it, or NULL */
};

struct manifest_derived {
    char *name, *meaning;
    struct expr *expr;
    size_t last_param; /* as in struct manifest_constraint, through other derived values too */
};

struct manifest_constraint {
    struct expr *expr;
    char *message;
    size_t last_param; /* it can be checked once params 0..last_param are bound; SIZE_MAX: before
                          any */
    bool params_only;  /* reads params (perhaps dtype_bytes), no dim and no device attribute, not
                          even  through a derived value: must stand as a static_assert too */
};

struct manifest_requirement {
    struct expr *when; /* NULL: always */
    struct expr *sm;
    char *arch_suffix; /* "a" or NULL */
    size_t last_param;
};

enum buffer_role { BUFFER_IN, BUFFER_OUT, BUFFER_INOUT, BUFFER_SCRATCH };
enum buffer_fill {
    FILL_UNIFORM,
    FILL_SMALL_INT,
    FILL_INDEX,
    FILL_ZERO,
    FILL_SORTED,
    FILL_CSR_OFFSETS,
    FILL_CSR_COLUMNS,
    FILL_CSR_LONGEST_ROW,
    FILL_VALUE,
    FILL_BELOW
};

struct manifest_buffer {
    char *name;
    char *dtype;   /* "T" stays "T"; NULL: by the swept dtype */
    char **dtypes; /* for each of the manifest's dtypes, or NULL */
    struct expr *count;
    enum buffer_fill fill;
    double fill_value;
    struct expr *fill_below; /* of FILL_BELOW */
    enum buffer_role role;
    bool zero_before;
};

struct manifest_arg {
    size_t buffer;      /* index into the buffers in scope, SIZE_MAX for a scalar */
    char *scalar;       /* "i32", "i64", "f32", ... */
    struct expr *value; /* integer expression, or NULL: number */
    double number;
};

enum launch_kind { LAUNCH_KERNEL, LAUNCH_MEMSET, LAUNCH_CONSTANT };

struct manifest_launch {
    enum launch_kind kind;
    size_t buffer; /* that a memset clears, or that is copied to a constant */
    int memset_byte;
    char *constant; /* its variable */
    char *entry;    /* a name, or a name expression such as k<float,16> */
    struct expr *when, *grid[3], *block[3], *cluster[3], *shared_bytes, *repeat,
        *turns; /* NULL: default */
    bool cooperative;
    bool is_once; /* before the first call with these inputs, outside the timed span */
    size_t arg_count;
    struct manifest_arg *args;
};

enum tolerance_growth { GROWTH_NONE, GROWTH_SQRT, GROWTH_LINEAR };

struct manifest_check {
    size_t buffer, reference;
    size_t scale; /* SIZE_MAX: |reference| */
    double factor, unit_roundoff, absolute;
    bool unit_is_swept; /* "T": unit_roundoff is dtype_unit_roundoff of the swept dtype */
    enum tolerance_growth growth;
    struct expr *terms; /* NULL: 1 */
    char *derivation;
};

struct manifest {
    char *name, *summary, *source;
    size_t dim_count, param_count, derived_count, constraint_count, requirement_count;
    struct manifest_dim dims[MANIFEST_MAX_DIMS];
    struct manifest_param params[MANIFEST_MAX_PARAMS];
    struct manifest_derived derived[MANIFEST_MAX_DERIVED];
    struct manifest_constraint *constraints;
    struct manifest_requirement *requirements;
    size_t shape_count, shape_cpu_count;
    int64_t (*shapes)[MANIFEST_MAX_DIMS];
    int64_t (*shapes_cpu)[MANIFEST_MAX_DIMS];
    size_t dtype_count;
    char **dtypes;
    /* Buffers of the kernel come first, those of the reference after them, one index space. */
    size_t buffer_count, reference_buffer_count;
    struct manifest_buffer *buffers;
    size_t launch_count, reference_launch_count;
    struct manifest_launch *launches, *reference_launches;
    json_t *reference_defines;
    size_t check_count;
    struct manifest_check *checks;
    size_t default_count;
    int64_t (*defaults)[MANIFEST_MAX_PARAMS];
    struct expr *flops, *bytes;
    struct expr *traffic_global, *traffic_shared, *flops_done, *round_trips,
        *registers; /* or NULL */
    size_t compile_dim_count;
    size_t compile_dims[MANIFEST_MAX_DIMS]; /* indices into dims */
    char *canonical; /* compact JSON with sorted keys: the manifest's part of the fingerprint */
};

/* Reads a manifest's text. New, or NULL with the field that is wrong. `file` names it in errors. */
struct manifest *manifest_create(
    const char *text, size_t length, const char *file, struct tune_error *err);
void manifest_destroy(struct manifest *manifest);

/* Slot numbers: device attributes, dims, params, derived, dtype_bytes, turn. */
size_t manifest_dim_slot(const struct manifest *manifest, size_t dim);
size_t manifest_param_slot(const struct manifest *manifest, size_t param);
size_t manifest_derived_slot(const struct manifest *manifest, size_t derived);
size_t manifest_dtype_bytes_slot(const struct manifest *manifest);
size_t manifest_turn_slot(const struct manifest *manifest);

size_t manifest_slot_count(const struct manifest *manifest);

/* The highest param that an expression reads, directly or through derived values; SIZE_MAX: none.
 */
size_t manifest_last_param(const struct manifest *manifest, const struct expr *expr);

/* Fills slots[] from device, dims and dtype (params, derived and turn stay 0). */
void manifest_bind(const struct manifest *manifest, const struct device_info *device,
    const int64_t *dims, const char *dtype, int64_t *slots);

/* Index of a name, or SIZE_MAX. */
size_t manifest_find_dim(const struct manifest *manifest, const char *name);
size_t manifest_find_param(const struct manifest *manifest, const char *name);
bool manifest_has_dtype(const struct manifest *manifest, const char *dtype);

/* The text that the source gets for a value; NULL: the value itself. Borrowed. */
const char *manifest_param_define(const struct manifest_param *param, int64_t value);

/* A param's value from JSON (an integer, or a value's name) or from text; it must be one of the
 * listed values. Strings such as "0x10" or " 16" are refused. */
int manifest_param_value(
    const struct manifest_param *param, const json_t *json, int64_t *value, struct tune_error *err);
int manifest_param_value_text(
    const struct manifest_param *param, const char *text, int64_t *value, struct tune_error *err);

/* {"M":1024,...} -> dims, each >= 1 and all but choices present; and back (new reference), all dims
 * as integers. */
int manifest_shape_from_json(
    const struct manifest *manifest, const json_t *json, int64_t *dims, struct tune_error *err);
json_t *manifest_shape_to_json(const struct manifest *manifest, const int64_t *dims);

/* A configuration as JSON (value names where there are names) and back: all params, no others. */
int manifest_config_from_json(
    const struct manifest *manifest, const json_t *json, int64_t *values, struct tune_error *err);
json_t *manifest_config_to_json(const struct manifest *manifest, const int64_t *values);

/* The canonical texts of keys: "M=1024,N=1024" and "BM=64,BN=64" (integers, manifest order).
 * malloc'ed. */
char *manifest_shape_text(const struct manifest *manifest, const int64_t *dims);
char *manifest_config_text(const struct manifest *manifest, const int64_t *values);
/* The canonical text back to values: all params in order, each value one of the listed. */
int manifest_config_from_text(
    const struct manifest *manifest, const char *text, int64_t *values, struct tune_error *err);

/* The canonical text of a shape back to dims: 0, or -1 when it is no shape of this manifest. */
int manifest_shape_from_text(const struct manifest *manifest, const char *text, int64_t *dims);

/* Whether two shapes agree in every choice. */
bool manifest_same_choices(const struct manifest *manifest, const int64_t *a, const int64_t *b);
/* Sets "choices" of a JSON object to the names that the choices of a shape have, {"OP":"max"}, for
 * people beside the integers of its "shape"; sets nothing where none has a name. */
void manifest_name_choices(const struct manifest *manifest, const int64_t *dims, json_t *json);
/* "N=1024 OP=max", for people; malloc'ed. */
char *manifest_shape_words(const struct manifest *manifest, const int64_t *dims);

/* The logarithms to base 2 of the dims that are sizes, choices left out, for manifest_log_distance;
 * how many they are. */
size_t manifest_shape_logs(const struct manifest *manifest, const int64_t *dims, double *logs);
/* How far apart two shapes are, in doublings. With x_i the difference of the logarithms to base 2
 * of dim i, and n dims:
 *     sum |x_i|  +  sum over pairs |x_i - x_j| / (n - 1)
 * The first sum is how much the sizes differ, the second how much the aspect ratios do: doubling
 * each of three dims is 3 apart, doubling one dim three times 6. Symmetric, 0 for equal shapes;
 * no product of dims is formed, so nothing can overflow. */
double manifest_log_distance(size_t count, const double *a, const double *b);
/* The same from dims to a shape's canonical text; negative when the text is no shape of this
 * manifest, or one of other choices. */
double manifest_shape_distance(
    const struct manifest *manifest, const int64_t *dims, const char *shape);

/* Bytes per element of a dtype; 0 for an unknown name. */
int64_t dtype_bytes(const char *dtype);
/* 2^-24 for f32 and so on; 0 for integers and unknown names. */
double dtype_unit_roundoff(const char *dtype);
/* The dtype of a buffer's elements, which may be tf32. */
const char *manifest_buffer_dtype(
    const struct manifest *manifest, const struct manifest_buffer *buffer, const char *swept);
/* The one that they lie in memory as: tf32 in f32. */
const char *dtype_stored(const char *dtype);
/* Its type in CUDA C++ ("float", "__half", ...); NULL for an unknown name. */
const char *dtype_c_type(const char *dtype);

/* The answer of `describe`: the manifest itself, with "source" always there, "default" always a
 * list, and "params_only" in each constraint. New reference. */
json_t *manifest_to_json(const struct manifest *manifest);

#endif
