/* A stand-in for tune-worker: speaks daemon/worker/pipe.h and misbehaves as it is told.
 *
 * Environment:
 *   FAKE_LOG      a line is appended for each start, request and death: "start bench 0", "setup 7",
 *                 "run compile", "auto" (a bench chooses its method), "grandchild PID"
 *   FAKE_HELLO_COMPILE, FAKE_HELLO_BENCH, FAKE_HELLO_TRACE, FAKE_HELLO_DEVICES: what to do in place
 * of a good hello crash exit hang garbage version role  (as the names say) error        no use of
 * the device or compiler; code 0 code:N       the same with the driver's code N busy:N       busy
 * for the first N starts of this role, then well crash:N, error:N  the same for these FAKE_DEVICES
 * how many devices to report (default 1) FAKE_TIME_NS  what a bench takes, and each candidate of a
 * confirmation FAKE_NO_CONTROL   ordinal of a device whose unverified benches have no time
 *   FAKE_FIRST_WRONG  ordinal of a device whose first bench gives a wrong result
 *   FAKE_SAME_IMAGE  all images are equal, whatever the options
 *   FAKE_TIGHT    in a confirmation all but the last, which is the default, are slower by half a
 *                 nanosecond but certain within a fifth
 *   FAKE_WRONG    the first candidate of each confirmation gives a wrong result
 *   FAKE_COMPILES how many compiles a compile worker does; all later ones fail
 *   FAKE_STUBBORN 1: SIGTERM and the end of the pipe are ignored
 *
 * A request's "do", or an option -DDO=... of a compile:
 *   (absent)      a good answer, which repeats "echo"
 *   fail          "ok":false and an error
 *   sticky        a good answer marked as the process's last, then exit; sticky_stay: no exit
 *   crash abort exit hang  as the names say
 *   unlocked      bench: waits for the GPU lock for ever
 *   answer_exit   a good answer, then death at once
 *   garbage half huge array wrong_id no_id twice  break the protocol
 *   wrong_then_right  an answer to a request that was not made, and then the right one
 *   close         closes the pipe and lives on
 *   grandchild    leaves a child that holds the pipe and standard error, answers, exits
 *   words         writes "echo" to standard error, then exits with status 3
 *   eat           takes echo MiB of memory and hangs
 *   files         answers with the targets of all open descriptors */
#include "daemon/worker/pipe.h"
#include "plugins/device.h"

#include <jansson.h>

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static const char *role, *bench_device; /* its ordinal */

static void note(const char *text)
{
    const char *path = getenv("FAKE_LOG");
    if (path == NULL)
        return;
    int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    char line[128];
    int length = snprintf(line, sizeof line, "%s\n", text);
    if (write(file, line, (size_t)length) != length)
        _exit(90);
    close(file);
}

/* How many lines of the log say this. */
static int times_noted(const char *text)
{
    FILE *file = fopen(getenv("FAKE_LOG"), "re");
    char line[128];
    int count = 0;
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        count += strcmp(line, text) == 0;
    }
    if (file != NULL)
        fclose(file);
    return count;
}

static void put_bytes(const char *bytes, size_t count)
{
    while (count > 0) {
        ssize_t written = write(PIPE_DESCRIPTOR, bytes, count);
        if (written <= 0)
            _exit(91);
        bytes += written;
        count -= (size_t)written;
    }
}

/* One or two messages, in one write, so that they are read together. Takes both; `second` may be
 * NULL. */
static void put_both(json_t *first, json_t *second)
{
    char *one = json_dumps(first, JSON_COMPACT);
    char *two = second ? json_dumps(second, JSON_COMPACT) : strdup("");
    size_t length = strlen(one) + strlen(two) + 2;
    char *text = malloc(length + 1);
    snprintf(text, length + 1, "%s\n%s\n", one, two); /* an empty line is skipped */
    put_bytes(text, length);
    free(text);
    free(one);
    free(two);
    json_decref(first);
    json_decref(second);
}

static void put(json_t *message)
{
    put_both(message, NULL);
}

static _Noreturn void die(void)
{
    kill(getpid(), SIGKILL);
    _exit(92);
}

static _Noreturn void hang(void)
{
    for (;;)
        pause();
}

/* --- hello ------------------------------------------------------------------------------------ */

