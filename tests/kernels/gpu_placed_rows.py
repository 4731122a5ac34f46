"""Places of the greatest elements of windows: strides, paddings, planes and volumes of odd extents, either order of
places, equal elements, and numbers that are all the least."""

from __future__ import annotations

from dataclasses import replace

from families_harness import Input, Layer
from gpu_harness import TARGET, Trial, trials_of
from gpu_pools import PORTABLE
from gpu_products import TOLERANCE

from bolt_build.dtypes import DType
from bolt_build.families.portable.form import candidate_of
from bolt_build.families.portable.kernels.images.placed_rows import PlacedRowsTile
from bolt_build.graph.ops.images.pool_places import PoolPlaces


def _layer(
    label: str, op: PoolPlaces, *shape: int, precision: DType = DType.F16, alike: bool = False, hidden: bool = False
) -> Layer:
    """Where `alike`, few different numbers, so that many are equal; where `hidden`, the first image is minus
    infinity, and half of the next one's rows."""
    low, high = (1.0, 1.004) if alike else (-2.0, 2.0)
    given = Input(shape, low=low, high=high, hidden=shape[-1] if hidden else 0)
    return Layer(f"placed-{label}", op, (given,), (), precision, TOLERANCE)


LAYERS = (
    (_layer("halves", PoolPlaces((2, 2), (2, 2), (0, 0), (0, 0), (1, 1)), 2, 3, 14, 22), (4, 2, 1)),
    (_layer("odd", PoolPlaces((2, 2), (2, 2), (0, 0), (0, 0), (1, 1), True), 2, 3, 13, 11, alike=True), (4, 1)),
    (_layer("stem", PoolPlaces((3, 3), (2, 2), (1, 1), (1, 1), (1, 1)), 2, 5, 17, 19, hidden=True), (4, 2)),
    (_layer("every", PoolPlaces((3, 3), (1, 1), (1, 1), (1, 1), (1, 1)), 1, 3, 9, 31, precision=DType.BF16), (4, 2)),
    (_layer("wide", PoolPlaces((5, 7), (2, 3), (2, 3), (2, 3), (1, 1)), 1, 2, 21, 40), (4, 1)),
    (_layer("high", PoolPlaces((3, 2), (2, 1), (1, 0), (1, 1), (2, 1), True), 2, 5, 9, 8, alike=True), (4, 2)),
    (_layer("turned", PoolPlaces((2, 3), (1, 1), (0, 1), (1, 0), (1, 1), column_major=True), 2, 5, 6, 7), (4, 1)),
    (_layer("volumes", PoolPlaces((2,) * 3, (2,) * 3, (0,) * 3, (0,) * 3, (1,) * 3), 2, 3, 5, 6, 9), (4, 2)),
    (_layer("overlapping", PoolPlaces((3,) * 3, (2,) * 3, (1,) * 3, (1,) * 3, (1,) * 3), 1, 3, 6, 7, 10), (2,)),
    (_layer("lines", PoolPlaces((3,), (2,), (1,), (1,), (1,)), 3, 5, 33), (4, 1)),
    (_layer("short", PoolPlaces((2, 2), (1, 1), (1, 1), (1, 1), (1, 1)), 1, 3, 1, 1), (2, 1)),
)  # fmt: skip


def placed_rows() -> list[Trial]:
    found = list[Trial]()
    for layer, each in LAYERS:
        for trial in trials_of(layer, "portable"):
            for tile in map(PlacedRowsTile, each):
                candidate = candidate_of("portable", "rows", tile)
                if (reason := PORTABLE.refuse(trial.step.problem, candidate, TARGET)) is not None:
                    raise ValueError(f"{layer.label}: {reason}")
                found.append(replace(trial, candidate=candidate))
    return list({trial.label: trial for trial in found}.values())
