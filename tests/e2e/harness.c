#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define POLL_MS 5

static struct harness *harnesses; /* of the running test */
static bool has_passed;

/* --- small things ----------------------------------------------------------------------------- */

uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void wait_for_(bool (*condition)(void *context), void *context, int limit_ms, const char *what)
{
    uint64_t end_ms = now_ms() + (uint64_t)limit_ms;
    while (!condition(context)) {
        if (now_ms() > end_ms)
            fail_msg("%s: still not so after %d ms", what, limit_ms);
        poll(NULL, 0, POLL_MS);
    }
}

uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u; /* splitmix64 */
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

uint64_t test_seed(void)
{
    static uint64_t seed;
    const char *given = getenv("E2E_SEED");
    if (seed != 0)
        return seed;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    seed =
        given ? strtoull(given, NULL, 10) : (uint64_t)now.tv_sec * 1000003u + (uint64_t)now.tv_nsec;
    seed |= 1;
    print_message("seed: E2E_SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

static bool read_whole(const char *path, char *text, size_t room)
{
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    size_t count = fread(text, 1, room - 1, file);
    text[count] = '\0';
    fclose(file);
    return true;
}

/* --- files ------------------------------------------------------------------------------------ */

static void make_folders_of(const char *path)
{
    char folder[512];
    snprintf(folder, sizeof folder, "%s", path);
    for (char *slash = strchr(folder + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(folder, 0700);
        *slash = '/';
    }
}

void harness_write(struct harness *harness, const char *name, const char *format, ...)
{
    char path[256], fresh[280];
    snprintf(path, sizeof path, "%s/%s", harness->folder, name);
    snprintf(fresh, sizeof fresh, "%s.fresh", path);
    make_folders_of(path);
    FILE *file = fopen(fresh, "we");
    assert_non_null(file);
    va_list args;
    va_start(args, format);
    vfprintf(file, format, args);
    va_end(args);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(rename(fresh, path), 0);
}

/* As text: the emulator reads NaN, which is no JSON. */
void harness_scenario(struct harness *harness, const char *text)
{
    assert_int_equal(text[0], '{');
    harness_write(harness, "scenario.json", "{\"state\": \"%s\"%s%s", harness->state,
        text[1] == '}' ? "" : ", ", text + 1);
}

long harness_matches(const struct harness *harness, int index)
{
    char path[128], text[64];
    snprintf(path, sizeof path, "%s/rule-%d", harness->state, index);
    return read_whole(path, text, sizeof text) ? strtol(text, NULL, 10) : 0;
}

bool harness_log_has(const struct harness *harness, const char *text)
{
    static char log[4 << 20];
    return read_whole(harness->log, log, sizeof log) && strstr(log, text) != NULL;
}

/* --- processes -------------------------------------------------------------------------------- */

const char *build_folder(void)
{
    const char *folder = getenv("TUNE_BUILD_DIR");
    return folder ? folder : E2E_BUILD_DIR;
}

static void reap_ready(void)
{
    while (waitpid(-1, NULL, WNOHANG) > 0)
        continue;
}

static bool no_children(void *context)
{
    (void)context;
    reap_ready();
    return waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD;
}

void reap_all(void)
{
    wait_for(no_children, NULL, LIMIT_MS);
}

/* The parent of a process and its state (Z: a zombie). */
static int parent_of(pid_t pid, char *state)
{
    char path[64], text[512];
    int parent = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    if (!read_whole(path, text, sizeof text) || strrchr(text, ')') == NULL)
        return 0;
    return sscanf(strrchr(text, ')') + 1, " %c %d", state, &parent) == 2 ? parent : 0;
}

static bool is_worker(pid_t pid, const char *role)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    size_t count = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[count] = '\0';
    size_t length = strlen(text);
    if (length < 11 || strcmp(text + length - 11, "tune-worker") != 0)
        return false;
    return role == NULL || (length + 1 < count && strcmp(text + length + 1, role) == 0);
}

static size_t workers_of(pid_t parent, const char *role, pid_t *pids, size_t room)
{
    glob_t found;
    char state;
    size_t count = 0;
    if (glob("/proc/[0-9]*", GLOB_NOSORT, NULL, &found) != 0)
        return 0;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        pid_t pid = (pid_t)atoi(found.gl_pathv[i] + 6);
        if (parent_of(pid, &state) == parent && state != 'Z' && is_worker(pid, role) &&
            count < room)
            pids[count++] = pid;
    }
    globfree(&found);
    return count;
}

size_t harness_zombies(const struct harness *harness)
{
    glob_t found;
    char state;
    size_t count = 0;
    if (glob("/proc/[0-9]*", GLOB_NOSORT, NULL, &found) != 0)
        return 0;
    for (size_t i = 0; i < found.gl_pathc; i++)
        count += parent_of((pid_t)atoi(found.gl_pathv[i] + 6), &state) == harness->daemon &&
                 state == 'Z';
    globfree(&found);
    return count;
}

size_t harness_descriptors(const struct harness *harness)
{
    char pattern[64];
    glob_t found;
    snprintf(pattern, sizeof pattern, "/proc/%d/fd/*", (int)harness->daemon);
    if (glob(pattern, GLOB_NOSORT, NULL, &found) != 0)
        return 0;
    size_t count = found.gl_pathc;
    globfree(&found);
    return count;
}

size_t harness_workers(const struct harness *harness, const char *role, pid_t *pids, size_t room)
{
    return workers_of(harness->daemon, role, pids, room);
}

/* Reports go to files, which the end of a test looks for. */
static void set_sanitizer_options(const char *name, const struct harness *harness)
{
    char options[600];
    const char *given = getenv(name), *more = harness->sanitizer_options;
    snprintf(options, sizeof options, "%s:log_path=%s/sanitizer%s", given ? given : "",
        harness->folder, more ? more : "");
    setenv(name, options, 1);
}

void set_environment(const struct harness *harness)
{
    char path[300];
    snprintf(path, sizeof path, "%s/scenario.json", harness->folder);
    setenv("TUNE_SCENARIO", path, 1);
    setenv("TUNE_LOCK_DIR", harness->folder, 1);
    setenv("TMPDIR", harness->folder, 1);
    setenv("HOME", harness->folder, 1);
    setenv("TUNE_HOST_CXX", E2E_CXX, 0);
    snprintf(path, sizeof path, "%s/tests/e2e/cxx-cache", build_folder());
    setenv("E2E_CXX_CACHE", path, 0);
    unsetenv("XDG_DATA_HOME");
    unsetenv("XDG_RUNTIME_DIR");
    unsetenv("TUNE_PLUGIN_PATH");
    unsetenv("TUNE_SOCKET");
    set_sanitizer_options("ASAN_OPTIONS", harness);
    set_sanitizer_options("TSAN_OPTIONS", harness);
}

static void exec_daemon(const struct harness *harness)
{
    char program[300];
    const char *argv[32] = {program, "--foreground", "--socket", harness->socket, "--db",
        harness->db, "--plugins", harness->plugins};
    size_t count = 8;
    if (!harness->is_real)
        argv[count++] = "--emulate";
    snprintf(program, sizeof program, "%s/bin/tunerd", build_folder());
    for (size_t i = 0; harness->args[i] != NULL; i++)
        argv[count++] = harness->args[i];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int log = open(harness->log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    int null = open("/dev/null", O_RDONLY);
    dup2(null, 0);
    dup2(log, 1);
    dup2(log, 2);
    close(null);
    close(log);
    set_environment(harness);
    signal(SIGPIPE, SIG_DFL); /* the test's own choice would be inherited */
    if (harness->before_exec != NULL)
        harness->before_exec();
    execv(program, (char *const *)argv);
    dprintf(2, "cannot run %s: %s\n", program, strerror(errno));
    _exit(127);
}

static bool daemon_has_ended(struct harness *harness, int *status)
{
    if (harness->daemon == 0 || waitpid(harness->daemon, status, WNOHANG) != harness->daemon)
        return false;
    harness->daemon = 0;
    return true;
}

static bool is_answering(void *context)
{
    struct harness *harness = context;
    int status;
    if (daemon_has_ended(harness, &status))
        fail_msg("the daemon ended at its start, status 0x%x", status);
    return tune_connect(harness->socket, &harness->client, NULL) == 0;
}

static bool is_ready(void *context)
{
    json_t *answer = ask(context, "ping", NULL);
    bool ready = json_is_true(json_object_get(answer, "ready"));
    json_decref(answer);
    return ready;
}

void harness_launch(struct harness *harness)
{
    assert_int_equal(harness->daemon, 0);
    fflush(NULL);
    harness->daemon = fork();
    assert_true(harness->daemon >= 0);
    if (harness->daemon == 0)
        exec_daemon(harness);
    wait_for(is_answering, harness, LIMIT_MS);
}

void harness_start(struct harness *harness)
{
    harness_launch(harness);
    wait_for(is_ready, harness, LIMIT_MS);
}

static void drop_client(struct harness *harness)
{
    tune_disconnect(harness->client);
    harness->client = NULL;
}

struct exit_wait {
    struct harness *harness;
    int status;
};

static bool has_exited(void *context)
{
    struct exit_wait *wait = context;
    return daemon_has_ended(wait->harness, &wait->status);
}

int harness_wait_exit(struct harness *harness)
{
    struct exit_wait wait = {harness, 0};
    wait_for(has_exited, &wait, LIMIT_MS);
    return wait.status;
}

void harness_stop(struct harness *harness)
{
    pid_t left[4];
    drop_client(harness);
    assert_int_equal(kill(harness->daemon, SIGTERM), 0);
    int status = harness_wait_exit(harness);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("the daemon did not end cleanly: status 0x%x", status);
    if (workers_of(getpid(), NULL, left, 4) != 0)
        fail_msg("the daemon left worker %d behind", (int)left[0]);
    assert_int_not_equal(access(harness->socket, F_OK), 0);
}

void harness_kill(struct harness *harness)
{
    drop_client(harness);
    kill(harness->daemon, SIGKILL);
    waitpid(harness->daemon, NULL, 0);
    harness->daemon = 0;
    reap_all();
}

int run_tunerd(char *output, size_t room, ...)
{
    char program[300];
    const char *argv[32] = {program};
    size_t count = 1, used = 0;
    int ends[2], status;
    snprintf(program, sizeof program, "%s/bin/tunerd", build_folder());
    va_list args;
    va_start(args, room);
    while ((argv[count] = va_arg(args, const char *)) != NULL)
        count++;
    va_end(args);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(ends[1], 1);
        dup2(ends[1], 2);
        set_environment(harnesses);
        execv(program, (char *const *)argv);
        _exit(127);
    }
    close(ends[1]);
    ssize_t got;
    while ((got = read(ends[0], output + used, room - 1 - used)) > 0)
        used += (size_t)got;
    output[used] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* --- life of a test --------------------------------------------------------------------------- */

struct harness *harness_new(void)
{
    struct harness *harness = calloc(1, sizeof *harness);
    assert_non_null(harness);
    snprintf(harness->folder, sizeof harness->folder, "/tmp/tunerd-e2e-XXXXXX");
    assert_non_null(mkdtemp(harness->folder));
    snprintf(harness->socket, sizeof harness->socket, "%s/socket", harness->folder);
    snprintf(harness->db, sizeof harness->db, "%s/db", harness->folder);
    snprintf(harness->log, sizeof harness->log, "%s/log", harness->folder);
    snprintf(harness->plugins, sizeof harness->plugins, "%s/plugins", harness->folder);
    snprintf(harness->state, sizeof harness->state, "%s/state", harness->folder);
    mkdir(harness->plugins, 0700);
    mkdir(harness->state, 0700);
    harness->next = harnesses;
    harnesses = harness;
    harness_scenario(harness, "{}");
    return harness;
}

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
    (void)status;
    (void)kind;
    (void)walk;
    return remove(path);
}

static void print_file(const char *path)
{
    char text[65536];
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return;
    if (fseek(file, -(long)(sizeof text - 1), SEEK_END) != 0)
        rewind(file);
    size_t count = fread(text, 1, sizeof text - 1, file);
    text[count] = '\0';
    fclose(file);
    fprintf(stderr, "--- %s\n%s\n", path, text); /* print_error would cut it */
}

/* A sanitizer's process that is killed while it looks for leaks leaves words that are no report. */
static bool is_report(const char *path)
{
    char text[65536];
    return read_whole(path, text, sizeof text) &&
           (strstr(text, "ERROR:") != NULL || strstr(text, "WARNING:") != NULL ||
               strstr(text, "runtime error") != NULL);
}

/* Reports of sanitizers, of the daemon and of its workers; returns how many. */
static size_t print_reports(const struct harness *harness)
{
    char pattern[96];
    glob_t found;
    size_t count = 0;
    snprintf(pattern, sizeof pattern, "%s/sanitizer.*", harness->folder);
    if (glob(pattern, 0, NULL, &found) != 0)
        return 0;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        if (!is_report(found.gl_pathv[i]))
            continue;
        print_file(found.gl_pathv[i]);
        count++;
    }
    globfree(&found);
    return count;
}

