"""Reading attention's scores out of a graph: from the softmax's argument back to the product, and on to the values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isinf

from bolt_build.graph.ir import Node, Op
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.logic import Ask, Where
from bolt_build.graph.ops.moves.shape import Cast, Identity, Reshape, Slice, Transpose
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.planner.rewrite import GraphEditor

HIDES = -1e4
"""What hides a key when it stands in the place of a score: every power of e that is so much smaller is 0 in fp32."""

LEAST = -1e30
"""What no score changes when it is added to it."""


@dataclass(frozen=True)
class Mask:
    """What is added to scores of this `shape`: `factor` times the value; or, where `hidden` is a number, that number
    where the condition `value` is `where` and 0 elsewhere."""

    value: str
    shape: tuple[int, ...]
    hidden: float | None = None
    where: bool = False
    factor: float = 1.0

    def scaled(self, scale: float) -> Mask | None:
        """The mask times a number; None where that would hide other keys."""
        if self.hidden is None:
            return replace(self, factor=self.factor * scale)
        return self if isinf(self.hidden) and scale > 0.0 else None


@dataclass(frozen=True)
class Scores:
    """scale * factors * product + masks, the first mask added last. `factors` have one number for all scores of a
    matrix. `inside` are the values from the product to the softmax's argument. Where there is a `cap`, what masks are
    added to is cap * tanh(scale * factors * product / cap)."""

    product: Node
    scale: float
    masks: tuple[Mask, ...]
    inside: tuple[str, ...]
    factors: tuple[str, ...] = ()
    cap: float = 0.0


@dataclass(frozen=True)
class Shares:
    """Where the softmax's result goes: the node that multiplies it with attention's values, its input `values`.

    `inside` is what lies between. If `safe`, a row of NaN becomes zeros there. If `turned`, the node gives a column for
    each query. `zeroed` are conditions, each with the bool where shares become zeros.
    `column` is the one that is left out of them, the first (0) or the last (-1)."""

    product: Node
    values: int
    inside: tuple[str, ...]
    safe: bool
    turned: bool
    zeroed: tuple[tuple[str, bool], ...] = ()
    column: int | None = None


def number(editor: GraphEditor, value: str) -> float | None:
    """The number that a constant of one element is."""
    array = editor.constant(value)
    return float(array.reshape(-1)[0]) if array is not None and array.size == 1 else None


def scores_of(editor: GraphEditor, value: str) -> Scores | str:
    """The scores that are the softmax's argument `value`, or why it is none."""
    node = editor.producer(value)
    if node is None or node.epilogue:
        return f"the softmax's argument '{value}' is no product of queries and keys"
    inside, rest = (value,), node.inputs[0] if node.inputs else ""
    match node.op:
        case MatMul():
            if len(node.inputs) > 2:
                return f"'{node.name}' adds a bias to the product"
            return Scores(node, 1.0, (), inside)
        case Cast() | Identity() | Reshape() if _keeps_matrices(editor, node):
            return _behind(editor, rest, inside)
        case Binary(
            "mul" | "div",
        ):
            return _scaled(editor, node, inside)
        case Binary("add" | "sub"):
            return _masked(editor, node, inside)
        case Activation("tanh"):
            return _capped(_behind(editor, rest, inside))
        case Binary("max"):
            sides = [side for side in node.inputs if (number(editor, side) or 0.0) > LEAST]
            if len(sides) == 1:
                return _behind(editor, sides[0], inside)
        case Where():
            return _hidden(editor, node, inside)
    return f"the softmax's argument comes from '{node.name}', which {_does(node.op)}"


def _does(op: Op) -> str:
    word = getattr(op, "function", op.kind)
    return f"is a {word} and neither scales nor masks a product"


