"""Makes one step of products of rows with weights, of which constant indices pick for every pair of a row and a column,
and the sum of these.

`add-pairs` leaves DeBERTa's relative positions as two products and a sum that picks of both: products with all
positions are stored, and read here and there. Neighbouring pairs name the same few positions. So a kernel of tensor
cores computes a tile's pairs from the rows and the weights that they name, and stores nothing but their sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from math import prod

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.arrays import held_dtype
from bolt_build.graph.ir import Array, Graph, Node, ShapeError
from bolt_build.graph.ops.elementwise.pair_sum import PairSum, PairTerm
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.graph.ops.products.pair_product import LINES, PLACES, TERMS, PairProduct, groups
from bolt_build.graph.ops.products.placed_matmul import Move, PlacedMatMul
from bolt_build.planner.passes.base import Journal, Pass, PassResult, on_tensor_cores
from bolt_build.planner.rewrite import GraphEditor, joined

REACH, SPAN = 80, 128
"""Positions that the lines of a group name together, and those of a tile, at most: what kernels have room for."""
_TOGETHER = PLACES // LINES
"""Groups of lines of a tile."""
_DEEPEST, _LOAD = 128, 8
"""Numbers of a row, and how many are loaded at once."""


@dataclass(frozen=True)
class _Picked:
    """A term whose data a product makes, of rows with weights [..., positions, depth]."""

    product: Node
    move: Move
    weights: Array
    least: Array
    more: Array


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(MULTIPLY_PAIRS.name)
    for old in editor.nodes():
        node = editor.node(old.name)
        if node is not None and isinstance(node.op, PairSum) and not node.epilogue:
            _multiply(editor, journal, node, node.op)
    return journal.result(editor.finish())


def _multiply(editor: GraphEditor, journal: Journal, node: Node, op: PairSum) -> None:
    terms = tuple(op.terms)
    if not any(_product(editor, node, term) is not None for term in terms):
        return
    if len(terms) > TERMS:
        journal.declined(node.name, f"{len(terms)} terms; one kernel multiplies {TERMS}")
        return
    found = list[_Picked]()
    for term in terms:
        picked = _picked(editor, node, op, term)
        if isinstance(picked, str):
            journal.declined(node.name, picked)
            return
        found.append(picked)
    made = PairProduct(op.shape, tuple(each.move for each in found), op.turned, op.multipliers)
    covers = joined(*(each.product.covers for each in found), node.covers)
    new = Node(node.name, made, _inputs(editor, found), node.outputs, covers=covers)
    try:
        made.infer([editor.type(name) for name in new.inputs])
    except ShapeError as error:
        journal.declined(node.name, str(error))
        return
    for each in found:
        editor.remove(each.product)
    editor.replace(node, new)
    editor.prune(chain(node.inputs, *(each.product.inputs for each in found)))
    names = ", ".join(f"'{each.product.name}'" for each in found)
    journal.did(node.name, "multiplied", f"computes what its pairs pick of {names}, and stores none of these")


def _product(editor: GraphEditor, node: Node, term: PairTerm) -> tuple[Node, PlacedMatMul] | None:
    """The product that makes a term's data, of which nothing but the term reads anything."""
    value = node.inputs[term.data]
    made = editor.producer(value)
    if term.indices is None or made is None or editor.not_private(value) is not None:
        return None
    if made.epilogue or len(made.inputs) != 2:
        return None
    shapes = [editor.type(name).shape for name in (*made.inputs, value)]
    match made.op:
        case PlacedMatMul():
            return made, made.op
        case MatMul(transpose_a=False) if len(shapes[1]) > 2:
            right = (*range(len(shapes[1]) - 2), len(shapes[1]) - 1, len(shapes[1]) - 2)
            turned = (shapes[1], right, tuple(shapes[1][axis] for axis in right))
            return made, PlacedMatMul(
                _same(shapes[0]), turned if made.op.transpose_b else _same(shapes[1]), _same(shapes[2])
            )
    return None


def _same(shape: tuple[int, ...]) -> Move:
    return shape, tuple(range(len(shape))), shape


