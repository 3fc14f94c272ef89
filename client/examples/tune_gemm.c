/* Multiplies two matrices with the tuned kernel and checks the product: all that an application
 * has to do to use tunerd.
 *
 *     cc tune_gemm.c $(pkg-config --cflags --libs tunerd) -lcuda -lm -o tune_gemm
 *     ./tune_gemm 4096 4096 4096
 *
 * (with -I/usr/local/cuda/include where cuda.h is not found). It needs a daemon, which has the
 * code: `tunectl sweep gemm` starts one. */
#if __has_include(<tunerd/tune_cuda.h>)
#include <tunerd/tune_cuda.h>
#else
#include "client/tune_cuda.h"
#endif

#include <math.h>

static void must(CUresult result, const char *what)
{
    const char *words = "no driver";
    if (result == CUDA_SUCCESS)
        return;
    cuGetErrorString(result, &words);
    fprintf(stderr, "%s: %s\n", what, words);
    exit(1);
}

/* [-1, 1), the same on every run. */
static float *random_matrix(size_t count, unsigned seed)
{
    float *matrix = malloc(count * sizeof *matrix);
    unsigned long long state = seed;
    for (size_t i = 0; matrix != NULL && i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        matrix[i] = (float)(state >> 40) / (float)(1 << 23) - 1.0f;
    }
    if (matrix == NULL)
        exit(1);
    return matrix;
}

static CUdeviceptr on_device(const float *matrix, size_t count)
{
    CUdeviceptr pointer;
    must(cuMemAlloc(&pointer, count * sizeof(float)), "allocating device memory");
    if (matrix != NULL)
        must(cuMemcpyHtoD(pointer, matrix, count * sizeof(float)), "copying to the device");
    return pointer;
}

struct product {
    size_t m, n, k;
    float *a, *b, *c;
};

/* The error of one element, in units of what f32 arithmetic allows: 2 sqrt(K) 2^-24 sum |ab|. */
static double error_at(const struct product *p, size_t row, size_t column)
{
    double sum = 0, scale = 0;
    for (size_t i = 0; i < p->k; i++) {
        double term = (double)p->a[row * p->k + i] * (double)p->b[i * p->n + column];
        sum += term;
        scale += fabs(term);
    }
    double allowed = 2 * sqrt((double)p->k) * 0x1p-24 * scale;
    double error = fabs((double)p->c[row * p->n + column] - sum);
    return error <= allowed ? error / (allowed > 0 ? allowed : 1) : INFINITY;
}

/* All elements of a small product, some thousands spread over a large one, against f64. */
static double worst_error(const struct product *p)
{
    size_t count = p->m * p->n, step = count / 4096 | 1;
    double worst = 0;
    for (size_t i = 0; i < count; i += step)
        worst = fmax(worst, error_at(p, i / p->n, i % p->n));
    return fmax(worst, error_at(p, p->m - 1, p->n - 1));
}

static void print_answer(const struct tune_answer *answer)
{
    static const char *const origins[] = {
        "measured for this shape", "from the nearest shape", "from another GPU", "the default"};
    struct tune_answer_info info;
    tune_answer_info(answer, &info);
    printf("gemm %s %s: %s;", info.dtype, info.shape, origins[info.origin]);
    for (size_t i = 0; i < info.param_count; i++) {
        const char *name, *word;
        int64_t value;
        tune_answer_param_at(answer, i, &name, &value, &word);
        if (word != NULL)
            printf(" %s=%s", name, word);
        else
            printf(" %s=%lld", name, (long long)value);
    }
    printf("\n");
}

static int multiply(struct tune *tune, const struct product *p, struct tune_error *err)
{
    struct tune_kernel *gemm = NULL;
    struct tune_answer answer;
    struct tune_dim shape[] = {{"M", (int64_t)p->m}, {"N", (int64_t)p->n}, {"K", (int64_t)p->k}};
    CUdeviceptr buffers[] = {
        on_device(p->a, p->m * p->k), on_device(p->b, p->k * p->n), on_device(NULL, p->m * p->n)};
    CUstream stream;
    must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "making a stream");

    int status = tune_kernel_open(tune, "gemm", "f32", &gemm, err) ||
                 tune_kernel_prepare(gemm, stream, shape, 3, &answer, err) ||
                 tune_kernel_launch(gemm, stream, shape, 3, buffers, 3, err);
    if (!status) {
        print_answer(&answer);
        must(cuStreamSynchronize(stream), "multiplying");
        must(cuMemcpyDtoH(p->c, buffers[2], p->m * p->n * sizeof(float)), "copying back");
    }

    tune_kernel_close(gemm);
    for (int i = 0; i < 3; i++)
        cuMemFree(buffers[i]);
    cuStreamDestroy(stream);
    return status;
}

int main(int argc, char **argv)
{
    if (argc != 1 && argc != 4) {
        fprintf(stderr, "usage: tune_gemm [M N K]\n");
        return 2;
    }
    struct product p = {1024, 1024, 1024, NULL, NULL, NULL};
    if (argc == 4) {
        p.m = strtoull(argv[1], NULL, 10);
        p.n = strtoull(argv[2], NULL, 10);
        p.k = strtoull(argv[3], NULL, 10);
    }
    p.a = random_matrix(p.m * p.k, 1);
    p.b = random_matrix(p.k * p.n, 2);
    p.c = random_matrix(p.m * p.n, 3);

    CUdevice device;
    CUcontext context;
    must(cuInit(0), "starting the driver");
    must(cuDeviceGet(&device, 0), "finding a GPU");
    must(cuDevicePrimaryCtxRetain(&context, device), "making a context");
    must(cuCtxSetCurrent(context), "making a context");

    struct tune *tune = NULL;
    struct tune_error err = {TUNE_OK, ""};
    int status = tune_open(NULL, &tune, &err) || multiply(tune, &p, &err);
    if (status) {
        fprintf(stderr, "%s\n", err.text);
    } else {
        double worst = worst_error(&p);
        status = worst > 1;
        printf("%s: the largest error is %.2f of what f32 arithmetic allows\n",
            status ? "WRONG" : "right", worst);
    }
    tune_close(tune);
    cuDevicePrimaryCtxRelease(device);
    free(p.a);
    free(p.b);
    free(p.c);
    return status;
}
