"""The CUDA driver by ctypes: loads code and launches it in the context that is current.

Only the driver's library is needed (libcuda.so.1), neither toolkit nor compiler. A folder in
TUNE_CUDA_DIR is looked through first, as the daemon's workers do."""
from __future__ import annotations

import base64
import contextlib
import ctypes
import hashlib
import os
import threading
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from .client import Error, Json

_ATTRIBUTE_CC_MAJOR, _ATTRIBUTE_CC_MINOR = 75, 76
_FUNCTION_MAX_DYNAMIC_SHARED = 8
_LAUNCH_COOPERATIVE, _LAUNCH_CLUSTER = 2, 4
_EVENT_DISABLE_TIMING = 2
_STREAM_PER_THREAD = 2  # a handle that is another stream in each thread

#: ctypes of scalar arguments
SCALARS: Dict[str, Any] = {
    "f64": ctypes.c_double, "f32": ctypes.c_float,
    "i64": ctypes.c_int64, "i32": ctypes.c_int32, "i16": ctypes.c_int16, "i8": ctypes.c_int8,
    "u64": ctypes.c_uint64, "u32": ctypes.c_uint32, "u16": ctypes.c_uint16, "u8": ctypes.c_uint8}

_HANDLE, _POINTER = ctypes.c_void_p, ctypes.c_uint64
_U32, _INT, _SIZE = ctypes.c_uint, ctypes.c_int, ctypes.c_size_t
_OUT = ctypes.POINTER
_PROTOTYPES: Dict[str, Sequence[Any]] = {
    "cuInit": [_U32],
    "cuDriverGetVersion": [_OUT(_INT)],
    "cuCtxGetCurrent": [_OUT(_HANDLE)],
    "cuCtxSetCurrent": [_HANDLE],
    "cuCtxGetDevice": [_OUT(_INT)],
    "cuDevicePrimaryCtxRetain": [_OUT(_HANDLE), _INT],
    "cuDeviceGetAttribute": [_OUT(_INT), _INT, _INT],
    "cuDeviceGetName": [ctypes.c_char_p, _INT, _INT],
    "cuModuleLoadData": [_OUT(_HANDLE), ctypes.c_char_p],
    "cuModuleGetFunction": [_OUT(_HANDLE), _HANDLE, ctypes.c_char_p],
    "cuModuleGetGlobal_v2": [_OUT(_POINTER), _OUT(_SIZE), _HANDLE, ctypes.c_char_p],
    "cuFuncSetAttribute": [_HANDLE, _INT, _INT],
    "cuLaunchKernel": [_HANDLE] + [_U32] * 7 + [_HANDLE, _OUT(_HANDLE), _OUT(_HANDLE)],
    "cuMemsetD8Async": [_POINTER, ctypes.c_ubyte, _SIZE, _HANDLE],
    "cuMemcpyDtoDAsync_v2": [_POINTER, _POINTER, _SIZE, _HANDLE],
    "cuStreamIsCapturing": [_HANDLE, _OUT(_INT)],
    "cuStreamWaitEvent": [_HANDLE, _HANDLE, _U32],
    "cuEventCreate": [_OUT(_HANDLE), _U32],
    "cuEventRecord": [_HANDLE, _HANDLE],
    "cuGetErrorName": [_INT, _OUT(ctypes.c_char_p)],
    "cuGetErrorString": [_INT, _OUT(ctypes.c_char_p)],
}


class _Value(ctypes.Union):
    _fields_ = [("cluster", _U32 * 3), ("cooperative", _INT), ("room", ctypes.c_char * 64)]


class _Attribute(ctypes.Structure):
    _fields_ = [("id", _U32), ("pad", ctypes.c_char * 4), ("value", _Value)]


class _Config(ctypes.Structure):
    """CUlaunchConfig."""
    _fields_ = [("grid", _U32 * 3), ("block", _U32 * 3), ("shared_bytes", _U32),
                ("stream", _HANDLE), ("attributes", _OUT(_Attribute)), ("attribute_count", _U32)]


_LAUNCH_EX = [_OUT(_Config), _HANDLE, _OUT(_HANDLE), _OUT(_HANDLE)]


class Code(NamedTuple):
    """Code that is loaded in a context."""
    module: int
    functions: Dict[str, int]  # by entry
    constants_lock: threading.Lock  # held from the first constant that a call sets to its last launch


