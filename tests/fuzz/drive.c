/* Runs a fuzz target without libFuzzer: over each file named (or each file of each folder), then
 * over seeded mutations of these. usage: drive COUNT FILE_OR_FOLDER... The same on every machine.
 */
#include "daemon/search/rng.h"
#include "target.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INPUTS_MAX 512
#define INPUT_MAX_BYTES ((size_t)1 << 16)

static struct input {
    uint8_t *bytes;
    size_t count;
} inputs[INPUTS_MAX];
static size_t input_count;

static int read_input(const char *path)
{
    FILE *file = fopen(path, "re");
    if (file == NULL || input_count == INPUTS_MAX) {
        fprintf(stderr, "cannot take %s\n", path);
        return -1;
    }
    struct input *input = &inputs[input_count++];
    input->bytes = malloc(INPUT_MAX_BYTES);
    input->count = fread(input->bytes, 1, INPUT_MAX_BYTES, file);
    fclose(file);
    return 0;
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static int read_inputs(const char *path)
{
    struct dirent **names;
    int count = scandir(path, &names, is_visible, alphasort), status = 0;
    if (count < 0)
        return read_input(path);
    for (int i = 0; i < count; i++) {
        char name[4096];
        snprintf(name, sizeof name, "%s/%s", path, names[i]->d_name);
        status |= read_inputs(name);
        free(names[i]);
    }
    free(names);
    return status;
}

/* One of: change, insert, drop a byte; repeat, drop a span; splice with another input. */
static size_t mutate_once(struct rng *rng, uint8_t *bytes, size_t count)
{
    static const char likely[] = "{}[]\",:\\\n\r0123456789-+*/%?&|!<>=().eE \xff";
    size_t at = rng_below(rng, count + 1);
    size_t span = rng_below(rng, count - at + 1);
    const struct input *other = &inputs[rng_below(rng, input_count)];
    switch (rng_below(rng, 6)) {
    case 0:
        if (at < count)
            bytes[at] = (uint8_t)rng_next(rng);
        return count;
    case 1:
        memmove(bytes + at + 1, bytes + at, count - at);
        bytes[at] = (uint8_t)likely[rng_below(rng, sizeof likely)];
        return count + 1;
    case 2:
        span = span > 8 ? 8 : span;
        memmove(bytes + at, bytes + at + span, count - at - span);
        return count - span;
    case 3:
        memmove(bytes + at + span, bytes + at, count - at);
        return count + span;
    case 4:
        return at;
    default:
        span = rng_below(rng, other->count + 1);
        memcpy(bytes + at, other->bytes + other->count - span, span);
        return at + span;
    }
}

static void run_mutation(struct rng *rng)
{
    static uint8_t work[16 * INPUT_MAX_BYTES];
    const struct input *input = &inputs[rng_below(rng, input_count)];
    size_t count = input->count, changes = 1 + rng_below(rng, 4);
    memcpy(work, input->bytes, count);
    while (changes-- > 0 && count < 2 * INPUT_MAX_BYTES)
        count = mutate_once(rng, work, count);
    /* A block of its own size, so that a sanitizer sees a read past its end. */
    uint8_t *exact = malloc(count ? count : 1);
    memcpy(exact, work, count);
    LLVMFuzzerTestOneInput(exact, count);
    free(exact);
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: %s COUNT FILE_OR_FOLDER...\n", argv[0]);
        return 2;
    }
    for (int i = 2; i < argc; i++)
        if (read_inputs(argv[i]))
            return 1;
    for (size_t i = 0; i < input_count; i++)
        LLVMFuzzerTestOneInput(inputs[i].bytes, inputs[i].count);
    struct rng rng = {1};
    for (long i = 0; i < atol(argv[1]); i++)
        run_mutation(&rng);
    for (size_t i = 0; i < input_count; i++)
        free(inputs[i].bytes);
    printf("%zu inputs, %s mutations\n", input_count, argv[1]);
    return input_count == 0;
}
