"""Channels that miss the alignment between convolutions, as text: IR in, IR out, and what is said of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from planner_checks import body, graph, run, said, same_values
from planner_fakes import POLICY, recipe

from bolt_build.families import load
from bolt_build.graph.ir import Graph
from bolt_build.planner.passes.align.pad_channels import PAD_CHANNELS, PAD_VOLUMES
from bolt_build.planner.plan_engine import PlannedEngine, plan_engine
from bolt_build.schema.recipe import PaddingPolicy, Policy, TargetSpec
from bolt_build.targets import target_named


def net(nodes: str, outputs: str = "%y", channels: int = 46) -> Graph:
    return graph(f"""
        graph g batch=2 (%x: f32[2,16,6,6]) -> ({outputs}) {{
          const %w: f32[{channels},16,3,3] #
          const %v: f32[{channels},16,1,1] #
          const %b: f32[{channels}] #
          const %k: f32[24,{channels},1,1] #
          const %d: f32[{channels},1,3,3] #
          const %square: f32[{channels},{channels},1,1] #
          const %q: f32[24,{channels},3,3] #
          const %two: f32[] {{2}}
          const %map: f32[1,{channels},6,6] #
          {nodes}
        }}""")


def test_the_producer_stores_the_padding_and_the_reader_has_zero_weights_for_it() -> None:
    before = net("""
      %a = conv(%x, %w, %b) pads_begin=[1,1] pads_end=[1,1] | sigmoid // "a"
      %y = conv(%a, %k) // "y"
    """)
    result = run(PAD_CHANNELS, before)
    assert body(result.graph) == (
        "%'a.padded = conv(%x, %'w.padded, %'b.padded) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1] "
        '| sigmoid  // "a"\n'
        "%y = conv(%'a.padded, %'k.padded) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]  // \"y\""
    )
    shapes = {name: result.graph.type(name).shape for name in ("a.padded", "w.padded", "b.padded", "k.padded")}
    assert shapes == {
        "a.padded": (2, 48, 6, 6), "w.padded": (48, 16, 3, 3), "b.padded": (48,), "k.padded": (24, 48, 1, 1),
    }  # fmt: skip
    for name in ("w.padded", "b.padded"):
        padded = result.graph.constant(name)
        assert padded is not None
        assert not np.asarray(padded[46:]).any()
    assert said(result) == [
        ("a", "padded 46 channels to 48", "288 bytes more are stored, and no copies of 6912 bytes are made for 'y'"),
    ]


def test_a_product_whose_left_factor_is_its_own_residual_is_padded_on_both_sides() -> None:
    before = net("""
      %a = conv(%x, %w, %b) pads_begin=[1,1] pads_end=[1,1] | relu // "a"
      %c = conv(%a, %square, %a) | add(%a@2) // "c"
      %y = conv(%c, %k) // "y"
    """)
    result = run(PAD_CHANNELS, before)
    assert body(result.graph) == (
        "%'a.padded = conv(%x, %'w.padded, %'b.padded) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1] "
        '| relu  // "a"\n'
        "%'c.padded = conv(%'a.padded, %'square.padded, %'a.padded) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] "
        'dilations=[1,1] | add(%\'a.padded)  // "c"\n'
        "%y = conv(%'c.padded, %'k.padded) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]  // \"y\""
    )
    assert result.graph.type("square.padded").shape == (48, 48, 1, 1)


def test_pooling_activations_and_sums_between_are_padded_too() -> None:
    before = net("""
      %a = conv(%x, %w, %b) pads_begin=[1,1] pads_end=[1,1] // "a"
      %c = conv(%x, %v, %b, %a) | add(%a@3) | relu // "c"
      %p = pool(%c) mode="max" kernel=[2,2] strides=[2,2] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1] // "p"
      %m = mul(%p, %two) // "m"
      %y = conv(%m, %k) // "y"
    """)
    result = run(PAD_CHANNELS, before)
    assert [result.graph.type(f"{name}.padded").shape[1] for name in "acpm"] == [48] * 4
    assert [(subject, action) for subject, action, _ in said(result)] == [("a", "padded 46 channels to 48")]


@pytest.mark.parametrize("shape", ["46,1,1", "1,46,1,1"])
def test_numbers_of_channels_between_are_padded_with_zeros(shape: str) -> None:
    """Slopes of FSRCNN's PRelu, scale and shift of a BatchNorm behind an activation."""
    before = net(f"""
      const %slope: f32[{shape}] #
      const %scale: f32[{shape}] #
      %a = conv(%x, %w, %b) pads_begin=[1,1] pads_end=[1,1] // "a"
      %p = prelu(%a, %slope, %scale, %two) | mul(%scale) | add(%two) // "p"
      %y = conv(%p, %k) // "y"
    """)
    result = run(PAD_CHANNELS, before)
    assert body(result.graph).splitlines()[1] == (
        "%'p.padded = prelu(%'a.padded, %'slope.padded, %'scale.padded, %two) "
        '| mul(%\'scale.padded) | add(%two)  // "p"'
    )
    for name in ("slope", "scale"):
        constant = result.graph.constant(f"{name}.padded")
        assert constant is not None
        assert constant.shape == tuple(48 if each == "46" else 1 for each in shape.split(","))
        assert not constant.reshape(-1)[46:].any()
    same_values(before, result.graph)


