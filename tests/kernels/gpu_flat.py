"""Functions of tensors in whole words of a dense output: inputs that repeat themselves in all words of a thread, in
those of an image or in none, rows of less than a word, of several and of many, every size of element."""

from __future__ import annotations

from dataclasses import replace

from families_harness import Input, Layer
from families_layers import CLIP, stage
from gpu_asked import asked
from gpu_harness import TARGET, Trial, trials_of
from gpu_pools import PORTABLE
from gpu_products import TOLERANCE

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate
from bolt_build.families.portable.kernels.elementwise.flat import FlatTile
from bolt_build.graph.ir import Op
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.logic import Compare, Logic, Where
from bolt_build.graph.ops.moves.expand import Expand


def _flags(*shape: int) -> Input:
    return Input(shape, low=0, high=1.9, dtype=DType.BOOL)


def _numbers(*shape: int) -> Input:
    return Input(shape, low=0, high=9, dtype=DType.I64)


def _flat(label: str, op: Op, *inputs: Input) -> Layer:
    return Layer(f"flat-{label}", op, inputs, (), DType.F16, TOLERANCE)


_BIAS, _PLANES = Input((61,), constant=True), Input((7, 1, 1), constant=True)
_CHAINED = (Input((6, 3, 7, 7)), Input((6, 1, 7, 7)), Input((3, 1, 1), constant=True), Input((6, 3, 7, 7)))
_FACTORS = (Input((4, 3, 9, 9)), Input((3, 1, 1), constant=True), Input((4, 3, 9, 9)))
_STAGES = (stage("mul", 2), CLIP, stage("sub", 3, swapped=True))
LAYERS = (
    _flat("mask", Binary("add"), Input((4, 3, 19, 19)), Input((4, 1, 1, 19))),
    _flat("mask-of-pairs", Binary("add"), Input((4, 12, 9, 9)), Input((4, 1, 9, 9))),
    _flat("bias", Binary("add"), Input((3, 40, 61)), _BIAS),
    _flat("positions", Binary("add"), Input((9, 11, 13)), Input((1, 11, 13), constant=True)),
    _flat("planes", Binary("prelu"), Input((12, 7, 9, 9)), _PLANES),
    _flat("long-rows", Binary("mul"), Input((3, 5, 601)), Input((3, 1, 601))),
    _flat("even-channels", Binary("mul"), Input((3, 5, 7, 26)), Input((3, 1, 1, 26))),
    _flat("short-rows", Binary("max"), Input((9, 5, 3)), Input((9, 1, 3))),
    _flat("pairs", Binary("sub"), Input((3, 19, 1, 33)), Input((3, 1, 19, 33))),
    _flat("outer", Binary("sub"), Input((3, 16, 1)), Input((3, 1, 19))),
    _flat("repeated", Expand((3, 5, 19, 19)), Input((3, 1, 19, 19))),
    _flat("integer-pairs", Binary("add"), _numbers(3, 19, 1), _numbers(3, 1, 19)),
    _flat("powers", Binary("pow"), Input((3, 9, 61), low=-1.9, high=3.9), Input((1,), low=3, high=3, constant=True)),
    _flat("powers-of-pairs", Binary("pow"), Input((9, 1, 61), low=0.1, high=9), Input((1, 9, 61), low=-4, high=4)),
    _flat("segments", Compare("equal"), _numbers(3, 1, 32), _numbers(3, 32, 1)),
    _flat("up-to", Compare("less_equal"), _numbers(2, 1, 531), _numbers(2, 32, 1)),
    _flat("rows", Binary("sub"), Input((5, 9, 1)), Input((5, 1, 291))),
    _flat("both", Logic("and"), _flags(2, 3, 35), _flags(2, 1, 35)),
    _flat("hidden", Where(), _flags(3, 1, 19, 19), Input((3, 4, 19, 19)), Input((1,))),
    _flat("one-hot", Where(), _flags(5, 64), Input(()), Input(())),
    Layer("flat-chain", Binary("add"), _CHAINED, _STAGES, DType.F16, TOLERANCE),
    Layer("flat-activation", Activation("silu"), _FACTORS, (stage("mul", 1), stage("add", 2)), DType.F16, TOLERANCE),
    Layer("flat-single", Binary("add"), (Input((3, 9, 13)), Input((13,))), (), DType.F32),
)
_TILES = {
    "flat-mask": ((8, 2, 256), (4, 1, 19), (2, 3, 19), (1, 8, 5)),
    "flat-bias": ((8, 3, 61), (4, 2, 256)),
    "flat-planes": ((8, 2, 567), (8, 1, 7)),
    "flat-short-rows": ((8, 2, 4), (4, 1, 256)),
    "flat-segments": ((4, 2, 12), (4, 4, 32), (2, 8, 16)),
    "flat-up-to": ((4, 2, 531), (4, 3, 256)),
    "flat-rows": ((4, 2, 291), (2, 4, 256)),
    "flat-outer": ((8, 2, 19), (8, 2, 57)),
    "flat-integer-pairs": ((2, 4, 19), (1, 2, 256)),
    "flat-mask-of-pairs": ((4, 3, 81), (8, 2, 81)),
    "flat-positions": ((8, 1, 143),),
    "flat-long-rows": ((8, 2, 256), (8, 1, 601)),
    "flat-even-channels": ((8, 4, 13), (8, 1, 256)),
    "flat-pairs": ((8, 4, 256), (4, 2, 627)),
    "flat-repeated": ((8, 2, 256), (8, 1, 361)),
    "flat-activation": ((8, 1, 243), (4, 3, 81)),
    "flat-both": ((16, 1, 5), (8, 2, 7)),
    "flat-hidden": ((8, 1, 256), (4, 2, 361)),
    "flat-chain": ((8, 1, 49), (4, 3, 49)),
}
"""Tiles that prediction would not put first: words of fewer elements, at distances at which inputs repeat themselves or
do not, of which threads of a warp have some and not others."""


def candidate(tile: FlatTile) -> Candidate:
    return Candidate("portable", (("algorithm", "flat"), *tile.parameters), tile.settings)


_ROWS_ALONE = (
    "flat-positions", "flat-long-rows", "flat-short-rows", "flat-repeated", "flat-both", "flat-hidden", "flat-up-to",
    "flat-rows",
)  # fmt: skip
"""Layers that other layouts make no other loops of."""
_APART = ("flat-mask", "flat-planes", "flat-chain", "flat-activation")
"""Layers whose tensors are read with their rows apart too, and overwritten."""


def flat_trials() -> list[Trial]:
    """Of each alternative the kernel that is predicted to be fastest, and some in other tiles."""
    found = list[Trial]()
    layers = asked(LAYERS)
    for layer in layers:
        of_layer = trials_of(layer, "portable", kind="turns")
        found += of_layer[:1] if layer.label in _ROWS_ALONE else of_layer
    found = [each for each in found if each.shared is None or each.layer.label in _APART]
    for label, stated in _TILES.items():
        if all(layer.label != label for layer in layers):
            continue
        trial = next(each for each in found if each.layer.label == label)
        for each in stated:
            other = candidate(FlatTile(*each))
            if (reason := PORTABLE.refuse(trial.step.problem, other, TARGET)) is not None:
                raise ValueError(f"{label}: {reason}")
            found.append(replace(trial, candidate=other))
    return found + [replace(each, between=24) for each in found if each.layer.label in _APART and each.shared is None]
