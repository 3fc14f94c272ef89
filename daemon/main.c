/* tunerd: puts the parts together, runs the loop, takes them apart again.
 *
 * Stopping is a flow, one step after another: no new clients; running tunings are left to be
 * resumed; the link to the fleet ends; workers end; the writer commits what is left; that is
 * published; handles close; the loop runs dry and closes (or the exit status is 1). */
#include "daemon/app.h"
#include "daemon/command.h"
#include "daemon/file.h"
#include "daemon/log.h"
#include "daemon/salvage.h"
#include "daemon/xmalloc.h"

#include "client/proto.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define IDLE_CHECK_MS 1000
#define MEMO_LIMIT_BYTES ((size_t)64 << 20)

/* --- news of jobs ----------------------------------------------------------------------------- */

static void on_job_event(const char *method, json_t *params, const char *job, void *context)
{
    struct app *app = context;
    app->busy_at_ms = uv_now(&app->loop);
    if (app->server == NULL)
        return; /* a job that failed while it was loaded */
    json_t *message = proto_notification_new(method, json_incref(params));
    bool is_end = strcmp(method, "done") == 0;
    server_publish(app->server, job, message, is_end);
    json_decref(message);
    if (!is_end)
        return;
    server_unsubscribe_all(app->server, job);
    get_job_ended(app, job);
    if (app->helping != NULL)
        helping_kick(app->helping); /* a device may be free */
}

/* What is published follows from kernels and devices. */
static void show_publish(struct app *app)
{
    size_t count = sched_device_count(app->sched);
    struct device_info *devices = xcalloc(count, sizeof *devices);
    for (size_t i = 0; i < count; i++)
        devices[i] = *sched_device(app->sched, i);
    publish_set_view(app->publish, app->registry, devices, count);
    free(devices);
}

static void on_devices(void *context)
{
    struct app *app = context;
    show_publish(app);
    command_forget_answers(app);
    get_devices_known();
}

static void on_ready(void *context)
{
    const struct app *app = context;
    jobs_kick(app->jobs);
    if (app->helping != NULL)
        helping_kick(app->helping);
    explain_ready();
    limits_ready();
}

static bool is_idle(size_t device, void *context)
{
    const struct app *app = context;
    return background_is_idle(app->background, device);
}

static bool is_lent(size_t device, bool is_wanted, void *context)
{
    const struct app *app = context;
    return app->helping != NULL && helping_has(app->helping, device, is_wanted);
}

static void on_returned(void *context)
{
    const struct app *app = context;
    jobs_kick(app->jobs);
}

static void on_looked(void *context)
{
    struct app *app = context;
    jobs_kick(app->jobs);
}

static bool on_line(uint64_t client, const char *line, size_t length, void *context)
{
    return command_again(context, client, line, length);
}

static void on_request(
    uint64_t client, uid_t uid, json_t *message, const char *line, size_t length, void *context)
{
    command_dispatch(context, client, uid, message, line, length);
}

static void on_left(uint64_t client, void *context)
{
    get_client_left(client);
    import_client_left(client);
    explain_client_left(context, client);
    limits_client_left(context, client);
}

static void on_damage(const char *what, void *context)
{
    (void)context;
    log_warnx("damaged entry in the database, counted as absent: %s", what);
}

/* What would have been refused at the start is refused when it is found. */
static void on_unsound(const struct tune_error *why, void *context)
{
    (void)context;
    log_warnx("fatal: %s", why->text);
    _exit(1);
}

static void on_stored(void *context)
{
    const struct app *app = context;
    if (app->fleet != NULL)
        fleet_kick(app->fleet);
}

/* --- start ------------------------------------------------------------------------------------ */

/* A process started with 0, 1 or 2 closed would get the database or the socket there, and its own
 * log lines would be written over it. */
static void occupy_standard_descriptors(void)
{
    int descriptor;
    do
        descriptor = open("/dev/null", O_RDWR);
    while (descriptor >= 0 && descriptor <= 2);
    if (descriptor > 2)
        close(descriptor);
}