static json_t *device_json(int ordinal)
{
    struct device_info device;
    if (device_generic("sm_90", &device, NULL))
        _exit(94);
    snprintf(device.name, sizeof device.name, "Fake");
    snprintf(device.uuid, sizeof device.uuid, "GPU-%d", ordinal);
    device.ordinal = ordinal;
    return device_to_json(&device);
}

static json_t *good_hello(int ordinal)
{
    if (strcmp(role, "compile") == 0)
        return json_pack("{s:s, s:i, s:i, s:s, s:s, s:n, s:[iii], s:b}", "hello", role, "pipe",
            PIPE_VERSION, "pid", (int)getpid(), "nvrtc", "13.0", "nvrtc_path", "/fake/libnvrtc.so",
            "include", "archs", 75, 80, 90, "emulated", 0);
    if (strcmp(role, "bench") == 0)
        return json_pack("{s:s, s:i, s:i, s:o, s:b}", "hello", role, "pipe", PIPE_VERSION, "pid",
            (int)getpid(), "device", device_json(ordinal), "nvml", 0);
    if (strcmp(role, "trace") == 0)
        return json_pack(
            "{s:s, s:i, s:i}", "hello", role, "pipe", PIPE_VERSION, "pid", (int)getpid());
    json_t *list = json_array();
    int count = getenv("FAKE_DEVICES") ? atoi(getenv("FAKE_DEVICES")) : 1;
    for (int i = 0; i < count; i++)
        json_array_append_new(list, device_json(i));
    return json_pack("{s:s, s:i, s:o}", "hello", role, "pipe", PIPE_VERSION, "devices", list);
}

static _Noreturn void refuse(int code, bool is_busy)
{
    put(json_pack("{s:s, s:i, s:s, s:i, s:b}", "hello", role, "pipe", PIPE_VERSION, "error",
        is_busy ? "the device is in use" : "this cannot work: \u20ac", "code", code, "busy",
        is_busy));
    _exit(1);
}

static void say_hello(const char *wish, int ordinal, int starts)
{
    const char *colon = strchr(wish, ':');
    bool is_over = colon != NULL && starts > atoi(colon + 1);
    size_t length = colon ? (size_t)(colon - wish) : strlen(wish);
    json_t *hello = good_hello(ordinal);
    if (strncmp(wish, "code:", 5) == 0)
        refuse(atoi(colon + 1), false);
    if (wish[0] == '\0' || is_over)
        ;
    else if (strncmp(wish, "crash", length) == 0)
        die();
    else if (strncmp(wish, "exit", length) == 0)
        _exit(7);
    else if (strncmp(wish, "hang", length) == 0)
        hang();
    else if (strncmp(wish, "error", length) == 0)
        refuse(0, false);
    else if (strncmp(wish, "busy", length) == 0)
        refuse(46, true);
    else if (strncmp(wish, "garbage", length) == 0)
        put_bytes("hello world\n", 12);
    else if (strncmp(wish, "version", length) == 0)
        json_object_set_new(hello, "pipe", json_integer(PIPE_VERSION + 1));
    else if (strncmp(wish, "role", length) == 0)
        json_object_set_new(hello, "hello", json_string("baker"));
    put(hello);
}

/* --- requests --------------------------------------------------------------------------------- */

static void break_protocol(const char *how)
{
    if (strcmp(how, "garbage") == 0) {
        put_bytes("{\"id\":}\n", 8);
    } else if (strcmp(how, "array") == 0) {
        put_bytes("[1]\n", 4);
    } else if (strcmp(how, "half") == 0) {
        put_bytes("{\"id\":1,\"ok\":", 13);
        _exit(0);
    } else if (strcmp(how, "huge") == 0) {
        size_t size = 1 << 20;
        char *bytes = malloc(size);
        memset(bytes, 'x', size);
        for (;;) /* until it is killed */
            put_bytes(bytes, size);
    } else {
        return;
    }
    hang();
}

static void leave_grandchild(void)
{
    pid_t child = fork();
    if (child == 0) {
        alarm(20); /* in case nobody ends it */
        hang();
    }
    char text[40];
    snprintf(text, sizeof text, "grandchild %d", (int)child);
    note(text);
}

static void eat(size_t mebibytes)
{
    volatile char *bytes = malloc(mebibytes << 20);
    for (size_t i = 0; bytes != NULL && i < mebibytes << 20; i += 4096)
        bytes[i] = 1;
    hang();
}

