"""Multiplies both sides of a gate before they are moved: where they are products with the same A operand, or halves
of one product's columns, whatever reshapes, transposes, slices and selections made of them.

What moves both sides alike moves the gated product instead, of half as many columns. So one kernel may compute both
products and the gate (`gates.py`), and elsewhere the gate is part of a product's epilogue. For example exporters
that flatten rows around every product, sides that are selected along an axis of their own, and channels that are moved
last before they are split.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from bolt_build.graph.ir import Graph, Node, Op
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.moves.shape import Reshape, Slice
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor, joined
from bolt_build.planner.views import Axis, View, made_of, step_back, whole


@dataclass(frozen=True)
class _Side:
    """A factor of a gate: the product, the activations that follow, and where its elements stand in what that leaves.
    `nodes` are all behind the product."""

    product: Node
    functions: tuple[Node, ...]
    view: View
    moves: int
    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class _Form:
    """Sides in the order of their columns, where each begins along the product's axis `axis`, in steps of `step`; and
    how what is gated is moved."""

    sides: tuple[_Side, _Side]
    axis: int
    begins: tuple[int, int]
    step: int
    moves: tuple[Op, ...]

    @property
    def found(self) -> bool:
        """Whether the sides are products, or slices of one, as they are."""
        return all(side.moves == (0 if self.axis < 0 else 1) for side in self.sides)


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(GATE_COLUMNS.name)
    for gate in editor.nodes():
        if gate.op != Binary("mul") or gate.epilogue or editor.node(gate.name) is None:
            continue
        one, other = (_side(editor, name) for name in gate.inputs)
        if one is None or other is None or one.product.inputs[0] != other.product.inputs[0]:
            continue
        form = _joint(editor, one, other) if one.product is other.product else _apart(editor, one, other)
        if form is None or form.found:
            continue
        if (reason := _read(editor, gate, form)) is not None:
            journal.declined(gate.name, reason)
            continue
        _rewrite(editor, gate, form)
        journal.did(gate.name, "gated before", f"what moves both sides of '{form.sides[0].product.name}'")
    return journal.result(editor.finish())


def _side(editor: GraphEditor, value: str) -> _Side | None:
    """What a value is of a product, None where more than activations and moves made it."""
    functions: list[Node] = []
    moves: list[tuple[Op, tuple[int, ...]]] = []
    nodes: list[Node] = []
    while (node := editor.producer(value)) is not None and not node.epilogue:
        if isinstance(node.op, Conv | MatMul):
            view: View | None = whole(editor, value)
            for move, shape in reversed(moves):
                view = None if view is None else view.moved(move, shape)
            return None if view is None else _Side(node, tuple(functions), view, len(moves), tuple(nodes))
        if isinstance(node.op, Activation):
            functions.insert(0, node)
        elif (op := step_back(editor, node)) is not None:
            shape = editor.type(value).shape
            (kept,) = op.infer([editor.type(node.inputs[0])])
            if kept.shape != shape:  # a gather of one number leaves out the axis along which a slice keeps one
                moves.append((Reshape(shape), shape))
            moves.append((op, kept.shape))
        else:
            return None
        nodes.append(node)
        value = node.inputs[0]
    return None


def _apart(editor: GraphEditor, one: _Side, other: _Side) -> _Form | None:
    """Two products that are moved alike, each whole."""
    sizes = editor.type(one.product.outputs[0]).shape
    if editor.type(other.product.outputs[0]).shape != sizes or one.view.axes != other.view.axes:
        return None
    if any(one.view.begin) or any(other.view.begin) or not _all_of(sizes, one.view.axes):
        return None
    moves = made_of(sizes, one.view, one.view.axes)
    return None if moves is None else _Form((one, other), -1, (0, 0), 1, moves)


def _joint(editor: GraphEditor, one: _Side, other: _Side) -> _Form | None:
    """Halves of one product's columns, or every second one, that are moved alike."""
    product = one.product
    sizes = editor.type(product.outputs[0]).shape
    axis = 1 if isinstance(product.op, Conv) else len(sizes) - 1
    half = sizes[axis] // 2
    if one.view.axes != other.view.axes or sizes[axis] % 2:
        return None
    one, other = sorted((one, other), key=lambda side: side.view.begin)
    origin = (0,) * len(sizes)
    for step, begin in ((1, half), (2, 1)):
        second = tuple(begin if at == axis else 0 for at in range(len(sizes)))
        if (one.view.begin, other.view.begin) != (origin, second):
            continue
        halves = tuple(half if at == axis else size for at, size in enumerate(sizes))
        axes = _counted(one.view.axes, axis, step)
        if axes is None or not _all_of(halves, axes):
            continue
        moves = made_of(halves, View(product.outputs[0], origin, axes), axes)
        return None if moves is None else _Form((one, other), axis, (0, begin), step, moves)
    return None


