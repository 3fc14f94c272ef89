/* Answers from JSON. See answer.h and answer_form.h. */
#include "client/answer_form.h"

#include "client/proto.h"

#include <stdio.h>
#include <string.h>

struct builder {
    char *bytes; /* of the answer */
    struct head *head;
    struct layout at;
    size_t used; /* strings end here */
    uint32_t args, maps, numbers;
    struct tune_error *err;
};

static int add_text(struct builder *builder, const void *record, const char *text, uint32_t *field)
{
    size_t length = strlen(text) + 1, at = builder->at.strings;
    while (at < builder->used && strcmp(builder->bytes + at, text) != 0)
        at += strlen(builder->bytes + at) + 1;
    if (at == builder->used) {
        if (length > TUNE_ANSWER_BYTES - builder->used)
            return tune_fail(builder->err, TUNE_ELIMIT,
                "the answer takes more than the %d bytes that there is room for",
                TUNE_ANSWER_BYTES);
        memcpy(builder->bytes + at, text, length);
        builder->used += length;
    }
    *field = (uint32_t)(at - (size_t)((const char *)record - builder->bytes));
    return 0;
}

static int add_field(struct builder *builder, const void *record, const json_t *object,
    const char *key, uint32_t *field)
{
    const char *text;
    if (proto_string(object, key, &text, builder->err))
        return -1;
    return add_text(builder, record, text, field);
}

/* Missing or null is "". */
static int add_field_opt(
    struct builder *builder, const json_t *object, const char *key, uint32_t *field)
{
    const char *text = "";
    if (proto_string_opt(object, key, &text, builder->err))
        return -1;
    return add_text(builder, builder->head, text, field);
}

/* {"M":64,"N":64} -> "M=64,N=64" */
static int add_shape(struct builder *builder, const json_t *shape)
{
    char text[1024];
    size_t used = 0;
    const char *name;
    json_t *value;
    json_object_foreach ((json_t *)shape, name, value) {
        int length = json_is_integer(value)
                         ? snprintf(text + used, sizeof text - used, "%s%s=%" JSON_INTEGER_FORMAT,
                               used > 0 ? "," : "", name, json_integer_value(value))
                         : (int)sizeof text;
        if (length >= (int)(sizeof text - used))
            return tune_fail(
                builder->err, TUNE_EPARSE, "field \"shape\" must hold integers by name");
        used += (size_t)length;
    }
    text[used] = '\0';
    return add_text(builder, builder->head, text, &builder->head->shape);
}

/* The integer behind a value's name: the macro that the kernel is compiled with. */
static int word_value(
    struct builder *builder, const json_t *launches, const char *name, int64_t *value)
{
    size_t i;
    json_t *launch;
    json_array_foreach (launches, i, launch) {
        const json_t *defines = json_object_get(launch, "defines");
        if (json_object_get(defines, name) != NULL)
            return proto_int(defines, name, INT64_MIN, INT64_MAX, value, builder->err);
    }
    return tune_fail(builder->err, TUNE_EPARSE, "no launch defines the param %.64s", name);
}

static int add_params(struct builder *builder, const json_t *config, const json_t *launches)
{
    struct param *param = (struct param *)(builder->bytes + builder->at.params);
    const char *name;
    json_t *value;
    json_object_foreach ((json_t *)config, name, value) {
        if (add_text(builder, param, name, &param->name))
            return -1;
        if (json_is_integer(value))
            param->value = json_integer_value(value);
        else if (!json_is_string(value))
            return tune_fail(builder->err, TUNE_EPARSE,
                "the param %.64s must be an integer or a value's name", name);
        else if (word_value(builder, launches, name, &param->value) ||
                 add_text(builder, param, json_string_value(value), &param->word))
            return -1;
        param++;
    }
    return 0;
}

