"""The engine plan: what `resolve` and the memory planner decided, and all that emission reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from bolt_build.digest import UNSAID, digest
from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem, Operand, Refusal
from bolt_build.sizes import Dims, Sizes, sizes_of

PLAN_VERSION = 1


@dataclass(frozen=True)
class Location:
    """Where a tensor lives: "arena" (offset in bytes), or "input", "output", "weight" (index in the table).

    `offset` counts the bytes from the beginning of an input or output to the tensor; in the arena `at` says it all.
    """

    kind: str
    at: int
    offset: int = 0


@dataclass(frozen=True)
class Parts:
    """Parts of a tensor that steps of a span go over: each begins `nbytes` behind the one before it.

    `held`: a part lies at this byte of the slab instead, for nothing but the span touches the tensor; None of others.
    """

    nbytes: int
    held: int | None = None


@dataclass(frozen=True)
class MicroBatchSpan:
    """Steps `first` to `last` run for one of `parts` micro-batches, all of them, before the next one."""

    first: int
    last: int
    parts: int


@dataclass(frozen=True)
class StepTensor:
    """One tensor of a step: the graph's value, its shape and format, and where it lives.

    `onnx` is the ONNX tensor whose values it holds once the step has run, None for a synthetic one. `pitch` counts the
    elements from one row (run along the innermost axis in memory) to the next where they lie apart, otherwise it is 0.
    `parts` says where the span that the step is of has its parts.
    """

    value: str
    operand: Operand
    location: Location
    onnx: str | None
    pitch: int = 0
    parts: Parts | None = field(default=None, metadata=UNSAID)

    @property
    def reach(self) -> int:
        """Bytes from its first element to behind its last."""
        return self.operand.reach(self.pitch)


@dataclass(frozen=True)
class Step:
    """One kernel call, in execution order. `after` are indices of the steps that must have finished before.

    A `view` does nothing: its output's bytes are already there, because it is its input or a part of it, or because
    the inputs lie one behind the other where the output lies.
    """

    index: int
    name: str
    covers: tuple[str, ...]
    problem: KernelProblem
    candidate: Candidate
    inputs: tuple[StepTensor, ...]
    outputs: tuple[StepTensor, ...]
    after: tuple[int, ...]
    view: bool = False


@dataclass(frozen=True)
class Port:
    """An input or output of the engine, as the caller sees it."""

    name: str
    operand: Operand


@dataclass(frozen=True)
class BatchPlan:
    """The steps for one batch and, where dimensions have several extents, one of each (`dims`). `live_peak` is the
    largest sum of bytes of arena buffers alive at one step. `slab_bytes` is what a part of a span holds beside it."""

    batch: int
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    steps: tuple[Step, ...]
    arena_bytes: int
    live_peak: int
    dims: Dims = field(default=(), metadata=UNSAID)
    micro_batches: tuple[MicroBatchSpan, ...] = field(default=(), metadata=UNSAID)
    slab_bytes: int = field(default=0, metadata=UNSAID)

    @property
    def sizes(self) -> Sizes:
        """What it is for, of all that the engine has plans for."""
        return Sizes(self.batch, self.dims)

    def parts(self, index: int) -> int:
        """Of how many parts of the batch the step computes one at a time; 1 outside of micro-batched spans."""
        return next((span.parts for span in self.micro_batches if span.first <= index <= span.last), 1)


@dataclass(frozen=True)
class WeightSlot:
    """One tensor of the weights file: row-major at `offset` (aligned to 64) behind the header."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    offset: int
    nbytes: int


@dataclass(frozen=True)
class Decision:
    """Something the planner did or declined, for people: which stage, about what, and why."""

    stage: str
    subject: str
    action: str
    reason: str


@dataclass(frozen=True)
class SlowSteps:
    """Steps of one batch whose kernel leaves most of the hardware unused, and that matter together.

    All have one `kernel` and were refused others for the same `reasons` (empty where no other family was refused).
    `share` is their part of the batch's time; `seconds` is what they take, `measured` or predicted, and `bound` the
    least that the target's bandwidth, peak rate and launches allow them (`families.base.bound`).
    """

    batch: int
    steps: tuple[str, ...]
    kernel: str
    reasons: tuple[str, ...]
    share: float
    seconds: float
    bound: float
    measured: bool
    dims: Dims = field(default=(), metadata=UNSAID)

    def __str__(self) -> str:
        named = ", ".join(self.steps[:3]) + (f" and {len(self.steps) - 3} more" if len(self.steps) > 3 else "")
        takes = "take" if len(self.steps) > 1 else "takes"
        how = "measured" if self.measured else "predicted"
        reached = f"at {self.bound / self.seconds:.1%} of what the hardware allows ({how})"
        why = "; ".join(self.reasons) or "no other kernel is offered"
        what = f"slow: {sizes_of(self)}: {named} {takes} {self.share:.0%} of the time {reached}"
        return f"{what}: {self.kernel}, for {why}"


@dataclass(frozen=True)
class PaddedDim:
    """The batch, or a dimension with several extents, and whether inputs may have less of it than a plan has: they are
    padded with zeros then, and outputs cut back. `axes` are those of each input and output that has it, by name;
    `refused` says why it is not padded, in a sentence without its end. `counted` is how many nodes are told what there
    is of it."""

    name: str
    axes: tuple[tuple[str, tuple[int, ...]], ...]
    refused: str = ""
    counted: int = field(default=0, metadata=UNSAID)


@dataclass(frozen=True)
class EnginePlan:
    """Everything that emission needs for one target: one table of weights, one plan a batch.

    `structure` is the digest of the optimised graphs without the values of their constants: with the table of weights
    it forms the layout digest that ties a weights file to an engine.
    """

    version: int
    name: str
    target: str
    precision: str
    structure: str
    weights: tuple[WeightSlot, ...]
    plans: tuple[BatchPlan, ...]
    decisions: tuple[Decision, ...]
    refusals: tuple[Refusal, ...]
    slow: tuple[SlowSteps, ...] = ()
    padded: tuple[PaddedDim, ...] = field(default=(), metadata=UNSAID)
    """The batch and each dimension with several extents; nothing where there is one plan."""

    @cached_property
    def layout_digest(self) -> str:
        """SHA-256 in hex that a weights file must carry to be taken by this engine."""
        return digest({"structure": self.structure, "weights": list(self.weights)})
