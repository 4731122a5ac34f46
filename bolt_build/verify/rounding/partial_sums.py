"""How large sums of products are on their way: what random signs do not explain.

Networks are trained to cancel: a channel is what one branch of a concatenation finds less what another does, and a
filter of edges is half of a window less the other half. In between, a sum is many times as large as its end and as
what as many products of random signs come to, and every addition rounds what there is. So where a layer would depart,
its sums are looked at where they are a part done, in the two orders in which kernels take a window: channel by
channel, and place by place.
"""

from __future__ import annotations

from collections.abc import Callable

from bolt_build.verify.rounding.rounding import Variance, Work

_PARTS = 8
"""Parts in which a sum is looked at."""
_RANGE = 11
"""The first opset with Range."""


def of_windows(work: Work, count: str, axis: int) -> Variance:
    """Of sums of `count` products of whose weight, input 1, `axis` is summed up and those behind the second."""
    emit, weight = work.emit, work.inputs[1]
    if not work.careful or emit.opset < _RANGE:
        return None
    flat = emit.add("Reshape", [weight, emit.constant([0, 0, -1])])
    channels, places = emit.extent(flat, axis), emit.extent(flat, 2)
    channel, place = (
        _numbers(work, channels, [-1, 1, 1] if axis == 0 else [1, -1, 1]),
        _numbers(work, places, [1, 1, -1]),
    )
    orders = emit.sum(emit.product(channel, places), place), emit.sum(emit.product(place, channels), channel)
    shape = emit.add("Shape", [weight])

    def begun(mask: str) -> str:
        return work.again([work.inputs[0], emit.add("Reshape", [emit.product(flat, mask), shape])])

    total = emit.product(channels, places)
    by_channel, by_place = (_squares(work, order, total, begun) for order in orders)
    return _rounded(work, emit.add("Max", [by_channel, by_place]), count)


def of_rows(work: Work, count: str, axis: int) -> Variance:
    """Of products of matrices: of input 0 `axis`, 0 or -1, is summed up."""
    emit = work.emit
    if not work.careful or emit.opset < _RANGE:
        return None
    rest = [emit.zeros_like(name) for name in work.inputs[2:] if name] if work.node.op_type == "Gemm" else []

    def begun(mask: str) -> str:
        return work.again([emit.product(work.inputs[0], mask), work.inputs[1], *rest])

    order = _numbers(work, count, [-1, 1] if axis == 0 else [-1])
    return _rounded(work, _squares(work, order, count, begun), count)


def _numbers(work: Work, extent: str, shape: list[int]) -> str:
    """0, 1, 2 and so on below `extent`."""
    emit, zero = work.emit, work.emit.constant(0.0)
    end = emit.add("Reshape", [extent, emit.constant([])])
    return emit.add("Reshape", [emit.add("Range", [zero, end, emit.constant(1.0)]), emit.constant(shape)])


def _squares(work: Work, order: str, total: str, begun: Callable[[str], str]) -> str:
    """The mean square of what is there after each part but the last."""
    emit, found = work.emit, None
    for part in range(1, _PARTS):
        mask = emit.add("Cast", [emit.add("Less", [order, emit.scaled(total, part / _PARTS)])], to=1)
        found = work.plus(found, emit.square(begun(mask)))
    assert found is not None
    return emit.scaled(found, 1.0 / (_PARTS - 1))


def _rounded(work: Work, squares: str, count: str) -> Variance:
    """A rounding is half as large in the mean square as where the last bit weighs most."""
    return work.emit.product(squares, work.emit.scaled(count, work.roundings.addition / 2.0))
