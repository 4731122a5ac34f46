"""An encoder without a mask of which one engine has two lengths: shorter inputs are padded, and attention counts its
keys. On a host, and on the emulated GPU."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import emulated
import numpy as np
import onnxruntime
import pytest
from gpu_commands import bolt
from recipe_projects import Project
from soon_compiled import emitted_soon_compiled

from bolt_build import emulator
from bolt_build.graph.zoo import bert
from bolt_build.runtime.loader import Engine, Model
from bolt_build.toolchain import probe

pytestmark = pytest.mark.large
"""`acceptance/test_lengths.py` builds an engine of several lengths in every run."""

RECIPE = """\
bolt: 1
model: {onnx: tiny.onnx, batch: 2, dims: {sequence: [16, 40]}}
targets: {h200: {precision: fp16}, host: {precision: fp32}}
verify: {samples: 1}
"""
NEAR = {"h200": 2e-2, "host": 1e-4}
"""How far results may be off, relative to numbers of about 1."""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("lengths")
    with (place / "tiny.onnx").open("wb") as file:
        bert.build("tiny", bert.Bert(2, 64, 2, 128, vocabulary=50, positions=64)).write(file, 1)
    (place / "tiny.yaml").write_text(RECIPE)
    return place


@pytest.fixture(scope="module", params=["host", "h200"])
def built(request: pytest.FixtureRequest, project: Path, cache_home: Path) -> tuple[str, Path]:
    name = request.param
    if name == "h200":
        if probe(("nvcc", "cutlass")).diagnostics():
            pytest.skip("needs nvcc and CUTLASS")
        ctypes.CDLL(str(emulator.library(emulated.FOLDER)), ctypes.RTLD_GLOBAL)
        (target,) = bolt(project, "emulate", "tiny.yaml", cache=emulated.cache_with_runtime(cache_home))["targets"]
    else:
        words = ("build", "tiny.yaml", "--target", "host", "--format", "json")
        with emitted_soon_compiled():
            said = Project(project, cache_home).bolt(*words)
        (target,) = json.loads(said.splitlines()[-1])["targets"]
    assert target["verified"]
    return name, Path(target["directory"])


@pytest.fixture
def model(built: tuple[str, Path]) -> Iterator[Model]:
    (library,), (weights,) = built[1].glob("lib*.so"), built[1].glob("*.weights")
    with ExitStack() as stack:
        engine = stack.enter_context(Engine(library))
        yield stack.enter_context(engine.create(weights))


def test_shorter_sequences_give_what_they_give_alone(model: Model, built: tuple[str, Path], project: Path) -> None:
    """One context, lengths in turns: keys behind are not read, whatever a run before left there."""
    whole = onnxruntime.InferenceSession(str(project / "tiny.onnx"), providers=["CPUExecutionProvider"])
    random = np.random.default_rng(5)
    with model.context(2, dims={"sequence": 40}, padded=True) as context:
        for length in (40, 17, 39, 33, 17, 40):
            given = {"input_ids": random.integers(0, 50, (2, length))}
            (expected,) = whole.run(None, given)
            found = context.run(given)["last_hidden_state"]
            assert found.shape == expected.shape
            assert np.abs(found - expected).max() < NEAR[built[0]]


def test_a_short_one_takes_the_least_plan(model: Model, built: tuple[str, Path], project: Path) -> None:
    whole = onnxruntime.InferenceSession(str(project / "tiny.onnx"), providers=["CPUExecutionProvider"])
    given = {"input_ids": np.arange(10).reshape(2, 5)}
    with model.context(2, dims={"sequence": 5}, padded=True) as context:
        assert context.sizes.numbers == (2, 16)
        np.testing.assert_allclose(
            context.run(given)["last_hidden_state"], whole.run(None, given)[0], atol=NEAR[built[0]]
        )
