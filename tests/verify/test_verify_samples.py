"""What an engine is verified on: seeded inputs, or the recipe's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fake_engine import FakeModel, plan_of
from onnx import TensorProto, helper, save_model

from bolt_build.errors import BoltError
from bolt_build.graph.ir import Graph
from bolt_build.graph.onnx_import import load_model
from bolt_build.planner.engine_plan import EnginePlan
from bolt_build.schema.recipe import VerifySpec
from bolt_build.verify.engine import verify_model
from bolt_build.verify.reference import Reference
from bolt_build.verify.samples import Samples


@pytest.fixture
def net(tmp_path: Path) -> Path:
    """y = x * scale over [N,3]."""
    info = helper.make_tensor_value_info
    ports = [info("x", TensorProto.FLOAT, ["N", 3]), info("scale", TensorProto.FLOAT, ["N", 1])]
    nodes = [helper.make_node("Mul", ["x", "scale"], ["y"], name="y")]
    graph = helper.make_graph(nodes, "net", ports, [info("y", TensorProto.FLOAT, ["N", 3])])
    save_model(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "n.onnx")
    return tmp_path / "n.onnx"


def graph_of(path: Path, batch: int) -> Graph:
    return load_model(path).bind(batch)


def plan(path: Path, batch: int) -> EnginePlan:
    return plan_of(graph_of(path, batch))


def real(tmp_path: Path, **arrays: np.ndarray) -> VerifySpec:
    np.savez(tmp_path / "real.npz", **arrays)
    return VerifySpec("onnxruntime", samples=4, seed=0, inputs=str(tmp_path / "real.npz"))


def test_rows_of_a_file_are_taken_in_turn_and_begin_again(net: Path, tmp_path: Path) -> None:
    rows = np.arange(15, dtype=np.float64).reshape(5, 3)
    spec = real(tmp_path, x=rows, scale=np.ones((2, 1), np.float32), other=np.zeros(7))
    (batch,) = plan(net, 2).plans
    samples = Samples(spec)
    assert samples.origin == "real.npz"
    assert samples.count(2, batch.inputs) == 3
    taken = [samples.inputs(batch, number)["x"] for number in range(3)]
    assert [array.dtype for array in taken] == [np.float32] * 3
    np.testing.assert_array_equal(np.concatenate(taken), rows[[0, 1, 2, 3, 4, 0]])


def test_the_report_names_the_file_and_the_layers_see_its_values(net: Path, tmp_path: Path) -> None:
    spec = real(tmp_path, x=np.full((2, 3), 7.0), scale=np.full((2, 1), 2.0))
    report = verify_model(FakeModel((graph_of(net, 2),), {}), Reference(net, ()), plan(net, 2), spec)
    assert report.ok
    assert report.inputs == "real.npz"
    assert report.batches[0].layers[0].signal == 14.0


def test_what_does_not_fit_is_said_all_at_once(net: Path, tmp_path: Path) -> None:
    (batch,) = plan(net, 2).plans
    with pytest.raises(BoltError) as caught:
        Samples(real(tmp_path, x=np.zeros((2, 4)))).count(2, batch.inputs)
    found = [(d.code, d.message, d.hint) for d in caught.value.diagnostics]
    assert found == [
        (
            "bad-inputs",
            "the array 'x' is [2, 4], the input is f32[2, 3]",
            "any number of rows along the first axis, and the input's other extents",
        ),
        (
            "bad-inputs",
            "there is no array 'scale', an input of f32[2, 1]",
            "save it as numpy.savez(..., **{'scale': array})",
        ),
    ]
    with pytest.raises(BoltError) as caught:
        Samples(real(tmp_path, x=np.zeros((2, 3), np.int32), scale=np.zeros((2, 1)))).count(2, batch.inputs)
    assert [d.message for d in caught.value.diagnostics] == ["the array 'x' holds int32, the input is f32[2, 3]"]


def test_a_file_that_is_no_archive_is_a_diagnostic(net: Path, tmp_path: Path) -> None:
    (batch,) = plan(net, 2).plans
    (tmp_path / "real.npz").write_bytes(b"PK\x03\x04 cut off")
    spec = VerifySpec("onnxruntime", samples=1, seed=0, inputs=str(tmp_path / "real.npz"))
    with pytest.raises(BoltError) as caught:
        Samples(spec).count(2, batch.inputs)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.message.startswith("the inputs to verify with cannot be read: ")
    np.save(tmp_path / "one.npy", np.zeros((2, 3)))
    (tmp_path / "one.npy").rename(tmp_path / "real.npz")
    with pytest.raises(BoltError, match="it is one array, not an archive of arrays by name"):
        Samples(spec).count(2, batch.inputs)
