"""Gives cases to worker processes, ends those that take too long, and gathers what they say."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fuzzing.case import Limits

_PREPARING = 300.0
_CHUNK = 20
_TICKS = os.sysconf("SC_CLK_TCK")
_SUPPORT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Answer:
    """How one case ended. `kept` is the folder of a violating one; `peak` in bytes, `seconds` of CPU time."""

    number: int
    about: str
    outcome: str
    violation: str | None
    seconds: float
    peak: int
    kept: str | None


@dataclass
class Tally:
    """All cases of one kind."""

    kind: str
    seed: int
    cases: int = 0
    seconds: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    violations: list[Answer] = field(default_factory=list)
    slowest: Answer | None = None
    largest: Answer | None = None

    def add(self, answer: Answer) -> None:
        self.cases += 1
        self.seconds += answer.seconds
        if answer.violation is not None:
            self.violations.append(answer)
            self.outcomes["violation"] += 1
            return
        self.outcomes[answer.outcome] += 1
        if self.slowest is None or answer.seconds > self.slowest.seconds:
            self.slowest = answer
        if self.largest is None or answer.peak > self.largest.peak:
            self.largest = answer


@dataclass(frozen=True)
class Order:
    """Cases `first` to `first + count - 1` of a kind."""

    kind: str
    seed: int
    first: int
    count: int


class Worker:
    """One worker process and its folder below `home`; started when it is needed, and again when it ended."""

    def __init__(self, home: Path, limits: Limits) -> None:
        self._home = home
        self._limits = limits
        self._starts = 0
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, order: Order) -> Iterator[Answer]:
        """The answers of all cases of `order`, whatever they do to the process."""
        first, end = order.first, order.first + order.count
        while first < end:
            lost = None
            for answer in self._attempt(Order(order.kind, order.seed, first, end - first)):
                first = answer.number + 1
                lost = answer
                yield answer
            if first < end and lost is None:
                raise RuntimeError(f"no worker can begin with {order.kind}")

    def _attempt(self, order: Order) -> Iterator[Answer]:
        process = self._running()
        assert process.stdin is not None
        request = asdict(order) | {"limits": asdict(self._limits)}
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        number: int | None = None
        while True:
            line = self._line(process, begun=number is not None)
            if isinstance(line, str):
                self.close()
                if number is None:
                    raise RuntimeError(f"no worker can begin with {order.kind}: {line}")
                folder = self._folder / f"{order.kind}-{order.seed}-{number}"
                yield Answer(number, "", "", line, 0.0, 0, str(folder))
                return
            if "done" in line:
                return
            if "begun" in line:
                number = int(line["begun"])
            else:
                yield Answer(**line)

    @property
    def _folder(self) -> Path:
        return self._home / f"start-{self._starts}"

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._starts += 1
            self._folder.mkdir(parents=True)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "fuzzing.worker", str(self._folder)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=_environment(self._folder),
                start_new_session=True,
            )  # fmt: skip
        return self._process

    def _line(self, process: subprocess.Popen[bytes], begun: bool) -> dict[str, Any] | str:
        """The worker's next line, or what came in its place: a limit that it passed, or its end."""
        assert process.stdout is not None
        wall = self._limits.wall if begun else _PREPARING
        started, used = time.monotonic(), _cpu_of(process.pid)
        while not select.select([process.stdout], [], [], 0.25)[0]:
            if begun and _cpu_of(process.pid) - used > 1.5 * self._limits.cpu:
                return f"takes over {self._limits.cpu:.0f} s of CPU time, and was ended"
            if time.monotonic() - started > wall:
                return f"is not done after {wall:.0f} s, and was ended"
        text = process.stdout.readline()
        if not text:
            return f"the process ended with {process.wait()}"
        found: dict[str, Any] = json.loads(text)
        return found

    def close(self) -> None:
        """Ends the process and all that it started."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()
        self._process = None


def run(
    orders: Sequence[tuple[str, int]], seed: int, workers: int, home: Path, limits: Limits, said: Callable[[str], None]
) -> dict[str, Tally]:
    """Runs `(kind, count)` of `orders`, with `workers` processes at once below `home`."""
    waiting: queue.SimpleQueue[Order] = queue.SimpleQueue()
    for kind, count in orders:
        for first in range(0, count, _CHUNK):
            waiting.put(Order(kind, seed, first, min(_CHUNK, count - first)))
    tallies = {kind: Tally(kind, seed) for kind, _ in orders}
    wanted = dict(orders)
    lock = threading.Lock()
    failures: list[BaseException] = []

    def serve(index: int) -> None:
        worker = Worker(home / f"worker-{index}", limits)
        try:
            while not failures:
                order = waiting.get_nowait()
                for answer in worker.run(order):
                    with lock:
                        tally = tallies[order.kind]
                        tally.add(answer)
                        if answer.violation is not None:
                            said(f"{order.kind} {answer.number}: {answer.about}: {answer.violation}")
                        if tally.cases % 500 == 0 or tally.cases == wanted[order.kind]:
                            said(f"{order.kind}: {tally.cases} of {wanted[order.kind]}")
        except queue.Empty:
            pass
        except BaseException as error:
            failures.append(error)
        finally:
            worker.close()

    threads = [threading.Thread(target=serve, args=(index,)) for index in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return tallies


def _environment(folder: Path) -> dict[str, str]:
    """This process's, with every folder that bolt-build writes to below `folder`."""
    places = {name: folder / name.lower() for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME")}
    for place in places.values():
        place.mkdir()
    own = {name: str(place) for name, place in places.items()}
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    path = os.pathsep.join([str(_SUPPORT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return os.environ | own | threads | {"PYTHONPATH": path, "PYTHONHASHSEED": "0"}


def _cpu_of(process: int) -> float:
    """CPU seconds of a process and of its children that have ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(int(fields[index]) for index in (11, 12, 13, 14)) / _TICKS
