/* Reading of snapshots. See snapshot.h.
 *
 * Design. A handle holds a few sets of mapped files, one of which is current. A reader counts
 * itself into the current set, checks that it still is, looks up, and counts itself out: two atomic
 * additions, no lock. Whoever finds the page's sequence changed takes up the new files under the
 * mutex into a set that nobody is in, makes that one current, and lets go of the files of sets that
 * nobody is in any more. A reader that counts itself into a set that is being refilled finds that
 * it is not current and goes away without touching it. */
#include "client/snapshot.h"

#include "client/snapshot_form.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#define SETS 4        /* one current, the others for readers that are slow to leave */
#define FILE_TRIES 10 /* against files that are replaced while they are opened */
#define RETRY_MS 100  /* files that cannot be used are tried again */
/* Whether the path still leads to this page, and what old files are left, is looked at so often. */
#define PLACE_CHECK_MS 1000

struct set {
    _Alignas(CACHE_LINE) atomic_uint users;
    struct snapshot_file *base, *delta; /* NULL: none */
};

struct snapshot {
    struct set sets[SETS];
    atomic_uint current;             /* index of a set */
    _Atomic uint64_t taken_sequence; /* of the page, when the current set was taken up */
    _Atomic uint64_t retry_at_ms;    /* the files of that sequence could not be used; 0: they are */
    _Atomic uint64_t stuck_sequence; /* odd: the page lost its writer there; 0: none */
    _Atomic uint64_t place_check_at_ms;
    atomic_bool has_base; /* the current set */
    struct page *page;    /* never moves: another page is mapped over it */
    pthread_mutex_t mutex;
    /* Under the mutex. */
    dev_t page_device;
    ino_t page_inode;
    char path[];
};

/* --- taking up files; all of this under the mutex --------------------------------------------- */

static void set_clear(struct set *set)
{
    snapshot_file_release(set->base);
    snapshot_file_release(set->delta);
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
static struct snapshot_file *reuse(const struct snapshot *snapshot, int folder_fd, const char *name)
{
    const struct set *set = &snapshot->sets[atomic_load(&snapshot->current)];
    struct snapshot_file *const held[] = {set->base, set->delta};
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
    struct snapshot_file **mapping, struct tune_error *err)
{
    if (name[0] == '\0')
        return 0;
    *mapping = reuse(snapshot, folder_fd, name);
    if (*mapping == NULL)
        *mapping = snapshot_file_open(folder_fd, name, depth, err);
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
    atomic_store(&snapshot->has_base, set->base != NULL);
    atomic_store(&snapshot->retry_at_ms, is_failing ? snapshot_now_ms() + RETRY_MS : 0);
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
        bool is_read = snapshot_take_page(snapshot->page, &content, &sequence) == 0;
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

/* In place of a page that is no longer the daemon's: it names nothing, and is looked at again. */
static void forget_page(struct snapshot *snapshot)
{
    mmap(snapshot->page, SNAPSHOT_PAGE_BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
        -1, 0);
    snapshot->page_inode = 0; /* its number is free for another file now */
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
    if (is_other) {
        if (snapshot_map_page(folder_fd, snapshot->page, &status, NULL) != NULL) {
            snapshot->page_device = status.st_dev;
            snapshot->page_inode = status.st_ino;
        } else {
            forget_page(snapshot);
        }
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
        atomic_store(&snapshot->place_check_at_ms, snapshot_now_ms() + PLACE_CHECK_MS);
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

bool snapshot_keep_up(struct snapshot *snapshot)
{
    uint64_t now = snapshot_now_ms();
    if (now >= atomic_load_explicit(&snapshot->place_check_at_ms, memory_order_relaxed))
        catch_up(snapshot, now);
    return atomic_load_explicit(&snapshot->has_base, memory_order_relaxed);
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
    uint64_t now = snapshot_now_ms();
    if (!is_current(snapshot) || now >= atomic_load(&snapshot->place_check_at_ms))
        catch_up(snapshot, now);
    uint64_t hash = XXH3_64bits(key, key_length);
    struct set *set = enter(snapshot);
    enum found found = FOUND_NOT;
    snapshot_file_prefetch(set->base, hash);
    if (set->delta != NULL)
        found = snapshot_file_find(set->delta, key, key_length, hash, answer);
    if (found == FOUND_NOT && set->base != NULL)
        found = snapshot_file_find(set->base, key, key_length, hash, answer);
    leave(set);
    return found == FOUND ? 0 : 1;
}

int snapshot_open(const char *folder, struct snapshot **out, struct tune_error *err)
{
    struct stat status;
    struct page *page = snapshot_open_page(folder, &status, err);
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
    snapshot->place_check_at_ms = snapshot_now_ms() + PLACE_CHECK_MS;
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
