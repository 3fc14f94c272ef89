/* The served gemm against cuBLAS, over a list of shapes: same process, same timer, same memory.
 *
 *     cc tune_gemm_cublas.c $(pkg-config --cflags --libs tunerd) -lcuda -ldl -lm -o
 * tune_gemm_cublas
 *     ./tune_gemm_cublas [--json] 4096,4096,4096 8192,1,4096
 *
 * Each of the two is timed by events around one call, 25 times, in turns, with the L2 cache
 * flushed before each by a memset; medians are told. cuBLAS is loaded when the program runs
 * (CUBLAS_LIBRARY names it, else libcublas.so.13, .12, .11); without one ours is timed alone. It
 * computes in f32 without tensor cores, as ours does (its default for Sgemm). Exit status 1 where
 * the two products differ. */
#if __has_include(<tunerd/tune_cuda.h>)
#include <tunerd/tune_cuda.h>
#else
#include "client/tune_cuda.h"
#endif

#include <dlfcn.h>
#include <math.h>

#define TURNS 25
#define SAMPLE 4096 /* elements that are compared */

static void must(CUresult result, const char *what)
{
    const char *words = "no driver";
    if (result == CUDA_SUCCESS)
        return;
    cuGetErrorString(result, &words);
    fprintf(stderr, "%s: %s\n", what, words);
    exit(1);
}

static void must_tune(int status, const struct tune_error *err)
{
    if (status == 0)
        return;
    fprintf(stderr, "%s\n", err->text);
    exit(1);
}

/* --- cuBLAS, by its C interface ----------------------------------------------------------------
 */

struct cublas {
    void *handle; /* NULL: there is none */
    int (*sgemm)(void *handle, int op_a, int op_b, int m, int n, int k, const float *alpha,
        CUdeviceptr a, int lda, CUdeviceptr b, int ldb, const float *beta, CUdeviceptr c, int ldc);
};

static void *find(void *library, const char *name)
{
    return library ? dlsym(library, name) : NULL;
}

static void *open_cublas(void)
{
    const char *names[] = {
        getenv("CUBLAS_LIBRARY"), "libcublas.so.13", "libcublas.so.12", "libcublas.so.11"};
    void *library = NULL;
    for (size_t i = 0; i < sizeof names / sizeof names[0] && library == NULL; i++)
        library = names[i] ? dlopen(names[i], RTLD_NOW | RTLD_LOCAL) : NULL;
    return library;
}

static struct cublas cublas_start(CUstream stream)
{
    struct cublas cublas = {NULL, NULL};
    int (*create)(void **), (*set_stream)(void *, CUstream);
    void *library = open_cublas();
    *(void **)&create = find(library, "cublasCreate_v2");
    *(void **)&set_stream = find(library, "cublasSetStream_v2");
    *(void **)&cublas.sgemm = find(library, "cublasSgemm_v2");
    if (create == NULL || set_stream == NULL || cublas.sgemm == NULL ||
        create(&cublas.handle) != 0 || set_stream(cublas.handle, stream) != 0)
        cublas.handle = NULL;
    return cublas;
}

/* --- one shape -------------------------------------------------------------------------------- */

struct run {
    struct tune_kernel *gemm;
    struct cublas cublas;
    CUstream stream;
    CUevent from, to;
    CUdeviceptr flush;
    size_t flush_bytes;
    struct tune_dim shape[3]; /* M, N, K */
    CUdeviceptr a, b, ours, theirs;
};

static void call_ours(const struct run *run)
{
    struct tune_error err = {TUNE_OK, ""};
    CUdeviceptr buffers[] = {run->a, run->b, run->ours};
    must_tune(tune_kernel_launch(run->gemm, run->stream, run->shape, 3, buffers, 3, &err), &err);
}

/* Row-major C = A B is column-major C' = B' A'. */
static void call_theirs(const struct run *run)
{
    const float one = 1, zero = 0;
    int m = (int)run->shape[0].value, n = (int)run->shape[1].value, k = (int)run->shape[2].value;
    int status = run->cublas.sgemm(
        run->cublas.handle, 0, 0, n, m, k, &one, run->b, n, run->a, k, &zero, run->theirs, n);
    if (status != 0) {
        fprintf(stderr, "cublasSgemm gave %d\n", status);
        exit(1);
    }
}

