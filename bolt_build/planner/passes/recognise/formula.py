"""Reading scalar formulas out of a graph: products and sums with their numeric factors gathered, in any order."""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum, inf, isclose, prod

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.ir import Node
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.planner.rewrite import GraphEditor


@dataclass(frozen=True)
class Product:
    """coefficient * the product of the values `factors` (sorted)."""

    coefficient: float
    factors: tuple[str, ...]


@dataclass(frozen=True)
class Sum:
    """constant + the sum of the values `terms` (sorted)."""

    constant: float
    terms: tuple[str, ...]


_LARGEST = float(np.finfo(np.float32).max)
"""The largest number in fp32: torch-script writes it where a model bounds one side alone."""


def clip_bounds(clip: Activation) -> tuple[float, float]:
    """The bounds of a clip; the largest number of fp32 is none."""
    low = -inf if clip.alpha <= -_LARGEST else clip.alpha
    return low, inf if clip.beta >= _LARGEST else clip.beta


_MOST = 64
"""Values that are followed for one formula: a longer chain is none that is known, and to follow each value of it to the
chain's end takes time with the square of its length."""


class Reader:
    """Answers what a value is computed from. Only values that nobody else reads are taken apart."""

    def __init__(self, editor: GraphEditor) -> None:
        self._editor = editor

    def scalar(self, value: str) -> float | None:
        """The number that a constant of one element is."""
        array = self._editor.constant(value)
        return float(array.reshape(-1)[0]) if array is not None and array.size == 1 else None

    def activation(self, value: str, function: str) -> Node | None:
        """The node that makes `value` if it is this activation."""
        node = self._editor.producer(value)
        if node is None or node.epilogue or not isinstance(node.op, Activation) or node.op.function != function:
            return None
        return node

    def close(self, value: str, a: float, b: float) -> bool:
        """Equal as far as constants of the value's element type can say."""
        narrow = self._editor.type(value).dtype in (DType.F16, DType.BF16)
        return isclose(a, b, rel_tol=1e-2 if narrow else 1e-5, abs_tol=1e-12)

    def product(self, value: str) -> Product:
        """`value` as a product, through every multiplication, and division by a number, behind it."""
        coefficient, factors = 1.0, []
        waiting, followed = [value], 0
        while waiting:
            followed += 1
            if followed > _MOST:
                return Product(1.0, (value,))
            name = waiting.pop()
            node = self._made_by(name) if name == value else self.inner(name)
            if node is None:
                factors.append(name)
                continue
            match node.op, [self.scalar(side) for side in node.inputs]:
                case Activation("neg"), _:
                    coefficient = -coefficient
                    waiting.append(node.inputs[0])
                case Binary("mul"), numbers:
                    waiting += [side for side, number in zip(node.inputs, numbers, strict=True) if number is None]
                    coefficient *= prod(number for number in numbers if number is not None)
                case Binary("div"), [None, float(number)] if number != 0:
                    coefficient /= number
                    waiting.append(node.inputs[0])
                case Binary("pow"), [None, float(number)] if number in (2.0, 3.0):
                    factors += [node.inputs[0]] * int(number)
                case _:
                    factors.append(name)
        return Product(coefficient, tuple(sorted(factors)))

    def sum(self, value: str) -> Sum:
        """`value` as a sum, through every addition, and subtraction of a number, behind it."""
        constant, terms = 0.0, []
        waiting, followed = [value], 0
        while waiting:
            followed += 1
            if followed > _MOST:
                return Sum(0.0, (value,))
            name = waiting.pop()
            node = self._made_by(name) if name == value else self.inner(name)
            if node is None:
                terms.append(name)
                continue
            match node.op, [self.scalar(side) for side in node.inputs]:
                case Binary("add"), numbers:
                    waiting += [side for side, number in zip(node.inputs, numbers, strict=True) if number is None]
                    constant += fsum(number for number in numbers if number is not None)
                case Binary("sub"), [None, float(number)]:
                    constant -= number
                    waiting.append(node.inputs[0])
                case _:
                    terms.append(name)
        return Sum(constant, tuple(sorted(terms)))

    def inner(self, value: str) -> Node | None:
        """The node that makes `value`, if the value goes nowhere but into one node."""
        return None if self._editor.not_private(value) else self._made_by(value)

    def _made_by(self, value: str) -> Node | None:
        node = self._editor.producer(value)
        return None if node is None or node.epilogue else node
