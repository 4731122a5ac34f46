"""Products and convolutions of the domain com.microsoft with what onnxruntime's optimiser found around them.

That are transposes, a factor, a sum and an activation.

Defined in onnxruntime's docs/ContribOperators.md.
"""

from __future__ import annotations

from collections.abc import Callable

from bolt_build.graph.example import IMAGE, Data, Example, Weights
from bolt_build.graph.importing import Importer, NodeImport, Refusal
from bolt_build.graph.ir import ShapeError
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.moves.shape import Transpose
from bolt_build.graph.ops.products.conv import convolution
from bolt_build.graph.ops.products.matmul import MatMul, gemm, matrices

_DOMAIN = "com.microsoft"


def import_fused_matmul(node: NodeImport) -> None:
    """alpha A' B': of factors of one axis as they are, of others with their axes moved where asked."""
    alpha, left, right = node.real("alpha", 1.0), _factor(node, 0, "A"), _factor(node, 1, "B")

    def multiplied(a: str, b: str, output: int | None) -> str:
        return node.emit(MatMul(), [a, b], output)

    if alpha == 1.0:
        matrices(node, left, right, multiplied, 0)
        return
    product = matrices(node, left, right, multiplied, None)
    node.emit(Binary("mul"), [product, node.scalar_like(alpha, product)], 0)


def _factor(node: NodeImport, index: int, name: str) -> str:
    """The first axis behind the other batches, where asked; then the last two swapped, where asked."""
    rank = node.type(index).rank
    swapped, batches = (bool(node.integer(f"{what}{name}", 0)) for what in ("trans", "transBatch"))
    axes = list(range(rank))
    if batches:
        if rank < 3 or node.type(1 - index).rank != rank:
            raise ShapeError(f"transBatch{name}=1 needs factors of three axes or more, as many in both")
        axes = [*axes[1:-1], 0, rank - 1]
    if swapped and rank > 1:
        axes[-2:] = axes[:-3:-1]
    return node.input(index) if axes == sorted(axes) else node.emit(Transpose(tuple(axes)), [node.input(index)])


_ACTIVATIONS: dict[str, Callable[[float, float], Activation]] = {
    "Relu": lambda a, b: Activation("relu"),
    "Tanh": lambda a, b: Activation("tanh"),
    "Sigmoid": lambda a, b: Activation("sigmoid"),
    "LeakyRelu": lambda a, b: Activation("leaky_relu", a),
    "Clip": lambda a, b: Activation("clip", a, b),
    "HardSigmoid": lambda a, b: Activation("hard_sigmoid", a, b),
}
"""What onnxruntime puts behind a product, of the node's two parameters."""
_PARAMETERS = {"LeakyRelu": 1, "Clip": 2, "HardSigmoid": 2}


def _activation(function: str, parameters: tuple[float, ...]) -> Activation:
    """Raises Refusal for a function that is not known, and for other parameters than it takes."""
    if function not in _ACTIVATIONS:
        known = ", ".join(_ACTIVATIONS)
        raise Refusal("unsupported-attribute", f"activation '{function}' is none of {known}")
    if len(parameters) != _PARAMETERS.get(function, 0):
        needed = _PARAMETERS.get(function, 0)
        raise Refusal("invalid-node", f"activation '{function}' has {len(parameters)} parameters where {needed} are")
    return _ACTIVATIONS[function](*(*parameters, 0.0, 0.0)[:2])


def import_fused_conv(node: NodeImport) -> None:
    """A convolution, the sum with a fourth input where there is one, and an activation."""
    given = node.reals("activation_params") if node.given("activation_params") else ()
    function = node.text("activation", "")
    made = node.emit(
        convolution(node, node.input(0), node.input(1)),
        [node.input(index) for index in range(min(node.count(), 3)) if index < 2 or node.has(index)],
        None if function or node.has(3) else 0,
    )
    if node.has(3):
        made = node.emit(Binary("add"), [made, node.input(3)], None if function else 0)
    if function:
        node.emit(_activation(function, given), [made], 0)


def import_fused_gemm(node: NodeImport) -> None:
    function = node.text("activation", "")
    names = ("activation_alpha", "activation_beta", "activation_gamma")
    given = [node.real(name, 0.0) for name in names]
    if not function:
        gemm(node, 0)
        return
    parameters = tuple(given[: _PARAMETERS.get(function, 0)])
    node.emit(_activation(function, parameters), [gemm(node, None)], 0)


_MATRIX = Data((2, 8))

IMPORTERS = (
    Importer(
        "FusedMatMul", (1,), import_fused_matmul, domain=_DOMAIN,
        example=Example((_MATRIX, Weights((4, 8))), (("transB", 1),)),
    ),
    Importer(
        "TransposeMatMul", (1,), import_fused_matmul, domain=_DOMAIN,
        example=Example((_MATRIX, Weights((4, 8))), (("transB", 1),)),
    ),
    Importer(
        "FusedGemm", (1,), import_fused_gemm, domain=_DOMAIN,
        example=Example((_MATRIX, Weights((8, 4)), Weights((4,))), (("activation", "Relu"),)),
    ),
    Importer(
        "FusedConv", (1,), import_fused_conv, domain=_DOMAIN,
        example=Example((Data(IMAGE), Weights((4, 4, 3, 3)), Weights((4,))), (("activation", "Relu"),)),
    ),
)  # fmt: skip
