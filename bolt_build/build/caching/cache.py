"""A local store of task outputs, by the digest of what they were made from.

`entries/<k>/<key>.json` names a task's outputs with their digests; `blobs/<d>/<digest>` holds contents. An entry is
taken where it is that of the very task, and contents are hashed on their way out; what is not what it says is removed.
That keeps out mistakes and damage. It does not keep out whoever may write into the cache, who can make entries that say
what they please: so nobody but its user may (`cache_folders.py`).
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import IO

from bolt_build.build.caching.cache_entry import (
    LARGEST_ENTRY,
    CachedOutput,
    CacheEntry,
    RefusedEntry,
    entry_text,
    read_entry,
)
from bolt_build.build.caching.cache_folders import BLOBS, ENTRIES, CacheFolders, no_file_of_ours
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.own_folders import cache_folder

__all__ = ["DEFAULT_LIMIT", "Cache", "CachedOutput", "RefusedEntry", "default_cache_directory"]

DEFAULT_LIMIT = 2 << 30
"""Bytes that the cache may take before the least recently used entries go."""

_BLOCK = 1 << 20


def default_cache_directory() -> Path:
    """`$XDG_CACHE_HOME/bolt-build`, or `~/.cache/bolt-build`. Raises BoltError ("no-home") where there is neither."""
    found = cache_folder()
    if found is None:
        hint = "name a place with --cache DIR, or set HOME"
        raise BoltError([Diagnostic("no-home", "there is no home directory for the cache", hint=hint)], ExitCode.USAGE)
    return found


@dataclass(frozen=True)
class Cache:
    """All methods may be called by several processes at once. Where it is `read_only`, nothing in it changes."""

    directory: Path
    limit: int = DEFAULT_LIMIT
    read_only: bool = False

    @property
    def folders(self) -> CacheFolders:
        return CacheFolders(self.directory, self.read_only)

    def lookup(self, key: str, outputs: Sequence[str]) -> tuple[CachedOutput, ...] | None:
        """The `outputs` stored for `key`, their contents not yet looked at; None where there are none to be had."""
        try:
            entry = self._entry(key, outputs)
            if entry is None or not all(self._has(output) for output in entry.outputs):
                return None
        except RefusedEntry:
            return None
        return entry.outputs

    def fetch(self, key: str, outputs: Sequence[str], to: Path) -> bool:
        """Copy the outputs of `key` under `to`; False where the cache does not have them all.

        Raises RefusedEntry for an entry that is not this task's or contents that are not what they were (they are
        removed), and OSError where `to` cannot be written.
        """
        try:
            found = self._entry(key, outputs)
            if found is None or not all(self._fetch_blob(output, to / output.name) for output in found.outputs):
                return False
        except RefusedEntry:
            self._discard(ENTRIES, f"{key}.json")
            raise
        self._touch(ENTRIES, f"{key}.json")
        for output in found.outputs:
            self._touch(BLOBS, output.digest)
        return True

    def store(self, key: str, outputs: Sequence[tuple[str, Path, str]]) -> None:
        """Keep (name, file, digest) outputs for `key`. Raises OSError; what is half done is never found again."""
        if self.read_only:
            return
        found = tuple(
            CachedOutput(name, digest, path.stat().st_size, os.access(path, os.X_OK)) for name, path, digest in outputs
        )
        for output, (_, path, _) in zip(found, outputs, strict=True):
            if self._has(output):
                self._touch(BLOBS, output.digest)
            else:
                with path.open("rb") as reading:
                    self._write(BLOBS, output.digest, reading)
        self._write(ENTRIES, f"{key}.json", io.BytesIO(entry_text(CacheEntry(key, found)).encode()))

    def prune(self, limit: int | None = None) -> tuple[int, int]:
        """Remove what was used least recently until `limit` bytes are left. Returns (files removed, bytes left)."""
        files = sorted(self.folders.all_files(), key=lambda file: (file.used_ns, file.size, file.name))
        total = sum(file.size for file in files)
        allowed = self.limit if limit is None else limit
        removed = 0
        for file in files:
            if total <= allowed or self.read_only:
                break
            with contextlib.suppress(OSError):
                self.folders.remove(file)
                total -= file.size
                removed += 1
        return removed, total

    def _entry(self, key: str, outputs: Sequence[str]) -> CacheEntry | None:
        """The entry of `key`, None where there is none. Raises RefusedEntry."""
        try:
            with self._reading(ENTRIES, f"{key}.json") as file:
                text = file.read(LARGEST_ENTRY + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise RefusedEntry(_reason(error)) from error
        return read_entry(text, key, outputs)

    def _has(self, output: CachedOutput) -> bool:
        try:
            with self._reading(BLOBS, output.digest) as file:
                return os.fstat(file.fileno()).st_size == output.size
        except OSError:
            return False

    def _fetch_blob(self, output: CachedOutput, to: Path) -> bool:
        """False where the cache has no such contents. Raises RefusedEntry."""
        try:
            reading = contextlib.ExitStack()
            source = reading.enter_context(self._reading(BLOBS, output.digest))
        except FileNotFoundError:
            return False
        except OSError as error:
            raise RefusedEntry(f"holds {output.name}, which {_reason(error)}") from error
        with reading:
            to.parent.mkdir(parents=True, exist_ok=True)
            if os.fstat(source.fileno()).st_size != output.size or _copied(source, to) != output.digest:
                self._discard(BLOBS, output.digest)
                raise RefusedEntry(f"holds a damaged {output.name}")
        if output.executable:
            to.chmod(to.stat().st_mode | 0o111)
        return True

    @contextlib.contextmanager
    def _reading(self, kind: str, name: str) -> Iterator[BufferedReader]:
        with self.folders.open(kind, name) as folder, os.fdopen(self.folders.file(folder, name), "rb") as file:
            yield file

    def _write(self, kind: str, name: str, contents: IO[bytes]) -> None:
        """A file of the cache, by a temporary name and a rename. Raises OSError."""
        temporary = f".{name}.{os.getpid()}.{threading.get_ident()}.tmp"
        with self.folders.open(kind, name, make=True) as folder:
            try:
                with os.fdopen(self.folders.create(folder, temporary), "wb") as writing:
                    shutil.copyfileobj(contents, writing, _BLOCK)
                os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=folder)
                raise

    def _touch(self, kind: str, name: str) -> None:
        """What was used last goes last."""
        if not self.read_only:
            with contextlib.suppress(OSError), self.folders.open(kind, name) as folder:
                os.utime(name, dir_fd=folder, follow_symlinks=False)

    def _discard(self, kind: str, name: str) -> None:
        if not self.read_only:
            with contextlib.suppress(OSError), self.folders.open(kind, name) as folder:
                os.unlink(name, dir_fd=folder)


def _copied(source: IO[bytes], to: Path) -> str:
    """The digest of what was copied. Raises OSError."""
    hasher = hashlib.sha256()
    with to.open("wb") as writing:
        while block := source.read(_BLOCK):
            hasher.update(block)
            writing.write(block)
    return hasher.hexdigest()


def _reason(error: OSError) -> str:
    return no_file_of_ours(error) or f"cannot be read: {error.strerror or error}"
