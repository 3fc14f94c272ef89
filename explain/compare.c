/* Two explanations side by side: which is faster, and whether what differs says so too. What
 * differs is compare_values.c's. */
#include "compare.h"

#include "explain.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORTH_TELLING 0.03 /* of the time */
#define TOLD_MOST 3
#define SAME 1.02 /* estimates within this ratio do not differ */

static json_t *changed_params(const json_t *a, const json_t *b)
{
    json_t *list = json_array();
    const char *key;
    json_t *value;
    json_object_foreach ((json_t *)a, key, value) {
        json_t *other = json_object_get(b, key);
        if (other == NULL || !json_equal(value, other))
            json_array_append_new(
                list, json_pack("{s:s, s:O, s:O?}", "param", key, "a", value, "b", other));
    }
    json_object_foreach ((json_t *)b, key, value)
        if (json_object_get(a, key) == NULL)
            json_array_append_new(
                list, json_pack("{s:s, s:n, s:O}", "param", key, "a", "b", value));
    return list;
}

/* --- which is faster -------------------------------------------------------------------------- */

enum verdict { UNKNOWN, TIE, A_FASTER, B_FASTER };

struct race {
    enum verdict verdict;
    double ratio; /* slower / faster; 0: unknown */
};

static struct race race_of(double of_a, double of_b)
{
    if (!(of_a > 0 && of_b > 0))
        return (struct race){UNKNOWN, 0};
    enum verdict verdict = of_a < of_b ? A_FASTER : of_b < of_a ? B_FASTER : TIE;
    return (struct race){verdict, fmax(of_a, of_b) / fmin(of_a, of_b)};
}

static bool overlap(const json_t *a, const json_t *b)
{
    if (json_array_size(a) != 2 || json_array_size(b) != 2)
        return false;
    return json_number_value(json_array_get(a, 0)) <= json_number_value(json_array_get(b, 1)) &&
           json_number_value(json_array_get(b, 0)) <= json_number_value(json_array_get(a, 1));
}

/* False where both are measured, but not on one model. */
static bool are_of_one_device(const struct side *a, const struct side *b)
{
    const char *of_a = explain_text(a->explanation, "measured_on");
    const char *of_b = explain_text(b->explanation, "measured_on");
    return of_a[0] == '\0' || of_b[0] == '\0' || strcmp(of_a, of_b) == 0;
}

static struct race by_clock(const struct side *a, const struct side *b)
{
    if (!are_of_one_device(a, b))
        return (struct race){UNKNOWN, 0};
    struct race race = race_of(
        explain_number(a->explanation, "median_ns"), explain_number(b->explanation, "median_ns"));
    if (race.verdict != UNKNOWN &&
        overlap(side_part(a, "interval_ns"), side_part(b, "interval_ns")))
        race.verdict = TIE;
    return race;
}

static struct race by_estimate(const struct side *a, const struct side *b)
{
    struct race race = race_of(explain_number(side_part(a, "estimate"), "time_ns"),
        explain_number(side_part(b, "estimate"), "time_ns"));
    if (race.verdict != UNKNOWN && race.ratio < SAME)
        race.verdict = TIE;
    return race;
}

static const char *side_word(enum verdict verdict)
{
    return verdict == A_FASTER ? "a" : verdict == B_FASTER ? "b" : NULL;
}

/* --- words ------------------------------------------------------------------------------------ */

static const char *faster_name(enum verdict verdict)
{
    return verdict == A_FASTER ? "A" : "B";
}

static const char *slower_name(enum verdict verdict)
{
    return verdict == A_FASTER ? "B" : "A";
}

static void tell_race(FILE *text, struct race clock, struct race estimate, bool is_one_device)
{
    if (clock.verdict == TIE)
        fputs("The measured times of A and B cannot be told apart.", text);
    else if (clock.verdict != UNKNOWN)
        fprintf(text, "Measured, %s is %.2f x as fast as %s.", faster_name(clock.verdict),
            clock.ratio, slower_name(clock.verdict));
    else
        fputs(is_one_device ? "A and B are not both measured."
                            : "A and B were measured on different devices, which says nothing.",
            text);
    if (estimate.verdict == UNKNOWN)
        return;
    if (clock.verdict == UNKNOWN && estimate.verdict == TIE)
        fputs(" The estimate sees no difference.", text);
    else if (clock.verdict == UNKNOWN)
        fprintf(text, " By the estimate, an order and no forecast, %s is %.2f x as fast as %s.",
            faster_name(estimate.verdict), estimate.ratio, slower_name(estimate.verdict));
    else if (clock.verdict == estimate.verdict)
        fputs(" The estimate agrees.", text);
    else if (clock.verdict == TIE || estimate.verdict == TIE)
        fputs(clock.verdict == TIE ? " The estimate expected a difference."
                                   : " The estimate sees no difference.",
            text);
    else
        fprintf(text,
            " The estimate says the opposite (%s by %.2f x): what it does not see decides here, and"
            " the clock is right.",
            faster_name(estimate.verdict), estimate.ratio);
}

