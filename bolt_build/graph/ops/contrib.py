"""Operators of the domain com.microsoft that onnxruntime's optimiser puts in the place of what exporters write.

Defined in onnxruntime's docs/ContribOperators.md.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.arrays import numpy_dtype
from bolt_build.graph.example import Data, Example, Weights
from bolt_build.graph.importing import Importer, NodeImport, Refusal
from bolt_build.graph.ir import ShapeError
from bolt_build.graph.ops.activation import Activation
from bolt_build.graph.ops.arithmetic import Binary
from bolt_build.graph.ops.attention import Attention
from bolt_build.graph.ops.gather import Gather
from bolt_build.graph.ops.logic import Compare, Where
from bolt_build.graph.ops.matmul import MatMul
from bolt_build.graph.ops.norm import Norm
from bolt_build.graph.ops.shape import Reshape, Slice

_DOMAIN = "com.microsoft"


def _refuse_inputs(node: NodeImport, names: dict[int, str]) -> None:
    for index, name in names.items():
        if node.has(index):
            raise Refusal("unsupported-attribute", f"{name} is not supported")


def _activated(function: str) -> Callable[[NodeImport], None]:
    def run(node: NodeImport) -> None:
        x = node.input(0)
        if node.has(1):
            x = node.emit(Binary("add"), [x, node.input(1)])
        node.emit(Activation(function), [x], 0)

    return run


def import_quick_gelu(node: NodeImport) -> None:
    """x sigmoid(alpha x)."""
    node.emit(Activation("swish", node.real("alpha", 1.702)), [node.input(0)], 0)


def _skip_norm(node: NodeImport, statistic: str, bias: int, scales: tuple[int, ...]) -> None:
    """The norm of input 0 plus input 1, plus a bias, over the last axis; the sum is output 3."""
    wants_sum = len(node.node.outputs) > 3 and bool(node.node.outputs[3])
    total = node.input(0)
    operands = [node.input(1), *([node.input(bias)] if node.has(bias) else [])]
    for index, operand in enumerate(operands):
        last = index == len(operands) - 1
        total = node.emit(Binary("add"), [total, operand], 3 if last and wants_sum else None)
    given = [node.input(index) for index in scales if node.has(index)]
    op = Norm(statistic, (node.type_of(total).rank - 1,), node.real("epsilon", 1e-12))
    node.emit(op, [total, *given], 0)


def import_skip_layer_norm(node: NodeImport) -> None:
    _skip_norm(node, "variance", 4, (2, 3))


def import_skip_rms_norm(node: NodeImport) -> None:
    _skip_norm(node, "rms", 3, (2,))


def import_embed_layer_norm(node: NodeImport) -> None:
    """The norm of the sum of embeddings: of words, of positions and, where there are any, of segments."""
    rows = node.type(0).shape[1]
    total = node.emit(Gather(0), [node.input(2), node.input(0)])
    if node.has(8):
        places = node.emit(Gather(0), [node.input(3), node.input(8)])
    else:
        width = node.type(3).shape[1]
        places = node.emit(Slice((0, 0), (rows, width), (1, 1)), [node.input(3)])
    wants_sum = len(node.node.outputs) > 2 and bool(node.node.outputs[2])
    has_segments = node.has(1) and node.has(4)
    total = node.emit(Binary("add"), [total, places], 2 if wants_sum and not has_segments else None)
    if has_segments:
        segments = node.emit(Gather(0), [node.input(4), node.input(1)])
        total = node.emit(Binary("add"), [total, segments], 2 if wants_sum else None)
    node.integer("mask_index_type", 0)
    node.emit(Norm("variance", (2,), node.real("epsilon", 1e-12)), [total, node.input(5), node.input(6)], 0)


def import_packed_attention(node: NodeImport) -> None:
    """One product for queries, keys and values, and attention over its rows."""
    _refuse_inputs(node, {4: "past", 6: "past_sequence_length"})
    heads = node.integer("num_heads")
    for name in ("do_rotary", "rotary_embedding_dim", "past_present_share_buffer"):
        if node.integer(name, 0):
            raise Refusal("unsupported-attribute", f"{name} is not supported")
    sizes = node.integers("qkv_hidden_sizes", ())
    if len(set(sizes)) > 1:
        raise Refusal("unsupported-attribute", f"qkv_hidden_sizes {list(sizes)} that differ are not supported")
    inputs = [node.input(0), node.input(1), *([node.input(2)] if node.has(2) else [])]
    rows = node.emit(MatMul(), inputs)
    batch, queries, width = node.type_of(rows).shape
    if heads < 1 or width % (3 * heads):
        raise ShapeError(f"rows of {width} elements cannot be cut in {heads} heads of queries, keys and values")
    masks = _masks(node, rows, 3, 5, (batch, queries, queries))
    scale = node.real("scale", 0.0) or 1 / sqrt(width // (3 * heads))
    causal = bool(node.integer("unidirectional", 0))
    node.emit(Attention(heads, heads, scale, causal, packed=True), [rows, *masks], 0)


def import_multi_head_attention(node: NodeImport) -> None:
    """Of queries, keys and values as rows with the heads side by side."""
    _refuse_inputs(node, {6: "past_key", 7: "past_value", 8: "past_sequence_length", 9: "cache_indirection"})
    heads = node.integer("num_heads")
    if not (node.has(1) and node.has(2)) or any(node.type(index).rank != 3 for index in range(3)):
        raise Refusal(
            "unsupported-attribute", "queries, keys and values other than rows, one tensor each, are not supported"
        )
    sources = [node.input(index) for index in range(3)]
    if node.has(3):
        begin, (total,) = 0, node.type(3).shape
        if total != sum(node.type(index).shape[2] for index in range(3)):
            raise ShapeError(f"bias of {total} elements must have one for each column of queries, keys and values")
        for index in range(3):
            width = node.type(index).shape[2]
            part = node.emit(Slice((begin,), (width,), (1,)), [node.input(3)])
            sources[index] = node.emit(Binary("add"), [sources[index], part])
            begin += width
    batch, queries, width = node.type(0).shape
    if heads < 1 or width % heads:
        raise ShapeError(f"rows of {width} elements cannot be cut in {heads} heads")
    masks = _masks(node, sources[0], 4, 5, (batch, queries, node.type(1).shape[1]))
    scale = node.real("scale", 0.0) or 1 / sqrt(width // heads)
    causal = bool(node.integer("unidirectional", 0))
    node.emit(Attention(heads, heads, scale, causal), [*sources, *masks], 0)


def _masks(node: NodeImport, like: str, index: int, bias: int, sizes: tuple[int, int, int]) -> list[str]:
    """What is added to the scores: input `bias`, and `mask_filter_value` where input `index` hides a key."""
    hidden, (batch, queries, keys), masks = node.real("mask_filter_value", -10000.0), sizes, list[str]()
    if node.has(index):
        mask, shape = node.input(index), node.type(index).shape
        dtype = numpy_dtype(node.type(index).dtype)
        if shape == (batch,) and node.type(index).dtype in (DType.I32, DType.I64):
            # How many keys each image has.
            places = node.helper(np.arange(keys, dtype=dtype)[None, None, None, :], "places")
            lengths = node.emit(Reshape((batch, 1, 1, 1)), [mask])
            seen = node.emit(Compare("less"), [places, lengths])
        else:
            spread = {(batch, keys): (batch, 1, 1, keys), (batch, queries, keys): (batch, 1, queries, keys)}.get(shape)
            if spread is None:
                raise Refusal("unsupported-attribute", f"a mask {list(shape)} is not supported")
            none = node.helper(np.asarray(0, dtype), "none")
            seen = node.emit(Compare("greater"), [node.emit(Reshape(spread), [mask]), none])
        masks.append(node.emit(Where(), [seen, node.scalar_like(0.0, like), node.scalar_like(hidden, like)]))
    if node.has(bias):
        masks.append(node.input(bias))
    return masks if len(masks) < 2 else [node.emit(Binary("add"), masks)]


_ROWS = Data((1, 4, 8))
_VECTOR = Weights((8,))
_HEADS = (("num_heads", 2),)

IMPORTERS = (
    Importer("Gelu", (1,), _activated("gelu"), domain=_DOMAIN, example=Example((_ROWS,))),
    Importer("BiasGelu", (1,), _activated("gelu"), domain=_DOMAIN, example=Example((_ROWS, _VECTOR))),
    Importer("FastGelu", (1,), _activated("gelu_tanh"), domain=_DOMAIN, example=Example((_ROWS, _VECTOR))),
    Importer("QuickGelu", (1,), import_quick_gelu, domain=_DOMAIN, example=Example((_ROWS,))),
    Importer(
        "SkipLayerNormalization", (1,), import_skip_layer_norm, domain=_DOMAIN,
        example=Example((_ROWS, _ROWS, _VECTOR, _VECTOR)),
    ),
    Importer(
        "SkipSimplifiedLayerNormalization", (1,), import_skip_rms_norm, domain=_DOMAIN,
        example=Example((_ROWS, _ROWS, _VECTOR)),
    ),
    Importer(
        "EmbedLayerNormalization", (1,), import_embed_layer_norm, domain=_DOMAIN,
        example=Example((
            Data((1, 4), DType.I32), Data((1, 4), DType.I32), Weights((9, 8)), Weights((6, 8)), Weights((2, 8)),
            _VECTOR, _VECTOR,
        )),
    ),
    Importer(
        "Attention", (1,), import_packed_attention, domain=_DOMAIN,
        example=Example((_ROWS, Weights((8, 24)), Weights((24,))), _HEADS), note="no past",
    ),
    Importer(
        "MultiHeadAttention", (1,), import_multi_head_attention, domain=_DOMAIN,
        example=Example((_ROWS, _ROWS, _ROWS), _HEADS), note="no past",
    ),
)  # fmt: skip
