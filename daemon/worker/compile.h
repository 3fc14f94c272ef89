/* The compile role: NVRTC behind the pipe's "compile" request. */
#ifndef TUNE_WORKER_COMPILE_H
#define TUNE_WORKER_COMPILE_H

#include "channel.h"
#include "cuda_abi.h"
#include "libraries.h"

#include <limits.h>
#include <stdbool.h>

#define COMPILE_ARCH_LIMIT 64

struct compiler {
    struct nvrtc_api api;
    char path[PATH_MAX];
    char include[PATH_MAX], include_cccl[PATH_MAX + 8]; /* empty: none */
    int major, minor;
    int arch_count;
    int archs[COMPILE_ARCH_LIMIT];
    bool is_emulated;
    bool has_no_cache; /* takes --no-cache */
};

/* Finds and loads NVRTC. */
int compiler_open(struct compiler *compiler, struct libraries *libraries, struct tune_error *err);
/* The same, and proves with a small compile that it works. */
int compiler_init(struct compiler *compiler, struct libraries *libraries, struct tune_error *err);

/* The answer to one compile request: new reference, never NULL. */
json_t *compiler_answer(struct compiler *compiler, const json_t *request);

/* Says hello and answers requests until the daemon closes the pipe. Returns the exit status. */
int compile_role(struct channel *channel, struct libraries *libraries);

#endif
