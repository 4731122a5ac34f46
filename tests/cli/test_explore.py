"""`bolt-build explore`, the whole way on this machine's CPU: a small network of RepVGG's blocks beside its variants."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
from soon_compiled import emitted_soon_compiled

from bolt_build.bench.exploration import EXPLORATION_VERSION, Exploration, Explored, NotExplored
from bolt_build.bench.runner import Load, Measurement
from bolt_build.build.builder import BuildOptions, Listener
from bolt_build.build.events import EventKind, TaskEvent
from bolt_build.build.layout import TargetDirectory
from bolt_build.build.result import BuildResult, TargetResult
from bolt_build.cli.main import main
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.graph.zoo.builder import Builder
from bolt_build.graph.zoo.calibrate import calibrate
from bolt_build.graph.zoo.repvgg import _block
from bolt_build.planner.kernel_sources import KernelSource
from bolt_build.report.explore import render
from bolt_build.schema.recipe import Recipe
from bolt_build.workflows import exploring

RECIPE = """\
bolt: 1
model: {onnx: tiny.onnx, batch: 2}
targets: {host: {precision: fp32}, h200: {precision: fp16}}
verify: {samples: 2}
variants:
  softplus: {activation: softplus}
  deep: {deepen: {behind: "/b*/rbr_dense/*"}, activation: hardswish, align: {channels: 8}}
"""
WRONG = '  wrong: {deepen: {behind: "/b0/rbr_1x1/*"}}\n'


def write_model(path: Path) -> None:
    """Two of RepVGG's blocks, calibrated, of 12 channels each."""
    b = Builder()
    x = _block(b, "input", "/b0", (3, 12), 2)
    x = _block(b, x, "/b1", (12, 12), 1)
    b.linear(b.pooled(x), "/linear", (12, 1000), "logits")
    model = b.model("tiny")
    for axis, extent in ((2, 16), (3, 16)):
        model.graph.input[0].type.tensor_type.shape.dim[axis].dim_value = extent
    onnx.save(calibrate(model, 3), str(path))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache_home: Path) -> Iterator[Path]:
    write_model(tmp_path / "tiny.onnx")
    (tmp_path / "tiny.yaml").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_home))
    with emitted_soon_compiled():
        yield tmp_path


