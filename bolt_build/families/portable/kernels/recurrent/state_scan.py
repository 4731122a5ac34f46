"""Elementwise recurrences: kernels that go through a sequence with their states in registers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, gcd, log2, prod

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.cost import OVERLAPPED
from bolt_build.families.common.cxx import boolean, braces, struct
from bolt_build.families.common.functors import ACTIVATIONS, BINARIES, activation, activation_type, binary, instructions
from bolt_build.families.common.geometry import MOST_AXES, Loop, merged, strides
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.portable.rule import Rule, computed_only, no_epilogue, row_major
from bolt_build.families.portable.typed import ctype
from bolt_build.families.reason import Reason
from bolt_build.graph.ir import EpilogueOp
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.recurrent.state_scan import SUM, WHERE, StateScan
from bolt_build.targets import Gpu, Target

_HEADER = "bolt_portable/state_scan.h"
MOST_NUMBERS = 64
"""Numbers of a step, each a bit of a word."""
_OWN = {
    WHERE: "ScanChoice", "equal": "ScanEqual", "less": "ScanLess", "less_equal": "ScanLessEqual",
    "greater": "ScanGreater", "greater_equal": "ScanGreaterEqual",
}  # fmt: skip
"""Functors that the kernel has beside those of elementwise stages."""
_HELD, _AHEAD = 48, 64
"""Numbers of a step that a thread keeps in registers at most, and those of later steps that it waits for."""
_BESIDE, _STEPS, _THREADS = (1, 2, 4, 8, 16, 32), (1, 2, 4, 8, 16, 32), (128, 64, 32)
_SCHEDULERS, _CLOCK = 4, 6e-10
"""Of a multiprocessor, each of which issues an instruction a clock; and a clock's seconds."""
_ALONE, _ISSUE, _WAIT = 4.0, 1.75, 0.05e-6
"""Clocks of an instruction where a scheduler has one warp, those of each warp where it has many, and seconds that one
warp waits for what a step reads. Fitted to kernels of 14 shapes on an H200; where steps are neighbours in memory, and
lanes lie apart, it took over twice as long as they say."""


@dataclass(frozen=True)
class ScanTile(NumberTile):
    """`beside` neighbouring threads share a lane, and ask for numbers of `ahead` steps at once; a block has
    `threads`."""

    beside: int
    ahead: int
    threads: int


def _of(problem: KernelProblem) -> StateScan:
    assert isinstance(problem.op, StateScan)
    return problem.op


def _folded(op: StateScan) -> int:
    return op.extents[op.fold] if op.fold else 1


def _lanes(op: StateScan) -> int:
    return prod(extent for axis, extent in enumerate(op.extents) if axis > 0 and axis != op.fold)


def _steady(op: StateScan) -> list[bool]:
    """Of inputs that are no states: whether they are the same in all steps."""
    return [axes[0] < 0 for axes in op.axes[: op.given]]


def _refuse(problem: KernelProblem) -> str | None:
    op = _of(problem)
    if (reason := computed_only(problem) or no_epilogue(problem)) is not None:
        return reason
    for function in op.functions:
        if function not in (SUM, *ACTIVATIONS, *BINARIES, *_OWN):
            return f"there is no portable body for '{function}'"
    if (count := len(op.wide())) > MOST_NUMBERS:
        return Reason("a step has {} numbers, at most {} are supported", count, MOST_NUMBERS)
    if (count := len(_loops(problem))) > MOST_AXES:
        return Reason("lanes lie along {} loops, at most {} are supported", count, MOST_AXES)
    return None


def _loops(problem: KernelProblem) -> tuple[Loop, ...]:
    """Over lanes, with the steps of all inputs and of the output, in the order of the output's axes."""
    op = _of(problem)
    axes = [axis for axis in op.order if axis > 0 and axis != op.fold]
    return merged((Loop(op.extents[axis], _along(problem, axis)) for axis in axes), len(problem.inputs) + 1)


def _along(problem: KernelProblem, axis: int) -> tuple[int, ...]:
    """Elements to the next along an axis of the space, of each tensor."""
    op = _of(problem)
    found = [
        strides(operand)[axes[axis]] if axes[axis] >= 0 else 0
        for operand, axes in zip(problem.inputs, op.axes, strict=True)
    ]
    output = strides(problem.outputs[0])
    return (*found, output[op.order.index(axis)] if axis in op.order else 0)


