"""Patches that are put back into images: a thread a cell, or on GPUs a run of a row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, prod

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.common.cxx import braces, struct
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.common.geometry import three
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.portable.rule import Rule, computed_only, no_epilogue, row_major
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.images.patch_sum import PatchSum
from bolt_build.targets import Gpu, Target

_WIDE, _STRIDE = 8, 4
"""Cells of a patch along a row, and how far apart patches begin at most, for a thread to hold what they add."""
_OCTET = 8


@dataclass(frozen=True)
class PatchRowsTile(NumberTile):
    """A thread has `each` results of every place modulo the stride."""

    each: int


def _of(problem: KernelProblem) -> PatchSum:
    assert isinstance(problem.op, PatchSum)
    return problem.op


def _refuse(problem: KernelProblem) -> str | None:
    rank = len(_of(problem).image)
    if rank > 3:
        return Reason("patches of {} axes; at most 3 are supported", rank)
    return computed_only(problem) or no_epilogue(problem)


def _patches(problem: KernelProblem) -> str:
    op, output = _of(problem), problem.outputs[0]
    return struct(
        "bolt::portable::Patches",
        images=prod(output.shape[:2]),
        image=braces(three(op.image, 1)),
        block=braces(three(op.block, 1)),
        count=braces(three(op.counts, 1)),
        stride=braces(three(op.strides, 1)),
        gap=braces(three(op.dilations, 1)),
        pad=braces(three(op.pads, 0)),
    )


def _types(problem: KernelProblem) -> str:
    return f"{COMPUTED[problem.inputs[0].format.dtype]}, {COMPUTED[problem.outputs[0].format.dtype]}"


def _emit(problem: KernelProblem, at: StepExpressions) -> StepCode:
    call = f"bolt::portable::patch_sum<{_types(problem)}>(r, {_patches(problem)}, {at.inputs[0]}, {at.outputs[0]});"
    return StepCode(("bolt_portable/patch_sum.h",), None, "", call)


_ISSUED, _CELL, _RESULT = 128 * 1.6e9 * 0.6, 50, 190
"""Instructions of threads that a multiprocessor begins in a second; those of the plain kernel for a patch's cell and
for a result, as an H200 took two."""
_REACHED, _OF_ROWS = 0.5, 0.75
"""Guesses at the parts of the bandwidth that it reaches, and threads with runs of rows."""
_THREAD, _LINE, _EIGHT, _STORED = 60, 40, 36, 3
"""Instructions of a thread that has a run of a row, of a row of patches, of eight of their elements, and of a
result."""
_RESIDENT, _TAP = 512, 0.4e-6
"""Threads that a multiprocessor has at once, and seconds in which one waits for what a cell of a row of patches adds to
each place modulo the stride: as an H200 took patches of 3x3 and of 7x7 that begin two apart."""


def _seconds(problem: KernelProblem, target: Target) -> float:
    gpu, op = target.gpu, _of(problem)
    assert gpu is not None, "asked about GPUs alone"
    issue = problem.outputs[0].type.elements * (_RESULT + _CELL * prod(op.block)) / (_ISSUED * gpu.sms)
    return max(moved(problem.nbytes, target) / _REACHED, issue) + OVERLAPPED * target.launch_seconds


def _refuse_rows(problem: KernelProblem, gpu: Gpu) -> str | None:
    op = _of(problem)
    if op.block[-1] > _WIDE or op.strides[-1] > _STRIDE:
        what = "patches of {} cells along rows that begin {} apart; threads hold {} that begin up to {} apart"
        return Reason(what, op.block[-1], op.strides[-1], _WIDE, _STRIDE)
    if max(problem.inputs[0].type.elements, problem.outputs[0].type.elements) >= (1 << 31) - 64:
        return "elements are counted in 32 bits"
    return None


def _tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[PatchRowsTile]:
    yield PatchRowsTile(_OCTET)


def _refuse_tile(problem: KernelProblem, tile: PatchRowsTile, gpu: Gpu) -> str | None:
    return None if tile.each == _OCTET else Reason("threads have {} results, not {}", _OCTET, tile.each)


def _seconds_of_rows(problem: KernelProblem, tile: PatchRowsTile, target: Target) -> float:
    gpu, op, output = target.gpu, _of(problem), problem.outputs[0]
    assert gpu is not None, "asked about GPUs alone"
    run = tile.each * op.strides[-1]
    threads = prod(output.shape[:-1]) * ceil(output.shape[-1] / run)
    lines = prod(ceil(cells / stride) for cells, stride in zip(op.block[:-1], op.strides[:-1], strict=True))
    own = _THREAD + lines * (_LINE + op.block[-1] * _EIGHT) + run * _STORED
    issue = threads * own / (_ISSUED * gpu.sms)
    waits = max(1.0, threads / (_RESIDENT * gpu.sms)) * lines * op.block[-1] * op.strides[-1] * _TAP
    memory = moved(problem.nbytes, target) / _OF_ROWS
    return max(memory, issue, waits) + OVERLAPPED * target.launch_seconds


def _emit_rows(problem: KernelProblem, tile: PatchRowsTile, at: StepExpressions) -> StepCode:
    op = _of(problem)
    how = ", ".join(map(str, (op.block[-1], op.strides[-1], op.dilations[-1], op.pads[-1])))
    call = (
        f"bolt::portable::patch_rows<{_types(problem)}, {how}>(r, {_patches(problem)}, {at.inputs[0]}, "
        f"{at.outputs[0]});"
    )
    return StepCode(("bolt_portable/cuda/images/patch_rows.h",), None, "", call)


_ROWS: Form[PatchRowsTile] = Form(
    "rows", lambda problem: True, _refuse_rows, _tiles, _refuse_tile, _seconds_of_rows, PatchRowsTile.read, _emit_rows
)
RULES = (
    Rule(
        PatchSum,
        _refuse,
        _emit,
        lambda problem: 0.02,
        gpu_seconds=_seconds,
        layouts=row_major,
        forms=(_ROWS,),
    ),
)
