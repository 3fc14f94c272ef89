/* See inputs.h. */
#include "inputs.h"

#include "client/proto.h"
#include "harness.h"
#include "plugins/matrix_market.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int inputs_init(struct inputs *inputs, const json_t *request, struct verdict *verdict)
{
    struct tune_error err = {.code = TUNE_OK};
    *inputs = (struct inputs){.reader_uid = -1};
    if (proto_string_opt(request, "input", &inputs->named, &err) < 0 ||
        proto_int_opt(request, "input_reader", 0, INT64_MAX, &inputs->reader_uid, &err) < 0)
        return verdict_set(verdict, "invalid", "%s", err.text);
    return 0;
}

void inputs_finish(struct inputs *inputs)
{
    sparse_finish(&inputs->matrix);
}

/* --- the matrix ------------------------------------------------------------------------------- */

/* A daemon of the system must not show a user what another keeps to himself: not the file, nor what
 * lies in a folder that he cannot enter, nor that it is there. */
static bool has_bits(const struct stat *status, int64_t uid, mode_t owner, mode_t others)
{
    return (status->st_mode & others) != 0 ||
           ((int64_t)status->st_uid == uid && (status->st_mode & owner) != 0);
}

/* The folders of what was found, and not those of a path that may lead elsewhere by now. */
static bool can_enter(const char *link, int64_t uid)
{
    char folder[PATH_MAX];
    struct stat status;
    ssize_t length = readlink(link, folder, sizeof folder - 1);
    if (length < 1 || length == sizeof folder - 1 || folder[0] != '/')
        return false;
    folder[length] = '\0';
    for (char *end = strrchr(folder, '/'); end != folder; end = strrchr(folder, '/')) {
        *end = '\0';
        if (stat(folder, &status) != 0 || !has_bits(&status, uid, S_IXUSR, S_IXOTH))
            return false;
    }
    return stat("/", &status) == 0 && has_bits(&status, uid, S_IXUSR, S_IXOTH);
}

static int check_found(
    const struct inputs *inputs, int found, const char *link, struct tune_error *err)
{
    int64_t uid = inputs->reader_uid;
    struct stat status = {.st_mode = 0};
    bool is_there = found >= 0 && fstat(found, &status) == 0;
    if (!is_there && uid <= 0)
        return tune_fail_errno(err, TUNE_EIO, "cannot open %.120s", inputs->named);
    if (uid > 0 && !(is_there && can_enter(link, uid) && has_bits(&status, uid, S_IRUSR, S_IROTH)))
        return tune_fail(err, TUNE_EPERM,
            "%.120s: there is no such file, or the one who asks may not read it: he must be "
            "allowed to as its owner or as everybody",
            inputs->named);
    return S_ISREG(status.st_mode)
               ? 0
               : tune_fail(err, TUNE_EINVAL, "%.120s is no file", inputs->named);
}

/* NULL: an error. What is found is looked at before it is opened: opening is enough to start some
 * devices. */
static FILE *open_file(const struct inputs *inputs, struct tune_error *err)
{
    FILE *stream = NULL;
    char link[40] = "";
    int found = open(inputs->named, O_PATH | O_CLOEXEC);
    if (found >= 0)
        snprintf(link, sizeof link, "/proc/self/fd/%d", found);
    if (check_found(inputs, found, link, err) == 0) {
        stream = fopen(link, "re");
        if (stream == NULL)
            tune_fail_errno(err, TUNE_EIO, "cannot open %.120s", inputs->named);
    }
    if (found >= 0)
        close(found);
    return stream;
}

static int make_named(struct inputs *inputs, struct tune_error *err)
{
    if (!sparse_is_file(inputs->named))
        return sparse_make(inputs->named, &inputs->matrix, err);
    FILE *stream = open_file(inputs, err);
    if (stream == NULL)
        return -1;
    int result = matrix_market_read_stream(stream, inputs->named, &inputs->matrix, err);
    fclose(stream);
    return result;
}

static int check_named(
    const struct inputs *inputs, const struct sparse_description *asked, struct tune_error *err)
{
    struct tune_error cause = {.code = TUNE_OK};
    if (sparse_compare(asked, &inputs->description, &cause) == 0) {
        if (asked->dims[SPARSE_COLUMNS] > 0 || sparse_is_symmetric(&inputs->matrix))
            return 0;
        tune_fail(&cause, TUNE_EINVAL, "it has edges one way only");
    }
    return tune_fail(
        err, TUNE_EINVAL, "the input %.100s is not of this shape: %s", inputs->named, cause.text);
}

