/* import: records from a file, all or nothing.
 *
 * A file is larger than a request may be, so it comes in parts: {"begin":{"strict","dry_run",
 * "name"}} opens an import and answers its number; {"import","lines","first_line"} adds whole lines
 * (any number of such, in any order; "refused" tells lines that the client could not send);
 * {"import","end":true} stores all rows in one transaction and answers the report;
 * {"import","abort":true} forgets them.
 *
 * Design. One struct import per file, from its begin to its end, owned by the list below. Lines are
 * taken on the thread pool (import_file.h), where the file belongs to one thread; meanwhile other
 * requests for it are refused. An import ends with its client: at once, or when the pool gives it
 * back. What is held of all imports together is bounded. */
#include "daemon/command.h"

#include "client/proto.h"
#include "daemon/import_file.h"
#include "daemon/log.h"
#include "daemon/xmalloc.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define IMPORTS_MAX 4 /* in the daemon; one for each client */
#define IMPORT_NAME_BYTES 4096
/* Text of all open imports together; their rows take about as much memory. */
#define IMPORT_BYTES_MAX ((size_t)768 << 20)

struct import {
    struct import *next;
    uint64_t client;
    json_int_t number;
    size_t bytes;             /* of text taken so far; part of the total */
    struct import_file *file; /* the pool's while is_busy */
    /* The request under way. */
    struct request *request;
    struct tuning_db *db; /* borrowed */
    uv_work_t work;
    struct tune_error err;
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
    import_file_destroy(import->file);
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

static size_t count_imports(void)
{
    size_t count = 0;
    for (const struct import *import = imports; import != NULL; import = import->next)
        count++;
    return count;
}

/* --- on the pool ------------------------------------------------------------------------------ */

static void on_lines(uv_work_t *work)
{
    struct import *import = work->data;
    const json_t *params = import->request->params;
    const json_t *lines = json_object_get(params, "lines"), *refusal;
    size_t i;
    json_array_foreach (json_object_get(params, "refused"), i, refusal)
        import_file_refuse(import->file, json_integer_value(json_object_get(refusal, "line")),
            json_string_value(json_object_get(refusal, "reason")));
    if (lines != NULL)
        import_file_lines(import->file, json_string_value(lines), json_string_length(lines),
            json_integer_value(json_object_get(params, "first_line")), &import->err);
}

static void on_lines_taken(uv_work_t *work, int status)
{
    struct import *import = work->data;
    (void)status;
    import->is_busy = false;
    if (import->err.code != TUNE_OK)
        request_fail(import->request, &import->err);
    else
        request_reply(import->request, json_object());
    if (import->err.code != TUNE_OK || import->has_left)
        import_destroy(import);
}

static void on_store(uv_work_t *work)
{
    struct import *import = work->data;
    import_file_end(import->file, import->db, &import->err);
}

static void on_stored(uv_work_t *work, int status)
{
    struct import *import = work->data;
    struct request *request = import->request;
    (void)status;
    if (import->err.code != TUNE_OK) {
        request_fail(request, &import->err);
    } else {
        json_t *report = import_file_report(import->file);
        if (import_file_is_stored(import->file)) {
            log_info("an import of user %u: %lld records added, %lld replaced",
                (unsigned)request->uid,
                (long long)json_integer_value(json_object_get(report, "added")),
                (long long)json_integer_value(json_object_get(report, "replaced")));
            app_rows_stored(request->app);
        }
        request_reply(request, report);
    }
    import_destroy(import);
}

static void go(
    struct import *import, struct request *request, uv_work_cb work, uv_after_work_cb after)
{
    import->request = request;
    import->db = request->app->db;
    import->is_busy = true;
    import->work.data = import;
    uv_queue_work(&request->app->loop, &import->work, work, after);
}

/* --- requests --------------------------------------------------------------------------------- */

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
    const struct import_options file = {name, is_strict, is_dry_run};
    import->client = request->client;
    import->number = ++last_number;
    import->file = import_file_create(request->app->registry, &file);
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