static void harness_destroy(struct harness *harness)
{
    tune_disconnect(harness->client);
    if (harness->daemon != 0) {
        kill(harness->daemon, SIGKILL);
        waitpid(harness->daemon, NULL, 0);
    }
    nftw(harness->folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    free(harness);
}

int harness_setup(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    return prctl(PR_SET_CHILD_SUBREAPER, 1);
}

/* Stopping is part of every test, and in it so that its failure is one of the test. */
void harness_run(void **state)
{
    const struct harness_case *one = *state;
    has_passed = false;
    one->run();
    for (struct harness *harness = harnesses; harness != NULL; harness = harness->next) {
        if (harness->daemon != 0 && !harness->is_scruffy)
            harness_stop(harness);
        if (print_reports(harness) > 0)
            fail_msg("a sanitizer has something to say");
    }
    has_passed = true;
}

/* What a failed test left: a daemon that tunectl started, workers of one that hangs. */
static void kill_children(void)
{
    glob_t found;
    char process_state;
    if (glob("/proc/[0-9]*", GLOB_NOSORT, NULL, &found) != 0)
        return;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        pid_t pid = (pid_t)atoi(found.gl_pathv[i] + 6);
        if (parent_of(pid, &process_state) == getpid())
            kill(pid, SIGKILL);
    }
    globfree(&found);
}

