/* Rows in PostgreSQL: putting, the feed of changes, digests. */
#include "daemon/fleet/pg.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define LINE "left(line, 65537)" /* enough to see that it is too long, and no more */

int pg_put_batch(
    struct engine *engine, const struct engine_row *rows, size_t count, struct tune_error *err)
{
    struct pg_params params = {0};
    pg_add_array(&params, PG_ARRAY_BYTES, count);
    for (size_t i = 0; i < count; i++)
        pg_element_bytes(&params, rows[i].id, sizeof rows[i].id);
    pg_add_array(&params, PG_ARRAY_INT, count);
    for (size_t i = 0; i < count; i++)
        pg_element_int(&params, (int64_t)rows[i].rank);
    pg_add_array(&params, PG_ARRAY_INT, count);
    for (size_t i = 0; i < count; i++)
        pg_element_int(&params, (int64_t)rows[i].hash);
    pg_add_array(&params, PG_ARRAY_TEXT, count);
    for (size_t i = 0; i < count; i++)
        pg_element_bytes(&params, rows[i].line, strlen(rows[i].line));
    pg_add_text(&params, engine->node);
    PGresult *result = pg_call(engine, "SELECT tunerd.put($1, $2, $3, $4, $5)", &params, 1, err);
    pg_params_finish(&params);
    PQclear(result);
    return result != NULL ? 0 : -1;
}

/* --- reading ---------------------------------------------------------------------------------- */

/* id, rank, hash, line, seq. An id of another length cannot be stored. */
static void tell_rows(const PGresult *result,
    void (*on_row)(const struct engine_row *row, void *context), void *context)
{
    for (int i = 0; i < PQntuples(result); i++) {
        struct engine_row row = {
            .rank = (uint64_t)pg_int(result, i, 1),
            .hash = (uint64_t)pg_int(result, i, 2),
            .line = pg_text(result, i, 3),
            .seq = (uint64_t)pg_int(result, i, 4),
        };
        if (PQgetlength(result, i, 0) != ENGINE_ID_BYTES)
            continue;
        memcpy(row.id, PQgetvalue(result, i, 0), ENGINE_ID_BYTES);
        on_row(&row, context);
    }
}

/* A question for rows; takes what the parameters hold. */
static int ask_rows(struct engine *engine, const char *question, struct pg_params *params,
    void (*on_row)(const struct engine_row *row, void *context), void *context,
    struct tune_error *err)
{
    PGresult *result = pg_call(engine, question, params, 5, err);
    pg_params_finish(params);
    if (result == NULL)
        return -1;
    tell_rows(result, on_row, context);
    PQclear(result);
    return 0;
}

static int read_head(struct engine *engine, uint64_t *head, struct tune_error *err)
{
    PGresult *result = pg_call(engine, "SELECT seq FROM tunerd.head", NULL, 1, err);
    if (result == NULL)
        return -1;
    *head = PQntuples(result) == 1 ? (uint64_t)pg_int(result, 0, 0) : 0;
    if (*head > engine->head)
        engine->head = *head;
    PQclear(result);
    return 0;
}

/* The head is read first: all changes up to it are then visible, and a row that claims a number
 * beyond it (written by hand) does not carry the reader there. */
int pg_changes_since(struct engine *engine, uint64_t seq, size_t limit,
    void (*on_change)(const struct engine_row *row, void *context), void *context, uint64_t *head,
    struct tune_error *err)
{
    struct pg_params params = {0};
    if (read_head(engine, head, err))
        return -1;
    if (*head <= seq || limit == 0)
        return 0;
    pg_add_int(&params, (int64_t)seq);
    pg_add_int(&params, (int64_t)limit);
    pg_add_text(&params, engine->node);
    pg_add_int(&params, (int64_t)*head);
    return ask_rows(engine,
        "SELECT id, rank, hash, CASE WHEN node <> $3 THEN " LINE " END, seq FROM tunerd.sample"
        " WHERE seq > $1 AND seq <= $4 ORDER BY seq LIMIT $2",
        &params, on_change, context, err);
}

