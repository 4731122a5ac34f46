"""Convolution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from bolt_build.graph.arrays import narrowed, widened
from bolt_build.graph.example import IMAGE, Data, Example, Weights
from bolt_build.graph.importing import Importer, NodeImport, Refusal
from bolt_build.graph.ir import Array, Node, Op, ShapeError, TensorType
from bolt_build.graph.ops.operands import expect_count, expect_same_dtype
from bolt_build.graph.tail import Padded, Tails
from bolt_build.graph.tail_rules import image_by_image
from bolt_build.graph.windows import Windows, auto_pads


@dataclass(frozen=True)
class Conv(Op):
    """Inputs x [N,C,*spatial], w [K,C/groups,*kernel], optionally bias [K]; output [N,K,*out]. ONNX Conv.

    Pads are explicit here (auto_pad is resolved at import, from the bound shape).
    """

    kind = "conv"
    factors = 2
    strides: tuple[int, ...]
    pads_begin: tuple[int, ...]
    pads_end: tuple[int, ...]
    dilations: tuple[int, ...]
    groups: int = 1

    def windows(self, kernel: tuple[int, ...]) -> Windows:
        """The window that a kernel of these extents moves over the input."""
        return Windows(kernel, self.strides, self.pads_begin, self.pads_end, self.dilations)

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 2, 3)
        expect_same_dtype(inputs)
        x, w = inputs[0], inputs[1]
        if x.rank < 3 or w.rank != x.rank:
            raise ShapeError(f"input {list(x.shape)} and weight {list(w.shape)} must have one rank of at least 3")
        channels, filters = x.shape[1], w.shape[0]
        if self.groups < 1 or filters % self.groups:
            raise ShapeError(f"{filters} filters cannot be divided into {self.groups} groups")
        if channels != w.shape[1] * self.groups:
            raise ShapeError(
                f"the input has {channels} channels, the weight {list(w.shape)} with {self.groups} groups "
                f"takes {w.shape[1] * self.groups}"
            )
        if len(inputs) == 3 and inputs[2].shape != (filters,):
            raise ShapeError(f"bias {list(inputs[2].shape)} must be [{filters}], one a filter")
        windows = self.windows(w.shape[2:])
        windows.check(x.rank - 2)
        return (TensorType(x.dtype, (x.shape[0], filters, *windows.output_shape(x.shape[2:]))),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        x, w = widened(inputs[0]), widened(inputs[1])
        windows = self.windows(w.shape[2:])
        out = windows.output_shape(x.shape[2:])
        spatial = x.ndim - 2
        view = windows.view(windows.pad(x, out, 0.0), out)
        weight = w.reshape(self.groups, w.shape[0] // self.groups, -1)
        result = np.empty((x.shape[0], w.shape[0], *out))
        for image, cells in zip(result, view, strict=True):
            taps = np.moveaxis(cells, range(1 + spatial, 1 + 2 * spatial), range(1, 1 + spatial))
            columns = taps.reshape(self.groups, weight.shape[2], prod(out))
            image[...] = (weight @ columns).reshape(image.shape)
        if len(inputs) == 3:
            result += widened(inputs[2]).reshape(-1, *(1,) * spatial)
        return (narrowed(result, inputs[0].dtype),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return outputs[0].elements * (2 * prod(inputs[1].shape[1:]) + (len(inputs) == 3))

    def workspace(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        """With the padded input."""
        x = inputs[0]
        padded = prod(x.shape[:2]) * self.windows(inputs[1].shape[2:]).padded_cells(x.shape[2:])
        return super().workspace(inputs, outputs) + padded

    def unread(self, inputs: Sequence[TensorType]) -> int:
        x, kernel = inputs[0], inputs[1].shape[2:]
        return x.elements - prod(x.shape[:2]) * self.windows(kernel).touched(x.shape[2:])

    def tails(self, node: Node, at: Padded) -> Tails:
        """Windows of one cell that do not move on read their own position alone."""
        kernel = at.shape(node.inputs[1])[2:]
        alone = {*kernel, *self.strides} <= {1} and {*self.pads_begin, *self.pads_end} <= {0}
        return image_by_image(node, at, range(2, 2 + len(kernel)) if alone else ())


def import_conv(node: NodeImport) -> None:
    op = convolution(node, node.input(0), node.input(1))
    node.emit(op, [node.input(index) for index in range(node.count())], 0)


def convolution(node: NodeImport, x: str, w: str) -> Conv:
    """What the attributes of a convolution say of an input `x` and weights `w`."""
    spatial, kernel = node.type_of(x).shape[2:], node.type_of(w).shape[2:]
    if node.given("kernel_shape") and node.integers("kernel_shape") != kernel:
        raise ShapeError(f"kernel_shape {list(node.integers('kernel_shape'))} is not the weight's {list(kernel)}")
    ones = (1,) * len(spatial)
    strides, dilations = node.integers("strides", ones), node.integers("dilations", ones)
    begin, end = import_pads(node, spatial, kernel, strides, dilations)
    return Conv(strides, begin, end, dilations, node.integer("group", 1))


_Entries = tuple[int, ...]


def import_window(node: NodeImport) -> tuple[_Entries, _Entries, _Entries, _Entries, _Entries]:
    """Kernel, strides, begin and end pads and dilations of a pooling, in that order, one entry a spatial axis each.

    A window that is larger than the padded input is as large as that where it is the only one, which it is by
    `ceil_mode`: what lies beyond counts for nothing.
    """
    spatial = node.type(0).shape[2:]
    ones = (1,) * len(spatial)
    kernel = node.integers("kernel_shape")
    strides, dilations = node.integers("strides", ones), node.integers("dilations", ones)
    begin, end = import_pads(node, spatial, kernel, strides, dilations)
    if node.integer("ceil_mode", 0):
        sides = zip(kernel, strides, dilations, map(sum, zip(spatial, begin, end, strict=True)), strict=True)
        kernel = tuple(
            cells if dilation == 1 and cells < extent < cells + stride else extent
            for extent, stride, dilation, cells in sides
        )
    return kernel, strides, begin, end, dilations


def import_pads(
    node: NodeImport, spatial: tuple[int, ...], kernel: tuple[int, ...], strides: tuple[int, ...],
    dilations: tuple[int, ...],
) -> tuple[tuple[int, ...], tuple[int, ...]]:  # fmt: skip
    """Begin and end pads of ONNX's `pads` or `auto_pad`, one entry a spatial axis."""
    mode = node.text("auto_pad", "NOTSET")
    rank = len(spatial)
    for name, entries in (("kernel_shape", kernel), ("strides", strides), ("dilations", dilations)):
        if len(entries) != rank:
            raise ShapeError(f"{name} {list(entries)} has {len(entries)} entries for {rank} spatial axes")
    pads = node.integers("pads", (0,) * (2 * rank))
    if mode in ("SAME_UPPER", "SAME_LOWER", "VALID"):
        return auto_pads(mode, spatial, kernel, strides, dilations)
    if mode not in ("NOTSET", ""):
        raise Refusal("unsupported-attribute", f"auto_pad '{mode}' is not supported")
    if len(pads) != 2 * rank:
        raise ShapeError(f"pads {list(pads)} has {len(pads)} entries for {rank} spatial axes")
    return pads[:rank], pads[rank:]


IMPORTERS = (Importer("Conv", (1, 11, 22), import_conv, example=Example((Data(IMAGE), Weights((8, 4, 3, 3))))),)