def explored(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> dict[str, Any]:
    """The result of a JSON run, its last line."""
    assert main(["explore", "tiny.yaml", "--format", "json", *words]) == code
    result: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (result["event"], result["exit_code"]) == ("result", code)
    return result


def test_variants_are_built_verified_and_timed_beside_their_model(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--target", "host", "--seconds", "0.06", "--rounds", "2", "--threads", "1")
    (found,) = explored(capsys, *words)["explorations"]
    rows = found["rows"]
    assert [(row["model"], row["batch"]) for row in rows] == [("tiny", 2), ("tiny@softplus", 2), ("tiny@deep", 2)]
    assert [row["verified"] for row in rows] == [True] * 3
    assert found["predicted"] is None
    assert found["device"]
    for row in rows:
        first, second = row["round_medians_ms"]
        assert row["median_ms"] == (first + second) / 2
        assert row["images_per_second"] == 1e3 * row["batch"] / row["median_ms"]
        cost = None if row is rows[0] else 1 - row["images_per_second"] / rows[0]["images_per_second"]
        assert row["cost"] == cost
    # Blocks are one 3x3 with a bias; channels of the deepened are widened from 12 to 16.
    plain = (12 * 3 * 9 + 12) + (12 * 12 * 9 + 12) + 12 * 1000 + 1000
    deep = (16 * 3 * 9 + 16) + (16 * 16 + 16) + (16 * 16 * 9 + 16) + (16 * 16 + 16) + 16 * 1000 + 1000
    assert [row["parameters"] for row in rows] == [plain, plain, deep]
    kept = json.loads((place / "generated" / "tiny" / "explore.json").read_text())
    assert kept == [found]
    for row in rows:
        model = onnx.load(row["onnx"])
        onnx.checker.check_model(model, full_check=True)
    assert "Softplus" in {node.op_type for node in onnx.load(rows[1]["onnx"]).graph.node}

    assert main(["verify", "tiny.yaml@deep", "--target", "host"]) == 0
    assert "tiny_deep for host in fp32 agrees with onnxruntime" in " ".join(capsys.readouterr().out.split())
    assert main(["clean", "tiny.yaml"]) == 0
    assert os.listdir(place / "generated") == []


@pytest.mark.large
def test_a_change_of_one_variant_touches_no_other(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--target", "host", "--seconds", "0.06", "--rounds", "2", "--threads", "1")
    explored(capsys, *words)
    weights = {path: path.stat().st_mtime_ns for path in (place / "generated").glob("*/host/*.weights")}
    (place / "tiny.yaml").write_text(RECIPE.replace("softplus: {activation: softplus}", "softplus: {activation: silu}"))
    explored(capsys, *words, "--batch", "2")
    assert {path.parts[-3] for path, time in weights.items() if path.stat().st_mtime_ns != time} == {"tiny_softplus"}


def test_without_the_device_times_are_predicted_and_said_to_be(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explore", "tiny.yaml", "--target", "h200", "--predict", "-q"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "h200 in fp16, batch 2 predicted, nothing measured: asked for with --predict"
    titles = "model images/s parameters cost median ms rounds kernels chains verified"
    assert " ".join(lines[2].split()) == titles
    assert [line.split()[0] for line in lines[3:6]] == ["tiny", "tiny@softplus", "tiny@deep"]
    assert all(line.split()[1].startswith("~") for line in lines[3:6])
    assert not (place / "generated" / "tiny" / "h200").exists()
    (kept,) = json.loads((place / "generated" / "tiny" / "explore.json").read_text())
    assert (kept["device"], kept["predicted"]) == ("", "asked for with --predict")
    assert [row["round_medians_ms"] for row in kept["rows"]] == [[]] * 3


def test_a_variant_that_does_not_fit_keeps_no_other_from_being_explored(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "tiny.yaml").write_text(RECIPE + WRONG)
    assert main(["explore", "tiny.yaml", "--target", "host", "--predict", "-q"]) == 3
    shown = capsys.readouterr()
    message = "'/b0/rbr_1x1/*' matches '/b0/rbr_1x1/conv/Conv', whose kernel is 1x1, not 3x3"
    assert f"\ntiny@wrong: not explored: {message}\n" in shown.out
    assert "tiny@deep" in shown.out
    assert shown.err == (
        f"tiny.yaml:8:28: error[not-3x3]: {message}\n"
        f"  8 | {WRONG.rstrip()}\n"
        "    |                            ^^^^^^^^^^^^^^^ narrow the glob to 3x3 convolutions\n"
    )


def test_a_batch_or_target_that_the_recipe_does_not_have(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explore", "tiny.yaml", "--target", "host", "--batch", "7"]) == 2
    assert capsys.readouterr().err == (
        "tiny.yaml:2:33: error[unknown-batch]: tiny.yaml has none of these batches for host\n"
        "  2 | model: {onnx: tiny.onnx, batch: 2}\n"
        "    |                                 ^ its batches: 2\n"
    )
    assert main(["explore", "tiny.yaml", "--target", "t4"]) == 2
    assert capsys.readouterr().err == (
        "error[unknown-target]: tiny.yaml has no target 't4'\n  hint: its targets: host, h200\n"
    )


def test_two_models_of_one_name(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "other.yaml").write_text(RECIPE + "name: tiny_deep\n")
    assert main(["explore", "tiny.yaml", "other.yaml", "--target", "host", "--predict"]) == 3
    assert capsys.readouterr().err == (
        "other.yaml:8:7: error[same-name]: tiny.yaml@deep and other.yaml are both called 'tiny_deep'\n"
        "  8 | name: tiny_deep\n"
        "    |       ^^^^^^^^^ explore them one after the other\n"
    )
    # A name that a file gives has no line.
    (place / "tiny_deep.yaml").write_text(RECIPE)
    assert main(["explore", "tiny.yaml", "tiny_deep.yaml", "--target", "host", "--predict"]) == 3
    assert capsys.readouterr().err == (
        "error[same-name]: tiny.yaml@deep and tiny_deep.yaml are both called 'tiny_deep'\n"
        "  hint: explore them one after the other\n"
    )


@pytest.mark.large
def test_engines_take_turns_and_one_that_fails_is_told_of(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def measure(runner: Path, batch: int, threads: int | None, load: Load) -> Measurement:
        asked.append(runner.name)
        if "deep" in runner.name:
            raise BoltError([Diagnostic("runner-failed", "no memory", subject="run")], ExitCode.TASK_FAILED)
        return Measurement(
            runner.name, "host", batch, threads, "random", load.callers, load.rate, 5, load.seconds, 1.0, 2.0, None,
            3.0, 3.0, 0.5, 0.5, None, None, 0, 0, 0.0, load.seconds,
        )  # fmt: skip

    monkeypatch.setattr(exploring, "measure_alone", measure)
    result = explored(capsys, "--target", "host", "--rounds", "2", code=4)
    assert asked == ["tiny-run", "tiny_softplus-run", "tiny_deep-run", "tiny_softplus-run", "tiny-run"]
    (found,) = result["explorations"]
    assert [(row["model"], row["cost"]) for row in found["rows"]] == [("tiny", None), ("tiny@softplus", 0.0)]
    failed = [(each["model"], each["reason"]) for each in found["failed"]]
    assert failed == [("tiny@deep", "batch 2: no memory")]

    def interrupt(*arguments: object) -> Measurement:
        raise KeyboardInterrupt

    monkeypatch.setattr(exploring, "measure_alone", interrupt)
    assert main(["explore", "tiny.yaml", "--target", "host", "-q"]) == 130
    assert capsys.readouterr().err == "\nbolt-build: interrupted\n"


def test_what_is_not_built_is_told_of_and_an_interrupted_build_ends_it_all(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = Diagnostic("missing-tool", "there is no nvcc", hint="install one", subject="nvcc")
    failed = TaskEvent(
        EventKind.FAILED, "host", "compile-x", "compile x.cpp", text="exit status 1", command="c++ x.cpp"
    )
    host = TargetResult("host", TargetDirectory(place), (), None)
    codes = iter([ExitCode.TOOL_MISSING, ExitCode.TASK_FAILED, ExitCode.TASK_FAILED])

    def broken(recipe: Recipe, options: BuildOptions, listener: Listener) -> BuildResult:
        events = () if recipe.name == "tiny" else (failed,)
        if recipe.name == "tiny":
            return BuildResult("tiny", next(codes), (missing,), (), (), (), (), 0.1, (("host", (missing,)),))
        return BuildResult(recipe.name, next(codes), (), (host,), (), events, (), 0.1)

    monkeypatch.setattr(exploring, "build", broken)
    result = explored(capsys, "--target", "host", code=4)
    assert [(each["model"], each["reason"]) for each in result["explorations"][0]["failed"]] == [
        ("tiny", "there is no nvcc"),
        ("tiny@softplus", "compile x.cpp: exit status 1"),
        ("tiny@deep", "compile x.cpp: exit status 1"),
    ]
    assert [each["code"] for each in result["diagnostics"]] == ["missing-tool"]

    codes = iter([ExitCode.TOOL_MISSING, ExitCode.TASK_FAILED, ExitCode.TASK_FAILED])
    assert main(["explore", "tiny.yaml", "--target", "host", "-q"]) == 4
    assert capsys.readouterr().err == (
        "\nerror[task-failed]: tiny_softplus/host: compile x.cpp: exit status 1\n  to repeat it: c++ x.cpp\n"
        "\nerror[task-failed]: tiny_deep/host: compile x.cpp: exit status 1\n  to repeat it: c++ x.cpp\n"
        "nvcc: error[missing-tool]: there is no nvcc\n  hint: install one\n"
    )

    codes = iter([ExitCode.INTERRUPTED])
    assert main(["explore", "tiny.yaml", "--target", "host", "-q"]) == 130
    assert capsys.readouterr().err == "\nbolt-build: interrupted\n"


def test_the_reason_for_one_target_is_none_of_anothers(place: Path) -> None:
    nvcc = Diagnostic("missing-tool", "there is no nvcc", hint="install one", subject="nvcc")
    gxx = Diagnostic("missing-tool", "there is no g++", hint="install one", subject="g++")
    verifier = Diagnostic("missing-tool", "not verified: there is no onnxruntime", subject="onnxruntime")
    stale = Diagnostic("stale-lock", "the lock is stale", severity="warning")
    session = Diagnostic("scons-failed", "SCons ended", subject="tiny")
    event = TaskEvent(EventKind.FAILED, "v100", "compile-x", "compile x.cpp", text="exit status 1", command="c++ x.cpp")
    obstacles = (("h200", (nvcc,)), ("t4", (gxx,)))
    result = BuildResult(
        "tiny", ExitCode.TASK_FAILED, (nvcc, gxx, verifier, session, stale), (), (), (event,), (), 0.1, obstacles
    )
    reasons = {name: exploring._why_not_built(result, name) for name in ("h200", "t4", "v100", "host")}
    assert reasons == {
        "h200": "there is no nvcc",
        "t4": "there is no g++",
        "v100": "compile x.cpp: exit status 1",
        "host": "SCons ended",
    }
    silent = replace(result, diagnostics=(nvcc, gxx, verifier, stale))
    assert exploring._why_not_built(silent, "host") == "it was not built"


LOCKED = KernelSource("lock", "net.lock", "NVIDIA H200")
BASE = Explored(
    model="net", base="net", precision="fp16", batch=32, threads=None, onnx="/m/net.onnx", parameters=8_309_384,
    steps=25, chains=0, median_ms=0.31, round_medians_ms=(0.309, 0.31, 0.3125), kernels=LOCKED, verified=True,
)  # fmt: skip
DEEP = replace(
    BASE, model="net@deep", parameters=8_872_472, chains=21, median_ms=0.355, round_medians_ms=(0.35, 0.355, 0.36),
    cost=0.1268, kernels=KernelSource("predictions"), verified=False,
)  # fmt: skip
FAST = replace(
    BASE, model="net@fast", cost=-0.02, kernels=KernelSource("lock", "net_fast.lock", "NVIDIA H200", predicted=2)
)
SMALL = replace(BASE, batch=1, verified=None, kernels=None, threads=1, round_medians_ms=(0.3,))


def exploration(*rows: Explored, predicted: str | None = None) -> Exploration:
    failed = (NotExplored("net@bad", "net", "compile plan_b1.cpp: exit status 1"),)
    device = "" if predicted else "NVIDIA H200"
    return Exploration(EXPLORATION_VERSION, "h200", device, predicted, rows, failed)


def test_the_whole_text(golden: Callable[[str, str], None]) -> None:
    golden("bench/explore.txt", render(exploration(BASE, DEEP, FAST, SMALL), color=False))


def test_predictions_are_marked(golden: Callable[[str, str], None]) -> None:
    rows = [replace(row, round_medians_ms=(), verified=None) for row in (BASE, DEEP)]
    why = "this machine has no GPU that CUDA can use"
    golden("bench/explore_predicted.txt", render(exploration(*rows, predicted=why), color=False))


def test_like_is_not_compared_with_unlike_unsaid() -> None:
    assert "like with like" in render(exploration(BASE, DEEP), color=False)
    assert "like with like" not in render(exploration(BASE, replace(DEEP, kernels=LOCKED)), color=False)