int harness_teardown(void **state)
{
    (void)state;
    while (harnesses != NULL) {
        struct harness *harness = harnesses;
        harnesses = harness->next;
        if (!has_passed) {
            print_file(harness->log);
            print_reports(harness);
        }
        harness_destroy(harness);
    }
    uint64_t end_ms = now_ms() + LIMIT_MS;
    while (!no_children(NULL) && now_ms() < end_ms) {
        if (!has_passed)
            kill_children();
        poll(NULL, 0, POLL_MS);
    }
    return 0;
}

/* --- kernels ---------------------------------------------------------------------------------- */

static const char * or (const char *text, const char *otherwise)
{
    return text ? text : otherwise;
}

static void write_tiny_manifest(struct harness *harness, const struct tiny *tiny, const char *name)
{
    char file[128], tags[4096] = "";
    int count = tiny->tags ? tiny->tags : 4;
    size_t used = 0;
    for (int i = 0; i < count; i++)
        used += (size_t)snprintf(tags + used, sizeof tags - used, "%s%d", i ? "," : "", i);
    const char *shapes = or (tiny->shapes, "{\"N\": 64}");
    snprintf(file, sizeof file, "plugins/%s/%s.json", name, name);
    harness_write(harness, file,
        "{\"tunerd\": 1, \"name\": \"%s\", \"summary\": \"y = x + 1\", \"source\": \"%s.cu\",\n"
        " \"dims\": [{\"name\": \"N\", \"meaning\": \"elements\"}],\n"
        " \"shapes\": [%s], \"shapes_cpu\": [%s], \"dtypes\": [\"f32\"],\n"
        " \"params\": [{\"name\": \"TAG\", \"meaning\": \"nothing\", \"values\": [%s]}%s],\n"
        " \"derived\": [], \"constraints\": [%s],\n"
        " \"buffers\": [{\"name\": \"x\", \"dtype\": \"f32\", \"count\": \"N\", \"fill\": "
        "\"uniform\", "
        "\"role\": \"in\"},\n"
        "  {\"name\": \"y\", \"dtype\": \"f32\", \"count\": \"N\", \"role\": \"out\"}],\n"
        " \"launches\": [{\"entry\": \"tiny\", \"grid\": [%s], \"block\": [\"32\"],\n"
        "  \"shared_bytes\": \"%s\",\n"
        "  \"args\": [{\"buffer\": \"x\"}, {\"buffer\": \"y\"}, {\"scalar\": \"i64\", \"value\": "
        "\"N\"}]}],\n"
        " \"reference\": {\"defines\": {\"TUNE_REFERENCE\": 1},\n"
        "  \"buffers\": [{\"name\": \"y_ref\", \"dtype\": \"f32\", \"count\": \"N\", \"role\": "
        "\"scratch\"}],\n"
        "  \"launches\": [{\"entry\": \"reference\", \"grid\": [\"ceildiv(N, 32)\"], \"block\": "
        "[\"32\"],\n"
        "   \"args\": [{\"buffer\": \"x\"}, {\"buffer\": \"y_ref\"}, {\"scalar\": \"i64\", "
        "\"value\": "
        "\"N\"}]}]},\n"
        " \"checks\": [{\"buffer\": \"y\", \"reference\": \"y_ref\", \"derivation\": \"one "
        "addition, "
        "correctly rounded\",\n"
        "  \"tolerance\": {\"factor\": 0, \"unit\": \"exact\"}}],\n"
        " \"default\": {\"TAG\": 0%s}, \"flops\": \"N\", \"bytes\": \"8 * N\"%s}\n",
        name, name, shapes, shapes, tags, or (tiny->params, ""), or (tiny->constraints, ""),
        or (tiny->grid, "\"ceildiv(N, 32)\""), or (tiny->shared, "0"), or (tiny->defaults, ""),
        or (tiny->more, ""));
}

