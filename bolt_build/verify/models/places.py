"""Places at which images are sampled, for onnxruntime: what is no number, or lies far outside, as engines read it.

ONNX does not say which element a place has that is NaN or infinite. Networks make such places where they divide by a
depth or an extent of 0. PyTorch gives NaN there on a CPU and 0 on a GPU, onnxruntime the first element, and 0 for a
place beyond 2^31. An engine has NaN in front of everything, and takes far places as outside.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, TypeProto, helper, numpy_helper

from bolt_build.graph.ops.images.grid_sample import FAR
from bolt_build.verify.emitter import unused_prefix
from bolt_build.verify.models.written_out import types_of

_OLDEST = 11
"""The opset from which on Clip takes bounds as inputs."""
_TYPES: dict[int, type[np.floating[Any]]] = {
    TensorProto.FLOAT: np.float32,
    TensorProto.DOUBLE: np.float64,
    TensorProto.FLOAT16: np.float16,
}


def with_near_places(model: ModelProto) -> ModelProto:
    """The model whose GridSamples with a padding of zeros or of the border are given such places alone. Itself where it
    has none. Mirrored places stay what they are: far away, rounding decides which element they have."""
    opset = next((each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), 0)
    if opset < _OLDEST or not any(_samples(node) for node in model.graph.node):
        return model
    types = types_of(onnx.shape_inference.infer_shapes(model).graph)
    changed = ModelProto()
    changed.CopyFrom(model)
    prefix = unused_prefix(name for node in model.graph.node for name in (*node.input, *node.output))
    nodes: list[NodeProto] = []
    bounds: dict[str, onnx.TensorProto] = {}
    for node in changed.graph.node:
        nodes += _near(node, types, prefix, bounds) if _samples(node) else [node]
    del changed.graph.node[:]
    changed.graph.node.extend(nodes)
    changed.graph.initializer.extend(bounds.values())
    return changed


def _samples(node: NodeProto) -> bool:
    padding = next((each.s for each in node.attribute if each.name == "padding_mode"), b"zeros")
    return node.op_type == "GridSample" and padding != b"reflection"


def _near(
    node: NodeProto, types: Mapping[str, TypeProto], prefix: str, bounds: dict[str, onnx.TensorProto]
) -> list[NodeProto]:
    """The node behind others that bound its places; `bounds` gets the constants of these."""
    places = node.input[1]
    numbers = _TYPES.get(types[places].tensor_type.elem_type) if places in types else None
    if numbers is None:
        return [node]
    far = min(FAR, float(np.finfo(numbers).max))
    low, high = (f"{prefix}.{side}.{np.dtype(numbers).name}" for side in ("low", "high"))
    for name, value in ((low, -far), (high, far)):
        bounds.setdefault(name, numpy_helper.from_array(np.asarray(value, numbers), name))
    missing, known, near = (f"{prefix}.{node.output[0]}.{part}" for part in ("missing", "known", "near"))
    sample = NodeProto()
    sample.CopyFrom(node)
    sample.input[1] = near
    return [
        helper.make_node("IsNaN", [places], [missing]),
        helper.make_node("Where", [missing, low, places], [known]),
        helper.make_node("Clip", [known, low, high], [near]),
        sample,
    ]
