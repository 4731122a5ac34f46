"""Shows a `Comparison`: of each engine the layers whose kernels or times differ, and its figures; or all as JSON."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from bolt_build.digest import encode
from bolt_build.report.printable import printable
from bolt_build.report.tables import Column, byte_text, table
from bolt_build.sizes import Dims, Sizes
from bolt_build.workflows.compared import Measure
from bolt_build.workflows.comparing import Comparison, EngineComparison, FigureChange, LayerChange

_LAYERS = (
    Column("batch", right=True, spare=2), Column("layer", name=True), Column("kernel of A", name=True),
    Column("kernel of B", name=True), Column("us of A", right=True), Column("us of B", right=True),
    Column("change", right=True, spare=1),
)  # fmt: skip
_FIGURES = (
    Column("figure", name=True), Column("A", right=True), Column("B", right=True), Column("change", right=True),
)  # fmt: skip
_VERIFIED = {True: "passes", False: "fails", None: "was not run"}


def render(comparison: Comparison, regressions: Sequence[str], *, width: int | None = None) -> str:
    """Tables that fit `width` characters (None: no limit), then what is worse than was allowed."""
    lines = [f"A: {comparison.before}", f"B: {comparison.after}"]
    for engine in comparison.engines:
        lines += ["", *_engine(engine, width)]
    lines += [f"only in A: {label}" for label in comparison.only_before]
    lines += [f"only in B: {label}" for label in comparison.only_after]
    lines += [f"worse: {each}" for each in regressions]
    return printable("\n".join(lines) + "\n")


def as_json(comparison: Comparison, regressions: Sequence[str]) -> dict[str, Any]:
    """Everything, layers that are the same too. `growth` is null where a figure is in one alone, or grew from 0."""
    return {
        "before": comparison.before, "after": comparison.after,
        "engines": [_engine_data(engine) for engine in comparison.engines],
        "only_before": list(comparison.only_before), "only_after": list(comparison.only_after),
        "regressions": list(regressions),
    }  # fmt: skip


def _engine(engine: EngineComparison, width: int | None) -> list[str]:
    differ = [each for each in engine.layers if not each.same]
    lines = [f"{engine.label}: {_counted(engine.layers)}"]
    if engine.unused:
        lines.append(f"the lock has {engine.unused} more, for problems that the build has not")
    if differ:
        lines += [line.plain for line in table(_LAYERS, [_row(each) for each in differ], width)]
    if engine.figures:
        lines += ["", *(line.plain for line in table(_FIGURES, [_figure(each) for each in engine.figures], width))]
    if engine.verified != (None, None):
        before, after = (_VERIFIED[each] for each in engine.verified)
        lines.append(f"verification: {before} for A, {after} for B")
    return lines


def _counted(layers: Sequence[LayerChange]) -> str:
    counts = Counter(map(_how, layers))
    words = ("the same", "another kernel", "another time", "in A alone", "in B alone")
    return ", ".join(f"{counts[word]} {word}" for word in words if counts[word]) or "no layers"


def _how(each: LayerChange) -> str:
    if each.before is None or each.after is None:
        return "in B alone" if each.before is None else "in A alone"
    if each.before.kernel != each.after.kernel:
        return "another kernel"
    return "the same" if each.same else "another time"


def _row(each: LayerChange) -> tuple[str, ...]:
    layer, times = each.layer, each.times
    kernels = ["-" if side is None else side.kernel for side in (each.before, each.after)]
    if kernels[0] == kernels[1]:
        kernels[1] = "the same"
    known = (None if side is None else side.microseconds for side in (each.before, each.after))
    return (
        "" if layer.batch is None else Sizes(layer.batch, layer.dims).words, layer.name, *kernels,
        *("" if time is None else f"{time:.2f}" for time in known),
        "" if times is None or not times[0] else f"{times[1] / times[0] - 1:+.1%}",
    )  # fmt: skip


def _figure(each: FigureChange) -> tuple[str, ...]:
    growth = each.growth
    change = "" if growth is None else f"{growth:+.1%}" if math.isfinite(growth) else "from 0"
    return f"{each.measure.value}: {each.name}", _value(each, each.before), _value(each, each.after), change


def _value(each: FigureChange, value: float | None) -> str:
    if value is None:
        return "-"
    if each.measure is Measure.SIZE:
        return byte_text(int(value))
    return f"{value:.2f} us" if each.measure is Measure.TIME else f"{value:.3g}"


def _engine_data(engine: EngineComparison) -> dict[str, Any]:
    return {
        "engine": engine.label,
        "layers": [
            {
                "batch": each.layer.batch, **_dims(each.layer.dims), "layer": each.layer.name, "same": each.same,
                "before": _side(each.before), "after": _side(each.after),
            }
            for each in engine.layers
        ],
        "figures": [encode(each) | {"growth": _finite(each.growth)} for each in engine.figures],
        "unused": engine.unused, "verified": list(engine.verified),
    }  # fmt: skip


def _side(layer: Any) -> dict[str, Any] | None:
    if layer is None:
        return None
    return {"kernel": layer.kernel, "problem": layer.problem, "microseconds": layer.microseconds}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _dims(dims: Dims) -> dict[str, Any]:
    return {"dims": dict(dims)} if dims else {}
