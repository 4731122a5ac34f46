"""Copies that bring axes into another order through tiles that are runs of both sides: of every size of element, even
and odd, of several axes each, with tiles that end behind an axis; and rows apart."""

from __future__ import annotations

from dataclasses import replace

from families_harness import Input, Layer
from gpu_asked import asked
from gpu_harness import TARGET, Trial, trials_of
from gpu_pools import PORTABLE
from gpu_products import TOLERANCE

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem, Operand, ProposedStep, TensorFormat
from bolt_build.families.portable.kernels.moves.permuted import PermutedTile
from bolt_build.graph.ir import Layout, Op
from bolt_build.graph.ops.moves.rearrange import Rearrange
from bolt_build.graph.ops.moves.shape import Convert, Transpose

Shape = tuple[int, ...]


def _permuted(label: str, op: Op, shape: Shape, dtype: DType = DType.F16) -> Layer:
    given = Input(shape, dtype=dtype) if dtype.is_float else Input(shape, low=0, high=99, dtype=dtype)
    return Layer(f"permute-{label}", op, (given,), (), dtype if dtype.is_float else DType.F32, TOLERANCE)


_SHUFFLED = Rearrange((2, 2, 29, 13, 11), (0, 2, 1, 3, 4), (2, 58, 13, 11), 0, (2, 58, 13, 11))
_DEPTH = Rearrange((2, 2, 2, 12, 9, 7), (0, 3, 4, 1, 5, 2), (2, 12, 18, 14), 0, (2, 12, 18, 14))
_SPACE = Rearrange((2, 12, 9, 2, 7, 2), (0, 3, 5, 1, 2, 4), (2, 48, 9, 7), 0, (2, 48, 9, 7))
LAYERS = (
    _permuted("patches", Transpose((0, 2, 4, 3, 5, 1)), (2, 3, 4, 16, 3, 16)),
    _permuted("patches-of-14", Transpose((0, 2, 4, 1, 3, 5)), (2, 3, 4, 14, 5, 14)),
    _permuted("boxes", Transpose((0, 1, 3, 4, 2)), (2, 3, 85, 10, 13)),
    _permuted("scores", Transpose((0, 1, 3, 2)), (2, 3, 37, 37)),
    _permuted("colours", Transpose((0, 2, 3, 1)), (2, 3, 37, 29)),
    _permuted("pixels", Transpose((0, 3, 1, 2)), (2, 37, 29, 3)),
    _permuted("reversed", Transpose((3, 2, 1, 0)), (7, 5, 9, 11)),
    _permuted("shuffled", _SHUFFLED, (2, 58, 13, 11)),
    _permuted("depth-to-space", _DEPTH, (2, 48, 9, 7)),
    _permuted("space-to-depth", _SPACE, (2, 12, 18, 14)),
    _permuted("single", Transpose((0, 2, 1)), (2, 67, 101), DType.F32),
    _permuted("i64", Transpose((0, 2, 1)), (2, 67, 41), DType.I64),
    _permuted("bytes", Transpose((0, 2, 1)), (3, 77, 141), DType.U8),
    _permuted("even-bytes", Transpose((0, 2, 1)), (3, 76, 142), DType.U8),
    _permuted("long", Transpose((0, 2, 1)), (2, 601, 19)),
    _permuted("long-bytes", Transpose((0, 2, 1)), (2, 1101, 19), DType.U8),
)
_ROWS_OF_ONE = _permuted("rows-of-one", Transpose((0, 2, 1, 3)), (3, 37, 41, 1))
"""Whose elements are no neighbours where rows lie apart."""
_TILES = {
    "permute-boxes": (
        ((1, 2, 13, 85), (0, 13, 1, 27)),
        ((2, 10, 13, 7), (910, 91, 7, 1)),
        ((1, 10, 13, 85), (0, 13, 1, 131)),
    ),
    "permute-scores": (((1, 37, 8), (0, 1, 40)), ((5, 16, 16), (401, 25, 1)), ((6, 37, 37), (1369, 1, 37))),
}
"""Tiles that prediction would not put first: in parts, of several planes, in another order in shared memory."""
_WORD_TILES = {
    "permute-scores": (((1, 8, 21), (0, 1, 9)), ((6, 37, 16), (645, 1, 40))),
    "permute-long": (((1, 8, 601), (0, 1, 9)), ((2, 3, 560), (1683, 1, 3))),
    "permute-long-bytes": (((1, 8, 1101), (0, 1, 9)), ((1, 19, 777), (0, 1, 19))),
}
"""The same of tiles that are stored in words: rows in parts, and of more words than a block has threads."""


def candidate(tile: PermutedTile, algorithm: str = "permuted") -> Candidate:
    return Candidate("portable", (("algorithm", algorithm), *tile.parameters), tile.settings)


def _converted(given: TensorFormat, made: TensorFormat, algorithm: str = "permuted") -> Trial:
    """Images whose layout and type change at once."""
    shape = (2, 27, 13, 11)
    problem = KernelProblem(Convert(), (Operand(shape, given),), (Operand(shape, made),), (), DType.F32, TARGET.name)
    layer = Layer("permute-images", Convert(), (Input(shape),), (), DType.F16, TOLERANCE)
    legal, _ = PORTABLE.candidates(problem, TARGET)
    first = next(each for each in legal if dict(each.parameters)["algorithm"] == algorithm)
    return Trial(layer, ProposedStep(problem, ("x0",), ("y",), pitched=(0,), reads_apart=(0,)), first)


def permuted_trials() -> list[Trial]:
    """Of each alternative the kernels that are predicted to be fastest, which store elements and words wherever rows
    begin; some in other tiles, and some with rows apart."""
    found = [
        trial
        for layer in asked(LAYERS)
        for other in ("permuted_words", "permuted")
        for trial in trials_of(layer, "portable", kind="near", without=(other,))
    ]
    tiles = [("permuted", label, tile) for label, own in _TILES.items() for tile in own]
    tiles += [("permuted_words", label, tile) for label, own in _WORD_TILES.items() for tile in own]
    stated = list[Trial]()
    labels = {layer.label for layer in asked(LAYERS)}
    for algorithm, label, (cut, near) in tiles:
        if label not in labels:
            continue
        trial = next(each for each in found if each.layer.label == label)
        other = candidate(PermutedTile(cut, near), algorithm)
        if (reason := PORTABLE.refuse(trial.step.problem, other, TARGET)) is not None:
            raise ValueError(f"{label}: {reason}")
        stated.append(replace(trial, candidate=other))
    planes, pixels = TensorFormat(DType.F32, Layout.ROW), TensorFormat(DType.F16, Layout.CHANNELS_LAST)
    found += [_converted(planes, pixels), _converted(planes, pixels, "permuted_words"), _converted(pixels, planes)]
    single = [
        replace(trial, pitch=8, between=7)
        for layer in asked((_ROWS_OF_ONE,))
        for other in ("permuted_words", "permuted")
        for trial in trials_of(layer, "portable", kind="near", without=(other,))[:1]
    ]
    return [*found, *stated, *_apart(found)[::3], *_apart(stated), *single]


def _apart(trials: list[Trial]) -> list[Trial]:
    """The same with rows apart, where steps read and write such."""
    return [
        replace(trial, pitch=trial.step.problem.outputs[0].row + 8, between=24)
        for trial in trials
        if trial.step.pitched and trial.step.reads_apart
    ]