/* A source of our own, beside those of the kernels. */
static int load_source(struct app *app, const char *name, struct image_source *source, char **text,
    char content[33], struct tune_error *err)
{
    static char *const none[] = {NULL};
    char *path = xasprintf("%s/kernels_src/%s", app->config.data, name);
    *text = file_read_text(path);
    if (*text == NULL)
        tune_fail_errno(err, TUNE_EIO, "cannot read %s", path);
    free(path);
    if (*text == NULL)
        return -1;
    image_hash_text(*text, content);
    *source = (struct image_source){
        .name = name, .text = *text, .content = content, .toolkit_headers = none};
    return 0;
}

static int load_sources(struct app *app, struct tune_error *err)
{
    if (load_source(
            app, "harness.cu", &app->harness, &app->harness_text, app->harness_content, err) ||
        load_source(
            app, "limits.cu", &app->limits_source, &app->limits_text, app->limits_content, err))
        return -1;
    return 0;
}

static void load_kernels(struct app *app)
{
    const char *name, *reason;
    size_t count = registry_reload(app->registry);
    log_info("%zu kernels", count);
    for (size_t i = 0; registry_failure(app->registry, i, &name, &reason); i++)
        log_warnx("kernel %s is left out: %s", name, reason);
}

static int open_parts(struct app *app, struct tune_error *err)
{
    struct tuning_db_options options = {
        .has_outbox = app->config.fleet != NULL,
        .on_damage = on_damage,
        .on_unsound = on_unsound,
    };
    app->registry = registry_create((const char *const *)app->config.plugins);
    if (app->registry == NULL)
        return tune_fail(err, TUNE_ENOMEM, "no memory for the kernels");
    load_kernels(app);
    if (load_sources(app, err))
        return -1;
    app->db = tuning_db_open(app->config.db, &options, err);
    if (app->db == NULL)
        return -1;
    shipped_load(app->config.records, app->registry, app->db, &app->shipped);
    return 0;
}

/* Other users' programs cannot pass through the database's folder, so a daemon for all of them
 * publishes beside it. */
static void start_publish(struct app *app)
{
    char *folder = xasprintf(app->config.is_system ? "%s.served" : "%s/served", app->config.db);
    char *link = xasprintf("%s.served", app->config.socket);
    struct publish_options options = {
        .db = app->db,
        .db_dir = app->config.db,
        .folder = folder,
        .link = link,
        .allows_group = app->config.is_system,
    };
    app->publish = publish_start(&app->loop, &options);
    free(folder);
    free(link);
}

static int start_fleet(struct app *app, struct tune_error *err)
{
    if (app->config.fleet == NULL)
        return 0;
    struct fleet_deps deps = {
        .loop = &app->loop,
        .db = app->db,
        .registry = app->registry,
        .host = app->host,
        .url = app->config.fleet,
        .shares_emulated = app->config.fleet_shares_emulated,
        .limit_bytes = app->config.fleet_limit_bytes,
    };
    app->fleet = fleet_create(&deps, err);
    writer_watch(app->writer, on_stored, app);
    return app->fleet != NULL ? 0 : -1;
}

