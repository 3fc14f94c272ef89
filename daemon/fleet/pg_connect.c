/* The PostgreSQL engine's connection: made step by step within a deadline, with settings by which
 * neither side waits for the other for ever. */
#include "daemon/fleet/pg.h"

#include "daemon/xmalloc.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

#define SETTINGS_MAX 64

/* --- the URL ---------------------------------------------------------------------------------- */

bool pg_knows(const char *url)
{
    bool is_uri = strncmp(url, "postgresql://", 13) == 0 || strncmp(url, "postgres://", 11) == 0;
    if (!is_uri && strchr(url, '=') == NULL)
        return false;
    PQconninfoOption *options = PQconninfoParse(url, NULL);
    PQconninfoFree(options);
    return options != NULL;
}

/* libpq marks what is secret with '*'; what it does not know the meaning of is not shown. */
char *pg_show(const char *url)
{
    static const char *const shown[] = {
        "user", "host", "hostaddr", "port", "dbname", "service", "sslmode"};
    PQconninfoOption *options = PQconninfoParse(url, NULL);
    char *text = xstrdup("PostgreSQL");
    for (size_t i = 0; options != NULL && i < sizeof shown / sizeof shown[0]; i++)
        for (const PQconninfoOption *at = options; at->keyword != NULL; at++) {
            if (strcmp(at->keyword, shown[i]) != 0 || at->val == NULL || at->dispchar[0] == '*')
                continue;
            char *longer = xasprintf("%s %s=%s", text, at->keyword, at->val);
            free(text);
            text = longer;
        }
    PQconninfoFree(options);
    return text;
}

/* --- settings --------------------------------------------------------------------------------- */

struct settings {
    const char *keywords[SETTINGS_MAX + 1], *values[SETTINGS_MAX + 1];
    size_t count;
};

static void set(struct settings *settings, const char *keyword, const char *value)
{
    if (value == NULL || settings->count == SETTINGS_MAX)
        return;
    settings->keywords[settings->count] = keyword;
    settings->values[settings->count++] = value;
}

/* Of two settings of one keyword the later one counts: ours, the user's, the addresses. */
static void fill_settings(
    struct settings *settings, const PQconninfoOption *given, const struct pg_hosts *hosts)
{
    set(settings, "application_name", "tunerd");
    set(settings, "client_encoding", "UTF8");
    set(settings, "target_session_attrs", "read-write");
    set(settings, "gssencmode", "disable"); /* Kerberos may wait for its own servers */
    /* A network that is cut is noticed within 10 s, also while nothing is to be sent. */
    set(settings, "keepalives_idle", "4");
    set(settings, "keepalives_interval", "2");
    set(settings, "keepalives_count", "2");
    set(settings, "tcp_user_timeout", "8000");
    for (; given->keyword != NULL; given++)
        set(settings, given->keyword, given->val);
    set(settings, "host", hosts->host);
    set(settings, "hostaddr", hosts->hostaddr);
    set(settings, "port", hosts->port);
}

/* The server ends what is of nobody any more, and is durable whatever its default. */
static const char session_sql[] =
    "SELECT set_config('statement_timeout', '15s', false),"
    " set_config('lock_timeout', '0', false),"
    " set_config('client_connection_check_interval', '2s', false),"
    " set_config('tcp_user_timeout', '8000', false),"
    " set_config('synchronous_commit', CASE current_setting('synchronous_commit')"
    "   WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, false),"
    " current_setting('server_encoding')";

static int set_up_session(struct engine *engine, struct tune_error *err)
{
    int version = PQserverVersion(engine->conn);
    if (version < 150000)
        return tune_fail(err, TUNE_EVERSION,
            "the fleet's server is PostgreSQL %d; version 15 or newer is needed", version / 10000);
    PGresult *result = pg_call_within(engine, session_sql, NULL, 6, err);
    if (result == NULL)
        return -1;
    bool is_utf8 = strcmp(pg_text(result, 0, 5), "UTF8") == 0;
    PQclear(result);
    if (!is_utf8)
        return tune_fail(err, TUNE_EINVAL,
            "the fleet's database has another encoding than UTF8: create it with ENCODING 'UTF8' "
            "TEMPLATE template0");
    return 0;
}

/* --- connecting ------------------------------------------------------------------------------- */

/* libpq's own sentence for a refused login names user and host, and never a password. What will
 * not get better by itself soon is told from what will: the first has words of the server's, which
 * libpq gives as text only. */
static int fail_connect(const struct engine *engine, struct tune_error *err)
{
    static const char *const refusals[] = {"authentication failed", "no pg_hba.conf entry",
        "does not exist", "no password supplied", "certificate", "permission denied",
        "session is read-only", "server does not support SSL"};
    const char *text = PQerrorMessage(engine->conn);
    enum tune_code code = TUNE_EIO;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++)
        if (strstr(text, refusals[i]) != NULL)
            code = TUNE_EPERM;
    const char *no_socket = strstr(text, "No such file or directory");
    if (no_socket != NULL || strstr(text, "starting up") != NULL)
        code = TUNE_EIO;
    size_t length = strlen(text);
    while (length > 0 && text[length - 1] == '\n')
        length--;
    return tune_fail(err, code, "cannot connect to the fleet's server: %.*s", (int)length, text);
}

