"""Makes one gather of many slices, concatenations and pads that put pieces of one tensor beside each other.

Shifts move some channels to the next frame and some to the one before (TSM), or some by a pixel each way (S2-MLP), and
leave zeros or the old elements at the border. Models write them as assignments to slices, which exporters cut into
slices and concatenations of slices: each stores most of a tensor. Rows that stay whole are gathered instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, prod

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.ir import Array, Graph, Node, Op
from bolt_build.graph.ops.moves.gather import Gather
from bolt_build.graph.ops.moves.shape import Concat, Pad, Reshape, Slice
from bolt_build.planner.passes.base import Journal, Pass, PassResult, on_tensor_cores
from bolt_build.planner.rewrite import GraphEditor

_FEWEST, _WHOLE = 5, 16
"""Steps that are worth a gather, and elements of a row that it moves whole: fewer would be gathered one by one."""
_MOST = 1 << 20
"""Elements of the axes along which pieces lie."""


class _Other(Exception):
    """A value is made of something else than pieces of one tensor."""


@dataclass(frozen=True)
class _Pieces:
    """The steps that put pieces of `source` together, the last one first."""

    source: str
    nodes: tuple[Node, ...]


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(GATHER_PIECES.name)
    for old in reversed(editor.nodes()):  # the last concatenation first
        node = editor.node(old.name)
        if node is None or not isinstance(node.op, Concat) or node.epilogue:
            continue
        try:
            pieces = _pieces(editor, node)
            if len(pieces.nodes) < _FEWEST:
                continue
            _gather(editor, node, pieces)
        except _Other:
            continue
        journal.did(node.name, f"gathered pieces of '{pieces.source}'", f"{len(pieces.nodes)} steps put them together")
    return journal.result(editor.finish())


def _is_step(op: Op) -> bool:
    if isinstance(op, Slice):
        return all(step == 1 for step in op.step)
    return isinstance(op, Concat) or (
        isinstance(op, Pad) and op.mode == "constant" and op.value == 0 and min((*op.begin, *op.end), default=0) >= 0
    )


def _pieces(editor: GraphEditor, end: Node) -> _Pieces:
    """Raises _Other where several tensors are put together, or something else reads a part on the way."""
    found, sources, waiting = {end.name: end}, set[str](), [*end.inputs]
    while waiting:
        value = waiting.pop()
        if editor.is_constant(value):
            continue
        made = editor.producer(value)
        if made is None or made.epilogue or not _is_step(made.op):
            sources.add(value)
        elif made.name not in found:
            found[made.name] = made
            waiting += made.inputs
    if len(sources) != 1:
        raise _Other
    for node in found.values():
        if node is not end and (
            any(map(editor.is_output, node.outputs))
            or any(reader.name not in found for name in node.outputs for reader in editor.readers(name))
        ):
            raise _Other
    return _Pieces(sources.pop(), tuple(found.values()))


def _touched(editor: GraphEditor, pieces: _Pieces) -> list[int]:
    """The axes along which steps cut, pad or concatenate."""
    found = set[int]()
    for node in pieces.nodes:
        before = editor.type(node.inputs[0]).shape
        match node.op:
            case Slice(count=count):
                found |= {axis for axis, extent in enumerate(before) if count[axis] != extent}
            case Pad(begin=begin, end=end):
                found |= {axis for axis in range(len(before)) if begin[axis] or end[axis]}
            case Concat(axis=axis):
                found.add(axis)
    return sorted(found)


def _gather(editor: GraphEditor, node: Node, pieces: _Pieces) -> None:
    """Raises _Other where nothing is gained: rows are short, or each element is only moved, as `torch.roll` does."""
    shape, out = editor.type(pieces.source).shape, editor.type(node.outputs[0]).shape
    axes = _touched(editor, pieces)
    if not axes or len(shape) != len(out):
        raise _Other
    lead, last = axes[0], axes[-1] + 1
    count, taken = prod(shape[lead:last]), prod(out[lead:last])
    if not count or not taken or max(count, taken) > _MOST:
        raise _Other
    table = _table(editor, node.outputs[0], pieces, lead, last).reshape(-1)
    inner = prod(shape[last:])
    run = _run_of(table, count)
    if run * inner < _WHOLE or np.array_equal(np.sort(table), np.arange(count)):
        raise _Other
    rows = table[::run] // run
    made = list[Node]()

    def add(op: Op, *inputs: str) -> str:
        (type_,) = op.infer([editor.type(name) for name in inputs])
        value = editor.new_value(f"{node.outputs[0]}.{op.kind}", type_)
        names = {each.name for each in made}
        made.append(Node(editor.free_node_name(f"{node.name}.{op.kind}", names), op, inputs, (value,)))
        return value

    flat = add(Reshape((*shape[:lead], count // run, run * inner)), pieces.source)
    if (table == count).any():
        none = (0,) * (lead + 2)
        flat = add(Pad(none, (*none[:lead], 1, 0)), flat)
    found = add(Gather(lead), flat, editor.new_constant(f"{node.name}.rows", rows, DType.I64))
    editor.replace(node, *made, Node(node.name, Reshape(out), (found,), node.outputs, covers=node.covers))
    editor.prune(node.inputs)


def _run_of(table: Array, count: int) -> int:
    """The most elements that lie beside each other in the source wherever they do in the result, from multiples on."""
    zero = table == count
    follows = np.where(zero[1:] | zero[:-1], zero[1:] & zero[:-1], np.diff(table) == 1)
    breaks = np.flatnonzero(~follows) + 1
    starts = np.concatenate(([0], breaks))
    found = gcd(len(table), count)
    for start in starts:
        found = gcd(found, int(start), int(table[start]))
    return found


def _table(editor: GraphEditor, value: str, pieces: _Pieces, lead: int, last: int) -> Array:
    """Which element of the source's axes from `lead` to `last` each of the value's is; one beyond where it is zero.
    Raises _Other where constants are no zeros."""
    known: dict[str, Array] = {}
    shape = editor.type(pieces.source).shape[lead:last]
    known[pieces.source] = np.arange(prod(shape)).reshape(shape)
    zero = prod(shape)

    def of(name: str) -> Array:
        if name in known:
            return known[name]
        if (array := editor.constant(name)) is not None:
            if array.any():
                raise _Other
            return np.full(array.shape[lead:last], zero)
        node = editor.producer(name)
        assert node is not None
        given = [of(each) for each in node.inputs]
        match node.op:
            case Slice(begin=begin, count=count):
                cuts = zip(begin[lead:last], count[lead:last], strict=True)
                found = given[0][tuple(slice(first, first + size) for first, size in cuts)]
            case Pad(begin=begin, end=end):
                found = np.pad(given[0], [*zip(begin[lead:last], end[lead:last], strict=True)], constant_values=zero)
            case Concat(axis=axis):
                found = np.concatenate(given, axis - lead)
            case _:
                raise _Other
        known[name] = found
        return found

    return of(value)


GATHER_PIECES = Pass("gather-pieces", _run, pays_on=on_tensor_cores)
