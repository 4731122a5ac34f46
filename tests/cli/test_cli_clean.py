"""`bolt-build clean`: what it removes, what it leaves, and what no recipe makes any more."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from build_graphs import plan_of, shell

from bolt_build.build.files import FileStamp
from bolt_build.build.layout import RecipeDirectory
from bolt_build.build.own_code.facts import NO_FACTS
from bolt_build.build.planning.plan_file import save_plan_file
from bolt_build.build.planning.written_model import written_model
from bolt_build.build.staleness.receipt import RECEIPT_VERSION, Receipt, save_receipt
from bolt_build.cli.main import main
from bolt_build.errors import ExitCode
from bolt_build.graph import zoo
from bolt_build.schema.load import load_recipe

RECIPE = "bolt: 1\nmodel: {zoo: resnet18}\ntargets: {host: , t4: }\n"
OUTPUT = Path("generated")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def built(recipe: str, *targets: str, text: str = RECIPE, output: Path = OUTPUT, file: str | None = None) -> None:
    """What a build of the recipe's targets leaves, as far as `clean` reads it."""
    path = Path(file or f"{recipe}.yaml")
    path.write_text(text)
    for target in targets:
        directory = RecipeDirectory(output / recipe).target(target)
        directory.path.mkdir(parents=True)
        save_plan_file(directory.plan, plan_of((shell("nothing", "true", ()),)))
        directory.recipe.write_text(json.dumps({"path": str(path), "name": recipe}))
        for folder in (directory.receipts, directory.logs):
            folder.mkdir(parents=True, exist_ok=True)


def targets(output: Path = OUTPUT) -> list[str]:
    return sorted(f"{path.parent.parent.name}/{path.parent.name}" for path in output.glob("*/*/plan.json"))


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert main(["clean", *words]) == code
    shown = capsys.readouterr()
    return shown.out + shown.err


def test_a_target_that_the_recipe_had_once_goes_too(capsys: pytest.CaptureFixture[str]) -> None:
    built("net", "host", "h200", "h200.tuning")
    assert said(capsys, "net.yaml") == (
        "removed generated/net/host\nremoved generated/net/h200\nremoved generated/net/h200.tuning\n"
    )
    assert not (OUTPUT / "net").exists()


@pytest.mark.parametrize("name", ["../../../mine.txt", "{here}/mine.txt", "src/../../../../mine.txt"])
def test_a_plan_that_names_files_elsewhere_removes_none(capsys: pytest.CaptureFixture[str], name: str) -> None:
    """A folder `generated` may have come with a checkout."""
    built("net", "host")
    mine = Path("mine.txt")
    mine.write_text("mine")
    outputs = (name.format(here=Path.cwd()),)
    directory = RecipeDirectory(OUTPUT / "net").target("host")
    save_plan_file(directory.plan, plan_of((shell("nothing", "true", outputs),)))
    stated = FileStamp(outputs[0], "", 4, 0, 0)
    receipt = Receipt(RECEIPT_VERSION, "key", (), (), (), (stated,), NO_FACTS, 0.0)
    save_receipt(directory.receipts, "nothing", receipt)
    left = said(capsys, "net.yaml", code=ExitCode.INVALID)
    assert "error[foreign-files]: left alone, as no build made them: generated/net/host/plan.json" in left
    assert mine.read_text() == "mine"


def test_a_directory_that_cannot_be_claimed_is_said_with_what_helps(capsys: pytest.CaptureFixture[str]) -> None:
    built("net", "host")
    (OUTPUT / "net" / ".lock").mkdir()
    assert said(capsys, "net.yaml", code=ExitCode.TASK_FAILED) == (
        f"error[file-trouble]: {Path.cwd()}/generated/net/.lock: a directory stands where a file is to be\n"
        "  hint: clean as the user who built it, or remove the directory by hand\n"
    )


def test_a_target_that_the_recipe_had_once_can_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    built("net", "host", "h200")
    assert said(capsys, "net.yaml", "--target", "h200") == "removed generated/net/h200\n"
    assert targets() == ["net/host"]
    assert "net.yaml has no target 'h200'" in said(capsys, "net.yaml", "--target", "h200", code=ExitCode.USAGE)


def test_naming_a_target_of_the_recipe_leaves_its_variants_other_targets(capsys: pytest.CaptureFixture[str]) -> None:
    text = RECIPE + "variants: {gelu: {activation: gelu}}\n"
    built("net_gelu", "host", "t4", text=text, file="net.yaml")
    built("net", "host", "t4", "h200", text=text)
    said(capsys, "net.yaml", "--target", "h200")
    assert targets() == ["net/host", "net/t4", "net_gelu/host", "net_gelu/t4"]


def test_engines_for_the_emulated_gpu_go_too(capsys: pytest.CaptureFixture[str]) -> None:
    built("net", "t4", output=OUTPUT / "emulated")
    assert said(capsys, "net.yaml") == "removed generated/emulated/net/t4\n"
    assert not (OUTPUT / "emulated").exists()


