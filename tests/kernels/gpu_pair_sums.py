"""Sums of terms of pairs: picked along rows and along columns, broadcast, odd, and of several tiles."""

from __future__ import annotations

from families_harness import Input, Layer
from gpu_asked import asked
from gpu_harness import Trial, trials_of
from gpu_products import TOLERANCE

from bolt_build.dtypes import DType
from bolt_build.graph.ops.elementwise.pair_sum import PairSum

Shape = tuple[int, ...]


def _picks(lines: int, run: int, extent: int, dtype: DType = DType.I32) -> Input:
    return Input((lines, run), low=-extent + 0.6, high=extent - 0.6, dtype=dtype)


def _layer(label: str, op: PairSum, *inputs: Input) -> Layer:
    return Layer(f"pairs-{label}", op, inputs, (), DType.F16, TOLERANCE)


PAIR_SUMS = [
    _layer(
        "of-positions", PairSum((2, 3, 70, 88), (True, True, False), (False, True, False), (0.5, 0.25, 1.0)),
        Input((2, 3, 70, 40)), _picks(70, 88, 40), Input((2, 3, 88, 24)), _picks(88, 70, 24), Input((2, 1, 70, 88)),
    ),
    _layer(
        "odd", PairSum((3, 5, 13, 7), (True, False, False), (True, False, True), (1.0, -2.0, 1.0)),
        Input((1, 5, 7, 9)), _picks(7, 13, 9, DType.I64), Input((5, 1, 7)), Input((3, 1, 7, 13)),
    ),
    _layer("of-rows", PairSum((4, 66, 72), (True,), (False,), (1.0,)), Input((4, 66, 11)), _picks(66, 72, 11)),
    _layer("of-keys", PairSum((2, 2, 9, 16), (False, False), (False, False), (1.0, 1.0)),
           Input((2, 9, 16)), Input((2, 1, 1, 16))),
]  # fmt: skip


def pair_sums() -> list[Trial]:
    return [trial for layer in asked(PAIR_SUMS) for trial in trials_of(layer, "portable")]
