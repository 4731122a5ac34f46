"""Where an engine's kernels come from, in a form that is read without loading the planner."""

from __future__ import annotations

from dataclasses import dataclass, field

from bolt_build.digest import UNSAID
from bolt_build.sizes import Dims


@dataclass(frozen=True)
class UsedProblem:
    """A problem (its digest) of an engine's steps, in one line (`what`), and where it occurs ("batch 32: conv1").

    `measured` says that its kernel is a selection's winner, not the best predicted."""

    problem: str
    what: str
    occurs: tuple[str, ...]
    measured: bool

    @property
    def place(self) -> str:
        """Where it occurs, in short."""
        more = len(self.occurs) - 1
        return self.occurs[0] + (f" and {more} more" if more else "")


@dataclass(frozen=True)
class Declined:
    """What a selection says of the whole plan of a batch, or lacks, and that planning did not follow: `what` is "cover"
    or "engine" (its choice of kernels), `reason` says why not."""

    what: str
    batch: int
    reason: str
    dims: Dims = field(default=(), metadata=UNSAID)


@dataclass(frozen=True)
class KernelSource:
    """`source` is "lock" or "predictions". Of a lock: its file's name, the GPUs that it was measured on, whether the
    toolchain has changed since, and how many problems it lacks, so that their kernels are predicted all the same."""

    source: str
    lock: str = ""
    gpu: str = ""
    stale: bool = False
    predicted: int = 0
