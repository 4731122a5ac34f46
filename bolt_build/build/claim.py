"""One build at a time in a directory: an advisory lock of the system (flock) that dies with its holders. A "lock" alone
is always the file that tuning writes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bolt_build.build.files import told
from bolt_build.errors import BoltError, Diagnostic, ExitCode


@dataclass
class Wait:
    """Says that a claim is waited for, and counts the seconds."""

    tell: Callable[[str], None]
    _since: float | None = None

    def say(self, text: str) -> None:
        """What `directory_claim` says before it waits."""
        if self._since is None:
            self._since = time.monotonic()
        self.tell(text)

    @property
    def seconds(self) -> float:
        """Since it began, 0 where nobody had to wait. To be read when the claim is held."""
        return 0.0 if self._since is None else time.monotonic() - self._since


@contextlib.contextmanager
def directory_claim(
    directory: Path, *, wait: bool, say: Callable[[str], None], hint: str | None = None
) -> Iterator[int]:
    """Hold a recipe's output directory; yields the claim's descriptor, for a child that must hold it too.

    Where another build holds it: waits, having said so, or with `wait` false raises BoltError ("build-running"). `hint`
    says what helps where it cannot be held, and building elsewhere does not.
    """
    path = directory / ".lock"
    handle = _claimed(path, wait=wait, say=say, hint=hint)
    try:
        with told(path, hint):
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield handle
    finally:
        os.close(handle)


def _claimed(path: Path, *, wait: bool, say: Callable[[str], None], hint: str | None) -> int:
    """A descriptor of the lock, held. Whoever had it may have removed it while it was waited for: it then keeps nobody
    out, so that the one that lies there now is claimed."""
    while True:
        with told(path, hint):
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            _acquire(handle, path.parent, wait=wait, say=say)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), os.stat(path)):
                    return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _acquire(handle: int, directory: Path, *, wait: bool, say: Callable[[str], None]) -> None:
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    # Who has just claimed it may not have said yet who it is.
    number = os.pread(handle, 32, 0).decode(errors="replace").strip()
    other = f"another build (process {number})" if number else "another build"
    if not wait:
        raise BoltError(
            [Diagnostic("build-running", f"{other} is at work in {directory}",
                        hint="leave out --no-wait to wait for it")],
            ExitCode.TASK_FAILED,
        )  # fmt: skip
    say(f"waiting for {other} in {directory}")
    fcntl.flock(handle, fcntl.LOCK_EX)
