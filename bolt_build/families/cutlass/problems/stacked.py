"""Depths of a volume that become channels, and the convolution over images that alone reads them, as one problem."""

from __future__ import annotations

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem
from bolt_build.families.common.chains import chained
from bolt_build.families.common.problems import problem_of
from bolt_build.graph.ir import Graph, Layout, Node
from bolt_build.graph.ops.moves.stack import FoldDepth
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.targets import Target


def readers(graph: Graph, stack: Node) -> tuple[Node, Node] | str:
    """The nodes behind a stack of depths that make images of them and convolve these; why there are none."""
    fold = _only_reader(graph, stack)
    if fold is None or not isinstance(fold.op, FoldDepth):
        return "what it stacks is read by others than one convolution over images"
    last = _only_reader(graph, fold)
    if last is None or not isinstance(last.op, Conv) or last.inputs.count(fold.outputs[0]) != 1:
        return "what it stacks is read by others than one convolution over images"
    return fold, last


def problem(graph: Graph, nodes: tuple[Node, Node, Node], target: Target, precision: DType) -> KernelProblem:
    """The three nodes as one, channels last: the volume, then the convolution's other inputs."""

    def alone(node: Node) -> KernelProblem:
        rank = graph.type(node.outputs[0]).rank
        layouts = (
            Layout.CHANNELS_LAST if not isinstance(node.op, Conv) or graph.type(name).rank == rank else Layout.ROW
            for name in node.inputs
        )
        return problem_of(graph, node, target, precision, tuple(layouts), Layout.CHANNELS_LAST)

    stack, fold, last = map(alone, nodes)
    return chained(chained(stack, fold), last)


def _only_reader(graph: Graph, node: Node) -> Node | None:
    output = node.outputs[0]
    found = [each for each in graph.nodes if output in each.inputs]
    return found[0] if len(found) == 1 and output not in graph.outputs else None
