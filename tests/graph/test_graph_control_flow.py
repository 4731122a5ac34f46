"""Loops, scans and sequences whose lengths are known at import: their bodies, once for each turn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from graph_models import bound, model, node, refusals, saved, tensor
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from bolt_build.errors import BoltError
from bolt_build.graph.ir import Array
from bolt_build.graph.nodes import model_import
from bolt_build.graph.onnx_import import load_model
from bolt_build.graph.reference import evaluate
from bolt_build.verify.models.unrolled import unrolled

I64, BOOL = TensorProto.INT64, TensorProto.BOOL
X = np.random.default_rng(7).standard_normal((2, 3, 4)).astype(np.float32)
PORT = tensor("x", ["N", 3, 4])
THREE = {"three": np.asarray(3, np.int64), "true": np.asarray(True)}


def body(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[str],
    outputs: Sequence[str],
    constants: dict[str, Array] | None = None,
) -> onnx.GraphProto:
    """A graph inside a node; what it calls `i` and `going` are the number of a turn and a condition."""
    kinds = {"i": I64, "going": BOOL, "goes": BOOL}
    ports = [
        [tensor(name, [] if name in kinds else None, kinds.get(name, 1)) for name in of] for of in (inputs, outputs)
    ]
    made = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    return helper.make_graph(nodes, "body", *ports, made)


SUM = body(
    [node("Add", "a b", "next"), node("Neg", "next", "each"), node("Identity", "going", "goes")],
    ["i", "going", "a"], ["goes", "next", "each"], {"b": np.full((4,), 0.5, np.float32)},
)  # fmt: skip
"""What is carried grows by a constant of its own; each turn gives the negative."""


def compared(folder: Path, proto: onnx.ModelProto, outputs: int = 1) -> list[Array]:
    """The model's outputs by its graph, which are what ONNX's reference gives."""
    found = evaluate(bound(folder, proto, 2), {"x": X})
    wanted = ReferenceEvaluator(proto).run(None, {"x": X})
    assert len(wanted) == outputs
    for port, array in zip(proto.graph.output, wanted, strict=True):
        np.testing.assert_allclose(found[port.name], array, rtol=1e-6, atol=1e-6, err_msg=port.name)
    return [found[port.name] for port in proto.graph.output]


def test_a_loop_is_its_body_as_often_as_it_runs(tmp_path: Path) -> None:
    nodes = [node("Loop", "three - x", "y z", "loop", body=SUM)]
    proto = model(nodes, [PORT], ["y", "z"], THREE)
    graph = bound(tmp_path, proto, 2)
    found = evaluate(graph, {"x": X})
    np.testing.assert_allclose(found["y"], X + 1.5, rtol=1e-6)
    np.testing.assert_allclose(found["z"], np.stack([-(X + turn / 2) for turn in (1, 2, 3)]), rtol=1e-6)
    assert [each.name for each in graph.nodes[:2]] == ["loop/0/Add_0", "loop/0/Neg_1"]
    assert all(value.synthetic for value in graph.values if value.name not in ("x", "y", "z"))


def test_a_body_reads_the_number_of_its_turn_and_what_is_around_it(tmp_path: Path) -> None:
    inside = body(
        [node("Cast", "i", "number", to=1), node("Mul", "x number", "part"), node("Add", "a part", "next")],
        ["i", "going", "a"], ["going", "next"],
    )  # fmt: skip
    compared(tmp_path, model([node("Loop", "three true x", "y", body=inside)], [PORT], ["y"], THREE))


def test_turns_are_numbered_with_as_many_axes_as_the_body_says(tmp_path: Path) -> None:
    """torch declares the number of a turn with one axis, and slices with it."""
    inside = body(
        [node("Add", "i one", "end"), node("Slice", "x i end", "part"), node("Add", "a part", "next")],
        ["i", "going", "a"], ["going", "next"],
    )  # fmt: skip
    inside.input[0].CopyFrom(tensor("i", [1], I64))
    two = THREE | {"two": np.asarray(2, np.int64), "one": np.asarray([1], np.int64)}
    proto = model([node("Loop", "two true x", "y", body=inside)], [PORT], ["y"], two)
    np.testing.assert_allclose(evaluate(bound(tmp_path, proto, 2), {"x": X})["y"], X + X[:1] + X[1:], rtol=1e-6)


def test_a_loop_ends_where_its_condition_does(tmp_path: Path) -> None:
    """`while`: no number of turns, but a condition that follows from a number that is carried."""
    inside = body(
        [node("Add", "n one", "more"), node("Less", "more five", "goes"), node("Add", "a a", "next")],
        ["i", "going", "n", "a"], ["goes", "more", "next"],
    )  # fmt: skip
    whole = {name: np.asarray(value, np.int64) for name, value in (("one", 1), ("five", 5), ("begin", 2))}
    constants = whole | THREE
    proto = model([node("Loop", "- true begin x", "count y", body=inside)], [PORT], ["y"], constants)
    np.testing.assert_array_equal(compared(tmp_path, proto)[0], 8 * X)


def test_a_loop_that_never_runs_leaves_what_it_was_given(tmp_path: Path) -> None:
    nodes = [node("Loop", "none - x", "y z", "loop", body=SUM), node("Neg", "y", "w")]
    proto = model(nodes, [PORT], ["w"], {"none": np.asarray(0, np.int64)})
    np.testing.assert_array_equal(evaluate(bound(tmp_path, proto, 2), {"x": X})["w"], -X)
    proto.graph.output[0].name = "z"
    assert refusals(tmp_path, proto) == [
        ("unsupported-op", "Loop 'loop': its body never runs, so that a result of its turns has no known shape")
    ]


def test_what_a_loop_hands_on_needs_no_name_of_its_own(tmp_path: Path) -> None:
    """Two carried values change places with each turn."""
    inside = body([], ["i", "going", "a", "b"], ["going", "b", "a"])
    nodes = [node("Neg", "x", "n"), node("Loop", "three true x n", "y z", body=inside)]
    compared(tmp_path, model(nodes, [PORT], ["y", "z"], THREE), 2)


def test_loops_and_branches_lie_inside_each_other(tmp_path: Path) -> None:
    inner = body([node("Mul", "c x", "next")], ["j", "still", "c"], ["still", "next"])
    then = helper.make_graph(
        [node("Loop", "three true a", "chosen", "inner", body=inner)], "then", [], [tensor("chosen", None)]
    )
    other = helper.make_graph([node("Sin", "a", "chosen")], "else", [], [tensor("chosen", None)])
    outer = body(
        [node("Equal", "i three", "same"), node("Not", "same", "differs"),
         node("If", "differs", "next", "choice", then_branch=then, else_branch=other)],
        ["i", "going", "a"], ["going", "next"],
    )  # fmt: skip
    five = THREE | {"five": np.asarray(5, np.int64)}
    proto = model([node("Loop", "five true x", "y", "outer", body=outer)], [PORT], ["y"], five)
    compared(tmp_path, proto)
    names = [each.name for each in bound(tmp_path, proto, 2).nodes]
    assert names[0] == "outer/0/choice/inner/0/Mul_0"
    assert "outer/3/choice/Sin_0" in names


@pytest.mark.parametrize("axis", [0, 2, -2])
@pytest.mark.parametrize("back", [0, 1])
def test_a_scan_is_its_body_for_each_slice(axis: int, back: int, tmp_path: Path) -> None:
    inside = body(
        [node("Add", "total part", "next"), node("Mul", "next part", "each")], ["total", "part"], ["next", "each"]
    )
    begin = np.zeros([extent for index, extent in enumerate(X.shape) if index != axis % 3], np.float32)
    given = {
        "scan_input_axes": [axis], "scan_input_directions": [back],
        "scan_output_axes": [1], "scan_output_directions": [1 - back],
    }  # fmt: skip
    nodes = [node("Scan", "begin x", "y z", body=inside, num_scan_inputs=1, **given)]
    proto = model(nodes, [PORT], ["y", "z"], {"begin": begin})
    moved = np.moveaxis(X, axis, 0)[:: -1 if back else 1]
    sums = np.cumsum(moved, 0)
    found = evaluate(bound(tmp_path, proto, 2), {"x": X})
    np.testing.assert_allclose(found["y"], sums[-1], rtol=1e-5, atol=1e-6)
    each = (sums * moved)[:: 1 if back else -1]
    np.testing.assert_allclose(found["z"], np.moveaxis(each, 0, 1), rtol=1e-5, atol=1e-6)


def test_a_loop_fills_a_sequence(tmp_path: Path) -> None:
    """As torch writes lists that a loop appends to: reshapes whose extents a loop puts together."""
    inside = body(
        [node("Gather", "shape i", "extent"), node("SequenceInsert", "list extent", "longer"),
         node("Identity", "going", "goes")],
        ["i", "going", "list"], ["goes", "longer"],
    )  # fmt: skip
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(I64, []))
    for port in (inside.input[2], inside.output[1]):
        port.CopyFrom(helper.make_value_info(port.name, kind))
    nodes = [
        node("Shape", "x", "shape"),
        node("SequenceEmpty", "-", "empty", dtype=I64),
        node("Loop", "three true empty", "list", body=inside),
        node("SequenceErase", "list first", "rest"),
        node("ConcatFromSequence", "rest", "extents", axis=0, new_axis=1),
        node("Concat", "minus extents", "all", axis=0),
        node("Reshape", "x flat", "row"),
        node("Reshape", "row all", "y"),
    ]
    constants = THREE | {
        "first": np.asarray(0, np.int64), "minus": np.asarray([-1], np.int64), "flat": np.asarray([-1], np.int64),
    }  # fmt: skip
    proto = model(nodes, [PORT], ["y"], constants)
    graph = bound(tmp_path, proto, 2)
    np.testing.assert_array_equal(evaluate(graph, {"x": X})["y"], X)
    assert {each.op.kind for each in graph.nodes} == {"reshape"}


def test_parts_of_one_position_may_be_without_their_axis(tmp_path: Path) -> None:
    """As torch-script writes `unbind` and onnxruntime takes it; ONNX's text has `keepdims` of no account there."""
    nodes = [
        node("SplitToSequence", "x one", "parts", axis=1, keepdims=0),
        node("ConcatFromSequence", "parts", "y", axis=0, new_axis=1),
    ]
    proto = model(nodes, [PORT], ["y"], {"one": np.asarray(1, np.int64)})
    wanted = np.moveaxis(X, 1, 0)
    np.testing.assert_array_equal(evaluate(bound(tmp_path, proto, 2), {"x": X})["y"], wanted)
    written = unrolled(proto, lambda asked, names: {name: np.asarray(X.shape) for name in names})
    np.testing.assert_array_equal(ReferenceEvaluator(written).run(None, {"x": X})[0], wanted)


