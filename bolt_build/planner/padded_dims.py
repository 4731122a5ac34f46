"""Which of an engine's dimensions take less than a plan has, padded with zeros: its batch, and those with extents."""

from __future__ import annotations

from collections.abc import Sequence

from bolt_build.graph.ir import Graph
from bolt_build.graph.padding import padded_ports
from bolt_build.planner.engine_plan import Decision, PaddedDim
from bolt_build.sizes import Sizes, sizes_of

STAGE = "lengths"


def padded_dims(graphs: Sequence[Graph]) -> tuple[PaddedDim, ...]:
    """The batch and each dimension with several extents, in this order; nothing for an engine of one plan.

    `graphs` are the engine's, as imported. Of each dimension the two with the largest extents are compared.
    """
    by_sizes = {sizes_of(graph): graph for graph in graphs}
    if len(by_sizes) < 2:
        return ()
    names = ["batch", *(name for name, _ in graphs[0].dims)]
    numbers = [each.numbers for each in by_sizes]
    largest = tuple(max(column) for column in zip(*numbers, strict=True))
    return tuple(_padded(name, which, largest, by_sizes) for which, name in enumerate(names))


def decisions_of(found: Sequence[PaddedDim]) -> tuple[Decision, ...]:
    """A line for each dimension of which there is something to say."""
    return tuple(
        Decision(STAGE, each.name, "does not pad", each.refused)
        if each.refused
        else Decision(STAGE, each.name, "pads shorter inputs with zeros", "no step lets them reach what is not padded")
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


def _padded(name: str, which: int, largest: tuple[int, ...], graphs: dict[Sizes, Graph]) -> PaddedDim:
    along = {
        sizes.numbers[which]: graph
        for sizes, graph in graphs.items()
        if all(number == largest[i] for i, number in enumerate(sizes.numbers) if i != which)
    }
    if len(along) < 2:
        return PaddedDim(name, (), ALONE)
    *_, small, large = sorted(along)
    found = padded_ports(along[small], along[large])
    return PaddedDim(name, (), found) if isinstance(found, str) else PaddedDim(name, found.axes)
