"""Mixtures of experts of the domain com.microsoft: a router's choice and the products of its experts in one node.

Defined in onnxruntime's docs/ContribOperators.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from bolt_build.graph.arrays import numpy_dtype
from bolt_build.graph.example import Bytes, Data, Example, Weights
from bolt_build.graph.importing import Importer, NodeImport, Refusal
from bolt_build.graph.ir import ShapeError
from bolt_build.graph.ops.contrib.contrib_quantized import unpacked
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.lines.lines import Places
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.lines.softmax import Softmax
from bolt_build.graph.ops.moves.expand import Expand
from bolt_build.graph.ops.moves.gather import Gather, GatherElements
from bolt_build.graph.ops.moves.scatter import ScatterElements
from bolt_build.graph.ops.moves.shape import Reshape, Slice, Transpose
from bolt_build.graph.ops.products.matmul import MatMul


@dataclass(frozen=True)
class _Experts:
    """Weights [experts, columns, depth] of each expert's products, and their biases [experts, columns] (None: without);
    the second product is what gates are multiplied with, and may be left out."""

    first: tuple[str, str | None]
    last: tuple[str, str | None]
    second: tuple[str, str | None] | None


_ACTIVATIONS = {"relu": "relu", "gelu": "gelu_tanh", "silu": "silu", "identity": ""}


def import_moe(node: NodeImport) -> None:
    def given(weights: int) -> tuple[str, str | None]:
        return node.input(weights), node.input(weights + 1) if node.has(weights + 1) else None

    _mixed(node, _Experts(given(2), given(4), given(6) if node.has(6) else None))


def import_quantised_moe(node: NodeImport) -> None:
    """Weights of few bits become plain numbers."""
    if (kind := node.text("quant_type", "int")) != "int":
        raise Refusal("unsupported-attribute", f"quant_type '{kind}' is not supported")
    if node.integer("weights_prepacked", 0) == 1:
        raise Refusal("unsupported-attribute", "weights that were packed for one GPU (weights_prepacked) are not read")
    if node.has(14):
        raise Refusal("unsupported-attribute", "router_weights are not supported")
    node.integer("accuracy_level", 0)

    def given(index: int) -> tuple[str, str | None]:
        first = 3 * index + 2
        return _plain(node, index), node.input(first + 2) if node.has(first + 2) else None

    _mixed(node, _Experts(given(0), given(1), given(2) if node.has(8) else None))


def _plain(node: NodeImport, index: int) -> str:
    """Weights of product `index` as numbers of the input's type. Raises Refusal and ShapeError."""
    first, what = 3 * index + 2, f"fc{index + 1}"
    bits = node.integer(f"{what}_expert_weight_bits", node.integer("expert_weight_bits", 4))
    if bits not in (2, 4, 8):
        raise Refusal("unsupported-attribute", f"weights of {bits} bits are not supported")
    packed = node.static(first, f"the weights of {what}").view(np.uint8)
    if packed.ndim != 3:
        raise ShapeError(f"weights {list(packed.shape)} of {what} must have three axes")
    q = unpacked(packed, bits).astype(np.float32)
    block = node.integer("block_size", 0) or q.shape[2]
    blocks = -(-q.shape[2] // block)
    scale = node.static(first + 1, f"the scales of {what}").astype(np.float32)
    if scale.size != q.shape[0] * q.shape[1] * blocks:
        raise ShapeError(f"scales {list(scale.shape)} of {what} are not one for each of {blocks} blocks of a row")
    zero = np.full((*q.shape[:2], blocks), 1 << (bits - 1), np.float32)
    if node.has(11 + index):
        held_zero = node.static(11 + index, f"the zero points of {what}").view(np.uint8)
        if node.integer("block_size", 0):
            zero = unpacked(held_zero.reshape(*q.shape[:2], -1), bits)[..., :blocks].astype(np.float32)
        else:  # rows by turns
            zero = unpacked(held_zero.reshape(q.shape[0], -1), bits)[:, : q.shape[1], None].astype(np.float32)
    block_of = np.arange(q.shape[2]) // block
    plain = (q - zero[..., block_of]) * scale.reshape(*q.shape[:2], blocks)[..., block_of]
    return node.helper(plain.astype(numpy_dtype(node.type(0).dtype)), what)


def _mixed(node: NodeImport, weights: _Experts) -> None:
    """Of each token the `k` experts of the greatest router probabilities, added up by these.

    Every expert is computed of all tokens, or of few tokens the matrices of the chosen experts are gathered.
    """
    shape, count, (tokens, experts) = node.type(0).shape, node.integer("k", 4), node.type(1).shape
    if node.integer("use_sparse_mixer", 0):
        raise Refusal("unsupported-attribute", "use_sparse_mixer=1 is not supported")
    if math.prod(shape[:-1]) != tokens or not 0 < count <= experts:
        raise ShapeError(f"{count} of {experts} experts for {tokens} tokens do not fit an input of {list(shape)}")
    x = node.emit(Reshape((tokens, shape[-1])), [node.input(0)])
    shares = node.emit(Softmax(1), [node.input(1)])
    chosen = node.emit(Places(1, count), [shares])
    taken = node.emit(GatherElements(1), [shares, chosen])
    if node.integer("normalize_routing_weights", 0):
        taken = node.emit(Binary("div"), [taken, node.emit(Reduce("sum", (1,)), [taken])])
    if 3 * tokens * count <= experts:
        made = _gathered(node, weights, x, chosen, taken)
    else:
        made = _of_all(node, weights, x, chosen, taken)
    node.emit(Reshape(shape), [made], 0)


def _of_all(node: NodeImport, weights: _Experts, x: str, chosen: str, taken: str) -> str:
    """All experts of all tokens, each with its share, which is 0 of those not chosen."""
    experts = node.type(1).shape[1]
    tokens, width = node.type_of(x).shape
    lines = node.emit(Reshape((1, tokens, width)), [x])
    none = node.helper(np.zeros((tokens, experts), numpy_dtype(node.type_of(taken).dtype)), "none")
    share = node.emit(ScatterElements(1), [none, chosen, taken])
    by_token = node.emit(Reshape((tokens, experts, 1)), [share])

    def product(lines: str, matrix: str, biases: str | None) -> str:
        made = node.emit(MatMul(transpose_b=True), [lines, matrix])
        if biases is None:
            return made
        bias = node.emit(Reshape((experts, 1, node.type_of(made).shape[2])), [biases])
        return node.emit(Binary("add"), [made, bias])

    second = None if weights.second is None else partial(product, lines, *weights.second)
    made = product(_activated(node, product(lines, *weights.first), second), *weights.last)
    turned = node.emit(Transpose((1, 0, 2)), [made])
    return node.emit(Reduce("sum", (1,), keepdims=False), [node.emit(Binary("mul"), [turned, by_token])])


def _gathered(node: NodeImport, weights: _Experts, x: str, chosen: str, taken: str) -> str:
    """The chosen experts of each token."""
    (tokens, width), (_, count) = node.type_of(x).shape, node.type_of(chosen).shape
    rows = tokens * count
    which = node.emit(Reshape((rows,)), [chosen])
    apart = node.emit(Reshape((tokens, 1, width)), [x])
    repeated = node.emit(Reshape((rows, 1, width)), [node.emit(Expand((tokens, count, width)), [apart])])

    def product(lines: str, matrix: str, biases: str | None) -> str:
        matrices = node.emit(Gather(0), [matrix, which])
        made = node.emit(MatMul(transpose_b=True), [lines, matrices])
        if biases is None:
            return made
        bias = node.emit(Gather(0), [biases, which])
        return node.emit(Binary("add"), [made, node.emit(Reshape(node.type_of(made).shape), [bias])])

    second = None if weights.second is None else partial(product, repeated, *weights.second)
    made = product(_activated(node, product(repeated, *weights.first), second), *weights.last)
    by_token = node.emit(Reshape((tokens, count, node.type_of(made).shape[2])), [made])
    share = node.emit(Reshape((tokens, count, 1)), [taken])
    return node.emit(Reduce("sum", (1,), keepdims=False), [node.emit(Binary("mul"), [by_token, share])])


def _activated(node: NodeImport, first: str, second: Callable[[], str] | None) -> str:
    """What an expert's last product multiplies; `second` is its second product, where it has one. Raises Refusal."""
    kind = node.text("activation_type", "relu")
    fusion = node.integer("swiglu_fusion", 0)
    alpha, beta = node.real("activation_alpha", 1.0), node.real("activation_beta", 0.0)
    limit = node.real("swiglu_limit", math.inf) if node.given("swiglu_limit") else math.inf
    if node.integer("swiglu_limit_after_activation", 0):
        raise Refusal("unsupported-attribute", "swiglu_limit_after_activation=1 is not supported")
    if kind != "swiglu":
        if kind not in _ACTIVATIONS:
            known = ", ".join((*_ACTIVATIONS, "swiglu"))
            raise Refusal("unsupported-attribute", f"activation_type '{kind}' is none of {known}")
        function = _ACTIVATIONS[kind]
        made = node.emit(Activation(function), [first]) if function else first
        return node.emit(Binary("mul"), [made, second()]) if second else made
    if not fusion and second is None:
        raise Refusal("invalid-node", "a gate without fc3's weights and without swiglu_fusion has no factor")
    gate, factor = (first, second()) if not fusion and second else _halves(node, first, fusion)
    if limit != math.inf:
        gate = node.emit(Activation("clip", -math.inf, limit), [gate])
        factor = node.emit(Activation("clip", -limit, limit), [factor])
    if beta:
        factor = node.emit(Binary("add"), [factor, node.scalar_like(beta, factor)])
    opened = node.emit(Activation("swish", alpha) if alpha != 1.0 else Activation("silu"), [gate])
    return node.emit(Binary("mul"), [opened, factor])


def _halves(node: NodeImport, both: str, fusion: int) -> tuple[str, str]:
    """Gate and factor of columns by turns (1), or one behind the other (2). Raises Refusal and ShapeError."""
    *outer, columns = node.type_of(both).shape
    if fusion not in (1, 2):
        raise Refusal("unsupported-attribute", f"swiglu_fusion={fusion} is none of 0, 1, 2")
    if columns % 2:
        raise ShapeError(f"{columns} columns are no gates and factors")
    ones, half = (1,) * len(outer), columns // 2
    gate, factor = (
        node.emit(Slice((*(0,) * len(outer), begin), (*outer, half), (*ones, 2 if fusion == 1 else 1)), [both])
        for begin in (0, 1 if fusion == 1 else half)
    )
    return gate, factor


IMPORTERS = (
    Importer(
        "MoE", (1,), import_moe, domain="com.microsoft", note="no sparse mixer",
        example=Example(
            (Data((3, 8)), Data((3, 4)), Weights((4, 6, 8)), Weights((4, 6)), Weights((4, 8, 6))), (("k", 2),)
        ),
    ),
    Importer(
        "QMoE", (1,), import_quantised_moe, domain="com.microsoft", note="2, 4 or 8 bits; no sparse mixer",
        example=Example(
            (
                Data((3, 8)), Data((3, 4)), Bytes((4, 6, 4)), Weights((4, 6)), Weights((4, 6)), Bytes((4, 8, 3)),
                Weights((4, 8)),
            ),
            (("k", 2),),
        ),
    ),
)  # fmt: skip
