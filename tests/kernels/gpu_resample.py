"""Images made larger and smaller by rows that slide, and by rows in shared memory: one axis and two, planes and
channels of every width, odd extents, tables as images have them and in any order, rows that lie apart."""

from __future__ import annotations

from dataclasses import replace

from families_harness import Input, Layer
from gpu_asked import asked
from gpu_harness import Trial, trials_of
from gpu_products import TOLERANCE

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, TensorFormat
from bolt_build.families.portable.form import candidate_of
from bolt_build.families.portable.kernels.images.banded_planes import BandedTile
from bolt_build.families.portable.kernels.images.half_planes import HalfPlanesTile
from bolt_build.families.portable.kernels.images.joined_planes import JoinedTile
from bolt_build.families.portable.kernels.images.resample import ResampleTile
from bolt_build.families.portable.kernels.images.staged_planes import StagedPlanesTile
from bolt_build.families.portable.kernels.images.streamed_planes import StreamedPlanesTile
from bolt_build.families.portable.kernels.moves.flat_rows import RowTile
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.images.resample import Resample

DIRECT = Candidate("portable", (("algorithm", "direct"),))


def resampled(
    label: str, shape: tuple[int, ...], *tables: tuple[int, int, int], precision: DType = DType.F16, even: bool = False
) -> Layer:
    """Of each table an axis, its results, and neighbours of each. Places are in no order, some of them outside; or
    `even`, as images have them: half of the neighbours of the first and of the last result are outside."""
    inputs = [Input(shape)]
    for axis, made, taps in tables:
        low, high = (-taps / 2, shape[axis] - taps / 2) if even else (-taps - 0.4, shape[axis] + 1.4)
        inputs.append(Input((made,), True, low, high, DType.I64, even=even))
        inputs.append(Input((made, taps), True, -1.0, 1.0))
    op = Resample(tuple(axis for axis, _, _ in tables))
    return Layer(f"resample-{label}", op, tuple(inputs), (), precision, TOLERANCE)


LAST, ROW = Layout.CHANNELS_LAST, Layout.ROW
CASES: tuple[tuple[Layer, Layout, tuple[tuple[int, int, int, int], ...]], ...] = (
    (resampled("linear", (2, 24, 9, 7), (2, 18, 2), (3, 14, 2)), LAST, ((8, 1, 1, 5), (4, 2, 2, 18))),
    (resampled("cubic", (1, 16, 6, 5), (2, 13, 4), (3, 11, 4)), LAST, ((8, 1, 1, 4), (2, 4, 4, 13))),
    (resampled("smaller", (2, 16, 20, 18), (2, 10, 2), (3, 9, 2)), LAST, ((8, 1, 2, 3),)),
    (resampled("antialias", (1, 8, 16, 14), (2, 8, 8), (3, 7, 4)), LAST, ((4, 1, 2, 8),)),
    (resampled("nearest", (2, 8, 5, 6), (2, 11, 1), (3, 12, 1)), LAST, ((8, 1, 1, 4), (4, 2, 1, 11))),
    (resampled("odd-channels", (2, 13, 5, 6), (2, 10, 2), (3, 13, 2)), LAST, ((1, 4, 1, 5),)),
    (resampled("planes", (2, 3, 9, 13), (2, 18, 2), (3, 27, 2)), ROW, ((1, 4, 1, 6), (1, 1, 2, 18))),
    (resampled("cubic-planes", (2, 3, 7, 9), (2, 15, 4), (3, 19, 4)), ROW, ((1, 2, 1, 15),)),
    (resampled("smaller-planes", (1, 3, 14, 23), (2, 7, 2), (3, 11, 2)), ROW, ((1, 2, 2, 4),)),
    (resampled("uneven", (1, 5, 8, 9), (2, 9, 3), (3, 5, 6)), ROW, ((1, 1, 3, 5),)),
    (resampled("rows", (2, 3, 9, 8), (2, 18, 2)), ROW, ((8, 1, 1, 9),)),
    (resampled("rows-of-channels", (2, 16, 9, 5), (2, 18, 2)), LAST, ((8, 1, 2, 9),)),
    (resampled("lines", (2, 5, 30), (2, 61, 2)), ROW, ((1, 4, 1, 5),)),
    (resampled("lines-of-channels", (3, 8, 10), (2, 21, 4)), LAST, ((8, 1, 1, 2),)),
    (resampled("depths", (1, 8, 4, 5, 6), (2, 8, 2), (3, 9, 2)), LAST, ((8, 1, 1, 4),)),
    (resampled("in-fp32", (1, 12, 5, 6), (2, 10, 2), (3, 13, 4), precision=DType.F32), LAST, ((4, 2, 1, 5),)),
)


