#include "launch.h"
#include "client/proto.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WARP_REGISTER_UNIT                                                                         \
    256 /* registers are given out per warp in this many, on every sm >= 70 */
#define PORTABLE_CLUSTER 8

/* --- reading the plan ------------------------------------------------------------------------- */

static size_t index_of(const struct buffer_list *buffers, const char *name)
{
    for (size_t i = 0; i < buffers->count; i++)
        if (strcmp(buffers->items[i].name, name) == 0)
            return i;
    return SIZE_MAX;
}

static uint16_t half_bits(double number, bool is_bf16)
{
    float narrow = (float)number;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof(bits));
    if (is_bf16)
        return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    _Static_assert(sizeof(float) == 4, "binary32");
    uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude >= 0x477ff000)
        return (uint16_t)(sign | (magnitude > 0x7f800000 ? 0x7e00 : 0x7c00));
    if (magnitude < 0x38800000)
        return (
            uint16_t)(sign | (uint32_t)__builtin_lrint(__builtin_fabs((double)narrow) * 0x1p24));
    return (uint16_t)(sign | (magnitude + 0xfff + (magnitude >> 13 & 1) - 0x38000000) >> 13);
}

/* Integers are cut to their type's width, as C does; the bytes come first in the word
 * (little-endian). */
static int read_scalar(const json_t *json, struct launch_arg *arg, struct tune_error *err)
{
    const char *type;
    json_t *value = json_object_get(json, "value");
    if (proto_string(json, "type", &type, err) < 0)
        return -1;
    if (!json_is_number(value))
        return tune_fail(err, TUNE_EINVAL, "a scalar argument has no number as its value");
    double number = json_number_value(value);
    float narrow = (float)number;
    arg->buffer = SIZE_MAX;
    if (strcmp(type, "f64") == 0) {
        memcpy(&arg->value, &number, sizeof(number));
    } else if (strcmp(type, "f32") == 0 || strcmp(type, "tf32") == 0) {
        memcpy(&arg->value, &narrow, sizeof(narrow));
    } else if (strcmp(type, "f16") == 0 || strcmp(type, "bf16") == 0) {
        arg->value = half_bits(number, type[0] == 'b');
    } else if ((type[0] == 'i' || type[0] == 'u') && json_is_integer(value)) {
        arg->value = (uint64_t)json_integer_value(value);
    } else {
        return tune_fail(err, TUNE_EINVAL, "a scalar argument has the unknown type %.20s", type);
    }
    return 0;
}

static int read_arg(const json_t *json, const struct buffer_list *buffers, struct launch_arg *arg,
    struct tune_error *err)
{
    const char *kind, *name;
    *arg = (struct launch_arg){.buffer = SIZE_MAX};
    if (proto_string(json, "kind", &kind, err) < 0)
        return -1;
    if (strcmp(kind, "scalar") == 0)
        return read_scalar(json, arg, err);
    if (strcmp(kind, "buffer") != 0)
        return tune_fail(
            err, TUNE_EINVAL, "arguments of kind %.40s cannot be passed by this worker", kind);
    if (proto_string(json, "name", &name, err) < 0)
        return -1;
    arg->buffer = index_of(buffers, name);
    if (arg->buffer == SIZE_MAX)
        return tune_fail(err, TUNE_EINVAL, "an argument names the unknown buffer %.60s", name);
    return 0;
}

static int read_triple(
    const json_t *json, const char *key, unsigned *triple, struct tune_error *err)
{
    const json_t *array = json_object_get(json, key);
    for (size_t i = 0; i < 3; i++) {
        const json_t *each = json_array_get(array, i);
        triple[i] = each ? (unsigned)json_integer_value(each) : 1;
        if (each && (json_integer_value(each) < 1 || json_integer_value(each) > UINT32_MAX))
            return tune_fail(err, TUNE_EINVAL, "%s[%zu] is %lld, but must be 1 or more", key, i,
                (long long)json_integer_value(each));
    }
    return 0;
}

static int read_memset(const json_t *json, const struct buffer_list *buffers, struct launch *launch,
    struct tune_error *err)
{
    const char *name;
    int64_t byte = 0;
    if (proto_string(json, "memset", &name, err) < 0 ||
        proto_int_opt(json, "byte", 0, 255, &byte, err) < 0)
        return -1;
    launch->kind = LAUNCH_MEMSET;
    launch->memset_byte = (unsigned char)byte;
    launch->buffer = index_of(buffers, name);
    launch->repeat = 1;
    if (launch->buffer == SIZE_MAX)
        return tune_fail(err, TUNE_EINVAL, "a memset names the unknown buffer %.60s", name);
    return 0;
}

