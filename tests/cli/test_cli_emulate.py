"""`bolt-build emulate`: GPU engines verified on the emulated GPU; what it says where there is nothing to emulate."""

from __future__ import annotations

import json
from pathlib import Path

import emulated
import pytest
from chain_recipes import fused, write
from gpu_commands import bolt

from bolt_build import emulator
from bolt_build.cli import emulate
from bolt_build.cli.main import main
from bolt_build.errors import ExitCode
from bolt_build.schema.recipe import Recipe, TargetSpec
from bolt_build.toolchain import probe

RECIPE = """\
bolt: 1
name: small
model: {zoo: resnet18, batch: [1, 4]}
targets: {host: {precision: fp32}, h200: {precision: fp16, batch: [2]}}
"""


@pytest.mark.large
def test_a_chain_in_one_kernel_agrees_with_onnxruntime(tmp_path: Path, cache_home: Path) -> None:
    if probe(("nvcc", "cutlass")).diagnostics():
        pytest.skip("needs nvcc and CUTLASS")
    cache = emulated.cache_with_runtime(cache_home)
    recipe = write(tmp_path, 0, "always", "h200", "bf16", chains=1)
    assert fused(recipe) == 1
    (target,) = bolt(tmp_path, "emulate", recipe.name, "--batch", "3", cache=cache)["targets"]
    folder = tmp_path / "generated" / "emulated" / "always" / "h200"
    assert (target["verified"], target["directory"]) == (True, str(folder))
    report = json.loads((folder / "verify.json").read_text(encoding="utf-8"))
    assert ([batch["batch"] for batch in report["batches"]], report["problems"]) == ([3], [])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--target", "host"), "host needs no GPU: build it"),
        (("--target", "a100"), "small.yaml has no target 'a100'"),
        (("--batch", "4"), "small.yaml has no batch 4 for h200"),
    ],
)
def test_what_is_not_there_is_said_before_anything_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: tuple[str, ...],
    message: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(RECIPE)
    assert main(["emulate", "small.yaml", *words]) == ExitCode.USAGE
    assert capsys.readouterr().err == (
        f"error[nothing-to-emulate]: {message}\n  hint: targets and batches: host [1, 4], h200 [2]\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["small.yaml"]


def test_of_several_recipes_those_without_a_gpu_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each target's least batch is there whatever its batches are."""
    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(RECIPE)
    Path("cpu.yaml").write_text("bolt: 1\nname: cpu\nmodel: {zoo: resnet18, batch: 1}\ntargets: {host: {}}\n")
    built: list[tuple[str, tuple[TargetSpec, ...]]] = []

    def build_all(recipes: list[Recipe], *given: object) -> int:
        built.extend((recipe.name, recipe.targets) for recipe in recipes)
        return 0

    monkeypatch.setattr(emulate, "build_all", build_all)
    monkeypatch.setattr(emulator, "in_use", lambda: True)
    assert main(["emulate", ".", "--batch", "least"]) == ExitCode.OK
    ((name, (target,)),) = built
    assert (name, target.name, target.batch) == ("small", "h200", (2,))
    assert capsys.readouterr().err == "cpu.yaml: not emulated: it has no target with a GPU\n"


def test_a_recipe_for_cpus_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(RECIPE.replace(", h200: {precision: fp16, batch: [2]}", ""))
    assert main(["emulate", "small.yaml"]) == ExitCode.USAGE
    assert capsys.readouterr().err.startswith("error[nothing-to-emulate]: small.yaml has no target with a GPU\n")