STAGED: tuple[tuple[Layer, tuple[tuple[int, int, int, int], ...]], ...] = (
    (resampled("linear-planes", (3, 5, 9, 13), (2, 18, 2), (3, 26, 2), even=True), ((1, 1, 4, 5), (4, 4, 2, 9))),
    (resampled("cubic-planes", (2, 3, 17, 23), (2, 35, 4), (3, 47, 4), even=True), ((2, 1, 2, 8), (1, 2, 2, 18))),
    (resampled("nearest-planes", (2, 5, 7, 9), (2, 21, 1), (3, 31, 1), even=True), ((3, 8, 8, 3),)),
    (resampled("smaller-planes", (1, 3, 34, 71), (2, 17, 2), (3, 35, 2), even=True), ((1, 1, 2, 4),)),
    (resampled("antialias-planes", (1, 3, 33, 40), (2, 9, 8), (3, 10, 8), even=True), ((1, 4, 3, 3),)),
    (resampled("uneven-planes", (1, 5, 8, 9), (2, 9, 3), (3, 5, 6), even=True), ((1, 8, 3, 3),)),
    (resampled("planes-in-no-order", (2, 3, 9, 13), (2, 18, 2), (3, 27, 2)), ((1, 1, 2, 9),)),
    (resampled("rows-alone", (2, 3, 9, 35), (2, 18, 2), even=True), ((1, 1, 2, 5),)),
    (resampled("lines-alone", (2, 55, 30), (2, 61, 2), even=True), ((2, 1, 4, 7),)),
    (resampled("depths-of-planes", (1, 3, 4, 5, 7), (2, 8, 2), (3, 9, 2), even=True), ((2, 1, 4, 2),)),
    (
        resampled("planes-in-fp32", (1, 12, 5, 7), (2, 10, 2), (3, 13, 4), precision=DType.F32, even=True),
        ((2, 4, 2, 5),),
    ),
)
"""Of planes in shared memory: pixels, planes, strips and results below each other."""
STREAMED: tuple[tuple[Layer, tuple[tuple[int, int, int, int, int, int], ...]], ...] = (
    (
        resampled("linear-planes", (3, 5, 9, 13), (2, 18, 2), (3, 26, 2), even=True),
        ((2, 1, 4, 3, 2, 7), (4, 4, 2, 9, 2, 3)),
    ),
    (
        resampled("cubic-planes", (2, 3, 17, 23), (2, 35, 4), (3, 48, 4), even=True),
        ((4, 1, 2, 8, 4, 2), (2, 1, 2, 4, 1, 5), (2, 1, 2, 18, 2, 6)),
    ),
    (resampled("nearest-planes", (2, 5, 7, 9), (2, 21, 1), (3, 31, 1), even=True), ((4, 8, 8, 3, 1, 1),)),
    (resampled("smaller-planes", (1, 3, 34, 71), (2, 17, 2), (3, 35, 2), even=True), ((1, 1, 2, 4, 1, 3),)),
    (resampled("planes-in-no-order", (2, 3, 9, 13), (2, 18, 2), (3, 28, 2)), ((2, 1, 2, 5, 2, 4),)),
    (
        resampled("every-second", (2, 3, 23, 34), (2, 11, 1), (3, 17, 1), even=True),
        ((1, 1, 2, 3, 1, 3), (2, 1, 4, 1, 1, 4)),
    ),
    (resampled("every-fifth", (2, 3, 41, 51), (2, 8, 2), (3, 20, 2)), ((2, 1, 4, 2, 2, 2), (4, 1, 2, 3, 4, 5))),
    (resampled("rows-alone", (2, 3, 9, 36), (2, 18, 2), even=True), ((4, 1, 2, 5, 4, 2),)),
    (
        resampled("planes-in-fp32", (1, 12, 5, 7), (2, 10, 2), (3, 13, 4), precision=DType.F32, even=True),
        ((2, 4, 2, 5, 1, 2),),
    ),
)
"""The same by blocks that take parts one after the other: pixels stored at once, and parts, too."""
NEAREST: tuple[tuple[Layer, tuple[tuple[int, int], ...]], ...] = (
    (resampled("every-second", (2, 3, 23, 34), (2, 11, 1), (3, 17, 1), even=True), ((4, 2), (2, 4), (8, 1))),
    (resampled("nearest-planes", (2, 5, 7, 9), (2, 21, 1), (3, 31, 1), even=True), ((8, 2), (1, 8))),
    (resampled("nearest-rows", (2, 3, 9, 35), (2, 18, 1)), ((4, 1),)),
    (resampled("nearest-columns", (2, 3, 9, 35), (3, 17, 1), precision=DType.F32), ((4, 2),)),
    (resampled("nearest-depths", (1, 3, 4, 5, 7), (2, 8, 1), (3, 9, 1), precision=DType.BF16), ((2, 2),)),
)
"""Of planes whose results have one neighbour along an axis: pixels of an access, and accesses of a thread."""
NEAREST_LAST: tuple[tuple[Layer, tuple[tuple[int, int], ...]], ...] = (
    (resampled("nearest-colours", (2, 3, 7, 9), (2, 21, 1), (3, 31, 1), even=True), ((8, 2), (2, 4))),
    (resampled("nearest-channels", (2, 13, 7, 6), (2, 10, 1), (3, 14, 1)), ((4, 2),)),
)
"""The same of odd channels, which may lie apart."""
_COLOURS = resampled("colours", (2, 3, 17, 23), (2, 35, 4), (3, 48, 4), even=True)
_ROWS_ALONE = resampled("few-channels", (3, 10, 9, 7), (2, 14, 2), even=True)
_FEWER = resampled("fewer-colours", (2, 3, 34, 71), (2, 17, 2), (3, 35, 2), even=True)