static int read_constant(const json_t *json, const struct buffer_list *buffers,
    struct launch *launch, struct tune_error *err)
{
    const char *name, *buffer;
    if (proto_string(json, "constant", &name, err) < 0 ||
        proto_string(json, "buffer", &buffer, err) < 0)
        return -1;
    launch->kind = LAUNCH_CONSTANT;
    snprintf(launch->entry, sizeof(launch->entry), "%s", name);
    launch->buffer = index_of(buffers, buffer);
    launch->repeat = 1;
    if (launch->buffer == SIZE_MAX)
        return tune_fail(
            err, TUNE_EINVAL, "constant %.60s names the unknown buffer %.60s", name, buffer);
    return 0;
}

static int read_geometry(const json_t *json, struct launch *launch, struct tune_error *err)
{
    int64_t shared = 0;
    launch->repeat = 1;
    launch->has_cluster = json_is_array(json_object_get(json, "cluster"));
    if (read_triple(json, "grid", launch->grid, err) < 0 ||
        read_triple(json, "block", launch->block, err) < 0 ||
        read_triple(json, "cluster", launch->cluster, err) < 0 ||
        proto_int_opt(json, "shared_bytes", 0, INT32_MAX, &shared, err) < 0 ||
        proto_bool_opt(json, "cooperative", &launch->is_cooperative, err) < 0 ||
        proto_int_opt(json, "repeat", 0, 1 << 20, &launch->repeat, err) < 0)
        return -1;
    launch->shared_bytes = (unsigned)shared;
    return 0;
}

static int read_launch(const json_t *json, const struct buffer_list *buffers, struct launch *launch,
    struct tune_error *err)
{
    const char *entry;
    json_t *args = NULL, *arg;
    size_t index;
    if (proto_bool_opt(json, "once", &launch->is_once, err) < 0)
        return -1;
    if (json_object_get(json, "memset"))
        return read_memset(json, buffers, launch, err);
    if (json_object_get(json, "constant"))
        return read_constant(json, buffers, launch, err);
    if (proto_string(json, "entry", &entry, err) < 0 || read_geometry(json, launch, err) < 0 ||
        proto_array_opt(json, "args", &args, err) < 0)
        return -1;
    snprintf(launch->entry, sizeof(launch->entry), "%s", entry);
    if (json_array_size(args) > LAUNCH_ARG_LIMIT)
        return tune_fail(err, TUNE_ELIMIT, "more than %d arguments", LAUNCH_ARG_LIMIT);
    launch->args = calloc(json_array_size(args) + 1, sizeof(*launch->args));
    if (!launch->args)
        return tune_fail(err, TUNE_ENOMEM, "no memory for a launch's arguments");
    json_array_foreach (args, index, arg)
        if (read_arg(arg, buffers, &launch->args[launch->arg_count++], err) < 0)
            return -1;
    return 0;
}

static int read_launches(struct program *program, const json_t *launches,
    const struct buffer_list *buffers, struct verdict *verdict)
{
    struct tune_error err = {.code = TUNE_OK};
    size_t index;
    json_t *each;
    if (json_array_size(launches) == 0 || json_array_size(launches) > LAUNCH_LIMIT)
        return verdict_set(verdict, "invalid", "a plan has 1 to %d launches, not %zu", LAUNCH_LIMIT,
            json_array_size(launches));
    program->launches = calloc(json_array_size(launches), sizeof(*program->launches));
    if (!program->launches)
        return verdict_set(verdict, "invalid", "no memory for the launches");
    json_array_foreach (launches, index, each) {
        struct launch *launch = &program->launches[program->launch_count++];
        if (read_launch(each, buffers, launch, &err) < 0)
            return verdict_set(verdict, "invalid", "%s", err.text);
        program->has_once = program->has_once || launch->is_once;
    }
    return 0;
}

/* --- limits ----------------------------------------------------------------------------------- */

static int attribute(struct gpu *gpu, struct CUfunc_st *function, unsigned which)
{
    int value = 0;
    gpu->api.cuFuncGetAttribute(&value, which, function);
    return value;
}

