"""What of a graph an engine's weights, and a lock's cover, are tied to: everything but the values of its constants."""

from __future__ import annotations

from collections.abc import Sequence

from bolt_build.digest import digest, encode
from bolt_build.graph.ir import Graph


def structure(graphs: Sequence[Graph]) -> str:
    """Digest of tensors' names, types and operators of the graphs, without the values of constants.

    A graph's own name is its file's: another file of the same architecture has another, and its weights still fit.
    """
    return digest([_skeleton(graph) for graph in graphs])


def graph_digest(graph: Graph) -> str:
    """The structure of the optimised graph of one batch: what a cover was found for."""
    return structure((graph,))


def _skeleton(graph: Graph) -> object:
    values = [[v.name, encode(v.type), v.constant is not None] for v in graph.values]
    return [graph.batch, list(graph.inputs), list(graph.outputs), values, encode(graph.nodes)]
