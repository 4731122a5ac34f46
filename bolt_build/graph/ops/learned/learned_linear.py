"""Linear models and support vectors of the domain ai.onnx.ml: products of rows with coefficients."""

from __future__ import annotations

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.example import Data, Example
from bolt_build.graph.importing import Importer, NodeImport, Refusal
from bolt_build.graph.ir import Array, ShapeError
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.logic import Compare, Where
from bolt_build.graph.ops.learned.learned_scores import (
    DOMAIN,
    LABEL,
    SCORES,
    Labels,
    like,
    numbers,
    of_two,
    real,
    transformed,
    way_of,
)  # fmt: skip
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.moves.shape import Cast, Reshape
from bolt_build.graph.ops.products.matmul import MatMul

_ROWS = Data((2, 3), DType.F32)
_KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")


def linear_scores(node: NodeImport, rows: int) -> str:
    """x C' + intercepts, with `rows` rows of coefficients. Raises ShapeError."""
    x, columns = real(node), node.type(0).shape[-1]
    coefficients = numbers(node, "coefficients")
    if node.type(0).rank != 2 or coefficients.size != rows * columns:
        shape = list(node.type(0).shape)
        raise ShapeError(f"{coefficients.size} coefficients are not {rows} for each column of {shape}")
    operands = [x, node.helper(coefficients.reshape(rows, columns), "coefficients")]
    if node.given("intercepts"):
        intercepts = numbers(node, "intercepts")
        if intercepts.size != rows:
            raise ShapeError(f"{intercepts.size} intercepts are not one for each of {rows} rows of coefficients")
        operands.append(node.helper(intercepts, "intercepts"))
    return node.emit(MatMul(transpose_b=True), operands)


def import_linear_regressor(node: NodeImport) -> None:
    transformed(node, linear_scores(node, node.integer("targets", 1)), way_of(node), 0)


