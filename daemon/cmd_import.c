/* import: records from a file, all or nothing.
 *
 * A file is larger than a request may be, so it comes in parts: {"begin":{"strict","dry_run",
 * "name"}} opens an import and answers its number; {"import","lines","first_line"} adds whole lines
 * (any number of such, in any order; "refused" tells lines that the client could not send);
 * {"import","end":true} stores all rows in one transaction and answers the report;
 * {"import","abort":true} forgets them.
 *
 * Design. One struct import per file, from its begin to its end, owned by the list below. Lines are
 * parsed and judged on the thread pool, where it belongs to one thread; meanwhile other requests
 * for it are refused. An import ends with its client: at once, or when the pool gives it back. What
 * is held of all imports together is bounded.
 *
 * A line that is wrong is refused, with its number and the reason, and does not disturb the others.
 * A file of another major version or without a header is refused as a whole. */
#include "daemon/command.h"

#include "client/proto.h"
#include "daemon/intake.h"
#include "daemon/log.h"
#include "daemon/xmalloc.h"
#include "tuning_db/record_line.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define IMPORTS_MAX 4              /* in the daemon; one for each client */
#define IMPORT_ROWS_MAX 1000000    /* of one file */
#define IMPORT_REFUSALS_LISTED 100 /* the first ones; all are counted */
#define IMPORT_UNKNOWN_LISTED 100  /* names of fields that this version does not know */
#define IMPORT_NAME_BYTES 4096
/* Text of all open imports together; their rows take about as much memory. */
#define IMPORT_BYTES_MAX ((size_t)768 << 20)

/* Distinct keys, by a part of their hashes: open addressing, at most half full. */
struct key_set {
    uint64_t *hashes; /* 0: free */
    size_t count, room;
};

struct import {
    struct import *next;
    struct app *app;
    uint64_t client;
    json_int_t number;
    bool is_strict, is_dry_run;
    json_t *name; /* a string: what the file is called there */
    size_t bytes; /* of text taken so far; part of the total */
    /* Of one thread at a time: the pool's while is_busy. */
    struct intake *intake;
    struct tuning_db_batch *batch;
    bool has_header, is_stored;
    size_t rows, set_aside, refused;
    struct key_set keys;
    json_t *refusals, *unknown; /* unknown: an object as a set */
    struct tune_error failure;  /* of the file as a whole */
    /* The request under way. */
    struct request *request;
    uv_work_t work;
    bool is_busy, has_left;
};

static struct import *imports; /* the loop thread's */
static size_t import_bytes;    /* of all of them */
static json_int_t last_number;

/* --- the list --------------------------------------------------------------------------------- */

static struct import *find_import(uint64_t client)
{
    struct import *import = imports;
    while (import != NULL && import->client != client)
        import = import->next;
    return import;
}

static void import_destroy(struct import *import)
{
    struct import **here = &imports;
    while (*here != import)
        here = &(*here)->next;
    *here = import->next;
    import_bytes -= import->bytes;
    intake_destroy(import->intake);
    tuning_db_batch_destroy(import->batch);
    free(import->keys.hashes);
    json_decref(import->refusals);
    json_decref(import->unknown);
    json_decref(import->name);
    free(import);
}

void import_client_left(uint64_t client)
{
    struct import *import = find_import(client);
    if (import == NULL)
        return;
    import->has_left = true;
    if (!import->is_busy)
        import_destroy(import);
}

/* --- one line --------------------------------------------------------------------------------- */

static void key_set_put(struct key_set *set, uint64_t hash)
{
    size_t place = hash & (set->room - 1);
    while (set->hashes[place] != 0 && set->hashes[place] != hash)
        place = (place + 1) & (set->room - 1);
    set->count += set->hashes[place] == 0;
    set->hashes[place] = hash;
}

static void key_set_add(struct key_set *set, const struct record_key *key)
{
    struct record_hash hash = record_key_hash(key);
    uint64_t word;
    memcpy(&word, hash.bytes, sizeof word);
    if (2 * (set->count + 1) > set->room) {
        struct key_set larger = {.room = set->room ? 2 * set->room : 256};
        larger.hashes = xcalloc(larger.room, sizeof *larger.hashes);
        for (size_t i = 0; i < set->room; i++)
            if (set->hashes[i] != 0)
                key_set_put(&larger, set->hashes[i]);
        free(set->hashes);
        *set = larger;
    }
    key_set_put(set, word | 1);
}

