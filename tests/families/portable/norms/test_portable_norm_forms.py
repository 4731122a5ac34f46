"""Normalisations that read elements twice, the second time from L2, and those that take rows in turns: what candidates
state, that each element is in one part, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from families_harness import Input, Layer, graph_with
from families_layers import norm
from hypothesis import given, settings
from hypothesis import strategies as st
from planner_checks import graph

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem, StepExpressions
from bolt_build.families.portable.family import Portable
from bolt_build.families.portable.kernels.norms import norm_passes, norm_turns
from bolt_build.families.portable.kernels.norms.norm_batches import BatchTile
from bolt_build.families.portable.kernels.norms.norm_held import HeldTile
from bolt_build.families.portable.kernels.norms.norm_nest import nest_for
from bolt_build.families.portable.kernels.norms.norm_passes import PassTile
from bolt_build.families.portable.kernels.norms.norm_turns import TurnTile
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.graph.patterns.row_sums import row_sums_from
from bolt_build.targets import target_named

FAMILY, H200 = Portable(), target_named("h200")
AT = StepExpressions(("x", "r.weight(1)", "r.weight(2)"), ("y",), (None, "p.weight(1)", "p.weight(2)"))


def problem_of(layer: Layer, layout: Layout = Layout.ROW, target: str = "h200") -> KernelProblem:
    graph, node = graph_with(replace(layer, precision=DType.F16))
    found = FAMILY.propose(graph, node, target_named(target), DType.F16)[0]
    return next(each.steps[0].problem for each in found if each.steps[0].problem.inputs[0].format.layout is layout)


def images(*shape: int, groups: int = 0, target: str = "h200") -> KernelProblem:
    op = Norm("variance", (1, 2, 3) if groups else (2, 3), 1e-5, max(groups, 1))
    return problem_of(norm("n", op, shape, (shape[1], 1, 1)), Layout.CHANNELS_LAST, target)


def rows(many: int, extent: int, target: str = "h200") -> KernelProblem:
    return problem_of(norm("n", Norm("variance", (1,), 1e-5), (many, extent), (extent,)), Layout.ROW, target)


def passes(tile: PassTile) -> Candidate:
    return Candidate("portable", (("algorithm", "passes"), *tile.parameters), tile.settings)


def held(tile: HeldTile) -> Candidate:
    return Candidate("portable", (("algorithm", "held"), *tile.parameters), tile.settings)


def turns(tile: TurnTile) -> Candidate:
    return Candidate("portable", (("algorithm", "turns"), *tile.parameters), tile.settings)


@pytest.mark.parametrize(
    ("tile", "reason"),
    [
        (PassTile(40, 64, 256, 4), None),
        (PassTile(40, 64, 512, 4), "there are kernels of 128 or 256 threads"),
        (PassTile(15, 64, 256, 4), "320 channels are no whole slabs of 120"),
        (PassTile(8, 64, 256, 4), "a slab of 64 channels has no whole groups of 10"),
        (PassTile(40, 3000, 256, 4), "4096 positions are not cut in 3000 parts of one size"),
        (PassTile(40, 5000, 256, 4), "4096 positions are not cut in 5000 parts of one size"),
        (PassTile(40, 64, 256, 33), "33 slabs ahead are more than the 32 that there are"),
    ],
    ids=str,
)
def test_passes_that_are_not_legal_have_a_reason(tile: PassTile, reason: str | None) -> None:
    """32 images of 64 x 64 positions and 320 channels, in 32 groups."""
    for target in ("h200", "t4"):
        asked = images(32, 320, 64, 64, groups=32, target=target)
        assert FAMILY.refuse(asked, passes(tile), target_named(target)) == reason


ANY = "there are kernels of 1, 2, 4 or 8 blocks, and of 32 to 512 threads in whole warps"


@pytest.mark.parametrize(
    ("tile", "target", "reason"),
    [
        (HeldTile(10, 8, 512, 11, 1), "h200", None),
        (HeldTile(10, 8, 512, 12, 1), "h200", "512 positions of a block are 11 loads of a thread, not 12"),
        (HeldTile(10, 4, 256, 41, 1), "h200", "41 loads of a thread are more than the 384 bytes that it holds"),
        (HeldTile(10, 8, 512, 11, 2), "h200", "a multiprocessor holds 11 loads of each of 512 threads 1 times, not 2"),
        (HeldTile(10, 3, 512, 11, 1), "h200", ANY),
        (HeldTile(15, 8, 512, 11, 1), "h200", "320 channels are no whole slabs of 120"),
        (HeldTile(8, 8, 512, 8, 1), "h200", "a slab of 64 channels has no whole groups of 10"),
        (HeldTile(10, 8, 512, 11, 1), "a100", "blocks form clusters from sm_90 on"),
    ],
    ids=str,
)
def test_slabs_that_registers_do_not_hold_have_a_reason(tile: HeldTile, target: str, reason: str | None) -> None:
    """32 images of 64 x 64 positions and 320 channels, in 32 groups."""
    asked = images(32, 320, 64, 64, groups=32, target=target)
    assert FAMILY.refuse(asked, held(tile), target_named(target)) == reason


def test_a_held_slab_is_compiled_for_its_problem() -> None:
    """Loads, threads, slab, cluster, share of a block, group, positions and what lies between them, loops, blocks."""
    code = FAMILY.emit(images(32, 320, 64, 64, groups=32), held(HeldTile(10, 8, 512, 11, 1)), H200, AT)
    shape = "bolt::portable::HeldShape<11, 512, 10, 8, 512, 10, 4096, 320, 1, 1>"
    assert code.call.startswith(f"bolt::portable::norm_in_registers<{shape}, bolt::portable::NormOperands::fixed, ")
    apart = problem_of(norm("n", Norm("variance", (0, 2), 1e-5), (3, 6, 40), (6, 1)))
    assert FAMILY.refuse(apart, held(HeldTile(1, 1, 96, 1, 1)), H200) == "held: positions lie in several loops"


@pytest.mark.parametrize(
    ("asked", "tile", "target", "reason"),
    [
        (rows(2048, 16384), BatchTile(8, 512, 4), "h200", None),
        (rows(2048, 16384), BatchTile(8, 256, 4), "h200",
         "16384 columns are those of 512 threads in each of 4 blocks, which have 512 at most"),
        (rows(2048, 16384), BatchTile(8, 1024, 2), "h200",
         "16384 columns are those of 1024 threads in each of 2 blocks, which have 512 at most"),
        (rows(2048, 16384), BatchTile(32, 512, 4), "h200",
         "there are kernels of 4, 8 or 16 rows, and of 1, 2, 4 or 8 blocks"),
        (rows(7, 16384), BatchTile(8, 512, 4), "h200", "7 rows are fewer than the 8 of a block"),
        (rows(2048, 16384), BatchTile(8, 512, 4), "a100", "blocks form clusters from sm_90 on"),
    ],
    ids=str,
)  # fmt: skip
def test_batches_that_are_not_legal_have_a_reason(
    asked: KernelProblem, tile: BatchTile, target: str, reason: str | None
) -> None:
    candidate = Candidate("portable", (("algorithm", "batches"), *tile.parameters), tile.settings)
    asked = replace(asked, target=target)
    assert FAMILY.refuse(asked, candidate, target_named(target)) == reason
    if reason is None:
        call = FAMILY.emit(asked, candidate, H200, AT).call
        shape = "bolt::portable::BatchShape<8, 512, 4, 16384, 1>"
        assert call.startswith(f"bolt::portable::norm_in_batches<{shape}, true, bolt::portable::NormVariance, ")


def test_wide_slabs_and_many_slabs_are_refused_too() -> None:
    wide, many = images(2, 2048, 3, 3), images(3000, 16, 3, 3)
    reason = "128 threads are fewer than the 256 loads of a position"
    assert FAMILY.refuse(wide, passes(PassTile(256, 2, 128, 1)), H200) == reason
    assert FAMILY.refuse(many, passes(PassTile(2, 1, 128, 1)), H200) is None
    reason = "6000 slabs are more than the 4095 that there are counters for"
    assert FAMILY.refuse(many, passes(PassTile(1, 1, 128, 1)), H200) == reason


@pytest.mark.parametrize(
    ("asked", "tile", "reason"),
    [
        (rows(16384, 4096), TurnTile(256, "registers", 528), None),
        (rows(16384, 4096), TurnTile(96, "registers", 528),
         "there are kernels of 8, 16, 32, 64, 128, 256, 512 or 1024 threads a row"),
        (rows(16384, 4096), TurnTile(32, "registers", 528),
         "4096 elements are 16 loads of each of 32 threads, which hold 8 at most"),
        (rows(2048, 16384), TurnTile(1024, "registers", 132),
         "takes about 72 registers of a thread, of which 1024 threads have 64"),
        (rows(2048, 16384), TurnTile(1024, "shared", 132), None),
        (rows(2048, 16384), TurnTile(256, "together", 132), None),
        (rows(512, 4096), TurnTile(256, "registers", 528),
         "of 512 rows 528 are normalised at once, so no block has a second one"),
        (rows(4096, 32768), TurnTile(512, "shared", 132),
         "takes 262144 bytes of shared memory, a block has 232448"),
    ],
    ids=str,
)  # fmt: skip
def test_turns_that_are_not_legal_have_a_reason(asked: KernelProblem, tile: TurnTile, reason: str | None) -> None:
    assert FAMILY.refuse(asked, turns(tile), H200) == reason


def test_rows_with_operands_of_their_own_take_no_turns() -> None:
    """Of each channel's row there are as many scales as elements."""
    own = Input((96, 512), True)
    layer = replace(Layer("n", Norm("variance", (2,), 1e-5), (Input((64, 96, 512)), own, own)), precision=DType.F16)
    graph, node = graph_with(layer)
    found, refusals = FAMILY.propose(graph, node, H200, DType.F16)
    assert "turns: rows have scales or biases of their own" in [each.reason for each in refusals]
    assert all("turns" not in str(each) for each in FAMILY.candidates(found[0].steps[0].problem, H200)[0])


