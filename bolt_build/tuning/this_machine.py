"""The GPUs of this machine, as the driver names them."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.lockfile.fingerprint import Device
from bolt_build.targets import Target

_DEVICES_SECONDS = 120.0
"""What a GPU's driver may take to answer: one that no program used for a while wakes up slowly."""


@dataclass(frozen=True)
class FoundDevice:
    """A GPU of a machine: CUDA's number there, the name that all of its processes give it, and the driver's own line
    about it."""

    index: int
    device: Device
    uuid: str
    line: str


def devices_of(driver: Path, target: Target, *, foreign: bool) -> tuple[FoundDevice, ...]:
    """The GPUs here that are the target's (`foreign`: all), as the driver program at `driver` names them in results.

    Raises BoltError ("no-gpu"), exit code 7, where it finds none.
    """
    try:
        said = device_lines(driver)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _no_gpu(f"{driver} does not say which GPUs there are: {error}") from error
    found = [_device(line) for line in said if line.startswith("device\t")]
    if not found:
        raise _no_gpu("\n".join(said).removeprefix("error\t") or f"{driver} names no GPU")
    fitting = tuple(each for each in found if foreign or target.is_device(each.device.name))
    if not fitting:
        names = ", ".join(sorted({each.device.name for each in found}))
        raise _no_gpu(f"the GPUs here are {names}, not {target.description}")
    return fitting


def device_lines(driver: Path) -> Sequence[str]:
    """What the driver program says when it is asked for the GPUs, which starts CUDA anew. Raises OSError, and
    TimeoutExpired where CUDA does not answer."""
    done = subprocess.run(
        [str(driver), "--devices"], capture_output=True, text=True, errors="replace", check=False,
        timeout=_DEVICES_SECONDS,
    )  # fmt: skip
    return done.stdout.splitlines()


def _device(line: str) -> FoundDevice:
    """`device INDEX UUID NAME SMS MEMORY POWER DRIVER CAPABILITY`, between tabs. Raises BoltError."""
    try:
        _, index, uuid, name, sms, memory, power, driver, _ = line.split("\t")
        return FoundDevice(int(index), Device(name, int(sms), int(memory), int(power), driver), uuid, line)
    except ValueError as error:
        raise _no_gpu(f"the driver says of a GPU what nobody understands: {line[:80]}") from error


def _no_gpu(why: str) -> BoltError:
    hint = "compile here with --export BUNDLE.tar, and run the bundle on a machine with the GPU"
    return BoltError([Diagnostic("no-gpu", f"nothing can be measured: {why}", hint=hint)], ExitCode.TOOL_MISSING)
