/* Many clients that ask in bursts, through a daemon's restarts: bench_ask [option...] SOCKET
 *
 * All clients are connected all the time; every burst another few of them send a `get` at once. A
 * client whose connection ends connects again and sends its request again, as a patient program
 * would; so it does when the daemon says that it is stopping. Prints one line of JSON:
 * {"asked","answered","failed","lost","retried","reconnects","median_us","p99_us","max_us",
 * "longest_retry_ms","first_failure"}. A request failed when it got an error, or an answer to
 * something else; it is lost when there is none after --limit. Times are of requests that were
 * sent once. Ends with status 1 where one failed or is lost.
 *
 *   --clients N  connected (1000)             --seconds N  how long (10)
 *   --asking N   of them at once (200)        --shapes N   in the database (100000)
 *   --pause N    ms between bursts (20)       --keys N     different ones asked (10000)
 *   --limit N    s for an answer (30) */
#include "asked.h"
#include "measure.h"
#include "roads.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define REPLY_ROOM 65536
#define RECONNECT_MS 5
#define TIMES_MAX ((size_t)1 << 24)
#define DESCRIPTORS_KEPT 16

struct client {
    int descriptor; /* -1: not connected */
    bool is_waiting, is_retry;
    size_t number; /* of its request */
    uint64_t asked_ms, sent;
    char request[ROAD_REQUEST_ROOM];
    size_t request_bytes;
    char *held;
    size_t held_bytes;
};

struct options {
    size_t clients, asking, pause_ms, limit_s, seconds, shapes, keys;
};

static struct options options = {
    .clients = 1000,
    .asking = 200,
    .pause_ms = 20,
    .limit_s = 30,
    .seconds = 10,
    .shapes = 100000,
    .keys = 10000,
};

static struct {
    size_t asked, answered, failed, lost, retried, reconnects, waiting;
    uint64_t longest_retry_ms;
    uint64_t *ticks;
    size_t tick_count;
    char first_failure[256];
} report;

static struct client *clients;
static int poller;
static struct sockaddr_un address = {.sun_family = AF_UNIX};
static uint64_t seed = 3;

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* --- connections ------------------------------------------------------------------------------ */

static void disconnect_client(struct client *client)
{
    close(client->descriptor);
    client->descriptor = -1;
    client->held_bytes = 0;
}

/* false while nobody listens, or too many stand in line: to be tried again. */
static bool connect_client(struct client *client)
{
    int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (descriptor < 0)
        bench_fail("no descriptor for a client: raise `ulimit -n`");
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = client};
    if (connect(descriptor, (const struct sockaddr *)&address, sizeof address) != 0) {
        close(descriptor);
        return false;
    }
    if (epoll_ctl(poller, EPOLL_CTL_ADD, descriptor, &event) != 0)
        bench_fail("cannot watch a connection");
    client->descriptor = descriptor;
    return true;
}

/* --- requests --------------------------------------------------------------------------------- */

/* A request is so short that it goes whole or the connection has ended. */
static void send_request(struct client *client)
{
    if (client->descriptor < 0)
        return; /* it goes when the client is connected again */
    client->sent = ticks_now();
    if (send(client->descriptor, client->request, client->request_bytes, MSG_NOSIGNAL) !=
        (ssize_t)client->request_bytes)
        disconnect_client(client);
}

static void ask(struct client *client)
{
    int64_t dims[ASKED_DIMS];
    size_t key = random_below(&seed, options.keys);
    asked_shape(key * (options.shapes / options.keys), options.shapes, dims);
    client->number = ++report.asked;
    client->request_bytes =
        road_find("tunerd")->ask(client->request, sizeof client->request, client->number, dims);
    client->asked_ms = now_ms();
    client->is_waiting = true;
    client->is_retry = false;
    report.waiting++;
    send_request(client);
}

static void retry(struct client *client)
{
    report.retried += !client->is_retry;
    client->is_retry = true;
    send_request(client);
}

static void end_wait(struct client *client)
{
    client->is_waiting = false;
    report.waiting--;
}

static void count_answer(struct client *client)
{
    uint64_t ticks = ticks_now() - client->sent, taken_ms = now_ms() - client->asked_ms;
    report.answered++;
    if (!client->is_retry && report.tick_count < TIMES_MAX)
        report.ticks[report.tick_count++] = ticks;
    if (client->is_retry && taken_ms > report.longest_retry_ms)
        report.longest_retry_ms = taken_ms;
    end_wait(client);
}

static void count_failure(struct client *client, const char *line, size_t length)
{
    if (report.failed++ == 0)
        snprintf(report.first_failure, sizeof report.first_failure, "%.*s", (int)length, line);
    if (client->is_waiting) /* else nobody asked */
        end_wait(client);
}

/* --- replies ---------------------------------------------------------------------------------- */

static bool has_text(const char *line, size_t length, const char *text)
{
    return memmem(line, length, text, strlen(text)) != NULL;
}

static void take_line(struct client *client, const char *line, size_t length)
{
    char head[64];
    int head_bytes =
        snprintf(head, sizeof head, "{\"jsonrpc\":\"2.0\",\"id\":%zu,", client->number);
    bool is_its = client->is_waiting && length > (size_t)head_bytes &&
                  memcmp(line, head, (size_t)head_bytes) == 0;
    if (is_its && has_text(line, length, "\"origin\":\"exact\""))
        count_answer(client);
    else if (client->is_waiting && has_text(line, length, "the daemon is stopping"))
        disconnect_client(client);
    else
        count_failure(client, line, length);
}

