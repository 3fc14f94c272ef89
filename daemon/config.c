/* See config.h. The build tree and an installed prefix have one shape, and paths are found from
 * where the program lies, so that a tree can be moved. */
#include "daemon/config.h"

#include "client/tune_rpc.h"
#include "daemon/xmalloc.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

const char config_help[] =
    "usage: tunerd [options]\n"
    "Finds, keeps and serves the best launch configuration of CUDA kernels.\n"
    "\n"
    "  --foreground            stay attached to the terminal; log to standard error\n"
    "  --socket PATH           listen here (default: TUNE_SOCKET, $XDG_RUNTIME_DIR/tunerd.sock,\n"
    "                          /tmp/tunerd-UID/tunerd.sock)\n"
    "  --db DIR                the tuning database (default: $XDG_DATA_HOME/tunerd/db)\n"
    "  --plugins DIR           search kernels here first; may be given again (also "
    "TUNE_PLUGIN_PATH)\n"
    "  --records DIR           records that came with the program (default: share/tunerd/records\n"
    "                          where it is installed); an empty folder: none\n"
    "  --cuda DIR              look for libcuda and libnvrtc here first (also TUNE_CUDA_DIR)\n"
    "  --emulate               use the CPU emulator in place of a GPU (also TUNE_EMULATE=1)\n"
    "  --compile-workers N     compilers at a time (default: cores - 1)\n"
    "  --compile-deadline S    seconds one compile may take (default: 60)\n"
    "  --compile-memory MIB    resident memory of one compiler (default: 4096)\n"
    "  --devices LIST          ordinals of the GPUs to use, e.g. 0,2 (default: all)\n"
    "  --background-evals N    configurations that one background sweep tries; 0: none are run\n"
    "                          (default: 200)\n"
    "  --background-seconds S  time that one may take (default: 120)\n"
    "  --background-busy P     it begins only while the GPU is at work at most P % of the time\n"
    "                          (default: 10)\n"
    "  --background-memory P   and at most P % of its memory is in use (default: 50)\n"
    "  --fleet URL             share what is measured with other machines, through PostgreSQL: a "
    "URL\n"
    "                          or connection text of libpq (also TUNE_FLEET, where it is not seen\n"
    "                          in the list of processes; passwords belong into ~/.pgpass)\n"
    "  --fleet-limit MIB       take rows of others until the database is so large (default: 8192)\n"
    "  --fleet-emulated        share rows of emulated devices too, for tests\n"
    "  --fleet-schema          print the SQL that makes the fleet's tables, and end\n"
    "  --idle-exit S           end after S seconds without clients and jobs (default: never)\n"
    "  --system                a daemon for all users of a group: no kernels from users' folders\n"
    "  --log FILE              append the log here instead of standard error\n"
    "  --debug                 log more\n"
    "  --check                 check the database and the kernels, print what is wrong, and end\n"
    "  --salvage               move a damaged database aside, keep what can be read of it, and "
    "end\n"
    "  --help, --version\n";

enum option_key {
    KEY_FOREGROUND = 1000,
    KEY_SOCKET,
    KEY_DB,
    KEY_PLUGINS,
    KEY_RECORDS,
    KEY_CUDA,
    KEY_EMULATE,
    KEY_WORKERS,
    KEY_DEADLINE,
    KEY_MEMORY,
    KEY_DEVICES,
    KEY_BACKGROUND_EVALS,
    KEY_BACKGROUND_SECONDS,
    KEY_BACKGROUND_BUSY,
    KEY_BACKGROUND_MEMORY,
    KEY_FLEET,
    KEY_FLEET_LIMIT,
    KEY_FLEET_EMULATED,
    KEY_FLEET_SCHEMA,
    KEY_IDLE,
    KEY_SYSTEM,
    KEY_LOG,
    KEY_DEBUG,
    KEY_CHECK,
    KEY_SALVAGE,
    KEY_HELP,
    KEY_VERSION,
};

