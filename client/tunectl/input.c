/* `sweep --input`: makes or reads the matrices that are named, and asks for the shapes that
 * describe them. */
#include "input.h"
#include "print.h"

#include "plugins/sparse_shape.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* The daemon runs in another folder. New. */
static char *absolute(const char *input, struct tune_error *err)
{
    char path[PATH_MAX];
    if (!sparse_is_file(input))
        return strdup(input);
    if (realpath(input, path) == NULL) {
        tune_fail_errno(err, TUNE_EIO, "cannot open %.120s", input);
        return NULL;
    }
    return strdup(path);
}

static int describe(const char *input, bool is_graph, struct sparse_description *description,
    struct tune_error *err)
{
    struct sparse_matrix matrix;
    if (sparse_make(input, &matrix, err))
        return -1;
    int status = sparse_describe(&matrix, description, err);
    if (status == 0 && is_graph && !sparse_is_symmetric(&matrix))
        status = tune_fail(err, TUNE_EINVAL,
            "input %.100s is no graph whose edges stand both ways, which this kernel needs", input);
    sparse_finish(&matrix);
    return status;
}

static int find_sparse_dim(const char *name)
{
    for (int i = 0; i < SPARSE_DIM_COUNT; i++)
        if (strcmp(sparse_dim_names[i], name) == 0)
            return i;
    return -1;
}

/* What --shape says beside the inputs: sizes and choices that no matrix has. New. */
static json_t *take_others(const struct args *args, struct tune_error *err)
{
    size_t cursor = 0;
    const char *text = args_each(args, "--shape", &cursor), *name;
    json_t *others = NULL, *value;
    if (args_value(args, "--shapes-file") != NULL ||
        (text != NULL && args_each(args, "--shape", &cursor) != NULL)) {
        tune_fail(err, TUNE_EINVAL,
            "beside --input stands at most one --shape, with the dimensions that are not the "
            "input's");
        return NULL;
    }
    if (text == NULL)
        return json_object();
    if (parse_dims(text, &others, err))
        return NULL;
    json_object_foreach (others, name, value) {
        if (find_sparse_dim(name) < 0)
            continue;
        tune_fail(err, TUNE_EINVAL, "%s follows from the input; leave it out of --shape", name);
        json_decref(others);
        return NULL;
    }
    return others;
}

static bool has_dim(const json_t *dims, const char *name)
{
    size_t i;
    json_t *dim;
    json_array_foreach ((json_t *)dims, i, dim) {
        if (strcmp(text_of(dim, "name"), name) == 0)
            return true;
    }
    return false;
}

/* The kernel's own dims only; what is lacking the daemon says. New. */
static json_t *shape_of(
    const json_t *dims, const struct sparse_description *description, const json_t *others)
{
    json_t *shape = json_copy((json_t *)others);
    for (int i = 0; i < SPARSE_DIM_COUNT; i++)
        if (has_dim(dims, sparse_dim_names[i]))
            json_object_set_new(shape, sparse_dim_names[i], json_integer(description->dims[i]));
    return shape;
}

static int add_input(const char *text, const json_t *dims, const json_t *others, json_t *shapes,
    json_t *inputs, struct tune_error *err)
{
    struct sparse_description description;
    char *input = absolute(text, err);
    int status =
        input ? describe(input, !has_dim(dims, sparse_dim_names[SPARSE_COLUMNS]), &description, err)
              : -1;
    if (status == 0 && json_array_append_new(inputs, json_string(input)))
        status = tune_fail(err, TUNE_EINVAL, "an input's text is UTF-8");
    if (status == 0)
        json_array_append_new(shapes, shape_of(dims, &description, others));
    free(input);
    return status;
}

static int add_inputs(
    const struct args *args, const json_t *dims, json_t *request, struct tune_error *err)
{
    json_t *others = take_others(args, err), *shapes = json_array(), *inputs = json_array();
    size_t cursor = 0;
    int status = others ? 0 : -1;
    for (const char *text; status == 0 && (text = args_each(args, "--input", &cursor)) != NULL;)
        status = add_input(text, dims, others, shapes, inputs, err);
    json_object_set_new(request, "shapes", shapes);
    json_object_set_new(request, "inputs", inputs);
    json_decref(others);
    return status;
}

int pass_inputs(
    struct tunectl *ctl, const struct args *args, json_t *request, struct tune_error *err)
{
    json_t *manifest = NULL;
    if (!args_has(args, "--input"))
        return 0;
    if (ctl_ask(ctl, "describe", json_pack("{s:s}", "kernel", args->operands[0]), &manifest, err))
        return -1;
    const json_t *dims = json_object_get(manifest, "dims");
    int status = has_dim(dims, "ROWS") && has_dim(dims, "NONZEROS")
                     ? add_inputs(args, dims, request, err)
                     : tune_fail(err, TUNE_EINVAL, "%s takes no matrix, so it has no input to name",
                           args->operands[0]);
    json_decref(manifest);
    return status;
}
