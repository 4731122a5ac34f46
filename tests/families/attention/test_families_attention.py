"""Attention on GPUs: what the family takes, what its candidates state, what it emits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from families_harness import Input, Layer
from gpu_attention_layers import attention, packed
from proposed import one_problem, refusals

from bolt_build.dtypes import DType
from bolt_build.families.attention.family import Attention
from bolt_build.families.attention.kind import Tile, candidate_of
from bolt_build.families.attention.persistent import KIND as PERSISTENT
from bolt_build.families.attention.persistent import PersistentTile
from bolt_build.families.attention.registry import KINDS
from bolt_build.families.attention.shape import shape_of
from bolt_build.families.attention.warp import WarpTile
from bolt_build.families.attention.warpgroup import WarpgroupTile
from bolt_build.families.attention.windows import KIND as WINDOWS
from bolt_build.families.attention.windows import WindowsTile
from bolt_build.families.base import Candidate, KernelProblem, StepExpressions
from bolt_build.graph.ir import EpilogueOp
from bolt_build.graph.ops.attention.attention import Attention as AttentionOp
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.targets import HOST, Target, target_named

FAMILY = Attention()
AT = StepExpressions(("q", "k", "v"), ("y",), (None,) * 3)
H200, A100, T4 = target_named("h200"), target_named("a100"), target_named("t4")
BERT = packed("bert", 32, 12, 128, 64)
MASKED = attention("masked", (2, 8, 100, 120), 64, kv_heads=2, causal=True, mask=Input((2, 1, 1, 120)))
TILE, GROUPS = WarpTile(4, 1, 1, 64), WarpgroupTile(2, 128, 1, ahead=False, blocks=2)
LONG = attention("long", (8, 16, 1024, 1024), 64)
SHIFTED = attention("shifted", (2048, 3, 49, 49), 32, mask=Input((64, 3, 49, 49), True))
TURNS = WindowsTile(64, 5)
STAYS = PersistentTile(2, 128, 2, ahead=True, turns=True, blocks=1)


def problem_of(layer: Layer, target: Target = H200) -> KernelProblem:
    return one_problem(FAMILY, layer, target)


def refusals_of(layer: Layer, target: Target = H200) -> set[str]:
    return refusals(FAMILY, layer, target)


def legality(tile: Tile, layer: Layer, target: Target = H200) -> str | None:
    assert target.gpu is not None
    return tile.refuse(shape_of(problem_of(layer)), target.gpu)


def with_op(layer: Layer, op: AttentionOp) -> Layer:
    return replace(layer, op=op)


@pytest.mark.parametrize(
    ("layer", "why"),
    [
        (replace(BERT, precision=DType.F32), "takes tensors in f16 or bf16, not in f32"),
        (replace(BERT, epilogue=(EpilogueOp(Activation("relu")),)), "takes no epilogue"),
        (with_op(BERT, AttentionOp(12, 12, -0.5, packed=True)), "scales scores by a number above 0, not by -0.5"),
        (attention("long", (1, 1, 8, 8), 264), "has heads of at most 256 elements, not of 264"),
        (attention("none", (1, 1, 0, 8), 64), "has a tensor without elements"),
        (
            attention("large", (1, 1, 1 << 26, 8), 32),
            "a tensor of 2147483648 elements is beyond the reach of 32-bit indices",
        ),
    ],
    ids=lambda value: value.label if isinstance(value, Layer) else "",
)
def test_says_why_it_does_not_take_a_layer(layer: Layer, why: str) -> None:
    assert refusals_of(layer) == {why}


def test_learned_queries_are_stored_as_computed_ones_are() -> None:
    """As in decoders of detectors, whose first layer asks with constants."""
    layer = attention("learned", (1, 8, 100, 625), 32)
    query, *others = layer.inputs
    problem = problem_of(replace(layer, inputs=(replace(query, constant=True), *others)))
    assert (problem.inputs[0].constant, problem.inputs[0].format.dtype) == (True, DType.F16)


def test_takes_nothing_of_a_cpu() -> None:
    assert refusals_of(BERT, HOST) == {"target 'host' has no tensor cores"}


@pytest.mark.parametrize(
    ("tile", "layer", "target", "why"),
    [
        (TILE, BERT, H200, None),
        (TILE, BERT, T4, None),
        (replace(TILE, down=8, across=2), BERT, H200, "blocks have 1 to 8 warps, not 16"),
        (
            replace(TILE, fragments=2, keys=128),
            BERT,
            H200,
            "scores and results take 192 registers of a thread, over 176 do not stay in them",
        ),
        (
            replace(TILE, down=8, fragments=2),
            BERT,
            H200,
            "half of its 256 rows or more would be beyond the 128 queries",
        ),
        (
            replace(TILE, keys=128),
            attention("wide", (1, 8, 512, 512), 128),
            T4,
            "takes 156672 bytes of shared memory, a block has 65536",
        ),
        (GROUPS, BERT, H200, None),
        (replace(GROUPS, stages=2, ahead=True, blocks=1), LONG, H200, None),
        (replace(GROUPS, stages=2), BERT, H200, "copies 2 steps ahead, there are 1"),
        (
            replace(GROUPS, groups=1, blocks=5),
            BERT,
            H200,
            "takes 126 registers of a thread, there are 96 for 5 blocks",
        ),
        (replace(GROUPS, blocks=1), LONG, H200, "is for 1 blocks on a multiprocessor, there is room for 2"),
        (
            replace(GROUPS, groups=3, blocks=1),
            attention("few", (8, 16, 90, 1024), 64),
            H200,
            "half of its 192 rows or more would be beyond the 90 queries",
        ),
        (replace(GROUPS, every=4), BERT, H200, None),
        (
            replace(GROUPS, blocks=1, every=4),
            MASKED,
            H200,
            "polynomials are for steps in which no key is hidden, here are none",
        ),
        (replace(GROUPS, stages=2, ahead=True, blocks=1, turns=True), LONG, H200, None),
        (
            WarpgroupTile(1, 128, 2, ahead=True, blocks=3, turns=True),
            LONG,
            H200,
            "turns are for several warpgroups",
        ),
        (replace(GROUPS, ahead=True, blocks=1), LONG, H200, "the next step's scores take a second stage of keys"),
        (
            replace(GROUPS, groups=1, keys=192, stages=2, blocks=1),
            attention("wide", (8, 16, 1024, 1024), 160),
            H200,
            "takes 266312 bytes of shared memory, a block has 232448",
        ),
        (STAYS, LONG, H200, None),
        (replace(STAYS, groups=1), LONG, H200, "turns are for several warpgroups"),
        (replace(STAYS, groups=3, keys=160), LONG, H200, "takes 180 registers of a thread, one that computes has 160"),
        (replace(STAYS, keys=192), LONG, H200, None),
        (
            replace(STAYS, groups=3),
            attention("few", (8, 16, 90, 1024), 64),
            H200,
            "half of its 192 rows or more would be beyond the 90 queries",
        ),
        (
            replace(STAYS, stages=4),
            attention("wide", (8, 16, 1024, 1024), 128),
            H200,
            "takes 295072 bytes of shared memory, one of 1 blocks has 232448",
        ),
        (
            PersistentTile(1, 128, 2, ahead=True, turns=False, blocks=2),
            attention("wide", (8, 16, 1024, 1024), 128),
            H200,
            "takes 147536 bytes of shared memory, one of 2 blocks has 115712",
        ),
        (TURNS, SHIFTED, H200, None),
        (replace(TURNS, blocks=4), SHIFTED, H200, "is for 4 blocks on a multiprocessor, there is room for 5"),
        (replace(TURNS, blocks=6), SHIFTED, H200, "takes 96 registers of a thread, there are 80 for 6 blocks"),
        (
            TURNS,
            attention("few", (192, 3, 49, 49), 32, mask=Input((64, 3, 49, 49), True)),
            H200,
            "goes through 2 images of one mask or more, a block would have 1",
        ),
        (
            WindowsTile(128, 1),
            attention("wide", (2048, 3, 64, 128), 256),
            H200,
            "takes 361504 bytes of shared memory, a block has 232448",
        ),
    ],
)
def test_says_why_a_tile_is_none(tile: Tile, layer: Layer, target: Target, why: str | None) -> None:
    assert legality(tile, layer, target) == why


def kinds_and_refusals(layer: Layer, target: Target) -> tuple[set[object], set[str]]:
    found, refused = FAMILY.candidates(problem_of(layer, target), target)
    kinds = {dict(candidate.parameters)["kind"] for candidate in found}
    return kinds, {refusal.reason for refusal in refused if refusal.what == "warpgroup kernels"}


def test_instructions_of_four_warps_are_hoppers_and_take_whole_accesses() -> None:
    odd = attention("odd", (1, 2, 90, 90), 84)
    assert kinds_and_refusals(BERT, H200) == ({"warp", "warpgroup", "persistent", "resident"}, set())
    assert kinds_and_refusals(BERT, A100) == ({"warp"}, {"the GPU has no WGMMA"})
    why = "copies heads of whole 16 bytes, not of 84 and 84 elements"
    assert kinds_and_refusals(odd, H200) == ({"warp", "spread"}, {why})


@pytest.mark.parametrize(
    ("layer", "target", "why"),
    [
        (SHIFTED, H200, None),
        (SHIFTED, A100, "the GPU has no WGMMA"),
        (BERT, H200, "has images of at most 64 queries and 128 keys, not of 128 and 128"),
        (attention("odd", (2048, 3, 49, 49), 36), H200, "copies heads of whole 16 bytes, not of 36 and 36 elements"),
        (
            with_op(attention("counted", (2048, 3, 49, 49), 32), AttentionOp(3, 3, 1.0, counted=1)),
            H200,
            "has no kernel that counts keys",
        ),
    ],
    ids=lambda value: value.label if isinstance(value, Layer) else "",
)
def test_small_images_are_gone_through_in_turn_by_hopper(layer: Layer, target: Target, why: str | None) -> None:
    assert target.gpu is not None
    assert WINDOWS.serves(shape_of(problem_of(layer, target)), target.gpu) == why


@pytest.mark.parametrize(
    ("layer", "target", "why"),
    [
        (LONG, H200, None),
        (LONG, A100, "the GPU has no WGMMA"),
        (MASKED, H200, None),
        (attention("bias", (8, 16, 900, 900), 64, mask=Input((900, 900), True)), H200, None),
        *(
            (
                attention(name, (8, 16, 900, 900), 64, mask=Input(shape)),
                H200,
                "copies no computed masks whose queries have rows of their own",
            )
            for name, shape in (("own", (900, 900)), ("queries", (900, 1)))
        ),
        (attention("odd", (8, 16, 1024, 1024), 36), H200, "copies heads of whole 16 bytes, not of 36 and 36 elements"),
        (with_op(attention("counted", (8, 3, 900, 900), 64), AttentionOp(3, 3, 1.0, counted=1)), H200, None),
    ],
    ids=lambda value: value.label if isinstance(value, Layer) else "",
)
def test_blocks_stay_where_a_mask_is_none_or_can_be_copied(layer: Layer, target: Target, why: str | None) -> None:
    assert target.gpu is not None
    assert PERSISTENT.serves(shape_of(problem_of(layer, target)), target.gpu) == why


@pytest.mark.parametrize("target", [T4, A100, H200], ids=lambda target: target.name)
@pytest.mark.parametrize("depth", [1, 64, 128, 200, 256])
def test_every_head_has_a_kernel_on_every_gpu(depth: int, target: Target) -> None:
    layer = attention("any", (1, 2, 300, 300), depth)
    assert FAMILY.candidates(problem_of(layer, target), target)[0]


@pytest.mark.parametrize("layer", [BERT, MASKED], ids=lambda layer: layer.label)
def test_candidates_are_read_back(layer: Layer) -> None:
    problem = problem_of(layer)
    found, _ = FAMILY.candidates(problem, H200)
    assert len(set(found)) == len(found) > 4
    for candidate in found:
        assert FAMILY.refuse(problem, candidate, H200) is None
        assert FAMILY.variants(problem, candidate, H200) == ()
        assert sum(kind.tile_of(candidate) is not None for kind in KINDS) == 1


@pytest.mark.parametrize("layer", [BERT, MASKED, LONG], ids=lambda layer: layer.label)
def test_the_first_candidates_are_the_fastest_but_that_each_group_is_among_them(layer: Layer) -> None:
    """Predictions are less sure of groups: tuning tries the first of each that is not far behind."""
    problem = problem_of(layer)
    found, _ = FAMILY.candidates(problem, H200)
    seconds = [FAMILY.predict(problem, candidate, H200) for candidate in found]
    assert seconds[0] == min(seconds)
    assert seconds[:6] == sorted(seconds[:6])
    assert seconds[6:] == sorted(seconds[6:])
    stated = [dict(candidate.parameters) for candidate in found]
    groups = [(each["kind"], each["kind"] == "persistent" and each["scores"]) for each in stated]
    assert set(groups[:6]) == set(groups)


@pytest.mark.parametrize(
    ("parameters", "settings"),
    [
        ((("kind", "warp"), ("down", 3), ("across", 1), ("fragments", 1), ("keys", 64)), ()),
        ((("kind", "warp"), ("down", 4), ("across", 1), ("fragments", 1), ("keys", 64)), (("run", 1),)),
        ((("kind", "warp"), ("down", 4)), ()),
        ((("kind", "other"),), ()),
    ],
)
def test_a_lock_with_another_kernel_is_refused(
    parameters: tuple[tuple[str, int | str], ...], settings: tuple[tuple[str, int | str], ...]
) -> None:
    candidate = Candidate("attention", parameters, settings)
    assert FAMILY.refuse(problem_of(BERT), candidate, H200) == f"{candidate} is none of its candidates"


def test_emits_strides_of_packed_rows_and_of_rows_apart() -> None:
    problem = problem_of(BERT)
    at = StepExpressions(("r.arena(0)",), ("r.arena(64)",), (None,), (776,), (2320,))
    code = FAMILY.emit(problem, candidate_of(TILE), H200, at)
    assert code.includes == ("bolt_attention/launch.h",)
    assert code.member_type is None
    assert code.call == (
        "bolt::attention::run(r, bolt::attention::WarpTile<64, 64, 4, 1, 1, 64, 8, 8, 8>{}, "
        "bolt::attention::Unmasked{}, bolt::attention::Arguments{.batch = 32, .heads = 12, .group = 1, .queries = 128, "
        ".keys = 128, .scale = 0.2705053201666806f, .causal = false, .safe = false, .tied = true, "
        ".q_rows = {0, 296960, 2320}, .k_rows = {768, 296960, 2320}, .v_rows = {1536, 296960, 2320}, "
        ".y_rows = {0, 99328, 776}, .mask_steps = {0, 0, 0, 0}, .mask_images = 1, .mask_scale = 5.333333333333333f}, "
        "r.arena(0), r.arena(0), r.arena(0), nullptr, r.arena(64));"
    )


def test_emits_strides_of_a_mask_that_heads_and_queries_share() -> None:
    problem = problem_of(MASKED)
    at = StepExpressions(tuple(f"r.input({i})" for i in range(4)), ("r.output(0)",), (None,) * 4)
    call = FAMILY.emit(problem, candidate_of(TILE), H200, at).call
    assert ".group = 4, .queries = 100, .keys = 120," in call
    assert ".causal = true" in call
    assert ".mask_steps = {120, 0, 0, 1}, .mask_images = 2, .mask_scale = " in call
    assert call.endswith("r.input(2), r.input(3), r.output(0));")
    assert "bolt::portable::f16{}" in call


def test_a_mask_takes_no_registers_beside_the_scores() -> None:
    """Scores begin with it."""
    tile = WarpgroupTile(1, 64, 1, ahead=False, blocks=6)
    for mask in (None, Input((1, 2, 64, 64), True)):
        layer = attention("windows", (64, 2, 64, 64), 32, mask=mask)
        assert legality(tile, layer) is None
        assert legality(replace(tile, blocks=5), layer) == "is for 5 blocks on a multiprocessor, there is room for 6"


@pytest.mark.parametrize(
    ("mask", "staged"),
    [
        (Input((1, 2, 64, 64)), True),
        (Input((64, 64)), True),
        (Input((1, 2, 64, 64), True), False),
        (Input((64, 1, 1, 64)), False),
        (Input((64, 1, 64, 1)), False),
        (None, False),
    ],
)
def test_masks_whose_queries_have_rows_of_their_own_are_copied_to_shared_memory(
    mask: Input | None, staged: bool
) -> None:
    tile, layer = WarpgroupTile(1, 64, 1, ahead=False, blocks=5), attention("own", (64, 2, 64, 64), 64, mask=mask)
    shape = shape_of(problem_of(layer))
    assert tile.cxx(shape).endswith("5, 0, 8, bolt::portable::f16, true>" if staged else "5, 0, 8>")
    assert tile.shared_bytes(shape) == 8192 + 2 * 8192 + 48 + (64 * (64 + 8) * 2 if staged else 0)


def test_constant_masks_are_put_in_the_order_of_scores_ahead() -> None:
    problem = problem_of(attention("bias", (8, 3, 49, 49), 32, mask=Input((4, 3, 49, 49), True)))
    at = StepExpressions(("r.input(0)", "r.input(1)", "r.input(2)", "r.weight(7)"), ("r.output(0)",),
                         (None, None, None, "p.weight(7)"))  # fmt: skip
    code = FAMILY.emit(problem, candidate_of(WarpTile(4, 1, 1, 32)), H200, at)
    assert code.includes == ("bolt_attention/prepared.h",)
    assert code.member_type == "bolt::attention::Masked<bolt::attention::WarpTile<32, 32, 4, 1, 1, 32, 8, 8, 8>>"
    assert ".mask_steps = {7203, 2401, 49, 1}, .mask_images = 4, " in code.member_arguments
    # With the keys of whole steps.
    assert code.member_arguments.endswith(
        'bolt::attention::Constant<float>{static_cast<const float*>(p.weight(7)), "p.weight(7)"}, 64'
    )
    assert code.call == "kernel.run(r, r.input(0), r.input(1), r.input(2), r.output(0));"
    (unit,) = FAMILY.units([(problem, candidate_of(WarpTile(4, 1, 1, 32)))], H200)
    assert "    bolt::attention::Prepared, const bolt::attention::Arguments&, void*);\n" in unit.text


@pytest.mark.parametrize(
    ("layer", "prepared"),
    [
        (attention("bias", (2, 2, 40, 75), 32, mask=Input((40, 75), True)), True),
        (attention("computed", (2, 2, 40, 75), 32, mask=Input((40, 75))), False),
        (attention("shared", (2, 2, 40, 75), 32, mask=Input((1, 75), True)), False),
        # Half precision would not hide what is 100 below the rest.
        (with_op(attention("flat", (2, 2, 40, 75), 32, mask=Input((40, 75), True)), AttentionOp(2, 2, 0.001)), False),
    ],
    ids=lambda value: value.label if isinstance(value, Layer) else "",
)
def test_masks_of_queries_are_prepared_where_nothing_else_is_constant(layer: Layer, prepared: bool) -> None:
    problem = problem_of(layer)
    assert shape_of(problem).prepared is prepared
    # A kernel that prepares a constant reads no others when it runs.
    keys = replace(problem.inputs[1], constant=True)
    assert not shape_of(replace(problem, inputs=(problem.inputs[0], keys, *problem.inputs[2:]))).prepared


def test_one_unit_serves_every_number_of_images_and_rows() -> None:
    layers = [packed(f"rows-{rows}", images, 12, rows, 64) for images, rows in ((1, 128), (32, 384))]
    steps = [(problem_of(layer), candidate_of(TILE)) for layer in layers]
    (unit,) = FAMILY.units(steps, H200)
    assert unit.text == (
        '#include "bolt_attention/warp_kernel.h"\n\n'
        "template void bolt::attention::launch(\n    bolt::attention::WarpTile<64, 64, 4, 1, 1, 64, 8, 8, 8>,\n"
        "    bolt::attention::Unmasked, const bolt::attention::Arguments&, void*);\n"
    )
