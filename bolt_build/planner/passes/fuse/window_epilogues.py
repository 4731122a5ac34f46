"""Fuses elementwise steps behind a pooling into its kernel on GPUs, where nothing else reads what it leaves.

Activations and constants of each channel cost a pooling's kernel nothing. Other images do: on an H200
EfficientFormer-L1's blocks, whose poolings subtracted the image and added the residual, were slower than with steps of
their own. It runs last: passes that pad channels know no constants behind poolings.
"""

from __future__ import annotations

from dataclasses import replace

from bolt_build.dtypes import PRECISIONS
from bolt_build.graph.ir import EpilogueOp, Graph, Node
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.planner.passes.base import Journal, Pass, PassResult, on_tensor_cores
from bolt_build.planner.passes.fuse.epilogues import STAGES
from bolt_build.planner.passes.tidy.duplicates import COMMUTATIVE
from bolt_build.planner.rewrite import GraphEditor, joined
from bolt_build.schema.recipe import FusionPolicy

_WHOLE = 8
"""Channels of a load of 16 bytes: images of others may lie in planes."""


def _run(graph: Graph, fusion: FusionPolicy) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(FUSE_WINDOWS.name)
    if not fusion.epilogue:
        journal.declined(graph.name, "policy.fusion.epilogue is false")
        return journal.result(graph)
    for node in editor.nodes():
        if not isinstance(node.op, Pool) or node.epilogue:
            continue
        readers = [each for each in editor.readers(node.outputs[0]) if isinstance(each.op, Activation | Binary)]
        if not readers or editor.type(node.outputs[0]).dtype not in PRECISIONS.values():
            continue
        reader = readers[0]
        if (obstacle := _obstacle(editor, node, reader)) is not None:
            journal.declined(reader.name, f"stays out of '{node.name}': {obstacle}")
            continue
        _fuse(editor, node, reader)
        journal.did(reader.name, "fused", f"into the epilogue of '{node.covers[0] if node.covers else node.name}'")
    return journal.result(editor.finish())


def _obstacle(editor: GraphEditor, node: Node, reader: Node) -> str | None:
    """Why the kernel of the pooling does not compute the reader too."""
    assert isinstance(node.op, Pool)
    (output,), out = node.outputs, editor.type(node.outputs[0])
    if (obstacle := editor.not_private(output)) is not None:
        return obstacle
    if out.shape[1] % _WHOLE:
        return f"{out.shape[1]} channels are no whole loads, and kernels of planes pool alone"
    front = editor.producer(node.inputs[0])
    if node.op.mode == "max" and front is not None and isinstance(front.op, Conv):
        return f"'{front.name}' and the pooling of its maxima may be one kernel"
    if editor.type(reader.outputs[0]) != out:
        return f"'{reader.outputs[0]}' is larger than '{output}'"
    if len(reader.epilogue) + 1 > STAGES:
        return f"its epilogue would have more than {STAGES} stages"
    for name in reader.inputs:
        if name != output and not _read(editor, name, out.shape):
            return f"'{name}' is no constant of each channel: a step of its own reads it faster"
    return None


def _read(editor: GraphEditor, name: str, shape: tuple[int, ...]) -> bool:
    """Whether an operand is one number a channel or of all."""
    own = editor.type(name).shape
    lead = (1,) * (len(shape) - len(own)) + own
    return editor.is_constant(name) and lead[1] in (1, shape[1]) and {lead[0], *lead[2:]} == {1}


def _fuse(editor: GraphEditor, node: Node, reader: Node) -> None:
    """The pooling with the reader and its stages, under the reader's name and in its place."""
    (output,), inputs, epilogue = node.outputs, list(node.inputs), list[EpilogueOp]()
    assert isinstance(reader.op, Activation | Binary)
    if isinstance(reader.op, Activation):
        epilogue.append(EpilogueOp(reader.op))
    else:
        right = reader.inputs[0] != output
        epilogue.append(EpilogueOp(reader.op, len(inputs), right and reader.op.function not in COMMUTATIVE))
        inputs.append(reader.inputs[0 if right else 1])
    for stage in reader.epilogue:
        epilogue.append(stage if stage.operand is None else replace(stage, operand=len(inputs)))
        inputs += [] if stage.operand is None else [reader.inputs[stage.operand]]
    fused = replace(
        node, name=reader.name, inputs=tuple(inputs), outputs=reader.outputs, epilogue=tuple(epilogue),
        covers=joined(node.covers, reader.covers),
    )  # fmt: skip
    editor.remove(node)
    editor.replace(reader, fused)


FUSE_WINDOWS = Pass("fuse-windows", by_fusion=_run, pays_on=on_tensor_cores)
