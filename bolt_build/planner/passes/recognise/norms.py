"""Recognises normalisations that a model spells out in arithmetic: over variance (LayerNorm) and root mean square."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import numpy as np

from bolt_build.dtypes import PRECISIONS
from bolt_build.graph.arrays import held_dtype, narrowed
from bolt_build.graph.ir import Array, Graph, Node, ShapeError
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.graph.ops.operands import broadcast
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.recognise.norm_factors import Spread, spread
from bolt_build.planner.passes.recognise.norm_parts import Root, inverse_root_of, mean_of, number_of, plain, root_of
from bolt_build.planner.rewrite import GraphEditor, joined

_LENGTHS = {"l1": "x / max(sum(abs(x)), epsilon)", "l2": "x / max(sqrt(sum(x ** 2)), epsilon)"}
_BARE_LENGTHS = {"l1": "x / sum(abs(x))", "l2": "x / sqrt(sum(x ** 2))"}
_FORMULAS = {
    "variance": "(x - mean(x)) / sqrt(mean((x - mean(x)) ** 2) + epsilon)",
    "deviation": "x / sqrt(mean((x - mean(x)) ** 2) + epsilon)",
    "rms": "x / sqrt(mean(x ** 2) + epsilon)",
    "spread": "x * f + (bias - mean(x) * f), f = scale / sqrt(mean((x - mean(x)) ** 2) + epsilon)",
}
_NAMES = {"variance": "layer norm", "deviation": "norm by deviation", "rms": "rms norm"}
_SHORTEST = 1e-8
"""No row of numbers in any precision that is not zeros alone is as short: the least of fp16 is 6e-8."""
_LEAST = float(np.finfo(np.float32).tiny)
"""What is added to a mean square so that it is never 0, at least: fp32 has a smaller square of an epsilon as 0."""
_ENDLESS = 3e38
"""A bound of a clip that exporters write where there is none."""


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(RECOGNISE_NORMS.name)
    for old in editor.nodes():
        node = editor.node(old.name)
        if node is None or node.epilogue or not isinstance(node.op, Binary):
            continue
        if node.op.function == "add":
            found_apart = spread(editor, node)
            if found_apart is not None and _keeps_type(editor, node, found_apart.inputs[0]):
                _gather(editor, journal, node, found_apart)
            continue
        if node.op.function not in ("mul", "div"):
            continue
        if node.op.function == "div" and _divided_by_length(editor, journal, node):
            continue
        found = _quotient(editor, node)
        if found is None or not _keeps_type(editor, node, found[0]):
            continue
        above, root = found
        reason = next((why for name in root.inside if (why := editor.not_private(name)) is not None), None)
        if reason is not None and above != root.squared:
            continue  # the factor of a layer norm whose shift is another's (`spread`)
        if reason is not None:
            journal.declined(node.name, f"{_FORMULAS['rms']}: {reason}")
            continue
        _replace(editor, journal, node, above, root)
    return journal.result(editor.finish())


def _keeps_type(editor: GraphEditor, node: Node, x: str) -> bool:
    """Whether the result has x's axes: a number of several axes gives it more than a normalisation leaves."""
    return editor.type(node.outputs[0]) == editor.type(x)


def _divided_by_length(editor: GraphEditor, journal: Journal, node: Node) -> bool:
    """Makes one normalisation of a division by a sum of magnitudes or a root of squares, which may be an epsilon at
    least."""
    above, below = node.inputs
    if editor.type(above).dtype not in PRECISIONS.values() or not _keeps_type(editor, node, above):
        return False
    clipped = plain(editor, below)
    epsilon = None if clipped is None else _least(editor, clipped)
    bare = below if clipped is None or epsilon is None else clipped.inputs[0]
    length = plain(editor, bare)
    if length is None or not isinstance(length.op, Reduce) or not length.op.keepdims or not length.op.axes:
        return False
    mode, (x,), inside = length.op.mode, length.inputs, [below]
    magnitude = plain(editor, x) if mode == "sum" else None
    if magnitude is not None and magnitude.op == Activation("abs"):
        mode, (x,) = "l1", magnitude.inputs
        inside += length.inputs
    if mode not in _LENGTHS:
        return False
    scales = list[str]()
    if above != x:
        scale = _multiplied_with(editor, above, x)
        if scale is None:
            return False
        scales.append(scale)
    words = (_BARE_LENGTHS if epsilon is None else _LENGTHS)[mode]
    private = (*dict.fromkeys((*inside, bare)), *((above,) if scales else ()))
    reason = next((why for name in private if (why := editor.not_private(name)) is not None), None)
    if reason is not None:
        journal.declined(node.name, f"{words}: {reason}")
        return True
    op = Norm(mode, length.op.axes, epsilon or 0.0)
    made = replace(node, op=op, inputs=(x, *scales))
    editor.replace(node, made)
    made = _covering(editor, made, list(editor.prune(node.inputs)))
    journal.did(node.name, f"recognised {mode} norm", words + (", with a scale" if scales else ""))
    _as_root_mean_square(editor, journal, made, op)
    return True


