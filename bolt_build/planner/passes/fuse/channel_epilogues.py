"""Fuses what only kernels of GPUs do behind a convolution or a product into its epilogue: constants of channels, and
functions that are not in every library.

That is PRelu with a slope a channel, and scale and shift behind an activation or a residual, which no weight in front
can take: those of a BatchNorm, or of MobileBERT's normalisations. Behind a convolution a constant of one number is that
of every channel: blocks of PP-HGNet and PP-LCNet scale and shift what their activations leave so. Functions
are roots and quotients, as of generalised divisive normalisation in learned compression, and SELU. What follows is part
of the epilogue too, within the limits that it has without constants. It runs last: passes that order, pad or cut
filters know no constants behind them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bolt_build.dtypes import PRECISIONS
from bolt_build.graph.ir import EpilogueOp, Graph, Node
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.planner.passes.base import Journal, Pass, PassResult, on_tensor_cores
from bolt_build.planner.passes.fold.channels import channel_axis
from bolt_build.planner.passes.fuse.epilogues import ACTIVATIONS, IN_KERNEL
from bolt_build.planner.passes.tidy.duplicates import COMMUTATIVE
from bolt_build.planner.rewrite import GraphEditor, joined
from bolt_build.schema.recipe import FusionPolicy

CONSTANTS = 4
"""Most stages of an epilogue that read a constant of the channel."""
_FUNCTIONS = ("add", "mul", "sub", "prelu")
_ACTIVATIONS = ("sqrt", "reciprocal", "neg", "selu", "celu", "softsign", "thresholded_relu", "shrink", "sign", "round")
"""Functions that only kernels of GPUs apply behind a convolution. Those with a slow path for large numbers, such as a
sine, would take registers from its products."""


def _run(graph: Graph, fusion: FusionPolicy) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(FUSE_CHANNELS.name)
    if not fusion.epilogue:
        journal.declined(graph.name, "policy.fusion.epilogue is false")
        return journal.result(graph)
    for host in reversed([node for node in editor.nodes() if _has_channels(editor, node)]):
        _extend(editor, journal, host)
    return journal.result(editor.finish())


def _has_channels(editor: GraphEditor, node: Node) -> bool:
    """Whether a node is a convolution, or a product with a matrix of weights, whose columns are channels."""
    if isinstance(node.op, MatMul):
        return editor.is_constant(node.inputs[1]) and editor.type(node.inputs[1]).rank == 2
    return isinstance(node.op, Conv)


def _extend(editor: GraphEditor, journal: Journal, host: Node) -> None:
    """Takes readers into the epilogue, from one on that only kernels of GPUs take."""
    begun = False
    while editor.type(host.outputs[0]).dtype in PRECISIONS.values():
        output = host.outputs[0]
        readers = [node for node in editor.readers(output) if isinstance(node.op, Activation | Binary)]
        if not readers:
            return
        reader = readers[0]
        if output not in reader.op_inputs:  # a stage of another kernel's epilogue
            return
        fused = _fused(editor, host, reader)
        if not begun and not _is_ours(editor, host, fused[len(host.epilogue)]):
            return
        if (obstacle := editor.not_private(output) or _obstacle(editor, host, reader, fused)) is not None:
            journal.declined(reader.name, f"stays out of '{host.name}': {obstacle}")
            return
        host = _fuse(editor, host, reader, fused)
        begun = True
        journal.did(reader.name, "fused", f"into the epilogue of '{host.covers[0] if host.covers else host.name}'")


_Stage = tuple[Activation | Binary, str | None, bool]
"""A stage's operator, the name of its operand, and whether that comes first."""


def _fused(editor: GraphEditor, host: Node, reader: Node) -> list[_Stage]:
    """The stages of both; one over the result is its reciprocal."""
    assert isinstance(reader.op, Activation | Binary)
    if isinstance(reader.op, Activation):
        own: _Stage = (reader.op, None, False)
    else:
        right = reader.inputs[0] != host.outputs[0]
        own = (reader.op, reader.inputs[0 if right else 1], right and reader.op.function not in COMMUTATIVE)
    return [*_stages(host), *(_as_reciprocal(editor, stage) for stage in (own, *_stages(reader)))]


def _as_reciprocal(editor: GraphEditor, stage: _Stage) -> _Stage:
    op, operand, swapped = stage
    if isinstance(op, Activation) or op.function != "div" or not swapped or operand is None:
        return stage
    above = editor.constant(operand)
    is_one = above is not None and above.size == 1 and above.reshape(()) == 1
    return (Activation("reciprocal"), None, False) if is_one else stage


