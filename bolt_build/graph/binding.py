"""Batches and symbolic dimensions: from a model's inputs to static types."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bolt_build.dtypes import DType
from bolt_build.errors import BoltError, Diagnostic
from bolt_build.graph.ir import TensorType

if TYPE_CHECKING:
    from bolt_build.graph.onnx_file import OnnxInput

INPUT_DTYPES = {"float": DType.F32, "float16": DType.F16, "bfloat16": DType.BF16, "double": DType.F64}
"""Element types that a graph input may have, by TensorProto's names."""


def bind_inputs(
    path: Path, inputs: Sequence[OnnxInput], batch: int, dims: tuple[tuple[str, int], ...]
) -> tuple[tuple[str, TensorType], ...]:
    """Name and static type of each input.

    `batch` is the first dimension of each input and every dimension of that name; `dims` gives the others by name
    ("input.axis" for one without a name). Raises BoltError with every dimension left over on either side.
    """
    bound = dict(dims)
    batch_names = {value.dims[0] for value in inputs if value.dims and isinstance(value.dims[0], str)}
    diagnostics = _wrong_batches(inputs, batch)
    symbols = set()
    unbound: dict[str, str] = {}
    found = []
    for value in inputs:
        shape = []
        for axis, dim in enumerate(value.dims or ()):
            symbol = dim if isinstance(dim, str) else f"{value.name}.{axis}"
            if isinstance(dim, int):
                shape.append(dim)
            elif axis == 0 or dim in batch_names:
                shape.append(batch)
            elif symbol in bound:
                symbols.add(symbol)
                shape.append(bound[symbol])
            else:
                unbound.setdefault(symbol, f"'{symbol}' (dimension {axis} of input '{value.name}')")
        found.append((value.name, TensorType(INPUT_DTYPES[value.dtype], tuple(shape))))
    if unbound:
        listed = ", ".join(unbound.values())
        example = ", ".join(f"{symbol}: N" for symbol in unbound)
        diagnostics.append(
            Diagnostic(
                "unbound-dimension",
                f"{'dimension' if len(unbound) == 1 else 'dimensions'} without an extent: {listed}",
                hint=f"set model.dims in the recipe: dims: {{{example}}}",
            )
        )
    for name in bound:
        if name in batch_names:
            unused = f"model.dims sets '{name}', which model.batch binds already"
        elif name not in symbols:
            unused = f"model.dims sets '{name}', which no input has"
        else:
            continue
        diagnostics.append(Diagnostic("unused-dimension", unused))
    if diagnostics:
        raise BoltError(Diagnostic(d.code, d.message, hint=d.hint, subject=str(path)) for d in diagnostics)
    return tuple(found)


def _wrong_batches(inputs: Sequence[OnnxInput], batch: int) -> list[Diagnostic]:
    found = []
    for value in inputs:
        first = value.dims[0] if value.dims else batch
        if isinstance(first, int) and first != batch:
            message = f"the first dimension of input '{value.name}' is {first}, but batch {batch} is asked for"
            hint = f"set model.batch: {first}, or export the model with a symbolic first dimension"
            found.append(Diagnostic("fixed-batch", message, hint=hint))
    return found
