// Checks and times configurations of the three kernels straight from kernels_src, beside the
// vendor's libraries under the same timer. For whoever changes a kernel: it needs neither daemon
// nor manifest.
//
//   nvcc -O2 -std=c++17 -arch=sm_90 sweep.cu -o sweep -lnvrtc -lcublas -lcuda
//   ./sweep KERNELS_SRC [gemm|transpose|reduce|check|large]... [--top N]
//
// All configurations are compiled first, by one thread per core. Each is checked on small awkward
// shapes, then timed: L2 flushed by a memset, two events, the median of RUNS launches; a candidate
// far behind after two launches is dropped. `check` only runs one configuration per variant on
// small shapes, for compute-sanitizer; `large` one on matrices of more than 2^31 elements.
#include <cub/cub.cuh>
#include <cublas_v2.h>
#include <cuda.h>
#include <nvrtc.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

typedef long long i64;
typedef std::map<std::string, int> config;

static const int RUNS = 15;
static int top_count = 8;
static std::string source_dir, arch_option;

#define CU(call) check_driver(call, #call)
#define RT(call) check_driver((CUresult)(call), #call)

static void check_driver(CUresult result, const char *what)
{
    const char *name = "?";
    if (result == CUDA_SUCCESS)
        return;
    cuGetErrorName(result, &name);
    fprintf(stderr, "%s: %s (%d)\n", what, name, (int)result);
    exit(1);
}

static i64 ceildiv(i64 a, i64 b)
{
    return (a + b - 1) / b;
}

// --- compiling ----------------------------------------------------------------------------------

struct build {
    std::string source;
    config defines;
    std::vector<char> image;
    CUmodule module;

    CUfunction function(const char *name)
    {
        CUfunction f;
        CU(cuModuleGetFunction(&f, module, name));
        return f;
    }
};

static std::string read_file(const std::string &path)
{
    std::ifstream in(path);
    std::stringstream text;
    text << in.rdbuf();
    if (text.str().empty()) {
        fprintf(stderr, "cannot read %s\n", path.c_str());
        exit(1);
    }
    return text.str();
}

static std::string text_of(const config &c)
{
    std::string text;
    for (auto &d : c)
        text += (text.empty() ? "" : " ") + d.first + "=" + std::to_string(d.second);
    return text;
}

static void compile(build &b)
{
    const std::string text = read_file(source_dir + "/" + b.source);
    const char *const names[] = {"common.cuh", "small_floats.cuh", "vectors.cuh"};
    std::vector<std::string> headers;
    std::vector<const char *> texts;
    for (const char *name : names)
        headers.push_back(read_file(source_dir + "/" + name));
    for (auto &header : headers)
        texts.push_back(header.c_str());
    nvrtcProgram program;
    nvrtcCreateProgram(
        &program, text.c_str(), b.source.c_str(), (int)texts.size(), texts.data(), names);
    std::vector<std::string> options = {arch_option, "--std=c++17"};
    for (auto &d : b.defines)
        options.push_back("-D" + d.first + "=" + std::to_string(d.second));
    std::vector<const char *> pointers;
    for (auto &o : options)
        pointers.push_back(o.c_str());
    if (nvrtcCompileProgram(program, (int)pointers.size(), pointers.data()) != NVRTC_SUCCESS) {
        size_t size;
        nvrtcGetProgramLogSize(program, &size);
        std::vector<char> log(size + 1);
        nvrtcGetProgramLog(program, log.data());
        fprintf(stderr, "%s %s\n%s\n", b.source.c_str(), text_of(b.defines).c_str(), log.data());
        exit(1);
    }
    size_t size;
    nvrtcGetCUBINSize(program, &size);
    b.image.resize(size);
    nvrtcGetCUBIN(program, b.image.data());
    nvrtcDestroyProgram(&program);
}

