/* `records`: measurements in the database. */
#include "tunectl.h"
#include "print.h"

#include <stdlib.h>
#include <string.h>

static json_t *records_request(const struct args *args, struct tune_error *err)
{
    static const char *const outcomes[] = {"ok", "invalid", "compile_failed", "over_limits",
        "launch_failed", "wrong_result", "timeout", "crashed", NULL};
    const char *outcome = args_value(args, "--outcome");
    const char *limit_text = args_value(args, "--limit");
    int64_t limit = 0;
    if ((outcome && parse_choice("--outcome", outcome, outcomes, err)) ||
        (limit_text && parse_integer("--limit", limit_text, 1, INT32_MAX, &limit, err)))
        return NULL;
    json_t *request = json_object();
    if (args->operand_count > 0)
        json_object_set_new(request, "kernel", json_string(args->operands[0]));
    if (outcome != NULL)
        json_object_set_new(request, "outcome", json_string(outcome));
    if (args_has(args, "--job"))
        json_object_set_new(request, "job", json_string(args_value(args, "--job")));
    if (limit_text != NULL)
        json_object_set_new(request, "limit", json_integer(limit));
    return request;
}

static void show_records(const json_t *records)
{
    static const char *const heads[] = {
        "kernel", "shape", "dtype", "arch", "outcome", "median", "config", "device", "time"};
    struct table table;
    table_init(&table, "<<<<<><<<");
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++)
        table_add(&table, heads[i]);
    size_t i;
    json_t *record;
    json_array_foreach (records, i, record) {
        char time[HUMAN_BYTES];
        char *shape = shape_text(record, ",");
        char *config = pairs_text(json_object_get(record, "config"), " ");
        table_add(&table, text_of(record, "kernel"));
        table_add(&table, shape);
        table_add(&table, text_of(record, "dtype"));
        table_add(&table, text_of(record, "arch"));
        table_add(&table, text_of(record, "outcome"));
        table_add(&table, human_time(number_of(record, "median_ns"), time));
        table_add(&table, config);
        table_add(&table, text_of(record, "device"));
        table_add_moment(&table, json_object_get(record, "time"));
        free(shape);
        free(config);
    }
    if (json_array_size(records) == 0)
        puts("no records: \"tunectl sweep KERNEL\" makes some");
    else
        table_print(&table, "", stdout);
    table_finish(&table);
}

int run_records(struct tunectl *ctl, const struct args *args)
{
    struct tune_error err = {0};
    json_t *request = records_request(args, &err);
    if (request == NULL) {
        ctl_fail(ctl, &err);
        return CTL_USAGE;
    }
    json_t *records;
    if (ctl_ask(ctl, "records", request, &records, &err))
        return ctl_fail(ctl, &err);
    if (ctl->is_json)
        print_json(records);
    else
        show_records(records);
    json_decref(records);
    return CTL_DONE;
}
