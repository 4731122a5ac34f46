"""Poolings along columns and then along rows: windows of up to thirteen cells, every stride and padding, planes
whole and in strips, runs of a row and a column in several parts, and planes that begin inside of a word."""

from __future__ import annotations

from dataclasses import replace

from families_harness import Layer
from gpu_harness import TARGET, Trial, trials_of
from gpu_pools import PORTABLE, pooled, windows

from bolt_build.dtypes import DType
from bolt_build.families.base import Layout
from bolt_build.families.portable.form import candidate_of
from bolt_build.families.portable.kernels.images.pool_separated import SeparatedTile
from bolt_build.graph.ops.images.lp_pool import LpPool
from bolt_build.graph.ops.images.pool import Pool

LAYERS: tuple[tuple[Layer, tuple[tuple[int, ...], ...]], ...] = (
    (pooled("apart-max-5", windows("max", 5, 1, 2), 2, 5, 20, 19), ((3, 20, 20, 19), (1, 8, 4, 10), (4, 20, 7, 7))),
    (pooled("apart-max-13", windows("max", 13, 1, 6), 1, 7, 13, 13), ((2, 13, 13, 13), (8, 13, 5, 7))),
    (pooled("apart-average", windows("average", 5, 1, 2), 2, 3, 17, 23), ((2, 17, 9, 12), (1, 5, 3, 8))),
    (pooled("apart-average-11", windows("average", 11, 1, 5, padded=True), 1, 2, 33, 37),
     ((1, 33, 17, 19), (1, 16, 16, 13))),
    (pooled("apart-stem", windows("max", 5, 2, 2), 1, 3, 29, 31), ((2, 15, 8, 16), (1, 4, 4, 6))),
    (pooled("apart-ceil", windows("average", 5, 2, 0, ceil_mode=True), 1, 4, 14, 16), ((4, 6, 6, 7), (1, 3, 2, 4))),
    (pooled("apart-far", windows("average", 5, 3, 0), 2, 3, 17, 17), ((5, 5, 5, 5), (1, 2, 2, 3))),
    (pooled("apart-uneven", Pool("average", (5, 2), (3, 1), (2, 0), (1, 1), (1, 1)), 1, 3, 19, 22),
     ((3, 7, 4, 11), (1, 4, 2, 22))),
    (pooled("apart-norm", LpPool(3, (7, 7), (7, 7), (0, 0), (0, 0), (1, 1)), 1, 5, 28, 28), ((2, 4, 4, 4),)),
    (pooled("apart-flat", Pool("max", (1, 5, 5), (1, 1, 1), (0, 2, 2), (0, 2, 2), (1, 1, 1)), 1, 2, 3, 7, 9),
     ((4, 7, 7, 9),)),
    (pooled("apart-last-max-5", windows("max", 5, 1, 2), 2, 48, 9, 11), ((1, 9, 9, 11, 16), (1, 4, 4, 6, 24))),
    (pooled("apart-last-max-9", windows("max", 9, 1, 4), 2, 40, 13, 13), ((1, 13, 13, 13, 8), (1, 13, 5, 7, 40))),
    (pooled("apart-last-average", windows("average", 5, 2, 2, ceil_mode=True), 1, 24, 15, 12),
     ((1, 8, 4, 7, 8), (1, 3, 3, 4, 24))),
    (pooled("apart-last-one", windows("max", 5, 1, 2), 2, 1, 9, 11), ((2, 9, 9, 6, 1),)),
)  # fmt: skip


def separated_pools() -> list[Trial]:
    """In half precision, and the first tile of each in fp32."""
    found = list[Trial]()
    for layer, tiles in LAYERS:
        single = replace(layer, precision=DType.F32, tolerance=2e-6)
        for of, cut in ((layer, tiles), (single, tiles[:1])):
            for trial in trials_of(of, "portable"):
                last = trial.step.problem.outputs[0].format.layout is Layout.CHANNELS_LAST
                if last != (len(cut[0]) > 4):
                    continue
                for tile in cut:
                    candidate = candidate_of("portable", "separated", SeparatedTile(*tile, *(1,) * (5 - len(tile))))
                    if (reason := PORTABLE.refuse(trial.step.problem, candidate, TARGET)) is not None:
                        raise ValueError(f"{layer.label}: {reason}")
                    found.append(replace(trial, candidate=candidate))
    # Pixels of a tensor that is a part of another one lie further apart.
    for trial in [trial for trial in found if trial.step.pitched]:
        row = trial.step.problem.outputs[0].row
        found.append(replace(trial, pitch=row // 8 * 8 + 8, between=24 - row % 8))
    return list({trial.label: trial for trial in found}.values())
