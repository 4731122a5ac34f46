"""Windows times filters that are data become one step."""

from __future__ import annotations

import numpy as np
import pytest
from planner_checks import graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.graph.ops.images.weighed_windows import WeighedWindows
from bolt_build.planner.passes.fuse.epilogues import FUSE_EPILOGUES
from bolt_build.planner.passes.images.weighed_windows import WEIGH_WINDOWS
from bolt_build.targets import target_named


def kinds(of: Graph) -> list[str]:
    return [node.op.kind for node in of.nodes]


@pytest.mark.parametrize("how", ["pads_begin=[1,1] pads_end=[1,1]", "strides=[2,1] pads_begin=[0,1] pads_end=[2,0]"])
def test_images_with_filters_of_their_own_are_a_batch_again(how: str) -> None:
    """CondConv's depthwise convolutions: PyTorch makes groups of images and channels."""
    rows = 5 if "strides" not in how else 3
    columns = 6 if "strides" not in how else 5
    before = graph(f"""
        graph g batch=2 (%x: f32[2,4,5,6], %m: f32[2,36]) -> (%y) {{
          %f = reshape(%m) shape=[8,1,3,3] // "f"
          %i = reshape(%x) shape=[1,8,5,6] // "i"
          %c = conv(%i, %f) {how} groups=8 // "c"
          %y = reshape(%c) shape=[2,4,{rows},{columns}] // "y"
        }}""")
    result = run(WEIGH_WINDOWS, before)
    assert kinds(result.graph) == ["reshape", "weighed_windows"]
    assert said(result) == [("c", "made one step of windows and filters", "its filters are data")]


def test_filters_of_large_images_lie_tap_by_tap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bolt_build.planner.passes.images.weighed_windows._TURNED", 1)
    before = graph("""
        graph g batch=2 (%x: f32[2,4,7,6], %t: f32[4,1,3,2]) -> (%y) {
          %y = conv(%x, %t) groups=4 dilations=[2,1] // "y"
        }""")
    result = run(WEIGH_WINDOWS, before)
    assert kinds(result.graph) == ["reshape", "transpose", "reshape", "weighed_windows"]


def test_filters_of_all_images_are_a_template() -> None:
    before = graph("""
        graph g batch=2 (%x: f32[2,4,7,6], %t: f32[4,1,3,2]) -> (%y) {
          %y = conv(%x, %t) groups=4 dilations=[2,1] // "y"
        }""")
    result = run(WEIGH_WINDOWS, before)
    assert kinds(result.graph) == ["reshape", "weighed_windows"]


def places(kernel: int, size: int, out: int, stride: int = 1, dilation: int = 1) -> np.ndarray:
    taps, pixels = np.arange(kernel) * dilation, np.arange(out) * stride
    rows = taps[:, None, None, None] * size + taps[:, None, None]
    return rows + pixels[:, None] * size + pixels


def unfolded(split: str, filters: str, axis: int, made: str, table: np.ndarray) -> Graph:
    """Windows of an image of 6 rows and columns with zeros around it, times filters of each pixel."""
    shape, elements = (",".join(map(str, each)) for each in (table.shape, table.reshape(-1)))
    return graph(f"""
        graph g batch=2 (%x: f32[2,8,6,6], %f: f32[{filters}]) -> (%y) {{
          const %table: i64[{shape}] {{{elements}}}
          %p = pad(%x) begin=[0,0,1,1] end=[0,0,1,1] // "p"
          %l = reshape(%p) shape=[2,8,64] // "l"
          %w = gather(%l, %table) axis=2 // "w"
          %s = reshape(%w) shape=[{split}] // "s"
          %m = mul(%s, %f) // "m"
          %r = reduce(%m) mode=sum axes=[{axis}] keepdims=false // "r"
          %y = reshape(%r) shape=[{made}] // "y"
        }}""")


CASES = {
    "a filter for all channels": ("2,8,9,6,6", "2,1,9,6,6", 2, 1),
    "runs of channels": ("2,2,4,9,6,6", "2,2,1,9,6,6", 3, 4),
    "channels in turns": ("2,2,4,9,6,6", "2,1,4,9,6,6", 3, 1),
    "each channel": ("2,8,9,6,6", "2,8,9,6,6", 2, 1),
    "the same at all pixels": ("2,8,9,6,6", "8,9,1,1", 2, 1),
}


