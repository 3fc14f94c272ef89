/* Writing a file of records. See record_file.h. */
#include "record_file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#define PIECE_BYTES ((size_t)64 << 10) /* of the file at a time */

struct record_writer {
    int fd;
    char *path;         /* where it goes, behind symbolic links */
    char *temporary;    /* the file that is being written, or NULL: `path` is written directly */
    ZSTD_CStream *zstd; /* NULL: plain */
    size_t used;
    char bytes[PIECE_BYTES];
};

void record_writer_abandon(struct record_writer *writer)
{
    if (writer == NULL)
        return;
    if (writer->fd > STDERR_FILENO)
        close(writer->fd);
    if (writer->temporary != NULL)
        unlink(writer->temporary);
    ZSTD_freeCStream(writer->zstd);
    free(writer->temporary);
    free(writer->path);
    free(writer);
}

/* --- opening ---------------------------------------------------------------------------------- */

static bool ends_in(const char *text, const char *end)
{
    size_t length = strlen(text), end_length = strlen(end);
    return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

/* What open(2) would give a new file. */
static mode_t default_mode(void)
{
    mode_t mask = umask(0);
    umask(mask);
    return 0666 & ~mask;
}

static int open_temporary(struct record_writer *writer, mode_t mode, struct tune_error *err)
{
    if (asprintf(&writer->temporary, "%s.XXXXXX", writer->path) < 0) {
        writer->temporary = NULL;
        return tune_fail(err, TUNE_ENOMEM, "no memory to write %s", writer->path);
    }
    writer->fd = mkostemp(writer->temporary, O_CLOEXEC);
    if (writer->fd < 0) {
        tune_fail_errno(err, TUNE_EIO, "cannot write %s", writer->path);
        free(writer->temporary);
        writer->temporary = NULL; /* there is none to be removed */
        return -1;
    }
    if (fchmod(writer->fd, mode) != 0)
        return tune_fail_errno(err, TUNE_EIO, "cannot write %s", writer->path);
    return 0;
}

/* A link stays a link: what it leads to is replaced. What is no regular file cannot be replaced. */
static int open_target(struct record_writer *writer, const char *path, struct tune_error *err)
{
    struct stat status;
    bool is_there = stat(path, &status) == 0;
    writer->path = is_there ? realpath(path, NULL) : strdup(path);
    if (writer->path == NULL)
        return tune_fail_errno(err, TUNE_EIO, "cannot write %s", path);
    if (!is_there || S_ISREG(status.st_mode))
        return open_temporary(writer, is_there ? status.st_mode & 0777 : default_mode(), err);
    writer->fd = open(path, O_WRONLY | O_CLOEXEC);
    return writer->fd >= 0 ? 0 : tune_fail_errno(err, TUNE_EIO, "cannot write %s", path);
}

static int start_compression(struct record_writer *writer, struct tune_error *err)
{
    writer->zstd = ZSTD_createCStream();
    if (writer->zstd == NULL ||
        ZSTD_isError(ZSTD_CCtx_setParameter(writer->zstd, ZSTD_c_checksumFlag, 1)))
        return tune_fail(err, TUNE_ENOMEM, "no memory to compress %s", writer->path);
    return 0;
}

struct record_writer *record_writer_open(const char *path, struct tune_error *err)
{
    struct record_writer *writer = calloc(1, sizeof *writer);
    if (writer == NULL) {
        tune_fail(err, TUNE_ENOMEM, "no memory to write %s", path);
        return NULL;
    }
    writer->fd = -1;
    int status = 0;
    if (strcmp(path, "-") == 0) {
        writer->fd = STDOUT_FILENO;
        writer->path = strdup("standard output");
        fflush(stdout);
    } else {
        status = open_target(writer, path, err);
    }
    if (status == 0 && ends_in(path, ".zst"))
        status = start_compression(writer, err);
    if (status == 0 && writer->path != NULL)
        return writer;
    record_writer_abandon(writer);
    return NULL;
}

/* --- writing ---------------------------------------------------------------------------------- */

static int write_out(struct record_writer *writer, struct tune_error *err)
{
    size_t done = 0;
    while (done < writer->used) {
        ssize_t count = write(writer->fd, writer->bytes + done, writer->used - done);
        if (count < 0 && errno != EINTR)
            return tune_fail_errno(err, TUNE_EIO, "cannot write %s", writer->path);
        done += count > 0 ? (size_t)count : 0;
    }
    writer->used = 0;
    return 0;
}

static int put_plain(
    struct record_writer *writer, const char *bytes, size_t count, struct tune_error *err)
{
    while (count > 0) {
        if (writer->used == PIECE_BYTES && write_out(writer, err))
            return -1;
        size_t room = PIECE_BYTES - writer->used, part = count < room ? count : room;
        memcpy(writer->bytes + writer->used, bytes, part);
        writer->used += part;
        bytes += part;
        count -= part;
    }
    return 0;
}

/* Until all is taken, and with ZSTD_e_end until the frame is complete. */
static int put_compressed(struct record_writer *writer, const char *bytes, size_t count,
    ZSTD_EndDirective directive, struct tune_error *err)
{
    ZSTD_inBuffer text = {bytes, count, 0};
    size_t left;
    do {
        if (writer->used == PIECE_BYTES && write_out(writer, err))
            return -1;
        ZSTD_outBuffer packed = {writer->bytes, PIECE_BYTES, writer->used};
        left = ZSTD_compressStream2(writer->zstd, &packed, &text, directive);
        if (ZSTD_isError(left))
            return tune_fail(
                err, TUNE_EIO, "cannot compress %s: %s", writer->path, ZSTD_getErrorName(left));
        writer->used = packed.pos;
    } while (text.pos < text.size || (directive == ZSTD_e_end && left > 0));
    return 0;
}

static int put(
    struct record_writer *writer, const char *bytes, size_t count, struct tune_error *err)
{
    if (writer->zstd != NULL)
        return put_compressed(writer, bytes, count, ZSTD_e_continue, err);
    return put_plain(writer, bytes, count, err);
}

int record_writer_add(
    struct record_writer *writer, const char *line, size_t length, struct tune_error *err)
{
    return put(writer, line, length, err) || put(writer, "\n", 1, err) ? -1 : 0;
}

/* --- completing ------------------------------------------------------------------------------- */

/* The new name is on the disk when its folder is. */
static int sync_folder(const char *path, struct tune_error *err)
{
    char *copy = strdup(path);
    if (copy == NULL)
        return tune_fail(err, TUNE_ENOMEM, "no memory to write %s", path);
    int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(copy);
    int status = fd >= 0 && (fsync(fd) == 0 || errno == EINVAL) ? 0 : -1;
    if (status != 0)
        tune_fail_errno(err, TUNE_EIO, "cannot bring the folder of %s to the disk", path);
    if (fd >= 0)
        close(fd);
    return status;
}

/* The text is on the disk before the name leads to it: a crash in between leaves the old file. */
static int replace(struct record_writer *writer, struct tune_error *err)
{
    int fd = writer->fd;
    if (fsync(fd) != 0)
        return tune_fail_errno(err, TUNE_EIO, "cannot bring %s to the disk", writer->path);
    writer->fd = -1;
    if (close(fd) != 0 || rename(writer->temporary, writer->path) != 0)
        return tune_fail_errno(err, TUNE_EIO, "cannot write %s", writer->path);
    free(writer->temporary);
    writer->temporary = NULL;
    return sync_folder(writer->path, err);
}

int record_writer_finish(struct record_writer *writer, struct tune_error *err)
{
    int status = 0;
    if (writer->zstd != NULL)
        status = put_compressed(writer, "", 0, ZSTD_e_end, err);
    if (status == 0)
        status = write_out(writer, err);
    if (status == 0 && writer->temporary != NULL)
        status = replace(writer, err);
    record_writer_abandon(writer);
    return status;
}
