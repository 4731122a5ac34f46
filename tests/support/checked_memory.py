"""Programs under valgrind, which finds wrong reads and writes, and what nobody can free any more."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

# What engines and oneDNN do when they start runs once: nearly all of valgrind's time goes into translating it. So
# blocks are short, and none goes on behind a jump, where the next translation would take the same code in again.
_TRANSLATION = ("--vex-guest-chase=no", "--vex-guest-max-insns=20")
# Threads that OpenMP keeps are reachable at the end, and no leak.
_LEAKS = ("--leak-check=full", "--errors-for-leak-kinds=definite", "--show-leak-kinds=definite")


def under_valgrind(program: Sequence[str], suppressions: Path | None = None) -> list[str] | None:
    """The command that runs a program so, and ends with 9 where something is wrong; None without valgrind."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        return None
    left = () if suppressions is None else (f"--suppressions={suppressions}",)
    return [valgrind, "--quiet", "--error-exitcode=9", *_LEAKS, *_TRANSLATION, *left, *program]
