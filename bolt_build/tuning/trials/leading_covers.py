"""Covers that lead: what `resolve` finds, and others that take nearly as little, each without something that the first
has. Sums of kernels' times do not say which of them makes the faster engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from bolt_build.errors import BoltError
from bolt_build.families.base import Alternative, Family
from bolt_build.planner.resolve import resolve
from bolt_build.planner.selected_space import chosen_cover, selected_space
from bolt_build.planner.selection import ChosenCover, Selection
from bolt_build.planner.space import SearchSpace
from bolt_build.targets import Target

NEAR = 1.05
"""A cover that takes more than so many times the first's seconds does not lead."""
MOST = 3
"""Covers beside the first."""

MANY = 64
"""More kinds than this are put together by the operators that they compute: each cover is a search of seconds."""

_Signature = tuple[str, tuple[str, ...]]


def leading_covers(
    space: SearchSpace, selection: Selection, target: Target, families: Sequence[Family]
) -> tuple[ChosenCover, ...]:
    """The cover that the selection's winners give, and up to `MOST` others in the order of their seconds.

    Each other one does without the alternatives of one kind (a family's, for the same problems) that the first has:
    equal layers change together. Where there are more than `MANY` kinds (DenseNet-121 has 131, for no two of its layers
    are equal), those of a family for the same operators do. The selection's own covers are left out of account. Raises
    BoltError ("no-cover").
    """
    measured, _ = selected_space(space, replace(selection, covers=(), engines=()), target, families)
    first = resolve(measured)
    chosen = chosen_cover(measured, first.alternatives)
    kind_of = _kinds(space, first.alternatives)
    found: dict[ChosenCover, float] = {}
    for kind in dict.fromkeys(map(kind_of, first.alternatives)):
        left = tuple(each for each in measured.alternatives if kind_of(each) != kind)
        if not _covers(left, space):
            continue
        try:
            other = resolve(replace(measured, alternatives=left))
        except BoltError:  # formats cannot be made to agree without it
            continue
        cover = chosen_cover(measured, other.alternatives)
        if cover != chosen and other.seconds <= NEAR * first.seconds:
            found.setdefault(cover, other.seconds)
    others = sorted(found, key=lambda cover: (found[cover], str(cover)))
    return (chosen, *others[:MOST])


def _kinds(space: SearchSpace, chosen: Sequence[Alternative]) -> Callable[[Alternative], _Signature]:
    if len({_problems(alternative) for alternative in chosen}) <= MANY:
        return _problems
    operators = {node.name: type(node.op).__name__ for node in space.graph.nodes}

    def by_operators(alternative: Alternative) -> _Signature:
        return alternative.family, tuple(operators[name] for name in alternative.region)

    return by_operators


def _problems(alternative: Alternative) -> _Signature:
    return alternative.family, tuple(step.problem.digest for step in alternative.steps)


def _covers(alternatives: Sequence[Alternative], space: SearchSpace) -> bool:
    covered = {name for alternative in alternatives for name in alternative.region}
    return all(node.name in covered for node in space.graph.nodes)
