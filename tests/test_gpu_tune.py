"""`bolt-build tune` on a machine with a GPU: measured, locked, reproduced from records, and built."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tune_projects import RECIPE, write_model

from bolt_build.targets import all_targets
from bolt_build.toolchain.machine import found_gpus

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).resolve().parents[1]
_PATIENCE_SECONDS = 600


def target_here() -> str:
    """The target of the first GPU of this machine."""
    gpus = found_gpus()
    if not gpus:
        pytest.skip("there is no GPU")
    rows = [t.name for t in all_targets() if t.gpu is not None and t.gpu.is_device(gpus[0].name)]
    if not rows:
        pytest.skip(f"no target is a {gpus[0].name}")
    return rows[0]


def bolt(folder: Path, *words: str, cache: Path = Path("cache")) -> dict[str, Any]:
    """The last line of what bolt-build says in JSON; it must end well. `cache` is seen from `folder`."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))}
    command = [sys.executable, "-m", "bolt_build", *words, "--cache", str(cache), "--format", "json"]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=_PATIENCE_SECONDS
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


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