static int check_threads(const struct launch *launch, const struct gpu *gpu, int registers,
    int max_threads, struct verdict *verdict)
{
    const int64_t *limits = gpu->info.attributes;
    uint64_t threads = (uint64_t)launch->block[0] * launch->block[1] * launch->block[2];
    uint64_t warp = limits[DEVICE_warp] > 0 ? (uint64_t)limits[DEVICE_warp] : 32;
    uint64_t warps = (threads + warp - 1) / warp;
    uint64_t unit = WARP_REGISTER_UNIT;
    uint64_t per_warp = ((uint64_t)registers * warp + unit - 1) / unit * unit;
    if (limits[DEVICE_regs_block] > 0 && per_warp * warps > (uint64_t)limits[DEVICE_regs_block])
        return verdict_set(verdict, "over_limits",
            "%s needs %llu registers per block (%d per thread, %llu per warp of %llu threads, %llu "
            "warps), but a block has %lld",
            launch->entry, (unsigned long long)(per_warp * warps), registers,
            (unsigned long long)per_warp, (unsigned long long)warp, (unsigned long long)warps,
            (long long)limits[DEVICE_regs_block]);
    if (max_threads > 0 && threads > (uint64_t)max_threads)
        return verdict_set(verdict, "over_limits",
            "%s is launched with %llu threads per block, but was compiled for at most %d",
            launch->entry, (unsigned long long)threads, max_threads);
    return 0;
}

static int check_shared(
    const struct launch *launch, struct gpu *gpu, int static_bytes, struct verdict *verdict)
{
    const int64_t *limits = gpu->info.attributes;
    int64_t need = (int64_t)static_bytes + launch->shared_bytes;
    if (need > limits[DEVICE_smem_optin])
        return verdict_set(verdict, "over_limits",
            "%s needs %lld bytes of shared memory per block (%d static, %u dynamic), but %lld is "
            "the most",
            launch->entry, (long long)need, static_bytes, launch->shared_bytes,
            (long long)limits[DEVICE_smem_optin]);
    if (need <= limits[DEVICE_smem_block])
        return 0;
    unsigned result = gpu->api.cuFuncSetAttribute(
        launch->function, ABI_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)launch->shared_bytes);
    if (result != ABI_SUCCESS)
        return verdict_cuda(verdict, result, "raising %s to %u bytes of dynamic shared memory",
            launch->entry, launch->shared_bytes);
    return 0;
}

static int check_grid(const struct launch *launch, const struct gpu *gpu, struct verdict *verdict)
{
    static const enum device_attribute grid[] = {
        DEVICE_max_grid_x, DEVICE_max_grid_y, DEVICE_max_grid_z};
    static const enum device_attribute block[] = {
        DEVICE_max_block_x, DEVICE_max_block_y, DEVICE_max_block_z};
    for (int i = 0; i < 3; i++) {
        int64_t most_grid = gpu->info.attributes[grid[i]];
        int64_t most_block = gpu->info.attributes[block[i]];
        if (launch->grid[i] > most_grid || launch->block[i] > most_block)
            return verdict_set(verdict, "over_limits",
                "%s: grid %c is %u of at most %lld, block %c is %u of at most %lld", launch->entry,
                "xyz"[i], launch -> grid[i], (long long)most_grid, "xyz"[i], launch -> block[i],
                (long long)most_block);
    }
    return 0;
}

static int allow_cluster(const struct launch *launch, struct gpu *gpu, struct verdict *verdict)
{
    uint64_t blocks = (uint64_t)launch->cluster[0] * launch->cluster[1] * launch->cluster[2];
    if (!launch->has_cluster)
        return 0;
    if (!gpu->api.cuLaunchKernelEx)
        return verdict_set(
            verdict, "launch_failed", "clusters need a driver of CUDA 11.8 or later");
    if (blocks <= PORTABLE_CLUSTER)
        return 0;
    unsigned result = gpu->api.cuFuncSetAttribute(
        launch->function, ABI_FUNC_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1);
    if (result != ABI_SUCCESS)
        return verdict_cuda(verdict, result, "allowing %s a cluster of %llu blocks", launch->entry,
            (unsigned long long)blocks);
    return 0;
}

static void take_max(int *most, int value)
{
    *most = value > *most ? value : *most;
}

