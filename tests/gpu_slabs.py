"""Normalisations with their elements in shared memory, of one block and of clusters, of channels and of groups of them,
and means of many positions: slabs of several widths, images that fit in none, ragged parts, and what reads whole loads
and what does not."""

from __future__ import annotations

from dataclasses import replace

from families_harness import Input, Layer
from families_layers import RELU, norm, one, stage
from gpu_harness import Trial, trials_of
from gpu_products import TOLERANCE

from bolt_build.dtypes import DType
from bolt_build.families.base import Layout
from bolt_build.graph.ops.norm import Norm
from bolt_build.graph.ops.reduce import Reduce

INSTANCE = Norm("variance", (2, 3), 1e-5)
MEAN = Reduce("mean", (2, 3))
LAYERS = (
    norm("slab-2", INSTANCE, (2, 48, 19, 21), (48, 1, 1)),
    norm("slab-2-data", INSTANCE, (3, 24, 7, 7), (24, 1, 1), data=True),
    norm("slab-8", INSTANCE, (268, 64, 3, 5), (64, 1, 1)),
    norm("slab-1", INSTANCE, (1, 16, 67, 63), (16, 1, 1)),
    norm("slab-none", INSTANCE, (1, 8, 131, 113), (8, 1, 1)),
    norm("slab-narrow", INSTANCE, (2, 20, 9, 11), (20, 1, 1)),
    norm("slab-rms", Norm("rms", (2, 3), 1e-5), (2, 40, 13, 11), (40, 1, 1)),
    Layer("slab-chain", INSTANCE, (Input((2, 48, 9, 11)), Input((48, 1, 1), True), Input((48, 1, 1), True),
          Input((2, 48, 9, 11))), (stage("add", 3), RELU)),
    norm("slab-wide", INSTANCE, (140, 64, 31, 30), (64, 1, 1)),
    norm("slab-many", INSTANCE, (1300, 8, 3, 5), (8, 1, 1)),
    norm("slab-groups", Norm("variance", (1, 2, 3), 1e-5, 4), (3, 40, 23, 19), (40, 1, 1)),
    norm("slab-one-group", Norm("variance", (1, 2, 3), 1e-5), (2, 24, 17, 13), (24, 1, 1)),
    norm("slab-planes", INSTANCE, (2, 3, 40, 44), (3, 1, 1)),
    norm("slab-batch", Norm("variance", (0, 2, 3), 1e-5), (3, 16, 9, 13)),
    Layer("slab-groups-chain", Norm("variance", (1, 2, 3), 1e-5, 2), (Input((2, 48, 12, 11)), Input((48, 1, 1), True),
          Input((48, 1, 1), True), Input((2, 48, 12, 11)), Input((48, 1, 1), True)),
          (stage("add", 3), RELU, stage("mul", 4))),
    one("mean-7-of-many", MEAN, (66, 2048, 7, 7)),
    one("mean-28-of-many", MEAN, (36, 64, 28, 27)),
    one("mean-few", MEAN, (2, 96, 56, 55)),
    one("mean-odd-channels", MEAN, (3, 12, 14, 14)),
    one("max-7-of-many", Reduce("max", (2, 3)), (67, 2048, 7, 7)),
)  # fmt: skip


SMALLER = "t4"
"""A target whose blocks have less shared memory, and no clusters: its kernels run here too."""
OF_SMALLER = (norm("slab-chunks", INSTANCE, (1, 16, 67, 63), (16, 1, 1)),)
"""Slabs that no block of it has room for: all but a part is read twice."""
IN_BOTH_LAYOUTS = ("slab-groups", "slab-planes", "slab-groups-chain")


def slabs() -> list[Trial]:
    """In half precision, channels last; some row-major too."""
    found = []
    for layer in LAYERS:
        half = replace(layer, precision=DType.F16, tolerance=TOLERANCE)
        trials = trials_of(half, "portable")
        both = layer.label in IN_BOTH_LAYOUTS
        found += [each for each in trials if both or each.step.problem.inputs[0].format.layout is Layout.CHANNELS_LAST]
    for layer in OF_SMALLER:
        trials = trials_of(replace(layer, precision=DType.F16, tolerance=TOLERANCE), "portable")
        for each in trials:
            problem = replace(each.step.problem, target=SMALLER)
            if problem.inputs[0].format.layout is Layout.CHANNELS_LAST:
                found.append(replace(each, step=replace(each.step, problem=problem)))
    return found
