"""Einsum: any equation over a few letters, against NumPy; letters that a term repeats are its diagonal."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graph_models import bound, model, node, tensor
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto

from bolt_build.errors import BoltError
from bolt_build.graph.invariants import check
from bolt_build.graph.ir import Array
from bolt_build.graph.reference import evaluate

TERM = st.text("ijkl", min_size=1, max_size=4)


def einsum(equation: str, arrays: list[Array]) -> ModelProto:
    names = [f"x{index}" for index in range(len(arrays))]
    single = node("Einsum", " ".join(names), "y", "node", equation=equation)
    constants = dict(list(zip(names, arrays, strict=True))[1:])
    return model([single], [tensor("x0", arrays[0].shape)], constants=constants)


@given(st.lists(TERM, min_size=1, max_size=3), st.lists(st.integers(1, 3), min_size=4, max_size=4), st.data())
@settings(max_examples=60, deadline=None)
def test_agrees_with_numpy(
    tmp_path_factory: pytest.TempPathFactory, terms: list[str], extents: list[int], data: st.DataObject
) -> None:
    seen = sorted(set("".join(terms)))
    equation = ",".join(terms)
    if data.draw(st.booleans()):
        equation += "->" + "".join(data.draw(st.lists(st.sampled_from(seen), unique=True)))
    extent = dict(zip("ijkl", extents, strict=True))
    random = np.random.RandomState(0)
    arrays = [random.normal(size=[extent[letter] for letter in term]).astype(np.float32) for term in terms]
    graph = bound(tmp_path_factory.mktemp("einsum"), einsum(equation, arrays), arrays[0].shape[0])
    check(graph)
    found = evaluate(graph, {"x0": arrays[0]})["y"]
    np.testing.assert_allclose(found, np.einsum(equation, *arrays), rtol=1e-4, atol=1e-4)


def test_an_axis_of_another_extent_has_no_diagonal(tmp_path: Path) -> None:
    with pytest.raises(BoltError) as raised:
        bound(tmp_path, einsum("ii->i", [np.zeros((2, 3), np.float32)]), 2)
    assert [found.message for found in raised.value.diagnostics] == [
        "Einsum 'node': 'i' stands for the extents 2 and 3"
    ]
