"""Normalisations whose statistics lie side by side, with their elements in shared memory, and means of many positions:
every width of a slab, images that fit in none, ragged parts, and what reads whole loads and what does not."""

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
    one("mean-7-of-many", MEAN, (66, 2048, 7, 7)),
    one("mean-28-of-many", MEAN, (36, 64, 28, 27)),
    one("mean-few", MEAN, (2, 96, 56, 55)),
    one("mean-odd-channels", MEAN, (3, 12, 14, 14)),
    one("max-7-of-many", Reduce("max", (2, 3)), (67, 2048, 7, 7)),
)  # fmt: skip


def slabs() -> list[Trial]:
    """In half precision, channels last."""
    found = []
    for layer in LAYERS:
        half = replace(layer, precision=DType.F16, tolerance=TOLERANCE)
        trials = trials_of(half, "portable")
        found += [each for each in trials if each.step.problem.inputs[0].format.layout is Layout.CHANNELS_LAST]
    return found
