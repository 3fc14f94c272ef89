/* The stand-in libcuda: what every call does, the start, and entry points by name. The rest is in
 * context.c (devices, contexts), module.c (modules, functions), buffer.c (memory), stream.c
 * (streams, events), graph.c and launch.c. */
#include "driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct {
    bool is_initialized, is_forked;
    unsigned sticky; /* error of a kernel: every call on a context fails with it */
    unsigned fatal;  /* the scenario's: every call fails with it */
    char last_entry[256];
    char *last_defines;
} state;

/* --- what every call does --------------------------------------------------------------------- */

void set_sticky(unsigned error, bool in_every_call)
{
    unsigned *kept = in_every_call ? &state.fatal : &state.sticky;
    if (!*kept)
        *kept = error;
}

unsigned sticky_error(void)
{
    return state.fatal ? state.fatal : state.sticky;
}

void note_launch(const struct CUfunc_st *function)
{
    snprintf(state.last_entry, sizeof state.last_entry, "%s", function->kernel->image->name);
    free(state.last_defines);
    state.last_defines = strdup(function->module->loaded->image->defines);
}

/* device: the scenario's number of it, -1 for a call that concerns none. */
static unsigned begin_at(const char *name, enum need need, const struct CUfunc_st *function,
    int device, struct scenario_effect *effect)
{
    struct scenario_call call = {.call = name, .device = device};
    pthread_mutex_lock(&lock);
    if (function) {
        call.entry = function->kernel->image->name;
        call.defines = function->module->loaded->image->defines;
    } else if (state.last_defines) {
        call.entry = state.last_entry;
        call.defines = state.last_defines;
    }
    if (state.fatal)
        return state.fatal;
    if (need == NEED_CONTEXT && state.sticky)
        return state.sticky;
    if (need != NEED_NOTHING && !state.is_initialized)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (need == NEED_CONTEXT && current_device() < 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    *effect = scenario_apply(&call);
    if (effect->error && effect->is_sticky)
        set_sticky(effect->error, true);
    return effect->error;
}

unsigned begin_call(const char *name, enum need need, const struct CUfunc_st *function,
    struct scenario_effect *effect)
{
    return begin_at(name, need, function, current_device(), effect);
}

unsigned begin_on(const char *name, enum need need, int device)
{
    struct scenario_effect effect;
    return begin_at(name, need, NULL, device, &effect);
}

unsigned begin(const char *name, enum need need)
{
    struct scenario_effect effect;
    return begin_call(name, need, NULL, &effect);
}

unsigned end_call(unsigned result)
{
    pthread_mutex_unlock(&lock);
    return result;
}

/* --- start ------------------------------------------------------------------------------------ */

/* A real driver does not survive a fork either. */
static void on_fork(void)
{
    state.is_initialized = false;
    state.is_forked = true;
}

EXPORTED unsigned cuInit(unsigned flags);
unsigned cuInit(unsigned flags)
{
    unsigned result = begin("cuInit", NEED_NOTHING);
    if (!result && flags)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result && state.is_forked)
        result = CUDA_ERROR_NOT_INITIALIZED;
    if (!result && !state.is_initialized) {
        pthread_atfork(NULL, NULL, on_fork);
        state.is_initialized = devices_choose() > 0;
        result = state.is_initialized ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
    }
    return end_call(result);
}

EXPORTED unsigned cuDriverGetVersion(int *version);
unsigned cuDriverGetVersion(int *version)
{
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = scenario_driver_version();
    return CUDA_SUCCESS;
}

/* --- entry points by name --------------------------------------------------------------------- */

EXPORTED unsigned cuGetProcAddress_v2(
    const char *name, void **out, int version, unsigned long long flags, int *status);
unsigned cuGetProcAddress_v2(
    const char *name, void **out, int version, unsigned long long flags, int *status)
{
    static const char *const suffixes[] = {"_v4", "_v2", ""};
    Dl_info info;
    (void)flags;
    if (!name || !out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = NULL;
    void *self = dladdr(&lock, &info) ? dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD) : NULL;
    for (size_t i = version >= 13000 ? 0 : 1; self && !*out && i < 3; i++) {
        char symbol[128];
        snprintf(symbol, sizeof symbol, "%s%s", name, suffixes[i]);
        *out = dlsym(self, symbol);
    }
    if (self)
        dlclose(self);
    if (status)
        *status = *out ? 0 : 1; /* 1: symbol not found */
    return *out ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
