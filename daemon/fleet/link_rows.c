/* Rows out and in.
 *
 * Out: what is in the outbox, from its beginning, since what was sent leaves it. A row is in the
 * outbox until the engine has acknowledged it, so that one that is sent twice is the worst that an
 * interruption can do. In: each row is judged by itself, and what is not taken is set aside, so
 * that it neither stops the feed nor is met again by the next comparison. */
#include "daemon/fleet/link_internal.h"

#include "daemon/log.h"
#include "daemon/xmalloc.h"
#include "tuning_db/record_line.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POSITION_MARK "fleet/position"

/* Of the precedence that rows have everywhere: see sample_precedence. */
static uint64_t rank_of(const struct sample *sample)
{
    return (uint64_t)sample->is_refused << 40 | (uint64_t)sample->is_final << 32 | sample->attempts;
}

static bool is_shared(const struct link *link, const struct sample *sample)
{
    return link->options.shares_emulated || strcmp(sample->key.arch, "cpu") != 0;
}

/* --- out -------------------------------------------------------------------------------------- */

struct sending {
    struct link *link;
    struct engine_row rows[LINK_SEND_ROWS];
    size_t count, bytes;
    struct tuning_db_batch *done; /* what leaves the outbox when all is well */
};

static bool is_whole(const struct sending *sending)
{
    return tuning_db_batch_count(sending->done) >= LINK_SEND_ROWS ||
           sending->bytes >= LINK_SEND_BYTES;
}

static int on_unsent(const struct sample *sample, const uint8_t *id, uint64_t hash, void *context)
{
    struct sending *sending = context;
    struct tune_error err = {0};
    size_t length = 0;
    if (is_whole(sending))
        return 1;
    char *line = NULL;
    if (is_shared(sending->link, sample)) {
        line = record_line_format(sample, &length, &err);
        if (line == NULL)
            log_warnx("fleet: a row of %s stays here: %s", sample->key.kernel, err.text);
    }
    if (line != NULL) {
        struct engine_row *row = &sending->rows[sending->count++];
        *row = (struct engine_row){.rank = rank_of(sample), .hash = hash, .line = line};
        memcpy(row->id, id, sizeof row->id);
        sending->bytes += length;
    }
    return tuning_db_batch_sent(sending->done, id, hash); /* of what is not shared, too */
}

/* A batch that the engine refuses for what is in it is halved until the row is found; that one
 * stays here. */
static int put(
    struct link *link, const struct engine_row *rows, size_t count, struct tune_error *err)
{
    struct tune_error why = {0};
    if (count == 0 || link->options.engine->put_batch(link->engine, rows, count, &why) == 0)
        return 0;
    if (why.code != TUNE_EINVAL)
        return tune_fail(err, why.code, "%s", why.text);
    if (count == 1) {
        log_warnx("fleet: a row is not shared: %s", why.text);
        return 0;
    }
    return put(link, rows, count / 2, err) || put(link, rows + count / 2, count - count / 2, err)
               ? -1
               : 0;
}

static void note_sent(struct link *link, size_t count)
{
    uv_mutex_lock(&link->mutex);
    link->status.sent += count;
    uv_mutex_unlock(&link->mutex);
}

static int send_batch(struct link *link, struct sending *sending, struct tune_error *err)
{
    uint64_t start_ns = uv_hrtime();
    struct tune_error why = {0};
    if (tuning_db_walk_outbox(link->options.db, NULL, on_unsent, sending, &why)) {
        log_warnx("fleet: cannot read what is to be sent: %s", why.text);
        link->store_ns = uv_hrtime() + LINK_STORE_PAUSE_MS * NS_PER_MS;
        return 0;
    }
    if (put(link, sending->rows, sending->count, err))
        return -1;
    bool has_all = !is_whole(sending);
    struct tuning_db_batch *done = sending->done;
    sending->done = NULL;
    if (tuning_db_batch_count(done) == 0)
        tuning_db_batch_destroy(done);
    else if (!link_commit(link, done))
        return 0;
    note_sent(link, sending->count);
    link->has_unsent = link->has_batch = !has_all;
    if (has_all)
        link->drained_ns = start_ns;
    return 0;
}

int link_send(struct link *link, struct tune_error *err)
{
    uint64_t now_ns = uv_hrtime(), due_ns = link->sent_ns + LINK_SEND_EVERY_MS * NS_PER_MS;
    if (now_ns < link->store_ns || (now_ns < due_ns && !link->has_batch)) {
        link->has_unsent = true; /* perhaps: what woke us may be a new row */
        return 0;
    }
    struct sending *sending = xcalloc(1, sizeof *sending);
    sending->link = link;
    sending->done = tuning_db_batch_create();
    int status = sending->done == NULL ? tune_fail(err, TUNE_ENOMEM, "no memory for a batch")
                                       : send_batch(link, sending, err);
    link->sent_ns = uv_hrtime();
    for (size_t i = 0; i < sending->count; i++)
        free((char *)(uintptr_t)sending->rows[i].line);
    tuning_db_batch_destroy(sending->done);
    free(sending);
    return status;
}

/* --- in: one row ------------------------------------------------------------------------------ */

/* 0 when the row is what it claims to be; the sample is then the caller's to finish. */
static int read_row(const struct engine_row *row, struct sample *sample, struct tune_error *err)
{
    uint8_t id[TUNING_DB_ID_BYTES];
    if (record_line_parse(row->line, strlen(row->line), sample, err))
        return -1;
    tuning_db_id(sample, id);
    if (memcmp(id, row->id, sizeof id) != 0)
        tune_fail(err, TUNE_EDAMAGED, "it lies under the id of another row");
    else if (record_line_hash(sample) != row->hash)
        tune_fail(err, TUNE_EDAMAGED, "its hash is not that of its line");
    else if (rank_of(sample) != row->rank)
        tune_fail(err, TUNE_EDAMAGED, "its rank is not that of its line");
    else
        return 0;
    sample_finish(sample);
    return -1;
}

