"""Kernels whose sums roll through registers: what they add up, which products suit, and how candidates state them."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import numpy as np
import pytest
from families_harness import graph_with
from gpu_products import RESIDUAL, conv, matmul
from gpu_rolling import rolling_trials, tile
from hypothesis import given, settings
from hypothesis import strategies as st

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem, StepExpressions
from bolt_build.families.cutlass.family import Cutlass
from bolt_build.families.cutlass.kinds.windows.rolling import ROLLING_TILES, RollingTile, filter_bytes
from bolt_build.families.cutlass.one_product import Kernel, ProductKind
from bolt_build.families.cutlass.problems.product import Product, work
from bolt_build.families.cutlass.problems.products import product_of
from bolt_build.families.cutlass.registry import KINDS
from bolt_build.families.cutlass.settings import Settings
from bolt_build.graph.ir import Array
from bolt_build.targets import Gpu, target_named

H200, A100 = target_named("h200"), target_named("a100")
FAMILY = Cutlass()
(ROLLING,) = (kind for kind in KINDS if isinstance(kind, ProductKind) and tile(16) in kind.tiles)


def rolled(image: Array, weights: Array, pad: int, strip: int, columns: int) -> Array:
    """[rows, columns, outputs] as warpgroups compute them: strip by strip, each row of the input multiplied once for
    every column of taps, with all rows of taps side by side."""
    outputs, taps_h, taps_w, depth = weights.shape
    height, width = (image.shape[axis] + 2 * pad - taps + 1 for axis, taps in ((0, taps_h), (1, taps_w)))
    found = np.full((height, width, outputs), np.nan)
    far = max(strip, columns) + taps_h + taps_w
    padded = np.pad(image, ((pad, pad + far), (pad, pad + far), (0, 0)))
    # The lowest row of taps first: that of the output which is complete next.
    stacked = weights[:, ::-1].transpose(1, 0, 2, 3).reshape(taps_h * outputs, taps_w, depth)
    for down in range(ceil(height / strip)):
        for across in range(ceil(width / columns)):
            sums = np.zeros((columns, taps_h * outputs))
            for step in range(strip + taps_h - 1):
                loaded = padded[down * strip + step, across * columns : (across + 1) * columns + taps_w - 1]
                for shift in range(taps_w):
                    sums += loaded[shift : shift + columns] @ stacked[:, shift].T
                row, here = down * strip + step - (taps_h - 1), min(columns, width - across * columns)
                if down * strip <= row < height:
                    to = found[row, across * columns : across * columns + here]
                    assert np.isnan(to).all(), "written once"
                    to[...] = sums[:here, :outputs]
                sums = np.concatenate([sums[:, outputs:], np.zeros((columns, outputs))], axis=1)
    return found


@settings(max_examples=30, deadline=None)
@given(
    extent=st.tuples(st.integers(2, 20), st.integers(2, 20)), window=st.tuples(st.integers(1, 5), st.integers(1, 4)),
    pad=st.integers(0, 2), strip=st.integers(1, 7), columns=st.sampled_from((8, 16)), outputs=st.sampled_from((8, 24)),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_sums_that_roll_are_the_convolution(
    extent: tuple[int, int], window: tuple[int, int], pad: int, strip: int, columns: int, outputs: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    window = (min(window[0], extent[0] + 2 * pad), min(window[1], extent[1] + 2 * pad))
    image = random.integers(-8, 8, (*extent, 16)).astype(np.float64)
    weights = random.integers(-8, 8, (outputs, *window, 16)).astype(np.float64)
    padded = np.pad(image, ((pad, pad), (pad, pad), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, window, axis=(0, 1))
    np.testing.assert_array_equal(
        rolled(image, weights, pad, strip, columns), np.einsum("yxcrs,krsc->yxk", windows, weights)
    )


def gpu() -> Gpu:
    assert H200.gpu is not None
    return H200.gpu


def problem(
    x: tuple[int, ...], filters: int, stride: int = 1, *, kernel: tuple[int, int] = (3, 3), residual: bool = False
) -> KernelProblem:
    layer = conv("c", x, filters, kernel, stride, epilogue=RESIDUAL if residual else ())
    graph, node = graph_with(layer)
    return FAMILY.propose(graph, node, H200, DType.F16)[0][0].steps[0].problem


def rolling(candidates: tuple[Candidate, ...]) -> list[Candidate]:
    return [candidate for candidate in candidates if "rolling" in dict(candidate.parameters)]


@given(st.sampled_from(ROLLING_TILES), st.integers(1, 300))
def test_a_candidate_says_which_tile_it_is(tile: RollingTile, strip: int) -> None:
    candidate = Kernel(tile).candidate(Settings(strip=strip))
    assert ROLLING.kernel_of(candidate) == Kernel(tile)
    assert Settings.read(candidate.settings) == Settings(strip=strip)


# A growth layer of DenseNet, a branch of an ELAN block, a head of a U-Net, one of super-resolution.
@pytest.mark.parametrize(
    ("x", "filters"),
    [((32, 128, 56, 56), 32), ((16, 32, 80, 80), 32), ((8, 64, 256, 256), 16), ((4, 64, 180, 320), 8)],
)
def test_it_is_first_where_few_channels_are_left_of_a_large_image(x: tuple[int, ...], filters: int) -> None:
    wanted = problem(x, filters)
    assert rolling(FAMILY.candidates(wanted, H200)[0][:1])


def test_why_tiles_are_none() -> None:
    good = product_of(problem((2, 128, 28, 28), 32))
    assert tile(16).refuse(gpu(), good) is None
    assert A100.gpu is not None
    assert tile(16).refuse(A100.gpu, good) == "needs WGMMA"
    strided = product_of(problem((2, 64, 28, 28), 32, 2))
    assert tile(16).refuse(gpu(), strided) == "takes convolutions with a stride and a dilation of one"
    assert tile(16).refuse(gpu(), replace(good, n=12)) == "stores 8 columns at once, 12 is no multiple"
    assert tile(16).refuse(gpu(), replace(good, n=72)) == "is for 64 output channels at most, here are 72"
    flat = product_of(problem((2, 64, 28, 28), 32, kernel=(1, 5)))
    assert tile(16).refuse(gpu(), flat) == "its windows reach over several rows"
    high = product_of(problem((2, 64, 28, 28), 64, kernel=(5, 1)))
    assert tile(16).refuse(gpu(), high) == "an instruction has 256 columns, 5 rows of taps are 320"
    thin = product_of(problem((2, 32, 28, 28), 32))
    assert tile(16).refuse(gpu(), thin) == "half of its depth would be beyond the 32 of the product"
    assert tile(16, 32).refuse(gpu(), thin) is None
    assert tile(16, 32).refuse(gpu(), good) == "runs of 64 channels need no more zeros behind the 128 of the product"
    small = product_of(problem((2, 128, 7, 7), 32))
    assert tile(16).refuse(gpu(), small) == "half of its columns would be beyond the 7 of an image"
    assert tile(8).refuse(gpu(), small) is None
    many = product_of(problem((2, 32, 28, 28), 32, kernel=(7, 3)))
    assert tile(16, 32, 3).refuse(gpu(), many) == "a thread would hold 128 sums, three warpgroups leave room for 64"
    deep = product_of(problem((2, 256, 28, 28), 32))
    three = "shared memory has room for 2 rows beside the weights, 3 are needed"
    assert tile(16, teams=3).refuse(gpu(), deep) == three
    assert tile(16).refuse(gpu(), deep) is None


def test_matrix_products_and_slices_are_left_to_other_tiles() -> None:
    graph, node = graph_with(matmul("m", (32, 64), 64, True, ()))
    plain = FAMILY.propose(graph, node, H200, DType.F16)[0][0].steps[0].problem
    assert not rolling(FAMILY.candidates(plain, H200)[0])
    found = rolling(FAMILY.candidates(problem((1, 128, 56, 56), 32), H200)[0])
    assert found
    assert not any("partial" in dict(candidate.parameters) for candidate in found)


def test_the_kernel_in_words_and_in_cxx() -> None:
    wanted = problem((2, 100, 28, 28), 32, residual=True)
    candidate = Kernel(tile(16, 16)).candidate(Settings(strip=7))
    assert str(candidate) == "cutlass columns=16 k=16 rolling=2 strip=7"
    assert str(ROLLING.kernel_of(candidate)) == (
        "tile 4x16 pixels of 16 channels, sums rolling through each of 2 warpgroups"
    )
    assert str(tile(32, teams=1)) == "2x32 pixels of 64 channels, sums rolling through a warpgroup"
    assert FAMILY.refuse(wanted, candidate, H200) is None
    (unit,) = FAMILY.units([(wanted, candidate)], H200)
    # 100 channels are padded to 104, seven runs of 16.
    assert unit.text == (
        '#include "bolt_cutlass/units/conv_rolling_kernel.h"\n\n'
        "template void bolt::cutlass_kernels::launch_conv(\n"
        "    bolt::cutlass_kernels::RollingTile<32, 16, 7, 3, 3, 16, 2>,\n"
        "    const bolt::cutlass_kernels::ConvArguments&,\n"
        "    const bolt::cutlass_kernels::Epilogue<bolt::cutlass_kernels::Join<bolt::portable::Add, false>, "
        "bolt::cutlass_kernels::Map<bolt::portable::Relu>>&, void*);\n"
    )
    names = tuple(f"x{i}" for i in range(len(wanted.inputs)))
    prepare = tuple(name if wanted.inputs[i].constant else None for i, name in enumerate(names))
    code = FAMILY.emit(wanted, candidate, H200, StepExpressions(names, ("y",), prepare, (256,)))
    assert ".strip = 7, .y_row = 256}" in code.member_arguments
    assert "bolt::cutlass_kernels::Filter{.outputs = 32, .channels = 100, .rows = 3" in code.member_arguments


def test_a_candidate_says_how_long_its_strips_are() -> None:
    wanted = problem((2, 128, 28, 28), 32)
    lacking = Kernel(tile(16)).candidate()
    assert FAMILY.refuse(wanted, lacking, H200) == f"{lacking} has settings that it cannot have here, or lacks some"
    with pytest.raises(ValueError, match="states not all of its settings"):
        FAMILY.emit(wanted, lacking, H200, StepExpressions(("x", "w", "b"), ("y",), (None, "w", "b")))
    longest, longer = (Kernel(tile(16)).candidate(Settings(strip=strip)) for strip in (28, 29))
    assert FAMILY.refuse(wanted, longest, H200) is None
    assert FAMILY.refuse(wanted, longer, H200) == f"{longer} has settings that it cannot have here, or lacks some"


def test_other_strips_are_measured_too() -> None:
    wanted = problem((32, 128, 56, 56), 32)
    first = rolling(FAMILY.candidates(wanted, H200)[0])[0]
    strips = [dict(each.settings)["strip"] for each in (first, *FAMILY.variants(wanted, first, H200))]
    assert len(set(strips)) == len(strips) == 5
    # Every one cuts the image evenly: no shorter strip has as few parts.
    assert all(ceil(56 / (strip - 1)) > ceil(56 / strip) for strip in strips if strip > 1)


def product(batch: int, height: int = 56, width: int = 56) -> Product:
    return product_of(problem((batch, 128, height, width), 32))


def test_strips_are_dealt_to_warpgroups() -> None:
    assert tile(16).tiles(product(3), 10) == ceil(3 * 6 * 4 / 4)
    assert tile(64).tiles(product(3), 10) == 3 * 6
    assert tile(8).tiles(product(1, 7, 7), 7) == 1
    assert filter_bytes(product(1), 64) == 9 * 32 * 128 * 2


def test_images_that_leave_multiprocessors_idle_are_cut_into_short_strips() -> None:
    assert tile(64).usual(product(1), gpu()) == Settings(strip=1)
    # The rows that two strips share are multiplied twice: many images need no cuts.
    assert tile(64).usual(product(264), gpu()) == Settings(strip=56)


def test_time_grows_with_the_busiest_multiprocessor() -> None:
    def predicted(batch: int) -> float:
        of = problem((batch, 128, 7, 64), 32)
        return tile(64, teams=1).seconds(product_of(of), replace(work(of, product_of(of)), nbytes=0), H200)

    assert predicted(132) < predicted(133) == predicted(140)


def test_trials_are_of_every_number_of_channels() -> None:
    tried = rolling_trials()
    legal = [trial for trial in tried if FAMILY.refuse(trial.step.problem, trial.candidate, H200) is None]
    assert {product_of(trial.step.problem).n for trial in legal} >= {8, 16, 24, 32, 40, 48, 56, 64}
