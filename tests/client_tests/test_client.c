/* libtune against a server that says exactly what each test wants: a thread that plays one
 * connection. */
#include "client/tune_rpc.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <cmocka.h>

/* --- the server ------------------------------------------------------------------------------- */

struct server {
    char folder[64], path[96];
    int listener, fd;
    pthread_t thread;
    void (*play)(int fd);
};

/* Reads one line; false at the end of the connection. */
static bool read_line(int fd, char *line, size_t size)
{
    size_t used = 0;
    while (used + 1 < size && read(fd, line + used, 1) == 1) {
        if (line[used++] == '\n') {
            line[used] = '\0';
            return true;
        }
    }
    return false;
}

static void write_text(int fd, const char *text)
{
    size_t length = strlen(text);
    while (length > 0) {
        ssize_t count = send(fd, text, length, MSG_NOSIGNAL);
        if (count <= 0)
            return;
        text += count;
        length -= (size_t)count;
    }
}

/* Answers the ping with which every connection starts. */
static void greet(int fd)
{
    char line[4096];
    if (read_line(fd, line, sizeof line))
        write_text(
            fd, "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"version\":\"t\",\"proto\":1}}\n");
}

static void *serve(void *context)
{
    struct server *server = context;
    server->fd = accept(server->listener, NULL, NULL);
    if (server->fd >= 0) {
        server->play(server->fd);
        /* Until the client goes: a close here could overtake what it still wants to read. */
        char rest[256];
        shutdown(server->fd, SHUT_WR);
        while (read(server->fd, rest, sizeof rest) > 0)
            continue;
        close(server->fd);
    }
    return NULL;
}

static void server_start(struct server *server, void (*play)(int fd))
{
    *server = (struct server){.play = play};
    snprintf(server->folder, sizeof server->folder, "/tmp/test_client_XXXXXX");
    assert_non_null(mkdtemp(server->folder));
    snprintf(server->path, sizeof server->path, "%s/tunerd.sock", server->folder);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, server->path, strlen(server->path) + 1);
    server->listener = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(server->listener, (const struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(server->listener, 4), 0);
    assert_int_equal(pthread_create(&server->thread, NULL, serve, server), 0);
}

static void server_stop(struct server *server)
{
    shutdown(server->listener, SHUT_RDWR); /* ends an accept that nobody came to */
    pthread_join(server->thread, NULL);
    close(server->listener);
    unlink(server->path);
    rmdir(server->folder);
}

/* Starts a server and connects to it. */
static struct tune_client *meet(struct server *server, void (*play)(int fd))
{
    struct tune_error err = {0};
    struct tune_client *client;
    server_start(server, play);
    if (tune_connect(server->path, &client, &err))
        fail_msg("%s", err.text);
    return client;
}

static void part(struct server *server, struct tune_client *client)
{
    tune_disconnect(client);
    server_stop(server);
}

/* --- connecting ------------------------------------------------------------------------------- */

static void connecting_greets_and_keeps_what_the_daemon_said(void **state)
{
    (void)state;
    struct server server;
    struct tune_client *client = meet(&server, greet);
    assert_string_equal(json_string_value(json_object_get(tune_server(client), "version")), "t");
    assert_string_equal(tune_server_path(client), server.path);
    part(&server, client);
}

static void play_other_protocol(int fd)
{
    char line[4096];
    read_line(fd, line, sizeof line);
    write_text(fd, "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"proto\":7}}\n");
}

static void a_daemon_of_another_protocol_is_refused_with_both_versions(void **state)
{
    (void)state;
    struct server server;
    struct tune_error err = {0};
    struct tune_client *client;
    server_start(&server, play_other_protocol);
    assert_int_equal(tune_connect(server.path, &client, &err), -1);
    assert_null(client);
    assert_int_equal(err.code, TUNE_EVERSION);
    assert_non_null(strstr(err.text, "protocol 7"));
    server_stop(&server);
}

static void a_socket_path_of_108_bytes_is_refused_with_the_limit(void **state)
{
    (void)state;
    char path[TUNE_SOCKET_PATH_BYTES + 1], own[TUNE_SOCKET_PATH_BYTES];
    memset(path, 'x', sizeof path);
    path[0] = '/';
    path[TUNE_SOCKET_PATH_BYTES] = '\0';
    struct tune_error err = {0};
    struct tune_client *client;
    assert_int_equal(tune_connect(path, &client, &err), -1);
    assert_int_equal(err.code, TUNE_EINVAL);
    assert_non_null(strstr(err.text, "107"));
    err = (struct tune_error){0};
    assert_int_equal(tune_socket_path(path, own, &err), -1);
    path[TUNE_SOCKET_PATH_BYTES - 1] = '\0';
    err = (struct tune_error){0};
    assert_int_equal(tune_socket_path(path, own, &err), 0);
    assert_int_equal(tune_connect(path, &client, &err), -1);
    assert_int_equal(err.code, TUNE_ENODAEMON);
}

