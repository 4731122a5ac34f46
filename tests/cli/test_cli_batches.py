"""Batches of a target's own and extents of dimensions, as verbs see them."""

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


def test_a_plan_of_one_batch_says_what_was_decided_of_it_or_of_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "net.yaml", "--target", "t4", "--batch", "4"]) == 0
    out = capsys.readouterr().out
    assert ("batch 4: planned the arena" in out, "batch 1" in out) == (True, False)
    assert "  lengths: batch: pads shorter inputs" in out


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


def test_graphs_that_differ_are_printed_for_each_target(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "net.yaml"]) == 0
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if line.startswith(("//", "graph"))] == [
        "// net for t4", "graph net batch=1 (%x: f32[1,8]) -> (%y) {",
        "// net for host", "graph net batch=2 (%x: f32[2,8]) -> (%y) {",
    ]  # fmt: skip
    assert out.count("\n\n") == 1


def test_a_graph_that_several_targets_share_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    Path("net.yaml").write_text(RECIPE.replace(", batch: 2", ""))
    assert main(["graph", "net.yaml", "--batch", "4"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("graph net batch=4 (%x: f32[4,8]) -> (%y) {\n")
    assert out.count("graph ") == 1


def test_a_batch_that_some_targets_have_is_printed_for_those(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "net.yaml", "--batch", "2"]) == 0
    assert capsys.readouterr().out.startswith("graph net batch=2 ")
    assert main(["graph", "net.yaml", "--batch", "7"]) == 2
    said = capsys.readouterr().err
    assert "error[unknown-batch]: net.yaml has no batch 7\n" in said
    assert "its batches: 1, 4, 2\n" in said


def test_graphs_of_several_recipes(capsys: pytest.CaptureFixture[str]) -> None:
    Path("other.yaml").write_text(RECIPE.replace("batch: [1, 4]", "batch: 8"))
    assert main(["graph", "net.yaml", "other.yaml", "--stage", "imported"]) == 0
    headings = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("//", "graph"))]
    assert [heading.split(" (")[0] for heading in headings] == [
        "// net", "graph net batch=1", "// other", "graph net batch=8",
    ]  # fmt: skip


LENGTHS = """\
bolt: 1
model: {onnx: net.onnx, batch: [1, 2], dims: {length: [8, 16], width: [3, 5]}}
targets:
  host: {precision: fp32}
"""


@pytest.fixture
def lengths(tmp_path: Path) -> None:
    saved(tmp_path, model([node("Relu", "x", "y")], [tensor("x", ["N", "length", "width"])]), "net.onnx")
    (tmp_path / "net.yaml").write_text(LENGTHS)


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ((), ["1 8 3", "1 8 5", "1 16 3", "1 16 5", "2 8 3", "2 8 5", "2 16 3", "2 16 5"]),
        (("--dim", "length=16"), ["1 16 3", "1 16 5", "2 16 3", "2 16 5"]),
        (("--dim", "length=16", "--dim", "width=3", "--batch", "2"), ["2 16 3"]),
        (("--dim", "length=16", "--dim", "length=8", "--dim", "width=5", "--batch", "1"), ["1 8 5", "1 16 5"]),
    ],
)
def test_one_of_the_extents_is_planned_and_explained(
    arguments: tuple[str, ...], wanted: list[str], lengths: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "net.yaml", "--format", "json", *arguments]) == 0
    (plan,) = json.loads(capsys.readouterr().out)
    assert [" ".join(map(str, (each["batch"], *dict(each["dims"]).values()))) for each in plan["plans"]] == wanted
    assert main(["explain", "net.yaml", *arguments]) == 0
    titles = [line for line in capsys.readouterr().out.splitlines() if line.startswith("batch ")]
    shown = ["batch {}, length {}, width {}:".format(*each.split()) for each in wanted]
    assert [title[: title.index(":") + 1] for title in titles] == shown


def test_decisions_of_other_extents_are_left_out(lengths: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "net.yaml", "--dim", "width=5", "--batch", "2"]) == 0
    out = capsys.readouterr().out
    assert "batch 2, length 8, width 5, batch 2, length 16, width 5: planned the arena" in " ".join(out.split())
    assert ("width 3" in out, "batch 1" in out) == (False, False)


def test_a_graph_is_of_the_extents_that_are_asked_for(lengths: None, capsys: pytest.CaptureFixture[str]) -> None:
    for stage in ("imported", "optimised"):
        assert main(["graph", "net.yaml", "--stage", stage, "--dim", "length=16"]) == 0
        assert "(%x: f32[1,16,3])" in capsys.readouterr().out
        assert main(["graph", "net.yaml", "--stage", stage, "--dim", "width=5", "--batch", "2"]) == 0
        assert "(%x: f32[2,8,5])" in capsys.readouterr().out
    assert main(["graph", "net.yaml", "--format", "mermaid", "--dim", "length=16", "--dim", "width=5"]) == 0
    assert "batch 1, length 16, width 5" in capsys.readouterr().out


@pytest.mark.parametrize("verb", ["plan", "explain", "graph"])
def test_an_extent_that_the_recipe_lacks(verb: str, lengths: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "net.yaml", "--dim", "length=9"]) == 2
    said = capsys.readouterr().err
    assert "error[unknown-extent]: net.yaml has no plan for length 9\n" in said
    assert said.endswith(" it has: length 8, 16; width 3, 5\n")


def test_an_extent_of_a_recipe_whose_dimensions_have_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "net.yaml", "--dim", "length=9"]) == 2
    assert capsys.readouterr().err == (
        "net.yaml:2:1: error[unknown-extent]: net.yaml has no plan for length 9\n"
        "  2 | model: {onnx: net.onnx, batch: [1, 4]}\n"
        "    | ^^^^^ each of its dimensions has one extent\n"
    )
