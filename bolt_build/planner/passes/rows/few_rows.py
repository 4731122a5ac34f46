"""Computes products of one input with one product where there are few rows: each waits for its launch and its weights
alone, as a decoder's queries, keys and values of one word, of which the latter two join a cache first.

Of one row what each product gave is a run of memory. Of several rows it is columns, which what prepares heads reads
where they lie. Sides of a gate are no such products: they have kernels of their own.
"""

from __future__ import annotations

from math import prod

from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.attention.attention import Attention
from bolt_build.graph.ops.attention.heads import HeadRows, Rotary
from bolt_build.graph.ops.moves.shape import Concat, Identity, Reshape, Slice, Transpose
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.fold.channels import weight_obstacle
from bolt_build.planner.passes.rows.projections import Projection, one_product
from bolt_build.planner.passes.rows.shared_projections import ALIGNED
from bolt_build.planner.rewrite import GraphEditor
from bolt_build.targets import Target

FEW = 64
"""Rows of the smallest tile: more of them are work for a product by itself."""
_MOVES = (Attention, Concat, HeadRows, Identity, Reshape, Rotary, Slice, Transpose)
"""What only moves results of such products, or works on heads."""


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(SHARE_FEW_ROWS.name)
    groups: dict[str, list[Node]] = {}
    for node in editor.nodes():
        if isinstance(node.op, MatMul) and not node.op.transpose_a and _obstacle(editor, node) is None:
            groups.setdefault(node.inputs[0], []).append(node)
    for group in groups.values():
        if len(group) < 2:
            continue
        names = ", ".join(f"'{each.name}'" for each in group)
        _merge(editor, group)
        journal.did(group[0].name, "merged", f"{names}, of few rows")
    return journal.result(editor.finish())


def _obstacle(editor: GraphEditor, node: Node) -> str | None:
    """Why the product is none of those that are merged; None where it is one."""
    (value,), x = node.outputs, editor.type(node.inputs[0])
    if x.rank < 2 or not 0 < prod(x.shape[:-1]) <= FEW:
        return "its rows are work enough"
    if editor.is_output(value) or not all(isinstance(reader.op, _MOVES) for reader in editor.readers(value)):
        return "more than moves reads it"
    if editor.type(value).shape[-1] % ALIGNED:
        return f"its columns are no whole loads of {ALIGNED}"
    return weight_obstacle(editor, node)


def _merge(editor: GraphEditor, group: list[Node]) -> None:
    first = group[0]
    _, rows, made = one_product(editor, first, [Projection(each, None) for each in group])
    shape, begin = editor.type(rows).shape, 0
    for each in group:
        (value,) = each.outputs
        width = editor.type(value).shape[-1]
        slice_ = Slice((*(0,) * (len(shape) - 1), begin), (*shape[:-1], width), (1,) * len(shape))
        made.append(Node(editor.free_node_name(f"{each.name}.columns"), slice_, (rows,), (value,)))
        begin += width
    for each in group[1:]:
        editor.remove(each)
    editor.replace(first, *made)


def _reads_in_place(target: Target, precision: str) -> bool:
    """Kernels of GPUs with tensor cores read columns where they lie; elsewhere weights take as long apart."""
    return target.gpu is not None and target.gpu.instruction(precision) is not None


SHARE_FEW_ROWS = Pass("share-few-rows", _run, pays_on=_reads_in_place)
