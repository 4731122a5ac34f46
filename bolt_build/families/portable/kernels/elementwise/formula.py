"""Elementwise nodes that only each other read, in one kernel of a GPU: one pass over memory, and one launch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, Operand, ProposedStep, StepCode, StepExpressions
from bolt_build.families.common.cxx import braces, struct
from bolt_build.families.common.functors import (
    ACTIVATIONS,
    BINARIES,
    TRANSCENDENTAL,
    activation,
    activation_type,
    binary,
    instructions,
)
from bolt_build.families.common.geometry import MOST_AXES
from bolt_build.families.common.problems import problem_of
from bolt_build.families.portable.kernels.elementwise.flat import flat_form
from bolt_build.families.portable.kernels.elementwise.logic import asked_type
from bolt_build.families.portable.kernels.elementwise.tiled import Points, points_of, tiled_form
from bolt_build.families.portable.rule import Rule, computed_only, no_epilogue, same_layouts
from bolt_build.families.portable.typed import ctype, in_whole_points, pointwise_bandwidth, pointwise_loops
from bolt_build.families.reason import Reason
from bolt_build.graph.ir import EpilogueOp, Graph, Node
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.formula import Formula, FormulaOp
from bolt_build.graph.ops.moves.shape import Cast
from bolt_build.graph.patterns.formulas import formulas_from
from bolt_build.targets import Target

_HEADER = "bolt_portable/formula.h"
_CALLED, _SIMPLE = 0.0025, 0.1
"""Parts of the peak rate, as those of the steps apart."""
_POWER, _HALF_POWER = 100, 20
_SEARCHED = 0.62
"""The part of what functions of two tensors reach there at which formulas go that look for elements one by one: as an
H200 took for three gates."""


def _of(problem: KernelProblem) -> Formula:
    assert isinstance(problem.op, Formula)
    return problem.op


def _refuse(problem: KernelProblem) -> str | None:
    if (reason := refuse_types(problem) or no_epilogue(problem)) is not None:
        return reason
    for term in _of(problem).terms:
        known = {Activation: ACTIVATIONS, Binary: BINARIES}.get(type(term.op), {term.word: ""})
        if term.word not in known:
            return f"there is no portable body for '{term.word}'"
    count = len(pointwise_loops(problem, rows=True))
    return Reason("broadcasts over {} loops, at most {} are supported", count, MOST_AXES) if count > MOST_AXES else None


def refuse_types(problem: KernelProblem) -> str | None:
    """A reason where a tensor has neither numbers that kernels compute with, nor booleans, nor integers, which are
    compared alone."""
    every = (*problem.inputs, *problem.outputs)
    numbers = [each for each in every if each.format.dtype is not DType.BOOL and not each.format.dtype.is_integer]
    return computed_only(replace(problem, inputs=tuple(numbers), outputs=()))


def _in_half(problem: KernelProblem) -> bool:
    return problem.outputs[0].format.dtype in (DType.F16, DType.BF16)


def _term(half: bool, op: FormulaOp, operands: tuple[int, ...], integers: bool) -> str:
    sides = ", ".join(map(str, operands))
    if isinstance(op, Activation):
        return f"bolt::portable::Term<{activation_type(op)}, {sides}>{{{activation(op)}}}"
    if isinstance(op, Cast):
        return f"bolt::portable::Term<bolt::portable::{'Holds' if op.to is DType.BOOL else 'AsNumber'}, {sides}>{{}}"
    if not isinstance(op, Binary):
        return f"bolt::portable::{'IntegerTerm' if integers else 'Term'}<{asked_type(op)}, {sides}>{{}}"
    # Powers of half precision need no function of the C library.
    power = op.function == "pow" and half
    return f"bolt::portable::Term<{'bolt::portable::HalfPow<true>' if power else binary(op)}, {sides}>{{}}"


def formula_function(op: Formula, inputs: Sequence[Operand], dtype: DType) -> str:
    """A C++ object of the formula of `inputs`, whose results are stored as `dtype`."""
    half = dtype in (DType.F16, DType.BF16)
    whole = [each.format.dtype.is_integer for each in inputs]
    integers = [any(index < len(whole) and whole[index] for index in term.operands) for term in op.terms]
    terms = (_term(half, term.op, term.operands, each) for term, each in zip(op.terms, integers, strict=True))
    return f"bolt::portable::formula({', '.join(terms)})"


def _function(problem: KernelProblem) -> str:
    return formula_function(_of(problem), problem.inputs, problem.outputs[0].format.dtype)


def _emit(problem: KernelProblem, at: StepExpressions) -> StepCode:
    loops, count = pointwise_loops(problem, at), len(problem.inputs)
    types = ", ".join(ctype(operand.format.dtype) for operand in (*problem.outputs, *problem.inputs))
    parameters = struct(
        f"bolt::portable::Pointwise<{count}>",
        rank=len(loops),
        extent=braces(loop.extent for loop in loops),
        step=braces(braces(loop.steps[i] for loop in loops) for i in range(count)),
    )
    pointers = ", ".join((at.outputs[0], *at.inputs))
    call = f"bolt::portable::pointwise<{types}>(r, {parameters}, {_function(problem)}, {pointers});"
    return StepCode((_HEADER,), None, "", call)


def _efficiency(problem: KernelProblem) -> float:
    """Of all terms together: each takes what it takes in a step of its own."""
    terms = _of(problem).terms
    slow = sum(term.word in (TRANSCENDENTAL if isinstance(term.op, Activation) else ("pow",)) for term in terms)
    return len(terms) / (slow / _CALLED + (len(terms) - slow) / _SIMPLE)


def _work(problem: KernelProblem) -> float:
    """Instructions of an element's functions beside one simple one."""
    return formula_work(_of(problem), _in_half(problem))


