/* Files of records: their lines whatever form they come in, and a file that is old or new, never in
 * between. */
#include "client/tunectl/record_file.h"
#include "tuning_db/record_line.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

static char folder[] = "/tmp/tune-files-XXXXXX";

/* Something in the folder; of the last four results each is valid. */
static const char *path_in(const char *name)
{
    static char paths[4][300];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder + strlen(folder) - 6, "XXXXXX");
    return mkdtemp(folder) == NULL;
}

static size_t count_files(void)
{
    size_t count = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        count += entry->d_name[0] != '.' || strlen(entry->d_name) > 2;
    closedir(dir);
    return count;
}

static int remove_folder(void **state)
{
    (void)state;
    DIR *dir = opendir(folder);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        unlinkat(dirfd(dir), entry->d_name, 0);
    closedir(dir);
    return rmdir(folder);
}

/* --- what the system is asked to do, in order ------------------------------------------------- */

static char calls[256];

int __real_fsync(int fd);
int __real_rename(const char *from, const char *to);
int __wrap_fsync(int fd);
int __wrap_rename(const char *from, const char *to);

int __wrap_fsync(int fd)
{
    struct stat status;
    fstat(fd, &status);
    strcat(calls, S_ISDIR(status.st_mode) ? "sync-folder " : "sync-file ");
    return __real_fsync(fd);
}

int __wrap_rename(const char *from, const char *to)
{
    strcat(calls, "rename ");
    return __real_rename(from, to);
}

/* --- files ------------------------------------------------------------------------------------ */

static const char *put_file(const char *name, const void *bytes, size_t count)
{
    const char *path = path_in(name);
    FILE *file = fopen(path, "we");
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
    return path;
}

static size_t get_file(const char *path, char *bytes, size_t room)
{
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    size_t count = fread(bytes, 1, room - 1, file);
    bytes[count] = '\0';
    fclose(file);
    return count;
}

static const char *put_packed(const char *name, const void *bytes, size_t count)
{
    size_t room = ZSTD_compressBound(count);
    void *packed = malloc(room);
    size_t used = ZSTD_compress(packed, room, bytes, count, 3);
    assert_false(ZSTD_isError(used));
    const char *path = put_file(name, packed, used);
    free(packed);
    return path;
}

/* All lines as "NUMBER:TEXT|", a refused one as "NUMBER!TEXT|". -1 with the error's code in *code.
 */
static int read_all(const char *path, char *text, size_t room, enum tune_code *code)
{
    struct tune_error err = {0};
    struct record_reader *reader = record_reader_open(path, &err);
    struct exchange_line line;
    size_t used = 0;
    int status = -1;
    text[0] = '\0';
    while (reader != NULL && (status = record_reader_next(reader, &line, &err)) > 0) {
        assert_int_equal(line.text[line.length], 0);
        int count = snprintf(text + used, room - used, "%llu%c%.40s|",
            (unsigned long long)line.number, line.refusal == NULL ? ':' : '!', line.text);
        used += used + (size_t)count < room ? (size_t)count : 0;
    }
    record_reader_close(reader);
    *code = err.code;
    assert_int_equal(status == 0, err.code == TUNE_OK);
    return status;
}

static void assert_lines(const char *path, const char *wanted)
{
    char text[4096];
    enum tune_code code;
    assert_int_equal(read_all(path, text, sizeof text, &code), 0);
    assert_string_equal(text, wanted);
}

static void assert_unreadable(const char *path, enum tune_code wanted)
{
    char text[4096];
    enum tune_code code;
    assert_int_equal(read_all(path, text, sizeof text, &code), -1);
    assert_int_equal(code, wanted);
}

/* --- reading ---------------------------------------------------------------------------------- */

#define SOME_LINES                                                                                 \
    "a\r\n\r\n\nb\n<<<<<<< HEAD\n=======\nc\r\r\n>>>>>>> other\n||||||| base\n========"
#define SOME_TEXT                                                                                  \
    "1:a|4:b|5!<<<<<<< HEAD|6!=======|7:c\r|8!>>>>>>> other|9!||||||| base|10:========|"

static void lines_come_with_their_numbers_plain_or_packed(void **state)
{
    (void)state;
    assert_lines(put_file("f", SOME_LINES, strlen(SOME_LINES)), SOME_TEXT);
    assert_lines(put_packed("f", SOME_LINES, strlen(SOME_LINES)), SOME_TEXT);
    assert_lines(put_file("f", "", 0), "");
    assert_lines(put_packed("f", "", 0), "");
    assert_lines(put_file("f", "(\xB5", 2), "1:(\xB5|"); /* half of zstd's mark */
    assert_unreadable(path_in("absent"), TUNE_EIO);
    assert_unreadable(folder, TUNE_EIO);
}

