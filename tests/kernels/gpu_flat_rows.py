"""Movements of rows that no access divides, in whole accesses of the output: tensors beside each other, elements that
indices name, paddings, slices in steps, repetitions; every size of element, short rows and long ones, rows apart."""

from __future__ import annotations

from dataclasses import replace

from families_harness import Input, Layer
from gpu_harness import TARGET, Trial, trials_of
from gpu_pools import PORTABLE
from gpu_products import TOLERANCE

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate
from bolt_build.families.portable.kernels.moves.flat_rows import RowTile
from bolt_build.graph.ir import Op
from bolt_build.graph.ops.moves.gather import Gather
from bolt_build.graph.ops.moves.shape import Concat, Pad, Slice, Transpose

Shape = tuple[int, ...]


def _input(shape: Shape, dtype: DType) -> Input:
    return Input(shape, dtype=dtype) if dtype.is_float else Input(shape, low=0, high=99, dtype=dtype)


def _rows(label: str, op: Op, *shapes: Shape, dtype: DType = DType.F16) -> Layer:
    inputs = tuple(_input(shape, dtype) for shape in shapes)
    return Layer(f"flat-{label}", op, inputs, (), dtype if dtype.is_float else DType.F32, TOLERANCE)


def _picked(label: str, count: int, *shape: int, dtype: DType = DType.F16, index: DType = DType.I64) -> Layer:
    last = shape[-1]
    indices = Input((count,), low=-last, high=last - 1, dtype=index)
    return Layer(
        f"flat-picked-{label}", Gather(len(shape) - 1), (_input(shape, dtype), indices), (), DType.F16, TOLERANCE
    )


LAYERS = (
    _rows("boxes", Concat(2), (3, 37, 4), (3, 37, 1), (3, 37, 80)),
    _rows("joined-images", Concat(1), (2, 27, 9, 7), (2, 58, 9, 7)),
    _rows("joined-bytes", Concat(1), (67, 5), (67, 300), dtype=DType.U8),
    _rows("joined-singles", Concat(1), (33, 2, 3), (33, 1, 3), dtype=DType.F32),
    _rows("joined-i64", Concat(1), (19, 3), (19, 4), (19, 6), dtype=DType.I64),
    _picked("columns", 196, 5, 19, 197),
    _picked("odd", 37, 43, 51, index=DType.I32),
    _picked("bytes", 300, 11, 64, dtype=DType.U8),
    _picked("single", 5, 401, 7, dtype=DType.F32),
    _rows("every-second", Slice((1, 0, 1), (2, 9, 16), (1, 2, 2)), (4, 19, 33)),
    _rows("corners", Slice((0, 0, 0), (3, 41, 4), (1, 1, 1)), (3, 41, 85)),
    _rows("backwards", Slice((0, 0, 40), (3, 7, 41), (1, 1, -1)), (3, 7, 41)),
    _rows("heads", Transpose((0, 2, 1, 3)), (2, 5, 4, 33)),
    *(
        _rows(f"pad-{mode}-{name}", Pad(begin, end, mode, -1.5), shape)
        for mode in ("constant", "edge", "reflect", "wrap")
        for name, begin, end, shape in (
            ("odd", (0, 0, 3, 2), (0, 0, 2, 4), (2, 3, 9, 7)),
            ("crops", (1, -1, 2, -3), (0, 1, -4, 0), (2, 4, 9, 25)),
        )
    ),
)
_TILES = ((1, 8), (2, 2), (4, 2), (4, 4), (8, 1), (8, 2), (16, 4))
"""Words and turns: each trial has the next that is legal."""


def candidate(tile: RowTile) -> Candidate:
    return Candidate("portable", (("algorithm", "flat_rows"), *tile.parameters), tile.settings)


def _with_words(trial: Trial, number: int) -> Trial:
    order = (*_TILES[number % len(_TILES) :], *_TILES)
    stated = (candidate(RowTile(words, turns)) for words, turns in order)
    return replace(trial, candidate=next(c for c in stated if PORTABLE.refuse(trial.step.problem, c, TARGET) is None))


def flat_row_trials() -> list[Trial]:
    """Of each alternative one kernel, and of some another one with rows apart."""
    found = [trial for layer in LAYERS for trial in trials_of(layer, "portable", kind="turns", without=("tuples",))]
    found = [_with_words(trial, number) for number, trial in enumerate(found)]
    apart = [trial for trial in found if trial.step.pitched and trial.step.reads_apart]
    return found + [
        replace(_with_words(trial, number), pitch=trial.step.problem.outputs[0].row + 8 * (1 + number % 2), between=24)
        for number, trial in enumerate(apart[::2])
    ]
