"""Puts a product's even columns in front of its odd ones, where slices take every second of them.

Heads whose pairs are neighbours in weights, and halves where they are turned, are taken apart so: DeepSeek's and all
that follow it. In another order of the weight's columns each slice is one run, and both are halves of a head.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from bolt_build.graph.arrays import held_dtype
from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.moves.shape import Reshape, Slice, Transpose
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.fold.channels import weight_obstacle
from bolt_build.planner.rewrite import GraphEditor
from bolt_build.wording import many


@dataclass(frozen=True)
class _Taken:
    """What a reader takes of each head's columns: `count` from `begin` on, each `step` further. If `parts`, it is the
    last of three moves that put the even ones of all of them in front."""

    reader: Node
    begin: int
    count: int
    step: int
    parts: bool = False

    @property
    def columns(self) -> range:
        return range(self.begin, self.begin + self.count * self.step, self.step)


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(PART_NEIGHBOURS.name)
    for node in editor.nodes():
        if not isinstance(node.op, MatMul) or node.op.transpose_b or weight_obstacle(editor, node) is not None:
            continue
        columns = editor.type(node.outputs[0]).shape[-1]
        for depth in _depths(editor, node.outputs[0], columns):
            met: dict[str, range] = {}
            taken = list(_readers(editor, met, node.outputs[0], 0, columns, depth, cut=depth == columns))
            pairs = [pair for pair in _pairs(taken) if _alone(pair, taken)]
            if not pairs:
                continue
            _part(editor, node, depth, pairs)
            _rename(editor, met, pairs)
            _remove(editor, pairs)
            journal.did(node.name, "put even columns first", f"{many(len(pairs), 'reader')} parted them")
            break
    return journal.result(editor.finish())


def _depths(editor: GraphEditor, value: str, columns: int) -> list[int]:
    """Columns of a head, as reshapes behind the product have them."""
    shapes = [editor.type(each.outputs[0]).shape for each in editor.readers(value) if isinstance(each.op, Reshape)]
    found = {shape[-1] for shape in shapes if shape} | {columns}
    return sorted(depth for depth in found if depth and columns % depth == 0)


def _readers(
    editor: GraphEditor, met: dict[str, range], value: str, begin: int, count: int, depth: int, *, cut: bool
) -> Iterator[_Taken]:  # fmt: skip
    """What reads which columns of a head, behind moves that keep them: the value has `count` of these from `begin` on.
    Where heads are not cut yet, it has all columns of the product. `met` has the columns of each value on the way."""
    met[value] = range(begin, begin + count) if cut else range(depth)
    if editor.is_output(value):
        yield _Taken(_OUTPUT, begin if cut else 0, count if cut else depth, 1)
    last = editor.type(value).rank - 1
    for reader in editor.readers(value):
        shape = editor.type(reader.outputs[0]).shape
        match reader.op:
            case Transpose(perm) if perm[-1] == last and not reader.epilogue:
                yield from _readers(editor, met, reader.outputs[0], begin, count, depth, cut=cut)
            case Reshape() if not reader.epilogue and shape[-1:] == (count,):
                yield from _readers(editor, met, reader.outputs[0], begin, count, depth, cut=cut)
            case Reshape() if cut and (parting := _parting(editor, reader, count)) is not None:
                yield _Taken(parting, begin, count, 1, parts=True)
            case Reshape() if not reader.epilogue and not cut and shape[-1:] == (depth,):
                yield from _readers(editor, met, reader.outputs[0], 0, depth, depth, cut=True)
            case Slice(first, many, step) if not reader.epilogue and cut and step[last] == 1:
                yield from _readers(editor, met, reader.outputs[0], begin + first[last], many[last], depth, cut=True)
            case Slice(first, many, step) if not reader.epilogue and cut:
                yield _Taken(reader, begin + first[last], many[last], step[last])
            case _:
                yield _Taken(reader, begin if cut else 0, count if cut else depth, 1)


def _parting(editor: GraphEditor, reader: Node, count: int) -> Node | None:
    """The last of three moves that put even columns in front: pairs as an axis of two, which is moved forwards."""
    nodes = [reader]
    for _ in range(2):
        (value,), readers = nodes[-1].outputs, editor.readers(nodes[-1].outputs[0])
        if len(readers) != 1 or editor.is_output(value) or nodes[-1].epilogue:
            return None
        nodes.append(readers[0])
    first, second, third = nodes
    shape, apart = editor.type(first.inputs[0]).shape, editor.type(first.outputs[0]).shape
    lead = apart[:-2]
    if shape[-1] != count or count % 2 or apart[-2:] != (count // 2, 2) or third.op != Reshape((*lead, count)):
        return None
    if third.epilogue or [n for n in lead if n != 1] != [n for n in shape[:-1] if n != 1]:
        return None
    rank = len(apart)
    return third if second.op == Transpose((*range(rank - 2), rank - 1, rank - 2)) else None


_OUTPUT = Node("output", Reshape(()), ("",), ("",))
"""In the place of a reader: the value is an output of the graph."""


def _pairs(taken: list[_Taken]) -> Iterator[tuple[_Taken, _Taken]]:
    """Even and odd columns that two readers take, or one."""
    for even in taken:
        if even.parts:
            yield even, even
            continue
        for odd in taken:
            if even.step == odd.step == 2 and odd.begin == even.begin + 1 and odd.count == even.count:
                yield even, odd


def _alone(pair: tuple[_Taken, _Taken], taken: list[_Taken]) -> bool:
    """Whether nobody else reads these columns, but with the same steps."""
    own = set(pair[0].columns) | set(pair[1].columns)
    same = {(each.begin, each.count, each.step, each.parts) for each in pair}
    return all(
        (each.begin, each.count, each.step, each.parts) in same or own.isdisjoint(each.columns) for each in taken
    )


def _part(editor: GraphEditor, node: Node, depth: int, pairs: list[tuple[_Taken, _Taken]]) -> None:
    order = np.arange(depth)
    moved: dict[str, tuple[_Taken, int]] = {}
    for even, odd in pairs:
        first = even.begin
        if even.parts:
            order[first : first + even.count] = [*even.columns[::2], *even.columns[1::2]]
            continue
        order[first : first + 2 * even.count] = [*even.columns, *odd.columns]
        moved |= {even.reader.name: (even, 0), odd.reader.name: (odd, odd.count - 1)}
    columns = editor.type(node.outputs[0]).shape[-1]
    places = np.concatenate([order + head for head in range(0, columns, depth)])
    inputs = [node.inputs[0]]
    for name in node.inputs[1:]:
        array, dtype = editor.constant(name), editor.type(name).dtype
        assert array is not None
        if array.shape[-1:] == (columns,):
            array = np.ascontiguousarray(array[..., places]).astype(held_dtype(dtype), copy=False)
            name = editor.new_constant(f"{name}.parted", array, dtype)
        inputs.append(name)
    for taken, ahead in moved.values():
        op = taken.reader.op
        assert isinstance(op, Slice)
        begin, step = (*op.begin[:-1], op.begin[-1] + ahead), (*op.step[:-1], 1)
        editor.replace(taken.reader, replace(taken.reader, op=Slice(begin, op.count, step)))
    editor.replace(node, replace(node, inputs=tuple(inputs)))


def _rename(editor: GraphEditor, met: dict[str, range], pairs: list[tuple[_Taken, _Taken]]) -> None:
    """Gives values on the way whose columns are in another order names of their own: they are no longer the model's."""
    moved = {column for pair in pairs for each in pair for column in each.columns}
    for value, columns in met.items():
        if moved.isdisjoint(columns):
            continue
        made, node = editor.new_value(f"{value}.parted", editor.type(value)), editor.producer(value)
        assert node is not None
        editor.replace(node, replace(node, outputs=(made,)))
        editor.redirect(value, made)


def _remove(editor: GraphEditor, pairs: list[tuple[_Taken, _Taken]]) -> None:
    """Takes moves away that parted what is parted now."""
    for last, _ in pairs:
        if last.parts:
            source = last.reader.inputs[0]
            for _ in range(2):
                between = editor.producer(source)
                assert between is not None
                source = between.inputs[0]
            if editor.type(source) == editor.type(last.reader.outputs[0]):
                editor.stand_in(last.reader.outputs[0], source)
            else:
                editor.replace(last.reader, replace(last.reader, inputs=(source,)))
            editor.prune(last.reader.inputs)


PART_NEIGHBOURS = Pass("part-neighbours", _run)
