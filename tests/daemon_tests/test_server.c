#include "client/proto.h"
#include "daemon/server.h"
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* The server's clock can be moved on (see the link option --wrap=uv_now). */
static uint64_t clock_offset_ms;
uint64_t __real_uv_now(const uv_loop_t *loop);
uint64_t __wrap_uv_now(const uv_loop_t *loop);

uint64_t __wrap_uv_now(const uv_loop_t *loop)
{
    return __real_uv_now(loop) + clock_offset_ms;
}

static struct server *server;
static bool is_stopped;
static uint64_t last_client;
static unsigned requests;
static json_t *held; /* the request whose answer is kept back */

static void reply(uint64_t client, json_t *message)
{
    json_t *answer = proto_result_new(json_incref(json_object_get(message, "id")),
        json_incref(json_object_get(message, "params")));
    server_send(server, client, answer);
    json_decref(answer);
}

static json_t *long_text(size_t length)
{
    char *text = malloc(length + 1);
    memset(text, 'x', length);
    text[length] = '\0';
    json_t *json = json_string(text);
    free(text);
    return json;
}

/* Echoes params; "flood" answers with 1 MiB, "long" with 20 MiB, "hold" later. */
static void on_request(
    uint64_t client, uid_t uid, json_t *message, const char *line, size_t length, void *context)
{
    assert_int_equal(strlen(line), length);
    const char *method = json_string_value(json_object_get(message, "method"));
    assert_int_equal(uid, geteuid());
    assert_null(context);
    last_client = client;
    requests++;
    if (method != NULL && strcmp(method, "hold") == 0) {
        assert_true(server_request_begin(server, client));
        held = json_incref(message);
        return;
    }
    if (method != NULL && strcmp(method, "watch") == 0)
        assert_true(server_subscribe(server, client, "job-1"));
    if (method != NULL && (strcmp(method, "flood") == 0 || strcmp(method, "long") == 0))
        json_object_set_new(message, "params", long_text(method[0] == 'f' ? 1 << 20 : 20 << 20));
    reply(client, message);
}

/* "again" is answered from its bytes. */
static bool on_line(uint64_t client, const char *line, size_t length, void *context)
{
    assert_null(context);
    assert_int_equal(strlen(line), length);
    if (strncmp(line, "again", 5) != 0)
        return false;
    uv_buf_t parts[] = {uv_buf_init((char[]){"{\"result\":1,\"id\":"}, 17),
        uv_buf_init((char *)(uintptr_t)line + 5, (unsigned)length - 5),
        uv_buf_init((char[]){"}\n"}, 2)};
    server_send_parts(server, client, parts, 3);
    return true;
}

static void release_held(void)
{
    reply(last_client, held);
    server_request_end(server, last_client);
    json_decref(held);
    held = NULL;
}

static struct server *try_start(const char *path, struct tune_error *err)
{
    struct server_callbacks callbacks = {on_line, on_request, NULL, NULL};
    return server_start(test_loop(), path, &callbacks, err);
}

static void on_stopped(void *context)
{
    *(bool *)context = true;
}

static void stop(void)
{
    is_stopped = false;
    server_stop(server, on_stopped, &is_stopped);
    assert_false(is_stopped);
    run_until_true(&is_stopped);
    server = NULL;
}

static int start(void **state)
{
    if (support_start(state))
        return -1;
    clock_offset_ms = 0;
    requests = 0;
    struct tune_error err = {0};
    server = try_start(path_in("s"), &err);
    return server == NULL;
}

static int finish(void **state)
{
    if (server != NULL)
        stop();
    return support_finish(state);
}

/* --- a client --------------------------------------------------------------------------------- */

static int dial(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int peer = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(peer >= 0 && strlen(path) < sizeof address.sun_path);
    strcpy(address.sun_path, path);
    if (connect(peer, (struct sockaddr *)&address, sizeof address) != 0) {
        close(peer);
        return -1;
    }
    fcntl(peer, F_SETFL, O_NONBLOCK);
    return peer;
}

static int connect_client(void)
{
    int peer = dial(path_in("s"));
    assert_true(peer >= 0);
    return peer;
}

