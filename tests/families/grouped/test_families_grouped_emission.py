"""What the family of grouped convolutions emits: the steps of engines, and the units of its kernels."""

from __future__ import annotations

from dataclasses import replace

import pytest
from families_harness import Input, Layer
from families_layers import CLIP, RELU, stage
from gpu_products import RESIDUAL, conv
from grouped_tiles import BANDED, DEEP, DEPTHWISE, DIAGONAL, GROUPED, LINE, PRODUCTS, ROWS, SEVENS, SLIDING, TILE
from proposed import one_problem

from bolt_build.families.base import Candidate, KernelProblem, StepExpressions
from bolt_build.families.grouped.family import Grouped
from bolt_build.families.grouped.kind import candidate_of
from bolt_build.targets import Target, target_named

FAMILY = Grouped()
H200, T4 = target_named("h200"), target_named("t4")


def problem_of(layer: Layer) -> KernelProblem:
    return one_problem(FAMILY, layer, H200)


def emitted(
    layer: Layer, candidate: Candidate, pitch: int = 0, target: Target = H200, *, declared: tuple[str, ...] = ()
) -> tuple[str, ...]:
    problem = problem_of(layer)
    names = tuple(f"x{index}" for index in range(len(problem.inputs)))
    prepared = tuple(f"p.weight({index})" if o.constant else None for index, o in enumerate(problem.inputs))
    code = FAMILY.emit(problem, candidate, target, StepExpressions(names, ("y",), prepared, (pitch,)))
    assert code.includes == ("bolt_grouped/prepared.h", *declared)
    assert code.member_type is not None
    return code.member_type, code.member_arguments, code.call


def test_emits_a_depthwise_convolution() -> None:
    layer = conv(
        "scaled", (32, 96, 56, 56), 96, (3, 3), groups=96, epilogue=(RELU, stage("mul", 3), stage("add", 4), CLIP)
    )
    layer = replace(layer, inputs=(*layer.inputs[:3], Input((96, 1, 1), True), layer.inputs[4]))
    assert emitted(layer, candidate_of(TILE, 4), pitch=200) == (
        (
            "bolt::grouped::Conv<bolt::grouped::DepthwiseTile<"
            "bolt::grouped::Window<3, 3, 1, 1, 1, 1>, 1, 8, 12, 8, 8, 4, 96, true, 8, 8>>"
        ),
        (
            "bolt::grouped::Arguments{.batch = 32, .height = 56, .width = 56, .channels = 96, .out_h = 56, "
            ".out_w = 56, .out_channels = 96, .pad_h = 1, .pad_w = 1, .run = 4, .y_row = 200}, "
            'bolt::grouped::Constant{p.weight(1), "p.weight(1)", 1728}, '
            "bolt::grouped::Planes{.outputs = 96, .taps = 9, .to_outputs = 96}, "
            'bolt::grouped::Constant{p.weight(2), "p.weight(2)", 384}, 96, '
            'bolt::grouped::Constant{p.weight(3), "p.weight(3)", 384}'
        ),
        (
            "kernel.run(r, x0, y, bolt::portable::chain(bolt::portable::apply(bolt::portable::Relu{}), "
            "bolt::portable::combine<bolt::portable::Mul>(bolt::portable::channel<float>(kernel.constant(0))), "
            "bolt::portable::combine<bolt::portable::Add>(bolt::portable::same<bolt::portable::f16>(x4)), "
            "bolt::portable::apply(bolt::portable::Clip{-1.0f, 1.5f})));"
        ),
    )
    (unit,) = FAMILY.units([(problem_of(layer), candidate_of(TILE, run)) for run in (1, 4)], H200)
    assert unit.text == (
        '#include "bolt_grouped/depthwise_kernel.h"\n\n'
        "template void bolt::grouped::launch(\n    bolt::grouped::DepthwiseTile<"
        "bolt::grouped::Window<3, 3, 1, 1, 1, 1>, 1, 8, 12, 8, 8, 4, 96, true, 8, 8>,\n"
        "    const bolt::grouped::Arguments&,\n"
        "    const bolt::portable::Chain<bolt::portable::Apply<bolt::portable::Relu>, "
        "bolt::portable::Combine<bolt::portable::Mul, bolt::portable::Channel<float>, false>, "
        "bolt::portable::Combine<bolt::portable::Add, bolt::portable::Same<bolt::portable::f16>, false>, "
        "bolt::portable::Apply<bolt::portable::Clip>>&, void*);\n"
    )


