"""How kernels of products of pairs walk through rows and weights."""

from __future__ import annotations

from dataclasses import dataclass

from bolt_build.families.base import KernelProblem, StepExpressions
from bolt_build.families.common.cxx import boolean, braces, literal, struct
from bolt_build.families.common.geometry import MOST_AXES, Loop, merged, strides
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.products.pair_product import PairFactors, PairProduct
from bolt_build.graph.ops.products.placed_matmul import moved_loops


@dataclass(frozen=True)
class Loops:
    """Loops over the result's matrices, in which rows of each term have steps and then weights of each; and the steps
    between rows of each term."""

    planes: tuple[Loop, ...]
    lines: tuple[int, ...]


def looped(problem: KernelProblem, at: StepExpressions | None = None) -> Loops | str:
    """A reason where a kernel does not walk through rows as they lie."""
    op = problem.op
    assert isinstance(op, PairProduct)
    front, terms = op.shape[:-2], tuple(op.terms)
    sides, lines = list[tuple[int, ...]](), list[int]()
    for term in terms:
        rows = problem.inputs[term.rows]
        own = strides(rows, 0 if at is None else at.input_pitch(term.rows))
        found = moved_loops(rows.shape, own, term.move)
        if found is None or found[-1][1] != 1:
            return "rows of a product of pairs are no single run through memory"
        sides.append(tuple(step for _, step in found[:-2]))
        lines.append(found[-2][1])
    sides += [_steps(problem, term, len(front)) for term in terms]
    loops = [Loop(extent, tuple(side[axis] for side in sides)) for axis, extent in enumerate(front)]
    planes = merged(loops, len(sides))
    if len(planes) > MOST_AXES:
        return Reason("multiplies over {} loops, at most {} are supported", len(planes), MOST_AXES)
    return Loops(planes, tuple(lines))


def _steps(problem: KernelProblem, term: PairFactors, axes: int) -> tuple[int, ...]:
    """Of a term's weights along each axis in front: 0 where they are repeated."""
    weights = problem.inputs[term.weights]
    own = strides(weights)[:-2]
    kept = [step if extent > 1 else 0 for step, extent in zip(own, weights.shape[:-2], strict=True)]
    return (*(0,) * (axes - len(kept)), *kept)


def parameters(problem: KernelProblem, at: StepExpressions) -> str:
    """C++ for what kernels are given."""
    op, found = problem.op, looped(problem, at)
    assert isinstance(op, PairProduct)
    assert isinstance(found, Loops), found
    terms = tuple(op.terms)
    return struct(
        f"bolt::portable::PairProduct<{len(terms)}>",
        rank=len(found.planes),
        extent=braces(loop.extent for loop in found.planes),
        step=braces(braces(loop.steps[side] for loop in found.planes) for side in range(2 * len(terms))),
        rows=op.shape[-2],
        columns=op.shape[-1],
        depth=problem.inputs[terms[0].weights].shape[-1],
        line=braces(found.lines),
        positions=braces(problem.inputs[term.weights].shape[-2] for term in terms),
        turned=braces(boolean(term.turned) for term in terms),
        factor=braces(literal(term.factor) for term in terms),
        x=braces(at.inputs[term.rows] for term in terms),
        weights=braces(at.inputs[term.weights] for term in terms),
        least=braces(at.inputs[term.least] for term in terms),
        more=braces(at.inputs[term.more] for term in terms),
    )
