"""What planner and kernel families share: formats, problems, candidates, and the family protocol.

The planner is handed `Family` objects and asks; it imports none. A family is one folder under `families/` (or one
in another package, through the entry-point group `bolt_build.families`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Protocol

from bolt_build.digest import UNSAID, digest
from bolt_build.dtypes import PRECISIONS, DType
from bolt_build.graph.ir import EpilogueOp, Graph, Layout, Node, Op, TensorType
from bolt_build.targets import Target


@dataclass(frozen=True)
class TensorFormat:
    """How a tensor is stored: element type and order of axes."""

    dtype: DType
    layout: Layout

    def __str__(self) -> str:
        return f"{self.dtype.value}/{self.layout.value}"


def same_bytes(shape: tuple[int, ...], a: TensorFormat, b: TensorFormat) -> bool:
    """True where a tensor of `shape` has the same bytes in both formats (NHWC of a 1x1 image is its NCHW)."""
    if a.dtype != b.dtype:
        return False
    spatial_is_one = all(extent == 1 for extent in shape[2:])
    return a.layout == b.layout or len(shape) < 3 or shape[1] == 1 or spatial_is_one


def memory_axes(rank: int, layout: Layout) -> tuple[int, ...]:
    """Logical axes in the order of memory, outermost first."""
    if layout is Layout.CHANNELS_LAST and rank >= 3:
        return (0, *range(2, rank), 1)
    return tuple(range(rank))


PART_ALIGNMENT = 16
"""Bytes: where a tensor that lies within another one must begin, for kernels load and store as many at once."""


@dataclass(frozen=True)
class Operand:
    """One tensor of a problem: logical shape, format, and whether its values are known when the engine loads."""

    shape: tuple[int, ...]
    format: TensorFormat
    constant: bool = False

    @property
    def type(self) -> TensorType:
        return TensorType(self.format.dtype, self.shape)

    @property
    def nbytes(self) -> int:
        return self.type.nbytes

    @property
    def row(self) -> int:
        """Elements of a run along the innermost axis in memory; 1 of a scalar."""
        return self.shape[memory_axes(len(self.shape), self.format.layout)[-1]] if self.shape else 1

    def reach(self, pitch: int) -> int:
        """Bytes from the first element to behind the last where rows lie `pitch` elements apart (0: dense)."""
        if not pitch or not self.nbytes:
            return self.nbytes
        return (
            self.type.elements // self.row - 1
        ) * pitch * self.format.dtype.nbytes + self.row * self.format.dtype.nbytes

    def pieces(self, axis: int) -> int:
        """Into how many pieces of memory a range of indices along the logical `axis` falls: 1 where only extents of 1
        lie outside of it."""
        order = memory_axes(len(self.shape), self.format.layout)
        return prod(self.shape[outer] for outer in order[: order.index(axis)])


@dataclass(frozen=True)
class Call:
    """One operator of a problem with its own inputs of it, by index; what the operator in front leaves comes before
    them. The operands of `stages` behind it are among them."""

    op: Op
    inputs: tuple[int, ...]
    stages: tuple[EpilogueOp, ...]


@dataclass(frozen=True)
class KernelProblem:
    """A kernel to find: equal layers have equal problems, so there is no layer name here.

    `inputs` are the op's inputs followed by the epilogue's operands, in the node's order. Constants are stored
    row-major, whatever the layout of the rest. `accumulate` is the type that sums are kept in.

    `padding` is what the recipe leaves kernels of the channels that they read, where these are no whole loads: None, as
    they please; 0, they copy them into no padded ones; otherwise they load so many elements at once, or more.
    """

    op: Op
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    epilogue: tuple[EpilogueOp, ...]
    accumulate: DType
    target: str
    padding: int | None = field(default=None, metadata=UNSAID)

    @cached_property
    def digest(self) -> str:
        return digest(self)

    @cached_property
    def calls(self) -> tuple[Call, ...]:
        """The operators that it computes, one behind the other: of most problems one, which reads all inputs."""
        found, left = list[Call](), tuple(range(len(self.inputs)))
        for member in self.op.sequence:
            stages = self.epilogue if member.own is None else member.between
            found.append(Call(member.op, left[: member.own], stages))
            left = left[len(found[-1].inputs) :]
        return tuple(found)

    @property
    def nbytes(self) -> int:
        """Bytes that must move at least once: without what lies between windows that are further apart than large."""
        return sum(o.nbytes for o in (*self.inputs, *self.outputs)) - self.unread

    @cached_property
    def unread(self) -> int:
        """Bytes of the operator's first input that it does not read."""
        if not self.inputs:
            return 0
        return self.op.unread(self._own) * self.inputs[0].format.dtype.nbytes

    @property
    def flops(self) -> int:
        return self.op.flops(self._own, [o.type for o in self.outputs])

    @cached_property
    def _own(self) -> list[TensorType]:
        """What the operator reads itself: some count what they are given."""
        behind = {stage.operand for stage in self.epilogue}
        return [operand.type for index, operand in enumerate(self.inputs) if index not in behind]


