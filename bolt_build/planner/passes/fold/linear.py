"""Linear functions of single pixels that follow each other, and the one product with constant weights that they are."""

from __future__ import annotations

from math import prod

import numpy as np

from bolt_build.graph.ir import Array, Node
from bolt_build.graph.ops.moves.shape import Reshape
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.planner.passes.fold.channels import weight_obstacle
from bolt_build.planner.rewrite import GraphEditor


def is_of_points(editor: GraphEditor, node: Node) -> bool:
    """Whether a node is a convolution of single positions, or a product with a matrix of constants."""
    if isinstance(node.op, Conv):
        return prod(editor.type(node.inputs[1]).shape[2:]) == 1
    return isinstance(node.op, MatMul) and editor.type(node.inputs[1]).rank == 2


def linear_behind(editor: GraphEditor, value: str, images: int) -> tuple[Node, ...]:
    """The product or convolution with constant weights that alone reads a value of `images` images, each by itself,
    behind the reshapes between; nothing where another node reads it."""
    moves = list[Node]()
    while editor.not_private(value) is None and editor.readers(value):
        (node,) = editor.readers(value)
        if editor.type(value).shape[:1] != (images,) or node.inputs[0] != value or node.epilogue:
            return ()
        if not isinstance(node.op, Reshape):
            return (*moves, node) if _is_of_images(editor, node) else ()
        moves.append(node)
        (value,) = node.outputs
    return ()


def _is_of_images(editor: GraphEditor, node: Node) -> bool:
    """Whether a node multiplies each image by constants."""
    if not isinstance(node.op, Conv | MatMul) or weight_obstacle(editor, node) is not None:
        return False
    return isinstance(node.op, Conv) or (not node.op.transpose_a and prod(editor.type(node.inputs[0]).shape[1:-1]) == 1)


def composed(editor: GraphEditor, first: Node, behind: tuple[Node, ...]) -> tuple[Array, Array | None]:
    """Weights [outputs, inputs] and biases, in float64, of a product of points and the nodes behind it: what these make
    of the columns of its weights, as images."""
    columns = _through(editor, behind, _matrix(editor, first).T, biased=False)
    bias = _bias(editor, first)
    if bias is None and len(behind[-1].inputs) < 3:
        return columns.T, None
    shift = np.zeros(_matrix(editor, first).shape[0]) if bias is None else bias
    return columns.T, _through(editor, behind, shift[None], biased=True)[0]


def _through(editor: GraphEditor, nodes: tuple[Node, ...], rows: Array, *, biased: bool) -> Array:
    """What the nodes make of images, one a row."""
    value = rows
    for node in nodes:
        (output,) = node.outputs
        if isinstance(node.op, Reshape):
            value = value.reshape(len(rows), *editor.type(output).shape[1:])
            continue
        value = value.reshape(len(rows), *editor.type(node.inputs[0]).shape[1:])
        constants = [editor.constant(name) for name in node.inputs[1 : None if biased else 2]]
        arrays = [array.astype(np.float64) for array in constants if array is not None]
        (value,) = node.op.evaluate([value, *arrays])
    return value.reshape(len(rows), -1)


def _matrix(editor: GraphEditor, product: Node) -> Array:
    """Constant weights as [outputs, inputs] in float64."""
    weight = editor.constant(product.inputs[1])
    assert weight is not None
    flat = weight.astype(np.float64).reshape(weight.shape[:2])
    return flat.T if isinstance(product.op, MatMul) and not product.op.transpose_b else flat


def _bias(editor: GraphEditor, product: Node) -> Array | None:
    bias = editor.constant(product.inputs[2]) if len(product.inputs) > 2 else None
    return None if bias is None else bias.astype(np.float64)
