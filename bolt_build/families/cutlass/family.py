"""The CUTLASS family."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from bolt_build.dtypes import DType
from bolt_build.families.base import (
    Alternative,
    Candidate,
    Expense,
    KernelProblem,
    KernelUnit,
    Operand,
    ProposedStep,
    Refusal,
    StepCode,
    StepExpressions,
    TensorFormat,
)
from bolt_build.families.common.chains import averaged, chained, kept
from bolt_build.families.common.element_types import HALVES
from bolt_build.families.common.means import reader
from bolt_build.families.common.problems import op_operands, problem_of
from bolt_build.families.common.stages import may_share
from bolt_build.families.common.tensor_cores import refuse_target
from bolt_build.families.common.units import distinct
from bolt_build.families.cutlass import conv, flatten, of_images, stacked
from bolt_build.families.cutlass.gated import gated_product, problem_of_gate
from bolt_build.families.cutlass.kinds.kind import FAMILY, Kind, Offer
from bolt_build.families.cutlass.products import multiplies, product_of
from bolt_build.families.cutlass.ranking import ranked
from bolt_build.families.cutlass.registry import kind_of, kinds_for
from bolt_build.graph.chains import NodeChain, activation_beside, chain_from, norm_behind, product_of_normed
from bolt_build.graph.gates import gated_from
from bolt_build.graph.ir import Graph, Layout, Node
from bolt_build.graph.ops.conv import Conv
from bolt_build.graph.ops.matmul import MatMul
from bolt_build.graph.ops.pool import Pool
from bolt_build.graph.ops.rearrange import Rearrange
from bolt_build.graph.ops.shape import Reshape
from bolt_build.graph.ops.stack import Stack
from bolt_build.targets import Target


class Cutlass:
    """`Family` of convolutions and matrix products, with bias, residual and activations in the epilogue; of two of them
    in one kernel, of a convolution with the pooling or the movement of pixels behind it, and of one with what its input
    is multiplied by."""

    name = FAMILY

    @property
    def include_dir(self) -> Path:
        return Path(__file__).parent / "include"

    @property
    def sources(self) -> tuple[Path, ...]:
        return ()

    def propose(
        self, graph: Graph, node: Node, target: Target, precision: DType
    ) -> tuple[tuple[Alternative, ...], tuple[Refusal, ...]]:
        if isinstance(node.op, Reshape):
            return self._flattened(graph, node, target, precision)
        if isinstance(node.op, Stack):
            return self._stacked(graph, node, target, precision)
        if not multiplies(node.op):
            left = Refusal(self.name, node.name, f"{node.op.kind} is left to other families")
            of_rows = product_of_normed(graph, node)
            chain = of_rows or chain_from(graph, node)
            if chain is None:
                return (), (left,)
            form = _in_rows if of_rows else _alone
            together, apart = _propose_prologue(graph, chain, target, precision, form)
            return together, (left, *apart)
        found: list[Alternative] = []
        reasons: list[str] = []
        legal: list[KernelProblem] = []
        for problem in _problems(graph, node, target, precision):
            offers, refusals = _ranked(problem, target)
            reasons += [refusal.reason for refusal in refusals if not offers]
            if offers:
                legal.append(problem)
                share, rows = may_share(problem, node.inputs, ()), _pitched(problem)
                read = _reads_apart(problem, target)
                step = ProposedStep(problem, node.inputs, node.outputs, share, pitched=rows, reads_apart=read)
                found.append(Alternative((node.name,), self.name, (step,), offers[0].seconds))
        refused = tuple(Refusal(self.name, node.name, reason) for reason in dict.fromkeys(reasons))
        if legal:
            normed, unnormed = _propose_norm(graph, node, legal[0], target, precision)
            gated, ungated = _propose_gate(graph, node, target, precision)
            of_image, apart = _propose_of_images(graph, node, legal[0], target, precision)
            averaging, unaveraged = _propose_means(graph, node, legal[0], target, precision)
            beside, not_beside = _propose_kept(graph, node, legal[0], target, precision)
            found = [*found, *normed, *gated, *of_image, *averaging, *beside]
            refused = (*refused, *unnormed, *ungated, *apart, *unaveraged, *not_beside)
        chain = chain_from(graph, node) if legal else None
        if chain is None:
            return tuple(found), refused
        second = _problems(graph, chain.second, target, precision)[0]
        joint, apart = _propose_chain(graph, chain, legal, second, target)
        return (*found, *joint), (*refused, *apart)

    def _flattened(
        self, graph: Graph, node: Node, target: Target, precision: DType
    ) -> tuple[tuple[Alternative, ...], tuple[Refusal, ...]]:
        """The reshape with the matrix product behind it."""
        product = flatten.reader(graph, node)
        if product is None or isinstance(product, str):
            reason = product or f"{node.op.kind} is left to other families"
            return (), (Refusal(self.name, node.name, reason),)
        problem = flatten.problem(graph, node, product, target, precision)
        offers, refusals = _ranked(problem, target)
        if not offers:
            return (), tuple(Refusal(self.name, node.name, refusal.reason) for refusal in refusals)
        steps = flatten.steps(graph, node, product, problem)
        return (Alternative((node.name, product.name), self.name, steps, offers[0].seconds),), ()

    def _stacked(
        self, graph: Graph, node: Node, target: Target, precision: DType
    ) -> tuple[tuple[Alternative, ...], tuple[Refusal, ...]]:
        """The stack of depths with the convolution behind it."""
        behind = stacked.readers(graph, node)
        if isinstance(behind, str):
            return (), (Refusal(self.name, node.name, behind),)
        problem = stacked.problem(graph, (node, *behind), target, precision)
        offers, refusals = _ranked(problem, target)
        if not offers:
            reasons = dict.fromkeys(refusal.reason for refusal in refusals)
            return (), tuple(Refusal(self.name, node.name, reason) for reason in reasons)
        last = behind[1]
        names = (*node.inputs, *(name for name in last.inputs if name != behind[0].outputs[0]))
        share, apart = may_share(problem, names, ()), _reads_apart(problem, target)
        step = ProposedStep(problem, names, last.outputs, share, pitched=(0,), reads_apart=apart)
        region = (node.name, *(each.name for each in behind))
        return (Alternative(region, self.name, (step,), offers[0].seconds),), ()

    def propose_conversion(
        self, shape: tuple[int, ...], source: TensorFormat, to: TensorFormat, target: Target
    ) -> tuple[KernelProblem, float] | None:
        """None: these kernels compute products."""
        return None

    def candidates(self, problem: KernelProblem, target: Target) -> tuple[tuple[Candidate, ...], tuple[Refusal, ...]]:
        """In the order of prediction, but for the first few, among which is one of each group of kernels."""
        found, refusals = _ranked(problem, target)
        return tuple(offer.candidate for offer in found), refusals

    def variants(self, problem: KernelProblem, candidate: Candidate, target: Target) -> tuple[Candidate, ...]:
        return _kind(problem, candidate).variants(problem, candidate, target)

    def predict(self, problem: KernelProblem, candidate: Candidate, target: Target) -> float:
        return _kind(problem, candidate).predict(problem, candidate, target)

    def expense(self, problem: KernelProblem, candidate: Candidate | None = None) -> Expense:
        """Padded channels and copies of the input included; split-K's sums are not, which depend on the candidate."""
        kind = kinds_for(problem)[0] if candidate is None else _kind(problem, candidate)
        return kind.expense(problem, candidate)

    def refuse(self, problem: KernelProblem, candidate: Candidate, target: Target) -> str | None:
        if (refusal := _refuse(problem, target)) is not None:
            return refusal.reason
        kind = kind_of(problem, candidate)
        return f"{candidate} is no kernel" if kind is None else kind.refuse(problem, candidate, target)

    def emit(self, problem: KernelProblem, candidate: Candidate, target: Target, at: StepExpressions) -> StepCode:
        return _kind(problem, candidate).emit(problem, candidate, target, at)

    def units(self, steps: Sequence[tuple[KernelProblem, Candidate]], target: Target) -> tuple[KernelUnit, ...]:
        """One instantiation each, so that an engine compiles its winners alone and tuning compiles none twice."""
        return distinct(_kind(problem, candidate).unit(problem, candidate, target) for problem, candidate in steps)


