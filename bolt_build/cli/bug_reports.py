"""Tracebacks of bolt-build's own mistakes, kept for those who send them in."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from bolt_build.own_folders import make_own_folder, state_folder

_KEPT = 10


def keep_report(text: str) -> str:
    """The path of a new file with the text: among the user's own, of which the newest are kept, or where that cannot
    be written among temporary files. Raises OSError."""
    folder = state_folder()
    if folder is not None:
        try:
            make_own_folder(folder)
            make_own_folder(folder / "bugs")
            _forget(folder / "bugs")
            return _written(text, folder / "bugs")
        except OSError:
            pass
    return _written(text, Path(tempfile.gettempdir()))


def _written(text: str, folder: Path) -> str:
    handle, path = tempfile.mkstemp(prefix="bolt-build-", suffix=".log", dir=folder)
    with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as stream:
        stream.write(text)
    return path


def _forget(folder: Path) -> None:
    """Leave room for one more."""
    logs = sorted(folder.glob("bolt-build-*.log"), key=lambda path: path.stat().st_mtime_ns)
    for path in logs[: max(len(logs) - _KEPT + 1, 0)]:
        path.unlink(missing_ok=True)
