/* See explain_view.h. */
#include "explain_view.h"

#include "print.h"
#include "tunectl.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define FIELD_COLUMNS 8 /* for the names of the first lines */

/* --- parts of lines --------------------------------------------------------------------------- */

/* A line of its own, `indent` columns in, wrapped where it is too long. */
static void print_line(int indent, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void print_line(int indent, const char *format, ...)
{
    char *text;
    va_list args;
    va_start(args, format);
    int length = vasprintf(&text, format, args);
    va_end(args);
    need(length < 0 ? NULL : text);
    printf("%*s", indent, "");
    print_wrapped(text, indent);
    free(text);
}

/* "27.5 TFLOP/s": three digits and a decimal prefix. Returns `text`. */
static char *scaled(double value, const char *unit, char text[HUMAN_BYTES])
{
    static const char prefixes[] = " kMGTP";
    size_t at = 0;
    for (; value >= 999.5 && at + 2 < sizeof prefixes; at++)
        value /= 1000;
    const char prefix[] = {at ? prefixes[at] : '\0', '\0'};
    snprintf(text, HUMAN_BYTES, "%.3g %s%s", value, prefix, unit);
    return text;
}

static bool is_known(const json_t *object, const char *key)
{
    return json_is_number(json_object_get(object, key));
}

static const char *resource_name(const char *word)
{
    return strcmp(word, "shared_memory") == 0 ? "shared memory" : word;
}

/* --- head, occupancy, launches ---------------------------------------------------------------- */

/* "config  BM=64 BN=64 ..." */
static void print_field(const char *name, const char *text)
{
    printf("%-*s", FIELD_COLUMNS, name);
    print_wrapped(text, FIELD_COLUMNS);
}

static void print_time(const json_t *explanation)
{
    const json_t *interval = json_object_get(explanation, "interval_ns");
    char time[HUMAN_BYTES], low[HUMAN_BYTES], high[HUMAN_BYTES], *text = NULL;
    if (!is_known(explanation, "median_ns")) {
        print_field("time", "not measured");
        return;
    }
    if (asprintf(&text, "%s (%s to %s) on %s",
            human_time(number_of(explanation, "median_ns"), time),
            human_time(json_number_value(json_array_get(interval, 0)), low),
            human_time(json_number_value(json_array_get(interval, 1)), high),
            text_of(explanation, "measured_on")) < 0)
        need(NULL);
    print_field("time", text);
    free(text);
}

char *explain_title(const json_t *explanation)
{
    char *shape = shape_text(explanation, " "), *title = NULL;
    if (asprintf(&title, "%s %s %s, %s, %s", text_of(explanation, "kernel"),
            text_of(explanation, "dtype"), shape, text_of(explanation, "arch"),
            text_of(explanation, "mode")) < 0)
        need(NULL);
    free(shape);
    return title;
}

static void show_head(const json_t *explanation)
{
    char *title = explain_title(explanation), *given = NULL;
    char *config = pairs_text(json_object_get(explanation, "config"), " ");
    if (asprintf(&given, "%s (%s)", config, text_of(explanation, "origin")) < 0)
        need(NULL);
    print_field("kernel", title);
    print_field("config", given);
    print_time(explanation);
    free(title);
    free(config);
    free(given);
}

/* One line per resource: how many blocks it allows, the one that limits marked. */
static void show_blocks_by(const json_t *occupancy)
{
    const char *limit = text_of(occupancy, "limited_by"), *resource;
    json_t *blocks;
    struct table table;
    table_init(&table, "<><");
    table_add(&table, "resource");
    table_add(&table, "blocks");
    table_add(&table, "");
    json_object_foreach (json_object_get(occupancy, "blocks_by"), resource, blocks) {
        table_add(&table, resource_name(resource));
        if (json_is_null(blocks))
            table_add(&table, "no limit");
        else
            table_addf(&table, "%lld", (long long)json_integer_value(blocks));
        table_add(&table, strcmp(resource, limit) == 0 ? "<- the limit" : "");
    }
    table_print(&table, "  ", stdout);
    table_finish(&table);
}

static void show_occupancy(const json_t *occupancy)
{
    if (!json_is_object(occupancy))
        return;
    char bytes[HUMAN_BYTES], registers[48] = "";
    if (number_of(occupancy, "registers") > 0)
        snprintf(registers, sizeof registers, ", %.0f registers per thread",
            number_of(occupancy, "registers"));
    putchar('\n');
    print_line(0, "Occupancy: %.0f block%s per SM, %.0f of %.0f warps (%.1f %%), limited by %s",
        number_of(occupancy, "blocks_per_sm"),
        number_of(occupancy, "blocks_per_sm") == 1 ? "" : "s", number_of(occupancy, "warps_per_sm"),
        number_of(occupancy, "warps_max"), number_of(occupancy, "fraction") * 100,
        resource_name(text_of(occupancy, "limited_by")));
    print_line(2, "a block: %.0f threads%s, %s of shared memory", number_of(occupancy, "threads"),
        registers, human_bytes(number_of(occupancy, "shared_bytes"), bytes));
    show_blocks_by(occupancy);
}

static void show_launches(const json_t *explanation)
{
    size_t i;
    json_t *launch;
    if (json_array_size(json_object_get(explanation, "launches")) == 0)
        return;
    puts("\nLaunch");
    json_array_foreach (json_object_get(explanation, "launches"), i, launch) {
        char *text = launch_text(launch);
        print_line(2, "%s", text);
        free(text);
    }
    /* Waves are of a device; an architecture alone has no number of multiprocessors. */
    if (!is_known(explanation, "waves") || json_is_null(json_object_get(explanation, "device")))
        return;
    print_line(2, "%.0f blocks make %.2f waves; the last one is %.0f %% full",
        number_of(explanation, "blocks"), number_of(explanation, "waves"),
        number_of(explanation, "tail_fill") * 100);
}

/* --- roofline --------------------------------------------------------------------------------- */

static void add_work(struct table *table, const json_t *explanation, const json_t *roofline)
{
    char flops[HUMAN_BYTES], bytes[HUMAN_BYTES], asked[HUMAN_BYTES];
    table_add(table, "work");
    bool has_flops = number_of(roofline, "flops") > 0;
    table_addf(table, "%s%s%s (each operand once)%s%s",
        has_flops ? scaled(number_of(roofline, "flops"), "flop", flops) : "", has_flops ? ", " : "",
        scaled(number_of(roofline, "bytes"), "B", bytes),
        is_known(roofline, "requested_bytes") ? "; threads ask for " : "",
        is_known(roofline, "requested_bytes")
            ? scaled(number_of(roofline, "requested_bytes"), "B", asked)
            : "");
    if (!has_flops)
        return;
    table_add(table, "intensity");
    if (is_known(explanation, "intensity"))
        table_addf(table, "%.3g flop per byte that threads load, %.3g per byte of the operands",
            number_of(explanation, "intensity"), number_of(roofline, "intensity_dram"));
    else
        table_addf(
            table, "%.3g flop per byte of the operands", number_of(roofline, "intensity_dram"));
}

static void add_reached(struct table *table, const json_t *roofline)
{
    char time[HUMAN_BYTES], flops[HUMAN_BYTES], bytes[HUMAN_BYTES];
    table_add(table, "ceiling");
    table_addf(table, "%s%s%s%s", text_of(roofline, "ceiling"),
        is_known(roofline, "attainable_ns") ? ": " : "",
        is_known(roofline, "attainable_ns") ? human_time(number_of(roofline, "attainable_ns"), time)
                                            : "",
        is_known(roofline, "attainable_ns") ? " at best" : "");
    if (!is_known(roofline, "achieved_bytes_per_s"))
        return;
    table_add(table, "reached");
    bool has_flops = number_of(roofline, "achieved_flops_per_s") > 0;
    table_addf(table, "%s%s%s",
        has_flops ? scaled(number_of(roofline, "achieved_flops_per_s"), "FLOP/s", flops) : "",
        has_flops ? ", " : "", scaled(number_of(roofline, "achieved_bytes_per_s"), "B/s", bytes));
    if (is_known(roofline, "share")) {
        table_add(table, "");
        table_addf(table, "%.0f %% of the ceiling", number_of(roofline, "share") * 100);
    }
}

static void show_roofline(const json_t *explanation)
{
    const json_t *roofline = json_object_get(explanation, "roofline");
    const json_t *limits = json_object_get(roofline, "limits");
    if (!json_is_object(roofline))
        return;
    puts("\nRoofline");
    char flops[HUMAN_BYTES], bytes[HUMAN_BYTES];
    struct table table;
    table_init(&table, "<<");
    add_work(&table, explanation, roofline);
    add_reached(&table, roofline);
    table_add(&table, "limits");
    if (json_is_object(limits))
        table_addf(&table, "%s, %s (%s%s%s)", scaled(number_of(limits, "flops"), "FLOP/s", flops),
            scaled(number_of(limits, "dram_bytes_per_s"), "B/s", bytes), text_of(limits, "from"),
            text_of(limits, "device")[0] ? ", " : "", text_of(limits, "device"));
    else
        table_add(&table, "not known of this device");
    table_print(&table, "  ", stdout);
    table_finish(&table);
}

/* --- code and estimate ------------------------------------------------------------------------ */

static int share_order(const void *left, const void *right)
{
    const json_t *a = *(json_t *const *)left, *b = *(json_t *const *)right;
    double of_a = number_of(a, "count"), of_b = number_of(b, "count");
    return (of_a < of_b) - (of_a > of_b);
}

/* "1000 instructions: fp32 70 %, integer 15 %" */
static void show_mix(const json_t *instructions)
{
    const char *word;
    json_t *count;
    json_t *list = json_array();
    json_object_foreach (json_object_get(instructions, "by_class"), word, count)
        if (json_number_value(count) > 0)
            json_array_append_new(list, json_pack("{s:s, s:O}", "word", word, "count", count));
    json_t **items = explain_sorted(list, share_order);
    char *text = NULL;
    size_t length;
    FILE *stream = need(open_memstream(&text, &length));
    double total = number_of(instructions, "total");
    fprintf(stream, "%.0f instructions:", total);
    for (size_t i = 0; i < json_array_size(list); i++) {
        double percent = total > 0 ? number_of(items[i], "count") / total * 100 : 0;
        fprintf(stream, "%s %s %.*f %%", i ? "," : "", text_of(items[i], "word"), percent < 9.95,
            percent);
    }
    fclose(stream);
    print_line(2, "%s", text);
    free(text);
    free(items);
    json_decref(list);
}

static void show_code(const json_t *explanation)
{
    const json_t *instructions = json_object_get(explanation, "instructions");
    char spills[48] = "", shared[64] = "";
    if (!is_known(explanation, "registers") && !json_is_object(instructions))
        return;
    if (is_known(explanation, "spill_bytes"))
        snprintf(
            spills, sizeof spills, ", %.0f bytes spilled", number_of(explanation, "spill_bytes"));
    if (number_of(explanation, "static_shared_bytes") > 0)
        snprintf(shared, sizeof shared, ", %.0f bytes of static shared memory",
            number_of(explanation, "static_shared_bytes"));
    puts("\nCode");
    if (is_known(explanation, "registers"))
        print_line(2, "%.0f registers per thread (by the %s)%s%s",
            number_of(explanation, "registers"), text_of(explanation, "registers_from"), spills,
            shared);
    if (json_is_object(instructions))
        show_mix(instructions);
}

static void show_estimate(const json_t *explanation)
{
    const json_t *estimate = json_object_get(explanation, "estimate");
    bool has_device = json_is_string(json_object_get(explanation, "device"));
    if (!json_is_object(estimate))
        return;
    char time[HUMAN_BYTES], *text = NULL;
    size_t length;
    FILE *stream = need(open_memstream(&text, &length));
    const char *word;
    json_t *ceiling;
    json_object_foreach (json_object_get(estimate, "ceilings_ns"), word, ceiling)
        if (json_number_value(ceiling) > 0)
            fprintf(stream, "%s %s, ", word, human_time(json_number_value(ceiling), time));
    if (number_of(estimate, "wait_ns") > 0)
        fprintf(stream, "waits %s, ", human_time(number_of(estimate, "wait_ns"), time));
    fprintf(stream, "launches %s", human_time(number_of(estimate, "launch_ns"), time));
    fclose(stream);
    putchar('\n');
    print_line(0, "Estimate (an order of configurations, no forecast): %s%s, limited by %s",
        human_time(number_of(estimate, "time_ns"), time),
        has_device ? "" : " on one multiprocessor", text_of(estimate, "limited_by"));
    print_line(2, "%s", text);
    free(text);
}

static void show_words(const json_t *answer)
{
    putchar('\n');
    print_wrapped(text_of(answer, "words"), 0);
}

static void show_notes(const json_t *explanation)
{
    const json_t *notes = json_object_get(explanation, "notes");
    size_t i;
    json_t *note;
    if (json_array_size(notes) > 0)
        putchar('\n');
    json_array_foreach (notes, i, note) {
        printf("note: ");
        print_wrapped(json_is_string(note) ? json_string_value(note) : "", 6);
    }
}

void show_explanation(const json_t *explanation)
{
    show_head(explanation);
    show_occupancy(json_object_get(explanation, "occupancy"));
    show_launches(explanation);
    show_roofline(explanation);
    show_accesses(explanation);
    show_branches(explanation);
    show_code(explanation);
    show_estimate(explanation);
    show_notes(explanation);
    show_words(explanation);
}

void show_resources(const json_t *explanation)
{
    show_blocks_by(json_object_get(explanation, "occupancy"));
    show_words(explanation);
}
