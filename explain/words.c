/* The paragraph of an explanation: how near it is to a ceiling, what keeps it from there, the
 * weightiest first, and the parameters that move that. words_causes.c has the
 * sentences about a cause. */
#include "words.h"

#include "explain.h"

#include <string.h>

#define WORTH_TELLING 0.05 /* of the time; what weighs less is named as little, not explained */
#define WORTH_NAMING 0.002
#define CAUSES_TOLD 3
#define NEAR_CEILING 0.88

static const char *ceiling_name(const char *word)
{
    static const struct {
        const char *word, *name;
    } names[] = {
        {"flops", "arithmetic"},
        {"issue", "the instructions to issue"},
        {"memory_pipe", "the accesses to shared memory and L1"},
        {"l2", "the traffic between L2 and the multiprocessors"},
        {"dram", "the traffic of device memory"},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i].word, word) == 0)
            return names[i].name;
    return NULL;
}

static void tell_standing(const struct story *story)
{
    const json_t *explanation = story->explanation;
    const json_t *roofline = json_object_get(explanation, "roofline");
    bool is_memory = strcmp(explain_text(roofline, "ceiling"), "memory") == 0;
    const char *limit =
        ceiling_name(explain_text(json_object_get(explanation, "estimate"), "limited_by"));
    if (story->weighed.is_measured) {
        fputs("This configuration reaches ", story->text);
        say_percent(story->text, explain_number(roofline, "share"));
        fprintf(story->text, " of its ceiling, which is %s",
            is_memory ? "the bandwidth of device memory" : "the peak of arithmetic");
    } else if (explain_number(explanation, "median_ns") > 0) {
        fputs("It is measured, but no limits of that device are known, so how near it is to a"
              " ceiling cannot be told",
            story->text);
    } else {
        fputs("Nothing is measured for this configuration here", story->text);
    }
    if (!story->weighed.is_measured && limit != NULL)
        fprintf(story->text, "; by the estimate, an order and no forecast, the limit is %s", limit);
    fputs(".", story->text);
}

/* Waits and too few warps are one thing seen from two sides: the lighter one is not told. Nor are
 * too few warps where too few blocks say why. */
static void drop_twins(double weight[CAUSE_COUNT])
{
    double *lighter = weight[CAUSE_WAITS] < weight[CAUSE_OCCUPANCY] ? &weight[CAUSE_WAITS]
                                                                    : &weight[CAUSE_OCCUPANCY];
    if (weight[CAUSE_WAITS] > 0 && weight[CAUSE_OCCUPANCY] > 0)
        *lighter = 0;
    if (weight[CAUSE_FEW_BLOCKS] >= WORTH_TELLING)
        weight[CAUSE_OCCUPANCY] = 0;
}

/* How many were told. */
static int tell_causes(const struct story *story, double weight[CAUSE_COUNT])
{
    int told = 0;
    for (; told < CAUSES_TOLD; told++) {
        int first = 0;
        for (int i = 1; i < CAUSE_COUNT; i++)
            if (weight[i] > weight[first])
                first = i;
        if (weight[first] < WORTH_TELLING)
            break;
        tell_cause(story, (enum explain_cause)first);
        weight[first] = 0;
    }
    return told;
}

/* How many were named. */
static int tell_little(const struct story *story, const double weight[CAUSE_COUNT])
{
    const char *names[CAUSE_COUNT];
    int count = 0;
    for (int i = 0; i < CAUSE_COUNT; i++) {
        const char *name = cause_name((enum explain_cause)i);
        if (weight[i] > WORTH_NAMING && weight[i] < WORTH_TELLING && name != NULL)
            names[count++] = name;
    }
    for (int i = 0; i < count; i++)
        fprintf(story->text, "%s%s",
            i == 0          ? " Little is lost to "
            : i + 1 < count ? ", "
                            : " and ",
            names[i]);
    if (count > 0)
        fputs(".", story->text);
    return count;
}

static void tell_end(const struct story *story, int told, int named)
{
    const json_t *roofline = json_object_get(story->explanation, "roofline");
    bool is_memory = strcmp(explain_text(roofline, "ceiling"), "memory") == 0;
    bool is_traced = json_is_object(json_object_get(story->explanation, "traced"));
    if (story->weighed.is_measured && explain_number(roofline, "share") >= NEAR_CEILING)
        fputs(
            is_memory
                ? " So near to the ceiling there is nothing left to gain but by moving fewer bytes."
                : " So near to the peak there is nothing left to gain but by fewer operations, or"
                  " by a dtype that the device computes faster.",
            story->text);
    else if (told == 0 && is_traced && story->weighed.has_headroom && story->weighed.headroom > 0.2)
        fputs(story->weighed.is_measured
                  ? " Nothing that is seen here accounts for the rest; latencies are left, and"
                    " instructions beside the work itself."
              : named > 0 ? ""
                          : " Nothing wasteful is seen here.",
            story->text);
    if (!is_traced)
        fputs(" Its accesses were not traced, so conflicts, sectors and divergence are not known.",
            story->text);
}

char *explain_words(const json_t *explanation, const struct manifest *manifest)
{
    char *words = NULL;
    size_t length;
    struct story story = {.explanation = explanation, .text = open_memstream(&words, &length)};
    if (story.text == NULL)
        return NULL;
    explain_weigh(explanation, &story.weighed);
    story.has_levers = manifest != NULL && levers_init(&story.levers, manifest, explanation) == 0;
    double weight[CAUSE_COUNT];
    memcpy(weight, story.weighed.weight, sizeof weight);
    drop_twins(weight);
    tell_standing(&story);
    int told = tell_causes(&story, weight);
    int named = tell_little(&story, weight);
    tell_end(&story, told, named);
    fclose(story.text);
    return words;
}
