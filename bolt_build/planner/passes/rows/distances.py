"""Makes constant masks of attention that say how far a key lies from a query one number for each distance.

Relative positions of T5 and MPNet, ALiBi, and what hides keys beyond a distance are alike along diagonals, whatever the
numbers are: a head of 2048 rows has 4095 distances and four million scores. Kernels read them by distance, and no
scores where all of them are hidden: keys behind a query's own, or beyond a window. Of other constant masks it says
where they hide these.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bolt_build.graph.arrays import held_dtype
from bolt_build.graph.ir import Array, Graph, Node
from bolt_build.graph.ops.attention.attention import Attention
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.recognise.attention_scores import LEAST
from bolt_build.planner.passes.recognise.attention_words import attention_words
from bolt_build.planner.rewrite import GraphEditor
from bolt_build.targets import Target


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(MASKS_BY_DISTANCE.name)
    for node in editor.nodes():
        op = node.op
        if not isinstance(op, Attention) or op.relative or op.cap or len(op.masks(node.inputs)) != 1:
            continue
        (name,) = op.masks(node.inputs)
        mask, shape = editor.constant(name), op.extents([editor.type(each) for each in node.inputs])
        extents = (shape.queries, shape.keys)
        if mask is None or mask.shape[-2:] != extents or 1 in extents:
            continue
        heads = mask.reshape(-1, *extents)
        seen = _seen(op, heads)
        if mask.ndim < 4 or mask.shape[0] == 1:
            numbers = _by_distance(heads)
            if numbers is not None and len(numbers) in (1, op.heads):
                _put(editor, journal, node, replace(seen, relative=True), numbers)
                continue
        if seen.causal and not op.causal:
            editor.replace(node, replace(node, op=replace(op, causal=True)))
            journal.did(node.name, "made causal", "its mask hides all keys behind a query's own")
    return journal.result(editor.finish())


def _by_distance(heads: Array) -> Array | None:
    """[heads, S + T - 1] of [heads, S, T] that are alike along diagonals, None of others."""
    if not np.array_equal(heads[:, 1:, 1:], heads[:, :-1, :-1]):
        return None
    return np.concatenate((heads[:, :0:-1, 0], heads[:, 0, :]), axis=1)


def _seen(op: Attention, heads: Array) -> Attention:
    """The attention with what its mask hides beyond a distance, where it leaves each query a key."""
    queries, keys = heads.shape[-2:]
    hidden = (heads <= LEAST).all(axis=0)
    distance = np.arange(keys) - np.arange(queries)[:, None]
    shown = distance[~hidden]
    causal = op.causal or (len(shown) > 0 and int(shown.max()) <= 0)
    window = op.window
    if len(shown) and not window and queries <= keys:
        behind, ahead = 1 - int(shown.min()), 1 + int(shown.max())
        reach = behind if causal else max(behind, ahead)
        window = reach if reach < queries else 0
    found = replace(op, causal=causal, window=window)
    lone = (heads > LEAST) & found.seen(queries, keys)
    return found if lone.any(axis=-1).all() else op


def _put(editor: GraphEditor, journal: Journal, node: Node, op: Attention, numbers: Array) -> None:
    (name,) = op.masks(node.inputs)
    dtype = editor.type(name).dtype
    given = editor.new_constant(f"{name}.distances", np.ascontiguousarray(numbers, held_dtype(dtype)), dtype)
    made = replace(node, op=op, inputs=(*node.inputs[: op.sources], given, *op.sinks(node.inputs)))
    editor.replace(node, made)
    editor.prune((name,))
    journal.did(node.name, "read its mask by distance", attention_words(editor, made))


def _has_kernels(target: Target, precision: str) -> bool:
    return target.gpu is not None and target.gpu.instruction(precision) is not None


MASKS_BY_DISTANCE = Pass("masks-by-distance", _run, pays_on=_has_kernels)
