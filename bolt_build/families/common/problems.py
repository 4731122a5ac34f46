"""From a graph's node to kernel problems: one for each choice of layouts that a family offers."""

from __future__ import annotations

from bolt_build.dtypes import PRECISIONS, DType
from bolt_build.families.base import KernelProblem, Operand, TensorFormat
from bolt_build.graph.ir import Graph, Layout, Node, TensorType
from bolt_build.targets import Target


def stored(dtype: DType, precision: DType) -> DType:
    """The element type in which a tensor of the graph is stored: numbers of a model in f32, f16 or bf16 in the layer's
    precision, for which a target has kernels; anything else as it is."""
    return precision if dtype in PRECISIONS.values() else dtype


def problem_of(
    graph: Graph, node: Node, target: Target, precision: DType, inputs: tuple[Layout, ...], output: Layout
) -> KernelProblem:
    """The node as a problem. `inputs` has one layout for each of the node's inputs, ignored for constants.

    Constants are row-major; factors (weights) and what an op only moves are stored in `precision`, all other constants,
    such as biases, in f32; integers, booleans and doubles as they are.
    """
    scales = node.op.scales
    operands = tuple(
        _constant(graph.type(name), node, index, precision)
        if graph.constant(name) is not None
        else _operand(graph.type(name), layout, DType.F32 if index in scales else precision)
        for index, (name, layout) in enumerate(zip(node.inputs, inputs, strict=True))
    )
    own = DType.F32 if -1 in scales else precision
    outputs = tuple(_operand(graph.type(name), output, own) for name in node.outputs)
    return KernelProblem(node.op, operands, outputs, node.epilogue, DType.F32, target.name)


def _operand(t: TensorType, layout: Layout, precision: DType) -> Operand:
    return Operand(t.shape, TensorFormat(stored(t.dtype, precision), layout if t.rank >= 3 else Layout.ROW))


def _constant(t: TensorType, node: Node, index: int, precision: DType) -> Operand:
    is_factor = index < node.op.factors
    of_stage = any(stage.operand == index for stage in node.epilogue)
    is_moved = node.op.moves and not of_stage
    narrowed = t.dtype in PRECISIONS.values() and not (is_factor or is_moved)
    dtype = DType.F32 if narrowed else stored(t.dtype, precision)
    return Operand(t.shape, TensorFormat(dtype, Layout.ROW), constant=True)


def op_operands(problem: KernelProblem) -> tuple[int, ...]:
    """Indices of the op's own inputs, without the epilogue's operands."""
    of_epilogue = {stage.operand for stage in problem.epilogue if stage.operand is not None}
    return tuple(index for index in range(len(problem.inputs)) if index not in of_epilogue)
