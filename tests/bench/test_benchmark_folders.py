"""benchmarks/README.md has a line for each script, and scripts run from any directory."""

from __future__ import annotations

import re
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

from benchmarks import ROOT, record

BENCHMARKS = ROOT / "benchmarks"
PAGE = (BENCHMARKS / "README.md").read_text(encoding="utf-8")
SCRIPTS = [
    path for path in sorted(BENCHMARKS.rglob("*.py")) if path.parent.name not in ("results", "rendered", "benchmarks")
]


def test_every_script_has_a_line() -> None:
    sections = dict(re.findall(r"^## (\w+):.*\n((?:(?!## ).*\n)*)", PAGE, re.MULTILINE))
    named = {folder: re.findall(r"`([\w/*]+)(?:\.\w+)?`", text) for folder, text in sections.items()}
    missing = [
        str(path.relative_to(ROOT))
        for path in SCRIPTS
        if path.parent.parent == BENCHMARKS and path.stem not in named.get(path.parent.name, ())
    ]
    assert missing == []


def test_every_result_is_written_by_a_script_of_the_tables() -> None:
    rows = re.findall(r"^\|.*\| ([^|]*) \|$", PAGE, re.MULTILINE)
    written = [name for row in rows for name in re.findall("`(.*?)`", row)]
    results = [path.stem for path in sorted(record.RESULTS.glob("*.json"))]
    assert [name for name in results if not any(fnmatch(name, pattern) for pattern in written)] == []


def test_every_program_puts_the_checkout_on_the_path() -> None:
    line = "sys.path.insert(0, str(Path(__file__).resolve().parents[2]))"
    programs = [path for path in SCRIPTS if "__main__" in path.read_text() and path.name != "torch_peers.py"]
    assert [path.name for path in programs if f"\n{line}\n" not in path.read_text()] == []


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (BENCHMARKS / "peers" / "cnn_peers.py", "benchmarks/peers/cnn_peers.py"),
        (Path("elsewhere") / "net.py", "benchmarks/net.py"),
    ],
)
def test_a_result_names_its_script_by_its_path_in_the_checkout(
    monkeypatch: pytest.MonkeyPatch, run: Path, said: str
) -> None:
    monkeypatch.setattr(sys, "argv", [str(run)])
    assert record.script() == said
