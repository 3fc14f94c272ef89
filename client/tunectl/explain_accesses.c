/* What lines of the source do to memory and to the lanes of a warp, as tables. */
#include "explain_view.h"

#include "print.h"

#include "explain/weigh.h"

#include <stdlib.h>
#include <string.h>

#define ACCESSES_SHOWN 16
#define BRANCHES_SHOWN 8
#define SOURCE_MIN 12    /* columns for the text of a line */
#define TABLE_COLUMNS 70 /* what the other columns of the table of accesses take */

static bool is_shared(const json_t *access)
{
    return strcmp(text_of(access, "space"), "shared") == 0;
}

/* Sectors, or passes over the banks: what one access takes of its space's work. */
static double work_of(const json_t *access)
{
    return number_of(access, "requests") *
           number_of(access, is_shared(access) ? "wavefronts_per_request" : "sectors_per_request");
}

/* Waste first, then work. */
static int access_order(const void *left, const void *right)
{
    const json_t *a = *(json_t *const *)left, *b = *(json_t *const *)right;
    double waste_of_a = explain_wasted_wavefronts(a) + explain_wasted_sectors(a);
    double waste_of_b = explain_wasted_wavefronts(b) + explain_wasted_sectors(b);
    if (waste_of_a != waste_of_b)
        return waste_of_a < waste_of_b ? 1 : -1;
    return (work_of(a) < work_of(b)) - (work_of(a) > work_of(b));
}

static int branch_order(const void *left, const void *right)
{
    const json_t *a = *(json_t *const *)left, *b = *(json_t *const *)right;
    double of_a = number_of(a, "warps") * (1 - number_of(a, "active_fraction"));
    double of_b = number_of(b, "warps") * (1 - number_of(b, "active_fraction"));
    return (of_a < of_b) - (of_a > of_b);
}

json_t **explain_sorted(const json_t *list, int (*order)(const void *, const void *))
{
    size_t count = json_array_size(list);
    json_t **items = need(calloc(count + 1, sizeof *items));
    for (size_t i = 0; i < count; i++)
        items[i] = json_array_get(list, i);
    qsort(items, count, sizeof *items, order);
    return items;
}

static void add_place(struct table *table, const json_t *item)
{
    table_addf(table, "%s:%.0f", text_of(item, "file"), number_of(item, "line"));
}

/* Bytes of the first `columns` characters of UTF-8. */
static int bytes_within(const char *text, int columns)
{
    int count = 0;
    for (; text[count] != '\0'; count++)
        if (((unsigned char)text[count] & 0xC0) != 0x80 && columns-- == 0)
            break;
    return count;
}

/* The text of a line, cut to what the terminal has left. */
static void add_source(struct table *table, const json_t *item)
{
    int room = text_columns() - TABLE_COLUMNS;
    const char *text = text_of(item, "text");
    table_addf(table, "%.*s", bytes_within(text, room > SOURCE_MIN ? room : SOURCE_MIN), text);
}

static void add_access(struct table *table, const json_t *access, const struct weighed *weighed)
{
    add_place(table, access);
    table_addf(table, "%s %s", text_of(access, "space"),
        json_is_true(json_object_get(access, "atomic")) ? "atomic" : text_of(access, "kind"));
    table_addf(table, "%.0f", number_of(access, "bytes"));
    if (is_shared(access)) {
        table_add(table, "");
        table_addf(table, "%.3g-way", number_of(access, "conflict_degree"));
    } else {
        table_addf(table, "%.3g of %.3g", number_of(access, "sectors_per_request"),
            number_of(access, "ideal_sectors"));
        table_add(table, "");
    }
    double all = is_shared(access) ? weighed->wavefronts : weighed->sectors;
    table_addf(table, "%.0f %%", all > 0 ? work_of(access) / all * 100 : 0);
    add_source(table, access);
}

void show_accesses(const json_t *explanation)
{
    const json_t *accesses = json_object_get(explanation, "accesses");
    const json_t *traced = json_object_get(explanation, "traced");
    size_t count = json_array_size(accesses);
    if (count == 0)
        return;
    struct weighed weighed;
    explain_weigh(explanation, &weighed);
    printf("\nMemory accesses of %.0f blocks of %.0f, the costly first\n",
        number_of(traced, "blocks"), number_of(traced, "of"));
    static const char *const heads[] = {
        "at", "access", "bytes", "sectors", "conflict", "share", "source"};
    struct table table;
    table_init(&table, "<<>>>><");
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++)
        table_add(&table, heads[i]);
    json_t **items = explain_sorted(accesses, access_order);
    for (size_t i = 0; i < count && i < ACCESSES_SHOWN; i++)
        add_access(&table, items[i], &weighed);
    table_print(&table, "  ", stdout);
    table_finish(&table);
    free(items);
    if (count > ACCESSES_SHOWN)
        printf("  and %zu more (--json has all)\n", count - ACCESSES_SHOWN);
}

void show_branches(const json_t *explanation)
{
    const json_t *branches = json_object_get(explanation, "branches");
    json_t **items = explain_sorted(branches, branch_order);
    struct table table;
    table_init(&table, "<><");
    for (size_t i = 0; i < json_array_size(branches) && i < BRANCHES_SHOWN; i++) {
        if (number_of(items[i], "active_fraction") >= 1)
            continue;
        add_place(&table, items[i]);
        table_addf(&table, "%.1f %% active", number_of(items[i], "active_fraction") * 100);
        add_source(&table, items[i]);
    }
    if (table.count > 0)
        puts("\nBranches that not all lanes take");
    table_print(&table, "  ", stdout);
    table_finish(&table);
    free(items);
}