@pytest.mark.parametrize(
    ("given", "attributes"),
    [
        (np.asarray(2, np.int64), {}), (np.asarray([1, 2], np.int64), {}), (None, {"keepdims": 0}),
        (None, {}),
    ],
)  # fmt: skip
def test_parts_of_a_tensor_are_a_sequence(given: Array | None, attributes: dict[str, int], tmp_path: Path) -> None:
    """`split` and `unbind`, as torch writes them. What is inserted stands in front of a place, or behind all."""
    nodes = [
        node("SplitToSequence", "x" if given is None else "x sizes", "parts", axis=1, **attributes),
        node("SequenceAt", "parts back", "last"),
        node("SequenceInsert", "parts last first", "longer"),
        node("SequenceInsert", "longer last", "longest"),
        node("SequenceLength", "longest", "length"),
        node("Cast", "length", "number", to=1),
        node("ConcatFromSequence", "longest", "joined", axis=-1, new_axis=0),
        node("Mul", "joined number", "y"),
    ]
    if given is not None and given.ndim == 0:
        nodes = [each for each in nodes if each.op_type != "ConcatFromSequence"]
        nodes[-1].input[0] = "last"
    constants = {"back": np.asarray(-1, np.int64), "first": np.asarray(0, np.int64)}
    constants |= {} if given is None else {"sizes": given}
    proto = model(nodes, [PORT], ["y"], constants)
    if given is not None and given.ndim:
        (refused,) = refusals(tmp_path, proto)
        assert refused[1].endswith("[1, 2, 4] and [1, 1, 4] must agree but for axis 2")
        return
    compared(tmp_path, proto)


