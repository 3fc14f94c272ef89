"""Stand-ins for PyTorch and CuPy: arrays in the memory of the driver that tunerd.driver has loaded (the
emulator's), with as much of both interfaces as the client uses. install() makes them importable."""
import ctypes
import math
import struct
import sys
import types

#: name -> (bytes, struct's letter); bfloat16 by its bits
_FORMATS = {"uint32": (4, "I"), "float32": (4, "f"), "float16": (2, "e"), "bfloat16": (2, None), "uint8": (1, "B"),
            "int64": (8, "q")}


def _driver_call(name, *arguments):
    code = getattr(_library, name)(*arguments)
    assert code == 0, "%s gave %d" % (name, code)


def install(library):
    """`library`: the driver as a ctypes.CDLL. Makes device 0's primary context current."""
    global _library
    _library = library
    context = ctypes.c_void_p()
    _driver_call("cuInit", 0)
    _driver_call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    _driver_call("cuCtxSetCurrent", context)
    sys.modules["torch"], sys.modules["cupy"] = _torch(), _cupy()


def pack(name, values):
    size, letter = _FORMATS[name]
    if letter:
        return struct.pack("<%d%s" % (len(values), letter), *values)
    bits = [struct.unpack("<I", struct.pack("<f", v))[0] for v in values]
    return struct.pack("<%dH" % len(bits), *((b + 0x7fff + (b >> 16 & 1)) >> 16 for b in bits))


def unpack(name, data):
    size, letter = _FORMATS[name]
    count = len(data) // size
    if letter:
        return list(struct.unpack("<%d%s" % (count, letter), data))
    return [struct.unpack("<f", struct.pack("<I", b << 16))[0]
            for b in struct.unpack("<%dH" % count, data)]


class _Memory:
    """Bytes on the device, freed with their last user."""

    def __init__(self, size):
        address = ctypes.c_uint64()
        _driver_call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(size, 1)))
        self.address = address.value

    def __del__(self):
        _library.cuMemFree_v2(ctypes.c_uint64(self.address))


class Array:
    """What both libraries' arrays have. `offset` bytes into its memory."""

    def __init__(self, name, shape, values=None, offset=0):
        self.name, self.shape, self.strided = name, tuple(shape), False
        self.bytes = math.prod(self.shape) * _FORMATS[name][0]
        self.memory = _Memory(self.bytes + offset)
        self.address = self.memory.address + offset
        if values is not None:
            data = pack(name, values)
            assert len(data) == self.bytes
            _driver_call("cuMemcpyHtoD_v2", ctypes.c_uint64(self.address), data,
                         ctypes.c_size_t(len(data)))

    def tolist(self):
        data = ctypes.create_string_buffer(max(self.bytes, 1))
        _driver_call("cuCtxSynchronize")
        _driver_call("cuMemcpyDtoH_v2", data, ctypes.c_uint64(self.address),
                     ctypes.c_size_t(self.bytes))
        return unpack(self.name, data.raw[:self.bytes])


class _Guard:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


# --- PyTorch --------------------------------------------------------------------------------------


class _TorchDtype(str):
    def __str__(self):
        return "torch." + str.__str__(self)


class _TorchDevice:
    def __init__(self, kind="cuda", index=0):
        self.type, self.index = kind, index

    def __str__(self):
        return self.type


class Tensor(Array):
    __module__ = "torch"

    def __init__(self, name, shape, values=None, offset=0, on="cuda"):
        super().__init__(str.__str__(name), shape, values, offset)
        self.dtype, self.device, self.is_cuda = _TorchDtype(self.name), _TorchDevice(on), on == "cuda"

    def data_ptr(self):
        return self.address

    def is_contiguous(self):
        return not self.strided


def _torch():
    module = types.ModuleType("torch")
    module.Tensor = Tensor
    for name in _FORMATS:
        setattr(module, name, _TorchDtype(name))
    module.empty = lambda shape, dtype, device: Tensor(dtype, shape)
    module.cuda = types.SimpleNamespace(
        device=lambda device: _Guard(),
        current_stream=lambda device: types.SimpleNamespace(cuda_stream=0))
    return module


# --- CuPy -----------------------------------------------------------------------------------------


class ndarray(Array):
    __module__ = "cupy"

    def __init__(self, name, shape, values=None):
        super().__init__(getattr(name, "name", name), shape, values)
        self.dtype = _CupyDtype(self.name)
        self.data = types.SimpleNamespace(ptr=self.address)
        self.device = _CupyDevice()

    @property
    def flags(self):
        return types.SimpleNamespace(c_contiguous=not self.strided)


class _CupyDtype(str):
    @property
    def name(self):
        return str(self)


class _CupyDevice(_Guard):
    id = 0


class RawModule:
    """Notes what it was given."""

    def __init__(self, path):
        self.path, self.functions = path, []
        with open(path, "rb") as file:
            self.code = file.read()

    def get_function(self, symbol):
        self.functions.append(symbol)


def _cupy():
    module = types.ModuleType("cupy")
    module.ndarray, module.RawModule = ndarray, RawModule
    module.empty = lambda shape, dtype: ndarray(dtype, shape)
    module.cuda = types.SimpleNamespace(
        get_current_stream=lambda: types.SimpleNamespace(ptr=0))
    return module
