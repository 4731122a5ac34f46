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
from bolt_build.graph.ops.matmul import MatMul
from bolt_build.graph.ops.shape import Reshape, Slice, Transpose
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.fold.channels import weight_obstacle
from bolt_build.planner.rewrite import GraphEditor
from bolt_build.schema.recipe import Policy


@dataclass(frozen=True)
class _Taken:
    """What a reader takes of each head's columns: `count` from `begin` on, each `step` further."""

    reader: Node
    begin: int
    count: int
    step: int

    @property
    def columns(self) -> range:
        return range(self.begin, self.begin + self.count * self.step, self.step)


def _run(graph: Graph, policy: Policy) -> PassResult:
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
            journal.did(node.name, "put even columns first", f"{len(pairs)} slices take every second of them")
            break
    return journal.result(editor.finish())


def _depths(editor: GraphEditor, value: str, columns: int) -> list[int]:
    """Columns of a head, as reshapes behind the product have them."""
    reshapes = [each for each in editor.readers(value) if isinstance(each.op, Reshape)]
    found = {editor.type(each.outputs[0]).shape[-1] for each in reshapes} | {columns}
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
            case Reshape() if not reader.epilogue and shape[-1] == count:
                yield from _readers(editor, met, reader.outputs[0], begin, count, depth, cut=cut)
            case Reshape() if not reader.epilogue and not cut and shape[-1] == depth:
                yield from _readers(editor, met, reader.outputs[0], 0, depth, depth, cut=True)
            case Slice(first, many, step) if not reader.epilogue and cut and step[last] == 1:
                yield from _readers(editor, met, reader.outputs[0], begin + first[last], many[last], depth, cut=True)
            case Slice(first, many, step) if not reader.epilogue and cut:
                yield _Taken(reader, begin + first[last], many[last], step[last])
            case _:
                yield _Taken(reader, begin if cut else 0, count if cut else depth, 1)


_OUTPUT = Node("output", Reshape(()), ("",), ("",))
"""In the place of a reader: the value is an output of the graph."""


def _pairs(taken: list[_Taken]) -> Iterator[tuple[_Taken, _Taken]]:
    for even in taken:
        for odd in taken:
            if even.step == odd.step == 2 and odd.begin == even.begin + 1 and odd.count == even.count:
                yield even, odd


def _alone(pair: tuple[_Taken, _Taken], taken: list[_Taken]) -> bool:
    """Whether nobody else reads these columns, but with the same steps."""
    own = set(pair[0].columns) | set(pair[1].columns)
    same = {(each.begin, each.count, each.step) for each in pair}
    return all((each.begin, each.count, each.step) in same or own.isdisjoint(each.columns) for each in taken)


def _part(editor: GraphEditor, node: Node, depth: int, pairs: list[tuple[_Taken, _Taken]]) -> None:
    order = np.arange(depth)
    moved: dict[str, tuple[_Taken, int]] = {}
    for even, odd in pairs:
        first = even.begin
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


PART_NEIGHBOURS = Pass("part-neighbours", _run)
