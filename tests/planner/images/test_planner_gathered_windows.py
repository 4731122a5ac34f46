"""What is computed alike for overlapping cuts of one tensor is computed once."""

from __future__ import annotations

from collections import Counter

import pytest
from planner_checks import graph, run, said

from bolt_build.planner.passes.base import PassResult
from bolt_build.planner.passes.images import gathered_windows
from bolt_build.planner.passes.images.gathered_windows import GATHER_WINDOWS
from bolt_build.targets import target_named


def gathered(text: str) -> PassResult:
    result = run(GATHER_WINDOWS, graph(text))
    assert len(result.decisions) == 1
    return result


def kinds(result: PassResult) -> Counter[str]:
    return Counter(node.op.kind for node in result.graph.nodes)


def correlations(taps: int = 3, body: str = "", reader: str = "") -> str:
    """Of each pixel with neighbours in a padded image: products whose means over channels are concatenated."""
    lines = []
    for at in range(taps * taps):
        y, x = divmod(at, taps)
        lines += [
            f"%c{at} = slice(%p) begin=[0,0,{y},{x}] count=[2,8,5,6] step=[1,1,1,1]",
            body.format(at=at) or f"%m{at} = mul(%a, %c{at})",
            f"%r{at} = reduce(%m{at}) axes=[1] keepdims=true mode=mean",
        ]
    names = ", ".join(f"%r{at}" for at in range(taps * taps))
    text = "\n          ".join(lines)
    more = ", %z" if reader else ""
    return f"""
        graph g batch=2 (%a: f32[2,8,5,6], %b: f32[2,8,5,6]) -> (%y{more}) {{
          %p = pad(%b) begin=[0,0,1,1] end=[0,0,1,1] mode=constant value=0
          {text}
          %y = concat({names}) axis=1
          {reader}
        }}"""


def test_correlations_are_one_gather_one_product_and_one_mean() -> None:
    result = gathered(correlations())
    assert said(result)[0][1:] == ("gathered its windows", "9 cuts of one tensor are computed alike")
    assert kinds(result) == {"pad": 1, "reshape": 3, "gather": 1, "binary": 1, "reduce": 1}
    (table,) = [value for value in result.graph.values if value.name.endswith("places")]
    assert table.type.shape == (9, 5, 6)


def test_costs_of_disparities_are_padded_once() -> None:
    """Each is cut and padded again, that of no disparity is the image itself; groups of channels have costs each."""
    lines = ["%d0 = mul(%a, %b)"]
    for at in range(1, 5):
        lines += [
            f"%s{at} = slice(%b) begin=[0,0,0,0] count=[1,8,3,{9 - at}] step=[1,1,1,1]",
            f"%t{at} = pad(%s{at}) begin=[0,0,0,{at}] end=[0,0,0,0] mode=constant value=0",
            f"%d{at} = mul(%a, %t{at})",
        ]
    for at in range(5):
        lines += [
            f"%g{at} = reshape(%d{at}) shape=[1,4,2,3,9]",
            f"%c{at} = reduce(%g{at}) axes=[2] keepdims=false mode=mean",
            f"%u{at} = reshape(%c{at}) shape=[1,4,1,3,9]",
        ]
    names = ", ".join(f"%u{at}" for at in range(5))
    text = "\n          ".join(lines)
    result = gathered(f"""
        graph g batch=1 (%a: f32[1,8,3,9], %b: f32[1,8,3,9]) -> (%y) {{
          {text}
          %y = concat({names}) axis=2
        }}""")
    found = kinds(result)
    assert (found["pad"], found["gather"], found["reduce"], found["concat"]) == (1, 1, 1, 0)


