"""ONNX's Attention: as one operator, or as its products and softmax where something between them is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.arrays import numpy_dtype
from bolt_build.graph.example import Data, Example
from bolt_build.graph.importing import Importer, NodeImport, Refusal
from bolt_build.graph.ir import Array, ShapeError
from bolt_build.graph.ops.attention.attention import Attention
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.logic import Ask, Compare, Where
from bolt_build.graph.ops.lines.softmax import Softmax
from bolt_build.graph.ops.moves.expand import Expand
from bolt_build.graph.ops.moves.moving import concatenated
from bolt_build.graph.ops.moves.shape import Cast, Concat, Pad, Reshape, Slice, Transpose
from bolt_build.graph.ops.products.matmul import MatMul

_MASK, _PAST_KEY, _PAST_VALUE, _LENGTHS = 3, 4, 5, 6
"""Inputs behind queries, keys and values."""


@dataclass(frozen=True)
class Sizes:
    """Extents of one attention; `past`: keys in front of the first query's own."""

    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    depth: int
    columns: int
    past: int


def import_attention(node: NodeImport) -> None:
    """Inputs of three axes have rows with all heads side by side, those of four [N, heads, rows, D]."""
    precision = node.integer("softmax_precision", DTYPE_OF_SOFTMAX)
    if precision not in (DTYPE_OF_SOFTMAX, 10, 16):
        raise Refusal("unsupported-attribute", f"softmax_precision {precision} is not supported (softmax is in fp32)")
    mode, cap = node.integer("qk_matmul_output_mode", 0), node.real("softcap", 0.0)
    q, k, v = (_by_head(node, index, name) for index, name in enumerate(("q", "kv", "kv")))
    if node.has(_PAST_KEY) != node.has(_PAST_VALUE):
        raise Refusal("invalid-node", "past_key and past_value are given together, or neither is")
    past = 0
    outputs = (*node.node.outputs, "", "", "")
    if node.has(_PAST_KEY):
        past = node.type(_PAST_KEY).shape[2]
        k = concatenated(node, 2, [node.input(_PAST_KEY), k], 1 if outputs[1] else None)
        v = concatenated(node, 2, [node.input(_PAST_VALUE), v], 2 if outputs[2] else None)
    elif outputs[1] or outputs[2]:
        raise Refusal("unsupported-attribute", "present_key and present_value are not supported without past_key")
    sizes = _sizes(node, q, k, v, past)
    scale = node.real("scale", 1 / sqrt(sizes.depth))
    causal = bool(node.integer("is_causal", 0))
    window = (node.integer("left_window_size", -1), node.integer("right_window_size", -1))
    plain = causal and not past and not node.has(_LENGTHS)
    apart = cap != 0.0 or bool(outputs[3])
    masks = _masks(node, sizes, causal and not (plain and not apart), window)
    if apart:
        result = spelled(node, sizes, (q, k, v), masks, scale, cap, mode if outputs[3] else None)
    else:
        op = Attention(sizes.heads, sizes.kv_heads, scale, plain, False, bool(masks))
        rows = [rows_of(node, name) for name in (q, k, v)]
        if node.type(0).rank == 3:
            node.emit(op, [*rows, *together(node, masks)], 0)
            return
        result = node.emit(op, [*rows, *together(node, masks)])
    if node.type(0).rank == 4:
        split = node.emit(Reshape((sizes.batch, sizes.queries, sizes.heads, sizes.columns)), [result])
        node.emit(Transpose((0, 2, 1, 3)), [split], 0)
    else:
        node.emit(Reshape((sizes.batch, sizes.queries, sizes.heads * sizes.columns)), [result], 0)


DTYPE_OF_SOFTMAX = 1
"""Float, among ONNX's element types: what softmax is computed in."""


