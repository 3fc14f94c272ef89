"""PyTorch tensors, as Kernel sees them. PyTorch is imported when a tensor is there, not before."""
from __future__ import annotations

from typing import Any, ContextManager, Tuple

import torch

from .client import Error
from .kernel import DTYPES, NAMES


def on_device_of(tensor: Any) -> ContextManager[Any]:
    """Makes the tensor's GPU and its context current."""
    if not tensor.is_cuda:
        raise Error("invalid_request", "the tensor is on the %s: move it to the GPU, tensor.cuda()"
                    % tensor.device)
    guard: ContextManager[Any] = torch.cuda.device(tensor.device)
    return guard


def device_of(tensor: Any) -> int:
    index = tensor.device.index if tensor.is_cuda else -1
    return -1 if index is None else int(index)


def dtype_of(tensor: Any) -> str:
    name = str(tensor.dtype).rpartition(".")[2]
    return DTYPES.get(name, name)


def is_contiguous(tensor: Any) -> bool:
    return bool(tensor.is_contiguous())


def address_of(tensor: Any) -> int:
    return int(tensor.data_ptr())


def stream_of(tensor: Any) -> int:
    return int(torch.cuda.current_stream(tensor.device).cuda_stream)


def empty(like: Any, shape: Tuple[int, ...], dtype: str) -> Any:
    return torch.empty(shape, dtype=getattr(torch, NAMES[dtype]), device=like.device)
