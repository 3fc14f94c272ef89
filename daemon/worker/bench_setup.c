/* The session: inputs filled once and kept, the reference run once and kept; and candidates bound
 * to them. */
#include "bench_internal.h"
#include "client/proto.h"
#include "daemon/clock.h"
#include "hooks.h"
#include "inputs.h"

#include <stdlib.h>
#include <string.h>

#define REFERENCE_LIMIT_MS 120000 /* references are simple and slow on purpose */
#define ROLES_SESSION (ROLE_BIT(KIND_IN) | ROLE_BIT(KIND_OUT) | ROLE_BIT(KIND_INOUT))

int bench_wait(struct bench *bench, double limit_ms, const char *what, struct verdict *verdict)
{
    watchdog_arm(&bench->watchdog, limit_ms, what);
    int result = gpu_wait(&bench->gpu, what, verdict);
    watchdog_disarm(&bench->watchdog);
    return result;
}

/* A launch may block in the call itself: when the queue is full, or on a stand-in for the driver.
 */
int bench_run(struct bench *bench, const struct program *program, unsigned parts,
    const struct buffer_list *buffers, const uint64_t *pointers, double limit_ms,
    struct verdict *verdict)
{
    watchdog_arm(&bench->watchdog, limit_ms, program_name(program));
    int issued = program_issue(program, parts, &bench->gpu, buffers, pointers, verdict);
    int waited = gpu_wait(&bench->gpu, program_name(program), verdict);
    watchdog_disarm(&bench->watchdog);
    return issued < 0 || waited < 0 ? -1 : 0;
}

void session_finish(struct session *session, struct gpu *gpu)
{
    buffer_list_finish(&session->buffers);
    arena_release(gpu, &session->own_arena);
    arena_release(gpu, &session->reference_arena);
    arena_release(gpu, &session->master_arena);
    *session = (struct session){.is_ready = false};
}

/* --- buffers and checks ----------------------------------------------------------------------- */

static int place_session(struct session *session, struct gpu *gpu, struct verdict *verdict)
{
    struct buffer_list *list = &session->buffers;
    uint64_t own = buffer_list_place(list, 0, session->own_count, ROLES_ALL, 0);
    uint64_t reference = buffer_list_place(list, session->own_count, list->count, ROLES_ALL, 0);
    if (arena_reserve(gpu, &session->own_arena, own, "the kernel's buffers", verdict) < 0 ||
        arena_reserve(
            gpu, &session->reference_arena, reference, "the reference's buffers", verdict) < 0)
        return -1;
    buffer_list_place(list, 0, session->own_count, ROLES_ALL, session->own_arena.base);
    buffer_list_place(
        list, session->own_count, list->count, ROLES_ALL, session->reference_arena.base);
    return 0;
}

/* Scratch of the kernel belongs to candidates: it depends on their configuration. */
static int read_own_buffers(struct session *session, const json_t *json, struct verdict *verdict)
{
    size_t index;
    json_t *each, *kept = json_array();
    json_array_foreach (json, index, each) {
        const char *role = json_string_value(json_object_get(each, "role"));
        if (!role || strcmp(role, "scratch") != 0)
            json_array_append(kept, each);
    }
    int result = buffer_list_read(&session->buffers, kept, verdict);
    json_decref(kept);
    session->own_count = session->buffers.count;
    return result;
}

static int find_buffer(struct session *session, const json_t *check, const char *key, size_t *index,
    struct verdict *verdict)
{
    const char *name = json_string_value(json_object_get(check, key));
    struct buffer *found = name ? buffer_list_find(&session->buffers, name) : NULL;
    if (!found)
        return verdict_set(
            verdict, "invalid", "a check's %s names the unknown buffer %s", key, name ? name : "");
    *index = (size_t)(found - session->buffers.items);
    return 0;
}