static int finish_connecting(struct engine *engine, struct tune_error *err)
{
    PostgresPollingStatusType status = PGRES_POLLING_WRITING;
    if (PQstatus(engine->conn) == CONNECTION_BAD)
        return fail_connect(engine, err);
    while (status != PGRES_POLLING_OK) {
        if (status == PGRES_POLLING_FAILED)
            return fail_connect(engine, err);
        short events = status == PGRES_POLLING_READING ? POLLIN : POLLOUT;
        if (pg_poll(PQsocket(engine->conn), events, engine->cancel_fd, engine->deadline_ns, err))
            return -1;
        status = PQconnectPoll(engine->conn);
    }
    return PQsetnonblocking(engine->conn, 1) == 0 ? 0 : fail_connect(engine, err);
}

static int start_connecting(struct engine *engine, const char *url, struct tune_error *err)
{
    struct settings settings = {0};
    struct pg_hosts hosts;
    PQconninfoOption *given = PQconninfoParse(url, NULL);
    if (given == NULL)
        return tune_fail(err, TUNE_EINVAL, "--fleet is not a URL that libpq understands");
    int status = pg_resolve(given, engine->cancel_fd, engine->deadline_ns, &hosts, err);
    if (status == 0) {
        fill_settings(&settings, given, &hosts);
        engine->conn = PQconnectStartParams(settings.keywords, settings.values, 0);
        pg_hosts_finish(&hosts);
        if (engine->conn == NULL)
            status = tune_fail(err, TUNE_ENOMEM, "no memory for the fleet's connection");
    }
    PQconninfoFree(given);
    return status;
}

static void ignore_notice(void *context, const PGresult *result)
{
    (void)context;
    (void)result;
}

static int subscribe(struct engine *engine, struct tune_error *err)
{
    PGresult *result = pg_call_within(engine, "LISTEN tunerd", NULL, -1, err);
    PQclear(result);
    return result != NULL ? 0 : -1;
}

/* From here on beats of another process of this node find that they are not alone. */
static int take_node(struct engine *engine, struct tune_error *err)
{
    struct pg_params params = {0};
    uint8_t random[16];
    if (getrandom(random, sizeof random, 0) != sizeof random)
        return tune_fail(err, TUNE_EIO, "no random numbers");
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(engine->session + 2 * i, 3, "%02x", random[i]);
    pg_add_text(&params, engine->node);
    pg_add_text(&params, engine->session);
    PGresult *result = pg_call_within(engine,
        "INSERT INTO tunerd.node AS n (node, session, host, targets, position, seen)"
        " VALUES ($1, $2, '', '', 0, clock_timestamp())"
        " ON CONFLICT (node) DO UPDATE SET session = excluded.session, seen = excluded.seen",
        &params, -1, err);
    pg_params_finish(&params);
    PQclear(result);
    return result != NULL ? 0 : -1;
}

struct engine *pg_connect(
    const char *url, const char *node, int cancel_fd, unsigned deadline_ms, struct tune_error *err)
{
    struct engine *engine = xcalloc(1, sizeof *engine);
    engine->cancel_fd = cancel_fd;
    engine->deadline_ns = pg_now_ns() + (uint64_t)deadline_ms * 1000000;
    snprintf(engine->node, sizeof engine->node, "%s", node);
    int status = start_connecting(engine, url, err) || finish_connecting(engine, err);
    if (status == 0) {
        PQsetNoticeReceiver(engine->conn, ignore_notice, NULL);
        status = set_up_session(engine, err) || pg_check_schema(engine, err) ||
                 subscribe(engine, err) || take_node(engine, err);
    }
    if (status == 0)
        return engine;
    engine->is_lost = true;
    pg_destroy(engine);
    return NULL;
}

/* A lost connection is shut before libpq says farewell on it. */
void pg_destroy(struct engine *engine)
{
    if (engine == NULL)
        return;
    if (engine->conn != NULL && engine->is_lost && PQsocket(engine->conn) >= 0)
        shutdown(PQsocket(engine->conn), SHUT_RDWR);
    PQfinish(engine->conn);
    free(engine);
}

static const char *identity(const struct engine *engine)
{
    return engine->identity;
}

const struct engine_ops engine_postgres = {
    .name = "PostgreSQL",
    .schema = pg_schema_sql,
    .knows = pg_knows,
    .show = pg_show,
    .connect = pg_connect,
    .destroy = pg_destroy,
    .identity = identity,
    .put_batch = pg_put_batch,
    .changes_since = pg_changes_since,
    .wait = pg_wait,
    .digest = pg_digest,
    .list_bucket = pg_list_bucket,
    .fetch = pg_fetch,
    .offer = pg_offer,
    .lease = pg_lease,
    .renew = pg_renew,
    .complete = pg_complete,
    .take_back = pg_take_back,
    .task_state = pg_task_state,
    .withdraw = pg_withdraw,
    .beat = pg_beat,
    .status = pg_status,
};
