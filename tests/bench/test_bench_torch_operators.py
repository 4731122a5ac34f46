"""Every operator that a model may hold has a counterpart in torch: what it computes, and that it is torch's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from graph_models import bound, model, node, tensor

from bolt_build.graph import reference
from bolt_build.graph.ir import Array, Graph
from bolt_build.graph.ops import OPS
from bolt_build.graph.text import parse_graph

torch = pytest.importorskip("torch", reason="torch is a peer, which tests need not have")

# Behind the line above: these import torch.
from torch_modules import called, compute  # noqa: E402

from bolt_build.bench.torch_graph import Unsupported, torch_module  # noqa: E402
from bolt_build.bench.torch_graph.builder import tensor_of  # noqa: E402
from bolt_build.bench.torch_graph.module import _LOWER  # noqa: E402

WITHOUT = {
    "convert", "fake-quantize", "fold-depth", "rearrange", "stack", "unfold-depth",  # passes alone make them
    "channel_attention", "head_rows", "pair_product", "pair_sum", "placed_matmul", "resample", "rotary",  # likewise
    "chosen_matmul", "sinkhorn", "state_scan", "substitution", "weighed_windows",  # likewise
    "quantised-product", "quantised-map",  # likewise
    "integer-matmul", "integer-conv", "requantize", "scale-sums", "range-scale", "range-zero", "range-quantize",
    "bit_cast", "roi_align", "roi_pool", "deformed_windows", "tree_leaves",
}  # fmt: skip
"""Operators without a counterpart. torch's products of integers are not for all devices, regions and deformed windows
are torchvision's, and trees are no layers."""


def test_all_operators_but_these_have_a_counterpart() -> None:
    assert {op.kind for op in OPS if op not in _LOWER} == WITHOUT


def assert_as_reference(graph: Graph, inputs: dict[str, Array], tolerance: float = 1e-4) -> None:
    inputs = {name: inputs[name] if name in inputs else inputs[name[:-1]][None] for name in graph.inputs}
    expected = reference.evaluate(graph, inputs)
    for name, made in zip(graph.outputs, compute(graph, inputs), strict=True):
        assert (made.shape, made.dtype) == (expected[name].shape, expected[name].dtype)
        np.testing.assert_allclose(made.astype(float), expected[name].astype(float), rtol=tolerance, atol=tolerance)


FLOAT, I64, I32, U8, I8, BOOL = (
    onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.INT32, onnx.TensorProto.UINT8,
    onnx.TensorProto.INT8, onnx.TensorProto.BOOL,
)  # fmt: skip


def numbers(shape: tuple[int, ...], kind: int = FLOAT, below: int = 4, least: int = 0, seed: int = 0) -> Array:
    random = np.random.RandomState(seed)
    if kind == FLOAT:
        return random.standard_normal(shape).astype(np.float32)
    return random.randint(least, below, shape).astype(onnx.helper.tensor_dtype_to_np_dtype(kind))


def given(
    tmp_path: Path, made: list[onnx.NodeProto], arrays: dict[str, Array], opset: int = 18, **held: Array
) -> Graph:
    """The graph of nodes whose inputs are tensors like these arrays, each a batch of one; `held` are constants."""
    inputs = [
        tensor(f"{name}_", [1, *array.shape], onnx.helper.np_dtype_to_tensor_dtype(array.dtype))
        for name, array in arrays.items()
    ]
    apart = [node("Squeeze", f"{name}_ first", name) for name in arrays]
    return bound(tmp_path, model([*apart, *made], inputs, constants={"first": np.asarray([0]), **held}, opset=opset))


@pytest.mark.parametrize(
    ("made", "arrays", "calls"),
    [
        (node("Gather", "x i", "y", axis=1), {"x": numbers((1, 5, 6)), "i": numbers((2, 3), I64, 5, -5)}, ["getitem"]),
        (node("Gather", "x i", "y"), {"x": numbers((5, 6)), "i": numbers((1, 3), I32, 5)}, ["getitem"]),
        (node("GatherElements", "x i", "y", axis=1), {"x": numbers((2, 5)), "i": numbers((2, 3), I64, 5, -5)},
         ["remainder", "gather"]),
        (node("GatherND", "x i", "y"), {"x": numbers((4, 3, 5)), "i": numbers((2, 3, 2), I64, 3, -3)},
         ["unbind", "getitem", "getitem", "getitem"]),
        (node("GatherND", "x i", "y", batch_dims=1), {"x": numbers((2, 3, 5)), "i": numbers((2, 4, 1), I64, 3)},
         ["unbind", "getitem", "getitem"]),
    ],
)  # fmt: skip
def test_gathers_by_indices_that_are_data(
    made: onnx.NodeProto, arrays: dict[str, Array], calls: list[str], tmp_path: Path
) -> None:
    graph = given(tmp_path, [made], arrays)
    assert_as_reference(graph, arrays)
    assert called(graph) == calls


