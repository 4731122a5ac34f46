"""Any structure that a protobuf can carry is a model or a diagnostic: what of names, shapes and functions
cannot be is said once, with the node's name."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
import pytest
from graph_models import bound, model, node, of, ones, saved, tensor
from onnx import TensorProto, helper, numpy_helper

from bolt_build.graph.limits import FOLD_GROWTH, FREE_FOLDED_BYTES, MOST_FILE_NODES
from bolt_build.graph.onnx_import import load_model

AT_MOST = "an engine's tensors have at most 8"


# -- names -------------------------------------------------------------------------------------------------------


def test_a_graph_input_given_twice(tmp_path: Path) -> None:
    proto = model([node("Relu", "x", "y")], [tensor("x", [1, 4]), tensor("x", [1, 4])])
    assert of(tmp_path, proto) == [("duplicate-tensor", "the graph input 'x' is given 2 times")]


@pytest.mark.parametrize(
    ("declared", "as_what"),
    [
        (tensor("w", [1, 4]), ""),
        (tensor("w", ["N", None]), ""),
        (tensor("w", None), ""),
        (tensor("w", [1, 3]), "float[1, 3]"),
        (tensor("w", ["N", 4, 1]), "float[N, 4, 1]"),
        (tensor("w", [1, 4], TensorProto.INT64), "int64[1, 4]"),
    ],
)
def test_an_initializer_that_is_not_what_its_graph_input_says(
    tmp_path: Path, declared: onnx.ValueInfoProto, as_what: str
) -> None:
    proto = model([node("Add", "x w", "y")], [tensor("x", [1, 4]), declared], constants={"w": ones(1, 4)})
    if not as_what:
        assert load_model(saved(tmp_path, proto)).bind(1).inputs == ("x",)
        return
    message = f"the initializer 'w' is float[1, 4], but the graph input of that name is declared as {as_what}"
    assert of(tmp_path, proto) == [("invalid-model", message)]


def test_names_left_out(tmp_path: Path) -> None:
    proto = model([node("Relu", "x", "y")], [tensor("x", [1, 4]), tensor("", [1])], ("y", ""), {"": ones(1)})
    assert of(tmp_path, proto) == [
        ("invalid-model", "an initializer has no name"),
        ("invalid-model", "a graph input has no name"),
        ("invalid-model", "a graph output has no name"),
    ]


def test_a_domain_imported_twice(tmp_path: Path) -> None:
    proto = model([node("Relu", "x", "y")], opsets=[("ai.onnx", 18), ("local", 1), ("local", 2), ("far", 2**40)])
    assert of(tmp_path, proto) == [
        ("invalid-model", "the model imports ONNX's own domain twice: opset 17 and 18"),
        ("invalid-model", "the model imports domain 'local' twice: opset 1 and 2"),
        ("invalid-model", f"the model imports domain 'far' in opset {2**40}, which cannot be"),
    ]


def test_a_domain_may_be_imported_twice_in_one_opset(tmp_path: Path) -> None:
    """As models are that were merged of two."""
    proto = model([node("Relu", "x", "y")], opsets=[("ai.onnx", 17), ("local", 1), ("local", 1)])
    assert [each.op.kind for each in bound(tmp_path, proto).nodes] == ["activation"]


# -- nodes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        (node("Where", "true w w w", "y", "n"), "invalid-node", "Where 'n': has 4 inputs, of at most 3"),
        (node("Relu", "x", "y more", "n"), "invalid-node", "Relu 'n': has 2 outputs, of at most 1"),
        (
            node("Expand", "w scalar", "y", "n"),
            "shape-mismatch",
            "Expand 'n': the shape of shape [] must have one axis",
        ),
        (node("Tile", "w scalar", "y", "n"), "shape-mismatch", "Tile 'n': the repeats of shape [] must have one axis"),
        (
            node("Reshape", "x half", "y", "n"),
            "invalid-node",
            "Reshape 'n': the new shape ('half') is of f32, not of integers",
        ),
        (
            node("Clip", "x none -", "y", "n"),
            "shape-mismatch",
            "Clip 'n': the lower bound has 0 elements instead of one",
        ),
        (node("Range", "none w w", "y", "n"), "shape-mismatch", "Range 'n': start has 0 elements instead of one"),
        (
            node("Where", "true w indices", "y", "n"),
            "shape-mismatch",
            "Where 'n': the inputs have different element types: f32, i64",
        ),
        (
            node("ConstantOfShape", "negative", "y", "n"),
            "shape-mismatch",
            "ConstantOfShape 'n': the shape [-4] has a negative extent",
        ),
        (
            node("Mod", "x half", "y", "n"),
            "unsupported-attribute",
            "Mod 'n': of floating-point numbers fmod=0 means nothing before opset 28",
        ),
    ],
)
def test_a_node_that_cannot_be(tmp_path: Path, line: onnx.NodeProto, code: str, message: str) -> None:
    constants = {"true": np.asarray([True]), "w": ones(2), "scalar": np.asarray(3), "half": ones(1)}
    constants |= {"none": ones(0), "indices": np.asarray([0, 0]), "negative": np.asarray([-4])}
    assert of(tmp_path, model([line], [tensor("x", [1, 4])], constants=constants)) == [(code, message)]


def test_an_attribute_given_twice(tmp_path: Path) -> None:
    line = node("LeakyRelu", "x", "y", "n", alpha=0.1)
    line.attribute.append(helper.make_attribute("alpha", 0.2))
    assert of(tmp_path, model([line])) == [("invalid-node", "LeakyRelu 'n': attribute 'alpha' is given 2 times")]


def test_an_attribute_that_only_a_call_gives(tmp_path: Path) -> None:
    line = node("LeakyRelu", "x", "y", "n", alpha=0.1)
    line.attribute[0].ref_attr_name = "slope"
    message = "LeakyRelu 'n': attribute 'alpha' is of a kind that is not supported"
    assert of(tmp_path, model([line])) == [("unsupported-attribute", message)]


# -- shapes ------------------------------------------------------------------------------------------------------


def test_dimensions_without_elements(tmp_path: Path) -> None:
    inputs = [tensor("x", [1, 4]), tensor("a", [1, 0]), tensor("b", [-2])]
    assert of(tmp_path, model([node("Relu", "x", "y")], inputs)) == [
        ("empty-input", "dimension 1 of the input 'a' is 0, so that it has no elements"),
        ("empty-input", "dimension 0 of the input 'b' is -2, so that it has no elements"),
    ]


def test_a_dimension_of_minus_one_is_one_without_an_extent(tmp_path: Path) -> None:
    graph = load_model(saved(tmp_path, model([node("Relu", "x", "y")], [tensor("x", [-1, 4])]))).bind(3)
    assert graph.type("x").shape == (3, 4)


def test_an_initializer_with_a_negative_dimension(tmp_path: Path) -> None:
    proto = model([node("Add", "x w", "y")], constants={"w": ones(8, 8)})
    proto.graph.initializer[0].dims[:] = [-1, 8]
    message = "the tensor 'w' cannot be read: its shape [-1, 8] has a negative extent"
    assert of(tmp_path, proto) == [("broken-tensor", message)]


def test_a_constant_with_a_negative_dimension(tmp_path: Path) -> None:
    value = numpy_helper.from_array(ones(8))
    value.dims[:] = [-1]
    proto = model([node("Constant", "", "w", "c", value=value), node("Add", "x w", "y")])
    message = "the tensor 'value' of Constant 'c' cannot be read: its shape [-1] has a negative extent"
    assert of(tmp_path, proto)[0] == ("broken-tensor", message)


# -- sizes -------------------------------------------------------------------------------------------------------


def beyond(op_type: str, made: int, given: int) -> str:
    """What is said of a constant of `made` bytes in a model with constants of `given` that are used."""
    left = FREE_FOLDED_BYTES + FOLD_GROWTH * given
    return f"{op_type} 'n': its constant result has {made} bytes, where {left} are left for all that is computed"


def uncountable(op_type: str, shape: list[int]) -> str:
    elements = math.prod(shape)
    return f"{op_type} 'n': the shape {shape} has {elements} elements, whose bytes 63 bits cannot count"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (node("ConstantOfShape", "large", "y", "n"), beyond("ConstantOfShape", 2**32, 8)),
        (node("ConstantOfShape", "larger", "y", "n"), uncountable("ConstantOfShape", [2**30, 2**30])),
        (node("Range", "zero far one", "y", "n"), beyond("Range", 2**33, 24)),
        (node("Range", "zero endless one_f", "y", "n"), "Range 'n': a range from 0.0 to inf by 1.0 never ends"),
        (node("Pad", "x pads", "y", "n"), f"Pad 'n': the shape [{2**62 + 1}] has an axis of more than {2**31 - 1}"),
        (node("Reshape", "x axes", "y", "n"), f"Reshape 'n': the shape {[1] * 9} has 9 axes; {AT_MOST}"),
    ],
)
def test_what_is_too_large_is_refused_before_it_is_computed(tmp_path: Path, line: onnx.NodeProto, message: str) -> None:
    constants = {
        "w": ones(1), "large": np.asarray([2**30]), "larger": np.asarray([2**30, 2**30]), "zero": np.asarray(0),
        "one": np.asarray(1), "far": np.asarray(2**30), "endless": np.asarray(np.inf, np.float32),
        "one_f": np.asarray(1, np.float32), "pads": np.asarray([2**62, 0]), "axes": np.ones(9, np.int64),
    }  # fmt: skip
    ((_, found),) = of(tmp_path, model([line], [tensor("x", [1])], constants=constants))
    assert found == message


@pytest.mark.parametrize("op_type", ["Tile", "Expand"])
def test_what_is_too_large_to_be_computed_here_is_left_to_a_kernel(tmp_path: Path, op_type: str) -> None:
    """Of operators that have kernels: the graph says how large it is, and holds nothing of that size."""
    constants = {"w": ones(1), "large": np.asarray([2**30])}
    path = saved(tmp_path, model([node(op_type, "w large", "y", "n")], [tensor("x", [1])], constants=constants))
    graph = load_model(path).bind(1)
    assert graph.type("y").shape == (2**30,)
    assert graph.constant("y") is None


def test_indices_that_repeat_for_every_image_are_repeated_by_a_kernel(tmp_path: Path) -> None:
    """Those of pairs, as large as all scores: a model has them for each layer. Smaller ones are constants."""
    extents = {"many": np.asarray([96, 512, 512]), "few": np.asarray([2, 1, 1])}
    lines = [node("Expand", "w many", "y"), node("Expand", "w few", "z")]
    pairs = np.zeros((1, 512, 512), np.int64)
    proto = model(lines, [tensor("x", [1])], constants={"w": pairs, **extents}, outputs=("y", "z"))
    graph = load_model(saved(tmp_path, proto)).bind(1)
    assert [each.op.kind for each in graph.nodes] == ["expand", "identity"]


def test_constants_that_double_are_computed_only_up_to_a_limit(tmp_path: Path) -> None:
    """The rest is left to kernels, and takes no memory here."""
    lines = [node("Concat", f"v{i} v{i}", f"v{i + 1}", f"double{i}", axis=0) for i in range(14)]
    proto = model([*lines, node("Add", "x v14", "y")], [tensor("x", [1])], constants={"v0": ones(1 << 16)})
    graph = load_model(saved(tmp_path, proto)).bind(1)
    assert graph.type("y").shape == (1 << 30,)
    held = sum(value.type.nbytes for value in graph.values if value.constant is not None)
    assert held <= FREE_FOLDED_BYTES + FOLD_GROWTH * 4 * (1 << 16)


def test_a_constant_that_takes_too_long_is_left_to_a_kernel(tmp_path: Path) -> None:
    """A window over padding that is larger than any memory."""
    lines = [node("Conv", "w k", "c", "conv", pads=[1 << 30, 1 << 30], strides=[1 << 30]), node("Add", "x c", "y")]
    proto = model(lines, [tensor("x", [1, 1, 1])], constants={"w": ones(1, 1, 1), "k": ones(1, 1, 1)})
    graph = load_model(saved(tmp_path, proto)).bind(1)
    assert graph.constant("c") is None


# -- functions ---------------------------------------------------------------------------------------------------


def with_functions(bodies: dict[str, list[onnx.NodeProto]]) -> onnx.ModelProto:
    """A model that calls the first of `bodies`, local functions from "a" to "b"."""
    proto = model([node(next(iter(bodies)), "x", "y", "call", domain="local")], opsets=[("local", 1)])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    for name, body in bodies.items():
        proto.functions.append(helper.make_function("local", name, ["a"], ["b"], body, imports))
    return proto


def call(name: str, inputs: str, outputs: str) -> onnx.NodeProto:
    return node(name, inputs, outputs, domain="local")


def test_functions_that_call_themselves(tmp_path: Path) -> None:
    proto = with_functions({"F": [call("G", "a", "b")], "G": [call("F", "a", "b")]})
    message = "functions of the model call themselves, or each other in a circle: 'F', 'G'"
    assert of(tmp_path, proto) == [("invalid-model", message)]


def test_functions_that_become_too_much_are_refused_before_they_are_inlined(tmp_path: Path) -> None:
    twice = {f"F{i}": [call(f"F{i + 1}", "a", "m"), call(f"F{i + 1}", "m", "b")] for i in range(40)}
    proto = with_functions(twice | {"F40": [node("Relu", "a", "b")]})
    message = f"the model has {2**40} nodes once its functions are inlined; supported are {MOST_FILE_NODES}"
    assert of(tmp_path, proto) == [("model-too-large", message)]


def chain(folded: int, computing: int) -> onnx.ModelProto:
    """As many nodes that only a constant decides, and as many that compute with data."""
    nodes = [node("Neg", f"c{i}", f"c{i + 1}") for i in range(folded)]
    nodes += [node("Mul", f"x{i} c{folded}", f"x{i + 1}") for i in range(computing)]
    nodes[-1].output[0] = "y"
    return model(nodes, [tensor("x0", [1, 1])], constants={"c0": ones(1)})


def test_too_many_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that compute with data are counted once all others are computed."""
    monkeypatch.setattr("bolt_build.graph.nodes.model_import.MOST_NODES", 8)
    monkeypatch.setattr("bolt_build.graph.onnx_model.onnx_structure.MOST_FILE_NODES", 20)
    assert len(load_model(saved(tmp_path, chain(12, 8))).bind(1).nodes) == 8
    message = "9 nodes of the model compute with data; supported are 8"
    assert of(tmp_path, chain(11, 9)) == [("model-too-large", message)]
    message = "the model's outputs depend on 21 nodes; supported are 20"
    assert of(tmp_path, chain(13, 8)) == [("model-too-large", message)]


