/* See salvage.h. */
#include "daemon/salvage.h"

#include "daemon/xmalloc.h"
#include "tuning_db/tuning_db.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BATCH_RECORDS 256

/* A key whose best must be made anew, with its own copies of the texts. */
struct key {
    struct record_hash hash;
    struct record_key texts;
};

struct walk {
    struct tuning_db *db;
    struct tuning_db_batch *batch;
    struct key *keys;
    size_t key_count;
    size_t samples;
    struct tune_error err;
};

static int flush(struct walk *walk)
{
    int status = tuning_db_commit(walk->db, walk->batch, &walk->err);
    tuning_db_batch_destroy(walk->batch);
    walk->batch = tuning_db_batch_create();
    return status;
}

static bool is_known(const struct walk *walk, const struct record_hash *hash)
{
    for (size_t i = 0; i < walk->key_count; i++)
        if (memcmp(&walk->keys[i].hash, hash, sizeof *hash) == 0)
            return true;
    return false;
}

static void add_key(struct walk *walk, const struct record_key *texts)
{
    struct record_hash hash = record_key_hash(texts);
    if (is_known(walk, &hash))
        return;
    walk->keys = xrealloc(walk->keys, (walk->key_count + 1) * sizeof *walk->keys);
    walk->keys[walk->key_count++] = (struct key){
        .hash = hash,
        .texts =
            {
                .kernel = xstrdup(texts->kernel),
                .fingerprint = xstrdup(texts->fingerprint),
                .shape = xstrdup(texts->shape),
                .dtype = xstrdup(texts->dtype),
                .arch = xstrdup(texts->arch),
                .mode = xstrdup(texts->mode),
            },
    };
}

static int on_sample(const struct sample *sample, void *context)
{
    struct walk *walk = context;
    if (tuning_db_batch_sample(walk->batch, sample) == 0)
        walk->samples++;
    add_key(walk, &sample->key);
    return tuning_db_batch_count(walk->batch) >= BATCH_RECORDS ? flush(walk) : 0;
}

static int refresh_keys(struct walk *walk)
{
    for (size_t i = 0; i < walk->key_count; i++)
        tuning_db_batch_refresh(walk->batch, &walk->keys[i].texts);
    return flush(walk);
}

static void finish(struct walk *walk)
{
    for (size_t i = 0; i < walk->key_count; i++) {
        struct record_key *texts = &walk->keys[i].texts;
        free((char *)texts->kernel);
        free((char *)texts->fingerprint);
        free((char *)texts->shape);
        free((char *)texts->dtype);
        free((char *)texts->arch);
        free((char *)texts->mode);
    }
    free(walk->keys);
    tuning_db_batch_destroy(walk->batch);
    tuning_db_close(walk->db);
}

static int move_aside(const char *dir, struct salvage *report, struct tune_error *err)
{
    char stamp[32];
    time_t now = time(NULL);
    struct tm parts;
    strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", localtime_r(&now, &parts));
    int length = snprintf(report->aside, sizeof report->aside, "%s.damaged-%s", dir, stamp);
    if (length >= (int)sizeof report->aside)
        return tune_fail(err, TUNE_EINVAL, "the database's path is too long");
    if (rename(dir, report->aside) != 0)
        return tune_fail_errno(err, TUNE_EIO, "cannot move %s aside to %s", dir, report->aside);
    return 0;
}

int salvage_run(const char *dir, struct salvage *report, struct tune_error *err)
{
    struct tune_error why = {0};
    *report = (struct salvage){0};
    struct tuning_db *sound = tuning_db_open(dir, NULL, &why);
    tuning_db_close(sound);
    if (sound != NULL)
        return 0;
    if (why.code != TUNE_EDAMAGED)
        return tune_fail(err, why.code, "%s", why.text);
    if (move_aside(dir, report, err))
        return -1;
    struct walk walk = {.batch = tuning_db_batch_create()};
    walk.db = tuning_db_open(dir, NULL, err);
    if (walk.db == NULL) {
        tuning_db_batch_destroy(walk.batch);
        return -1;
    }
    int status = tuning_db_salvage(report->aside, on_sample, &walk, err);
    if (status == 0 && walk.err.code == TUNE_OK)
        refresh_keys(&walk);
    if (walk.err.code != TUNE_OK)
        status = tune_fail(err, walk.err.code, "%s", walk.err.text);
    report->samples = walk.samples;
    report->keys = walk.key_count;
    finish(&walk);
    return status;
}