def import_linear_classifier(node: NodeImport) -> None:
    """One row of coefficients a class, or for two classes that of the second."""
    labels, way = Labels(node, "classlabels_ints", "classlabels_strings"), way_of(node)
    columns = node.type(0).shape[-1]
    rows = max(1, len(node.reals("coefficients")) // max(1, columns))
    scores = linear_scores(node, rows)
    if rows == 1 and labels.count == 2:
        labels.of_two(scores, 0.0)
        of_two(node, scores, way, apart=False)
        return
    if rows != labels.count:
        raise ShapeError(f"{rows} rows of coefficients for {labels.count} classes")
    labels.of_best(scores)
    transformed(node, scores, way, SCORES)


def _likeness(node: NodeImport, vectors: Array) -> str:
    """What the kernel makes of each row and each vector, [N, vectors]."""
    x, kernel = real(node), node.text("kernel_type", "LINEAR")
    if kernel not in _KERNELS:
        raise Refusal("unsupported-attribute", f"kernel_type '{kernel}' is none of {', '.join(_KERNELS)}")
    gamma, offset, degree = node.reals("kernel_params") if node.given("kernel_params") else (0.0, 0.0, 0.0)
    if kernel == "RBF":
        # |x|^2 - 2 x v + |v|^2 is one product, and loses what x and v have in common.
        rows, columns = node.type(0).shape
        apart = node.emit(Binary("sub"), [node.emit(Reshape((rows, 1, columns)), [x]), node.helper(vectors, "vectors")])
        squares = node.emit(Reduce("sum_square", (2,), keepdims=False), [apart])
        return node.emit(
            Activation("exp"), [node.emit(Binary("mul"), [squares, like(node, np.array(-gamma), squares)])]
        )
    found = node.emit(MatMul(transpose_b=True), [x, node.helper(vectors, "vectors")])
    if kernel == "LINEAR":
        return found
    found = node.emit(Binary("mul"), [found, like(node, np.array(gamma), found)])
    found = node.emit(Binary("add"), [found, like(node, np.array(offset), found)])
    if kernel == "SIGMOID":
        return node.emit(Activation("tanh"), [found])
    return node.emit(Binary("pow"), [found, like(node, np.array(degree), found)])


def _vectors(node: NodeImport, count: int) -> Array:
    """The support vectors, [count, columns]. Raises ShapeError."""
    vectors = numbers(node, "support_vectors")
    if node.type(0).rank != 2 or vectors.size != count * node.type(0).shape[1]:
        raise ShapeError(f"{vectors.size} numbers are not {count} support vectors of {list(node.type(0).shape)}")
    return vectors.reshape(count, -1)


def import_vector_regressor(node: NodeImport) -> None:
    count, rho = node.integer("n_supports", 0), numbers(node, "rho")
    if count == 0:
        raise Refusal("unsupported-attribute", "without support vectors (n_supports is 0) it is not supported")
    coefficients = numbers(node, "coefficients")
    if coefficients.size != count or rho.size != 1:
        raise ShapeError(f"{coefficients.size} coefficients and {rho.size} offsets for {count} support vectors")
    near = _likeness(node, _vectors(node, count))
    weights = [node.helper(coefficients.reshape(1, count), "coefficients"), node.helper(rho, "rho")]
    score = node.emit(MatMul(transpose_b=True), [near, *weights])
    if node.integer("one_class", 0):
        above = node.emit(Compare("greater"), [score, node.scalar_like(0.0, score)])
        score = node.emit(Where(), [above, node.scalar_like(1.0, score), node.scalar_like(-1.0, score)])
    transformed(node, score, way_of(node), 0)


def _pairs(node: NodeImport, of_class: tuple[int, ...], rho: Array) -> tuple[list[tuple[int, int]], Array]:
    """The pairs of classes, and the coefficient of each support vector in each, [pairs, vectors]. Raises ShapeError."""
    classes, vectors = len(of_class), sum(of_class)
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    given = numbers(node, "coefficients")
    if given.size != (classes - 1) * vectors or rho.size != len(pairs):
        raise ShapeError(f"{given.size} coefficients and {rho.size} offsets for {vectors} vectors of {classes} classes")
    given, begins = given.reshape(classes - 1, vectors), np.concatenate(([0], np.cumsum(of_class)))
    found = np.zeros((len(pairs), vectors), np.float32)
    for row, (i, j) in enumerate(pairs):
        found[row, begins[i] : begins[i + 1]] = given[j - 1, begins[i] : begins[i + 1]]
        found[row, begins[j] : begins[j + 1]] = given[i, begins[j] : begins[j + 1]]
    return pairs, found


def import_vector_classifier(node: NodeImport) -> None:
    """Of each pair of classes one wins; the label is that of the class with most wins, and of equal ones the first."""
    labels, way = Labels(node, "classlabels_ints", "classlabels_strings"), way_of(node)
    if not node.given("vectors_per_class"):
        raise Refusal("unsupported-attribute", "without support vectors (vectors_per_class) it is not supported")
    of_class, rho = node.integers("vectors_per_class"), numbers(node, "rho")
    if len(of_class) != labels.count:
        raise ShapeError(f"{labels.count} labels for {len(of_class)} classes")
    pairs, coefficients = _pairs(node, of_class, rho)
    near = _likeness(node, _vectors(node, sum(of_class)))
    operands = [near, node.helper(coefficients, "coefficients"), node.helper(rho, "rho")]
    scores = node.emit(MatMul(transpose_b=True), operands)
    if node.wants(LABEL):
        labels.of_best(_wins(node, scores, pairs, labels.count))
    if node.given("prob_a"):
        if node.wants(SCORES):
            raise Refusal("unsupported-attribute", "its probabilities are found step by step until data end it", _STEPS)
    elif len(pairs) == 1:
        of_two(node, scores, way, apart=way == "NONE")
    else:
        transformed(node, scores, way, SCORES)


_STEPS = (
    "leave them out of the outputs (model.outputs), or train it without (SVC's probability=False): its "
    "labels are supported, and its scores then"
)


def _wins(node: NodeImport, scores: str, pairs: list[tuple[int, int]], classes: int) -> str:
    """How many pairs each class wins, [N, classes]."""
    above = node.emit(Compare("greater"), [scores, node.scalar_like(0.0, scores)])
    won = np.zeros((classes, len(pairs)), np.float32)
    lost = np.zeros(classes, np.float32)
    for column, (i, j) in enumerate(pairs):
        won[i, column], won[j, column] = 1.0, -1.0
        lost[j] += 1.0
    first = node.emit(Cast(DType.F32), [above])
    return node.emit(MatMul(transpose_b=True), [first, node.helper(won, "won"), node.helper(lost, "lost")])


IMPORTERS = (
    Importer(
        "LinearRegressor", (1,), import_linear_regressor, domain=DOMAIN, note="post_transform: NONE, SOFTMAX, LOGISTIC",
        example=Example((_ROWS,), (("coefficients", (1.0, 2.0, 3.0)),)),
    ),
    Importer(
        "LinearClassifier", (1,), import_linear_classifier, domain=DOMAIN, ignores=("multi_class",),
        note="labels are integers; post_transform: NONE, SOFTMAX, LOGISTIC",
        example=Example(
            (_ROWS,), (("coefficients", (1.0, 2.0, 3.0, 2.0, 1.0, 0.0)), ("classlabels_ints", (0, 1))), outputs=2
        ),
    ),
    Importer(
        "SVMRegressor", (1,), import_vector_regressor, domain=DOMAIN, note="with support vectors",
        example=Example(
            (_ROWS,),
            (("n_supports", 1), ("support_vectors", (1.0, 2.0, 3.0)), ("coefficients", (1.0,)), ("rho", (0.5,))),
        ),
    ),
    Importer(
        "SVMClassifier", (1,), import_vector_classifier, domain=DOMAIN,
        note="labels are integers; with support vectors; no probabilities",
        ignores=("prob_b",),
        example=Example(
            (_ROWS,),
            (("vectors_per_class", (1, 1)), ("support_vectors", (1.0, 2.0, 3.0, 3.0, 2.0, 1.0)), ("rho", (0.5,)),
             ("coefficients", (1.0, -1.0)), ("classlabels_ints", (0, 1))),
            outputs=2,
        ),
    ),
)  # fmt: skip
