"""A small model to change, and what its variants must be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from graph_models import bound, model, node, ones, tensor
from planner_checks import body

from bolt_build.graph.ir import Array
from bolt_build.graph.variants import vary
from bolt_build.schema.recipe import VariantSpec


def block(activation: str = "Relu", opset: int = 17, dtype: type = np.float32) -> onnx.ModelProto:
    """A 3x3 convolution, its BatchNorm and activation, and a 1x1 one."""
    constants: dict[str, Array] = {"w": ones(4, 3, 3, 3), "v": ones(5, 4, 1, 1)}
    constants |= {name: ones(4) for name in ("scale", "shift", "mean", "var")}
    nodes = [
        node("Conv", "x w", "c", "/a/conv/Conv", pads=[1, 1, 1, 1]),
        node("BatchNormalization", "c scale shift mean var", "n", "/a/bn/BatchNormalization"),
        node(activation, "n", "r", f"/a/act/{activation}"),
        node("Conv", "r v", "y", "/b/conv/Conv"),
    ]
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    typed = {name: array.astype(dtype) for name, array in constants.items()}
    proto = model(nodes, [tensor("x", [1, 3, 8, 8], kind)], ["y"], typed, opset)
    proto.graph.output[0].CopyFrom(tensor("y", None, kind))
    return proto


def check(proto: onnx.ModelProto) -> None:
    """Fails where the model is not valid, or the types of its tensors do not fit together."""
    onnx.checker.check_model(onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True))


def varied(tmp_path: Path, proto: onnx.ModelProto, spec: VariantSpec) -> str:
    """The nodes of the variant, as text; it is a valid model."""
    found = vary(proto, spec).model
    check(found)
    return body(bound(tmp_path, found))


def agree(before: onnx.ModelProto, after: onnx.ModelProto, **more: Array) -> None:
    """Fails where onnxruntime computes something else with the one than with the other."""
    feeds = {"x": np.random.RandomState(5).standard_normal((1, 3, 8, 8)).astype(np.float32), **more}
    expected, found = (
        onnxruntime.InferenceSession(each.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
        for each in (before, after)
    )
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-4, atol=1e-4 * np.abs(expected[0]).max())
