/* The choice of the best rows of a key: a pure function of the set of its samples, whatever order
 * they came in.
 *
 * For each configuration on each GPU one sample stands: the newest confirmed one, else the newest.
 * It falls when a later final sample of the same configuration on that GPU failed, because whoever
 * asks now would meet that failure. Samples taken by another method than the newest confirmed one
 * of their GPU model are left out: medians of different methods are not comparable. The first in
 * the order of sample_compare wins. Refused samples count for nothing. */
#include "best.h"

#include <stdlib.h>
#include <string.h>

/* The samples of one GPU model, sorted by GPU, configuration, time and run. */
struct group {
    const struct sample **samples;
    size_t count;
    const char *method;
};

static int compare_age(const struct sample *a, const struct sample *b)
{
    if (a->time_unix_ms != b->time_unix_ms)
        return a->time_unix_ms < b->time_unix_ms ? -1 : 1;
    return strcmp(a->run, b->run);
}

static int compare_place(const void *left, const void *right)
{
    const struct sample *a = *(const struct sample *const *)left;
    const struct sample *b = *(const struct sample *const *)right;
    int order = strcmp(a->gpu_name, b->gpu_name);
    if (order == 0)
        order = (a->sms > b->sms) - (a->sms < b->sms);
    if (order == 0)
        order = strcmp(a->gpu_uuid, b->gpu_uuid);
    if (order == 0)
        order = strcmp(a->config, b->config);
    return order != 0 ? order : compare_age(a, b);
}

static int compare_ties(const void *left, const void *right)
{
    return sample_compare(
        *(const struct sample *const *)left, *(const struct sample *const *)right);
}

static bool is_same_config(const struct sample *a, const struct sample *b)
{
    return strcmp(a->gpu_uuid, b->gpu_uuid) == 0 && strcmp(a->config, b->config) == 0;
}

/* The sample whose method is in force, or NULL: the newest confirmed one, else the newest. */
static const struct sample *find_method(const struct sample *const *samples, size_t count)
{
    const struct sample *newest = NULL;
    for (size_t i = 0; i < count; i++) {
        const struct sample *sample = samples[i];
        if (!sample_is_eligible(sample))
            continue;
        if (newest == NULL || sample->is_confirmed > newest->is_confirmed ||
            (sample->is_confirmed == newest->is_confirmed && compare_age(newest, sample) < 0))
            newest = sample;
    }
    return newest;
}

/* Of the samples of one configuration on one GPU the one that stands unless it fell, and the
 * newest failure; either may be NULL. `samples` are all of it, oldest first. */
static void find_standing(const struct group *group, const struct sample *const *samples,
    size_t count, const struct sample **standing_out, const struct sample **failed_out)
{
    const struct sample *standing = NULL, *failed = NULL;
    for (size_t i = 0; i < count; i++) {
        const struct sample *sample = samples[i];
        if (sample->is_refused || !sample->is_final)
            continue;
        if (sample->outcome != OUTCOME_OK)
            failed = sample;
        else if (sample_is_eligible(sample) && strcmp(sample->method, group->method) == 0 &&
                 (standing == NULL || sample->is_confirmed >= standing->is_confirmed))
            standing = sample;
    }
    *standing_out = standing;
    *failed_out = failed;
}

/* The sample that stands for one configuration on one GPU, or NULL. */
static const struct sample *pick_standing(
    const struct group *group, const struct sample *const *samples, size_t count)
{
    const struct sample *standing, *failed;
    find_standing(group, samples, count, &standing, &failed);
    if (standing != NULL && failed != NULL && compare_age(standing, failed) < 0)
        return NULL;
    return standing;
}

/* The end of the run of samples of one configuration that starts at `first`. */
static size_t config_end(const struct group *group, size_t first)
{
    size_t end = first + 1;
    while (end < group->count && is_same_config(group->samples[first], group->samples[end]))
        end++;
    return end;
}

