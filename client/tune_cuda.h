/* Launches tuned kernels: for programs that have the CUDA driver's header. Header only, C11 and
 * C++11; link with libtune and libcuda (-ltune -lcuda).
 *
 *     struct tune_kernel *gemm;
 *     struct tune_dim shape[] = {{"M", m}, {"N", n}, {"K", k}};
 *     CUdeviceptr buffers[] = {a, b, c};
 *     if (tune_kernel_open(tune, "gemm", "f32", &gemm, &err) ||
 *         tune_kernel_launch(gemm, stream, shape, 3, buffers, 3, &err))
 *         fprintf(stderr, "%s\n", err.text);
 *
 * A launch takes the best configuration that is known for this shape on the GPU of the current
 * context, and does all that belongs to it, in order, on the stream: memsets, copies to constants,
 * every kernel, with its shared memory, cluster and cooperative attributes, scalar arguments and
 * tensor maps. When
 * tune_generation tells of news the next launch takes the new best. The first launch of a shape
 * asks for code and loads it (milliseconds, or some tenths of a second where the daemon has to
 * compile), and the first one after news asks again; others cost a look-up in a list and the
 * driver's own launch.
 *
 * Buffers are those of the manifest that are not scratch, in its order (`tunectl describe gemm`
 * lists them): their sizes follow from the shape and are not checked. Scratch is the kernel's own:
 * one block for each context and stream, allocated when first needed and grown to the largest shape
 * (which waits for the stream), so that streams do not disturb each other.
 *
 * Once. A kernel may do something once for its inputs, such as putting a matrix into another format
 * (`tunectl get` marks these launches). It is done at the first launch of a shape and when another
 * buffer is given, and what it made is kept in the stream's scratch until a launch of another shape
 * needs that. Buffers are known by their addresses: after writing to such an input, or allocating
 * another where it was, call tune_kernel_refresh. For several matrices at a time open the kernel
 * once for each.
 *
 * Code comes from the daemon alone: nothing is compiled here. Before it is loaded it is made sure
 * that this GPU and driver can run it, and said what to do where they cannot.
 *
 * Contexts. The current one counts (the CUDA runtime's too); modules are kept for each context and
 * code until tune_kernel_close, which must come before a context is destroyed.
 * Threads. Any number may launch one kernel; they take turns.
 * Constants. A kernel that reads constants has one set of them in a context: a launch on another
 * stream than the one before waits, on the GPU, until that has ended.
 * Graphs. To capture a launch, call tune_kernel_prepare for the same stream and shape before, so
 * that nothing is loaded or allocated while capturing. The graph keeps using the scratch of that
 * moment: do not launch the kernel with a larger shape on that stream while the graph is in use,
 * nor on more than 64 streams. Nor may it run beside other launches of the kernel on other streams
 * where that has constants, since nothing waits for it. Streams. One that was launched on must be
 * idle when it is destroyed.
 */
#ifndef TUNE_CUDA_H
#define TUNE_CUDA_H

#include "tune.h"

#include <cuda.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if CUDA_VERSION < 11080
#error "tune_cuda.h needs cuda.h of CUDA 11.8 or later"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* --- what is offered -------------------------------------------------------------------------- */

struct tune_kernel;

/* For the handle's life. `dtype` NULL: the first of the manifest. Asks nothing yet: whether there
 * is such a kernel shows at the first launch. *kernel is new. */
static inline int tune_kernel_open(struct tune *tune, const char *name, const char *dtype,
    struct tune_kernel **kernel, struct tune_error *err);
/* Waits for the contexts that it was used in. NULL is fine; no launch may be in flight on another
 * thread. */
static inline void tune_kernel_close(struct tune_kernel *kernel);

/* How it asks from now on: TUNE_NEAREST at the start. `session` may be NULL. */
static inline int tune_kernel_ask_by(struct tune_kernel *kernel, enum tune_policy policy,
    const char *session, struct tune_error *err);

/* Enqueues on the stream, which belongs to the current context. After an error of the driver some
 * of the launches may have been enqueued. */
static inline int tune_kernel_launch(struct tune_kernel *kernel, CUstream stream,
    const struct tune_dim *dims, size_t dim_count, const CUdeviceptr *buffers, size_t buffer_count,
    struct tune_error *err);

/* What was done once for inputs is done again at the next launch: they were written to, or others
 * lie at their addresses. */
static inline void tune_kernel_refresh(struct tune_kernel *kernel);

/* All of that but the launching. `answer` may be NULL; it gets what would be launched. */
static inline int tune_kernel_prepare(struct tune_kernel *kernel, CUstream stream,
    const struct tune_dim *dims, size_t dim_count, struct tune_answer *answer,
    struct tune_error *err);

/* --- how it is done --------------------------------------------------------------------------- */

#define TUNE_CUDA_PLANS 256    /* shapes kept ready; the one not used longest gives way */
#define TUNE_CUDA_SCRATCHES 64 /* streams; likewise */
#define TUNE_CUDA_ALIGNMENT 256
#define TUNE_CUDA_DIMS 16
#define TUNE_CUDA_PORTABLE_CLUSTER 8

/* A context that was met, and the GPU it is on. */
struct tune_cuda_place {
    struct tune_cuda_place *next;
    CUcontext context;
    char name[96], arch[16];
    int sm, driver, shared_bytes; /* those that a block has without opting in */
    bool is_asked_by_arch;        /* the daemon does not know the model */
};

struct tune_cuda_module {
    struct tune_cuda_module *next;
    CUcontext context;
    const void *code; /* of struct tune_cubin */
    CUmodule module;
    /* Of the last launch that has set constants of this module; NULL: none has. */
    CUevent constants_used;
    CUstream constants_stream;
};

struct tune_cuda_scratch {
    struct tune_cuda_scratch *next;
    CUcontext context;
    CUstream stream;
    pthread_t thread; /* CU_STREAM_PER_THREAD is another stream in each */
    CUdeviceptr base;
    size_t bytes;
    uint64_t holds; /* what was done once, see tune_cuda_once_key; 0: nothing */
};