void write_tiny(struct harness *harness, const struct tiny *tiny)
{
    const char *name = or (tiny->name, "tiny");
    char file[128];
    snprintf(file, sizeof file, "plugins/%s/%s.cu", name, name);
    harness_write(harness, file,
        "#ifndef TAG\n#define TAG 0\n#endif\n%s\n"
        "#if TUNE_REFERENCE\n"
        "extern \"C\" __global__ void reference(const float *x, float *y, long long n)\n"
        "#else\n"
        "extern \"C\" __global__ void tiny(const float *x, float *y, long long n)\n"
        "#endif\n"
        "{\n"
        "    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;\n"
        "    if (i < n)\n"
        "        y[i] = x[i] + 1.0f;\n"
        "#if TUNE_REFERENCE\n    %s\n#else\n    %s\n    %s\n#endif\n"
        "}\n",
        or (tiny->top, ""), or (tiny->reference, ""),
        tiny->is_same_code ? ""
                           : "if (n < -TAG) y[0] = TAG; // never: makes each TAG code of its own",
        or (tiny->body, ""));
    write_tiny_manifest(harness, tiny, name);
}

struct harness *start_tiny(const struct tiny *tiny, const char *scenario)
{
    struct harness *harness = harness_new();
    write_tiny(harness, tiny);
    if (scenario != NULL)
        harness_scenario(harness, scenario);
    harness_start(harness);
    return harness;
}

