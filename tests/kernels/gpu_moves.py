"""Kernels that move elements or combine two, in accesses of 16 and of 8 bytes, and element by element: rows that are
odd, pads of every mode around whole accesses, sides that stand still, axes in every order."""

from __future__ import annotations

from families_harness import Input, Layer
from families_layers import RELU, stage
from gpu_asked import asked
from gpu_harness import Trial, trials_of
from gpu_products import TOLERANCE

from bolt_build.dtypes import DType
from bolt_build.graph.ir import EpilogueOp, Op
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.logic import Logic, Where
from bolt_build.graph.ops.images.grid_sample import GridSample
from bolt_build.graph.ops.moves.expand import Expand
from bolt_build.graph.ops.moves.gather import Gather, GatherElements, GatherND
from bolt_build.graph.ops.moves.rearrange import Rearrange
from bolt_build.graph.ops.moves.shape import Cast, Concat, Pad, Slice, Transpose

Shape = tuple[int, ...]


def _moved(label: str, op: Op, *shapes: Shape, epilogue: tuple[EpilogueOp, ...] = ()) -> Layer:
    inputs = tuple(Input(shape) for shape in shapes)
    return Layer(f"move-{label}", op, inputs, epilogue, DType.F16, TOLERANCE)


def _pads() -> list[Layer]:
    """Axes in front of whole accesses, whole accesses themselves, and single elements; some are cropped."""
    found = []
    for mode in ("constant", "edge", "reflect", "wrap"):
        for name, begin, end, shape in (
            ("windows", (0, 2, 1, 0), (0, 2, 3, 0), (2, 5, 6, 24)),
            ("fours", (1, 0, 3, 0), (0, 0, 1, 0), (2, 3, 5, 12)),
            ("accesses", (0, 8), (1, 16), (3, 40)),
            ("odd", (0, 0, 3, 2), (0, 0, 2, 4), (2, 3, 9, 7)),
            ("long", (1, 300), (0, 5), (2, 611)),
            ("crops", (0, -1, 2, -8), (0, 1, -4, 0), (2, 4, 9, 24)),
        ):
            found.append(_moved(f"pad-{mode}-{name}", Pad(begin, end, mode, -1.5), shape))
    return found


def _combined() -> list[Layer]:
    """Sides of whole accesses, of one element each, and of odd rows."""
    odd, each, pixels = (6, 1, 7, 7), (1, 3, 7, 7), (2, 24, 5, 3)
    stages = (stage("mul", 2), RELU, stage("add", 3))
    return [
        _moved("add-odd", Binary("add"), odd, each),
        _moved("sub-long", Binary("sub"), (3, 1, 49, 49), (1, 2, 49, 49)),
        _moved("mul-fours", Binary("mul"), (6, 1, 5, 4), (1, 3, 5, 4)),
        _moved("mul-of-pixels", Binary("mul"), pixels, (2, 1, 5, 3)),
        _moved("mul-of-channels", Binary("mul"), (2, 16, 5, 3), (2, 16, 1, 1)),
        _moved("div-outer", Binary("div"), (9, 1), (1, 33)),
        _moved("sub-short", Binary("sub"), (40, 3), (40, 1)),
        _moved("add-chain-odd", Binary("add"), odd, each, (3, 1, 1), (6, 3, 7, 7), epilogue=stages),
        _moved("add-chain-pixels", Binary("add"), pixels, (2, 1, 5, 3), (24, 1, 1), pixels, epilogue=stages),
        _moved("silu-fours", Activation("silu"), (2, 12, 3, 5), (12, 1, 1), epilogue=(stage("mul", 1),)),
    ]


def _copied() -> list[Layer]:
    windows = (0, 1, 3, 2, 4, 5)
    return [
        *(_moved(f"windows-{width}", Transpose(windows), (2, 2, 3, 4, 5, width)) for width in (24, 12, 7)),
        _moved("heads-of-few", Rearrange((2, 4, 6, 20), (0, 2, 1, 3), (2, 6, 80), 0, (2, 6, 80)), (2, 24, 20)),
        _moved("turned-far", Transpose((0, 3, 2, 1)), (3, 16, 5, 24)),
        _moved("turned-far-odd", Transpose((0, 3, 2, 1)), (3, 17, 5, 11)),
        _moved("turned-far-short", Transpose((0, 3, 2, 1)), (3, 16, 5, 3)),
        _moved("expand-odd", Expand((5, 3, 49)), (1, 3, 49)),
        _moved("expand-fours", Expand((5, 3, 4)), (5, 1, 4)),
        _moved("slice-steps", Slice((1, 8, 1), (2, 3, 300), (1, -2, 2)), (4, 9, 640)),
        _moved("slice-fours", Slice((1, 2, 4), (2, 3, 12), (1, 1, 1)), (4, 9, 20)),
        Layer("move-taken-along-keys", GatherElements(2),
              (Input((3, 5, 60)), Input((3, 5, 37), low=-60.4, high=59.9, dtype=DType.I64)), (), DType.F16, TOLERANCE),
        Layer("move-taken-along-rows", GatherElements(1),
              (Input((3, 50, 7)), Input((3, 41, 7), low=-50.4, high=49.9, dtype=DType.I32)), (), DType.F16, TOLERANCE),
        Layer("move-widens-fours", Cast(DType.F32), (Input((7, 20), dtype=DType.F16),)),
        Layer("move-integers-odd", Transpose((1, 0, 2)), (Input((5, 6, 13), low=-90, high=90, dtype=DType.I64),)),
        Layer("move-bytes", Pad((1, 3), (0, 2), "edge"), (Input((5, 301), low=-90, high=90, dtype=DType.I8),)),
    ]  # fmt: skip


