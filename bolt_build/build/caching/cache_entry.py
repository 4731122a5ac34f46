"""What the cache says of one task: which outputs it made, and of which task that is said."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bolt_build.digest import digest

ENTRY_VERSION = 1
LARGEST_ENTRY = 1 << 20
"""Bytes of an entry: tasks have a handful of outputs."""

_DIGEST = re.compile(r"[0-9a-f]{64}\Z")


class RefusedEntry(Exception):
    """An entry that is not taken; the text says why, and goes on behind "the entry in the cache ..."."""


@dataclass(frozen=True)
class CachedOutput:
    """A file that a task made: its name as the task calls it, the SHA-256 of its contents in hex, and its bytes."""

    name: str
    digest: str
    size: int
    executable: bool


@dataclass(frozen=True)
class CacheEntry:
    """`key` is the task's: the digest of all that the outputs follow from."""

    key: str
    outputs: tuple[CachedOutput, ...]


def is_digest(text: str) -> bool:
    """True for what may name a file of the cache."""
    return _DIGEST.match(text) is not None


def entry_text(entry: CacheEntry) -> str:
    data = _data(entry)
    return json.dumps(data | {"seal": digest(data)}) + "\n"


def read_entry(text: bytes, key: str, names: Sequence[str] | None) -> CacheEntry:
    """The entry that `text` holds, which must be that of the task with this key, and of outputs with these names (None:
    with any).

    Raises RefusedEntry where it is another's, or is not what was written: nothing in it becomes part of a path before
    it is known to be a digest, and the seal is the digest of all the rest.
    """
    try:
        data = json.loads(text)
        outputs = tuple(_output(each) for each in data["outputs"])
        found = CacheEntry(data["key"], outputs)
        sealed = type(data["version"]) is int and data == _data(found) | {"seal": data["seal"]}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise RefusedEntry("is damaged") from error
    if data["version"] != ENTRY_VERSION:
        raise RefusedEntry("is of another version")
    if not sealed or data["seal"] != digest(_data(found)):
        raise RefusedEntry("was changed")
    if found.key != key:
        raise RefusedEntry("is another task's")
    if names is not None and sorted(output.name for output in outputs) != sorted(names):
        raise RefusedEntry("is of other outputs")
    return found


def _data(entry: CacheEntry) -> dict[str, Any]:
    return {"version": ENTRY_VERSION, "key": entry.key, "outputs": [vars(output) for output in entry.outputs]}


def _output(data: Any) -> CachedOutput:
    """Raises KeyError, TypeError, ValueError."""
    found = CachedOutput(data["name"], data["digest"], data["size"], data["executable"])
    kinds = (str, str, int, bool)
    if tuple(type(value) for value in vars(found).values()) != kinds or not is_digest(found.digest) or found.size < 0:
        raise ValueError(f"no output of a task: {data!r:.80}")
    return found
