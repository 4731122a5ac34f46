"""Quantisation of elements: functions of numbers with their scales and zero points, in one loop nest; and on GPUs in
accesses of sixteen elements, where what a scale needs is computed once for all elements of a thread that have it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.common.cxx import boolean, struct
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.portable.rule import Rule
from bolt_build.families.portable.typed import (
    ctype,
    emit_pointwise,
    pointwise_loops,
    pointwise_text,
    refuse_pointwise,
)
from bolt_build.families.reason import Reason
from bolt_build.graph.ir import Op
from bolt_build.graph.ops.quantised.quantize import (
    Dequantize,
    FakeQuantize,
    Quantize,
    RangeQuantize,
    RangeScale,
    RangeZero,
    Requantize,
    ScaleSums,
)
from bolt_build.targets import Gpu, Target

_HEADER = ("bolt_portable/quantize.h",)
_FUNCTIONS: dict[type[Op], str] = {
    Quantize: "Quantize", Dequantize: "Dequantize", Requantize: "Requantize", ScaleSums: "ScaleSums",
    RangeScale: "RangeScale", RangeZero: "RangeZero", RangeQuantize: "RangeQuantize", FakeQuantize: "FakeQuantize",
}  # fmt: skip
_TYPED = (Quantize, FakeQuantize, Requantize)
"""Operators whose function names the type that is rounded to."""
_WIDE: dict[type[Op], str] = {Quantize: "ToIntegers", Dequantize: "ToNumbers", FakeQuantize: "ToGrid"}
"""Operators of one scale, which have kernels of whole accesses."""
_LANES, _CHUNKS = 16, (1, 2, 4)
"""Neighbours of an access, and accesses of a thread."""


def _function(op: Op) -> str:
    name = f"bolt::portable::{_FUNCTIONS[type(op)]}"
    return f"{name}<{ctype(op.to)}>" if isinstance(op, _TYPED) else name


def _emit(problem: KernelProblem, at: StepExpressions) -> StepCode:
    return replace(emit_pointwise(problem, at, f"{_function(problem.op)}{{}}"), includes=_HEADER)


def _fast(problem: KernelProblem) -> float:
    return 0.1


@dataclass(frozen=True)
class _Scaled:
    """Elements as they lie: each `inner` neighbours have one of `channels` scales and zero points, one behind the
    other and then from the first one on. `by_scale` and `by_zero` are 0 of one of all."""

    elements: int
    channels: int
    inner: int
    by_scale: int
    by_zero: int

    @property
    def own(self) -> bool:
        """True where neighbours of an access have several channels, and not only at a border."""
        return self.channels > 1 and self.inner < _LANES


def _scaled(problem: KernelProblem) -> _Scaled | None:
    """None where scales go along several axes, or elements do not lie as the result does."""
    loops, elements = pointwise_loops(problem), problem.outputs[0].type.elements
    step = 1
    for loop in reversed(loops):
        if loop.steps[0] != step:
            return None
        step *= loop.extent
    moving = [at for at, loop in enumerate(loops) if any(loop.steps[1:])]
    if not moving:
        return _Scaled(elements, 1, elements, 0, 0)
    channels = loops[moving[0]]
    if len(moving) > 1 or any(each not in (0, 1) for each in channels.steps[1:]):
        return None
    return _Scaled(elements, channels.extent, channels.steps[0], *channels.steps[1:])


def _refuse_wide(problem: KernelProblem, gpu: Gpu) -> str | None:
    scaled = _scaled(problem)
    if scaled is None:
        return "scales go along one axis at most, and elements lie as the result does"
    stored = problem.op.to if isinstance(problem.op, _TYPED) else problem.inputs[0].format.dtype
    if stored is DType.I32:
        return "integers of 32 bits are no numbers in fp32"
    if problem.inputs[1].format.dtype is not DType.F32:
        return Reason("scales are in fp32, not in {}", problem.inputs[1].format.dtype.value)
    return None


@dataclass(frozen=True)
class WideTile(NumberTile):
    """A thread has so many `chunks` of sixteen neighbours, which it loads at once."""

    chunks: int


def _tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[WideTile]:
    return (WideTile(chunks) for chunks in _CHUNKS)


def _refuse_tile(problem: KernelProblem, tile: WideTile, gpu: Gpu) -> str | None:
    return None if tile.chunks in _CHUNKS else "there are kernels of 1, 2 or 4 chunks a thread"


_REACHED, _FLIGHT = 0.85, 64 << 10
"""The part of a GPU's bandwidth at which bytes move, and those that a multiprocessor has to ask for at once for that.
These and the following are guesses by first principles: no GPU has run these kernels yet."""
_THREADS = {1: 2048, 2: 1536, 4: 1024}
"""Threads of a multiprocessor, by chunks of each."""
_BEGIN, _SCALE, _ISSUED, _TAIL = 40, 30, 0.7, 0.3
"""Instructions of a thread for its place, and for what a scale needs; what an instruction takes of the rate of
multiply-adds; and the part of a wave for which its last threads leave others without work."""
_INSTRUCTIONS: dict[type[Op], float] = {Quantize: 15.0, Dequantize: 5.0, FakeQuantize: 18.0}
"""Of an element."""
_PLAIN_REACHED: dict[type[Op], float] = {Quantize: 0.45, Dequantize: 0.5, FakeQuantize: 0.45}
"""The part of the bandwidth at which plain kernels move bytes, as measured on an H100."""


def _seconds(problem: KernelProblem, tile: WideTile, target: Target) -> float:
    """The bytes, if enough are asked for at once, or the instructions, and the end of the last wave."""
    gpu, scaled = target.gpu, _scaled(problem)
    assert gpu is not None, "wide kernels are GPUs'"
    assert scaled is not None, "refused before"
    threads = scaled.elements / (_LANES * tile.chunks)
    scales = _LANES if scaled.own else tile.chunks
    instructions = _BEGIN + _SCALE * scales + _INSTRUCTIONS[type(problem.op)] * _LANES * tile.chunks
    issued = _ISSUED * threads * instructions / (target.rate("fp32") / 2)
    resident = _THREADS[tile.chunks]
    asked = resident * _LANES * tile.chunks * problem.inputs[0].format.dtype.nbytes
    memory = moved(problem.nbytes, target) / _REACHED * max(1.0, _FLIGHT / asked)
    waves = max(1.0, threads / (gpu.sms * resident))
    longest = max(memory, issued) * (1 + _TAIL / waves)
    return float(longest + OVERLAPPED * target.launch_seconds)


def _emit_wide(problem: KernelProblem, tile: WideTile, at: StepExpressions) -> StepCode:
    scaled, op = _scaled(problem), problem.op
    assert scaled is not None, "refused before"
    stored = ctype(op.to if isinstance(op, _TYPED) else problem.inputs[0].format.dtype)
    out, given = (ctype(each.format.dtype) for each in (problem.outputs[0], problem.inputs[0]))
    function = f"bolt::portable::{_WIDE[type(op)]}<{stored}>"
    types = f"{function}, {_function(op)}, {stored}, {out}, {given}, {tile.chunks}, {boolean(scaled.own)}"
    parameters = struct(
        "bolt::portable::Scaled",
        elements=scaled.elements,
        channels=scaled.channels,
        inner=scaled.inner,
        by_scale=scaled.by_scale,
        by_zero=scaled.by_zero,
    )
    pointers = ", ".join((at.outputs[0], *at.inputs))
    call = f"bolt::portable::scaled<{types}>(r, {parameters}, {pointwise_text(problem)}, {pointers});"
    return StepCode(_HEADER, None, "", call)


FORM: Form[WideTile] = Form(
    "wide",
    lambda problem: problem.outputs[0].type.elements > 0,
    _refuse_wide,
    _tiles,
    _refuse_tile,
    _seconds,
    WideTile.read,
    _emit_wide,
)

RULES = tuple(
    Rule(
        op,
        refuse_pointwise,
        _emit,
        _fast,
        gpu_bandwidth=lambda problem: _PLAIN_REACHED.get(type(problem.op), 1.0),
        forms=(FORM,) if op in _WIDE else (),
    )
    for op in _FUNCTIONS
)