@pytest.mark.parametrize(
    ("x", "i", "axis", "call"),
    [
        (numbers((3, 4, 5)), np.asarray(-1), 1, "select"),
        (numbers((3, 4, 5)), np.asarray([2, -1, 0]), 1, "index_select"),
        (numbers((9, 4)), numbers((3, 3), I64, 9, -9), 0, "getitem"),
    ],
)
def test_gathers_by_constant_indices(x: Array, i: Array, axis: int, call: str, tmp_path: Path) -> None:
    graph = given(tmp_path, [node("Gather", "x i", "y", axis=axis)], {"x": x}, i=i.astype(np.int64))
    assert_as_reference(graph, {"x": x})
    assert called(graph) == [call]


def test_rows_of_a_constant_table_are_an_embedding(tmp_path: Path) -> None:
    arrays = {"i": numbers((2, 7), I64, 11)}
    graph = given(tmp_path, [node("Gather", "t i", "y")], arrays, t=numbers((11, 4)))
    assert_as_reference(graph, arrays)
    assert called(graph) == ["embedding"]


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_scatters(reduction: str, tmp_path: Path) -> None:
    unique = np.asarray([[3, 0, -1], [1, -2, 0]], np.int64)
    several = unique if reduction == "none" else np.asarray([[3, 3, -1], [1, -2, 2]], np.int64)
    elements = {"x": numbers((2, 4)), "i": several, "u": numbers((2, 3), seed=1)}
    made = node("ScatterElements", "x i u", "y", axis=1, reduction=reduction)
    assert_as_reference(given(tmp_path, [made], elements), elements)
    rows = {"x": numbers((4, 3, 5)), "i": several.reshape(2, 3, 1)[:1] % 4, "u": numbers((1, 3, 3, 5), seed=1)}
    made = node("ScatterND", "x i u", "y", reduction=reduction)
    assert_as_reference(given(tmp_path, [made], rows), rows)


@pytest.mark.parametrize("kind", [FLOAT, I32, I64])
@pytest.mark.parametrize("question", ["Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"])
def test_comparisons_choose(question: str, kind: int, tmp_path: Path) -> None:
    arrays = {"a": numbers((2, 3, 4), kind), "b": numbers((3, 1), kind, seed=1)}
    graph = given(tmp_path, [node(question, "a b", "c"), node("Where", "c a b", "y")], arrays)
    assert_as_reference(graph, arrays)


@pytest.mark.parametrize("function", ["And", "Or", "Xor"])
def test_booleans(function: str, tmp_path: Path) -> None:
    arrays = {"a": numbers((3, 4), BOOL, 2), "b": numbers((4,), BOOL, 2, seed=1)}
    assert_as_reference(given(tmp_path, [node(function, "a b", "c"), node("Not", "c", "y")], arrays), arrays)


@pytest.mark.parametrize("function", ["BitwiseAnd", "BitwiseOr", "BitwiseXor"])
@pytest.mark.parametrize("kind", [I32, U8])
def test_bits(function: str, kind: int, tmp_path: Path) -> None:
    arrays = {"a": numbers((3, 4), kind, 100), "b": numbers((3, 4), kind, 100, seed=1)}
    assert_as_reference(given(tmp_path, [node(function, "a b", "y")], arrays), arrays)


@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_shifts(direction: str, tmp_path: Path) -> None:
    arrays = {"a": numbers((3, 4), U8, 100), "b": numbers((3, 4), U8, 7, seed=1)}
    assert_as_reference(given(tmp_path, [node("BitShift", "a b", "y", direction=direction)], arrays), arrays)


@pytest.mark.parametrize("question", ["IsNaN", "IsInf"])
def test_questions(question: str, tmp_path: Path) -> None:
    arrays = {"x": np.asarray([1.0, np.nan, np.inf, -np.inf], np.float32)}
    assert_as_reference(given(tmp_path, [node(question, "x", "y")], arrays, opset=20), arrays)