/* --- asking ----------------------------------------------------------------------------------- */

static char sentence[sizeof((struct tune_error *)0)->text];

static void connect_own(struct harness *harness)
{
    struct tune_error err = {0};
    if (harness->client == NULL && tune_connect(harness->socket, &harness->client, &err))
        fail_msg("%s", err.text);
    tune_set_timeout(harness->client, 2 * LIMIT_MS);
}

json_t *ask(struct harness *harness, const char *method, json_t *params)
{
    struct tune_error err = {0};
    json_t *answer = NULL;
    connect_own(harness);
    if (tune_request(harness->client, method, params, &answer, &err))
        fail_msg("%s: %s", method, err.text);
    return answer;
}

const char *ask_fail(
    struct harness *harness, const char *method, json_t *params, enum tune_code code)
{
    struct tune_error err = {0};
    connect_own(harness);
    if (tune_request(harness->client, method, params, NULL, &err) == 0)
        fail_msg("%s succeeded; it was to be refused with %s", method, tune_code_word(code));
    if (err.code != code)
        fail_msg("%s: refused with %s in place of %s: %s", method, tune_code_word(err.code),
            tune_code_word(code), err.text);
    memcpy(sentence, err.text, sizeof sentence);
    return sentence;
}

struct tune_client *connect_more(const struct harness *harness)
{
    struct tune_error err = {0};
    struct tune_client *client = NULL;
    if (tune_connect(harness->socket, &client, &err))
        fail_msg("%s", err.text);
    tune_set_timeout(client, 2 * LIMIT_MS);
    return client;
}

json_t *sweep_params(const char *kernel)
{
    return json_pack("{s:s, s:i}", "kernel", kernel, "seed", 7);
}

struct job_name sweep(struct harness *harness, json_t *params)
{
    struct job_name job;
    json_t *answer = ask(harness, "sweep", params);
    snprintf(job.text, sizeof job.text, "%s", text_at(answer, "job"));
    json_decref(answer);
    return job;
}

