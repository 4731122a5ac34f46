"""How many parameters a model has where it is deployed."""

from __future__ import annotations

from math import prod

from bolt_build.graph.ir import Graph
from bolt_build.planner.passes.fuse.epilogues import FUSE_EPILOGUES
from bolt_build.planner.pipeline import passes
from bolt_build.schema.recipe import Policy


def count_parameters(graph: Graph, policy: Policy) -> int:
    """Numbers in the weights of `graph` once BatchNorms are folded and branches merged, as publications count them.

    What later passes and kernels pad, repack or store twice does not count.
    """
    for each in passes():
        if each is FUSE_EPILOGUES:
            break
        graph = each.run(graph, policy).graph
    read = {name for node in graph.nodes for name in node.inputs}
    weights = (graph.type(name) for name in read if graph.constant(name) is not None)
    # One number is an operand of a formula, and integers are shapes and indices.
    return sum(prod(kind.shape) for kind in weights if kind.dtype.is_float and prod(kind.shape) > 1)
