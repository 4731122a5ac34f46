"""ONNX's functions in the operators that define them, for verification."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from bolt_build.graph.onnx_import import load_model
from bolt_build.graph.onnx_model.contrib_bodies import OPERATORS
from bolt_build.graph.reference import evaluate
from bolt_build.verify.models.written_out import written_out
from bolt_build.verify.reference import Reference
from bolt_build.verify.rounding.rounding_rules import RULES, is_exact


def attention(shape: list[int], mask: int, **attributes: int | float) -> onnx.ModelProto:
    """One Attention of three inputs of a shape, one of whose types is to be inferred, and a mask of this type."""
    info = helper.make_tensor_value_info
    node = helper.make_node("Attention", ["moved", "k", "v", "mask"], ["y"], name="attention", **attributes)
    ports = [info(name, TensorProto.FLOAT, shape) for name in "qkv"]
    graph = helper.make_graph(
        [helper.make_node("Neg", ["q"], ["moved"]), node], "g", [*ports, info("mask", mask, [5, 5])],
        [info("y", TensorProto.FLOAT, shape)],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)


@pytest.mark.parametrize(
    ("shape", "mask", "attributes"),
    [
        ([2, 3, 5, 4], TensorProto.FLOAT, {}),
        ([2, 5, 12], TensorProto.BOOL, {"q_num_heads": 3, "kv_num_heads": 3, "scale": 0.3}),
        ([2, 5, 12], TensorProto.FLOAT, {"q_num_heads": 3, "kv_num_heads": 3, "is_causal": 1}),
    ],
)
def test_a_written_out_attention_gives_the_same(
    shape: list[int], mask: int, attributes: dict[str, int | float]
) -> None:
    model = attention(shape, mask, **attributes)
    spelled = written_out(model)
    onnx.checker.check_model(spelled)
    assert "Attention" not in {node.op_type for node in spelled.graph.node}
    assert [port.name for port in spelled.graph.output] == ["y"]
    random = np.random.RandomState(1)
    feeds = {name: random.standard_normal(shape).astype(np.float32) for name in "qkv"}
    given = random.standard_normal((5, 5)).astype(np.float32)
    feeds["mask"] = np.tri(5, dtype=bool) if mask == TensorProto.BOOL else given
    (wanted,), (found,) = (ReferenceEvaluator(each).run(None, feeds) for each in (model, spelled))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def in_a_loop(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same, in the body of a loop of one turn. Keys, values and the mask are of the graph around it."""
    inner = model.graph
    info = helper.make_tensor_value_info
    constants = [helper.make_tensor(name, kind, [], [1]) for name, kind in (("n", 7), ("go", 9))]
    state = inner.input[0]
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["d"]), *inner.node], "body",
        [info("i", TensorProto.INT64, []), info("c", TensorProto.BOOL, []), state],
        [info("d", TensorProto.BOOL, []), inner.output[0]],
    )  # fmt: skip
    first, last = info("first", TensorProto.FLOAT, [1, 1, 5, 4]), info("last", TensorProto.FLOAT, [1, 1, 5, 4])
    loop = helper.make_node("Loop", ["n", "go", "first"], ["last"], body=body)
    graph = helper.make_graph([loop], "g", [first, *inner.input[1:]], [last], constants)
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=10)


@pytest.mark.parametrize("nested", [False, True])
def test_where_all_keys_are_masked_the_reference_follows_the_definition(tmp_path: Path, nested: bool) -> None:
    """Masks of padding and of order are added up: one row has the least number or -inf everywhere."""
    model = attention([1, 1, 5, 4], TensorProto.FLOAT)
    onnx.save(in_a_loop(model) if nested else model, str(tmp_path / "net.onnx"))
    values = np.random.RandomState(1).standard_normal((1, 1, 5, 4)).astype(np.float32)
    least = np.finfo(np.float32).min
    mask = np.zeros((5, 5), np.float32)
    mask[0] = [least, least, -np.inf, -np.inf, least]
    feeds = {"first" if nested else "q": values, "k": values, "v": values, "mask": mask}
    (made,) = Reference(tmp_path / "net.onnx", ()).outputs(feeds).values()
    np.testing.assert_allclose(made[0, 0, 0], values[0, 0, [0, 1, 4]].mean(axis=0), rtol=1e-5, atol=1e-6)


def test_every_real_step_of_it_has_a_rule() -> None:
    counted = {"Shape", "Size", "Constant", "ConstantOfShape", "Equal", "Not", "And", "Mod", "Range", "Unsqueeze"}
    steps = written_out(attention([2, 3, 5, 4], TensorProto.FLOAT)).graph.node
    assert {node.op_type for node in steps if node.op_type not in counted and not is_exact(node)} <= set(RULES) | {
        "CastLike", "Expand",
    }  # fmt: skip


