"""How atomic instructions of a GPU scatter along an axis: updates are joined in shared memory as numbers whose order
does not matter, so the result is the same in every run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import occupancy, refuse_shared
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.scatter.scatter_lines import lines_of, parameters, refuse_apart
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.portable.typed import ctype
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.moves.scatter import ScatterElements, ScatterND
from bolt_build.targets import Gpu, Target

THREADS, _REGISTERS, COLUMNS_BESIDE, WORD = (256, 512), 64, (32, 16, 8), 4
"""Threads of a block and registers of one (`atomic_registers`), lines of a block side by side, and bytes of a word."""
_ALL = 1024
"""Threads of a block of lines side by side that has a multiprocessor's shared memory for itself."""
_RUNS = (2048, 4096, 8192, 12288)
"""Elements of a block's lines that are tried, where these are one run of memory."""
_MORE, _MOST = 1 << 22, 0x7FFFFFFF
"""Updates of an element that a sum has room for (`SharedSum`), and what a signed number of 32 bits holds."""


@dataclass(frozen=True)
class AtomicColumnsTile(NumberTile):
    """A block has the lines of so many neighbours along the axes behind."""

    columns: int
    threads: int


@dataclass(frozen=True)
class AtomicRunsTile(NumberTile):
    """A block has all lines of so many neighbours along the axes in front."""

    SETTINGS = ("outers",)

    outers: int
    threads: int


def refuse_updates(problem: KernelProblem, most: int) -> str | None:
    """Why updates cannot be joined in any order, None where they can: in numbers of so many bytes at most."""
    op, data = problem.op, problem.inputs[0].format.dtype
    assert isinstance(op, (ScatterElements, ScatterND))
    reduction = op.reduction
    if reduction == "mul":
        return "products depend on the order of updates"
    if data.nbytes > most or data in (DType.BOOL, DType.F64):
        return f"{data.value} is not joined in words of {8 * most} bits"
    if reduction == "add" and data.is_float and data is not DType.F16:
        return f"sums of {data.value} depend on the order of updates"
    return None


def last_counts(problem: KernelProblem) -> bool:
    """Whether updates replace elements: numbers of updates are joined, whatever their type."""
    assert isinstance(problem.op, ScatterElements)
    return problem.op.reduction == "none"


def updates_of(problem: KernelProblem) -> int:
    """Updates of a line."""
    assert isinstance(problem.op, ScatterElements)
    return problem.inputs[1].shape[problem.op.axis]


def words_of(problem: KernelProblem) -> int:
    """Words of an element in shared memory."""
    op, data = problem.op, problem.inputs[0].format.dtype
    assert isinstance(op, ScatterElements)
    return 2 if op.reduction == "add" and data is DType.F16 else 1


def functions_of(problem: KernelProblem) -> str:
    """C++ of how updates are joined in shared memory."""
    op, data = problem.op, problem.inputs[0].format.dtype
    assert isinstance(op, ScatterElements)
    if last_counts(problem):
        return f"bolt::portable::SharedLast<{ctype(data)}>"
    if op.reduction != "add":
        return f"bolt::portable::SharedExtreme<{ctype(data)}, {str(op.reduction == 'max').lower()}>"
    if data is DType.F16:
        return "bolt::portable::SharedSum"
    return f"bolt::portable::SharedInteger<{ctype(data)}>"


def refuse_joined(problem: KernelProblem, gpu: Gpu) -> str | None:
    """Why no block joins updates of its lines in any order, None where one may."""
    assert isinstance(problem.op, ScatterElements)
    if (reason := refuse_apart(problem)) is not None:
        return reason
    if not last_counts(problem) and (reason := refuse_updates(problem, WORD)) is not None:
        return reason
    many = updates_of(problem)
    if problem.op.reduction == "add" and problem.inputs[0].format.dtype is DType.F16 and many > _MORE:
        return Reason("{} updates of a line are more than the {} that it has room for", many, _MORE)
    outer, length, inner = lines_of(problem)
    if (most := outer * max(length, many) * inner) > _MOST:
        return Reason("{} elements are more than the {} that it counts", most, _MOST)
    return None


def _shared_columns(problem: KernelProblem, tile: AtomicColumnsTile) -> int:
    """Bytes of shared memory of a block (`AtomicColumns::shared`)."""
    return lines_of(problem)[1] * tile.columns * words_of(problem) * WORD


