"""onnxruntime as a peer: the model's own file, inputs and outputs on the device."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from random_graphs import random_model

from bolt_build.bench.contestant import Effort, PeerFailed, PeerMissing, Setup
from bolt_build.bench.device.cpu import CpuDevice
from bolt_build.bench.peers.onnxruntime import OnnxruntimePeer
from bolt_build.graph import reference
from bolt_build.graph.onnx_import import load_model


def setup_for(model: Path, batch: int, where: str = "cpu") -> Setup:
    return Setup("onnxruntime", where, "fp32", batch, 1, str(model), (), "", "", "", ("input",), Effort())


@pytest.mark.parametrize("seed", range(3))
def test_it_computes_what_the_model_means(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(random_model(seed), str(path))
    graph = load_model(path).bind(2)
    random = np.random.RandomState(seed)
    feeds = {name: random.standard_normal(graph.type(name).shape).astype(np.float32) for name in graph.inputs}
    running = OnnxruntimePeer().enter(setup_for(path, 2), feeds, CpuDevice())
    running.run()
    running.run()
    expected = reference.evaluate(graph, feeds)
    found = running.outputs()
    assert set(found) == set(graph.outputs)
    for name, array in found.items():
        np.testing.assert_allclose(array, expected[name], rtol=1e-3, atol=1e-4)
    assert (running.precision, running.form, running.compile_seconds) == ("fp32", "f32 row", None)


def test_a_model_may_lie_in_a_folder_whose_name_is_not_utf8(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"of Latin-1 \xe9")
    folder.mkdir()
    (folder / "model.onnx").write_bytes(random_model(0).SerializeToString())
    shape = load_model(folder / "model.onnx").bind(1).type("input").shape
    running = OnnxruntimePeer().enter(
        setup_for(folder / "model.onnx", 1), {"input": np.ones(shape, np.float32)}, CpuDevice()
    )
    running.run()
    assert all(np.isfinite(array).all() for array in running.outputs().values())


def test_a_text_is_fed_as_integers(tmp_path: Path) -> None:
    """Token ids alone go in, so what the file computes in is asked of its outputs."""
    path = tmp_path / "model.onnx"
    table = onnx.numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(6, 2), "table")
    ids = onnx.helper.make_tensor_value_info("input", onnx.TensorProto.INT64, ["N", 3])
    rows = onnx.helper.make_tensor_value_info("rows", onnx.TensorProto.FLOAT, ["N", 3, 2])
    node = onnx.helper.make_node("Gather", ["table", "input"], ["rows"])
    graph = onnx.helper.make_graph([node], "text", [ids], [rows], [table])
    onnx.save(onnx.helper.make_model(graph, ir_version=10, opset_imports=[onnx.helper.make_opsetid("", 18)]), str(path))
    running = OnnxruntimePeer().enter(setup_for(path, 1), {"input": np.array([[5, 0, 2]])}, CpuDevice())
    running.run()
    assert running.outputs()["rows"].tolist() == [[[10, 11], [0, 1], [4, 5]]]
    assert (running.precision, running.form) == ("fp32", "i64 row")


def test_an_input_that_numpy_has_no_type_for_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    ports = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.BFLOAT16, [2]) for name in ("input", "output")]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["input"], ["output"])], "g", ports[:1], ports[1:]
    )
    onnx.save(onnx.helper.make_model(graph, ir_version=10, opset_imports=[onnx.helper.make_opsetid("", 18)]), str(path))
    with pytest.raises(PeerFailed) as raised:
        OnnxruntimePeer().enter(setup_for(path, 1), {}, CpuDevice())
    assert str(raised.value) == "its input 'input' is a tensor(bfloat16), which cannot be fed here"


def test_its_version_is_told() -> None:
    import onnxruntime

    assert OnnxruntimePeer().version("cpu") == f"onnxruntime {onnxruntime.__version__}"


def test_a_build_without_cuda_is_as_good_as_missing_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    import onnxruntime

    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    with pytest.raises(PeerMissing) as raised:
        OnnxruntimePeer().version("cuda")
    assert raised.value.message == f"onnxruntime {onnxruntime.__version__} is here without its kernels for CUDA"
    assert raised.value.hint == "pip install onnxruntime-gpu in place of onnxruntime"


@pytest.mark.parametrize(("where", "package"), [("cpu", "onnxruntime"), ("cuda", "onnxruntime-gpu")])
def test_a_missing_package_is_named(where: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(PeerMissing) as raised:
        OnnxruntimePeer().version(where)
    assert raised.value.message.startswith("onnxruntime cannot be imported (")
    assert raised.value.hint == f"pip install {package}"


def test_a_session_that_would_fall_back_to_the_cpu_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU's figure must never be that of the CPU."""
    path = tmp_path / "model.onnx"
    onnx.save(random_model(0), str(path))

    class Session:
        def __init__(self, *given: Any, **options: Any) -> None:
            assert options["providers"][0][0] == "CUDAExecutionProvider"

        def get_providers(self) -> list[str]:
            return ["CPUExecutionProvider"]

    monkeypatch.setattr(importlib.import_module("onnxruntime"), "InferenceSession", Session)
    with pytest.raises(PeerFailed, match=r"^onnxruntime does not load its kernels for CUDA, and would have run on the"):
        OnnxruntimePeer().enter(setup_for(path, 2, "cuda"), {}, CpuDevice())
