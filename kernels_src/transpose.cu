// out[N][M] = transpose of in[M][N], row-major; elements of 2, 4 or 8 bytes; exact.
//
// VARIANT 0 (naive): one thread per element, reads along the rows, writes with stride M.
// VARIANT 1 (tiled): a block moves one TILE_M x TILE_N tile through shared memory, so that reads
//   run along the rows of `in` and writes along the rows of `out`, both by accesses of VEC
//   elements. TILE_N / VEC threads lie along a row of `in`, TILE_M / VEC along a row of `out`.
//   Where PACK is not 1 a thread transposes PACK x VEC elements in its registers, so that an access
//   to shared memory moves PACK elements too.
// VARIANT 2 (shifted): the same for rows that are not whole vectors. Rows of `in` are read by
//   aligned vectors from the last one that begins at or before the tile, one more than the tile is
//   wide. Each row of `out` has its own window, moved to the left until it begins at a sector of 32
//   bytes; the tile has as many rows more as windows can move. So every access but those at the
//   ends of rows is an aligned vector, and no sector is written by two blocks.
//
// The staged tile is read across its rows. With LAYOUT 0 (none) the lanes then hit few banks.
// 1 (pad) makes the row length odd, and lets lanes that are VEC columns or rows apart lie side by
// side; offsets stay constants. 2 (xor) permutes the columns of each row: no memory, but arithmetic
// for each word.
//
// Blocks are numbered along x only, since grid y and z end at 65,535; ORDER says which tile a block
// gets. `in` and `out` must be aligned to 32 bytes. Every variant is a copy of bits: NaN payloads
// and denormals pass through, and the result is deterministic.
#include "vectors.cuh"

#ifndef VARIANT
#define VARIANT 1 // 0 naive, 1 tiled, 2 shifted
#endif
#ifndef TILE_M
#define TILE_M 64 // rows of a block's tile
#endif
#ifndef TILE_N
#define TILE_N 64 // columns of a block's tile
#endif
#ifndef ROWS
#define ROWS 16 // rows per thread
#endif
#ifndef VEC
#define VEC 1 // elements per global access; divides M and N in VARIANT 1
#endif
#ifndef PACK
#define PACK 1 // elements per access to shared memory
#endif
#ifndef LAYOUT
#define LAYOUT 1 // 0 none, 1 pad, 2 xor
#endif
#ifndef ORDER
#define ORDER 1 // 0 columns, 1 rows, 2 diagonal; else bands of so many rows of tiles
#endif
#ifndef MIN_BLOCKS
#define MIN_BLOCKS 1 // blocks per multiprocessor that the compiler must leave registers for
#endif

#if TUNE_DTYPE_F64
typedef unsigned long long element;
#elif TUNE_DTYPE_F16
typedef unsigned short element;
#else
typedef unsigned int element;
#endif

constexpr int SIZE = sizeof(element);
constexpr int THREADS = TILE_M * TILE_N / (ROWS * VEC);

static_assert(VARIANT != 0 || (TILE_M == 32 && TILE_N == 32 && ROWS == 4 && VEC == 1 && PACK == 1 &&
                                  LAYOUT == 0 && ORDER == 1 && STREAM == 0 && MIN_BLOCKS == 1),
    "the naive variant has no tile: it stands once in the space, with 256 threads");
static_assert(TILE_M <= 2 * TILE_N && TILE_N <= 2 * TILE_M,
    "a side of the tile is at most twice the other: TILE_M and TILE_N");
static_assert(VARIANT == 0 || (TILE_M * TILE_N * SIZE >= 4096 && TILE_M * TILE_N * SIZE <= 65536),
    "a tile has 4 to 64 KiB: TILE_M * TILE_N elements");
static_assert(VEC * SIZE <= 16, "an access has at most 16 bytes: VEC elements");
static_assert(VARIANT == 0 || (ROWS * VEC * SIZE >= 32 && ROWS * VEC * SIZE <= 128),
    "a thread has 32 to 128 bytes on their way: ROWS * VEC elements");