static void put(int peer, const char *bytes, size_t count)
{
    while (count > 0) {
        ssize_t written = write(peer, bytes, count);
        if (written < 0 && errno != EAGAIN)
            return; /* the server has closed: the reading side tells */
        if (written < 0) {
            run_turns(1);
            continue;
        }
        bytes += written;
        count -= (size_t)written;
    }
}

static void put_text(int peer, const char *text)
{
    put(peer, text, strlen(text));
}

struct received {
    int peer;
    struct proto_reader reader;
    bool is_closed;
    char *line; /* the next line */
};

/* All that is there: a socket of which a part is read does not become writable again. */
static void receive(struct received *received)
{
    static char bytes[1 << 16];
    ssize_t count;
    while ((count = read(received->peer, bytes, sizeof bytes)) > 0)
        assert_int_equal(proto_reader_feed(&received->reader, bytes, (size_t)count, NULL), 0);
    if (count == 0 || errno != EAGAIN)
        received->is_closed = true;
}

static bool has_line(void *context)
{
    struct received *received = context;
    size_t length;
    if ((received->line = proto_reader_next(&received->reader, &length)) != NULL)
        return true;
    receive(received);
    return (received->line = proto_reader_next(&received->reader, &length)) != NULL ||
           received->is_closed;
}

static struct received receiver(int peer)
{
    struct received received = {.peer = peer};
    proto_reader_init(&received.reader, PROTO_MESSAGE_LIMIT_BYTES);
    return received;
}

/* The next message to this client; NULL when the server has closed. */
static json_t *next_message(struct received *received)
{
    run_until(has_line, received);
    if (received->line == NULL)
        return NULL;
    json_t *message = proto_parse(received->line, strlen(received->line), NULL);
    assert_non_null(message);
    return message;
}

static void expect_echo(struct received *received, int id)
{
    json_t *message = next_message(received);
    if (message == NULL)
        fail_msg("closed in place of answer %d", id);
    if (json_integer_value(json_object_get(message, "id")) != id ||
        json_object_get(message, "result") == NULL)
        fail_msg("not answer %d: %s", id, received->line);
    json_decref(message);
}

static void expect_error(struct received *received, const char *word)
{
    json_t *message = next_message(received);
    const char *code = NULL;
    if (message == NULL)
        fail_msg("closed in place of the error %s", word);
    json_unpack(message, "{s:{s:{s:s}}}", "error", "data", "code", &code);
    if (code == NULL || strcmp(code, word) != 0)
        fail_msg("not the error %s: %s", word, received->line);
    json_decref(message);
}

static void expect_closed(struct received *received)
{
    json_t *message = next_message(received);
    if (message != NULL)
        fail_msg("not closed: %s", received->line);
}

static void hang_up(struct received *received)
{
    close(received->peer);
    proto_reader_finish(&received->reader);
}

static bool has_clients(void *count)
{
    return server_client_count(server) == *(size_t *)count;
}

static void wait_for_clients(size_t count)
{
    run_until(has_clients, &count);
}

/* --- framing ---------------------------------------------------------------------------------- */

#define ONE "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"echo\",\"params\":\"\u20ac\"}"
#define TWO "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"echo\",\"params\":2}"

static void a_request_is_answered(void **state)
{
    (void)state;
    struct received received = receiver(connect_client());
    put_text(received.peer, ONE "\n");
    expect_echo(&received, 1);
    hang_up(&received);
    wait_for_clients(0);
}

static void requests_in_pairs_pieces_and_with_any_line_end_are_the_same(void **state)
{
    (void)state;
    static const char text[] = ONE "\r\n\n\r\n" TWO "\n";
    struct received received = receiver(connect_client());
    put_text(received.peer, text);
    expect_echo(&received, 1);
    expect_echo(&received, 2);
    for (const char *at = text; *at != '\0'; at++) { /* also inside the character */
        put(received.peer, at, 1);
        run_turns(1);
    }
    expect_echo(&received, 1);
    expect_echo(&received, 2);
    assert_int_equal(requests, 4);
    hang_up(&received);
}

