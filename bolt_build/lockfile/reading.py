"""The lock: for each target the fastest kernel of every problem with its evidence, the cover of every graph, and the
kernels that whole engines are faster with.

A YAML file beside the recipe, written by tuning and read by every build after it, so that a machine without a GPU
builds the tuned engine. `load_lock` reads it, `lock_text` is the text of a whole lock, and `updated_lock_text` puts one
target's part, which tuning made, into a file. A lock has one integer version, which grows when it comes to hold more.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from bolt_build.errors import UPGRADE, BoltError, Diagnostic
from bolt_build.families.base import Candidate
from bolt_build.lockfile.contents import LOCK_VERSION, Lock, LockedEngine, LockedTarget, LockEntry
from bolt_build.lockfile.fingerprint import Device, Fingerprint, TuningTools
from bolt_build.lockfile.text import lock_text, with_part
from bolt_build.planner.selection import ChosenAlternative, ChosenCover
from bolt_build.schema.document import MAX_BYTES, DocumentKind, read_document
from bolt_build.schema.validate import validate
from bolt_build.schema.values import Items, Scalar, Table, plain
from bolt_build.sizes import sizes_of
from bolt_build.user_files import read_regular

__all__ = [
    "LOCK_VERSION", "Lock", "LockEntry", "LockedEngine", "LockedTarget", "load_lock", "lock_text", "updated_lock_text",
]  # fmt: skip

LOCK = DocumentKind(
    "lock",
    f"lock: {LOCK_VERSION}",
    merged="take one side whole (git checkout --ours or --theirs), and tune again for what it lacks",
)


def load_lock(path: Path) -> Lock:
    """The lock at `path`. Raises BoltError with everything that is wrong with it, each with its place: it cannot be
    read, is no YAML, has a newer version, or values that its schema (`lock.schema.json`) does not allow."""
    table, found = read_document(path, LOCK)
    newer = _newer_version(table)
    if newer is not None:
        raise BoltError([newer])
    wrong = [*found, *validate(table, _schema(), LOCK.noun)]
    wrong = wrong or _unknown_fingerprints(table)
    if wrong:
        raise BoltError(sorted(wrong, key=_place))
    data = plain(table)
    stated = data["lock"] >= LOCK_VERSION
    found_targets = (_target(name, each, stated) for name, each in data["targets"].items())
    return Lock(tuple(sorted(found_targets, key=lambda each: each.target)))


def updated_lock_text(path: Path, part: LockedTarget) -> str:
    """The text of the lock at `path` (a new one where there is no file) with this part in place of its target's.

    The other parts keep their bytes, and comments stay. Raises BoltError where the file is no lock.
    """
    if not path.exists():
        return lock_text(Lock((part,)))
    return with_part(load_lock(path), read_regular(path, MAX_BYTES).decode("utf-8-sig"), part)


def _place(diagnostic: Diagnostic) -> tuple[int, int]:
    return (diagnostic.mark.line, diagnostic.mark.column) if diagnostic.mark is not None else (0, 0)


@functools.cache
def _schema() -> dict[str, Any]:
    text = files("bolt_build.lockfile").joinpath("lock.schema.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def _newer_version(table: Table) -> Diagnostic | None:
    entry = table.get("lock")
    if entry is None or not isinstance(entry.value, Scalar):
        return None
    version = entry.value.value
    if type(version) is not int or version <= LOCK_VERSION:
        return None
    message = f"lock format {version} is newer than this bolt-build, which reads format {LOCK_VERSION}"
    hint = UPGRADE
    return Diagnostic("newer-version", message, entry.value.mark, hint)


def _unknown_fingerprints(table: Table) -> list[Diagnostic]:
    """Every entry of a lock that fits the schema must name a fingerprint that stands in it."""
    found = []
    for name, target in _tables(table, "targets"):
        known = [known for known, _ in _tables(target, "fingerprints")]
        for named in (*(problem for _, problem in _tables(target, "problems")), *_items(target, "engines")):
            entry = named.get("fingerprint")
            if entry is not None and isinstance(entry.value, Scalar) and entry.value.value not in known:
                message = f"'targets.{name}.fingerprints' has no '{entry.value.value}'"
                found.append(Diagnostic("unknown-fingerprint", message, entry.value.mark))
    return found


def _tables(table: Table, key: str) -> list[tuple[str, Table]]:
    entry = table.get(key)
    if entry is None or not isinstance(entry.value, Table):
        return []
    return [(each.key, each.value) for each in entry.value.entries if isinstance(each.value, Table)]


def _items(table: Table, key: str) -> list[Table]:
    """The tables of a list."""
    entry = table.get(key)
    if entry is None or not isinstance(entry.value, Items):
        return []
    return [item for item in entry.value.items if isinstance(item, Table)]


def _target(name: str, data: Mapping[str, Any], stated: bool) -> LockedTarget:
    fingerprints = {
        known: Fingerprint(Device(**each["device"]), TuningTools(**each["tools"]))
        for known, each in data["fingerprints"].items()
    }
    covers = tuple(
        ChosenCover(
            each["graph"], each["batch"],
            tuple(
                ChosenAlternative(tuple(one["nodes"]), one["family"], tuple(one["problems"]))
                for one in each["alternatives"]
            ),
            tuple(each.get("dims", {}).items()),
        )
        for each in data["covers"]
    )  # fmt: skip
    entries = (_read_entry(problem, each) for problem, each in data["problems"].items())
    return LockedTarget(
        name, tuple(sorted(fingerprints.items())), tuple(sorted(entries, key=lambda each: each.problem)),
        tuple(sorted(covers, key=lambda cover: (sizes_of(cover), cover.graph))),
        tuple(sorted(map(_read_engine, data.get("engines", ())), key=lambda each: (sizes_of(each), each.graph))),
        stated,
    )  # fmt: skip


def _read_engine(data: Mapping[str, Any]) -> LockedEngine:
    swaps = (
        (problem, _candidate(each), float(each["median"])) for problem, each in sorted(data["swaps"].items())
    )  # fmt: skip
    return LockedEngine(
        data["batch"], data["graph"], data["table"], float(data["before"]), float(data["after"]),
        float(data["gain"]), data["tried"], tuple(swaps), data["fingerprint"], data["plans"],
        data.get("in_place_of"), tuple(data.get("dims", {}).items()),
    )  # fmt: skip


def _read_entry(problem: str, data: Mapping[str, Any]) -> LockEntry:
    other = data.get("runner_up")
    return LockEntry(
        problem, data["what"], _candidate(data["winner"]), float(data["winner"]["median"]),
        _candidate(other) if other is not None else None, float(other["median"]) if other is not None else None,
        float(data["predicted"]), data["measured"], data["fingerprint"],
    )  # fmt: skip


def _candidate(data: Mapping[str, Any]) -> Candidate:
    return Candidate(data["family"], tuple(data.get("parameters", {}).items()), tuple(data.get("settings", {}).items()))
