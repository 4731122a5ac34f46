"""ONNX models with other ends than their own: they begin at tensors that a node computed, and end at others."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx
import onnx.inliner
import onnx.shape_inference

from bolt_build.graph.onnx_model.onnx_order import names_read
from bolt_build.wording import suggest


@dataclass(frozen=True)
class EndMistake:
    """Why a tensor cannot be an input of a model, or an output: `key` is that of the recipe."""

    key: str
    message: str
    hint: str | None = None


class EndError(Exception):
    """All that is wrong with the inputs and outputs of a recipe."""

    def __init__(self, mistakes: Sequence[EndMistake]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("; ".join(mistake.message for mistake in mistakes))


def rewired(model: onnx.ModelProto, inputs: Sequence[str], outputs: Sequence[str]) -> onnx.ModelProto:
    """A copy of `model` to which the tensors `inputs` are given, behind its own inputs, and whose outputs are the
    tensors `outputs`, its own where there are none. What no output needs is left out. Raises EndError."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    if result.functions and not _computed(result).keys() >= {*inputs, *outputs}:
        result = onnx.inliner.inline_local_functions(result)
    graph, makers = result.graph, _computed(result)
    given = {item.name for item in (*graph.input, *graph.initializer)}
    types = _types(result, (*inputs, *outputs))
    mistakes = [*_unknown("inputs", inputs, makers, given), *_unknown("outputs", outputs, makers, given)]
    mistakes += [
        EndMistake("inputs", f"the shape of '{name}' is not known") for name in inputs
        if name in makers and not types[name].type.tensor_type.HasField("shape")
    ]  # fmt: skip
    if mistakes:
        raise EndError(mistakes)
    for name in inputs:
        node = graph.node[makers.pop(name)]
        node.output[:] = ["" if each == name else each for each in node.output]
    ends = [types[name] for name in outputs] or list(graph.output)
    nodes, read = _needed(graph.node, makers, [item.name for item in ends])
    kept = [graph.node[index] for index in sorted(nodes)]
    ports = [item for item in (*graph.input, *(types[name] for name in inputs)) if item.name in read]
    stored = [item for item in graph.initializer if item.name in read]
    del graph.node[:], graph.input[:], graph.initializer[:], graph.output[:]
    graph.node.extend(kept)
    graph.input.extend(ports)
    graph.initializer.extend(stored)
    graph.output.extend(ends)
    return result


def _computed(model: onnx.ModelProto) -> dict[str, int]:
    """The tensors that nodes compute, and the numbers of these."""
    return {name: index for index, node in enumerate(model.graph.node) for name in node.output if name}


def _unknown(key: str, names: Sequence[str], makers: Mapping[str, int], given: Collection[str]) -> Iterator[EndMistake]:
    for name in names:
        if name in given:
            yield EndMistake(key, f"'{name}' goes into the model: no node computes it")
        elif name not in makers:
            yield EndMistake(key, f"the model has no tensor '{name}'", suggest(name, makers))


def _types(model: onnx.ModelProto, names: Iterable[str]) -> dict[str, onnx.ValueInfoProto]:
    """What the model says of the tensors, or what ONNX infers. One that it cannot infer has a name alone."""
    known = _said(model.graph)
    if not known.keys() >= set(names):
        # C++ that raises whatever does not fit, and takes no model beyond 2 GiB: a runtime infers types by itself
        with contextlib.suppress(Exception):
            known |= _said(onnx.shape_inference.infer_shapes(model).graph)
    return {name: known.get(name, onnx.ValueInfoProto(name=name)) for name in names}


def _said(graph: onnx.GraphProto) -> dict[str, onnx.ValueInfoProto]:
    return {item.name: item for item in (*graph.value_info, *graph.output)}


def _needed(
    nodes: Sequence[onnx.NodeProto], makers: Mapping[str, int], outputs: Iterable[str]
) -> tuple[set[int], set[str]]:
    """The nodes behind which `outputs` come, and all names that these and graphs inside them read."""
    found, read, waiting = set[int](), set[str](), list(outputs)
    while waiting:
        name = waiting.pop()
        if name in read:
            continue
        read.add(name)
        index = makers.get(name)
        if index is not None and index not in found:
            found.add(index)
            waiting += names_read(nodes[index])
    return found, read