def _multiplied_with(editor: GraphEditor, value: str, x: str) -> str | None:
    """The constant that the value is x times, where it has x's shape."""
    node = plain(editor, value)
    if node is None or node.op != Binary("mul") or x not in node.inputs or editor.type(value) != editor.type(x):
        return None
    other = node.inputs[1 if node.inputs[0] == x else 0]
    return other if editor.is_constant(other) else None


def _as_root_mean_square(editor: GraphEditor, journal: Journal, node: Node, op: Norm) -> None:
    """Makes RMSNorm of rows that are divided by their length and scaled element by element: the scale takes the root of
    how many elements there are. The epsilon is one that no row is as short as."""
    rank = editor.type(node.outputs[0]).rank
    if op.statistic != "l2" or op.axes != (rank - 1,) or op.epsilon > _SHORTEST:
        return
    length, dtype = editor.type(node.outputs[0]).shape[-1], editor.type(node.outputs[0]).dtype
    scales, last, covers = [editor.constant(name) for name in node.inputs[1:]], node, [node.covers]
    if not all(map(_has_elements, scales)):
        return
    while True:
        reader, operand = _constant_behind(editor, last, "mul")
        array = None if operand is None else editor.constant(operand)
        if reader is None or not _has_elements(array):
            break
        scales.append(array)
        covers.append(reader.covers)
        last = reader
    arrays = [array.astype(np.float64).reshape(-1) for array in scales if array is not None]
    if not any(array.size == length for array in arrays):
        return
    scale = np.full(length, 1.0 / sqrt(length))
    for array in arrays:
        scale = scale * array
    named = editor.new_constant(f"{last.name}.scale", narrowed(scale, held_dtype(dtype)), dtype)
    inputs = node.inputs[0], named
    epsilon = max(op.epsilon**2 / length, _LEAST) if op.epsilon else 0.0
    made = replace(last, op=Norm("rms", op.axes, epsilon), inputs=inputs, covers=joined(*covers))
    editor.replace(last, made)
    editor.prune(last.inputs)
    journal.did(last.name, "recognised rms norm", f"{_LENGTHS['l2']}, with a scale for each of {length} elements")


def _has_elements(scale: Array | None) -> bool:
    """Whether a scale is one number, or one for each element of a row."""
    return scale is not None and scale.size == max((1, *scale.shape[-1:]))


def _least(editor: GraphEditor, node: Node) -> float | None:
    """The positive number that the node's result is at least; None where it does something else."""
    if isinstance(node.op, Activation) and node.op.function == "clip" and node.op.beta >= _ENDLESS:
        least: float | None = float(str(np.float32(node.op.alpha)))
    elif node.op == Binary("max"):
        least = number_of(editor, node.inputs[1])
    else:
        return None
    return least if least is not None and least > 0.0 else None


def _replace(editor: GraphEditor, journal: Journal, node: Node, above: str, root: Root) -> None:
    x = _centred(editor, root.squared, root)
    statistic, source = ("rms", above) if x is None else ("deviation" if above == x else "variance", x)
    op = Norm(statistic, root.axes, root.epsilon / root.times)
    made = replace(node, op=op, inputs=(source,))
    editor.replace(node, made)
    removed = list(editor.prune(node.inputs))
    made = _covering(editor, made, removed)
    for function in ("mul", "add"):
        reader, operand = _constant_behind(editor, made, function)
        if function == "mul" and operand is None and root.times != 1.0:
            scaled = replace(made, inputs=(*made.inputs, _own_scale(editor, made, op, root.times)))
            editor.replace(made, scaled)
            made = scaled
            continue
        if reader is None or operand is None:
            break
        editor.remove(made)
        if function == "mul" and root.times != 1.0:
            operand = _over_root(editor, operand, root.times)
        wider = replace(
            reader, op=op, inputs=(*made.inputs, operand), covers=joined(made.covers, reader.covers),
        )  # fmt: skip
        editor.replace(reader, wider)
        made = wider
    words = {1: "", 2: ", with a scale", 3: ", with scale and bias"}[len(made.inputs)]
    formula = _FORMULAS[statistic] if root.epsilon else _FORMULAS[statistic].replace(" + epsilon", "")
    journal.did(made.name, f"recognised {_NAMES[statistic]}", formula + words)


