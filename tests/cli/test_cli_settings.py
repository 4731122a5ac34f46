"""`--set KEY=VALUE` and folders of recipes, with every verb that reads recipes."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from bolt_build.cli.main import main
from bolt_build.cli.verbs import VERBS, verb_named
from bolt_build.errors import ExitCode
from bolt_build.schema.load import load_recipe
from bolt_build.schema.recipe import PaddingPolicy
from bolt_build.schema.settings import settings_table

RECIPE = """\
bolt: 1
model: {zoo: resnet50, batch: [1, 32]}
targets: {host: {precision: fp32}, t4: }
layers: {"/layer1/*": {persistent: never}}
"""
WITHOUT_RECIPES = ("cache", "completion", "diff", "schema", "init", "operators")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.yaml").write_text(RECIPE)


def loaded(*settings: str) -> Any:
    return load_recipe(Path("net.yaml"), settings_table(settings))


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in WITHOUT_RECIPES])
def test_every_verb_that_reads_a_recipe_takes_settings(verb: str) -> None:
    parser = argparse.ArgumentParser()
    verb_named(verb).add_arguments(parser)
    more = ["--input", "x.npy"] if verb == "run" else []
    found = parser.parse_args(["net.yaml", "--set", "model.batch=3", "--set", "verify.seed=4", *more])
    assert found.set == ["model.batch=3", "verify.seed=4"]


def test_settings_stand_over_the_recipe() -> None:
    found = loaded(
        "policy.fusion.persistent=never", "model.batch=[2, 4]", "targets.host.precision=bf16", "model.dims.height=224",
        "targets.a10=", 'layers."/fc.1/*".persistent=always', "policy.fusion.persistent=always", "name=other",
    )  # fmt: skip
    padded = loaded("policy.padding.mode=always", 'layers."/fc/*".padding=never').policy.padding
    assert padded == PaddingPolicy("always", 8, (("/fc/*", "never"),))
    assert (found.policy.fusion.persistent, found.model.batch, found.name) == ("always", (2, 4), "other")
    assert found.model.dims == (("height", 224),)
    assert {spec.name: spec.precision for spec in found.targets} == {"host": "bf16", "t4": "fp16", "a10": "fp16"}
    assert [(layer.match, layer.persistent) for layer in found.layers] == [
        ("/layer1/*", "never"), ("/fc.1/*", "always"),
    ]  # fmt: skip


def test_files_in_settings_are_relative_to_the_current_folder() -> None:
    Path("deep").mkdir()
    Path("deep/net.yaml").write_text(RECIPE)
    found = load_recipe(Path("deep/net.yaml"), settings_table(["tuning.lock=my.lock"]))
    assert found.tuning.lock == str(Path.cwd() / "my.lock")


def test_a_recipe_without_settings_is_what_it_was() -> None:
    assert loaded() == load_recipe(Path("net.yaml"))


def test_what_is_wrong_with_settings_is_said_at_once_with_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["verify.samples", "=3", "bolt=2", "extend=x.yaml", "model.batch=[1", "a..b=1", "verify.seed=1\n2"]
    assert main(["check", "net.yaml", *(each for word in words for each in ("--set", word))]) == ExitCode.INVALID
    said = capsys.readouterr().err.splitlines()
    hint = "  hint: such as policy.fusion.persistent=never; a key with dots in quotes"
    assert [line for line in said if line != hint] == [
        "--set:1:8: error[bad-setting]: 'verify.samples' is no KEY=VALUE",
        "--set:2:1: error[bad-setting]: '=3' is no KEY=VALUE",
        "--set:3:1: error[bad-setting]: 'bolt' is the file's own, and cannot be set",
        "--set:4:1: error[bad-setting]: 'extend' is the file's own, and cannot be set",
        "--set:5:13: error[yaml-syntax]: did not find expected ',' or ']', while parsing a flow sequence",
        "--set:6:3: error[bad-setting]: 'a..b=1' is no KEY=VALUE",
        "--set:7:13: error[bad-value]: a value must stand on one line",
    ]


def test_what_settings_do_to_the_recipe_is_checked_as_the_recipe_is(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--set", "policy.fusion.persistent=nevr", "--set", "verfy.seed=1", "--set", "targets.host.precision=fp16"]
    assert main(["check", "net.yaml", *words]) == ExitCode.INVALID
    assert capsys.readouterr().err == (
        "--set:1:26: error[bad-value]: 'policy.fusion.persistent' must be auto, always or never, found the string "
        "'nevr'\n  hint: did you mean 'never'?\n"
        "--set:2:1: error[unknown-key]: 'verfy' is not a key of a recipe\n  hint: did you mean 'verify'?\n"
        "--set:3:24: error[unsupported-precision]: the target 'host' does not compute in fp16\n"
        "  hint: it computes in 'fp32' and 'bf16'\n"
    )


def test_a_folder_stands_for_the_recipes_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    Path("recipes").mkdir()
    for name in ("b.yaml", "a.yml"):
        Path("recipes", name).write_text(RECIPE)
    Path("recipes/ci.yaml").write_text("jobs: {bolt: 1}\n")
    Path("recipes/a.lock").write_text("bolt: 1\n")
    assert main(["check", "recipes", "net.yaml", "--format", "json", "--set", "model.batch=7"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [recipe["file"] for recipe in report["recipes"]] == ["recipes/a.yml", "recipes/b.yaml", "net.yaml"]


def test_a_folder_without_recipes(capsys: pytest.CaptureFixture[str]) -> None:
    Path("recipes").mkdir()
    assert main(["plan", "recipes"]) == ExitCode.INVALID
    assert capsys.readouterr().err == (
        "recipes: error[no-recipe]: there is no recipe in this folder\n"
        "  hint: a recipe is a .yaml file that begins with 'bolt: 1'\n"
    )
