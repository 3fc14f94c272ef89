/* The folder and its files: everything that must be true before LMDB may touch them. See
 * tuning_db.h. */
#include "tuning_db_internal.h"

#include "pages.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

/* Folders open in this process. LMDB must not open one twice: closing the second handle would drop
 * the first one's locks and reader slots. */
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static struct tuning_db *open_list;

static int claim_folder(struct tuning_db *db, struct tune_error *err)
{
    int status = 0;
    pthread_mutex_lock(&open_lock);
    for (struct tuning_db *other = open_list; other != NULL; other = other->next_open) {
        if (other->device == db->device && other->inode == db->inode)
            status = tune_fail(err, TUNE_EBUSY, "%s is already open in this process", db->dir);
    }
    if (status == 0) {
        db->next_open = open_list;
        open_list = db;
    }
    pthread_mutex_unlock(&open_lock);
    return status;
}

void db_folder_release(struct tuning_db *db)
{
    pthread_mutex_lock(&open_lock);
    for (struct tuning_db **link = &open_list; *link != NULL; link = &(*link)->next_open) {
        if (*link == db) {
            *link = db->next_open;
            break;
        }
    }
    pthread_mutex_unlock(&open_lock);
}

/* --- the folder ------------------------------------------------------------------------------- */

static int make_folders(const char *dir, struct tune_error *err)
{
    char *path = strdup(dir);
    if (path == NULL)
        return tune_fail(err, TUNE_ENOMEM, "no memory to open %s", dir);
    int status = 0;
    for (char *slash = path; status == 0 && slash != NULL;) {
        slash = strchr(slash + 1, '/');
        if (slash != NULL)
            *slash = '\0';
        if (mkdir(path, 0700) != 0 && errno != EEXIST && access(path, F_OK) != 0)
            status = tune_fail_errno(err, TUNE_EIO, "cannot create the folder %s", path);
        if (slash != NULL)
            *slash = '/';
    }
    free(path);
    return status;
}

/* Locks do not lock and maps do not agree across machines on these. */
static const char *network_type(unsigned long type)
{
    static const struct {
        unsigned long type;
        const char *name;
    } types[] = {{NFS_SUPER_MAGIC, "NFS"}, {SMB_SUPER_MAGIC, "SMB"}, {0xFF534D42, "CIFS"},
        {0xFE534D42, "SMB2"}, {AFS_SUPER_MAGIC, "AFS"}, {CODA_SUPER_MAGIC, "Coda"},
        {NCP_SUPER_MAGIC, "NCP"}, {V9FS_MAGIC, "9p"}, {0x65735546, "FUSE"}, {0x00C36400, "Ceph"},
        {0x0BD00BD0, "Lustre"}, {0x47504653, "GPFS"}, {0x01161970, "GFS2"}, {0x7461636F, "OCFS2"},
        {0x19830326, "BeeGFS"}, {0x6B414653, "AFS"}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (types[i].type == (type & 0xFFFFFFFFul))
            return types[i].name;
    }
    return NULL;
}

/* Refuses what others own; takes rights of others away from what we own. */
static int check_owner(
    int fd, const char *path, mode_t mode, bool read_only, struct tune_error *err)
{
    struct stat status;
    if (fstat(fd, &status) != 0)
        return tune_fail_errno(err, TUNE_EIO, "cannot look at %s", path);
    if (status.st_uid != geteuid())
        return tune_fail(err, TUNE_EPERM,
            "%s belongs to user %u, not to the user %u of this process; name a folder of your own",
            path, (unsigned)status.st_uid, (unsigned)geteuid());
    if (!read_only && (status.st_mode & 07777) != mode && fchmod(fd, mode) != 0)
        return tune_fail_errno(err, TUNE_EPERM, "cannot make %s private", path);
    return 0;
}

static int check_folder(struct tuning_db *db, int dir_fd, struct tune_error *err)
{
    struct statfs fs;
    struct stat status;
    if (check_owner(dir_fd, db->dir, 0700, db->options.read_only, err) != 0)
        return -1;
    if (fstatfs(dir_fd, &fs) != 0 || fstat(dir_fd, &status) != 0)
        return tune_fail_errno(err, TUNE_EIO, "cannot look at %s", db->dir);
    const char *network = network_type((unsigned long)fs.f_type);
    if (network != NULL)
        return tune_fail(err, TUNE_EINVAL,
            "%s lies on a network file system (%s), where locks and maps are not safe; name a "
            "local folder, and share results through the fleet's server",
            db->dir, network);
    db->device = status.st_dev;
    db->inode = status.st_ino;
    return 0;
}

