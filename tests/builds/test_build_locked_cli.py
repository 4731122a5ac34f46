"""Locks by the command line: what is said, and how it ends."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from locked_net import HERE, RECIPE, TUNE, Net, new_net, whole_engine

from bolt_build.build.planning.preparing import Preparer
from bolt_build.cli.main import main
from bolt_build.errors import ExitCode


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Net:
    monkeypatch.chdir(tmp_path)
    return new_net()


@pytest.fixture
def command(net: Net, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Net:
    """`bolt-build` with these tools and no GPU."""
    planner = partial(Preparer, find_tools=lambda names: net.tools, why_not_here=lambda target: "no GPU here")
    monkeypatch.setattr("bolt_build.build.builder.Preparer", planner)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return net


def test_the_dry_run_of_a_build_without_a_lock_says_how_to_tune(
    command: Net, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["net.yaml", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert f"net/h200: kernels chosen by prediction: net.lock.yaml is not there yet; tune with: {TUNE}\n" in said


def test_the_command_line_ends_with_6_where_it_must_be_locked(command: Net, capsys: pytest.CaptureFixture[str]) -> None:
    command.lock(command.tuned(without=lambda place: "batch 4: relu2" in place))
    for words in (["net.yaml", "--locked"], ["build", "net.yaml", "--locked"], ["net.yaml", "--locked", "--dry-run"]):
        assert main(words) == ExitCode.LOCK
        assert (
            capsys.readouterr().err
            == """\
net.yaml:4:16: error[incomplete-lock]: 1 of 8 kernels of 'h200' are not in net.lock.yaml
  4 | tuning: {lock: net.lock.yaml}
    |                ^^^^^^^^^^^^^ tune with: bolt-build tune net.yaml --target h200
net/h200: batch 4: relu2: error[not-locked]: no measured kernel for \
conv(f16[4,16,14,14] channels_last, f16[32,16,3,3]) strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1] \
| relu -> f16[4,32,14,14] channels_last
"""
        )
    assert not Path("generated/net/h200").exists()


def test_the_command_line_ends_with_6_where_the_lock_s_plan_is_not_taken(
    command: Net, capsys: pytest.CaptureFixture[str]
) -> None:
    part = command.tuned()
    swapped = next(entry for entry in part.entries if entry.winner.family == "cutlass" and entry.what.find("[1,") > 0)
    assert swapped.runner_up is not None
    locked = whole_engine(part, (swapped.problem, swapped.runner_up, 9.0))
    command.lock(replace(locked, covers=tuple(cover for cover in locked.covers if cover.batch == 4)))
    assert main(["net.yaml", "--locked"]) == ExitCode.LOCK
    said = """\
net.yaml:4:16: {severity}[cover-not-locked]: the cover of batch 1 of 'h200' is not taken from net.lock.yaml: \
it has none for this batch
  4 | tuning: {{lock: net.lock.yaml}}
    |                ^^^^^^^^^^^^^ tune with: bolt-build tune net.yaml --target h200
net.yaml:4:16: {severity}[engine-not-locked]: the whole engine's kernels of batch 1 of 'h200' are not taken from \
net.lock.yaml: they were measured with its cover
  4 | tuning: {{lock: net.lock.yaml}}
    |                ^^^^^^^^^^^^^ tune with: bolt-build tune net.yaml --target h200
"""
    assert capsys.readouterr().err == said.format(severity="error")
    assert not Path("generated/net/h200").exists()
    assert main(["net.yaml", "--dry-run"]) == 0
    assert capsys.readouterr().err == said.format(severity="warning")


def test_every_target_that_is_not_locked_is_named(command: Net, capsys: pytest.CaptureFixture[str]) -> None:
    Path("net.yaml").write_text(RECIPE.replace("{h200:", "{a100: {precision: fp16}, h200:"))
    assert main(["net.yaml", "--locked", "--format", "json"]) == ExitCode.LOCK
    data = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert data["exit_code"] == 6
    assert [each["message"] for each in data["diagnostics"]] == [
        f"kernels of '{name}' are not locked: net.lock.yaml is not there yet" for name in ("a100", "h200")
    ]


def test_a_lock_that_is_not_there_is_one_cause(command: Net, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is planned: that every single kernel is not locked follows from it."""
    assert main(["net.yaml", "--locked"]) == ExitCode.LOCK
    shown = capsys.readouterr()
    assert shown.out == ""
    assert (
        shown.err
        == """\
net.yaml:4:16: error[no-lock]: kernels of 'h200' are not locked: net.lock.yaml is not there yet
  4 | tuning: {lock: net.lock.yaml}
    |                ^^^^^^^^^^^^^ tune with: bolt-build tune net.yaml --target h200
"""
    )


def test_the_dry_run_has_the_warnings_in_both_forms(command: Net, capsys: pytest.CaptureFixture[str]) -> None:
    command.lock(command.tuned(tools=replace(HERE, cuda="12.9.1")))
    assert main(["net.yaml", "--dry-run"]) == 0
    assert capsys.readouterr().err.splitlines()[0] == (
        "net.yaml:4:16: warning[stale-lock]: 8 of 8 kernels of 'h200' were measured with CUDA 12.9.1, not 13.0.88"
    )
    assert main(["net.yaml", "--dry-run", "--format", "json"]) == 0
    data = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [each["code"] for each in data["diagnostics"]] == ["stale-lock"]


def test_a_lock_that_is_none_is_said_with_its_place(command: Net, capsys: pytest.CaptureFixture[str]) -> None:
    Path("net.lock.yaml").write_text("lock: 1\ntarget: {}\n")
    assert main(["net.yaml", "--dry-run"]) == ExitCode.INVALID
    assert (
        capsys.readouterr().err
        == """\
net.lock.yaml:1:1: error[missing-key]: a lock needs the key 'targets'
  1 | lock: 1
    | ^
net.lock.yaml:2:1: error[unknown-key]: 'target' is not a key of a lock
  2 | target: {}
    | ^^^^^^ did you mean 'targets'?
"""
    )
