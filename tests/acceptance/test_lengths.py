"""Engines with several extents of a dimension: one library and table of weights, a plan for each with each batch."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from engine_builds import Built, passing_engine
from length_models import VOCABULARY, encoder

from bolt_build.graph.ir import Array
from bolt_build.runtime import names
from bolt_build.runtime.loader import Engine, EngineError, Model
from bolt_build.sizes import Sizes, sizes_of
from bolt_build.verify.reference import Reference

LENGTHS, BATCHES = (8, 16), (1, 2)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Iterator[Built]:
    folder = tmp_path_factory.mktemp("lengths") / "p"
    with passing_engine(folder, "enc", encoder(), cache, batch=BATCHES, dims={"sequence": (16, 8)}) as found:
        yield found


@pytest.fixture(scope="module")
def model(built: Built) -> Iterator[Model]:
    with Engine(built.library) as engine, engine.create(built.weights, threads=1) as created:
        yield created


@pytest.fixture(scope="module")
def reference(built: Built) -> Reference:
    return Reference(built.directory.parents[2] / "enc.onnx", ())


def feeds(batch: int, length: int, seed: int = 0) -> dict[str, Array]:
    random = np.random.RandomState(seed)
    mask = np.ones((batch, length), np.int64)
    mask[-1, -1] = 0  # a mask of the caller's own
    return {"input_ids": random.randint(0, VOCABULARY, (batch, length)), "attention_mask": mask}


def test_every_length_has_a_plan_with_every_batch_and_is_verified(built: Built) -> None:
    sizes = [Sizes(batch, (("sequence", length),)) for batch in BATCHES for length in LENGTHS]
    assert [plan.sizes for plan in built.plan.plans] == sizes
    assert [(sizes_of(each), each.ok) for each in built.report.batches] == [(each, True) for each in sizes]
    manifest = json.loads((built.directory / names.MANIFEST).read_text())
    plans = manifest["predicate"]["buildDefinition"]["internalParameters"]["batches"]
    assert [(plan["batch"], plan["dims"]["sequence"]) for plan in plans] == [s.numbers for s in sizes]


def test_weights_stand_once_and_what_depends_on_the_length_once_for_each(built: Built) -> None:
    slots = [slot.name for slot in built.plan.weights]
    assert slots.count("words") == slots.count("wo") == 1
    assert [name for name in slots if name.startswith("positions")] == ["positions", "positions@batch1_16"]


def test_a_context_is_of_one_length(built: Built, model: Model, reference: Reference) -> None:
    assert (model.engine.batches, model.engine.dims) == (BATCHES, ("sequence",))
    assert model.engine.sizes == tuple(plan.sizes for plan in built.plan.plans)
    for length in LENGTHS:
        given = feeds(2, length)
        with model.context(2, dims={"sequence": length}) as context:
            found = context.run(given)
            assert len(context.step_seconds(given, 1)) == len(built.plan.plans[2].steps)
        for name, wanted in reference.outputs(given).items():
            np.testing.assert_allclose(found[name], wanted, atol=1e-5)


def test_what_is_not_built_is_refused_with_what_is(model: Model) -> None:
    with pytest.raises(EngineError) as wrong:
        model.engine.inputs(2, {"sequence": 12})
    assert str(wrong.value) == (
        "batch 2, sequence 12 is not one of this engine's: batch 1, 2; sequence 8, 16 (invalid argument)"
    )
    with pytest.raises(ValueError, match=r"^enc was given no extents; it takes sequence 8 or 16$"):
        model.context(2)
    with pytest.raises(ValueError, match=r"^enc was given width 8; it takes sequence 8 or 16$"):
        model.context(2, dims={"width": 8})


def test_the_runner_takes_the_plan_that_its_inputs_fit(built: Built, tmp_path: Path) -> None:
    runner = str(built.directory / names.runner("enc"))
    np.savez(tmp_path / "in.npz", **feeds(2, 16))
    given = ["--input", str(tmp_path / "in.npz")]

    def said(*arguments: str) -> tuple[int, str]:
        done = subprocess.run([runner, *arguments], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    assert said(*given)[1].startswith("hidden f32 (2, 16, 32): ")
    assert said(*given, "--dim", "sequence=16")[0] == 0
    assert said(*given, "--dim", "sequence=8") == (
        3, f"enc-run: input 'input_ids' must be i64 (1, 8); '{tmp_path / 'in.npz'}' is i64 (2, 16)\n"
    )  # fmt: skip
    known = "is not one of this engine's: batch 1, 2; sequence 8, 16\n"
    assert said(*given, "--dim", "sequence=9") == (2, f"enc-run: sequence 9 {known}")
    assert said(*given, "--batch", "2", "--dim", "width=8") == (2, f"enc-run: batch 2, width 8 {known}")
    assert said("--bench", "--dim", "sequence") == (2, "enc-run: --dim takes NAME=N, not 'sequence'\n")
    timed = json.loads(said("--bench", "--json", "--runs", "2", "--batch", "2", "--dim", "sequence=8")[1])
    assert (timed["batch"], timed["dims"]) == (2, [["sequence", 8]])
    assert [line for line in said("--info")[1].splitlines() if line.startswith("batch")] == [
        "batch 1, sequence 8", "batch 1, sequence 16", "batch 2, sequence 8", "batch 2, sequence 16",
    ]  # fmt: skip
