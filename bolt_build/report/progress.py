"""A build as people watch it: live lines with what runs on a terminal, one plain line a finished task elsewhere, and
one where a task takes long."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol

from bolt_build.build.builder import Listener
from bolt_build.build.events import EventKind, TaskEvent
from bolt_build.build.result import BuildResult
from bolt_build.build.staleness.changes import NEVER_BUILT, NEVER_VERIFIED
from bolt_build.build.staleness.estimate import WORTH_SAYING, Outlook, about, minutes
from bolt_build.build.staleness.staleness import Forecast, StaleTask
from bolt_build.digest import encode
from bolt_build.errors import BoltError, ExitCode
from bolt_build.planner.kernel_sources import KernelSource
from bolt_build.report.pulse import PulseLines
from bolt_build.report.shown import Running, Shown, Whole


class LiveLines(Protocol):
    """What is shown of time that goes on: lines at the end of a terminal, or now and then a line elsewhere."""

    def show(self, shown: Shown) -> None: ...

    def stop(self) -> None: ...


NOTHING = Outlook((), 0)


@dataclass
class PlainProgress:
    """One line a task that has ended. Where `live` is given, it shows what is still running."""

    write: Callable[[str], None]
    live: LiveLines | None = None
    clock: Callable[[], float] = time.monotonic
    _began: float = 0.0
    _outlook: Outlook = NOTHING
    _done: int = 0
    _stage: Running | None = None
    _running: dict[tuple[str, str, str], Running] = field(default_factory=dict)

    def say(self, text: str) -> None:
        self._stage = None
        self.write(text)
        self._refresh()

    def stage(self, text: str, expected: float | None) -> None:
        self.write(text if expected is None or expected < WORTH_SAYING else f"{text}, {about(expected)}")
        self._stage = Running(text, self.clock(), expected)
        self._refresh()

    def start(self, outlook: Outlook) -> None:
        self._stage, self._outlook, self._done, self._began = None, outlook, 0, self.clock()
        self._refresh()

    def event(self, event: TaskEvent) -> None:
        where = (event.recipe, event.target, event.task)
        if event.kind is EventKind.STARTED:
            self._running[where] = Running(self._label(event), self.clock(), self._outlook.known.get(where))
        else:
            self._running.pop(where, None)
        if event.kind in (EventKind.FINISHED, EventKind.FAILED):
            self._done += 1
            self.write(self._line(event))
        elif event.kind is EventKind.NOTE:
            self.write(f"{self._label(event)}: {event.text}")
        self._refresh()

    def stop(self) -> None:
        self._stage = None
        if self.live is not None:
            self.live.stop()

    @property
    def _total(self) -> int:
        return max(self._outlook.tasks, self._done)

    def _label(self, event: TaskEvent) -> str:
        """The task, with whose it is where several recipes are built."""
        return event.label if len(self._outlook.recipes) < 2 else f"{event.recipe}/{event.target}: {event.label}"

    def _line(self, event: TaskEvent) -> str:
        how = "failed: " + event.text if event.kind is EventKind.FAILED else _how_long(event) + _because(event)
        return f"[{self._done}/{self._total} {minutes(self.clock() - self._began)}] {self._label(event)} {how}"

    def _refresh(self) -> None:
        if self.live is None:
            return
        running = tuple(self._running.values()) if self._stage is None else (self._stage,)
        whole = None
        if self._stage is None and self._outlook.tasks:
            whole = Whole(self._done, self._total, self._began, self._outlook.seconds)
        self.live.show(Shown(running, whole))


class QuietProgress:
    """Shows nothing."""

    def say(self, text: str) -> None:
        return

    def stage(self, text: str, expected: float | None) -> None:
        return

    def start(self, outlook: Outlook) -> None:
        return

    def event(self, event: TaskEvent) -> None:
        return

    def stop(self) -> None:
        return


@dataclass(frozen=True)
class NotesTo(QuietProgress):
    """Writes what is said to a stream, and nothing of tasks."""

    stream: IO[str]

    def say(self, text: str) -> None:
        self.stream.write(text + "\n")
        self.stream.flush()

    def stage(self, text: str, expected: float | None) -> None:
        self.say(text)


@dataclass
class JsonProgress:
    """One JSON object a line: what is said, and every event of a task."""

    stream: IO[str]
    _started: bool = False

    def say(self, text: str) -> None:
        self._write({"event": "note", "text": text})

    def stage(self, text: str, expected: float | None) -> None:
        self._write({"event": "note", "text": text} | ({} if expected is None else {"expected": expected}))

    def start(self, outlook: Outlook) -> None:
        """`recipe` is there where it is one."""
        self._started = True
        one = {"recipe": outlook.recipes[0]} if len(outlook.recipes) == 1 else {}
        more = {"recipes": list(outlook.recipes), "tasks": outlook.tasks, "expected": outlook.seconds}
        self._write({"event": "start"} | one | more)

    def event(self, event: TaskEvent) -> None:
        data = encode(event)
        data["event"] = "task"
        del data["is"]
        self._write(data)

    def stop(self) -> None:
        if self._started:
            self._write({"event": "stop"})

    def _write(self, data: dict[str, Any]) -> None:
        self.stream.write(json.dumps(data) + "\n")
        self.stream.flush()


def progress(form: str, *, quiet: bool) -> Listener:
    """The listener for this process's standard output: `form` is "text" or "json"."""
    if form == "json":
        return JsonProgress(sys.stdout)
    if quiet:
        return QuietProgress()
    if sys.stdout.isatty():
        # rich takes 0.05 s to import: only a terminal needs it.
        from bolt_build.report.live import TerminalLines

        live = TerminalLines()
        return PlainProgress(lambda text: live.console.print(text, markup=False), live)
    return PlainProgress(_print_line, PulseLines(_print_line))


