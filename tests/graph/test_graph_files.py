"""What a file must be to be taken as a model, and what is said of one that is not."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from graph_models import bound, model, node, ones, saved, tensor
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper

from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.graph.onnx_import import load_model
from bolt_build.graph.onnx_model.binding import INPUT_DTYPES
from bolt_build.graph.reference import evaluate


def diagnostics(path: Path) -> tuple[Diagnostic, ...]:
    """What loading and binding say; every diagnostic is about the file."""
    with pytest.raises(BoltError) as raised:
        load_model(path).bind(1)
    assert raised.value.exit_code is ExitCode.INVALID
    assert all(d.subject == str(path) for d in raised.value.diagnostics)
    return raised.value.diagnostics


def only(path: Path) -> tuple[str, str, str | None]:
    (found,) = diagnostics(path)
    return found.code, found.message, found.hint


def conv_model() -> onnx.ModelProto:
    return model([node("Conv", "x w", "y", "conv")], constants={"w": ones(2, 3, 3, 3)})


def test_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "none.onnx"
    assert only(path) == ("model-not-found", f"the model '{path}' does not exist", None)


def test_directory(tmp_path: Path) -> None:
    assert only(tmp_path) == ("model-is-a-directory", f"'{tmp_path}' is a directory, not an ONNX file", None)


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.onnx")
    (tmp_path / "zero.onnx").symlink_to("/dev/zero")
    assert [only(tmp_path / name) for name in ("pipe.onnx", "zero.onnx")] == [
        ("model-unreadable", f"the model '{tmp_path}/pipe.onnx' cannot be read: a pipe, not a file", None),
        ("model-unreadable", f"the model '{tmp_path}/zero.onnx' cannot be read: a device, not a file", None),
    ]


def test_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "empty.onnx"
    path.write_bytes(b"")
    assert only(path) == ("model-empty", f"the model '{path}' is empty", "export or download it again")


EXPORT = "export the model: torch.onnx.export, or 'bolt-build init MODULE:FUNCTION'"


@pytest.mark.parametrize(
    ("data", "what", "mend"),
    [
        (b"\x89PNG\r\n\x1a\n", "a PNG image", None),
        (b"\xff\xd8\xff\xe0", "a JPEG image", None),
        (
            b"PK\x03\x04rest",
            "a ZIP archive or a checkpoint",
            EXPORT,
        ),
        (b"\x80\x04\x95\x10", "a pickle, as checkpoints are", EXPORT),
        (b"\x64\0\0\0\0\0\0\0{}", "a safetensors file, which has weights alone", EXPORT),
        (
            b"version https://git-lfs.github.com/spec/v1\n",
            "a Git LFS pointer",
            "fetch the file that it stands for: git lfs pull",
        ),
        (
            b"ir_version: 8\ngraph {}\n",
            "ONNX in text form",
            "save it in binary form: onnx.save(onnx.load(path, 'textproto'), path)",
        ),
        (b"<html>", "markup text", None),
    ],
)
def test_file_of_another_kind(tmp_path: Path, data: bytes, what: str, mend: str | None) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    assert only(path) == ("not-onnx", f"'{path}' is not an ONNX file but {what}", mend)


def test_truncated_file(tmp_path: Path) -> None:
    path = saved(tmp_path, conv_model())
    path.write_bytes(path.read_bytes()[:-20])
    hint = "it may be truncated; export or download it again"
    assert only(path) == ("not-onnx", f"'{path}' cannot be parsed as an ONNX file", hint)


def test_file_without_graph(tmp_path: Path) -> None:
    path = saved(tmp_path, onnx.ModelProto(ir_version=8))
    message = f"'{path}' has no graph: it is no ONNX model, or truncated"
    assert only(path) == ("model-without-graph", message, None)


def test_file_larger_than_protobuf_can_be(tmp_path: Path) -> None:
    path = tmp_path / "huge.onnx"
    path.touch()
    os.truncate(path, 2**31)
    hint = "save it with its tensors as external data: onnx.save(model, path, save_as_external_data=True)"
    message = f"the model '{path}' is larger than a protobuf can be (2 GiB)"
    assert only(path) == ("model-too-large", message, hint)


def test_model_without_outputs(tmp_path: Path) -> None:
    path = saved(tmp_path, model([node("Relu", "x", "y")], outputs=()))
    assert only(path) == ("model-without-outputs", "the model's graph has no outputs", None)


def test_opsets_out_of_range(tmp_path: Path) -> None:
    newest = onnx.defs.onnx_opset_version()
    old = saved(tmp_path, model([node("Relu", "x", "y")], opset=6))
    assert only(old) == (
        "unsupported-opset",
        "opset 6 is older than the oldest supported, 7",
        "convert it: onnx.version_converter.convert_version(model, 7) or newer",
    )
    new = saved(tmp_path, model([node("Relu", "x", "y")], opset=newest + 1))
    assert only(new) == (
        "unsupported-opset",
        f"opset {newest + 1} is newer than the newest that the installed onnx {onnx.__version__} knows, {newest}",
        "install a newer onnx package",
    )
    proto = model([node("Relu", "x", "y")])
    del proto.opset_import[:]
    unknown = saved(tmp_path, proto)
    assert only(unknown) == ("invalid-model", "the model does not say which ONNX opset it uses", None)


def test_inputs_that_an_engine_cannot_have(tmp_path: Path) -> None:
    sequence = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)
    inputs = [tensor("x", [1, 4]), tensor("i", [1, 4], TensorProto.STRING), sequence, tensor("u", None)]
    assert [(d.code, d.message) for d in diagnostics(saved(tmp_path, model([node("Relu", "x", "y")], inputs)))] == [
        ("unsupported-dtype", f"the input 'i' is of type string; supported are {', '.join(INPUT_DTYPES)}"),
        ("unsupported-dtype", f"the input 's' is of type sequence; supported are {', '.join(INPUT_DTYPES)}"),
        ("unknown-rank", "the input 'u' does not say how many dimensions it has"),
    ]


def test_names_defined_twice_or_not_at_all(tmp_path: Path) -> None:
    nodes = [
        node("Relu", "later", "a", "first"),
        node("Relu", "x", "later"),
        node("Relu", "x", "later", "again"),
        node("Add", "a nowhere", "y", "add"),
    ]
    path = saved(tmp_path, model(nodes, outputs=("y", "lost")))
    assert [(d.code, d.message) for d in diagnostics(path)] == [
        ("undefined-tensor", "Relu 'first' reads 'later', before it is computed"),
        ("duplicate-tensor", "Relu 'again' defines 'later', which is defined already"),
        ("undefined-tensor", "Add 'add' reads 'nowhere', which nothing defines"),
        ("undefined-tensor", "the graph's output 'lost' is not defined by anything"),
    ]


def test_an_output_that_a_model_gives_twice_is_one_of_the_engine(tmp_path: Path) -> None:
    """By one name a caller can ask for one tensor: onnxruntime returns it twice."""
    nodes = [node("Relu", "x", "y"), node("Neg", "x", "z")]
    assert load_model(saved(tmp_path, model(nodes, outputs=("y", "z", "y")))).outputs == ("y", "z")


def test_nodes_may_stand_in_any_order(tmp_path: Path) -> None:
    """As converters to half precision leave them, which append casts; also those that a graph inside a node reads."""
    nodes = [
        node("Add", "cast x", "sum", "add"),
        node("Relu", "sum", "y", "relu"),
        node("Neg", "x", "minus", "neg"),
        node("Cast", "minus", "cast", "cast", to=TensorProto.FLOAT),
    ]
    found = load_model(saved(tmp_path, model(nodes))).nodes
    assert [each.name for each in found] == ["neg", "cast", "add", "relu"]
    given = [*nodes[2:], *nodes[:2]]
    assert [each.name for each in load_model(saved(tmp_path, model(given))).nodes] == ["neg", "cast", "add", "relu"]


def test_nodes_that_wait_for_each_other_have_no_order(tmp_path: Path) -> None:
    nodes = [node("Add", "x b", "a", "one"), node("Relu", "a", "b", "two"), node("Relu", "b", "y", "three")]
    assert only(saved(tmp_path, model(nodes))) == (
        "undefined-tensor", "Add 'one' reads 'b', before it is computed", None
    )  # fmt: skip


def test_initializers_that_cannot_be_read(tmp_path: Path) -> None:
    proto = conv_model()
    proto.graph.initializer[0].raw_data = b"short"
    proto.graph.initializer.append(proto.graph.initializer[0])
    found = diagnostics(saved(tmp_path, proto))
    assert [d.code for d in found] == ["duplicate-tensor", "broken-tensor"]
    assert found[0].message == "the initializer 'w' is given 2 times"
    assert found[1].message.startswith("the tensor 'w' cannot be read: ")


def test_initializers_of_other_element_types(tmp_path: Path) -> None:
    path = saved(tmp_path, model([node("Add", "x w", "y")], constants={"w": np.ones(4, np.complex64)}))
    message = "the initializer 'w': element type complex64 is not supported"
    assert only(path) == ("unsupported-dtype", message, None)


def test_strings_of_an_initializer_or_input(tmp_path: Path) -> None:
    made = model([node("Equal", "x words", "y")], [tensor("x", [2], TensorProto.STRING)])
    made.graph.initializer.append(helper.make_tensor("words", TensorProto.STRING, [2], [b"a", b"b"]))
    hint = "engines compute numbers: begin or end the model at numbers (model.inputs, model.outputs)"
    said = [(each.message, each.hint) for each in diagnostics(saved(tmp_path, made))]
    assert (f"the input 'x' is of type string; supported are {', '.join(INPUT_DTYPES)}", hint) in said
    assert ("the initializer 'words': element type strings is not supported", hint) in said


SPARSE = {"one number a value": [5, 0], "a row a value": [[1, 2], [0, 0]]}


def sparse_model(places: Any, *, constant: bool = False) -> ModelProto:
    """x times a matrix [2, 3] that is stored as two values, an initializer or a node's."""
    values = numpy_helper.from_array(np.asarray([7, 9], np.float32), "s")
    sparse = helper.make_sparse_tensor(values, numpy_helper.from_array(np.asarray(places, np.int64), "at"), [2, 3])
    if constant:
        nodes = [node("Constant", "", "s", sparse_value=sparse), node("MatMul", "x s", "y")]
        return model(nodes, [tensor("x", (1, 2))])
    proto = model([node("MatMul", "x s", "y")], [tensor("x", (1, 2))])
    proto.graph.sparse_initializer.append(sparse)
    return proto


