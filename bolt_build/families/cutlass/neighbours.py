"""A product in one kernel with what is in front of it, beside it or behind it, or why there is none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from bolt_build.dtypes import DType
from bolt_build.families.base import Alternative, KernelProblem, ProposedStep, Refusal
from bolt_build.families.common.chains import averaged, chained, kept, normed
from bolt_build.families.common.problems import problem_of
from bolt_build.families.common.refusals import refused
from bolt_build.families.common.stages import may_share
from bolt_build.families.cutlass.kinds.kind import FAMILY
from bolt_build.families.cutlass.offering import offered, reads_apart
from bolt_build.families.cutlass.problems import of_images
from bolt_build.families.cutlass.problems.gated import gated_product, problem_of_gate
from bolt_build.families.cutlass.problems.node_problems import alone, in_rows, pitched, pitched_chain, problems_of
from bolt_build.graph.ir import Graph, Layout, Node
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.graph.ops.moves.stack import UnfoldDepth
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.patterns.chains import (
    NodeChain,
    activation_beside,
    chain_from,
    image_norm_behind,
    mean_behind,
    norm_behind,
    volume_norm_behind,
)
from bolt_build.graph.patterns.gates import gated_from
from bolt_build.targets import Target

Proposed = tuple[tuple[Alternative, ...], tuple[Refusal, ...]]


def behind_prologue(
    graph: Graph,
    chain: NodeChain,
    target: Target,
    precision: DType,
    alone: Callable[[Graph, Node, Target, DType], KernelProblem],
) -> Proposed:
    """The multiplication or normalisation and the product that reads it in one kernel, or why there is none. `alone`
    makes the problem of either."""
    if chain.obstacle is not None:
        return _kept_apart(chain.region, chain.obstacle)
    first, second = alone(graph, chain.first, target, precision), alone(graph, chain.second, target, precision)
    problem = chained(first, second)
    names = (*chain.first.inputs, *chain.second.inputs[1:])
    share, rows = may_share(problem, names, ()), pitched(second)
    step = ProposedStep(problem, names, chain.second.outputs, share, pitched=rows)
    return _one_kernel(chain.region, step, (first, second), target)


def around(graph: Graph, node: Node, product: KernelProblem, target: Target, precision: DType) -> Proposed:
    """The product in one kernel with each of what is beside it or behind it but for another product, and why not."""
    found = (
        _with_norm(graph, node, product, target, precision),
        _with_gate(graph, node, target, precision),
        _with_numbers_of_images(graph, node, product, target, precision),
        _with_means(graph, node, product, target, precision),
        _with_image_norm(graph, node, product, target, precision),
        _with_activation_beside(graph, node, product, target, precision),
    )
    return tuple(each for some, _ in found for each in some), tuple(each for _, why in found for each in why)


def _with_norm(graph: Graph, node: Node, product: KernelProblem, target: Target, precision: DType) -> Proposed:
    """The product and the normalisation of its rows. What is normalised is stored as well where others read it."""
    chain = norm_behind(graph, node)
    if chain is None:
        return (), ()
    if chain.obstacle is not None:
        return _kept_apart(chain.region, chain.obstacle)
    norm, stays = chain.second, _is_stored(graph, node)
    rows = tuple(Layout.ROW for _ in norm.inputs)
    second = problem_of(graph, norm, target, precision, rows, Layout.ROW)
    problem = kept(product, second) if stays else chained(product, second)
    outputs = (*(node.outputs if stays else ()), *norm.outputs)
    step = ProposedStep(problem, (*node.inputs, *norm.inputs[1:]), outputs)
    return _one_kernel(chain.region, step, (product, second), target)


def _with_means(graph: Graph, node: Node, conv: KernelProblem, target: Target, precision: DType) -> Proposed:
    """The convolution and the means of what it leaves. What is averaged is stored as well where others read it."""
    chain = mean_behind(graph, node)
    if chain is None:
        return (), ()
    if chain.obstacle is not None:
        return _kept_apart(chain.region, chain.obstacle)
    mean, stays = chain.second, _is_stored(graph, node)
    last = problem_of(graph, mean, target, precision, (Layout.CHANNELS_LAST,), Layout.CHANNELS_LAST)
    problem = averaged(conv, last) if stays else chained(conv, last)
    outputs, rows = (*(node.outputs if stays else ()), *mean.outputs), (0,) if stays else ()
    return _one_kernel(chain.region, ProposedStep(problem, node.inputs, outputs, pitched=rows), (conv, last), target)


def _with_image_norm(graph: Graph, node: Node, conv: KernelProblem, target: Target, precision: DType) -> Proposed:
    """The convolution and the normalisation of its images; and both with what combines the convolution's result with
    numbers of images in between."""
    found = _image_norm_of(graph, node, node, (node.name,), conv, (conv,), target, precision)
    if (of_volume := volume_norm_of(graph, (node,), node.inputs, conv, target, precision)) is not None:
        found = of_volume
    chain = of_images.combined(graph, node)
    if chain is None or chain.obstacle is not None:
        return found
    both = of_images.joined(graph, node, chain.second)
    problem = of_images.problem(graph, both, target, precision)
    apart = (conv, alone(graph, chain.second, target, precision))
    more = _image_norm_of(graph, both, chain.second, chain.region, problem, apart, target, precision)
    return (*found[0], *more[0]), (*found[1], *more[1])


def _image_norm_of(
    graph: Graph,
    made: Node,
    last: Node,
    region: tuple[str, ...],
    problem: KernelProblem,
    apart: tuple[KernelProblem, ...],
    target: Target,
    precision: DType,
) -> Proposed:
    """What nodes of a `region` leave, the `last` of them, and its normalisation. What is normalised is stored as well
    where others read it. `made` is all of them as one node, whose `problem` it is; `apart` are theirs one by one."""
    chain = image_norm_behind(graph, made)
    if chain is None:
        return (), ()
    region = (*region, chain.second.name)
    if chain.obstacle is not None:
        return _kept_apart(region, chain.obstacle)
    norm, stays = chain.second, _is_stored(graph, last)
    second = alone(graph, norm, target, precision)
    whole = kept(problem, second) if stays else chained(problem, second)
    outputs, rows = (*(last.outputs if stays else ()), *norm.outputs), (0, 1) if stays else (0,)
    step = ProposedStep(whole, (*made.inputs, *norm.inputs[1:]), outputs, pitched=rows)
    return _one_kernel(region, step, (*apart, second), target)


def volume_norm_of(
    graph: Graph,
    made: tuple[Node, ...],
    names: tuple[str, ...],
    problem: KernelProblem,
    target: Target,
    precision: DType,
) -> Proposed | None:
    """What some nodes leave, a convolution the last of them, and the normalisation of it as volumes; None where there
    is none. They read the values `names`, and their problem is `problem`."""
    behind = volume_norm_behind(graph, made[-1])
    if behind is None:
        return None
    nodes = (*made, *behind.nodes[1:])
    region = tuple(each.name for each in nodes)
    if behind.obstacle is not None:
        return _kept_apart(region, behind.obstacle)
    apart = tuple(
        problems_of(graph, each, target, precision)[0]
        if isinstance(each.op, Conv)
        else alone(graph, each, target, precision)
        for each in nodes
    )
    unfold, norm = nodes[-2:]
    assert isinstance(unfold.op, UnfoldDepth), unfold
    whole = normed(problem, apart[-1], unfold.op)
    step = ProposedStep(whole, (*names, *norm.inputs[1:]), norm.outputs, pitched=(0,))
    return _one_kernel(region, step, apart, target)


def _with_gate(graph: Graph, node: Node, target: Target, precision: DType) -> Proposed:
    """The gated product whose first product is the node's."""
    gate = gated_from(graph, node)
    if gate is None:
        return (), ()
    if gate.obstacle is not None:
        return _kept_apart(gate.region, gate.obstacle)
    problem, names = problem_of_gate(graph, gate, target, precision)
    rows = (0,) if gated_product(problem).n == 2 * problem.outputs[0].row else ()
    step = ProposedStep(problem, names, gate.last.outputs, may_share(problem, names, ()), pitched=rows)
    apart = tuple(problems_of(graph, each, target, precision)[0] for each in gate.nodes)
    return _one_kernel(gate.region, step, apart, target)


