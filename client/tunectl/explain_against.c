/* Two configurations side by side. */
#include "explain_view.h"

#include "print.h"

#include <stdlib.h>
#include <string.h>

#define MATTERS_MIN 0.005 /* of the time: a smaller share is shown as nothing */

static void add_time(struct table *table, double ns, const char *unknown)
{
    char time[HUMAN_BYTES];
    table_add(table, ns > 0 ? human_time(ns, time) : unknown);
}

static void add_value(struct table *table, const json_t *value)
{
    if (json_is_integer(value))
        table_addf(table, "%lld", (long long)json_integer_value(value));
    else
        table_add(table, json_is_string(value) ? json_string_value(value) : "-");
}

/* Times, origins, and the parameters that differ, A and B side by side. */
static void show_sides(const json_t *comparison)
{
    const json_t *a = json_object_get(comparison, "a"), *b = json_object_get(comparison, "b");
    size_t i;
    json_t *param;
    struct table table;
    table_init(&table, "<<<");
    table_add(&table, "");
    table_add(&table, "A");
    table_add(&table, "B");
    table_add(&table, "time");
    add_time(&table, number_of(a, "median_ns"), "not measured");
    add_time(&table, number_of(b, "median_ns"), "not measured");
    bool has_device = json_is_string(json_object_get(a, "device"));
    table_add(&table, has_device ? "estimate" : "estimate, one SM");
    add_time(&table, number_of(json_object_get(a, "estimate"), "time_ns"), "-");
    add_time(&table, number_of(json_object_get(b, "estimate"), "time_ns"), "-");
    table_add(&table, "origin");
    table_add(&table, text_of(a, "origin"));
    table_add(&table, text_of(b, "origin"));
    json_array_foreach (json_object_get(comparison, "config"), i, param) {
        table_add(&table, text_of(param, "param"));
        add_value(&table, json_object_get(param, "a"));
        add_value(&table, json_object_get(param, "b"));
    }
    table_print(&table, "", stdout);
    table_finish(&table);
}

static void show_differences(const json_t *differences)
{
    size_t i;
    json_t *item;
    struct table table;
    if (json_array_size(differences) == 0)
        return;
    table_init(&table, "><<");
    table_add(&table, "matters");
    table_add(&table, "for");
    table_add(&table, "difference");
    json_array_foreach (differences, i, item) {
        const char *favours = text_of(item, "favours");
        double matters = number_of(item, "matters");
        if (matters >= MATTERS_MIN)
            table_addf(&table, "%.0f %%", matters * 100);
        else
            table_add(&table, "-");
        table_add(&table, favours[0] == 'a' ? "A" : favours[0] == 'b' ? "B" : "");
        table_add(&table, text_of(item, "words"));
    }
    putchar('\n');
    table_print(&table, "", stdout);
    table_finish(&table);
}

void show_comparison(const json_t *comparison)
{
    char *title = explain_title(json_object_get(comparison, "a"));
    print_wrapped(title, 0);
    free(title);
    putchar('\n');
    show_sides(comparison);
    show_differences(json_object_get(comparison, "differences"));
    putchar('\n');
    print_wrapped(text_of(comparison, "words"), 0);
}
