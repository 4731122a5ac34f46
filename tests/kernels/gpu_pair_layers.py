"""What is tried on a GPU of two products in one kernel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from families_harness import Layer
from families_layers import RELU
from gpu_asked import asked
from gpu_harness import Trial
from gpu_pairs import pair, ranked, registers, resident_pairs, shared, thin, warpgroups, with_pair_tiles
from gpu_products import GELU, RESIDUAL, SILU, conv, matmul

from bolt_build.dtypes import DType
from bolt_build.families.cutlass.problems.product import aligned
from bolt_build.graph.ir import EpilogueOp, TensorType


def behind(x: Layer, filters: int, epilogue: tuple[EpilogueOp, ...] = (RELU,), *, bias: bool = True) -> Layer:
    """The pair of a convolution and a 1x1 convolution behind it."""
    (output,) = x.op.infer([TensorType(DType.F16, given.shape) for given in x.inputs])
    return pair(x, conv(f"{filters}", output.shape, filters, (1, 1), epilogue=epilogue, bias=bias))


def product_behind(a: Layer, columns: int, transposed: bool, epilogue: tuple[EpilogueOp, ...]) -> Layer:
    """The pair of two matrix products."""
    (output,) = a.op.infer([TensorType(DType.F16, given.shape) for given in a.inputs])
    return pair(a, matmul(f"{columns}", output.shape, columns, transposed, epilogue))


# The paper's tables of back-to-back products, with smaller images, and what they do not have.
PAIRS = [
    behind(conv("pair-stem-48", (2, 3, 38, 42), 48, (3, 3), 2), 48),
    behind(conv("pair-stem-64", (1, 3, 64, 64), 64, (7, 7), 2), 64),
    behind(conv("pair-48s2", (2, 48, 26, 22), 48, (3, 3), 2), 48),
    behind(conv("pair-48", (2, 48, 13, 11), 48, (3, 3)), 48),
    behind(conv("pair-64s2", (2, 64, 26, 22), 64, (3, 3), 2), 64),
    behind(conv("pair-64", (2, 64, 13, 11), 64, (3, 3)), 64),
    behind(conv("pair-128-residual", (2, 128, 13, 11), 128, (3, 3)), 128, RESIDUAL),
    behind(conv("pair-odd", (2, 20, 9, 10), 46, (3, 3)), 72),
    behind(conv("pair-no-bias", (2, 32, 9, 10), 32, (3, 3), bias=False), 32, (), bias=False),
    behind(conv("pair-silu-gelu", (2, 64, 9, 10), 64, (1, 1), epilogue=SILU), 64, GELU),
    product_behind(matmul("pair-matmul-64-256", (333, 256), 64, True, (RELU,)), 16, True, (RELU,)),
    product_behind(matmul("pair-matmul-128-576", (300, 576), 128, False, (RELU,)), 64, False, (RELU,)),
]
# Of widths or depths that only WGMMA computes.
WARPGROUP_PAIRS = [
    behind(conv("pair-expands-residual", (2, 64, 13, 11), 64, (3, 3)), 256, RESIDUAL),
    behind(conv("pair-narrows", (2, 40, 9, 10), 96, (1, 1)), 24),
    behind(conv("pair-one", (2, 16, 9, 10), 1, (3, 3)), 8),
    behind(conv("pair-odd-1x1", (2, 33, 9, 10), 45, (1, 1)), 40),
    behind(conv("pair-thin", (2, 3, 20, 22), 48, (3, 3)), 48),
    product_behind(matmul("pair-matmul-32-96", (777, 96), 32, True, (RELU,)), 96, False, SILU),
    product_behind(matmul("pair-matmul-1-4", (130, 4), 1, False, (RELU,)), 8, True, ()),
]


def random_pairs(count: int, seed: int) -> list[Layer]:
    """Chains of random shapes, of any number of channels up to the widest that one tile holds."""
    random = np.random.default_rng(seed)
    found = []
    for index in range(count):
        channels, between = (int(value) for value in random.integers(1, 100, 2))
        extents = tuple(int(value) for value in random.integers(5, 20, 2))
        kernel, stride = (int(random.choice(some)) for some in ((1, 3, 5), (1, 2)))
        epilogue = (RELU,) if random.random() < 0.7 else SILU
        first = conv(
            f"pair-random-{index}", (int(random.integers(1, 4)), channels, *extents), between, (kernel, kernel), stride,
            epilogue=epilogue, bias=bool(random.random() < 0.7),
        )  # fmt: skip
        filters, behind_it = 8 * int(random.integers(1, 33)), (RESIDUAL, (), (RELU,))[index % 3]
        found.append(behind(first, filters, epilogue=behind_it))
    return found


def pair_trials() -> list[Trial]:
    """Each pair with the first kernel of either kind of instruction, where there is one; and forms of both."""
    found = []
    for layer in asked(random_pairs(12, seed=6)):
        found += ranked(layer, warpgroups=True)
    for layer in asked((*PAIRS, *WARPGROUP_PAIRS)):
        found += ranked(layer, warpgroups=True)
    for layer in asked(PAIRS):
        found += ranked(layer, warpgroups=False)
    found += with_pair_tiles(
        behind(conv("pair-form-3x3s2", (3, 64, 27, 23), 64, (3, 3), 2), 72, epilogue=RESIDUAL),
        (
            warpgroups(64, 64, 80, 64, together=False), warpgroups(128, 64, 96, 32, together=False),
            warpgroups(128, 96, 80, 64, together=True), warpgroups(256, 64, 96, 64, together=True),
            warpgroups(64, 128, 128, 128, together=False), shared(128, 64, 128, 32, (64, 32, 64)),
            shared(64, 64, 128, 64, (32, 32, 64)),
        ),
    )  # fmt: skip
    found += with_pair_tiles(
        behind(conv("pair-registers", (3, 64, 27, 23), 40, (3, 3), 2), 56, epilogue=RESIDUAL),
        (registers(64, 64, 64, 32, 16), registers(128, 64, 64, 64, 32), registers(128, 128, 64, 32, 32)),
    )
    return found + pairs_with_resident_weights() + thin_pairs()


def thin_pairs() -> list[Trial]:
    """Runs of 32, 16 and 8 columns in either product, alone and behind each other; rows that no tile divides, fewer
    than warps and more than one round of them; residuals over which the result is stored, rows that lie apart, and no
    biases."""
    found = []
    for channels, shape, between, first, filters, second, bias, forms in (
        (40, (8, 49, 57), 160, GELU, 40, RESIDUAL, True, ((32, 12), (16, 8))),
        (24, (1, 5, 7), 96, GELU, 24, RESIDUAL, True, ((32, 16), (16, 24))),
        (56, (3, 19, 9), 32, (RELU,), 72, (), False, ((16, 8),)),
        (8, (2, 33, 11), 64, SILU, 96, (RELU,), True, ((32, 8),)),
        (33, (2, 9, 10), 48, SILU, 40, RESIDUAL, True, ((16, 16),)),
        (32, (2, 21, 13), 16, (), 88, (), True, ((16, 12), (32, 8))),
        (96, (3, 19, 9), 384, GELU, 48, RESIDUAL, True, ((32, 8),)),
    ):
        batch, height, width = shape
        x = conv(f"pair-few-{channels}", (batch, channels, height, width), between, (1, 1), epilogue=first, bias=bias)
        found += with_pair_tiles(
            behind(x, filters, second, bias=bias), thin(aligned(channels), between, filters, *forms)
        )
        if second == ():
            found += [replace(trial, pitch=filters + 16, between=16) for trial in found[-1:]]
    rows = matmul("pair-few-matmul", (3001, 64), 128, False, (RELU,))
    return found + with_pair_tiles(product_behind(rows, 16, True, ()), thin(64, 128, 16, (32, 12)))


def pairs_with_resident_weights() -> list[Trial]:
    """Every height and width of the tiles, in either order: ragged images, more tiles than multiprocessors, residuals
    over which the result is stored, columns between that no tile divides, a first layer whose windows are folded."""
    found = []
    for layer, tiles in (
        (behind(conv("pair-resident", (2, 64, 17, 23), 64, (3, 3)), 256, RESIDUAL), resident_pairs(256, 4, 4, 8, 14)),
        (behind(conv("pair-resident-many", (7, 64, 90, 70), 64, (3, 3)), 200, RESIDUAL), resident_pairs(256, 4, 8, 14)),
        (
            behind(conv("pair-resident-odd", (3, 40, 19, 9), 45, (3, 3), epilogue=SILU), 72, RESIDUAL),
            resident_pairs(128, 3, 4, 8, 14),
        ),
        (behind(conv("pair-resident-48", (5, 48, 56, 56), 48, (3, 3)), 48), resident_pairs(64, 3, 8, 14)),
        (
            behind(conv("pair-resident-valid", (2, 16, 20, 9), 24, (3, 3), pads=((0, 0), (0, 0))), 136, (), bias=False),
            resident_pairs(192, 1, 8),
        ),
        (behind(conv("pair-resident-folded", (2, 3, 38, 42), 48, (3, 3), 2), 48), resident_pairs(64, 2, 8)),
    ):  # fmt: skip
        found += with_pair_tiles(layer, tiles)
    return found
