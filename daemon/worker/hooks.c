#include "hooks.h"
#include "client/proto.h"
#include "harness.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define HAS(hooks, member)                                                                         \
    ((hooks)->plugin &&                                                                            \
        (hooks)->plugin->bytes >=                                                                  \
            offsetof(struct tune_plugin, member) + sizeof((hooks)->plugin->member) &&              \
        (hooks)->plugin->member)

static int read_call(struct hooks *hooks, const json_t *request, struct tune_error *err)
{
    json_t *call = NULL, *dims = NULL, *value;
    struct tune_plugin_call *out = &hooks->call;
    const char *name;
    if (proto_object_opt(request, "call", &call, err) < 0 ||
        proto_string(call, "kernel", &out->kernel, err) < 0 ||
        proto_string(call, "dtype", &out->dtype, err) < 0 ||
        proto_object_opt(call, "dims", &dims, err) < 0)
        return -1;
    const char **names = calloc(json_object_size(dims) + 1, sizeof(*names));
    int64_t *values = calloc(json_object_size(dims) + 1, sizeof(*values));
    out->dim_names = names;
    out->dims = values;
    if (!names || !values)
        return tune_fail(err, TUNE_ENOMEM, "no memory for a hook's call");
    json_object_foreach (dims, name, value) {
        names[out->dim_count] = name;
        values[out->dim_count++] = json_integer_value(value);
    }
    return 0;
}

static int open_library(struct hooks *hooks, const char *path, struct verdict *verdict)
{
    hooks->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!hooks->library) {
        const char *reason = dlerror();
        return verdict_set(
            verdict, "invalid", "the hooks cannot be loaded: %s", reason ? reason : path);
    }
    hooks->plugin = dlsym(hooks->library, TUNE_PLUGIN_SYMBOL);
    if (!hooks->plugin)
        return verdict_set(verdict, "invalid", "%s has no symbol %s", path, TUNE_PLUGIN_SYMBOL);
    uint32_t abi = hooks->plugin->abi;
    if (abi != TUNE_PLUGIN_ABI) {
        hooks->plugin = NULL;
        return verdict_set(verdict, "invalid", "%s is of hooks' version %u, this tunerd reads %d",
            path, abi, TUNE_PLUGIN_ABI);
    }
    return 0;
}

int hooks_load(struct hooks *hooks, const json_t *request, struct verdict *verdict)
{
    struct tune_error err = {.code = TUNE_OK};
    const char *path = NULL;
    *hooks = (struct hooks){.plugin = NULL};
    if (proto_string_opt(request, "hooks", &path, &err) < 0)
        return verdict_set(verdict, "invalid", "%s", err.text);
    if (!path)
        return 0;
    if (read_call(hooks, request, &err) < 0)
        return verdict_set(verdict, "invalid", "%s", err.text);
    return open_library(hooks, path, verdict);
}

void hooks_unload(struct hooks *hooks)
{
    free((void *)hooks->call.dim_names);
    free((void *)hooks->call.dims);
    if (hooks->library)
        dlclose(hooks->library);
    *hooks = (struct hooks){.plugin = NULL};
}

bool hooks_fill(const struct hooks *hooks, struct gpu *gpu, const struct buffer *buffer,
    uint64_t seed, struct verdict *verdict)
{
    if (!HAS(hooks, fill) || buffer->bytes == 0)
        return false;
    void *data = calloc(1, buffer->bytes);
    if (!data) {
        verdict_set(verdict, "invalid", "no memory to fill %s on the host", buffer->name);
        return false;
    }
    int result = hooks->plugin->fill(&hooks->call, buffer->name, data, buffer->bytes, seed);
    unsigned code = ABI_SUCCESS;
    if (result == 0)
        code = gpu_upload(gpu, buffer->pointer, data, buffer->bytes);
    free(data);
    if (result != 0 && result != 1)
        verdict_set(verdict, "invalid", "the plugin's fill hook failed with %d for buffer %s",
            result, buffer->name);
    if (code != ABI_SUCCESS)
        verdict_cuda(verdict, code, "copying %s to the device", buffer->name);
    return result == 0 && code == ABI_SUCCESS;
}

bool hooks_has_reference(const struct hooks *hooks)
{
    return HAS(hooks, reference);
}

/* Host copies: inputs with their content, the reference's buffers as zeros. */
static int fetch(struct gpu *gpu, const struct buffer *buffer, bool is_input,
    struct tune_plugin_buffer *copy, struct verdict *verdict)
{
    *copy = (struct tune_plugin_buffer){.name = buffer->name,
        .dtype = harness_dtype_word(buffer->dtype),
        .bytes = buffer->bytes,
        .data = calloc(1, buffer->bytes ? buffer->bytes : 1)};
    if (!copy->data)
        return verdict_set(verdict, "invalid", "no memory for %s on the host", buffer->name);
    if (!is_input || buffer->bytes == 0)
        return 0;
    unsigned result = gpu->api.cuMemcpyDtoH(copy->data, buffer->pointer, buffer->bytes);
    return result == ABI_SUCCESS
               ? 0
               : verdict_cuda(verdict, result, "copying %s from the device", buffer->name);
}

static int put_back(struct gpu *gpu, const struct buffer *buffers, size_t count,
    const struct tune_plugin_buffer *copies, struct verdict *verdict)
{
    for (size_t i = 0; i < count; i++) {
        if (buffers[i].bytes == 0)
            continue;
        unsigned result = gpu_upload(gpu, buffers[i].pointer, copies[i].data, buffers[i].bytes);
        if (result != ABI_SUCCESS)
            return verdict_cuda(verdict, result, "copying %s to the device", buffers[i].name);
    }
    return 0;
}

int hooks_reference(const struct hooks *hooks, struct gpu *gpu, const struct buffer *buffers,
    size_t own_count, size_t count, struct verdict *verdict)
{
    struct tune_plugin_buffer *copies = calloc(count + 1, sizeof(*copies));
    size_t inputs = 0;
    int result = copies ? 0 : verdict_set(verdict, "invalid", "no memory for the reference");
    for (size_t i = 0; i < own_count && result == 0; i++)
        if (buffers[i].role != KIND_OUT)
            result = fetch(gpu, &buffers[i], true, &copies[inputs++], verdict);
    struct tune_plugin_buffer *outputs = copies ? copies + inputs : NULL;
    for (size_t i = own_count; i < count && result == 0; i++)
        result = fetch(gpu, &buffers[i], false, &outputs[i - own_count], verdict);
    if (result == 0) {
        int code =
            hooks->plugin->reference(&hooks->call, copies, inputs, outputs, count - own_count);
        if (code != 0)
            result =
                verdict_set(verdict, "invalid", "the plugin's reference hook failed with %d", code);
    }
    if (result == 0)
        result = put_back(gpu, buffers + own_count, count - own_count, outputs, verdict);
    for (size_t i = 0; copies && i < count; i++)
        free(copies[i].data);
    free(copies);
    return result;
}
