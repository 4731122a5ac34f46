"""A build as people watch it: a live line with what runs on a terminal, one plain line a finished task elsewhere."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol

from bolt_build.build.builder import BuildResult, Listener
from bolt_build.build.changes import NEVER_BUILT
from bolt_build.build.events import EventKind, TaskEvent
from bolt_build.build.staleness import Forecast
from bolt_build.digest import encode
from bolt_build.errors import ExitCode
from bolt_build.planner.kernel_sources import KernelSource


class _Live(Protocol):
    def update(self, done: int, total: int, running: Sequence[tuple[str, float]]) -> None: ...

    def stop(self) -> None: ...


@dataclass
class PlainProgress:
    """One line a task that has ended. Where `live` is given, it shows beneath what is still running."""

    write: Callable[[str], None]
    live: _Live | None = None
    clock: Callable[[], float] = time.monotonic
    _began: float = 0.0
    _total: int = 0
    _done: int = 0
    _running: dict[tuple[str, str], tuple[str, float]] = field(default_factory=dict)

    def say(self, text: str) -> None:
        self.write(text)

    def start(self, recipe: str, tasks: int) -> None:
        self._total, self._done, self._began = tasks, 0, self.clock()
        self._refresh()

    def event(self, event: TaskEvent) -> None:
        where = (event.target, event.task)
        if event.kind is EventKind.STARTED:
            self._running[where] = (event.label, self.clock())
        else:
            self._running.pop(where, None)
        if event.kind in (EventKind.FINISHED, EventKind.FAILED):
            self._done += 1
            self._total = max(self._total, self._done)
            self.write(self._line(event))
        elif event.kind is EventKind.NOTE:
            self.write(f"{event.label}: {event.text}")
        self._refresh()

    def stop(self) -> None:
        if self.live is not None:
            self.live.stop()

    def _line(self, event: TaskEvent) -> str:
        how = "failed: " + event.text if event.kind is EventKind.FAILED else _how_long(event) + _because(event)
        return f"[{self._done}/{self._total} {_clock(self.clock() - self._began)}] {event.label} {how}"

    def _refresh(self) -> None:
        if self.live is not None:
            self.live.update(self._done, self._total, tuple(self._running.values()))


@dataclass(frozen=True)
class NotesTo:
    """Writes what is said to a stream, and nothing of tasks."""

    stream: IO[str]

    def say(self, text: str) -> None:
        self.stream.write(text + "\n")
        self.stream.flush()

    def start(self, recipe: str, tasks: int) -> None:
        return

    def event(self, event: TaskEvent) -> None:
        return

    def stop(self) -> None:
        return


class QuietProgress:
    """Shows nothing."""

    def say(self, text: str) -> None:
        return

    def start(self, recipe: str, tasks: int) -> None:
        return

    def event(self, event: TaskEvent) -> None:
        return

    def stop(self) -> None:
        return


@dataclass(frozen=True)
class JsonProgress:
    """One JSON object a line: what is said, and every event of a task."""

    stream: IO[str]

    def say(self, text: str) -> None:
        self._write({"event": "note", "text": text})

    def start(self, recipe: str, tasks: int) -> None:
        self._write({"event": "start", "recipe": recipe, "tasks": tasks})

    def event(self, event: TaskEvent) -> None:
        data = encode(event)
        data["event"] = "task"
        del data["is"]
        self._write(data)

    def stop(self) -> None:
        self._write({"event": "stop"})

    def _write(self, data: dict[str, Any]) -> None:
        self.stream.write(json.dumps(data) + "\n")
        self.stream.flush()


class _RichLive:
    """The running tasks on a terminal, with their seconds, through rich."""

    def __init__(self) -> None:
        # rich takes 0.05 s to import: only a terminal with tasks to show needs it.
        from rich.console import Console

        # rich takes 0.05 s to import: only a terminal with tasks to show needs it.
        from rich.live import Live

        self._state: tuple[int, int, Sequence[tuple[str, float]]] = (0, 0, ())
        self.console = Console(highlight=False, soft_wrap=True)
        self._live = Live(console=self.console, refresh_per_second=8, transient=True, get_renderable=self._renderable)
        self._started = False

    def update(self, done: int, total: int, running: Sequence[tuple[str, float]]) -> None:
        self._state = (done, total, running)
        if running and not self._started:
            self._live.start()
            self._started = True

    def stop(self) -> None:
        if self._started:
            self._live.stop()
            self._started = False

    def _renderable(self) -> Any:
        # rich takes 0.05 s to import: only a terminal with tasks to show needs it.
        from rich.progress_bar import ProgressBar

        # rich takes 0.05 s to import: only a terminal with tasks to show needs it.
        from rich.table import Table

        # rich takes 0.05 s to import: only a terminal with tasks to show needs it.
        from rich.text import Text

        done, total, running = self._state
        now = time.monotonic()
        table = Table.grid(padding=(0, 1))
        table.add_row(ProgressBar(total=max(total, 1), completed=done, width=24), Text(f"{done}/{total}", "bold"), "")
        for label, since in running:
            table.add_row("", Text(label), Text(f"{now - since:.0f} s", "dim"))
        return table


def progress(form: str, *, quiet: bool) -> Listener:
    """The listener for this process's standard output: `form` is "text" or "json"."""
    if form == "json":
        return JsonProgress(sys.stdout)
    if quiet:
        return QuietProgress()
    if sys.stdout.isatty():
        live = _RichLive()
        return PlainProgress(lambda text: live.console.print(text, markup=False), live)
    return PlainProgress(_print_line)


