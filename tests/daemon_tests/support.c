/* See support.h. */
#include "support.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define WAIT_LIMIT_MS 30000
#define TEST_LIMIT_S 100
#define ENV_MAX 512

extern char **environ;

static uv_loop_t loop;
static uv_timer_t limit;
static bool is_limit_over;
static char folder[256];
static const char *env[ENV_MAX];
static size_t env_count;
static char assignments[16][300];
static size_t assignment_count;
static int descriptors_at_start;

int open_descriptors(void)
{
    int count = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (readdir(dir) != NULL)
        count++;
    closedir(dir);
    return count;
}

bool has_children(void)
{
    siginfo_t info;
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

static void on_limit(uv_timer_t *timer)
{
    (void)timer;
    is_limit_over = true;
}

int support_start(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    alarm(TEST_LIMIT_S); /* a loop that does not run dry after a failure ends the program */
    for (int descriptor = 3; descriptor < 1024; descriptor++)
        fcntl(descriptor, F_SETFD, FD_CLOEXEC); /* the caller's own must not pass for ours */
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/tune-daemon-XXXXXX", base ? base : "/tmp");
    if (mkdtemp(folder) == NULL)
        return -1;
    env_count = assignment_count = 0;
    for (size_t i = 0; environ[i] != NULL && env_count < ENV_MAX - 20; i++)
        if (strncmp(environ[i], "FAKE_", 5) != 0)
            env[env_count++] = environ[i];
    env[env_count] = NULL;
    char log[300];
    snprintf(log, sizeof log, "FAKE_LOG=%s", path_in("fake.log"));
    set_fake(log);
    /* libuv keeps a pipe for signals and a reserve descriptor per process and loop: they are made
     * once here, before counting. */
    uv_loop_t warm_up;
    uv_loop_init(&warm_up);
    uv_loop_close(&warm_up);
    descriptors_at_start = open_descriptors();
    uv_loop_init(&loop);
    uv_timer_init(&loop, &limit);
    uv_unref((uv_handle_t *)&limit);
    is_limit_over = false;
    return 0;
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
    (void)status, (void)kind, (void)walk;
    return remove(path);
}

int support_finish(void **state)
{
    (void)state;
    uv_close((uv_handle_t *)&limit, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    alarm(0);
    assert_false(has_children());
    assert_int_equal(open_descriptors(), descriptors_at_start);
    return nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

uv_loop_t *test_loop(void)
{
    return &loop;
}

void run_until(bool (*is_done)(void *context), void *context)
{
    uv_timer_start(&limit, on_limit, WAIT_LIMIT_MS, 0);
    uv_ref((uv_handle_t *)&limit);
    while (!is_done(context)) {
        uv_run(&loop, UV_RUN_ONCE);
        if (is_limit_over)
            fail_msg("waited %d ms in vain", WAIT_LIMIT_MS);
    }
    uv_unref((uv_handle_t *)&limit);
    uv_timer_stop(&limit);
}

static bool is_true(void *context)
{
    return *(const bool *)context;
}

void run_until_true(const bool *flag)
{
    run_until(is_true, (void *)flag);
}

void run_turns(int turns)
{
    while (turns-- > 0)
        uv_run(&loop, UV_RUN_NOWAIT);
}

const char *path_in(const char *name)
{
    static char paths[4][300];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

const char *fake_worker(void)
{
    return FAKE_WORKER;
}

void set_fake(const char *assignment)
{
    assert_true(assignment_count < sizeof assignments / sizeof assignments[0]);
    char *copy = assignments[assignment_count++];
    snprintf(copy, sizeof assignments[0], "%s", assignment);
    size_t name = (size_t)(strchr(copy, '=') - copy) + 1, i = 0;
    while (i < env_count && strncmp(env[i], copy, name) != 0)
        i++;
    env[i] = copy;
    if (i == env_count)
        env[++env_count] = NULL;
}

const char *const *fake_env(void)
{
    return env;
}

/* Counts the lines that begin with `text`; *number becomes what follows in the first. */
static int walk_log(const char *text, int *number)
{
    FILE *file = fopen(path_in("fake.log"), "re");
    char line[256];
    int count = 0;
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, text, strlen(text)) != 0)
            continue;
        if (count++ == 0 && number != NULL)
            *number = atoi(line + strlen(text));
    }
    if (file != NULL)
        fclose(file);
    return count;
}

int noted(const char *text)
{
    return walk_log(text, NULL);
}

int noted_number(const char *text)
{
    int number = -1;
    walk_log(text, &number);
    return number;
}

int noted_ahead(const char *leader, const char *follower)
{
    FILE *file = fopen(path_in("fake.log"), "re");
    char line[256];
    int ahead = 0, most = 0;
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        ahead += strncmp(line, leader, strlen(leader)) == 0;
        ahead -= strncmp(line, follower, strlen(follower)) == 0;
        most = ahead > most ? ahead : most;
    }
    if (file != NULL)
        fclose(file);
    return most;
}
