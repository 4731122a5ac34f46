"""Makes one gather of moves that leave rows whole: shifted windows are four slices, two concatenations and a transpose,
and merged patches four slices and a concatenation. Which row goes where is known, and the same in every image.

A single move is a step of its own kind already, and stays.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.ir import Array, Graph, Node
from bolt_build.graph.ops.moves.gather import Gather
from bolt_build.graph.ops.moves.shape import Concat, Reshape, Slice, Transpose
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.recognise.attention_operands import Chain
from bolt_build.planner.rewrite import GraphEditor, joined

_LEAST = 16
"""Bytes of a row, as many as a thread moves at once."""
_MOST = 1 << 21
"""Rows of all images: places are computed one by one, and an image's are kept with the weights."""


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(GATHER_ROWS.name)
    declined: set[str] = set()
    for old in reversed(editor.nodes()):
        node = editor.node(old.name)
        if node is None or not _is_move(editor, node):
            continue
        for nodes, source in reversed(_chains(editor, node)):
            if _steps(nodes) < 2:
                continue
            places = _places(editor, nodes, source)
            if isinstance(places, str) and node.name not in declined:
                journal.declined(node.name, places)
                declined |= {each.name for each in nodes}
            elif places is not None and not isinstance(places, str):
                _replace(editor, journal, nodes, source, places)
                break
    return journal.result(editor.finish())


def _is_move(editor: GraphEditor, node: Node) -> bool:
    if node.epilogue or not isinstance(node.op, Reshape | Transpose | Slice | Concat):
        return False
    return editor.type(node.outputs[0]).rank > 1 and editor.type(node.inputs[0]).rank > 1


def _chains(editor: GraphEditor, end: Node) -> list[tuple[list[Node], str]]:
    """Moves up to `end` that begin with one value and whose values nobody else reads, the last first; the shortest
    such chain first, each with the value that it begins with."""
    nodes, waiting, found = [end], dict.fromkeys(end.inputs), []
    while waiting:
        if len(waiting) == 1:
            found.append(([*nodes], next(iter(waiting))))
        for value in waiting:
            node = editor.producer(value)
            private = not editor.is_output(value) and all(reader in nodes for reader in editor.readers(value))
            if node is not None and private and _is_move(editor, node):
                break
        else:
            break
        del waiting[value]
        nodes.append(node)
        waiting |= dict.fromkeys(node.inputs)
    return found


def _steps(nodes: list[Node]) -> int:
    """How many of the nodes may move anything."""
    return sum(not isinstance(node.op, Reshape) for node in nodes)


def _places(editor: GraphEditor, nodes: list[Node], source: str) -> Array | str | None:
    """Which row of an image of `source` each row of an image of the chain's end is; why these are too many; None where
    they are no whole rows, or not the same in every image."""
    type_, end = editor.type(source), editor.type(nodes[0].outputs[0])
    images, width = type_.shape[0], type_.shape[-1]
    if not type_.elements or width * type_.dtype.nbytes < _LEAST:
        return None
    if end.shape[0] % images or editor.is_constant(source):
        return None
    if type_.elements // width > _MOST:
        return f"'{source}' has {type_.elements // width} rows, and places of at most {_MOST} are kept with the weights"
    rows = {source: np.arange(type_.elements // width).reshape(*type_.shape[:-1], 1)}
    for node in reversed(nodes):
        moved = _moved(node, rows, width)
        if moved is None:
            return None
        rows[node.outputs[0]] = moved
    places = rows[nodes[0].outputs[0]].reshape(images, -1)
    begin = np.arange(images)[:, None] * (type_.elements // width // images)
    return places[0] if np.array_equal(places - begin, np.broadcast_to(places[0], places.shape)) else None


def _moved(node: Node, rows: Mapping[str, Array], width: int) -> Array | None:
    """The rows of what the node makes, those of its own rows one behind the other along the last axis; None where it
    takes rows apart."""
    each = [rows[name] for name in node.inputs]
    (first, *_) = each
    match node.op:
        case Reshape(shape) if shape[-1] % width == 0:
            return first.reshape(*shape[:-1], shape[-1] // width)
        case Transpose(perm) if perm[-1] == len(perm) - 1:
            return first.transpose(perm)
        case Slice(begin, count, step) if begin[-1] % width == count[-1] % width == 0 and step[-1] == 1:
            at = [np.arange(n) * s + b for b, n, s in zip(begin[:-1], count[:-1], step[:-1], strict=True)]
            return first[np.ix_(*at, np.arange(count[-1] // width) + begin[-1] // width)]
        case Concat(axis):
            return np.concatenate(each, axis)
    return None


def _replace(editor: GraphEditor, journal: Journal, nodes: list[Node], source: str, places: Array) -> None:
    end, type_ = nodes[0], editor.type(source)
    images, width = type_.shape[0], type_.shape[-1]
    covers = joined(*(node.covers for node in reversed(nodes)))
    for node in nodes[1:]:
        editor.remove(node)
    chain = Chain(editor, end.name)
    if np.array_equal(places, np.arange(type_.elements // width // images)):
        moved = source
    else:
        rows = chain.add(Reshape((images, type_.elements // width // images, width)), [source])
        indices = editor.new_constant(f"{end.name}.places", places.astype(np.int32), DType.I32)
        moved = chain.add(Gather(1), [rows, indices])
    last = Node(end.name, Reshape(editor.type(end.outputs[0]).shape), (moved,), end.outputs, covers=covers)
    editor.replace(end, *chain.nodes, last)
    journal.did(end.name, "made a gather", f"{_steps(nodes)} moves of whole rows of '{source}'")


GATHER_ROWS = Pass("gather-rows", _run)
