"""Lets a product of two tensors read its factors where they lie and store its result where it is wanted, instead of
behind transposes: heads side by side in rows, pixels of images, transposed matrices.

Kernels of tensor cores walk through both factors with any steps, as long as rows, columns and depth are one run each
and elements are neighbours along one of a factor's two. Products with weights are others' (`CARRY_MOVES`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from bolt_build.dtypes import PRECISIONS
from bolt_build.families.base import memory_axes
from bolt_build.graph.ir import Graph, Layout, Node, Op
from bolt_build.graph.ops.moves.shape import Identity, Reshape, Slice, Transpose
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.graph.ops.products.placed_matmul import Move, PlacedMatMul, walks
from bolt_build.planner.passes.base import Journal, Pass, PassResult, on_tensor_cores
from bolt_build.planner.rewrite import GraphEditor, joined
from bolt_build.planner.views import REPEATED, View, step_back, whole

_IMAGE = 4
"""Axes of a tensor that kernels may keep channels last."""


@dataclass(frozen=True)
class _Place:
    """Where a factor is read: columns of `value` from `begin` on, of this shape, of which `move` makes its matrices. Or
    where the result is stored, which `move` makes of the product. `gains`: something is not moved then."""

    value: str
    move: Move
    shape: tuple[int, ...]
    begin: int = 0
    gains: bool = False


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(PLACE_PRODUCTS.name)
    for old in editor.nodes():
        node = editor.node(old.name)
        if node is not None and _multiplies_tensors(editor, node):
            _place(editor, journal, node)
    return journal.result(editor.finish())


def _multiplies_tensors(editor: GraphEditor, node: Node) -> bool:
    if not isinstance(node.op, MatMul) or node.epilogue or len(node.inputs) != 2:
        return False
    types = [editor.type(name) for name in (*node.inputs, *node.outputs)]
    able = all(type_.dtype in PRECISIONS.values() and type_.elements for type_ in types)
    return able and not any(_is_packed(editor, name) for name in node.inputs)


def _is_packed(editor: GraphEditor, name: str) -> bool:
    """Whether it is a weight of one matrix. Of several, one for each head say, kernels for packed weights take none."""
    return editor.is_constant(name) and prod(editor.type(name).shape[:-2]) == 1


def _place(editor: GraphEditor, journal: Journal, node: Node) -> None:
    assert isinstance(node.op, MatMul)
    lefts = list(_read_places(editor, node.inputs[0], swapped=node.op.transpose_a))
    rights = list(_read_places(editor, node.inputs[1], swapped=node.op.transpose_b))
    stored, behind = _stored_places(editor, node)
    for left, right, made in product(lefts, rights, stored):
        gains = left.gains or right.gains or made.gains
        if gains and _walks(PlacedMatMul(left.move, right.move, made.move), (left, right, made)):
            _replace(editor, journal, node, (left, right, made), behind)
            return
    if any(place.gains for place in (*lefts, *rights, *stored)):
        journal.declined(node.name, "its factors do not lie as a kernel walks through matrices")


def _read_places(editor: GraphEditor, value: str, *, swapped: bool) -> Iterator[_Place]:
    """Where the factor may be read, the furthest from the product first."""
    chain: list[tuple[str, list[Op]]] = [(value, [])]
    while (node := editor.producer(chain[-1][0])) is not None and (op := step_back(editor, node)) is not None:
        if op.infer([editor.type(node.inputs[0])])[0] != editor.type(chain[-1][0]):  # a gather that drops an axis
            break
        chain.append((node.inputs[0], [op, *chain[-1][1]]))
    for source, ops in reversed(chain):
        view: View | None = whole(editor, source)
        type_ = editor.type(source)
        shape = type_.shape
        for op in ops:
            (type_,) = op.infer([type_])
            view = None if view is None else view.moved(op, type_.shape)
        if view is None:
            continue
        axes = (*view.axes[:-2], view.axes[-1], view.axes[-2]) if swapped else view.axes
        found = _placed(View(source, view.begin, axes), shape)
        if found is not None:
            image = bool(ops) and source == chain[-1][0] and len(shape) >= _IMAGE
            gains = image or any(isinstance(op, Transpose) for op in ops)
            yield _Place(source, *found, gains=gains)


def _placed(view: View, shape: tuple[int, ...]) -> tuple[Move, tuple[int, ...], int] | None:
    """The move that makes the view of its source, or of a run of its columns; the shape of these, and where they begin.
    None where it takes other parts."""
    digits = [digit for axis in view.axes for digit in axis]
    if any(digit.axis == REPEATED for digit in digits):
        return None
    stored, read = [], list(shape)
    for axis in range(len(shape)):
        own = sorted((digit for digit in digits if digit.axis == axis), key=lambda digit: -digit.step)
        step = 1
        for digit in reversed(own):
            if digit.step != step:
                return None
            step *= digit.extent
        if step != shape[axis] and axis != len(shape) - 1:
            return None
        read[axis] = step
        stored += own
    if any(view.begin[:-1]):
        return None
    places = {digit: place for place, digit in enumerate(stored)}
    if len(places) != len(digits):
        return None
    move = (tuple(digit.extent for digit in stored), tuple(places[digit] for digit in digits), view.shape)
    return move, tuple(read), view.begin[-1] if view.begin else 0


def _stored_places(editor: GraphEditor, node: Node) -> tuple[list[_Place], list[Node]]:
    """Where the result may be stored, the furthest from the product first, and what moves it there, the nearest
    first."""
    value = node.outputs[0]
    view, shape = whole(editor, value), editor.type(value).shape
    behind: list[Node] = []
    found = [_Place(value, _of_product(view, shape), shape)]
    moved = False
    while editor.not_private(value) is None:
        readers = editor.readers(value)
        reader = readers[0] if readers else None
        if reader is None or reader.epilogue or not isinstance(reader.op, Reshape | Transpose | Identity):
            break
        shape = editor.type(reader.outputs[0]).shape
        next_view = view.moved(reader.op, shape)
        if next_view is None:
            break
        view, value = next_view, reader.outputs[0]
        behind.append(reader)
        moved = moved or isinstance(reader.op, Transpose)
        found.append(_Place(value, _of_product(view, shape), shape, gains=moved))
    return found[::-1], behind


def _of_product(view: View, shape: tuple[int, ...]) -> Move:
    """The move that makes a tensor of this shape, which the view is, of the product."""
    digits = [digit for axis in view.axes for digit in axis]
    split = sorted(digits, key=lambda digit: (digit.axis, -digit.step))
    return tuple(digit.extent for digit in split), tuple(split.index(digit) for digit in digits), shape


def _walks(op: PlacedMatMul, places: Sequence[_Place]) -> bool:
    """Whether kernels walk through the tensors in some layout of each."""
    shapes = [place.shape for place in places]
    for layouts in product(*(tuple(Layout) if len(shape) >= 3 else (Layout.ROW,) for shape in shapes)):
        steps = [_steps(shape, layout) for shape, layout in zip(shapes, layouts, strict=True)]
        found = walks(op, shapes, steps)
        if found is not None and found.neighbours:
            return True
    return False


def _steps(shape: tuple[int, ...], layout: Layout) -> tuple[int, ...]:
    """Elements between neighbours along each axis."""
    order = memory_axes(len(shape), layout)
    return tuple(prod(shape[other] for other in order[order.index(axis) + 1 :]) for axis in range(len(shape)))


def _replace(
    editor: GraphEditor, journal: Journal, node: Node, places: tuple[_Place, _Place, _Place], behind: list[Node]
) -> None:
    left, right, made = places
    names, parts = [], []
    for side, place in (("left", left), ("right", right)):
        name = place.value
        type_ = editor.type(name)
        if place.shape != type_.shape:
            begin = (*(0,) * (type_.rank - 1), place.begin)
            op = Slice(begin, place.shape, (1,) * type_.rank)
            name = editor.new_value(f"{name}.columns", op.infer([type_])[0])
            parts.append(Node(editor.free_node_name(f"{node.name}.{side}"), op, (place.value,), (name,)))
        names.append(name)
    passed = []
    for move in behind:
        if made.value == node.outputs[0]:
            break
        passed.append(move)
        if move.outputs[0] == made.value:
            break
    covers = joined(node.covers, *(move.covers for move in passed))
    placed = PlacedMatMul(left.move, right.move, made.move)
    last = passed[-1] if passed else node
    for move in [node, *passed][:-1]:
        editor.remove(move)
    editor.replace(last, *parts, Node(last.name, placed, tuple(names), (made.value,), covers=covers))
    editor.prune(node.inputs)
    journal.did(node.name, "placed", "its kernel walks through what lies elsewhere")


PLACE_PRODUCTS = Pass("place-products", _run, pays_on=on_tensor_cores)
