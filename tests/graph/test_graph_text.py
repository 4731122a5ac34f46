"""The graph's text form: what it looks like, that it reads back as the same graph, and what the parser says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bolt_build.dtypes import DType
from bolt_build.graph.arrays import numpy_dtype
from bolt_build.graph.ir import (
    Array,
    Constant,
    EpilogueOp,
    Graph,
    Node,
    Op,
    Quantization,
    TensorType,
    Value,
    graph_of,
)
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.graph.ops.moves.shape import Cast, Concat, Identity, Pad, Reshape, Slice, Transpose
from bolt_build.graph.ops.norms.normalization import BatchNorm, Lrn
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.text import format_graph, parse_graph
from bolt_build.graph.text_tokens import TextError

EXAMPLE = """\
graph tiny batch=1 (%data: f32[1,3,8,8]) -> (%"out put") {
  const %w: f32[4,3,3,3] #15b83600ffeb
  const %b: f32[4] {0.5, 1, -2, inf}
  const %'half: f32[] {0.5}
  const %"a:0": i64[2] {3, -1}
  %y: f32[1,4,6,6] = conv(%data, %w, %b) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]  // "/conv"
  %p: f32[1,4,6,6] = pool(%y) mode=max kernel=[3,3] strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]
  %d: f32[1,4,6,6] = sub(%p, %'half, %y, %y) | clip beta=6.0 | div(%y@2) swapped | max(%y) @last
  %"out put": f32[1,4,6,6] = add(%d, %"a:0")  // "/add", "/\\"quoted\\""
}
"""


def arrays_of(graph: Graph) -> list[Array]:
    return [value.constant.array for value in graph.values if value.constant is not None]


def test_text_reads_back_and_is_written_the_same_way() -> None:
    assert format_graph(parse_graph(EXAMPLE)) == EXAMPLE


def test_epilogue_operands_are_the_inputs_that_the_text_names() -> None:
    node = parse_graph(EXAMPLE).nodes[2]
    assert node.epilogue == (
        EpilogueOp(Activation("clip", 0.0, 6.0)),
        EpilogueOp(Binary("div"), 2, swapped=True),
        EpilogueOp(Binary("max"), 3),
    )
    assert node.name == "last"
    assert node.op_inputs == ("p", "half")


def test_what_can_be_derived_may_be_left_out() -> None:
    graph = parse_graph("""
        // by hand
        graph short batch=2 (%x: f32[2,3,9,9]) -> (%z) {   // nothing more
          const %w: f32[4,3,3,3]
          const %variance: f32[4] positive
          %y = conv(%x, %w)
          %z = pool(%y) mode=average kernel=[7,7] | relu   // "pool"
        }
    """)
    assert graph.type("y") == TensorType(DType.F32, (2, 4, 7, 7))
    assert graph.type("z") == TensorType(DType.F32, (2, 4, 1, 1))
    assert graph.nodes[0].op == Conv((1, 1), (0, 0), (0, 0), (1, 1))
    assert graph.nodes[0].name == "y"
    assert graph.nodes[1].name == "pool"
    assert not graph.has("variance")  # nothing refers to it


def test_constants_without_values_are_the_same_arrays_every_time() -> None:
    text = "graph g batch=1 (%x: f32[1,64]) -> (%y) {\n const %w: f32[64,32]\n %y = matmul(%x, %w)\n}"
    first, second = parse_graph(text), parse_graph(text.replace("f32[64,32]", "f32[64,32] #0000"))
    assert first == second
    array = first.constant("w")
    assert array is not None
    assert 0.9 < float(array.std() * 32**0.5) < 1.1


def test_positive_constants_are_at_least_one_half() -> None:
    graph = parse_graph("graph g batch=1 (%x: f32[1,64]) -> (%y) {\n const %v: f32[64] positive\n %y = add(%x, %v)\n}")
    assert float(graph.constant("v").min()) >= 0.5


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%y = relux(%x)", "line 2, column 6: unknown operator 'relux'"),
        ("%y = relu(%z)", "line 2, column 11: '%z' is not defined here"),
        ("%y = relu(%'x)", "line 2, column 11: '%'x' is not defined here"),
        ("%x = relu(%x)", "line 2, column 1: 'x' is defined twice"),
        ("%y = relu(%x", "line 2, column 13: expected ')', found the end of the line"),
        ("%y = relu(%x) relu", "line 2, column 15: expected the end of the line, found 'relu'"),
        ("%y = softmax(%x)", "line 2, column 6: 'softmax' needs the attribute 'axis'"),
        ("%y = softmax(%x) axis=one", "line 2, column 18: the value of 'axis' is of the wrong kind"),
        ("%y = softmax(%x) axis=1 axis=1", "line 2, column 25: attribute 'axis' is given twice"),
        ("%y = softmax(%x) axis=1 size=3", "line 2, column 25: 'softmax' has no attribute 'size'"),
        ("%y = softmax(%x) axis=2", "line 2, column 6: axis 2 does not exist in a tensor of rank 2"),
        ("%y, %z = relu(%x)", "line 2, column 10: the operator has 1 outputs, not 2"),
        ("%y: f99[1] = relu(%x)", "line 2, column 5: unknown element type 'f99'"),
        ("%y = relu(%x) | add(%w)", "line 2, column 21: '%w' is not defined here"),
        ("%y = relu(%x) | add(%x@1)", "line 2, column 21: the operand 'x' is not an input of the node"),
        ("const %c: f32[2] {1}", "line 2, column 18: 1 elements given for 2"),
        ("const %c: i64[1] {1.5}", "line 2, column 19: expected an integer, found '1.5'"),
        ("const %c: bool[1] {yes}", "line 2, column 20: expected true or false, found 'yes'"),
        ("%y = relu(%x) ! 3", "line 2, column 15: unexpected character '!'"),
        ("%w = relu(%x)", "line 1, column 35: output 'y' is not defined"),
    ],
)
def test_error_names_line_and_column(line: str, message: str) -> None:
    with pytest.raises(TextError) as raised:
        parse_graph(f"graph g batch=1 (%x: f32[1,4]) -> (%y) {{\n{line}\n}}")
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1, column 1: expected 'graph', found the end of the text"),
        ("graph g batch=one () -> () {\n}", "line 1, column 15: expected an integer, found 'one'"),
        ("graph g batch=1 () -> () {\n}\nrest", "line 3, column 1: expected the end of the text, found 'rest'"),
        ("graph g batch=1 () -> () {", "line 1, column 27: expected '%', found the end of the text"),
    ],
)
def test_error_outside_the_body(text: str, message: str) -> None:
    with pytest.raises(TextError) as raised:
        parse_graph(text)
    assert str(raised.value) == message


# -- any graph reads back ----------------------------------------------------------------------------------------

NAMES = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=6) | st.sampled_from(
    ["a//b", "//", "a b", 'q"uote', "new\nline", "%x", "'y", "-1", "é", "back\\slash", "x:0", "swapped", "/a/b.c_0"]
)
FLOATS = st.floats(allow_nan=False, width=32)
EXTENTS = st.integers(0, 4)
DTYPES = st.sampled_from(list(DType))


@st.composite
def constants(draw: st.DrawFn) -> Array:
    dtype = draw(DTYPES)
    shape = tuple(draw(st.lists(EXTENTS, max_size=3)))
    count = int(np.prod(shape))
    items = draw(st.lists(FLOATS if dtype.is_float else st.integers(0, 100), min_size=count, max_size=count))
    with np.errstate(over="ignore"):
        return np.asarray(items, dtype=np.float64).astype(numpy_dtype(dtype)).reshape(shape)


SPATIAL = st.tuples(st.integers(1, 3), st.integers(1, 3))
OPS: st.SearchStrategy[Op] = st.one_of(
    st.builds(Conv, SPATIAL, SPATIAL, SPATIAL, SPATIAL, st.integers(1, 3)),
    st.builds(Pool, st.sampled_from(["max", "average"]), SPATIAL, SPATIAL, SPATIAL, SPATIAL, SPATIAL, st.booleans(),
              st.booleans()),
    st.builds(Activation, st.sampled_from(["relu", "clip", "leaky_relu"]), FLOATS, FLOATS),
    st.builds(BatchNorm, FLOATS),
    st.builds(Lrn, st.integers(1, 5), FLOATS, FLOATS, FLOATS),
    st.builds(Reshape, st.lists(EXTENTS, max_size=3).map(tuple)),
    st.builds(Transpose, st.permutations(range(3)).map(tuple)),
    st.builds(Concat, st.integers(0, 3)),
    st.builds(Slice, SPATIAL, SPATIAL, st.tuples(st.integers(-2, 2), st.integers(-2, 2))),
    st.builds(Pad, SPATIAL, SPATIAL, st.sampled_from(["constant", "edge"]), FLOATS),
    st.builds(Cast, DTYPES),
    st.just(Identity()),
)  # fmt: skip
TYPES = st.builds(
    TensorType,
    DTYPES,
    st.lists(EXTENTS, max_size=4).map(tuple),
    st.none() | st.builds(Quantization, st.tuples(FLOATS), st.tuples(st.integers(-8, 8)), st.none() | EXTENTS),
)
STAGES = st.one_of(
    st.builds(Activation, st.sampled_from(["relu", "hard_sigmoid"]), FLOATS, FLOATS),
    st.builds(Binary, st.sampled_from(["add", "sub", "div"])),
)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Any graph that can be written, whether its types make sense or not."""
    names = iter(draw(st.lists(NAMES, min_size=12, max_size=12, unique=True)))
    values = [Value(next(names), draw(TYPES), synthetic=draw(st.booleans())) for _ in range(draw(st.integers(1, 2)))]
    inputs = [value.name for value in values]
    for array in draw(st.lists(constants(), max_size=3)):
        t = TensorType(next(d for d in DType if numpy_dtype(d) == array.dtype), array.shape)
        values.append(Value(next(names), t, Constant(array), draw(st.booleans())))
    nodes = []
    for _ in range(draw(st.integers(1, 3))):
        known = st.sampled_from([value.name for value in values])
        own = draw(st.lists(known, min_size=1, max_size=3))
        stages, operands = [], []
        for op in draw(st.lists(STAGES, max_size=2)):
            if isinstance(op, Binary):
                operands.append(draw(known))
                index = len(own) + draw(st.integers(0, len(operands) - 1))
                stages.append(EpilogueOp(op, index, draw(st.booleans())))
            else:
                stages.append(EpilogueOp(op))
        outputs = [
            Value(next(names), draw(TYPES), synthetic=draw(st.booleans())) for _ in range(draw(st.integers(1, 2)))
        ]
        covers = tuple(draw(st.lists(NAMES, max_size=2)))
        label = draw(NAMES | st.just(outputs[0].name))
        ins = (*own, *operands)
        nodes.append(Node(label, draw(OPS), ins, tuple(v.name for v in outputs), tuple(stages), covers))
        values += outputs
    outputs = draw(st.lists(st.sampled_from([value.name for value in values]), min_size=1, max_size=2, unique=True))
    return graph_of(draw(NAMES), draw(st.integers(1, 64)), inputs, outputs, values, nodes)


@settings(max_examples=80, deadline=None)
@given(graphs())
def test_any_graph_reads_back(graph: Graph) -> None:
    text = format_graph(graph)
    again = parse_graph(text, arrays_of(graph))
    assert again == graph
    assert format_graph(again) == text