/* A reason quotes the line, and may have cut it inside of a character. */
static json_t *text_json(const char *text)
{
    json_t *json = json_string(text);
    if (json != NULL)
        return json;
    char *plain = xstrdup(text);
    for (char *at = plain; *at != '\0'; at++)
        if ((unsigned char)*at >= 0x80)
            *at = '?';
    json = json_string(plain);
    free(plain);
    return json;
}

static void refuse(struct import *import, json_int_t line, const char *reason)
{
    import->refused++;
    if (json_array_size(import->refusals) < IMPORT_REFUSALS_LISTED)
        json_array_append_new(
            import->refusals, json_pack("{s:I, s:o}", "line", line, "reason", text_json(reason)));
}

static void note_unknown(struct import *import, const char *name, size_t length)
{
    if (json_object_size(import->unknown) < IMPORT_UNKNOWN_LISTED)
        json_object_setn_new(import->unknown, name, length, json_true());
}

static void take_header(struct import *import, const char *line, size_t length)
{
    char *unknown = NULL;
    if (record_header_check(line, length, &unknown, &import->failure) == 0)
        import->has_header = true;
    for (const char *at = unknown; at != NULL && *at != '\0';) {
        size_t name = strcspn(at, ",");
        note_unknown(import, at, name);
        at += name + strspn(at + name, ", ");
    }
    free(unknown);
}

static void note_extra(struct import *import, const char *extra)
{
    const char *name;
    json_t *value, *json = json_loads(extra, 0, NULL);
    json_object_foreach (json, name, value)
        note_unknown(import, name, strlen(name));
    json_decref(json);
}

static void take_row(struct import *import, json_int_t line, const struct sample *sample)
{
    struct tune_error reason = {0};
    enum intake_verdict verdict = intake_judge(import->intake, sample, &reason);
    if (verdict == INTAKE_REFUSED) {
        refuse(import, line, reason.text);
        return;
    }
    if (tuning_db_batch_merge(import->batch, sample)) {
        tune_fail(&import->failure, TUNE_ENOMEM, "no memory for the import");
        return;
    }
    import->set_aside += verdict == INTAKE_ASIDE;
    key_set_add(&import->keys, &sample->key);
    if (sample->extra != NULL && sample->extra[0] != '\0')
        note_extra(import, sample->extra);
}

static void take_record(struct import *import, json_int_t line, const char *text, size_t length)
{
    struct tune_error why = {0};
    struct sample sample;
    if (++import->rows > IMPORT_ROWS_MAX) {
        tune_fail(&import->failure, TUNE_ELIMIT,
            "one import takes %d records at most: split the file", IMPORT_ROWS_MAX);
        return;
    }
    if (record_line_parse(text, length, &sample, &why)) {
        refuse(import, line, why.text);
        return;
    }
    take_row(import, line, &sample);
    sample_finish(&sample);
}

/* --- lines, on the pool ----------------------------------------------------------------------- */

static void take_lines(struct import *import, const char *text, size_t length, json_int_t line)
{
    const char *at = text, *end = text + length;
    for (; at < end && import->failure.code == TUNE_OK; line++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t count = (size_t)((stop ? stop : end) - at);
        size_t bare = count > 0 && at[count - 1] == '\r' ? count - 1 : count;
        if (bare > 0 && record_line_is_header(at, bare))
            take_header(import, at, bare);
        else if (bare > 0)
            take_record(import, line, at, bare);
        at += count + 1;
    }
}

static void on_lines(uv_work_t *work)
{
    struct import *import = work->data;
    const json_t *params = import->request->params;
    const json_t *lines = json_object_get(params, "lines"), *refusal;
    size_t i;
    json_array_foreach (json_object_get(params, "refused"), i, refusal) {
        import->rows++;
        refuse(import, json_integer_value(json_object_get(refusal, "line")),
            json_string_value(json_object_get(refusal, "reason")));
    }
    if (lines != NULL)
        take_lines(import, json_string_value(lines), json_string_length(lines),
            json_integer_value(json_object_get(params, "first_line")));
}

