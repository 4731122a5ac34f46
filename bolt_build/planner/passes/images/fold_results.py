"""Computes windows of few filters for eight neighbours at once, on GPUs whose tiles have many columns: each filter
becomes one for every neighbour, shifted by it, and the window moves by eight. Networks that make images end so.

A tile of `mma.sync` has 32 columns at least. Of three filters it has three results, and reads a window of nine by nine
for each of them. Eight neighbours have 24 results, and together a window of nine by sixteen: a quarter of the products.
Hopper has tiles of fewer columns, and kernels whose sums roll over rows.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bolt_build.graph.arrays import held_dtype
from bolt_build.graph.ir import Array, Graph, Node, Op
from bolt_build.graph.ops.moves.rearrange import Rearrange
from bolt_build.graph.ops.moves.shape import Slice
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.planner.passes.base import Journal, Pass, PassResult, on_tensor_cores
from bolt_build.planner.rewrite import GraphEditor
from bolt_build.targets import Target

_EACH = 8
"""Neighbours whose results become channels."""
_COLUMNS = 32
"""Of the smallest tile."""
_GAIN = 1.5
"""How many times fewer products pay for a movement behind them."""
_FEW, _CHANNELS = 1 << 18, 8
"""Results of which a kernel takes little longer than what moves them. So few channels are no whole load: other kernels
read their windows."""
SUFFIX = ".neighbours"
"""Behind the name of a weight for several neighbours."""


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(FOLD_RESULTS.name)
    for node in editor.nodes():
        op = node.op
        if not isinstance(op, Conv) or op.groups != 1 or len(op.strides) != 2:
            continue
        filters, channels, *kernel = editor.type(node.op_inputs[1]).shape
        if channels < _CHANNELS or gain(filters, kernel[-1]) < _GAIN:
            continue
        obstacle = _obstacle(editor, node, op)
        if obstacle is not None:
            journal.declined(node.name, obstacle)
            continue
        _fold(editor, node, op)
        reason = f"{filters} filters leave most columns of a tile idle"
        journal.did(node.name, f"made channels of the results of {_EACH} columns", reason)
    return journal.result(editor.finish())


def gain(filters: int, taps: int) -> float:
    """How many times the columns of tiles that are multiplied for a result become fewer."""
    before = -(-filters // _COLUMNS) * _COLUMNS * taps
    return before * _EACH / (-(-filters * _EACH // _COLUMNS) * _COLUMNS * (taps + _EACH - 1))


def _obstacle(editor: GraphEditor, node: Node, op: Conv) -> str | None:
    """Why the convolution stays as it is."""
    if not all(map(editor.is_constant, node.op_inputs[1:])):
        return "its weights are computed"
    if op.strides[-1] != 1 or op.dilations[-1] != 1:
        return "its windows move by several columns, or leave some out"
    if any(stage.operand is not None for stage in node.epilogue):
        return "its epilogue reads another tensor"
    if editor.type(node.outputs[0]).elements < _FEW:
        return f"it leaves {editor.type(node.outputs[0]).elements} results, {_FEW} at least are worth it"
    return None


def _fold(editor: GraphEditor, node: Node, op: Conv) -> None:
    made = list[Node]()

    def add(what: str, op: Op, value: str) -> str:
        (type_,) = op.infer([editor.type(value)])
        label = f"{node.name}.{what}"
        result, name = editor.new_value(label, type_), editor.free_node_name(label)
        made.append(Node(name, op, (value,), (result,)))
        return result

    x, wanted = editor.type(node.inputs[0]).shape, editor.type(node.outputs[0]).shape
    weights, *biases = node.op_inputs[1:]
    filters, _, _, taps = editor.type(weights).shape
    blocks = -(-wanted[-1] // _EACH)
    behind = blocks * _EACH + taps - 1 - x[-1] - op.pads_begin[-1]
    inputs = [node.inputs[0], _constant(editor, weights, _shifted(editor, weights))]
    for name in biases:
        bias = editor.constant(name)
        assert bias is not None
        inputs.append(_constant(editor, name, np.tile(bias, _EACH)))
    flat = replace(op, strides=(*op.strides[:-1], _EACH), pads_end=(*op.pads_end[:-1], behind))
    (type_,) = flat.infer([editor.type(name) for name in inputs])
    wide = editor.new_value(f"{node.name}.wide", type_)
    name = editor.free_node_name(f"{node.name}.wide")
    made.append(replace(node, name=name, op=flat, inputs=tuple(inputs), outputs=(wide,)))
    batch, _, rows, _ = type_.shape
    whole = (batch, filters, rows, blocks * _EACH)
    value = add("apart", Rearrange((batch, _EACH, filters, rows, blocks), (0, 2, 3, 4, 1), whole, 0, whole), wide)
    if whole != wanted:
        add("kept", Slice((0,) * 4, wanted, (1,) * 4), value)
    made[-1] = replace(made[-1], name=node.name, outputs=node.outputs)
    editor.replace(node, *made)


def _shifted(editor: GraphEditor, name: str) -> Array:
    """[F,C,rows,taps] as [8 * F,C,rows,taps + 7]: filter o * F + f has tap k at o + k."""
    weights = editor.constant(name)
    assert weights is not None
    *lead, taps = weights.shape
    wide = np.zeros((_EACH, *lead, taps + _EACH - 1), weights.dtype)
    for o in range(_EACH):
        wide[o, ..., o : o + taps] = weights
    return wide.reshape(-1, *wide.shape[2:])


def _constant(editor: GraphEditor, name: str, array: Array) -> str:
    dtype = editor.type(name).dtype
    return editor.new_constant(f"{name}{SUFFIX}", array.astype(held_dtype(dtype)), dtype)


def _has_wide_tiles(target: Target, precision: str) -> bool:
    """Whether tensor cores multiply in tiles of many columns alone."""
    return on_tensor_cores(target, precision) and target.gpu is not None and not target.gpu.warpgroup_mma


FOLD_RESULTS = Pass("fold-results", _run, pays_on=_has_wide_tiles)