def _counted(axes: tuple[Axis, ...], axis: int, step: int) -> tuple[Axis, ...] | None:
    """The axes of a view where the source has every `step`-th of its entries along `axis` alone."""
    if any(digit.axis == axis and digit.step % step for each in axes for digit in each):
        return None
    return tuple(
        tuple(replace(digit, step=digit.step // step) if digit.axis == axis else digit for digit in each)
        for each in axes
    )


def _all_of(sizes: tuple[int, ...], axes: tuple[Axis, ...]) -> bool:
    """Whether digits count each element of a tensor of these extents once."""
    digits = [digit for each in axes for digit in each]
    for axis, size in enumerate(sizes):
        counted = 1
        for digit in sorted((each for each in digits if each.axis == axis), key=lambda each: each.step):
            if digit.step != counted:
                return False
            counted *= digit.extent
        if counted != size:
            return False
    return prod(digit.extent for digit in digits) == prod(sizes)


def _read(editor: GraphEditor, gate: Node, form: _Form) -> str | None:
    """Why sides must stay as they are, None where nobody else reads them."""
    nodes = {node.name: node for side in form.sides for node in (side.product, *side.nodes)}
    for node in nodes.values():
        (value,) = node.outputs
        if editor.is_output(value):
            return f"'{value}' is a graph output"
        for reader in editor.readers(value):
            if reader.name != gate.name and reader.name not in nodes:
                return f"'{reader.name}' reads '{value}' as well"
    return None


def _rewrite(editor: GraphEditor, gate: Node, form: _Form) -> None:
    made: list[Node] = []
    factors = [
        _factor(editor, gate, form, side, begin, made) for side, begin in zip(form.sides, form.begins, strict=True)
    ]
    removed = [node for side in form.sides for node in reversed(side.nodes)]
    covers = joined(*(node.covers for node in removed), gate.covers)
    ops, value = (gate.op, *form.moves), ""
    for place, op in enumerate(ops):
        inputs = (value,) if place else tuple(factors)
        (type_,) = op.infer([editor.type(name) for name in inputs])
        last = place + 1 == len(ops)
        value = gate.outputs[0] if last else editor.new_value(f"{gate.outputs[0]}.gated", type_)
        moved = Node(editor.free_node_name(f"{gate.name}.moved.{place}"), op, inputs, (value,))
        made.append(moved if place else replace(gate, inputs=inputs, outputs=(value,), covers=covers))
    read = gate.inputs
    editor.replace(gate, *made)
    editor.prune(read)


def _factor(editor: GraphEditor, gate: Node, form: _Form, side: _Side, begin: int, made: list[Node]) -> str:
    """A side as the gate reads it now; the nodes that make it are added to `made`."""
    value = side.product.outputs[0]
    sizes = editor.type(value).shape
    if form.axis >= 0:
        first = tuple(begin if at == form.axis else 0 for at in range(len(sizes)))
        count = tuple(size // 2 if at == form.axis else size for at, size in enumerate(sizes))
        op = Slice(first, count, tuple(form.step if at == form.axis else 1 for at in range(len(sizes))))
        value = _made(editor, gate, "side", op, value, made)
    for node in side.functions:
        value = _made(editor, gate, "function", node.op, value, made)
    return value


def _made(editor: GraphEditor, gate: Node, what: str, op: Op, value: str, made: list[Node]) -> str:
    (type_,) = op.infer([editor.type(value)])
    output = editor.new_value(f"{gate.outputs[0]}.{what}", type_)
    taken = len(made)
    made.append(Node(editor.free_node_name(f"{gate.name}.{what}.{taken}"), op, (value,), (output,)))
    return output


GATE_COLUMNS = Pass("gate-columns", _run)
