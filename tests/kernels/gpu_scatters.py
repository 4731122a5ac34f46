"""Scatters whose lines lie in shared memory, with indices that repeat and some below zero; gathers of whole slices,
and along lines."""

from __future__ import annotations

from dataclasses import replace

from families_harness import Input, Layer
from gpu_asked import asked
from gpu_harness import TARGET, Trial, trials_of
from gpu_pools import PORTABLE
from gpu_products import TOLERANCE

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate
from bolt_build.families.portable.form import candidate_of
from bolt_build.families.portable.kernels.moves.gathered_lines import GatherTile
from bolt_build.families.portable.kernels.moves.gathered_tuples import TupleTile
from bolt_build.families.portable.kernels.moves.gathered_words import GatheredWordsTile
from bolt_build.families.portable.kernels.moves.staged_tuples import StagedTuplesTile
from bolt_build.families.portable.kernels.scatter.scatter_lines import LineTile
from bolt_build.families.portable.kernels.scatter.scatter_rows import RowsTile
from bolt_build.families.portable.kernels.scatter.scatter_segments import SegmentTile
from bolt_build.families.portable.kernels.scatter.scatter_stages import StagedLineTile
from bolt_build.families.portable.kernels.scatter.scatter_warps import WarpColumnsTile, WarpRowsTile
from bolt_build.graph.ops.moves.gather import Gather, GatherElements, GatherND
from bolt_build.graph.ops.moves.scatter import ScatterElements, ScatterND

Shape = tuple[int, ...]


def scattered(label: str, axis: int, shape: Shape, many: int, how: str = "none", dtype: DType = DType.F16) -> Layer:
    """So many updates of each line, whose indices lie on both sides of zero."""
    taken = (*shape[:axis], many, *shape[axis + 1 :])
    indices = Input(taken, low=0.6 - shape[axis], high=shape[axis] - 0.6, dtype=DType.I64)
    data, updates = (
        Input(each, dtype=dtype) if dtype.is_float else Input(each, low=-90, high=90, dtype=dtype)
        for each in (shape, taken)
    )
    precision = dtype if dtype.is_float else DType.F32
    # Places have several updates, and each sum is rounded to the tensor's type.
    tolerance = TOLERANCE * (2 if how == "add" else 1)
    return Layer(f"scatter-{label}", ScatterElements(axis, how), (data, indices, updates), (), precision, tolerance)


def _named(label: str, batches: int, shape: Shape, tuples: Shape, depth: int) -> Layer:
    most = min(shape[batches : batches + depth])
    indices = Input((*shape[:batches], *tuples, depth), low=0.6 - most, high=most - 0.6, dtype=DType.I64)
    return Layer(f"slices-{label}", GatherND(batches), (Input(shape), indices), (), DType.F16, TOLERANCE)


def _vertices(label: str, axis: int, shape: Shape, many: int) -> Layer:
    indices = Input((many,), low=0.6 - shape[axis], high=shape[axis] - 0.6, dtype=DType.I64)
    return Layer(f"slices-{label}", Gather(axis), (Input(shape), indices), (), DType.F16, TOLERANCE)


def claimed(
    label: str, shape: Shape, depth: int, many: int, how: str = "none", dtype: DType = DType.F16, batches: int = 0
) -> Layer:
    """So many updates of slices that a few indices name, on both sides of zero, most of them more than once, behind so
    many axes of a batch."""
    lines = shape[:batches]
    most = min(shape[batches : batches + depth])
    indices = Input((*lines, many, depth), low=0.6 - most, high=most - 0.6, dtype=DType.I64)
    data, updates = (
        Input(each, dtype=dtype) if dtype.is_float else Input(each, low=-90, high=90, dtype=dtype)
        for each in (shape, (*lines, many, *shape[batches + depth :]))
    )
    precision = dtype if dtype.is_float else DType.F32
    tolerance = TOLERANCE * (4 if how == "add" else 1)
    return Layer(f"claims-{label}", ScatterND(how, batches), (data, indices, updates), (), precision, tolerance)