@pytest.mark.parametrize("case", CASES)
def test_filters_of_pixels_weigh_windows(case: str) -> None:
    """Involution, LSNet, and networks that predict kernels, as exporters unfold images."""
    split, filters, axis, shared = CASES[case]
    before = unfolded(split, filters, axis, "2,8,6,6", places(3, 8, 6))
    result = run(WEIGH_WINDOWS, before)
    assert kinds(result.graph)[-1] == "weighed_windows"
    op = result.graph.nodes[-1].op
    assert op == WeighedWindows((3, 3), (1, 1), (1, 1), (1, 1), (1, 1), shared)
    assert not {"pad", "gather", "binary", "reduce"} & set(kinds(result.graph))


@pytest.mark.parametrize(
    ("stride", "dilation", "kernel", "out"), [(2, 1, 3, 3), (1, 2, 3, 4), (3, 1, 2, 3), (1, 1, 1, 8)]
)
def test_windows_may_lie_apart(stride: int, dilation: int, kernel: int, out: int) -> None:
    taps = kernel * kernel
    shape = f"2,8,{taps},{out},{out}"
    table = places(kernel, 8, out, stride, dilation)
    before = unfolded(shape, f"2,1,{taps},{out},{out}", 2, f"2,8,{out},{out}", table)
    result = run(WEIGH_WINDOWS, before)
    assert kinds(result.graph)[-1] == "weighed_windows"


@pytest.mark.parametrize(
    ("split", "filters", "axis", "made", "reason"),
    [
        ("2,8,9,6,6", "2,1,9,6,6", 3, "2,8,9,6", "'w' is not summed up over the taps of its windows"),
        ("2,2,2,2,9,6,6", "2,2,1,2,9,6,6", 4, "2,8,6,6", "'f' has no filter for each run of channels"),
        ("2,8,9,6,6", "2,1,1,6,6", 2, "2,8,6,6", "'f' has no filter for each run of channels"),
    ],
)
def test_other_sums_stay_and_say_why(split: str, filters: str, axis: int, made: str, reason: str) -> None:
    before = unfolded(split, filters, axis, made, places(3, 8, 6))
    result = run(WEIGH_WINDOWS, before)
    assert result.graph == before
    assert said(result) == [("r", "declined", reason)]


def test_places_that_lie_elsewhere_are_no_windows() -> None:
    table = places(3, 8, 6)
    table[2, 2, 5, 5] = 0
    before = unfolded("2,8,9,6,6", "2,1,9,6,6", 2, "2,8,6,6", table)
    result = run(WEIGH_WINDOWS, before)
    assert result.graph == before
    assert said(result) == [("r", "declined", "'w' gathers no windows that lie evenly")]


@pytest.mark.parametrize(
    ("target", "precision", "pays"), [("h200", "fp16", True), ("t4", "fp16", True), ("host", "fp32", False)]
)
def test_it_is_for_tensor_cores(target: str, precision: str, pays: bool) -> None:
    assert WEIGH_WINDOWS.pays_on is not None
    assert WEIGH_WINDOWS.pays_on(target_named(target), precision) is pays


@pytest.mark.parametrize(
    ("stage", "constant", "reason"),
    [
        ("mul(%w, %c)", "4,1,1", None),
        ("add(%w, %x)", "1", None),
        ("mul(%w, %c)", "6", "'c' is not one number a channel"),
        ("mul(%w, %c)", "4,5,6", "'c' is not one number a channel"),
    ],
)
def test_what_follows_is_part_of_the_step(stage: str, constant: str, reason: str | None) -> None:
    before = graph(f"""
        graph g batch=2 (%x: f32[2,4,5,6], %f: f32[2,36,1,1]) -> (%y) {{
          const %c: f32[{constant}] #
          %w = weighed_windows(%x, %f) kernel=[3,3] pads_begin=[1,1] pads_end=[1,1] // "w"
          %s = {stage} // "s"
          %y = relu(%s) // "y"
        }}""")
    result = run(FUSE_EPILOGUES, before)
    assert kinds(result.graph)[0] == "weighed_windows"
    assert len(result.graph.nodes) == (1 if reason is None else 2)
    if reason is not None:
        assert ("s", "declined", f"stays out of 'w': {reason}") in said(result)