def _with_numbers_of_images(
    graph: Graph, node: Node, product: KernelProblem, target: Target, precision: DType
) -> Proposed:
    """The product and what combines its result with numbers of images."""
    chain = of_images.combined(graph, node)
    if chain is None:
        return (), ()
    if chain.obstacle is not None:
        return _kept_apart(chain.region, chain.obstacle)
    joined = of_images.joined(graph, node, chain.second)
    problem = of_images.problem(graph, joined, target, precision)
    share = may_share(problem, joined.inputs, ())
    step = ProposedStep(problem, joined.inputs, joined.outputs, share, pitched=pitched(problem))
    form = alone if isinstance(node.op, Conv) else in_rows
    return _one_kernel(chain.region, step, (product, form(graph, chain.second, target, precision)), target)


def _with_activation_beside(
    graph: Graph, node: Node, product: KernelProblem, target: Target, precision: DType
) -> Proposed:
    """The convolution and an activation of what it leaves, both of which are stored."""
    chain = activation_beside(graph, node)
    if chain is None:
        return (), ()
    if chain.obstacle is not None:
        return _kept_apart(chain.region, chain.obstacle)
    behind = alone(graph, chain.second, target, precision)
    step = ProposedStep(kept(product, behind), node.inputs, (*node.outputs, *chain.second.outputs), pitched=(0, 1))
    return _one_kernel(chain.region, step, (product, behind), target)


