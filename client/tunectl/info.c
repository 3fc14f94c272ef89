/* `kernels`, `describe`, `devices`: what there is. */
#include "tunectl.h"
#include "print.h"

#include <stdlib.h>
#include <string.h>

/* Asks, prints the value with --json or calls `show`. */
static int ask_and_show(
    struct tunectl *ctl, const char *method, json_t *params, void (*show)(const json_t *value))
{
    struct tune_error err = {0};
    json_t *value;
    if (ctl_ask(ctl, method, params, &value, &err))
        return ctl_fail(ctl, &err);
    if (ctl->is_json)
        print_json(value);
    else
        show(value);
    json_decref(value);
    return CTL_DONE;
}

/* Names of a list of strings or of objects with a name, with blanks between. malloc'ed. */
static char *names_text(const json_t *list)
{
    char *text = NULL;
    size_t length, i;
    json_t *item;
    FILE *stream = open_memstream(&text, &length);
    json_array_foreach (list, i, item) {
        fprintf(stream, "%s%s", i ? " " : "",
            json_is_string(item) ? json_string_value(item) : text_of(item, "name"));
    }
    fclose(stream);
    return text;
}

static void add_names(struct table *table, const json_t *list)
{
    char *text = names_text(list);
    table_add(table, text);
    free(text);
}

/* --- kernels ---------------------------------------------------------------------------------- */

static void show_kernels(const json_t *kernels)
{
    struct table table;
    table_init(&table, "<<<><");
    static const char *const heads[] = {"kernel", "dims", "dtypes", "params", "summary"};
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++)
        table_add(&table, heads[i]);
    size_t i;
    json_t *kernel;
    json_array_foreach (kernels, i, kernel) {
        table_add(&table, text_of(kernel, "name"));
        add_names(&table, json_object_get(kernel, "dims"));
        add_names(&table, json_object_get(kernel, "dtypes"));
        const char *error = text_of(kernel, "error"); /* its files cannot be used */
        table_addf(&table, "%zu", json_array_size(json_object_get(kernel, "params")));
        table_addf(&table, "%s%s", error[0] ? "not usable: " : text_of(kernel, "summary"), error);
    }
    if (json_array_size(kernels) == 0)
        puts("no kernels: see --plugins of tunerd(8)");
    else
        table_print(&table, "", stdout);
    table_finish(&table);
}

int run_kernels(struct tunectl *ctl, const struct args *args)
{
    (void)args;
    return ask_and_show(ctl, "kernels", NULL, show_kernels);
}

/* --- describe --------------------------------------------------------------------------------- */

/* "16 32 xor": a param's values, by name where they have one. malloc'ed. */
static char *values_text(const json_t *values)
{
    char *text = NULL;
    size_t length, i;
    json_t *value;
    FILE *stream = open_memstream(&text, &length);
    json_array_foreach (values, i, value) {
        if (i > 0)
            putc(' ', stream);
        if (json_is_object(value))
            fputs(text_of(value, "name"), stream);
        else
            json_dumpf(value, stream, JSON_ENCODE_ANY);
    }
    fclose(stream);
    return text;
}

/* A heading and one row per object: name, values (params only), and a sentence. */
static void show_list(
    const json_t *list, const char *heading, const char *name_key, const char *sentence_key)
{
    if (json_array_size(list) == 0)
        return;
    struct table table;
    table_init(&table, "<<<");
    size_t i;
    json_t *item;
    json_array_foreach (list, i, item) {
        char *values = values_text(json_object_get(item, "values"));
        table_add(&table, text_of(item, name_key));
        table_add(&table, values[0] ? values : text_of(item, sentence_key));
        table_add(&table, values[0] ? text_of(item, sentence_key) : "");
        free(values);
    }
    printf("\n%s\n", heading);
    table_print(&table, "  ", stdout);
    table_finish(&table);
}

/* A choice's values come after its meaning: it takes the first where a shape leaves it out. */
static void show_dims(const json_t *dims)
{
    struct table table;
    table_init(&table, "<<<");
    size_t i;
    json_t *dim;
    json_array_foreach (dims, i, dim) {
        char *values = values_text(json_object_get(dim, "values"));
        table_add(&table, text_of(dim, "name"));
        table_add(&table, text_of(dim, "meaning"));
        table_addf(&table, "%s%s", values[0] ? "one of " : "", values);
        free(values);
    }
    puts("\ndimensions");
    table_print(&table, "  ", stdout);
    table_finish(&table);
}

static void show_objects(const json_t *objects, const char *heading)
{
    printf("\n%s\n", heading);
    size_t count = json_is_array(objects) ? json_array_size(objects) : 1;
    for (size_t i = 0; i < count; i++) {
        char *text = pairs_text(json_is_array(objects) ? json_array_get(objects, i) : objects, " ");
        printf("  ");
        print_clean(stdout, text);
        putchar('\n');
        free(text);
    }
}

