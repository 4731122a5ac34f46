"""A GPU of this machine as a lane: a process of the driver for each work, which ends with it.

Whatever a candidate does to its process is a status of that candidate, as the driver has it. What the GPU itself does
is not: where something crashed and the GPU is not there any more, nothing of the work counts.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bolt_build.build.files import told, unlink, write_text
from bolt_build.errors import BoltError
from bolt_build.tuning.driver_process import measure
from bolt_build.tuning.exchange.result_fields import DamagedError, json_object
from bolt_build.tuning.lanes.progress import progress_of
from bolt_build.tuning.lanes.work import INTERRUPTED, Answer, Keep, Say, Work
from bolt_build.tuning.records.kernel_record import Status
from bolt_build.tuning.this_machine import FoundDevice, found_devices


@dataclass
class Gpu:
    """`program` is the driver, `candidates` what it measures; results lie in `folder` until they are read."""

    found: FoundDevice
    program: Path
    candidates: Path
    folder: Path
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _end: Callable[[], None] | None = None
    _stopped: bool = False

    def measure(self, work: Work, budget: float, say: Say, keep: Keep) -> Answer:
        """Raises BoltError where the driver cannot be started, or results not be written."""
        results = self.folder / f"gpu{self.found.index}.jsonl"
        engines = self.folder / f"gpu{self.found.index}.tsv"
        lines = [""]

        def take(line: str) -> None:
            progress = progress_of(line)
            lines[0] = progress.text
            say(progress)
            if work.size > 1 and progress.done is not None:
                keep(Answer(results=_finished(results), part=True))

        options = ["--json", "--device", self.found.line]
        with told(results):
            unlink(results)
            if work.engines:
                write_text(engines, work.engines)
                options += ["--stage", "engines", "--engines", str(engines)]
            else:
                options += ["--stage", "kernels", "--problems", ",".join(map(str, work.problems))]
        began = time.monotonic()
        try:
            status = measure(
                self.program, self.candidates, results, budget, on_line=take, on_start=self._started, options=options
            )
            seconds = time.monotonic() - began
            with told(results):
                text = results.read_text(encoding="utf-8", errors="replace") if results.is_file() else ""
        finally:
            with told(results):
                unlink(results)
                unlink(engines)
        crashed = status not in (0, INTERRUPTED) or any(map(_crashed, text.splitlines()))
        lost = f"GPU {self.found.index} ({self.found.uuid}) is not there any more" if crashed and self._gone() else ""
        return Answer(status, text, lines[0], seconds, lost)

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            if self._end is not None:
                self._end()

    def _started(self, end: Callable[[], None]) -> None:
        with self._lock:
            self._end = end
            if self._stopped:
                end()

    def _gone(self) -> bool:
        """True where the driver does not find the GPU any more. A program that cannot be asked says nothing of it."""
        try:
            return all(each.uuid != self.found.uuid for each in found_devices(self.program))
        except OSError:
            return False
        except (BoltError, subprocess.TimeoutExpired):
            return True


def _finished(results: Path) -> str:
    """The whole lines of a results file that is still written, without problems of which something crashed: whether
    that was the GPU is known at the end."""
    with told(results):
        lines = results.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]
    suspect = {_said(line).get("problem") for line in lines if _crashed(line)}
    return "".join(f"{line}\n" for line in lines if not suspect or _said(line).get("problem") not in suspect)


def _crashed(line: str) -> bool:
    """True where a line of results says that something crashed."""
    return _said(line).get("status") == Status.CRASHED.value


def _said(line: str) -> Mapping[str, Any]:
    """The fields of a line of results; none of one that is damaged, of which whoever reads the whole file tells."""
    try:
        return json_object(line)
    except DamagedError:
        return {}
