"""Models of one node of onnxruntime's own operators, and what onnxruntime says of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from bolt_build.errors import BoltError
from bolt_build.graph import reference
from bolt_build.graph.invariants import check
from bolt_build.graph.ir import Array
from bolt_build.graph.onnx_import import load_model

_RANDOM = np.random.RandomState(3)


def drawn(*shape: int) -> Array:
    return _RANDOM.standard_normal(shape).astype(np.float32)


@dataclass(frozen=True)
class Case:
    """A node: data and constants in the order of its inputs (None where left out), attributes, outputs."""

    op_type: str
    data: tuple[Array | None, ...]
    constants: tuple[Array | None, ...] = ()
    attributes: dict[str, int | float | str | list[float] | list[int]] = field(default_factory=dict)
    outputs: tuple[str, ...] = ("y",)
    counts: tuple[str, ...] = ()
    """Outputs of int32; others are of `kind`."""
    kind: int = TensorProto.FLOAT
    domain: str = "com.microsoft"
    opset: int = 17

    @property
    def compared(self) -> list[str]:
        return [name for name in self.outputs if name not in ("", "unused")]

    def saved(self, path: Path) -> dict[str, Array]:
        """Writes the model; the inputs' arrays."""
        given = {f"x{index}": array for index, array in enumerate((*self.data, *self.constants)) if array is not None}
        names = [f"x{i}" if f"x{i}" in given else "" for i in range(len(self.data) + len(self.constants))]
        feeds = {name: array for name, array in list(given.items()) if name in names[: len(self.data)]}
        constants = [numpy_helper.from_array(array, name) for name, array in given.items() if name not in feeds]
        ports = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in feeds.items()
        ]
        kinds = {name: TensorProto.INT32 if name in self.counts else self.kind for name in self.compared}
        results = [helper.make_tensor_value_info(name, kind, None) for name, kind in kinds.items()]
        node = helper.make_node(
            self.op_type, names, list(self.outputs), name="node", domain=self.domain, **self.attributes
        )
        graph = helper.make_graph([node], "g", ports, results, constants)
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        path.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())
        return feeds


def same_as_onnxruntime(case: Case, folder: Path, batch: int = 2) -> None:
    feeds = case.saved(folder / "case.onnx")
    graph = load_model(folder / "case.onnx").bind(batch)
    check(graph)
    found = reference.evaluate(graph, feeds)
    session = onnxruntime.InferenceSession(folder / "case.onnx", providers=["CPUExecutionProvider"])
    for output, wanted in zip(case.compared, session.run(case.compared, feeds), strict=True):
        assert found[output].shape == wanted.shape
        np.testing.assert_allclose(found[output], wanted, rtol=2e-4, atol=2e-5)


def refusal(case: Case, folder: Path) -> list[str]:
    """What binding the model says is in the way."""
    case.saved(folder / "case.onnx")
    with pytest.raises(BoltError) as raised:
        load_model(folder / "case.onnx").bind(2)
    return [found.message for found in raised.value.diagnostics]