static void compile_all(std::vector<build> &builds)
{
    std::atomic<size_t> next(0);
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < std::thread::hardware_concurrency(); t++)
        threads.emplace_back([&] {
            for (size_t i; (i = next++) < builds.size();)
                compile(builds[i]);
        });
    for (auto &t : threads)
        t.join();
    for (auto &b : builds)
        CU(cuModuleLoadData(&b.module, b.image.data()));
}

static void launch(CUfunction f, i64 grid, int block, int shared, std::vector<void *> args)
{
    if (shared > 48 * 1024)
        CU(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared));
    CU(cuLaunchKernel(f, (unsigned)grid, 1, 1, block, 1, 1, shared, 0, args.data(), NULL));
}

// --- timing -------------------------------------------------------------------------------------

static char *flush_buffer;
static const size_t FLUSH_BYTES = 256 << 20;

static float time_once(const std::function<void()> &call)
{
    static cudaEvent_t start, stop;
    if (!start) {
        cudaEventCreate(&start);
        cudaEventCreate(&stop);
    }
    RT(cudaMemsetAsync(flush_buffer, 0, FLUSH_BYTES));
    RT(cudaEventRecord(start));
    call();
    RT(cudaEventRecord(stop));
    RT(cudaEventSynchronize(stop));
    float ms;
    cudaEventElapsedTime(&ms, start, stop);
    return ms * 1000;
}

// Median of RUNS launches in us, or the best of two when that is far above `best`.
static float time_call(const std::function<void()> &call, float best = 1e30f)
{
    std::vector<float> us = {time_once(call), time_once(call)};
    const float quick = std::min(us[0], us[1]);
    if (quick > 1.08f * best)
        return quick;
    while ((int)us.size() < RUNS)
        us.push_back(time_once(call));
    std::sort(us.begin(), us.end());
    return us[us.size() / 2];
}

struct row {
    float us;
    std::string text;
};

static void print_table(
    const char *title, std::vector<row> rows, float vendor, double work, const char *unit)
{
    std::sort(rows.begin(), rows.end(), [](const row &a, const row &b) { return a.us < b.us; });
    printf("%s: %zu configurations, vendor %.2f us = %.3f %s\n", title, rows.size(), vendor,
        work / vendor * 1e-6, unit);
    for (size_t i = 0; i < rows.size() && (int)i < top_count; i++)
        printf("  %9.2f us %8.3f %s %5.3f x  %s\n", rows[i].us, work / rows[i].us * 1e-6, unit,
            vendor / rows[i].us, rows[i].text.c_str());
    fflush(stdout);
}

// --- data and comparison ------------------------------------------------------------------------

__global__ void fill(float *to, i64 count, unsigned seed)
{
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += (i64)gridDim.x * blockDim.x) {
        unsigned h = (unsigned)(i * 2654435761u) ^ (unsigned)(i >> 32) ^ seed;
        h ^= h >> 16, h *= 0x7feb352du, h ^= h >> 15, h *= 0x846ca68bu, h ^= h >> 16;
        to[i] = (float)(int)h * (1.0f / 2147483648.0f);
    }
}

// worst = max |x - ref| / (factor * scale), as float bits. NaN must meet NaN, an infinity the same
// one; else the error counts as infinite.
__global__ void compare(const float *x, const double *ref, const double *scale, double factor,
    i64 count, unsigned *worst)
{
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += (i64)gridDim.x * blockDim.x) {
        const bool is_same = isnan(ref[i]) ? isnan(x[i]) : isinf(ref[i]) && x[i] == ref[i];
        const double error = is_same ? 0 : fabs(x[i] - ref[i]) / (factor * scale[i] + 1e-300);
        atomicMax(worst, error <= 1e30 ? __float_as_uint((float)error) : 0x7f800000u);
    }
}

__global__ void compare_transposed(const float *in, const float *out, i64 M, i64 N, unsigned *wrong)
{
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < M * N;
         i += (i64)gridDim.x * blockDim.x)
        if (__float_as_uint(out[i % N * M + i / N]) != __float_as_uint(in[i]))
            atomicAdd(wrong, 1);
}

