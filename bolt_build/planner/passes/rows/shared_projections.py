"""Computes those operands of an attention with one product that are products of one input and are no packed rows.

For example Llama's queries and keys, which are turned behind their products, and what a decoder takes of its encoder:
keys and values alone. Attention, and what is done to heads in front of it, read their columns where they lie. Queries
and keys to which the same is done are prepared by one operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.attention.attention import Attention
from bolt_build.graph.ops.attention.heads import HeadRows
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.moves.shape import Reshape, Slice
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.graph.ops.products.placed_matmul import PlacedMatMul
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.fold.channels import weight_obstacle
from bolt_build.planner.passes.recognise.attention_heads import Factor, Heads, joined_heads, operands_of
from bolt_build.planner.passes.recognise.attention_operands import Chain
from bolt_build.planner.passes.rows.projections import Projection, one_product, projection
from bolt_build.planner.rewrite import GraphEditor
from bolt_build.targets import Target

ALIGNED = 8
"""Columns: what begins elsewhere no kernel reads in whole loads."""


@dataclass(frozen=True)
class _Operand:
    """One operand of an attention, and what is done to its heads, where that is not nothing."""

    value: str
    heads: Node | None


@dataclass(frozen=True)
class _Side(_Operand):
    """The same with the projection of its rows."""

    rows: Projection

    @property
    def nodes(self) -> tuple[Node, ...]:
        return self.rows.nodes if self.heads is None else (*self.rows.nodes, self.heads)


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(SHARE_PROJECTIONS.name)
    for node in editor.nodes():
        if not isinstance(node.op, Attention) or node.op.packed:
            continue
        sides = [side for name in dict.fromkeys(node.inputs[:3]) if (side := _side(editor, name)) is not None]
        for group in _groups(sides):
            names = ", ".join(f"'{each.rows.product.name}'" for each in group)
            obstacle = _obstacle(editor, group)
            if obstacle is not None:
                journal.declined(node.name, f"{names}: {obstacle}")
                continue
            merged = _merge(editor, node, group)
            journal.did(node.name, "merged", f"{names} into the product '{merged}', whose columns are read in place")
        _prepare_neighbours(editor, journal, node)
    return journal.result(editor.finish())


def _side(editor: GraphEditor, value: str) -> _Side | None:
    node, heads = editor.producer(value), None
    if node is not None and isinstance(node.op, HeadRows) and not node.epilogue:
        heads, rows = node, node.inputs[0]
    else:
        rows = value
    found = projection(editor, rows)
    return None if found is None else _Side(value, heads, found)


def _groups(sides: Sequence[_Side]) -> list[list[_Side]]:
    """Those of one input, where they are several."""
    found: dict[object, list[_Side]] = {}
    for side in sides:
        op = side.rows.product.op
        assert isinstance(op, MatMul)
        key = side.rows.product.inputs[0], op.transpose_a, side.rows.reshape is None
        found.setdefault(key, []).append(side)
    return [group for group in found.values() if len(group) > 1]


def _obstacle(editor: GraphEditor, group: Sequence[_Side]) -> str | None:
    """Why the products cannot be one; None where they can."""
    names = [side.rows.product.name for side in group]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:  # as where keys are the queries, normalised
        return f"'{twice}' gives two of its operands"
    for side in group:
        for node in side.nodes:
            if (why := _read_apart(editor, node.outputs[0])) is not None:
                return why
        if (why := weight_obstacle(editor, side.rows.product)) is not None:
            return why
        columns = editor.type(side.value).shape[-1]
        if columns % ALIGNED:
            return f"{columns} columns of '{side.rows.product.name}' are no whole loads of {ALIGNED}"
    return None


def _read_apart(editor: GraphEditor, value: str) -> str | None:
    """Why others than one reader keep the value from being columns of a product; None where each reads such."""
    apart = all(_reads_columns(editor, reader) for reader in editor.readers(value))
    return None if apart and not editor.is_output(value) else editor.not_private(value)


def _reads_columns(editor: GraphEditor, reader: Node) -> bool:
    """Whether the node reads columns of a product where they lie: sums with one number a column do so too."""
    if isinstance(reader.op, Attention | HeadRows | PlacedMatMul):
        return True
    shapes = [editor.type(name).shape for name in reader.inputs if editor.is_constant(name)]
    return reader.op == Binary("add") and not reader.epilogue and [len(shape) for shape in shapes] == [1]


def _merge(editor: GraphEditor, attention: Node, group: Sequence[_Side]) -> str:
    """The name of the one product in front of the attention, of which the operands are columns."""
    merged, rows, made = one_product(editor, attention, [side.rows for side in group])
    chain = Chain(editor, f"{attention.name}.columns")
    for side in group:
        for node in side.nodes:
            editor.remove(node)
    begin = 0
    waiting = list(group)
    while waiting:
        together = _alike(editor, waiting)
        width = sum(editor.type(side.value).shape[-1] for side in together)
        columns = _columns(editor, chain, rows, begin, width, together[0] if together[0].heads is None else None)
        if len(together) == 2:
            _prepare_both(editor, chain, columns, *together)
        elif (heads := together[0].heads) is not None:
            chain.add(heads.op, (columns, *heads.inputs[1:]), together[0].value)
        begin, waiting = begin + width, waiting[len(together) :]
    editor.replace(attention, *made, *chain.nodes, attention)
    return merged.name


def _prepare_neighbours(editor: GraphEditor, journal: Journal, attention: Node) -> None:
    """One operator for the heads of queries and keys that are columns beside each other already, as those of products
    that have the queries, keys and values of each head together."""
    queries, keys = (_sliced(editor, name) for name in attention.inputs[:2])
    if queries is None or keys is None or queries[0].value == keys[0].value:
        return
    (first, rows, begin), (second, other, after) = queries, keys
    width = editor.type(first.value).shape[-1]
    if rows != other or after != begin + width or len(_alike(editor, (first, second))) < 2:
        return
    chain = Chain(editor, f"{attention.name}.columns")
    for side in (first, second):
        assert side.heads is not None
        editor.remove(side.heads)
    shape, both = editor.type(rows).shape, width + editor.type(second.value).shape[-1]
    front = (0,) * (len(shape) - 1)
    columns = chain.add(Slice((*front, begin), (*shape[:-1], both), (1,) * len(shape)), [rows])
    _prepare_both(editor, chain, columns, first, second)
    editor.replace(attention, *chain.nodes, attention)
    for side in (first, second):  # not before something reads the rows again: they may have no other readers
        assert side.heads is not None
        editor.prune(side.heads.inputs[:1])
    journal.did(attention.name, "merged", f"what is done to the heads of '{first.value}' and '{second.value}'")


def _sliced(editor: GraphEditor, value: str) -> tuple[_Operand, str, int] | None:
    """An operand whose heads are prepared from a run of columns; what these are sliced of, and where they begin."""
    heads = editor.producer(value)
    if heads is None or not isinstance(heads.op, HeadRows) or heads.epilogue or editor.not_private(value) is not None:
        return None
    node, columns = editor.producer(heads.inputs[0]), heads.inputs[0]
    while node is not None and isinstance(node.op, Reshape) and editor.type(node.inputs[0]) == editor.type(columns):
        columns = node.inputs[0]
        node = editor.producer(columns)
    if node is None or not isinstance(node.op, Slice) or any(step != 1 for step in node.op.step):
        return None
    rows = node.inputs[0]
    if any(node.op.begin[:-1]) or node.op.count[:-1] != editor.type(rows).shape[:-1]:
        return None
    return _Operand(value, heads), rows, node.op.begin[-1]


def _columns(editor: GraphEditor, chain: Chain, rows: str, begin: int, width: int, side: _Operand | None) -> str:
    """So many columns of the rows from `begin` on, as the operand that `side` is where nothing else is done to it."""
    shape = editor.type(rows).shape
    if width == shape[-1] and side is None:
        return rows
    front = (0,) * (len(shape) - 1)
    slice_ = Slice((*front, begin), (*shape[:-1], width), (1,) * len(shape))
    return chain.add(slice_, [rows], None if side is None else side.value)


def _alike(editor: GraphEditor, sides: Sequence[_Operand]) -> Sequence[_Operand]:
    """The first of the sides, with the second where the same is done to the heads of both."""
    if len(sides) < 2:
        return sides[:1]
    first, second = (_heads(editor, side) for side in sides[:2])
    alike = first is not None and first == second and _depth(editor, sides[0]) == _depth(editor, sides[1])
    return sides[:2] if alike else sides[:1]


def _heads(editor: GraphEditor, side: _Operand) -> Heads | None:
    """What is done to heads; None where that is nothing, or not alike for all of them in what is no weight."""
    node = side.heads
    if node is None:
        return None
    assert isinstance(node.op, HeadRows)
    own = list(node.inputs[1:])
    weights = [editor.constant(own.pop(0)) if there else None for there in (node.op.scaled, node.op.shifted)]
    if any(there and array is None for there, array in zip((node.op.scaled, node.op.shifted), weights, strict=True)):
        return None
    shapes = [(1,) * (4 - editor.type(name).rank) + editor.type(name).shape for name in own]
    if any(shape[2] != 1 for shape in shapes):
        return None
    angles = tuple(
        Factor(array.reshape(shape)) if (array := editor.constant(name)) is not None else Factor(None, name, shape)
        for name, shape in zip(own, shapes, strict=True)
    )
    scale, bias = weights
    return Heads(replace(node.op, heads=1), scale, bias, angles)


def _depth(editor: GraphEditor, side: _Operand) -> int:
    assert side.heads is not None
    assert isinstance(side.heads.op, HeadRows)
    return editor.type(side.value).shape[-1] // side.heads.op.heads


def _prepare_both(editor: GraphEditor, chain: Chain, columns: str, first: _Operand, second: _Operand) -> None:
    """One operator on the heads of both, of which each operand is a slice."""
    heads, counts = [], []
    for side in (first, second):
        found = _heads(editor, side)
        assert found is not None
        assert side.heads is not None
        assert isinstance(side.heads.op, HeadRows)
        heads.append(found)
        counts.append(side.heads.op.heads)
    both = joined_heads(heads[0], heads[1], (counts[0], counts[1]))
    operands = operands_of(editor, both, chain.label, lambda op, value: chain.add(op, [value]))
    prepared = chain.add(replace(both.op, heads=sum(counts)), [columns, *operands])
    begin = 0
    for side in (first, second):
        width = editor.type(side.value).shape[-1]
        _columns(editor, chain, prepared, begin, width, side)
        begin += width


def _reads_in_place(target: Target, precision: str) -> bool:
    """Attention on tensor cores reads rows wherever they lie; elsewhere slices of them are copied."""
    return target.gpu is not None and target.gpu.instruction(precision) is not None


SHARE_PROJECTIONS = Pass("share-projections", _run, pays_on=_reads_in_place)
