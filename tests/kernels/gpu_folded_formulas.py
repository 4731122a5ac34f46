"""Reductions of elementwise functions of several tensors: along runs and columns, with tensors that broadcast in any
direction, odd extents, constants, and stages behind them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from families_harness import Input, Layer
from families_layers import RELU, stage
from gpu_asked import asked
from gpu_formulas import SHARED, term
from gpu_harness import TARGET, Trial, trials_of
from gpu_products import TOLERANCE

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate
from bolt_build.families.portable.family import Portable
from bolt_build.families.portable.kernels.reductions.folded_runs import (
    FoldedClusterTile,
    FoldedColumnsTile,
    FoldedRunsTile,
)
from bolt_build.graph.ir import EpilogueOp
from bolt_build.graph.ops.elementwise.formula import Formula
from bolt_build.graph.ops.lines.folded_formula import FoldedFormula
from bolt_build.graph.ops.lines.reduce import Reduce

PORTABLE = Portable()
Tile = FoldedRunsTile | FoldedColumnsTile | FoldedClusterTile
ALGORITHMS = {FoldedRunsTile: "runs", FoldedColumnsTile: "columns", FoldedClusterTile: "run_clusters"}
WEIGHED = Formula(2, (term("mul", 0, 1),))
APART = Formula(2, (term("sub", 0, 1), term("square", 2)))
MIXED = Formula(3, (term("sub", 0, 1), term("abs", 3), term("mul", 4, 2)))
"""|a - b| c"""
SCALED, CHANNEL = (stage("mul", 2), RELU), Input((13, 1, 1), True)


def _layer(
    label: str, formula: Formula, fold: Reduce, *inputs: Input, epilogue: tuple[EpilogueOp, ...] = (),
    precision: DType = DType.F16,
) -> Layer:  # fmt: skip
    tolerance = TOLERANCE if precision is DType.F16 else 2e-5
    return Layer(f"folded-{label}", FoldedFormula(formula, fold), inputs, epilogue, precision, tolerance)


def _runs(*tiles: tuple[int, int, int]) -> tuple[Tile, ...]:
    return tuple(FoldedRunsTile(*each) for each in tiles)


def _columns(*tiles: tuple[int, int]) -> tuple[Tile, ...]:
    return tuple(FoldedColumnsTile(*each) for each in tiles)


LAYERS: tuple[tuple[Layer, tuple[Tile, ...]], ...] = (
    (_layer("rows", WEIGHED, Reduce("sum", (2,), False), Input((3, 37, 101)), Input((3, 1, 101))),
     _runs((4, 4, 1), (1, 8, 1), (16, 16, 1))),
    (_layer("even", APART, Reduce("mean", (2,)), Input((3, 11, 96)), Input((11, 96), constant=True)),
     _runs((8, 8, 1), (2, 32, 1))),
    (_layer("images", APART, Reduce("mean", (1, 2, 3), False), *[Input((3, 5, 33, 31))] * 2),
     _runs((32, 256, 3), (8, 256, 1))),
    (_layer("together", APART, Reduce("mean", (0, 2, 3)), Input((61, 5, 17, 13)), Input((1, 5, 1, 1))),
     (FoldedClusterTile(32, 4), FoldedClusterTile(8, 2))),
    (_layer("channels", APART, Reduce("mean", (1,), False), *[Input((2, 21, 13, 11))] * 2),
     _columns((16, 1), (4, 1), (1, 1))),
    (_layer("batches", APART, Reduce("sum", (0, 2, 3)), Input((5, 12, 9, 7)), Input((1, 12, 1, 1))),
     (*_runs((8, 256, 2), (1, 32, 1)), *_columns((2, 3), (1, 1)))),
    (_layer("tokens", WEIGHED, Reduce("sum", (1,), False), Input((3, 77, 40)), Input((3, 77, 1))),
     _columns((4, 1), (8, 3))),
    (_layer("pairs", APART, Reduce("sum", (3,), False), Input((2, 9, 1, 35)), Input((2, 1, 13, 35))),
     _runs((1, 1, 1), (4, 4, 1))),
    (_layer("pairs-of-3", APART, Reduce("sum", (3,), False), Input((2, 19, 1, 3)), Input((2, 1, 23, 3))),
     _runs((1, 1, 1))),
    (_layer("three", MIXED, Reduce("max", (2,), False), Input((2, 15, 29)), Input((2, 1, 29)), Input((2, 15, 1))),
     _runs((2, 2, 1), (4, 16, 1))),
    (_layer("odd", MIXED, Reduce("sum", (1,), False), Input((2, 45, 29)), Input((2, 1, 29)), Input((2, 45, 1))),
     _columns((4, 1), (1, 2))),
    (_layer("turned", WEIGHED, Reduce("sum", (1,), False), Input((2, 33, 19)), Input((33, 1), constant=True)),
     _columns((2, 1))),
    (_layer("itself", SHARED, Reduce("l2", (1,)), Input((7, 203)), Input((7, 1))), _runs((16, 16, 1))),
    (_layer("one", Formula(1, (term("exp", 0),)), Reduce("log_sum", (1,), False), Input((5, 333))),
     _runs((8, 32, 1), (32, 256, 1))),
    (_layer("powers", APART, Reduce("log_sum_exp", (2,), False), Input((3, 13, 61)), Input((3, 1, 61))),
     _runs((4, 4, 1), (1, 256, 2))),
    (_layer("powers-apart", APART, Reduce("log_sum_exp", (1,), False), Input((2, 21, 29)), Input((2, 21, 1))),
     _columns((4, 1), (1, 2))),
    (_layer("chain", APART, Reduce("mean", (2, 3)), Input((2, 13, 7, 9)), Input((1, 13, 7, 9)), CHANNEL,
            epilogue=SCALED), (*_runs((4, 8, 1)), *_columns((2, 1)))),
    (_layer("wide", APART, Reduce("mean", (2,), False), Input((2, 13, 61)), Input((2, 1, 61)), precision=DType.F32),
     _runs((4, 4, 1))),
    (_layer("wide-columns", WEIGHED, Reduce("min", (1,), False), Input((2, 13, 61)), Input((2, 13, 1)),
            precision=DType.F32), _columns((4, 1))),
)  # fmt: skip


def candidate(tile: Tile) -> Candidate:
    return Candidate("portable", (("algorithm", ALGORITHMS[type(tile)]), *tile.parameters), tile.settings)


def _stated(layer: Layer, tiles: tuple[Tile, ...]) -> Iterator[Trial]:
    """The plain kernel and, in each layout, those of the form that serves it."""
    for trial in (each for of in asked([layer]) for each in trials_of(of, "portable")):
        problem = trial.step.problem
        offered = {dict(each.parameters)["algorithm"] for each in PORTABLE.candidates(problem, TARGET)[0]}
        yield replace(trial, candidate=Candidate("portable", (("algorithm", "direct"),)))
        for tile in tiles:
            if dict(candidate(tile).parameters)["algorithm"] not in offered:
                continue
            if (reason := PORTABLE.refuse(problem, candidate(tile), TARGET)) is not None:
                raise ValueError(f"{layer.label} {tile}: {reason}")
            yield replace(trial, candidate=candidate(tile))


def folded_formulas() -> list[Trial]:
    found = [trial for layer, tiles in LAYERS for trial in _stated(layer, tiles)]
    return list({trial.label: trial for trial in found}.values())
