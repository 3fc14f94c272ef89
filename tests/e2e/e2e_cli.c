/* tunectl against a real daemon: exit statuses, the shapes of --json, the keyboard. */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define SLOW_LOADS                                                                                 \
    "{\"rules\": [{\"call\": \"cuModuleLoadData\", \"do\": \"delay_ms\", \"value\": 100}]}"

struct tunectl {
    pid_t pid;
    int output; /* what it prints to standard output */
};

static struct tunectl tunectl_start(const struct harness *harness, const char *const *args)
{
    struct tunectl tunectl;
    char program[300];
    const char *argv[24] = {program};
    int ends[2];
    for (size_t i = 0; args[i] != NULL; i++)
        argv[i + 1] = args[i];
    snprintf(program, sizeof program, "%s/bin/tunectl", build_folder());
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    fflush(NULL);
    tunectl.pid = fork();
    if (tunectl.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        int null = open("/dev/null", O_WRONLY);
        dup2(ends[1], 1);
        dup2(null, 2);
        set_environment(harness);
        setenv("TUNE_SOCKET", harness->socket, 1);
        setenv("TUNE_AUTOSTART", "0", 1);
        execv(program, (char *const *)argv);
        _exit(127);
    }
    close(ends[1]);
    tunectl.output = ends[0];
    return tunectl;
}

/* Its exit status; what it printed as JSON in *json (new; NULL when it is none). */
static int tunectl_wait(struct tunectl *tunectl, json_t **json)
{
    static char text[1 << 20];
    size_t used = 0;
    ssize_t got;
    int status;
    while ((got = read(tunectl->output, text + used, sizeof text - 1 - used)) > 0)
        used += (size_t)got;
    close(tunectl->output);
    assert_int_equal(waitpid(tunectl->pid, &status, 0), tunectl->pid);
    if (json != NULL)
        *json = json_loadb(text, used, JSON_DECODE_ANY, NULL);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

#define TUNECTL(harness, json, ...)                                                                \
    tunectl_wait(                                                                                  \
        &(struct tunectl[]){tunectl_start(harness, (const char *const[]){__VA_ARGS__, NULL})}[0],  \
        json)

static void the_json_of_a_sweep_has_its_agreed_fields(void)
{
    static const char *const fields[] = {"kernel", "dtype", "arch", "shape.N", "mode",
        "evaluations", "wall_s", "counts.ok", "counts.compile_failed", "best.config.TAG",
        "best.median_ns", "best.interval_ns", "best.samples", "best.ties", "default.config.TAG",
        "default.median_ns"};
    struct harness *harness = start_tiny(&(struct tiny){0}, "{}");
    json_t *json = NULL;
    assert_int_equal(TUNECTL(harness, &json, "--json", "sweep", "tiny"), 0);
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (at(json, fields[i]) == NULL)
            fail_msg("%s is missing", fields[i]);
    json_decref(json);
    assert_int_equal(TUNECTL(harness, &json, "--json", "sweep", "tiny", "--shape", "N=32",
                         "--shape", "N=96", "--budget", "evals=2"),
        0);
    assert_int_equal(json_array_size(json), 2);
    assert_int_equal(number_at(json_array_get(json, 1), "shape.N"), 96);
    json_decref(json);
}

static void the_json_of_get_and_records_has_its_agreed_fields(void)
{
    static const char *const get_fields[] = {"kernel", "dtype", "arch", "shape.N", "origin",
        "measured_on", "same_gpu", "shipped", "config.TAG", "launches", "buffers", "expected_loss",
        "median_ns", "generation", "verified", "sm", "nvrtc", "min_driver"};
    static const char *const row_fields[] = {"kernel", "dtype", "arch", "shape", "config",
        "outcome", "median_ns", "samples_ns", "device", "driver", "nvrtc", "time", "host"};
    struct harness *harness = start_tiny(&(struct tiny){0}, "{}");
    json_t *json = NULL;
    assert_int_equal(TUNECTL(harness, NULL, "sweep", "tiny"), 0);
    assert_int_equal(TUNECTL(harness, &json, "--json", "get", "tiny", "--shape", "N=64"), 0);
    for (size_t i = 0; i < sizeof get_fields / sizeof get_fields[0]; i++)
        if (at(json, get_fields[i]) == NULL)
            fail_msg("get: %s is missing", get_fields[i]);
    assert_string_equal(text_at(json, "origin"), "exact");
    json_decref(json);
    assert_int_equal(TUNECTL(harness, &json, "--json", "records"), 0);
    assert_true(json_array_size(json) >= 4);
    for (size_t i = 0; i < sizeof row_fields / sizeof row_fields[0]; i++)
        if (at(json_array_get(json, 0), row_fields[i]) == NULL)
            fail_msg("records: %s is missing", row_fields[i]);
    json_decref(json);
}

static void the_exit_status_tells_failure_usage_and_no_daemon_apart(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.body = "if (i < n) y[i] += 1.0f;"}, "{}");
    json_t *json = NULL;
    assert_int_equal(TUNECTL(harness, &json, "--json", "sweep", "tiny"), 1);
    assert_true(json_is_null(at(json, "best")));
    json_decref(json);
    assert_int_equal(TUNECTL(harness, NULL, "sweep", "no-such-kernel"), 1);
    assert_int_equal(
        TUNECTL(harness, NULL, "get", "tiny", "--shape", "N=64", "--policy", "cached"), 1);
    assert_int_equal(TUNECTL(harness, NULL, "sweep"), 2);
    assert_int_equal(TUNECTL(harness, NULL, "sweep", "tiny", "--no-such-option"), 2);
    harness_stop(harness);
    assert_int_equal(TUNECTL(harness, NULL, "get", "tiny", "--shape", "N=64"), 3);
}

