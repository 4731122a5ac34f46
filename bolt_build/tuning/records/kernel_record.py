"""A measurement as it is kept: every candidate's, with its status, on a known device with a known toolchain."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from bolt_build.digest import UNSAID
from bolt_build.families.base import Candidate

RECORD_VERSION = 1


class Status(Enum):
    """What became of a candidate. Only OK has a time that counts."""

    OK = "ok"
    NOT_COMPILED = "not-compiled"
    REFUSED = "refused"
    """The kernel would not take the problem when it was prepared or launched."""
    WRONG = "wrong"
    """Its result differs from the reference."""
    OUT_OF_BOUNDS = "out-of-bounds"
    """It wrote beside its buffers, or into an input."""
    CRASHED = "crashed"
    TIMED_OUT = "timed-out"
    OUT_OF_MEMORY = "out-of-memory"


@dataclass(frozen=True)
class Statistics:
    """Microseconds of one launch, over `repeats` replays of a graph of `launches` launches each."""

    median: float
    least: float
    greatest: float
    spread: float
    """Half the distance between the quartiles, as a part of the median."""
    repeats: int
    launches: int


@dataclass(frozen=True)
class Record:
    """`problem` is the problem's digest. `error` is the largest departure from the reference as a part of what is
    allowed, None where there is no reference (`message` then says why). `gpu` is the name (UUID) of the one that
    measured, "" where none did or it is not known."""

    problem: str
    candidate: Candidate
    status: Status
    message: str = ""
    statistics: Statistics | None = None
    error: float | None = None
    gpu: str = field(default="", metadata=UNSAID)