def test_a_dry_run_says_what_would_go_and_stay_and_removes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    built("net", "host", "h200")
    (OUTPUT / "net" / "host" / "notes.txt").write_text("mine")
    before = sorted(OUTPUT.rglob("*"))
    assert said(capsys, "net.yaml", "-n", "--prune-cache", "--cache", "cache") == (
        "would remove generated/net/host\nwould remove generated/net/h200\n"
        f"would leave generated/net/host/notes.txt: no build made it\nwould empty {Path.cwd()}/cache\n"
    )
    assert sorted(OUTPUT.rglob("*")) == before


def test_a_model_that_was_written_here_goes_with_the_last_target_by_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    built("net", "host", "t4")
    place = RecipeDirectory(OUTPUT / "net")
    place.zoo_model.write_text("weights")
    place.zoo_stamp.write_text("{}")
    gone = ["generated/net/host", "generated/net/t4", "generated/net/model.onnx"]
    assert said(capsys, "net.yaml", "--target", "t4", "-n") == "would remove generated/net/t4\n"
    assert said(capsys, "net.yaml", "-n") == "".join(f"would remove {path}\n" for path in gone)
    assert said(capsys, "net.yaml", "--target", "t4") == "removed generated/net/t4\n"
    assert place.zoo_model.is_file()
    assert said(capsys, "net.yaml") == "removed generated/net/host\nremoved generated/net/model.onnx\n"
    assert not place.path.exists()


def test_output_of_recipes_that_are_gone_renamed_or_changed(capsys: pytest.CaptureFixture[str]) -> None:
    built("gone", "host")
    Path("gone.yaml").unlink()
    built("renamed", "t4", text="name: other\n" + RECIPE)
    built("fewer", "host", "h200", "h200.tuning")
    built("net_deep", "host", file="fewer.yaml@deep")
    Path("fewer.yaml@deep").unlink()
    built("broken", "host", text="bolt: 1\n")
    built("old", "t4", output=OUTPUT / "emulated")
    Path("old.yaml").unlink()
    listing = [
        "generated/fewer/h200: fewer.yaml has no target 'h200' any more",
        "generated/fewer/h200.tuning: fewer.yaml has no target 'h200' any more",
        "generated/gone/host: gone.yaml is not there any more",
        "generated/net_deep/host: fewer.yaml has no variant 'deep' any more",
        "generated/renamed/t4: renamed.yaml is called 'other' now",
        "generated/emulated/old/t4: old.yaml is not there any more",
    ]
    assert said(capsys, "--orphaned", "--dry-run") == "".join(f"would remove {line}\n" for line in listing)
    assert said(capsys, "--orphaned", "--target", "t4", "--dry-run").count("would remove") == 2
    assert said(capsys, "--orphaned") == "".join(f"removed {line}\n" for line in listing)
    assert targets() == ["broken/host", "fewer/host"]
    assert sorted(path.name for path in OUTPUT.iterdir()) == ["broken", "fewer"]
    assert said(capsys, "--orphaned") == ""


def test_a_model_that_was_only_planned_with_goes_with_its_recipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of `explore --predict`: no target was built, so the model's stamp says whose it is."""
    monkeypatch.setattr(zoo, "write", lambda name, path, change=None: path.write_bytes(b"model"))
    for name in ("gone", "stays"):
        Path(f"{name}.yaml").write_text(RECIPE)
        place = RecipeDirectory(OUTPUT / name)
        written_model(load_recipe(Path(f"{name}.yaml")), (), place, lambda text: None)
        place.exploration.write_text("[]")
    Path("gone.yaml").unlink()
    line = "generated/gone/model.onnx: gone.yaml is not there any more\n"
    assert said(capsys, "--orphaned", "--target", "host", "-n") == ""
    assert said(capsys, "--orphaned", "-n") == f"would remove {line}"
    assert said(capsys, "--orphaned") == f"removed {line}"
    assert [path.name for path in OUTPUT.iterdir()] == ["stays"]


def test_a_recipe_is_looked_for_beside_the_output_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    built("net", "host")
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert said(capsys, "--orphaned", "--output", "../generated", "-n") == ""


def test_a_recipe_that_is_gone_says_how_to_remove_what_it_made(capsys: pytest.CaptureFixture[str]) -> None:
    built("gone", "host")
    Path("gone.yaml").unlink()
    assert said(capsys, "gone.yaml", code=ExitCode.INVALID) == (
        "gone.yaml: error[no-such-file]: no such recipe\n"
        "  hint: to remove what it made: bolt-build clean --orphaned --output generated\n"
    )


def test_files_that_no_build_made_stay_and_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    built("net", "host", "t4")
    (OUTPUT / "net" / "host" / "notes.txt").write_text("mine")
    assert said(capsys, "net.yaml", code=ExitCode.INVALID) == (
        "removed generated/net/host\nremoved generated/net/t4\n"
        "error[foreign-files]: left alone, as no build made them: generated/net/host/notes.txt\n"
    )


def test_nothing_to_clean_was_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, code=ExitCode.USAGE) == (
        "error[nothing-asked]: nothing to clean was named\n"
        "  hint: bolt-build clean RECIPE..., or --orphaned, or --prune-cache; with --dry-run it only says what\n"
    )
