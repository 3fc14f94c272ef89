/* `doctor`: is everything there that tuning needs, and what to do about what is not. It starts no
 * daemon: a machine is examined as it is. What concerns CUDA comes from `tune-worker probe`, so
 * that the answer is that of the program which will do the work; its form is in
 * daemon/worker/probe.c. */
#include "tunectl.h"
#include "print.h"

#include "client/proto.h"
#include "client/snapshot.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PROBE_LIMIT_S 70 /* the probe gives up by itself after 60 */
#define FREE_WANTED_BYTES 1e9

/* --- the list of findings --------------------------------------------------------------------- */

/* Enters one finding. state: "ok", "warning" (works, with less) or "missing" (must be mended);
 * advice: what to do, NULL when nothing. */
static void note(json_t *checks, const char *state, const char *name, const char *advice,
    const char *format, ...) __attribute__((format(printf, 5, 6)));

static void note(json_t *checks, const char *state, const char *name, const char *advice,
    const char *format, ...)
{
    char found[512];
    va_list args;
    va_start(args, format);
    vsnprintf(found, sizeof found, format, args);
    va_end(args);
    json_t *check = json_pack(
        "{s:s, s:s, s:s, s:s?}", "name", name, "state", state, "found", found, "advice", advice);
    json_array_append_new(checks, check);
}

static void show_checks(const json_t *checks)
{
    struct table table;
    table_init(&table, "<<<");
    size_t i;
    json_t *check;
    json_array_foreach (checks, i, check) {
        table_add(&table, text_of(check, "state"));
        table_add(&table, text_of(check, "name"));
        table_add(&table, text_of(check, "found"));
        const char *advice = text_of(check, "advice");
        if (advice[0] != '\0') {
            table_add(&table, "");
            table_add(&table, "");
            table_addf(&table, "-> %s", advice);
        }
    }
    table_print(&table, "", stdout);
    table_finish(&table);
}

static bool all_present(const json_t *checks)
{
    size_t i;
    json_t *check;
    json_array_foreach (checks, i, check) {
        if (strcmp(text_of(check, "state"), "missing") == 0)
            return false;
    }
    return true;
}

/* --- the probe -------------------------------------------------------------------------------- */

/* Where the emulator's libraries lie, beside the worker that would load them; false when nowhere.
 */
static bool find_emulator(const char *worker, char *folder, size_t size)
{
    static const char *const below[] = {"../../lib/tunerd/emulator", "../lib/tunerd/emulator",
        "../../lib64/tunerd/emulator", "../../lib/x86_64-linux-gnu/tunerd/emulator",
        "../../lib/aarch64-linux-gnu/tunerd/emulator"};
    const char *slash = strrchr(worker, '/');
    int length = slash ? (int)(slash - worker) : 0;
    for (size_t i = 0; i < sizeof below / sizeof below[0]; i++) {
        int written = snprintf(folder, size, "%.*s/%s", length, worker, below[i]);
        if (slash && written > 0 && (size_t)written < size && access(folder, R_OK) == 0)
            return true;
    }
    return false;
}

/* Reads until the end of the pipe or the deadline. malloc'ed text, or NULL. */
static char *read_all(int fd, int limit_s)
{
    char *text = NULL;
    size_t length;
    FILE *stream = open_memstream(&text, &length);
    time_t deadline = time(NULL) + limit_s;
    ssize_t count = 1;
    while (stream != NULL && count > 0 && time(NULL) < deadline) {
        char bytes[4096];
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        if (poll(&poll_fd, 1, 1000) <= 0)
            continue;
        count = read(fd, bytes, sizeof bytes);
        fwrite(bytes, 1, count > 0 ? (size_t)count : 0, stream);
    }
    if (stream != NULL)
        fclose(stream);
    return text;
}

/* Runs `tune-worker probe` and takes its line. New reference, or NULL with the reason. */
static json_t *run_probe(const char *worker, const char *cuda_folder, struct tune_error *err)
{
    int fds[2];
    if (pipe(fds)) {
        tune_fail_errno(err, TUNE_EIO, "cannot make a pipe");
        return NULL;
    }
    pid_t child = fork();
    if (child == 0) {
        dup2(fds[1], STDOUT_FILENO);
        close(fds[0]);
        close(fds[1]);
        /* Before all other places, as `tunerd --emulate` does it. */
        if (cuda_folder != NULL)
            setenv("TUNE_CUDA_DIR", cuda_folder, 1);
        execl(worker, "tune-worker", "probe", (char *)NULL);
        _exit(127);
    }
    close(fds[1]);
    char *text = child > 0 ? read_all(fds[0], PROBE_LIMIT_S) : NULL;
    close(fds[0]);
    int status = 0;
    if (child > 0) {
        kill(child, SIGKILL); /* it has written its line and ended, or it hangs */
        waitpid(child, &status, 0);
    }
    size_t length = text ? strcspn(text, "\n") : 0;
    json_t *probe = length ? proto_parse(text, length, err) : NULL;
    if (probe == NULL)
        tune_fail(err, TUNE_EIO, "%s probe gave no answer (wait status %d)", worker, status);
    free(text);
    return probe;
}