static const struct sample *pick_winner(const struct group *group)
{
    const struct sample *winner = NULL;
    for (size_t first = 0, end; first < group->count; first = end) {
        end = config_end(group, first);
        const struct sample *standing = pick_standing(group, group->samples + first, end - first);
        if (standing != NULL && (winner == NULL || sample_compare(standing, winner) < 0))
            winner = standing;
    }
    return winner;
}

static bool is_of_same_run(const struct sample *sample, const struct sample *winner)
{
    return sample_is_eligible(sample) && strcmp(sample->run, winner->run) == 0 &&
           strcmp(sample->gpu_uuid, winner->gpu_uuid) == 0;
}

static bool is_tie(const struct sample *sample, const struct sample *winner)
{
    return winner->is_confirmed && sample->is_confirmed && is_of_same_run(sample, winner) &&
           !is_same_config(sample, winner) && sample->lo_ns <= winner->hi_ns &&
           sample->hi_ns >= winner->lo_ns;
}

/* The confirmed samples of the winner's run that its interval cannot be told apart from; `ties` has
 * room for the whole group. */
static size_t collect_ties(
    const struct group *group, const struct sample *winner, const struct sample **ties)
{
    size_t tie_count = 0;
    if (!winner->is_confirmed)
        return 0;
    for (size_t first = 0, end; first < group->count; first = end) {
        end = config_end(group, first);
        if (pick_standing(group, group->samples + first, end - first) == NULL)
            continue;
        for (size_t i = first; i < end; i++)
            if (is_tie(group->samples[i], winner))
                ties[tie_count++] = group->samples[i];
    }
    qsort(ties, tie_count, sizeof ties[0], compare_ties);
    return tie_count;
}

/* The default's sample of the winner's run, or NULL. */
static const struct sample *find_default(const struct group *group, const struct sample *winner)
{
    for (size_t i = 0; i < group->count; i++) {
        const struct sample *sample = group->samples[i];
        if (sample->is_default && is_of_same_run(sample, winner))
            return sample;
    }
    return NULL;
}

static int fill_row(struct best *row, const struct group *group, const struct sample *winner)
{
    const struct sample **ties = calloc(group->count, sizeof *ties);
    if (ties == NULL)
        return -1;
    size_t tie_count = collect_ties(group, winner, ties);
    const struct sample *standard = find_default(group, winner);
    *row = (struct best){.key = winner->key,
        .config = winner->config,
        .gpu_name = winner->gpu_name,
        .gpu_uuid = winner->gpu_uuid,
        .host = winner->host,
        .nvrtc = winner->nvrtc,
        .run = winner->run,
        .method = winner->method,
        .driver = winner->driver,
        .sms = winner->sms,
        .is_confirmed = winner->is_confirmed,
        .median_ns = winner->median_ns,
        .lo_ns = winner->lo_ns,
        .hi_ns = winner->hi_ns,
        .default_median_ns = standard == NULL ? 0 : standard->median_ns,
        .sample_count = (uint32_t)winner->sample_count,
        .time_unix_ms = winner->time_unix_ms,
        .tie_count = tie_count};
    row->ties = calloc(tie_count + 1, sizeof *row->ties);
    for (size_t i = 0; row->ties != NULL && i < tie_count; i++)
        row->ties[i] = ties[i]->config;
    free(ties);
    return row->ties == NULL ? -1 : 0;
}

static bool is_same_model(const struct sample *a, const struct sample *b)
{
    return strcmp(a->gpu_name, b->gpu_name) == 0 && a->sms == b->sms;
}

/* The group that starts at `samples`, of as many as belong to one model. */
static struct group next_group(const struct sample **samples, size_t count)
{
    struct group group = {.samples = samples, .count = 1, .method = ""};
    while (group.count < count && is_same_model(samples[0], samples[group.count]))
        group.count++;
    const struct sample *newest = find_method(samples, group.count);
    if (newest != NULL)
        group.method = newest->method;
    return group;
}

