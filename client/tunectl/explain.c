/* `explain`: why a configuration is as fast as it is, how two differ, and what a block's resources
 * mean for occupancy. The daemon puts an explanation together; two are compared here, and bare
 * numbers need no daemon. */
#include "explain_view.h"
#include "print.h"
#include "tunectl.h"

#include "explain/explain.h"

#include <string.h>

/* A compile, and a trace that may wait for another one. */
#define TIMEOUT_MS 180000

/* --- bare numbers ----------------------------------------------------------------------------- */

/* One amount of --resources; left as it is when it is not given. */
static int take_amount(const json_t *amounts, const char *name, int64_t min, int64_t max,
    int64_t *amount, struct tune_error *err)
{
    const json_t *value = json_object_get(amounts, name);
    if (value == NULL)
        return 0;
    if (!json_is_integer(value))
        return tune_fail(err, TUNE_EINVAL, "--resources: %s must be an integer", name);
    *amount = json_integer_value(value);
    if (*amount < min || *amount > max)
        return tune_fail(err, TUNE_EINVAL, "--resources: %s is %lld; it must be %lld to %lld", name,
            (long long)*amount, (long long)min, (long long)max);
    return 0;
}

static int take_amounts(const json_t *amounts, struct occupancy_use *use, struct tune_error *err)
{
    static const char *const names[] = {"threads", "registers", "shared", NULL};
    const char *name;
    json_t *value;
    json_object_foreach ((json_t *)amounts, name, value)
        if (parse_choice("an amount of --resources", name, names, err))
            return -1;
    *use = (struct occupancy_use){0};
    if (json_object_get(amounts, "threads") == NULL)
        return tune_fail(err, TUNE_EINVAL, "--resources needs threads=N, the threads of a block");
    return take_amount(amounts, "threads", 1, 1024, &use->threads, err) ||
                   take_amount(amounts, "registers", 0, 255, &use->registers, err) ||
                   take_amount(amounts, "shared", 0, INT32_MAX, &use->shared_bytes, err)
               ? -1
               : 0;
}

/* What is about a kernel says nothing about bare numbers. */
static int check_resource_options(const struct args *args, struct tune_error *err)
{
    static const char *const others[] = {
        "--shape", "--config", "--against", "--dtype", "--gpu", "--mode", "--no-trace", "--cubin"};
    if (args->operand_count > 0)
        return tune_fail(
            err, TUNE_EINVAL, "--resources stands in place of a kernel: give one or the other");
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (args_has(args, others[i]))
            return tune_fail(err, TUNE_EINVAL,
                "%s is about a kernel and does not go with --resources", others[i]);
    if (!args_has(args, "--arch"))
        return tune_fail(err, TUNE_EINVAL,
            "--resources needs --arch, such as --arch sm_90: each architecture has limits of its "
            "own");
    return 0;
}

static json_t *explain_numbers(const struct args *args, struct tune_error *err)
{
    json_t *amounts, *explanation = NULL;
    struct device_info device;
    struct occupancy_use use;
    if (check_resource_options(args, err) ||
        device_generic(args_value(args, "--arch"), &device, err) ||
        parse_config(args_value(args, "--resources"), &amounts, err))
        return NULL;
    if (take_amounts(amounts, &use, err) == 0)
        explanation = explain_resources(&device, &use, err);
    json_decref(amounts);
    return explanation;
}

static int run_resources(struct tunectl *ctl, const struct args *args)
{
    struct tune_error err = {0};
    json_t *explanation = explain_numbers(args, &err);
    if (explanation == NULL) {
        ctl_fail(ctl, &err);
        return CTL_USAGE;
    }
    if (ctl->is_json)
        print_json(explanation);
    else
        show_resources(explanation);
    json_decref(explanation);
    return CTL_DONE;
}

/* --- a kernel --------------------------------------------------------------------------------- */

static int check_kernel_options(const struct args *args, struct tune_error *err)
{
    static const char *const modes[] = {"cold", "warm", NULL};
    const char *mode = args_value(args, "--mode");
    if (args->operand_count == 0)
        return tune_fail(
            err, TUNE_EINVAL, "\"explain\" needs KERNEL with --shape, or --resources with --arch");
    if (!args_has(args, "--shape"))
        return tune_fail(
            err, TUNE_EINVAL, "\"explain\" needs --shape, such as --shape M=4096,N=4096");
    if (args_has(args, "--against") && args_has(args, "--cubin"))
        return tune_fail(
            err, TUNE_EINVAL, "--cubin writes one kernel: it does not go with --against");
    return mode ? parse_choice("--mode", mode, modes, err) : 0;
}

/* The request for the configuration that `option` gives; without it the best known is meant. */
static json_t *explain_request(const struct args *args, const char *option, struct tune_error *err)
{
    static const char *const names[] = {"--dtype", "--arch", "--gpu", "--mode", NULL};
    const char *values = args_value(args, option);
    json_t *shape, *config = NULL;
    if (parse_dims(args_value(args, "--shape"), &shape, err))
        return NULL;
    if (values != NULL && parse_config(values, &config, err)) {
        json_decref(shape);
        return NULL;
    }
    json_t *request = json_pack("{s:s, s:o, s:b}", "kernel", args->operands[0], "shape", shape,
        "trace", !args_has(args, "--no-trace"));
    if (config != NULL)
        json_object_set_new(request, "config", config);
    args_pass(args, names, request);
    if (args_has(args, "--cubin"))
        json_object_set_new(request, "cubin", json_true());
    return request;
}

/* Takes the requests; `against` NULL: one explanation is the answer, else their comparison. New. */
static json_t *ask(struct tunectl *ctl, json_t *request, json_t *against, struct tune_error *err)
{
    json_t *first = NULL, *second = NULL, *comparison = NULL;
    if (ctl_connect(ctl, true, err)) {
        json_decref(request);
        json_decref(against);
        return NULL;
    }
    tune_set_timeout(ctl->client, TIMEOUT_MS);
    if (tune_request(ctl->client, "explain", request, &first, err)) {
        json_decref(against);
        return NULL;
    }
    if (against == NULL)
        return first;
    if (tune_request(ctl->client, "explain", against, &second, err) == 0)
        comparison = explain_compare(first, second);
    json_decref(first);
    json_decref(second);
    return comparison;
}

static int run_kernel(struct tunectl *ctl, const struct args *args)
{
    struct tune_error err = {0};
    bool is_comparison = args_has(args, "--against");
    json_t *request = NULL, *against = NULL;
    if (check_kernel_options(args, &err) ||
        (request = explain_request(args, "--config", &err)) == NULL ||
        (is_comparison && (against = explain_request(args, "--against", &err)) == NULL)) {
        json_decref(request);
        ctl_fail(ctl, &err);
        return CTL_USAGE;
    }
    json_t *answer = ask(ctl, request, against, &err);
    const char *path = args_value(args, "--cubin");
    if (answer == NULL || (path != NULL && save_cubin(answer, path, &err))) {
        json_decref(answer);
        return ctl_fail(ctl, &err);
    }
    if (ctl->is_json)
        print_json(answer);
    else if (is_comparison)
        show_comparison(answer);
    else
        show_explanation(answer);
    json_decref(answer);
    return CTL_DONE;
}

int run_explain(struct tunectl *ctl, const struct args *args)
{
    return args_has(args, "--resources") ? run_resources(ctl, args) : run_kernel(ctl, args);
}
