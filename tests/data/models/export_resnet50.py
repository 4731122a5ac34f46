"""Writes resnet50_transformers.onnx: the graph that `torch.onnx.export` makes of ResNet-50 from `transformers`.

Weights are replaced by ConstantOfShape (tests put seeded, calibrated ones in), so that the file stays small and the
graph stays as exported. Needs an environment of its own with torch, transformers and onnxscript:

    python tests/data/models/export_resnet50.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import onnx
import torch
from onnx import helper, numpy_helper
from transformers import ResNetConfig, ResNetForImageClassification


class Logits(torch.nn.Module):
    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        return self.model(pixel_values).logits


def export() -> onnx.ModelProto:
    model = Logits(ResNetForImageClassification(ResNetConfig()).eval())
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "resnet50.onnx"
        torch.onnx.export(
            model,
            (torch.zeros(2, 3, 224, 224),),
            str(path),
            dynamo=True,
            opset_version=18,
            input_names=["pixel_values"],
            output_names=["logits"],
            dynamic_shapes={"pixel_values": {0: torch.export.Dim("batch")}},
            external_data=False,
        )
        return onnx.load(path)


def without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """Replaces large initializers by ConstantOfShape nodes and drops everything that only describes the exporter."""
    graph = model.graph
    small, nodes = [], []
    for tensor in graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.size <= 16:
            small.append(numpy_helper.from_array(array, tensor.name))
            continue
        shape = f"{tensor.name}.shape"
        small.append(helper.make_tensor(shape, onnx.TensorProto.INT64, [array.ndim], array.shape))
        value = helper.make_tensor("value", tensor.data_type, [1], [0.001])
        nodes.append(helper.make_node("ConstantOfShape", [shape], [tensor.name], value=value))
    del graph.initializer[:], graph.value_info[:], model.metadata_props[:], graph.metadata_props[:]
    graph.initializer.extend(small)
    for node in graph.node:
        del node.metadata_props[:]
        node.ClearField("doc_string")
    nodes.extend(graph.node)
    del graph.node[:]
    graph.node.extend(nodes)
    for value in (*graph.input, *graph.output):
        del value.metadata_props[:]
        value.ClearField("doc_string")
    model.ClearField("doc_string")
    onnx.checker.check_model(model)
    return model


if __name__ == "__main__":
    onnx.save(without_weights(export()), Path(__file__).with_name("resnet50_transformers.onnx"))
