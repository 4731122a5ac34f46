"""The caches of a build, in the order in which they are asked: its user's own, then that which a team shares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from bolt_build.build.caching.cache import Cache, RefusedEntry
from bolt_build.build.caching.cache_entry import CachedOutput
from bolt_build.build.sharing.cache import SharedCache
from bolt_build.build.sharing.store import StoreTrouble

Note = Callable[[str], None]


class Origin(Enum):
    """Where the outputs of a task come from: its command, the local cache or the shared one."""

    MADE = "made"
    LOCAL = "local"
    SHARED = "shared"


@dataclass
class Caches:
    """Thread-safe. No trouble with a cache fails a task: it is noted, once for each kind of trouble."""

    local: Cache | None
    shared: SharedCache | None = None
    _told: set[str] = field(default_factory=set)

    def lookup(self, key: str, outputs: Sequence[str]) -> tuple[CachedOutput, ...] | None:
        """What the caches say that the `outputs` of `key` are; None where no cache has them."""
        found = None if self.local is None else self.local.lookup(key, outputs)
        if found is not None or self.shared is None:
            return found
        try:
            return self.shared.lookup(key, outputs)
        except StoreTrouble:
            return None

    def fetch(self, key: str, outputs: Sequence[str], to: Path, note: Note) -> Origin:
        """Copy the outputs of `key` under `to` from the first cache that has them all; MADE where none has. Raises
        OSError where `to` cannot be written."""
        try:
            if self.local is not None and self.local.fetch(key, outputs, to):
                return Origin.LOCAL
        except RefusedEntry as refused:
            note(f"the entry in the cache {refused}: it is not taken")
        if self.shared is None:
            return Origin.MADE
        try:
            if self.shared.fetch(key, outputs, to):
                return Origin.SHARED
        except RefusedEntry as refused:
            note(f"the entry in the shared cache {refused}: it is not taken")
        except StoreTrouble as trouble:
            self._once(note, f"{self.shared.client.name} {trouble}: the build goes on without it")
        return Origin.MADE

    def store(self, key: str, outputs: Sequence[tuple[str, Path, str]], origin: Origin, note: Note) -> None:
        """Keep (name, file, digest) outputs of `key` in the caches that they do not come from."""
        if self.local is not None and origin is not Origin.LOCAL:
            try:
                self.local.store(key, outputs)
            except OSError as error:
                reason = error.strerror or str(error)
                place = f"the cache in {self.local.directory}"
                self._once(note, f"{place} cannot be written ({reason}): what is built is not kept there")
        if self.shared is not None and origin is not Origin.SHARED:
            try:
                self.shared.store(key, outputs)
            except (StoreTrouble, OSError) as error:
                self._once(note, f"{self.shared.client.name} {error}: what is built is not shared")

    def _once(self, note: Note, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            note(text)
