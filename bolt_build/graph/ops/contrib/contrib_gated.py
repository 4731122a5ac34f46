"""Gates of newer decoders, of the domain com.microsoft.

Defined in onnxruntime's docs/ContribOperators.md.
"""

from __future__ import annotations

from bolt_build.graph.example import Data, Example, Weights
from bolt_build.graph.importing import Importer, NodeImport, Refusal
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.moves.shape import Cast
from bolt_build.graph.ops.quantised.quantized import reshaped

_DOMAIN = "com.microsoft"


def import_scaled_silu(node: NodeImport) -> None:
    """SiLU of x times a number: input 1 where it is there, `alpha` otherwise."""
    alpha, x = node.real("alpha", 1.0), node.input(0)
    if node.has(1):
        x = node.emit(Binary("mul"), [x, reshaped(node, node.input(1), ())])
    elif alpha != 1.0:
        x = node.emit(Binary("mul"), [x, node.scalar_like(alpha, x)])
    node.emit(Activation("silu"), [x], 0)


def import_gated_add(node: NodeImport) -> None:
    """X plus Y times a gate of each row."""
    if node.has(3):
        raise Refusal("unsupported-attribute", "gates that the node computes (gate_weight) are not supported")
    node.emit(Binary("add"), [node.input(0), node.emit(Binary("mul"), [node.input(1), node.input(2)])], 0)


def import_linear_attention_gate(node: NodeImport) -> None:
    """How much of a state stays, decay_scale softplus(a + dt_bias), and how much is written, sigmoid(b)."""
    inner = node.emit(Binary("add"), [node.input(0), _like(node, 0, node.input(1))])
    factor = _like(node, 0, node.input(2))
    node.emit(Binary("mul"), [node.emit(Activation("softplus"), [inner]), factor], 0)
    if len(node.node.outputs) > 1 and node.node.outputs[1]:
        node.emit(Activation("sigmoid"), [node.input(3)], 1)


def _like(node: NodeImport, index: int, name: str) -> str:
    """`name` in the element type of input `index`."""
    to = node.type(index).dtype
    return name if node.type_of(name).dtype is to else node.emit(Cast(to), [name])


_ROWS, _VECTOR = Data((1, 4, 8)), Weights((8,))

IMPORTERS = (
    Importer("ScaledSiLU", (1,), import_scaled_silu, domain=_DOMAIN, example=Example((_ROWS,))),
    Importer(
        "GatedAdd", (1,), import_gated_add, domain=_DOMAIN, note="gates that are given",
        example=Example((_ROWS, _ROWS, Data((1, 4, 1)))),
    ),
    Importer(
        "LinearAttentionGate", (1,), import_linear_attention_gate, domain=_DOMAIN,
        example=Example((_ROWS, Weights((8,)), Weights((8,)))),
    ),
)  # fmt: skip
