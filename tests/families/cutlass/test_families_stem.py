"""First convolutions that read an image as it lies: which suit, how candidates state them, what is emitted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from families_harness import Layer, graph_with
from gpu_products import GELU, RESIDUAL, SILU, conv
from gpu_stems import stem_trials

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem, Operand, StepExpressions, TensorFormat
from bolt_build.families.cutlass.family import Cutlass
from bolt_build.families.cutlass.kinds.windows.stem import Stem, StemTile
from bolt_build.graph.ir import Layout
from bolt_build.targets import target_named

H200, A100 = target_named("h200"), target_named("a100")
FAMILY = Cutlass()
STEM = conv("stem", (32, 3, 224, 224), 32, (3, 3), 2)


def problem_of(layer: Layer, dtype: DType = DType.F16, layout: Layout = Layout.CHANNELS_LAST) -> KernelProblem:
    """The layer channels-last, its image in a type and layout."""
    alternative = FAMILY.propose(*graph_with(layer), H200, layer.precision)[0][0]
    problem = alternative.steps[0].problem
    image = Operand(problem.inputs[0].shape, TensorFormat(dtype, layout))
    return replace(problem, inputs=(image, *problem.inputs[1:]))


def tile(rows: int = 8, columns: int = 16) -> Candidate:
    return Candidate("cutlass", StemTile(rows, columns).parameters)


def refused(layer: Layer) -> set[str]:
    return {str(each.reason) for each in FAMILY.candidates(problem_of(layer), H200)[1]}


@pytest.mark.parametrize(
    ("dtype", "layout"),
    [(DType.F16, Layout.CHANNELS_LAST), (DType.F16, Layout.ROW), (DType.F32, Layout.ROW)],
)
def test_an_image_is_read_as_it_lies_in_fewer_bytes_than_by_any_kernel_that_copies_it(
    dtype: DType, layout: Layout
) -> None:
    problem = problem_of(STEM, dtype, layout)
    first, *others = FAMILY.candidates(problem, H200)[0]
    assert "stem" in dict(first.parameters)
    (copied, *_) = (each for each in others if "stem" not in dict(each.parameters))
    assert FAMILY.expense(problem, first).nbytes == problem.nbytes
    assert FAMILY.expense(problem, copied).nbytes > problem.nbytes + problem.inputs[0].nbytes


def test_deep_windows_are_left_to_kernels_that_multiply_faster() -> None:
    """A 7x7 window over three channels is ten steps deep."""
    first, *_ = FAMILY.candidates(problem_of(conv("deep", (32, 3, 224, 224), 64, (7, 7), 2)), H200)[0]
    assert "stem" not in dict(first.parameters)


def test_gpus_before_hopper_have_it_too() -> None:
    problem = replace(problem_of(STEM), target="a100")
    assert any("stem" in dict(each.parameters) for each in FAMILY.candidates(problem, A100)[0])


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (conv("odd", (2, 3, 40, 40), 32, (3, 3)), "windows over an image as it lies begin at even elements"),
        (conv("deep", (2, 4, 60, 60), 32, (11, 11), 2), "a window over an image as it lies has 31 steps, at most 10"),
        (conv("twelve", (2, 3, 40, 40), 12, (3, 3), 2), "stores 8 channels at once, 12 is no multiple"),
        (conv("dilated", (2, 4, 40, 40), 32, (3, 3), dilation=2),
         "reads undilated windows where an image has few channels"),
    ],
)  # fmt: skip
def test_what_does_not_suit_is_refused_with_its_reason(layer: Layer, reason: str) -> None:
    assert reason in refused(layer)


def test_no_other_convolution_is_asked_about_it() -> None:
    assert not any("as it lies" in reason for reason in refused(conv("wide", (2, 8, 40, 40), 32, (3, 3), 2)))


@pytest.mark.parametrize(
    ("candidate", "reason"),
    [
        (tile(), None),
        (tile(4, 8), None),
        (tile(8, 24), "cutlass rows=8 columns=24 stem=1 is none of its candidates"),
        (tile(16, 64), "half of its positions would be beyond the 7x9 of an image"),
    ],
)
def test_tiles_that_are_none_are_refused(candidate: Candidate, reason: str | None) -> None:
    small = conv("small", (2, 3, 14, 18), 32, (3, 3), 2)
    problem = problem_of(STEM if reason is None else small)
    assert FAMILY.refuse(problem, candidate, H200) == reason


def test_shared_memory_has_room_for_the_factor_and_a_tile() -> None:
    problem = problem_of(conv("many", (2, 3, 90, 90), 64, (7, 7), 2))
    reason = FAMILY.refuse(problem, tile(16, 32), H200)
    assert reason == "takes 56608 bytes of shared memory, at most 49152 are supported"


def test_its_call_says_where_pixels_results_and_residuals_lie() -> None:
    problem = problem_of(conv("call", (2, 3, 43, 51), 32, (3, 3), 2, epilogue=RESIDUAL))
    names = tuple(f"x{index}" for index in range(4))
    at = StepExpressions(names, ("y",), (None, "w", "b", None), (48,), (5, 0, 0, 40))
    code = FAMILY.emit(problem, tile(), H200, at)
    s, p = "bolt::cutlass_kernels", "bolt::portable"
    stages = f"{s}::Join<{p}::Add, false>, {s}::Map<{p}::Relu>"
    assert code.includes == ("bolt_cutlass/plans/stem.h",)
    assert code.member_type == (
        f"{s}::StemConv<{s}::StemTile<{p}::f16, {p}::f16, false, 3, 32, 3, 3, 2, 2, -1, 8, 16>, "
        f"{s}::Epilogue<{stages}>>"
    )
    assert code.member_arguments == (
        f"{s}::StemArguments{{.batch = 2, .height = 43, .width = 51, .out_h = 22, .out_w = 26, .above = 1, .left = 1, "
        f'.x_row = 5, .y_row = 48, .residual_row = 40, .blocks = 12}}, {s}::Constant{{w, "w"}}, '
        f"{s}::StemFilter{{.outputs = 32, .channels = 3, .rows = 3, .taps = 3, .steps = 2, .planes = 1, .lead = 0, "
        f".neighbours = 4}}, "
        f'{s}::Constant{{b, "b"}}, '
        f"{s}::epilogue({s}::join<{p}::Add, false>(), {s}::map({p}::Relu{{}}))"
    )
    assert code.call == "kernel.run(r, x0, x3, y);"


def test_its_unit_names_what_is_instantiated() -> None:
    problem = problem_of(conv("unit", (2, 1, 43, 51), 24, (5, 5), 2, epilogue=SILU, bias=False), DType.F32, Layout.ROW)
    (unit,) = FAMILY.units([(problem, tile())], H200)
    assert "StemTile<bolt::portable::f16, float, true, 1, 24, 5, 5, 2, 2, -1, 8, 16>" in unit.text
    assert unit.label == "conv | silu, tile 8x16 positions of an image as it lies"


def cxx_of(problem: KernelProblem) -> str:
    """Numbers of the kernel's type, from the channels on."""
    (unit,) = FAMILY.units([(problem, tile())], H200)
    return unit.text.split("StemTile<")[1].split(">")[0].split(", ", 3)[3]