def test_emits_a_depthwise_convolution_row_by_row() -> None:
    member, arguments, call = emitted(DEPTHWISE, candidate_of(ROWS, 1))
    tile = "bolt::grouped::RowsTile<bolt::grouped::Window<3, 3, 1, 1, 1, 1>, 4, 24, 28, 4, 14, 4, 96, 8, 8>"
    assert member == f"bolt::grouped::Conv<{tile}>"
    assert "bolt::grouped::Planes{.outputs = 96, .taps = 9, .to_outputs = 96}" in arguments
    assert call.startswith("kernel.run(r, x0, y, ")
    (unit,) = FAMILY.units([(problem_of(DEPTHWISE), candidate_of(ROWS, 1))], H200)
    assert unit.text.startswith(
        f'#include "bolt_grouped/rows_kernel.h"\n\ntemplate void bolt::grouped::launch(\n    {tile},\n'
    )
    # It has its rows, so there are no other runs.
    assert FAMILY.variants(problem_of(DEPTHWISE), candidate_of(ROWS, 1), H200) == ()


def test_emits_windows_that_slide_down_an_image() -> None:
    candidate = candidate_of(SLIDING, 1)
    assert str(candidate) == "grouped kind=sliding vector=4 lanes=12 each=7 across=8 rows=14 down=1 images=1 run=1"
    member, arguments, _ = emitted(DEPTHWISE, candidate, declared=("bolt_grouped/sliding.h",))
    tile = "bolt::grouped::SlidingTile<bolt::grouped::Window<3, 3, 1, 1, 1, 1>, 4, 12, 7, 8, 14, 1, 1, 48, 8, 8>"
    assert member == f"bolt::grouped::Conv<{tile}>"
    assert "bolt::grouped::Planes{.outputs = 96, .taps = 9, .to_outputs = 96}" in arguments
    (unit,) = FAMILY.units([(problem_of(DEPTHWISE), candidate)], H200)
    assert unit.text.startswith(
        f'#include "bolt_grouped/sliding_kernel.h"\n\ntemplate void bolt::grouped::launch(\n    {tile},\n'
    )
    # It has its rows, so there are no other runs.
    assert FAMILY.variants(problem_of(DEPTHWISE), candidate, H200) == ()


def test_emits_a_large_window_on_tensor_cores() -> None:
    member, arguments, _ = emitted(SEVENS, candidate_of(DIAGONAL, 1))
    tile = "bolt::grouped::DiagonalTile<bolt::grouped::Window<7, 7, 1, 1, 1, 1>, 4, 2, 14, 6, 40, 8, 8>"
    assert member == f"bolt::grouped::Conv<{tile}>"
    assert "bolt::grouped::Planes{.outputs = 96, .taps = 49, .to_outputs = 96}" in arguments
    (unit,) = FAMILY.units([(problem_of(SEVENS), candidate_of(DIAGONAL, 1))], H200)
    assert unit.text.startswith(
        f'#include "bolt_grouped/diagonal_kernel.h"\n\ntemplate void bolt::grouped::launch(\n    {tile},\n'
    )
    assert FAMILY.variants(problem_of(SEVENS), candidate_of(DIAGONAL, 1), H200) == ()


def test_emits_a_large_window_as_bands() -> None:
    candidate = candidate_of(BANDED, 1)
    assert str(candidate) == "grouped kind=banded pairs=8 across=7 segments=2 rows=14 run=1"
    member, arguments, _ = emitted(SEVENS, candidate, declared=("bolt_grouped/banded.h",))
    tile = "bolt::grouped::BandedTile<bolt::grouped::Window<7, 7, 1, 1, 1, 1>, 8, 7, 2, 14, 6, 8>"
    assert member == f"bolt::grouped::Conv<{tile}>"
    assert "bolt::grouped::Planes{.outputs = 96, .taps = 49, .to_outputs = 96}" in arguments
    (unit,) = FAMILY.units([(problem_of(SEVENS), candidate)], H200)
    assert unit.text.startswith(
        f'#include "bolt_grouped/banded_kernel.h"\n\ntemplate void bolt::grouped::launch(\n    {tile},\n'
    )
    assert FAMILY.variants(problem_of(SEVENS), candidate, H200) == ()