static_assert(THREADS >= 64 && THREADS <= 1024,
    "a block has 64 to 1024 threads: TILE_M * TILE_N / (ROWS * VEC)");
static_assert(PACK == 1 || (VARIANT == 1 && PACK == VEC),
    "registers hold squares: PACK is 1, or VEC in the tiled variant");
static_assert(ROWS % PACK == 0, "a thread's rows are a whole number of squares of PACK rows");
static_assert(
    LAYOUT == 1 || VARIANT == 0 || (VARIANT == 1 && ORDER == 1 && STREAM == 0 && MIN_BLOCKS == 1),
    "the layouts none and xor stand for comparison only: tiled, ORDER rows, STREAM none, "
    "MIN_BLOCKS 1");
static_assert(MIN_BLOCKS == 1 || (MIN_BLOCKS * THREADS >= 1024 && MIN_BLOCKS * THREADS <= 2048 &&
                                     MIN_BLOCKS * THREADS * (ROWS * VEC * SIZE / 4 + 24) <= 65536),
    "MIN_BLOCKS blocks have 1024 to 2048 threads and registers for their elements, or it is 1");

#if TUNE_REFERENCE || VARIANT == 0

#if TUNE_REFERENCE
#define transpose transpose_reference
#endif

// Thread t of the grid copies element t of in, counted along the rows.
extern "C" __global__ void __launch_bounds__(256)
    transpose(const element *__restrict__ in, // [M][N]
        element *__restrict__ out,            // [N][M]
        i64 M, i64 N)
{
    const i64 index = (i64)blockIdx.x * 256 + threadIdx.x;
    if (index < M * N)
        out[index % N * M + index / N] = in[index];
}

#else

// The tile in shared memory: words of PACK elements of a column, PACK rows of the tile each.
typedef vector<element, PACK> packed;
constexpr int SECTOR = 32 / SIZE;     // elements by which VARIANT 2 aligns its windows
constexpr int LANES_N = TILE_N / VEC; // threads along a row of the tile when it is read
constexpr int LANES_M = TILE_M / VEC; // threads along a column of the tile when it is written
constexpr int STEP_M = TILE_M / ROWS; // distance of a thread's rows of words
constexpr int STEP_N = TILE_N / ROWS; // distance of a thread's rows of `out`
constexpr int WORDS = VEC / PACK;     // that make a vector of `out`
constexpr int HEIGHT = VARIANT == 2 ? TILE_M + SECTOR : TILE_M / PACK; // rows of words
constexpr int WIDTH = VARIANT == 2 ? TILE_N + VEC : TILE_N;            // words of a row
constexpr int UNIT = sizeof(packed) < 4 ? 4 / sizeof(packed) : 1;      // words of a bank
constexpr int PITCH = // words from a row to the next
    LAYOUT == 1 ? (WIDTH + UNIT - 1) / UNIT / 2 * 2 * UNIT + UNIT : WIDTH;

// Of COUNT indices, those that are STRIDE apart side by side. `step` is a constant and `v` is not.
template <int STRIDE, int COUNT> __device__ inline unsigned gathered(unsigned v, unsigned step)
{
    if (step % STRIDE == 0)
        return v % STRIDE * (COUNT / STRIDE) + v / STRIDE + step / STRIDE;
    return (v + step) % STRIDE * (COUNT / STRIDE) + (v + step) / STRIDE;
}

// Low bits for index v that differ among indices that are STRIDE apart: the bits above those
// of a slot take the places of the bits that are the same for all.
template <int STRIDE> __device__ inline unsigned spread(unsigned v)
{
    constexpr unsigned SLOTS = 128 / sizeof(packed); // words that lie in different banks
    unsigned slot = v;
#pragma unroll
    for (unsigned from = SLOTS, to = STRIDE / 2; to > 0; from *= 2, to /= 2)
        slot ^= v / from % 2 * to;
    return slot % (SLOTS < TILE_N ? SLOTS : TILE_N);
}

