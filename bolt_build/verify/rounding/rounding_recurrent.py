"""What rounding does to a recurrent layer, whose errors grow from step to step: see `verify.rounding`.

No formula follows them through hundreds of steps and three kinds of gates. So the layer itself does: it is run again
with its inputs and weights pushed, each by some hundred times what rounding does to it, in the same steps. What that
changes is the error of the last step with all that the state carries of those before.

Two pushes stand for two kinds of errors, and their squares are added:
- Inputs, and each weight by itself, up or down as its digits fall: what is stored, and partial sums of mixed signs.
- All weights and biases up: what is relative to a gate's sum, and its functions. These errors have one sign at every
  step, which is the most that they can do.

Where a layer would depart by these, each gate of each unit is pushed by itself too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from math import sqrt

from bolt_build.verify.rounding.rounding import FUNCTION, UNIT, Variance, Work, additions

_STEP = 256.0
"""Times an error: so much that fp32 shows what it does, and so little that it does it in proportion."""
_SMALL_STEP = 4.0
"""In place of that where it changes everything. Layers of many units may make of one rounding all that they hold, steps
later; then a large step makes no more of it, and would seem to do little in proportion."""
_EVERYTHING = 0.1
"""A change by so much of the squares of what a layer leaves is none in proportion."""

_USUAL = 4.0
"""The largest of normal changes over their root mean square. A state that is torn changes far, and at few steps."""
_WHERE = 9
"""The first opset with Where."""
_SHUFFLE = 1e5
"""Weights times this, in a sine: signs that have nothing to do with those of the weights."""
_DRAWS = (1.0, 0.7, 0.3)
"""Parts of that, for other signs each time."""


def recurrence(work: Work, output: int) -> Variance:
    """Of one output of LSTM, GRU or RNN."""
    emit, y = work.emit, work.outputs[output]
    size = emit.square(y)
    mean = emit.add("ReduceMean", [size])

    def squared_change(pushed: Callable[[Work, float], list[str]], step: float) -> tuple[str, str]:
        """Of an error of 1, and the mean of the whole step's. One push may do little to what others move far: a gate's
        errors cancel at some steps, which others show."""
        change = emit.square(emit.add("Sub", [emit.again(work.node, pushed(work, step), output=output), y]))
        squared = emit.scaled(change, 1.0 / (UNIT * step) ** 2)
        if work.careful and output == 0:
            most = emit.scaled(emit.reduce("ReduceMax", squared, [0]), 1.0 / _USUAL**2)
            squared = emit.sum(squared, emit.add("Max", [emit.reduce("ReduceMean", squared, [0]), most]))
        return emit.sum(squared, emit.add("ReduceMean", [squared])), emit.add("ReduceMean", [change])

    def alone(pushed: Callable[[Work, float], list[str]]) -> str:
        """What its own roundings do. They tell whether a layer is chaotic: what arrives may be said to be off by far
        too much."""
        if emit.opset < _WHERE:
            return squared_change(pushed, _STEP)[0]
        found = emit.scaled(emit.add("ReduceMax", [size]), 1.0 / UNIT**2)  # a small step changes everything
        for step in (_SMALL_STEP, _STEP):
            squared, whole = squared_change(pushed, step)
            everything = emit.add("Greater", [whole, emit.scaled(mean, _EVERYTHING)])
            found = emit.add("Where", [everything, found, squared])
        return found

    own = emit.scaled(emit.sum(size, mean), FUNCTION)
    total = emit.sum(squared_change(_one_by_one, _STEP)[0], alone(_together))
    if work.careful:
        for draw in _DRAWS:
            total = emit.sum(total, alone(functools.partial(_gate_by_gate, draw=draw)))
    return work.rounded(emit.sum(total, own), work.roundings.result, output)


def _one_by_one(work: Work, step: float) -> list[str]:
    """The inputs, each off by what it arrives with; weights by their storing and their share of a sum's additions."""
    emit, pushed = work.emit, []
    for index, (name, variance) in enumerate(zip(work.inputs, work.variances, strict=True)):
        if name and variance is not None:
            name = emit.sum(name, emit.scaled(emit.add("Sqrt", [variance]), step * UNIT))
        if index in (1, 2):
            share = emit.sum(additions(work, emit.extent(name, 2))[0], emit.constant(work.weight(index)))
            sign = emit.add("Sign", [emit.add("Sin", [emit.scaled(name, _SHUFFLE)])])
            part = emit.scaled(emit.add("Sqrt", [share]), step * UNIT)
            name = emit.sum(name, emit.product(emit.product(name, sign), part))
        pushed.append(name)
    return pushed


def _together(work: Work, step: float) -> list[str]:
    """The inputs; gates' sums off by a part of themselves, and by what functions are off by where they are steepest."""
    one = work.emit.constant(1.0)
    return _gates(work, (one, one), one, step)


def _gate_by_gate(work: Work, step: float, draw: float = 1.0) -> list[str]:
    """Likewise, each gate of each unit up or down as its weights' digits fall, and what comes of inputs apart from what
    comes of states: what one does another may undo, and each is stored by itself."""
    emit = work.emit
    signs = []
    for index in (1, 2):
        largest = emit.reduce("ReduceMax", work.inputs[index], [2])
        signs.append(emit.add("Sign", [emit.add("Sin", [emit.scaled(largest, draw * _SHUFFLE)])]))
    halves = [emit.add("Reshape", [each, emit.constant([0, -1])]) for each in signs]
    return _gates(work, (signs[0], signs[1]), emit.add("Concat", halves, axis=1), step)


def _gates(work: Work, signs: tuple[str, str], of_bias: str, step: float) -> list[str]:
    """The inputs, each gate's sum pushed by its sign: `signs` are for both weights, `of_bias` for the bias."""
    emit, pushed = work.emit, [*work.inputs, *[""] * (4 - len(work.inputs))]
    recurrent = work.inputs[2]
    count = emit.sum(emit.extent(work.inputs[1], 2), emit.extent(recurrent, 2))
    relative = emit.affine(additions(work, count)[1], 1.0, work.roundings.result)
    part = emit.scaled(emit.add("Sqrt", [relative]), step * UNIT)
    for index in (1, 2):
        factor = emit.affine(emit.product(part, signs[index - 1]), 1.0, 1.0)
        pushed[index] = emit.product(work.inputs[index], factor)
    # Of the biases the second half is added to products with the state; zero times weights where there are none.
    columns = emit.add("Reshape", [emit.reduce("ReduceMax", recurrent, [2]), emit.constant([0, -1])])
    half = emit.scaled(columns, 0.0)
    bias = work.inputs[3] if len(work.inputs) > 3 and work.inputs[3] else emit.add("Concat", [half, half], axis=1)
    relative_push = emit.product(bias, emit.product(part, of_bias))
    pushed[3] = emit.sum(bias, emit.sum(relative_push, emit.scaled(of_bias, step * UNIT * sqrt(FUNCTION) / 2.0)))
    return pushed
