"""Documents that were found valid before: importing jsonschema would be a third of a build with nothing to do.

What is kept is a digest of all that the answer follows from: values, schema, and the code that judges them. Only
"valid" is kept: whatever is wrong is found, and said, again.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from bolt_build.digest import digest_file
from bolt_build.own_folders import is_own, make_own_folder, state_folder
from bolt_build.user_files import MEBIBYTE, read_regular

LARGEST_FILE = MEBIBYTE
KEPT = 64
"""Digests that are kept, the last ones that were asked for."""


class ValidBefore:
    """Keeps digests in `file`; without a file that is the user's own nothing is known."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._known: list[str] = []
        if file is not None:
            with contextlib.suppress(OSError, ValueError, RecursionError):
                stored = json.loads(read_regular(file, LARGEST_FILE)) if is_own(file) else []
                self._known = [each for each in stored if isinstance(each, str)] if isinstance(stored, list) else []

    def knows(self, key: str | None) -> bool:
        """True where `key` was learnt."""
        return key in self._known

    def learn(self, key: str | None) -> None:
        """Keep the digest of a valid document. Where it cannot be written it costs time only, and says nothing."""
        if self._file is None or key is None or key in self._known:
            return
        self._known = [*self._known, key][-KEPT:]
        with contextlib.suppress(OSError):
            make_own_folder(self._file.parent)
            handle, name = tempfile.mkstemp(dir=self._file.parent, prefix="valid-", suffix=".json")
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                json.dump(self._known, stream, indent=1)
            os.replace(name, self._file)


def valid_before() -> ValidBefore:
    """What the user's state folder keeps."""
    folder = state_folder()
    return _kept_in(None if folder is None else folder / "valid.json")


@functools.cache
def _kept_in(file: Path | None) -> ValidBefore:
    return ValidBefore(file)


def key_of(value: Any, schema: Any) -> str | None:
    """Digest of plain values, their schema and the code here; None where a value has no plain form."""
    try:
        text = json.dumps([value, schema], sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        return None
    return hashlib.sha256(f"{_code()}\n{text}".encode("utf-8", "surrogatepass")).hexdigest()


@functools.cache
def _code() -> str:
    folder = Path(__file__).parent
    return " ".join(digest_file(folder / name) for name in ("validate.py", "valid_before.py"))
