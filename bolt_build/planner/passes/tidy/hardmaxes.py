"""Makes a comparison with the place of the greatest element of a large Hardmax, on GPUs.

A kernel of places goes through a line at the bandwidth of memory, and so does one that compares: each asks for one
number of a line alone. A thread that does both has a line by itself.
"""

from __future__ import annotations

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.arrays import numpy_dtype
from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.elementwise.logic import Compare, Where
from bolt_build.graph.ops.lines.line import Line
from bolt_build.graph.ops.lines.lines import Places
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.recognise.attention_operands import Chain
from bolt_build.planner.rewrite import GraphEditor, joined
from bolt_build.targets import Target

_LEAST = 1 << 16
"""Elements that are worth a second step."""


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(COMPARE_HARDMAXES.name)
    for node in editor.nodes():
        if not isinstance(node.op, Line) or node.op.function != "hardmax" or node.epilogue:
            continue
        type_, axis = editor.type(node.inputs[0]), node.op.axis
        if type_.elements < _LEAST:
            journal.declined(node.name, f"{type_.elements} elements are no two steps, {_LEAST} are")
            continue
        chain = Chain(editor, f"{node.name}.places")
        greatest = chain.add(Places(axis, 1, True, False), node.inputs)
        along = [1] * type_.rank
        along[axis] = type_.shape[axis]
        numbers = np.arange(type_.shape[axis], dtype=np.int64).reshape(along)
        every = editor.new_constant(f"{node.name}.numbers", numbers, DType.I64)
        one, other = (
            editor.new_constant(f"{node.name}.{name}", np.asarray(value, numpy_dtype(type_.dtype)), type_.dtype)
            for name, value in (("one", 1.0), ("zero", 0.0))
        )
        first = chain.add(Compare("equal"), [greatest, every])
        end = Node(node.name, Where(), (first, one, other), node.outputs, covers=joined(node.covers))
        editor.replace(node, *chain.nodes, end)
        journal.did(node.name, "compared", f"each number along axis {axis} with the place of the greatest element")
    return journal.result(editor.finish())


def _on_gpus(target: Target, precision: str) -> bool:
    return target.gpu is not None


COMPARE_HARDMAXES = Pass("compare-hardmaxes", _run, pays_on=_on_gpus)
