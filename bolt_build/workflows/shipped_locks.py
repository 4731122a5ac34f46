"""Locks of zoo models that bolt-build brings along: measured, so that a recipe of one's own starts from them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import bolt_build
from bolt_build.lockfile.text import target_names

_HERE = Path(bolt_build.__file__).resolve().parent
_FOLDERS = (_HERE / "recipes", _HERE.parent / "recipes")
"""Where recipes lie in an installed package, and in a checkout."""


def shipped_lock(model: str, targets: Sequence[str]) -> Path | None:
    """The lock of a zoo model that has something of one of these targets; None where there is none."""
    for folder in _FOLDERS:
        path = folder / f"{model}.lock"
        if path.is_file():
            known = target_names(path.read_text(encoding="utf-8"))
            return path if any(name in known for name in targets) else None
    return None
