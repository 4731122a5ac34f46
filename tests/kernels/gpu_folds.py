"""Reductions, places and running sums whose rows begin anywhere: cuts of every form, blocks that share results, modes,
element types, axes that no run of neighbours covers, and what follows in the same kernel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from families_harness import Input, Layer
from families_layers import RELU, stage
from gpu_asked import asked
from gpu_harness import TARGET, Trial, trials_of
from gpu_products import TOLERANCE

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate
from bolt_build.families.portable.family import Portable
from bolt_build.families.portable.kernels.lines.scan_parts import ScanPartsTile
from bolt_build.families.portable.kernels.lines.scan_passed import ScanPassedColumnsTile, ScanPassedTile
from bolt_build.families.portable.kernels.lines.scan_slabs import ScanClusterTile, ScanSlabTile
from bolt_build.families.portable.kernels.lines.scans import ScanColumnsTile, ScanRunsTile
from bolt_build.families.portable.kernels.places.binned_places import BinTile
from bolt_build.families.portable.kernels.places.bounded_places import BoundTile
from bolt_build.families.portable.kernels.places.counted_places import CountTile
from bolt_build.families.portable.kernels.places.drawn_places import DrawTile
from bolt_build.families.portable.kernels.places.few_lines import FewLinesTile
from bolt_build.families.portable.kernels.places.few_places import FewTile
from bolt_build.families.portable.kernels.places.selected_places import SelectTile
from bolt_build.families.portable.kernels.places.sifted_places import PartTile, SiftTile
from bolt_build.families.portable.kernels.places.sorted_places import SortTile
from bolt_build.families.portable.kernels.reductions.fold_clusters import ClusterTile
from bolt_build.families.portable.kernels.reductions.fold_columns import ColumnsTile
from bolt_build.families.portable.kernels.reductions.fold_pixels import PixelsTile
from bolt_build.families.portable.kernels.reductions.fold_runs import RunClusterTile, RunsTile
from bolt_build.families.portable.kernels.reductions.fold_slabs import SlabTile
from bolt_build.graph.ir import EpilogueOp, Op
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.graph.ops.lines.lines import CumProd, CumSum, Places, TopElements
from bolt_build.graph.ops.lines.reduce import Reduce

PORTABLE = Portable()
Tile = (
    RunsTile | RunClusterTile | SlabTile | ColumnsTile | PixelsTile | ClusterTile | SortTile | SelectTile | FewTile
    | BoundTile | FewLinesTile | SiftTile | PartTile | CountTile | DrawTile | BinTile | ScanRunsTile | ScanPassedTile
    | ScanColumnsTile | ScanPassedColumnsTile | ScanSlabTile | ScanClusterTile | ScanPartsTile
)  # fmt: skip
ALGORITHMS = {
    RunsTile: "runs", RunClusterTile: "run_clusters", SlabTile: "slabs", ColumnsTile: "columns", PixelsTile: "pixels",
    ClusterTile: "clusters", SortTile: "sorted", SelectTile: "selected", FewTile: "few", SiftTile: "sifted",
    BoundTile: "bounded", PartTile: "parted", CountTile: "counted", DrawTile: "drawn", BinTile: "binned",
    FewLinesTile: "few_lines", ScanRunsTile: "runs", ScanPassedTile: "passed", ScanColumnsTile: "columns",
    ScanSlabTile: "slabs",
    ScanClusterTile: "cluster_slabs", ScanPartsTile: "slab_parts", ScanPassedColumnsTile: "passed_columns",
}  # fmt: skip
FACTORS, OPERAND = (stage("mul", 1), RELU), Input((13, 1, 1), True)


def folded(
    label: str, op: Op, *shape: int, dtype: DType = DType.F16, epilogue: tuple[EpilogueOp, ...] = (),
    operands: tuple[Input, ...] = (), span: int = 2,
) -> Layer:  # fmt: skip
    """Numbers between -`span` and `span`: of integers few, so that many are equal."""
    stored = DType.F32 if dtype.is_float else dtype
    low = 0 if dtype in (DType.U8, DType.BOOL) else -span
    given = Input(shape, low=low, high=span, dtype=stored)
    return Layer(f"fold-{label}", op, (given, *operands), epilogue, dtype if dtype.is_float else DType.F16, TOLERANCE)


def hidden(layer: Layer) -> Layer:
    """The same with infinity of the other sign alone in the first image, and in half of the next one."""
    (given,) = layer.inputs
    return replace(layer, inputs=(replace(given, hidden=given.shape[-1]),))


def selects(*tiles: tuple[int, int, int]) -> tuple[Tile, ...]:
    return tuple(SelectTile(*each) for each in tiles)


def runs(*tiles: tuple[int, int, int]) -> tuple[Tile, ...]:
    return tuple(RunsTile(*each) for each in tiles)


def together(*tiles: tuple[int, int]) -> tuple[Tile, ...]:
    return tuple(RunClusterTile(*each) for each in tiles)


def slabs(*tiles: tuple[int, int]) -> tuple[Tile, ...]:
    return tuple(SlabTile(*each) for each in tiles)


def columns(*tiles: tuple[int, int]) -> tuple[Tile, ...]:
    return tuple(ColumnsTile(*each) for each in tiles)


def pixels(*tiles: tuple[int, int]) -> tuple[Tile, ...]:
    return tuple(PixelsTile(*each) for each in tiles)


def clusters(*tiles: tuple[int, int]) -> tuple[Tile, ...]:
    return tuple(ClusterTile(*each) for each in tiles)


def sorts(*tiles: tuple[int, int, int]) -> tuple[Tile, ...]:
    return tuple(SortTile(*each) for each in tiles)


def fews(*tiles: tuple[int, int, int, int]) -> tuple[Tile, ...]:
    return tuple(FewTile(*each) for each in tiles)


def sifts(*tiles: tuple[int, int, int, int, int, int]) -> tuple[Tile, ...]:
    return tuple(SiftTile(*each) for each in tiles)


def bins(*tiles: tuple[int, int, int, int, int]) -> tuple[Tile, ...]:
    return tuple(BinTile(*each) for each in tiles)


def bounds(*tiles: tuple[int, int, int]) -> tuple[Tile, ...]:
    return tuple(BoundTile(*each) for each in tiles)


def counts(*threads: int) -> tuple[Tile, ...]:
    return tuple(map(CountTile, threads))


TILES: tuple[tuple[Layer, tuple[Tile, ...]], ...] = (
    (folded("rows", Reduce("sum", (2,), False), 3, 33, 197), runs((8, 8, 1), (4, 32, 1), (2, 256, 1))),
    (folded("short", Reduce("mean", (1,)), 301, 13), runs((1, 1, 1), (2, 2, 1), (1, 4, 1))),
    (folded("outer", Reduce("mean", (1, 3), False), 2, 5, 13, 37), runs((8, 32, 1), (2, 8, 1), (4, 256, 2))),
    (folded("all", Reduce("sum", (0, 1, 2)), 5, 37, 41), runs((16, 256, 1), (32, 256, 3), (1, 256, 2))),
    (folded("halves", Reduce("l2", (1, 2), False), 3, 41, 57), runs((32, 256, 2), (4, 16, 1), (16, 32, 1))),
    (folded("least", Reduce("min", (1, 2), False), 4, 9, 24), runs((16, 16, 1), (8, 256, 1))),
    (folded("long", Reduce("log_sum", (1,)), 2, 9001), runs((32, 256, 9), (32, 32, 1))),
    (folded("powers", Reduce("log_sum_exp", (2,), False), 3, 5, 1001), runs((16, 16, 1), (8, 256, 1), (1, 256, 2))),
    (folded("powers-apart", Reduce("log_sum_exp", (1,)), 2, 33, 13, 5), (*columns((16, 1), (4, 2)), *pixels((256, 1)))),
    (folded("powers-of-all", Reduce("log_sum_exp", (0, 1)), 3, 9001, dtype=DType.F64), runs((32, 256, 3),)),
    (folded("heads", Reduce("mean", (1,), False), 2, 12, 19, 19), columns((256, 1), (64, 1), (32, 2), (4, 1))),
    (folded("batches", Reduce("sum", (0,), False), 21, 7, 33),
     (*columns((16, 1), (8, 3), (4, 21)), *pixels((256, 1), (512, 2)))),
    (folded("apart", Reduce("max", (0, 2), False), 3, 10, 5, 9), columns((128, 1), (4, 2))),
    (folded("whole", Reduce("sum_square", (1,)), 2, 40, 64), columns((8, 1), (4, 2))),
    (folded("chain", Reduce("mean", (2, 3)), 2, 13, 9, 11, epilogue=FACTORS, operands=(OPERAND,)),
     (*runs((8, 8, 1), (1, 256, 2)), *columns((8, 1), (4, 5)), *pixels((256, 1), (512, 1)))),
    (folded("top", Places(2, 1), 3, 11, 101), runs((8, 8, 1), (32, 32, 1), (1, 4, 1), (1, 256, 3))),
    (folded("last", Places(1, 1, False, True), 7, 61, dtype=DType.I8, span=3), runs((4, 4, 1), (1, 16, 1))),
    (folded("flags", Places(1, 1), 9, 77, dtype=DType.BOOL, span=1), runs((2, 2, 1), (1, 256, 2))),
    (folded("class", Places(1, 1), 2, 21, 11, 13),
     (*columns((128, 1), (16, 2), (4, 1)), *pixels((256, 2)), *runs((2, 2, 1), (1, 32, 1)))),
    (folded("last-class", Places(1, 1, True, True), 2, 21, 67, dtype=DType.I64, span=3),
     (*columns((64, 1), (4, 3)), *pixels((512, 2)))),
    (folded("integers", Reduce("mean", (2,), False), 3, 5, 83, dtype=DType.I32, span=9), runs((4, 8, 1), (1, 256, 2))),
    (folded("any", Reduce("max", (1,), False), 3, 17, 45, dtype=DType.BOOL, span=1),
     (*columns((4, 2), (32, 1)), *pixels((256, 1)))),
    (folded("bytes", Reduce("sum", (0,), False), 19, 5, 31, dtype=DType.U8, span=9),
     (*columns((8, 1), (4, 4)), *pixels((512, 1)))),
    (folded("doubles", Reduce("l1", (2,), False), 3, 5, 83, dtype=DType.F64), runs((4, 8, 1),)),
    (folded("several", Places(1, 30), 9, 100), sorts((32, 4, 4), (32, 1, 4), (256, 1, 1), (1024, 1, 0))),
    (folded("several-last", Places(1, 7, False, True), 2, 70, 5, dtype=DType.I8, span=9),
     sorts((32, 4, 4), (32, 1, 3), (1024, 2, 0))),
    (folded("several-flags", Places(1, 40), 3, 61, dtype=DType.BOOL, span=1), sorts((32, 2, 2),)),
    (folded("several-numbers", Places(2, 300, False), 2, 3, 700), sorts((256, 4, 4), (32, 16, 22), (1024, 1, 0))),
    (folded("several-of-many", Places(1, 1500), 2, 9000), sorts((1024, 2, 0),)),
    (folded("several-alike", Places(0, 900, True, True), 70001, 1, dtype=DType.U16, span=3), sorts((1024, 1, 0),)),
    (folded("drawn", Places(1, 5), 9, 1000), (DrawTile(32), DrawTile(40))),
    (folded("drawn-odd", TopElements(2, 16, False, with_places=False), 3, 5, 333), (DrawTile(16),)),
    (folded("drawn-coarse", Places(1, 7), 6, 1201, dtype=DType.BF16), (DrawTile(40),)),
    (folded("drawn-alike", Places(1, 9), 5, 251, dtype=DType.F16, span=0), (DrawTile(16),)),
    (hidden(folded("drawn-hidden", Places(1, 12), 4, 77)), (DrawTile(8),)),
    (folded("drawn-apart", TopElements(1, 6, with_places=False), 2, 77, 5), (DrawTile(3),)),
    (folded("drawn-integers", Places(1, 11, False), 7, 900, dtype=DType.I32, span=9), (DrawTile(29),)),
    (folded("drawn-numbers", Places(1, 3, False), 9, 201, dtype=DType.I32, span=90000), (DrawTile(7),)),
    (folded("drawn-many", TopElements(1, 32, with_places=False), 7, 1024), (DrawTile(32), DrawTile(40))),
    (folded("drawn-most", Places(1, 25, False), 5, 510, dtype=DType.BF16), (DrawTile(24),)),
    (hidden(folded("drawn-most-hidden", Places(1, 32), 4, 333)), (DrawTile(16),)),
    (folded("drawn-single", Places(1, 8), 5, 1201, dtype=DType.F32), (DrawTile(38),)),
    (folded("running", CumSum(1), 11, 333), (ScanRunsTile(32), ScanRunsTile(256))),
    (folded("running-far", CumSum(1, True), 2, 21007),
     (ScanRunsTile(256, 3), ScanRunsTile(256, 2), ScanPassedTile(4, 4), ScanPassedTile(8, 4))),
    (folded("running-far-back", CumProd(1, False, True), 1, 33000, dtype=DType.I8, span=2),
     (ScanRunsTile(256, 3), ScanPassedTile(4, 2))),
    (folded("running-far-numbers", CumSum(1, False, True), 3, 5001, dtype=DType.I64, span=9), (ScanPassedTile(4, 5),)),
    (folded("running-back", CumSum(1, True, True), 3, 2503), (ScanRunsTile(32), ScanRunsTile(256))),
    (folded("running-bytes", CumSum(2, True), 3, 5, 77, dtype=DType.I8, span=9), (ScanRunsTile(32),)),
    (folded("running-products", CumProd(1, False, True), 5, 61, span=1), (ScanRunsTile(32),)),
    (folded("running-long", CumSum(1), 3, 1201, dtype=DType.I64, span=9), (ScanRunsTile(32), ScanRunsTile(256))),
    (folded("running-down", CumSum(1), 2, 150, 48), (ScanColumnsTile(8, 4), ScanColumnsTile(2, 16))),
    (folded("running-up", CumSum(0, True, True), 333, 37), (ScanColumnsTile(1, 32), ScanColumnsTile(1, 64))),
    (folded("running-down-far", CumSum(1), 2, 1500, 48), (ScanPassedColumnsTile(8, 8), ScanPassedColumnsTile(8, 32))),
    (folded("running-up-far", CumSum(0, True, True), 333, 37), (ScanPassedColumnsTile(1, 32),)),
    (folded("running-products-far", CumProd(1), 1, 1300, 34, dtype=DType.I64, span=1), (ScanPassedColumnsTile(2, 16),)),
    (folded("running-slabs", CumSum(1), 5, 203, 13), (ScanSlabTile(1, 203), ScanSlabTile(2, 24), ScanSlabTile(2, 19))),
    (folded("running-slabs-back", CumSum(1, True, True), 3, 77, 65), (ScanSlabTile(1, 77), ScanSlabTile(2, 16))),
    (folded("running-slabs-products", CumProd(1), 4, 41, 3, dtype=DType.I64, span=2), (ScanSlabTile(2, 8),)),
    (folded("running-slabs-bytes", CumSum(0), 150, 37, dtype=DType.I8, span=9), (ScanSlabTile(2, 40),)),
    (folded("running-wide", CumProd(1, True), 2, 50, 6, dtype=DType.I32, span=2), (ScanColumnsTile(2, 16),)),
    (folded("several-wide", Places(1, 5), 3, 40, dtype=DType.I32, span=5),
     sorts((32, 2, 2), (32, 1, 2), (256, 1, 1), (1024, 1, 0))),
    (folded("chosen", Places(1, 30), 9, 100), selects((32, 4, 1), (32, 5, 3), (64, 2, 1))),
    (folded("chosen-last", Places(1, 47, False, True), 2, 170, 5, dtype=DType.I8, span=9),
     selects((32, 6, 3), (64, 3, 5))),
    (folded("chosen-flags", Places(1, 40, True, True), 3, 161, dtype=DType.BOOL, span=1),
     selects((32, 6, 3), (128, 2, 3))),
    (folded("chosen-numbers", Places(2, 300, False), 2, 3, 1700), selects((128, 14, 11), (256, 7, 15))),
    (folded("chosen-alike", Places(0, 600, True, True), 9001, 1, dtype=DType.U16, span=3), selects((512, 18, 19),)),
    (folded("chosen-wide", Places(1, 65), 3, 140, dtype=DType.I32, span=5), selects((32, 5, 3), (64, 3, 5))),
    (folded("chosen-pairs", Places(2, 300), 2, 3, 1000), selects((32, 32, 11), (64, 16, 15), (256, 8, 11))),
    (folded("chosen-pairs-least", Places(1, 60, False), 7, 245, dtype=DType.BF16), selects((32, 8, 3), (64, 8, 3))),
    (hidden(folded("chosen-pairs-worst", Places(2, 60), 3, 7, 101)), selects((32, 8, 3),)),
    (hidden(folded("chosen-worst", Places(2, 60), 3, 7, 101)), selects((32, 4, 3),)),
    (folded("few", Places(1, 5), 33, 96), fews((16, 8, 4, 2), (2, 8, 2, 8), (1, 8, 2, 8), (4, 8, 1, 8))),
    (folded("few-apart", Places(1, 2, False), 2, 21, 67), fews((1, 2, 16, 1), (4, 2, 6, 1))),
    (folded("few-wide", Places(1, 11), 5, 203, dtype=DType.I32, span=90), fews((8, 16, 16, 1), (32, 16, 16, 1))),
    (folded("few-lines", Places(1, 8), 133, 64), (FewLinesTile(1, 8), FewLinesTile(2, 8))),
    (folded("few-lines-values", TopElements(2, 6, with_places=False), 3, 77, 160),
     (FewLinesTile(2, 8), FewLinesTile(4, 8), FewLinesTile(1, 8))),
    (folded("few-lines-least", TopElements(1, 15, False, with_places=False), 41, 328, dtype=DType.BF16),
     (FewLinesTile(8, 16), FewLinesTile(1, 16))),
    (folded("few-lines-wide", TopElements(1, 2, with_places=False), 71, 100, dtype=DType.I32, span=90000),
     (FewLinesTile(4, 2), FewLinesTile(1, 2))),
    (folded("few-lines-bytes", TopElements(1, 3, False, with_places=False), 71, 112, dtype=DType.U8, span=90),
     (FewLinesTile(2, 4),)),
    (hidden(folded("few-lines-worst", TopElements(2, 4, with_places=False), 3, 7, 96)), (FewLinesTile(2, 4),)),
    (folded("few-lines-alike", TopElements(1, 4, with_places=False), 33, 64, span=0), (FewLinesTile(1, 4),)),
    (hidden(folded("few-worst", Places(2, 3), 3, 7, 101)), fews((8, 4, 16, 1),)),
    (folded("sifted", Places(1, 30), 5, 1000), sifts((32, 32, 4, 128, 128, 16), (128, 8, 4, 128, 512, 4))),
    (folded("sifted-odd", Places(1, 20, False), 3, 1001, dtype=DType.BF16),
     sifts((32, 40, 4, 128, 128, 16), (64, 16, 4, 64, 256, 8))),
    (folded("sifted-apart", Places(1, 47), 2, 1700, 3, dtype=DType.I8, span=90), sifts((256, 7, 4, 256, 1024, 4),)),
    (folded("sifted-wide", Places(1, 25, False), 3, 801, dtype=DType.I32, span=9000), sifts((32, 26, 4, 128, 128, 8),)),
    (hidden(folded("sifted-worst", Places(2, 30), 3, 7, 301)), sifts((32, 10, 4, 128, 128, 4),)),
    (folded("parted", Places(1, 50), 2, 9001),
     (PartTile(2040, 64, 32, 4, 128, 256, 16, 128, 5, 4, 128, 512, 2),
      PartTile(4088, 128, 32, 4, 160, 512, 16, 128, 5, 4, 128, 512, 2),
      PartTile(1000, 64, 16, 4, 128, 256, 8, 256, 5, 4, 256, 1024, 2))),
    (folded("parted-apart", Places(1, 20, False), 2, 4001, 3, dtype=DType.I32, span=90000),
     (PartTile(1024, 64, 16, 4, 128, 256, 16, 64, 8, 4, 64, 512, 2),)),
    (folded("values", TopElements(2, 30, with_places=False), 2, 3, 300),
     (*selects((32, 16, 1)), *sorts((32, 1, 10)), *counts(64), *sifts((32, 16, 4, 128, 128, 4)))),
    (folded("values-apart", TopElements(1, 5, False, with_places=False), 3, 77, 4),
     (*fews((4, 8, 16, 1)), *sorts((256, 1, 1)))),
    (folded("values-of-parts", TopElements(1, 50, with_places=False), 2, 9001),
     (PartTile(2040, 64, 32, 4, 128, 256, 16, 128, 5, 4, 128, 512, 2),)),
    (folded("binned", Places(1, 300), 5, 300),
     bins((32, 16, 12, 384, 512), (64, 8, 8, 320, 256), (128, 3, 4, 384, 1024))),
    (folded("binned-values", TopElements(2, 997, with_places=False), 2, 3, 997),
     bins((128, 8, 12, 1024, 2048), (64, 16, 20, 1024, 1024))),
    (folded("binned-coarse", TopElements(1, 410, False, with_places=False), 5, 801, dtype=DType.BF16),
     bins((32, 32, 28, 896, 512), (256, 8, 8, 1024, 2048))),
    (folded("binned-apart", TopElements(1, 97, with_places=False), 2, 120, 7),
     bins((32, 4, 4, 128, 256), (64, 2, 4, 128, 256))),
    (folded("binned-wide", TopElements(1, 300, False, with_places=False), 3, 301, dtype=DType.I32, span=90000),
     bins((64, 5, 8, 320, 512),)),
    (folded("binned-alike", TopElements(1, 203, with_places=False), 5, 203, span=0), bins((32, 8, 8, 256, 512),)),
    (folded("binned-bytes", Places(1, 150, False), 7, 250, dtype=DType.U8, span=255), bins((64, 4, 8, 256, 256),)),
    (hidden(folded("binned-worst", TopElements(2, 77, with_places=False), 3, 7, 101)), bins((32, 4, 4, 128, 128),)),
    (folded("bounded", Places(1, 10), 5, 300, dtype=DType.I64, span=100000), bounds((32, 10, 32), (128, 3, 32))),
    (folded("bounded-values", TopElements(1, 40, False, with_places=False), 2, 1500, dtype=DType.I64, span=1 << 40),
     bounds((128, 12, 64), (512, 3, 128), (128, 0, 64))),
    (folded("bounded-apart", TopElements(1, 33, with_places=False), 2, 301, 3, dtype=DType.F64),
     bounds((32, 10, 64), (512, 1, 64))),
    (folded("bounded-alike", Places(1, 50), 3, 700, dtype=DType.I64, span=3), bounds((32, 22, 64), (128, 6, 64))),
    (folded("bounded-same", Places(1, 20, False), 3, 200, dtype=DType.I64, span=1), bounds((128, 2, 32), (512, 0, 32))),
    (folded("bounded-whole", Places(1, 60), 9, 60, dtype=DType.I64, span=30), bounds((32, 2, 64),)),
    (folded("counted", Places(1, 700), 3, 900), counts(32, 256)),
    (folded("counted-long", Places(1, 900, False), 3, 900, dtype=DType.I64, span=70000), counts(64, 1024)),
    (folded("counted-doubles", Places(1, 150), 2, 301, 3, dtype=DType.F64), counts(128)),
    (folded("counted-alike", Places(0, 9001), 9001, 1, dtype=DType.U16, span=3), counts(512)),
    (folded("class-even", Places(1, 1), 2, 37, 8, 24), columns((64, 1), (4, 3))),
    (folded("pixels", Reduce("mean", (1,), False), 3, 1999, 57), pixels((256, 7), (512, 1))),
    (folded("pixels-colours", Reduce("l2", (1,), False), 5, 701, 3), pixels((256, 1), (512, 1))),
    (folded("pixels-greatest", Places(1, 1), 3, 1211, 19), pixels((256, 1), (256, 5))),
    (folded("pixels-least", Places(1, 1, False, True), 3, 411, 9, dtype=DType.I32, span=9), pixels((256, 2))),
    (folded("clusters", Reduce("mean", (1,), False), 3, 1999, 57), clusters((256, 8), (512, 4))),
    (folded("clusters-colours", Reduce("l2", (1,), False), 5, 2701, 3), clusters((256, 2), (512, 2))),
    (folded("clusters-chain", Reduce("mean", (2, 3)), 2, 13, 29, 31, epilogue=FACTORS, operands=(OPERAND,)),
     clusters((256, 4), (256, 2))),
    (folded("clusters-greatest", Places(1, 1), 3, 1211, 19), clusters((256, 8),)),
    (folded("clusters-least", Places(1, 1, False, True), 3, 1411, 9, dtype=DType.I64, span=9), clusters((256, 4),)),
    (folded("together", Reduce("mean", (0, 2), False), 41, 5, 333), together((8, 2), (32, 4))),
    (folded("together-chain", Reduce("sum", (0, 2, 3)), 61, 13, 13, 13, epilogue=FACTORS, operands=(OPERAND,)),
     together((16, 2),)),
    (folded("together-top", Places(1, 1), 2, 70001), together((32, 8), (8, 2))),
    (folded("together-integers", Reduce("min", (1,), False), 2, 9001, dtype=DType.I64, span=9), together((16, 4),)),
    (folded("slabs", Reduce("max", (2,), False), 3, 211, 20), slabs((1, 256), (2, 128))),
    (folded("slabs-odd", Reduce("mean", (1,)), 1501, 33), slabs((2, 256), (4, 64), (1, 512))),
    (folded("slabs-chain", Reduce("sum", (2, 3)), 9, 13, 5, 13, epilogue=FACTORS, operands=(OPERAND,)),
     slabs((8, 64), (4, 128))),
    (folded("slabs-long", Reduce("l2", (1,), False), 77, 101), slabs((32, 16), (16, 16))),
    (folded("slabs-top", Places(2, 1), 7, 131, 17), slabs((1, 256), (4, 128))),
    (folded("slabs-last", Places(1, 1, False, True), 700, 9, dtype=DType.I8, span=3), slabs((1, 512), (2, 512))),
    (folded("slabs-integers", Reduce("min", (1,), False), 901, 5, dtype=DType.I64, span=9), slabs((1, 256),)),
    (folded("slabs-any", Reduce("max", (1,), False), 3000, 3, dtype=DType.BOOL, span=1), slabs((1, 2048),)),
    (folded("slabs-windows", Pool("max", (5,), (5,), (0,), (0,), (1,)), 3, 57, 45), slabs((1, 512), (2, 256))),
    (folded("slabs-means", Pool("average", (1, 4), (1, 4), (0, 0), (0, 0), (1, 1)), 2, 13, 5, 44), slabs((1, 1024),)),
    (hidden(folded("worst", Places(1, 1), 3, 11, 25)), (*columns((4, 1), (8, 3)), *pixels((256, 1)))),
    (hidden(folded("worst-of-rows", Places(2, 1), 3, 7, 101)), runs((8, 8, 1), (1, 256, 3))),
)  # fmt: skip
"""Of each layer cuts that prediction would not put first, with several of all that they state."""
_SHORT = (
    (folded("running-short", CumSum(2, True), 3, 13, 128), (ScanRunsTile(8), ScanRunsTile(16))),
    (folded("running-shared", CumSum(1), 3, 203, 13), (ScanClusterTile(8), ScanClusterTile(2))),
    (folded("running-shared-back", CumSum(1, True, True), 2, 77, 65), (ScanClusterTile(4),)),
    (folded("running-shared-products", CumProd(1), 2, 43, 3, dtype=DType.I64, span=2), (ScanClusterTile(8),)),
    (folded("running-shared-bytes", CumSum(0), 150, 37, dtype=DType.I8, span=9), (ScanClusterTile(4),)),
    (folded("running-parts", CumSum(1), 2, 703, 13), (ScanPartsTile(24), ScanPartsTile(360))),
    (folded("running-parts-back", CumSum(1, True, True), 3, 77, 65), (ScanPartsTile(8),)),
    (folded("running-parts-products", CumProd(1), 1, 343, 3, dtype=DType.I64, span=2), (ScanPartsTile(16),)),
    (folded("running-parts-bytes", CumSum(0), 350, 37, dtype=DType.I8, span=9), (ScanPartsTile(40),)),
    (folded("running-shorter", CumSum(1, False, True), 37, 57, dtype=DType.F32), (ScanRunsTile(8), ScanRunsTile(16))),
)
"""Lines of a part of a warp, and slabs that blocks share."""


def candidate(tile: Tile) -> Candidate:
    return Candidate("portable", (("algorithm", ALGORITHMS[type(tile)]), *tile.parameters), tile.settings)


def _stated(layer: Layer, tiles: tuple[Tile, ...]) -> Iterator[Trial]:
    """In each layout those of the form that serves it; the first where results have the model's wider type."""
    for trial in (each for of in asked([layer]) for each in trials_of(of, "portable")):
        problem = trial.step.problem
        offered = {dict(each.parameters)["algorithm"] for each in PORTABLE.candidates(problem, TARGET)[0]}
        stored = problem.outputs[0].format.dtype
        for tile in tiles[:1] if stored is DType.F32 and layer.precision is DType.F16 else tiles:
            if dict(candidate(tile).parameters)["algorithm"] not in offered:
                continue
            if (reason := PORTABLE.refuse(problem, candidate(tile), TARGET)) is not None:
                raise ValueError(f"{layer.label} {tile}: {reason}")
            yield replace(trial, candidate=candidate(tile))


def fold_trials() -> list[Trial]:
    """As they are, and some in fp32."""
    found: list[Trial] = []
    for index, (layer, tiles) in enumerate(TILES):
        found += list(_stated(layer, tiles))
        if index % 3 == 0 and layer.precision is DType.F16 and layer.inputs[0].dtype is DType.F32:
            found += list(_stated(replace(layer, precision=DType.F32, tolerance=1e-5), tiles[:1]))
    return list({trial.label: trial for trial in found}.values())


def short_scan_trials() -> list[Trial]:
    return [trial for layer, tiles in _SHORT for trial in _stated(layer, tiles)]
