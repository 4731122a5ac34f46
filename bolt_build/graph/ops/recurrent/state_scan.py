"""Elementwise recurrences: a state that goes through a sequence, as state spaces and linear attention keep one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bolt_build.graph.arrays import narrowed, widened
from bolt_build.graph.ir import Array, Op, ShapeError, TensorType
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import FUNCTIONS as BINARIES
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.functions import FUNCTIONS as ACTIVATIONS
from bolt_build.graph.ops.elementwise.logic import COMPARISONS, Compare
from bolt_build.graph.ops.operands import expect_float

SUM, WHERE = "sum", "where"
"""The functions that add up along the axis `fold`, and that take the second number where the first is not 0, else the
third. Comparisons leave 1 and 0."""
ARITY = {
    SUM: 1, WHERE: 3, **dict.fromkeys(ACTIVATIONS, 1), **dict.fromkeys(BINARIES, 2), **dict.fromkeys(COMPARISONS, 2),
}  # fmt: skip
"""Functions of a step, and of how many numbers each is."""


@dataclass(frozen=True)
class StateScan(Op):
    """Goes through `extents[0]` steps over a space of `extents[1:]`, each of which computes functions of numbers.

    Numbers of a step are, in this order: the inputs but for the last `len(carried)`; the states, of which those inputs
    are the first ones; and `functions`, each of earlier numbers `operands` (with alpha and beta in `numbers`, where
    there are any). Behind a step state i is number `carried[i]`. Number `result` is stored.

    Axis d of the space is axis `axes[i][d]` of input i, -1 where the input has none of it: it is the same along d then.
    `begins[i]` says where the space begins along each axis of input i. `backward[i]` is true where steps go from its
    end to its begin, and behind those of all inputs that of the output. "sum" adds up along axis `fold` of the space
    (0: none is added up along). Axes of the output are those of the space in `order`; `fold` is missing where the
    result is the same along it.

    For example Mamba's state [N, D, S] in T steps: inputs a and b [N, T, D, S], c [N, T, S] and the first state,
    functions h' = a h + b and y = sum over S of c h'. No model has the operator; a pass makes it of what exporters
    unroll.
    """

    kind = "state_scan"
    shaped = True
    extents: tuple[int, ...]
    axes: tuple[tuple[int, ...], ...]
    begins: tuple[tuple[int, ...], ...]
    backward: tuple[bool, ...]
    functions: tuple[str, ...]
    operands: tuple[tuple[int, ...], ...]
    numbers: tuple[tuple[float, ...], ...]
    carried: tuple[int, ...]
    result: int
    order: tuple[int, ...]
    fold: int = 0

    @property
    def given(self) -> int:
        """Numbers of a step that are neither states nor functions."""
        return len(self.axes) - len(self.carried)

    def activation(self, place: int) -> Activation:
        """The function, which is one of one number."""
        return Activation(self.functions[place], *self.numbers[place])

    def wide(self) -> tuple[bool, ...]:
        """Which numbers of a step differ along `fold`."""
        made = [self.fold > 0 and axes[self.fold] >= 0 for axes in self.axes]
        while True:
            numbers = list(made)
            for function, operands in zip(self.functions, self.operands, strict=True):
                numbers.append(function != SUM and any(numbers[each] for each in operands))
            states = [made[self.given + i] or numbers[number] for i, number in enumerate(self.carried)]
            if made[self.given :] == states:
                return tuple(numbers)
            made[self.given :] = states

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        if not inputs or len(inputs) != len(self.axes) or len(self.begins) != len(inputs) or not self.carried:
            raise ShapeError(f"takes {len(self.axes)} inputs of which the last are first states, got {len(inputs)}")
        if len(self.backward) != len(inputs) + 1 or not 0 <= self.fold < len(self.extents):
            raise ShapeError("its attributes are of other inputs")
        for index, (each, axes, begin) in enumerate(zip(inputs, self.axes, self.begins, strict=True)):
            expect_float(each)
            if len(axes) != len(self.extents) or len(begin) != each.rank:
                raise ShapeError(f"input {index} has {each.rank} axes, not those of the space")
            for extent, axis in zip(self.extents, axes, strict=True):
                if axis >= each.rank or (axis >= 0 and begin[axis] + extent > each.shape[axis]):
                    raise ShapeError(f"input {index} of shape {list(each.shape)} does not reach as far as the space")
            if index >= self.given and axes[0] >= 0:
                raise ShapeError(f"input {index} is a first state and has steps")
        count = len(inputs)
        for function, operands in zip(self.functions, self.operands, strict=True):
            if ARITY.get(function) != len(operands):
                raise ShapeError(f"there is no function '{function}' of {len(operands)} numbers")
            if function == SUM and not self.fold:
                raise ShapeError("has no axis to add up along")
            if any(not 0 <= each < count for each in operands):
                raise ShapeError("a function is of what does not come before it")
            count += 1
        if any(not 0 <= each < count for each in (*self.carried, self.result)):
            raise ShapeError("a state or the result is none of its numbers")
        left = set(range(len(self.extents))) - ({self.fold} if self.fold and not self.wide()[self.result] else set())
        if sorted(self.order) != sorted(left):
            raise ShapeError("the result has other axes than the space")
        return (TensorType(inputs[0].dtype, tuple(self.extents[axis] for axis in self.order)),)

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        held = [self._over_space(index, widened(array)) for index, array in enumerate(inputs)]
        dtype = held[0].dtype
        given, states = held[: self.given], [array[0] for array in held[self.given :]]
        results = []
        for step in range(self.extents[0]):
            numbers = [array[step if len(array) > 1 else 0] for array in given] + states
            with np.errstate(all="ignore"):
                for place, operands in enumerate(self.operands):
                    made = self._function(place, [numbers[each] for each in operands])
                    numbers.append(np.asarray(made, dtype))
            states = [numbers[each] for each in self.carried]
            results.append(numbers[self.result])
        made = np.stack(np.broadcast_arrays(*results))
        kept = tuple(extent if axis in self.order else 1 for axis, extent in enumerate(self.extents))
        made = np.broadcast_to(made, kept)
        if self.backward[-1]:
            made = made[::-1]
        left = [axis for axis in range(len(self.extents)) if axis in self.order]
        made = made.reshape([self.extents[axis] for axis in left]).transpose([left.index(axis) for axis in self.order])
        return (narrowed(np.ascontiguousarray(made), inputs[0].dtype),)

    def _function(self, place: int, of: list[Array]) -> Array:
        function = self.functions[place]
        if function == SUM:
            whole = list(of[0].shape)
            whole[self.fold - 1] = self.extents[self.fold]
            return np.asarray(np.broadcast_to(of[0], whole).sum(self.fold - 1, keepdims=True))
        if function == WHERE:
            return np.where(of[0] != 0, of[1], of[2])
        op = Binary(function) if function in BINARIES else Compare(function) if function in COMPARISONS else None
        (result,) = (op or self.activation(place)).evaluate(of)
        return result

    def _over_space(self, index: int, array: Array) -> Array:
        """The input with the space's axes, of extent 1 along those that it has none of."""
        axes, begin = self.axes[index], self.begins[index]
        cut = tuple(
            slice(start, start + self.extents[axes.index(axis)]) if axis in axes else slice(start, start + 1)
            for axis, start in enumerate(begin)
        )
        had = [axis for axis in axes if axis >= 0]
        rest = [axis for axis in range(array.ndim) if axis not in had]
        part = array[cut].transpose(had + rest)
        part = part.reshape([self.extents[dim] if axis >= 0 else 1 for dim, axis in enumerate(axes)])
        return part[::-1] if self.backward[index] else part

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        space, narrow = 1, 1
        for axis, extent in enumerate(self.extents):
            space *= extent
            narrow *= 1 if axis == self.fold and axis else extent
        wide = self.wide()[len(inputs) :]
        return sum(
            space if each or function == SUM else narrow for function, each in zip(self.functions, wide, strict=True)
        )