static void start_parts(struct app *app, struct tune_error *err)
{
    struct sched_options sched = {
        .worker_path = app->config.worker,
        .env = (const char *const *)app->config.worker_env,
        .compile_workers = app->config.compile_workers,
        .compile_deadline_ms = app->config.compile_deadline_ms,
        .compile_memory_limit_bytes = app->config.compile_memory_limit_bytes,
        .devices = app->config.devices,
        .on_devices = on_devices,
    };
    struct server_callbacks server = {on_line, on_request, on_left, app};
    struct jobs_callbacks jobs = {
        .is_idle = is_idle, .is_lent = is_lent, .on_event = on_job_event, .context = app};
    struct background_options background = {
        .worker_path = app->config.worker,
        .env = (const char *const *)app->config.worker_env,
        .busy_percent = app->config.background_busy_percent,
        .memory_percent = app->config.background_memory_percent,
    };
    struct tracer_options tracer = {
        .worker_path = app->config.worker,
        .emulator = app->config.emulator,
        .env = (const char *const *)app->config.trace_env,
        .memory_limit_bytes = app->config.compile_memory_limit_bytes,
    };
    app->memo = memo_create(MEMO_LIMIT_BYTES);
    /* The socket first: a second daemon must be refused before it starts anything. */
    app->server = server_start(&app->loop, app->config.socket, &server, err);
    if (app->server == NULL)
        return;
    server_allow_group(app->server, app->config.is_system);
    app->writer = writer_create(&app->loop, app->db, err);
    if (app->writer == NULL || start_fleet(app, err))
        return;
    start_publish(app);
    app->sched = sched_create(&app->loop, &sched, on_ready, app);
    app->images = images_create(&app->loop, app->sched, app->db, app->writer);
    app->background = background_create(&app->loop, app->sched, &background, on_looked, app);
    app->tracer = tracer_create(&app->loop, &tracer);
    app->nearest = nearest_create(app->db);
    app->sessions = sessions_create(app->db, app->writer);
    struct tuning_deps deps = {
        .loop = &app->loop,
        .sched = app->sched,
        .images = app->images,
        .db = app->db,
        .writer = app->writer,
        .harness = &app->harness,
        .compile_workers = app->config.compile_workers,
        .host = app->host,
        .is_system = app->config.is_system,
        .fleet = app->fleet,
    };
    struct limits_deps limits = {
        .sched = app->sched,
        .images = app->images,
        .db = app->db,
        .writer = app->writer,
        .source = &app->limits_source,
        .shipped = app->shipped.limits,
    };
    app->limits = limits_create(&limits);
    app->jobs = jobs_create(&deps, app->registry, &jobs);
    struct helping_deps helping = {.tuning = deps,
        .registry = app->registry,
        .jobs = app->jobs,
        .on_returned = on_returned,
        .context = app};
    if (app->fleet != NULL)
        app->helping = helping_create(&helping);
    if (jobs_load(app->jobs, err) == 0 && sessions_load(app->sessions, err) == 0)
        limits_load(app->limits, err);
}

/* --- stop ------------------------------------------------------------------------------------- */

static void on_publish_stopped(void *context)
{
    struct app *app = context;
    app->publish = NULL;
}

static void on_writer_stopped(void *context)
{
    struct app *app = context;
    app->writer = NULL;
    publish_stop(app->publish, on_publish_stopped, app);
}

static void on_sched_stopped(void *context)
{
    struct app *app = context;
    app->sched = NULL;
    images_destroy(app->images);
    app->images = NULL;
    limits_destroy(app->limits);
    app->limits = NULL;
    writer_stop(app->writer, on_writer_stopped, app);
}

static void on_fleet_stopped(void *context)
{
    struct app *app = context;
    sched_stop(app->sched, on_sched_stopped, app);
}

static void on_background_stopped(void *context)
{
    struct app *app = context;
    app->background = NULL;
    helping_destroy(app->helping);
    app->helping = NULL;
    jobs_destroy(app->jobs);
    app->jobs = NULL;
    struct fleet *fleet = app->fleet;
    app->fleet = NULL; /* commits go on meanwhile, and speak to it no more */
    if (fleet != NULL)
        fleet_stop(fleet, on_fleet_stopped, app);
    else
        on_fleet_stopped(app);
}

static void on_server_stopped(void *context)
{
    struct app *app = context;
    app->server = NULL;
    background_stop(app->background, on_background_stopped, app); /* jobs may go on asking it */
}

static void stop(struct app *app, const char *why)
{
    if (app->is_stopping)
        return;
    app->is_stopping = true;
    log_info("stopping: %s", why);
    struct tune_error err = {0};
    tune_fail(&err, TUNE_EBUSY, "the daemon is stopping");
    jobs_refuse_askers(app->jobs, &err);
    get_refuse_all(app, &err);
    explain_refuse_all(app, &err);
    limits_refuse_all(app, &err);
    tracer_stop(app->tracer);
    app->tracer = NULL;
    uv_close((uv_handle_t *)&app->on_int, NULL);
    uv_close((uv_handle_t *)&app->on_term, NULL);
    uv_close((uv_handle_t *)&app->on_hup, NULL);
    uv_close((uv_handle_t *)&app->idle_timer, NULL);
    server_stop(app->server, on_server_stopped, app);
}

