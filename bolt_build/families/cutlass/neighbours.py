"""A product in one kernel with what is in front of it, beside it or behind it, or why there is none."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bolt_build.dtypes import DType
from bolt_build.families.base import Alternative, KernelProblem, ProposedStep, Refusal
from bolt_build.families.common.chains import averaged, chained, kept
from bolt_build.families.common.means import reader
from bolt_build.families.common.problems import problem_of
from bolt_build.families.common.stages import may_share
from bolt_build.families.cutlass import of_images
from bolt_build.families.cutlass.gated import gated_product, problem_of_gate
from bolt_build.families.cutlass.kinds.kind import FAMILY
from bolt_build.families.cutlass.node_problems import alone, in_rows, pitched, pitched_chain, problems_of
from bolt_build.families.cutlass.offering import offered, reads_apart
from bolt_build.graph.chains import NodeChain, activation_beside, chain_from, norm_behind
from bolt_build.graph.gates import gated_from
from bolt_build.graph.ir import Graph, Layout, Node
from bolt_build.graph.ops.conv import Conv
from bolt_build.graph.ops.pool import Pool
from bolt_build.targets import Target


def behind_prologue(
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
    offers, refusals = offered(problem, target)
    if not offers:
        return (), tuple(Refusal(FAMILY, what, reason) for reason in dict.fromkeys(r.reason for r in refusals))
    names = (*chain.first.inputs, *chain.second.inputs[1:])
    share, rows, apart = may_share(problem, names, ()), pitched(second), reads_apart(problem, target)
    step = ProposedStep(problem, names, chain.second.outputs, share, pitched=rows, reads_apart=apart)
    return (Alternative(chain.region, FAMILY, (step,), offers[0].seconds, (first, second)),), ()


def with_norm(
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
    offers, refusals = offered(problem, target)
    region = (node.name, norm.name)
    if not offers:
        what = ", ".join(region)
        return (), tuple(Refusal(FAMILY, what, reason) for reason in dict.fromkeys(r.reason for r in refusals))
    names = (*node.inputs, *norm.inputs[1:])
    outputs = (*(node.outputs if stays else ()), *norm.outputs)
    step = ProposedStep(problem, names, outputs, reads_apart=reads_apart(problem, target))
    return (Alternative(region, FAMILY, (step,), offers[0].seconds, (product, second)),), ()


def with_means(
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
    offers, refusals = offered(problem, target)
    region = (node.name, mean.name)
    if not offers:
        what = ", ".join(region)
        return (), tuple(Refusal(FAMILY, what, reason) for reason in dict.fromkeys(r.reason for r in refusals))
    outputs, rows = (*(node.outputs if stays else ()), *mean.outputs), (0,) if stays else ()
    step = ProposedStep(problem, node.inputs, outputs, pitched=rows, reads_apart=reads_apart(problem, target))
    return (Alternative(region, FAMILY, (step,), offers[0].seconds, (conv, last)),), ()


def with_gate(
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
    offers, refusals = offered(problem, target)
    if not offers:
        return (), tuple(Refusal(FAMILY, what, reason) for reason in dict.fromkeys(r.reason for r in refusals))
    share, apart = may_share(problem, names, ()), reads_apart(problem, target)
    rows = (0,) if gated_product(problem).n == 2 * problem.outputs[0].row else ()
    step = ProposedStep(problem, names, gate.last.outputs, share, pitched=rows, reads_apart=apart)
    alone = tuple(problems_of(graph, each, target, precision)[0] for each in gate.nodes)
    return (Alternative(gate.region, FAMILY, (step,), offers[0].seconds, alone),), ()


def with_numbers_of_images(
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
    offers, refusals = offered(problem, target)
    region = (node.name, behind.name)
    if not offers:
        what = ", ".join(region)
        return (), tuple(Refusal(FAMILY, what, reason) for reason in dict.fromkeys(r.reason for r in refusals))
    share, apart = may_share(problem, joined.inputs, ()), reads_apart(problem, target)
    step = ProposedStep(problem, joined.inputs, joined.outputs, share, pitched=pitched(problem), reads_apart=apart)
    behind_alone = (
        alone(graph, behind, target, precision)
        if isinstance(node.op, Conv)
        else in_rows(graph, behind, target, precision)
    )
    return (Alternative(region, FAMILY, (step,), offers[0].seconds, (product, behind_alone)),), ()


def with_activation_beside(
    graph: Graph, node: Node, product: KernelProblem, target: Target, precision: DType
) -> tuple[tuple[Alternative, ...], tuple[Refusal, ...]]:
    """The convolution and an activation of what it leaves, both of which are stored, in one kernel, or why not."""
    second = activation_beside(graph, node)
    if second is None:
        return (), ()
    behind = alone(graph, second, target, precision)
    problem, region = kept(product, behind), (node.name, second.name)
    offers, refusals = offered(problem, target)
    if not offers:
        what = ", ".join(region)
        return (), tuple(Refusal(FAMILY, what, reason) for reason in dict.fromkeys(r.reason for r in refusals))
    outputs, apart = (*node.outputs, *second.outputs), reads_apart(problem, target)
    step = ProposedStep(problem, node.inputs, outputs, pitched=(0, 1), reads_apart=apart)
    return (Alternative(region, FAMILY, (step,), offers[0].seconds, (product, behind)),), ()


def with_chain(
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
        offers, refusals = offered(problem, target)
        if offers:
            share, rows = may_share(problem, names, ()), pitched_chain(second)
            apart = reads_apart(problem, target)
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
