"""What `drawn_graphs` draws of quantised networks: numbers on grids in front of products, moves and functions."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
from drawn_graphs import Dropped, Growing
from drawn_layers import activated, cut, paired

from bolt_build.dtypes import DType
from bolt_build.graph.ir import Constant, Stored
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.graph.ops.moves.shape import Concat, Reshape, Slice, Transpose
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.graph.ops.quantised.quantize import Dequantize, Quantize

STEP = 0.05
"""Of the grids that are drawn: a sum on the edge of two numbers may be either."""


def on_a_grid(g: Growing, x: str, scale: str = "", zero: str = "") -> str:
    """The tensor as integers and back, which something may lie between that moves them."""
    kind = g.choose(DType.U8, DType.I8)
    unsigned = g.values[zero].type.dtype is DType.U8 if zero else kind is DType.U8
    scale = scale or g.scalar(g.choose(STEP, 0.04))
    zero = zero or g.constant(np.uint8(g.choose(128, 0, 3)) if unsigned else np.int8(g.choose(0, -5)))
    q = g.add(Quantize(DType.U8 if unsigned else DType.I8), x, scale, zero)
    if g.chance(3):
        q = _moved(g, q)
    return g.add(Dequantize(DType.F32), q, scale, zero)


def _moved(g: Growing, x: str) -> str:
    shape = g.shape(x)
    match g.choose("reshape", "transpose", "slice", "pool"):
        case "reshape" if len(shape) > 1:
            return g.add(Reshape((prod(shape[:2]), *shape[2:])), x)
        case "transpose":
            return g.add(Transpose(g.order(len(shape))), x)
        case "slice" if shape and shape[-1] > 1:
            count = (*shape[:-1], shape[-1] - 1)
            return g.add(Slice((*(0,) * (len(shape) - 1), 1), count, (1,) * len(shape)), x)
        case "pool" if len(shape) == 4 and min(shape[2:]) > 1:
            return g.add(Pool("max", (2, 2), (1, 1), (0, 0), (0, 0), (1, 1)), x)
    return x


def _factors(g: Growing, shape: tuple[int, ...], channel: int) -> str:
    """Weights that are integers, with one scale or one a channel."""
    g.made += 1
    low = g.choose(-127, 1)
    q = np.random.default_rng([g.made, *shape]).integers(low, 127, shape).astype(np.int8)
    each = tuple(extent if axis == channel else 1 for axis, extent in enumerate(shape))
    scale = g.numbers(*(each if g.choose(True, False) else ()), low=0.5) * np.float32(0.01)
    name = g.constant((q * scale).astype(np.float32))
    stored = Stored(q, np.asarray(scale), np.zeros(scale.shape, np.int8))
    g.values[name] = replace(g.values[name], constant=Constant(g.arrays[name], stored))
    return name


def quantised_product(g: Growing) -> str:
    """A convolution or a product of grids, with what networks have behind it."""
    x = g.tensor(4, 4, 3, 2)
    given = on_a_grid(g, x)
    if g.rank(given) == 4 and g.choose(True, False):
        channels = g.shape(given)[1]
        groups = g.choose(1, 1, channels)
        filters = groups * g.choose(4, 8, 1, 3)
        size = g.choose(1, 3)
        weights = _factors(g, (filters, channels // groups, size, size), 0)
        half = (size // 2,) * 2
        inputs = [given, weights, *([g.weights(filters)] if g.chance() else [])]
        found = g.add(Conv((1, 1), half, half, (1, 1), groups), *inputs)
    elif g.rank(given) > 1:
        columns, turned = g.choose(8, 4, 3), g.chance()
        depth = g.shape(given)[-1]
        weights = _factors(g, (columns, depth) if turned else (depth, columns), 0 if turned else 1)
        found = g.add(MatMul(transpose_b=turned), given, weights)
    else:
        raise Dropped
    for _ in range(g.which(4)):
        match g.choose("activation", "grid", "residual", "bias"):
            case "activation":
                found = activated(g, found)
            case "grid":
                found = on_a_grid(g, found)
            case "bias":
                found = paired(g, "add", found, g.weights(*g.broadcastable(g.shape(found))))
            case _:
                fits = [y for y in g.tensors(g.rank(found)) if g.shape(y) == g.shape(found)]
                found = paired(g, g.choose("add", "mul"), found, g.choose(*fits))
    return found


def quantised_steps(g: Growing) -> str:
    """Functions and moves between grids."""
    x = on_a_grid(g, g.tensor(4, 3, 2))
    for _ in range(1 + g.which(3)):
        match g.choose("move", "function", "parts", "both"):
            case "move":
                x = _moved(g, x)
            case "function":
                x = g.add(Activation(g.choose("relu", "sigmoid", "tanh", "hard_swish", "silu")), x)
            case "parts" if g.rank(x) > 1:
                parts = cut(g, x, g.choose(1, g.rank(x) - 1))
                x = g.add(Concat(g.choose(1, g.rank(x) - 1)), *[on_a_grid(g, each) for each in parts])
            case _:
                x = paired(g, "add", x, on_a_grid(g, x))
        if g.chance():
            x = on_a_grid(g, x)
    return x


INTEGERS = (quantised_product, quantised_product, quantised_steps)
