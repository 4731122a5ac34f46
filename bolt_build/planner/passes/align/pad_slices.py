"""Rounds every part of split and concatenated channels up to whole loads: each begins where kernels can read and store.

A tensor of 104 channels that is split in four of 26 has parts that begin between loads of 16 bytes: none of them can be
a view. With 32 for each, six of them zeros, all can. The convolution that makes the channels gets rows of zero weights
between its parts, those that read them columns of zeros. Between them may stand what keeps channels apart: slices and
concatenations of channels, poolings, means, activations, sums and products of such tensors, or with a constant of each
channel, depthwise convolutions.
Channels that only pass depthwise convolutions or means are one part: `pad-channels` looks through neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

import numpy as np

from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.moves.shape import Concat, Slice
from bolt_build.graph.ops.moves.stack import FoldDepth, UnfoldDepth
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.planner.padding import padding_wishes
from bolt_build.planner.passes.align.pad_channels import PAD_CHANNELS, WHOLE
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor
from bolt_build.schema.recipe import PaddingPolicy

_MOST = 4 / 3
"""Times as many elements as there are that padding may make of tensors that belong together."""
_STAY_SMALL = ("relu", "clip", "sigmoid", "hard_sigmoid", "hard_swish", "silu", "gelu", "tanh", "leaky_relu", "mish")
_JOIN = ("add", "sub", "mul", "max", "min", "prelu")
"""Functions that make small finite numbers of the zeros that pad."""


@dataclass(frozen=True)
class _Tie:
    """Channel c of `value` is channel c + `by` of `whole`, or both are the same channels (`by` 0)."""

    value: str
    whole: str
    by: int
    apart: bool = False
    """Whether what stands between them is a slice, a concatenation, a depthwise convolution or means: `pad-channels`
    looks through none of them."""


def _run(graph: Graph, padding: PaddingPolicy) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(PAD_SLICES.name)
    wishes = padding_wishes(graph.nodes, padding)
    ties = [tie for node in editor.nodes() for tie in _ties(editor, node)]
    cuts = _cuts(editor, ties)
    place = {node.outputs[0]: at for at, node in enumerate(editor.nodes())}
    for group in (sorted(group, key=lambda name: place.get(name, -1)) for group in _groups(ties)):
        odd = [name for name in group if any(size % WHOLE for size in _sizes(cuts[name]))]
        if not odd or not any(tie.apart for tie in ties if tie.value in group):
            continue
        makers = [node.name for name in group if (node := editor.producer(name)) is not None]
        wish, key = wishes.of(tuple(makers))
        obstacle = f"{key} is never" if wish == "never" else _obstacle(editor, group, cuts)
        largest = max(odd, key=lambda name: cuts[name][-1])
        sizes = "+".join(map(str, _sizes(cuts[largest])))
        subject = makers[0] if makers else largest
        if obstacle is not None:
            journal.declined(subject, f"parts of {sizes} channels are no multiples of {WHOLE}, but {obstacle}")
            continue
        _pad(editor, {name: _places(cuts[name]) for name in group})
        journal.did(subject, f"padded parts of {sizes} channels", f"each is a multiple of {WHOLE}")
    return journal.result(editor.finish())


def _ties(editor: GraphEditor, node: Node) -> Iterator[_Tie]:
    """Which channels the node's output has in common with what it reads."""
    output, own = node.outputs[0], node.op_inputs
    shape = editor.type(output).shape
    if len(shape) < 3:
        return
    if isinstance(node.op, Slice) and _of_channels(editor, node):
        yield _Tie(output, own[0], node.op.begin[1], apart=True)
    elif isinstance(node.op, Concat) and node.op.axis == 1:
        at = 0
        for name in own:
            yield _Tie(name, output, at, apart=True)
            at += editor.type(name).shape[1]
    elif _averages(node) or _is_depthwise(editor, node):
        yield _Tie(output, own[0], 0, apart=True)
    elif isinstance(node.op, Pool | Activation | FoldDepth | UnfoldDepth):
        yield _Tie(output, own[0], 0)
    elif isinstance(node.op, Binary):
        yield from (_Tie(output, name, 0) for name in own if _alike(editor, name, shape))
    for stage in node.epilogue:
        if stage.operand is not None and _alike(editor, node.inputs[stage.operand], shape):
            yield _Tie(output, node.inputs[stage.operand], 0)


