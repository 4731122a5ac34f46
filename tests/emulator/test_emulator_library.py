"""The emulator's runtime is there whole or not at all, whoever is killed while it is made."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from bolt_build.toolchain import probe

runtime = importlib.import_module("bolt_build.emulator.library")
PROGRAM = """
import importlib, os, signal, sys
from pathlib import Path
runtime = importlib.import_module("bolt_build.emulator.library")
def build(cxx, sources, scratch, target):
    target.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
runtime._build = build
runtime.library(Path(sys.argv[1]))
"""


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Where runtimes were made, by a compiler that takes no time."""
    made: list[Path] = []

    def build(cxx: str, sources: Sequence[Path], scratch: Path, target: Path) -> None:
        target.write_text("whole")
        made.append(target)

    if probe(("cxx", "nvcc")).diagnostics():
        pytest.skip("needs a C++ compiler and nvcc")
    monkeypatch.setattr(runtime, "_build", build)
    return made


def test_what_a_killed_process_left_half_made_is_made_again(tmp_path: Path, built: list[Path]) -> None:
    killed = subprocess.run([sys.executable, "-c", PROGRAM, tmp_path], check=False)
    assert killed.returncode == -signal.SIGKILL
    (left,) = (path for path in tmp_path.iterdir() if path.is_dir())
    assert [path.read_text() for path in left.rglob(runtime.NAME)] == ["half"]
    found = runtime.library(tmp_path)
    assert found.read_text() == "whole"
    assert {path.name for path in tmp_path.iterdir()} == {"lock", found.parent.name}
    assert runtime.library(tmp_path) == found
    assert len(built) == 1


def test_the_runtimes_that_were_asked_for_last_are_kept(tmp_path: Path, built: list[Path]) -> None:
    own = runtime.library(tmp_path).parent
    others = [tmp_path / f"{number:016}" for number in range(9)]
    for number, other in enumerate(others):
        other.mkdir()
        os.utime(other, (number + 1, number + 1))
    os.utime(own, (0, 0))
    runtime.library(tmp_path)
    assert own.stat().st_mtime > 9
    (own / runtime.NAME).unlink()
    own.rmdir()
    runtime.library(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"lock", own.name, *(other.name for other in others[1:])}