def test_a_model_without_functions_stays() -> None:
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    other = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])
    model = helper.make_model(helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", [info], [other]))
    assert written_out(model) is model


@pytest.mark.parametrize("dtype", [{}, {"dtype": TensorProto.BOOL}, {"dtype": TensorProto.FLOAT16}])
@pytest.mark.parametrize("given", [TensorProto.BOOL, TensorProto.FLOAT])
def test_an_eye_is_computed_in_a_type_that_onnxruntime_has_one_of(given: int, dtype: dict[str, int]) -> None:
    """torch-script writes the mask of a diagonal so."""
    info, kind = helper.make_tensor_value_info, dtype.get("dtype", given)
    nodes = [
        helper.make_node("Identity", ["x"], ["like"]),
        helper.make_node("EyeLike", ["like"], ["e"], name="eye", k=1, **dtype),
        helper.make_node("Identity", ["e"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", [info("x", given, [3, 4])], [info("y", kind, [3, 4])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(written_out(model).SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"x": np.zeros((3, 4), helper.tensor_dtype_to_np_dtype(given))})
    np.testing.assert_array_equal(found.astype(int), np.eye(3, 4, k=1, dtype=int))
    assert found.dtype == helper.tensor_dtype_to_np_dtype(kind)


def quantised_image_model(scale_of_shares: float) -> onnx.ModelProto:
    """As onnxruntime's optimiser leaves a quantised network for a CPU: channels last, each node with scales."""
    random = np.random.RandomState(0)
    held = {
        "s": np.float32(0.05), "z": np.uint8(120), "w": random.randint(-99, 99, (8, 8, 3, 3)).astype(np.int8),
        "ws": np.float32(0.02), "wz": np.int8(0), "f": random.randint(-99, 99, (8, 5)).astype(np.int8),
        "shares": np.float32(scale_of_shares), "none": np.uint8(0),
    }  # fmt: skip
    contrib = {"domain": "com.microsoft"}
    nodes = [
        helper.make_node("NhwcMaxPool", ["x"], ["p"], kernel_shape=[2, 2], strides=[2, 2], **contrib),
        helper.make_node("QLinearConv", ["p", "s", "z", "w", "ws", "wz", "s", "z"], ["c"], channels_last=1,
                         pads=[1, 1, 1, 1], **contrib),
        helper.make_node("QLinearAdd", ["c", "s", "z", "p", "s", "z", "s", "z"], ["a"], **contrib),
        helper.make_node("QLinearConcat", ["s", "z", "a", "s", "z", "p", "s", "z"], ["both"], axis=1, **contrib),
        helper.make_node("QLinearConv", ["both", "s", "z", "w", "ws", "wz", "s", "z"], ["d"], channels_last=1,
                         **contrib),
        helper.make_node("QLinearGlobalAveragePool", ["d", "s", "z", "s", "z"], ["g"], channels_last=1, **contrib),
        helper.make_node("Flatten", ["g"], ["flat"]),
        helper.make_node("QGemm", ["flat", "s", "z", "f", "ws", "wz", "", "s", "z"], ["l"], **contrib),
        helper.make_node("QLinearSoftmax", ["l", "s", "z", "shares", "none"], ["y"], opset=13, axis=-1, **contrib),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.UINT8, [2, 8, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in held.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize("scale", [1 / 256, 1 / 100])
def test_quantised_images_are_written_out_behind_operators_that_onnx_knows_no_types_of(
    scale: float, tmp_path: Path
) -> None:
    """Of a scale that is not 1/256, onnxruntime's QLinearSoftmax makes something else."""
    proto = quantised_image_model(scale)
    path = tmp_path / "net.onnx"
    onnx.save(proto, path)
    plain = written_out(proto)
    assert {node.op_type for node in plain.graph.node if node.domain == "com.microsoft"}.isdisjoint(OPERATORS)
    x = np.random.RandomState(1).randint(0, 255, (2, 8, 8, 8)).astype(np.uint8)
    session = onnxruntime.InferenceSession(plain.SerializeToString(), providers=["CPUExecutionProvider"])
    found = session.run(["y"], {"x": x})[0].astype(int)
    wanted = evaluate(load_model(path).bind(2), {"x": x})["y"].astype(int)
    assert abs(found - wanted).max() <= 1
    assert abs(wanted.sum(1) * scale - 1).max() < 5 * scale