def _turned() -> list[Layer]:
    """Extents that no access divides: strips of one side, of the other, of both, of few and of many lines."""
    few = ((2, 3, 1517), (2, 1517, 3), (2, 5, 700))
    shapes = ((3, 37, 72), (2, 72, 37), (2, 49, 49), *few, (2, 700, 5), (2, 67, 1030))
    sizes = {DType.F32: (2, 35, 301), DType.I64: (2, 301, 35), DType.U8: (3, 45, 143), DType.I32: (2, 143, 45)}
    return [
        *(_moved(f"turned-{'x'.join(map(str, shape))}", Transpose((0, 2, 1)), shape) for shape in shapes),
        *(Layer(f"move-turned-{dtype.value}", Transpose((0, 2, 1)), (Input(shape, low=0, high=99, dtype=dtype),))
          for dtype, shape in sizes.items()),
        _moved("turned-heads", Transpose((0, 2, 3, 1)), (2, 49, 3, 33)),
        Layer("move-turned-widens", Cast(DType.F32), (Input((2, 35, 7, 43), dtype=DType.F16),)),
    ]  # fmt: skip


def _beside() -> list[Layer]:
    """Parts of a few columns, of odd rows and of planes, rows that indices name, and tensors of several types."""
    named = Input((9,), low=0, high=8.9, dtype=DType.I64)
    flags, flag = (Input((2, rows, 33), low=0, high=1.9, dtype=DType.BOOL) for rows in (3, 1))
    pairs = Input((3, 5, 1), low=0, high=8.9, dtype=DType.I64)
    return [
        _moved("boxes", Concat(2), (3, 41, 4), (3, 41, 1), (3, 41, 80)),
        _moved("planes", Concat(1), (2, 3, 7, 7), (2, 5, 7, 7)),
        _moved("box-scores", Slice((0, 0, 5), (3, 41, 80), (1, 1, 1)), (3, 41, 85)),
        _moved("backwards", Slice((0, 0, 40), (3, 7, 41), (1, 1, -1)), (3, 7, 41)),
        Layer("move-picked-rows", Gather(1), (Input((3, 9, 37)), named), (), DType.F16, TOLERANCE),
        Layer("move-picked-columns", Gather(2), (Input((3, 7, 9)), named), (), DType.F16, TOLERANCE),
        Layer("move-picked-pairs", GatherND(1), (Input((3, 9, 40)), pairs), (), DType.F16, TOLERANCE),
        Layer("move-hidden", Where(), (flag, Input((2, 3, 33)), Input((1,))), (), DType.F16, TOLERANCE),
        Layer("move-both", Logic("and"), (flags, flags)),
        Layer("move-both-broadcast", Logic("and"), (flags, flag)),
    ]  # fmt: skip


def _far() -> list[Layer]:
    """Elements that memory brings each by itself: of long rows, of short ones, backwards, of every size; and what a
    grid names, of whole accesses of channels, of a few, and of one."""
    sizes = {DType.I64: (1100, 40), DType.I32: (900, 33), DType.U8: (700, 129)}
    columns = (
        Layer(f"move-far-{dtype.value}", Slice((0, 3), (rows, 1), (1, 1)), (Input((rows, width), high=9, dtype=dtype),))
        for dtype, (rows, width) in sizes.items()
    )
    grids = (
        Layer(f"move-grid-{mode}-{channels}", GridSample(mode, padding, aligned),
              (Input((2, channels, 7, 9)), Input((2, 5, 6, 2), low=-1.4, high=1.4)), (), DType.F16, TOLERANCE)
        for mode, padding, aligned, channels in (
            ("linear", "zeros", False, 16), ("cubic", "border", True, 5), ("nearest", "reflection", False, 3),
            ("linear", "border", False, 1),
        )
    )  # fmt: skip
    volumes = Input((2, 9, 4, 5, 6)), Input((2, 3, 4, 5, 3), low=-1.4, high=1.4)
    return [
        _moved("far-columns", Slice((0, 0, 4), (3, 700, 1), (1, 1, 1)), (3, 700, 85)),
        _moved("far-diagonals", Slice((0, 0, 0), (3, 9, 9), (1, 1, 82)), (3, 9, 729)),
        _moved("far-backwards", Slice((0, 0, 4999), (2, 7, 50), (1, 1, -100)), (2, 7, 5000)),
        *columns,
        *grids,
        Layer("move-grid-volumes", GridSample("linear", "zeros", False), volumes, (), DType.F16, TOLERANCE),
    ]


MOVES = [*_pads(), *_combined(), *_copied(), *_turned(), *_beside()]


def move_trials() -> list[Trial]:
    """Every layout of each."""
    return [trial for layer in asked(MOVES) for trial in trials_of(layer, "portable")]


def far_trials() -> list[Trial]:
    """The plain kernels of what lies far apart."""
    return [each for layer in asked(_far()) for each in trials_of(layer, "portable", kind="algorithm")]
