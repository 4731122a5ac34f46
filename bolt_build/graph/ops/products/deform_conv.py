"""Convolutions whose taps lie where data say: ONNX's DeformConv, as a gather of windows and a product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from bolt_build.graph.arrays import narrowed, widened
from bolt_build.graph.example import IMAGE, Data, Example, Weights
from bolt_build.graph.importing import Importer, NodeImport, Refusal
from bolt_build.graph.ir import Array, Op, ShapeError, TensorType
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.moves.shape import Reshape, Transpose
from bolt_build.graph.ops.operands import expect_count, expect_float
from bolt_build.graph.ops.products.matmul import MatMul

_Pair = tuple[int, int]
_FAR = 2.0**30


@dataclass(frozen=True)
class DeformedWindows(Op):
    """Inputs x [N,C,H,W], offsets [N,groups*kh*kw*2,oh,ow] and, where there is one, a mask [N,groups*kh*kw,oh,ow].
    Output [N,oh*ow,C*kh*kw]: the windows of a convolution, each tap moved down and right by its offsets, interpolated
    linearly between the four pixels around, of which those outside are 0, and multiplied with the mask. Each of the
    `groups` of channels has taps of its own."""

    kind = "deformed_windows"
    kernel: _Pair
    strides: _Pair
    begin: _Pair
    dilations: _Pair
    groups: int = 1

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 2, 3)
        for each in inputs:
            expect_float(each)
        x, offsets = inputs[:2]
        if x.rank != 4 or offsets.rank != 4 or self.groups < 1 or x.shape[1] % self.groups:
            raise ShapeError(f"takes offsets {list(offsets.shape)} of {self.groups} groups in no {list(x.shape)}")
        if min(*self.kernel, *self.strides, *self.dilations) < 1:
            raise ShapeError(f"a window of {list(self.kernel)} with strides {list(self.strides)} is not supported")
        taps, places = self.groups * prod(self.kernel), offsets.shape[2:]
        if offsets.shape[:2] != (x.shape[0], 2 * taps):
            raise ShapeError(f"offsets {list(offsets.shape)} must be {[x.shape[0], 2 * taps, *places]}")
        if len(inputs) == 3 and inputs[2].shape != (x.shape[0], taps, *places):
            raise ShapeError(f"the mask {list(inputs[2].shape)} must be {[x.shape[0], taps, *places]}")
        return (TensorType(x.dtype, (x.shape[0], prod(places), x.shape[1] * prod(self.kernel))),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        x, offsets = widened(inputs[0]), widened(inputs[1])
        (images, channels, *extents), places = x.shape, offsets.shape[2:]
        taps = prod(self.kernel)
        moved = offsets.reshape(images, self.groups, taps, 2, *places)
        grids = np.meshgrid(*(np.arange(extent) for extent in (*self.kernel, *places)), indexing="ij")
        weights, corners = [], []
        for axis in range(2):
            tap, place = (grid.reshape(taps, *places) for grid in (grids[axis], grids[2 + axis]))
            fixed = place * self.strides[axis] - self.begin[axis] + tap * self.dilations[axis]
            given = fixed + moved[:, :, :, axis]
            at = np.where(np.isnan(given), -_FAR, np.clip(given, -_FAR, _FAR))
            low = np.floor(at)
            corners.append([low.astype(np.int64), low.astype(np.int64) + 1])
            weights.append([1.0 - (at - low), at - low])
        own = x.reshape(images, self.groups, channels // self.groups, *extents)
        made = np.zeros((images, self.groups, channels // self.groups, taps, *places))
        batch, group = np.ogrid[:images, : self.groups]
        for down in range(2):
            for across in range(2):
                rows, columns = corners[0][down], corners[1][across]
                inside = (rows >= 0) & (rows < extents[0]) & (columns >= 0) & (columns < extents[1])
                taken = own[
                    batch[..., None, None, None], group[..., None, None, None], :,
                    np.where(inside, rows, 0), np.where(inside, columns, 0),
                ]  # fmt: skip
                weight = np.where(inside, weights[0][down] * weights[1][across], 0.0)
                made += np.moveaxis(taken, -1, 2) * weight[:, :, None]
        if len(inputs) == 3:
            made *= widened(inputs[2]).reshape(images, self.groups, 1, taps, *places)
        windows = made.reshape(images, channels * taps, prod(places))
        return (narrowed(np.ascontiguousarray(windows.transpose(0, 2, 1)), inputs[0].dtype),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return 8 * outputs[0].elements

    def workspace(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return super().workspace(inputs, outputs) + 3 * outputs[0].elements


def _pair(node: NodeImport, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
    given = node.integers(name, default)
    if len(given) != len(default):
        raise ShapeError(f"{name} {list(given)} must have {len(default)} entries")
    return given


def import_deform_conv(node: NodeImport) -> None:
    """The product of windows and weights, for each group of channels, and a bias."""
    x, w, offsets = (node.type(index) for index in range(3))
    if x.rank != 4 or w.rank != 4 or offsets.rank != 4:
        raise Refusal("unsupported-op", f"only images are convolved with offsets, not {list(x.shape)}")
    kernel = _pair(node, "kernel_shape", w.shape[2:])
    groups, own = node.integer("group", 1), node.integer("offset_group", 1)
    if kernel != w.shape[2:]:
        raise ShapeError(f"kernel_shape {list(kernel)} is not the weight's {list(w.shape[2:])}")
    if groups < 1 or w.shape[0] % groups or w.shape[1] * groups != x.shape[1]:
        raise ShapeError(f"weights {list(w.shape)} of {groups} groups do not fit {list(x.shape)}")
    strides, dilations = _pair(node, "strides", (1, 1)), _pair(node, "dilations", (1, 1))
    pads = _pair(node, "pads", (0, 0, 0, 0))
    places = tuple(
        (x.shape[2 + axis] + pads[axis] + pads[2 + axis] - dilations[axis] * (kernel[axis] - 1) - 1)
        // max(strides[axis], 1) + 1
        for axis in range(2)
    )  # fmt: skip
    if offsets.shape[2:] != places:
        raise ShapeError(f"offsets {list(offsets.shape)} must be of {list(places)} places")
    op = DeformedWindows(
        (kernel[0], kernel[1]), (strides[0], strides[1]), (pads[0], pads[1]), (dilations[0], dilations[1]), own
    )
    mask = [node.input(4)] if node.has(4) else []
    windows = node.emit(op, [node.input(0), node.input(2), *mask])
    images, many, depth = node.type_of(windows).shape
    each, filters = depth // groups, w.shape[0] // groups
    rows = node.emit(Reshape((groups, filters, each)), [node.input(1)])
    factor = node.emit(Transpose((0, 2, 1)), [rows])
    if groups == 1:
        factor = node.emit(Reshape((each, filters)), [factor])
        product = node.emit(MatMul(), [windows, factor])
        turned = node.emit(Transpose((0, 2, 1)), [product])
    else:
        split = node.emit(Reshape((images, many, groups, each)), [windows])
        product = node.emit(MatMul(), [node.emit(Transpose((0, 2, 1, 3)), [split]), factor])
        turned = node.emit(Transpose((0, 1, 3, 2)), [product])
    made = node.emit(Reshape((images, w.shape[0], *places)), [turned], None if node.has(3) else 0)
    if node.has(3):
        bias = node.emit(Reshape((w.shape[0], 1, 1)), [node.input(3)])
        node.emit(Binary("add"), [made, bias], 0)


IMPORTERS = (
    Importer(
        "DeformConv", (19, 22), import_deform_conv,
        example=Example((Data(IMAGE), Weights((4, 4, 3, 3)), Data((1, 18, 4, 4)), Weights((4,)))),
        note="images",
    ),
)  # fmt: skip