struct job_wait {
    struct harness *harness;
    const char *job;
    json_t *last;
};

static bool job_has_ended(void *context)
{
    struct job_wait *wait = context;
    json_decref(wait->last);
    wait->last = ask(wait->harness, "jobs", json_pack("{s:s}", "job", wait->job));
    const char *state = text_at(wait->last, "state");
    return strcmp(state, "queued") != 0 && strcmp(state, "running") != 0;
}

json_t *wait_job(struct harness *harness, struct job_name job)
{
    struct job_wait wait = {harness, job.text, NULL};
    wait_for(job_has_ended, &wait, 2 * LIMIT_MS);
    return wait.last;
}

json_t *sweep_result(struct harness *harness, json_t *params)
{
    json_t *job = wait_job(harness, sweep(harness, params));
    if (strcmp(text_at(job, "state"), "done") != 0)
        fail_msg("the sweep is %s: %s", text_at(job, "state"), text_at(job, "error"));
    json_t *result = json_incref(json_array_get(json_object_get(job, "results"), 0));
    json_decref(job);
    return result;
}

void tune_shape(struct harness *harness, int n)
{
    json_t *params = sweep_params("tiny");
    json_object_set_new(params, "shapes", json_pack("[{s:i}]", "N", n));
    json_decref(sweep_result(harness, params));
}

json_t *records_of(struct harness *harness, const char *job)
{
    return ask(harness, "records", json_pack("{s:s*, s:i}", "job", job, "limit", 20000));
}

static bool has_tag(const json_t *row, int tag)
{
    const json_t *value = at(row, "config.TAG");
    return json_is_integer(value) && json_integer_value(value) == tag;
}

size_t rows_with(const json_t *rows, const char *outcome, int tag)
{
    size_t i, count = 0;
    json_t *row;
    json_array_foreach ((json_t *)rows, i, row) {
        bool is_outcome = outcome == NULL || strcmp(text_at(row, "outcome"), outcome) == 0;
        count += is_outcome && (tag < 0 || has_tag(row, tag));
    }
    return count;
}

const json_t *row_of(const json_t *rows, int tag)
{
    for (size_t i = json_array_size(rows); i-- > 0;)
        if (has_tag(json_array_get(rows, i), tag))
            return json_array_get(rows, i);
    return NULL;
}

json_int_t count_of(const json_t *result, const char *outcome)
{
    return json_integer_value(json_object_get(json_object_get(result, "counts"), outcome));
}

const json_t *at(const json_t *json, const char *path)
{
    char part[64];
    while (*path != '\0' && json != NULL) {
        size_t length = strcspn(path, ".");
        snprintf(part, sizeof part, "%.*s", (int)length, path);
        json = json_object_get(json, part);
        path += length + (path[length] == '.');
    }
    return json;
}

const char *text_at(const json_t *json, const char *path)
{
    const char *text = json_string_value(at(json, path));
    return text ? text : "";
}

double number_at(const json_t *json, const char *path)
{
    return json_number_value(at(json, path));
}

/* --- raw bytes -------------------------------------------------------------------------------- */

int raw_connect(const struct harness *harness)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", harness->socket);
    int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(descriptor >= 0);
    assert_int_equal(connect(descriptor, (const struct sockaddr *)&address, sizeof address), 0);
    return descriptor;
}

/* A connection that the daemon has ended meanwhile is no failure here. */
void raw_send(int descriptor, const char *bytes, size_t count)
{
    while (count > 0) {
        ssize_t sent = send(descriptor, bytes, count, MSG_NOSIGNAL);
        if (sent < 0)
            return;
        bytes += sent;
        count -= (size_t)sent;
    }
}

json_t *raw_receive(int descriptor)
{
    size_t room = 1 << 20, used = 0;
    char *line = malloc(room), byte;
    struct pollfd wait = {.fd = descriptor, .events = POLLIN};
    json_t *message = NULL;
    for (;;) {
        if (poll(&wait, 1, LIMIT_MS) != 1) {
            free(line);
            fail_msg("no answer after %d ms", LIMIT_MS);
        }
        if (recv(descriptor, &byte, 1, 0) != 1)
            break;
        if (byte == '\n') {
            message = json_loadb(line, used, 0, NULL);
            break;
        }
        assert_true(used < room);
        line[used++] = byte;
    }
    free(line);
    return message;
}