BANDS: tuple[tuple[Layer, tuple[tuple[int, int, int, int, int], ...]], ...] = (
    (resampled("linear-planes", (3, 5, 9, 13), (2, 18, 2), (3, 26, 2), even=True), ((4, 3, 2, 1, 2), (1, 1, 4, 2, 7))),
    (
        resampled("cubic-planes", (2, 3, 17, 23), (2, 35, 4), (3, 47, 4), even=True),
        ((1, 5, 4, 1, 2), (2, 5, 2, 2, 1), (1, 2, 4, 2, 5)),
    ),
    (resampled("nearest-planes", (2, 5, 7, 9), (2, 21, 1), (3, 31, 1), even=True), ((8, 3, 8, 1, 1),)),
    (
        resampled("smaller-planes", (1, 3, 34, 71), (2, 17, 2), (3, 35, 2), even=True),
        ((1, 1, 4, 1, 3), (1, 3, 2, 2, 1)),
    ),
    (
        resampled("antialias-planes", (1, 3, 33, 40), (2, 9, 8), (3, 10, 8), even=True),
        ((1, 1, 2, 1, 2), (2, 2, 16, 2, 1)),
    ),
    (resampled("planes-far-apart", (1, 3, 40, 70), (2, 30, 2), (3, 40, 2)), ((1, 2, 2, 1, 2),)),
    (resampled("whole-rows", (2, 3, 20, 32), (2, 41, 2), (3, 64, 2), even=True), ((1, 2, 4, 1, 4), (2, 6, 4, 2, 2))),
    (resampled("rows-apart", (2, 3, 12, 33), (2, 23, 2), (3, 65, 2), even=True), ((1, 2, 4, 1, 4), (2, 3, 4, 2, 2))),
    (
        resampled("planes-in-bf16", (1, 12, 5, 8), (2, 10, 2), (3, 13, 4), precision=DType.BF16, even=True),
        ((4, 2, 2, 1, 2),),
    ),
)
"""The same on tensor cores: planes, tiles of rows and warps of a block, tiles of columns of a warp, and parts."""
BANDED: tuple[tuple[Layer, tuple[tuple[int, int, int, int], ...]], ...] = (
    (resampled("linear-planes", (3, 5, 9, 13), (2, 18, 2), (3, 26, 2), even=True), ((4, 1, 3, 6), (8, 2, 2, 15))),
    (
        resampled("cubic-planes", (2, 3, 17, 23), (2, 35, 4), (3, 47, 4), even=True),
        ((4, 2, 5, 6), (8, 1, 2, 4), (4, 1, 1, 1)),
    ),
    (resampled("smaller-planes", (1, 3, 34, 71), (2, 17, 2), (3, 35, 2), even=True), ((4, 1, 3, 2), (8, 2, 1, 3))),
    (resampled("averaged-planes", (1, 5, 33, 40), (2, 17, 8), (3, 20, 8), even=True), ((4, 1, 3, 2), (4, 2, 1, 5))),
    (resampled("planes-far-apart", (1, 3, 40, 70), (2, 30, 2), (3, 40, 2)), ((4, 2, 2, 3),)),
    (resampled("whole-rows", (2, 3, 20, 32), (2, 41, 2), (3, 64, 2), even=True), ((4, 2, 6, 4), (8, 1, 3, 6))),
    (resampled("rows-apart", (2, 3, 12, 33), (2, 23, 2), (3, 66, 2), even=True), ((4, 2, 3, 4),)),
    (resampled("positions", (3, 7, 14, 14), (2, 16, 4), (3, 16, 4), even=True), ((4, 1, 2, 5), (8, 1, 1, 21))),
    (
        resampled("planes-in-bf16", (1, 12, 5, 8), (2, 10, 2), (3, 13, 4), precision=DType.BF16, even=True),
        ((4, 1, 2, 7),),
    ),
)
"""The same by warps themselves: those of a block, their tiles of columns, tiles of rows, and planes side by side."""


