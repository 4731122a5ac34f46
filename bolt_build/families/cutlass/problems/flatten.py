"""A flattened image and the matrix product behind it as one product over the image as it lies, channels last.

The product's depth counts pixels and their channels in the order of memory, and weights are packed to match: nothing
has to put the image into the order that flattening asks for.
"""

from __future__ import annotations

from math import prod

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, Operand, ProposedStep, TensorFormat
from bolt_build.families.common.problems import problem_of
from bolt_build.graph.ir import Graph, Layout, Node
from bolt_build.graph.ops.moves.shape import Reshape
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.targets import Target


def reader(graph: Graph, node: Node) -> Node | str | None:
    """The matrix product behind a reshape that flattens an image; why there is none that could take the image as it
    lies; or None where the reshape flattens no image of several pixels and channels."""
    before, after = graph.type(node.inputs[0]).shape, graph.type(node.outputs[0]).shape
    if not isinstance(node.op, Reshape) or len(before) not in (3, 4) or after != (before[0], prod(before[1:])):
        return None
    if before[1] == 1 or prod(before[2:]) == 1 or node.epilogue or graph.constant(node.inputs[0]) is not None:
        return None
    readers = [each for each in graph.nodes if node.outputs[0] in each.inputs]
    if node.outputs[0] in graph.outputs or len(readers) != 1:
        return "what it flattens is read flat by others than one matrix product"
    (product,) = readers
    if not isinstance(product.op, MatMul) or product.inputs[0] != node.outputs[0]:
        return f"what it flattens is read by '{product.name}', {product.op.kind}"
    if product.inputs.count(node.outputs[0]) != 1 or product.op.transpose_a:
        return "the matrix product does not read it as rows alone"
    if graph.constant(product.inputs[1]) is None or graph.type(product.inputs[1]).rank != 2:
        return "the B operand is no constant matrix"
    if not product.op.transpose_b:
        return "the B operand is stored by rows of the image, not by columns of the result"
    return product


def problem(graph: Graph, node: Node, product: Node, target: Target, precision: DType) -> KernelProblem:
    """The two nodes as one convolution whose window is the whole image."""
    layouts = tuple(Layout.ROW for _ in product.inputs)
    flat = problem_of(graph, product, target, precision, layouts, Layout.ROW)
    image = graph.type(node.inputs[0]).shape
    outputs = flat.outputs[0].shape[1]
    ones = (1,) * (len(image) - 2)
    last = TensorFormat(precision, Layout.CHANNELS_LAST)
    op = Conv(ones, (0,) * len(ones), (0,) * len(ones), ones)
    operands = [
        Operand(image, last),
        Operand((outputs, *image[1:]), flat.inputs[1].format, constant=True),
        *(_beside(operand, image, outputs, last) for operand in flat.inputs[2:]),
    ]
    y = Operand((image[0], outputs, *ones), last)
    return KernelProblem(op, tuple(operands), (y,), flat.epilogue, flat.accumulate, flat.target, flat.padding)


def steps(graph: Graph, node: Node, product: Node, whole: KernelProblem) -> tuple[ProposedStep, ProposedStep]:
    """The convolution `whole`, and a view of its result, images of one pixel, as rows."""
    pixels, output = f"{product.outputs[0]}.pixels", whole.outputs[0]
    rows = Operand(graph.type(product.outputs[0]).shape, TensorFormat(output.format.dtype, Layout.ROW))
    view = KernelProblem(Reshape(rows.shape), (output,), (rows,), (), whole.accumulate, whole.target)
    return (
        ProposedStep(whole, (node.inputs[0], *product.inputs[1:]), (pixels,)),
        ProposedStep(view, (pixels,), product.outputs, view=True),
    )


def _beside(operand: Operand, image: tuple[int, ...], outputs: int, last: TensorFormat) -> Operand:
    """A bias, or a residual that has the result's shape."""
    if operand.constant or operand.shape != (image[0], outputs):
        return operand
    return Operand((*operand.shape, *(1 for _ in image[2:])), TensorFormat(operand.format.dtype, last.layout))
