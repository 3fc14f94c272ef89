/* See record_set.h. Lines are kept, not rows: a line takes a third of what its struct would. */
#include "record_set.h"
#include "record_line.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define PARTS 4 /* of an identity: key, configuration, GPU, run */

struct row {
    struct record_hash id[PARTS];
    char *line; /* canonical */
};

struct record_set {
    struct row *rows;
    size_t count, room;
    const char **standing; /* of the last join */
};

struct record_set *record_set_create(void)
{
    return calloc(1, sizeof(struct record_set));
}

void record_set_destroy(struct record_set *set)
{
    if (set == NULL)
        return;
    for (size_t i = 0; i < set->count; i++)
        free(set->rows[i].line);
    free(set->rows);
    free(set->standing);
    free(set);
}

static int make_room(struct record_set *set, struct tune_error *err)
{
    if (set->count < set->room)
        return 0;
    size_t room = set->room * 2 + 64;
    struct row *rows = realloc(set->rows, room * sizeof *rows);
    if (rows == NULL)
        return tune_fail(err, TUNE_ENOMEM, "no memory for more than %zu records", set->count);
    set->rows = rows;
    set->room = room;
    return 0;
}

int record_set_add(struct record_set *set, const char *line, size_t length, struct tune_error *err)
{
    struct sample sample;
    if (make_room(set, err) || record_line_parse(line, length, &sample, err))
        return -1;
    struct row *row = &set->rows[set->count];
    row->id[0] = record_key_hash(&sample.key);
    row->id[1] = record_text_hash(sample.config);
    row->id[2] = record_text_hash(sample.gpu_uuid);
    row->id[3] = record_text_hash(sample.run);
    char *text = record_line_format(&sample, &length, err);
    sample_finish(&sample);
    row->line = text == NULL ? NULL : strdup(text); /* without the room that it grew in */
    free(text);
    if (row->line == NULL)
        return tune_fail(err, TUNE_ENOMEM, "no memory for more than %zu records", set->count);
    set->count++;
    return 0;
}

static int compare_ids(const void *left, const void *right)
{
    const struct row *a = left, *b = right;
    return memcmp(a->id, b->id, sizeof a->id);
}

static int compare_lines(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

/* Of two different lines of one identity. They were parsed before, so only memory can lack. */
static int precedence(const char *a, const char *b, int *order)
{
    struct sample left, right = {0};
    int status = record_line_parse(a, strlen(a), &left, NULL);
    if (status == 0)
        status = record_line_parse(b, strlen(b), &right, NULL);
    if (status == 0)
        *order = sample_precedence(&left, &right);
    sample_finish(&left);
    sample_finish(&right);
    return status;
}

/* The line that stands of rows[0..count), which have one identity; NULL without memory. */
static const char *choose(
    const struct row *rows, size_t count, const char **lines, struct record_set_counts *counts)
{
    for (size_t i = 0; i < count; i++)
        lines[i] = rows[i].line;
    qsort(lines, count, sizeof *lines, compare_lines);
    const char *standing = lines[0];
    for (size_t i = 1; i < count; i++) {
        int order = 0;
        if (strcmp(lines[i - 1], lines[i]) == 0) {
            counts->equal++;
            continue;
        }
        counts->superseded++;
        if (precedence(standing, lines[i], &order))
            return NULL;
        if (order > 0)
            standing = lines[i];
    }
    return standing;
}

/* Writes the lines that stand to the front of `lines`, which has room for all rows. */
static int choose_all(struct record_set *set, const char **lines, struct record_set_counts *counts)
{
    for (size_t i = 0, end; i < set->count; i = end) {
        for (end = i + 1; end < set->count && compare_ids(&set->rows[i], &set->rows[end]) == 0;)
            end++;
        /* The rest of `lines` is free for sorting: fewer lines stand than rows were looked at. */
        const char *standing = choose(&set->rows[i], end - i, lines + counts->standing, counts);
        if (standing == NULL)
            return -1;
        lines[counts->standing++] = standing;
    }
    return 0;
}

const char *const *record_set_join(struct record_set *set, struct record_set_counts *counts)
{
    *counts = (struct record_set_counts){.rows = set->count};
    const char **lines = realloc(set->standing, (set->count + 1) * sizeof *lines);
    if (lines == NULL)
        return NULL;
    set->standing = lines;
    if (set->count > 0)
        qsort(set->rows, set->count, sizeof set->rows[0], compare_ids);
    if (choose_all(set, lines, counts))
        return NULL;
    if (counts->standing > 0)
        qsort(lines, counts->standing, sizeof *lines, compare_lines);
    return lines;
}
