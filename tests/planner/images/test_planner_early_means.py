"""A mean behind a linear 1x1 convolution is taken in front of it, and the gate is known before the convolution."""

from __future__ import annotations

import pytest
from planner_checks import body, graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.planner.passes.images.early_means import EARLY_GATES, EARLY_MEANS


def block(lines: str, outputs: str = "%y", x: str = "f32[2,4,5,3]", more: str = "") -> Graph:
    return graph(f"""
        graph g batch=2 (%x: {x}{more}) -> ({outputs}) {{
          const %w: f32[8,4,1,1] #
          const %b: f32[8] #
          const %v: f32[3,8,1,1] #
          const %c: f32[3] #
          const %u: f32[8,3,1,1] #
          {lines}
        }}""")


CONV = "strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]"
SQUEEZE = f"""
          %p = conv(%x, %w, %b) {CONV} // "p"
          %m = reduce(%p) mode=mean axes=[2,3] keepdims=true // "m"
          %s = conv(%m, %v, %c) {CONV} // "s"
          %r = relu(%s)
          %t = conv(%r, %u) {CONV} // "t"
          %g = sigmoid(%t)
"""


def test_the_product_behind_the_mean_has_the_weights_of_both() -> None:
    result = run(EARLY_MEANS, block(SQUEEZE + '%y = mul(%p, %g) // "y"'))
    assert body(result.graph).splitlines() == [
        f'%p = conv(%x, %w, %b) {CONV}  // "p"',
        '%\'m.early = reduce(%x) mode=mean axes=[2,3] @m.early  // "m"',
        f"%s = conv(%'m.early, %'v.folded, %'c.folded) {CONV}  // \"s\"",
        "%r = relu(%s)",
        f'%t = conv(%r, %u) {CONV}  // "t"',
        "%g = sigmoid(%t)",
        '%y = mul(%p, %g)  // "y"',
    ]
    assert said(result) == [("m", "taken", "of what 'p' reads, whose weights are part of those of 's'")]


def test_a_window_over_channels_is_part_of_the_weights_too() -> None:
    result = run(
        EARLY_GATES,
        block(f"""
          const %k: f32[1,1,3] #
          %p = conv(%x, %w) {CONV} // "p"
          %m = reduce(%p) mode=mean axes=[2,3] keepdims=false // "m"
          %l = reshape(%m) shape=[2,1,8]
          %k3 = conv(%l, %k) strides=[1] pads_begin=[1] pads_end=[1] dilations=[1] // "k3"
          %s = sigmoid(%k3)
          %g = reshape(%s) shape=[2,8,1,1]
          %y = mul(%g, %p) // "y"
    """),
    )
    assert body(result.graph).splitlines()[1:4] == [
        '%\'m.early = reduce(%x) mode=mean axes=[2,3] @m.early  // "m"',
        f"%'k3.product = conv(%'m.early, %'k.folded) {CONV} @k3.product  // \"k3\"",
        "%k3 = reshape(%'k3.product) shape=[2,1,8]",
    ]
    assert said(result) == [("m", "taken", "of what 'p' reads, whose weights are part of those of 'k3'")]


def test_matrix_products_behind_a_flattened_mean_stay_matrix_products() -> None:
    result = run(
        EARLY_MEANS,
        block(f"""
          const %f: f32[8,3] #
          %p = conv(%x, %w, %b) {CONV} // "p"
          %m = reduce(%p) mode=mean axes=[2,3] keepdims=true // "m"
          %l = reshape(%m) shape=[2,8]
          %s = matmul(%l, %f) // "s"
          %r = relu(%s)
          const %h: f32[8,3] #
          %t = matmul(%r, %h) transpose_b=true
          %g = reshape(%t) shape=[2,8,1,1]
          %y = mul(%p, %g) // "y"
    """),
    )
    assert body(result.graph).splitlines()[1:4] == [
        '%\'m.early = reduce(%x) mode=mean axes=[2,3] @m.early  // "m"',
        "%'m.early.moved = reshape(%'m.early) shape=[2,4]",
        "%s = matmul(%'m.early.moved, %'f.folded, %'s.bias)  // \"s\"",
    ]


ALONE = f"""
          %p = conv(%x, %w, %b) {CONV} // "p"
          %m = reduce(%p) mode=mean axes=[2,3] keepdims=true // "m"
          %g = sigmoid(%m)
"""


def test_a_gate_of_the_mean_itself_is_one_of_the_product_of_the_mean() -> None:
    result = run(EARLY_GATES, block(ALONE + '%y = mul(%p, %g) // "y"'))
    assert body(result.graph).splitlines()[1:3] == [
        '%\'m.early = reduce(%x) mode=mean axes=[2,3] @m.early  // "m"',
        f'%m = conv(%\'m.early, %w, %b) {CONV}  // "m"',
    ]
    assert said(result) == [("m", "taken", "of what 'p' reads, and multiplied by its weights")]


def test_where_no_kernel_gates_what_it_stores_no_product_is_added() -> None:
    before = block(ALONE + '%y = mul(%p, %g) // "y"')
    result = run(EARLY_MEANS, before)
    assert result.graph is before
    reason = "a product of single pixels would read 32 weights more, for a result of 240 elements"
    assert said(result) == [("m", "declined", reason)]