def with_chain(
    graph: Graph, chain: NodeChain, firsts: Sequence[KernelProblem], second: KernelProblem, target: Target
) -> Proposed:
    """Both nodes in one kernel for each form of the first's problem; and why there is none.

    Three nodes one behind the other are two chains that overlap; that one kernel computes all three is refused.
    """
    if chain.obstacle is not None:
        return _kept_apart(chain.region, chain.obstacle)
    found: list[Alternative] = []
    apart: list[Refusal] = []
    names = (*chain.first.inputs, *chain.second.inputs[1:])
    for first in firsts:
        problem = chained(first, second)
        share, rows = may_share(problem, names, ()), pitched_chain(second)
        step = ProposedStep(problem, names, chain.second.outputs, share, pitched=rows)
        joint, refusals = _one_kernel(chain.region, step, (first, second), target)
        found += joint
        apart += refusals
    more = _of_three(graph, chain) if found else ()
    return tuple(found), (*refused(FAMILY, chain.region, apart), *more)


def _of_three(graph: Graph, chain: NodeChain) -> tuple[Refusal, ...]:
    """Why a chain's kernel does not compute what would be a chain with its second node as well."""
    behind = chain_from(graph, chain.second)
    if behind is None or behind.obstacle is not None:
        return ()
    reason = "one kernel computes two products, not three"
    if isinstance(behind.second.op, Pool):
        reason = "one kernel computes two products, not a pooling behind them as well"
    elif behind.stored:
        reason = "one kernel computes two products, and moves no pixels behind them"
    return (Refusal(FAMILY, ", ".join((*chain.region, behind.second.name)), reason),)


def _is_stored(graph: Graph, node: Node) -> bool:
    """Whether what a node leaves is wanted by more than one reader."""
    (value,) = node.outputs
    return value in graph.outputs or len(graph.consumers(value)) > 1


def _kept_apart(region: tuple[str, ...], obstacle: str) -> Proposed:
    return (), (Refusal(FAMILY, ", ".join(region), obstacle),)


def _one_kernel(
    region: tuple[str, ...], step: ProposedStep, apart: tuple[KernelProblem, ...], target: Target
) -> Proposed:
    """The step in the place of a region whose nodes `apart` are the problems of, or why no kernel computes it."""
    offers, refusals = offered(step.problem, target)
    if not offers:
        return (), refused(FAMILY, region, refusals)
    step = replace(step, reads_apart=reads_apart(step.problem, target))
    return (Alternative(region, FAMILY, (step,), offers[0].seconds, apart),), ()