static void a_line_that_is_too_long_is_refused_and_the_next_one_read(void **state)
{
    (void)state;
    size_t length = RECORD_LINE_LIMIT_BYTES;
    char *text = malloc(10 * length);
    memset(text, 'x', 10 * length);
    memcpy(text + length, "\r\n", 2);           /* just fits */
    memcpy(text + 2 * length + 3, "\n", 1);     /* one more */
    memcpy(text + 10 * length - 4, "\nend", 4); /* far more */
    char found[4096];
    enum tune_code code;
    const char *path = put_file("f", text, 10 * length);
    assert_int_equal(read_all(path, found, sizeof found, &code), 0);
    assert_non_null(strstr(found, "xxx|2!|3!|4:end|"));
    free(text);
}

static void packed_files_may_be_joined_and_a_cut_is_noticed(void **state)
{
    (void)state;
    char text[4000], packed[8000];
    unsigned number = 1;
    for (size_t i = 0; i < sizeof text; i++) {
        number = number * 1664525 + 1013904223;
        text[i] = (char)(number >> 29 == 0 ? '\n' : 'a' + (number >> 24) % 26);
    }
    size_t used = get_file(put_packed("f", text, sizeof text), packed, sizeof packed);
    for (size_t cut = 4; cut < used; cut++)
        assert_unreadable(put_file("f", packed, cut), TUNE_EDAMAGED);
    char found[4096];
    enum tune_code code;
    for (size_t bit = 0; bit < 8 * used; bit += 7) { /* any answer, but no crash and no hang */
        packed[bit / 8] ^= (char)(1 << bit % 8);
        read_all(put_file("f", packed, used), found, sizeof found, &code);
        packed[bit / 8] ^= (char)(1 << bit % 8);
    }
    used = get_file(put_packed("f", "a\n", 2), packed, sizeof packed);
    memcpy(packed + used, packed, used);
    assert_lines(put_file("f", packed, 2 * used), "1:a|2:a|");
    memcpy(packed + 2 * used, "rubbish", 7);
    assert_unreadable(put_file("f", packed, 2 * used + 7), TUNE_EDAMAGED);
}

static long resident_kib(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

/* Some KiB that become more than the limit. */
static void a_bomb_is_refused_in_little_memory(void **state)
{
    (void)state;
    static char zeros[1 << 20], packed[1 << 17];
    ZSTD_CStream *stream = ZSTD_createCStream();
    FILE *file = fopen(path_in("bomb"), "we");
    for (size_t i = 0; i <= RECORD_FILE_LIMIT_BYTES / sizeof zeros; i++) {
        bool is_last = i == RECORD_FILE_LIMIT_BYTES / sizeof zeros;
        ZSTD_inBuffer in = {zeros, sizeof zeros, 0};
        size_t left;
        do {
            ZSTD_outBuffer out = {packed, sizeof packed, 0};
            left = ZSTD_compressStream2(stream, &out, &in, is_last ? ZSTD_e_end : ZSTD_e_continue);
            fwrite(packed, 1, out.pos, file);
        } while (in.pos < in.size || (is_last && left > 0));
    }
    assert_true(ftell(file) < 1 << 20);
    fclose(file);
    ZSTD_freeCStream(stream);
    long before = resident_kib();
    assert_unreadable(path_in("bomb"), TUNE_ELIMIT);
    assert_true(resident_kib() - before < 32 << 10);
}

/* What would make the reader set up a window of 1 GiB. */
static void a_window_that_is_too_large_is_refused(void **state)
{
    (void)state;
    static char zeros[1 << 16], packed[1 << 16];
    ZSTD_CCtx *context = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, 30);
    ZSTD_inBuffer in = {zeros, sizeof zeros, 0};
    ZSTD_outBuffer out = {packed, sizeof packed, 0};
    ZSTD_compressStream2(context, &out, &in, ZSTD_e_continue);
    ZSTD_compressStream2(context, &out, &in, ZSTD_e_flush);
    assert_int_equal(ZSTD_compressStream2(context, &out, &in, ZSTD_e_end), 0);
    ZSTD_freeCCtx(context);
    assert_true(out.pos > 0);
    assert_unreadable(put_file("f", packed, out.pos), TUNE_EDAMAGED);
}

/* --- writing ---------------------------------------------------------------------------------- */

static int write_lines(const char *path, size_t count, struct tune_error *err)
{
    struct record_writer *writer = record_writer_open(path, err);
    int status = writer == NULL ? -1 : 0;
    for (size_t i = 0; status == 0 && i < count; i++) {
        char line[40];
        int length = snprintf(line, sizeof line, "%zu", i);
        status = record_writer_add(writer, line, (size_t)length, err);
    }
    if (status == 0)
        return record_writer_finish(writer, err);
    record_writer_abandon(writer);
    return -1;
}

