/* Answers: the check of bytes from outside, and "reading an answer" in tune.h. See answer_form.h.
 */
#include "client/answer_form.h"

#include <string.h>

/* --- checking --------------------------------------------------------------------------------- */

struct check {
    const char *bytes;
    struct layout at;
    size_t length;
};

/* A string: inside the strings, whose last byte is known to be 0. */
static bool has_text(const struct check *check, const void *record, uint32_t field)
{
    size_t at = (size_t)((const char *)record - check->bytes) + field;
    return at >= check->at.strings && at < check->length;
}

static bool has_text_or_none(const struct check *check, const void *record, uint32_t field)
{
    return field == 0 || has_text(check, record, field);
}

static bool has_numbers(
    const struct check *check, const struct map *map, uint32_t field, uint32_t count)
{
    size_t at = (size_t)((const char *)map - check->bytes) + field;
    return at >= check->at.numbers && at % sizeof(int64_t) == 0 &&
           at + count * sizeof(int64_t) <= check->at.strings;
}

static bool is_sound_map(const struct check *check, const struct map *map)
{
    return map->rank >= 1 && map->rank <= MAP_RANK_MAX && has_text(check, map, map->swizzle) &&
           has_numbers(check, map, map->dims, map->rank) &&
           has_numbers(check, map, map->strides_bytes, map->rank - 1) &&
           has_numbers(check, map, map->box, map->rank);
}

/* A tensor map's record is checked with the arg that names it: its place only. */
static bool is_sound_arg(const struct check *check, const struct arg *arg)
{
    if (arg->kind == TUNE_ARG_BUFFER)
        return has_text(check, arg, arg->name);
    if (arg->kind == TUNE_ARG_SCALAR)
        return has_text_or_none(check, arg, arg->name) && has_text(check, arg, arg->type);
    size_t at = (size_t)((const char *)arg - check->bytes) + arg->map;
    return arg->kind == TUNE_ARG_TENSOR_MAP && has_text(check, arg, arg->name) &&
           has_text(check, arg, arg->type) && at >= check->at.maps && at < check->at.numbers &&
           (at - check->at.maps) % sizeof(struct map) == 0;
}

static bool is_sound_head(const struct check *check, const struct head *head)
{
    return head->origin <= TUNE_DEFAULT && has_text(check, head, head->kernel) &&
           has_text(check, head, head->dtype) && has_text(check, head, head->mode) &&
           has_text(check, head, head->arch) && has_text(check, head, head->shape) &&
           has_text(check, head, head->measured_on) && has_text(check, head, head->measured_shape);
}

static bool has_sound_tables(const struct check *check, const struct head *head)
{
    bool is_sound = true;
    const struct param *params = (const void *)(check->bytes + check->at.params);
    const struct launch *launches = (const void *)(check->bytes + check->at.launches);
    const struct buffer *buffers = (const void *)(check->bytes + check->at.buffers);
    const struct arg *args = (const void *)(check->bytes + check->at.args);
    const struct map *maps = (const void *)(check->bytes + check->at.maps);
    for (size_t i = 0; i < head->params; i++)
        is_sound &= has_text(check, &params[i], params[i].name) &&
                    has_text_or_none(check, &params[i], params[i].word);
    for (size_t i = 0; i < head->launches; i++)
        is_sound &= has_text(check, &launches[i], launches[i].name) &&
                    ((launches[i].flags & FLAG_CONSTANT) == 0 ||
                        has_text(check, &launches[i], launches[i].constant)) &&
                    launches[i].first_arg <= head->args &&
                    launches[i].args <= head->args - launches[i].first_arg;
    for (size_t i = 0; i < head->buffers; i++)
        is_sound &= has_text(check, &buffers[i], buffers[i].name) &&
                    has_text(check, &buffers[i], buffers[i].dtype) &&
                    has_text(check, &buffers[i], buffers[i].role);
    for (size_t i = 0; i < head->args; i++)
        is_sound &= is_sound_arg(check, &args[i]);
    for (size_t i = 0; i < head->maps; i++)
        is_sound &= is_sound_map(check, &maps[i]);
    return is_sound;
}

/* Counts whose tables cannot overflow a size. */
static bool has_small_counts(const struct head *head)
{
    return (head->params | head->launches | head->buffers | head->args | head->maps |
               head->numbers) < TUNE_ANSWER_BYTES;
}

int answer_from_bytes(
    const void *bytes, size_t length, struct tune_answer *answer, struct tune_error *err)
{
    const struct head *head = (const struct head *)answer->words;
    answer->is_offline = false;
    answer->length = 0;
    if (length <= sizeof *head || length > TUNE_ANSWER_BYTES)
        return tune_fail(err, TUNE_EDAMAGED, "an answer has %zu bytes", length);
    memcpy(answer->words, bytes, length);
    struct check check = {.bytes = (const char *)answer->words, .length = length};
    if (memcmp(head->magic, ANSWER_MAGIC, sizeof head->magic) != 0)
        return tune_fail(err, TUNE_EDAMAGED, "these bytes are no answer");
    if (head->version != ANSWER_VERSION)
        return tune_fail(err, TUNE_EVERSION,
            "an answer has version %d, this program reads %d: daemon and libtune are of different "
            "releases",
            head->version, ANSWER_VERSION);
    if (head->length == length && has_small_counts(head)) {
        check.at = layout_of(head);
        if (check.at.strings < length && check.bytes[length - 1] == '\0' &&
            is_sound_head(&check, head) && has_sound_tables(&check, head)) {
            answer->length = (uint32_t)length;
            return 0;
        }
    }
    return tune_fail(err, TUNE_EDAMAGED, "an answer's bytes are damaged");
}

