/* Writing of snapshots: files, and the page that names them. See snapshot.h.
 *
 * A file's entries are written as they come, its table and head at the end; memory holds the table
 * only. Nothing is written through a mapping but the page, whose room is reserved first: a full
 * disk is an error here, never a signal. */
#include "client/snapshot.h"

#include "client/snapshot_form.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#define BUFFER_BYTES ((size_t)1 << 20)
#define FLUSH_BYTES ((uint64_t)8 << 20) /* handed to the disk early: the last sync is short */
#define SLOTS_MIN 8

/* --- folder ----------------------------------------------------------------------------------- */

int snapshot_make_folder(const char *folder, bool allows_group, struct tune_error *err)
{
    struct stat status;
    mode_t mode = allows_group ? 0750 : 0700;
    if (mkdir(folder, mode) != 0 && errno != EEXIST)
        return tune_fail_errno(err, TUNE_EIO, "cannot make the folder %s", folder);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return tune_fail_errno(
            err, TUNE_EPERM, "%s cannot hold published answers: remove it", folder);
    int result = 0;
    if (fstat(fd, &status) != 0 || status.st_uid != geteuid())
        result = tune_fail(err, TUNE_EPERM, "%s belongs to another user: remove it", folder);
    else if ((status.st_mode & 07777) != mode && fchmod(fd, mode) != 0)
        result = tune_fail_errno(err, TUNE_EPERM, "cannot change the mode of %s", folder);
    close(fd);
    return result;
}

/* What the folder's mode allows the group, its files do. */
static mode_t file_mode(int folder_fd)
{
    struct stat status;
    bool allows_group = fstat(folder_fd, &status) == 0 && (status.st_mode & S_IRGRP) != 0;
    return allows_group ? 0640 : 0600;
}

/* --- a file ----------------------------------------------------------------------------------- */

struct snapshot_writer {
    int folder_fd, fd;
    char temporary[48];
    uint8_t *buffer;
    size_t buffered;
    uint64_t offset;  /* of the next byte */
    uint64_t flushed; /* bytes handed to the disk */
    XXH3_state_t *sum;
    struct file_slot *slots; /* a table as in the file, grown as needed */
    uint64_t slot_count, entries;
    /* the value before, which the next key may share */
    struct tune_answer last;
    uint64_t last_value;
};

static int fail_write(const struct snapshot_writer *writer, struct tune_error *err)
{
    return tune_fail_errno(
        err, errno == ENOSPC ? TUNE_EFULL : TUNE_EIO, "cannot write %s", writer->temporary);
}

static int write_out(struct snapshot_writer *writer, struct tune_error *err)
{
    for (size_t done = 0; done < writer->buffered;) {
        ssize_t count = write(writer->fd, writer->buffer + done, writer->buffered - done);
        if (count < 0 && errno != EINTR)
            return fail_write(writer, err);
        done += count > 0 ? (size_t)count : 0;
    }
    writer->buffered = 0;
    if (writer->offset - writer->flushed >= FLUSH_BYTES) {
        sync_file_range(writer->fd, (off_t)writer->flushed,
            (off_t)(writer->offset - writer->flushed), SYNC_FILE_RANGE_WRITE);
        writer->flushed = writer->offset;
    }
    return 0;
}

static int put_bytes(
    struct snapshot_writer *writer, const void *bytes, size_t count, struct tune_error *err)
{
    XXH3_64bits_update(writer->sum, bytes, count);
    writer->offset += count;
    for (const uint8_t *from = bytes; count > 0;) {
        size_t room = BUFFER_BYTES - writer->buffered, step = count < room ? count : room;
        memcpy(writer->buffer + writer->buffered, from, step);
        writer->buffered += step;
        from += step;
        count -= step;
        if (writer->buffered == BUFFER_BYTES && write_out(writer, err))
            return -1;
    }
    return 0;
}

static int put_padding(struct snapshot_writer *writer, struct tune_error *err)
{
    static const uint8_t zeros[8];
    return put_bytes(writer, zeros, (8 - writer->offset % 8) % 8, err);
}

