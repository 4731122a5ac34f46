"""LSTM, GRU and RNN: what import makes of them, against onnxruntime, and what is said of those that cannot be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from graph_models import bound, model, node, refusals, tensor
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto

from bolt_build.graph.ir import Array
from bolt_build.graph.reference import evaluate

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
FUNCTIONS = {"LSTM": 3, "GRU": 2, "RNN": 1}


def drawn(seed: int, *shape: int) -> Array:
    return np.random.RandomState(seed).uniform(-1, 1, shape).astype(np.float32)


def layer(
    kind: str, direction: str = "forward", outputs: str = "y h", steps: int = 5, batch: int = 3, width: int = 4,
    hidden: int = 3, given: str = "x w r b - first", **attributes: object,
) -> ModelProto:  # fmt: skip
    """A layer whose inputs `given` names, "-" for one left out: w, r, b and p are constants, the others data."""
    directions, gates = 2 if direction == "bidirectional" else 1, GATES[kind]
    names = given.split()
    constants = {
        "w": drawn(1, directions, gates * hidden, width),
        "r": drawn(2, directions, gates * hidden, hidden),
        "b": drawn(3, directions, 2 * gates * hidden),
        "p": drawn(4, directions, 3 * hidden),
    }
    turned = bool(attributes.get("layout"))
    state = (batch, directions, hidden) if turned else (directions, batch, hidden)
    data = {
        "x": tensor("x", (batch, steps, width) if turned else (steps, batch, width)),
        "first": tensor("first", state),
        "c": tensor("c", state),
        "lengths": tensor("lengths", (batch,), TensorProto.INT32),
    }
    return model(
        [node(kind, given, outputs, direction=direction, hidden_size=hidden, **attributes)],
        [each for name, each in data.items() if name in names],
        [name for name in outputs.split() if name != "-"],
        {name: each for name, each in constants.items() if name in names},
        14,
    )


def inputs_of(proto: ModelProto, steps: int) -> dict[str, Array]:
    found = {}
    for index, value in enumerate(proto.graph.input):
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        found[value.name] = drawn(10 + index, *shape)
        if value.name == "lengths":
            found[value.name] = np.asarray([steps, 1, 0, *[steps - 1] * (shape[0] - 3)][: shape[0]], np.int32)
    return found


def assert_as_onnxruntime(folder: Path, proto: ModelProto, steps: int = 5) -> None:
    inputs = inputs_of(proto, steps)
    graph = bound(folder, proto, inputs["x"].shape[0])
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    found = evaluate(graph, inputs)
    for output, wanted in zip(session.get_outputs(), session.run(None, inputs), strict=True):
        np.testing.assert_allclose(found[output.name], wanted, rtol=2e-5, atol=2e-5, err_msg=output.name)


WITH_ALPHA = ("LeakyRelu", "ThresholdedRelu", "Elu", "Affine", "HardSigmoid", "ScaledTanh")
WITH_BETA = ("Affine", "HardSigmoid", "ScaledTanh")
BOUNDED = {"Tanh", "Sigmoid", "Softsign", "HardSigmoid"}
PLAIN = ("Relu", "Tanh", "Sigmoid", "Softsign", "Softplus", *WITH_ALPHA)


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_agrees_with_onnxruntime(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(list(GATES)))
    direction = data.draw(st.sampled_from(["forward", "reverse", "bidirectional"]))
    directions = 2 if direction == "bidirectional" else 1
    options: dict[str, object] = {}
    if data.draw(st.booleans()):
        options["clip"] = 0.4
    if kind == "GRU" and data.draw(st.booleans()):
        options["linear_before_reset"] = 1
    if kind == "LSTM" and data.draw(st.booleans()):
        options["input_forget"] = 1
    if data.draw(st.booleans()):
        count = FUNCTIONS[kind] * directions
        names = data.draw(st.lists(st.sampled_from(PLAIN), min_size=count, max_size=count))
        options["activations"] = names
        # Where they are left out, onnxruntime has other numbers for some than ONNX says.
        for attribute, users, first in (("activation_alpha", WITH_ALPHA, 0.1), ("activation_beta", WITH_BETA, 0.5)):
            numbers = [first + 0.1 * i for i, name in enumerate(names) if name in users]
            options |= {attribute: numbers} if numbers else {}
        if not BOUNDED.issuperset(names):
            # As gates they let states grow until rounding, and onnxruntime's overflow, is all that is compared.
            options["clip"] = 0.4
    optional = [name if data.draw(st.booleans()) else "-" for name in ("b", "lengths", "first")]
    if kind == "LSTM":
        optional += [name if data.draw(st.booleans()) else "-" for name in ("c", "p")]
    outputs = data.draw(st.sampled_from(["y", "y h", "- h", *(["y h c2", "- - c2", "y - c2"] * (kind == "LSTM"))]))
    proto = layer(kind, direction, outputs, given=" ".join(["x w r", *optional]), **options)
    assert_as_onnxruntime(tmp_path_factory.mktemp("layer"), proto)


def test_is_a_product_of_all_steps_and_a_recurrence(tmp_path: Path) -> None:
    """What nobody reads is not left: here the last states."""
    graph = bound(tmp_path, layer("LSTM", outputs="y h c", given="x w r b"), 5)
    assert [each.op.kind for each in graph.nodes][:2] == ["matmul", "recurrent"]
    proto = layer("LSTM", outputs="y", given="x w r b")
    kinds = [each.op.kind for each in bound(tmp_path, proto, 5).nodes]
    assert kinds == ["matmul", "recurrent", "transpose"]


@pytest.mark.parametrize(
    ("proto", "code", "said"),
    [
        (layer("LSTM", "sideways", steps=1), "unsupported-attribute",
         "LSTM 'LSTM_0': direction 'sideways' is none of forward, reverse, bidirectional"),
        (layer("GRU", layout=2, steps=1, batch=1), "unsupported-attribute", "GRU 'GRU_0': layout 2 is neither 0 nor 1"),
        (layer("RNN", steps=1, activations=["Gelu"]), "unsupported-attribute",
         "RNN 'RNN_0': the activation 'Gelu' is not supported"),
        (layer("GRU", steps=1, activations=["Tanh"]), "invalid-node",
         "GRU 'GRU_0': 1 activations are given where 2 are needed"),
        (layer("LSTM", steps=1, given="x r r b"), "shape-mismatch",
         ("LSTM 'LSTM_0': W [1, 12, 3] and R [1, 12, 3] are not those of 3 hidden units in 1 directions behind an "
          "input [1, 3, 4]")),
    ],
    ids=["direction", "layout", "activation", "activations", "weights"],
)  # fmt: skip
def test_says_what_it_cannot(tmp_path: Path, proto: ModelProto, code: str, said: str) -> None:
    assert refusals(tmp_path, proto) == [(code, said)]
