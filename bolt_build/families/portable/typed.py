"""Kernels for elements of every type: their C++ types, and functions of several tensors element by element."""

from __future__ import annotations

from math import prod

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, StepCode, StepExpressions, memory_axes
from bolt_build.families.common.cxx import braces, struct
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.common.geometry import MOST_AXES, Loop, merged, strides
from bolt_build.families.common.stages import aligned
from bolt_build.families.portable.rule import no_epilogue
from bolt_build.families.reason import Reason

TYPED = {
    **COMPUTED, DType.F64: "double", DType.I8: "std::int8_t", DType.I16: "std::int16_t", DType.I32: "std::int32_t",
    DType.I64: "std::int64_t", DType.U8: "std::uint8_t", DType.U16: "std::uint16_t", DType.U32: "std::uint32_t",
    DType.U64: "std::uint64_t", DType.BOOL: "bolt::portable::boolean",
}  # fmt: skip
"""C++ types of elements as they are stored: half precision is computed in float, all others in themselves."""


def ctype(dtype: DType) -> str:
    """The C++ type of an element."""
    return TYPED[dtype]


def is_computed(problem: KernelProblem) -> bool:
    """True where every tensor is of a type that the kernels of half and single precision compute with."""
    return all(operand.format.dtype in COMPUTED for operand in (*problem.inputs, *problem.outputs))


def pointwise_loops(
    problem: KernelProblem, at: StepExpressions | None = None, *, rows: bool = False
) -> tuple[Loop, ...]:
    """Loops over the output's memory with the steps of every input, where they lie as in a step (None: dense); 0 where
    it is broadcast. Where `rows`, the innermost axis stays a loop of its own, so loops are as many wherever rows
    lie."""
    output = problem.outputs[0]
    rank = len(output.shape)
    sides = []
    for index, operand in enumerate(problem.inputs):
        pitch = 0 if at is None else at.input_pitch(index)
        shape, steps = aligned(operand.shape, rank), (0,) * (rank - len(operand.shape)) + strides(operand, pitch)
        sides.append(tuple(0 if extent == 1 else step for extent, step in zip(shape, steps, strict=True)))
    order = memory_axes(rank, output.format.layout)
    loops = (Loop(output.shape[i], tuple(side[i] for side in sides), fixed=rows and i == order[-1]) for i in order)
    return merged(loops, len(sides))


def is_dense(loops: tuple[Loop, ...], side: int) -> bool:
    """Whether the elements of a tensor lie as those of the output do."""
    return all(loop.steps[side] == prod(each.extent for each in loops[place + 1 :]) for place, loop in enumerate(loops))


def refuse_pointwise(problem: KernelProblem) -> str | None:
    """Why the elements of the output cannot be functions of those of the inputs in one loop nest."""
    if (reason := no_epilogue(problem)) is not None:
        return reason
    count = len(pointwise_loops(problem))
    return Reason("broadcasts over {} loops, at most {} are supported", count, MOST_AXES) if count > MOST_AXES else None


def pointwise_text(problem: KernelProblem) -> str:
    """A `Pointwise`."""
    loops, count = pointwise_loops(problem), len(problem.inputs)
    return struct(
        f"bolt::portable::Pointwise<{count}>",
        rank=len(loops),
        extent=braces(loop.extent for loop in loops),
        step=braces(braces(loop.steps[i] for loop in loops) for i in range(count)),
    )


def emit_pointwise(problem: KernelProblem, at: StepExpressions, function: str) -> StepCode:
    """`function`, a C++ object of `typed.h`, of the elements of all inputs."""
    types = ", ".join(ctype(operand.format.dtype) for operand in (*problem.outputs, *problem.inputs))
    pointers = ", ".join((at.outputs[0], *at.inputs))
    call = f"bolt::portable::pointwise<{types}>(r, {pointwise_text(problem)}, {function}, {pointers});"
    return StepCode(("bolt_portable/pointwise.h",), None, "", call)


_OWN, _SEARCHED = 40, 60
"""Instructions of a thread of the plain kernel beside its elements, and for two rows of a tensor where it looks for
elements one by one."""
_EACH, _CLOCKS = 16, 1 / 15
"""Instructions for such an element; and clocks of an H100's multiprocessor for a byte of memory. With both the parts of
the bandwidth below are those that an H100 reached, to a quarter."""
_WAITED = 4.7
"""Bytes of a thread that memory would move while it waits for a tensor that stands still, as on an H200."""
_RATE = 0.6 * 128
"""Instructions of threads in a clock."""


def issued(instructions: float, nbytes: float) -> float:
    """Part of a GPU's bandwidth at which elements go of so many bytes, each of which takes so many instructions."""
    return min(1.0, nbytes * _CLOCKS * _RATE / instructions)


def searched(lanes: int, tensors: int, nbytes: float, run: int | None = None) -> float:
    """Part of a GPU's bandwidth that a kernel reaches whose threads look for the elements of some tensors one by one,
    for `lanes` neighbours of the output, each of which moves so many bytes. In rows of fewer, `run` elements, a thread
    looks once for each of its rows."""
    rows = 1 + (lanes - 1) / run if run is not None and 0 < run < lanes else 1.0
    instructions = (_OWN + tensors * rows * (_SEARCHED + _EACH * lanes)) / lanes
    return issued(instructions, nbytes)


def _point_lanes(problem: KernelProblem) -> int:
    """Neighbours that a thread of the plain kernel takes."""
    widest = max(operand.format.dtype.nbytes for operand in (*problem.outputs, *problem.inputs))
    return 16 if widest == 1 else 8 if widest < 8 else 4


def _sides_by_reach(problem: KernelProblem) -> tuple[int, int, int]:
    """Bytes of the inputs that a thread of the plain kernel has in whole accesses; inputs that stand still for it; and
    those whose elements it looks for one by one."""
    loops, lanes = pointwise_loops(problem), _point_lanes(problem)
    under_way = still = one_by_one = 0
    for side, operand in enumerate(problem.inputs):
        if is_dense(loops, side):
            under_way += lanes * operand.format.dtype.nbytes
        elif loops[-1].steps[side] == 0 and loops[-1].extent % lanes == 0:
            still += 1
        else:
            one_by_one += 1
    return under_way, still, one_by_one


def pointwise_bandwidth(problem: KernelProblem) -> float:
    """Part of a GPU's bandwidth that the plain kernel reaches: all of it where each tensor is read in whole accesses,
    less where a thread waits for one before it asks for the next, which stands still."""
    under_way, still, one_by_one = _sides_by_reach(problem)
    if one_by_one:
        elements = max(problem.outputs[0].type.elements, 1)
        return searched(_point_lanes(problem), one_by_one, problem.nbytes / elements)
    return under_way / (under_way + _WAITED * still) if under_way else 1.0


def in_whole_points(problem: KernelProblem) -> bool:
    """True where the plain kernel looks for no element by itself."""
    return _sides_by_reach(problem)[2] == 0
