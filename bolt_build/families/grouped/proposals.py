"""Where a graph has a depthwise convolution, and products of single positions or a normalisation that one kernel may
compute with it."""

from __future__ import annotations

from bolt_build.dtypes import DType
from bolt_build.families.base import Alternative, KernelProblem, ProposedStep, Refusal
from bolt_build.families.common.chains import averaged, chained, normed
from bolt_build.families.common.problems import problem_of
from bolt_build.families.common.refusals import refused
from bolt_build.families.common.stages import may_share
from bolt_build.families.grouped.kind import FAMILY, READS_APART
from bolt_build.families.grouped.neighbours import chain
from bolt_build.families.grouped.neighbours import normed as with_statistics
from bolt_build.graph.ir import Graph, Layout, Node
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.moves.shape import Transpose
from bolt_build.graph.patterns.chains import chain_from, expanded_from, inverted_from, mean_behind, normed_from, scales
from bolt_build.targets import Target

_SQUEEZED = "the gate in front of the product takes the mean of all that the convolution leaves of an image"
Proposed = tuple[tuple[Alternative, ...], tuple[Refusal, ...]]


def with_product(graph: Graph, node: Node, target: Target, precision: DType) -> Proposed:
    """A convolution with groups and the product that alone reads it in one kernel, or why not; nothing where there is
    no product behind it."""
    found = chain_from(graph, node)
    if found is not None and found.stored:
        return (), ()
    if found is None:
        return (), tuple(Refusal(FAMILY, f"{node.name}, {each.name}", _SQUEEZED) for each in _behind_gate(graph, node))
    return _proposed(graph, (found.first, found.second), found.obstacle, target, precision)


def behind_product(graph: Graph, node: Node, target: Target, precision: DType) -> Proposed:
    """A product and the convolution with groups that alone reads it in one kernel, and the means or the product of that
    as well, or why not; nothing where they do not follow each other."""
    front = expanded_from(graph, node)
    if front is None:
        return (), ()
    found, refusals = _proposed(graph, front.nodes, front.obstacle, target, precision)
    mean = mean_behind(graph, front.nodes[-1])
    if mean is not None:
        nodes = (*front.nodes, mean.second)
        both, not_both = _proposed(graph, nodes, front.obstacle or mean.obstacle, target, precision)
        found, refusals = (*found, *both), (*refusals, *not_both)
    whole = inverted_from(graph, node)
    if whole is None:
        return found, refusals
    together, apart = _proposed(graph, whole.nodes, whole.obstacle, target, precision)
    return (*found, *together), (*refusals, *apart)


def with_norm(graph: Graph, node: Node, target: Target, precision: DType) -> Proposed:
    """A convolution with groups and the normalisation of what it leaves over channels in one kernel, or why not;
    nothing where there is none. The move of channels that may lie between moves no byte."""
    found = normed_from(graph, node)
    if found is None:
        return (), ()
    first, *between, norm = found.nodes
    if found.obstacle is not None:
        return (), (Refusal(FAMILY, ", ".join(found.region), found.obstacle),)
    move = between[0].op if between else None
    assert move is None or isinstance(move, Transpose)
    conv = _alone(graph, first, target, precision)
    behind = _in_layout(graph, norm, target, precision, Layout.ROW if between else Layout.CHANNELS_LAST)
    problem = normed(conv, behind, move)
    legal, refusals = with_statistics.candidates(problem, target)
    if not legal:
        return (), refused(FAMILY, found.region, refusals)
    moves = (problem_of(graph, each, target, precision, (Layout.CHANNELS_LAST,), Layout.ROW) for each in between)
    names = (*first.inputs, *norm.inputs[1:])
    share = may_share(problem, names, ())
    step = ProposedStep(problem, names, norm.outputs, share, pitched=(0,), reads_apart=READS_APART)
    seconds = with_statistics.predict(problem, legal[0], target)
    return (Alternative(found.region, FAMILY, (step,), seconds, (conv, *moves, behind)),), ()


def _behind_gate(graph: Graph, node: Node) -> tuple[Node, ...]:
    """The product that reads what a convolution leaves times a gate, which its means make."""
    if mean_behind(graph, node) is None:
        return ()
    scaled = [each for each in graph.consumers(node.outputs[0]) if scales(graph, each)]
    behind = [chain_from(graph, each) for each in scaled]
    return tuple(each.second for each in behind if each is not None)


def _proposed(
    graph: Graph, nodes: tuple[Node, ...], obstacle: str | None, target: Target, precision: DType
) -> Proposed:
    region = tuple(node.name for node in nodes)
    if obstacle is not None:
        return (), (Refusal(FAMILY, ", ".join(region), obstacle),)
    apart = tuple(_alone(graph, node, target, precision) for node in nodes)
    problem, names = apart[0], nodes[0].inputs
    outputs = nodes[-1].outputs
    for node, behind in zip(nodes[1:], apart[1:], strict=True):
        if isinstance(node.op, Reduce):
            problem, outputs = averaged(problem, behind), (*nodes[-2].outputs, *outputs)
        else:
            problem, names = chained(problem, behind), (*names, *node.inputs[1:])
    legal, refusals = chain.candidates(problem, target)
    if not legal:
        return (), refused(FAMILY, region, refusals)
    step = ProposedStep(problem, names, outputs, may_share(problem, names, ()), pitched=(0,), reads_apart=READS_APART)
    return (Alternative(region, FAMILY, (step,), chain.predict(problem, legal[0], target), apart),), ()


def _alone(graph: Graph, node: Node, target: Target, precision: DType) -> KernelProblem:
    """The node channels-last."""
    return _in_layout(graph, node, target, precision, Layout.CHANNELS_LAST)


def _in_layout(graph: Graph, node: Node, target: Target, precision: DType, layout: Layout) -> KernelProblem:
    """The node with all tensors of its output's rank in a layout."""
    rank = graph.type(node.outputs[0]).rank
    layouts = (layout if graph.type(name).rank == rank else Layout.ROW for name in node.inputs)
    return problem_of(graph, node, target, precision, tuple(layouts), layout)
