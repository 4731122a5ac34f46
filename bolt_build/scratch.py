"""Folders for what a process needs while it runs. Each is locked by its owner, which removes it at its end.

An owner that is killed with SIGKILL removes nothing, but its lock goes with it. So whoever makes a folder first removes
those beside it that nobody holds.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PREFIX = "bolt-scratch-"
_WEEK = 7 * 24 * 3600
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class Scratch:
    """A folder of this process's own. `lock` is a descriptor of it: whatever process has it, keeps the folder."""

    path: Path
    lock: int

    def remove(self) -> None:
        """With all that is in it; what cannot be removed now goes with another process's folder."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.lock)


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder that is gone behind the block. Raises OSError where none can be made."""
    made = make_scratch()
    try:
        yield made.path
    finally:
        made.remove()


def make_scratch() -> Scratch:
    """A new folder, where Python makes temporary files (TMPDIR, else /tmp), locked. Raises OSError."""
    place = Path(tempfile.gettempdir())
    _sweep(place)
    while True:
        path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{_boot()}-", dir=place))
        with contextlib.suppress(FileNotFoundError):  # who swept in between took it for a left-over
            lock = os.open(path, _FLAGS)
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(lock, fcntl.LOCK_EX)
            if path.exists():
                return Scratch(path, lock)
            os.close(lock)


def _sweep(place: Path) -> None:
    """Remove the user's folders that no process holds. Those of another start of a machine, or of another machine
    with the same disk, whose locks may not be seen here, go when they are a week old."""
    own = f"{PREFIX}{_boot()}-"
    with os.scandir(place) as entries:
        found = [entry for entry in entries if entry.name.startswith(PREFIX)]
    for entry in found:
        with contextlib.suppress(OSError):
            status = entry.stat(follow_symlinks=False)
            old = time.time() - status.st_mtime > _WEEK
            if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and (old or entry.name.startswith(own)):
                _remove_left_over(entry.path)


def _remove_left_over(path: str) -> None:
    lock = os.open(path, _FLAGS)
    try:
        if _locked(lock):
            shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(lock)


def _locked(descriptor: int) -> bool:
    """False where another has the lock, or the file system has no locks: then nothing there is a left-over."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _boot() -> str:
    try:
        return _BOOT.read_text(encoding="ascii")[:8]
    except OSError:
        return "unknown"
