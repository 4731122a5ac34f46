"""Functions of whole lines along an axis: softmax and its logarithm, and the place of the greatest."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.cxx import struct
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.common.geometry import around
from bolt_build.families.portable.kernels.lines.line_groups import GroupTile, groups
from bolt_build.families.portable.kernels.lines.long_lines import SharedTwiceTile, TwiceTile, shared_twice, twice
from bolt_build.families.portable.kernels.lines.paired_lines import PairedTile, paired
from bolt_build.families.portable.kernels.lines.register_lines import RegisterTile, registers
from bolt_build.families.portable.kernels.lines.rows import LANES, WARP, RowTile, held, in_a_warp, refuse_row
from bolt_build.families.portable.kernels.lines.spread_lines import SpreadTile, spread
from bolt_build.families.portable.kernels.lines.staged import Lines, StagedTile, staged
from bolt_build.families.portable.kernels.norms.norm_loops import with_scratch
from bolt_build.families.portable.plain import Plain
from bolt_build.families.portable.rule import Rule, computed_only, no_epilogue
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.lines.line import Line
from bolt_build.graph.ops.lines.softmax import Softmax

_ENDINGS = {"softmax": "Shares", "log_softmax": "LogShares"}
_SHORT = 32
"""Elements of lines below which a GPU's thread has a line of its own, in whole accesses."""


def _refuse(problem: KernelProblem) -> str | None:
    return computed_only(problem) or no_epilogue(problem)


def _function(problem: KernelProblem) -> str:
    return problem.op.function if isinstance(problem.op, Line) else "softmax"


def _line(problem: KernelProblem) -> tuple[int, int, int]:
    """Lines, elements of one, and elements between them; see `around`."""
    assert isinstance(problem.op, Line | Softmax)
    return around(problem.outputs[0], problem.op.axis)


def _lanes(axis: int) -> int:
    """Elements of a line that a thread loads at once: as many as there are kernels for."""
    return LANES if axis % LANES == 0 else 1


def _usual(problem: KernelProblem) -> RowTile | None:
    """Lines in registers, None where they are read again, and where their elements are no neighbours."""
    _, axis, inner = _line(problem)
    if inner > 1 or _function(problem) not in _ENDINGS:
        return None
    if axis < _SHORT:
        return RowTile(1)
    loads, threads = held(axis, _lanes(axis))
    if in_a_warp(loads, threads, axis, _lanes(axis)):
        return RowTile(WARP)
    return RowTile(threads) if loads else None


def _refuse_tile(problem: KernelProblem, tile: RowTile) -> str | None:
    _, axis, inner = _line(problem)
    if _function(problem) not in _ENDINGS:
        return "lines are read again"
    if inner > 1:
        return "elements of a line are no neighbours"
    if tile.rows > 1:
        return "a line has threads of its own: one at a time"
    if tile.threads > 1:
        return refuse_row(tile, axis, _lanes(axis))
    return Reason("a thread has lines of less than {} elements", _SHORT) if axis >= _SHORT else None


@dataclass(frozen=True)
class _Across:
    """How a GPU holds lines whose elements are no neighbours: `parts` threads share one, each of which holds so many
    `loads` of `lanes` lines that lie side by side. No loads: each line is read again."""

    loads: int
    parts: int
    lanes: int


_PARTS, _MOST_LOADS, _MOST_BYTES = (1, 8, WARP), 32, 160
"""Threads that share such a line; loads of one of them, and bytes that it holds."""


def _across(problem: KernelProblem) -> _Across:
    _, axis, inner = _line(problem)
    for parts in _PARTS:
        loads = ceil(axis / parts)
        if loads <= _MOST_LOADS:
            size = problem.inputs[0].format.dtype.nbytes
            lanes = next(n for n in (8, 4, 2, 1) if n == 1 or (inner % n == 0 and loads * n * size <= _MOST_BYTES))
            # A thread that has one line alone reads it again as fast, as measured on an H100.
            return _Across(0 if parts == lanes == 1 else loads, parts, lanes)
    return _Across(0, 1, 1)


_LINE, _READ_AGAIN, _COLUMNS = 0.7e-6, 0.3, 0.4
"""Seconds in which threads join sums of a line after its greatest. Parts of the bandwidth where lines are read again,
from caches; and where their elements are no neighbours."""
_HELD = {LANES: 0.78, 1: 0.38}
"""The part of it where lines of neighbours are held in accesses of so many elements, as measured on an H200 and an
H100."""
_TINY, _FEWEST = 0.27, 4
"""The same where a thread has a line of so few neighbours: an H200 took pairs so."""
_INSTRUCTIONS = 0.006
"""The part of the peak rate of tensor cores that a GPU's plain instructions reach here. Lines that an H200 timed were
bound by memory: 50 million elements in lines of 128 took 55 us."""


_OF_BLOCK, _OF_THREAD = 4e-10, 3e-7
"""Seconds of an element in lines that are read again, of neighbours by a block, and others by a thread: the latter asks
for one element behind the other. As an H200 took them."""


def _latency(problem: KernelProblem) -> float:
    """Seconds in which threads of a line wait for each other, and for elements that nobody holds."""
    _, axis, inner = _line(problem)
    if _usual(problem) is not None or (inner > 1 and _across(problem).loads > 0):
        return _LINE
    return _LINE + axis * (_OF_THREAD if inner > 1 else _OF_BLOCK)


def _bandwidth(problem: KernelProblem) -> float:
    if _usual(problem) is not None:
        axis = _line(problem)[1]
        return _TINY if axis <= _FEWEST else _HELD[_lanes(axis)]
    across = _function(problem) in _ENDINGS and _line(problem)[2] > 1 and _across(problem).loads > 0
    return _COLUMNS if across else _READ_AGAIN


