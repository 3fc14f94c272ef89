/* Start, stop, death: what a daemon claims, what it leaves behind, what it shares with its
 * children. */
#include "harness.h"

#include <fcntl.h>
#include <glob.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Slow enough to be met in the middle, quick enough to be waited for. */
#define SLOW_LOADS                                                                                 \
    "{\"rules\": [{\"call\": \"cuModuleLoadData\", \"do\": \"delay_ms\", \"value\": 60}]}"

struct progress_wait {
    struct harness *harness;
    const char *job;
    double at_least;
};

static bool job_has_progress(void *context)
{
    struct progress_wait *wait = context;
    json_t *job = ask(wait->harness, "jobs", json_pack("{s:s}", "job", wait->job));
    bool is_there = number_at(job, "done") >= wait->at_least;
    json_decref(job);
    return is_there;
}

static void wait_progress(struct harness *harness, const struct job_name *job, double at_least)
{
    struct progress_wait wait = {harness, job->text, at_least};
    wait_for(job_has_progress, &wait, LIMIT_MS);
}

static void stopping_in_the_middle_of_a_sweep_is_clean_and_the_next_start_goes_on(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 12}, SLOW_LOADS);
    struct job_name job = sweep(harness, sweep_params("tiny"));
    wait_progress(harness, &job, 2);
    harness_stop(harness);
    reap_all();
    harness_scenario(harness, "{}");
    harness_start(harness);
    json_t *ended = wait_job(harness, job);
    assert_string_equal(text_at(ended, "state"), "done");
    json_t *result = json_array_get(json_object_get(ended, "results"), 0);
    assert_int_equal(count_of(result, "ok"), 12);
    json_decref(ended);
}

static void stopping_at_once_after_the_start_is_clean(void)
{
    struct harness *harness = harness_new();
    write_tiny(harness, &(struct tiny){0});
    for (int i = 0; i < 5; i++) {
        harness_launch(harness);
        harness_stop(harness);
        reap_all();
    }
}

static void a_second_daemon_on_the_same_socket_is_refused(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 4}, NULL);
    char other_db[128], output[4096];
    snprintf(other_db, sizeof other_db, "%s/other", harness->folder);
    int status = run_tunerd(output, sizeof output, "--foreground", "--emulate", "--socket",
        harness->socket, "--db", other_db, NULL);
    assert_int_equal(status, 1);
    assert_non_null(strstr(output, harness->socket));
    assert_non_null(strstr(output, "another"));
    json_decref(ask(harness, "ping", NULL)); /* the first one's socket still answers */
}

static void a_second_daemon_on_the_same_database_is_refused(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 4}, NULL);
    char other_socket[128], output[4096];
    snprintf(other_socket, sizeof other_socket, "%s/other", harness->folder);
    int status = run_tunerd(output, sizeof output, "--foreground", "--emulate", "--socket",
        other_socket, "--db", harness->db, NULL);
    assert_int_equal(status, 1);
    assert_non_null(strstr(output, harness->db));
    assert_int_not_equal(access(other_socket, F_OK), 0);
    json_decref(
        sweep_result(harness, sweep_params("tiny"))); /* the first one's database still works */
}

static void a_socket_path_of_108_bytes_is_refused_and_one_of_107_serves(void)
{
    struct harness *harness = harness_new();
    char path[160], output[4096];
    snprintf(path, sizeof path, "%s/", harness->folder);
    memset(path + strlen(path), 'x', 109 - strlen(path));
    for (size_t length = 109; length >= 108; length--) {
        path[length] = '\0';
        int status = run_tunerd(output, sizeof output, "--foreground", "--emulate", "--socket",
            path, "--db", harness->db, NULL);
        assert_int_not_equal(status, 0);
        assert_non_null(strstr(output, "allows 107"));
    }
    path[107] = '\0';
    memcpy(harness->socket, path, sizeof path[0] * 108);
    harness_launch(harness);
    json_decref(ask(harness, "ping", NULL));
}

static void close_standard_streams(void)
{
    close(0);
    close(1);
    close(2);
}

static void descriptors_0_to_2_are_occupied_when_the_daemon_starts_without_them(void)
{
    struct harness *harness = harness_new();
    char path[64], target[64], output[4096];
    write_tiny(harness, &(struct tiny){0});
    harness->before_exec = close_standard_streams;
    harness_start(harness);
    for (int i = 0; i <= 2; i++) {
        snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)harness->daemon, i);
        ssize_t length = readlink(path, target, sizeof target - 1);
        assert_true(length > 0);
        target[length] = '\0';
        assert_string_equal(target, "/dev/null");
    }
    json_decref(sweep_result(harness, sweep_params("tiny"))); /* logs lines */
    harness_stop(harness);
    int status = run_tunerd(output, sizeof output, "--check", "--emulate", "--socket",
        harness->socket, "--db", harness->db, NULL);
    assert_int_equal(status, 0);
    assert_non_null(strstr(output, "0 damaged"));
}

