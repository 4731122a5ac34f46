"""What an engine says of its tensors and steps, as Python objects."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from bolt_build.dtypes import DType
from bolt_build.layouts import Layout
from bolt_build.runtime import engine_abi as abi

Array = npt.NDArray[Any]
_DTYPES = (
    DType.F32, DType.F16, DType.BF16, DType.F64, DType.I64, DType.I32, DType.I8, DType.U8, DType.BOOL, DType.I16,
    DType.U16, DType.U32, DType.U64,
)  # fmt: skip
_LAYOUTS = (Layout.ROW, Layout.CHANNELS_LAST)
_PLACES = ("cpu", "cuda")


@dataclass(frozen=True)
class TensorSpec:
    """A port of the engine: logical shape, element type, and how it lies in the engine's memory."""

    name: str
    dtype: DType
    layout: Layout
    where: str
    shape: tuple[int, ...]
    nbytes: int

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        """The element type that arrays of this port have (bf16 is `ml_dtypes.bfloat16`)."""
        if self.dtype is DType.BF16:
            # NumPy has no such type: the package is needed where an engine has.
            import ml_dtypes

            half: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
            return half
        return np.dtype("?" if self.dtype is DType.BOOL else f"{self.dtype.value[0]}{self.dtype.nbytes}")

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """The shape in memory order."""
        if self.layout is Layout.CHANNELS_LAST:
            return (self.shape[0], *self.shape[2:], self.shape[1])
        return self.shape

    def resized(self, shape: tuple[int, ...]) -> TensorSpec:
        """The same port with another shape."""
        return replace(self, shape=shape, nbytes=prod(shape) * self.numpy_dtype.itemsize)

    def to_logical(self, stored: Array) -> Array:
        """An array of `stored_shape` as a row-major one of `shape`; no copy where the two are the same."""
        if self.layout is Layout.CHANNELS_LAST:
            return np.asarray(np.moveaxis(stored, -1, 1), order="C")
        return stored

    def to_stored(self, logical: Array) -> Array:
        """An array of `shape` as a contiguous one of `stored_shape`; no copy where the two are the same."""
        if self.layout is Layout.CHANNELS_LAST:
            logical = np.moveaxis(logical, 1, -1)
        return np.asarray(logical, order="C")


@dataclass(frozen=True)
class StepInfo:
    """One step of an observed run: its index in the plan, the layer's ONNX name, nodes it covers, its kernel."""

    index: int
    name: str
    covers: tuple[str, ...]
    kernel: str


def text_of(raw: bytes | None) -> str:
    """A string of the engine's; empty for NULL."""
    return "" if raw is None else raw.decode()


def spec_of(tensor: abi.Tensor) -> TensorSpec:
    """A descriptor as the engine filled it."""
    dtype = _DTYPES[tensor.dtype]
    shape = tuple(int(extent) for extent in tensor.shape[: tensor.rank])
    return TensorSpec(
        text_of(tensor.name), dtype, _LAYOUTS[tensor.layout], _PLACES[tensor.where], shape, int(tensor.bytes)
    )


def step_of(info: abi.StepInfo) -> StepInfo:
    """What an observer is told of a step."""
    covers = text_of(info.covers)
    return StepInfo(
        int(info.index), text_of(info.name), tuple(covers.split("\n")) if covers else (), text_of(info.kernel)
    )


def stored_inputs(engine: str, ports: Sequence[TensorSpec], inputs: Mapping[str, Array]) -> list[Array]:
    """Inputs by name as they lie in memory, in the order of the ports. Raises ValueError, with all that does not fit,
    in words about the engine of this name, and TypeError where arrays have no names."""
    require_names(inputs)
    known = {port.name for port in ports}
    problems = [f"'{name}' is no input of {engine}" for name in inputs if name not in known]
    for port in ports:
        if port.name not in inputs:
            problems.append(f"input '{port.name}' is missing")
            continue
        given: object = inputs[port.name]  # Callers without type hints give lists, too.
        if not isinstance(given, np.ndarray):
            problems.append(f"input '{port.name}' is of type {type(given).__name__}, wanted a NumPy array")
            continue
        array = inputs[port.name]
        if array.dtype != port.numpy_dtype or array.shape != port.shape:
            problems.append(
                f"input '{port.name}' is {array.dtype} {list(array.shape)},"
                f" wanted {port.numpy_dtype} {list(port.shape)}"
            )
    if problems:
        raise ValueError("; ".join(problems))
    return [port.to_stored(inputs[port.name]) for port in ports]


def require_names(inputs: object) -> None:
    """Raises TypeError where inputs are no mapping: a caller without type hints gives an array alone, too."""
    if not isinstance(inputs, Mapping):
        raise TypeError(f"inputs are of type {type(inputs).__name__}, wanted a mapping: arrays by the names of inputs")


def whole(what: str, value: int, bits: int) -> int:
    """The value, where the ABI's signed integers of so many bits hold it: ctypes would drop what is more. Raises
    TypeError where it is no whole number, and ValueError."""
    number = operator.index(value)
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise ValueError(f"{what} is {number}, which does not fit into {bits} bits")
    return number