@pytest.mark.parametrize("transposed", [False, True])
def test_columns_between_matrix_products_are_padded_too(transposed: bool) -> None:
    shapes = ("30,16", "10,30") if transposed else ("16,30", "30,10")
    suffix = " transpose_b=true" if transposed else ""
    before = graph(f"""
        graph g batch=4 (%x: f32[4,16]) -> (%y) {{
          const %w: f32[{shapes[0]}] #
          const %b: f32[30] #
          const %v: f32[{shapes[1]}] #
          %a = matmul(%x, %w, %b){suffix} | relu // "a"
          %y = matmul(%a, %v){suffix} // "y"
        }}""")
    result = run(PAD_CHANNELS, before)
    padded = [result.graph.type(name).shape for name in ("w.padded", "b.padded", "v.padded")]
    assert padded == ([(32, 16), (32,), (10, 32)] if transposed else [(16, 32), (32,), (32, 10)])
    reason = "16 bytes more are stored, and no copies of 256 bytes are made for 'y'"
    assert said(result) == [("a", "padded 30 channels to 32", reason)]


STAYS = {
    "a graph output": (
        '%a = conv(%x, %v) // "a"\n %y = conv(%a, %k) // "y"', "%y, %a", 46, "'a' is a graph output",
    ),
    "another reader": (
        '%a = conv(%x, %v) // "a"\n %s = softmax(%a) axis=1 // "s"\n %y = conv(%a, %k) // "y"', "%y, %s", 46,
        "'a' is read by 's', softmax",
    ),
    "a depthwise convolution": (
        '%a = conv(%x, %v) // "a"\n %e = conv(%a, %d) groups=46 // "e"\n %y = conv(%e, %k) // "y"', "%y", 46,
        "'e' is made by 'e', a conv with groups, of more than two axes, or with weights that are not constant",
    ),
    "a factor of each element": (
        '%a = conv(%x, %v) // "a"\n %e = mul(%a, %map) // "e"\n %y = conv(%e, %k) // "y"', "%y", 46,
        "'e' is made by 'e', with 'map' of other channels",
    ),
    "a quotient by zero": (
        '%a = conv(%x, %v) | reciprocal // "a"\n %y = conv(%a, %k) // "y"', "%y", 46,
        "the padding would not stay a small finite number",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", STAYS)
def test_what_cannot_be_padded_stays_and_says_why(case: str) -> None:
    nodes, outputs, channels, why = STAYS[case]
    before = net(nodes, outputs, channels)
    result = PAD_CHANNELS.run(before, POLICY)
    assert result.graph == before
    maker = "e" if "depthwise" in case else "a"
    assert said(result) == [(maker, "declined", f"46 channels are no multiple of 8, but {why}")]


def with_padding(mode: str = "auto", alignment: int = 8, *layers: tuple[str, str]) -> Policy:
    return replace(POLICY, padding=PaddingPolicy(mode, alignment, layers))


REFUSED = {
    "everywhere": (with_padding("never"), "policy.padding.mode is never"),
    "where it is made": (with_padding("always", 8, ("a", "never")), "layers['a'].padding is never"),
    "where it is read": (with_padding("auto", 8, ("y", "never")), "layers['y'].padding is never"),
    "of either": (with_padding("auto", 8, ("y", "never"), ("a", "always")), "layers['y'].padding is never"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_recipe_may_refuse_it(case: str) -> None:
    policy, why = REFUSED[case]
    before = net('%a = conv(%x, %v) // "a"\n %y = conv(%a, %k) // "y"')
    result = PAD_CHANNELS.run(before, policy)
    assert result.graph == before
    assert said(result) == [("a", "declined", f"46 channels are no multiple of 8, but {why}")]


def test_the_last_layer_that_says_something_holds() -> None:
    before = net('%a = conv(%x, %v) // "a"\n %y = conv(%a, %k) // "y"')
    result = PAD_CHANNELS.run(before, with_padding("never", 8, ("*", "never"), ("[ay]", "auto")))
    assert [(subject, action) for subject, action, _ in said(result)] == [("a", "padded 46 channels to 48")]


def test_always_pads_what_is_gathered_from_rows_of_windows_otherwise() -> None:
    before = net('%a = conv(%x, %v) // "a"\n %y = conv(%a, %q) // "y"', channels=6)
    why = "6 channels are no multiple of 8, but so few are gathered by im2col, which copies them anyway"
    assert said(PAD_CHANNELS.run(before, POLICY)) == [("a", "declined", why)]
    result = PAD_CHANNELS.run(before, with_padding("always"))
    assert body(result.graph) == (
        "%'a.padded = conv(%x, %'v.padded) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]  // \"a\"\n"
        "%y = conv(%'a.padded, %'q.padded) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]  // \"y\""
    )
    assert [result.graph.type(name).shape for name in ("a.padded", "q.padded")] == [(2, 8, 6, 6), (24, 8, 3, 3)]
    same_values(before, result.graph)


def test_channels_are_padded_to_the_alignment_of_the_recipe() -> None:
    before = net('%a = conv(%x, %v) // "a"\n %y = conv(%a, %k) // "y"', channels=42)
    result = PAD_CHANNELS.run(before, with_padding("auto", 4))
    assert result.graph.type("a.padded").shape[1] == 44
    reason = "288 bytes more are stored, so that 'y' can load 4 elements at once"
    assert said(result) == [("a", "padded 42 channels to 44", reason)]
    same_values(before, result.graph)
    assert said(PAD_CHANNELS.run(before, with_padding("auto", 2))) == []


@pytest.mark.parametrize("nodes", ['%y = conv(%x, %v) // "y"', '%a = conv(%x, %v) // "a"\n %y = softmax(%a) axis=1'])
def test_channels_that_no_convolution_reads_are_nobodys_business(nodes: str) -> None:
    result = run(PAD_CHANNELS, net(nodes))
    assert said(result) == []


def planned(target: str, precision: str) -> PlannedEngine:
    of = net('%a = conv(%x, %v) | relu // "a"\n %y = conv(%a, %q) // "y"')
    chosen = target_named(target)
    return plan_engine([of], recipe(), TargetSpec(target, precision), chosen, load(chosen))


@pytest.mark.parametrize(
    ("target", "precision", "channels"), [("h200", "fp16", 48), ("h200", "fp32", 46), ("host", "fp32", 46)]
)
def test_only_kernels_of_whole_loads_ask_for_it(target: str, precision: str, channels: int) -> None:
    plan = planned(target, precision).plan.plans[0]
    step = next(step for step in plan.steps if step.name == "y")
    assert step.inputs[0].operand.shape[1] == channels


def test_nothing_is_copied_then() -> None:
    engine = planned("h200", "fp16")
    by_name = {family.name: family for family in load(target_named("h200"))}
    steps = [step for step in engine.plan.plans[0].steps if not step.view]
    assert [by_name[s.candidate.family].expense(s.problem, s.candidate).copied for s in steps] == [0] * len(steps)


def test_volumes_are_padded_before_they_are_flattened() -> None:
    """R(2+1)D: 45 channels between windows over pixels and windows over depths. Images wait for what moves them."""
    before = graph("""
        graph g batch=1 (%x: f32[1,3,4,5,5], %i: f32[1,16,5,5]) -> (%y, %z) {
          const %w: f32[45,3,1,3,3] #
          const %k: f32[8,45,3,1,1] #
          const %v: f32[46,16,1,1] #
          const %u: f32[8,46,1,1] #
          %a = conv(%x, %w) pads_begin=[0,1,1] pads_end=[0,1,1] | relu // "a"
          %y = conv(%a, %k) pads_begin=[1,0,0] pads_end=[1,0,0] // "y"
          %b = conv(%i, %v) // "b"
          %z = conv(%b, %u) // "z"
        }""")
    result = run(PAD_VOLUMES, before)
    assert [d[:2] for d in said(result)] == [("a", "padded 45 channels to 48")]
    assert [d[:2] for d in said(run(PAD_CHANNELS, before))] == [("b", "padded 46 channels to 48")]
    assert result.graph.type("a.padded").shape == (1, 48, 4, 5, 5)
