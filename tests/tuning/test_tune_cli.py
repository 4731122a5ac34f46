"""`bolt-build tune` as it is typed: what it says, its exit codes, and its JSON."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tune_projects import Project, by_prediction, last_first, new_project

from bolt_build.cli.main import main
from bolt_build.errors import BoltError
from bolt_build.schema.load import load_recipe
from bolt_build.toolchain import machine
from bolt_build.tuning.run import tuned_target


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    found = new_project(tmp_path / "work")
    monkeypatch.chdir(found.path)
    return found


def tune(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["tune", "tiny.yaml", "--cache", "cache", *words])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_a_recipe_without_a_lock_is_told_the_line_to_add(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.write((", lock: tiny.lock", ""))
    code, _, said = tune(capsys, "--from-records")
    assert code == 3
    assert said == (
        "tiny.yaml:5:1: error[no-lock]: tiny.yaml names no file for what tuning finds\n"
        "  5 | tuning: {candidates: 3}\n"
        "    | ^^^^^^ add to it: lock: tiny.lock\n"
    )
    project.write(("tuning: {candidates: 3, lock: tiny.lock}\n", ""))
    code, _, said = tune(capsys, "--from-records")
    assert said == (
        "error[no-lock]: tiny.yaml names no file for what tuning finds\n"
        "  hint: add this line: tuning: {lock: tiny.lock}\n"
    )


def test_records_that_there_are_none_of_say_how_to_make_some(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, said = tune(capsys, "--from-records")
    assert code == 4
    assert said.endswith(
        "error[nothing-measured]: no record says how fast any kernel of tiny for a100 is\n"
        "  hint: measure where the GPU is: tune there, or --export a bundle here and --import its results.jsonl\n"
    )


def test_a_target_without_a_choice_of_kernels_has_nothing_to_tune(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.write(("a100: {precision: fp16}", "host: {precision: fp32}"))
    assert tune(capsys) == (0, "tiny: nothing to tune for host\n", "")
    code, out, _ = tune(capsys, "--format", "json")
    data = json.loads(out)
    assert (code, data["target"], data["untuned"], data["exit_code"]) == (0, None, ["host"], 0)


def test_one_target_is_tuned_at_a_time(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.write(("a100: {precision: fp16}", "a100: {precision: fp16}, h200: {precision: fp16}"))
    code, _, said = tune(capsys)
    assert code == 2
    assert said == (
        "error[several-targets]: tiny.yaml has several targets to tune\n  hint: choose one with --target: a100, h200\n"
    )


def test_of_several_targets_the_one_of_this_gpu_is_tuned(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.write(("a100: {precision: fp16}", "a100: {precision: fp16}, h200: {precision: fp16}"))
    recipe = load_recipe(Path("tiny.yaml"))
    monkeypatch.setattr(machine, "found_gpus", lambda: (machine.FoundGpu("NVIDIA H200", 90),))
    spec, untuned = tuned_target(recipe, (), here=True)
    assert (spec and spec.name, untuned) == ("h200", ())
    with pytest.raises(BoltError, match="several targets to tune"):
        tuned_target(recipe, (), here=False)


def test_without_a_gpu_it_says_what_to_do(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bolt_build.tuning.lab.why_not_here", lambda target: "this machine has no GPU")
    code, _, said = tune(capsys)
    assert code == 7
    assert "error[no-gpu]: candidates for a100 cannot be measured here: this machine has no GPU" in said
    code, out, _ = tune(capsys, "--format", "json")
    assert (code, json.loads(out)["diagnostics"][0]["code"]) == (7, "no-gpu")


def test_results_that_are_not_there_are_said_before_anything_is_planned(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, said = tune(capsys, "--import", "results.jsonl")
    assert code == 3
    assert said == (
        "error[results-unreadable]: 'results.jsonl' holds no results of a measurement: No such file or directory\n"
        "  hint: give the results.jsonl that the bundle's run wrote\n"
    )


def test_ways_exclude_each_other(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        tune(capsys, "--export", "b.tar", "--from-records")
    assert ended.value.code == 2


def test_the_table_names_the_winner_and_the_runner_up(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = project.bundle()
    project.remember(bundle)
    project.results(bundle, last_first)
    code, out, said = tune(capsys, "--import", "results.jsonl")
    assert (code, said) == (0, "")
    conv = next(p for p in bundle.problems if p.problem.op.kind == "conv")
    first = [trial for trial in conv.trials if trial.of is None]
    lines = out.splitlines()
    head = next(line for line in lines if line.startswith("problem"))
    assert head.split() == ["problem", "winner", "us", "runner-up", "slower", "predicted", "measured", "failed"]
    row = next(line for line in lines if line.startswith("batch 1: relu"))
    fastest, second = 50.0 - 5.0 * (len(first) - 1), 50.0 - 5.0 * (len(first) - 2)
    assert f"{first[-1].candidate}  {fastest:.2f}  {first[-2].candidate}" in row
    assert f"{100 * (second / fastest - 1):+.1f}%  {1e6 * first[-1].predicted:9.2f}" in row
    assert f"{len(conv.trials)}/{len(conv.trials)}" in row
    assert "tiny.lock: written" in lines
    assert lines[-1].startswith("tiny: done, planned ")


def test_the_json_has_times_phases_and_every_trial(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.imported(by_prediction)
    code, out, _ = tune(capsys, "--from-records", "--format", "json")
    data = json.loads(out.splitlines()[-1])
    assert (code, data["event"], data["recipe"], data["target"]) == (0, "result", "tiny", "a100")
    assert set(data["seconds"]) == {"plan", "compile", "measure", "engine", "select", "total", "waited"}
    trials = [trial for problem in data["problems"] for trial in problem["trials"]]
    assert data["statuses"] == {"ok": len(trials)}
    conv = next(problem for problem in data["problems"] if problem["what"].startswith("conv("))
    best = min(conv["trials"], key=lambda trial: trial["median"])
    assert conv["winner"]["digest"] == best["digest"]
    assert conv["median"] == best["median"]
    assert conv["device"] == "NVIDIA A100-SXM4-80GB"
    assert conv["refused"]
    assert data["lock"] == str(project.lock)


@pytest.mark.parametrize("option", ["--export", "--records-out"])
def test_a_file_that_cannot_be_written_is_said_before_anything_is_compiled(
    option: str, project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("file").touch()
    Path("folder").mkdir()
    asked = ("--from-records",) if option == "--records-out" else ()
    code, out, said = tune(capsys, *asked, option, "file/b.tar")
    assert (code, out) == (3, "")
    assert said == (
        f"error[not-a-directory]: cannot make a directory {Path.cwd()}/file: a file stands in the way\n"
        "  hint: name a file in a folder of your own\n"
    )
    code, out, said = tune(capsys, *asked, option, "folder")
    assert (code, out) == (3, "")
    assert said == (f"error[not-a-file]: cannot write {Path.cwd()}/folder: it is a folder\n  hint: name a file in it\n")
    assert list(Path("folder").iterdir()) == []
    os.mkfifo("pipe")
    code, out, said = tune(capsys, *asked, option, "pipe")
    assert (code, out) == (3, "")
    assert said == f"error[not-a-file]: cannot write {Path.cwd()}/pipe: it is a pipe\n  hint: name a file\n"
    code, out, said = tune(capsys, *asked, option, "/proc/b.tar")  # where nothing can be made
    assert (code, out) == (4, "")
    assert said == (
        "error[file-trouble]: /proc/b.tar: no such file or directory\n  hint: name a file in a folder of your own\n"
    )
