"""What onnxruntime's optimiser and quantiser, onnxslim and onnxsim make of an ONNX file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

_SAMPLES = 4


def with_batch(source: Path, target: Path, batch: int) -> None:
    """The model with every open dimension of its inputs set to `batch`."""
    model = onnx.load(str(source))
    for value in model.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if not dim.HasField("dim_value") or dim.dim_value < 1:
                dim.Clear()
                dim.dim_value = batch
    onnx.save(model, str(target))


def optimised(source: str, target: str) -> None:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = target
    onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


class Drawn(CalibrationDataReader):  # type: ignore[misc]
    """Inputs from 0 to 1, drawn at random."""

    def __init__(self, path: str) -> None:
        inputs = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).get_inputs()
        random = np.random.RandomState(0)
        self._left = [
            {each.name: random.rand(*each.shape).astype(np.float32) for each in inputs} for _ in range(_SAMPLES)
        ]

    def get_next(self) -> dict[str, Any] | None:
        return self._left.pop() if self._left else None


def _prepared(source: str, target: str) -> str:
    path = f"{target}.prepared"
    quant_pre_process(source, path, skip_symbolic_shape=True)
    return path


def quantised(form: QuantFormat | None) -> Callable[[str, str], None]:
    """A model with weights of 8 bits; with activations too where `form` says how they are written."""

    def write(source: str, target: str) -> None:
        path = _prepared(source, target)
        if form is None:
            quantize_dynamic(path, target, weight_type=QuantType.QInt8)
        else:
            quantize_static(path, target, Drawn(path), quant_format=form, per_channel=form is QuantFormat.QDQ)
        Path(path).unlink()

    return write


def slimmed(source: str, target: str) -> None:
    import onnxslim

    onnxslim.slim(source, target)


def simplified(source: str, target: str) -> None:
    import onnxsim

    onnx.save(onnxsim.simplify(source)[0], target)


WAYS: dict[str, Callable[[str, str], None]] = {
    "ortextended": optimised, "ortdynamic": quantised(None), "ortqdq": quantised(QuantFormat.QDQ),
    "ortqoperator": quantised(QuantFormat.QOperator), "onnxslim": slimmed, "onnxsim": simplified,
}  # fmt: skip
"""By the exporter's name in files."""
