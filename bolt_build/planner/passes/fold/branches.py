"""Merges convolutions of one tensor whose results are added or subtracted into one: RepVGG's blocks, and others'.

A kernel whose taps all lie on taps of the other's is added to its weights (1x1 to 3x3), and its bias to the bias. The
tensor itself, or one that is scaled and shifted by channel (a BatchNorm without a convolution before it), counts as a
1x1 convolution with ones, or the scales, on its diagonal. The larger convolution costs what it did before; the other
one is gone, and so is the addition, which reads and writes whole tensors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bolt_build.graph.arrays import held_dtype, narrowed
from bolt_build.graph.ir import Array, Graph, Node
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.fold.channels import SUFFIX, channel_vector, weight_obstacle
from bolt_build.planner.rewrite import GraphEditor, joined

MERGED = ".merged"
"""Behind the name of a weight to which another branch has been added."""

MOST_ELEMENTS = 1 << 25
"""Of a branch's weight, which is held in float64."""


@dataclass(frozen=True)
class Branch:
    """One side of the sum: a convolution, or (`op` None) arithmetic by channel, often none, on its input.

    `value` is its result; `nodes` compute it from the tensor that both sides share, its last one first. `offsets` say
    for each spatial axis where its taps lie, from the first cell that an output at 0 would stand on. `sign` is -1 for
    what is subtracted.
    """

    value: str
    nodes: tuple[Node, ...]
    op: Conv | None
    offsets: tuple[tuple[int, ...], ...]
    sign: int

    @property
    def label(self) -> str:
        return self.nodes[0].name if self.nodes else self.value

    def covers(self, other: Branch) -> bool:
        """True where every tap of the other lies on one of this convolution's."""
        pairs = zip(self.offsets, other.offsets, strict=True)
        return self.op is not None and all(set(theirs) <= set(mine) for mine, theirs in pairs)


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(MERGE_BRANCHES.name)
    for old in editor.nodes():
        node = editor.node(old.name)
        if node is None or not isinstance(node.op, Binary) or node.epilogue or node.op.function not in ("add", "sub"):
            continue
        pair = _branches(editor, node)
        if pair is None:
            continue
        obstacle = _obstacle(editor, node, pair)
        if obstacle is not None:
            journal.declined(node.name, obstacle)
            continue
        host, other = pair if pair[0].covers(pair[1]) else pair[::-1]
        journal.did(node.name, "merged", f"'{other.label}' into the weights of '{host.label}'")
        _merge(editor, node, host, other)
    return journal.result(editor.finish())


def _branches(editor: GraphEditor, node: Node) -> tuple[Branch, Branch] | None:
    """Both sides of the sum, where they are branches of one tensor and one of them is a convolution."""
    assert isinstance(node.op, Binary)
    signs = (1, -1 if node.op.function == "sub" else 1)
    producers = [editor.producer(name) for name in node.inputs]
    for conv in producers:
        if conv is not None and isinstance(conv.op, Conv):
            sides = zip(node.inputs, signs, strict=True)
            first, second = (_branch(editor, name, conv.inputs[0], sign) for name, sign in sides)
            if first is not None and second is not None:
                return first, second
    return None


def _branch(editor: GraphEditor, value: str, source: str, sign: int) -> Branch | None:
    """How `value` is made from `source`: by one convolution, or by scalings and shifts; None where by neither."""
    nodes: list[Node] = []
    at = value
    while at != source:
        node = editor.producer(at)
        if node is None:
            return None
        if not nodes and isinstance(node.op, Conv) and node.inputs[0] == source:
            return Branch(value, (node,), node.op, _offsets(node.op, editor.type(node.inputs[1]).shape[2:]), sign)
        step = _step(editor, node)
        if step is None:
            return None
        nodes.append(node)
        at = step[0]
    return Branch(value, tuple(nodes), None, ((0,),) * (editor.type(value).rank - 2), sign)