/* --- compiler, driver, GPUs ------------------------------------------------------------------- */

static const char get_nvrtc[] =
    "install NVRTC (Debian: nvidia-cuda-toolkit or libnvrtc; NVIDIA's cuda-nvrtc packages; pip "
    "install nvidia-cuda-nvrtc), or name its folder: tunerd --cuda DIR or TUNE_CUDA_DIR";
static const char get_driver[] = "TUNE_EMULATE=1 tries everything on the CPU meanwhile";

static void check_compiler(json_t *checks, const json_t *nvrtc)
{
    const json_t *archs = json_object_get(nvrtc, "archs");
    size_t count = json_array_size(archs);
    if (!json_is_true(json_object_get(nvrtc, "works"))) {
        note(checks, "missing", "compiler", get_nvrtc, "%s", text_of(nvrtc, "error"));
        return;
    }
    if (json_is_true(json_object_get(nvrtc, "emulated"))) {
        note(checks, "ok", "compiler", NULL, "the emulator: %s", text_of(nvrtc, "path"));
        return;
    }
    note(checks, "ok", "compiler", NULL, "NVRTC %s, sm_%lld to sm_%lld: %s",
        text_of(nvrtc, "version"), (long long)json_integer_value(json_array_get(archs, 0)),
        (long long)json_integer_value(json_array_get(archs, count ? count - 1 : 0)),
        text_of(nvrtc, "path"));
    if (text_of(nvrtc, "include")[0] != '\0')
        note(checks, "ok", "headers", NULL, "%s", text_of(nvrtc, "include"));
    else
        note(checks, "warning", "headers", text_of(nvrtc, "include_hint"),
            "the toolkit's headers are not found");
}

/* Can NVRTC compile for this GPU: for its generation, through PTX (the GPU is newer), or not at all
 * (NVRTC has dropped it)? The rule is the daemon's (image_target in daemon/image.c). */
static void check_gpu(json_t *checks, const json_t *device, const json_t *nvrtc)
{
    json_int_t sm = json_integer_value(json_object_get(device, "sm")), best = 0;
    const json_t *archs = json_object_get(nvrtc, "archs");
    size_t i;
    json_t *arch;
    json_array_foreach (archs, i, arch) {
        json_int_t known = json_integer_value(arch);
        best = known <= sm && known > best ? known : best;
    }
    bool is_emulated = sm == 0, is_unknown = json_array_size(archs) == 0;
    const char *name = text_of(device, "name"), *arch_name = text_of(device, "arch");
    if (json_object_get(device, "error") != NULL)
        note(checks, "warning", "GPU", "reset it or leave it out (tunerd --devices)", "%s",
            text_of(device, "error"));
    else if (is_emulated || is_unknown || best / 10 == sm / 10)
        note(checks, "ok", "GPU", NULL, "%s, %s, %s", name, arch_name, text_of(device, "uuid"));
    else if (best > 0)
        note(checks, "warning", "GPU", "update NVRTC for code made for this GPU",
            "%s, %s: newer than NVRTC knows, so code goes through PTX for sm_%lld", name, arch_name,
            (long long)best);
    else
        note(checks, "missing", "GPU", "use an older NVRTC (12.x compiles for sm_50 and later)",
            "%s, %s: this NVRTC no longer compiles for it", name, arch_name);
}

static void check_driver(json_t *checks, const json_t *probe)
{
    const json_t *driver = json_object_get(probe, "driver");
    const json_t *devices = json_object_get(probe, "devices");
    if (!json_is_true(json_object_get(driver, "works"))) {
        note(checks, "warning", "driver", get_driver, "%s", text_of(driver, "error"));
        return;
    }
    note(checks, "ok", "driver", NULL, "CUDA %s: %s", text_of(driver, "cuda"),
        text_of(driver, "path"));
    size_t i;
    json_t *device;
    json_array_foreach (devices, i, device) {
        check_gpu(checks, device, json_object_get(probe, "nvrtc"));
    }
    if (json_array_size(devices) == 0)
        note(checks, "warning", "GPU", get_driver, "the driver sees none");
}