static float *A, *B, *C, *partial;
static double *ref, *scale, *scratch_sums, *scratch_squares;
static unsigned *result;
static int failures;

static unsigned read_result(void)
{
    unsigned value;
    RT(cudaDeviceSynchronize());
    RT(cudaMemcpy(&value, result, 4, cudaMemcpyDeviceToHost));
    RT(cudaMemset(result, 0, 4));
    return value;
}

static void verdict(float error, const build &b, const char *shape)
{
    if (error <= 1)
        return;
    failures++;
    printf("WRONG %g %s %s\n", error, text_of(b.defines).c_str(), shape);
}

static float compare_f64(double factor, i64 count)
{
    compare<<<1024, 256>>>(C, ref, scale, factor, count, result);
    const unsigned bits = read_result();
    float error;
    memcpy(&error, &bits, 4);
    return error;
}

// --- gemm ---------------------------------------------------------------------------------------

struct shape {
    i64 M, N, K;
};

static bool gemm_valid(const config &c, const shape &s, int sms)
{
    const i64 tiles = ceildiv(s.M, c.at("BM")) * ceildiv(s.N, c.at("BN")), split = c.at("SPLIT_K");
    if (c.at("VEC") > 1 && (s.K % c.at("VEC") || s.N % c.at("VEC")))
        return false;
    if ((c.at("BM") > 32 && c.at("BM") >= 2 * s.M) || (c.at("BN") > 32 && c.at("BN") >= 2 * s.N))
        return false;
    return split == 1 || (split * c.at("BK") <= s.K && tiles * split <= 4 * sms);
}

static void gemm_run(build &b, shape s)
{
    const config &c = b.defines;
    const int threads = c.at("BM") / c.at("TM") * (c.at("BN") / c.at("TN")),
              split = c.at("SPLIT_K");
    const bool naive = c.at("VARIANT") == 0;
    const i64 tiles = ceildiv(s.M, c.at("BM")) * ceildiv(s.N, c.at("BN"));
    const int shared =
        naive ? 0 : 4 * c.at("STAGES") * c.at("BK") * (c.at("BM") + c.at("PAD") + c.at("BN"));
    launch(b.function("gemm"), naive ? ceildiv(s.M * s.N, threads) : tiles * split, threads, shared,
        {&A, &B, &C, &partial, &s.M, &s.N, &s.K});
    i64 count = s.M * s.N;
    if (split > 1)
        launch(b.function("gemm_sum"), ceildiv(count, 256), 256, 0, {&partial, &C, &count});
}

static void gemm_reference(build &b, shape s)
{
    launch(b.function("gemm_reference"), ceildiv(s.M, 32) * ceildiv(s.N, 32), 256, 0,
        {&A, &B, &ref, &scale, &s.M, &s.N, &s.K});
}

static float gemm_error(build &b, const shape &s)
{
    RT(cudaMemset(C, 0xff, s.M * s.N * 4));
    gemm_run(b, s);
    return compare_f64(2 * sqrt((double)s.K) * pow(2, -24), s.M * s.N);
}

// Values for a name, tried one with another.
typedef std::vector<std::pair<const char *, std::vector<int>>> grid;

static void expand(const grid &g, size_t at, config &c,
    const std::function<bool(const config &)> &keep, const char *source, std::vector<build> &out)
{
    if (at == g.size()) {
        if (keep(c))
            out.push_back({source, c, {}, NULL});
        return;
    }
    for (int value : g[at].second) {
        c[g[at].first] = value;
        expand(g, at + 1, c, keep, source, out);
    }
}

static bool gemm_params_valid(const config &c)
{
    const int threads = c.at("BM") / c.at("TM") * (c.at("BN") / c.at("TN"));
    return threads >= 64 && threads <= 512 && c.at("UNROLL") <= c.at("BK") &&
           !(c.at("SWIZZLE") && c.at("PAD")) &&
           c.at("MIN_BLOCKS") * threads * c.at("TM") * c.at("TN") <= 40960;
}

