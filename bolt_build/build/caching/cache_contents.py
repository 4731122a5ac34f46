"""What lies in a cache, the local one or a team's store: how much, whether it is what it says, and what may go."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bolt_build.build.caching.cache import Cache
from bolt_build.build.caching.cache_entry import LARGEST_ENTRY, CacheEntry, RefusedEntry, read_entry
from bolt_build.build.caching.cache_folders import BLOBS, ENTRIES, StoredFile
from bolt_build.build.sharing.cache import blob_name
from bolt_build.build.sharing.store import Store, StoredObject

_BLOCK = 1 << 20
_SUFFIX = ".json"


@dataclass(frozen=True)
class Kept:
    """An object of a cache. `used` is when it was used last (in a store: made), in seconds of the epoch."""

    name: str
    size: int
    used: float

    @property
    def kind(self) -> str:
        """The folder that it lies in: entries, blobs, or another."""
        return self.name.partition("/")[0]

    @property
    def key(self) -> str:
        """The digest that it is named by."""
        return self.name.rpartition("/")[2].removesuffix(_SUFFIX)


class Shelf(Protocol):
    """A cache as things that lie in it. Methods raise OSError (the local cache) or StoreTrouble (a store)."""

    def all(self) -> Iterator[Kept]: ...

    def read(self, kept: Kept, limit: int) -> bytes:
        """What it holds; of more than `limit` bytes, one more. Empty where it has gone."""

    def digest(self, kept: Kept) -> str:
        """SHA-256 (hex) of what it holds."""

    def remove(self, kept: Kept) -> None: ...


@dataclass(frozen=True)
class LocalShelf:
    """The local cache."""

    cache: Cache

    def all(self) -> Iterator[Kept]:
        for file in self.cache.folders.all_files():
            yield Kept(f"{file.folder}/{file.part}/{file.name}", file.size, file.used_ns / 1e9)

    def read(self, kept: Kept, limit: int) -> bytes:
        folders = self.cache.folders
        kind, _, name = kept.name.split("/")
        with folders.open(kind, name) as folder, os.fdopen(folders.file(folder, name), "rb") as file:
            return file.read(limit + 1)

    def digest(self, kept: Kept) -> str:
        folders = self.cache.folders
        kind, _, name = kept.name.split("/")
        with folders.open(kind, name) as folder, os.fdopen(folders.file(folder, name), "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def remove(self, kept: Kept) -> None:
        kind, part, name = kept.name.split("/")
        self.cache.folders.remove(StoredFile(0, 0, kind, part, name))


@dataclass(frozen=True)
class SharedShelf:
    """A store that a team shares."""

    store: Store
    prefixes: Sequence[str] = (ENTRIES, BLOBS)

    def all(self) -> Iterator[Kept]:
        for prefix in self.prefixes:
            found: list[StoredObject] = sorted(self.store.all(prefix), key=lambda each: each.name)
            for each in found:
                yield Kept(each.name, each.size, each.modified)

    def read(self, kept: Kept, limit: int) -> bytes:
        return self.store.read(kept.name, limit) or b""

    def digest(self, kept: Kept) -> str:
        return self.store.copy(kept.name, kept.size, Path(os.devnull)) or ""

    def remove(self, kept: Kept) -> None:
        self.store.remove(kept.name)


@dataclass(frozen=True)
class Fault:
    """An object that is not what it says. `why` goes on behind its name."""

    kept: Kept
    why: str


def faults(shelf: Shelf) -> Iterator[Fault]:
    """Entries that are not taken, entries that name contents which are not there, and contents that are not what their
    name says. All is read."""
    everything = [each for each in shelf.all() if each.kind in (ENTRIES, BLOBS)]
    there = {each.key for each in everything if each.kind == BLOBS}
    for kept in everything:
        if kept.name.rpartition("/")[2].startswith("."):
            continue  # half written
        if kept.kind == BLOBS:
            if shelf.digest(kept) != kept.key:
                yield Fault(kept, "is damaged")
            continue
        try:
            entry = read_entry(shelf.read(kept, LARGEST_ENTRY), kept.key, None)
        except RefusedEntry as refused:
            yield Fault(kept, str(refused))
            continue
        if missing := _missing(entry, there):
            yield Fault(kept, f"names {blob_name(missing)}, which is not there")


def _missing(entry: CacheEntry, there: set[str]) -> str | None:
    return next((output.digest for output in entry.outputs if output.digest not in there), None)


def prune(shelf: Shelf, keep: int) -> tuple[int, int]:
    """Remove what was used least recently until `keep` bytes are left, of the same age entries first: so that few name
    what is not there. Returns (objects removed, bytes left)."""
    found = sorted(shelf.all(), key=lambda each: (each.used, each.kind != ENTRIES, each.name))
    left, removed = sum(each.size for each in found), 0
    for each in found:
        if left <= keep:
            break
        shelf.remove(each)
        left, removed = left - each.size, removed + 1
    return removed, left