/* One argument's bytes, filled when a plan is made or, for buffers, at each launch. */
struct tune_cuda_value {
    union {
        unsigned long long bits; /* little-endian: a narrow type lies in front */
        double real;
        float narrow;
        CUdeviceptr pointer;
#if CUDA_VERSION >= 12000
        CUtensorMap map;
#endif
    } value;
    int buffer;              /* whose pointer it is or holds; -1: none */
    struct tune_arg map_arg; /* kind TUNE_ARG_TENSOR_MAP: what to encode; points into the answer */
};

struct tune_cuda_step {
    struct tune_launch launch; /* points into the answer */
    int buffer;                /* of a memset or a copy to a constant */
    CUdeviceptr constant;
    CUfunction function;
    struct tune_cuda_value *values;
    void **params;
};

/* Where a buffer of the answer comes from. */
struct tune_cuda_buffer {
    struct tune_buffer info; /* points into the answer */
    int given;               /* index into the caller's; -1: scratch */
    bool is_read_once;       /* by a step that is done once */
    size_t offset;           /* in the scratch */
    CUdeviceptr pointer;     /* of this launch */
};

/* A shape made ready in a context. */
struct tune_cuda_plan {
    struct tune_cuda_plan *next;
    CUcontext context;
    uint64_t generation;
    size_t dim_count;
    struct tune_dim dims[TUNE_CUDA_DIMS];
    char *dim_names;
    struct tune_answer *answer;
    const void *code;
    struct tune_cuda_module *module;
    bool has_constants, has_once;
    uint64_t serial; /* of the kernel's plans, from 1 */
    size_t step_count, buffer_count, given_count, scratch_bytes;
    struct tune_cuda_step *steps;
    struct tune_cuda_buffer *buffers;
};

struct tune_kernel {
    struct tune *tune;
    char name[65], dtype[16], session[128];
    enum tune_policy policy;
    pthread_mutex_t lock;
    struct tune_cuda_place *places;
    struct tune_cuda_module *modules;
    struct tune_cuda_scratch *scratches;
    struct tune_cuda_plan *plans; /* used last first */
    uint64_t plan_count;          /* that were ever made */
};

/* "DOING: CUDA_ERROR_NAME: the driver's words" */
static inline int tune_cuda_fail(
    struct tune_error *err, CUresult result, const char *doing, const char *what)
{
    const char *name = NULL, *words = NULL;
    cuGetErrorName(result, &name);
    cuGetErrorString(result, &words);
    return tune_fail(err, TUNE_EINTERNAL, "%s %.80s: %s: %s", doing, what,
        name ? name : "unknown error", words ? words : "the driver does not say more");
}

/* --- contexts --- */

static inline int tune_cuda_describe(struct tune_cuda_place *place, struct tune_error *err)
{
    CUdevice device;
    int major = 0, minor = 0;
    CUresult result = cuCtxGetDevice(&device);
    if (result == CUDA_SUCCESS)
        result = cuDeviceGetName(place->name, (int)sizeof place->name, device);
    if (result == CUDA_SUCCESS)
        result = cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
    if (result == CUDA_SUCCESS)
        result = cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
    if (result == CUDA_SUCCESS)
        result = cuDeviceGetAttribute(
            &place->shared_bytes, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, device);
    if (result == CUDA_SUCCESS)
        result = cuDriverGetVersion(&place->driver);
    if (result != CUDA_SUCCESS)
        return tune_cuda_fail(err, result, "cannot describe", "the GPU of the current context");
    place->sm = 10 * major + minor;
    snprintf(place->arch, sizeof place->arch, place->sm ? "sm_%d" : "cpu", place->sm);
    return 0;
}

/* The current context's; NULL on failure. */
static inline struct tune_cuda_place *tune_cuda_find_place(
    struct tune_kernel *kernel, struct tune_error *err)
{
    CUcontext context = NULL;
    CUresult result = cuCtxGetCurrent(&context);
    if (result != CUDA_SUCCESS || context == NULL) {
        tune_fail(err, TUNE_EINVAL,
            "no CUDA context is current on this thread: call cuInit and cuCtxSetCurrent (or any "
            "function of the CUDA runtime) first");
        return NULL;
    }
    struct tune_cuda_place *place = kernel->places;
    while (place != NULL && place->context != context)
        place = place->next;
    if (place != NULL)
        return place;
    place = (struct tune_cuda_place *)calloc(1, sizeof *place);
    if (place == NULL) {
        tune_fail(err, TUNE_ENOMEM, "no memory for a context");
        return NULL;
    }
    place->context = context;
    if (tune_cuda_describe(place, err)) {
        free(place);
        return NULL;
    }
    place->next = kernel->places;
    kernel->places = place;
    return place;
}

/* --- code --- */

/* Whether this GPU and driver can run it; with a sentence where not. Code for sm_XY runs where X is
 * the same and Y not less; PTX on all later ones. A driver runs code of compilers of its own major
 * version, and PTX of compilers not newer than itself. */
static inline int tune_cuda_check(const struct tune_kernel *kernel,
    const struct tune_cuda_place *place, const struct tune_cubin *cubin, struct tune_error *err)
{
    bool is_family = cubin->is_ptx || place->sm / 10 == cubin->sm / 10;
    int needed = cubin->is_ptx ? cubin->min_driver : cubin->min_driver / 1000 * 1000;
    if (!is_family || place->sm < cubin->sm)
        return tune_fail(err, TUNE_EINVAL,
            "the code of %s is for sm_%d, which %.60s (%s) cannot run: ask a daemon that has this "
            "GPU",
            kernel->name, cubin->sm, place->name, place->arch);
    if (place->driver < needed)
        return tune_fail(err, TUNE_EVERSION,
            "the code of %s was compiled for CUDA %d.%d and the driver is of CUDA %d.%d: update "
            "the driver, or give the daemon an older NVRTC (tunerd --cuda DIR)",
            kernel->name, cubin->min_driver / 1000, cubin->min_driver % 1000 / 10,
            place->driver / 1000, place->driver % 1000 / 10);
    return 0;
}

