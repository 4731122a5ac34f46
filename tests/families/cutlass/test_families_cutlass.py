"""CUTLASS kernels: what is offered for which problem, with which tiles, and the source that instantiates them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from families_cutlass import A100, FAMILY, H200, SAME, conv, emitted, first, reasons, steps
from families_harness import Input, Layer, graph_with
from families_layers import RELU, stage

from bolt_build.dtypes import DType
from bolt_build.families import load
from bolt_build.families.base import Expense, KernelProblem, StepExpressions, bound
from bolt_build.families.cutlass.kinds.kind import Offers
from bolt_build.families.cutlass.kinds.warpgroups.wgmma import WGMMA_TILES
from bolt_build.families.cutlass.kinds.warps.warp import TILES
from bolt_build.families.cutlass.one_product import ProductKind
from bolt_build.families.cutlass.problems.conv import product_of
from bolt_build.graph.ir import EpilogueOp
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.targets import CUDA, HOST, Target, target_named


def test_every_gpu_has_this_family_first() -> None:
    for target in CUDA:
        assert [family.name for family in load(target)] == ["cutlass", "grouped", "attention", "portable"]


def test_layers_that_are_alike_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many of them a network has."""
    asked: list[KernelProblem] = []
    offers = ProductKind.offers

    def counted(kind: ProductKind, problem: KernelProblem, target: Target) -> Offers:  # type: ignore[type-arg]
        asked.append(problem)
        return offers(kind, problem, target)

    monkeypatch.setattr(ProductKind, "offers", counted)
    layer = conv((3, 24, 7, 5), (56, 24, 3, 3))
    (step,) = steps(layer)
    once = len(asked)
    assert once > 0
    assert [other.problem for other in steps(layer)] == [step.problem]
    FAMILY.candidates(step.problem, H200)
    assert len(asked) == once


def test_offers_a_convolution_channels_last() -> None:
    (step,) = steps(conv((2, 16, 8, 8), (32, 16, 3, 3)))
    assert [str(operand.format) for operand in step.problem.inputs] == ["f16/channels_last", "f16/row", "f32/row"]
    assert str(step.problem.outputs[0].format) == "f16/channels_last"


def test_offers_a_first_layer_also_from_the_planes_of_an_image() -> None:
    layer = conv((2, 3, 8, 8), (32, 3, 3, 3))
    found = [str(step.problem.inputs[0].format) for step in steps(layer)]
    assert found == ["f16/channels_last", "f32/row", "f16/row"]


def test_a_window_of_one_pixel_is_a_matrix_product() -> None:
    kernel, arguments, call = emitted(conv((2, 16, 8, 8), (32, 16, 1, 1), Conv((1, 1), (0, 0), (0, 0), (1, 1))))
    assert kernel.startswith("Gemm<Tile<")
    assert kernel.endswith(", 8, 16>, Epilogue<>, AsItIs>")
    assert arguments == (
        'GemmArguments{.m = 128, .n = 32, .k = 16}, AsItIs{}, Constant{w1, "w1"}, '
        "Filter{.outputs = 32, .channels = 16, .rows = 1, .taps = 1, .to_taps = 1, .to_channels = 16}, "
        'Constant{w2, "w2"}, epilogue()'
    )
    assert call == "kernel.run(r, x0, nullptr, y);"


def test_a_first_layer_pads_while_it_changes_the_layout() -> None:
    """46 channels of an input in planes of fp32: one copy, not two."""
    layer = conv((2, 46, 8, 9), (32, 46, 3, 3))
    found = steps(layer)
    assert [str(step.problem.inputs[0].format) for step in found] == ["f16/channels_last", "f32/row"]
    planes = found[1].problem
    candidates = FAMILY.candidates(planes, H200)[0]
    assert all("loads" not in dict(candidate.parameters) for candidate in candidates)
    code = FAMILY.emit(planes, candidates[0], H200, StepExpressions(("x", "w", "b"), ("y",), (None, "w", "b")))
    assert "bolt::cutlass_kernels::Widened<float>{" in code.member_arguments
    assert (
        ".image = 3312, .row = 9, .column = 1, .channel = 72, .to_width = 9, .to_channels = 48" in code.member_arguments
    )
    assert FAMILY.expense(planes).copied_as == "f16/channels_last of 48 channels"
    graph, node = graph_with(layer)
    inner = replace(graph, inputs=())
    assert len(FAMILY.propose(inner, node, H200, DType.F16)[0]) == 1


