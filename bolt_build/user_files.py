"""Files that people name: opened only where they are regular files, and read only up to a limit.

A path may lead to a device that never ends, to a pipe that nobody writes to, to a folder, or to a file of any size.
Whoever reads such a file goes through this module, so that each of these is a sentence instead of a wait.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import stat
from collections.abc import Iterable, Iterator
from io import BufferedReader
from pathlib import Path

MEBIBYTE = 1 << 20

_KINDS = (
    (stat.S_ISDIR, "a directory"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"), (stat.S_ISBLK, "a device"),
)  # fmt: skip

CHECKPOINT = "a ZIP archive or a checkpoint"
LFS_POINTER = "a Git LFS pointer"
LFS_PULL = "fetch the file that it stands for: git lfs pull"
PICKLE = "a pickle, as checkpoints are"
SAFETENSORS = "a safetensors file, which has weights alone"
ONNX_TEXT = "ONNX in text form"
_BINARY = (
    (b"\x89PNG", "a PNG image"), (b"\xff\xd8\xff", "a JPEG image"), (b"PK\x03\x04", CHECKPOINT),
    (b"\x1f\x8b", "a gzip archive"), (b"\x89HDF", "an HDF5 file"), (b"\x7fELF", "a program or a library"),
    (b"BOLTWGHT", "a weights file"), (b"\x93NUMPY", "a NumPy array"), (b"SQLite format 3\0", "an SQLite database"),
    (b"version https://git-lfs", LFS_POINTER),
    *((bytes([0x80, protocol]), PICKLE) for protocol in range(2, 6)),
)  # fmt: skip
_TEXT = ((b"<", "markup text"), (b"ir_version", ONNX_TEXT), (b"{", "JSON text"))

_TAR_MAGIC, _TAR_MAGIC_AT = b"ustar", 257

_ONNX_VERSIONS = range(1, 64)
_ONNX_NEXT_TAGS = (0x12, 0x1A, 0x22, 0x28, 0x32, 0x3A, 0x42)
"""Tags of a model's fields behind `ir_version`, which every exporter writes first."""


class UnfitFile(OSError):
    """A path that leads to no regular file, or to one that is too large.

    `strerror` is the reason, fit to stand behind "cannot be read: ", and `errno` is None. `kind` says what else than a
    file there is ("a device"), None where it is a file.
    """

    def __init__(self, path: Path | str, reason: str, kind: str | None = None) -> None:
        super().__init__(None, reason, str(path))
        self.kind = kind

    def __str__(self) -> str:
        return str(self.strerror)


def open_regular(path: Path) -> BufferedReader:
    """The regular file at `path`, opened for reading bytes.

    Raises UnfitFile for a device, a pipe, a socket or a name that no file can have, and OSError as `open` does (for a
    folder IsADirectoryError). Never waits for the other end of a pipe.
    """
    try:
        _require_regular(path, os.stat(path))  # before it is opened: to open some devices does something
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:
        raise UnfitFile(path, "no file can have this name") from error
    try:
        _require_regular(path, os.fstat(descriptor))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        # Where Ctrl-C comes right behind fdopen, its file is closed already: that must not hide the Ctrl-C.
        with contextlib.suppress(OSError):
            os.close(descriptor)
        raise


def read_regular(path: Path, limit: int) -> bytes:
    """The contents of the regular file at `path`. Raises UnfitFile where they are more than `limit` bytes, and what
    `open_regular` raises."""
    with open_regular(path) as handle:
        size = os.fstat(handle.fileno()).st_size
        # The size decides before anything is read; a file that grows meanwhile is caught by what was read.
        data = b"" if size > limit else handle.read(min(size, limit) + 1)
        if len(data) > size:
            data += handle.read(limit + 1 - len(data))
    if max(size, len(data)) > limit:
        raise UnfitFile(path, f"larger than {size_text(limit)}")
    return data


def kind_of(path: Path | str) -> str | None:
    """What else than a regular file is at `path` ("a directory", "a pipe"); None where that is nothing, or a file."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return None if stat.S_ISREG(status.st_mode) else _kind(status)


def leads_nowhere(path: Path | str) -> str | None:
    """Of a link to what is not there, what that is; None of everything else."""
    try:
        return os.readlink(path) if os.path.islink(path) and not os.path.exists(path) else None
    except (OSError, ValueError):
        return None


def stands_for_stream(path: Path) -> bool:
    """True where a file of this name must not be put in place of what is there: a device, a pipe, or one of the names
    under which the system shows what a process has open (/dev/stdout, /dev/fd/63)."""
    if os.path.realpath(path.parent) == "/dev" or os.path.realpath(path.parent).startswith("/proc/"):
        return True
    return path.exists() and not path.is_file()


@contextlib.contextmanager
def utf8_folder(path: Path) -> Iterator[str]:
    """The folder `path` under a name that is UTF-8, as libraries want it that take paths as text (onnx, onnxruntime).

    A folder in whose path other bytes stand is reached through a descriptor: its name here holds within the `with`
    alone, and for this process alone. Raises OSError where there is no such folder.
    """
    if is_utf8(str(path)):
        yield str(path)
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def is_utf8(name: str) -> bool:
    """Whether a file's name is: bytes of it that are not come as lone surrogates."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def shell_word(path: Path | str) -> str:
    """A path as it can be pasted behind a command: quoted where it has spaces, and never like an option."""
    text = str(path)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)


def reason_of(error: OSError) -> str:
    """Why a file could not be read, in lower case, without its name."""
    return (error.strerror or str(error)).lower() if not isinstance(error, UnfitFile) else str(error)


def size_text(count: int) -> str:
    """Bytes in the largest binary unit that divides them: "16 MiB"."""
    for unit, name in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit and count % unit == 0:
            return f"{count // unit} {name}"
    return f"{count} bytes"


def binary_kind(data: bytes) -> str | None:
    """What a file that begins with `data` (512 bytes, where it has them) is, with its article, where that is known and
    it is no text that people write."""
    if len(data) > 2 and data[0] == 0x08 and data[1] in _ONNX_VERSIONS and data[2] in _ONNX_NEXT_TAGS:
        return "an ONNX model"
    return _other_binary(data)


def known_kind(data: bytes) -> str | None:
    """What a file that begins with `data` is, with its article, where that is known and it is no ONNX model."""
    return _other_binary(data) or _begins(data, _TEXT)


def _other_binary(data: bytes) -> str | None:
    if data[_TAR_MAGIC_AT:].startswith(_TAR_MAGIC):
        return "a tar archive"
    if data[4:9] == b"\0\0\0\0{":  # how long the JSON behind it is: 8 bytes, little-endian
        return SAFETENSORS
    return _begins(data, _BINARY)


def _begins(data: bytes, table: Iterable[tuple[bytes, str]]) -> str | None:
    return next((kind for magic, kind in table if data.startswith(magic)), None)


def _require_regular(path: Path, status: os.stat_result) -> None:
    if stat.S_ISREG(status.st_mode):
        return
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    kind = _kind(status)
    raise UnfitFile(path, f"{kind}, not a file", kind)


def _kind(status: os.stat_result) -> str:
    return next((name for is_kind, name in _KINDS if is_kind(status.st_mode)), "something else")
