"""The family of grouped and depthwise convolutions, alone, with the means of what they leave, with its normalisation,
or with the products around them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bolt_build.dtypes import DType
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
from bolt_build.families.common import stated
from bolt_build.families.common.chains import averaged, parts
from bolt_build.families.common.cxx import struct
from bolt_build.families.common.epilogue import chain
from bolt_build.families.common.header_family import HeaderFamily
from bolt_build.families.common.means import averages
from bolt_build.families.common.problems import op_operands, problem_of
from bolt_build.families.common.refusals import refused
from bolt_build.families.common.stages import may_share
from bolt_build.families.common.tensor_cores import refuse_target
from bolt_build.families.common.units import distinct, named_unit
from bolt_build.families.grouped import means, proposals
from bolt_build.families.grouped.epilogue import epilogue_type
from bolt_build.families.grouped.kind import (
    FAMILY,
    READS_APART,
    Kind,
    Offer,
    Tile,
    between_rows,
    candidate_of,
    gpu_of,
    run_of,
    runs,
)
from bolt_build.families.grouped.registry import kind_of, kinds_for, sort_of
from bolt_build.families.grouped.shape import SPACE, Shape, refuse, shape_of
from bolt_build.graph.ir import Graph, Layout, Node
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.patterns.chains import NodeChain, mean_behind
from bolt_build.targets import Target

_MEMORY_MB = 500


class Grouped(HeaderFamily):
    """`Family` of convolutions with groups, in half precision, with all epilogues that the portable family has."""

    name = FAMILY
    folder = Path(__file__).parent

    def propose(
        self, graph: Graph, node: Node, target: Target, precision: DType
    ) -> tuple[tuple[Alternative, ...], tuple[Refusal, ...]]:
        if not isinstance(node.op, Conv) or node.op.groups == 1:
            together, apart = proposals.behind_product(graph, node, target, precision)
            return together, (Refusal(self.name, node.name, _LEFT), *apart)
        layouts = tuple(
            Layout.CHANNELS_LAST if graph.type(name).rank == graph.type(node.outputs[0]).rank else Layout.ROW
            for name in node.inputs
        )
        problem = problem_of(graph, node, target, precision, layouts, Layout.CHANNELS_LAST)
        found, refusals = self.candidates(problem, target)
        if not found:
            return (), refused(self.name, (node.name,), refusals)
        share = may_share(problem, node.inputs, ())
        step = ProposedStep(problem, node.inputs, node.outputs, share, pitched=(0,), reads_apart=READS_APART)
        alone = Alternative((node.name,), self.name, (step,), self.predict(problem, found[0], target))
        multiplied, unmultiplied = proposals.with_product(graph, node, target, precision)
        normal, otherwise = proposals.with_norm(graph, node, target, precision)
        multiplied, unmultiplied = (*multiplied, *normal), (*unmultiplied, *otherwise)
        chain = mean_behind(graph, node)
        if chain is None:
            return (alone, *multiplied), unmultiplied
        together, apart = self._averaged(graph, chain, problem, target, precision)
        return (alone, *multiplied, *together), (*unmultiplied, *apart)

    def _averaged(
        self, graph: Graph, chain: NodeChain, problem: KernelProblem, target: Target, precision: DType
    ) -> tuple[tuple[Alternative, ...], tuple[Refusal, ...]]:
        """The convolution and the means of what it leaves, or why not."""
        node, mean, region = chain.first, chain.second, chain.region
        if chain.obstacle is not None:
            return (), (Refusal(self.name, ", ".join(region), chain.obstacle),)
        last = problem_of(graph, mean, target, precision, (Layout.CHANNELS_LAST,), Layout.CHANNELS_LAST)
        both = averaged(problem, last)
        found, refusals = self.candidates(both, target)
        if not found:
            return (), refused(self.name, region, refusals)
        step = ProposedStep(both, node.inputs, (*node.outputs, *mean.outputs), pitched=(0,), reads_apart=READS_APART)
        seconds = self.predict(both, found[0], target)
        return (Alternative(chain.region, self.name, (step,), seconds, (problem, last)),), ()

    def candidates(self, problem: KernelProblem, target: Target) -> tuple[tuple[Candidate, ...], tuple[Refusal, ...]]:
        if (sort := sort_of(problem)) is not None:
            return sort.candidates(problem, target)
        if (reason := _refuse(problem, target)) is not None:
            return (), (Refusal(self.name, problem.op.kind, reason),)
        offers, refusals = (_offers_with_means if averages(problem) else _offers)(_shape(problem), target)
        return tuple(offer.candidate for offer in offers), refusals

    def variants(self, problem: KernelProblem, candidate: Candidate, target: Target) -> tuple[Candidate, ...]:
        """Other numbers of tiles a block."""
        if sort_of(problem) is not None:
            return ()
        shape, tile, way = _read(problem, candidate)
        found = (means.joined(candidate_of(tile, run), way) for run in runs(tile, shape))
        others = (variant for variant in found if variant != candidate)
        return tuple(each for each in others if _refuse_means(problem, each, target) is None)

    def predict(self, problem: KernelProblem, candidate: Candidate, target: Target) -> float:
        if (sort := sort_of(problem)) is not None:
            return sort.predict(problem, candidate, target)
        shape, tile, way = _read(problem, candidate)
        run = run_of(candidate)
        alone = tile.seconds(shape, target, run)
        sums = tile.sums(shape) if averages(problem) else None
        return alone if sums is None else means.seconds(alone, shape, sums, way, run, target)

    def expense(self, problem: KernelProblem, candidate: Candidate | None = None) -> Expense:
        """With the zeros between the groups of a unit, and those that pad them."""
        if (sort := sort_of(problem)) is not None:
            return sort.expense(problem, candidate)
        if candidate is None:
            return Expense(problem.nbytes, problem.flops)
        shape, tile, _ = _read(problem, candidate)
        needed = 2 * problem.outputs[0].type.elements * shape.of_group[0] * shape.taps
        more = max(0, tile.flops(shape) - needed)
        why = f"groups padded from {needed} operations to {needed + more}" if more else ""
        return Expense(problem.nbytes, problem.flops + more, why)

    def refuse(self, problem: KernelProblem, candidate: Candidate, target: Target) -> str | None:
        if (sort := sort_of(problem)) is not None:
            return sort.refuse_candidate(problem, candidate, target)
        if (reason := _refuse(problem, target)) is not None:
            return reason
        shape, conv = _shape(problem), candidate
        if averages(problem):
            if not stated.is_read(means.split, candidate):
                return f"{candidate} is none of its candidates"
            conv = means.split(candidate)[0]
        kind = kind_of(shape, conv) or kinds_for(shape)[0]
        return kind.refuse(shape, conv, target) or _refuse_means(problem, candidate, target)

    def emit(self, problem: KernelProblem, candidate: Candidate, target: Target, at: StepExpressions) -> StepCode:
        if (sort := sort_of(problem)) is not None:
            return sort.emit(problem, candidate, target, at)
        shape, tile, way = _read(problem, candidate)
        conv, run = parts(problem)[0], run_of(candidate)
        own = op_operands(conv)
        layout, biases = tile.weights(shape, gpu_of(target))
        kept = [stage.operand for stage in conv.epilogue if stage.operand is not None]
        kept = [index for index in dict.fromkeys(kept) if conv.inputs[index].constant]
        arguments = (
            struct(f"{SPACE}::Arguments", **shape.arguments, run=run, **between_rows(at)),
            _constant(conv, at, own[1]), layout, _constant(conv, at, *own[2:]), str(biases),
            *(_constant(conv, at, index) for index in kept),
        )  # fmt: skip
        inputs = list(at.inputs)
        for number, index in enumerate(kept):
            inputs[index] = f"kernel.constant({number})"
        stages = chain(conv, replace(at, inputs=tuple(inputs)))
        outputs, header, tile_type, counts = at.outputs[0], "prepared", tile.cxx(shape, gpu_of(target)), False
        member = f"{SPACE}::Conv<{tile_type}>"
        if (sums := tile.sums(shape)) is not None and averages(problem):
            arguments = (*means.member_arguments(shape, sums, way, run), *arguments)
            outputs, header, member = ", ".join(at.outputs), "averaged", means.member_type("Conv", (tile_type,), way)
            counts = means.counts(sums, way, run)
        call = f"kernel.run(r, {at.inputs[own[0]]}, {outputs}, {stages});"
        declared = _kind(shape, problem, candidate).declared
        return StepCode((f"bolt_grouped/{header}.h", *declared), member, ", ".join(arguments), call, counts)

    def units(self, steps: Sequence[tuple[KernelProblem, Candidate]], target: Target) -> tuple[KernelUnit, ...]:
        """One instantiation each."""
        return distinct(_unit(problem, candidate, target) for problem, candidate in steps)


_LEFT = "is for convolutions with groups"


def _refuse(problem: KernelProblem, target: Target) -> str | None:
    """Why no kind is asked about the problem, None where one is."""
    if not isinstance(problem.op, Conv) and not averages(problem):
        return _LEFT
    return refuse_target(problem, target) or refuse(parts(problem)[0]) or means.refuse(problem)


def _refuse_means(problem: KernelProblem, candidate: Candidate, target: Target) -> str | None:
    """Why a candidate for the convolution does not leave the means that the problem has; None where it does, or there
    are none."""
    if not averages(problem):
        return None
    shape, tile, way = _read(problem, candidate)
    if (sums := tile.sums(shape)) is None:
        return _unsummed(shape)
    return means.refuse_way(sums, way, run_of(candidate), gpu_of(target))


def _unsummed(shape: Shape) -> str:
    """Why kernels leave no sums."""
    what = "over volumes" if shape.depths is not None else "of products on tensor cores"
    return f"results {what} are not added up"


@functools.lru_cache(maxsize=256)
def _offers(shape: Shape, target: Target) -> tuple[tuple[Offer, ...], tuple[Refusal, ...]]:
    """Kernels for a convolution in the order of prediction, and why there are no more. Layers repeat, and each is asked
    about alone and with its means: the answer is remembered."""
    found = [kind.offers(shape, target) for kind in kinds_for(shape)]
    offers = sorted((offer for some, _ in found for offer in some), key=lambda o: (o.seconds, str(o.candidate)))
    return tuple(offers), tuple(each for _, refused in found for each in refused)


@functools.lru_cache(maxsize=256)
def _offers_with_means(shape: Shape, target: Target) -> tuple[tuple[Offer, ...], tuple[Refusal, ...]]:
    """The same for a convolution with its means, remembered too."""
    offers, illegal = _offers(shape, target)
    summed, without = [], dict[str, Refusal]()
    for offer in offers:
        sums = _tile(shape, offer.candidate).sums(shape)
        if sums is None:
            without.setdefault(reason := _unsummed(shape), Refusal(FAMILY, str(offer.candidate), reason))
        else:
            summed.append(means.Summed(offer, sums, run_of(offer.candidate)))
    first, others, refused = means.in_ways(summed, shape, target)
    found, reasons = means.in_order((*first, *others)), (*without.values(), *refused)
    # Where kernels are legal, but for their means, that is the reason.
    return found, (*illegal, *reasons) if found or not reasons else reasons


def _shape(problem: KernelProblem) -> Shape:
    return shape_of(parts(problem)[0])


def _of_conv(problem: KernelProblem, candidate: Candidate) -> tuple[Candidate, str]:
    """The kernel of the convolution, and how it leaves the means that the problem may have. Raises ValueError."""
    return means.split(candidate) if averages(problem) else (candidate, means.SECOND)


def _read(problem: KernelProblem, candidate: Candidate) -> tuple[Shape, Tile, str]:
    """The problem's shape, the candidate's tile, and the way of `means.WAYS`. Raises ValueError for a candidate that is
    none for the problem."""
    shape = _shape(problem)
    conv, way = _of_conv(problem, candidate)
    return shape, _tile(shape, conv), way


def _tile(shape: Shape, conv: Candidate) -> Tile:
    """The tile of a kernel for a convolution. Raises ValueError for a candidate that is none."""
    tile = next((tile for kind in kinds_for(shape) if (tile := kind.tile_of(conv)) is not None), None)
    if tile is None:
        raise ValueError(f"{conv} is no kernel for the problem")
    return tile


def _kind(shape: Shape, problem: KernelProblem, candidate: Candidate) -> Kind:
    """The kind of a candidate whose tile is read."""
    kind = kind_of(shape, _of_conv(problem, candidate)[0])
    assert kind is not None, "its tile was just read"
    return kind


def _constant(problem: KernelProblem, at: StepExpressions, *index: int) -> str:
    """A `Constant`: its expression names it, which is the same in every plan of a model; an empty one without index."""
    if not index:
        return f'{SPACE}::Constant{{nullptr, "", 0}}'
    expression = at.prepare_inputs[index[0]]
    return f'{SPACE}::Constant{{{expression}, "{expression}", {problem.inputs[index[0]].nbytes}}}'


def _unit(problem: KernelProblem, candidate: Candidate, target: Target) -> KernelUnit:
    if (sort := sort_of(problem)) is not None:
        return sort.unit(problem, candidate, target)
    shape, tile, way = _read(problem, candidate)
    kind, tile_type = _kind(shape, problem, candidate), tile.cxx(shape, gpu_of(target))
    if averages(problem):
        tile_type = means.tile_type(tile_type, way)
    text = (
        f'#include "bolt_grouped/{kind.header}_kernel.h"\n{means.includes(way)}\n'
        f"template void {SPACE}::launch(\n    {tile_type},\n"
        f"    const {SPACE}::Arguments&,\n    const {epilogue_type(parts(problem)[0])}&, void*);\n"
    )
    return named_unit(text, _MEMORY_MB)