def emitted_by(layer: Layer, loads: int) -> tuple[str, str]:
    """Member type and arguments of the first kernel that loads so many elements at once."""
    problem = steps(layer)[0].problem
    candidates = FAMILY.candidates(problem, H200)[0]
    candidate = next(c for c in candidates if dict(c.parameters).get("loads", 8) == loads)
    at = StepExpressions(("x", "w", "b"), ("y",), (None, "w", "b"))
    code = FAMILY.emit(problem, candidate, H200, at)
    texts = (code.member_type or "", code.member_arguments)
    kernel, arguments = (t.replace("bolt::cutlass_kernels::", "").replace("bolt::", "") for t in texts)
    return kernel, arguments


def test_channels_are_padded_to_whole_loads() -> None:
    _, arguments = emitted_by(conv((2, 12, 8, 9), (32, 12, 3, 3)), 8)
    assert ".channels = 16, .out_channels = 32" in arguments
    assert (
        "Widened<portable::f16>{Widen{.batch = 2, .height = 8, .width = 9, .channels = 12, .image = 864, .row = 108, "
        ".column = 12, .channel = 1, .to_width = 9, .to_channels = 16, .left = 0}}"
    ) in arguments


@pytest.mark.parametrize(("channels", "loads"), [(12, 4), (46, 2), (174, 2)])
def test_or_read_as_they_are_with_narrower_loads(channels: int, loads: int) -> None:
    layer = conv((32, channels, 20, 26), (32, channels, 3, 3))
    kernel, arguments = emitted_by(layer, loads)
    assert f", 8, 16, {loads}>, Epilogue<>, AsItIs>" in kernel
    assert f".channels = {channels}, .out_channels = 32" in arguments
    assert f".to_taps = 3, .to_channels = {channels}}}" in arguments
    problem = steps(layer)[0].problem
    candidates = FAMILY.candidates(problem, H200)[0]
    assert {dict(c.parameters).get("loads", 8) for c in candidates[:3]} == {8, loads}
    narrow = next(c for c in candidates if "loads" in dict(c.parameters))
    assert FAMILY.expense(problem, narrow) == Expense(problem.nbytes, problem.flops)
    assert FAMILY.expense(problem).copied == 32 * 20 * 26 * (channels + 8 - channels % 8) * 2
    (unit,) = FAMILY.units([(problem, narrow)], H200)
    assert f", 8, 16, {loads}>" in unit.text


@pytest.mark.parametrize("channels", [16, 45])
def test_whole_loads_and_odd_channels_have_no_narrow_ones(channels: int) -> None:
    """Threads copy 4 bytes to shared memory at least."""
    problem = steps(conv((2, channels, 8, 9), (32, channels, 3, 3)))[0].problem
    assert all("loads" not in dict(c.parameters) for c in FAMILY.candidates(problem, H200)[0])


def test_rows_of_the_output_can_be_stored_apart() -> None:
    """But not where a row of the product is two pixels, which lie beside each other."""
    layer = conv((2, 64, 8, 8), (40, 64, 3, 3))
    (step,) = steps(layer)
    assert step.pitched == (0,)
    _, candidate = first(layer)
    at = StepExpressions(("x", "w", "b"), ("y",), (None, "w", "b"), (128,))
    assert ", .y_row = 128}" in FAMILY.emit(step.problem, candidate, H200, at).member_arguments
    first_layer = conv((32, 3, 224, 224), (64, 3, 3, 3))
    assert {product_of(step.problem).n: step.pitched for step in steps(first_layer)} == {128: ()}