static void lines_answered_as_they_came_and_others_mix(void **state)
{
    (void)state;
    struct received received = receiver(connect_client());
    char text[4096] = "";
    for (int id = 1; id <= 64; id += 2) {
        size_t used = strlen(text);
        snprintf(
            text + used, sizeof text - used, "again%d\n{\"id\":%d,\"params\":1}\n", id, id + 1);
    }
    put_text(received.peer, text);
    for (int id = 1; id <= 64; id++)
        expect_echo(&received, id);
    assert_int_equal(requests, 32);
    hang_up(&received);
}

static void the_end_of_a_job_alone_can_be_subscribed(void **state)
{
    (void)state;
    struct received received = receiver(connect_client());
    put_text(received.peer, ONE "\n");
    expect_echo(&received, 1);
    assert_true(server_subscribe_end(server, last_client, "job-1"));
    for (int id = 2; id <= 5; id++) {
        json_t *event = json_pack("{s:i, s:b}", "id", id, "result", 1);
        server_publish(server, id == 5 ? "job-2" : "job-1", event, id == 3 || id == 5);
        json_decref(event);
    }
    put_text(received.peer, TWO "\n");
    expect_echo(&received, 3);
    expect_echo(&received, 2);        /* and nothing else before it */
    shutdown(received.peer, SHUT_WR); /* it would not wait for a job that may run for long */
    expect_closed(&received);
    hang_up(&received);
}

static void half_a_message_then_the_end_is_nothing(void **state)
{
    (void)state;
    struct received received = receiver(connect_client());
    put(received.peer, ONE, 20);
    run_turns(3);
    hang_up(&received);
    wait_for_clients(0);
    assert_int_equal(requests, 0);
}

static void ambiguous_json_is_refused_and_the_connection_lives(void **state)
{
    (void)state;
    static const char *const lines[] = {"{\"a\":1,\"a\":2}", "{\"a\":1,\"\\u0061\":2}", "{} {}",
        "\xEF\xBB\xBF{}", "{\"a\":\"\xff\"}", "{\"a\":\"\\ud800\"}", "{\"a\":\"\\u0000\"}", "[]",
        "1", "[" ONE "]", "// x", "{\"id\":9223372036854775808}", "{\"id\":1e999}", "{\"id\":NaN}",
        "null"};
    struct received received = receiver(connect_client());
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        put_text(received.peer, lines[i]);
        put_text(received.peer, "\n");
        expect_error(&received, "parse_error");
    }
    put_text(received.peer, ONE "\n");
    expect_echo(&received, 1);
    assert_int_equal(requests, 1);
    hang_up(&received);
}

static void nesting_is_limited_and_the_connection_lives(void **state)
{
    (void)state;
    static const size_t depths[] = {31, 32, 33, 100000};
    struct received received = receiver(connect_client());
    for (size_t i = 0; i < sizeof depths / sizeof depths[0]; i++) {
        char *text = malloc(2 * depths[i] + 100);
        int used = sprintf(text, "{\"id\":7,\"params\":");
        memset(text + used, '[', depths[i] - 1);
        memset(text + used + depths[i] - 1, ']', depths[i] - 1);
        strcpy(text + used + 2 * depths[i] - 2, "}\n");
        put_text(received.peer, text);
        free(text);
        if (depths[i] <= 31) /* the answer is one level deeper than its params */
            expect_echo(&received, 7);
        else if (depths[i] == 32)
            json_decref(next_message(&received));
        else
            expect_error(&received, "limit");
    }
    hang_up(&received);
}

static void a_line_without_end_is_told_and_closed(void **state)
{
    (void)state;
    struct received received = receiver(connect_client());
    static char block[1 << 16];
    memset(block, 'x', sizeof block);
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    for (int i = 0; i < 1024; i++) { /* 64 MiB */
        put(received.peer, block, sizeof block);
        run_turns(1);
    }
    getrusage(RUSAGE_SELF, &after);
    assert_in_range(after.ru_maxrss - before.ru_maxrss, 0, 16 << 10);
    expect_error(&received, "limit");
    expect_closed(&received);
    hang_up(&received);
    wait_for_clients(0);
    assert_int_equal(requests, 0);
}

/* --- limits ----------------------------------------------------------------------------------- */