static void show_description(const json_t *kernel)
{
    print_clean(stdout, text_of(kernel, "name"));
    fputs(": ", stdout);
    print_clean(stdout, text_of(kernel, "summary"));
    putchar('\n');
    show_dims(json_object_get(kernel, "dims"));
    show_list(json_object_get(kernel, "params"), "parameters", "name", "meaning");
    show_list(json_object_get(kernel, "constraints"), "constraints", "expr", "message");
    show_objects(json_object_get(kernel, "default"), "default (the first that is valid)");
    show_objects(json_object_get(kernel, "shapes"), "shapes swept when none is given");
    struct table table;
    table_init(&table, "<<");
    table_add(&table, "dtypes");
    add_names(&table, json_object_get(kernel, "dtypes"));
    const json_t *space = json_object_get(kernel, "space");
    if (json_is_object(space)) {
        char *text = pairs_text(space, ", ");
        table_add(&table, "space");
        table_add(&table, text);
        free(text);
    }
    static const char *const fields[] = {"folder", "fingerprint"};
    for (size_t i = 0; i < 2; i++) {
        table_add(&table, fields[i]);
        table_add(&table, text_of(kernel, fields[i]));
    }
    putchar('\n');
    table_print(&table, "", stdout);
    table_finish(&table);
}

int run_describe(struct tunectl *ctl, const struct args *args)
{
    json_t *request = json_pack("{s:s}", "kernel", args->operands[0]);
    return ask_and_show(ctl, "describe", request, show_description);
}

/* --- devices ---------------------------------------------------------------------------------- */

/* What it reaches, in units of `scale` per second; "-" where that is not known. */
static void add_limit(
    struct table *table, const json_t *device, const char *key, double scale, const char *unit)
{
    double rate = number_of(json_object_get(device, "limits"), key);
    if (rate > 0)
        table_addf(table, "%.4g %s", rate / scale, unit);
    else
        table_add(table, "-");
}

static void show_devices(const json_t *devices)
{
    struct table table;
    table_init(&table, "><<>>>><<");
    static const char *const heads[] = {
        "#", "name", "arch", "SMs", "memory", "bandwidth", "f32 peak", "state", "uuid"};
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++)
        table_add(&table, heads[i]);
    size_t i;
    json_t *device;
    json_array_foreach (devices, i, device) {
        char memory[HUMAN_BYTES];
        table_addf(&table, "%.0f", number_of(device, "ordinal"));
        table_add(&table, text_of(device, "name"));
        table_add(&table, text_of(device, "arch"));
        table_addf(&table, "%.0f", number_of(device, "sms"));
        double bytes = number_of(device, "memory_bytes");
        table_add(&table, bytes > 0 ? human_bytes(bytes, memory) : "-");
        add_limit(&table, device, "dram_bytes_per_s", 1e9, "GB/s");
        add_limit(&table, device, "flops_f32", 1e12, "TFLOP/s");
        const char *reason = text_of(device, "reason");
        table_addf(&table, "%s%s%s", text_of(device, "state"), reason[0] ? ": " : "", reason);
        table_add(&table, text_of(device, "uuid"));
    }
    if (json_array_size(devices) == 0)
        puts("no GPU: \"tunectl doctor\" tells why");
    else
        table_print(&table, "", stdout);
    table_finish(&table);
}

static json_t *fresh_limits(const json_t *ordinal)
{
    return json_pack("{s:O*, s:b}", "device", ordinal, "fresh", 1);
}

/* What each reaches is measured anew, one after the other. The first question waits until the GPUs
 * are known. */
static int measure_devices(struct tunectl *ctl, struct tune_error *err)
{
    json_t *devices = NULL;
    int status = tune_request(ctl->client, "limits", fresh_limits(NULL), NULL, err);
    if (status == 0)
        status = tune_request(ctl->client, "devices", NULL, &devices, err);
    for (size_t i = 1; i < json_array_size(devices) && status == 0; i++) {
        const json_t *ordinal = json_object_get(json_array_get(devices, i), "ordinal");
        status = tune_request(ctl->client, "limits", fresh_limits(ordinal), NULL, err);
    }
    json_decref(devices);
    return status;
}

int run_devices(struct tunectl *ctl, const struct args *args)
{
    struct tune_error err = {0};
    if (args_has(args, "--measure") && (ctl_connect(ctl, true, &err) || measure_devices(ctl, &err)))
        return ctl_fail(ctl, &err);
    return ask_and_show(ctl, "devices", NULL, show_devices);
}
