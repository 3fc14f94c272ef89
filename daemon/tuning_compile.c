/* Images of candidates, of the reference and of the harness. */
#include "daemon/tuning_internal.h"

#include "daemon/log.h"
#include "plugins/plan.h"

void tuning_request_image(struct tuning *tuning, const struct candidate *candidate,
    image_callback callback, void *context)
{
    int64_t values[MANIFEST_MAX_PARAMS];
    const int64_t *config = NULL;
    if (candidate != NULL) {
        space_config(tuning->space, candidate->index, values);
        config = values;
    }
    struct tune_error err = {0};
    struct image_request request = {
        .source = image_source_of_plugin(tuning->plugin),
        .defines = plan_defines(tuning->manifest, tuning->dims, tuning->dtype, config, &err),
        .entries = plan_entries(tuning->manifest, candidate == NULL),
        .device = &tuning->device,
        .arch_suffix = config == NULL ? ""
                                      : plan_arch_suffix(tuning->manifest, &tuning->device,
                                            tuning->dims, tuning->dtype, config),
        .no_nvrtc_cache = tuning->no_nvrtc_cache,
    };
    if (request.defines == NULL)
        request.defines = json_array(); /* the compile will name what is missing */
    image_request(tuning->deps.images, &request, callback, context);
    json_decref(request.defines);
    json_decref(request.entries);
}

static void take_compile_failure(struct candidate *candidate, const struct image_result *result)
{
    struct tuning *tuning = candidate->tuning;
    if (result->is_hopeless) {
        tuning_fail(tuning, TUNE_ENOCOMPILER, "%s", result->error);
        return;
    }
    if (result->is_static_assert)
        tuning_message(tuning,
            "manifest and source of %s disagree: a configuration that the manifest allows fails a "
            "static_assert: %s",
            tuning->manifest->name, result->error);
    struct row row = {
        .outcome = OUTCOME_COMPILE_FAILED,
        .detail = result->error,
        .log = result->log,
    };
    candidate_finish(candidate, &row);
}

static void on_image(const struct image_result *result, void *context)
{
    struct candidate *candidate = context;
    struct tuning *tuning = candidate->tuning;
    tuning->compiling--;
    tuning->compile_busy_s += result->compile_ms / 1e3;
    tuning->compiled += !result->is_cached;
    tuning->cached += result->is_cached;
    tuning->last_was_cached = result->is_cached;
    if (result->package == NULL) {
        take_compile_failure(candidate, result);
        tuning_pump(tuning);
        return;
    }
    candidate->subject.package = json_incref(result->package);
    if (result->is_ptx)
        tuning_message(tuning,
            "%s is newer than NVRTC %s: compiled to PTX, which the driver finishes",
            tuning->device.arch, sched_compiler(tuning->deps.sched)->nvrtc);
    if (candidate->is_again) {
        candidate->state = CANDIDATE_READY;
        candidate_queue_push(&tuning->ready, candidate);
        tuning_pump(tuning);
        return;
    }
    candidate_set_identity(candidate);
    struct candidate **equal = candidate_find_equal(tuning, &candidate->identity);
    if (*equal == NULL) {
        *equal = candidate;
        candidate->state = CANDIDATE_READY;
        candidate_queue_push(&tuning->ready, candidate);
    } else {
        candidate->leader = *equal;
        candidate->state = CANDIDATE_FOLLOWING;
        tuning->following++;
        candidate_drop_payload(candidate);
        if ((*equal)->state == CANDIDATE_DONE)
            candidate_finish_followers(*equal);
    }
    tuning_pump(tuning);
}

/* What a launch is, without the macros that say how its image was compiled: those are in the image.
 */
static json_t *bare_launches(json_t *launches)
{
    json_t *bare = json_array(), *launch;
    size_t i;
    json_array_foreach (launches, i, launch) {
        json_t *copy = json_copy(launch);
        json_object_del(copy, "defines");
        json_array_append_new(bare, copy);
    }
    json_decref(launches);
    return bare;
}

/* Results known from before: of this run (the daemon was restarted), or a candidate that is never
 * tried again. True when there is nothing to measure. */
