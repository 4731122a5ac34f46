"""Computes element by element what stands behind a concatenation of channels in front of it, where most channels come
of nodes that compute it as they store: f(concat(x, y)) is concat(f(x), f(y)).

Behind the concatenation it is a pass over all channels. In front, a BatchNorm is folded into the weights of
convolutions, and activations and residuals are part of their epilogues. For example the halves of LEDNet's blocks, to
which the blocks' inputs are added, ERFNet's convolutions beside poolings, and the decoders of pix2pix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from bolt_build.dtypes import PRECISIONS
from bolt_build.graph.ir import Graph, Node, TensorType
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.graph.ops.moves.shape import Concat, Reshape, Slice, Transpose
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.planner.passes.base import Journal, Pass, PassResult, on_tensor_cores
from bolt_build.planner.passes.fold.channels import channel_vector
from bolt_build.planner.rewrite import GraphEditor, joined

_WHOLE = 8
"""Channels that a residual's parts begin at multiples of, so that they are read where they lie."""
_FUNCTIONS = ("add", "sub", "mul", "div", "prelu")


@dataclass(frozen=True)
class _Other:
    """The other side of a function of two tensors: a constant with numbers of channels along `axis` (None: of one
    number), or a residual."""

    value: str
    axis: int | None
    constant: bool


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(STAGE_PARTS.name)
    for old in editor.nodes():
        node = editor.node(old.name)
        while node is not None and isinstance(node.op, Concat) and editor.type(node.outputs[0]).rank > 2:
            node = _early(editor, journal, node) if node.op.axis == 1 and not node.epilogue else None
    return journal.result(editor.finish())


def _early(editor: GraphEditor, journal: Journal, concat: Node) -> Node | None:
    """The concatenation behind what stood behind it; None where nothing does, or it stays."""
    (output,) = concat.outputs
    readers = editor.readers(output)
    if len(readers) != 1 or editor.not_private(output) is not None or readers[0].epilogue:
        return None
    (reader,), out = readers, editor.type(output)
    if not isinstance(reader.op, Activation | Binary) or out.dtype not in PRECISIONS.values():
        return None
    if editor.type(reader.outputs[0]) != out or len(set(concat.inputs)) < len(concat.inputs):
        return None
    other = None
    if isinstance(reader.op, Binary):
        other = _other(editor, reader, output, out)
        if other is None:
            return None
    parts = [editor.type(name).shape[1] for name in concat.inputs]
    residual = other is not None and not other.constant
    storing = [_stores(editor, name, residual=residual) for name in concat.inputs]
    taken = sum(part for part, found in zip(parts, storing, strict=True) if found)
    if 2 * taken < sum(parts) or (residual and not all(storing)):
        if taken:
            journal.declined(reader.name, f"stays behind '{concat.name}': too few parts are stored by what could do it")
        return None
    if other is not None and other.constant and not all(storing) and _folds_forward(editor, reader):
        journal.declined(reader.name, f"stays behind '{concat.name}': the weights behind it take its constants")
        return None
    begins = [0, *accumulate(parts)][:-1]
    if residual and any(begin % _WHOLE for begin in begins):
        journal.declined(reader.name, f"stays behind '{concat.name}': parts of its residual are no whole loads")
        return None
    return _stage(editor, journal, concat, reader, other, list(zip(begins, parts, strict=True)))


def _other(editor: GraphEditor, reader: Node, output: str, out: TensorType) -> _Other | None:
    assert isinstance(reader.op, Binary)
    value = reader.inputs[1 if reader.inputs[0] == output else 0]
    if reader.op.function not in _FUNCTIONS or value == output:
        return None
    array = editor.constant(value)
    if array is not None:
        if channel_vector(array, out, 1) is None:
            return None
        return _Other(value, None if array.size == 1 else array.ndim - out.rank + 1, True)
    fits = reader.op.function == "add" and editor.type(value) == out and not editor.is_constant(value)
    return _Other(value, 1, False) if fits else None


