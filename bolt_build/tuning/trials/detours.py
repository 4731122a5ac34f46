"""Alternatives that need conversions which the same family's kernels in another layout do without.

Where nobody makes a value in the format that an alternative reads, or nobody reads it in the one that it writes, a
conversion is forced. Where the same family is as fast in the format of the neighbours, and conversions alone take
longer than that, no plan gains by the alternative. One that is faster by itself stays: several of them may share the
conversions at their ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from bolt_build.families.base import Alternative, TensorFormat, same_bytes
from bolt_build.planner.space import SearchSpace


def detours(space: SearchSpace, alternatives: Sequence[Alternative]) -> dict[int, str]:
    """Which of the alternatives, by their places, are detours, and why.

    Each that is left out may force others, so that the rest is asked again until nothing changes.
    """
    found: dict[int, str] = {}
    while True:
        left = {at: each for at, each in enumerate(alternatives) if at not in found}
        more = _detours(space, left)
        if not more:
            return found
        found |= more


def _detours(space: SearchSpace, left: Mapping[int, Alternative]) -> dict[int, str]:
    borders = _Borders(space, left.values())
    forced = {at: borders.forced(each) for at, each in left.items()}
    ways: dict[tuple[tuple[str, ...], str], list[int]] = {}
    for at, each in left.items():
        ways.setdefault((each.region, each.family), []).append(at)
    found = {}
    for same in ways.values():
        best = min(same, key=lambda at: left[at].seconds + forced[at])
        least = left[best].seconds
        for at in same:
            if left[at].seconds >= least and forced[at] > least + forced[best] > 0.0:
                times = f"predicted {left[at].seconds * 1e6:.1f} us and {forced[at] * 1e6:.1f} us of conversions"
                found[at] = f"{times}, where another layout takes {(least + forced[best]) * 1e6:.1f} us in all"
    return found


class _Borders:
    """In which formats values are made and read."""

    def __init__(self, space: SearchSpace, alternatives: Iterable[Alternative]) -> None:
        self._space = space
        self._conversions = {(c.shape, c.source, c.to): c.seconds for c in space.conversions}
        self._made: dict[str, list[TensorFormat]] = {name: [format] for name, format in space.fixed}
        # Of a value: of each node that reads it, or the caller, the formats that it may read it in.
        self._read: dict[str, dict[str, list[TensorFormat]]] = {}
        for name, format in space.wanted:
            self._read.setdefault(name, {})[""] = [format]
        for each in alternatives:
            for name, format in _written(each):
                self._made.setdefault(name, []).append(format)
            for name, format in _reads(each):
                readers = [node.name for node in space.graph.consumers(name)] if space.graph.has(name) else []
                for reader in readers:
                    if reader in each.region:
                        self._read.setdefault(name, {}).setdefault(reader, []).append(format)

    def forced(self, alternative: Alternative) -> float:
        """Seconds of the conversions that it needs, whatever its neighbours are."""
        seconds = 0.0
        inside = {name for name, _ in _written(alternative)}
        for name, format in dict.fromkeys(_reads(alternative)):
            if name not in inside and self._is_tensor(name):
                seconds += self._converted(name, self._made.get(name, []), [format])
        for name, format in _written(alternative):
            if not self._is_tensor(name):
                continue
            readers = [
                wanted for reader, wanted in self._read.get(name, {}).items() if reader not in alternative.region
            ]
            # One conversion serves all who read its format.
            seconds += max((self._converted(name, [format], wanted) for wanted in readers), default=0.0)
        return seconds

    def _is_tensor(self, name: str) -> bool:
        return self._space.graph.has(name) and self._space.graph.constant(name) is None

    def _converted(self, name: str, made: Sequence[TensorFormat], wanted: Sequence[TensorFormat]) -> float:
        """Least seconds from one of some formats to one of others; 0 where none is needed or known."""
        shape = self._space.graph.type(name).shape
        if any(same_bytes(shape, source, to) for source in made for to in wanted):
            return 0.0
        known = (self._conversions.get((shape, source, to)) for source in made for to in wanted)
        return min((seconds for seconds in known if seconds is not None), default=0.0)


def _reads(alternative: Alternative) -> list[tuple[str, TensorFormat]]:
    return [
        (name, operand.format)
        for step in alternative.steps
        for name, operand in zip(step.inputs, step.problem.inputs, strict=True)
    ]


def _written(alternative: Alternative) -> list[tuple[str, TensorFormat]]:
    return [
        (name, operand.format)
        for step in alternative.steps
        for name, operand in zip(step.outputs, step.problem.outputs, strict=True)
    ]
