"""Digests of bolt-build's own files, by the part that reads them: what it makes is only as current as it is itself."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Iterable
from importlib.metadata import entry_points
from pathlib import Path

from bolt_build.digest import digest, digest_bytes

PACKAGE = Path(__file__).resolve().parents[1]

_COMMON = ("digest.py", "dtypes.py", "errors.py", "targets.py")
_PARTS = {
    "planner": (*_COMMON, "schema", "graph", "planner", "families"),
    "emit": (*_COMMON, "emit", "families", "planner/engine_plan.py", "graph/ir.py", "graph/ops", "runtime/include"),
    "weights": (*_COMMON, "schema", "graph", "planner", "families", "emit/weights.py"),
    "runtime": ("runtime/include", "runtime/runner/runner.h"),
    "verify": (*_COMMON, "verify", "graph", "runtime/loader.py", "runtime/engine_abi.py", "runtime/engine_tensors.py"),
    "manifest": (*_COMMON, "emit/manifest.py", "emit/elf.py"),
    "zoo": ("graph/zoo", "graph/variants", "dtypes.py"),
    "tasks": ("build", "toolchain", "runtime/__init__.py"),
}
PARTS = tuple(_PARTS)
_PLUGIN_GROUPS = ("bolt_build.families", "bolt_build.targets", "bolt_build.ops", "bolt_build.passes")


@functools.cache
def part_digest(part: str) -> str:
    """Digest of the files of one part of bolt-build ("planner", "emit"...), with other packages' additions to it."""
    own = [tree_digest(PACKAGE / path) for path in _PARTS[part]]
    return digest([own, _plugins() if part in ("planner", "emit", "weights", "tasks") else ""])


def tree_digest(path: Path) -> str:
    """Digest of a file, or of the names and contents of all files below a directory but Python's own litter."""
    if path.is_file():
        return _file_digest(path)
    return digest([[str(file.relative_to(path)), _file_digest(file)] for file in _files(path)])


def _files(directory: Path) -> Iterable[Path]:
    return sorted(file for file in directory.rglob("*") if "__pycache__" not in file.parts and file.is_file())


@functools.cache
def _file_digest(path: Path) -> str:
    return digest_bytes(path.read_bytes())


@functools.cache
def _plugins() -> str:
    found = []
    for group in _PLUGIN_GROUPS:
        for entry in entry_points(group=group):
            spec = importlib.util.find_spec(entry.module.partition(".")[0])
            places = list(spec.submodule_search_locations or [spec.origin or ""]) if spec is not None else []
            found.append([entry.name, entry.value, [tree_digest(Path(place)) for place in places]])
    return digest(found)
