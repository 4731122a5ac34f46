"""The folders of the cache, reached without following links, and who may write into them.

Whoever can write into a cache can put code into engines. So its owner must be whoever uses it, or root, and nobody
else may have the right to write; a cache that is only read may be another's, whom its user then trusts.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bolt_build.build.caching.cache_entry import is_digest
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.own_folders import make_own_folder, who_else_writes

ENTRIES, BLOBS = "entries", "blobs"
_KINDS = (ENTRIES, BLOBS, "keys")
"""`keys` held the entries of earlier versions, which nothing reads any more."""

_FOLDER, _FILE = 0o755, 0o644
_READING = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_SUFFIX = ".json"
_TEMPORARY = re.compile(r"\.[0-9a-f]{64}(\.json)?(\.\d+)+\.tmp\Z")


class Untrusted(OSError):
    """A file or folder of the cache that someone else may have written; `strerror` says who can."""

    def __init__(self, path: str, who: str) -> None:
        super().__init__(errno.EPERM, who, path)


class NotOurs(OSError):
    """What lies at a file's place in the cache and is none: a cache makes regular files alone."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.EINVAL, "not a file", path)


def no_file_of_ours(error: OSError) -> str | None:
    """What is wrong with a file that could not be opened, where it is the file's fault: "is not a file"."""
    if isinstance(error, NotOurs):
        return f"is {error.strerror}"
    return str(error.strerror) if isinstance(error, Untrusted) else None


@dataclass(frozen=True)
class StoredFile:
    """A file of the cache, as pruning sees it: `folder` and `part` are those that it lies in."""

    used_ns: int
    size: int
    folder: str
    part: str
    name: str


@dataclass(frozen=True)
class CacheFolders:
    """`directory/entries/<k>/<key>.json` and `directory/blobs/<d>/<digest>`. Every method raises OSError, and Untrusted
    for what others can write."""

    directory: Path
    read_only: bool = False

    def check(self) -> None:
        """Raises BoltError where others can write into the cache ("cache-not-private"), or where this user cannot reach
        it ("cache-not-reachable")."""
        try:
            who = who_else_writes(os.stat(self.directory), any_owner=self.read_only)
        except (FileNotFoundError, NotADirectoryError):
            return
        except PermissionError as error:
            message = f"the cache {self.directory} lies where you may not look: {error.strerror}"
            hint = "name one of your own with --cache DIR"
            raise BoltError([Diagnostic("cache-not-reachable", message, hint=hint)], ExitCode.USAGE) from error
        if who is not None:
            raise BoltError([_not_private(self.directory, who, read_only=self.read_only)], ExitCode.USAGE)

    def make(self) -> None:
        """Make the cache's own directory, which nobody else can enter until its owner allows it."""
        make_own_folder(self.directory)

    @contextlib.contextmanager
    def open(self, kind: str, name: str, *, make: bool = False) -> Iterator[int]:
        """The descriptor of the folder that the file called `name` lies in: a digest and, of an entry, ".json".

        Raises ValueError for any other name, which must not become part of a path.
        """
        if not is_digest(name.removesuffix(_SUFFIX)):
            raise ValueError(f"no name of a file in the cache: {name!r:.80}")
        if make:
            self.make()
        with self._folder(kind, name[:2], make=make) as folder:
            yield folder

    def file(self, folder: int, name: str) -> int:
        """The descriptor of a regular file of a folder, to be read. The caller closes it. Raises NotOurs where there is
        a link, a folder, a pipe or a device."""
        try:
            descriptor = os.open(name, _READING, dir_fd=folder)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO):  # a link; a socket
                raise NotOurs(name) from error
            raise
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise NotOurs(name)
            self._check(name, status)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def create(self, folder: int, name: str) -> int:
        """The descriptor of a new file of a folder, to be written. The caller closes it."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(name, flags, _FILE, dir_fd=folder)

    def all_files(self) -> Iterator[StoredFile]:
        """Files that the cache has made, half-written ones among them, and nothing else."""
        for kind in _KINDS:
            with contextlib.suppress(OSError), self._folder(kind) as folder:
                for part in sorted(entry.name for entry in os.scandir(folder)):
                    with contextlib.suppress(OSError), self._folder(kind, part) as inside:
                        yield from _files(inside, kind, part)

    def remove(self, stored: StoredFile) -> None:
        with self._folder(stored.folder, stored.part) as folder:
            os.unlink(stored.name, dir_fd=folder)

    @contextlib.contextmanager
    def _folder(self, *names: str, make: bool = False) -> Iterator[int]:
        """The folder below the cache's own that these names lead to, one inside the other."""
        with contextlib.ExitStack() as opened:
            folder = opened.enter_context(self._opened(str(self.directory), None))
            for name in names:
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, _FOLDER, dir_fd=folder)
                folder = opened.enter_context(self._opened(name, folder))
            yield folder

    @contextlib.contextmanager
    def _opened(self, name: str, above: int | None) -> Iterator[int]:
        # The cache's own directory may be reached through links: whoever names it chose them.
        follow = 0 if above is None else os.O_NOFOLLOW
        descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | follow, dir_fd=above)
        try:
            self._check(name, os.fstat(descriptor))
            yield descriptor
        finally:
            os.close(descriptor)

    def _check(self, name: str, status: os.stat_result) -> None:
        who = who_else_writes(status, any_owner=self.read_only)
        if who is not None:
            raise Untrusted(name, who)


def _files(folder: int, kind: str, part: str) -> Iterator[StoredFile]:
    for entry in os.scandir(folder):
        if is_digest(entry.name.removesuffix(_SUFFIX)) or _TEMPORARY.match(entry.name):
            with contextlib.suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if not stat.S_ISDIR(status.st_mode):
                    yield StoredFile(status.st_mtime_ns, status.st_size, kind, part, entry.name)


def _not_private(directory: Path, who: str, *, read_only: bool) -> Diagnostic:
    message = f"the cache {directory} {who}: whoever writes into it can put code into engines"
    if who.startswith("belongs"):
        hint = "name one of your own with --cache DIR; if you trust that user, --cache-read-only takes from this one"
    else:
        whose = "its owner can" if read_only else "if nobody but you has written into it,"
        hint = f"{whose} chmod -R go-w {directory}; or name another with --cache DIR"
    return Diagnostic("cache-not-private", message, hint=hint)
