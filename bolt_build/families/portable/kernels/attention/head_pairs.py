"""How a GPU turns heads where both elements of a pair are one thread's: nothing of a row is read twice, and heads that
share cosines and sines read them once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.common.geometry import Loop
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.attention.head_loops import (
    SPACE,
    HeadsForm,
    heads_form,
    loops_of,
    parameters,
    pointers,
    types,
)
from bolt_build.families.portable.kernels.lines.rows import LANES, WARP
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.attention.heads import HeadRows, Rotary
from bolt_build.targets import Gpu, Target

_EACH = (1, 2, 4)
"""Heads of a thread, which share cosines and sines."""


@dataclass(frozen=True)
class HeadPairsTile(NumberTile):
    """A thread has so many heads."""

    each: int


def _cut(form: HeadsForm, loops: tuple[Loop, ...]) -> tuple[int, int] | None:
    """Neighbours of a thread in each half of a head, and the threads of a head, a power of two of a warp's; None where
    no number of neighbours gives one."""
    steps = [step for loop in loops for step in loop.steps]
    half = form.depth // 2
    for lanes in (lanes for lanes in (LANES, 4, 2, 1) if not any(part % lanes for part in (half, *steps))):
        threads = half // lanes
        if threads <= WARP and threads & (threads - 1) == 0:
            return lanes, threads
    return None


def _refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    form = heads_form(problem)
    if form.turned != form.depth:
        return Reason("turns whole heads, of {} elements {} are turned", form.depth, form.turned)
    if _cut(form, loops_of(problem, form)) is None:
        return Reason("halves of heads of {} elements are no loads of a power of two of threads", form.depth)
    return None


def _tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[HeadPairsTile]:
    for each in _EACH:
        yield HeadPairsTile(each)


def _refuse_tile(problem: KernelProblem, tile: HeadPairsTile, gpu: Gpu) -> str | None:
    form = heads_form(problem)
    if tile.each not in _EACH or form.axes[-1] % tile.each:
        return Reason("a thread has {} of {} heads", tile.each, form.axes[-1])
    *_, cosines, sines = loops_of(problem, form)[-1].steps
    return None if tile.each == 1 or cosines == sines == 0 else "heads beside each other are turned by other angles"


_TURNED, _NORMED, _NORMED_ALONE = 0.66, 0.46, 0.39
_HEAD = 0.3e-6
"""Parts of a GPU's bandwidth where heads are turned, where they are normalised too, and where a thread has one such
head alone; and seconds of each of a thread's heads, which wait for each other. Fitted to six layers on an H200, beside
the plain kernel: its predictions are about a fifth below what these layers took, and so are these."""


def _seconds(problem: KernelProblem, tile: HeadPairsTile, target: Target) -> float:
    normed = _NORMED_ALONE if tile.each == 1 else _NORMED
    reached = normed if heads_form(problem).does.statistic else _TURNED
    return moved(problem.nbytes, target) / reached + _HEAD * tile.each + OVERLAPPED * target.launch_seconds


def _emit(problem: KernelProblem, tile: HeadPairsTile, at: StepExpressions) -> StepCode:
    form = heads_form(problem)
    loops = loops_of(problem, form, at.input_pitch(0))
    cut = _cut(form, loops)
    assert cut is not None, "rows lie whole loads apart"
    lanes, threads = cut
    how = f"{lanes}, {threads}, {tile.each}, {types(problem, form)}"
    call = f"{SPACE}::head_pairs<{how}>(r, {parameters(form, loops)}, {pointers(form, at)});"
    return StepCode(("bolt_portable/cuda/attention/head_pairs.h",), None, "", call)


FORM: Form[HeadPairsTile] = Form(
    "pairs", lambda problem: isinstance(problem.op, HeadRows | Rotary), _refuse, _tiles, _refuse_tile, _seconds,
    HeadPairsTile.read, _emit,
)  # fmt: skip
