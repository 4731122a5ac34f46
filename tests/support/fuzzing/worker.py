"""A process that runs cases for a supervisor: `python -m fuzzing.worker FOLDER`.

It reads lines of JSON, each a kind, a seed, the first case, how many, and limits; it writes one line before each case,
and one after it. Address space and the sizes of files are limited; memory and time are measured case by case.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import time
import traceback
from pathlib import Path
from typing import TextIO

import fuzz

from fuzzing.case import Kind, Limits, Violation, random_of

ADDRESSES = 3 * 10**9
"""Bytes of address space by which a worker may grow: what asks for more gets none, and the machine stays well."""

FILE_SIZE = 2 * 2**30


def main() -> None:
    """Serves the supervisor until it closes the pipe."""
    home = Path(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever is written past sys.stdout must not get among the answers
    prepared: set[str] = set()
    for line in sys.stdin:
        order = json.loads(line)
        kind = fuzz.kind(order["kind"])
        if order["kind"] not in prepared:
            prepared.add(order["kind"])
            _prepare(kind, home / f"prepared-{order['kind']}")
        limits = Limits(**order["limits"])
        for number in range(order["first"], order["first"] + order["count"]):
            _answer(answers, {"begun": number})
            _answer(answers, run_one(order["kind"], kind, order["seed"], number, home, limits))
        _answer(answers, {"done": True})


def run_one(name: str, kind: Kind, seed: int, number: int, home: Path, limits: Limits) -> dict[str, object]:
    """Makes and checks one case; a violating one's folder stays, as `kept`."""
    folder = home / f"{name}-{seed}-{number}"
    folder.mkdir()
    about, outcome, violation = "", "", None
    with open("/proc/self/clear_refs", "w") as stream:
        stream.write("5")  # the peak of memory begins anew
    begun = _cpu()
    try:
        case = kind.case(random_of(name, seed, number))
        about = case.about
        os.chdir(folder)
        begun = _cpu()
        outcome = kind.check(case, folder)
    except Violation as error:
        violation = str(error)
    except Exception:
        violation = traceback.format_exc()[-3000:]
    seconds, peak = _cpu() - begun, _peak()
    os.chdir(home)
    if violation is None and seconds > limits.cpu:
        violation = f"takes {seconds:.1f} s"
    if violation is None and peak > limits.memory:
        violation = f"takes {peak / 1e6:.0f} MB"
    if violation is None:
        shutil.rmtree(folder)
    return {
        "number": number, "about": about, "outcome": outcome, "violation": violation, "seconds": seconds,
        "peak": peak, "kept": None if violation is None else str(folder),
    }  # fmt: skip


def _prepare(kind: Kind, folder: Path) -> None:
    """What the kind makes once; from then on the process's growth is limited."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    prepare = getattr(kind, "prepare", None)
    if prepare is not None:
        folder.mkdir()
        prepare(folder)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ADDRESSES, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_SIZE, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def _answer(stream: TextIO, data: dict[str, object]) -> None:
    print(json.dumps(data), file=stream, flush=True)


def _cpu() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _peak() -> int:
    """The most memory this process had since the peak began anew, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status names no peak")


if __name__ == "__main__":
    main()
