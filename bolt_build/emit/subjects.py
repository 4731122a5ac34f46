"""`manifest.json` beside the artifacts: the statement that the engine carries, with their digests as its subjects.

It takes the statement as text, and imports nothing that knows of plans: a task of every build writes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bolt_build.digest import digest_file
from bolt_build.emit.elf import read_elf

_WIDTH = 118


def manifest_json(embedded: str, model: str, library: Path, artifacts: Sequence[Path]) -> str:
    """The manifest beside the artifacts: subjects are `artifacts` (the library among them) by file name and digest.

    `embedded` is the manifest that the engine carries (`embedded_manifest`). `model` is the digest (SHA-256, hex) of
    the ONNX model, with whose weights the weights file beside it was written: the engine itself does not carry it,
    since its weights can be swapped. `requires` has the shared libraries that `library` needs and the least version of
    each of their symbol sets that it uses (the least glibc). Raises OSError; ValueError where `library` is no ELF file
    or `embedded` is no JSON.
    """
    statement = json.loads(embedded)
    definition = statement["predicate"]["buildDefinition"]
    definition["resolvedDependencies"].insert(0, {"name": "model", **digest_of(model)})
    statement["subject"] = [
        {"digest": {"sha256": digest_file(path)}, "name": path.name} for path in sorted(artifacts, key=lambda p: p.name)
    ]
    elf = read_elf(library)
    requires = definition["internalParameters"]["requires"]
    requires["libraries"] = sorted(elf.needed)
    requires["leastVersions"] = dict(elf.least_versions)
    return statement_text(statement)


def digest_of(sha256: str) -> dict[str, Any]:
    """A SHA-256 in hex as in-toto writes it; nothing of an empty one."""
    return {"digest": {"sha256": sha256}} if sha256 else {}


def statement_text(statement: Mapping[str, Any]) -> str:
    """JSON with sorted keys in which whatever fits a line stands in one."""
    return _lines(statement, 0) + "\n"


def _lines(value: Any, depth: int) -> str:
    flat = json.dumps(value, sort_keys=True)
    if depth * 2 + len(flat) <= _WIDTH or not isinstance(value, dict | list) or not value:
        return flat
    inner, end = "\n" + "  " * (depth + 1), "\n" + "  " * depth
    if isinstance(value, list):
        return "[" + ",".join(inner + _lines(item, depth + 1) for item in value) + end + "]"
    items = (f"{inner}{json.dumps(key)}: {_lines(item, depth + 1)}" for key, item in sorted(value.items()))
    return "{" + ",".join(items) + end + "}"