static void the_socket_is_looked_for_in_the_documented_order(void **state)
{
    (void)state;
    char path[TUNE_SOCKET_PATH_BYTES], expected[64];
    unsetenv("TUNE_SOCKET");
    unsetenv("XDG_RUNTIME_DIR");
    assert_int_equal(tune_socket_path(NULL, path, NULL), 0);
    snprintf(expected, sizeof expected, "/tmp/tunerd-%u/tunerd.sock", (unsigned)geteuid());
    assert_string_equal(path, expected);
    setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
    assert_int_equal(tune_socket_path(NULL, path, NULL), 0);
    assert_string_equal(path, "/run/user/7/tunerd.sock");
    setenv("TUNE_SOCKET", "/a/b", 1);
    assert_int_equal(tune_socket_path(NULL, path, NULL), 0);
    assert_string_equal(path, "/a/b");
    assert_int_equal(tune_socket_path("/c", path, NULL), 0);
    assert_string_equal(path, "/c");
    setenv("TUNE_SOCKET", "", 1); /* empty counts as not set */
    assert_int_equal(tune_socket_path(NULL, path, NULL), 0);
    assert_string_equal(path, "/run/user/7/tunerd.sock");
    unsetenv("TUNE_SOCKET");
    unsetenv("XDG_RUNTIME_DIR");
}

/* With a user id that nobody has, so that the folder is this test's alone. */
static void a_planted_folder_in_tmp_is_not_trusted(void **state)
{
    (void)state;
    uid_t stranger = 1000000000 + (uid_t)getpid();
    if (geteuid() != 0 || seteuid(stranger) != 0)
        skip();
    char folder[64];
    snprintf(folder, sizeof folder, "/tmp/tunerd-%u", (unsigned)stranger);
    struct tune_error open_folder = {0}, start = {0}, link = {0};
    struct tune_client *client;
    int made = mkdir(folder, 0700) || chmod(folder, 0755);
    tune_connect(NULL, &client, &open_folder);
    tune_autostart(&start);
    int changed = rmdir(folder) || symlink("/tmp", folder);
    tune_connect(NULL, &client, &link);
    int removed = unlink(folder);
    assert_int_equal(seteuid(0), 0);
    assert_int_equal(made || changed || removed, 0);
    assert_int_equal(open_folder.code, TUNE_EPERM);
    assert_int_equal(start.code, TUNE_EPERM);
    assert_int_equal(link.code, TUNE_EPERM);
}

/* --- requests --------------------------------------------------------------------------------- */

/* Answers the second request before the first, with news in between, byte by byte. */
static void play_out_of_order(int fd)
{
    char line[4096];
    greet(fd);
    read_line(fd, line, sizeof line);
    static const char text[] =
        "{\"jsonrpc\":\"2.0\",\"method\":\"progress\",\"params\":{\"n\":1}}\r\n\n"
        "{\"jsonrpc\":\"2.0\",\"id\":77,\"result\":\"somebody else's\"}\n"
        "{\"jsonrpc\":\"2.0\",\"method\":\"done\",\"params\":{\"n\":2}}\n"
        "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"\xC3\xA4\":[1,2]}}\n"
        "{\"jsonrpc\":\"2.0\",\"method\":\"progress\",\"params\":{\"n\":3}}\n";
    for (const char *at = text; *at != '\0'; at++)
        write_text(fd, (const char[]){*at, '\0'});
}

static void a_reply_is_found_among_news_which_stay_in_order(void **state)
{
    (void)state;
    struct server server;
    struct tune_error err = {0};
    struct tune_client *client = meet(&server, play_out_of_order);
    json_t *result = NULL, *message;
    assert_int_equal(tune_request(client, "jobs", NULL, &result, &err), 0);
    assert_int_equal(json_array_size(json_object_get(result, "\xC3\xA4")), 2);
    json_decref(result);
    for (int expected = 1; expected <= 3; expected++) {
        assert_int_equal(tune_next(client, 10000, &message, &err), 1);
        json_t *params = json_object_get(message, "params");
        assert_int_equal(json_integer_value(json_object_get(params, "n")), expected);
        json_decref(message);
    }
    part(&server, client);
}

