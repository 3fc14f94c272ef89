/* Asks a server and measures: bench_client [option...] ask|fill|first ROAD SOCKET
 *
 *   ask    after each key was asked once, untimed, random ones of them; prints one line of JSON:
 *          {"median_ns","p99_ns","per_s","requests","request_bytes","reply_bytes"}, the bytes of
 * one each; a time is that of a round trip (of a whole pipeline, with --depth) first  each key
 * once, in random order, timed fill   stores a value under each key (redis, memcached) A road is
 * one of roads.h, or "hiredis": Redis through its C client.
 *
 *   --clients N   processes that ask at once (1)      --depth N    requests sent before the first
 *   --requests N  of each client (20000)                           reply is read (1)
 *   --keys N      different keys asked (10000)        --shapes N   in the database (100000)
 *   --value N     bytes of a value that is filled     --bytes A,B  of the roads raw and uv
 *
 * Blocking sockets, one process per client. All requests are written before the clock starts. */
#include "asked.h"
#include "measure.h"
#include "roads.h"

#include <getopt.h>
#include <jansson.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef BENCH_HIREDIS
#include <hiredis/hiredis.h>
#endif

#define REPLY_ROOM ((size_t)1 << 20)
#define FILL_BATCH 64

struct options {
    size_t clients, depth, requests, keys, shapes, value_bytes;
    const char *what, *road, *socket;
};

static struct options options = {
    .clients = 1,
    .depth = 1,
    .requests = 20000,
    .keys = 10000,
    .shapes = 100000,
    .value_bytes = 1500,
};

/* --- keys ------------------------------------------------------------------------------------- */

/* The keys are spread evenly over the shapes of the database. */
static void key_shape(size_t key, int64_t dims[ASKED_DIMS])
{
    asked_shape(key * (options.shapes / options.keys), options.shapes, dims);
}

/* Every key once, in random order. */
static size_t *shuffled_keys(void)
{
    size_t *keys = bench_alloc(options.keys, sizeof *keys);
    uint64_t seed = 1;
    for (size_t i = 0; i < options.keys; i++) {
        size_t j = random_below(&seed, i + 1);
        keys[i] = keys[j];
        keys[j] = i;
    }
    return keys;
}

static size_t *random_keys(size_t count, uint64_t seed)
{
    size_t *keys = bench_alloc(count, sizeof *keys);
    for (size_t i = 0; i < count; i++)
        keys[i] = random_below(&seed, options.keys);
    return keys;
}

/* --- a connection and what it will send --------------------------------------------------------
 */

struct sizes {
    size_t request, reply; /* bytes, of the last one */
};

struct asker {
    const struct road *road;
    int descriptor;
    char *text;    /* all requests, one after the other */
    size_t *start; /* of each, and the end of the last */
    char *held;    /* reply bytes */
    size_t held_bytes;
    struct sizes sizes;
};

static int connect_to(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (descriptor < 0 ||
        connect(descriptor, (const struct sockaddr *)&address, sizeof address) != 0)
        bench_fail("nobody answers at %s", path);
    return descriptor;
}

static void asker_init(struct asker *asker, const size_t *keys, size_t count)
{
    asker->text = bench_alloc(count, ROAD_REQUEST_ROOM);
    asker->start = bench_alloc(count + 1, sizeof *asker->start);
    for (size_t i = 0; i < count; i++) {
        int64_t dims[ASKED_DIMS];
        key_shape(keys[i], dims);
        char *to = asker->text + asker->start[i];
        asker->sizes.request = asker->road->ask(to, ROAD_REQUEST_ROOM, i, dims);
        asker->start[i + 1] = asker->start[i] + asker->sizes.request;
    }
}

static void asker_finish(struct asker *asker)
{
    free(asker->text);
    free(asker->start);
}

static void send_all(int descriptor, const char *bytes, size_t count)
{
    while (count > 0) {
        ssize_t sent = send(descriptor, bytes, count, MSG_NOSIGNAL);
        if (sent <= 0)
            bench_fail("the server took no more bytes");
        bytes += sent;
        count -= (size_t)sent;
    }
}