static void on_lines_taken(uv_work_t *work, int status)
{
    struct import *import = work->data;
    struct request *request = import->request;
    (void)status;
    import->is_busy = false;
    if (import->failure.code != TUNE_OK)
        request_fail(request, &import->failure);
    else
        request_reply(request, json_object());
    if (import->failure.code != TUNE_OK || import->has_left)
        import_destroy(import);
}

/* --- the end, on the pool --------------------------------------------------------------------- */

static void on_store(uv_work_t *work)
{
    struct import *import = work->data;
    struct tuning_db *db = import->app->db;
    if (!import->has_header) {
        tune_fail(&import->failure, TUNE_EVERSION,
            "the file has no header line with a version (found: none; wanted: "
            "{\"format\":\"tunerd-records\",\"version\":[%d,%d]})",
            RECORD_LINE_MAJOR, RECORD_LINE_MINOR);
        return;
    }
    bool stores = !import->is_dry_run && !(import->is_strict && import->refused > 0);
    int failed = stores ? tuning_db_commit(db, import->batch, &import->failure)
                        : tuning_db_try(db, import->batch, &import->failure);
    import->is_stored = stores && failed == 0;
}

static json_t *unknown_json(const struct import *import)
{
    json_t *list = json_array(), *ignored;
    const char *name;
    json_object_foreach (import->unknown, name, ignored)
        json_array_append_new(list, json_string(name));
    return list;
}

static json_t *report_json(const struct import *import)
{
    struct tuning_db_merged merged;
    tuning_db_batch_merged(import->batch, &merged);
    return json_pack("{s:O, s:b, s:b, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:O, s:o}",
        "name", import->name, "dry_run", import->is_dry_run, "strict", import->is_strict, "stored",
        import->is_stored, "rows", (json_int_t)import->rows, "keys", (json_int_t)import->keys.count,
        "added", (json_int_t)merged.added, "equal", (json_int_t)merged.equal, "replaced",
        (json_int_t)merged.replaced, "kept", (json_int_t)merged.kept, "set_aside",
        (json_int_t)import->set_aside, "refused", (json_int_t)import->refused, "refusals",
        import->refusals, "unknown_fields", unknown_json(import));
}

static void on_stored(uv_work_t *work, int status)
{
    struct import *import = work->data;
    (void)status;
    if (import->is_stored) {
        log_info("%zu records of %zu keys imported for user %u", import->rows - import->refused,
            import->keys.count, (unsigned)import->request->uid);
        app_rows_stored(import->app);
    }
    if (import->failure.code != TUNE_OK)
        request_fail(import->request, &import->failure);
    else
        request_reply(import->request, report_json(import));
    import_destroy(import);
}

/* --- requests --------------------------------------------------------------------------------- */

static void go(
    struct import *import, struct request *request, uv_work_cb work, uv_after_work_cb after)
{
    import->request = request;
    import->is_busy = true;
    import->work.data = import;
    uv_queue_work(&request->app->loop, &import->work, work, after);
}

static size_t count_imports(void)
{
    size_t count = 0;
    for (const struct import *import = imports; import != NULL; import = import->next)
        count++;
    return count;
}

static int begin(struct request *request, const json_t *options, struct tune_error *err)
{
    static const char *const keys[] = {"strict", "dry_run", "name", NULL};
    bool is_strict = false, is_dry_run = false;
    const char *name = "";
    if (proto_known_keys(options, keys, "begin", err) ||
        proto_bool_opt(options, "strict", &is_strict, err) ||
        proto_bool_opt(options, "dry_run", &is_dry_run, err) ||
        proto_string_opt(options, "name", &name, err))
        return -1;
    if (strlen(name) > IMPORT_NAME_BYTES)
        return tune_fail(
            err, TUNE_ELIMIT, "field \"name\" is longer than %d bytes", IMPORT_NAME_BYTES);
    if (find_import(request->client) != NULL)
        return tune_fail(err, TUNE_EBUSY, "this connection has an import open: end or abort it");
    if (count_imports() >= IMPORTS_MAX)
        return tune_fail(err, TUNE_EBUSY,
            "%d imports are under way already: try again when one has ended", IMPORTS_MAX);
    struct import *import = xcalloc(1, sizeof *import);
    import->app = request->app;
    import->client = request->client;
    import->number = ++last_number;
    import->is_strict = is_strict;
    import->is_dry_run = is_dry_run;
    import->name = json_string(name);
    import->intake = intake_create(request->app->registry);
    import->batch = tuning_db_batch_create();
    import->refusals = json_array();
    import->unknown = json_object();
    import->next = imports;
    imports = import;
    request_reply(request, json_pack("{s:I}", "import", import->number));
    return 0;
}