SCATTERS = (
    scattered("rows", 1, (2, 19, 72), 33),
    scattered("odd-rows", 1, (2, 19, 71), 35),
    scattered("added", 1, (2, 13, 40), 50, "add"),
    scattered("columns", 2, (3, 7, 41), 20),
    scattered("few-columns", 1, (5, 30, 3), 17, "max"),
    scattered("integers", 0, (11, 5, 9), 16, "mul", DType.I64),
    scattered("many", 1, (2, 19, 72), 53),
    scattered("summed", 1, (2, 13, 40), 41, "add", DType.F32),
)
CLAIMED_ELEMENTS = (
    scattered("claims-added", 1, (2, 40, 12), 50, "add"),
    scattered("claims-greatest", 2, (3, 5, 41), 33, "max", DType.BF16),
    scattered("claims-multiplied", 0, (17, 7), 31, "mul", DType.I64),
    scattered("claims-last", 1, (2, 30, 9), 70),
    scattered("claims-long-chains", 1, (3, 4, 6), 90, "add", DType.F32),
)
"""Elements that claim their updates, of which some have more than are sought in their order."""
CLAIMS = (
    claimed("rows", (40, 24), 1, 19),
    claimed("pairs", (5, 6, 3, 4), 2, 37, "add"),
    claimed("elements", (7, 9), 2, 50, "max"),
    claimed("long-chains", (3, 8), 1, 150, "add", DType.F32),
    claimed("integers", (11, 5, 3), 2, 30, "mul", DType.I64),
    claimed("batches", (3, 9, 16), 1, 21, "none", batches=1),
    claimed("batches-added", (2, 2, 7, 5), 1, 90, "add", batches=2),
)
"""Slices of whole accesses and of odd ones, some without updates, some with more than are sought in their order."""
SEGMENTS = (
    (claimed("segments-added", (3, 40, 24), 1, 190, "add", batches=1), ((8, 4), (4, 8), (1, 32))),
    (claimed("segments-long", (2, 5, 40), 1, 900, "add", batches=1), ((8, 8), (2, 4))),
    (claimed("segments-summed", (7, 33), 1, 1500, "add", DType.F32), ((1, 32), (1, 8))),
    (claimed("segments-greatest", (5, 6, 3, 4), 2, 77, "max", DType.BF16), ((4, 4),)),
    (claimed("segments-multiplied", (3, 4), 1, 170, "mul", DType.I64), ((2, 4),)),
    (claimed("segments-least", (2, 3, 21), 1, 300, "min", DType.U8, 1), ((1, 16),)),
    (claimed("segments-one", (1, 6), 1, 400, "add", DType.F32), ((2, 4),)),
)
"""Slices of a batch whose updates groups of threads join, and blocks where there are more."""
SEGMENT_ELEMENTS = (
    (scattered("segments-of-lines", 1, (3, 77), 500, "add", DType.F32), ((1, 4), (1, 8))),
    (scattered("segments-of-one-line", 0, (9,), 700, "add"), ((1, 4),)),
    (scattered("segments-greatest-of-lines", 2, (2, 3, 50), 90, "max", DType.BF16), ((1, 4),)),
)
"""The same of elements along the last axis."""
IN_ROWS = (
    (scattered("mask", 2, (3, 7, 41), 20), ((128, 5), (256, 21))),
    (scattered("vocabulary", 1, (5, 1501), 9, dtype=DType.F32), ((128, 1), (256, 2))),
    (scattered("bytes", 1, (9, 77), 130, dtype=DType.U8), ((512, 4),)),
    (scattered("numbers", 1, (6, 31), 40, dtype=DType.I64), ((128, 6),)),
)
"""Rows that begin anywhere in an access, with more updates than elements and with few."""
JOINED = (
    (scattered("warps-added", 1, (2, 13, 40), 300, "add"), (32, 64)),
    (scattered("warps-multiplied", 1, (2, 37, 21), 45, "mul", DType.BF16), (8, 16)),
    (scattered("warps-greatest", 0, (50, 70), 140, "max"), (64,)),
    (scattered("warps-least", 1, (3, 9, 33), 77, "min", DType.I64), (16,)),
    (scattered("warps-last", 1, (2, 19, 35), 90), (32, 8)),
    (scattered("warps-bytes", 1, (2, 40, 24), 70, "max", DType.U8), (16,)),
    (scattered("warp-rows-added", 1, (37, 91), 70, "add"), (16, 5)),
    (scattered("warp-rows-summed", 1, (21, 33), 150, "add", DType.F32), (8,)),
    (scattered("warp-rows-multiplied", 1, (7, 130), 33, "mul", DType.I64), (7,)),
    (scattered("warp-rows-least", 1, (19, 77), 60, "min", DType.BF16), (19,)),
    (scattered("warp-rows-last", 1, (30, 25), 50), (24,)),
    (scattered("warps-flags", 1, (2, 19, 35), 90, dtype=DType.BOOL), (32,)),
    (scattered("warp-rows-flags", 1, (30, 25), 50, dtype=DType.BOOL), (24,)),
)
"""Lines whose updates warps join, many of one place, in rounds and groups of which the last are a part."""
GATHERS = (
    _named("tokens", 1, (2, 10, 24), (9,), 1),
    _named("pairs", 0, (5, 6, 3, 4), (7,), 2),
    _named("of-six", 1, (2, 10, 6), (3, 4), 1),
)
TUPLES = (
    (_named("points", 1, (3, 50, 3), (41,), 1), ((8, 1), (4, 2), (2, 4))),
    (_named("colours", 1, (2, 9, 11, 3), (5, 7), 2), ((8, 2), (4, 1))),
    (_named("single", 0, (5, 6, 7), (333,), 3), ((2, 4), (4, 2), (8, 1))),
    (_named("odd", 1, (2, 10, 33), (19,), 1), ((8, 2), (4, 4))),
    (_named("whole", 1, (2, 10, 24), (19,), 1), ((8, 4), (4, 1))),
)
"""Slices of whole words and of odd ones, several of them in a word, the last of which is a part."""
STAGED_TUPLES = (
    (_named("kept-points", 1, (3, 50, 3), (241,), 1), ((8, 3), (4, 2), (2, 1))),
    (_named("kept-colours", 1, (2, 9, 11, 3), (25, 17), 2), ((8, 2), (4, 5))),
    (_named("kept-odd", 1, (2, 10, 33), (59,), 1), ((8, 4),)),
    (_named("kept-single", 0, (5, 6, 7), (1333,), 3), ((2, 4), (4, 1))),
    (_vertices("kept-vertices", 1, (3, 41, 3), 305), ((8, 3), (4, 2))),
    (_vertices("kept-back", 2, (2, 3, 7, 5), 100), ((8, 2),)),
)
"""The same of batches whose data lie in shared memory: blocks begin and end within words of results."""
VERTICES = (
    (_vertices("vertices", 1, (3, 41, 3), 305), ((8, 1), (4, 2))),
    (_vertices("edges", 0, (29, 11), 50), ((8, 2),)),
)
"""Slices along one axis, whose indices all batches share."""