/* New reference to what the probe said, or NULL. */
static json_t *check_cuda(json_t *checks)
{
    char worker[PATH_MAX], emulator[PATH_MAX];
    struct tune_error err = {0};
    if (tune_find_program("tune-worker", worker, sizeof worker, &err)) {
        note(checks, "missing", "tune-worker", "install tunerd completely, or set TUNE_WORKER",
            "%s", err.text);
        return NULL;
    }
    const char *wish = getenv("TUNE_EMULATE");
    bool wants_emulator = wish != NULL && strcmp(wish, "1") == 0; /* as tunerd reads it */
    bool has_emulator = find_emulator(worker, emulator, sizeof emulator);
    if (wants_emulator && !has_emulator)
        note(checks, "missing", "emulator", "install tunerd completely",
            "TUNE_EMULATE is 1, but there is no emulator beside %s", worker);
    json_t *probe = run_probe(worker, wants_emulator && has_emulator ? emulator : NULL, &err);
    if (probe == NULL) {
        note(checks, "missing", "tune-worker", "run it by hand: tune-worker probe", "%s", err.text);
        return NULL;
    }
    const char *version = text_of(probe, "probe");
    bool is_same = strcmp(version, TUNE_VERSION) == 0;
    note(checks, is_same ? "ok" : "warning", "tune-worker",
        is_same ? NULL : "install all programs from one version", "%s, version %s", worker,
        version);
    check_compiler(checks, json_object_get(probe, "nvrtc"));
    check_driver(checks, probe);
    return probe;
}

/* --- daemon, database, locks ------------------------------------------------------------------ */

/* Where a daemon listens, or would. */
static void check_socket(json_t *checks, const struct tunectl *ctl)
{
    char path[TUNE_SOCKET_PATH_BYTES];
    struct tune_error err = {0};
    if (ctl->client != NULL)
        note(checks, "ok", "socket", NULL, "%s", tune_server_path(ctl->client));
    else if (tune_socket_path(ctl->socket, path, &err))
        note(checks, "missing", "socket", NULL, "%s", err.text);
    else
        note(checks, "ok", "socket", NULL, "%s", path);
}

static void check_daemon(json_t *checks, struct tunectl *ctl)
{
    char program[PATH_MAX];
    struct tune_error err = {0};
    if (tune_find_program("tunerd", program, sizeof program, &err))
        note(checks, "missing", "tunerd", "install tunerd completely, or set TUNE_TUNERD", "%s",
            err.text);
    else
        note(checks, "ok", "tunerd", NULL, "%s", program);
    err = (struct tune_error){0};
    if (ctl_connect(ctl, false, &err) == 0) {
        const json_t *server = tune_server(ctl->client);
        bool is_same = strcmp(text_of(server, "version"), TUNE_VERSION) == 0;
        note(checks, is_same ? "ok" : "warning", "daemon",
            is_same ? NULL : "restart the daemon after an update", "version %s, pid %.0f%s",
            text_of(server, "version"), number_of(server, "pid"),
            json_is_true(json_object_get(server, "emulated")) ? ", emulated" : "");
    } else if (err.code == TUNE_ENODAEMON && ctl->socket == NULL) {
        note(checks, "ok", "daemon", NULL, "none runs; the first sweep or get starts one");
    } else {
        note(checks, "missing", "daemon", "see the daemon's log, and restart it", "%s", err.text);
    }
}

/* The database's folder: the daemon's own word, else where one would put it. */
static void database_folder(const struct tunectl *ctl, char *folder, size_t size)
{
    const char *said = ctl->client ? text_of(tune_server(ctl->client), "db") : "";
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    if (said[0] != '\0')
        snprintf(folder, size, "%s", said);
    else if (data != NULL && data[0] != '\0')
        snprintf(folder, size, "%s/tunerd/db", data);
    else
        snprintf(folder, size, "%s/.local/share/tunerd/db", home ? home : "");
}

static void check_database(json_t *checks, const struct tunectl *ctl)
{
    static const char advice[] = "make it writable, or choose another: tunerd --db DIR";
    char folder[PATH_MAX], existing[PATH_MAX];
    database_folder(ctl, folder, sizeof folder);
    snprintf(existing, sizeof existing, "%s", folder);
    /* What does not exist yet is made in the nearest parent that does. */
    for (char *slash; access(existing, F_OK) != 0 && (slash = strrchr(existing, '/')) != NULL;)
        slash[slash == existing] = '\0';
    struct statvfs disk;
    char text[HUMAN_BYTES];
    if (access(existing, W_OK | X_OK) != 0) {
        /* A system daemon's folder is none of this user's business: the daemon answers for it. */
        bool is_others = errno == EACCES && ctl->client != NULL;
        note(checks, is_others ? "ok" : "missing", "database", is_others ? NULL : advice, "%s%s",
            folder, is_others ? " (the daemon's own)" : " cannot be written");
        return;
    }
    double available =
        statvfs(existing, &disk) == 0 ? (double)disk.f_bavail * (double)disk.f_frsize : 0;
    bool is_low = available < FREE_WANTED_BYTES;
    note(checks, is_low ? "warning" : "ok", "database",
        is_low ? "free some space: a full disk ends a sweep" : NULL, "%s, %s free", folder,
        human_bytes(available, text));
}

