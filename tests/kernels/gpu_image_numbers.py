"""Products whose results are combined with one number of each image and channel as they are stored: gates, and what
time embeddings add. Images within a tile and tiles within an image, odd extents, residuals, slices of the depth, rows
apart."""

from __future__ import annotations

from dataclasses import replace

from families_harness import Input, Layer
from families_layers import RELU, stage
from gpu_bands import pairs as band_pairs
from gpu_bands import together as bands_together
from gpu_bands import turns as bands
from gpu_forms import in_slices, pairs, single, together, turns, with_tiles
from gpu_harness import Trial
from gpu_products import GELU, SILU, conv, matmul

from bolt_build.families.cutlass.kinds.warps.warp import WarpTile
from bolt_build.graph.ir import EpilogueOp

GATE, ADDED = stage("mul", 3), stage("add", 3)
GATED_SUM = (GATE, stage("add", 4), RELU)
TILES = (
    turns(64, 64, 64), turns(128, 128, 64), turns(128, 32, 64, (2, 1)), turns(64, 16, 32), together(128, 64, 64),
    together(256, 64, 64), together(192, 96, 64), pairs(128, 64, 64), single(64, 96, 64),
)  # fmt: skip
SLICED = (turns(64, 64, 64), WarpTile(64, 64, 64, 32, 32, 5))


def gated(
    label: str, x: tuple[int, ...], filters: int, stages: tuple[EpilogueOp, ...] = GATED_SUM, kernel: int = 1
) -> Layer:
    """A convolution with numbers of images for its epilogue's first operand."""
    layer = conv(label, x, filters, (kernel, kernel), epilogue=stages)
    given = list(layer.inputs)
    given[3] = Input((x[0], filters, 1, 1))
    return replace(layer, inputs=tuple(given))


def of_rows(label: str, a: tuple[int, ...], columns: int, transposed: bool, stages: tuple[EpilogueOp, ...]) -> Layer:
    """The same of a matrix product."""
    layer = matmul(label, a, columns, transposed, stages)
    return replace(layer, inputs=(*layer.inputs, Input((a[0], 1, columns))))


def image_number_trials() -> list[Trial]:
    """In the order in which they run."""
    found = with_tiles(gated("image-7", (9, 136, 7, 7), 72), TILES)
    for layer, tiles in (
        (gated("image-13", (3, 96, 13, 11), 96), TILES),
        (gated("image-pixel", (5, 64, 1, 3), 64, (GATE,)), TILES[:1]),
        (gated("image-many", (4, 64, 31, 29), 520, (GATE, *SILU)), TILES[:5]),
        (gated("image-time", (2, 40, 9, 10), 72, (ADDED,), 3), TILES[:4]),
        (gated("image-band", (5, 72, 13, 11), 96, (ADDED, *SILU), 3), (bands(128, 96), bands_together(192, 96))),
        (gated("image-band-gate", (3, 64, 7, 9), 64, GATED_SUM, 3), (band_pairs(128, 64), bands(64, 64, cluster=2))),
        (gated("image-behind", (3, 72, 9, 9), 64, (*GELU, stage("sub", 3, True))), TILES[:2]),
        (of_rows("image-rows", (3, 50, 72), 104, False, (GATE, RELU)), TILES),
    ):
        found += with_tiles(layer, tiles)
    for layer in (
        gated("image-slices", (3, 1032, 7, 5), 72),
        of_rows("image-slices-odd", (3, 9, 1032), 51, True, (GATE,)),
    ):
        found += in_slices(layer, SLICED if layer.label == "image-slices" else SLICED[1:])
    apart = with_tiles(gated("rows-image", (3, 72, 9, 7), 72), TILES[:2])
    return found + [replace(t, pitch=t.step.problem.outputs[0].row + 8, between=16) for t in apart if t.shared is None]
