/* Where a search begins, before it has measured anything itself: the winners of near shapes and of
 * other architectures in the database, then what the static estimate holds best. Runs on a pool
 * thread, after the history was read.
 *
 * The estimate cannot tell configurations apart that fill the device alike and move as much; of
 * such a group the list has one, the one most like the default, since its author knew what the
 * estimate does not. */
#include "daemon/tuning_internal.h"

#include "daemon/log.h"
#include "daemon/search/number.h"
#include "daemon/xmalloc.h"
#include "plugins/estimate.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NEAR_SAME_MAX 4  /* winners on the same architecture */
#define NEAR_OTHER_MAX 2 /* and on others */
#define STATIC_MAX 8
#define STATIC_LOOK_MAX 200000 /* of a larger space, evenly spread ones are estimated: 0.1 s */
static_assert(NEAR_SAME_MAX + NEAR_OTHER_MAX + STATIC_MAX <= TUNING_PRIOR_MAX, "the list has room");

int tuning_parse_prior(const char *word, unsigned *prior, struct tune_error *err)
{
    static const char *const words[] = {"none", "near", "static", "all"};
    static_assert(TUNING_PRIOR_NEAR == 1 && TUNING_PRIOR_STATIC == 2, "a word's place is its bits");
    for (unsigned i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(word, words[i]) == 0) {
            *prior = i;
            return 0;
        }
    return tune_fail(
        err, TUNE_EINVAL, "prior is \"%.20s\"; there are: none, static, near, all", word);
}

/* Takes a configuration into the list, unless it is there, is tried anyway, or is known to fail. */
static bool add_prior(struct tuning *tuning, size_t index)
{
    if (index == SIZE_MAX || index == space_default(tuning->space) ||
        tuning_known(tuning, index, false) != NULL)
        return false;
    for (size_t i = 0; i < tuning->prior_count; i++)
        if (tuning->prior_list[i] == index)
            return false;
    tuning->prior_list[tuning->prior_count++] = index;
    return true;
}

/* --- winners of near shapes ------------------------------------------------------------------- */

struct near {
    size_t index;
    bool is_other; /* architecture */
    double distance;
};

struct near_list {
    const struct tuning *tuning;
    struct near *items;
    size_t count;
};

/* Emulated times say nothing about a GPU, nor the reverse. */
static bool is_comparable(const struct tuning *tuning, const struct record_key *key)
{
    return strcmp(key->dtype, tuning->dtype) == 0 && strcmp(key->mode, tuning->mode) == 0 &&
           (strcmp(key->arch, "cpu") == 0) == (strcmp(tuning->device.arch, "cpu") == 0);
}

static int on_best(const struct best *best, void *context)
{
    struct near_list *list = context;
    const struct tuning *tuning = list->tuning;
    int64_t values[MANIFEST_MAX_PARAMS];
    double distance = manifest_shape_distance(tuning->manifest, tuning->dims, best->key.shape);
    if (!is_comparable(tuning, &best->key) || distance < 0 ||
        manifest_config_from_text(tuning->manifest, best->config, values, NULL))
        return 0;
    size_t index = space_find(tuning->space, values);
    if (index == SIZE_MAX)
        return 0;                               /* not valid for this shape or device */
    if ((list->count & (list->count - 1)) == 0) /* grows at powers of two */
        list->items =
            xrealloc(list->items, (list->count ? list->count * 2 : 1) * sizeof *list->items);
    list->items[list->count++] = (struct near){
        .index = index,
        .is_other = strcmp(best->key.arch, tuning->device.arch) != 0,
        .distance = distance,
    };
    return 0;
}

