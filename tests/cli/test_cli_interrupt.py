"""Ctrl-C while the command line is loading, which is before and between what it does: one line, and exit code 130."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from recipe_projects import ROOT, new_project

from bolt_build.cli import check
from bolt_build.cli.main import main
from bolt_build.errors import ExitCode

PROGRAM = """
import signal, sys
from bolt_build.__main__ import run
where = sys.argv.pop(1)
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == where:
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
sys.exit(run())
"""
INTERRUPTED = "bolt-build: interrupted\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_project(tmp_path_factory.mktemp("interrupt") / "here", tmp_path_factory.mktemp("cache")).path


# numpy.linalg is loaded by NumPy's own C code, which prints a traceback and raises ImportError of what interrupts it.
@pytest.mark.parametrize("module", ["bolt_build.cli.main", "argparse", "bolt_build.cli.check", "yaml", "numpy.linalg"])
def test_an_import_that_is_interrupted_says_one_line(module: str, folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, module, "check", "--model", "tiny.yaml"], cwd=folder, check=False,
        capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (ExitCode.INTERRUPTED, "")
    assert done.stderr.removeprefix("planning tiny for host\n").lstrip("\n") == INTERRUPTED


def test_an_import_that_takes_too_long_is_interrupted_and_its_own_error_is_no_bug(folder: Path) -> None:
    """NumPy makes an ImportError of it, and prints a traceback first."""
    impatient = f"from bolt_build.cli import interrupts\ninterrupts._PATIENCE_SECONDS = 0\n{PROGRAM}"
    done = subprocess.run(
        [sys.executable, "-c", impatient, "numpy.linalg", "check", "--model", "tiny.yaml"], cwd=folder, check=False,
        capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (ExitCode.INTERRUPTED, "")
    assert done.stderr.endswith(f"\n{INTERRUPTED}")
    assert "bug" not in done.stderr


def test_an_interrupt_that_is_ignored_stays_ignored(folder: Path) -> None:
    """As by nohup, and by a shell's & in a script."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "yaml", "check", "tiny.yaml"], cwd=folder, check=False,
        capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (ExitCode.OK, "")


def test_what_goes_wrong_while_an_interrupt_is_cleaned_up_is_no_bug(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """argparse has such a `finally`."""

    def run(args: argparse.Namespace) -> int:
        try:
            raise KeyboardInterrupt
        finally:
            raise AttributeError("save_nargs")

    monkeypatch.setattr(check, "run", run)
    monkeypatch.setattr("bolt_build.cli.streams.abandon", lambda stream: None)
    assert main(["check", str(folder / "tiny.yaml")]) == ExitCode.INTERRUPTED
    assert capsys.readouterr().err == f"\n{INTERRUPTED}"
