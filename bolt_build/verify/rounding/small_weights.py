"""Weights below the normal numbers of half precision, whose rounding is no part of themselves: it is 2^-25 at most.

A channel whose scale has gone towards 0 has such weights, as networks have them whose blocks end with a scale that
begins there. And whatever constant stands in front of a product or behind it, an engine may have folded it into the
weights: then these are small, and their rounding no longer becomes less with the constant. So beside its variance a
product leaves what the smallest numbers do to it (`Work.floors`), which scales let pass as it is: y = (W x) c is off by
2^-25 |x| for each weight, not by c times that. A product behind a scale reads what is in front of it
(`Work.unscaled`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from bolt_build.verify.rounding.rounding import Variance, Work

_CARRY = (
    "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Identity", "Slice", "ReduceMean", "GlobalAveragePool",
    "AveragePool",
)  # fmt: skip
"""Linear operators of one tensor without weights."""
_AXES_INPUT = 13
"""Since when ReduceSum has its axes as an input; Slice has had its own since the opset below."""
_SLICE_INPUTS = 10


def of_windows(work: Work, count: str, axis: int) -> Variance:
    """Of a convolution's sums of `count` products, whose weight, input 1, has the results along `axis`."""
    if not _is_weight(work, 1):
        return None
    weight = work.inputs[1]
    # All results read the same window, but for groups.
    alike = weight if work.integer("group", 1) > 1 else work.emit.reduce("ReduceMax", weight, [axis])
    return _left(work, work.again([_read(work, 0, count), _ones(work, alike)]))


def of_matrices(work: Work, count: str) -> Variance:
    """Of MatMul and Gemm, where one side is constant."""
    emit = work.emit
    if not (_is_weight(work, 0) or _is_weight(work, 1)):
        return None
    constant = 0 if _is_weight(work, 0) else 1
    read, weight = _read(work, 1 - constant, count), work.inputs[constant]
    if work.node.op_type == "Gemm":
        if constant == 1:
            weight = emit.reduce("ReduceMax", weight, [0 if work.integer("transB", 0) else 1])
        sides = [read, _ones(work, weight)] if constant else [_ones(work, weight), read]
        # `alpha` may be folded as well.
        return _left(work, work.again(sides, alpha=max(1.0, work.real("alpha", 1.0) ** 2)))
    if constant == 1 and emit.opset >= _SLICE_INPUTS:
        return _left(work, _row_sums(work, read))
    return _left(work, work.again([read, _ones(work, weight)] if constant else [_ones(work, weight), read]))


def _row_sums(work: Work, read: str) -> str:
    """Sums along the last axis, one for all columns; of a product with a vector, which has none, as it is."""
    emit = work.emit
    if emit.opset >= _AXES_INPUT:
        total = emit.add("ReduceSum", [read, emit.constant([-1])], keepdims=1)
    else:
        total = emit.add("ReduceSum", [read], axes=[-1], keepdims=1)
    rank = emit.add("Shape", [emit.add("Shape", [work.outputs[0]])])
    shape = emit.add("Slice", [emit.add("Shape", [total]), emit.constant([0]), rank])
    return emit.add("Reshape", [total, shape])


def of_einsum(work: Work) -> Variance:
    """Of each constant operand."""
    emit, total = work.emit, None
    for index in range(len(work.inputs)):
        if _is_weight(work, index):
            others = [emit.square(name) for name in work.inputs]
            others[index] = emit.scaled(_ones(work, work.inputs[index]), work.roundings.least)
            total = work.plus(total, work.again(others))
    return None if total is None else _left(work, total)


def behind_scale(work: Work, index: int = 0) -> Variance:
    """Of input `index` times constants, beside what they make of its variance."""
    x, y, floor = work.inputs[index], work.outputs[0], work.floors.get(work.inputs[index])
    if not work.roundings.least:
        return None
    squares = work.unscaled.get(x) or (lambda: work.emit.square(x))
    work.unscaled[y] = _shaped(work, squares)
    if floor is None:
        return None
    work.floors[y] = _shaped(work, floor)
    return work.floors[y]()


def carry(work: Work) -> None:
    """Through what moves, averages, gates or adds."""
    node = work.node
    if not work.roundings.least or node.domain not in ("", "ai.onnx") or not work.outputs[0]:
        return
    for held in (work.floors, work.unscaled):
        if node.op_type in _CARRY:
            _moved(work, held)
        elif node.op_type == "Mul" and not any(work.fixed):
            _summed(work, held, [_gated(work, held, index) for index in (0, 1)])
        elif node.op_type in ("Add", "Sub", "Sum") and (held is work.floors or list(work.fixed).count(False) == 1):
            _summed(work, held, [held.get(name) for name in work.inputs])


def _moved(work: Work, held: dict[str, Callable[[], str]]) -> None:
    found = held.get(work.inputs[0])
    if found is not None:
        held[work.outputs[0]] = functools.cache(lambda: work.again([found(), *work.inputs[1:]]))


def _gated(work: Work, held: dict[str, Callable[[], str]], index: int) -> Callable[[], str] | None:
    found, gate = held.get(work.inputs[index]), work.inputs[1 - index]
    return None if found is None else lambda: work.emit.product(found(), work.emit.square(gate))


def _summed(work: Work, held: dict[str, Callable[[], str]], parts: list[Callable[[], str] | None]) -> None:
    found = [part for part in parts if part is not None]
    if found:
        held[work.outputs[0]] = _shaped(work, lambda: functools.reduce(work.emit.sum, [part() for part in found]))


def _shaped(work: Work, made: Callable[[], str]) -> Callable[[], str]:
    """The same in the result's shape, once."""
    return functools.cache(lambda: work.emit.sum(made(), work.emit.zeros_like(work.outputs[0])))


def _is_weight(work: Work, index: int) -> bool:
    """Whether what is stored as input `index` may be too small, and the other side of the product is not constant."""
    return bool(work.roundings.least) and work.fixed[index] and not all(work.fixed)


def _left(work: Work, floor: str) -> str:
    work.floors[work.outputs[0]] = _shaped(work, lambda: floor)
    return floor


def _read(work: Work, index: int, count: str) -> str:
    """What each weight does by its rounding: 2^-25 of what it is multiplied by. Weights of two products that are one
    in the engine are rounded once: what the first left counts as it is, for each of `count`."""
    emit, x = work.emit, work.inputs[index]
    squares = emit.square(x)
    if x in work.unscaled:
        squares = emit.add("Max", [squares, work.unscaled[x]()])
    each = emit.scaled(squares, work.roundings.least)
    return emit.sum(each, emit.quotient(work.floors[x](), count)) if x in work.floors else each


def _ones(work: Work, name: str) -> str:
    return work.emit.sum(work.emit.zeros_like(name), work.emit.constant(1.0))