static void on_end_signal(uv_signal_t *handle, int signal)
{
    stop(handle->data, strsignal(signal));
}

static void on_hangup(uv_signal_t *handle, int signal)
{
    struct app *app = handle->data;
    (void)signal;
    log_info("reloading the kernels");
    load_kernels(app);
    if (sched_devices_known(app->sched))
        show_publish(app);
    if (app->fleet != NULL)
        fleet_registry_changed(app->fleet);
    command_forget_answers(app);
}

static void on_idle_check(uv_timer_t *timer)
{
    struct app *app = timer->data;
    uint64_t now_ms = uv_now(&app->loop);
    bool is_helping = app->helping != NULL && helping_is_active(app->helping);
    if (server_client_count(app->server) > 0 || jobs_active_count(app->jobs) > 0 || is_helping)
        app->busy_at_ms = now_ms;
    else if (now_ms - app->busy_at_ms > app->config.idle_exit_ms)
        stop(app, "idle");
}

static void start_handles(struct app *app)
{
    uv_signal_init(&app->loop, &app->on_int);
    uv_signal_init(&app->loop, &app->on_term);
    uv_signal_init(&app->loop, &app->on_hup);
    uv_timer_init(&app->loop, &app->idle_timer);
    app->on_int.data = app->on_term.data = app->on_hup.data = app->idle_timer.data = app;
    uv_signal_start(&app->on_int, on_end_signal, SIGINT);
    uv_signal_start(&app->on_term, on_end_signal, SIGTERM);
    uv_signal_start(&app->on_hup, on_hangup, SIGHUP);
    if (app->config.idle_exit_ms != 0)
        uv_timer_start(&app->idle_timer, on_idle_check, IDLE_CHECK_MS, IDLE_CHECK_MS);
}

/* --- main ------------------------------------------------------------------------------------- */

static int check(struct app *app)
{
    struct tune_error err = {0};
    size_t damaged = 0;
    const char *name, *reason;
    int status = 0;
    if (open_parts(app, &err) || tuning_db_check(app->db, &damaged, &err)) {
        fprintf(stderr, "tunerd: %s\n", err.text);
        return 1;
    }
    printf("database %s: %zu damaged entries\n", app->config.db, damaged);
    for (size_t i = 0; registry_failure(app->registry, i, &name, &reason); i++) {
        printf("kernel %s: %s\n", name, reason);
        status = 1;
    }
    return damaged > 0 ? 1 : status;
}

static int salvage(const struct app *app)
{
    struct tune_error err = {0};
    struct salvage report;
    if (salvage_run(app->config.db, &report, &err)) {
        fprintf(stderr, "tunerd: %s\n", err.text);
        return 1;
    }
    if (report.aside[0] == '\0')
        printf("database %s is sound: nothing to salvage\n", app->config.db);
    else
        printf("database %s: %zu samples of %zu keys carried over; the damaged one is kept at %s\n",
            app->config.db, report.samples, report.keys, report.aside);
    return 0;
}

/* The database's file was cut short under a running daemon (LMDB reads it through a mapping). The
 * next start finds the damage. */
static void on_bus_error(int signal)
{
    static const char text[] = "fatal: the database's file was cut short or its disk failed while "
                               "it was in use: start tunerd "
                               "again, with --salvage if it refuses\n";
    ssize_t ignored = write(STDERR_FILENO, text, sizeof text - 1);
    (void)ignored;
    (void)signal;
    _exit(1);
}

static void redirect_log(const char *path)
{
    int descriptor = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (descriptor < 0 || dup2(descriptor, STDERR_FILENO) < 0)
        log_warn("cannot write the log to %s", path);
    if (descriptor >= 0)
        close(descriptor);
}

/* Into the background: a session of its own, the terminal given back once the socket answers. The
 * parent waits for that at the pipe whose other end is returned, or for the child's end. */
