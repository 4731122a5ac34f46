"""Products of pairs: of two terms and of one, turned, of odd columns, of rows that are no whole instruction deep."""

from __future__ import annotations

from families_harness import Input, Layer
from gpu_harness import Trial, trials_of
from gpu_products import TOLERANCE

from bolt_build.dtypes import DType
from bolt_build.graph.ops.products.pair_product import PairProduct, groups

Shape = tuple[int, ...]


def picks(lines: int, places: int, *, turned: bool = False) -> tuple[Input, Input]:
    """Of lines with places: least positions that no group is 48 from another one's, and what is more."""
    pairs = (places, lines) if turned else (lines, places)
    least = Input(groups(lines, places), True, 10.5, 57.4, DType.I32)
    return least, Input(pairs, True, 0.1, 79.9, DType.U8)


def layer(label: str, op: PairProduct, *inputs: Input) -> Layer:
    return Layer(f"pair-products-{label}", op, inputs, (), DType.F16, TOLERANCE)


def heads(images: int, heads: int, tokens: int, depth: int) -> tuple[Shape, Shape, Shape]:
    """Of rows [images, tokens, heads * depth]: what makes each head's lines."""
    return (images, tokens, heads, depth), (0, 2, 1, 3), (images, heads, tokens, depth)


PAIR_PRODUCTS = [
    layer(
        "of-both",
        PairProduct((2, 3, 70, 88), (heads(2, 3, 70, 40), heads(2, 3, 88, 40)), (False, True), (0.5, -0.25)),
        Input((2, 70, 120)), Input((3, 150, 40), True), Input((2, 88, 120)), Input((2, 3, 140, 40), True),
        *picks(70, 88), *picks(88, 70, turned=True),
    ),
    layer(
        "odd", PairProduct((2, 2, 17, 67), (((17, 2, 2, 64), (1, 2, 0, 3), (2, 2, 17, 64)),), (False,), (0.5,)),
        Input((17, 2, 128)), Input((2, 137, 64), True), *picks(17, 67),
    ),
    layer(
        "turned", PairProduct((3, 65, 30), (((3, 30, 16), (0, 1, 2), (3, 30, 16)),), (True,), (1.0,)),
        Input((3, 30, 16)), Input((140, 16), True), *picks(30, 65, turned=True),
    ),
]  # fmt: skip


def pair_products() -> list[Trial]:
    """Of each layer every kernel, and the plain one of the smallest."""
    kernels = [trial for each in PAIR_PRODUCTS for trial in trials_of(each, "portable", 2, kind="together")]
    return [*kernels, *trials_of(PAIR_PRODUCTS[-1], "portable", 9)[-2:]]
