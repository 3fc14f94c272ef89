/* What the worker is as a process: no descriptors but its own, gone with its parent, quiet on its
 * output. */
#include "worker_driver.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static void a_worker_has_only_its_pipe_and_the_standard_descriptors(void **state)
{
    (void)state;
    struct worker_process worker;
    int leaked = fcntl(0, F_DUPFD, 50); /* not close-on-exec: a careless parent's */
    worker_start(&worker, "compile", NULL);
    json_decref(worker_read(&worker));
    char path[64], target[256], link[340];
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)worker.pid);
    DIR *folder = opendir(path);
    struct dirent *entry;
    while ((entry = readdir(folder))) {
        int fd = atoi(entry->d_name);
        if (entry->d_name[0] == '.' || fd <= 3)
            continue;
        snprintf(link, sizeof(link), "%s/%s", path, entry->d_name);
        ssize_t length = readlink(link, target, sizeof(target) - 1);
        target[length > 0 ? length : 0] = '\0';
        fail_msg("descriptor %d is open: %s", fd, target);
    }
    closedir(folder);
    close(leaked);
    assert_int_equal(worker_end(&worker), 0);
}

static void a_worker_ends_with_its_pipe(void **state)
{
    (void)state;
    static const char *const roles[] = {"compile", "bench"};
    for (int i = 0; i < 2; i++) {
        struct worker_process worker;
        worker_start(&worker, roles[i], NULL);
        json_t *hello = worker_read(&worker);
        assert_string_equal(text_of(hello, "error"), "");
        json_decref(hello);
        assert_int_equal(worker_end(&worker), 0);
    }
}

/* The parent dies while the test holds the pipe open, so that only the death signal can end the
 * worker. */
static void a_worker_dies_with_its_parent(void **state)
{
    (void)state;
    int pair[2], pids[2];
    pid_t worker = 0;
    char byte;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_int_equal(pipe(pids), 0);
    pid_t parent = fork();
    if (parent == 0) {
        pid_t child = fork();
        if (child == 0) {
            dup2(pair[1], 3);
            execl(TUNE_WORKER_PATH, "tune-worker", "compile", (char *)NULL);
            _exit(127);
        }
        (void)!write(pids[1], &child, sizeof(child));
        pause();
    }
    close(pair[1]);
    assert_int_equal(read(pids[0], &worker, sizeof(worker)), sizeof(worker));
    assert_int_equal(recv(pair[0], &byte, 1, 0), 1); /* its hello: it runs */
    kill(parent, SIGKILL);
    waitpid(parent, NULL, 0);
    while (recv(pair[0], &byte, 1, 0) == 1) /* ends when the worker's descriptor closes */
        ;
    close(pair[0]);
    close(pids[0]);
    close(pids[1]);
}

static void without_a_pipe_it_says_who_starts_it(void **state)
{
    (void)state;
    int output[2], status;
    char text[512] = "";
    assert_int_equal(pipe(output), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(output[1], 2);
        close(3);
        execl(TUNE_WORKER_PATH, "tune-worker", "bench", (char *)NULL);
        _exit(127);
    }
    close(output[1]);
    assert_true(read(output[0], text, sizeof(text) - 1) > 0);
    close(output[0]);
    waitpid(child, &status, 0);
    assert_int_equal(WEXITSTATUS(status), 2);
    assert_non_null(strstr(text, "started by tunerd"));
}

static json_t *probe(void)
{
    FILE *pipe_ = popen(TUNE_WORKER_PATH " probe 2>/dev/null", "r");
    char *line = calloc(1, 1 << 16);
    assert_non_null(fgets(line, 1 << 16, pipe_));
    assert_int_equal(fgetc(pipe_), EOF);
    assert_int_equal(pclose(pipe_), 0);
    json_t *answer = proto_parse(line, strlen(line) - 1, NULL);
    assert_non_null(answer);
    free(line);
    return answer;
}

static void the_probe_prints_one_line_with_what_it_found(void **state)
{
    (void)state;
    json_t *answer = probe(), *nvrtc = json_object_get(answer, "nvrtc");
    assert_true(json_is_true(json_object_get(nvrtc, "works")));
    assert_true(json_is_true(json_object_get(nvrtc, "emulated")));
    assert_int_equal(json_array_size(json_object_get(answer, "devices")), 1);
    assert_true(json_is_true(json_object_get(json_object_get(answer, "driver"), "works")));
    json_decref(answer);
}

static void the_probe_says_what_was_tried_when_nothing_is_there(void **state)
{
    (void)state;
    setenv("TUNE_CUDA_DIR", "/nonexistent/cuda", 1);
    json_t *answer = probe();
    json_t *driver = json_object_get(answer, "driver"), *tried = json_object_get(answer, "tried"),
           *line;
    bool is_named = false;
    size_t index;
    json_array_foreach (tried, index, line)
        is_named = is_named || strstr(json_string_value(line), "/nonexistent/cuda");
    assert_true(is_named);
    if (!json_is_true(json_object_get(driver, "found")))
        assert_true(has_text(driver, "error", "libcuda1"));
    json_decref(answer);
    use_emulator(true);
}

static void the_devices_role_lists_them_and_ends(void **state)
{
    (void)state;
    struct worker_process worker;
    use_scenario("{\"device\":{\"count\":2}}");
    worker_start(&worker, "devices", NULL);
    json_t *hello = worker_read(&worker);
    assert_string_equal(text_of(hello, "hello"), "devices");
    assert_int_equal(json_array_size(json_object_get(hello, "devices")), 2);
    json_decref(hello);
    assert_null(worker_read(&worker));
    assert_int_equal(worker_end(&worker), 0);
    use_scenario(NULL);
}

static json_t *hello_for_device(const char *device)
{
    struct worker_process worker;
    const char *const arguments[] = {"--device", device, NULL};
    worker_start(&worker, "bench", arguments);
    json_t *hello = worker_read(&worker);
    worker_end(&worker);
    assert_non_null(hello);
    return hello;
}

static void a_device_is_chosen_by_number_uuid_or_beginning(void **state)
{
    (void)state;
    use_scenario("{\"device\":{\"count\":2}}");
    json_t *second = hello_for_device("1");
    const char *uuid = text_of(json_object_get(second, "device"), "uuid");
    assert_int_equal(strncmp(uuid, "GPU-", 4), 0);
    json_t *same = hello_for_device(uuid);
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(same, "device"), "ordinal")), 1);
    json_decref(same);
    static const char *const wrong[] = {"2", "99", "GPU-", "abc", "", "-1", "MIG-1"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        json_t *hello = hello_for_device(wrong[i]);
        assert_string_not_equal(text_of(hello, "error"), "");
        json_decref(hello);
    }
    json_decref(second);
    use_scenario(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_worker_has_only_its_pipe_and_the_standard_descriptors),
        cmocka_unit_test(a_worker_ends_with_its_pipe),
        cmocka_unit_test(a_worker_dies_with_its_parent),
        cmocka_unit_test(without_a_pipe_it_says_who_starts_it),
        cmocka_unit_test(the_probe_prints_one_line_with_what_it_found),
        cmocka_unit_test(the_probe_says_what_was_tried_when_nothing_is_there),
        cmocka_unit_test(the_devices_role_lists_them_and_ends),
        cmocka_unit_test(a_device_is_chosen_by_number_uuid_or_beginning),
    };
    use_emulator(true);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
