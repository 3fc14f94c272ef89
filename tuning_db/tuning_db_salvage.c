/* Getting samples out of a database that opening refuses. The pages may be anything, but each value
 * carries its own bounds and checksum, and a sample its own key as text: so the file is searched
 * for values and its structure is not looked at. */
#include "tuning_db.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WINDOW_BYTES ((size_t)16 << 20)
#define RECORD_LIMIT_BYTES ((size_t)4 << 20) /* windows overlap by this */

struct salvage {
    int fd;
    const char *path;
    char *window;
    int (*on_sample)(const struct sample *sample, void *context);
    void *context;
};

/* Fills the window from `offset`; *count gets less than its size at the end of the file only. */
static int read_window(
    const struct salvage *salvage, off_t offset, size_t *count, struct tune_error *err)
{
    *count = 0;
    while (*count < WINDOW_BYTES) {
        ssize_t got = pread(
            salvage->fd, salvage->window + *count, WINDOW_BYTES - *count, offset + (off_t)*count);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return tune_fail_errno(err, TUNE_EIO, "cannot read %s", salvage->path);
        if (got == 0)
            break;
        *count += (size_t)got;
    }
    return 0;
}

/* Hands out the samples that start in the first `starts` of `count` bytes. Nonzero: stop. */
static int search_window(const struct salvage *salvage, size_t starts, size_t count)
{
    const char *at = salvage->window, *end = salvage->window + count;
    while ((at = memmem(at, (size_t)(end - at), RECORD_MAGIC, 4)) != NULL &&
           at < salvage->window + starts) {
        struct sample sample;
        size_t length = record_length(at, (size_t)(end - at));
        int stop = 0;
        if (length > 0 && sample_decode(at, length, &sample, NULL) == 0) {
            stop = salvage->on_sample(&sample, salvage->context);
            sample_finish(&sample);
        }
        if (stop != 0)
            return stop;
        at++;
    }
    return 0;
}

static int search_file(const struct salvage *salvage, struct tune_error *err)
{
    size_t count;
    off_t offset = 0;
    do {
        if (read_window(salvage, offset, &count, err) != 0)
            return -1;
        bool is_last = count < WINDOW_BYTES;
        size_t starts = is_last ? count : count - RECORD_LIMIT_BYTES;
        if (search_window(salvage, starts, count) != 0)
            break;
        offset += (off_t)starts;
    } while (count == WINDOW_BYTES);
    return 0;
}

int tuning_db_salvage(const char *dir, int (*on_sample)(const struct sample *sample, void *context),
    void *context, struct tune_error *err)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/data.mdb", dir);
    struct salvage salvage = {.path = path, .on_sample = on_sample, .context = context};
    salvage.fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (salvage.fd < 0)
        return tune_fail_errno(err, TUNE_EIO, "cannot open %s", path);
    salvage.window = malloc(WINDOW_BYTES);
    int status = salvage.window == NULL
                     ? tune_fail(err, TUNE_ENOMEM, "no memory to search %s", path)
                     : search_file(&salvage, err);
    free(salvage.window);
    close(salvage.fd);
    return status;
}