static uint64_t count_entries(const char *folder, const char *name)
{
    uint64_t entries = 0;
    if (name[0] != '\0')
        snapshot_walk(folder, name, NULL, NULL, &entries, NULL);
    return entries;
}

/* What programs of this user find of the answers that the daemon publishes. */
static void check_published(json_t *checks, const struct tunectl *ctl)
{
    const json_t *said = ctl->client ? json_object_get(tune_server(ctl->client), "served") : NULL;
    char link[TUNE_SOCKET_PATH_BYTES + 16], text[HUMAN_BYTES];
    struct snapshot_page page;
    struct tune_error err = {0};
    if (said == NULL)
        return; /* no daemon, or one of a release that publishes nothing */
    snprintf(link, sizeof link, "%s.served", tune_server_path(ctl->client));
    if (!json_is_string(said)) {
        note(checks, "warning", "published", "see the daemon's log; programs ask by the socket",
            "the daemon cannot publish answers");
    } else if (snapshot_read_page(link, &page, &err)) {
        bool is_early = err.code == TUNE_ENOTFOUND || err.code == TUNE_EBUSY;
        note(checks, is_early ? "ok" : "warning", "published",
            is_early ? NULL : "programs of this user ask by the socket", "%s",
            is_early ? "nothing yet" : err.text);
    } else {
        double age_s = (double)time(NULL) - (double)page.published_unix_ms / 1000;
        note(checks, "ok", "published", NULL,
            "%s: %llu entries and %llu newer ones, generation %llu, %s ago",
            json_string_value(said), (unsigned long long)count_entries(link, page.base),
            (unsigned long long)count_entries(link, page.delta),
            (unsigned long long)page.generation, human_duration(age_s > 0 ? age_s : 0, text));
    }
}

/* The records that came with the program. */
static void check_shipped(json_t *checks, const struct tunectl *ctl)
{
    json_t *stats = NULL;
    if (ctl->client == NULL || tune_request(ctl->client, "stats", NULL, &stats, NULL))
        return;
    const json_t *shipped = json_object_get(stats, "shipped");
    if (shipped != NULL) {
        double refused = number_of(shipped, "refused");
        note(checks, refused > 0 ? "warning" : "ok", "shipped",
            refused > 0 ? "see the daemon's log; install tunerd anew" : NULL,
            "%.0f records came with tunerd, %.0f of other kernels, %.0f refused",
            number_of(shipped, "records"), number_of(shipped, "set_aside"), refused);
    }
    json_decref(stats);
}

static void check_locks(json_t *checks)
{
    const char *asked = getenv("TUNE_LOCK_DIR");
    bool is_asked = asked != NULL && asked[0] != '\0';
    const char *folder = is_asked ? asked : "/run/lock";
    const char *advice = "name a folder that all who measure share: TUNE_LOCK_DIR";
    if (access(folder, W_OK | X_OK) == 0)
        note(checks, "ok", "GPU locks", NULL, "%s", folder);
    else if (is_asked)
        note(checks, "warning", "GPU locks", advice,
            "%s cannot be written, so only a GPU whose lock lies there already can be measured on",
            folder);
    else
        note(checks, "warning", "GPU locks", advice,
            "%s cannot be written, so they lie in /tmp, and measurements of a daemon that can "
            "write it may disturb this user's",
            folder);
}

int run_doctor(struct tunectl *ctl, const struct args *args)
{
    (void)args;
    json_t *checks = json_array();
    json_t *probe = check_cuda(checks);
    check_daemon(checks, ctl);
    check_socket(checks, ctl);
    check_database(checks, ctl);
    check_published(checks, ctl);
    check_shipped(checks, ctl);
    check_locks(checks);
    bool is_well = all_present(checks);
    json_t *value = json_pack("{s:b, s:s, s:O, s:O?}", "ok", is_well, "version", TUNE_VERSION,
        "checks", checks, "probe", probe);
    if (ctl->is_json) {
        print_json(value);
    } else {
        show_checks(checks);
        puts(is_well ? "\nnothing that is needed is missing"
                     : "\nsomething that is needed is missing");
    }
    json_decref(value);
    json_decref(checks);
    json_decref(probe);
    return is_well ? CTL_DONE : CTL_FAILED;
}
