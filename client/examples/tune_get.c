/* Asks for the best launch of a kernel and prints it, as an application would look at it before it
 * launches its own build of the kernel. Without a daemon it prints the kernel's default.
 *
 *     cc tune_get.c $(pkg-config --cflags --libs tunerd) -o tune_get
 *     ./tune_get gemm M=4096 N=4096 K=4096 */
#if __has_include(<tunerd/tune.h>)
#include <tunerd/tune.h>
#else
#include "client/tune.h"
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIMS 16

/* Cuts "M=4096" into a dim; false when it is none. */
static bool read_dim(char *word, struct tune_dim *dim)
{
    char *equals = strchr(word, '='), *end;
    if (equals == NULL || equals == word || equals[1] == '\0')
        return false;
    *equals = '\0';
    dim->name = word;
    dim->value = strtoll(equals + 1, &end, 10);
    return *end == '\0';
}

static void print_config(const struct tune_answer *answer, const struct tune_answer_info *info)
{
    printf("%s %s %s, %s:", info->kernel, info->dtype, info->shape, info->arch);
    for (size_t i = 0; i < info->param_count; i++) {
        const char *name, *word;
        int64_t value;
        tune_answer_param_at(answer, i, &name, &value, &word);
        if (word != NULL)
            printf(" %s=%s", name, word);
        else
            printf(" %s=%lld", name, (long long)value);
    }
    printf("\n");
}

static void print_launch(const struct tune_launch *launch)
{
    if (launch->is_memset)
        printf("  memset %s to %d\n", launch->buffer, launch->byte);
    else if (launch->is_constant)
        printf("  copy %s to %s\n", launch->buffer, launch->entry);
    else
        printf("  %s grid %u,%u,%u block %u,%u,%u shared %u bytes, %u arguments\n", launch->entry,
            launch->grid[0], launch->grid[1], launch->grid[2], launch->block[0], launch->block[1],
            launch->block[2], launch->shared_bytes, launch->arg_count);
}

static void print_answer(const struct tune_answer *answer)
{
    static const char *const origins[] = {"exact", "nearest", "transferred", "default"};
    struct tune_answer_info info;
    tune_answer_info(answer, &info);
    print_config(answer, &info);
    printf("  origin %s%s\n", origins[info.origin],
        answer->is_offline ? " (no daemon answers: the default of the installed manifest)" : "");
    if (info.median_ns > 0)
        printf("  %.1f us on %s\n", info.median_ns / 1e3, info.measured_on);
    for (size_t i = 0; i < info.launch_count; i++) {
        struct tune_launch launch;
        tune_answer_launch(answer, i, &launch);
        print_launch(&launch);
    }
}

int main(int argc, char **argv)
{
    struct tune_dim dims[DIMS];
    struct tune_query query = {.dims = dims};
    bool is_right = argc >= 3 && argc - 2 <= DIMS;
    for (int i = 2; is_right && i < argc; i++)
        is_right = read_dim(argv[i], &dims[query.dim_count++]);
    if (!is_right) {
        fprintf(stderr, "usage: tune_get KERNEL DIM=SIZE ...\n");
        return 2;
    }
    query.kernel = argv[1];

    struct tune *tune = NULL;
    struct tune_answer answer;
    struct tune_error err = {0};
    int status = tune_open(NULL, &tune, &err) || tune_get(tune, &query, &answer, &err);
    if (status)
        fprintf(stderr, "%s\n", err.text);
    else
        print_answer(&answer);
    tune_close(tune);
    return status;
}
