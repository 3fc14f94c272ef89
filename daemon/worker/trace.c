/* See trace.h.
 *
 * Design: one process, one request. The kernel and the harness are compiled by the emulator's
 * compiler, buffers are made and filled through its driver like on a GPU, then its launches are
 * watched (tests/emulator/trace.h). The whole of it has one deadline; whatever the kernel does,
 * only this process ends. */
#include "trace.h"
#include "buffers.h"
#include "compile.h"
#include "gpu.h"
#include "harness.h"
#include "hooks.h"
#include "inputs.h"
#include "launch.h"
#include "pipe.h"
#include "watchdog.h"
#include "daemon/clock.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define TRACE_LIMIT_MS 30000
#define TRACE_ACCESSES ((json_int_t)20000000) /* of all launches, about */
#define TIME_SHARE 0.7                        /* of what the compilers leave */
#define TRACE_BLOCKS 64                       /* of a launch, where the request does not say */
/* So much of an input is made of random numbers; the rest repeats it, up to a limit beyond which
 * the sampled blocks read zeros. Filling gigabytes would take longer than the trace. */
#define FILL_BYTES ((uint64_t)4 << 20)
#define REPEAT_BYTES ((uint64_t)512 << 20)

struct trace {
    struct watchdog watchdog;
    struct compiler compiler;
    struct gpu gpu;
    struct trace_api api;
    struct harness harness;
    struct hooks hooks;
    struct inputs inputs;
    struct buffer_list buffers;
    struct program program;
    double end_ms;  /* when the deadline is */
    char log[1024]; /* what the compiler said where it failed */
};

static int fail_with(const struct verdict *verdict, struct tune_error *err)
{
    return tune_fail(err, TUNE_EINVAL, "%s", verdict->text);
}

/* --- compiling -------------------------------------------------------------------------------- */

/* The answer of the compile, new; NULL when it failed. */
static json_t *compile(
    struct trace *trace, const json_t *request, const char *key, struct tune_error *err)
{
    json_t *fields = json_copy(json_object_get(request, key));
    if (!json_is_object(fields)) {
        json_decref(fields);
        tune_fail(err, TUNE_EINVAL, "field \"%s\" must be an object", key);
        return NULL;
    }
    json_object_set_new(fields, "arch", json_string("cpu"));
    json_t *answer = compiler_answer(&trace->compiler, fields);
    json_decref(fields);
    if (json_is_true(json_object_get(answer, "ok")))
        return answer;
    const char *log = json_string_value(json_object_get(answer, "log"));
    snprintf(trace->log, sizeof trace->log, "%s", log ? log : "");
    tune_fail(err, TUNE_EINVAL, "the emulator cannot compile it: %s",
        json_string_value(json_object_get(answer, "error")));
    json_decref(answer);
    return NULL;
}

/* --- buffers ---------------------------------------------------------------------------------- */

static int repeat_piece(
    struct trace *trace, const struct buffer *buffer, uint64_t piece, struct verdict *verdict)
{
    uint64_t end = buffer->bytes < REPEAT_BYTES ? buffer->bytes : REPEAT_BYTES;
    for (uint64_t at = piece; at < end; at += piece) {
        uint64_t bytes = end - at < piece ? end - at : piece;
        unsigned result = trace->gpu.api.cuMemcpyDtoDAsync(
            buffer->pointer + at, buffer->pointer, bytes, trace->gpu.stream);
        if (result != ABI_SUCCESS)
            return verdict_cuda(verdict, result, "filling %s", buffer->name);
    }
    return 0;
}

static int fill(struct trace *trace, uint64_t seed, struct verdict *verdict)
{
    for (size_t i = 0; i < trace->buffers.count; i++) {
        const struct buffer *buffer = &trace->buffers.items[i];
        if (buffer->bytes == 0 || (buffer->role != KIND_IN && buffer->role != KIND_INOUT))
            continue;
        if (hooks_fill(&trace->hooks, &trace->gpu, buffer, seed, verdict) ||
            (!verdict->outcome &&
                inputs_fill(&trace->inputs, &trace->gpu, buffer, seed, i, verdict)))
            continue;
        if (verdict->outcome)
            return -1;
        struct buffer piece = *buffer;
        if (piece.bytes > FILL_BYTES) {
            piece.bytes = FILL_BYTES;
            piece.count = FILL_BYTES / (uint64_t)harness_dtype_bytes(piece.dtype);
        }
        if (harness_fill_buffer(&trace->harness, &trace->gpu, &piece, seed, i, verdict) < 0 ||
            repeat_piece(trace, buffer, piece.bytes, verdict) < 0)
            return -1;
    }
    return gpu_wait(&trace->gpu, "filling the inputs", verdict);
}

/* Each is an allocation of its own, so that an access past its end is a fault and reads no other.
 * What nobody touches takes no room. */
