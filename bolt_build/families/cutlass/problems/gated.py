"""Two products of which one is a gate of the other, as one product over the columns of both."""

from __future__ import annotations

from dataclasses import replace

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, Operand
from bolt_build.families.common.functors import instructions
from bolt_build.families.common.problems import op_operands, problem_of
from bolt_build.families.cutlass.epilogue import refuse_channels, refuse_epilogue, residual
from bolt_build.families.cutlass.problems.product import ALIGNMENT, Product, Work, work
from bolt_build.families.cutlass.problems.products import product_of, refuse_problem
from bolt_build.families.reason import Reason
from bolt_build.graph.ir import Graph, Layout, Node, Op
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.products.gated import Gated
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.graph.patterns.gates import GatedProducts
from bolt_build.targets import Target

_GATE, _BIASES = 1, 2
"""Instructions that a gate takes of a result beside those of activations, and that biases do."""


def problem_of_gate(
    graph: Graph, gate: GatedProducts, target: Target, precision: DType
) -> tuple[KernelProblem, tuple[str, ...]]:
    """A gated product that nothing in the graph is against as a problem, and the values that it reads."""
    last, products = gate.last, gate.products
    layout = Layout.CHANNELS_LAST if isinstance(products[0].op, Conv) else Layout.ROW
    ones = [_bare(graph, node, target, precision, layout) for node in products]
    whole = _alone(graph, last, target, precision, layout)
    operands = list(ones[0].inputs) + [each for one in ones[1:] for each in one.inputs[1:]]
    names = list(products[0].op_inputs) + [name for node in products[1:] for name in node.op_inputs[1:]]
    op = Gated(products[0].op, len(ones[0].inputs), gate.first.stages, gate.second.stages, gate.neighbours)
    after = []
    for stage in gate.after:
        after.append(stage if stage.operand is None else replace(stage, operand=len(operands)))
        if stage.operand is not None:
            operands.append(whole.inputs[stage.operand])
            names.append(last.inputs[stage.operand])
    problem = KernelProblem(op, tuple(operands), whole.outputs, tuple(after), DType.F32, target.name)
    return problem, tuple(names)


def _bare(graph: Graph, node: Node, target: Target, precision: DType, layout: Layout) -> KernelProblem:
    """A product without its epilogue."""
    return _alone(graph, replace(node, inputs=node.op_inputs, epilogue=()), target, precision, layout)


def _alone(graph: Graph, node: Node, target: Target, precision: DType, layout: Layout) -> KernelProblem:
    rank = graph.type(node.outputs[0]).rank
    layouts = (layout if graph.type(name).rank == rank else Layout.ROW for name in node.inputs)
    return problem_of(graph, node, target, precision, tuple(layouts), layout)


def gated(problem: KernelProblem) -> Gated:
    """The operator of a gated product's problem."""
    assert isinstance(problem.op, Gated)
    return problem.op


def first_side(problem: KernelProblem) -> KernelProblem:
    """The product whose weights come first: a's, or that of both sides where they are columns of one."""
    op = gated(problem)
    own = [problem.inputs[index] for index in op_operands(problem)]
    left = op.sides([operand.type for operand in own])[0]
    return _product(problem, tuple(own[: op.operands]), left.shape)


def both_sides(problem: KernelProblem) -> KernelProblem:
    """The product over the columns of both, without what follows."""
    op, one = gated(problem), first_side(problem)
    if _joint(problem):
        return one
    x, weights, *biases = one.inputs
    inputs = (x, _doubled(weights, _columns_of(op.product)), *(_doubled(bias, 0) for bias in biases))
    output = _doubled(one.outputs[0], op.axis)
    return _product(problem, inputs, output.shape)


def refuse_gated(problem: KernelProblem) -> str | None:
    """A reason why no kernel of this family computes the problem, whatever its tile."""
    op, own, output = gated(problem), op_operands(problem), problem.outputs[0]
    whole = both_sides(problem)
    if not all(problem.inputs[index].constant for index in own[1:]):
        return "weights and biases must be constants, to be packed when the engine loads"
    if output.format.dtype is not problem.inputs[own[1]].format.dtype:
        return (
            f"a gated product is stored as {problem.inputs[own[1]].format.dtype.value}, not {output.format.dtype.value}"
        )
    if (reason := refuse_problem(whole) or refuse_epilogue(problem) or refuse_channels(problem)) is not None:
        return reason
    stored = output.shape[op.axis]
    if stored % ALIGNMENT:
        return Reason("columns of both sides alternate in runs of 8, {} are no multiple", stored)
    one, both = product_of(first_side(problem)), product_of(whole)
    beside = (one.n, both.n) != (2 * stored if _joint(problem) else stored, 2 * stored)
    return "two neighbours of few channels are one row of the product" if beside else None


def gated_product(problem: KernelProblem, loads: int = ALIGNMENT) -> Product:
    """How a problem that is not refused is computed: the columns of both sides, and a residual of what is stored."""
    return replace(product_of(both_sides(problem), loads), residual=residual(problem) is not None)


def gated_work(problem: KernelProblem, product: Product) -> Work:
    """What the prediction needs: half of the columns are stored, and activations and gate take instructions of each."""
    op, whole = gated(problem), both_sides(problem)
    needed, stored = work(whole, product), problem.outputs[0].nbytes
    functions = sum(instructions(stages) for stages in (op.first, op.second, problem.epilogue))
    nbytes = needed.nbytes - whole.outputs[0].nbytes + stored * (1 if residual(problem) is None else 2)
    return replace(needed, nbytes=nbytes, functions=functions + _GATE + _BIASES * biased(problem), sides=2)


def biased(problem: KernelProblem) -> bool:
    """Whether a side has a bias."""
    own, op = op_operands(problem), gated(problem)
    return op.operands > 2 or len(own) > op.operands + 1


def _joint(problem: KernelProblem) -> bool:
    return len(op_operands(problem)) == gated(problem).operands


def _product(problem: KernelProblem, inputs: tuple[Operand, ...], shape: tuple[int, ...]) -> KernelProblem:
    output = replace(problem.outputs[0], shape=shape)
    op = gated(problem).product
    return KernelProblem(op, inputs, (output,), (), problem.accumulate, problem.target, problem.padding)


def _columns_of(op: Op) -> int:
    """The axis of weights that counts what they make columns, or channels, of."""
    assert isinstance(op, Conv | MatMul)
    return 0 if isinstance(op, Conv) else -2 if op.transpose_b else -1


def _doubled(operand: Operand, axis: int) -> Operand:
    at = axis % len(operand.shape)
    return replace(operand, shape=(*operand.shape[:at], 2 * operand.shape[at], *operand.shape[at + 1 :]))