static int read_check(struct session *session, const json_t *json, struct verdict *verdict)
{
    struct tune_error err = {.code = TUNE_OK};
    struct check *check = &session->checks[session->check_count];
    *check = (struct check){.scale = SIZE_MAX};
    if (find_buffer(session, json, "buffer", &check->buffer, verdict) < 0 ||
        find_buffer(session, json, "reference", &check->reference, verdict) < 0)
        return -1;
    if (json_is_string(json_object_get(json, "scale")) &&
        find_buffer(session, json, "scale", &check->scale, verdict) < 0)
        return -1;
    if (proto_number_opt(json, "relative", &check->relative, &err) < 0 ||
        proto_number_opt(json, "absolute", &check->absolute, &err) < 0)
        return verdict_set(verdict, "invalid", "%s", err.text);
    const struct buffer *items = session->buffers.items;
    uint64_t count = items[check->buffer].count;
    if (items[check->reference].count != count ||
        (check->scale != SIZE_MAX && items[check->scale].count != count))
        return verdict_set(verdict, "invalid",
            "%s has %llu elements, its reference or scale another number",
            items[check->buffer].name, (unsigned long long)count);
    session->check_count++;
    return 0;
}

static int read_checks(struct session *session, const json_t *json, struct verdict *verdict)
{
    size_t index;
    json_t *each;
    if (json_array_size(json) == 0 || json_array_size(json) > BENCH_CHECK_LIMIT)
        return verdict_set(verdict, "invalid", "a reference has 1 to %d checks, not %zu",
            BENCH_CHECK_LIMIT, json_array_size(json));
    json_array_foreach (json, index, each)
        if (read_check(session, each, verdict) < 0)
            return -1;
    return 0;
}

/* --- inputs and reference --------------------------------------------------------------------- */

static int fill_buffers(struct bench *bench, const struct hooks *hooks, struct inputs *inputs,
    uint64_t seed, struct verdict *verdict)
{
    struct session *session = &bench->session;
    for (size_t i = 0; i < session->buffers.count; i++) {
        struct buffer *buffer = &session->buffers.items[i];
        bool is_input = buffer->role == KIND_IN || buffer->role == KIND_INOUT;
        if (i >= session->own_count || !is_input) /* zeros: the reference may add to them */
            buffer->fill = HARNESS_FILL_ZERO;
        else if (hooks_fill(hooks, &bench->gpu, buffer, seed, verdict) ||
                 (!verdict->outcome && inputs_fill(inputs, &bench->gpu, buffer, seed, i, verdict)))
            continue;
        if (verdict->outcome ||
            harness_fill_buffer(&bench->harness, &bench->gpu, buffer, seed, i, verdict) < 0)
            return -1;
    }
    return bench_wait(bench, WATCHDOG_STEP_MS, "filling the inputs", verdict);
}

/* The host's copies are of no use once they are on the device. */
static int fill_inputs(struct bench *bench, const struct hooks *hooks, const json_t *request,
    uint64_t seed, struct verdict *verdict)
{
    struct inputs inputs;
    if (inputs_init(&inputs, request, verdict) < 0)
        return -1;
    int result = fill_buffers(bench, hooks, &inputs, seed, verdict);
    inputs_finish(&inputs);
    return result;
}

static int keep_masters(struct bench *bench, struct verdict *verdict)
{
    struct session *session = &bench->session;
    struct gpu *gpu = &bench->gpu;
    uint64_t bytes = 0, at;
    for (size_t i = 0; i < session->own_count; i++)
        if (session->buffers.items[i].role == KIND_INOUT)
            bytes +=
                (session->buffers.items[i].bytes + BUFFER_ALIGN - 1) / BUFFER_ALIGN * BUFFER_ALIGN;
    if (bytes == 0)
        return 0;
    if (arena_reserve(gpu, &session->master_arena, bytes, "copies of in-place buffers", verdict) <
        0)
        return -1;
    at = session->master_arena.base;
    for (size_t i = 0; i < session->own_count; i++) {
        struct buffer *buffer = &session->buffers.items[i];
        if (buffer->role != KIND_INOUT || buffer->bytes == 0)
            continue;
        session->masters[i] = at;
        at += (buffer->bytes + BUFFER_ALIGN - 1) / BUFFER_ALIGN * BUFFER_ALIGN;
        unsigned result = gpu->api.cuMemcpyDtoDAsync(
            session->masters[i], buffer->pointer, buffer->bytes, gpu->stream);
        if (result != ABI_SUCCESS)
            return verdict_cuda(verdict, result, "copying %s", buffer->name);
    }
    return 0;
}

