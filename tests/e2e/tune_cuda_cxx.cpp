// client/tune_cuda.h as C++11: it has to compile, and that is all.
#include "client/tune_cuda.h"

int launch(tune *handle, CUdeviceptr a, CUdeviceptr b, tune_error *err);
int launch(tune *handle, CUdeviceptr a, CUdeviceptr b, tune_error *err)
{
    tune_kernel *kernel;
    tune_dim shape[] = {{"N", 64}};
    CUdeviceptr buffers[] = {a, b};
    if (tune_kernel_open(handle, "reduce", nullptr, &kernel, err))
        return -1;
    int status = tune_kernel_ask_by(kernel, TUNE_TUNE, nullptr, err) ||
                 tune_kernel_prepare(kernel, nullptr, shape, 1, nullptr, err) ||
                 tune_kernel_launch(kernel, nullptr, shape, 1, buffers, 2, err);
    tune_kernel_close(kernel);
    return status;
}
