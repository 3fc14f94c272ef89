/* Two configurations side by side. */
#include "explain_view.h"

#include "print.h"

#include <stdlib.h>
#include <string.h>

#define MATTERS_MIN 0.005 /* of the time: a smaller share is shown as nothing */

static void add_side(struct table *table, const char *name, const json_t *explanation)
{
    char time[HUMAN_BYTES], estimate[HUMAN_BYTES];
    char *config = pairs_text(json_object_get(explanation, "config"), " ");
    double median_ns = number_of(explanation, "median_ns");
    table_add(table, name);
    table_add(table, median_ns > 0 ? human_time(median_ns, time) : "not measured");
    table_add(table,
        human_time(number_of(json_object_get(explanation, "estimate"), "time_ns"), estimate));
    table_add(table, text_of(explanation, "origin"));
    table_add(table, config);
    free(config);
}

static void show_sides(const json_t *a, const json_t *b)
{
    static const char *const heads[] = {"", "time", "estimate", "origin", "config"};
    char *shape = pairs_text(json_object_get(a, "shape"), " ");
    struct table table;
    fputs("kernel  ", stdout);
    print_clean(stdout, text_of(a, "kernel"));
    putchar(' ');
    print_clean(stdout, text_of(a, "dtype"));
    putchar(' ');
    print_clean(stdout, shape);
    fputs(", ", stdout);
    print_clean(stdout, text_of(a, "arch"));
    puts("\n");
    table_init(&table, "<>><<");
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++)
        table_add(&table, heads[i]);
    add_side(&table, "A", a);
    add_side(&table, "B", b);
    table_print(&table, "", stdout);
    table_finish(&table);
    free(shape);
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
    show_sides(json_object_get(comparison, "a"), json_object_get(comparison, "b"));
    show_differences(json_object_get(comparison, "differences"));
    putchar('\n');
    print_wrapped(text_of(comparison, "words"), 0);
}
