"""Multiplies values with each of two softmaxes instead of with their difference, so that both are attention.

Differential attention takes a second softmax off from the first, times a number, and multiplies values with what is
left: (P - c R) V is P V - c (R V). Often both are selected of one softmax, whose heads are pairs: then queries, keys
and masks of every second head are selected instead. No score is stored then, where each was written and read several
times. Values are multiplied twice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from bolt_build.dtypes import PRECISIONS
from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.logic import Where
from bolt_build.graph.ops.lines.softmax import Softmax
from bolt_build.graph.ops.moves.gather import Gather
from bolt_build.graph.ops.moves.shape import Cast, Identity, Reshape, Slice
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.recognise.attention_operands import Chain
from bolt_build.planner.passes.recognise.norm_parts import plain
from bolt_build.planner.rewrite import GraphEditor, joined


@dataclass(frozen=True)
class _Part:
    """Of `axis`, `count` elements from `begin` by `step`; the axis goes where `single`."""

    axis: int
    begin: int
    count: int
    step: int
    single: bool


@dataclass(frozen=True)
class _Term:
    """A softmax, or a part of one, times `factor` where there is one."""

    shares: Node
    part: _Part | None
    factor: str | None
    inside: tuple[str, ...]


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(PART_SHARES.name)
    for node in editor.nodes():
        if not isinstance(node.op, MatMul) or node.op.transpose_a or node.epilogue or len(node.inputs) != 2:
            continue
        difference = plain(editor, node.inputs[0])
        if difference is None or difference.op not in (Binary("sub"), Binary("add")):
            continue
        terms = tuple(_term(editor, name) for name in difference.inputs)
        first, second = terms
        if first is None or second is None:
            continue
        columns = editor.type(difference.outputs[0]).shape[-1]
        if any(editor.type(name).rank < 2 or editor.type(name).shape[-1] != columns for name in difference.inputs):
            continue  # one of them is repeated along columns
        if (why := _obstacle(editor, difference, first, second)) is not None:
            journal.declined(node.name, why)
            continue
        _put(editor, node, difference, (first, second))
        journal.did(node.name, "multiplied with both softmaxes", f"'{difference.name}' is of what they leave")
    return journal.result(editor.finish())


def _term(editor: GraphEditor, name: str) -> _Term | None:
    """What is a softmax times something that its columns share."""
    node, factor, inside = plain(editor, name), None, [name]
    while node is not None and isinstance(node.op, Cast | Identity):
        if editor.type(node.outputs[0]).dtype not in PRECISIONS.values():
            return None  # a share becomes 0, but for 1
        inside.append(node.inputs[0])
        node = plain(editor, node.inputs[0])
    if node is not None and node.op == Binary("mul"):
        shape = editor.type(name).shape
        wide = [each for each in node.inputs if editor.type(each).shape[-1:] == shape[-1:] != (1,)]
        if len(wide) != 1 or editor.type(wide[0]).shape != shape:
            return None
        (factor,) = (each for each in node.inputs if each != wide[0])
        inside.append(wide[0])
        node = plain(editor, wide[0])
    part = None if node is None else _part(editor, node)
    if node is not None and part is not None:
        node = plain(editor, node.inputs[0])
        # Pairs of heads are an axis of their own.
        if node is not None and isinstance(node.op, Reshape) and part.single:
            part = _of_pairs(editor, node, part)
            node = plain(editor, node.inputs[0])
            if part is None:
                return None
    if node is None or not isinstance(node.op, Softmax) or node.op.axis != editor.type(node.outputs[0]).rank - 1:
        return None
    return _Term(node, part, factor, tuple(inside))


def _part(editor: GraphEditor, node: Node) -> _Part | None:
    """What the node selects of an axis in front of rows and columns."""
    shape = editor.type(node.inputs[0]).shape
    match node.op:
        case Gather(axis):
            index = editor.constant(node.inputs[1])
            if index is None or index.size != 1 or index.ndim or axis >= len(shape) - 2:
                return None
            return _Part(axis, int(index) % shape[axis], 1, 1, single=True)
        case Slice(begin, count, step):
            cut = [axis for axis, size in enumerate(shape) if count[axis] != size or step[axis] != 1]
            if len(cut) != 1 or cut[0] >= len(shape) - 2 or step[cut[0]] < 1:
                return None
            (axis,) = cut
            return _Part(axis, begin[axis], count[axis], step[axis], single=False)
    return None


def _of_pairs(editor: GraphEditor, cut: Node, part: _Part) -> _Part | None:
    """The part of an axis that the reshape cuts in two, of which the second is selected from."""
    before, behind = (editor.type(name).shape for name in (*cut.inputs, *cut.outputs))
    axis = part.axis - 1
    if axis < 0 or before != (*behind[:axis], behind[axis] * behind[axis + 1], *behind[axis + 2 :]):
        return None
    return _Part(axis, part.begin, behind[axis], behind[axis + 1], single=False)


def _obstacle(editor: GraphEditor, difference: Node, first: _Term, second: _Term) -> str | None:
    """Why a product with each would not take less: scores are stored for others, too."""
    for value in (difference.outputs[0], *first.inside, *second.inside):
        if (why := editor.not_private(value)) is not None:
            return why
    for term in (first, second):
        readers = 0
        value = term.shares.outputs[0]
        while True:
            if editor.is_output(value):
                return f"'{value}' is an output"
            readers = len(editor.readers(value))
            if readers != 1 or not isinstance(editor.readers(value)[0].op, Reshape | Cast | Identity):
                break
            (value,) = editor.readers(value)[0].outputs
        if readers != (2 if first.shares is second.shares else 1):
            return f"'{value}' is read by {readers} nodes"
    return None


def _put(editor: GraphEditor, node: Node, difference: Node, terms: tuple[_Term, _Term]) -> None:
    chain = Chain(editor, f"{node.name}.parts")
    sides = list[str]()
    for term in terms:
        shares = term.shares.outputs[0]
        if term.part is not None:
            shares = _selected(editor, chain, shares, term.part)
        product = chain.add(node.op, [_as_type_of(editor, chain, shares, node.inputs[1]), node.inputs[1]])
        if term.factor is not None:
            product = chain.add(Binary("mul"), [product, _as_type_of(editor, chain, term.factor, node.inputs[1])])
        sides.append(product)
    last = Node(difference.name, difference.op, tuple(sides), node.outputs)
    editor.remove(difference)
    editor.replace(node, *chain.nodes, last)
    removed = editor.prune((*difference.inputs, *(term.shares.outputs[0] for term in terms)))
    covers = joined(*(each.covers for each in (*removed, difference, node)))
    editor.replace(last, replace(last, covers=covers))


def _as_type_of(editor: GraphEditor, chain: Chain, value: str, other: str) -> str:
    """The value with the other's element type: casts behind a softmax and its factor are in front of the product."""
    dtype = editor.type(other).dtype
    return value if editor.type(value).dtype == dtype else chain.add(Cast(dtype), [value])


