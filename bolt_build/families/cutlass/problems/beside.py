"""Convolutions of few channels and a stride of one: two neighbouring results become one, which has more columns.

An image's first layer has a short depth, so that the kernel waits for loads and stores, not for products. Over pairs of
pixels there are half as many rows to load, each window one run of pixels as before but a little longer; and a result
row holds two pixels' filters, which lie beside each other in memory anyway.
"""

from __future__ import annotations

from bolt_build.families.base import KernelProblem
from bolt_build.families.common.cxx import struct
from bolt_build.families.common.problems import op_operands
from bolt_build.families.cutlass.epilogue import residual
from bolt_build.graph.ops.products.conv import Conv

_SPACE = "bolt::cutlass_kernels"
PIXEL = 4
"""Channels that a pixel takes."""
_MOST_FILTERS = 128
"""With more, the tiles of single pixels are wide enough."""


def beside(problem: KernelProblem) -> bool:
    """True where a convolution of rows of windows (`conv.thin`) is computed two columns at a time."""
    op = problem.op
    assert isinstance(op, Conv)
    own = op_operands(problem)
    x, weights, y = problem.inputs[own[0]], problem.inputs[own[1]], problem.outputs[0]
    alone = tuple(op.strides) == (1, 1) and tuple(op.dilations) == (1, 1) and residual(problem) is None
    fits = x.shape[1] <= PIXEL and weights.shape[0] % 8 == 0 and weights.shape[0] <= _MOST_FILTERS
    return alone and fits and y.shape[-1] % 2 == 0


def taps(width: int) -> int:
    """Pixels of the run that a pair of windows reads, in whole pairs."""
    return (width + 2) // 2 * 2


def weights(outputs: int, channels: int, height: int, width: int) -> str:
    """How the weights of both columns are packed, and their biases."""
    return struct(
        f"{_SPACE}::FilterBeside",
        outputs=outputs, channels=channels, rows=height, taps=width, to_taps=taps(width), to_channels=PIXEL,
    )  # fmt: skip