def test_what_a_candidate_states_is_what_runs() -> None:
    code = FAMILY.emit(rows(16384, 4096), turns(TurnTile(128, "shared", 660)), H200, AT)
    assert code.call.startswith("bolt::portable::norm_in_turns<4, 128, bolt::portable::NormKeeps::shared, true, ")
    assert ".epsilon = 1e-05f}, 660, x, r.weight(1), r.weight(2), y, " in code.call
    assert (code.member_type, code.counts) == (None, False)
    code = FAMILY.emit(rows(2048, 16384), turns(TurnTile(256, "together", 132)), H200, AT)
    assert code.call.startswith("bolt::portable::norm_in_turns<8, 256, bolt::portable::NormKeeps::together, true, ")
    code = FAMILY.emit(images(32, 320, 64, 64, groups=32), passes(PassTile(20, 32, 128, 6)), H200, AT)
    assert ".across = 20, .share = 128, .group = 10, .threads = 128, .ahead = 6, " in code.call
    assert "x, kernel.constant(0), kernel.constant(1), y, " in code.call
    # Of 64 slabs with 16 groups each, mean and squares of 32 parts, and of the whole.
    constants = ", ".join(f'bolt::portable::PassedConstant{{p.weight({i}), "p.weight({i})", 1280}}' for i in (1, 2))
    assert code.member_type == "bolt::portable::PassedNorm"
    assert code.member_arguments == f"{64 * 33 * 16 * 8}, {constants}"
    assert code.counts


