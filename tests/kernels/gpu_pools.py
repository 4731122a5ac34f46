"""Poolings whose windows slide: every stride, dilation and padding, counts at edges, odd extents and channels, both
layouts, rows that lie apart, and what follows in the same kernel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from families_harness import Input, Layer
from families_layers import RELU, stage
from gpu_asked import asked
from gpu_harness import TARGET, Trial, trials_of
from gpu_products import TOLERANCE

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, Layout
from bolt_build.families.portable.family import Portable
from bolt_build.families.portable.form import candidate_of
from bolt_build.families.portable.kernels.images.joined_planes import JoinedTile
from bolt_build.families.portable.kernels.images.pool_sliding import SlidingTile
from bolt_build.families.portable.kernels.images.staged_planes import StagedPlanesTile
from bolt_build.families.portable.kernels.images.streamed_planes import StreamedPlanesTile
from bolt_build.graph.ir import EpilogueOp, Op
from bolt_build.graph.ops.images.lp_pool import LpPool
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.graph.ops.lines.lines import CumProd, CumSum, Places
from bolt_build.graph.ops.lines.reduce import Reduce

PORTABLE = Portable()
DIRECT = Candidate("portable", (("algorithm", "direct"),))


def windows(
    mode: str, cells: int, stride: int, pad: int, dilation: int = 1, *, ceil_mode: bool = False, padded: bool = False
) -> Pool:
    """Square windows."""
    pads = (pad,) * 2
    return Pool(mode, (cells,) * 2, (stride,) * 2, pads, pads, (dilation,) * 2, ceil_mode, padded)


def pooled(
    label: str, op: Op, *shape: int, epilogue: tuple[EpilogueOp, ...] = (), operands: tuple[Input, ...] = ()
) -> Layer:
    return Layer(f"slide-{label}", op, (Input(shape), *operands), epilogue, DType.F16, TOLERANCE)


TILES: dict[str, tuple[Layer, tuple[SlidingTile, ...]]] = {
    layer.label: (layer, tuple(SlidingTile(*each) for each in tiles))
    for layer, tiles in (
        (pooled("average", windows("average", 3, 1, 1), 2, 24, 13, 11),
         ((8, 1, 2, 3, 13, 3), (8, 2, 1, 3, 5, 2), (4, 4, 2, 2, 1, 6))),
        (pooled("average-padded", windows("average", 3, 1, 1, padded=True), 1, 16, 9, 17),
         ((8, 4, 1, 2, 4, 2), (4, 8, 1, 1, 3, 1))),
        (pooled("max", windows("max", 3, 1, 1), 3, 40, 7, 10),
         ((8, 2, 1, 3, 3, 4), (8, 4, 2, 2, 7, 5), (2, 8, 1, 2, 2, 20))),
        (pooled("max-stem", windows("max", 3, 2, 1), 2, 64, 18, 23),
         ((8, 1, 2, 3, 9, 8), (8, 2, 1, 3, 2, 4), (8, 4, 2, 2, 4, 8))),
        (pooled("max-stem-ceil", windows("max", 3, 2, 0, ceil_mode=True), 1, 24, 16, 20),
         ((8, 2, 1, 3, 3, 3), (8, 4, 2, 2, 8, 2))),
        (pooled("average-ceil", windows("average", 3, 2, 1, ceil_mode=True), 2, 8, 12, 15),
         ((8, 2, 1, 3, 3, 1), (1, 2, 2, 3, 7, 8))),
        (pooled("average-ceil-padded", windows("average", 3, 2, 1, ceil_mode=True, padded=True), 1, 16, 12, 9),
         ((8, 2, 1, 3, 3, 2), (4, 8, 1, 1, 2, 1))),
        (pooled("max-5", windows("max", 5, 1, 2), 1, 32, 20, 19),
         ((8, 2, 1, 3, 20, 4), (8, 4, 2, 2, 3, 3), (4, 8, 1, 2, 4, 8))),
        (pooled("max-9", windows("max", 9, 1, 4), 1, 16, 13, 12), ((8, 1, 1, 3, 6, 2), (4, 2, 1, 3, 13, 4))),
        (pooled("max-13", windows("max", 13, 1, 6), 1, 16, 20, 13), ((4, 2, 1, 3, 7, 4), (8, 1, 1, 2, 20, 2))),
        (pooled("average-2", windows("average", 2, 2, 0), 2, 24, 14, 15),
         ((8, 4, 2, 2, 7, 3), (8, 1, 1, 3, 2, 1), (4, 8, 2, 1, 3, 3))),
        (pooled("max-dilated", windows("max", 3, 1, 2, 2), 1, 16, 11, 12), ((8, 2, 1, 3, 5, 2), (8, 4, 2, 2, 11, 1))),
        (pooled("max-far", windows("max", 2, 3, 1), 2, 16, 17, 19), ((8, 2, 1, 3, 3, 2), (8, 1, 2, 3, 6, 1))),
        (pooled("max-points", windows("max", 1, 2, 0), 2, 16, 9, 8), ((8, 2, 1, 3, 2, 2),)),
        (pooled("max-uneven", Pool("max", (2, 3), (1, 2), (1, 0), (0, 2), (3, 2)), 1, 16, 11, 12),
         ((8, 2, 2, 3, 4, 2), (8, 4, 1, 2, 2, 1))),
        (pooled("average-uneven", Pool("average", (4, 2), (3, 1), (2, 0), (1, 1), (2, 3)), 2, 8, 19, 14),
         ((8, 2, 2, 3, 3, 1), (4, 4, 1, 2, 2, 2))),
        (pooled("odd-channels", windows("average", 3, 1, 1), 2, 13, 9, 8), ((1, 2, 2, 3, 4, 13), (1, 4, 1, 2, 9, 5))),
        (pooled("ten-channels", windows("max", 3, 2, 1), 2, 10, 9, 8), ((2, 2, 2, 3, 4, 5), (1, 1, 1, 3, 2, 10))),
        (pooled("many-channels", windows("max", 3, 1, 1), 1, 296, 5, 6), ((8, 2, 2, 3, 5, 16), (8, 1, 1, 3, 2, 37))),
        (pooled("1d", Pool("max", (3,), (2,), (1,), (1,), (1,)), 2, 16, 31), ((8, 2, 2, 3, 1, 2), (8, 8, 1, 2, 1, 1))),
        (pooled("flat-3d", Pool("average", (1, 3, 3), (1, 1, 1), (0, 1, 1), (0, 1, 1), (1, 1, 1)), 2, 8, 3, 7, 6),
         ((8, 2, 2, 3, 3, 1), (4, 4, 1, 2, 7, 2))),
        (pooled("norm-2", LpPool(2, (3, 2), (2, 1), (1, 0), (1, 1), (1, 2)), 2, 16, 9, 8), ((8, 2, 2, 3, 3, 2),)),
        (pooled("norm-1-ceil", LpPool(1, (3, 3), (2, 2), (0, 0), (0, 0), (1, 1), True), 2, 32, 8, 8),
         ((8, 4, 1, 2, 2, 4),)),
        (pooled("chain", windows("max", 3, 1, 1), 2, 24, 9, 7, epilogue=(stage("add", 1), RELU, stage("mul", 2)),
                operands=(Input((24, 1, 1), True), Input((2, 24, 9, 7)))), ((8, 2, 2, 3, 4, 3), (8, 4, 1, 2, 9, 1))),
        (pooled("average-chain", windows("average", 3, 1, 1), 2, 8, 9, 7, epilogue=(stage("sub", 1), stage("mul", 2)),
                operands=(Input((2, 8, 9, 7)), Input((8, 1, 1), True))), ((8, 2, 1, 3, 4, 1), (2, 4, 2, 2, 9, 2))),
    )
}  # fmt: skip
"""Of each layer kernels that prediction would not put first, with several of all that they state."""
IN_ROWS = (SlidingTile(1, 2, 1, 5, 3, 1), SlidingTile(1, 4, 2, 6, 1, 1), SlidingTile(1, 8, 1, 2, 2, 1))
"""Kernels for images in planes."""
FAR = (SlidingTile(1, 4, 1, 2, 3, 1, True), SlidingTile(1, 2, 2, 6, 2, 1, True), SlidingTile(1, 8, 1, 1, 2, 1, True))
"""The same whose windows lie apart, where these have no more columns than they may."""
APART = ("slide-average", "slide-max-stem", "slide-ten-channels")


STAGED: tuple[tuple[Layer, tuple[StagedPlanesTile, ...]], ...] = tuple(
    (layer, tuple(StagedPlanesTile(*each) for each in tiles))
    for layer, tiles in (
        (pooled("planes-max", windows("max", 3, 2, 1), 2, 5, 33, 35), ((1, 1, 4, 3), (2, 4, 2, 9))),
        (pooled("planes-max-every", windows("max", 5, 1, 2), 1, 3, 21, 70), ((2, 1, 2, 5), (3, 2, 3, 7))),
        (pooled("planes-average", windows("average", 3, 1, 1), 2, 3, 17, 39), ((2, 1, 3, 6), (4, 8, 2, 9))),
        (pooled("planes-average-ceil-padded", windows("average", 3, 2, 1, ceil_mode=True, padded=True), 1, 7, 16, 30),
         ((1, 4, 3, 3),)),
        (pooled("planes-max-dilated", windows("max", 3, 1, 2, 2), 1, 5, 15, 19), ((2, 4, 2, 8),)),
        (pooled("planes-uneven", Pool("average", (4, 2), (3, 1), (2, 0), (1, 1), (2, 3)), 2, 3, 19, 47),
         ((1, 1, 2, 3),)),
        (pooled("planes-norm", LpPool(2, (3, 2), (2, 1), (1, 0), (1, 1), (1, 2)), 1, 5, 19, 38), ((2, 1, 2, 5),)),
        (pooled("signals", Pool("average", (3,), (2,), (1,), (1,), (1,)), 3, 11, 301), ((2, 1, 1, 4), (1, 1, 2, 7))),
        (pooled("flat-planes", Pool("max", (1, 3, 3), (1, 1, 1), (0, 1, 1), (0, 1, 1), (1, 1, 1)), 1, 2, 3, 7, 9),
         ((1, 8, 2, 4),)),
    )
)  # fmt: skip
"""Of planes in shared memory."""
STREAMED: tuple[tuple[Layer, tuple[StreamedPlanesTile, ...]], ...] = tuple(
    (layer, tuple(StreamedPlanesTile(*each) for each in tiles))
    for layer, tiles in (
        (pooled("planes-max-even", windows("max", 3, 2, 1), 2, 5, 33, 40), ((2, 1, 4, 2, 2, 3), (4, 4, 2, 9, 2, 2))),
        (pooled("planes-average", windows("average", 3, 1, 1), 2, 3, 17, 39), ((2, 1, 3, 3, 1, 4),)),
        (pooled("planes-norm", LpPool(2, (3, 2), (2, 1), (1, 0), (1, 1), (1, 2)), 1, 5, 19, 37), ((2, 1, 2, 3, 1, 3),)),
        (pooled("planes-far", windows("average", 2, 5, 1), 2, 3, 29, 47), ((2, 1, 2, 2, 2, 3), (1, 1, 2, 3, 1, 2))),
        (pooled("signals", Pool("average", (3,), (2,), (1,), (1,), (1,)), 3, 11, 304), ((2, 1, 1, 4, 2, 9),)),
    )
)
"""Of blocks that take parts one after the other."""
JOINED: tuple[tuple[Layer, tuple[JoinedTile, ...]], ...] = tuple(
    (layer, tuple(JoinedTile(*each) for each in tiles))
    for layer, tiles in (
        (pooled("planes-max", windows("max", 3, 2, 1), 2, 5, 33, 35),
         ((1, 6, 2, 2, 9, 2, 128, 2), (2, 17, 4, 1, 18, 2, 256, 1))),
        (pooled("planes-means", windows("average", 8, 8, 0), 2, 3, 32, 64),
         ((1, 4, 1, 1, 8, 2, 128, 1), (2, 4, 1, 2, 4, 1, 128, 1))),
        (pooled("planes-average-ceil-padded", windows("average", 3, 2, 1, ceil_mode=True, padded=True), 1, 7, 16, 30),
         ((1, 3, 4, 2, 8, 2, 128, 1),)),
        (pooled("planes-uneven", Pool("average", (4, 2), (3, 1), (2, 0), (1, 1), (2, 3)), 2, 3, 19, 47),
         ((1, 2, 2, 1, 45, 2, 128, 1),)),
        (pooled("planes-norm", LpPool(2, (3, 2), (2, 1), (1, 0), (1, 1), (1, 2)), 1, 5, 19, 38),
         ((1, 4, 1, 1, 37, 1, 128, 1),)),
        (pooled("planes-far", windows("average", 2, 5, 1), 2, 3, 29, 48), ((1, 2, 1, 2, 5, 1, 128, 1),)),
        (pooled("long-signals", Pool("average", (4,), (4,), (0,), (0,), (1,)), 3, 11, 1000),
         ((1, 8, 1, 2, 40, 1, 128, 1), (1, 3, 1, 1, 250, 1, 256, 1))),
        (pooled("odd-signals", Pool("max", (5,), (3,), (2,), (2,), (1,)), 2, 3, 601),
         ((1, 4, 2, 1, 64, 1, 128, 1), (1, 3, 2, 1, 201, 1, 256, 1))),
    )
)  # fmt: skip
"""Whose rows are joined first: whole rows and parts of them."""
JOINED_PIXELS: tuple[tuple[Layer, tuple[JoinedTile, ...]], ...] = tuple(
    (layer, tuple(JoinedTile(*each) for each in tiles))
    for layer, tiles in (
        (pooled("pixels-max", windows("max", 3, 2, 1), 3, 11, 13, 15),
         ((1, 3, 2, 1, 88, 2, 128, 1), (2, 7, 1, 4, 22, 2, 128, 1))),
        (pooled("pixels-average", windows("average", 3, 1, 1), 2, 9, 10, 16), ((1, 5, 1, 2, 72, 1, 128, 1),)),
        (pooled("pixels-far", windows("max", 2, 3, 0, 2), 2, 20, 9, 14), ((1, 3, 1, 4, 20, 1, 128, 1),)),
        (pooled("pixels-norm", LpPool(2, (3, 2), (2, 1), (1, 0), (1, 1), (1, 2)), 1, 5, 11, 12),
         ((1, 4, 2, 1, 55, 2, 128, 2),)),
    )
)  # fmt: skip
"""The same of pixels whose channels are no whole accesses."""


def staged_pools() -> list[Trial]:
    """In half precision, stored in it and as the model's outputs, and in fp32."""
    found = []
    every = [("staged", *each) for each in STAGED] + [("streamed", *each) for each in STREAMED]
    for algorithm, layer, tiles in (*every, *(("joined", *each) for each in JOINED)):
        for each in asked((layer, replace(layer, precision=DType.F32, tolerance=2e-6))):
            trials = trials_of(each, "portable")
            planes = [trial for trial in trials if trial.step.problem.inputs[0].format.layout is Layout.ROW]
            cut = [candidate_of("portable", algorithm, tile) for tile in tiles]
            found += [replace(trial, candidate=one) for trial in planes for one in cut]
    for layer, tiles in JOINED_PIXELS:
        for each in asked((layer,)):
            last = [t for t in trials_of(each, "portable") if t.step.problem.inputs[0].format.layout is not Layout.ROW]
            same = [t for t in last if t.step.problem.outputs[0].format.dtype is each.precision]
            found += [replace(t, candidate=candidate_of("portable", "joined", tile)) for t in same for tile in tiles]
            apart = [t for t in same if t.step.pitched][:1]
            one = candidate_of("portable", "joined", tiles[0])
            row = each.inputs[0].shape[1] + 7
            found += [replace(t, candidate=one, pitch=row, between=24) for t in apart]
    return list({trial.label: trial for trial in found}.values())


