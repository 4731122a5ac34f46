"""What normalisations that a model spells out are made of: roots of mean squares, plain numbers, reciprocals."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isclose, prod

from bolt_build.graph.ir import Node
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.moves.shape import Reshape
from bolt_build.planner.rewrite import GraphEditor


@dataclass(frozen=True)
class Root:
    """1 / `divisor`'s value, or the value itself below a fraction line: sqrt(times * mean(`squared` ** 2, axes) +
    epsilon). `times` is N / (N - 1) where a model divides by N - 1, as torch.var does.

    `inside` are the values between that nobody else may need."""

    squared: str
    axes: tuple[int, ...]
    epsilon: float
    inside: tuple[str, ...]
    times: float = 1.0


def plain(editor: GraphEditor, value: str) -> Node | None:
    node = editor.producer(value)
    return None if node is None or node.epilogue else node


def number_of(editor: GraphEditor, value: str) -> float | None:
    """The number that a constant of one element is: the shortest decimal that reads back as it."""
    array = editor.constant(value)
    return float(str(array.reshape(-1)[0])) if array is not None and array.size == 1 else None


def reciprocal_of(editor: GraphEditor, value: str) -> str | None:
    node = plain(editor, value)
    if node is None:
        return None
    if node.op == Activation("reciprocal"):
        return node.inputs[0]
    if node.op == Binary("div") and number_of(editor, node.inputs[0]) == 1.0:
        return node.inputs[1]
    return None


def inverse_root_of(editor: GraphEditor, value: str) -> Root | None:
    """The root that the value is 1 over: of a reciprocal, or a power of -1/2."""
    below = reciprocal_of(editor, value)
    if below is None:
        return root_of(editor, value, -0.5)
    root = root_of(editor, below)
    return None if root is None else replace(root, inside=(value, *root.inside))


def root_of(editor: GraphEditor, value: str, power: float = 0.5) -> Root | None:
    """What the value is the root of, or that to the `power`."""
    root = plain(editor, value)
    if root is None:
        return None
    if root.op == Binary("pow"):
        if number_of(editor, root.inputs[1]) != power:
            return None
    elif root.op != Activation("sqrt") or power != 0.5:
        return None
    total = plain(editor, root.inputs[0])
    if total is None or total.op != Binary("add"):
        found = _mean_square(editor, root.inputs[0])
        return None if found is None else replace(found, inside=(value, *found.inside))
    for mean, other in (total.inputs, total.inputs[::-1]):
        epsilon = number_of(editor, other)
        found = None if epsilon is None else _mean_square(editor, mean) or _by_moments(editor, mean)
        if found is not None and epsilon is not None:
            return replace(found, epsilon=epsilon, inside=(value, root.inputs[0], *found.inside))
    return None


@dataclass(frozen=True)
class Mean:
    """`times` the mean of `value` over `axes`, which are kept. `inside` are the values on the way, the last first."""

    value: str
    axes: tuple[int, ...]
    times: float
    inside: tuple[str, ...]


def mean_of(editor: GraphEditor, value: str) -> Mean | None:
    """The mean that the value is a multiple of: a mean or a sum, multiplied with numbers and divided by some. Where the
    reduction leaves its axes out, a reshape behind it puts them back, as exporters write torch.var and torch.sum."""
    inside, times, shape, name = list[str](), 1.0, editor.type(value).shape, value
    while True:
        node = plain(editor, name)
        if node is None:
            return None
        inside.append(name)
        match node.op:
            case Binary("mul" | "div" as function):
                number = number_of(editor, node.inputs[1])
                if number is None or number <= 0.0:
                    return None
                times *= number if function == "mul" else 1.0 / number
            case Reshape():
                pass
            case Reduce("mean" | "sum" as mode, axes) if axes:
                (source,) = node.inputs
                before = editor.type(source).shape
                if shape != tuple(1 if axis in axes else extent for axis, extent in enumerate(before)):
                    return None
                times *= prod(before[axis] for axis in axes) if mode == "sum" else 1.0
                return Mean(source, axes, 1.0 if isclose(times, 1.0, rel_tol=1e-6) else times, tuple(inside))
            case _:
                return None
        name = node.inputs[0]


def _mean_square(editor: GraphEditor, value: str) -> Root | None:
    """What `value` is the mean of squares of, times N and divided by N - 1 where torch.var estimates a variance."""
    mean = mean_of(editor, value)
    squared = None if mean is None else squared_in(editor, mean.value)
    if mean is None or squared is None:
        return None
    return Root(squared, mean.axes, 0.0, (*mean.inside, mean.value), mean.times)


def _by_moments(editor: GraphEditor, value: str) -> Root | None:
    """x - mean(x), where `value` is its mean square as Flax computes it: max(mean(x ** 2) - mean(x) ** 2, 0)."""
    inside: tuple[str, ...] = (value,)
    node = plain(editor, value)
    if node is not None and (node.op == Binary("max") or node.op == Activation("relu")):
        if node.op == Binary("max") and number_of(editor, node.inputs[1]) != 0.0:
            return None
        inside, node = (value, node.inputs[0]), plain(editor, node.inputs[0])
    if node is None or node.op != Binary("sub"):
        return None
    second, first = _mean_square(editor, node.inputs[0]), squared_in(editor, node.inputs[1])
    if second is None or second.times != 1.0 or first is None:
        return None
    mean = plain(editor, first)
    if mean is None or mean.op != Reduce("mean", second.axes) or mean.inputs[0] != second.squared:
        return None
    deviations = (each for each in editor.readers(first) if each.op == Binary("sub") and not each.epilogue)
    centred = next((each for each in deviations if each.inputs == (second.squared, first)), None)
    if centred is None:
        return None
    return replace(second, squared=centred.outputs[0], inside=(*inside, node.inputs[1], *second.inside))


def squared_in(editor: GraphEditor, value: str) -> str | None:
    node = plain(editor, value)
    if node is None or not isinstance(node.op, Binary):
        return None
    a, b = node.inputs
    if node.op.function == "mul" and a == b:
        return a
    return a if node.op.function == "pow" and number_of(editor, b) == 2.0 else None
