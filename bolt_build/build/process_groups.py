"""Child processes in groups of their own that end with the build, however the build ends.

Each child waits behind a gate until its group is known to a janitor process, which outlives the build by just long
enough to kill the groups that are left: after SIGKILL nobody else could. It also removes the folder in which the
children's compilers have their temporary files.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from bolt_build.scratch import Scratch, make_scratch

_GATE = 'read -r _ && exec "$@" </dev/null'
_GRACE_SECONDS = 0.5


@dataclass
class ProcessGroups:
    """Starts children and kills them all. Thread-safe; one a process that builds."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _running: set[int] = field(default_factory=set)
    _janitor: subprocess.Popen[bytes] | None = None
    _scratch: Scratch | None = None
    _stopping: bool = False

    @property
    def stopping(self) -> bool:
        return self._stopping

    def run(self, argv: Sequence[str], directory: Path, environment: Mapping[str, str], log: IO[bytes]) -> int:
        """Run a child to its end, its output in `log`; its exit status, negative for the signal that ended it. TMPDIR
        is a folder that goes with the build.

        Raises OSError where it cannot be started, or that folder cannot be made.
        """
        with self._lock:
            if self._stopping:
                return -signal.SIGTERM
            if self._scratch is None:
                self._scratch = make_scratch()
            child = subprocess.Popen(
                ["/bin/sh", "-c", _GATE, "sh", *argv], cwd=directory,
                env=dict(environment) | {"TMPDIR": str(self._scratch.path)},
                stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, process_group=0,
            )  # fmt: skip
            self._running.add(child.pid)
            self._tell_janitor(f"+{child.pid}\n")
        assert child.stdin is not None
        try:
            with contextlib.suppress(BrokenPipeError), child.stdin as gate:
                gate.write(b"\n")
            return child.wait()
        finally:
            with self._lock:
                # What the child left behind in its group ends with it.
                _signal_group(child.pid, signal.SIGKILL)
                self._running.discard(child.pid)
                self._tell_janitor(f"-{child.pid}\n")

    def stop(self) -> None:
        """End every child: politely, then after half a second not. No child starts afterwards."""
        with self._lock:
            self._stopping = True
            waiting = tuple(self._running)
            for group in waiting:
                _signal_group(group, signal.SIGTERM)
        deadline = time.monotonic() + _GRACE_SECONDS
        while self._running and time.monotonic() < deadline:
            time.sleep(0.01)
        with self._lock:
            for group in self._running:
                _signal_group(group, signal.SIGKILL)

    def close(self) -> None:
        """Send the janitor home, which removes the temporary files first."""
        with self._lock:
            if self._janitor is not None:
                assert self._janitor.stdin is not None
                with contextlib.suppress(OSError):
                    self._janitor.stdin.close()
                self._janitor.wait()
                self._janitor = None
            if self._scratch is not None:
                self._scratch.remove()
                self._scratch = None

    def _tell_janitor(self, line: str) -> None:
        if self._janitor is None:
            assert self._scratch is not None
            self._janitor = subprocess.Popen(
                [sys.executable, "-I", "-S", str(Path(__file__).with_name("janitor.py")), str(self._scratch.path)],
                pass_fds=(self._scratch.lock,),
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                cwd="/", start_new_session=True,
            )  # fmt: skip
        assert self._janitor.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._janitor.stdin.write(line.encode())
            self._janitor.stdin.flush()


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
