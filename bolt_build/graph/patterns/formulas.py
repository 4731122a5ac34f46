"""Elementwise nodes whose results only each other read: what one kernel computes in one pass over memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bolt_build.dtypes import PRECISIONS, DType
from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.formula import Formula, FormulaOp, FormulaTerm
from bolt_build.graph.ops.elementwise.logic import Ask, Compare, Logic, Where
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.moves.shape import Cast
from bolt_build.graph.patterns.row_sums import adds_rows

_FUNCTIONS, _CHOICES = (Activation, Binary), (Activation, Binary, Ask, Cast, Compare, Logic, Where)
_OPERANDS = dict(zip(_CHOICES, (1, 2, 1, 1, 2, 2, 3), strict=True))
MOST_INPUTS, MOST_TERMS = 6, 16
"""Tensors that a formula reads, and functions that it has."""


@dataclass(frozen=True)
class FoundFormula:
    """Nodes in the graph's order, the last of which leaves the result; and their functions of the values `inputs`."""

    nodes: tuple[Node, ...]
    op: Formula
    inputs: tuple[str, ...]

    @property
    def region(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.nodes)


def formulas_from(graph: Graph, first: Node) -> Iterator[FoundFormula]:
    """Formulas of two nodes and more whose first node in the graph's order is `first`, each as large as may be above
    the node that it ends with. Sums of rows are left to `row_sums.py`."""
    places = {node.name: place for place, node in enumerate(graph.nodes)}
    for last in _below(graph, first, chooses=True):
        nodes = _grown(graph, last, places, chooses=True)
        if len(nodes) > 1 and nodes[0] is first and not all(adds_rows(graph, node) for node in nodes):
            yield _formula(graph, nodes)


def folded_from(graph: Graph, first: Node) -> Iterator[tuple[FoundFormula, Node]]:
    """Formulas of one node and more, whose first node is `first`, and the reduction that alone reads their result, as
    what it reduces: each as large as may be above its reduction."""
    if not _is_elementwise(graph, first):
        return
    places = {node.name: place for place, node in enumerate(graph.nodes)}
    for last in (first, *_below(graph, first)):
        result = last.outputs[0]
        readers = graph.consumers(result)
        if len(readers) != 1 or not isinstance(readers[0].op, Reduce) or result in graph.outputs:
            continue
        # Its epilogue may read the result, which is no part of what is reduced then.
        if readers[0].op_inputs != (result,) or readers[0].inputs.count(result) != 1:
            continue
        nodes = _grown(graph, last, places)
        if nodes[0] is first:
            yield _formula(graph, nodes), readers[0]


def _is_elementwise(graph: Graph, node: Node, chooses: bool = False) -> bool:
    """Whether it computes numbers of a layer's precision element by element, or `chooses` among them by booleans."""
    types = [graph.type(name).dtype for name in (*node.inputs, *node.outputs)]
    if not isinstance(node.op, _CHOICES if chooses else _FUNCTIONS):
        return False
    if isinstance(node.op, Cast) and (types[0] is DType.BOOL) is (types[-1] is DType.BOOL):
        return False  # numbers that a model rounds
    if chooses and isinstance(node.op, Compare) and types[0].is_integer:
        return not node.epilogue and types[0] is types[1]
    return all(dtype in PRECISIONS.values() or (chooses and dtype is DType.BOOL) for dtype in types)


def _below(graph: Graph, first: Node, chooses: bool = False) -> Iterator[Node]:
    """Elementwise nodes that depend on the first through such nodes."""
    seen, waiting = {first.name}, [first] if _is_elementwise(graph, first, chooses) else []
    while waiting:
        for reader in graph.consumers(waiting.pop().outputs[0]):
            if reader.name not in seen and _is_elementwise(graph, reader, chooses):
                seen.add(reader.name)
                waiting.append(reader)
                yield reader


def _grown(graph: Graph, last: Node, places: dict[str, int], chooses: bool = False) -> tuple[Node, ...]:
    """The node and those above it whose results only nodes read that are part of it, the nearest first, in the graph's
    order."""
    inside = {last.name: last}
    waiting = _makers(graph, last, chooses)
    while waiting:
        name = max(waiting, key=lambda each: places[each])
        node = waiting.pop(name)
        readers = graph.consumers(node.outputs[0])
        if node.outputs[0] in graph.outputs or any(reader.name not in inside for reader in readers):
            continue
        grown = [*inside.values(), node]
        if len(_read(graph, grown)) > MOST_INPUTS or sum(_functions(each) for each in grown) > MOST_TERMS:
            continue
        inside[node.name] = node
        waiting |= _makers(graph, node, chooses)
    return tuple(sorted(inside.values(), key=lambda each: places[each.name]))


def _makers(graph: Graph, node: Node, chooses: bool) -> dict[str, Node]:
    """The elementwise nodes that make what the node reads."""
    makers = (graph.producer(name) for name in node.inputs)
    return {maker.name: maker for maker in makers if maker is not None and _is_elementwise(graph, maker, chooses)}


def _functions(node: Node) -> int:
    return 1 + len(node.epilogue)


def _read(graph: Graph, nodes: list[Node]) -> tuple[str, ...]:
    """What the nodes read of others, constants behind all else."""
    made = {node.outputs[0] for node in nodes}
    found = dict.fromkeys(name for node in nodes for name in node.inputs if name not in made)
    return tuple(sorted(found, key=lambda name: graph.constant(name) is not None))


def _formula(graph: Graph, nodes: tuple[Node, ...]) -> FoundFormula:
    inputs = _read(graph, list(nodes))
    places = {name: place for place, name in enumerate(inputs)}
    terms: list[FormulaTerm] = []

    def add(op: FormulaOp, *operands: int) -> int:
        terms.append(FormulaTerm(op, operands))
        return len(inputs) + len(terms) - 1

    for node in nodes:
        assert isinstance(node.op, _CHOICES)
        result = add(node.op, *(places[name] for name in node.inputs[: _OPERANDS[type(node.op)]]))
        for stage in node.epilogue:
            assert isinstance(stage.op, Activation | Binary)
            other = () if stage.operand is None else (places[node.inputs[stage.operand]],)
            result = add(stage.op, *((*other, result) if stage.swapped else (result, *other)))
        places[node.outputs[0]] = result
    return FoundFormula(nodes, Formula(len(inputs), tuple(terms)), inputs)
