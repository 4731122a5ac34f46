"""A local store of task outputs, by the digest of what they were made from.

`keys/<k>/<key>.json` names a task's outputs with their digests; `blobs/<d>/<digest>` holds contents. Nothing in it is
trusted: contents are hashed on their way out, and an entry that does not hold what it says is removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bolt_build.build.files import unlink, write_text
from bolt_build.errors import BoltError, Diagnostic, ExitCode

DEFAULT_LIMIT = 2 << 30
"""Bytes that the cache may take before the least recently used entries go."""


def default_cache_directory() -> Path:
    """`$XDG_CACHE_HOME/bolt-build`, or `~/.cache/bolt-build`. Raises BoltError ("no-home") where there is neither.

    As the XDG rules have it, a relative `$XDG_CACHE_HOME` does not count.
    """
    named = os.environ.get("XDG_CACHE_HOME", "")
    base = named if os.path.isabs(named) else os.path.expanduser("~/.cache")
    if not os.path.isabs(base):
        hint = "name a place with --cache DIR, or set HOME"
        raise BoltError([Diagnostic("no-home", "there is no home directory for the cache", hint=hint)], ExitCode.USAGE)
    return Path(base) / "bolt-build"


@dataclass(frozen=True)
class CachedOutput:
    name: str
    digest: str
    executable: bool


class DamagedEntry(Exception):
    """An entry held other contents than it said; it has been removed."""


@dataclass(frozen=True)
class Cache:
    """All methods may be called by several processes at once."""

    directory: Path
    limit: int = DEFAULT_LIMIT

    def lookup(self, key: str) -> tuple[CachedOutput, ...] | None:
        """The outputs stored for `key`, their contents not yet looked at; None where there are none."""
        try:
            data = json.loads(self._key_path(key).read_text(encoding="utf-8"))
            found = tuple(CachedOutput(str(o["name"]), str(o["digest"]), bool(o["executable"])) for o in data)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return found if all(self._blob(output.digest).is_file() for output in found) else None

    def fetch(self, key: str, outputs: Sequence[str], to: Path) -> bool:
        """Copy the outputs of `key` under `to`; False where the cache does not have them all.

        Raises DamagedEntry for contents that are not what they were, OSError where `to` cannot be written.
        """
        found = self.lookup(key)
        if found is None or {o.name for o in found} != set(outputs):
            return False
        for output in found:
            if not self._fetch_blob(output, to / output.name):
                unlink(self._key_path(key))
                raise DamagedEntry(output.name)
        with contextlib.suppress(OSError):
            os.utime(self._key_path(key))
        return True

    def store(self, key: str, outputs: Sequence[tuple[str, Path, str]]) -> None:
        """Keep (name, file, digest) outputs for `key`. Raises OSError; what is half done is never found again."""
        for _, path, digest in outputs:
            self._store_blob(path, digest)
        entry = [
            {"name": name, "digest": digest, "executable": os.access(path, os.X_OK)} for name, path, digest in outputs
        ]
        path = self._key_path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(entry) + "\n")

    def prune(self, limit: int | None = None) -> tuple[int, int]:
        """Remove what was used least recently until `limit` bytes are left. Returns (files removed, bytes left)."""
        files = []
        for path in self.directory.glob("*/??/*"):
            with contextlib.suppress(OSError):
                status = path.stat()
                files.append((status.st_mtime_ns, status.st_size, path))
        total = sum(size for _, size, _ in files)
        allowed = self.limit if limit is None else limit
        removed = 0
        for _, size, path in sorted(files):
            if total <= allowed:
                break
            with contextlib.suppress(OSError):
                path.unlink()
                total -= size
                removed += 1
        return removed, total

    def _fetch_blob(self, output: CachedOutput, to: Path) -> bool:
        source = self._blob(output.digest)
        to.parent.mkdir(parents=True, exist_ok=True)
        hasher = hashlib.sha256()
        try:
            reading = source.open("rb")
        except OSError:
            return False
        with reading, to.open("wb") as writing:
            while block := reading.read(1 << 20):
                hasher.update(block)
                writing.write(block)
        if hasher.hexdigest() != output.digest:
            unlink(source)
            return False
        if output.executable:
            to.chmod(to.stat().st_mode | 0o111)
        with contextlib.suppress(OSError):
            os.utime(source)
        return True

    def _store_blob(self, path: Path, digest: str) -> None:
        blob = self._blob(digest)
        if blob.is_file() and blob.stat().st_size == path.stat().st_size:
            os.utime(blob)
            return
        blob.parent.mkdir(parents=True, exist_ok=True)
        temporary = blob.with_name(f".{digest}.{os.getpid()}.{threading.get_ident()}.tmp")
        try:
            shutil.copyfile(path, temporary)
            temporary.replace(blob)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise

    def _key_path(self, key: str) -> Path:
        return self.directory / "keys" / key[:2] / f"{key}.json"

    def _blob(self, digest: str) -> Path:
        return self.directory / "blobs" / digest[:2] / digest
