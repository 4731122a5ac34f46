"""Two products in one kernel: what is proposed of a graph, which kernels there are, and the C++ that calls them."""

from __future__ import annotations

import pytest
from kernel_tiles import candidate_of, ranked, tile_of
from pair_graphs import (
    A100,
    F16_LAST,
    F16_ROW,
    F32_ROW,
    FAMILY,
    H200,
    T4,
    problem,
    proposed,
    two,
)
from planner_checks import graph

from bolt_build.dtypes import DType
from bolt_build.families import load
from bolt_build.families.base import StepExpressions
from bolt_build.families.common.chains import parts
from bolt_build.families.cutlass.kinds.warps.warp_chain import WarpChainTile
from bolt_build.families.cutlass.kinds.windows.resident_chain import ResidentChainTile
from bolt_build.families.cutlass.product_chain import chain_of
from bolt_build.graph.ir import Graph
from bolt_build.targets import Target, target_named

# What is proposed.


@pytest.mark.parametrize("target", [H200, A100, T4], ids=lambda target: target.name)
def test_a_convolution_and_the_1x1_behind_it_are_a_pair(target: Target) -> None:
    (alternative,), refusals = proposed(two(), target)
    assert (alternative.region, alternative.family, refusals) == (("a", "b"), "cutlass", [])
    candidates, _ = FAMILY.candidates(alternative.steps[0].problem, target)
    assert alternative.seconds == FAMILY.predict(alternative.steps[0].problem, candidates[0], target)
    kinds = {"warpgroups" in dict(candidate.parameters) for candidate in candidates}
    assert kinds == ({True, False} if target is H200 else {False})
    assert not any(FAMILY.variants(alternative.steps[0].problem, each, target) for each in candidates)


def test_a_first_layer_is_a_pair_in_each_of_its_formats() -> None:
    stem = two(x="32,3,224,224", w="48,3,3,3")
    found, refusals = proposed(stem)
    assert refusals == []
    assert [each.steps[0].problem.inputs[0].format for each in found] == [F16_LAST, F32_ROW, F16_ROW]
    assert all(each.apart == parts(each.steps[0].problem) for each in found)


def test_widths_between_need_no_alignment() -> None:
    """Rows of 46 are padded where they lie, in registers; stored ones would have to be multiples of 8."""
    (alternative,), refusals = proposed(two(w="46,48,3,3", v="48,46,1,1"))
    assert refusals == []
    chain = chain_of(alternative.steps[0].problem)
    assert (chain.first.n, chain.second.depth, chain.second.widen) == (46, 48, None)


