"""Computes attention of neighbouring parts of a sequence as that of a batch.

Encoders of images that have no batch (Qwen's) put the patches of all images one behind the other, cut queries, keys and
values at the images or at windows of one image, compute attention part by part, and concatenate what comes out. Parts
of one length become images of one batch: one step instead of one a part, whose blocks fill the GPU. What stands between
cuts and concatenation may be whatever works on each part by itself, and the same in all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bolt_build.graph.ir import Graph, Node, Op
from bolt_build.graph.ops.attention.attention import Attention
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.logic import Ask, Compare, Where
from bolt_build.graph.ops.lines.softmax import Softmax
from bolt_build.graph.ops.moves.expand import Expand
from bolt_build.graph.ops.moves.shape import Concat, Reshape, Slice, Transpose
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.recognise.attention_operands import Chain
from bolt_build.planner.rewrite import GraphEditor, joined

_MOST_NODES = 48
"""Of one part; attention with masks and moves has about half as many."""

Key = tuple[object, ...]


class _Unlike(Exception):
    """Why a part cannot be one image of a batch."""


@dataclass(frozen=True)
class _Part:
    """How a value is computed from cuts of tensors: equal `key`s are one computation. `begins` is where each cut
    begins along its axis, `lengths` how long it is there. `nodes` are those of this part alone."""

    value: str
    key: Key
    begins: tuple[int, ...]
    lengths: tuple[int, ...]
    nodes: tuple[Node, ...]

    def follows(self, other: _Part) -> bool:
        """Whether each cut begins where that of the other part ends."""
        return self.key == other.key and all(
            begin == before + length
            for begin, before, length in zip(self.begins, other.begins, other.lengths, strict=True)
        )


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(BATCH_PARTS.name)
    for node in editor.nodes():
        if not isinstance(node.op, Concat) or node.epilogue or len(node.inputs) < 2:
            continue
        try:
            parts = [_part(editor, node, value) for value in node.inputs]
        except _Unlike:
            continue
        if all(any(isinstance(each.op, Softmax | Attention) for each in part.nodes) for part in parts):
            _batched(editor, journal, node, node.op, parts)
    return journal.result(editor.finish())


def _part(editor: GraphEditor, end: Node, value: str) -> _Part:
    """Raises _Unlike where the value is no part's."""
    found: dict[str, Node] = {}
    begins: list[int] = []
    lengths: list[int] = []

    def key_of(name: str) -> Key:
        if editor.is_constant(name):
            return _constant(editor, name)
        node = editor.producer(name)
        if node is None or all(map(editor.is_constant, node.inputs)):
            raise _Unlike  # what no cut leads to is the same in every part, and has no axis for them
        if node.name in found:  # what two nodes compute is read twice of one: other parts have to do the same
            return ("again", list(found).index(node.name))
        found[node.name] = node
        if len(found) > _MOST_NODES or node.epilogue:
            raise _Unlike
        if isinstance(node.op, Slice):
            axis = _axis(node.op, editor.type(node.inputs[0]).shape)
            begins.append(node.op.begin[axis])
            lengths.append(node.op.count[axis])
            return ("cut", node.inputs[0], axis, node.op.count)
        _check(editor, node)
        return (node.op, *map(key_of, node.inputs))

    key = key_of(value)
    readers = {each.name for node in found.values() for name in node.outputs for each in editor.readers(name)}
    if readers - {*found, end.name} or any(editor.is_output(name) for node in found.values() for name in node.outputs):
        raise _Unlike
    return _Part(value, key, tuple(begins), tuple(lengths), tuple(found.values()))


def _constant(editor: GraphEditor, name: str) -> Key:
    """Numbers are alike by what they are, all else that every part reads by its name."""
    array = editor.constant(name)
    if array is None or array.size != 1:
        return ("shared", name)
    return ("number", array.shape, str(array.dtype), array.tobytes())


def _axis(op: Slice, shape: tuple[int, ...]) -> int:
    """The one axis along which the slice takes a part, in steps of one, of others in their order."""
    cut = [axis for axis, (count, extent) in enumerate(zip(op.count, shape, strict=True)) if count != extent]
    turned = any(begin for axis, begin in enumerate(op.begin) if axis not in cut)
    if len(cut) != 1 or op.step[cut[0]] != 1 or turned:
        raise _Unlike
    return cut[0]


def _check(editor: GraphEditor, node: Node) -> None:
    """Raises _Unlike where a further axis in front of the node's tensors is no batch of what it computes."""
    rank = editor.type(node.outputs[0]).rank
    match node.op:
        case Activation() | Ask() | Reshape() | Softmax() | Transpose():
            return
        case Attention():
            sources, shared = node.inputs[: node.op.sources], node.inputs[node.op.sources :]
            alike = not any(map(editor.is_constant, sources)) and all(map(editor.is_constant, shared))
            if alike and not node.op.reads_sizes:
                return
        case Binary() | Compare() | Where() | Expand():
            if all(_fits(editor, name, rank) for name in node.inputs):
                return
        case MatMul():
            if all(_fits(editor, name, rank) for name in node.inputs[:2]) and len(node.inputs) == 2:
                return
    raise _Unlike


