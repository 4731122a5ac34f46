"""Attention whose heads stay in shared memory while warpgroups go through their queries."""

from __future__ import annotations

from dataclasses import replace

import pytest
from families_harness import Input, Layer
from gpu_attention_layers import attention, packed
from proposed import one_problem

from bolt_build.families.attention.family import Attention
from bolt_build.families.attention.kind import candidate_of
from bolt_build.families.attention.resident import KIND as RESIDENT
from bolt_build.families.attention.resident import ResidentTile
from bolt_build.families.attention.shape import shape_of
from bolt_build.families.base import KernelProblem, StepExpressions
from bolt_build.targets import Target, target_named

FAMILY = Attention()
AT = StepExpressions(("q", "k", "v"), ("y",), (None,) * 3)
H200, A100 = target_named("h200"), target_named("a100")
VIT, TILE = packed("vit", 32, 12, 197, 64), ResidentTile(3, 208, 3, 1)


def problem_of(layer: Layer) -> KernelProblem:
    return one_problem(FAMILY, layer, H200)


@pytest.mark.parametrize(
    ("layer", "target", "why"),
    [
        (VIT, H200, None),
        (VIT, A100, "the GPU has no WGMMA"),
        (packed("odd", 32, 12, 197, 36), H200, "copies heads of whole 16 bytes, not of 36 and 36 elements"),
        (packed("long", 32, 12, 257, 64), H200, "has at most 256 keys, those of one step, not 257"),
        (attention("keys", (2, 8, 900, 120), 64, kv_heads=2, causal=True, mask=Input((2, 1, 1, 120))), H200, None),
        (attention("bias", (8, 8, 70, 70), 64, mask=Input((8, 70, 70), True)), H200, None),
        (attention("own", (8, 8, 70, 70), 64, mask=Input((8, 8, 70, 70))), H200,
         "copies no computed masks whose queries have rows of their own"),
        (attention("window", (2, 2, 200, 200), 64, causal=True, window=70), H200,
         "has queries that read all keys, and scores without a cap"),
    ],
    ids=lambda value: value.label if isinstance(value, Layer) else "",
)  # fmt: skip
def test_takes_heads_whose_keys_are_one_step(layer: Layer, target: Target, why: str | None) -> None:
    assert target.gpu is not None
    assert RESIDENT.serves(shape_of(problem_of(layer)), target.gpu) == why


@pytest.mark.parametrize(
    ("tile", "why"),
    [
        (TILE, None),
        (replace(TILE, stages=4), "takes 262296 bytes of shared memory, one of 1 blocks has 232448"),
        (replace(TILE, groups=4, stages=2), "takes 151 registers of a thread, there are 128 for 1 blocks"),
        (replace(TILE, groups=2, blocks=2), "takes 151 registers of a thread, there are 128 for 2 blocks"),
        (replace(TILE, groups=2), None),
    ],
)
def test_says_why_a_tile_is_none(tile: ResidentTile, why: str | None) -> None:
    assert H200.gpu is not None
    assert tile.refuse(shape_of(problem_of(VIT)), H200.gpu) == why


def test_its_candidates_state_all_that_they_do() -> None:
    candidate = candidate_of(TILE)
    assert str(candidate) == "attention kind=resident groups=3 keys=208 stages=3 blocks=1"
    assert RESIDENT.tile_of(candidate) == TILE
    kinds = {dict(each.parameters)["kind"] for each in FAMILY.candidates(problem_of(VIT), H200)[0]}
    assert "resident" in kinds
    code = FAMILY.emit(problem_of(VIT), candidate, H200, replace(AT, inputs=("x",), prepare_inputs=(None,)))
    assert code.call.startswith(
        "bolt::attention::run(r, bolt::attention::ResidentTile<64, 64, 3, 208, 3, 1, 8>{}, bolt::attention::Unmasked{}"
    )
    (unit,) = FAMILY.units([(problem_of(VIT), candidate)], H200)
    assert unit.text.startswith('#include "bolt_attention/resident_kernel.h"\n')


def test_heads_of_queries_that_share_keys_are_brought_once() -> None:
    """Tiles of a head follow each other in a block, whose shared memory has its keys all the while: blocks of one tile
    each would have L2 bring them four times."""
    shape = shape_of(problem_of(VIT))
    others = [each for each in FAMILY.candidates(problem_of(VIT), H200)[0] if ("kind", "warpgroup") in each.parameters]
    assert TILE.seconds(shape, H200) < FAMILY.predict(problem_of(VIT), others[0], H200)


def test_takes_longer_the_more_masks_it_loads() -> None:
    masks = (None, Input((32, 1, 1, 197)))
    times = [TILE.seconds(shape_of(problem_of(attention("m", (32, 12, 197, 197), 64, mask=m))), H200) for m in masks]
    assert times[0] < times[1] < 1.5 * times[0]


def test_counts_operations_on_padding() -> None:
    assert TILE.flops(shape_of(problem_of(VIT))) == 2 * 32 * 12 * 256 * 208 * 128
