"""Which models take shorter inputs padded with zeros: those whose outputs are then what they would be alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from graph_models import model, node, saved, tensor
from length_models import LARGE, SMALL, VOCABULARY, encoder, graphs, said
from onnx import TensorProto
from planner_checks import graph

from bolt_build.graph.ir import Array, Graph
from bolt_build.graph.onnx_import import load_model
from bolt_build.graph.padding import PaddedPorts, padded_ports
from bolt_build.graph.reference import evaluate


def padded(array: Array, axes: Sequence[int], extent: int) -> Array:
    widths = [(0, extent - size if axis in axes else 0) for axis, size in enumerate(array.shape)]
    return np.pad(array, widths)


def feeds(graph: Graph, seed: int) -> dict[str, Array]:
    random = np.random.RandomState(seed)
    found = {}
    for name in graph.inputs:
        shape, whole = graph.type(name).shape, graph.type(name).dtype.is_integer
        below = 2 if "mask" in name else VOCABULARY
        drawn = random.randint(0, below, shape) if whole else random.standard_normal(shape).astype(np.float32)
        if "mask" in name:
            drawn.reshape(shape[0], -1)[:, 0] = 1  # something is always left
        found[name] = drawn
    return found


def agrees(folder: Path, proto: onnx.ModelProto) -> PaddedPorts:
    """The ports; asserts that every shorter length gives padded what it gives alone."""
    ports = said(folder, proto)
    assert isinstance(ports, PaddedPorts), ports
    axes = dict(ports.axes)
    (large,) = graphs(folder, proto, LARGE)
    for length in (1, 5, SMALL, LARGE - 1):
        (alone,) = graphs(folder, proto, length)
        given = feeds(alone, length)
        longer = {name: padded(array, axes.get(name, ()), LARGE) for name, array in given.items()}
        wanted, found = evaluate(alone, given), evaluate(large, longer)
        for name in alone.outputs:
            kept = tuple(slice(extent) for extent in wanted[name].shape)
            np.testing.assert_allclose(found[name][kept], wanted[name], atol=2e-6)
    return ports


def test_an_encoder_with_a_mask_pads_its_ports(tmp_path: Path) -> None:
    assert agrees(tmp_path, encoder()).axes == (("input_ids", (1,)), ("attention_mask", (1,)), ("hidden", (1,)))


def ended(*nodes: onnx.NodeProto) -> onnx.ModelProto:
    return encoder(ending=nodes, outputs=("y",))


ACCEPTED = {
    "mean of what the mask leaves": ended(
        node("Unsqueeze", "kept last_axis", "kept3"), node("Mul", "hidden kept3", "chosen"),
        node("ReduceSum", "chosen one", "total", keepdims=0), node("ReduceSum", "kept3 one", "count", keepdims=0),
        node("Div", "total count", "y"),
    ),
    "rows of all sentences in one axis": ended(
        node("Reshape", "hidden rows_shape", "flat"), node("Gemm", "flat wq", "through"),
        node("Relu", "through", "relu"), node("Reshape", "relu back_shape", "y"),
    ),
    "positions counted over the mask": ended(
        node("CumSum", "attention_mask axis_one", "counted"), node("Mul", "counted attention_mask", "ids"),
        node("Gather", "words ids", "y"),
    ),
    "channels before positions": ended(node("Transpose", "hidden", "y", perm=[0, 2, 1])),
    "greatest of each token": ended(node("TopK", "hidden two", "top y", axis=-1)),
    "least of each token, by its place": ended(
        node("ArgMin", "hidden", "least", axis=2), node("GatherElements", "x least", "y", axis=2),
    ),
    "channels that are padded and cropped": ended(node("Pad", "hidden sides", "y", mode="reflect")),
    "a window of one token": ended(
        node("Transpose", "hidden", "moved2", perm=[0, 2, 1]), node("Conv", "moved2 pixel", "y", group=2),
    ),
    "two outputs of each token": ended(node("Concat", "hidden x", "y", axis=2)),
}  # fmt: skip

REFUSED = {
    "greatest of all tokens": (
        ended(node("ArgMax", "hidden", "y", axis=1)),
        "'ArgMax_30' finds the greatest or least along it, and padding may be that",
    ),
    "tokens in another order": (
        ended(node("GatherElements", "hidden order", "y", axis=1)),
        "'GatherElements_30' looks up positions along it",
    ),
    "no rule": (
        ended(node("ScatterElements", "hidden order update", "y", axis=1)),
        "'ScatterElements_30' is 'scatter_elements', an operator that has no rule for padding",
    ),
    "mean": (
        ended(node("ReduceMean", "hidden", "y", axes=[1])),
        "'ReduceMean_30' takes the mean over it, and padding counts",
    ),
    "last token": (
        ended(node("Slice", "hidden minus end one", "y")),
        "'Slice_30' takes a part of it that is not its first position",
    ),
    "softmax over tokens": (
        ended(node("Softmax", "hidden", "y", axis=1)),
        "'Softmax_30' is a softmax over it without a mask that an input gives",
    ),
    "normalised over tokens": (
        ended(node("Transpose", "hidden", "moved2", perm=[0, 2, 1]), node("LpNormalization", "moved2", "y", axis=-1)),
        "'LpNormalization_31' normalises over it",
    ),
    "sum of products": (
        ended(node("Transpose", "hidden", "moved2", perm=[0, 2, 1]), node("MatMul", "moved2 hidden", "y")),
        "'MatMul_31' adds up over it, and padding is not zero there",
    ),
    "how many differ": (
        ended(
            node("Greater", "hidden x", "more"), node("Greater", "x hidden", "less"),
            node("Xor", "more less", "differ"), node("Cast", "differ", "counted", to=TensorProto.FLOAT),
            node("ReduceSum", "counted axis_one", "y"),
        ),
        "'ReduceSum_34' takes the sum over it, and padding counts",
    ),
    "something behind it": (
        ended(node("Concat", "hidden head", "y", axis=1)), "'Concat_30' puts something behind it",
    ),
    "its number of tokens": (
        ended(node("Cast", "length", "many", to=TensorProto.FLOAT), node("Div", "pooled many", "y")),
        "'Div_31' reads 'many', a constant that depends on it",
    ),
    "rows of all sentences": (
        ended(node("Reshape", "hidden rows_shape", "y")), "'y' is an output that has it as a part of an axis",
    ),
    "more tokens": (ended(node("Pad", "hidden behind", "y")), "'Pad_30' pads or crops along it"),
    "every second token": (
        ended(node("Transpose", "hidden", "moved2", perm=[0, 2, 1]), node("Conv", "moved2 pixel", "y", strides=[2],
              group=2)),
        "'Conv_31' mixes neighbours along it",
    ),
    "neighbours": (
        ended(node("Transpose", "hidden", "moved2", perm=[0, 2, 1]), node("Conv", "moved2 window", "y", pads=[1, 1])),
        "'Conv_31' mixes neighbours along it",
    ),
}  # fmt: skip


def with_constants(proto: onnx.ModelProto) -> onnx.ModelProto:
    numbers = {
        "last_axis": [2], "axis_one": 1, "rows_shape": [-1, 32], "back_shape": [2, -1, 32], "minus": [-1],
        "sides": [0, 0, 3, 0, 0, -2], "behind": [0, 0, 0, 0, 1, 0], "end": [1 << 40],
        "order": np.zeros((2, 3, 32), np.int64),
    }  # fmt: skip
    proto.graph.initializer.extend(
        onnx.numpy_helper.from_array(np.asarray(value, np.int64), name) for name, value in numbers.items()
    )
    for name, shape in (("window", (4, 32, 3)), ("pixel", (4, 16, 1)), ("update", (2, 3, 32))):
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(shape, np.float32), name))
    return proto


@pytest.mark.parametrize("name", ACCEPTED)
def test_steps_that_leave_padding_apart(name: str, tmp_path: Path) -> None:
    agrees(tmp_path, with_constants(ACCEPTED[name]))


@pytest.mark.parametrize("name", REFUSED)
def test_steps_that_let_padding_reach_the_rest(name: str, tmp_path: Path) -> None:
    proto, reason = REFUSED[name]
    assert said(tmp_path, with_constants(proto)) == reason


def test_an_encoder_without_a_mask_is_refused(tmp_path: Path) -> None:
    assert said(tmp_path, encoder(masked=False)) == (
        "'Softmax_16' is a softmax over it without a mask that an input gives"
    )


def test_a_batch_is_padded_where_images_are_computed_one_by_one(tmp_path: Path) -> None:
    lines = [
        node("Conv", "x w", "c", pads=[1, 1, 1, 1]), node("Relu", "c", "r"),
        node("MaxPool", "r", "p", kernel_shape=[2, 2]),
        node("GlobalAveragePool", "p", "g"), node("Flatten", "g", "y"),
    ]  # fmt: skip
    weights = {"w": np.ones((4, 3, 3, 3), np.float32)}
    loaded = load_model(saved(tmp_path, model(lines, [tensor("x", ["N", 3, 8, 8])], constants=weights)))
    assert padded_ports(loaded.bind(1), loaded.bind(4)) == PaddedPorts((("x", (0,)), ("y", (0,))))
    lines = [node("Reshape", "x rows", "y")]
    rows = {"rows": np.asarray([-1, 4], np.int64)}
    loaded = load_model(saved(tmp_path, model(lines, [tensor("x", ["N", 3, 4])], constants=rows)))
    assert padded_ports(loaded.bind(2), loaded.bind(4)) == "'y' is an output that has it as a part of an axis"
    lines = [node("Softmax", "x", "y", "over", axis=0)]
    loaded = load_model(saved(tmp_path, model(lines, [tensor("x", ["N", 3])])))
    assert padded_ports(loaded.bind(1), loaded.bind(4)) == (
        "'over' is a softmax over it without a mask that an input gives"
    )


def test_a_batch_is_padded_where_each_image_is_sampled_by_its_own_grid(tmp_path: Path) -> None:
    lines = [node("GridSample", "x grid", "sampled"), node("ArgMax", "sampled", "y", axis=1)]
    ports = [tensor("x", ["N", 3, 8, 8]), tensor("grid", ["N", 5, 7, 2])]
    loaded = load_model(saved(tmp_path, model(lines, ports, outputs=("sampled", "y"), opset=20)))
    large, alone = loaded.bind(4), loaded.bind(1)
    assert padded_ports(alone, large) == PaddedPorts((("x", (0,)), ("grid", (0,)), ("sampled", (0,)), ("y", (0,))))
    given = feeds(alone, 0)
    found = evaluate(large, {name: padded(array, (0,), 4) for name, array in given.items()})
    for name, wanted in evaluate(alone, given).items():
        np.testing.assert_array_equal(found[name][:1], wanted)


def test_a_grid_is_padded_and_what_it_is_laid_on_is_not(tmp_path: Path) -> None:
    lines = [node("GridSample", "x grid", "y")]
    ports = [tensor("x", ["N", 3, 8, 8]), tensor("grid", ["N", "sequence", 7, 2])]
    places = saved(tmp_path, model(lines, ports, opset=20))
    assert padded_ports(*(load_model(places).bind(2, (), (("sequence", n),)) for n in (SMALL, LARGE))) == PaddedPorts(
        (("grid", (1,)), ("y", (2,)))
    )
    ports = [tensor("x", ["N", 3, "sequence", 8]), tensor("grid", ["N", 5, 7, 2])]
    image = saved(tmp_path, model(lines, ports, opset=20))
    assert padded_ports(*(load_model(image).bind(2, (), (("sequence", n),)) for n in (SMALL, LARGE))) == (
        "'GridSample_0' reads neighbours along it"
    )


TRIANGLES = {
    "added": [node("Add", "s tri", "masked")],
    "chosen": [node("Cast", "tri", "gone", to=TensorProto.BOOL), node("Where", "gone far s", "masked")],
}


@pytest.mark.parametrize("name", TRIANGLES)
@pytest.mark.parametrize("upper", [True, False], ids=["causal", "anticausal"])
def test_a_triangle_hides_what_is_behind(name: str, upper: bool, tmp_path: Path) -> None:
    """A token that reads those in front of it alone reads no padding; one that reads those behind does."""
    lines = [
        node("Shape", "x", "shape"), node("Slice", "shape one two zero", "length"),
        node("Concat", "length length", "ends", axis=0), node("Slice", "triangle starts ends places", "tri"),
        node("Transpose", "x", "k", perm=[0, 2, 1]), node("MatMul", "x k", "s"), *TRIANGLES[name],
        node("Softmax", "masked", "shares", axis=-1), node("MatMul", "shares x", "y"),
    ]  # fmt: skip
    hidden = np.triu(np.full((1, 40, 40), -1e9, np.float32), 1)
    constants = {
        "triangle": hidden if upper else hidden.transpose(0, 2, 1), "far": np.asarray(-3.0e38, np.float32),
        "zero": np.asarray([0], np.int64), "one": np.asarray([1], np.int64), "two": np.asarray([2], np.int64),
        "starts": np.asarray([0, 0], np.int64), "places": np.asarray([1, 2], np.int64),
    }  # fmt: skip
    proto = model(lines, [tensor("x", ["N", "sequence", 4])], constants=constants)
    if upper:
        agrees(tmp_path, proto)
    else:
        assert str(said(tmp_path, proto)).endswith("is a softmax over it without a mask that an input gives")


MASKS = {
    "chosen": [
        node("Cast", "mask", "keep", to=TensorProto.BOOL), node("Unsqueeze", "keep at", "keep3"),
        node("Where", "keep3 s far", "masked"),
    ],
    "equal to zero": [
        node("Equal", "mask none", "gone"), node("Unsqueeze", "gone at", "gone3"),
        node("Where", "gone3 far s", "masked"),
    ],
    "not and least": [
        node("Cast", "mask", "keep", to=TensorProto.BOOL), node("Not", "keep", "gone"),
        node("Cast", "gone", "gone_f", to=TensorProto.FLOAT), node("Mul", "gone_f far", "low"),
        node("Unsqueeze", "low at", "low3"), node("Add", "s low3", "masked"),
    ],
    "added and kept in fp16's range": [
        node("Cast", "mask", "kept", to=TensorProto.FLOAT), node("Sub", "kept unit", "minus"),
        node("Mul", "minus thousands", "low"), node("Unsqueeze", "low at", "low3"), node("Add", "low3 s", "masked"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", MASKS)
def test_masks_as_exporters_write_them(name: str, tmp_path: Path) -> None:
    lines = [
        node("Transpose", "x", "k", perm=[0, 2, 1]), node("MatMul", "x k", "s"), *MASKS[name],
        node("Softmax", "masked", "shares", axis=-1), node("MatMul", "shares x", "y"),
    ]  # fmt: skip
    constants = {
        "at": np.asarray([1], np.int64), "none": np.asarray(0, np.int64), "unit": np.float32(1).reshape(()),
        "far": np.asarray(-3.0e38, np.float32), "thousands": np.asarray(10000, np.float32),
    }  # fmt: skip
    inputs = [tensor("x", ["N", "sequence", 4]), tensor("mask", ["N", "sequence"], TensorProto.INT64)]
    agrees(tmp_path, model(lines, inputs, constants=constants))


def test_heads_are_turned_by_the_angles_of_their_own_rows() -> None:
    text = """
        graph g batch=1 (%x: f32[1,{n},16], %c: f32[{n},1,4], %s: f32[1,{n},1,4]) -> (%y) {{
          %y = head_rows(%x, %c, %s) heads=2 rotary=true // "turn"
        }}"""
    small, large = (graph(text.format(n=n)) for n in (SMALL, LARGE))
    ports = padded_ports(small, large)
    assert isinstance(ports, PaddedPorts), ports
    axes = dict(ports.axes)
    assert axes == {"x": (1,), "c": (0,), "s": (1,), "y": (1,)}
    given = feeds(small, 3)
    longer = {name: padded(array, axes[name], LARGE) for name, array in given.items()}
    np.testing.assert_array_equal(evaluate(large, longer)["y"][:, :SMALL], evaluate(small, given)["y"])


def test_heads_are_not_padded() -> None:
    text = """
        graph g batch=1 (%x: f32[1,5,{width}], %c: f32[5,{n},4]) -> (%y) {{
          %y = head_rows(%x, %c, %c) heads={n} rotary=true // "turn"
        }}"""
    small, large = (graph(text.format(n=n, width=8 * n)) for n in (2, 3))
    assert isinstance(padded_ports(small, large), str)


def test_a_constant_of_several_rows_an_image_is_padded_by_images(tmp_path: Path) -> None:
    """As DeBERTa repeats its positions for the heads of every sentence."""
    nodes = [
        node("Shape", "x", "shape"), node("Gather", "shape zero", "batch", axis=0),
        node("Unsqueeze", "batch zero", "many"), node("Concat", "many one", "often", axis=0),
        node("Tile", "places often", "all"), node("Reshape", "x flat", "rows"), node("Add", "rows all", "moved"),
        node("Reshape", "moved back", "y"),
    ]  # fmt: skip
    constants = {
        "zero": np.asarray(0, np.int64), "one": np.asarray([1], np.int64), "flat": np.asarray([-1, 6], np.int64),
        "back": np.asarray([-1, 3, 6], np.int64), "places": np.arange(18, dtype=np.float32).reshape(3, 6),
    }  # fmt: skip
    loaded = load_model(saved(tmp_path, model(nodes, [tensor("x", ["N", 3, 6])], ["y"], constants, opset=17)))
    small, large = (loaded.bind(batch, (), ()) for batch in (2, 5))
    ports = padded_ports(small, large)
    assert isinstance(ports, PaddedPorts), ports
    given = feeds(small, 1)
    found = evaluate(large, {"x": padded(given["x"], (0,), 5)})["y"][:2]
    np.testing.assert_array_equal(found, evaluate(small, given)["y"])
