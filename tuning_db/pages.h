/* A look at an LMDB data file before LMDB itself sees it.
 *
 * LMDB 0.9 trusts its file: one flipped bit in a page of its trees ends the process by a signal,
 * and a file cut short opens well and ends it later by SIGBUS. So every page that can be reached is
 * read here, with plain reads, and must be what LMDB assumes: in the file, of the kind expected,
 * its nodes inside it and apart from each other, no page used twice or both used and free. Values
 * are not looked at: each carries its own checksum. The cost is one read for each page but the
 * tails of large values. */
#ifndef TUNE_PAGES_H
#define TUNE_PAGES_H

#include "client/error.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The names of the databases that the file may hold, ended by NULL. A file with others is foreign.
 * 0, or -1: TUNE_EVERSION for a file of another format version, word size, byte order or page size,
 * TUNE_EDAMAGED for one that is damaged or cut short, TUNE_EINVAL for something else than a
 * database of ours, TUNE_EIO. `path` is for the sentences. */
int pages_check(int fd, const char *path, const char *const *names, struct tune_error *err);

/* The same in two steps, for a file that is in use meanwhile: pages_begin reads the headers and
 * takes the newer one as it stands, while nobody writes; pages_finish reads all pages of that
 * state, which must be kept from being used anew (by a reader's slot in LMDB), in any thread. It
 * frees `pages`, stops early when *is_canceled becomes true, and then returns 1. */
struct pages;
int pages_begin(int fd, const char *path, const char *const *names, struct pages **pages,
    struct tune_error *err);
int pages_finish(struct pages *pages, const atomic_bool *is_canceled, struct tune_error *err);

/* The same for the two header pages only: for a file that another process may be writing. *txn: the
 * last transaction; may be NULL. */
int pages_check_header(int fd, const char *path, uint64_t *txn, struct tune_error *err);

#endif
