"""Elementwise steps behind poolings, which their kernels compute on GPUs. Every run also compares all values."""

from __future__ import annotations

import pytest
from planner_checks import body, graph, run, said
from planner_fakes import recipe

from bolt_build.families import load
from bolt_build.planner.passes.window_epilogues import FUSE_WINDOWS
from bolt_build.planner.plan_engine import plan_engine
from bolt_build.schema.recipe import TargetSpec
from bolt_build.targets import target_named

WINDOW = "mode=average kernel=[3,3] strides=[1,1] pads_begin=[1,1] pads_end=[1,1]"
MIXER = f"""
    graph g batch=2 (%x: f32[2,8,9,9]) -> (%y) {{
      const %s: f32[1,8,1,1] #
      %z = abs(%x) // "z"
      %p = pool(%z) {WINDOW} // "p"
      %y = sub(%p, %z, %s, %x) | mul(%s) | add(%x) // "y"
    }}"""


def test_a_mixer_that_pools_is_one_step() -> None:
    result = run(FUSE_WINDOWS, graph(MIXER))
    assert body(result.graph).splitlines()[1] == (
        f'%y = pool(%z, %z, %s, %x) {WINDOW} dilations=[1,1] | sub(%z) | mul(%s) | add(%x) @y  // "p", "y"'
    )
    assert said(result) == [("y", "fused", "into the epilogue of 'p'")]


def test_a_difference_may_have_the_means_on_its_right() -> None:
    before = graph(MIXER.replace("sub(%p, %z, %s, %x)", "sub(%z, %p, %s, %x)"))
    result = run(FUSE_WINDOWS, before)
    assert "| sub(%z) swapped | mul(%s)" in body(result.graph)


def test_an_activation_is_computed_too() -> None:
    before = graph(MIXER.replace("sub(%p, %z, %s, %x) | mul(%s) | add(%x)", "relu(%p)"))
    result = run(FUSE_WINDOWS, before)
    assert "| relu" in body(result.graph)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("%z = abs(%x)", "const %w: f32[8,8,1,1]\n %z = conv(%x, %w)",
         "stays out of 'p': 'z' and the pooling of its maxima may be one kernel"),
        ("[2,8,9,9]", "[2,3,9,9]",
         "stays out of 'p': 3 channels are no whole loads, and kernels of planes pool alone"),
        ("-> (%y)", "-> (%y, %p)", "stays out of 'p': 'p' is a graph output"),
        ("| add(%x)", "| add(%x) | relu | tanh", "stays out of 'p': its epilogue would have more than 4 stages"),
        ("%s: f32[1,8,1,1]", "%s: f32[1,1,9,9]",
         "stays out of 'p': 's' is neither like 'p' nor a constant of each channel"),
    ],
)  # fmt: skip
def test_others_stay_apart(old: str, new: str, reason: str) -> None:
    text = MIXER.replace(old, new)
    text = text.replace("f32[1,8,1,1]", "f32[1,3,1,1]") if "[2,3,9,9]" in new else text
    before = graph(text.replace("average", "max") if "conv" in new else text)
    result = run(FUSE_WINDOWS, before)
    assert result.graph == before
    assert said(result) == [("y", "declined", reason)]


def test_a_plan_keeps_what_windows_read_until_they_are_stored() -> None:
    """The pooled image is also what is subtracted: results may not be written over it."""
    target = target_named("h200")
    engine = plan_engine([graph(MIXER)], recipe(), TargetSpec("h200", "fp16"), target, load(target))
    (step,) = [each for each in engine.plan.plans[0].steps if each.problem.op.kind == "pool"]
    assert len(step.problem.epilogue) == 3
    assert step.outputs[0].location not in [each.location for each in step.inputs[:2]]


def test_hosts_pool_alone() -> None:
    pays = FUSE_WINDOWS.pays_on
    assert pays is not None
    assert [pays(target_named(name), "fp16") for name in ("h200", "t4")] == [True, True]
    assert not pays(target_named("host"), "fp32")
