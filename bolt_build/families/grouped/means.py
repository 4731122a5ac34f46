"""Means of all that a convolution leaves, as squeeze and excitation takes them: its tiles leave sums, and a second
kernel adds up those of an image, in one order."""

from __future__ import annotations

from bolt_build.families.base import KernelProblem
from bolt_build.families.grouped.kind import Sums
from bolt_build.families.grouped.shape import Shape
from bolt_build.graph.ir import Graph, Layout, Node
from bolt_build.graph.ops.chain import Averaged
from bolt_build.graph.ops.reduce import Reduce
from bolt_build.targets import Target


def averages(problem: KernelProblem) -> bool:
    """True for problems of a convolution and its means."""
    return isinstance(problem.op, Averaged)


def reader(graph: Graph, node: Node) -> Node | None:
    """The node that takes the means of all that a convolution leaves of each channel, as an image of one pixel; None
    where there is none."""
    axes = tuple(range(2, graph.type(node.outputs[0]).rank))
    mean = Reduce("mean", axes)
    return next((each for each in graph.consumers(node.outputs[0]) if each.op == mean and not each.epilogue), None)


def refuse(problem: KernelProblem) -> str | None:
    """Why no kernel leaves the means that a problem has; None where some may, or it has none."""
    if not averages(problem):
        return None
    results, mean = problem.outputs
    if mean.format.dtype is not results.format.dtype or mean.format.layout is not Layout.CHANNELS_LAST:
        return f"leaves means in {results.format.dtype.value}/channels_last, not in {mean.format}"
    return None


def seconds(shape: Shape, sums: Sums, target: Target) -> float:
    """Predicted time of the sums, written and read, and of the kernel that adds them up. Not measured."""
    moved = 2 * 4 * shape.batch * sums.tiles * shape.filters
    return moved / target.bandwidth + target.launch_seconds
