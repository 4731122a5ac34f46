"""Offers of several groups of kernels, which predictions compare less surely than those of one."""

from __future__ import annotations

from collections.abc import Hashable, Sequence


def with_leaders(groups: Sequence[Hashable], first: int) -> tuple[list[int], list[int]]:
    """Places of offers, sorted by prediction, of which the groups are given: those that come first, and the others. The
    first of each group is among the `first` ones, or in front of all others where there are more groups."""
    leaders: dict[Hashable, int] = {}
    for index, group in enumerate(groups):
        leaders.setdefault(group, index)
    others = [index for index in range(len(groups)) if index not in leaders.values()]
    room = max(0, first - len(leaders))
    return sorted((*leaders.values(), *others[:room])), others[room:]