static void play_refusal(int fd)
{
    char line[4096];
    greet(fd);
    read_line(fd, line, sizeof line);
    write_text(fd,
        "{\"jsonrpc\":\"2.0\",\"id\":2,\"error\":{\"code\":-32000,\"message\":\"no kernel x\","
        "\"data\":{\"code\":\"not_found\"}}}\n");
    read_line(fd, line, sizeof line);
    write_text(fd,
        "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32000,\"message\":\"too many\","
        "\"data\":{\"code\":\"busy\"}}}\n");
}

static void an_error_arrives_with_its_code_and_sentence(void **state)
{
    (void)state;
    struct server server;
    struct tune_error err = {0};
    struct tune_client *client = meet(&server, play_refusal);
    json_t *result;
    assert_int_equal(tune_request(client, "get", json_object(), &result, &err), -1);
    assert_null(result);
    assert_int_equal(err.code, TUNE_ENOTFOUND);
    assert_string_equal(err.text, "no kernel x");
    /* An error without an id is about the connection, and ends the wait as well. */
    err = (struct tune_error){0};
    assert_int_equal(tune_request(client, "get", json_object(), &result, &err), -1);
    assert_int_equal(err.code, TUNE_EBUSY);
    part(&server, client);
}

static void play_hang_up(int fd)
{
    char line[4096];
    greet(fd);
    read_line(fd, line, sizeof line);
    write_text(fd, "{\"jsonrpc\":\"2.0\",\"id\":2,\"resu");
}

static void a_connection_that_ends_in_a_reply_is_an_io_error(void **state)
{
    (void)state;
    struct server server;
    struct tune_error err = {0};
    struct tune_client *client = meet(&server, play_hang_up);
    assert_int_equal(tune_request(client, "jobs", NULL, NULL, &err), -1);
    assert_int_equal(err.code, TUNE_EIO);
    assert_non_null(strstr(err.text, "closed the connection"));
    part(&server, client);
}

static void play_late(int fd)
{
    char line[4096];
    greet(fd);
    read_line(fd, line, sizeof line); /* id 2 is not answered in time */
    read_line(fd, line, sizeof line);
    write_text(fd, "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":\"late\"}\n"
                   "{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":\"right\"}\n");
}

static void a_late_reply_is_not_taken_for_the_next_one(void **state)
{
    (void)state;
    struct server server;
    struct tune_error err = {0};
    struct tune_client *client = meet(&server, play_late);
    json_t *result;
    tune_set_timeout(client, 1);
    assert_int_equal(tune_request(client, "jobs", NULL, &result, &err), -1);
    assert_int_equal(err.code, TUNE_ETIMEOUT);
    tune_set_timeout(client, TUNE_NO_LIMIT);
    err = (struct tune_error){0};
    assert_int_equal(tune_request(client, "jobs", NULL, &result, &err), 0);
    assert_string_equal(json_string_value(result), "right");
    json_decref(result);
    part(&server, client);
}

static void play_nonsense(int fd)
{
    char line[4096];
    greet(fd);
    read_line(fd, line, sizeof line);
    write_text(fd, "{\"jsonrpc\":\"2.0\",\"id\":2}\n");
    read_line(fd, line, sizeof line);
    write_text(fd, "[1,2]\n");
}

static void a_message_that_is_none_is_reported_not_trusted(void **state)
{
    (void)state;
    struct server server;
    struct tune_error err = {0};
    struct tune_client *client = meet(&server, play_nonsense);
    json_t *result;
    assert_int_equal(tune_request(client, "jobs", NULL, &result, &err), -1);
    assert_int_equal(err.code, TUNE_EPARSE);
    err = (struct tune_error){0};
    assert_int_equal(tune_request(client, "jobs", NULL, &result, &err), -1);
    assert_int_equal(err.code, TUNE_EPARSE);
    part(&server, client);
}

static void a_request_over_the_limit_is_not_sent(void **state)
{
    (void)state;
    struct server server;
    struct tune_error err = {0};
    struct tune_client *client = meet(&server, play_refusal);
    char *text = malloc((size_t)2 << 20);
    memset(text, 'a', (size_t)2 << 20);
    json_t *params = json_pack("{s:s#}", "kernel", text, (int)((2 << 20) - 1));
    free(text);
    assert_int_equal(tune_request(client, "get", params, NULL, &err), -1);
    assert_int_equal(err.code, TUNE_ELIMIT);
    part(&server, client);
}