def _selected(editor: GraphEditor, chain: Chain, value: str, part: _Part) -> str:
    """The part of a value: of what makes it, as far as matrices are multiplied and scores are computed one by one."""
    node, rank = plain(editor, value), editor.type(value).rank
    match None if node is None else node.op:
        case Softmax(axis) as softmax if node is not None and axis > part.axis:
            argument = _selected(editor, chain, node.inputs[0], part)
            return chain.add(replace(softmax, axis=axis - part.single), [argument])
        case Binary() | Where() | Activation() | Cast() | Identity() if node is not None:
            inputs = [_of_operand(editor, chain, name, rank, part) for name in node.inputs]
            return chain.add(node.op, inputs)
        case MatMul() if node is not None and len(node.inputs) == 2:
            return chain.add(node.op, [_of_operand(editor, chain, name, rank, part, last=True) for name in node.inputs])
    return _taken(editor, chain, value, part)


def _of_operand(editor: GraphEditor, chain: Chain, name: str, rank: int, part: _Part, *, last: bool = False) -> str:
    """The part of an operand that broadcasts to so many axes; `last`: whatever made it."""
    own = editor.type(name)
    axis = part.axis - (rank - own.rank)
    if axis < 0:
        return name
    if own.shape[axis] == 1:
        shape = (*own.shape[:axis], *own.shape[axis + 1 :])
        return chain.add(Reshape(shape), [name]) if part.single else name
    here = replace(part, axis=axis)
    return _taken(editor, chain, name, here) if last else _selected(editor, chain, name, here)


def _taken(editor: GraphEditor, chain: Chain, value: str, part: _Part) -> str:
    shape = editor.type(value).shape
    begin, count, step = [0] * len(shape), list(shape), [1] * len(shape)
    begin[part.axis], count[part.axis], step[part.axis] = part.begin, part.count, part.step
    made = chain.add(Slice(tuple(begin), tuple(count), tuple(step)), [value])
    if not part.single:
        return made
    return chain.add(Reshape((*shape[: part.axis], *shape[part.axis + 1 :])), [made])


PART_SHARES = Pass("part-shares", _run)
