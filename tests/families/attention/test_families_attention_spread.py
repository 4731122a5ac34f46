"""Attention of few queries, whose keys are spread over the blocks of a cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest
from families_harness import Input, Layer
from gpu_attention_layers import attention
from proposed import one_problem

from bolt_build.families.attention.family import Attention
from bolt_build.families.attention.kind import candidate_of
from bolt_build.families.attention.shape import shape_of
from bolt_build.families.attention.spread import KIND as SPREAD
from bolt_build.families.attention.spread import SpreadTile
from bolt_build.families.attention.warp import WarpTile
from bolt_build.families.base import KernelProblem, StepExpressions
from bolt_build.families.portable.family import Portable
from bolt_build.targets import Target, target_named

FAMILY = Attention()
AT = StepExpressions(("q", "k", "v"), ("y",), (None,) * 3)
H200, A100 = target_named("h200"), target_named("a100")
MASKED = attention("masked", (2, 8, 100, 120), 64, kv_heads=2, causal=True, mask=Input((2, 1, 1, 120)))
TOKEN, FEW = attention("token", (8, 8, 1, 513), 64), SpreadTile(WarpTile(1, 4, 1, 64), 4)


def problem_of(layer: Layer) -> KernelProblem:
    return one_problem(FAMILY, layer, H200)


@pytest.mark.parametrize(
    ("layer", "target", "why"),
    [
        (TOKEN, H200, None),
        (TOKEN, A100, "blocks form clusters from sm_90 on"),
        (MASKED, H200, "has queries that all read the same keys"),
        (attention("token-bias", (8, 8, 2, 513), 64, mask=Input((8, 1, 513), True)), H200, None),
        (attention("bias", (8, 8, 2, 513), 64, mask=Input((8, 2, 513), True)), H200,
         "has no kernel for masks in the order of scores"),
    ],
    ids=lambda value: value.label if isinstance(value, Layer) else "",
)  # fmt: skip
def test_keys_of_few_queries_are_spread_over_a_cluster(layer: Layer, target: Target, why: str | None) -> None:
    assert target.gpu is not None
    assert SPREAD.serves(shape_of(problem_of(layer)), target.gpu) == why


@pytest.mark.parametrize(
    ("tile", "layer", "why"),
    [
        (FEW, TOKEN, None),
        (replace(FEW, blocks=8), attention("short", (8, 8, 1, 440), 64), "blocks of a cluster are 8, steps of keys 7"),
        (FEW, attention("many", (33, 8, 1, 513), 64), "264 tiles of queries fill 132 multiprocessors by themselves"),
    ],
    ids=["few", "short", "many"],
)
def test_says_why_blocks_share_no_keys(tile: SpreadTile, layer: Layer, why: str | None) -> None:
    assert H200.gpu is not None
    assert tile.refuse(shape_of(problem_of(layer)), H200.gpu) == why


def test_a_cluster_is_part_of_the_kernels_type() -> None:
    problem = problem_of(TOKEN)
    code = FAMILY.emit(problem, candidate_of(FEW), H200, AT)
    tile = "bolt::attention::SpreadTile<bolt::attention::WarpTile<64, 64, 1, 4, 1, 64, 8, 8, 8>, 4>"
    assert code.call.startswith(f"bolt::attention::run(r, {tile}{{}}, bolt::attention::Unmasked{{}}, ")
    (unit,) = FAMILY.units([(problem, candidate_of(FEW))], H200)
    assert unit.text.startswith('#include "bolt_attention/spread_kernel.h"\n')


def test_heads_that_share_keys_are_rows_of_one_where_each_has_one_query() -> None:
    """A block of each head would read the same keys once more. Masks of heads become those of queries; queries of
    windows, and causal ones, have a place of their own."""
    token = attention("token", (8, 16, 1, 513), 64, kv_heads=4, mask=Input((8, 16, 1, 513)))
    shape = shape_of(problem_of(token))
    assert (shape.heads, shape.group, shape.queries, shape.by_query) == (4, 1, 4, True)
    candidate = FAMILY.candidates(problem_of(token), H200)[0][0]
    call = FAMILY.emit(problem_of(token), candidate, H200, replace(AT, inputs=("q", "k", "v", "m"))).call
    assert ".heads = 4, .group = 1, .queries = 4, " in call
    assert ".q_rows = {0, 1024, 64, 256}, .k_rows = {0, 131328, 256}, " in call
    assert ".y_rows = {0, 1024, 64, 256}, .mask_steps = {8208, 2052, 513, 1}, " in call
    for other in (
        attention("two", (8, 16, 2, 513), 64, kv_heads=4),
        attention("causal", (8, 16, 1, 513), 64, kv_heads=4, causal=True),
        attention("window", (8, 16, 1, 513), 64, kv_heads=4, window=9),
        attention("capped", (8, 16, 1, 513), 64, kv_heads=4, cap=3.0, mask=Input((8, 16, 1, 513))),
        TOKEN,
    ):
        assert shape_of(problem_of(other)).queries == other.inputs[0].shape[1], other.label


@pytest.mark.parametrize(
    ("batch", "heads", "kv_heads", "keys", "depth"), [(1, 8, 2, 1024, 64), (1, 12, 12, 512, 64), (1, 32, 8, 256, 128)]
)
def test_a_small_token_is_not_left_to_plain_loops(batch: int, heads: int, kv_heads: int, keys: int, depth: int) -> None:
    """Few operations, which wait for each other."""
    problem = problem_of(attention("token", (batch, heads, 1, keys), depth, kv_heads=kv_heads))
    plain = Portable()
    (direct, *_), _ = plain.candidates(problem, H200)
    fastest = FAMILY.candidates(problem, H200)[0][0]
    assert FAMILY.predict(problem, fastest, H200) < plain.predict(problem, direct, H200)