static int add_numbers(struct builder *builder, const struct map *map, const json_t *object,
    const char *key, size_t count, uint32_t *field)
{
    size_t at = builder->at.numbers + builder->numbers * sizeof(int64_t);
    int64_t *numbers = (int64_t *)(builder->bytes + at);
    const json_t *array = json_object_get(object, key);
    if (json_array_size(array) != count)
        return tune_fail(
            builder->err, TUNE_EPARSE, "field \"%s\" must have %zu numbers", key, count);
    for (size_t i = 0; i < count; i++) {
        const json_t *number = json_array_get(array, i);
        if (!json_is_integer(number))
            return tune_fail(builder->err, TUNE_EPARSE, "field \"%s\" must hold integers", key);
        numbers[i] = json_integer_value(number);
    }
    builder->numbers += (uint32_t)count;
    *field = (uint32_t)(at - (size_t)((const char *)map - builder->bytes));
    return 0;
}

static int add_map(struct builder *builder, struct arg *arg, const json_t *json)
{
    size_t rank = json_array_size(json_object_get(json, "dims"));
    if (rank < 1 || rank > MAP_RANK_MAX)
        return tune_fail(builder->err, TUNE_EPARSE,
            "field \"dims\" of a tensor map must have 1 to %d numbers", MAP_RANK_MAX);
    size_t at = builder->at.maps + builder->maps++ * sizeof(struct map);
    struct map *map = (struct map *)(builder->bytes + at);
    map->rank = (uint32_t)rank;
    arg->kind = TUNE_ARG_TENSOR_MAP;
    arg->map = (uint32_t)(at - (size_t)((const char *)arg - builder->bytes));
    return add_field(builder, arg, json, "buffer", &arg->name) ||
                   add_field(builder, arg, json, "dtype", &arg->type) ||
                   add_field(builder, map, json, "swizzle", &map->swizzle) ||
                   add_numbers(builder, map, json, "dims", rank, &map->dims) ||
                   add_numbers(
                       builder, map, json, "strides_bytes", rank - 1, &map->strides_bytes) ||
                   add_numbers(builder, map, json, "box", rank, &map->box)
               ? -1
               : 0;
}

static int add_scalar(struct builder *builder, struct arg *arg, const json_t *json)
{
    const char *type, *name = NULL;
    arg->kind = TUNE_ARG_SCALAR;
    if (proto_string(json, "type", &type, builder->err) ||
        proto_string_opt(json, "name", &name, builder->err) ||
        add_text(builder, arg, type, &arg->type))
        return -1;
    if (name != NULL)
        return add_text(builder, arg, name, &arg->name);
    if (type[0] == 'i' || type[0] == 'u')
        return proto_int(json, "value", INT64_MIN, INT64_MAX, &arg->value.integer, builder->err);
    if (json_object_get(json, "value") == NULL)
        return tune_fail(builder->err, TUNE_EPARSE, "a scalar has neither value nor name");
    arg->is_real = 1;
    return proto_number_opt(json, "value", &arg->value.real, builder->err);
}

static int add_arg(struct builder *builder, const json_t *json)
{
    struct arg *arg = (struct arg *)(builder->bytes + builder->at.args) + builder->args++;
    const char *kind;
    if (proto_string(json, "kind", &kind, builder->err))
        return -1;
    if (strcmp(kind, "buffer") == 0)
        return add_field(builder, arg, json, "name", &arg->name);
    if (strcmp(kind, "scalar") == 0)
        return add_scalar(builder, arg, json);
    if (strcmp(kind, "tensor_map") == 0)
        return add_map(builder, arg, json);
    return tune_fail(builder->err, TUNE_EPARSE, "an argument is of kind \"%.20s\"", kind);
}

static int take_triple(
    struct builder *builder, const json_t *json, const char *key, uint32_t triple[3])
{
    const json_t *array = json_object_get(json, key);
    for (size_t i = 0; i < 3; i++) {
        const json_t *number = json_array_get(array, i);
        json_int_t value = json_integer_value(number);
        if (json_array_size(array) != 3 || !json_is_integer(number) || value < 1 ||
            value > UINT32_MAX)
            return tune_fail(builder->err, TUNE_EPARSE, "field \"%s\" must be three sizes", key);
        triple[i] = (uint32_t)value;
    }
    return 0;
}

static int take_u32(
    struct builder *builder, const json_t *json, const char *key, uint32_t usual, uint32_t *out)
{
    int64_t value = usual;
    if (proto_int_opt(json, key, 0, UINT32_MAX, &value, builder->err))
        return -1;
    *out = (uint32_t)value;
    return 0;
}

