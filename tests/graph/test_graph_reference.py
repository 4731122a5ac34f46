"""Import and NumPy reference agree with onnxruntime, whatever the attributes; epilogues mean what they say."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from bolt_build.errors import BoltError
from bolt_build.graph import reference
from bolt_build.graph.invariants import check
from bolt_build.graph.ir import Array
from bolt_build.graph.onnx_import import load_model
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.text import parse_graph

ort = pytest.importorskip("onnxruntime", reason="onnxruntime is what the reference is compared with")

SEEDS = st.integers(0, 2**32 - 1)
EXAMPLES = settings(max_examples=40, deadline=None)


def one_node(op_type: str, inputs: Sequence[Array], attributes: Mapping[str, object], opset: int) -> onnx.ModelProto:
    """A model of one node; its first input is the graph's, the others are initializers."""
    names = [f"i{index}" for index in range(len(inputs))]
    graph = helper.make_graph(
        [helper.make_node(op_type, names, ["y"], **attributes)],
        "one",
        [helper.make_tensor_value_info(names[0], helper.np_dtype_to_tensor_dtype(inputs[0].dtype), inputs[0].shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in zip(names[1:], inputs[1:], strict=True)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def assert_agrees(model: onnx.ModelProto, inputs: Mapping[str, Array], tolerance: float = 1e-5) -> None:
    """Imports the model, evaluates it and compares with onnxruntime."""
    serialized = model.SerializeToString()
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    batch = next(iter(inputs.values())).shape[0]
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "one.onnx"
        path.write_bytes(serialized)
        graph = load_model(path).bind(batch)
    check(graph)
    session = ort.InferenceSession(serialized, options, providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, dict(inputs))
    found = reference.evaluate(graph, inputs)["y"]
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


def normal(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def integers(*values: int) -> Array:
    return np.asarray(values, np.int64)


def entries(rank: int, least: int, most: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(least, most), min_size=rank, max_size=rank)


def reaches(kernel: Sequence[int], dilations: Sequence[int]) -> list[int]:
    return [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]


@EXAMPLES
@given(st.data(), st.integers(1, 3), SEEDS)
def test_convolution(data: st.DataObject, rank: int, seed: int) -> None:
    kernel, strides = data.draw(entries(rank, 1, 3)), data.draw(entries(rank, 1, 3))
    dilations, spatial = data.draw(entries(rank, 1, 2)), data.draw(entries(rank, 3, 8))
    groups, per_group, filters = (data.draw(st.integers(1, 3)) for _ in range(3))
    attributes: dict[str, object] = {"strides": strides, "dilations": dilations, "group": groups}
    auto_pad = data.draw(st.sampled_from(["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]))
    # onnxruntime derives SAME pads for dilation 1 only
    assume(auto_pad in ("NOTSET", "VALID") or set(dilations) == {1})
    pads = data.draw(entries(2 * rank, 0, 2)) if auto_pad == "NOTSET" else [0] * (2 * rank)
    padded = [n + pads[i] + pads[i + rank] for i, n in enumerate(spatial)]
    assume(all(p >= r for p, r in zip(padded, reaches(kernel, dilations), strict=True)))
    attributes |= {"pads": pads} if auto_pad == "NOTSET" else {"auto_pad": auto_pad}
    x = normal(seed, data.draw(st.integers(1, 2)), groups * per_group, *spatial)
    weight = normal(seed + 1, groups * filters, per_group, *kernel)
    bias = [normal(seed + 2, groups * filters)] if data.draw(st.booleans()) else []
    assert_agrees(one_node("Conv", [x, weight, *bias], attributes, 11), {"i0": x})


@EXAMPLES
@given(st.data(), st.integers(1, 3), st.sampled_from(["MaxPool", "AveragePool"]), SEEDS)
def test_pooling(data: st.DataObject, rank: int, op_type: str, seed: int) -> None:
    kernel, strides = data.draw(entries(rank, 1, 3)), data.draw(entries(rank, 1, 3))
    dilations = data.draw(entries(rank, 1, 2)) if op_type == "MaxPool" else [1] * rank
    spatial = data.draw(entries(rank, 3, 8))
    pads = [data.draw(st.integers(0, k - 1)) for k in kernel * 2]
    padded = [n + pads[i] + pads[i + rank] for i, n in enumerate(spatial)]
    assume(all(p >= r for p, r in zip(padded, reaches(kernel, dilations), strict=True)))
    attributes: dict[str, object] = {"kernel_shape": kernel, "strides": strides, "pads": pads}
    attributes["ceil_mode"] = data.draw(st.integers(0, 1))
    if op_type == "MaxPool":
        attributes["dilations"] = dilations
    else:
        attributes["count_include_pad"] = data.draw(st.integers(0, 1))
    x = normal(seed, 2, 3, *spatial)
    assert_agrees(one_node(op_type, [x], attributes, 19), {"i0": x})


@EXAMPLES
@given(st.data(), st.integers(1, 2), st.sampled_from(["MaxPool", "AveragePool"]), SEEDS)
def test_pooling_with_auto_pad(data: st.DataObject, rank: int, op_type: str, seed: int) -> None:
    strides = data.draw(entries(rank, 1, 3))
    kernel = [stride + data.draw(st.integers(0, 2)) for stride in strides]  # onnxruntime refuses smaller ones
    auto_pad = data.draw(st.sampled_from(["SAME_UPPER", "SAME_LOWER", "VALID"]))
    attributes = {"kernel_shape": kernel, "strides": strides, "auto_pad": auto_pad}
    x = normal(seed, 2, 3, *data.draw(entries(rank, 5, 9)))
    assert_agrees(one_node(op_type, [x], attributes, 11), {"i0": x})


@EXAMPLES
@given(st.data(), SEEDS)
def test_gemm(data: st.DataObject, seed: int) -> None:
    m, k, n = (data.draw(st.integers(1, 5)) for _ in range(3))
    trans_a, trans_b = data.draw(st.integers(0, 1)), data.draw(st.integers(0, 1))
    a = normal(seed, *((k, m) if trans_a else (m, k)))
    b = normal(seed + 1, *((n, k) if trans_b else (k, n)))
    shape = data.draw(st.sampled_from([None, (), (1,), (n,), (1, n), (m, 1), (m, n)]))
    addend = [] if shape is None else [normal(seed + 2, *shape).reshape(shape)]
    scales = st.sampled_from([1.0, 0.5, -2.0])
    attributes = {"transA": trans_a, "transB": trans_b, "alpha": data.draw(scales), "beta": data.draw(scales)}
    assert_agrees(one_node("Gemm", [a, b, *addend], attributes, 13), {"i0": a})


@EXAMPLES
@given(st.data(), SEEDS)
def test_matrix_product_of_any_ranks(data: st.DataObject, seed: int) -> None:
    m, k, n = (data.draw(st.integers(1, 4)) for _ in range(3))
    left = data.draw(st.sampled_from([(k,), (m, k), (2, m, k), (2, 1, m, k)]))
    right = data.draw(st.sampled_from([(k,), (k, n), (2, k, n), (3, k, n)]))
    assume(not (len(left) == 3 and right[0] == 3 and len(right) == 3))
    a, b = normal(seed, *left), normal(seed + 1, *right)
    assert_agrees(one_node("MatMul", [a, b], {}, 13), {"i0": a})


@EXAMPLES
@given(
    st.data(), st.integers(1, 4), st.sampled_from(["ReduceMean", "ReduceSum", "ReduceMax"]), st.integers(0, 2**32 - 1)
)
def test_reduction(data: st.DataObject, rank: int, op_type: str, seed: int) -> None:
    x = normal(seed, *data.draw(entries(rank, 1, 4)))
    axes = data.draw(st.lists(st.integers(-rank, rank - 1), unique_by=lambda axis: axis % rank))
    attributes: dict[str, object] = {"keepdims": data.draw(st.integers(0, 1))}
    if axes:
        attributes["axes"] = axes
    assert_agrees(one_node(op_type, [x], attributes, 11), {"i0": x})


@EXAMPLES
@given(st.data(), st.integers(1, 4), st.sampled_from([11, 13]), SEEDS)
def test_softmax_before_and_after_coercion(data: st.DataObject, rank: int, opset: int, seed: int) -> None:
    x = normal(seed, *data.draw(entries(rank, 1, 4)))
    assert_agrees(one_node("Softmax", [x], {"axis": data.draw(st.integers(-rank, rank - 1))}, opset), {"i0": x})


@EXAMPLES
@given(st.data(), st.integers(1, 3), SEEDS)
def test_slice(data: st.DataObject, rank: int, seed: int) -> None:
    x = normal(seed, *data.draw(entries(rank, 1, 6)))
    axes = data.draw(st.lists(st.integers(-rank, rank - 1), min_size=1, unique_by=lambda axis: axis % rank))
    starts, ends = (data.draw(entries(len(axes), -8, 8)) for _ in range(2))
    steps = [step or 1 for step in data.draw(entries(len(axes), -3, 3))]
    for at, axis in enumerate(axes):
        if not range(*slice(starts[at], ends[at], steps[at]).indices(x.shape[axis])):  # takes nothing: all of it then
            starts[at], ends[at], steps[at] = 0, x.shape[axis], 1
    lists = [np.asarray(values, np.int64) for values in (starts, ends, axes, steps)]
    assert_agrees(one_node("Slice", [x, *lists], {}, 13), {"i0": x})


@EXAMPLES
@given(st.data(), st.integers(1, 3), st.sampled_from(["constant", "reflect", "edge"]), SEEDS)
def test_pad(data: st.DataObject, rank: int, mode: str, seed: int) -> None:
    x = normal(seed, *data.draw(entries(rank, 3, 5)))
    pads = data.draw(entries(2 * rank, -1 if mode == "constant" else 0, 2))
    inputs = [x, np.asarray(pads, np.int64)] + ([np.float32(1.5).reshape(())] if mode == "constant" else [])
    assert_agrees(one_node("Pad", inputs, {"mode": mode}, 13), {"i0": x})


@EXAMPLES
@given(st.integers(1, 6), st.integers(1, 5), SEEDS)
def test_local_response_normalisation(channels: int, size: int, seed: int) -> None:
    size += 1 - size % 2  # onnxruntime takes odd sizes only
    x = normal(seed, 2, channels, 3, 3)
    assert_agrees(one_node("LRN", [x], {"size": size, "alpha": 0.1, "beta": 0.6, "bias": 2.0}, 13), {"i0": x})


IMAGE = normal(7, 2, 4, 6, 6)
FORMS: list[tuple[str, list[Array], dict[str, object], int]] = [
    ("Clip", [IMAGE], {"min": -0.5}, 9),
    ("Clip", [IMAGE], {"min": -0.5, "max": 0.25}, 10),
    ("Pad", [IMAGE], {"pads": [0, 0, 1, 2, 0, 1, 0, -1], "value": 3.0}, 9),
    ("Pad", [IMAGE], {"pads": [0, 0, 1, 2, 0, 0, 0, 1], "mode": "reflect"}, 10),
    ("Pad", [IMAGE, integers(1, 0, 0, 2), np.float32(1.0).reshape(()), integers(-1, 1)], {}, 18),
    ("Slice", [IMAGE], {"starts": [1, -3], "ends": [100, -1], "axes": [1, 3]}, 9),
    ("Slice", [IMAGE, integers(-1, 5), integers(-100, 0), integers(2, 3), integers(-2, -1)], {}, 10),
    ("Squeeze", [normal(8, 2, 1, 3, 1)], {"axes": [1]}, 9),
    ("Squeeze", [normal(8, 2, 1, 3, 1)], {"axes": [-1, 1]}, 11),
    ("Squeeze", [normal(8, 2, 1, 3, 1)], {}, 13),
    ("Unsqueeze", [IMAGE], {"axes": [0, 3]}, 9),
    ("Unsqueeze", [IMAGE, integers(-1, 1)], {}, 13),
    ("Flatten", [IMAGE], {"axis": 0}, 9),
    ("Flatten", [IMAGE], {"axis": -2}, 13),
    ("Reshape", [IMAGE, integers(0, -1, 3)], {}, 9),
    ("Reshape", [IMAGE, integers(-1, 9)], {"allowzero": 1}, 14),
    ("Dropout", [IMAGE], {"ratio": 0.3}, 9),
    ("Dropout", [IMAGE, np.float32(0.3).reshape(()), np.asarray(False)], {"seed": 1}, 13),
    ("BatchNormalization", [IMAGE, *(np.abs(normal(i, 4)) for i in range(4))], {"epsilon": 1e-3, "momentum": 0.5}, 9),
    ("BatchNormalization", [IMAGE, *(np.abs(normal(i, 4)) for i in range(4))], {}, 15),
    ("MaxPool", [IMAGE], {"kernel_shape": [2, 2], "storage_order": 1}, 9),
    ("GlobalMaxPool", [IMAGE], {}, 9),
    ("GlobalAveragePool", [normal(9, 2, 3, 5)], {}, 9),
    ("ReduceMean", [IMAGE, integers(-1, 1)], {"keepdims": 0}, 18),
    ("ReduceSum", [IMAGE, integers()], {"noop_with_empty_axes": 1}, 13),
    ("ReduceSum", [IMAGE, integers()], {}, 13),
    ("Sum", [IMAGE, normal(1, 6), normal(2, 4, 1, 1)], {}, 9),
    ("Max", [IMAGE, normal(1, 6), normal(2, 4, 1, 1)], {}, 12),
    ("Min", [IMAGE], {}, 9),
    ("Pow", [np.abs(IMAGE), integers(2)], {}, 12),
    ("Gelu", [IMAGE], {"approximate": "tanh"}, 20),
    ("HardSigmoid", [IMAGE], {"alpha": 0.3, "beta": 0.4}, 9),
    ("Transpose", [IMAGE], {}, 9),
    ("Softplus", [30 * IMAGE], {}, 9),
]


@pytest.mark.parametrize(("op_type", "inputs", "attributes", "opset"), FORMS)
def test_forms_of_older_and_newer_opsets(
    op_type: str, inputs: list[Array], attributes: dict[str, object], opset: int
) -> None:
    assert_agrees(one_node(op_type, inputs, attributes, opset), {"i0": inputs[0]})


@pytest.mark.parametrize("opset", [9, 11, 13, 18])
def test_split_at_every_form(opset: int) -> None:
    """Sizes as attribute, as input, and from num_outputs, where the last part is smaller."""
    x = normal(3, 1, 7, 2)
    attributes: dict[str, object] = {"axis": 1}
    constants = {}
    if opset < 13:
        attributes["split"] = [2, 4, 1]
    elif opset == 13:
        constants["sizes"] = numpy_helper.from_array(np.asarray([2, 4, 1]), "sizes")
    else:
        attributes["num_outputs"] = 3
    nodes = [
        helper.make_node("Split", ["i0", *constants], ["a", "b", "c"], **attributes),
        helper.make_node("Concat", ["c", "a", "b"], ["y"], axis=1),
    ]
    given = helper.make_tensor_value_info("i0", TensorProto.FLOAT, x.shape)
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "split", [given], [result], list(constants.values()))
    assert_agrees(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), {"i0": x})


def test_a_quotient_of_integers_by_zero_is_zero_whatever_their_signs() -> None:
    a, b = np.asarray([5, -5, 0, -7, 7, -8], np.int32), np.asarray([0, 0, 0, 2, -2, -2], np.int32)
    np.testing.assert_array_equal(Binary("div").evaluate([a, b])[0], [0, 0, 0, -3, -3, 4])


@pytest.mark.parametrize("reverse", [0, 1])
def test_sums_of_what_stands_before_an_element_lose_nothing_beside_it(reverse: int) -> None:
    """A number that is far larger, or infinite, is part of the sums behind it alone."""
    x = np.asarray([[1.0, 2e30, 3.0, 4.0], [5.0, np.inf, 6.0, -np.inf]], np.float32)
    model = one_node("CumSum", [x, np.asarray(1)], {"exclusive": 1, "reverse": reverse}, 14)
    assert_agrees(model, {"i0": x})


def test_window_larger_than_its_input_is_refused() -> None:
    x = normal(0, 1, 1, 4, 4)
    model = one_node("MaxPool", [x], {"kernel_shape": [5, 5]}, 12)
    with pytest.raises(BoltError) as raised:
        assert_agrees(model, {"i0": x})
    assert [d.message for d in raised.value.diagnostics] == [
        "MaxPool 'MaxPool_0': a window of 5 does not fit the 4 cells of spatial axis 0 (padding included)"
    ]


def test_epilogue_applies_in_order_with_its_operands_on_the_stated_side() -> None:
    graph = parse_graph("""
        graph stages batch=1 (%x: f32[1,2], %r: f32[1,2]) -> (%y) {
          %y = neg(%x, %r) | sub(%r) | sub(%r) swapped | clip alpha=0 beta=4 | div(%r)
        }
    """)
    x, r = np.asarray([[1.0, -3.0]], np.float32), np.asarray([[2.0, 4.0]], np.float32)
    values = reference.evaluate(graph, {"x": x, "r": r})
    np.testing.assert_array_equal(values["y"], np.clip(r - (-x - r), 0, 4) / r)
    assert values["y"].dtype == np.float32


def test_evaluation_needs_the_inputs_of_the_graph() -> None:
    graph = parse_graph("graph g batch=1 (%x: f32[1,2]) -> (%y) {\n %y = relu(%x)\n}")
    with pytest.raises(ValueError) as raised:
        reference.evaluate(graph, {"z": np.zeros((1, 2), np.float32)})
    assert str(raised.value) == "the graph takes ['x'], not ['z']"
    with pytest.raises(ValueError) as raised:
        reference.evaluate(graph, {"x": np.zeros((1, 2))})
    assert str(raised.value) == "input 'x' is f32[1, 2], not f64[1, 2]"


def test_flops_count_a_multiply_add_as_two() -> None:
    graph = parse_graph("""
        graph g batch=1 (%x: f32[2,8,9,9]) -> (%z) {
          const %w: f32[4,4,3,3]
          const %b: f32[4]
          const %m: f32[7,5]
          %y = conv(%x, %w, %b) groups=2
          %r = reshape(%y) shape=[2,28,7]
          %p = matmul(%r, %m)
          %z = reduce(%p) mode=mean axes=[1]
        }
    """)
    flops = [
        node.op.flops([graph.type(n) for n in node.inputs], [graph.type(n) for n in node.outputs])
        for node in graph.nodes
    ]
    assert flops == [2 * 4 * 7 * 7 * (2 * 4 * 9 + 1), 0, 2 * 28 * 5 * 2 * 7, 2 * 28 * 5]