static void gemm_check(
    std::vector<build> &builds, build &reference, const std::vector<shape> &shapes, int sms)
{
    for (const shape &s : shapes) {
        gemm_reference(reference, s);
        char text[80];
        snprintf(text, sizeof text, "%lldx%lldx%lld", s.M, s.N, s.K);
        for (auto &b : builds)
            if (gemm_valid(b.defines, s, sms))
                verdict(gemm_error(b, s), b, text);
    }
}

static void gemm_time(std::vector<build> &builds, const shape &s, int sms, cublasHandle_t blas)
{
    const float one = 1, zero = 0;
    const float vendor = time_call([&] {
        cublasSgemm(blas, CUBLAS_OP_N, CUBLAS_OP_N, (int)s.N, (int)s.M, (int)s.K, &one, B, (int)s.N,
            A, (int)s.K, &zero, C, (int)s.N);
    });
    std::vector<row> rows;
    float best = 1e30f;
    for (auto &b : builds) {
        if (!gemm_valid(b.defines, s, sms))
            continue;
        const float us = time_call([&] { gemm_run(b, s); }, best);
        best = std::min(best, us);
        rows.push_back({us, text_of(b.defines)});
    }
    char title[80];
    snprintf(title, sizeof title, "gemm %lldx%lldx%lld", s.M, s.N, s.K);
    print_table(title, rows, vendor, 2.0 * s.M * s.N * s.K, "TFLOP/s");
}

static void gemm(int sms)
{
    std::vector<build> builds, reference = {{"gemm.cu", {{"TUNE_REFERENCE", 1}}, {}, NULL}};
    config c;
    auto keep = [](const config &c) {
        if (c.at("VEC") == 1 && c.at("STAGES") == 1)
            return false;
        return gemm_params_valid(c);
    };
    const grid large = {{"VARIANT", {1}}, {"BM", {64, 128, 256}}, {"BN", {64, 128, 256}},
        {"BK", {8, 16, 32}}, {"TM", {8}}, {"TN", {8, 16}}, {"PAD", {0, 1, 4}}, {"SWIZZLE", {0, 1}},
        {"VEC", {1, 4}}, {"STAGES", {1, 2}}, {"SPLIT_K", {1}}, {"UNROLL", {8, 16}},
        {"MIN_BLOCKS", {1, 2}}};
    const grid small = {{"VARIANT", {1}}, {"BM", {16, 32, 64}}, {"BN", {32, 64, 128}},
        {"BK", {16, 32}}, {"TM", {4, 8}}, {"TN", {4, 8}}, {"PAD", {0}}, {"SWIZZLE", {1}},
        {"VEC", {4}}, {"STAGES", {2}}, {"SPLIT_K", {1, 4, 8, 32, 128}}, {"UNROLL", {8, 16}},
        {"MIN_BLOCKS", {1}}};
    const grid naive = {{"VARIANT", {0}}, {"BM", {64}}, {"BN", {64}}, {"BK", {8}}, {"TM", {4}},
        {"TN", {4}}, {"PAD", {0}}, {"SWIZZLE", {0}}, {"VEC", {1}}, {"STAGES", {1}},
        {"SPLIT_K", {1}}, {"UNROLL", {8}}, {"MIN_BLOCKS", {1}}};
    expand(large, 0, c, keep, "gemm.cu", builds);
    expand(small, 0, c, gemm_params_valid, "gemm.cu", builds);
    expand(naive, 0, c, gemm_params_valid, "gemm.cu", builds);
    compile_all(builds);
    compile_all(reference);
    printf("gemm: %zu compiled\n", builds.size());
    gemm_check(builds, reference[0], {{257, 193, 129}, {260, 196, 132}, {1024, 1024, 1024}}, sms);
    cublasHandle_t blas;
    cublasCreate(&blas);
    for (const shape &s : std::vector<shape>{{4096, 4096, 4096}, {4095, 4095, 4095},
             {1024, 1024, 1024}, {16, 4096, 4096}, {64, 64, 262144}})
        gemm_time(builds, s, sms, blas);
    cublasDestroy(blas);
}