static void clients_that_leave_without_reading_do_not_end_the_daemon(void)
{
    static const char request[] = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"kernels\"}\n"
                                  "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"records\"}\n"
                                  "{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"watch\"}\n";
    struct harness *harness = start_tiny(&(struct tiny){.tags = 6}, SLOW_LOADS);
    struct job_name job = sweep(harness, sweep_params("tiny"));
    for (int i = 0; i < 50; i++) {
        int client = raw_connect(harness);
        raw_send(client, request, sizeof request - 1);
        close(client);
    }
    json_t *ended = wait_job(harness, job);
    assert_string_equal(text_at(ended, "state"), "done");
    json_decref(ended);
}

/* Of a worker's open files: sockets are its standard streams and its pipe alone. */
static void check_open_files(const struct harness *harness, pid_t pid)
{
    char pattern[64], target[512];
    glob_t found;
    snprintf(pattern, sizeof pattern, "/proc/%d/fd/*", (int)pid);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        ssize_t length = readlink(found.gl_pathv[i], target, sizeof target - 1);
        target[length > 0 ? length : 0] = '\0';
        int descriptor = atoi(strrchr(found.gl_pathv[i], '/') + 1);
        bool is_daemons = strncmp(target, harness->db, strlen(harness->db)) == 0 ||
                          (strncmp(target, "socket:", 7) == 0 && descriptor > 3);
        if (is_daemons)
            fail_msg("worker %d has %s open as %d", (int)pid, target, descriptor);
    }
    globfree(&found);
}

static void a_worker_inherits_neither_sockets_nor_the_database(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 8}, SLOW_LOADS);
    struct tune_client *clients[10];
    pid_t pids[8];
    for (int i = 0; i < 10; i++)
        clients[i] = connect_more(harness);
    struct job_name job = sweep(harness, sweep_params("tiny"));
    wait_progress(harness, &job, 2);
    size_t count = harness_workers(harness, NULL, pids, 8);
    assert_true(count >= 2);
    for (size_t i = 0; i < count; i++)
        check_open_files(harness, pids[i]);
    for (int i = 0; i < 10; i++)
        tune_disconnect(clients[i]);
    json_decref(wait_job(harness, job));
}

static void workers_end_with_a_killed_daemon_and_the_next_one_starts_at_once(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 8}, SLOW_LOADS);
    struct job_name job = sweep(harness, sweep_params("tiny"));
    wait_progress(harness, &job, 2);
    harness_kill(harness);                              /* asserts that no process is left */
    assert_int_equal(access(harness->socket, F_OK), 0); /* a stale one */
    harness_start(harness);
    json_t *ended = wait_job(harness, job);
    assert_string_equal(text_at(ended, "state"), "done");
    json_decref(ended);
}