static void read_with_jansson(const char *bytes, size_t count)
{
    json_t *json = json_loadb(bytes, count, JSON_REJECT_DUPLICATES, NULL);
    if (json_object_get(json, "result") == NULL)
        bench_fail("not an answer: %.*s", (int)count, bytes);
    json_decref(json);
}

/* Takes the replies to the requests first..end. */
static void take_replies(struct asker *asker, size_t first, size_t end)
{
    size_t at = 0;
    while (first < end) {
        size_t length = asker->road->reply(asker->held + at, asker->held_bytes - at, first);
        if (length > 0) {
            if (asker->road->is_parsed)
                read_with_jansson(asker->held + at, length);
            asker->sizes.reply = length;
            at += length;
            first++;
            continue;
        }
        memmove(asker->held, asker->held + at, asker->held_bytes - at);
        asker->held_bytes -= at;
        at = 0;
        ssize_t count = recv(
            asker->descriptor, asker->held + asker->held_bytes, REPLY_ROOM - asker->held_bytes, 0);
        if (count <= 0)
            bench_fail("the server ended the connection before reply %zu", first);
        asker->held_bytes += (size_t)count;
    }
    asker->held_bytes -= at; /* nothing is left: the server says no more than it was asked */
}

/* Sends and takes `count` requests, `depth` at a time, and gives the time of each turn. */
static void ask_all(struct asker *asker, size_t count, size_t depth, uint64_t *ticks)
{
    for (size_t first = 0; first < count; first += depth) {
        size_t end = first + depth < count ? first + depth : count;
        uint64_t begun = ticks_now();
        send_all(asker->descriptor, asker->text + asker->start[first],
            asker->start[end] - asker->start[first]);
        take_replies(asker, first, end);
        ticks[first / depth] = ticks_now() - begun;
    }
}

/* --- hiredis ---------------------------------------------------------------------------------- */

#ifdef BENCH_HIREDIS
static void check_hiredis(const redisContext *context, int status, const redisReply *reply)
{
    if (status != REDIS_OK || reply == NULL || reply->type != REDIS_REPLY_STRING)
        bench_fail("Redis does not answer: %s", context->errstr);
}

static void hiredis_turn(redisContext *context, char (*keys)[ROAD_KEY_ROOM], size_t count)
{
    for (size_t i = 0; i < count; i++)
        redisAppendCommand(context, "GET %s", keys[i]);
    for (size_t i = 0; i < count; i++) {
        void *reply = NULL;
        int status = redisGetReply(context, &reply);
        check_hiredis(context, status, reply);
        freeReplyObject(reply);
    }
}

static void ask_hiredis(const size_t *asked, size_t count, size_t depth, uint64_t *ticks)
{
    redisContext *context = redisConnectUnix(options.socket);
    if (context == NULL || context->err)
        bench_fail("no Redis answers at %s", options.socket);
    char(*keys)[ROAD_KEY_ROOM] = bench_alloc(count, sizeof *keys);
    for (size_t i = 0; i < count; i++) {
        int64_t dims[ASKED_DIMS];
        key_shape(asked[i], dims);
        road_key(keys[i], dims);
    }
    for (size_t first = 0; first < count; first += depth) {
        uint64_t begun = ticks_now();
        hiredis_turn(context, keys + first, first + depth < count ? depth : count - first);
        ticks[first / depth] = ticks_now() - begun;
    }
    free(keys);
    redisFree(context);
}
#else
static void ask_hiredis(const size_t *asked, size_t count, size_t depth, uint64_t *ticks)
{
    (void)asked;
    (void)count;
    (void)depth;
    (void)ticks;
    bench_fail("this bench was built without hiredis");
}
#endif

/* --- clients ---------------------------------------------------------------------------------- */

