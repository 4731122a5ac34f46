"""Why an engine is as it is, as data: of every step the problem, the kernel and what it was chosen over, the time and
what the hardware would allow. `explainer.py` finds it out, `explain.py` shows it.

Times are microseconds. A bound is what the problem's own bytes and operations take at the target's rates; its share of
the time that a step takes is never over 1 on a machine whose rates are right.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bolt_build.digest import UNSAID
from bolt_build.planner.engine_plan import Decision, SlowSteps
from bolt_build.report.explained.chains import Chains
from bolt_build.report.explained.changes import Change
from bolt_build.report.explained.whole_engine import WholeEngine
from bolt_build.report.reasons import Counted
from bolt_build.sizes import Dims

EXPLANATION_VERSION = 2
NOT_MEASURED = "not measured"
ELSEWHERE = "not known here"
"""A lock says that it was measured, or others of its problem, and the records are elsewhere."""


@dataclass(frozen=True)
class Attempt:
    """A candidate not chosen. `status` is a record's, NOT_MEASURED or ELSEWHERE; `measured` where it is "ok"."""

    kernel: str
    predicted: float | None
    measured: float | None
    status: str
    message: str


@dataclass(frozen=True)
class Untried:
    """A candidate, or candidates, that `family` has but that were not to be measured."""

    family: str
    kernel: str
    reason: str


@dataclass(frozen=True)
class RunnerUp:
    """The fastest other kernel. `margin` is how much longer it takes, as a part of the chosen one's time; below 0 where
    a near-tie was decided for the simpler kernel."""

    kernel: str
    time: float
    measured: bool
    margin: float


@dataclass(frozen=True)
class Roofline:
    """`bound` is the longer of what the problem's bytes take at `bandwidth` (bytes/s) and what its operations take at
    `rate` (operations/s); `by` says which. `share` is the bound's part of the step's time."""

    nbytes: int
    flops: int
    bandwidth: float
    rate: float
    memory: float
    arithmetic: float
    bound: float
    by: str
    share: float


@dataclass(frozen=True)
class Padding:
    """What the kernel moves and computes beyond the problem's own, what that takes at the target's rates, and why.

    `without` is the fastest kernel that pads nothing, where there is one: its margin is what padding gains. It was
    measured where the chosen one was, otherwise both are predicted.
    """

    nbytes: int
    flops: int
    time: float
    why: str
    without: RunnerUp | None = None


@dataclass(frozen=True)
class Layer:
    """One step of a plan. `kernel` is "view" for a step that computes nothing, which has neither time nor roofline.

    `headers` are the C++ of its kernel, under the family's `include`.
    `source` is where the choice came from: "prediction", "records" or a lock's name. `words` and `problem` say what is
    computed. `attempts` are the other candidates, fastest first: `timed` of them have a time, `failed` counts those
    that failed by what became of them, and `untimed` are the rest. `untried` are others, which `refused` counts by
    reason. `locked` is how many a lock says were measured, None where no lock has the problem.
    `after_conversions` are steps that only rewrite what this one reads.
    """

    step: int
    name: str
    nodes: tuple[str, ...]
    words: str
    problem: str
    digest: str
    kernel: str
    headers: tuple[str, ...]
    source: str
    predicted: float | None
    measured: float | None
    runner_up: RunnerUp | None
    attempts: tuple[Attempt, ...]
    failed: tuple[Counted, ...]
    timed: int
    untimed: int
    locked: int | None
    untried: tuple[Untried, ...]
    refused: tuple[Counted, ...]
    roofline: Roofline | None
    padding: Padding | None
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    is_conversion: bool
    after_conversions: tuple[int, ...]
    decisions: tuple[Decision, ...]

    @property
    def time(self) -> float:
        """Measured where it was, otherwise predicted; 0 for a view."""
        return self.measured if self.measured is not None else self.predicted or 0.0


@dataclass(frozen=True)
class Totals:
    """Of one batch: the sum of the steps' times (`measured` and `predicted` say of how many), the sum of their bounds,
    and what of the time conversions, and what of it padding, take."""

    time: float
    measured: int
    predicted: int
    bound: float
    conversions: int
    conversion_time: float
    padded: int
    padding_time: float


@dataclass(frozen=True)
class Batch:
    """`changes` are the changes of layout and element type that are left in it, `chains` what became of products and
    poolings that follow each other, `engine` what the whole of it was measured to take (None where it was not).
    `slow`, in seconds, are steps whose kernels leave most of the hardware unused."""

    batch: int
    layers: tuple[Layer, ...]
    totals: Totals
    changes: tuple[Change, ...] = ()
    chains: Chains | None = None
    engine: WholeEngine | None = None
    slow: tuple[SlowSteps, ...] = ()
    dims: Dims = field(default=(), metadata=UNSAID)


@dataclass(frozen=True)
class Explanation:
    """`source` names what kernels were chosen from: "predictions", "records" or a lock. `fusion` are the decisions that
    made one node of several, or declined to; `refusals` are counted reasons for what families did not offer."""

    version: int
    name: str
    target: str
    precision: str
    source: str
    batches: tuple[Batch, ...]
    fusion: tuple[Decision, ...]
    refusals: tuple[Counted, ...]