static int add_memset(struct builder *builder, struct launch *launch, const json_t *json)
{
    int64_t byte;
    launch->flags |= FLAG_MEMSET;
    if (proto_int(json, "byte", 0, UINT8_MAX, &byte, builder->err))
        return -1;
    launch->byte = (uint8_t)byte;
    return add_field(builder, launch, json, "memset", &launch->name);
}

static int add_constant(struct builder *builder, struct launch *launch, const json_t *json)
{
    launch->flags |= FLAG_CONSTANT;
    return add_field(builder, launch, json, "constant", &launch->constant) ||
                   add_field(builder, launch, json, "buffer", &launch->name)
               ? -1
               : 0;
}

static int add_kernel(struct builder *builder, struct launch *launch, const json_t *json)
{
    bool is_cooperative = false;
    json_t *args, *arg;
    size_t i;
    if (add_field(builder, launch, json, "entry", &launch->name) ||
        take_triple(builder, json, "grid", launch->grid) ||
        take_triple(builder, json, "block", launch->block) ||
        take_u32(builder, json, "shared_bytes", 0, &launch->shared_bytes) ||
        take_u32(builder, json, "repeat", 1, &launch->repeat) ||
        proto_bool_opt(json, "cooperative", &is_cooperative, builder->err) ||
        proto_array_opt(json, "args", &args, builder->err))
        return -1;
    json_t *cluster = json_object_get(json, "cluster");
    if (cluster != NULL && !json_is_null(cluster) &&
        take_triple(builder, json, "cluster", launch->cluster))
        return -1;
    launch->flags |= is_cooperative ? FLAG_COOPERATIVE : 0;
    launch->first_arg = builder->args;
    launch->args = (uint32_t)json_array_size(args);
    json_array_foreach (args, i, arg) {
        if (add_arg(builder, arg))
            return -1;
    }
    return 0;
}

static int add_launches(struct builder *builder, const json_t *launches)
{
    struct launch *launch = (struct launch *)(builder->bytes + builder->at.launches);
    size_t i;
    json_t *json;
    json_array_foreach (launches, i, json) {
        bool is_once = false;
        if (proto_bool_opt(json, "once", &is_once, builder->err))
            return -1;
        launch->flags = is_once ? FLAG_ONCE : 0;
        int status = json_object_get(json, "memset") != NULL ? add_memset(builder, launch, json)
                     : json_object_get(json, "constant") != NULL
                         ? add_constant(builder, launch, json)
                         : add_kernel(builder, launch, json);
        if (status)
            return -1;
        launch++;
    }
    return 0;
}

static int add_buffers(struct builder *builder, const json_t *buffers)
{
    struct buffer *buffer = (struct buffer *)(builder->bytes + builder->at.buffers);
    size_t i;
    json_t *json;
    json_array_foreach (buffers, i, json) {
        bool is_zeroed = false;
        if (add_field(builder, buffer, json, "name", &buffer->name) ||
            add_field(builder, buffer, json, "dtype", &buffer->dtype) ||
            add_field(builder, buffer, json, "role", &buffer->role) ||
            proto_int(json, "bytes", 0, INT64_MAX, &buffer->bytes, builder->err) ||
            proto_bool_opt(json, "zero_before", &is_zeroed, builder->err))
            return -1;
        buffer->flags = is_zeroed ? FLAG_ZEROED : 0;
        buffer++;
    }
    return 0;
}

static int take_origin(struct builder *builder, const json_t *json)
{
    static const char *const words[] = {"exact", "nearest", "transferred", "default"};
    const char *origin;
    if (proto_string(json, "origin", &origin, builder->err))
        return -1;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(words[i], origin) == 0) {
            builder->head->origin = (uint8_t)i;
            return 0;
        }
    return tune_fail(builder->err, TUNE_EPARSE, "field \"origin\" is \"%.20s\"", origin);
}