def _shared_runs(problem: KernelProblem, tile: AtomicRunsTile) -> int:
    """The same of `AtomicRuns`."""
    _, length, inner = lines_of(problem)
    elements, lanes = tile.outers * length * inner, 16 // problem.inputs[0].format.dtype.nbytes
    return (elements + elements // lanes) * words_of(problem) * WORD


def _columns(problem: KernelProblem, gpu: Gpu) -> Iterator[AtomicColumnsTile]:
    inner = lines_of(problem)[2]
    fit = [each for each in COLUMNS_BESIDE if each < 2 * inner or each == COLUMNS_BESIDE[-1]]
    for each in fit:
        alone = 2 * _shared_columns(problem, AtomicColumnsTile(each, _ALL)) > gpu.shared_memory
        yield from (AtomicColumnsTile(each, threads) for threads in (*THREADS, *((_ALL,) if alone else ())))


def _refuse_columns(problem: KernelProblem, tile: AtomicColumnsTile, gpu: Gpu) -> str | None:
    if tile.columns not in COLUMNS_BESIDE:
        return Reason("there are blocks of 8, 16 or 32 lines, not of {}", tile.columns)
    if tile.threads not in (*THREADS, _ALL):
        return Reason("there are blocks of 256, 512 or 1024 threads, not of {}", tile.threads)
    return refuse_shared(_shared_columns(problem, tile), gpu)


def _runs(problem: KernelProblem, gpu: Gpu) -> Iterator[AtomicRunsTile]:
    outer, length, inner = lines_of(problem)
    tried = dict.fromkeys(min(outer, max(1, run // (length * inner))) for run in _RUNS)
    return (AtomicRunsTile(outers, threads) for outers in tried for threads in THREADS)


def _refuse_runs(problem: KernelProblem, tile: AtomicRunsTile, gpu: Gpu) -> str | None:
    outer = lines_of(problem)[0]
    if tile.threads not in THREADS:
        return Reason("there are blocks of 256 or 512 threads, not of {}", tile.threads)
    if tile.outers > outer:
        return Reason("{} rows are more than the {} that there are", tile.outers, outer)
    return refuse_shared(_shared_runs(problem, tile), gpu)


_REACHED, _BEGIN, _BLOCK = 0.8, 2.0e-6, 3.0e-6
"""The part of the bandwidth; seconds in which a kernel begins and ends, and those of a block at least."""
_UPDATE, _ELEMENT, _INSTRUCTION, BANKS = 0.7e-12, 1.2e-12, 1.0e-12, 2.5
"""Seconds of a GPU for an update, for an element from memory and back to it, and for an atomic instruction's part in
one; and how many times as long that takes where threads of one meet in banks at random. They follow 40 kernels of an
H200."""
_CARRIED, _EACH = 1.2, 0.3e-6
"""Atomic instructions of an update of a sum of two words, which seldom carries; and seconds of a thread for each update
that its block goes through, as it asks for the next ones meanwhile."""
_PASSED, _NAMED = 0.7e-12, 0.2e-12
"""Seconds of a GPU for an update that is of another block's elements, and for each byte of its index."""
_OVERLAPPED = 0.9
"""The part of that which does not go on beside memory's accesses."""


def seconds_of(
    problem: KernelProblem,
    blocks: int,
    threads: int,
    shared: int,
    banks: float,
    padded: float,
    target: Target,
    own: float,
    passes: int = 1,
) -> float:
    """`own`: updates that a block goes through. `passes`: how many blocks go through the same ones, of which each joins
    those of its own elements."""
    gpu = target.gpu
    assert gpu is not None, "lines are of a GPU's blocks"
    elements, updates = problem.inputs[0].type.elements, problem.inputs[1].type.elements
    there = occupancy(threads, _REGISTERS, shared, gpu)
    each = _UPDATE + (_CARRIED if words_of(problem) > 1 else 1.0) * _INSTRUCTION * banks
    computed = updates * each + elements * _ELEMENT * words_of(problem)
    computed += (passes - 1) * updates * (_PASSED + problem.inputs[1].format.dtype.nbytes * _NAMED)
    rounds = ceil(blocks / (gpu.sms * there))
    uneven = rounds * gpu.sms * there / blocks if rounds <= _FEW_ROUNDS else 1.0
    alone = _ALONE if there * threads < _ALONE_THREADS else 1.0
    taken = moved(problem.nbytes, target) / _REACHED + _OVERLAPPED * computed * padded
    taken *= _SOUGHT if last_counts(problem) and banks == 1.0 else 1.0
    taken = max(taken * min(uneven, _MOST_UNEVEN) * alone, rounds * (_BLOCK + own / threads * _EACH))
    return float(_BEGIN + taken + OVERLAPPED * target.launch_seconds)


_FEW_ROUNDS, _MOST_UNEVEN, _ALONE, _ALONE_THREADS, _SOUGHT = 3, 1.25, 1.3, 768, 1.5
"""Rounds of blocks up to which the last one counts, and how much at most; how much longer it takes where a
multiprocessor has fewer threads than so many; and where values of the updates that count are read at the end, of
lines side by side."""


_COLUMN_MEMORY, _ROUND, _ROUND_ELEMENT, _ROUND_UPDATE, _SECOND = 0.84, 4.55e-6, 0.395e-10, 9.1e-10, 0.944e-12
"""Of lines side by side: the part of the bandwidth, seconds of a round of blocks, for each word of its elements and for
each update of a thread, and those of a GPU for the second word of an update. They follow fifteen kernels of an H200,
off by 20% at most."""
_SECTOR, _HALF_SECTOR = 32, 1.45
"""Bytes that memory gives at least, and how much longer it takes where rows of a block are less."""


def _seconds_of_columns(problem: KernelProblem, tile: AtomicColumnsTile, target: Target) -> float:
    """A block's updates wait for its elements, and its results for its updates: rounds of blocks follow each other."""
    gpu, (outer, length, inner) = target.gpu, lines_of(problem)
    assert gpu is not None, "lines are of a GPU's blocks"
    blocks, words, updates = outer * ceil(inner / tile.columns), words_of(problem), problem.inputs[1].type.elements
    there = occupancy(tile.threads, _REGISTERS, _shared_columns(problem, tile), gpu)
    rounds = blocks / (gpu.sms * there)
    rounds = ceil(rounds) if rounds <= _FEW_ROUNDS else rounds
    one = _ROUND + length * tile.columns * words * _ROUND_ELEMENT
    one += updates_of(problem) * tile.columns / tile.threads * _ROUND_UPDATE
    narrow = _HALF_SECTOR if tile.columns * problem.inputs[0].format.dtype.nbytes < _SECTOR else 1.0
    taken = moved(problem.nbytes, target) / _COLUMN_MEMORY * narrow + rounds * one + updates * (words - 1) * _SECOND
    taken *= _SOUGHT if last_counts(problem) else 1.0
    return float(_BEGIN + taken + OVERLAPPED * target.launch_seconds)


def _seconds_of_runs(problem: KernelProblem, tile: AtomicRunsTile, target: Target) -> float:
    outer, _, inner = lines_of(problem)
    banks = 1.0 if inner % 32 == 0 else BANKS
    own, shared = tile.outers * updates_of(problem) * inner, _shared_runs(problem, tile)
    return seconds_of(problem, ceil(outer / tile.outers), tile.threads, shared, banks, 1.0, target, own)


def _emit_columns(problem: KernelProblem, tile: AtomicColumnsTile, at: StepExpressions) -> StepCode:
    indices, inner = problem.inputs[1].format.dtype, lines_of(problem)[2]
    lanes = 2 if inner % 2 == 0 else 1
    types = f"{functions_of(problem)}, {tile.columns}, {tile.threads}, {lanes}, {ctype(indices)}"
    given = f"{parameters(problem, 1, tile.columns)}, {', '.join((*at.inputs, *at.outputs))}"
    header = ("bolt_portable/cuda/scatter/scatter_atomics.h",)
    return StepCode(header, None, "", f"bolt::portable::scatter_atomic_columns<{types}>(r, {given});")


def _emit_runs(problem: KernelProblem, tile: AtomicRunsTile, at: StepExpressions) -> StepCode:
    types = f"{functions_of(problem)}, {tile.threads}, {ctype(problem.inputs[1].format.dtype)}"
    given = f"{parameters(problem, tile.outers, 1)}, {', '.join((*at.inputs, *at.outputs))}"
    header = ("bolt_portable/cuda/scatter/scatter_atomics.h",)
    return StepCode(header, None, "", f"bolt::portable::scatter_atomic_runs<{types}>(r, {given});")


def is_there(problem: KernelProblem) -> bool:
    return problem.outputs[0].type.elements > 0 and problem.inputs[-1].type.elements > 0


COLUMNS: Form[AtomicColumnsTile] = Form(
    "atomic_columns",
    lambda problem: is_there(problem) and lines_of(problem)[2] > 1,
    refuse_joined,
    _columns,
    _refuse_columns,
    _seconds_of_columns,
    AtomicColumnsTile.read,
    _emit_columns,
)
RUNS: Form[AtomicRunsTile] = Form(
    "atomic_runs",
    is_there,
    refuse_joined,
    _runs,
    _refuse_runs,
    _seconds_of_runs,
    AtomicRunsTile.read,
    _emit_runs,
)
