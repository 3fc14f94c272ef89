/* A snapshot's folder and its page, for reading. See snapshot_form.h. */
#include "client/snapshot_form.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#define PAGE_TRIES 10 /* against a page that was written meanwhile */
#define WRITING_MS 20 /* a page that is being written for longer has lost its writer */

const char snapshot_page_magic[8] = "TUNEPAGE";

/* --- folder and files ------------------------------------------------------------------------- */

static bool is_trusted(const struct stat *status)
{
    return (status->st_uid == geteuid() || status->st_uid == 0) &&
           (status->st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

static int fail_open(const char *what, struct tune_error *err)
{
    bool is_missing = errno == ENOENT || errno == ENOTDIR;
    bool is_forbidden = errno == EACCES || errno == EPERM || errno == ELOOP;
    return tune_fail_errno(err,
        is_missing     ? TUNE_ENOTFOUND
        : is_forbidden ? TUNE_EPERM
                       : TUNE_EIO,
        "cannot open %s of published answers", what);
}

int snapshot_open_folder(const char *folder, struct tune_error *err)
{
    struct stat status;
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return fail_open(folder, err);
    if (fstat(fd, &status) == 0 && is_trusted(&status))
        return fd;
    close(fd);
    return tune_fail(err, TUNE_EPERM,
        "published answers in %s are not used: the folder is somebody else's, or others may write "
        "it",
        folder);
}

int snapshot_open_file(
    int folder_fd, const char *name, int flags, struct stat *status, struct tune_error *err)
{
    int fd = openat(folder_fd, name, flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return fail_open(name, err);
    if (fstat(fd, status) == 0 && S_ISREG(status->st_mode) && is_trusted(status))
        return fd;
    close(fd);
    return tune_fail(err, TUNE_EPERM,
        "the file %s of published answers is not used: it is somebody else's, or others may write "
        "it, or it is no file",
        name);
}

/* --- the page --------------------------------------------------------------------------------- */

uint64_t snapshot_page_sum(const struct snapshot_page *content, uint64_t sequence)
{
    return XXH3_64bits(content, sizeof *content) + sequence;
}

/* Maps the page, over `at` unless that is NULL. NULL on failure. */
struct page *snapshot_map_page(int folder_fd, void *at, struct stat *status, struct tune_error *err)
{
    int fd = snapshot_open_file(folder_fd, SNAPSHOT_PAGE_NAME, O_RDONLY, status, err);
    if (fd < 0)
        return NULL;
    struct page *page = MAP_FAILED;
    struct {
        char magic[8];
        uint32_t version;
    } start = {0};
    if (status->st_size != SNAPSHOT_PAGE_BYTES || pread(fd, &start, 12, 0) != 12 ||
        memcmp(start.magic, snapshot_page_magic, sizeof start.magic) != 0)
        tune_fail(err, TUNE_EDAMAGED, "the page of published answers is damaged");
    else if (start.version != SNAPSHOT_VERSION)
        tune_fail(err, TUNE_EVERSION,
            "published answers are of version %u, this program reads %d: daemon and libtune are of "
            "different releases",
            start.version, SNAPSHOT_VERSION);
    else {
        page = mmap(
            at, SNAPSHOT_PAGE_BYTES, PROT_READ, MAP_SHARED | (at != NULL ? MAP_FIXED : 0), fd, 0);
        if (page == MAP_FAILED)
            tune_fail_errno(err, TUNE_EIO, "cannot map the page of published answers");
    }
    close(fd);
    return page == MAP_FAILED ? NULL : page;
}

struct page *snapshot_open_page(const char *folder, struct stat *status, struct tune_error *err)
{
    int folder_fd = snapshot_open_folder(folder, err);
    if (folder_fd < 0)
        return NULL;
    struct page *page = snapshot_map_page(folder_fd, NULL, status, err);
    close(folder_fd);
    return page;
}

static bool is_name(const char name[SNAPSHOT_NAME_BYTES], const char *kind)
{
    size_t prefix = strlen(kind);
    if (name[0] == '\0')
        return true;
    return memchr(name, '\0', SNAPSHOT_NAME_BYTES) != NULL && strncmp(name, kind, prefix) == 0 &&
           strspn(name + prefix, "0123456789") == strlen(name + prefix);
}

/* One reading of the page, of *sequence; false when it is not consistent. */
static bool try_page(const struct page *page, struct snapshot_page *content, uint64_t *sequence)
{
    uint64_t words[PAGE_WORDS];
    uint64_t before = atomic_load_explicit(&page->sequence, memory_order_acquire);
    for (size_t i = 0; i < PAGE_WORDS; i++)
        words[i] = atomic_load_explicit(&page->words[i], memory_order_acquire);
    uint64_t sum = atomic_load_explicit(&page->sum, memory_order_acquire);
    *sequence = atomic_load_explicit(&page->sequence, memory_order_relaxed);
    memcpy(content, words, sizeof *content);
    return before == *sequence && before % 2 == 0 && sum == snapshot_page_sum(content, before) &&
           is_name(content->base, "base-") && is_name(content->delta, "delta-");
}

/* -1 when it is damaged, or stays in the middle of being written (*sequence is odd then). */
int snapshot_take_page(const struct page *page, struct snapshot_page *content, uint64_t *sequence)
{
    uint64_t deadline_ms = snapshot_now_ms() + WRITING_MS;
    for (int tries = 0; tries < PAGE_TRIES;) {
        if (try_page(page, content, sequence))
            return 0;
        bool is_writing = *sequence % 2 != 0;
        if (is_writing && snapshot_now_ms() > deadline_ms)
            break;
        tries += !is_writing;
        sched_yield();
    }
    return -1;
}

int snapshot_read_page(const char *folder, struct snapshot_page *content, struct tune_error *err)
{
    struct stat status;
    uint64_t sequence;
    struct page *page = snapshot_open_page(folder, &status, err);
    if (page == NULL)
        return -1;
    int result = snapshot_take_page(page, content, &sequence);
    munmap(page, SNAPSHOT_PAGE_BYTES);
    if (result != 0 && sequence % 2 == 0)
        return tune_fail(
            err, TUNE_EDAMAGED, "the page of published answers in %s is damaged", folder);
    if (result != 0)
        return tune_fail(
            err, TUNE_EBUSY, "the page of published answers in %s is being written", folder);
    return 0;
}