def _offsets(op: Conv, kernel: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    axes = zip(kernel, op.pads_begin, op.dilations, strict=True)
    return tuple(tuple(tap * dilation - begin for tap in range(extent)) for extent, begin, dilation in axes)


def _step(editor: GraphEditor, node: Node) -> tuple[str, Array, Array] | None:
    """The tensor that `node` scales and shifts, and by what, one float64 a channel; None where it does not."""
    if not isinstance(node.op, Binary) or node.epilogue or node.op.function not in ("add", "sub", "mul", "div"):
        return None
    out = editor.type(node.outputs[0])
    first, second = node.inputs
    for x, other, left in ((first, second, True), (second, first, False)):
        array = editor.constant(other)
        vector = None if array is None or out.rank < 2 else channel_vector(array, out, 1)
        if vector is None or editor.type(x) != out or (node.op.function == "div" and not left):
            continue
        one, zero = np.ones_like(vector), np.zeros_like(vector)
        match node.op.function:
            case "add":
                return x, one, vector
            case "sub":
                return (x, one, -vector) if left else (x, -one, vector)
            case "mul":
                return x, vector, zero
        with np.errstate(divide="ignore"):  # a model's own nonsense stays what it is
            return x, 1 / vector, zero
    return None


def _obstacle(editor: GraphEditor, node: Node, pair: tuple[Branch, Branch]) -> str | None:
    """Why the branches cannot be one convolution; None where they can."""
    out = editor.type(node.outputs[0])
    for branch in pair:
        for step in branch.nodes:
            obstacle = editor.not_private(step.outputs[0])
            if obstacle is not None:
                return obstacle
        if editor.type(branch.value) != out:
            return f"'{branch.value}' is broadcast"
        obstacle = _weight_obstacle(editor, branch) if branch.op is not None else None
        if obstacle is not None:
            return obstacle
    convs = [branch.op for branch in pair if branch.op is not None]
    if len(convs) == 2 and convs[0].strides != convs[1].strides:
        return f"strides {list(convs[0].strides)} and {list(convs[1].strides)} differ"
    if len(convs) == 2 and convs[0].groups != convs[1].groups:
        return f"groups {convs[0].groups} and {convs[1].groups} differ"
    # Where an axis has one cell a strided window only ever stands at 0.
    moves = (s for s, extent in zip(convs[0].strides, out.shape[2:], strict=True) if extent > 1)
    if len(convs) == 1 and any(stride > 1 for stride in moves):
        return f"strides {list(convs[0].strides)} skip cells that the other branch keeps"
    if not pair[0].covers(pair[1]) and not pair[1].covers(pair[0]):
        return f"the taps of neither '{pair[0].label}' nor '{pair[1].label}' cover the other's"
    return None


def _weight_obstacle(editor: GraphEditor, branch: Branch) -> str | None:
    elements = editor.type(branch.nodes[0].inputs[1]).elements
    if elements > MOST_ELEMENTS:
        return f"the weight of '{branch.label}' has {elements} elements; those of at most {MOST_ELEMENTS} are added up"
    return weight_obstacle(editor, branch.nodes[0])


def _merge(editor: GraphEditor, node: Node, host: Branch, other: Branch) -> None:
    """The host with the other's weights and bias added, in the place of the sum."""
    conv = host.nodes[0]
    weight, bias = _signed(_weights(editor, conv), host.sign)
    axes = zip(host.offsets, other.offsets, strict=True)
    places = [[mine.index(tap) for tap in taps] for mine, taps in axes]
    made = _weights(editor, other.nodes[0]) if other.op is not None else _diagonal(editor, other, host)
    added, shift = _signed(made, other.sign)
    weight[np.ix_(range(weight.shape[0]), range(weight.shape[1]), *places)] += added
    for step in (*host.nodes, *other.nodes):
        editor.remove(step)  # first, so that names of constants that only they read are free
    inputs = [conv.inputs[0], _constant(editor, conv.inputs[1], weight, conv)]
    biases = [array for array in (bias, shift) if array is not None]
    if biases:
        name = conv.inputs[2] if bias is not None else f"{conv.name}.bias"
        inputs.append(_constant(editor, name, np.asarray(sum(biases)), conv))
    covers = joined(*(step.covers for step in (*host.nodes, *reversed(other.nodes))), node.covers)
    merged = replace(conv, name=node.name, inputs=tuple(inputs), outputs=node.outputs, covers=covers)
    editor.replace(node, merged)


def _weights(editor: GraphEditor, conv: Node) -> tuple[Array, Array | None]:
    """A convolution's weight, and its bias where it has one, in float64."""
    weight, bias = editor.constant(conv.inputs[1]), None
    assert weight is not None
    if len(conv.inputs) > 2:
        bias = editor.constant(conv.inputs[2])
        assert bias is not None
        bias = bias.astype(np.float64)
    return weight.astype(np.float64), bias


def _signed(made: tuple[Array, Array | None], sign: int) -> tuple[Array, Array | None]:
    weight, bias = made
    return sign * weight, None if bias is None else sign * bias


def _diagonal(editor: GraphEditor, branch: Branch, host: Branch) -> tuple[Array, Array | None]:
    """Scalings and shifts as weight [C, C/groups, 1, ...] and bias [C] (None where nothing is shifted), in float64."""
    assert host.op is not None
    out = editor.type(branch.value)
    channels, spatial = out.shape[1], (1,) * (out.rank - 2)
    scale, shift = np.ones(channels), np.zeros(channels)
    for node in reversed(branch.nodes):
        step = _step(editor, node)
        assert step is not None
        scale, shift = scale * step[1], shift * step[1] + step[2]
    inner = channels // host.op.groups
    weight = np.zeros((channels, inner, *spatial))
    weight[np.arange(channels), np.arange(channels) % inner] = scale.reshape(-1, *spatial)
    return weight, shift if branch.nodes else None


def _constant(editor: GraphEditor, name: str, array: Array, conv: Node) -> str:
    """A new constant in the element type of the convolution's weight, called after `name`."""
    dtype = editor.type(conv.inputs[1]).dtype
    base = name.removesuffix(MERGED).removesuffix(SUFFIX)
    return editor.new_constant(f"{base}{MERGED}", narrowed(array, held_dtype(dtype)), dtype)


MERGE_BRANCHES = Pass("merge-branches", _run)
