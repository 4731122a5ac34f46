"""`bolt-build check --model`: models imported and planned, and nothing built."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from graph_models import model, node, saved, tensor
from onnx import TensorProto

from bolt_build.cli.main import main

RECIPE = "bolt: 1\nmodel: {onnx: net.onnx, batch: [1, 4]}\ntargets: {host: , t4: }\n"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write("Relu")


def write(*operators: str, dtype: int = TensorProto.FLOAT) -> None:
    """A recipe whose model is a chain of unary operators."""
    names = ["x", *(f"v{index}" for index in range(len(operators) - 1)), "y"]
    nodes = [node(operator, names[at], names[at + 1]) for at, operator in enumerate(operators)]
    saved(Path(), model(nodes, [tensor("x", ["N", 8], dtype)]), "net.onnx")
    Path("net.yaml").write_text(RECIPE)


def test_a_model_that_can_be_planned(capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(Path().iterdir())
    assert main(["check", "--model", "net.yaml"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("net.yaml: ok: net, ")
    assert out[1:] == [
        "  host: can be planned: 2 steps for batch 1, 4, weights 0 B, arena 0 B",
        "  t4: can be planned: 4 steps for batch 1, 4, weights 0 B, arena 64 B",
    ]
    assert sorted(Path().iterdir()) == before


def test_planning_visits_no_positions(capsys: pytest.CaptureFixture[str]) -> None:
    """More of them than memory holds, of windows that leave cells out."""
    strided = node("Conv", "x w", "c", pads=[7, 7], strides=[5], dilations=[3])
    ports = [tensor("x", [1, 4, 10**9])]
    saved(
        Path(),
        model([strided, node("Relu", "c", "y")], ports, constants={"w": np.ones((4, 4, 3), np.float32)}),
        "net.onnx",
    )
    Path("net.yaml").write_text(RECIPE.replace("[1, 4]", "1"))
    assert main(["check", "--model", "net.yaml", "--target", "host"]) == 0
    assert "host: can be planned: " in capsys.readouterr().out


def test_only_the_targets_that_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--model", "net.yaml", "--target", "t4"]) == 0
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()[1:]] == ["  t4"]
    assert main(["check", "--model", "net.yaml", "--target", "t5"]) == 2


def test_what_is_wrong_with_any_model_is_reported_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    Path("bad.yaml").write_text(RECIPE.replace("net.onnx", "bad.onnx"))
    Path("wrong.yaml").write_text("bolt: 1\n")
    write("Unique", "NonZero", "Unique")
    Path("net.onnx").rename("bad.onnx")
    write("Relu")
    assert main(["check", "--model", "wrong.yaml", "bad.yaml", "net.yaml", "--format", "json"]) == 3
    report = json.loads(capsys.readouterr().out)
    codes = [each["code"] for each in report["diagnostics"]]
    assert codes[:2] == ["missing-key", "missing-key"]
    assert codes[2:].count("unsupported-op") == 2
    assert [(recipe["name"], [size["target"] for size in recipe["planned"]]) for recipe in report["recipes"]] == [
        ("bad", []), ("net", ["host", "t4"]),
    ]  # fmt: skip


LAYERS = """\
layers:
  "Relu_O": {precision: fp32}
  "/fc/*": {tolerance: 0.1}
  "Relu_0": {persistent: never}
"""


def test_what_is_said_of_layers_that_there_are_none_of(capsys: pytest.CaptureFixture[str]) -> None:
    write("Relu")
    Path("net.yaml").write_text(RECIPE.replace("host: , ", "") + LAYERS)
    assert main(["check", "--model", "net.yaml"]) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines()[0].startswith("net.yaml: ok: net, ")
    assert (
        captured.err
        == """\
planning net for t4
net.yaml:5:3: warning[no-such-layer]: 'Relu_O' matches no layer of the engine for t4
  5 |   "Relu_O": {precision: fp32}
    |   ^^^^^^^^ did you mean 'Relu_0'?
net.yaml:6:3: warning[no-such-layer]: '/fc/*' matches no layer of the engine for t4
  6 |   "/fc/*": {tolerance: 0.1}
    |   ^^^^^^^ 'bolt-build plan net.yaml --target t4' lists the layers
"""
    )
    assert main(["check", "--model", "net.yaml", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["diagnostics"]
    assert [(each["severity"], each["line"]) for each in found] == [("warning", 5), ("warning", 6)]


def test_a_recipe_is_not_ok_whose_model_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    write("NonZero")
    assert main(["check", "net.yaml"]) == 0
    assert main(["check", "--model", "net.yaml"]) == 3
    shown = capsys.readouterr()
    assert shown.out.count(": ok: ") == 1
    assert shown.err.count("error[unsupported-op]") == 1


def test_double_precision_is_the_reason_for_each_target(capsys: pytest.CaptureFixture[str]) -> None:
    write("Softmax", dtype=TensorProto.DOUBLE)
    assert main(["check", "--model", "net.yaml"]) == 3
    said = capsys.readouterr().err
    assert said.count("would be computed in double precision (f64), and 'host' computes in fp32 and bf16\n") == 1
    assert said.count("would be computed in double precision (f64), and 't4' computes in fp16 and fp32\n") == 1


def test_double_precision_in_places_is_computed_in_single(capsys: pytest.CaptureFixture[str]) -> None:
    """A model that reads fp32 is no more exact for a softmax in fp64 between."""
    nodes = [
        node("Cast", "x", "wide", to=TensorProto.DOUBLE),
        node("Softmax", "wide", "shares"),
        node("Cast", "shares", "y", to=TensorProto.FLOAT),
    ]
    saved(Path(), model(nodes, [tensor("x", ["N", 8], TensorProto.FLOAT)]), "net.onnx")
    assert main(["plan", "net.yaml", "--target", "host"]) == 0
    said = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "doubles: Softmax_1: computed in fp32 (no kernel computes softmax in f64)" in said


def test_a_model_that_is_written_here_leaves_nothing_behind(capsys: pytest.CaptureFixture[str]) -> None:
    Path("net.yaml").write_text(f"{RECIPE}variants: {{gelu: {{activation: gelu}}}}\n")
    assert main(["check", "--model", "net.yaml@gelu", "--target", "t4"]) == 0
    assert "  t4: can be planned: " in capsys.readouterr().out
    assert not Path("generated").exists()