// --- transpose ----------------------------------------------------------------------------------

static void transpose_run(build &b, shape s)
{
    const config &c = b.defines;
    const int tile_m = c.at("TILE_M"), tile_n = c.at("TILE_N");
    const bool naive = c.at("VARIANT") == 0;
    launch(b.function("transpose"),
        naive ? ceildiv(s.M * s.N, 256) : ceildiv(s.M, tile_m) * ceildiv(s.N, tile_n),
        tile_m * tile_n / (c.at("ROWS") * c.at("VEC")),
        naive ? 0 : 4 * tile_m * (tile_n + (c.at("LAYOUT") == 1)), {&A, &C, &s.M, &s.N});
}

static void transpose_check(std::vector<build> &builds, const std::vector<shape> &shapes)
{
    for (const shape &s : shapes)
        for (auto &b : builds) {
            if (s.M % b.defines["VEC"] || s.N % b.defines["VEC"])
                continue;
            RT(cudaMemset(C, 0xff, s.M * s.N * 4));
            transpose_run(b, s);
            compare_transposed<<<1024, 256>>>(A, C, s.M, s.N, result);
            char text[80];
            snprintf(text, sizeof text, "%lldx%lld", s.M, s.N);
            verdict((float)read_result() * 2, b, text);
        }
}

static bool transpose_params_valid(const config &c)
{
    const int tile_m = c.at("TILE_M"), tile_n = c.at("TILE_N"), each = c.at("ROWS") * c.at("VEC");
    const int threads = tile_m * tile_n / each;
    if (c.at("VARIANT") == 0)
        return tile_m == 32 && tile_n == 32 && c.at("ROWS") == 4 && each == 4 && !c.at("LAYOUT");
    return tile_m <= 2 * tile_n && tile_n <= 2 * tile_m && each >= 8 && each <= 32 &&
           threads >= 64 && threads <= 1024;
}

static std::vector<build> transpose_builds(void)
{
    std::vector<build> builds;
    config c;
    const grid all = {{"VARIANT", {0, 1}}, {"TILE_M", {32, 64, 128}}, {"TILE_N", {32, 64, 128}},
        {"ROWS", {2, 4, 8, 16, 32}}, {"VEC", {1, 2, 4}}, {"LAYOUT", {0, 1, 2}}};
    expand(all, 0, c, transpose_params_valid, "transpose.cu", builds);
    return builds;
}

static void transpose(cublasHandle_t blas)
{
    std::vector<build> builds = transpose_builds();
    compile_all(builds);
    transpose_check(builds, {{1, 1}, {257, 131}, {1, 100003}, {100003, 1}, {1020, 516}});
    for (const shape &s : std::vector<shape>{{8192, 8192, 1}, {4096, 4096, 1}, {4095, 4095, 1}}) {
        const float one = 1, zero = 0;
        const float vendor = time_call([&] {
            cublasSgeam(blas, CUBLAS_OP_T, CUBLAS_OP_N, (int)s.M, (int)s.N, &one, A, (int)s.N,
                &zero, C, (int)s.M, C, (int)s.M);
        });
        std::vector<row> rows;
        float best = 1e30f;
        for (auto &b : builds) {
            if (s.M % b.defines["VEC"] || s.N % b.defines["VEC"])
                continue;
            const float us = time_call([&] { transpose_run(b, s); }, best);
            best = std::min(best, us);
            rows.push_back({us, text_of(b.defines)});
        }
        char title[80];
        snprintf(title, sizeof title, "transpose %lldx%lld", s.M, s.N);
        print_table(title, rows, vendor, 8.0 * s.M * s.N, "TB/s");
    }
}

