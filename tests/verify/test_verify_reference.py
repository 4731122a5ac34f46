"""Which versions of a model the reference is given, and what is said of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from alarm_networks import Net
from graph_models import model, node, ones, saved, tensor
from installed_packages import install
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from bolt_build.dtypes import DType
from bolt_build.errors import BoltError
from bolt_build.graph.onnx_import import load_model
from bolt_build.graph.reference import evaluate
from bolt_build.verify import reference as reference_module
from bolt_build.verify.models.readable import Unreadable, Versions, readable, versions_of
from bolt_build.verify.models.widening import without_bf16
from bolt_build.verify.reference import Reference
from bolt_build.verify.taps import Source, Tap

PATH = Path("net.onnx")


def up_to(ir: int, opset: int) -> Callable[[int, int], bool]:
    return lambda stated_ir, stated_opset: stated_ir <= ir and stated_opset <= opset


def relu(opset: int = 17, ir: int = 8) -> onnx.ModelProto:
    proto = model([node("Relu", "x", "y", "relu")], [tensor("x", [1, 4])], opset=opset)
    proto.ir_version = ir
    return proto


def test_a_model_that_can_be_read_stays_what_it_is() -> None:
    assert readable(PATH, relu(), up_to(8, 17)) == relu()


def test_a_model_of_a_newer_ir_is_read_in_an_older_one() -> None:
    assert readable(PATH, relu(ir=14), up_to(13, 17)) == relu(ir=13)


def test_a_newer_opset_is_restated_where_its_operators_are_old() -> None:
    assert readable(PATH, relu(opset=25), up_to(13, 22)) == relu(opset=22)


def test_what_onnxruntime_has_not_in_fp64_is_computed_in_fp32(tmp_path: Path) -> None:
    """DeformableDETR as torch-script exports it: places in fp64 make its samples fp64."""
    nodes = [
        node("Cast", "x", "image", to=TensorProto.DOUBLE),
        node("GridSample", "image places", "samples"),
        node("Cast", "samples", "y", to=TensorProto.FLOAT),
    ]
    proto = model(nodes, [tensor("x", [1, 3, 8, 8])], constants={"places": np.zeros((1, 2, 2, 2))})
    x = np.random.default_rng(0).random((1, 3, 8, 8), np.float32)
    made = Reference(saved(tmp_path, proto), ()).outputs({"x": x})["y"]
    np.testing.assert_allclose(made, np.repeat(x[:, :, 3:5, 3:5].mean((2, 3)), 4).reshape(1, 3, 2, 2), rtol=1e-6)


@pytest.mark.parametrize("padding", ["zeros", "border"])
def test_places_that_are_no_numbers_are_given_as_engines_read_them(tmp_path: Path, padding: str) -> None:
    """onnxruntime reads the first element there, and 0 at 3e9 with the border repeated."""
    sample = node("GridSample", "x places", "y", padding_mode=padding)
    x = np.arange(1, 10, dtype=np.float32).reshape(1, 1, 3, 3)
    across = np.asarray([np.nan, np.inf, -np.inf, 1e30, -1e30, 3e9, 0.5], np.float32)
    places = np.stack([across, np.zeros_like(across)], -1)[None, None]
    proto = model([sample], [tensor("x", x.shape), tensor("places", places.shape)], opset=20)
    path = saved(tmp_path, proto)
    feeds = {"x": x, "places": places}
    wanted = evaluate(load_model(path).bind(1), feeds)["y"]
    np.testing.assert_allclose(Reference(path, ()).outputs(feeds)["y"], wanted, rtol=1e-3)


def test_what_the_largest_are_is_sorted_where_a_model_leaves_the_order_open(tmp_path: Path) -> None:
    """As engines do in any case."""
    topk = node("TopK", "x k", "y places", sorted=0)
    proto = model([topk], [tensor("x", [1, 64])], constants={"k": np.asarray([20])})
    saved(tmp_path, proto)
    x = np.random.RandomState(0).permutation(64).astype(np.float32)[None]
    found = Reference(tmp_path / "test.onnx", ()).outputs({"x": x})
    np.testing.assert_array_equal(found["y"], [np.arange(63.0, 43.0, -1.0)])


def test_nodes_that_share_a_name_are_computed(tmp_path: Path) -> None:
    """onnxruntime loads no model with two nodes of one name. Shapes and kernels do not ask for it."""
    nodes = [node("Relu", "x", "a", "same"), node("Neg", "a", "b", "same"), node("Abs", "b", "y", "other")]
    proto = model(nodes, [tensor("x", [1, 4])])
    assert [each.name for each in readable(PATH, proto, up_to(8, 17)).graph.node] == ["same", "", "other"]
    saved(tmp_path, proto)
    x = np.arange(-1, 3, dtype=np.float32)[None]
    np.testing.assert_array_equal(Reference(tmp_path / "test.onnx", ()).outputs({"x": x})["y"], [[0, 0, 1, 2]])


def test_a_newer_operator_is_converted() -> None:
    proto = model([node("Reshape", "x s", "y")], [tensor("x", [1, 4])], constants={"s": np.asarray([4])}, opset=21)
    found = readable(PATH, proto, up_to(8, 18))
    assert versions_of(found).opset == 18
    assert [line.op_type for line in found.graph.node] == ["Reshape"]


def test_what_cannot_be_converted_is_named() -> None:
    proto = model([node("Swish", "x", "y")], [tensor("x", [1, 4])], opset=24)
    with pytest.raises(Unreadable) as raised:
        readable(PATH, proto, up_to(13, 20))
    assert str(raised.value).startswith(
        "reads opset 20, and operators of the model are newer (Swish); they cannot be converted: "
    )


def test_an_element_type_that_came_with_a_newer_ir() -> None:
    proto = relu(ir=12)
    proto.graph.initializer.append(TensorProto(name="w", data_type=TensorProto.FLOAT8E8M0, dims=[1], raw_data=b"\x7f"))
    with pytest.raises(Unreadable) as raised:
        readable(PATH, proto, up_to(11, 17))
    assert str(raised.value) == "reads IR 11, and the model has what came with IR 12"
    proto.ir_version = 7  # as tools leave it that write such weights into a model
    assert versions_of(readable(PATH, proto, up_to(13, 17))).ir == 12


def test_functions_are_inlined_as_import_does_it() -> None:
    proto = model([node("Twice", "x", "y", "call", domain="local")], [tensor("x", [1, 4])], opsets=[("local", 1)])
    body = [node("Relu", "a", "r"), node("Add", "r r", "b")]
    proto.functions.append(helper.make_function("local", "Twice", ["a"], ["b"], body, [helper.make_opsetid("", 17)]))
    assert [line.op_type for line in readable(PATH, proto, up_to(8, 17)).graph.node] == ["Relu", "Add"]


def test_versions_as_text() -> None:
    assert str(Versions(13, 26)) == "opset 26 and IR 13"


# -- with onnxruntime ----------------------------------------------------------------------------------------------


def test_the_versions_compared_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a runtime that reads less than the model states; the comparison itself is onnxruntime's."""
    monkeypatch.setattr(reference_module, "reads_of", lambda runtime: up_to(8, 16))
    found = Reference(saved(tmp_path, relu(ir=9)), ())
    name = found.version
    assert found.observable == {"y"}
    np.testing.assert_array_equal(found.outputs({"x": -ones(1, 4)})["y"], np.zeros((1, 4)))
    assert found.version == f"{name}, opset 16 and IR 8 (the model has opset 17 and IR 9)"