def _alike(editor: GraphEditor, name: str, shape: tuple[int, ...]) -> bool:
    type = editor.type(name)
    return not editor.is_constant(name) and type.rank == len(shape) and type.shape[1] == shape[1] > 1


def _of_channels(editor: GraphEditor, node: Node) -> bool:
    assert isinstance(node.op, Slice)
    shape = editor.type(node.inputs[0]).shape
    whole = all(
        count == extent for axis, (count, extent) in enumerate(zip(node.op.count, shape, strict=True)) if axis != 1
    )
    return whole and set(node.op.step) == {1} and not editor.is_constant(node.inputs[0])


def _averages(node: Node) -> bool:
    """Whether it reduces pixels of each channel; zeros have no logarithm, which would pad with what is infinite."""
    if not isinstance(node.op, Reduce) or node.op.mode == "log_sum":
        return False
    return 1 not in node.op.axes and 0 not in node.op.axes and node.op.keepdims


def _is_depthwise(editor: GraphEditor, node: Node) -> bool:
    if not isinstance(node.op, Conv) or not all(map(editor.is_constant, node.op_inputs[1:])):
        return False
    return node.op.groups == editor.type(node.inputs[0]).shape[1] == editor.type(node.outputs[0]).shape[1] > 1


def _cuts(editor: GraphEditor, ties: Sequence[_Tie]) -> dict[str, list[int]]:
    """Where the parts of each tied value begin and end."""
    found = {name: {0, editor.type(name).shape[1]} for tie in ties for name in (tie.value, tie.whole)}
    changed = True
    while changed:
        changed = False
        for tie in ties:
            value, whole, extent = found[tie.value], found[tie.whole], editor.type(tie.value).shape[1]
            more = {cut + tie.by for cut in value} - whole
            back = {cut - tie.by for cut in whole if 0 <= cut - tie.by <= extent} - value
            whole |= more
            value |= back
            changed = changed or bool(more or back)
    return {name: sorted(cuts) for name, cuts in found.items()}


def _groups(ties: Sequence[_Tie]) -> list[list[str]]:
    """Values that are padded together, in the order of their ties."""
    group_of: dict[str, list[str]] = {}
    for tie in ties:
        one, other = (group_of.setdefault(name, [name]) for name in (tie.value, tie.whole))
        if one is not other:
            one += other
            group_of.update(dict.fromkeys(other, one))
    return list({id(group): group for group in group_of.values()}.values())


def _sizes(cuts: Sequence[int]) -> list[int]:
    return [end - begin for begin, end in pairwise(cuts)]