static inline int tune_cuda_load(struct tune_kernel *kernel, const struct tune_cuda_place *place,
    const struct tune_cubin *cubin, struct tune_cuda_module **module, struct tune_error *err)
{
    struct tune_cuda_module *loaded = kernel->modules;
    while (loaded != NULL && (loaded->context != place->context || loaded->code != cubin->bytes))
        loaded = loaded->next;
    if (loaded == NULL) {
        if (tune_cuda_check(kernel, place, cubin, err))
            return -1;
        loaded = (struct tune_cuda_module *)calloc(1, sizeof *loaded);
        if (loaded == NULL)
            return tune_fail(err, TUNE_ENOMEM, "no memory for a module");
        CUresult result = cuModuleLoadData(&loaded->module, cubin->bytes);
        if (result != CUDA_SUCCESS) {
            free(loaded);
            return tune_cuda_fail(err, result, "cannot load the code of", kernel->name);
        }
        loaded->context = place->context;
        loaded->code = cubin->bytes;
        loaded->next = kernel->modules;
        kernel->modules = loaded;
    }
    *module = loaded;
    return 0;
}

/* Raises what the function may use, never lowers: another shape may launch it with more. */
static inline CUresult tune_cuda_allow(
    CUfunction function, const struct tune_launch *launch, const struct tune_cuda_place *place)
{
    int fixed = 0, allowed = 0;
    unsigned blocks = launch->cluster[0] * launch->cluster[1] * launch->cluster[2];
    CUresult result = cuFuncGetAttribute(&fixed, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function);
    if (result == CUDA_SUCCESS)
        result =
            cuFuncGetAttribute(&allowed, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function);
    if (result == CUDA_SUCCESS && (int)launch->shared_bytes > allowed &&
        fixed + (int)launch->shared_bytes > place->shared_bytes)
        result = cuFuncSetAttribute(
            function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)launch->shared_bytes);
    if (result == CUDA_SUCCESS && blocks > TUNE_CUDA_PORTABLE_CLUSTER)
        result =
            cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1);
    return result;
}

/* --- plans --- */

static inline void tune_cuda_free_plan(struct tune_cuda_plan *plan)
{
    if (plan == NULL)
        return;
    for (size_t i = 0; plan->steps != NULL && i < plan->step_count; i++) {
        free(plan->steps[i].values);
        free(plan->steps[i].params);
    }
    free(plan->steps);
    free(plan->buffers);
    free(plan->answer);
    free(plan->dim_names);
    free(plan);
}

static inline bool tune_cuda_is_of(const struct tune_cuda_plan *plan, CUcontext context,
    const struct tune_dim *dims, size_t dim_count)
{
    if (plan->context != context || plan->dim_count != dim_count)
        return false;
    for (size_t i = 0; i < dim_count; i++)
        if (plan->dims[i].value != dims[i].value || strcmp(plan->dims[i].name, dims[i].name) != 0)
            return false;
    return true;
}

static inline int tune_cuda_find_buffer(const struct tune_cuda_plan *plan, const char *name)
{
    for (size_t i = 0; i < plan->buffer_count; i++)
        if (strcmp(plan->buffers[i].info.name, name) == 0)
            return (int)i;
    return -1;
}

static inline int tune_cuda_plan_buffers(struct tune_cuda_plan *plan, struct tune_error *err)
{
    plan->buffers =
        (struct tune_cuda_buffer *)calloc(plan->buffer_count + 1, sizeof *plan->buffers);
    if (plan->buffers == NULL)
        return tune_fail(err, TUNE_ENOMEM, "no memory for a plan");
    for (size_t i = 0; i < plan->buffer_count; i++) {
        struct tune_cuda_buffer *buffer = &plan->buffers[i];
        tune_answer_buffer(plan->answer, i, &buffer->info);
        if (strcmp(buffer->info.role, "scratch") != 0) {
            buffer->given = (int)plan->given_count++;
            continue;
        }
        buffer->given = -1;
        buffer->offset = plan->scratch_bytes;
        plan->scratch_bytes += ((size_t)buffer->info.bytes + TUNE_CUDA_ALIGNMENT - 1) /
                               TUNE_CUDA_ALIGNMENT * TUNE_CUDA_ALIGNMENT;
    }
    return 0;
}

