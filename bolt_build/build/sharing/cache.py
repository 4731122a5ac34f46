"""Finished tasks in a store that a team shares: `entries/<k>/<key>.json` and `blobs/<d>/<digest>`, as in a local cache.

An entry is taken under the same rules as one of the local cache (`cache_entry.py`), and contents are hashed before
they get their place. So a store that is damaged, or lies about contents, costs a compilation. Whoever may write into
it can still make entries that say what they please: it is its writers who are trusted, so few should be able to write.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bolt_build.build.caching.cache_entry import (
    LARGEST_ENTRY,
    CachedOutput,
    CacheEntry,
    RefusedEntry,
    entry_text,
    read_entry,
)
from bolt_build.build.caching.cache_folders import BLOBS, ENTRIES
from bolt_build.build.files import unlink
from bolt_build.build.sharing.client import StoreClient
from bolt_build.build.sharing.store import Store


def entry_name(key: str) -> str:
    return f"{ENTRIES}/{key[:2]}/{key}.json"


def blob_name(digest: str) -> str:
    return f"{BLOBS}/{digest[:2]}/{digest}"


@dataclass(frozen=True)
class SharedCache:
    """Thread-safe. Trouble is raised once, as StoreTrouble; from then on nothing is found, or nothing is stored."""

    client: StoreClient

    def lookup(self, key: str, outputs: Sequence[str]) -> tuple[CachedOutput, ...] | None:
        """What the store says that the `outputs` of `key` are; None where it has none to be believed. Raises
        StoreTrouble."""
        try:
            entry = self._entry(key, outputs)
        except RefusedEntry:
            return None
        return None if entry is None else entry.outputs

    def fetch(self, key: str, outputs: Sequence[str], to: Path) -> bool:
        """Write the outputs of `key` under `to`; False where the store does not have them all.

        Raises RefusedEntry for an entry that is not this task's, or contents that are not what it says; StoreTrouble;
        and OSError where `to` cannot be written.
        """
        entry, complete = self._entry(key, outputs), False
        try:
            complete = entry is not None and all(self._fetch_blob(each, to / each.name) for each in entry.outputs)
        finally:
            if not complete:
                for name in outputs:
                    unlink(to / name)
        return complete

    def store(self, key: str, outputs: Sequence[tuple[str, Path, str]]) -> None:
        """Give (name, file, digest) outputs of `key` to the store where it has none: contents first, so that no entry
        names what is not there. Raises StoreTrouble, OSError."""

        def give(store: Store) -> None:
            found = tuple(
                CachedOutput(name, digest, path.stat().st_size, os.access(path, os.X_OK))
                for name, path, digest in outputs
            )
            for _, path, digest in outputs:
                if not store.has(blob_name(digest)):
                    store.create(blob_name(digest), path)
            if not store.has(entry_name(key)):
                store.create(entry_name(key), entry_text(CacheEntry(key, found)).encode())

        self.client.give(give)

    def _entry(self, key: str, outputs: Sequence[str]) -> CacheEntry | None:
        text = self.client.ask(lambda store: store.read(entry_name(key), LARGEST_ENTRY))
        return None if text is None else read_entry(text, key, outputs)

    def _fetch_blob(self, output: CachedOutput, to: Path) -> bool:
        to.parent.mkdir(parents=True, exist_ok=True)
        found = self.client.ask(lambda store: store.copy(blob_name(output.digest), output.size, to))
        if found is None:
            return False
        if found != output.digest:
            raise RefusedEntry(f"holds a damaged {output.name}")
        if output.executable:
            to.chmod(to.stat().st_mode | 0o111)
        return True
