"""Batches and symbolic dimensions: from a model's inputs to static types."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bolt_build.dtypes import DType
from bolt_build.errors import Diagnostic
from bolt_build.graph.ir import TensorType
from bolt_build.graph.limits import too_large
from bolt_build.wording import suggest

if TYPE_CHECKING:
    from bolt_build.graph.onnx_model.onnx_file import OnnxInput

INPUT_DTYPES = {
    "float": DType.F32, "float16": DType.F16, "bfloat16": DType.BF16, "double": DType.F64, "int8": DType.I8,
    "int16": DType.I16, "int32": DType.I32, "int64": DType.I64, "uint8": DType.U8, "uint16": DType.U16,
    "uint32": DType.U32, "uint64": DType.U64, "bool": DType.BOOL,
}  # fmt: skip
"""Element types that a graph input may have, by TensorProto's names."""


@dataclass(frozen=True)
class Binding:
    """Name and static type of each input that has one, in order, and what keeps the others from it."""

    types: tuple[tuple[str, TensorType], ...]
    problems: tuple[Diagnostic, ...]


def own_batch(inputs: Sequence[OnnxInput]) -> int:
    """The batch that a model has where none is asked for: 1 where some input's first dimension is symbolic, or a later
    one is called a batch, or no input has a dimension; otherwise the first dimension of its first input that has
    one."""
    first = [value.dims[0] for value in inputs if value.dims]
    if not first or any(not isinstance(dim, int) for dim in first) or batch_symbols(inputs):
        return 1
    return next(dim for dim in first if isinstance(dim, int))


def batch_symbols(inputs: Sequence[OnnxInput], given: Container[str] = ()) -> tuple[str, ...]:
    """What the model calls its batch, where `model.dims` gives the dimensions `given`; none where every first dimension
    is fixed, or given.

    It is every symbolic first dimension, but for those of inputs that name a later one as people call a batch: layers
    over sequences may take the steps first. Where none is left, it is a later one of such a name, or the only one.
    """
    first = []
    for each in inputs:
        symbol = _first_symbol(each)
        if symbol is None:
            continue
        has_name = isinstance((each.dims or ())[0], str)
        later = [other for other in _of(each) if _is_batch(other) and other not in given]
        if not has_name or _is_batch(symbol) or not later:
            first.append(symbol)
    free = [symbol for symbol in _symbols(inputs) if symbol not in given]
    found = [symbol for symbol in first if symbol not in given] or [symbol for symbol in free if _is_batch(symbol)]
    if not found and len(free) == 1 and first and not any(map(_is_batch, first)):
        found = free
    return tuple(dict.fromkeys(found))


def free_symbols(inputs: Sequence[OnnxInput], given: Container[str] = ()) -> tuple[str, ...]:
    """What `model.dims` has to give beside `given`, in order: symbolic dimensions that are not the batch."""
    batch = batch_symbols(inputs, given)
    return tuple(symbol for symbol in _symbols(inputs) if symbol not in batch and symbol not in given)


_BATCH = re.compile(r"n|b|bs|batch([ _-]?(size|dim|axis))?", re.IGNORECASE)


def _is_batch(symbol: str) -> bool:
    """True of what people call a batch."""
    return _BATCH.fullmatch(symbol) is not None


def _symbols(inputs: Sequence[OnnxInput]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(symbol for value in inputs for symbol in _of(value)))


def _of(value: OnnxInput) -> tuple[str, ...]:
    """The symbolic dimensions of an input."""
    return tuple(_symbol(value, axis) for axis, dim in enumerate(value.dims or ()) if not isinstance(dim, int))


def _first_symbol(value: OnnxInput) -> str | None:
    return _symbol(value, 0) if value.dims and not isinstance(value.dims[0], int) else None


