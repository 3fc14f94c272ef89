/* export and refuse: records as lines, in pages; and rows taken out of service by where they come
 * from. Both read the whole database: on the thread pool.
 *
 * A page of an export is one consistent reading. Rows that are stored while a client pages may be
 * in it or not; one that is there all the time comes exactly once, since pages follow the order of
 * the rows' ids. */
#include "daemon/command.h"

#include "client/proto.h"
#include "daemon/log.h"
#include "daemon/xmalloc.h"
#include "tuning_db/record_line.h"

#include <stdlib.h>
#include <string.h>

#define EXPORT_PAGE_BYTES ((size_t)512 << 10) /* of text; --best adds whole keys */
#define EXPORT_READ_BYTES ((size_t)1 << 20)   /* of rows copied out at a time */
#define EXPORT_SCAN_MAX 50000                 /* rows looked at for one page, whoever they are of */
#define REFUSE_BATCH 4096                     /* rows of one transaction */

/* --- cursors ---------------------------------------------------------------------------------- */

#define CURSOR_BYTES ((size_t)2 * TUNING_DB_ID_BYTES + 1)

static void cursor_text(const uint8_t id[TUNING_DB_ID_BYTES], char text[CURSOR_BYTES])
{
    for (size_t i = 0; i < TUNING_DB_ID_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", id[i]);
}

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int parse_cursor(const char *text, uint8_t id[TUNING_DB_ID_BYTES], struct tune_error *err)
{
    bool is_sound = strlen(text) == CURSOR_BYTES - 1;
    for (size_t i = 0; is_sound && i < TUNING_DB_ID_BYTES; i++) {
        int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
        is_sound = high >= 0 && low >= 0;
        id[i] = (uint8_t)(16 * high + low);
    }
    return is_sound ? 0
                    : tune_fail(err, TUNE_EINVAL,
                          "field \"cursor\" must be the one of an earlier page's answer");
}

/* --- export: one page, on the pool ------------------------------------------------------------ */

struct page {
    uv_work_t work;
    struct request *request;
    struct tuning_db *db;
    const char *kernel, *arch; /* NULL: any; borrowed from the request */
    bool is_best, is_anonymous;
    struct tuning_db_place place;
    size_t scanned, rows, measured; /* measured: of the rows, those with a time */
    char *text;
    size_t length, room;
    struct tune_error err;
};

static bool is_wanted(const struct page *page, const struct record_key *key)
{
    if (page->kernel != NULL && strcmp(key->kernel, page->kernel) != 0)
        return false;
    /* Rows of the emulated device leave a machine only by name. */
    return page->arch != NULL ? strcmp(key->arch, page->arch) == 0 : strcmp(key->arch, "cpu") != 0;
}

static bool is_full(const struct page *page)
{
    return page->length >= EXPORT_PAGE_BYTES || page->scanned >= EXPORT_SCAN_MAX;
}

static void add_text(struct page *page, const char *line, size_t length)
{
    if (page->length + length + 2 > page->room) {
        page->room = 2 * (page->length + length + 2);
        page->text = xrealloc(page->text, page->room);
    }
    memcpy(page->text + page->length, line, length);
    memcpy(page->text + page->length + length, "\n", 2);
    page->length += length + 1;
}

/* A row that cannot be said in a line (it was damaged, or stored by hand) is passed over. */
static void add_line(struct page *page, const struct sample *sample)
{
    struct tune_error why = {0};
    struct sample row = *sample;
    size_t length;
    if (page->is_anonymous)
        row.host = "";
    char *line = record_line_format(&row, &length, &why);
    if (line == NULL) {
        log_warnx("a record of %s is not exported: %s", sample->key.kernel, why.text);
        return;
    }
    add_text(page, line, length);
    page->rows++;
    page->measured += sample->outcome == OUTCOME_OK;
    free(line);
}

static int on_sample(const struct sample *sample, void *context)
{
    struct page *page = context;
    if (is_wanted(page, &sample->key))
        add_line(page, sample);
    page->scanned++;
    return is_full(page);
}

static void read_samples(struct page *page)
{
    int status = 0;
    while (status == 0 && !page->place.is_end && !is_full(page))
        status = tuning_db_page_samples(
            page->db, &page->place, EXPORT_READ_BYTES, on_sample, page, &page->err);
}

static int on_best_sample(const struct sample *sample, void *context)
{
    add_line(context, sample);
    return 0;
}

static void read_best(struct page *page)
{
    while (!is_full(page)) {
        struct sample first;
        int status = tuning_db_next_key(page->db, &page->place, &first, &page->err);
        if (status != 0)
            return;
        page->scanned++;
        if (is_wanted(page, &first.key))
            status =
                tuning_db_walk_best_samples(page->db, &first.key, on_best_sample, page, &page->err);
        sample_finish(&first);
        if (status != 0)
            return;
    }
}

static void on_page(uv_work_t *work)
{
    struct page *page = work->data;
    if (page->is_best)
        read_best(page);
    else
        read_samples(page);
}

static void on_page_read(uv_work_t *work, int status)
{
    struct page *page = work->data;
    char cursor[CURSOR_BYTES];
    (void)status;
    if (page->err.code != TUNE_OK) {
        request_fail(page->request, &page->err);
    } else {
        cursor_text(page->place.id, cursor);
        request_reply(
            page->request, json_pack("{s:o, s:I, s:I, s:s?}", "lines",
                               json_stringn(page->text ? page->text : "", page->length), "rows",
                               (json_int_t)page->rows, "measured", (json_int_t)page->measured,
                               "cursor", page->place.is_end ? NULL : cursor));
    }
    free(page->text);
    free(page);
}

void cmd_export(struct request *request)
{
    static const char *const keys[] = {"kernel", "arch", "best", "anonymous", "cursor", NULL};
    const json_t *params = request->params;
    struct tune_error err = {0};
    struct page *page = xcalloc(1, sizeof *page);
    const char *cursor = NULL;
    page->request = request;
    page->db = request->app->db;
    page->work.data = page;
    if (proto_known_keys(params, keys, "export", &err) ||
        proto_string_opt(params, "kernel", &page->kernel, &err) ||
        proto_string_opt(params, "arch", &page->arch, &err) ||
        proto_bool_opt(params, "best", &page->is_best, &err) ||
        proto_bool_opt(params, "anonymous", &page->is_anonymous, &err) ||
        proto_string_opt(params, "cursor", &cursor, &err) ||
        (cursor != NULL && parse_cursor(cursor, page->place.id, &err))) {
        request_fail(request, &err);
        free(page);
        return;
    }
    page->place.is_set = cursor != NULL;
    uv_queue_work(&request->app->loop, &page->work, on_page, on_page_read);
}

/* --- refuse ----------------------------------------------------------------------------------- */

struct refusal {
    uv_work_t work;
    struct request *request;
    struct tuning_db *db;
    const char *host, *uuid, *run, *kernel; /* NULL: any; borrowed from the request */
    int64_t before_ms;                      /* 0: any */
    bool is_dry_run;
    struct tuning_db_batch *batch;
    size_t matched, changed; /* matched: those refused before too */
    struct tune_error err;
};

static bool differs(const char *wanted, const char *found)
{
    return wanted != NULL && strcmp(wanted, found) != 0;
}

/* "JOB" means its search and its confirmation, "JOB/search" one of them. */
static bool is_of_run(const char *wanted, const char *run)
{
    size_t length = strlen(wanted);
    return strncmp(run, wanted, length) == 0 && (run[length] == '\0' || run[length] == '/');
}

static int store_refused(struct refusal *refusal)
{
    int status = tuning_db_commit(refusal->db, refusal->batch, &refusal->err);
    tuning_db_batch_destroy(refusal->batch);
    refusal->batch = tuning_db_batch_create();
    return status;
}

static int on_candidate(const struct sample *sample, void *context)
{
    struct refusal *refusal = context;
    if (differs(refusal->host, sample->host) || differs(refusal->uuid, sample->gpu_uuid) ||
        differs(refusal->kernel, sample->key.kernel) ||
        (refusal->run != NULL && !is_of_run(refusal->run, sample->run)) ||
        (refusal->before_ms != 0 && sample->time_unix_ms >= refusal->before_ms))
        return 0;
    refusal->matched++;
    if (sample->is_refused)
        return 0;
    refusal->changed++;
    if (refusal->is_dry_run)
        return 0;
    struct sample row = *sample;
    row.is_refused = true;
    if (tuning_db_batch_merge(refusal->batch, &row))
        return tune_fail(&refusal->err, TUNE_ENOMEM, "no memory for the rows");
    return tuning_db_batch_count(refusal->batch) >= REFUSE_BATCH ? store_refused(refusal) : 0;
}

static void on_refuse(uv_work_t *work)
{
    struct refusal *refusal = work->data;
    refusal->batch = tuning_db_batch_create();
    tuning_db_walk_samples(refusal->db, NULL, on_candidate, refusal, &refusal->err);
    if (refusal->err.code == TUNE_OK)
        store_refused(refusal);
    tuning_db_batch_destroy(refusal->batch);
}

static void on_refused(uv_work_t *work, int status)
{
    struct refusal *refusal = work->data;
    struct request *request = refusal->request;
    (void)status;
    if (!refusal->is_dry_run && refusal->changed > 0) {
        log_info("%zu records refused for user %u", refusal->changed, (unsigned)request->uid);
        app_rows_stored(request->app);
    }
    if (refusal->err.code != TUNE_OK)
        request_fail(request, &refusal->err);
    else
        request_reply(
            request, json_pack("{s:b, s:I, s:I, s:I}", "dry_run", refusal->is_dry_run, "matched",
                         (json_int_t)refusal->matched, "refused", (json_int_t)refusal->changed,
                         "already", (json_int_t)(refusal->matched - refusal->changed)));
    free(refusal);
}

void cmd_refuse(struct request *request)
{
    static const char *const keys[] = {
        "host", "uuid", "run", "kernel", "before_ms", "dry_run", NULL};
    const json_t *params = request->params;
    struct tune_error err = {0};
    struct refusal *refusal = xcalloc(1, sizeof *refusal);
    refusal->request = request;
    refusal->db = request->app->db;
    refusal->work.data = refusal;
    may_change_records(request, &err);
    proto_known_keys(params, keys, "refuse", &err);
    proto_string_opt(params, "host", &refusal->host, &err);
    proto_string_opt(params, "uuid", &refusal->uuid, &err);
    proto_string_opt(params, "run", &refusal->run, &err);
    proto_string_opt(params, "kernel", &refusal->kernel, &err);
    proto_int_opt(params, "before_ms", 1, INT64_MAX, &refusal->before_ms, &err);
    proto_bool_opt(params, "dry_run", &refusal->is_dry_run, &err);
    if (err.code == TUNE_OK && refusal->host == NULL && refusal->uuid == NULL &&
        refusal->run == NULL && refusal->kernel == NULL && refusal->before_ms == 0)
        tune_fail(&err, TUNE_EINVAL,
            "say which records: at least one of host, uuid, run, kernel and before_ms");
    if (err.code != TUNE_OK) {
        request_fail(request, &err);
        free(refusal);
        return;
    }
    uv_queue_work(&request->app->loop, &refusal->work, on_refuse, on_refused);
}