static void a_client_that_never_reads_is_dropped_at_the_limit(void **state)
{
    (void)state;
    struct received received = receiver(connect_client());
    for (int i = 0; i < 100; i++) {
        put_text(received.peer, "{\"id\":1,\"method\":\"flood\"}\n");
        run_turns(1);
    }
    wait_for_clients(0);
    assert_in_range(requests, 16, 20);
    hang_up(&received);
}

static void one_long_answer_reaches_a_client_that_reads(void **state)
{
    (void)state;
    struct received received = receiver(connect_client());
    put_text(received.peer, "{\"id\":1,\"method\":\"long\"}\n" TWO "\n");
    json_t *message = next_message(&received);
    assert_non_null(message);
    assert_int_equal(json_string_length(json_object_get(message, "result")), 20 << 20);
    json_decref(message);
    expect_echo(&received, 2);
    hang_up(&received);
}

static void a_half_line_has_a_time_limit_that_dripping_does_not_move(void **state)
{
    (void)state;
    struct received slow = receiver(connect_client()), idle = receiver(connect_client());
    put_text(slow.peer, "{\"id\"");
    wait_for_clients(2);
    run_turns(3);
    clock_offset_ms += SERVER_HALF_LINE_MS / 2;
    put_text(slow.peer, ":");
    run_turns(3);
    clock_offset_ms += SERVER_HALF_LINE_MS / 2 + 1;
    put_text(slow.peer, "1");
    expect_closed(&slow);
    wait_for_clients(1); /* the one that sent nothing stays */
    hang_up(&slow);
    hang_up(&idle);
}

static void an_idle_client_goes_but_not_one_that_waits_or_watches(void **state)
{
    (void)state;
    struct received idle = receiver(connect_client()), waits = receiver(connect_client()),
                    watches = receiver(connect_client());
    put_text(watches.peer, "{\"id\":1,\"method\":\"watch\"}\n");
    expect_echo(&watches, 1);
    put_text(waits.peer, "{\"id\":1,\"method\":\"hold\"}\n");
    wait_for_clients(3);
    run_turns(3);
    assert_non_null(held);
    clock_offset_ms += SERVER_IDLE_MS + 1;
    expect_closed(&idle);
    wait_for_clients(2);
    release_held();
    expect_echo(&waits, 1);
    hang_up(&idle);
    hang_up(&waits);
    hang_up(&watches);
}

static void requests_under_way_are_limited_per_client(void **state)
{
    (void)state;
    struct received received = receiver(connect_client());
    put_text(received.peer, ONE "\n");
    expect_echo(&received, 1);
    for (int i = 0; i < SERVER_REQUESTS_MAX; i++)
        assert_true(server_request_begin(server, last_client));
    assert_false(server_request_begin(server, last_client));
    server_request_end(server, last_client);
    assert_true(server_request_begin(server, last_client));
    assert_false(server_request_begin(server, last_client + 1000));
    hang_up(&received);
}

static void clients_beyond_the_limit_are_told_busy(void **state)
{
    (void)state;
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur < 2 * SERVER_CLIENTS_MAX + 200)
        skip();
    static struct received many[SERVER_CLIENTS_MAX + 5];
    for (size_t i = 0; i < SERVER_CLIENTS_MAX + 5; i++) {
        many[i] = receiver(connect_client());
        run_turns(1);
    }
    for (size_t i = SERVER_CLIENTS_MAX; i < SERVER_CLIENTS_MAX + 5; i++) {
        expect_error(&many[i], "busy");
        expect_closed(&many[i]);
        hang_up(&many[i]);
    }
    wait_for_clients(SERVER_CLIENTS_MAX);
    put_text(many[0].peer, ONE "\n");
    expect_echo(&many[0], 1);
    hang_up(&many[0]);
    wait_for_clients(SERVER_CLIENTS_MAX - 1);
    many[0] = receiver(connect_client()); /* there is room again */
    put_text(many[0].peer, ONE "\n");
    expect_echo(&many[0], 1);
    for (size_t i = 0; i < SERVER_CLIENTS_MAX; i++)
        hang_up(&many[i]);
    wait_for_clients(0);
}