/* Round to nearest even, as the compiler's own conversions. */
static inline unsigned tune_cuda_bf16(float number)
{
    unsigned bits;
    memcpy(&bits, &number, sizeof bits);
    return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

static inline unsigned tune_cuda_f16(float number)
{
    unsigned bits;
    memcpy(&bits, &number, sizeof bits);
    unsigned sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
    if (size > 0x7f800000u)
        return sign | 0x7e00u; /* NaN */
    if (size >= 0x477ff000u)
        return sign | 0x7c00u; /* rounds to infinity */
    if (size >= 0x38800000u)
        return sign | (size - 0x38000000u + 0xfffu + (size >> 13 & 1u)) >> 13;
    if (size < 0x33000000u)
        return sign; /* under half of the least denormal */
    unsigned shift = 126 - (size >> 23), whole = (size & 0x7fffffu) | 0x800000u;
    unsigned kept = whole >> shift, rest = whole & ((1u << shift) - 1), half = 1u << (shift - 1);
    return sign | (kept + (rest > half || (rest == half && (kept & 1u))));
}

static inline void tune_cuda_scalar(const struct tune_arg *arg, struct tune_cuda_value *value)
{
    if (strcmp(arg->type, "f64") == 0)
        value->value.real = arg->real;
    else if (strcmp(arg->type, "f32") == 0 || strcmp(arg->type, "tf32") == 0)
        value->value.narrow = (float)arg->real;
    else if (strcmp(arg->type, "f16") == 0)
        value->value.bits = tune_cuda_f16((float)arg->real);
    else if (strcmp(arg->type, "bf16") == 0)
        value->value.bits = tune_cuda_bf16((float)arg->real);
    else
        value->value.bits = (unsigned long long)arg->integer;
}

static inline int tune_cuda_plan_arg(const struct tune_cuda_plan *plan, const struct tune_arg *arg,
    struct tune_cuda_value *value, struct tune_error *err)
{
    value->buffer = -1;
    value->map_arg = *arg;
    if (arg->kind == TUNE_ARG_SCALAR && arg->name != NULL)
        return tune_fail(err, TUNE_EINVAL,
            "the kernel wants a scalar \"%.60s\" from its caller, which tune_cuda.h does not pass: "
            "launch it by hand (tune_answer_launch)",
            arg->name);
    if (arg->kind == TUNE_ARG_SCALAR) {
        tune_cuda_scalar(arg, value);
        return 0;
    }
    value->buffer = tune_cuda_find_buffer(plan, arg->name);
    return value->buffer >= 0
               ? 0
               : tune_fail(err, TUNE_EPARSE, "the answer has no buffer \"%.60s\"", arg->name);
}

static inline int tune_cuda_plan_args(
    const struct tune_cuda_plan *plan, struct tune_cuda_step *step, struct tune_error *err)
{
    size_t count = step->launch.arg_count;
    size_t bytes = ((count + 1) * sizeof *step->values + 63) / 64 * 64;
    step->params = (void **)calloc(count + 1, sizeof *step->params);
    step->values = (struct tune_cuda_value *)aligned_alloc(64, bytes); /* as a tensor map lies */
    if (step->params == NULL || step->values == NULL)
        return tune_fail(err, TUNE_ENOMEM, "no memory for a plan");
    memset((void *)step->values, 0, bytes);
    for (size_t i = 0; i < count; i++) {
        struct tune_arg arg;
        tune_launch_arg(&step->launch, i, &arg);
        step->params[i] = &step->values[i].value;
        if (tune_cuda_plan_arg(plan, &arg, &step->values[i], err))
            return -1;
    }
    return 0;
}

/* A memset, or a copy to a constant. */
static inline int tune_cuda_plan_transfer(
    struct tune_cuda_plan *plan, struct tune_cuda_step *step, struct tune_error *err)
{
    size_t bytes = 0;
    const char *constant = step->launch.entry;
    step->buffer = tune_cuda_find_buffer(plan, step->launch.buffer);
    if (step->buffer < 0)
        return tune_fail(
            err, TUNE_EPARSE, "the answer has no buffer \"%.60s\"", step->launch.buffer);
    if (step->launch.is_memset)
        return 0;
    plan->has_constants = true;
    CUresult result = cuModuleGetGlobal(&step->constant, &bytes, plan->module->module, constant);
    if (result != CUDA_SUCCESS)
        return tune_cuda_fail(err, result, "cannot find the variable", constant);
    if ((size_t)plan->buffers[step->buffer].info.bytes > bytes)
        return tune_fail(err, TUNE_ELIMIT, "\"%.60s\" has more than the %zu bytes of \"%.60s\"",
            step->launch.buffer, bytes, constant);
    return 0;
}

static inline int tune_cuda_plan_step(struct tune_cuda_plan *plan, size_t i,
    const struct tune_cuda_place *place, struct tune_error *err)
{
    struct tune_cuda_step *step = &plan->steps[i];
    tune_answer_launch(plan->answer, i, &step->launch);
    if (step->launch.is_memset || step->launch.is_constant)
        return tune_cuda_plan_transfer(plan, step, err);
    CUresult result =
        cuModuleGetFunction(&step->function, plan->module->module, step->launch.entry);
    if (result != CUDA_SUCCESS)
        return tune_cuda_fail(err, result, "cannot find", step->launch.entry);
    result = tune_cuda_allow(step->function, &step->launch, place);
    if (result != CUDA_SUCCESS)
        return tune_cuda_fail(
            err, result, "cannot give the shared memory that it needs to", step->launch.entry);
    return tune_cuda_plan_args(plan, step, err);
}

static inline int tune_cuda_keep_dims(struct tune_cuda_plan *plan, const struct tune_dim *dims,
    size_t dim_count, struct tune_error *err)
{
    size_t bytes = 0;
    for (size_t i = 0; i < dim_count; i++)
        bytes += strlen(dims[i].name) + 1;
    plan->dim_names = (char *)malloc(bytes + 1);
    if (plan->dim_names == NULL)
        return tune_fail(err, TUNE_ENOMEM, "no memory for a plan");
    char *room = plan->dim_names;
    for (size_t i = 0; i < dim_count; i++) {
        size_t length = strlen(dims[i].name) + 1;
        memcpy(room, dims[i].name, length);
        plan->dims[i].name = room;
        plan->dims[i].value = dims[i].value;
        room += length;
    }
    plan->dim_count = dim_count;
    return 0;
}

static inline void tune_cuda_mark_once(struct tune_cuda_plan *plan)
{
    for (size_t i = 0; i < plan->step_count; i++) {
        const struct tune_cuda_step *step = &plan->steps[i];
        plan->has_once = plan->has_once || step->launch.is_once;
        for (size_t j = 0; step->launch.is_once && j < step->launch.arg_count; j++)
            if (step->values[j].buffer >= 0)
                plan->buffers[step->values[j].buffer].is_read_once = true;
    }
}

static inline int tune_cuda_fill_plan(struct tune_kernel *kernel, struct tune_cuda_plan *plan,
    const struct tune_cuda_place *place, const struct tune_cubin *cubin, struct tune_error *err)
{
    struct tune_answer_info info;
    tune_answer_info(plan->answer, &info);
    plan->code = cubin->bytes;
    plan->step_count = info.launch_count;
    plan->buffer_count = info.buffer_count;
    plan->steps = (struct tune_cuda_step *)calloc(plan->step_count + 1, sizeof *plan->steps);
    if (plan->steps == NULL)
        return tune_fail(err, TUNE_ENOMEM, "no memory for a plan");
    if (tune_cuda_plan_buffers(plan, err) ||
        tune_cuda_load(kernel, place, cubin, &plan->module, err))
        return -1;
    for (size_t i = 0; i < plan->step_count; i++)
        if (tune_cuda_plan_step(plan, i, place, err))
            return -1;
    tune_cuda_mark_once(plan);
    return 0;
}

/* Takes the answer. New, or NULL. */
static inline struct tune_cuda_plan *tune_cuda_new_plan(struct tune_kernel *kernel,
    const struct tune_cuda_place *place, const struct tune_dim *dims, size_t dim_count,
    struct tune_answer *answer, const struct tune_cubin *cubin, struct tune_error *err)
{
    struct tune_cuda_plan *plan = (struct tune_cuda_plan *)calloc(1, sizeof *plan);
    if (plan == NULL) {
        free(answer);
        tune_fail(err, TUNE_ENOMEM, "no memory for a plan");
        return NULL;
    }
    plan->answer = answer;
    plan->serial = ++kernel->plan_count;
    plan->context = place->context;
    if (tune_cuda_keep_dims(plan, dims, dim_count, err) ||
        tune_cuda_fill_plan(kernel, plan, place, cubin, err)) {
        tune_cuda_free_plan(plan);
        return NULL;
    }
    return plan;
}

/* Asks for this GPU by its model, or by its arch where the daemon has none of that model. */
static inline int tune_cuda_ask(struct tune_kernel *kernel, struct tune_cuda_place *place,
    const struct tune_dim *dims, size_t dim_count, struct tune_answer *answer,
    struct tune_cubin *cubin, struct tune_error *err)
{
    struct tune_query query;
    struct tune_error why;
    memset(&query, 0, sizeof query);
    memset(&why, 0, sizeof why);
    query.kernel = kernel->name;
    query.dims = dims;
    query.dim_count = dim_count;
    query.dtype = kernel->dtype[0] ? kernel->dtype : NULL;
    query.policy = kernel->policy;
    query.session = kernel->session[0] ? kernel->session : NULL;
    query.gpu = place->is_asked_by_arch ? NULL : place->name;
    query.arch = place->is_asked_by_arch ? place->arch : NULL;
    int status = tune_get_cubin(kernel->tune, &query, answer, cubin, &why);
    if (status != 0 && why.code == TUNE_ENODEVICE && !place->is_asked_by_arch) {
        query.gpu = NULL;
        query.arch = place->arch;
        memset(&why, 0, sizeof why);
        status = tune_get_cubin(kernel->tune, &query, answer, cubin, &why);
        place->is_asked_by_arch = status == 0;
    }
    return status == 0 ? 0 : tune_fail(err, why.code, "%s", why.text);
}

static inline void tune_cuda_drop_plans(struct tune_kernel *kernel)
{
    while (kernel->plans != NULL) {
        struct tune_cuda_plan *plan = kernel->plans;
        kernel->plans = plan->next;
        tune_cuda_free_plan(plan);
    }
}

/* Puts the plan in front; past the limit the last one goes. */
static inline void tune_cuda_add_plan(struct tune_kernel *kernel, struct tune_cuda_plan *plan)
{
    size_t count = 1;
    plan->next = kernel->plans;
    kernel->plans = plan;
    for (struct tune_cuda_plan *each = plan; each->next != NULL; each = each->next)
        if (++count > TUNE_CUDA_PLANS) {
            tune_cuda_free_plan(each->next); /* the last: one is added at a time */
            each->next = NULL;
            return;
        }
}

/* The plan of this shape, taken out of the list; NULL: none. */
static inline struct tune_cuda_plan *tune_cuda_take_plan(
    struct tune_kernel *kernel, CUcontext context, const struct tune_dim *dims, size_t dim_count)
{
    struct tune_cuda_plan **here = &kernel->plans;
    while (*here != NULL && !tune_cuda_is_of(*here, context, dims, dim_count))
        here = &(*here)->next;
    struct tune_cuda_plan *plan = *here;
    if (plan != NULL)
        *here = plan->next;
    return plan;
}

/* What is to be launched now in place of `old` (may be NULL, and is taken); NULL on failure. One
 * that cannot be renewed serves on until the next news. */
static inline struct tune_cuda_plan *tune_cuda_renew(struct tune_kernel *kernel,
    struct tune_cuda_place *place, const struct tune_dim *dims, size_t dim_count,
    struct tune_cuda_plan *old, struct tune_error *err)
{
    struct tune_cubin cubin;
    struct tune_cuda_plan *plan = NULL;
    uint64_t generation = tune_generation(kernel->tune); /* read before asking */
    struct tune_answer *answer = (struct tune_answer *)malloc(sizeof *answer);
    if (answer == NULL)
        tune_fail(err, TUNE_ENOMEM, "no memory for an answer");
    else if (tune_cuda_ask(kernel, place, dims, dim_count, answer, &cubin, old ? NULL : err))
        free(answer);
    else if (old != NULL && old->code == cubin.bytes && old->answer->length == answer->length &&
             memcmp(old->answer->words, answer->words, answer->length) == 0)
        free(answer);
    else
        plan = tune_cuda_new_plan(kernel, place, dims, dim_count, answer, &cubin, old ? NULL : err);
    if (plan != NULL)
        tune_cuda_free_plan(old);
    else
        plan = old;
    if (plan != NULL)
        plan->generation = generation;
    return plan;
}

static inline struct tune_cuda_plan *tune_cuda_plan_for(struct tune_kernel *kernel,
    const struct tune_dim *dims, size_t dim_count, struct tune_error *err)
{
    struct tune_cuda_place *place = tune_cuda_find_place(kernel, err);
    if (place == NULL)
        return NULL;
    if (dim_count > TUNE_CUDA_DIMS) {
        tune_fail(err, TUNE_EINVAL, "a kernel has at most %d dims", TUNE_CUDA_DIMS);
        return NULL;
    }
    struct tune_cuda_plan *plan = tune_cuda_take_plan(kernel, place->context, dims, dim_count);
    if (plan == NULL || plan->generation != tune_generation(kernel->tune))
        plan = tune_cuda_renew(kernel, place, dims, dim_count, plan, err);
    if (plan != NULL)
        tune_cuda_add_plan(kernel, plan);
    return plan;
}

/* --- scratch --- */

static inline bool tune_cuda_is_scratch_of(
    const struct tune_cuda_scratch *scratch, CUcontext context, CUstream stream)
{
    return scratch->context == context && scratch->stream == stream &&
           (stream != CU_STREAM_PER_THREAD || pthread_equal(scratch->thread, pthread_self()));
}

/* The block of this stream, put in front; a new one without memory where there is none. Past the
 * limit the last gives its memory back, once its context is idle, and is used anew. */
static inline struct tune_cuda_scratch *tune_cuda_find_scratch(
    struct tune_kernel *kernel, CUcontext context, CUstream stream)
{
    size_t count = 0;
    struct tune_cuda_scratch **here = &kernel->scratches, **last = NULL;
    for (; *here != NULL && !tune_cuda_is_scratch_of(*here, context, stream); count++) {
        if ((*here)->context == context)
            last = here;
        here = &(*here)->next;
    }
    struct tune_cuda_scratch *scratch = *here;
    if (scratch != NULL) {
        *here = scratch->next;
    } else if (count >= TUNE_CUDA_SCRATCHES && last != NULL && cuCtxSynchronize() == CUDA_SUCCESS) {
        scratch = *last;
        *last = scratch->next;
        cuMemFree(scratch->base);
        memset(scratch, 0, sizeof *scratch);
    } else {
        scratch = (struct tune_cuda_scratch *)calloc(1, sizeof *scratch);
    }
    if (scratch == NULL)
        return NULL;
    scratch->context = context;
    scratch->stream = stream;
    scratch->thread = pthread_self();
    scratch->next = kernel->scratches;
    kernel->scratches = scratch;
    return scratch;
}

/* *block NULL: none is needed. */
static inline int tune_cuda_reserve(struct tune_kernel *kernel, const struct tune_cuda_plan *plan,
    CUstream stream, struct tune_cuda_scratch **block, struct tune_error *err)
{
    *block = NULL;
    if (plan->scratch_bytes == 0)
        return 0;
    struct tune_cuda_scratch *scratch = tune_cuda_find_scratch(kernel, plan->context, stream);
    if (scratch == NULL)
        return tune_fail(err, TUNE_ENOMEM, "no memory for scratch");
    CUresult result = CUDA_SUCCESS;
    if (scratch->bytes < plan->scratch_bytes && scratch->base != 0) {
        result = cuStreamSynchronize(stream);
        if (result == CUDA_SUCCESS)
            result = cuMemFree(scratch->base);
        if (result == CUDA_SUCCESS)
            scratch->base = scratch->bytes = scratch->holds = 0;
    }
    if (result == CUDA_SUCCESS && scratch->base == 0) {
        result = cuMemAlloc(&scratch->base, plan->scratch_bytes);
        scratch->bytes = result == CUDA_SUCCESS ? plan->scratch_bytes : 0;
    }
    if (result != CUDA_SUCCESS)
        return tune_cuda_fail(err, result, "cannot allocate the scratch memory of", kernel->name);
    *block = scratch;
    return 0;
}

/* --- launching --- */

static inline int tune_cuda_bind(const struct tune_kernel *kernel, struct tune_cuda_plan *plan,
    CUdeviceptr scratch, const CUdeviceptr *buffers, size_t buffer_count, struct tune_error *err)
{
    char names[160] = "";
    for (size_t i = 0; i < plan->buffer_count; i++) {
        struct tune_cuda_buffer *buffer = &plan->buffers[i];
        size_t used = strlen(names);
        if (buffer->given < 0)
            buffer->pointer = buffer->info.bytes > 0 ? scratch + buffer->offset : 0;
        else if ((size_t)buffer->given < buffer_count)
            buffer->pointer = buffers[buffer->given];
        if (buffer_count != plan->given_count && buffer->given >= 0)
            snprintf(
                names + used, sizeof names - used, "%s%s", used ? ", " : "", buffer->info.name);
    }
    if (buffer_count == plan->given_count)
        return 0;
    return tune_fail(err, TUNE_EINVAL, "%s takes %zu buffers (%s), not %zu", kernel->name,
        plan->given_count, names, buffer_count);
}

#if CUDA_VERSION >= 12000
static inline int tune_cuda_map_type(const char *dtype, CUtensorMapDataType *type)
{
    static const struct {
        const char *dtype;
        CUtensorMapDataType type;
    } types[] = {{"f32", CU_TENSOR_MAP_DATA_TYPE_FLOAT32}, {"f16", CU_TENSOR_MAP_DATA_TYPE_FLOAT16},
        {"bf16", CU_TENSOR_MAP_DATA_TYPE_BFLOAT16}, {"tf32", CU_TENSOR_MAP_DATA_TYPE_TFLOAT32},
        {"f64", CU_TENSOR_MAP_DATA_TYPE_FLOAT64}, {"i32", CU_TENSOR_MAP_DATA_TYPE_INT32},
        {"i64", CU_TENSOR_MAP_DATA_TYPE_INT64}, {"u8", CU_TENSOR_MAP_DATA_TYPE_UINT8},
        {"i8", CU_TENSOR_MAP_DATA_TYPE_UINT8}, {"u16", CU_TENSOR_MAP_DATA_TYPE_UINT16},
        {"u32", CU_TENSOR_MAP_DATA_TYPE_UINT32}, {"u64", CU_TENSOR_MAP_DATA_TYPE_UINT64}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(types[i].dtype, dtype) == 0) {
            *type = types[i].type;
            return 0;
        }
    return -1;
}

static inline CUtensorMapSwizzle tune_cuda_map_swizzle(const char *word)
{
    int bytes = word ? atoi(word) : 0; /* "128B" */
    return bytes == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
           : bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
           : bytes == 32 ? CU_TENSOR_MAP_SWIZZLE_32B
                         : CU_TENSOR_MAP_SWIZZLE_NONE;
}

typedef CUresult(CUDAAPI *tune_cuda_encode)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
    const cuuint64_t *, const cuuint64_t *, const cuuint32_t *, const cuuint32_t *,
    CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* Looked up when needed, so that programs without tensor maps run on older drivers. */
static inline int tune_cuda_encode_map(
    struct tune_cuda_value *value, CUdeviceptr pointer, struct tune_error *err)
{
    const struct tune_arg *arg = &value->map_arg;
    cuuint64_t dims[5], strides[5];
    cuuint32_t box[5], steps[5];
    CUtensorMapDataType type;
    void *entry = NULL;
    if (arg->rank < 1 || arg->rank > 5 || tune_cuda_map_type(arg->dtype, &type))
        return tune_fail(
            err, TUNE_EPARSE, "the tensor map of \"%.60s\" has a form that is unknown", arg->name);
    for (unsigned i = 0; i < arg->rank; i++) {
        dims[i] = (cuuint64_t)arg->dims[i];
        strides[i] = i + 1 < arg->rank ? (cuuint64_t)arg->strides_bytes[i] : 0;
        box[i] = (cuuint32_t)arg->box[i];
        steps[i] = 1;
    }
    CUresult result = cuGetProcAddress("cuTensorMapEncodeTiled", &entry, 12000, 0, NULL);
    if (result == CUDA_SUCCESS && entry == NULL)
        result = CUDA_ERROR_NOT_FOUND;
    tune_cuda_encode encode;
    memcpy(&encode, &entry, sizeof encode);
    if (result == CUDA_SUCCESS)
        result = encode(&value->value.map, type, arg->rank, (void *)(size_t)pointer, dims, strides,
            box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, tune_cuda_map_swizzle(arg->swizzle),
            CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return result == CUDA_SUCCESS
               ? 0
               : tune_cuda_fail(err, result, "cannot encode the tensor map of", arg->name);
}
#else
static inline int tune_cuda_encode_map(
    struct tune_cuda_value *value, CUdeviceptr pointer, struct tune_error *err)
{
    (void)pointer;
    return tune_fail(err, TUNE_EVERSION,
        "the tensor map of \"%.60s\" needs a program built with cuda.h of CUDA 12 or later",
        value->map_arg.name);
}
#endif

static inline int tune_cuda_fill_values(
    const struct tune_cuda_plan *plan, struct tune_cuda_step *step, struct tune_error *err)
{
    for (size_t i = 0; i < step->launch.arg_count; i++) {
        struct tune_cuda_value *value = &step->values[i];
        if (value->buffer < 0)
            continue;
        CUdeviceptr pointer = plan->buffers[value->buffer].pointer;
        if (value->map_arg.kind != TUNE_ARG_TENSOR_MAP)
            value->value.pointer = pointer;
        else if (tune_cuda_encode_map(value, pointer, err))
            return -1;
    }
    return 0;
}

static inline CUresult tune_cuda_launch_once(const struct tune_cuda_step *step, CUstream stream)
{
    const struct tune_launch *launch = &step->launch;
    const uint32_t *grid = launch->grid, *block = launch->block;
    if (launch->cluster[0] == 0 && launch->is_cooperative)
        return cuLaunchCooperativeKernel(step->function, grid[0], grid[1], grid[2], block[0],
            block[1], block[2], launch->shared_bytes, stream, step->params);
    if (launch->cluster[0] == 0)
        return cuLaunchKernel(step->function, grid[0], grid[1], grid[2], block[0], block[1],
            block[2], launch->shared_bytes, stream, step->params, NULL);
    CUlaunchAttribute attributes[2];
    CUlaunchConfig config;
    memset(attributes, 0, sizeof attributes);
    memset(&config, 0, sizeof config);
    attributes[0].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attributes[0].value.clusterDim.x = launch->cluster[0];
    attributes[0].value.clusterDim.y = launch->cluster[1];
    attributes[0].value.clusterDim.z = launch->cluster[2];
    attributes[1].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    attributes[1].value.cooperative = 1;
    config.gridDimX = grid[0];
    config.gridDimY = grid[1];
    config.gridDimZ = grid[2];
    config.blockDimX = block[0];
    config.blockDimY = block[1];
    config.blockDimZ = block[2];
    config.sharedMemBytes = launch->shared_bytes;
    config.hStream = stream;
    config.attrs = attributes;
    config.numAttrs = launch->is_cooperative ? 2 : 1;
    return cuLaunchKernelEx(&config, step->function, step->params, NULL);
}

static inline int tune_cuda_run_step(const struct tune_cuda_plan *plan, struct tune_cuda_step *step,
    CUstream stream, struct tune_error *err)
{
    const struct tune_launch *launch = &step->launch;
    CUresult result = CUDA_SUCCESS;
    if (launch->is_memset || launch->is_constant) {
        const struct tune_cuda_buffer *buffer = &plan->buffers[step->buffer];
        size_t bytes = (size_t)buffer->info.bytes;
        if (bytes > 0 && launch->is_memset)
            result = cuMemsetD8Async(buffer->pointer, launch->byte, bytes, stream);
        else if (bytes > 0)
            result = cuMemcpyDtoDAsync(step->constant, buffer->pointer, bytes, stream);
        return result == CUDA_SUCCESS
                   ? 0
                   : tune_cuda_fail(err, result, launch->is_memset ? "cannot clear" : "cannot copy",
                         buffer->info.name);
    }
    if (tune_cuda_fill_values(plan, step, err))
        return -1;
    for (uint32_t turn = 0; turn < launch->repeat && result == CUDA_SUCCESS; turn++)
        result = tune_cuda_launch_once(step, stream);
    return result == CUDA_SUCCESS ? 0 : tune_cuda_fail(err, result, "cannot launch", launch->entry);
}

/* Before and after the launches of a plan with constants: they wait for the launches before on
 * another stream, and are waited for. While capturing neither can be, see the top. */
static inline int tune_cuda_order(
    struct tune_cuda_module *module, CUstream stream, bool is_before, struct tune_error *err)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = cuStreamIsCapturing(stream, &status);
    bool is_same = stream == module->constants_stream && stream != CU_STREAM_PER_THREAD;
    if (result != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE) {
        /* nothing to do, or no more can be done */
    } else if (is_before) {
        if (module->constants_used == NULL)
            result = cuEventCreate(&module->constants_used, CU_EVENT_DISABLE_TIMING);
        else if (!is_same)
            result = cuStreamWaitEvent(stream, module->constants_used, 0);
    } else {
        result = cuEventRecord(module->constants_used, stream);
        module->constants_stream = stream;
    }
    return result == CUDA_SUCCESS
               ? 0
               : tune_cuda_fail(err, result, "cannot order the use of", "constants");
}

/* What a launch of this plan on its present buffers needs to have been done once: FNV-1a of the
 * plan's number and the addresses of what is read for it. Never 0. */
static inline uint64_t tune_cuda_once_key(const struct tune_cuda_plan *plan)
{
    uint64_t key = (0xcbf29ce484222325u ^ plan->serial) * 0x100000001b3u;
    for (size_t i = 0; i < plan->buffer_count; i++)
        if (plan->buffers[i].is_read_once && plan->buffers[i].given >= 0)
            key = (key ^ plan->buffers[i].pointer) * 0x100000001b3u;
    return key ? key : 1;
}

static inline int tune_cuda_run_steps(
    struct tune_cuda_plan *plan, bool is_once, CUstream stream, struct tune_error *err)
{
    for (size_t i = 0; i < plan->step_count; i++)
        if (plan->steps[i].launch.is_once == is_once &&
            tune_cuda_run_step(plan, &plan->steps[i], stream, err))
            return -1;
    return 0;
}

/* Does once what the scratch does not hold. */
static inline int tune_cuda_run_once(struct tune_cuda_plan *plan, struct tune_cuda_scratch *scratch,
    CUstream stream, struct tune_error *err)
{
    uint64_t key = plan->has_once ? tune_cuda_once_key(plan) : 0;
    if (key != 0 && scratch != NULL && scratch->holds == key)
        return 0;
    if (scratch != NULL)
        scratch->holds = 0;
    if (key != 0 && tune_cuda_run_steps(plan, true, stream, err))
        return -1;
    if (scratch != NULL)
        scratch->holds = key;
    return 0;
}

static inline int tune_cuda_run(struct tune_kernel *kernel, struct tune_cuda_plan *plan,
    CUstream stream, const CUdeviceptr *buffers, size_t buffer_count, struct tune_error *err)
{
    struct tune_cuda_scratch *scratch;
    if (tune_cuda_reserve(kernel, plan, stream, &scratch, err) ||
        tune_cuda_bind(kernel, plan, scratch ? scratch->base : 0, buffers, buffer_count, err) ||
        (plan->has_constants && tune_cuda_order(plan->module, stream, true, err)) ||
        tune_cuda_run_once(plan, scratch, stream, err) ||
        tune_cuda_run_steps(plan, false, stream, err))
        return -1;
    return plan->has_constants ? tune_cuda_order(plan->module, stream, false, err) : 0;
}

/* --- the public part --- */

static inline int tune_kernel_open(struct tune *tune, const char *name, const char *dtype,
    struct tune_kernel **kernel, struct tune_error *err)
{
    *kernel = NULL;
    if (strlen(name) >= sizeof(*kernel)->name ||
        (dtype != NULL && strlen(dtype) >= sizeof(*kernel)->dtype))
        return tune_fail(err, TUNE_EINVAL, "no kernel has so long a name or dtype: %.60s", name);
    struct tune_kernel *opened = (struct tune_kernel *)calloc(1, sizeof *opened);
    if (opened == NULL)
        return tune_fail(err, TUNE_ENOMEM, "no memory for a kernel");
    opened->tune = tune;
    snprintf(opened->name, sizeof opened->name, "%s", name);
    snprintf(opened->dtype, sizeof opened->dtype, "%s", dtype ? dtype : "");
    opened->policy = TUNE_NEAREST;
    pthread_mutex_init(&opened->lock, NULL);
    *kernel = opened;
    return 0;
}

/* Gives back what lies in the place's context, once that is idle. */
static inline void tune_cuda_leave(struct tune_kernel *kernel, const struct tune_cuda_place *place)
{
    bool is_there =
        cuCtxSetCurrent(place->context) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS;
    for (struct tune_cuda_module *each = kernel->modules; is_there && each; each = each->next)
        if (each->context == place->context) {
            cuModuleUnload(each->module);
            if (each->constants_used != NULL)
                cuEventDestroy(each->constants_used);
        }
    for (struct tune_cuda_scratch *each = kernel->scratches; is_there && each; each = each->next)
        if (each->context == place->context && each->base != 0)
            cuMemFree(each->base);
}

static inline void tune_kernel_close(struct tune_kernel *kernel)
{
    if (kernel == NULL)
        return;
    CUcontext current = NULL;
    cuCtxGetCurrent(&current);
    while (kernel->places != NULL) {
        struct tune_cuda_place *place = kernel->places;
        tune_cuda_leave(kernel, place);
        kernel->places = place->next;
        free(place);
    }
    cuCtxSetCurrent(current);
    while (kernel->modules != NULL) {
        struct tune_cuda_module *module = kernel->modules;
        kernel->modules = module->next;
        free(module);
    }
    while (kernel->scratches != NULL) {
        struct tune_cuda_scratch *scratch = kernel->scratches;
        kernel->scratches = scratch->next;
        free(scratch);
    }
    tune_cuda_drop_plans(kernel);
    pthread_mutex_destroy(&kernel->lock);
    free(kernel);
}

static inline int tune_kernel_ask_by(struct tune_kernel *kernel, enum tune_policy policy,
    const char *session, struct tune_error *err)
{
    if (session != NULL && strlen(session) >= sizeof kernel->session)
        return tune_fail(err, TUNE_EINVAL, "the name of a session has at most %zu bytes",
            sizeof kernel->session - 1);
    pthread_mutex_lock(&kernel->lock);
    tune_cuda_drop_plans(kernel); /* they answer another question */
    kernel->policy = policy;
    snprintf(kernel->session, sizeof kernel->session, "%s", session ? session : "");
    pthread_mutex_unlock(&kernel->lock);
    return 0;
}

static inline int tune_kernel_launch(struct tune_kernel *kernel, CUstream stream,
    const struct tune_dim *dims, size_t dim_count, const CUdeviceptr *buffers, size_t buffer_count,
    struct tune_error *err)
{
    pthread_mutex_lock(&kernel->lock);
    struct tune_cuda_plan *plan = tune_cuda_plan_for(kernel, dims, dim_count, err);
    int status =
        plan == NULL ? -1 : tune_cuda_run(kernel, plan, stream, buffers, buffer_count, err);
    pthread_mutex_unlock(&kernel->lock);
    return status;
}

static inline void tune_kernel_refresh(struct tune_kernel *kernel)
{
    pthread_mutex_lock(&kernel->lock);
    for (struct tune_cuda_scratch *each = kernel->scratches; each; each = each->next)
        each->holds = 0;
    pthread_mutex_unlock(&kernel->lock);
}

static inline int tune_kernel_prepare(struct tune_kernel *kernel, CUstream stream,
    const struct tune_dim *dims, size_t dim_count, struct tune_answer *answer,
    struct tune_error *err)
{
    struct tune_cuda_scratch *scratch;
    pthread_mutex_lock(&kernel->lock);
    struct tune_cuda_plan *plan = tune_cuda_plan_for(kernel, dims, dim_count, err);
    int status = plan == NULL ? -1 : tune_cuda_reserve(kernel, plan, stream, &scratch, err);
    if (status == 0 && answer != NULL)
        *answer = *plan->answer;
    pthread_mutex_unlock(&kernel->lock);
    return status;
}

#ifdef __cplusplus
}
#endif

#endif
