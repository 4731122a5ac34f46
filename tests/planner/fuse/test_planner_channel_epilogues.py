"""Constants of channels behind a convolution or a product ride in its kernel, and what follows them."""

from __future__ import annotations

import pytest
from planner_checks import body, graph, run, said

from bolt_build.planner.passes.fuse.channel_epilogues import FUSE_CHANNELS
from bolt_build.schema.recipe import FusionPolicy, Policy
from bolt_build.targets import target_named

CONV = "strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]"


def behind(lines: str, stages: str = "", outputs: str = "%y") -> str:
    """A graph of a 1x1 convolution %a of %x, with `stages`, and constants of channels, of rows and of one number."""
    return f"""
        graph g batch=1 (%x: f32[1,4,5,5], %r: f32[1,4,5,5]) -> ({outputs}) {{
          const %w: f32[4,4,1,1] #
          const %s: f32[4,1,1] #
          const %t: f32[1,4,1,1] #
          const %h: f32[5,1] #
          const %one: f32[1] {{1}}
          %a = conv(%x, %w{", %r" if "%r" in stages else ""}){stages} // "a"
          {lines}
        }}"""


@pytest.mark.parametrize(
    ("lines", "before", "after"),
    [
        ('%y = prelu(%a, %s) // "y"', "", "prelu(%s)"),
        ('%y = mul(%a, %s, %t) | add(%t) // "y"', " | relu", "relu | mul(%s) | add(%t)"),
        ('%b = prelu(%a, %s) // "b"\n %y = add(%r, %b) | relu // "y"', "", "prelu(%s) | add(%r) | relu"),
        ('%y = sub(%a, %s) // "y"', " | add(%r) | relu", "add(%r) | relu | sub(%s)"),
        ('%y = selu(%a) alpha=1.5 beta=1.25 // "y"', "", "selu alpha=1.5 beta=1.25"),
        ('%y = sqrt(%a, %one, %r) | div(%one) swapped | mul(%r) // "y"', "", "sqrt | reciprocal | mul(%r)"),
        ('%y = round(%a, %s) | mul(%s) // "y"', " | relu", "relu | round | mul(%s)"),
    ],
)
def test_constants_of_channels_ride_in_the_convolution(lines: str, before: str, after: str) -> None:
    result = run(FUSE_CHANNELS, graph(behind(lines, before)))
    (node,) = result.graph.nodes
    assert (node.name, node.outputs) == ("y", ("y",))
    assert f"{CONV} | {after} " in body(result.graph)
    assert {action for _, action, _ in said(result)} == {"fused"}


def product(lines: str, weight: str = "const %w: f32[6,4] #", outputs: str = "%y") -> str:
    """A graph of a product %a of %x and %w, and constants of columns and of rows."""
    given = "" if weight.startswith("const") else ", %w: f32[6,4]"
    return f"""
        graph g batch=2 (%x: f32[2,5,6], %r: f32[2,5,4]{given}) -> ({outputs}) {{
          {weight}
          const %s: f32[4] #
          const %t: f32[1,1,4] #
          const %h: f32[5,1] #
          %a = matmul(%x, %w, %r) | add(%r) // "a"
          {lines}
        }}"""


def test_constants_of_columns_ride_in_the_product() -> None:
    """As MobileBERT has them behind residuals."""
    result = run(FUSE_CHANNELS, graph(product('%y = mul(%a, %s, %t) | add(%t) // "y"')))
    assert body(result.graph) == '%y = matmul(%x, %w, %r, %s, %t) | add(%r) | mul(%s) | add(%t) @y  // "a", "y"'
    assert said(result) == [("y", "fused", "into the epilogue of 'a'")]


@pytest.mark.parametrize(
    "made",
    [product('%y = mul(%a, %h) // "y"'), product('%y = mul(%a, %s) // "y"', weight="")],
    ids=["a constant of rows", "a product of two tensors"],
)
def test_other_products_are_left_alone(made: str) -> None:
    result = run(FUSE_CHANNELS, graph(made))
    assert [node.name for node in result.graph.nodes] == ["a", "y"]
    assert said(result) == []


