"""`bolt-build run` says of an engine that its verification had failed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from planner_fakes import recipe

from bolt_build.build.layout import TargetDirectory
from bolt_build.cli.run import warn_of_failed_verification

RECIPE = replace(recipe(), path="net.yaml", name="net")


def warned(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    warn_of_failed_verification(RECIPE, "host", TargetDirectory(folder))
    streams = capsys.readouterr()
    assert streams.out == ""
    return streams.err


def test_an_engine_that_failed_its_verification_is_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problems = [
        {"message": "batch 1: says little", "severity": "warning"},
        {"message": "batch 1: 'conv' departs", "severity": "error"},
    ]
    (tmp_path / "verify.json").write_text(json.dumps({"ok": False, "problems": problems}))
    assert warned(tmp_path, capsys) == (
        "warning[verification-failed]: net/host: this engine failed its verification: batch 1: 'conv' departs\n"
        "  hint: what was found: bolt-build verify net.yaml\n"
    )


def test_a_report_that_cannot_be_read_is_no_proof(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "verify.json").write_text('{"ok": ')
    assert warned(tmp_path, capsys).startswith(
        "warning[verification-failed]: net/host: this engine failed its verification: its report cannot be read\n"
    )


@pytest.mark.parametrize("report", ['{"ok": true, "problems": []}', None], ids=["verified", "never verified"])
def test_others_run_without_a_word(report: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if report is not None:
        (tmp_path / "verify.json").write_text(report)
    assert warned(tmp_path, capsys) == ""