@pytest.mark.parametrize("constant", [False, True], ids=["initializer", "node"])
@pytest.mark.parametrize("places", SPARSE.values(), ids=SPARSE.keys())
def test_a_sparse_tensor_is_zero_elsewhere(places: list[int], constant: bool, tmp_path: Path) -> None:
    graph = load_model(saved(tmp_path, sparse_model(places, constant=constant))).bind(1)
    np.testing.assert_array_equal(evaluate(graph, {"x": ones(1, 2)})["y"], [[9, 0, 7]])


@pytest.mark.parametrize("places", [[6, 0], 5, [1, 2, 3], [[1], [2]], [[[1, 2], [0, 0]]], [[1, 2]], []], ids=str)
def test_a_sparse_tensor_whose_places_are_none(places: Any, tmp_path: Path) -> None:
    shape = list(np.shape(places))
    message = f"the tensor 's' cannot be read: its indices {shape} are no places of its 2 values in [2, 3]"
    assert only(saved(tmp_path, sparse_model(places))) == ("broken-tensor", message, None)


# -- external data -----------------------------------------------------------------------------------------------


def external_model(tmp_path: Path, location: str, offset: int = 64, length: int | None = None) -> Path:
    """A model whose weight of 216 bytes lies at `offset` of `location`."""
    proto = conv_model()
    (weight,) = proto.graph.initializer
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", 216 if length is None else length)):
        weight.external_data.add(key=key, value=str(value))
    return saved(tmp_path, proto)


