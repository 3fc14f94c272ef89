/* Inside of the snapshot, shared by its files:
 *
 *   snapshot_key.c    keys
 *   snapshot_page.c   folder and page, for reading
 *   snapshot_file.c   one file, for reading
 *   snapshot.c        the handle: which files are current, for any number of threads
 *   snapshot_write.c  all of the writing */
#ifndef TUNE_SNAPSHOT_FORM_H
#define TUNE_SNAPSHOT_FORM_H

#include "client/snapshot.h"

#include <assert.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <time.h>

#define SNAPSHOT_PAGE_NAME "page"
#define SNAPSHOT_PAGE_BYTES 4096
#define SNAPSHOT_NAME_BYTES 32
#define CACHE_LINE 64

/* --- files ------------------------------------------------------------------------------------ */

struct file_head {
    char magic[8];
    uint32_t version;
    uint32_t probe_max;   /* no key lies more slots after its first than this */
    uint64_t entries;     /* at most half of the slots */
    uint64_t slots;       /* a power of two */
    uint64_t table;       /* where they begin; they end the file */
    uint64_t file_bytes;  /* a file that was cut short is refused */
    uint64_t content_sum; /* XXH3 of all that follows the head */
    uint64_t head_sum;    /* XXH3 of the head before this field */
};

struct file_slot {
    uint64_t hash;   /* XXH3 of the key */
    uint64_t offset; /* of its entry; 0: empty */
};

/* Followed by the key; aligned to 8. */
struct file_entry {
    uint64_t sum;   /* XXH3 of the value, plus the key's hash */
    uint64_t value; /* where it begins; 0 with a length of 0: ask the daemon */
    uint32_t value_length;
    uint32_t key_length;
};

extern const char snapshot_file_magic[8];

/* --- the page --------------------------------------------------------------------------------- */

#define PAGE_WORDS (sizeof(struct snapshot_page) / sizeof(uint64_t))
static_assert(sizeof(struct snapshot_page) == 2 * SNAPSHOT_NAME_BYTES + 3 * sizeof(uint64_t),
    "a page's content has no padding");

/* Read and written word by word, since both may happen at once. */
struct page {
    char magic[8];
    uint32_t version;
    uint32_t zero;
    _Atomic uint64_t sequence;          /* odd: being written */
    _Atomic uint64_t words[PAGE_WORDS]; /* a struct snapshot_page */
    _Atomic uint64_t sum;               /* XXH3 of the words, plus the sequence */
};

extern const char snapshot_page_magic[8];

uint64_t snapshot_page_sum(const struct snapshot_page *content, uint64_t sequence);

/* --- snapshot_page.c -------------------------------------------------------------------------- */

/* Opens a folder, through a symbolic link if it is one, whose owner is this user or root and which
 * no others may write. A descriptor, or -1. */
int snapshot_open_folder(const char *folder, struct tune_error *err);
/* Opens a regular file in it under the same rule, never through a link. A descriptor, or -1. */
int snapshot_open_file(
    int folder_fd, const char *name, int flags, struct stat *status, struct tune_error *err);

/* Maps the page for reading, over `at` unless that is NULL. NULL on failure. */
struct page *snapshot_map_page(
    int folder_fd, void *at, struct stat *status, struct tune_error *err);
/* The same for the page of a folder by its path. */
struct page *snapshot_open_page(const char *folder, struct stat *status, struct tune_error *err);
/* One consistent reading, of *sequence. -1 while it is being written (*sequence is odd then), or
 * when it is damaged. */
int snapshot_take_page(const struct page *page, struct snapshot_page *content, uint64_t *sequence);

static inline uint64_t snapshot_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* --- snapshot_file.c -------------------------------------------------------------------------- */

/* A file that is mapped. */
struct snapshot_file {
    char name[SNAPSHOT_NAME_BYTES];
    dev_t device; /* of the file; its number is not given to another while it is mapped */
    ino_t inode;
    unsigned references; /* the caller's to guard */
    const uint8_t *bytes;
    const struct file_head *head;
    const struct file_slot *slots;
};

/* How much of a file is looked at when it is opened. */
enum depth { DEPTH_HEAD, DEPTH_LOOKUPS, DEPTH_WHOLE };

/* New, with one reference; or NULL. */
struct snapshot_file *snapshot_file_open(
    int folder_fd, const char *name, enum depth depth, struct tune_error *err);
void snapshot_file_release(struct snapshot_file *file); /* a reference; NULL is fine */

enum found { FOUND, FOUND_ASK, FOUND_DAMAGED, FOUND_NOT };

/* Fills the answer if FOUND. */
enum found snapshot_file_find(const struct snapshot_file *file, const char *key, size_t key_length,
    uint64_t hash, struct tune_answer *answer);
/* Asks for the memory that the lookup of this hash begins with. NULL is fine. */
void snapshot_file_prefetch(const struct snapshot_file *file, uint64_t hash);

#endif