def test_a_last_matrix_product_also_leaves_fp32() -> None:
    """Sums of slices are fp32 anyway: whoever adds them up stores them as they are, and nothing converts them. Kernels
    of WGMMA store them so themselves."""
    layer = Layer("fc", MatMul(False, True), (Input((32, 512)), Input((1000, 512), True)), (), DType.F16)
    half, full = steps(layer)
    assert [str(step.problem.outputs[0].format) for step in (half, full)] == ["f16/row", "f32/row"]
    candidates, refusals = FAMILY.candidates(full.problem, H200)
    sliced = [candidate for candidate in candidates if "partial" in dict(candidate.parameters)]
    whole = [candidate for candidate in candidates if candidate not in sliced]
    assert sliced
    assert all("warpgroups" in dict(candidate.parameters) for candidate in whole)
    assert "stores half precision: only split-K's partial sums are in fp32" in {refusal.reason for refusal in refusals}
    code = FAMILY.emit(full.problem, sliced[0], H200, StepExpressions(("x", "w"), ("y",), (None, "w")))
    assert (code.member_type or "").endswith(", bolt::cutlass_kernels::AsItIs, float>")
    assert ".slices = " in code.member_arguments


def test_words_of_a_vocabulary_in_fp32_need_not_be_whole_stores() -> None:
    """TMA stores boxes of half precision, whose rows are multiples of 16 bytes; results in fp32 go one by one."""
    layer = Layer("words", MatMul(), (Input((256, 512)), Input((512, 30521), True)), (), DType.F16)
    half, full = steps(layer)
    assert not any("warpgroups" in dict(c.parameters) for c in FAMILY.candidates(half.problem, H200)[0])
    candidate = FAMILY.candidates(full.problem, H200)[0][0]
    assert {"warpgroups"} <= set(dict(candidate.parameters))
    code = FAMILY.emit(full.problem, candidate, H200, StepExpressions(("x", "w"), ("y",), (None, "w")))
    assert code.includes == ("bolt_cutlass/plans/prepared.h", "bolt_cutlass/plans/wide.h")
    unit = FAMILY.units([(full.problem, candidate)], H200)[0]
    assert unit.text.startswith('#include "bolt_cutlass/units/gemm_wide_warpgroup_kernel.h"')
    assert "Wide<bolt::cutlass_kernels::Epilogue<>>" in unit.text
    assert bound(full.problem, H200) < FAMILY.predict(full.problem, candidate, H200)


def test_a_matrix_product_in_between_does_not() -> None:
    graph, node = graph_with(
        Layer("fc", MatMul(False, True), (Input((32, 512)), Input((64, 512), True)), (), DType.F16)
    )
    inner = replace(graph, outputs=())
    assert len(FAMILY.propose(inner, node, H200, DType.F16)[0]) == 1


def test_rows_of_a_first_layers_windows_overlap() -> None:
    """Eleven pixels of three channels become one run of 12 x 4; the next begins four pixels, 32 bytes, further."""
    op = Conv((4, 4), (2, 2), (2, 2), (1, 1))
    _, arguments, _ = emitted(conv((1, 3, 224, 224), (64, 3, 11, 11), op))
    assert ".width = 55, .channels = 48, .out_channels = 64, .kernel_h = 11, .kernel_w = 1" in arguments
    assert ".pad_h = 2, .pad_w = 0, .stride_h = 4, .stride_w = 1" in arguments
    assert ".x_image = 204288, .x_row = 912, .x_column = 16}" in arguments
    assert ".to_width = 228, .to_channels = 4, .left = 2" in arguments


