"""What verification writes beside a model's nodes."""

from __future__ import annotations

import pytest
from onnx import helper

from bolt_build.verify.emitter import Emitter


@pytest.mark.parametrize(
    ("outputs", "asked", "names"),
    [
        (["y"], 0, ["v1"]),
        (["y"], 2, ["v1", "v2", "v3"]),  # the reciprocal deviation of a normalisation that leaves its rows alone
        (["y", "", "i"], 0, ["v1"]),
        (["y", "", "i"], 2, ["v1", "", "v2"]),
        (["y", "", ""], 2, ["v1", "", "v2"]),
    ],
)
def test_a_node_again_has_the_output_that_is_asked_for(outputs: list[str], asked: int, names: list[str]) -> None:
    emitter = Emitter(17, "v")
    found = emitter.again(helper.make_node("LayerNormalization", ["x", "s"], outputs), ["x", "s"], output=asked)
    (node,) = emitter.nodes
    assert [*node.output] == names
    assert found == names[asked]


def test_an_operator_of_another_domain_keeps_the_outputs_that_the_model_has() -> None:
    emitter = Emitter(17, "v")
    emitter.again(helper.make_node("SkipLayerNormalization", ["x"], ["y", "", "m"], domain="com.microsoft"), ["x"])
    assert [*emitter.nodes[0].output] == ["v1", "", "v2"]
