/* One statement within a deadline: see pg.h. */
#include "daemon/fleet/pg.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

uint64_t pg_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

int pg_poll(int fd, short events, int cancel_fd, uint64_t deadline_ns, struct tune_error *err)
{
    struct pollfd fds[] = {{.fd = cancel_fd, .events = POLLIN}, {.fd = fd, .events = events}};
    for (;;) {
        uint64_t now_ns = pg_now_ns();
        if (now_ns >= deadline_ns)
            return tune_fail(err, TUNE_ETIMEOUT, "the fleet's server does not answer in time");
        struct timespec left = {
            .tv_sec = (time_t)((deadline_ns - now_ns) / 1000000000),
            .tv_nsec = (long)((deadline_ns - now_ns) % 1000000000),
        };
        int count = ppoll(fds, 2, &left, NULL);
        if (count < 0 && errno != EINTR)
            return tune_fail_errno(err, TUNE_EIO, "cannot wait for the fleet's server");
        if (count > 0 && fds[0].revents != 0)
            return tune_fail(err, TUNE_ECANCELED, "the link to the fleet is ending");
        if (count > 0)
            return 0;
    }
}

/* --- what went wrong -------------------------------------------------------------------------- */

static int fail_lost(struct engine *engine, struct tune_error *err)
{
    const char *text = PQerrorMessage(engine->conn);
    engine->is_lost = true;
    return tune_fail(err, TUNE_EIO, "the connection to the fleet's server is lost: %.*s",
        (int)strcspn(text, "\n"), text[0] != '\0' ? text : "it was closed");
}

/* SQLSTATEs by their beginning; the first that fits. Anything else is TUNE_EIO with a new
 * connection: also tables that have gone, which are then made anew. */
static const struct {
    const char *start;
    enum tune_code code;
    bool loses_connection;
    const char *what_to_do;
} states[] = {
    {"42501", TUNE_EPERM, false,
        "the owner of the database has to run what `tunerd --fleet-schema` prints, and its GRANTs"},
    {"25006", TUNE_EPERM, false, "this is a standby: name the primary, or both"},
    {"28", TUNE_EPERM, true, "check the user and the password of --fleet"},
    {"3D000", TUNE_EPERM, true, "create the database, or name another with --fleet"},
    {"57014", TUNE_ETIMEOUT, true, "the server took too long"},
    {"21", TUNE_EINVAL, false, "the server refuses a value"},
    {"22", TUNE_EINVAL, false, "the server refuses a value"},
    {"23", TUNE_EINVAL, false, "the server refuses a value"},
    {"", TUNE_EIO, true, "a new connection is tried"},
};

static int fail_result(struct engine *engine, const PGresult *result, struct tune_error *err)
{
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    if (state == NULL || PQstatus(engine->conn) == CONNECTION_BAD)
        return fail_lost(engine, err);
    snprintf(engine->sqlstate, sizeof engine->sqlstate, "%s", state);
    size_t i = 0;
    while (strncmp(state, states[i].start, strlen(states[i].start)) != 0)
        i++;
    engine->is_lost |= states[i].loses_connection;
    return tune_fail(err, states[i].code, "the fleet's server says: %s (%s)",
        text != NULL ? text : state, states[i].what_to_do);
}

/* --- sending and receiving -------------------------------------------------------------------- */

static int wait_socket(struct engine *engine, short events, struct tune_error *err)
{
    if (pg_poll(PQsocket(engine->conn), events, engine->cancel_fd, engine->deadline_ns, err)) {
        engine->is_lost = true;
        return -1;
    }
    return PQconsumeInput(engine->conn) ? 0 : fail_lost(engine, err);
}

static int flush(struct engine *engine, struct tune_error *err)
{
    int left;
    while ((left = PQflush(engine->conn)) > 0)
        if (wait_socket(engine, POLLIN | POLLOUT, err))
            return -1;
    return left == 0 ? 0 : fail_lost(engine, err);
}

/* The last result of what was sent, or the first that failed; new. */
static PGresult *receive(struct engine *engine, struct tune_error *err)
{
    PGresult *kept = NULL;
    for (;;) {
        while (PQisBusy(engine->conn))
            if (wait_socket(engine, POLLIN, err)) {
                PQclear(kept);
                return NULL;
            }
        PGresult *result = PQgetResult(engine->conn);
        if (result == NULL)
            return kept;
        ExecStatusType status = PQresultStatus(kept);
        if (kept != NULL && status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK) {
            PQclear(result);
            continue;
        }
        PQclear(kept);
        kept = result;
    }
}

static PGresult *finish_call(struct engine *engine, int columns, struct tune_error *err)
{
    if (flush(engine, err))
        return NULL;
    struct tune_error why = {0};
    PGresult *result = receive(engine, &why);
    if (result == NULL) {
        if (why.code == TUNE_OK)
            fail_lost(engine, &why);
        tune_fail(err, why.code, "%s", why.text);
        return NULL;
    }
    ExecStatusType status = PQresultStatus(result);
    bool is_good = status == PGRES_TUPLES_OK || (status == PGRES_COMMAND_OK && columns <= 0);
    if (!is_good)
        fail_result(engine, result, err);
    else if (columns >= 0 && PQnfields(result) != columns)
        tune_fail(err, TUNE_EVERSION,
            "the fleet's server answers with %d columns where %d are expected: its tables are not "
            "those of this version",
            PQnfields(result), columns);
    else
        return result;
    PQclear(result);
    return NULL;
}

PGresult *pg_call_within(struct engine *engine, const char *sql, const struct pg_params *params,
    int columns, struct tune_error *err)
{
    const char *values[PG_PARAMS_MAX];
    int lengths[PG_PARAMS_MAX], formats[PG_PARAMS_MAX], count = params ? params->count : 0;
    for (int i = 0; i < count; i++) {
        values[i] = params->values[i].bytes;
        lengths[i] = (int)params->values[i].length;
        formats[i] = 1;
    }
    engine->sqlstate[0] = '\0';
    bool is_sent =
        !engine->is_lost && PQsendQueryParams(engine->conn, sql, count,
                                params ? params->types : NULL, values, lengths, formats, 1);
    if (!is_sent) {
        fail_lost(engine, err);
        return NULL;
    }
    return finish_call(engine, columns, err);
}

PGresult *pg_call(struct engine *engine, const char *sql, const struct pg_params *params,
    int columns, struct tune_error *err)
{
    engine->deadline_ns = pg_now_ns() + (uint64_t)ENGINE_CALL_DEADLINE_MS * 1000000;
    return pg_call_within(engine, sql, params, columns, err);
}

int pg_script(struct engine *engine, const char *sql, struct tune_error *err)
{
    engine->sqlstate[0] = '\0';
    if (engine->is_lost || !PQsendQuery(engine->conn, sql))
        return fail_lost(engine, err);
    PGresult *result = finish_call(engine, -1, err);
    PQclear(result);
    return result != NULL ? 0 : -1;
}
