"""The values of a YAML file, each with the place where it stands."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bolt_build.errors import Mark

Plain = None | bool | int | float | str


@dataclass(frozen=True)
class Scalar:
    """One value without parts."""

    value: Plain
    mark: Mark


@dataclass(frozen=True)
class Items:
    """A list."""

    items: tuple[Value, ...]
    mark: Mark


@dataclass(frozen=True)
class Entry:
    """A key, where it stands, and its value."""

    key: str
    mark: Mark
    value: Value


@dataclass(frozen=True)
class Table:
    """A mapping, in the file's order, every key once."""

    entries: tuple[Entry, ...]
    mark: Mark

    def get(self, key: str) -> Entry | None:
        """The entry called `key`."""
        for entry in self.entries:
            if entry.key == key:
                return entry
        return None


@dataclass(frozen=True)
class Unreadable:
    """A value that a diagnostic says all about already: nothing more is to be said of it."""

    mark: Mark


Value = Scalar | Items | Table | Unreadable


def describe(value: Value) -> str:
    """What `value` is, for a sentence: "the string 'x'", "a list", "nothing"."""
    if isinstance(value, Items):
        return "a list"
    if isinstance(value, Table):
        return "a mapping"
    if isinstance(value, Unreadable) or value.value is None:
        return "nothing"
    if isinstance(value.value, str):
        return f"the string '{shorten(value.value)}'"
    if isinstance(value.value, bool):
        return "true" if value.value else "false"
    if isinstance(value.value, float) and not math.isfinite(value.value):
        return "a number that is not finite"
    return f"the {'integer' if isinstance(value.value, int) else 'number'} {shorten(str(value.value))}"


def shorten(text: str) -> str:
    """`text` on one line of a message."""
    printable = "".join(c if c.isprintable() else " " for c in text)
    return printable if len(printable) <= 60 else printable[:57] + "..."


def walk(table: Table, prefix: str = "") -> Iterator[tuple[str, Entry]]:
    """Every entry below `table` with its dotted key, parents first."""
    for entry in table.entries:
        key = f"{prefix}{entry.key}"
        yield key, entry
        if isinstance(entry.value, Table):
            yield from walk(entry.value, f"{key}.")


def value_at(table: Table, *keys: str) -> Value | None:
    """The value of nested `keys`, None where one of them is not there."""
    found: Value = table
    for key in keys:
        entry = found.get(key) if isinstance(found, Table) else None
        if entry is None:
            return None
        found = entry.value
    return found


def text_at(table: Table, *keys: str) -> tuple[str, Mark] | None:
    """The string of nested `keys` and its place; None where there is none, or an empty one."""
    value = value_at(table, *keys)
    if isinstance(value, Scalar) and isinstance(value.value, str) and value.value:
        return value.value, value.mark
    return None


def plain(value: Value) -> Any:
    """`value` as None, bool, int, float, str, list and dict, without marks. What is unreadable is None."""
    if isinstance(value, Scalar):
        return value.value
    if isinstance(value, Unreadable):
        return None
    if isinstance(value, Items):
        return [plain(item) for item in value.items]
    return {entry.key: plain(entry.value) for entry in value.entries}