def _picked(editor: GraphEditor, node: Node, op: PairSum, term: PairTerm) -> _Picked | str:
    found = _product(editor, node, term)
    if found is None or term.indices is None:
        return f"'{node.inputs[term.data]}' is no product that indices alone read"
    product, placed = found
    weights, indices = editor.constant(product.inputs[1]), editor.constant(node.inputs[term.indices])
    if weights is None or indices is None:
        return f"'{product.inputs[1]}' is no constant"
    *front, lines, places = op.lines(term)
    positions, depth = placed.right[2][-1], placed.right[2][-2]
    if depth > _DEEPEST or depth % _LOAD:
        return f"rows of {depth} numbers; a kernel multiplies multiples of {_LOAD} up to {_DEEPEST}"
    moved = _moved(placed, (*front, lines), editor.type(product.outputs[0]).shape)
    matrices = _matrices(placed, weights, tuple(front))
    if moved is None or matrices is None:
        return f"the matrices of '{product.name}' are not those of its sum"
    own = np.where(indices < 0, indices + positions, indices).astype(np.int64)
    least = _least(own, lines, places)
    more = own - least.repeat(LINES, 0)[:lines].repeat(PLACES, 1)[:, :places]
    tiles = [least[at : at + _TOGETHER] for at in range(0, len(least), _TOGETHER)]
    apart = max(int((tile.max(0) - tile.min(0)).max()) for tile in tiles)
    if more.max() >= REACH or apart > SPAN - REACH:
        return f"neighbouring pairs name positions {max(int(more.max()), apart)} apart"
    pairs = more.T if term.turned else more
    return _Picked(product, moved, matrices, least.astype(np.int32), np.ascontiguousarray(pairs.astype(np.uint8)))


def _least(indices: Array, lines: int, places: int) -> Array:
    """Of each group of lines and places."""
    down, across = groups(lines, places)
    padded = np.pad(indices, ((0, down * LINES - lines), (0, across * PLACES - places)), mode="edge")
    return np.asarray(padded.reshape(down, LINES, across, PLACES).min((1, 3)))


def _moved(op: PlacedMatMul, lines: tuple[int, ...], made: tuple[int, ...]) -> Move | None:
    """What makes the sum's lines of the product's rows; None where its result is moved, or rows are parts of others."""
    _, perm, whole = op.made
    still = perm == tuple(range(len(perm))) and whole[-2:] == op.product[-2:] == (lines[-1], made[-1])
    if not still or op.left[2][-2] != lines[-1] or prod(op.left[2][:-2]) != prod(lines[:-1]):
        return None
    return (*op.left[:2], (*lines, op.left[2][-1]))


def _matrices(op: PlacedMatMul, weights: Array, front: tuple[int, ...]) -> Array | None:
    """The weights as [..., positions, depth], in axes that broadcast to those in front."""
    split, perm, whole = op.right
    if prod(whole[:-2]) == prod(front):
        whole = (*front, *whole[-2:])
    elif len(whole) - 2 > len(front) or any(
        extent not in (1, own) for extent, own in zip(whole[-3::-1], front[::-1], strict=False)
    ):
        return None
    found = weights.reshape(split).transpose(perm).reshape(whole)
    return np.ascontiguousarray(np.swapaxes(found, -1, -2))


def _inputs(editor: GraphEditor, found: Sequence[_Picked]) -> tuple[str, ...]:
    names, picks = list[str](), list[str]()
    for each in found:
        rows, weights = each.product.inputs
        dtype = editor.type(weights).dtype
        held = each.weights.astype(held_dtype(dtype), copy=False)
        names += [rows, editor.new_constant(f"{weights}.positions", held, dtype)]
        picks.append(editor.new_constant(f"{each.product.name}.least", each.least, DType.I32))
        picks.append(editor.new_constant(f"{each.product.name}.more", each.more, DType.U8))
    return (*names, *picks)


MULTIPLY_PAIRS = Pass("multiply-pairs", _run, pays_on=on_tensor_cores)
