"""Replaces constants of an ONNX model by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import onnx
from onnx import numpy_helper

from bolt_build.graph.ir import Array

LEAST_IR_VERSION = 4
"""Since this version an initializer need not be listed among the graph's inputs."""

_RESHAPES = ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity")


def replace_constants(model: onnx.ModelProto, arrays: Mapping[str, Array]) -> onnx.ModelProto:
    """A copy of `model` in which each tensor named in `arrays` is an initializer with that value.

    Behind a chain of reshapes it is the tensor that the chain starts from. Nodes whose outputs are all replaced go, and
    then whatever only they had read. Everything else stays where it is.
    """
    result = onnx.ModelProto()
    result.CopyFrom(model)
    result.ir_version = max(result.ir_version, LEAST_IR_VERSION)
    graph = result.graph
    origins = _Origins(graph)
    waiting = dict(origins.of(name, array) for name, array in arrays.items())
    for initializer in graph.initializer:
        if initializer.name in waiting:
            initializer.CopyFrom(numpy_helper.from_array(waiting.pop(initializer.name), initializer.name))
    kept = [node for node in graph.node if not all(output in waiting for output in node.output if output)]
    gone = {name for node in graph.node for name in node.input} - {name for node in kept for name in node.input}
    _drop_unread(kept, gone, {output.name for output in graph.output})
    del graph.node[:]
    graph.node.extend(kept)
    listed = [item for item in graph.input if item.name not in gone]
    del graph.input[:]
    graph.input.extend(listed)
    stored = [item for item in graph.initializer if item.name not in gone]
    stored.extend(numpy_helper.from_array(array, name) for name, array in waiting.items())
    del graph.initializer[:]
    graph.initializer.extend(stored)
    return result


class _Origins:
    """Where the constants of a graph come from."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._makers = {output: node for node in graph.node for output in node.output}
        self._readers = Counter(name for node in graph.node for name in node.input)
        self._stored = {item.name: item for item in graph.initializer}

    def of(self, name: str, array: Array) -> tuple[str, Array]:
        """The initializer or ConstantOfShape that constant `name` is a mere reshape of, with `array` in its shape.

        `name` itself where there is none, or where it has other readers.
        """
        source = name
        while (maker := self._makers.get(source)) is not None and maker.op_type in _RESHAPES:
            source = maker.input[0]
            if self._readers[source] != 1:
                return name, array
        if source in self._stored:
            return source, array.reshape(tuple(self._stored[source].dims))
        if maker is not None and maker.op_type == "ConstantOfShape" and maker.input[0] in self._stored:
            return source, array.reshape(tuple(numpy_helper.to_array(self._stored[maker.input[0]])))
        return name, array


def _drop_unread(nodes: list[onnx.NodeProto], unread: set[str], outputs: set[str]) -> None:
    """Removes nodes that only make tensors in `unread`, adding to it what only they had read, until nothing changes."""
    while True:
        dead = [node for node in nodes if all(name in unread and name not in outputs for name in node.output if name)]
        if not dead:
            return
        freed = {name for node in dead for name in node.input}
        gone = {id(node) for node in dead}
        nodes[:] = [node for node in nodes if id(node) not in gone]
        unread |= freed - {name for node in nodes for name in node.input}
