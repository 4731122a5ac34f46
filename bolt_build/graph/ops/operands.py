"""Checks that the operators' shape inference shares."""

from __future__ import annotations

from collections.abc import Sequence

from bolt_build.dtypes import DType
from bolt_build.graph.ir import ShapeError, TensorType


def expect_count(inputs: Sequence[TensorType], least: int, most: int | None = None) -> None:
    """Raises ShapeError unless there are `least` to `most` inputs (`most` None: exactly `least`)."""
    most = least if most is None else most
    if not least <= len(inputs) <= most:
        wanted = str(least) if least == most else f"{least} to {most}"
        raise ShapeError(f"takes {wanted} inputs, not {len(inputs)}")


def expect_same_dtype(inputs: Sequence[TensorType]) -> None:
    """Raises ShapeError unless all inputs have one element type."""
    names = list(dict.fromkeys(t.dtype.value for t in inputs))
    if len(names) > 1:
        raise ShapeError(f"the inputs have different element types: {', '.join(names)}")


def expect_float(t: TensorType) -> None:
    """Raises ShapeError unless the element type is a floating-point one."""
    if not t.dtype.is_float:
        raise ShapeError(f"takes a floating-point tensor, not {t.dtype.value}")


def broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that `a` and `b` broadcast to by NumPy's rule. Raises ShapeError."""
    rank = max(len(a), len(b))
    left, right = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    if any(x != y and 1 not in (x, y) for x, y in zip(left, right, strict=True)):
        raise ShapeError(f"shapes {list(a)} and {list(b)} do not broadcast")
    return tuple(y if x == 1 else x for x, y in zip(left, right, strict=True))


def expect_axis(axis: int, t: TensorType) -> None:
    """Raises ShapeError unless `axis` is a non-negative axis of the tensor."""
    if not 0 <= axis < t.rank:
        raise ShapeError(f"axis {axis} does not exist in a tensor of rank {t.rank}")


def expect_indices(t: TensorType) -> None:
    """Raises ShapeError unless the tensor's elements can be indices: int32 or int64."""
    if t.dtype not in (DType.I32, DType.I64):
        raise ShapeError(f"indices are of i32 or i64, not of {t.dtype.value}")


def expect_regions(inputs: Sequence[TensorType]) -> None:
    """Raises ShapeError unless these are an image [N,C,H,W], regions [R,4] and of which image each is, [R]."""
    expect_count(inputs, 3)
    x, regions, images = inputs
    expect_float(x)
    expect_float(regions)
    expect_indices(images)
    if x.rank != 4 or regions.rank != 2 or regions.shape[1] != 4 or images.shape != regions.shape[:1]:
        raise ShapeError(
            f"regions {list(regions.shape)} of images {list(images.shape)} are no [R, 4] and [R] in {list(x.shape)}"
        )
