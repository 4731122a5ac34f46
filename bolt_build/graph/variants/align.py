"""Hidden channels rounded up to a multiple, so that no kernel pads or falls back to narrow loads.

With given weights the function stays what it was: a new channel repeats one that is there, with all of its weights,
statistics and biases, and whoever reads it has zeros for it. So numbers keep their scale layer by layer, and in
training a new channel gets gradients through those zeros and parts from its twin. A zoo model brings no weights: those
of its variant are drawn and calibrated as a whole afterwards, and then nothing of the repeats and zeros is left.

Channels are those of axis 1. Tensors that must have equally many, because an operator works channel by channel or adds
them, form a group, which is widened as a whole, or left as it is for a reason that is told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import prod

import numpy as np
import onnx
from onnx import numpy_helper

from bolt_build.graph.variants.edited import EditedModel, attribute, called

_ALONG = (
    "Relu", "LeakyRelu", "Elu", "Selu", "Celu", "HardSwish", "Gelu", "Swish", "Softplus", "Mish", "Sigmoid", "Tanh",
    "Clip", "Erf", "Exp", "Sqrt", "Neg", "Abs", "HardSigmoid", "Identity", "Dropout", "Cast", "MaxPool", "AveragePool",
    "GlobalAveragePool", "GlobalMaxPool",
)  # fmt: skip
"""Operators that give each channel of their first input a channel of their output."""
_ARITHMETIC = ("Add", "Sub", "Mul", "Div")


@dataclass(frozen=True)
class Alignment:
    """What became of one group of channels: from `before` to `after` of them, or, where `reason` says why, left alone.

    `tensor` is the first tensor of the group."""

    tensor: str
    before: int
    after: int
    reason: str | None = None


@dataclass(frozen=True)
class _Use:
    """A constant with a group's channels along `axis`, `run` elements each: `made` where they are made, else read."""

    constant: str
    axis: int
    made: bool
    run: int = 1


@dataclass
class _Group:
    """Channels that several tensors have, `first` the first of these. `fixed` says why they stay as they are."""

    first: str
    channels: int
    fixed: str | None = None
    uses: list[_Use] = field(default_factory=list)
    depthwise: list[onnx.NodeProto] = field(default_factory=list)


class _Refused(Exception):
    """Why the channels of a node's tensors cannot be followed."""


