/* Correct first: the first launch of a candidate, on poisoned outputs between guards, is compared
 * with the reference before anything is timed. */
#include "bench_internal.h"

#include <stdio.h>

/* All ones is a NaN in every float type and -1 in the integers; where right results look like that,
 * the second pattern decides. */
static const unsigned char poisons[] = {0xFF, 0x5A};

static int poison(struct candidate *candidate, struct bench *bench, bool also_scratch,
    unsigned char byte, struct verdict *verdict)
{
    for (size_t i = 0; i < candidate->buffers.count; i++) {
        const struct buffer *buffer = &candidate->buffers.items[i];
        bool is_written =
            buffer->role == KIND_OUT || (also_scratch && buffer->role == KIND_SCRATCH);
        if (!is_written || buffer->bytes == 0)
            continue;
        unsigned result =
            bench->gpu.api.cuMemsetD8Async(buffer->pointer, byte, buffer->bytes, bench->gpu.stream);
        if (result != ABI_SUCCESS)
            return verdict_cuda(verdict, result, "poisoning %s", buffer->name);
    }
    return program_poison(&candidate->program, &bench->gpu, byte, verdict);
}

static double value_at(struct bench *bench, const struct buffer *buffer, uint64_t index)
{
    unsigned char element[8] = {0};
    size_t bytes = (size_t)harness_dtype_bytes(buffer->dtype);
    bench->gpu.api.cuMemcpyDtoH(element, buffer->pointer + index * bytes, bytes);
    return harness_value(buffer->dtype, element);
}

static int report_difference(struct bench *bench, const struct check *check,
    const struct comparison *comparison, struct verdict *verdict)
{
    const struct buffer *items = bench->session.buffers.items;
    const struct buffer *x = &items[check->buffer], *reference = &items[check->reference];
    double got = value_at(bench, x, comparison->first);
    double wanted = value_at(bench, reference, comparison->first);
    double scale = check->scale == SIZE_MAX
                       ? wanted
                       : value_at(bench, &items[check->scale], comparison->first);
    double allowed = check->absolute + check->relative * (scale < 0 ? -scale : scale);
    char worst[40] = "infinitely";
    if (comparison->worst < HARNESS_WORST)
        snprintf(worst, sizeof(worst), "%.3g times", comparison->worst);
    return verdict_set(verdict, "wrong_result",
        "%llu of %llu elements of %s are wrong, the worst %s what is allowed; the first: %s[%llu] "
        "is "
        "%.9g, the reference %.9g +- %.3g",
        (unsigned long long)comparison->bad, (unsigned long long)x->count, x->name, worst, x->name,
        (unsigned long long)comparison->first, got, wanted, allowed);
}

/* Compares all checked buffers; *is_shadowed: some right element still looks like the poison. */
static int compare_outputs(struct bench *bench, unsigned char byte, double *max_error,
    bool *is_shadowed, struct verdict *verdict)
{
    struct session *session = &bench->session;
    for (size_t i = 0; i < session->check_count; i++) {
        const struct check *check = &session->checks[i];
        const struct buffer *items = session->buffers.items;
        struct comparison comparison;
        if (items[check->buffer].count == 0)
            continue;
        watchdog_arm(&bench->watchdog, WATCHDOG_STEP_MS, "comparing with the reference");
        int result = harness_compare(&bench->harness, &bench->gpu, &items[check->buffer],
            &items[check->reference], check->scale == SIZE_MAX ? NULL : &items[check->scale],
            check->relative, check->absolute, byte, &comparison, verdict);
        watchdog_disarm(&bench->watchdog);
        if (result < 0)
            return -1;
        *is_shadowed = *is_shadowed || comparison.shadowed > 0;
        *max_error = comparison.worst > *max_error ? comparison.worst : *max_error;
        if (comparison.bad > 0)
            return report_difference(bench, check, &comparison, verdict);
    }
    return 0;
}

