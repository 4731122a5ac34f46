"""Which of an engine's dimensions take less than a plan has, padded with zeros: its batch, and those with extents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bolt_build.graph.ir import Graph
from bolt_build.graph.ops.attention.attention import Attention
from bolt_build.graph.padding import padded_ports
from bolt_build.planner.engine_plan import Decision, PaddedDim
from bolt_build.sizes import Sizes, sizes_of

STAGE = "lengths"


Recogniser = Callable[[Graph], Graph]
"""Makes of a graph as imported one whose attention is one node, whoever exported it."""


@dataclass(frozen=True)
class PaddedDims:
    """The batch and each dimension with several extents, in this order; nothing for an engine of one plan. `counted`
    are the nodes of recognised attention that must be told how many keys are real, with the number of the dimension."""

    dims: tuple[PaddedDim, ...]
    counted: tuple[tuple[str, int], ...] = ()


def padded_dims(graphs: Sequence[Graph], recognised: Recogniser) -> PaddedDims:
    """What of an engine's sizes is padded. `graphs` are the engine's, as imported.

    Of each dimension the two with the largest extents are compared. Where padding reaches the rest in these graphs,
    they are compared once more behind the passes up to that which recognises attention, which may count its keys where
    the dimension is not the batch.
    """
    by_sizes = {sizes_of(graph): graph for graph in graphs}
    if len(by_sizes) < 2:
        return PaddedDims(())
    names = ["batch", *(name for name, _ in graphs[0].dims)]
    numbers = [each.numbers for each in by_sizes]
    largest = tuple(max(column) for column in zip(*numbers, strict=True))
    found = [_padded(name, which, largest, by_sizes, recognised) for which, name in enumerate(names)]
    counted = [(node, which) for which, (_, nodes) in enumerate(found) for node in nodes]
    return PaddedDims(tuple(dim for dim, _ in found), tuple(counted))


def with_counts(graph: Graph, padded: PaddedDims) -> Graph:
    """An optimised graph whose attention counts its keys where that is padded. Raises ValueError where it is gone."""
    which = dict(padded.counted)
    if not which:
        return graph
    nodes = [
        replace(node, op=replace(node.op, counted=which[node.name]))
        if node.name in which and isinstance(node.op, Attention)
        else node
        for node in graph.nodes
    ]
    told = {node.name for node in nodes if node.op.reads_sizes}
    if missing := [name for name in which if name not in told]:
        raise ValueError(f"'{missing[0]}' was attention when it was recognised, and is none in the optimised graph")
    return replace(graph, nodes=tuple(nodes))


def decisions_of(found: Sequence[PaddedDim]) -> tuple[Decision, ...]:
    """A line for each dimension of which there is something to say."""
    return tuple(
        Decision(STAGE, each.name, "does not pad", each.refused)
        if each.refused
        else Decision(STAGE, each.name, "pads shorter inputs with zeros", _why(each))
        for each in found
        if each.refused != ALONE
    )


def exact_lengths(found: Sequence[PaddedDim]) -> tuple[str, ...]:
    """What a build says of each dimension with several extents that is not padded."""
    return tuple(
        f"inputs must have one of the extents of '{each.name}': shorter ones cannot be padded, for {each.refused}"
        for each in found[1:]
        if each.refused
    )


ALONE = "the engine has one of it"


def _why(dim: PaddedDim) -> str:
    if not dim.counted:
        return "no step lets them reach what is not padded"
    times = f"{dim.counted} node{'s' if dim.counted > 1 else ''}"
    return f"attention in {times} reads as many keys as there are, and no step lets them reach what is not padded"


def _padded(
    name: str, which: int, largest: tuple[int, ...], graphs: dict[Sizes, Graph], recognised: Recogniser
) -> tuple[PaddedDim, tuple[str, ...]]:
    """The dimension, and the nodes that count."""
    along = {
        sizes.numbers[which]: graph
        for sizes, graph in graphs.items()
        if all(number == largest[i] for i, number in enumerate(sizes.numbers) if i != which)
    }
    if len(along) < 2:
        return PaddedDim(name, (), ALONE), ()
    *_, small, large = sorted(along)
    found = padded_ports(along[small], along[large])
    if isinstance(found, str):
        found = padded_ports(recognised(along[small]), recognised(along[large]), counts=which > 0)
    if isinstance(found, str):
        return PaddedDim(name, (), found), ()
    return PaddedDim(name, found.axes, counted=len(found.counted)), found.counted
