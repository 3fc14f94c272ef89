"""What describes a sparse matrix or a graph in a kernel's shape.

    shape = tunerd.describe_csr(offsets, columns, n_columns)
    answer = client.get("spmv", {name: shape[name] for name in ...})    # the dims that the kernel has

The same numbers as tune_sparse_describe_csr of libtune and `tunectl sweep --input` give: ROWS, COLUMNS,
NONZEROS, SPREAD, LONGEST, BANDWIDTH and SKEW. With NumPy it takes milliseconds per million entries;
without, about a second.
"""
from __future__ import annotations

import importlib
import math
import operator
from types import ModuleType
from typing import Any, Dict, List, Optional, Sequence, Tuple

from .client import Error

_SERIES = (10, 12, 15, 18, 22, 27, 33, 39, 47, 56, 68, 82, 100)


def _round(value: float, exact: float) -> int:
    """To the series times a power of ten, the nearest by ratio; below `exact` to an integer."""
    if value < exact:
        return int(value + 0.5)
    power = 1
    while value >= 100 * power:
        power *= 10
    digits = value / power
    for low, high in zip(_SERIES, _SERIES[1:]):
        if digits * digits < low * high:
            return low * power
    return 100 * power


def _numpy() -> Optional[ModuleType]:
    try:
        return importlib.import_module("numpy")
    except ImportError:
        return None


def _on_host(array: Any) -> Any:
    """PyTorch tensors and CuPy arrays may lie on a GPU."""
    if hasattr(array, "detach"):
        return array.detach().cpu().numpy()
    return array.get() if type(array).__module__.split(".")[0] == "cupy" else array


def _sums_numpy(numpy: ModuleType, offsets: Any, columns: Any, n_columns: int) -> Tuple[float, int, float, float]:
    lengths = numpy.diff(offsets)
    if (lengths < 0).any() or (len(columns) > 0 and not 0 <= columns.min() <= columns.max() < n_columns):
        raise Error("invalid_request", "the offsets must ascend, and the columns be 0 to n_columns - 1")
    rows = len(lengths)
    centers = numpy.repeat(numpy.arange(rows) * n_columns / rows, lengths)
    per_column = numpy.bincount(columns, minlength=n_columns).astype(float)
    return (float((lengths.astype(float) ** 2).sum()), int(lengths.max()),
            float(numpy.abs(columns - centers).sum()), float((per_column ** 2).sum()))


def _sums(offsets: Sequence[int], columns: Sequence[int], n_columns: int) -> Tuple[float, int, float, float]:
    rows = len(offsets) - 1
    per_column: List[int] = [0] * n_columns
    squares, longest, distances = 0.0, 0, 0.0
    for row in range(rows):
        first, end = offsets[row], offsets[row + 1]
        if end < first:
            raise Error("invalid_request", f"row {row} ends at {end} and begins at {first}")
        center = row * n_columns / rows
        for column in columns[first:end]:
            if not 0 <= column < n_columns:
                raise Error("invalid_request", f"column {column} is none of 0 to {n_columns - 1}")
            per_column[column] += 1
            distances += abs(column - center)
        squares += (end - first) ** 2
        longest = max(longest, end - first)
    return squares, longest, distances, float(sum(count * count for count in per_column))


def describe_csr(offsets: Any, columns: Any, n_columns: int) -> Dict[str, int]:
    """The dims that describe a matrix whose row i has the columns columns[offsets[i]:offsets[i + 1]].
    Lists, NumPy or CuPy arrays, PyTorch tensors. A graph is square: n_columns is its vertices."""
    numpy, n_columns = _numpy(), operator.index(n_columns)  # a NumPy integer is none of JSON's
    offsets, columns = _on_host(offsets), _on_host(columns)
    if numpy is not None:
        offsets, columns = numpy.asarray(offsets, numpy.int64), numpy.asarray(columns, numpy.int64)
    rows = len(offsets) - 1
    if rows < 1 or n_columns < 1 or offsets[0] != 0 or offsets[rows] != len(columns):
        raise Error("invalid_request", "the offsets must begin with 0 and end with the number of columns given")
    nonzeros = len(columns)
    if nonzeros == 0:
        raise Error("invalid_request", "the matrix has no entries")
    squares, longest, distances, column_squares = (
        _sums_numpy(numpy, offsets, columns, n_columns) if numpy is not None
        else _sums(offsets, columns, n_columns))
    return {
        "ROWS": rows,
        "COLUMNS": n_columns,
        "NONZEROS": nonzeros,
        "SPREAD": _round(100 * math.sqrt(squares * rows) / nonzeros, 0),
        "LONGEST": longest,
        "BANDWIDTH": _round(1 + 2 * distances / nonzeros, 10),
        "SKEW": _round(100 * math.sqrt(column_squares * n_columns) / nonzeros, 0),
    }