def _softmax(
    problem: KernelProblem, at: StepExpressions, name: str, how: tuple[object, ...], more: str = ""
) -> StepCode:
    """A call of a kernel whose template arguments after the ending are `how`, with `more` arguments in front of the
    pointers."""
    outer, axis, inner = _line(problem)
    parameters = struct("bolt::portable::Softmax", outer=outer, axis=axis, inner=inner)
    ending = f"bolt::portable::{_ENDINGS[_function(problem)]}"
    arguments = ", ".join(map(str, (ending, *how, *_types(problem))))
    call = f"bolt::portable::{name}<{arguments}>(r, {parameters}, {more}{at.inputs[0]}, {at.outputs[0]});"
    return StepCode(("bolt_portable/softmax.h",), None, "", call)


def _types(problem: KernelProblem) -> tuple[str, str]:
    return COMPUTED[problem.inputs[0].format.dtype], COMPUTED[problem.outputs[0].format.dtype]


def _emit(problem: KernelProblem, tile: RowTile | None, at: StepExpressions) -> StepCode:
    outer, axis, inner = _line(problem)
    if _function(problem) not in _ENDINGS:
        parameters = struct("bolt::portable::Line", outer=outer, axis=axis, inner=inner)
        types = ", ".join(_types(problem))
        call = (
            f"bolt::portable::line<bolt::portable::Hardmax, {types}>(r, {parameters}, {at.inputs[0]}, {at.outputs[0]});"
        )
        return StepCode(("bolt_portable/line.h",), None, "", call)
    if inner > 1:
        across = _across(problem)
        return _softmax(problem, at, "softmax_across", (across.loads, across.parts, across.lanes))
    lanes = _lanes(axis)
    how = (0, WARP, lanes) if tile is None else (tile.loads(axis, lanes), tile.threads, lanes)
    return _softmax(problem, at, "softmax", how)


_FEW = 4
"""Neighbours of an access that is as fast as whole ones, where lines side by side are a multiple of it."""


def _serves_staged(problem: KernelProblem) -> bool:
    """Lines of which no access divides what lies side by side."""
    if not _has_shares(problem):
        return False
    _, axis, inner = _line(problem)
    return inner % _FEW != 0 if inner > 1 else axis % LANES != 0


def _lines(problem: KernelProblem) -> Lines:
    return Lines(*_line(problem), problem.inputs[0].format.dtype.nbytes, problem.outputs[0].format.dtype.nbytes)


def _emit_staged(problem: KernelProblem, tile: StagedTile | RegisterTile, at: StepExpressions) -> StepCode:
    return _softmax(problem, at, "softmax_staged", (tile.text(_lines(problem)),))


def _emit_twice(problem: KernelProblem, tile: TwiceTile, at: StepExpressions) -> StepCode:
    return _softmax(problem, at, "softmax_twice", (tile.threads, tile.across))


def _emit_shared(problem: KernelProblem, tile: SharedTwiceTile, at: StepExpressions) -> StepCode:
    outer, axis, inner = _line(problem)
    parameters = struct("bolt::portable::Softmax", outer=outer, axis=axis, inner=inner)
    ending, types = f"bolt::portable::{_ENDINGS[_function(problem)]}", ", ".join(_types(problem))
    how = f"{ending}, {tile.threads}, {tile.across}, {types}, {tile.cluster}"
    call = f"bolt::portable::softmax_twice<{how}>(r, {parameters}, {at.inputs[0]}, {at.outputs[0]});"
    return StepCode(("bolt_portable/softmax.h",), None, "", call)


def _emit_groups(problem: KernelProblem, tile: GroupTile, at: StepExpressions) -> StepCode:
    return _softmax(problem, at, "softmax_groups", (tile.text(_lines(problem)),), f"{tile.blocks}, ")


def _emit_spread(problem: KernelProblem, tile: SpreadTile, at: StepExpressions) -> StepCode:
    return _softmax(problem, at, "softmax_spread", (tile.threads, tile.cluster), f"{tile.holds << 10}, ")


def _emit_paired(problem: KernelProblem, tile: PairedTile, at: StepExpressions) -> StepCode:
    of = _lines(problem)
    at, member = with_scratch(problem, tile.scratch(of), at)
    code = _softmax(problem, at, "softmax_paired", (tile.text(of),))
    return StepCode(code.includes, *member, code.call)


def _has_shares(problem: KernelProblem) -> bool:
    return isinstance(problem.op, Line | Softmax) and _function(problem) in _ENDINGS


_STAGED = staged(_serves_staged, _lines, lambda problem: None, _emit_staged)
_REGISTERS = registers(_has_shares, _lines, lambda problem: None, _emit_staged)
_TWICE = twice(_has_shares, _lines, _emit_twice)
_SHARED = shared_twice(_has_shares, _lines, _emit_shared)
_GROUPS = groups(_has_shares, _lines, _emit_groups)
_SPREAD = spread(_has_shares, _lines, _emit_spread)
_PAIRED = paired(lambda problem: _has_shares(problem) and _usual(problem) is None, _lines, _emit_paired)
_PLAIN = Plain(_usual, RowTile.read, _refuse_tile, _emit)
RULES = tuple(
    Rule(
        op,
        _refuse,
        _PLAIN.emit_usual,
        lambda problem: 0.002,
        gpu_efficiency=_INSTRUCTIONS,
        gpu_bandwidth=_bandwidth,
        gpu_latency=_latency,
        in_place=(0,),
        plain=_PLAIN,
        forms=(_STAGED, _REGISTERS, _TWICE, _SHARED, _GROUPS, _SPREAD, _PAIRED),
    )
    for op in (Softmax, Line)
)
