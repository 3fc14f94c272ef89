/* libtune, the lower half: a blocking connection to tunerd that speaks JSON-RPC, and its manual. An
 * application that wants launch configurations is better served by tune.h, which is made of this.
 *
 * A program connects to the daemon of its user (or of the system), asks by JSON-RPC, and gets JSON
 * back as jansson values (https://jansson.readthedocs.io). The shortest useful program:
 *
 *     struct tune_error err = { 0 };
 *     struct tune_client *client = NULL;
 *     json_t *answer = NULL;
 *     json_t *ask = json_pack("{s:s, s:{s:i, s:i, s:i}}", "kernel", "gemm",
 *         "shape", "M", 4096, "N", 4096, "K", 4096);
 *     if (tune_connect(NULL, &client, &err) || tune_request(client, "get", ask, &answer, &err))
 *         fprintf(stderr, "%s\n", err.text);
 *     else
 *         launch(json_object_get(answer, "launches"));
 *     json_decref(answer);
 *     tune_disconnect(client);
 *
 * Errors. Functions return 0, or -1 with *err filled (error.h; it may be NULL, and must be zero
 * before the call: the first cause wins). An error that the daemon sent arrives with its own code
 * and sentence. After TUNE_EIO, TUNE_ETIMEOUT or TUNE_EVERSION the
 * connection is of no more use: disconnect and connect anew.
 *
 * Ownership. `params` is taken (also on failure), `*result` is a new reference, a client is yours
 * until tune_disconnect.
 *
 * Threads and signals. A client belongs to one thread at a time; make one per thread. Nothing here
 * raises SIGPIPE, installs a handler, or keeps a descriptor that a child would inherit. A signal
 * does not end a request; it does end the waiting of tune_next (with 0), so that a loop sees its
 * own flags.
 *
 * Which socket. tune_connect(NULL) tries, in this order, and takes the first that answers:
 *     $TUNE_SOCKET (alone, when it is set),
 *     $XDG_RUNTIME_DIR/tunerd.sock, or without that variable /tmp/tunerd-UID/tunerd.sock (the
 * folder must be yours with mode 0700, or it is refused), /run/tunerd/tunerd.sock (the system's
 * daemon). A path must be shorter than 108 bytes: the kernel's limit for a socket address. */
#ifndef TUNE_RPC_H
#define TUNE_RPC_H

#include "error.h"

#include <jansson.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TUNE_SOCKET_PATH_BYTES 108 /* with the NUL: sizeof sun_path */
#define TUNE_SYSTEM_SOCKET "/run/tunerd/tunerd.sock"
#define TUNE_NO_LIMIT (-1) /* as a time limit: wait as long as it takes */

/* One connection. */
struct tune_client;

/* The path at which this user's daemon listens: `asked` if not NULL, else $TUNE_SOCKET, else the
 * one in the runtime folder. Nothing is created. */
int tune_socket_path(const char *asked, char path[TUNE_SOCKET_PATH_BYTES], struct tune_error *err);

/* Connects to the daemon at `path`, or with NULL to the first that answers (see above), and makes
 * sure that it speaks this protocol. *client is new. TUNE_ENODAEMON when nobody answers: the text
 * names what was tried. */
int tune_connect(const char *path, struct tune_client **client, struct tune_error *err);
void tune_disconnect(struct tune_client *client); /* NULL is fine */

/* Starts a daemon for this user at tune_socket_path(NULL), unless one answers there by now, and
 * returns once it answers. Any number of programs may call this at once: they start one daemon (a
 * lock file beside the socket decides who). The daemon outlives the caller: a session of its own,
 * standard streams on /dev/null and $XDG_STATE_HOME/tunerd/tunerd.log. When it ends before
 * answering, the error carries the last line of that log. The program is found by
 * tune_find_program("tunerd"). */
int tune_autostart(struct tune_error *err);

/* Where tunerd's programs are: $TUNE_TUNERD or $TUNE_WORKER if set; beside this executable, in
 * ../bin, ../libexec/tunerd and ../lib/tunerd from there (an installation and a build tree look the
 * same); then in the folders of PATH. `name` is "tunerd" or "tune-worker". */
int tune_find_program(const char *name, char *path, size_t size, struct tune_error *err);

/* Calls a method and waits for its result; other messages that come meanwhile are kept for
 * tune_next. `params` may be NULL (none), `result` may be NULL (not wanted). */
int tune_request(struct tune_client *client, const char *method, json_t *params, json_t **result,
    struct tune_error *err);

/* Time that a request may take, in milliseconds, or TUNE_NO_LIMIT. 30,000 at the start; `get` with
 * the policy `wait` needs more. */
void tune_set_timeout(struct tune_client *client, int limit_ms);

/* The next notification (`progress`, `done`): a new {"jsonrpc","method","params"} in *message.
 * Returns 1 when there is one, 0 when limit_ms passed or a signal came, -1 on failure. At most
 * 4,096 are kept between calls; past that the oldest `progress` give way. */
int tune_next(struct tune_client *client, int limit_ms, json_t **message, struct tune_error *err);

/* The connection's descriptor, to wait on beside others: readable means that tune_next(client, 0)
 * should be called until it gives 0. Borrowed. */
int tune_descriptor(const struct tune_client *client);

/* The daemon's answer to `ping` when the connection was made ({"version","proto","pid","db",
 * "emulated",...}), and the socket it was made to. Borrowed until tune_disconnect. */
const json_t *tune_server(const struct tune_client *client);
const char *tune_server_path(const struct tune_client *client);

#ifdef __cplusplus
}
#endif

#endif