def formula_work(formula: Formula, half: bool) -> float:
    """Instructions of an element's functions beside one simple one; `half`: of results in half precision."""
    ops = [term.op for term in formula.terms]
    powers = sum(isinstance(op, Binary) and op.function == "pow" for op in ops)
    functions = [EpilogueOp(op) for op in ops if isinstance(op, Activation)]
    return powers * (_HALF_POWER if half else _POWER) + instructions(functions)


def _points(problem: KernelProblem, at: StepExpressions | None) -> Points:
    loops = pointwise_loops(problem, at, rows=True)
    return points_of(problem, _function(problem), _HEADER, loops, _work(problem))


def _sides_apart(problem: KernelProblem) -> tuple[int, ...]:
    """The tensors that are no constants: steps lead through them."""
    return tuple(index for index, operand in enumerate(problem.inputs) if not operand.constant)


def _bandwidth(problem: KernelProblem) -> float:
    """Of the plain kernel, whose threads look for elements of broadcasts one by one."""
    return pointwise_bandwidth(problem) * (1.0 if in_whole_points(problem) else _SEARCHED)


def _whole(problem: KernelProblem) -> bool:
    return in_whole_points(problem) and pointwise_bandwidth(problem) == 1.0


def joined(
    graph: Graph, node: Node, target: Target, precision: DType
) -> Iterator[tuple[tuple[str, ...], ProposedStep, tuple[KernelProblem, ...]]]:
    """Formulas that begin with `node`, of row-major tensors and of images whose channels lie last: the nodes, the step
    that does all of them, and the problems of each. On a GPU: a host keeps what lies between in its caches."""
    if target.gpu is None:
        return
    for found in formulas_from(graph, node):
        last = found.nodes[-1]
        output = graph.type(last.outputs[0])
        for place in range(len(same_layouts(last, (), output))):
            apart = tuple(
                _problem(graph, each, target, precision, place if _rank(graph, each) == output.rank else 0)
                for each in found.nodes
            )
            operands: dict[str, Operand] = {}
            for each, problem in zip(found.nodes, apart, strict=True):
                for name, operand in zip(each.inputs, problem.inputs, strict=True):
                    # Comparisons keep the numbers that they compare with in fp32.
                    if name not in operands or operand.format.dtype.nbytes > operands[name].format.dtype.nbytes:
                        operands[name] = operand
            inputs = tuple(operands[name] for name in found.inputs)
            made = apart[-1].outputs
            if not inputs or inputs[0].constant or not _gives(found.op, inputs, made[0]):
                continue
            problem = KernelProblem(found.op, inputs, made, (), DType.F32, target.name)
            whole = tuple(index for index, operand in enumerate(inputs) if _lies_alike(operand, made[0]))
            share = tuple((index, 0) for index in whole)
            step = ProposedStep(problem, found.inputs, last.outputs, share, reads_apart=_sides_apart(problem))
            yield found.region, step, apart


def _gives(op: Formula, inputs: tuple[Operand, ...], made: Operand) -> bool:
    """Whether the formula's results have the element type that is wanted."""
    if made.format.dtype is DType.BOOL:
        return True
    return next((each.format.dtype for each in inputs if each.format.dtype.is_float), None) is made.format.dtype


def _rank(graph: Graph, node: Node) -> int:
    return graph.type(node.outputs[0]).rank


def _lies_alike(operand: Operand, output: Operand) -> bool:
    """Whether its memory may be the output's: elements of the same size in the same places."""
    alike = operand.shape == output.shape and operand.format.dtype.nbytes == output.format.dtype.nbytes
    return alike and not operand.constant and operand.format.layout is output.format.layout


def _problem(graph: Graph, node: Node, target: Target, precision: DType, place: int) -> KernelProblem:
    """In row-major layout, or with channels last where tensors have them."""
    types = tuple(graph.type(name) for name in node.inputs)
    offered = same_layouts(node, types, graph.type(node.outputs[0]))
    layouts, output = offered[place]
    return problem_of(graph, node, target, precision, layouts, output)


RULES = (
    Rule(
        Formula,
        _refuse,
        _emit,
        _efficiency,
        gpu_bandwidth=_bandwidth,
        reads_apart=_sides_apart,
        forms=(flat_form(_points, _whole), tiled_form(_points, in_whole_points)),
    ),
)