def _stages(node: Node) -> list[_Stage]:
    found: list[_Stage] = []
    for stage in node.epilogue:
        assert isinstance(stage.op, Activation | Binary)
        found.append((stage.op, None if stage.operand is None else node.inputs[stage.operand], stage.swapped))
    return found


def _is_ours(editor: GraphEditor, host: Node, stage: _Stage) -> bool:
    """Whether only kernels of GPUs take the stage."""
    return stage[0].function in _ACTIVATIONS or _is_a_channel(editor, host, stage)


def _is_a_channel(editor: GraphEditor, host: Node, stage: _Stage) -> bool:
    """Whether the stage reads a constant of each channel, or one of all channels."""
    op, operand, swapped = stage
    if operand is None or not editor.is_constant(operand) or swapped or op.function not in _FUNCTIONS:
        return False
    out, shape = editor.type(host.outputs[0]), editor.type(operand).shape
    channel, lead = channel_axis(host, out), (1,) * (out.rank - len(shape)) + shape
    if len(lead) != out.rank or out.shape[channel] == 1:
        return False
    counts = (1, out.shape[channel]) if isinstance(host.op, Conv) else (out.shape[channel],)
    return lead[channel] in counts and all(extent == 1 for axis, extent in enumerate(lead) if axis != channel)


def _obstacle(editor: GraphEditor, host: Node, reader: Node, stages: list[_Stage]) -> str | None:
    """Why the host's kernel cannot have all of these stages."""
    out = editor.type(host.outputs[0])
    if editor.type(reader.outputs[0]) != out:
        return f"'{reader.outputs[0]}' is larger than '{host.outputs[0]}'"
    functions = [op.function for op, _, _ in stages if isinstance(op, Activation)]
    if (strange := next((name for name in functions if name not in (*IN_KERNEL, *_ACTIVATIONS)), None)) is not None:
        return f"'{strange}' is no stage of a convolution's epilogue"
    if len(functions) > ACTIVATIONS:
        return f"its epilogue would have more than {ACTIVATIONS} activations"
    others = [stage for stage in stages if stage[1] is not None and not _is_a_channel(editor, host, stage)]
    if sum(operand is not None for _, operand, _ in stages) - len(others) > CONSTANTS:
        return f"its epilogue would read more than {CONSTANTS} constants of a channel"
    for op, operand, swapped in others:
        assert operand is not None
        if editor.is_constant(operand) or editor.type(operand) != out:
            return f"'{operand}' is neither one number a channel nor like '{reader.outputs[0]}'"
        if op.function in ("pow", "mod", "fmod", "prelu") or (swapped and op.function in ("sub", "div")):
            return f"'{op.function}' with a tensor is no stage of a convolution's epilogue"
    return "its epilogue would read more than one tensor" if len(others) > 1 else None


def _fuse(editor: GraphEditor, host: Node, reader: Node, stages: list[_Stage]) -> Node:
    """The host with the stages, under the name and with the output of the reader, in its place."""
    taken = {stage.operand for stage in host.epilogue}
    inputs = [name for index, name in enumerate(host.inputs) if index not in taken]
    epilogue = []
    for op, operand, swapped in stages:
        epilogue.append(EpilogueOp(op, None if operand is None else len(inputs), swapped))
        inputs += [] if operand is None else [_of_each_channel(editor, host, operand)]
    fused = replace(
        host, name=reader.name, inputs=tuple(inputs), outputs=reader.outputs, epilogue=tuple(epilogue),
        covers=joined(host.covers, reader.covers),
    )  # fmt: skip
    editor.remove(host)
    editor.replace(reader, fused)
    return fused


def _of_each_channel(editor: GraphEditor, host: Node, operand: str) -> str:
    """The operand, or a constant that repeats its one number for each channel: kernels read one a channel."""
    array, (_, channels, *positions) = editor.constant(operand), editor.type(host.outputs[0]).shape
    if array is None or array.size != 1:
        return operand
    repeated = np.full((channels, *(1 for _ in positions)), array.reshape(()))
    return editor.new_constant(f"{operand}.channels", repeated, editor.type(operand).dtype)


FUSE_CHANNELS = Pass("fuse-channels", by_fusion=_run, pays_on=on_tensor_cores)
