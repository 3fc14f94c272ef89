/* Finds the vendor's libraries and headers at run time, so that the build needs no toolkit, a
 * machine without a GPU can serve, and a stand-in can take the driver's place.
 *
 * Order: the folders of TUNE_CUDA_DIR (separated by ':'), then the --cuda folder, then the dynamic
 * loader's own search, then known places: /usr/local/cuda*, the distribution's library folder, and
 * the layout of NVIDIA's Python wheels. A folder given may hold the library itself or have it under
 * lib64, lib or targets/<machine>/lib. Everything tried is kept for `doctor`. */
#ifndef TUNE_WORKER_LIBRARIES_H
#define TUNE_WORKER_LIBRARIES_H

#include "client/error.h"
#include "cuda_abi.h"

#include <jansson.h>
#include <stdbool.h>

#define LIBRARIES_TRIED_LIMIT 64

struct libraries {
    const char *cuda_dir; /* the --cuda folder or NULL; borrowed */
    bool is_given_alone;  /* nothing is looked for beyond that folder */
    json_t *tried;        /* ["name: reason", ...], at most LIBRARIES_TRIED_LIMIT */
};

void libraries_init(struct libraries *libraries, const char *cuda_dir);
void libraries_finish(struct libraries *libraries);

/* Each fills its table, and fails with TUNE_ENOCOMPILER or TUNE_ENODEVICE and a sentence that says
 * how to get what is missing. Libraries stay loaded until the process ends. `path` gets the real
 * path of the library found, PATH_MAX bytes. */
int libraries_nvrtc(
    struct libraries *libraries, struct nvrtc_api *api, char *path, struct tune_error *err);
int libraries_cuda(
    struct libraries *libraries, struct cuda_api *api, char *path, struct tune_error *err);
int libraries_nvml(
    struct libraries *libraries, struct nvml_api *api, char *path, struct tune_error *err);
/* What the stand-in for the driver has beyond the driver: TUNE_ENODEVICE with any other. */
int libraries_trace(struct libraries *libraries, struct trace_api *api, struct tune_error *err);

/* The toolkit's include folder (it holds cuda_fp16.h) that belongs to the library at `nvrtc_path`:
 * beside the library first, then known places. False when there is none. PATH_MAX bytes. */
bool libraries_include(struct libraries *libraries, const char *nvrtc_path, char *include);

#endif
