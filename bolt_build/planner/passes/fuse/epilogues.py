"""Fuses elementwise nodes into the node before them, as stages that run before its result is stored.

A Conv or MatMul takes at most one other tensor of the output's shape (a residual) and two activations. An elementwise
node takes up to four stages, whose operands may also be constants, one number or some along one axis: one pass over
memory. So does a normalisation or a reduction, where no kernel computes it with what is in front of it: for example
GroupNorm and SiLU, or a residual behind the normalisation of Swin V2. And so do windows times filters that are data,
whose constants are numbers of channels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from bolt_build.dtypes import PRECISIONS
from bolt_build.graph.ir import EpilogueOp, Graph, Node, TensorType
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.images.weighed_windows import WeighedWindows
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.moves.gather import Gather
from bolt_build.graph.ops.moves.shape import Concat
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.graph.ops.products.placed_matmul import PlacedMatMul
from bolt_build.graph.ops.quantised.quantised_product import QuantisedProduct
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.tidy.duplicates import COMMUTATIVE
from bolt_build.planner.rewrite import GraphEditor, joined
from bolt_build.schema.recipe import FusionPolicy

ACTIVATIONS = 2
"""Most activations in the epilogue of a Conv or MatMul."""

STAGES = 4
"""Most stages in the epilogue of an elementwise node."""

IN_KERNEL = (
    "relu", "leaky_relu", "clip", "sigmoid", "hard_sigmoid", "hard_swish", "tanh", "softplus", "gelu", "gelu_tanh",
    "silu", "swish", "exp", "abs", "elu", "mish", "square",
)  # fmt: skip
"""Activations that every kernel library applies behind a convolution."""


@dataclass(frozen=True)
class Stage:
    """A reader as a stage of its producer's epilogue; `operand` is the other tensor's name."""

    op: Activation | Binary
    operand: str | None
    swapped: bool


def _run(graph: Graph, fusion: FusionPolicy) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(FUSE_EPILOGUES.name)
    if not fusion.epilogue:
        journal.declined(graph.name, "policy.fusion.epilogue is false")
        return journal.result(graph)
    # From the last to the first: of two convolutions that meet in an addition, the later one takes it, because the
    # other's result exists by then.
    for host in reversed(
        [node for node in editor.nodes() if isinstance(node.op, Conv | MatMul | PlacedMatMul | QuantisedProduct)]
    ):
        _extend(editor, journal, host, _kernel_limit)
    for old in editor.nodes():
        node = editor.node(old.name)
        if node is not None and isinstance(node.op, Activation | Binary | Norm | Reduce | WeighedWindows):
            _extend(editor, journal, node, _statistics_limit)
    return journal.result(editor.finish())


Limit = Callable[[GraphEditor, Node, Stage], str | None]


def _extend(editor: GraphEditor, journal: Journal, host: Node, limit: Limit) -> None:
    """Takes readers into the host's epilogue, one after another, as long as it can."""
    while True:
        output = host.outputs[0]
        readers = [node for node in editor.readers(output) if isinstance(node.op, Activation | Binary)]
        if not readers or editor.type(output).dtype not in PRECISIONS.values():
            return
        reader = readers[0]
        obstacle = editor.not_private(output) or _obstacle(editor, host, reader)
        stage = _stage(reader, output)
        if obstacle is None:
            obstacle = limit(editor, host, stage)
        if obstacle is not None:
            journal.declined(reader.name, f"stays out of '{host.name}': {obstacle}")
            return
        host = _fuse(editor, host, reader, stage)
        journal.did(reader.name, "fused", f"into the epilogue of '{host.covers[0] if host.covers else host.name}'")


def _stage(reader: Node, output: str) -> Stage:
    assert isinstance(reader.op, Activation | Binary)
    if isinstance(reader.op, Activation):
        return Stage(reader.op, None, swapped=False)
    right = reader.inputs[0] != output
    return Stage(reader.op, reader.inputs[0 if right else 1], right and reader.op.function not in COMMUTATIVE)


def _obstacle(editor: GraphEditor, host: Node, reader: Node) -> str | None:
    """Why the reader, which alone reads the host's output, cannot be a stage of any epilogue of the host.

    Its other operand cannot depend on the host: that would be another reader.
    """
    output = host.outputs[0]
    if reader.epilogue:
        return f"'{reader.name}' already has an epilogue"
    if editor.type(reader.outputs[0]) != editor.type(output):
        return f"'{reader.outputs[0]}' is larger than '{output}'"
    return None