static json_t *open_files(void)
{
    json_t *list = json_array();
    DIR *dir = opendir("/proc/self/fd");
    struct dirent *entry;
    while ((entry = readdir(dir)) != NULL) {
        char target[256] = "";
        if (atoi(entry->d_name) == dirfd(dir) || entry->d_name[0] == '.')
            continue;
        if (readlinkat(dirfd(dir), entry->d_name, target, sizeof target - 1) < 0)
            continue;
        char text[300];
        snprintf(text, sizeof text, "%s %s", entry->d_name, target);
        json_array_append_new(list, json_string(text));
    }
    closedir(dir);
    return list;
}

/* Misdeeds that leave no answer. */
static void misbehave(const char *how, json_t *request)
{
    const char *echo = json_string_value(json_object_get(request, "echo"));
    if (strcmp(how, "crash") == 0)
        die();
    if (strcmp(how, "abort") == 0)
        abort();
    if (strcmp(how, "exit") == 0)
        _exit(5);
    if (strcmp(how, "hang") == 0 || strcmp(how, "unlocked") == 0)
        hang();
    if (strcmp(how, "eat") == 0)
        eat((size_t)json_integer_value(json_object_get(request, "echo")));
    if (strcmp(how, "words") == 0) {
        if (write(STDERR_FILENO, echo, strlen(echo)) < 0)
            _exit(93);
        _exit(3);
    }
    if (strcmp(how, "close") == 0) {
        close(PIPE_DESCRIPTOR);
        hang();
    }
    break_protocol(how);
}

static json_t *time_json(double time_ns)
{
    return json_pack("{s:f, s:[f, f], s:[f], s:s}", "median_ns", time_ns, "interval_ns",
        time_ns - 1, time_ns + 1, "samples_ns", time_ns, "method", "event");
}

/* Slower than time_json's, and yet with a lower upper bound. */
static json_t *tight_json(double time_ns)
{
    return json_pack("{s:f, s:[f, f], s:[f], s:s}", "median_ns", time_ns + 0.5, "interval_ns",
        time_ns + 0.4, time_ns + 0.6, "samples_ns", time_ns + 0.5, "method", "event");
}

/* The times of a bench or of all candidates of a confirmation. */
static void add_times(json_t *good, const json_t *request)
{
    const char *time_ns = getenv("FAKE_TIME_NS"), *silent = getenv("FAKE_NO_CONTROL");
    json_t *results = json_array();
    size_t count = json_array_size(json_object_get(request, "candidates"));
    bool is_control = json_is_false(json_object_get(request, "verify"));
    if (time_ns != NULL && !(is_control && silent != NULL && strcmp(silent, bench_device) == 0)) {
        json_object_update_new(good, time_json(atof(time_ns)));
        for (size_t i = 0; i < count; i++)
            json_array_append_new(results, i + 1 < count && getenv("FAKE_TIGHT") != NULL
                                               ? tight_json(atof(time_ns))
                                               : time_json(atof(time_ns)));
    }
    json_object_set_new(good, "results", results);
    if (count > 0 && getenv("FAKE_WRONG") != NULL)
        json_object_update_new(
            good, json_pack("{s:s, s:i}", "outcome", "wrong_result", "candidate", 0));
    static bool is_later;
    const char *wrong = getenv("FAKE_FIRST_WRONG");
    bool is_bench = json_object_get(request, "method") != NULL;
    if (is_bench && !is_later && wrong != NULL && strcmp(wrong, bench_device) == 0)
        json_object_set_new(good, "outcome", json_string("wrong_result"));
    is_later = is_later || is_bench;
}

/* Compiles beyond FAKE_COMPILES do not succeed; with another option comes another image. */
static void add_image(json_t *good, const json_t *request)
{
    static int compiles;
    const char *limit = getenv("FAKE_COMPILES");
    char *options = json_dumps(json_object_get(request, "options"), JSON_COMPACT | JSON_ENCODE_ANY);
    if (getenv("FAKE_TIME_NS") != NULL && getenv("FAKE_SAME_IMAGE") == NULL)
        json_object_set_new(good, "image", json_string(options ? options : ""));
    free(options);
    if (limit == NULL || ++compiles <= atoi(limit))
        return;
    json_object_set_new(good, "ok", json_false());
    json_object_set_new(good, "error", json_string("no more compiles"));
}

