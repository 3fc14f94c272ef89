/* The published snapshot of exact answers: how a program on this machine gets its configuration
 * without a socket. Written by the daemon, read by libtune. Pure but for files.
 *
 * FOLDER (served/ in the database's folder; SOCKET.served is a symbolic link to it) holds
 *   page      4 KiB, shared memory: a sequence number, and the names of the two files. Written in
 *             place, also by the next daemon, so that who has it mapped sees the news.
 *   base-N    all exact answers, rewritten at most once a minute;
 *   delta-N   those that came since, small. An entry without a value says: ask the daemon.
 * Base and delta are of one form and never change once they have their name: written beside,
 * synced, renamed. A reader maps them read-only and takes no lock, so it can neither block the
 * daemon nor fill its database, in whatever PID namespace it lives; an old file stays whole for
 * whoever has it mapped. What cannot be guarded against: somebody who may write the files (their
 * owner, root) and cuts one short while it is mapped: that is a bus error in the reader.
 *
 * Form, little-endian: head (magic, version, counts, file bytes, checksums); entries, each a key
 * and, unless it shares the one before, its value; an open-addressed table of (hash, offset) of a
 * power of two, at most half full. A lookup in a base checks the entry it found: what is damaged is
 * a miss. A delta is checked whole when it is opened, since what is missing in it would be looked
 * for in the base, where it is out of date. The page is guarded by its sequence number, which is
 * odd while it is written, and by a checksum: a writer that was killed in the middle leaves an odd
 * number, and readers keep what they have until the next daemon has mended it. */
#ifndef TUNE_SNAPSHOT_H
#define TUNE_SNAPSHOT_H

#include "tune.h"

#define SNAPSHOT_VERSION 1 /* raise it with any change of the bytes, and with ANSWER_VERSION */
#define SNAPSHOT_KEY_BYTES 640

/* The key of a query: kernel, dtype ("" for the manifest's first), mode, target (GPU name, arch, or
 * none for the daemon's first GPU) and the dims sorted by name. Equal questions have equal keys.
 * Returns its length, or 0 where the query has no key here (a session, arch and gpu both given, too
 * long): ask the daemon. */
size_t snapshot_key(const struct tune_query *query, char key[SNAPSHOT_KEY_BYTES]);

/* --- reading ---------------------------------------------------------------------------------- */

struct snapshot; /* an open folder */

/* TUNE_ENOTFOUND where nothing is published; TUNE_EPERM where folder or files belong to somebody
 * who is neither this user nor root, or others may write them; TUNE_EVERSION, TUNE_EDAMAGED of the
 * page. `folder` itself may be a symbolic link, nothing in it. Files that cannot be used make every
 * lookup a miss, until they are replaced. */
int snapshot_open(const char *folder, struct snapshot **snapshot, struct tune_error *err);
void snapshot_close(struct snapshot *snapshot); /* NULL is fine; no call may be in flight */

/* One atomic load: changes with every publication. */
uint64_t snapshot_sequence(const struct snapshot *snapshot);

/* For who keeps answers and compares sequences: notices within a second that `folder` now leads
 * elsewhere. False when, as far as was looked, nothing is published: the sequence says nothing of
 * news then. */
bool snapshot_keep_up(struct snapshot *snapshot);

/* 0 found, 1 not there (or damaged). Takes up new files first when the sequence has changed, so an
 * answer is never older than a sequence that was read before the call. Notices within a second that
 * `folder` now leads elsewhere. Any number of threads. Allocates only when it takes up files. */
int snapshot_get(
    struct snapshot *snapshot, const char *key, size_t key_length, struct tune_answer *answer);

/* What the page says. */
struct snapshot_page {
    char base[32], delta[32];  /* names of files; "" for none */
    uint64_t generation;       /* of the database, all of which the two files reflect */
    uint64_t origin;           /* a hash of all else that the answers follow from; the daemon's */
    int64_t published_unix_ms; /* filled by snapshot_publish */
};

/* TUNE_ENOTFOUND, TUNE_EPERM, TUNE_EVERSION, TUNE_EDAMAGED as above; TUNE_EBUSY: it is being
 * written, or its writer was killed. */
int snapshot_read_page(const char *folder, struct snapshot_page *page, struct tune_error *err);

/* All entries of a file, checked whole: TUNE_EDAMAGED before the first call where it fails. The
 * answer is NULL for "ask the daemon"; all is borrowed during the call, which returns 0 to go on.
 * With on_entry NULL only the head is read and checked. `entries` may be NULL; it gets their
 * number.
 */
int snapshot_walk(const char *folder, const char *name,
    int (*on_entry)(
        const char *key, size_t key_length, const struct tune_answer *answer, void *context),
    void *context, uint64_t *entries, struct tune_error *err);

/* --- writing (the daemon) --------------------------------------------------------------------- */

/* Makes FOLDER if need be: mode 0700, or 0750 where the group may read; page and files follow.
 * TUNE_EPERM where it is somebody else's or a symbolic link. */
int snapshot_make_folder(const char *folder, bool allows_group, struct tune_error *err);

struct snapshot_writer; /* one file under construction */

int snapshot_writer_create(const char *folder, size_t entries_expected,
    struct snapshot_writer **writer, struct tune_error *err);
/* answer NULL: "ask the daemon". Several keys may share an answer: give them one after the other.
 * A key may be given once. */
int snapshot_writer_add(struct snapshot_writer *writer, const char *key, size_t key_length,
    const struct tune_answer *answer, struct tune_error *err);
/* Syncs, names it base-N or delta-N, returns that name in `name`, frees the writer (in any case).
 */
int snapshot_writer_finish(struct snapshot_writer *writer, const char *kind, uint64_t number,
    char name[32], struct tune_error *err);
void snapshot_writer_abandon(struct snapshot_writer *writer); /* NULL is fine */

/* Points the page to these files, making or mending it, and removes what the page does not name but
 * for files under construction. One caller at a time from snapshot_writer_finish until here, or a
 * finished file is taken for an old one. */
int snapshot_publish(const char *folder, const struct snapshot_page *page, struct tune_error *err);

#endif
