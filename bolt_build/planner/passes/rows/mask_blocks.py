"""Makes attention in blocks that of a batch: a constant mask shows each query some neighbouring keys alone, those of
its own block, and hides all others.

Encoders of images put the patches of several images, or of windows of one, behind each other and hide those of others
(Pixtral, Qwen's vision towers, packed ViTs); decoders read chunks so (Llama 4), and so are packed texts. Blocks of one
length that follow each other become images of a batch, which moves nothing: no score of other blocks is computed, and
no mask is read. Blocks of other lengths are further attentions of slices of the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

import numpy as np

from bolt_build.graph.ir import Array, Graph, Node
from bolt_build.graph.ops.attention.attention import Attention, AttentionShape
from bolt_build.graph.ops.moves.shape import Concat, Reshape, Slice
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.recognise.attention_operands import Chain
from bolt_build.planner.passes.recognise.attention_scores import LEAST
from bolt_build.planner.rewrite import GraphEditor

_MOST_RUNS = 8
"""Attentions in the place of one."""
_LEAST_SAVED = 1 << 30
"""Operations that a further attention must save: what an H200 computes while it launches one."""


@dataclass(frozen=True)
class _Blocks:
    """`count` blocks of one `length` behind each other, the first of which begins at row `begin`."""

    begin: int
    length: int
    count: int

    @property
    def rows(self) -> int:
        return self.length * self.count


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(MASK_BLOCKS.name)
    for node in editor.nodes():
        op = node.op
        if not isinstance(op, Attention) or op.relative or op.counted or len(op.masks(node.inputs)) != 1:
            continue
        mask, shape = editor.constant(op.masks(node.inputs)[0]), op.extents([editor.type(each) for each in node.inputs])
        if mask is None or mask.shape[-2:] != (shape.queries, shape.keys) or shape.queries != shape.keys:
            continue
        mask = mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
        blocks = _blocks(op, mask)
        if len(blocks) < 2:
            continue
        runs = _runs(blocks)
        if (why := _obstacle(editor, node, op, runs, mask)) is not None:
            journal.declined(node.name, f"its mask shows {len(blocks)} blocks, but {why}")
            continue
        _attend(editor, node, op, runs, shape, mask)
        lengths = ", ".join(f"{run.count} of {run.length}" for run in runs)
        journal.did(node.name, "attended in blocks", f"its mask shows blocks of keys alone: {lengths}")
    return journal.result(editor.finish())


def _blocks(op: Attention, mask: Array) -> list[tuple[int, int]]:
    """Begin and end of each of the blocks between which the mask shows nothing to any head; none where a query is left
    without a key, which reads all alike."""
    each = np.logical_and(mask > LEAST, op.seen(*mask.shape[-2:]))
    if not each.any(axis=-1).all():
        return []
    shown = np.asarray(each.any(axis=(0, 1)))
    count = len(shown)
    first, last = shown.argmax(axis=1), count - shown[:, ::-1].argmax(axis=1)
    ends = np.maximum.accumulate(np.maximum(last, np.arange(count) + 1))
    begins = np.minimum.accumulate(np.minimum(first, np.arange(count))[::-1])[::-1]
    cuts = [row for row in range(1, count) if ends[row - 1] == row and begins[row] == row]
    return list(pairwise((0, *cuts, count)))


def _runs(blocks: Sequence[tuple[int, int]]) -> list[_Blocks]:
    runs = []
    for length, group in groupby(blocks, key=lambda block: block[1] - block[0]):
        alike = list(group)
        runs.append(_Blocks(alike[0][0], length, len(alike)))
    return runs


def _obstacle(editor: GraphEditor, node: Node, op: Attention, runs: Sequence[_Blocks], mask: Array) -> str | None:
    shape = op.extents([editor.type(each) for each in node.inputs])
    if node.epilogue or editor.is_constant(node.inputs[0]):
        return "its queries are learned, or something follows in its kernel"
    if len(runs) > _MOST_RUNS:
        return f"these are {len(runs)} runs of one length each"
    if shape.batch > 1 and len(mask) not in (1, shape.batch):
        return "it begins anew behind some images"
    spared = shape.keys**2 - sum(run.rows * run.length for run in runs)
    saved = shape.batch * op.heads * spared * 2 * (shape.depth + shape.columns)
    if saved < (len(runs) - 1) * _LEAST_SAVED:
        return f"{len(runs)} attentions take longer than all scores"
    return None


def _attend(
    editor: GraphEditor, node: Node, op: Attention, runs: Sequence[_Blocks], shape: AttentionShape, mask: Array
) -> None:
    chain = Chain(editor, f"{node.name}.blocks")
    (name,) = op.masks(node.inputs)
    results = []
    for run in runs:
        rows = [_rows(editor, chain, each, run) for each in node.inputs[: op.sources]]
        inner = _inner(op, mask, run)
        masks = [] if inner is None else [editor.new_constant(f"{name}.blocks", inner, editor.type(name).dtype)]
        made = chain.add(op, [*rows, *masks, *op.sinks(node.inputs)])
        results.append(chain.add(Reshape((shape.batch, run.rows, op.heads * shape.columns)), [made]))
    *nodes, last = chain.nodes
    if len(results) > 1:
        nodes, last = chain.nodes, Node(node.name, Concat(1), tuple(results), node.outputs, covers=node.covers)
    covered = [replace(each, covers=node.covers) if isinstance(each.op, Attention) else each for each in nodes]
    editor.replace(node, *covered, Node(node.name, last.op, last.inputs, node.outputs, covers=node.covers))
    editor.prune((name, *node.inputs[: op.sources]))


def _rows(editor: GraphEditor, chain: Chain, source: str, run: _Blocks) -> str:
    """[N, S, C] as [N blocks, length, C]."""
    batch, rows, row = editor.type(source).shape
    if run.rows != rows:
        node, column = editor.producer(source), 0
        if node is not None and isinstance(node.op, Slice) and node.op == _columns(node.op, rows) and not node.epilogue:
            source, column = node.inputs[0], node.op.begin[2]  # columns of one product are read in place then
        source = chain.add(Slice((0, run.begin, column), (batch, run.rows, row), (1, 1, 1)), [source])
    return chain.add(Reshape((batch * run.count, run.length, row)), [source])


def _columns(op: Slice, rows: int) -> Slice:
    """The slice of the same columns, of all rows."""
    return Slice((0, 0, op.begin[2]), (op.count[0], rows, op.count[2]), (1, 1, 1))


def _inner(op: Attention, mask: Array, run: _Blocks) -> Array | None:
    """[images blocks, heads, length, length] of what the mask adds within blocks; None where that is nothing. Where it
    does no more than to hide the same in all blocks, these share it. Numbers of heads are kept whatever they are."""
    length = run.length
    begins = range(run.begin, run.begin + run.rows, length)
    parts = np.stack([mask[..., begin : begin + length, begin : begin + length] for begin in begins], axis=1)
    parts = parts.reshape(-1, *parts.shape[2:])
    if mask.shape[1] > 1:
        return np.ascontiguousarray(parts)
    seen = op.seen(length, length)
    if not parts[..., seen].any():
        return None
    alike = ((parts == 0.0) | (parts <= LEAST)).all() and (parts == parts[:1]).all()
    return np.ascontiguousarray(parts[:1] if alike else parts)


MASK_BLOCKS = Pass("mask-blocks", _run)
