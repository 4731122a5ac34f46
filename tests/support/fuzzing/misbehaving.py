"""A kind of inputs whose cases violate each in a way of its own, for the tests of the workers."""

from __future__ import annotations

import os
import time
from pathlib import Path
from random import Random

from fuzzing.case import Case, Violation

LONG, SHORT = 0, 0


def case(random: Random) -> Case:
    return Case(random.choice(("good", "says so", "raises", "ends the process", "waits", "computes", "takes memory")))


def check(case: Case, folder: Path) -> str:
    if case.about == "says so":
        raise Violation("this must not be")
    if case.about == "raises":
        raise KeyError("lost")
    if case.about == "ends the process":
        os.kill(os.getpid(), 9)
    if case.about == "waits":
        time.sleep(1000)
    while case.about == "computes":
        pass
    if case.about == "takes memory":
        return f"{len(b'x' * 300_000_000)} bytes"
    return "good"
