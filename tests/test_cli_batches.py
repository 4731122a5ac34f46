"""Batches of a target's own, as verbs see them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from graph_models import model, node, saved, tensor

from bolt_build.cli.main import main

RECIPE = """\
bolt: 1
model: {onnx: net.onnx, batch: [1, 4]}
targets:
  t4: {precision: fp16}
  host: {precision: fp32, batch: 2}
"""


@pytest.fixture(autouse=True)
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path, model([node("Relu", "x", "y")], [tensor("x", ["N", 8])]), "net.onnx")
    (tmp_path / "net.yaml").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)


def test_each_target_is_planned_for_its_batches(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "net.yaml", "--format", "json"]) == 0
    plans = json.loads(capsys.readouterr().out)
    assert {plan["target"]: [each["batch"] for each in plan["plans"]] for plan in plans} == {"t4": [1, 4], "host": [2]}


def test_check_names_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "net.yaml"]) == 0
    out = capsys.readouterr().out
    assert out.endswith("batch 1, 4, for t4 (fp16), host (fp32, batch 2)\n")


def test_a_graph_is_of_a_batch_that_its_target_has(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "net.yaml", "--target", "host"]) == 0
    assert "batch=2 (%x: f32[2,8])" in capsys.readouterr().out
    assert main(["graph", "net.yaml", "--target", "host", "--batch", "4"]) == 2
    assert "error[unknown-batch]: net.yaml has no batch 4" in capsys.readouterr().err
    assert main(["graph", "net.yaml", "--stage", "imported", "--batch", "4"]) == 0
    assert "batch=4 (%x: f32[4,8])" in capsys.readouterr().out
