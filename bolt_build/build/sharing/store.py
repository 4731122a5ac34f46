"""Objects by name in a store that a team shares: a directory, a bucket, or an HTTP server, through `obstore`.

Nothing in a store is ever changed: an object is created where there is none of its name, or stays what it is. Every
wait has an end. What comes out is bytes of a stranger, which the callers check.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.schema.shared_place import SharedPlace

SCHEMES = ("s3", "https", "http", "gs", "az")
INSTALL = "python -m pip install obstore"

_CONNECT_SECONDS = 5.0
_RETRIES = 1
_LONGEST = 30
"""A request may take so many times the timeout, if a byte comes before each timeout."""
_BLOCK = 1 << 20
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class StoreTrouble(Exception):
    """What a store refuses or does not do. The text goes on behind "the shared cache URL "."""


@dataclass(frozen=True)
class StoredObject:
    """`modified` in seconds of the epoch."""

    name: str
    size: int
    modified: float


@dataclass(frozen=True)
class Store:
    """Thread-safe. Every method raises StoreTrouble, and no name has a place outside of the store."""

    place: SharedPlace
    reading: Any
    writing: Any
    creates: bool
    """False where "create" is a header of the request (HTTP) instead of a mode."""
    folder: Path | None = None
    """Of a store that is a directory: what is no file in it would be waited for without an end."""

    def read(self, name: str, limit: int) -> bytes | None:
        """An object of at most `limit` bytes, None where there is none. Of a larger one `limit` + 1 bytes are given."""
        with self._told():
            found = self._get(name)
            if found is None:
                return None
            data = bytearray()
            for block in found.stream(min_chunk_size=_BLOCK):
                data += bytes(block)
                if len(data) > limit:
                    break
            return bytes(data[: limit + 1])

    def copy(self, name: str, size: int, to: Path) -> str | None:
        """Write an object to a file; the SHA-256 (hex) of what was written, None where there is no such object. What
        is behind its first `size` + 1 bytes is not read. Raises OSError where the file cannot be written."""
        with self._told():
            found = self._get(name)
        if found is None:
            return None
        hasher, left = hashlib.sha256(), size + 1
        with to.open("wb") as writing:
            for block in self._blocks(found):
                data = block[:left]
                hasher.update(data)
                writing.write(data)
                left -= len(data)
                if not left:
                    break
        return hasher.hexdigest()

    def has(self, name: str) -> bool:
        with self._told():
            try:
                _library().head(self.reading, name)
            except FileNotFoundError:
                return False
            return True

    def create(self, name: str, contents: bytes | Path) -> bool:
        """Make an object whole, or not at all; False where there is one of that name, which stays what it is."""
        library = _library()
        taken = (library.exceptions.AlreadyExistsError, library.exceptions.PreconditionError)
        mode = {"mode": "create"} if self.creates else {}
        with self._told():
            try:
                library.put(self.writing, name, contents, use_multipart=False, **mode)
            except taken:
                return False
            return True

    def all(self, prefix: str) -> Iterator[StoredObject]:
        """The objects whose names begin with `prefix` and a slash."""
        with self._told():
            for chunk in _library().list(self.reading, prefix):
                for each in chunk:
                    yield StoredObject(each["path"], each["size"], each["last_modified"].timestamp())

    def remove(self, name: str) -> None:
        with self._told():
            try:
                _library().delete(self.writing, name)
            except FileNotFoundError:
                return

    def _get(self, name: str) -> Any:
        if self.folder is not None and not (self.folder / name).is_file():
            return None
        try:
            return _library().get(self.reading, name)
        except FileNotFoundError:
            return None

    def _blocks(self, found: Any) -> Iterator[bytes]:
        with self._told():
            for block in found.stream(min_chunk_size=_BLOCK):
                yield bytes(block)

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (_library().exceptions.BaseError, NotImplementedError, PermissionError, FileNotFoundError) as error:
            raise StoreTrouble(_reason(error, self.place.timeout)) from error


def check_place(place: SharedPlace) -> None:
    """Raises BoltError ("bad-shared-cache", "missing-library") for what no store can be, or nothing here can open."""
    _scheme(place.url)
    try:
        _library()
    except ImportError as error:
        message = "a shared cache needs obstore, which is not installed"
        raise BoltError([Diagnostic("missing-library", message, hint=INSTALL)], ExitCode.TOOL_MISSING) from error


def is_in_the_clear(place: SharedPlace) -> bool:
    """True where whoever is on the way to the store could change what comes from it."""
    parts = urlsplit(place.url)
    return parts.scheme == "http" and parts.hostname not in _LOOPBACK


def shown(url: str) -> str:
    """A URL as it may be printed: without a password."""
    parts = urlsplit(url) if "://" in url else None
    if parts is None or "@" not in parts.netloc:
        return url
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def open_store(place: SharedPlace) -> Store:
    """Raises BoltError as `check_place` does, and StoreTrouble for a directory that is not there, or that everybody can
    write. A server is not asked for anything yet."""
    scheme = _scheme(place.url)
    stores = importlib.import_module("obstore.store")
    if scheme is None:
        folder = Path(os.path.abspath(place.url))
        _check_folder(folder, place)
        store = _opened(place, lambda: stores.LocalStore(prefix=folder, mkdir=place.write))
        return Store(place, store, store, creates=True, folder=folder)
    plain = scheme == "http" or os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("1", "true")
    client = {
        "connect_timeout": timedelta(seconds=min(_CONNECT_SECONDS, place.timeout)),
        "read_timeout": timedelta(seconds=place.timeout),
        "timeout": timedelta(seconds=_LONGEST * place.timeout),
        "allow_http": plain,
    }
    retry = {"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=place.timeout)}

    def opened(client: dict[str, Any]) -> Any:
        return _opened(place, lambda: stores.from_url(place.url, client_options=client, retry_config=retry))

    reading = opened(client)
    if scheme not in ("http", "https"):
        return Store(place, reading, reading, creates=True)
    return Store(place, reading, opened({**client, "default_headers": {"If-None-Match": "*"}}), creates=False)


def _opened(place: SharedPlace, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except (_library().exceptions.BaseError, ValueError, OSError) as error:
        raise StoreTrouble(_reason(error, place.timeout)) from error


def _check_folder(folder: Path, place: SharedPlace) -> None:
    """Its group may write a team's directory, not everybody. Raises StoreTrouble."""
    try:
        mode = folder.stat().st_mode
    except FileNotFoundError:
        if place.write:
            return
        raise StoreTrouble("is not there") from None
    except OSError as error:
        raise StoreTrouble(f"cannot be read: {error.strerror}") from error
    if not stat.S_ISDIR(mode):
        raise StoreTrouble("is no directory")
    if mode & stat.S_IWOTH:
        raise StoreTrouble("can be written by everybody: whoever writes into it can put code into engines")


