"""Epilogue fusion: what rides in the kernel before it, and the reason for everything that does not."""

from __future__ import annotations

import pytest
from planner_checks import body, graph, run, said

from bolt_build.planner.passes.fuse.epilogues import FUSE_EPILOGUES
from bolt_build.schema.recipe import FusionPolicy, Policy

CONV = "strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]"


def residual(lines: str, outputs: str = "%y", more: str = "") -> str:
    """A graph of two inputs of shape [1,4,5,5] and a 1x1 convolution %a of %x."""
    return f"""
        graph g batch=1 (%x: f32[1,4,5,5], %r: f32[1,4,5,5]) -> ({outputs}) {{
          const %w: f32[4,4,1,1] #
          {more}
          %a = conv(%x, %w) // "a"
          {lines}
        }}"""


@pytest.mark.parametrize(
    ("lines", "stages"),
    [
        ('%y = relu(%a) // "y"', "relu"),
        ('%y = elu(%a) alpha=1 // "y"', "elu alpha=1.0"),
        ('%y = mish(%a) // "y"', "mish"),
        ('%s = add(%a, %r) // "s"\n %y = relu(%s) // "y"', "add(%r) | relu"),
        ('%s = add(%r, %a) // "s"\n %y = relu(%s) // "y"', "add(%r) | relu"),
        ('%s = relu(%a) // "s"\n %y = add(%s, %r) // "y"', "relu | add(%r)"),
        ('%s = silu(%a) // "s"\n %t = add(%r, %s) // "t"\n %y = relu(%t) // "y"', "silu | add(%r) | relu"),
        ('%y = sub(%a, %r) // "y"', "sub(%r)"),
        ('%y = add(%a, %x) // "y"', "add(%x)"),
    ],
)
def test_residual_and_activation_ride_in_the_convolution(lines: str, stages: str) -> None:
    result = run(FUSE_EPILOGUES, graph(residual(lines)))
    (node,) = result.graph.nodes
    assert (node.name, node.outputs) == ("y", ("y",))
    operand = ", %x" if "%x)" in stages else ", %r" if "%r" in stages else ""
    covers = ", ".join(f'"{name}"' for name in node.covers)
    assert body(result.graph) == f"%y = conv(%x, %w{operand}) {CONV} | {stages} @y  // {covers}"
    assert [action for _, action, _ in said(result)] == ["fused"] * len(node.epilogue)


@pytest.mark.parametrize(
    ("lines", "outputs", "more", "reason"),
    [
        ('%y = relu(%a) // "y"\n %z = tanh(%a) // "z"', "%y, %z", "", "'a' is read by 2 nodes"),
        ('%y = relu(%a) // "y"', "%y, %a", "", "'a' is a graph output"),
        ('%y = mul(%a, %a) // "y"', "%y", "", "'y' reads 'a' twice"),
        ('%y = erf(%a) // "y"', "%y", "", "'erf' is no stage of a convolution's epilogue"),
        (
            '%y = sub(%r, %a) // "y"', "%y", "",
            "'sub' with the convolution's result on the right is no stage of its epilogue",
        ),
        ('%y = mul(%a, %c) // "y"', "%y", "const %c: f32[4,1,1] #", "'c' is constant"),
        (
            '%s = reduce(%r) mode=mean axes=[2,3] // "s"\n %y = mul(%a, %s) // "y"', "%y", "", "'s' is broadcast",
        ),
    ],
)  # fmt: skip
def test_what_cannot_ride_says_why(lines: str, outputs: str, more: str, reason: str) -> None:
    before = graph(residual(lines, outputs, more))
    result = run(FUSE_EPILOGUES, before)
    others = ["stays out of 's': 'y' is larger than 's'"] if reason == "'s' is broadcast" else []
    assert [r for _, action, r in said(result) if action == "declined"] == [f"stays out of 'a': {reason}", *others]
    assert [node.name for node in result.graph.nodes] == [node.name for node in before.nodes]


def test_a_second_residual_and_a_third_activation_stay_out() -> None:
    lines = '%b = add(%a, %r) // "b"\n %y = add(%b, %x) // "y"'
    result = run(FUSE_EPILOGUES, graph(residual(lines)))
    assert ("y", "declined", "stays out of 'b': its epilogue already has a residual") in said(result)
    lines = '%b = relu(%a) // "b"\n %c = tanh(%b) // "c"\n %y = abs(%c) // "y"'
    result = run(FUSE_EPILOGUES, graph(residual(lines)))
    assert ("y", "declined", "stays out of 'c': its epilogue already has 2 activations") in said(result)