REFUSED = {
    "an output of the graph lies between": (
        two(outputs="%z, %y"), "what lies between is an output of the graph",
    ),
    "another reader": (
        two(more='%t = tanh(%y) // "t"', outputs="%z, %t"), "2 nodes read what lies between",
    ),
    "read twice": (
        graph("""
            graph g batch=2 (%x: f32[2,64,9,9]) -> (%z) {
              const %w: f32[64,64,3,3] #
              const %v: f32[64,64,1,1] #
              %y = conv(%x, %w) pads_begin=[1,1] pads_end=[1,1] | relu // "a"
              %z = conv(%y, %v, %y) | add(%y) // "b"
            }"""), "the second product reads what lies between twice",
    ),
    "a residual between": (
        graph("""
            graph g batch=2 (%x: f32[2,64,9,9], %r: f32[2,64,9,9]) -> (%z) {
              const %w: f32[64,64,1,1] #
              const %v: f32[64,64,1,1] #
              %y = conv(%x, %w, %r) | add(%r) // "a"
              %z = conv(%y, %v) // "b"
            }"""), "another tensor joins in between",
    ),
    "a wide window": (
        two(v="48,48,3,3"),
        "the second convolution is not 1x1 with a stride of one, without padding and without groups",
    ),
    "a stride": (
        two(second="strides=[2,2]"),
        "the second convolution is not 1x1 with a stride of one, without padding and without groups",
    ),
    "padding": (
        two(second="pads_begin=[1,1] pads_end=[0,0]"),
        "the second convolution is not 1x1 with a stride of one, without padding and without groups",
    ),
    "groups": (
        two(second="groups=2", v="48,24,1,1"),
        "the second convolution is not 1x1 with a stride of one, without padding and without groups",
    ),
    "weights that are computed": (
        graph("""
            graph g batch=2 (%x: f32[64,32], %v: f32[16,8]) -> (%z) {
              const %w: f32[32,16] #
              %y = matmul(%x, %w) | relu // "a"
              %z = matmul(%y, %v) // "b"
            }"""), "the second product's B operand is no constant",
    ),
    "a matrix product over the last axis": (
        graph("""
            graph g batch=2 (%x: f32[2,16,9]) -> (%z) {
              const %w: f32[16,16,3] #
              const %v: f32[9,8] #
              %y = conv(%x, %w) strides=[1] pads_begin=[1] pads_end=[1] dilations=[1] // "a"
              %z = matmul(%y, %v) // "b"
            }"""), "matmul behind conv does not multiply its rows",
    ),
    "outputs that are not aligned": (
        two(v="20,48,1,1"), "stores 8 columns at once, 20 is no multiple",
    ),
    "a reciprocal of zeros": (
        two(stages=(" | reciprocal", "")), "the zeros that pad rows of the first product have no reciprocal",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_pair_says_why(case: str) -> None:
    of, reason = REFUSED[case]
    assert proposed(of) == ([], [("a, b", reason)])


def test_rows_that_no_tile_holds() -> None:
    wide = two(w="512,48,1,1", v="2048,512,1,1", first="")
    assert proposed(wide) == (
        [],
        [
            ("a, b", "whole rows of 512 and 2048 do not fit one WGMMA tile"),
            ("a, b", "whole rows of 512 and 2048 do not fit one tile of warps"),
            ("a, b", "weights stay in registers for larger windows than 1x1"),
            ("a, b", "a warp keeps 96 channels at most, here are 48 and 2048"),
        ],
    )
    assert proposed(wide, A100)[1] == [
        ("a, b", "needs WGMMA"),
        ("a, b", "whole rows of 512 and 2048 do not fit one tile of warps"),
        ("a, b", "rows of single warps need launches that overlap"),
    ]


def test_three_products_are_pairs_alone() -> None:
    three = graph("""
        graph g batch=2 (%x: f32[64,32]) -> (%u) {
          const %w: f32[32,16] #
          const %v: f32[16,16] #
          const %t: f32[16,8] #
          %y = matmul(%x, %w) | relu // "a"
          %z = matmul(%y, %v) | relu // "b"
          %u = matmul(%z, %t) // "c"
        }""")
    found, refusals = proposed(three)
    assert [each.region for each in found] == [("a", "b")]
    assert refusals == [("a, b, c", "one kernel computes two products, not three")]


def test_a_pooling_behind_two_products_is_left_to_a_kernel_of_its_own() -> None:
    three = graph("""
        graph g batch=2 (%x: f32[2,64,28,28]) -> (%u) {
          const %w: f32[64,64,3,3] #
          const %v: f32[64,64,1,1] #
          %y = conv(%x, %w) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] | relu // "a"
          %z = conv(%y, %v) strides=[1,1] | relu // "b"
          %u = pool(%z) mode=max kernel=[2,2] strides=[2,2] // "c"
        }""")
    found, refusals = proposed(three)
    assert [each.region for each in found] == [("a", "b")]
    assert refusals == [("a, b, c", "one kernel computes two products, not a pooling behind them as well")]


def test_what_reads_the_product_as_its_right_factor_is_no_pair() -> None:
    of = graph("""
        graph g batch=2 (%x: f32[8,32], %t: f32[4,8]) -> (%z) {
          const %w: f32[32,16] #
          %y = matmul(%x, %w) // "a"
          %z = matmul(%t, %y) // "b"
        }""")
    assert proposed(of) == ([], [])


# Kernels.

TILES = [
    (two(), H200), (two(), A100), (two(), T4), (two(w="64,48,3,3", v="256,64,1,1"), H200),
    (two(x="8,128,28,28", w="128,128,3,3", v="128,128,1,1"), H200), (two(x="32,3,224,224", w="48,3,3,3"), H200),
    (two("pads_begin=[1,1] pads_end=[1,1]", x="32,64,56,56", w="64,64,3,3", v="256,64,1,1"), H200),
]  # fmt: skip


@pytest.mark.parametrize(("of", "target"), TILES)
def test_every_kernel_holds_whole_rows_and_fits(of: Graph, target: Target) -> None:
    gpu = target.gpu
    assert gpu is not None
    for alternative in proposed(of, target)[0]:
        given_problem = alternative.steps[0].problem
        chain = chain_of(given_problem)
        found, _ = ranked(given_problem, target)
        assert found
        for seconds, tile in found:
            assert seconds > 0
            assert tile_of(given_problem, candidate_of(tile)) == tile
            assert tile.n1 >= chain.second.n
            if isinstance(tile, ResidentChainTile):
                assert tile.first.channels >= chain.first.n
                continue
            assert tile.first.n >= chain.first.n
            if isinstance(tile, WarpChainTile):
                assert tile.shared_bytes <= gpu.shared_memory
                assert tile.first.warps in (4, 8)
                assert tile.first.n // tile.first.warp_n == tile.n1 // tile.warp_n1
                assert tile.warp_n1 <= 64
                assert tile.first.n % tile.first.k == 0
                assert tile.shared or (tile.first.warp_n, tile.warp_n1) == (tile.first.n, tile.n1)
            else:
                assert tile.stages(gpu, chain.second.residual) >= 3
                assert max(tile.first.accumulators, tile.second.accumulators) <= 128
        # One of each kind is first.
        kinds = [type(tile) for _, tile in found]
        count = len(set(kinds))
        assert set(kinds[:count]) == set(kinds)
        assert [seconds for seconds, _ in found[count:]] == sorted(seconds for seconds, _ in found[count:])


def test_plain_products_leave_no_rows_of_the_second_weights_unset() -> None:
    """Behind a plain product, tiles of warps are exactly as wide as it."""
    found, refusals = ranked(problem(two(first="", w="48,48,1,1")), A100)
    assert found == []
    reasons = {refusal.reason for refusal in refusals}
    assert "behind a plain product it would read beyond the 48 rows of the second's weights" in reasons


def test_a_deep_second_product_leaves_no_room_for_a_pipeline() -> None:
    _, refusals = ranked(problem(two(x="32,256,14,14", w="256,256,3,3", v="256,256,1,1")), H200)
    reasons = [refusal.reason for refusal in refusals]
    assert "beside the second's weights, shared memory has room for 1 stages, 3 are needed" in reasons


def test_the_prediction_knows_what_fusing_saves() -> None:
    """Rows of Table 2 gain; where the first product is arithmetic alone, and its tile no good for it, they do not."""
    gains = {}
    for name, of in (
        ("56x56x64", two("pads_begin=[1,1] pads_end=[1,1]", x="32,64,56,56", w="64,64,3,3", v="64,64,1,1")),
        ("14x14x256", two("pads_begin=[1,1] pads_end=[1,1]", x="128,256,14,14", w="192,256,3,3", v="192,192,1,1")),
    ):
        (alternative,), _ = proposed(of)
        apart = [FAMILY.predict(each, FAMILY.candidates(each, H200)[0][0], H200) for each in alternative.apart]
        gains[name] = sum(apart) / alternative.seconds
    assert gains["56x56x64"] > 1.15
    assert gains["14x14x256"] < 1.2


def test_what_a_pair_moves_leaves_out_what_lies_between() -> None:
    given_problem = problem()
    expense = FAMILY.expense(given_problem)
    assert (expense.nbytes, expense.flops, expense.why) == (given_problem.nbytes, given_problem.flops, "")
    stem = FAMILY.expense(proposed(two(x="32,3,224,224", w="46,3,3,3", v="48,46,1,1"))[0][1].steps[0].problem)
    assert stem.why == (
        "weights padded from 1242 to 2944 values; input of 19267584 bytes copied to 13075456; "
        "weights padded from 2208 to 2304 values"
    )


def test_a_target_without_tensor_cores_has_no_pairs() -> None:
    found, refusals = FAMILY.candidates(problem(), target_named("host"))
    assert found == ()
    assert [each.reason for each in refusals] == ["target 'host' has no tensor cores"]


# C++.


def test_a_pair_is_called_and_instantiated() -> None:
    given_problem = problem()
    candidates, _ = FAMILY.candidates(given_problem, H200)
    at = StepExpressions(
        ("r.arena(0)", "r.weight(1)", "r.weight(2)", "r.weight(3)", "r.weight(4)"), ("r.output(0)",),
        (None, "p.weight(1)", "p.weight(2)", "p.weight(3)", "p.weight(4)"),
    )  # fmt: skip
    wide = next(each for each in candidates if "warpgroups" in dict(each.parameters))
    narrow = next(each for each in candidates if "warpgroups" not in dict(each.parameters))
    code = FAMILY.emit(given_problem, wide, H200, at)
    space = "bolt::cutlass_kernels"
    epilogue = f"{space}::Epilogue<{space}::Map<bolt::portable::Relu>>"
    values = dict(wide.parameters)
    turns = "true" if values["warpgroups"] == "cooperative" else "false"
    tile = f"{space}::WarpgroupPair<{values['m']}, {values['n']}, {values['n1']}, {values['k']}, {turns}>"
    assert code.includes == ("bolt_cutlass/plans/pair.h",)
    assert code.member_type == f"{space}::PairConv<{tile}, {epilogue}, {epilogue}, {space}::AsItIs>"
    relu = f"{space}::epilogue({space}::map(bolt::portable::Relu{{}}))"
    second = (
        f'48, {space}::Constant{{p.weight(3), "p.weight(3)"}}, {space}::Filter{{.outputs = 48, .channels = 48, '
        f'.rows = 1, .taps = 1, .to_taps = 1, .to_channels = 48}}, {space}::Constant{{p.weight(4), "p.weight(4)"}}, '
    )
    assert code.member_arguments.endswith(f"{relu}, {second}{relu}")
    assert code.call == "kernel.run(r, r.arena(0), nullptr, r.output(0));"
    texts = {
        unit.text.splitlines()[0]: unit for unit in FAMILY.units([(given_problem, wide), (given_problem, narrow)], H200)
    }
    assert set(texts) == {
        '#include "bolt_cutlass/units/conv_pair_warpgroup_kernel.h"',
        '#include "bolt_cutlass/units/conv_pair_kernel.h"',
    }
    unit = texts['#include "bolt_cutlass/units/conv_pair_warpgroup_kernel.h"']
    assert unit.text == (
        '#include "bolt_cutlass/units/conv_pair_warpgroup_kernel.h"\n\n'
        f"template void {space}::launch_conv(\n    {tile},\n"
        f"    const {space}::ConvArguments&, const {space}::SecondArguments&,\n"
        f"    const {epilogue}&,\n    const {epilogue}&, void*);\n"
    )


def test_headers_of_pairs_are_there() -> None:
    folder = FAMILY.include_dir / "bolt_cutlass"
    names = [f"{kind}_pair{way}_kernel.h" for kind in ("conv", "gemm") for way in ("", "_warpgroup")]
    units = [f"units/{name}" for name in ("conv_resident_pair_kernel.h", *names)]
    assert all((folder / name).is_file() for name in ("plans/pair.h", *units))


def test_other_families_do_not_fuse_products() -> None:
    of = two()
    for target in (H200, target_named("host")):
        for family in load(target):
            if family.name != "cutlass":
                found, _ = family.propose(of, of.nodes[0], target, DType.F32)
                assert all(len(each.region) == 1 and not each.apart for each in found)
