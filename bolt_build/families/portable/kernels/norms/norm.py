"""Normalisations by statistics of the data itself."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, prod
from typing import Any

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.cxx import boolean
from bolt_build.families.common.epilogue import chain, refuse_stages
from bolt_build.families.common.geometry import MOST_AXES
from bolt_build.families.common.problems import op_operands
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.lines.rows import BLOCK, LANES, WARP, RowTile, in_a_warp, refuse_row
from bolt_build.families.portable.kernels.norms import (
    norm_ahead,
    norm_batches,
    norm_both,
    norm_fitted,
    norm_gathered,
    norm_held,
    norm_images,
    norm_paired,
    norm_passes,
    norm_planes,
    norm_slabs,
    norm_staged,
    norm_turns,
)
from bolt_build.families.portable.kernels.norms.norm_loops import loops_of, norm_text, pointers_text, types_text
from bolt_build.families.portable.plain import Plain
from bolt_build.families.portable.rule import Rule, computed_only
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.targets import Gpu

MANY_ROWS = 2048
"""Of so many rows a GPU's warps take two each, so that scale and bias are read half as often. Of fewer rows some
multiprocessors would have none."""
EARLY_LOADS, MOST_EARLY = 8, 4
"""Loads of scale and bias that a thread keeps from before it waits, and of eight elements each."""


def _refuse(problem: KernelProblem) -> str | None:
    if (reason := computed_only(problem) or refuse_stages(problem)) is not None:
        return reason
    loops = loops_of(problem)
    most = max(len(loops.kept), len(loops.reduced))
    return Reason("normalises in {} loops, at most {} are supported", most, MOST_AXES) if most > MOST_AXES else None


def _early(problem: KernelProblem, loads: int) -> bool:
    """True where scale and bias are constants that all rows share, which warps may ask for before they wait: a thread
    has registers for few of them."""
    own, loops = op_operands(problem), loops_of(problem)
    few = loads <= (MOST_EARLY if loops.lanes == LANES else EARLY_LOADS)
    return few and loops.shares_operands and all(problem.inputs[index].constant for index in own[1:])


def _usual(problem: KernelProblem) -> RowTile | None:
    """Rows in registers; None where elements are read three times."""
    loops = loops_of(problem)
    loads, threads = loops.in_registers
    if not loads:
        return None
    if in_a_warp(loads, threads, loops.reduced[-1].extent, loops.lanes):
        return RowTile(WARP)
    rows = prod(loop.extent for loop in loops.kept)
    twice = _early(problem, loads) and threads == WARP and rows >= MANY_ROWS
    return RowTile(threads, 2 if twice else 1)


def _refuse_tile(problem: KernelProblem, tile: RowTile) -> str | None:
    loops = loops_of(problem)
    if not loops.lanes:
        return "statistics are not of rows of neighbours"
    return refuse_row(tile, loops.reduced[-1].extent, loops.lanes)


def _emit(problem: KernelProblem, tile: RowTile | None, at: StepExpressions) -> StepCode:
    assert isinstance(problem.op, Norm)
    loops = loops_of(problem)
    extent = loops.reduced[-1].extent
    tile, loads = (RowTile(WARP), 0) if tile is None else (tile, tile.loads(extent, loops.lanes))
    name = "norm<" if not loads or loops.lanes == LANES else f"norm_narrow<{loops.lanes}, "
    call = (
        f"bolt::portable::{name}{loads}, {tile.threads}, {tile.rows}, {boolean(_early(problem, loads))}, "
        f"{types_text(problem)}>(r, {norm_text(loops.kept, loops.reduced, problem.op.epsilon)}, "
        f"{pointers_text(problem, at)}, {chain(problem, at)});"
    )
    return StepCode(("bolt_portable/norm.h",), None, "", call)


def _bandwidth(problem: KernelProblem) -> float:
    """Less of shorter rows, beside which sums and addresses are more, and where rows do not fit into registers: these
    are read three times."""
    loops = loops_of(problem)
    loads, threads = loops.in_registers
    return (0.65 if threads <= WARP else 0.75) * _NARROWER[loops.lanes] if loads else 0.17


_NARROWER = {LANES: 1.0, 4: 1.0, 2: 0.63, 1: 0.5}
"""What is left of that where an access has so many elements, as an H100 measured it of four and of one, and an H200 of
two."""


_READINGS, _STEP, _UNROLLED = 3, 2.4e-7, 4
"""How often elements are read that registers have no room for; seconds from one that a thread reads to its next, which
wait for each other, as measured on an H200; and how many of neighbouring statistics are under way at once."""
_SUMS = 0.6e-6
"""Seconds in which threads of a row join their sums. Fitted, as the parts of the bandwidth are, to 147 times of an
H200."""
_COLUMNS = 2
"""Threads of a block that lie side by side along neighbouring statistics."""


def _latency(problem: KernelProblem) -> float:
    """Seconds that a thread waits for its own elements where registers have no room for rows."""
    loops = loops_of(problem)
    if loops.in_registers[0]:
        return _SUMS
    count = prod(loop.extent for loop in loops.reduced)
    if loops.kept[-1].steps[0] == 1 and loops.reduced[-1].steps[0] != 1:
        return _READINGS * _STEP * ceil(count * _COLUMNS / BLOCK) / _UNROLLED
    return _READINGS * _STEP * ceil(count / BLOCK)


def _around(form: Form[Any]) -> Form[Any]:
    """The form for statistics whose mean it takes off elements."""

    def refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
        if isinstance(problem.op, Norm) and problem.op.statistic == "deviation":
            return "takes the mean off elements, of which a deviation is no part"
        return form.refuse(problem, gpu)

    return replace(form, refuse=refuse)


_PLAIN = Plain(_usual, RowTile.read, _refuse_tile, _emit)
RULES = (
    Rule(
        Norm,
        _refuse,
        _PLAIN.emit_usual,
        lambda problem: 0.05,
        gpu_bandwidth=_bandwidth,
        gpu_latency=_latency,
        in_place=(0,),
        plain=_PLAIN,
        forms=tuple(
            _around(form)
            for form in (
                norm_held.FORM,
                norm_ahead.FORM,
                norm_fitted.FORM,
                norm_both.FORM,
                norm_slabs.FORM,
                norm_passes.FORM,
                norm_turns.FORM,
                norm_batches.FORM,
                norm_staged.FORM,
                norm_staged.IN_REGISTERS,
                norm_images.FORM,
                norm_gathered.FORM,
                norm_paired.FORM,
                norm_planes.FORM,
            )
        ),
    ),
)
