"""A GPU of this machine as a lane: a process of the driver for each work, which ends with it.

Whatever a candidate does to its process is a status of that candidate, as the driver has it. What the GPU itself does
is not: where something crashed and the GPU is not there any more, nothing of the work counts.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bolt_build.build.files import told, unlink, write_text
from bolt_build.tuning.driver_process import measure
from bolt_build.tuning.lanes.work import COUNT, INTERRUPTED, Answer, Work
from bolt_build.tuning.this_machine import FoundDevice, device_lines

_CRASHED = '"status": "crashed"'


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

    def measure(self, work: Work, budget: float, say: Callable[[str], None], keep: Callable[[Answer], None]) -> Answer:
        """Raises BoltError where the driver cannot be started, or results not be written."""
        results = self.folder / f"gpu{self.found.index}.jsonl"
        engines = self.folder / f"gpu{self.found.index}.tsv"
        lines = [""]

        def take(line: str) -> None:
            lines[0] = line
            say(line)
            if work.size > 1 and COUNT.search(line):
                keep(Answer(results=_finished(results), part=True))

        options = ["--device", self.found.line]
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
        crashed = status not in (0, INTERRUPTED) or _CRASHED in text
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
            return not any(self.found.uuid in line.split("\t") for line in device_lines(self.program))
        except OSError:
            return False
        except subprocess.TimeoutExpired:
            return True


def _finished(results: Path) -> str:
    """The whole lines of a results file that is still written, without problems of which something crashed: whether
    that was the GPU is known at the end."""
    with told(results):
        lines = results.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]
    suspect = {json.loads(line)["problem"] for line in lines if _CRASHED in line}
    kept = (line for line in lines if not suspect or json.loads(line).get("problem") not in suspect)
    return "".join(f"{line}\n" for line in kept)