def _kernel_limit(editor: GraphEditor, host: Node, stage: Stage) -> str | None:
    """What the kernel of a Conv or MatMul does not take."""
    if isinstance(stage.op, Activation):
        if stage.op.function not in IN_KERNEL:
            return f"'{stage.op.function}' is no stage of a convolution's epilogue"
        if sum(isinstance(s.op, Activation) for s in host.epilogue) == ACTIVATIONS:
            return f"its epilogue already has {ACTIVATIONS} activations"
        return None
    assert stage.operand is not None
    if stage.op.function == "prelu":
        return "'prelu' is no stage of a convolution's epilogue"
    if stage.op.function in ("pow", "mod", "fmod") or (stage.swapped and stage.op.function in ("sub", "div")):
        return f"'{stage.op.function}' with the convolution's result on the right is no stage of its epilogue"
    if editor.is_constant(stage.operand):
        return f"'{stage.operand}' is constant"
    if editor.type(stage.operand) != editor.type(host.outputs[0]):
        return f"'{stage.operand}' is broadcast"
    if any(isinstance(s.op, Binary) for s in host.epilogue):
        return "its epilogue already has a residual"
    return None


def _elementwise_limit(editor: GraphEditor, host: Node, stage: Stage) -> str | None:
    """What one pass over memory does not take."""
    if len(host.epilogue) == STAGES:
        return f"its epilogue already has {STAGES} stages"
    if stage.operand is None:
        return None
    out = editor.type(host.outputs[0])
    if editor.type(stage.operand) == out:
        return None
    if not editor.is_constant(stage.operand):
        return f"'{stage.operand}' is broadcast"
    axes = _axes(editor, stage.operand, out)
    if len(axes) > 1:
        return f"'{stage.operand}' is a constant that is neither one number nor some along one axis"
    own = (host.inputs[each.operand] for each in host.epilogue if each.operand is not None)
    others = {_axes(editor, name, out) for name in own if editor.is_constant(name)} - {()}
    if axes and others and others != {axes}:
        return f"'{stage.operand}' is a constant along another axis than one in its epilogue"
    return None


def _statistics_limit(editor: GraphEditor, host: Node, stage: Stage) -> str | None:
    """The same, where a normalisation or a reduction may be part of the kernel of what is in front of it."""
    out, before = editor.type(host.outputs[0]), editor.producer(host.inputs[0])
    if isinstance(host.op, WeighedWindows) and not _is_of_channels(editor, stage, out):
        return f"'{stage.operand}' is not one number a channel"
    if before is not None:
        if isinstance(host.op, Norm) and host.op.axes == (out.rank - 1,) and _with_rows(before):
            if isinstance(before.op, MatMul) and stage.operand is not None and editor.type(stage.operand) == out:
                return _elementwise_limit(editor, host, stage)  # such a kernel may add a residual behind it
            return f"'{before.name}' and the normalisation of its rows may be one kernel"
        if isinstance(host.op, Reduce) and isinstance(before.op, Conv):
            return f"'{before.name}' and the means of its images may be one kernel"
    return _elementwise_limit(editor, host, stage)


def _is_of_channels(editor: GraphEditor, stage: Stage, out: TensorType) -> bool:
    """Whether the stage reads no constants but one number, or one a channel."""
    if stage.operand is None or not editor.is_constant(stage.operand):
        return True
    return set(_axes(editor, stage.operand, out)) <= {1}


def _with_rows(node: Node) -> bool:
    """Whether families may compute a node and the normalisation of the rows that it leaves at once."""
    return isinstance(node.op, MatMul | Gather | Concat) or (isinstance(node.op, Binary) and node.op.function == "add")


def _axes(editor: GraphEditor, name: str, out: TensorType) -> tuple[int, ...]:
    """The axes of `out` along which a constant's numbers differ."""
    shape = editor.type(name).shape
    return tuple(axis + out.rank - len(shape) for axis, extent in enumerate(shape) if extent != 1)


def _fuse(editor: GraphEditor, host: Node, reader: Node, stage: Stage) -> Node:
    """The host with the stage, under the name and with the output of the reader, in the place of the later one."""
    inputs, operand = host.inputs, None
    if stage.operand is not None:
        operand = len(inputs)
        inputs = (*inputs, stage.operand)
    fused = replace(
        host, name=reader.name, inputs=inputs, outputs=reader.outputs,
        epilogue=(*host.epilogue, EpilogueOp(stage.op, operand, stage.swapped)),
        covers=joined(host.covers, reader.covers),
    )  # fmt: skip
    editor.remove(host)
    editor.replace(reader, fused)
    return fused


FUSE_EPILOGUES = Pass("fuse-epilogues", by_fusion=_run)