// --- reduce -------------------------------------------------------------------------------------

static void reduce_run(build &b, i64 N, int sms)
{
    const config &c = b.defines;
    const i64 tiles = ceildiv(N, c.at("BLOCK") * c.at("ITEMS"));
    i64 blocks = std::min(tiles, (i64)c.at("BLOCKS_PER_SM") * sms);
    i64 part = tiles / blocks, longer = tiles % blocks;
    int count = (int)blocks;
    void *no_tickets = NULL;
    const bool atomic = c.at("VARIANT") == 3;
    if (atomic)
        RT(cudaMemsetAsync(C, 0, 4));
    launch(b.function("reduce"), blocks, c.at("BLOCK"), 0,
        {&A, &C, &partial, &no_tickets, &N, &part, &longer});
    if (!atomic && blocks > 1)
        launch(b.function("reduce_final"), 1, c.at("BLOCK"), 0, {&partial, &C, &count});
}

static void reduce_check(
    std::vector<build> &builds, build &reference, const std::vector<i64> &sizes, int sms)
{
    float largest = 0;
    for (i64 N : sizes) {
        i64 blocks = std::min((i64)1024, ceildiv(N, 4096));
        launch(reference.function("reduce_reference"), blocks, 256, 0,
            {&A, &scratch_sums, &scratch_squares, &N});
        launch(reference.function("reduce_reference_final"), 1, 256, 0,
            {&scratch_sums, &scratch_squares, &ref, &scale, &blocks});
        const double terms =
            (double)std::min(N, 32 + std::min((i64)32768, ceildiv(N, 512)) + ceildiv(N, 16384));
        for (auto &b : builds) {
            RT(cudaMemset(C, 0xff, 4));
            reduce_run(b, N, sms);
            const float error = compare_f64(4 * sqrt(terms) * pow(2, -24), 1);
            largest = std::max(largest, error);
            verdict(error, b, std::to_string(N).c_str());
        }
    }
    printf("reduce: largest error %.3f of what is allowed\n", largest);
}

static std::vector<build> reduce_builds(void)
{
    std::vector<build> builds;
    config c;
    const grid all = {{"VARIANT", {0, 1, 2, 3}}, {"BLOCK", {128, 256, 512, 1024}},
        {"ITEMS", {4, 8, 16, 32}}, {"VEC", {1, 2, 4}}, {"BLOCKS_PER_SM", {1, 2, 4, 8, 16, 32, 64}}};
    auto keep = [](const config &c) {
        const int threads = c.at("BLOCK") * c.at("BLOCKS_PER_SM");
        const bool is_usual = c.at("BLOCK") == 256 && c.at("ITEMS") == 8 && threads == 2048;
        return threads <= 8192 && threads >= 1024 && (c.at("VEC") == 4 || c.at("BLOCK") == 256) &&
               (c.at("VARIANT") > 1 || (is_usual && c.at("VEC") == 4));
    };
    expand(all, 0, c, keep, "reduce.cu", builds);
    return builds;
}

static void reduce(int sms)
{
    std::vector<build> builds = reduce_builds(),
                       reference = {{"reduce.cu", {{"TUNE_REFERENCE", 1}}, {}, NULL}};
    compile_all(builds);
    compile_all(reference);
    reduce_check(builds, reference[0], {1, 2, 31, 1000003, 1 << 28}, sms);
    for (i64 N : std::vector<i64>{1 << 28, 1 << 24}) {
        void *temp = NULL;
        size_t temp_bytes = 0;
        cub::DeviceReduce::Sum(temp, temp_bytes, A, C, (int)N);
        RT(cudaMalloc(&temp, temp_bytes));
        const float vendor =
            time_call([&] { cub::DeviceReduce::Sum(temp, temp_bytes, A, C, (int)N); });
        RT(cudaFree(temp));
        std::vector<row> rows;
        float best = 1e30f;
        for (auto &b : builds) {
            const float us = time_call([&] { reduce_run(b, N, sms); }, best);
            best = std::min(best, us);
            rows.push_back({us, text_of(b.defines)});
        }
        char title[80];
        snprintf(title, sizeof title, "reduce %lld", N);
        print_table(title, rows, vendor, 4.0 * N, "TB/s");
    }
}