def align_channels(edited: EditedModel, multiple: int) -> tuple[Alignment, ...]:
    """Widens every group of channels that is no multiple of `multiple` and can be; what became of each of these."""
    found = []
    for group in _Channels(edited).groups():
        after = -(-group.channels // multiple) * multiple
        if after == group.channels:
            continue
        if group.fixed is None:
            _widen(edited, group, after)
            found.append(Alignment(group.first, group.channels, after))
        else:
            found.append(Alignment(group.first, group.channels, group.channels, group.fixed))
    return tuple(found)


def _widen(edited: EditedModel, group: _Group, after: int) -> None:
    """Repeats channels from the first on where they are made, and adds zeros where they are read."""
    repeats = np.arange(after) % group.channels
    for use in group.uses:
        array = np.moveaxis(numpy_helper.to_array(edited.constants[use.constant]), use.axis, 0)
        rows = array.reshape(group.channels, use.run, *array.shape[1:])
        wide = rows[repeats].copy()
        if not use.made:
            wide[group.channels :] = 0
        wide = wide.reshape(after * use.run, *array.shape[1:])
        edited.set_constant(use.constant, np.ascontiguousarray(np.moveaxis(wide, 0, use.axis)))
    for node in group.depthwise:
        next(item for item in node.attribute if item.name == "group").i = after


class _Channels:
    """Sorts the tensors of a graph into groups, node by node."""

    def __init__(self, edited: EditedModel) -> None:
        self._edited = edited
        self._groups: dict[str, _Group] = {}
        self._runs: dict[str, int] = {}
        self._visits: dict[str, Callable[[onnx.NodeProto], None]] = {
            **dict.fromkeys(_ALONG, self._along), **dict.fromkeys(_ARITHMETIC, self._arithmetic),
            "Conv": self._conv, "BatchNormalization": self._batch_norm, "Flatten": self._flatten, "Gemm": self._gemm,
            "MatMul": self._matmul,
        }  # fmt: skip

    def groups(self) -> list[_Group]:
        """All of them, in the order of their first tensors."""
        edited = self._edited
        for name in sorted(edited.inputs):
            self._fix((name,), f"'{name}' is an input of the model")
        for node in edited.nodes:
            try:
                if node.op_type not in self._visits:
                    raise _Refused("does not keep channels apart, as far as is known")
                self._visits[node.op_type](node)
            except _Refused as refused:
                self._fix((*edited.read_by(node), *node.output), f"'{called(node)}' ({node.op_type}) {refused}")
        for name in sorted(edited.outputs):
            self._fix((name,), f"'{name}' is an output of the model")
        found = list({id(group): group for group in self._groups.values()}.values())
        for group in found:
            self._fix_shared(group)
        return found

    def _fix_shared(self, group: _Group) -> None:
        """A constant that is read in several places would have to change for all of them."""
        for (constant, _), count in Counter((use.constant, use.axis) for use in group.uses).items():
            readers = len(self._edited.readers(constant))
            if (readers > 1 or count > 1) and group.fixed is None:
                group.fixed = f"'{constant}' is read in several places"

    def _fix(self, tensors: Iterable[str], reason: str) -> None:
        for tensor in tensors:
            group = self._known(tensor)
            if group is not None and group.fixed is None:
                group.fixed = reason

    def _known(self, tensor: str) -> _Group | None:
        """The group of a tensor, a new one for a tensor not met yet; None for a constant and where no channels are
        known."""
        if tensor not in self._groups:
            shape = self._edited.shape(tensor)
            if tensor in self._edited.constants or shape is None or len(shape) < 2 or shape[1] is None:
                return None
            self._groups[tensor], self._runs[tensor] = _Group(tensor, shape[1]), 1
        return self._groups[tensor]

    def _group(self, tensor: str) -> _Group:
        group = self._known(tensor)
        if group is None:
            raise _Refused(f"has channels of '{tensor}' that are not known")
        return group

    def _tie(self, one: str, other: str) -> None:
        """Both tensors have the same channels from now on."""
        first, second = self._group(one), self._group(other)
        if (first.channels, self._runs[one]) != (second.channels, self._runs[other]):
            raise _Refused(f"has other channels in '{one}' than in '{other}'")
        if first is second:
            return
        first.uses += second.uses
        first.depthwise += second.depthwise
        first.fixed = first.fixed or second.fixed
        self._groups.update({name: first for name, group in self._groups.items() if group is second})

    def _extents(self, constant: str) -> tuple[int, ...]:
        """The shape of a weight, which must be an initializer."""
        if constant not in self._edited.constants:
            raise _Refused(f"computes its weight '{constant}'")
        return tuple(self._edited.constants[constant].dims)

    def _along(self, node: onnx.NodeProto) -> None:
        if sum(bool(name) for name in node.output) > 1:
            raise _Refused("has a second output")
        self._tie(node.input[0], node.output[0])

    def _arithmetic(self, node: onnx.NodeProto) -> None:
        y = node.output[0]
        rank, extent = len(self._edited.shape(y) or ()), self._group(y).channels * self._runs[y]
        uses, ties = [], []
        for name in dict.fromkeys(node.input):
            shape = self._edited.shape(name)
            if shape is None:
                raise _Refused(f"reads '{name}', whose shape is not known")
            axis = 1 - (rank - len(shape))
            if axis < 0 or (shape[axis] == 1 and extent != 1):
                # One for all channels of the result. With more of its own it would no longer fit.
                self._fix((name,), f"'{called(node)}' ({node.op_type}) broadcasts it")
                continue
            if name in self._edited.constants:
                uses.append(_Use(name, axis, True, self._runs[y]))
            elif len(shape) == rank:
                ties.append(name)
            else:
                raise _Refused(f"reads '{name}' of another rank")
        for name in ties:
            self._tie(name, y)
        if any(self._extents(use.constant)[use.axis] != extent for use in uses):
            raise _Refused("has a constant of other channels")
        self._group(y).uses += uses

    def _conv(self, node: onnx.NodeProto) -> None:
        x, weight, y, count = node.input[0], node.input[1], node.output[0], attribute(node, "group", 1)
        extents, made = self._extents(weight), [_Use(name, 0, True) for name in node.input[1:] if name]
        for use in made:
            self._extents(use.constant)
        source, result = self._group(x), self._group(y)
        if count == 1:
            source.uses.append(_Use(weight, 1, False))
        elif count == source.channels == extents[0]:
            self._tie(x, y)
            result = self._group(y)
            result.depthwise.append(node)
        else:
            raise _Refused(f"has {count} groups")
        result.uses += made

    def _batch_norm(self, node: onnx.NodeProto) -> None:
        for name in node.input[1:]:
            self._extents(name)
        self._along(node)
        self._group(node.output[0]).uses += [_Use(name, 0, True) for name in node.input[1:]]

    def _flatten(self, node: onnx.NodeProto) -> None:
        x = node.input[0]
        group, spatial = self._group(x), (self._edited.shape(x) or ())[2:]
        if attribute(node, "axis", 1) != 1 or None in spatial:
            raise _Refused("does not keep channels apart, as far as is known")
        self._groups[node.output[0]] = group
        self._runs[node.output[0]] = self._runs[x] * prod(extent or 1 for extent in spatial)

    def _gemm(self, node: onnx.NodeProto) -> None:
        if attribute(node, "transA", 0):
            raise _Refused("transposes what it reads")
        self._product(node, 1 if attribute(node, "transB", 0) else 0)

    def _matmul(self, node: onnx.NodeProto) -> None:
        if len(self._edited.shape(node.input[0]) or ()) != 2 or len(self._extents(node.input[1])) != 2:
            raise _Refused("multiplies something else than rows by a matrix")
        self._product(node, 0)

    def _product(self, node: onnx.NodeProto, inner: int) -> None:
        """Rows times a constant matrix, whose axis `inner` is summed over, and perhaps a bias."""
        weight, made = node.input[1], []
        columns = self._extents(weight)[1 - inner]
        for name in node.input[2:]:
            extents = self._extents(name)
            if prod(extents) != 1 and (not extents or extents[-1] != columns or prod(extents) != columns):
                raise _Refused(f"has a bias '{name}' that is no vector")
            if prod(extents) != 1 or columns == 1:
                made.append(_Use(name, len(extents) - 1, True))
        source, result = self._group(node.input[0]), self._group(node.output[0])
        source.uses.append(_Use(weight, inner, False, self._runs[node.input[0]]))
        result.uses += [_Use(weight, 1 - inner, True), *made]
