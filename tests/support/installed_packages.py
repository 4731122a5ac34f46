"""Packages as pip leaves them: `install` writes one where this process, and those it starts, find it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest


def install(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: Mapping[str, str],
    entries: Mapping[str, Mapping[str, str]],
    name: str = "more-of-it",
    version: str = "1.0",
) -> None:
    """`files` by their paths in `folder`; `entries` are objects by name, by group without its "bolt_build."."""
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
        # What an earlier test imported under this name is not what is there now.
        monkeypatch.delitem(sys.modules, path.removesuffix(".py").replace("/", "."), raising=False)
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    sections = (
        f"[bolt_build.{group}]\n" + "".join(f"{each} = {value}\n" for each, value in named.items())
        for group, named in entries.items()
    )
    (info / "entry_points.txt").write_text("".join(sections))
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")])))