static void assert_numbers(const char *path, size_t wanted)
{
    struct record_reader *reader = record_reader_open(path, NULL);
    struct exchange_line line;
    size_t count = 0;
    for (; record_reader_next(reader, &line, NULL) == 1; count++)
        assert_int_equal(strtoul(line.text, NULL, 10), count);
    assert_int_equal(count, wanted);
    record_reader_close(reader);
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    static const char *const names[] = {"plain.jsonl", "packed.jsonl.zst"};
    static const size_t counts[] = {0, 1, 200000};
    for (size_t i = 0; i < 6; i++) {
        const char *path = path_in(names[i % 2]);
        assert_int_equal(write_lines(path, counts[i / 2], NULL), 0);
        assert_numbers(path, counts[i / 2]);
    }
    char head[8];
    get_file(path_in(names[1]), head, 5);
    assert_memory_equal(head, "\x28\xB5\x2F\xFD", 4);
    assert_int_equal(count_files(), 2);
}

static void a_file_is_on_the_disk_before_its_name_leads_to_it(void **state)
{
    (void)state;
    calls[0] = '\0';
    assert_int_equal(write_lines(path_in("f"), 10, NULL), 0);
    assert_string_equal(calls, "sync-file rename sync-folder ");
}

static void a_file_keeps_its_mode_and_a_link_stays_a_link(void **state)
{
    (void)state;
    struct stat status;
    mode_t mask = umask(027);
    assert_int_equal(write_lines(path_in("f"), 1, NULL), 0);
    umask(mask);
    stat(path_in("f"), &status);
    assert_int_equal(status.st_mode & 0777, 0640);
    chmod(path_in("f"), 0604);
    assert_int_equal(symlink("f", path_in("link")), 0);
    assert_int_equal(write_lines(path_in("link"), 2, NULL), 0);
    lstat(path_in("link"), &status);
    assert_true(S_ISLNK(status.st_mode));
    stat(path_in("f"), &status);
    assert_int_equal(status.st_mode & 0777, 0604);
    assert_numbers(path_in("f"), 2);
    assert_int_equal(count_files(), 2);
}

static void assert_fails(const char *path, size_t count)
{
    struct tune_error err = {0};
    assert_int_equal(write_lines(path, count, &err), -1);
    assert_int_equal(err.code, TUNE_EIO);
}

static void what_fails_leaves_the_old_file_and_nothing_else(void **state)
{
    (void)state;
    struct rlimit old, small = {.rlim_cur = 100000};
    assert_int_equal(write_lines(path_in("f"), 3, NULL), 0);
    assert_int_equal(write_lines(path_in("f.zst"), 3, NULL), 0);
    getrlimit(RLIMIT_FSIZE, &old);
    small.rlim_max = old.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    assert_fails(path_in("f"), 200000);
    assert_fails(path_in("f.zst"), 200000);
    setrlimit(RLIMIT_FSIZE, &old);
    struct record_writer *writer = record_writer_open(path_in("f"), NULL);
    assert_int_equal(record_writer_add(writer, "x", 1, NULL), 0);
    record_writer_abandon(writer);
    record_writer_abandon(NULL);
    assert_numbers(path_in("f"), 3);
    assert_numbers(path_in("f.zst"), 3);
    assert_int_equal(count_files(), 2);
    assert_fails(folder, 1);
    assert_fails(path_in("absent/f"), 1);
}

static void a_device_is_written_to_and_not_replaced(void **state)
{
    (void)state;
    struct stat status;
    assert_int_equal(write_lines("/dev/null", 10, NULL), 0);
    stat("/dev/null", &status);
    assert_true(S_ISCHR(status.st_mode));
    assert_fails("/dev/full", 10);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(lines_come_with_their_numbers_plain_or_packed),
        IN_FOLDER(a_line_that_is_too_long_is_refused_and_the_next_one_read),
        IN_FOLDER(packed_files_may_be_joined_and_a_cut_is_noticed),
        IN_FOLDER(a_bomb_is_refused_in_little_memory),
        IN_FOLDER(a_window_that_is_too_large_is_refused),
        IN_FOLDER(what_is_written_is_read),
        IN_FOLDER(a_file_is_on_the_disk_before_its_name_leads_to_it),
        IN_FOLDER(a_file_keeps_its_mode_and_a_link_stays_a_link),
        IN_FOLDER(what_fails_leaves_the_old_file_and_nothing_else),
        IN_FOLDER(a_device_is_written_to_and_not_replaced),
    };
    return cmocka_run_group_tests_name("record_file", tests, NULL, NULL);
}
