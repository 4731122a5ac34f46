"""Operators of the domain ai.onnx.ml that are arithmetic on rows, as scikit-learn's converters write them around
networks: scaling, normalisation, linear models, columns by number. Trees and support vectors are none of these.
"""

from __future__ import annotations

from math import floor

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.example import Data, Example, Integers
from bolt_build.graph.importing import Importer, NodeImport, Refusal
from bolt_build.graph.ir import Array, ShapeError
from bolt_build.graph.ops.arithmetic import Binary
from bolt_build.graph.ops.gather import Gather
from bolt_build.graph.ops.logic import Compare, Where
from bolt_build.graph.ops.matmul import MatMul
from bolt_build.graph.ops.reduce import Reduce
from bolt_build.graph.ops.shape import Cast, Identity, Reshape
from bolt_build.graph.ops.softmax import Softmax

_DOMAIN = "ai.onnx.ml"
_ROWS = Data((2, 3), DType.F32)


def _real(node: NodeImport) -> str:
    """Input 0 in fp32, in which all of them compute."""
    x = node.input(0)
    return x if node.type(0).dtype is DType.F32 else node.emit(Cast(DType.F32), [x])


def _numbers(node: NodeImport, name: str) -> Array:
    return np.asarray(node.reals(name), np.float32)


def import_scaler(node: NodeImport) -> None:
    """(x - offset) * scale, of one number or one a column."""
    x, columns = _real(node), node.type(0).shape[-1]
    for function, name in (("sub", "offset"), ("mul", "scale")):
        numbers = _numbers(node, name)
        if numbers.size not in (1, columns):
            raise ShapeError(f"{name} has {numbers.size} numbers where rows have {columns}")
        x = node.emit(Binary(function), [x, node.helper(numbers, name)], 0 if name == "scale" else None)


_LENGTHS = {"MAX": "max", "L1": "l1", "L2": "l2"}


def import_normalizer(node: NodeImport) -> None:
    """Each row divided by its length; a row of length 0 stays."""
    norm = node.text("norm", "MAX")
    if norm not in _LENGTHS:
        raise Refusal("unsupported-attribute", f"norm '{norm}' is none of {', '.join(_LENGTHS)}")
    x = _real(node)
    length = node.emit(Reduce(_LENGTHS[norm], (node.type_of(x).rank - 1,)), [x])
    nothing = node.emit(Compare("equal"), [length, node.scalar_like(0.0, length)])
    divisor = node.emit(Where(), [nothing, node.scalar_like(1.0, length), length])
    node.emit(Binary("div"), [x, divisor], 0)


def _scores(node: NodeImport, rows: int) -> str:
    """x C' + intercepts, with `rows` rows of coefficients. Raises ShapeError."""
    x, columns = _real(node), node.type(0).shape[-1]
    coefficients = _numbers(node, "coefficients")
    if node.type(0).rank != 2 or coefficients.size != rows * columns:
        shape = list(node.type(0).shape)
        raise ShapeError(f"{coefficients.size} coefficients are not {rows} for each column of {shape}")
    operands = [x, node.helper(coefficients.reshape(rows, columns), "coefficients")]
    if node.given("intercepts"):
        intercepts = _numbers(node, "intercepts")
        if intercepts.size != rows:
            raise ShapeError(f"{intercepts.size} intercepts are not one for each of {rows} rows of coefficients")
        operands.append(node.helper(intercepts, "intercepts"))
    return node.emit(MatMul(transpose_b=True), operands)


def import_linear_regressor(node: NodeImport) -> None:
    scores, way = _scores(node, node.integer("targets", 1)), node.text("post_transform", "NONE")
    if way == "SOFTMAX":
        node.emit(Softmax(1), [scores], 0)
    elif way == "NONE":
        node.emit(Identity(), [scores], 0)
    else:
        raise Refusal("unsupported-attribute", f"post_transform '{way}' is neither NONE nor SOFTMAX")


def import_columns(node: NodeImport) -> None:
    """Columns of rows by their numbers; of one row without another axis, one row."""
    x, wanted = node.input(0), node.emit(Reshape((node.type(1).elements,)), [node.input(1)])
    if node.type(0).rank == 1:
        x = node.emit(Reshape((1, node.type(0).shape[0])), [x])
    node.emit(Gather(node.type_of(x).rank - 1), [x, wanted], 0)


def import_binarizer(node: NodeImport) -> None:
    """1 where x is above the threshold, and 0 elsewhere."""
    x, threshold = node.input(0), node.real("threshold", 0.0)
    if not node.type(0).dtype.is_float:
        threshold = floor(threshold)  # what an integer is above of
    above = node.emit(Compare("greater"), [x, node.scalar_like(threshold, x)])
    node.emit(Cast(node.type(0).dtype), [above], 0)


IMPORTERS = (
    Importer(
        "Scaler", (1,), import_scaler, domain=_DOMAIN,
        example=Example((_ROWS,), (("offset", (0.5,)), ("scale", (2.0,)))),
    ),
    Importer("Normalizer", (1,), import_normalizer, domain=_DOMAIN, example=Example((_ROWS,), (("norm", "L2"),))),
    Importer(
        "LinearRegressor", (1,), import_linear_regressor, domain=_DOMAIN, note="post_transform: NONE or SOFTMAX",
        example=Example((_ROWS,), (("coefficients", (1.0, 2.0, 3.0)),)),
    ),
    Importer(
        "ArrayFeatureExtractor", (1,), import_columns, domain=_DOMAIN, moves=True,
        example=Example((_ROWS, Integers((0, 2)))),
    ),
    Importer("Binarizer", (1,), import_binarizer, domain=_DOMAIN, example=Example((_ROWS,))),
)  # fmt: skip
