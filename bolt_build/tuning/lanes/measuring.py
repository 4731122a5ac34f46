"""Shares works out among lanes: each takes the next one when it is done with the one before.

A lane that loses its GPU gives its work back, and another one does it. What is done is told at once.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue

from bolt_build.tuning.lanes.progress import Progress
from bolt_build.tuning.lanes.work import INTERRUPTED, Answer, Lane, Work

MOST_LOSSES = 3
"""GPUs that one work may lose: what loses every GPU is measured on none."""


@dataclass(frozen=True)
class Ended:
    """How measuring ended: `interrupted`; the exit status and last words of a driver that failed, None where none did;
    how many problems or engines are `left`, because GPUs were `lost`, and why each was."""

    interrupted: bool = False
    failed: Answer | None = None
    left: int = 0
    lost: tuple[str, ...] = ()

    @property
    def finished(self) -> bool:
        return not (self.interrupted or self.failed or self.left)


def measure_all(
    works: Sequence[Work],
    lanes: Sequence[Lane],
    budget: float,
    take: Callable[[Work, Answer], None],
    say: Callable[[str], None],
) -> Ended:
    """Measure all works, each lane for at most `budget` seconds: what is not begun then is left out.

    `take` gets what comes of each work in this thread, as it comes, and parts of it before; the same again where an
    interruption came between.
    Ctrl-C ends what is measured, and what is known then is taken. Raises what a lane or `take` raises.
    """
    crew = _Crew(deque(works), budget)
    threads = [threading.Thread(target=crew.serve, args=(lane,), daemon=True) for lane in lanes]
    for thread in threads:
        thread.start()
    running, done, interrupted = len(threads), 0, False
    every = sum(work.size for work in works)
    failed: Answer | None = None
    lost: list[str] = []
    item: _Told | None = None
    try:
        while running:
            try:
                item = item or crew.told.get()
                if item.error is not None:
                    raise item.error
                if item.said is not None:
                    say(_line(item.said, item.worker, done, every))
                elif item.answer is not None and item.answer.lost:
                    lost.append(item.answer.lost)
                    say(f"{item.answer.lost}: what it measured last is measured again")
                elif item.answer is not None and item.work is not None and item.answer.part:
                    take(item.work, item.answer)
                elif item.answer is not None and item.work is not None:
                    take(item.work, item.answer)
                    done += item.work.size
                    interrupted = interrupted or item.answer.status == INTERRUPTED
                    failed = failed or (item.answer if item.answer.status not in (0, INTERRUPTED) else None)
                else:
                    running -= 1
                item = None
            except KeyboardInterrupt:
                if interrupted:
                    raise
                interrupted = True
                _stop(crew, lanes)
    finally:
        if running:
            _stop(crew, lanes)
        for thread in threads:
            thread.join()
    given_back = (*crew.waiting, *crew.given_up)
    left = 0 if interrupted or failed or not lost else sum(work.size for work in given_back)
    return Ended(interrupted, failed, left, tuple(lost))


def _line(said: Progress, worker: str, done: int, every: int) -> str:
    """What is said for people, with the count of all where the driver counts what is of its work. Works end out of
    turn: no count is beyond the last."""
    head = f"GPU {said.gpu} of {worker}  " if worker else f"GPU {said.gpu}  "
    count = "" if said.done is None else f"[{min(done + said.done, every)}/{every}] "
    return f"{head}{count}{said.text}"


def _stop(crew: _Crew, lanes: Sequence[Lane]) -> None:
    crew.stop()
    for lane in lanes:
        lane.stop()


@dataclass(frozen=True)
class _Told:
    """What a driver `said`, on which `worker`; an answer; an error; or, with nothing of these, the end of a lane."""

    work: Work | None = None
    answer: Answer | None = None
    said: Progress | None = None
    worker: str = ""
    error: BaseException | None = None


@dataclass
class _Crew:
    """What waits, and what the lanes' threads tell."""

    waiting: deque[Work]
    budget: float
    told: SimpleQueue[_Told] = field(default_factory=SimpleQueue)
    given_up: list[Work] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _losses: dict[Work, int] = field(default_factory=dict)
    _busy: int = 0
    _stopping: bool = False

    def serve(self, lane: Lane) -> None:
        """Measure what waits, until there is nothing more, the time is over, or the GPU is lost."""
        spent = 0.0
        try:
            while (work := self._next(spent)) is not None:
                try:
                    answer = lane.measure(work, self.budget - spent, self._say, partial(self._part, work))
                    if answer.lost:
                        self._give_back(work)
                finally:
                    self._ended()
                spent += answer.seconds
                self.told.put(_Told(work, answer))
                if answer.lost:
                    return
                if answer.status != 0:
                    self.stop()
        except BaseException as error:
            self.told.put(_Told(error=error))
        finally:
            self.told.put(_Told())

    def stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def _next(self, spent: float) -> Work | None:
        """The next work. A lane without any waits while others are at work, as they may give theirs back."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self.waiting) or self._busy == 0 or self._stopping)
            if self._stopping or not self.waiting or spent >= self.budget:
                return None
            self._busy += 1
            return self.waiting.popleft()

    def _ended(self) -> None:
        with self._changed:
            self._busy -= 1
            self._changed.notify_all()

    def _give_back(self, work: Work) -> None:
        with self._changed:
            self._losses[work] = self._losses.get(work, 0) + 1
            (self.waiting.appendleft if self._losses[work] < MOST_LOSSES else self.given_up.append)(work)
            self._changed.notify_all()

    def _part(self, work: Work, answer: Answer) -> None:
        self.told.put(_Told(work, answer))

    def _say(self, progress: Progress, worker: str = "") -> None:
        """What a driver says of its single run is left out: there are many."""
        if progress.gpu is not None:
            self.told.put(_Told(said=progress, worker=worker))
