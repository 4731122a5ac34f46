"""Operators that move elements without computing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.arrays import converted, numpy_dtype
from bolt_build.graph.ir import Array, Node, Op, ShapeError, Stored, TensorType
from bolt_build.graph.ops.operands import expect_count, expect_same_dtype
from bolt_build.graph.tail import ANYTHING, Padded, PaddingReaches, Tail, Tails, stride
from bolt_build.graph.tail_rules import elementwise


class _Moves(Op):
    """No floating-point operations, and no wider types."""

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return 0

    def workspace(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return 0


@dataclass(frozen=True)
class Reshape(_Moves):
    """Logical row-major reshape to a static shape. ONNX Reshape, Flatten, Squeeze, Unsqueeze."""

    kind = "reshape"
    moves = True
    shaped = True
    shape: tuple[int, ...]

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 1)
        (x,) = inputs
        if any(extent < 0 for extent in self.shape) or prod(self.shape) != x.elements:
            raise ShapeError(f"{list(x.shape)} has {x.elements} elements and cannot become {list(self.shape)}")
        return (TensorType(x.dtype, self.shape),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        return (inputs[0].reshape(self.shape),)

    def of_stored(self, stored: Stored) -> Stored | None:
        """Where one scale and one zero point are for all."""
        whole = stored.scale.size == stored.zero.size == 1
        return Stored(stored.q.reshape(self.shape), stored.scale, stored.zero) if whole else None

    def tails(self, node: Node, at: Padded) -> Tails:
        return dict(at.tails(node.inputs[0]))


@dataclass(frozen=True)
class Transpose(_Moves):
    """Output axis i is input axis perm[i]."""

    kind = "transpose"
    moves = True
    perm: tuple[int, ...]

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 1)
        (x,) = inputs
        if sorted(self.perm) != list(range(x.rank)):
            raise ShapeError(f"perm {list(self.perm)} is no order of the {x.rank} axes of {list(x.shape)}")
        return (TensorType(x.dtype, tuple(x.shape[axis] for axis in self.perm)),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        return (np.ascontiguousarray(inputs[0].transpose(self.perm)).reshape([inputs[0].shape[i] for i in self.perm]),)

    def of_stored(self, stored: Stored) -> Stored:
        def turned(array: Array) -> Array:
            return array.reshape((1,) * (len(self.perm) - array.ndim) + array.shape).transpose(self.perm)

        return Stored(turned(stored.q), turned(stored.scale), turned(stored.zero))

    def tails(self, node: Node, at: Padded) -> Tails:
        (name,), shape = node.inputs, at.shape(node.outputs[0])
        return {at.moved(name, s, shape, self.perm.index(at.axis(name, s))): tail for s, tail in at.tails(name).items()}


@dataclass(frozen=True)
class Concat(_Moves):
    """Any number of inputs along `axis` (non-negative)."""

    kind = "concat"
    moves = True
    axis: int

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        if not inputs:
            raise ShapeError("takes at least one input")
        expect_same_dtype(inputs)
        first = inputs[0].shape
        if not 0 <= self.axis < len(first):
            raise ShapeError(f"axis {self.axis} does not exist in a tensor of rank {len(first)}")
        for t in inputs[1:]:
            if t.rank != len(first) or any(
                a != b for i, (a, b) in enumerate(zip(first, t.shape, strict=True)) if i != self.axis
            ):
                raise ShapeError(f"{list(first)} and {list(t.shape)} must agree but for axis {self.axis}")
        total = sum(t.shape[self.axis] for t in inputs)
        return (TensorType(inputs[0].dtype, (*first[: self.axis], total, *first[self.axis + 1 :])),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        return (np.concatenate(inputs, axis=self.axis),)

    def tails(self, node: Node, at: Padded) -> Tails:
        shape = at.shape(node.outputs[0])
        found: dict[int, list[Tail]] = {}
        for name in node.inputs:
            for step, tail in at.tails(name).items():
                axis = at.axis(name, step)
                if axis == self.axis:
                    raise PaddingReaches("puts something behind it")
                found.setdefault(at.moved(name, step, shape, axis), []).append(tail)
        whole = len(node.inputs)
        return {s: tails[0] if len(tails) == whole and len(set(tails)) == 1 else ANYTHING for s, tails in found.items()}


@dataclass(frozen=True)
class Slice(_Moves):
    """One entry an axis of the input: begin, count and step (may be negative) are already resolved."""

    kind = "slice"
    moves = True
    shaped = True
    begin: tuple[int, ...]
    count: tuple[int, ...]
    step: tuple[int, ...]

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 1)
        (x,) = inputs
        for name in ("begin", "count", "step"):
            if len(getattr(self, name)) != x.rank:
                raise ShapeError(f"{name} {list(getattr(self, name))} must have one entry an axis of {list(x.shape)}")
        for axis, (begin, count, step) in enumerate(zip(self.begin, self.count, self.step, strict=True)):
            if step == 0:
                raise ShapeError(f"the step of axis {axis} is 0")
            last = begin + (count - 1) * step
            if count < 0 or (count > 0 and not (0 <= begin < x.shape[axis] and 0 <= last < x.shape[axis])):
                raise ShapeError(
                    f"axis {axis}: {count} elements from {begin} by {step} leave its extent {x.shape[axis]}"
                )
        return (TensorType(x.dtype, self.count),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        picks = [b + s * np.arange(c) for b, c, s in zip(self.begin, self.count, self.step, strict=True)]
        return (inputs[0][np.ix_(*picks)] if picks else inputs[0],)

    def unread(self, inputs: Sequence[TensorType]) -> int:
        return inputs[0].elements - prod(self.count)

    def tails(self, node: Node, at: Padded) -> Tails:
        (name,), shape, found = node.inputs, at.shape(node.outputs[0]), dict[int, Tail]()
        for step, tail in at.tails(name).items():
            axis = at.axis(name, step)
            begin, count = self.begin[axis], self.count[axis]
            if (begin, count, self.step[axis]) == (0, at.shape(name)[axis], 1):
                found[at.moved(name, step, shape, axis)] = tail
            elif (begin, count) != (0, 1) or step != stride(at.shape(name), axis):
                raise PaddingReaches("takes a part of it that is not its first position")
        return found


PAD_MODES = ("constant", "reflect", "edge", "wrap")


@dataclass(frozen=True)
class Pad(_Moves):
    """One entry an axis (may be negative: crops). `mode` is "constant", "reflect", "edge" or "wrap"."""

    kind = "pad"
    moves = True
    begin: tuple[int, ...]
    end: tuple[int, ...]
    mode: str = "constant"
    value: float = 0.0

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 1)
        (x,) = inputs
        if self.mode not in PAD_MODES:
            raise ShapeError(f"mode '{self.mode}' is none of {', '.join(PAD_MODES)}")
        if len(self.begin) != x.rank or len(self.end) != x.rank:
            raise ShapeError(f"pads {[*self.begin, *self.end]} must have two entries an axis of {list(x.shape)}")
        shape = []
        for axis, (extent, begin, end) in enumerate(zip(x.shape, self.begin, self.end, strict=True)):
            kept = extent + min(begin, 0) + min(end, 0)
            if kept < 0:
                raise ShapeError(f"axis {axis} of extent {extent} cannot be cropped by {begin} and {end}")
            if self.mode == "reflect" and max(begin, end, 0) >= max(kept, 1):
                raise ShapeError(f"axis {axis} of extent {extent} cannot be reflected by {begin} and {end}")
            if self.mode in ("edge", "wrap") and kept == 0 and max(begin, end) > 0:
                raise ShapeError(f"axis {axis} has no element left to repeat")
            shape.append(kept + max(begin, 0) + max(end, 0))
        return (TensorType(x.dtype, tuple(shape)),)

    def tails(self, node: Node, at: Padded) -> Tails:
        """Other axes may get more or fewer positions."""
        (name,), shape, found = node.inputs, at.shape(node.outputs[0]), dict[int, Tail]()
        for step in at.tails(name):
            axis = at.axis(name, step)
            if self.begin[axis] or self.end[axis]:
                raise PaddingReaches("pads or crops along it")
            found[at.moved(name, step, shape, axis)] = ANYTHING
        return found

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        (x,) = inputs
        sides = zip(x.shape, self.begin, self.end, strict=True)
        cropped = x[tuple(slice(max(-begin, 0), extent + min(end, 0)) for extent, begin, end in sides)]
        widths = [(max(b, 0), max(t, 0)) for b, t in zip(self.begin, self.end, strict=True)]
        if not widths:
            return (x,)
        if self.mode == "constant":
            return (np.pad(cropped, widths, constant_values=np.asarray(self.value).astype(x.dtype)),)
        modes: dict[str, Literal["reflect", "edge", "wrap"]] = {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}
        return (np.pad(cropped, widths, mode=modes[self.mode]),)


@dataclass(frozen=True)
class Identity(_Moves):
    """The input. Also what Dropout is at inference."""

    kind = "identity"
    moves = True

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 1)
        return (inputs[0],)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        return (inputs[0],)

    def of_stored(self, stored: Stored) -> Stored:
        return stored

    def tails(self, node: Node, at: Padded) -> Tails:
        return elementwise(node, at, lambda tails: tails[0])


@dataclass(frozen=True)
class Cast(_Moves):
    """Converts to another element type that the model itself asks for; see `graph.arrays.converted`."""

    kind = "cast"
    to: DType

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 1)
        return (TensorType(self.to, inputs[0].shape),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        return (converted(inputs[0], numpy_dtype(self.to)),)

    def tails(self, node: Node, at: Padded) -> Tails:
        return elementwise(node, at, lambda tails: tails[0])


@dataclass(frozen=True)
class Convert(_Moves):
    """The same logical values in another storage format. Only in problems: the graph knows no formats."""

    kind = "convert"

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        expect_count(inputs, 1)
        return (inputs[0],)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        return (inputs[0],)

    def tails(self, node: Node, at: Padded) -> Tails:
        return elementwise(node, at, lambda tails: tails[0])
