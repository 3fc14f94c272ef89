/* Asks the daemon for the best launch of a matrix product and prints it. An application would hand
 * the same JSON to the driver: one cuLaunchKernel per launch, in order.
 *
 *     cc get.c $(pkg-config --cflags --libs tunerd) -o get && ./get 4096 4096 4096 */
#if __has_include(<tunerd/tune_rpc.h>)
#include <tunerd/tune_rpc.h>
#else
#include "client/tune_rpc.h"
#endif

#include <stdio.h>
#include <stdlib.h>

static void print_launch(const json_t *launch)
{
    const char *entry = json_string_value(json_object_get(launch, "entry"));
    const char *constant = json_string_value(json_object_get(launch, "constant"));
    if (constant != NULL) {
        printf("copy %s to %s\n", json_string_value(json_object_get(launch, "buffer")), constant);
        return;
    }
    if (entry == NULL) {
        printf("memset %s\n", json_string_value(json_object_get(launch, "memset")));
        return;
    }
    char *grid = json_dumps(json_object_get(launch, "grid"), JSON_COMPACT);
    char *block = json_dumps(json_object_get(launch, "block"), JSON_COMPACT);
    char *defines = json_dumps(json_object_get(launch, "defines"), JSON_COMPACT);
    printf("%s grid %s block %s shared %lld bytes, compiled with %s\n", entry, grid, block,
        (long long)json_integer_value(json_object_get(launch, "shared_bytes")), defines);
    free(grid);
    free(block);
    free(defines);
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: get M N K\n");
        return 2;
    }
    json_t *ask = json_pack("{s:s, s:{s:I, s:I, s:I}}", "kernel", "gemm", "shape", "M",
        (json_int_t)atoll(argv[1]), "N", (json_int_t)atoll(argv[2]), "K",
        (json_int_t)atoll(argv[3]));
    struct tune_error err = {0};
    struct tune_client *client = NULL;
    json_t *answer = NULL;
    if (tune_connect(NULL, &client, &err)) {
        json_decref(ask);
        fprintf(stderr, "%s\n", err.text);
        return 3;
    }
    int status = tune_request(client, "get", ask, &answer, &err);
    if (status)
        fprintf(stderr, "%s\n", err.text);
    size_t i;
    json_t *launch;
    json_array_foreach (json_object_get(answer, "launches"), i, launch) {
        print_launch(launch);
    }
    json_decref(answer);
    tune_disconnect(client);
    return status ? 1 : 0;
}
