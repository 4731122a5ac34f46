"""Models as torch modules compute what the graph means: ONNX's own cases, random models, and all that torch has no
operator of its own for."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

import conformance_cases as onnx_cases
import numpy as np
import onnx
import pytest
from conformance_cases import MODULES, REFUSED, cases, data_inputs
from graph_models import bound, model, node, tensor
from random_graphs import random_model

from bolt_build.bench.contestant import Contestant, Effort, Peer, PeerFailed, PeerMissing, Setup
from bolt_build.bench.device.cpu import CpuDevice
from bolt_build.graph import reference
from bolt_build.graph.ir import Array, EpilogueOp, Graph, Node, graph_of
from bolt_build.graph.onnx_import import load_model
from bolt_build.graph.ops.elementwise.activation import Activation

torch = pytest.importorskip("torch", reason="torch is a peer, which tests need not have")

# Behind the line above: these import torch.
from torch_modules import compute  # noqa: E402

from bolt_build.bench.peers.torch_compile import TorchCompilePeer  # noqa: E402
from bolt_build.bench.peers.torch_eager import TorchGraphPeer, TorchPeer  # noqa: E402
from bolt_build.bench.torch_graph import Unsupported, torch_module  # noqa: E402


def assert_as_reference(graph: Graph, inputs: dict[str, Array], rtol: float = 1e-4, atol: float = 1e-5) -> None:
    expected = reference.evaluate(graph, inputs)
    for name, made in zip(graph.outputs, compute(graph, inputs), strict=True):
        wanted = expected[name]
        assert made.shape == wanted.shape
        np.testing.assert_allclose(made.astype(float), wanted.astype(float), rtol=rtol, atol=atol)


def noise(graph: Graph, seed: int = 0) -> dict[str, Array]:
    random = np.random.RandomState(seed)
    return {name: random.standard_normal(graph.type(name).shape).astype(np.float32) for name in graph.inputs}


@pytest.mark.parametrize("module", MODULES.values())
def test_conformance(module: str, tmp_path: Path) -> None:
    """Of all operators that a module of torch can have; the others are refused by name."""
    for case in cases(module):
        if case.name in REFUSED or not (data := data_inputs(case)):
            continue
        if any(0 in np.shape(array) for array in case.data_sets[0][1]):
            continue  # a graph gives no output without elements
        graph, inputs = onnx_cases.bound(case, tmp_path, data)
        # The module's data is all of one type: what the graph rounds to 16 bits is not rounded here.
        narrow = any(graph.type(name).dtype.nbytes == 2 for name in (*graph.inputs, *graph.outputs))
        with onnx_cases.named(case), contextlib.suppress(Unsupported):
            assert_as_reference(graph, inputs, *((1e-2, 1e-2) if narrow else (1e-4, 1e-5)))


@pytest.mark.parametrize("seed", range(40))
def test_random_models(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(random_model(seed), str(path))
    graph = load_model(path).bind(2)
    assert_as_reference(graph, noise(graph, seed), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("ceil", [0, 1])
@pytest.mark.parametrize("mode", ["MaxPool", "AveragePool", "AveragePool with padding"])
@pytest.mark.parametrize(
    ("kernel", "strides", "pads", "dilations"),
    [
        ([3, 3], [2, 2], [1, 1, 1, 1], [1, 1]),
        ([3, 3], [2, 2], [0, 0, 1, 1], [1, 1]),
        ([3, 2], [2, 3], [2, 1, 0, 0], [1, 1]),
        ([2, 3], [3, 2], [1, 2, 1, 2], [1, 1]),
        ([3, 3], [1, 2], [1, 1, 1, 1], [2, 2]),
    ],
)
def test_windows_that_torch_does_not_have_itself(
    kernel: Sequence[int], strides: Sequence[int], pads: Sequence[int], dilations: Sequence[int], mode: str, ceil: int,
    tmp_path: Path,
) -> None:  # fmt: skip
    """Pads of two widths or over half a window, dilated averages, and sizes rounded up."""
    more = {"count_include_pad": 1} if mode.endswith("padding") else {}
    made = node(
        mode.split()[0], "x", "y", kernel_shape=kernel, strides=strides, pads=pads, dilations=dilations,
        ceil_mode=ceil, **more,
    )  # fmt: skip
    graph = bound(tmp_path, model([made], [tensor("x", [1, 3, 10, 11])], opset=19))
    assert_as_reference(graph, noise(graph))


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_response_normalisation_of_even_and_odd_sizes(size: int, tmp_path: Path) -> None:
    graph = bound(tmp_path, model([node("LRN", "x", "y", size=size, alpha=0.5, beta=0.6, bias=1.5)]))
    assert_as_reference(graph, noise(graph))


@pytest.mark.parametrize(
    ("made", "more"),
    [
        (node("LayerNormalization", "x s b", "y", axis=-1, epsilon=1e-3), (8,)),
        (node("LayerNormalization", "x s b", "y", axis=1), (3, 8, 8)),
        (node("RMSNormalization", "x s", "y", axis=-1), (8,)),
        (node("GroupNormalization", "x s b", "y", num_groups=3), (3,)),
        (node("InstanceNormalization", "x s b", "y"), (3,)),
        (node("LpNormalization", "x", "y", axis=1, p=1), (3,)),
        (node("LpNormalization", "x", "y", axis=1, p=2), (3,)),
        (node("MeanVarianceNormalization", "x", "y"), (3,)),
    ],
    ids=lambda value: value.op_type if hasattr(value, "op_type") else "x".join(map(str, value)),
)
def test_normalisations(made: onnx.NodeProto, more: tuple[int, ...], tmp_path: Path) -> None:
    random = np.random.RandomState(0)
    named = {name: random.standard_normal(more).astype(np.float32) for name in made.input[1:]}
    graph = bound(tmp_path, model([made], [tensor("x", ["N", 3, 8, 8])], constants=named, opset=23))
    assert_as_reference(graph, noise(graph))


def test_weights_that_are_computed(tmp_path: Path) -> None:
    inputs = [tensor("x", [6, 4, 8, 8]), tensor("w", [6, 2, 3, 3]), tensor("b", [6])]
    made = node("Conv", "x w b", "y", group=2, pads=[0, 1, 2, 1], strides=[2, 1])
    graph = bound(tmp_path, model([made], inputs), batch=6)
    assert_as_reference(graph, noise(graph))


@pytest.mark.parametrize("low_high", [(-0.5, 0.25), (None, 0.25), (0.1, None), (None, None)])
def test_a_bound_left_out_bounds_nothing_in_16_bits_either(
    low_high: tuple[float | None, float | None], tmp_path: Path
) -> None:
    names = ["low" if low_high[0] is not None else "-", "high" if low_high[1] is not None else "-"]
    bounds = {n: np.float32(v) for n, v in zip(("low", "high"), low_high, strict=True) if v is not None}
    constants = {name: np.asarray(value) for name, value in bounds.items()}
    graph = bound(tmp_path, model([node("Clip", f"x {' '.join(names)}", "y")], constants=constants))
    assert_as_reference(graph, noise(graph))
    with torch.inference_mode():
        (half,) = torch_module(graph).half()(torch.full((1, 3, 8, 8), 60000.0, dtype=torch.half))
    assert half.max().item() == pytest.approx(low_high[1] or 60000.0, rel=1e-3)


def test_layers_are_torchs_own_and_batch_normalisation_stays(tmp_path: Path) -> None:
    random = np.random.RandomState(0)
    constants = {
        "w": random.randn(4, 3, 3, 3).astype(np.float32), "scale": np.full(4, 2, np.float32),
        "bias": np.full(4, 3, np.float32), "mean": np.full(4, 5, np.float32), "var": np.full(4, 7, np.float32),
        "fc": random.randn(5, 144).astype(np.float32),
    }  # fmt: skip
    nodes = [
        node("Conv", "x w", "c"), node("BatchNormalization", "c scale bias mean var", "n", epsilon=0.25),
        node("Relu", "n", "r"), node("Flatten", "r", "f"), node("Gemm", "f fc", "y", transB=1),
    ]  # fmt: skip
    graph = bound(tmp_path, model(nodes, constants=constants))
    layers = [type(layer).__name__ for layer in torch_module(graph).children()]
    assert layers == ["Conv2d", "BatchNorm2d", "Linear"]
    assert_as_reference(graph, noise(graph))


def test_a_graph_that_passes_have_changed_is_refused(tmp_path: Path) -> None:
    graph = bound(tmp_path, model([node("Relu", "x", "y", name="first")]))
    (relu,) = graph.nodes
    fused = Node(relu.name, relu.op, relu.inputs, relu.outputs, (EpilogueOp(Activation("tanh")),))
    changed = graph_of("g", 1, graph.inputs, graph.outputs, graph.values, [fused])
    with pytest.raises(Unsupported, match=r"^operator 'activation' of 'first' has no counterpart in torch here$"):
        torch_module(changed)


def entered(peer: Peer, path: Path, feeds: dict[str, Array], precision: str = "fp32") -> Contestant:
    inputs = str(path.with_name("inputs.npz"))
    setup = Setup(peer.name, "cpu", precision, 2, 1, str(path), (), "", "", inputs, tuple(feeds), Effort())
    return peer.enter(setup, feeds, CpuDevice())


@pytest.mark.parametrize(("precision", "form", "apart"), [("fp32", "f32", 1e-3), ("bf16", "bf16", 0.1)])
def test_the_eager_peer_runs_in_the_engines_precision(precision: str, form: str, apart: float, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(random_model(1), str(path))
    graph = load_model(path).bind(2)
    feeds = noise(graph)
    running = entered(TorchPeer(), path, feeds, precision)
    running.run()
    running.settle()
    expected = reference.evaluate(graph, feeds)
    for name, array in running.outputs().items():
        assert array.dtype == np.float32
        assert np.abs(array - expected[name]).max() <= apart * np.abs(expected[name]).max()
    assert (running.precision, running.form) == (precision, f"{form} channels_last")


def test_weights_of_four_axes_are_channels_last_and_those_of_five_as_they_are(tmp_path: Path) -> None:
    """As Swin's shifted windows have constants of five axes."""
    path = tmp_path / "model.onnx"
    wide, filters = np.ones((1, 1, 4, 2, 5), np.float32), np.full((4, 4, 3, 3), 0.5, np.float32)
    nodes = [node("Conv", "x w", "c"), node("Unsqueeze", "c axis", "u"), node("Add", "u k", "y")]
    constants = {"w": filters, "k": wide, "axis": np.array([0])}
    onnx.save(model(nodes, [tensor("x", ["N", 4, 4, 7])], constants=constants), str(path))
    graph = load_model(path).bind(2)
    feeds = noise(graph)
    running = entered(TorchPeer(), path, feeds)
    held = [*running.module.parameters(), *running.module.buffers()]
    assert sorted(each.dim() for each in held)[-2:] == [4, 5]
    assert all(each.is_contiguous(memory_format=torch.channels_last) for each in held if each.dim() == 4)
    running.run()
    np.testing.assert_allclose(running.outputs()["y"], reference.evaluate(graph, feeds)["y"], rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_the_compiled_peer_computes_the_same_and_says_how_long_compiling_took(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(model([node("Relu", "x", "r"), node("Add", "r x", "y")], [tensor("x", ["N", 3, 8, 8])]), str(path))
    graph = load_model(path).bind(2)
    feeds = noise(graph)
    running = entered(TorchCompilePeer(), path, feeds)
    running.run()
    np.testing.assert_allclose(running.outputs()["y"], reference.evaluate(graph, feeds)["y"], rtol=1e-5)
    assert running.compile_seconds is not None
    assert running.compile_seconds > 0
    assert any(path.with_name("torchinductor").iterdir()), "what it compiled lies where it goes with the contest"


def test_peers_without_a_gpu() -> None:
    assert TorchPeer().version("cpu") == f"torch {torch.__version__}"
    with pytest.raises(PeerFailed, match=r"^CUDA graphs are for GPUs$"):
        TorchGraphPeer().version("cpu")


def test_a_torch_that_finds_no_gpu_is_as_good_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(PeerMissing) as raised:
        TorchCompilePeer().version("cuda")
    assert raised.value.message == f"torch {torch.__version__} finds no GPU that it can use"
