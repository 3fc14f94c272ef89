/* Tasks, leases and nodes in PostgreSQL. All times are the server's; each statement is one
 * transaction. */
#include "daemon/fleet/pg.h"

#include "daemon/xmalloc.h"

#include <stdio.h>
#include <string.h>

#define TRIES_MAX "5"        /* leases of one task: after so many nobody is given it any more */
#define ASKER_SILENCE "60 s" /* the batches of an asker that is gone are not worth a GPU */
#define KEPT "1 day"         /* tasks that nobody withdrew, nodes that left */
#define BEATS_PER_SWEEP 300
#define NODES_MAX "2000" /* in a list: those that were heard of last */

/* Runs a statement on a task ($1) of this node ($2): in an engine that was made anew its number may
 * be that of another node's. */
static PGresult *call_on_task(
    struct engine *engine, const char *sql, uint64_t task, int columns, struct tune_error *err)
{
    struct pg_params params = {0};
    pg_add_int(&params, (int64_t)task);
    pg_add_text(&params, engine->node);
    PGresult *result = pg_call(engine, sql, &params, columns, err);
    pg_params_finish(&params);
    return result;
}

/* 0 when a row came back, else 1; -1. */
static int has_row(PGresult *result)
{
    int status = result == NULL ? -1 : PQntuples(result) > 0 ? 0 : 1;
    PQclear(result);
    return status;
}

int pg_offer(struct engine *engine, const char *target, const char *payload, uint64_t *task,
    struct tune_error *err)
{
    struct pg_params params = {0};
    pg_add_text(&params, engine->node);
    pg_add_text(&params, target);
    pg_add_text(&params, payload);
    PGresult *result = pg_call(engine, "SELECT tunerd.offer($1, $2, $3)", &params, 1, err);
    pg_params_finish(&params);
    if (result == NULL)
        return -1;
    *task = (uint64_t)pg_int(result, 0, 0);
    PQclear(result);
    return 0;
}

/* --- leases ----------------------------------------------------------------------------------- */

int pg_lease(struct engine *engine, const char *const *targets, unsigned lease_ms,
    struct engine_task *task, struct tune_error *err)
{
    struct pg_params params = {0};
    size_t count = 0;
    while (targets[count] != NULL)
        count++;
    pg_add_array(&params, PG_ARRAY_TEXT, count);
    for (size_t i = 0; i < count; i++)
        pg_element_bytes(&params, targets[i], strlen(targets[i]));
    pg_add_text(&params, engine->node);
    pg_add_int(&params, lease_ms);
    PGresult *result = pg_call(engine,
        "UPDATE tunerd.task SET state = 1, owner = $2, tries = tries + 1,"
        "  lease_until = clock_timestamp() + $3 * interval '1 ms'"
        " WHERE id = (SELECT t.id FROM tunerd.task t WHERE t.target = ANY ($1) AND t.asker <> $2"
        "  AND octet_length(t.payload) <= 262144"
        "  AND (t.state = 0 OR t.state = 1 AND t.lease_until < clock_timestamp())"
        "  AND t.tries < " TRIES_MAX
        "  AND EXISTS (SELECT FROM tunerd.node n WHERE n.node = t.asker"
        "    AND n.seen > clock_timestamp() - interval '" ASKER_SILENCE "')"
        "  ORDER BY t.id FOR UPDATE OF t SKIP LOCKED LIMIT 1)"
        " RETURNING id, asker, target, payload, done_seq, tries",
        &params, 6, err);
    pg_params_finish(&params);
    if (result == NULL || PQntuples(result) == 0) {
        PQclear(result);
        return result != NULL ? 1 : -1;
    }
    *task = (struct engine_task){
        .id = (uint64_t)pg_int(result, 0, 0),
        .target = xstrdup(pg_text(result, 0, 2)),
        .payload = xstrdup(pg_text(result, 0, 3)),
        .done_seq = (uint64_t)pg_int(result, 0, 4),
        .tries = (unsigned)pg_int(result, 0, 5),
    };
    snprintf(task->asker, sizeof task->asker, "%s", pg_text(result, 0, 1));
    PQclear(result);
    return 0;
}

int pg_renew(struct engine *engine, uint64_t task, unsigned lease_ms, struct tune_error *err)
{
    struct pg_params params = {0};
    pg_add_int(&params, (int64_t)task);
    pg_add_text(&params, engine->node);
    pg_add_int(&params, lease_ms);
    PGresult *result = pg_call(engine,
        "UPDATE tunerd.task SET lease_until = clock_timestamp() + $3 * interval '1 ms'"
        " WHERE id = $1 AND owner = $2 AND state = 1 RETURNING id",
        &params, 1, err);
    pg_params_finish(&params);
    return has_row(result);
}

