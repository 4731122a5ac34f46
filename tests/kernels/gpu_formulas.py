"""Elementwise functions of several tensors in one kernel: gates, scales and shifts of images, sums of products, numbers
that are read twice, odd rows, and constants."""

from __future__ import annotations

from families_harness import Input, Layer
from gpu_asked import asked
from gpu_harness import Trial, trials_of
from gpu_products import TOLERANCE

from bolt_build.dtypes import DType
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.formula import Formula, FormulaOp, FormulaTerm
from bolt_build.graph.ops.elementwise.logic import Ask, Compare, Logic, Where
from bolt_build.graph.ops.moves.shape import Cast


def term(function: str, *operands: int) -> FormulaTerm:
    return FormulaTerm(Activation(function) if len(operands) == 1 else Binary(function), operands)


MODULATED = Formula(3, (term("mul", 0, 1), term("add", 3, 2), term("silu", 4)))
"""silu(x * scale + shift)"""
MIXED = Formula(5, (term("mul", 0, 1), term("mul", 2, 3), term("add", 5, 6), term("sub", 4, 7)))
"""e - (a * b + c * d)"""
SHARED = Formula(2, (term("sub", 0, 1), term("square", 2), term("add", 3, 2), term("max", 4, 0)))
"""max((a - b)^2 + (a - b), a)"""
BLENDED = Formula(4, (term("sigmoid", 2), term("mul", 0, 4), term("sub", 3, 4), term("mul", 6, 1), term("add", 5, 7)))
"""a * g + b * (1 - g), g = sigmoid(m)"""


def _of(op: FormulaOp, *operands: int) -> FormulaTerm:
    return FormulaTerm(op, operands)


CLIPPED = Formula(4, (_of(Compare("greater"), 0, 1), _of(Compare("less_equal"), 0, 2), _of(Logic("and"), 4, 5),
                      _of(Where(), 6, 0, 3)))  # fmt: skip
"""a where it lies between two numbers, else another one"""
WITHIN = Formula(3, (term("mul", 0, 0), _of(Compare("less"), 3, 1), _of(Ask("not"), 2), _of(Logic("or"), 4, 5)))
"""whether a^2 < b or m does not hold"""
EITHER = Formula(3, (_of(Logic("and"), 0, 1), _of(Ask("not"), 2), _of(Logic("xor"), 3, 4)))
"""of booleans alone"""
COUNTED = Formula(3, (_of(Cast(DType.F32), 1), term("mul", 0, 3), _of(Where(), 1, 4, 2), _of(Ask("nan"), 5),
                      _of(Where(), 6, 2, 5)))  # fmt: skip
"""a where m holds, else b, and b where that is no number"""


HOT = Formula(4, (_of(Compare("equal"), 0, 1), _of(Where(), 4, 2, 3)))
"""One of two numbers where integers are equal"""


def _layer(label: str, op: Formula, *inputs: Input, precision: DType = DType.F16) -> Layer:
    return Layer(f"formula-{label}", op, inputs, (), precision, TOLERANCE if precision is DType.F16 else 2e-5)


LAYERS = (
    _layer("modulated", MODULATED, Input((3, 24, 7, 9)), Input((3, 24, 1, 1)), Input((3, 24, 1, 1))),
    _layer("modulated-odd", MODULATED, Input((2, 13, 5, 7)), Input((2, 13, 1, 1)), Input((13, 1, 1), constant=True)),
    _layer("mixed", MIXED, *[Input((2, 16, 6, 5))] * 4, Input((1,), constant=True)),
    _layer("mixed-rows", MIXED, Input((3, 7, 40)), Input((3, 1, 40)), Input((3, 7, 40)), Input((3, 7, 1)),
           Input((40,), constant=True)),
    _layer("shared", SHARED, Input((5, 33)), Input((5, 1))),
    _layer("blended", BLENDED, Input((2, 3, 12, 10)), Input((2, 3, 12, 10)), Input((2, 1, 12, 10)),
           Input((), True, 1.0, 1.0)),
    _layer("clipped", CLIPPED, Input((3, 7, 40)), *[Input((1,), True, low, low) for low in (-0.5, 0.75, 0.0)]),
    _layer("within", WITHIN, Input((2, 13, 5, 7)), Input((2, 13, 1, 1)), Input((13, 5, 7), dtype=DType.BOOL)),
    _layer("either", EITHER, *[Input((3, 37, 21), dtype=DType.BOOL)] * 2, Input((3, 1, 21), dtype=DType.BOOL)),
    _layer("counted", COUNTED, Input((3, 24, 7, 9)), Input((3, 1, 7, 9), dtype=DType.BOOL), Input((24, 1, 1))),
    _layer("hot", HOT, Input((3, 21, 1), low=0, high=7, dtype=DType.I64),
           Input((7,), True, low=0, high=7, dtype=DType.I64), Input((1,), True, 2.0, 2.0), Input((1,), True, 0.5, 0.5)),
    _layer("single", MODULATED, Input((2, 9, 6, 5)), Input((2, 9, 1, 1)), Input((2, 1, 6, 5)), precision=DType.F32),
)  # fmt: skip


def formulas() -> list[Trial]:
    """Of each alternative the plain kernel, and one in words and one in tiles."""
    found = list[Trial]()
    for layer in asked(LAYERS):
        for kind in ("turns", "tile"):
            found += trials_of(layer, "portable", kind=kind)
        found += trials_of(layer, "portable")
    return list({trial.label: trial for trial in found}.values())
