"""Elementwise functions of one tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.arrays import converted, narrowed, numpy_dtype, widened
from bolt_build.graph.example import IMAGE, Data, Example, Weights
from bolt_build.graph.importing import Importer, NodeImport, Refusal
from bolt_build.graph.ir import Array, Node, Op, ShapeError, TensorType
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.functions import FUNCTIONS
from bolt_build.graph.ops.operands import expect_count, expect_float
from bolt_build.graph.tail import Padded, Tails
from bolt_build.graph.tail_rules import elementwise


@dataclass(frozen=True)
class Activation(Op):
    """y = function(x; alpha, beta), with a function of `FUNCTIONS`. `alpha`, `beta`: leaky_relu slope in alpha; clip
    [alpha, beta]; hard_sigmoid clip(alpha * x + beta, 0, 1); elu, celu, thresholded_relu and swish: ONNX's alpha; selu:
    ONNX's alpha and gamma; shrink: its threshold and bias; unused ones are 0."""

    kind = "activation"
    function: str
    alpha: float = 0.0
    beta: float = 0.0

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 1)
        if self.function not in FUNCTIONS:
            raise ShapeError(f"'{self.function}' is no activation function")
        if not FUNCTIONS[self.function].on_integers or inputs[0].dtype is DType.BOOL:
            expect_float(inputs[0])
        return (TensorType(inputs[0].dtype, inputs[0].shape),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        with np.errstate(all="ignore"):
            result = FUNCTIONS[self.function].evaluate(widened(inputs[0]), self.alpha, self.beta)
        return (narrowed(result, inputs[0].dtype),)

    def tails(self, node: Node, at: Padded) -> Tails:
        return elementwise(node, at)


_PLAIN = {
    "Relu": "relu", "Sigmoid": "sigmoid", "HardSwish": "hard_swish", "Tanh": "tanh", "Softplus": "softplus",
    "Erf": "erf", "Exp": "exp", "Sqrt": "sqrt", "Neg": "neg", "Abs": "abs", "Reciprocal": "reciprocal",
    "Sign": "sign",
}  # fmt: skip
_SINCE = {
    "Log": (6, 13), "Sin": (7, 22), "Cos": (7, 22), "Tan": (7, 22), "Asin": (7, 22), "Acos": (7, 22), "Atan": (7, 22),
    "Sinh": (9, 22), "Cosh": (9, 22), "Asinh": (9, 22), "Acosh": (9, 22), "Atanh": (9, 22), "Floor": (6, 13),
    "Ceil": (6, 13), "Round": (11, 22), "Mish": (18, 22), "Softsign": (1, 22),
}  # fmt: skip
"""Functions without attributes that are called in lower case here, and the versions of their operators."""
_WITH_NUMBERS: dict[str, tuple[str, tuple[tuple[str, float], ...]]] = {
    "Elu": ("elu", (("alpha", 1.0),)),
    "Celu": ("celu", (("alpha", 1.0),)),
    "Selu": ("selu", (("alpha", 1.6732631921768188), ("gamma", 1.0507010221481323))),
    "ThresholdedRelu": ("thresholded_relu", (("alpha", 1.0),)),
    "Shrink": ("shrink", (("lambd", 0.5), ("bias", 0.0))),
}
"""Functions with attributes, each with its default: an `Activation`'s alpha and beta."""


def import_plain(node: NodeImport) -> None:
    op_type = node.node.op_type
    node.emit(Activation(_PLAIN.get(op_type, op_type.lower())), [node.input(0)], 0)


def import_with_numbers(node: NodeImport) -> None:
    function, attributes = _WITH_NUMBERS[node.node.op_type]
    op = Activation(function, *(node.real(name, default) for name, default in attributes))
    if function == "celu" and op.alpha == 0.0:
        raise Refusal("invalid-node", "alpha must not be 0, by which is divided")
    node.emit(op, [node.input(0)], 0)


def import_leaky_relu(node: NodeImport) -> None:
    node.emit(Activation("leaky_relu", node.real("alpha", 0.01)), [node.input(0)], 0)


def import_hard_sigmoid(node: NodeImport) -> None:
    op = Activation("hard_sigmoid", node.real("alpha", 0.2), node.real("beta", 0.5))
    node.emit(op, [node.input(0)], 0)


def import_gelu(node: NodeImport) -> None:
    approximate = node.text("approximate", "none")
    if approximate not in ("none", "tanh"):
        raise Refusal("unsupported-attribute", f"approximate '{approximate}' is neither 'none' nor 'tanh'")
    node.emit(Activation("gelu" if approximate == "none" else "gelu_tanh"), [node.input(0)], 0)


def import_swish(node: NodeImport) -> None:
    alpha, x = node.real("alpha", 1.0), node.input(0)
    node.emit(Activation("silu") if alpha == 1.0 else Activation("swish", alpha), [x], 0)


def import_clip(node: NodeImport) -> None:
    """A bound left out is the least or greatest finite number of the element type, as in onnxruntime."""
    kind = numpy_dtype(node.type(0).dtype)
    limits = _limits(node)
    if node.version >= 11 and any(node.has(index) and node.constant(index) is None for index in (1, 2)):
        _clip_between(node)
        return
    if node.version < 11:
        low, high = node.real("min", limits[0]), node.real("max", limits[1])
    else:
        low = node.static_number(1, "the lower bound") if node.has(1) else limits[0]
        high = node.static_number(2, "the upper bound") if node.has(2) else limits[1]
    bounds = converted(np.asarray([low, high]).clip(*limits), kind)
    node.emit(Activation("clip", float(bounds[0]), float(bounds[1])), [node.input(0)], 0)


def _clip_between(node: NodeImport) -> None:
    """Between bounds that are known at run time."""
    name = node.input(0)
    sides = [(index, function) for index, function in ((1, "max"), (2, "min")) if node.has(index)]
    for index, function in sides:
        output = 0 if (index, function) == sides[-1] else None
        name = node.emit(Binary(function), [name, node.input(index)], output)


def _limits(node: NodeImport) -> tuple[float, float]:
    """Least and greatest finite number of input 0's element type."""
    kind = numpy_dtype(node.type(0).dtype)
    info: Any = ml_dtypes.finfo(kind) if node.type(0).dtype.is_float else np.iinfo(kind)  # type: ignore[no-untyped-call]
    return float(info.min), float(info.max)


IMPORTERS = (
    *(Importer(name, (6, 13), import_plain) for name in ("Sigmoid", "Tanh", "Exp", "Sqrt", "Neg", "Abs", "Reciprocal")),
    Importer("Relu", (6, 13, 14), import_plain),
    Importer("Sign", (9, 13), import_plain),
    Importer("HardSwish", (14, 22), import_plain),
    Importer("Softplus", (1, 22), import_plain),
    Importer("Erf", (9, 13), import_plain),
    *(Importer(name, versions, import_plain) for name, versions in _SINCE.items()),
    Importer("Elu", (6, 22), import_with_numbers),
    Importer("Celu", (12, 28), import_with_numbers),
    Importer("Selu", (6, 22), import_with_numbers),
    Importer("ThresholdedRelu", (10, 22), import_with_numbers),
    Importer("Shrink", (9,), import_with_numbers),
    Importer("LeakyRelu", (6, 16), import_leaky_relu),
    Importer("HardSigmoid", (6, 22), import_hard_sigmoid),
    Importer("Gelu", (20,), import_gelu),
    Importer("Swish", (24,), import_swish),
    Importer(
        "Clip",
        (6, 11, 12, 13),
        import_clip,
        example=Example((Data(IMAGE), Weights(()), Weights(()))),
    ),
)
