"""Every change of layout or element type that is left in an engine: where it stands, and which kernel makes it.

Changes at the model's edges (of a graph input or output) are what its caller asked for; any other one is a kernel, or
a part of one, that a better choice of formats might have saved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bolt_build.families.base import Expense, Operand, TensorFormat, same_bytes
from bolt_build.graph.ops.moves.shape import Cast, Convert, Transpose
from bolt_build.planner.engine_plan import Step, StepTensor
from bolt_build.report.brief import kernel_name
from bolt_build.report.tables import Column, byte_text, table
from bolt_build.sizes import Sizes

ALONE, FUSED, COPIED, MODEL = "alone", "fused", "copied", "model"

_HOW = {
    ALONE: "a kernel of its own",
    FUSED: "fused into the kernel",
    COPIED: "a copy that the step makes first",
    MODEL: "the model's own",
}
_COLUMNS = (
    Column("step", right=True), Column("layer", name=True), Column("tensor", name=True, spare=2),
    Column("from", name=True), Column("to", name=True), Column("bytes", right=True), Column("where", spare=3),
    Column("how", name=True), Column("kernel", name=True, spare=1),
)  # fmt: skip


@dataclass(frozen=True)
class Change:
    """A tensor that step `step` reads or writes in another format than its neighbours: `nbytes` in the new one.

    `edge` is "input" or "output" where it is of the model's, else empty. `how`: "alone" (a kernel that does nothing
    else), "fused" (the kernel that computes `layer` makes it while it reads or writes), "copied" (the step makes a copy
    before it computes) or "model" (the model itself asks for it).
    """

    step: int
    layer: str
    tensor: str
    source: str
    to: str
    nbytes: int
    edge: str
    how: str
    kernel: str


def changes_of(steps: Sequence[Step], expense: Callable[[Step], Expense]) -> tuple[Change, ...]:
    """The changes that the steps of a plan make, in their order. `expense` says what a step moves beside tensors."""
    return tuple(change for step in steps if not step.view for change in _of_step(step, expense(step)))


def _of_step(step: Step, expense: Expense) -> list[Change]:
    operator, output = step.problem.op, step.outputs[0]
    if isinstance(operator, Convert):
        return [_change(step, step.inputs[0], output, ALONE)]
    if isinstance(operator, Cast | Transpose):
        return [_change(step, step.inputs[0], output, MODEL)]
    moving = [tensor for tensor in step.inputs if not tensor.operand.constant]
    found = []
    if expense.copied:
        copy = _change(step, moving.pop(0), output, COPIED)
        found.append(replace(copy, to=expense.copied_as, nbytes=expense.copied))
    found += [_change(step, tensor, output, FUSED) for tensor in moving if _differs(tensor.operand, output.operand)]
    return found


def _differs(source: Operand, to: Operand) -> bool:
    """True where a kernel reads one format and writes the other; layouts count where both have axes to order, and the
    order means something for either shape."""
    a, b = source.format, to.format
    if a.dtype != b.dtype:
        return a.dtype.is_float and b.dtype.is_float
    ordered = min(len(source.shape), len(to.shape)) >= 3
    return ordered and not any(
        same_bytes(shape, a, TensorFormat(a.dtype, b.layout)) for shape in (source.shape, to.shape)
    )


def _change(step: Step, source: StepTensor, to: StepTensor, how: str) -> Change:
    edge = "input" if source.location.kind == "input" else "output" if to.location.kind == "output" else ""
    tensor = to.value if how == ALONE and to.onnx is not None else source.value
    formats = str(source.operand.format), str(to.operand.format)
    return Change(
        step.index, step.name, tensor, *formats, to.operand.nbytes if how != FUSED else source.operand.nbytes, edge,
        how, kernel_name(step.candidate),
    )  # fmt: skip


def render_changes(sizes: Sizes, changes: Sequence[Change], width: int | None) -> list[str]:
    """The list of a batch as text: a line that sums up, and a table."""
    inner = sum(not change.edge and change.how != MODEL for change in changes)
    if not changes:
        return ["", f"layout and type changes, {sizes}: none"]
    where = f"{inner} of them inside" if inner else "all at the model's edges"
    if not inner and any(not change.edge for change in changes):
        where = "at the model's edges, or its own"
    rows = [
        (
            str(each.step), each.layer, each.tensor, each.source, each.to, byte_text(each.nbytes),
            f"model's {each.edge}" if each.edge else "inside", _HOW[each.how], each.kernel,
        )
        for each in changes
    ]  # fmt: skip
    lines = [line.plain for line in table(_COLUMNS, rows, width)]
    return ["", f"layout and type changes, {sizes}: {len(changes)}, {where}", *lines]
