#include "libraries.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__aarch64__)
#define MACHINE_TARGET "sbsa-linux"
#define MACHINE_TRIPLET "aarch64-linux-gnu"
#else
#define MACHINE_TARGET "x86_64-linux"
#define MACHINE_TRIPLET "x86_64-linux-gnu"
#endif

struct entry {
    const char *symbol;
    size_t offset; /* of the member in its table */
    bool is_required;
};

#define CUDA_ENTRY(need, result, name, symbol, params)                                             \
    {symbol, offsetof(struct cuda_api, name), need},
#define NVRTC_ENTRY(need, result, name, symbol, params)                                            \
    {symbol, offsetof(struct nvrtc_api, name), need},
#define NVML_ENTRY(need, result, name, symbol, params)                                             \
    {symbol, offsetof(struct nvml_api, name), need},
#define TRACE_ENTRY(need, result, name, symbol, params)                                            \
    {symbol, offsetof(struct trace_api, name), need},

static const struct entry cuda_entries[] = {CUDA_ENTRIES(CUDA_ENTRY){NULL, 0, false}};
static const struct entry nvrtc_entries[] = {NVRTC_ENTRIES(NVRTC_ENTRY){NULL, 0, false}};
static const struct entry nvml_entries[] = {NVML_ENTRIES(NVML_ENTRY){NULL, 0, false}};
static const struct entry trace_entries[] = {TRACE_ENTRIES(TRACE_ENTRY){NULL, 0, false}};

/* Newest first; 11.2 is the oldest that gives machine code and its list of architectures. */
static const char *const nvrtc_names[] = {
    "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so", NULL};
static const char *const cuda_names[] = {"libcuda.so.1", NULL};
static const char *const nvml_names[] = {"libnvidia-ml.so.1", NULL};

/* Under a folder that a person names. */
static const char *const subfolders[] = {
    "", "/lib64", "/lib", "/targets/" MACHINE_TARGET "/lib", NULL};

/* Globs, asked in this order after the loader's own search. */
static const char *const known_places[] = {"/usr/local/cuda/lib64", "/usr/local/cuda-*/lib64",
    "/usr/lib/" MACHINE_TRIPLET, "/usr/lib64", "/opt/cuda/lib64", NULL};
static const char *const wheel_places[] = {"/nvidia/cu13/lib", "/nvidia/cuda_nvrtc/lib", NULL};
static const char *const site_packages[] = {"/usr/local/lib/python3*/site-packages",
    "/usr/local/lib/python3*/dist-packages", "/usr/lib/python3*/site-packages",
    "/usr/lib/python3/dist-packages", NULL};

struct opening {
    struct libraries *libraries;
    const char *const *names;
    const struct entry *entries;
    void *table;
    char *path; /* PATH_MAX */
};

void libraries_init(struct libraries *libraries, const char *cuda_dir)
{
    *libraries = (struct libraries){.cuda_dir = cuda_dir, .tried = json_array()};
}

void libraries_finish(struct libraries *libraries)
{
    json_decref(libraries->tried);
    libraries->tried = NULL;
}

static void note(struct libraries *libraries, const char *name, const char *reason)
{
    if (json_array_size(libraries->tried) < LIBRARIES_TRIED_LIMIT)
        json_array_append_new(libraries->tried, json_sprintf("%s: %s", name, reason));
}

/* Fills the table; false when a required entry is missing. */
static bool fill_table(struct opening *opening, void *handle, const char *name)
{
    for (const struct entry *entry = opening->entries; entry->symbol; entry++) {
        void *address = dlsym(handle, entry->symbol);
        if (!address && entry->is_required) {
            char reason[160];
            snprintf(reason, sizeof(reason), "has no %s, so it is too old", entry->symbol);
            note(opening->libraries, name, reason);
            return false;
        }
        memcpy((char *)opening->table + entry->offset, &address, sizeof(address));
    }
    Dl_info info;
    void *first = dlsym(handle, opening->entries[0].symbol);
    if (!dladdr(first, &info) || !realpath(info.dli_fname, opening->path))
        snprintf(opening->path, PATH_MAX, "%s", name);
    return true;
}

