"""Images made larger and smaller: along one axis after the other, by weights that are known at import."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor

import numpy as np

from bolt_build.graph.arrays import narrowed, widened
from bolt_build.graph.example import IMAGE, Data, Example, Integers, Weights
from bolt_build.graph.importing import Importer, NodeImport, Refusal
from bolt_build.graph.ir import Array, Node, Op, ShapeError, TensorType
from bolt_build.graph.ops.elementwise.logic import Where
from bolt_build.graph.ops.moves.gather import Gather
from bolt_build.graph.ops.moves.shape import Identity
from bolt_build.graph.ops.operands import expect_axis, expect_count, expect_float, expect_indices
from bolt_build.graph.tail import Padded, Tails
from bolt_build.graph.tail_rules import image_by_image


@dataclass(frozen=True)
class Interpolate(Op):
    """Of inputs (data, places [results, taps] of i64, weights [results, taps]): result i along `axis` is the sum of the
    data at places[i] times weights[i]."""

    kind = "interpolate"
    axis: int

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 3)
        data, places, weights = inputs
        expect_axis(self.axis, data)
        expect_float(data)
        expect_float(weights)
        expect_indices(places)
        if places.rank != 2 or places.shape != weights.shape or 0 in places.shape:
            raise ShapeError(
                f"places {list(places.shape)} and weights {list(weights.shape)} must be tables of one shape"
            )
        return (TensorType(data.dtype, (*data.shape[: self.axis], places.shape[0], *data.shape[self.axis + 1 :])),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        data, places, weights = inputs
        taken = np.take(widened(data), np.clip(places, 0, data.shape[self.axis] - 1), axis=self.axis)
        shape = (*places.shape, *(1,) * (data.ndim - self.axis - 1))
        return (narrowed((taken * widened(weights).reshape(shape)).sum(self.axis + 1), data.dtype),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return 2 * outputs[0].elements * inputs[1].shape[1]

    def ascending(self, inputs: Sequence[TensorType]) -> Mapping[int, tuple[int, int]]:
        """Places go from edge to edge. On the whole they ascend, though neighbours of several results overlap."""
        return {1: (0, inputs[0].shape[self.axis] - 1)}

    def tails(self, node: Node, at: Padded) -> Tails:
        return image_by_image(node, at)


@dataclass(frozen=True)
class _Way:
    """How an axis is resized: ONNX's attributes."""

    mode: str
    coordinates: str
    nearest: str
    cubic: float
    exclude: bool
    antialias: bool
    counted: bool
    """Whether aligned corners take the number of results also where images become smaller."""


_COORDINATES = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize",
    "tf_half_pixel_for_nn",
)  # fmt: skip
_NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


_CLOSE = 1e-6
"""Scales are stored in single precision."""


def _origins(way: _Way, extent: int, made: int, scale: float, roi: tuple[float, float]) -> Array:
    """Where each result lies in the input, in single precision as onnxruntime computes it: the nearest place of a
    result is then the same one. What a scale makes of an extent is no whole number, and counts as it is."""
    at, one, half = np.arange(made, dtype=np.float32), np.float32(1), np.float32(0.5)
    size, factor = np.float32(extent), np.float32(scale)
    width = np.float32(made if abs(scale * extent - made) < _CLOSE else scale * extent)
    match way.coordinates:
        case "asymmetric":
            return at / factor
        case "align_corners":
            if way.counted or scale > 1:
                # The text of ONNX says the number of results, as onnxruntime and PyTorch do. Its cases of smaller
                # images take what the scale makes, before it is cut off.
                width = np.float32(made)
            return at * (size - one) / (width - one) if width != 1 else at * np.float32(0)
        case "tf_half_pixel_for_nn":  # which ONNX had up to opset 12, and files of any opset have
            return (at + half) / factor
        case "pytorch_half_pixel" if made == 1:
            return at * np.float32(0)
        case "half_pixel_symmetric":
            offset = size * (width - np.float32(made)) / (2 * width)
            return offset + (at + half) / factor - half
        case "tf_crop_and_resize":
            start, end = np.float32(roi[0]), np.float32(roi[1])
            if made == 1:
                return at + half * (start + end) * (size - one)
            # As many steps as results, whatever the scale makes of the extent: as TensorFlow and onnxruntime count.
            return start * (size - one) + at * (end - start) * (size - one) / np.float32(made - 1)
    return (at + half) / factor - half


def _cubic(x: Array, a: float) -> Array:
    x = np.abs(x)
    near, far = ((a + 2) * x - (a + 3)) * x * x + 1, ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


def _table(way: _Way, extent: int, origins: Array, scale: float) -> tuple[Array, Array]:
    """Places and weights of the neighbours of each origin."""
    shrink = min(scale, 1.0) if way.antialias else 1.0
    half = {"nearest": 1, "linear": 1, "cubic": 2}[way.mode]
    reach = 1 - (floor(-half / shrink) + 1) if shrink < 1.0 else half
    before = np.ceil(origins) - 1  # the neighbour in front, also of an origin that is a place
    steps = np.arange(1 - reach, reach + 1)
    ratio = (origins - before)[:, None]
    if way.mode == "nearest":
        right = {"floor": ratio == 1, "ceil": ratio > 0, "round_prefer_floor": ratio > 0.5}
        chosen = right.get(way.nearest, ratio >= 0.5)
        weights = np.concatenate([~chosen, chosen], 1).astype(np.float64)
    elif way.mode == "linear":
        weights = np.clip(1 - np.abs((steps - ratio) * shrink), 0, 1)
    else:
        weights = _cubic((steps - ratio) * shrink, way.cubic)
    places = before[:, None].astype(np.int64) + steps
    if way.exclude:
        weights = np.where((places < 0) | (places >= extent), 0.0, weights)
    if way.exclude or shrink < 1.0:
        weights = weights / weights.sum(1, keepdims=True)
    return np.clip(places, 0, extent - 1), weights