_PRECISION_OF = {dtype: name for name, dtype in PRECISIONS.items()}


def rate(problem: KernelProblem, target: Target) -> float:
    """Operations/s at the target's peak for the type that the problem's results are stored in.

    Types that the target states no rate for count as fp32.
    """
    rates = dict(target.flops)
    return rates.get(_PRECISION_OF.get(problem.outputs[0].format.dtype, ""), rates[_PRECISION_OF[DType.F32]])


def bound(problem: KernelProblem, target: Target) -> float:
    """Seconds that no kernel for `problem` stays below: what its bytes take at the target's bandwidth, its operations
    at the peak rate, or one launch, whichever is longest. Factors in half precision are multiplied at its rate,
    whatever results are stored in."""
    peak = rate(problem, target)
    if problem.op.factors and problem.inputs[0].format.dtype in (DType.F16, DType.BF16):
        peak = max(peak, dict(target.flops).get(_PRECISION_OF[problem.inputs[0].format.dtype], peak))
    return max(problem.nbytes / target.bandwidth, problem.flops / peak, target.launch_seconds)


@dataclass(frozen=True)
class Candidate:
    """One way of a family to solve a problem.

    `parameters` are what its kernel is compiled with; `settings` are arguments of the compiled kernel (swizzle, slices
    of split-K), so that candidates which differ in them alone share one object. Together they say all that emission
    needs beside the problem and the target: nothing is left to a prediction.
    """

    family: str
    parameters: tuple[tuple[str, int | str], ...] = ()
    settings: tuple[tuple[str, int | str], ...] = ()

    @cached_property
    def digest(self) -> str:
        return digest(self)

    @property
    def compiled(self) -> Candidate:
        """The kernel without settings: what is compiled."""
        return Candidate(self.family, self.parameters)

    def __str__(self) -> str:
        return " ".join((self.family, *(f"{name}={value}" for name, value in (*self.parameters, *self.settings))))


@dataclass(frozen=True)
class Refusal:
    """Why a family does not do something: kept for `plan` and messages, never dropped."""

    family: str
    what: str
    reason: str


@dataclass(frozen=True)
class Expense:
    """What a family's kernels move (bytes) and compute (operations) for a problem, what they pad included.

    `why` says in a few words what makes it more than the problem's own `nbytes` and `flops`; empty where it is not.
    `copied` are the bytes of a copy of input 0 in another form, `copied_as`, that the step makes before it computes; 0
    where it makes none.
    """

    nbytes: int
    flops: int
    why: str = ""
    copied: int = 0
    copied_as: str = ""


@dataclass(frozen=True)
class ProposedStep:
    """One kernel call of an alternative: the problem, and the graph's values it reads and writes.

    `may_share` lists (input, output) index pairs whose memory may be one buffer when the input dies here. `view` marks
    a step that does nothing but give the input's bytes another shape: output 0 is input 0, from byte `offset` of it on.
    `pitched` are the outputs whose rows (runs along the innermost axis in memory) its kernels can store further apart
    than they are long, by a multiple of PART_ALIGNMENT; `reads_apart` are the inputs that they can read so.
    """

    problem: KernelProblem
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    may_share: tuple[tuple[int, int], ...] = ()
    view: bool = False
    offset: int = 0
    pitched: tuple[int, ...] = ()
    reads_apart: tuple[int, ...] = ()


@dataclass(frozen=True)
class Alternative:
    """A way to compute a region of the graph: the nodes it replaces, and the kernel calls that do it instead.

    Formats it consumes and produces are those of its steps' operands. `seconds` is what it is predicted (later:
    measured) to take, conversions at its border not counted. `apart`: where one kernel computes several nodes that
    follow each other, the problems of kernels that do so one by one; the recipe says whether that is wanted.
    """

    region: tuple[str, ...]
    family: str
    steps: tuple[ProposedStep, ...]
    seconds: float
    apart: tuple[KernelProblem, ...] = ()


