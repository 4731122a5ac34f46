"""Kernels for a convolution with groups and its neighbours: what the family asks of a sort of them, and how their tiles
are offered."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, TypeVar

from bolt_build.families.base import Candidate, Expense, KernelProblem, KernelUnit, Refusal, StepCode, StepExpressions
from bolt_build.families.common.text_form import Named
from bolt_build.families.grouped.kind import FAMILY, Offer, gpu_of
from bolt_build.targets import Gpu, Target

_MOST = 24
"""So many candidates are offered: those that are predicted to be fastest."""


class Sort(Protocol):
    """A sort of kernels, a module. A problem that it is asked about is one that it `serves`."""

    def serves(self, problem: KernelProblem) -> bool:
        """True for problems of nodes that the sort is for, legal or not."""
        ...

    def candidates(self, problem: KernelProblem, target: Target) -> tuple[tuple[Candidate, ...], tuple[Refusal, ...]]:
        """`Family.candidates`. They have no settings, and so no variants."""
        ...

    def predict(self, problem: KernelProblem, candidate: Candidate, target: Target) -> float:
        """`Family.predict`."""
        ...

    def expense(self, problem: KernelProblem, candidate: Candidate | None) -> Expense:
        """`Family.expense`."""
        ...

    def refuse_candidate(self, problem: KernelProblem, candidate: Candidate, target: Target) -> str | None:
        """`Family.refuse`."""
        ...

    def emit(self, problem: KernelProblem, candidate: Candidate, target: Target, at: StepExpressions) -> StepCode:
        """`Family.emit`."""
        ...

    def unit(self, problem: KernelProblem, candidate: Candidate, target: Target) -> KernelUnit:
        """What instantiates the kernel."""
        ...


S = TypeVar("S", contravariant=True)


class SortTile(Protocol[S]):
    """A tile of kernels that compute `S`: a convolution's shape, or that of all that is computed with it."""

    @property
    def parameters(self) -> Named:
        """As candidates state it."""
        ...

    @property
    def extent(self) -> tuple[int, ...]:
        """What of an image it computes; tiles of one extent differ in how."""
        ...

    def refuse(self, what: S, gpu: Gpu, /) -> str | None:
        """Why no kernel with the tile computes it on this GPU, None where one does."""
        ...

    def seconds(self, what: S, target: Target, /) -> float:
        """Predicted time."""
        ...


def fastest(
    tiles: Iterable[SortTile[Any]], what: object, target: Target
) -> tuple[tuple[Candidate, ...], tuple[Refusal, ...]]:
    """The fastest tiles by prediction, first one of each extent and then others with the same; and why more are none,
    each reason once."""
    found, reasons = list[tuple[Offer, tuple[int, ...]]](), dict[str, Refusal]()
    for tile in tiles:
        if (reason := tile.refuse(what, gpu_of(target))) is None:
            found.append((Offer(tile.seconds(what, target), Candidate(FAMILY, tile.parameters)), tile.extent))
        else:
            reasons.setdefault(reason, Refusal(FAMILY, f"tile {tile}", reason))
    found.sort(key=lambda each: (each[0].seconds, str(each[0].candidate)))
    leading: dict[tuple[int, ...], Offer] = {}
    others = []
    for offer, extent in found:
        if leading.setdefault(extent, offer) != offer:
            others.append(offer)
    offers = (*leading.values(), *others)[:_MOST]
    return tuple(offer.candidate for offer in offers), tuple(reasons.values())