static bool a_job_runs(void *context)
{
    json_t *jobs = ask(context, "jobs", NULL);
    bool runs = number_at(json_array_get(jobs, 0), "done") >= 1;
    json_decref(jobs);
    return runs;
}

static bool the_job_is_canceled(void *context)
{
    json_t *jobs = ask(context, "jobs", NULL);
    bool is_so = strcmp(text_at(json_array_get(jobs, 0), "state"), "canceled") == 0;
    json_decref(jobs);
    return is_so;
}

static void the_interrupt_key_cancels_the_sweep(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 60}, SLOW_LOADS);
    static const char *const args[] = {"--json", "sweep", "tiny", NULL};
    struct tunectl tunectl = tunectl_start(harness, args);
    wait_for(a_job_runs, harness, LIMIT_MS);
    kill(tunectl.pid, SIGINT);
    assert_int_not_equal(tunectl_wait(&tunectl, NULL), 0);
    wait_for(the_job_is_canceled, harness, LIMIT_MS);
}

static void a_killed_tunectl_does_not_cancel_its_sweep(void)
{
    struct harness *harness = start_tiny(&(struct tiny){.tags = 8}, SLOW_LOADS);
    static const char *const args[] = {"sweep", "tiny", NULL};
    struct tunectl tunectl = tunectl_start(harness, args);
    struct job_name job;
    wait_for(a_job_runs, harness, LIMIT_MS);
    kill(tunectl.pid, SIGKILL);
    tunectl_wait(&tunectl, NULL);
    json_t *jobs = ask(harness, "jobs", NULL);
    snprintf(job.text, sizeof job.text, "%s", text_at(json_array_get(jobs, 0), "job"));
    json_decref(jobs);
    json_t *ended = wait_job(harness, job);
    assert_string_equal(text_at(ended, "state"), "done");
    json_decref(ended);
}

static void a_detached_sweep_answers_with_its_job_which_goes_on(void)
{
    struct harness *harness = start_tiny(&(struct tiny){0}, "{}");
    json_t *json = NULL;
    struct job_name job;
    assert_int_equal(TUNECTL(harness, &json, "--json", "sweep", "tiny", "--detach"), 0);
    snprintf(job.text, sizeof job.text, "%s", text_at(json, "job"));
    json_decref(json);
    json = wait_job(harness, job);
    assert_string_equal(text_at(json, "state"), "done");
    json_decref(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HARNESS_TEST(the_json_of_a_sweep_has_its_agreed_fields),
        HARNESS_TEST(the_json_of_get_and_records_has_its_agreed_fields),
        HARNESS_TEST(the_exit_status_tells_failure_usage_and_no_daemon_apart),
        HARNESS_TEST(the_interrupt_key_cancels_the_sweep),
        HARNESS_TEST(a_killed_tunectl_does_not_cancel_its_sweep),
        HARNESS_TEST(a_detached_sweep_answers_with_its_job_which_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
