/* Bytes <-> lines <-> JSON messages: the one codec of tunerd.
 *
 * The socket and the worker pipe speak the same form: one JSON value per line, UTF-8, ended by '\n'
 * ('\r' before it is tolerated, empty lines are skipped). On the socket each line is a JSON-RPC 2.0
 * message; on the worker pipe it is one of the messages described in daemon/worker/pipe.h. Nothing
 * here does I/O, so everything can be tested and fuzzed from memory.
 *
 * Ambiguous JSON is refused rather than guessed at: duplicate keys, a byte-order mark, bytes that
 * are not UTF-8, trailing values, NUL escapes, and nesting deeper than PROTO_DEPTH_LIMIT (checked
 * before the parser builds anything). */
#ifndef TUNE_PROTO_H
#define TUNE_PROTO_H

#include "client/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TUNE_PROTO_VERSION 1 /* raise on an incompatible change of messages; `ping` reports it */

/* Lines: a request on the socket, and a message from the daemon or on the worker pipe. */
#define PROTO_REQUEST_LIMIT_BYTES ((size_t)1 << 20)
#define PROTO_MESSAGE_LIMIT_BYTES ((size_t)128 << 20)
#define PROTO_DEPTH_LIMIT 32

/* --- lines ------------------------------------------------------------------------------------ */

/* Collects bytes into lines. The buffer grows as needed up to the limit. */
struct proto_reader {
    char *bytes;
    size_t used, room, limit;
    size_t scanned; /* bytes already known to hold no newline */
    size_t taken;   /* bytes of lines already handed out, reclaimed at the next feed */
};

void proto_reader_init(struct proto_reader *reader, size_t limit_bytes);
void proto_reader_finish(struct proto_reader *reader);

/* Adds bytes. Fails with TUNE_ELIMIT when a line outgrows the limit: framing is then lost and the
 * connection must end. */
int proto_reader_feed(
    struct proto_reader *reader, const char *bytes, size_t count, struct tune_error *err);

/* The next whole line, NUL-terminated and without its line end; *length gets its length. NULL when
 * none is complete. Borrowed until the next feed or finish. */
char *proto_reader_next(struct proto_reader *reader, size_t *length);

/* Bytes held of a line that has not ended yet. */
size_t proto_reader_pending(const struct proto_reader *reader);

/* --- JSON ------------------------------------------------------------------------------------- */

/* Parses one strict JSON value. New reference, or NULL with TUNE_EPARSE and the position. */
json_t *proto_parse(const char *text, size_t length, struct tune_error *err);

/* One compact line with its '\n', malloc'ed; *length excludes the NUL. NULL only without memory. */
char *proto_line(const json_t *message, size_t *length);

/* JSON-RPC messages; each takes `params`/`result`/`id` by stealing the reference (NULL id: null).
 * New reference. */
json_t *proto_request_new(json_int_t id, const char *method, json_t *params);
json_t *proto_notification_new(const char *method, json_t *params);
json_t *proto_result_new(json_t *id, json_t *result);
/* New: a string for people, who may be quoted a path, bytes of a broken message, or a character
 * that was cut: then each byte beyond ASCII becomes '?'. NULL only without memory. */
json_t *proto_text(const char *text);
/* error.code by the kind of failure (-32700, -32601, -32602, -32603, else -32000), error.data.code
 * the stable word, error.message the sentence. */
json_t *proto_error_new(json_t *id, const struct tune_error *err);

/* Field access with errors that name the field. `object` may be NULL (all fields absent). The
 * `_opt` forms leave *out untouched when the field is absent; null counts as absent. */
int proto_string(const json_t *object, const char *key, const char **out, struct tune_error *err);
int proto_string_opt(
    const json_t *object, const char *key, const char **out, struct tune_error *err);
int proto_int(const json_t *object, const char *key, int64_t min, int64_t max, int64_t *out,
    struct tune_error *err);
int proto_int_opt(const json_t *object, const char *key, int64_t min, int64_t max, int64_t *out,
    struct tune_error *err);
int proto_bool_opt(const json_t *object, const char *key, bool *out, struct tune_error *err);
/* Integer or real, finite. */
int proto_number_opt(const json_t *object, const char *key, double *out, struct tune_error *err);
/* Borrowed array/object, or NULL in *out when absent. */
int proto_array_opt(const json_t *object, const char *key, json_t **out, struct tune_error *err);
int proto_object_opt(const json_t *object, const char *key, json_t **out, struct tune_error *err);
/* Fails, naming the field, when `object` has a key that is not in the NULL-ended list. */
int proto_known_keys(
    const json_t *object, const char *const *known, const char *what, struct tune_error *err);

/* --- base64 (RFC 4648, padded) ---------------------------------------------------------------- */

char *proto_base64_encode(const void *bytes, size_t count); /* malloc'ed, NULL: no memory */
void *proto_base64_decode(const char *text, size_t *count, struct tune_error *err); /* malloc'ed */

#endif
