/* libtune: the launch configuration of a tuned kernel, in microseconds. This header is its manual.
 *
 *     struct tune *tune;
 *     struct tune_error err = {0};
 *     struct tune_answer answer;
 *     struct tune_dim dims[] = {{"M", 4096}, {"N", 4096}, {"K", 4096}};
 *     struct tune_query query = {.kernel = "gemm", .dims = dims, .dim_count = 3};
 *     if (tune_open(NULL, &tune, &err) || tune_get(tune, &query, &answer, &err))
 *         fprintf(stderr, "%s\n", err.text);
 *     int64_t bm;
 *     tune_answer_param(&answer, "BM", &bm, NULL);
 *
 * Where an answer comes from, the first that has one:
 *  1. the handle's own table of what was asked before;
 *  2. the snapshot of exact answers that the daemon publishes: files mapped read-only, no socket;
 *  3. the daemon, by its socket: everything that is not exact, and cubins;
 *  4. with no daemon: what the table or the snapshot last knew; else the default of the installed
 *     manifest, with is_offline set. It is planned for the asked arch; without one, as far as it
 *     fits the smallest GPU there is (sm_75), since nobody says which it is. TUNE_CACHED is
 *     TUNE_ENOTFOUND then, and TUNE_WAIT is TUNE_ENODAEMON.
 * A new best is seen within a second: each lookup compares one number in shared memory. (Where the
 * daemon publishes nothing, what it said is asked again after half a second.) The table keeps
 * 512 answers.
 *
 * When the daemon goes away, what is known is answered at once. Only a question without any answer
 * waits for a restart: until the time limit, but no longer than 5 seconds after the daemon was
 * missed first. From then on it is looked for now and then, and found again by itself.
 *
 * Launching: tune_cuda.h, for programs that have the CUDA driver. libtune itself never touches
 * CUDA and never compiles.
 *
 * Threads. A handle may be used by any number of threads at once; it has none of its own. Lookups
 * in the table and in the snapshot do not allocate. The handle is of no use in a forked child,
 * where its functions fail: open another there (and tune_close this one).
 * Errors. 0, or -1 with *err filled (error.h; may be NULL, must be zero before).
 * Ownership. Answers are the caller's and hold no reference to the handle. */
#ifndef TUNE_H
#define TUNE_H

#include "error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- asking ----------------------------------------------------------------------------------- */

struct tune;

/* Never fails for want of a daemon: the handle then answers as in 4. and connects when one comes.
 * `socket_path` NULL: the usual ones (tune_rpc.h). Starts no daemon. */
int tune_open(const char *socket_path, struct tune **tune, struct tune_error *err);
void tune_close(struct tune *tune); /* NULL is fine; no call may be in flight */

struct tune_dim {
    const char *name;
    int64_t value;
};

enum tune_policy {
    TUNE_NEAREST, /* exact, else the best known for the nearest shape, else the default */
    TUNE_CACHED,  /* exact, or TUNE_ENOTFOUND */
    TUNE_TUNE,    /* as nearest, and what is not exact is tuned when the GPU is idle */
    TUNE_WAIT,    /* waits until it is tuned */
};

struct tune_query {
    const char *kernel;
    /* The kernel's, in any order; a choice (`tunectl describe`) by its number, or left out for the
     * first. */
    const struct tune_dim *dims;
    size_t dim_count;
    const char *dtype;      /* NULL: the first of the manifest */
    const char *mode;       /* NULL: "cold"; "warm" */
    const char *arch, *gpu; /* both NULL: the daemon's first GPU; "sm_90"; "NVIDIA H200" */
    enum tune_policy policy;
    const char *session; /* NULL, or a name: all who ask under it get the same answer, always */
};

#define TUNE_ANSWER_BYTES 8192 /* room for what one answer takes; typically under 1 KiB is used */

/* An answer in its compact form (answer.h); read it by the functions below. */
struct tune_answer {
    uint32_t length;                       /* bytes used */
    bool is_offline;                       /* no daemon answered, and the snapshot had nothing */
    uint64_t words[TUNE_ANSWER_BYTES / 8]; /* the bytes, aligned */
};

/* Never blocks longer than the time limit (tune_set_limit). TUNE_ENOTFOUND: no such kernel, or
 * TUNE_CACHED and not tuned. TUNE_ELIMIT: the answer has more than TUNE_ANSWER_BYTES. */
int tune_get(struct tune *tune, const struct tune_query *query, struct tune_answer *answer,
    struct tune_error *err);

struct tune_cubin {
    const void *bytes; /* borrowed from the handle until tune_close; equal code, equal address */
    size_t length;     /* a NUL follows */
    int sm;            /* compute capability that it was compiled for, 90 */
    bool is_ptx;       /* text that the driver compiles when it is loaded */
    int min_driver;    /* CUDA version of the compiler, 13000 for 13.0; 0: not known */
};

/* The same with the code to load. The entries of the answer's launches are then the names to look
 * up in it. Asked from the daemon once per question (some 4,000 are kept), and again after news;
 * what was loaded before is given on when the daemon is away. TUNE_ENODAEMON where no daemon can
 * give it: libtune does not compile. */
int tune_get_cubin(struct tune *tune, const struct tune_query *query, struct tune_answer *answer,
    struct tune_cubin *cubin, struct tune_error *err);

/* Time that a request to the daemon may take, in milliseconds; 30,000 at the start, and for
 * TUNE_WAIT as long as the sweep takes until this is called (-1: always as long as it takes).
 * Past it TUNE_WAIT and tune_get_cubin fail with TUNE_ETIMEOUT; tune_get otherwise answers as
 * without a daemon. */
void tune_set_limit(struct tune *tune, int limit_ms);

