/* What is answered without a daemon: the default of the installed manifest, planned for the asked
 * shape. See handle.h.
 *
 * Manifests are looked for as the daemon of this user does (folders.h); the first of a name counts.
 * Only the manifest is read: no source, no hooks. */
#include "handle.h"
#include "answer.h"
#include "folders.h"

#include "plugins/manifest.h"
#include "plugins/plan.h"
#include "plugins/space.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define CAUTIOUS_ARCH "sm_75" /* the least of those that NVRTC still knows */

struct known_manifest {
    struct known_manifest *next;
    struct manifest *manifest;
};

/* --- finding ---------------------------------------------------------------------------------- */

/* Opens FOLDER/NAME/NAME.json of the first folder that has it: a descriptor, or -1. */
static int open_manifest(const char *name, char path[PATH_MAX])
{
    char folder[PATH_MAX];
    int fd = -1;
    for (size_t i = 0; fd < 0 && folders_of_plugins(i, folder); i++) {
        int count = snprintf(path, PATH_MAX, "%s/%s/%s.json", folder, name, name);
        if (count > 0 && count < PATH_MAX)
            fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    }
    return fd;
}

/* --- reading ---------------------------------------------------------------------------------- */

/* The whole file, malloc'ed. */
static char *read_text(int fd, const char *path, size_t *length, struct tune_error *err)
{
    struct stat status;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
        tune_fail(err, TUNE_EINVAL, "%s is not a regular file", path);
        return NULL;
    }
    if ((size_t)status.st_size > MANIFEST_MAX_BYTES) {
        tune_fail(err, TUNE_ELIMIT, "%s has more than %zu bytes", path, MANIFEST_MAX_BYTES);
        return NULL;
    }
    char *text = malloc((size_t)status.st_size + 1);
    ssize_t got = 1;
    for (*length = 0; text != NULL && got > 0 && *length < (size_t)status.st_size;
         *length += (size_t)(got > 0 ? got : 0))
        got = read(fd, text + *length, (size_t)status.st_size - *length);
    if (text == NULL || got < 0)
        tune_fail_errno(err, TUNE_EIO, "cannot read %s", path);
    else
        return text;
    free(text);
    return NULL;
}

static struct manifest *read_manifest(const char *name, struct tune_error *err)
{
    char path[PATH_MAX];
    size_t length;
    int fd = open_manifest(name, path);
    if (fd < 0) {
        tune_fail(err, TUNE_ENOTFOUND,
            "no daemon answers, and no kernel \"%s\" is installed here: install it, or name its "
            "folder in TUNE_PLUGIN_PATH",
            name);
        return NULL;
    }
    char *text = read_text(fd, path, &length, err);
    close(fd);
    struct manifest *manifest = text ? manifest_create(text, length, path, err) : NULL;
    free(text);
    return manifest;
}

/* Borrowed until tune_close; the lock is held. */
static const struct manifest *find_manifest(
    struct tune *tune, const char *name, struct tune_error *err)
{
    for (struct known_manifest *known = tune->manifests; known != NULL; known = known->next)
        if (strcmp(known->manifest->name, name) == 0)
            return known->manifest;
    if (!folders_is_kernel(name)) {
        tune_fail(err, TUNE_ENOTFOUND, "\"%.64s\" cannot be the name of a kernel", name);
        return NULL;
    }
    struct manifest *manifest = read_manifest(name, err);
    struct known_manifest *known = manifest ? malloc(sizeof *known) : NULL;
    if (known == NULL) {
        manifest_destroy(manifest);
        tune_fail(err, TUNE_ENOMEM, "no memory for a manifest");
        return NULL;
    }
    *known = (struct known_manifest){tune->manifests, manifest};
    tune->manifests = known;
    return manifest;
}

void handle_offline_finish(struct tune *tune)
{
    struct known_manifest *next;
    for (struct known_manifest *known = tune->manifests; known != NULL; known = next) {
        next = known->next;
        manifest_destroy(known->manifest);
        free(known);
    }
}

/* --- planning --------------------------------------------------------------------------------- */

/* What is known of the device without a driver: the limits of its arch. Of a device named by model
 * or not at all, nothing: then those of the smallest, so that what is planned fits any. */
