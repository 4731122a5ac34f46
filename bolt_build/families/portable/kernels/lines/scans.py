"""How a GPU finds running sums and products: of lines of neighbours in whole words, wherever a line begins, and across
neighbours with several threads a line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, log2, prod

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import occupancy
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.common.cxx import boolean
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.lines.line_extents import lines_text
from bolt_build.families.portable.kernels.lines.rows import BLOCK, WARP
from bolt_build.families.portable.kernels.reductions.folds import COUNTED, LOADS, WORD
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.portable.typed import ctype
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.lines.lines import CumProd, CumSum
from bolt_build.targets import Gpu, Target

THREADS = (8, 16, WARP, BLOCK)
"""Threads that a line of neighbours may have: less than a warp where it has a turn of a few words."""
TOTAL = 8
"""Bytes of what a part of a line comes to, at most."""
ACROSS = (4, 8, 16, WARP, 64)
"""Threads of a block that lie side by side, each with lines of its own."""


@dataclass(frozen=True)
class ScanRunsTile:
    """A line of neighbours has so many threads; `blocks` blocks share it."""

    threads: int
    blocks: int = 1

    @property
    def parameters(self) -> Named:
        return (("threads", self.threads),)

    @property
    def settings(self) -> Named:
        return (("blocks", self.blocks),)

    @staticmethod
    def read(reader: Reader) -> ScanRunsTile:
        return ScanRunsTile(reader.number("threads"), reader.number("blocks"))


@dataclass(frozen=True)
class ScanColumnsTile(NumberTile):
    """Of a block's threads `across` have `lanes` lines each that lie side by side, and the others parts of these."""

    lanes: int
    across: int

    def held(self, element: int) -> int:
        """Elements of a line that a thread has in registers."""
        return 8 if self.lanes * element >= WORD else 16


@dataclass(frozen=True)
class Scanned:
    """So many lines of `extent` elements, `inner` of which lie side by side, of `element` bytes each."""

    many: int
    extent: int
    inner: int
    element: int


