"""Recognises attention that a model spells out: two batched products with a softmax between, and what moves heads.

Scales may stand on scores, queries or keys; masks may be added, or chosen in the place of scores; softmax may be made
safe against rows without a key. Queries, keys and values are followed back to the tensors that they are slices of.

A constant mask of zeros and of what hides keys, in a lower triangle, is no weight: it becomes `causal`, and a `window`
where it shows a band of keys around each query's own place. Beside another mask a triangle does so only where it hides
by infinity, or where the other is a bias that hides nothing: a row of which both masks together leave nothing sees all
keys that one of them hides by a finite number. So does a triangle of booleans, of which the keys that are there are
chosen: decoders with padding have it so, and keys are masked beside it. A constant mask of zeros alone, which all heads
share, is none: exporters leave one where a model was given no padding. A hyperbolic tangent of scores is a `cap`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.arrays import held_dtype
from bolt_build.graph.ir import Array, Graph, Node, Op, ShapeError
from bolt_build.graph.ops.attention.attention import Attention
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.logic import Where
from bolt_build.graph.ops.lines.softmax import Softmax
from bolt_build.graph.ops.moves.shape import Reshape, Transpose
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.recognise.attention_masks import MOST_FOLDED, Addend, is_nothing, mask_of, once
from bolt_build.planner.passes.recognise.attention_operands import (
    Chain,
    Operand,
    heads_of,
    moved_elements,
    operand,
    prepared_operand,
    prepared_rows,
    rows_of,
    rows_operand,
)
from bolt_build.planner.passes.recognise.attention_scores import Mask, Scores, Shares, scores_of, shares_of
from bolt_build.planner.passes.recognise.attention_seen import Seen, seen_of
from bolt_build.planner.passes.recognise.attention_words import attention_words
from bolt_build.planner.passes.recognise.grouped_rows import with_heads_apart
from bolt_build.planner.passes.recognise.hiding_masks import apart, hiding_of, may_hide, zeroed_rows
from bolt_build.planner.passes.recognise.joined_rows import rows_joined_or_not
from bolt_build.planner.passes.recognise.leading_heads import in_front, leading_heads
from bolt_build.planner.passes.recognise.packed_rows import moved_rows, packed_rows
from bolt_build.planner.passes.recognise.sinks import sink_of, sinks_of_heads
from bolt_build.planner.rewrite import GraphEditor, joined
from bolt_build.planner.views import Axis, Digit, View, grouped, made_of

_LONGEST = 256
"""Elements of a head, up to which its scores are worth being kept from memory: longer ones no GPU's kernel holds."""


@dataclass(frozen=True)
class _Result:
    """What becomes of the attention's rows: `ops` behind each other, which give `value`, in the place of `nodes`."""

    value: str
    ops: tuple[Op, ...]
    nodes: tuple[Node, ...]


def _run(graph: Graph) -> PassResult:
    """Heads that are rows of one product are taken apart where attention is recognised among them then."""
    apart, softmaxes = with_heads_apart(graph, ())
    result = _in_graph(apart)
    left = {node.name for node in result.graph.nodes if isinstance(node.op, Softmax)}.intersection(softmaxes)
    if not left:
        return result
    why = tuple(each for each in result.decisions if each.subject in left)
    return replace(together := _in_graph(with_heads_apart(graph, left)[0]), decisions=(*together.decisions, *why))


