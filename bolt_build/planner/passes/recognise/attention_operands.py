"""Queries, keys and values of one attention as rows of heads side by side, whatever moves them from where they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod

from bolt_build.graph.ir import Node, Op
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.moves.expand import Expand
from bolt_build.graph.ops.moves.shape import Reshape, Slice, Transpose
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.planner.passes.recognise.attention_heads import (
    Done,
    Heads,
    head_operator,
    heads_done,
    joined_heads,
    operands_of,
)
from bolt_build.planner.passes.recognise.attention_scores import number
from bolt_build.planner.rewrite import GraphEditor
from bolt_build.planner.views import REPEATED, Axis, Digit, View, extent, grouped, made_of, step_back, uncut, whole


@dataclass(frozen=True)
class Operand:
    """Matrices of queries, keys or values for every image and head, as digits of their source; `repeats` neighbouring
    heads read the same. They are to be multiplied with `scale`. `expanded` is the shape that the source is expanded to
    before; () where it is not. `passed` are the unscaled values on the way from the source, as views of it. `done` is
    what is done to each head on the way, None where that is nothing.
    """

    view: View
    images: Axis
    heads: Axis
    rows: Axis
    columns: Axis
    repeats: int
    scale: float = 1.0
    expanded: tuple[int, ...] = ()
    passed: tuple[tuple[str, View], ...] = ()
    done: Heads | None = None

    @property
    def groups(self) -> tuple[Sequence[Digit], ...]:
        """Axes of the form that attention reads: images, rows, heads and their columns side by side."""
        return self.images, self.rows, (*self.heads, *self.columns)


class Chain:
    """Nodes that are to be added, one reading what another makes."""

    def __init__(self, editor: GraphEditor, label: str) -> None:
        self._editor, self.label = editor, label
        self.nodes: list[Node] = []

    def add(self, op: Op, inputs: Iterable[str], output: str | None = None, what: str | None = None) -> str:
        """A node that computes `op`; its value is `output`, or a new one, called by `what` it is or by its number.
        Returns its name."""
        inputs = tuple(inputs)
        number = str(len(self.nodes)) if self.nodes else None
        label = ".".join(filter(None, (self.label, what or number)))
        if output is None:
            (type,) = op.infer([self._editor.type(name) for name in inputs])
            output = self._editor.new_value(label, type)
        name = self._editor.free_node_name(label, [node.name for node in self.nodes])
        self.nodes.append(Node(name, op, inputs, (output,)))
        return output

    def moved(self, value: str, ops: Sequence[Op], output: str | None = None) -> str:
        """`ops` one behind the other on `value`; what the last one makes is called `output`."""
        for index, op in enumerate(ops):
            value = self.add(op, [value], output if index == len(ops) - 1 else None)
        return value


def heads_of(editor: GraphEditor, queries: str, batch: tuple[int, ...], swapped: bool) -> int:
    """How many matrices of a batch of these extents belong to one image: the last extent; of a single one, or where the
    last is 1, what the queries take of the axis that their columns are of. For example Hiera has the windows of an
    image last, of which there is one where attention is global."""
    if len(batch) > 1 and batch[-1] > 1:
        return batch[-1]
    if not batch:
        return 1
    view = viewed(editor, queries, scales=True, depth=_depth(editor, queries, swapped)).view
    columns = view.axes[-2 if swapped else -1]
    if len(view.axes) < 3 or not columns or prod(view.shape[:-2]) != prod(batch):
        return 1
    heads, axis = 1, columns[-1].axis
    for digit in reversed([digit for axis_ in view.axes[:-2] for digit in axis_]):
        if digit.axis != axis:
            break
        heads *= digit.extent
    return heads


def operand(
    editor: GraphEditor, value: str, batch: tuple[int, ...], heads: int, *, swapped: bool, scales: bool
) -> Operand:
    """The matrices of `value`, which broadcast to `batch`; `swapped`: given transposed. If `scales`, products with
    numbers on the way from the source are taken out."""
    if scales:
        prepared = prepared_operand(editor, value, batch, heads, (), swapped=swapped)
        if isinstance(prepared, Operand):
            return prepared
    source = viewed(editor, value, scales=scales)
    view, scale, passed = source.view, source.scale, source.passed
    for each, factor in ((view, scale), (whole(editor, value), 1.0)):
        found = _operand(each, batch, heads, swapped)
        if found is not None and made_of(editor.type(each.source).shape, each, found.groups) is not None:
            return replace(found, scale=factor, passed=passed if each is view else ())
    shape = (*batch, *editor.type(value).shape[-2:])
    sizes = tuple((Digit(size, axis, 1),) if size != 1 else () for axis, size in enumerate(shape))
    found = _operand(View(value, (0,) * len(shape), sizes), batch, heads, swapped)
    assert found is not None, "a whole tensor has its heads apart or together"
    return replace(found, expanded=shape)


def prepared_operand(
    editor: GraphEditor, value: str, batch: tuple[int, ...], heads: int, factors: Sequence[str], *, swapped: bool
) -> Operand | str:
    """The same of queries or keys whose heads are normalised, scaled or turned on the way, and multiplied with the
    constants `factors`, of which each matrix has a number; or why that is no operator on their rows."""
    source = viewed(editor, value, scales=True, depth=_depth(editor, value, swapped))
    last = Binary("mul")
    done = (*source.done, *(Done(last, (name,), source.view.axes) for name in factors))
    if not done:
        return "nothing is done to heads"
    found = _operand(source.view, batch, heads, swapped)
    if found is None or made_of(editor.type(source.view.source).shape, source.view, found.groups) is None:
        return f"heads of '{value}' are no parts of rows of '{source.view.source}'"
    if swapped:  # factors have one number for rows and columns alike
        turned = (*source.view.axes[:-2], source.view.axes[-1], source.view.axes[-2])
        done = (*source.done, *(Done(last, (name,), turned) for name in factors))
    groups = found.images, found.heads, found.rows
    all_done = heads_done(editor, done, (groups[0], groups[2], groups[1]), found.columns, extent(found.columns))
    return all_done if isinstance(all_done, str) else replace(found, scale=source.scale, done=all_done)


def rows_operand(editor: GraphEditor, value: str, heads: int, *, scales: bool) -> Operand:
    """`value`, which is in the form that attention reads already, with so many heads, by where its elements come from:
    of queries and keys (`scales`) also what is done to each head on the way."""
    done = _prepared_rows_operand(editor, value, heads) if scales else None
    if done is not None:
        return done
    source = viewed(editor, value, scales=scales)
    view, scale, passed = source.view, source.scale, source.passed
    for each, factor in ((view, scale), (whole(editor, value), 1.0)):
        images, rows, row = each.axes
        cut = grouped(row, (heads, extent(row) // heads))
        if cut is None:
            continue
        own, repeats = _shared(cut[0])
        found = Operand(each, images, own, rows, cut[1], repeats, factor, passed=passed if each is view else ())
        if made_of(editor.type(each.source).shape, each, found.groups) is not None:
            return found
    raise AssertionError("rows of whole heads are cut in heads")


def _prepared_rows_operand(editor: GraphEditor, value: str, heads: int) -> Operand | None:
    """`rows_operand` of heads that are normalised, scaled or turned; None where nothing is done to them."""
    source = viewed(editor, value, scales=True, depth=editor.type(value).shape[-1] // heads)
    images, rows, row = source.view.axes
    cut = grouped(row, (heads, extent(row) // heads))
    if not source.done or cut is None:
        return None
    own, repeats = _shared(cut[0])
    found = Operand(source.view, images, own, rows, cut[1], repeats, source.scale)
    done = heads_done(editor, source.done, (images, rows, own), cut[1], extent(cut[1]))
    if isinstance(done, str) or made_of(editor.type(source.view.source).shape, source.view, found.groups) is None:
        return None
    return replace(found, done=done)


def rows_of(editor: GraphEditor, chain: Chain, found: Operand) -> str:
    """The operand in the form that attention reads."""
    value, view = found.view.source, found.view
    wanted = replace(view, axes=tuple(tuple(group) for group in found.groups))
    if found.done is None:
        for name, each in found.passed:
            if each == wanted and not _moved_in_vain(editor, name, found):
                return name
    if found.expanded:
        value = chain.add(Expand(found.expanded), [value])
        view = replace(view, source=value)
    ops = made_of(editor.type(value).shape, view, found.groups)
    assert ops is not None
    rows = chain.moved(value, ops)
    return rows if found.done is None else prepared(editor, chain, rows, found.done, extent(found.heads))


def _moved_in_vain(editor: GraphEditor, name: str, found: Operand) -> bool:
    """Whether a value was transposed more often than it takes to make it of where it comes from: heads that were
    brought to the front, where some were selected, and back."""
    ops, turned = made_of(editor.type(found.view.source).shape, found.view, found.groups), 0
    while name != found.view.source and (node := editor.producer(name)) is not None:
        turned += isinstance(node.op, Transpose)
        name = node.inputs[0]
    return ops is not None and sum(isinstance(op, Transpose) for op in ops) < turned


def moved_elements(editor: GraphEditor, operands: Iterable[Operand]) -> int:
    """Elements of operands that do not lie as attention reads them."""
    found = 0
    for each in operands:
        ops = made_of(each.expanded or editor.type(each.view.source).shape, each.view, each.groups)
        if each.expanded or ops is None or any(isinstance(op, Transpose) for op in ops):
            found += prod(extent(group) for group in each.groups)
    return found


def prepared(editor: GraphEditor, chain: Chain, rows: str, done: Heads, heads: int) -> str:
    """The rows with each of their heads prepared."""
    operands = operands_of(editor, done, chain.label, lambda op, value: chain.add(op, [value]))
    return chain.add(replace(done.op, heads=heads), [rows, *operands])


def prepared_rows(editor: GraphEditor, chain: Chain, q: Operand, k: Operand) -> tuple[str, str] | None:
    """Queries and keys that lie side by side and are prepared alike, by one operator; None where they do not."""
    if q.done is None or q.done != k.done or (q.view.source, q.images, q.rows) != (k.view.source, k.images, k.rows):
        return None
    counts = extent(q.heads), extent(k.heads)
    depth, axes = extent(q.columns), {digit.axis for digit in (*q.heads, *q.columns, *k.heads, *k.columns)}
    if len(axes) != 1:  # one element has no axis
        return None
    (axis,) = axes
    begin = list(q.view.begin)
    begin[axis] += counts[0] * depth
    if tuple(begin) != k.view.begin or extent(k.columns) != depth:
        return None
    side = replace(q.view, axes=())
    every = uncut((*q.heads, *q.columns)), uncut((*k.heads, *k.columns))
    if [(len(each), each[0].step) for each in every] != [(1, 1), (1, 1)]:
        return None
    total = sum(counts) * depth
    ops = made_of(editor.type(q.view.source).shape, side, (q.images, q.rows, (Digit(total, axis, 1),)))
    if ops is None:
        return None
    rows = chain.moved(q.view.source, ops)
    made = prepared(editor, chain, rows, joined_heads(q.done, k.done, counts), sum(counts))
    images, count = extent(q.images), extent(q.rows)
    step, ends = (1, 1, 1), (0, counts[0] * depth)
    taken = (chain.add(Slice((0, 0, begin), (images, count, n * depth), step), [made])
             for begin, n in zip(ends, counts, strict=True))  # fmt: skip
    first, second = taken
    return first, second


@dataclass(frozen=True)
class Source:
    """A value as a view of the furthest tensor that it is moved from; what it is multiplied with on the way; the values
    before any such product, as views too; and what is done to its heads."""

    view: View
    scale: float
    passed: tuple[tuple[str, View], ...]
    done: tuple[Done, ...]


def _depth(editor: GraphEditor, value: str, swapped: bool) -> int:
    """Elements of a head of queries or keys."""
    return editor.type(value).shape[-2 if swapped else -1]


def viewed(editor: GraphEditor, value: str, *, scales: bool, depth: int = 0) -> Source:
    """Where the value comes from: through products with numbers if `scales`, and through what is done to each head of
    `depth` elements, if any, and nobody else reads. Rows of all heads that are normalised at once, as in OLMo 2, are
    where it comes from."""
    steps: list[tuple[Node, Op | None, float, Done | None]] = []
    source, shared = value, False
    while (node := editor.producer(source)) is not None:
        shared = shared or editor.not_private(source) is not None
        op = step_back(editor, node)
        if op is not None:
            steps.append((node, op, 1.0, None))
            source = node.inputs[0]
            continue
        scaled = _scaled(editor, node) if scales else None
        if scaled is not None:
            source, factor = scaled
            steps.append((node, None, factor, None))
            continue
        does = head_operator(editor, node) if depth and not shared else None
        if does is None or (isinstance(does[0], Norm) and editor.type(node.outputs[0]).shape[-1] != depth):
            break
        did, operands, source = does
        steps.append((node, None, 1.0, Done(did, operands, ())))
        scales = scales and not isinstance(did, Norm)  # which levels out what is in front of it
    view, scale, done = whole(editor, source), 1.0, list[Done]()
    passed = [(source, view)]
    for node, op, factor, does_ in reversed(steps):
        shape = editor.type(node.outputs[0]).shape
        moved = view if op is None else view.moved(op, shape)
        if moved is not None and moved.shape != shape:
            moved = moved.moved(Reshape(shape), shape)
        if moved is None:
            view, scale, passed, done = whole(editor, node.outputs[0]), 1.0, [], []
        else:
            view, scale = moved, scale * factor
            if does_ is not None:
                done.append(replace(does_, axes=view.axes))
        if scale == 1.0 and not done:
            passed.append((node.outputs[0], view))
    return Source(view, scale, tuple(passed), tuple(done))


def _scaled(editor: GraphEditor, node: Node) -> tuple[str, float] | None:
    """The value that the node multiplies with a number, and that number."""
    if node.epilogue or not isinstance(node.op, Binary) or node.op.function not in ("mul", "div"):
        return None
    for value, other in (node.inputs, node.inputs[::-1]):
        factor = number(editor, other)
        shape = editor.type(node.outputs[0]).shape
        if factor is None or editor.is_constant(value) or editor.type(value).shape != shape:
            continue
        if node.op.function == "mul":
            return value, factor
        if other == node.inputs[1] and factor != 0.0:
            return value, 1.0 / factor
    return None


def _operand(view: View, batch: tuple[int, ...], heads: int, swapped: bool) -> Operand | None:
    """The view's digits by their part in attention; None where images or heads are no whole digits, or are repeated in
    another way than heads that share keys and values."""
    *outer, rows, columns = view.axes
    if swapped:
        rows, columns = columns, rows
    own: list[Axis] = [()] * (len(batch) - len(outer)) + outer
    flat = [
        digit
        for axis, size in zip(own, batch, strict=True)
        for digit in (axis or ((Digit(size, REPEATED, 0),) if size != 1 else ()))
    ]
    cut = grouped(flat, (prod(batch) // heads, heads))
    if cut is None:
        return None
    images, (each, repeats) = cut[0], _shared(cut[1])
    if any(digit.axis == REPEATED for digit in (*images, *each, *rows, *columns)):
        return None
    return Operand(view, images, each, rows, columns, repeats)


def _shared(heads: Axis) -> tuple[Axis, int]:
    """The heads without those that repeat their neighbour, and how many are the same."""
    repeats = 1
    while heads and heads[-1].axis == REPEATED:
        repeats, heads = repeats * heads[-1].extent, heads[:-1]
    return heads, repeats