JOINED: tuple[tuple[Layer, Layout, tuple[tuple[int, int, int, int, int, int, int, int], ...]], ...] = (
    (
        resampled("antialias-planes", (1, 3, 33, 40), (2, 9, 8), (3, 10, 8), even=True), ROW,
        ((1, 4, 1, 2, 5, 2, 128, 1), (2, 9, 1, 1, 10, 1, 128, 1)),
    ),
    (
        resampled("cubic-planes", (2, 3, 17, 23), (2, 35, 4), (3, 47, 4), even=True), ROW,
        ((1, 8, 1, 1, 47, 2, 128, 2), (1, 8, 1, 1, 24, 1, 128, 1)),
    ),
    (
        resampled("planes-in-no-order", (2, 3, 9, 13), (2, 18, 2), (3, 28, 2)), ROW,
        ((1, 6, 1, 4, 7, 2, 128, 2), (1, 6, 1, 1, 8, 1, 128, 1)),
    ),
    (resampled("lines-alone", (2, 55, 30), (2, 61, 2), even=True), ROW, ((1, 16, 1, 1, 61, 1, 128, 1),)),
    (
        resampled("depths-of-planes", (1, 3, 4, 5, 7), (2, 8, 2), (3, 9, 2), even=True), ROW,
        ((1, 8, 1, 1, 63, 2, 128, 1),),
    ),
    (
        resampled("odd-pixels", (2, 13, 5, 6), (2, 10, 2), (3, 13, 2), even=True), LAST,
        ((1, 5, 1, 1, 169, 1, 256, 1), (1, 5, 1, 1, 40, 1, 128, 1)),
    ),
    (resampled("one-channel", (2, 1, 22, 6), (2, 31, 3), (3, 14, 3), even=True), LAST, ((1, 31, 1, 1, 14, 2, 128, 1),)),
    (
        resampled("smaller-in-fp32", (1, 3, 20, 22), (2, 9, 3), (3, 12, 4), precision=DType.F32, even=True), ROW,
        ((1, 3, 1, 2, 6, 1, 128, 1),),
    ),
)  # fmt: skip
"""Whose rows are joined first: whole rows and parts of them, planes and odd channels."""


