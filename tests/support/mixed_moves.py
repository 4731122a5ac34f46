"""What moves elements in a mixed graph: reshapes, transposes, slices, joins, gathers, paddings, resizes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from mixed_graphs import Dropped, Growing, Value

Draw = Callable[[Growing, Value], object]


def _divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, min(number, 64) + 1) if number % divisor == 0]


def _axis(g: Growing, x: Value) -> tuple[int, int]:
    """An axis, and the same as a model may name it."""
    axis = g.integer(0, x.rank - 1)
    return axis, axis - x.rank if g.chance(0.3) else axis


def transpose(g: Growing, x: Value) -> None:
    g.node("Transpose", x, exact=True, perm=g.random.sample(range(x.rank), x.rank))


def reshape(g: Growing, x: Value) -> None:
    left, extents = x.array.size, []
    for _ in range(g.integer(0, 3)):
        extents.append(g.choose(*_divisors(left)))
        left //= extents[-1]
    extents.append(left)
    g.random.shuffle(extents)
    if g.chance(0.3):
        extents[g.integer(0, len(extents) - 1)] = -1
    g.node("Reshape", x, g.integers(*extents), exact=True)


def reshape_by_shape(g: Growing, x: Value) -> None:
    """To an extent of the tensor's own, taken at run time."""
    first = g.node("Gather", g.node("Shape", x, exact=True), g.integers(0), exact=True, axis=0)
    g.node("Reshape", x, g.node("Concat", first, g.integers(-1), exact=True, axis=0), exact=True)


def flatten(g: Growing, x: Value) -> None:
    g.node("Flatten", x, exact=True, axis=g.integer(0, x.rank - 1))


def squeeze(g: Growing, x: Value) -> None:
    ones = [axis for axis, extent in enumerate(x.shape) if extent == 1]
    if not ones:
        raise Dropped
    g.node("Squeeze", x, g.integers(*g.random.sample(ones, g.integer(1, len(ones)))), exact=True)


def unsqueeze(g: Growing, x: Value) -> None:
    if x.rank > 4:
        raise Dropped
    g.node("Unsqueeze", x, g.integers(g.integer(-x.rank - 1, x.rank)), exact=True)


def part(g: Growing, x: Value) -> None:
    axis, named = _axis(g, x)
    extent, step = x.shape[axis], g.choose(1, 1, 1, 2, 3, -1, -2)
    begin = g.integer(0, extent - 1)
    end = g.integer(begin + 1, extent + 2)
    if step < 0:
        begin, end = g.choose((-1, -(1 << 40)), (extent - 1, 0 if extent > 1 else -(1 << 40)))
    g.node("Slice", x, *(g.integers(number) for number in (begin, end, named, step)), exact=True)


