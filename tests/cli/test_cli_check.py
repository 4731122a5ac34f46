"""`bolt-build check`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bolt_build.cli.main import main

GOOD = "bolt: 1\nmodel: {zoo: resnet50, batch: [1, 32]}\ntargets: {host: {precision: bf16}}\n"
BAD = "bolt: 1\nmodel: {zoo: resnet50}\ntargets: {host: }\nverfy: {}\n"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("good.yaml").write_text(GOOD)
    Path("bad.yaml").write_text(BAD)


def test_a_good_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "good.yaml"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "good.yaml: ok: good, zoo model resnet50, batch 1, 32, for host (bf16)\n"
    assert captured.err == ""


def test_every_mistake_of_every_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "bad.yaml", "good.yaml", "gone.yaml"]) == 3
    captured = capsys.readouterr()
    assert captured.out == "good.yaml: ok: good, zoo model resnet50, batch 1, 32, for host (bf16)\n"
    assert (
        captured.err
        == """\
bad.yaml:4:1: error[unknown-key]: 'verfy' is not a key of a recipe
  4 | verfy: {}
    | ^^^^^ did you mean 'verify'?
gone.yaml: error[no-such-file]: no such recipe
"""
    )


def test_a_mistake_that_two_recipes_inherit_is_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.yaml").write_text("bolt: 1\nextend: bad.yaml\n")
    Path("b.yaml").write_text("bolt: 1\nextend: bad.yaml\n")
    assert main(["check", "a.yaml", "b.yaml"]) == 3
    assert capsys.readouterr().err.count("error[") == 1


def test_a_model_that_the_zoo_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    Path("net.yaml").write_text(GOOD.replace("resnet50", "resnet5"))
    assert main(["check", "net.yaml"]) == 3
    assert (
        capsys.readouterr().err
        == """\
net.yaml:2:14: error[unknown-zoo-model]: unknown zoo model 'resnet5'
  2 | model: {zoo: resnet5, batch: [1, 32]}
    |              ^^^^^^^ did you mean 'resnet50'?
"""
    )


def test_a_pass_that_the_planner_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    Path("net.yaml").write_text(GOOD + "policy: {skip: [add-stacks, gate-sums]}\n")
    assert main(["check", "net.yaml"]) == 3
    line = len(GOOD.splitlines()) + 1
    assert (
        capsys.readouterr().err
        == f"""\
net.yaml:{line}:17: error[unknown-pass]: there is no pass 'add-stacks'
  {line} | policy: {{skip: [add-stacks, gate-sums]}}
    |                 ^^^^^^^^^^ did you mean 'add-stacked'?
"""
    )


def test_names_that_only_the_zoo_and_the_planner_know_beside_other_mistakes(capsys: pytest.CaptureFixture[str]) -> None:
    Path("net.yaml").write_text(
        "bolt: 1\nmodel: {zoo: resnet5}\ntargets: {host: {precision: fp16}}\npolicy: {skip: [gate-sum, add-stacks]}\n"
    )
    assert main(["check", "net.yaml"]) == 3
    assert (
        capsys.readouterr().err
        == """\
net.yaml:2:14: error[unknown-zoo-model]: unknown zoo model 'resnet5'
  2 | model: {zoo: resnet5}
    |              ^^^^^^^ did you mean 'resnet50'?
net.yaml:3:29: error[unsupported-precision]: the target 'host' does not compute in fp16
  3 | targets: {host: {precision: fp16}}
    |                             ^^^^ it computes in 'fp32' and 'bf16'
net.yaml:4:17: error[unknown-pass]: there is no pass 'gate-sum'
  4 | policy: {skip: [gate-sum, add-stacks]}
    |                 ^^^^^^^^ did you mean 'gate-sums'?
net.yaml:4:27: error[unknown-pass]: there is no pass 'add-stacks'
  4 | policy: {skip: [gate-sum, add-stacks]}
    |                           ^^^^^^^^^^ did you mean 'add-stacked'?
"""
    )


def test_expanded_recipe_loads_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--expand", "good.yaml"]) == 0
    first = capsys.readouterr().out
    assert first.startswith("bolt: 1\nname: good\n")
    Path("again.yaml").write_text(first)
    assert main(["check", "--expand", "again.yaml"]) == 0
    assert capsys.readouterr().out == first


def test_several_expanded_recipes_are_several_documents(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--expand", "good.yaml", "good.yaml"]) == 0
    assert capsys.readouterr().out.count("---\n# good.yaml\nbolt: 1\n") == 2


def test_json_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--format", "json", "--expand", "good.yaml", "bad.yaml"]) == 3
    captured = capsys.readouterr()
    assert captured.err == ""
    report = json.loads(captured.out)
    assert report["version"] == 1
    (recipe,) = report["recipes"]
    assert (recipe["file"], recipe["name"]) == ("good.yaml", "good")
    assert recipe["expanded"].startswith("bolt: 1\n")
    (diagnostic,) = report["diagnostics"]
    assert (diagnostic["code"], diagnostic["file"], diagnostic["line"]) == ("unknown-key", "bad.yaml", 4)


def test_json_report_of_good_recipes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--format", "json", "good.yaml"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "version": 1,
        "recipes": [{"file": "good.yaml", "name": "good"}],
        "diagnostics": [],
    }


def test_no_recipe_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["check"])
    assert left.value.code == 2
    assert "the following arguments are required: RECIPE" in capsys.readouterr().err