static int bind_launch(struct program *program, struct gpu *gpu, const json_t *names,
    struct launch *launch, struct verdict *verdict)
{
    const char *lowered = json_string_value(json_object_get(names, launch->entry));
    unsigned result = gpu->api.cuModuleGetFunction(
        &launch->function, program->module, lowered ? lowered : launch->entry);
    if (result != ABI_SUCCESS)
        return verdict_cuda(verdict, result, "looking for %s in its image", launch->entry);
    int registers = attribute(gpu, launch->function, ABI_FUNC_NUM_REGS);
    int static_bytes = attribute(gpu, launch->function, ABI_FUNC_SHARED_SIZE_BYTES);
    int max_threads = attribute(gpu, launch->function, ABI_FUNC_MAX_THREADS_PER_BLOCK);
    take_max(&program->registers, registers);
    take_max(&program->static_shared_bytes, static_bytes);
    take_max(&program->local_bytes, attribute(gpu, launch->function, ABI_FUNC_LOCAL_SIZE_BYTES));
    take_max(&program->dynamic_shared_bytes, (int)launch->shared_bytes);
    if (check_grid(launch, gpu, verdict) < 0 ||
        check_threads(launch, gpu, registers, max_threads, verdict) < 0 ||
        check_shared(launch, gpu, static_bytes, verdict) < 0 ||
        allow_cluster(launch, gpu, verdict) < 0)
        return -1;
    return 0;
}

static int bind_constant(const struct program *program, struct gpu *gpu,
    const struct buffer *source, struct launch *launch, struct verdict *verdict)
{
    unsigned long long pointer = 0;
    unsigned result = gpu->api.cuModuleGetGlobal(
        &pointer, &launch->constant_bytes, program->module, launch->entry);
    if (result == ABI_NOT_FOUND)
        return verdict_set(verdict, "launch_failed",
            "the compiled code has no variable %s: the source must declare it extern \"C\" "
            "__constant__ where it is set",
            launch->entry);
    if (result != ABI_SUCCESS)
        return verdict_cuda(verdict, result, "looking for the variable %s", launch->entry);
    launch->constant = pointer;
    if (source->bytes > launch->constant_bytes)
        return verdict_set(verdict, "over_limits",
            "the variable %s has %zu bytes, but %s, which is copied to it, has %llu", launch->entry,
            launch->constant_bytes, source->name, (unsigned long long)source->bytes);
    return 0;
}

/* --- loading and launching -------------------------------------------------------------------- */

int program_load_module(
    struct CUmod_st **module, struct gpu *gpu, const char *image_base64, struct verdict *verdict)
{
    struct tune_error err = {.code = TUNE_OK};
    size_t bytes;
    char *image = image_base64 ? proto_base64_decode(image_base64, &bytes, &err) : NULL;
    if (!image)
        return verdict_set(
            verdict, "invalid", "no image: %s", image_base64 ? err.text : "the field is missing");
    char *ended = realloc(image, bytes + 1); /* PTX is text: the driver reads to a NUL */
    if (!ended) {
        free(image);
        return verdict_set(verdict, "invalid", "no memory for an image of %zu bytes", bytes);
    }
    ended[bytes] = '\0';
    unsigned result = bytes > 0 ? gpu->api.cuModuleLoadData(module, ended) : 200;
    free(ended);
    if (result == ABI_UNSUPPORTED_PTX_VERSION || result == ABI_NO_BINARY_FOR_GPU)
        return verdict_cuda(verdict, result, "loading the image on %s with a driver for CUDA %d.%d",
            gpu->info.arch, gpu->info.driver / 1000, gpu->info.driver % 1000 / 10);
    return result == ABI_SUCCESS ? 0 : verdict_cuda(verdict, result, "loading the image");
}

int program_load(struct program *program, struct gpu *gpu, const char *image_base64,
    const json_t *names, const json_t *launches, const struct buffer_list *buffers,
    struct verdict *verdict)
{
    *program = (struct program){.module = NULL};
    if (read_launches(program, launches, buffers, verdict) < 0 ||
        program_load_module(&program->module, gpu, image_base64, verdict) < 0)
        goto failed;
    for (size_t i = 0; i < program->launch_count; i++) {
        struct launch *launch = &program->launches[i];
        if (launch->kind == LAUNCH_KERNEL && bind_launch(program, gpu, names, launch, verdict) < 0)
            goto failed;
        if (launch->kind == LAUNCH_CONSTANT &&
            bind_constant(program, gpu, &buffers->items[launch->buffer], launch, verdict) < 0)
            goto failed;
    }
    return 0;

failed:
    program_unload(program, gpu);
    return -1;
}

void program_unload(struct program *program, struct gpu *gpu)
{
    for (size_t i = 0; i < program->launch_count; i++)
        free(program->launches[i].args);
    free(program->launches);
    if (program->module)
        gpu->api.cuModuleUnload(program->module);
    *program = (struct program){.module = NULL};
}

