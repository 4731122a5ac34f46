"""Which of a recipe's engines a verb uses where no target was named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from graph_models import model, node, saved, tensor

from bolt_build.cli import engines_here
from bolt_build.cli.main import main
from bolt_build.errors import ExitCode
from bolt_build.toolchain import machine

NO_GPU = "this machine has no GPU that CUDA can use"
RECIPE = "bolt: 1\nmodel: {onnx: net.onnx}\ntargets: {t4: , host: , h200: }\n"


@pytest.fixture(autouse=True)
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path, model([node("Relu", "x", "y")], [tensor("x", ["N", 8])]), "net.onnx")
    (tmp_path / "net.yaml").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)
    runs_here(monkeypatch, "host")


def runs_here(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    def why_not_here(target: Any) -> str | None:
        return None if target.name in names else NO_GPU

    monkeypatch.setattr(engines_here, "why_not_here", why_not_here)


@pytest.mark.parametrize(("verb", "undone"), [("verify", "verified"), ("bench", "measured")])
def test_targets_that_cannot_run_here_need_not_be_built(
    verb: str, undone: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The host alone is to be used, and it is what is not built yet."""
    assert main([verb, "net.yaml"]) == ExitCode.INVALID
    assert capsys.readouterr().err == (
        f"net/t4: not {undone}: {NO_GPU}\nnet/h200: not {undone}: {NO_GPU}\n"
        "error[not-built]: generated/net/host was not built yet\n"
        "  hint: build it with: bolt-build net.yaml --target host\n"
    )


@pytest.mark.parametrize(("verb", "undone"), [("verify", "verified"), ("bench", "measured")])
def test_that_nothing_runs_here_is_no_success(verb: str, undone: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "net.yaml", "--target", "h200"]) == ExitCode.TOOL_MISSING
    assert capsys.readouterr().err == (
        f"net/h200: not {undone}: {NO_GPU}\n"
        "error[nothing-runs-here]: none of the targets of net.yaml runs on this machine\n"
    )


def test_run_takes_the_target_that_runs_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "net.yaml", "--input", "x.npy"]) == ExitCode.INVALID
    assert capsys.readouterr().err == (
        "net/host: the target that runs on this machine\n"
        "error[not-built]: generated/net/host was not built yet\n"
        "  hint: build it with: bolt-build net.yaml --target host\n"
    )


def test_run_asks_which_where_several_run_here(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs_here(monkeypatch, "host", "h200")
    assert main(["run", "net.yaml", "--input", "x.npy"]) == ExitCode.USAGE
    assert capsys.readouterr().err == (
        "error[several-targets]: several targets of net.yaml run on this machine\n"
        "  hint: choose one with --target: host, h200\n"
    )


def test_run_takes_the_engine_of_this_gpu_before_those_of_others(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs_here(monkeypatch, "t4", "h200")
    monkeypatch.setattr(machine, "found_gpus", lambda: (machine.FoundGpu("NVIDIA H200", 90),))
    assert main(["run", "net.yaml", "--input", "x.npy"]) == ExitCode.INVALID
    assert capsys.readouterr().err.startswith("net/h200: the target that runs on this machine\n")


def test_run_says_why_none_runs_here(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "net.yaml", "--input", "x.npy", "--target", "t4", "--target", "h200"]
    assert main(words) == ExitCode.TOOL_MISSING
    assert capsys.readouterr().err == (
        "error[nothing-runs-here]: none of the targets of net.yaml runs on this machine\n"
        f"  hint: t4: {NO_GPU}; h200: {NO_GPU}\n"
    )