static double time_us(const struct run *run, void (*call)(const struct run *run))
{
    float ms = 0;
    must(cuMemsetD8Async(run->flush, 0, run->flush_bytes, run->stream), "flushing");
    must(cuEventRecord(run->from, run->stream), "timing");
    call(run);
    must(cuEventRecord(run->to, run->stream), "timing");
    must(cuStreamSynchronize(run->stream), "multiplying");
    must(cuEventElapsedTime(&ms, run->from, run->to), "timing");
    return 1e3 * (double)ms;
}

static int compare_numbers(const void *a, const void *b)
{
    double first = *(const double *)a, second = *(const double *)b;
    return (first > second) - (first < second);
}

static double median(double *times)
{
    qsort(times, TURNS, sizeof *times, compare_numbers);
    return times[TURNS / 2];
}

static CUdeviceptr random_on_device(size_t count, unsigned long long state)
{
    CUdeviceptr pointer;
    float *numbers = malloc(count * sizeof *numbers);
    for (size_t i = 0; numbers != NULL && i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        numbers[i] = (float)(state >> 40) / (float)(1 << 23) - 1.0f;
    }
    if (numbers == NULL)
        exit(1);
    must(cuMemAlloc(&pointer, count * sizeof *numbers), "allocating device memory");
    must(cuMemcpyHtoD(pointer, numbers, count * sizeof *numbers), "copying to the device");
    free(numbers);
    return pointer;
}

/* The largest difference between the two products in what is compared, in units of K 2^-24: terms
 * are below 1, so each sum is off by less. */
static double difference(const struct run *run, size_t count, int64_t k)
{
    static float ours[SAMPLE], theirs[SAMPLE];
    size_t compared = count < SAMPLE ? count : SAMPLE;
    size_t skipped = (count - compared) * sizeof(float); /* the end has the tails */
    double worst = 0;
    must(cuMemcpyDtoH(ours, run->ours + skipped, compared * sizeof(float)), "copying back");
    must(cuMemcpyDtoH(theirs, run->theirs + skipped, compared * sizeof(float)), "copying back");
    for (size_t i = 0; i < compared; i++)
        worst = fmax(worst, fabs((double)ours[i] - (double)theirs[i]));
    return worst / ((double)k * 0x1p-24);
}

static void print_row(const struct run *run, const struct tune_answer *answer, double ours_us,
    double theirs_us, bool as_json, bool is_first)
{
    static const char *const origins[] = {"exact", "nearest", "transferred", "default"};
    struct tune_answer_info info;
    long long m = run->shape[0].value, n = run->shape[1].value, k = run->shape[2].value;
    tune_answer_info(answer, &info);
    if (as_json) {
        printf("%s{\"M\":%lld,\"N\":%lld,\"K\":%lld,\"origin\":\"%s\",\"ours_us\":%.3f",
            is_first ? "[" : ",\n", m, n, k, origins[info.origin], ours_us);
        if (theirs_us > 0)
            printf(",\"cublas_us\":%.3f,\"ratio\":%.4f", theirs_us, theirs_us / ours_us);
        printf("}");
        return;
    }
    if (is_first)
        printf("%8s %8s %8s  %-11s %12s %12s %8s\n", "M", "N", "K", "origin", "ours", "cuBLAS",
            "ratio");
    printf("%8lld %8lld %8lld  %-11s %9.1f us", m, n, k, origins[info.origin], ours_us);
    if (theirs_us > 0)
        printf(" %9.1f us %8.3f", theirs_us, theirs_us / ours_us);
    printf("\n");
}