def _parameters(problem: KernelProblem) -> tuple[int, str]:
    """The kernel's struct, and how many loops it has."""
    op, loops = _of(problem), _loops(problem)
    tensors = len(problem.inputs) + 1
    begins = [
        sum(start * stride for start, stride in zip(begin, strides(operand), strict=True))
        for operand, begin in zip(problem.inputs, op.begins, strict=True)
    ] + [0]
    steps = list(_along(problem, 0))
    for index, backward in enumerate(op.backward):
        if backward:
            begins[index] += (op.extents[0] - 1) * steps[index]
            steps[index] = -steps[index]
    across = _along(problem, op.fold) if op.fold else (0,) * tensors
    text = struct(
        f"bolt::portable::StateScan<{tensors}, {len(loops)}>", lanes=_lanes(op), steps=op.extents[0],
        folded=_folded(op), extent=braces(loop.extent for loop in loops),
        lane=braces(braces(loop.steps[i] for loop in loops) for i in range(tensors)), step=braces(steps),
        across=braces(across), begin=braces(begins),
    )  # fmt: skip
    return len(loops), text


def _terms(op: StateScan) -> str:
    made = []
    for place, operands in enumerate(op.operands):
        sides = ", ".join(map(str, operands))
        if op.functions[place] == SUM:
            made.append(f"bolt::portable::ScanSum<{sides}>{{}}")
            continue
        function = op.functions[place]
        if function in ACTIVATIONS:
            term = op.activation(place)
            made.append(f"bolt::portable::ScanTerm<{activation_type(term)}, {sides}>{{{activation(term)}}}")
        else:
            name = f"bolt::portable::{_OWN[function]}" if function in _OWN else binary(Binary(function))
            made.append(f"bolt::portable::ScanTerm<{name}, {sides}>{{}}")
    return f"bolt::portable::scan_terms({', '.join(made)})"


def _bits(flags: list[bool] | tuple[bool, ...]) -> str:
    return f"{sum(1 << place for place, flag in enumerate(flags) if flag):#x}"


def _code(problem: KernelProblem, tile: ScanTile, at: StepExpressions, shared: bool) -> StepCode:
    op = _of(problem)
    parts = ceil(_folded(op) / tile.beside)
    carried = ", ".join(map(str, op.carried))
    exact, together = parts * tile.beside == _folded(op), _together(problem, tile) if shared else 1
    lane = f"bolt::portable::LaneScan<{_bits(op.wide())}, {_bits(_steady(op))}, {_bits(_dense(problem))}, {op.given}, "
    lane += f"{op.result}, {parts}, {tile.beside}, {tile.ahead}, {together}, {boolean(exact)}, {carried}>"
    _, parameters = _parameters(problem)
    types = ", ".join(ctype(operand.format.dtype) for operand in (*problem.outputs, *problem.inputs))
    arguments = ", ".join((parameters, _terms(op), at.outputs[0], braces(at.inputs)))
    lanes = f"bolt::portable::scan_lanes<{lane}, {types}>({arguments})"
    function = f"state_scan_beside<{tile.beside}, {tile.threads}>" if shared else "state_scan"
    call = f"bolt::portable::{function}(r, {lanes});"
    return StepCode((_HEADER,), None, "", call)


def _dense(problem: KernelProblem) -> list[bool]:
    """Of inputs: whether neighbours along the axis that is added up along are neighbours in memory."""
    op = _of(problem)
    return [step == 1 for step in _along(problem, op.fold)[:-1]] if op.fold else [False] * len(problem.inputs)


