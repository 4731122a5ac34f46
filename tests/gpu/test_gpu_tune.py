"""`bolt-build tune` on a machine with a GPU: measured, locked, reproduced from records, and built."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from gpu_commands import _PATIENCE_SECONDS, bolt, target_here
from tune_projects import RECIPE, write_model

pytestmark = pytest.mark.gpu


def test_a_model_is_tuned_locked_and_built(tmp_path: Path) -> None:
    write_model(tmp_path / "tiny.onnx")
    (tmp_path / "tiny.yaml").write_text(RECIPE.replace("a100", target_here()).replace("candidates: 3", "candidates: 2"))
    first = bolt(tmp_path, "tune", "tiny.yaml")
    assert set(first["statuses"]) == {"ok"}
    assert first["measured_now"] == first["statuses"]["ok"]
    assert all(problem["winner"] is not None for problem in first["problems"])
    (engine,) = first["engines"]
    assert first["played_now"] == 1
    assert 0 < engine["after"] <= engine["before"] * 1.05
    assert engine["complete"]
    assert {swap["status"] for swap in engine["tried"]} <= {"ok"}
    assert (bool(engine["swaps"]) or engine["other_plan"]) == (engine["gain"] > 0)
    lock = (tmp_path / "tiny.lock").read_bytes()

    again = bolt(tmp_path, "tune", "tiny.yaml")
    assert (again["measured_now"], again["played_now"], again["lock_changed"]) == (0, 0, False)
    assert again["engines"] == first["engines"]
    (tmp_path / "tiny.lock").unlink()
    bolt(tmp_path, "tune", "tiny.yaml", "--from-records")
    assert (tmp_path / "tiny.lock").read_bytes() == lock

    built = bolt(tmp_path, "build", "tiny.yaml", "--locked")
    assert built["targets"][0]["verified"] is True


def test_a_bundle_is_run_without_python_and_imported(tmp_path: Path) -> None:
    write_model(tmp_path / "tiny.onnx")
    (tmp_path / "tiny.yaml").write_text(RECIPE.replace("a100", target_here()).replace("candidates: 3", "candidates: 2"))
    exported = bolt(tmp_path, "tune", "tiny.yaml", "--export", "b.tar")
    there = tmp_path / "there"
    there.mkdir()
    subprocess.run(["tar", "xf", "../b.tar"], cwd=there, check=True)
    # The driver's library may stand where only this says.
    environment = {"PATH": "/nowhere", "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")}
    subprocess.run(["./run"], cwd=there, check=True, env=environment, timeout=_PATIENCE_SECONDS)
    result = bolt(tmp_path, "tune", "tiny.yaml", "--import", "there/results.jsonl")
    assert result["measured_now"] == exported["compile"]["candidates"]
    assert result["lock_changed"]
    # Predictions made the engine that was played; where the measurements make another one, that is said.
    assert result["played_now"] == 1
    assert len(result["engines"]) == 1 or "other-engine" in {each["code"] for each in result["diagnostics"]}
