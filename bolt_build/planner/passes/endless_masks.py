"""Lets masks hide by infinity that do so in half precision anyway: fp32's largest number is none of fp16's or bf16's.

Exporters of torch's attention write that number. Masks that hide by infinity come apart (`hiding_masks`): beside a
triangle no other number may be added, for a row that both hide as a whole sees what one of them hides.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, isinf

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.arrays import held_dtype
from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.arithmetic import Binary
from bolt_build.graph.ops.logic import Where
from bolt_build.planner.passes.attention_scores import number
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.rewrite import GraphEditor
from bolt_build.schema.recipe import Policy
from bolt_build.targets import Target

BEYOND = 3.3961775292304e38
"""From here on a number rounds to infinity in bf16, as in fp16."""


def _run(graph: Graph, policy: Policy) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(HIDE_ENDLESSLY.name)
    for node in editor.nodes():
        side = _hides(editor, node)
        if side is None:
            continue
        dtype = editor.type(node.outputs[0]).dtype
        endless = editor.new_constant(f"{node.inputs[side]}.endless", np.asarray(-inf, held_dtype(dtype)), dtype)
        inputs = tuple(endless if index == side else name for index, name in enumerate(node.inputs))
        editor.replace(node, replace(node, inputs=inputs))
        journal.did(node.name, "hides by infinity", f"'{node.inputs[side]}' is infinite in half precision")
    return journal.result(editor.finish())


def _hides(editor: GraphEditor, node: Node) -> int | None:
    """Which input of a mask, which only sums read, is a finite number beyond half precision beside a zero."""
    if not isinstance(node.op, Where) or node.epilogue or editor.type(node.outputs[0]).dtype is not DType.F32:
        return None
    if not all(reader.op == Binary("add") for reader in editor.readers(node.outputs[0])):
        return None
    for hidden, shown in ((1, 2), (2, 1)):
        level = number(editor, node.inputs[hidden])
        if level is not None and level <= -BEYOND and not isinf(level) and number(editor, node.inputs[shown]) == 0.0:
            return hidden
    return None


def _in_half(target: Target, precision: str) -> bool:
    return precision in ("fp16", "bf16")


HIDE_ENDLESSLY = Pass("hide-endlessly", _run, pays_on=_in_half)
