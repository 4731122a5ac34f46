"""What a pass says of an attention that it made."""

from __future__ import annotations

from bolt_build.graph.ir import Node
from bolt_build.graph.ops.attention.attention import Attention
from bolt_build.planner.rewrite import GraphEditor


def attention_words(editor: GraphEditor, made: Node) -> str:
    """Heads, extents, and what else it does."""
    op = made.op
    assert isinstance(op, Attention)
    shape = op.extents([editor.type(name) for name in made.inputs])
    words = f"{op.heads} heads of {shape.depth}"
    if shape.columns != shape.depth:
        words += f" and {shape.columns}"
    if op.kv_heads != op.heads:
        words += f" over {op.kv_heads} of keys and values"
    words += f", {shape.queries} queries" + (f", {shape.keys} keys" if shape.keys != shape.queries else "")
    words += f", scale {op.scale:.6g}"
    if op.causal:
        words += ", causal"
    if op.window:
        words += f", windows of {op.window} keys" + ("" if op.causal else " to either side")
    if op.cap:
        words += f", scores capped at {op.cap:.6g}"
    for mask in op.masks(made.inputs):
        words += f", mask {list(editor.type(mask).shape)}" + (" by distance" if op.relative else "")
    if op.sunk:
        words += ", sinks"
    if op.safe:
        words += ", zeros where it hides all keys"
    if op.endless:
        words += ", NaN where it hides all keys"
    return words + (", all of one product" if op.packed else "")