def test_a_body_for_each_tensor_of_a_sequence(tmp_path: Path) -> None:
    inside = body([node("Mul", "part factor", "each")], ["part", "factor"], ["each"])
    nodes = [
        node("SplitToSequence", "x", "parts", axis=2),
        node("SequenceMap", "parts factor", "made", body=inside),
        node("ConcatFromSequence", "made", "y", axis=2),
    ]
    proto = model(nodes, [PORT], ["y"], {"factor": np.asarray(3.0, np.float32)})
    np.testing.assert_array_equal(evaluate(bound(tmp_path, proto, 2), {"x": X})["y"], 3 * X)


def test_an_optional_value_with_an_element_is_the_element(tmp_path: Path) -> None:
    nodes = [
        node("Optional", "x", "maybe"),
        node("OptionalHasElement", "maybe", "has"),
        node("OptionalGetElement", "maybe", "value"),
        node("Where", "has value zero", "y"),
    ]
    proto = model(nodes, [PORT], ["y"], {"zero": np.asarray(0.0, np.float32)}, opset=18)
    np.testing.assert_array_equal(evaluate(bound(tmp_path, proto, 2), {"x": X})["y"], X)


ONLY = body([node("Neg", "a", "next")], ["i", "going", "a"], ["going", "next"])
STOPS = body(
    [node("ReduceMax", "a", "most", keepdims=0), node("Less", "most limit", "goes"), node("Neg", "a", "next")],
    ["i", "going", "a"], ["goes", "next"], {"limit": np.asarray(9.0, np.float32)},
)  # fmt: skip
FLOW = "depends on data; engines have no control flow"


