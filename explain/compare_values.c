/* What may differ between two explanations, and how much of the time a difference may account for
 * by the model of weigh.c. To add one, a line in the table `quantities`. */
#include "compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define LOW_OCCUPANCY 0.5

const json_t *side_part(const struct side *side, const char *key)
{
    return json_object_get(side->explanation, key);
}

/* --- what may differ ---------------------------------------------------------------------------
 */

static double number_or_nan(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static double value_occupancy(const struct side *side)
{
    return number_or_nan(side_part(side, "occupancy"), "fraction");
}

static double value_requested(const struct side *side)
{
    return number_or_nan(side_part(side, "roofline"), "requested_bytes");
}

static double value_sectors(const struct side *side)
{
    const struct weighed *weighed = &side->weighed;
    return weighed->sectors > 0 ? weighed->sectors / (weighed->sectors - weighed->wasted_sectors)
                                : NAN;
}

static double value_conflicts(const struct side *side)
{
    const struct weighed *weighed = &side->weighed;
    return weighed->wavefronts > 0
               ? weighed->wavefronts / (weighed->wavefronts - weighed->wasted_wavefronts)
               : NAN;
}

static double value_pipe(const struct side *side)
{
    return number_or_nan(
        json_object_get(side_part(side, "estimate"), "ceilings_ns"), "memory_pipe");
}

static double value_l2(const struct side *side)
{
    return number_or_nan(json_object_get(side_part(side, "estimate"), "ceilings_ns"), "l2");
}

static double value_waits(const struct side *side)
{
    return number_or_nan(side_part(side, "estimate"), "wait_ns");
}

static double value_registers(const struct side *side)
{
    return number_or_nan(side->explanation, "registers");
}

static double value_spills(const struct side *side)
{
    return number_or_nan(side->explanation, "spill_bytes");
}

static double value_idle_sms(const struct side *side)
{
    return side->weighed.sms > 0 ? side->weighed.idle_sms : NAN;
}

static double value_tail(const struct side *side)
{
    return side->weighed.sms > 0 ? side->weighed.tail_loss : NAN;
}

static double value_arithmetic(const struct side *side)
{
    static const char *const words[] = {"fp32", "fp64", "fp16", "tensor", "special"};
    const json_t *instructions = side_part(side, "instructions");
    double total = explain_number(instructions, "total"), sum = 0;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        sum += explain_number(json_object_get(instructions, "by_class"), words[i]);
    return total > 0 ? sum / total : NAN;
}

static double value_idle_lanes(const struct side *side)
{
    return side->weighed.warps > 0 ? side->weighed.idle_lanes : NAN;
}

/* --- how much it matters -----------------------------------------------------------------------
 */

/* Share of the time of the work of these ceilings, on the side where it is more. */
static double share_of(const struct side *a, const struct side *b, enum estimate_ceiling first,
    enum estimate_ceiling second)
{
    const double *of_a = a->weighed.share, *of_b = b->weighed.share;
    if (!a->weighed.has_estimate || !b->weighed.has_estimate)
        return 0.5;
    return fmax(fmax(of_a[first], of_a[second]), fmax(of_b[first], of_b[second]));
}

/* The part of the larger that the smaller saves. */
static double relative(double a, double b)
{
    return fmax(a, b) > 0 ? fabs(a - b) / fmax(a, b) : 0;
}

static double matters_memory(const struct side *a, const struct side *b, double of_a, double of_b)
{
    return relative(of_a, of_b) * share_of(a, b, ESTIMATE_L2, ESTIMATE_DRAM);
}

static double matters_pipe(const struct side *a, const struct side *b, double of_a, double of_b)
{
    return relative(of_a, of_b) * share_of(a, b, ESTIMATE_PIPE, ESTIMATE_PIPE);
}

/* What a quantity that both sides know accounts for by itself. */
static double matters_of(const struct side *a, const struct side *b,
    double (*value)(const struct side *side),
    double (*matters)(const struct side *a, const struct side *b, double of_a, double of_b))
{
    double of_a = value(a), of_b = value(b);
    return isnan(of_a) || isnan(of_b) ? 0 : matters(a, b, of_a, of_b);
}

/* What differs beyond the conflicts, which the estimate counts with it. */
static double matters_pipe_alone(
    const struct side *a, const struct side *b, double of_a, double of_b)
{
    return fmax(
        0, matters_pipe(a, b, of_a, of_b) - matters_of(a, b, value_conflicts, matters_pipe));
}

/* And beyond the bytes and sectors. */
static double matters_l2_alone(const struct side *a, const struct side *b, double of_a, double of_b)
{
    double told = fmax(matters_of(a, b, value_requested, matters_memory),
        matters_of(a, b, value_sectors, matters_memory));
    return fmax(0, relative(of_a, of_b) * share_of(a, b, ESTIMATE_L2, ESTIMATE_L2) - told);
}

static double matters_issue(const struct side *a, const struct side *b, double of_a, double of_b)
{
    return fabs(of_a - of_b) * share_of(a, b, ESTIMATE_ISSUE, ESTIMATE_FLOPS);
}

static double matters_itself(const struct side *a, const struct side *b, double of_a, double of_b)
{
    (void)a, (void)b;
    return fabs(of_a - of_b);
}

/* Warps beyond what covers latencies bring nothing, and none do where a ceiling is near. */
static double matters_occupancy(
    const struct side *a, const struct side *b, double of_a, double of_b)
{
    double more = fabs(fmin(of_a, LOW_OCCUPANCY) - fmin(of_b, LOW_OCCUPANCY)) / LOW_OCCUPANCY;
    return more * fmax(a->weighed.headroom, b->weighed.headroom);
}

static double matters_spills(const struct side *a, const struct side *b, double of_a, double of_b)
{
    (void)of_a, (void)of_b;
    return fabs(a->weighed.weight[CAUSE_SPILLS] - b->weighed.weight[CAUSE_SPILLS]);
}

static double matters_waits(const struct side *a, const struct side *b, double of_a, double of_b)
{
    double time_ns = fmax(explain_number(side_part(a, "estimate"), "time_ns"),
        explain_number(side_part(b, "estimate"), "time_ns"));
    return time_ns > 0 ? fabs(of_a - of_b) / time_ns : 0;
}

/* By what they do to occupancy and spills, which have lines of their own. */
static double matters_not(const struct side *a, const struct side *b, double of_a, double of_b)
{
    (void)a, (void)b, (void)of_a, (void)of_b;
    return 0;
}

enum form { PLAIN, PERCENT, TIME, MIBIBYTES };

/* better: 1 where more is better, -1 where less is, 0 where neither is by itself. */
static const struct quantity {
    const char *what, *name;
    double (*value)(const struct side *side);
    double (*matters)(const struct side *a, const struct side *b, double of_a, double of_b);
    int better;
    enum form form;
} quantities[] = {
    {"occupancy", "occupancy", value_occupancy, matters_occupancy, 1, PERCENT},
    {"requested_bytes", "what threads ask of global memory", value_requested, matters_memory, -1,
        MIBIBYTES},
    {"sectors", "sectors of global memory per sector that is needed", value_sectors, matters_memory,
        -1, PLAIN},
    {"conflicts", "passes over the banks per pass without conflicts", value_conflicts, matters_pipe,
        -1, PLAIN},
    {"memory_pipe", "time of shared memory and L1 by the estimate", value_pipe, matters_pipe_alone,
        -1, TIME},
    {"l2", "time of the traffic of L2 by the estimate", value_l2, matters_l2_alone, -1, TIME},
    {"waits", "waits for round trips to memory by the estimate", value_waits, matters_waits, -1,
        TIME},
    {"spill_bytes", "bytes that each thread spills", value_spills, matters_spills, -1, PLAIN},
    {"idle_multiprocessors", "multiprocessors without a block", value_idle_sms, matters_itself, -1,
        PERCENT},
    {"tail", "loss to the tail of the last wave", value_tail, matters_itself, -1, PERCENT},
    {"arithmetic", "arithmetic among the instructions", value_arithmetic, matters_issue, 1,
        PERCENT},
    {"idle_lanes", "lanes that idle in branches", value_idle_lanes, matters_issue, -1, PERCENT},
    {"registers", "registers per thread", value_registers, matters_not, 0, PLAIN},
};

/* --- differences ------------------------------------------------------------------------------ */

static void say_time(FILE *text, double ns)
{
    static const char *const units[] = {"ns", "us", "ms", "s"};
    size_t unit = 0;
    for (; ns >= 999.5 && unit + 1 < sizeof units / sizeof units[0]; unit++)
        ns /= 1000;
    fprintf(text, "%.3g %s", ns, units[unit]);
}

static void say_amount(FILE *text, enum form form, double value)
{
    if (form == PERCENT)
        fprintf(text, "%.3g %%", value * 100);
    else if (form == TIME)
        say_time(text, value);
    else if (form == MIBIBYTES)
        fprintf(text, "%.3g MiB", value / (1 << 20));
    else
        fprintf(text, "%.3g", value);
}

/* New reference. "occupancy is 37.5 % in A and 50 % in B" */
static json_t *difference_words(const struct quantity *quantity, double of_a, double of_b)
{
    char *text = NULL;
    size_t length;
    FILE *stream = open_memstream(&text, &length);
    if (stream == NULL)
        return json_string("");
    fprintf(stream, "%s: ", quantity->name);
    say_amount(stream, quantity->form, of_a);
    fputs(" in A, ", stream);
    say_amount(stream, quantity->form, of_b);
    fputs(" in B", stream);
    fclose(stream);
    json_t *words = json_string(text);
    free(text);
    return words;
}

static json_t *difference(const struct quantity *quantity, const struct side *a,
    const struct side *b, double of_a, double of_b)
{
    bool is_a = (of_a - of_b) * quantity->better > 0;
    double matters = fmin(1, quantity->matters(a, b, of_a, of_b));
    return json_pack("{s:s, s:f, s:f, s:f, s:o, s:o}", "what", quantity->what, "a", of_a, "b", of_b,
        "matters", matters, "favours",
        quantity->better == 0 ? json_null() : json_string(is_a ? "a" : "b"), "words",
        difference_words(quantity, of_a, of_b));
}

/* Keeps the list in order: what matters most first, else as in the table. */
static void insert_by_matter(json_t *list, json_t *item)
{
    size_t at = 0;
    while (at < json_array_size(list) &&
           explain_number(json_array_get(list, at), "matters") >= explain_number(item, "matters"))
        at++;
    json_array_insert_new(list, at, item);
}

json_t *compare_differences(const struct side *a, const struct side *b)
{
    json_t *list = json_array();
    for (size_t i = 0; i < sizeof quantities / sizeof quantities[0]; i++) {
        double of_a = quantities[i].value(a), of_b = quantities[i].value(b);
        if (!isnan(of_a) && !isnan(of_b) && relative(of_a, of_b) > 1e-6)
            insert_by_matter(list, difference(&quantities[i], a, b, of_a, of_b));
    }
    return list;
}