@contextlib.contextmanager
def waited_for(label: str, expected: float | None) -> Iterator[None]:
    """While the block runs, say on standard error, where that is a terminal, what is waited for, how long already, and
    how many seconds it is `expected` to take."""
    if not sys.stderr.isatty():
        yield
        return
    # rich takes 0.05 s to import: only a terminal needs it.
    from bolt_build.report.live import TerminalLines

    lines = TerminalLines(stderr=True)
    lines.show(Shown((Running(label, time.monotonic(), expected),)))
    try:
        yield
    finally:
        lines.stop()


def _print_line(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _how_long(event: TaskEvent) -> str:
    if event.as_for:
        return f"as for {event.as_for}"
    where = "from the shared cache" if event.shared else "from the cache"
    return where if event.cached else f"{event.seconds:.1f} s"


def _because(event: TaskEvent) -> str:
    """Why the task ran again; nothing of one that had not run before."""
    reasons = [reason for reason in event.reasons if reason not in (NEVER_BUILT, NEVER_VERIFIED)]
    return f": {'; '.join(reasons)}" if reasons else ""


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
    word = _WORDS.get(result.exit_code, "done")
    idle = "nothing finished" if word in ("interrupted", "failed") else "nothing to do"
    what = _counts(result.finished) if result.finished else idle
    lines.append(f"{result.recipe}: {word}, {what}, {result.seconds:.2f} s{waiting(result.waited)}")
    return "\n".join(lines) + "\n"


def total_text(results: Sequence[BuildResult | BoltError], seconds: float) -> str:
    """One line for a build of several recipes: how many ended how, and all that was done."""
    ends = [_end(result) for result in results]
    ends = [f"{ends.count(word)} {word}" for word in dict.fromkeys(sorted(ends, key=lambda each: each != "done"))]
    finished = [event for result in results if isinstance(result, BuildResult) for event in result.finished]
    well = any(result.exit_code is ExitCode.OK for result in results)
    what = _counts(finished) if finished else "nothing to do" if well else "nothing finished"
    return f"{len(results)} recipes: {', '.join(ends)}; {what}, {seconds:.2f} s\n"


def _end(result: BuildResult | BoltError) -> str:
    if isinstance(result, BoltError):
        return "not built"
    return _WORDS.get(result.exit_code, "done" if result.exit_code is ExitCode.OK else "built in part")


_WORDS = {
    ExitCode.INTERRUPTED: "interrupted", ExitCode.TASK_FAILED: "failed", ExitCode.VERIFY_FAILED: "verification failed",
}  # fmt: skip


def _counts(finished: Sequence[TaskEvent]) -> str:
    common = sum(bool(event.as_for) for event in finished)
    fetched = sum(event.cached for event in finished) - common
    made = len(finished) - fetched - common
    parts = [f"{made} task{'s' * (made != 1)} run"] + ([f"{common} in common"] if common else [])
    return ", ".join([*parts, f"{fetched} from the cache"] if fetched else parts)


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
    lines = [
        f"{recipe}/{found.target}: {stale.task.label}{_from_where(stale)}: {'; '.join(stale.reasons)}"
        for found in forecasts
        for stale in found.stale
    ]
    return "\n".join(lines or [f"{recipe}: nothing to do"]) + "\n"


def _from_where(stale: StaleTask) -> str:
    if stale.as_for:
        return f" (as for {stale.as_for})"
    if stale.from_cache:
        return " (from the cache)"
    return "" if stale.certain else " (if what it reads changes)"


def forecast_data(recipe: str, forecasts: Sequence[Forecast]) -> list[dict[str, Any]]:
    """The same as JSON data."""
    return [
        {
            "recipe": recipe, "target": found.target, "task": stale.task.name, "label": stale.task.label,
            "reasons": list(stale.reasons), "from_cache": stale.from_cache, "certain": stale.certain,
            "as_for": stale.as_for,
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
