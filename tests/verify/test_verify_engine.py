"""Verification passes what is right, and names what is wrong: engines made of NumPy, broken on purpose."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from fake_engine import FakeModel, Fault, plan_of
from onnx import TensorProto, helper, numpy_helper
from random_graphs import random_model

from bolt_build import digest
from bolt_build.dtypes import DType
from bolt_build.errors import BoltError, ExitCode
from bolt_build.graph.ir import Array, Graph, Node
from bolt_build.graph.onnx_import import load_model
from bolt_build.graph.zoo.calibrate import calibrate
from bolt_build.report.verification import render
from bolt_build.schema.recipe import VerifySpec
from bolt_build.verify import VerifyReport, verify_engine
from bolt_build.verify.engine import verify_model
from bolt_build.verify.reference import Reference

SPEC = VerifySpec("onnxruntime", samples=2, seed=7)


def residual_net() -> onnx.ModelProto:
    """Two normalised residual blocks and a classifier over 8 channels, calibrated."""
    initializers: list[onnx.TensorProto] = []
    nodes: list[onnx.NodeProto] = []

    def constant(name: str, array: Array) -> str:
        initializers.append(numpy_helper.from_array(array.astype(np.float32), name))
        return name

    def node(op: str, name: str, *inputs: str, **attributes: int | float | list[int]) -> str:
        nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def conv(name: str, x: str, channels: int) -> str:
        y = node("Conv", f"{name}/conv", x, constant(f"{name}.w", np.zeros((8, channels, 3, 3))), pads=[1, 1, 1, 1])
        parts = [constant(f"{name}.{what}", np.ones(8)) for what in ("scale", "bias", "mean", "var")]
        return node("BatchNormalization", f"{name}/bn", y, *parts, epsilon=1e-5)

    x = node("Relu", "stem/relu", conv("stem", "image", 3))
    for block in ("a", "b"):
        y = node("Relu", f"{block}/relu", conv(f"{block}1", x, 8))
        y = conv(f"{block}2", y, 8)
        x = node("Relu", f"{block}/out", node("Add", f"{block}/add", y, x))
    flat = node("Flatten", "flat", node("GlobalAveragePool", "pool", x))
    node("Gemm", "scores", flat, constant("fc.w", np.zeros((5, 8))), constant("fc.b", np.zeros(5)), transB=1)
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "residual",
        [info("image", TensorProto.FLOAT, ["N", 3, 13, 11])], [info("scores", TensorProto.FLOAT, ["N", 5])],
        initializers,
    )  # fmt: skip
    return calibrate(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]), seed=1)


MODEL = residual_net()
LAYERS = [node.name for node in MODEL.graph.node]


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("verify") / "residual.onnx"
    onnx.save(MODEL, path)
    return path


def verify(
    path: Path, *, batches: tuple[int, ...] = (1, 3), faults: dict[str, Fault] | None = None,
    stored: DType = DType.F32, stray: float = 0.0, blind: tuple[str, ...] = (), spec: VerifySpec = SPEC,
) -> VerifyReport:  # fmt: skip
    graphs = graphs_of(path, batches)
    model = FakeModel(graphs, faults or {}, blind, stray)
    return verify_model(model, Reference(path, ()), plan_of(*graphs, stored=stored), spec)


def graphs_of(path: Path, batches: tuple[int, ...]) -> tuple[Graph, ...]:
    model = load_model(path)
    return tuple(model.bind(batch) for batch in batches)


def messages(report: VerifyReport) -> list[str]:
    return [problem.message for problem in report.problems]


def first_departures(report: VerifyReport) -> list[str]:
    return [batch.first_departure.name for batch in report.batches if batch.first_departure is not None]


def test_a_right_engine_agrees_in_every_layer_of_every_batch(net: Path) -> None:
    report = verify(net)
    assert report.ok
    assert report.problems == ()
    assert [(batch.batch, len(batch.layers), batch.repeatable) for batch in report.batches] == [
        (1, 20, True),
        (3, 20, True),
    ]
    for batch in report.batches:
        (output,) = batch.outputs
        assert output.name == "scores"
        assert output.cosine > 0.999999
        assert output.cosine_centred is not None
        assert output.cosine_centred > 0.999999
        assert output.dependence is not None
        assert output.dependence < 0.99


@pytest.mark.parametrize("seed", range(12))
def test_random_graphs_agree(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "random.onnx"
    onnx.save(random_model(seed), path)
    report = verify(path, batches=(2,))
    assert report.ok, messages(report)


@pytest.mark.parametrize("layer", LAYERS)
def test_one_wrong_element_in_any_layer_is_found_and_the_layer_named(net: Path, layer: str) -> None:
    def broken(node: Node, inputs: list[Array], output: Array) -> Array:
        output = output.copy()
        output.reshape(-1)[output.size // 2] += 0.01 * output.std()
        return output

    report = verify(net, faults={layer: broken})
    assert not report.ok
    assert first_departures(report) == [layer, layer]


def test_a_residual_taken_from_the_wrong_place_is_named(net: Path) -> None:
    seen: dict[str, Array] = {}

    def remember(node: Node, inputs: list[Array], output: Array) -> Array:
        seen["stem"] = output
        return output

    def swapped(node: Node, inputs: list[Array], output: Array) -> Array:
        return inputs[0] + seen["stem"]

    report = verify(net, batches=(3,), faults={"stem/relu": remember, "b/add": swapped})
    assert first_departures(report) == ["b/add"]
    first, output = messages(report)
    assert first.startswith("batch 3: 'b/add' departs (step 15, numpy, tensor 'b/add' [3, 8, 13, 11]): it is off by ")
    assert first.endswith(" times what rounding does to its own inputs there (limit 11)")
    assert output.startswith("batch 3, output 'scores': the largest error ")


def test_batch_norm_folded_with_another_epsilon_is_named(net: Path) -> None:
    def folded(node: Node, inputs: list[Array], output: Array) -> Array:
        (result,) = replace(node.op, epsilon=1e-4).evaluate(inputs)  # type: ignore[call-arg]
        return result

    report = verify(net, faults={"a2/bn": folded})
    assert first_departures(report) == ["a2/bn", "a2/bn"]


def test_transposed_channels_are_named(net: Path) -> None:
    report = verify(net, faults={"a1/conv": lambda node, inputs, output: output[:, ::-1]})
    assert first_departures(report) == ["a1/conv", "a1/conv"]


def test_nan_fails_and_says_how_many(net: Path) -> None:
    def poisoned(node: Node, inputs: list[Array], output: Array) -> Array:
        output = output.copy()
        output[0, 0, :2, 0] = np.nan, np.inf
        return output

    report = verify(net, batches=(1,), faults={"b1/conv": poisoned})
    assert not report.ok
    layer = report.batches[0].first_departure
    assert layer is not None
    assert (layer.name, layer.not_finite) == ("b1/conv", 2)
    assert messages(report)[0] == (
        "batch 1: 'b1/conv' departs (step 10, numpy, tensor 'b1/conv' [1, 8, 13, 11]): "
        "2 elements are NaN or infinite, and finite in the model"
    )
    json.dumps(digest.encode(report), allow_nan=False)


def test_a_layer_with_wrong_inputs_is_not_blamed_for_them(net: Path) -> None:
    """What the layers behind a fault make of it is right."""
    report = verify(net, batches=(1,), faults={"a1/conv": lambda node, inputs, output: 2 * output})
    (batch,) = report.batches
    assert [layer.name for layer in batch.layers if not layer.ok] == ["a1/conv"]
    assert not batch.outputs[0].ok


def test_a_fault_that_only_a_later_sample_shows_is_looked_for_in_that_sample(net: Path) -> None:
    inputs_seen: list[bytes] = []

    def second_input(node: Node, inputs: list[Array], output: Array) -> Array:
        if not inputs_seen:
            inputs_seen.append(inputs[0].tobytes())
        return output if inputs[0].tobytes() == inputs_seen[0] else output + 1

    report = verify(net, batches=(2,), faults={"scores": second_input})
    assert report.batches[0].layers_sample == 1
    assert first_departures(report) == ["scores"]


def test_an_observed_run_that_differs_from_a_plain_one_fails(net: Path) -> None:
    report = verify(net, batches=(1,), stray=3e-6)
    assert messages(report) == ["batch 1: an observed run gives other bits than a plain one"]
    assert not report.ok


def test_a_tensor_that_the_engine_does_not_show_fails(net: Path) -> None:
    report = verify(net, batches=(1,), blind=("a/add",))
    assert messages(report) == [
        f"batch 1: step {step} ('{name}') should leave tensor '{name}', "
        f"which was not seen in the engine, is none of the model, or is made from such a tensor"
        for step, name in ((8, "a/add"), (9, "a/out"))
    ]
    assert not report.ok


def test_outputs_that_ignore_the_input_are_a_warning(tmp_path: Path) -> None:
    model = onnx.ModelProto()
    model.CopyFrom(MODEL)
    classifier = next(item for item in model.graph.initializer if item.name == "fc.w")
    classifier.CopyFrom(numpy_helper.from_array(1e-6 * numpy_helper.to_array(classifier), "fc.w"))
    onnx.save(model, tmp_path / "dead.onnx")
    report = verify(tmp_path / "dead.onnx", batches=(2,))
    assert report.ok
    (problem,) = report.problems
    assert (problem.code, problem.severity) == ("weak-check", "warning")
    assert problem.message == (
        "batch 2, output 'scores': outputs hardly depend on the input (cosine 1.0000 between different inputs), so that"
        " they say little; the layers were compared one by one"
    )


def test_a_tensor_stored_in_bf16_may_be_further_off_but_not_wrong(net: Path) -> None:
    def rounded(node: Node, inputs: list[Array], output: Array) -> Array:
        bits = output.astype(np.float32).view(np.uint32)
        return ((bits + 0x8000) & 0xFFFF0000).astype(np.uint32).view(np.float32)

    everywhere: dict[str, Fault] = dict.fromkeys(LAYERS, rounded)
    assert verify(net, faults=everywhere, stored=DType.BF16).ok
    assert not verify(net, faults=everywhere, stored=DType.F32).ok
    swapped: Fault = lambda node, inputs, output: inputs[0] - inputs[1]  # noqa: E731
    report = verify(net, faults={**everywhere, "b/add": swapped}, stored=DType.BF16)
    assert first_departures(report) == ["b/add", "b/add"]


def test_the_report_is_json_and_back(net: Path) -> None:
    report = verify(net, faults={"a/add": lambda node, inputs, output: -output})
    assert digest.decode(VerifyReport, json.loads(digest.canonical_json(report))) == report


def test_groups_of_taps_see_what_one_group_sees(net: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = verify(net)
    monkeypatch.setattr("bolt_build.verify.layers.GROUP_BYTES", 10_000)
    assert verify(net) == whole


def test_without_onnxruntime_the_tool_is_named(monkeypatch: pytest.MonkeyPatch, net: Path) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(BoltError) as caught:
        Reference(net, ())
    assert caught.value.exit_code is ExitCode.TOOL_MISSING
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.message == "verification compares with onnxruntime, which is not installed"
    assert diagnostic.hint == "python -m pip install 'onnxruntime>=1.18'"


def test_a_library_that_is_no_engine_is_a_diagnostic(tmp_path: Path, net: Path) -> None:
    library = tmp_path / "libnet.so"
    library.write_bytes(b"not ELF")
    plan = plan_of(*graphs_of(net, (1,)))
    with pytest.raises(BoltError) as caught:
        verify_engine(library, tmp_path / "net.weights", net, plan, SPEC, ())
    assert caught.value.exit_code is ExitCode.VERIFY_FAILED
    assert caught.value.diagnostics[0].message.startswith("the engine does not load: ")


@pytest.mark.parametrize("name", [b"of UTF-8", b"of Latin-1 \xe9"])
def test_external_data_is_found_beside_the_model(net: Path, tmp_path: Path, name: bytes) -> None:
    written, folder = tmp_path / "written", tmp_path / os.fsdecode(name)
    written.mkdir()
    onnx.save(onnx.load(net), written / "external.onnx", save_as_external_data=True, size_threshold=0)
    written.rename(folder)
    assert verify(folder / "external.onnx", batches=(1,)).ok


def test_a_symbolic_extent_is_bound_for_the_reference_too(tmp_path: Path) -> None:
    path = tmp_path / "symbolic.onnx"
    model = random_model(3)
    height = model.graph.input[0].type.tensor_type.shape.dim[2].dim_value
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "rows"
    onnx.save(model, path)
    feeds = {"input": np.zeros([d.dim_value or 2 for d in model.graph.input[0].type.tensor_type.shape.dim], np.float32)}
    with pytest.raises(BoltError) as caught:
        Reference(path, (("rows", height + 1),)).outputs(feeds)
    assert caught.value.diagnostics[0].code == "reference-failed"


class TestRendering:
    """What people see."""

    def test_success_is_one_line_a_batch(self, net: Path) -> None:
        lines = render(verify(net), color=False).splitlines()
        assert lines[0] == f"fake for host in fp32 agrees with onnxruntime {onnxruntime.__version__}, opset 17 and IR 8"
        assert lines[1].split() == [
            "batch", "output", "max", "|error|", "error", "tolerance", "cosine", "centred", "between", "inputs",
            "layers", "verdict",
        ]  # fmt: skip
        assert [(line.split()[0], line.split()[1], *line.split()[-2:]) for line in lines[2:]] == [
            ("1", "scores", "20", "ok"),
            ("3", "scores", "20", "ok"),
        ]

    def test_failure_shows_the_layers_around_the_first_that_departs(self, net: Path) -> None:
        report = verify(net, batches=(1,), faults={"a/add": lambda node, inputs, output: -output})
        lines = render(report, color=False).splitlines()
        assert lines[0].startswith("fake for host in fp32 DEPARTS FROM onnxruntime")
        assert lines[4:6] == [
            "batch 1, sample 0: layers around the first that departs",
            "(deviations are in units of what rounding does; a spread of 1.5 may be)",
        ]
        assert [line.split()[1] for line in lines[7:14]] == [
            "a/relu", "a2/conv", "a2/bn", "a/add", "a/out", "b1/conv", "b1/bn",
        ]  # fmt: skip
        assert lines[10].endswith("first to depart")
        assert lines[14].startswith("error[layer-departs]: batch 1: 'a/add' departs")

    def test_tables_fit_a_narrow_terminal(self, net: Path) -> None:
        report = verify(net, faults={"a/add": lambda node, inputs, output: -output})
        lines = render(report, color=False, width=80).splitlines()
        told = [line for line in lines if not line.startswith(("error[", "warning[", "  hint:"))]
        assert max(len(line) for line in told) <= 80
        assert lines[1].split() == ["batch", "output", "error", "cosine", "layers", "verdict"]
        assert lines[2].split()[-1] == "departs"

    def test_colours_only_where_asked_for(self, net: Path) -> None:
        report = verify(net, batches=(1,))
        assert "\x1b[" not in render(report, color=False)
        assert "\x1b[" in render(report, color=True)


class TestLargeBatches:
    """Variances are computed for the first rows; the others are held to what those lead to expect."""

    @pytest.mark.parametrize("row", [0, 7, 8, 19])
    @pytest.mark.parametrize("layer", ["a1/conv", "b/add", "pool"])
    def test_a_fault_in_any_row_is_found(self, row: int, layer: str, net: Path) -> None:
        def broken(node: Node, inputs: list[Array], output: Array) -> Array:
            output = output.copy()
            output[row] += np.float32(1e-4) * output.std()
            return output

        report = verify(net, batches=(20,), faults={layer: broken})
        assert first_departures(report) == [layer]

    def test_rows_that_are_larger_than_the_first_are_no_fault(self, net: Path, tmp_path: Path) -> None:
        """The engine sums in fp32 where the reference does so in another order."""

        convolutions = [name for name in LAYERS if name.endswith("conv")]

        def rounded(node: Node, inputs: list[Array], output: Array) -> Array:
            return np.nextafter(output, np.float32(np.inf)).astype(np.float32)

        images = (
            np.random.RandomState(0).standard_normal((20, 3, 13, 11)) * np.geomspace(1, 1e4, 20)[:, None, None, None]
        )
        np.savez(tmp_path / "real.npz", image=images)
        spec = replace(SPEC, samples=1, inputs=str(tmp_path / "real.npz"))
        report = verify(net, batches=(20,), faults=dict.fromkeys(convolutions, rounded), spec=spec)
        assert [layer.name for layer in report.batches[0].layers if not layer.ok] == []