static void tell_config(FILE *text, const json_t *config)
{
    size_t i, count = json_array_size(config);
    json_t *item;
    if (count == 0) {
        fputs(" They are the same configuration.", text);
        return;
    }
    fputs(" They differ in", text);
    json_array_foreach (config, i, item)
        fprintf(text, "%s%s",
            i == 0          ? " "
            : i + 1 < count ? ", "
                            : " and ",
            explain_text(item, "param"));
    fputs(".", text);
}

static void tell_differences(FILE *text, const json_t *differences)
{
    size_t i, told = 0;
    json_t *item;
    json_array_foreach (differences, i, item) {
        if (told == TOLD_MOST || explain_number(item, "matters") < WORTH_TELLING)
            break;
        const char *favours = explain_text(item, "favours");
        fprintf(text, "%s%s, for %s",
            told++ ? "; " : " What matters most: ", explain_text(item, "words"),
            favours[0] == 'a' ? "A" : "B");
    }
    if (told > 0)
        fputs(".", text);
    else if (json_array_size(differences) > 0)
        fputs(" No difference that is seen here matters much.", text);
}

/* Where the weightiest difference speaks for the slower one, that has to be said. */
static void tell_contradiction(FILE *text, const json_t *differences, struct race clock)
{
    const json_t *first = json_array_get(differences, 0);
    const char *faster = side_word(clock.verdict);
    if (faster == NULL || explain_number(first, "matters") < WORTH_TELLING ||
        strcmp(faster, explain_text(first, "favours")) == 0)
        return;
    fprintf(text, " The weightiest of them speaks for %s all the same: it is not what decides.",
        slower_name(clock.verdict));
}

static void tell_untraced(FILE *text, const struct side *a, const struct side *b)
{
    bool has_a = json_is_object(side_part(a, "traced")),
         has_b = json_is_object(side_part(b, "traced"));
    if (has_a && has_b)
        return;
    fprintf(text,
        " The accesses of %s were not traced, so conflicts, sectors and divergence are"
        " not compared.",
        has_a   ? "B"
        : has_b ? "A"
                : "A and B");
}

json_t *explain_compare(const json_t *a, const json_t *b)
{
    struct side of_a = {.explanation = a}, of_b = {.explanation = b};
    explain_weigh(a, &of_a.weighed);
    explain_weigh(b, &of_b.weighed);
    struct race clock = by_clock(&of_a, &of_b), estimate = by_estimate(&of_a, &of_b);
    struct race race = clock.verdict != UNKNOWN ? clock : estimate;
    json_t *config = changed_params(json_object_get(a, "config"), json_object_get(b, "config"));
    json_t *differences = compare_differences(&of_a, &of_b);
    char *words = NULL;
    size_t length;
    FILE *text = open_memstream(&words, &length);
    if (text != NULL) {
        tell_race(text, clock, estimate, are_of_one_device(&of_a, &of_b));
        tell_config(text, config);
        tell_differences(text, differences);
        tell_contradiction(text, differences, clock);
        tell_untraced(text, &of_a, &of_b);
        fclose(text);
    }
    json_t *result = json_pack("{s:O, s:O, s:o, s:o, s:s?, s:o, s:s?, s:s}", "a", a, "b", b,
        "config", config, "differences", differences, "faster", side_word(race.verdict), "ratio",
        race.verdict == UNKNOWN ? json_null() : json_real(race.ratio), "by",
        race.verdict == UNKNOWN    ? NULL
        : clock.verdict != UNKNOWN ? "measured"
                                   : "estimate",
        "words", words ? words : "");
    free(words);
    return result;
}
