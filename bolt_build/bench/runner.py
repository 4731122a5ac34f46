"""An engine alone, timed by its own runner program."""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bolt_build.bench.energy import Counter, EnergyLog
from bolt_build.digest import UNSAID, decode
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.sizes import Dims


@dataclass(frozen=True)
class Load:
    """How an engine is called: for about `seconds`, by so many `callers` at the same time, each as often as it can or
    all together `rate` times a second. `inputs` are arguments of the runner's --input; without any, inputs are
    random."""

    seconds: float
    callers: int = 1
    rate: float | None = None
    inputs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measurement:
    """What a runner says of one batch, number of threads and load; milliseconds a run.

    `dims` are extents of dimensions of which the engine has several. `threads` is None for an engine whose runs use no
    CPU threads; `p90_ms` and `p99_ms` where there were fewer than 10 or 100 runs. With a `rate` times begin when a
    request comes in. `images_per_second`: of one caller without a rate at the median, otherwise what was reached.
    `copy_in_ms` and `copy_out_ms` are what copying all inputs to a device and all outputs back takes beside a run, None
    on a CPU. `context_bytes` (arena and scratch) are a caller's; `resident_bytes` the most memory of the CPU that the
    runner had. `joules_per_image` is the whole device's, None where it was not told.
    """

    name: str
    target: str
    batch: int
    threads: int | None
    inputs: str
    callers: int
    rate: float | None
    runs: int
    seconds: float
    min_ms: float
    median_ms: float
    p90_ms: float | None
    p99_ms: float | None
    max_ms: float
    requests_per_second: float
    images_per_second: float
    copy_in_ms: float | None
    copy_out_ms: float | None
    context_bytes: int
    resident_bytes: int
    began: float
    ended: float
    weights_bytes: int = 0
    joules_per_image: float | None = None
    dims: Dims = field(default=(), metadata=UNSAID)

    @property
    def engine_bytes(self) -> int:
        """Memory where the engine runs: the weights once, and a context a caller."""
        return self.weights_bytes + self.callers * self.context_bytes


def measure_alone(
    runner: Path,
    batch: int,
    threads: int | None,
    load: Load,
    energy: Counter | None = None,
    weights_bytes: int = 0,
    dims: Dims = (),
) -> Measurement:
    """Runs the program. Raises BoltError where it fails."""
    argv = [os.fspath(runner), "--bench", "--json", "--batch", str(batch), "--seconds", str(load.seconds)]
    for name, extent in dims:
        argv += ["--dim", f"{name}={extent}"]
    if threads is not None:
        argv += ["--threads", str(threads)]
    if load.callers > 1:
        argv += ["--callers", str(load.callers)]
    if load.rate is not None:
        argv += ["--rate", str(load.rate)]
    for each in load.inputs:
        argv += ["--input", each]
    with ExitStack() as during:
        log = None if energy is None else during.enter_context(EnergyLog(energy))
        done = subprocess.run(argv, check=False, capture_output=True, text=True)
    try:
        if done.returncode == 0:
            said: dict[str, Any] = json.loads(done.stdout)
            own = {"is": "Measurement", "threads": threads, "weights_bytes": weights_bytes}
            found: Measurement = decode(Measurement, said | own | {"joules_per_image": None})
            joules = None if log is None else log.between(found.began, found.ended)
            images = found.runs * found.batch
            return found if joules is None else replace(found, joules_per_image=joules / images)
        reason = done.stderr.strip() or f"exit status {done.returncode}"
    except ValueError as error:
        reason = f"its answer cannot be read: {error}"
    raise BoltError([Diagnostic("runner-failed", reason, subject=str(runner))], ExitCode.TASK_FAILED)
