"""What the portable family knows of one operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, StepCode, StepExpressions, same_bytes
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.portable.form import AnyForm
from bolt_build.families.portable.plain import AnyPlain
from bolt_build.graph.ir import Layout, Node, Op, TensorType
from bolt_build.targets import Gpu, Target

Layouts = tuple[tuple[Layout, ...], Layout]
"""A layout for each input and one for the output."""


def same_layouts(node: Node, inputs: tuple[TensorType, ...], output: TensorType) -> tuple[Layouts, ...]:
    """Everything row-major; and, from rank 3, every tensor of the output's rank channels-last."""
    rank = output.rank
    row = ((Layout.ROW,) * len(inputs), Layout.ROW)
    if rank < 3:
        return (row,)
    last = tuple(Layout.CHANNELS_LAST if t.rank == rank else Layout.ROW for t in inputs)
    return (row, (last, Layout.CHANNELS_LAST))


def row_major(node: Node, inputs: tuple[TensorType, ...], output: TensorType) -> tuple[Layouts, ...]:
    """Everything row-major."""
    return (((Layout.ROW,) * len(inputs), Layout.ROW),)


@dataclass(frozen=True)
class Rule:
    """How one operator is offered, refused, priced and emitted.

    `refuse` gives a sentence, or None for a problem that `emit` can take, `refuse_gpu` the same for a GPU. `efficiency`
    is the part of the target's peak arithmetic rate that is expected; `gpu_efficiency` the same on a GPU, whose peak is
    that of tensor cores, which none of these kernels use (None: no other than elsewhere), `gpu_single` of problems all
    in fp32, whose peak is that of plain instructions (None: as of others), `gpu_bandwidth` the part of a GPU's
    bandwidth, `gpu_latency` the seconds that a kernel there takes on top of that, because its threads wait,
    `gpu_seconds` all of its time, where those do not say it. `in_place` names inputs of the op itself whose memory may
    also be the output's. Where `is_view`, nothing runs: the output is the input's bytes from `view_offset` on. Where
    `pitched`, rows of the output may be stored further apart than they are long; `reads_apart` are the inputs whose
    rows may lie so. Where `stages_apart`, those that stages combine with the result may lie so on GPUs, and where
    `gpu_pitched` the output's: a host would divide for each element.

    All that is of the plain kernel, which candidates call direct. `plain` says how a GPU's is cut, where there is a
    choice. `forms` are other kernels that a GPU has.
    """

    op: type[Op]
    refuse: Callable[[KernelProblem], str | None]
    emit: Callable[[KernelProblem, StepExpressions], StepCode]
    efficiency: Callable[[KernelProblem], float]
    gpu_efficiency: float | None = None
    gpu_single: Callable[[KernelProblem], float] | None = None
    gpu_bandwidth: Callable[[KernelProblem], float] = lambda problem: 1.0
    gpu_latency: Callable[[KernelProblem], float] = lambda problem: 0.0
    gpu_seconds: Callable[[KernelProblem, Target], float] | None = None
    layouts: Callable[[Node, tuple[TensorType, ...], TensorType], tuple[Layouts, ...]] = same_layouts
    in_place: tuple[int, ...] = ()
    is_view: Callable[[KernelProblem], bool] = lambda problem: False
    view_offset: Callable[[KernelProblem], int] = lambda problem: 0
    pitched: Callable[[KernelProblem], bool] = lambda problem: False
    reads_apart: Callable[[KernelProblem], tuple[int, ...]] = lambda problem: ()
    stages_apart: bool = False
    gpu_pitched: Callable[[KernelProblem], bool] = lambda problem: False
    refuse_gpu: Callable[[KernelProblem, Gpu], str | None] = lambda problem, gpu: None
    plain: AnyPlain | None = None
    forms: tuple[AnyForm, ...] = ()


def computed_only(problem: KernelProblem) -> str | None:
    """A reason where a tensor has an element type that kernels do not compute with."""
    for operand in (*problem.inputs, *problem.outputs):
        if operand.format.dtype not in COMPUTED:
            names = ", ".join(dtype.value for dtype in COMPUTED)
            return f"computes with {names}, not with {operand.format.dtype.value}"
    return None


def in_single(problem: KernelProblem) -> bool:
    """True where all tensors are in fp32."""
    return all(operand.format.dtype is DType.F32 for operand in (*problem.inputs, *problem.outputs))


def no_epilogue(problem: KernelProblem) -> str | None:
    """A reason where something is fused into a kernel that takes no epilogue."""
    return f"{problem.op.kind} takes no epilogue" if problem.epilogue else None


def is_same_bytes(problem: KernelProblem) -> bool:
    """True where output 0 of a kernel that changes no value has the bytes of input 0."""
    source, output = problem.inputs[0], problem.outputs[0]
    return source.shape == output.shape and same_bytes(source.shape, source.format, output.format)