/* --- reading ---------------------------------------------------------------------------------- */

static const struct head *head_of(const struct tune_answer *answer)
{
    return (const struct head *)answer->words;
}

static const void *table(const struct tune_answer *answer, size_t at)
{
    return (const char *)answer->words + at;
}

static const char *text_of(const void *record, uint32_t field)
{
    return field == 0 ? NULL : (const char *)record + field;
}

void tune_answer_info(const struct tune_answer *answer, struct tune_answer_info *info)
{
    const struct head *head = head_of(answer);
    *info = (struct tune_answer_info){
        .origin = (enum tune_origin)head->origin,
        .same_gpu = (head->flags & FLAG_SAME_GPU) != 0,
        .is_verified = (head->flags & FLAG_VERIFIED) != 0,
        .is_shipped = (head->flags & FLAG_SHIPPED) != 0,
        .median_ns = head->median_ns,
        .expected_loss = head->expected_loss,
        .generation = head->generation,
        .sm = head->sm,
        .param_count = head->params,
        .launch_count = head->launches,
        .buffer_count = head->buffers,
        .kernel = text_of(head, head->kernel),
        .dtype = text_of(head, head->dtype),
        .mode = text_of(head, head->mode),
        .arch = text_of(head, head->arch),
        .shape = text_of(head, head->shape),
        .measured_on = text_of(head, head->measured_on),
        .measured_shape = text_of(head, head->measured_shape),
    };
}

void tune_answer_param_at(const struct tune_answer *answer, size_t i, const char **name,
    int64_t *value, const char **word)
{
    const struct param *param =
        (const struct param *)table(answer, layout_of(head_of(answer)).params) + i;
    *name = text_of(param, param->name);
    *value = param->value;
    if (word != NULL)
        *word = text_of(param, param->word);
}

int tune_answer_param(
    const struct tune_answer *answer, const char *name, int64_t *value, const char **word)
{
    for (size_t i = 0; i < head_of(answer)->params; i++) {
        const char *found;
        int64_t number;
        const char *spelled;
        tune_answer_param_at(answer, i, &found, &number, &spelled);
        if (strcmp(found, name) != 0)
            continue;
        *value = number;
        if (word != NULL)
            *word = spelled;
        return 0;
    }
    return -1;
}

void tune_answer_launch(const struct tune_answer *answer, size_t i, struct tune_launch *out)
{
    struct layout at = layout_of(head_of(answer));
    const struct launch *launch = (const struct launch *)table(answer, at.launches) + i;
    const struct arg *args = table(answer, at.args);
    bool is_memset = (launch->flags & FLAG_MEMSET) != 0;
    bool is_constant = (launch->flags & FLAG_CONSTANT) != 0;
    const char *name = text_of(launch, launch->name);
    *out = (struct tune_launch){
        .is_memset = is_memset,
        .is_constant = is_constant,
        .buffer = is_memset || is_constant ? name : NULL,
        .byte = launch->byte,
        .entry = is_constant ? text_of(launch, launch->constant)
                 : is_memset ? NULL
                             : name,
        .shared_bytes = launch->shared_bytes,
        .is_cooperative = (launch->flags & FLAG_COOPERATIVE) != 0,
        .is_once = (launch->flags & FLAG_ONCE) != 0,
        .repeat = launch->repeat,
        .arg_count = launch->args,
        .args = args + launch->first_arg,
    };
    memcpy(out->grid, launch->grid, sizeof out->grid);
    memcpy(out->block, launch->block, sizeof out->block);
    memcpy(out->cluster, launch->cluster, sizeof out->cluster);
}

static const int64_t *numbers_of(const struct map *map, uint32_t field)
{
    return (const int64_t *)(const void *)((const char *)map + field);
}

void tune_launch_arg(const struct tune_launch *launch, size_t i, struct tune_arg *out)
{
    const struct arg *arg = (const struct arg *)launch->args + i;
    const char *type = text_of(arg, arg->type);
    *out =
        (struct tune_arg){.kind = (enum tune_arg_kind)arg->kind, .name = text_of(arg, arg->name)};
    if (arg->kind == TUNE_ARG_SCALAR) {
        out->type = type;
        if (arg->is_real)
            out->real = arg->value.real;
        else
            out->integer = arg->value.integer;
    } else if (arg->kind == TUNE_ARG_TENSOR_MAP) {
        const struct map *map = (const void *)((const char *)arg + arg->map);
        out->dtype = type;
        out->swizzle = text_of(map, map->swizzle);
        out->rank = map->rank;
        out->dims = numbers_of(map, map->dims);
        out->strides_bytes = numbers_of(map, map->strides_bytes);
        out->box = numbers_of(map, map->box);
    }
}

void tune_answer_buffer(const struct tune_answer *answer, size_t i, struct tune_buffer *out)
{
    const struct buffer *buffer =
        (const struct buffer *)table(answer, layout_of(head_of(answer)).buffers) + i;
    *out = (struct tune_buffer){
        .name = text_of(buffer, buffer->name),
        .dtype = text_of(buffer, buffer->dtype),
        .role = text_of(buffer, buffer->role),
        .bytes = buffer->bytes,
        .is_zeroed_before = (buffer->flags & FLAG_ZEROED) != 0,
    };
}