static void take_lines(struct client *client)
{
    char *at = client->held, *end;
    size_t left = client->held_bytes;
    while (client->descriptor >= 0 && (end = memchr(at, '\n', left)) != NULL) {
        take_line(client, at, (size_t)(end - at));
        left -= (size_t)(end + 1 - at);
        at = end + 1;
    }
    if (client->descriptor < 0)
        return;
    memmove(client->held, at, left);
    client->held_bytes = left;
    if (left == REPLY_ROOM)
        bench_fail("a reply has more than %d bytes", REPLY_ROOM);
}

static void on_readable(struct client *client)
{
    ssize_t count = recv(
        client->descriptor, client->held + client->held_bytes, REPLY_ROOM - client->held_bytes, 0);
    if (count > 0) {
        client->held_bytes += (size_t)count;
        take_lines(client);
    } else if (count == 0 || errno != EAGAIN) {
        disconnect_client(client);
    }
}

/* --- the run ---------------------------------------------------------------------------------- */

static void look_after(struct client *client)
{
    if (client->descriptor < 0 && connect_client(client)) {
        report.reconnects++;
        if (client->is_waiting)
            retry(client);
    }
    if (client->is_waiting && now_ms() - client->asked_ms > options.limit_s * 1000) {
        report.lost++;
        end_wait(client);
    }
}

static void ask_burst(void)
{
    static size_t next;
    for (size_t i = 0; i < options.asking; i++) {
        struct client *client = &clients[next++ % options.clients];
        if (!client->is_waiting)
            ask(client);
    }
}

static void take_replies(int limit_ms)
{
    struct epoll_event events[256];
    int count = epoll_wait(poller, events, 256, limit_ms);
    for (int i = 0; i < count; i++) {
        struct client *client = events[i].data.ptr;
        if (client->descriptor >= 0)
            on_readable(client);
    }
}

static void run(void)
{
    uint64_t end_ms = now_ms() + options.seconds * 1000, burst_ms = 0, looked_ms = 0, time_ms;
    while ((time_ms = now_ms()) < end_ms || report.waiting > 0) {
        if (time_ms - looked_ms >= RECONNECT_MS) {
            looked_ms = time_ms;
            for (size_t i = 0; i < options.clients; i++)
                look_after(&clients[i]);
        }
        if (time_ms >= burst_ms && time_ms < end_ms) {
            burst_ms = time_ms + options.pause_ms;
            ask_burst();
        }
        take_replies(burst_ms > time_ms && burst_ms - time_ms < RECONNECT_MS
                         ? (int)(burst_ms - time_ms)
                         : RECONNECT_MS);
    }
}

static void connect_all(void)
{
    uint64_t end_ms = now_ms() + options.limit_s * 1000;
    clients = bench_alloc(options.clients, sizeof *clients);
    for (size_t i = 0; i < options.clients; i++) {
        clients[i].held = bench_alloc(1, REPLY_ROOM);
        while (!connect_client(&clients[i])) {
            if (now_ms() > end_ms)
                bench_fail("client %zu cannot connect to %s", i, address.sun_path);
            usleep(1000);
        }
    }
}

static void print_report(void)
{
    struct spread spread = {0};
    if (report.tick_count > 0)
        spread = spread_of(report.ticks, report.tick_count);
    double max_ns =
        report.tick_count > 0 ? (double)report.ticks[report.tick_count - 1] * ns_per_tick() : 0;
    printf("{\"asked\": %zu, \"answered\": %zu, \"failed\": %zu, \"lost\": %zu, \"retried\": %zu, "
           "\"reconnects\": %zu, \"median_us\": %.0f, \"p99_us\": %.0f, \"max_us\": %.0f, "
           "\"longest_retry_ms\": %llu, \"first_failure\": \"",
        report.asked, report.answered, report.failed, report.lost, report.retried,
        report.reconnects, spread.median_ns / 1000, spread.p99_ns / 1000, max_ns / 1000,
        (unsigned long long)report.longest_retry_ms);
    for (const char *at = report.first_failure; *at != '\0'; at++)
        printf(*at == '"' || *at == '\\' ? "\\%c" : "%c", *at);
    printf("\"}\n");
}

/* --- main ------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    size_t *number;
} numbers[] = {{"clients", &options.clients}, {"asking", &options.asking},
    {"pause", &options.pause_ms}, {"limit", &options.limit_s}, {"seconds", &options.seconds},
    {"shapes", &options.shapes}, {"keys", &options.keys}};

#define NUMBER_COUNT (sizeof numbers / sizeof numbers[0])

static void parse_options(int argc, char **argv)
{
    struct option names[NUMBER_COUNT + 1] = {0};
    int which, letter;
    for (size_t i = 0; i < NUMBER_COUNT; i++)
        names[i] = (struct option){numbers[i].name, required_argument, NULL, 'n'};
    while ((letter = getopt_long(argc, argv, "", names, &which)) != -1) {
        if (letter == '?')
            exit(2);
        if ((*numbers[which].number = strtoul(optarg, NULL, 10)) == 0)
            bench_fail("--%s takes a number above 0", numbers[which].name);
    }
    if (argc - optind != 1 || strlen(argv[optind]) >= sizeof address.sun_path ||
        options.keys > options.shapes || options.asking > options.clients)
        bench_fail("usage: bench_ask [option...] SOCKET");
    strcpy(address.sun_path, argv[optind]);
}

static void raise_descriptor_limit(void)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur < options.clients + DESCRIPTORS_KEPT)
        bench_fail("%zu clients need as many descriptors: raise `ulimit -Hn`", options.clients);
}

int main(int argc, char **argv)
{
    parse_options(argc, argv);
    raise_descriptor_limit();
    poller = epoll_create1(EPOLL_CLOEXEC);
    report.ticks = bench_alloc(TIMES_MAX, sizeof *report.ticks);
    ns_per_tick();
    connect_all();
    run();
    print_report();
    return report.failed + report.lost > 0;
}