def test_external_data_is_read_from_beside_the_model(tmp_path: Path) -> None:
    weight = np.arange(54, dtype=np.float32).reshape(2, 3, 3, 3)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/w.bin").write_bytes(bytes(64) + weight.tobytes())
    found = load_model(external_model(tmp_path, "data/w.bin"))
    np.testing.assert_array_equal(found.bind(1).constant("w"), weight)
    assert found.files == (tmp_path / "test.onnx", tmp_path / "data/w.bin")


def test_missing_external_data(tmp_path: Path) -> None:
    message = f"the data of 'w' is missing: there is no file '{tmp_path / 'w.bin'}'"
    path = external_model(tmp_path, "w.bin")
    assert only(path) == ("external-data", message, "keep the data file beside the model")


@pytest.mark.parametrize("location", ["../w.bin", "/etc/passwd", "a/../../w.bin", "..\\w.bin", "C:\\w.bin", ""])
def test_external_data_outside_the_models_directory(tmp_path: Path, location: str) -> None:
    message = f"the data of 'w' lies at '{location}', outside the model's directory"
    hint = "keep the data in files beside the model"
    assert only(external_model(tmp_path, location)) == ("external-data", message, hint)


def test_external_data_of_the_wrong_size(tmp_path: Path) -> None:
    file = tmp_path / "w.bin"
    file.write_bytes(bytes(64 + 215))
    message = f"the data of 'w' is cut off: '{file}' is too short; download or export it again"
    assert only(external_model(tmp_path, "w.bin")) == ("external-data", message, None)
    message = f"the data of 'w' in '{file}' does not have its 216 bytes"
    assert only(external_model(tmp_path, "w.bin", length=100)) == ("external-data", message, None)
    assert only(external_model(tmp_path, "w.bin", offset=-1)) == ("external-data", message, None)


