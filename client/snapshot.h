/* The published snapshot of exact answers: how a program on this machine gets its configuration
 * without a socket. Written by the daemon, read by libtune. Pure but for files.
 *
 * FOLDER (DIR/served of the database; SOCKET.served is a symbolic link to it) holds
 *   page      4 KiB, shared memory: a sequence number, and the names of the two files. Written in
 *             place, also by the next daemon, so that who has it mapped sees the news.
 *   base-N    all exact answers, rewritten at most once a minute;
 *   delta-N   those that came since, small. An entry without a value says: ask the daemon.
 * Base and delta are of one form and never change once they have their name: written beside,
 * synced, renamed. A reader maps them read-only and takes no lock, so it can neither block the
 * daemon nor fill its database, in whatever PID namespace it lives; an old file stays whole for
 * whoever has it mapped.
 *
 * Form, little-endian: head (magic, version, counts, file bytes, checksum of the head), an open-
 * addressed table of (hash, offset) of a power of two, at most half full; entries: key bytes, value
 * bytes, XXH3 of both. A lookup checks the entry it found: what is damaged is a miss. */
#ifndef TUNE_SNAPSHOT_H
#define TUNE_SNAPSHOT_H

#include "tune.h"

#define SNAPSHOT_VERSION 1
#define SNAPSHOT_KEY_BYTES 640

/* The key of a query: kernel, dtype ("" for the manifest's first), mode, target (GPU name, arch, or
 * "" for the daemon's first GPU) and the dims sorted by name. Equal questions have equal keys.
 * Returns its length, or 0 where the query has no key here (a session, arch and gpu both given, too
 * long): ask the daemon. */
size_t snapshot_key(const struct tune_query *query, char key[SNAPSHOT_KEY_BYTES]);

/* --- reading ---------------------------------------------------------------------------------- */

struct snapshot; /* an open folder */

/* TUNE_ENOTFOUND where nothing is published; TUNE_EPERM where folder or files belong to somebody
 * who is neither this user nor root, or others may write them. */
int snapshot_open(const char *folder, struct snapshot **snapshot, struct tune_error *err);
void snapshot_close(struct snapshot *snapshot);

/* One atomic load: changes with every publication. */
uint64_t snapshot_sequence(const struct snapshot *snapshot);

/* 0 found, 1 not there (or damaged). Takes up new files first when the sequence has changed. Any
 * number of threads. Allocates only when it takes up files. */
int snapshot_get(
    struct snapshot *snapshot, const char *key, size_t key_length, struct tune_answer *answer);

/* --- writing (the daemon) --------------------------------------------------------------------- */

struct snapshot_writer; /* one file under construction */

int snapshot_writer_create(const char *folder, size_t entries_expected,
    struct snapshot_writer **writer, struct tune_error *err);
/* answer NULL: "ask the daemon". Several keys may share an answer: give them one after the other.
 */
int snapshot_writer_add(struct snapshot_writer *writer, const char *key, size_t key_length,
    const struct tune_answer *answer, struct tune_error *err);
/* Syncs, names it base-N or delta-N, returns that name in `name`, frees the writer (in any case).
 */
int snapshot_writer_finish(struct snapshot_writer *writer, const char *kind, uint64_t number,
    char name[32], struct tune_error *err);
void snapshot_writer_abandon(struct snapshot_writer *writer);

/* Makes FOLDER (mode 0700, or 0750 for a group) if need be, and points the page to these files
 * (delta may be ""); removes files that neither the page nor `keep` names. */
int snapshot_publish(const char *folder, const char *base, const char *delta, uint64_t generation,
    struct tune_error *err);

#endif