static const struct option options[] = {
    {"foreground", no_argument, NULL, KEY_FOREGROUND},
    {"socket", required_argument, NULL, KEY_SOCKET},
    {"db", required_argument, NULL, KEY_DB},
    {"plugins", required_argument, NULL, KEY_PLUGINS},
    {"records", required_argument, NULL, KEY_RECORDS},
    {"cuda", required_argument, NULL, KEY_CUDA},
    {"emulate", no_argument, NULL, KEY_EMULATE},
    {"compile-workers", required_argument, NULL, KEY_WORKERS},
    {"compile-deadline", required_argument, NULL, KEY_DEADLINE},
    {"compile-memory", required_argument, NULL, KEY_MEMORY},
    {"devices", required_argument, NULL, KEY_DEVICES},
    {"background-evals", required_argument, NULL, KEY_BACKGROUND_EVALS},
    {"background-seconds", required_argument, NULL, KEY_BACKGROUND_SECONDS},
    {"background-busy", required_argument, NULL, KEY_BACKGROUND_BUSY},
    {"background-memory", required_argument, NULL, KEY_BACKGROUND_MEMORY},
    {"fleet", required_argument, NULL, KEY_FLEET},
    {"fleet-limit", required_argument, NULL, KEY_FLEET_LIMIT},
    {"fleet-emulated", no_argument, NULL, KEY_FLEET_EMULATED},
    {"fleet-schema", no_argument, NULL, KEY_FLEET_SCHEMA},
    {"idle-exit", required_argument, NULL, KEY_IDLE},
    {"system", no_argument, NULL, KEY_SYSTEM},
    {"log", required_argument, NULL, KEY_LOG},
    {"debug", no_argument, NULL, KEY_DEBUG},
    {"check", no_argument, NULL, KEY_CHECK},
    {"salvage", no_argument, NULL, KEY_SALVAGE},
    {"help", no_argument, NULL, KEY_HELP},
    {"version", no_argument, NULL, KEY_VERSION},
    {0},
};

static int parse_number(
    const char *text, const char *option, long min, long max, long *out, struct tune_error *err)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value < min || value > max)
        return tune_fail(err, TUNE_EINVAL,
            "--%s takes a whole number from %ld to %ld, not \"%.40s\"", option, min, max, text);
    *out = value;
    return 0;
}

static int add_folder(struct config *config, const char *folder, struct tune_error *err)
{
    if (config->plugin_count == CONFIG_FOLDERS_MAX)
        return tune_fail(
            err, TUNE_ELIMIT, "at most %d folders of kernels can be searched", CONFIG_FOLDERS_MAX);
    config->plugins[config->plugin_count++] = xstrdup(folder);
    return 0;
}

static void replace(char **text, const char *with)
{
    free(*text);
    *text = xstrdup(with);
}

/* An option of sweeps in the background. */
static int take_background(
    struct config *config, int key, const char *value, struct tune_error *err)
{
    static const struct {
        int key;
        const char *name;
        long min, max;
        size_t place;
    } options_of_it[] = {
        {KEY_BACKGROUND_EVALS, "background-evals", 0, 1000000,
            offsetof(struct config, background_evals)},
        {KEY_BACKGROUND_SECONDS, "background-seconds", 1, 86400,
            offsetof(struct config, background_seconds)},
        {KEY_BACKGROUND_BUSY, "background-busy", 0, 100,
            offsetof(struct config, background_busy_percent)},
        {KEY_BACKGROUND_MEMORY, "background-memory", 0, 100,
            offsetof(struct config, background_memory_percent)},
    };
    size_t i = 0;
    while (options_of_it[i].key != key)
        i++;
    long number = 0;
    if (parse_number(
            value, options_of_it[i].name, options_of_it[i].min, options_of_it[i].max, &number, err))
        return -1;
    *(unsigned *)(void *)((char *)config + options_of_it[i].place) = (unsigned)number;
    return 0;
}