static bool try_library(struct opening *opening, const char *name)
{
    void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        const char *reason = dlerror();
        note(opening->libraries, name, reason ? reason : "cannot be loaded");
        return false;
    }
    if (!fill_table(opening, handle, name)) {
        dlclose(handle);
        return false;
    }
    note(opening->libraries, opening->path, "loaded");
    return true;
}

/* A file that is there but does not load is worth a note, one that is absent is not. */
static bool try_folder(struct opening *opening, const char *folder)
{
    for (const char *const *name = opening->names; *name; name++) {
        char path[PATH_MAX];
        if (snprintf(path, sizeof(path), "%s/%s", folder, *name) >= (int)sizeof(path))
            continue;
        if (access(path, F_OK) == 0 && try_library(opening, path))
            return true;
    }
    return false;
}

static bool try_given(struct opening *opening, const char *folder, size_t length)
{
    for (const char *const *under = subfolders; *under; under++) {
        char path[PATH_MAX];
        if (length &&
            snprintf(path, sizeof(path), "%.*s%s", (int)length, folder, *under) <
                (int)sizeof(path) &&
            try_folder(opening, path))
            return true;
    }
    char name[PATH_MAX];
    snprintf(name, sizeof(name), "%.*s", (int)length, folder);
    note(opening->libraries, name, "does not hold the library");
    return false;
}

static bool try_glob(struct opening *opening, const char *pattern)
{
    glob_t found;
    bool is_found = false;
    if (glob(pattern, 0, NULL, &found) == 0) {
        for (size_t i = found.gl_pathc; i-- > 0 && !is_found;) /* the newest version first */
            is_found = try_folder(opening, found.gl_pathv[i]);
        globfree(&found);
    }
    return is_found;
}

static bool try_site_packages(struct opening *opening, const char *site)
{
    for (const char *const *place = wheel_places; *place; place++) {
        char pattern[PATH_MAX];
        if (snprintf(pattern, sizeof(pattern), "%s%s", site, *place) < (int)sizeof(pattern) &&
            try_glob(opening, pattern))
            return true;
    }
    return false;
}

/* Python environments named by the environment: a virtual one, conda's, the user's own. */
static bool try_environments(struct opening *opening)
{
    static const char *const variables[] = {"VIRTUAL_ENV", "CONDA_PREFIX", "HOME"};
    static const char *const under[] = {"", "", "/.local"};
    char path[PATH_MAX];
    for (size_t i = 0; i < sizeof(variables) / sizeof(*variables); i++) {
        const char *value = getenv(variables[i]);
        if (!value || value[0] != '/' || strpbrk(value, "*?["))
            continue;
        snprintf(path, sizeof(path), "%s%s/lib/python3*/site-packages", value, under[i]);
        if (try_site_packages(opening, path))
            return true;
        snprintf(path, sizeof(path), "%s/lib", value);
        if (i == 1 && try_folder(opening, path))
            return true;
    }
    return false;
}

static bool try_everything(struct opening *opening, bool with_toolkit_places)
{
    const char *dirs = getenv("TUNE_CUDA_DIR");
    while (dirs && *dirs) {
        size_t length = strcspn(dirs, ":");
        if (length && try_given(opening, dirs, length))
            return true;
        dirs += length + (dirs[length] == ':');
    }
    const char *cuda_dir = opening->libraries->cuda_dir;
    if (cuda_dir && try_given(opening, cuda_dir, strlen(cuda_dir)))
        return true;
    if (opening->libraries->is_given_alone)
        return false;
    for (const char *const *name = opening->names; *name; name++)
        if (try_library(opening, *name))
            return true;
    if (!with_toolkit_places)
        return false;
    for (const char *const *place = known_places; *place; place++)
        if (try_glob(opening, *place))
            return true;
    if (try_environments(opening))
        return true;
    for (const char *const *site = site_packages; *site; site++)
        if (try_site_packages(opening, *site))
            return true;
    return false;
}