# -- never a traceback -------------------------------------------------------------------------------------------


def mixed_model() -> bytes:
    """Every kind of attribute and tensor, so that damage can land anywhere."""
    nodes = [
        node("Conv", "x w b", "c", "conv", pads=[1, 1, 1, 1], auto_pad="NOTSET", group=1),
        node("LeakyRelu", "c", "l", "leaky", alpha=0.1),
        node("Constant", "", "shape", "constant", value=numpy_helper.from_array(np.asarray([1, -1], np.int64))),
        node("Reshape", "l shape", "flat", "flatten"),
        node("Softmax", "flat", "y", "softmax", axis=-1),
    ]
    proto = model(nodes, [tensor("x", ["N", 3, 4, 4])], constants={"w": ones(2, 3, 3, 3), "b": ones(2)})
    return proto.SerializeToString()


MIXED = mixed_model()
QUICK = settings(max_examples=300, deadline=None)


def load_and_bind(path: Path, data: bytes) -> None:
    """Anything else that is raised fails the test."""
    path.write_bytes(data)
    with contextlib.suppress(BoltError):
        load_model(path).bind(1)


@QUICK
@given(st.integers(0, len(MIXED)))
def test_any_truncation_is_a_diagnostic_or_a_model(tmp_path: Path, length: int) -> None:
    load_and_bind(tmp_path / "cut.onnx", MIXED[:length])


@QUICK
@given(st.lists(st.tuples(st.integers(0, len(MIXED) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_any_damage_is_a_diagnostic_or_a_model(tmp_path: Path, damage: list[tuple[int, int]]) -> None:
    data = bytearray(MIXED)
    for at, value in damage:
        data[at] = value
    load_and_bind(tmp_path / "damaged.onnx", bytes(data))


def test_the_damaged_model_is_sound_before() -> None:
    assert onnx.load_from_string(MIXED).graph.node[0].name == "conv"


def test_onnx_is_imported_only_when_a_model_is_read() -> None:
    code = "import sys, bolt_build.graph.onnx_import, bolt_build.graph.text; sys.exit('onnx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_element_types_of_inputs(tmp_path: Path) -> None:
    for dtype, name in ((TensorProto.FLOAT16, "f16"), (TensorProto.BFLOAT16, "bf16"), (TensorProto.DOUBLE, "f64")):
        graph = bound(tmp_path, model([node("Relu", "x", "y")], [tensor("x", [1, 4], dtype)]))
        assert [graph.type(value).dtype.value for value in ("x", "y")] == [name, name]
