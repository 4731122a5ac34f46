"""Engines of models whose inputs do not share a batch, or whose own batch is fixed, from recipes that give none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from engine_builds import passing_engine
from graph_models import model, node, ones, tensor

from bolt_build.runtime.loader import Engine


def test_inputs_that_do_not_share_the_batch(tmp_path: Path, cache: Path) -> None:
    """The engine is one for the first input's first dimension; the others keep theirs, a scalar has none."""
    lines = [node("Add", "x b", "a"), node("Mul", "a s", "y"), node("Relu", "b", "z")]
    inputs = [tensor("x", [3, 4, 5]), tensor("b", [5]), tensor("s", [])]
    with passing_engine(tmp_path / "p", "apart", model(lines, inputs, ("y", "z")), cache, batch=(), samples=2) as built:
        assert [plan.batch for plan in built.plan.plans] == [3]
        arrays = {
            "x": np.arange(60, dtype=np.float32).reshape(3, 4, 5),
            "b": np.linspace(-1, 1, 5, dtype=np.float32),
            "s": np.asarray(2, np.float32),
        }
        with Engine(built.library) as engine, engine.create(built.weights) as loaded, loaded.context(3) as context:
            found = context.run(arrays)
        np.testing.assert_array_equal(found["y"], (arrays["x"] + arrays["b"]) * 2)
        np.testing.assert_array_equal(found["z"], np.maximum(arrays["b"], 0))


def test_a_fixed_first_dimension_is_the_batch(tmp_path: Path, cache: Path) -> None:
    proto: onnx.ModelProto = model([node("Add", "x w", "a"), node("Relu", "a", "y")], [tensor("x", [32, 4])],
                                   constants={"w": ones(4)})  # fmt: skip
    with passing_engine(tmp_path / "p", "fixed", proto, cache, batch=(), samples=2) as built:
        assert [plan.batch for plan in built.plan.plans] == [32]
