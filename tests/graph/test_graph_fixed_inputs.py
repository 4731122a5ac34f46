"""Inputs that a recipe fixes are constants of the model: `model.fixed`."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from graph_models import model, node, tensor
from onnx import TensorProto, numpy_helper

from bolt_build.graph.onnx_model.fixed_inputs import FixedError, FixedMistake, fix_inputs

PORTS = [
    tensor("x", [1, 4]), tensor("rate", [], TensorProto.INT64), tensor("small", [2], TensorProto.UINT8),
    tensor("shift", ["rows", 4]), tensor("on", [1], TensorProto.BOOL), tensor("names", [1], TensorProto.STRING),
    tensor("any", None), tensor("half", [2], TensorProto.FLOAT16), tensor("brain", [2], TensorProto.BFLOAT16),
]  # fmt: skip


def proto() -> onnx.ModelProto:
    return model([node("Add", "x shift", "y")], PORTS)


def mistakes(name: str, value: Any) -> list[tuple[str, str | None]]:
    with pytest.raises(FixedError) as raised:
        fix_inputs(proto(), [(name, value)], {})
    return [(each.message, each.hint) for each in raised.value.mistakes if each.name == name]


def test_a_fixed_input_is_an_initializer_of_its_type_and_shape() -> None:
    fixed = [("rate", 16000), ("small", (1, 2)), ("shift", ((1, 2.5, 3, 4),)), ("on", (True,))]
    found = fix_inputs(proto(), fixed, {}).graph
    assert [each.name for each in found.input] == ["x", "names", "any", "half", "brain"]
    arrays = {each.name: numpy_helper.to_array(each) for each in found.initializer}
    assert {name: (array.dtype.name, array.tolist()) for name, array in arrays.items()} == {
        "rate": ("int64", 16000), "small": ("uint8", [1, 2]), "shift": ("float32", [[1.0, 2.5, 3.0, 4.0]]),
        "on": ("bool", [True]),
    }  # fmt: skip


def test_half_precision_rounds_and_holds_infinity() -> None:
    found = fix_inputs(proto(), [("half", (0.1, float("inf"))), ("brain", 1e6)], {}).graph.initializer
    held = [numpy_helper.to_array(each).astype(np.float64).tolist() for each in found]
    assert held == [[0.0999755859375, np.inf], [999424.0, 999424.0]]


def test_one_number_stands_for_all_elements() -> None:
    found = fix_inputs(proto(), [("small", 7), ("shift", 0.5)], {"rows": 2}).graph.initializer
    assert [numpy_helper.to_array(each).tolist() for each in found] == [[7, 7], [[0.5] * 4] * 2]


def test_inputs_that_only_repeat_an_initializer_are_not_listed_again() -> None:
    old = proto()
    old.ir_version = 3
    old.graph.initializer.append(numpy_helper.from_array(np.zeros((2, 4), np.float32), "shift"))
    found = fix_inputs(old, [("rate", 1)], {})
    assert [each.name for each in found.graph.input] == ["x", "small", "on", "names", "any", "half", "brain"]
    assert found.ir_version == 4
    assert len(old.graph.input) == len(PORTS)


@pytest.mark.parametrize(
    ("name", "value", "message", "hint"),
    [
        ("rat", 1, "the model has no input 'rat'", "did you mean 'rate'?"),
        (
            "sample",
            1,
            "the model has no input 'sample'",
            "its inputs: x, rate, small, shift, on, names, any, half, brain",
        ),
        ("rate", 1.0, "'rate' is int64, and 1.0 is not", "it takes whole numbers, without a point"),
        ("rate", True, "'rate' is int64, and true is not", "it takes numbers"),
        ("on", (1,), "'on' is bool, and 1 is not", "it takes true or false"),
        ("small", (1, 256), "'small' is uint8, which 256 is too large for", None),
        ("small", (-1, 2), "'small' is uint8, which -1 is too small for", None),
        ("small", (1, 2, 3), "'small' has the shape 2, the value 3", None),
        ("rate", (1,), "'rate' has the shape of one element, the value 1", None),
        ("shift", (1, 2, 3, 4), "'shift' has the shape ?x4, the value 4", None),
        ("shift", ((1, 2, 3, 4), (1,)), "the value of 'shift' has rows of several lengths", None),
        ("shift", 1, "'shift' has a dimension whose extent is not known", "write a list of its elements"),
        ("half", (-1e6, 1), "'half' is float16, which -1000000.0 is too small for", None),
        ("brain", 1e39, "'brain' is bfloat16, which 1e+39 is too large for", None),
        ("names", 1, "'names' is string, which no value of a recipe is", None),
    ],
)
def test_a_value_that_an_input_cannot_have(name: str, value: Any, message: str, hint: str | None) -> None:
    assert mistakes(name, value) == [(message, hint)]


def test_all_mistakes_are_found_and_one_input_stays() -> None:
    with pytest.raises(FixedError) as raised:
        fix_inputs(proto(), [("a", 1), ("b", 1)], {})
    assert [each.name for each in raised.value.mistakes] == ["a", "b"]
    alone = model([node("Relu", "x", "y")], [tensor("x", [2])])
    with pytest.raises(FixedError) as raised:
        fix_inputs(alone, [("x", 1)], {})
    message = "all inputs of the model are fixed: its outputs would be constants"
    assert raised.value.mistakes == (FixedMistake("x", message),)
