"""Models that are fed integers alone and round on the way: what their outputs may be off by."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from graph_models import model, node, saved, tensor
from onnx import TensorProto

from bolt_build.dtypes import DType
from bolt_build.graph.ir import Array
from bolt_build.verify.models.stirred import stirred
from bolt_build.verify.reference import Reference
from bolt_build.verify.sensitivity import Share, amplification

_RANDOM = np.random.RandomState(0)
WORDS = _RANDOM.standard_normal((20, 8)).astype(np.float32)
BYTES = _RANDOM.randint(0, 255, (20, 8)).astype(np.uint8)
SCALE, ZERO = np.asarray(0.02, np.float32), np.asarray(128, np.uint8)
IDS = np.asarray([[1, 4, 2, 0, 3], [5, 5, 1, 2, 6]], np.int64)
PRODUCT = (
    node("DynamicQuantizeLinear", "e", "q s z"), node("MatMulInteger", "q w z", "i"), node("Cast", "i", "f", to=1),
    node("Mul", "f s", "y"),
)  # fmt: skip
CONSTANTS = {"w": _RANDOM.randint(-127, 127, (8, 6)).astype(np.int8)}


def tokens(*nodes: onnx.NodeProto, **constants: Array) -> onnx.ModelProto:
    """Rows %e of what `nodes` take for tokens, quantised and multiplied with a matrix."""
    ports = [tensor("ids", IDS.shape, TensorProto.INT64)]
    return model([*nodes, *PRODUCT], ports, constants=CONSTANTS | constants)


OF_WORDS = tokens(node("Gather", "words ids", "e"), words=WORDS)
OF_BYTES = tokens(
    node("Gather", "bytes ids", "g"), node("Transpose", "g", "t", perm=[1, 0, 2]),
    node("DequantizeLinear", "t scale zero", "e"), bytes=BYTES, scale=SCALE, zero=ZERO,
)  # fmt: skip
OF_BYTES_FIRST = tokens(
    node("DequantizeLinear", "bytes scale zero", "words"), node("Gather", "words ids", "e"),
    bytes=BYTES, scale=SCALE, zero=ZERO,
)  # fmt: skip


@pytest.mark.parametrize("proto", [OF_WORDS, OF_BYTES, OF_BYTES_FIRST])
def test_what_tokens_select_is_changed_by_a_part_of_itself(proto: onnx.ModelProto) -> None:
    changed = stirred(proto, 0.25, 3)
    assert changed is not None
    (noise,) = (each for each in changed.graph.node if each.op_type == "RandomNormalLike")
    assert list(noise.input) == ["e"]
    assert {each.name: onnx.helper.get_attribute_value(each) for each in noise.attribute} == {
        "mean": 1.0, "scale": 0.25, "seed": 4.0,
    }  # fmt: skip
    (reader,) = (each for each in changed.graph.node if each.op_type == "DynamicQuantizeLinear")
    assert list(reader.input) == ["e/stirred"]


def test_a_model_that_selects_nothing_has_no_such_place() -> None:
    assert stirred(model([node("Relu", "x", "y")]), 0.25, 3) is None


@pytest.mark.parametrize("proto", [OF_WORDS, OF_BYTES])
def test_outputs_may_be_off_by_what_steps_at_borders_make_of_them(proto: onnx.ModelProto, tmp_path: Path) -> None:
    reference = Reference(saved(tmp_path, proto), ())
    before = reference.outputs({"ids": IDS})
    (grown,) = amplification(reference, {"ids": IDS}, before, DType.F32, Share(2, 0, 1), 0).values()
    assert reference.rounds_to_integers
    assert 1e2 < grown.rms < 1e6


IMAGE = tensor("x", [1, 4, 6, 6], TensorProto.UINT8)
FILTERS = _RANDOM.randint(-99, 99, (8, 4, 3, 3)).astype(np.int8)
NUMBERS = {
    "scale": SCALE, "zero": ZERO, "w": FILTERS, "wide": np.asarray(0.3, np.float32),
    "fine": np.asarray(0.05, np.float32), "none": np.asarray(0, np.int8),
}  # fmt: skip


def quantised(*nodes: onnx.NodeProto) -> onnx.ModelProto:
    made = model(list(nodes), [IMAGE], constants=NUMBERS)
    made.graph.output[0].type.tensor_type.elem_type = TensorProto.UINT8
    return made


OF_INTEGERS = quantised(
    node("Transpose", "x", "t", perm=[0, 1, 3, 2]),
    node("QLinearConv", "t scale zero w scale none wide zero", "h"),
    node("QLinearConv", "h wide zero v scale none wide zero", "y"),
)
OF_INTEGERS.graph.initializer.append(onnx.numpy_helper.from_array(FILTERS[:, :, :1, :1].repeat(2, 1), "v"))
OF_REAL = quantised(
    node("DequantizeLinear", "x scale zero", "e"), node("Relu", "e", "r"), node("QuantizeLinear", "r fine zero", "y")
)


def test_what_quantised_inputs_stand_for_is_changed() -> None:
    changed = stirred(OF_REAL, 0.25, 3)
    assert changed is not None
    assert [list(each.input) for each in changed.graph.node if each.op_type == "RandomNormalLike"] == [["e"]]


def test_of_integers_that_become_others_the_first_scale_is_changed_once() -> None:
    changed = stirred(OF_INTEGERS, 0.25, 3)
    assert changed is not None
    assert [list(each.input) for each in changed.graph.node if each.op_type == "RandomNormalLike"] == [["scale"]]
    first, second = (list(each.input)[1] for each in changed.graph.node if each.op_type == "QLinearConv")
    assert (first, second) == ("h/scale/stirred", "wide")


@pytest.mark.parametrize("proto", [OF_INTEGERS, OF_REAL], ids=["integers", "real"])
def test_integers_at_a_border_may_be_others(proto: onnx.ModelProto, tmp_path: Path) -> None:
    given = {"x": _RANDOM.randint(0, 255, (1, 4, 6, 6)).astype(np.uint8)}
    reference = Reference(saved(tmp_path, proto), ())
    (grown,) = amplification(reference, given, reference.outputs(given), DType.F32, Share(1, 0, 1), 0).values()
    assert 0 < grown.changed < 0.3
