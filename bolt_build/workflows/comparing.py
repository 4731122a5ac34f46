"""Two builds, two locks, or a build and a lock, side by side; and what became worse than is allowed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.sizes import Sizes
from bolt_build.workflows.compared import ComparedEngine, ComparedLayer, Figure, Measure, compared


@dataclass(frozen=True)
class LayerChange:
    """A layer in both or in one of them; None where it is not in the other."""

    before: ComparedLayer | None
    after: ComparedLayer | None

    @property
    def layer(self) -> ComparedLayer:
        """The layer, whichever has it."""
        found = self.after or self.before
        assert found is not None
        return found

    @property
    def same(self) -> bool:
        """True for the same kernel with the same time."""
        if self.before is None or self.after is None:
            return False
        return (self.before.kernel, self.before.microseconds) == (self.after.kernel, self.after.microseconds)

    @property
    def times(self) -> tuple[float, float] | None:
        """Both times in microseconds, None where one was not measured."""
        before, after = (None if each is None else each.microseconds for each in (self.before, self.after))
        return None if before is None or after is None else (before, after)


@dataclass(frozen=True)
class FigureChange:
    """A figure of both or of one of them; None where the other has not got it."""

    measure: Measure
    name: str
    before: float | None
    after: float | None

    @property
    def growth(self) -> float | None:
        """0.1 for a tenth more, infinite for something from nothing; None where it is in one alone."""
        if self.before is None or self.after is None:
            return None
        if self.before == self.after:
            return 0.0
        return self.after / self.before - 1 if self.before > 0 else math.inf

    def grew(self, percent: float) -> bool:
        """True where it became larger by more than `percent`."""
        if self.before is None or self.after is None:
            return False
        return self.after * 100 > self.before * (100 + percent)


@dataclass(frozen=True)
class EngineComparison:
    """`label` says which engine it is. `unused` counts problems of a lock that the build has not. `verified`: what
    `verify.json` says before and after, None where there is none."""

    label: str
    layers: tuple[LayerChange, ...]
    figures: tuple[FigureChange, ...]
    unused: int = 0
    verified: tuple[bool | None, bool | None] = (None, None)


@dataclass(frozen=True)
class Comparison:
    """`only_before` and `only_after` are labels of engines that the other does not have."""

    before: str
    after: str
    engines: tuple[EngineComparison, ...]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]


def compare(before: Path, after: Path) -> Comparison:
    """Pairs the engines by target, and by name too where a directory has several of one target.

    Raises BoltError: what `compared` raises of either, and "nothing-to-compare" where they have no target in common.
    """
    sides, wrong = [], []
    for path in (before, after):
        try:
            sides.append(compared(path))
        except BoltError as error:
            wrong += [diagnostic for diagnostic in error.diagnostics if diagnostic not in wrong]
    if wrong:
        raise BoltError(wrong)
    named = any(max(Counter(each.target for each in side).values(), default=0) > 1 for side in sides)
    first, second = ({_label(each, named=named): each for each in side} for side in sides)
    common = [label for label in first if label in second]
    if not common:
        have = " and ".join(f"{path} has {', '.join(side) or 'none'}" for path, side in zip(
            (before, after), (first, second), strict=True))  # fmt: skip
        message = f"{before} and {after} have no target in common"
        raise BoltError([Diagnostic("nothing-to-compare", message, hint=have)], ExitCode.USAGE)
    return Comparison(
        str(before), str(after), tuple(_pair(label, first[label], second[label]) for label in common),
        tuple(label for label in first if label not in second),
        tuple(label for label in second if label not in first),
    )  # fmt: skip


def regressions(comparison: Comparison, percent: float, measures: Collection[Measure]) -> tuple[str, ...]:
    """What of `measures` grew by more than `percent`, a sentence each; also verification that passes no longer, and
    engines that are no more."""
    found = [f"{label} is in {comparison.before} alone" for label in comparison.only_before]
    for engine in comparison.engines:
        if Measure.ERROR in measures and engine.verified[0] and engine.verified[1] is False:
            found.append(f"{engine.label}: verification passed, and fails now")
        for each in engine.figures:
            growth = each.growth
            if each.measure in measures and growth is not None and each.grew(percent):
                more = f"{growth:.1%} more" if math.isfinite(growth) else "more than nothing"
                found.append(f"{engine.label}: {each.measure.value}: {each.name}: {more}")
    return tuple(found)


def _label(engine: ComparedEngine, *, named: bool) -> str:
    return f"{engine.name}/{engine.target}" if named and engine.name else engine.target


def _pair(label: str, before: ComparedEngine, after: ComparedEngine) -> EngineComparison:
    first, second, unused = before.layers, after.layers, 0
    if before.is_lock and not after.is_lock:
        first, unused = _as_layers(before, after)
    elif after.is_lock and not before.is_lock:
        second, unused = _as_layers(after, before)
    layers = tuple(_layers(first, second))
    figures = (*_figures(before.figures, after.figures), *_sums(layers))
    return EngineComparison(label, layers, figures, unused, (before.verified, after.verified))


def _as_layers(lock: ComparedEngine, build: ComparedEngine) -> tuple[tuple[ComparedLayer, ...], int]:
    """What the lock has for each layer of the build, and how many problems it has besides."""
    entries = {entry.problem: entry for entry in lock.layers}
    found = [
        replace(entries[layer.problem], batch=layer.batch, name=layer.name, dims=layer.dims)
        for layer in build.layers
        if layer.problem in entries
    ]
    return tuple(found), len(entries) - len({layer.problem for layer in found})


def _layers(first: Sequence[ComparedLayer], second: Sequence[ComparedLayer]) -> Iterator[LayerChange]:
    """Layers of both in the first's order, then those of the second alone."""
    ours, theirs = {_key(each): each for each in first}, {_key(each): each for each in second}
    for key, layer in ours.items():
        yield LayerChange(layer, theirs.get(key))
    for key, layer in theirs.items():
        if key not in ours:
            yield LayerChange(None, layer)


def _key(layer: ComparedLayer) -> tuple[object, ...]:
    """A build's layer goes by its name, however it is computed; a lock's problem by its digest."""
    return (layer.problem,) if layer.batch is None else (layer.batch, layer.dims, layer.name)


def _figures(first: Sequence[Figure], second: Sequence[Figure]) -> Iterator[FigureChange]:
    ours, theirs = ({(each.measure, each.name): each.value for each in side} for side in (first, second))
    for measure, name in dict.fromkeys((*ours, *theirs)):
        yield FigureChange(measure, name, ours.get((measure, name)), theirs.get((measure, name)))


def _sums(layers: Sequence[LayerChange]) -> Iterator[FigureChange]:
    """Of each batch the sum of times of the kernels that were measured on both sides, each alone."""
    sums: dict[Sizes | None, list[tuple[float, float]]] = {}
    for each in layers:
        if each.times is not None:
            sums.setdefault(_sizes(each.layer), []).append(each.times)
    for sizes, times in sums.items():
        where = "" if sizes is None else f"{sizes}, "
        name = f"{where}sum of {len(times)} kernels measured in both"
        yield FigureChange(Measure.TIME, name, sum(a for a, _ in times), sum(b for _, b in times))


def _sizes(layer: ComparedLayer) -> Sizes | None:
    return None if layer.batch is None else Sizes(layer.batch, layer.dims)