def test_neighbours_of_all_channels_are_one_table() -> None:
    """Kernels that are predicted for each pixel weigh them: the windows' axis stands in front of the channels."""
    lines = []
    for at in range(4):
        lines += [
            f"%c{at} = slice(%b) begin=[0,0,0,{at}] count=[2,3,4,5] step=[1,1,1,1]",
            f"%u{at} = reshape(%c{at}) shape=[2,1,3,4,5]",
        ]
    text = "\n          ".join(lines)
    result = gathered(f"""
        graph g batch=2 (%b: f32[2,3,4,8]) -> (%y) {{
          {text}
          %y = concat(%u0, %u1, %u2, %u3) axis=1
        }}""")
    (table,) = [value for value in result.graph.values if value.name.endswith("places")]
    assert table.type.shape == (4, 3, 4, 5)


def unchanged(text: str) -> None:
    assert run(GATHER_WINDOWS, graph(text)).decisions == ()


def test_branches_that_differ_stay() -> None:
    unchanged(correlations(body="%m{at} = mul(%c{at}, %c{at})").replace("%m4 = mul", "%m4 = add"))
    unchanged(correlations(reader="%z = relu(%m3)"))  # something else reads a branch
    unchanged(correlations(body="%m{at} = sqrt(%c{at})").replace("sqrt(%c4)", "exp(%c4)"))


def test_channels_that_are_concatenated_stay() -> None:
    """Results are cuts' only where each is one element along the axis. One value four times is no cut either."""
    unchanged("""
        graph g batch=1 (%x: f32[1,3,4,5], %z: f32[1,1,4,5]) -> (%y, %u, %v) {
          %a = slice(%x) begin=[0,0,0,0] count=[1,3,4,3] step=[1,1,1,1]
          %b = slice(%x) begin=[0,0,0,1] count=[1,3,4,3] step=[1,1,1,1]
          %y = concat(%a, %b, %a, %b) axis=1
          %u = concat(%x, %x, %x, %x) axis=1
          %v = concat(%z, %z, %z, %z) axis=1
        }""")


def test_cuts_that_share_no_element_stay() -> None:
    """Heads that a model splits and stacks again are moved as they are."""
    lines = []
    for at in range(4):
        lines += [
            f"%c{at} = slice(%b) begin=[0,{2 * at},0] count=[2,2,5] step=[1,1,1]",
            f"%r{at} = relu(%c{at})",
            f"%u{at} = reshape(%r{at}) shape=[2,1,2,5]",
        ]
    text = "\n          ".join(lines)
    unchanged(f"""
        graph g batch=2 (%b: f32[2,8,5]) -> (%y) {{
          {text}
          %y = concat(%u0, %u1, %u2, %u3) axis=1
        }}""")


def test_zeros_between_elements_are_no_border() -> None:
    """What is padded ends inside of the image: the zeros stand where the image has other numbers."""
    lines = []
    for at in range(1, 5):
        lines += [
            f"%s{at} = slice(%b) begin=[0,0,{at}] count=[1,2,{9 - 2 * at}] step=[1,1,1]",
            f"%t{at} = pad(%s{at}) begin=[0,0,{at}] end=[0,0,{at}] mode=constant value=0",
            f"%u{at} = reshape(%t{at}) shape=[1,1,2,9]",
        ]
    text = "\n          ".join(lines)
    unchanged(f"""
        graph g batch=1 (%b: f32[1,2,9]) -> (%y) {{
          {text}
          %y = concat(%u1, %u2, %u3, %u4) axis=1
        }}""")


def test_one_value_again_and_again_is_no_cut() -> None:
    """Heads that share keys may be repeated so."""
    unchanged("""
        graph g batch=1 (%b: f32[1,2,9]) -> (%y) {
          %y = concat(%b, %b, %b, %b) axis=1
        }""")


def test_large_cuts_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathered_windows, "_MOST", 500)
    (decision,) = run(GATHER_WINDOWS, graph(correlations())).decisions
    assert decision.reason == "9 cuts of 60 elements are computed apart: 500 would be kept at most"


def test_hosts_compute_cuts_apart() -> None:
    assert GATHER_WINDOWS.pays_on is not None
    assert GATHER_WINDOWS.pays_on(target_named("a100"), "fp16")
    assert not GATHER_WINDOWS.pays_on(target_named("host"), "fp32")