@pytest.mark.parametrize(
    ("nodes", "code", "said"),
    [
        ([node("Loop", "n - x", "y", "loop", body=ONLY)], "unsupported-op",
         f"Loop 'loop': how often its body runs ('n') {FLOW}"),
        ([node("Loop", "three c x", "y", "loop", body=ONLY)], "unsupported-op",
         f"Loop 'loop': whether it begins ('c') {FLOW}"),
        ([node("Loop", "three - x", "y", "loop", body=STOPS)], "unsupported-op",
         f"Loop 'loop': whether it goes on ('goes') {FLOW}"),
        ([node("Loop", "three - x x", "y", "loop", body=ONLY)], "invalid-node",
         "Loop 'loop': its body has 3 inputs where 4 are given"),
        ([node("SplitToSequence", "x", "s"), node("Neg", "s", "y", "neg")], "invalid-node",
         "Neg 'neg': it takes a tensor, and 's' is a sequence"),
        ([node("SequenceAt", "x three", "y", "at")], "invalid-node",
         "SequenceAt 'at': it takes a sequence, and 'x' is a tensor"),
        ([node("SplitToSequence", "x", "s"), node("SequenceAt", "s three", "y", "at")], "shape-mismatch",
         "SequenceAt 'at': position 3 lies outside of a sequence of 1 tensors"),
        ([node("SplitToSequence", "x", "s"), node("SequenceAt", "s n", "y", "at")], "unsupported-op",
         "SequenceAt 'at': the position ('n') is not a constant"),
        ([node("SequenceConstruct", "x x", "y", "list")], "unsupported-output",
         "the output 'y' is a sequence; an engine's outputs are tensors"),
        ([node("Scan", "x x", "y", "scan", body=ONLY, num_scan_inputs=2)], "invalid-node",
         "Scan 'scan': its body has 3 inputs where 2 are given"),
    ],
    ids=[
        "turns", "begins", "goes", "inputs", "sequence", "tensor", "outside", "where", "output", "scan",
    ],
)  # fmt: skip
def test_what_data_decide_is_refused(nodes: Sequence[onnx.NodeProto], code: str, said: str, tmp_path: Path) -> None:
    ports = [PORT, tensor("n", [], I64), tensor("c", [], BOOL)]
    assert refusals(tmp_path, model(nodes, ports, ["y"], THREE)) == [(code, said)]


@pytest.mark.parametrize(
    ("nodes", "hint"),
    [
        ([node("Loop", "n - x", "y", "loop", body=ONLY)],
         "input 'n' decides: give it a value in the recipe, as model.fixed: {n: VALUE}"),
        ([node("Not", "c", "begins"), node("Loop", "three begins x", "y", "loop", body=ONLY)],
         "input 'c' decides: give it a value in the recipe, as model.fixed: {c: VALUE}"),
        ([node("Loop", "three - x", "y", "loop", body=STOPS)],
         "trace the model with its loops unrolled, or bind what decides (model.dims)"),
    ],
    ids=["turns", "begins", "goes"],
)  # fmt: skip
def test_what_helps_where_data_decide_a_loop(nodes: Sequence[onnx.NodeProto], hint: str, tmp_path: Path) -> None:
    ports = [PORT, tensor("n", [], I64), tensor("c", [], BOOL)]
    with pytest.raises(BoltError) as raised:
        load_model(saved(tmp_path, model(nodes, ports, ["y"], THREE))).bind(1)
    assert [found.hint for found in raised.value.diagnostics] == [hint]


@pytest.mark.parametrize("turns", ["many", "-"], ids=["many", "endless"])
def test_turns_that_are_too_many_are_refused(turns: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a limit that takes less time to reach."""
    monkeypatch.setattr(model_import, "MOST_FILE_NODES", 400)
    nodes = [node("Loop", f"{turns} - x", "y", "loop", body=ONLY)]
    proto = model(nodes, [PORT], ["y"], {"many": np.asarray(1 << 62, np.int64)})
    said = "Loop 'loop': with what is inside it the model has more than 400 nodes"
    assert refusals(tmp_path, proto) == [("model-too-large", said)]


def test_an_operator_that_is_a_function_is_what_defines_it(tmp_path: Path) -> None:
    """One that has no importer: a loss, which names another loss."""
    nodes = [
        node("SoftmaxCrossEntropyLoss", "x labels", "loss logs", "loss", reduction="mean"),
        node("ReduceSum", "logs", "sum"),
        node("Add", "loss sum", "y"),
    ]
    proto = model(nodes, [PORT], ["y"], {"labels": np.asarray([[0, 1, 2, 1], [2, 2, 0, 1]], np.int64)})
    compared(tmp_path, proto)
    names = [each.name for each in bound(tmp_path, proto, 2).nodes]
    assert all(name.startswith(("loss", "ReduceSum", "Add")) for name in names)