static int guess_device(
    const struct tune_query *query, struct device_info *device, struct tune_error *err)
{
    bool is_emulated = query->arch != NULL && strcmp(query->arch, "cpu") == 0;
    bool is_known = query->arch != NULL && query->arch[0] != '\0' && !is_emulated;
    if (device_generic(is_known ? query->arch : CAUTIOUS_ARCH, device, err))
        return -1;
    if (is_emulated) {
        strcpy(device->arch, "cpu");
        device->attributes[DEVICE_sm] = 0;
    }
    return 0;
}

struct offline {
    const struct manifest *manifest;
    struct device_info device;
    int64_t dims[MANIFEST_MAX_DIMS];
    const char *dtype, *mode;
};

static int read_query(
    struct offline *offline, const struct tune_query *query, struct tune_error *err)
{
    const struct manifest *manifest = offline->manifest;
    bool has_dtype = query->dtype != NULL && query->dtype[0] != '\0';
    offline->dtype = has_dtype ? query->dtype : manifest->dtypes[0];
    offline->mode = query->mode != NULL && query->mode[0] != '\0' ? query->mode : "cold";
    if (!manifest_has_dtype(manifest, offline->dtype))
        return tune_fail(
            err, TUNE_EINVAL, "%s has no dtype \"%.20s\"", manifest->name, offline->dtype);
    if (strcmp(offline->mode, "cold") != 0 && strcmp(offline->mode, "warm") != 0)
        return tune_fail(
            err, TUNE_EINVAL, "mode is \"%.20s\"; it must be cold or warm", offline->mode);
    json_t *shape = handle_shape_json(query, err);
    int status = shape ? manifest_shape_from_json(manifest, shape, offline->dims, err) : -1;
    json_decref(shape);
    if (status)
        return -1;
    return guess_device(query, &offline->device, err);
}

/* The answer with this configuration, new; NULL where it is not valid. */
static json_t *answer_json(const struct offline *offline, const int64_t *values)
{
    int64_t slots[MANIFEST_MAX_SLOTS];
    const struct manifest *manifest = offline->manifest;
    const struct device_info *device = &offline->device;
    manifest_bind(manifest, device, offline->dims, offline->dtype, slots);
    if (space_check(manifest, values, slots, NULL))
        return NULL;
    json_t *launches = plan_launches(manifest, device, offline->dims, offline->dtype, values, NULL);
    json_t *buffers = plan_buffers(manifest, device, offline->dims, offline->dtype, values, NULL);
    if (launches == NULL || buffers == NULL) {
        json_decref(launches);
        json_decref(buffers);
        return NULL;
    }
    return json_pack("{s:s, s:s, s:s, s:o, s:s, s:s, s:n, s:n, s:b, s:o, s:o, s:o, s:n, s:i, s:b, "
                     "s:I, s:n, s:n, s:n}",
        "kernel", manifest->name, "dtype", offline->dtype, "arch", device->arch, "shape",
        manifest_shape_to_json(manifest, offline->dims), "mode", offline->mode, "origin", "default",
        "measured_on", "measured_shape", "same_gpu", false, "config",
        manifest_config_to_json(manifest, values), "launches", launches, "buffers", buffers,
        "median_ns", "generation", 0, "verified", false, "sm",
        (json_int_t)device->attributes[DEVICE_sm], "nvrtc", "expected_loss", "min_driver");
}

static int answer_default(
    const struct offline *offline, struct tune_answer *answer, struct tune_error *err)
{
    const struct manifest *manifest = offline->manifest;
    json_t *json = NULL;
    for (size_t i = 0; i < manifest->default_count && json == NULL; i++)
        json = answer_json(offline, manifest->defaults[i]);
    if (json == NULL)
        return tune_fail(err, TUNE_ENOTFOUND,
            "no daemon answers, and no default of %s is valid for this shape on %s", manifest->name,
            offline->device.arch);
    int status = answer_from_json(json, answer, err);
    json_decref(json);
    answer->is_offline = true;
    return status;
}

int handle_offline_get(struct tune *tune, const struct tune_query *query,
    struct tune_answer *answer, struct tune_error *err)
{
    struct offline offline = {0};
    pthread_mutex_lock(&tune->offline_lock);
    offline.manifest = find_manifest(tune, query->kernel, err);
    pthread_mutex_unlock(&tune->offline_lock);
    if (offline.manifest == NULL || read_query(&offline, query, err))
        return -1;
    return answer_default(&offline, answer, err);
}
