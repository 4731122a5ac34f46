"""Recurrent layers behind the product of all steps' inputs: LSTM, GRU and plain cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.arrays import narrowed, widened
from bolt_build.graph.ir import Array, Node, Op, ShapeError, TensorType
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.functions import FUNCTIONS
from bolt_build.graph.ops.operands import expect_same_dtype
from bolt_build.graph.tail import ANYTHING, Padded, PaddingReaches, Tail, Tails

GATES = {"lstm": 4, "gru": 3, "rnn": 1}
"""Columns of gates that a hidden unit has: ONNX's order, iofc of an LSTM and zrh of a GRU."""

_CALLED = {"lstm": 3, "gru": 2, "rnn": 1}
"""Functions of a cell: ONNX's f, g and h."""

OPTIONAL = ("bias", "peepholes", "hidden", "cell", "lengths")
"""Inputs that may follow, in this order."""

_OWN: dict[str, Callable[[Array, float, float], Array]] = {
    "affine": lambda x, a, b: a * x + b,
    "scaled_tanh": lambda x, a, b: a * np.tanh(b * x),
}
"""Functions that recurrent layers have alone."""


@dataclass(frozen=True)
class Recurrent(Op):
    """The recurrence of a layer in one or both directions (`reverse` says of each whether it goes from the end).

    Inputs: x [steps, batch, directions * gates * hidden], what the steps' inputs and all biases that do not depend on
    the state make of each gate; weights [directions, hidden, gates * hidden], by which states are multiplied; and, as
    `given` names them, "bias" [directions, hidden] (of a GRU's last gate, inside of `reset_after`), "peepholes"
    [directions, 3 * hidden] (of the gates i, o, f), "hidden" and "cell" [directions, batch, hidden], the states in
    front of the first step, and "lengths" [batch] of integers: where a sequence ends. Behind that there are zeros, and
    the other direction begins there. Of a sequence without steps all states are zeros, as in onnxruntime.

    Output [rows, batch, directions, hidden]: the hidden state of every step if `every`, then the last hidden states if
    `last` is 1, and the last cell states too if it is 2.

    `functions`, with `alpha` and `beta` of each, are ONNX's f, g and h. What they are given is at most `clip` from 0,
    where that is not 0; but for a cell's state, as in onnxruntime. `reset_after`: a GRU's reset gate is applied to the
    product (ONNX's linear_before_reset). `coupled`: an LSTM's forget gate is 1 - its input gate. See ONNX's LSTM, GRU
    and RNN for the equations.
    """

    kind = "recurrent"
    factors = 2
    cell: str
    reverse: tuple[bool, ...]
    functions: tuple[str, ...]
    alpha: tuple[float, ...]
    beta: tuple[float, ...]
    given: tuple[str, ...] = ()
    every: bool = True
    last: int = 0
    clip: float = 0.0
    reset_after: bool = False
    coupled: bool = False

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        self._check()
        if len(inputs) != 2 + len(self.given):
            raise ShapeError(f"takes {2 + len(self.given)} inputs, not {len(inputs)}")
        x, weights = inputs[0], inputs[1]
        expect_same_dtype([t for t, name in zip(inputs, ("x", "r", *self.given), strict=True) if name != "lengths"])
        if not x.dtype.is_float:
            raise ShapeError(f"takes a floating-point tensor, not {x.dtype.value}")
        directions, gates = len(self.reverse), GATES[self.cell]
        if x.rank != 3 or weights.rank != 3:
            raise ShapeError(f"inputs {list(x.shape)} and weights {list(weights.shape)} must have three axes")
        hidden = weights.shape[1]
        if weights.shape != (directions, hidden, gates * hidden) or x.shape[2] != directions * gates * hidden:
            raise ShapeError(
                f"inputs {list(x.shape)} and weights {list(weights.shape)} are not those of {gates} gates in "
                f"{directions} directions"
            )
        wanted = self._shapes(x.shape[1], hidden)
        for name, t in zip(self.given, inputs[2:], strict=True):
            if t.shape != wanted[name]:
                raise ShapeError(f"{name} {list(t.shape)} must be {list(wanted[name])}")
            if name == "lengths" and t.dtype not in (DType.I32, DType.I64):
                raise ShapeError(f"lengths are of i32 or i64, not of {t.dtype.value}")
        return (TensorType(x.dtype, (self._rows(x.shape[0]), x.shape[1], directions, hidden)),)

    def _check(self) -> None:
        if self.cell not in GATES:
            raise ShapeError(f"'{self.cell}' is none of {', '.join(GATES)}")
        if not 1 <= len(self.reverse) <= 2:
            raise ShapeError(f"has one or two directions, not {len(self.reverse)}")
        if tuple(name for name in OPTIONAL if name in self.given) != self.given:
            raise ShapeError(f"the optional inputs are some of {', '.join(OPTIONAL)}, in this order")
        if not 0 <= self.last <= (2 if self.cell == "lstm" else 1) or not self._rows(1):
            raise ShapeError("leaves every hidden state, the last hidden states, or an LSTM's last cell states too")
        count = _CALLED[self.cell]
        if not len(self.functions) == len(self.alpha) == len(self.beta) == count:
            raise ShapeError(f"a cell of this kind has {count} functions, with alpha and beta")
        unknown = next((name for name in self.functions if name not in (*FUNCTIONS, *_OWN)), None)
        if unknown is not None:
            raise ShapeError(f"'{unknown}' is no activation function")

    def _rows(self, steps: int) -> int:
        return steps * self.every + self.last

    def _shapes(self, batch: int, hidden: int) -> Mapping[str, tuple[int, ...]]:
        directions = len(self.reverse)
        state = (directions, batch, hidden)
        return {
            "bias": (directions, hidden), "peepholes": (directions, 3 * hidden), "hidden": state, "cell": state,
            "lengths": (batch,),
        }  # fmt: skip

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        x, weights, *rest = (widened(each) for each in inputs)
        own = dict(zip(self.given, rest, strict=True))
        (steps, batch), hidden = x.shape[:2], weights.shape[1]
        lengths = own.get("lengths", np.full(batch, steps, np.int64))
        if (lengths < 0).any() or (lengths > steps).any():
            raise ShapeError(f"a length lies outside of 0 to {steps}")
        x = x.reshape(steps, batch, len(self.reverse), -1)
        made = np.zeros((self._rows(steps), batch, len(self.reverse), hidden), x.dtype)
        rows = np.arange(batch)
        for d, backwards in enumerate(self.reverse):
            zeros, begins = np.zeros((batch, hidden), x.dtype), lengths[:, None] > 0
            h = np.where(begins, own["hidden"][d] if "hidden" in own else zeros, zeros)
            c = np.where(begins, own["cell"][d] if "cell" in own else zeros, zeros)
            bias = own["bias"][d] if "bias" in own else np.zeros(hidden, x.dtype)
            peep = own["peepholes"][d] if "peepholes" in own else np.zeros(3 * hidden, x.dtype)
            for step in range(steps):
                live = step < lengths
                at = np.where(live, lengths - 1 - step if backwards else step, 0)
                new, cell = self._step(x[at, rows, d], weights[d], h, c, bias, peep)
                h, c = np.where(live[:, None], new, h), np.where(live[:, None], cell, c)
                if self.every:
                    made[at[live], rows[live], d] = h[live]
            for row, state in zip(range(-self.last, 0), (h, c), strict=False):
                made[row, :, d] = state
        return (narrowed(made, inputs[0].dtype),)

    def _step(self, x: Array, weights: Array, h: Array, c: Array, bias: Array, peep: Array) -> tuple[Array, Array]:
        hidden = h.shape[1]
        with np.errstate(all="ignore"):
            if self.cell == "rnn":
                return self._call(0, x + h @ weights), c
            if self.cell == "gru":
                z, r = (self._call(0, each) for each in np.split((x + h @ weights)[:, : 2 * hidden], 2, axis=1))
                last = weights[:, 2 * hidden :]
                behind = r * (h @ last + bias) if self.reset_after else (r * h) @ last + bias
                return (1.0 - z) * self._call(1, x[:, 2 * hidden :] + behind) + z * h, c
            of_input, of_output, of_forget = np.split(peep, 3)
            i, o, f, g = np.split(x + h @ weights, 4, axis=1)
            i = self._call(0, i + of_input * c)
            f = 1.0 - i if self.coupled else self._call(0, f + of_forget * c)
            c = f * c + i * self._call(1, g)
            return self._call(0, o + of_output * c) * self._call(2, c, clipped=False), c

    def _call(self, index: int, x: Array, clipped: bool = True) -> Array:
        function, alpha, beta = self.functions[index], self.alpha[index], self.beta[index]
        if self.clip and clipped:
            x = np.clip(x, -self.clip, self.clip)
        if function in _OWN:
            return _OWN[function](x, alpha, beta)
        return Activation(function, alpha, beta).evaluate([x])[0]

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        """The products with states, and some thirty operations a gate."""
        (steps, batch, columns), hidden = inputs[0].shape, inputs[1].shape[1]
        return steps * batch * columns * (2 * hidden + 30)

    def tails(self, node: Node, at: Padded) -> Tails:
        """Sequences may be longer where nothing reads their ends: forwards, or as long as `lengths` says."""
        shape, found = at.shape(node.outputs[0]), dict[int, Tail]()
        counted = "lengths" in self.given
        for role, name in zip(("x", "weights", *self.given), node.inputs, strict=True):
            for step in at.tails(name):
                axis = at.axis(name, step)
                if role == "x" and axis == 0:
                    if not counted and (any(self.reverse) or self.last):
                        raise PaddingReaches("goes through it to its end, where no lengths are given")
                    if self.every and self.last:
                        raise PaddingReaches("leaves the last states behind those of all steps")
                    if self.every:
                        found[at.moved(name, step, shape, 0)] = Tail(0.0) if counted else ANYTHING
                elif (role in ("x", "hidden", "cell") and axis == 1) or role == "lengths":
                    found[at.moved(name, step, shape, 1)] = ANYTHING
                else:
                    raise PaddingReaches("is a state along it")
        return found