_TRIED = 6
"""Among so many first kernels for one operator there is one of each group."""


def _refuse(problem: KernelProblem, target: Target) -> Refusal | None:
    """Why no kind is asked about the problem, None where some are."""
    what = problem.op.kind
    if not kinds_for(problem):
        return Refusal(FAMILY, what, f"{what} is left to other families")
    reason = refuse_target(problem, target)
    return None if reason is None else Refusal(FAMILY, what, reason)


def _ranked(problem: KernelProblem, target: Target) -> tuple[tuple[Offer, ...], tuple[Refusal, ...]]:
    """What all kinds offer, in the order of candidates; and why there is no more."""
    return _offered(problem, target)[:2]


def _reads_apart(problem: KernelProblem, target: Target) -> tuple[int, ...]:
    """Inputs whose rows every kind reads wherever they lie that offers something for the problem."""
    return _offered(problem, target)[2]


@functools.lru_cache(maxsize=1024)
def _offered(problem: KernelProblem, target: Target) -> tuple[tuple[Offer, ...], tuple[Refusal, ...], tuple[int, ...]]:
    """What both tell. Every node asks, and networks repeat their layers: the answer for a problem is remembered."""
    if (refusal := _refuse(problem, target)) is not None:
        return (), (refusal,), ()
    offers = [kind.offers(problem, target) for kind in kinds_for(problem)]
    reasons = dict.fromkeys(reason for each in offers for reason in each.none)
    whole = (Refusal(FAMILY, problem.op.kind, reason) for reason in reasons)
    first = _TRIED if len(problem.op.sequence) == 1 else 0
    found = ranked([offer for each in offers for offer in each.found], first)
    offering = [kind for kind, each in zip(kinds_for(problem), offers, strict=True) if each.found]
    apart = [set(kind.reads_apart(problem)) for kind in offering]
    read = tuple(sorted(set.intersection(*apart))) if apart else ()
    return tuple(found), (*whole, *(refusal for each in offers for refusal in each.refusals)), read