/* False: the two differ. */
static bool run_shape(struct run *run, bool as_json, bool is_first)
{
    double ours[TURNS], theirs[TURNS];
    struct tune_answer answer;
    struct tune_error err = {TUNE_OK, ""};
    size_t m = (size_t)run->shape[0].value, n = (size_t)run->shape[1].value;
    size_t k = (size_t)run->shape[2].value;
    bool has_cublas = run->cublas.handle != NULL;
    run->a = random_on_device(m * k, 1);
    run->b = random_on_device(k * n, 2);
    run->ours = random_on_device(m * n, 3);
    run->theirs = random_on_device(m * n, 4);
    must_tune(tune_kernel_prepare(run->gemm, run->stream, run->shape, 3, &answer, &err), &err);
    call_ours(run); /* each once before: what is loaded or chosen at a first call is not timed */
    if (has_cublas)
        call_theirs(run);
    must(cuStreamSynchronize(run->stream), "multiplying");
    bool is_equal = !has_cublas || difference(run, m * n, run->shape[2].value) <= 2;
    for (int i = 0; i < TURNS; i++) {
        ours[i] = time_us(run, call_ours);
        theirs[i] = has_cublas ? time_us(run, call_theirs) : 0;
    }
    print_row(run, &answer, median(ours), median(theirs), as_json, is_first);
    if (!is_equal)
        fprintf(stderr, "the two products differ by more than f32 arithmetic allows\n");
    cuMemFree(run->a);
    cuMemFree(run->b);
    cuMemFree(run->ours);
    cuMemFree(run->theirs);
    return is_equal;
}

/* --- the program ------------------------------------------------------------------------------ */

static void start(struct run *run, struct tune *tune)
{
    CUdevice device;
    CUcontext context;
    int l2_bytes = 0;
    struct tune_error err = {TUNE_OK, ""};
    must(cuInit(0), "starting the driver");
    must(cuDeviceGet(&device, 0), "finding a GPU");
    must(cuDevicePrimaryCtxRetain(&context, device), "making a context");
    must(cuCtxSetCurrent(context), "making a context");
    must(cuStreamCreate(&run->stream, CU_STREAM_NON_BLOCKING), "making a stream");
    must(cuEventCreate(&run->from, CU_EVENT_DEFAULT), "making an event");
    must(cuEventCreate(&run->to, CU_EVENT_DEFAULT), "making an event");
    must(cuDeviceGetAttribute(&l2_bytes, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, device), "asking");
    run->flush_bytes = 4 * (size_t)l2_bytes;
    must(cuMemAlloc(&run->flush, run->flush_bytes), "allocating device memory");
    run->cublas = cublas_start(run->stream);
    must_tune(tune_kernel_open(tune, "gemm", "f32", &run->gemm, &err), &err);
}

static void stop(struct run *run)
{
    tune_kernel_close(run->gemm);
    cuMemFree(run->flush);
    cuEventDestroy(run->from);
    cuEventDestroy(run->to);
    cuStreamDestroy(run->stream);
}

static bool read_shape(const char *text, struct tune_dim shape[3])
{
    long long m, n, k;
    char rest;
    if (sscanf(text, "%lld,%lld,%lld%c", &m, &n, &k, &rest) != 3 || m < 1 || n < 1 || k < 1)
        return false;
    shape[0] = (struct tune_dim){"M", m};
    shape[1] = (struct tune_dim){"N", n};
    shape[2] = (struct tune_dim){"K", k};
    return true;
}

int main(int argc, char **argv)
{
    static const char *const usual[] = {"512,512,512", "1024,1024,1024", "2048,2048,2048",
        "4096,4096,4096", "4000,4096,4096", "8192,8192,8192", "16,4096,4096", "4096,16,4096",
        "256,256,65536", "1021,1019,1013"};
    bool as_json = argc > 1 && strcmp(argv[1], "--json") == 0;
    int first = as_json ? 2 : 1;
    int count = argc > first ? argc - first : (int)(sizeof usual / sizeof usual[0]);
    struct tune *tune;
    struct tune_error err = {TUNE_OK, ""};
    struct run run = {NULL};
    int status = 0;
    for (int i = 0; i < count; i++)
        if (!read_shape(argc > first ? argv[first + i] : usual[i], run.shape)) {
            fprintf(stderr, "usage: tune_gemm_cublas [--json] [M,N,K ...]\n");
            return 2;
        }
    must_tune(tune_open(NULL, &tune, &err), &err);
    start(&run, tune);
    if (run.cublas.handle == NULL)
        fprintf(stderr, "cuBLAS is not there: ours alone\n");
    for (int i = 0; i < count; i++) {
        read_shape(argc > first ? argv[first + i] : usual[i], run.shape);
        if (!run_shape(&run, as_json, i == 0))
            status = 1;
    }
    if (as_json)
        printf("]\n");
    stop(&run);
    tune_close(tune);
    return status;
}