def _in_graph(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(RECOGNISE_ATTENTION.name)
    for node in editor.nodes():
        if isinstance(node.op, Attention) and not node.op.packed and not node.epilogue:
            _followed(editor, journal, node, node.op)
        if not isinstance(node.op, Softmax) or node.epilogue or editor.node(node.name) is None:
            continue
        scores = editor.type(node.inputs[0])
        if node.op.axis != scores.rank - 1 or not scores.elements:
            continue
        shares = shares_of(editor, node)
        if shares is None:
            continue
        obstacle = shares if isinstance(shares, str) else _recognised(editor, journal, node, shares)
        if obstacle is not None:
            journal.declined(node.name, obstacle)
    return journal.result(editor.finish())


def _recognised(editor: GraphEditor, journal: Journal, softmax: Node, shares: Shares) -> str | None:
    """Puts one node in the place of all; returns why it does not."""
    sink = None if shares.column is None else sink_of(editor, softmax.inputs[0], shares.column)
    if isinstance(sink, str):
        return sink
    scores = scores_of(editor, softmax.inputs[0] if sink is None else sink.scores)
    if isinstance(scores, str):
        return scores
    for value in (*(() if sink is None else sink.inside), *scores.inside, *shares.inside):
        if (why := editor.not_private(value)) is not None:
            return why
    product, last = scores.product, shares.product
    assert isinstance(product.op, MatMul)
    assert isinstance(last.op, MatMul)
    batch = editor.type(product.outputs[0]).shape[:-2]
    heads = heads_of(editor, product.inputs[0], batch, product.op.transpose_a)
    outer = editor.type(last.outputs[0]).shape[:-2]
    if prod(outer) != prod(batch):
        return f"'{last.name}' has {prod(outer)} products, '{product.name}' {prod(batch)}"
    chain = Chain(editor, f"{last.name}.rows")
    q, k, v = _operands(editor, chain, scores, shares, heads)
    if heads > k.repeats and (moved := moved_elements(editor, (k, v))):
        apart, fewer = Chain(editor, chain.label), k.repeats  # heads that share keys stay together
        others = _operands(editor, apart, scores, shares, fewer)
        # queries may be moved instead, and as many rows of the result
        few = 2 * editor.type(product.inputs[0]).elements
        if not moved_elements(editor, others[1:]) and few < moved:
            heads, chain, (q, k, v) = fewer, apart, others
    front, every = 1, prod(batch)
    if heads == 1 < every and not scores.masks:
        front = leading_heads(editor, (product.inputs[1], last.inputs[shares.values], product.inputs[0]), batch)
    if front > 1:
        apart = Chain(editor, chain.label)
        turned = in_front(editor, _operands(editor, apart, scores, shares, every), front, (q, k, v))
        front, (q, k, v), chain = (1, (q, k, v), chain) if turned is None else (front, turned, apart)
    heads = max(heads, front)
    for each, name in ((k, product.name), (v, last.name)):
        if editor.is_constant(each.view.source):
            return f"'{name}' multiplies with weights"
    length, keys = (prod(digit.extent for digit in axis) for axis in (k.columns, k.rows))
    if length > _LONGEST and keys <= length:
        return f"heads have {length} elements, no fewer than a query has scores ({keys})"
    if q.repeats != 1:
        return f"heads of '{product.name}' share their queries"
    if k.repeats != v.repeats:
        return f"{k.repeats} heads share keys, but {v.repeats} share values"
    sinks: list[str] = []
    if sink is not None:
        images = every // heads
        found = None if front > 1 else sinks_of_heads(editor, chain, sink, images, heads)
        if found is None:
            return f"the further column of '{softmax.inputs[0]}' is no sink, one number for each head"
        sinks = [found]
    return _build(editor, journal, scores, shares, (q, k, v), every // heads, heads, chain, front > 1, sinks)


def _operands(
    editor: GraphEditor, chain: Chain, scores: Scores, shares: Shares, heads: int
) -> tuple[Operand, Operand, Operand]:
    """Queries, keys and values, with so many heads an image."""
    product, last = scores.product, shares.product
    assert isinstance(product.op, MatMul)
    assert isinstance(last.op, MatMul)
    batch, outer = (editor.type(node.outputs[0]).shape[:-2] for node in (product, last))
    queries, fixed = product.inputs[0], tuple(factor for factor in scores.factors if editor.is_constant(factor))
    q = prepared_operand(editor, queries, batch, heads, fixed, swapped=product.op.transpose_a)
    if isinstance(q, str) or len(fixed) < len(scores.factors):
        for factor in scores.factors:
            queries = chain.add(Binary("mul"), [queries, factor])
        q = operand(editor, queries, batch, heads, swapped=product.op.transpose_a, scales=True)
    k = operand(editor, product.inputs[1], batch, heads, swapped=not product.op.transpose_b, scales=True)
    across = (last.op.transpose_b if shares.values else last.op.transpose_a) != shares.turned
    return q, k, operand(editor, last.inputs[shares.values], outer, heads, swapped=across, scales=False)


def _build(
    editor: GraphEditor, journal: Journal, scores: Scores, shares: Shares,
    operands: tuple[Operand, Operand, Operand], images: int, heads: int, chain: Chain, in_front: bool,
    sinks: Sequence[str],
) -> str | None:  # fmt: skip
    """`in_front`: heads are the outermost matrices, and not those of an image neighbours."""
    q, k, v = operands
    last = shares.product
    of_scores = editor.type(scores.product.outputs[0])
    queries, keys = of_scores.shape[-2:]
    columns = prod(digit.extent for digit in v.columns)
    extents = (images, queries, heads, columns)
    digits = _digits(extents)
    order = digits[1::-1] if in_front else digits[:2]
    batch = grouped((*order[0], *order[1]), editor.type(last.outputs[0]).shape[:-2])
    if batch is None:
        return f"images and heads are mixed in '{last.outputs[0]}'"
    sides = digits[:1:-1] if shares.turned else digits[2:]
    result = _result(editor, last, View("", (0, 0, 0), (*batch, *sides)), extents)
    sources, packed = _sources(editor, chain, operands)
    seen, triangle, dtype = Seen(False), Seen(False), editor.type(scores.inside[0]).dtype
    bands, masks = list[Mask](), list[Addend]()
    hiding = hiding_of(editor, scores.masks)
    if shares.zeroed and (why := zeroed_rows(editor, hiding, shares.zeroed)) is not None:
        return why
    all_masks = [part for mask in hiding.masks for part in apart(editor, mask)]
    for mask in all_masks:
        array = _array(editor, mask)
        if array is not None and (found := _seen(editor, mask, array, all_masks, (queries, keys))) is not None:
            seen = seen.within(found)
            if found.window:
                bands.append(mask)
            else:
                triangle = found
            continue
        if array is not None and is_nothing(array, None if mask.hidden is not None else editor.constant(mask.value)):
            continue
        masks.append(Addend(_added(editor, chain, mask, array, dtype), mask.shape))
    by_query = [each for each in masks if (*(1, 1), *editor.type(each.value).shape)[-2] != 1]
    if scores.cap and by_query:
        return f"'{by_query[0].value}' is added to scores that are capped"
    if bands and by_query:
        # Kernels take a window beside a mask of keys alone.
        for band in bands:
            masks.append(Addend(_added(editor, chain, band, _array(editor, band), dtype), band.shape))
        seen = triangle
    read = [mask_of(editor, chain, masks, images, heads)] if masks else []
    scale = scores.scale * q.scale * k.scale
    safe = bool(masks) and (bool(shares.zeroed) or (shares.safe and not hiding.tied)) and not sinks
    endless = hiding.endless and not safe and bool(masks) and not sinks
    op = Attention(
        heads, heads // k.repeats, scale, seen.causal, packed, safe, endless=endless, window=seen.window,
        cap=scores.cap, sunk=bool(sinks),
    )  # fmt: skip
    return _put(editor, journal, op, (*sources, *read, *sinks), chain, result)


def _sources(editor: GraphEditor, chain: Chain, operands: tuple[Operand, Operand, Operand]) -> tuple[list[str], bool]:
    """What attention reads beside a mask, and whether that is one tensor of packed rows."""
    q, k, v = operands
    packed, both = packed_rows(editor, chain, q, k, v), prepared_rows(editor, chain, q, k)
    moved = moved_rows(editor, chain, q, k, v) if packed is None and both is None else None
    if moved is not None:
        return list(moved), len(moved) == 1
    if both is not None:
        return [*both, rows_of(editor, chain, v)], packed is not None
    if packed is not None:
        return [packed], True
    return [rows_joined_or_not(editor, chain, each) for each in operands], False


def _followed(editor: GraphEditor, journal: Journal, node: Node, op: Attention) -> None:
    """An attention that the model has as such, with its operands read where they lie, and its result as it is read."""
    q, k, v = (
        rows_operand(editor, name, heads, scales=index < 2)
        for index, (name, heads) in enumerate(zip(node.inputs[:3], (op.heads, op.kv_heads, op.kv_heads), strict=True))
    )
    if q.repeats != 1 or k.repeats != v.repeats:
        journal.declined(node.name, f"{q.repeats} heads share queries, {k.repeats} keys and {v.repeats} values")
        return
    shape = op.extents([editor.type(name) for name in node.inputs[:3]])
    extents = (shape.batch, shape.queries, op.heads, shape.columns)
    images, heads, rows, columns = _digits(extents)
    result = _result(editor, node, View("", (0, 0, 0), (images, rows, (*heads, *columns))), extents)
    chain = Chain(editor, f"{node.name}.rows")
    packed, both = packed_rows(editor, chain, q, k, v), prepared_rows(editor, chain, q, k)
    sources = (
        [packed]
        if packed is not None
        else [*both, rows_of(editor, chain, v)]
        if both is not None
        else [rows_joined_or_not(editor, chain, each) for each in (q, k, v)]
    )
    masks, seen = op.masks(node.inputs), Seen(op.causal, op.window)
    array = once(editor.constant(masks[0])) if masks else None
    found = None if array is None or op.window else seen_of(array, shape.queries, shape.keys)
    if found is not None:
        masks, seen = (), Seen(found.causal or op.causal, found.window)
    elif array is not None and is_nothing(array, editor.constant(masks[0])):
        masks = ()
    elif array is not None and array.shape != editor.type(masks[0]).shape:
        masks = (editor.new_constant(f"{masks[0]}.mask", array, editor.type(masks[0]).dtype), *masks[1:])
    elif masks:
        every = shape.batch, op.heads, shape.queries, shape.keys
        masks = (mask_of(editor, chain, [Addend(masks[0], every)], shape.batch, op.heads),)
    made = replace(
        op, kv_heads=op.kv_heads // k.repeats, scale=op.scale * q.scale * k.scale, causal=seen.causal,
        window=seen.window, packed=packed is not None, safe=op.safe and bool(masks), endless=op.endless and bool(masks),
    )  # fmt: skip
    inputs = (*sources, *masks, *op.sinks(node.inputs))
    if (made, inputs) == (op, node.inputs) and len(result.ops) >= len(result.nodes) - 1:
        journal.did(node.name, "recognised attention", attention_words(editor, node))
        return
    obstacle = _put(editor, journal, made, inputs, chain, result)
    assert obstacle is None


def _put(
    editor: GraphEditor, journal: Journal, op: Attention, inputs: tuple[str, ...], chain: Chain, result: _Result
) -> str | None:
    """The attention in the place of what made its result; why not, where the inputs do not fit."""
    try:
        (type_,) = op.infer([editor.type(name) for name in inputs])
    except ShapeError as error:
        return str(error)
    last, *moves = result.nodes
    output = editor.new_value(f"{last.name}.attention", type_) if result.ops else result.value
    behind = Chain(editor, f"{last.name}.heads")
    behind.moved(output, result.ops, result.value)
    end = result.nodes[-1]
    for node in result.nodes[:-1]:
        editor.remove(node)
    made = Node(last.name, op, inputs, (output,))
    editor.replace(end, *chain.nodes, made, *behind.nodes)
    removed = editor.prune(last.inputs)
    covers = joined(*(node.covers for node in (*removed, last, *moves)))
    editor.replace(made, replace(made, covers=covers))
    journal.did(made.name, "recognised attention", attention_words(editor, made))
    return None


def _digits(extents: tuple[int, int, int, int]) -> list[Axis]:
    """Images, heads, rows and columns as they lie in attention's rows; `extents`: images, queries, heads, columns."""
    images, queries, heads, columns = extents
    places = ((images, 0, 1), (heads, 2, columns), (queries, 1, 1), (columns, 2, 1))
    return [(Digit(size, axis, step),) if size != 1 else () for size, axis, step in places]


def _result(editor: GraphEditor, last: Node, view: View, extents: tuple[int, int, int, int]) -> _Result:
    """The result of `last`, which is this `view` of the attention's rows, and what only moves it."""
    images, queries, heads, columns = extents
    value, nodes = last.outputs[0], [last]
    while editor.not_private(value) is None and len(editor.readers(value)) == 1:
        (reader,) = editor.readers(value)
        if reader.epilogue or not isinstance(reader.op, Reshape | Transpose):
            break
        moved = view.moved(reader.op, editor.type(reader.outputs[0]).shape)
        if moved is None:
            break
        view, value = moved, reader.outputs[0]
        nodes.append(reader)
    ops = made_of((images, queries, heads * columns), view, view.axes)
    assert ops is not None
    return _Result(value, ops, tuple(nodes))


def _array(editor: GraphEditor, mask: Mask) -> Array | None:
    """What a mask of constants adds, None of any other and of one that is too large and no triangle."""
    array = once(editor.constant(mask.value))
    if array is None:
        return None
    if mask.hidden is None:
        return array if mask.factor == 1.0 else np.asarray(array * np.float32(mask.factor))
    chosen = array if mask.where else ~array
    added = np.where(chosen, np.float32(mask.hidden), np.float32(0.0))
    if added.size > MOST_FOLDED and added.any() and (added.ndim < 2 or seen_of(added, *added.shape[-2:]) is None):
        return None
    return added


def _seen(
    editor: GraphEditor, mask: Mask, array: Array, masks: Sequence[Mask], extents: tuple[int, int]
) -> Seen | None:
    """Which keys a constant mask shows to each of `extents` queries and keys, where that is all it does: those that it
    hides are hidden whatever the others of `masks` add. It hides by infinity, or they are biases that hide nothing, as
    ALiBi's."""
    found = seen_of(array, *extents)
    others = [each for each in masks if each is not mask]
    kept = _is_endless(array) or not any(each.hidden is not None or may_hide(editor, each.value) for each in others)
    return found if kept else None


def _is_endless(array: Array) -> bool:
    """Whether a mask hides by infinity, whatever is added to it."""
    return bool(np.isinf(array[array != 0.0]).all())


def _added(editor: GraphEditor, chain: Chain, mask: Mask, array: Array | None, dtype: DType) -> str:
    """The mask as a value that is added."""
    if mask.hidden is None and mask.factor == 1.0 and (array is None or array.shape == editor.type(mask.value).shape):
        return mask.value
    if array is not None:
        return editor.new_constant(f"{mask.value}.mask", array.astype(held_dtype(dtype)), dtype)
    if mask.hidden is None:
        factor = editor.new_constant(f"{mask.value}.factor", np.asarray(mask.factor, held_dtype(dtype)), dtype)
        return chain.add(Binary("mul"), (mask.value, factor))
    hidden, shown = (
        editor.new_constant(f"{mask.value}.{what}", np.asarray(level, held_dtype(dtype)), dtype)
        for what, level in (("hidden", mask.hidden), ("shown", 0.0))
    )
    sides = (hidden, shown) if mask.where else (shown, hidden)
    return chain.add(Where(), (mask.value, *sides))


RECOGNISE_ATTENTION = Pass("recognise-attention", _run)
