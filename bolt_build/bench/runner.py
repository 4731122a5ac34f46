"""An engine alone, timed by its own runner program."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bolt_build.digest import UNSAID, decode
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.sizes import Dims


@dataclass(frozen=True)
class Measurement:
    """What a runner says of one batch and number of threads; milliseconds a run.

    `dims` are extents of dimensions of which the engine has several. `threads` is None for an engine whose runs use no
    CPU threads, `p99_ms` where there were fewer than 100 runs."""

    name: str
    target: str
    batch: int
    threads: int | None
    runs: int
    min_ms: float
    median_ms: float
    p99_ms: float | None
    images_per_second: float
    dims: Dims = field(default=(), metadata=UNSAID)


def measure_alone(runner: Path, batch: int, threads: int | None, seconds: float, dims: Dims = ()) -> Measurement:
    """Runs the program for about `seconds`. Raises BoltError where it fails."""
    argv = [os.fspath(runner), "--bench", "--json", "--batch", str(batch), "--seconds", str(seconds)]
    for name, extent in dims:
        argv += ["--dim", f"{name}={extent}"]
    if threads is not None:
        argv += ["--threads", str(threads)]
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    try:
        if done.returncode == 0:
            said: dict[str, Any] = json.loads(done.stdout)
            return decode(Measurement, said | {"is": "Measurement", "threads": threads})
        reason = done.stderr.strip() or f"exit status {done.returncode}"
    except ValueError as error:
        reason = f"its answer cannot be read: {error}"
    raise BoltError([Diagnostic("runner-failed", reason, subject=str(runner))], ExitCode.TASK_FAILED)