static bool take_known(struct candidate *candidate)
{
    struct tuning *tuning = candidate->tuning;
    const struct known *known = tuning_known(tuning, candidate->index, true);
    if (known != NULL) {
        candidate->attempts = known->attempts;
        candidate->outcome = known->outcome;
        candidate->median_ns = known->median_ns;
        candidate->lo_ns = known->lo_ns;
        candidate->hi_ns = known->hi_ns;
        candidate->is_refused = known->is_refused;
        if (known->is_final) {
            candidate_count(candidate);
            return true;
        }
        if (known->attempts < TUNING_ATTEMPTS_MAX)
            return false;
        candidate_fail(candidate, OUTCOME_CRASHED,
            "it took its worker or the daemon down each time it was tried");
        return true;
    }
    known = tuning_known(tuning, candidate->index, false);
    if (known == NULL)
        return false;
    candidate->attempts = known->attempts;
    candidate_fail(candidate, known->outcome, "not tried again: it failed so in an earlier sweep");
    return true;
}

/* Its launches and buffers. False: there are none, and it has failed. */
static bool plan_candidate(struct candidate *candidate)
{
    struct tuning *tuning = candidate->tuning;
    struct tune_error err = {0};
    int64_t values[MANIFEST_MAX_PARAMS];
    space_config(tuning->space, candidate->index, values);
    json_t *launches =
        plan_launches(tuning->manifest, &tuning->device, tuning->dims, tuning->dtype, values, &err);
    candidate->subject.buffers =
        plan_buffers(tuning->manifest, &tuning->device, tuning->dims, tuning->dtype, values, &err);
    if (launches == NULL || candidate->subject.buffers == NULL) {
        json_decref(launches);
        candidate_fail(
            candidate, err.code == TUNE_ELIMIT ? OUTCOME_OVER_LIMITS : OUTCOME_INVALID, err.text);
        return false;
    }
    candidate->subject.launches = bare_launches(launches);
    return true;
}

void candidate_compile(struct candidate *candidate)
{
    struct tuning *tuning = candidate->tuning;
    if (!plan_candidate(candidate))
        return;
    candidate->state = CANDIDATE_COMPILING;
    tuning->compiling++;
    tuning_request_image(tuning, candidate, on_image, candidate);
}

void candidate_begin(struct tuning *tuning, size_t index)
{
    struct candidate *candidate = candidate_add(tuning, index);
    if (!take_known(candidate))
        candidate_compile(candidate);
}

struct candidate *candidate_begin_remote(struct tuning *tuning, size_t index)
{
    struct candidate *candidate = candidate_add(tuning, index);
    if (take_known(candidate) || !plan_candidate(candidate))
        return NULL;
    candidate_drop_payload(candidate);
    candidate->state = CANDIDATE_REMOTE;
    return candidate;
}

void tuning_begin_again(struct candidate *candidate)
{
    candidate->is_again = true;
    candidate_compile(candidate);
}

/* --- setup ------------------------------------------------------------------------------------ */

static void maybe_setup(struct tuning *tuning)
{
    if (tuning->setup != NULL || tuning->harness == NULL || tuning->reference == NULL)
        return;
    tuning->session = tuning_new_session();
    tuning->setup = tuning_setup_request(tuning, tuning->session, tuning->input_seed);
}

static void take_part(
    struct tuning *tuning, json_t **part, const char *what, const struct image_result *result)
{
    if (result->package == NULL) {
        tuning_fail(tuning, result->is_hopeless ? TUNE_ENOCOMPILER : TUNE_EINVAL,
            "%s does not compile: %s", what, result->error);
        return;
    }
    *part = json_incref(result->package);
    maybe_setup(tuning);
    tuning_pump(tuning);
}

static void on_harness(const struct image_result *result, void *context)
{
    struct tuning *tuning = context;
    take_part(tuning, &tuning->harness, "the measuring harness", result);
}

static void on_reference(const struct image_result *result, void *context)
{
    struct tuning *tuning = context;
    take_part(tuning, &tuning->reference, "the kernel's reference", result);
}

void tuning_request_parts(struct tuning *tuning)
{
    struct image_request harness = {
        .source = *tuning->deps.harness,
        .defines = json_array(),
        .entries = json_array(),
        .device = &tuning->device,
        .arch_suffix = "",
        .no_nvrtc_cache = tuning->no_nvrtc_cache,
    };
    image_request(tuning->deps.images, &harness, on_harness, tuning);
    json_decref(harness.defines);
    json_decref(harness.entries);
    tuning_request_image(tuning, NULL, on_reference, tuning);
}