def _together(problem: KernelProblem, tile: ScanTile) -> int:
    """Neighbours that a thread reads at once: as many as begin with a whole access in each tensor that has them."""
    op = _of(problem)
    parts = ceil(_folded(op) / tile.beside)
    if parts * tile.beside != _folded(op) or not any(_dense(problem)):
        return 1
    found = gcd(parts, 8)
    places = [(axis, _along(problem, axis)) for axis in range(len(op.extents)) if axis != op.fold]
    for index, (operand, dense) in enumerate(zip(problem.inputs, _dense(problem), strict=True)):
        if not dense:
            continue
        begin = sum(at * step for at, step in zip(op.begins[index], strides(operand), strict=True))
        found = gcd(found, begin, *(steps[index] for _, steps in places))
        found = min(found, 16 // operand.format.dtype.nbytes)
    return found


def _held(op: StateScan, tile: ScanTile) -> int:
    """Numbers that a thread keeps: states, and what is the same in all steps."""
    parts, wide = ceil(_folded(op) / tile.beside), op.wide()
    kept = [*_steady(op), *(True for _ in op.carried)]
    return sum(parts if wide[place] else 1 for place, each in enumerate(kept) if each)


def _asked(op: StateScan, tile: ScanTile) -> int:
    """Numbers of later steps that a thread waits for."""
    parts, wide = ceil(_folded(op) / tile.beside), op.wide()
    return tile.ahead * sum(parts if wide[i] else 1 for i, steady in enumerate(_steady(op)) if not steady)


def _refuse_gpu(problem: KernelProblem, gpu: Gpu) -> str | None:
    if any(prod(operand.shape) >= 2**31 for operand in (*problem.inputs, *problem.outputs)):
        return "32 bits do not count the elements of a tensor"
    return None


def _refuse_tile(problem: KernelProblem, tile: ScanTile, gpu: Gpu) -> str | None:
    op = _of(problem)
    if tile.beside not in _BESIDE or tile.ahead not in _STEPS or tile.threads not in _THREADS:
        return "1 to 32 threads of 32, 64 or 128 share a lane and ask for 1 to 32 steps at once, powers of two"
    if tile.beside > _folded(op):
        return Reason("{} elements are added up, too few for {} threads", _folded(op), tile.beside)
    if (held := _held(op, tile)) > _HELD and tile.beside < 32 and tile.beside * 2 <= _folded(op):
        return Reason("a thread would keep {} numbers in registers, at most {} are worth it", held, _HELD)
    if tile.ahead > 1 and (asked := _asked(op, tile)) > _AHEAD:
        return Reason("a thread would wait for {} numbers at once, at most {} are worth it", asked, _AHEAD)
    if tile.ahead > op.extents[0]:
        return Reason("{} steps are fewer than {}", op.extents[0], tile.ahead)
    return None


def _tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[ScanTile]:
    for beside in _BESIDE:
        threads = next((n for n in _THREADS if _lanes(_of(problem)) * beside >= 2 * n * gpu.sms), _THREADS[-1])
        yield from (ScanTile(beside, ahead, threads) for ahead in reversed(_STEPS))


def _instructions(problem: KernelProblem, tile: ScanTile) -> float:
    """Of a thread's step: its functions, sums over threads, and loads with their addresses and conversions."""
    op = _of(problem)
    wide, parts, count = op.wide(), ceil(_folded(op) / tile.beside), len(problem.inputs)
    found = 6.0
    for place, function in enumerate(op.functions):
        if function == SUM:
            found += parts + 2 * log2(tile.beside)
            continue
        costs = 1 + 8 * (function == "div")
        if function in ACTIVATIONS:
            costs += instructions([EpilogueOp(op.activation(place))])
        found += costs * (parts if wide[count + place] else 1)
    together = _together(problem, tile)
    for index, (steady, dense) in enumerate(zip(_steady(op), _dense(problem)[: op.given], strict=True)):
        if not steady:
            elements = parts if wide[index] else 1
            found += 3 + elements + (elements / together if dense else 2 * elements)
    return found + (_asked(op, tile) / tile.ahead if tile.ahead > 1 else 0)


def _seconds(problem: KernelProblem, tile: ScanTile, target: Target) -> float:
    """The longer of what memory moves and of the steps of a scheduler's warps. Each waits for what it reads, as often
    as it asks, and for its own instructions, of which one warp alone does not issue one in each clock."""
    op, gpu = _of(problem), target.gpu
    assert gpu is not None
    warps = ceil(_lanes(op) * tile.beside / 32)
    sharing = warps / (_SCHEDULERS * gpu.sms)
    a_step = _instructions(problem, tile) * max(sharing * _ISSUE, _ALONE) * _CLOCK + _WAIT / tile.ahead / max(
        sharing, 1
    )
    return OVERLAPPED * target.launch_seconds + max(problem.nbytes / target.bandwidth, op.extents[0] * a_step)


def _plain_seconds(problem: KernelProblem, target: Target) -> float:
    return 1.2 * _seconds(problem, _PLAIN, target)


FORM: Form[ScanTile] = Form(
    "lanes", lambda problem: isinstance(problem.op, StateScan), _refuse_gpu, _tiles, _refuse_tile,
    _seconds, ScanTile.read, lambda problem, tile, at: _code(problem, tile, at, shared=True),
)  # fmt: skip
_PLAIN = ScanTile(1, 1, 128)
"""One thread a lane, which reads what a step has when it is there; how many a block has is not its own choice."""

RULES = (
    Rule(
        StateScan, _refuse, lambda problem, at: _code(problem, _PLAIN, at, shared=False), lambda problem: 0.05,
        gpu_seconds=_plain_seconds, layouts=row_major, refuse_gpu=_refuse_gpu, forms=(FORM,),
    ),
)  # fmt: skip
