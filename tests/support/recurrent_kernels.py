"""Layers that the kernel of recurrent layers is tried with: each cell, direction, optional input and odd size."""

from __future__ import annotations

from dataclasses import replace

from families_harness import Input, Layer

from bolt_build.dtypes import DType
from bolt_build.graph.ops.recurrent.recurrent import GATES, Recurrent


def recurrent(
    label: str, cell: str, functions: str, steps: int, batch: int, hidden: int,
    reverse: tuple[bool, ...] = (False,), given: str = "", every: bool = True, last: int = 0, **options: float,
) -> Layer:  # fmt: skip
    """Weights, biases and peepholes are constants."""
    directions, columns, names = len(reverse), GATES[cell] * hidden, tuple(given.split())
    called = tuple(functions.split())
    op = Recurrent(
        cell, reverse, called, tuple(0.7 for _ in called), tuple(0.4 for _ in called), names, every, last,
        options.get("clip", 0.0), bool(options.get("reset_after")), bool(options.get("coupled")),
    )  # fmt: skip
    state = Input((directions, batch, hidden), low=-1.0, high=1.0)
    optional = {
        "bias": Input((directions, hidden), True), "peepholes": Input((directions, 3 * hidden), True),
        "hidden": state, "cell": state, "lengths": Input((batch,), False, 0.0, steps + 0.99, DType.I32),
    }  # fmt: skip
    spread = 2.0 / hidden**0.5
    weights = Input((directions, hidden, columns), True, -spread, spread)
    return Layer(label, op, (Input((steps, batch, directions * columns)), weights, *(optional[each] for each in names)))


RECURRENT = [
    recurrent("lstm", "lstm", "sigmoid tanh tanh", 5, 1, 70),
    recurrent("lstm-everything", "lstm", "sigmoid tanh softsign", 6, 7, 24, (False, True),
              "peepholes hidden cell lengths", last=2, clip=0.9),
    recurrent("lstm-coupled", "lstm", "hard_sigmoid scaled_tanh affine", 3, 2, 7, (True,), every=False, last=2,
              coupled=1.0),
    recurrent("gru", "gru", "sigmoid tanh", 4, 5, 40, (False, True), "hidden lengths", last=1),
    recurrent("gru-after", "gru", "sigmoid tanh", 5, 3, 18, (True,), "bias hidden", every=False, last=1,
              reset_after=1.0),
    recurrent("rnn", "rnn", "tanh", 7, 6, 33, (True, False)),
    recurrent("lstm-wide", "lstm", "sigmoid tanh tanh", 4, 19, 104, (False, True), "hidden cell"),
]  # fmt: skip

NARROW_RECURRENT = [
    replace(layer, label=f"{dtype.value}-{layer.label}", precision=dtype, tolerance=tolerance)
    for dtype, tolerance in ((DType.BF16, 2e-2), (DType.F16, 3e-3))
    for layer in RECURRENT
    if dtype is DType.F16 or layer.label in ("lstm-everything", "gru", "lstm-wide")
]