/* What on_lines relies on. */
static int check_refused(const json_t *params, struct tune_error *err)
{
    static const char *const keys[] = {"line", "reason", NULL};
    json_t *list, *refusal;
    size_t i;
    if (proto_array_opt(params, "refused", &list, err))
        return -1;
    json_array_foreach (list, i, refusal) {
        const char *reason;
        int64_t line;
        if (!json_is_object(refusal))
            return tune_fail(err, TUNE_EINVAL, "field \"refused\" must hold objects");
        if (proto_known_keys(refusal, keys, "a refused line", err) ||
            proto_int(refusal, "line", 1, INT64_MAX, &line, err) ||
            proto_string(refusal, "reason", &reason, err))
            return -1;
    }
    return 0;
}

static int add_lines(struct import *import, struct request *request, struct tune_error *err)
{
    const char *lines = NULL;
    int64_t first_line;
    if (proto_string_opt(request->params, "lines", &lines, err) ||
        check_refused(request->params, err) ||
        (lines != NULL &&
            proto_int(request->params, "first_line", 1, INT64_MAX / 2, &first_line, err)))
        return -1;
    size_t length = json_string_length(json_object_get(request->params, "lines"));
    if (length > IMPORT_BYTES_MAX - import_bytes) {
        int status = tune_fail(err, TUNE_ELIMIT,
            "imports take %zu MiB of text together at most: split the file, or wait for others",
            IMPORT_BYTES_MAX >> 20);
        import_destroy(import);
        return status;
    }
    import->bytes += length;
    import_bytes += length;
    go(import, request, on_lines, on_lines_taken);
    return 0;
}

static int continue_import(struct request *request, struct tune_error *err)
{
    static const char *const keys[] = {
        "import", "lines", "first_line", "refused", "end", "abort", NULL};
    bool is_end = false, is_abort = false;
    int64_t number;
    if (proto_known_keys(request->params, keys, "import", err) ||
        proto_int(request->params, "import", 1, INT64_MAX, &number, err) ||
        proto_bool_opt(request->params, "end", &is_end, err) ||
        proto_bool_opt(request->params, "abort", &is_abort, err))
        return -1;
    struct import *import = find_import(request->client);
    if (import == NULL || import->number != number)
        return tune_fail(err, TUNE_ENOTFOUND,
            "this connection has no import %lld open: begin one (or it has failed)",
            (long long)number);
    if (import->is_busy)
        return tune_fail(
            err, TUNE_EBUSY, "the last request of this import is under way: wait for its answer");
    if (is_abort) {
        import_destroy(import);
        request_reply(request, json_object());
    } else if (is_end) {
        go(import, request, on_store, on_stored);
    } else {
        return add_lines(import, request, err);
    }
    return 0;
}

int may_change_records(const struct request *request, struct tune_error *err)
{
    if (!request->app->config.is_system || request->uid == 0 || request->uid == geteuid())
        return 0;
    return tune_fail(err, TUNE_EPERM,
        "only root and the owner of this daemon may change the records that it serves to all");
}

void cmd_import(struct request *request)
{
    static const char *const begin_keys[] = {"begin", NULL};
    struct tune_error err = {0};
    json_t *options = NULL;
    if (may_change_records(request, &err) ||
        proto_object_opt(request->params, "begin", &options, &err) ||
        (options != NULL && proto_known_keys(request->params, begin_keys, "import", &err)) ||
        (options != NULL ? begin(request, options, &err) : continue_import(request, &err)))
        request_fail(request, &err);
}