int pg_complete(struct engine *engine, uint64_t task, bool has_failed, struct tune_error *err)
{
    struct pg_params params = {0};
    pg_add_int(&params, (int64_t)task);
    pg_add_text(&params, engine->node);
    pg_add_bool(&params, has_failed);
    PGresult *result = pg_call(engine, "SELECT tunerd.complete($1, $2, $3)", &params, 1, err);
    pg_params_finish(&params);
    if (result == NULL)
        return -1;
    int status = pg_int(result, 0, 0) == 1 ? 0 : 1;
    PQclear(result);
    return status;
}

/* --- the asker -------------------------------------------------------------------------------- */

int pg_take_back(struct engine *engine, uint64_t task, struct tune_error *err)
{
    return has_row(call_on_task(engine,
        "DELETE FROM tunerd.task WHERE id = $1 AND asker = $2"
        " AND (state = 0 OR state = 1 AND lease_until < clock_timestamp()) RETURNING id",
        task, 1, err));
}

int pg_task_state(struct engine *engine, uint64_t task, enum engine_task_state *state,
    uint64_t *done_seq, struct tune_error *err)
{
    PGresult *result = call_on_task(engine,
        "SELECT CASE WHEN state < 2 AND tries >= " TRIES_MAX
        " AND lease_until < clock_timestamp() THEN 3"
        " WHEN state = 1 AND lease_until < clock_timestamp() THEN 0 ELSE state END, done_seq"
        " FROM tunerd.task WHERE id = $1 AND asker = $2",
        task, 2, err);
    static const enum engine_task_state states[] = {
        ENGINE_TASK_WAITING, ENGINE_TASK_LEASED, ENGINE_TASK_DONE, ENGINE_TASK_FAILED};
    if (result == NULL)
        return -1;
    bool is_there = PQntuples(result) == 1;
    *state = is_there ? states[pg_int(result, 0, 0) & 3] : ENGINE_TASK_GONE;
    *done_seq = is_there ? (uint64_t)pg_int(result, 0, 1) : 0;
    PQclear(result);
    return 0;
}

int pg_withdraw(struct engine *engine, uint64_t task, struct tune_error *err)
{
    PGresult *result =
        call_on_task(engine, "DELETE FROM tunerd.task WHERE id = $1 AND asker = $2", task, -1, err);
    PQclear(result);
    return result != NULL ? 0 : -1;
}

/* --- nodes ------------------------------------------------------------------------------------ */

static int sweep(struct engine *engine, struct tune_error *err)
{
    static const char *const statements[] = {
        "DELETE FROM tunerd.task WHERE made < clock_timestamp() - interval '" KEPT "'",
        "DELETE FROM tunerd.node WHERE seen < clock_timestamp() - interval '" KEPT "'",
    };
    int status = 0;
    for (size_t i = 0; status == 0 && i < 2; i++) {
        PGresult *result = pg_call(engine, statements[i], NULL, -1, err);
        status = result != NULL ? 0 : -1;
        PQclear(result);
    }
    return status;
}

int pg_beat(struct engine *engine, const char *host, const char *targets, uint64_t position,
    struct tune_error *err)
{
    struct pg_params params = {0};
    if (engine->beats++ % BEATS_PER_SWEEP == 0 && sweep(engine, err))
        return -1;
    pg_add_text(&params, engine->node);
    pg_add_text(&params, engine->session);
    pg_add_text(&params, host);
    pg_add_text(&params, targets);
    pg_add_int(&params, (int64_t)position);
    PGresult *result = pg_call(engine,
        "UPDATE tunerd.node SET host = $3, targets = $4, position = $5, seen = clock_timestamp()"
        " WHERE node = $1 AND session = $2 RETURNING node",
        &params, 1, err);
    pg_params_finish(&params);
    return has_row(result);
}

int pg_status(struct engine *engine, void (*on_node)(const struct engine_node *node, void *context),
    void *context, uint64_t *rows, uint64_t *head, struct tune_error *err)
{
    PGresult *result = pg_call(engine,
        "SELECT n.node, n.host, n.targets,"
        " extract(epoch FROM clock_timestamp() - n.seen)::double precision, n.position, c.rows,"
        " c.head FROM (SELECT (SELECT sum(rows)::bigint FROM tunerd.bucket) AS rows,"
        " (SELECT seq FROM tunerd.head) AS head) c LEFT JOIN tunerd.node n ON true"
        " ORDER BY n.seen DESC LIMIT " NODES_MAX,
        NULL, 7, err);
    if (result == NULL)
        return -1;
    *rows = PQntuples(result) > 0 ? (uint64_t)pg_int(result, 0, 5) : 0;
    *head = PQntuples(result) > 0 ? (uint64_t)pg_int(result, 0, 6) : 0;
    for (int i = 0; i < PQntuples(result); i++) {
        struct engine_node node = {
            .host = pg_text(result, i, 1),
            .targets = pg_text(result, i, 2),
            .age_s = pg_double(result, i, 3),
            .position = (uint64_t)pg_int(result, i, 4),
        };
        if (pg_text(result, i, 0) == NULL)
            continue;
        snprintf(node.node, sizeof node.node, "%s", pg_text(result, i, 0));
        on_node(&node, context);
    }
    PQclear(result);
    return 0;
}