// --- one of each variant, small, for compute-sanitizer
// --------------------------------------------

static void check_variants(int sms)
{
    std::vector<build> gemms, transposes, reduces,
        references = {{"gemm.cu", {{"TUNE_REFERENCE", 1}}, {}, NULL},
            {"reduce.cu", {{"TUNE_REFERENCE", 1}}, {}, NULL}};
    config c;
    const grid tiled = {{"VARIANT", {1}}, {"BM", {64}}, {"BN", {32}}, {"BK", {8}}, {"TM", {4}},
        {"TN", {4}}, {"PAD", {0, 1}}, {"SWIZZLE", {0, 1}}, {"VEC", {1, 4}}, {"STAGES", {1, 2}},
        {"SPLIT_K", {1, 4}}, {"UNROLL", {8}}, {"MIN_BLOCKS", {1}}};
    expand(tiled, 0, c, gemm_params_valid, "gemm.cu", gemms);
    gemms.push_back({"gemm.cu",
        {{"VARIANT", 0}, {"BM", 64}, {"BN", 64}, {"BK", 8}, {"TM", 4}, {"TN", 4}, {"PAD", 0},
            {"SWIZZLE", 0}, {"VEC", 1}, {"STAGES", 1}, {"SPLIT_K", 1}, {"UNROLL", 8},
            {"MIN_BLOCKS", 1}},
        {}, NULL});
    for (auto &b : transpose_builds())
        if (b.defines["VARIANT"] == 0 || (b.defines["TILE_M"] == 64 && b.defines["TILE_N"] == 64 &&
                                             b.defines["ROWS"] == 8 && b.defines["VEC"] != 2))
            transposes.push_back(b);
    for (auto &b : reduce_builds())
        if (b.defines["BLOCK"] == 256 && b.defines["ITEMS"] == 8 && b.defines["VEC"] == 4 &&
            b.defines["BLOCKS_PER_SM"] == 8)
            reduces.push_back(b);
    compile_all(gemms);
    compile_all(transposes);
    compile_all(reduces);
    compile_all(references);
    gemm_check(gemms, references[0], {{71, 45, 67}, {72, 44, 68}}, sms);
    // NaN and infinity reach the elements that they should, and no others.
    const float special[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++)
        RT(cudaMemcpy(A + 68 * (3 + 20 * i) + 5 + i, &special[i], 4, cudaMemcpyHostToDevice));
    gemm_check(gemms, references[0], {{72, 44, 68}, {71, 45, 67}}, sms);
    transpose_check(transposes, {{70, 45, 1}, {72, 44, 1}});
    reduce_check(reduces, references[1], {300, 10007}, sms); // NaN
    fill<<<4096, 256>>>(A, 1 << 22, 1);
    RT(cudaMemcpy(A + 77, &special[2], 4, cudaMemcpyHostToDevice));
    reduce_check(reduces, references[1], {300, 10007}, sms); // -infinity
    fill<<<4096, 256>>>(A, 1 << 22, 1);
    reduce_check(reduces, references[1], {10007, 1000003}, sms);
    printf("checked %zu gemm, %zu transpose, %zu reduce\n", gemms.size(), transposes.size(),
        reduces.size());
}

// --- more than 2^31 elements
// ----------------------------------------------------------------------

static const size_t LARGE_FLOATS = ((size_t)1 << 31) + (1 << 24);

