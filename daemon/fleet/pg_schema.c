/* The tables of the PostgreSQL engine: made when absent, refused when newer than we know. */
#include "daemon/fleet/pg.h"

#include <stdio.h>
#include <string.h>

/* 1: there are none; 0 with *major and the identity; -1. */
static int read_version(struct engine *engine, int64_t *major, struct tune_error *err)
{
    struct tune_error why = {0};
    PGresult *result = pg_call_within(engine,
        "SELECT v.major, v.engine::text, h.seq FROM tunerd.version v, tunerd.head h", NULL, 3,
        &why);
    bool is_absent = strcmp(engine->sqlstate, "42P01") == 0 || /* no table */
                     strcmp(engine->sqlstate, "3F000") == 0;   /* no schema */
    if (result == NULL && is_absent) {
        engine->is_lost = false; /* it is as good as before */
        return 1;
    }
    if (result == NULL)
        return tune_fail(err, why.code, "%s", why.text);
    int status = PQntuples(result) == 1 ? 0 : 1;
    if (status == 0) {
        *major = pg_int(result, 0, 0);
        snprintf(engine->identity, sizeof engine->identity, "%s", pg_text(result, 0, 1));
    }
    PQclear(result);
    return status;
}

static int check_version(int64_t major, struct tune_error *err)
{
    if (major == PG_SCHEMA_MAJOR)
        return 0;
    return tune_fail(err, TUNE_EVERSION,
        "the fleet's tables are of version %lld and this tunerd knows version %d: install %s",
        (long long)major, PG_SCHEMA_MAJOR,
        major > PG_SCHEMA_MAJOR ? "a newer tunerd here"
                                : "the tables anew with `tunerd --fleet-schema`");
}

int pg_check_schema(struct engine *engine, struct tune_error *err)
{
    int64_t major = 0;
    int status = read_version(engine, &major, err);
    if (status == 1) {
        if (pg_script(engine, pg_schema_sql, err))
            return -1;
        status = read_version(engine, &major, err);
    }
    if (status == 1)
        return tune_fail(err, TUNE_EVERSION,
            "the fleet's tables are damaged (schema tunerd has no version): drop the schema, and "
            "it is made and filled again");
    return status == 0 ? check_version(major, err) : -1;
}
