"""Files as the build sees them: written whole or not at all, and known by digests that are not taken twice."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from bolt_build.digest import digest_file
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.user_files import UnfitFile, open_regular, stands_for_stream


@dataclass(frozen=True)
class FileStamp:
    """A file's contents as last seen. `path` is as the task names it; the rest tells cheaply that nothing changed."""

    path: str
    digest: str
    size: int
    mtime_ns: int
    inode: int

    def matches(self, status: os.stat_result) -> bool:
        """True where size, time and inode say that the file is untouched."""
        return (self.size, self.mtime_ns, self.inode) == (status.st_size, status.st_mtime_ns, status.st_ino)


def stamp(path: Path, name: str | None = None) -> FileStamp:
    """The stamp of a file, its contents read. Raises OSError."""
    status = path.stat()
    return FileStamp(name or str(path), digest_file(path), status.st_size, status.st_mtime_ns, status.st_ino)


@dataclass
class Digests:
    """Digests of files, taken once for each state of a file (size, time, inode)."""

    _known: dict[tuple[int, int, int], str] = field(default_factory=dict)

    def learn(self, known: FileStamp) -> None:
        """Trust a stamp that was taken earlier."""
        self._known[(known.size, known.mtime_ns, known.inode)] = known.digest

    def of(self, path: Path) -> str | None:
        """SHA-256 of the file's contents in hex, None where there is no file. Raises OSError for other trouble."""
        found = self.stamp(path)
        return None if found is None else found.digest

    def stamp(self, path: Path, name: str | None = None) -> FileStamp | None:
        """The file's stamp, None where there is no file. Raises OSError for other trouble.

        The status is older than the contents: a file that changes meanwhile is looked at again next time.
        """
        try:
            status = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        key = (status.st_size, status.st_mtime_ns, status.st_ino)
        if key not in self._known:
            self._known[key] = digest_file(path)
        return FileStamp(name or str(path), self._known[key], *key)


def write_text(path: Path, text: str) -> None:
    """Write a whole file, by a temporary name and a rename. Raises OSError, leaving what was there before."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as handle:
            handle.write(text)
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def write_named(path: Path, text: str) -> None:
    """Write a file that a person names. A link is followed, and a file written whole as by `write_text`; a device or a
    pipe, such as /dev/stdout, is written to and stays what it is. Raises OSError."""
    if stands_for_stream(path):
        with path.open("a", encoding="utf-8") as handle:
            handle.write(text)
    else:
        write_text(Path(os.path.realpath(path)), text)


def read_text(path: Path) -> str:
    """What a build wrote there. Raises OSError, also for what is no regular file (a pipe is not waited for), and
    ValueError for what is no text."""
    with open_regular(path) as handle:
        return handle.read().decode()


def stays_below(name: str) -> bool:
    """True where a name in a folder leads to nowhere outside of it. Plans and receipts are files too, which came with a
    checkout perhaps, and what they name may be removed."""
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts


def unlink(path: Path) -> None:
    """Remove a file, or nothing where there is none."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        path.unlink()


_TEMPORARY = re.compile(r"(?<![^/])\.([^/]+?)(\.\d+)+\.tmp\Z")
"""What a file is called while it is written: people are told the name that it gets."""


_KNOWN = {
    errno.ENOENT: ("no such file or directory", "do it again, and let nothing else remove files there meanwhile"),
    errno.EISDIR: ("a directory stands where a file is to be", "move it away, or use another directory"),
    errno.ELOOP: ("a symbolic link leads to itself", "remove the link"),
    errno.ENAMETOOLONG: ("this name is too long for the file system", "choose a directory with a shorter path"),
    errno.EMFILE: ("this process has too many files open", "allow it more: ulimit -n 4096"),
    errno.ENFILE: ("this machine has too many files open", "end programs that hold many"),
}
"""Reasons and what to do, where the system's own words say neither."""


def trouble(error: OSError, subject: str | None = None) -> Diagnostic:
    """What an operating system's refusal means to the person who builds."""
    where = _TEMPORARY.sub(r"\1", str(error.filename or subject or "the output directory"))
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Diagnostic(
            "disk-full", f"no space left to write {where}", subject=where,
            hint="free some space, or build elsewhere with --output DIR; what is finished is kept",
        )  # fmt: skip
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return Diagnostic(
            "not-writable", f"cannot write {where}: {os.strerror(error.errno)}", subject=where,
            hint="build into a directory of your own with --output DIR",
        )  # fmt: skip
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return Diagnostic(
            "not-a-directory", f"cannot make a directory {where}: a file stands in the way", subject=where,
            hint="build into another directory with --output DIR",
        )  # fmt: skip
    known = _KNOWN.get(error.errno or 0)
    if isinstance(error, UnfitFile):
        known = (str(error), _KNOWN[errno.EISDIR][1])
    if known is not None:
        return Diagnostic("file-trouble", f"{where}: {known[0]}", subject=where, hint=known[1])
    reason = os.strerror(error.errno) if error.errno else str(error)
    return Diagnostic("file-trouble", f"{where}: {reason}", subject=where)


@contextlib.contextmanager
def told(subject: Path, hint: str | None = None) -> Iterator[None]:
    """Turn OSError inside into a BoltError: exit code 3 where the place is wrong, 4 where the machine is full. `hint`
    says what helps where that is not another --output."""
    try:
        yield
    except OSError as error:
        diagnostic = trouble(error, str(subject))
        if hint is not None:
            full = diagnostic.code == "disk-full"
            diagnostic = replace(diagnostic, hint=f"free some space, or {hint}" if full else hint)
        wrong_place = diagnostic.code in ("not-writable", "not-a-directory")
        code = ExitCode.INVALID if wrong_place else ExitCode.TASK_FAILED
        raise BoltError([diagnostic], code) from error


@contextlib.contextmanager
def kept(directory: Path) -> Iterator[None]:
    """Turn FileNotFoundError inside, of what lay in the directory, into a BoltError: somebody has removed it."""
    try:
        yield
    except FileNotFoundError as error:
        if not Path(str(error.filename or "")).is_relative_to(directory):
            raise
        raise BoltError([trouble(error)], ExitCode.TASK_FAILED) from error


def untouched(file: FileStamp) -> bool:
    """True where the file is as the stamp says, without reading it."""
    try:
        return file.matches(os.stat(file.path))
    except OSError:
        return False
