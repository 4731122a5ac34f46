"""Products of two tensors in half precision, as layers that are tried on a GPU: both factors in both orders, heads that
share a factor, ragged tiles, loads of one to eight elements, a constant factor on the left; factors and results that
lie in other places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from families_harness import Input, Layer
from families_layers import RELU, stage
from gpu_asked import asked
from gpu_harness import TARGET, Trial, trials_of
from gpu_products import TOLERANCE, conv

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate
from bolt_build.families.portable.family import Portable
from bolt_build.families.portable.kernels.images.stencils import StencilTile
from bolt_build.families.portable.kernels.products.few_row_products import FewRowsTile
from bolt_build.families.portable.kernels.products.half_products import HalfTile
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.graph.ops.products.placed_matmul import Move, PlacedMatMul

PORTABLE = Portable()


def product(label: str, a: Input, b: Input, *more: Input, op: MatMul | None = None) -> Layer:
    stages = (stage("add", 2), RELU) if more else ()
    return Layer(f"half-{label}", op or MatMul(), (a, b, *more), stages, DType.F16, TOLERANCE)


def placed(label: str, a: Input, b: Input, left: Move, right: Move, made: Move, *more: Input) -> Layer:
    stages = (stage("add", 2), RELU) if more else ()
    return Layer(f"half-{label}", PlacedMatMul(left, right, made), (a, b, *more), stages, DType.F16, TOLERANCE)


LAYERS = (
    product("heads", Input((2, 3, 70, 48)), Input((2, 3, 48, 72))),
    product("heads-turned", Input((2, 3, 70, 48)), Input((2, 3, 72, 48)), op=MatMul(transpose_b=True)),
    product("channels", Input((2, 2, 200, 24)), Input((2, 2, 200, 40)), op=MatMul(transpose_a=True)),
    product("both-turned", Input((3, 100, 36)), Input((3, 52, 100)), op=MatMul(True, True)),
    product("shared", Input((2, 1, 33, 130)), Input((5, 130, 34)), Input((2, 5, 33, 34))),
    product("odd", Input((3, 37, 45)), Input((3, 45, 131))),
    product("deep", Input((2, 1100, 40)), Input((2, 1100, 24)), Input((2, 40, 24)), op=MatMul(transpose_a=True)),
    product("deep-odd", Input((37, 613)), Input((613, 35))),
    placed(
        "deep-placed",
        Input((2, 40, 24, 22)),
        Input((2, 528, 72)),
        ((2, 40, 24, 22), (0, 1, 2, 3), (2, 40, 528)),
        ((2, 528, 72), (0, 1, 2), (2, 528, 72)),
        ((2, 40, 72), (0, 2, 1), (2, 72, 40)),
    ),
    product("constant", Input((40, 196), True), Input((4, 196, 136))),
    product("shallow", Input((2, 150, 8)), Input((2, 8, 150))),
    placed(
        "placed-rows",
        Input((2, 70, 96)),
        Input((2, 52, 96)),
        ((2, 70, 2, 48), (0, 2, 1, 3), (2, 2, 70, 48)),
        ((2, 52, 2, 48), (0, 2, 3, 1), (2, 2, 48, 52)),
        ((2, 2, 70, 52), (0, 2, 1, 3), (2, 70, 104)),
    ),
    placed(
        "placed-image",
        Input((2, 48, 5, 7)),
        Input((2, 48, 35)),
        ((2, 2, 24, 5, 7), (0, 1, 2, 3, 4), (2, 2, 24, 35)),
        ((2, 2, 24, 35), (0, 1, 3, 2), (2, 2, 35, 24)),
        ((2, 2, 24, 24), (0, 1, 2, 3), (2, 48, 24)),
        Input((2, 48, 24)),
    ),
    placed(
        "placed-turned",
        Input((3, 33, 40)),
        Input((40, 31)),
        ((3, 33, 40), (0, 1, 2), (3, 33, 40)),
        ((40, 31), (0, 1), (40, 31)),
        ((3, 33, 31), (0, 2, 1), (3, 31, 33)),
        Input((3, 31, 33)),
    ),
    Layer(
        "half-placed-tokens",
        PlacedMatMul(
            ((2, 72, 40), (0, 1, 2), (2, 72, 40)),
            ((52, 40), (1, 0), (40, 52)),
            ((2, 72, 52), (0, 1, 2), (2, 72, 52)),
        ),
        (Input((2, 72, 40)), Input((52, 40), True), Input((52,), True), Input((2, 72, 52))),
        (RELU, stage("add", 3)),
        DType.F16,
        TOLERANCE,
    ),
    placed(
        "placed-line",
        Input((2, 96, 6, 6)),
        Input((2, 36)),
        ((2, 96, 6, 6), (0, 1, 2, 3), (2, 96, 36)),
        ((2, 36), (0, 1), (2, 36, 1)),
        ((2, 96, 1), (0, 1, 2), (2, 96, 1, 1)),
    ),
)
NARROW = (
    product("narrow", Input((3, 131, 6)), Input((6, 6), True)),
    product("narrow-turned", Input((2, 90, 4)), Input((3, 4), True), Input((2, 90, 3)), op=MatMul(transpose_b=True)),
    product("narrow-16", Input((700, 16)), Input((16, 8), True)),
    Layer(
        "half-narrow-biased", MatMul(), (Input((5, 70, 7)), Input((7, 12), True), Input((12,), True)), (RELU,),
        DType.F16, TOLERANCE,
    ),
    conv("half-planes", (3, 6, 13, 8), 6, (1, 1), epilogue=()),
    conv("half-planes-3-16", (2, 3, 7, 6), 16, (1, 1), epilogue=(stage("add", 3), RELU)),
    conv("half-planes-odd", (2, 16, 5, 5), 5, (1, 1)),
)  # fmt: skip
"""Rows of few elements, and few planes."""
FEW_ROWS = (
    product("few-rows", Input((5, 8)), Input((8, 2064), True)),
    product("few-rows-odd", Input((2, 3)), Input((3, 70), True)),
    Layer(
        "half-few-rows-biased",
        MatMul(),
        (Input((11, 16)), Input((16, 1100), True), Input((1100,), True)),
        (RELU,),
        DType.F16,
        TOLERANCE,
    ),
)
"""Few rows of few elements by a matrix of many columns."""
STENCILS = (
    conv("half-mask", (3, 1, 13, 24), 1, (3, 3), epilogue=()),
    conv("half-colours", (2, 3, 11, 12), 3, (5, 5), epilogue=(stage("add", 3), RELU)),
    conv("half-blur", (2, 3, 12, 16), 3, (3, 3), 2, epilogue=(), groups=3),
    conv("half-gate", (2, 2, 9, 10), 1, (7, 7)),
    conv("half-line", (2, 1, 70), 4, (9,), epilogue=()),
    conv("half-apart", (1, 2, 12, 17), 2, (3, 3), dilation=2, epilogue=()),
)
"""Windows over few planes."""
FEW_ROWS_TILES = {
    "half-few-rows": (FewRowsTile(4, 8), FewRowsTile(1, 8), FewRowsTile(2, 4)),
    "half-few-rows-odd": (FewRowsTile(2, 2),),
    "half-few-rows-biased": (FewRowsTile(8, 4), FewRowsTile(4, 4)),
}
TILES = {
    "half-heads": (HalfTile(64, 64), HalfTile(32, 128), HalfTile(128, 32)),
    "half-heads-turned": (HalfTile(64, 128), HalfTile(32, 32)),
    "half-channels": (HalfTile(32, 64), HalfTile(64, 32)),
    "half-both-turned": (HalfTile(32, 32), HalfTile(64, 64)),
    "half-shared": (HalfTile(64, 64),),
    "half-odd": (HalfTile(32, 64), HalfTile(64, 128)),
    "half-deep": (HalfTile(32, 32, 4), HalfTile(64, 32, 2), HalfTile(32, 32, 2)),
    "half-deep-odd": (HalfTile(32, 32, 2), HalfTile(64, 64, 2), HalfTile(32, 64, 2)),
    "half-deep-placed": (HalfTile(32, 64, 2), HalfTile(64, 64, 2), HalfTile(32, 32, 4)),
    "half-constant": (HalfTile(64, 128),),
    "half-shallow": (HalfTile(128, 128),),
    "half-placed-rows": (HalfTile(64, 32), HalfTile(128, 64)),
    "half-placed-image": (HalfTile(32, 32),),
    "half-placed-turned": (HalfTile(32, 64),),
    "half-placed-tokens": (HalfTile(64, 64),),
    "half-placed-line": (HalfTile(128, 32),),
}
"""Every size in every order."""


def half_products() -> list[Trial]:
    """In half precision, with these tiles and as prediction puts them."""
    found = []
    for layer in asked(LAYERS):
        trials = trials_of(layer, "portable", 2)
        plain = next(each for each in trials if each.shared is None)
        for tile in TILES[layer.label]:
            candidate = Candidate("portable", (("algorithm", "tensor_cores"), *tile.parameters))
            assert PORTABLE.refuse(plain.step.problem, candidate, TARGET) is None
            trials.append(replace(plain, candidate=candidate))
        found += list({trial.label: trial for trial in trials}.values())
    for layer in asked(NARROW):
        found += [each for each in trials_of(layer, "portable", 4) if _algorithm(each) == "narrow"]
    for layer in asked(STENCILS):
        found += _with_tiles(layer, "stencil", tuple(map(StencilTile, (8, 4, 2, 1))))
    for layer in asked(FEW_ROWS):
        found += _with_tiles(layer, "few_rows", FEW_ROWS_TILES[layer.label])
    return found


def _with_tiles(layer: Layer, algorithm: str, tiles: Sequence[NumberTile]) -> list[Trial]:
    """In half precision, with those of the tiles that are legal."""
    plain = next(each for each in trials_of(layer, "portable", 1) if each.shared is None)
    candidates = (Candidate("portable", (("algorithm", algorithm), *tile.parameters)) for tile in tiles)
    legal = (each for each in candidates if PORTABLE.refuse(plain.step.problem, each, TARGET) is None)
    return [replace(plain, candidate=each) for each in legal]


def _algorithm(trial: Trial) -> object:
    return dict(trial.candidate.parameters)["algorithm"]