static int allocate(struct trace *trace, const json_t *buffers, struct verdict *verdict)
{
    if (buffer_list_read(&trace->buffers, buffers, verdict) < 0)
        return -1;
    for (size_t i = 0; i < trace->buffers.count; i++) {
        struct buffer *buffer = &trace->buffers.items[i];
        unsigned long long pointer = 0;
        unsigned result =
            buffer->bytes > 0 ? trace->gpu.api.cuMemAlloc(&pointer, buffer->bytes) : ABI_SUCCESS;
        if (result != ABI_SUCCESS)
            return verdict_cuda(verdict, result, "allocating %llu MiB for %s",
                (unsigned long long)buffer->bytes >> 20, buffer->name);
        buffer->pointer = pointer;
    }
    return 0;
}

/* --- what a kernel's fault says --------------------------------------------------------------- */

/* The emulator tells on standard error where a kernel went wrong. */
struct listening {
    int own, heard; /* descriptors: standard error as it was, and what is written meanwhile */
};

static struct listening listen_to_errors(void)
{
    struct listening listening = {dup(STDERR_FILENO), memfd_create("errors", MFD_CLOEXEC)};
    fflush(stderr);
    if (listening.own >= 0 && listening.heard >= 0)
        dup2(listening.heard, STDERR_FILENO);
    return listening;
}

/* The last line that was written, without its end; "" when there is none. */
static void stop_listening(struct listening *listening, char *line, size_t room)
{
    char text[1024];
    line[0] = '\0';
    fflush(stderr);
    if (listening->own >= 0 && listening->heard >= 0) {
        dup2(listening->own, STDERR_FILENO);
        off_t end = lseek(listening->heard, 0, SEEK_END);
        off_t from = end > (off_t)sizeof text - 1 ? end - (off_t)sizeof text + 1 : 0;
        ssize_t got = pread(listening->heard, text, sizeof text - 1, from);
        text[got > 0 ? got : 0] = '\0';
        size_t length = strlen(text);
        while (length > 0 && text[length - 1] == '\n')
            text[--length] = '\0';
        const char *last = strrchr(text, '\n');
        snprintf(line, room, "%s", last ? last + 1 : text);
    }
    close(listening->own);
    close(listening->heard);
}

/* --- the run ---------------------------------------------------------------------------------- */

static json_int_t count_launches(const json_t *launches)
{
    size_t i;
    json_t *launch;
    json_int_t count = 0;
    json_array_foreach ((json_t *)launches, i, launch) {
        const json_t *repeat = json_object_get(launch, "repeat");
        if (json_object_get(launch, "entry") != NULL)
            count += json_is_integer(repeat) ? json_integer_value(repeat) : 1;
    }
    return count > 1 ? count : 1;
}

/* The launches share what may be done within the deadline, most of it: words cost time too. */
static int begin(struct trace *trace, const json_t *request, struct tune_error *err)
{
    const json_t *blocks = json_object_get(request, "blocks");
    json_int_t launches = count_launches(json_object_get(request, "launches"));
    double left_ms = trace->end_ms - clock_ms();
    json_t *options = json_pack("{s:I, s:I, s:I, s:f, s:O?}", "blocks",
        json_is_integer(blocks) ? json_integer_value(blocks) : TRACE_BLOCKS, "accesses",
        TRACE_ACCESSES / launches > 0 ? TRACE_ACCESSES / launches : (json_int_t)1, "launches",
        launches, "ms", left_ms > 1 ? left_ms * TIME_SHARE : 1, "widths",
        json_object_get(request, "widths"));
    char *text = json_dumps(options, JSON_COMPACT);
    unsigned result = trace->api.tuneTraceBegin(text);
    free(text);
    json_decref(options);
    if (result != ABI_SUCCESS)
        return tune_fail(err, TUNE_EINVAL, "the emulator refuses to watch (code %u)", result);
    return 0;
}

static int run_watched(struct trace *trace, struct tune_error *err)
{
    uint64_t pointers[BUFFER_LIMIT];
    struct verdict verdict = {.outcome = NULL};
    char said[200];
    for (size_t i = 0; i < trace->buffers.count; i++)
        pointers[i] = trace->buffers.items[i].pointer;
    struct listening listening = listen_to_errors();
    int issued = program_issue(
        &trace->program, PROGRAM_ALL, &trace->gpu, &trace->buffers, pointers, &verdict);
    int waited = gpu_wait(&trace->gpu, program_name(&trace->program), &verdict);
    stop_listening(&listening, said, sizeof said);
    if (issued == 0 && waited == 0)
        return 0;
    return tune_fail(
        err, TUNE_EINVAL, "on the emulator %s%s%s", verdict.text, said[0] ? "; " : "", said);
}

/* New; NULL with the error. */
static json_t *end(struct trace *trace, struct tune_error *err)
{
    json_error_t why;
    char *text = trace->api.tuneTraceEnd();
    json_t *launches = text ? json_loads(text, 0, &why) : NULL;
    trace->api.tuneTraceFree(text);
    if (launches == NULL)
        tune_fail(err, TUNE_EINVAL, "the emulator saw nothing%s%s", text ? ": " : "",
            text ? why.text : "");
    return launches;
}

