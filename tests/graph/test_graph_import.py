"""From an ONNX model to the graph of one batch: operators, names, shape arithmetic, outputs."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnx.version_converter
import pytest
from graph_models import body, bound, model, node, ones, refusals, tensor
from onnx import TensorProto, helper, numpy_helper

from bolt_build.errors import BoltError
from bolt_build.graph import onnx_import, reference
from bolt_build.graph.invariants import check
from bolt_build.graph.onnx_import import ImporterTable, load_model
from bolt_build.graph.ops.products import conv

IMAGE = tensor("x", [1, 3, 8, 8])
LIGHT_MODELS = sorted((Path(onnx.__file__).parent / "backend/test/data/light").glob("*.onnx"))


# -- operators ---------------------------------------------------------------------------------------------------


def test_unsupported_operators_are_all_listed_with_their_nodes(tmp_path: Path) -> None:
    nodes = [
        node("Unique", "x", "a", "first"),
        node("Relu", "a", "b"),
        node("Unique", "b", "c"),
        node("NotAnOperator", "c", "d", "strange"),
        node("FusedUnknown", "d", "e", "fused", domain="com.microsoft"),
        node("If", "e", "y", "branch", then_branch=branch("e"), else_branch=branch("e")),
        node("Unique", "x", "unused", "dead"),
    ]
    proto = model(nodes, [IMAGE], opsets=[("com.microsoft", 1)])
    assert refusals(tmp_path, proto) == [
        ("unsupported-op", "control flow is not supported: operator If, node 'branch'"),
        ("unsupported-op", "operator NotAnOperator is not supported: node 'strange'"),
        ("unsupported-op", "operator Unique is not supported: nodes 'first', 'Unique_2'"),
        ("unsupported-op", "operator com.microsoft.FusedUnknown is not supported: node 'fused'"),
    ]


def branch(name: str) -> onnx.GraphProto:
    return helper.make_graph([node("Identity", name, "inner")], "branch", [], [tensor("inner", None)])


def test_operator_of_an_unknown_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = ImporterTable(conv.IMPORTERS)
    monkeypatch.setattr(table, "_found", {("", "Conv"): {1: conv.IMPORTERS[0]}})
    monkeypatch.setattr(onnx_import, "importer_table", lambda: table)
    proto = model([node("Conv", "x w", "y", "conv")], constants={"w": ones(2, 3, 3, 3)}, opset=11)
    assert refusals(tmp_path, proto) == [
        ("unsupported-op-version", "version 11 of operator Conv is not supported (known: 1): node 'conv'")
    ]


def test_operator_that_is_newer_than_the_models_opset(tmp_path: Path) -> None:
    """torch.export writes DeformConv into models of opset 18."""
    proto = model([node("DeformConv", "x w o", "y", "deformed")], constants={"w": ones(2, 3, 3, 3)}, opset=18)
    message = "the model's opset has no operator DeformConv, which opset 19 has: node 'deformed'"
    proto.graph.node[0].input[2] = "x"
    assert refusals(tmp_path, proto) == [("unsupported-op-version", message)]


def test_two_importers_of_one_version_are_an_error() -> None:
    with pytest.raises(ValueError) as raised:
        ImporterTable((*conv.IMPORTERS, *conv.IMPORTERS))
    assert str(raised.value) == "two importers for version 1 of Conv"


def test_every_operator_version_of_the_installed_onnx_can_be_imported() -> None:
    """An operator that is imported at all is imported at every opset from 7 to the newest."""
    table = onnx_import.importer_table()
    for op_type in sorted(table.operators()):
        for opset in range(7, onnx.defs.onnx_opset_version() + 1):
            if not onnx.defs.has(op_type, opset, ""):
                continue
            version = onnx.defs.get_schema(op_type, opset, "").since_version
            assert table.find(onnx_import.OnnxNode("n", "", op_type, version, (), ())), (op_type, version)


def test_another_package_offers_importers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    importers = "IMPORTERS = (Importer('Twice', (1,), twice, domain='example'),)"
    with installed(tmp_path, monkeypatch, importers):
        proto = model([node("Twice", "x", "y", "twice", domain="example")], [IMAGE], opsets=[("example", 3)])
        assert body(bound(tmp_path, proto)) == ['%y: f32[1,3,8,8] = add(%x, %x)  // "twice"']


def test_a_package_whose_importers_cannot_be_used_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with installed(tmp_path, monkeypatch, "IMPORTERS = (Importer('Conv', (11,), twice),)"):
        with pytest.raises(BoltError) as raised:
            bound(tmp_path, model([node("Relu", "x", "y")]))
        (found,) = raised.value.diagnostics
        assert found.code == "broken-plugin"
        assert found.message == (
            "the package twice-ops 1.0 cannot add its operator 'twice' (twice_ops): it has an importer for version 11 "
            "of Conv, which bolt-build itself has"
        )


@contextlib.contextmanager
def installed(directory: Path, monkeypatch: pytest.MonkeyPatch, importers: str) -> Iterator[None]:
    """A package that offers `importers`, found on the path while the block runs."""
    (directory / "twice_ops.py").write_text(
        "from bolt_build.graph.importing import Importer\n"
        "from bolt_build.graph.ops.elementwise.arithmetic import Binary\n"
        "def twice(node): node.emit(Binary('add'), [node.input(0), node.input(0)], 0)\n"
        f"{importers}\n"
    )
    info = directory / "twice_ops-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: twice-ops\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[bolt_build.ops]\ntwice = twice_ops\n")
    with monkeypatch.context() as patch:
        patch.syspath_prepend(directory)
        yield
    sys.modules.pop("twice_ops", None)


def test_local_functions_are_inlined(tmp_path: Path) -> None:
    proto = model([node("Scaled", "x", "y", "call", domain="local")], [IMAGE], opsets=[("local", 1)])
    imports = [helper.make_opsetid("", 17)]
    inner = [node("Relu", "a", "r"), node("Add", "r r", "b")]
    proto.functions.append(helper.make_function("local", "Scaled", ["a"], ["b"], inner, imports))
    graph = bound(tmp_path, proto)
    check(graph)
    x = np.linspace(-1, 1, 192, dtype=np.float32).reshape(1, 3, 8, 8)
    np.testing.assert_array_equal(reference.evaluate(graph, {"x": x})["y"], 2 * np.maximum(x, 0))


def test_nodes_that_do_not_fit_are_all_reported_and_what_hangs_on_them_is_not(tmp_path: Path) -> None:
    nodes = [
        node("Conv", "x w", "c", "conv"),
        node("Relu", "c", "r", "behind"),
        node("Reshape", "x shape", "s", "reshape"),
        node("Clip", "x low -", "k", "clip"),
        node("Add", "r s", "t"),
        node("Add", "t k", "v"),
        node("Dropout", "c", "d -", "also behind"),
        node("MaxPool", "x", "m -", "window", kernel_shape=[9, 9]),
        node("Sum", "v d m", "y"),
    ]
    constants = {"w": ones(2, 4, 3, 3), "shape": np.asarray([5, -1])}
    proto = model(nodes, [IMAGE, tensor("low", [1])], constants=constants)
    assert refusals(tmp_path, proto) == [
        (
            "shape-mismatch",
            "Conv 'conv': the input has 3 channels, the weight [2, 4, 3, 3] with 1 groups takes 4",
        ),
        ("shape-mismatch", "Reshape 'reshape': [1, 3, 8, 8] cannot be reshaped to [5, -1]"),
        (
            "shape-mismatch",
            "MaxPool 'window': a window of 9 does not fit the 8 cells of spatial axis 0 (padding included)",
        ),
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (node("Range", "x x x", "y", "g"), "Range on data is not supported (only on constants)"),
        (node("BatchNormalization", "x c c c c", "y m", "g"), "its output 1 ('m') is used, which is not supported"),
        (node("LRN", "x", "y m", "g", size=3), "has 2 outputs, of at most 1"),
        (node("Dropout", "x ratio true", "y", "g"), "training_mode=1 is not supported"),
        (node("Cast", "x", "y", "g", to=TensorProto.STRING), "element type string is not supported"),
        (node("Pad", "x pads", "y", "g", mode="round"), "mode 'round' is not supported"),
        (node("Gather", "x x", "y", "g"), "indices are of i32 or i64, not of f32"),
        (node("And", "x x", "y", "g"), "takes booleans, not f32"),
        (node("Relu", "x", "y", "g", slope=0.1), "attribute 'slope' is not understood"),
        (node("Softmax", "x", "y", "g", axis=0.5), "attribute 'axis' is of the wrong kind"),
        (node("LRN", "x", "y", "g"), "attribute 'size' is missing"),
        (node("Conv", "x -", "y", "g"), "input 1 is missing"),
        (node("Conv", "x w", "y", "g", auto_pad="SOMETIMES"), "auto_pad 'SOMETIMES' is not supported"),
        (node("MaxPool", "x", "y", "g", kernel_shape=[2, 2], pads=[2, 0, 0, 0]),
         "pads [2, 0] must be smaller than the kernel [2, 2]"),
        (node("Transpose", "x", "y", "g", perm=[0, 1]), "perm [0, 1] is no order of the 4 axes of [1, 3, 8, 8]"),
        (node("Concat", "x w", "y", "g", axis=1), "[1, 3, 8, 8] and [2, 3, 3, 3] must agree but for axis 1"),
        (node("Split", "x", "y a", "g", axis=1), "an axis of 3 cannot be split into 2 equal parts"),
        (node("Unsqueeze", "x one", "y", "g"), None),
    ],
)  # fmt: skip
def test_refusal_names_the_node_and_the_reason(tmp_path: Path, line: onnx.NodeProto, message: str | None) -> None:
    constants = {
        "i": np.asarray([0]), "w": ones(2, 3, 3, 3), "c": ones(3), "ratio": ones(), "true": np.asarray(True),
        "pads": np.ones(8, np.int64), "one": np.asarray([1]), "zero": np.asarray([0]),
    }  # fmt: skip
    outputs = [name for name in line.output if name in ("y", "m")]
    proto = model([line], [IMAGE], outputs, constants)
    if message is None:
        check(bound(tmp_path, proto))
        return
    assert [text for _, text in refusals(tmp_path, proto)] == [f"{line.op_type} 'g': {message}"]


def test_parts_without_elements_are_left_out(tmp_path: Path) -> None:
    """`torch.roll` by 0 concatenates x[0:] and x[:0]; a split may have an empty part."""
    nodes = [
        node("Slice", "x zero two", "a"), node("Slice", "x zero zero", "b"), node("Relu", "b", "c"),
        node("Split", "x sizes", "d e", axis=1), node("Concat", "c a", "f", axis=0),
        node("Concat", "d f e", "y", axis=1),
    ]  # fmt: skip
    constants = {"zero": np.asarray([0]), "two": np.asarray([2]), "sizes": np.asarray([0, 3])}
    found = bound(tmp_path, model(nodes, [IMAGE], constants=constants))
    check(found)
    x = np.arange(192, dtype=np.float32).reshape(1, 3, 8, 8)
    np.testing.assert_array_equal(reference.evaluate(found, {"x": x})["y"], np.concatenate([x, x], 1))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (node("Identity", "b", "y", "g"), "the output 'y' is [0, 3, 8, 8], which has no elements"),
        (node("ScatterND", "x none b", "y", "g"), "ScatterND 'g': an input, [0, 1], has no elements"),
    ],
)
def test_what_has_no_elements_is_no_output_and_no_operand(tmp_path: Path, line: onnx.NodeProto, message: str) -> None:
    constants = {"zero": np.asarray([0]), "none": np.zeros((0, 1), np.int64)}
    proto = model([node("Slice", "x zero zero", "b"), line], [IMAGE], constants=constants)
    assert [text for _, text in refusals(tmp_path, proto)] == [message]


# -- arithmetic on shapes ----------------------------------------------------------------------------------------


def test_shape_arithmetic_folds_away(tmp_path: Path) -> None:
    """What exporters write for `x.flatten(1)`: the batch read from a feature map."""
    nodes = [
        node("Relu", "x", "r", "relu"),
        node("Neg", "r", "n", "only its shape is read"),
        node("Shape", "n", "shape"),
        node("Gather", "shape zero", "batch", axis=0),
        node("Unsqueeze", "batch axes", "b"),
        node("Constant", "", "rest", value_ints=[-1]),
        node("Concat", "b rest", "wanted", axis=0),
        node("Reshape", "r wanted", "y", "flatten"),
    ]
    constants = {"zero": np.asarray(0), "axes": np.asarray([0])}
    assert body(bound(tmp_path, model(nodes, [tensor("x", ["N", 3, 8, 8])], constants=constants), batch=5)) == [
        '%r: f32[5,3,8,8] = relu(%x)  // "relu"',
        '%y: f32[5,192] = reshape(%r) shape=[5,192]  // "flatten"',
    ]


def test_integer_quotients_round_toward_zero(tmp_path: Path) -> None:
    nodes = [node("Div", "a b", "q"), node("Cast", "q", "f", to=TensorProto.FLOAT), node("Add", "x f", "y")]
    constants = {"a": np.asarray([7, -7, 7, -7]), "b": np.asarray([2, 2, -2, -2])}
    graph = bound(tmp_path, model(nodes, [tensor("x", [1, 4])], constants=constants))
    np.testing.assert_array_equal(graph.constant("f"), np.asarray([3, -3, -3, 3], np.float32))


def test_constants_of_every_form(tmp_path: Path) -> None:
    scalar = numpy_helper.from_array(np.asarray([2.0], np.float32))
    nodes = [
        node("Constant", "", "a", value=scalar),
        node("Constant", "", "b", value_float=0.5),
        node("Constant", "", "c", value_floats=[1.0, 2.0, 3.0, 4.0]),
        node("Constant", "", "four", value_ints=[4]),
        node("ConstantOfShape", "four", "d", value=scalar),
        node("Sum", "x a b c d", "y"),
    ]
    graph = bound(tmp_path, model(nodes, [tensor("x", [1, 4])]))
    check(graph)
    x = np.zeros((1, 4), np.float32)
    np.testing.assert_array_equal(reference.evaluate(graph, {"x": x})["y"], [[5.5, 6.5, 7.5, 8.5]])


# -- the onnx package's models -----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", LIGHT_MODELS, ids=lambda path: path.stem)
def test_light_model_has_the_shapes_that_onnx_infers(path: Path) -> None:
    graph = load_model(path).bind(1)
    check(graph)
    inferred = onnx.shape_inference.infer_shapes(onnx.load(path), data_prop=True)
    compared = 0
    for value in inferred.graph.value_info:
        if graph.has(value.name):
            dims = tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
            assert graph.type(value.name).shape == dims, value.name
            compared += 1
    assert compared >= len(graph.nodes) - len(graph.outputs)


def test_there_are_light_models() -> None:
    assert len(LIGHT_MODELS) == 9


def test_statistics_of_one_image_are_those_of_the_weights_that_nfnets_standardise(tmp_path: Path) -> None:
    x = np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype(np.float32)
    vectors = {"s": np.float32([1, 2, 3]), "b": np.float32([0, 1, -1]), "m": ones(3), "v": ones(3)}
    nodes = [node("BatchNormalization", "x s b m v", "y mean variance", training_mode=1)]
    graph = bound(tmp_path, model(nodes, constants=vectors))
    check(graph)
    centred = x - x.mean((2, 3), keepdims=True)
    scale, bias = (vectors[name].reshape(3, 1, 1) for name in "sb")
    wanted = centred / np.sqrt((centred**2).mean((2, 3), keepdims=True) + 1e-5) * scale + bias
    np.testing.assert_allclose(reference.evaluate(graph, {"x": x})["y"], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("operator", "hint"),
    [
        ("com.microsoft.nchwc.ReorderInput",
         "onnxruntime wrote it for one kind of CPU: let it optimise at most to ORT_ENABLE_EXTENDED"),
        ("com.microsoft.BeamSearch",
         "an engine computes one step of a sequence: export the decoder that is inside of it"),
        ("ai.onnx.contrib.BertTokenizer",
         ("onnxruntime-extensions has it, for texts and files: begin or end the model at numbers (model.inputs, "
          "model.outputs)")),
        ("org.pytorch.aten.ATen",
         ("PyTorch found no operator of ONNX for it: export with torch.onnx.export(dynamo=True), with a newer opset, "
          "or write it in others")),
        ("trt.TRT_FP8QuantizeLinear",
         "TensorRT alone has it: export the model without its plugins, quantised with ONNX's QuantizeLinear"),
        ("of.somebody.Thing",
         "export the model without it, or offer an importer for it (entry points of bolt_build.ops)"),
    ],
)  # fmt: skip
def test_what_others_alone_have_is_refused_with_what_helps(operator: str, hint: str, tmp_path: Path) -> None:
    domain, op_type = operator.rsplit(".", 1)
    proto = model([node(op_type, "x", "y", "strange", domain=domain)], opsets=[(domain, 1)])
    with pytest.raises(BoltError) as raised:
        bound(tmp_path, proto)
    assert [(each.message, each.hint) for each in raised.value.diagnostics] == [
        (f"operator {operator} is not supported: node 'strange'", hint)
    ]


NARROW = (
    "constants alone may be float8 or of fewer than 8 bits: leave tensors of data in floating point, or quantise them "
    "to integers of 8 bits"
)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (node("Cast", "x", "y", "narrow", to=TensorProto.FLOAT8E5M2),
         "Cast 'narrow': element type float8e5m2 is not supported"),
        (node("QuantizeLinear", "x scale", "y", "narrow", output_dtype=TensorProto.INT4),
         "QuantizeLinear 'narrow': element type int4 is not supported"),
    ],
    ids=["float8", "4 bits"],
)  # fmt: skip
def test_data_of_few_bits_are_refused_with_what_helps(line: onnx.NodeProto, said: str, tmp_path: Path) -> None:
    proto = model([line], constants={"scale": np.asarray(0.5, np.float32)}, opset=21)
    with pytest.raises(BoltError) as raised:
        bound(tmp_path, proto)
    assert [(each.message, each.hint) for each in raised.value.diagnostics] == [(said, NARROW)]