def join(g: Growing, x: Value) -> None:
    axis, named = _axis(g, x)

    def rest(shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape[:axis] + shape[axis + 1 :]

    fitting = [
        value for value in g.values
        if value.array.dtype == x.array.dtype and value.rank == x.rank and rest(value.shape) == rest(x.shape)
    ]  # fmt: skip
    parts = [*(g.choose(*fitting) for _ in range(g.integer(1, 2))), x]
    if g.chance(0.2):
        parts.append(g.constant(np.ones((*x.shape[:axis], 2, *x.shape[axis + 1 :]), x.array.dtype)))
    g.node("Concat", *parts, exact=True, axis=named)


def split(g: Growing, x: Value) -> None:
    """Into parts, which may come together again in another order."""
    axis, named = _axis(g, x)
    extent = x.shape[axis]
    if extent < 2:
        raise Dropped
    count = g.integer(2, min(extent, 4))
    cuts = [0, *sorted(g.random.sample(range(1, extent), count - 1)), extent]
    parts = g.split("Split", count, x, g.integers(*np.diff(cuts)), exact=True, axis=named)
    if g.chance(0.4):
        g.node("Concat", g.choose(*parts), *g.random.sample(parts, len(parts)), exact=True, axis=axis)


def pad(g: Growing, x: Value) -> None:
    modes = ["constant", "constant", "reflect", "edge", *(["wrap"] if g.opset >= 19 else [])]
    mode = g.choose(*modes)

    def width(extent: int) -> int:
        if mode == "reflect":
            return g.integer(0, min(2, extent - 1))
        return g.integer(-1 if mode == "constant" and extent > 2 else 0, min(2, extent))

    if not x.is_float:
        raise Dropped
    value = [g.constant(x.array.dtype.type(g.choose(0, 1)))] if mode == "constant" and g.chance(0.7) else []
    g.node("Pad", x, g.integers(*map(width, x.shape * 2)), *value, exact=True, mode=mode)


def gather(g: Growing, x: Value) -> None:
    axis, named = _axis(g, x)
    extent = x.shape[axis]
    shape = g.choose((), (1,), (3,), (2, 2))
    places = g.draws.randint(-extent, extent, size=shape).astype(g.choose(np.int64, np.int32))
    g.node("Gather", x, g.constant(places), exact=True, axis=named)


def gather_elements(g: Growing, x: Value) -> None:
    axis, named = _axis(g, x)
    shape = (*x.shape[:axis], g.integer(1, 4), *x.shape[axis + 1 :])
    places = g.draws.randint(-x.shape[axis], x.shape[axis], size=shape).astype(np.int64)
    g.node("GatherElements", x, g.constant(places), exact=True, axis=named)


def gather_points(g: Growing, x: Value) -> None:
    axes = g.integer(1, x.rank)
    places = np.stack([g.draws.randint(0, extent, size=3) for extent in x.shape[:axes]], -1).astype(np.int64)
    g.node("GatherND", x, g.constant(places), exact=True)


def scatter_points(g: Growing, x: Value) -> None:
    axes = g.integer(1, x.rank)
    count = math.prod(x.shape[:axes])
    points = g.draws.choice(count, size=min(count, 2), replace=False)
    places = np.stack(np.unravel_index(points, x.shape[:axes]), -1).astype(np.int64)
    rows = np.ones((len(points), *x.shape[axes:]), x.array.dtype)
    g.node("ScatterND", x, g.constant(places), g.constant(rows), exact=True)


def scatter_elements(g: Growing, x: Value) -> None:
    axis, named = _axis(g, x)
    shape = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    places = g.draws.randint(0, x.shape[axis], size=shape).astype(np.int64)
    g.node("ScatterElements", x, g.constant(places), g.constant(np.ones(shape, x.array.dtype)), exact=True, axis=named)


def repeat(g: Growing, x: Value) -> None:
    g.node("Tile", x, g.integers(*(g.choose(1, 1, 2, 3) for _ in x.shape)), exact=True)


def expand(g: Growing, x: Value) -> None:
    extents = [extent if extent != 1 else g.choose(1, 2, 4) for extent in x.shape]
    g.node("Expand", x, g.integers(*([2] if g.chance(0.3) else []), *extents), exact=True)


def blocks(g: Growing, x: Value) -> None:
    op = g.choose("DepthToSpace", "SpaceToDepth")
    settings = {"mode": g.choose("DCR", "CRD")} if op == "DepthToSpace" else {}
    g.node(op, g.floats(4), exact=True, blocksize=2, **settings)


def triangle(g: Growing, x: Value) -> None:
    diagonal = g.constant(np.asarray(g.integer(-1, 2)))
    g.node("Trilu", x, diagonal, exact=True, upper=g.choose(0, 1))


def resize(g: Growing, x: Value) -> None:
    """Factors and extents that put no result where rounding decides which element is nearest."""
    x = g.floats(3, 4, 4)
    spatial = x.rank - 2
    mode = g.choose("nearest", "linear", "linear", *(["cubic"] if spatial == 2 else []))
    settings: dict[str, Any] = {"mode": mode}
    ways = ["half_pixel", "asymmetric"] if mode == "nearest" else ["half_pixel", "asymmetric", "pytorch_half_pixel"]
    settings["coordinate_transformation_mode"] = g.choose(*ways)
    if mode == "nearest":
        settings["nearest_mode"] = g.choose("floor", "round_prefer_floor", "ceil", "round_prefer_ceil")
    if mode == "nearest" or g.chance(0.5):
        factors = [1.0, 1.0, *(g.choose(0.5, 1.0, 2.0, 2.0) for _ in range(spatial))]
        asked = "", g.constant(np.asarray(factors, np.float32))
    else:
        asked = "", "", g.integers(*x.shape[:2], *(g.integer(1, 9) for _ in range(spatial)))
    g.node("Resize", x, *asked, exact=mode == "nearest", **settings)


def shuffle(g: Growing, x: Value) -> None:
    """Of channels, as ShuffleNet does it."""
    x = g.floats(3, 4)
    groups = _divisors(x.shape[1])[1:-1]
    if not groups:
        raise Dropped
    count = g.choose(*groups)
    apart = g.integers(x.shape[0], count, x.shape[1] // count, *x.shape[2:])
    made = g.node("Reshape", x, apart, exact=True)
    made = g.node("Transpose", made, exact=True, perm=[0, 2, 1, *range(3, made.rank)])
    g.node("Reshape", made, g.integers(*x.shape), exact=True)


def one_hot(g: Growing, x: Value) -> None:
    x = g.one_of(value for value in g.values if value.array.dtype == np.int64 and value.rank <= 3)
    values = g.constant(np.asarray([0, 1], np.float32))
    g.node("OneHot", x, g.integers(5), values, exact=True, axis=g.choose(-1, 0))


MOVES: tuple[Draw, ...] = (
    *[transpose] * 2, *[reshape] * 2, reshape_by_shape, flatten, squeeze, unsqueeze, *[part] * 2, *[join] * 2,
    *[split] * 2, pad, gather, gather_elements, gather_points, scatter_points, scatter_elements, repeat, expand,
    blocks, triangle, resize, shuffle, one_hot,
)  # fmt: skip
"""As often as each is drawn."""


def move(g: Growing) -> None:
    x = g.one_of(value for value in g.values if value.rank)
    g.choose(*MOVES)(g, x)
