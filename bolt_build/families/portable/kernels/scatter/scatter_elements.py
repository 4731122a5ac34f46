"""How a GPU scatters along an axis whose lines no block has room for: each update claims its element first, so that all
elements move at once and the result is the same in every run."""

from __future__ import annotations

from collections.abc import Iterator

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.norms.norm_loops import with_scratch
from bolt_build.families.portable.kernels.scatter.scatter_claims import CLAIM, MOST_SCRATCH, UNEVEN, ClaimTile
from bolt_build.families.portable.kernels.scatter.scatter_lines import UPDATES, parameters, refuse_apart
from bolt_build.families.portable.typed import ctype
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.moves.scatter import ScatterElements
from bolt_build.targets import Gpu, Target

_LANES, _ACCESS, _MOST = (4, 2, 1), 16, 0x7FFFFFFF
"""Elements of a thread that are tried, bytes of its access at most, and what a signed number of 32 bits holds."""


def _counts(problem: KernelProblem) -> tuple[int, int]:
    """Elements, and updates of them."""
    return problem.inputs[0].type.elements, problem.inputs[1].type.elements


def _scratch(problem: KernelProblem) -> int:
    op, (elements, updates) = problem.op, _counts(problem)
    assert isinstance(op, ScatterElements)
    return CLAIM * (elements + (0 if op.reduction == "none" else updates))


def _refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    if (reason := refuse_apart(problem)) is not None:
        return reason
    if (scratch := _scratch(problem)) > MOST_SCRATCH:
        return Reason("takes {} bytes beside its tensors, at most {} are kept", scratch, MOST_SCRATCH)
    if (most := max(_counts(problem))) > _MOST:
        return Reason("{} elements are more than the {} that it counts", most, _MOST)
    return None


def _tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[ClaimTile]:
    yield from (ClaimTile(lanes) for lanes in _LANES if _refuse_tile(problem, ClaimTile(lanes), gpu) is None)


def _refuse_tile(problem: KernelProblem, tile: ClaimTile, gpu: Gpu) -> str | None:
    data = problem.inputs[0]
    if tile.lanes not in _LANES or tile.lanes * data.format.dtype.nbytes > _ACCESS:
        return Reason("words of {} elements are no accesses of {} bytes at most", tile.lanes, _ACCESS)
    if (elements := data.type.elements) % tile.lanes:
        return Reason("{} elements are no words of {}", elements, tile.lanes)
    return None


_REACHED, _SECTOR, _LAUNCHES, _WAIT = 0.6, 32, 3, 0.7e-6
"""The part of the bandwidth; bytes that an update moves for its claim and as many for its element's; kernels one after
the other, and seconds in which one's threads wait."""
_CHAIN, _ELEMENT, _WAITS = 0.45, 1.5e-12, 1.0e-12
"""What updates take more for each one that an element has beside its first, in the mean; seconds of an element that a
thread moves by itself; and those of an update for each element of its thread, which others wait for. They follow eleven
kernels of an H200, off by 15%."""


def _seconds(problem: KernelProblem, tile: ClaimTile, target: Target) -> float:
    elements, updates = _counts(problem)
    chains = 1 + UNEVEN * _CHAIN * max(0.0, updates / elements - 1)
    memory = moved(problem.nbytes + 2 * _scratch(problem) + 2 * _SECTOR * updates * chains, target) / _REACHED
    single = elements * _ELEMENT / tile.lanes + updates * _WAITS * tile.lanes
    return float(memory + single + _LAUNCHES * (OVERLAPPED * target.launch_seconds + _WAIT))


def _emit(problem: KernelProblem, tile: ClaimTile, at: StepExpressions) -> StepCode:
    op, (data, indices, _) = problem.op, problem.inputs
    assert isinstance(op, ScatterElements)
    types = f"{UPDATES[op.reduction]}, {tile.lanes}, {ctype(data.format.dtype)}, {ctype(indices.format.dtype)}"
    at, member = with_scratch(problem, _scratch(problem), at)
    given = f"{parameters(problem, 1, 1)}, {', '.join((*at.inputs, *at.outputs))}"
    call = f"bolt::portable::scatter_elements_in_claims<{types}>(r, {given});"
    return StepCode(("bolt_portable/cuda/scatter/scatter_elements.h",), *member, call)


FORM: Form[ClaimTile] = Form(
    "claims",
    lambda problem: problem.outputs[0].type.elements > 0 and problem.inputs[1].type.elements > 0,
    _refuse,
    _tiles,
    _refuse_tile,
    _seconds,
    ClaimTile.read,
    _emit,
)
