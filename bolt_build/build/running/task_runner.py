"""The one way in which a task runs.

Its command writes under a private directory (`${out}`); only when it has succeeded and made every output do these take
their places, each by a rename. The receipt goes before the first output changes and comes back after the last: a
build that is killed between leaves a task that is known to be unfinished.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from bolt_build.build.caching.caches import Caches, Origin
from bolt_build.build.common_tasks import MadeOnce, MadeTask
from bolt_build.build.events import EventKind, TaskEvent
from bolt_build.build.files import Digests, FileStamp, stamp, trouble, unlink
from bolt_build.build.layout import TargetDirectory
from bolt_build.build.planning.plan_file import PlanFile
from bolt_build.build.process_groups import ProcessGroups
from bolt_build.build.remote.compilations import Compilations
from bolt_build.build.remote.dask import Stopped
from bolt_build.build.remote.job import job_of
from bolt_build.build.running.admission import Admission
from bolt_build.build.running.header_folders import HeaderFolders
from bolt_build.build.staleness.receipt import (
    RECEIPT_VERSION,
    Receipt,
    drop_receipt,
    load_receipt,
    save_receipt,
    task_key,
)
from bolt_build.build.staleness.up_to_date import Fault, Verdict, judge, output_faults
from bolt_build.build.task_environment import task_environment
from bolt_build.build.tasks import Task

LOG_TAIL_LINES = 30


class TaskFailed(Exception):
    """A task failed and has been told of by `event`; nothing of it is left but its log."""

    def __init__(self, event: TaskEvent) -> None:
        super().__init__(event.task)
        self.event = event


class TaskStopped(Exception):
    """The build was interrupted while the task ran."""


@dataclass
class TaskRunner:
    """Runs tasks of one target. Thread-safe where tasks differ."""

    directory: TargetDirectory
    plan: PlanFile
    caches: Caches
    groups: ProcessGroups
    admission: Admission
    tell: Callable[[TaskEvent], None]
    before_change: Callable[[], None]
    remote: Compilations | None = None
    digests: Digests = field(default_factory=Digests)
    common: MadeOnce = field(default_factory=MadeOnce)
    headers: HeaderFolders | None = None

    def run(self, task: Task) -> None:
        """Make the task's outputs what they should be. Raises TaskFailed, TaskStopped."""
        if self.groups.stopping:
            raise TaskStopped(task.name)
        try:
            self._run(task)
        except OSError as error:
            self._forget(task)
            self._fail(task, trouble(error).message, 0.0, None)

    @property
    def name(self) -> str:
        """Recipe and target, "net/host" say."""
        return f"{self.plan.graph.recipe}/{self.plan.graph.target}"

    def path(self, name: str) -> Path:
        """Where a task's file is."""
        return self.directory.path / self.plan.places.expand(name)

    def receipt(self, task: Task) -> Receipt | None:
        """The task's receipt; what it knows of files need not be read again."""
        receipt = load_receipt(self.directory.receipts, task.name)
        for known in () if receipt is None else (*receipt.inputs, *receipt.outputs):
            self.digests.learn(known)
        return receipt

    def judge(self, task: Task) -> Verdict:
        """Whether the task is up to date, with the files as they are. Raises OSError."""
        return judge(task, self.receipt(task), self._contents, self._contents)

    def drop_edited(self, task: Task) -> None:
        """Remove outputs that are not what the task made (edited, or of unknown origin): they are made again."""
        for name, fault in output_faults(task, self.receipt(task), self._contents):
            if fault is Fault.EDITED:
                self._note(task, f"{name} was changed by hand; it is made again")
            if fault is not Fault.MISSING:
                unlink(self.path(name))

    def _contents(self, name: str) -> str | None:
        return self.digests.of(self.path(name))

    def _run(self, task: Task) -> None:
        inputs = self._inputs(task)
        verdict = self.judge(task)
        if verdict.current:
            self.tell(self._event(EventKind.CURRENT, task))
            return
        key = task_key(task, {file.path: file.digest for file in inputs})
        self.before_change()
        private = self.directory.temporary / f"{task.name}.{os.getpid()}"
        started = time.monotonic()
        try:
            for name in task.outputs:
                (private / name).parent.mkdir(parents=True, exist_ok=True)
            as_for = self.common.fetch(key, private)
            origin = Origin.MADE if as_for else self._fetch(task, key, private)
            here = origin is Origin.MADE and not as_for
            away = self._remotely(task, private) if here else None
            if here and away is None:
                with self.admission.admit(task.memory_mb):
                    if self.groups.stopping:
                        raise TaskStopped(task.name)
                    started = time.monotonic()
                    self.tell(self._event(EventKind.STARTED, task))
                    self._execute(task, private, started)
            # What waits for a worker takes no time of anybody's.
            seconds = time.monotonic() - started if away is None else away
            self._check_inputs(task, inputs, seconds)
            if origin is Origin.MADE:
                self._check_headers(task, seconds)
            outputs = self._install(task, private)
            self._save(task, key, inputs, outputs, seconds)
        finally:
            shutil.rmtree(private, ignore_errors=True)
        if task.cached and not as_for:
            found = [(o.path, self.path(o.path), o.digest) for o in outputs]
            self.caches.store(key, found, origin, lambda text: self._note(task, text))
            if origin is Origin.MADE:
                self.common.made(key, MadeTask(self.name, tuple(found)))
        self.tell(
            replace(
                self._event(EventKind.FINISHED, task), seconds=round(seconds, 3), as_for=as_for,
                cached=bool(as_for) or origin is not Origin.MADE, shared=origin is Origin.SHARED,
            )
        )  # fmt: skip

    def _inputs(self, task: Task) -> tuple[FileStamp, ...]:
        found = []
        planned = {file.path: file.digest for file in self.plan.model}
        for name in task.inputs:
            path = self.path(name)
            file = self.digests.stamp(path, name)
            if file is None:
                self._forget(task)
                self._fail(task, f"{path} is missing", 0.0, None)
            elif planned.get(str(path), file.digest) != file.digest:
                self._forget(task)
                self._fail(task, f"{path} changed since it was planned: build again", 0.0, None)
            else:
                found.append(file)
        return tuple(found)

    def _check_inputs(self, task: Task, inputs: tuple[FileStamp, ...], seconds: float) -> None:
        """What was edited while the task ran may be in its result or not: nobody knows what it was made from."""
        for known in inputs:
            path = self.path(known.path)
            if self.digests.of(path) != known.digest:
                self._forget(task)
                self._fail(task, f"{path} changed while the task ran: build again", seconds, None)

    def _check_headers(self, task: Task, seconds: float) -> None:
        """The same of headers, which are in the key as planning saw them."""
        changed = self._changed_header(task)
        if changed is not None:
            self._forget(task)
            self._fail(task, f"{changed} changed while the build ran: build again", seconds, None)

    def _changed_header(self, task: Task) -> str | None:
        return None if self.headers is None else self.headers.changed(task)

    def _fetch(self, task: Task, key: str, private: Path) -> Origin:
        if not task.cached:
            return Origin.MADE
        return self.caches.fetch(key, task.outputs, private, lambda text: self._note(task, text))

    def _remotely(self, task: Task, private: Path) -> float | None:
        """Let another machine run the task; the seconds that it took there, None where it must run here."""
        if self.remote is None:
            return None
        job = job_of(task, self.plan.places, self.directory.path)
        if job is None:
            return None
        started = time.monotonic()
        self.tell(self._event(EventKind.STARTED, task))
        try:
            answer = self.remote.run(job, lambda text: self._note(task, text))
        except Stopped:
            self.tell(self._event(EventKind.STOPPED, task))
            raise TaskStopped(task.name) from None
        if answer is None:
            return None
        log_path = self.directory.logs / f"{task.name}.log"
        log_path.parent.mkdir(parents=True, exist_ok=True)
        log_path.write_bytes(answer.log)
        for file in answer.outputs:
            (private / file.name).write_bytes(file.data)
        self._conclude(task, private, started, answer.status, log_path)
        return answer.seconds

    def _execute(self, task: Task, private: Path, started: float) -> None:
        log_path = self.directory.logs / f"{task.name}.log"
        log_path.parent.mkdir(parents=True, exist_ok=True)
        argv = [self.plan.places.expand(argument, out=str(private)) for argument in task.argv]
        with log_path.open("wb") as log:
            status = self.groups.run(argv, self.directory.path, task_environment(os.environ), log)
        self._conclude(task, private, started, status, log_path)

    def _conclude(self, task: Task, private: Path, started: float, status: int, log_path: Path) -> None:
        """Raises TaskFailed where a command that has ended did not make every output, TaskStopped if it was stopped."""
        if self.groups.stopping:
            self.tell(self._event(EventKind.STOPPED, task))
            raise TaskStopped(task.name)
        seconds = time.monotonic() - started
        if status != 0:
            self._forget(task)
            changed = self._changed_header(task)
            # A compiler of CUDA reads a header twice, and stumbles where that is another one the second time.
            why = "" if changed is None else f": {changed} changed while the build ran: build again"
            self._fail(task, _ending(status) + why, seconds, log_path)
        for name in task.outputs:
            if not (private / name).is_file():
                self._forget(task)
                self._fail(task, f"succeeded without making {name}", seconds, log_path)

    def _install(self, task: Task, private: Path) -> tuple[FileStamp, ...]:
        drop_receipt(self.directory.receipts, task.name)
        stamps = []
        for name in task.outputs:
            final = self.path(name)
            final.parent.mkdir(parents=True, exist_ok=True)
            (private / name).replace(final)
            stamps.append(stamp(final, name))
            self.digests.learn(stamps[-1])
        return tuple(stamps)

    def _save(
        self, task: Task, key: str, inputs: tuple[FileStamp, ...], outputs: tuple[FileStamp, ...], seconds: float
    ) -> None:
        receipt = Receipt(
            RECEIPT_VERSION, key, task.argv, task.values, inputs, outputs, self.plan.facts, round(seconds, 3)
        )
        save_receipt(self.directory.receipts, task.name, receipt)

    def _forget(self, task: Task) -> None:
        """Leave nothing of a task that failed: no output of an earlier run may pass for this one's."""
        with contextlib.suppress(OSError):
            drop_receipt(self.directory.receipts, task.name)
            for name in task.outputs:
                unlink(self.path(name))

    def _fail(self, task: Task, reason: str, seconds: float, log_path: Path | None) -> None:
        tail = _tail(log_path) if log_path else ""
        free = _free_bytes(log_path) if log_path is not None else None
        if os.strerror(errno.ENOSPC) in tail or (free is not None and free < _FULL_BYTES):
            reason = f"{reason}: no space left on the device"
        elif not tail and free is not None and free < _SCARCE_BYTES:
            # What filled the disk may have been removed already, and what was said of it could not be written.
            reason = f"{reason}: nothing was said, and {free >> 10} KiB are left on the device"
        event = replace(
            self._event(EventKind.FAILED, task), seconds=round(seconds, 3),
            text=reason, log=tail, log_file=str(log_path or ""), command=self.reproducer(task),
        )  # fmt: skip
        self.tell(event)
        raise TaskFailed(event)

    def fail_as(self, task: Task, other: TaskEvent) -> None:
        """Tell that the task failed as the same one of another target did. Nothing of it is left either."""
        self._forget(task)
        text = f"failed for {other.recipe}/{other.target}: {other.text}"
        event = self._event(EventKind.FAILED, task)
        self.tell(replace(event, text=text, log_file=other.log_file, command=self.reproducer(task)))

    def _note(self, task: Task, text: str) -> None:
        self.tell(replace(self._event(EventKind.NOTE, task), text=text))

    def _event(self, kind: EventKind, task: Task) -> TaskEvent:
        return TaskEvent(kind, self.plan.graph.target, task.name, task.label, recipe=self.plan.graph.recipe)

    def reproducer(self, task: Task) -> str:
        """One line for a shell that does what the task does, with its outputs in their final places."""
        argv = [self.plan.places.expand(argument, out=".") for argument in task.argv]
        return f"cd {shlex.quote(str(self.directory.path))} && {shlex.join(argv)}"


def _ending(status: int) -> str:
    if status < 0:
        hint = " (out of memory?)" if status == -9 else ""
        return f"ended by signal {-status}{hint}"
    return f"exit status {status}"


def _free_bytes(path: Path) -> int | None:
    """Bytes left on the device of a file; None where that cannot be told."""
    with contextlib.suppress(OSError):
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize
    return None


_FULL_BYTES = 1 << 16
"""Free space where not even a log can be written: the task's own words are then lost."""

_SCARCE_BYTES = 1 << 24
"""Free space that one output of a task can fill."""


def _tail(path: Path) -> str:
    """The last lines of a log."""
    with contextlib.suppress(OSError):
        lines = path.read_bytes()[-65536:].decode(errors="replace").splitlines()
        return "\n".join(lines[-LOG_TAIL_LINES:])
    return ""
