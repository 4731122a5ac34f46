"""Gathers, concatenations and sums whose rows one kernel can add up, with the normalisation behind them: embeddings of
tokens, and the tokens of images, whoever exported them."""

from __future__ import annotations

from dataclasses import dataclass

from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.moves.gather import Gather
from bolt_build.graph.ops.moves.shape import Concat
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.graph.ops.norms.row_sum import Rows, Term


@dataclass(frozen=True)
class FoundTerm:
    """A term of a sum and the values that it reads; `node` makes it of them, None where it is the value itself."""

    term: Term
    values: tuple[str, ...]
    node: Node | None = None


@dataclass(frozen=True)
class RowSums:
    """Nodes that add up rows, in the graph's order: the last of them leaves the sum, `total`. `norm` normalises the
    rows, None where nothing does. `kept`: another node reads the sum, or it is an output of the graph."""

    sums: tuple[Node, ...]
    terms: tuple[FoundTerm, ...]
    total: str
    norm: Node | None
    kept: bool

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All of them, in the graph's order."""
        return self.sums if self.norm is None else (*self.sums, self.norm)

    @property
    def region(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.nodes)


def row_sums_from(graph: Graph, first: Node) -> RowSums | None:
    """The sum of rows whose first node in the graph's order is `first`, None where there is none of several nodes."""
    if not _is_part(graph, first):
        return None
    root = _root(graph, first)
    inside: dict[str, Node] = {}
    terms = _terms(graph, root, inside)
    if not any(name == first.name for name in inside) or not graph.type(root.outputs[0]).dtype.is_float:
        return None
    places = {node.name: place for place, node in enumerate(graph.nodes)}
    nodes = tuple(sorted(inside.values(), key=lambda node: places[node.name]))
    total = root.outputs[0]
    norm = next((node for node in graph.consumers(total) if _normalises(graph, node, total)), None)
    kept = norm is not None and (total in graph.outputs or len(graph.consumers(total)) > 1)
    if nodes[0] is not first or len(nodes) + (norm is not None) < 2:
        return None
    return RowSums(nodes, terms, total, norm, kept)


def adds_rows(graph: Graph, node: Node) -> bool:
    """Whether the node is a sum in which rows of tables or concatenations are added up, or whose rows are normalised:
    such sums are found by `row_sums_from`."""
    if not _adds(node):
        return False
    root = _root(graph, node)
    terms = _terms(graph, root, {})
    total = root.outputs[0]
    return any(term.node is not None for term in terms) or any(
        _normalises(graph, reader, total) for reader in graph.consumers(total)
    )


def _root(graph: Graph, node: Node) -> Node:
    """The sum that the node's result is a term of, whatever sums lie between; itself where it is none's."""
    while (reader := _only_reader(graph, node)) is not None and _adds(reader):
        node = reader
    return node


def _only_reader(graph: Graph, node: Node) -> Node | None:
    """Who alone reads what the node leaves."""
    readers = graph.consumers(node.outputs[0])
    return readers[0] if len(readers) == 1 and node.outputs[0] not in graph.outputs else None


def _is_part(graph: Graph, node: Node) -> bool:
    return _adds(node) or _takes(graph, node) or _joins(graph, node)


def _adds(node: Node) -> bool:
    """True for sums of two tensors or more."""
    stages = (stage.op for stage in node.epilogue)
    return node.op == Binary("add") and all(op == Binary("add") for op in stages)


def _takes(graph: Graph, node: Node) -> bool:
    """True for gathers of a table's rows."""
    return node.op == Gather(0) and not node.epilogue and graph.type(node.inputs[0]).rank == 2


def _joins(graph: Graph, node: Node) -> bool:
    """True for concatenations of whole rows."""
    return isinstance(node.op, Concat) and not node.epilogue and node.op.axis < graph.type(node.outputs[0]).rank - 1


def _terms(graph: Graph, root: Node, inside: dict[str, Node]) -> tuple[FoundTerm, ...]:
    """What the root adds up; `inside` gets the nodes that no one else needs."""
    inside[root.name] = root
    if not _adds(root):
        return (_made(root),)
    found: list[FoundTerm] = []
    for name in root.inputs:
        maker = graph.producer(name)
        if maker is None or not _is_part(graph, maker) or _only_reader(graph, maker) is not root:
            found.append(FoundTerm(Term(Rows.TENSOR), (name,)))
        elif _adds(maker):
            found += _terms(graph, maker, inside)
        else:
            inside[maker.name] = maker
            found.append(_made(maker))
    return tuple(found)


def _made(node: Node) -> FoundTerm:
    if isinstance(node.op, Concat):
        return FoundTerm(Term(Rows.JOINED, len(node.inputs), node.op.axis), node.inputs, node)
    return FoundTerm(Term(Rows.TABLE, 2), node.inputs, node)


def _normalises(graph: Graph, node: Node, total: str) -> bool:
    """True for a node that normalises the rows of `total` by statistics of each, with constant factors and shifts."""
    op = node.op
    last = graph.type(total).rank - 1
    return (
        isinstance(op, Norm)
        and (op.axes, op.groups) == ((last,), 1)
        and op.statistic != "deviation"
        and not node.epilogue
        and node.inputs[0] == total
        and all(graph.constant(name) is not None for name in node.inputs[1:])
    )
