"""Matrix products of factors that are read where they lie."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.element_types import COMPUTED, HALVES
from bolt_build.families.common.epilogue import bias, chain, channel_axis, refuse_stages
from bolt_build.families.common.problems import op_operands, problem_of
from bolt_build.families.portable.kernels.products import half_products
from bolt_build.families.portable.kernels.products.product_loops import (
    placed,
    placed_parameters,
    refuse_walks,
    walks_apart,
)
from bolt_build.families.portable.kernels.products.products import single_efficiency
from bolt_build.families.portable.rule import Layouts, Rule, computed_only
from bolt_build.graph.ir import Graph, Layout, Node, TensorType
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.moves.shape import Slice, Transpose
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.graph.ops.products.placed_matmul import Move, PlacedMatMul
from bolt_build.targets import Target


def _layouts(node: Node, inputs: tuple[TensorType, ...], output: TensorType) -> tuple[Layouts, ...]:
    """Every one of each factor, and of the output, whose layout stages' operands share."""

    def choices(t: TensorType) -> tuple[Layout, ...]:
        return tuple(Layout) if t.rank >= 3 else (Layout.ROW,)

    def found() -> Iterator[Layouts]:
        for a, b, c in product(*map(choices, (*inputs[:2], output))):
            yield (a, b, *(c if t.rank == output.rank else Layout.ROW for t in inputs[2:])), c

    return tuple(found())


def _refuse(problem: KernelProblem) -> str | None:
    if (reason := computed_only(problem) or refuse_stages(problem) or refuse_walks(problem)) is not None:
        return reason
    return None if channel_axis(problem) is None else "numbers of one axis each do not follow a product that lies apart"


def _emit(problem: KernelProblem, at: StepExpressions) -> StepCode:
    found = placed(problem, at)
    assert found is not None
    a, b = found.factors
    operands = (problem.inputs[a], problem.inputs[b], problem.outputs[0])
    types = ", ".join(COMPUTED[operand.format.dtype] for operand in operands)
    before = tuple(bias(problem, at, index) for index in op_operands(problem)[2:])
    call = (
        f"bolt::portable::matmul<{types}>(r, {placed_parameters(found)}, {at.inputs[a]}, {at.inputs[b]}, "
        f"{at.outputs[0]}, {chain(problem, at, before)});"
    )
    return StepCode(("bolt_portable/matmul.h",), None, "", call)


_FAR = 6
"""Nodes between a product and the transpose around it."""


def _same(shape: tuple[int, ...]) -> Move:
    return shape, tuple(range(len(shape))), shape


def _exchanges(graph: Graph, node: Node, forward: bool, far: int) -> bool:
    """Whether rows and columns of what the node makes, or of what it reads, are exchanged by a transpose, with products
    and functions of elements in between."""
    if far == 0:
        return False
    if forward:
        near = graph.consumers(node.outputs[0])
    else:
        made = graph.producer(node.inputs[0])
        near = () if made is None else (made,)
    for other in near:
        if isinstance(other.op, Transpose) and other.op.perm == (0, 2, 1):
            return True
        between = isinstance(other.op, MatMul | Activation | Binary | Slice) and graph.type(other.outputs[0]).rank == 3
        if between and _exchanges(graph, other, forward, far - 1):
            return True
    return False


def mixing(graph: Graph, node: Node, target: Target, precision: DType) -> tuple[KernelProblem, ...]:
    """A product with weights whose rows and columns a transpose exchanges, in front or behind: mixers multiply tokens.
    With channels last on either side it multiplies what lies there, and the transpose moves nothing."""
    op, gpu = node.op, target.gpu
    if not isinstance(op, MatMul) or op.transpose_a or gpu is None or precision not in HALVES:
        return ()
    x, weight = graph.type(node.inputs[0]), graph.type(node.inputs[1])
    flat = graph.constant(node.inputs[1]) is not None and weight.rank == 2 and x.rank == 3
    if not flat or not any(_exchanges(graph, node, forward, _FAR) for forward in (False, True)):
        return ()
    right = (weight.shape, (1, 0), weight.shape[::-1]) if op.transpose_b else _same(weight.shape)
    placed_op = PlacedMatMul(_same(x.shape), right, _same(graph.type(node.outputs[0]).shape))
    found = []
    for a, c in product(Layout, Layout):
        more = (c if graph.type(name).rank == 3 else Layout.ROW for name in node.inputs[2:])
        problem = problem_of(graph, node, target, precision, (a, Layout.ROW, *more), c)
        found.append(replace(problem, op=placed_op))
    return tuple(found)


def _single(problem: KernelProblem) -> float:
    assert isinstance(problem.op, PlacedMatMul)
    *_, rows, columns = problem.op.product
    return single_efficiency(rows, columns)


_PLACE = 0.13e-6
"""Seconds that a thread waits for each place of the depth where it computes an element by itself, as it does of
products of fewer than 16 rows or columns: one of 512 rows, 256 deep, of four columns took so long on an H200."""
_LEAST_TILED = 16


def _waits(problem: KernelProblem) -> float:
    op = problem.op
    assert isinstance(op, PlacedMatMul)
    *_, rows, columns = op.product
    return _PLACE * op.left[2][-1] if min(rows, columns) < _LEAST_TILED else 0.0


RULES = (
    Rule(
        PlacedMatMul,
        _refuse,
        _emit,
        lambda problem: 0.02,
        gpu_efficiency=0.0003,
        gpu_single=_single,
        gpu_latency=_waits,
        layouts=_layouts,
        reads_apart=walks_apart,
        forms=(half_products.FORM,),
    ),
)