def _along(label: str, shape: Shape, taken: Shape, dtype: DType = DType.F16, named: DType = DType.I64) -> Layer:
    """Elements of the last axis, whose indices lie on both sides of zero; of fewer rows, where `taken` has fewer."""
    data = Input(shape, dtype=dtype) if dtype.is_float else Input(shape, low=0, high=90, dtype=dtype)
    indices = Input(taken, low=0.6 - shape[-1], high=shape[-1] - 0.6, dtype=named)
    return Layer(f"along-{label}", GatherElements(len(shape) - 1), (data, indices), (), DType.F16, TOLERANCE)


def _across(
    label: str, axis: int, shape: Shape, many: int, dtype: DType = DType.F16, named: DType = DType.I64
) -> Layer:
    """So many elements of each line along the axis, whose indices lie on both sides of zero."""
    data = Input(shape, dtype=dtype) if dtype.is_float else Input(shape, low=0, high=90, dtype=dtype)
    taken = (*shape[:axis], many, *shape[axis + 1 :])
    indices = Input(taken, low=0.6 - shape[axis], high=shape[axis] - 0.6, dtype=named)
    return Layer(f"across-{label}", GatherElements(axis), (data, indices), (), DType.F16, TOLERANCE)


ALONG = (
    (_along("keys", (3, 5, 60), (3, 5, 37)), ((32, 2), (64, 1))),
    (_along("fewer", (4, 7, 101), (3, 5, 333), DType.F32, DType.I32), ((32, 3), (128, 2))),
    (_along("bytes", (9, 1003), (9, 70), DType.U8), ((32, 3), (256, 1))),
    (_along("wide", (11, 33), (11, 65), DType.I64), ((64, 2),)),
)
"""Lines that begin anywhere in an access, rows that are left out, several rounds of indices."""
WORDS = (
    (_across("boxes", 1, (3, 50, 4), 41), ((4, 2), (2, 1))),
    (_across("rows", 1, (2, 9, 31), 13, DType.F32, DType.I32), ((4, 4), (4, 1))),
    (_across("columns", 2, (3, 5, 17), 40, DType.I64), ((2, 4),)),
    (_across("bytes", 0, (7, 33), 5, DType.U8, DType.I32), ((8, 1), (2, 2))),
)
"""Words of one row and of several, the last of which is a part."""
_TILES = {"scatter-rows": ((1, 24), (1, 72), (2, 72)), "scatter-columns": ((1, 1), (4, 1))}
"""Other blocks than prediction would put first: with lines left over, with one."""