static int add_head(struct builder *builder, const json_t *json)
{
    struct head *head = builder->head;
    bool same_gpu = false, is_verified = false, is_shipped = false;
    int64_t generation, sm;
    head->expected_loss = -1;
    if (add_field(builder, head, json, "kernel", &head->kernel) ||
        add_field(builder, head, json, "dtype", &head->dtype) ||
        add_field(builder, head, json, "mode", &head->mode) ||
        add_field(builder, head, json, "arch", &head->arch) ||
        add_shape(builder, json_object_get(json, "shape")) ||
        add_field_opt(builder, json, "measured_on", &head->measured_on) ||
        add_field_opt(builder, json, "measured_shape", &head->measured_shape) ||
        take_origin(builder, json) || proto_bool_opt(json, "same_gpu", &same_gpu, builder->err) ||
        proto_bool_opt(json, "verified", &is_verified, builder->err) ||
        proto_bool_opt(json, "shipped", &is_shipped, builder->err) ||
        proto_number_opt(json, "median_ns", &head->median_ns, builder->err) ||
        proto_number_opt(json, "expected_loss", &head->expected_loss, builder->err) ||
        proto_int(json, "generation", 0, INT64_MAX, &generation, builder->err) ||
        proto_int(json, "sm", 0, INT32_MAX, &sm, builder->err))
        return -1;
    head->flags = (uint8_t)((same_gpu ? FLAG_SAME_GPU : 0) | (is_verified ? FLAG_VERIFIED : 0) |
                            (is_shipped ? FLAG_SHIPPED : 0));
    head->generation = (uint64_t)generation;
    head->sm = (int32_t)sm;
    return 0;
}

static void count_args(struct head *head, const json_t *launches)
{
    size_t i, j;
    json_t *launch, *arg;
    json_array_foreach (launches, i, launch) {
        const json_t *args = json_object_get(launch, "args");
        head->args += (uint32_t)json_array_size(args);
        json_array_foreach (args, j, arg) {
            size_t rank = json_array_size(json_object_get(arg, "dims"));
            head->maps += rank > 0;
            head->numbers += (uint32_t)(rank > 0 ? 3 * rank - 1 : 0);
        }
    }
}

static int build(struct builder *builder, const json_t *json)
{
    json_t *shape, *config, *launches, *buffers;
    if (proto_object_opt(json, "shape", &shape, builder->err) ||
        proto_object_opt(json, "config", &config, builder->err) ||
        proto_array_opt(json, "launches", &launches, builder->err) ||
        proto_array_opt(json, "buffers", &buffers, builder->err))
        return -1;
    if (shape == NULL || config == NULL || launches == NULL || buffers == NULL)
        return tune_fail(
            builder->err, TUNE_EPARSE, "shape, config, launches or buffers are missing");
    struct head *head = builder->head;
    memcpy(head->magic, ANSWER_MAGIC, sizeof head->magic);
    head->version = ANSWER_VERSION;
    head->params = (uint32_t)json_object_size(config);
    head->launches = (uint32_t)json_array_size(launches);
    head->buffers = (uint32_t)json_array_size(buffers);
    count_args(head, launches);
    builder->at = layout_of(head);
    builder->used = builder->at.strings;
    if (builder->used > TUNE_ANSWER_BYTES)
        return tune_fail(builder->err, TUNE_ELIMIT,
            "the answer takes more than the %d bytes that there is room for", TUNE_ANSWER_BYTES);
    memset(builder->bytes + sizeof *head, 0, builder->used - sizeof *head);
    if (add_head(builder, json) || add_params(builder, config, launches) ||
        add_launches(builder, launches) || add_buffers(builder, buffers))
        return -1;
    head->length = (uint32_t)builder->used;
    return 0;
}

int answer_from_json(const json_t *json, struct tune_answer *answer, struct tune_error *err)
{
    struct tune_error why = {0};
    struct builder builder = {
        .bytes = (char *)answer->words, .head = (struct head *)answer->words, .err = &why};
    memset(builder.head, 0, sizeof *builder.head);
    answer->is_offline = false;
    answer->length = 0;
    if (build(&builder, json))
        return tune_fail(err, why.code == TUNE_ELIMIT ? TUNE_ELIMIT : TUNE_EPARSE,
            "the daemon's answer cannot be used: %s", why.text);
    answer->length = builder.head->length;
    return 0;
}