def test_merged_positions_and_pixels_that_a_stride_leaves_out() -> None:
    strided = CONV.replace("strides=[1,1]", "strides=[2,2]")
    result = run(
        EARLY_GATES,
        block(f"""
          %p = conv(%x, %w, %b) {strided} // "p"
          %l = reshape(%p) shape=[2,8,6]
          %m = reduce(%l) mode=mean axes=[2] keepdims=false // "m"
          %t = tanh(%m)
          %g = reshape(%t) shape=[2,8,1,1]
          %y = mul(%p, %g) // "y"
    """),
    )
    assert body(result.graph).splitlines()[1:5] == [
        "%'p.read = slice(%x) begin=[0,0,0,0] count=[2,4,3,2] step=[1,1,2,2]",
        "%'m.early = reduce(%'p.read) mode=mean axes=[2,3] @m.early  // \"m\"",
        f"%'m.product = conv(%'m.early, %w, %b) {CONV} @m.product  // \"m\"",
        "%m = reshape(%'m.product) shape=[2,8]",
    ]


def test_rows_of_a_matrix_product() -> None:
    before = graph("""
        graph g batch=2 (%x: f32[2,7,4]) -> (%y) {
          const %w: f32[4,8] #
          const %b: f32[8] #
          %p = matmul(%x, %w, %b) // "p"
          %m = reduce(%p) mode=mean axes=[1] keepdims=true // "m"
          %g = sigmoid(%m)
          %y = add(%p, %g)
        }""")
    assert body(run(EARLY_GATES, before).graph).splitlines()[1:3] == [
        '%\'m.early = reduce(%x) mode=mean axes=[1] @m.early  // "m"',
        '%m = matmul(%\'m.early, %w, %b)  // "m"',
    ]


PADDED = CONV.replace("pads_begin=[0,0]", "pads_begin=[1,0]")
GATED = '\n %y = mul(%p, %g) // "y"'
DECLINED = {
    "another reader": (SQUEEZE + GATED + '\n %z = exp(%p) // "z"', "%y, %z",
                       "'z' reads 'p' as well, which is stored for it"),
    "an output": (SQUEEZE + GATED, "%y, %p", "'p' is a graph output"),
    "a function": (SQUEEZE.replace("reduce(%p)", "reduce(%q)").replace("%m =", '%q = relu(%p) // "q"\n %m =')
                   + '\n %y = mul(%q, %g) // "y"', "%y", "'relu' between 'p' and its mean is not linear"),
    "padding": (SQUEEZE.replace(CONV, PADDED, 1) + GATED, "%y", "'p' pads what it reads with zeros"),
    "groups": (SQUEEZE.replace("%w,", "%o,").replace(CONV, CONV + " groups=2", 1).replace(
        "%p =", "const %o: f32[8,2,1,1] #\n %p =") + GATED, "%y", "'p' has groups"),
    "more channels": (SQUEEZE.replace("%w,", "%o,").replace("conv(%x", "conv(%n").replace(
        "%p =", f"const %e: f32[9,4,1,1] #\n const %o: f32[8,9,1,1] #\n %n = conv(%x, %e) {CONV}\n %p =") + GATED,
        "%y", "'p' reads [2, 9, 5, 3], more than it leaves"),
}  # fmt: skip


@pytest.mark.parametrize("why", DECLINED)
def test_why_a_mean_stays(why: str) -> None:
    lines, outputs, reason = DECLINED[why]
    before = block(lines, outputs)
    result = run(EARLY_GATES, before)
    assert result.graph is before
    assert said(result) == [("m", "declined", reason)]


@pytest.mark.parametrize(
    "lines",
    [
        f"%p = conv(%x, %w) {CONV}\n %y = reduce(%p) mode=mean axes=[2,3] keepdims=true",
        f"%p = conv(%x, %w) {CONV}\n %m = reduce(%p) mode=max axes=[2,3] keepdims=true\n %y = mul(%p, %m)",
        f"%p = conv(%x, %w) {CONV}\n %m = reduce(%p) mode=mean axes=[1] keepdims=true\n %y = mul(%p, %m)",
        "%m = reduce(%x) mode=mean axes=[2,3] keepdims=true\n %y = mul(%x, %m)",
    ],
)
def test_other_means_stay(lines: str) -> None:
    before = block(lines)
    result = run(EARLY_GATES, before)
    assert (result.graph, said(result)) == (before, [])


@pytest.mark.parametrize(
    ("mean", "reason"),
    [
        (
            "%m = reduce(%p) mode=mean axes=[3] keepdims=true",
            "it is over axes [3] of [2, 8, 5, 3], not over all positions of an image alone",
        ),
        (
            "%l = reshape(%p) shape=[2,2,4,15]\n %m = reduce(%l) mode=mean axes=[2,3] keepdims=true",
            "the reshape in front of it does more than merge positions of what 'p' leaves",
        ),
    ],
)
def test_a_mean_of_other_positions_of_a_gated_value_stays(mean: str, reason: str) -> None:
    lines = f'%p = conv(%x, %w) {CONV} // "p"\n %y = mul(%p, %g) // "y"\n {mean} // "m"'
    before = block(lines, "%y, %m", more=", %g: f32[2,8,1,1]")
    result = run(EARLY_GATES, before)
    assert (result.graph, said(result)) == (before, [("m", "declined", reason)])
