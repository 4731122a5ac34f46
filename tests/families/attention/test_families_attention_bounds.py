"""Windows and caps of scores: in which kernels they are, and what these emit."""

from __future__ import annotations

from math import e, log2
from typing import Any

import pytest
from families_harness import Input, Layer
from gpu_attention_layers import attention
from proposed import one_problem, refusals

from bolt_build.families.attention.family import Attention
from bolt_build.families.attention.kind import candidate_of
from bolt_build.families.attention.shape import shape_of
from bolt_build.families.attention.warp import WarpTile
from bolt_build.families.base import KernelProblem, StepExpressions
from bolt_build.targets import target_named

FAMILY, H200, TILE = Attention(), target_named("h200"), WarpTile(4, 1, 1, 64)
AT = StepExpressions(("q", "k", "v"), ("y",), (None,) * 3)
WINDOWS_OF = attention("window", (2, 8, 4096, 4096), 64, causal=True, window=256)


def problem_of(layer: Layer) -> KernelProblem:
    return one_problem(FAMILY, layer, H200)


def test_blocks_go_through_the_keys_of_their_queries_windows_alone() -> None:
    shape = shape_of(problem_of(WINDOWS_OF))
    assert (shape.mask_type, shape.window) == ("bolt::attention::Windowed<bolt::attention::Unmasked>", 256)
    assert shape.span(1024, 64) == (768, 1088)  # from 769 on, in whole sixteens
    assert shape_of(problem_of(attention("sides", (1, 1, 600, 600), 64, window=33))).span(64, 64) == (32, 160)
    assert shape.tile_steps(64, 64)[:7] == [1, 2, 3, 4, 5, 5, 5]
    whole = attention("whole", (2, 8, 4096, 4096), 64, causal=True)
    times = [FAMILY.predict(problem, FAMILY.candidates(problem, H200)[0][0], H200)
             for problem in map(problem_of, (WINDOWS_OF, whole))]  # fmt: skip
    assert 3 * times[0] < times[1]
    call = FAMILY.emit(problem_of(WINDOWS_OF), candidate_of(TILE), H200, AT).call
    assert ".mask_scale = 8.0f, .window = 256}" in call.replace("5.333333333333333f", "8.0f")


def test_a_cap_is_part_of_the_kernel() -> None:
    """An exponential and a reciprocal more for each score."""
    capped, plain = (problem_of(attention("cap", (8, 16, 1024, 1024), 64, cap=cap)) for cap in (50.0, 0.0))
    assert shape_of(capped).mask_type == "bolt::attention::Capped<bolt::attention::Unmasked>"
    times = [FAMILY.predict(each, FAMILY.candidates(plain, H200)[0][0], H200) for each in (capped, plain)]
    assert times[1] < times[0] < 3 * times[1]
    both = attention("both", (1, 2, 200, 200), 64, window=50, cap=50.0)
    assert (
        shape_of(problem_of(both)).mask_type
        == "bolt::attention::Capped<bolt::attention::Windowed<bolt::attention::Unmasked>>"
    )
    call = FAMILY.emit(capped, candidate_of(TILE), H200, AT).call
    assert f".scale = {50.0 * log2(e)}f" in call
    assert f".cap_scale = {2 * log2(e) * 1.5 * 64**-0.5 / 50.0}f" in call


@pytest.mark.parametrize(("what", "bounds"), [("a window", {"window": 20}), ("a cap", {"cap": 5.0})])
def test_masks_beside_them_are_those_of_keys(what: str, bounds: dict[str, Any]) -> None:
    own = attention("own", (1, 2, 40, 40), 64, mask=Input((1, 1, 40, 40)), **bounds)
    assert refusals(FAMILY, own, H200) == {f"has {what}, or a mask by queries or the number of keys, not both"}
    shared = problem_of(attention("shared", (1, 2, 40, 40), 64, mask=Input((1, 1, 1, 40)), **bounds))
    name = "Windowed" if "window" in bounds else "Capped"
    assert shape_of(shared).mask_type == f"bolt::attention::{name}<bolt::portable::f16>"