static int make_matrix(struct inputs *inputs, const struct sparse_description *asked, uint64_t seed,
    struct verdict *verdict)
{
    struct tune_error err = {.code = TUNE_OK};
    if (inputs->matrix.rows > 0)
        return 0;
    if (inputs->named == NULL ? sparse_from_description(asked, seed, &inputs->matrix, &err)
                              : make_named(inputs, &err) ||
                                    sparse_describe(&inputs->matrix, &inputs->description, &err) ||
                                    check_named(inputs, asked, &err)) {
        sparse_finish(&inputs->matrix);
        return verdict_set(verdict, "invalid", "%s", err.text);
    }
    return 0;
}

/* --- buffers ---------------------------------------------------------------------------------- */

/* Host data of a buffer; *made is what is to be freed. */
static int take_offsets(const struct sparse_matrix *matrix, const struct buffer *buffer,
    const void **data, void **made, struct verdict *verdict)
{
    *data = matrix->offsets;
    if (harness_dtype_bytes(buffer->dtype) == 8)
        return 0;
    if (matrix->nonzeros > INT32_MAX)
        return verdict_set(verdict, "invalid", "%" PRId64 " entries are too many for the i32 of %s",
            matrix->nonzeros, buffer->name);
    int32_t *narrow = malloc(buffer->bytes);
    if (narrow == NULL)
        return verdict_set(verdict, "invalid", "no memory to fill %s on the host", buffer->name);
    for (int64_t row = 0; row <= matrix->rows; row++)
        narrow[row] = (int32_t)matrix->offsets[row];
    *data = *made = narrow;
    return 0;
}

static int take_sorted(const struct buffer *buffer, uint64_t seed, const void **data, void **made,
    struct verdict *verdict)
{
    struct tune_error err = {.code = TUNE_OK};
    *data = *made = malloc(buffer->bytes);
    if (*made == NULL)
        return verdict_set(verdict, "invalid", "no memory to fill %s on the host", buffer->name);
    return sparse_sorted(
               harness_dtype_word(buffer->dtype), (int64_t)buffer->count, seed, *made, &err)
               ? verdict_set(verdict, "invalid", "%s: %s", buffer->name, err.text)
               : 0;
}

/* The plan's counts are those of the shape, and so is the matrix; what comes over the pipe is
 * looked at all the same. */
static int check_count(
    const struct sparse_matrix *matrix, const struct buffer *buffer, struct verdict *verdict)
{
    uint64_t wanted = buffer->fill == INPUT_CSR_OFFSETS   ? (uint64_t)matrix->rows + 1
                      : buffer->fill == INPUT_CSR_COLUMNS ? (uint64_t)matrix->nonzeros
                                                          : 1;
    int64_t width = harness_dtype_bytes(buffer->dtype);
    bool is_wide_enough = buffer->fill == INPUT_CSR_COLUMNS       ? width == 4
                          : buffer->fill == INPUT_CSR_LONGEST_ROW ? width == 8
                                                                  : width == 4 || width == 8;
    return buffer->count == wanted && is_wide_enough
               ? 0
               : verdict_set(verdict, "invalid", "buffer %s does not fit its matrix", buffer->name);
}

static int take(struct inputs *inputs, const struct buffer *buffer, uint64_t seed, uint64_t stream,
    const void **data, void **made, int64_t *longest, struct verdict *verdict)
{
    if (buffer->fill == INPUT_SORTED)
        return take_sorted(buffer, seed + stream * 0x9e3779b97f4a7c15ull, data, made, verdict);
    if (make_matrix(inputs, &buffer->matrix, seed, verdict) < 0 ||
        check_count(&inputs->matrix, buffer, verdict) < 0)
        return -1;
    if (buffer->fill == INPUT_CSR_OFFSETS)
        return take_offsets(&inputs->matrix, buffer, data, made, verdict);
    *longest = sparse_longest_row(&inputs->matrix);
    *data = buffer->fill == INPUT_CSR_COLUMNS ? (const void *)inputs->matrix.columns_of : longest;
    return 0;
}

bool inputs_fill(struct inputs *inputs, struct gpu *gpu, const struct buffer *buffer, uint64_t seed,
    uint64_t stream, struct verdict *verdict)
{
    const void *data = NULL;
    void *made = NULL;
    int64_t longest;
    if (buffer->fill < INPUT_SORTED || buffer->bytes == 0)
        return false;
    if (take(inputs, buffer, seed, stream, &data, &made, &longest, verdict) == 0) {
        unsigned result = gpu_upload(gpu, buffer->pointer, data, buffer->bytes);
        if (result != ABI_SUCCESS)
            verdict_cuda(verdict, result, "copying %s to the device", buffer->name);
    }
    free(made);
    return verdict->outcome == NULL;
}
