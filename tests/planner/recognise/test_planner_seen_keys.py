"""Which keys queries read, as models say it with constant masks, and scores that are bounded."""

from __future__ import annotations

import numpy as np
import pytest
from planner_checks import graph, run, said, same_values
from planner_fakes import POLICY

from bolt_build.graph.ir import Array, Graph
from bolt_build.graph.ops.attention.attention import Attention
from bolt_build.planner.passes.recognise.attention import RECOGNISE_ATTENTION
from bolt_build.planner.pipeline import optimize


def attending(masked: str, constants: str = "", inputs: str = "", rows: int = 6) -> Graph:
    """Attention of two heads, with scores %s that `masked` makes %m of."""
    return graph(f"""
        graph g batch=2 (%x: f32[2,{rows},8]{inputs}) -> (%y) {{
          {constants}
          const %zero: f32[] {{0}}
          const %fifty: f32[] {{0.5}}
          %h = reshape(%x) shape=[2,{rows},2,4]
          %t = transpose(%h) perm=[0,2,1,3]
          %s = matmul(%t, %t) transpose_b=true
          {masked}
          %p = softmax(%m) axis=3
          %o = matmul(%p, %t)
          %b = transpose(%o) perm=[0,2,1,3]
          %y = reshape(%b) shape=[2,{rows},8]
        }}""")


def op_of(before: Graph) -> Attention:
    after = run(RECOGNISE_ATTENTION, before).graph
    same_values(before, after)
    (op,) = [node.op for node in after.nodes if isinstance(node.op, Attention)]
    return op


def band(rows: int, behind: int, ahead: int) -> Array:
    places = np.arange(rows)
    return (places[:, None] - places < behind) & (places - places[:, None] < ahead)


def constant(seen: Array, hidden: str) -> str:
    levels = ",".join("0" if each else hidden for each in seen.reshape(-1))
    return f"const %mask: f32[{','.join(map(str, seen.shape))}] {{{levels}}}"


@pytest.mark.parametrize("hidden", ["-inf", "-3e38"])
@pytest.mark.parametrize(
    ("seen", "causal", "window"),
    [
        (band(6, 3, 1), True, 3),  # Mistral, Gemma
        (band(6, 6, 1), True, 0),
        (band(6, 1, 1), True, 1),
        (band(6, 3, 3), False, 3),  # ModernBERT
        (band(6, 5, 5), False, 5),
    ],
)
def test_a_band_of_keys_around_each_query_is_a_window(seen: Array, causal: bool, window: int, hidden: str) -> None:
    op = op_of(attending("%m = add(%s, %mask)", constant(seen[None, None], hidden)))
    assert op == Attention(2, 2, 1.0, causal, window=window)


@pytest.mark.parametrize(
    ("first", "second", "causal", "window"),
    [
        (band(6, 3, 3), band(6, 6, 1), True, 3),
        (band(6, 6, 1), band(6, 3, 3), True, 3),
        (band(6, 2, 1), band(6, 4, 1), True, 2),
        (band(6, 4, 4), band(6, 2, 2), False, 2),
    ],
)
def test_two_masks_show_what_both_of_them_show(first: Array, second: Array, causal: bool, window: int) -> None:
    constants = f"{constant(first, '-inf')}\n{constant(second, '-inf').replace('%mask', '%other')}"
    op = op_of(attending("%r = add(%s, %mask)\n%m = add(%r, %other)", constants))
    assert op == Attention(2, 2, 1.0, causal, endless=op.endless, window=window)


def test_a_band_that_stays_a_mask_leaves_the_triangle_beside_it() -> None:
    constants = f"{constant(band(6, 6, 1), '-inf')}\n{constant(band(6, 3, 3), '-inf').replace('%mask', '%other')}"
    masked = "%q = add(%s, %mask)\n%r = add(%q, %other)\n%m = add(%r, %rows)"
    op = op_of(attending(masked, constants, ", %rows: f32[2,1,6,6]"))
    assert (op.causal, op.window) == (True, 0)


def holed() -> Array:
    found = band(6, 3, 1)
    found[4, 3] = False
    return found


@pytest.mark.parametrize("seen", [band(6, 2, 3), band(6, 3, 1)[::-1], holed(), band(6, 3, 3) & (np.arange(6) < 5)])
def test_other_masks_stay(seen: Array) -> None:
    before = attending("%m = add(%s, %mask)", constant(seen[None, None], "-inf"))
    assert op_of(before) == Attention(2, 2, 1.0, endless=True)


