"""Mixtures of experts of the domain com.microsoft: a router's choice and the products of its experts in one node.

Defined in onnxruntime's docs/ContribOperators.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from bolt_build.graph.arrays import numpy_dtype
from bolt_build.graph.example import Data, Example, Weights
from bolt_build.graph.importing import Importer, NodeImport, Refusal
from bolt_build.graph.ir import ShapeError
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

_FIRST, _LAST, _SECOND = (2, 3), (4, 5), (6, 7)
"""Inputs with the weights of each expert's products, and with their biases."""
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu_tanh", "silu": "silu", "identity": ""}


def import_moe(node: NodeImport) -> None:
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
        made = _gathered(node, x, chosen, taken)
    else:
        made = _of_all(node, x, chosen, taken, experts)
    node.emit(Reshape(shape), [made], 0)


def _of_all(node: NodeImport, x: str, chosen: str, taken: str, experts: int) -> str:
    """All experts of all tokens, each with its share, which is 0 of those not chosen."""
    tokens, width = node.type_of(x).shape
    lines = node.emit(Reshape((1, tokens, width)), [x])
    none = node.helper(np.zeros((tokens, experts), numpy_dtype(node.type_of(taken).dtype)), "none")
    share = node.emit(ScatterElements(1), [none, chosen, taken])
    by_token = node.emit(Reshape((tokens, experts, 1)), [share])

    def product(lines: str, inputs: tuple[int, int]) -> str:
        made = node.emit(MatMul(transpose_b=True), [lines, node.input(inputs[0])])
        if not node.has(inputs[1]):
            return made
        bias = node.emit(Reshape((experts, 1, node.type_of(made).shape[2])), [node.input(inputs[1])])
        return node.emit(Binary("add"), [made, bias])

    made = product(_activated(node, product(lines, _FIRST), lambda: product(lines, _SECOND)), _LAST)
    turned = node.emit(Transpose((1, 0, 2)), [made])
    return node.emit(Reduce("sum", (1,), keepdims=False), [node.emit(Binary("mul"), [turned, by_token])])


def _gathered(node: NodeImport, x: str, chosen: str, taken: str) -> str:
    """The chosen experts of each token."""
    (tokens, width), (_, count) = node.type_of(x).shape, node.type_of(chosen).shape
    rows = tokens * count
    which = node.emit(Reshape((rows,)), [chosen])
    apart = node.emit(Reshape((tokens, 1, width)), [x])
    repeated = node.emit(Reshape((rows, 1, width)), [node.emit(Expand((tokens, count, width)), [apart])])

    def product(lines: str, inputs: tuple[int, int]) -> str:
        matrices = node.emit(Gather(0), [node.input(inputs[0]), which])
        made = node.emit(MatMul(transpose_b=True), [lines, matrices])
        if not node.has(inputs[1]):
            return made
        bias = node.emit(Gather(0), [node.input(inputs[1]), which])
        return node.emit(Binary("add"), [made, node.emit(Reshape(node.type_of(made).shape), [bias])])

    made = product(_activated(node, product(repeated, _FIRST), lambda: product(repeated, _SECOND)), _LAST)
    by_token = node.emit(Reshape((tokens, count, node.type_of(made).shape[2])), [made])
    share = node.emit(Reshape((tokens, count, 1)), [taken])
    return node.emit(Reduce("sum", (1,), keepdims=False), [node.emit(Binary("mul"), [by_token, share])])


def _activated(node: NodeImport, first: str, second: Callable[[], str]) -> str:
    """What an expert's last product multiplies. Raises Refusal."""
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
        return node.emit(Binary("mul"), [made, second()]) if node.has(_SECOND[0]) else made
    gate, factor = _halves(node, first, fusion) if fusion else (first, second())
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
)  # fmt: skip
