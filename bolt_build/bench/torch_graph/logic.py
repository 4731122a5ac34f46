"""Comparisons, booleans and bits."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import fx

from bolt_build.bench.torch_graph.builder import Builder, Lower
from bolt_build.graph.ir import Node, Op
from bolt_build.graph.ops.elementwise.logic import Ask, Bitwise, Compare, Logic, Where

_COMPARISONS: dict[str, Callable[..., torch.Tensor]] = {
    "equal": torch.eq, "less": torch.lt, "less_equal": torch.le, "greater": torch.gt, "greater_equal": torch.ge,
}  # fmt: skip
_LOGIC: dict[str, Callable[..., torch.Tensor]] = {
    "and": torch.logical_and, "or": torch.logical_or, "xor": torch.logical_xor,
}  # fmt: skip
_BITS: dict[str, Callable[..., torch.Tensor]] = {
    "and": torch.bitwise_and, "or": torch.bitwise_or, "xor": torch.bitwise_xor,
    "shift_left": torch.bitwise_left_shift, "shift_right": torch.bitwise_right_shift,
}  # fmt: skip
_QUESTIONS: dict[str, Callable[..., torch.Tensor]] = {
    "nan": torch.isnan, "inf": torch.isinf, "positive_inf": torch.isposinf, "negative_inf": torch.isneginf,
    "not": torch.logical_not,
}  # fmt: skip


def compare(build: Builder, node: Node) -> fx.Node:
    assert isinstance(node.op, Compare)
    return build.call(_COMPARISONS[node.op.question], *map(build.value, node.inputs))


def logic(build: Builder, node: Node) -> fx.Node:
    assert isinstance(node.op, Logic)
    return build.call(_LOGIC[node.op.function], *map(build.value, node.inputs))


def bitwise(build: Builder, node: Node) -> fx.Node:
    assert isinstance(node.op, Bitwise)
    return build.call(_BITS[node.op.function], *map(build.value, node.inputs))


def ask(build: Builder, node: Node) -> fx.Node:
    assert isinstance(node.op, Ask)
    return build.call(_QUESTIONS[node.op.question], build.value(node.inputs[0]))


def where(build: Builder, node: Node) -> fx.Node:
    return build.call(torch.where, *map(build.value, node.inputs))


LOGIC: dict[type[Op], Lower] = {Compare: compare, Logic: logic, Bitwise: bitwise, Ask: ask, Where: where}