def test_emits_groups_as_products() -> None:
    layer = conv("residual", (32, 128, 56, 56), 128, (3, 3), 1, groups=32, epilogue=RESIDUAL, bias=False)
    layer = replace(layer, epilogue=(stage("add", 2), RELU))
    member, arguments, call = emitted(layer, candidate_of(PRODUCTS, 2))
    window = "bolt::grouped::Window<3, 3, 1, 1, 1, 1>"
    sizes = "8, 8, 8, 8, 8, 4, 2, 4, 1, 72, true, 8, 8"
    assert member == f"bolt::grouped::Conv<bolt::grouped::TensorCoreTile<{window}, {sizes}, 16>>"
    assert arguments == (
        "bolt::grouped::Arguments{.batch = 32, .height = 56, .width = 56, .channels = 128, .out_h = 56, .out_w = 56, "
        ".out_channels = 128, .pad_h = 1, .pad_w = 1, .run = 2}, "
        'bolt::grouped::Constant{p.weight(1), "p.weight(1)", 9216}, '
        "bolt::grouped::Fragments{.groups = 32, .joined = 2, .in_each = 4, .out_each = 4, .taps = 9, .to_units = 16, "
        '.to_tiles = 1, .instruction = 16}, bolt::grouped::Constant{nullptr, "", 0}, 128'
    )
    assert call == (
        "kernel.run(r, x0, y, bolt::portable::chain("
        "bolt::portable::combine<bolt::portable::Add>(bolt::portable::same<bolt::portable::f16>(x2)), "
        "bolt::portable::apply(bolt::portable::Relu{})));"
    )
    assert emitted(layer, candidate_of(PRODUCTS, 2), target=T4)[0].endswith(f"<{window}, {sizes}, 8>>")


def test_emits_products_whose_depth_warps_share() -> None:
    candidate = candidate_of(replace(DEEP, n=3), 1)
    assert str(candidate) == "grouped kind=deep images=2 rows=1 columns=100 warps=2 across=4 n=3 depth=2 stages=3 run=1"
    member, arguments, _ = emitted(LINE, candidate, declared=("bolt_grouped/deep.h",))
    window, sizes = "bolt::grouped::Window<1, 128, 1, 1, 1, 1>", "48, 48, 2, 1, 100, 2, 4, 7, 3, 2, 3, 56, 8, 8"
    tile = f"bolt::grouped::DeepTile<{window}, {sizes}, 16>"
    assert member == f"bolt::grouped::Conv<{tile}>"
    assert (
        "bolt::grouped::Fragments{.groups = 16, .joined = 1, .in_each = 48, .out_each = 48, .taps = 128, "
        ".to_units = 16, .to_tiles = 6, .instruction = 16}"
    ) in arguments
    (unit,) = FAMILY.units([(problem_of(LINE), candidate)], H200)
    assert unit.text.startswith(
        f'#include "bolt_grouped/deep_kernel.h"\n\ntemplate void bolt::grouped::launch(\n    {tile},\n'
    )
    # It has its positions, so there are no other runs.
    assert FAMILY.variants(problem_of(LINE), candidate, H200) == ()


@pytest.mark.parametrize("layer", [DEPTHWISE, GROUPED], ids=lambda layer: layer.label)
def test_emission_predicts_nothing(layer: Layer) -> None:
    bare = replace(H200, bandwidth=0.0, flops=(), launch_seconds=0.0)
    found = [
        each for each in FAMILY.candidates(problem_of(layer), H200)[0] if dict(each.parameters)["kind"] != "sliding"
    ]
    candidate = found[3]
    assert emitted(layer, candidate, target=bare) == emitted(layer, candidate)
    problem = problem_of(layer)
    assert FAMILY.refuse(problem, candidate, bare) is None
    assert FAMILY.units([(problem, candidate)], bare) == FAMILY.units([(problem, candidate)], H200)