def _is_old(node: NodeImport) -> bool:
    """True of Resize as it began, which is Upsample as it ended: scales are input 1, coordinates asymmetric."""
    return node.node.op_type == "Upsample" or node.version == 10


def _way(node: NodeImport) -> _Way:
    v10 = _is_old(node)
    way = _Way(
        node.text("mode", "nearest"),
        "asymmetric" if v10 else node.text("coordinate_transformation_mode", "half_pixel"),
        "floor" if v10 else node.text("nearest_mode", "round_prefer_floor"),
        node.real("cubic_coeff_a", -0.75),
        bool(node.integer("exclude_outside", 0)),
        bool(node.integer("antialias", 0)),
        node.version < 19,
    )
    known = ((way.mode, ("nearest", "linear", "cubic")), (way.coordinates, _COORDINATES), (way.nearest, _NEAREST))
    for given, names in known:
        if given not in names:
            raise Refusal("unsupported-attribute", f"'{given}' is none of {', '.join(names)}")
    return way


def _sizes(node: NodeImport, axes: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """The extent of each of the axes, and its scale."""
    shape = node.type(0).shape
    extents = [shape[axis] for axis in axes]
    scales_at = 1 if _is_old(node) else 2
    if node.has(3) and node.type(3).elements:
        sizes = list(node.static_ints(3, "the list of sizes"))
        scales = [made / extent for made, extent in zip(sizes, extents, strict=True)]
        policy = node.text("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            both = max(scales) if policy == "not_smaller" else min(scales)
            sizes = [floor(both * extent + 0.5) for extent in extents]
            scales = [both] * len(sizes)
        return tuple(sizes), tuple(scales)
    if node.given("scales"):
        given = list(node.reals("scales"))
        if len(given) != len(axes):
            raise ShapeError(f"{len(given)} scales are not one an axis of {list(shape)}")
    else:
        given = [float(scale) for scale in node.static(scales_at, "the list of scales").reshape(-1)]
    node.text("keep_aspect_ratio_policy", "stretch")
    # In single precision, as scales are: 0.7 is stored as less, and makes 7 of 10.
    made = (np.float32(scale) * np.float32(extent) for scale, extent in zip(given, extents, strict=True))
    return tuple(floor(each) for each in made), tuple(given)


def import_resize(node: NodeImport) -> None:
    shape, way = node.type(0).shape, _way(node)
    axes = node.axes(node.integers("axes", range(len(shape))), len(shape))
    sizes, scales = _sizes(node, axes)
    if min(sizes, default=1) < 1:
        raise ShapeError(f"the sizes {list(sizes)} are not all positive")
    filling = node.real("extrapolation_value", 0.0)
    crops = way.coordinates == "tf_crop_and_resize"
    roi = [float(x) for x in node.static(1, "the region").reshape(-1)] if crops else []
    name, outside = node.input(0), np.zeros((1,) * len(shape), np.bool_)
    for i, (axis, made, scale) in enumerate(zip(axes, sizes, scales, strict=True)):
        part = (roi[i], roi[i + len(axes)]) if crops else (0.0, 1.0)
        origins = _origins(way, shape[axis], made, scale, part)
        if crops:
            beyond = (origins < 0) | (origins > shape[axis] - 1)
            outside = outside | beyond.reshape(-1, *(1,) * (len(shape) - axis - 1))
        places, weights = _table(way, shape[axis], origins, scale)
        if made == shape[axis] and np.array_equal((places * weights).sum(1), np.arange(made)) and (weights <= 1).all():
            continue
        if (np.sort(weights, 1)[:, :-1] == 0).all() and (weights.max(1) == 1).all():
            only = np.take_along_axis(places, weights.argmax(1)[:, None], 1)[:, 0]
            name = node.emit(Gather(axis), [name, node.helper(only, "places")])
            continue
        table = node.helper(places, "places"), node.helper(weights.astype(np.float32), "weights")
        name = node.emit(Interpolate(axis), [name, *table])
    if outside.any():
        mask = node.helper(np.ascontiguousarray(outside), "outside")
        node.emit(Where(), [mask, node.scalar_like(filling, name), name], 0)
        return
    node.emit(Identity(), [name], 0)


IMPORTERS = (
    Importer(
        "Resize",
        (10, 11, 13, 18, 19),
        import_resize,
        example=Example((Data(IMAGE), Weights((0,)), Weights((0,)), Integers((1, 4, 12, 12)))),
        note="constant sizes, scales and regions",
    ),
    Importer(
        "Upsample", (7, 9, 10), import_resize, example=Example((Data(IMAGE), Weights((4,)))), note="constant scales"
    ),
)
