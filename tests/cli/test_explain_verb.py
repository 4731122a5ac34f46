"""`bolt-build explain` from a recipe: what it reads of lock and records, and how it is asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graph_models import model, node, saved, tensor

from bolt_build.build.builder import BuildOptions
from bolt_build.cli.main import main
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.lockfile.contents import Lock
from bolt_build.lockfile.fingerprint import Device, Fingerprint, TuningTools
from bolt_build.lockfile.text import lock_text
from bolt_build.schema.load import load_recipe
from bolt_build.tuning.choice.lock_part import lock_from
from bolt_build.tuning.records.database import Records
from bolt_build.tuning.records.kernel_record import Record, Statistics, Status
from bolt_build.tuning.trials.tuning_set import ProblemTrials
from bolt_build.workflows.evidence import Evidence, gather

HERE = Fingerprint(Device("NVIDIA H200", 132, 1 << 37, 700, "580.1"), TuningTools("13.0", "4.2", "-O3", "headers"))
RECIPE = """\
bolt: 1
model: {onnx: net.onnx, batch: [2, 8]}
targets: {h200: {precision: fp16}, host: {precision: fp32, batch: 2}}
tuning: {lock: net.lock.yaml}
"""


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    random = np.random.RandomState(0)
    nodes = [node("Conv", "x w", "c", "conv", pads=[1, 1, 1, 1]), node("Relu", "c", "y", "relu")]
    weights = {"w": random.randn(64, 64, 3, 3).astype(np.float32)}
    saved(tmp_path, model(nodes, [tensor("x", ["N", 64, 16, 16])], constants=weights), "net.onnx")
    (tmp_path / "net.yaml").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "net.yaml"


def explained(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    """The JSON of `explain` with these words behind the recipe."""
    assert main(["explain", "net.yaml", *words, "--cache", "cache", "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def evidence(recipe: Path) -> Evidence:
    loaded = load_recipe(recipe)
    return gather(loaded, loaded.targets[0], BuildOptions(), lambda text: None)


def record(trials: ProblemTrials, index: int, median: float) -> Record:
    statistics = Statistics(median, median, median, 0.0, 20, 100)
    return Record(trials.problem.digest, trials.trials[index].candidate, Status.OK, "", statistics)


def layer(explanation: Any, batch: int) -> Any:
    (found,) = (each for each in explanation["batches"] if each["batch"] == batch)
    return next(each for each in found["layers"] if each["name"] == "relu")


def test_without_lock_and_records_it_explains_predictions(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gpu, host = explained(capsys)
    assert [batch["batch"] for batch in gpu["batches"]] == [2, 8]
    assert [batch["batch"] for batch in host["batches"]] == [2]
    for explanation in (gpu, host):
        found = layer(explanation, 2)
        assert (explanation["source"], found["source"], found["measured"]) == ("predictions", "prediction", None)
        assert found["predicted"] > 0
        assert 0 < found["roofline"]["share"] <= 1
        assert found["nodes"] == ["conv", "relu"]
    assert not (recipe.parent / "cache").exists()


def test_with_lock_and_records_it_explains_measurements(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = evidence(recipe)
    convolutions = [each for each in known.problems.problems if isinstance(each.problem.op, Conv)]
    measured = [record(each, index, 9.0 - index) for each in convolutions for index in range(3)]
    with Records(recipe.parent / "cache" / "tuning" / "records.sqlite") as records:
        records.merge(HERE, measured)
        found = records.all(each.problem.digest for each in convolutions)
    lock = Lock((lock_from(known.problems, found, known.engine.covers),))
    recipe.with_name("net.lock.yaml").write_text(lock_text(lock))
    (gpu,) = explained(capsys, "conv", "--target", "h200", "--batch", "8")
    assert [batch["batch"] for batch in gpu["batches"]] == [8]
    found_layer = layer(gpu, 8)
    trials = next(each for each in convolutions if each.problem.digest == found_layer["digest"]).trials
    assert (gpu["source"], found_layer["source"]) == ("net.lock.yaml", "net.lock.yaml")
    assert (found_layer["kernel"], found_layer["measured"]) == (str(trials[2].candidate), 7.0)
    assert (found_layer["runner_up"]["kernel"], found_layer["runner_up"]["time"]) == (str(trials[1].candidate), 8.0)
    assert (found_layer["timed"], found_layer["untimed"]) == (2, len(trials) - 3)
    assert main(["explain", "net.yaml", "--target", "h200"]) == 0
    title = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("net for"))
    assert title == "net for h200 in fp16, 2 of 6 kernels from net.lock.yaml"


def test_a_lock_of_other_problems_gave_no_kernel(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = evidence(recipe)
    pools = [each for each in known.problems.problems if not isinstance(each.problem.op, Conv)][:1]
    with Records(recipe.parent / "cache" / "tuning" / "records.sqlite") as records:
        records.merge(HERE, [record(pools[0], 0, 9.0)])
        found = records.all(each.problem.digest for each in pools)
    other = pools[0].problem.digest
    text = lock_text(Lock((lock_from(known.problems, found, known.engine.covers),))).replace(other, other[::-1])
    recipe.with_name("net.lock.yaml").write_text(text)
    assert main(["explain", "net.yaml", "--target", "h200"]) == 0
    title = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("net for"))
    assert title == "net for h200 in fp16, none of 6 kernels from net.lock.yaml"


def test_text_names_every_target_and_batch(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "net.yaml"]) == 0
    captured = capsys.readouterr()
    titles = [line for line in captured.out.splitlines() if line.startswith(("net for", "batch"))]
    assert titles == [
        "net for h200 in fp16, kernels as predicted: nothing was measured",
        "batch 2: 3 steps, 0 of them views",
        "batch 8: 3 steps, 0 of them views",
        "net for host in fp32, kernels as predicted: nothing was measured",
        "batch 2: 3 steps, 0 of them views",
    ]
    assert captured.err == "planning net for h200\nplanning net for host\n"


def test_an_unknown_layer(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "net.yaml", "convv", "--target", "host"]) == 2
    assert capsys.readouterr().err == (
        "planning net for host\nerror[unknown-layer]: net has no layer 'convv'\n  hint: did you mean 'conv'?\n"
    )


def test_an_unknown_batch(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "net.yaml", "--batch", "3"]) == 2
    assert capsys.readouterr().err == (
        "net.yaml:2:32: error[unknown-batch]: net.yaml has no batch 3\n"
        "  2 | model: {onnx: net.onnx, batch: [2, 8]}\n"
        "    |                                ^^^^^^ its batches: 2, 8\n"
    )


def test_damaged_records_are_a_diagnostic(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = recipe.parent / "cache" / "tuning" / "records.sqlite"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"no database, but long enough to be taken for the head of one by its size alone " * 20)
    assert main(["explain", "net.yaml", "--cache", "cache", "--target", "h200"]) == 3
    assert "error[damaged-records]" in capsys.readouterr().err
