"""A product and the node behind it that combines its result with one number of each image and channel, as one problem:
gates of squeeze and excitation that are known before the product, and what time embeddings add."""

from __future__ import annotations

from dataclasses import replace

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem
from bolt_build.families.common.problems import problem_of
from bolt_build.graph.ir import EpilogueOp, Graph, Layout, Node
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.patterns.chains import NodeChain
from bolt_build.graph.patterns.image_numbers import numbers_of
from bolt_build.targets import Target


def combined(graph: Graph, product: Node) -> NodeChain | None:
    """A product and the node that combines what it leaves with such numbers; None where there is no such node."""
    value = product.outputs[0]
    channel = 1 if isinstance(product.op, Conv) else graph.type(value).rank - 1
    readers = graph.consumers(value)
    node = next((each for each in readers if numbers_of(graph, each, value, channel) is not None), None)
    if node is None:
        return None
    obstacle = f"'{value}' is an output of the graph" if value in graph.outputs else None
    if obstacle is None and len(readers) > 1:
        other = next(each for each in readers if each is not node)
        obstacle = f"'{other.name}' reads '{value}' as well"
    return NodeChain(product, node, obstacle)


def joined(graph: Graph, product: Node, node: Node) -> Node:
    """Both as one node, with the stages of both."""
    assert isinstance(node.op, Binary)
    value = product.outputs[0]
    channel = 1 if isinstance(product.op, Conv) else graph.type(value).rank - 1
    at = numbers_of(graph, node, value, channel)
    assert at is not None
    inputs = [*product.inputs, node.inputs[at]]
    stages = [*product.epilogue, EpilogueOp(node.op, len(product.inputs), at == 0 and node.op.function == "sub")]
    for stage in node.epilogue:
        stages.append(stage if stage.operand is None else replace(stage, operand=len(inputs)))
        inputs += [] if stage.operand is None else [node.inputs[stage.operand]]
    return Node(node.name, product.op, tuple(inputs), node.outputs, tuple(stages))


def problem(graph: Graph, node: Node, target: Target, precision: DType) -> KernelProblem:
    """The node of both as a problem: channels last, or rows of a matrix."""
    rank = graph.type(node.outputs[0]).rank
    layout = Layout.CHANNELS_LAST if isinstance(node.op, Conv) else Layout.ROW
    layouts = tuple(layout if graph.type(name).rank == rank else Layout.ROW for name in node.inputs)
    return problem_of(graph, node, target, precision, layouts, layout)