static int take_option(struct config *config, int key, const char *value, struct tune_error *err)
{
    long number = 0;
    switch (key) {
    case KEY_FOREGROUND:
        config->foreground = true;
        return 0;
    case KEY_SOCKET:
        replace(&config->socket, value);
        return 0;
    case KEY_DB:
        replace(&config->db, value);
        return 0;
    case KEY_PLUGINS:
        return add_folder(config, value, err);
    case KEY_RECORDS:
        replace(&config->records, value);
        return 0;
    case KEY_CUDA:
        replace(&config->cuda, value);
        return 0;
    case KEY_EMULATE:
        config->emulate = true;
        return 0;
    case KEY_WORKERS:
        if (parse_number(value, "compile-workers", 1, 256, &number, err))
            return -1;
        config->compile_workers = (unsigned)number;
        return 0;
    case KEY_DEADLINE:
        if (parse_number(value, "compile-deadline", 1, 3600, &number, err))
            return -1;
        config->compile_deadline_ms = (uint64_t)number * 1000;
        return 0;
    case KEY_MEMORY:
        if (parse_number(value, "compile-memory", 64, 1 << 20, &number, err))
            return -1;
        config->compile_memory_limit_bytes = (size_t)number << 20;
        return 0;
    case KEY_DEVICES:
        if (value[0] == '\0' || value[strspn(value, "0123456789,")] != '\0')
            return tune_fail(
                err, TUNE_EINVAL, "--devices takes ordinals such as 0,2, not \"%.40s\"", value);
        replace(&config->devices, value);
        return 0;
    case KEY_BACKGROUND_EVALS:
    case KEY_BACKGROUND_SECONDS:
    case KEY_BACKGROUND_BUSY:
    case KEY_BACKGROUND_MEMORY:
        return take_background(config, key, value, err);
    case KEY_FLEET:
        replace(&config->fleet, value);
        return 0;
    case KEY_FLEET_LIMIT:
        if (parse_number(value, "fleet-limit", 1, 65536, &number, err))
            return -1;
        config->fleet_limit_bytes = (size_t)number << 20;
        return 0;
    case KEY_FLEET_EMULATED:
        config->fleet_shares_emulated = true;
        return 0;
    case KEY_FLEET_SCHEMA:
        config->show_fleet_schema = true;
        return 0;
    case KEY_IDLE:
        if (parse_number(value, "idle-exit", 1, 1 << 30, &number, err))
            return -1;
        config->idle_exit_ms = (uint64_t)number * 1000;
        return 0;
    case KEY_SYSTEM:
        config->is_system = true;
        return 0;
    case KEY_LOG:
        replace(&config->log, value);
        return 0;
    case KEY_DEBUG:
        config->debug = true;
        return 0;
    case KEY_CHECK:
        config->check = true;
        return 0;
    case KEY_SALVAGE:
        config->salvage = true;
        return 0;
    case KEY_HELP:
        config->show_help = true;
        return 0;
    case KEY_VERSION:
        config->show_version = true;
        return 0;
    default:
        return tune_fail(err, TUNE_EINVAL, "unknown or incomplete option; see tunerd --help");
    }
}

static int parse_options(struct config *config, int argc, char **argv, struct tune_error *err)
{
    int key;
    opterr = 0;
    optind = 1;
    while ((key = getopt_long(argc, argv, "+", options, NULL)) != -1)
        if (take_option(config, key, optarg, err))
            return -1;
    if (optind < argc)
        return tune_fail(err, TUNE_EINVAL, "tunerd takes no argument \"%.60s\"; see tunerd --help",
            argv[optind]);
    return 0;
}

/* --- where things lie ------------------------------------------------------------------------- */

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

/* The prefix: the program is PREFIX/bin/tunerd. */
static char *find_prefix(struct tune_error *err)
{
    char self[4096];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length <= 0) {
        tune_fail_errno(err, TUNE_EIO, "cannot tell where tunerd is installed (/proc/self/exe)");
        return NULL;
    }
    self[length] = '\0';
    for (int i = 0; i < 2; i++) {
        char *slash = strrchr(self, '/');
        if (slash != NULL)
            *slash = '\0';
    }
    return xstrdup(self);
}

static char *first_that_exists(char **candidates, size_t count)
{
    char *found = NULL;
    for (size_t i = 0; i < count; i++) {
        if (found == NULL && exists(candidates[i]))
            found = candidates[i];
        else
            free(candidates[i]);
    }
    return found;
}

static int find_parts(struct config *config, const char *prefix, struct tune_error *err)
{
    const char *worker = getenv("TUNE_WORKER");
    char *workers[] = {
        worker ? xstrdup(worker) : xasprintf("%s/libexec/tunerd/tune-worker", prefix),
        xasprintf("%s/bin/tune-worker", prefix),
        xasprintf("%s/lib/tunerd/tune-worker", prefix),
    };
    config->worker = first_that_exists(workers, 3);
    if (config->worker == NULL)
        return tune_fail(err, TUNE_ENOTFOUND,
            "tune-worker is not found below %s: install the whole package, or name it in "
            "TUNE_WORKER",
            prefix);
    config->data = xasprintf("%s/share/tunerd", prefix);
    if (!exists(config->data))
        return tune_fail(err, TUNE_ENOTFOUND,
            "the kernels are not found at %s: install the whole package", config->data);
    if (config->records == NULL)
        config->records = xasprintf("%s/records", config->data);
    return 0;
}

