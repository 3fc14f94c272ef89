// The vendor's libraries behind one C function, for peers.py: cuBLAS, CUB and cuSPARSE.
//
//     nvcc -O3 -std=c++17 -arch=native -shared -Xcompiler -fPIC vendor.cu -o libvendor.so -lcublas
//     -lcusparse
#include <cub/cub.cuh>
#include <cublas_v2.h>
#include <cuda_fp16.h>
#include <cusparse.h>

#include <cstring>
#include <map>

namespace {

typedef long long i64;

struct call {
    const char *op;
    void **p;      // arrays: inputs, then outputs
    const i64 *n;  // sizes
    void *scratch; // nullptr: only its size is asked for
    size_t *scratch_bytes;
    cudaStream_t stream;
};

struct is_positive {
    __device__ bool operator()(float x) const
    {
        return x > 0.0f;
    }
};

struct largest {
    template <class T> __device__ T operator()(const T &a, const T &b) const
    {
        return a < b ? b : a;
    }
};

cublasHandle_t handle_of(cudaStream_t stream)
{
    static cublasHandle_t handle;
    if (!handle)
        cublasCreate(&handle);
    cublasSetStream(handle, stream);
    return handle;
}

template <class T> T *at(const call &c, int i)
{
    return static_cast<T *>(c.p[i]);
}

int geam(const call &c)
{
    *c.scratch_bytes = 16;
    if (!c.scratch)
        return 0;
    const int rows = (int)c.n[0], columns = (int)c.n[1];
    if (!strcmp(c.op, "geam_f32")) {
        const float one = 1, zero = 0;
        return cublasSgeam(handle_of(c.stream), CUBLAS_OP_T, CUBLAS_OP_N, rows, columns, &one,
            at<float>(c, 0), columns, &zero, at<float>(c, 1), rows, at<float>(c, 1), rows);
    }
    const double one = 1, zero = 0;
    return cublasDgeam(handle_of(c.stream), CUBLAS_OP_T, CUBLAS_OP_N, rows, columns, &one,
        at<double>(c, 0), columns, &zero, at<double>(c, 1), rows, at<double>(c, 1), rows);
}

int reduce(const call &c)
{
    const char *what = c.op + strlen("reduce_");
    if (!strcmp(what, "sum_f32"))
        return cub::DeviceReduce::Sum(
            c.scratch, *c.scratch_bytes, at<float>(c, 0), at<float>(c, 1), c.n[0], c.stream);
    if (!strcmp(what, "max_f32"))
        return cub::DeviceReduce::Reduce(c.scratch, *c.scratch_bytes, at<float>(c, 0),
            at<float>(c, 1), c.n[0], largest(), -__builtin_huge_valf(), c.stream);
    if (!strcmp(what, "sum_i32"))
        return cub::DeviceReduce::Sum(
            c.scratch, *c.scratch_bytes, at<int>(c, 0), at<int>(c, 1), c.n[0], c.stream);
    if (!strcmp(what, "sum_f16"))
        return cub::DeviceReduce::Reduce(c.scratch, *c.scratch_bytes, at<__half>(c, 0),
            at<float>(c, 1), c.n[0], cuda::std::plus<float>(), 0.0f, c.stream);
    return -1;
}

int scan(const call &c)
{
    const char *what = c.op + strlen("scan_");
    if (!strcmp(what, "exclusive_f32"))
        return cub::DeviceScan::ExclusiveSum(
            c.scratch, *c.scratch_bytes, at<float>(c, 0), at<float>(c, 1), c.n[0], c.stream);
    if (!strcmp(what, "inclusive_f32"))
        return cub::DeviceScan::InclusiveSum(
            c.scratch, *c.scratch_bytes, at<float>(c, 0), at<float>(c, 1), c.n[0], c.stream);
    if (!strcmp(what, "exclusive_i32"))
        return cub::DeviceScan::ExclusiveSum(
            c.scratch, *c.scratch_bytes, at<int>(c, 0), at<int>(c, 1), c.n[0], c.stream);
    if (!strcmp(what, "by_key_f32")) // keys: a segment's elements have equal ones
        return cub::DeviceScan::InclusiveSumByKey(c.scratch, *c.scratch_bytes,
            at<unsigned char>(c, 0), at<float>(c, 1), at<float>(c, 2), c.n[0],
            cuda::std::equal_to<>(), c.stream);
    return -1;
}

int histogram(const call &c)
{
    const int bins = (int)c.n[1];
    if (!strcmp(c.op, "histogram_u8"))
        return cub::DeviceHistogram::HistogramEven(c.scratch, *c.scratch_bytes,
            at<unsigned char>(c, 0), at<int>(c, 1), bins + 1, 0, bins, (int)c.n[0], c.stream);
    return cub::DeviceHistogram::HistogramEven(c.scratch, *c.scratch_bytes, at<unsigned>(c, 0),
        at<int>(c, 1), bins + 1, 0u, (unsigned)bins, (int)c.n[0], c.stream);
}

int select(const call &c)
{
    return cub::DeviceSelect::If(c.scratch, *c.scratch_bytes, at<float>(c, 0), at<float>(c, 1),
        at<i64>(c, 2), c.n[0], is_positive(), c.stream);
}

int merge(const call &c)
{
    return cub::DeviceMerge::MergeKeys(c.scratch, *c.scratch_bytes, at<unsigned>(c, 0), (int)c.n[0],
        at<unsigned>(c, 1), (int)c.n[1], at<unsigned>(c, 2), cuda::std::less<>(), c.stream);
}

int radix_sort(const call &c)
{
    if (!strcmp(c.op, "sort_pairs_u32"))
        return cub::DeviceRadixSort::SortPairs(c.scratch, *c.scratch_bytes, at<unsigned>(c, 0),
            at<unsigned>(c, 2), at<unsigned>(c, 1), at<unsigned>(c, 3), (int)c.n[0], 0, 32,
            c.stream);
    return cub::DeviceRadixSort::SortKeys(c.scratch, *c.scratch_bytes, at<unsigned>(c, 0),
        at<unsigned>(c, 1), (int)c.n[0], 0, 32, c.stream);
}

// y = A x; what cuSPARSE does once for a matrix is done with the first call that has its scratch.
struct sparse_product {
    cusparseSpMatDescr_t matrix;
    cusparseDnVecDescr_t x, y;
};

// offsets, columns, values, x, y; rows, columns, entries. A call for the size of the scratch begins
// anew: what is at the addresses may be another matrix.
int spmv(const call &c)
{
    static cusparseHandle_t handle;
    static std::map<void *, sparse_product> products;
    const bool is_f64 = strstr(c.op, "_f64") != nullptr;
    const cudaDataType type = is_f64 ? CUDA_R_64F : CUDA_R_32F;
    const cusparseSpMVAlg_t way =
        strstr(c.op, "_alg2") ? CUSPARSE_SPMV_CSR_ALG2 : CUSPARSE_SPMV_ALG_DEFAULT;
    const double one = 1, zero = 0;
    const float one_f32 = 1, zero_f32 = 0;
    const void *const alpha = is_f64 ? static_cast<const void *>(&one) : &one_f32;
    const void *const beta = is_f64 ? static_cast<const void *>(&zero) : &zero_f32;
    const cusparseOperation_t plain = CUSPARSE_OPERATION_NON_TRANSPOSE;
    if (!handle)
        cusparseCreate(&handle);
    cusparseSetStream(handle, c.stream);
    if (!c.scratch)
        products.clear();
    const auto found = products.find(c.scratch);
    if (found != products.end())
        return cusparseSpMV(handle, plain, alpha, found->second.matrix, found->second.x, beta,
            found->second.y, type, way, c.scratch);
    sparse_product made;
    int error = cusparseCreateCsr(&made.matrix, c.n[0], c.n[1], c.n[2], c.p[0], c.p[1], c.p[2],
        CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, type);
    error = error ? error : cusparseCreateDnVec(&made.x, c.n[1], c.p[3], type);
    error = error ? error : cusparseCreateDnVec(&made.y, c.n[0], c.p[4], type);
    if (error)
        return error;
    if (!c.scratch)
        return cusparseSpMV_bufferSize(
            handle, plain, alpha, made.matrix, made.x, beta, made.y, type, way, c.scratch_bytes);
    products[c.scratch] = made;
    error = cusparseSpMV_preprocess(
        handle, plain, alpha, made.matrix, made.x, beta, made.y, type, way, c.scratch);
    return error ? error : spmv(c);
}

} // namespace

// 0, or the library's error; -1 for an operation that is not here.
extern "C" int vendor_call(const char *op, void **arrays, const long long *sizes, void *scratch,
    size_t *scratch_bytes, void *stream)
{
    const call c = {op, arrays, sizes, scratch, scratch_bytes, static_cast<cudaStream_t>(stream)};
    if (!strncmp(op, "geam_", 5))
        return geam(c);
    if (!strncmp(op, "reduce_", 7))
        return reduce(c);
    if (!strncmp(op, "scan_", 5))
        return scan(c);
    if (!strncmp(op, "histogram_", 10))
        return histogram(c);
    if (!strcmp(op, "select_f32"))
        return select(c);
    if (!strcmp(c.op, "merge_u32"))
        return merge(c);
    if (!strncmp(c.op, "sort_", 5))
        return radix_sort(c);
    if (!strncmp(c.op, "spmv_", 5))
        return spmv(c);
    return -1;
}
