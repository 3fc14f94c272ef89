/* `get`: the best known launch for a shape. */
#include "tunectl.h"
#include "print.h"

#include "client/proto.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static json_t *get_request(const struct args *args, struct tune_error *err)
{
    static const char *const modes[] = {"cold", "warm", NULL};
    static const char *const policies[] = {"cached", "nearest", "tune", "wait", NULL};
    static const char *const names[] = {
        "--dtype", "--arch", "--gpu", "--mode", "--policy", "--session", NULL};
    const char *mode = args_value(args, "--mode");
    const char *policy = args_value(args, "--policy");
    json_t *shape;
    if ((mode && parse_choice("--mode", mode, modes, err)) ||
        (policy && parse_choice("--policy", policy, policies, err)) ||
        parse_dims(args_value(args, "--shape"), &shape, err))
        return NULL;
    json_t *request = json_pack("{s:s, s:o}", "kernel", args->operands[0], "shape", shape);
    args_pass(args, names, request);
    if (args_has(args, "--cubin"))
        json_object_set_new(request, "cubin", json_true());
    return request;
}

/* Writes all bytes to a new file beside `path`, then renames it: a reader never sees half a cubin.
 */
static int write_whole(const char *path, const void *bytes, size_t count, struct tune_error *err)
{
    char *partial;
    if (asprintf(&partial, "%s.partial", path) < 0)
        return tune_fail(err, TUNE_ENOMEM, "no memory for a file name");
    int fd = open(partial, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    int status = fd < 0 ? -1 : 0;
    for (size_t written = 0; status == 0 && written < count;) {
        ssize_t more = write(fd, (const char *)bytes + written, count - written);
        if (more < 0 && errno != EINTR)
            status = -1;
        written += more > 0 ? (size_t)more : 0;
    }
    if (fd >= 0 && close(fd))
        status = -1;
    if (status == 0)
        status = rename(partial, path);
    if (status) {
        tune_fail_errno(err, TUNE_EIO, "cannot write %s", path);
        unlink(partial);
    }
    free(partial);
    return status;
}

int save_cubin(const json_t *answer, const char *path, struct tune_error *err)
{
    const char *text = NULL;
    if (proto_string_opt(answer, "cubin", &text, err))
        return -1;
    if (text == NULL)
        return tune_fail(err, TUNE_ENOTFOUND,
            "the daemon has no compiled kernel for this answer; nothing is written to %s", path);
    size_t count;
    void *bytes = proto_base64_decode(text, &count, err);
    if (bytes == NULL)
        return -1;
    int status = write_whole(path, bytes, count, err);
    free(bytes);
    if (status == 0)
        fprintf(stderr, "tunectl: %zu bytes written to %s\n", count, path);
    return status;
}

/* "(8,16,1)" */
static void print_triple(FILE *stream, const json_t *triple)
{
    fprintf(stream, "(%lld,%lld,%lld)", (long long)json_integer_value(json_array_get(triple, 0)),
        (long long)json_integer_value(json_array_get(triple, 1)),
        (long long)json_integer_value(json_array_get(triple, 2)));
}

char *launch_text(const json_t *launch)
{
    char *text = NULL;
    size_t length, i;
    json_t *arg;
    FILE *stream = open_memstream(&text, &length);
    if (json_is_true(json_object_get(launch, "once")))
        fputs("once: ", stream);
    if (json_object_get(launch, "memset") != NULL) {
        fprintf(stream, "memset(%s, %.0f)", text_of(launch, "memset"), number_of(launch, "byte"));
        fclose(stream);
        return text;
    }
    if (json_object_get(launch, "constant") != NULL) {
        fprintf(stream, "constant %s = %s", text_of(launch, "constant"), text_of(launch, "buffer"));
        fclose(stream);
        return text;
    }
    fprintf(stream, "%s<<<", text_of(launch, "entry"));
    print_triple(stream, json_object_get(launch, "grid"));
    fputs(", ", stream);
    print_triple(stream, json_object_get(launch, "block"));
    fprintf(stream, ", %.0f>>>(", number_of(launch, "shared_bytes"));
    json_array_foreach (json_object_get(launch, "args"), i, arg) {
        const json_t *value = json_object_get(arg, "value");
        fputs(i ? ", " : "", stream);
        if (value != NULL)
            json_dumpf(value, stream, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
        else
            fputs(text_of(arg, json_object_get(arg, "name") ? "name" : "buffer"), stream);
    }
    fputs(")", stream);
    if (json_is_array(json_object_get(launch, "cluster"))) {
        fputs(" in clusters of ", stream);
        print_triple(stream, json_object_get(launch, "cluster"));
    }
    if (json_is_true(json_object_get(launch, "cooperative")))
        fputs(", cooperative", stream);
    if (number_of(launch, "repeat") > 1)
        fprintf(stream, " x %.0f", number_of(launch, "repeat"));
    fclose(stream);
    return text;
}

static void add_origin(struct table *table, const json_t *answer)
{
    const char *device = text_of(answer, "measured_on");
    table_add(table, "origin");
    bool is_foreign = strcmp(text_of(answer, "origin"), "default") != 0 &&
                      json_is_false(json_object_get(answer, "verified"));
    table_addf(table, "%s%s%s%s%s", text_of(answer, "origin"),
        json_is_true(json_object_get(answer, "shipped")) ? ", shipped" : "",
        device[0] ? ", measured on " : "", device,
        is_foreign ? " by another tuner: outputs were not compared here" : "");
    double loss = number_of(answer, "expected_loss");
    if (json_is_number(json_object_get(answer, "expected_loss"))) {
        table_add(table, "expected loss");
        table_addf(table, "%.1f%%", loss * 100);
    }
}

static void show_answer(const json_t *answer)
{
    char time[HUMAN_BYTES];
    char *shape = shape_text(answer, " ");
    char *config = pairs_text(json_object_get(answer, "config"), " ");
    struct table table;
    table_init(&table, "<<");
    table_add(&table, "kernel");
    table_addf(&table, "%s %s %s, %s", text_of(answer, "kernel"), text_of(answer, "dtype"), shape,
        text_of(answer, "arch"));
    table_add(&table, "config");
    table_add(&table, config);
    add_origin(&table, answer);
    table_add(&table, "time");
    table_add(&table, human_time(number_of(answer, "median_ns"), time));
    size_t i;
    json_t *launch;
    json_array_foreach (json_object_get(answer, "launches"), i, launch) {
        char *text = launch_text(launch);
        table_add(&table, i ? "" : "launch");
        table_add(&table, text);
        free(text);
    }
    table_print(&table, "", stdout);
    table_finish(&table);
    free(shape);
    free(config);
}

int run_get(struct tunectl *ctl, const struct args *args)
{
    struct tune_error err = {0};
    json_t *request = get_request(args, &err);
    if (request == NULL) {
        ctl_fail(ctl, &err);
        return CTL_USAGE;
    }
    const char *policy = args_value(args, "--policy");
    json_t *answer = NULL;
    int status = ctl_connect(ctl, true, &err);
    if (status)
        json_decref(request);
    else {
        if (policy != NULL && strcmp(policy, "wait") == 0)
            tune_set_timeout(ctl->client, TUNE_NO_LIMIT);
        status = tune_request(ctl->client, "get", request, &answer, &err);
    }
    const char *path = args_value(args, "--cubin");
    if (status == 0 && path != NULL)
        status = save_cubin(answer, path, &err);
    if (status) {
        json_decref(answer);
        return ctl_fail(ctl, &err);
    }
    if (ctl->is_json)
        print_json(answer);
    else
        show_answer(answer);
    json_decref(answer);
    return CTL_DONE;
}
