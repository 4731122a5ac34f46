"""Answers of earlier probes: a build with nothing to do must not start a compiler to ask for its version.

They name programs and libraries of this machine, which are run and copied beside engines. So they are no part of the
cache, which may be shared, and a file that somebody else can have written is not read.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from bolt_build.own_folders import is_own, make_own_folder, state_folder
from bolt_build.user_files import MEBIBYTE, read_regular

LARGEST_FILE = 4 * MEBIBYTE


def memory_file() -> Path | None:
    """Where the user's answers are kept; None where the user has no folder for them."""
    folder = state_folder()
    return None if folder is None else folder / "tools.json"


class Memory:
    """Answers of earlier probes, kept in a file. Without a file that is the user's own everything is asked again."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._answers: dict[str, str] = {}
        self._changed = False
        if file is not None:
            try:
                stored = json.loads(read_regular(file, LARGEST_FILE)) if is_own(file) else {}
            except (OSError, ValueError, RecursionError):
                stored = {}
            if isinstance(stored, dict):
                self._answers = {key: value for key, value in stored.items() if isinstance(value, str)}

    def recall(self, path: Path, question: str, ask: Callable[[], str | None]) -> str | None:
        """The answer to `question` about the file at `path`: the remembered one if the file has not changed since."""
        program = os.path.realpath(path)
        state = os.stat(program)
        key = hashlib.sha256(
            f"{question}\0{path}\0{program}\0{state.st_size}\0{state.st_mtime_ns}".encode()
        ).hexdigest()
        if key not in self._answers:
            answer = ask()
            if answer is None:
                return None
            self._answers[key] = answer
            self._changed = True
        return self._answers[key]

    def save(self) -> None:
        """Write what was learnt. A cache that cannot be written costs time only, and says nothing."""
        if self._file is None or not self._changed:
            return
        try:
            make_own_folder(self._file.parent)
            handle, name = tempfile.mkstemp(dir=self._file.parent, prefix="tools-", suffix=".json")
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                json.dump(self._answers, stream, indent=1, sort_keys=True)
            os.replace(name, self._file)
        except OSError:
            return