def test_a_candidate_that_lacks_something_is_refused() -> None:
    for asked, candidate in (
        (images(32, 320, 64, 64, groups=32), passes(PassTile(40, 64, 256, 4))),
        (rows(16384, 4096), turns(TurnTile(128, "shared", 660))),
    ):
        bare = candidate.compiled
        reason = f"{bare} states not all that its kernel takes, or something else"
        assert FAMILY.refuse(asked, bare, H200) == reason
        with pytest.raises(ValueError, match=f"^{reason}$"):
            FAMILY.emit(asked, bare, H200, AT)


def test_deviations_have_the_plain_kernel_alone_and_are_no_part_of_others() -> None:
    """Other forms take means off elements; so do sums of rows, and heads in front of attention."""
    op, shape = Norm("deviation", (1,), 1e-5), (90, 776)
    offered, refused = FAMILY.candidates(problem_of(norm("n", op, shape, (776,))), H200)
    assert [str(each) for each in offered] == ["portable algorithm=direct threads=32"]
    assert str(refused[0].reason) == "turns: takes the mean off elements, of which a deviation is no part"
    text = """
        graph g batch=2 (%x: f32[2,8,776], %z: f32[2,8,776]) -> (%y) {{
          const %s: f32[776]
          %a = add(%x, %z) // "a"
          %y = norm(%a, %s) statistic={} axes=[2] epsilon=1e-05 // "y"
        }}"""
    graphs = [graph(text.format(statistic)) for statistic in ("variance", "deviation")]
    assert [row_sums_from(each, each.nodes[0]) is None for each in graphs] == [False, True]