static int sum_inputs(struct bench *bench, struct verdict *verdict)
{
    struct session *session = &bench->session;
    for (size_t i = 0; i < session->own_count; i++)
        if (session->buffers.items[i].role == KIND_IN &&
            harness_checksum(&bench->harness, &bench->gpu, &session->buffers.items[i],
                &session->input_sums[i], verdict) < 0)
            return -1;
    return 0;
}

static int run_reference(
    struct bench *bench, const json_t *request, const json_t *reference, struct verdict *verdict)
{
    struct session *session = &bench->session;
    struct program program;
    uint64_t pointers[BUFFER_LIMIT];
    for (size_t i = 0; i < session->buffers.count; i++)
        pointers[i] = session->buffers.items[i].pointer;
    watchdog_arm(&bench->watchdog, WATCHDOG_STEP_MS, "loading the reference");
    int result = program_load(&program, &bench->gpu,
        json_string_value(json_object_get(request, "reference_image")),
        json_object_get(request, "reference_names"), json_object_get(reference, "launches"),
        &session->buffers, verdict);
    watchdog_disarm(&bench->watchdog);
    if (result < 0)
        return -1;
    result = bench_run(
        bench, &program, PROGRAM_ALL, &session->buffers, pointers, REFERENCE_LIMIT_MS, verdict);
    program_unload(&program, &bench->gpu);
    return result;
}

static int load_harness(struct bench *bench, const json_t *request, struct verdict *verdict)
{
    struct tune_error err = {.code = TUNE_OK};
    const char *text;
    if (bench->harness.module)
        return 0;
    if (proto_string(request, "harness", &text, &err) < 0)
        return verdict_set(verdict, "invalid", "%s", err.text);
    watchdog_arm(&bench->watchdog, WATCHDOG_STEP_MS, "loading harness.cu");
    int result = harness_load(&bench->harness, &bench->gpu, text, verdict);
    watchdog_disarm(&bench->watchdog);
    return result;
}

static int set_up(struct bench *bench, const json_t *request, struct verdict *verdict)
{
    struct session *session = &bench->session;
    struct tune_error err = {.code = TUNE_OK};
    struct hooks hooks = {.plugin = NULL};
    json_t *buffers = NULL, *reference = NULL;
    int64_t number, seed = 0;
    if (proto_int(request, "session", INT64_MIN, INT64_MAX, &number, &err) < 0 ||
        proto_int_opt(request, "seed", INT64_MIN, INT64_MAX, &seed, &err) < 0 ||
        proto_array_opt(request, "buffers", &buffers, &err) < 0 ||
        proto_object_opt(request, "reference", &reference, &err) < 0)
        return verdict_set(verdict, "invalid", "%s", err.text);
    session->number = number;
    if (load_harness(bench, request, verdict) < 0 || hooks_load(&hooks, request, verdict) < 0 ||
        read_own_buffers(session, buffers, verdict) < 0 ||
        buffer_list_read(&session->buffers, json_object_get(reference, "buffers"), verdict) < 0 ||
        read_checks(session, json_object_get(reference, "checks"), verdict) < 0)
        goto failed;
    watchdog_arm(&bench->watchdog, WATCHDOG_STEP_MS, "allocating the buffers");
    int result = place_session(session, &bench->gpu, verdict);
    watchdog_disarm(&bench->watchdog);
    if (result < 0 || fill_inputs(bench, &hooks, request, (uint64_t)seed, verdict) < 0 ||
        keep_masters(bench, verdict) < 0)
        goto failed;
    if (hooks_has_reference(&hooks))
        result = hooks_reference(&hooks, &bench->gpu, session->buffers.items, session->own_count,
            session->buffers.count, verdict);
    else
        result = run_reference(bench, request, reference, verdict);
    if (result < 0 || sum_inputs(bench, verdict) < 0)
        goto failed;
    hooks_unload(&hooks);
    session->is_ready = true;
    return 0;

failed:
    hooks_unload(&hooks);
    return -1;
}

json_t *bench_setup(struct bench *bench, const json_t *request)
{
    struct verdict verdict = {.outcome = NULL};
    double start_ms = clock_ms();
    session_finish(&bench->session, &bench->gpu);
    arena_release(&bench->gpu, &bench->scratch_arena); /* another shape may need the memory */
    arena_release(&bench->gpu, &bench->replica_arena);
    int result = set_up(bench, request, &verdict);
    json_t *answer = json_pack("{sb}", "ok", result == 0);
    json_object_set_new(answer, "setup_ms", json_real(clock_ms() - start_ms));
    if (result < 0) {
        verdict_to_json(&verdict, answer);
        bench->is_lost = bench->is_lost || verdict.is_sticky;
        if (!verdict.is_sticky)
            session_finish(&bench->session, &bench->gpu);
    }
    return answer;
}

