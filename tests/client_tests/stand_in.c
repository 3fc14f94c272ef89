#include "stand_in.h"

#include "client/answer.h"
#include "client/proto.h"
#include "client/snapshot.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* --- answers ---------------------------------------------------------------------------------- */

static json_t *answer_json(int64_t n, int64_t tag)
{
    return json_pack(
        "{s:s, s:s, s:s, s:{s:I}, s:s, s:s, s:s, s:n, s:b, s:{s:I}, "
        "s:[{s:s, s:[I,i,i], s:[i,i,i], s:i, s:{}, s:[{s:s,s:s},{s:s,s:s,s:I}], s:n, s:b, s:i}], "
        "s:[{s:s,s:s,s:i,s:s,s:b}], s:f, s:I, s:b, s:i, s:n, s:n, s:n}",
        "kernel", "tiny", "dtype", "f32", "arch", "sm_90", "shape", "N", (json_int_t)n, "mode",
        "cold", "origin", "exact", "measured_on", "NVIDIA H200", "measured_shape", "same_gpu", true,
        "config", "TAG", (json_int_t)tag, "launches", "entry", "tiny", "grid", (json_int_t)n, 1, 1,
        "block", 32, 1, 1, "shared_bytes", 0, "defines", "args", "kind", "buffer", "name", "x",
        "kind", "scalar", "type", "i64", "value", (json_int_t)n, "cluster", "cooperative", false,
        "repeat", 1, "buffers", "name", "x", "dtype", "f32", "bytes", 64, "role", "inout",
        "zero_before", false, "median_ns", 1000.0, "generation", (json_int_t)tag, "verified", true,
        "sm", 90, "nvrtc", "expected_loss", "min_driver");
}

void make_answer(int64_t n, int64_t tag, struct tune_answer *answer)
{
    struct tune_error err = {0};
    json_t *json = answer_json(n, tag);
    assert_non_null(json);
    if (answer_from_json(json, answer, &err))
        fail_msg("%s", err.text);
    json_decref(json);
}

/* --- requests --------------------------------------------------------------------------------- */

static void reply(int fd, json_t *message)
{
    size_t length;
    char *line = proto_line(message, &length);
    json_decref(message);
    assert_int_equal(send(fd, line, length, MSG_NOSIGNAL), length);
    free(line);
}

static json_t *got(struct stand_in *daemon, const json_t *params)
{
    json_t *shape = json_object_get(params, "shape");
    const json_t *n = json_object_iter_value(json_object_iter(shape));
    json_t *json = answer_json(json_integer_value(n), daemon->value);
    if (json_is_true(json_object_get(params, "cubin")))
        json_object_set_new(json, "cubin", json_string("Y29kZQ==")); /* "code" */
    for (int i = 0; daemon->is_huge && i < 40; i++) {
        char name[300];
        snprintf(name, sizeof name, "P%0250d", i);
        json_object_set_new(json_object_get(json, "config"), name, json_integer(i));
    }
    return json;
}

/* False: the connection ends. */
static bool on_line(struct stand_in *daemon, int fd, const char *line)
{
    json_t *message = proto_parse(line, strlen(line), NULL);
    json_t *id = json_incref(json_object_get(message, "id"));
    bool is_get = strcmp(json_string_value(json_object_get(message, "method")), "get") == 0;
    bool lives = true;
    struct tune_error refusal = {0};
    if (is_get) {
        daemon->gets++;
        snprintf(daemon->last, sizeof daemon->last, "%s", line);
        if (daemon->refusal != NULL)
            tune_fail(&refusal, tune_code_from_word(daemon->refusal), "refused");
    }
    if (is_get && daemon->drops > 0) {
        daemon->drops--;
        lives = false;
        json_decref(id);
    } else if (daemon->is_mute) {
        json_decref(id);
    } else if (refusal.code != TUNE_OK) {
        reply(fd, proto_error_new(id, &refusal));
    } else if (is_get) {
        reply(fd, proto_result_new(id, got(daemon, json_object_get(message, "params"))));
    } else {
        reply(fd, proto_result_new(id, json_pack("{s:i}", "proto", TUNE_PROTO_VERSION)));
    }
    json_decref(message);
    return lives;
}

/* --- connections ------------------------------------------------------------------------------ */

static void hang_up(struct stand_in *daemon, int index)
{
    close(daemon->connections[index]);
    free(daemon->lines[index]);
    daemon->connections[index] = -1;
    daemon->lines[index] = NULL;
}

static void serve_one(struct stand_in *daemon, int index)
{
    char *line = daemon->lines[index];
    ssize_t count =
        read(daemon->connections[index], line + daemon->used[index], 4095 - daemon->used[index]);
    bool lives = count > 0;
    daemon->used[index] += lives ? (size_t)count : 0;
    line[daemon->used[index]] = '\0';
    if (lives && strchr(line, '\n') != NULL) {
        *strchr(line, '\n') = '\0'; /* a client sends one request at a time */
        lives = on_line(daemon, daemon->connections[index], line);
        daemon->used[index] = 0;
    }
    if (!lives)
        hang_up(daemon, index);
}

static void take_in(struct stand_in *daemon)
{
    int fd = accept(daemon->listener, NULL, NULL);
    for (int i = 0; i < STAND_IN_CONNECTIONS; i++)
        if (daemon->connections[i] < 0) {
            daemon->connections[i] = fd;
            daemon->lines[i] = malloc(4096);
            daemon->used[i] = 0;
            daemon->accepted++;
            return;
        }
    close(fd);
}

