/* See pages.h. The layout is that of LMDB data version 1 on a 64-bit machine:
 *
 *   page    u64 number, u16 -, u16 kind, u16 lower, u16 upper (large value: u32 page count), ...
 *   node    u16 lo, u16 hi, u16 flags, u16 key bytes, key, value; offsets to nodes follow the
 * header meta    page header, u32 magic, u32 version, u64 -, u64 map bytes, two trees, u64 last,
 * u64 txn tree    u32 page bytes, u16 flags, u16 depth, 4 x u64 counts, u64 root
 *
 * Two trees hang on the newer meta page: the list of free pages (keys are transaction numbers,
 * values counted lists of page numbers in descending order), and the main tree whose values are the
 * named trees. */
#include "pages.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE_HEADER_BYTES 16
#define NODE_HEADER_BYTES 8
#define TREE_BYTES 48
#define META_BYTES 136 /* from the magic on */
#define LMDB_MAGIC 0xBEEFC0DEu
#define LMDB_VERSION 1u
#define LMDB_PAGE_LIMIT_BYTES 0x8000u
#define DEPTH_LIMIT 32 /* LMDB's cursor stack */
#define NO_PAGE UINT64_MAX
#define MAP_BYTES_LIMIT ((uint64_t)1 << 46)

enum page_kind { PAGE_BRANCH = 1, PAGE_LEAF = 2, PAGE_OVERFLOW = 4, PAGE_META = 8 };
enum node_flags { NODE_BIG = 1, NODE_TREE = 2 };
enum tree_kind { TREE_FREE, TREE_MAIN, TREE_NAMED };

struct tree {
    uint32_t page_bytes;
    uint16_t flags, depth;
    uint64_t root;
};

struct meta {
    uint64_t map_bytes, last_page, txn;
    struct tree free_tree, main_tree;
};

struct pages {
    int fd;
    const char *path;
    const char *const *names;
    uint64_t file_bytes;
    uint32_t page_bytes;
    struct meta meta; /* the state that is checked */
    uint64_t last_page;
    uint8_t *seen; /* one bit for each page */
    const atomic_bool *is_canceled;
    struct tune_error *err;
};

