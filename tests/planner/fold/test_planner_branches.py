"""Parallel convolutions that are added become one. Every run also compares all values (planner_checks.run)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from planner_checks import body, graph, run, said, same_values
from planner_fakes import POLICY

from bolt_build.graph.ir import Graph
from bolt_build.planner.passes.fold import branches
from bolt_build.planner.passes.fold.branches import MERGE_BRANCHES
from bolt_build.planner.pipeline import optimize

NORM = """
          const %{0}g: f32[4] #
          const %{0}b: f32[4] #
          const %{0}m: f32[4] #
          const %{0}v: f32[4] positive"""


def test_a_1x1_is_added_to_the_middle_of_the_3x3_beside_it() -> None:
    before = graph("""
        graph g batch=2 (%x: f32[2,3,5,5]) -> (%y) {
          const %w3: f32[4,3,3,3] #
          const %w1: f32[4,3,1,1] #
          const %b1: f32[4] #
          %a = conv(%x, %w3) pads_begin=[1,1] pads_end=[1,1] // "dense"
          %b = conv(%x, %w1, %b1) // "1x1"
          %y = add(%a, %b) // "sum"
        }""")
    result = run(MERGE_BRANCHES, before)
    assert body(result.graph) == (
        "%y = conv(%x, %'w3.merged, %'dense.bias.merged) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1] "
        '@sum  // "dense", "1x1", "sum"'
    )
    assert said(result) == [("sum", "merged", "'1x1' into the weights of 'dense'")]
    wide, narrow = before.constant("w3"), before.constant("w1")
    assert wide is not None
    assert narrow is not None
    wanted = wide.copy()
    wanted[:, :, 1, 1] += narrow[:, :, 0, 0]
    np.testing.assert_array_equal(result.graph.constant("w3.merged"), wanted)


def test_the_order_of_the_branches_does_not_matter() -> None:
    before = graph("""
        graph g batch=1 (%x: f32[1,3,6,6]) -> (%y) {
          const %w3: f32[4,3,3,3] #
          const %w1: f32[4,3,1,1] #
          %a = conv(%x, %w1) strides=[2,2] // "1x1"
          %b = conv(%x, %w3) strides=[2,2] pads_begin=[1,1] pads_end=[1,1] // "dense"
          %y = add(%a, %b) // "sum"
        }""")
    result = run(MERGE_BRANCHES, before)
    assert body(result.graph).startswith("%y = conv(%x, %'w3.merged) strides=[2,2] pads_begin=[1,1]")
    assert said(result) == [("sum", "merged", "'1x1' into the weights of 'dense'")]


@pytest.mark.parametrize(
    ("arithmetic", "label"),
    [
        ("", "x"),
        ('%i = mul(%x, %s) // "scale"', "scale"),
        ('%i = sub(%t, %x) // "shift"', "shift"),
        ('%j = div(%x, %s) // "scale"\n %i = sub(%j, %t) // "shift"', "shift"),
        ('%j = mul(%s, %x) // "scale"\n %i = add(%t, %j) // "shift"', "shift"),
    ],
)
def test_the_tensor_itself_scaled_or_not_goes_onto_the_diagonal(arithmetic: str, label: str) -> None:
    before = graph(f"""
        graph g batch=2 (%x: f32[2,4,5,5]) -> (%y) {{
          const %w: f32[4,4,3,3] #
          {"const %s: f32[4,1,1] positive" if "%s" in arithmetic else ""}
          {"const %t: f32[4,1,1] #" if "%t" in arithmetic else ""}
          {arithmetic}
          %a = conv(%x, %w) pads_begin=[1,1] pads_end=[1,1] // "dense"
          %y = add({"%i" if arithmetic else "%x"}, %a) // "sum"
        }}""")
    result = run(MERGE_BRANCHES, before)
    assert [node.op.kind for node in result.graph.nodes] == ["conv"]
    assert said(result) == [("sum", "merged", f"'{label}' into the weights of 'dense'")]


@pytest.mark.parametrize(("first", "second"), [("%a", "%b"), ("%b", "%a"), ("%a", "%x"), ("%x", "%a")])
def test_what_is_subtracted_has_its_weights_turned_round(first: str, second: str) -> None:
    branch = '%b = conv(%x, %w1, %b1) // "1x1"'
    before = graph(f"""
        graph g batch=2 (%x: f32[2,4,5,5]) -> (%y) {{
          const %w3: f32[4,4,3,3] #
          const %b3: f32[4] #
          {"const %w1: f32[4,4,1,1] #" if "%b" in (first, second) else ""}
          {"const %b1: f32[4] #" if "%b" in (first, second) else ""}
          %a = conv(%x, %w3, %b3) pads_begin=[1,1] pads_end=[1,1] // "dense"
          {branch if "%b" in (first, second) else ""}
          %y = sub({first}, {second}) // "difference"
        }}""")
    result = run(MERGE_BRANCHES, before)
    assert [(node.name, node.op.kind) for node in result.graph.nodes] == [("difference", "conv")]


def test_a_block_that_scales_what_it_adds_to_its_input_is_one_depthwise_convolution() -> None:
    before = graph(f"""
        graph g batch=2 (%x: f32[2,4,6,6]) -> (%y) {{
          const %w7: f32[4,1,7,7] #
          const %w1: f32[4,1,1,1] #
          const %gamma: f32[4,1,1] #{NORM.format("m")}{NORM.format("n")}
          %m = batch_norm(%x, %mg, %mb, %mm, %mv) epsilon=1e-5 // "mixer/identity"
          %p = conv(%x, %w1) groups=4 // "mixer/scale"
          %q = add(%p, %m) // "mixer/add"
          %k = conv(%x, %w7) groups=4 pads_begin=[3,3] pads_end=[3,3] // "mixer/window"
          %r = add(%q, %k) // "mixer/add_1"
          %n = batch_norm(%x, %ng, %nb, %nm, %nv) epsilon=1e-5 // "norm"
          %d = sub(%r, %n) // "difference"
          %s = mul(%d, %gamma) // "layer_scale"
          %y = add(%x, %s) // "residual"
        }}""")
    after = optimize(before, POLICY).graph
    same_values(before, after)
    assert [(node.name, node.op.kind) for node in after.nodes] == [("residual", "conv")]


def test_the_whole_block_of_a_training_graph_becomes_one_3x3_with_its_relu() -> None:
    before = graph(f"""
        graph g batch=2 (%x: f32[2,4,6,6]) -> (%y) {{
          const %w3: f32[4,4,3,3] #
          const %w1: f32[4,4,1,1] #{NORM.format("d")}{NORM.format("o")}{NORM.format("i")}
          %d = conv(%x, %w3) pads_begin=[1,1] pads_end=[1,1] // "dense/conv"
          %dn = batch_norm(%d, %dg, %db, %dm, %dv) epsilon=1e-5 // "dense/bn"
          %o = conv(%x, %w1) // "1x1/conv"
          %on = batch_norm(%o, %og, %ob, %om, %ov) epsilon=1e-5 // "1x1/bn"
          %in = batch_norm(%x, %ig, %ib, %im, %iv) epsilon=1e-5 // "identity"
          %s = add(%dn, %on) // "add"
          %t = add(%s, %in) // "add_1"
          %y = relu(%t) // "relu"
        }}""")
    result = optimize(before, POLICY)
    same_values(before, result.graph)
    assert body(result.graph) == (
        "%y = conv(%x, %'w3.merged, %'dense/conv.bias.merged) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] "
        'dilations=[1,1] | relu @relu  // "dense/conv", "dense/bn", "1x1/conv", "1x1/bn", "add", "identity", "add_1", '
        '"relu"'
    )
    merges = [line for line in result.decisions if line.stage == "merge-branches"]
    assert [(line.subject, line.reason) for line in merges] == [
        ("add", "'1x1/bn' into the weights of 'dense/bn'"),
        ("add_1", "'identity' into the weights of 'add'"),
    ]


def test_batch_norm_behind_the_sum_follows_into_the_weights() -> None:
    before = graph(f"""
        graph g batch=1 (%x: f32[1,3,5,5]) -> (%y) {{
          const %w3: f32[4,3,3,3] #
          const %w1: f32[4,3,1,1] #{NORM.format("n")}
          %a = conv(%x, %w3) pads_begin=[1,1] pads_end=[1,1] // "dense"
          %b = conv(%x, %w1) // "1x1"
          %s = add(%a, %b) // "sum"
          %y = batch_norm(%s, %ng, %nb, %nm, %nv) epsilon=1e-5 // "bn"
        }}""")
    after = optimize(before, POLICY).graph
    same_values(before, after)
    assert [(node.op.kind, node.covers) for node in after.nodes] == [("conv", ("dense", "1x1", "sum", "bn"))]


def test_a_residual_beside_another_convolution_is_no_branch() -> None:
    before = graph("""
        graph g batch=1 (%x: f32[1,4,5,5]) -> (%y) {
          const %w: f32[4,4,3,3] #
          const %v: f32[4,4,1,1] #
          %a = conv(%x, %w) pads_begin=[1,1] pads_end=[1,1] // "a"
          %r = relu(%a) // "r"
          %b = conv(%r, %v) // "b"
          %y = add(%b, %x) // "sum"
        }""")
    result = run(MERGE_BRANCHES, before)
    assert result.graph == before
    assert said(result) == []


def test_a_convolution_added_to_what_it_read_is_one_whatever_made_that() -> None:
    before = graph("""
        graph g batch=1 (%x: f32[1,4,5,5]) -> (%y) {
          const %w: f32[4,4,3,3] #
          const %v: f32[4,4,1,1] #
          %a = conv(%x, %v) // "a"
          %b = conv(%a, %w) pads_begin=[1,1] pads_end=[1,1] // "b"
          %y = add(%a, %b) // "sum"
        }""")
    result = run(MERGE_BRANCHES, before)
    assert said(result) == [("sum", "merged", "'a' into the weights of 'b'")]
    assert [node.name for node in result.graph.nodes] == ["a", "sum"]


@pytest.mark.parametrize(
    ("one", "other", "outputs", "reason"),
    [
        ("conv(%x, %w3) {p}", "conv(%x, %w1)", "%y, %b", "'b' is a graph output"),
        ("conv(%x, %w3) {p}", "conv(%x, %c)", "%y", "the weight of 'b' is not constant"),
        ("conv(%x, %w3)", "conv(%x, %w1) strides=[2,2]", "%y", "strides [1, 1] and [2, 2] differ"),
        ("conv(%x, %w3) {p}", "conv(%x, %wg) groups=2", "%y", "groups 1 and 2 differ"),
        ("conv(%x, %w13) pads_begin=[0,1] pads_end=[0,1]", "conv(%x, %w31) pads_begin=[1,0] pads_end=[1,0]", "%y",
         "the taps of neither 'a' nor 'b' cover the other's"),
        ("conv(%x, %w3) dilations=[2,2] pads_begin=[2,2] pads_end=[2,2]", "conv(%x, %v3) {p}", "%y",
         "the taps of neither 'a' nor 'b' cover the other's"),
        ("conv(%x, %w3) {p}", "conv(%x, %w5)", "%y", "'b' is broadcast"),
    ],
)  # fmt: skip
def test_branches_that_stay_apart_say_why(one: str, other: str, outputs: str, reason: str) -> None:
    shapes = {
        "w3": "4,4,3,3", "v3": "4,4,3,3", "w1": "4,4,1,1", "wg": "4,2,1,1", "w13": "4,4,1,3", "w31": "4,4,3,1",
        "w5": "4,4,5,5",
    }  # fmt: skip
    used = "\n".join(f"const %{n}: f32[{s}] #" for n, s in shapes.items() if f"%{n}" in one + other)
    head = "%x: f32[1,4,5,5]" + (", %c: f32[4,4,1,1]" if "%c" in other else "")
    pads = "pads_begin=[1,1] pads_end=[1,1]"
    before = graph(f"""
        graph g batch=1 ({head}) -> ({outputs}) {{
          {used}
          %a = {one.format(p=pads)} // "a"
          %b = {other.format(p=pads)} // "b"
          %y = add(%a, %b) // "sum"
        }}""")
    result = run(MERGE_BRANCHES, before)
    assert result.graph == before
    assert said(result) == [("sum", "declined", reason)]


def test_a_strided_convolution_skips_cells_that_the_tensor_itself_keeps() -> None:
    """The shapes agree, thanks to the wide padding; the cells do not."""
    before = graph("""
        graph g batch=1 (%x: f32[1,4,3,3]) -> (%y) {
          const %w: f32[4,4,3,3] #
          %a = conv(%x, %w) strides=[2,2] pads_begin=[2,2] pads_end=[2,2] // "a"
          %y = add(%a, %x) // "sum"
        }""")
    result = run(MERGE_BRANCHES, before)
    assert result.graph == before
    assert said(result) == [("sum", "declined", "strides [2, 2] skip cells that the other branch keeps")]


@st.composite
def blocks(draw: st.DrawFn) -> Graph:
    """Two or three branches over one tensor, in any order: odd kernels about their middle, and the tensor itself."""
    groups, width = draw(st.sampled_from([(1, 1), (1, 3), (2, 2), (3, 1)]))
    channels = groups * width
    stride = [draw(st.integers(1, 2)), draw(st.integers(1, 2))]
    dilation = draw(st.integers(1, 2))
    extent = [draw(st.integers(1, 6)), draw(st.integers(1, 6))]
    kernels = draw(st.lists(st.tuples(*[st.sampled_from([1, 3, 5])] * 2), min_size=1, max_size=2))
    with_itself = draw(st.booleans()) and stride == [1, 1]
    assume(len(kernels) + with_itself > 1)
    constants, nodes, values = [], [], []
    for index, (rows, columns) in enumerate(kernels):
        pads = [(rows // 2) * dilation, (columns // 2) * dilation]
        bias = draw(st.booleans())
        constants.append(f"const %w{index}: f32[{channels},{width},{rows},{columns}] #")
        constants += [f"const %b{index}: f32[{channels}] #"] if bias else []
        nodes.append(
            f"%a{index} = conv(%x, %w{index}{f', %b{index}' if bias else ''}) strides={stride} pads_begin={pads} "
            f'pads_end={pads} dilations={[dilation] * 2} groups={groups} // "a{index}"'
        )
        values.append(f"%a{index}")
    values = draw(st.permutations([*values, *(["%x"] if with_itself else [])]))
    total = values[0]
    for index, value in enumerate(values[1:]):
        name = "%y" if index == len(values) - 2 else f"%s{index}"
        nodes.append(f'{name} = add({total}, {value}) // "{name[1:]}"')
        total = name
    lines = "\n".join([*constants, *nodes])
    return graph(f"graph g batch=2 (%x: f32[2,{channels},{extent[0]},{extent[1]}]) -> (%y) {{\n{lines}\n}}")


@settings(max_examples=80, deadline=None)
@given(blocks())
def test_merging_keeps_the_numbers_and_leaves_one_node_where_one_kernel_covers_the_others(before: Graph) -> None:
    result = run(MERGE_BRANCHES, before)
    kernels = [before.type(node.inputs[1]).shape[2:] for node in before.nodes if node.op.kind == "conv"]
    widest = tuple(max(kernel[axis] for kernel in kernels) for axis in (0, 1))
    if widest in kernels:
        assert len(result.graph.nodes) == 1
    else:
        assert [line[1] for line in said(result)].count("declined") == 1


def test_weights_too_large_to_be_added_up_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branches, "MOST_ELEMENTS", 100)
    before = graph("""
        graph g batch=1 (%x: f32[1,3,6,6]) -> (%y) {
          const %w3: f32[4,3,3,3] #
          const %w1: f32[4,3,1,1] #
          %a = conv(%x, %w3) pads_begin=[1,1] pads_end=[1,1] // "dense"
          %b = conv(%x, %w1) // "1x1"
          %y = add(%a, %b) // "sum"
        }""")
    result = run(MERGE_BRANCHES, before)
    assert result.graph == before
    reason = "the weight of 'dense' has 108 elements; those of at most 100 are added up"
    assert said(result) == [("sum", "declined", reason)]