@pytest.mark.parametrize("to", [FLOAT, I64, I32, U8, BOOL])
@pytest.mark.parametrize("kind", [FLOAT, I64, BOOL])
def test_casts(kind: int, to: int, tmp_path: Path) -> None:
    x = np.abs(numbers((3, 5))) * 7 if kind == FLOAT else numbers((3, 5), kind, 2)
    graph = given(tmp_path, [node("Cast", "x", "c", to=to), node("Identity", "c", "y")], {"x": x})
    assert_as_reference(graph, {"x": x})


def test_what_was_an_integer_has_the_type_of_the_modules_data(tmp_path: Path) -> None:
    arrays = {"i": numbers((1, 3), I64), "x": numbers((1, 3))}
    graph = given(tmp_path, [node("Cast", "i", "c", to=FLOAT), node("Add", "c x", "y")], arrays)
    with torch.inference_mode():
        (made,) = torch_module(graph).half()(tensor_of(arrays["i"][None]), tensor_of(arrays["x"][None]).half())
    assert made.dtype == torch.half


@pytest.mark.parametrize("mode", ["Sum", "Mean", "Max", "Min", "Prod", "L1", "SumSquare"])
@pytest.mark.parametrize("kind", [FLOAT, I32])
def test_reductions(mode: str, kind: int, tmp_path: Path) -> None:
    arrays = {"x": numbers((2, 3, 4), kind, 4, -3)}
    made = node(f"Reduce{mode}", "x axes", "y", keepdims=0)
    assert_as_reference(given(tmp_path, [made], arrays, axes=np.asarray([0, 2], np.int64)), arrays)


@pytest.mark.parametrize("mode", ["L2", "LogSum", "LogSumExp"])
def test_reductions_of_floats_alone(mode: str, tmp_path: Path) -> None:
    arrays = {"x": np.abs(numbers((2, 3, 4)))}
    made = node(f"Reduce{mode}", "x axes", "y")
    assert_as_reference(given(tmp_path, [made], arrays, axes=np.asarray([1], np.int64)), arrays)


