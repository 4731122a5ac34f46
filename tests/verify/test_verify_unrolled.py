"""Models with graphs inside nodes and sequences, as verification cuts them: in plain operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnxruntime
import pytest
from graph_models import model, node, tensor
from onnx import TensorProto, helper, numpy_helper

from bolt_build.graph.ir import Array
from bolt_build.verify.models.unrolled import has_graphs, unrolled

X = np.random.default_rng(3).standard_normal((2, 3, 4)).astype(np.float32)
PORT = tensor("x", ["N", 3, 4])
WHOLE = {"zero": 0, "one": 1, "two": 2, "three": 3, "five": 5, "last": -1}
CONSTANTS = {name: np.asarray(value, np.int64) for name, value in WHOLE.items()} | {"true": np.asarray(True)}


def graph(
    nodes: Sequence[onnx.NodeProto], inputs: str, outputs: str, constants: Mapping[str, Array] | None = None
) -> onnx.GraphProto:
    """A graph inside a node. Names in capitals are whole numbers, and a question mark stands behind a condition."""

    def port(name: str) -> onnx.ValueInfoProto:
        if name.endswith("?"):
            return tensor(name, [], TensorProto.BOOL)
        return tensor(name, [], TensorProto.INT64) if name.isupper() else tensor(name, None)

    ports = [[port(name) for name in names.split()] for names in (inputs, outputs)]
    made = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    return helper.make_graph(nodes, "inside", *ports, made)


def a_loop_in_a_branch_in_a_loop() -> list[onnx.NodeProto]:
    deep = graph([node("Mul", "a factor", "b"), node("Identity", "on?", "on!?")], "J on? a", "on!? b",
                 {"factor": np.full((4,), 1.5, np.float32)})  # fmt: skip
    then = graph([node("Loop", "two true state", "c", body=deep)], "", "c")
    other = graph([node("Sin", "state", "c")], "", "c")
    nodes = [
        node("Equal", "I one", "is?"), node("If", "is?", "next", then_branch=then, else_branch=other),
        node("ReduceSum", "next", "sum", keepdims=0), node("Add", "N one", "M"), node("Less", "M five", "goes?"),
    ]  # fmt: skip
    body = graph(nodes, "I on? N state", "goes? M next sum")
    return [node("Neg", "x", "n"), node("Loop", "- true two n", "count y z", body=body)]


def a_scan_from_behind() -> list[onnx.NodeProto]:
    body = graph([node("Add", "a part", "b"), node("Mul", "b part", "c")], "a part", "b c")
    scan = node(
        "Scan", "first x", "y z", body=body, num_scan_inputs=1, scan_input_axes=[1], scan_input_directions=[1],
        scan_output_axes=[-1], scan_output_directions=[1],
    )  # fmt: skip
    return [node("ReduceSum", "x axes", "first", keepdims=0), scan]


def parts_of_a_tensor() -> list[onnx.NodeProto]:
    return [
        node("SplitToSequence", "x", "parts", axis=1, keepdims=0),
        node("SplitToSequence", "x two", "pairs", axis=2),
        node("SequenceAt", "parts last", "end"),
        node("SequenceInsert", "parts end zero", "longer"),
        node("SequenceErase", "longer one", "shorter"),
        node("SequenceMap", "shorter pairs_at", "made", body=graph([node("Add", "p q", "r")], "p q", "r")),
        node("ConcatFromSequence", "made", "y", axis=1, new_axis=1),
        node("SequenceLength", "pairs", "count"),
        node("Cast", "count", "number", to=1),
        node("ConcatFromSequence", "pairs", "joined", axis=0),
        node("Mul", "joined number", "z"),
    ]


def give_names(nodes: Sequence[onnx.NodeProto]) -> None:
    """As exporters do, in graphs inside nodes too."""
    for each in nodes:
        each.name = f"/{each.op_type}/{each.output[0]}"
        for attribute in each.attribute:
            give_names(attribute.g.node)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("made", [a_loop_in_a_branch_in_a_loop, a_scan_from_behind, parts_of_a_tensor])
def test_it_computes_what_the_model_computes(made: object, named: bool) -> None:
    assert callable(made)
    constants = CONSTANTS | {"axes": np.asarray([1], np.int64), "pairs_at": np.ones((2, 4), np.float32)}
    nodes = made()
    if named:
        give_names(nodes)
    proto = model(nodes, [PORT], ["y", "z"], constants)
    spelled = unrolled(proto, asked)
    assert not has_graphs(spelled)
    assert not any(attribute.HasField("g") for each in spelled.graph.node for attribute in each.attribute)
    wanted, found = asked(proto, ("y", "z")), asked(spelled, ("y", "z"))
    for name in ("y", "z"):
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-6, err_msg=name)


def test_a_model_without_them_is_left_alone() -> None:
    proto = model([node("Relu", "x", "y")], [PORT])
    assert unrolled(proto, asked) is proto


def asked(proto: onnx.ModelProto, names: tuple[str, ...]) -> dict[str, Array]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip(names, session.run(list(names), {"x": X}), strict=True))