def test_a_band_that_is_too_large_to_be_stored_as_numbers_is_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bolt_build.planner.passes.recognise.attention.MOST_FOLDED", 20)
    bits = ",".join(str(each).lower() for each in band(6, 3, 1).reshape(-1).tolist())
    constants = f"const %seen: bool[1,1,6,6] {{{bits}}}\n const %least: f32[] {{-3e38}}"
    before = attending("%n = where(%seen, %zero, %least)\n %m = add(%s, %n)", constants)
    assert op_of(before) == Attention(2, 2, 1.0, True, window=3)


@pytest.mark.parametrize(
    ("pad", "op"),
    [
        ("2,1,1,6", Attention(2, 2, 1.0, True, endless=True, window=3)),
        ("6", Attention(2, 2, 1.0, True, endless=True, window=3)),
        ("2,1,6,6", Attention(2, 2, 1.0, endless=True)),  # no kernel takes both
    ],
)
def test_beside_a_mask_of_keys_a_band_is_a_window(pad: str, op: Attention) -> None:
    constants = constant(band(6, 3, 1)[None, None], "-inf")
    before = attending("%w = add(%s, %mask)\n %m = add(%w, %pad)", constants, f", %pad: f32[{pad}]")
    assert op_of(before) == op


def test_a_triangle_that_hides_by_a_finite_number_is_causal_beside_a_bias_that_hides_nothing() -> None:
    """ALiBi, as BLOOM adds it: in front of the triangle, which is folded."""
    constants = constant(band(6, 6, 1)[None, None], "-3e38") + "\n const %alibi: f32[1,2,1,6] #1"
    before = attending("%w = add(%s, %alibi)\n %m = add(%w, %mask)", constants)
    after = run(RECOGNISE_ATTENTION, before).graph
    same_values(before, after)
    (node,) = [node for node in after.nodes if isinstance(node.op, Attention)]
    assert node.op == Attention(2, 2, 1.0, causal=True)
    assert node.inputs == ("x", "x", "x", "alibi")
    given = attending("%w = add(%s, %alibi)\n %m = add(%w, %mask)", constants.partition("\n")[0],
                      ", %alibi: f32[2,2,1,6]")  # fmt: skip
    assert not op_of(given).causal  # it may hide keys itself


CAPPED = "%c = mul(%s, %fifty)\n %d = tanh(%c)\n %e = mul(%d, %three)"


@pytest.mark.parametrize(
    ("masked", "causal", "endless"),
    [
        ("%m = identity(%e)", False, False),
        ("%m = add(%e, %mask)", True, False),
        ("%f = add(%e, %mask)\n %m = add(%f, %pad)", True, True),
    ],
)
def test_a_hyperbolic_tangent_of_scores_is_a_cap(masked: str, causal: bool, endless: bool) -> None:
    """Gemma 2's."""
    constants = constant(band(6, 6, 1)[None, None], "-inf") + "\n const %three: f32[] {3}"
    before = attending(f"{CAPPED}\n {masked}", constants, ", %pad: f32[2,1,1,6]")
    assert op_of(before) == Attention(2, 2, 1.5, causal, endless=endless, cap=3.0)
    after = optimize(before, POLICY).graph
    same_values(before, after)


@pytest.mark.parametrize(
    ("masked", "why"),
    [
        (f"{CAPPED}\n %m = add(%e, %bias)", "'bias' is added to scores that are capped"),
        ("%c = add(%s, %pad)\n %m = tanh(%c)", "a hyperbolic tangent bounds what is no scaled product alone"),
        (f"{CAPPED}\n %m = mul(%e, %low)", "scores that are capped are multiplied by -1"),
        (f"{CAPPED}\n %m = mul(%e, %each)", "'each' multiplies scores that are capped"),
    ],
)
def test_what_is_done_to_bounded_scores_is_no_cap(masked: str, why: str) -> None:
    before = attending(masked, "const %three: f32[] {3}\n const %low: f32[] {-1}",
                       ", %pad: f32[2,1,1,6], %bias: f32[2,1,6,6], %each: f32[2,1,1]")  # fmt: skip
    result = run(RECOGNISE_ATTENTION, before)
    assert result.graph == before
    assert said(result) == [("p", "declined", why)]
