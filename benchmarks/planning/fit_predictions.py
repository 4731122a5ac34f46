"""Fits the constants of predictions to what was measured on the H200.

    python benchmarks/planning/fit_predictions.py chains          # shows constants and errors, and writes nothing

A set of constants belongs to some kinds of kernels. Each constant in turn is multiplied and divided by a smaller and
smaller step, and stays where the error is least: the mean absolute logarithm of predicted over measured time, each
problem with the same weight, and that of the regret. A third of the problems is held out (`predictions.held_out`): its
errors are shown beside, and nothing is fitted to it. Constants have a meaning each, and there are few of them; people
write them into the source, rounded, with the error that is left.
"""

from __future__ import annotations

import argparse
import importlib
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.planning.kernel_times import FAMILIES, TARGET
from benchmarks.planning.predictions import Point, measured, points, summary

_STEPS = (1.6, 1.3, 1.15, 1.07, 1.03)
"""Factors by which a constant moves, each until none gains."""
_RANK = 0.5
"""Weight of a problem's regret beside its error."""
_FAMILIES = "bolt_build.families"


@dataclass(frozen=True)
class Fit:
    """Kinds whose predictions depend on constants, each named by its module and itself: `grouped.kind._BEGIN`. `usual`:
    of kernels in their usual order alone, where predictions know no other."""

    kinds: tuple[str, ...]
    constants: tuple[str, ...]
    usual: bool = False