def _kind(problem: KernelProblem, candidate: Candidate) -> Kind:
    """The kind of a candidate that is one for the problem."""
    kind = kind_of(problem, candidate)
    assert kind is not None, f"{candidate} is no kernel for {problem.op.kind}"
    return kind


def _pitched(problem: KernelProblem) -> tuple[int, ...]:
    """Output 0, unless a row of the product is several of it, which lie one behind the other."""
    return (0,) if product_of(problem).n == problem.outputs[0].row else ()


def _pitched_chain(second: KernelProblem) -> tuple[int, ...]:
    """The same of two nodes in one kernel. What a pooling or a movement of pixels leaves has whole rows, whatever the
    product in front has."""
    return _pitched(second) if multiplies(second.op) else (0,)


def _alone(graph: Graph, node: Node, target: Target, precision: DType) -> KernelProblem:
    """The node channels-last."""
    rank = graph.type(node.outputs[0]).rank
    layouts = (Layout.CHANNELS_LAST if graph.type(name).rank == rank else Layout.ROW for name in node.inputs)
    return problem_of(graph, node, target, precision, tuple(layouts), Layout.CHANNELS_LAST)


def _in_rows(graph: Graph, node: Node, target: Target, precision: DType) -> KernelProblem:
    """The node row-major."""
    return problem_of(graph, node, target, precision, tuple(Layout.ROW for _ in node.inputs), Layout.ROW)


def _problems(graph: Graph, node: Node, target: Target, precision: DType) -> tuple[KernelProblem, ...]:
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


def _propose_prologue(
    graph: Graph,
    chain: NodeChain,
    target: Target,
    precision: DType,
    alone: Callable[[Graph, Node, Target, DType], KernelProblem],
) -> tuple[tuple[Alternative, ...], tuple[Refusal, ...]]:
    """The multiplication or normalisation and the product that reads it in one kernel, or why there is none. `alone`
    makes the problem of either."""
    what = ", ".join(chain.region)
    if chain.obstacle is not None:
        return (), (Refusal(FAMILY, what, chain.obstacle),)
    first, second = alone(graph, chain.first, target, precision), alone(graph, chain.second, target, precision)
    problem = chained(first, second)
    offers, refusals = _ranked(problem, target)
    if not offers:
        return (), tuple(Refusal(FAMILY, what, reason) for reason in dict.fromkeys(r.reason for r in refusals))
    names = (*chain.first.inputs, *chain.second.inputs[1:])
    share, rows, apart = may_share(problem, names, ()), _pitched(second), _reads_apart(problem, target)
    step = ProposedStep(problem, names, chain.second.outputs, share, pitched=rows, reads_apart=apart)
    return (Alternative(chain.region, FAMILY, (step,), offers[0].seconds, (first, second)),), ()


