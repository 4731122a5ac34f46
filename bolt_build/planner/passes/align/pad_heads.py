"""Fills heads of attention up with zeros to whole 16 bytes, in the weights of the products that make and read them.

TMA copies rows that begin at whole 16 bytes, so kernels of warpgroups take heads of a multiple of eight elements. Heads
of 36, as MobileViT has them, would be left to kernels of warps, which load them in pieces of 8 bytes. With columns of
zeros behind each head of queries and keys no score changes; with some behind each of the values there are columns of
zeros in the result, and rows of zeros in the weight of what reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.attention.attention import Attention
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.planner.padding import padding_wishes
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.fold.channels import weight_obstacle
from bolt_build.planner.rewrite import GraphEditor
from bolt_build.schema.recipe import PaddingPolicy
from bolt_build.targets import Target

_WHOLE = 8
"""Elements of 16 bytes."""
_MOST = 4 / 3
"""Times as many elements as a head has that padding may make of it."""


@dataclass(frozen=True)
class _Heads:
    """Runs of columns that lie beside each other: how many heads of how many elements each run has."""

    runs: tuple[tuple[int, int], ...]

    @property
    def padded(self) -> int:
        """Columns with the zeros behind each head."""
        return sum(count * _padded(size) for count, size in self.runs)

    def there(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which of the padded columns are some of those that there are."""
        parts = [np.tile(np.arange(_padded(size)) < size, count) for count, size in self.runs]
        return np.concatenate(parts)


def _run(graph: Graph, padding: PaddingPolicy) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(PAD_HEADS.name)
    wishes = padding_wishes(graph.nodes, padding)
    for node in editor.nodes():
        if not isinstance(node.op, Attention):
            continue
        shape = node.op.extents([editor.type(name) for name in node.inputs])
        sizes = tuple(dict.fromkeys((shape.depth, shape.columns)))
        if not any(size % _WHOLE for size in sizes):
            continue
        elements = " and ".join(map(str, sizes))
        wish, key = wishes.of((node.name,))
        obstacle = f"{key} is never" if wish == "never" else _obstacle(editor, node, sizes)
        if obstacle is not None:
            journal.declined(node.name, f"heads of {elements} elements are no multiples of {_WHOLE}, but {obstacle}")
            continue
        _pad(editor, node, node.op, shape.depth, shape.columns)
        journal.did(node.name, f"padded heads of {elements} elements", f"each is a multiple of {_WHOLE}")
    return journal.result(editor.finish())


def _padded(size: int) -> int:
    return -(-size // _WHOLE) * _WHOLE


def _obstacle(editor: GraphEditor, node: Node, sizes: Sequence[int]) -> str | None:
    """Why the heads stay as they are, None where products can make and read them with zeros behind each."""
    assert isinstance(node.op, Attention)
    if any(_padded(size) > _MOST * size for size in sizes):
        return "they would grow by over a third"
    if node.epilogue:
        return "something follows in its kernel"
    for name in dict.fromkeys(node.inputs[: node.op.sources]):
        maker = editor.producer(name)
        if maker is None or not isinstance(maker.op, MatMul):
            return f"'{name}' is no product of rows with a weight"
        if (reason := weight_obstacle(editor, maker)) is not None:
            return reason
        if (reason := editor.not_private(name)) is not None:
            return reason
    (result,) = node.outputs
    if editor.is_output(result):
        return f"'{result}' is a graph output"
    for reader in editor.readers(result):
        if not isinstance(reader.op, MatMul) or reader.op.transpose_a or reader.inputs.count(result) != 1:
            return f"'{reader.name}' is no product of its result with a weight"
        if reader.inputs[0] != result or not editor.is_constant(reader.inputs[1]):
            return f"'{reader.name}' is no product of its result with a weight"
        if editor.type(reader.inputs[1]).rank != 2:
            return f"the weight of '{reader.name}' is not a matrix"
    return None


def _pad(editor: GraphEditor, node: Node, op: Attention, depth: int, columns: int) -> None:
    h, shared = op.heads, op.kv_heads
    sources = ((h, depth), (shared, depth), (shared, columns))
    operands = [_Heads(sources)] if op.packed else [_Heads((each,)) for each in sources]
    inputs = list(node.inputs)
    made: dict[str, str] = {}
    for index, heads in enumerate(operands):
        name = inputs[index]
        if name not in made:
            made[name] = name if all(size % _WHOLE == 0 for _, size in heads.runs) else _made(editor, name, heads)
        inputs[index] = made[name]
    (result,), own = node.outputs, _Heads(((h, columns),))
    if columns % _WHOLE == 0:
        editor.replace(node, replace(node, inputs=tuple(inputs)))
        return
    wide = _wider(editor, result, own)
    editor.replace(node, replace(node, inputs=tuple(inputs), outputs=(wide,)))
    for reader in editor.readers(result):
        assert isinstance(reader.op, MatMul)
        weight = _spread(editor, reader.inputs[1], own, 1 if reader.op.transpose_b else 0)
        editor.replace(reader, replace(reader, inputs=(wide, weight, *reader.inputs[2:])))


def _made(editor: GraphEditor, name: str, heads: _Heads) -> str:
    """Lets the product that makes a value leave zeros behind each of the heads; what its result is called then."""
    maker = editor.producer(name)
    assert maker is not None
    assert isinstance(maker.op, MatMul)
    weight = _spread(editor, maker.inputs[1], heads, 0 if maker.op.transpose_b else 1)
    bias = tuple(_spread(editor, each, heads, 0) for each in maker.inputs[2:])
    wide = _wider(editor, name, heads)
    editor.replace(maker, replace(maker, inputs=(maker.inputs[0], weight, *bias), outputs=(wide,)))
    return wide


def _wider(editor: GraphEditor, name: str, heads: _Heads) -> str:
    type_ = editor.type(name)
    return editor.new_value(f"{name}.heads", replace(type_, shape=(*type_.shape[:-1], heads.padded)))


def _spread(editor: GraphEditor, name: str, heads: _Heads, axis: int) -> str:
    """The constant with zeros behind each of the heads along an axis."""
    array, type_ = editor.constant(name), editor.type(name)
    assert array is not None
    wide = np.zeros((*array.shape[:axis], heads.padded, *array.shape[axis + 1 :]), array.dtype)
    wide[(slice(None),) * axis + (heads.there(),)] = array
    return editor.new_constant(f"{name}.heads", wide, type_.dtype)


def _copies_whole(target: Target, precision: str) -> bool:
    """Kernels of attention that copy by TMA compute in half precision, on GPUs with WGMMA."""
    return target.gpu is not None and target.gpu.warpgroup_mma and precision in ("fp16", "bf16")


PAD_HEADS = Pass("pad-heads", by_padding=_run, pays_on=_copies_whole)
