"""Orders integers of which it is known that they are small as integers of 8 bits, on GPUs.

A block sorts a line of any length eight bits at a time: numbers of experts, which mixtures of experts sort as integers
of 64 bits, need one turn instead of eight.
"""

from __future__ import annotations

from dataclasses import replace

from bolt_build.dtypes import DType
from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.lines.lines import Places
from bolt_build.graph.ops.moves.gather import GatherElements
from bolt_build.graph.ops.moves.shape import Cast
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.ranges import ranges
from bolt_build.planner.rewrite import GraphEditor
from bolt_build.targets import Target

_LEAST = 128
"""Elements of a line that is worth a step which converts it."""
_MOST = 255


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(NARROW_PLACES.name)
    known = ranges(graph)
    for node in editor.nodes():
        if not isinstance(node.op, Places) or node.epilogue:
            continue
        (given,) = node.inputs
        type_ = editor.type(given)
        low, high = known.get(given, (-1, 0))
        narrow = type_.dtype.is_integer and type_.dtype.nbytes > 2 and low >= 0 and high <= _MOST
        if not narrow or type_.shape[node.op.axis] < _LEAST:
            continue
        small = editor.new_value(f"{given}.small", replace(type_, dtype=DType.U8))
        cast = Node(editor.free_node_name(f"{node.name}.small"), Cast(DType.U8), (given,), (small,))
        editor.replace(node, cast, replace(node, inputs=(small,)))
        _elements(editor, given, small, node.outputs[0])
        journal.did(node.name, "ordered in 8 bits", f"its elements lie between {low} and {high}")
    return journal.result(editor.finish())


def _elements(editor: GraphEditor, given: str, small: str, places: str) -> None:
    """Takes the elements at these places of the small ones too, so that one step finds both."""
    for reader in editor.readers(places):
        if not isinstance(reader.op, GatherElements) or reader.inputs != (given, places) or reader.epilogue:
            continue
        (value,) = reader.outputs
        taken = editor.new_value(f"{value}.small", replace(editor.type(value), dtype=DType.U8))
        wide = Node(editor.free_node_name(f"{reader.name}.wide"), Cast(editor.type(value).dtype), (taken,), (value,))
        editor.replace(reader, replace(reader, inputs=(small, places), outputs=(taken,)), wide)


def _on_gpus(target: Target, precision: str) -> bool:
    return target.gpu is not None


NARROW_PLACES = Pass("narrow-places", _run, pays_on=_on_gpus)