def candidate(tile: SlidingTile) -> Candidate:
    return Candidate("portable", (("algorithm", "sliding"), *tile.parameters), tile.settings)


def plain(trials: list[Trial]) -> list[Trial]:
    """The same; poolings, reductions, moves and what walks along lines with the plain kernel whatever is predicted."""
    cut = Pool | LpPool | Reduce | Places | CumSum | CumProd

    def others(trial: Trial) -> bool:
        algorithm = dict(trial.candidate.parameters).get("algorithm")
        return isinstance(trial.step.problem.op, cut) or algorithm in (
            "packed",
            "permuted",
            "tiled",
            "flat",
            "lines",
            "slices",
        )

    return [replace(each, candidate=DIRECT) if others(each) else each for each in trials]


def _stated(layer: Layer, tiles: tuple[SlidingTile, ...], rows: SlidingTile) -> Iterator[Trial]:
    """Channels last and in planes, stored in the layer's precision; the first tile also with the model's outputs."""
    for trial in (each for of in asked([layer]) for each in trials_of(of, "portable")):
        problem = trial.step.problem
        if problem.inputs[0].format.layout is Layout.ROW:
            far = FAR[IN_ROWS.index(rows)]
            chosen = (rows, far) if PORTABLE.refuse(problem, candidate(far), TARGET) is None else (rows,)
        else:
            chosen = tiles if problem.outputs[0].format.dtype is layer.precision else tiles[:1]
        for tile in chosen:
            if (reason := PORTABLE.refuse(problem, candidate(tile), TARGET)) is not None:
                raise ValueError(f"{layer.label}: {reason}")
            yield replace(trial, candidate=candidate(tile))


def sliding_pools() -> list[Trial]:
    """In half precision and in fp32."""
    found = []
    for index, (layer, tiles) in enumerate(TILES.values()):
        rows = IN_ROWS[index % len(IN_ROWS)]
        found += list(_stated(layer, tiles, rows))
        single = replace(layer, precision=DType.F32, tolerance=2e-6)
        found += list(
            _stated(single, tuple(replace(tile, lanes=max(1, tile.lanes // 2), resident=1) for tile in tiles[:1]), rows)
        )
    apart = [trial for trial in found if trial.layer.label in APART and trial.step.pitched]
    found += [replace(trial, pitch=trial.step.problem.outputs[0].row + 8, between=24) for trial in apart]
    return list({trial.label: trial for trial in found}.values())
