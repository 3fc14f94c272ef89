/* See import_file.h. */
#include "daemon/import_file.h"

#include "client/proto.h"
#include "daemon/intake.h"
#include "daemon/xmalloc.h"
#include "tuning_db/record_line.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Distinct keys, by a part of their hashes: open addressing, at most half full. */
struct key_set {
    uint64_t *hashes; /* 0: free */
    size_t count, room;
};

struct import_file {
    json_t *name; /* a string */
    bool is_strict, is_dry_run;
    struct intake *intake;
    struct tuning_db_batch *batch;
    bool has_header, is_stored;
    size_t rows, set_aside, refused;
    struct key_set keys;
    json_t *refusals, *unknown; /* unknown: an object as a set */
    struct tune_error failure;  /* of the file as a whole */
};

struct import_file *import_file_create(
    const struct registry *registry, const struct import_options *options)
{
    struct import_file *file = xcalloc(1, sizeof *file);
    file->name = json_string(options->name);
    file->is_strict = options->is_strict;
    file->is_dry_run = options->is_dry_run;
    file->intake = intake_create(registry);
    file->batch = tuning_db_batch_create();
    file->refusals = json_array();
    file->unknown = json_object();
    return file;
}

void import_file_destroy(struct import_file *file)
{
    if (file == NULL)
        return;
    intake_destroy(file->intake);
    tuning_db_batch_destroy(file->batch);
    free(file->keys.hashes);
    json_decref(file->refusals);
    json_decref(file->unknown);
    json_decref(file->name);
    free(file);
}

static int fail(const struct import_file *file, struct tune_error *err)
{
    return file->failure.code == TUNE_OK
               ? 0
               : tune_fail(err, file->failure.code, "%s", file->failure.text);
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

static void refuse(struct import_file *file, int64_t line, const char *reason)
{
    char text[sizeof((struct tune_error *)0)->text]; /* a client may send more */
    file->refused++;
    if (json_array_size(file->refusals) >= IMPORT_REFUSALS_LISTED)
        return;
    snprintf(text, sizeof text, "%s", reason);
    json_array_append_new(file->refusals,
        json_pack("{s:I, s:o}", "line", (json_int_t)line, "reason", proto_text(text)));
}

static void note_unknown(struct import_file *file, const char *name, size_t length)
{
    if (json_object_size(file->unknown) < IMPORT_UNKNOWN_LISTED)
        json_object_setn_new(file->unknown, name, length, json_true());
}

static void take_header(struct import_file *file, const char *line, size_t length)
{
    char *unknown = NULL;
    if (record_header_check(line, length, &unknown, &file->failure) == 0)
        file->has_header = true;
    for (const char *at = unknown; at != NULL && *at != '\0';) {
        size_t name = strcspn(at, ",");
        note_unknown(file, at, name);
        at += name + strspn(at + name, ", ");
    }
    free(unknown);
}

static void note_extra(struct import_file *file, const char *extra)
{
    const char *name;
    json_t *value, *json = json_loads(extra, 0, NULL);
    json_object_foreach (json, name, value)
        note_unknown(file, name, strlen(name));
    json_decref(json);
}

static void take_row(struct import_file *file, int64_t line, const struct sample *sample)
{
    struct tune_error reason = {0};
    enum intake_verdict verdict = intake_judge(file->intake, sample, &reason);
    if (verdict == INTAKE_REFUSED) {
        refuse(file, line, reason.text);
        return;
    }
    if (tuning_db_batch_merge(file->batch, sample)) {
        tune_fail(&file->failure, TUNE_ENOMEM, "no memory for the import");
        return;
    }
    file->set_aside += verdict == INTAKE_ASIDE;
    key_set_add(&file->keys, &sample->key);
    if (sample->extra != NULL && sample->extra[0] != '\0')
        note_extra(file, sample->extra);
}

static void take_record(struct import_file *file, int64_t line, const char *text, size_t length)
{
    struct tune_error why = {0};
    struct sample sample;
    if (++file->rows > IMPORT_ROWS_MAX) {
        tune_fail(&file->failure, TUNE_ELIMIT,
            "one import takes %d records at most: split the file", IMPORT_ROWS_MAX);
        return;
    }
    if (record_line_parse(text, length, &sample, &why)) {
        refuse(file, line, why.text);
        return;
    }
    take_row(file, line, &sample);
    sample_finish(&sample);
}

/* --- public ----------------------------------------------------------------------------------- */

int import_file_lines(struct import_file *file, const char *text, size_t length, int64_t first_line,
    struct tune_error *err)
{
    const char *at = text, *end = text + length;
    for (int64_t line = first_line; at < end && file->failure.code == TUNE_OK; line++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t count = (size_t)((stop ? stop : end) - at);
        size_t bare = count > 0 && at[count - 1] == '\r' ? count - 1 : count;
        if (bare > 0 && record_line_is_header(at, bare))
            take_header(file, at, bare);
        else if (bare > 0)
            take_record(file, line, at, bare);
        at += count + 1;
    }
    return fail(file, err);
}

void import_file_refuse(struct import_file *file, int64_t line, const char *reason)
{
    file->rows++;
    refuse(file, line, reason);
}

int import_file_end(struct import_file *file, struct tuning_db *db, struct tune_error *err)
{
    if (!file->has_header)
        tune_fail(&file->failure, TUNE_EVERSION,
            "the file has no header line with a version (found: none; wanted: "
            "{\"format\":\"tunerd-records\",\"version\":[%d,%d]})",
            RECORD_LINE_MAJOR, RECORD_LINE_MINOR);
    if (file->failure.code != TUNE_OK)
        return fail(file, err);
    bool stores = !file->is_dry_run && !(file->is_strict && file->refused > 0);
    int status = stores ? tuning_db_commit(db, file->batch, &file->failure)
                        : tuning_db_try(db, file->batch, &file->failure);
    file->is_stored = stores && status == 0;
    return fail(file, err);
}

bool import_file_is_stored(const struct import_file *file)
{
    return file->is_stored;
}

static json_t *unknown_json(const struct import_file *file)
{
    json_t *list = json_array(), *ignored;
    const char *name;
    json_object_foreach (file->unknown, name, ignored)
        json_array_append_new(list, json_string(name));
    return list;
}

json_t *import_file_report(const struct import_file *file)
{
    struct tuning_db_merged merged;
    tuning_db_batch_merged(file->batch, &merged);
    return json_pack("{s:O, s:b, s:b, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:O, s:o}",
        "name", file->name, "dry_run", file->is_dry_run, "strict", file->is_strict, "stored",
        file->is_stored, "rows", (json_int_t)file->rows, "keys", (json_int_t)file->keys.count,
        "added", (json_int_t)merged.added, "equal", (json_int_t)merged.equal, "replaced",
        (json_int_t)merged.replaced, "kept", (json_int_t)merged.kept, "set_aside",
        (json_int_t)file->set_aside, "refused", (json_int_t)file->refused, "refusals",
        file->refusals, "unknown_fields", unknown_json(file));
}
