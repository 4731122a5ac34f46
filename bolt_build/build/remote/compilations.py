"""Sends compilations to the workers of a Dask scheduler.

They give the same bytes wherever they run. So where no scheduler answers, or no worker can do it, they run here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from bolt_build.build.remote.dask import ATTEMPTS, DaskScheduler, Lost, NoScheduler, NoWorker
from bolt_build.build.remote.job import Answer, Job


@dataclass
class Compilations:
    """Thread-safe."""

    scheduler: DaskScheduler
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _told: set[str] = field(default_factory=set)

    def run(self, job: Job, note: Callable[[str], None]) -> Answer | None:
        """What became of a job; None where it must run here. Raises Stopped."""
        refused: set[str] = set()
        address, ended = self.scheduler.address, 0
        why = "its compiler was ended"
        while ended < ATTEMPTS:
            try:
                answer, worker = self.scheduler.ask(_run_there, job, refused=refused)
            except NoScheduler:
                self._once(note, f"the scheduler {address} does not answer: what it does not do is done here")
                return None
            except NoWorker:
                self._once(note, f"no worker of {address} can compile it: it is done here")
                return None
            except Lost as lost:
                why = str(lost)
                break
            if answer.refused:
                self._once(note, f"the worker {worker} {answer.refused}: it gets none of these")
                refused.add(worker)
            elif answer.status < 0:
                ended += 1  # something ended the compiler there: its own fault would be a status
            else:
                return answer
        self._once(note, f"the scheduler {address} has lost {job.name} {ATTEMPTS} times ({why}): it is done here")
        return None

    def close(self) -> None:
        self.scheduler.close()

    def _once(self, note: Callable[[str], None], text: str) -> None:
        with self._lock:
            first = text not in self._told
            self._told.add(text)
        if first:
            note(text)


def _run_there(job: Job) -> Answer:
    # Only workers look for tools, which takes as long to import as all else here.
    from bolt_build.build.remote.worker import run_job

    return run_job(job)
