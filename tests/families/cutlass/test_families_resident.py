"""Kernels whose weights stay in registers: how those lie, what a tile reads, and which products suit."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from compiled_headers import library_of
from families_harness import graph_with
from gpu_products import RESIDUAL, conv, matmul
from hypothesis import given, settings
from hypothesis import strategies as st

from bolt_build import runtime
from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, StepExpressions
from bolt_build.families.cutlass.family import Cutlass
from bolt_build.families.cutlass.kinds.windows.resident import RESIDENT_TILES, ResidentTile
from bolt_build.families.cutlass.one_product import Kernel, ProductKind
from bolt_build.families.cutlass.problems.product import work
from bolt_build.families.cutlass.problems.products import product_of
from bolt_build.families.cutlass.registry import KINDS
from bolt_build.graph.ir import Array
from bolt_build.targets import Gpu, target_named

H200, A100 = target_named("h200"), target_named("a100")
FAMILY = Cutlass()
TURNS = ResidentTile(14, 4, together=False)
(RESIDENT,) = (kind for kind in KINDS if isinstance(kind, ProductKind) and TURNS in kind.tiles)
Pack = Callable[[str, Array, Sequence[int], Sequence[int]], Array]

_PACK = """
#include "bolt_cutlass/plans/packing.h"
struct Memory : bolt::Prepare {
  void* to;
  explicit Memory(void* memory) : to(memory) {}
  int threads() const override { return 1; }
  const void* weight(int) const override { return nullptr; }
  std::shared_ptr<const void> shared(const std::string&, std::size_t,
                                     bolt::FunctionRef<void(void*)> fill) const override {
    fill(to);
    return nullptr;
  }
};
using namespace bolt::cutlass_kernels;
template <typename Layout>
int packed(const void* from, void* to, const Layout& layout, const int* f) {
  try {
    pack(Memory(to), Constant{from, "w"}, ResidentFilter{layout, Fragments{f[0], f[1], f[2], f[3], f[4], f[5]}});
  } catch (const std::length_error&) {
    return 1;
  }
  return 0;
}
#define PACK(Layout)                                                                            \\
  extern "C" int pack_##Layout(const void* from, void* to, const int* l, const int* f) {        \\
    return packed(from, to, Layout{l[0], l[1], l[2], l[3], l[4], l[5]}, f);                     \\
  }
PACK(Filter)
PACK(FilterBeside)
PACK(FoldedFilter)
"""


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Pack:
    """A layout, weights as the model has them, the layout's fields, and those of Fragments -> what the kernel reads."""
    includes = (runtime.include_dir(), FAMILY.include_dir)
    library = library_of(tmp_path_factory.mktemp("pack"), _PACK, includes, ("-O1",))

    def packed(layout: str, weights: Array, fields: Sequence[int], fragments: Sequence[int]) -> Array:
        _, height, width, _, groups, steps = fragments
        weights = np.ascontiguousarray(weights, np.float16)
        found = np.full((groups, width, height, steps, 128, 4, 2), np.nan, np.float16)
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (weights, found)]
        if getattr(library, f"pack_{layout}")(*pointers, (ctypes.c_int * 6)(*fields), (ctypes.c_int * 6)(*fragments)):
            raise ValueError("the layout has not as many weights")
        return found

    return packed


