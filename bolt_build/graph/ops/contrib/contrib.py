"""Operators of the domain com.microsoft that onnxruntime's optimiser puts in the place of what exporters write.

Defined in onnxruntime's docs/ContribOperators.md.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.arrays import numpy_dtype
from bolt_build.graph.example import Data, Example, Weights
from bolt_build.graph.importing import Importer, NodeImport
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.logic import Compare
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.moves.gather import Gather
from bolt_build.graph.ops.moves.shape import Cast, Identity, Slice
from bolt_build.graph.ops.norms.norm import Norm

_DOMAIN = "com.microsoft"


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
    if node.wants(1):
        _mask_index(node)
    node.emit(Norm("variance", (2,), node.real("epsilon", 1e-12)), [total, node.input(5), node.input(6)], 0)


def _mask_index(node: NodeImport) -> None:
    """Output 1: how many words of each row the mask has a 1 for; 0 where there is no mask."""
    if not node.has(7):
        zeros = np.zeros(node.type(0).shape[:1], numpy_dtype(node.type(0).dtype))
        node.emit(Identity(), [node.helper(zeros, "none")], 1)
        return
    ones = node.emit(Compare("equal"), [node.input(7), node.scalar_like(1, node.input(7))])
    node.emit(Reduce("sum", (1,), False), [node.emit(Cast(node.type(7).dtype), [ones])], 1)


_ROWS = Data((1, 4, 8))
_VECTOR = Weights((8,))

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
)  # fmt: skip