/* 200 clients come from another process, so that the limit of 64 is the server's alone. */
static _Noreturn void crowd(int ready, int go)
{
    int peers[200];
    char byte = 0;
    for (size_t i = 0; i < 200; i++)
        peers[i] = dial(path_in("s"));
    if (write(ready, &byte, 1) != 1 || read(go, &byte, 1) < 0)
        _exit(1);
    for (size_t i = 0; i < 200; i++)
        if (peers[i] < 0)
            _exit(2);
    _exit(0);
}

static int ready_pipe[2], go_pipe[2];

static bool crowd_is_there(void *context)
{
    struct pollfd ready = {.fd = ready_pipe[0], .events = POLLIN};
    (void)context;
    return poll(&ready, 1, 0) == 1;
}

static void few_descriptors_serve_who_is_connected_without_a_spin(void **state)
{
    (void)state;
    stop();
    struct rlimit usual, few;
    getrlimit(RLIMIT_NOFILE, &usual);
    few = usual;
    few.rlim_cur = 64;
    assert_int_equal(pipe(ready_pipe) | pipe(go_pipe), 0);
    setrlimit(RLIMIT_NOFILE, &few);
    struct tune_error err = {0};
    server = try_start(path_in("s"), &err);
    setrlimit(RLIMIT_NOFILE, &usual);
    assert_non_null(server);
    struct received early = receiver(connect_client());
    wait_for_clients(1);
    pid_t child = fork();
    if (child == 0)
        crowd(ready_pipe[1], go_pipe[0]);
    setrlimit(RLIMIT_NOFILE, &few);
    run_until(crowd_is_there, NULL);
    run_turns(20);
    assert_in_range(server_client_count(server), 1, 9);
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    put_text(early.peer, ONE "\n");
    expect_echo(&early, 1);
    uv_run(test_loop(), UV_RUN_ONCE); /* sleeps until the server's next look at time limits */
    uv_run(test_loop(), UV_RUN_ONCE);
    getrusage(RUSAGE_SELF, &after);
    long used_ms = (after.ru_utime.tv_sec - before.ru_utime.tv_sec) * 1000 +
                   (after.ru_utime.tv_usec - before.ru_utime.tv_usec) / 1000;
    assert_in_range(used_ms, 0, 300);
    setrlimit(RLIMIT_NOFILE, &usual);
    int status = 0;
    assert_int_equal(write(go_pipe[1], "x", 1), 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    wait_for_clients(1);
    hang_up(&early);
    for (int i = 0; i < 2; i++) {
        close(ready_pipe[i]);
        close(go_pipe[i]);
    }
}

/* --- leaving ---------------------------------------------------------------------------------- */

static void a_client_that_leaves_before_its_answer_harms_nobody(void **state)
{
    (void)state;
    struct received other = receiver(connect_client());
    struct received leaves = receiver(connect_client());
    put_text(leaves.peer, "{\"id\":1,\"method\":\"hold\"}\n");
    wait_for_clients(2);
    while (held == NULL)
        run_turns(1);
    close(leaves.peer);
    wait_for_clients(1);
    release_held();
    put_text(other.peer, ONE "\n");
    expect_echo(&other, 1);
    proto_reader_finish(&leaves.reader);
    hang_up(&other);
}

static void a_client_that_closes_with_bytes_under_way_harms_nobody(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        struct received leaves = receiver(connect_client());
        put_text(leaves.peer, "{\"id\":1,\"method\":\"flood\"}\n{\"id\":2,\"method\":\"flood\"}\n");
        run_turns(i % 3);
        hang_up(&leaves);
    }
    wait_for_clients(0);
}

static void a_client_that_sends_no_more_still_gets_its_answer(void **state)
{
    (void)state;
    struct received received = receiver(connect_client());
    put_text(received.peer, "{\"id\":1,\"method\":\"hold\"}\n");
    shutdown(received.peer, SHUT_WR);
    while (held == NULL)
        run_turns(1);
    run_turns(5);
    release_held();
    expect_echo(&received, 1);
    expect_closed(&received);
    hang_up(&received);
    wait_for_clients(0);
}

