"""Sinks, two constant masks and masks by distance: in which kernels they are, and what these emit."""

from __future__ import annotations

from dataclasses import replace

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
SPACE = "bolt::attention::"


def problem_of(layer: Layer) -> KernelProblem:
    return one_problem(FAMILY, layer, H200)


def emitted(problem: KernelProblem) -> str:
    names = tuple(f"i{index}" for index in range(len(problem.inputs)))
    prepared = tuple(f"w{index}" if each.constant else None for index, each in enumerate(problem.inputs))
    code = FAMILY.emit(problem, candidate_of(TILE), H200, StepExpressions(names, ("y",), prepared))
    return f"{code.member_type} {code.member_arguments} {code.call}"


def kinds(problem: KernelProblem) -> set[object]:
    return {dict(each.parameters)["kind"] for each in FAMILY.candidates(problem, H200)[0]}


def test_sinks_are_read_behind_the_steps_of_any_kernel() -> None:
    plain = attention("plain", (2, 8, 200, 200), 64, kv_heads=2, causal=True)
    sunk = problem_of(attention("sunk", (2, 8, 200, 200), 64, kv_heads=2, causal=True, sinks=Input((8,), True)))
    assert shape_of(sunk).mask_type == f"{SPACE}Sunk<{SPACE}Unmasked, float>"
    assert kinds(sunk) == kinds(problem_of(plain))
    assert ".sink_steps = {1, 0}}" in emitted(sunk)
    assert "nullptr, y, i3);" in emitted(sunk)
    one = emitted(problem_of(attention("one", (2, 8, 200, 200), 64, mask=Input((1, 1, 1, 200)), sinks=Input((1,)))))
    assert ".sink_steps = {0, 0}}" in one
    assert "i3, y, i4);" in one


def test_heads_that_are_rows_of_a_token_have_a_sink_each() -> None:
    token = problem_of(attention("token", (2, 8, 1, 300), 64, kv_heads=2, sinks=Input((8,), True)))
    assert ".sink_steps = {4, 1}}" in emitted(token)


def test_beside_sinks_a_constant_mask_is_read_as_it_is() -> None:
    layer = attention("bias", (2, 3, 70, 75), 64, mask=Input((3, 70, 75), True), sinks=Input((3,)))
    assert not shape_of(problem_of(layer)).prepared
    shared = attention("shared", (2, 3, 70, 75), 64, mask=Input((2, 1, 70, 1)), sinks=Input((3,)))
    assert refusals(FAMILY, shared, H200) == {"leaves out of scores what all keys of a query share, which sinks do not"}
    counted = attention("counted", (2, 3, 70, 75), 64, sinks=Input((3,)))
    counted = replace(counted, op=replace(counted.op, counted=1))
    assert refusals(FAMILY, counted, H200) == {"takes sinks or the number of keys, not both"}


TWO = {"mask": Input((3, 64, 64), True), "more": Input((4, 1, 64, 64), True)}


def test_two_constant_masks_are_put_in_the_order_of_scores() -> None:
    problem = problem_of(attention("two", (800, 3, 64, 64), 32, **TWO))
    shape = shape_of(problem)
    assert (shape.mask_type, shape.masks, shape.prepared) == (f"{SPACE}PreparedTwice", 4, True)
    assert kinds(problem) == {"warp", "warpgroup", "resident", "windows"}
    text = emitted(problem)
    assert text.startswith(f"{SPACE}MaskedTwice<")
    assert f'{SPACE}Constant<float>{{static_cast<const float*>(w4), "w4"}}, 4096, 64 ' in text
    for mask in (Input((4, 64, 64), False), Input((3, 1, 64), True)):
        layer = attention("other", (800, mask.shape[0], 64, 64), 32, mask=mask, more=TWO["more"])
        assert refusals(FAMILY, layer, H200) == {"adds one mask, or two that are constants"}


def test_a_mask_by_distance_begins_where_the_first_query_and_key_are() -> None:
    layer = attention("by", (2, 3, 200, 260), 64, mask=Input((3, 459), True), relative=True)
    problem = problem_of(layer)
    assert shape_of(problem).mask_type == f"{SPACE}Relative"
    assert {"warp", "warpgroup", "persistent"} <= kinds(problem)
    assert ".mask_steps = {0, 459, -1, 1}" in emitted(problem)
    assert f'{SPACE}Constant<float>{{static_cast<const float*>(w3), "w3"}}, 3' in emitted(problem)
    shared = attention("one", (2, 3, 200, 260), 64, window=20, mask=Input((1, 459), True), relative=True)
    assert ".mask_steps = {0, 0, -1, 1}" in emitted(problem_of(shared))
    assert shape_of(problem_of(shared)).window == 20
    capped = attention("capped", (2, 3, 200, 260), 64, cap=2.0, mask=Input((3, 459), True), relative=True)
    assert refusals(FAMILY, capped, H200) == {"has a cap, or a mask by queries or the number of keys, not both"}
