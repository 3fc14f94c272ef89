"""Calling a tuned kernel on PyTorch tensors or CuPy arrays as if it were a function.

    softmax = tunerd.Kernel(client, "softmax")
    y = softmax(x)                       # x: a tensor or array on the GPU
    softmax(x, out=y)                    # into memory of yours

    gemm = tunerd.Kernel(client, "gemm")
    C = gemm(A, B)                       # M, N and K follow from the shapes of A and B

The first call for a shape asks the daemon for the best launch and its code and loads it; the later
ones only launch, on the current stream, without waiting for the GPU.

Which array is which: those given are the kernel's buffers of role "in" and "inout" in the order of
its manifest (client.describe(name)["buffers"]); "out" ones are allocated, or given as `out`; scratch
is allocated. A buffer that a shape leaves empty (the values of a sort of keys alone) may be given as None.
Arrays are contiguous, of the buffer's dtype, on one GPU, and begin at an address that is
a multiple of 16.

Which shape: where a buffer's count is a product of dims, "M * N", these are the array's last axes, and
all axes before them count into the first: softmax of a [B][H][S][S] tensor has M = B*H*S, N = S. Where
the counts do not say it, `dims` does: kernel(x, dims={"N": 7}). So it does for choices, by name or
number: kernel(x, dims={"OP": "max"}); one that is left out is the first that the manifest lists.

What a kernel does once for its inputs (a matrix put into another format) is done at the first call with
these arrays, and kept for the last few, and with it these arrays, whose memory is not given back before.
After writing into such an array, refresh() has it done anew.

A kernel that reads constants has one set of them on a GPU: a call on another stream than the one before
waits, on the GPU, until that has ended.
"""
from __future__ import annotations

import contextlib
import ctypes
import importlib
import math
import re
import threading
from types import ModuleType
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from . import driver as driver_module
from .client import Client, Error, Json, Shape

_ALIGNMENT = 16  # bytes: the widest access of a kernel
_PLANS = 256     # shapes kept ready; the one not used longest gives way
_PREPARED = 4    # sets of inputs, for each shape, for which is kept what is done once; likewise
_PRODUCT = re.compile(r"\s*\w+\s*(\*\s*\w+\s*)*")

DTYPES = {"float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16",
          "int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8",
          "uint64": "u64", "uint32": "u32", "uint16": "u16", "uint8": "u8"}
NAMES = {code: name for name, code in DTYPES.items()}
_STORED_AS = {"tf32": "f32"}  # dtypes whose elements lie in memory as another


_libraries: Dict[type, ModuleType] = {}  # what library_of has found


def library_of(array: Any) -> ModuleType:
    """tunerd.torch or tunerd.cupy: how to handle this array."""
    library = _libraries.get(type(array))
    if library is None:
        origin = type(array).__module__.partition(".")[0]
        if origin not in ("torch", "cupy"):
            raise Error("invalid_request", "a %s is neither a PyTorch tensor nor a CuPy array"
                        % type(array).__name__)
        library = importlib.import_module("." + origin, __package__)
        _libraries[type(array)] = library
    return library


class _Buffer(NamedTuple):
    """A buffer as the manifest has it."""
    name: str
    dtype: Union[str, Mapping[str, str]]  # "T": the swept one; a map: by the swept one
    role: str
    size: str                     # elements, an expression
    factors: Optional[List[str]]  # dims and numbers whose product `size` is; None: it is none


class _Launch(NamedTuple):
    function: int
    grid: Sequence[int]
    block: Sequence[int]
    shared_bytes: int
    cluster: Optional[Sequence[int]]
    is_cooperative: bool
    repeat: int
    values: List[Tuple[Any, str]]  # (ctypes value, buffer or scalar) to fill in before a launch
    arguments: Any                 # array of pointers to all values
    keep: List[Any]                # all values: `arguments` points to them


class _Memset(NamedTuple):
    buffer: str
    byte: int
    size: int  # bytes


class _Constant(NamedTuple):
    buffer: str
    address: int
    size: int  # bytes


_Step = Union[_Launch, _Memset, _Constant]


class _Output(NamedTuple):
    name: str
    shape: Tuple[int, ...]  # of what is allocated
    elements: int
    dtype: str