static void answer(const char *how, json_t *request)
{
    json_t *echo = json_object_get(request, "echo");
    json_t *good = json_pack("{s:O, s:b, s:s, s:i, s:O*}", "id", json_object_get(request, "id"),
        "ok", strcmp(how, "fail") != 0, "outcome", "ok", "pid", (int)getpid(), "echo", echo);
    json_object_update_new(
        good, json_pack("{s:s, s:b, s:{}, s:{}, s:s, s:f}", "image", "QUJD", "is_ptx", 0, "names",
                  "resources", "log", "said", "compile_ms", 1.5));
    if (strcmp(role, "bench") == 0)
        add_times(good, request);
    else if (strcmp(role, "trace") == 0)
        json_object_set_new(good, "launches", json_pack("[O]", echo));
    else
        add_image(good, request);
    if (strcmp(how, "fail") == 0)
        json_object_set_new(good, "error", json_string("it cannot be done"));
    if (strncmp(how, "sticky", 6) == 0)
        json_object_set_new(good, "sticky", json_true());
    if (strcmp(how, "files") == 0)
        json_object_set_new(good, "files", open_files());
    if (strcmp(how, "no_id") == 0)
        json_object_del(good, "id");
    if (strcmp(how, "family") == 0)
        setpgid(0, 0); /* as tune-worker does */
    if (strcmp(how, "grandchild") == 0 || strcmp(how, "family") == 0)
        leave_grandchild();
    json_t *wrong = json_copy(good);
    json_object_set_new(wrong, "id", json_integer(123456789));
    if (strcmp(how, "wrong_id") == 0)
        put(json_incref(wrong));
    else if (strcmp(how, "wrong_then_right") == 0)
        put_both(json_incref(wrong), json_incref(good));
    else
        put_both(json_incref(good), strcmp(how, "twice") == 0 ? json_incref(good) : NULL);
    json_decref(wrong);
    json_decref(good);
    if (strcmp(how, "sticky") == 0 || strcmp(how, "grandchild") == 0 || strcmp(how, "family") == 0)
        _exit(0);
    if (strcmp(how, "answer_exit") == 0)
        die();
}

/* The wish of a request: its "do", or an option -DDO=WISH of a compile. */
static const char *wish_of(const json_t *request)
{
    size_t i;
    json_t *option;
    json_array_foreach (json_object_get(request, "options"), i, option) {
        if (strncmp(json_string_value(option), "-DDO=", 5) == 0)
            return json_string_value(option) + 5;
    }
    return json_string_value(json_object_get(request, "do"));
}

static void serve(const char *line)
{
    json_t *request = json_loads(line, 0, NULL);
    const char *operation = json_string_value(json_object_get(request, "op"));
    const char *how = wish_of(request);
    char text[64];
    if (operation != NULL && strcmp(operation, "setup") == 0)
        snprintf(text, sizeof text, "setup %d",
            (int)json_integer_value(json_object_get(request, "session")));
    else
        snprintf(text, sizeof text, "run %s", role);
    note(text);
    const char *method = json_string_value(json_object_get(request, "method"));
    if (method != NULL && strcmp(method, "auto") == 0)
        note("auto");
    if (strcmp(role, "bench") == 0 && (how == NULL || strcmp(how, "unlocked") != 0))
        put(json_pack("{s:O, s:s}", "id", json_object_get(request, "id"), "event", "locked"));
    if (how != NULL)
        misbehave(how, request);
    answer(how ? how : "", request);
    json_decref(request);
}

int main(int argc, char **argv)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nobody behind */
    role = argc > 1 ? argv[1] : "";
    bench_device = argc > 3 ? argv[3] : "";
    char text[64], variable[64];
    snprintf(text, sizeof text, "start %s%s%s", role, bench_device[0] ? " " : "", bench_device);
    note(text);
    if (getenv("FAKE_STUBBORN") != NULL)
        signal(SIGTERM, SIG_IGN);
    snprintf(variable, sizeof variable, "FAKE_HELLO_%s",
        strcmp(role, "compile") == 0 ? "COMPILE"
        : strcmp(role, "bench") == 0 ? "BENCH"
        : strcmp(role, "trace") == 0 ? "TRACE"
                                     : "DEVICES");
    const char *wish = getenv(variable);
    say_hello(wish ? wish : "", atoi(bench_device), getenv("FAKE_LOG") ? times_noted(text) : 0);
    if (strcmp(role, "devices") == 0)
        return 0;
    FILE *pipe = fdopen(PIPE_DESCRIPTOR, "r");
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, pipe) > 0)
        serve(line);
    free(line);
    if (getenv("FAKE_STUBBORN") != NULL)
        hang();
    return 0;
}
