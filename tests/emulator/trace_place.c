/* From addresses of code to lines. Asks an addr2line that stays alive for the launch: it answers
 * each address at once, and reads the line table one time only. */
#include "trace_internal.h"

#include <inttypes.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAMES 256
#define ANSWER_LIMIT_S 10
#define END_OF_ANSWER                                                                              \
    "0xffffffffffffffff" /* an address of nothing, asked for after each question */

extern char **environ;

static struct {
    const struct loaded *loaded;
    pid_t pid; /* 0: not started; -1: cannot be asked */
    int socket;
    char text[4096]; /* received and not yet taken */
    size_t used;
    char *names[NAMES];
    size_t name_count;
} places;

/* --- the other process ------------------------------------------------------------------------ */

static bool start(void)
{
    int ends[2];
    char program[] = "addr2line", all[] = "-iae", file[64];
    char *arguments[] = {program, all, file, NULL};
    struct timeval limit = {.tv_sec = ANSWER_LIMIT_S};
    posix_spawn_file_actions_t actions;
    /* A socket, since writing to one whose reader has died need not raise a signal. */
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return false;
    snprintf(file, sizeof file, "/proc/%d/fd/%d", (int)getpid(), places.loaded->descriptor);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", 1, 0);
    int failed = posix_spawnp(&places.pid, program, &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (failed) {
        close(ends[0]);
        return false;
    }
    setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    places.socket = ends[0];
    places.used = 0;
    return true;
}

static void stop(void)
{
    if (places.pid > 0) {
        close(places.socket); /* the end of its input ends it */
        waitpid(places.pid, NULL, 0);
    }
    places.pid = 0;
}

/* One line without its end; false when none comes. */
static bool read_line(char *line, size_t room)
{
    char *end;
    while (!(end = memchr(places.text, '\n', places.used))) {
        ssize_t n = places.used == sizeof places.text
                        ? 0
                        : recv(places.socket, places.text + places.used,
                              sizeof places.text - places.used, 0);
        if (n <= 0)
            return false;
        places.used += (size_t)n;
    }
    size_t length = (size_t)(end - places.text);
    snprintf(line, room, "%.*s", (int)length, places.text);
    places.used -= length + 1;
    memmove(places.text, end + 1, places.used);
    return true;
}

/* --- lines ------------------------------------------------------------------------------------ */

static const char *name_of(const char *name)
{
    for (size_t i = 0; i < places.name_count; i++)
        if (strcmp(places.names[i], name) == 0)
            return places.names[i];
    char *copy = places.name_count < NAMES ? strdup(name) : NULL;
    if (!copy)
        return "?";
    places.names[places.name_count++] = copy;
    return copy;
}

static bool is_toolkit(const char *name)
{
    static const char *const headers[] = {
        "tune_cuda.h", "tune_small_floats.h", "cuda_fp16.h", "cuda_bf16.h", "cooperative_groups.h"};
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
        if (strcmp(name, headers[i]) == 0)
            return true;
    return false;
}

/* "./gemm.cu:42 (discriminator 3)"; false for "??:0". */
static bool read_place(char *line, struct trace_place *place)
{
    char *colon = strrchr(line, ':');
    int number = colon ? atoi(colon + 1) : 0;
    if (number <= 0)
        return false;
    *colon = '\0';
    const char *slash = strrchr(line, '/');
    *place = (struct trace_place){name_of(slash ? slash + 1 : line), (uint32_t)number};
    return true;
}

/* Reads one answer: the address, its lines from the innermost on, and the same for the address
 * behind it, of which nothing is known. */
static bool read_answer(struct trace_place *place)
{
    char line[1024];
    bool is_found = false;
    if (!read_line(line, sizeof line))
        return false;
    while (read_line(line, sizeof line)) {
        struct trace_place here;
        if (strcmp(line, END_OF_ANSWER) == 0)
            return read_line(line, sizeof line);
        if (is_found || !read_place(line, &here))
            continue;
        if (place->line == 0 || !is_toolkit(here.file))
            *place = here;
        is_found = !is_toolkit(here.file);
    }
    return false;
}

struct trace_place trace_place(uintptr_t pc)
{
    char question[64];
    struct trace_place place = {"?", 0};
    if (places.pid == 0 && !start())
        places.pid = -1;
    if (places.pid < 0)
        return place;
    /* A return address is that of the instruction after the call. */
    int length = snprintf(question, sizeof question, "0x%" PRIxPTR "\n" END_OF_ANSWER "\n",
        pc - places.loaded->base - 1);
    if (send(places.socket, question, (size_t)length, MSG_NOSIGNAL) != length ||
        !read_answer(&place)) {
        stop();
        places.pid = -1;
    }
    return place;
}

void trace_places_open(const struct loaded *loaded)
{
    places.loaded = loaded;
}

void trace_places_close(void)
{
    stop();
    for (size_t i = 0; i < places.name_count; i++)
        free(places.names[i]);
    places.name_count = 0;
}
