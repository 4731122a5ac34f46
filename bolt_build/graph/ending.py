"""ONNX models that end at other tensors than their outputs, such as in front of a detector's post-processing."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx
import onnx.inliner
import onnx.shape_inference

from bolt_build.graph.onnx_parse import subgraphs
from bolt_build.wording import suggest


@dataclass(frozen=True)
class EndingMistake:
    """Why a model cannot end at a tensor."""

    message: str
    hint: str | None = None


class EndingError(Exception):
    """All that is wrong with the outputs of a recipe."""

    def __init__(self, mistakes: Sequence[EndingMistake]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("; ".join(mistake.message for mistake in mistakes))


def end_at(model: onnx.ModelProto, outputs: Sequence[str]) -> onnx.ModelProto:
    """A copy of `model` whose outputs are the tensors `outputs`, in that order: nodes, constants and inputs that none
    of them needs are left out. Raises EndingError."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    if result.functions and not {name for node in result.graph.node for name in node.output}.issuperset(outputs):
        result = onnx.inliner.inline_local_functions(result)
    graph = result.graph
    makers = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    _check(outputs, makers, {item.name for item in graph.input} | {item.name for item in graph.initializer})
    types = _types(result, outputs)
    nodes, read = _needed(graph.node, makers, outputs)
    kept = [graph.node[index] for index in sorted(nodes)]
    inputs = [item for item in graph.input if item.name in read]
    stored = [item for item in graph.initializer if item.name in read]
    del graph.node[:], graph.input[:], graph.initializer[:], graph.output[:]
    graph.node.extend(kept)
    graph.input.extend(inputs)
    graph.initializer.extend(stored)
    graph.output.extend(types)
    return result


def _check(outputs: Sequence[str], makers: Mapping[str, int], given: Collection[str]) -> None:
    mistakes = []
    for name in dict.fromkeys(outputs):
        if name in given:
            mistakes.append(EndingMistake(f"'{name}' goes into the model: no node computes it"))
        elif name not in makers:
            mistakes.append(EndingMistake(f"the model has no tensor '{name}'", suggest(name, makers)))
    if mistakes:
        raise EndingError(mistakes)


def _types(model: onnx.ModelProto, outputs: Sequence[str]) -> list[onnx.ValueInfoProto]:
    """What the model says of the outputs, or what ONNX infers. One that it cannot infer has a name alone."""
    known = _said(model.graph)
    if not known.keys() >= set(outputs):
        # C++ that raises whatever does not fit, and takes no model beyond 2 GiB: a runtime infers types by itself
        with contextlib.suppress(Exception):
            known |= _said(onnx.shape_inference.infer_shapes(model).graph)
    return [known.get(name, onnx.ValueInfoProto(name=name)) for name in dict.fromkeys(outputs)]


def _said(graph: onnx.GraphProto) -> dict[str, onnx.ValueInfoProto]:
    return {item.name: item for item in (*graph.value_info, *graph.output)}


def _needed(
    nodes: Sequence[onnx.NodeProto], makers: Mapping[str, int], outputs: Iterable[str]
) -> tuple[set[int], set[str]]:
    """The nodes behind which `outputs` come, and all names that these and graphs inside them read."""
    found, read, waiting = set[int](), set[str](), list(outputs)
    while waiting:
        name = waiting.pop()
        index = makers.get(name)
        if name in read:
            continue
        read.add(name)
        if index is not None and index not in found:
            found.add(index)
            waiting += _reads(nodes[index])
    return found, read


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    yield from node.input
    for attribute in node.attribute:
        for graph in subgraphs(attribute):
            yield from (output.name for output in graph.output)
            for inner in graph.node:
                yield from _reads(inner)