static void the_socket_and_the_database_are_closed_to_others(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 4}, NULL);
    struct stat status;
    assert_int_equal(stat(harness->socket, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0660);
    assert_int_equal(stat(harness->db, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0700);
}

static void a_daemon_nobody_needs_ends_by_itself(void)
{
    struct harness *harness = harness_new();
    harness->args[0] = "--idle-exit";
    harness->args[1] = "1";
    harness_launch(harness);
    tune_disconnect(harness->client);
    harness->client = NULL;
    int status = harness_wait_exit(harness);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_not_equal(access(harness->socket, F_OK), 0);
}

static void allow_64_descriptors(void)
{
    struct rlimit limit = {64, 64};
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* Reads whatever comes until the connection ends or `ask` is answered. */
static bool is_served(int client)
{
    static const char request[] = "{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"ping\"}\n";
    raw_send(client, request, sizeof request - 1);
    json_t *answer = raw_receive(client);
    bool served = json_is_object(json_object_get(answer, "result"));
    if (answer != NULL && !served)
        assert_string_equal(text_at(answer, "error.data.code"), "busy");
    json_decref(answer);
    return served;
}

static double cpu_s(pid_t pid)
{
    char path[64], text[1024];
    unsigned long user = 0, system = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    size_t count = fread(text, 1, sizeof text - 1, file);
    text[count] = '\0';
    fclose(file);
    sscanf(strrchr(text, ')') + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
        &system);
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

static bool accepts_again(void *context)
{
    const struct harness *harness = context;
    struct tune_client *client = NULL;
    bool is_accepted = tune_connect(harness->socket, &client, NULL) == 0;
    tune_disconnect(client);
    return is_accepted;
}

/* F88 */
static void with_64_descriptors_200_clients_are_served_or_told_busy_and_a_sweep_goes_on(void)
{
    struct harness *harness = harness_new();
    write_tiny(harness, &(struct tiny){.tags = 12});
    harness_scenario(harness, SLOW_LOADS);
    harness->before_exec = allow_64_descriptors;
    harness_start(harness);
    int clients[200], served = 0;
    struct job_name job = sweep(harness, sweep_params("tiny"));
    for (int i = 0; i < 200; i++)
        clients[i] = raw_connect(harness);
    for (int i = 0; i < 200; i++)
        served += is_served(clients[i]);
    assert_true(served >= 4 && served < 64);
    double before_s = cpu_s(harness->daemon);
    uint64_t before_ms = now_ms();
    json_t *ended = wait_job(harness, job);
    assert_string_equal(text_at(ended, "state"), "done");
    json_decref(ended);
    double wall_s = (double)(now_ms() - before_ms) / 1000;
    assert_true(cpu_s(harness->daemon) - before_s < 0.5 * wall_s + 1.0); /* no spinning accept */
    for (int i = 0; i < 200; i++)
        close(clients[i]);
    wait_for(accepts_again, harness, LIMIT_MS);
}

static pid_t start_tunectl(const struct harness *harness)
{
    char program[300], path[200];
    fflush(NULL);
    pid_t child = fork();
    if (child != 0)
        return child;
    snprintf(program, sizeof program, "%s/bin/tunectl", build_folder());
    set_environment(harness);
    snprintf(path, sizeof path, "%s/run", harness->folder);
    setenv("XDG_RUNTIME_DIR", path, 1);
    setenv("TUNE_PLUGIN_PATH", harness->plugins, 1);
    setenv("TUNE_EMULATE", "1", 1);
    int null = open("/dev/null", O_WRONLY);
    dup2(null, 1);
    dup2(null, 2);
    execl(program, "tunectl", "sweep", "tiny", (char *)NULL);
    _exit(127);
}

static void two_tunectl_at_once_start_one_daemon(void)
{
    struct harness *harness = harness_new();
    struct tune_error err = {0};
    int status[2];
    write_tiny(harness, &(struct tiny){0});
    harness_write(harness, "run/README", "the runtime folder\n");
    pid_t first = start_tunectl(harness), second = start_tunectl(harness);
    assert_int_equal(waitpid(first, &status[0], 0), first);
    assert_int_equal(waitpid(second, &status[1], 0), second);
    snprintf(harness->socket, sizeof harness->socket, "%s/run/tunerd.sock", harness->folder);
    if (tune_connect(harness->socket, &harness->client, &err))
        fail_msg("%s", err.text);
    assert_int_equal(status[0], 0);
    assert_int_equal(status[1], 0);
    /* It has been adopted by this process, and harness_stop ends it; a second one would stay. */
    harness->daemon = (pid_t)number_at(tune_server(harness->client), "pid");
    json_t *jobs = ask(harness, "jobs", NULL);
    assert_int_equal(json_array_size(jobs), 2);
    json_decref(jobs);
    harness_stop(harness);
    reap_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HARNESS_TEST(stopping_in_the_middle_of_a_sweep_is_clean_and_the_next_start_goes_on),
        HARNESS_TEST(stopping_at_once_after_the_start_is_clean),
        HARNESS_TEST(a_second_daemon_on_the_same_socket_is_refused),
        HARNESS_TEST(a_second_daemon_on_the_same_database_is_refused),
        HARNESS_TEST(a_socket_path_of_108_bytes_is_refused_and_one_of_107_serves),
        HARNESS_TEST(descriptors_0_to_2_are_occupied_when_the_daemon_starts_without_them),
        HARNESS_TEST(clients_that_leave_without_reading_do_not_end_the_daemon),
        HARNESS_TEST(a_worker_inherits_neither_sockets_nor_the_database),
        HARNESS_TEST(workers_end_with_a_killed_daemon_and_the_next_one_starts_at_once),
        HARNESS_TEST(the_socket_and_the_database_are_closed_to_others),
        HARNESS_TEST(two_tunectl_at_once_start_one_daemon),
        HARNESS_TEST(a_daemon_nobody_needs_ends_by_itself),
        HARNESS_TEST(with_64_descriptors_200_clients_are_served_or_told_busy_and_a_sweep_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