static unsigned issue_attributed(const struct launch *launch, struct gpu *gpu, void **params)
{
    struct abi_launch_attribute attributes[2] = {{.id = ABI_LAUNCH_CLUSTER_DIMENSION}};
    memcpy(attributes[0].value.cluster, launch->cluster, sizeof(launch->cluster));
    attributes[1].id = ABI_LAUNCH_COOPERATIVE;
    attributes[1].value.cooperative = 1;
    struct abi_launch_config config = {.grid = {launch->grid[0], launch->grid[1], launch->grid[2]},
        .block = {launch->block[0], launch->block[1], launch->block[2]},
        .shared_bytes = launch->shared_bytes,
        .stream = gpu->stream,
        .attributes = attributes,
        .attribute_count = launch->is_cooperative ? 2 : 1};
    return gpu->api.cuLaunchKernelEx(&config, launch->function, params, NULL);
}

static unsigned issue_kernel(const struct launch *launch, struct gpu *gpu, const uint64_t *pointers)
{
    uint64_t values[LAUNCH_ARG_LIMIT];
    void *params[LAUNCH_ARG_LIMIT + 1];
    for (size_t i = 0; i < launch->arg_count; i++) {
        const struct launch_arg *arg = &launch->args[i];
        values[i] = arg->buffer == SIZE_MAX ? arg->value : pointers[arg->buffer];
        params[i] = &values[i];
    }
    const unsigned *grid = launch->grid, *block = launch->block;
    if (launch->has_cluster)
        return issue_attributed(launch, gpu, params);
    if (launch->is_cooperative)
        return gpu->api.cuLaunchCooperativeKernel(launch->function, grid[0], grid[1], grid[2],
            block[0], block[1], block[2], launch->shared_bytes, gpu->stream, params);
    return gpu->api.cuLaunchKernel(launch->function, grid[0], grid[1], grid[2], block[0], block[1],
        block[2], launch->shared_bytes, gpu->stream, params, NULL);
}

/* A memset, or the copy to a constant. */
static int issue_transfer(const struct launch *launch, struct gpu *gpu, const struct buffer *buffer,
    uint64_t pointer, struct verdict *verdict)
{
    bool is_memset = launch->kind == LAUNCH_MEMSET;
    unsigned result = ABI_SUCCESS;
    if (buffer->bytes == 0)
        return 0;
    if (is_memset)
        result = gpu->api.cuMemsetD8Async(pointer, launch->memset_byte, buffer->bytes, gpu->stream);
    else
        result = gpu->api.cuMemcpyDtoDAsync(launch->constant, pointer, buffer->bytes, gpu->stream);
    return result == ABI_SUCCESS ? 0
           : is_memset           ? verdict_cuda(verdict, result, "clearing %s", buffer->name)
                                 : verdict_cuda(verdict, result, "copying %s to the constant %s",
                                       buffer->name, launch->entry);
}

int program_poison(
    const struct program *program, struct gpu *gpu, unsigned char byte, struct verdict *verdict)
{
    for (size_t i = 0; i < program->launch_count; i++) {
        const struct launch *launch = &program->launches[i];
        if (launch->kind != LAUNCH_CONSTANT)
            continue;
        unsigned result =
            gpu->api.cuMemsetD8Async(launch->constant, byte, launch->constant_bytes, gpu->stream);
        if (result != ABI_SUCCESS)
            return verdict_cuda(verdict, result, "poisoning %s", launch->entry);
    }
    return 0;
}

int program_issue(const struct program *program, unsigned parts, struct gpu *gpu,
    const struct buffer_list *buffers, const uint64_t *pointers, struct verdict *verdict)
{
    for (size_t i = 0; i < program->launch_count; i++) {
        const struct launch *launch = &program->launches[i];
        if (!(parts & (launch->is_once ? PROGRAM_ONCE : PROGRAM_CALL)))
            continue;
        if (launch->kind != LAUNCH_KERNEL) {
            if (issue_transfer(launch, gpu, &buffers->items[launch->buffer],
                    pointers[launch->buffer], verdict) < 0)
                return -1;
            continue;
        }
        for (int64_t turn = 0; turn < launch->repeat; turn++) {
            unsigned result = issue_kernel(launch, gpu, pointers);
            if (result != ABI_SUCCESS)
                return verdict_cuda(verdict, result,
                    "launching %s with grid %u,%u,%u block %u,%u,%u", launch->entry,
                    launch->grid[0], launch->grid[1], launch->grid[2], launch->block[0],
                    launch->block[1], launch->block[2]);
        }
    }
    return 0;
}

const char *program_name(const struct program *program)
{
    for (size_t i = 0; i < program->launch_count; i++)
        if (program->launches[i].kind == LAUNCH_KERNEL && !program->launches[i].is_once)
            return program->launches[i].entry;
    return "a memset";
}
