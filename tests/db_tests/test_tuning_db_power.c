/* The power goes. All writes and syncs of LMDB are recorded; then images of the disk are made as it
 * might look after a cut at a random moment: what was synced, and of the later writes any subset in
 * any order, one of them cut at a sector. Each image must open, with every acknowledged round in
 * it. */
#include "fixture.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define ROUNDS 150
#define IMAGES 300
#define JOBS 20
#define SECTOR_BYTES 512

enum event_kind { EVENT_WRITE, EVENT_DURABLE_WRITE, EVENT_SYNC, EVENT_ACKNOWLEDGED };

struct event {
    enum event_kind kind;
    off_t offset;
    size_t count;
    char *bytes;
    unsigned round;
};

static struct event *events;
static size_t event_count;
static bool is_recording;

static struct event *add_event(enum event_kind kind)
{
    events = realloc(events, (event_count + 1) * sizeof *events);
    events[event_count] = (struct event){.kind = kind};
    return &events[event_count++];
}

static void record_write(int fd, const void *bytes, size_t count, off_t offset)
{
    if (!is_recording)
        return;
    bool is_durable = fcntl(fd, F_GETFL) & O_DSYNC;
    struct event *event = add_event(is_durable ? EVENT_DURABLE_WRITE : EVENT_WRITE);
    event->offset = offset;
    event->count = count;
    event->bytes = malloc(count);
    memcpy(event->bytes, bytes, count);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset)
{
    record_write(fd, bytes, count, offset);
    return syscall(SYS_pwrite64, fd, bytes, count, offset);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off_t offset)
{
    return pwrite(fd, bytes, count, offset);
}

static void record_parts(int fd, const struct iovec *parts, int count, off_t offset)
{
    for (int i = 0; i < count; i++) {
        record_write(fd, parts[i].iov_base, parts[i].iov_len, offset);
        offset += (off_t)parts[i].iov_len;
    }
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset)
{
    record_parts(fd, parts, count, offset);
    return syscall(SYS_pwritev, fd, parts, count, offset, 0);
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    if (is_recording)
        record_parts(fd, parts, count, lseek(fd, 0, SEEK_CUR));
    return syscall(SYS_writev, fd, parts, count);
}

int fdatasync(int fd)
{
    if (is_recording)
        add_event(EVENT_SYNC);
    return (int)syscall(SYS_fdatasync, fd);
}

static const struct tuning_db_options options = {.map_start_bytes = 1 << 20};

/* Round n makes every job say n, in values of a random size. */
static void put_round(struct tuning_db *db, unsigned round, uint64_t *seed)
{
    static char text[9000];
    struct tuning_db_batch *batch = tuning_db_batch_create();
    memset(text, '.', sizeof text);
    memcpy(text, &round, sizeof round);
    for (unsigned i = 0; i < JOBS; i++) {
        char name[32];
        snprintf(name, sizeof name, "job/%u", i);
        tuning_db_batch_job(batch, name, text, 4 + next_random(seed) % (i == 0 ? 9000 : 300));
    }
    commit_now(db, batch);
    add_event(EVENT_ACKNOWLEDGED)->round = round;
}

/* --- images ----------------------------------------------------------------------------------- */

struct image {
    char *bytes;
    size_t count;
};

static void apply(struct image *image, const struct event *event, size_t count)
{
    size_t end = (size_t)event->offset + count;
    if (end > image->count) {
        image->bytes = realloc(image->bytes, end);
        memset(image->bytes + image->count, 0, end - image->count);
        image->count = end;
    }
    memcpy(image->bytes + event->offset, event->bytes, count);
}

/* The disk after a cut before event `end`; the result is the last acknowledged round. */
static unsigned make_image(struct image *image, size_t end, uint64_t *seed)
{
    size_t synced = 0, late_count = 0, cut_one;
    unsigned round = 0;
    for (size_t i = 0; i < end; i++) {
        if (events[i].kind == EVENT_SYNC)
            synced = i;
        if (events[i].kind == EVENT_ACKNOWLEDGED)
            round = events[i].round;
    }
    const struct event **late = calloc(end - synced + 1, sizeof *late);
    for (size_t i = 0; i < end; i++) {
        if (events[i].bytes == NULL)
            continue;
        if (i < synced || events[i].kind == EVENT_DURABLE_WRITE)
            apply(image, &events[i], events[i].count);
        else if (next_random(seed) % 2)
            late[late_count++] = &events[i];
    }
    cut_one = next_random(seed) % (late_count + 1);
    for (size_t i = late_count; i > 0; i--) { /* in random order */
        size_t j = next_random(seed) % i;
        const struct event *event = late[j];
        late[j] = late[i - 1];
        size_t sectors = event->count / SECTOR_BYTES;
        apply(image, event,
            i == cut_one && sectors > 0 ? next_random(seed) % sectors * SECTOR_BYTES
                                        : event->count);
    }
    free(late);
    return round;
}

struct seen {
    unsigned round, count;
};

static int see_job(const char *name, const void *bytes, size_t count, void *context)
{
    struct seen *seen = context;
    unsigned round;
    (void)name, (void)count;
    memcpy(&round, bytes, sizeof round);
    if (seen->count++ > 0)
        assert_int_equal(round, seen->round);
    seen->round = round;
    return 0;
}

static void check_image(const struct image *image, unsigned acknowledged)
{
    struct seen seen = {0, 0};
    size_t damaged;
    write_file(path_in("db/data.mdb"), image->bytes, image->count);
    struct tuning_db *db = open_db(&options);
    assert_int_equal(tuning_db_check(db, &damaged, NULL), 0);
    assert_int_equal(damaged, 0);
    assert_int_equal(tuning_db_walk_jobs(db, "job/", see_job, &seen, NULL), 0);
    if (seen.round != acknowledged && seen.round != acknowledged + 1)
        fail_msg("round %u was acknowledged, %u is there", acknowledged, seen.round);
    assert_int_equal(seen.count, seen.round > 0 ? JOBS : 0);
    tuning_db_close(db);
}

static void a_power_cut_loses_nothing_that_was_acknowledged(void **state)
{
    (void)state;
    uint64_t seed = 3;
    fixture_make();
    struct tuning_db *db = open_db(&options);
    size_t start_count;
    char *start = read_file(path_in("db/data.mdb"), &start_count);
    is_recording = true;
    for (unsigned round = 1; round <= ROUNDS; round++)
        put_round(db, round, &seed);
    is_recording = false;
    tuning_db_close(db);
    assert_true(event_count > 4 * ROUNDS); /* data, sync, header, acknowledgement */
    for (int i = 0; i < IMAGES; i++) {
        struct image image = {malloc(start_count), start_count};
        memcpy(image.bytes, start, start_count);
        unsigned acknowledged = make_image(&image, next_random(&seed) % (event_count + 1), &seed);
        check_image(&image, acknowledged);
        free(image.bytes);
    }
    free(start);
    for (size_t i = 0; i < event_count; i++)
        free(events[i].bytes);
    free(events);
    fixture_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_power_cut_loses_nothing_that_was_acknowledged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