/* An input that was written to would be read by later candidates, so this worker must end. */
static int check_inputs(struct bench *bench, struct verdict *verdict)
{
    struct session *session = &bench->session;
    for (size_t i = 0; i < session->own_count; i++) {
        const struct buffer *buffer = &session->buffers.items[i];
        uint64_t sum;
        if (buffer->role != KIND_IN)
            continue;
        watchdog_arm(&bench->watchdog, WATCHDOG_STEP_MS, "checking the inputs");
        int result = harness_checksum(&bench->harness, &bench->gpu, buffer, &sum, verdict);
        watchdog_disarm(&bench->watchdog);
        if (result < 0)
            return -1;
        if (sum != session->input_sums[i]) {
            verdict_set(verdict, "wrong_result", "writes to its input %s", buffer->name);
            verdict->is_sticky = true;
            return -1;
        }
    }
    return 0;
}

static int check_guards(struct candidate *candidate, struct bench *bench, struct verdict *verdict)
{
    watchdog_arm(&bench->watchdog, WATCHDOG_STEP_MS, "checking the guards");
    int result = harness_check_guards(&bench->harness, &bench->gpu, &candidate->buffers, verdict);
    watchdog_disarm(&bench->watchdog);
    if (result < 0)
        verdict->is_sticky = true; /* who knows what else it wrote to: the reference, perhaps */
    return result;
}

/* What was done once serves every call: so the call that is compared is the second, which must find
 * it as the first did. */
static int call_again(struct candidate *candidate, struct bench *bench, unsigned char byte,
    double deadline_ms, struct verdict *verdict)
{
    if (poison(candidate, bench, false, byte, verdict) < 0 ||
        candidate_restore(candidate, bench, verdict) < 0 ||
        bench_wait(bench, WATCHDOG_STEP_MS, "preparing the buffers", verdict) < 0)
        return -1;
    return bench_run(bench, &candidate->program, PROGRAM_CALL, &candidate->buffers,
        candidate->pointers, deadline_ms, verdict);
}

static int run_poisoned(struct candidate *candidate, struct bench *bench, unsigned char byte,
    double deadline_ms, struct verdict *verdict)
{
    if (poison(candidate, bench, true, byte, verdict) < 0 ||
        candidate_restore(candidate, bench, verdict) < 0 ||
        harness_set_guards(&bench->gpu, &candidate->buffers, verdict) < 0 ||
        bench_wait(bench, WATCHDOG_STEP_MS, "preparing the buffers", verdict) < 0)
        return -1;
    bench->scratch_of = candidate->serial;
    if (bench_run(bench, &candidate->program, PROGRAM_ALL, &candidate->buffers, candidate->pointers,
            deadline_ms, verdict) < 0 ||
        (candidate->program.has_once &&
            call_again(candidate, bench, byte, deadline_ms, verdict) < 0))
        return -1;
    return check_guards(candidate, bench, verdict);
}

int candidate_verify(struct candidate *candidate, struct bench *bench, double deadline_ms,
    double *max_error, struct verdict *verdict)
{
    bool is_shadowed = true;
    *max_error = 0;
    for (size_t i = 0; i < sizeof(poisons) && is_shadowed; i++) {
        is_shadowed = false;
        if (run_poisoned(candidate, bench, poisons[i], deadline_ms, verdict) < 0)
            return -1;
        if (compare_outputs(bench, poisons[i], max_error, &is_shadowed, verdict) < 0) {
            if (!verdict->is_sticky)
                check_inputs(bench, verdict); /* keeps the first sentence, adds the end */
            return -1;
        }
    }
    return check_inputs(bench, verdict);
}

int candidate_recheck(
    struct candidate *candidate, struct bench *bench, double *max_error, struct verdict *verdict)
{
    bool is_shadowed = false;
    if (check_guards(candidate, bench, verdict) < 0)
        return -1;
    return compare_outputs(bench, poisons[0], max_error, &is_shadowed, verdict);
}