def test_the_installed_onnx_s_default_can_be_compared(tmp_path: Path) -> None:
    path = saved(tmp_path, relu(onnx.defs.onnx_opset_version(), onnx.IR_VERSION))
    np.testing.assert_array_equal(Reference(path, ()).outputs({"x": ones(1, 4)})["y"], ones(1, 4))


def test_what_shapes_and_constants_decide_is_computed_once_for_all_layers(tmp_path: Path) -> None:
    """Four layers read a mask made of the shape of an activation; each has nodes of its own, none that of the mask."""
    nodes = [
        node("Relu", "x", "t0"),
        node("Shape", "t0", "s"),
        node("ConstantOfShape", "s", "z"),
        node("Cos", "z", "m"),
    ]
    nodes += [node("Mul", f"t{i} m", f"p{i}") for i in range(4)]
    nodes += [node("Add", f"p{i} p{i}", f"t{i + 1}" if i < 3 else "y") for i in range(4)]
    nodes = [*nodes[:4], *(each for pair in zip(nodes[4:8], nodes[8:], strict=True) for each in pair)]
    path = saved(tmp_path, model(nodes, [tensor("x", ["batch", 4])]))
    made: list[onnx.ModelProto] = []

    class Kept(Reference):
        def _session(self, model: onnx.ModelProto, *, whole: bool) -> object:
            made.append(model)
            return super()._session(model, whole=whole)

    reference = Kept(path, ())
    names = ["x", *(f"t{i}" for i in range(4))]
    for batch in (2, 3):
        held = {name: np.full((batch, 4), value, np.float32) for name, value in zip(names, range(5), strict=True)}
        taps = [tap(f"t{i}", f"t{i + 1}" if i < 3 else "y", (batch, 4)) for i in range(4)]
        found = reference.expected(taps, held, {"x": "x"})
        for i, each in enumerate(found):
            np.testing.assert_array_equal(each.tensor, np.full((batch, 4), 2.0 * (i + 1), np.float32))
    piece = Counter(each.op_type for each in made[1].graph.node)
    assert {kind: piece[kind] for kind in ("Shape", "ConstantOfShape", "Cos", "Relu")} == {
        "Shape": 0, "ConstantOfShape": 1, "Cos": 1, "Relu": 0,
    }  # fmt: skip