def test_large_images_may_be_read_from_l2_and_rows_beyond_registers_take_turns() -> None:
    assert any("passes" in str(each) for each in FAMILY.candidates(images(32, 64, 256, 256), H200)[0])
    assert "batches" in str(FAMILY.candidates(rows(2048, 16384), H200)[0][0])
    assert any("turns" in str(each) for each in FAMILY.candidates(rows(2048, 16384), H200)[0])
    assert "direct" in str(FAMILY.candidates(rows(16384, 4096), H200)[0][0])
    direct = Candidate("portable", (("algorithm", "direct"), ("threads", 32)))
    assert FAMILY.candidates(rows(128, 768), H200)[0][0] == direct


@given(st.data())
@settings(max_examples=15, deadline=None)
def test_what_is_offered_is_legal_and_walks_over_each_element_once(data: st.DataObject) -> None:
    draw = data.draw
    target = draw(st.sampled_from(("h200", "a100", "t4")))
    gpu = target_named(target).gpu
    assert gpu is not None
    groups = draw(st.sampled_from((0, 2, 3)))
    shape = draw(st.integers(1, 40)), 24 * draw(st.integers(1, 12)), draw(st.integers(1, 40)), draw(st.integers(1, 40))
    asked = images(*shape, groups=groups, target=target)
    candidates = FAMILY.candidates(asked, target_named(target))[0]
    for first in candidates:
        for each in (first, *FAMILY.variants(asked, first, target_named(target))):
            assert FAMILY.refuse(asked, each, target_named(target)) is None
            if "passes" not in str(each):
                continue
            tile, nest = norm_passes.FORM.tile_of(each), nest_for(asked)
            share = tile.share(nest)
            assert (tile.parts - 1) * share < nest.many <= tile.parts * share
            assert nest.slabs(tile.width) * tile.width * nest.many == asked.outputs[0].type.elements
            assert 1 <= tile.ahead <= nest.slabs(tile.width)
    many, extent = draw(st.integers(1, 5000)), 8 * draw(st.integers(1, 4000))
    long = rows(many, extent, target)
    for each in FAMILY.candidates(long, target_named(target))[0]:
        assert FAMILY.refuse(long, each, target_named(target)) is None
        if "turns" in str(each):
            turn = norm_turns.FORM.tile_of(each)
            loads = norm_turns._rows(long)
            assert turn.threads * 8 * turn.loads(loads) >= extent
            assert turn.blocks * turn.together < many