static int open_folder(struct tuning_db *db, struct tune_error *err)
{
    if (!db->options.read_only && make_folders(db->dir, err) != 0)
        return -1;
    int dir_fd = open(db->dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat status;
    if (dir_fd >= 0 && check_folder(db, dir_fd, err) == 0)
        return dir_fd;
    if (dir_fd >= 0)
        close(dir_fd);
    else if (errno == ENOENT)
        tune_fail(err, TUNE_ENOTFOUND, "there is no database folder %s", db->dir);
    else if (lstat(db->dir, &status) == 0 && S_ISLNK(status.st_mode))
        tune_fail(err, TUNE_EPERM,
            "the database folder %s is a symbolic link; name the folder that it points to",
            db->dir);
    else
        tune_fail_errno(err, TUNE_EIO, "cannot open the database folder %s", db->dir);
    return -1;
}

/* --- its files -------------------------------------------------------------------------------- */

/* Opens a file of the folder that must be a regular one of ours, or be absent: then -1 with err
 * untouched. */
static int open_own_file(
    struct tuning_db *db, int dir_fd, const char *name, int flags, struct tune_error *err)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", db->dir, name);
    struct stat status;
    if (fstatat(dir_fd, name, &status, AT_SYMLINK_NOFOLLOW) != 0) {
        if (errno != ENOENT)
            return tune_fail_errno(err, TUNE_EIO, "cannot look at %s", path);
        if (!(flags & O_CREAT))
            return -1;
    } else if (!S_ISREG(status.st_mode)) {
        return tune_fail(err, TUNE_EPERM, "%s is %s, not a regular file; remove it", path,
            S_ISLNK(status.st_mode)    ? "a symbolic link"
            : S_ISDIR(status.st_mode)  ? "a folder"
            : S_ISFIFO(status.st_mode) ? "a fifo"
                                       : "a special file");
    }
    int fd = openat(dir_fd, name, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (fd < 0)
        return tune_fail_errno(err, TUNE_EIO, "cannot open %s", path);
    if (check_owner(fd, path, 0600, db->options.read_only, err) == 0)
        return fd;
    close(fd);
    return -1;
}

/* A reader that only tests the lock (is_in_use) holds it for a moment. */
static int lock_patiently(int fd)
{
    const struct timespec moment = {.tv_nsec = 10 * 1000 * 1000};
    for (int tries = 0; tries < 5; tries++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            return 0;
        if (errno != EWOULDBLOCK)
            return -1;
        nanosleep(&moment, NULL);
    }
    errno = EWOULDBLOCK;
    return -1;
}

/* The kernel holds this lock, so it ends with its process and is seen from every container. The
 * number in the file is for the sentence only. */
static int take_lock(struct tuning_db *db, int dir_fd, struct tune_error *err)
{
    int fd = open_own_file(db, dir_fd, "lock", O_RDWR | O_CREAT, err);
    if (fd < 0)
        return -1;
    char text[32] = "";
    if (lock_patiently(fd) != 0) {
        if (errno != EWOULDBLOCK)
            tune_fail_errno(err, TUNE_EIO, "cannot lock %s/lock", db->dir);
        ssize_t got = pread(fd, text, sizeof text - 1, 0);
        text[got > 0 ? strcspn(text, "\n") : 0] = '\0';
        close(fd);
        return tune_fail(err, TUNE_EBUSY,
            "another tunerd%s%s uses the database %s; stop it, or name another folder with --db",
            text[0] ? " with process id " : "", text, db->dir);
    }
    int length = snprintf(text, sizeof text, "%d\n", (int)getpid());
    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)length, 0) != length) {
        /* A full disk must not keep anybody from reading what is there. */
    }
    db->lock_fd = fd;
    return 0;
}

/* Whether some process holds DIR/lock: then it may be writing, and has checked the pages itself. */
static bool is_in_use(int dir_fd)
{
    int fd = openat(dir_fd, "lock", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool is_held = flock(fd, LOCK_SH | LOCK_NB) != 0;
    close(fd);
    return is_held;
}

static int check_pages(
    struct tuning_db *db, int dir_fd, int fd, const char *path, struct tune_error *err)
{
    if (db->options.read_only)
        return is_in_use(dir_fd) ? pages_check_header(fd, path, NULL, err)
                                 : pages_check(fd, path, table_names, err);
    db->was_clean = db_is_clean(db, fd, path);
    int status = db->was_clean ? 0 : pages_check(fd, path, table_names, err);
    /* From here on the file may be written; a file that is refused keeps what is beside it. */
    if (status == 0)
        db_unmark_clean(db);
    return status;
}

static int check_data_file(struct tuning_db *db, int dir_fd, struct tune_error *err)
{
    struct tune_error cause = {.code = TUNE_OK};
    int fd = open_own_file(db, dir_fd, "data.mdb", O_RDONLY, &cause);
    if (fd < 0) {
        if (cause.code == TUNE_OK && !db->options.read_only)
            return 0; /* new */
        if (cause.code == TUNE_OK)
            return tune_fail(err, TUNE_ENOTFOUND, "there is no database in %s", db->dir);
        return tune_fail(err, cause.code, "%s", cause.text);
    }
    char path[4096];
    struct stat status;
    snprintf(path, sizeof path, "%s/data.mdb", db->dir);
    int result = fstat(fd, &status);
    if (result != 0)
        tune_fail_errno(err, TUNE_EIO, "cannot look at %s", path);
    else if (status.st_size == 0 && db->options.read_only)
        result = tune_fail(err, TUNE_ENOTFOUND, "the database in %s is empty", db->dir);
    else if (status.st_size > 0)
        result = check_pages(db, dir_fd, fd, path, err);
    close(fd);
    return result;
}

/* LMDB's own lock file: it may be absent, but not somebody else's or a link. */
static int check_reader_file(struct tuning_db *db, int dir_fd, struct tune_error *err)
{
    struct tune_error cause = {.code = TUNE_OK};
    int fd = open_own_file(db, dir_fd, "lock.mdb", O_RDONLY, &cause);
    if (fd >= 0)
        close(fd);
    return cause.code == TUNE_OK ? 0 : tune_fail(err, cause.code, "%s", cause.text);
}

int db_folder_claim(struct tuning_db *db, struct tune_error *err)
{
    int dir_fd = open_folder(db, err);
    if (dir_fd < 0)
        return -1;
    int status = claim_folder(db, err);
    if (status == 0) {
        if (!db->options.read_only)
            status = take_lock(db, dir_fd, err);
        if (status == 0)
            status = check_data_file(db, dir_fd, err);
        if (status == 0)
            status = check_reader_file(db, dir_fd, err);
        if (status != 0)
            db_folder_release(db);
    }
    close(dir_fd);
    return status;
}
