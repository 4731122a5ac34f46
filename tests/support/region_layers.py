"""Layers whose inputs say where they read: regions, moved windows, trees; and determinants and forward substitution,
which are as irregular; matrices that indices choose."""

from __future__ import annotations

from families_harness import Input, Layer

from bolt_build.dtypes import DType
from bolt_build.graph.ir import EpilogueOp
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.images.roi_align import RoiAlign
from bolt_build.graph.ops.images.roi_pool import RoiPool
from bolt_build.graph.ops.images.weighed_windows import WeighedWindows
from bolt_build.graph.ops.learned.trees import TreeLeaves
from bolt_build.graph.ops.products.chosen_matmul import ChosenMatMul
from bolt_build.graph.ops.products.deform_conv import DeformedWindows
from bolt_build.graph.ops.products.det import Det
from bolt_build.graph.ops.products.sinkhorn import Sinkhorn
from bolt_build.graph.ops.products.substitution import Substitution

REGIONS = [
    Layer(f"regions-{label}", op,
          (Input((2, 3, 9, 8)), Input((4, 4), low=-4.0, high=14.0), Input((4,), low=-2.4, high=1.9, dtype=DType.I64)))
    for label, op in (
        ("mean", RoiAlign(3, 2, 2, 0.5)), ("maximum", RoiAlign(2, 2, 3, 1.0, True)),
        ("as-they-are", RoiAlign(2, 3, 0, 1.0, False, False)), ("any-maximum", RoiAlign(1, 2, 0, 2.0, True, False)),
        ("large", RoiAlign(2, 1, 0, 70.0)),
    )
] + [
    Layer(f"regions-words-{label}", op,
          (Input((2, 24, 9, 8)), Input((5, 4), low=-4.0, high=14.0), Input((5,), low=-2.4, high=1.9, dtype=DType.I64)))
    for label, op in (
        ("mean", RoiAlign(3, 2, 2, 0.5)), ("any", RoiAlign(2, 3, 0, 1.0, False, False)),
        ("maximum", RoiAlign(1, 2, 0, 2.0, True, False)),
    )
] + [
    *(Layer(f"cells-{label}", op,
            (Input((2, 3, 9, 8)), Input((4, 4), low=-4.0, high=14.0), Input((4,), low=-2.4, high=1.9, dtype=DType.I64)))
      for label, op in (("few", RoiPool(2, 3)), ("many", RoiPool(7, 5, 0.5)), ("far", RoiPool(1, 2, 9000000.0)))),
    Layer("windows-moved", DeformedWindows((3, 2), (1, 2), (1, 0), (1, 1)),
          (Input((2, 4, 6, 7)), Input((2, 12, 6, 3), low=-2.5, high=2.5))),
    *(Layer(f"determinants-{rows}", Det(), (Input((3, 2, rows, rows), low=-1.0, high=1.0),)) for rows in (1, 3, 5)),
    *(Layer(f"substitution-{rows}", Substitution(unit), (Input((3, 2, rows, rows), low=-0.2, high=0.2),))
      for rows, unit in ((5, False), (16, True), (33, False), (64, True))),
    *(Layer(f"chosen-{label}", ChosenMatMul(turned),
            (Input((21, 9)), Input((4, 70, 9) if turned else (4, 9, 70), True),
             Input((21,), low=low, high=3.9, dtype=DType.I64, even=low == 0.0)))
      for label, turned, low in (("sorted", False, 0.0), ("turned", True, -3.9))),
    *(Layer(f"sinkhorn-{rows}x{columns}-{turns}", Sinkhorn(turns, rows_first, epsilon),
            (Input((3, 5, rows, columns), low=0.1, high=2.0),))
      for rows, columns, turns, rows_first, epsilon in (
          (4, 4, 39, False, 1e-6), (3, 5, 6, True, 0.0), (8, 8, 5, True, 1e-3), (1, 7, 4, False, 0.5))),
    Layer("windows-masked", DeformedWindows((2, 2), (2, 1), (0, 1), (2, 1), 2),
          (Input((1, 4, 7, 5)), Input((1, 16, 3, 6), low=-9.0, high=9.0), Input((1, 8, 3, 6)))),
]  # fmt: skip

WEIGHED = [
    Layer(f"weighed-{label}", op, (Input(x), Input(filters)))
    for label, op, x, filters in (
        ("images", WeighedWindows((3, 3), (1, 1), (1, 1), (1, 1)), (2, 16, 7, 6), (2, 144, 1, 1)),
        ("strides", WeighedWindows((3, 2), (2, 1), (1, 0), (1, 1), (1, 2)), (2, 6, 9, 7), (1, 36, 1, 1)),
        ("pixels", WeighedWindows((3, 3), (1, 1), (1, 1), (1, 1), shared=4), (2, 16, 5, 6), (2, 36, 5, 6)),
        ("all", WeighedWindows((5, 1), (1, 1), (2, 0), (2, 0)), (1, 12, 6, 5), (1, 5, 6, 5)),
        ("colours", WeighedWindows((3, 3), (1, 1), (1, 1), (1, 1)), (2, 3, 7, 9), (2, 9, 7, 9)),
        ("tap-by-tap", WeighedWindows((3, 3), (1, 1), (1, 1), (1, 1), turned=True), (2, 16, 7, 6), (2, 144, 1, 1)),
        ("turns", WeighedWindows((2, 2), shared=1), (2, 8, 5, 5), (2, 16, 4, 4)),
    )
] + [
    Layer("weighed-behind", WeighedWindows((3, 3), (1, 1), (1, 1), (1, 1)),
          (Input((2, 8, 6, 7)), Input((2, 72, 1, 1)), Input((8, 1, 1), True), Input((2, 8, 6, 7))),
          (EpilogueOp(Binary("add"), 2), EpilogueOp(Activation("relu")), EpilogueOp(Binary("mul"), 3))),
]  # fmt: skip

TREES = [
    Layer(f"trees-{depth}-deep", TreeLeaves(depth),
          (Input((6, 7)), Input((9,), True), Input((9, 4), True, 0.0, 6.9, DType.I32),
           Input((5,), True, 0.0, 6.9, DType.I32)))
    for depth in (0, 4)
]  # fmt: skip
