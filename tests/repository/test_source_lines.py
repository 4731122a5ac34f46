"""Lines of C++ fit beside each other on a screen, as ruff sees to for Python."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WIDTH = 132
TEXT = re.compile(r'\s*".*"[,;)]*')
"""A line that is nothing but text, such as one of a program's help: it is as long as what it prints."""


@pytest.mark.parametrize("folder", ["bolt_build", "benchmarks"])
def test_lines_fit_a_screen(folder: str) -> None:
    files = [path for ending in ("h", "cpp", "cu") for path in sorted((ROOT / folder).rglob(f"*.{ending}"))]
    assert files
    assert [
        f"{path.relative_to(ROOT)}:{number} has {len(line)} columns"
        for path in files
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > WIDTH and not TEXT.fullmatch(line)
    ] == []
