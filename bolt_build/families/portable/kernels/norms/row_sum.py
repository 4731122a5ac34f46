"""Sums of rows of tables and tensors, and their normalisation, in one kernel: embeddings of tokens and of images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, Operand, ProposedStep, StepCode, StepExpressions
from bolt_build.families.common.cxx import boolean, braces, literal, struct
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.common.geometry import Loop, merged, strides
from bolt_build.families.common.problems import problem_of
from bolt_build.families.common.stages import aligned, may_share
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.portable.kernels.lines.rows import RowTile, held, refuse_row
from bolt_build.families.portable.kernels.norms.norm import MANY_ROWS
from bolt_build.families.portable.kernels.norms.norm_loops import STATISTICS
from bolt_build.families.portable.plain import Plain
from bolt_build.families.portable.rule import Rule, no_epilogue
from bolt_build.families.portable.typed import ctype
from bolt_build.families.reason import Reason
from bolt_build.graph.ir import Graph, Layout, Node
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.graph.ops.norms.row_sum import KeptRows, NormedRows, Rows, RowSum
from bolt_build.graph.patterns.row_sums import RowSums, row_sums_from
from bolt_build.targets import Target

_SPACE = "bolt::portable"
_MOST_LOOPS, _MOST_TERMS = 4, 8
"""Axes of a sum's rows that the kernel's parameters have room for, and tensors whose rows are added."""

_FACTORS = {"early": "early", "late": "late"}


@dataclass(frozen=True)
class _Source:
    """One tensor that rows come from, inputs `data` and of a table `indices`. Its rows lie `steps` elements (of the
    indices, where there are some) apart along each axis of rows, and it has those from `begin` to `end` along `axis`,
    -1 where it has all."""

    data: int
    steps: tuple[int, ...]
    indices: int | None = None
    axis: int = -1
    begin: int = 0
    end: int = 0


@dataclass(frozen=True)
class _Form:
    """What a kernel computes: rows of `extent` elements over `axes`, from `sources`; `norm` of them, its own inputs
    begin at `behind`; whether the sum is stored."""

    axes: tuple[int, ...]
    extent: int
    sources: tuple[_Source, ...]
    norm: Norm | None
    behind: int
    stores_sum: bool


@dataclass(frozen=True)
class SumTile:
    """So many `threads` share a row. Scale and bias are asked for `early`, before the kernels in front have finished,
    or `late`, where registers are not to hold them."""

    threads: int
    factors: str

    @property
    def parameters(self) -> Named:
        return ("threads", self.threads), ("factors", self.factors)

    @property
    def settings(self) -> Named:
        return ()

    @staticmethod
    def read(reader: Reader) -> SumTile:
        return SumTile(reader.number("threads"), reader.word("factors", _FACTORS))


def _form(problem: KernelProblem) -> _Form:
    op, shape = problem.op, problem.outputs[0].shape
    total = op.first if isinstance(op, NormedRows) else op
    assert isinstance(total, RowSum)
    norm = op.second if isinstance(op, NormedRows) else None
    assert norm is None or isinstance(norm, Norm)
    sources: list[_Source] = []
    begin = 0
    for term in total.terms:
        own = range(begin, begin + term.operands)
        begin += term.operands
        if term.rows is Rows.TABLE:
            table, indices = own
            sources.append(_Source(table, _steps(problem.inputs[indices], len(shape) - 1), indices))
        elif term.rows is Rows.TENSOR:
            sources.append(_Source(own[0], _row_steps(problem.inputs[own[0]], len(shape))))
        else:
            sources += _joined([problem.inputs[index] for index in own], own[0], term.axis, len(shape))
    stores = norm is None or isinstance(op, KeptRows)
    return _Form(shape[:-1], shape[-1], tuple(sources), norm, total.operands, stores)


def _steps(operand: Operand, rank: int) -> tuple[int, ...]:
    """Elements between neighbours along each of `rank` axes that the operand broadcasts to."""
    own = (0,) * (rank - len(operand.shape)) + strides(operand)
    return tuple(0 if n == 1 else step for n, step in zip(aligned(operand.shape, rank), own, strict=True))


def _row_steps(operand: Operand, rank: int) -> tuple[int, ...]:
    return _steps(operand, rank)[:-1]


def _joined(operands: Sequence[Operand], first: int, axis: int, rank: int) -> list[_Source]:
    """A source for each tensor of a concatenation."""
    found, begin = [], 0
    for index, operand in enumerate(operands):
        at, extent = axis + rank - len(operand.shape), operand.shape[axis]
        steps = list(_row_steps(operand, rank))
        steps[at] = strides(operand)[axis]  # one row of an axis is not repeated along it
        found.append(_Source(first + index, tuple(steps), None, at, begin, begin + extent))
        begin += extent
    return found


def _refuse(problem: KernelProblem) -> str | None:
    if (reason := no_epilogue(problem)) is not None:
        return reason
    form = _form(problem)
    floats = [source.data for source in form.sources] + list(range(form.behind, len(problem.inputs)))
    operands = [*(problem.inputs[index] for index in floats), *problem.outputs]
    if any(operand.format.dtype not in COMPUTED for operand in operands):
        names = ", ".join(dtype.value for dtype in COMPUTED)
        return f"adds up rows of {names}"
    if any(operand.format.layout is not Layout.ROW for operand in (*problem.inputs, *problem.outputs)):
        return "adds up rows of row-major tensors"
    if any(len(problem.inputs[source.data].shape) == 0 or problem.inputs[source.data].shape[-1] != form.extent
           for source in form.sources):  # fmt: skip
        return "a term has not all elements of a row"
    if not held(form.extent)[0]:
        return Reason("rows of {} elements do not fit in registers", form.extent)
    if len(form.sources) > _MOST_TERMS:
        return Reason("adds up rows of {} tensors, at most {} are supported", len(form.sources), _MOST_TERMS)
    if form.norm is not None and any(prod(o.shape) != form.extent for o in problem.inputs[form.behind :]):
        return "normalises rows with one factor and one shift for each of their elements"
    loops = len(_loops(form))
    return Reason("adds up rows over {} axes, at most {} are supported", loops, _MOST_LOOPS) if loops > 4 else None


def _loops(form: _Form) -> tuple[Loop, ...]:
    """Over the rows, outermost first; steps are those of the sources."""
    joined = {source.axis for source in form.sources}
    loops = [
        Loop(extent, tuple(source.steps[axis] for source in form.sources), axis in joined)
        for axis, extent in enumerate(form.axes)
    ]
    return merged(loops, len(form.sources))


def _axis_of(form: _Form, loops: Sequence[Loop], axis: int) -> int:
    """The loop over a joined axis: fixed ones are never merged, so they stand in their order."""
    fixed = sorted({source.axis for source in form.sources} - {-1})
    return [place for place, loop in enumerate(loops) if loop.fixed][fixed.index(axis)]


def _usual(problem: KernelProblem) -> SumTile:
    """Of few rows nothing else hides how long scale and bias take."""
    form = _form(problem)
    _, threads = held(form.extent)
    early = form.norm is not None and prod(form.axes) < MANY_ROWS
    return SumTile(threads, "early" if early else "late")


def _refuse_tile(problem: KernelProblem, tile: SumTile) -> str | None:
    form = _form(problem)
    if tile.factors == "early" and form.norm is None:
        return "a sum that is not normalised has no factors"
    return refuse_row(RowTile(tile.threads), form.extent)


def _emit(problem: KernelProblem, tile: SumTile | None, at: StepExpressions) -> StepCode:
    assert tile is not None, "registers keep rows of every problem that is not refused"
    form = _form(problem)
    loops = _loops(form)
    loads, rows = RowTile(tile.threads).loads(form.extent), prod(form.axes)
    sources = [_source(problem, at, form, loops, index) for index in range(len(form.sources))]
    kinds = [kind for kind, _ in sources]
    nested = "{}"
    for _, text in reversed(sources):
        nested = f"{{{text}, {nested}}}"
    shape = struct(
        f"{_SPACE}::RowLoops", rank=len(loops), extent=braces(loop.extent for loop in loops), rows=rows,
        count=form.extent,
    )  # fmt: skip
    statistic, scale, bias, epsilon = "NormNone", "Ones", "Zeros", 0.0
    factors = ["nullptr", "nullptr"]
    if form.norm is not None:
        statistic, epsilon = STATISTICS[form.norm.statistic], form.norm.epsilon
        own = range(form.behind, len(problem.inputs))
        names = [COMPUTED[problem.inputs[index].format.dtype] for index in own]
        scale, bias = (*names, *[f"{_SPACE}::Ones", f"{_SPACE}::Zeros"][len(names) :])
        factors = [at.inputs[index] for index in own] + factors[len(names) :]
    else:
        scale, bias = f"{_SPACE}::{scale}", f"{_SPACE}::{bias}"
    total = at.outputs[0] if form.stores_sum else "nullptr"
    normed = at.outputs[-1] if form.norm is not None else "nullptr"
    types = [COMPUTED[problem.outputs[0].format.dtype], COMPUTED[problem.outputs[-1].format.dtype]]
    how = f"{loads}, {tile.threads}, {boolean(tile.factors == 'early')}, {boolean(form.stores_sum)}"

    call = (
        f"{_SPACE}::row_sum<{how}, {_SPACE}::{statistic}, {scale}, {bias}, {', '.join(types)}>(r, {shape}, "
        f"{_SPACE}::RowTerms<{', '.join(kinds)}>{nested}, {', '.join(factors)}, {literal(epsilon)}, {total}, {normed});"
    )
    return StepCode(("bolt_portable/cuda/norms/row_sum.h",), None, "", call)


def _source(
    problem: KernelProblem, at: StepExpressions, form: _Form, loops: Sequence[Loop], number: int
) -> tuple[str, str]:
    """The C++ type of one source of rows, and its fields."""
    source = form.sources[number]
    data = problem.inputs[source.data]
    kind = COMPUTED[data.format.dtype]
    steps = braces(loop.steps[number] for loop in loops)
    pointer = f"static_cast<const {kind}*>({at.inputs[source.data]})"
    if source.indices is not None:
        type = ctype(problem.inputs[source.indices].format.dtype)
        indices = f"static_cast<const {type}*>({at.inputs[source.indices]})"
        return f"{_SPACE}::TableRows<{kind}, {type}>", f"{{{pointer}, {indices}, {data.shape[0]}, {steps}}}"
    if source.axis < 0:
        return f"{_SPACE}::TensorRows<{kind}>", f"{{{pointer}, {steps}}}"
    place = _axis_of(form, loops, source.axis)
    return f"{_SPACE}::PartRows<{kind}>", f"{{{pointer}, {steps}, {place}, {source.begin}, {source.end}}}"


def summed(
    graph: Graph, node: Node, target: Target, precision: DType
) -> tuple[RowSums, ProposedStep, tuple[KernelProblem, ...]] | None:
    """The sum of rows that begins with `node`, the step that does all of it, and the problems of its nodes: on a GPU,
    where each kernel costs a launch and moves all rows. A host keeps them in its caches."""
    if target.gpu is None or (found := row_sums_from(graph, node)) is None:
        return None
    apart = {each.name: _problem(graph, each, target, precision) for each in found.nodes}
    operands = {
        (each.name, name): operand for each in found.nodes
        for name, operand in zip(each.inputs, apart[each.name].inputs, strict=True)
    }  # fmt: skip
    readers = {name: each.name for each in reversed(found.sums) for name in each.inputs}
    values = tuple(value for term in found.terms for value in term.values)
    inputs = tuple(operands[readers[value], value] for value in values)
    last = found.sums[-1]
    total = apart[last.name].outputs[0]
    problem = KernelProblem(
        RowSum(tuple(term.term for term in found.terms)), inputs, (total,), (), DType.F32, target.name
    )
    outputs = last.outputs
    if found.norm is not None:
        norm = apart[found.norm.name]
        kind = KeptRows if found.kept else NormedRows
        op = kind(problem.op, len(inputs), (), norm.op)
        made = (total, *norm.outputs) if found.kept else norm.outputs
        problem = KernelProblem(op, (*inputs, *norm.inputs[1:]), made, (), DType.F32, target.name)
        values = (*values, *found.norm.inputs[1:])
        outputs = (*last.outputs, *found.norm.outputs) if found.kept else found.norm.outputs
    whole = tuple(index for index, term in _firsts(found) if term is Rows.TENSOR)
    step = ProposedStep(problem, values, outputs, may_share(problem, values, whole))
    return found, step, tuple(apart[each.name] for each in found.nodes)


def _firsts(found: RowSums) -> list[tuple[int, Rows]]:
    """Where each term's operands begin."""
    places, begin = [], 0
    for term in found.terms:
        places.append((begin, term.term.rows))
        begin += len(term.values)
    return places


def _problem(graph: Graph, node: Node, target: Target, precision: DType) -> KernelProblem:
    return problem_of(graph, node, target, precision, (Layout.ROW,) * len(node.inputs), Layout.ROW)


_REACHED, _WAITS, _NORMED = 0.87, 0.4e-6, 0.6e-6
"""The part of a GPU's bandwidth that sums of rows reach; the seconds in which indices and rows wait for each other, and
those of a row's statistic. Fitted to 28 times of an H200, of which all normalise."""


def _latency(problem: KernelProblem) -> float:
    return _WAITS if isinstance(problem.op, RowSum) else _WAITS + _NORMED


_PLAIN = Plain(_usual, SumTile.read, _refuse_tile, _emit)
RULES = tuple(
    Rule(
        op,
        _refuse,
        _PLAIN.emit_usual,
        lambda problem: 0.05,
        gpu_bandwidth=lambda problem: _REACHED,
        gpu_latency=_latency,
        plain=_PLAIN,
    )
    for op in (RowSum, NormedRows, KeptRows)
)