static int prepare(struct trace *trace, const json_t *request, const json_t *harness,
    const json_t *kernel, struct tune_error *err)
{
    struct verdict verdict = {.outcome = NULL};
    int64_t seed = 0;
    if (proto_int_opt(request, "seed", INT64_MIN, INT64_MAX, &seed, err) < 0)
        return -1;
    if (harness_load(&trace->harness, &trace->gpu,
            json_string_value(json_object_get(harness, "image")), &verdict) < 0 ||
        hooks_load(&trace->hooks, request, &verdict) < 0 ||
        inputs_init(&trace->inputs, request, &verdict) < 0 ||
        allocate(trace, json_object_get(request, "buffers"), &verdict) < 0 ||
        fill(trace, (uint64_t)seed, &verdict) < 0 ||
        program_load(&trace->program, &trace->gpu,
            json_string_value(json_object_get(kernel, "image")), json_object_get(kernel, "names"),
            json_object_get(request, "launches"), &trace->buffers, &verdict) < 0)
        return fail_with(&verdict, err);
    return 0;
}

/* "launches" of the answer, new; NULL with the error. */
static json_t *watch(struct trace *trace, const json_t *request, struct tune_error *err)
{
    json_t *launches = NULL, *kernel = NULL;
    json_t *harness = compile(trace, request, "harness", err);
    if (harness != NULL)
        kernel = compile(trace, request, "compile", err);
    if (kernel != NULL && prepare(trace, request, harness, kernel, err) == 0 &&
        begin(trace, request, err) == 0 && run_watched(trace, err) == 0)
        launches = end(trace, err);
    json_decref(harness);
    json_decref(kernel);
    return launches;
}

static json_t *answer_trace(struct trace *trace, const json_t *request)
{
    struct tune_error err = {.code = TUNE_OK};
    const char *op = json_string_value(json_object_get(request, "op"));
    double start_ms = clock_ms();
    json_t *launches = NULL;
    if (!op || strcmp(op, "trace") != 0)
        tune_fail(&err, TUNE_EINVAL, "a trace worker answers op \"trace\" only");
    else
        launches = watch(trace, request, &err);
    if (launches == NULL)
        return json_pack(
            "{sb,so,so}", "ok", 0, "error", proto_text(err.text), "log", proto_text(trace->log));
    return json_pack(
        "{sb,so,sf}", "ok", 1, "launches", launches, "trace_ms", clock_ms() - start_ms);
}

/* --- starting --------------------------------------------------------------------------------- */

static int start(struct trace *trace, struct libraries *libraries, struct tune_error *err)
{
    unsigned code;
    /* Whatever the daemon times on: here it is the emulator, and it watches. */
    unsetenv("TUNE_CUDA_DIR");
    unsetenv("CUDA_VISIBLE_DEVICES");
    setenv("TUNE_EMULATOR_TRACE", "1", 1);
    libraries->is_given_alone = true;
    if (libraries_trace(libraries, &trace->api, err) < 0 ||
        compiler_open(&trace->compiler, libraries, err) < 0 ||
        gpu_load(&trace->gpu, libraries, &code, err) < 0 ||
        gpu_select(&trace->gpu, NULL, err) < 0 || gpu_start(&trace->gpu, &code, err) < 0)
        return -1;
    return 0;
}

int trace_role(struct channel *channel, struct libraries *libraries)
{
    static struct trace trace;
    struct tune_error err = {.code = TUNE_OK};
    (void)!nice(5); /* timings come first, as with compile workers */
    bool is_ready =
        watchdog_init(&trace.watchdog, channel, &err) == 0 && start(&trace, libraries, &err) == 0;
    json_t *hello =
        json_pack("{ss,si,si}", "hello", "trace", "pipe", PIPE_VERSION, "pid", (int)getpid());
    if (!is_ready)
        json_object_set_new(hello, "error", proto_text(err.text));
    if (channel_send(channel, hello, NULL) < 0 || !is_ready)
        return 1;
    json_t *request = channel_next(channel, &err);
    if (request == NULL)
        return err.code == TUNE_OK ? 0 : 1;
    int64_t deadline_ms = TRACE_LIMIT_MS;
    proto_int_opt(request, "deadline_ms", 1, INT32_MAX, &deadline_ms, NULL);
    trace.end_ms = clock_ms() + (double)deadline_ms;
    watchdog_arm(&trace.watchdog, (double)deadline_ms, "running it on the emulator");
    json_t *answer = answer_trace(&trace, request);
    watchdog_disarm(&trace.watchdog);
    json_decref(request);
    int status = channel_answer(channel, answer, &err) == 0 ? 0 : 1;
    fflush(NULL);
    _exit(status); /* what the run left, buffers and a faulted context, ends with the process */
}