class _Plan(NamedTuple):
    """All that a call does for one shape, dtype and device."""
    answer: Json
    code: driver_module.Code
    once: List[_Step]         # before the first call with these inputs
    read_once: List[str]      # inputs that those read
    prepared: Dict[Any, Any]  # addresses of these, and the stream -> (scratch, the inputs)
    steps: List[_Step]
    has_constants: bool
    inputs: List[_Buffer]
    outputs: List[_Output]
    scratch: List[Tuple[str, int]]  # (name, bytes)
    absent: List[str]               # buffers that this configuration does not need


class Kernel:
    """See the head of this module.

    dtype    the swept dtype where the arrays do not tell ("tf32"); None: that of the arrays
    policy   as in Client.get. With "tune" a call takes up a better configuration once the sweep
             behind it has ended; else refresh() asks anew
    session  as in Client.get"""

    def __init__(self, client: Client, name: str, *, dtype: Optional[str] = None,
                 mode: Optional[str] = None, policy: str = "nearest",
                 session: Optional[str] = None) -> None:
        manifest = client.describe(name)
        self.name = name
        self._client = client
        self._dtype, self._mode, self._policy, self._session = dtype, mode, policy, session
        self._dims: List[str] = [dim["name"] for dim in manifest["dims"]]
        self._choices = {dim["name"]: _choices_of(dim) for dim in manifest["dims"] if dim.get("values")}
        self._dtypes: List[str] = manifest["dtypes"]
        self._buffers = [self._buffer_of(buffer) for buffer in manifest["buffers"]]
        self._inputs = [b for b in self._buffers if b.role in ("in", "inout")]
        self._plans: Dict[Any, _Plan] = {}
        self._generation = client.generation
        self._lock = threading.Lock()

    def refresh(self) -> None:
        """Asks the daemon again at the next call for each shape, and does once again what is done
        once."""
        with self._lock:
            self._plans.clear()

    def answer(self, *arrays: Any, dims: Optional[Shape] = None) -> Json:
        """The answer of get() that a call with these arrays uses, without the code; loads it if need
        be."""
        library = library_of(arrays[0])
        with self._lock, library.on_device_of(arrays[0]):
            return self._plan(library, arrays, dims).answer

    def __call__(self, *arrays: Any, out: Any = None, dims: Optional[Shape] = None,
                 scalars: Optional[Mapping[str, Union[int, float]]] = None) -> Any:
        """Launches. `out`: an array, or a dict by buffer name where there are several outputs;
        `scalars`: values of arguments that the manifest leaves to the caller. Returns the "out" and
        "inout" arrays: one alone, several as a tuple."""
        if not arrays:
            raise Error("invalid_request", "%s takes its arrays as arguments: %s"
                        % (self.name, self._input_names()))
        library = library_of(arrays[0])
        with self._lock, library.on_device_of(arrays[0]):
            plan = self._plan(library, arrays, dims)
            return self._run(library, plan, arrays, out, scalars or {})

    # --- the manifest -----------------------------------------------------------------------------

    def _buffer_of(self, buffer: Json) -> _Buffer:
        size = str(buffer["count"])
        factors = None
        if _PRODUCT.fullmatch(size):
            factors = [factor.strip() for factor in size.split("*")]
            if not all(factor.isdigit() or factor in self._dims for factor in factors):
                factors = None
        return _Buffer(buffer["name"], buffer["dtype"], buffer["role"], size, factors)

    def _input_names(self) -> str:
        return ", ".join(buffer.name for buffer in self._inputs)

    # --- what the arrays say ----------------------------------------------------------------------

    def _swept_dtype(self, library: ModuleType, arrays: Sequence[Any]) -> str:
        if self._dtype:
            return self._dtype
        for buffer, array in zip(self._inputs, arrays):
            if buffer.dtype == "T" and array is not None:
                dtype: str = library.dtype_of(array)
                if dtype not in self._dtypes:
                    raise Error("invalid_request", "%s is %s; %s is made for %s"
                                % (buffer.name, dtype, self.name, ", ".join(self._dtypes)))
                return dtype
        return self._dtypes[0]

    def _shape_of(self, arrays: Sequence[Any], dims: Optional[Shape]) -> Dict[str, int]:
        """The dims, from `dims` and the arrays' shapes, which must agree."""
        for name in dims or {}:
            if name not in self._dims:
                raise Error("invalid_request", "%s has no dimension %s; it has %s"
                            % (self.name, name, ", ".join(self._dims)))
        found = {name: (self._value_of(name, value), "dims") for name, value in (dims or {}).items()}
        for buffer, array in zip(self._inputs, arrays):
            if buffer.factors is None or array is None:
                continue
            axes = _last_axes(buffer, tuple(array.shape))
            for name, value in zip(buffer.factors, axes):
                if name.isdigit():
                    found.setdefault(name, (int(name), "the manifest"))
                if found.setdefault(name, (value, buffer.name))[0] != value:
                    raise Error("invalid_request", "%s has %s = %d, but %s says %d"
                                % (buffer.name, name, value, found[name][1], found[name][0]))
        for name, choices in self._choices.items():
            found.setdefault(name, (next(iter(choices.values())), "the manifest"))
        missing = [name for name in self._dims if name not in found]
        if missing:
            raise Error("invalid_request", "the shapes of %s do not tell %s: give dims={...}"
                        % (self._input_names(), ", ".join(missing)))
        return {name: found[name][0] for name in self._dims}

    def _value_of(self, name: str, value: Union[int, str]) -> int:
        """The number of a dim: of a choice that is given by its name."""
        if not isinstance(value, str):
            return value
        choices = self._choices.get(name, {})
        if value not in choices:
            raise Error("invalid_request", "%s has no %s = %s%s" % (
                self.name, name, value, "; there are " + ", ".join(choices) if choices else ""))
        return choices[value]

    def _plan(self, library: ModuleType, arrays: Sequence[Any], dims: Optional[Shape]) -> _Plan:
        driver_module.driver().use_context_of(library.device_of(arrays[0]))
        if self._policy == "tune" and self._client.poll() != self._generation:
            self._generation = self._client.generation
            self._plans.clear()
        key = (library.device_of(arrays[0]), tuple(sorted(dims.items())) if dims else None,
               *((tuple(array.shape), array.dtype) if array is not None else None for array in arrays))
        plan = self._plans.pop(key, None)
        if plan is None:
            plan = self._make_plan(library, arrays, dims)
            if len(self._plans) >= _PLANS:
                del self._plans[next(iter(self._plans))]
        self._plans[key] = plan  # last: a dict keeps the order
        return plan

    # --- planning ---------------------------------------------------------------------------------

    def _make_plan(self, library: ModuleType, arrays: Sequence[Any],
                   dims: Optional[Shape]) -> _Plan:
        if len(arrays) != len(self._inputs):
            raise Error("invalid_request", "%s takes %d arrays (%s), not %d"
                        % (self.name, len(self._inputs), self._input_names(), len(arrays)))
        driver = driver_module.driver()
        gpu, sm = driver.device()
        shape = self._shape_of(arrays, dims)
        dtype = self._swept_dtype(library, arrays)
        answer = self._client.get(self.name, shape, dtype=dtype, mode=self._mode, gpu=gpu,
                                  arch="sm_%d" % sm if sm else "cpu", policy=self._policy,
                                  session=self._session, cubin=True)
        code = driver.code(answer)
        del answer["cubin"]  # the driver has it, and plans are kept
        sizes = {buffer["name"]: buffer["bytes"] for buffer in answer["buffers"]}
        for buffer, array in zip(self._inputs, arrays):
            self._check_input(library, buffer, array, dtype, sizes[buffer.name])
        outputs = []
        for buffer in self._buffers:
            if buffer.role == "out" and sizes[buffer.name] > 0:
                stored = _stored(buffer, dtype)
                axes = self._out_shape(buffer, arrays, shape, sizes[buffer.name], stored)
                outputs.append(_Output(buffer.name, axes, math.prod(axes), stored))
        once, steps = [], []
        for launch in answer["launches"]:
            (once if launch.get("once") else steps).append(_step_of(driver, launch, code, sizes))
        names_once = {name for step in once if isinstance(step, _Launch) for _, name in step.values}
        return _Plan(answer=answer, code=code, once=once,
                     read_once=[b.name for b in self._inputs if b.name in names_once], prepared={},
                     steps=steps,
                     has_constants=any(isinstance(step, _Constant) for step in steps),
                     inputs=self._inputs, outputs=outputs,
                     scratch=[(b.name, sizes[b.name]) for b in self._buffers
                              if b.role == "scratch" and sizes[b.name] > 0],
                     absent=[b.name for b in self._buffers if sizes[b.name] == 0])

    def _check_input(self, library: ModuleType, buffer: _Buffer, array: Any, dtype: str,
                     size: int) -> None:
        stored = _stored(buffer, dtype)
        if array is None:
            if size > 0:
                raise Error("invalid_request", "%s is None; %s of this shape takes %d elements (%s)"
                            % (buffer.name, self.name, size // _bytes_of(stored), buffer.size))
            return
        if library.dtype_of(array) != stored:
            raise Error("invalid_request", "%s is %s; %s of dtype %s takes %s"
                        % (buffer.name, library.dtype_of(array), self.name, dtype, stored))
        count = math.prod(array.shape)
        if count * _bytes_of(stored) != size:
            raise Error("invalid_request", "%s has %d elements; %s of this shape takes %d (%s)"
                        % (buffer.name, count, self.name, size // _bytes_of(stored), buffer.size))

    def _out_shape(self, buffer: _Buffer, arrays: Sequence[Any], shape: Dict[str, int], size: int,
                   stored: str) -> Tuple[int, ...]:
        """That of an input with the same count, else the dims of its own, else one axis."""
        for given, array in zip(self._inputs, arrays):
            if array is not None and given.factors is not None and given.factors == buffer.factors:
                return tuple(array.shape)
        if buffer.factors is not None:
            return tuple(int(f) if f.isdigit() else shape[f] for f in buffer.factors)
        return (size // _bytes_of(stored),)

    # --- running ----------------------------------------------------------------------------------

    def _run(self, library: ModuleType, plan: _Plan, arrays: Sequence[Any], out: Any,
             scalars: Mapping[str, Union[int, float]]) -> Any:
        values: Dict[str, Any] = dict(scalars)
        for buffer, array in zip(plan.inputs, arrays):
            if buffer.name not in plan.absent:
                values[buffer.name] = _address(library, buffer.name, array, arrays[0])
        results = self._outputs(library, plan, arrays, out, values)
        driver, stream = driver_module.driver(), library.stream_of(arrays[0])
        key = (stream, *(values[name] for name in plan.read_once))
        kept = plan.prepared.pop(key, None)
        scratch = kept[0] if kept else [library.empty(arrays[0], (count,), "u8") for _, count in plan.scratch]
        for (name, _), memory in zip(plan.scratch, scratch):
            values[name] = _address(library, name, memory, arrays[0])
        for name in plan.absent:
            values[name] = 0
        with driver.constants_of(plan.code, stream) if plan.has_constants else contextlib.nullcontext():
            for step in plan.steps if kept else plan.once + plan.steps:
                if isinstance(step, _Memset):
                    driver.memset(values[step.buffer], step.byte, step.size, stream)
                elif isinstance(step, _Constant):
                    driver.copy(step.address, values[step.buffer], step.size, stream)
                else:
                    self._launch(driver, step, values, stream)
        if plan.once and plan.scratch:
            if len(plan.prepared) >= _PREPARED:
                del plan.prepared[next(iter(plan.prepared))]
            # Last: a dict keeps the order. The inputs are held, or others could come to lie where they were.
            plan.prepared[key] = (scratch, [array for buffer, array in zip(plan.inputs, arrays)
                                            if buffer.name in plan.read_once])
        return results[0] if len(results) == 1 else tuple(results)

    def _launch(self, driver: driver_module.Driver, step: _Launch, values: Mapping[str, Any],
                stream: int) -> None:
        for value, name in step.values:
            if name not in values:
                raise Error("invalid_request", "%s needs the value of %s: give scalars={...}"
                            % (self.name, name))
            value.value = values[name]
        for _ in range(step.repeat):
            if step.cluster or step.is_cooperative:
                driver.launch_together(step.function, step.grid, step.block, step.shared_bytes, stream,
                                       step.arguments, step.cluster, step.is_cooperative)
            else:
                driver.launch(step.function, step.grid, step.block, step.shared_bytes, stream,
                              step.arguments)

    def _outputs(self, library: ModuleType, plan: _Plan, arrays: Sequence[Any], out: Any,
                 values: Dict[str, Any]) -> List[Any]:
        """Allocates or checks the outputs and adds their addresses; what the call returns."""
        given = out if isinstance(out, dict) else {}
        if out is not None and not isinstance(out, dict):
            if len(plan.outputs) != 1:
                raise Error("invalid_request", "%s has %d outputs: give out={name: array}"
                            % (self.name, len(plan.outputs)))
            given = {plan.outputs[0].name: out}
        results = [a for b, a in zip(plan.inputs, arrays) if b.role == "inout"]
        for output in plan.outputs:
            array = given.get(output.name)
            if array is None:
                array = library.empty(arrays[0], output.shape, output.dtype)
            elif (library.dtype_of(array), math.prod(array.shape)) != (output.dtype, output.elements):
                raise Error("invalid_request", "%s must be %s with %d elements, not %s with %d"
                            % (output.name, output.dtype, output.elements, library.dtype_of(array),
                               math.prod(array.shape)))
            address = _address(library, output.name, array, arrays[0])
            if address in values.values():
                raise Error("invalid_request", "%s is one of the inputs too: give it memory of its own"
                            % output.name)
            values[output.name] = address
            results.append(array)
        return results


def _last_axes(buffer: _Buffer, shape: Tuple[int, ...]) -> Tuple[int, ...]:
    """As many axes as the buffer has factors, the first standing for all before it."""
    assert buffer.factors is not None
    count = len(buffer.factors)
    if len(shape) < count:
        raise Error("invalid_request", "%s has %d axes; it takes %d or more: [%s]"
                    % (buffer.name, len(shape), count, "][".join(buffer.factors)))
    first = len(shape) - count + 1
    return (math.prod(shape[:first]), *shape[first:])


def _choices_of(dim: Json) -> Dict[str, int]:
    """name or number -> number, in the manifest's order."""
    pairs = [(value["name"], value["value"]) if isinstance(value, dict) else (str(value), value)
             for value in dim["values"]]
    return dict(pairs)


def _stored(buffer: _Buffer, dtype: str) -> str:
    own = dtype if buffer.dtype == "T" else buffer.dtype if isinstance(buffer.dtype, str) \
        else buffer.dtype[dtype]
    return _STORED_AS.get(own, own)


def _bytes_of(dtype: str) -> int:
    return int(dtype.lstrip("biuf")) // 8


def _address(library: ModuleType, name: str, array: Any, first: Any) -> int:
    if library.device_of(array) != library.device_of(first):
        raise Error("invalid_request", "%s is not on the GPU that the first array is on" % name)
    if not library.is_contiguous(array):
        raise Error("invalid_request", "%s is not contiguous: pass a contiguous copy" % name)
    address: int = library.address_of(array)
    if address % _ALIGNMENT:
        raise Error("invalid_request", "%s begins in the midst of %d bytes: pass a copy, which begins "
                    "where memory was allocated" % (name, _ALIGNMENT))
    return address


def _step_of(driver: driver_module.Driver, launch: Json, code: driver_module.Code,
             sizes: Dict[str, int]) -> Union[_Launch, _Memset, _Constant]:
    if "memset" in launch:
        return _Memset(launch["memset"], launch["byte"], sizes[launch["memset"]])
    if "constant" in launch:
        size = sizes[launch["buffer"]]
        return _Constant(launch["buffer"], driver.constant(code, launch["constant"], size), size)
    keep: List[Any] = []
    values: List[Tuple[Any, str]] = []
    for argument in launch["args"]:
        kind = argument["kind"]
        if kind == "tensor_map":
            raise Error("invalid_request", "%s takes a tensor map, which this package cannot make: use "
                        "libtune's tune_cuda.h" % launch["entry"])
        value = ctypes.c_uint64() if kind == "buffer" else driver_module.SCALARS[argument["type"]]()
        if kind == "buffer" or "value" not in argument:
            values.append((value, argument["name"]))
        else:
            value.value = argument["value"]
        keep.append(value)
    pointers = (ctypes.c_void_p * len(keep))(*(ctypes.addressof(value) for value in keep))
    return _Launch(code.functions[launch["entry"]], launch["grid"], launch["block"],
                   launch["shared_bytes"], launch.get("cluster"), bool(launch.get("cooperative")),
                   launch.get("repeat", 1), values, pointers, keep)