/* --- its table -------------------------------------------------------------------------------- */

static void put_slot(struct file_slot *slots, uint64_t count, struct file_slot slot)
{
    uint64_t at = slot.hash & (count - 1);
    while (slots[at].offset != 0)
        at = (at + 1) & (count - 1);
    slots[at] = slot;
}

static int make_slots(struct snapshot_writer *writer, uint64_t count, struct tune_error *err)
{
    struct file_slot *slots = calloc(count, sizeof *slots);
    if (slots == NULL)
        return tune_fail(
            err, TUNE_ENOMEM, "no memory to publish %llu answers", (unsigned long long)count / 2);
    for (uint64_t i = 0; i < writer->slot_count; i++)
        if (writer->slots[i].offset != 0)
            put_slot(slots, count, writer->slots[i]);
    free(writer->slots);
    writer->slots = slots;
    writer->slot_count = count;
    return 0;
}

static uint64_t longest_probe(const struct snapshot_writer *writer)
{
    uint64_t longest = 0, mask = writer->slot_count - 1;
    for (uint64_t i = 0; i < writer->slot_count; i++) {
        uint64_t probe = (i - (writer->slots[i].hash & mask)) & mask;
        if (writer->slots[i].offset != 0 && probe > longest)
            longest = probe;
    }
    return longest;
}

/* --- the writer ------------------------------------------------------------------------------- */

void snapshot_writer_abandon(struct snapshot_writer *writer)
{
    if (writer == NULL)
        return;
    if (writer->fd >= 0) {
        close(writer->fd);
        unlinkat(writer->folder_fd, writer->temporary, 0);
    }
    if (writer->folder_fd >= 0)
        close(writer->folder_fd);
    XXH3_freeState(writer->sum);
    free(writer->buffer);
    free(writer->slots);
    free(writer);
}

