/* Graphs made from their description: each edge stands both ways, and each vertex has exactly the
 * neighbours that its row has room for. Every entry of a row is one end of an edge; the ends get a
 * place near their vertex and are joined two by two as they lie there. */
#include "sparse_internal.h"

#include <math.h>
#include <stdlib.h>

struct ends {
    const struct sparse_matrix *matrix;
    double reach; /* how far from its vertex an end lies at most */
    uint64_t seed;
    int64_t *starts; /* of the ends that lie at each vertex; rows + 1 */
    int32_t *owners; /* in the order of their places */
};

/* Ends that lie up to a share r of all vertices away, and are turned back at the first and the
 * last, join vertices that are (2 r - r^2) / 3 of all apart, in the mean: a third for r = 1, where
 * everything may be joined to everything. */
static double reach_of(int64_t bandwidth, int64_t vertices)
{
    double apart = (double)(bandwidth - 1) / 2 / (double)vertices;
    if (bandwidth == 0 || apart >= 1.0 / 3)
        return (double)vertices;
    return (1 - sqrt(1 - 3 * apart)) * (double)vertices;
}

static int64_t place_of(const struct ends *ends, int64_t vertex, int64_t end)
{
    struct sparse_random random = {.state = ends->seed + (uint64_t)end * 0xd1342543de82ef95ull};
    double last = (double)ends->matrix->rows;
    double place = (double)vertex + 0.5 + ends->reach * (2 * sparse_share(&random) - 1);
    place = fabs(place);
    place = place < last ? place : 2 * last - place;
    return place < last ? (int64_t)place : ends->matrix->rows - 1;
}

static void sort_ends(struct ends *ends)
{
    const struct sparse_matrix *matrix = ends->matrix;
    for (int64_t vertex = 0; vertex < matrix->rows; vertex++)
        for (int64_t end = matrix->offsets[vertex]; end < matrix->offsets[vertex + 1]; end++)
            ends->starts[place_of(ends, vertex, end) + 1]++;
    for (int64_t place = 0; place < matrix->rows; place++)
        ends->starts[place + 1] += ends->starts[place];
    for (int64_t vertex = 0; vertex < matrix->rows; vertex++)
        for (int64_t end = matrix->offsets[vertex]; end < matrix->offsets[vertex + 1]; end++)
            ends->owners[ends->starts[place_of(ends, vertex, end)]++] = (int32_t)vertex;
}

/* Those at one place came in the order of their vertices. starts[i] is where place i ends by now.
 */
static void shuffle_ends(struct ends *ends, struct sparse_random *random)
{
    for (int64_t place = 0; place < ends->matrix->rows; place++) {
        int64_t first = place > 0 ? ends->starts[place - 1] : 0;
        for (int64_t i = ends->starts[place] - 1; i > first; i--) {
            int64_t other = first + sparse_below(random, i - first + 1);
            int32_t owner = ends->owners[i];
            ends->owners[i] = ends->owners[other];
            ends->owners[other] = owner;
        }
    }
}

/* One that is left over is joined to itself. */
static void join_ends(const struct ends *ends, struct sparse_matrix *matrix)
{
    int64_t i = 0;
    for (; i + 1 < matrix->nonzeros; i += 2) {
        int32_t u = ends->owners[i], v = ends->owners[i + 1];
        matrix->columns_of[matrix->offsets[u]++] = v;
        matrix->columns_of[matrix->offsets[v]++] = u;
    }
    if (i < matrix->nonzeros)
        matrix->columns_of[matrix->offsets[ends->owners[i]]++] = ends->owners[i];
    sparse_end_placing(matrix);
}

int sparse_join(struct sparse_matrix *matrix, int64_t bandwidth, struct sparse_random *random,
    struct tune_error *err)
{
    struct ends ends = {.matrix = matrix,
        .reach = reach_of(bandwidth, matrix->rows),
        .seed = sparse_next(random),
        .starts = calloc((size_t)matrix->rows + 1, sizeof *ends.starts),
        .owners = malloc((size_t)matrix->nonzeros * sizeof *ends.owners)};
    int result = -1;
    if (ends.starts == NULL || ends.owners == NULL) {
        tune_fail(err, TUNE_ENOMEM, "no memory for a graph's edges");
    } else {
        sort_ends(&ends);
        shuffle_ends(&ends, random);
        join_ends(&ends, matrix);
        result = sparse_sort_rows(matrix, err);
    }
    free(ends.starts);
    free(ends.owners);
    return result;
}

/* Sums of the entries' hashes, once as they stand and once the other way round. */
bool sparse_is_symmetric(const struct sparse_matrix *matrix)
{
    uint64_t sum = 0;
    if (matrix->rows != matrix->columns)
        return false;
    for (int64_t row = 0; row < matrix->rows; row++)
        for (int64_t i = matrix->offsets[row]; i < matrix->offsets[row + 1]; i++) {
            uint64_t u = (uint64_t)row, v = (uint64_t)matrix->columns_of[i];
            sum += sparse_mix(u << 32 | v) - sparse_mix(v << 32 | u);
        }
    return sum == 0;
}