class Driver:
    """libcuda. One is enough for a process: driver()."""

    def __init__(self) -> None:
        self._library = _open_library()
        self._functions: Dict[str, Any] = {}
        for name, arguments in _PROTOTYPES.items():
            function = getattr(self._library, name)
            function.argtypes = arguments
            function.restype = ctypes.c_int
            self._functions[name] = function
        launch_ex = getattr(self._library, "cuLaunchKernelEx", None)  # of a driver since CUDA 11.8
        if launch_ex is not None:
            launch_ex.argtypes, launch_ex.restype = _LAUNCH_EX, ctypes.c_int
            self._functions["cuLaunchKernelEx"] = launch_ex
        self.call("cuInit", 0)
        version = ctypes.c_int()
        self.call("cuDriverGetVersion", ctypes.byref(version))
        self.version = version.value  #: 13000 for CUDA 13.0
        self._codes: Dict[Tuple[int, bytes], Code] = {}
        self._orders: Dict[int, Tuple[int, int]] = {}  # by module: (event, stream) of its constants
        self._shared: Dict[int, int] = {}  # dynamic shared memory that a function may use
        self._lock = threading.Lock()

    def call(self, name: str, *arguments: Any) -> None:
        code = self._functions[name](*arguments)
        if code != 0:
            raise Error("io", "%s failed: %s" % (name, self._error_text(code)))

    def _error_text(self, code: int) -> str:
        texts = []
        for name in ("cuGetErrorName", "cuGetErrorString"):
            text = ctypes.c_char_p()
            if self._functions[name](code, ctypes.byref(text)) == 0 and text.value:
                texts.append(text.value.decode())
        return ": ".join(texts) or "error %d" % code

    def _context(self) -> int:
        context = ctypes.c_void_p()
        self.call("cuCtxGetCurrent", ctypes.byref(context))
        return context.value or 0

    def use_context_of(self, ordinal: int) -> None:
        """Makes a GPU's primary context, in which PyTorch and CuPy work, current in a thread that has
        none: a new thread gets one only with its first call of the CUDA runtime."""
        if self._context():
            return
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), ordinal)
        self.call("cuCtxSetCurrent", context)

    def device(self) -> Tuple[str, int]:
        """Name and compute capability (90 for 9.0) of the current context's GPU."""
        ordinal, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
        self.call("cuCtxGetDevice", ctypes.byref(ordinal))
        self.call("cuDeviceGetAttribute", ctypes.byref(major), _ATTRIBUTE_CC_MAJOR, ordinal)
        self.call("cuDeviceGetAttribute", ctypes.byref(minor), _ATTRIBUTE_CC_MINOR, ordinal)
        name = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", name, len(name), ordinal)
        return name.value.decode(), 10 * major.value + minor.value

    def code(self, answer: Json) -> Code:
        """Loads the code of an answer of get(cubin=True) into the current context, once. Its kernels
        are allowed the shared memory of the answer's launches. Code stays loaded until the context
        ends."""
        key = (self._context(), hashlib.sha256(answer["cubin"].encode()).digest())
        with self._lock:
            code = self._codes.get(key)
            if code is None:
                code = self._codes[key] = self._load(answer)
            for launch in answer["launches"]:
                self._allow_shared(code.functions, launch)
            return code

    def constant(self, code: Code, name: str, size: int) -> int:
        """The address of a variable that `size` bytes are to be copied to."""
        address, room = ctypes.c_uint64(), ctypes.c_size_t()
        self.call("cuModuleGetGlobal_v2", ctypes.byref(address), ctypes.byref(room), code.module,
                  name.encode())
        if size > room.value:
            raise Error("limit", "the constant %s has %d bytes; %d are to be copied to it"
                        % (name, room.value, size))
        return address.value

    def _allow_shared(self, functions: Dict[str, int], launch: Json) -> None:
        """Raises it, never lowers it: the launches of another shape may need more."""
        size = launch.get("shared_bytes", 0)
        if size == 0:
            return
        function = functions[launch["entry"]]
        if size > self._shared.get(function, 0):
            self.call("cuFuncSetAttribute", function, _FUNCTION_MAX_DYNAMIC_SHARED, size)
            self._shared[function] = size

    def _load(self, answer: Json) -> Code:
        self._check_fit(answer)
        module = ctypes.c_void_p()
        image = base64.b64decode(answer["cubin"]) + b"\0"  # PTX is text and ends with a NUL
        self.call("cuModuleLoadData", ctypes.byref(module), image)
        functions = {}
        for entry, symbol in answer["names"].items():
            function = ctypes.c_void_p()
            self.call("cuModuleGetFunction", ctypes.byref(function), module, symbol.encode())
            assert function.value
            functions[entry] = function.value
        assert module.value
        return Code(module.value, functions, threading.Lock())

    def _check_fit(self, answer: Json) -> None:
        """A cubin runs on GPUs of its major version from its minor version on, and needs a driver of
        the compiler's major version; PTX needs a driver as new as the compiler."""
        name, sm = self.device()
        made_for, is_ptx = answer["sm"], bool(answer.get("via_ptx"))
        if sm < made_for or (not is_ptx and sm // 10 != made_for // 10):
            raise Error("no_device", "the code of %s was made for sm_%d and does not run on this %s "
                        "(sm_%d): ask with gpu= or arch= of this GPU"
                        % (answer["kernel"], made_for, name, sm))
        needed = _version_of(answer.get("min_driver"))
        if needed and (self.version < needed if is_ptx else self.version // 1000 < needed // 1000):
            raise Error("no_device", "the code of %s was compiled by CUDA %s and this driver is for "
                        "%d.%d: install a newer driver, or an older NVRTC where the daemon runs"
                        % (answer["kernel"], answer["min_driver"], self.version // 1000,
                           self.version % 1000 // 10))

    def launch(self, function: int, grid: Sequence[int], block: Sequence[int], shared_bytes: int,
               stream: int, arguments: Any) -> None:
        """Queues a kernel. `arguments` is an array of pointers to the arguments' values, which are
        copied."""
        self.call("cuLaunchKernel", function, *grid, *block, shared_bytes, stream, arguments, None)

    def launch_together(self, function: int, grid: Sequence[int], block: Sequence[int],
                        shared_bytes: int, stream: int, arguments: Any,
                        cluster: Optional[Sequence[int]], is_cooperative: bool) -> None:
        """The same for blocks that run at the same time: those of a cluster, or all."""
        if "cuLaunchKernelEx" not in self._functions:
            raise Error("no_device", "clusters and cooperative launches need a driver of CUDA 11.8 or "
                        "later")
        attributes = (_Attribute * 2)()
        count = 0
        if cluster:
            attributes[count].id = _LAUNCH_CLUSTER
            attributes[count].value.cluster[:] = list(cluster)
            count += 1
        if is_cooperative:
            attributes[count].id = _LAUNCH_COOPERATIVE
            attributes[count].value.cooperative = 1
            count += 1
        config = _Config((_U32 * 3)(*grid), (_U32 * 3)(*block), shared_bytes, stream, attributes, count)
        self.call("cuLaunchKernelEx", ctypes.byref(config), function, arguments, None)

    def copy(self, to: int, source: int, count: int, stream: int) -> None:
        """Queues a copy of `count` bytes on the GPU."""
        self.call("cuMemcpyDtoDAsync_v2", to, source, count, stream)

    @contextlib.contextmanager
    def constants_of(self, code: Code, stream: int) -> Iterator[None]:
        """Around launches that set constants of `code`, which has one set of them: the stream waits for
        those on another stream before, and is waited for; while capturing it can do neither."""
        with code.constants_lock:
            capturing = ctypes.c_int()
            self.call("cuStreamIsCapturing", stream, ctypes.byref(capturing))
            if capturing.value:
                yield
                return
            event, last = self._orders.get(code.module, (0, stream))
            if not event:
                made = ctypes.c_void_p()
                self.call("cuEventCreate", ctypes.byref(made), _EVENT_DISABLE_TIMING)
                event = made.value or 0
            elif last != stream or stream == _STREAM_PER_THREAD:
                self.call("cuStreamWaitEvent", stream, event, 0)
            yield
            self.call("cuEventRecord", event, stream)
            self._orders[code.module] = (event, stream)

    def memset(self, address: int, byte: int, count: int, stream: int) -> None:
        """Queues a memset of `count` bytes."""
        self.call("cuMemsetD8Async", address, byte, count, stream)


def _open_library() -> ctypes.CDLL:
    places = [os.path.join(folder, "libcuda.so.1")
              for folder in os.environ.get("TUNE_CUDA_DIR", "").split(":") if folder]
    reason: Optional[OSError] = None
    for name in places + ["libcuda.so.1"]:
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            reason = error
    raise Error("no_device", "no CUDA driver: %s" % reason)


def _version_of(text: Optional[str]) -> int:
    """13000 of "13.0"; 0 of what is no version."""
    try:
        major, minor = (text or "").split(".")[:2]
        return int(major) * 1000 + int(minor) * 10
    except ValueError:
        return 0


_driver: List[Driver] = []
_driver_lock = threading.Lock()


def driver() -> Driver:
    """The process's driver. Error("no_device") where there is none."""
    with _driver_lock:
        if not _driver:
            _driver.append(Driver())
        return _driver[0]
