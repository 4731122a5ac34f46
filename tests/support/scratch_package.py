"""A copy of the package to which something is added, and what that touched."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "bolt_build"
PATIENCE_SECONDS = 300


@dataclass
class Scratch:
    """A copy of the package, and what was changed in it: files that are new, and places in others, by file. The import
    of what a place names is no place."""

    folder: Path
    added: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)

    def add(self, path: str, text: str) -> None:
        assert not (self.folder / path).exists()
        (self.folder / path).write_text(text)
        self.added.append(path)

    def line(self, path: str, before: str, line: str) -> None:
        """`line` in front of the only line that begins with `before`."""
        file = self.folder / path
        lines = file.read_text().splitlines(keepends=True)
        (place,) = [index for index, each in enumerate(lines) if each.startswith(before)]
        file.write_text("".join([*lines[:place], f"{line}\n", *lines[place:]]))
        if not line.startswith("from "):
            self.changed.append(path)

    def edit(self, path: str, old: str, new: str) -> None:
        """`new` for `old`, which is there once."""
        file = self.folder / path
        text = file.read_text()
        assert text.count(old) == 1, f"{path}: {old}"
        file.write_text(text.replace(old, new))
        self.changed.append(path)

    def run(self, code: str) -> str:
        """What a program prints that imports the copy."""
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=self.folder, capture_output=True, text=True, check=False,
            timeout=PATIENCE_SECONDS,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def scratch_copy(folder: Path) -> Scratch:
    """What additions are tried in: the package without C++ that none of them compiles."""
    shutil.copytree(PACKAGE, folder / "bolt_build", ignore=shutil.ignore_patterns("__pycache__", "src", "emulator"))
    return Scratch(folder)


def table() -> dict[str, tuple[str, str]]:
    """Files and lines elsewhere that CONTRIBUTING.md states, by what is added."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    shown = page.partition("| What | Files | Lines elsewhere |\n")[2].partition("\n\n")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in shown.splitlines()[1:]]
    return {what: (files, elsewhere) for what, files, elsewhere in cells}


def touches(scratch: Scratch, what: str, name: str) -> None:
    """Asserts that what was added and changed is what the table says of it."""
    files, elsewhere = table()[what]
    stated = [
        re.escape(each).replace("NAME", rf"\w*{name}\w*").replace("FOLDER", r"\w+")
        for each in re.findall("`([^`]+)`", files)
    ]
    for path in scratch.added:
        assert any(re.fullmatch(each, path) for each in stated), f"{path} is none of {files}"
    for each in stated:
        assert any(re.fullmatch(each, path) for path in scratch.added), f"{each} was not needed"
    words = re.findall("`([^`]+)`", elsewhere)
    readers = [path for path in scratch.changed if path not in words and Path(path).name not in words]
    assert len(readers) == (1 if "reader" in elsewhere else 0), f"{readers} is not said of: {elsewhere}"
    count = re.match(r"\d+", elsewhere)
    places = int(count[0]) if count else len(readers) + sum(not word.endswith("/") for word in words)
    assert len(scratch.changed) == places, f"{scratch.changed}, not {elsewhere}"