def _folds_forward(editor: GraphEditor, reader: Node) -> bool:
    """Whether a product alone reads a channel's constants, and takes a shift as well because it reads no padding."""
    while True:
        (output,) = reader.outputs
        readers = editor.readers(output)
        if len(readers) != 1 or editor.not_private(output) is not None:
            return False
        (reader,) = readers
        if isinstance(reader.op, Conv):
            return reader.inputs[0] == output and not any((*reader.op.pads_begin, *reader.op.pads_end))
        if not isinstance(reader.op, Binary) or _other(editor, reader, output, editor.type(output)) is None:
            return False


def _stores(editor: GraphEditor, value: str, *, residual: bool) -> bool:
    """Whether the node that makes the value for the concatenation alone computes more as it stores, a residual too."""
    node = editor.producer(value)
    if node is None or editor.not_private(value) is not None:
        return False
    if isinstance(node.op, Reshape | Slice | Transpose):
        return not residual and _stores(editor, node.inputs[0], residual=False)
    if residual:
        return _convolves(editor, node)
    return isinstance(node.op, Conv | Pool | Binary | Activation | Norm)


def _convolves(editor: GraphEditor, node: Node) -> bool:
    """Whether the node is a convolution, or the constants of channels and the activation behind one."""
    while isinstance(node.op, Activation | Binary) and not node.epilogue:
        givers = [name for name in node.inputs if not editor.is_constant(name)]
        before = editor.producer(givers[0]) if len(givers) == 1 else None
        if before is None or editor.not_private(givers[0]) is not None:
            return False
        node = before
    return isinstance(node.op, Conv)


def _stage(
    editor: GraphEditor, journal: Journal, concat: Node, reader: Node, other: _Other | None,
    parts: Sequence[tuple[int, int]],
) -> Node:  # fmt: skip
    """`parts`: the first channel of each, and how many it has."""
    made, values = list[Node](), list[str]()
    (output,) = concat.outputs
    for index, (name, (begin, count)) in enumerate(zip(concat.inputs, parts, strict=True)):
        type_ = editor.type(name)
        inputs = {output: name}
        if other is not None:
            inputs[other.value] = _part(editor, made, reader, other, index, begin, count)
        value = editor.new_value(f"{reader.outputs[0]}.{index}", type_)
        label = editor.free_node_name(f"{reader.name}.{index}", {each.name for each in made})
        given = tuple(inputs[each] for each in reader.inputs)
        made.append(Node(label, reader.op, given, (value,)))
        values.append(value)
    joining = replace(
        concat, name=reader.name, inputs=tuple(values), outputs=reader.outputs,
        covers=joined(concat.covers, reader.covers),
    )  # fmt: skip
    editor.remove(concat)
    editor.replace(reader, *made, joining)
    journal.did(reader.name, "computes before", f"'{concat.name}', where its parts are stored")
    return joining


def _part(
    editor: GraphEditor, made: list[Node], reader: Node, other: _Other, index: int, begin: int, count: int
) -> str:  # fmt: skip
    """Channels of the other side, as many as a part has."""
    if other.axis is None:
        return other.value
    type_ = editor.type(other.value)
    if other.constant:
        array = editor.constant(other.value)
        assert array is not None
        kept = array.take(range(begin, begin + count), other.axis)
        return editor.new_constant(f"{other.value}.{index}", kept, type_.dtype)
    shape = (type_.shape[0], count, *type_.shape[2:])
    cut = Slice((0, begin, *(0 for _ in shape[2:])), shape, (1,) * len(shape))
    value = editor.new_value(f"{other.value}.{index}", TensorType(type_.dtype, shape))
    label = editor.free_node_name(f"{reader.name}.part.{index}", {each.name for each in made})
    made.append(Node(label, cut, (other.value,), (value,)))
    return value


STAGE_PARTS = Pass("stage-parts", _run, pays_on=on_tensor_cores)