static int compare_near(const void *left, const void *right)
{
    const struct near *a = left, *b = right;
    if (a->is_other != b->is_other)
        return a->is_other ? 1 : -1;
    if (a->distance != b->distance)
        return a->distance < b->distance ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

static void add_near(struct tuning *tuning)
{
    struct near_list list = {.tuning = tuning};
    struct tune_error err = {0};
    size_t taken[2] = {0, 0};
    if (tuning_db_walk_best(tuning->deps.db, tuning->manifest->name, on_best, &list, &err))
        log_warnx("%s begins without the winners of near shapes: %s", tuning->job, err.text);
    if (list.count > 0)
        qsort(list.items, list.count, sizeof *list.items, compare_near);
    for (size_t i = 0; i < list.count; i++) {
        const struct near *near = &list.items[i];
        size_t limit = near->is_other ? NEAR_OTHER_MAX : NEAR_SAME_MAX;
        if (taken[near->is_other] < limit && add_prior(tuning, near->index))
            taken[near->is_other]++;
    }
    free(list.items);
    tuning->prior_near = tuning->prior_count;
}

/* --- the static estimate ---------------------------------------------------------------------- */

struct ranked {
    uint64_t rank;   /* of the estimated time; equal within 0.2 % */
    uint32_t unlike; /* params that differ from the default's */
    uint32_t index;
};

/* The time's exponent and first nine bits of its mantissa: they order positive numbers as the
 * numbers do. */
static uint64_t rank_of(double time_ns)
{
    uint64_t bits;
    static_assert(sizeof bits == sizeof time_ns, "a double has 64 bits");
    memcpy(&bits, &time_ns, sizeof bits);
    return bits >> (52 - 9);
}

static uint32_t count_unlike(const struct tuning *tuning, const int64_t *a, const int64_t *b)
{
    uint32_t count = 0;
    for (size_t i = 0; i < tuning->manifest->param_count; i++)
        count += a[i] != b[i];
    return count;
}

static int compare_ranked(const void *left, const void *right)
{
    const struct ranked *a = left, *b = right;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    if (a->unlike != b->unlike)
        return a->unlike < b->unlike ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

/* The space's default, or the manifest's first where a filter excludes them all. */
static void default_values(const struct tuning *tuning, int64_t *values)
{
    size_t index = space_default(tuning->space);
    if (index != SIZE_MAX)
        space_config(tuning->space, index, values);
    else
        memcpy(values, tuning->manifest->defaults[0], sizeof tuning->manifest->defaults[0]);
}

/* Best first. Where no configuration is passed over, the search gets their estimates to go by. */
static struct ranked *rank_space(struct tuning *tuning, struct estimator *estimator, size_t *count)
{
    int64_t standard[MANIFEST_MAX_PARAMS], values[MANIFEST_MAX_PARAMS];
    size_t total = space_count(tuning->space), step = total / STATIC_LOOK_MAX + 1;
    struct ranked *ranked = xcalloc(total / step + 1, sizeof *ranked);
    *count = 0;
    if (step == 1)
        tuning->guesses = xmalloc(total * sizeof tuning->guesses[0]);
    default_values(tuning, standard);
    for (size_t i = 0; i < total; i += step) {
        struct estimate estimate;
        space_config(tuning->space, i, values);
        bool is_estimated = estimator_run(estimator, values, 0, &estimate, NULL) == 0;
        if (tuning->guesses != NULL)
            tuning->guesses[i] = is_estimated ? (float)number_log2(estimate.time_ns) : NAN;
        if (is_estimated)
            ranked[(*count)++] = (struct ranked){
                .rank = rank_of(estimate.time_ns),
                .unlike = count_unlike(tuning, values, standard),
                .index = (uint32_t)i,
            };
    }
    qsort(ranked, *count, sizeof *ranked, compare_ranked);
    return ranked;
}

/* Whether it differs from each chosen one in two params at least. */
static bool is_apart(const struct tuning *tuning, size_t index)
{
    int64_t values[MANIFEST_MAX_PARAMS], chosen[MANIFEST_MAX_PARAMS];
    space_config(tuning->space, index, values);
    for (size_t i = 0; i < tuning->prior_count; i++) {
        space_config(tuning->space, tuning->prior_list[i], chosen);
        if (count_unlike(tuning, values, chosen) < 2)
            return false;
    }
    return true;
}

/* One of each rank, until `limit` are added from the list's beginning on; the first half apart from
 * each other, so that one wrong idea of the estimate does not fill the list. */
static void choose(struct tuning *tuning, const struct ranked *ranked, size_t count)
{
    uint64_t taken[STATIC_MAX];
    size_t added = 0;
    for (int pass = 0; pass < 2; pass++) {
        size_t limit = pass == 0 ? STATIC_MAX / 2 : STATIC_MAX;
        for (size_t i = 0; i < count && added < limit; i++) {
            bool is_taken = false;
            for (size_t j = 0; j < added; j++)
                is_taken |= taken[j] == ranked[i].rank;
            if (is_taken || (pass == 0 && !is_apart(tuning, ranked[i].index)) ||
                !add_prior(tuning, ranked[i].index))
                continue;
            taken[added++] = ranked[i].rank;
        }
    }
}

static void add_static(struct tuning *tuning)
{
    struct estimator estimator;
    struct tune_error err = {0};
    size_t count;
    if (estimator_init(
            &estimator, tuning->manifest, &tuning->device, tuning->dims, tuning->dtype, &err)) {
        log_debug("%s begins without a static estimate: %s", tuning->job, err.text);
        return;
    }
    struct ranked *ranked = rank_space(tuning, &estimator, &count);
    if (count > 0 && ranked[0].rank != ranked[count - 1].rank) /* else it tells nothing apart */
        choose(tuning, ranked, count);
    free(ranked);
}

void tuning_find_prior(struct tuning *tuning)
{
    if (tuning->prior & TUNING_PRIOR_NEAR)
        add_near(tuning);
    if (tuning->prior & TUNING_PRIOR_STATIC)
        add_static(tuning);
}