/* What the processes share: where they wait for each other, and what they measured. */
struct shared {
    _Atomic size_t ready;
    _Atomic bool has_begun;
    uint64_t begun;
    struct sizes sizes;
    struct {
        _Alignas(64) uint64_t ended;
    } client[64];
    uint64_t ticks[]; /* of one client after the other */
};

static size_t turns_of(size_t requests)
{
    return (requests + options.depth - 1) / options.depth;
}

static void wait_for_start(struct shared *shared)
{
    atomic_fetch_add(&shared->ready, 1);
    while (!atomic_load(&shared->has_begun))
        usleep(100);
}

static void run_client(struct shared *shared, size_t client)
{
    size_t *keys = random_keys(options.requests, client + 2);
    uint64_t *ticks = shared->ticks + client * turns_of(options.requests);
    if (strcmp(options.road, "hiredis") == 0) {
        wait_for_start(shared);
        ask_hiredis(keys, options.requests, options.depth, ticks);
    } else {
        struct asker asker = {.road = road_find(options.road)};
        asker.descriptor = connect_to(options.socket);
        asker.held = bench_alloc(1, REPLY_ROOM);
        asker_init(&asker, keys, options.requests);
        wait_for_start(shared);
        ask_all(&asker, options.requests, options.depth, ticks);
        shared->sizes = asker.sizes;
        asker_finish(&asker);
    }
    shared->client[client].ended = ticks_now();
}

static void start_clients(struct shared *shared, pid_t *pids)
{
    for (size_t i = 0; i < options.clients; i++) {
        pids[i] = fork();
        if (pids[i] < 0)
            bench_fail("no process for a client");
        if (pids[i] == 0) {
            run_client(shared, i);
            exit(0);
        }
    }
    while (atomic_load(&shared->ready) < options.clients && waitpid(-1, NULL, WNOHANG) == 0)
        usleep(1000);
    shared->begun = ticks_now();
    atomic_store(&shared->has_begun, true);
}

static double wait_for_clients(const struct shared *shared, const pid_t *pids)
{
    uint64_t last = 0;
    for (size_t i = 0; i < options.clients; i++) {
        int status;
        if (waitpid(pids[i], &status, 0) != pids[i] || status != 0)
            bench_fail("a client failed");
        if (shared->client[i].ended > last)
            last = shared->client[i].ended;
    }
    return (double)(last - shared->begun) * ns_per_tick() / 1e9;
}

static void print_result(
    uint64_t *ticks, size_t turns, size_t requests, double seconds, struct sizes sizes)
{
    struct spread spread = spread_of(ticks, turns);
    printf("{\"median_ns\": %.0f, \"p99_ns\": %.0f, \"per_s\": %.0f, \"requests\": %zu, "
           "\"request_bytes\": %zu, \"reply_bytes\": %zu}\n",
        spread.median_ns, spread.p99_ns, (double)requests / seconds, requests, sizes.request,
        sizes.reply);
}

/* Every key once over one connection; 64 at a time, unless each is to be timed. */
static struct sizes ask_each_key(size_t depth, uint64_t *ticks)
{
    size_t *keys = shuffled_keys();
    struct asker asker = {.road = road_find(options.road)};
    asker.descriptor = connect_to(options.socket);
    asker.held = bench_alloc(1, REPLY_ROOM);
    asker_init(&asker, keys, options.keys);
    ask_all(&asker, options.keys, depth, ticks);
    asker_finish(&asker);
    close(asker.descriptor);
    free(asker.held);
    free(keys);
    return asker.sizes;
}

static void run_first(void)
{
    uint64_t *ticks = bench_alloc(options.keys, sizeof *ticks), begun = ticks_now();
    struct sizes sizes = ask_each_key(1, ticks);
    double seconds = (double)(ticks_now() - begun) * ns_per_tick() / 1e9;
    print_result(ticks, options.keys, options.keys, seconds, sizes);
    free(ticks);
}