def _print_line(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _how_long(event: TaskEvent) -> str:
    where = "from the shared cache" if event.shared else "from the cache"
    return where if event.cached else f"{event.seconds:.1f} s"


def _because(event: TaskEvent) -> str:
    """Why the task ran again; nothing of one that had not run before."""
    reasons = [reason for reason in event.reasons if reason != NEVER_BUILT]
    return f": {'; '.join(reasons)}" if reasons else ""


def _clock(seconds: float) -> str:
    """Minutes and seconds since the build began to run tasks."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def failure_text(result: BuildResult) -> str:
    """What failed: the end of each log, how to repeat it, and what was not attempted because of it."""
    lines = []
    for event in result.failed:
        lines += ["", f"error[task-failed]: {result.recipe}/{event.target}: {event.label}: {event.text}"]
        lines += [f"  | {line}" for line in event.log.splitlines()]
        if event.log_file:
            lines.append(f"  log: {_short(Path(event.log_file))}")
        lines.append(f"  to repeat it: {event.command}")
    if result.failed and result.not_attempted:
        lines.append(f"  not attempted: {', '.join(dict.fromkeys(result.not_attempted))}")
    return "\n".join(lines) + "\n" if lines else ""


def summary_text(result: BuildResult) -> str:
    """What there is now: artifacts with their sizes, and what was done in which time."""
    lines = []
    for target in result.targets:
        if target.artifacts and result.finished:
            lines.append(f"{_short(target.directory.path)}/")
            lines += [f"  {_size(target.directory.path / name):>9}  {name}" for name in target.artifacts]
            if target.kernels is not None:
                lines.append(f"  kernels: {_origin(target.kernels)}")
            if target.elsewhere is not None:
                lines.append(f"  not verified: {target.elsewhere}")
    fetched = sum(event.cached for event in result.finished)
    made = len(result.finished) - fetched
    parts = [f"{made} task{'s' * (made != 1)} run"] + ([f"{fetched} from the cache"] if fetched else [])
    words = {
        ExitCode.INTERRUPTED: "interrupted", ExitCode.TASK_FAILED: "failed",
        ExitCode.VERIFY_FAILED: "verification failed",
    }  # fmt: skip
    word = words.get(result.exit_code, "done")
    idle = "nothing finished" if word in ("interrupted", "failed") else "nothing to do"
    what = ", ".join(parts) if result.finished else idle
    lines.append(f"{result.recipe}: {word}, {what}, {result.seconds:.2f} s{waiting(result.waited)}")
    return "\n".join(lines) + "\n"


def waiting(seconds: float) -> str:
    """What follows the time that something took, where it had to wait so many seconds before."""
    return f" after {seconds:.2f} s of waiting for another build" if seconds else ""


def _origin(kernels: KernelSource) -> str:
    """Where an engine's kernels come from, in a few words."""
    if not kernels.lock:
        return "chosen by prediction"
    predicted = f"; {kernels.predicted} chosen by prediction" if kernels.predicted else ""
    return f"{kernels.lock}, measured on {kernels.gpu}{' with another toolchain' if kernels.stale else ''}{predicted}"


def forecast_text(recipe: str, forecasts: Sequence[Forecast]) -> str:
    """What a build would run, a line a task with its reasons."""
    lines = []
    for found in forecasts:
        for stale in found.stale:
            how = " (from the cache)" if stale.from_cache else "" if stale.certain else " (if what it reads changes)"
            lines.append(f"{recipe}/{found.target}: {stale.task.label}{how}: {'; '.join(stale.reasons)}")
    return "\n".join(lines or [f"{recipe}: nothing to do"]) + "\n"


def forecast_data(recipe: str, forecasts: Sequence[Forecast]) -> list[dict[str, Any]]:
    """The same as JSON data."""
    return [
        {
            "recipe": recipe, "target": found.target, "task": stale.task.name, "label": stale.task.label,
            "reasons": list(stale.reasons), "from_cache": stale.from_cache, "certain": stale.certain,
        }
        for found in forecasts
        for stale in found.stale
    ]  # fmt: skip


def _short(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _size(path: Path) -> str:
    # Tables load rich: a build that finds nothing changed shows none.
    from bolt_build.report.tables import byte_text

    try:
        return byte_text(path.stat().st_size)
    except OSError:
        return "missing"
