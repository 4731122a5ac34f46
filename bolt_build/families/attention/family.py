"""The family of attention."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from pathlib import Path

from bolt_build.dtypes import DType
from bolt_build.families.attention.kind import FAMILY, Kind, Tile
from bolt_build.families.attention.registry import KINDS, kind_of
from bolt_build.families.attention.shape import SPACE, aligned, arguments, refuse, shape_of
from bolt_build.families.base import (
    Alternative,
    Candidate,
    Expense,
    KernelProblem,
    KernelUnit,
    ProposedStep,
    Refusal,
    StepCode,
    StepExpressions,
)
from bolt_build.families.common.attention import mask_images
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.common.header_family import HeaderFamily
from bolt_build.families.common.leaders import with_leaders
from bolt_build.families.common.problems import problem_of
from bolt_build.families.common.refusals import refused
from bolt_build.families.common.tensor_cores import refuse_target
from bolt_build.families.common.units import distinct, named_unit
from bolt_build.graph.ir import Graph, Layout, Node
from bolt_build.graph.ops.attention.attention import Attention as AttentionOp
from bolt_build.targets import Target

_MEMORY_MB = 500
_FIRST = 6
"""Among so many candidates there is the first of each group."""


class Attention(HeaderFamily):
    """`Family` of attention in half precision, with fp32 sums and softmax."""

    name = FAMILY
    folder = Path(__file__).parent

    def propose(
        self, graph: Graph, node: Node, target: Target, precision: DType
    ) -> tuple[tuple[Alternative, ...], tuple[Refusal, ...]]:
        """Nothing is said of other operators: that they are no attention is no reason."""
        if not isinstance(node.op, AttentionOp):
            return (), ()
        problem = problem_of(graph, node, target, precision, (Layout.ROW,) * len(node.inputs), Layout.ROW)
        found, refusals = self.candidates(problem, target)
        if not found:
            return (), refused(self.name, (node.name,), refusals)
        sources = tuple(index for index in range(node.op.sources) if not problem.inputs[index].constant)
        step = ProposedStep(problem, node.inputs, node.outputs, pitched=(0,), reads_apart=sources)
        return (Alternative((node.name,), self.name, (step,), self.predict(problem, found[0], target)),), ()

    def candidates(self, problem: KernelProblem, target: Target) -> tuple[tuple[Candidate, ...], tuple[Refusal, ...]]:
        if (reason := _refuse(problem, target)) is not None:
            return (), (Refusal(self.name, problem.op.kind, reason),)
        found = [kind.offers(shape_of(problem), target) for kind in KINDS]
        offers = sorted((offer for some, _ in found for offer in some), key=lambda o: (o.seconds, str(o.candidate)))
        ahead, others = with_leaders([_group(offer.candidate) for offer in offers], _FIRST)
        ranked = tuple(offers[index].candidate for index in (*ahead, *others))
        return ranked, tuple(each for _, refused in found for each in refused)

    def variants(self, problem: KernelProblem, candidate: Candidate, target: Target) -> tuple[Candidate, ...]:
        """None: its kernels have no settings."""
        return ()

    def predict(self, problem: KernelProblem, candidate: Candidate, target: Target) -> float:
        return _read(candidate)[1].seconds(shape_of(problem), target)

    def expense(self, problem: KernelProblem, candidate: Candidate | None = None) -> Expense:
        """With what tiles compute beyond queries, keys and heads."""
        if candidate is None:
            return Expense(problem.nbytes, problem.flops)
        tile, shape = _read(candidate)[1], shape_of(problem)
        op = problem.op
        assert isinstance(op, AttentionOp)
        needed = 2 * shape.pairs * op.pairs(shape.queries, shape.keys) * (shape.depth + shape.columns)
        more = max(0, tile.flops(shape) - needed)
        why = f"tiles padded from {needed} operations to {needed + more}" if more else ""
        return Expense(problem.nbytes, problem.flops + more, why)

    def refuse(self, problem: KernelProblem, candidate: Candidate, target: Target) -> str | None:
        if (reason := _refuse(problem, target)) is not None:
            return reason
        return (kind_of(candidate) or KINDS[0]).refuse(shape_of(problem), candidate, target)

    def emit(self, problem: KernelProblem, candidate: Candidate, target: Target, at: StepExpressions) -> StepCode:
        op, (_, tile), shape = problem.op, _read(candidate), shape_of(problem)
        assert isinstance(op, AttentionOp)
        sources = ", ".join(at.inputs[: op.sources] * (3 // op.sources))
        if shape.prepared:
            member = f"{SPACE}::Masked{'Twice' if shape.twice else ''}<{tile.cxx(shape)}>"
            given = [arguments(problem, at), _constant(problem, at, op.sources)]
            if shape.twice:
                more, images = op.masks(problem.inputs)[1], mask_images(problem, 1)
                given += [arguments(problem, at, 1), _constant(problem, at, op.sources + 1)]
                given.append(str(prod(more.shape) // images))
            call = f"kernel.run(r, {sources}, {at.outputs[0]});"
            text = ", ".join((*given, str(aligned(shape.keys, tile.keys))))
            return StepCode(("bolt_attention/prepared.h",), member, text, call)
        if shape.relative:
            return _distanced(problem, tile, at)
        mask = at.inputs[op.sources] if shape.mask else f"r.size({op.counted})" if op.counted else "nullptr"
        types = f"{tile.cxx(shape)}{{}}, {shape.mask_type}{{}}"
        behind = ", ".join((mask, at.outputs[0], *op.sinks(at.inputs)))
        call = f"{SPACE}::run(r, {types}, {arguments(problem, at)}, {sources}, {behind});"
        return StepCode(("bolt_attention/launch.h",), None, "", call)

    def units(self, steps: Sequence[tuple[KernelProblem, Candidate]], target: Target) -> tuple[KernelUnit, ...]:
        """One instantiation each."""
        return distinct(_unit(problem, candidate) for problem, candidate in steps)


def _distanced(problem: KernelProblem, tile: Tile, at: StepExpressions) -> StepCode:
    """The step of a mask by distance. Constant sinks are read when the model is created, as the mask is."""
    op, shape = problem.op, shape_of(problem)
    assert isinstance(op, AttentionOp)
    (mask,), sinks = op.masks(problem.inputs), op.sinks(problem.inputs)
    given = [arguments(problem, at), _constant(problem, at, op.sources), str(mask.shape[0])]
    pointers = [*at.inputs[: op.sources] * (3 // op.sources), at.outputs[0]]
    if sinks and sinks[0].constant:
        given += [_constant(problem, at, len(problem.inputs) - 1), str(prod(sinks[0].shape))]
    elif sinks:
        pointers.append(at.inputs[-1])
    member = f"{SPACE}::Distanced<{tile.cxx(shape)}, {shape.mask_type}>"
    call = f"kernel.run(r, {', '.join(pointers)});"
    return StepCode(("bolt_attention/prepared.h",), member, ", ".join(given), call)


def _constant(problem: KernelProblem, at: StepExpressions, index: int) -> str:
    """`bolt::attention::Constant<...>{...}` of an input."""
    dtype, expression = COMPUTED[problem.inputs[index].format.dtype], at.prepare_inputs[index]
    return f'{SPACE}::Constant<{dtype}>{{static_cast<const {dtype}*>({expression}), "{expression}"}}'


def _refuse(problem: KernelProblem, target: Target) -> str | None:
    """Why no kind is asked about the problem, None where one is."""
    if not isinstance(problem.op, AttentionOp):
        return "is for attention"
    return refuse_target(problem, target) or refuse(problem)


def _group(candidate: Candidate) -> tuple[int | str | None, ...]:
    """What predictions compare surely: kernels of a kind whose products begin alike."""
    stated = dict(candidate.parameters)
    return (stated["kind"], stated.get("scores") if stated["kind"] == "persistent" else None)


def _read(candidate: Candidate) -> tuple[Kind, Tile]:
    """The candidate's kind and tile. Raises ValueError for a candidate of none."""
    kind = kind_of(candidate)
    tile = None if kind is None else kind.tile_of(candidate)
    if kind is None or tile is None:
        raise ValueError(f"{candidate} is no kernel of this family")
    return kind, tile


def _unit(problem: KernelProblem, candidate: Candidate) -> KernelUnit:
    (kind, tile), shape = _read(candidate), shape_of(problem)
    text = (
        f'#include "bolt_attention/{kind.header}_kernel.h"\n\n'
        f"template void {SPACE}::launch(\n    {tile.cxx(shape)},\n"
        f"    {shape.mask_type}, const {SPACE}::Arguments&, void*);\n"
    )
    return named_unit(text, _MEMORY_MB)