@pytest.mark.parametrize("kind", [FLOAT, I32, I64])
@pytest.mark.parametrize(("exclusive", "reverse"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_sums_along_an_axis(kind: int, exclusive: int, reverse: int, tmp_path: Path) -> None:
    arrays = {"x": numbers((2, 5), kind, 9)}
    made = node("CumSum", "x axis", "y", exclusive=exclusive, reverse=reverse)
    assert_as_reference(given(tmp_path, [made], arrays, axis=np.asarray(1, np.int64)), arrays)


@pytest.mark.parametrize("op_type", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
def test_places_of_one_element(op_type: str, last: int, tmp_path: Path) -> None:
    arrays = {"x": numbers((3, 7), I32, 3)}
    made = node(op_type, "x", "y", axis=1, keepdims=0, select_last_index=last)
    assert_as_reference(given(tmp_path, [made], arrays), arrays)


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("count", [3, 7])
def test_places_of_several_elements(largest: int, count: int, tmp_path: Path) -> None:
    arrays = {"x": numbers((2, 7))}
    made = node("TopK", "x k", "v y", axis=1, largest=largest)
    graph = given(tmp_path, [made], arrays, k=np.asarray([count], np.int64))
    assert_as_reference(graph, arrays)
    assert called(graph)[0] == ("topk" if count == 3 else "sort")


@pytest.mark.parametrize("op_type", ["LogSoftmax", "Hardmax"])
def test_lines(op_type: str, tmp_path: Path) -> None:
    arrays = {"x": numbers((2, 5, 3))}
    assert_as_reference(given(tmp_path, [node(op_type, "x", "y", axis=1)], arrays), arrays)


@pytest.mark.parametrize(
    ("op_type", "attributes"),
    [
        ("Elu", {"alpha": 0.5}), ("Selu", {}), ("Celu", {"alpha": 1.5}), ("ThresholdedRelu", {"alpha": 0.3}),
        ("Sign", {}), ("Shrink", {"lambd": 0.4, "bias": 0.4}), ("Shrink", {"lambd": 0.4}),
        ("Shrink", {"lambd": 0.4, "bias": 0.1}),
    ],
)  # fmt: skip
def test_activations(op_type: str, attributes: dict[str, float], tmp_path: Path) -> None:
    arrays = {"x": numbers((2, 5, 3))}
    assert_as_reference(given(tmp_path, [node(op_type, "x", "y", **attributes)], arrays), arrays)


@pytest.mark.parametrize("slope", [(1,), (3, 1, 1), (2, 3, 4, 5), (5,)])
def test_slopes_of_negative_numbers(slope: tuple[int, ...], tmp_path: Path) -> None:
    arrays = {"x": numbers((2, 3, 4, 5))}
    graph = given(tmp_path, [node("PRelu", "x s", "y")], arrays, s=numbers(slope, seed=1))
    assert_as_reference(graph, arrays)
    assert ("prelu" in called(graph)) == (slope in ((1,), (3, 1, 1)))


@pytest.mark.parametrize(("fmod", "kind"), [(0, I32), (1, I32), (1, FLOAT)])
def test_remainders(fmod: int, kind: int, tmp_path: Path) -> None:
    arrays = {"a": numbers((3, 4), kind, 20, -20), "b": numbers((3, 4), kind, 9, 1, seed=1)}
    assert_as_reference(given(tmp_path, [node("Mod", "a b", "y", fmod=fmod)], arrays), arrays)


@pytest.mark.parametrize(
    ("attributes", "sizes", "call"),
    [
        (
            {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
            (8, 10),
            "interpolate",
        ),
        ({"mode": "linear"}, (9, 7), "interpolate"),
        ({"mode": "linear", "coordinate_transformation_mode": "align_corners"}, (8, 11), "interpolate"),
        ({"mode": "linear", "antialias": 1, "exclude_outside": 1}, (3, 2), "interpolate"),
        ({"mode": "cubic"}, (9, 12), "interpolate"),
        ({"mode": "linear", "coordinate_transformation_mode": "asymmetric"}, (9, 12), "linear"),
    ],
)
def test_a_resize_is_one_call_where_torch_has_the_mode(
    attributes: dict[str, object], sizes: tuple[int, int], call: str, tmp_path: Path
) -> None:
    arrays = {"x": numbers((1, 3, 4, 5))}
    held = np.asarray([1, 3, *sizes], np.int64)
    graph = given(tmp_path, [node("Resize", "x - - s", "y", **attributes)], arrays, opset=19, s=held)
    assert_as_reference(graph, arrays, 1e-3)
    names = called(graph)
    assert call in names
    assert len(names) == 1 or call == "linear"


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_samples_of_a_grid(mode: str, padding: str, axes: int, tmp_path: Path) -> None:
    arrays = {"x": numbers((2, 3, *(4, 5, 6)[:axes])), "g": numbers((2, *(3, 2, 4)[:axes], axes), seed=1) * 0.6}
    graph = given(tmp_path, [node("GridSample", "x g", "y", mode=mode, padding_mode=padding)], arrays, opset=20)
    if mode == "cubic" and axes == 3:
        with pytest.raises(Unsupported, match=r"^torch does not sample volumes with cubic weights \('.*'\)$"):
            torch_module(graph)
        return
    assert_as_reference(graph, arrays, 1e-3)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_norms_of_windows(p: int, tmp_path: Path) -> None:
    arrays = {"x": numbers((1, 3, 8, 9))}
    made = node("LpPool", "x", "y", kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1], p=p)
    assert_as_reference(given(tmp_path, [made], arrays), arrays)


def test_places_in_windows(tmp_path: Path) -> None:
    arrays = {"x": numbers((2, 3, 8, 9))}
    made = node("MaxPool", "x", "y i", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    graph = bound(tmp_path, model([made], [tensor("x", ["N", 3, 8, 9])], outputs=["y", "i"]), batch=2)
    assert_as_reference(graph, arrays)


def test_determinants(tmp_path: Path) -> None:
    arrays = {"x": numbers((2, 4, 4))}
    assert_as_reference(given(tmp_path, [node("Det", "x", "y")], arrays), arrays)


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_attention_is_torchs_own(causal: int, masked: bool, kv_heads: int, tmp_path: Path) -> None:
    arrays = {
        "q": numbers((2, 4, 5, 8)), "k": numbers((2, kv_heads, 7, 8), seed=1), "v": numbers((2, kv_heads, 7, 8), seed=2)
    }  # fmt: skip
    names = "q k v m" if masked else "q k v"
    made = node("Attention", names, "y", is_causal=causal, scale=0.3)
    inputs = [tensor(name, list(array.shape)) for name, array in arrays.items()]
    constants = {"m": numbers((5, 7), seed=3)} if masked else {}
    graph = bound(tmp_path, model([made], inputs, constants=constants, opset=23), batch=2)
    assert_as_reference(graph, arrays)
    assert called(graph).count("scaled_dot_product_attention") == 1


def test_a_mask_of_fewer_images_begins_anew_behind_them() -> None:
    attention = "%y = attention(%x, %x, %x, %m) heads=2 kv_heads=2 scale=0.5"
    graph = parse_graph(f"graph g batch=6 (%x: f32[6,5,8], %m: f32[3,2,5,5]) -> (%y) {{\n  {attention}\n}}\n")
    assert_as_reference(graph, {"x": numbers((6, 5, 8)), "m": numbers((3, 2, 5, 5), seed=1)})


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(("cell", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
@pytest.mark.parametrize("states", [False, True])
def test_a_recurrent_layer_is_torchs_own(cell: str, gates: int, direction: str, states: bool, tmp_path: Path) -> None:
    hidden, width, directions = 5, 6, 2 if direction == "bidirectional" else 1
    arrays = {"x": numbers((7, 2, width))}
    constants = {
        "w": numbers((directions, gates * hidden, width), seed=1), "r": numbers((directions, gates * hidden, hidden)),
        "b": numbers((directions, 2 * gates * hidden), seed=2),
    }  # fmt: skip
    names = "x w r b"
    if states:
        names += " - h c" if cell == "LSTM" else " - h"
        constants["h"] = numbers((directions, 2, hidden), seed=3)
    if states and cell == "LSTM":
        constants["c"] = numbers((directions, 2, hidden), seed=4)
    more = {"linear_before_reset": 1} if cell == "GRU" else {}
    results = "y h_n c_n" if cell == "LSTM" else "y h_n"
    made = node(cell, names, results, hidden_size=hidden, direction=direction, **more)
    proto = model([made], [tensor("x", [7, 2, width])], outputs=results.split(), constants=constants)
    graph = bound(tmp_path, proto, batch=7)
    assert_as_reference(graph, arrays)
    names_called = called(graph)
    assert names_called.count(cell) == 1
    assert "Linear" not in names_called, "the product in front is the layer's own"


def test_the_gates_that_torch_does_not_have_are_said(tmp_path: Path) -> None:
    constants = {"w": numbers((1, 15, 6)), "r": numbers((1, 15, 5))}
    made = node("GRU", "x w r", "y", hidden_size=5, name="first")
    graph = bound(tmp_path, model([made], [tensor("x", [7, 2, 6])], constants=constants), batch=7)
    with pytest.raises(Unsupported) as raised:
        torch_module(graph)
    said = "a recurrent layer with a reset gate in front of the product has no counterpart in torch ('first.recurrent')"
    assert str(raised.value) == said


@pytest.mark.parametrize("kind", [I8, U8])
def test_numbers_on_steps(kind: int, tmp_path: Path) -> None:
    arrays = {"x": numbers((2, 9)) * 3}
    zero = np.asarray(3, onnx.helper.tensor_dtype_to_np_dtype(kind))
    nodes = [node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q s z", "y")]
    assert_as_reference(given(tmp_path, nodes, arrays, s=np.asarray(0.1, np.float32), z=zero), arrays)


def test_all_that_has_no_counterpart_is_said_at_once(tmp_path: Path) -> None:
    constants = {"rois": np.asarray([[0, 0, 4, 4]], np.float32), "images": np.asarray([0], np.int64)}
    nodes = [
        node("RoiAlign", "x rois images", "a", name="left"), node("RoiAlign", "x rois images", "b", name="right"),
        node("Add", "a b", "c"), node("Resize", "c - - s", "d", name="turned"), node("Relu", "d", "e"),
        node("DynamicQuantizeLinear", "e", "q s1 z1", name="stepped"), node("DequantizeLinear", "q s1 z1", "y"),
    ]  # fmt: skip
    constants["s"] = np.asarray([1, 3, 2, 2], np.int64)
    graph = bound(tmp_path, model(nodes, constants=constants))
    with pytest.raises(Unsupported) as raised:
        torch_module(graph)
    said = str(raised.value).split("; ")
    assert said[0] == "operator 'roi_align' of 'left' has no counterpart in torch here (2 times)"
    assert [text.split("'")[1] for text in said[1:]] == ["range-scale", "range-zero", "range-quantize"]
