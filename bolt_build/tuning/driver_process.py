"""Runs the driver here, and lets nothing of it outlive the call."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bolt_build.errors import BoltError, Diagnostic, ExitCode

_GRACE_SECONDS = 10.0


def measure(
    driver: Path,
    candidates: Path,
    results: Path,
    budget_seconds: float,
    *,
    on_line: Callable[[str], None] | None = None,
    on_start: Callable[[Callable[[], None]], None] | None = None,
    options: Sequence[str] = (),
) -> int:
    """Measure `candidates` on the GPUs of this machine, what is found into `results`; the driver's exit status.

    `on_line` gets each line of its progress (standard error, unless it is given); `options` are further arguments of
    the driver. `on_start` gets what ends the driver from another thread. The driver and its workers end when this call
    is interrupted, and when this process is killed.
    Raises BoltError ("driver-unusable") where the driver cannot be started.
    """
    show = on_line if on_line is not None else _to_standard_error
    argv = [str(driver), "--candidates", str(candidates), "--results", str(results)]
    argv += ["--budget", f"{budget_seconds:g}", "--with-input", *options]
    try:
        # Its input is a pipe that nobody writes to: it ends where this process does, even a killed one.
        child = subprocess.Popen(argv, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace")
    except OSError as error:
        message = f"the driver '{driver}' cannot be started: {error.strerror}"
        raise BoltError([Diagnostic("driver-unusable", message)], ExitCode.TASK_FAILED) from error
    assert child.stderr is not None
    try:
        if on_start is not None:
            on_start(lambda: _hang_up(child))
        for line in child.stderr:
            show(line.rstrip("\n"))
        return child.wait()
    finally:
        _end(child)


def _to_standard_error(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _hang_up(child: subprocess.Popen[str]) -> None:
    """Closes its input, at which it ends its workers and itself."""
    assert child.stdin is not None
    with contextlib.suppress(OSError):
        child.stdin.close()


def _end(child: subprocess.Popen[str]) -> None:
    """Kills it where it does not end by itself."""
    _hang_up(child)
    try:
        child.wait(_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    finally:
        assert child.stderr is not None
        child.stderr.close()