def test_a_broadcast_that_enlarges_the_result_stays_out() -> None:
    before = graph("""
        graph g batch=1 (%x: f32[1,4,1,1], %r: f32[1,4,5,5]) -> (%y) {
          const %w: f32[4,4,1,1] #
          %a = conv(%x, %w) // "a"
          %y = add(%a, %r) // "y"
        }""")
    assert said(run(FUSE_EPILOGUES, before)) == [("y", "declined", "stays out of 'a': 'y' is larger than 'a'")]


def test_of_two_convolutions_that_meet_the_later_one_takes_the_addition() -> None:
    before = graph("""
        graph g batch=1 (%x: f32[1,4,5,5]) -> (%y) {
          const %w: f32[4,4,1,1] #
          const %v: f32[4,4,1,1] #
          %a = conv(%x, %w) // "a"
          %b = conv(%x, %v) // "b"
          %s = add(%a, %b) // "s"
          %y = relu(%s) // "y"
        }""")
    result = run(FUSE_EPILOGUES, before)
    assert body(result.graph).splitlines() == [
        f'%a = conv(%x, %w) {CONV}  // "a"',
        f'%y = conv(%x, %v, %a) {CONV} | add(%a) | relu @y  // "b", "s", "y"',
    ]
    assert said(result) == [
        ("s", "fused", "into the epilogue of 'b'"),
        ("y", "fused", "into the epilogue of 'b'"),
    ]


def test_an_operand_that_is_made_later_is_made_before_the_fused_node() -> None:
    before = graph("""
        graph g batch=1 (%x: f32[1,4,5,5]) -> (%y) {
          const %w: f32[4,4,1,1] #
          %a = conv(%x, %w) // "a"
          %p = pool(%x) mode=max kernel=[1,1] // "p"
          %y = add(%a, %p) // "y"
        }""")
    result = run(FUSE_EPILOGUES, before)
    assert [node.name for node in result.graph.nodes] == ["p", "y"]


def test_an_operand_that_depends_on_the_node_itself_stays_out() -> None:
    before = graph(residual('%p = pool(%a) mode=max kernel=[1,1] // "p"\n %y = add(%a, %p) // "y"'))
    result = run(FUSE_EPILOGUES, before)
    assert ("y", "declined", "stays out of 'a': 'a' is read by 2 nodes") in said(result)


def test_elementwise_nodes_become_one_pass_over_memory() -> None:
    before = graph("""
        graph g batch=1 (%x: f32[1,4,5,5], %r: f32[1,4,5,5]) -> (%y) {
          const %c: f32[4,1,1] #
          const %d: f32[] {2}
          %a = mul(%x, %c) // "a"
          %b = add(%a, %d) // "b"
          %e = sub(%r, %b) // "e"
          %f = relu(%e) // "f"
          %g = tanh(%f) // "g"
          %y = abs(%g) // "y"
        }""")
    result = run(FUSE_EPILOGUES, before)
    assert body(result.graph).splitlines() == [
        '%g = mul(%x, %c, %d, %r) | add(%d) | sub(%r) swapped | relu | tanh @g  // "a", "b", "e", "f", "g"',
        '%y = abs(%g)  // "y"',
    ]
    assert said(result)[-1] == ("y", "declined", "stays out of 'g': its epilogue already has 4 stages")


def test_elementwise_nodes_take_no_other_broadcast() -> None:
    before = graph("""
        graph g batch=1 (%x: f32[1,4,5,5]) -> (%y) {
          const %c: f32[5,5] #
          %a = relu(%x) // "a"
          %y = add(%a, %c) // "y"
        }""")
    why = "stays out of 'a': 'c' is a constant that is neither one number nor some along one axis"
    assert said(run(FUSE_EPILOGUES, before)) == [("y", "declined", why)]


def test_numbers_of_one_pass_follow_one_axis() -> None:
    before = graph("""
        graph g batch=1 (%x: f32[2,4,5]) -> (%y) {
          const %c: f32[5] #
          const %d: f32[1,1,5] #
          const %e: f32[4,1] #
          %a = mul(%x, %c) // "a"
          %b = relu(%a) // "b"
          %f = add(%b, %d) // "f"
          %g = mul(%f, %c) // "g"
          %y = sub(%g, %e) // "y"
        }""")
    result = run(FUSE_EPILOGUES, before)
    assert body(result.graph).splitlines() == [
        '%g = mul(%x, %c, %d, %c) | relu | add(%d) | mul(%c) @g  // "a", "b", "f", "g"',
        '%y = sub(%g, %e)  // "y"',
    ]
    why = "stays out of 'g': 'e' is a constant along another axis than one in its epilogue"
    assert said(result)[-1] == ("y", "declined", why)