/* Kernels are traced on it too, whatever they are timed on. */
static int find_emulator(struct config *config, const char *prefix, struct tune_error *err)
{
    char *folders[] = {
        xasprintf("%s/lib/tunerd/emulator", prefix),
        xasprintf("%s/%s/tunerd/emulator", prefix, TUNE_LIBDIR),
    };
    config->emulator = first_that_exists(folders, 2);
    if (!config->emulate)
        return 0;
    if (config->emulator == NULL)
        return tune_fail(
            err, TUNE_ENOTFOUND, "the emulator is not installed below %s/lib/tunerd", prefix);
    replace(&config->cuda, config->emulator);
    return 0;
}

static int add_plugin_path(struct config *config, struct tune_error *err)
{
    const char *path = getenv("TUNE_PLUGIN_PATH");
    if (path == NULL)
        return 0;
    char *copy = xstrdup(path), *rest = copy, *folder;
    int status = 0;
    while (status == 0 && (folder = strsep(&rest, ":")) != NULL)
        if (*folder != '\0')
            status = add_folder(config, folder, err);
    free(copy);
    return status;
}

static char *user_data_folder(void)
{
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    if (data != NULL && data[0] == '/')
        return xasprintf("%s/tunerd", data);
    if (home != NULL && home[0] == '/')
        return xasprintf("%s/.local/share/tunerd", home);
    return NULL;
}

static int fill_folders(struct config *config, struct tune_error *err)
{
    char *user = config->is_system ? NULL : user_data_folder();
    int status = 0;
    if (!config->is_system)
        status = add_plugin_path(config, err);
    if (status == 0 && user != NULL) {
        char *folder = xasprintf("%s/plugins", user);
        status = add_folder(config, folder, err);
        free(folder);
    }
    if (status == 0) {
        char *folder = xasprintf("%s/plugins", config->data);
        status = add_folder(config, folder, err);
        free(folder);
    }
    if (status == 0 && config->db == NULL && config->is_system)
        config->db = xstrdup("/var/lib/tunerd");
    else if (status == 0 && config->db == NULL && user != NULL)
        config->db = xasprintf("%s/db", user);
    else if (status == 0 && config->db == NULL)
        status = tune_fail(err, TUNE_EINVAL,
            "there is no HOME and no XDG_DATA_HOME: say where the database is with --db DIR");
    free(user);
    return status;
}

/* The folder of the fallback socket, /tmp/tunerd-UID, is made by whoever comes first; it must be
 * ours. */
static int make_socket_folder(const char *path, struct tune_error *err)
{
    char folder[TUNE_SOCKET_PATH_BYTES];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash == NULL || slash == folder)
        return 0;
    *slash = '\0';
    if (mkdir(folder, 0700) != 0 && errno != EEXIST)
        return tune_fail_errno(err, TUNE_EIO, "cannot make the socket's folder %s", folder);
    struct stat status;
    int found = lstat(folder, &status);
    if (found == 0 && S_ISLNK(status.st_mode) && (status.st_uid == 0 || status.st_uid == geteuid()))
        found = stat(folder, &status); /* /var/run, say; a stranger's link is not followed */
    if (found != 0 || !S_ISDIR(status.st_mode))
        return tune_fail(err, TUNE_EINVAL, "the socket's folder %s is not a folder", folder);
    /* Whoever owns a folder can exchange what lies in it, sticky or not. */
    bool is_private = status.st_uid == geteuid() && (status.st_mode & 0022) == 0;
    bool is_shared =
        status.st_uid == 0 && ((status.st_mode & 0002) == 0 || (status.st_mode & S_ISVTX) != 0);
    if (!is_private && !is_shared)
        return tune_fail(err, TUNE_EPERM,
            "others may write the socket's folder %s: choose one of your own with --socket",
            folder);
    return 0;
}

