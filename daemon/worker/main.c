/* tune-worker: the only program of tunerd that touches CUDA.
 *
 * Design: tunerd starts it by exec with a socket on descriptor 3 and a role. It says hello, then
 * answers one request at a time (pipe.h) until the socket ends. It may die at any moment, by a
 * candidate's fault or by its own watchdog; the daemon counts on nothing else. To add a request:
 * pipe.h, then the table of the role in compile.c or bench.c. */
#include "bench.h"
#include "channel.h"
#include "compile.h"
#include "isolation.h"
#include "libraries.h"
#include "pipe.h"
#include "probe.h"
#include "trace.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct arguments {
    const char *role, *device, *cuda_dir;
    char cuda_dir_room[PATH_MAX];
};

static int usage(void)
{
    fprintf(stderr,
        "usage: tune-worker compile|bench|devices|load|trace [--device ORDINAL_OR_UUID] [--cuda "
        "DIR]"
        "   (by tunerd)\n"
        "       tune-worker probe [--cuda DIR]   what there is to compile and measure with, as "
        "JSON\n");
    return 2;
}

static int read_arguments(int argc, char **argv, struct arguments *arguments)
{
    *arguments = (struct arguments){.role = argc > 1 ? argv[1] : ""};
    for (int i = 2; i < argc; i += 2) {
        if (i + 1 == argc)
            return -1;
        if (strcmp(argv[i], "--device") == 0)
            arguments->device = argv[i + 1];
        else if (strcmp(argv[i], "--cuda") == 0)
            arguments->cuda_dir = argv[i + 1];
        else
            return -1;
    }
    if (arguments->cuda_dir && realpath(arguments->cuda_dir, arguments->cuda_dir_room))
        arguments->cuda_dir = arguments->cuda_dir_room;
    return 0;
}

static bool is_served(const char *role)
{
    static const char *const roles[] = {"compile", "bench", "devices", "load", "trace"};
    for (size_t i = 0; i < sizeof(roles) / sizeof(*roles); i++)
        if (strcmp(role, roles[i]) == 0)
            return true;
    return false;
}

static int serve(const struct arguments *arguments, struct libraries *libraries)
{
    struct tune_error err = {.code = TUNE_OK};
    if (isolate(&err) < 0) {
        fprintf(stderr, "tune-worker: %s\n", err.text);
        return 2;
    }
    struct channel channel;
    channel_init(&channel, PIPE_DESCRIPTOR);
    int status;
    if (strcmp(arguments->role, "compile") == 0)
        status = compile_role(&channel, libraries);
    else if (strcmp(arguments->role, "devices") == 0)
        status = devices_role(&channel, libraries);
    else if (strcmp(arguments->role, "load") == 0)
        status = load_role(&channel, libraries, arguments->device ? arguments->device : "");
    else if (strcmp(arguments->role, "trace") == 0)
        status = trace_role(&channel, libraries);
    else
        status = bench_role(&channel, libraries, arguments->device);
    channel_finish(&channel);
    return status;
}

int main(int argc, char **argv)
{
    struct arguments arguments;
    struct libraries libraries;
    if (read_arguments(argc, argv, &arguments) < 0)
        return usage();
    libraries_init(&libraries, arguments.cuda_dir);
    int status;
    if (strcmp(arguments.role, "probe") == 0)
        status = probe_role(&libraries);
    else if (is_served(arguments.role))
        status = serve(&arguments, &libraries);
    else
        status = usage();
    libraries_finish(&libraries);
    return status;
}