static void a_watcher_that_sends_no_more_gets_its_events_to_the_end(void **state)
{
    (void)state;
    struct received received = receiver(connect_client());
    put_text(received.peer, "{\"id\":1,\"method\":\"watch\"}\n");
    shutdown(received.peer, SHUT_WR);
    expect_echo(&received, 1);
    run_turns(5);
    json_t *event = json_pack("{s:i, s:b}", "id", 5, "result", 1);
    server_publish(server, "job-1", event, false);
    json_decref(event);
    expect_echo(&received, 5);
    run_turns(3);
    server_unsubscribe_all(server, "job-1");
    expect_closed(&received);
    hang_up(&received);
}

static void a_watcher_that_has_gone_is_noticed(void **state)
{
    (void)state;
    struct received received = receiver(connect_client());
    put_text(received.peer, "{\"id\":1,\"method\":\"watch\"}\n");
    shutdown(received.peer, SHUT_WR);
    expect_echo(&received, 1);
    run_turns(3);
    hang_up(&received);
    wait_for_clients(0);
}

static void events_go_to_subscribers_of_the_job_and_of_all(void **state)
{
    (void)state;
    struct received one = receiver(connect_client());
    put_text(one.peer, ONE "\n");
    expect_echo(&one, 1);
    assert_true(server_subscribe(server, last_client, "job-2"));
    assert_true(server_subscribe(server, last_client, "job-2"));
    struct received all = receiver(connect_client());
    put_text(all.peer, ONE "\n");
    expect_echo(&all, 1);
    assert_true(server_subscribe(server, last_client, NULL));
    assert_false(server_subscribe(server, 999, NULL));
    for (int id = 1; id <= 3; id++) {
        char job[16];
        snprintf(job, sizeof job, "job-%d", id);
        json_t *event = json_pack("{s:i, s:b}", "id", id, "result", 1);
        server_publish(server, job, event, false);
        json_decref(event);
    }
    for (int id = 1; id <= 3; id++)
        expect_echo(&all, id);
    expect_echo(&one, 2);
    server_unsubscribe_all(server, "job-2");
    put_text(one.peer, TWO "\n");
    expect_echo(&one, 2); /* and nothing before it */
    hang_up(&one);
    hang_up(&all);
}

/* --- the socket file -------------------------------------------------------------------------- */

static void expect_refused(const char *path, enum tune_code code, const char *part)
{
    struct tune_error err = {0};
    assert_null(try_start(path, &err));
    if (err.code != code || strstr(err.text, part) == NULL)
        fail_msg("%s: %s", tune_code_word(err.code), err.text);
    assert_null(try_start(path, NULL));
}

static void the_socket_is_for_owner_and_group(void **state)
{
    (void)state;
    struct stat status;
    assert_int_equal(stat(path_in("s"), &status), 0);
    assert_int_equal(status.st_mode & 07777, 0660);
    stop();
    assert_int_equal(access(path_in("s"), F_OK), -1);
}

static void a_second_server_is_refused(void **state)
{
    (void)state;
    expect_refused(path_in("s"), TUNE_EBUSY, "another tunerd");
    struct received received = receiver(connect_client()); /* the first goes on */
    put_text(received.peer, ONE "\n");
    expect_echo(&received, 1);
    hang_up(&received);
}

static void a_socket_left_over_is_replaced(void **state)
{
    (void)state;
    stop();
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strcpy(address.sun_path, path_in("s"));
    int left = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(left, (struct sockaddr *)&address, sizeof address), 0);
    close(left);
    assert_int_equal(access(path_in("s"), F_OK), 0);
    struct tune_error err = {0};
    server = try_start(path_in("s"), &err);
    assert_non_null(server);
    struct received received = receiver(connect_client());
    put_text(received.peer, ONE "\n");
    expect_echo(&received, 1);
    hang_up(&received);
}

static void another_programs_socket_is_left_alone(void **state)
{
    (void)state;
    static const int kinds[] = {SOCK_STREAM, SOCK_DGRAM};
    for (size_t i = 0; i < 2; i++) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        snprintf(
            address.sun_path, sizeof address.sun_path, "%s", path_in(i ? "datagrams" : "stream"));
        int other = socket(AF_UNIX, kinds[i] | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(other, (struct sockaddr *)&address, sizeof address), 0);
        if (i == 0)
            listen(other, 5);
        expect_refused(address.sun_path, TUNE_EBUSY, "another program");
        assert_int_equal(access(address.sun_path, F_OK), 0);
        close(other);
    }
}