def _scheme(url: str) -> str | None:
    """The scheme of a URL, None for a directory. Raises BoltError ("bad-shared-cache")."""
    if not re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", url):
        return None
    scheme, found, rest = url.partition("://")
    if found and scheme in SCHEMES and rest.strip("/"):
        return scheme
    message = f"'{shown(url)}' names no store that can be shared"
    hint = f"a directory, or a URL that begins with one of: {', '.join(f'{each}://' for each in SCHEMES)}"
    raise BoltError([Diagnostic("bad-shared-cache", message, hint=hint)], ExitCode.USAGE)


def _library() -> Any:
    # It takes 0.02 s to import, and only who shares has it.
    return importlib.import_module("obstore")


def _reason(error: BaseException, timeout: float) -> str:
    """What the library says in a page of its own terms, in a few words."""
    text = str(error)
    status = re.search(r"status code: (\d{3} [A-Za-z ]+)", text)
    if type(error).__name__ in ("PermissionDeniedError", "UnauthenticatedError", "PermissionError"):
        return "refuses access: " + (status[1].strip() if status else "permission denied")
    if "169.254.169.254" in text:
        return "wants credentials, and there are none in the environment"
    if status:
        return f"answers {status[1].strip()}"
    if "TimedOut" in text or "kind: Timeout" in text:
        return f"does not answer within {timeout:g} s"
    if "Interrupted" in text or "body error" in text:
        return "breaks off in the middle of an answer"
    if "builder error" in text:
        return "is reached by http alone, which AWS_ALLOW_HTTP=true allows"
    if "error sending request" in text:
        return "cannot be reached"
    return f"cannot be used: {text.splitlines()[0][:120]}"
