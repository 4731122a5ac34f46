"""Patches that are put back and added up: strides, dilations and paddings, lines, images and volumes, rows of results
in whole accesses and others."""

from __future__ import annotations

from dataclasses import replace

from families_harness import Input, Layer
from gpu_asked import asked
from gpu_harness import Trial, trials_of
from gpu_products import TOLERANCE

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate
from bolt_build.families.portable.form import candidate_of
from bolt_build.families.portable.kernels.images.patch_sum import PatchRowsTile
from bolt_build.graph.ops.images.patch_sum import PatchSum


def _layer(
    label: str, batch: int, channels: int, image: tuple[int, ...], block: int, stride: int, gap: int, pad: int
) -> Layer:
    """Patches of as many cells along each axis."""
    rank = len(image)
    counts = tuple((extent + 2 * pad - gap * (block - 1) - 1) // stride + 1 for extent in image)
    op = PatchSum(image, (block,) * rank, (stride,) * rank, (gap,) * rank, (pad,) * rank, counts)
    places = 1
    for count in counts:
        places *= count
    return Layer(f"patches-{label}", op, (Input((batch, channels * block**rank, places)),), (), DType.F16, TOLERANCE)


LAYERS = (
    _layer("every", 2, 3, (11, 13), 3, 1, 1, 1),
    _layer("even", 1, 3, (9, 16), 3, 1, 1, 1),
    _layer("halves", 2, 2, (14, 24), 3, 2, 1, 1),
    _layer("far", 1, 2, (17, 19), 5, 3, 1, 2),
    _layer("gaps", 1, 3, (12, 21), 3, 2, 2, 2),
    _layer("beside", 1, 2, (9, 33), 2, 3, 1, 0),
    _layer("lines", 2, 3, (37,), 7, 4, 1, 3),
    _layer("volumes", 1, 2, (4, 5, 9), 2, 1, 1, 0),
)


def patch_sums() -> list[Trial]:
    """The plain kernel and that of runs of rows, the first layer in fp32 too."""
    found = list[Trial]()
    for layer in asked((*LAYERS, replace(LAYERS[0], precision=DType.F32, tolerance=2e-6))):
        for trial in trials_of(layer, "portable"):
            found.append(replace(trial, candidate=Candidate("portable", (("algorithm", "direct"),))))
            found.append(replace(trial, candidate=candidate_of("portable", "rows", PatchRowsTile(8))))
    return list({trial.label: trial for trial in found}.values())
