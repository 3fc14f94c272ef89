/* Reading of snapshots. See snapshot.h.
 *
 * Design. A handle holds a few sets of mapped files, one of which is current. A reader counts
 * itself into the current set, checks that it still is, looks up, and counts itself out: two atomic
 * additions, no lock. Whoever finds the page's sequence changed takes up the new files under the
 * mutex into a set that nobody is in, makes that one current, and lets go of the files of sets that
 * nobody is in any more. A reader that counts itself into a set that is being refilled finds that
 * it is not current and goes away without touching it. */
#include "client/snapshot.h"

#include "client/answer.h"
#include "client/snapshot_form.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#define SETS 4        /* one current, the others for readers that are slow to leave */
#define PAGE_TRIES 10 /* against a page that was written meanwhile */
#define WRITING_MS 20 /* a page that is being written for longer has lost its writer */
#define FILE_TRIES 10 /* against files that are replaced while they are opened */
#define RETRY_MS 100  /* files that cannot be used are tried again */
#define PLACE_CHECK_MS                                                                             \
    1000 /* whether the path still leads to this page; what old files are left                     \
          */
#define POPULATE_MAX_BYTES ((size_t)512 << 20)
#define PREFETCH_BYTES 1024 /* of an entry: what a typical one takes */
#define CACHE_LINE 64

const char snapshot_file_magic[8] = "TUNESNAP";
const char snapshot_page_magic[8] = "TUNEPAGE";

/* --- keys ------------------------------------------------------------------------------------- */

struct key_builder {
    char *at, *end; /* at NULL: it did not fit */
};

/* With its NUL, which no text has inside: different texts never run together. The texts are short:
 * a loop costs less than two calls of the library. */
static inline void add_text(struct key_builder *builder, const char *text)
{
    char *at = builder->at;
    while (at != NULL && at < builder->end) {
        if ((*at++ = *text++) == '\0') {
            builder->at = at;
            return;
        }
    }
    builder->at = NULL;
}

static inline void add_number(struct key_builder *builder, int64_t number)
{
    if (builder->at == NULL || builder->end - builder->at < (ptrdiff_t)sizeof number) {
        builder->at = NULL;
        return;
    }
    memcpy(builder->at, &number, sizeof number);
    builder->at += sizeof number;
}

#define KEY_DIMS_MAX 16

/* The dims in the order of their names; false where a name comes twice. */
static bool sort_dims(const struct tune_query *query, const struct tune_dim *sorted[KEY_DIMS_MAX])
{
    for (size_t i = 0; i < query->dim_count; i++) {
        size_t at = i;
        for (; at > 0; at--) {
            const char *before = sorted[at - 1]->name, *name = query->dims[i].name;
            int order = before[0] != name[0] ? (unsigned char)before[0] - (unsigned char)name[0]
                                             : strcmp(before, name);
            if (order == 0)
                return false;
            if (order < 0)
                break;
            sorted[at] = sorted[at - 1];
        }
        sorted[at] = &query->dims[i];
    }
    return true;
}

size_t snapshot_key(const struct tune_query *query, char key[SNAPSHOT_KEY_BYTES])
{
    struct key_builder builder = {key, key + SNAPSHOT_KEY_BYTES};
    const struct tune_dim *sorted[KEY_DIMS_MAX];
    if (query->kernel == NULL || query->session != NULL ||
        (query->arch != NULL && query->gpu != NULL) || query->dim_count > KEY_DIMS_MAX ||
        !sort_dims(query, sorted))
        return 0;
    add_text(&builder, query->kernel);
    add_text(&builder, query->dtype ? query->dtype : "");
    add_text(&builder, query->mode ? query->mode : "cold");
    /* A GPU may be named like an arch. */
    add_text(&builder, query->gpu ? "gpu" : query->arch ? "arch" : "");
    add_text(&builder, query->gpu ? query->gpu : query->arch ? query->arch : "");
    for (size_t i = 0; i < query->dim_count; i++) {
        add_text(&builder, sorted[i]->name);
        add_number(&builder, sorted[i]->value);
    }
    return builder.at == NULL ? 0 : (size_t)(builder.at - key);
}

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
static struct page *map_page(int folder_fd, void *at, struct stat *status, struct tune_error *err)
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