@pytest.mark.parametrize(
    ("lines", "outputs", "reason"),
    [
        ('%y = prelu(%a, %s) // "y"', "%y, %a", "'a' is a graph output"),
        ('%y = prelu(%a, %s, %h) | mul(%h) // "y"', "%y", "'h' is neither one number a channel nor like 'y'"),
        ('%y = mul(%a, %one, %h) | sub(%h) // "y"', "%y", "'h' is neither one number a channel nor like 'y'"),
        ('%y = prelu(%a, %s) | erf // "y"', "%y", "'erf' is no stage of a convolution's epilogue"),
        (
            '%y = prelu(%a, %s, %r) | pow(%r) // "y"', "%y",
            "'pow' with a tensor is no stage of a convolution's epilogue",
        ),
        ('%y = prelu(%a, %s, %r, %x) | add(%r) | mul(%x) // "y"', "%y", "its epilogue would read more than one tensor"),
        ('%y = prelu(%a, %s) | relu | abs | tanh // "y"', "%y", "its epilogue would have more than 2 activations"),
        (
            '%y = prelu(%a, %s, %t) | mul(%t) | mul(%t) | mul(%t) | mul(%t) // "y"', "%y",
            "its epilogue would read more than 4 constants of a channel",
        ),
    ],
)  # fmt: skip
def test_what_stays_apart_has_its_reason(lines: str, outputs: str, reason: str) -> None:
    result = run(FUSE_CHANNELS, graph(behind(lines, outputs=outputs)))
    assert [node.name for node in result.graph.nodes] == ["a", "y"]
    assert said(result) == [("y", "declined", f"stays out of 'a': {reason}")]


def test_one_number_is_that_of_every_channel() -> None:
    """As blocks of PP-HGNet scale and shift what their activations leave: kernels read one number a channel."""
    result = run(FUSE_CHANNELS, graph(behind('%y = mul(%one, %a, %one) | add(%one) // "y"', " | relu")))
    (node,) = result.graph.nodes
    assert f"{CONV} | relu | mul(%'one.channels) | add(%'one.channels.2) " in body(result.graph)
    assert [result.graph.value(name).type.shape for name in node.inputs[2:]] == [(4, 1, 1), (4, 1, 1)]


@pytest.mark.parametrize("lines", ['%y = mul(%a, %h) // "y"', '%y = relu(%a) // "y"', '%y = sub(%s, %a) // "y"'])
def test_what_reads_no_constant_of_a_channel_is_left_alone(lines: str) -> None:
    result = run(FUSE_CHANNELS, graph(behind(lines)))
    assert [node.name for node in result.graph.nodes] == ["a", "y"]
    assert said(result) == []


def test_a_recipe_may_want_no_epilogues() -> None:
    made = graph(behind('%y = prelu(%a, %s) // "y"'))
    result = FUSE_CHANNELS.run(made, Policy(fusion=FusionPolicy(epilogue=False)))
    assert said(result) == [("g", "declined", "policy.fusion.epilogue is false")]


@pytest.mark.parametrize(
    ("target", "precision", "pays"), [("h200", "fp16", True), ("t4", "fp32", False), ("host", "fp32", False)]
)
def test_it_is_for_tensor_cores(target: str, precision: str, pays: bool) -> None:
    assert FUSE_CHANNELS.pays_on is not None
    assert FUSE_CHANNELS.pays_on(target_named(target), precision) is pays


def test_a_result_that_another_epilogue_reads_stays_its_operand() -> None:
    """The node that reads it begins with another tensor, of which no stage of the convolution is made."""
    result = run(FUSE_CHANNELS, graph(behind('%y = round(%r, %a) | sub(%a) // "y"')))
    assert [node.name for node in result.graph.nodes] == ["a", "y"]
    assert said(result) == []
