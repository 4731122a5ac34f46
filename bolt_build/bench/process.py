"""The process of one contestant: `python -m bolt_build.bench.process SETUP.json`.

It gets ready, says so, and then does what it is told, one line of JSON each way: "round" answers with a `Round`,
"finish" with the names of the outputs, whose arrays lie in the file named by the command. The end of its input ends it.
What libraries print goes to standard error, so that standard output carries answers alone.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from bolt_build.bench.contestant import Contestant, PeerFailed, PeerMissing, Setup
from bolt_build.bench.device import Device
from bolt_build.bench.device.opening import open_device
from bolt_build.bench.peers import all_peers
from bolt_build.bench.rounds import measure_round, warm_up
from bolt_build.digest import decode, encode
from bolt_build.errors import BoltError

_DIE_WITH_PARENT = 1


@dataclass(frozen=True)
class Ready:
    """What is known once a contestant has run. `memory_bytes`: what loading and running it took of the device's memory
    (of the process's on a CPU), the device's context and the imported packages not counted."""

    library: str
    device: str
    no_energy: str | None
    precision: str
    form: str
    setup_seconds: float
    compile_seconds: float | None
    memory_bytes: int


@dataclass(frozen=True)
class NotReady:
    """Why a contestant does not take part. `hint` is how to mend it where a package is `missing`."""

    reason: str
    missing: bool = False
    hint: str = ""


def main(setup_file: str) -> None:
    """Serves one contestant until its input ends."""
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, int(signal.SIGKILL))
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    setup = decode(Setup, json.loads(Path(setup_file).read_text(encoding="utf-8")))
    try:
        _serve(setup, answers)
    except PeerMissing as missing:
        _answer(answers, NotReady(missing.message, missing=True, hint=missing.hint))
    except PeerFailed as failed:
        _answer(answers, NotReady(str(failed)))
    except BoltError as failed:
        _answer(answers, NotReady("; ".join(diagnostic.message for diagnostic in failed.diagnostics)))
    except Exception as error:  # a peer is another's code: whatever it raises is its result
        traceback.print_exc()
        first = str(error).strip().splitlines()
        _answer(answers, NotReady(f"{type(error).__name__}: {first[0][:300]}" if first else type(error).__name__))


def _serve(setup: Setup, answers: IO[str]) -> None:
    peer = all_peers()[setup.contestant]
    library = peer.version(setup.where)
    device = open_device(setup.where)
    begun, before = time.monotonic(), device.held_bytes()
    contestant = peer.enter(setup, _feeds(setup), device)
    warm_up(contestant, device, setup.effort)
    contestant.settle()
    contestant.run()
    device.wait()
    ready = Ready(
        library, device.name, device.no_energy, contestant.precision, contestant.form, time.monotonic() - begun,
        contestant.compile_seconds, device.held_bytes() - before,
    )  # fmt: skip
    _answer(answers, ready)
    _take_turns(contestant, device, setup, answers)


def _take_turns(contestant: Contestant, device: Device, setup: Setup, answers: IO[str]) -> None:
    for line in sys.stdin:
        command, _, argument = line.rstrip("\n").partition(" ")
        if command == "round":
            _answer(answers, measure_round(contestant, device, setup.effort))
        else:
            device.wait()
            outputs = contestant.outputs()
            np.savez(argument, *outputs.values())
            _answer(answers, list(outputs))


def _feeds(setup: Setup) -> dict[str, np.ndarray[Any, Any]]:
    with np.load(setup.inputs) as arrays:
        return {name: arrays[f"arr_{index}"] for index, name in enumerate(setup.input_names)}


def _answer(answers: IO[str], value: object) -> None:
    answers.write(json.dumps(encode(value)) + "\n")
    answers.flush()


if __name__ == "__main__":
    main(sys.argv[1])
