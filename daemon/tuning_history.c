/* What earlier runs know: rows of this very run (the daemon was restarted, or another machine took
 * part), candidates that must not be tried again, and the measuring method that this key is held
 * to. Runs on a pool thread, before anything else. */
#include "daemon/tuning_internal.h"

#include "daemon/xmalloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t index_of_text(const struct tuning *tuning, const char *text)
{
    int64_t values[MANIFEST_MAX_PARAMS];
    if (manifest_config_from_text(tuning->manifest, text, values, NULL))
        return SIZE_MAX;
    return space_find(tuning->space, values);
}

static struct known *add_known(struct tuning *tuning)
{
    /* Grows at powers of two. */
    if ((tuning->known_count & (tuning->known_count - 1)) == 0)
        tuning->known = xrealloc(tuning->known,
            (tuning->known_count ? tuning->known_count * 2 : 1) * sizeof *tuning->known);
    struct known *known = &tuning->known[tuning->known_count++];
    *known = (struct known){0};
    return known;
}

static bool is_of_a_lane(const struct tuning *tuning, const char *uuid)
{
    for (size_t i = 0; i < tuning->lane_count; i++)
        if (strcmp(uuid, tuning->lanes[i].device.uuid) == 0)
            return true;
    return false;
}

bool tuning_is_of_run(const struct tuning *tuning, const struct sample *sample)
{
    return strcmp(sample->run, tuning->run_search) == 0 &&
           strcmp(sample->gpu_name, tuning->device.name) == 0 &&
           sample->sms == (uint32_t)tuning->device.attributes[DEVICE_sms];
}

static int on_sample(const struct sample *sample, void *context)
{
    struct tuning *tuning = context;
    bool is_this_run = tuning_is_of_run(tuning, sample);
    if (!is_this_run && !is_of_a_lane(tuning, sample->gpu_uuid))
        return 0;
    if (sample->outcome == OUTCOME_OK && tuning->method[0] == '\0' && method_is_own(sample->method))
        snprintf(tuning->method, sizeof tuning->method, "%s", sample->method);
    bool is_bad = sample->is_final &&
                  (sample->outcome == OUTCOME_CRASHED || sample->outcome == OUTCOME_TIMEOUT);
    if (!is_this_run && !is_bad)
        return 0;
    size_t index = index_of_text(tuning, sample->config);
    if (index == SIZE_MAX)
        return 0;
    struct known *known = add_known(tuning);
    known->index = index;
    known->is_this_run = is_this_run;
    known->is_final = sample->is_final;
    known->outcome = sample->outcome;
    known->is_refused = sample->is_refused;
    known->attempts = sample->attempts;
    known->median_ns = sample->median_ns;
    known->lo_ns = sample->lo_ns;
    known->hi_ns = sample->hi_ns;
    return 0;
}

static int compare_known(const void *left, const void *right)
{
    const struct known *a = left, *b = right;
    if (a->index != b->index)
        return a->index < b->index ? -1 : 1;
    if (a->is_this_run != b->is_this_run)
        return a->is_this_run ? -1 : 1;
    return (int)b->is_final - (int)a->is_final; /* several machines may have tried it */
}

/* The mark "ATTEMPTS CONFIG": what a lane was measuring when the last daemon ended, and how often
 * it had been tried before. It may have been the reason, so that counts as one more attempt. */
static size_t parse_mark(const struct tuning *tuning, const char *text, uint32_t *attempts)
{
    char *config;
    unsigned long before = strtoul(text, &config, 10);
    if (config == text || *config != ' ' || before >= TUNING_ATTEMPTS_MAX)
        return SIZE_MAX;
    *attempts = (uint32_t)before + 1;
    return index_of_text(tuning, config + 1);
}

static int on_mark(const char *name, const void *bytes, size_t count, void *context)
{
    struct tuning *tuning = context;
    (void)name;
    char *text = xasprintf("%.*s", (int)count, (const char *)bytes);
    uint32_t attempts = 0;
    size_t index = parse_mark(tuning, text, &attempts);
    free(text);
    if (index == SIZE_MAX)
        return 0;
    for (size_t i = 0; i < tuning->known_count; i++) {
        struct known *known = &tuning->known[i];
        if (known->index != index || !known->is_this_run)
            continue;
        if (!known->is_final)
            known->attempts = attempts;
        return 0;
    }
    struct known *known = add_known(tuning);
    known->index = index;
    known->is_this_run = true;
    known->outcome = OUTCOME_CRASHED;
    known->attempts = attempts;
    return 0;
}

void tuning_read_history(struct tuning *tuning)
{
    tuning->space = space_create(tuning->manifest, &tuning->device, tuning->dims, tuning->dtype,
        tuning->has_filter ? &tuning->filter : NULL, &tuning->error);
    if (tuning->space == NULL)
        return;
    if (tuning_db_walk_samples(tuning->deps.db, &tuning->key, on_sample, tuning, &tuning->error))
        return;
    char marks[64];
    snprintf(marks, sizeof marks, "mark/%s/", tuning->job);
    if (tuning_db_walk_jobs(tuning->deps.db, marks, on_mark, tuning, &tuning->error))
        return;
    for (size_t i = 0; i < tuning->help_config_count; i++) {
        size_t index = index_of_text(tuning, tuning->help_configs[i]);
        if (index != SIZE_MAX)
            tuning->help_indices[tuning->help_count++] = index;
    }
    if (tuning->known_count > 0)
        qsort(tuning->known, tuning->known_count, sizeof *tuning->known, compare_known);
}

const struct known *tuning_known(const struct tuning *tuning, size_t index, bool this_run)
{
    size_t low = 0, high = tuning->known_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (tuning->known[middle].index < index)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < tuning->known_count && tuning->known[low].index == index; low++)
        if (tuning->known[low].is_this_run == this_run)
            return &tuning->known[low];
    return NULL;
}