/* Another number each time an answer may have changed; one load from shared memory. Launchers
 * compare it to know whether what they loaded is still the best. */
uint64_t tune_generation(struct tune *tune);

/* --- sparse matrices and graphs ----------------------------------------------------------------
 */

#define TUNE_SPARSE_DIMS 7

/* What describes a matrix in the shapes of kernels that take one: ROWS, COLUMNS, NONZEROS, SPREAD,
 * LONGEST, BANDWIDTH and SKEW, in this order, into dims[TUNE_SPARSE_DIMS]. Row i has the columns
 * columns_of[offsets[i]] to columns_of[offsets[i + 1] - 1]; `offset_bytes` is 4 or 8; the arrays
 * lie in host memory. It reads all of them, once for each matrix is enough. A query takes the dims
 * that its kernel has: a graph's, which is square, has no COLUMNS. TUNE_EINVAL for what is no
 * matrix, or has no entries. */
int tune_sparse_describe_csr(int64_t rows, int64_t columns, const void *offsets, int offset_bytes,
    const int32_t *columns_of, struct tune_dim *dims, struct tune_error *err);

/* --- news ------------------------------------------------------------------------------------- */

/* Asks to be told when a sweep of this query's key (kernel, shape, dtype, mode) has ended with a
 * result. A key that is subscribed to already stays so once. At most 4,096. */
int tune_subscribe(struct tune *tune, const struct tune_query *query, struct tune_error *err);

/* For event loops (poll, epoll): readable when tune_next_event(tune, 0) should be called, until it
 * gives 0. The same for the life of the handle, whatever becomes of the daemon. Borrowed; -1: no
 * descriptors left. */
int tune_event_descriptor(struct tune *tune);

struct tune_event {
    char kernel[64];
    char shape[256]; /* canonical text, "M=64,N=64,K=64" */
    char dtype[16];
};

/* 1: an event; 0: none within limit_ms (-1: no limit), or a signal came; -1: failed. Subscriptions
 * outlive a daemon's restart, and what ended meanwhile is told then (as is what a daemon knows that
 * comes after the subscription). */
int tune_next_event(
    struct tune *tune, int limit_ms, struct tune_event *event, struct tune_error *err);

/* --- reading an answer ------------------------------------------------------------------------ */

enum tune_origin {
    TUNE_EXACT,       /* measured for this kernel, shape and arch */
    TUNE_NEAR,        /* measured on this arch for the nearest shape */
    TUNE_TRANSFERRED, /* measured on another arch */
    TUNE_DEFAULT,     /* not measured: the kernel's default */
};

struct tune_answer_info {
    enum tune_origin origin;
    bool same_gpu; /* measured on a GPU of the asked model */
    bool is_verified;
    bool is_shipped;      /* measured before, by those who made tunerd: its records came with it */
    double median_ns;     /* where it was measured; 0: never */
    double expected_loss; /* 0.05: probably within 5 % of the best; below 0: nothing is known */
    uint64_t generation;
    int sm; /* compute capability that the configuration was planned for, 90 */
    size_t param_count, launch_count, buffer_count;
    const char *kernel, *dtype, *mode, *arch, *shape;
    const char *measured_on, *measured_shape; /* "" where never */
};
void tune_answer_info(const struct tune_answer *answer, struct tune_answer_info *info);

/* A param by its name: 0, or -1 where there is none. `word` may be NULL; it gets the value's name
 * ("xor"), or NULL where the value is a plain number. Strings live as long as the answer. */
int tune_answer_param(
    const struct tune_answer *answer, const char *name, int64_t *value, const char **word);
/* The same by position, i < param_count. */
void tune_answer_param_at(const struct tune_answer *answer, size_t i, const char **name,
    int64_t *value, const char **word);

/* A kernel, a memset of a buffer, or the copy of a buffer to a variable in constant memory. */
struct tune_launch {
    bool is_memset, is_constant;
    bool is_once; /* when inputs have changed, not at each call; what it leaves in scratch is kept.
                     These come first */
    const char *buffer; /* of a memset or a copy */
    uint8_t byte;
    const char *entry; /* the kernel, or the variable that is copied to */
    uint32_t grid[3], block[3], shared_bytes;
    uint32_t cluster[3]; /* zeros: none */
    bool is_cooperative;
    uint32_t repeat; /* how many times in a row */
    uint32_t arg_count;
    const void *args; /* for tune_launch_arg */
};
/* In the order in which they are made, i < launch_count. */
void tune_answer_launch(const struct tune_answer *answer, size_t i, struct tune_launch *launch);

enum tune_arg_kind { TUNE_ARG_BUFFER, TUNE_ARG_SCALAR, TUNE_ARG_TENSOR_MAP };

struct tune_arg {
    enum tune_arg_kind kind;
    const char *name; /* of the buffer, or of a scalar that the caller has to give; else NULL */
    const char *type; /* of a scalar: "i32", "i64", "f32", "f64" */
    int64_t integer;  /* of a scalar of an integer type without a name */
    double real;      /* of one of a real type */
    /* of a tensor map, as cuTensorMapEncodeTiled wants it */
    const char *dtype, *swizzle;
    uint32_t rank;
    const int64_t *dims, *strides_bytes, *box;
};
/* i < arg_count. */
void tune_launch_arg(const struct tune_launch *launch, size_t i, struct tune_arg *arg);

struct tune_buffer {
    const char *name, *dtype, *role; /* role: "in", "out", "inout", "scratch" */
    int64_t bytes;
    bool is_zeroed_before;
};
void tune_answer_buffer(const struct tune_answer *answer, size_t i, struct tune_buffer *buffer);

#ifdef __cplusplus
}
#endif

#endif