def _own_scale(editor: GraphEditor, node: Node, op: Norm, times: float) -> str:
    """The scale of a norm that takes the root of a number, where the model has none: of each element of a row."""
    type_ = editor.type(node.outputs[0])
    shape = type_.shape[-1:] if op.axes == (type_.rank - 1,) else ()
    scale = np.full(shape, 1.0 / sqrt(times))
    return editor.new_constant(f"{node.name}.scale", narrowed(scale, held_dtype(type_.dtype)), type_.dtype)


def _over_root(editor: GraphEditor, scale: str, times: float) -> str:
    """A scale over the root of a number: computed in float64, rounded once."""
    array, dtype = editor.constant(scale), editor.type(scale).dtype
    assert array is not None
    return editor.new_constant(
        f"{scale}.norm", narrowed(array.astype(np.float64) / sqrt(times), held_dtype(dtype)), dtype
    )


def _gather(editor: GraphEditor, journal: Journal, node: Node, found: Spread) -> None:
    """Makes one normalisation of a factor and a shift of x."""
    made = replace(node, op=found.op, inputs=found.inputs)
    editor.replace(node, made)
    _covering(editor, made, list(editor.prune(node.inputs)))
    journal.did(node.name, "recognised layer norm", _FORMULAS["spread"])


def _covering(editor: GraphEditor, node: Node, removed: list[Node]) -> Node:
    covering = replace(node, covers=joined(*(n.covers for n in removed), node.covers))
    editor.replace(node, covering)
    return covering


def _quotient(editor: GraphEditor, node: Node) -> tuple[str, Root] | None:
    """(d, root) where the node is d / root, or d times what 1 / root is."""
    a, b = node.inputs
    assert isinstance(node.op, Binary)
    if node.op.function == "div":
        root = root_of(editor, b)
        return (a, root) if root is not None and _is_numerator(editor, a, root) else None
    for d, factor in ((a, b), (b, a)):
        root = inverse_root_of(editor, factor)
        if root is not None and _is_numerator(editor, d, root):
            return d, root
    return None


def _is_numerator(editor: GraphEditor, value: str, root: Root) -> bool:
    """Whether a value is what the root squares, or what that is less its mean. A model may subtract it twice."""
    x = _centred(editor, root.squared, root)
    return value in (root.squared, x) or (x is not None and x == _centred(editor, value, root))


def _centred(editor: GraphEditor, value: str, root: Root) -> str | None:
    """x where the value is x less its mean over the same axes, and only the formula reads it."""
    node = plain(editor, value)
    if node is None or node.op != Binary("sub") or editor.is_output(value) or len(editor.readers(value)) > 2:
        return None
    mean = mean_of(editor, node.inputs[1])
    if mean is None or (mean.value, mean.axes, mean.times) != (node.inputs[0], root.axes, 1.0):
        return None
    return node.inputs[0]


def _constant_behind(editor: GraphEditor, node: Node, function: str) -> tuple[Node | None, str | None]:
    """The only reader of the node where it multiplies with, or adds, a constant; and that constant."""
    value = node.outputs[0]
    if editor.not_private(value) is not None:
        return None, None
    readers = editor.readers(value)
    if len(readers) != 1 or readers[0].epilogue or readers[0].op != Binary(function):
        return None, None
    operand = next(name for name in readers[0].inputs if name != value)
    shape = editor.type(value).shape
    try:
        fits = broadcast(shape, editor.type(operand).shape) == shape
    except ShapeError:
        fits = False
    return (readers[0], operand) if fits and editor.is_constant(operand) else (None, None)


RECOGNISE_NORMS = Pass("recognise-norms", _run)
