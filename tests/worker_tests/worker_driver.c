#include "worker_driver.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

void worker_start(struct worker_process *worker, const char *role, const char *const *arguments)
{
    int pair[2];
    const char *argv[16] = {"tune-worker", role};
    for (int i = 0; arguments && arguments[i]; i++)
        argv[i + 2] = arguments[i];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    worker->pid = fork();
    assert_true(worker->pid >= 0);
    if (worker->pid == 0) {
        if (pair[1] == 3)
            fcntl(3, F_SETFD, 0);
        else
            dup2(pair[1], 3);
        execv(TUNE_WORKER_PATH, (char *const *)argv);
        _exit(127);
    }
    close(pair[1]);
    worker->fd = pair[0];
    struct timeval limit = {.tv_sec = WORKER_ANSWER_LIMIT_S};
    setsockopt(worker->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    proto_reader_init(&worker->reader, PROTO_MESSAGE_LIMIT_BYTES);
}

json_t *worker_read(struct worker_process *worker)
{
    char bytes[1 << 14];
    for (;;) {
        size_t length;
        char *line = proto_reader_next(&worker->reader, &length);
        if (line) {
            struct tune_error err = {.code = TUNE_OK};
            json_t *message = proto_parse(line, length, &err);
            if (!message)
                fail_msg("the worker sent nonsense: %s: %.200s", err.text, line);
            return message;
        }
        ssize_t count = recv(worker->fd, bytes, sizeof(bytes), 0);
        if (count == 0)
            return NULL;
        if (count < 0)
            return NULL; /* reset by a killed worker; a time-out shows as a missing answer too */
        assert_int_equal(proto_reader_feed(&worker->reader, bytes, (size_t)count, NULL), 0);
    }
}

json_t *worker_ask(struct worker_process *worker, json_t *request)
{
    static json_int_t id;
    size_t length, sent = 0;
    json_object_set_new(request, "id", json_integer(++id));
    char *line = proto_line(request, &length);
    json_decref(request);
    while (sent < length) {
        ssize_t count = send(worker->fd, line + sent, length - sent, MSG_NOSIGNAL);
        assert_true(count > 0);
        sent += (size_t)count;
    }
    free(line);
    json_t *answer = worker_read(worker);
    worker->locked_events = 0;
    bool is_waiting = false;
    while (answer && json_object_get(answer, "event")) {
        bool is_locked = strcmp(text_of(answer, "event"), "locked") == 0;
        assert_true(is_locked ? is_waiting : strcmp(text_of(answer, "event"), "waiting") == 0);
        assert_int_equal(json_integer_value(json_object_get(answer, "id")), id);
        is_waiting = true;
        worker->locked_events += is_locked;
        json_decref(answer);
        answer = worker_read(worker);
    }
    assert_non_null(answer);
    assert_int_equal(json_integer_value(json_object_get(answer, "id")), id);
    return answer;
}

int worker_end(struct worker_process *worker)
{
    int status;
    close(worker->fd);
    proto_reader_finish(&worker->reader);
    assert_int_equal(waitpid(worker->pid, &status, 0), worker->pid);
    return status;
}

const char *text_of(const json_t *answer, const char *key)
{
    const char *text = json_string_value(json_object_get(answer, key));
    return text ? text : "";
}

bool has_text(const json_t *answer, const char *key, const char *part)
{
    bool is_there = strstr(text_of(answer, key), part) != NULL;
    if (!is_there)
        print_error("%s is \"%s\", without \"%s\"\n", key, text_of(answer, key), part);
    return is_there;
}

void use_emulator(bool on)
{
    if (on)
        setenv("TUNE_CUDA_DIR", TUNE_EMULATOR_DIR, 1);
    else
        unsetenv("TUNE_CUDA_DIR");
    setenv("TUNE_LOCK_DIR", "/tmp", 1);
}

void use_scenario(const char *json)
{
    static char path[64];
    if (path[0]) {
        unlink(path);
        path[0] = '\0';
    }
    unsetenv("TUNE_SCENARIO");
    if (!json)
        return;
    strcpy(path, "/tmp/tune-scenario-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, json, strlen(json)), (ssize_t)strlen(json));
    close(fd);
    setenv("TUNE_SCENARIO", path, 1);
}

char *read_text(const char *path)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char *text = calloc(1, 1 << 20);
    assert_true(fread(text, 1, (1 << 20) - 1, file) > 0);
    fclose(file);
    return text;
}

json_t *compile_text(struct worker_process *compiler, const char *source, const char *arch,
    const char *option, const char *entry)
{
    json_t *request = json_pack("{ss,ss,ss,ss,s[],s[],s[],sb}", "op", "compile", "name", "t.cu",
        "source", source, "arch", arch, "headers", "options", "entries", "cache", 0);
    if (option)
        json_array_append_new(json_object_get(request, "options"), json_string(option));
    if (entry)
        json_array_append_new(json_object_get(request, "entries"), json_string(entry));
    return worker_ask(compiler, request);
}