def _behind(
    editor: GraphEditor, value: str, inside: tuple[str, ...], scale: float = 1.0, mask: Mask | None = None
) -> Scores | str:
    """The scores behind one more step, which multiplies them or adds a mask."""
    found = scores_of(editor, value)
    if isinstance(found, str):
        return found
    scaled = [each if scale == 1.0 else each.scaled(scale) for each in found.masks]
    kept = tuple(each for each in scaled if each is not None)
    if len(kept) != len(found.masks):
        return f"'{found.masks[scaled.index(None)].value}' is scaled together with the scores"
    masks = kept if mask is None else (mask, *kept)
    if found.cap and scale <= 0.0:
        return f"scores that are capped are multiplied by {scale:g}"
    # Behind a cap a factor is one of the cap, and what is bounded stays what it is.
    bounded = replace(found, scale=found.scale * scale, cap=found.cap * scale)
    return replace(bounded, masks=masks, inside=(*inside, *found.inside))


def _capped(found: Scores | str) -> Scores | str:
    """The hyperbolic tangent of scores, which is 1 at most."""
    if isinstance(found, str):
        return found
    if found.masks or found.cap:
        return "a hyperbolic tangent bounds what is no scaled product alone"
    return replace(found, cap=1.0)


def _scaled(editor: GraphEditor, node: Node, inside: tuple[str, ...]) -> Scores | str:
    assert isinstance(node.op, Binary)
    a, b = node.inputs
    factor = number(editor, b)
    if factor is not None and node.op.function == "div" and factor != 0.0:
        return _behind(editor, a, inside, 1.0 / factor)
    if node.op.function == "mul":
        if factor is not None:
            return _behind(editor, a, inside, factor)
        if (factor := number(editor, a)) is not None:
            return _behind(editor, b, inside, factor)
        for value, other in (node.inputs, node.inputs[::-1]):
            if _is_of_matrices(editor, other, value):
                return _multiplied(_behind(editor, value, inside), other, editor.type(value).shape, editor)
    return f"the scores are multiplied in '{node.name}' with what is no number"


def _is_of_matrices(editor: GraphEditor, factor: str, value: str) -> bool:
    """Whether the factor has one number for each matrix of `value`, or for several."""
    shape, rank = editor.type(factor).shape, editor.type(value).rank
    return len(shape) in range(2, rank + 1) and shape[-2:] == (1, 1) and not editor.is_constant(value)


def _multiplied(found: Scores | str, factor: str, shape: tuple[int, ...], editor: GraphEditor) -> Scores | str:
    """Scores of this shape times a factor of each matrix."""
    if isinstance(found, str):
        return found
    if found.masks:
        return f"'{found.masks[0].value}' is scaled together with the scores"
    if found.cap:
        return f"'{factor}' multiplies scores that are capped"
    if editor.type(found.product.outputs[0]).shape != shape:
        return f"'{factor}' multiplies scores in other groups than '{found.product.name}' makes"
    return replace(found, factors=(*found.factors, factor))


def _masked(editor: GraphEditor, node: Node, inside: tuple[str, ...]) -> Scores | str:
    """Of the two sides of the sum the one that is made of a product, if the other one only broadcasts to it. Of a
    difference it is the first."""
    shape, reasons = editor.type(node.outputs[0]).shape, []
    less = node.op == Binary("sub")
    for value, other in (node.inputs,) if less else (node.inputs, node.inputs[::-1]):
        if editor.is_constant(value) or editor.type(value).shape != shape:
            continue
        found = _behind(editor, value, inside, mask=Mask(other, shape, factor=-1.0 if less else 1.0))
        if not isinstance(found, str):
            return found
        reasons.append(found)
    return reasons[0] if reasons else f"neither side of the sum '{node.name}' is a product of queries and keys"


def _hidden(editor: GraphEditor, node: Node, inside: tuple[str, ...]) -> Scores | str:
    condition, *sides = node.inputs
    shape = editor.type(node.outputs[0]).shape
    for where, (hidden, scores) in ((True, sides), (False, sides[::-1])):
        least = number(editor, hidden)
        if least is not None and least <= HIDES and editor.type(scores).shape == shape:
            return _behind(editor, scores, inside, mask=Mask(condition, shape, least, where))
    return f"'{node.name}' chooses between scores and what does not hide a key"


