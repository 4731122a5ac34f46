"""The outside of SCons's process: starts it, passes its events on, and passes signals to it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bolt_build.build.events import EventKind, TaskEvent, read_events
from bolt_build.build.files import told
from bolt_build.build.layout import RecipeDirectory
from bolt_build.build.running.signal_handlers import handled
from bolt_build.digest import encode
from bolt_build.schema.shared_place import SharedPlace
from bolt_build.scratch import scratch_folder

_KILL_AFTER_SECONDS = 1.2
_PACKAGE = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class SessionPart:
    """Targets of one recipe, by name. `claim` is the descriptor of its claimed directory."""

    directory: Path
    targets: tuple[str, ...]
    claim: int


@dataclass(frozen=True)
class SessionOptions:
    """With `keep_going` a failure stops only what stands behind it; without, all of its recipe."""

    jobs: int
    keep_going: bool
    cache: str | None
    cache_limit: int
    cache_read_only: bool = False
    shared: SharedPlace | None = None
    scheduler: str | None = None


@dataclass(frozen=True)
class SessionResult:
    """`trouble` is what SCons itself complained of where it failed without any task failing."""

    interrupted: bool
    failed: tuple[TaskEvent, ...]
    finished: tuple[TaskEvent, ...]
    trouble: str = ""


@dataclass
class _Interrupts:
    """Passes the first signal to the child, and kills the child where it does not end soon, or at a second signal."""

    child: subprocess.Popen[bytes] | None = None
    received: list[int] = field(default_factory=list)

    def handle(self, number: int, frame: object) -> None:
        self.received.append(number)
        if self.child is None:
            return
        if len(self.received) > 1:
            self._kill()
            return
        with contextlib.suppress(ProcessLookupError):
            self.child.send_signal(signal.SIGINT)
        timer = threading.Timer(_KILL_AFTER_SECONDS, self._kill)
        timer.daemon = True
        timer.start()

    def _kill(self) -> None:
        if self.child is not None and self.child.poll() is None:
            self.child.kill()


def run_session(
    parts: Sequence[SessionPart],
    options: SessionOptions,
    listen: Callable[[TaskEvent], None],
    without: tuple[str, ...] = (),
) -> SessionResult:
    """Let SCons build recipes in one graph, in which every common task is once. The tasks named in `without` are left
    out.

    The child inherits the claims, so that the directories stay claimed until the last of the build is gone. Must be
    called in the main thread. Raises BoltError where the child cannot be started.
    """
    with _signatures(parts) as signatures:
        return _run(parts, signatures, options, listen, without)


@contextlib.contextmanager
def _signatures(parts: Sequence[SessionPart]) -> Iterator[Path]:
    """Where SCons keeps its signatures: with a recipe, and those of a graph of several for the session alone."""
    if len(parts) == 1:
        yield RecipeDirectory(parts[0].directory).signatures
        return
    with scratch_folder() as folder:
        yield RecipeDirectory(folder).signatures


def _run(
    parts: Sequence[SessionPart],
    signatures: Path,
    options: SessionOptions,
    listen: Callable[[TaskEvent], None],
    without: tuple[str, ...],
) -> SessionResult:
    interrupts = _Interrupts()
    reading, writing = os.pipe()
    request = {
        "is": "SessionRequest", "signatures": str(signatures), "events": writing, "keep_going": options.keep_going,
        "parts": [[str(part.directory), list(part.targets)] for part in parts],
        "cache": options.cache, "cache_limit": options.cache_limit, "cache_read_only": options.cache_read_only,
        "parent": os.getpid(),
        "without": encode(without), "shared": encode(options.shared),
        "scheduler": options.scheduler,
    }  # fmt: skip
    signals = handled(interrupts.handle, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    with tempfile.TemporaryFile() as complaints, signals:
        with os.fdopen(reading, encoding="utf-8", errors="replace") as stream:
            try:
                with told(parts[0].directory):
                    child = subprocess.Popen(
                        scons_command(request, options, recipes=len(parts)), cwd=parts[0].directory,
                        stdin=subprocess.DEVNULL, stdout=complaints, stderr=complaints,
                        pass_fds=(writing, *(part.claim for part in parts)), process_group=0,
                        env=os.environ | {"PYTHONHASHSEED": "0"},
                    )  # fmt: skip
            finally:
                os.close(writing)
            interrupts.child = child
            if interrupts.received:
                child.send_signal(signal.SIGINT)
            try:
                failed, finished = _follow(read_events(stream), listen)
            except BaseException:
                child.kill()
                raise
        status = child.wait()
        complaints.seek(0)
        text = complaints.read().decode(errors="replace").strip()
    interrupted = bool(interrupts.received)
    trouble = ""
    if status != 0 and not failed and not interrupted:
        trouble = _removed(parts) or text or f"SCons ended with status {status}"
    return SessionResult(interrupted, failed, finished, trouble)


def _removed(parts: Sequence[SessionPart]) -> str:
    """What is to be said where somebody has removed a plan while its tasks ran: SCons knows it by its files alone."""
    plans = (RecipeDirectory(part.directory).target(name).plan for part in parts for name in part.targets)
    gone = next((plan for plan in plans if not plan.is_file()), None)
    return "" if gone is None else f"{gone} was removed while it was needed: build again"


def scons_command(request: object, options: SessionOptions, recipes: int) -> list[str]:
    """The command of the SCons child. A failure of one of several recipes stops no other."""
    keep_going = ["--keep-going"] if options.keep_going or recipes > 1 else []
    return [
        sys.executable, "-m", "SCons", "-Q", "-s", f"--jobs={options.jobs}", *keep_going,
        "--sconstruct", str(_PACKAGE / "build" / "running" / "sconstruct.py"), "--no-site-dir",
        f"package={_PACKAGE.parent}", f"request={json.dumps(request)}",
    ]  # fmt: skip


def _follow(
    events: Iterator[TaskEvent], listen: Callable[[TaskEvent], None]
) -> tuple[tuple[TaskEvent, ...], tuple[TaskEvent, ...]]:
    failed, finished = [], []
    for event in events:
        if event.kind is EventKind.FAILED:
            failed.append(event)
        elif event.kind is EventKind.FINISHED:
            finished.append(event)
        listen(event)
    return tuple(failed), tuple(finished)
