"""The problems of a node by itself: in which layouts and types its kernels may read and leave tensors."""

from __future__ import annotations

from dataclasses import replace

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, Operand, TensorFormat
from bolt_build.families.common.element_types import HALVES
from bolt_build.families.common.problems import op_operands, problem_of
from bolt_build.families.cutlass.problems import conv
from bolt_build.families.cutlass.problems.products import multiplies, product_of
from bolt_build.graph.ir import Graph, Layout, Node
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.graph.ops.moves.rearrange import Rearrange
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.targets import Target


def pitched(problem: KernelProblem) -> tuple[int, ...]:
    """Output 0, unless a row of the product is several of it, which lie one behind the other."""
    return (0,) if product_of(problem).n == problem.outputs[0].row else ()


def pitched_chain(second: KernelProblem) -> tuple[int, ...]:
    """The same of two nodes in one kernel. What a pooling or a movement of pixels leaves has whole rows, whatever the
    product in front has."""
    return pitched(second) if multiplies(second.op) else (0,)


def alone(graph: Graph, node: Node, target: Target, precision: DType) -> KernelProblem:
    """The node channels-last."""
    rank = graph.type(node.outputs[0]).rank
    layouts = (Layout.CHANNELS_LAST if graph.type(name).rank == rank else Layout.ROW for name in node.inputs)
    return problem_of(graph, node, target, precision, tuple(layouts), Layout.CHANNELS_LAST)


def in_rows(graph: Graph, node: Node, target: Target, precision: DType) -> KernelProblem:
    """The node row-major."""
    return problem_of(graph, node, target, precision, tuple(Layout.ROW for _ in node.inputs), Layout.ROW)


def problems_of(graph: Graph, node: Node, target: Target, precision: DType) -> tuple[KernelProblem, ...]:
    """The node channels-last (a matrix product row-major); a first layer that copies its input anyway also straight
    from the planes of an image, and a last matrix product also to fp32, as the model has it."""
    rank = graph.type(node.outputs[0]).rank
    last = Layout.CHANNELS_LAST if isinstance(node.op, Conv | Pool | Rearrange) else Layout.ROW
    layouts = tuple(last if graph.type(name).rank == rank else Layout.ROW for name in node.inputs)
    problem = problem_of(graph, node, target, precision, layouts, last)
    if isinstance(node.op, MatMul) and node.outputs[0] in graph.outputs and precision in HALVES:
        output = Operand(problem.outputs[0].shape, TensorFormat(DType.F32, Layout.ROW))
        return (problem, replace(problem, outputs=(output,))) if _is_f32(graph, node) else (problem,)
    if not isinstance(node.op, Conv):
        return (problem,)
    x, planes = op_operands(problem)[0], TensorFormat(DType.F32, Layout.ROW)
    formats = [problem.inputs[x].format]
    if conv.thin(problem):
        formats += [planes, TensorFormat(precision, Layout.ROW)]
    elif conv.gathers(problem) and node.inputs[0] in graph.inputs and graph.type(node.inputs[0]).dtype is DType.F32:
        formats.append(planes)
    return tuple(_with_input(problem, x, format) for format in formats)


def _is_f32(graph: Graph, node: Node) -> bool:
    return graph.type(node.outputs[0]).dtype is DType.F32


def _with_input(problem: KernelProblem, index: int, format: TensorFormat) -> KernelProblem:
    operands = list(problem.inputs)
    operands[index] = type(operands[index])(operands[index].shape, format, operands[index].constant)
    return replace(problem, inputs=tuple(operands))
