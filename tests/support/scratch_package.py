"""A copy of the package to which something is added, and what that touched."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "bolt_build"
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
