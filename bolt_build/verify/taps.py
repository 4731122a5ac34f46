"""Which tensors of a plan can be compared, how deep each lies, and in what it was stored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bolt_build.dtypes import DType
from bolt_build.graph.ops.chain import Chain
from bolt_build.graph.ops.shape import Cast, Convert
from bolt_build.planner.engine_plan import BatchPlan, Step
from bolt_build.verify.tolerance import coarser

GROUP_BYTES = 1536 << 20
"""Reference tensors held at a time. Every further group is a further run of the reference: ResNet-50's batch of 32,
with 1.4 GB, is one group."""


@dataclass(frozen=True)
class Tap:
    """One ONNX tensor that step `step` leaves behind.

    `sources` are the nearest observable tensors that it is made from, `depth` the number of computing steps on the
    longest way from an input, `coarsest` the coarsest element type that anything on the way was stored in.
    """

    step: int
    name: str
    tensor: str
    kernel: str
    shape: tuple[int, ...]
    sources: tuple[str, ...]
    depth: int
    coarsest: DType
    view: bool

    @property
    def nbytes(self) -> int:
        """Bytes of the reference's fp32 tensor."""
        count = 4
        for extent in self.shape:
            count *= extent
        return count


@dataclass(frozen=True)
class _Origin:
    """What is known of a value of the plan: see `Tap`."""

    sources: tuple[str, ...]
    depth: int
    coarsest: DType


def taps_of(plan: BatchPlan) -> tuple[Tap, ...]:
    """Every comparable tensor, in execution order; one that is converted to another format is there twice."""
    origins: dict[str, _Origin] = {}
    taps: list[Tap] = []
    for step in plan.steps:
        origin = _origin(step, origins)
        for output in step.outputs:
            tensor = output.onnx
            if tensor is not None:
                taps.append(
                    Tap(
                        step.index, step.name, tensor, kernel_of(step), output.operand.shape,
                        origin.sources, origin.depth, origin.coarsest, step.view,
                    )
                )  # fmt: skip
            sources = origin.sources if tensor is None else (tensor,)
            origins[output.value] = _Origin(sources, origin.depth, origin.coarsest)
    return tuple(taps)


def kernel_of(step: Step) -> str:
    """Family and parameters, for people."""
    values = ", ".join(f"{key}={value}" for key, value in step.candidate.parameters)
    return f"{step.candidate.family}({values})" if values else step.candidate.family


def groups(taps: tuple[Tap, ...]) -> Iterator[tuple[Tap, ...]]:
    """The taps in order, cut where a group's reference tensors would exceed `GROUP_BYTES`."""
    group: list[Tap] = []
    held = 0
    for tap in taps:
        if group and held + tap.nbytes > GROUP_BYTES:
            yield tuple(group)
            group, held = [], 0
        group.append(tap)
        held += tap.nbytes
    if group:
        yield tuple(group)


def _origin(step: Step, origins: dict[str, _Origin]) -> _Origin:
    sources: dict[str, None] = {}
    depth = 0
    coarsest = DType.F64
    for tensor in (*step.inputs, *step.outputs):
        coarsest = coarser(coarsest, tensor.operand.format.dtype)
    if isinstance(step.problem.op, Cast):  # the reference rounds there, even where the engine computes in a finer type
        coarsest = coarser(coarsest, step.problem.op.to)
    for tensor in step.inputs:
        known = origins.get(tensor.value)
        if known is not None:
            sources.update(dict.fromkeys(known.sources))
            depth = max(depth, known.depth)
            coarsest = coarser(coarsest, known.coarsest)
    return _Origin(tuple(sources), depth + _computes(step), coarsest)


def _computes(step: Step) -> int:
    """How many times the step rounds what it computes: two nodes in one kernel count as they do apart."""
    if step.view or isinstance(step.problem.op, Convert):
        return 0
    return 2 if isinstance(step.problem.op, Chain) else 1