int pg_digest(
    struct engine *engine, struct engine_bucket buckets[ENGINE_BUCKETS], struct tune_error *err)
{
    PGresult *result =
        pg_call(engine, "SELECT bucket, rows, digest FROM tunerd.bucket", NULL, 3, err);
    if (result == NULL)
        return -1;
    memset(buckets, 0, ENGINE_BUCKETS * sizeof *buckets);
    for (int i = 0; i < PQntuples(result); i++) {
        size_t bucket = (size_t)pg_int(result, i, 0);
        if (bucket < ENGINE_BUCKETS)
            buckets[bucket] = (struct engine_bucket){
                (uint64_t)pg_int(result, i, 1), (uint64_t)pg_int(result, i, 2)};
    }
    PQclear(result);
    return 0;
}

int pg_list_bucket(struct engine *engine, unsigned bucket,
    void (*on_row)(const struct engine_row *row, void *context), void *context,
    struct tune_error *err)
{
    struct pg_params params = {0};
    uint8_t first = (uint8_t)bucket, after = (uint8_t)(bucket + 1);
    pg_add_bytes(&params, &first, 1);
    if (bucket < 255)
        pg_add_bytes(&params, &after, 1);
    return ask_rows(engine,
        bucket < 255 ? "SELECT id, rank, hash, NULL::text, seq FROM tunerd.sample"
                       " WHERE id >= $1 AND id < $2"
                     : "SELECT id, rank, hash, NULL::text, seq FROM tunerd.sample WHERE id >= $1",
        &params, on_row, context, err);
}

int pg_fetch(struct engine *engine, const uint8_t (*ids)[ENGINE_ID_BYTES], size_t count,
    void (*on_row)(const struct engine_row *row, void *context), void *context,
    struct tune_error *err)
{
    struct pg_params params = {0};
    pg_add_array(&params, PG_ARRAY_BYTES, count);
    for (size_t i = 0; i < count; i++)
        pg_element_bytes(&params, ids[i], ENGINE_ID_BYTES);
    return ask_rows(engine,
        "SELECT id, rank, hash, " LINE ", seq FROM tunerd.sample WHERE id = ANY ($1)", &params,
        on_row, context, err);
}

/* --- waiting ---------------------------------------------------------------------------------- */

/* Whether a notification concerns this node: "rows HEAD", "task", "end NODE". */
static bool is_news(struct engine *engine, const char *text)
{
    if (strncmp(text, "rows ", 5) == 0)
        return strtoull(text + 5, NULL, 10) > engine->head;
    return strncmp(text, "end ", 4) != 0 || strcmp(text + 4, engine->node) == 0;
}

static bool take_notifications(struct engine *engine)
{
    bool has_news = false;
    PGnotify *notification;
    while ((notification = PQnotifies(engine->conn)) != NULL) {
        has_news |= is_news(engine, notification->extra);
        PQfreemem(notification);
    }
    return has_news;
}

static int fail_waiting(struct engine *engine, struct tune_error *err)
{
    engine->is_lost = true;
    return tune_fail(err, TUNE_EIO, "the connection to the fleet's server is lost");
}

int pg_wait(struct engine *engine, int wake_fd, unsigned timeout_ms, struct tune_error *err)
{
    uint64_t end_ns = pg_now_ns() + (uint64_t)timeout_ms * 1000000;
    if (engine->is_lost)
        return fail_waiting(engine, err);
    while (!take_notifications(engine)) {
        struct pollfd fds[] = {
            {.fd = PQsocket(engine->conn), .events = POLLIN},
            {.fd = wake_fd, .events = POLLIN},
            {.fd = engine->cancel_fd, .events = POLLIN},
        };
        uint64_t now_ns = pg_now_ns();
        int left_ms = now_ns < end_ns ? (int)((end_ns - now_ns + 999999) / 1000000) : 0;
        int count = poll(fds, 3, left_ms);
        if (fds[2].revents != 0 && count > 0)
            return tune_fail(err, TUNE_ECANCELED, "the link to the fleet is ending");
        if (count > 0 && fds[0].revents != 0 && !PQconsumeInput(engine->conn))
            return fail_waiting(engine, err);
        if (count == 0 || (count > 0 && fds[1].revents != 0))
            return 0;
    }
    return 1;
}