def staged_resample_trials() -> list[Trial]:
    found = []
    staged = [(layer, "staged", StagedPlanesTile, tiles) for layer, tiles in STAGED]
    streamed = [(layer, "streamed", StreamedPlanesTile, tiles) for layer, tiles in STREAMED]
    nearest = [(layer, "flat_rows", RowTile, tiles) for layer, tiles in NEAREST]
    bands = [(layer, "tensor_cores", HalfPlanesTile, tiles) for layer, tiles in BANDS]
    banded = [(layer, "banded", BandedTile, tiles) for layer, tiles in BANDED]
    planes = [
        (layer, algorithm, kind, ROW, tiles)
        for layer, algorithm, kind, tiles in (*staged, *streamed, *nearest, *bands, *banded)
    ]
    joined = [(layer, "joined", JoinedTile, layout, tiles) for layer, layout, tiles in JOINED]
    last: list[tuple[Layer, str, type, Layout, tuple[tuple[int, ...], ...]]] = [
        *((layer, "flat_rows", RowTile, LAST, tiles) for layer, tiles in NEAREST_LAST),
        (_COLOURS, "staged", StagedPlanesTile, LAST, ((4, 1, 2, 8),)),
        (_COLOURS, "streamed", StreamedPlanesTile, LAST, ((4, 1, 1, 8, 4, 2), (2, 1, 2, 18, 1, 2))),
        (_FEWER, "streamed", StreamedPlanesTile, LAST, ((1, 1, 2, 4, 1, 3),)),
        (_ROWS_ALONE, "staged", StagedPlanesTile, LAST, ((2, 1, 4, 4),)),
        (_ROWS_ALONE, "streamed", StreamedPlanesTile, LAST, ((2, 1, 4, 2, 2, 1),)),
    ]
    for layer, algorithm, kind, layout, tiles in (*planes, *joined, *last):
        if not asked([layer]):
            continue
        offered = trials_of(layer, "portable")
        plain = next(each for each in offered if each.step.problem.outputs[0].format.layout is layout)
        cut = (kind(*tile) for tile in tiles)
        found += [replace(plain, candidate=candidate_of("portable", algorithm, tile)) for tile in cut]
    names = ("resample-nearest-channels-", "resample-few-channels-", "resample-one-channel-")
    apart = [each for each in found if each.label.startswith(names)]
    return found + [replace(each, pitch=18, between=8) for each in apart] + _wider_trials()


def _wider_trials() -> list[Trial]:
    """Planes of half precision that become fp32, as models have their outputs."""
    layer = STREAMED[0][0]
    if not asked([layer]):
        return []
    wide = next(
        each for each in trials_of(layer, "portable")
        if each.step.problem.outputs[0].format == TensorFormat(DType.F32, ROW)
    )  # fmt: skip
    staged, streamed = StagedPlanesTile(*STAGED[0][1][0]), StreamedPlanesTile(*STREAMED[0][1][1])
    chosen = (DIRECT, candidate_of("portable", "staged", staged), candidate_of("portable", "streamed", streamed))
    return [replace(wide, candidate=candidate) for candidate in chosen]


def resample_trials() -> list[Trial]:
    found = []
    for layer, layout, tiles in CASES:
        if not asked([layer]) and found:  # the first is read with its rows apart
            continue
        offered = trials_of(layer, "portable")
        plain = next(each for each in offered if each.step.problem.outputs[0].format.layout is layout)
        cut = (ResampleTile(*tile) for tile in tiles)
        found += [replace(plain, candidate=candidate_of("portable", "sliding", tile)) for tile in cut]
        found.append(replace(plain, candidate=DIRECT))
    apart = found[0]
    assert apart.step.pitched == apart.step.reads_apart == (0,)
    return [*found, replace(apart, pitch=40, between=8), *staged_resample_trials()]
