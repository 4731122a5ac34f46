"""Sinks of attention: one more score of each head, learned or 0, that takes its share of the softmax without a value.

Models put it beside the scores as a column, or pad these with zeros, and leave its share out behind the softmax
(GPT-OSS); or add its power to the sum of powers themselves, where 1 is the power of a sink of 0 ("softmax1"). The
second is brought into the form of the first where a product reads the shares.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, prod

import numpy as np

from bolt_build.graph.arrays import held_dtype
from bolt_build.graph.ir import Node
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.lines.softmax import Softmax
from bolt_build.graph.ops.moves.expand import Expand
from bolt_build.graph.ops.moves.shape import Cast, Concat, Identity, Pad, Reshape, Slice
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.planner.passes.recognise.attention_operands import Chain
from bolt_build.planner.passes.recognise.norm_parts import number_of, plain
from bolt_build.planner.rewrite import GraphEditor


@dataclass(frozen=True)
class Sink:
    """What stands beside `scores` as one more column, in front of them or behind: a `value`, or zeros. `inside` are the
    values from the softmax's argument to there."""

    scores: str
    value: str | None
    inside: tuple[str, ...]


def sink_of(editor: GraphEditor, argument: str, column: int) -> Sink | str:
    """The sink that is the first (0) or last (-1) column of a softmax's argument, or why it is none."""
    value, inside = argument, [argument]
    while (node := plain(editor, value)) is not None and isinstance(node.op, Cast | Identity):
        (value,) = node.inputs
        inside.append(value)
    rank, columns = editor.type(value).rank, editor.type(value).shape[-1] - 1
    if node is not None and node.op == Concat(rank - 1) and len(node.inputs) == 2:
        scores, sink = node.inputs[::-1] if column == 0 else node.inputs
        if editor.type(sink).shape[-1] == 1:
            return Sink(scores, sink, tuple(inside))
    elif node is not None and isinstance(node.op, Pad):
        pads = (node.op.begin, node.op.end)
        only = tuple((0,) * (rank - 1) + (int(side == -column),) for side in (0, 1))
        if pads == only and node.op.mode == "constant" and node.op.value == 0.0:
            return Sink(node.inputs[0], None, tuple(inside))
    return f"a share of '{argument}' is left out, which is none of a column beside {columns} scores"


def sinks_of_heads(editor: GraphEditor, chain: Chain, sink: Sink, images: int, heads: int) -> str | None:
    """The sink as [heads] or [1], for so many heads of each image; None where it is another for images or queries."""
    dtype = editor.type(sink.scores).dtype
    if sink.value is None:
        return editor.new_constant(f"{chain.label}.sinks", np.zeros(1, held_dtype(dtype)), dtype)
    value, array = sink.value, editor.constant(sink.value)
    while array is None and (node := plain(editor, value)) is not None and isinstance(node.op, Expand | Identity):
        (value,) = node.inputs
        array = editor.constant(value)
    shape = editor.type(value).shape
    each = np.arange(prod(shape)).reshape(shape) if array is None else array
    every = editor.type(sink.scores).shape[:-1]
    try:
        apart = np.broadcast_to(each, (*every, 1)).reshape(images, heads, every[-1])
    except ValueError:
        return None
    own = apart[0, :, 0]
    if not np.array_equal(apart, np.broadcast_to(own[None, :, None], apart.shape)):
        return None
    if array is not None:
        own = own[:1] if array.size == 1 else own
        return editor.new_constant(f"{chain.label}.sinks", np.ascontiguousarray(own), editor.type(value).dtype)
    if each.size not in (1, heads) or not np.array_equal(own, np.broadcast_to(each.reshape(-1), heads)):
        return None
    return value if len(shape) == 1 else chain.add(Reshape((each.size,)), [value])


def sink_beside(editor: GraphEditor, argument: str, power: str) -> tuple[str, str | float] | None:
    """The scores of which `argument` is what is left, and the score whose power is added to the sum of their powers,
    as a value or a number: what both take off is one number for all that are added up. None where they are none."""
    node, scores = plain(editor, power), plain(editor, argument)
    number = number_of(editor, power)
    less = scores.inputs[1] if scores is not None and scores.op == Binary("sub") else None
    if less is not None and editor.type(less).shape[-1:] != (1,):
        less = None
    if number is not None:
        return (argument, log(number)) if less is None and number > 0.0 else None
    if node is None or node.op != Activation("exp") or editor.type(power).shape[-1:] != (1,):
        return None
    if less is None or scores is None:
        return argument, node.inputs[0]
    inner, (source, _) = plain(editor, node.inputs[0]), scores.inputs
    if inner is None or editor.type(source) != editor.type(argument):
        return None
    if inner.op == Binary("sub") and inner.inputs[1] == less:
        return source, inner.inputs[0]
    numbers = [number_of(editor, name) for name in inner.inputs]
    negative = inner.op == Activation("neg") or (inner.op == Binary("mul") and -1.0 in numbers)
    return (source, 0.0) if negative and less in inner.inputs else None


def is_read_by_product(editor: GraphEditor, value: str) -> bool:
    """Whether one product alone reads the value, or a cast of it."""
    while len(readers := editor.readers(value)) == 1 and not editor.is_output(value):
        if isinstance(readers[0].op, MatMul):
            return True
        if not isinstance(readers[0].op, Cast | Identity):
            return False
        (value,) = readers[0].outputs
    return False


def with_column(
    editor: GraphEditor, label: str, scores: str, sink: str | float, shares: str
) -> tuple[Node, ...] | None:
    """Nodes that give `shares`: a softmax of the scores with the sink as their last column, whose share is left out.
    None where the sink does not broadcast to a column."""
    type_, chain = editor.type(scores), Chain(editor, label)
    if isinstance(sink, float):
        sink = editor.new_constant(f"{label}.sink", np.asarray(sink, held_dtype(type_.dtype)), type_.dtype)
    column, shape = (*type_.shape[:-1], 1), editor.type(sink).shape
    if len(shape) > len(column) or any(a not in (1, b) for a, b in zip(shape[::-1], column[::-1], strict=False)):
        return None
    if shape != column:
        sink = chain.add(Expand(column), [sink])
    both = chain.add(Concat(type_.rank - 1), [scores, sink])
    all_shares = chain.add(Softmax(type_.rank - 1), [both])
    chain.add(Slice((0,) * type_.rank, type_.shape, (1,) * type_.rank), [all_shares], shares)
    return tuple(chain.nodes)