static void sort_samples(const struct sample **samples, size_t count)
{
    if (count > 0)
        qsort(samples, count, sizeof samples[0], compare_place);
}

int best_rows_pick(struct best_rows *rows, const struct sample **samples, size_t count)
{
    *rows = (struct best_rows){.rows = calloc(count + 1, sizeof *rows->rows)};
    if (rows->rows == NULL)
        return -1;
    sort_samples(samples, count);
    const struct sample *arch_winner = NULL;
    struct group group;
    for (size_t first = 0; first < count; first += group.count) {
        group = next_group(samples + first, count - first);
        const struct sample *winner = pick_winner(&group);
        if (winner == NULL)
            continue;
        if (arch_winner == NULL || sample_compare(winner, arch_winner) < 0) {
            arch_winner = winner;
            rows->arch = rows->count;
        }
        if (fill_row(&rows->rows[rows->count++], &group, winner) != 0) {
            best_rows_finish(rows);
            return -1;
        }
    }
    return 0;
}

void best_rows_finish(struct best_rows *rows)
{
    for (size_t i = 0; i < rows->count; i++)
        free((void *)rows->rows[i].ties);
    free(rows->rows);
    *rows = (struct best_rows){0};
}

size_t best_standing(const struct sample **samples, size_t count)
{
    size_t standing_count = 0;
    sort_samples(samples, count);
    struct group group;
    for (size_t begin = 0; begin < count; begin += group.count) {
        group = next_group(samples + begin, count - begin);
        for (size_t first = 0, end; first < group.count; first = end) {
            end = config_end(&group, first);
            const struct sample *standing =
                pick_standing(&group, group.samples + first, end - first);
            if (standing != NULL)
                samples[standing_count++] = standing;
        }
    }
    return standing_count;
}

/* --- what a choice rests on ------------------------------------------------------------------- */

/* The samples that a group's row names, or that say which method is in force; and the ties. */
struct named {
    const struct sample *winner, *standard, *newest;
};

static bool is_named(const struct named *named, const struct sample *sample)
{
    return sample == named->winner || sample == named->standard || sample == named->newest ||
           is_tie(sample, named->winner);
}

/* Of a configuration with a sample that is named: that one, and what says whether it stands. Alone
 * it could rise again from a failure, or stand for a newer one. */
static void mark_config(
    const struct group *group, size_t first, size_t end, const struct named *named, bool *is_needed)
{
    const struct sample *standing, *failed;
    bool is_touched = false;
    find_standing(group, group->samples + first, end - first, &standing, &failed);
    for (size_t i = first; i < end; i++) {
        is_needed[i] = is_named(named, group->samples[i]);
        is_touched |= is_needed[i];
    }
    for (size_t i = first; is_touched && i < end; i++)
        is_needed[i] |= group->samples[i] == standing || group->samples[i] == failed;
}

/* Moves the needed ones of a group to `to`, which is at or before it. */
static size_t reduce_group(const struct group *group, const struct sample **to, bool *is_needed)
{
    struct named named = {.winner = pick_winner(group)};
    size_t count = 0;
    if (named.winner == NULL)
        return 0;
    named.standard = find_default(group, named.winner);
    named.newest = find_method(group->samples, group->count);
    for (size_t first = 0, end; first < group->count; first = end) {
        end = config_end(group, first);
        mark_config(group, first, end, &named, is_needed);
    }
    for (size_t i = 0; i < group->count; i++)
        if (is_needed[i])
            to[count++] = group->samples[i];
    return count;
}

int best_rows_reduce(const struct sample **samples, size_t count, size_t *reduced)
{
    bool *is_needed = calloc(count + 1, sizeof *is_needed);
    if (is_needed == NULL)
        return -1;
    *reduced = 0;
    sort_samples(samples, count);
    struct group group;
    for (size_t first = 0; first < count; first += group.count) {
        group = next_group(samples + first, count - first);
        *reduced += reduce_group(&group, samples + *reduced, is_needed);
    }
    free(is_needed);
    return 0;
}