static config defaults_of(const char *kernel)
{
    if (!strcmp(kernel, "transpose"))
        return {{"VARIANT", 1}, {"TILE_M", 64}, {"TILE_N", 64}, {"ROWS", 16}, {"VEC", 1},
            {"LAYOUT", 1}};
    if (!strcmp(kernel, "reduce"))
        return {{"VARIANT", 2}, {"BLOCK", 512}, {"ITEMS", 32}, {"VEC", 4}, {"BLOCKS_PER_SM", 4}};
    return {{"VARIANT", 1}, {"BM", 64}, {"BN", 128}, {"BK", 16}, {"TM", 8}, {"TN", 8}, {"PAD", 4},
        {"SWIZZLE", 0}, {"VEC", 1}, {"STAGES", 2}, {"SPLIT_K", 1}, {"UNROLL", 8},
        {"MIN_BLOCKS", 2}};
}

static void check_large(int sms)
{
    std::vector<build> builds;
    for (const char *kernel : {"gemm", "transpose", "reduce"}) {
        builds.push_back({std::string(kernel) + ".cu", defaults_of(kernel), {}, NULL});
        builds.push_back({std::string(kernel) + ".cu", {{"TUNE_REFERENCE", 1}}, {}, NULL});
    }
    compile_all(builds);
    std::vector<build> gemms = {builds[0]}, transposes = {builds[2]}, reduces = {builds[4]};
    gemm_check(gemms, builds[1], {{(1 << 20) + 1, 33, 2049}, {33, (1 << 20) + 1, 2049}}, sms);
    gemm_check(gemms, builds[1], {{66000, 32551, 5}}, sms); // C alone
    transpose_check(transposes, {{46341, 46349, 1}, {((i64)1 << 31) + 5, 1, 1}, {3, 715827885, 1}});
    reduce_check(reduces, builds[5], {((i64)1 << 31) + 12345}, sms);
    printf("checked more than 2^31 elements\n");
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(
            stderr, "usage: sweep KERNELS_SRC [gemm|transpose|reduce|check|large]... [--top N]\n");
        return 2;
    }
    source_dir = argv[1];
    cudaDeviceProp device;
    RT(cudaGetDeviceProperties(&device, 0));
    arch_option = "--gpu-architecture=sm_" + std::to_string(device.major * 10 + device.minor);
    const bool is_small = std::string(argv[2]) == "check";
    const bool is_large = std::string(argv[2]) == "large";
    const size_t floats = is_small ? 1 << 22 : is_large ? LARGE_FLOATS : (size_t)1 << 28;
    const size_t doubles = is_large ? LARGE_FLOATS : floats / 4;
    RT(cudaMalloc(&flush_buffer, is_small ? 4 : FLUSH_BYTES));
    RT(cudaMalloc(&A, floats * 4));
    RT(cudaMalloc(&B, floats * 4));
    RT(cudaMalloc(&C, floats * 4));
    RT(cudaMalloc(&partial, is_large ? 1 << 20 : floats * 4));
    RT(cudaMalloc(&ref, doubles * 8));
    RT(cudaMalloc(&scale, doubles * 8));
    RT(cudaMalloc(&scratch_sums, 1024 * 8));
    RT(cudaMalloc(&scratch_squares, 1024 * 8));
    RT(cudaMalloc(&result, 4));
    RT(cudaMemset(result, 0, 4));
    fill<<<4096, 256>>>(A, floats, 1);
    fill<<<4096, 256>>>(B, floats, 2);
    RT(cudaDeviceSynchronize());
    for (int i = 2; i < argc; i++) {
        const std::string what = argv[i];
        if (what == "--top" && i + 1 < argc)
            top_count = atoi(argv[++i]);
        else if (what == "gemm")
            gemm(device.multiProcessorCount);
        else if (what == "transpose") {
            cublasHandle_t blas;
            cublasCreate(&blas);
            transpose(blas);
            cublasDestroy(blas);
        } else if (what == "reduce")
            reduce(device.multiProcessorCount);
        else if (what == "check")
            check_variants(device.multiProcessorCount);
        else if (what == "large")
            check_large(device.multiProcessorCount);
    }
    printf("%d wrong results\n", failures);
    return failures != 0;
}
