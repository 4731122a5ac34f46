"""What is done to queries and keys in front of attention: rotary embedding, and heads that are normalised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from bolt_build.digest import UNSAID
from bolt_build.graph.arrays import narrowed, widened
from bolt_build.graph.ir import Array, Node, Op, ShapeError, TensorType
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.graph.ops.operands import broadcast, expect_count, expect_float
from bolt_build.graph.tail import ANYTHING, Padded, PaddingReaches, Tail, Tails
from bolt_build.graph.tail_rules import broadcast_tails


@dataclass(frozen=True)
class Rotary(Op):
    """y = x cos + r(x) sin over elements of the last axis behind `passed` others, as many as cos and sin have. What is
    beside these stays.

    r(x) exchanges the elements of a pair, with the sign of the first turned: pairs are an element and that half of the
    turned elements further on, or neighbours if `interleaved`. cos and sin broadcast to the turned part of x.
    No model has the operator; a pass makes it of slices, products and sums.
    """

    kind = "rotary"
    interleaved: bool = False
    passed: int = field(default=0, metadata=UNSAID)

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 3)
        for t in inputs:
            expect_float(t)
        x = inputs[0]
        for what, t in zip(("cosines", "sines"), inputs[1:], strict=True):
            _expect_angles(what, t, x.shape, self.passed)
        if inputs[1].shape[-1] != inputs[2].shape[-1]:
            raise ShapeError(f"cosines {list(inputs[1].shape)} and sines {list(inputs[2].shape)} turn different parts")
        return (TensorType(x.dtype, x.shape),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        x, cos, sin = map(widened, inputs)
        return (narrowed(turned(x, cos, sin, interleaved=self.interleaved, passed=self.passed), inputs[0].dtype),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return 3 * outputs[0].elements

    def tails(self, node: Node, at: Padded) -> Tails:
        last = len(at.shape(node.inputs[0])) - 1
        if any(at.axis(node.inputs[0], step) == last for step in at.tails(node.inputs[0])):
            raise PaddingReaches("turns pairs along it")
        return dict.fromkeys(broadcast_tails(node, at), ANYTHING)


def _expect_angles(what: str, t: TensorType, shape: tuple[int, ...], passed: int) -> None:
    """Raises ShapeError unless `t` broadcasts to elements of the last axis of `shape` behind `passed` others, an even
    number."""
    count = t.shape[-1] if t.rank else 0
    part = (*shape[:-1], count)
    if not shape or count % 2 or not 0 < count <= shape[-1] - passed or broadcast(part, t.shape) != part:
        raise ShapeError(f"{what} {list(t.shape)} are none for pairs of {list(shape)}")


def turned(x: Array, cos: Array, sin: Array, *, interleaved: bool, passed: int = 0) -> Array:
    """Pairs of elements of the last axis of `x` behind `passed` others turned, in the precision that it has."""
    count = cos.shape[-1]
    part = x[..., passed : passed + count]
    if interleaved:
        exchanged = np.stack((-part[..., 1::2], part[..., ::2]), axis=-1).reshape(part.shape)
    else:
        exchanged = np.concatenate((-part[..., count // 2 :], part[..., : count // 2]), axis=-1)
    with np.errstate(all="ignore"):
        return np.concatenate((x[..., :passed], part * cos + exchanged * sin, x[..., passed + count :]), axis=-1)


@dataclass(frozen=True)
class HeadRows(Op):
    """Rows of heads side by side, [N, S, heads D], of which each head is normalised, scaled and turned by itself.

    `statistic` and `epsilon` are those of `Norm` over the D elements of a head, where `statistic` is not empty. Behind
    the rows stand a scale if `scaled`, a bias if `shifted`, both broadcast to [N, S, heads, D], and cosines and sines
    as `Rotary` has them, broadcast to [N, S, heads, T], if `rotary`. Each is done where it is there, in this order.
    No model has the operator; a pass makes it of what stands in front of an attention.
    """

    kind = "head_rows"
    heads: int
    statistic: str = ""
    epsilon: float = 0.0
    scaled: bool = False
    shifted: bool = False
    rotary: bool = False
    interleaved: bool = False
    passed: int = field(default=0, metadata=UNSAID)

    @property
    def operands(self) -> int:
        """How many inputs stand behind the rows."""
        return self.scaled + self.shifted + 2 * self.rotary

    def apart(self, rows: TensorType) -> tuple[int, int, int, int]:
        """The extents of the rows' images, rows, heads and elements of a head. Raises ShapeError."""
        if rows.rank != 3 or self.heads < 1 or rows.shape[2] % self.heads:
            raise ShapeError(f"{list(rows.shape)} are no rows of {self.heads} heads")
        return rows.shape[0], rows.shape[1], self.heads, rows.shape[2] // self.heads

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 1 + self.operands)
        for t in inputs:
            expect_float(t)
        shape = self.apart(inputs[0])
        own = list(inputs[1:])
        for what, there in (("scale", self.scaled), ("bias", self.shifted)):
            if there and broadcast(shape, own[0].shape) != shape:
                raise ShapeError(f"{what} {list(own[0].shape)} does not broadcast to heads {list(shape)}")
            own = own[1:] if there else own
        if self.statistic:
            Norm(self.statistic, (3,), self.epsilon).infer([TensorType(inputs[0].dtype, shape)])
        if self.rotary:
            Rotary(self.interleaved, self.passed).infer([TensorType(inputs[0].dtype, shape), *own])
        return (TensorType(inputs[0].dtype, inputs[0].shape),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        rows, *own = map(widened, inputs)
        x = rows.reshape(*rows.shape[:2], self.heads, -1)
        with np.errstate(all="ignore"):
            if self.statistic:
                (x,) = Norm(self.statistic, (3,), self.epsilon).evaluate([x])
            if self.scaled:
                x = x * own.pop(0)
            if self.shifted:
                x = x + own.pop(0)
        if self.rotary:
            x = turned(x, *own, interleaved=self.interleaved, passed=self.passed)
        return (narrowed(x.reshape(rows.shape), inputs[0].dtype),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return 10 * outputs[0].elements

    def tails(self, node: Node, at: Padded) -> Tails:
        """Each row is scaled and turned by its own numbers."""
        shape, found = at.shape(node.outputs[0]), dict[int, Tail]()
        for name in node.inputs:
            lead = 0 if name == node.inputs[0] else 4 - len(at.shape(name))
            for step in at.tails(name):
                axis = at.axis(name, step) + lead
                if axis > 1:
                    raise PaddingReaches("has heads or their elements along it")
                found[at.moved(name, step, shape, axis)] = ANYTHING
        return found