/* --- candidates ------------------------------------------------------------------------------- */

static int bind_buffer(
    struct candidate *candidate, struct session *session, size_t index, struct verdict *verdict)
{
    struct buffer *buffer = &candidate->buffers.items[index];
    if (buffer->role == KIND_SCRATCH)
        return 0;
    struct buffer *own = buffer_list_find(&session->buffers, buffer->name);
    if (!own || own->bytes != buffer->bytes || own->role != buffer->role)
        return verdict_set(verdict, "invalid",
            "buffer %s is not the one that the session was set up with", buffer->name);
    buffer->pointer = own->pointer;
    candidate->masters[index] = session->masters[own - session->buffers.items];
    candidate->has_inout = candidate->has_inout || own->role == KIND_INOUT;
    return 0;
}

static int bind_buffers(struct candidate *candidate, struct bench *bench, const json_t *request,
    struct verdict *verdict)
{
    struct buffer_list *list = &candidate->buffers;
    if (buffer_list_read(list, json_object_get(request, "buffers"), verdict) < 0)
        return -1;
    for (size_t i = 0; i < list->count; i++)
        if (bind_buffer(candidate, &bench->session, i, verdict) < 0)
            return -1;
    unsigned scratch = ROLE_BIT(KIND_SCRATCH);
    uint64_t bytes = buffer_list_place(list, 0, list->count, scratch, 0);
    if (arena_reserve(&bench->gpu, &bench->scratch_arena, bytes, "scratch buffers", verdict) < 0)
        return -1;
    buffer_list_place(list, 0, list->count, scratch, bench->scratch_arena.base);
    for (size_t i = 0; i < list->count; i++)
        candidate->pointers[i] = list->items[i].pointer;
    return 0;
}

int candidate_load(struct candidate *candidate, struct bench *bench, const json_t *request,
    struct verdict *verdict)
{
    struct tune_error err = {.code = TUNE_OK};
    const char *image;
    if (proto_string(request, "image", &image, &err) < 0)
        return verdict_set(verdict, "invalid", "%s", err.text);
    candidate->serial = ++bench->serials;
    watchdog_arm(&bench->watchdog, WATCHDOG_STEP_MS, "loading the candidate");
    int result = bind_buffers(candidate, bench, request, verdict);
    if (result == 0)
        result =
            program_load(&candidate->program, &bench->gpu, image, json_object_get(request, "names"),
                json_object_get(request, "launches"), &candidate->buffers, verdict);
    watchdog_disarm(&bench->watchdog);
    if (result < 0)
        buffer_list_finish(&candidate->buffers);
    return result;
}

void candidate_unload(struct candidate *candidate, struct bench *bench)
{
    program_unload(&candidate->program, &bench->gpu);
    buffer_list_finish(&candidate->buffers);
}

int candidate_restore(struct candidate *candidate, struct bench *bench, struct verdict *verdict)
{
    for (size_t i = 0; i < candidate->buffers.count; i++) {
        const struct buffer *buffer = &candidate->buffers.items[i];
        if (!candidate->masters[i] || buffer->bytes == 0)
            continue;
        unsigned result = bench->gpu.api.cuMemcpyDtoDAsync(
            buffer->pointer, candidate->masters[i], buffer->bytes, bench->gpu.stream);
        if (result != ABI_SUCCESS)
            return verdict_cuda(verdict, result, "restoring %s", buffer->name);
    }
    return 0;
}

int candidate_make_ready(struct candidate *candidate, struct bench *bench, struct verdict *verdict)
{
    bool is_ready = bench->scratch_of == candidate->serial;
    bench->scratch_of = candidate->serial;
    if (candidate_restore(candidate, bench, verdict) < 0)
        return -1;
    return is_ready ? 0
                    : program_issue(&candidate->program, PROGRAM_ONCE, &bench->gpu,
                          &candidate->buffers, candidate->pointers, verdict);
}