def bind_inputs(inputs: Sequence[OnnxInput], batch: int, dims: tuple[tuple[str, int], ...]) -> Binding:
    """Static types of the inputs, and every dimension left over on either side.

    `dims` gives dimensions by name ("input.axis" for one without a name). `batch` is what `batch_symbols` says, and
    every other dimension of such a name. Where that says none and all first dimensions are fixed, one of them must be
    `batch`; inputs whose first dimension is another do not share it.
    """
    bound = dict(dims)
    open_ = {symbol for each in inputs if (symbol := _first_symbol(each)) is not None}
    # Where `dims` gives every dimension, none would be the batch.
    shared = set(batch_symbols(inputs, bound)) or open_
    problems = [] if shared else _wrong_batches(inputs, batch)
    unbound: dict[str, str] = {}
    used: set[str] = set()
    types = []
    for value in inputs:
        if value.dtype not in INPUT_DTYPES or value.dims is None:
            continue
        shape = []
        for axis, dim in enumerate(value.dims):
            symbol = _symbol(value, axis)
            extent = dim if isinstance(dim, int) else batch if symbol in shared else bound.get(symbol)
            used.add(symbol)
            if extent is None:
                unbound.setdefault(symbol, f"'{symbol}' (dimension {axis} of input '{value.name}')")
            else:
                shape.append(extent)
        kind = TensorType(INPUT_DTYPES[value.dtype], tuple(shape))
        if len(shape) < len(value.dims):
            continue
        reason = too_large(kind)
        if reason is None:
            types.append((value.name, kind))
        else:
            problems.append(Diagnostic("model-too-large", f"the input '{value.name}' cannot be: {reason}"))
    problems += _left_open(unbound)
    problems += _unused(bound, shared, used - _fixed(inputs))
    return Binding(tuple(types), tuple(problems))


def _symbol(value: OnnxInput, axis: int) -> str:
    dim = (value.dims or ())[axis]
    return symbol_of(value.name, axis, dim if isinstance(dim, str) else None)


def symbol_of(name: str, axis: int, symbol: str | None) -> str:
    """What `model.dims` calls a dimension of the input `name`."""
    return symbol or f"{name}.{axis}"


def _fixed(inputs: Sequence[OnnxInput]) -> set[str]:
    """What fixed dimensions would be called, which `model.dims` cannot set."""
    return {
        _symbol(value, axis) for value in inputs for axis, dim in enumerate(value.dims or ()) if isinstance(dim, int)
    }


def _left_open(unbound: Mapping[str, str]) -> list[Diagnostic]:
    if not unbound:
        return []
    what = "dimension" if len(unbound) == 1 else "dimensions"
    example = ", ".join(f"{symbol}: SIZE" for symbol in unbound)
    message = f"{what} without an extent: {', '.join(unbound.values())}"
    return [Diagnostic("unbound-dimension", message, hint=f"set model.dims in the recipe: dims: {{{example}}}")]


def _unused(bound: Mapping[str, int], shared: set[str], used: set[str]) -> list[Diagnostic]:
    found = []
    for name in bound:
        if name in shared:
            message = f"model.dims sets '{name}', which model.batch binds already"
            hint = "leave it out, and set model.batch"
        elif name not in used:
            message = f"model.dims sets '{name}', which no input has"
            open_ones = sorted(used - shared)
            known = f"it can set: {', '.join(open_ones)}" if open_ones else "leave it out: it can set none"
            hint = suggest(name, used) or known
        else:
            continue
        found.append(Diagnostic("unused-dimension", message, hint=hint))
    return found


def _wrong_batches(inputs: Sequence[OnnxInput], batch: int) -> list[Diagnostic]:
    """Of a model whose first dimensions are all fixed."""
    first = [(value.name, value.dims[0]) for value in inputs if value.dims]
    if not first or any(dim == batch for _, dim in first):
        return []
    hint = f"leave model.batch out, or set it to {first[0][1]}, or export the model with a symbolic first dimension"
    return [
        Diagnostic(
            "fixed-batch", f"the first dimension of input '{name}' is {dim}, but batch {batch} is asked for", hint=hint
        )
        for name, dim in first
    ]
