"""Kernels for a convolution with groups and its neighbours: what the family asks of a sort of them, and how their tiles
are offered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, Protocol, TypeVar

from bolt_build.families.base import Candidate, Expense, KernelProblem, KernelUnit, Refusal, StepCode, StepExpressions
from bolt_build.families.common.text_form import Named
from bolt_build.families.grouped.kind import FAMILY, gpu_of
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
    legal, reasons = list[tuple[float, SortTile[Any]]](), dict[str, Refusal]()
    gpu = gpu_of(target)
    for tile in tiles:
        if (reason := tile.refuse(what, gpu)) is None:
            legal.append((tile.seconds(what, target), tile))
        elif reason not in reasons:
            reasons[reason] = Refusal(FAMILY, f"tile {tile}", reason)
    leading, others = dict[tuple[int, ...], Candidate](), list[Candidate]()
    for tile in _in_order(legal):
        if tile.extent not in leading:
            leading[tile.extent] = _candidate(tile)
        elif len(others) < _MOST:
            others.append(_candidate(tile))
    return (*leading.values(), *others)[:_MOST], tuple(reasons.values())


def _candidate(tile: SortTile[Any]) -> Candidate:
    return Candidate(FAMILY, tile.parameters)


def _in_order(legal: list[tuple[float, SortTile[Any]]]) -> Iterator[SortTile[Any]]:
    """The fastest first. Texts, which decide between tiles of the same time, are asked for only there: there are
    hundreds of tiles, of which few are offered."""
    legal.sort(key=lambda each: each[0])
    for _, alike in groupby(legal, key=lambda each: each[0]):
        first, *more = (tile for _, tile in alike)
        yield from sorted((first, *more), key=lambda tile: str(_candidate(tile))) if more else (first,)