def _padded(size: int) -> int:
    return -(-size // WHOLE) * WHOLE


def _places(cuts: Sequence[int]) -> list[int]:
    """The channel that each padded one is, -1 for zeros."""
    found: list[int] = []
    for begin, end in pairwise(cuts):
        found += [*range(begin, end), *(-1,) * (_padded(end - begin) - (end - begin))]
    return found


def _obstacle(editor: GraphEditor, group: Sequence[str], cuts: dict[str, list[int]]) -> str | None:
    """Why the group's values stay as they are, None where they can be padded and that is worth it."""
    elements = {name: prod(editor.type(name).shape) for name in group}
    grown = sum(elements[name] * sum(map(_padded, _sizes(cuts[name]))) // max(cuts[name][-1], 1) for name in group)
    if grown > _MOST * sum(elements.values()):
        return "they would grow by over a third together"
    for name in group:
        if editor.is_output(name) or editor.is_input(name) or editor.is_constant(name):
            return f"'{name}' is {'a graph output' if editor.is_output(name) else 'given'}"
        made = editor.producer(name)
        assert made is not None
        for node in (made, *editor.readers(name)):
            if (reason := _keeps(editor, node, name, node is made)) is not None:
                return f"'{node.name}' {reason}"
    return None


def _keeps(editor: GraphEditor, node: Node, name: str, makes: bool) -> str | None:
    """Why the node cannot make, or read, the value with zeros between its channels; None where it can."""
    tied = {other for tie in _ties(editor, node) for other in (tie.value, tie.whole)}
    shape = editor.type(node.outputs[0]).shape
    tied.update(each for each in node.inputs if _is_of_channels(editor, each, shape))
    for stage in node.epilogue:
        operand = None if stage.operand is None else node.inputs[stage.operand]
        if (reason := _stage(editor, stage.op, [] if operand is None else [operand], tied)) is not None:
            return reason
    if isinstance(node.op, Conv) and not _is_depthwise(editor, node):
        if node.op.groups != 1 or not all(map(editor.is_constant, node.op_inputs[1:])):
            return "has groups, or weights that are no constants"
        reads = [index for index, each in enumerate(node.inputs) if each == name]
        return None if makes or name in tied or reads == [0] else "reads it as no A operand"
    if name not in tied:
        return f"is {node.op.kind}"
    return (
        _stage(editor, node.op, [], tied) if not node.op_inputs[1:] else _stage(editor, node.op, node.op_inputs, tied)
    )


def _is_of_channels(editor: GraphEditor, name: str, shape: tuple[int, ...]) -> bool:
    """Whether it is a constant with one number for each channel of images of the shape: zeros pad it, too."""
    if not editor.is_constant(name) or len(shape) < 3:
        return False
    own = editor.type(name).shape
    aligned = (1,) * (len(shape) - len(own)) + own
    return len(own) <= len(shape) and aligned[1] == shape[1] > 1 and prod(own) == shape[1]


def _stage(editor: GraphEditor, op: object, operands: Sequence[str], tied: set[str]) -> str | None:
    """Why the zeros that pad would not stay small, or what is joined has other channels; None where neither is so."""
    if isinstance(op, Activation) and op.function not in _STAY_SMALL:
        return f"computes {op.function}"
    if isinstance(op, Binary):
        if op.function not in _JOIN:
            return f"computes {op.function}"
        for name in operands:
            array = editor.constant(name)
            if name not in tied and (array is None or array.size != 1 or not np.all(np.abs(array) <= 1e4)):
                return f"joins '{name}', which has other channels"
    return None


def _pad(editor: GraphEditor, places: dict[str, list[int]]) -> None:
    """Every node that makes or reads one of the values does so with the channels at their new places."""
    names = {}
    for value, of in places.items():
        type = editor.type(value)
        shape = (type.shape[0], len(of), *type.shape[2:])
        names[value] = editor.new_value(f"{value}.apart", replace(type, shape=shape))
    for old in editor.nodes():
        if not any(name in names for name in (*old.inputs, *old.outputs)):
            continue
        inputs, op, (given, made) = list(old.inputs), old.op, (places.get(old.inputs[0]), places.get(old.outputs[0]))
        if isinstance(op, Conv):
            depthwise = _is_depthwise(editor, old)
            inputs[1] = _moved(editor, inputs[1], made, None if depthwise else given)
            if len(old.op_inputs) > 2 and made is not None:
                inputs[2] = _moved(editor, inputs[2], made, None)
            if depthwise and made is not None:
                op = replace(op, groups=len(made))
        elif isinstance(op, Slice) and given is not None and made is not None:
            begin = given.index(op.begin[1])
            op = replace(op, begin=(op.begin[0], begin, *op.begin[2:]), count=(op.count[0], len(made), *op.count[2:]))
        if made is not None:
            shape = editor.type(old.outputs[0]).shape
            staged = {stage.operand for stage in old.epilogue}
            for at, name in enumerate(inputs):
                joined = isinstance(op, Activation | Binary | Pool) or at in staged
                if joined and _is_of_channels(editor, name, shape):
                    inputs[at] = _spread(editor, name, made, editor.type(name).rank - len(shape) + 1)
        outputs = tuple(names.get(name, name) for name in old.outputs)
        editor.replace(
            old, replace(old, op=op, inputs=tuple(names.get(name, name) for name in inputs), outputs=outputs)
        )


def _spread(editor: GraphEditor, name: str, places: list[int], axis: int) -> str:
    """The constant with its numbers along an axis at the places, zeros between them."""
    return _moved(editor, name, *((places, None) if axis == 0 else (None, places)))


def _moved(editor: GraphEditor, name: str, rows: list[int] | None, columns: list[int] | None) -> str:
    """The constant with its first two axes at the places, zeros between them."""
    array, type = editor.constant(name), editor.type(name)
    assert array is not None
    for axis, places in ((0, rows), (1, columns)):
        if places is not None:
            there = np.array(places) >= 0
            wide = np.zeros((*array.shape[:axis], len(places), *array.shape[axis + 1 :]), array.dtype)
            wide[(slice(None),) * axis + (there,)] = array.take(np.array(places)[there], axis)
            array = wide
    return editor.new_constant(f"{name}.apart", np.ascontiguousarray(array), type.dtype)


PAD_SLICES = Pass("pad-slices", by_padding=_run, pays_on=PAD_CHANNELS.pays_on)
