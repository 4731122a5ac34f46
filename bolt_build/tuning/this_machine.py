"""The GPUs of this machine, as the driver names them."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.lockfile.fingerprint import Device
from bolt_build.targets import Target
from bolt_build.tuning.exchange.result_fields import DamagedError, get, json_object, text, whole

_DEVICES_SECONDS = 120.0
"""What a GPU's driver may take to answer: one that no program used for a while wakes up slowly."""


@dataclass(frozen=True)
class FoundDevice:
    """A GPU of a machine: CUDA's number there, the name that all of its processes give it, and the driver's own line
    about it, which nobody but the driver reads (`--device`)."""

    index: int
    device: Device
    uuid: str
    line: str


def devices_of(driver: Path, target: Target, *, foreign: bool) -> tuple[FoundDevice, ...]:
    """The GPUs here that are the target's (`foreign`: all), as the driver program at `driver` names them in results.

    Raises BoltError ("no-gpu"), exit code 7, where it finds none.
    """
    try:
        found = found_devices(driver)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _no_gpu(f"{driver} does not say which GPUs there are: {error}") from error
    if not found:
        raise _no_gpu(f"{driver} names no GPU")
    fitting = tuple(each for each in found if foreign or target.is_device(each.device.name))
    if not fitting:
        names = ", ".join(sorted({each.device.name for each in found}))
        raise _no_gpu(f"the GPUs here are {names}, not {target.description}")
    return fitting


def found_devices(driver: Path) -> tuple[FoundDevice, ...]:
    """All GPUs that the driver program finds when it starts CUDA anew. Raises OSError, TimeoutExpired where CUDA does
    not answer, and BoltError ("no-gpu") with what the driver says where it finds none."""
    done = subprocess.run(
        [str(driver), "--devices", "--json"], capture_output=True, text=True, errors="replace", check=False,
        timeout=_DEVICES_SECONDS,
    )  # fmt: skip
    return tuple(map(_found, done.stdout.splitlines()))


def _found(line: str) -> FoundDevice:
    """What an object of JSON says of a GPU, or of why there is none. Raises BoltError."""
    try:
        data = json_object(line)
        if "error" in data:
            raise _no_gpu(text(data, "error"))
        said = get(data, "device", dict)
        sms, memory, power = (whole(said, name) for name in ("sms", "memory", "power"))
        device = Device(text(said, "name"), sms, memory, power, text(said, "driver"))
        return FoundDevice(whole(data, "index"), device, text(said, "uuid"), text(data, "line"))
    except DamagedError as error:
        raise _no_gpu(f"the driver's answer cannot be read ({error}): {line[:80]}") from error


def _no_gpu(why: str) -> BoltError:
    hint = "compile here with --export BUNDLE.tar, and run the bundle on a machine with the GPU"
    return BoltError([Diagnostic("no-gpu", f"nothing can be measured: {why}", hint=hint)], ExitCode.TOOL_MISSING)
