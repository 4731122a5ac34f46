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


def test_shorter_inputs_are_padded_to_the_least_plan_that_they_fit(model: Model, reference: Reference) -> None:
    fits = [((1, 1), (1, 8)), ((1, 8), (1, 8)), ((1, 9), (1, 16)), ((2, 5), (2, 8)), ((2, 13), (2, 16))]
    for (batch, length), plan in fits:
        given = feeds(batch, length, seed=length)
        given["attention_mask"][:, 0] = 1
        with model.context(batch, dims={"sequence": length}, padded=True) as context:
            assert context.sizes.numbers == plan
            found = context.run(given)
            wanted = reference.outputs(given)
            assert {name: array.shape for name, array in found.items()} == {n: a.shape for n, a in wanted.items()}
            for name, array in wanted.items():
                np.testing.assert_allclose(found[name], array, atol=1e-5)


def test_a_padded_context_takes_every_size_that_its_plan_holds(model: Model, reference: Reference) -> None:
    """One after the other: what an earlier run left behind the inputs is not read."""
    with model.context(2, dims={"sequence": 16}, padded=True) as context:
        for batch, length in ((2, 16), (1, 3), (2, 9), (1, 16)):
            given = feeds(batch, length, seed=batch * length)
            given["attention_mask"][:, 0] = 1
            found = context.run(given)
            for name, array in reference.outputs(given).items():
                np.testing.assert_allclose(found[name], array, atol=1e-5)
        wrong = {**feeds(2, 9), "attention_mask": np.ones((2, 8), np.int64)}
        with pytest.raises(ValueError, match=r"^input 'input_ids' is int64 \[2, 9\], wanted int64 \[2, 8\]$"):
            context.run(wrong)
        with pytest.raises(ValueError, match=r"wanted int64 \[2, 16\]"):
            context.run(feeds(2, 17))


def test_what_fits_no_plan_is_refused(model: Model) -> None:
    with pytest.raises(EngineError) as wrong:
        model.context(2, dims={"sequence": 17}, padded=True)
    known = "is not one of this engine's: batch 1, 2; sequence 8, 16 (invalid argument)"
    assert str(wrong.value) == f"batch 2, sequence 17 {known}"
    with pytest.raises(EngineError) as wrong:
        model.context(3, dims={"sequence": 8}, padded=True)
    assert str(wrong.value) == f"batch 3, sequence 8 {known}"


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
    np.savez(tmp_path / "short.npz", **feeds(1, 11))
    assert said("--input", str(tmp_path / "short.npz"))[1].startswith("hidden f32 (1, 11, 32): ")
    assert said("--input", str(tmp_path / "short.npz"), "--dim", "sequence=8")[0] == 3
    np.savez(tmp_path / "long.npz", **feeds(1, 17))
    code, wrong = said("--input", str(tmp_path / "long.npz"))
    known = "batch 1, 2; sequence 8, 16; what is smaller is padded along batch and sequence"
    fits = f"none of the engine's sizes fits ({known})"
    assert code == 3
    assert wrong == f"enc-run: input 'input_ids' must be i64 (1, 8); '{tmp_path / 'long.npz'}' is i64 (1, 17): {fits}\n"
    assert said("--bench", "--dim", "sequence") == (2, "enc-run: --dim takes NAME=N, not 'sequence'\n")
    timed = json.loads(said("--bench", "--json", "--runs", "2", "--batch", "2", "--dim", "sequence=8")[1])
    assert (timed["batch"], timed["dims"]) == (2, [["sequence", 8]])
    assert [line for line in said("--info")[1].splitlines() if line.startswith("batch")] == [
        "batch 1, sequence 8", "batch 1, sequence 16", "batch 2, sequence 8", "batch 2, sequence 16",
    ]  # fmt: skip