def test_a_first_layer_with_a_stride_of_two_is_one_over_cells_of_two_by_two_pixels() -> None:
    """Four cells of 2 x 2 x 4 become one run of 64; the next column begins one cell, 32 bytes, further."""
    op = Conv((2, 2), (3, 3), (3, 3), (1, 1))
    _, arguments, _ = emitted(conv((32, 3, 224, 224), (64, 3, 7, 7), op))
    assert ".height = 115, .width = 112, .channels = 64, .out_channels = 64, .kernel_h = 4, .kernel_w = 1" in arguments
    assert ".pad_h = 0, .pad_w = 0, .stride_h = 1, .stride_w = 1" in arguments
    assert ".x_image = 211600, .x_row = 1840, .x_column = 16}" in arguments
    assert ".rows = 115, .columns = 115, .top = 3, .left = 3}}" in arguments
    assert "FoldedFilter{.outputs = 64, .channels = 3, .kernel_h = 7, .kernel_w = 7, .rows = 4, .taps = 4}" in arguments


def test_a_first_layer_with_a_stride_of_one_is_computed_two_columns_at_a_time() -> None:
    pair = product_of(steps(conv((2, 3, 8, 10), (16, 3, 3, 3)))[0].problem)
    assert (pair.m, pair.n, pair.depth, pair.taps) == (2 * 8 * 10 // 2, 2 * 16, 4 * 4, 3)
    shape = dict(pair.shape)
    # A run of four pixels of four channels, which begins at every second one.
    assert (shape["channels"], shape["x_column"], shape["width"], shape["out_w"]) == (16, 8, 5, 5)
    assert pair.weights == (
        "bolt::cutlass_kernels::FilterBeside{.outputs = 16, .channels = 3, .rows = 3, .taps = 3, .to_taps = 4, "
        ".to_channels = 4}"
    )


@pytest.mark.parametrize(
    ("x", "w", "rest"),
    [
        ((2, 3, 8, 9), (16, 3, 3, 3), ()),  # an odd number of columns
        ((2, 3, 8, 10), (12, 3, 3, 3), ()),  # rows of the output that are no whole stores
        ((2, 5, 8, 10), (16, 5, 3, 3), ()),  # pixels of more than four channels
        ((2, 3, 8, 10), (256, 3, 3, 3), ()),  # wide enough one by one
        ((2, 3, 8, 10), (16, 3, 3, 3), (Input((2, 16, 8, 10)),)),  # a residual
    ],
    ids=["odd", "narrow", "deep", "wide", "residual"],
)
def test_or_one_at_a_time(x: tuple[int, ...], w: tuple[int, ...], rest: tuple[Input, ...]) -> None:
    single = product_of(steps(conv(x, w, SAME, *rest, stages=(stage("add", 3),) if rest else ()))[0].problem)
    assert (single.m, single.n) == (x[0] * x[2] * x[3], w[0])


def test_the_residual_is_read_by_the_kernel_and_may_be_its_output() -> None:
    layer = conv((2, 16, 8, 8), (32, 16, 3, 3), SAME, Input((2, 32, 8, 8)), stages=(stage("add", 3), RELU))
    kernel, arguments, call = emitted(layer)
    assert "Epilogue<Join<portable::Add, false>, Map<portable::Relu>>" in kernel
    assert arguments.endswith("epilogue(join<portable::Add, false>(), map(portable::Relu{}))")
    assert call == "kernel.run(r, x0, x3, y);"
    assert steps(layer)[0].may_share == ((3, 0),)


@pytest.mark.parametrize(("filters", "access"), [(64, 8), (12, 4), (10, 2), (7, 1)])
def test_stores_as_much_at_once_as_divides_a_pixel(filters: int, access: int) -> None:
    kernel, _, _ = emitted(conv((2, 16, 8, 8), (filters, 16, 3, 3)), A100)
    assert f", {access}, 16>" in kernel


def test_units_are_shared_by_problems_and_named_by_their_text() -> None:
    small, large = conv((2, 64, 28, 28), (64, 64, 3, 3)), conv((2, 128, 28, 28), (64, 128, 3, 3))
    tile = first(small, A100)[1]
    pairs = [(first(layer, A100)[0], tile) for layer in (small, small, large)]
    (unit,) = FAMILY.units(pairs, A100)
    lines = unit.text.splitlines()
    assert lines[0] == '#include "bolt_cutlass/units/conv_kernel.h"'
    assert lines[2] == "template void bolt::cutlass_kernels::launch_conv("
    assert unit.name.startswith("k_")
    assert unit.name.endswith(".cu")
    other = FAMILY.units([(first(conv((2, 64, 28, 28), (64, 64, 3, 3), stages=(RELU,)), A100)[0], tile)], A100)
    assert [u.name for u in other] != [unit.name]


def test_hopper_has_units_of_its_own() -> None:
    layer = conv((32, 128, 28, 28), (128, 128, 3, 3))
    headers = [FAMILY.units([first(layer, target)], target)[0].text.splitlines()[0] for target in (A100, H200)]
    assert headers == [
        '#include "bolt_cutlass/units/conv_kernel.h"',
        '#include "bolt_cutlass/units/conv_warpgroup_kernel.h"',
    ]


def test_every_kernel_is_a_unit_of_its_own() -> None:
    """So that an engine compiles its winners alone, and what tuning compiled serves the final link."""
    problem = first(conv((32, 64, 56, 56), (64, 64, 3, 3)))[0]
    candidates = [c for c in FAMILY.candidates(problem, H200)[0] if "warpgroups" in dict(c.parameters)][:3]
    units = FAMILY.units([(problem, candidate) for candidate in candidates], H200)
    assert FAMILY.units([(problem, candidate) for candidate in candidates[::-1]], H200) == units
    assert {unit.name for unit in units} == {FAMILY.units([(problem, c)], H200)[0].name for c in candidates}
    for unit in units:
        assert unit.text.count("#include") == unit.text.count("template void") == 1
        assert unit.memory_mb == 700


def test_warpgroup_tiles_are_refused_with_reasons() -> None:
    problem = first(
        conv((2, 16, 8, 8), (12, 16, 3, 3), replace(SAME, dilations=(64, 1), pads_begin=(64, 1), pads_end=(64, 1)))
    )[0]
    product = product_of(problem)
    tile, hopper, ampere = WGMMA_TILES[0], H200.gpu, A100.gpu
    assert hopper is not None
    assert ampere is not None
    assert tile.refuse(ampere, product) == "needs WGMMA"
    assert tile.refuse(hopper, product) == "stores 8 columns at once, 12 is no multiple"
    wide = replace(product, n=16)
    assert tile.refuse(hopper, wide) == "windows reach over 128 positions, TMA takes 127 at most"
    near = replace(wide, reach=1)
    assert tile.refuse(hopper, near) == "over half of its columns would be beyond the 16 of the product"
    deep = replace(near, n=64)
    assert tile.refuse(hopper, deep) == "half of its depth would be beyond the 16 of the product"
    assert tile.refuse(hopper, replace(deep, depth=64)) is None


def test_values_of_activations_are_no_part_of_a_unit() -> None:
    def unit(low: float) -> str:
        clip = EpilogueOp(Activation("clip", low, 6.0))
        return FAMILY.units([first(conv((2, 64, 28, 28), (64, 64, 3, 3), stages=(clip,)))], H200)[0].name

    assert unit(0.0) == unit(-1.0)


def test_says_why_a_problem_is_left_to_others() -> None:
    wide = (2, 16, 8, 8)
    weights = (32, 16, 3, 3)
    grouped = Layer("g", replace(SAME, groups=4), (Input(wide), Input((32, 4, 3, 3), True)), (), DType.F16)
    given = Layer("g", SAME, (Input(wide), Input(weights)), (), DType.F16)
    volume = Conv((1,) * 3, (0,) * 3, (0,) * 3, (1,) * 3)
    assert reasons(grouped) == ["has no groups, here are 4"]
    assert reasons(given) == ["weights and bias must be constants, to be packed when the engine loads"]
    assert reasons(conv((1, 8, 4, 4, 4), (8, 8, 1, 1, 1), volume)) == ["convolves over one or two spatial axes, not 3"]
    assert reasons(conv((1, 16, 40, 40), (8, 16, 33, 1), Conv((1, 1), (0, 0), (0, 0), (1, 1)))) == [
        "windows have at most 32 taps along an axis, not 33"
    ]
    scaled = conv(wide, weights, SAME, Input((32, 1, 1)), stages=(stage("mul", 3),))
    assert reasons(scaled) == ["an epilogue operand [32, 1, 1] is no tensor like [2, 32, 8, 8]"]
    of_rows = conv(wide, weights, SAME, Input((8, 1), True), stages=(stage("mul", 3),))
    assert reasons(of_rows) == ["a constant epilogue operand [8, 1] is not one number a channel"]
    assert reasons(replace(conv(wide, weights), precision=DType.F32)) == ["takes tensors in f16 or bf16, not in f32"]
    assert reasons(conv((512, 64, 224, 224), (64, 64, 3, 3))) == [
        "a tensor of 3288334336 bytes is beyond the reach of 32-bit offsets"
    ]
    batched = Layer("m", MatMul(), (Input((2, 4, 8)), Input((2, 8, 8), True)), (), DType.F16)
    assert reasons(batched) == ["multiplies rows by one matrix"]
    pooled = Layer("p", Pool("max", (2, 2), (2, 2), (0, 0), (0, 0), (1, 1)), (Input(wide),), (), DType.F16)
    assert reasons(pooled) == [f"{pooled.op.kind} is left to other families"]
    assert reasons(conv(wide, weights), HOST) == ["target 'host' has no tensor cores"]


@pytest.mark.parametrize("target", CUDA, ids=lambda target: target.name)
def test_every_gpu_runs_what_it_is_offered(target: Target) -> None:
    """Shared memory suffices, stages fit the copies that there are, and something is left for every width."""
    assert target.gpu is not None
    for columns in (1, 7, 32, 33, 64, 1000):
        legal = [tile for tile in TILES if tile.refuse_columns(target.gpu, columns) is None]
        assert legal
        for tile in legal:
            assert tile.shared_bytes <= target.gpu.shared_memory
            assert (tile.stages == 2) == (not target.gpu.async_copies)
            assert tile.m % tile.warp_m == 0
            assert tile.n % tile.warp_n == 0
            assert tile.warps <= 16


def test_refused_tiles_have_reasons() -> None:
    gpu, small = H200.gpu, target_named("t4").gpu
    assert gpu is not None
    assert small is not None
    largest = next(tile for tile in TILES if (tile.m, tile.n, tile.k) == (128, 256, 64))
    narrow = next(tile for tile in TILES if tile.n == 32)
    assert largest.refuse_columns(small, 256) == "needs 147456 bytes of shared memory, a block has 65536"
    assert largest.refuse_columns(gpu, 64) == "over half of its columns would be beyond the 64 of the product"
    assert narrow.refuse_columns(gpu, 64) == "a narrow tile reads the rows again for every 32 of 64 columns"
    assert TILES[11].refuse_columns(replace(small, shared_memory=1 << 20), 64) == "more than two stages need cp.async"
    assert TILES[14].refuse_columns(gpu, 128) == "two stages leave cp.async unused"


def test_larger_products_take_longer() -> None:
    def seconds(batch: int) -> float:
        graph, node = graph_with(conv((batch, 128, 28, 28), (128, 128, 3, 3)))
        return FAMILY.propose(graph, node, H200, DType.F16)[0][0].seconds

    times = [seconds(batch) for batch in (1, 8, 32, 128)]
    assert times == sorted(times)
    assert times[-1] > 4 * times[0]