// Where the word of row + down and col + right lies. Lanes that write together are VEC columns
// apart, lanes that read together WORDS rows.
__device__ inline unsigned staged(unsigned row, unsigned down, unsigned col, unsigned right)
{
    if constexpr (LAYOUT == 1)
        return gathered<WORDS, HEIGHT>(row, down) * PITCH + gathered<VEC, WIDTH>(col, right);
    row += down;
    col += right;
    if constexpr (LAYOUT == 2)
        return row * PITCH + (col ^ spread<1>(col) ^ spread<VEC>(col) ^ spread<WORDS>(row));
    return row * PITCH + col;
}

// Which tile the block has. The numbers of blocks fit 31 bits, as the grid does.
__device__ inline void tile_of_block(unsigned &m, unsigned &n, unsigned tiles_m, unsigned tiles_n)
{
    const unsigned block = blockIdx.x;
    if constexpr (ORDER == 0) {
        m = block % tiles_m;
        n = block / tiles_m;
    } else if constexpr (ORDER <= 2) {
        m = block / tiles_n;
        n = block % tiles_n;
        if constexpr (ORDER == 2)
            m = (m + n) % tiles_m;
    } else {
        const unsigned band = tiles_m <= ORDER ? 0 : block / (ORDER * tiles_n);
        const unsigned left = tiles_m - band * ORDER, height = left < ORDER ? left : ORDER;
        const unsigned in_band = block - band * ORDER * tiles_n;
        m = band * ORDER + in_band % height;
        n = in_band / height;
    }
}

#if VARIANT == 1

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    transpose(const element *__restrict__ in, // [M][N]
        element *__restrict__ out,            // [N][M]
        i64 M, i64 N)
{
    extern __shared__ uint4 memory[]; // [HEIGHT][PITCH] words
    auto *tile = reinterpret_cast<packed::word_type *>(memory);
    unsigned tile_m, tile_n;
    tile_of_block(tile_m, tile_n, (unsigned)ceildiv(M, TILE_M), (unsigned)ceildiv(N, TILE_N));
    const i64 m0 = (i64)tile_m * TILE_M, n0 = (i64)tile_n * TILE_N;
    const unsigned rows = (unsigned)least(M - m0, TILE_M), cols = (unsigned)least(N - n0, TILE_N);
    vector<element, VEC> v[ROWS]; // all loads are issued before the first is used

    unsigned x = threadIdx.x % LANES_N * VEC, y = threadIdx.x / LANES_N;
    const element *from = in + (m0 + y * PACK) * N + n0 + x;
    const i64 next_square = (STEP_M * PACK - PACK + 1) * N;
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        if (y * PACK + i / PACK * STEP_M * PACK + i % PACK < rows && x < cols)
            load(v[i], from);
        from += i % PACK == PACK - 1 ? next_square : N;
    }
#pragma unroll
    for (int i = 0; i < ROWS; i += PACK)
#pragma unroll
        for (int j = 0; j < VEC; j++) {
            packed column;
#pragma unroll
            for (int p = 0; p < PACK; p++)
                column.at[p] = v[i + p].at[j];
            tile[staged(y, i / PACK * STEP_M, x, j)] = column.word;
        }
    __syncthreads();
    x = threadIdx.x % LANES_M, y = threadIdx.x / LANES_M;
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int k = 0; k < WORDS; k++) {
            packed column;
            column.word = tile[staged(x * WORDS, k, y, i * STEP_N)];
#pragma unroll
            for (int p = 0; p < PACK; p++)
                v[i].at[k * PACK + p] = column.at[p];
        }
    element *to = out + (n0 + y) * M + m0 + x * VEC;
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        if (y + i * STEP_N < cols && x * VEC < rows)
            store(to, v[i]);
        to += STEP_N * M;
    }
}

#else

constexpr int LOADS = (HEIGHT + STEP_M - 1) / STEP_M; // rows of `in` that a thread reads

static_assert(
    STEP_M % VEC == 0, "all rows of a thread are shifted alike"); // follows from the others

