"""Variants in a recipe: what they say, and what a recipe with one of them is."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from bolt_build.cli.main import main
from bolt_build.cli.recipe_file import checked_recipe
from bolt_build.errors import BoltError, ExitCode
from bolt_build.report.diagnostics import render
from bolt_build.schema.expand import expand, flatten
from bolt_build.schema.load import load_recipe
from bolt_build.schema.recipe import ActivationChange, Alignment, Deepening, Recipe, VariantSpec

RECIPE = """\
bolt: 1
model: {zoo: repvgg_a0}
targets: {host: {precision: fp32}}
variants:
  gelu: {activation: gelu}
  tail: {activation: {to: silu, match: "/stage4/*"}}
  all: {activation: {to: softplus}, deepen: {behind: "/stage1/*"}, align: {channels: 16}}
tuning: {lock: locks/net.lock}
"""
VARIANTS = (
    VariantSpec("gelu", ActivationChange("gelu")),
    VariantSpec("tail", ActivationChange("silu", "/stage4/*")),
    VariantSpec("all", ActivationChange("softplus"), Deepening("/stage1/*"), Alignment(16)),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "net.yaml"
    found.write_text(RECIPE)
    return found


def without_place(recipe: Recipe) -> Recipe:
    return dataclasses.replace(recipe, path="", marks=())


def test_a_recipe_with_variants_is_still_its_own_model(path: Path) -> None:
    recipe = load_recipe(path)
    assert recipe.variants == VARIANTS
    assert (recipe.model.variant, recipe.variant) == (None, None)


@pytest.mark.parametrize("name", ["", "@gelu", "@tail", "@all"])
def test_what_expand_writes_loads_to_the_same_recipe(path: Path, name: str) -> None:
    recipe = checked_recipe(Path(f"{path}{name}"))
    path.write_text(expand(recipe))
    assert without_place(load_recipe(path)) == without_place(recipe)


def test_a_variant_on_the_command_line_is_a_recipe_of_its_own(path: Path) -> None:
    recipe = checked_recipe(Path(f"{path}@tail"))
    assert (recipe.path, recipe.name, recipe.variant) == (f"{path}@tail", "net_tail", VARIANTS[1])
    assert recipe.tuning.lock == str(path.parent / "locks" / "net_tail.lock")
    assert recipe.mark("variants.tail.activation.match") == load_recipe(path).mark("variants.tail.activation.match")


def test_a_recipe_may_be_a_variant_of_another(path: Path) -> None:
    other = path.with_name("other.yaml")
    other.write_text("bolt: 1\nextend: net.yaml\nmodel: {variant: gelu}\n")
    recipe = load_recipe(other)
    assert (recipe.name, recipe.variant) == ("other", VARIANTS[0])
    assert recipe.tuning.lock == str(path.parent / "locks" / "net.lock"), "it is what the recipe says"


def test_an_engine_depends_on_its_own_variant_alone(path: Path) -> None:
    base, deep = flatten(load_recipe(path)), flatten(checked_recipe(Path(f"{path}@all")))
    assert [pair for pair in base if "variant" in pair[0]] == [("model.variant", "null")]
    assert [pair for pair in deep if "variant" in pair[0]] == [
        ("model.variant", '"all"'),
        ("variants.all.activation.to", '"softplus"'),
        ("variants.all.deepen.behind", '"/stage1/*"'),
        ("variants.all.align.channels", "16"),
    ]


def test_a_variant_that_is_not_there(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    with pytest.raises(BoltError) as raised:
        checked_recipe(Path("net.yaml@gelo"))
    assert raised.value.exit_code is ExitCode.USAGE
    assert render(raised.value.diagnostics, color=False) == (
        "net.yaml: error[unknown-variant]: the recipe has no variant 'gelo'\n  hint: did you mean 'gelu'?\n"
    )


def test_a_file_may_have_an_at_sign_in_its_name(path: Path) -> None:
    odd = path.rename(path.with_name("a@gelu"))
    odd.write_text(f"name: a\n{RECIPE}")
    assert checked_recipe(odd).variant is None
    assert checked_recipe(Path(f"{odd}@gelu")).variant == VARIANTS[0]


def test_check_reads_variants_too(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(path.parent)
    assert main(["check", "net.yaml@gelu", "--expand"]) == 0
    assert "  variant: gelu\n" in capsys.readouterr().out