def left_factor(registers: Array) -> Array:
    """[64, 16] from the [128, 4, 2] halves in the registers of 128 threads, as PTX lays out the A operand of
    wgmma.m64nNk16: a thread's pairs are of one row and the eighth below it, then of the eight columns behind."""
    thread, word, half = np.indices((128, 4, 2))
    found = np.full((64, 16), np.nan, np.float16)
    found[thread // 32 * 16 + thread % 32 // 4 + word % 2 * 8, thread % 4 * 2 + word // 2 * 8 + half] = registers
    return found


def random_weights(shape: tuple[int, ...], seed: int) -> Array:
    return np.random.default_rng(seed).integers(-8, 8, shape).astype(np.float16)


def check_fragments(packed: Array, wanted: Array) -> None:
    """`wanted`: [outputs, rows, columns, depth] of the windows."""
    groups, width, height, steps = packed.shape[:4]
    padded = np.zeros((groups * 64, height, width, steps * 16), np.float16)
    padded[: wanted.shape[0], ..., : wanted.shape[3]] = wanted
    for group, column, row, step in np.ndindex(groups, width, height, steps):
        rows, depth = slice(group * 64, group * 64 + 64), slice(step * 16, step * 16 + 16)
        np.testing.assert_array_equal(left_factor(packed[group, column, row, step]), padded[rows, row, column, depth])


@settings(max_examples=25, deadline=None)
@given(
    outputs=st.integers(1, 150), channels=st.integers(1, 64), window=st.tuples(st.integers(1, 4), st.integers(1, 3)),
    more=st.integers(0, 1), seed=st.integers(0, 99),
)  # fmt: skip
def test_every_weight_lies_where_its_thread_multiplies_it(
    pack: Pack, outputs: int, channels: int, window: tuple[int, int], more: int, seed: int
) -> None:
    height, width = window
    groups, steps, depth = -(-outputs // 64) + more, -(-channels // 16), -(-channels // 8) * 8
    weights = random_weights((outputs, channels, height, width), seed)
    fields = (outputs, channels, height, width, width, depth)
    packed = pack("Filter", weights, fields, (outputs, height, width, depth, groups, steps))
    check_fragments(packed, weights.transpose(0, 2, 3, 1))


def test_rows_of_windows_are_one_deep_tap(pack: Pack) -> None:
    weights = random_weights((24, 3, 3, 3), 0)
    packed = pack("Filter", weights, (24, 3, 3, 3, 4, 8), (24, 3, 1, 32, 1, 2))
    wanted = np.zeros((24, 3, 4, 8), np.float16)
    wanted[:, :, :3, :3] = weights.transpose(0, 2, 3, 1)
    check_fragments(packed, wanted.reshape(24, 3, 1, 32))


def test_two_results_beside_each_other_have_a_filter_each(pack: Pack) -> None:
    weights = random_weights((40, 3, 3, 3), 1)
    packed = pack("FilterBeside", weights, (40, 3, 3, 3, 4, 4), (80, 3, 1, 16, 2, 1))
    wanted = np.zeros((2, 40, 3, 4, 4), np.float16)
    for result in range(2):
        wanted[result, :, :, result : result + 3, :3] = weights.transpose(0, 2, 3, 1)
    check_fragments(packed, wanted.reshape(80, 3, 1, 16))


def test_cells_of_two_by_two_pixels_are_one_deep_tap(pack: Pack) -> None:
    weights = random_weights((64, 3, 7, 7), 2)
    packed = pack("FoldedFilter", weights, (64, 3, 7, 7, 4, 4), (64, 4, 1, 64, 1, 4))
    even = np.zeros((64, 4, 8, 8), np.float16)
    even[:, :3, :7, :7] = weights
    wanted = even.reshape(64, 4, 4, 2, 4, 2).transpose(0, 2, 4, 3, 5, 1)
    check_fragments(packed, wanted.reshape(64, 4, 1, 64))


def test_a_layout_of_other_weights_is_no_fragments(pack: Pack) -> None:
    with pytest.raises(ValueError, match="the layout has not as many weights"):
        pack("Filter", random_weights((8, 8, 3, 3), 0), (8, 8, 3, 3, 3, 8), (8, 3, 3, 16, 1, 1))


def box(image: Array, row: int, column: int, height: int, width: int) -> Array:
    """[height * width, 64]: what TMA leaves of [rows, columns, channels], zero beyond it."""
    found = np.zeros((height, width, 64), np.float32)
    for y, x in np.ndindex(height, width):
        if 0 <= row + y < image.shape[0] and 0 <= column + x < image.shape[1]:
            found[y, x, : image.shape[2]] = image[row + y, column + x]
    return found.reshape(height * width, 64)


@settings(max_examples=15, deadline=None)
@given(
    shape=st.sampled_from(((4, 8), (8, 8), (14, 8), (16, 8), (14, 16), (16, 16))), channels=st.integers(1, 64),
    window=st.sampled_from(((3, 3), (4, 1), (3, 1), (2, 2))), pad=st.integers(0, 1),
    extent=st.tuples(st.integers(1, 19), st.integers(1, 19)), seed=st.integers(0, 99),
)  # fmt: skip
def test_shifted_boxes_hold_the_windows_of_a_tile(
    pack: Pack, shape: tuple[int, int], channels: int, window: tuple[int, int], pad: int, extent: tuple[int, int],
    seed: int,
) -> None:  # fmt: skip
    """What the kernel sums for a tile is the convolution there: a row of taps further down begins a row of the box
    further on."""
    (rows, wide), (taps_h, taps_w), steps = shape, window, -(-channels // 16)
    image = np.random.default_rng(seed).integers(-8, 8, (*extent, channels)).astype(np.float32)
    weights = random_weights((64, channels, taps_h, taps_w), seed)
    fields = (64, channels, taps_h, taps_w, taps_w, channels)
    packed = pack("Filter", weights, fields, (64, taps_h, taps_w, channels, 1, steps))
    height, width = extent[0] + 2 * pad - taps_h + 1, extent[1] + 2 * pad - taps_w + 1
    padded = np.pad(image, ((pad, pad + rows), (pad, pad + wide), (0, 0)))
    for row, column in ((r, c) for r in range(0, height, rows) for c in range(0, width, wide)):
        sums = np.zeros((64, rows * wide), np.float32)
        for shift in range(taps_w):
            loaded = box(image, row - pad, column + shift - pad, rows + taps_h - 1, wide)
            for tap, step in np.ndindex(taps_h, steps):
                left = left_factor(packed[0, shift, tap, step]).astype(np.float32)
                sums += left @ loaded[tap * wide : tap * wide + rows * wide, step * 16 : step * 16 + 16].T
        for y, x in np.ndindex(min(rows, height - row), min(wide, width - column)):
            here = padded[row + y : row + y + taps_h, column + x : column + x + taps_w]
            wanted = np.einsum("kcrs,rsc->k", weights.astype(np.float32), here)
            np.testing.assert_array_equal(sums[:, y * wide + x], wanted)


def gpu() -> Gpu:
    assert H200.gpu is not None
    return H200.gpu


def problem(
    x: tuple[int, ...], filters: int, stride: int = 1, *, kernel: int = 3, residual: bool = False
) -> KernelProblem:
    layer = conv("c", x, filters, (kernel, kernel), stride, epilogue=RESIDUAL if residual else ())
    graph, node = graph_with(layer)
    return FAMILY.propose(graph, node, H200, DType.F16)[0][0].steps[0].problem


@given(st.sampled_from(RESIDENT_TILES))
def test_a_candidate_says_which_tile_it_is(tile: ResidentTile) -> None:
    assert RESIDENT.kernel_of(Kernel(tile).candidate()) == Kernel(tile)


def test_why_tiles_are_none() -> None:
    good = product_of(problem((2, 64, 28, 28), 64))
    assert TURNS.refuse(gpu(), good) is None
    assert A100.gpu is not None
    assert TURNS.refuse(A100.gpu, good) == "needs WGMMA"
    strided = product_of(problem((2, 64, 28, 28), 64, 2))
    assert TURNS.refuse(gpu(), strided) == "takes convolutions with a stride and a dilation of one"
    assert TURNS.refuse(gpu(), replace(good, n=12)) == "stores 8 columns at once, 12 is no multiple"
    deep = product_of(problem((2, 72, 28, 28), 64))
    assert TURNS.refuse(gpu(), deep) == "holds weights of 64 channels at most in registers, here are 72"
    fewer = product_of(problem((2, 48, 28, 28), 64))
    assert TURNS.refuse(gpu(), fewer) == "multiplies 64 channels a tap, here are 48"
    together = replace(TURNS, together=True)
    assert together.refuse(gpu(), good) == "half of its channels would be beyond the 64 of the product"
    wide = replace(TURNS, width=16)
    assert wide.refuse(gpu(), good) == "weights and accumulators take 256 registers of a thread, which has 208"
    many = product_of(problem((2, 16, 28, 28), 64, kernel=5))
    assert ResidentTile(8, 1, together=False).refuse(gpu(), many) is None
    whole = ResidentTile(16, 1, together=False)
    assert whole.refuse(gpu(), many) == "two tiles and what is stored take 237568 bytes of shared memory"
    low = product_of(problem((2, 64, 7, 28), 64))
    assert TURNS.refuse(gpu(), low) == "half of its rows would be beyond the 7 of an image"


def test_matrix_products_and_slices_are_left_to_other_tiles() -> None:
    graph, node = graph_with(matmul("m", (32, 64), 64, True, ()))
    plain = FAMILY.propose(graph, node, H200, DType.F16)[0][0].steps[0].problem
    assert not any("resident" in dict(candidate.parameters) for candidate in FAMILY.candidates(plain, H200)[0])
    candidates, _ = FAMILY.candidates(problem((1, 64, 56, 56), 64), H200)
    assert not any({"resident", "partial"} <= set(dict(candidate.parameters)) for candidate in candidates)


@pytest.mark.parametrize(
    ("x", "filters"),
    [
        ((32, 64, 56, 56), 64),
        ((32, 64, 112, 112), 128),
        ((32, 64, 224, 224), 64),
        ((32, 48, 56, 56), 48),
        ((32, 3, 224, 224), 64),
    ],
)
def test_they_are_among_the_first_candidates_wherever_they_are_legal(x: tuple[int, ...], filters: int) -> None:
    wanted = problem(x, filters)
    first = FAMILY.candidates(wanted, H200)[0][:4]
    found = [candidate for candidate in first if "resident" in dict(candidate.parameters)]
    assert found
    assert {dict(candidate.parameters)["steps"] for candidate in found} == {-(-x[1] // 16)}
    assert FAMILY.variants(wanted, found[0], H200) == ()


def test_the_kernel_and_its_weights_in_words() -> None:
    wanted, candidate = problem((2, 20, 28, 28), 72), Kernel(ResidentTile(14, 2, together=True)).candidate()
    assert str(candidate) == "cutlass rows=14 steps=2 resident=together"
    assert str(RESIDENT.kernel_of(candidate)) == "tile 14x8 pixels together, weights of 32 channels in registers"
    (unit,) = FAMILY.units([(wanted, candidate)], H200)
    assert unit.text == (
        '#include "bolt_cutlass/units/conv_resident_kernel.h"\n\n'
        "template void bolt::cutlass_kernels::launch_conv(\n"
        "    bolt::cutlass_kernels::ResidentTile<14, 2, true, 3, 3, 8>,\n"
        "    const bolt::cutlass_kernels::ConvArguments&,\n"
        "    const bolt::cutlass_kernels::Epilogue<>&, void*);\n"
    )
    names = tuple(f"x{i}" for i in range(len(wanted.inputs)))
    prepare = tuple(name if wanted.inputs[i].constant else None for i, name in enumerate(names))
    code = FAMILY.emit(wanted, candidate, H200, StepExpressions(names, ("y",), prepare))
    # The source has its own 20 channels, of which the kernel sees 24; 72 filters are two groups of 64.
    assert (
        "bolt::cutlass_kernels::ResidentFilter{bolt::cutlass_kernels::Filter{.outputs = 72, .channels = 20, .rows = 3, "
        ".taps = 3, .to_taps = 3, .to_channels = 24}, bolt::cutlass_kernels::Fragments{.outputs = 72, .taps_h = 3, "
        ".taps_w = 3, .depth = 24, .groups = 2, .steps = 2}}"
    ) in code.member_arguments
    assert "bolt::cutlass_kernels::Conv<bolt::cutlass_kernels::ResidentTile<14, 2, true, 3, 3, 8>, " in str(
        code.member_type
    )


def test_stems_are_windows_of_cells_and_first_layers_windows_of_pairs() -> None:
    wide = ResidentTile(16, 4, together=False, width=16)
    stem = product_of(problem((2, 3, 224, 224), 64, 2, kernel=7))
    assert wide.refuse(gpu(), stem) is None
    assert wide.cxx(stem, gpu()) == "bolt::cutlass_kernels::ResidentTile<16, 4, false, 4, 1, 16>"
    assert wide.packed(stem).startswith("bolt::cutlass_kernels::ResidentFilter{bolt::cutlass_kernels::FoldedFilter{")
    both = ResidentTile(16, 1, together=True, width=16)
    first = product_of(problem((2, 3, 224, 224), 64))
    assert both.refuse(gpu(), first) is None
    assert both.packed(first).endswith(
        "Fragments{.outputs = 128, .taps_h = 3, .taps_w = 1, .depth = 16, .groups = 2, .steps = 1}}"
    )


def test_blocks_are_dealt_to_groups_of_channels() -> None:
    product = product_of(problem((32, 64, 57, 56), 200))
    assert (TURNS.tiles(product), TURNS.groups(product)) == (32 * 5 * 7, 4)
    together = replace(TURNS, together=True)
    assert together.groups(product) == 2
    assert ".groups = 4, .steps = 4}" in together.packed(product)


def test_time_grows_with_the_busiest_multiprocessor() -> None:
    def predicted(batch: int) -> float:
        of = problem((batch, 64, 56, 56), 64)
        product = product_of(of)
        return TURNS.seconds(product, replace(work(of, product), nbytes=0), H200)

    # 28 tiles an image: 5 images are 140, for 132 multiprocessors.
    assert predicted(1) == predicted(4) < predicted(5) == predicted(9) < predicted(10)
