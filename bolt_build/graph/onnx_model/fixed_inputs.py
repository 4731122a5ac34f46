"""Inputs of an ONNX model that become constants of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from bolt_build.graph.ir import Array
from bolt_build.graph.zoo.replace import LEAST_IR_VERSION
from bolt_build.schema.recipe import Value
from bolt_build.wording import suggest


@dataclass(frozen=True)
class FixedMistake:
    """Why the input `name` cannot have the value that a recipe gives it."""

    name: str
    message: str
    hint: str | None = None


class FixedError(Exception):
    """All that is wrong with the values of a recipe."""

    def __init__(self, mistakes: Sequence[FixedMistake]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("; ".join(mistake.message for mistake in mistakes))


def fix_inputs(model: onnx.ModelProto, fixed: Sequence[tuple[str, Value]], dims: Mapping[str, int]) -> onnx.ModelProto:
    """A copy of `model` without the inputs in `fixed`, each of which is an initializer with its value; everything that
    reads one stays. `dims` are extents of symbolic dimensions. Raises FixedError."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    stored = {item.name for item in graph.initializer}
    inputs = {item.name: item for item in graph.input if item.name not in stored}
    known, mistakes = list(inputs), []
    for name, value in fixed:
        if name not in inputs:
            hint = suggest(name, known) or f"its inputs: {', '.join(known)}"
            mistakes.append(FixedMistake(name, f"the model has no input '{name}'", hint))
            continue
        try:
            graph.initializer.append(numpy_helper.from_array(_array(inputs.pop(name), value, dims), name))
        except _Unfit as unfit:
            mistakes.append(FixedMistake(name, *unfit.args))
    if not mistakes and not inputs:
        mistakes.append(FixedMistake(fixed[0][0], "all inputs of the model are fixed: its outputs would be constants"))
    if mistakes:
        raise FixedError(mistakes)
    # Files before IR version 4 list initializers among the inputs.
    left = list(inputs.values())
    del graph.input[:]
    graph.input.extend(left)
    result.ir_version = max(result.ir_version, LEAST_IR_VERSION)
    return result


class _Unfit(Exception):
    """A message, and a hint where there is one."""


def _array(given: onnx.ValueInfoProto, value: Value, dims: Mapping[str, int]) -> Array:
    """The value in the input's type and shape. Raises _Unfit."""
    if given.type.WhichOneof("value") != "tensor_type":
        raise _Unfit(f"'{given.name}' is no tensor")
    kind = given.type.tensor_type
    name = onnx.TensorProto.DataType.Name(kind.elem_type).lower()
    if name == "string" or name == "undefined":
        raise _Unfit(f"'{given.name}' is {name}, which no value of a recipe is")
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(kind.elem_type))
    for each in _elements(value):
        _check_element(given.name, name, dtype, each)
    shape = _shape_of(given.name, value)
    wanted = [_extent(dim, dims) for dim in kind.shape.dim] if kind.HasField("shape") else None
    if not shape and wanted is not None:
        if None in wanted:
            raise _Unfit(f"'{given.name}' has a dimension whose extent is not known", "write a list of its elements")
        return np.full([extent or 0 for extent in wanted], value, dtype)
    fits = wanted is None or (
        len(wanted) == len(shape) and all(a in (None, b) for a, b in zip(wanted, shape, strict=True))
    )
    if not fits:
        assert wanted is not None
        has = "x".join("?" if extent is None else str(extent) for extent in wanted) or "of one element"
        raise _Unfit(f"'{given.name}' has the shape {has}, the value {'x'.join(map(str, shape))}")
    return np.array(value, dtype)


def _extent(dim: onnx.TensorShapeProto.Dimension, dims: Mapping[str, int]) -> int | None:
    return dim.dim_value if dim.HasField("dim_value") else dims.get(dim.dim_param)


def _elements(value: Value) -> list[bool | int | float]:
    return [each for row in value for each in _elements(row)] if isinstance(value, tuple) else [value]


def _shape_of(name: str, value: Value) -> tuple[int, ...]:
    if not isinstance(value, tuple):
        return ()
    rows = {_shape_of(name, row) for row in value}
    if len(rows) > 1:
        raise _Unfit(f"the value of '{name}' has rows of several lengths")
    return (len(value), *rows.pop())


def _check_element(name: str, type_name: str, dtype: np.dtype[Any], value: bool | int | float) -> None:
    """Raises _Unfit where the type does not hold the value: none is rounded to another integer, or wrapped."""
    said = str(value).lower() if isinstance(value, bool) else str(value)
    if isinstance(value, bool) != (type_name == "bool"):
        words = "true or false" if type_name == "bool" else "numbers"
        raise _Unfit(f"'{name}' is {type_name}, and {said} is not", f"it takes {words}")
    if dtype.kind not in "iu":
        with np.errstate(over="ignore"):  # half precision ends early
            held = float(np.array(value).astype(dtype))
        if isfinite(value) and not isfinite(held):
            raise _Unfit(f"'{name}' is {type_name}, which {said} is too {'small' if value < 0 else 'large'} for")
        return
    if isinstance(value, float):
        raise _Unfit(f"'{name}' is {type_name}, and {said} is not", "it takes whole numbers, without a point")
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    if not least <= value <= most:
        raise _Unfit(f"'{name}' is {type_name}, which {said} is too {'small' if value < least else 'large'} for")
