/* What the files of the PostgreSQL engine share: one connection, and calls on it with a deadline.
 *
 * Design. libpq without its blocking calls: the socket is not blocking, and every wait is a poll of
 * it, the cancel descriptor, and the time that is left. What libpq does block in by itself is
 * looking up host names: that is done by a thread of ours (pg_resolve.c), which may be left behind.
 * A statement is a transaction of its own, so that no lock is held while anything travels; what
 * needs several steps is a function in the server (schema.sql). Parameters and results are binary.
 */
#ifndef TUNE_PG_H
#define TUNE_PG_H

#include "daemon/fleet/engine.h"

#include <libpq-fe.h>

#define PG_SCHEMA_MAJOR 1 /* of schema.sql; raise it when older daemons must not use the tables */
#define PG_SQLSTATE_BYTES 6
#define PG_IDENTITY_BYTES 37

extern const char pg_schema_sql[]; /* made from schema.sql by CMake */

struct engine {
    PGconn *conn;
    int cancel_fd;
    uint64_t deadline_ns; /* of the call in progress */
    bool is_lost;
    char node[ENGINE_NODE_BYTES];
    char session[ENGINE_NODE_BYTES]; /* of this connection */
    char identity[PG_IDENTITY_BYTES];
    uint64_t head; /* the highest one that was seen */
    unsigned beats;
    char sqlstate[PG_SQLSTATE_BYTES]; /* of the last statement that failed */
};

uint64_t pg_now_ns(void);

/* Waits for events (POLLIN, POLLOUT) on fd until the deadline: 0, or -1 with TUNE_ETIMEOUT,
 * TUNE_ECANCELED, TUNE_EIO. fd -1: for the deadline or the cancel descriptor alone. */
int pg_poll(int fd, short events, int cancel_fd, uint64_t deadline_ns, struct tune_error *err);

/* --- parameters ------------------------------------------------------------------------------- */

#define PG_PARAMS_MAX 8

struct pg_buffer {
    char *bytes;
    size_t length, room;
};

struct pg_params {
    int count;
    struct pg_buffer values[PG_PARAMS_MAX];
    Oid types[PG_PARAMS_MAX];
};

void pg_params_finish(struct pg_params *params);
void pg_add_int(struct pg_params *params, int64_t value);
void pg_add_bool(struct pg_params *params, bool value);
void pg_add_text(struct pg_params *params, const char *text);
void pg_add_bytes(struct pg_params *params, const void *bytes, size_t count);
/* An array of `count` elements, which follow one by one. */
enum pg_array { PG_ARRAY_INT, PG_ARRAY_TEXT, PG_ARRAY_BYTES };
void pg_add_array(struct pg_params *params, enum pg_array kind, size_t count);
void pg_element_int(struct pg_params *params, int64_t value);
void pg_element_bytes(struct pg_params *params, const void *bytes, size_t count);

/* Fields of a binary result; 0 for NULL. */
int64_t pg_int(const PGresult *result, int row, int column);
double pg_double(const PGresult *result, int row, int column);
const char *pg_text(const PGresult *result, int row, int column); /* NULL for NULL; borrowed */

/* --- calls ------------------------------------------------------------------------------------ */

/* Runs one statement within ENGINE_CALL_DEADLINE_MS (pg_call) or what is left of the deadline
 * (pg_call_within) and gives its result (new) when that has `columns` columns (-1: any). params may
 * be NULL. NULL: failed, and the error is as engine.h says; engine->sqlstate tells which it was. */
PGresult *pg_call(struct engine *engine, const char *sql, const struct pg_params *params,
    int columns, struct tune_error *err);
PGresult *pg_call_within(struct engine *engine, const char *sql, const struct pg_params *params,
    int columns, struct tune_error *err);
/* A text of several statements, without parameters; one transaction. Within what is left. */
int pg_script(struct engine *engine, const char *sql, struct tune_error *err);

/* --- the operations, by file ------------------------------------------------------------------ */

/* pg_connect.c */
bool pg_knows(const char *url);
char *pg_show(const char *url);
struct engine *pg_connect(
    const char *url, const char *node, int cancel_fd, unsigned deadline_ms, struct tune_error *err);
void pg_destroy(struct engine *engine);
/* pg_schema.c: makes the tables when absent, checks their version, fills the identity. */
int pg_check_schema(struct engine *engine, struct tune_error *err);
/* pg_resolve.c: *options is new (NULL-ended, PQconninfoFree's kind is not touched): keywords and
 * values with which PQconnectStartParams needs no name service. */
struct pg_hosts {
    char *host, *hostaddr, *port; /* NULL: as given */
};
int pg_resolve(const PQconninfoOption *given, int cancel_fd, uint64_t deadline_ns,
    struct pg_hosts *hosts, struct tune_error *err);
void pg_hosts_finish(struct pg_hosts *hosts);
/* pg_rows.c */
int pg_put_batch(
    struct engine *engine, const struct engine_row *rows, size_t count, struct tune_error *err);
int pg_changes_since(struct engine *engine, uint64_t seq, size_t limit,
    void (*on_change)(const struct engine_row *row, void *context), void *context, uint64_t *head,
    struct tune_error *err);
int pg_wait(struct engine *engine, int wake_fd, unsigned timeout_ms, struct tune_error *err);
int pg_digest(
    struct engine *engine, struct engine_bucket buckets[ENGINE_BUCKETS], struct tune_error *err);
int pg_list_bucket(struct engine *engine, unsigned bucket,
    void (*on_row)(const struct engine_row *row, void *context), void *context,
    struct tune_error *err);
int pg_fetch(struct engine *engine, const uint8_t (*ids)[ENGINE_ID_BYTES], size_t count,
    void (*on_row)(const struct engine_row *row, void *context), void *context,
    struct tune_error *err);
/* pg_tasks.c */
int pg_offer(struct engine *engine, const char *target, const char *payload, uint64_t *task,
    struct tune_error *err);
int pg_lease(struct engine *engine, const char *const *targets, unsigned lease_ms,
    struct engine_task *task, struct tune_error *err);
int pg_renew(struct engine *engine, uint64_t task, unsigned lease_ms, struct tune_error *err);
int pg_complete(struct engine *engine, uint64_t task, bool has_failed, struct tune_error *err);
int pg_take_back(struct engine *engine, uint64_t task, struct tune_error *err);
int pg_task_state(struct engine *engine, uint64_t task, enum engine_task_state *state,
    uint64_t *done_seq, struct tune_error *err);
int pg_withdraw(struct engine *engine, uint64_t task, struct tune_error *err);
int pg_beat(struct engine *engine, const char *host, const char *targets, uint64_t position,
    struct tune_error *err);
int pg_status(struct engine *engine, void (*on_node)(const struct engine_node *node, void *context),
    void *context, uint64_t *rows, uint64_t *head, struct tune_error *err);

#endif
