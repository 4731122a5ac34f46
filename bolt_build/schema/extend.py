"""`extend`: a recipe and those it builds on, merged into one mapping whose marks point to where each value stands."""

from __future__ import annotations

import os
from pathlib import Path

from bolt_build.errors import UPGRADE, BoltError, Diagnostic, Mark
from bolt_build.schema.document import read_document
from bolt_build.schema.recipe import RECIPE_VERSION
from bolt_build.schema.values import Entry, Scalar, Table

OWN_KEYS = ("bolt", "extend", "name")
"""Keys about the file itself, which a recipe that extends it does not inherit."""


def read_extended(path: Path) -> tuple[Table, tuple[Diagnostic, ...]]:
    """The mapping of the recipe at `path` over that of the one it extends, and so on; and what is wrong
    with their keys and tags.

    Mappings merge, everything else replaces. What a recipe says itself comes after what it inherits, so that its
    layer overrides are the last to match. Raises BoltError where a file cannot be read, extends itself, or has
    a newer format than this program.
    """
    found: list[Diagnostic] = []
    fatal: list[Diagnostic] = []
    tables: list[Table] = []
    seen: dict[str, Path] = {}
    at: Path | None = path
    reached_by: Mark | None = None
    while at is not None:
        place = os.path.realpath(at)
        if place in seen:
            fatal.append(_cycle(list(seen.values()), place, reached_by))
            break
        seen[place] = at
        try:
            table, wrong = read_document(at)
        except BoltError as error:
            fatal.extend(_reached(diagnostic, reached_by) for diagnostic in error.diagnostics)
            break
        found.extend(wrong)
        tables.append(table)
        fatal.extend(_newer_version(table))
        if reached_by is not None and table.get("bolt") is None:
            message = "a recipe needs the key 'bolt'"
            found.append(Diagnostic("missing-key", message, table.mark, f"add 'bolt: {RECIPE_VERSION}'"))
        at, reached_by = _base_of(table, at)
    if fatal:
        raise BoltError([*found, *fatal])
    merged = tables[0]
    inherited = [Table(_inherited(table), table.mark) for table in tables[1:]]
    for table in inherited:
        merged = merge(table, merged)
    return merged, tuple(found)


def merge(base: Table, over: Table) -> Table:
    """`over` on top of `base`: keys only in `base` first, then those of `over`."""
    entries = [entry for entry in base.entries if over.get(entry.key) is None]
    for entry in over.entries:
        below = base.get(entry.key)
        if below is not None and isinstance(below.value, Table) and isinstance(entry.value, Table):
            entry = Entry(entry.key, entry.mark, merge(below.value, entry.value))
        entries.append(entry)
    return Table(tuple(entries), over.mark)


def _inherited(table: Table) -> tuple[Entry, ...]:
    return tuple(entry for entry in table.entries if entry.key not in OWN_KEYS)


def _base_of(table: Table, path: Path) -> tuple[Path | None, Mark | None]:
    """The file that `extend` names, if it is a name at all (validation says so where it is not)."""
    entry = table.get("extend")
    if entry is None or not isinstance(entry.value, Scalar):
        return None, None
    name = entry.value.value
    if not isinstance(name, str) or not name:
        return None, None
    if "\0" in name:
        raise BoltError([Diagnostic("bad-value", "'extend' holds a NUL", entry.value.mark)])
    return Path(os.path.normpath(path.parent / name)), entry.value.mark


def _newer_version(table: Table) -> list[Diagnostic]:
    entry = table.get("bolt")
    if entry is None or not isinstance(entry.value, Scalar):
        return []
    version = entry.value.value
    if type(version) is not int or version <= RECIPE_VERSION:
        return []
    message = f"recipe format {version} is newer than this bolt-build, which reads format {RECIPE_VERSION}"
    return [Diagnostic("newer-version", message, entry.value.mark, UPGRADE)]


def _reached(diagnostic: Diagnostic, reached_by: Mark | None) -> Diagnostic:
    """A file that could not be opened is wrong where it was named."""
    if reached_by is None or diagnostic.mark is not None:
        return diagnostic
    message = f"'{diagnostic.subject}': {diagnostic.message}"
    return Diagnostic(diagnostic.code, message, reached_by, diagnostic.hint)


def _cycle(chain: list[Path], place: str, mark: Mark | None) -> Diagnostic:
    start = next(index for index, path in enumerate(chain) if os.path.realpath(path) == place)
    way = " -> ".join(str(path) for path in [*chain[start:], chain[start]])
    return Diagnostic("extend-cycle", f"recipes extend each other: {way}", mark)
