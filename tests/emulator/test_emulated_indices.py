"""An engine on the emulated GPU that is given an index outside of its axis, by a gather or a sum of rows, and fewer
indices than its plans have."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import emulated
import numpy as np
import pytest
from gpu_commands import bolt
from graph_models import model, node, saved, tensor
from onnx import TensorProto
from shared_folders import SharedFolder

from bolt_build import emulator
from bolt_build.graph.ir import Array
from bolt_build.runtime.loader import Context, Engine, EngineError
from bolt_build.toolchain import probe

RECIPE = """\
bolt: 1
model: {onnx: taken.onnx, batch: 2, dims: {many: [3, 5]}}
targets: {h200: {precision: fp16}}
verify: {samples: 1}
"""
TABLE = np.arange(36, dtype=np.float32).reshape(9, 4)
INSIDE = np.asarray([[0, 1, 8], [-9, 2, 2]], np.int64)
OUTSIDE = np.asarray([[0, 1, 9], [-10, 2, 2]], np.int64)
WORDS = np.linspace(-2, 2, 88, dtype=np.float32).reshape(11, 8)
SAID = "step {} of batch 2, many 3: one of its indices lay outside of an axis and was moved inside (invalid argument)"


@pytest.fixture(scope="module")
def folder(shared_folder: SharedFolder, cache_home: Path) -> Path:
    """Of the engine, built once a run of the tests."""
    if probe(("nvcc", "cutlass")).diagnostics():
        pytest.skip("needs nvcc and CUTLASS")
    # The engine finds the emulated runtime among what is loaded.
    ctypes.CDLL(str(emulator.library(emulated.FOLDER)), ctypes.RTLD_GLOBAL)
    with shared_folder("emulated-indices") as place:
        built = place / "built"
        if not built.exists():
            built.write_text(build(place, cache_home))
        return Path(built.read_text())


def build(place: Path, cache_home: Path) -> str:
    """The engine's directory."""
    nodes = [
        node("Gather", "table places", "y", "taken", axis=0),
        node("Gather", "words at", "w", "words", axis=0),
        node("Add", "w shift", "s", "sum"),
        node("LayerNormalization", "s scale", "n", "normed"),
    ]
    inputs = [tensor(name, ["N", "many"], TensorProto.INT64) for name in ("places", "at")]
    constants = {"table": TABLE, "words": WORDS, "shift": np.ones(8, np.float32), "scale": np.ones(8, np.float32)}
    saved(place, model(nodes, inputs, outputs=("y", "n"), constants=constants), "taken.onnx")
    (place / "taken.yaml").write_text(RECIPE)
    (target,) = bolt(place, "emulate", "taken.yaml", cache=emulated.cache_with_runtime(cache_home))["targets"]
    assert target["verified"]
    return str(target["directory"])


@pytest.fixture
def context(folder: Path) -> Iterator[Context]:
    (library,), (weights,) = folder.glob("lib*.so"), folder.glob("*.weights")
    with Engine(library) as engine, engine.create(weights) as model, model.context(2, dims={"many": 3}) as context:
        yield context


def run(context: Context, places: Array, at: Array | None = None) -> Array:
    return context.run({"places": places, "at": np.zeros_like(places) if at is None else at})["y"]


def test_is_told_once_of_the_run_and_the_next_is_right(context: Context) -> None:
    np.testing.assert_array_equal(run(context, INSIDE), TABLE[INSIDE])
    with pytest.raises(EngineError) as raised:
        run(context, OUTSIDE)
    assert (raised.value.status, str(raised.value)) == (1, SAID.format("0 'taken'"))
    np.testing.assert_array_equal(run(context, INSIDE), TABLE[INSIDE])
    with pytest.raises(EngineError) as raised:
        run(context, INSIDE, OUTSIDE + 2)
    assert str(raised.value) == SAID.format("1 'normed'")


def test_an_observed_run_says_it_itself(context: Context) -> None:
    with pytest.raises(EngineError) as raised:
        context.run_observed({"places": OUTSIDE, "at": INSIDE}, lambda step, name, array: None)
    assert str(raised.value) == SAID.format("0 'taken'")


def test_contexts_are_told_of_their_own_runs(folder: Path) -> None:
    (library,), (weights,) = folder.glob("lib*.so"), folder.glob("*.weights")
    with Engine(library) as engine, engine.create(weights) as model:
        with model.context(2, dims={"many": 3}) as one, pytest.raises(EngineError):
            run(one, OUTSIDE)
        with model.context(2, dims={"many": 3}) as other:
            np.testing.assert_array_equal(run(other, INSIDE), TABLE[INSIDE])


def test_fewer_indices_are_padded(folder: Path) -> None:
    """Rows of five are copied from and to rows of fewer; zeros lie behind them, whatever a run before left there."""
    (library,), (weights,) = folder.glob("lib*.so"), folder.glob("*.weights")
    with Engine(library) as engine, engine.create(weights) as model:
        assert engine.fitting(2, {"many": 2}).numbers == (2, 3)
        with model.context(2, dims={"many": 4}, padded=True) as context:
            assert context.sizes.numbers == (2, 5)
            with pytest.raises(EngineError):
                run(context, np.full((2, 5), 9))
            for many in (4, 1, 5, 2):
                places = np.arange(2 * many).reshape(2, many) % 9
                np.testing.assert_array_equal(run(context, places), TABLE[places])
