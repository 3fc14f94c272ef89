"""CuPy arrays, as Kernel sees them, and the code of an answer as a CuPy RawModule. CuPy is imported
when it is needed, not before."""
from __future__ import annotations

import base64
import os
import tempfile
from typing import Any, ContextManager, Tuple

import cupy

from .client import Json
from .kernel import DTYPES, NAMES


def raw_module(answer: Json) -> Any:
    """The code of an answer of get(cubin=True) as a cupy.RawModule, for programs that launch by
    themselves: launch["entry"] of the answer's launches is get_function(answer["names"][entry])."""
    # RawModule takes a cubin from a file only, and reads it when its first function is asked for.
    suffix = ".ptx" if answer.get("via_ptx") else ".cubin"
    handle, path = tempfile.mkstemp(suffix)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(base64.b64decode(answer["cubin"]))
        module = cupy.RawModule(path=path)
        for symbol in answer["names"].values():
            module.get_function(symbol)
    finally:
        os.unlink(path)
    return module


def on_device_of(array: Any) -> ContextManager[Any]:
    """Makes the array's GPU and its context current."""
    guard: ContextManager[Any] = array.device
    return guard


def device_of(array: Any) -> int:
    return int(array.device.id)


def dtype_of(array: Any) -> str:
    return DTYPES.get(array.dtype.name, array.dtype.name)


def is_contiguous(array: Any) -> bool:
    return bool(array.flags.c_contiguous)


def address_of(array: Any) -> int:
    return int(array.data.ptr)


def stream_of(_: Any) -> int:
    return int(cupy.cuda.get_current_stream().ptr)


def empty(like: Any, shape: Tuple[int, ...], dtype: str) -> Any:
    # The dtype object of the given array stands for one that CuPy has no name for.
    with like.device:
        return cupy.empty(shape, like.dtype if dtype_of(like) == dtype else NAMES[dtype])