static void run_ask(void)
{
    size_t turns = options.clients * turns_of(options.requests);
    size_t bytes = sizeof(struct shared) + turns * sizeof(uint64_t);
    struct shared *shared =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pids[64];
    if (shared == MAP_FAILED || options.clients > sizeof pids / sizeof pids[0])
        bench_fail("at most %zu clients", sizeof pids / sizeof pids[0]);
    ns_per_tick(); /* before the processes part */
    if (road_find(options.road) != NULL) {
        uint64_t *ticks = bench_alloc(options.keys, sizeof *ticks);
        ask_each_key(FILL_BATCH, ticks);
        free(ticks);
    }
    start_clients(shared, pids);
    double seconds = wait_for_clients(shared, pids);
    print_result(shared->ticks, turns, options.clients * options.requests, seconds, shared->sizes);
}

/* --- filling ---------------------------------------------------------------------------------- */

static void run_fill(void)
{
    bool is_redis = strcmp(options.road, "redis") == 0;
    int descriptor = connect_to(options.socket);
    char *value = bench_alloc(1, options.value_bytes + 1), reply[64];
    memset(value, 'x', options.value_bytes);
    char *request = bench_alloc(1, options.value_bytes + ROAD_REQUEST_ROOM);
    for (size_t i = 0; i < options.keys; i++) {
        int64_t dims[ASKED_DIMS];
        char key[ROAD_KEY_ROOM];
        key_shape(i, dims);
        size_t length = road_key(key, dims);
        int count = is_redis ? sprintf(request, "*3\r\n$3\r\nSET\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n",
                                   length, key, options.value_bytes, value)
                             : sprintf(request, "set %s 0 0 %zu\r\n%s\r\n", key,
                                   options.value_bytes, value);
        send_all(descriptor, request, (size_t)count);
        if (recv(descriptor, reply, sizeof reply, 0) <= 0 || (reply[0] != '+' && reply[0] != 'S'))
            bench_fail("the server did not store %s", key);
    }
    free(request);
    free(value);
    close(descriptor);
}

/* --- main ------------------------------------------------------------------------------------- */

static const struct option names[] = {{"clients", required_argument, NULL, 'c'},
    {"depth", required_argument, NULL, 'd'}, {"requests", required_argument, NULL, 'r'},
    {"keys", required_argument, NULL, 'k'}, {"shapes", required_argument, NULL, 's'},
    {"value", required_argument, NULL, 'v'}, {"bytes", required_argument, NULL, 'b'},
    {NULL, 0, NULL, 0}};

static void set_bytes(const char *text)
{
    if (sscanf(text, "%zu,%zu", &road_request_bytes, &road_reply_bytes) != 2 ||
        road_request_bytes == 0 || road_reply_bytes == 0)
        bench_fail("--bytes takes two numbers: 200,200");
}

static void parse_options(int argc, char **argv)
{
    int letter;
    while ((letter = getopt_long(argc, argv, "", names, NULL)) != -1) {
        size_t *number = letter == 'c'   ? &options.clients
                         : letter == 'd' ? &options.depth
                         : letter == 'r' ? &options.requests
                         : letter == 'k' ? &options.keys
                         : letter == 's' ? &options.shapes
                                         : &options.value_bytes;
        if (letter == '?')
            exit(2);
        if (letter == 'b')
            set_bytes(optarg);
        else if ((*number = strtoul(optarg, NULL, 10)) == 0)
            bench_fail("%s is no number above 0", optarg);
    }
    if (argc - optind != 3 || options.keys > options.shapes)
        bench_fail("usage: bench_client [option...] ask|fill|first ROAD SOCKET");
    options.what = argv[optind];
    options.road = argv[optind + 1];
    options.socket = argv[optind + 2];
    if (road_find(options.road) == NULL && strcmp(options.road, "hiredis") != 0)
        bench_fail("there is no road \"%s\"", options.road);
}

int main(int argc, char **argv)
{
    parse_options(argc, argv);
    if (strcmp(options.what, "fill") == 0)
        run_fill();
    else if (strcmp(options.what, "first") == 0)
        run_first();
    else
        run_ask();
    return 0;
}
