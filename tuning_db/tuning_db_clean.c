/* The mark of a clean end, and the check that goes on beside the work where it was true. See
 * tuning_db.h.
 *
 * Design: the checking thread reads the file by itself, so it takes none of our locks and LMDB's
 * map may move meanwhile. What keeps its pages from being used anew is a read transaction that was
 * begun before any write and does nothing; the thread ends it when it has seen all, since while it
 * is open no page that a commit frees is used anew and the file grows with each. Whoever closes the
 * environment ends the thread first. */
#include "tuning_db_internal.h"

#include "pages.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define CLEAN_MAGIC UINT64_C(0x316e61656c634454) /* "TDclean1" */
#define CHECK_NICE 10

/* What the file was at the end. */
struct clean {
    uint64_t magic, device, inode, bytes;
    int64_t modified_s, modified_ns, changed_s, changed_ns;
    uint64_t txn;
};

static struct clean describe(const struct stat *status, uint64_t txn)
{
    return (struct clean){
        .magic = CLEAN_MAGIC,
        .device = status->st_dev,
        .inode = status->st_ino,
        .bytes = (uint64_t)status->st_size,
        .modified_s = status->st_mtim.tv_sec,
        .modified_ns = status->st_mtim.tv_nsec,
        .changed_s = status->st_ctim.tv_sec,
        .changed_ns = status->st_ctim.tv_nsec,
        .txn = txn,
    };
}

static void mark_path(const struct tuning_db *db, const char *name, char path[4096])
{
    snprintf(path, 4096, "%s/%s", db->dir, name);
}

bool db_is_clean(const struct tuning_db *db, int data_fd, const char *data_path)
{
    char path[4096];
    struct clean found;
    struct stat status;
    uint64_t txn;
    mark_path(db, "clean", path);
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t count = read(fd, &found, sizeof found);
    bool is_ours = fstat(fd, &status) == 0 && status.st_uid == geteuid();
    close(fd);
    if (count != sizeof found || !is_ours || fstat(data_fd, &status) != 0 ||
        pages_check_header(data_fd, data_path, &txn, NULL) != 0)
        return false;
    const struct clean is = describe(&status, txn);
    return memcmp(&found, &is, sizeof is) == 0;
}

void db_unmark_clean(const struct tuning_db *db)
{
    char path[4096];
    mark_path(db, "clean", path);
    unlink(path);
}

/* Time stamps are as coarse as the kernel's tick: a write in the tick of ours would leave no trace,
 * so that one is waited out. */
static void pass_tick(const struct timespec *changed)
{
    struct timespec now;
    const struct timespec moment = {.tv_nsec = 1000 * 1000};
    for (int tries = 0; tries < 100; tries++) {
        clock_gettime(CLOCK_REALTIME_COARSE, &now);
        if (now.tv_sec != changed->tv_sec || now.tv_nsec != changed->tv_nsec)
            return;
        nanosleep(&moment, NULL);
    }
}

void db_mark_clean(const struct tuning_db *db)
{
    char data[4096], path[4096], partial[4096];
    struct stat status;
    uint64_t txn;
    mark_path(db, "data.mdb", data);
    mark_path(db, "clean", path);
    mark_path(db, "clean.partial", partial);
    int fd = open(data, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return;
    bool is_sound = fstat(fd, &status) == 0 && pages_check_header(fd, data, &txn, NULL) == 0;
    close(fd);
    if (!is_sound)
        return;
    pass_tick(&status.st_ctim);
    const struct clean mark = describe(&status, txn);
    fd = open(partial, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    bool is_written = fd >= 0 && write(fd, &mark, sizeof mark) == sizeof mark && fsync(fd) == 0;
    if (fd >= 0 && close(fd) != 0)
        is_written = false;
    if (!is_written || rename(partial, path) != 0)
        unlink(partial); /* the next opening checks all pages */
}

/* --- beside the work -------------------------------------------------------------------------- */

static void *check_main(void *argument)
{
    struct tuning_db *db = argument;
    struct check *check = &db->check;
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), CHECK_NICE);
    struct tune_error why = {.code = TUNE_OK};
    int status = pages_finish(check->pages, &check->is_canceled, &why);
    mdb_txn_abort(check->txn);
    atomic_store(&check->has_ended, true);
    /* Without memory for it there is no verdict. */
    if (status >= 0 || why.code == TUNE_ENOMEM)
        return NULL;
    check->why = why;
    atomic_store(&check->has_failed, true);
    if (db->options.on_unsound != NULL)
        db->options.on_unsound(&check->why, db->options.damage_context);
    return NULL;
}

static int start_thread(struct tuning_db *db, struct tune_error *err)
{
    struct check *check = &db->check;
    atomic_store(&check->is_canceled, false);
    atomic_store(&check->has_ended, false);
    int rc = pthread_create(&check->thread, NULL, check_main, db);
    check->is_running = rc == 0;
    if (rc == 0)
        return 0;
    atomic_store(&check->is_canceled, true);
    pages_finish(check->pages, &check->is_canceled, NULL);
    return tune_fail(err, TUNE_EIO, "cannot start the check of %s: %s", check->path, strerror(rc));
}

int db_check_start(struct tuning_db *db, struct tune_error *err)
{
    struct check *check = &db->check;
    mark_path(db, "data.mdb", check->path);
    check->fd = open(check->path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (check->fd < 0)
        return tune_fail_errno(err, TUNE_EIO, "cannot open %s", check->path);
    int rc = mdb_txn_begin(db->env, NULL, MDB_RDONLY, &check->txn);
    if (rc != 0) {
        close(check->fd);
        return db_fail(db, rc, "cannot begin to read", err);
    }
    if (pages_begin(check->fd, check->path, table_names, &check->pages, err) == 0 &&
        start_thread(db, err) == 0)
        return 0;
    mdb_txn_abort(check->txn);
    close(check->fd);
    return -1;
}

void db_check_stop(struct tuning_db *db)
{
    struct check *check = &db->check;
    if (!check->is_running)
        return;
    atomic_store(&check->is_canceled, true);
    pthread_join(check->thread, NULL);
    close(check->fd);
    check->is_running = false;
}
