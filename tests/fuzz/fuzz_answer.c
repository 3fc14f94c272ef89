/* Answers as bytes: any bytes are refused, or all that the readers give lies inside the answer. */
#include "client/answer.h"
#include "target.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static void check(bool is_right)
{
    if (!is_right)
        abort();
}

static void check_text(const struct tune_answer *answer, const char *text)
{
    const char *bytes = (const char *)answer->words;
    check(text == NULL || (text >= bytes && text + strlen(text) < bytes + answer->length));
}

static void check_numbers(const struct tune_answer *answer, const int64_t *numbers, size_t count)
{
    const char *bytes = (const char *)answer->words;
    check((const char *)numbers >= bytes &&
          (const char *)(numbers + count) <= bytes + answer->length);
}

static void use_launch(const struct tune_answer *answer, size_t i)
{
    struct tune_launch launch;
    struct tune_arg arg;
    tune_answer_launch(answer, i, &launch);
    check_text(answer, launch.buffer);
    check_text(answer, launch.entry);
    for (size_t j = 0; j < launch.arg_count; j++) {
        tune_launch_arg(&launch, j, &arg);
        check_text(answer, arg.name);
        check_text(answer, arg.type);
        check_text(answer, arg.dtype);
        check_text(answer, arg.swizzle);
        if (arg.kind != TUNE_ARG_TENSOR_MAP)
            continue;
        check_numbers(answer, arg.dims, arg.rank);
        check_numbers(answer, arg.strides_bytes, arg.rank - 1);
        check_numbers(answer, arg.box, arg.rank);
    }
}

static void use(const struct tune_answer *answer)
{
    struct tune_answer_info info;
    struct tune_buffer buffer;
    const char *name, *word;
    int64_t value;
    tune_answer_info(answer, &info);
    check_text(answer, info.kernel);
    check_text(answer, info.shape);
    check_text(answer, info.measured_on);
    for (size_t i = 0; i < info.param_count; i++) {
        tune_answer_param_at(answer, i, &name, &value, &word);
        check_text(answer, name);
        check_text(answer, word);
    }
    for (size_t i = 0; i < info.launch_count; i++)
        use_launch(answer, i);
    for (size_t i = 0; i < info.buffer_count; i++) {
        tune_answer_buffer(answer, i, &buffer);
        check_text(answer, buffer.name);
        check_text(answer, buffer.role);
    }
}

static void try(const uint8_t *bytes, size_t count)
{
    struct tune_answer answer;
    struct tune_error err = {0};
    if (answer_from_bytes(bytes, count, &answer, &err) == 0)
        use(&answer);
    else
        check(err.code != TUNE_OK && answer.length == 0);
}

/* As they are, and with the length in the head made right, so that more than that is looked at. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    const size_t length_at = 8;
    uint32_t length = (uint32_t)count;
    uint8_t copy[TUNE_ANSWER_BYTES];
    try(bytes, count);
    if (count < length_at + sizeof length || count > sizeof copy)
        return 0;
    memcpy(copy, bytes, count);
    memcpy(copy + length_at, &length, sizeof length);
    try(copy, count);
    return 0;
}