static void *serve(void *context)
{
    struct stand_in *daemon = context;
    struct pollfd fds[STAND_IN_CONNECTIONS + 2];
    for (;;) {
        for (int i = 0; i < STAND_IN_CONNECTIONS; i++)
            fds[i] = (struct pollfd){.fd = daemon->connections[i], .events = POLLIN};
        fds[STAND_IN_CONNECTIONS] = (struct pollfd){.fd = daemon->listener, .events = POLLIN};
        fds[STAND_IN_CONNECTIONS + 1] = (struct pollfd){.fd = daemon->wake[0], .events = POLLIN};
        poll(fds, STAND_IN_CONNECTIONS + 2, -1);
        if (fds[STAND_IN_CONNECTIONS + 1].revents != 0)
            return NULL;
        for (int i = 0; i < STAND_IN_CONNECTIONS; i++)
            if (fds[i].fd >= 0 && fds[i].revents != 0)
                serve_one(daemon, i);
        if (fds[STAND_IN_CONNECTIONS].revents != 0)
            take_in(daemon);
    }
}

/* --- life ------------------------------------------------------------------------------------- */

void stand_in_init(struct stand_in *daemon)
{
    memset(daemon, 0, sizeof *daemon);
    daemon->listener = -1;
    snprintf(daemon->folder, sizeof daemon->folder, "/tmp/test_tune_XXXXXX");
    assert_non_null(mkdtemp(daemon->folder));
    snprintf(daemon->path, sizeof daemon->path, "%s/s", daemon->folder);
    snprintf(daemon->served, sizeof daemon->served, "%s.served", daemon->path);
    for (int i = 0; i < STAND_IN_CONNECTIONS; i++)
        daemon->connections[i] = -1;
}

void stand_in_start(struct stand_in *daemon)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, daemon->path, strlen(daemon->path) + 1);
    daemon->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(daemon->listener, (const struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(daemon->listener, STAND_IN_CONNECTIONS), 0);
    assert_int_equal(pipe(daemon->wake), 0);
    assert_int_equal(pthread_create(&daemon->thread, NULL, serve, daemon), 0);
}

void stand_in_stop(struct stand_in *daemon)
{
    if (daemon->listener < 0)
        return;
    unlink(daemon->path);
    assert_int_equal(write(daemon->wake[1], "x", 1), 1);
    pthread_join(daemon->thread, NULL);
    for (int i = 0; i < STAND_IN_CONNECTIONS; i++)
        if (daemon->connections[i] >= 0)
            hang_up(daemon, i);
    close(daemon->wake[0]);
    close(daemon->wake[1]);
    close(daemon->listener);
    daemon->listener = -1;
}

void stand_in_tell(struct stand_in *daemon, int64_t n)
{
    assert_true(daemon->accepted > 0); /* which tells of the connections too */
    for (int i = 0; i < STAND_IN_CONNECTIONS; i++)
        if (daemon->connections[i] >= 0)
            reply(daemon->connections[i],
                json_pack("{s:s, s:s, s:{s:s, s:s, s:[{s:s, s:s, s:s, s:{s:I}, s:{}}]}}", "jsonrpc",
                    "2.0", "method", "done", "params", "job", "j-1", "state", "done", "results",
                    "kernel", "tiny", "dtype", "f32", "mode", "cold", "shape", "N", (json_int_t)n,
                    "best"));
}

void stand_in_finish(struct stand_in *daemon)
{
    char command[128];
    stand_in_stop(daemon);
    snprintf(command, sizeof command, "rm -rf %s", daemon->folder);
    assert_int_equal(system(command), 0);
}

/* --- publishing ------------------------------------------------------------------------------- */

static uint64_t next_number(void)
{
    static _Atomic uint64_t number;
    return ++number;
}

static void write_file(
    struct stand_in *daemon, const char *kind, int64_t count, int64_t tag, char name[32])
{
    struct tune_error err = {0};
    struct snapshot_writer *writer;
    if (snapshot_make_folder(daemon->served, false, &err) ||
        snapshot_writer_create(daemon->served, (size_t)count, &writer, &err))
        fail_msg("%s", err.text);
    for (int64_t n = 1; n <= count; n++) {
        char key[SNAPSHOT_KEY_BYTES];
        struct tune_answer answer;
        struct tune_dim dim = {"N", n};
        struct tune_query query = {.kernel = "tiny", .dims = &dim, .dim_count = 1};
        make_answer(n, tag, &answer);
        assert_int_equal(
            snapshot_writer_add(writer, key, snapshot_key(&query, key), &answer, &err), 0);
    }
    assert_int_equal(snapshot_writer_finish(writer, kind, next_number(), name, &err), 0);
}

void publish_base(struct stand_in *daemon, int64_t count, int64_t tag)
{
    struct snapshot_page page = {.generation = (uint64_t)tag};
    write_file(daemon, "base", count, tag, page.base);
    assert_int_equal(snapshot_publish(daemon->served, &page, NULL), 0);
}

void publish_delta(struct stand_in *daemon, int64_t count, int64_t tag)
{
    struct snapshot_page page;
    assert_int_equal(snapshot_read_page(daemon->served, &page, NULL), 0);
    page.generation = (uint64_t)tag;
    write_file(daemon, "delta", count, tag, page.delta);
    assert_int_equal(snapshot_publish(daemon->served, &page, NULL), 0);
}
