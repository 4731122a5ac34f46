"""What transformer encoders are written with: attention, feed-forward products and normalisations of seeded weights.

Weights are drawn so that activations have the spread of a trained network's. Every head has a temper of its own, from
heads that look everywhere to heads that look at few places. What a layer adds to its input is smaller than that, so
that outputs depend on inputs and roundings do not grow from layer to layer.
"""

from __future__ import annotations

from math import sqrt

import numpy as np
from onnx import numpy_helper

from bolt_build.graph.ir import Array
from bolt_build.graph.zoo.seeded import SeededBuilder, Spread

NORM_SCALE, NORM_SHIFT = Spread(0.12, 1.0), Spread(0.06)
BIAS = Spread(0.05)
TEMPERS = (0.4, 3.0)
"""Standard deviations of the logits of a layer's calmest and of its most decided head, about."""
SELF = 0.25
"""The correlation of a head's keys with its queries: tokens look at what is like them, and so do not become alike."""
ATTENDED, ADDED = 0.4, 0.5
"""Standard deviations of what attention adds to its input, of values that are all alike, and of what the feed-forward
products add, about."""
GELU_SQUARE = 0.425
"""The mean square of GELU over a standard normal distribution."""


def tempers(heads: int) -> tuple[float, ...]:
    """What each head's queries are multiplied with: geometric steps, in an order that neighbours do not share."""
    low, high = TEMPERS
    steps = [low * (high / low) ** (rank / max(1, heads - 1)) for rank in range(heads)]
    stride = next(step for step in range(max(1, heads // 2 - 1), heads + 1) if np.gcd(step, heads) == 1)
    return tuple(steps[index * stride % heads] for index in range(heads))


class EncoderBuilder(SeededBuilder):
    """A `SeededBuilder` with the modules of encoders."""

    def constant(self, scope: str, name: str, *values: int) -> str:
        """A vector of int64 that is a node of its own."""
        return self.array(scope, name, np.array(values, np.int64))

    def array(self, scope: str, name: str, value: Array) -> str:
        """An array that is a node of its own."""
        tensor = numpy_helper.from_array(value)
        return self._add("Constant", f"{scope}/{name}", [], f"{scope}/{name}_output_0", {"value": tensor})

    def norm(self, x: str, scope: str, channels: int, epsilon: float, output: str | None = None) -> str:
        """x [..., C] normalised over its last axis; `output` names the result where it is the model's own."""
        parts = [
            self.weight(scope, part, (channels,), spread)
            for part, spread in (("weight", NORM_SCALE), ("bias", NORM_SHIFT))
        ]
        named = output or f"{scope}/LayerNormalization_output_0"
        return self._add("LayerNormalization", scope, [x, *parts], named, {"axis": -1, "epsilon": epsilon})

    def dense(
        self, x: str, scope: str, fan: tuple[int, int], deviation: float = 1.0, *,
        gains: tuple[float, ...] = (1.0,), bias: bool = True, like: str = "", share: float = 0.0,
        mirrored: bool = False,
    ) -> str:  # fmt: skip
        """x [..., in] times a weight [in, out], plus a bias. Of x with a mean square of 1, products with standard
        deviation `deviation` come out."""
        spread = Spread(deviation / sqrt(fan[0]), gains=gains, like=like, share=share, mirrored=mirrored)
        y = self.node("MatMul", scope, [x, self.weight(scope, "weight", fan, spread)])
        return self.node("Add", scope, [self.weight(scope, "bias", (fan[1],), BIAS), y]) if bias else y

    def classifier(self, x: str, scope: str, fan: tuple[int, int], output: str, *, bias: bool = True) -> str:
        """x [N, in] times a weight [out, in], plus a bias: the model's own result `output`."""
        weight = self.weight(scope, "weight", (fan[1], fan[0]), Spread(2.0 / sqrt(fan[0])))
        inputs = [x, weight, self.weight(scope, "bias", (fan[1],), BIAS)] if bias else [x, weight]
        return self._add("Gemm", scope, inputs, output, {"transB": 1})

    def gelu(self, x: str, scope: str) -> str:
        """x (1 + erf(x / sqrt(2))) / 2, spelled out as exporters do."""
        y = self.node("Div", scope, [x, self.scalar(scope, "Constant", sqrt(2.0))])
        y = self.node("Add", scope, [self.node("Erf", scope, [y]), self.scalar(scope, "Constant_1", 1.0)])
        return self.node("Mul", f"{scope}/1", [self.node("Mul", scope, [x, y]), self.scalar(scope, "Constant_2", 0.5)])

    def quick_gelu(self, x: str, scope: str) -> str:
        """x times the sigmoid of 1.702 x."""
        y = self.node("Mul", scope, [x, self.scalar(scope, "Constant", 1.702)])
        return self.node("Mul", f"{scope}/1", [x, self.node("Sigmoid", scope, [y])])

    def heads(self, x: str, scope: str, heads: int, width: int, order: tuple[int, ...] = (0, 2, 1, 3)) -> str:
        """x [N, S, heads * width] as [N, heads, S, width], or in another order of these axes."""
        shape = self.constant(scope, "Constant", 0, 0, heads, width)
        return self.node("Transpose", scope, [self.node("Reshape", scope, [x, shape])], perm=list(order))

    def joined(self, x: str, scope: str, hidden: int) -> str:
        """x [N, heads, S, width] as [N, S, heads * width]."""
        x = self.node("Transpose", f"{scope}/joined", [x], perm=[0, 2, 1, 3])
        return self.node("Reshape", f"{scope}/joined", [x, self.constant(f"{scope}/joined", "Constant", 0, 0, hidden)])

    def attention(
        self, x: str, scope: str, names: tuple[str, str, str], hidden: int, heads: int, *, key_bias: bool = True,
        scale: str = "logits", bias: str | None = None,
    ) -> str:  # fmt: skip
        """Heads of x [N, S, hidden], which attend to x itself; without the product behind them.

        `names` are the modules of queries, keys and values. `scale` says what the inverse root of a head's width is
        multiplied with: "logits", "queries", or, as its own root, "both" queries and keys. `bias` is added to scaled
        logits [N, heads, S, S].
        """
        width, modules = hidden // heads, [f"{scope}/{name}" for name in names]
        query = self.dense(x, modules[0], (hidden, hidden), gains=tempers(heads))
        like = f"{modules[0][1:].replace('/', '.')}.weight"
        key = self.dense(x, modules[1], (hidden, hidden), bias=key_bias, like=like, share=SELF)
        value = self.dense(x, modules[2], (hidden, hidden))
        if scale == "queries":
            query = self.node("Mul", modules[0], [query, self.scalar(modules[0], "Scale", width**-0.5)])
        q, v = self.heads(query, modules[0], heads, width), self.heads(value, modules[2], heads, width)
        k = self.heads(key, modules[1], heads, width, (0, 2, 3, 1))
        if scale == "both":
            q = self.node("Mul", modules[0], [q, self.scalar(modules[0], "Scale", width**-0.25)])
            k = self.node("Mul", modules[1], [k, self.scalar(modules[1], "Scale", width**-0.25)])
        logits = self.node("MatMul", scope, [q, k])
        if scale == "logits":
            logits = self.node("Div", scope, [logits, self.scalar(scope, "Constant", sqrt(width))])
        if bias is not None:
            logits = self.node("Add", scope, [logits, bias])
        weights = self.node("Softmax", scope, [logits], axis=-1)
        return self.joined(self.node("MatMul", f"{scope}/values", [weights, v]), scope, hidden)

    def attended(self, x: str, scope: str, hidden: int) -> str:
        """The product behind attention's heads."""
        return self.dense(x, scope, (hidden, hidden), ATTENDED)

    def feed_forward(self, x: str, scopes: tuple[str, str, str], fan: tuple[int, int], *, quick: bool = False) -> str:
        """Two products with GELU between them; `fan`: channels outside and between, `scopes`: the modules in order."""
        up, activation, down = scopes
        y = self.dense(x, up, fan)
        y = self.quick_gelu(y, activation) if quick else self.gelu(y, activation)
        return self.dense(y, down, (fan[1], fan[0]), ADDED / sqrt(GELU_SQUARE), mirrored=True)