def _fits(editor: GraphEditor, name: str, rank: int) -> bool:
    """Whether the tensor has all axes of the result, so that one more stands in front of both; constants have none."""
    return editor.is_constant(name) or editor.type(name).rank == rank


def _batched(editor: GraphEditor, journal: Journal, node: Node, op: Concat, parts: Sequence[_Part]) -> None:
    runs = _runs(parts)
    if len(runs) == len(parts):
        journal.declined(node.name, "no part is computed as the one in front of it is")
        return
    chain = Chain(editor, f"{node.name}.parts")
    inputs = [_joined(editor, chain, run, op.axis) if len(run) > 1 else run[0].value for run in runs]
    if len(inputs) > 1:
        editor.replace(node, *chain.nodes, replace(node, inputs=tuple(inputs)))
    else:
        *nodes, last = chain.nodes
        covers = joined(last.covers, node.covers)
        editor.replace(node, *nodes, Node(node.name, last.op, last.inputs, node.outputs, covers=covers))
    editor.prune([part.value for part in parts if part.value not in inputs])
    for run in runs:
        if len(run) > 1:
            journal.did(node.name, "batched", f"{len(run)} parts as images of one batch")


def _runs(parts: Sequence[_Part]) -> list[list[_Part]]:
    """Parts of which each follows the one in front of it."""
    runs = [[parts[0]]]
    for part in parts[1:]:
        if part.follows(runs[-1][-1]):
            runs[-1].append(part)
        else:
            runs.append([part])
    return runs


def _joined(editor: GraphEditor, chain: Chain, run: Sequence[_Part], along: int) -> str:
    """What the parts give, concatenated along an axis."""
    count, shape = len(run), editor.type(run[0].value).shape
    value = _Batch(editor, chain, run).of(run[0].value)
    front = (*shape[:along], count * shape[along], *shape[along + 1 :])
    return chain.moved(value, [Transpose((*range(1, along + 1), 0, *range(along + 1, len(shape) + 1))), Reshape(front)])


class _Batch:
    """The values of the first of some parts, each with those of the others behind it: along an axis in front."""

    def __init__(self, editor: GraphEditor, chain: Chain, run: Sequence[_Part]) -> None:
        self._editor, self._chain, self._count = editor, chain, len(run)
        alike = zip(*(part.nodes for part in run), strict=True)
        self._covers = {nodes[0].name: joined(*(node.covers for node in nodes)) for nodes in alike}
        self._made: dict[str, str] = {}

    def of(self, name: str) -> str:
        node = self._editor.producer(name)
        if node is None or node.name not in self._covers:
            return name
        if name not in self._made:
            self._made[name] = self._batched(node)
            last = self._chain.nodes[-1]
            self._chain.nodes[-1] = replace(last, covers=self._covers[node.name])
        return self._made[name]

    def _batched(self, node: Node) -> str:
        if isinstance(node.op, Slice):
            return self._cut(node.op, node.inputs[0])
        inputs = [self.of(name) for name in node.inputs]
        if isinstance(node.op, Attention):
            return self._attention(node.op, inputs, self._editor.type(node.outputs[0]).shape)
        return self._chain.add(self._with_axis(node.op), inputs)

    def _cut(self, op: Slice, source: str) -> str:
        """All parts of a source: neighbours, so one slice of them."""
        shape = self._editor.type(source).shape
        axis = _axis(op, shape)
        length, every = op.count[axis], self._count * op.count[axis]
        ops: list[Op] = []
        if every != shape[axis]:
            ops.append(replace(op, count=(*op.count[:axis], every, *op.count[axis + 1 :])))
        ops.append(Reshape((*op.count[:axis], self._count, length, *op.count[axis + 1 :])))
        ops.append(Transpose((axis, *range(axis), *range(axis + 1, len(shape) + 1))))
        return self._chain.moved(source, ops)

    def _attention(self, op: Attention, inputs: Sequence[str], shape: tuple[int, ...]) -> str:
        """Images of all parts are one batch; a mask of some images begins anew behind them."""
        rows = [self._editor.type(name).shape for name in inputs[: op.sources]]
        flat = [Reshape((extents[0] * extents[1], *extents[2:])) for extents in rows]
        sources = [self._chain.add(each, [name]) for each, name in zip(flat, inputs[: op.sources], strict=True)]
        made = self._chain.add(op, [*sources, *inputs[op.sources :]])
        return self._chain.add(Reshape((self._count, *shape)), [made])

    def _with_axis(self, op: Op) -> Op:
        """The operator where one more axis stands in front."""
        match op:
            case Reshape(shape):
                return Reshape((self._count, *shape))
            case Expand(shape):
                return Expand((self._count, *shape))
            case Transpose(perm):
                return Transpose((0, *(axis + 1 for axis in perm)))
            case Softmax(axis):
                return Softmax(axis + 1)
        return op


BATCH_PARTS = Pass("batch-parts", _run)
