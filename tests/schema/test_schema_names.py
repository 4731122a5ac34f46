"""What an engine is called after its recipe's file, and which names cannot stand beside each other."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
from graph_models import model, node, saved, tensor
from hypothesis import given
from hypothesis import strategies as st

from bolt_build.build import builder
from bolt_build.build.planning.preparing import Preparer
from bolt_build.cli.main import main
from bolt_build.errors import ExitCode
from bolt_build.runtime import names
from bolt_build.schema.load import load_recipe
from bolt_build.schema.names import engine_name
from bolt_build.schema.validate import fits, recipe_schema
from bolt_build.toolchain import Tool, Toolchain

GOOD = "bolt: 1\nmodel: {zoo: resnet50}\ntargets: {host: }\n"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("file", "name", "symbol"),
    [
        ("resnet50.yaml", "resnet50", "resnet50_bolt_v1"),
        ("res-net.v2.yml", "res-net.v2", "res_net_v2_bolt_v1"),
        ("ResNet-50.yaml", "ResNet-50", "ResNet_50_bolt_v1"),
        ("3d-unet.yaml", "3d-unet", "engine_3d_unet_bolt_v1"),
        ("my net (final).yaml", "my_net_final_", "my_net_final__bolt_v1"),
        ("r\u00e9seau.yaml", "reseau", "reseau_bolt_v1"),
        ("_private.yaml", "private", "private_bolt_v1"),
    ],
)
def test_an_engine_is_called_after_its_recipe_s_file(file: str, name: str, symbol: str) -> None:
    Path(file).write_text(GOOD)
    recipe = load_recipe(Path(file))
    assert (recipe.name, names.symbol(recipe.name)) == (name, symbol)


@given(st.text(max_size=60))
def test_what_a_file_is_taken_to_name_is_a_name(text: str) -> None:
    name = engine_name(text)
    assert name is None or fits(name, recipe_schema()["properties"]["name"])
    assert name is None or names.symbol(name).isidentifier()


@given(st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9_.-]*\Z"))
def test_a_name_is_taken_as_it_is(text: str) -> None:
    assert engine_name(text) == text


def test_engines_that_would_export_one_symbol(capsys: pytest.CaptureFixture[str]) -> None:
    for file in ("a-b.yaml", "a.b.yaml", "a b.yaml", "a_b.yaml"):
        Path(file).write_text(GOOD)
    assert main(["plan", "a-b.yaml", "a.b.yaml", "a b.yaml", "a_b.yaml"]) == ExitCode.INVALID
    differ = "  hint: give one of them another 'name', which differs in more than '_', '-' and '.'\n"
    assert capsys.readouterr().err == "".join(
        f"error[same-symbol]: the engines of a-b.yaml and {other} would both export 'a_b_bolt_v1'\n{differ}"
        for other in ("a.b.yaml", "a b.yaml", "a_b.yaml")
    )


def test_recipes_that_share_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    Path("one").mkdir()
    for file in ("net.yaml", "one/net.yaml"):
        Path(file).write_text(GOOD)
    assert main(["plan", "net.yaml", "one/net.yaml"]) == ExitCode.INVALID
    assert capsys.readouterr().err == (
        "error[same-name]: net.yaml and one/net.yaml are both called 'net'\n  hint: give one of them another name\n"
    )


def test_one_recipe_by_several_paths_is_one_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    Path("one").mkdir()
    Path("net.yaml").write_text("bolt: 1\nmodel: {onnx: gone.onnx}\ntargets: {host: }\n")
    Path("gone.onnx").touch()
    assert main(["clean", "net.yaml", "one/../net.yaml"]) == 0
    assert capsys.readouterr() == ("", "")


def test_another_recipe_of_the_same_name_that_was_built_here_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(Path(), model([node("Relu", "x", "y")], [tensor("x", ["N", 8])]), "net.onnx")
    for folder in ("one", "two"):
        Path(folder).mkdir()
        Path(folder, "net.yaml").write_text("bolt: 1\nmodel: {onnx: ../net.onnx}\ntargets: {host: }\n")
    Path("link.yaml").symlink_to("one/net.yaml")

    def find_tools(names: Sequence[str]) -> Toolchain:
        return Toolchain(tuple(Tool(name, f"/usr/bin/{name}", "1.0", name) for name in names))

    planner = partial(Preparer, find_tools=find_tools, why_not_here=lambda target: "not here")
    monkeypatch.setattr(builder, "Preparer", planner)
    made = Path("generated/net/host/recipe.json")
    made.parent.mkdir(parents=True)
    for path, warned in (("one/net.yaml", True), ("two/net.yaml", False), ("gone.yaml", False), ("link.yaml", True)):
        made.write_text(json.dumps({"path": path, "name": "net"}))
        assert main(["two/net.yaml", "--dry-run"]) == 0
        assert ("warning[shared-output]" in (said := capsys.readouterr().err)) == warned
        if warned:
            assert said == (
                f"warning[shared-output]: generated/net/host was made by {path}, and builds of the two replace each "
                "other\n  hint: give one of them another 'name', or build two/net.yaml with --output DIR\n"
            )