int libraries_nvrtc(
    struct libraries *libraries, struct nvrtc_api *api, char *path, struct tune_error *err)
{
    struct opening opening = {libraries, nvrtc_names, nvrtc_entries, api, path};
    if (try_everything(&opening, true))
        return 0;
    return tune_fail(err, TUNE_ENOCOMPILER,
        "no NVRTC library found: install the Debian package nvidia-cuda-toolkit, NVIDIA's package "
        "cuda-nvrtc, or the Python wheel nvidia-cuda-nvrtc, or name its folder with --cuda DIR");
}

int libraries_cuda(
    struct libraries *libraries, struct cuda_api *api, char *path, struct tune_error *err)
{
    struct opening opening = {libraries, cuda_names, cuda_entries, api, path};
    if (try_everything(&opening, false))
        return 0;
    return tune_fail(err, TUNE_ENODEVICE,
        "no CUDA driver found (libcuda.so.1): install NVIDIA's driver (Debian: nvidia-driver, "
        "libcuda1), or pass the GPU into this container, or try --emulate");
}

int libraries_nvml(
    struct libraries *libraries, struct nvml_api *api, char *path, struct tune_error *err)
{
    struct opening opening = {libraries, nvml_names, nvml_entries, api, path};
    if (try_everything(&opening, false))
        return 0;
    return tune_fail(err, TUNE_ENODEVICE,
        "no NVML found (libnvidia-ml.so.1, Debian: libnvidia-ml1): clocks and temperature are not "
        "recorded");
}

int libraries_trace(struct libraries *libraries, struct trace_api *api, struct tune_error *err)
{
    char path[PATH_MAX];
    struct opening opening = {libraries, cuda_names, trace_entries, api, path};
    if (try_everything(&opening, false))
        return 0;
    return tune_fail(err, TUNE_ENODEVICE,
        "the emulator, which can watch kernels run, is not in %.100s: install all of tunerd from "
        "one package",
        libraries->cuda_dir ? libraries->cuda_dir : "a folder given with --cuda");
}

static bool has_headers(const char *folder, char *include)
{
    char file[PATH_MAX], real[PATH_MAX];
    if (snprintf(file, sizeof(file), "%s/cuda_fp16.h", folder) >= (int)sizeof(file) ||
        access(file, R_OK) != 0 || !realpath(folder, real))
        return false;
    memcpy(include, real, PATH_MAX);
    return true;
}

bool libraries_include(struct libraries *libraries, const char *nvrtc_path, char *include)
{
    static const char *const beside[] = {"../include", "../targets/" MACHINE_TARGET "/include",
        "../../cuda_runtime/include", "../../../include", NULL};
    static const char *const given[] = {"include", "targets/" MACHINE_TARGET "/include", NULL};
    static const char *const known[] = {"/usr/local/cuda/include", "/usr/include", NULL};
    char folder[PATH_MAX + 64];
    const char *slash = strrchr(nvrtc_path, '/');
    for (const char *const *place = beside; slash && *place; place++) {
        snprintf(folder, sizeof(folder), "%.*s/%s", (int)(slash - nvrtc_path), nvrtc_path, *place);
        if (has_headers(folder, include))
            return true;
    }
    for (const char *const *place = given; libraries->cuda_dir && *place; place++) {
        snprintf(folder, sizeof(folder), "%s/%s", libraries->cuda_dir, *place);
        if (has_headers(folder, include))
            return true;
    }
    for (const char *const *place = known; *place; place++)
        if (has_headers(*place, include))
            return true;
    return false;
}
