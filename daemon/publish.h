/* Publishing: keeps the snapshot of exact answers (client/snapshot.h) in step with the database, so
 * that programs on this machine are answered without a socket, and go on being answered while the
 * daemon is away.
 *
 * Design. One thread of its own, at a lower priority, does all of it: resolving, writing, syncing.
 * The loop only hands it the kernels and devices that there are (a view). Four times a second the
 * thread compares one number, the database's generation. Where it has risen, the keys whose best
 * changed go into a new delta, and the page is pointed to it: a round. Where the delta has grown
 * large or old, or there is no base that can be built upon, a new base is built, at most once a
 * minute; rounds go on in between. What is published is for the targets that `get` knows without a
 * database: each attached GPU's name, each arch, and none (the first GPU).
 *
 * What is published is right or it is not there: when kernels or devices change, when more keys
 * change than are told one by one, when a file cannot be written, the page is made to name nothing
 * (clients then ask by the socket) until there is a new base. The page's sequence rises with every
 * generation in any case, since answers that are not exact follow from other keys' records too.
 *
 * The page remembers the generation and a hash of all else that the answers follow from (version,
 * database file, kernels, devices), so the next daemon goes on where this one ended. */
#ifndef TUNE_PUBLISH_H
#define TUNE_PUBLISH_H

#include "plugins/registry.h"
#include "tuning_db/tuning_db.h"

#include <uv.h>

#define PUBLISH_CHECK_MS 250         /* how often the generation is looked at */
#define PUBLISH_BASE_PERIOD_MS 60000 /* bases are not begun more often */
#define PUBLISH_DELTA_AGE_MS 600000  /* a base that is older than this, with a delta, is renewed */
#define PUBLISH_DELTA_KEYS 1024      /* so is one whose delta has more keys than this */
#define PUBLISH_DELTA_KEYS_MAX 4096  /* more are not told one by one */

struct publish_options {
    struct tuning_db *db; /* borrowed */
    const char *db_dir;   /* copied; its file's identity is part of what answers follow from */
    const char *folder;   /* copied; made if need be */
    const char *link;     /* the symbolic link to it, replaced where it is one; NULL: none */
    bool allows_group;    /* may read what is published */
    uint64_t check_ms, base_period_ms, delta_age_ms; /* 0: the usual, as above */
    size_t delta_keys, delta_keys_max;
};

struct publish;

/* Never fails: where it cannot work (a folder that is not ours) it says so in the log and answers
 * go by the socket. Publishes nothing before the first view. */
struct publish *publish_start(uv_loop_t *loop, const struct publish_options *options);

/* What there is from now on: the registry's kernels, of which references are taken, and the
 * attached devices, the first one first. */
void publish_set_view(struct publish *publish, const struct registry *registry,
    const struct device_info *devices, size_t device_count);

/* Where answers are published; NULL where they cannot be. */
const char *publish_folder(const struct publish *publish);

/* Publishes what has been committed until now, ends the thread, frees, then calls on_stopped. NULL
 * is fine: it is called at once. */
void publish_stop(struct publish *publish, void (*on_stopped)(void *context), void *context);

#endif
