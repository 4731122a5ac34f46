"""What lies in a cache, the local one or a team's store: how much, whether it is what it says, and what may go."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Protocol

from bolt_build.build.caching.cache import Cache
from bolt_build.build.caching.cache_entry import LARGEST_ENTRY, CacheEntry, RefusedEntry, read_entry
from bolt_build.build.caching.cache_folders import BLOBS, ENTRIES, StoredFile, no_file_of_ours
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
    """A cache as things that lie in it. Methods raise OSError (the local cache) or StoreTrouble (a store).

    Another process may use the cache meanwhile. So what has gone since it was listed is no trouble.
    """

    def all(self) -> Iterator[Kept]: ...

    def read(self, kept: Kept, limit: int) -> bytes | None:
        """What it holds; of more than `limit` bytes, one more. None where it has gone. Raises RefusedEntry where it is
        not to be read."""

    def digest(self, kept: Kept) -> str | None:
        """SHA-256 (hex) of what it holds. None and RefusedEntry as `read`."""

    def remove(self, kept: Kept) -> None: ...


@dataclass(frozen=True)
class LocalShelf:
    """The local cache."""

    cache: Cache

    def all(self) -> Iterator[Kept]:
        for file in self.cache.folders.all_files():
            yield Kept(f"{file.folder}/{file.part}/{file.name}", file.size, file.used_ns / 1e9)

    def read(self, kept: Kept, limit: int) -> bytes | None:
        with self._opened(kept) as file:
            return file.read(limit + 1) if file else None

    def digest(self, kept: Kept) -> str | None:
        with self._opened(kept) as file:
            return hashlib.file_digest(file, "sha256").hexdigest() if file else None

    def remove(self, kept: Kept) -> None:
        kind, part, name = kept.name.split("/")
        with contextlib.suppress(FileNotFoundError):
            self.cache.folders.remove(StoredFile(0, 0, kind, part, name))

    @contextlib.contextmanager
    def _opened(self, kept: Kept) -> Iterator[BufferedReader | None]:
        folders = self.cache.folders
        kind, _, name = kept.name.split("/")
        with contextlib.ExitStack() as opened:
            try:
                folder = opened.enter_context(folders.open(kind, name))
                file = opened.enter_context(os.fdopen(folders.file(folder, name), "rb"))
            except FileNotFoundError:
                yield None
                return
            except OSError as error:
                if (why := no_file_of_ours(error)) is None:
                    raise
                raise RefusedEntry(why) from error
            yield file


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

    def read(self, kept: Kept, limit: int) -> bytes | None:
        return self.store.read(kept.name, limit)

    def digest(self, kept: Kept) -> str | None:
        return self.store.copy(kept.name, kept.size, Path(os.devnull))

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
        try:
            why = _why_not(shelf, kept, there)
        except RefusedEntry as refused:
            why = str(refused)
        if why is not None:
            yield Fault(kept, why)


def _why_not(shelf: Shelf, kept: Kept, there: set[str]) -> str | None:
    """What is wrong with it, None where nothing is or it has gone. Raises RefusedEntry."""
    if kept.kind == BLOBS:
        return "is damaged" if shelf.digest(kept) not in (kept.key, None) else None
    text = shelf.read(kept, LARGEST_ENTRY)
    missing = None if text is None else _missing(read_entry(text, kept.key, None), there)
    return missing and f"names {blob_name(missing)}, which is not there"


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