@pytest.mark.parametrize(
    ("layer", "dtype", "layout", "numbers"),
    [
        # One pixel of padding, three numbers: five are in front of them in a load of eight, and two in one of four.
        (STEM, DType.F16, Layout.CHANNELS_LAST, "3, 32, 3, 3, 2, 2, 5, 8, 16"),
        (STEM, DType.F32, Layout.CHANNELS_LAST, "3, 32, 3, 3, 2, 2, 1, 8, 16"),
        # Of a plane's row one number is padding.
        (STEM, DType.F16, Layout.ROW, "3, 32, 3, 3, 2, 2, 7, 8, 16"),
        (STEM, DType.F32, Layout.ROW, "3, 32, 3, 3, 2, 2, 3, 8, 16"),
        # A row of 299 pixels is no whole loads, another type becomes the factors' number by number, and windows of a
        # plane that are a position apart begin within words.
        (conv("odd", (8, 3, 299, 299), 32, (3, 3), 2), DType.F16, Layout.CHANNELS_LAST, "3, 32, 3, 3, 2, 2, -1, 8, 16"),
        (STEM, DType.BF16, Layout.CHANNELS_LAST, "3, 32, 3, 3, 2, 2, -1, 8, 16"),
        (conv("one", (8, 4, 224, 224), 32, (3, 3)), DType.F16, Layout.ROW, "4, 32, 3, 3, 1, 1, -1, 8, 16"),
        # Planes of a 7x7 window would be eleven steps deep.
        (conv("deep", (8, 3, 224, 224), 32, (7, 7), 2), DType.F16, Layout.ROW, "3, 32, 7, 7, 2, 2, -1, 8, 16"),
        (conv("deep", (8, 3, 224, 224), 32, (7, 7), 2), DType.F16, Layout.CHANNELS_LAST, "3, 32, 7, 7, 2, 2, 7, 8, 16"),
    ],
)  # fmt: skip
def test_rows_of_whole_loads_are_copied_as_they_are(layer: Layer, dtype: DType, layout: Layout, numbers: str) -> None:
    assert cxx_of(problem_of(layer, dtype, layout)) == numbers


def test_pixels_that_lie_apart_are_read_one_by_one_alone() -> None:
    odd = conv("odd", (8, 3, 299, 299), 32, (3, 3), 2)
    assert [Stem().reads_apart(problem_of(layer)) for layer in (STEM, odd)] == [(), (0,)]


def test_whole_loads_are_predicted_to_take_less_than_single_numbers() -> None:
    whole, single = problem_of(STEM), problem_of(STEM, DType.BF16)
    assert FAMILY.predict(whole, tile(), H200) < 0.8 * FAMILY.predict(single, tile(), H200)


def test_activations_are_part_of_the_prediction() -> None:
    many = [conv("stem", (32, 3, 224, 224), 64, (3, 3), 2, epilogue=epilogue) for epilogue in ((), GELU)]
    plain, gelu = (FAMILY.predict(problem_of(layer), tile(), H200) for layer in many)
    assert gelu > 1.1 * plain


def test_what_is_tried_on_gpus_has_every_form_of_an_image() -> None:
    forms = {str(trial.step.problem.inputs[0].format) for trial in stem_trials()}
    assert forms == {"f16/channels_last", "f16/row", "f32/row"}
    channels = {trial.step.problem.inputs[0].shape[1] for trial in stem_trials()}
    assert channels == {1, 2, 3, 4}