def _by_head(node: NodeImport, index: int, whose: str) -> str:
    """An input as [N, heads, rows, D]."""
    shape = node.type(index).shape
    if len(shape) == 4:
        return node.input(index)
    if len(shape) != 3:
        raise ShapeError(f"input {index} {list(shape)} must have three or four axes")
    heads = node.integer(f"{whose}_num_heads")
    if heads < 1 or shape[2] % heads:
        raise ShapeError(f"rows of {shape[2]} elements cannot be cut in {heads} heads")
    split = node.emit(Reshape((*shape[:2], heads, shape[2] // heads)), [node.input(index)])
    return node.emit(Transpose((0, 2, 1, 3)), [split])


def rows_of(node: NodeImport, name: str) -> str:
    """[N, heads, rows, D] as rows with the heads side by side."""
    batch, heads, rows, depth = node.type_of(name).shape
    return node.emit(Reshape((batch, rows, heads * depth)), [node.emit(Transpose((0, 2, 1, 3)), [name])])


def _sizes(node: NodeImport, q: str, k: str, v: str, past: int) -> Sizes:
    for name in ("q_num_heads", "kv_num_heads"):
        if node.given(name):  # of four axes they only repeat what shapes say
            node.integer(name)
    (batch, heads, queries, depth), (_, kv_heads, keys, _) = node.type_of(q).shape, node.type_of(k).shape
    if not kv_heads or heads % kv_heads:
        raise ShapeError(f"{heads} heads cannot share {kv_heads} heads of keys and values equally")
    return Sizes(batch, heads, kv_heads, queries, keys, depth, node.type_of(v).shape[3], past)


def _masks(node: NodeImport, sizes: Sizes, causal: bool, window: tuple[int, int]) -> list[str]:
    """What is added to the scores. `window`: how many keys before its own place, and behind, a query reads; -1: all."""
    dtype, masks = node.type(0).dtype, list[str]()
    if node.has(_MASK):
        mask = node.input(_MASK)
        if node.type_of(mask).dtype is DType.BOOL:
            mask = _chosen(node, mask)
        elif node.type_of(mask).dtype != dtype:
            mask = node.emit(Cast(dtype), [mask])
        shape = node.type_of(mask).shape
        missing = sizes.keys - shape[-1] if shape and shape[-1] != 1 else 0
        if missing > 0:
            none = (0,) * len(shape)
            mask = node.emit(Pad(none, (*none[1:], missing), value=-np.inf), [mask])
        masks.append(mask)
    left, right = window[0], 0 if causal else window[1]
    # How far each key lies behind a query's own place, but for the keys in front of the first query.
    behind = np.arange(sizes.keys) - np.arange(sizes.queries)[:, None]
    if node.has(_LENGTHS):
        lengths = node.emit(Reshape((sizes.batch, 1, 1, 1)), [node.input(_LENGTHS)])
        masks.append(_chosen(node, _compared(node, np.arange(sizes.keys), "less", lengths)))
        if right >= 0:
            masks.append(_chosen(node, _compared(node, behind + sizes.queries - right, "less_equal", lengths)))
        if left >= 0:
            masks.append(_chosen(node, _compared(node, behind + sizes.queries + left, "greater_equal", lengths)))
        return masks
    behind -= sizes.past
    seen = ((behind >= -left) | (left < 0)) & ((behind <= right) | (right < 0))
    if not seen.all():
        masks.append(node.helper(np.where(seen, 0.0, -np.inf).astype(numpy_dtype(dtype)), "seen"))
    return masks


def _compared(node: NodeImport, places: Array, question: str, lengths: str) -> str:
    return node.emit(Compare(question), [node.helper(places.astype(np.int64), "places"), lengths])


def _chosen(node: NodeImport, seen: str) -> str:
    q = node.input(0)
    return node.emit(Where(), [seen, node.scalar_like(0.0, q), node.scalar_like(-np.inf, q)])


def together(node: NodeImport, masks: list[str]) -> list[str]:
    """Their sum, where there are any."""
    while len(masks) > 1:
        masks = [node.emit(Binary("add"), masks[:2]), *masks[2:]]
    return masks


def spelled(
    node: NodeImport, sizes: Sizes, sources: tuple[str, str, str], masks: list[str], scale: float, cap: float,
    mode: int | None = None, sink: str | None = None,
) -> str:  # fmt: skip
    """[N, rows, heads, columns], with every step a node; `mode` says which of them is output 3. Of `sink`,
    [heads, 1, 1], each head has one more score, of no value."""
    q, k, v = sources
    dtype = node.type(0).dtype
    if sizes.kv_heads != sizes.heads:
        k, v = (_repeated(node, name, sizes) for name in (k, v))
    k = node.emit(Transpose((0, 1, 3, 2)), [k])
    outer = [node.emit(Binary("mul"), [q, node.scalar_like(scale, q)])]
    scores = node.emit(MatMul(), [*outer, k], 3 if mode == 0 else None)
    if cap:
        small = node.emit(Binary("div"), [scores, node.scalar_like(cap, scores)])
        bounded = node.emit(Activation("tanh"), [small])
        scores = node.emit(Binary("mul"), [bounded, node.scalar_like(cap, scores)], 3 if mode == 1 else None)
    elif mode == 1:
        scores = node.emit(Reshape(node.type_of(scores).shape), [scores], 3)
    for mask in together(node, masks):
        scores = node.emit(Binary("add"), [scores, mask], 3 if mode == 2 else None)
    if mode == 2 and not masks:
        scores = node.emit(Reshape(node.type_of(scores).shape), [scores], 3)
    wide = scores if dtype is DType.F32 else node.emit(Cast(DType.F32), [scores])
    if sink is not None:
        column = node.emit(Expand((sizes.batch, sizes.heads, sizes.queries, 1)), [sink])
        wide = node.emit(Concat(3), [wide, column])
    shares = node.emit(Softmax(3), [wide])
    if sink is not None:
        shares = node.emit(Slice((0,) * 4, node.type_of(scores).shape, (1,) * 4), [shares])
    if masks:
        empty = node.emit(Ask("nan"), [shares])
        shares = node.emit(Where(), [empty, node.scalar_like(0.0, shares), shares])
    if dtype is not DType.F32:
        shares = node.emit(Cast(dtype), [shares])
    if mode == 3:
        shares = node.emit(Reshape(node.type_of(shares).shape), [shares], 3)
    if node.type_of(v).dtype != dtype:
        v = node.emit(Cast(dtype), [v])
    return node.emit(Transpose((0, 2, 1, 3)), [node.emit(MatMul(), [shares, v])])


def _repeated(node: NodeImport, name: str, sizes: Sizes) -> str:
    """Each head of keys or values as often as heads of queries read it."""
    batch, heads, rows, depth = node.type_of(name).shape
    apart = node.emit(Reshape((batch, heads, 1, rows, depth)), [name])
    spread = node.emit(Expand((batch, heads, sizes.heads // heads, rows, depth)), [apart])
    return node.emit(Reshape((batch, sizes.heads, rows, depth)), [spread])


_HEADS = Data((1, 2, 4, 8))

IMPORTERS = (
    Importer(
        "Attention", (23, 24, 25), import_attention, example=Example((_HEADS, _HEADS, _HEADS)),
        note="softmax in fp32",
    ),
)  # fmt: skip