/* A name that a writer of this process has given to no other file. */
static int create_file(struct snapshot_writer *writer, struct tune_error *err)
{
    static atomic_uint last;
    mode_t mode = file_mode(writer->folder_fd);
    snprintf(writer->temporary, sizeof writer->temporary, "new-%d-%u", (int)getpid(),
        atomic_fetch_add(&last, 1));
    unlinkat(writer->folder_fd, writer->temporary, 0); /* of a process that had this number */
    writer->fd = openat(writer->folder_fd, writer->temporary,
        O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    return writer->fd < 0 || fchmod(writer->fd, mode) != 0 ? fail_write(writer, err) : 0;
}

int snapshot_writer_create(const char *folder, size_t entries_expected,
    struct snapshot_writer **out, struct tune_error *err)
{
    struct snapshot_writer *writer = calloc(1, sizeof *writer);
    if (writer == NULL)
        return tune_fail(err, TUNE_ENOMEM, "no memory to publish answers");
    writer->fd = -1;
    writer->folder_fd = snapshot_open_folder(folder, err);
    writer->sum = XXH3_createState();
    writer->buffer = malloc(BUFFER_BYTES);
    uint64_t slots = SLOTS_MIN;
    while (slots < 2 * entries_expected)
        slots *= 2;
    if (writer->sum == NULL || writer->buffer == NULL)
        tune_fail(err, TUNE_ENOMEM, "no memory to publish answers");
    else if (writer->folder_fd >= 0 && make_slots(writer, slots, err) == 0 &&
             create_file(writer, err) == 0) {
        struct file_head room = {0}; /* written last */
        XXH3_64bits_reset(writer->sum);
        put_bytes(writer, &room, sizeof room, err);
        XXH3_64bits_reset(writer->sum);
        *out = writer;
        return 0;
    }
    snapshot_writer_abandon(writer);
    return -1;
}

int snapshot_writer_add(struct snapshot_writer *writer, const char *key, size_t key_length,
    const struct tune_answer *answer, struct tune_error *err)
{
    if (2 * (writer->entries + 1) > writer->slot_count &&
        make_slots(writer, 2 * writer->slot_count, err))
        return -1;
    uint64_t hash = XXH3_64bits(key, key_length), at = writer->offset;
    struct file_entry entry = {.key_length = (uint32_t)key_length};
    bool is_new =
        answer != NULL && (writer->last.length != answer->length ||
                              memcmp(writer->last.words, answer->words, answer->length) != 0);
    uint64_t key_end = at + sizeof entry + (key_length + 7) / 8 * 8;
    if (is_new) {
        writer->last.length = answer->length;
        memcpy(writer->last.words, answer->words, answer->length);
        writer->last_value = key_end;
    }
    if (answer != NULL) {
        entry.value = writer->last_value;
        entry.value_length = answer->length;
    }
    entry.sum = XXH3_64bits(writer->last.words, entry.value_length) + hash;
    if (put_bytes(writer, &entry, sizeof entry, err) || put_bytes(writer, key, key_length, err) ||
        put_padding(writer, err) ||
        (is_new &&
            (put_bytes(writer, answer->words, answer->length, err) || put_padding(writer, err))))
        return -1;
    put_slot(writer->slots, writer->slot_count, (struct file_slot){hash, at});
    writer->entries++;
    return 0;
}

/* Table and head; afterwards the file is whole and on the disk. */
static int complete(struct snapshot_writer *writer, struct tune_error *err)
{
    struct file_head head = {.version = SNAPSHOT_VERSION,
        .probe_max = (uint32_t)longest_probe(writer),
        .entries = writer->entries,
        .slots = writer->slot_count,
        .table = writer->offset};
    memcpy(head.magic, snapshot_file_magic, sizeof head.magic);
    size_t table_bytes = writer->slot_count * sizeof *writer->slots;
    if (put_bytes(writer, writer->slots, table_bytes, err) || write_out(writer, err))
        return -1;
    head.file_bytes = writer->offset;
    head.content_sum = XXH3_64bits_digest(writer->sum);
    head.head_sum = XXH3_64bits(&head, offsetof(struct file_head, head_sum));
    if (pwrite(writer->fd, &head, sizeof head, 0) != (ssize_t)sizeof head ||
        fdatasync(writer->fd) != 0)
        return fail_write(writer, err);
    return 0;
}

int snapshot_writer_finish(struct snapshot_writer *writer, const char *kind, uint64_t number,
    char name[32], struct tune_error *err)
{
    int status = complete(writer, err);
    snprintf(name, SNAPSHOT_NAME_BYTES, "%s-%llu", kind, (unsigned long long)number);
    if (status == 0 && renameat(writer->folder_fd, writer->temporary, writer->folder_fd, name) != 0)
        status = fail_write(writer, err);
    if (status == 0) { /* nothing is left to take back */
        close(writer->fd);
        writer->fd = -1;
    }
    snapshot_writer_abandon(writer);
    return status;
}

/* --- the page --------------------------------------------------------------------------------- */

/* Sequences of different pages differ, so that a reader that is led to another one sees news. */
static uint64_t first_sequence(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return ((uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec) & ~(uint64_t)1;
}

/* Written beside and renamed, so that a page is whole whenever it is there. */
static int make_page(int folder_fd, struct tune_error *err)
{
    static const char name[] = "new-page";
    uint8_t bytes[SNAPSHOT_PAGE_BYTES] = {0};
    struct page *page = (struct page *)bytes;
    memcpy(page->magic, snapshot_page_magic, sizeof page->magic);
    page->version = SNAPSHOT_VERSION;
    page->sequence = first_sequence() + 1; /* nothing is published yet */
    mode_t mode = file_mode(folder_fd);
    unlinkat(folder_fd, name, 0);
    int fd = openat(folder_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    bool is_made = fd >= 0 && fchmod(fd, mode) == 0 &&
                   write(fd, bytes, sizeof bytes) == (ssize_t)sizeof bytes && fsync(fd) == 0 &&
                   renameat(folder_fd, name, folder_fd, SNAPSHOT_PAGE_NAME) == 0;
    int status = is_made ? 0
                         : tune_fail_errno(err, errno == ENOSPC ? TUNE_EFULL : TUNE_EIO,
                               "cannot make the page of published answers");
    if (fd >= 0)
        close(fd);
    return status;
}

static bool is_sound_page(const struct page *page)
{
    return memcmp(page->magic, snapshot_page_magic, sizeof page->magic) == 0 &&
           page->version == SNAPSHOT_VERSION;
}

/* NULL where there is none that can go on being used. */
static struct page *map_page(int folder_fd)
{
    struct stat status;
    int fd = snapshot_open_file(folder_fd, SNAPSHOT_PAGE_NAME, O_RDWR, &status, NULL);
    if (fd < 0)
        return NULL;
    /* A page with holes would be a signal when the disk is full. */
    struct page *page = MAP_FAILED;
    if (status.st_size == SNAPSHOT_PAGE_BYTES && status.st_uid == geteuid() &&
        posix_fallocate(fd, 0, SNAPSHOT_PAGE_BYTES) == 0 && fchmod(fd, file_mode(folder_fd)) == 0)
        page = mmap(NULL, SNAPSHOT_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (page == MAP_FAILED)
        return NULL;
    if (is_sound_page(page))
        return page;
    munmap(page, SNAPSHOT_PAGE_BYTES);
    return NULL;
}

/* Odd, the content, even. A writer that was killed has left it odd: it stays that. */
static void write_page(struct page *page, const struct snapshot_page *content)
{
    uint64_t words[PAGE_WORDS];
    uint64_t writing = atomic_load(&page->sequence) | 1;
    memcpy(words, content, sizeof words);
    atomic_store(&page->sequence, writing);
    for (size_t i = 0; i < PAGE_WORDS; i++)
        atomic_store_explicit(&page->words[i], words[i], memory_order_release);
    atomic_store_explicit(
        &page->sum, snapshot_page_sum(content, writing + 1), memory_order_release);
    atomic_store_explicit(&page->sequence, writing + 1, memory_order_release);
}

/* --- publishing ------------------------------------------------------------------------------- */

static bool is_under_construction(const char *name)
{
    int pid;
    return sscanf(name, "new-%d-", &pid) == 1 && pid == (int)getpid();
}

static void remove_others(int folder_fd, const struct snapshot_page *page)
{
    int fd = openat(folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (dir == NULL) {
        if (fd >= 0)
            close(fd);
        return;
    }
    const struct dirent *entry;
    while ((entry = readdir(dir)) != NULL) {
        const char *name = entry->d_name;
        bool is_file = strncmp(name, "base-", 5) == 0 || strncmp(name, "delta-", 6) == 0;
        bool is_named = strcmp(name, page->base) == 0 || strcmp(name, page->delta) == 0;
        bool is_left = strncmp(name, "new-", 4) == 0 && !is_under_construction(name);
        if ((is_file && !is_named) || is_left)
            unlinkat(folder_fd, name, 0);
    }
    closedir(dir);
}

static int64_t now_unix_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int snapshot_publish(const char *folder, const struct snapshot_page *given, struct tune_error *err)
{
    int folder_fd = snapshot_open_folder(folder, err);
    if (folder_fd < 0)
        return -1;
    struct page *page = map_page(folder_fd);
    if (page == NULL && make_page(folder_fd, err) == 0) {
        page = map_page(folder_fd);
        if (page == NULL)
            tune_fail(err, TUNE_EIO, "cannot map the page of published answers");
    }
    if (page != NULL) {
        struct snapshot_page content = *given;
        content.published_unix_ms = now_unix_ms();
        write_page(page, &content);
        munmap(page, SNAPSHOT_PAGE_BYTES);
        remove_others(folder_fd, &content);
    }
    close(folder_fd);
    return page == NULL ? -1 : 0;
}