static uint16_t get_u16(const uint8_t *bytes)
{
    uint16_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

static uint32_t get_u32(const uint8_t *bytes)
{
    uint32_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

static uint64_t get_u64(const uint8_t *bytes)
{
    uint64_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

#define ADVICE "keep what can be read with tunerd --salvage, or put back a copy"

static int damaged(struct pages *pages, uint64_t page, const char *what)
{
    return tune_fail(pages->err, TUNE_EDAMAGED, "%s is damaged (page %llu: %s); " ADVICE,
        pages->path, (unsigned long long)page, what);
}

/* Reads exactly `count` bytes. A short read is a file cut short. */
static int read_at(struct pages *pages, void *bytes, size_t count, uint64_t offset)
{
    size_t done = 0;
    while (done < count) {
        ssize_t got = pread(pages->fd, (char *)bytes + done, count - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return tune_fail_errno(pages->err, TUNE_EIO, "cannot read %s", pages->path);
        if (got == 0)
            return tune_fail(pages->err, TUNE_EDAMAGED,
                "%s is cut short: it has %llu bytes and uses more; " ADVICE, pages->path,
                (unsigned long long)pages->file_bytes);
        done += (size_t)got;
    }
    return 0;
}

/* --- headers ---------------------------------------------------------------------------------- */

static struct tree get_tree(const uint8_t *bytes)
{
    return (struct tree){.page_bytes = get_u32(bytes),
        .flags = get_u16(bytes + 4),
        .depth = get_u16(bytes + 6),
        .root = get_u64(bytes + 40)};
}

/* Says what a file is that does not start like one of ours. */
static int refuse_foreign(struct pages *pages, const uint8_t *start)
{
    const uint32_t swapped = __builtin_bswap32(LMDB_MAGIC);
    if (get_u32(start + 12) == LMDB_MAGIC)
        return tune_fail(pages->err, TUNE_EVERSION,
            "%s was written by a 32-bit program; export it there and import it here", pages->path);
    if (get_u32(start + 16) == swapped || get_u32(start + 12) == swapped)
        return tune_fail(pages->err, TUNE_EVERSION,
            "%s was written on a machine of the other byte order; export it there and import it "
            "here",
            pages->path);
    return tune_fail(pages->err, TUNE_EINVAL,
        "%s is not an LMDB database; move it away or name another folder", pages->path);
}

static int check_meta(struct pages *pages, unsigned index, const uint8_t *page, struct meta *meta)
{
    const uint8_t *body = page + PAGE_HEADER_BYTES;
    if (get_u32(body) != LMDB_MAGIC)
        return index == 0 ? refuse_foreign(pages, page)
                          : damaged(pages, index, "the second header is not one");
    if (get_u32(body + 4) != LMDB_VERSION)
        return tune_fail(pages->err, TUNE_EVERSION,
            "%s has LMDB format version %u, this program reads version %u; export it with the "
            "program that wrote it and import it here",
            pages->path, get_u32(body + 4), LMDB_VERSION);
    *meta = (struct meta){.map_bytes = get_u64(body + 16),
        .free_tree = get_tree(body + 24),
        .main_tree = get_tree(body + 24 + TREE_BYTES),
        .last_page = get_u64(body + 24 + 2 * TREE_BYTES),
        .txn = get_u64(body + 32 + 2 * TREE_BYTES)};
    if (meta->free_tree.page_bytes != pages->page_bytes)
        return tune_fail(pages->err, TUNE_EVERSION,
            "%s has pages of %u bytes, this machine's have %u; export it on a machine of its kind "
            "and import it here",
            pages->path, meta->free_tree.page_bytes, pages->page_bytes);
    if (get_u64(page) != index || get_u16(page + 10) != PAGE_META)
        return damaged(pages, index, "not a header page");
    /* LMDB writes transaction n into header n mod 2; both start at 0. */
    if (meta->txn % 2 != index && meta->txn != 0)
        return damaged(pages, index, "impossible transaction number");
    /* The free list's flags double as the environment's: 8 is its integer key, 1 would be a fixed
     * mapping address, others ask for modes that we do not use. */
    if (meta->free_tree.flags != 8 || meta->main_tree.flags != 0)
        return damaged(pages, index, "unknown flags");
    if (meta->last_page < 1 || meta->map_bytes > MAP_BYTES_LIMIT ||
        meta->last_page >= MAP_BYTES_LIMIT / pages->page_bytes)
        return damaged(pages, index, "impossible size");
    return 0;
}

/* The newer header of a file whose two headers are both sound. */
static int read_headers(struct pages *pages, struct meta *newer)
{
    struct stat status;
    if (fstat(pages->fd, &status) != 0)
        return tune_fail_errno(pages->err, TUNE_EIO, "cannot look at %s", pages->path);
    pages->file_bytes = (uint64_t)status.st_size;
    long page_bytes = sysconf(_SC_PAGESIZE);
    pages->page_bytes =
        page_bytes > (long)LMDB_PAGE_LIMIT_BYTES ? LMDB_PAGE_LIMIT_BYTES : (uint32_t)page_bytes;
    uint8_t start[PAGE_HEADER_BYTES + META_BYTES] = {0};
    struct meta metas[2];
    if (pages->file_bytes < sizeof start) {
        if (read_at(pages, start, (size_t)pages->file_bytes, 0) != 0)
            return -1;
        if (pages->file_bytes >= PAGE_HEADER_BYTES + 4 &&
            get_u32(start + PAGE_HEADER_BYTES) != LMDB_MAGIC)
            return refuse_foreign(pages, start);
        return tune_fail(pages->err, TUNE_EDAMAGED,
            "%s has only %llu bytes, which is no whole LMDB database; " ADVICE, pages->path,
            (unsigned long long)pages->file_bytes);
    }
    for (unsigned i = 0; i < 2; i++) {
        if (read_at(pages, start, sizeof start, (uint64_t)i * pages->page_bytes) != 0 ||
            check_meta(pages, i, start, &metas[i]) != 0)
            return -1;
    }
    uint64_t first = metas[0].txn, second = metas[1].txn;
    if (first != second && first + 1 != second && second + 1 != first)
        return damaged(pages, 0, "the two headers are not of neighbouring transactions");
    *newer = metas[second > first];
    return 0;
}

/* --- trees ------------------------------------------------------------------------------------ */

/* Counts a page as used; twice is damage. */
static int mark(struct pages *pages, uint64_t page)
{
    if (page < 2 || page > pages->last_page)
        return damaged(pages, page, "its number is out of range");
    uint8_t bit = (uint8_t)(1u << (page % 8));
    if (pages->seen[page / 8] & bit)
        return damaged(pages, page, "it is used twice");
    pages->seen[page / 8] |= bit;
    return 0;
}

/* A value too large for a leaf lies on pages of its own; only the first one has a header. */
static int check_overflow(struct pages *pages, uint64_t page, uint64_t value_bytes)
{
    uint8_t header[PAGE_HEADER_BYTES];
    uint64_t count = (PAGE_HEADER_BYTES + value_bytes + pages->page_bytes - 1) / pages->page_bytes;
    if (page > pages->last_page || count > pages->last_page)
        return damaged(pages, page, "its number is out of range");
    if ((page + count) * pages->page_bytes > pages->file_bytes)
        return tune_fail(pages->err, TUNE_EDAMAGED,
            "%s is cut short: page %llu is used and the file ends before it; " ADVICE, pages->path,
            (unsigned long long)(page + count - 1));
    if (read_at(pages, header, sizeof header, page * pages->page_bytes) != 0)
        return -1;
    if (get_u64(header) != page || get_u16(header + 10) != PAGE_OVERFLOW ||
        get_u32(header + 12) != count)
        return damaged(pages, page, "not the large value that it should be");
    for (uint64_t i = 0; i < count; i++) {
        if (mark(pages, page + i) != 0)
            return -1;
    }
    return 0;
}

/* The pages that one transaction freed: a count, then numbers in descending order. */
static int check_free_list(
    struct pages *pages, uint64_t page, const uint8_t *list, uint64_t list_bytes)
{
    uint64_t count = list_bytes < 8 ? UINT64_MAX : get_u64(list);
    if (count > list_bytes / 8 - 1)
        return damaged(pages, page, "a list of free pages is longer than its bytes");
    uint64_t previous = UINT64_MAX;
    for (uint64_t i = 1; i <= count; i++) {
        uint64_t number = get_u64(list + 8 * i);
        if (number >= previous)
            return damaged(pages, page, "a list of free pages is out of order");
        if (mark(pages, number) != 0)
            return -1;
        previous = number;
    }
    return 0;
}

static int check_large_free_list(struct pages *pages, uint64_t page, uint64_t list_bytes)
{
    uint8_t *list = malloc(list_bytes);
    if (list == NULL)
        return tune_fail(pages->err, TUNE_ENOMEM, "no memory to check %s", pages->path);
    int status = read_at(pages, list, list_bytes, page * pages->page_bytes + PAGE_HEADER_BYTES);
    if (status == 0)
        status = check_free_list(pages, page, list, list_bytes);
    free(list);
    return status;
}

static int check_tree(struct pages *pages, const struct tree *tree, enum tree_kind kind);

/* A record of the main tree: the root of a named tree. */
static int check_named(
    struct pages *pages, uint64_t page, const uint8_t *node, size_t key_bytes, uint64_t value_bytes)
{
    const char *name = (const char *)node + NODE_HEADER_BYTES;
    bool is_known = false;
    for (const char *const *known = pages->names; *known != NULL; known++)
        is_known |= strlen(*known) == key_bytes && memcmp(*known, name, key_bytes) == 0;
    if (!is_known)
        return tune_fail(pages->err, TUNE_EINVAL,
            "%s is an LMDB database, but not one of tunerd (it holds \"%.*s\"); move it away or "
            "name another folder",
            pages->path, (int)(key_bytes < 40 ? key_bytes : 40), name);
    if (get_u16(node + 4) != NODE_TREE || value_bytes != TREE_BYTES)
        return damaged(pages, page, "a named database is not one");
    struct tree tree = get_tree(node + NODE_HEADER_BYTES + key_bytes);
    if (tree.flags != 0)
        return damaged(pages, page, "a named database has unknown flags");
    return check_tree(pages, &tree, TREE_NAMED);
}

static int check_leaf_node(struct pages *pages, uint64_t page, const uint8_t *node,
    size_t value_room, enum tree_kind kind, size_t *used)
{
    uint64_t value_bytes = get_u16(node) | (uint64_t)get_u16(node + 2) << 16;
    uint16_t flags = get_u16(node + 4);
    size_t key_bytes = get_u16(node + 6);
    bool is_big = flags == NODE_BIG;
    const uint8_t *value = node + NODE_HEADER_BYTES + key_bytes;
    *used = is_big ? 8 : (size_t)value_bytes;
    if (*used > value_room)
        return damaged(pages, page, "a value runs over the page");
    if (flags != 0 && !is_big && !(kind == TREE_MAIN && flags == NODE_TREE))
        return damaged(pages, page, "a record has unknown flags");
    if (kind == TREE_MAIN)
        return check_named(pages, page, node, key_bytes, value_bytes);
    if (kind == TREE_FREE && key_bytes != 8)
        return damaged(pages, page, "a list of free pages has no transaction number");
    if (is_big && check_overflow(pages, get_u64(value), value_bytes) != 0)
        return -1;
    if (kind != TREE_FREE)
        return 0;
    return is_big ? check_large_free_list(pages, get_u64(value), value_bytes)
                  : check_free_list(pages, page, value, value_bytes);
}

/* Checks that node `index` lies inside the page and apart from the others: `taken` has a byte for
 * each two bytes of the page, for LMDB keeps nodes at even places. */
static int check_node(struct pages *pages, uint64_t page, const uint8_t *bytes, unsigned index,
    enum tree_kind kind, uint8_t *taken)
{
    size_t place = get_u16(bytes + PAGE_HEADER_BYTES + 2 * index);
    size_t end = pages->page_bytes;
    bool is_leaf = get_u16(bytes + 10) == PAGE_LEAF;
    if (place % 2 != 0 || place < get_u16(bytes + 14) || place + NODE_HEADER_BYTES > end)
        return damaged(pages, page, "a record lies outside of it");
    const uint8_t *node = bytes + place;
    size_t key_bytes = get_u16(node + 6);
    size_t key_end = place + NODE_HEADER_BYTES + key_bytes;
    if (key_bytes > 511 || key_end > end || (is_leaf && key_bytes == 0))
        return damaged(pages, page, "a key has an impossible length");
    size_t used = 0;
    if (is_leaf && check_leaf_node(pages, page, node, end - key_end, kind, &used) != 0)
        return -1;
    for (size_t at = place / 2; at < (key_end + used + 1) / 2; at++) {
        if (taken[at]++ != 0)
            return damaged(pages, page, "two records overlap");
    }
    return 0;
}

static int check_page(struct pages *pages, uint64_t page, unsigned levels, enum tree_kind kind);

static int check_nodes(
    struct pages *pages, uint64_t page, uint8_t *bytes, unsigned levels, enum tree_kind kind)
{
    size_t lower = get_u16(bytes + 12), upper = get_u16(bytes + 14);
    unsigned count = (unsigned)(lower - PAGE_HEADER_BYTES) / 2;
    /* LMDB itself leaves branches with one child in the list of free pages. */
    unsigned least = levels > 1 && kind != TREE_FREE ? 2 : 1;
    if (lower < PAGE_HEADER_BYTES || lower % 2 != 0 || lower > upper || upper > pages->page_bytes)
        return damaged(pages, page, "its bounds are impossible");
    if (count < least)
        return damaged(pages, page, "it holds too few records");
    uint8_t *taken = bytes + pages->page_bytes;
    for (unsigned i = 0; i < count; i++) {
        if (check_node(pages, page, bytes, i, kind, taken) != 0)
            return -1;
    }
    for (unsigned i = 0; levels > 1 && i < count; i++) {
        const uint8_t *node = bytes + get_u16(bytes + PAGE_HEADER_BYTES + 2 * i);
        uint64_t child =
            get_u16(node) | (uint64_t)get_u16(node + 2) << 16 | (uint64_t)get_u16(node + 4) << 32;
        if (check_page(pages, child, levels - 1, kind) != 0)
            return -1;
    }
    return 0;
}

/* `levels` counts the pages from here down to a leaf, so the recursion is bounded by DEPTH_LIMIT.
 */
static int check_page(struct pages *pages, uint64_t page, unsigned levels, enum tree_kind kind)
{
    if (atomic_load(pages->is_canceled) || mark(pages, page) != 0)
        return -1;
    uint8_t *bytes = calloc(1, pages->page_bytes + pages->page_bytes / 2 + 1);
    if (bytes == NULL)
        return tune_fail(pages->err, TUNE_ENOMEM, "no memory to check %s", pages->path);
    int status = read_at(pages, bytes, pages->page_bytes, page * pages->page_bytes);
    if (status == 0 && get_u64(bytes) != page)
        status = damaged(pages, page, "it bears another page's number");
    if (status == 0 && get_u16(bytes + 10) != (levels > 1 ? PAGE_BRANCH : PAGE_LEAF))
        status = damaged(pages, page, "it is of another kind than its place");
    if (status == 0)
        status = check_nodes(pages, page, bytes, levels, kind);
    free(bytes);
    return status;
}

static int check_tree(struct pages *pages, const struct tree *tree, enum tree_kind kind)
{
    if (tree->root == NO_PAGE && tree->depth == 0)
        return 0;
    if (tree->root == NO_PAGE || tree->depth == 0 || tree->depth > DEPTH_LIMIT)
        return damaged(pages, tree->root, "a tree of impossible depth");
    return check_page(pages, tree->root, tree->depth, kind);
}

int pages_begin(int fd, const char *path, const char *const *names, struct pages **pages,
    struct tune_error *err)
{
    struct pages *new = calloc(1, sizeof *new);
    if (new == NULL)
        return tune_fail(err, TUNE_ENOMEM, "no memory to check %s", path);
    *new = (struct pages){.fd = fd, .path = path, .names = names, .err = err};
    if (read_headers(new, &new->meta) != 0) {
        free(new);
        return -1;
    }
    *pages = new;
    return 0;
}

int pages_finish(struct pages *pages, const atomic_bool *is_canceled, struct tune_error *err)
{
    pages->err = err;
    pages->is_canceled = is_canceled;
    pages->last_page = pages->meta.last_page;
    pages->seen = calloc(1, pages->last_page / 8 + 1);
    int status = pages->seen == NULL
                     ? tune_fail(err, TUNE_ENOMEM, "no memory to check %s", pages->path)
                     : check_tree(pages, &pages->meta.main_tree, TREE_MAIN);
    if (status == 0)
        status = check_tree(pages, &pages->meta.free_tree, TREE_FREE);
    if (status != 0 && atomic_load(is_canceled))
        status = 1;
    free(pages->seen);
    free(pages);
    return status;
}

int pages_check(int fd, const char *path, const char *const *names, struct tune_error *err)
{
    static const atomic_bool never;
    struct pages *pages;
    return pages_begin(fd, path, names, &pages, err) != 0 ? -1 : pages_finish(pages, &never, err);
}

int pages_check_header(int fd, const char *path, uint64_t *txn, struct tune_error *err)
{
    struct pages pages = {.fd = fd, .path = path, .err = err};
    struct meta meta;
    if (read_headers(&pages, &meta) != 0)
        return -1;
    if (txn != NULL)
        *txn = meta.txn;
    return 0;
}