_STAGES = {
    "scatter-many": ((8, 2, 24), (16, 3, 72), (8, 4, 48)), "scatter-summed": ((8, 3, 16),),
    "scatter-rows": ((32, 2, 72),),
}  # fmt: skip
"""Blocks whose updates come in stages: updates of a stage, stages, lines."""


def candidate(tile: LineTile) -> Candidate:
    return Candidate("portable", (("algorithm", "lines"), *tile.parameters), tile.settings)


def scatter_trials() -> list[Trial]:
    """Of each alternative the first kernel of lines, some with other lines, and some whose updates come in stages."""
    found = []
    for layer in asked(SCATTERS):
        for trial in trials_of(layer, "portable"):
            legal = PORTABLE.candidates(trial.step.problem, TARGET)[0]
            found.append(replace(trial, candidate=next(each for each in legal if "algorithm=lines" in str(each))))
    for layer, rows in ((layer, rows) for layer, rows in IN_ROWS if asked((layer,))):
        tiles = [candidate_of("portable", "rows", RowsTile(*each)) for each in rows]
        for trial in trials_of(layer, "portable"):
            found += [replace(trial, candidate=tile) for tile in tiles]
    for layer, sizes in ((layer, sizes) for layer, sizes in JOINED if asked((layer,))):
        rows = layer.op.axis == len(layer.inputs[0].shape) - 1
        name, tile_of = ("warp_rows", WarpRowsTile) if rows else ("warp_columns", WarpColumnsTile)
        tiles = [candidate_of("portable", name, tile_of(each)) for each in sizes]
        for trial in trials_of(layer, "portable"):
            found += [replace(trial, candidate=tile) for tile in tiles]
    for layer in asked((*CLAIMS, *CLAIMED_ELEMENTS)):
        for trial in trials_of(layer, "portable"):
            legal = PORTABLE.candidates(trial.step.problem, TARGET)[0]
            claims = [each for each in legal if "algorithm=claims" in str(each)]
            found += [replace(trial, candidate=each) for each in (claims[0], claims[-1])[: len(claims)]]
    for layer, sizes in ((layer, sizes) for layer, sizes in (*SEGMENTS, *SEGMENT_ELEMENTS) if asked((layer,))):
        tiles = [candidate_of("portable", "segments", SegmentTile(*each)) for each in sizes]
        for trial in trials_of(layer, "portable"):
            found += [replace(trial, candidate=tile) for tile in tiles]
    for label, stated in _TILES.items():
        trial = next((each for each in found if each.layer.label == label), None)
        if trial is None:  # not asked for
            continue
        for outers, columns in stated:
            other = candidate(LineTile(outers, columns))
            if (reason := PORTABLE.refuse(trial.step.problem, other, TARGET)) is not None:
                raise ValueError(f"{label}: {reason}")
            found.append(replace(trial, candidate=other))
    for label, staged in _STAGES.items():
        trial = next((each for each in found if each.layer.label == label), None)
        if trial is None:  # not asked for
            continue
        cut = (StagedLineTile(*each) for each in staged)
        found += [replace(trial, candidate=candidate_of("portable", "staged_lines", tile)) for tile in cut]
    for layer, cuts in ((layer, cuts) for layer, cuts in ALONG if asked((layer,))):
        trial = trials_of(layer, "portable")[0]
        tiles = (candidate_of("portable", "staged", GatherTile(*each)) for each in cuts)
        found += [replace(trial, candidate=tile) for tile in tiles]
    for layer, cuts in ((layer, cuts) for layer, cuts in WORDS if asked((layer,))):
        trial = trials_of(layer, "portable")[0]
        words = (candidate_of("portable", "words", GatheredWordsTile(*each)) for each in cuts)
        found += [replace(trial, candidate=tile) for tile in words]
    for name, tile_of, layers in (
        ("tuples", TupleTile, (*TUPLES, *VERTICES)), ("staged_tuples", StagedTuplesTile, STAGED_TUPLES),
    ):  # fmt: skip
        for layer, cuts in ((layer, cuts) for layer, cuts in layers if asked((layer,))):
            trial = trials_of(layer, "portable")[0]
            for each in cuts:
                stated = candidate_of("portable", name, tile_of(*each))
                if (reason := PORTABLE.refuse(trial.step.problem, stated, TARGET)) is not None:
                    raise ValueError(f"{layer.label}: {reason}")
                found.append(replace(trial, candidate=stated))
    others = ("tuples", "staged_tuples")
    slices = (trials_of(layer, "portable", kind="lanes", without=others) for layer in asked(GATHERS))
    return found + [trial for trials in slices for trial in trials]
