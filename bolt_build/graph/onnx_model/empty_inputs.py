"""Inputs of an ONNX model that have no elements where a symbolic dimension has the extent 0: what a decoder has seen in
front of its first token. An engine has no such input."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import numpy as np
import onnx
from onnx import NodeProto, ValueInfoProto, helper, numpy_helper

from bolt_build.graph.onnx_model.binding import symbol_of
from bolt_build.graph.onnx_model.fixed_inputs import FixedError, FixedMistake
from bolt_build.graph.zoo.replace import LEAST_IR_VERSION
from bolt_build.wording import suggest

_Dims = tuple[int | str, ...]


def without_empty(model: onnx.ModelProto, empty: Collection[str], dims: Mapping[str, int]) -> onnx.ModelProto:
    """A copy of `model` without the inputs that have a dimension in `empty`; everything that reads one stays, and reads
    a tensor without elements. `dims` are extents of other symbolic dimensions. One that neither has, as the batch, is
    that of another input. Raises FixedError."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    stored = {item.name for item in graph.initializer}
    inputs = {item.name: item for item in graph.input if item.name not in stored}
    known = {name: _dims(item) for name, item in inputs.items()}
    symbols = {each for of in known.values() for each in of if isinstance(each, str)}
    mistakes = [
        FixedMistake(name, f"model.dims sets '{name}', which no input has", suggest(name, symbols))
        for name in empty
        if name not in symbols
    ]
    gone = {name: of for name, of in known.items() if not set(empty).isdisjoint(of)}
    if gone and len(gone) == len(inputs):
        first = next(name for name in empty if name in symbols)
        mistakes.append(FixedMistake(first, "no input of the model would have elements"))
    made: list[NodeProto] = []
    for name, of in gone.items():
        extents = [0 if each in empty else dims.get(each, each) if isinstance(each, str) else each for each in of]
        sources = {each: _source(each, known, gone) for each in extents if isinstance(each, str)}
        for symbol, source in sources.items():
            if source is None:
                mistakes.append(FixedMistake(symbol, f"'{symbol}' of the empty input '{name}' is of no other input"))
        elem_type = inputs[name].type.tensor_type.elem_type
        made += _empty(name, elem_type, extents, {each: at for each, at in sources.items() if at is not None})
    if mistakes:
        raise FixedError(mistakes)
    # Files before IR version 4 list initializers among the inputs.
    left = [item for name, item in inputs.items() if name not in gone]
    nodes = [*made, *graph.node]
    del graph.input[:], graph.node[:]
    graph.input.extend(left)
    graph.node.extend(nodes)
    result.ir_version = max(result.ir_version, LEAST_IR_VERSION)
    return result


def _dims(item: ValueInfoProto) -> _Dims:
    """Extents, and what recipes call those that are symbolic."""
    found = enumerate(item.type.tensor_type.shape.dim)
    return tuple(
        dim.dim_value if dim.dim_value > 0 else symbol_of(item.name, axis, dim.dim_param or None) for axis, dim in found
    )


def _source(symbol: str, known: Mapping[str, _Dims], gone: Collection[str]) -> tuple[str, int] | None:
    """An input that has elements and this dimension, and which of its axes that is."""
    return next(
        ((name, of.index(symbol)) for name, of in known.items() if name not in gone and symbol in of), None
    )  # fmt: skip


def _empty(
    name: str, elem_type: int, extents: Iterable[int | str], sources: Mapping[str, tuple[str, int]]
) -> list[NodeProto]:
    """Nodes that make a tensor of that name and these extents."""
    nodes, parts = [], []
    for axis, extent in enumerate(extents):
        part = f"{name}/extent{axis}"
        if isinstance(extent, int):
            nodes.append(_constant(part, np.asarray([extent])))
        elif extent in sources:
            source, at = sources[extent]
            nodes += [
                helper.make_node("Shape", [source], [f"{part}/shape"]),
                _constant(f"{part}/axis", np.asarray([at])),
                helper.make_node("Gather", [f"{part}/shape", f"{part}/axis"], [part]),
            ]
        parts.append(part)
    filled = numpy_helper.from_array(np.zeros(1, helper.tensor_dtype_to_np_dtype(elem_type)))
    return [
        *nodes,
        helper.make_node("Concat", parts, [f"{name}/extents"], axis=0),
        helper.make_node("ConstantOfShape", [f"{name}/extents"], [name], value=filled),
    ]


def _constant(name: str, array: np.typing.NDArray[np.int64]) -> NodeProto:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array.astype(np.int64)))
