/* `fleet`: the link of the daemon to other machines, and who they are. */
#include "tunectl.h"
#include "print.h"

#include <stdio.h>

static void add_line(struct table *table, const char *name, const char *text)
{
    table_add(table, name);
    table_add(table, text);
}

static void show_link(const json_t *fleet)
{
    struct table table;
    char since[HUMAN_BYTES], lag[HUMAN_BYTES];
    const char *error = text_of(fleet, "error");
    table_init(&table, "<<");
    add_line(&table, "engine", text_of(fleet, "url"));
    table_add(&table, "state");
    table_addf(&table, "%s for %s", text_of(fleet, "state"),
        human_duration(number_of(fleet, "since_s"), since));
    if (error[0] != '\0')
        add_line(&table, "reason", error);
    add_line(&table, "this node", text_of(fleet, "node"));
    table_add(&table, "rows");
    table_addf(&table, "%.0f there; since the start: %.0f sent, %.0f taken, %.0f refused",
        number_of(fleet, "rows"), number_of(fleet, "sent"), number_of(fleet, "taken"),
        number_of(fleet, "refused"));
    table_add(&table, "to send");
    table_addf(&table, "%.0f", number_of(fleet, "outbox"));
    table_add(&table, "changes");
    if (number_of(fleet, "lag_s") > 0)
        table_addf(&table, "%.0f of %.0f applied, behind for %s", number_of(fleet, "position"),
            number_of(fleet, "head"), human_duration(number_of(fleet, "lag_s"), lag));
    else
        table_addf(&table, "all %.0f applied", number_of(fleet, "position"));
    table_print(&table, "", stdout);
    table_finish(&table);
}

static void show_nodes(const json_t *nodes)
{
    static const char *const heads[] = {"host", "node", "heard of", "applied", "devices"};
    struct table table;
    size_t i;
    json_t *node;
    table_init(&table, "<<>><");
    for (size_t head = 0; head < sizeof heads / sizeof heads[0]; head++)
        table_add(&table, heads[head]);
    json_array_foreach (nodes, i, node) {
        char age[HUMAN_BYTES];
        table_addf(&table, "%s%s", text_of(node, "host"),
            json_is_true(json_object_get(node, "is_this")) ? " (this)" : "");
        table_addf(&table, "%.8s", text_of(node, "node"));
        table_addf(&table, "%s ago", human_duration(number_of(node, "age_s"), age));
        table_addf(&table, "%.0f", number_of(node, "position"));
        table_add(&table, text_of(node, "targets"));
    }
    putchar('\n');
    table_print(&table, "", stdout);
    table_finish(&table);
}

int run_fleet(struct tunectl *ctl, const struct args *args)
{
    struct tune_error err = {0};
    json_t *fleet;
    (void)args;
    if (ctl_ask(ctl, "fleet", NULL, &fleet, &err))
        return ctl_fail(ctl, &err);
    if (ctl->is_json) {
        print_json(fleet);
    } else {
        show_link(fleet);
        if (json_array_size(json_object_get(fleet, "nodes")) > 0)
            show_nodes(json_object_get(fleet, "nodes"));
    }
    json_decref(fleet);
    return CTL_DONE;
}