def test_functions_inside_each_other_too_deep(tmp_path: Path) -> None:
    chain = {f"F{i}": [call(f"F{i + 1}", "a", "b")] for i in range(3000)}
    proto = with_functions(chain | {"F3000": [node("Relu", "a", "b")]})
    assert of(tmp_path, proto) == [
        ("model-too-large", "the model's functions call each other 3001 deep; supported are 50")
    ]


def test_a_function_given_twice(tmp_path: Path) -> None:
    proto = with_functions({"F": [node("Relu", "a", "b")]})
    proto.functions.append(proto.functions[0])
    assert of(tmp_path, proto) == [("invalid-model", "the function 'F' of domain 'local' is given 2 times")]


def test_functions_with_constants_that_calls_multiply(tmp_path: Path) -> None:
    constant = node("Constant", "", "c", value=numpy_helper.from_array(ones(1 << 18)))
    calls = [call("G", "a" if i == 0 else f"m{i}", "b" if i == 999 else f"m{i + 1}") for i in range(1000)]
    ((code, message),) = of(tmp_path, with_functions({"F": calls, "G": [constant, node("Add", "a c", "b")]}))
    assert code == "model-too-large"
    assert message.endswith("bytes once its functions are inlined; supported are 536870912")


def test_a_reshaped_constant_takes_no_memory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither does what is beyond the limit and only moved: a kernel does that."""
    monkeypatch.setattr("bolt_build.graph.budget.FREE_FOLDED_BYTES", 0)
    shapes = {f"s{i}": np.asarray([64, -1] if i % 2 else [-1, 64]) for i in range(8)}
    lines = [node("Reshape", f"v{i} s{i}", f"v{i + 1}", f"n{i}") for i in range(8)]
    lines += [node("Concat", "v8 v8 v8 v8", "y", "c", axis=0)]
    constants = {"v0": np.arange(64 * 64).reshape(64, 64), **shapes}
    graph = load_model(saved(tmp_path, model(lines, [tensor("x", [1])], constants=constants))).bind(1)
    assert [each.op.kind for each in graph.nodes] == ["concat"]
    assert graph.constant(graph.nodes[0].inputs[0]) is not None