/* --- news ------------------------------------------------------------------------------------- */

static void play_flood(int fd)
{
    char line[4096];
    greet(fd);
    read_line(fd, line, sizeof line);
    write_text(fd, "{\"jsonrpc\":\"2.0\",\"method\":\"done\",\"params\":{\"n\":-1}}\n");
    for (int i = 0; i < 6000; i++) {
        snprintf(line, sizeof line,
            "{\"jsonrpc\":\"2.0\",\"method\":\"progress\",\"params\":{\"n\":%d}}\n", i);
        write_text(fd, line);
    }
    write_text(fd, "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":null}\n");
}

static void a_flood_of_progress_is_bounded_and_never_costs_a_done(void **state)
{
    (void)state;
    struct server server;
    struct tune_error err = {0};
    struct tune_client *client = meet(&server, play_flood);
    json_t *message;
    int count = 0, last = 0, dones = 0;
    assert_int_equal(tune_request(client, "jobs", NULL, NULL, &err), 0);
    while (tune_next(client, 0, &message, &err) > 0) {
        last = (int)json_integer_value(json_object_get(json_object_get(message, "params"), "n"));
        dones += last == -1;
        count++;
        json_decref(message);
    }
    assert_int_equal(count, 4096);
    assert_int_equal(dones, 1);
    assert_int_equal(last, 5999);
    part(&server, client);
}

static void on_alarm(int number)
{
    (void)number;
}

static void a_signal_ends_the_wait_for_news_but_not_the_connection(void **state)
{
    (void)state;
    struct server server;
    struct tune_error err = {0};
    struct tune_client *client = meet(&server, play_late);
    struct sigaction action = {.sa_handler = on_alarm};
    sigaction(SIGALRM, &action, NULL);
    /* Repeating, so that one which comes before the wait does not matter. */
    ualarm(2000, 2000);
    json_t *message;
    assert_int_equal(tune_next(client, TUNE_NO_LIMIT, &message, &err), 0);
    ualarm(0, 0);
    assert_null(message);
    tune_set_timeout(client, 1);
    tune_request(client, "jobs", NULL, NULL, NULL);
    tune_set_timeout(client, TUNE_NO_LIMIT);
    assert_int_equal(tune_request(client, "jobs", NULL, NULL, &err), 0);
    part(&server, client);
}

/* --- programs --------------------------------------------------------------------------------- */

static void a_program_is_taken_from_the_variable_or_refused(void **state)
{
    (void)state;
    char path[256];
    struct tune_error err = {0};
    setenv("TUNE_TUNERD", "/bin/sh", 1);
    assert_int_equal(tune_find_program("tunerd", path, sizeof path, &err), 0);
    assert_string_equal(path, "/bin/sh");
    setenv("TUNE_TUNERD", "/etc", 1);
    assert_int_equal(tune_find_program("tunerd", path, sizeof path, &err), -1);
    assert_int_equal(err.code, TUNE_ENOTFOUND);
    assert_non_null(strstr(err.text, "TUNE_TUNERD"));
    unsetenv("TUNE_TUNERD");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(connecting_greets_and_keeps_what_the_daemon_said),
        cmocka_unit_test(a_daemon_of_another_protocol_is_refused_with_both_versions),
        cmocka_unit_test(a_socket_path_of_108_bytes_is_refused_with_the_limit),
        cmocka_unit_test(the_socket_is_looked_for_in_the_documented_order),
        cmocka_unit_test(a_planted_folder_in_tmp_is_not_trusted),
        cmocka_unit_test(a_reply_is_found_among_news_which_stay_in_order),
        cmocka_unit_test(an_error_arrives_with_its_code_and_sentence),
        cmocka_unit_test(a_connection_that_ends_in_a_reply_is_an_io_error),
        cmocka_unit_test(a_late_reply_is_not_taken_for_the_next_one),
        cmocka_unit_test(a_message_that_is_none_is_reported_not_trusted),
        cmocka_unit_test(a_request_over_the_limit_is_not_sent),
        cmocka_unit_test(a_flood_of_progress_is_bounded_and_never_costs_a_done),
        cmocka_unit_test(a_signal_ends_the_wait_for_news_but_not_the_connection),
        cmocka_unit_test(a_program_is_taken_from_the_variable_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
