"""Which tensors of a plan can be compared, what each is made from, how deep it lies, and in what it was stored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bolt_build.dtypes import DType
from bolt_build.graph.ops.attention.attention import Attention
from bolt_build.graph.ops.attention.channel_attention import ChannelAttention
from bolt_build.graph.ops.moves.shape import Cast, Convert
from bolt_build.planner.engine_plan import BatchPlan, Step
from bolt_build.verify.tolerance import coarser

GROUP_BYTES = 384 << 20
"""Tensors compared at a time: the engine's, the reference's and the variances of as many bytes are held together."""


@dataclass(frozen=True)
class Source:
    """An ONNX tensor that a tap is made from, as the engine holds it: the plan's value, and what it is stored in."""

    tensor: str
    value: str
    stored: DType


@dataclass(frozen=True)
class Tap:
    """One ONNX tensor that step `step` leaves behind, as the plan's value `value`, stored in `stored`.

    `sources` are the nearest observable tensors and inputs of the engine that it is made from. On the way from them
    `computed` is the coarsest element type of any operand, weights included, and `roundings` counts how often something
    is stored. `depth` is the number of computing steps on the longest way from an input, `coarsest` the coarsest
    element type that anything on that way was stored in. `covers` names the ONNX nodes that the step stands for.
    """

    step: int
    name: str
    covers: tuple[str, ...]
    tensor: str
    value: str
    kernel: str
    shape: tuple[int, ...]
    sources: tuple[Source, ...]
    stored: DType
    computed: DType
    roundings: int
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

    sources: tuple[Source, ...]
    computed: DType
    roundings: int
    depth: int
    coarsest: DType


def taps_of(plan: BatchPlan) -> tuple[Tap, ...]:
    """Every comparable tensor, in execution order; one that is converted to another format is there twice."""
    origins: dict[str, _Origin] = {}
    taps: list[Tap] = []
    for step in plan.steps:
        origin = _origin(step, origins)
        for output in step.outputs:
            tensor, stored = output.onnx, output.operand.format.dtype
            if tensor is not None:
                taps.append(
                    Tap(
                        step.index, step.name, step.covers, tensor, output.value, kernel_of(step), output.operand.shape,
                        origin.sources, stored, origin.computed, origin.roundings, origin.depth, origin.coarsest,
                        step.view,
                    )
                )  # fmt: skip
            # A view leaves nothing that an engine must show: what reads it is judged from what the view shows. But what
            # that is may have no name in the model, as behind a recurrence: then the view is the first to show it.
            if tensor is None or (step.view and not origin.roundings):
                origins[output.value] = origin
            else:
                own = (Source(tensor, output.value, stored),)
                origins[output.value] = _Origin(own, DType.F64, 0, origin.depth, origin.coarsest)
    return tuple(taps)


def kernel_of(step: Step) -> str:
    """Family and parameters, for people."""
    values = ", ".join(f"{key}={value}" for key, value in step.candidate.parameters)
    return f"{step.candidate.family}({values})" if values else step.candidate.family


def groups(taps: tuple[Tap, ...], most: int) -> Iterator[tuple[Tap, ...]]:
    """The taps in order, cut where a group's reference tensors would exceed `most` bytes."""
    group: list[Tap] = []
    held = 0
    for tap in taps:
        if group and held + tap.nbytes > most:
            yield tuple(group)
            group, held = [], 0
        group.append(tap)
        held += tap.nbytes
    if group:
        yield tuple(group)


def _origin(step: Step, origins: dict[str, _Origin]) -> _Origin:
    sources: dict[Source, None] = {}
    roundings = depth = 0
    computed = coarsest = DType.F64
    for tensor in (*step.inputs, *step.outputs):
        coarsest = coarser(coarsest, tensor.operand.format.dtype)
    # What is widened loses nothing: a conversion is as coarse as what it leaves.
    converts = isinstance(step.problem.op, Convert | Cast)
    for tensor in step.outputs if converts else (*step.inputs, *step.outputs):
        computed = coarser(computed, tensor.operand.format.dtype)
    if isinstance(step.problem.op, Cast):  # the reference rounds there, even where the engine computes in a finer type
        coarsest = coarser(coarsest, step.problem.op.to)
    for tensor in step.inputs:
        known = origins.get(tensor.value)
        if known is not None:
            sources.update(dict.fromkeys(known.sources))
            depth, roundings = max(depth, known.depth), max(roundings, known.roundings)
            coarsest, computed = coarser(coarsest, known.coarsest), coarser(computed, known.computed)
        elif tensor.location.kind == "input":
            sources[Source(tensor.onnx or tensor.value, tensor.value, tensor.operand.format.dtype)] = None
    own = _computes(step)
    return _Origin(tuple(sources), computed, roundings + own, depth + own, coarsest)


def _computes(step: Step) -> int:
    """How many times the step rounds what it computes: two nodes in one kernel count as they do apart, and powers of
    attention, over keys or over channels, are rounded as results are, for they are factors of the second product."""
    if step.view or isinstance(step.problem.op, Convert):
        return 0
    attends = Attention | ChannelAttention
    return sum(2 if isinstance(member.op, attends) else 1 for member in step.problem.op.sequence)