def _keeps_matrices(editor: GraphEditor, node: Node) -> bool:
    """Whether the node's result has the rows and columns of its input, in floating point."""
    before, after = editor.type(node.inputs[0]), editor.type(node.outputs[0])
    return before.shape[-2:] == after.shape[-2:] and before.rank > 1 and before.dtype.is_float and after.dtype.is_float


def shares_of(editor: GraphEditor, softmax: Node) -> Shares | str | None:
    """What the softmax's result is multiplied with; None where it is multiplied with nothing, or why not."""
    value, inside, safe, turned = softmax.outputs[0], list[str](), False, False
    zeroed: tuple[tuple[str, bool], ...] = ()
    column: int | None = None
    guard = _guard(editor, value)
    if guard is not None:
        safe, value = True, guard.outputs[0]
    while True:
        readers = editor.readers(value)
        if editor.is_output(value) or len(readers) != 1 or readers[0].inputs.count(value) > 1:
            products = [reader for reader in readers if isinstance(reader.op, MatMul)]
            return f"the shares: {editor.not_private(value)}" if products else None
        inside.append(value)
        node = readers[0]
        if node.epilogue:
            return None
        match node.op:
            case Cast() | Identity() | Reshape() if _keeps_matrices(editor, node):
                value = node.outputs[0]
            case Transpose(perm) if perm == _turn(len(perm)):
                turned, value = not turned, node.outputs[0]
            case Slice() if column is None and not turned and (left := _dropped(editor, node)) is not None:
                column, value = left, node.outputs[0]
                guard = _guard(editor, value)
                if guard is not None:
                    safe, value = True, guard.outputs[0]
            case Where() if not turned and (found := _zeroed(editor, node, value)) is not None:
                zeroed, value = (*zeroed, found), node.outputs[0]
            case MatMul() if len(node.inputs) == 2:
                if node.inputs[0] == value:
                    if node.op.transpose_a == turned:
                        return Shares(node, 1, tuple(inside), safe, False, zeroed, column)
                elif node.op.transpose_b != turned:
                    return Shares(node, 0, tuple(inside), safe, True, zeroed, column)
                return f"'{node.name}' sums over queries instead of keys"
            case _:
                return None


def _dropped(editor: GraphEditor, node: Node) -> int | None:
    """The column of shares that a slice leaves out: 0 the first, -1 the last, None where it does anything else."""
    shape, op = editor.type(node.inputs[0]).shape, node.op
    if not isinstance(op, Slice) or set(op.step) != {1} or op.count != (*shape[:-1], shape[-1] - 1):
        return None
    return 0 if op.begin[-1] == 1 else -1


def _zeroed(editor: GraphEditor, node: Node, value: str) -> tuple[str, bool] | None:
    """The condition and the bool where the node has zeros instead of the value."""
    condition, *sides = node.inputs
    if editor.type(node.outputs[0]).shape != editor.type(value).shape:
        return None
    for where, (zero, other) in ((True, sides), (False, sides[::-1])):
        if other == value and number(editor, zero) == 0.0:
            return condition, where
    return None


def _turn(rank: int) -> tuple[int, ...]:
    """The order that exchanges the last two axes."""
    return (*range(rank - 2), rank - 1, rank - 2)


def _guard(editor: GraphEditor, value: str) -> Node | None:
    """The node that replaces what is NaN in `value` by zeros, where nobody else reads it."""
    if editor.is_output(value):
        return None
    readers = editor.readers(value)
    asks = [reader for reader in readers if reader.op == Ask("nan")]
    chosen = [reader for reader in readers if isinstance(reader.op, Where)]
    if len(readers) != 2 or len(asks) != 1 or len(chosen) != 1 or editor.not_private(asks[0].outputs[0]) is not None:
        return None
    condition, hidden, other = chosen[0].inputs
    same = condition == asks[0].outputs[0] and other == value
    return chosen[0] if same and number(editor, hidden) == 0.0 else None
