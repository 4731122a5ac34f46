"""What `bolt-build bench` measures: each batch, and each number of threads where that matters."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from build_graphs import plan_of, shell, write_plan

from bolt_build.build.built import BuiltEngine
from bolt_build.cli import bench
from bolt_build.cli.main import main

# Answers as a runner does, and notes how it was called.
RUNNER = """\
#!/bin/sh
echo "$*" >> "$(dirname "$0")/calls"
echo '{"name": "toy", "target": "TARGET", "batch": 1, "threads": 0, "inputs": "random", "warmup_runs": 1, "runs": 7,
"min_ms": 1.5, "median_ms": 2.0, "p99_ms": 2.5, "images_per_second": 500.0, "context_bytes": 0}'
"""
TASK = shell("nothing", "true", ())


def engine(root: Path, target: str) -> BuiltEngine:
    """An engine "toy" for `target`, of which there is only the runner."""
    directory = write_plan(root, TASK, target=target).target(target)
    plan = plan_of((TASK,))
    found = BuiltEngine(target, directory, replace(plan, graph=replace(plan.graph, target=target)))
    found.runner.write_text(RUNNER.replace("TARGET", target))
    found.runner.chmod(0o755)
    return found


@pytest.fixture
def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[BuiltEngine, ...]:
    """Engines of a CPU and of a GPU, on a machine where both run."""
    both = (engine(tmp_path, "host"), engine(tmp_path, "t4"))
    monkeypatch.setattr(bench, "read_recipes", lambda paths: [type("Named", (), {"name": "toy"})()])
    monkeypatch.setattr(bench, "built_engines", lambda recipe, options: both)
    monkeypatch.setattr(bench, "why_not_here", lambda target: None)
    return both


def calls(found: BuiltEngine) -> list[str]:
    return (found.directory.path / "calls").read_text().splitlines()


def test_threads_are_varied_only_where_runs_take_them(
    engines: tuple[BuiltEngine, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["bench", "toy.yaml", "--threads", "1", "--threads", "2", "--seconds", "0.5"]
    assert main(words) == 0
    on_cpu, on_gpu = engines
    each = "--bench --json --batch 1 --seconds 0.5"
    assert calls(on_cpu) == [f"{each} --threads 1", f"{each} --threads 2"]
    assert calls(on_gpu) == [each]
    assert [line.split() for line in capsys.readouterr().out.splitlines()[1:]] == [
        ["toy", "host", "1", "1", "2.000", "1.500", "2.500", "500.0", "7"],
        ["toy", "host", "1", "2", "2.000", "1.500", "2.500", "500.0", "7"],
        ["toy", "t4", "1", "-", "2.000", "1.500", "2.500", "500.0", "7"],
    ]


def test_without_threads_the_number_is_null_in_json(
    engines: tuple[BuiltEngine, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "toy.yaml", "--threads", "3", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["target"], row["threads"]) for row in rows] == [("host", 3), ("t4", None)]


def test_an_engine_that_cannot_run_here_keeps_no_other_from_being_measured(
    engines: tuple[BuiltEngine, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reason = "this machine has no GPU that CUDA can use"
    monkeypatch.setattr(bench, "why_not_here", lambda target: reason if target.name == "t4" else None)
    assert main(["bench", "toy.yaml", "--threads", "1", "--format", "json"]) == 0
    shown = capsys.readouterr()
    assert [row["target"] for row in json.loads(shown.out)] == ["host"]
    assert shown.err == f"toy/t4: not measured: {reason}\n"


def test_a_batch_that_an_engine_does_not_have(
    engines: tuple[BuiltEngine, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "toy.yaml", "--batch", "9"]) == 2
    assert capsys.readouterr().err == "error[unknown-batch]: toy has none of these batches\n  hint: it has: 1\n"
