"""Workers of a Dask scheduler as lanes: each that declares the resource `gpu_TARGET=1` owns one GPU of the target.

What is sent is one work, so a worker that dies, a GPU that is lost, or a scheduler that restarts costs a retry of that.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bolt_build.build.remote.dask import ATTEMPTS, DaskScheduler, Lost, NoScheduler, NoWorker, Stopped
from bolt_build.build.remote.job import package_digest
from bolt_build.digest import digest_file
from bolt_build.tuning.lanes.measuring import MOST_LOSSES
from bolt_build.tuning.lanes.there import Piece, Question, Told, kept_there, measured_there
from bolt_build.tuning.lanes.work import INTERRUPTED, Answer, Keep, Say, Work
from bolt_build.tuning.this_machine import FoundDevice

_PIECE_BYTES = 4 << 20
"""What is sent at once: Dask's scheduler keeps it for as long, and warns of more than 10 MB."""


def resource_of(target: str) -> str:
    """What a worker declares that owns a GPU of a target: `gpu_h200`, say."""
    return f"gpu_{target}"


def declared(address: str, target: str) -> int | None:
    """How many workers of a scheduler own a GPU of the target; None where it does not answer."""
    scheduler = DaskScheduler(address, lambda: False)
    try:
        return len(scheduler.workers(resource_of(target)))
    except NoScheduler:
        return None
    finally:
        scheduler.close()


@dataclass
class GpuWorkers:
    """The GPUs that the workers of a scheduler own. Thread-safe. `foreign`: GPUs of other targets do as well. `stop`
    ends whatever is asked."""

    scheduler: DaskScheduler
    target: str
    foreign: bool
    say: Callable[[str], None]
    stop: Callable[[], None]
    _refused: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _sending: threading.Lock = field(default_factory=threading.Lock)

    def found(self, program: Path) -> tuple[FoundDevice, ...]:
        """The GPUs of the workers there are now, as the driver names them. Raises Stopped, NoScheduler."""
        digest = digest_file(program)
        question = Question(package_digest(), digest, self.target, self.foreign)
        found = []
        for worker in self.scheduler.workers(resource_of(self.target)):
            try:
                told, _ = self.ask(question, {digest: program}, worker)
            except (Lost, NoWorker):
                self.say(f"the worker {worker} was lost before it named its GPU: it measures nothing")
                continue
            if told.gpu is not None:
                found.append(told.gpu)
        return tuple(found)

    def lanes(self, program: Path, candidates: Path) -> tuple[WorkerLane, ...]:
        """One for each worker there is now, and one where there is none: others may come.

        Raises Stopped, NoScheduler."""
        files = {digest_file(path): path for path in (program, candidates)}
        with self._lock:
            workers = set(self.scheduler.workers(resource_of(self.target))) - self._refused
        return tuple(WorkerLane(self, files) for _ in workers) or (WorkerLane(self, files),)

    def ask(self, question: Question, files: Mapping[str, Path], worker: str | None = None) -> tuple[Told, str]:
        """What a worker tells that has all of `files`, by their digests, and its address.

        One that refuses is not asked again; where only that `worker` was asked, its refusal is the answer. Raises
        Stopped, NoScheduler, NoWorker, Lost.
        """
        while True:
            with self._lock:
                refused = frozenset(self._refused)
            told, of = self.scheduler.ask(
                measured_there, question, refused=refused, resource=resource_of(self.target), worker=worker
            )
            if told.lacks:
                self._send(of, {name: files[name] for name in told.lacks})
                continue
            if told.refused:
                self.refuse(of, told.refused)
            if not told.refused or worker is not None:
                return told, of

    def refuse(self, worker: str, why: str) -> None:
        """Ask a worker for nothing more. What comes in its place has another address."""
        with self._lock:
            first = worker not in self._refused
            self._refused.add(worker)
        if first:
            self.say(f"the worker {worker} {why}: it measures nothing more")

    def _send(self, worker: str, files: Mapping[str, Path]) -> None:
        """Send files to a worker that lacks them. Where it is lost, or loses them, whoever asks it next finds out."""
        sender = uuid.uuid4().hex
        # One after the other: several lanes may find out that the same worker lacks the same.
        with self._sending, contextlib.suppress(Lost, NoWorker):
            for digest, path in files.items():
                data = path.read_bytes()
                for offset in range(0, max(len(data), 1), _PIECE_BYTES):
                    end = offset + _PIECE_BYTES
                    piece = Piece(digest, sender, offset, data[offset:end], end >= len(data))
                    self.scheduler.ask(kept_there, piece, worker=worker)


@dataclass
class WorkerLane:
    """One work at a time, on whichever worker is free."""

    workers: GpuWorkers
    files: Mapping[str, Path]

    def measure(self, work: Work, budget: float, say: Say, keep: Keep) -> Answer:
        """A task is a problem, so nothing of it is finished before it is."""
        program, candidates = self.files
        question = Question(
            package_digest(), program, self.workers.target, self.workers.foreign, candidates, work, budget
        )
        name = f"{self.workers.scheduler.address} with {resource_of(self.workers.target)}"
        for _ in range(MOST_LOSSES):
            try:
                told, worker = self.workers.ask(question, self.files)
            except Stopped:
                return Answer(INTERRUPTED)
            except NoScheduler as error:
                return Answer(lost=f"the scheduler {error} does not answer any more")
            except NoWorker:
                return Answer(lost=f"no worker of {name} is left")
            except Lost:
                return Answer(lost=f"the workers of {name} have lost the same problem {ATTEMPTS} times")
            assert told.answer is not None, "a work has an answer"
            for progress in told.said:
                say(progress, worker)
            if not told.answer.lost:
                return told.answer
            self.workers.refuse(worker, f"has lost its GPU ({told.answer.lost})")
        return Answer(lost=f"{MOST_LOSSES} GPUs were lost with the same problem")

    def stop(self) -> None:
        self.workers.stop()
