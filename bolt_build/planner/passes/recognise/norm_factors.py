"""LayerNorm as Keras computes it: x times a factor that has the scale in it, and a shift that has the bias in it."""

from __future__ import annotations

from dataclasses import dataclass

from bolt_build.graph.ir import Node, ShapeError
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.graph.ops.operands import broadcast
from bolt_build.planner.passes.recognise.norm_parts import Root, plain, reciprocal_of, root_of
from bolt_build.planner.rewrite import GraphEditor


@dataclass(frozen=True)
class Spread:
    """The normalisation, and x with the scale and the bias."""

    op: Norm
    inputs: tuple[str, ...]


@dataclass(frozen=True)
class _Shift:
    """The parts of bias - mean * factor, and the nodes that compute it; a bias of zero may be left out."""

    mean: str
    factor: str
    bias: tuple[str, ...]
    nodes: tuple[Node, ...]


def spread(editor: GraphEditor, node: Node) -> Spread | None:
    """What the sum `node` is of: x * f and bias - mean(x) * f, where f is scale / root of the mean square."""
    for product, shift in (node.inputs, node.inputs[::-1]):
        above, below = plain(editor, product), _shift(editor, shift)
        if above is None or above.op != Binary("mul") or below is None or below.factor not in above.inputs:
            continue
        x = above.inputs[1 if above.inputs[0] == below.factor else 0]
        found = _scaled_root(editor, below.factor)
        if found is None or not _is_deviation(editor, found[0], x, below.mean):
            continue
        root, scale, more = found
        if below.bias and not scale:
            continue
        made = (editor.producer(each) for each in root.inside)
        inside = [above, *below.nodes, *more, *(each for each in made if each is not None)]
        if _alone(editor, node, inside) and _fit(editor, x, (*scale, *below.bias)):
            return Spread(Norm("variance", root.axes, root.epsilon), (x, *scale, *below.bias))
    return None


def _shift(editor: GraphEditor, value: str) -> _Shift | None:
    """Which b - m * f the value is; it may be written b + -m * f."""
    node = plain(editor, value)
    if node is None or not isinstance(node.op, Binary):
        return None
    if node.op.function == "mul":
        return _negative(editor, node)
    if node.op.function == "sub" and editor.is_constant(node.inputs[0]):
        product = plain(editor, node.inputs[1])
        if product is None or product.op != Binary("mul"):
            return None
        for first, factor in (product.inputs, product.inputs[::-1]):
            if _is_mean(editor, first):
                return _Shift(first, factor, node.inputs[:1], (node, product))
    if node.op.function == "add":
        for moved, bias in (node.inputs, node.inputs[::-1]):
            product = plain(editor, moved)
            found = _negative(editor, product) if product is not None and editor.is_constant(bias) else None
            if found is not None:
                return _Shift(found.mean, found.factor, (bias,), (node, *found.nodes))
    return None


def _negative(editor: GraphEditor, product: Node) -> _Shift | None:
    """Which -m * f the node is."""
    if product.op != Binary("mul"):
        return None
    for first, factor in (product.inputs, product.inputs[::-1]):
        negative = plain(editor, first)
        if negative is not None and negative.op == Activation("neg"):
            return _Shift(negative.inputs[0], factor, (), (product, negative))
    return None


def _is_mean(editor: GraphEditor, value: str) -> bool:
    node = plain(editor, value)
    return node is not None and isinstance(node.op, Reduce) and node.op.mode == "mean"


def _scaled_root(editor: GraphEditor, value: str) -> tuple[Root, tuple[str, ...], list[Node]] | None:
    """The root below the fraction line of f, the constant above it where that is not 1, and the nodes between."""
    node = plain(editor, value)
    if node is None:
        return None
    sides: list[tuple[str, tuple[str, ...]]] = [(value, ())]
    if node.op == Binary("mul"):
        sides += [(a, (b,)) for a, b in (node.inputs, node.inputs[::-1]) if editor.is_constant(b)]
    for factor, scale in sides:
        below, inverse = reciprocal_of(editor, factor), editor.producer(factor)
        root = None if below is None else root_of(editor, below)
        if root is not None and inverse is not None and root.times == 1.0:
            return root, scale, [node, inverse]
    return None


def _is_deviation(editor: GraphEditor, root: Root, x: str, mean: str) -> bool:
    """Whether the root is of x less `mean`, its mean over the same axes."""
    centred, average = plain(editor, root.squared), plain(editor, mean)
    if centred is None or average is None or centred.op != Binary("sub") or centred.inputs != (x, mean):
        return False
    return average.op == Reduce("mean", root.axes) and average.inputs == (x,)


def _alone(editor: GraphEditor, last: Node, inside: list[Node]) -> bool:
    """Whether nobody else reads what the nodes leave."""
    names = {last.name, *(node.name for node in inside)}
    values = [node.outputs[0] for node in inside]
    return all(
        not editor.is_output(value) and all(reader.name in names for reader in editor.readers(value))
        for value in values
    )


def _fit(editor: GraphEditor, x: str, constants: tuple[str, ...]) -> bool:
    shape = editor.type(x).shape
    try:
        return all(broadcast(shape, editor.type(name).shape) == shape for name in constants)
    except ShapeError:
        return False