static int fill_socket(struct config *config, struct tune_error *err)
{
    char path[TUNE_SOCKET_PATH_BYTES];
    const char *asked = config->socket;
    if (asked == NULL && config->is_system)
        asked = TUNE_SYSTEM_SOCKET;
    if (tune_socket_path(asked, path, err))
        return -1;
    replace(&config->socket, path);
    return config->check || config->salvage ? 0 : make_socket_folder(path, err);
}

static bool begins_with_one_of(const char *text, const char *const *beginnings)
{
    for (; *beginnings != NULL; beginnings++)
        if (strncmp(text, *beginnings, strlen(*beginnings)) == 0)
            return true;
    return false;
}

/* The environment of workers: ours, with TUNE_CUDA_DIR as resolved, and modules loaded eagerly,
 * since a lazy load would fall into the first timed launch. The fleet's password is not for them.
 * Without `has_scenario` faults that the emulator is told to make are left out. New. */
static char **worker_env(const char *cuda, bool has_scenario)
{
    static const char *const left_out[] = {
        "TUNE_CUDA_DIR=", "CUDA_MODULE_LOADING=", "TUNE_FLEET=", "PGPASSWORD=", NULL};
    static const char *const scenario[] = {"TUNE_SCENARIO=", NULL};
    size_t count = 0, used = 0;
    while (environ[count] != NULL)
        count++;
    char **env = xcalloc(count + 3, sizeof *env);
    for (size_t i = 0; i < count; i++)
        if (!begins_with_one_of(environ[i], left_out) &&
            (has_scenario || !begins_with_one_of(environ[i], scenario)))
            env[used++] = xstrdup(environ[i]);
    if (cuda != NULL)
        env[used++] = xasprintf("TUNE_CUDA_DIR=%s", cuda);
    env[used++] = xstrdup("CUDA_MODULE_LOADING=EAGER");
    return env;
}

/* An emulated daemon is for tests, and its scenario is for all of its workers. */
static void fill_worker_env(struct config *config)
{
    config->worker_env = worker_env(config->cuda, true);
    config->trace_env = worker_env(config->emulator, config->emulate);
}

static void fill_defaults(struct config *config)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (config->compile_workers == 0)
        config->compile_workers = cores > 2 ? (unsigned)cores - 1 : 1;
    if (config->compile_deadline_ms == 0)
        config->compile_deadline_ms = 60000;
    if (config->compile_memory_limit_bytes == 0)
        config->compile_memory_limit_bytes = (size_t)4 << 30;
    const char *emulate = getenv("TUNE_EMULATE");
    if (emulate != NULL && strcmp(emulate, "1") == 0)
        config->emulate = true;
    if (config->cuda == NULL)
        config->cuda = xstrdup(getenv("TUNE_CUDA_DIR"));
    const char *fleet = getenv("TUNE_FLEET");
    if (config->fleet == NULL && fleet != NULL && fleet[0] != '\0')
        config->fleet = xstrdup(fleet);
}

int config_parse(struct config *config, int argc, char **argv, struct tune_error *err)
{
    *config = (struct config){
        .background_evals = 200,
        .background_seconds = 120,
        .background_busy_percent = 10,
        .background_memory_percent = 50,
        .fleet_limit_bytes = (size_t)8 << 30,
    };
    if (parse_options(config, argc, argv, err))
        return -1;
    if (config->show_help || config->show_version || config->show_fleet_schema)
        return 0;
    fill_defaults(config);
    char *prefix = find_prefix(err);
    if (prefix == NULL)
        return -1;
    int status = find_parts(config, prefix, err) || fill_folders(config, err) ||
                         fill_socket(config, err) || find_emulator(config, prefix, err)
                     ? -1
                     : 0;
    free(prefix);
    if (status == 0)
        fill_worker_env(config);
    return status;
}

static void free_env(char **env)
{
    for (size_t i = 0; env != NULL && env[i] != NULL; i++)
        free(env[i]);
    free(env);
}

void config_finish(struct config *config)
{
    for (size_t i = 0; i < config->plugin_count; i++)
        free(config->plugins[i]);
    free_env(config->worker_env);
    free_env(config->trace_env);
    free(config->socket);
    free(config->db);
    free(config->log);
    free(config->worker);
    free(config->data);
    free(config->records);
    free(config->cuda);
    free(config->emulator);
    free(config->devices);
    free(config->fleet);
    *config = (struct config){0};
}
