"""What classifiers of the domain ai.onnx.ml make of scores: the label of the best, and numbers between 0 and 1."""

from __future__ import annotations

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.arrays import numpy_dtype
from bolt_build.graph.importing import NodeImport, Refusal
from bolt_build.graph.ir import Array
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.logic import Compare, Where
from bolt_build.graph.ops.lines.lines import Places
from bolt_build.graph.ops.lines.softmax import Softmax
from bolt_build.graph.ops.moves.gather import Gather
from bolt_build.graph.ops.moves.shape import Cast, Concat, Identity, Reshape

DOMAIN = "ai.onnx.ml"
LABEL, SCORES = 0, 1
"""The outputs of a classifier."""
_WAYS = ("NONE", "SOFTMAX", "LOGISTIC")


def real(node: NodeImport, index: int = 0) -> str:
    """An input in fp32, in which all of them compute."""
    x = node.input(index)
    return x if node.type(index).dtype is DType.F32 else node.emit(Cast(DType.F32), [x])


def numbers(node: NodeImport, name: str) -> Array:
    return np.asarray(node.reals(name), np.float32)


def way_of(node: NodeImport) -> str:
    """What is made of scores. Raises Refusal."""
    way = node.text("post_transform", "NONE")
    if way not in _WAYS:
        raise Refusal("unsupported-attribute", f"post_transform '{way}' is none of {', '.join(_WAYS)}")
    return way


def transformed(node: NodeImport, scores: str, way: str, output: int) -> None:
    """Output `output`: scores of rows as `way` says. Nothing where nobody reads it."""
    if not node.wants(output):
        return
    if way == "SOFTMAX":
        node.emit(Softmax(1), [scores], output)
    elif way == "LOGISTIC":
        node.emit(Activation("sigmoid"), [scores], output)
    else:
        node.emit(Identity(), [scores], output)


def of_two(node: NodeImport, score: str, way: str, *, apart: bool) -> None:
    """Output 1: the scores of two classes from that of the second, [N, 1]: 1 - s and s, or -s and s where `apart`.
    Nothing where nobody reads it."""
    if not node.wants(SCORES):
        return
    if apart or way == "LOGISTIC":
        first = node.emit(Activation("neg"), [score])
    else:
        first = node.emit(Binary("sub"), [node.scalar_like(1.0, score), score])
    both = [first, score]
    if way == "LOGISTIC":
        both = [node.emit(Activation("sigmoid"), [each]) for each in both]
    node.emit(Concat(1), both, SCORES)


class Labels:
    """What a classifier calls its classes: integers, or strings, of which an engine has no tensors."""

    def __init__(self, node: NodeImport, integers: str, strings: str) -> None:
        """From the attributes of these names. Raises Refusal where there are none."""
        self._node = node
        self._integers: Array | None = None
        if node.given(strings):
            self.count = len(node.texts(strings))
        else:
            found = node.integers(integers)
            self._integers, self.count = np.asarray(found, np.int64), len(found)

    def of_places(self, places: str) -> None:
        """Output 0: the labels at `places`, [N]."""
        if self._known():
            assert self._integers is not None
            self._node.emit(Gather(0), [self._node.helper(self._integers, "labels"), places], LABEL)

    def of_best(self, scores: str) -> None:
        """Output 0: the label of the greatest score of each row of [N, classes]; of equal ones the first."""
        rows = self._node.type_of(scores).shape[0]
        self.of_places(self._node.emit(Reshape((rows,)), [self._node.emit(Places(1, 1), [scores])]))

    def of_two(self, score: str, threshold: float) -> None:
        """Output 0: the second of two labels where the score, [N, 1], is above `threshold`, and the first elsewhere."""
        node, rows = self._node, self._node.type_of(score).shape[0]
        if self._known():
            assert self._integers is not None
            flat = node.emit(Reshape((rows,)), [score])
            above = node.emit(Compare("greater"), [flat, node.scalar_like(threshold, flat)])
            first, second = (node.helper(np.asarray(each, np.int64), "label") for each in self._integers)
            node.emit(Where(), [above, second, first], LABEL)

    def _known(self) -> bool:
        """Whether the label is to be made. Raises Refusal where it would be a string."""
        if not self._node.wants(LABEL):
            return False
        if self._integers is None:
            scores = self._node.node.outputs[SCORES] if len(self._node.node.outputs) > SCORES else ""
            hint = f"leave '{self._node.node.outputs[LABEL]}' out of the outputs: the greatest of '{scores}' says it"
            raise Refusal("unsupported-output", "its labels are strings, and engines compute numbers", hint)
        return True


def like(node: NodeImport, values: Array, name: str) -> str:
    """A constant of `values` in the element type of value `name`."""
    return node.helper(np.asarray(values, numpy_dtype(node.type_of(name).dtype)), "values")
