#!/usr/bin/env python3
"""Launches configurations once each, for a profiler to look at: launch.py SPECS

SPECS is a JSON list of {"cubin": file, "names": {entry: name in it}, "launches", "buffers"} as explain answers them.
Writes SPECS.told, a JSON list with, for each launch of a kernel, what the driver says of it: registers, shared memory and how many
blocks a multiprocessor holds. Inputs are random bytes with the exponents of small floats. Standard library only.
"""
import ctypes
import json
import os
import sys

PIECE_BYTES = 1 << 22  # of random input, repeated: no shipped kernel's accesses depend on its data
REGISTERS, STATIC_SHARED, DYNAMIC_SHARED_MAX = 4, 1, 8  # CU_FUNC_ATTRIBUTE_...
SCALARS = {"i32": ctypes.c_int32, "u32": ctypes.c_uint32, "i64": ctypes.c_int64, "u64": ctypes.c_uint64,
           "f32": ctypes.c_float, "f64": ctypes.c_double}

cuda = ctypes.CDLL("libcuda.so.1")


def call(name, *args):
    status = getattr(cuda, name)(*args)
    if status != 0:
        raise SystemExit(f"{name}: CUDA error {status}")


def make_context():
    device, context = ctypes.c_int(), ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)


def random_piece():
    piece = bytearray(os.urandom(PIECE_BYTES))
    for i in range(3, PIECE_BYTES, 4):
        piece[i] = 0x3E | piece[i] & 0x81  # an f32 of about 0.1 to 0.5; an f16 that is no NaN either
    return bytes(piece)


def allocate(buffers, piece):
    pointers = {}
    for buffer in buffers:
        pointer, size = ctypes.c_uint64(), max(buffer["bytes"], 256)
        call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        call("cuMemsetD8_v2", pointer, 0, ctypes.c_size_t(size))
        for at in range(0, buffer["bytes"] if buffer["role"] in ("in", "inout") else 0, PIECE_BYTES):
            count = min(PIECE_BYTES, buffer["bytes"] - at)
            call("cuMemcpyHtoD_v2", ctypes.c_uint64(pointer.value + at), piece, ctypes.c_size_t(count))
        pointers[buffer["name"]] = pointer
    return pointers


def arguments(launch, pointers):
    values = [pointers[a["name"]] if a["kind"] == "buffer" else SCALARS[a["type"]](a["value"]) for a in launch["args"]]
    packed = (ctypes.c_void_p * len(values))(*(ctypes.cast(ctypes.pointer(v), ctypes.c_void_p) for v in values))
    return values, packed


def attribute(function, number):
    value = ctypes.c_int()
    call("cuFuncGetAttribute", ctypes.byref(value), number, function)
    return value.value


def launch_one(module, names, launch, pointers):
    function, blocks = ctypes.c_void_p(), ctypes.c_int()
    call("cuModuleGetFunction", ctypes.byref(function), module, names[launch["entry"]].encode())
    call("cuFuncSetAttribute", function, DYNAMIC_SHARED_MAX, launch["shared_bytes"])
    block = launch["block"][0] * launch["block"][1] * launch["block"][2]
    call("cuOccupancyMaxActiveBlocksPerMultiprocessor", ctypes.byref(blocks), function, block,
         ctypes.c_size_t(launch["shared_bytes"]))
    keep, packed = arguments(launch, pointers)
    call("cuLaunchKernel", function, *launch["grid"], *launch["block"], launch["shared_bytes"], None, packed, None)
    call("cuCtxSynchronize")
    return {"entry": launch["entry"], "registers": attribute(function, REGISTERS),
            "static_shared_bytes": attribute(function, STATIC_SHARED), "blocks_per_sm": blocks.value}


def run(spec, piece):
    module, image = ctypes.c_void_p(), open(spec["cubin"], "rb").read()
    call("cuModuleLoadData", ctypes.byref(module), image)
    pointers, told = allocate(spec["buffers"], piece), []
    for launch in spec["launches"]:
        if "memset" in launch:
            size = next(b["bytes"] for b in spec["buffers"] if b["name"] == launch["memset"])
            call("cuMemsetD8_v2", pointers[launch["memset"]], launch["byte"], ctypes.c_size_t(size))
        else:
            told.append(launch_one(module, spec["names"], launch, pointers))
    for pointer in pointers.values():
        call("cuMemFree_v2", pointer)
    call("cuModuleUnload", module)
    return told


def main():
    specs = json.load(open(sys.argv[1]))
    make_context()
    piece = random_piece()
    told = [run(spec, piece) for spec in specs]
    with open(sys.argv[1] + ".told", "w") as file:
        json.dump(told, file)


if __name__ == "__main__":
    main()
