/* From a key of the database to the entries of a snapshot: which questions it answers, and how. */
#ifndef TUNE_PUBLISH_VIEW_H
#define TUNE_PUBLISH_VIEW_H

#include "client/snapshot.h"
#include "plugins/registry.h"
#include "tuning_db/tuning_db.h"

/* The kernels and devices that there are. Immutable. */
struct view {
    struct plugin **plugins; /* references */
    size_t plugin_count;
    struct device_info *devices;
    size_t device_count;
    uint64_t hash; /* of all of it */
};

struct view *view_create(
    const struct registry *registry, const struct device_info *devices, size_t device_count);
void view_destroy(struct view *view); /* NULL is fine */

/* Adds an entry for each question that this key is the exact answer to. Where there is no exact
 * answer (any more), an entry that says "ask the daemon" if `with_asks`. Keys of kernels that are
 * not in the view, or of another fingerprint, answer nothing. -1 when it cannot be written. */
int view_add_answers(const struct view *view, struct tuning_db *db, const struct record_key *key,
    bool with_asks, struct snapshot_writer *writer, struct tune_error *err);

#endif