def tap(source: str, tensor: str, shape: tuple[int, ...]) -> Tap:
    """One that the engine makes of `source` alone, in fp32."""
    fp32 = DType.F32
    return Tap(
        0, tensor, (tensor,), tensor, tensor, "kernel", shape, (Source(source, source, fp32),), fp32, fp32, 1, 1, fp32,
        view=False,
    )  # fmt: skip


def in_bf16() -> onnx.ModelProto:
    """Constants, a node's own constant, a cast and both ends in bf16."""
    nodes = [
        node("Constant", "", "k", value=numpy_helper.from_array(np.asarray([2.0], ml_dtypes.bfloat16))),
        node("Cast", "x", "f", to=TensorProto.FLOAT),
        node("Cast", "f", "b", to=TensorProto.BFLOAT16),
        node("MatMul", "b w", "m"),
        node("Mul", "m k", "y"),
    ]
    weights = {"w": np.full((4, 4), 1 + 2**-7, ml_dtypes.bfloat16)}
    proto = model(nodes, [tensor("x", [1, 4], TensorProto.BFLOAT16)], constants=weights)
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.BFLOAT16
    return proto


def test_a_model_in_bf16_is_compared_in_fp32(tmp_path: Path) -> None:
    found = Reference(saved(tmp_path, in_bf16()), ())
    made = found.outputs({"x": ones(1, 4)})["y"]
    np.testing.assert_array_equal(made, np.full((1, 4), 8 + 2**-4, np.float32))
    assert found.version.endswith(", opset 17 and IR 8, bf16 as fp32")


def test_a_model_without_bf16_stays_what_it_is() -> None:
    proto = relu()
    assert without_bf16(proto) is proto


def test_names_of_a_model_in_bf16_are_not_taken_twice(tmp_path: Path) -> None:
    """Old versions list constants among the inputs; nothing keeps a model from names such as are made up here."""
    proto = in_bf16()
    proto.graph.input.append(tensor("w", [4, 4], TensorProto.BFLOAT16))
    proto.graph.node.append(node("Relu", "m", "bf16:w"))
    made = Reference(saved(tmp_path, proto), ()).outputs({"x": ones(1, 4)})["y"]
    np.testing.assert_array_equal(made, np.full((1, 4), 8 + 2**-4, np.float32))


TRIPLES = """\
from dataclasses import dataclass

from bolt_build.graph.importing import Importer
from bolt_build.graph.ir import Op


@dataclass(frozen=True)
class Triple(Op):
    kind = "triple"

    def infer(self, inputs):
        return tuple(inputs)

    def evaluate(self, inputs):
        return (3 * inputs[0],)


def take(node):
    node.emit(Triple(), [node.input(0)], 0)


IMPORTERS = (Importer("Triple", (1,), take, domain="more"),)
"""