// An aligned vector of `in`. The array may end within the last one.
__device__ inline void load_aligned(
    vector<element, VEC> &v, const element *__restrict__ from, const element *__restrict__ end)
{
    if (VEC == 1 || from + VEC <= end)
        load(v, from);
    else
#pragma unroll
        for (int j = 0; j < VEC; j++)
            v.at[j] = from + j < end ? from[j] : 0;
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    transpose(const element *__restrict__ in, // [M][N]
        element *__restrict__ out,            // [N][M]
        i64 M, i64 N)
{
    extern __shared__ uint4 memory[]; // [HEIGHT][PITCH] elements
    auto *tile = reinterpret_cast<element *>(memory);
    unsigned tile_m, tile_n;
    tile_of_block(
        tile_m, tile_n, (unsigned)ceildiv(M + SECTOR - 1, TILE_M), (unsigned)ceildiv(N, TILE_N));
    const i64 m0 = (i64)tile_m * TILE_M, n0 = (i64)tile_n * TILE_N;
    const int cols = (int)least(N - n0, TILE_N);

    // Row r of the tile is row m0 - SECTOR + r of in. Its first vector begins `shift` elements
    // before column n0, so column c is element c + shift.
    {
        const int first = m0 == 0 ? SECTOR : 1, last = (int)least(M - m0 + SECTOR, HEIGHT);
        const int x = threadIdx.x % LANES_N * VEC, y = threadIdx.x / LANES_N;
        const element *end = in + M * N;
        const int shift = y * (int)(N % VEC) % VEC;
        const element *from = in + (m0 - SECTOR + y) * N + n0 + x - shift;
        vector<element, VEC> v[LOADS]; // all loads are issued before the first is used
#pragma unroll
        for (int i = 0; i < LOADS; i++) {
            const int row = y + i * STEP_M;
            if (row >= first && row < last && x - shift < cols)
                load_aligned(v[i], from, end);
            from += STEP_M * N;
        }
        // The vector that lies partly right of the tile, one for each row.
        constexpr int ENDS = VEC > 1 ? (HEIGHT + THREADS - 1) / THREADS : 0;
#pragma unroll
        for (int i = 0; i < ENDS; i++) {
            const int row = threadIdx.x + i * THREADS, row_shift = row * (int)(N % VEC) % VEC;
            vector<element, VEC> w;
            if (row >= first && row < last && TILE_N - row_shift < cols) {
                load_aligned(w, in + (m0 - SECTOR + row) * N + n0 + TILE_N - row_shift, end);
#pragma unroll
                for (int j = 0; j < VEC; j++)
                    tile[staged(row, 0, TILE_N, j)] = w.at[j];
            }
        }
#pragma unroll
        for (int i = 0; i < LOADS; i++)
#pragma unroll
            for (int j = 0; j < VEC; j++)
                if (HEIGHT % STEP_M == 0 || y + i * STEP_M < HEIGHT)
                    tile[staged(y, i * STEP_M, x, j)] = v[i].at[j];
    }
    __syncthreads();
    // Row n of out has the window that begins `shift` elements before column m0. Only low bits of
    // n * M count, so that `shift` is the same for all rows of a thread where STEP_N allows it.
    const int first = m0 == 0 ? 0 : -SECTOR, last = (int)least(M - m0, TILE_M);
    const int x = threadIdx.x % LANES_M * VEC, y = threadIdx.x / LANES_M;
    const unsigned low = (unsigned)(n0 + y) * (unsigned)M;
    element *to = out + (n0 + y) * M + m0 + x;
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        const int shift = (low + i * STEP_N * (unsigned)M) % SECTOR;
        const bool is_inside = x - shift >= first && x - shift + VEC <= last;
        vector<element, VEC> v;
#pragma unroll
        for (int j = 0; j < VEC; j++) {
            const unsigned down = SECTOR - shift + j; // row, but for x
            v.at[j] = tile[staged(x + down, 0, y + down * (unsigned)N % VEC, i * STEP_N)];
        }
        if (y + i * STEP_N < cols && is_inside)
            store(to - shift, v);
        else if (VEC > 1 && y + i * STEP_N < cols)
#pragma unroll
            for (int j = 0; j < VEC; j++)
                if (x - shift + j >= first && x - shift + j < last)
                    to[j - shift] = v.at[j];
        to += STEP_N * M;
    }
}

#endif
#endif
