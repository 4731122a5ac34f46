"""Functions of tensors, element by element, through tiles of the output: inputs that stand still along an axis in
front, inside or behind, odd rows, words of several elements, tiles that end behind an axis, every size of element."""

from __future__ import annotations

from dataclasses import replace

from families_harness import Input, Layer
from families_layers import CLIP, stage
from gpu_harness import TARGET, Trial, trials_of
from gpu_pools import PORTABLE
from gpu_products import TOLERANCE

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate
from bolt_build.families.portable.kernels.elementwise.tiled import PointTile
from bolt_build.graph.ir import Op
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.logic import Compare, Logic, Where
from bolt_build.graph.ops.moves.expand import Expand
from bolt_build.graph.ops.moves.shape import Cast, Pad, Slice, Transpose

Shape = tuple[int, ...]


def _flags(*shape: int) -> Input:
    return Input(shape, low=0, high=1.9, dtype=DType.BOOL)


def _numbers(*shape: int) -> Input:
    return Input(shape, low=0, high=9, dtype=DType.I64)


def _points(label: str, op: Op, *inputs: Input) -> Layer:
    return Layer(f"tiled-{label}", op, inputs, (), DType.F16, TOLERANCE)


_COLOURS = (Input((3,), constant=True), Input((3,), constant=True, low=0.5))
_CHAINED = (Input((6, 3, 7, 7)), Input((6, 1, 7, 7)), Input((3, 1, 1), constant=True), Input((6, 3, 7, 7)))
_STAGES = (stage("mul", 2), CLIP, stage("sub", 3, swapped=True))
LAYERS = (
    _points("hidden", Where(), _flags(3, 1, 19, 19), Input((3, 4, 19, 19)), Input((1,))),
    _points("hidden-rows", Where(), _flags(3, 4, 19, 1), Input((3, 4, 19, 19)), Input((1, 4, 1, 19))),
    _points("upper", Where(), _flags(37, 41), Input((5, 37, 41)), Input((1,))),
    _points("one-hot", Compare("equal"), _numbers(70, 1), _numbers(1, 40)),
    _points("one-hot-odd", Compare("equal"), _numbers(70, 1), _numbers(1, 37)),
    _points("both", Logic("and"), _flags(2, 3, 35), _flags(2, 1, 35)),
    _points("mask", Expand((3, 5, 19, 19)), Input((3, 1, 19, 19))),
    _points("repeated-integers", Expand((3, 5, 2, 33)), _numbers(3, 1, 2, 33)),
    _points("every-second", Slice((1, 0, 1), (2, 9, 15), (1, 2, 2)), Input((4, 19, 33))),
    _points("rows", Transpose((0, 2, 1, 3)), Input((2, 5, 4, 33))),
    _points("backwards", Slice((0, 0, 40), (3, 7, 41), (1, 1, -1)), Input((3, 7, 41))),
    _points("pairs", Binary("sub"), Input((3, 19, 1, 33)), Input((3, 1, 19, 33))),
    _points("gate", Binary("mul"), Input((2, 5, 19, 19)), Input((2, 1, 19, 19))),
    _points("integer-pairs", Binary("add"), _numbers(3, 19, 1), _numbers(3, 1, 19)),
    Layer("tiled-colours", Binary("sub"), (Input((5, 7, 9, 3)), *_COLOURS), (stage("div", 2),), DType.F16, TOLERANCE),
    Layer("tiled-chain", Binary("add"), _CHAINED, _STAGES, DType.F16, TOLERANCE),
    Layer("tiled-widens", Cast(DType.F64), (Input((7, 511), dtype=DType.F16),)),
    Layer("tiled-narrows", Cast(DType.F16), (Input((7, 512), dtype=DType.F64),), (), DType.F32, TOLERANCE),
)
PADS = tuple(
    Layer(f"tiled-pad-{mode}-{name}", Pad(begin, end, mode, -1.5), (Input(shape),), (), DType.F16, TOLERANCE)
    for mode in ("constant", "edge", "reflect", "wrap")
    for name, begin, end, shape in (
        ("odd", (0, 0, 3, 2), (0, 0, 2, 4), (2, 3, 9, 7)),
        ("planes", (0, 0, 1, 1), (0, 0, 1, 1), (3, 4, 19, 30)),
        ("crops", (1, -1, 2, -3), (0, 1, -4, 0), (2, 4, 9, 25)),
    )
)
_TILES = {
    "tiled-hidden": (((1, 4, 100), 1), ((3, 2, 361), 1), ((2, 3, 7), 1)),
    "tiled-one-hot": (((9, 40), 2), ((70, 8), 8), ((5, 16), 4)),
    "tiled-widens": (((3577,), 1), ((35,), 1)),
    "tiled-narrows": (((1000,), 4), ((896,), 2)),
}
"""Tiles that prediction would not put first: with several of an axis along which an input stands still, in wider words,
smaller than a block."""


_APART = ("tiled-pairs", "tiled-gate", "tiled-chain")
"""Functions of two tensors whose rows may lie apart."""


def candidate(tile: PointTile) -> Candidate:
    return Candidate("portable", (("algorithm", "tiled"), *tile.parameters), tile.settings)


def tiled_trials() -> list[Trial]:
    """Of each alternative the kernel that is predicted to be fastest, and some in other tiles."""
    found = [trial for layer in LAYERS for trial in trials_of(layer, "portable", kind="tile")]
    for label, stated in _TILES.items():
        trial = next(each for each in found if each.layer.label == label)
        for cut, lanes in stated:
            other = candidate(PointTile(cut, lanes))
            if (reason := PORTABLE.refuse(trial.step.problem, other, TARGET)) is not None:
                raise ValueError(f"{label}: {reason}")
            found.append(replace(trial, candidate=other))
    found += [trial for layer in PADS for trial in trials_of(layer, "portable", kind="tile")]
    other = next(each for each in found if each.layer.label == "tiled-pad-reflect-planes")
    cut = Candidate("portable", (("algorithm", "tiled"), ("tile", "2x10x16")))
    slices = [each for each in found if each.step.pitched and each.step.reads_apart]
    found += [replace(each, pitch=each.step.problem.outputs[0].row + 8, between=24) for each in slices]
    found += [replace(each, between=24) for each in found if each.layer.label in _APART and each.shared is None]
    return [*found, replace(other, candidate=cut)]
