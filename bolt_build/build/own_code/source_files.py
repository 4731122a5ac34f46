"""Files of a package as staleness sees them: digests, imports, included headers, found once for each state of a file.

What was found is kept in the user's cache, so that a build with nothing to do parses nothing and hashes nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bolt_build.build.files import write_text
from bolt_build.build.own_code.imports import Imports, ModuleImports, imports_of
from bolt_build.digest import digest_bytes
from bolt_build.own_folders import is_own, make_own_folder
from bolt_build.user_files import MEBIBYTE, read_regular

_VERSION = 1
_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]', re.MULTILINE)
_CXX = (".h", ".hpp", ".cuh", ".cpp", ".cu")
_NOTHING = ModuleImports()

State = tuple[int, int, int]
"""Size, modification time in nanoseconds, inode."""


@dataclass(frozen=True)
class SourceFile:
    """What is in a file: its SHA-256 in hex, and what it imports (Python) or includes (C++), as it is written there."""

    digest: str
    imports: ModuleImports = _NOTHING
    includes: tuple[str, ...] = ()


LARGEST_MEMORY = 16 * MEBIBYTE


class SourceFiles:
    """Looks into files, and remembers them in `memory` (no file where that is None)."""

    def __init__(self, memory: Path | None) -> None:
        self._memory = memory
        self._known: dict[str, tuple[State, SourceFile]] = {}
        self._looked_at: dict[Path, SourceFile] = {}
        self._changed = False
        if memory is not None:
            # What cannot be read, was written by another version, or may be another's work, is found again.
            with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
                if is_own(memory):
                    self._known = _loaded(json.loads(read_regular(memory, LARGEST_MEMORY)))

    def of(self, path: Path, module: str = "") -> SourceFile:
        """What is in the file; `module` is the name of the Python module in it. Raises OSError."""
        if path not in self._looked_at:
            status = path.stat()
            state = (status.st_size, status.st_mtime_ns, status.st_ino)
            known = self._known.get(str(path))
            if known is None or known[0] != state:
                known = state, _look(path, module)
                self._known[str(path)] = known
                self._changed = True
            self._looked_at[path] = known[1]
        return self._looked_at[path]

    def save(self) -> None:
        """Keep what was found. A cache that cannot be written costs time only, and says nothing."""
        if self._memory is None or not self._changed:
            return
        with contextlib.suppress(OSError):
            make_own_folder(self._memory.parent)
            write_text(self._memory, json.dumps(_kept(self._known.items())) + "\n")
            self._changed = False


def _look(path: Path, module: str) -> SourceFile:
    data = path.read_bytes()
    mark = digest_bytes(data)
    if path.suffix == ".py" and module:
        # What Python itself cannot read imports nothing: whoever runs it will hear of it.
        with contextlib.suppress(SyntaxError, ValueError):
            return SourceFile(mark, imports_of(data.decode(), module, package=path.name == "__init__.py"))
    if path.suffix in _CXX:
        return SourceFile(mark, includes=tuple(sorted({os.fsdecode(name) for name in _INCLUDE.findall(data)})))
    return SourceFile(mark)


def _kept(known: Iterable[tuple[str, tuple[State, SourceFile]]]) -> dict[str, Any]:
    files = {
        name: [*state, file.digest, _listed(file.imports.at_once), _listed(file.imports.later), file.includes]
        for name, (state, file) in known
    }
    return {"version": _VERSION, "files": files}


def _listed(found: Imports) -> list[tuple[str, ...]]:
    return [found.names, found.groups, found.reads]


def _loaded(data: dict[str, Any]) -> dict[str, tuple[State, SourceFile]]:
    if data["version"] != _VERSION:
        return {}
    found = {}
    for name, (size, time, inode, mark, at_once, later, includes) in data["files"].items():
        imports = ModuleImports(_imports(at_once), _imports(later))
        found[name] = ((size, time, inode), SourceFile(mark, imports, tuple(includes)))
    return found


def _imports(kept: list[list[str]]) -> Imports:
    return Imports(*map(tuple, kept))