static bool is_name(const char name[SNAPSHOT_NAME_BYTES], const char *kind)
{
    size_t prefix = strlen(kind);
    if (name[0] == '\0')
        return true;
    return memchr(name, '\0', SNAPSHOT_NAME_BYTES) != NULL && strncmp(name, kind, prefix) == 0 &&
           strspn(name + prefix, "0123456789") == strlen(name + prefix);
}

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
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
static int read_page(const struct page *page, struct snapshot_page *content, uint64_t *sequence)
{
    uint64_t deadline_ms = now_ms() + WRITING_MS;
    for (int tries = 0; tries < PAGE_TRIES;) {
        if (try_page(page, content, sequence))
            return 0;
        bool is_writing = *sequence % 2 != 0;
        if (is_writing && now_ms() > deadline_ms)
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
    int folder_fd = snapshot_open_folder(folder, err);
    if (folder_fd < 0)
        return -1;
    struct page *page = map_page(folder_fd, NULL, &status, err);
    close(folder_fd);
    if (page == NULL)
        return -1;
    int result = read_page(page, content, &sequence);
    munmap(page, SNAPSHOT_PAGE_BYTES);
    return result == 0 ? 0
                       : tune_fail(err, TUNE_EBUSY,
                             "the page of published answers in %s is being written", folder);
}

/* --- files ------------------------------------------------------------------------------------ */

struct mapping {
    char name[SNAPSHOT_NAME_BYTES];
    dev_t device; /* of the file; its number is not given to another while it is mapped */
    ino_t inode;
    unsigned references; /* sets that hold it; under the mutex */
    const uint8_t *bytes;
    const struct file_head *head;
    const struct file_slot *slots;
};

static bool has_sound_head(const struct file_head *head, uint64_t file_bytes)
{
    return memcmp(head->magic, snapshot_file_magic, sizeof head->magic) == 0 &&
           head->head_sum == XXH3_64bits(head, offsetof(struct file_head, head_sum)) &&
           head->file_bytes == file_bytes && head->table % sizeof(uint64_t) == 0 &&
           head->table >= sizeof *head && head->table < file_bytes && head->slots > 0 &&
           (head->slots & (head->slots - 1)) == 0 &&
           head->slots == (file_bytes - head->table) / sizeof(struct file_slot) &&
           (file_bytes - head->table) % sizeof(struct file_slot) == 0;
}

/* In the page cache, where the daemon's writing left it, this takes 25 ms/GB and saves lookups a
 * page fault each. A file too large for that is left to the faults. */
static void populate(const void *bytes, size_t count)
{
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14 */
#endif
    if (count <= POPULATE_MAX_BYTES)
        madvise((void *)(uintptr_t)bytes, count, MADV_POPULATE_READ);
}

static void mapping_release(struct mapping *mapping)
{
    if (mapping == NULL || --mapping->references > 0)
        return;
    munmap((void *)(uintptr_t)mapping->bytes, mapping->head->file_bytes);
    free(mapping);
}

static int map_bytes(
    int fd, size_t count, const char *name, const uint8_t **bytes, struct tune_error *err)
{
    if (count < sizeof(struct file_head) + sizeof(struct file_slot))
        return tune_fail(err, TUNE_EDAMAGED, "%s is cut short", name);
    void *map = mmap(NULL, count, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return tune_fail_errno(err, TUNE_EIO, "cannot map %s", name);
    *bytes = map;
    return 0;
}

/* How much of a file is looked at when it is opened. */
enum depth { DEPTH_HEAD, DEPTH_LOOKUPS, DEPTH_WHOLE };

static int check_file(
    const uint8_t *bytes, size_t count, const char *name, enum depth depth, struct tune_error *err)
{
    const struct file_head *head = (const struct file_head *)bytes;
    if (!has_sound_head(head, count))
        return tune_fail(err, TUNE_EDAMAGED, "%s is damaged", name);
    if (head->version != SNAPSHOT_VERSION)
        return tune_fail(err, TUNE_EVERSION, "%s is of version %u, this program reads %d", name,
            head->version, SNAPSHOT_VERSION);
    if (depth >= DEPTH_LOOKUPS)
        populate(bytes, count);
    if (depth == DEPTH_WHOLE &&
        head->content_sum != XXH3_64bits(bytes + sizeof *head, count - sizeof *head))
        return tune_fail(err, TUNE_EDAMAGED, "%s is damaged", name);
    return 0;
}

/* New, with one reference. */
static struct mapping *mapping_create(
    int folder_fd, const char *name, enum depth depth, struct tune_error *err)
{
    struct stat status;
    const uint8_t *bytes = NULL;
    int fd = snapshot_open_file(folder_fd, name, O_RDONLY, &status, err);
    if (fd < 0)
        return NULL;
    size_t count = (size_t)status.st_size;
    int result = map_bytes(fd, count, name, &bytes, err);
    close(fd);
    if (result != 0)
        return NULL;
    struct mapping *mapping = NULL;
    if (check_file(bytes, count, name, depth, err) == 0) {
        mapping = malloc(sizeof *mapping);
        if (mapping == NULL)
            tune_fail(err, TUNE_ENOMEM, "no memory to open %s", name);
    }
    if (mapping == NULL) {
        munmap((void *)(uintptr_t)bytes, count);
        return NULL;
    }
    const struct file_head *head = (const struct file_head *)bytes;
    *mapping = (struct mapping){.device = status.st_dev,
        .inode = status.st_ino,
        .references = 1,
        .bytes = bytes,
        .head = head,
        .slots = (const struct file_slot *)(bytes + head->table)};
    snprintf(mapping->name, sizeof mapping->name, "%s", name);
    return mapping;
}

/* --- lookup in one file ----------------------------------------------------------------------- */

enum found { FOUND, FOUND_ASK, FOUND_DAMAGED, FOUND_NOT };

/* Entries lie scattered in memory: their lines are asked for together. */
static void prefetch_entry(const struct file_entry *entry)
{
    for (size_t at = 0; at < PREFETCH_BYTES; at += CACHE_LINE)
        __builtin_prefetch((const uint8_t *)entry + at);
}

/* The entry at `offset`, or NULL where it does not lie inside the file. */
static const struct file_entry *entry_at(const struct mapping *mapping, uint64_t offset)
{
    const struct file_entry *entry;
    uint64_t end = mapping->head->table;
    if (offset % sizeof(uint64_t) != 0 || offset < sizeof(struct file_head) ||
        offset > end - sizeof *entry)
        return NULL;
    entry = (const struct file_entry *)(mapping->bytes + offset);
    prefetch_entry(entry);
    if (entry->key_length > end - offset - sizeof *entry || entry->value_length > end ||
        entry->value > end - entry->value_length)
        return NULL;
    return entry;
}

static enum found take_value(const struct mapping *mapping, const struct file_entry *entry,
    uint64_t hash, struct tune_answer *answer)
{
    const uint8_t *value = mapping->bytes + entry->value;
    if (entry->sum != XXH3_64bits(value, entry->value_length) + hash)
        return FOUND_DAMAGED;
    if (entry->value_length == 0)
        return FOUND_ASK;
    return answer_from_bytes(value, entry->value_length, answer, NULL) == 0 ? FOUND : FOUND_DAMAGED;
}

static void prefetch_slot(const struct mapping *mapping, uint64_t hash)
{
    if (mapping != NULL)
        __builtin_prefetch(&mapping->slots[hash & (mapping->head->slots - 1)]);
}

static enum found look_up(const struct mapping *mapping, const char *key, size_t key_length,
    uint64_t hash, struct tune_answer *answer)
{
    uint64_t mask = mapping->head->slots - 1;
    for (uint64_t i = 0; i <= mapping->head->probe_max; i++) {
        const struct file_slot *slot = &mapping->slots[(hash + i) & mask];
        if (slot->offset == 0)
            return FOUND_NOT;
        if (slot->hash != hash)
            continue;
        const struct file_entry *entry = entry_at(mapping, slot->offset);
        if (entry == NULL)
            return FOUND_DAMAGED;
        if (entry->key_length == key_length && memcmp(entry + 1, key, key_length) == 0)
            return take_value(mapping, entry, hash, answer);
    }
    return FOUND_NOT;
}

/* --- the handle ------------------------------------------------------------------------------- */

struct set {
    _Alignas(CACHE_LINE) atomic_uint users;
    struct mapping *base, *delta; /* NULL: none */
};

struct snapshot {
    struct set sets[SETS];
    atomic_uint current;             /* index of a set */
    _Atomic uint64_t taken_sequence; /* of the page, when the current set was taken up */
    _Atomic uint64_t retry_at_ms;    /* the files of that sequence could not be used; 0: they are */
    _Atomic uint64_t stuck_sequence; /* odd: the page lost its writer there; 0: none */
    _Atomic uint64_t place_check_at_ms;
    struct page *page; /* never moves: another page is mapped over it */
    pthread_mutex_t mutex;
    /* Under the mutex. */
    dev_t page_device;
    ino_t page_inode;
    char path[];
};

/* --- taking up files; all of this under the mutex --------------------------------------------- */

static void set_clear(struct set *set)
{
    mapping_release(set->base);
    mapping_release(set->delta);
    set->base = set->delta = NULL;
}

/* Lets go of the files of sets that nobody reads. Who counts himself in from here on sees that the
 * set is not current. */
static struct set *sweep_sets(struct snapshot *snapshot)
{
    struct set *idle = NULL;
    for (unsigned i = 0; i < SETS; i++) {
        struct set *set = &snapshot->sets[i];
        if (i == atomic_load(&snapshot->current) || atomic_load(&set->users) != 0)
            continue;
        set_clear(set);
        idle = set;
    }
    return idle;
}

/* The file of this name, if the set that is current has it mapped: with one more reference. */
static struct mapping *reuse(const struct snapshot *snapshot, int folder_fd, const char *name)
{
    const struct set *set = &snapshot->sets[atomic_load(&snapshot->current)];
    struct mapping *const held[] = {set->base, set->delta};
    struct stat status;
    if (fstatat(folder_fd, name, &status, AT_SYMLINK_NOFOLLOW) != 0)
        return NULL;
    for (size_t i = 0; i < 2; i++)
        if (held[i] != NULL && held[i]->device == status.st_dev &&
            held[i]->inode == status.st_ino) {
            held[i]->references++;
            return held[i];
        }
    return NULL;
}

static int take_file(struct snapshot *snapshot, int folder_fd, const char *name, enum depth depth,
    struct mapping **mapping, struct tune_error *err)
{
    if (name[0] == '\0')
        return 0;
    *mapping = reuse(snapshot, folder_fd, name);
    if (*mapping == NULL)
        *mapping = mapping_create(folder_fd, name, depth, err);
    return *mapping == NULL ? -1 : 0;
}

static int fill_set(struct snapshot *snapshot, struct set *set, const struct snapshot_page *content,
    struct tune_error *err)
{
    int folder_fd = snapshot_open_folder(snapshot->path, err);
    if (folder_fd < 0)
        return -1;
    int status =
        take_file(snapshot, folder_fd, content->base, DEPTH_LOOKUPS, &set->base, err) ||
                take_file(snapshot, folder_fd, content->delta, DEPTH_WHOLE, &set->delta, err)
            ? -1
            : 0;
    close(folder_fd);
    if (status != 0)
        set_clear(set);
    return status;
}

static void make_current(
    struct snapshot *snapshot, const struct set *set, uint64_t sequence, bool is_failing)
{
    atomic_store(&snapshot->current, (unsigned)(set - snapshot->sets));
    atomic_store(&snapshot->retry_at_ms, is_failing ? now_ms() + RETRY_MS : 0);
    atomic_store(&snapshot->taken_sequence, sequence);
    sweep_sets(snapshot);
}

/* Readers leave soon; to sleep lets them do so even where they have a lower priority. */
static struct set *wait_for_set(struct snapshot *snapshot)
{
    struct set *set;
    while ((set = sweep_sets(snapshot)) == NULL)
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    return set;
}

/* Takes up what the page names. What cannot be used leaves an empty set: a miss, never the answers
 * of yesterday. A page whose writer was killed changes nothing. */
static int take_up(struct snapshot *snapshot, struct tune_error *err)
{
    struct snapshot_page content;
    uint64_t sequence;
    struct set *set = wait_for_set(snapshot);
    for (int i = 0;; i++) {
        struct tune_error why = {0};
        bool is_read = read_page(snapshot->page, &content, &sequence) == 0;
        if (!is_read && sequence % 2 != 0) {
            atomic_store(&snapshot->stuck_sequence, sequence);
            return 0;
        }
        if (!is_read)
            tune_fail(&why, TUNE_EDAMAGED, "the page of published answers is damaged");
        bool is_failing = !is_read || fill_set(snapshot, set, &content, &why) != 0;
        /* Files vanish when newer ones are published. */
        if (is_failing && i < FILE_TRIES && snapshot_sequence(snapshot) != sequence)
            continue;
        make_current(snapshot, set, sequence, is_failing);
        return is_failing ? tune_fail(err, why.code, "%s", why.text) : 0;
    }
}

/* Follows the path to another page, when the folder was made anew or a link now leads elsewhere. */
static void check_place(struct snapshot *snapshot)
{
    struct stat status;
    int folder_fd = snapshot_open_folder(snapshot->path, NULL);
    if (folder_fd < 0)
        return;
    bool is_other =
        fstatat(folder_fd, SNAPSHOT_PAGE_NAME, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
        (status.st_dev != snapshot->page_device || status.st_ino != snapshot->page_inode);
    if (is_other && map_page(folder_fd, snapshot->page, &status, NULL) != NULL) {
        snapshot->page_device = status.st_dev;
        snapshot->page_inode = status.st_ino;
        atomic_store(&snapshot->retry_at_ms, 1);
    }
    close(folder_fd);
}

/* Also while the page is being written, if what it said before was taken up. */
static bool is_current(const struct snapshot *snapshot)
{
    uint64_t sequence = snapshot_sequence(snapshot);
    bool is_taken = (sequence & ~(uint64_t)1) == atomic_load(&snapshot->taken_sequence);
    return (is_taken || sequence == atomic_load(&snapshot->stuck_sequence)) &&
           atomic_load(&snapshot->retry_at_ms) == 0;
}

static void catch_up(struct snapshot *snapshot, uint64_t now)
{
    pthread_mutex_lock(&snapshot->mutex);
    if (now >= atomic_load(&snapshot->place_check_at_ms)) {
        check_place(snapshot);
        sweep_sets(snapshot);
        atomic_store(&snapshot->place_check_at_ms, now_ms() + PLACE_CHECK_MS);
    }
    bool is_waiting = snapshot_sequence(snapshot) == atomic_load(&snapshot->taken_sequence) &&
                      now < atomic_load(&snapshot->retry_at_ms);
    if (!is_current(snapshot) && !is_waiting)
        take_up(snapshot, NULL);
    pthread_mutex_unlock(&snapshot->mutex);
}

/* --- the calls -------------------------------------------------------------------------------- */

uint64_t snapshot_sequence(const struct snapshot *snapshot)
{
    return atomic_load_explicit(&snapshot->page->sequence, memory_order_acquire);
}

static struct set *enter(struct snapshot *snapshot)
{
    for (;;) {
        unsigned index = atomic_load(&snapshot->current);
        struct set *set = &snapshot->sets[index];
        atomic_fetch_add(&set->users, 1);
        if (atomic_load(&snapshot->current) == index)
            return set;
        atomic_fetch_sub(&set->users, 1);
    }
}

static void leave(struct set *set)
{
    atomic_fetch_sub(&set->users, 1);
}

int snapshot_get(
    struct snapshot *snapshot, const char *key, size_t key_length, struct tune_answer *answer)
{
    uint64_t now = now_ms();
    if (!is_current(snapshot) || now >= atomic_load(&snapshot->place_check_at_ms))
        catch_up(snapshot, now);
    uint64_t hash = XXH3_64bits(key, key_length);
    struct set *set = enter(snapshot);
    enum found found = FOUND_NOT;
    prefetch_slot(set->base, hash);
    if (set->delta != NULL)
        found = look_up(set->delta, key, key_length, hash, answer);
    if (found == FOUND_NOT && set->base != NULL)
        found = look_up(set->base, key, key_length, hash, answer);
    leave(set);
    return found == FOUND ? 0 : 1;
}

int snapshot_open(const char *folder, struct snapshot **out, struct tune_error *err)
{
    struct stat status;
    int folder_fd = snapshot_open_folder(folder, err);
    if (folder_fd < 0)
        return -1;
    struct page *page = map_page(folder_fd, NULL, &status, err);
    close(folder_fd);
    if (page == NULL)
        return -1;
    size_t bytes = sizeof(struct snapshot) + strlen(folder) + 1;
    struct snapshot *snapshot =
        aligned_alloc(CACHE_LINE, (bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
    if (snapshot == NULL) {
        munmap(page, SNAPSHOT_PAGE_BYTES);
        return tune_fail(err, TUNE_ENOMEM, "no memory to open %s", folder);
    }
    memset(snapshot, 0, bytes);
    snapshot->page = page;
    snapshot->page_device = status.st_dev;
    snapshot->page_inode = status.st_ino;
    snapshot->taken_sequence = 1; /* none: sequences are even */
    snapshot->place_check_at_ms = now_ms() + PLACE_CHECK_MS;
    strcpy(snapshot->path, folder);
    pthread_mutex_init(&snapshot->mutex, NULL);
    struct tune_error why = {0};
    if (take_up(snapshot, &why) != 0 && why.code == TUNE_EPERM) {
        snapshot_close(snapshot);
        return tune_fail(err, why.code, "%s", why.text);
    }
    *out = snapshot;
    return 0;
}

void snapshot_close(struct snapshot *snapshot)
{
    if (snapshot == NULL)
        return;
    for (unsigned i = 0; i < SETS; i++)
        set_clear(&snapshot->sets[i]);
    munmap(snapshot->page, SNAPSHOT_PAGE_BYTES);
    pthread_mutex_destroy(&snapshot->mutex);
    free(snapshot);
}

/* --- walking ---------------------------------------------------------------------------------- */

static int walk_slots(const struct mapping *mapping,
    int (*on_entry)(
        const char *key, size_t key_length, const struct tune_answer *answer, void *context),
    void *context, struct tune_error *err)
{
    struct tune_answer answer;
    for (uint64_t i = 0; i < mapping->head->slots; i++) {
        const struct file_slot *slot = &mapping->slots[i];
        if (slot->offset == 0)
            continue;
        const struct file_entry *entry = entry_at(mapping, slot->offset);
        enum found found =
            entry == NULL ? FOUND_DAMAGED : take_value(mapping, entry, slot->hash, &answer);
        if (found == FOUND_DAMAGED)
            return tune_fail(err, TUNE_EDAMAGED, "%s is damaged", mapping->name);
        if (on_entry((const char *)(entry + 1), entry->key_length,
                found == FOUND_ASK ? NULL : &answer, context) != 0)
            break;
    }
    return 0;
}

int snapshot_walk(const char *folder, const char *name,
    int (*on_entry)(
        const char *key, size_t key_length, const struct tune_answer *answer, void *context),
    void *context, uint64_t *entries, struct tune_error *err)
{
    int folder_fd = snapshot_open_folder(folder, err);
    if (folder_fd < 0)
        return -1;
    struct mapping *mapping =
        mapping_create(folder_fd, name, on_entry == NULL ? DEPTH_HEAD : DEPTH_WHOLE, err);
    close(folder_fd);
    if (mapping == NULL)
        return -1;
    if (entries != NULL)
        *entries = mapping->head->entries;
    int status = on_entry == NULL ? 0 : walk_slots(mapping, on_entry, context, err);
    mapping_release(mapping);
    return status;
}