def scanned_lines(problem: KernelProblem) -> Scanned:
    """Of row-major tensors: there are no others."""
    op, x = problem.op, problem.inputs[0]
    assert isinstance(op, CumSum | CumProd)
    extent, inner = x.shape[op.axis], prod(x.shape[op.axis + 1 :])
    return Scanned(x.type.elements // max(extent, 1), extent, inner, x.format.dtype.nbytes)


def refuse_scan(problem: KernelProblem, gpu: Gpu) -> str | None:
    elements = problem.inputs[0].type.elements
    if elements == 0:
        return "there are no elements"
    return Reason("{} elements are more than the {} that it counts", elements, COUNTED) if elements > COUNTED else None


def _turns(lines: Scanned, threads: int) -> int:
    """How often the threads of a line ask for words."""
    return ceil(ceil((lines.extent * lines.element + WORD - lines.element) / WORD) / (threads * LOADS))


def _runs(lines: Scanned, gpu: Gpu) -> Iterator[ScanRunsTile]:
    """A warp or a block a line; several blocks where these are few and long."""
    yield from (ScanRunsTile(threads) for threads in THREADS if threads >= WARP or _turns(lines, threads) == 1)
    wanted = (ceil(waves * gpu.sms / max(lines.many, 1)) for waves in (1, 2, 4))
    for blocks in dict.fromkeys(min(each, _turns(lines, BLOCK)) for each in wanted):
        if blocks > 1:
            yield ScanRunsTile(BLOCK, blocks)


def _refuse_runs(tile: ScanRunsTile, lines: Scanned) -> str | None:
    if tile.threads not in THREADS:
        return Reason("no line has {} threads", tile.threads)
    if tile.blocks > 1 and tile.threads < BLOCK:
        return "blocks share a line that all of their threads have"
    turns = _turns(lines, tile.threads)
    return Reason("{} parts of a line are not shared by {} blocks", turns, tile.blocks) if tile.blocks > turns else None


def widest(lines: Scanned) -> int:
    """Elements of the widest access that lines side by side are whole ones of."""
    most = WORD // lines.element
    return next(n for n in (16, 8, 4, 2, 1) if n <= most and lines.inner % n == 0)


def _columns(lines: Scanned) -> Iterator[ScanColumnsTile]:
    return (ScanColumnsTile(widest(lines), across) for across in ACROSS)


def refuse_columns(tile: ScanColumnsTile, lines: Scanned) -> str | None:
    if tile.across not in ACROSS:
        return Reason("no {} threads have lines side by side", tile.across)
    if tile.lanes < 1 or tile.lanes * lines.element > WORD or tile.lanes & (tile.lanes - 1):
        return Reason("{} elements of {} bytes are not one access", tile.lanes, lines.element)
    if lines.inner % tile.lanes:
        return Reason("{} lines side by side are no whole accesses of {}", lines.inner, tile.lanes)
    return None


_REGISTERS = 72
_REACHED, _ACROSS, _SECTOR, _NARROW = 0.8, 0.55, 32, 8
"""The parts of a GPU's bandwidth that words reach which are read and stored, of runs and across neighbours; bytes of a
sector of memory; and those of a word below which a thread asks for two rounds at once. Those across neighbours are
fitted to sixteen kernels of an H200, which are off by 20%."""
_WAIT, _ROUND = 4.0e-6, 0.7e-6
"""Seconds in which what a block has under way is read, scanned and stored, on a busy GPU, as lines of 512 elements took
on an H200 in one, four and eight rounds; and a guess at what a round takes on one that is not."""
_TWICE = 2.3
"""How many times as long two launches take, of which the first stores nothing and leaves a part in L2."""
_ISSUED = 128 * 1.6e9 * 0.6
"""A guess at the instructions of threads that a multiprocessor begins in a second."""
_OF_RUNS, _SHORT = 0.45, 2.2
"""The part of the instructions below that runs take, and how many times as many bytes are under way of lines that a
part of a warp has: as nine kernels of an H200 did."""
_ELEMENT, _SCANNED, _PREFIX = 6.0, 45.0, 60.0
"""Guesses at the instructions of an element; of a word whose threads are scanned, those of a block twice; and of a
thread that looks for what stands in front of its part."""


def _seconds(
    problem: KernelProblem, blocks: int, rounds: int, under_way: float, issued: float, target: Target,
    most: float = _REACHED,
) -> float:  # fmt: skip
    """Of `rounds` of loads of each of `blocks` blocks, whose bytes are `under_way` together on average."""
    gpu = target.gpu
    assert gpu is not None, "forms are for GPUs"
    resident = min(occupancy(BLOCK, _REGISTERS, 0, gpu), blocks / gpu.sms)
    reached = min(most, 2 * under_way * resident * gpu.sms / (_WAIT * target.bandwidth))  # stores wait for nobody
    issue = issued / (_ISSUED * gpu.sms * min(1.0, blocks / gpu.sms))
    memory = moved(problem.nbytes, target) / reached
    return max(memory, issue, _ROUND * rounds) + OVERLAPPED * target.launch_seconds + _ROUND


def _seconds_of_runs(problem: KernelProblem, tile: ScanRunsTile, target: Target) -> float:
    lines = scanned_lines(problem)
    lanes = WORD // lines.element
    words = ceil((lines.extent + lanes - 1) / lanes)
    turns = ceil(words / tile.threads)
    rounds, together = ceil(turns / (LOADS * tile.blocks)), BLOCK // tile.threads
    scanned = _SCANNED * (1 if tile.threads <= WARP else 2)
    issued = _OF_RUNS * lines.many * tile.threads * turns * (lanes * _ELEMENT + scanned)
    used = lines.extent * lines.element / (rounds * tile.blocks * LOADS * tile.threads * WORD)
    blocks = ceil(lines.many / together) * tile.blocks
    # Short lines wait once, so more of them begin meanwhile.
    under_way = BLOCK * LOADS * WORD * used * (_SHORT if tile.threads < WARP else 1.0)
    once = _seconds(problem, blocks, rounds, under_way, issued, target)
    return once if tile.blocks == 1 else _TWICE * once + _ROUND


def _seconds_of_columns(problem: KernelProblem, tile: ScanColumnsTile, target: Target) -> float:
    lines = scanned_lines(problem)
    parts, held = BLOCK // tile.across, tile.held(lines.element)
    blocks = ceil(lines.many / tile.lanes / tile.across)
    rounds = ceil(lines.extent / (parts * held))
    run = min(tile.across * tile.lanes, lines.inner) * lines.element
    used = lines.extent / (rounds * parts * held)
    # Runs that begin within sectors take one more, and short ones are slower.
    whole = run / (run + (_SECTOR if lines.inner * lines.element % _SECTOR else _NARROW))
    word = held * tile.lanes * lines.element * (2 if tile.lanes * lines.element < _NARROW else 1)
    each = held * tile.lanes * (_ELEMENT + 4 / tile.lanes) + _PREFIX + 4 * log2(parts)
    issued = blocks * BLOCK * rounds * each
    gpu = target.gpu
    assert gpu is not None, "forms are for GPUs"
    spread = blocks / (ceil(blocks / gpu.sms) * gpu.sms)  # some multiprocessors have a block more than others
    most = _ACROSS * whole * spread**0.5
    return _seconds(problem, blocks, rounds, BLOCK * word * used * whole, issued, target, most)


def function_of(problem: KernelProblem) -> tuple[str, int]:
    """The C++ type that joins two elements, and what comes of none."""
    return ("bolt::portable::typed::Add", 0) if isinstance(problem.op, CumSum) else ("bolt::portable::typed::Mul", 1)


def _emit_runs(problem: KernelProblem, tile: ScanRunsTile, at: StepExpressions) -> StepCode:
    op, lines, (function, first) = problem.op, scanned_lines(problem), function_of(problem)
    assert isinstance(op, CumSum | CumProd)
    how = f"{tile.threads}, {boolean(op.reverse)}, {ctype(problem.inputs[0].format.dtype)}, {function}"
    flags = f"{tile.blocks}, {boolean(op.exclusive)}"
    given = f"{lines.many}, {lines.extent}, {flags}, {at.inputs[0]}, {at.outputs[0]}, {first}"
    call = f"bolt::portable::scan_runs<{how}>(r, {given});"
    header = ("bolt_portable/cuda/lines/scan_runs.h",)
    if tile.blocks == 1:
        return StepCode(header, None, "", call)
    return StepCode(header, "bolt::portable::SharedTotals", str(lines.many * tile.blocks * TOTAL), call)


def _emit_columns(problem: KernelProblem, tile: ScanColumnsTile, at: StepExpressions) -> StepCode:
    op, x, (function, first) = problem.op, problem.inputs[0], function_of(problem)
    assert isinstance(op, CumSum | CumProd)
    how = f"{tile.lanes}, {tile.across}, {ctype(x.format.dtype)}, {function}"
    flags = f"{boolean(op.exclusive)}, {boolean(op.reverse)}"
    given = f"{lines_text(x, op.axis)}, {flags}, {at.inputs[0]}, {at.outputs[0]}, {first}"
    call = f"bolt::portable::scan_columns<{how}>(r, {given});"
    return StepCode(("bolt_portable/cuda/lines/scan_columns.h",), None, "", call)


RUNS: Form[ScanRunsTile] = Form(
    "runs",
    lambda problem: scanned_lines(problem).inner == 1,
    refuse_scan,
    lambda problem, gpu: _runs(scanned_lines(problem), gpu),
    lambda problem, tile, gpu: _refuse_runs(tile, scanned_lines(problem)),
    _seconds_of_runs,
    ScanRunsTile.read,
    _emit_runs,
)
COLUMNS: Form[ScanColumnsTile] = Form(
    "columns",
    lambda problem: scanned_lines(problem).inner > 1,
    refuse_scan,
    lambda problem, gpu: _columns(scanned_lines(problem)),
    lambda problem, tile, gpu: refuse_columns(tile, scanned_lines(problem)),
    _seconds_of_columns,
    ScanColumnsTile.read,
    _emit_columns,
)