def _of(module: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{module}.{name}" for name in names)


FITS = {
    "chains": Fit(
        ("grouped inverted", "grouped expanded", "grouped expanded + means"),
        _of("grouped.chain_tile", "_EFFICIENCY", "_BESIDE", "_CLOCKS", "_SLAB", "_LOADS")
        + _of("grouped.chain", "_TRANSCENDENTAL"),
    ),
    "copied chains": Fit(
        ("grouped chain",),
        _of(
            "grouped.chain_tile",
            "_COPIED_EFFICIENCY",
            "_COPIED_BEGIN",
            "_COPIED_CLOCKS",
            "_COPIED_SLAB",
            "_COPIED_LOADS",
        ),
    ),
    "grouped products": Fit(
        ("grouped tensor_core", "grouped deep"),
        _of("grouped.warps", "_ISSUED", "_REACHED", "_BEGIN", "_MEMORY", "_STORE")
        + _of("grouped.tensor_core", "_SHARED", "_GLOBAL"),
    ),
    "depthwise": Fit(
        ("grouped depthwise", "grouped depthwise + means"),
        _of("grouped.depthwise", "_EFFICIENCY", "_HALF", "_BEGIN", "_TILE", "_ALONE", "_COPY", "_THREAD"),
    ),
    "rows": Fit(
        ("grouped rows", "grouped rows + means", "grouped diagonal"),
        _of("grouped.rows", "_EFFICIENCY", "_MANY_TAPS", "_ROW") + _of("grouped.diagonal", "_EFFICIENCY", "_ROW"),
    ),
    "sliding": Fit(
        ("grouped sliding", "grouped sliding + means", "grouped banded"),
        _of("grouped.sliding", "_EFFICIENCY", "_ALONE") + _of("grouped.banded", "_BEGIN", "_ROW", "_COPY"),
    ),
    "means": Fit(
        ("grouped depthwise + means", "grouped expanded + means", "grouped sliding + means", "grouped rows + means"),
        _of("grouped.means", "ROUND", "_MEET", "_CROWDED", "_FULL"),
    ),
    "normed": Fit(
        ("grouped normed",),
        _of("grouped.band_tile", "_EFFICIENCY", "_SLAB", "_POSITION"),
    ),
    "rolling": Fit(
        ("cutlass rolling sums",),
        _of("cutlass.kinds.rolling", "_MULTIPLIES", "_LOADS", "_BEGINS", "_ROW", "_MEMORY")
        + _of("cutlass.kinds.rolling", "_RESULT", "_RESIDUAL", "_FUNCTION"),
    ),
    "bands": Fit(
        ("cutlass bands", "cutlass bands of groups"),
        _of("cutlass.kinds.band", "_MULTIPLIES", "_SHARED", "_STEP", "_STORE_BEGINS", "_STORE", "_LAUNCH")
        + _of("cutlass.kinds.band", "_MEMORY", "_L2_RATE", "_OVERLAP"),
    ),
    "wgmma": Fit(
        ("cutlass WGMMA",),
        _of("cutlass.kinds.wgmma_time", "_STEP", "_STORE_BEGINS", "_STORE", "LAUNCH", "_MEMORY", "_L2_RATE")
        + _of("cutlass.kinds.wgmma_time", "_OVERLAP", "_STORE_SIZE", "_IN_FLIGHT", "_WINDOWS", "_SHALLOW", "_TOGETHER")
        + _of("cutlass.kinds.wgmma_time", "_PLAIN_TOGETHER", "_THREE_TOGETHER", "_RESIDUAL")
        + _of("cutlass.kinds.wgmma_time", "_FUNCTION", "_PAIRS_STORE", "_PAIRS_MULTIPLY", "_FAR", "_TWO_RUNS")
        + _of("cutlass.kinds.wgmma_time", "_UNEVEN", "_FEW", "_BROAD"),
        usual=True,
    ),
    "two products": Fit(("cutlass two products",), _of("cutlass.kinds.wgmma_time", "_BETWEEN", "_BETWEEN_FUNCTION")),
    "split-K": Fit(("cutlass split-K",), _of("cutlass.one_product", "_ADDING", "_SUMS")),
    "split-K in clusters": Fit(
        ("cutlass split-K in clusters",), _of("cutlass.kinds.wgmma_sliced", "_SLOWER", "_BEGINS", "_TOLD")
    ),
    "norms": Fit(
        ("cutlass normalised rows",),
        _of("cutlass.kinds.wgmma_norm", "_EXCHANGE", "_AGAIN", "_LOADED", "_THROUGH_MEMORY"),
    ),
    "warps": Fit(("cutlass warps",), _of("cutlass.kinds.warp", "_STORE", "_FUNCTION", "_BLOCK")),
    "resident": Fit(
        ("cutlass resident weights",),
        _of("cutlass.kinds.resident", "_MULTIPLIES", "_LOADS", "_BEGINS", "_RESIDUAL", "_MEMORY", "_STORE", "FUNCTION"),
    ),
    "stems": Fit(
        ("cutlass images as they lie",),
        _of("cutlass.kinds.stem", "_SINGLE", "_WHOLE", "_PRODUCT", "_RESULT", "_FUNCTION", "_TILE")
        + _of("cutlass.kinds.stem", "_REACHED", "_SHOWN", "_WAIT"),
    ),
    "prologue": Fit(("cutlass prologue",), _of("cutlass.kinds.wgmma_prologue", "_AFFINE", "_GATE")),
    "prenorm": Fit(
        ("cutlass rows normalised first",),
        _of("cutlass.kinds.wgmma_prenorm", "_FRAGMENT", "_ALONE", "_ONCE"),
    ),
}


class Fitted:
    """Points of some kinds, and their predictions as constants change."""

    def __init__(self, found: Sequence[Point], fit: Fit) -> None:
        own = [each for each in found if each.kind in fit.kinds]
        self._points = [each for each in own if not (fit.usual and each.candidate.settings)]
        self.constants = [(importlib.import_module(f"{_FAMILIES}.{name.rpartition('.')[0]}"), name.rpartition(".")[2])
                          for name in fit.constants]  # fmt: skip

    def predicted(self, held_out: bool) -> list[Point]:
        """The points of the part, as they are predicted now."""
        rows = []
        for each in self._points:
            if each.held_out is held_out:
                seconds = FAMILIES[each.candidate.family].predict(each.problem, each.candidate, TARGET)
                rows.append(Point(each.problem, each.what, each.candidate, each.source, each.measured, seconds))
        return rows

    def error(self) -> float:
        """Of what is not held out."""
        problems: dict[str, list[Point]] = {}
        for each in self.predicted(False):
            problems.setdefault(each.problem.digest, []).append(each)
        return sum(map(_error, problems.values())) / max(1, len(problems))

    def shown(self, held_out: bool) -> str:
        rows = {kind: [each for each in self.predicted(held_out) if each.kind == kind] for kind in self._kinds()}
        texts = []
        for kind, of_kind in rows.items():
            if of_kind:
                found: dict[str, Any] = summary(of_kind)
                off = sum(abs(math.log(each.ratio)) for each in of_kind) / len(of_kind)
                texts.append(
                    f"  {kind:28} {found['points']:4} points, ratio {found['ratio']:.2f} "
                    f"({found['low']:.2f} to {found['high']:.2f}), off by {math.exp(off) - 1:.0%}, "
                    f"regret {found.get('regret', 1.0):.3f}"
                )
        return "\n".join(texts)

    def _kinds(self) -> list[str]:
        return sorted({each.kind for each in self._points})


def _error(found: list[Point]) -> float:
    off = sum(abs(math.log(each.ratio)) for each in found) / len(found)
    first = min(found, key=lambda each: each.predicted)
    return off + _RANK * math.log(first.measured / min(each.measured for each in found))


def fit(fitted: Fitted) -> None:
    """Moves the constants to where the error is least."""
    least = fitted.error()
    for step in _STEPS:
        gained = True
        while gained:
            gained = False
            for module, name in fitted.constants:
                for factor in (step, 1 / step):
                    old = getattr(module, name)
                    setattr(module, name, old * factor)
                    error = fitted.error()
                    if error < least - 1e-5:
                        least, gained = error, True
                        break
                    setattr(module, name, old)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fits", nargs="*", default=sorted(FITS), help=f"of {', '.join(sorted(FITS))}")
    parser.add_argument("--only-show", action="store_true", help="errors as constants are")
    arguments = parser.parse_args()
    found, _ = points(measured())
    for name in arguments.fits:
        fitted = Fitted(found, FITS[name])
        before = {(module.__name__, key): getattr(module, key) for module, key in fitted.constants}
        print(f"{name}: as it is\n{fitted.shown(False)}\n held out\n{fitted.shown(True)}")
        if arguments.only_show:
            continue
        fit(fitted)
        print(f" fitted\n{fitted.shown(False)}\n held out\n{fitted.shown(True)}")
        for module, key in fitted.constants:
            old = before[module.__name__, key]
            print(f"  {module.__name__.removeprefix(_FAMILIES)}.{key}: {old:.3g} -> {getattr(module, key):.3g}")


if __name__ == "__main__":
    main()