def test_a_reason_is_never_cut(tmp_path: Path) -> None:
    name = "n" * 600
    proto = model([node("Relu", "x", "y", name)], [tensor("x", [1, 4], TensorProto.STRING)])
    with pytest.raises(BoltError) as raised:
        Reference(saved(tmp_path, proto), ()).outputs({})
    (found,) = raised.value.diagnostics
    assert found.message.startswith("onnxruntime does not load the model: ")
    assert name in found.message


def test_an_operator_that_onnxruntime_does_not_know_wants_a_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Import takes the package's operator, verification the function."""
    install(tmp_path / "site", monkeypatch, {"triples.py": TRIPLES}, {"ops": {"triples": "triples"}})
    nodes = [node("Relu", "x", "r"), node("Triple", "r", "y", domain="more")]
    proto = model(nodes, [tensor("x", [1, 4])], opsets=[("more", 1)])
    with pytest.raises(BoltError) as raised:
        Reference(saved(tmp_path, proto), ()).outputs({"x": ones(1, 4)})
    (found,) = raised.value.diagnostics
    assert found.hint == (
        "if onnxruntime does not know more.Triple, give the model a local function of that name, made of ONNX's own "
        "operators: verification computes the function"
    )
    three = node("Constant", "", "three", value=numpy_helper.from_array(np.float32(3)))
    body = [three, node("Mul", "a three", "b")]
    opsets = [helper.make_opsetid("", 17)]
    proto.functions.append(helper.make_function("more", "Triple", ["a"], ["b"], body, opsets))
    path = saved(tmp_path, proto)
    (graph,) = load_model(path).graphs((), (), ())
    assert [each.op.kind for each in graph.nodes] == ["activation", "triple"]
    np.testing.assert_array_equal(Reference(path, ()).outputs({"x": ones(1, 4)})["y"], 3 * ones(1, 4))


def test_a_file_that_states_a_wrong_type_says_how_to_find_it(tmp_path: Path) -> None:
    proto = model([node("Relu", "x", "y")], [tensor("x", [1, 4])])
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    path = saved(tmp_path, proto)
    with pytest.raises(BoltError) as raised:
        Reference(path, ()).outputs({"x": ones(1, 4)})
    (found,) = raised.value.diagnostics
    assert found.hint == (
        "the file states another type than its operators give; this says where: "
        f"python -c \"import onnx; onnx.checker.check_model('{path}', full_check=True)\""
    )


def test_a_reason_of_versions_says_what_would_help(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference_module, "reads_of", lambda runtime: up_to(8, 20))
    proto = model([node("Swish", "x", "y")], [tensor("x", [1, 4])], opset=24)
    with pytest.raises(BoltError) as raised:
        Reference(saved(tmp_path, proto), ()).outputs({})
    (found,) = raised.value.diagnostics
    assert found.message.startswith("onnxruntime reads opset 20, and operators of the model are newer (Swish); ")
    assert found.hint == "install a newer onnxruntime, or export the model with an older opset"


def test_a_cache_that_a_layer_leaves_is_asked_for_where_the_layer_is_computed_again(tmp_path: Path) -> None:
    """onnxruntime's attention needs all its outputs, and cannot tell of what type a cache is that it begins."""
    heads = {"num_heads": 1, "kv_num_heads": 1, "domain": "com.microsoft"}
    single = node("GroupQueryAttention", "x x x - - ends total", "y keys values", "step", **heads)
    given = [tensor("x", [1, 2, 16]), tensor("ends", [1], TensorProto.INT32)]
    constants = {"total": np.asarray(2, np.int32)}
    outputs = ["y", "keys", "values"]
    saved(tmp_path, model([single], given, outputs, constants, opsets=[("com.microsoft", 1)]))
    held = {"x": np.ones((1, 2, 16), np.float32), "ends": np.asarray([1], np.int32)}
    sources = tuple(Source(name, name, dtype) for name, dtype in (("x", DType.F32), ("ends", DType.I32)))
    fp32 = DType.F32
    tap = Tap(0, "step", ("step",), "y", "y", "kernel", (1, 2, 16), sources, fp32, fp32, 1, 1, fp32, False)
    (expected,) = Reference(tmp_path / "test.onnx", ()).expected([tap], held, {name: name for name in held})
    np.testing.assert_allclose(expected.tensor, held["x"], rtol=1e-6)
    assert expected.variance is not None


