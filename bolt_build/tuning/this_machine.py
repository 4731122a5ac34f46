"""Measuring on this machine: which GPUs it has, and the driver's run over what was compiled."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bolt_build.build.files import told, unlink
from bolt_build.build.layout import TuningDirectory
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.lockfile.fingerprint import Device
from bolt_build.targets import Target
from bolt_build.tuning.driver_process import measure
from bolt_build.tuning.exchange.bundle import CANDIDATES, RUN

_DEVICES_SECONDS = 120.0
"""What a GPU's driver may take to answer: one that no program used for a while wakes up slowly."""


@dataclass(frozen=True)
class FoundDevice:
    """A GPU of this machine by CUDA's number."""

    index: int
    device: Device


@dataclass(frozen=True)
class Measured:
    """How a measurement ended: `status` is the driver's exit status, `last_words` its last line."""

    status: int
    interrupted: bool
    last_words: str

    @property
    def finished(self) -> bool:
        return self.status == 0 and not self.interrupted


def devices_of(driver: Path, target: Target, *, foreign: bool) -> tuple[FoundDevice, ...]:
    """The GPUs here that are the target's (`foreign`: all), as the driver program at `driver` names them in results.

    Raises BoltError ("no-gpu"), exit code 7, where it finds none.
    """
    try:
        done = subprocess.run(
            [str(driver), "--devices"], capture_output=True, text=True, errors="replace", check=False,
            timeout=_DEVICES_SECONDS,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _no_gpu(f"{driver} does not say which GPUs there are: {error}") from error
    found = [_device(line.split("\t")) for line in done.stdout.splitlines() if line.startswith("device\t")]
    if not found:
        said = done.stdout.removeprefix("error\t").strip() or f"{driver} ended with status {done.returncode}"
        raise _no_gpu(said)
    fitting = tuple(each for each in found if foreign or target.is_device(each.device.name))
    if not fitting:
        names = ", ".join(sorted({each.device.name for each in found}))
        raise _no_gpu(f"the GPUs here are {names}, not {target.description}")
    return fitting


def measure_here(
    directory: TuningDirectory, devices: Sequence[FoundDevice], budget_seconds: float, say: Callable[[str], None]
) -> Measured:
    """Run the driver over `candidates.so` of the directory on these devices; what it finds is in its results file.

    Raises as `play_here`.
    """
    return _run(directory, devices, budget_seconds, say, directory.results, ("--stage", "kernels"))


def play_here(
    directory: TuningDirectory, devices: Sequence[FoundDevice], budget_seconds: float, say: Callable[[str], None]
) -> Measured:
    """Run the driver over the directory's engines, with its `candidates.so`, on these devices; what it finds is in the
    results file of engines.

    Ctrl-C ends the driver: results then hold what was measured until then. Raises BoltError where the driver cannot be
    started or an older results file not be removed.
    """
    options = ("--stage", "engines", "--engines", str(directory.engines))
    return _run(directory, devices, budget_seconds, say, directory.engine_results, options)


def _run(
    directory: TuningDirectory,
    devices: Sequence[FoundDevice],
    budget_seconds: float,
    say: Callable[[str], None],
    results: Path,
    options: Sequence[str],
) -> Measured:
    lines = [""]

    def take(line: str) -> None:
        lines[0] = line
        say(line)

    with told(results):
        unlink(results)
    numbers = ",".join(str(each.index) for each in devices)
    try:
        status = measure(
            directory.path / RUN, directory.path / CANDIDATES, results, budget_seconds, on_line=take,
            options=("--gpus", numbers, *options),
        )  # fmt: skip
    except KeyboardInterrupt:
        return Measured(130, True, lines[0])
    return Measured(status, status == 130, lines[0])


def _device(fields: Sequence[str]) -> FoundDevice:
    """`device INDEX UUID NAME SMS MEMORY POWER DRIVER CAPABILITY`, between tabs. Raises BoltError."""
    try:
        _, index, _, name, sms, memory, power, driver, _ = fields
        return FoundDevice(int(index), Device(name, int(sms), int(memory), int(power), driver))
    except ValueError as error:
        raise _no_gpu(f"the driver says of a GPU what nobody understands: {' '.join(fields)[:80]}") from error


def _no_gpu(why: str) -> BoltError:
    hint = "compile here with --export BUNDLE.tar, and run the bundle on a machine with the GPU"
    return BoltError([Diagnostic("no-gpu", f"nothing can be measured: {why}", hint=hint)], ExitCode.TOOL_MISSING)
