/* Samples inside a commit: of two rows of one identity one stands. See tuning_db.h. */
#include "tuning_db_internal.h"

#include "record_line.h"

#include <errno.h>
#include <string.h>

static bool is_same_row(const struct sample *a, const struct sample *b)
{
    return record_key_equal(&a->key, &b->key) && strcmp(a->config, b->config) == 0 &&
           strcmp(a->gpu_uuid, b->gpu_uuid) == 0 && strcmp(a->run, b->run) == 0;
}

/* A row of this machine is final once; before that the rule of all others holds for it too, or a
 * row that the fleet has already seen would stand here and fall there. */
static enum fate judge(enum op_kind kind, const struct sample *stored, const struct sample *new)
{
    if (kind == OP_LOCAL && stored->is_final)
        return FATE_KEPT;
    int order = sample_precedence(new, stored);
    if (order == 0)
        return FATE_EQUAL;
    return order < 0 ? FATE_REPLACED : FATE_KEPT;
}

/* A stored row that shares the key but not the texts (two texts of one 128-bit hash) stays, and is
 * reported. A damaged one counts as absent. */
static int compare_stored(
    struct commit *commit, struct op *op, const MDB_val *value, enum fate *fate)
{
    struct sample stored, new;
    struct tune_error why = {.code = TUNE_OK};
    *fate = FATE_ADDED;
    if (sample_decode(value->mv_data, value->mv_size, &stored, &why) != 0)
        return why.code == TUNE_ENOMEM ? ENOMEM : 0;
    if (sample_decode(op->value, op->value_bytes, &new, NULL) != 0) {
        sample_finish(&stored);
        return ENOMEM;
    }
    bool is_same = is_same_row(&stored, &new);
    *fate = is_same ? judge(op->kind, &stored, &new) : FATE_KEPT;
    sample_finish(&stored);
    sample_finish(&new);
    if (!is_same)
        db_note_damage(commit->db, op->table, op->key, op->key_bytes, NULL);
    return 0;
}

static int find_fate(struct commit *commit, struct op *op, enum fate *fate)
{
    MDB_val key = op_key(op), value;
    *fate = FATE_ADDED;
    int rc = mdb_get(commit->txn, commit->db->tables[TABLE_SAMPLES], &key, &value);
    if (rc != 0)
        return rc == MDB_NOTFOUND ? 0 : rc;
    return compare_stored(commit, op, &value, fate);
}

static void count_fate(struct tuning_db_batch *batch, const struct op *op, enum fate fate)
{
    bool is_stored = fate == FATE_ADDED || fate == FATE_REPLACED;
    if (op->kind != OP_LOCAL) {
        batch->fates[fate]++;
        batch->refreshes[op->refresh].is_touched |= is_stored;
    } else if (!is_stored) {
        batch->duplicates++;
    }
}

int put_sample(struct commit *commit, struct op *op)
{
    enum fate fate;
    int rc = find_fate(commit, op, &fate);
    if (rc != 0)
        return rc;
    count_fate(commit->batch, op, fate);
    if (fate == FATE_KEPT)
        return 0;
    bool is_stored = fate != FATE_EQUAL;
    if (is_stored)
        rc = put_op(commit, op);
    return rc == 0 ? settle_outbox(commit, op, is_stored) : rc;
}
