"""How long attention is predicted to take on GPUs, and why."""

from __future__ import annotations

import pytest
from families_harness import Input, Layer, graph_with
from gpu_attention_layers import attention, packed
from proposed import one_problem

from bolt_build.dtypes import DType
from bolt_build.families import load
from bolt_build.families.attention.family import Attention
from bolt_build.families.attention.kind import Kind, candidate_of
from bolt_build.families.attention.registry import KINDS
from bolt_build.families.attention.shape import shape_of
from bolt_build.families.attention.spread import KIND as SPREAD
from bolt_build.families.attention.warp import KIND as WARP
from bolt_build.families.attention.warp import WarpTile
from bolt_build.families.attention.warpgroup import KIND as WARPGROUP
from bolt_build.families.attention.warpgroup import WarpgroupTile
from bolt_build.families.base import KernelProblem
from bolt_build.targets import Target, target_named

FAMILY = Attention()
H200, A100, T4 = target_named("h200"), target_named("a100"), target_named("t4")
BERT = packed("bert", 32, 12, 128, 64)
MASKED = attention("masked", (2, 8, 100, 120), 64, kv_heads=2, causal=True, mask=Input((2, 1, 1, 120)))
TILE = WarpTile(4, 1, 1, 64)
SHIFTED = attention("shifted", (2048, 3, 49, 49), 32, mask=Input((64, 3, 49, 49), True))


def problem_of(layer: Layer) -> KernelProblem:
    return one_problem(FAMILY, layer, H200)


@pytest.mark.parametrize("target", [T4, A100, H200], ids=lambda target: target.name)
@pytest.mark.parametrize("layer", [BERT, MASKED], ids=lambda layer: layer.label)
def test_is_predicted_to_beat_the_plain_kernel(layer: Layer, target: Target) -> None:
    graph, node = graph_with(layer)
    families = {family.name: family for family in load(target)}
    own = [a.seconds for a in families["attention"].propose(graph, node, target, DType.F16)[0]]
    plain = [a.seconds for a in families["portable"].propose(graph, node, target, DType.F16)[0]]
    assert max(own) < min(plain) / 5


def test_windows_that_share_masks_are_predicted_to_gain_by_turns() -> None:
    """A block loads its mask once, and a block of each image would do so for every one. Blocks that stay have it copied
    while another window is computed."""
    kinds = [dict(candidate.parameters)["kind"] for candidate in FAMILY.candidates(problem_of(SHIFTED), H200)[0]]
    assert list(dict.fromkeys(kinds)) == ["persistent", "windows", "warpgroup", "resident", "warp"]
    own = attention("own", (2048, 3, 49, 49), 32, mask=Input((2048, 3, 49, 49)))
    kinds = {dict(candidate.parameters)["kind"] for candidate in FAMILY.candidates(problem_of(own), H200)[0]}
    assert kinds == {"warp", "warpgroup"}


@pytest.mark.parametrize("kind", [WARP, WARPGROUP], ids=["warp", "warpgroup"])
def test_a_mask_of_every_query_is_predicted_to_take_the_time_of_its_copies(kind: Kind) -> None:
    """Keys' masks that queries share take nearly none, and constants that lie as scores do."""
    masks = (None, Input((32, 1, 1, 64)), Input((1, 1, 64, 64), True), Input((32, 1, 64, 64)))
    layers = [attention("masked", (32, 24, 64, 64), 32, mask=mask) for mask in masks]
    none, shared, constant, own = (kind.offers(shape_of(problem_of(layer)), H200)[0][0].seconds for layer in layers)
    assert none <= shared < 1.2 * none
    assert constant < 1.1 * none
    assert own > 1.02 * none


def test_rows_that_are_no_whole_lines_are_predicted_to_be_copied_more_slowly() -> None:
    shapes = [shape_of(problem_of(attention("own", (512, 6, n, n), 32, mask=Input((512, 1, n, n))))) for n in (64, 63)]
    whole, odd = (WARPGROUP.offers(shape, H200)[0][0].seconds for shape in shapes)
    assert odd > 1.1 * whole


def test_keys_are_predicted_to_be_copied_ahead_where_no_other_block_computes_meanwhile() -> None:
    """Steps of one block on a multiprocessor wait for their keys; of several, others compute."""
    for images, gains in ((1, True), (64, False)):
        problem = problem_of(packed("long", images, 6, 1500, 64))
        one, two = (
            FAMILY.predict(problem, candidate_of(WarpgroupTile(1, 128, stages, ahead=False, blocks=blocks)), H200)
            for stages, blocks in ((1, 4), (2, 2))
        )
        assert (two < 0.9 * one) is gains


def test_expense_says_what_tiles_pad() -> None:
    problem = problem_of(packed("vit", 1, 12, 197, 64))
    expense = FAMILY.expense(problem, candidate_of(WarpTile(4, 1, 1, 64)))
    assert expense.why == "tiles padded from 119221248 operations to 201326592"
    assert FAMILY.expense(problem).why == ""


def test_a_causal_problem_takes_fewer_steps() -> None:
    plain, causal = (attention("long", (4, 8, 2048, 2048), 64, causal=causal) for causal in (False, True))
    tile = candidate_of(TILE)
    assert FAMILY.predict(problem_of(causal), tile, H200) < 0.7 * FAMILY.predict(problem_of(plain), tile, H200)


@pytest.mark.parametrize(("layer", "gain"), [
    (attention("token", (1, 8, 4, 4097), 128), 3.0),
    (attention("prompt", (8, 8, 10, 4096), 16), 2.0),
    (attention("short", (1, 8, 1, 100), 64), 0.0),
], ids=lambda value: value.label if isinstance(value, Layer) else "")  # fmt: skip
def test_few_queries_of_many_keys_are_predicted_to_gain_by_clusters(layer: Layer, gain: float) -> None:
    """A block reads keys and values as fast as one multiprocessor does: 8 heads are 8 of 132."""
    offers = [(kind, kind.offers(shape_of(problem_of(layer)), H200)[0]) for kind in KINDS]
    spread, others = ([o[0].seconds for kind, o in offers if o and (kind is SPREAD) is own] for own in (True, False))
    assert min(others) > gain * spread[0] if gain else min(others) < spread[0]