def _propose_norm(
    graph: Graph, node: Node, product: KernelProblem, target: Target, precision: DType
) -> tuple[tuple[Alternative, ...], tuple[Refusal, ...]]:
    """The product and the normalisation of its rows in one kernel, or why there is none. What is normalised is stored
    as well where others read it."""
    norm = norm_behind(graph, node)
    if norm is None:
        return (), ()
    rows = tuple(Layout.ROW for _ in norm.inputs)
    second = problem_of(graph, norm, target, precision, rows, Layout.ROW)
    between = node.outputs[0]
    stays = between in graph.outputs or len(graph.consumers(between)) > 1
    problem = kept(product, second) if stays else chained(product, second)
    offers, refusals = _ranked(problem, target)
    region = (node.name, norm.name)
    if not offers:
        what = ", ".join(region)
        return (), tuple(Refusal(FAMILY, what, reason) for reason in dict.fromkeys(r.reason for r in refusals))
    names = (*node.inputs, *norm.inputs[1:])
    outputs = (*(node.outputs if stays else ()), *norm.outputs)
    step = ProposedStep(problem, names, outputs, reads_apart=_reads_apart(problem, target))
    return (Alternative(region, FAMILY, (step,), offers[0].seconds, (product, second)),), ()


def _propose_means(
    graph: Graph, node: Node, conv: KernelProblem, target: Target, precision: DType
) -> tuple[tuple[Alternative, ...], tuple[Refusal, ...]]:
    """The convolution and the means of what it leaves in one kernel, or why there is none. What is averaged is stored
    as well where others read it."""
    mean = reader(graph, node) if isinstance(node.op, Conv) else None
    if mean is None:
        return (), ()
    last = problem_of(graph, mean, target, precision, (Layout.CHANNELS_LAST,), Layout.CHANNELS_LAST)
    (between,) = node.outputs
    stays = between in graph.outputs or len(graph.consumers(between)) > 1
    problem = averaged(conv, last) if stays else chained(conv, last)
    offers, refusals = _ranked(problem, target)
    region = (node.name, mean.name)
    if not offers:
        what = ", ".join(region)
        return (), tuple(Refusal(FAMILY, what, reason) for reason in dict.fromkeys(r.reason for r in refusals))
    outputs, rows = (*(node.outputs if stays else ()), *mean.outputs), (0,) if stays else ()
    step = ProposedStep(problem, node.inputs, outputs, pitched=rows, reads_apart=_reads_apart(problem, target))
    return (Alternative(region, FAMILY, (step,), offers[0].seconds, (conv, last)),), ()


def _propose_gate(
    graph: Graph, node: Node, target: Target, precision: DType
) -> tuple[tuple[Alternative, ...], tuple[Refusal, ...]]:
    """The gated product whose first product is the node's in one kernel, or why there is none."""
    gate = gated_from(graph, node)
    if gate is None:
        return (), ()
    what = ", ".join(gate.region)
    if gate.obstacle is not None:
        return (), (Refusal(FAMILY, what, gate.obstacle),)
    problem, names = problem_of_gate(graph, gate, target, precision)
    offers, refusals = _ranked(problem, target)
    if not offers:
        return (), tuple(Refusal(FAMILY, what, reason) for reason in dict.fromkeys(r.reason for r in refusals))
    share, apart = may_share(problem, names, ()), _reads_apart(problem, target)
    rows = (0,) if gated_product(problem).n == 2 * problem.outputs[0].row else ()
    step = ProposedStep(problem, names, gate.last.outputs, share, pitched=rows, reads_apart=apart)
    alone = tuple(_problems(graph, each, target, precision)[0] for each in gate.nodes)
    return (Alternative(gate.region, FAMILY, (step,), offers[0].seconds, alone),), ()