static void set_aside(struct link_taking *taking, const struct engine_row *row, const char *why)
{
    if (tuning_db_batch_aside(taking->batch, row->id, row->hash, why))
        log_warnx("fleet: no memory to set a row aside");
}

static void refuse(
    struct link_taking *taking, const struct engine_row *row, const struct tune_error *why)
{
    if (taking->refused++ == 0)
        taking->first_reason = *why;
    log_debug(
        "fleet: row of change %llu is not taken: %s", (unsigned long long)row->seq, why->text);
    set_aside(taking, row, why->text);
}

void link_take_row(const struct engine_row *row, void *context)
{
    struct link_taking *taking = context;
    struct link *link = taking->link;
    struct tune_error why = {0};
    struct sample sample;
    taking->rows++;
    if (row->seq > taking->last_seq)
        taking->last_seq = row->seq;
    if (row->line == NULL) /* we put it ourselves */
        return;
    if (read_row(row, &sample, &why)) {
        refuse(taking, row, &why);
        return;
    }
    if (!is_shared(link, &sample))
        set_aside(taking, row, "of an emulated device");
    else if (intake_judge(link->intake, &sample, &why) == INTAKE_REFUSED)
        refuse(taking, row, &why);
    else if (tuning_db_batch_replica(taking->batch, &sample) == 0)
        taking->taken++;
    else
        log_warnx("fleet: no memory for a row");
    sample_finish(&sample);
}

/* --- in: the feed ----------------------------------------------------------------------------- */

static int add_position(const struct link *link, struct tuning_db_batch *batch, uint64_t position)
{
    char text[96];
    int length =
        snprintf(text, sizeof text, "%s %llu", link->identity, (unsigned long long)position);
    return tuning_db_batch_job(batch, POSITION_MARK, text, (size_t)length);
}

bool link_store_taken(struct link_taking *taking, uint64_t position)
{
    struct link *link = taking->link;
    struct tuning_db_batch *batch = taking->batch;
    taking->batch = NULL;
    if (batch == NULL || add_position(link, batch, position)) {
        tuning_db_batch_destroy(batch);
        log_warnx("fleet: no memory for what arrives");
        link->store_ns = uv_hrtime() + LINK_STORE_PAUSE_MS * NS_PER_MS;
        return false;
    }
    if (!link_commit(link, batch))
        return false;
    if (taking->refused > 0)
        log_warnx("fleet: %zu rows were not taken; the first: %s", taking->refused,
            taking->first_reason.text);
    uv_mutex_lock(&link->mutex);
    link->status.taken += taking->taken;
    link->status.refused += taking->refused;
    uv_mutex_unlock(&link->mutex);
    return true;
}

int link_load_position(struct link *link, struct tune_error *err)
{
    void *bytes = NULL;
    size_t count = 0;
    int found = tuning_db_job(link->options.db, POSITION_MARK, &bytes, &count, err);
    if (found < 0)
        return -1;
    const char *identity = link->options.engine->identity(link->engine);
    size_t length = strlen(identity);
    snprintf(link->identity, sizeof link->identity, "%s", identity);
    link->position = 0;
    if (found == 0 && count > length && memcmp(bytes, identity, length) == 0)
        link->position = strtoull((char *)bytes + length, NULL, 10);
    free(bytes);
    return 0;
}

/* Whether the database has room for rows of others: what was measured here goes first. */
static bool has_room(const struct link *link)
{
    struct tuning_db_stats stats;
    return tuning_db_stats(link->options.db, &stats, NULL) != 0 ||
           stats.used_bytes < link->options.limit_bytes;
}

/* What this node put itself is not worth a commit: it is read again, without its lines, by the next
 * process that starts from here. */
static void advance_to(struct link_taking *taking, uint64_t position)
{
    struct link *link = taking->link;
    bool is_worth_it = taking->taken > 0 || taking->refused > 0 || link->must_store ||
                       tuning_db_batch_count(taking->batch) > 0;
    if (is_worth_it && !link_store_taken(taking, position)) {
        link->is_behind = true;
        return;
    }
    link->must_store = false;
    link->position = position;
    link->is_behind = taking->rows == LINK_TAKE_ROWS || position < link->head;
}

int link_take(struct link *link, struct tune_error *err)
{
    if (uv_hrtime() < link->store_ns)
        return 0;
    link->is_full = !has_room(link);
    struct link_taking taking = {.link = link, .batch = tuning_db_batch_create()};
    if (taking.batch == NULL)
        return tune_fail(err, TUNE_ENOMEM, "no memory for a batch");
    int status = link->options.engine->changes_since(link->engine, link->position,
        link->is_full ? 0 : LINK_TAKE_ROWS, link_take_row, &taking, &link->head, err);
    if (status == 0 && link->head < link->position) {
        /* The engine went back, to a backup: comparing tells what both lost. */
        link->compare_ns = 0;
        link->compare.next = 0;
        link->must_store = true;
        advance_to(&taking, link->head);
    } else if (status == 0 && link->is_full) {
        link->is_behind = link->position < link->head;
    } else if (status == 0) {
        bool has_all = taking.rows < LINK_TAKE_ROWS;
        uint64_t reached = has_all && link->head > taking.last_seq ? link->head : taking.last_seq;
        advance_to(&taking, reached > link->position ? reached : link->position);
    }
    tuning_db_batch_destroy(taking.batch);
    return status;
}