def test_weights_that_a_batch_normalisation_standardises_are_computed_again_with_all_its_outputs(
    tmp_path: Path,
) -> None:
    """As timm's NF-ResNets are exported: by statistics of the weights, which such a node leaves too."""
    given = {"w": np.arange(12.0, dtype=np.float32).reshape(1, 3, 4), "s": ones(3), "b": 0 * ones(3), "m": ones(3)}
    nodes = [
        node("BatchNormalization", "w s b m s", "unit mean variance", "unit", training_mode=1, epsilon=0.0),
        node("Mul", "x unit", "y", "scale"),
    ]
    saved(tmp_path, model(nodes, [tensor("x", [1, 3, 4])], constants=given))
    held, fp32 = {"x": np.ones((1, 3, 4), np.float32)}, DType.F32
    source = (Source("x", "x", fp32),)
    tap = Tap(0, "scale", ("scale",), "y", "y", "kernel", (1, 3, 4), source, fp32, fp32, 1, 1, fp32, False)
    (expected,) = Reference(tmp_path / "test.onnx", ()).expected([tap], held, {"x": "x"})
    wanted = (np.arange(4) - 1.5) / np.sqrt(1.25)
    np.testing.assert_allclose(expected.tensor, np.broadcast_to(wanted, (1, 3, 4)), rtol=1e-5)


@pytest.mark.parametrize(("plain", "loads"), [("ORT_ENABLE_BASIC", True), ("ORT_DISABLE_ALL", True), ("none", False)])
def test_a_model_that_onnxruntimes_rewriting_fails_at_is_loaded_with_less_of_it(
    plain: str, loads: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, levels = onnxruntime.InferenceSession, onnxruntime.GraphOptimizationLevel

    def fails(model: bytes, options: onnxruntime.SessionOptions, providers: list[str]) -> object:
        if plain == "none" or options.graph_optimization_level.value > getattr(levels, plain).value:
            raise RuntimeError("a name which does not exist")
        return session(model, options, providers=providers)

    net = Net([2, 4])
    path = net.saved(tmp_path / "net.onnx", net.node("Relu", "y", "x"), [2, 4])
    monkeypatch.setattr(onnxruntime, "InferenceSession", fails)
    if not loads:
        with pytest.raises(BoltError, match="does not load the model: a name which does not exist"):
            Reference(path, ()).outputs({"x": np.ones((2, 4), np.float32)})
        return
    np.testing.assert_array_equal(Reference(path, ()).outputs({"x": -np.ones((2, 4), np.float32)})["y"], 0.0)


def test_a_convolution_of_signed_bytes_is_loaded(tmp_path: Path) -> None:
    """onnxruntime makes unsigned weights of signed ones, and has no convolution of signed images with these."""
    random = np.random.RandomState(0)
    x, w = random.randint(-128, 128, (1, 3, 8, 8)).astype(np.int8), random.randint(-128, 128, (4, 3, 3, 3))
    constants = {
        "w": w.astype(np.int8), "s": np.float32(0.5), "z": np.int8(0), "large": np.float32(400),
        "b": np.arange(4, dtype=np.int32),
    }  # fmt: skip
    graph = helper.make_graph(
        [helper.make_node("QLinearConv", ["x", "s", "z", "w", "s", "z", "large", "z", "b"], ["y"], "conv")], "g",
        [helper.make_tensor_value_info("x", TensorProto.INT8, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.INT8, [1, 4, 6, 6])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )  # fmt: skip
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(proto, tmp_path / "net.onnx")
    found = Reference(tmp_path / "net.onnx", ()).outputs({"x": x})["y"]
    (wanted,) = ReferenceEvaluator(proto).run(None, {"x": x})
    assert np.abs(found.astype(int) - wanted.astype(int)).max() <= 1
    assert np.abs(wanted).max() > 20