static int detach(void)
{
    int ready[2];
    if (pipe2(ready, O_CLOEXEC) != 0)
        log_fatal("cannot go into the background: %s", strerror(errno));
    pid_t child = fork();
    if (child < 0)
        log_fatal("cannot go into the background: %s", strerror(errno));
    if (child > 0) {
        char byte;
        close(ready[1]);
        exit(read(ready[0], &byte, 1) == 1 ? 0 : 1);
    }
    setsid();
    close(ready[0]);
    return ready[1];
}

static void tell_ready(const struct app *app, int ready)
{
    log_info("tunerd %s ready at %s, database %s%s", TUNE_VERSION, app->config.socket,
        app->config.db, app->config.emulate ? ", emulated" : "");
    if (ready < 0)
        return;
    ssize_t ignored = write(ready, "r", 1);
    (void)ignored;
    close(ready);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    close(null);
}

static void finish(struct app *app)
{
    memo_destroy(app->memo);
    sessions_destroy(app->sessions);
    nearest_destroy(app->nearest);
    tuning_db_close(app->db);
    registry_destroy(app->registry);
    free(app->harness_text);
    free(app->limits_text);
    shipped_finish(&app->shipped);
    config_finish(&app->config);
}

/* One for each client, as far as the operator allows. */
static void raise_descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    rlim_t wanted = SERVER_CLIENTS_MAX + SERVER_DESCRIPTORS_KEPT;
    if (limit.rlim_max != RLIM_INFINITY && limit.rlim_max < wanted)
        wanted = limit.rlim_max;
    if (limit.rlim_cur >= wanted)
        return;
    limit.rlim_cur = wanted;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        log_warn("cannot raise the limit of open files to %llu", (unsigned long long)wanted);
}

static int run(struct app *app)
{
    struct tune_error err = {0};
    int ready = app->config.foreground ? -1 : detach();
    if (app->config.log != NULL)
        redirect_log(app->config.log);
    signal(SIGPIPE, SIG_IGN);
    raise_descriptor_limit();
    signal(SIGBUS, on_bus_error);
    umask(0077);
    gethostname(app->host, sizeof app->host - 1);
    uv_loop_init(&app->loop);
    app->started_ns = uv_hrtime();
    app->busy_at_ms = uv_now(&app->loop);
    bool is_open = open_parts(app, &err) == 0;
    uv_update_time(&app->loop); /* a large database takes its time; deadlines begin now */
    if (is_open)
        start_parts(app, &err);
    if (err.code != TUNE_OK)
        log_fatal("%s", err.text);
    start_handles(app);
    tell_ready(app, ready);
    uv_run(&app->loop, UV_RUN_DEFAULT);
    if (uv_loop_close(&app->loop) == 0)
        return 0;
    log_warnx("the loop ended with something still open"); /* our mistake; seen by every e2e test */
    return 1;
}

/* Listings take up to 16 MiB for a moment, on any thread. glibc would keep such blocks in the heaps
 * of its threads, where they leave holes (five sixths of the heap under load, measured). Fewer
 * heaps are no cure: with two of them the loop waits for the others (p99 doubled, measured). */
static void keep_heaps_small(void)
{
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 256 << 10);
#endif
}

int main(int argc, char **argv)
{
    static struct app app;
    struct tune_error err = {0};
    occupy_standard_descriptors();
    keep_heaps_small();
    int status = config_parse(&app.config, argc, argv, &err);
    log_init(app.config.debug);
    if (status != 0) {
        fprintf(stderr, "tunerd: %s\n", err.text);
        config_finish(&app.config);
        return err.code == TUNE_EINVAL ? 2 : 1;
    }
    if (app.config.show_help || app.config.show_version) {
        printf("%s", app.config.show_help ? config_help : "tunerd " TUNE_VERSION "\n");
        return 0;
    }
    if (app.config.show_fleet_schema) {
        const char *schema = fleet_schema();
        if (schema == NULL)
            fputs("tunerd: this tunerd was built without the fleet (TUNE_FLEET)\n", stderr);
        return schema != NULL && fputs(schema, stdout) >= 0 && fflush(stdout) == 0 ? 0 : 1;
    }
    status = app.config.check ? check(&app) : app.config.salvage ? salvage(&app) : run(&app);
    finish(&app);
    return status;
}
