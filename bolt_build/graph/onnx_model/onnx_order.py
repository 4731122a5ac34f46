"""The order of a model's nodes: ONNX wants each behind those whose results it reads, and runtimes do not insist.

Converters to half precision, for one, append their casts behind all other nodes.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

import onnx

from bolt_build.graph.onnx_model.onnx_parse import subgraphs


def in_order(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with every node behind those that it reads from, also in graphs inside nodes, and else in the order of
    the file; the model itself where it has that order. What no order can help stays where it is: nodes in a circle, and
    those of a graph that defines a name twice."""
    if all(_places(graph) is None for graph in _graphs(model.graph)):
        return model
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for graph in list(_graphs(changed.graph)):
        places = _places(graph)
        if places is not None:
            nodes = [onnx.NodeProto.FromString(graph.node[place].SerializeToString()) for place in places]
            del graph.node[:]
            graph.node.extend(nodes)
    return changed


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """The innermost first."""
    for node in graph.node:
        for attribute in node.attribute:
            for inner in subgraphs(attribute):
                yield from _graphs(inner)
    yield graph


def _places(graph: onnx.GraphProto) -> Sequence[int] | None:
    """Where each node of the order stands in the file; None where that is the order, or there is none."""
    makers: dict[str, int] = {}
    for place, node in enumerate(graph.node):
        for name in node.output:
            if name and makers.setdefault(name, place) != place:
                return None
    reads = [{makers[name] for name in names_read(node) if name in makers} for node in graph.node]
    if all(max(found, default=-1) < place for place, found in enumerate(reads)):
        return None
    waits = [len(found) for found in reads]
    readers: dict[int, list[int]] = {}
    for place, found in enumerate(reads):
        for maker in found:
            readers.setdefault(maker, []).append(place)
    ready = [place for place, count in enumerate(waits) if not count]
    ordered: list[int] = []
    while ready:
        place = heapq.heappop(ready)
        ordered.append(place)
        for reader in readers.get(place, ()):
            waits[reader] -= 1
            if not waits[reader]:
                heapq.heappush(ready, reader)
    return ordered if len(ordered) == len(reads) else None


def names_read(node: onnx.NodeProto) -> Iterator[str]:
    """Names that the node and the graphs inside it read, their own among them."""
    yield from node.input
    for attribute in node.attribute:
        for graph in subgraphs(attribute):
            yield from (output.name for output in graph.output)
            for inner in graph.node:
                yield from names_read(inner)
