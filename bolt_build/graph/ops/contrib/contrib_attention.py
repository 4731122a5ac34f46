"""Attention, QAttention and MultiHeadAttention of the domain com.microsoft, which onnxruntime's optimiser and quantiser
find in transformers.

Defined in onnxruntime's docs/ContribOperators.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.arrays import numpy_dtype
from bolt_build.graph.example import Data, Example, Weights
from bolt_build.graph.importing import Importer, NodeImport, Refusal
from bolt_build.graph.ir import ShapeError
from bolt_build.graph.ops.attention.attention import Attention
from bolt_build.graph.ops.attention.attention_import import rows_of, together
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.logic import Compare, Logic, Where
from bolt_build.graph.ops.moves.moving import concatenated
from bolt_build.graph.ops.moves.shape import Concat, Reshape, Slice, Transpose
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.graph.ops.quantised.quantize import ScaleSums
from bolt_build.graph.ops.quantised.quantized import along, sums_of, zero_point

_DOMAIN = "com.microsoft"


def _refuse_inputs(node: NodeImport, names: dict[int, str]) -> None:
    for index, name in names.items():
        if node.has(index):
            raise Refusal("unsupported-attribute", f"{name} is not supported")


def import_packed_attention(node: NodeImport) -> None:
    """One product for queries, keys and values, and attention over its rows."""
    _refuse_inputs(node, {6: "past_sequence_length"})
    inputs = [node.input(0), node.input(1), *([node.input(2)] if node.has(2) else [])]
    _packed(node, node.emit(MatMul(), inputs), _Places(3, 4, 5))


def import_quantised_attention(node: NodeImport) -> None:
    """The same, whose product has factors of 8 bits; its sums are real numbers from there on."""
    rank = node.type(0).rank
    x_zero, w_zero = (zero_point(node, index + 6, node.type(index).dtype) for index in range(2))
    sums = sums_of(node, node.input(0), node.input(1), x_zero, w_zero)
    columns = node.type_of(sums).shape[-1]
    scales = [
        along(node, node.input(index), rank, rank - 1, extent, what)
        for index, extent, what in ((3, 1, "scales of rows"), (4, columns, "scales of columns"), (2, columns, "biases"))
    ]
    rows = node.emit(ScaleSums(node.type(3).dtype), [sums, *scales])
    _packed(node, rows, _Places(5, 8, None))


@dataclass(frozen=True)
class _Places:
    """Which inputs are the mask, the past, and what is added to scores (None: the operator has none)."""

    mask: int
    past: int
    bias: int | None


def _packed(node: NodeImport, rows: str, at: _Places) -> None:
    """Attention over rows of queries, keys and values beside each other, behind those of the past if it is given."""
    heads = node.integer("num_heads")
    for name in ("do_rotary", "rotary_embedding_dim", "past_present_share_buffer"):
        if node.integer(name, 0):
            raise Refusal("unsupported-attribute", f"{name} is not supported")
    batch, queries, width = node.type_of(rows).shape
    sizes = node.integers("qkv_hidden_sizes", ()) or (width // 3,) * 3
    if heads < 1 or len(sizes) != 3 or sum(sizes) != width or any(size % heads for size in sizes):
        raise ShapeError(f"rows of {width} elements cannot be cut in {heads} heads of queries, keys and values")
    past = node.type(at.past).shape[3] if node.has(at.past) else 0
    masks = _masks(node, rows, at.mask, at.bias, (batch, queries, past + queries))
    scale = node.real("scale", 0.0) or 1 / sqrt(sizes[0] // heads)
    causal = bool(node.integer("unidirectional", 0))
    wants_present = len(node.node.outputs) > 1 and bool(node.node.outputs[1])
    if len(set(sizes)) == 1 and not past and not wants_present:
        node.emit(Attention(heads, heads, scale, causal, packed=True), [rows, *masks], 0)
        return
    begins = (0, sizes[0], sizes[0] + sizes[1])
    q, k, v = (
        node.emit(Slice((0, 0, begin), (batch, queries, size), (1, 1, 1)), [rows])
        for begin, size in zip(begins, sizes, strict=True)
    )
    if past or wants_present:
        # [2, N, heads, rows, D]: keys and values.
        k, v = (by_head(node, name, heads) for name in (k, v))
        if past:
            k, v = (node.emit(Concat(2), [_part(node, node.input(at.past), i), name]) for i, name in enumerate((k, v)))
        if wants_present:
            node.emit(Concat(0), [node.emit(Reshape((1, *node.type_of(name).shape)), [name]) for name in (k, v)], 1)
        k, v = (rows_of(node, name) for name in (k, v))
    _attended(node, (q, k, v), masks, heads, scale, causal, past)


def _part(node: NodeImport, name: str, index: int) -> str:
    """`name`[index] along the first axis."""
    shape = node.type_of(name).shape
    one = node.emit(Slice((index, *(0,) * (len(shape) - 1)), (1, *shape[1:]), (1,) * len(shape)), [name])
    return node.emit(Reshape(shape[1:]), [one])


def by_head(node: NodeImport, name: str, heads: int) -> str:
    """Rows [N, S, heads D] as [N, heads, S, D]."""
    batch, rows, width = node.type_of(name).shape
    if heads < 1 or width % heads:
        raise ShapeError(f"rows of {width} elements cannot be cut in {heads} heads")
    return node.emit(
        Transpose((0, 2, 1, 3)), [node.emit(Reshape((batch, rows, heads, width // heads)), [name])]
    )  # fmt: skip


def _attended(
    node: NodeImport, sources: tuple[str, str, str], masks: list[str], heads: int, scale: float, causal: bool, past: int
) -> None:
    """Output 0: attention over rows. A query reads the keys in front of it too, of which `past` come first."""
    q, k, _ = sources
    if causal and past:
        queries, keys = node.type_of(q).shape[1], node.type_of(k).shape[1]
        seen = np.tri(queries, keys, past, dtype=np.bool_)
        hidden = np.where(seen, 0.0, -np.inf).astype(numpy_dtype(node.type_of(q).dtype))
        masks = together(node, [*masks, node.helper(hidden, "seen")])
        causal = False
    node.emit(Attention(heads, heads, scale, causal), [*sources, *masks], 0)


def import_multi_head_attention(node: NodeImport) -> None:
    """Of queries, keys and values as rows with the heads side by side, or together in one tensor of five axes; keys and
    values also as [N, heads, rows, D]."""
    _refuse_inputs(node, {8: "past_sequence_length", 9: "cache_indirection"})
    heads = node.integer("num_heads")
    if len(node.node.outputs) > 3 and node.node.outputs[3]:
        raise Refusal("unsupported-output", "its output of scores is not supported")
    q, k, v = _biased(node, _sources(node))
    batch, queries, width = node.type_of(q).shape
    if heads < 1 or width % heads:
        raise ShapeError(f"rows of {width} elements cannot be cut in {heads} heads")
    past, causal = 0, bool(node.integer("unidirectional", 0))
    if node.has(6) != node.has(7):
        raise Refusal("invalid-node", "past_key and past_value are given together, or neither is")
    wanted = [index < len(node.node.outputs) and bool(node.node.outputs[index]) for index in (1, 2)]
    if node.has(6) and not (all(wanted) and node.type(1).rank == 3):
        # onnxruntime takes such nodes, and leaves the past out.
        message = "past_key is supported with keys as rows alone, and where present_key and present_value are outputs"
        raise Refusal("unsupported-attribute", message)
    if causal and node.type_of(k).shape[1] != queries:
        # onnxruntime lets the last query read all keys then.
        raise Refusal(
            "unsupported-attribute", "unidirectional=1 with other numbers of keys than of queries is not supported"
        )
    if node.has(6) or any(wanted):
        k, v = (by_head(node, name, heads) for name in (k, v))
        if node.has(6):
            past = node.type(6).shape[2]
            k, v = (
                concatenated(node, 2, [node.input(6 + i), name], i + 1 if wanted[i] else None)
                for i, name in enumerate((k, v))
            )
        else:
            for index, name in enumerate((k, v)):
                if wanted[index]:
                    node.emit(Reshape(node.type_of(name).shape), [name], index + 1)
        k, v = (rows_of(node, name) for name in (k, v))
    masks = _masks(node, q, 4, 5, (batch, queries, node.type_of(k).shape[1]))
    scale = node.real("scale", 0.0) or 1 / sqrt(width // heads)
    _attended(node, (q, k, v), masks, heads, scale, causal, past)


def _sources(node: NodeImport) -> tuple[str, str, str]:
    """Queries, keys and values as rows. Raises Refusal for other forms than are documented."""
    ranks = tuple(node.type(index).rank if node.has(index) else 0 for index in range(3))
    if ranks == (5, 0, 0):
        q, k, v = (_column(node, node.input(0), index) for index in range(3))
        return q, k, v
    if ranks == (3, 5, 0):
        k, v = (_column(node, node.input(1), index) for index in range(2))
        return node.input(0), k, v
    if ranks == (3, 4, 4):
        return node.input(0), rows_of(node, node.input(1)), rows_of(node, node.input(2))
    if ranks == (3, 3, 3):
        return node.input(0), node.input(1), node.input(2)
    raise Refusal("unsupported-attribute", f"queries, keys and values of {list(ranks)} axes are not supported")


def _column(node: NodeImport, name: str, index: int) -> str:
    """Of [N, S, heads, 2 or 3, D] the rows of queries, keys or values."""
    batch, rows, heads, _, depth = node.type_of(name).shape
    one = node.emit(Slice((0, 0, 0, index, 0), (batch, rows, heads, 1, depth), (1,) * 5), [name])
    return node.emit(Reshape((batch, rows, heads * depth)), [one])


def _biased(node: NodeImport, sources: tuple[str, str, str]) -> tuple[str, str, str]:
    """`sources` plus their parts of input 3, where it is given. Keys and values by head have theirs in them already."""
    if not node.has(3):
        return sources
    by_rows = not node.has(2) or node.type(2).rank == 3
    widths = [node.type_of(name).shape[2] for name in sources]
    (total,) = node.type(3).shape
    if total != sum(widths):
        raise ShapeError(f"bias of {total} elements must have one for each column of queries, keys and values")
    found = []
    for index, name in enumerate(sources):
        if index and not by_rows:
            found.append(name)
            continue
        part = node.emit(Slice((sum(widths[:index]),), (widths[index],), (1,)), [node.input(3)])
        found.append(node.emit(Binary("add"), [name, part]))
    return found[0], found[1], found[2]


def _masks(node: NodeImport, like: str, index: int, bias: int | None, sizes: tuple[int, int, int]) -> list[str]:
    """What is added to the scores: input `bias` (None: it has none), and `mask_filter_value` where input `index` hides
    a key."""
    hidden, masks = node.real("mask_filter_value", -10000.0), list[str]()
    if node.has(index):
        seen = _seen(node, index, sizes)
        masks.append(node.emit(Where(), [seen, node.scalar_like(0.0, like), node.scalar_like(hidden, like)]))
    if bias is not None and node.has(bias):
        masks.append(node.input(bias))
    return together(node, masks)


def _seen(node: NodeImport, index: int, sizes: tuple[int, int, int]) -> str:
    """Which keys input `index` lets be read: how many each image has, from where to where, or one by one."""
    (batch, queries, keys), mask, shape = sizes, node.input(index), node.type(index).shape
    dtype = numpy_dtype(node.type(index).dtype)
    if len(shape) == 1 and node.type(index).dtype in (DType.I32, DType.I64) and shape[0] in (batch, 2 * batch):
        places = node.helper(np.arange(keys, dtype=dtype)[None, None, None, :], "places")

        def compared(question: str, first: int) -> str:
            part = node.emit(Slice((first,), (batch,), (1,)), [mask]) if shape[0] > batch else mask
            return node.emit(Compare(question), [places, node.emit(Reshape((batch, 1, 1, 1)), [part])])

        ends = compared("less", 0)
        return ends if shape[0] == batch else node.emit(Logic("and"), [ends, compared("greater_equal", batch)])
    spread = {(batch, keys): (batch, 1, 1, keys), (batch, queries, keys): (batch, 1, queries, keys)}.get(shape)
    if spread is None:
        raise Refusal("unsupported-attribute", f"a mask {list(shape)} is not supported")
    none = node.helper(np.asarray(0, dtype), "none")
    return node.emit(Compare("greater"), [node.emit(Reshape(spread), [mask]), none])


_ROWS = Data((1, 4, 8))
_HEADS = (("num_heads", 2),)

IMPORTERS = (
    Importer(
        "Attention", (1,), import_packed_attention, domain=_DOMAIN,
        example=Example((_ROWS, Weights((8, 24)), Weights((24,))), _HEADS), note="no rotary angles",
    ),
    Importer(
        "QAttention", (1,), import_quantised_attention, domain=_DOMAIN,
        example=Example(
            (Data((1, 4, 8), DType.U8), Data((8, 24), DType.I8), Weights((24,)), Weights(()), Weights(())), _HEADS
        ),
        note="no rotary angles",
    ),
    Importer(
        "MultiHeadAttention", (1,), import_multi_head_attention, domain=_DOMAIN,
        example=Example((_ROWS, _ROWS, _ROWS), _HEADS), note="no shared buffers",
    ),
)  # fmt: skip
