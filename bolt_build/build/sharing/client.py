"""A store that may go away: it is waited for once, and from then on it has nothing and takes nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from bolt_build.build.sharing.store import Store, StoreTrouble, open_store, shown
from bolt_build.schema.shared_place import SharedPlace

_Answer = TypeVar("_Answer")


@dataclass
class StoreClient:
    """Thread-safe. Trouble is raised once, as StoreTrouble."""

    place: SharedPlace
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _store: Store | None = None
    _gone: bool = False
    _closed: bool = False

    @property
    def name(self) -> str:
        """What it is called in a sentence."""
        return f"the shared cache {shown(self.place.url)}"

    def ask(self, question: Callable[[Store], _Answer]) -> _Answer | None:
        """The answer of the store, None where it is gone. Raises StoreTrouble where it goes now."""
        try:
            store = self._opened()
            return None if store is None else question(store)
        except StoreTrouble:
            with self._lock:
                first, self._gone = not self._gone, True
            if first:
                raise
            return None

    def give(self, gift: Callable[[Store], None]) -> None:
        """Write into the store, where that is allowed and went well before. Raises StoreTrouble where it does not."""
        if not self.place.write or self._closed:
            return
        try:
            store = self._opened()
            if store is not None:
                gift(store)
        except StoreTrouble:
            with self._lock:
                first, self._closed = not self._closed, True
            if first:
                raise

    def _opened(self) -> Store | None:
        with self._lock:
            if self._store is None and not self._gone:
                self._store = open_store(self.place)
            return None if self._gone else self._store
