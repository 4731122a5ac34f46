"""Operators that ONNX tried out before version 1.5 and never took. CoreML's converter wrote them, and onnxruntime
computes them up to opset 9.

Defined in ONNX's docs of that time ("experimental operators").
"""

from __future__ import annotations

import numpy as np

from bolt_build.graph.arrays import numpy_dtype
from bolt_build.graph.example import IMAGE, Data, Example
from bolt_build.graph.importing import NO_SCHEMA, Importer, NodeImport
from bolt_build.graph.ir import ShapeError
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.moves.shape import Slice


def _scaled(node: NodeImport, name: str, factor: float, output: int | None = None) -> str:
    return node.emit(Binary("mul"), [name, node.scalar_like(factor, name)], output)


def import_affine(node: NodeImport) -> None:
    """alpha x + beta."""
    made = _scaled(node, node.input(0), node.real("alpha", 1.0))
    node.emit(Binary("add"), [made, node.scalar_like(node.real("beta", 0.0), made)], 0)


def import_scaled_tanh(node: NodeImport) -> None:
    """alpha tanh(beta x)."""
    inner = _scaled(node, node.input(0), node.real("beta", 1.0))
    _scaled(node, node.emit(Activation("tanh"), [inner]), node.real("alpha", 1.0), 0)


def import_parametric_softplus(node: NodeImport) -> None:
    """alpha ln(1 + exp(beta x))."""
    inner = _scaled(node, node.input(0), node.real("beta", 1.0))
    _scaled(node, node.emit(Activation("softplus"), [inner]), node.real("alpha", 1.0), 0)


def import_image_scaler(node: NodeImport) -> None:
    """scale x, plus a number for each channel."""
    shape, bias = node.type(0).shape, node.reals("bias")
    if len(shape) != 4 or len(bias) != shape[1]:
        raise ShapeError(f"{len(bias)} biases are not one for each channel of {list(shape)}")
    made = _scaled(node, node.input(0), node.real("scale", 1.0))
    numbers = np.asarray(bias, np.float32).astype(numpy_dtype(node.type(0).dtype)).reshape(-1, 1, 1)
    node.emit(Binary("add"), [made, node.helper(numbers, "bias")], 0)


def import_crop(node: NodeImport) -> None:
    """Without the borders (left, top, right, bottom), or `scale` rows and columns behind the left and top ones."""
    shape, border = node.type(0).shape, node.integers("border")
    if len(shape) != 4 or len(border) != 4:
        raise ShapeError(f"border {list(border)} must be that of an image, and {list(shape)} one")
    left, top, right, bottom = border
    rows, columns = node.integers("scale", (shape[2] - top - bottom, shape[3] - left - right))
    if min(*border, rows - 1, columns - 1) < 0 or top + rows > shape[2] or left + columns > shape[3]:
        raise ShapeError(f"nothing is left of {list(shape)} within a border of {list(border)}")
    node.emit(Slice((0, 0, top, left), (*shape[:2], rows, columns), (1, 1, 1, 1)), [node.input(0)], 0)


_EXAMPLE = Example((Data(IMAGE),))

IMPORTERS = (
    Importer("Affine", (NO_SCHEMA,), import_affine, example=_EXAMPLE),
    Importer("Crop", (NO_SCHEMA,), import_crop, example=Example((Data(IMAGE),), (("border", (1, 1, 1, 1)),))),
    Importer(
        "ImageScaler", (NO_SCHEMA,), import_image_scaler,
        example=Example((Data(IMAGE),), (("bias", (0.5,) * IMAGE[1]),)),
    ),
    Importer("ParametricSoftplus", (NO_SCHEMA,), import_parametric_softplus, example=_EXAMPLE),
    Importer("ScaledTanh", (NO_SCHEMA,), import_scaled_tanh, example=_EXAMPLE),
)  # fmt: skip