def _propose_of_images(
    graph: Graph, node: Node, product: KernelProblem, target: Target, precision: DType
) -> tuple[tuple[Alternative, ...], tuple[Refusal, ...]]:
    """The product and what combines its result with numbers of images in one kernel, or why there is none."""
    behind = of_images.reader(graph, node)
    if behind is None:
        return (), ()
    if isinstance(behind, str):
        return (), (Refusal(FAMILY, node.name, behind),)
    joined = of_images.joined(graph, node, behind)
    problem = of_images.problem(graph, joined, target, precision)
    offers, refusals = _ranked(problem, target)
    region = (node.name, behind.name)
    if not offers:
        what = ", ".join(region)
        return (), tuple(Refusal(FAMILY, what, reason) for reason in dict.fromkeys(r.reason for r in refusals))
    share, apart = may_share(problem, joined.inputs, ()), _reads_apart(problem, target)
    step = ProposedStep(problem, joined.inputs, joined.outputs, share, pitched=_pitched(problem), reads_apart=apart)
    alone = (
        _alone(graph, behind, target, precision)
        if isinstance(node.op, Conv)
        else _in_rows(graph, behind, target, precision)
    )
    return (Alternative(region, FAMILY, (step,), offers[0].seconds, (product, alone)),), ()


def _propose_kept(
    graph: Graph, node: Node, product: KernelProblem, target: Target, precision: DType
) -> tuple[tuple[Alternative, ...], tuple[Refusal, ...]]:
    """The convolution and an activation of what it leaves, both of which are stored, in one kernel, or why not."""
    second = activation_beside(graph, node)
    if second is None:
        return (), ()
    behind = _alone(graph, second, target, precision)
    problem, region = kept(product, behind), (node.name, second.name)
    offers, refusals = _ranked(problem, target)
    if not offers:
        what = ", ".join(region)
        return (), tuple(Refusal(FAMILY, what, reason) for reason in dict.fromkeys(r.reason for r in refusals))
    outputs, apart = (*node.outputs, *second.outputs), _reads_apart(problem, target)
    step = ProposedStep(problem, node.inputs, outputs, pitched=(0, 1), reads_apart=apart)
    return (Alternative(region, FAMILY, (step,), offers[0].seconds, (product, behind)),), ()


def _is_f32(graph: Graph, node: Node) -> bool:
    return graph.type(node.outputs[0]).dtype is DType.F32


def _with_input(problem: KernelProblem, index: int, format: TensorFormat) -> KernelProblem:
    operands = list(problem.inputs)
    operands[index] = type(operands[index])(operands[index].shape, format, operands[index].constant)
    return replace(problem, inputs=tuple(operands))


def _propose_chain(
    graph: Graph, chain: NodeChain, firsts: Sequence[KernelProblem], second: KernelProblem, target: Target
) -> tuple[tuple[Alternative, ...], tuple[Refusal, ...]]:
    """Both nodes in one kernel for each form of the first's problem; and why there is none.

    Three nodes one behind the other are two chains that overlap; that one kernel computes all three is refused.
    """
    what = ", ".join(chain.region)
    if chain.obstacle is not None:
        return (), (Refusal(FAMILY, what, chain.obstacle),)
    found: list[Alternative] = []
    reasons: list[str] = []
    names = (*chain.first.inputs, *chain.second.inputs[1:])
    for first in firsts:
        problem = chained(first, second)
        offers, refusals = _ranked(problem, target)
        if offers:
            share, rows = may_share(problem, names, ()), _pitched_chain(second)
            apart = _reads_apart(problem, target)
            step = ProposedStep(problem, names, chain.second.outputs, share, pitched=rows, reads_apart=apart)
            found.append(Alternative(chain.region, FAMILY, (step,), offers[0].seconds, (first, second)))
        else:
            reasons += [refusal.reason for refusal in refusals]
    refused = [Refusal(FAMILY, what, reason) for reason in dict.fromkeys(reasons)]
    behind = chain_from(graph, chain.second)
    if found and behind is not None and behind.obstacle is None:
        reason = "one kernel computes two products, not three"
        if isinstance(behind.second.op, Pool):
            reason = "one kernel computes two products, not a pooling behind them as well"
        elif behind.stored:
            reason = "one kernel computes two products, and moves no pixels behind them"
        refused.append(Refusal(FAMILY, f"{what}, {behind.second.name}", reason))
    return tuple(found), tuple(refused)
