"""Networks of gated blocks, drawn: squeeze and excitation, ECA, CBAM, gates of positions and of a block's own, scales
of NFNets, ReZero and ConvNeXt; activations, factors of channels and scales are large, small or nearly 0.

They are ONNX models: what is asked of them is whether verification takes an engine in half precision for right.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TypeVar

import numpy as np
from alarm_networks import Net
from onnx import numpy_helper

from bolt_build.graph.ir import Array

T = TypeVar("T")

SCALES = (2.0, 0.2, 0.9622505, -0.3, 30.0, 300.0, 1e-2, 1e-4, 1e-5, 1e-6)
_ACTIVATIONS = ("Relu", "silu", "HardSwish", "gelu", "LeakyRelu", "Tanh", "")
_GATES = ("squeezed", "squeezed", "eca", "eca", "product", "mean", "cbam", "position", "own", "constant", "both")


class GatedNet:
    """A network in the making. What adds nodes returns the name of what they make; `shapes` has its extents."""

    def __init__(self, seed: int) -> None:
        self._random, self._numbers = Random(seed), np.random.RandomState(seed)
        shape = self._choose((2, 16, 9, 9), (1, 24, 7, 7), (3, 8, 12, 10), (2, 40, 8, 8), (2, 3, 14, 14))
        self._net, self.shapes = Net(list(shape)), {"x": shape}

    def saved(self, path: Path) -> Path:
        """The network of up to three blocks, as a file."""
        y = "x"
        if self._chance(0.5):
            size = self._choose(1.0, 30.0, 300.0, 1e-2, 1e-4)
            y = self._activated(self._convolved(y, self._choose(16, 32, 64), 3, 1, size))
        for _ in range(self._random.randint(1, 3)):
            y = self._block(y)
        return self._net.saved(path, y, list(self.shapes[y]))

    # --- parts --------------------------------------------------------------------------------------------------------

    def _block(self, x: str) -> str:
        y = x
        for _ in range(self._random.randint(1, 2)):
            y = self._scaled(y) if self._chance(0.25) else y
            y = self._activated(y) if self._chance(0.3) else y
            filters, kernel = self._choose(8, 16, 24, 33, 48, 96), self._choose(1, 1, 3)
            groups = self._choose(1, 1, 1, self.shapes[y][1])
            y = self._convolved(y, filters if groups == 1 else groups * self._choose(1, 2), kernel, groups)
            y = self._normed(y) if self._chance(0.3) else y
            y = self._activated(y) if self._chance(0.5) else y
        y = self._gated(y) if self._chance(0.9) else y
        for _ in range(self._choose(0, 1, 1, 2)):
            y = self._scaled(y)
        if self._chance(0.5):
            own = x if self.shapes[x] == self.shapes[y] else self._convolved(x, self.shapes[y][1], 1, 1)
            y = self._add("Add", self.shapes[y], own, y)
        return self._activated(y) if self._chance(0.4) else y

    def _convolved(self, x: str, filters: int, kernel: int, groups: int, size: float = 1.0) -> str:
        images, channels, *pixels = self.shapes[x]
        each = channels // groups * kernel ** len(pixels)
        weight = self._drawn(filters, channels // groups, *[kernel] * len(pixels), size=size * each**-0.5)
        if self._chance(0.4):
            weight *= self._factors(filters).reshape(-1, *[1] * (1 + len(pixels)))
        inputs = [x, self._constant(weight)]
        if self._chance(0.6):
            inputs.append(self._constant(self._drawn(filters, size=self._choose(0.1, 1e-3, 1.0, 1e-6))))
        window = {"kernel_shape": [kernel] * len(pixels), "pads": [kernel // 2] * 2 * len(pixels)}
        return self._add("Conv", (images, filters, *pixels), *inputs, group=groups, **window)

    def _factors(self, channels: int) -> Array:
        """A factor for each channel: all small, some of them nearly 0, or spread over magnitudes."""
        found = np.ones(channels)
        match self._choose("few", "all", "spread", "none"):
            case "few":
                found[:: self._choose(7, 10, 19)] = 10.0 ** self._numbers.uniform(-8, -2)
            case "all":
                found *= 10.0 ** self._numbers.uniform(-5, 0.5)
            case "spread":
                found = 10.0 ** self._numbers.uniform(-4, 0, channels)
            case _:
                found[:: self._choose(7, 10)] = 0.0
        return found

    def _normed(self, x: str) -> str:
        channels = self.shapes[x][1]
        scale, shift = self._factors(channels), self._drawn(channels, size=self._choose(0.1, 1e-4, 1.0))
        mean, variance = self._drawn(channels, size=0.1), 10.0 ** self._numbers.uniform(-1, 1, channels)
        names = map(self._constant, (scale, shift, mean, variance))
        return self._add("BatchNormalization", self.shapes[x], x, *names)

    def _scaled(self, x: str) -> str:
        value, channels = self._choose(*SCALES), self.shapes[x][1]
        match self._choose("one", "one", "channels", "divided", "shifted"):
            case "channels":
                factors = value * (1 + self._drawn(channels, 1, 1, size=0.3))
                return self._add("Mul", self.shapes[x], x, self._constant(factors))
            case "divided":
                return self._add("Div", self.shapes[x], x, self._constant(1 / value))
            case "shifted":
                made = self._add("Mul", self.shapes[x], x, self._constant(self._factors(channels).reshape(-1, 1, 1)))
                return self._add("Add", self.shapes[x], made, self._constant(self._drawn(channels, 1, 1)))
        return self._add("Mul", self.shapes[x], x, self._constant(value))

    def _activated(self, x: str, function: str | None = None) -> str:
        shape = self.shapes[x]
        match self._choose(*_ACTIVATIONS) if function is None else function:
            case "silu":
                return self._add("Mul", shape, x, self._add("Sigmoid", shape, x))
            case "gelu":
                curve = self._add("Erf", shape, self._add("Div", shape, x, self._constant(2**0.5)))
                gate = self._add("Add", shape, curve, self._constant(1.0))
                return self._add("Mul", shape, self._add("Mul", shape, x, gate), self._constant(0.5))
            case "":
                return x
            case operator:
                return self._add(operator, shape, x)

    # --- gates --------------------------------------------------------------------------------------------------------

    def _gated(self, x: str) -> str:
        shape, channels = self.shapes[x], self.shapes[x][1]
        match self._choose(*_GATES):
            case "squeezed":
                few = self._activated(self._convolved(self._mean(x), max(1, channels // 4), 1, 1), "Relu")
                return self._times(x, self._squashed(self._convolved(few, channels, 1, 1)))
            case "eca":
                line = self._reshaped(self._mean(x), (shape[0], 1, channels))
                gate = self._squashed(self._convolved(line, 1, self._choose(3, 5), 1))
                return self._times(x, self._reshaped(gate, (*shape[:2], 1, 1)))
            case "product":
                return self._times(x, self._squashed(self._convolved(self._mean(x), channels, 1, 1)))
            case "mean":
                return self._times(x, self._squashed(self._mean(x)))
            case "cbam":
                largest = self._add("GlobalMaxPool", (*shape[:2], 1, 1), x)
                parts = [self._convolved(each, channels, 1, 1) for each in (self._mean(x), largest)]
                x = self._times(x, self._squashed(self._add("Add", (*shape[:2], 1, 1), *parts)))
                flat = (shape[0], 1, *shape[2:])
                ends = [self._add(each, flat, x, axes=[1], keepdims=1) for each in ("ReduceMean", "ReduceMax")]
                both = self._add("Concat", (shape[0], 2, *shape[2:]), *ends, axis=1)
                return self._times(x, self._squashed(self._convolved(both, 1, 3, 1)))
            case "position":
                return self._times(x, self._squashed(self._convolved(x, 1, 1, 1)))
            case "own":
                return self._times(x, self._squashed(self._convolved(x, channels, 3, self._choose(1, channels))))
            case "both":
                gates = [self._convolved(self._mean(x), channels, 1, 1), self._convolved(x, 1, 1, 1)]
                return self._add("Add", shape, *[self._times(x, self._squashed(each)) for each in gates])
        return self._times(x, self._constant(1 / (1 + np.exp(self._drawn(1, channels, 1, 1)))))

    def _mean(self, x: str) -> str:
        if self._chance(0.5):
            return self._add("GlobalAveragePool", (*self.shapes[x][:2], 1, 1), x)
        return self._add("ReduceMean", (*self.shapes[x][:2], 1, 1), x, axes=[2, 3], keepdims=1)

    def _squashed(self, x: str) -> str:
        shape = self.shapes[x]
        match self._choose("sigmoid", "sigmoid", "hard", "above", "twice", "none"):
            case "hard":
                return self._add("HardSigmoid", shape, x, alpha=1 / 6)
            case "above":
                return self._add("Add", shape, self._add("Tanh", shape, x), self._constant(1.0))
            case "twice":
                return self._add("Mul", shape, self._add("Sigmoid", shape, x), self._constant(2.0))
            case "none":
                return x
        return self._add("Sigmoid", shape, x)

    def _times(self, x: str, gate: str) -> str:
        return self._add("Mul", self.shapes[x], *((x, gate) if self._chance(0.5) else (gate, x)))

    def _reshaped(self, x: str, shape: tuple[int, ...]) -> str:
        name = f"shape{len(self._net.constants)}"
        self._net.constants.append(numpy_helper.from_array(np.array(shape), name))
        return self._add("Reshape", shape, x, name)

    # --- what they are made of ----------------------------------------------------------------------------------------

    def _add(self, op: str, shape: tuple[int, ...], *inputs: str, **attributes: int | float | list[int]) -> str:
        name = self._net.node(op, f"n{len(self._net.nodes)}", *inputs, **attributes)
        self.shapes[name] = shape
        return name

    def _constant(self, array: Array | float) -> str:
        return self._net.constant(f"c{len(self._net.constants)}", np.asarray(array))

    def _drawn(self, *shape: int, size: float = 1.0) -> Array:
        return np.asarray(self._numbers.standard_normal(shape) * size)

    def _choose(self, *options: T) -> T:
        return self._random.choice(options)

    def _chance(self, part: float) -> bool:
        return self._random.random() < part