static void a_file_that_is_no_socket_is_left_alone(void **state)
{
    (void)state;
    FILE *file = fopen(path_in("notes"), "we");
    fputs("mine", file);
    fclose(file);
    expect_refused(path_in("notes"), TUNE_EINVAL, "not a socket");
    struct stat status;
    assert_int_equal(stat(path_in("notes"), &status), 0);
    assert_int_equal(status.st_size, 4);
}

static void a_path_has_at_most_107_bytes(void **state)
{
    (void)state;
    stop();
    char path[200];
    strcpy(path, path_in(""));
    while (strlen(path) < 107)
        strcat(path, "p");
    struct tune_error err = {0};
    server = try_start(path, &err);
    assert_non_null(server);
    int peer = dial(path);
    assert_true(peer >= 0);
    close(peer);
    stop();
    strcat(path, "p");
    expect_refused(path, TUNE_EINVAL, "108 bytes");
    assert_int_equal(access(path, F_OK), -1);
}

static void a_folder_that_is_missing_is_said(void **state)
{
    (void)state;
    expect_refused(path_in("no/where"), TUNE_EIO, "No such file");
}

/* --- stopping --------------------------------------------------------------------------------- */

static void what_is_queued_goes_out_before_the_end(void **state)
{
    (void)state;
    struct received received = receiver(connect_client());
    put_text(received.peer, "{\"id\":1,\"method\":\"flood\"}\n");
    while (requests == 0)
        run_turns(1);
    server_stop(server, on_stopped, &is_stopped);
    is_stopped = false;
    expect_echo(&received, 1);
    run_until_true(&is_stopped);
    server = NULL;
    expect_closed(&received);
    hang_up(&received);
}

static void a_client_that_does_not_read_does_not_hold_up_the_stop(void **state)
{
    (void)state;
    struct received received = receiver(connect_client());
    put_text(received.peer, "{\"id\":1,\"method\":\"long\"}\n");
    while (requests == 0)
        run_turns(1);
    stop();
    hang_up(&received);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, finish)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_request_is_answered),
        TEST(requests_in_pairs_pieces_and_with_any_line_end_are_the_same),
        TEST(lines_answered_as_they_came_and_others_mix),
        TEST(the_end_of_a_job_alone_can_be_subscribed),
        TEST(half_a_message_then_the_end_is_nothing),
        TEST(ambiguous_json_is_refused_and_the_connection_lives),
        TEST(nesting_is_limited_and_the_connection_lives),
        TEST(a_line_without_end_is_told_and_closed),
        TEST(a_client_that_never_reads_is_dropped_at_the_limit),
        TEST(one_long_answer_reaches_a_client_that_reads),
        TEST(a_half_line_has_a_time_limit_that_dripping_does_not_move),
        TEST(an_idle_client_goes_but_not_one_that_waits_or_watches),
        TEST(requests_under_way_are_limited_per_client),
        TEST(clients_beyond_the_limit_are_told_busy),
        TEST(few_descriptors_serve_who_is_connected_without_a_spin),
        TEST(a_client_that_leaves_before_its_answer_harms_nobody),
        TEST(a_client_that_closes_with_bytes_under_way_harms_nobody),
        TEST(a_client_that_sends_no_more_still_gets_its_answer),
        TEST(a_watcher_that_sends_no_more_gets_its_events_to_the_end),
        TEST(a_watcher_that_has_gone_is_noticed),
        TEST(events_go_to_subscribers_of_the_job_and_of_all),
        TEST(the_socket_is_for_owner_and_group),
        TEST(a_second_server_is_refused),
        TEST(a_socket_left_over_is_replaced),
        TEST(another_programs_socket_is_left_alone),
        TEST(a_file_that_is_no_socket_is_left_alone),
        TEST(a_path_has_at_most_107_bytes),
        TEST(a_folder_that_is_missing_is_said),
        TEST(what_is_queued_goes_out_before_the_end),
        TEST(a_client_that_does_not_read_does_not_hold_up_the_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