def test_what_follows_a_normalisation_rides_in_it() -> None:
    before = graph("""
        graph g batch=1 (%x: f32[1,8,5,5], %r: f32[1,8,5,5]) -> (%y) {
          const %s: f32[8,1,1] #
          const %b: f32[8,1,1] #
          %n = norm(%x, %s, %b) statistic="variance" axes=[1,2,3] epsilon=1e-05 groups=2 // "n"
          %a = silu(%n) // "a"
          %y = add(%a, %r) // "y"
        }""")
    result = run(FUSE_EPILOGUES, before)
    assert body(result.graph).endswith(' | silu | add(%r) @y  // "n", "a", "y"')
    assert len(result.graph.nodes) == 1


@pytest.mark.parametrize("front", ["matmul(%x, %w)", "add(%x, %r)", "concat(%x, %w) axis=0"])
def test_what_may_normalise_its_own_rows_keeps_the_normalisation_to_itself(front: str) -> None:
    before = graph(f"""
        graph g batch=1 (%x: f32[8,8], %r: f32[8,8]) -> (%y) {{
          const %w: f32[8,8] #
          const %s: f32[8] #
          %p = {front} // "p"
          %n = norm(%p, %s) statistic="rms" axes=[1] epsilon=1e-05 // "n"
          %y = silu(%n) // "y"
        }}""")
    why = "stays out of 'n': 'p' and the normalisation of its rows may be one kernel"
    assert said(run(FUSE_EPILOGUES, before))[-1] == ("y", "declined", why)


def test_a_residual_behind_the_normalised_rows_of_a_product_rides_in_it() -> None:
    """A kernel of both may add it, and else that of the normalisation does."""
    result = run(FUSE_EPILOGUES, graph("""
        graph g batch=1 (%x: f32[8,8], %r: f32[8,8]) -> (%y) {
          const %w: f32[8,8] #
          const %s: f32[8] #
          %p = matmul(%x, %w) // "p"
          %n = norm(%p, %s) statistic="rms" axes=[1] epsilon=1e-05 // "n"
          %y = add(%r, %n) // "y"
        }"""))  # fmt: skip
    assert body(result.graph).endswith(' | add(%r) @y  // "n", "y"')


def test_the_policy_can_forbid_it() -> None:
    before = graph(residual('%y = relu(%a) // "y"'))
    result = FUSE_EPILOGUES.run(before, Policy(FusionPolicy(epilogue=False)))
    assert result.graph == before
    assert said(result) == [("g", "declined", "policy.fusion.epilogue is false")]


NORMED = """
    graph g batch=1 (%x: f32[1,4,5,5], %r: f32[1,4,5,5]) -> (%y) {{
      const %s: f32[4,1,1] #
      const %c: f32[4,1,1] #
      const %d: f32[5,5] #
      %a = norm(%x, %s) statistic=variance axes=[1,2,3] epsilon=1e-05 groups=2 // "a"
      {lines}
    }}"""

FIVE = """
      %b = relu(%a) // "b"
      %e = tanh(%b) // "e"
      %g = add(%e, %r) // "g"
      %h = abs(%g) // "h"
      %y = exp(%h) // "y"
"""


def test_a_normalisation_takes_the_activation_behind_it() -> None:
    """GroupNorm and SiLU, as every block of a diffusion model has them."""
    result = run(FUSE_EPILOGUES, graph(NORMED.format(lines='%y = silu(%a) // "y"')))
    assert body(result.graph) == (
        '%y = norm(%x, %s) statistic=variance axes=[1,2,3] epsilon=1e-05 groups=2 | silu @y  // "a", "y"'
    )
    assert said(result) == [("y", "fused", "into the epilogue of 'a'")]


def test_a_normalisation_takes_slopes_of_its_channels() -> None:
    result = run(FUSE_EPILOGUES, graph(NORMED.format(lines='%y = prelu(%a, %c) // "y"')))
    assert body(result.graph) == (
        '%y = norm(%x, %s, %c) statistic=variance axes=[1,2,3] epsilon=1e-05 groups=2 | prelu(%c) @y  // "a", "y"'
    )


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (
            '%y = add(%a, %d) // "y"',
            "stays out of 'a': 'd' is a constant that is neither one number nor some along one axis",
        ),
        (
            FIVE,
            "stays out of 'h': its epilogue already has 4 stages",
        ),
    ],
)
def test_what_a_normalisation_does_not_take(lines: str, reason: str) -> None:
    assert said(run(FUSE_EPILOGUES, graph(NORMED.format(lines=lines))))[-1] == ("y", "declined", reason)
