"""Makes one step of what scales the sums of a product of integers: a cast and a multiplication, as in models that are
quantised at run time.

The sums alone are larger than half precision holds, so they must not be stored in it.
"""

from __future__ import annotations

import numpy as np

from bolt_build.graph.arrays import held_dtype
from bolt_build.graph.ir import Graph, Node, ShapeError
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.moves.shape import Cast
from bolt_build.graph.ops.quantised.integer_product import IntegerConv, IntegerMatMul
from bolt_build.graph.ops.quantised.quantize import ScaleSums
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor, joined


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(SCALE_SUMS.name)
    for node in editor.nodes():
        if isinstance(node.op, Cast) and node.op.to.is_float:
            _merge(editor, journal, node)
    return journal.result(editor.finish())


def _merge(editor: GraphEditor, journal: Journal, cast: Node) -> None:
    product, (sums,), (real,) = editor.producer(cast.inputs[0]), cast.inputs, cast.outputs
    if product is None or not isinstance(product.op, IntegerConv | IntegerMatMul):
        return
    obstacle, readers = editor.not_private(real), editor.readers(real)
    if obstacle is None and not (readers and readers[0].op == Binary("mul") and not readers[0].epilogue):
        obstacle = "what reads its sums does not scale them"
    if obstacle is not None:
        journal.declined(cast.name, obstacle)
        return
    (reader,) = readers
    other = reader.inputs[1 if reader.inputs[0] == real else 0]
    scales = _scales(editor, reader, other)
    op = ScaleSums(editor.type(reader.outputs[0]).dtype)
    try:
        (made,) = op.infer([editor.type(name) for name in (sums, *scales)])
    except ShapeError as error:
        journal.declined(cast.name, str(error))
        return
    if made != editor.type(reader.outputs[0]):
        journal.declined(cast.name, f"'{other}' is larger than '{real}'")
        return
    covers = joined(cast.covers, reader.covers)
    editor.remove(cast)
    editor.replace(reader, Node(reader.name, op, (sums, *scales), reader.outputs, covers=covers))
    editor.prune([other])
    journal.did(reader.name, "merged", f"with '{cast.name}'")


def _scales(editor: GraphEditor, reader: Node, other: str) -> tuple[str, str]:
    """The scales whose product `other` is: both, or itself and one."""
    node = editor.producer(other)
    if node is not None and node.op == Binary("mul") and not node.epilogue:
        return node.inputs[0], node.inputs[1]
    dtype = editor.type(other).dtype
    return other, editor.new_constant(f"{reader.name}.one", np.ones((), held_dtype(dtype)), dtype)


SCALE_SUMS = Pass("scale-sums", _run)
