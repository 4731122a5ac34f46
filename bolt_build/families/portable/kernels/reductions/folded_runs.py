"""How a GPU reduces elementwise functions of several tensors: threads take eight neighbours of each at a time, of the
axis that is folded, or of results that lie side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, log2, prod

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import occupancy
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.elementwise.formula import formula_work
from bolt_build.families.portable.kernels.lines.rows import BLOCK, WARP
from bolt_build.families.portable.kernels.reductions.fold_runs import CLUSTERS, MEETS, MOST_SHARED
from bolt_build.families.portable.kernels.reductions.folds import refuse_blocks, shares
from bolt_build.families.portable.kernels.reductions.formula_nest import FormulaNest, emit_form, given, nest_of, op_of
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

OCTET = 8
"""Neighbours that a thread takes together."""
RUN_THREADS = (1, 2, 4, 8, 16, WARP)
COLUMN_THREADS = (1, 2, 4, 8, 16, 32, 64, 128, BLOCK)


def loads_of(nest: FormulaNest) -> int:
    """Eights of each tensor that a thread asks for at once."""
    inputs = len(nest.folded[-1].steps)
    return (2 if nest.even else 1) * (4 if inputs < 2 else 2 if inputs < 4 else 1)


def _near(problem: KernelProblem, steps: tuple[int, ...]) -> int:
    """Bytes of the tensors that have neighbours along such a loop."""
    return sum(operand.nbytes for operand, step in zip(given(problem), steps, strict=True) if step == 1)


def neighbours_are_folded(problem: KernelProblem) -> bool:
    """Whether most has its neighbours along what is folded."""
    nest = nest_of(problem)
    folded = _near(problem, nest.folded[-1].steps)
    return folded > 0 and (not nest.kept or folded >= _near(problem, nest.kept[-1].steps))


def neighbours_are_kept(problem: KernelProblem) -> bool:
    """Whether most has its neighbours among results that lie side by side."""
    nest = nest_of(problem)
    return bool(nest.kept) and not neighbours_are_folded(problem) and 1 in nest.kept[-1].steps


@dataclass(frozen=True)
class FoldedRunsTile(NumberTile):
    """Of each result `threads` threads take runs of neighbours, `across` of them each; `blocks` blocks share it."""

    SETTINGS = ("blocks",)

    across: int
    threads: int
    blocks: int

    def items(self, nest: FormulaNest) -> int:
        """Pieces of a result."""
        pieces = ceil(nest.folded[-1].extent / (OCTET * self.across * loads_of(nest)))
        return pieces * prod(loop.extent for loop in nest.folded[:-1])

    def tiles(self, nest: FormulaNest) -> int:
        return ceil(nest.results * self.threads / BLOCK)


@dataclass(frozen=True)
class FoldedColumnsTile(NumberTile):
    """`across` threads have eight results each that lie side by side; `blocks` blocks share these."""

    SETTINGS = ("blocks",)

    across: int
    blocks: int

    @property
    def parts(self) -> int:
        """Threads that share results."""
        return BLOCK // self.across

    def tiles(self, nest: FormulaNest) -> int:
        columns = nest.kept[-1].extent
        return ceil(nest.results // columns * ceil(columns / OCTET) / self.across)


def _runs_tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[FoldedRunsTile]:
    nest = nest_of(problem)
    for across in RUN_THREADS:
        for threads in (*RUN_THREADS, BLOCK):
            tile = FoldedRunsTile(across, threads, 1)
            eights, items, groups = ceil(nest.folded[-1].extent / OCTET), tile.items(nest), threads // across
            idle = (across > 1 and eights <= across // 2) or (groups > 1 and items <= groups // 2)
            if threads < across or idle:
                continue
            most = max(items // groups, 1) if threads == BLOCK else 1
            for blocks in shares(tile.tiles(nest), most, gpu):
                yield FoldedRunsTile(across, threads, blocks)


def _columns_tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[FoldedColumnsTile]:
    nest = nest_of(problem)
    for across in COLUMN_THREADS:
        tile = FoldedColumnsTile(across, 1)
        if tile.parts > 1 and nest.count <= tile.parts // 2:
            continue
        for blocks in shares(tile.tiles(nest), max(nest.count // tile.parts, 1), gpu):
            yield FoldedColumnsTile(across, blocks)


def _refuse_runs(problem: KernelProblem, tile: FoldedRunsTile, gpu: Gpu) -> str | None:
    nest = nest_of(problem)
    if tile.across not in RUN_THREADS or tile.threads not in (*RUN_THREADS, BLOCK) or tile.threads < tile.across:
        return Reason("{} threads of a result do not read runs by {}", tile.threads, tile.across)
    if tile.blocks > 1 and tile.threads < BLOCK:
        return "blocks share a result that all of their threads have"
    return refuse_blocks(tile.blocks, tile.tiles(nest), tile.items(nest))


def _refuse_columns(problem: KernelProblem, tile: FoldedColumnsTile, gpu: Gpu) -> str | None:
    nest = nest_of(problem)
    if tile.across not in COLUMN_THREADS:
        return Reason("no {} threads of a block lie side by side", tile.across)
    return refuse_blocks(tile.blocks, tile.tiles(nest), nest.count)


_REACHED, _WAIT, _ROUND = 0.7, 2.35e-6, 0.14e-6
"""The part of a GPU's bandwidth that such loads reach, seconds between an ask and its use on a busy GPU, and on one
that is not, as of reductions of one tensor."""
_ISSUED = 128 * 1.6e9 * 0.6
"""Instructions of threads that a multiprocessor begins in a second."""
_APART = 0.1
"""The part of what is not the longest that does not go on beside it."""
_JOINED, _SHARED, _TOTAL = 0.2e-6, 2.0e-6, 1e-10
"""Seconds in which threads join totals, and blocks theirs through memory; and of each total that the last of these
reads. With all of them 27 times of an H200 are met to a fourth of most."""
_WORD, _BESIDE, _SHIFT, _NUMBER, _ALIKE, _STEP, _ITEM, _RESULT = 6, 58, 9, 1.1, 3, 1.2, 24, 60
"""Instructions of a word, what it takes if no thread beside reads the next one, of two that are shifted together, of
each number, of an element that all eight share, of each term, of eight neighbours beside all that, and of a result."""
_REGISTERS = 64


def _eights(problem: KernelProblem, loop_steps: tuple[int, ...], across: int) -> tuple[float, float]:
    """Instructions of eight neighbours of all tensors, and bytes that a thread asks for of them, where `across` threads
    read neighbours."""
    formula = op_of(problem).formula
    own = nbytes = 0.0
    even = nest_of(problem).even
    for operand, step in zip(given(problem), loop_steps, strict=True):
        size = operand.format.dtype.nbytes
        if step == 1:
            own += size / 2 * (_WORD + _BESIDE / across + _SHIFT * (not even)) + OCTET * _NUMBER
            nbytes += OCTET * size
        else:
            own += _ALIKE if step == 0 else OCTET * (_ALIKE + _NUMBER)
            nbytes += 0 if step == 0 else OCTET * size
    work = formula_work(formula, problem.outputs[0].format.dtype in (DType.F16, DType.BF16))
    return own + OCTET * (_STEP * (len(formula.terms) + 1) + work) + _ITEM, nbytes


def _seconds_of(
    problem: KernelProblem, target: Target, blocks: int, rounds: int, used: float, instructions: float, joined: int
) -> float:
    """The longest of what memory takes with so many bytes under way (`used` of those of a thread), of what instructions
    take, and of loads that wait for those before them; and a part of the others. Of results that blocks share one
    reads `joined` totals."""
    gpu, nest = target.gpu, nest_of(problem)
    assert gpu is not None, "folds are for GPUs"
    inner = nest.folded[-1].steps if neighbours_are_folded(problem) else nest.kept[-1].steps
    asked = max(_eights(problem, inner, 1)[1], 2.0) * loads_of(nest)
    resident = min(occupancy(BLOCK, _REGISTERS, 8 << 10, gpu), blocks / gpu.sms)
    reached = min(_REACHED, resident * BLOCK * asked * used * gpu.sms / (_WAIT * target.bandwidth))
    issue = instructions / (_ISSUED * gpu.sms * min(1.0, blocks / gpu.sms))
    times = moved(problem.nbytes, target) / reached, issue, _ROUND * rounds
    ending = _SHARED + joined * _TOTAL if joined else _JOINED
    return max(times) + _APART * (sum(times) - max(times)) + OVERLAPPED * target.launch_seconds + ending


def _seconds_of_runs(problem: KernelProblem, tile: FoldedRunsTile, target: Target) -> float:
    nest = nest_of(problem)
    loads = loads_of(nest)
    rounds = ceil(ceil(tile.items(nest) / tile.blocks) / (tile.threads // tile.across))
    each, _ = _eights(problem, nest.folded[-1].steps, tile.across)
    threads = nest.results * tile.blocks * tile.threads
    eights = ceil(nest.folded[-1].extent / OCTET) * prod(loop.extent for loop in nest.folded[:-1])
    used = min(1.0, eights * nest.results / (threads * rounds * loads))
    instructions = threads * (rounds * (loads * each + _ITEM) + _RESULT + 3 * log2(tile.threads))
    blocks = tile.tiles(nest) * tile.blocks
    joined = tile.blocks if tile.blocks > 1 else 0
    return _seconds_of(problem, target, blocks, rounds, used, instructions, joined)


def _seconds_of_columns(problem: KernelProblem, tile: FoldedColumnsTile, target: Target) -> float:
    nest = nest_of(problem)
    columns, steps = nest.kept[-1].extent, nest.kept[-1].steps
    loads = loads_of(nest)
    rounds = ceil(ceil(nest.count / tile.blocks) / (tile.parts * loads))
    each, _ = _eights(problem, steps, tile.across)
    blocks = tile.tiles(nest) * tile.blocks
    run = min(tile.across, ceil(columns / OCTET)) * OCTET * 2
    filled = columns / (ceil(columns / OCTET) * OCTET) * run / (run + 32)
    used = min(1.0, nest.count / (tile.blocks * rounds * tile.parts * loads)) * filled
    instructions = blocks * BLOCK * (rounds * (loads * each + _ITEM) + _RESULT + OCTET * 6 * log2(2 * tile.parts))
    joined = tile.blocks * tile.across * OCTET if tile.blocks > 1 else 0
    return _seconds_of(problem, target, blocks, rounds, used, instructions, joined)


def _refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    """The rule has refused what no kernel takes."""
    return None


@dataclass(frozen=True)
class FoldedClusterTile(NumberTile):
    """A cluster of so many blocks has a result, of whose runs `across` threads take one side by side."""

    across: int
    cluster: int

    @property
    def runs(self) -> FoldedRunsTile:
        return FoldedRunsTile(self.across, BLOCK, self.cluster)


def _results_are_few(problem: KernelProblem) -> bool:
    return neighbours_are_folded(problem) and nest_of(problem).results <= MOST_SHARED


def _refuse_all_clusters(problem: KernelProblem, gpu: Gpu) -> str | None:
    return None if gpu.warpgroup_mma else "blocks form clusters from sm_90 on"


def _cluster_tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[FoldedClusterTile]:
    found = (FoldedClusterTile(across, cluster) for across in RUN_THREADS[2:] for cluster in CLUSTERS)
    yield from (tile for tile in found if _refuse_clusters(problem, tile, gpu) is None)


def _refuse_clusters(problem: KernelProblem, tile: FoldedClusterTile, gpu: Gpu) -> str | None:
    if tile.across not in RUN_THREADS or tile.cluster not in CLUSTERS:
        return "up to 32 threads read a run, of clusters of 2, 4 or 8 blocks"
    if tile.cluster * (BLOCK // tile.across) > (items := tile.runs.items(nest_of(problem))):
        return Reason("{} parts of a result are not shared by {} blocks", items, tile.cluster)
    return None


def _seconds_of_clusters(problem: KernelProblem, tile: FoldedClusterTile, target: Target) -> float:
    return _seconds_of_runs(problem, tile.runs, target) - _SHARED + _JOINED + MEETS


def _emit_clusters(problem: KernelProblem, tile: FoldedClusterTile, at: StepExpressions) -> StepCode:
    steps = nest_of(problem).folded[-1].steps
    code = emit_form(problem, at, "formula_run_clusters", (tile.across, tile.cluster), steps, 1, 0)
    return replace(code, includes=("bolt_portable/cuda/reductions/formula_runs.h",))


def _emit_runs(problem: KernelProblem, tile: FoldedRunsTile, at: StepExpressions) -> StepCode:
    nest = nest_of(problem)
    how, totals = (tile.across, tile.threads), nest.results * tile.blocks
    return emit_form(problem, at, "formula_runs", how, nest.folded[-1].steps, tile.blocks, totals)


def _emit_columns(problem: KernelProblem, tile: FoldedColumnsTile, at: StepExpressions) -> StepCode:
    nest = nest_of(problem)
    totals = tile.tiles(nest) * tile.blocks * tile.across * OCTET
    return emit_form(problem, at, "formula_columns", (tile.across,), nest.kept[-1].steps, tile.blocks, totals)


RUNS: Form[FoldedRunsTile] = Form(
    "runs", neighbours_are_folded, _refuse, _runs_tiles, _refuse_runs, _seconds_of_runs, FoldedRunsTile.read, _emit_runs
)
COLUMNS: Form[FoldedColumnsTile] = Form(
    "columns",
    neighbours_are_kept,
    _refuse,
    _columns_tiles,
    _refuse_columns,
    _seconds_of_columns,
    FoldedColumnsTile.read,
    _emit_columns,
)
SHARED: Form[FoldedClusterTile] = Form(
    "run_clusters",
    _results_are_few,
    _refuse_all_clusters,
    _cluster_tiles,
    _refuse_clusters,
    _seconds_of_clusters,
    FoldedClusterTile.read,
    _emit_clusters,
)
