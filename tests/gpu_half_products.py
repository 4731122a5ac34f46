"""Products of two tensors in half precision, as layers that are tried on a GPU: both factors in both orders, heads that
share a factor, ragged tiles, loads of one to eight elements, a constant factor on the left."""

from __future__ import annotations

from dataclasses import replace

from families_harness import Input, Layer
from families_layers import RELU, stage
from gpu_harness import TARGET, Trial, trials_of
from gpu_products import TOLERANCE

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate
from bolt_build.families.portable.family import Portable
from bolt_build.families.portable.kernels.half_products import HalfTile
from bolt_build.graph.ops.matmul import MatMul

PORTABLE = Portable()


def product(label: str, a: Input, b: Input, *more: Input, op: MatMul | None = None) -> Layer:
    stages = (stage("add", 2), RELU) if more else ()
    return Layer(f"half-{label}", op or MatMul(), (a, b, *more), stages, DType.F16, TOLERANCE)


LAYERS = (
    product("heads", Input((2, 3, 70, 48)), Input((2, 3, 48, 72))),
    product("heads-turned", Input((2, 3, 70, 48)), Input((2, 3, 72, 48)), op=MatMul(transpose_b=True)),
    product("channels", Input((2, 2, 200, 24)), Input((2, 2, 200, 40)), op=MatMul(transpose_a=True)),
    product("both-turned", Input((3, 100, 36)), Input((3, 52, 100)), op=MatMul(True, True)),
    product("shared", Input((2, 1, 33, 130)), Input((5, 130, 34)), Input((2, 5, 33, 34))),
    product("odd", Input((3, 37, 45)), Input((3, 45, 131))),
    product("constant", Input((40, 196), True), Input((4, 196, 136))),
    product("shallow", Input((2, 150, 8)), Input((2, 8, 150))),
)
TILES = {
    "half-heads": (HalfTile(64, 64), HalfTile(32, 128), HalfTile(128, 32)),
    "half-heads-turned": (HalfTile(64, 128), HalfTile(32, 32)),
    "half-channels": (HalfTile(32, 64), HalfTile(64, 32)),
    "half-both-turned": (HalfTile(32, 32), HalfTile(64, 64)),
    "half-shared": (HalfTile(64, 64),),
    "half-odd": (HalfTile(32, 64), HalfTile(64, 128)),
    "half-constant": (HalfTile(64, 128),),
    "half-shallow": (HalfTile(128, 128),),
}
"""Every size in every order."""


def half_products() -> list[Trial]:
    """In half precision, with these tiles and as prediction puts them."""
    found = []
    for layer in LAYERS:
        trials = trials_of(layer, "portable", 2)
        plain = next(each for each in trials if each.shared is None)
        for tile in TILES[layer.label]:
            candidate = Candidate("portable", (("algorithm", "tensor_cores"), *tile.parameters))
            assert PORTABLE.refuse(plain.step.problem, candidate, TARGET) is None
            trials.append(replace(plain, candidate=candidate))
        found += list({trial.label: trial for trial in trials}.values())
    return found