@dataclass(frozen=True)
class StepExpressions:
    """C++ expressions that an emitted call may use: pointers to each input and output, in the problem's order.

    For a constant input `inputs[i]` is a `const void*` valid at run time, and `prepare_inputs[i]` the same while the
    model is created (None where the input is not constant). Non-constant inputs are `const void*`, outputs `void*`.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    prepare_inputs: tuple[str | None, ...]
    pitches: tuple[int, ...] = ()
    input_pitches: tuple[int, ...] = ()

    def pitch(self, output: int) -> int:
        """Elements from a row of the output to the next, 0 where it is dense."""
        return self.pitches[output] if self.pitches else 0

    def input_pitch(self, index: int) -> int:
        """The same of an input."""
        return self.input_pitches[index] if self.input_pitches else 0


@dataclass(frozen=True)
class StepCode:
    """C++ for one step of a plan.

    `member_type` is a class whose constructor takes `(const bolt::Prepare& p, <member_arguments>)` and that has
    `size_t scratch_bytes() const`; the generated plan holds one as `kernel`, built when the model is created.
    None for a kernel without prepared state. `call` is one statement that runs the kernel, with `r` the
    `const bolt::Run&` and `kernel` that object. `includes` are paths under `Family.include_dir`.

    A kernel with a member reads its constants when it is made, but for input 0, which its call reads; one without
    reads all of them in its call. The others need not outlive the model's creation.

    `counts`: it reads `bolt::Run::counters`, which a context has where a step does.
    """

    includes: tuple[str, ...]
    member_type: str | None
    member_arguments: str
    call: str
    counts: bool = False


@dataclass(frozen=True)
class KernelUnit:
    """Source of kernels that is compiled by itself, once for all plans and recipes that need it.

    `name` is a file name, equal only for equal text. `text` includes headers of families and of the target's tools
    alone, and defines what the families' headers declare. `memory_mb` is what compiling it takes at its peak. `label`
    is what people call it; equal names have equal ones.
    """

    name: str
    text: str
    memory_mb: int = 900
    label: str = ""


class Family(Protocol):
    """A kernel family. Pure: same questions, same answers; no family knows the graph beyond the region asked for."""

    @property
    def name(self) -> str: ...

    @property
    def include_dir(self) -> Path:
        """Directory of the C++ headers that its emitted code includes."""
        ...

    @property
    def sources(self) -> tuple[Path, ...]:
        """Hand-written C++ that every engine using the family contains, sorted: no two of one name.

        Compiled with the runtime's include directory, `include_dir`, and those of the target's tools; what they include
        beside that lies in their own folders.
        """
        ...

    def propose(
        self, graph: Graph, node: Node, target: Target, precision: DType
    ) -> tuple[tuple[Alternative, ...], tuple[Refusal, ...]]:
        """Alternatives whose region starts at `node`, for storage in `precision`; and why there are no others."""
        ...

    def propose_conversion(
        self, shape: tuple[int, ...], source: TensorFormat, to: TensorFormat, target: Target
    ) -> tuple[KernelProblem, float] | None:
        """The problem that rewrites a tensor from one format to another, and its predicted seconds."""
        ...

    def candidates(self, problem: KernelProblem, target: Target) -> tuple[tuple[Candidate, ...], tuple[Refusal, ...]]:
        """Legal candidates in the order of predicted speed, and the rejected with their reasons."""
        ...

    def variants(self, problem: KernelProblem, candidate: Candidate, target: Target) -> tuple[Candidate, ...]:
        """Candidates that differ from this one in their settings alone and are worth a measurement where it leads."""
        ...

    def predict(self, problem: KernelProblem, candidate: Candidate, target: Target) -> float:
        """Predicted seconds of one of `candidates` or `variants`."""
        ...

    def expense(self, problem: KernelProblem, candidate: Candidate | None = None) -> Expense:
        """What the family moves and computes for a problem that it has candidates for: with `candidate`, or with any
        that pads where some do and some do not."""
        ...

    def refuse(self, problem: KernelProblem, candidate: Candidate, target: Target) -> str | None:
        """Why a candidate of this family, from a lock say, is none for the problem, settings included; None where it
        is one. Predictions have no part in it: what was measured stays legal when they change."""
        ...

    def emit(self, problem: KernelProblem, candidate: Candidate, target: Target, at: StepExpressions) -> StepCode:
        """The C++ of one step: what the problem, the candidate and the target's row say, nothing predicted.

        Raises ValueError where the candidate does not state all that it takes."""
        ...

    def units(self, steps: Sequence[tuple[KernelProblem, Candidate]], target: Target) -> tuple[KernelUnit, ...]:
        """The units that the code of these steps, all of this family, needs beside the plans: each once, by name.
        Settings make no difference."""
        ...


class AddedFamily(Family, Protocol):
    """A family of another package."""

    @property
    def joins(self) -> tuple[str, ...]:
        """Names of targets whose rows do not name the family, and that it works for nevertheless."""
        ...
